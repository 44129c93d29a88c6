//! What stands before the command on `remrun`'s line. By hand, see [`super::definition`].

use base::Needs;
use base::command::{TAGS_MAX, is_tag, memory_mib};
use base::path::printable;
use std::string::FromUtf8Error;

/// A line of `remrun`, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// `--help`.
    Help,
    /// `--version`.
    Version,
    /// A command.
    Run(Run),
}

/// A command with the options before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// What it needs of the worker.
    pub needs: Needs,
    /// `--no-local`, `--allow-write` and `--verbose`.
    pub options: base::door::Options,
    /// The command and its arguments; at least one.
    pub argv: Vec<Vec<u8>>,
}

/// Reads the arguments after the program's own name. Fails with what is wrong with them.
pub fn parse(arguments: Vec<Vec<u8>>) -> Result<Line, String> {
    let options = base::door::Options { becomes: true, ..Default::default() };
    let mut run = Run { needs: Needs::default(), options, argv: Vec::new() };
    let mut rest = arguments.into_iter();
    while let Some(argument) = rest.next() {
        let (name, attached) = split(&argument);
        match name {
            b"-h" | b"--help" if attached.is_none() => return Ok(Line::Help),
            b"-V" | b"--version" if attached.is_none() => return Ok(Line::Version),
            b"-v" | b"--verbose" if attached.is_none() => run.options.verbose = true,
            b"--no-local" if attached.is_none() => run.options.no_local = true,
            b"--race" if attached.is_none() => run.options.race = true,
            b"--net" if attached.is_none() => run.options.net = true,
            b"-c" | b"--cpus" => run.needs.cpus = cpus(&value(name, attached, &mut rest)?)?,
            b"--memory" => run.needs.memory_mib = memory(&value(name, attached, &mut rest)?)?,
            b"--tag" => run.needs.tags.push(tag(value(name, attached, &mut rest)?)?),
            b"--allow-write" => run.options.allow_write.push(value(name, attached, &mut rest)?),
            b"--" => {
                run.argv.extend(rest.next());
                break;
            }
            _ if argument.starts_with(b"-") && argument.len() > 1 => {
                return Err(format!("unknown option {}", printable(&argument)));
            }
            _ => {
                run.argv.push(argument);
                break;
            }
        }
    }
    run.argv.extend(rest);
    // This machine has no tags.
    run.options.no_local |= !run.needs.tags.is_empty();
    match run.argv.is_empty() {
        true => Err("no command given".into()),
        false if run.needs.tags.len() > TAGS_MAX => Err(format!("a command may ask for {TAGS_MAX} tags at most")),
        false if run.options.race && !run.needs.tags.is_empty() => {
            Err("--race runs it here as well, which has no tags".into())
        }
        false if run.options.race && run.options.net => {
            Err("--race runs it twice, and what may use the network runs once".into())
        }
        false if run.options.race && run.options.no_local => {
            Err("--race runs it here as well, which --no-local forbids".into())
        }
        false => Ok(Line::Run(run)),
    }
}

/// Splits `--name=value` and `-cVALUE` into their parts.
fn split(argument: &[u8]) -> (&[u8], Option<&[u8]>) {
    if argument.starts_with(b"--") {
        return match argument.iter().position(|byte| *byte == b'=') {
            Some(at) => (&argument[..at], Some(&argument[at + 1..])),
            None => (argument, None),
        };
    }
    match argument.starts_with(b"-c") && argument.len() > 2 {
        true => (&argument[..2], Some(&argument[2..])),
        false => (argument, None),
    }
}

fn value(name: &[u8], attached: Option<&[u8]>, rest: &mut impl Iterator<Item = Vec<u8>>) -> Result<Vec<u8>, String> {
    let value = attached.map(<[u8]>::to_vec).or_else(|| rest.next());
    value.filter(|value| !value.is_empty()).ok_or_else(|| format!("option {} wants a value", printable(name)))
}

fn cpus(text: &[u8]) -> Result<u32, String> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number
        .filter(|cpus| (1..=4096).contains(cpus))
        .ok_or_else(|| format!("--cpus wants a number from 1 to 4096, not {}", printable(text)))
}

fn memory(text: &[u8]) -> Result<u32, String> {
    let mib = std::str::from_utf8(text).ok().and_then(memory_mib);
    mib.ok_or_else(|| format!("--memory wants a size such as 500M or 8G, not {}", printable(text)))
}

fn tag(text: Vec<u8>) -> Result<String, String> {
    let tag = String::from_utf8(text).map_err(FromUtf8Error::into_bytes);
    let tag = tag.and_then(|tag| if is_tag(&tag) { Ok(tag) } else { Err(tag.into_bytes()) });
    tag.map_err(|text| format!("--tag wants letters, digits, and . _ : - within, not {}", printable(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Line, String> {
        parse(line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect())
    }

    fn run(line: &str) -> Run {
        match parsed(line) {
            Ok(Line::Run(run)) => run,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn options_end_where_the_command_begins() {
        let got = run("-c 4 --no-local --allow-write /x --allow-write=/y -v gcc -c x.c --help");
        assert_eq!((got.needs.cpus, got.options.no_local, got.options.verbose), (4, true, true));
        assert_eq!(got.options.allow_write, [b"/x", b"/y"]);
        assert_eq!(got.argv, [&b"gcc"[..], b"-c", b"x.c", b"--help"]);
        assert_eq!(run("-c8 make").needs.cpus, 8);
        assert_eq!(run("--cpus=2 -- -odd -v").argv, [&b"-odd"[..], b"-v"]);
        assert_eq!(run("-").argv, [b"-"]);
        let needs = run("--memory 2G --tag gpu --tag=site:a y");
        assert_eq!((needs.needs.memory_mib, needs.needs.tags.join(" ").as_str()), (2 << 10, "gpu site:a"));
        assert!(needs.options.no_local && !run("--memory 2G y").options.no_local);
        assert!(run("--race y").options.race && !run("y --race").options.race);
        assert!(run("--net y").options.net && !run("y --net").options.net);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, want) in [
            ("", "no command given"),
            ("-v", "no command given"),
            ("--", "no command given"),
            ("--frob x", "unknown option --frob"),
            ("-x y", "unknown option -x"),
            ("--verbose=1 y", "unknown option --verbose=1"),
            ("-c 0 y", "--cpus wants a number from 1 to 4096, not 0"),
            ("-c", "option -c wants a value"),
            ("--memory 2 y", "--memory wants a size such as 500M or 8G, not 2"),
            ("--tag a,b y", "--tag wants letters, digits, and . _ : - within, not a,b"),
            ("--race --tag a y", "--race runs it here as well, which has no tags"),
            ("--race --net y", "--race runs it twice, and what may use the network runs once"),
            ("--race --no-local y", "--race runs it here as well, which --no-local forbids"),
        ] {
            assert_eq!(parsed(line), Err(want.into()), "{line}");
        }
        assert_eq!(parsed("-v --help"), Ok(Line::Help));
        assert_eq!(parsed("--version gcc"), Ok(Line::Version));
        assert_eq!((parsed("-h"), parsed("-c 2 -V")), (Ok(Line::Help), Ok(Line::Version)));
    }
}

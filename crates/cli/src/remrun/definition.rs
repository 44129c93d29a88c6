//! The options of `remrun`: its help, its manual page and its completions all come from this table, and a test holds the
//! parser ([`super::options`]) to it. A table, because an argument parser would cost each command more than all the rest.

/// Columns of the help.
const WIDTH: usize = 100;
/// Where descriptions begin.
const INDENT: usize = 26;

/// What `remrun` is, in a line.
pub const ABOUT: &str = "Run a command on the pool's machines as if it ran here.";

/// How it is called.
pub const USAGE: &str = "remrun [OPTIONS] COMMAND [ARGUMENT...]";

/// What its exit status means.
pub const STATUS: &str = "\
Exit status: that of the command; death by a signal is passed on as such.
  125  remrun itself failed, and nothing was committed
  126  the command cannot be executed
  127  the command was not found
";

/// An option.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Its letter.
    pub short: Option<char>,
    /// Its name.
    pub long: &'static str,
    /// Its value, for people.
    pub value: Option<&'static str>,
    /// Whether the value is a path.
    pub is_path: bool,
    /// What it does.
    pub help: &'static str,
}

const fn flag(short: Option<char>, long: &'static str, help: &'static str) -> Flag {
    Flag { short, long, value: None, is_path: false, help }
}

const fn valued(short: Option<char>, long: &'static str, value: &'static str, help: &'static str) -> Flag {
    Flag { short, long, value: Some(value), is_path: false, help }
}

/// All of them.
pub const FLAGS: &[Flag] = &[
    valued(
        Some('c'),
        "cpus",
        "N",
        "CPUs that the command asks for, and sees on another's machine: nproc, OpenMP and Java go by it (default 1)",
    ),
    valued(None, "memory", "SIZE", "only on a worker that lends as much memory, such as 8G, or here"),
    valued(None, "tag", "NAME", "only on a worker that has this tag, and not here; may be repeated"),
    flag(None, "no-local", "fail rather than run the command on this machine"),
    flag(
        None,
        "race",
        "run it here as well, in a sandbox, and keep the result of the one that ends first; not if it reads a terminal or a pipe",
    ),
    flag(
        None,
        "net",
        "let it use the internet from a worker, which may do it once only: no machine near the worker, no private address",
    ),
    Flag {
        short: None,
        long: "allow-write",
        value: Some("PATH"),
        is_path: true,
        help: "let this command change PATH too; may be repeated",
    },
    flag(Some('v'), "verbose", "say on standard error where it ran and why, and why it waited"),
    flag(Some('h'), "help", "print this help"),
    flag(Some('V'), "version", "print the version"),
];

/// Text of `--help`.
pub fn help() -> String {
    let mut text = format!("{ABOUT}\n\nUsage: {USAGE}\n\nOptions:\n");
    for flag in FLAGS {
        let short = flag.short.map_or("    ".to_owned(), |short| format!("-{short}, "));
        let value = flag.value.map_or(String::new(), |value| format!(" {value}"));
        entry(&mut text, &format!("{short}--{}{value}", flag.long), flag.help);
    }
    entry(&mut text, "    --", "end of the options");
    text + "\n" + STATUS
}

/// Adds an option and its description, which is wrapped.
fn entry(text: &mut String, name: &str, help: &str) {
    let mut line = format!("  {name:width$}", width = INDENT - 2);
    for word in help.split(' ') {
        if line.len() + word.len() > WIDTH {
            text.push_str(line.trim_end());
            text.push('\n');
            line = " ".repeat(INDENT);
        }
        line.push_str(word);
        line.push(' ');
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remrun::options::{Line, parse};

    #[test]
    fn the_parser_knows_every_option_by_each_of_its_names() {
        for flag in FLAGS {
            let example = match flag.long {
                "memory" => "8G",
                "allow-write" => "/x",
                "tag" => "gpu",
                _ => "2",
            };
            let names = flag.short.map(|short| format!("-{short}")).into_iter().chain([format!("--{}", flag.long)]);
            for name in names {
                let words = [Some(name.as_str()), flag.value.map(|_| example), Some("command")];
                let parsed = parse(words.into_iter().flatten().map(|word| word.as_bytes().to_vec()).collect());
                match (flag.long, parsed) {
                    ("help", Ok(Line::Help)) | ("version", Ok(Line::Version)) => {}
                    (_, Ok(Line::Run(run))) => assert_eq!(run.argv, [b"command"], "{name}"),
                    (_, other) => panic!("{name}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn help_fits_on_a_terminal() {
        let help = help();
        assert!(help.lines().all(|line| line.len() <= WIDTH), "{help}");
        assert!(help.contains("\n  -c, --cpus N            CPUs that the command asks for"), "{help}");
        assert!(
            help.contains("\n  -h, --help              print this help\n  -V, --version           print the version\n")
        );
        assert!(help.contains("\n      --tag NAME          only on a worker"), "{help}");
    }
}

//! Paths in the script of a shell: `sh -c 'convert a.png ~/Pictures/b.png'` names its output as `convert` itself would.

use super::names::under_any;
use crate::profile::is_interpreter;
use crate::remote_ability;
use base::TreePath;
use base::words::last_name;

/// Programs that take a script after `-c`.
const SHELLS: &[&[u8]] = &[b"sh", b"bash", b"dash", b"ash", b"zsh", b"ksh", b"mksh", b"fish"];
/// Options of xargs with a value in the next word, and tests of find that run a program.
const XARGS_WITH_VALUE: &[&[u8]] = &[b"-a", b"-d", b"-E", b"-I", b"-L", b"-n", b"-P", b"-s"];
const FIND_RUNS: &[&[u8]] = &[b"-exec", b"-execdir", b"-ok", b"-okdir"];
/// Paths that are taken from one command's scripts.
const PATHS_MAX: usize = 1000;
/// What stands between the words of a script.
const BETWEEN: &[u8] = b" \t\n\r;|&<>()\"'`=,:";
/// Folders that are no user's: what is there is decided on without being named.
const NOBODYS: &[&str] = &["/dev", "/proc", "/sys", "/etc", "/tmp", "/var/tmp", "/run", "/boot"];

/// The paths that the scripts of this command name, as they are written.
pub(super) fn mentioned(argv: &[Vec<u8>], cwd: &TreePath, home: Option<&TreePath>) -> Vec<TreePath> {
    let words = scripts(argv).flat_map(|script| {
        let words = script.split(|byte| BETWEEN.contains(byte));
        words.filter_map(|word| path(word, cwd, home)).collect::<Vec<_>>()
    });
    words.take(PATHS_MAX).collect()
}

/// The programs that this command runs by their paths: itself, by what runs another (`env`, `timeout`, `xargs`, `find`), as the script of an
/// interpreter, or in one.
pub(super) fn programs(argv: &[Vec<u8>], cwd: &TreePath, home: Option<&TreePath>) -> Vec<TreePath> {
    let (mut words, mut left): (Vec<&[u8]>, _) = (Vec::new(), Some(argv));
    while let Some([program, arguments @ ..]) = left {
        words.push(program);
        let name = last_name(program);
        let within = script(arguments).filter(|_| SHELLS.contains(&name));
        words.extend(within.into_iter().flat_map(first_words));
        if within.is_none() && (SHELLS.contains(&name) || is_interpreter(name)) {
            words.extend(arguments.iter().map(Vec::as_slice).find(|word| !word.starts_with(b"-")));
        }
        left = match name {
            b"xargs" => after_options(arguments, XARGS_WITH_VALUE),
            b"find" => {
                arguments.iter().position(|word| FIND_RUNS.contains(&word.as_slice())).map(|at| &arguments[at + 1..])
            }
            _ => left.and_then(|argv| remote_ability::inner(name, argv)),
        };
    }
    let paths = words.into_iter().filter(|word| word.contains(&b'/')).take(PATHS_MAX);
    paths.filter_map(|word| absolute(word, home).or_else(|| cwd.resolve(word))).collect()
}

/// What follows the options, of which these have their value in the next word.
fn after_options<'a>(arguments: &'a [Vec<u8>], with_value: &[&[u8]]) -> Option<&'a [Vec<u8>]> {
    let mut at = 0;
    while let Some(word) = arguments.get(at).filter(|word| word.starts_with(b"-")) {
        at += 1 + usize::from(with_value.contains(&word.as_slice()));
    }
    arguments.get(at..)
}

/// The words of a script that stand where commands do.
fn first_words(script: &[u8]) -> impl Iterator<Item = &[u8]> {
    const ENDS: &[u8] = b"\n;|&(){}`";
    const BEFORE: &[&[u8]] =
        &[b"if", b"then", b"else", b"elif", b"do", b"while", b"until", b"!", b"exec", b"command", b"time", b"eval"];
    let commands = script.split(|byte| ENDS.contains(byte));
    commands.filter_map(|command| {
        let words = command.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let mut words = words.map(|word| word.strip_prefix(b"\"").unwrap_or(word));
        // `A=1 program`.
        let is_assignment =
            |word: &[u8]| word.split(|byte| *byte == b'/').next().is_some_and(|name| name.contains(&b'='));
        let word = words.find(|word| !BEFORE.contains(word) && !is_assignment(word));
        word.map(|word| word.strip_suffix(b"\"").unwrap_or(word))
    })
}

/// A word that begins at the root or in the home.
fn absolute(word: &[u8], home: Option<&TreePath>) -> Option<TreePath> {
    let in_home = [&b"~/"[..], b"$HOME/", b"${HOME}/"].iter().find_map(|start| word.strip_prefix(*start));
    match (in_home, word) {
        (Some(rest), _) => home?.resolve(rest),
        (None, [b'/', ..]) => TreePath::root().resolve(word),
        _ => None,
    }
}

/// The scripts among the words of a command, which may be run by another one (`env`, `nice`).
fn scripts(argv: &[Vec<u8>]) -> impl Iterator<Item = &[u8]> {
    let is_shell = |word: &Vec<u8>| SHELLS.contains(&last_name(word));
    let shells = argv.iter().enumerate().filter(move |(_, word)| is_shell(word));
    shells.filter_map(|(at, _)| script(&argv[at + 1..]))
}

/// The script that a shell with these arguments runs.
fn script(arguments: &[Vec<u8>]) -> Option<&[u8]> {
    let (mut has_script, mut words) = (false, arguments.iter());
    while let Some(word) = words.next() {
        match word.as_slice() {
            b"--" => return words.next().filter(|_| has_script).map(Vec::as_slice),
            [b'-', b'-', ..] => {}
            [b'-' | b'+', letters @ ..] if !letters.is_empty() => {
                has_script |= letters.contains(&b'c');
                if letters.ends_with(b"o") {
                    words.next();
                }
            }
            script => return has_script.then_some(script),
        }
    }
    None
}

/// The path that a word of a script is, if it is one that matters.
fn path(word: &[u8], cwd: &TreePath, home: Option<&TreePath>) -> Option<TreePath> {
    let above = || cwd.resolve(word).filter(|_| word.starts_with(b"../"));
    let path = absolute(word, home).or_else(above)?;
    (!under_any(&path, NOBODYS) && !path.is_in_system_folder()).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(argv: &[&str]) -> Vec<String> {
        let argv: Vec<Vec<u8>> = argv.iter().map(|word| word.as_bytes().to_vec()).collect();
        let path = |text: &str| TreePath::parse(text.as_bytes()).expect("a path");
        mentioned(&argv, &path("/w/d"), Some(&path("/home/u"))).iter().map(TreePath::to_string).collect()
    }

    #[test]
    fn scripts_name_paths_as_arguments_do() {
        for (script, wanted) in [
            ("convert a.png ~/Pictures/b.png", &["/home/u/Pictures/b.png"][..]),
            ("gzip <\"$HOME/a\">'/srv/b.gz'; x=${HOME}/c", &["/home/u/a", "/srv/b.gz", "/home/u/c"]),
            ("cp ../in /mnt/out|tee --log=/data/x", &["/w/in", "/mnt/out", "/data/x"]),
            ("/usr/bin/gcc -o /tmp/x 2>/dev/null a.c", &[]),
        ] {
            assert_eq!(of(&["sh", "-c", script]), wanted, "{script}");
        }
        for argv in [
            &["env", "A=1", "/bin/bash", "-ec", "cat /srv/x"][..],
            &["bash", "-o", "pipefail", "-c", "cat /srv/x", "name"],
            &["bash", "-c", "-e", "--", "cat /srv/x"],
            &["timeout", "5", "dash", "-c", "cat /srv/x"],
        ] {
            assert_eq!(of(argv), ["/srv/x"], "{argv:?}");
        }
        let run = |argv: &[&str]| {
            let argv: Vec<Vec<u8>> = argv.iter().map(|word| word.as_bytes().to_vec()).collect();
            let path = |text: &str| TreePath::parse(text.as_bytes()).expect("a path");
            let programs = programs(&argv, &path("/w/d"), Some(&path("/home/u")));
            programs.iter().map(TreePath::to_string).collect::<Vec<_>>()
        };
        for (argv, wanted) in [
            (&["/usr/bin/make", "/srv/x"][..], &["/usr/bin/make"][..]),
            (&["env", "A=1", "timeout", "5", "./x", "/srv/x"], &["/w/d/x"]),
            (
                &["sh", "-c", "A=/y /bin/a /srv/x | if \"~/b\"; then exec /bin/c; fi"],
                &["/bin/a", "/home/u/b", "/bin/c"],
            ),
            (&["make", "/srv/x"], &[]),
            (&["sh", "-e", "/home/u/tools/t", "/srv/x"], &["/home/u/tools/t"]),
            (&["python3", "tools/gen.py", "/srv/x"], &["/w/d/tools/gen.py"]),
            (&["xargs", "-n", "1", "-0", "/home/u/tools/t", "/srv/x"], &["/home/u/tools/t"]),
            (&["find", "/srv", "-name", "*.c", "-exec", "env", "/home/u/tools/t", "{}", ";"], &["/home/u/tools/t"]),
        ] {
            assert_eq!(run(argv), wanted, "{argv:?}");
        }
        for argv in [&["git", "commit", "-m", "see /srv/x"][..], &["sh", "script", "-c", "/srv/x"], &["sh", "-c"]] {
            assert!(of(argv).is_empty(), "{argv:?}");
        }
    }
}

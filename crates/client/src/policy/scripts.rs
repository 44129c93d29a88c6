//! Paths in the script of a shell: `sh -c 'convert a.png ~/Pictures/b.png'` names its output as `convert` itself would.

use super::names::under_any;
use base::TreePath;
use base::words::last_name;

/// Programs that take a script after `-c`.
const SHELLS: &[&[u8]] = &[b"sh", b"bash", b"dash", b"ash", b"zsh", b"ksh", b"mksh", b"fish"];
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
    let in_home = [&b"~/"[..], b"$HOME/", b"${HOME}/"].iter().find_map(|start| word.strip_prefix(*start));
    let path = match (in_home, word) {
        (Some(rest), _) => home?.resolve(rest)?,
        (None, [b'/', ..]) => TreePath::root().resolve(word)?,
        (None, [b'.', b'.', b'/', ..]) => cwd.resolve(word)?,
        _ => return None,
    };
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
        for argv in [&["git", "commit", "-m", "see /srv/x"][..], &["sh", "script", "-c", "/srv/x"], &["sh", "-c"]] {
            assert!(of(argv).is_empty(), "{argv:?}");
        }
    }
}

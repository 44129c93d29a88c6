//! Commands that lock something by what they make, as far as their words say so: those whose own end says whether they have made it, and those
//! that are watched for what they, or what they run, make.

use super::wrapping::{inner, is_wrapper, unwrap};
use crate::profile::{Program, interpreter_of, is_interpreter};
use base::words::{LOCKERS, is_option, last_name};
use memchr::memmem;

/// Programs that run what a file, or their arguments, say.
const RUNNERS: [&[u8]; 9] =
    [b"make", b"gmake", b"bmake", b"ninja", b"xargs", b"parallel", b"find", b"run-parts", b"flock"];
/// Programs of one's own that have no lock files by which others would be kept out, and make very many links and folders.
const TOOLCHAINS: [&[u8]; 6] = [b"cargo", b"rustc", b"rustup", b"go", b"clang", b"gcc"];

/// Whether the program, or that which it runs (`env`, `timeout`), fails where what it makes is there already: where it has not failed, its
/// caller may take what it made for a lock. Which of several has made it, its client decides at their ends, without a question while they
/// run.
pub fn fails_if_there(argv: &[Vec<u8>]) -> bool {
    let Some((name, arguments)) = argv.split_first() else { return false };
    if let Some(inner) = inner(last_name(name), argv) {
        return fails_if_there(unwrap(inner));
    }
    let has = |letters: &[u8], words: &[&[u8]]| arguments.iter().any(|word| is_option(word, letters, words));
    match last_name(name) {
        b"mkdir" => !has(b"p", &[b"--parents"]),
        b"ln" => !has(b"fib", &[b"--force", b"--interactive", b"--backup"]),
        b"link" | b"mkfifo" | b"mknod" => true,
        b"mv" | b"cp" => has(b"n", &[b"--no-clobber", b"--update"]),
        b"dd" => arguments
            .iter()
            .any(|word| word.strip_prefix(b"conv=").is_some_and(|how| memmem::find(how, b"excl").is_some())),
        b"busybox" => !arguments.is_empty() && fails_if_there(arguments),
        name if LOCKERS.contains(&name) => true,
        name if is_interpreter(name) => match arguments {
            [option, script] if option == b"-c" => simple_command(script).is_some_and(|argv| fails_if_there(&argv)),
            _ => false,
        },
        _ => false,
    }
}

/// Whether the task is to be watched for what it makes to lock something. Its files, folders and links are decided on one by one then, some
/// tens of microseconds each, and a lock costs a round trip: so not what compiles or copies, but what runs scripts, and programs of which
/// nothing is known.
pub fn may_lock_by_files(argv: &[Vec<u8>], program: &Program) -> bool {
    let name = program.real.name();
    if is_interpreter(name) || LOCKERS.contains(&name) {
        return true;
    }
    if name == b"find" {
        return argv.iter().any(|word| [&b"-exec"[..], b"-execdir", b"-ok", b"-okdir"].contains(&word.as_slice()));
    }
    // A wrapper that is the innermost runs what its words do not say plainly (`env -S`).
    if RUNNERS.contains(&name)
        || is_wrapper(name)
        || interpreter_of(&program.real).is_some_and(|name| is_interpreter(&name))
    {
        return true;
    }
    let is_toolchain =
        TOOLCHAINS.iter().any(|tool| [name, program.path.name()].iter().any(|name| name.starts_with(tool)));
    !program.real.is_in_system_folder() && !is_toolchain
}

/// The words of a script that is one command, whose end is then the script's.
fn simple_command(script: &[u8]) -> Option<Vec<Vec<u8>>> {
    let words = script.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let is_plain = |word: &&[u8]| !word.iter().any(|byte| b";|&<>()`\n#".contains(byte));
    let words: Vec<&[u8]> = words.filter(|word| ![&b"2>/dev/null"[..], b"2>&1"].contains(word)).collect();
    let is_simple = words.iter().all(is_plain) && !script.trim_ascii().contains(&b'\n');
    is_simple.then(|| words.into_iter().map(<[u8]>::to_vec).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::ViewKey;
    use base::TreePath;

    fn words(command: &str) -> Vec<Vec<u8>> {
        command.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn commands_that_fail_if_it_is_there() {
        for command in [
            "mkdir x",
            "mkdir -m 700 x",
            "mkdir -vm755 x",
            "/bin/mkdir x y",
            "ln -s a x",
            "ln -sT a x",
            "ln a x",
            "link a x",
            "mkfifo x",
            "mv -n a x",
            "cp -an a x",
            "mv --update=none-fail a x",
            "dd if=a of=x conv=notrunc,excl",
            "lockfile -r 0 x",
            "busybox mkdir x",
            "env A=1 timeout 5 mkdir x",
        ] {
            assert!(fails_if_there(&words(command)), "{command}");
        }
        for command in [
            "mkdir -p x",
            "mkdir -vp x",
            "mkdir --parents x",
            "ln -sf a x",
            "ln -sfn a x",
            "mv a x",
            "cp a x",
            "dd of=x conv=sync",
            "gcc -c x.c",
            "sh mkdir",
            "busybox",
        ] {
            assert!(!fails_if_there(&words(command)), "{command}");
        }
        let shell = |script: &str| fails_if_there(&[b"sh".to_vec(), b"-c".to_vec(), script.as_bytes().to_vec()]);
        assert!(shell("mkdir x") && shell(" ln -s a x 2>/dev/null "));
        assert!(
            !shell("mkdir -p x") && !shell("mkdir x; echo") && !shell("mkdir x || true") && !shell("mkdir x\ntrue")
        );
    }

    #[test]
    fn programs_that_are_watched_for_lock_files() {
        use std::os::unix::ffi::OsStrExt;
        let folder = tempfile::tempdir().unwrap();
        let here = TreePath::parse(folder.path().as_os_str().as_bytes()).unwrap();
        for (name, head) in
            [("script", "#!/bin/sh\n"), ("tool", "#! /usr/bin/env python3\n"), ("bin", "\x7fELF"), ("rustc", "\x7fELF")]
        {
            std::fs::write(folder.path().join(name), head).unwrap();
        }
        let is_watched = |path: &TreePath, command: &str| {
            let key = ViewKey { program: path.clone(), variant: None };
            let program = Program { key, path: path.clone(), real: path.clone(), script: None };
            may_lock_by_files(&words(command), &program)
        };
        for (name, want) in [("script", true), ("tool", true), ("bin", true), ("rustc", false)] {
            assert_eq!(is_watched(&here.join(name.as_bytes()), name), want, "{name}");
        }
        let system = TreePath::parse(b"/usr/bin").unwrap();
        for (command, want) in [
            ("sh x", true),
            ("python3.11 x", true),
            ("make x", true),
            ("find . -exec sh x ;", true),
            ("find . -name x", false),
            ("env -S 'sh x'", true),
            ("gcc-12 -c x.c", false),
            ("true", false),
        ] {
            let name = command.split(' ').next().unwrap();
            assert_eq!(is_watched(&system.join(name.as_bytes()), command), want, "{command}");
        }
    }
}

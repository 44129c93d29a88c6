//! Places that each machine has of its own, as a command mentions them within an argument: in the text of a script, say.

use super::{Reason, ReasonKind, open_script};
use crate::profile::Program;
use base::path::printable;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

/// Folder of shared memory.
const SHARED_MEMORY: &[u8] = b"/dev/shm";
/// How the files begin that Gleaner itself has there.
const OWN_FILES: [&[u8]; 2] = [b"gleaner-", b".gleaner-"];
/// A larger program's own words are not looked at: it is an interpreter, say, and knows all places.
const PROGRAM_BYTES_MAX: u64 = 1 << 20;
/// Of a longer script the beginning is looked at.
const SCRIPT_BYTES_MAX: u64 = 256 << 10;
/// Folders that workers do not have, or that show the worker.
const OWN: [&[u8]; 9] = [
    b"/dev/mqueue",
    b"/dev/hugepages",
    b"/proc/sys",
    b"/proc/sysrq-trigger",
    b"/sys/block",
    b"/sys/class",
    b"/sys/devices",
    b"/sys/fs",
    b"/sys/kernel",
];

/// Why a command with this argument runs here, if for a place that it mentions.
pub(super) fn mentioned(argument: &[u8]) -> Option<Reason> {
    let own = OWN.iter().find(|own| mentions(argument, own).next().is_some())?;
    Some(Reason { kind: ReasonKind::Machine, text: format!("{} is this machine's own", printable(own)) })
}

/// Why a command runs here, if it is because an argument or variable names what is in this machine's shared memory. What
/// is not there can be made elsewhere as well. Looks at the file system.
pub fn shared_memory(argv: &[Vec<u8>], env: &[Vec<u8>]) -> Option<String> {
    let values = env.iter().filter_map(|entry| entry.splitn(2, |byte| *byte == b'=').nth(1));
    let values = values.filter(|value| value.starts_with(SHARED_MEMORY));
    argv.iter().skip(1).map(Vec::as_slice).chain(values).find_map(|text| in_shared_memory(text, false))
}

/// The same for a script of which the beginning is looked at, if others than Gleaner have anything there.
/// What is executed itself counts as one, unless it is a program of the system's.
pub fn script_in_shared_memory(program: &Program) -> Option<String> {
    if !has_entries(SHARED_MEMORY, true) {
        return None;
    }
    let script = program.script.as_ref().unwrap_or(&program.real);
    let mut file = open_script(script)?;
    let mut text = Vec::new();
    file.by_ref().take(2).read_to_end(&mut text).ok()?;
    let bytes_max = match &text[..] {
        b"#!" => SCRIPT_BYTES_MAX,
        _ if program.script.is_some() => SCRIPT_BYTES_MAX,
        _ if is_systems(script) || file.metadata().ok()?.len() > PROGRAM_BYTES_MAX => return None,
        _ => PROGRAM_BYTES_MAX,
    };
    file.take(bytes_max).read_to_end(&mut text).ok()?;
    in_shared_memory(&text, true)
}

/// Why a command runs here in which this text is, if for what it names. `others`: what Gleaner has there does not count.
fn in_shared_memory(text: &[u8], others: bool) -> Option<String> {
    mentions(text, SHARED_MEMORY)
        .find_map(|rest| {
            let name = rest.strip_prefix(b"/").unwrap_or_default();
            let name = &name[..name.iter().position(|byte| !is_in_name(*byte)).unwrap_or(name.len())];
            let path = [SHARED_MEMORY, b"/", name].concat();
            let is_there = match name {
                [] => has_entries(&path, others),
                // What follows may be put together while the program runs.
                _ => rustix::fs::lstat(&*path).is_ok() || has_entry_like(name),
            };
            is_there.then(|| format!("{} is memory of this machine", printable(&path)))
        })
        .or_else(|| {
            let is_put_together = speaks_of_shared_memory(text) && has_entries(SHARED_MEMORY, true);
            is_put_together
                .then(|| "it speaks of shared memory (shm), in which others have something on this machine".into())
        })
}

/// Whether a text has the last part of the folder's name by itself: then its path may be put together.
fn speaks_of_shared_memory(text: &[u8]) -> bool {
    const PART: &[u8] = b"shm";
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte == b'-';
    text.windows(PART.len()).enumerate().any(|(at, found)| {
        let (before, after) = (&text[..at], &text[at + PART.len()..]);
        let is_whole = before.strip_suffix(b"/dev/").is_some_and(|before| !before.last().is_some_and(is_letter));
        let is_word = |side: Option<&u8>| !side.is_some_and(is_letter);
        found == PART && !is_whole && is_word(before.last()) && is_word(after.first()) && after.first() != Some(&b'.')
    })
}

/// Whether a program came with the system, or with a package of its own.
pub(super) fn is_systems(program: &base::TreePath) -> bool {
    const PACKAGES: [&[u8]; 2] = [b"/snap/", b"/nix/"];
    program.is_in_system_folder() || PACKAGES.iter().any(|folder| program.as_bytes().starts_with(folder))
}

/// Whether something in shared memory has a name that begins so.
fn has_entry_like(start: &[u8]) -> bool {
    let entries = std::fs::read_dir(std::ffi::OsStr::from_bytes(SHARED_MEMORY));
    entries.is_ok_and(|entries| entries.flatten().any(|entry| entry.file_name().as_bytes().starts_with(start)))
}

fn has_entries(folder: &[u8], others: bool) -> bool {
    let entries = std::fs::read_dir(std::ffi::OsStr::from_bytes(folder));
    entries.is_ok_and(|entries| {
        let mut names = entries.flatten().map(|entry| entry.file_name());
        names.any(|name| !others || !OWN_FILES.iter().any(|own| name.as_bytes().starts_with(own)))
    })
}

pub(super) fn is_in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-+@%,~".contains(&byte) || byte >= 0x80
}

/// What follows each mention of `place` as a path of its own.
fn mentions<'a>(text: &'a [u8], place: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let starts = (0..text.len().saturating_sub(place.len() - 1)).filter(move |at| text[*at..].starts_with(place));
    starts.filter_map(move |at| {
        let rest = &text[at + place.len()..];
        let begins = at == 0 || !(is_in_name(text[at - 1]) || text[at - 1] == b'/');
        (begins && rest.first().is_none_or(|next| !is_in_name(*next))).then_some(rest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_within_scripts() {
        for script in ["echo 1 > /proc/sys/vm/x", "ls /dev/mqueue", "cat </sys/class/net/lo/mtu", "x=/sys/fs/cgroup"] {
            assert!(mentioned(script.as_bytes()).is_some(), "{script}");
        }
        for script in ["ls a/sys/fs", "cat /usr/include/sys/class.h", "cat /sys/fsx", "cat /proc/self/maps", "/sys"] {
            assert!(mentioned(script.as_bytes()).is_none(), "{script}");
        }
    }

    #[test]
    fn what_is_in_shared_memory() {
        let words = |script: &str| vec![b"sh".to_vec(), b"-c".to_vec(), script.as_bytes().to_vec()];
        assert_eq!(shared_memory(&words("cat /dev/shm/not-there > /tmp/x"), &[]), None);
        let Ok(made) = tempfile::NamedTempFile::new_in("/dev/shm") else {
            println!("SKIPPED: no /dev/shm here");
            return;
        };
        let path = made.path().to_str().unwrap();
        let why = Some(format!("{path} is memory of this machine"));
        assert_eq!(shared_memory(&words(&format!("sort '{path}'")), &[]), why);
        assert_eq!(shared_memory(&words("true"), &[format!("TMPDIR={path}").into_bytes()]), why);
        assert_eq!(shared_memory(&words("true"), &[format!("NOTE=in {path}").into_bytes()]), None);
        assert!(shared_memory(&words("ls /dev/shm"), &[]).is_some());
        let start = &path[..path.len() - 2];
        assert!(shared_memory(&words(&format!("open('{start}' + x)")), &[]).is_some(), "a name that is put together");
        for text in ["open('/dev' + '/shm/' + x)", "cd /dev; cd shm; ls", "cat dev/shm/x", "join('dev', 'shm', x)"] {
            assert!(shared_memory(&words(text), &[]).is_some(), "{text}");
        }
        for text in ["shm_open(x)", "cat shm.c", "cat x-shm", "cat db-shm", "cat /dev/shm/not-there"] {
            assert_eq!(shared_memory(&words(text), &[]), None, "{text}");
        }
        let (folder, here) = (tempfile::tempdir().unwrap(), script_in_shared_memory);
        let script = |text: &str| {
            let file = folder.path().join("s.py");
            std::fs::write(&file, text).unwrap();
            let words = ["python3".as_bytes(), file.as_os_str().as_bytes()].map(<[u8]>::to_vec);
            let mut program = crate::profile::identify(&words, &[], &base::TreePath::root()).unwrap();
            program.script = base::TreePath::parse(file.as_os_str().as_bytes());
            program
        };
        assert_eq!(here(&script(&format!("print(open('{path}').read())"))), why);
        assert!(here(&script("os.listdir('/dev/shm')")).is_some());
        assert_eq!(here(&script("open('/dev/shm/not-there', 'w')")), None);
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let piped = base::TreePath::parse(pipe.as_os_str().as_bytes());
        assert_eq!(here(&Program { script: piped, ..script("") }), None, "it has no writer, and is not waited for");
        let executed = script(&format!("#!/bin/sh\ncat {path}"));
        let executed = Program { real: executed.script.clone().unwrap(), script: None, ..executed };
        assert_eq!(here(&executed), why);
        let program = script("\x7fELF %s/%s\0dev\0shm\0");
        let program = Program { real: program.script.clone().unwrap(), script: None, ..program };
        assert!(here(&program).is_some_and(|why| why.starts_with("it speaks of shared memory")));
    }
}

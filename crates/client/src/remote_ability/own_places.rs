//! Places that each machine has of its own, as a command mentions them within an argument: in the text of a script, say.

use super::{Reason, ReasonKind};
use base::path::printable;

/// Folder of shared memory.
const SHARED_MEMORY: &[u8] = b"/dev/shm";
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
    argv.iter().skip(1).map(Vec::as_slice).chain(values).find_map(|text| {
        mentions(text, SHARED_MEMORY).find_map(|rest| {
            let name = rest.strip_prefix(b"/").unwrap_or_default();
            let name = &name[..name.iter().position(|byte| !is_in_name(*byte)).unwrap_or(name.len())];
            let path = [SHARED_MEMORY, b"/", name].concat();
            let is_there = match name {
                [] => has_entries(&path),
                _ => rustix::fs::lstat(&*path).is_ok(),
            };
            is_there.then(|| format!("{} is memory of this machine", printable(&path)))
        })
    })
}

fn has_entries(folder: &[u8]) -> bool {
    let folder: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(folder);
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

fn is_in_name(byte: u8) -> bool {
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
    }
}

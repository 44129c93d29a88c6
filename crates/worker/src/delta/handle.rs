//! File handles: how an overlay notes where a file was copied from.

use std::os::fd::{AsFd, AsRawFd};

/// Longest handle, in bytes: the kernel's limit.
const BYTES_MAX: usize = 128;
/// What stands before the handle in the overlay's note: version, magic number, length, flags, kind, id of the file system.
const HEAD_BYTES: usize = 21;
/// The second byte of such a note.
const MAGIC: u8 = 0xfb;

/// What the kernel calls a file of one file system.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    kind: u8,
    bytes: Vec<u8>,
}

/// `struct file_handle` of Linux.
#[repr(C)]
struct Raw {
    len: u32,
    kind: i32,
    bytes: [u8; BYTES_MAX],
}

impl Handle {
    /// The handle of what is held; `None` if its file system has none.
    pub(crate) fn of(held: impl AsFd) -> Option<Self> {
        let mut raw = Raw { len: BYTES_MAX as u32, kind: 0, bytes: [0; BYTES_MAX] };
        let mut mount = 0i32;
        let held = held.as_fd().as_raw_fd();
        // SAFETY: the name is an empty C string, `raw` is a `file_handle` with room for as many bytes as it says, and
        // both it and `mount` outlive the call.
        let result = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                held,
                c"".as_ptr(),
                &raw mut raw,
                &raw mut mount,
                libc::AT_EMPTY_PATH,
            )
        };
        let bytes = raw.bytes.get(..raw.len as usize).filter(|_| result == 0)?;
        Some(Self { kind: u8::try_from(raw.kind).ok()?, bytes: bytes.to_vec() })
    }

    /// Reads an overlay's note (`trusted.overlay.origin`); `None` if it names no file.
    pub(crate) fn from_note(note: &[u8]) -> Option<Self> {
        let (head, rest) = note.split_at_checked(HEAD_BYTES)?;
        let len = usize::from(head[2]).checked_sub(HEAD_BYTES)?;
        let bytes = rest.get(..len).filter(|_| head[0] == 0 && head[1] == MAGIC)?;
        Some(Self { kind: head[4], bytes: bytes.to_vec() })
    }

    /// Reads the name of an entry of an overlay's index: such a note in hexadecimal digits.
    pub(crate) fn from_index(name: &[u8]) -> Option<Self> {
        let note = base::digest::unhex(std::str::from_utf8(name).ok()?)?;
        Self::from_note(&note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_or_refused() {
        let note = "00fb1d000100000000000000000000000000000000a1409800324b5c6d";
        let handle = Handle::from_index(note.as_bytes()).expect("a note as the kernel writes it");
        assert_eq!(handle.kind, 1);
        assert_eq!(handle.bytes, [0xa1, 0x40, 0x98, 0x00, 0x32, 0x4b, 0x5c, 0x6d]);
        for bad in ["", "00", "#14eae", "01fb1d000100000000000000000000000000000000a1409800324b5c6d", &note[..50]] {
            assert_eq!(Handle::from_index(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn names_of_one_file_have_one_handle() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("a"), "a").expect("writes");
        std::fs::write(at("b"), "b").expect("writes");
        std::fs::hard_link(at("a"), at("c")).expect("links");
        let of = |name: &str| Handle::of(std::fs::File::open(at(name)).expect("opens"));
        if of("a").is_none() {
            println!("SKIPPED: no file handles here");
            return;
        }
        assert_eq!(of("a"), of("c"));
        assert_ne!(of("a"), of("b"));
    }
}

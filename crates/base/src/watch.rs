//! What a task is watched for where it runs: what it may do that has to be done at its client.

use crate::codec::{Encode, Malformed, Reader, Writer};

/// Formats that a watch has at most; a client with more names the first.
pub const FORMATS_MAX: usize = 256;
/// How much of the beginning of a program counts for its format, bytes: as much as the kernel looks at.
pub const HEAD_BYTES: usize = 256;

/// Descriptors that a watch has at most.
pub const DESCRIPTORS_MAX: usize = 16;
/// The lowest and the highest that can be watched.
pub const DESCRIPTOR_NUMBERS: std::ops::RangeInclusive<u32> = 3..=63;

/// What a task is watched for. A task that does any of it is called off, and run at its client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    /// Locks on files.
    pub locks: bool,
    /// Files, folders and links that it makes to lock something, by their names: scripts do.
    pub lock_files: bool,
    /// Formats of programs that the client runs by an interpreter of its own choice (binfmt_misc).
    pub formats: Vec<Format>,
    /// Ports at the client's loopback address on which somebody listens by TCP, sorted.
    pub ports: Vec<u16>,
    /// The client says of any other port, when it is asked, whether somebody has it: by UDP, or since the task was launched.
    pub tells_ports: bool,
    /// Descriptors above standard error that are open for the command at the client, sorted: the task has stand-ins there.
    pub descriptors: Vec<u32>,
    /// The file system that its client has in the command's folder clones files.
    pub clones: bool,
    /// It is not watched for the use of the network: it may connect to hosts of the internet.
    pub network: bool,
    /// What its standard output and error are at the client, where they are files with a name.
    pub outputs: [Option<OutputFile>; 2],
}

/// A file into which a command's output goes. A task says it into a pipe, and is told that the pipe is this file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputFile {
    /// Its path at the client.
    pub path: Vec<u8>,
    /// It is open for adding to its end (`O_APPEND`).
    pub appends: bool,
}

/// A format of programs, as Linux's `binfmt_misc` has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// Its name, for people.
    pub name: Vec<u8>,
    /// By what it is known.
    pub sign: Sign,
}

/// By what a format is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sign {
    /// The end of the file's name, after its last dot.
    Extension(Vec<u8>),
    /// Bytes of the file.
    Magic {
        /// Where they are.
        offset: u32,
        /// The bytes.
        magic: Vec<u8>,
        /// The bits of each byte that count; empty: all.
        mask: Vec<u8>,
    },
}

impl Format {
    /// Whether a file with this path and beginning has this format.
    pub fn is_of(&self, path: &[u8], head: &[u8]) -> bool {
        match &self.sign {
            Sign::Extension(extension) => {
                let name = crate::words::last_name(path);
                let dot = name.iter().rposition(|byte| *byte == b'.');
                dot.is_some_and(|dot| name[dot + 1..] == extension[..])
            }
            Sign::Magic { offset, magic, mask } => {
                let found = head.get(*offset as usize..).and_then(|rest| rest.get(..magic.len()));
                let mask = mask.iter().copied().chain(std::iter::repeat(0xff));
                found.is_some_and(|found| found.iter().zip(magic).zip(mask).all(|((a, b), mask)| (a ^ b) & mask == 0))
            }
        }
    }
}

impl Watch {
    /// The format of a program with this path and beginning, if the client runs it by an interpreter.
    pub fn format_of(&self, path: &[u8], head: &[u8]) -> Option<&Format> {
        self.formats.iter().find(|format| format.is_of(path, head))
    }
}

/// Why a task is called off that uses the network and may not; what it uses follows.
pub const USES_NETWORK: &str = "it uses the network";

/// Why a command is called off whose worker does not know, now, who owns what it uses or names; what that is follows.
pub const OWNERS: &str = "it uses or names owners that its worker has no place for";

/// Why a program of this name stays at the client, or calls its task off, that has others' rights when it is executed there.
pub fn takes_rights(name: &str) -> String {
    format!("{name} takes on other rights, which it can only get on this machine")
}

/// Why a task is called off that uses the stand-in of a descriptor.
pub fn uses_descriptor(number: u32) -> String {
    format!("{USES_DESCRIPTOR}{number}, which is open on this machine alone")
}

/// The descriptor of which [`uses_descriptor`] speaks.
pub fn used_descriptor(why: &str) -> Option<u32> {
    why.strip_prefix(USES_DESCRIPTOR)?.split(',').next()?.parse().ok()
}

const USES_DESCRIPTOR: &str = "it uses descriptor ";

/// Whether a file of this name is made to lock something.
pub fn is_lock_name(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    [&b"lock"[..], b"lck"].iter().any(|part| name.windows(part.len()).any(|found| found == *part))
}

/// Whether a program with this beginning is for processors of 32 bits: the kernel of its client may run it, a task's may not.
pub fn is_narrow(head: &[u8]) -> bool {
    const CLASS_32: u8 = 1;
    head.starts_with(b"\x7fELF") && head.get(4) == Some(&CLASS_32)
}

impl Encode for Watch {
    fn encode(&self, out: &mut Writer) {
        out.bool(self.locks);
        out.bool(self.lock_files);
        out.list(&self.formats, |out, format| {
            out.bytes(&format.name);
            match &format.sign {
                Sign::Extension(extension) => {
                    out.u8(0);
                    out.bytes(extension);
                }
                Sign::Magic { offset, magic, mask } => {
                    out.u8(1);
                    out.u32(*offset);
                    out.bytes(magic);
                    out.bytes(mask);
                }
            }
        });
        out.list(&self.ports, |out, port| out.u32((*port).into()));
        out.bool(self.tells_ports);
        out.list(&self.descriptors, |out, number| out.u32(*number));
        out.bool(self.clones);
        out.bool(self.network);
        for output in &self.outputs {
            out.option(output.as_ref(), |out, output| {
                out.bytes(&output.path);
                out.bool(output.appends);
            });
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let format = |from: &mut Reader<'_>| {
            let name = from.bytes()?.to_vec();
            let sign = match from.u8()? {
                0 => Sign::Extension(from.bytes()?.to_vec()),
                1 => Sign::Magic { offset: from.u32()?, magic: from.bytes()?.to_vec(), mask: from.bytes()?.to_vec() },
                _ => return Err(Malformed("an unknown sign of a format")),
            };
            Ok(Format { name, sign })
        };
        let port = |from: &mut Reader<'_>| u16::try_from(from.u32()?).map_err(|_| Malformed("a port beyond 65535"));
        let output = |from: &mut Reader<'_>| Ok(OutputFile { path: from.bytes()?.to_vec(), appends: from.bool()? });
        Ok(Self {
            locks: from.bool()?,
            lock_files: from.bool()?,
            formats: from.list(format)?,
            ports: from.list(port)?,
            tells_ports: from.bool()?,
            descriptors: from.list(|from| from.u32())?,
            clones: from.bool()?,
            network: from.bool()?,
            outputs: [from.option(output)?, from.option(output)?],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn magic(offset: u32, magic: &[u8], mask: &[u8]) -> Format {
        Format { name: b"f".to_vec(), sign: Sign::Magic { offset, magic: magic.to_vec(), mask: mask.to_vec() } }
    }

    #[test]
    fn a_format_is_known_by_its_bytes_or_by_its_name() {
        assert!(magic(1, b"FOO", b"").is_of(b"/x", b"\x7fFOO bar"));
        assert!(!magic(1, b"FOO", b"").is_of(b"/x", b"\x7fFO"));
        assert!(magic(0, b"\x7f\0L", b"\xff\0\xff").is_of(b"/x", b"\x7fELF"), "masked");
        let jar = Format { name: b"jar".to_vec(), sign: Sign::Extension(b"jar".to_vec()) };
        assert!(jar.is_of(b"/a.b/x.jar", b"") && !jar.is_of(b"/a.jar/x", b"") && !jar.is_of(b"/jar", b""));
        assert!(is_lock_name(b"index.lock") && is_lock_name(b".LCK-x") && !is_lock_name(b"tmp.Xy"));
        assert!(is_narrow(b"\x7fELF\x01") && !is_narrow(b"\x7fELF\x02") && !is_narrow(b"\x7fELF"));
    }

    #[test]
    fn a_reason_names_its_descriptor() {
        assert_eq!(used_descriptor(&uses_descriptor(37)), Some(37));
        assert_eq!(used_descriptor("it uses the network: 1.2.3.4"), None);
    }

    #[test]
    fn a_watch_round_trips() {
        let jar = Format { name: b"jar".to_vec(), sign: Sign::Extension(b"jar".to_vec()) };
        let watch = Watch {
            locks: true,
            lock_files: true,
            formats: vec![jar, magic(3, b"a", b"\xf0")],
            ports: vec![80, 65535],
            tells_ports: true,
            descriptors: vec![3, 9],
            clones: true,
            network: true,
            outputs: [Some(OutputFile { path: b"/log".to_vec(), appends: true }), None],
        };
        let mut out = Writer::default();
        watch.encode(&mut out);
        assert_eq!(Watch::decode(&mut Reader::new(&out.0)), Ok(watch));
    }
}

//! A tar archive (POSIX.1-1988, `ustar`) of files that only their owner may read, compressed with Zstandard.

use std::io::{self, Write};

const BLOCK: usize = 512;
const LEVEL: i32 = 6;
/// Longest name of an entry that the format has room for without further fields.
const NAME_BYTES_MAX: usize = 100;

/// Writes entries, one after the other.
pub struct Archive<Out: Write> {
    out: zstd::Encoder<'static, Out>,
    modified_s: u64,
}

impl<Out: Write> Archive<Out> {
    /// An empty archive; its files are from `modified_s`, seconds since 1970.
    pub fn new(out: Out, modified_s: u64) -> io::Result<Self> {
        Ok(Self { out: zstd::Encoder::new(out, LEVEL)?, modified_s })
    }

    /// Adds a file.
    pub fn add(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(&header(name, bytes.len(), self.modified_s)?)?;
        self.out.write_all(bytes)?;
        self.out.write_all(&vec![0; bytes.len().next_multiple_of(BLOCK) - bytes.len()])
    }

    /// Ends the archive.
    pub fn finish(mut self) -> io::Result<Out> {
        self.out.write_all(&[0; 2 * BLOCK])?;
        self.out.finish()
    }
}

fn header(name: &str, len: usize, modified_s: u64) -> io::Result<[u8; BLOCK]> {
    if name.len() > NAME_BYTES_MAX {
        return Err(io::Error::other(format!("the name of an entry is too long: {name}")));
    }
    let mut block = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, b"0000600\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{len:011o}\0").as_bytes());
    put(136, format!("{modified_s:011o}\0").as_bytes());
    // The checksum counts as spaces in itself.
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn tar_reads_it() {
        let mut archive = Archive::new(Vec::new(), 1_700_000_000).expect("begun");
        archive.add("a/empty", b"").expect("added");
        archive.add("a/long", &vec![b'x'; 1000]).expect("added");
        assert!(archive.add(&"n".repeat(101), b"").is_err());
        let packed = archive.finish().expect("ended");
        let bytes = zstd::decode_all(&packed[..]).expect("unpacked");
        assert_eq!(bytes.len(), BLOCK * (1 + 1 + 2 + 2));
        let tar = Command::new("tar").args(["-tvf", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let Ok(mut tar) = tar else {
            println!("SKIPPED: there is no tar");
            return;
        };
        tar.stdin.take().expect("piped").write_all(&bytes).expect("it reads");
        let listed = tar.wait_with_output().expect("it ends");
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let lines: Vec<&str> = listed.lines().collect();
        assert!(lines.len() == 2 && lines[0].starts_with("-rw------- 0/0") && lines[1].contains(" 1000 "), "{listed}");
    }
}

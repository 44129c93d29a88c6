//! Giving the room of large files back without a stir: some disks are told of all that is freed (`discard`), and whoever syncs a file waits meanwhile:
//! 50 ms for 128 MB, a second for 4 GB, measured.

use crate::disk::DiskFile;
use std::fs::File;
use std::io;
use std::time::Duration;

/// By so much a file becomes shorter at once, in bytes.
pub const PIECE_BYTES: u64 = 8 << 20;
/// Between two pieces.
const PAUSE: Duration = Duration::from_millis(10);

/// Makes a file of `length` bytes shorter, one piece of `piece_bytes` after the other, until one is left. Takes 10 ms for each, and what the disk needs.
///
/// # Errors
/// What the disk said.
pub fn shrink(file: &File, length: u64, piece_bytes: u64) -> io::Result<()> {
    shrink_on(file, length, piece_bytes)
}

pub(crate) fn shrink_on(file: &dyn DiskFile, mut length: u64, piece_bytes: u64) -> io::Result<()> {
    while length > piece_bytes {
        length -= piece_bytes;
        file.truncate(length)?;
        // The disk is told when the journal is written: after each piece, not after all.
        file.sync()?;
        // Nothing is awaited: it is the pace.
        std::thread::park_timeout(PAUSE);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_becomes_shorter_piece_by_piece() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(1005).expect("long");
        let began = std::time::Instant::now();
        shrink(&file, 1005, 250).expect("shorter");
        assert_eq!(file.metadata().expect("is there").len(), 5);
        assert!(began.elapsed() >= PAUSE * 4);
    }
}

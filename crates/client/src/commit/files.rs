//! Copying and comparing file contents, with holes as holes.

use rustix::fs::{Mode, SeekFrom, ftruncate, seek};
use rustix::io::Errno;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::Path;

/// Makes `path` a folder of mode 0700, with its parents; it may exist.
pub(crate) fn make_private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    Ok(rustix::fs::chmod(path, Mode::from_raw_mode(0o700))?)
}

/// Makes the content of `to` equal to that of `from`, holes as holes, and flushes nothing.
pub(crate) fn copy_content(from: &File, to: &File) -> io::Result<()> {
    let size = from.metadata()?.len();
    ftruncate(to, 0)?;
    ftruncate(to, size)?;
    let mut at = 0;
    while let Some((start, end)) = next_data(from, at, size)? {
        copy_range(from, to, start, start, end - start)?;
        at = end;
    }
    Ok(())
}

/// Adds what `from` has between `done` and `len` to `to`, which ends at `end`, holes as holes. Whenever it is interrupted,
/// what was added is a beginning of what is to be added.
pub(crate) fn append_content(from: &File, to: &File, done: u64, end: u64, len: u64) -> io::Result<()> {
    let mut at = done;
    while let Some((start, stop)) = next_data(from, at, len)? {
        copy_range(from, to, start, end + (start - done), stop - start)?;
        at = stop;
    }
    match at < len {
        true => Ok(ftruncate(to, end + (len - done))?),
        false => Ok(()),
    }
}

/// Adds the bytes of `from` between `done` and `len` to the end of `to`, which is opened for appending and may not be cut:
/// holes become zeros.
pub(crate) fn append_bytes(from: &File, mut to: &File, done: u64, len: u64) -> io::Result<()> {
    let mut buffer = vec![0u8; (len - done).min(1 << 18) as usize];
    let mut at = done;
    while at < len {
        let want = buffer.len().min((len - at) as usize);
        from.read_exact_at(&mut buffer[..want], at)?;
        to.write_all(&buffer[..want])?;
        at += want as u64;
    }
    Ok(())
}

/// The next run of data of `file` at or after `at`, as start and end.
pub(crate) fn next_data(file: &File, at: u64, size: u64) -> io::Result<Option<(u64, u64)>> {
    if at >= size {
        return Ok(None);
    }
    let start = match seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((at, size))),
        Err(error) => return Err(error.into()),
    };
    let end = seek(file, SeekFrom::Hole(start)).unwrap_or(size).min(size);
    Ok((start < end).then_some((start, end)))
}

/// Copies `len` bytes.
pub(crate) fn copy_range(from: &File, to: &File, from_at: u64, to_at: u64, len: u64) -> io::Result<()> {
    let mut buffer = vec![0u8; len.min(1 << 18) as usize];
    let mut done = 0;
    while done < len {
        let (mut read_at, mut write_at) = (from_at + done, to_at + done);
        let want = (len - done).min(1 << 30) as usize;
        match rustix::fs::copy_file_range(from, Some(&mut read_at), to, Some(&mut write_at), want) {
            Ok(count) if count > 0 => {
                done += count as u64;
                continue;
            }
            Ok(_) | Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::BADF) => {}
            Err(error) => return Err(error.into()),
        }
        let want = buffer.len().min((len - done) as usize);
        let count = from.read_at(&mut buffer[..want], from_at + done)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        to.write_all_at(&buffer[..count], to_at + done)?;
        done += count as u64;
    }
    Ok(())
}

/// Whether both files hold the same bytes.
pub(crate) fn same_bytes(one: &File, other: &File) -> io::Result<bool> {
    let size = one.metadata()?.len();
    Ok(other.metadata()?.len() == size && same_beginning(one, other, size)?)
}

/// Whether the first `size` bytes of both files, which have as many, are the same.
pub(crate) fn same_beginning(one: &File, other: &File, size: u64) -> io::Result<bool> {
    let (mut left, mut right) = (vec![0u8; 1 << 16], vec![0u8; 1 << 16]);
    let mut at = 0;
    while at < size {
        let want = (size - at).min(1 << 16) as usize;
        one.read_exact_at(&mut left[..want], at)?;
        other.read_exact_at(&mut right[..want], at)?;
        if left[..want] != right[..want] {
            return Ok(false);
        }
        at += want as u64;
    }
    Ok(true)
}

/// The whole of a small file, at most `max` bytes.
pub(crate) fn read_bounded(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(max + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > max {
        true => Err(io::Error::new(io::ErrorKind::InvalidData, "larger than anything this version writes")),
        false => Ok(bytes),
    }
}

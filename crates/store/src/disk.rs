//! The file operations of this crate, behind two small traits, so that tests can put a faulty disk under it.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// For reading.
    Read,
    /// For reading and writing.
    Write,
    /// For reading and writing, one that is not there yet.
    Create,
}

/// A disk that holds segment files.
pub(crate) trait Disk: Send + Sync {
    /// The names in a folder.
    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>>;
    /// Opens a file.
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Gives a file another name in its folder; a file that had it is no more.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Waits until the names in a folder would survive a power cut.
    fn sync_names(&self, dir: &Path) -> io::Result<()>;
}

/// An open file, used by many threads at once.
pub(crate) trait DiskFile: Send + Sync {
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Reads at an offset; may read less than asked for, and reads nothing at the end.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes the parts one after the other at an offset; may write less than asked for.
    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize>;
    /// Cuts the file off at a length.
    fn truncate(&self, len: u64) -> io::Result<()>;
    /// Waits until the bytes of the file would survive a power cut (`fdatasync`).
    fn sync(&self) -> io::Result<()>;
}

/// The disk of this machine.
#[derive(Debug)]
pub(crate) struct RealDisk;

impl Disk for RealDisk {
    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.file_name())).collect()
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        let (write, create) = (access != Access::Read, access == Access::Create);
        let file = OpenOptions::new().read(true).write(write).create_new(create).mode(0o600).open(path)?;
        Ok(Box::new(file))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_names(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }
}

impl DiskFile for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buf, offset)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pwritev(self, parts, offset)?)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Fills `buf` from `offset`.
///
/// # Errors
/// `UnexpectedEof` where the file ends before; else what the disk said.
pub(crate) fn read_exact_at(file: &dyn DiskFile, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buf.is_empty() {
        match file.read_at(buf, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                buf = &mut buf[count..];
                offset += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes all parts one after the other at `offset`.
///
/// # Errors
/// What the disk said; part of the bytes may have been written.
pub(crate) fn write_all_at(file: &dyn DiskFile, parts: &[&[u8]], mut offset: u64) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut rest = slices.as_mut_slice();
    // Drops empty parts in front, so that a write of nothing is seen for what it is.
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match file.write_at(rest, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                IoSlice::advance_slices(&mut rest, count);
                offset += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

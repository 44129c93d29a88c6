//! Operations on open files and on contents.

use super::{Actor, Fault, Reported, Words, filled, read_up_to, show, sys, write_all};
use std::os::fd::RawFd;

/// Words for flags of `open`.
const OPEN: [(&str, i32); 18] = [
    ("r", libc::O_RDONLY),
    ("w", libc::O_WRONLY),
    ("rw", libc::O_RDWR),
    ("creat", libc::O_CREAT),
    ("excl", libc::O_EXCL),
    ("trunc", libc::O_TRUNC),
    ("append", libc::O_APPEND),
    ("nofollow", libc::O_NOFOLLOW),
    ("directory", libc::O_DIRECTORY),
    ("path", libc::O_PATH),
    ("tmpfile", libc::O_TMPFILE),
    ("nonblock", libc::O_NONBLOCK),
    ("sync", libc::O_SYNC),
    ("dsync", libc::O_DSYNC),
    ("cloexec", libc::O_CLOEXEC),
    ("noctty", libc::O_NOCTTY),
    ("direct", libc::O_DIRECT),
    ("noatime", libc::O_NOATIME),
];
/// Words for modes of `fallocate`.
const ALLOCATE: [(&str, i32); 5] = [
    ("keep", libc::FALLOC_FL_KEEP_SIZE),
    ("punch", libc::FALLOC_FL_PUNCH_HOLE),
    ("zero", libc::FALLOC_FL_ZERO_RANGE),
    ("collapse", libc::FALLOC_FL_COLLAPSE_RANGE),
    ("insert", libc::FALLOC_FL_INSERT_RANGE),
];
/// Words for where `lseek` counts from.
const WHENCE: [(&str, i32); 5] = [
    ("set", libc::SEEK_SET),
    ("cur", libc::SEEK_CUR),
    ("end", libc::SEEK_END),
    ("data", libc::SEEK_DATA),
    ("hole", libc::SEEK_HOLE),
];
/// Most bytes of one operation.
const BYTES_MAX: i64 = 8 << 20;
/// What is not followed by a number of bytes ends there.
const PIPE_BYTES_MAX: i64 = 60_000;

impl Actor {
    /// Descriptors: opening, closing, copying, flags, locks.
    pub(super) fn file(&mut self, words: &Words<'_>) -> Option<Reported> {
        Some(match words.verb {
            "open" => self.open(words),
            "close" => self.close(words),
            "dup" => {
                self.slot(words, 0).and_then(|fd| sys!(libc::dup(fd))).and_then(|fd| self.fill(words, 1, fd as RawFd))
            }
            "dup2" => self.dup2(words),
            "getfl" => self
                .slot(words, 0)
                .and_then(|fd| sys!(libc::fcntl(fd, libc::F_GETFL)))
                .map(|flags| format!("{flags:o}")),
            "setfl" => self.set_flags(words),
            "getfd" => {
                self.slot(words, 0).and_then(|fd| sys!(libc::fcntl(fd, libc::F_GETFD))).map(|flags| flags.to_string())
            }
            "flock" => self.flock(words),
            "fchdir" => self.slot(words, 0).and_then(|fd| sys!(libc::fchdir(fd))).map(done),
            "fsync" => self.slot(words, 0).and_then(|fd| sys!(libc::fsync(fd))).map(done),
            "fdatasync" => self.slot(words, 0).and_then(|fd| sys!(libc::fdatasync(fd))).map(done),
            "openmany" => open_many(words),
            _ => return None,
        })
    }

    /// Contents, by descriptors and by names.
    pub(super) fn content(&mut self, words: &Words<'_>) -> Option<Reported> {
        Some(match words.verb {
            "read" => self.slot(words, 0).and_then(|fd| read_once(fd, words.number(1)?, None)),
            "pread" => self.slot(words, 0).and_then(|fd| read_once(fd, words.number(1)?, Some(words.number(2)?))),
            "write" => self.slot(words, 0).and_then(|fd| write_once(fd, &bytes(words, 1, 2)?, None)),
            "pwrite" => self.slot(words, 0).and_then(|fd| write_once(fd, &bytes(words, 1, 2)?, Some(words.number(3)?))),
            "lseek" => self.seek(words),
            "ftruncate" => self.slot(words, 0).and_then(|fd| cut(fd, words.number(1)?)),
            "truncate" => truncate(words),
            "fallocate" => self.allocate(words),
            "mapwrite" => self.map(words, true),
            "mapread" => self.map(words, false),
            "sendfile" => self.send(words),
            "splice" => self.splice(words),
            "copyrange" => self.copy_range(words),
            "put" => put(words, libc::O_TRUNC),
            "append" => put(words, libc::O_APPEND),
            "cat" => cat(words),
            _ => return None,
        })
    }

    fn open(&mut self, words: &Words<'_>) -> Reported {
        let (path, flags, mode) = (words.path(1)?, words.flags(2, &OPEN)?, words.mode(3)?);
        let fd = sys!(libc::open(path.as_ptr(), flags, mode))?;
        self.fill(words, 0, fd as RawFd)
    }

    fn close(&mut self, words: &Words<'_>) -> Reported {
        let fd = self.slot(words, 0)?;
        self.slots[super::slot_index(words, 0)?] = None;
        sys!(libc::close(fd)).map(done)
    }

    fn dup2(&mut self, words: &Words<'_>) -> Reported {
        let (from, to) = (self.slot(words, 0)?, self.slot(words, 1)?);
        sys!(libc::dup2(from, to)).map(|fd| format!("fd {fd}"))
    }

    fn set_flags(&mut self, words: &Words<'_>) -> Reported {
        let flags = words.flags(1, &OPEN)?;
        sys!(libc::fcntl(self.slot(words, 0)?, libc::F_SETFL, flags)).map(done)
    }

    fn flock(&mut self, words: &Words<'_>) -> Reported {
        let known = [("shared", libc::LOCK_SH), ("exclusive", libc::LOCK_EX), ("unlock", libc::LOCK_UN)];
        sys!(libc::flock(self.slot(words, 0)?, words.flags(1, &known)? | libc::LOCK_NB)).map(done)
    }

    fn seek(&mut self, words: &Words<'_>) -> Reported {
        let (fd, whence) = (self.slot(words, 0)?, words.flags(1, &WHENCE)?);
        let mut found: libc::stat = unsafe_zeroed();
        sys!(libc::fstat(fd, &mut found))?;
        // Where a folder ends is each file system's own matter.
        if whence == libc::SEEK_END && found.st_mode & libc::S_IFMT == libc::S_IFDIR {
            return Ok("a folder".to_owned());
        }
        sys!(libc::lseek(fd, words.number(2)?, whence)).map(|at| at.to_string())
    }

    fn allocate(&mut self, words: &Words<'_>) -> Reported {
        let (mode, at, len) = (words.flags(1, &ALLOCATE)?, words.number(2)?, words.number(3)?);
        sys!(libc::fallocate(self.slot(words, 0)?, mode, at, len.min(BYTES_MAX))).map(done)
    }

    /// Maps some pages of a file, shared, and writes or reads some bytes there.
    fn map(&mut self, words: &Words<'_>, writes: bool) -> Reported {
        let (fd, page) = (self.slot(words, 0)?, words.number(1)?);
        let protection = if writes { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let offset = page * 4096;
        // What is beyond the last page cannot be touched: that is SIGBUS, and another operation.
        let mut found: libc::stat = unsafe_zeroed();
        sys!(libc::fstat(fd, &mut found))?;
        let len = (found.st_size - offset).clamp(0, 4096) as usize;
        let map = sys!(libc::mmap(std::ptr::null_mut(), 4096, protection, libc::MAP_SHARED, fd, offset) as i64)?;
        let start = map as *mut u8;
        // SAFETY: the page is mapped for these accesses, and `len` bytes of it lie within the file.
        let shown = unsafe {
            let slice = std::slice::from_raw_parts_mut(start, if writes { len } else { 0 });
            slice.copy_from_slice(&filled(slice.len(), 7));
            show(std::slice::from_raw_parts(start, len))
        };
        let synced = sys!(libc::msync(start.cast(), 4096, libc::MS_SYNC));
        sys!(libc::munmap(start.cast(), 4096))?;
        synced.map(|_| shown)
    }

    fn send(&mut self, words: &Words<'_>) -> Reported {
        let (to, from) = (self.slot(words, 0)?, self.slot(words, 1)?);
        sys!(libc::sendfile(to, from, std::ptr::null_mut(), words.number(2)? as usize)).map(|count| count.to_string())
    }

    /// From one file to another by way of a pipe.
    fn splice(&mut self, words: &Words<'_>) -> Reported {
        let (from, to) = (self.slot(words, 0)?, self.slot(words, 1)?);
        let mut pipe = [0; 2];
        sys!(libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC))?;
        let none = std::ptr::null_mut::<libc::loff_t>();
        let count = words.number(2)?.min(PIPE_BYTES_MAX) as usize;
        let there = sys!(libc::splice(from, none, pipe[1], none, count, 0));
        let there = there.and_then(|taken| sys!(libc::splice(pipe[0], none, to, none, taken as usize, 0)));
        pipe.iter().for_each(|fd| drop(sys!(libc::close(*fd))));
        there.map(|count| count.to_string())
    }

    fn copy_range(&mut self, words: &Words<'_>) -> Reported {
        let (from, to) = (self.slot(words, 0)?, self.slot(words, 1)?);
        let none = std::ptr::null_mut::<libc::loff_t>();
        sys!(libc::copy_file_range(from, none, to, none, words.number(2)? as usize, 0)).map(|count| count.to_string())
    }
}

pub(super) fn done(_: i64) -> String {
    "ok".into()
}

/// A structure that a system call fills.
pub(super) fn unsafe_zeroed<T: Copy>() -> T {
    // SAFETY: only used for structures of the C library that are numbers alone, for which zeros are values.
    unsafe { std::mem::zeroed() }
}

fn bytes(words: &Words<'_>, count: usize, seed: usize) -> Result<Vec<u8>, Fault> {
    Ok(filled(words.number(count)?.clamp(0, BYTES_MAX) as usize, words.number(seed)? as u64))
}

fn read_once(fd: RawFd, count: i64, at: Option<i64>) -> Reported {
    let mut buffer = vec![0u8; count.clamp(0, BYTES_MAX) as usize];
    let (start, len) = (buffer.as_mut_ptr().cast(), buffer.len());
    let count = match at {
        None => sys!(libc::read(fd, start, len)),
        Some(at) => sys!(libc::pread(fd, start, len, at)),
    };
    count.map(|count| show(&buffer[..count as usize]))
}

fn write_once(fd: RawFd, bytes: &[u8], at: Option<i64>) -> Reported {
    let (start, len) = (bytes.as_ptr().cast(), bytes.len());
    let count = match at {
        None => sys!(libc::write(fd, start, len)),
        Some(at) => sys!(libc::pwrite(fd, start, len, at)),
    };
    count.map(|count| count.to_string())
}

/// The same of an open file.
fn cut(fd: RawFd, size: i64) -> Reported {
    let mut found: libc::stat = unsafe_zeroed();
    match sys!(libc::fstat(fd, &mut found)) {
        Ok(_) if found.st_size == size && found.st_mode & libc::S_IFMT == libc::S_IFREG => Ok("as it was".into()),
        _ => sys!(libc::ftruncate(fd, size)).map(done),
    }
}

fn truncate(words: &Words<'_>) -> Reported {
    let (path, size) = (words.path(0)?, words.number(1)?);
    let mut found: libc::stat = unsafe_zeroed();
    // Whether a file counts as changed that already has this length is each file system's own way.
    match sys!(libc::stat(path.as_ptr(), &mut found)) {
        Ok(_) if found.st_size == size && found.st_mode & libc::S_IFMT == libc::S_IFREG => Ok("as it was".into()),
        _ => sys!(libc::truncate(path.as_ptr(), size)).map(done),
    }
}

/// Writes a whole file, or adds to one.
fn put(words: &Words<'_>, how: i32) -> Reported {
    let path = words.path(0)?;
    let fd = sys!(libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CREAT | libc::O_NONBLOCK | how, 0o666))? as RawFd;
    let written = write_all(fd, &bytes(words, 1, 2)?);
    sys!(libc::close(fd))?;
    written.map(|count| count.to_string())
}

fn cat(words: &Words<'_>) -> Reported {
    let path = words.path(0)?;
    let fd = sys!(libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_NONBLOCK))? as RawFd;
    let read = read_up_to(fd, BYTES_MAX as usize * 2);
    sys!(libc::close(fd))?;
    read.map(|bytes| show(&bytes))
}

/// Opens a file as often as it can be opened, up to a number.
fn open_many(words: &Words<'_>) -> Reported {
    let (path, most) = (words.path(0)?, words.number(1)?);
    let mut opened = Vec::new();
    let mut end = "all".to_owned();
    for _ in 0..most {
        match sys!(libc::open(path.as_ptr(), libc::O_RDONLY)) {
            Ok(fd) => opened.push(fd as RawFd),
            Err(Fault::System(number)) => {
                end = std::io::Error::from_raw_os_error(number).to_string();
                break;
            }
            Err(fault) => return Err(fault),
        }
    }
    let count = opened.len();
    opened.into_iter().for_each(|fd| drop(sys!(libc::close(fd))));
    Ok(format!("{count} {end}"))
}

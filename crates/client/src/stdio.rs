//! The caller's descriptors, read and written without touching their flags.
//!
//! The open files are shared with the caller's shell and its other children: making them non-blocking would break those.
//! So they are used by threads that wait with `poll` and can be called off through an event descriptor.

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, OFlags, SeekFrom, fcntl_getfl, fstat, seek, stat};
use rustix::io::{Errno, read, write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most bytes read from standard input at a time.
pub const READ_BYTES: usize = 64 << 10;
/// Most bytes written at a time to what may block, where the kernel cannot be asked to take what has room: a pipe that polls writable takes
/// as many without blocking.
const WRITE_BYTES: usize = 4096;

/// Ends the waits of a task's threads.
#[derive(Clone, Debug)]
pub struct Stop(Arc<StopInner>);

#[derive(Debug)]
struct StopInner {
    event: OwnedFd,
    stopped: AtomicBool,
}

/// What came of a read or write.
#[derive(Debug, PartialEq, Eq)]
pub enum Done<T> {
    /// It succeeded.
    Ok(T),
    /// The other end is gone.
    Closed,
    /// The system refused it for this reason.
    Failed(Errno),
    /// It was called off.
    Stopped,
}

impl Stop {
    /// Not stopped yet.
    pub fn new() -> std::io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(StopInner { event, stopped: AtomicBool::new(false) })))
    }

    /// Ends all waits, now and later.
    pub fn stop(&self) {
        self.0.stopped.store(true, Ordering::SeqCst);
        let _ = write(&self.0.event, &1u64.to_ne_bytes());
    }

    /// Whether it is.
    pub fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::SeqCst)
    }

    /// Ready once it is.
    pub fn poll_fd(&self) -> PollFd<'_> {
        PollFd::new(&self.0.event, PollFlags::IN)
    }
}

/// Waits until `fd` is ready. False if any of `stops` is stopped.
fn wait(fd: BorrowedFd<'_>, flags: PollFlags, stops: &[&Stop]) -> bool {
    loop {
        let mut fds = vec![PollFd::from_borrowed_fd(fd, flags)];
        fds.extend(stops.iter().map(|stop| stop.poll_fd()));
        match poll(&mut fds, None) {
            Err(Errno::INTR) => {}
            Err(_) => return true,
            Ok(_) if stops.iter().any(|stop| stop.is_stopped()) => return false,
            Ok(_) if !fds[0].revents().is_empty() => return true,
            Ok(_) => {}
        }
    }
}

/// Reads what is there, waiting for the first byte; empty at the end. Blocks: call from a thread that may.
pub fn read_some(fd: &OwnedFd, stops: &[&Stop], bytes_max: usize) -> Done<Vec<u8>> {
    let mut buffer = vec![0; bytes_max.min(READ_BYTES)];
    loop {
        if !wait(fd.as_fd(), PollFlags::IN, stops) {
            return Done::Stopped;
        }
        match read(fd, &mut buffer) {
            Ok(count) => {
                buffer.truncate(count);
                return Done::Ok(buffer);
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Done::Failed(errno),
        }
    }
}

/// Writes all bytes. Blocks: call from a thread that may.
pub fn write_all(fd: &OwnedFd, stop: &Stop, mut bytes: &[u8]) -> Done<()> {
    let may_block = !matches!(kind(fd), Some(FileType::RegularFile));
    while !bytes.is_empty() {
        if may_block && !wait(fd.as_fd(), PollFlags::OUT, &[stop]) {
            return Done::Stopped;
        }
        let written = match may_block {
            true => write_what_has_room(fd, bytes),
            false => write(fd, bytes),
        };
        match written {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(Errno::PIPE | Errno::CONNRESET) => return Done::Closed,
            Err(errno) => return Done::Failed(errno),
        }
    }
    Done::Ok(())
}

/// Writes to what polls writable as much as it takes without blocking, in one call where the kernel does that (pipes: Linux 6.4).
fn write_what_has_room(fd: &OwnedFd, bytes: &[u8]) -> rustix::io::Result<usize> {
    use rustix::io::{ReadWriteFlags, pwritev2};
    // At the current offset.
    const HERE: u64 = u64::MAX;
    match pwritev2(fd, &[std::io::IoSlice::new(bytes)], HERE, ReadWriteFlags::NOWAIT) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::SPIPE) => {
            write(fd, &bytes[..bytes.len().min(WRITE_BYTES)])
        }
        other => other,
    }
}

/// The error with which a regular file is closed after it was written to. A network file system writes what it holds back
/// when a descriptor is closed, and only then notices that the disk is full.
pub fn flush_error(fd: &OwnedFd) -> Option<Errno> {
    if kind(fd) != Some(FileType::RegularFile) {
        return None;
    }
    let copy = rustix::io::fcntl_dupfd_cloexec(fd, 0).ok()?;
    // SAFETY: the copy is owned here, and given up by this call alone.
    match unsafe { libc::close(copy.into_raw_fd()) } {
        0 => None,
        _ => Errno::from_io_error(&std::io::Error::last_os_error()).filter(|errno| *errno != Errno::INTR),
    }
}

/// Whether `fd` is an unnamed pipe. A named one may get another reader later.
pub fn is_unnamed_pipe(fd: &OwnedFd) -> bool {
    const PIPE_FILE_SYSTEM: i64 = 0x5049_5045;
    kind(fd) == Some(FileType::Fifo) && rustix::fs::fstatfs(fd).is_ok_and(|found| found.f_type == PIPE_FILE_SYSTEM)
}

/// What kind of file a descriptor is.
pub fn kind(fd: &OwnedFd) -> Option<FileType> {
    fstat(fd).ok().map(|found| FileType::from_raw_mode(found.st_mode))
}

/// Whether `fd` is a terminal.
pub fn is_terminal(fd: &OwnedFd) -> bool {
    rustix::termios::isatty(fd)
}

/// Whether `fd` is `/dev/null`: nothing needs to be read from it or sent to it.
pub fn is_null(fd: &OwnedFd) -> bool {
    let null = stat("/dev/null").map(|found| found.st_rdev);
    match (fstat(fd), null) {
        (Ok(found), Ok(null)) => {
            FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice && found.st_rdev == null
        }
        _ => false,
    }
}

/// Whether `fd` is a pipe or socket.
pub fn is_pipe(fd: &OwnedFd) -> bool {
    matches!(kind(fd), Some(FileType::Fifo | FileType::Socket))
}

/// Whether `fd` is a device other than a terminal and `/dev/null`.
pub fn is_device(fd: &OwnedFd) -> bool {
    matches!(kind(fd), Some(FileType::CharacterDevice | FileType::BlockDevice)) && !is_terminal(fd) && !is_null(fd)
}

/// Whether two descriptors are one open file, so that the order of what is written to both matters.
pub fn is_same_file(one: &OwnedFd, other: &OwnedFd) -> bool {
    match (fstat(one), fstat(other)) {
        (Ok(one), Ok(other)) => one.st_dev == other.st_dev && one.st_ino == other.st_ino,
        _ => false,
    }
}

/// Whether two descriptors are one regular file that was opened twice, each with a place of its own in it.
pub fn is_opened_twice(one: &OwnedFd, other: &OwnedFd) -> bool {
    let is_plain = |fd: &OwnedFd| fcntl_getfl(fd).is_ok_and(|flags| !flags.contains(OFlags::APPEND));
    if kind(one) != Some(FileType::RegularFile) || !is_same_file(one, other) || !(is_plain(one) || is_plain(other)) {
        return false;
    }
    is_same_opening(one, other) == Some(false)
}

/// Whether two descriptors are one opening of a file, with one place in it. `None`: the kernel does not say.
pub fn is_same_opening(one: &OwnedFd, other: &OwnedFd) -> Option<bool> {
    const KCMP_FILE: libc::c_long = 0;
    let own = std::process::id();
    // SAFETY: compares two descriptors of this process, by numbers alone.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, own, own, KCMP_FILE, one.as_raw_fd(), other.as_raw_fd()) };
    (order >= 0).then_some(order == 0)
}

/// The numbers of device and file of a regular file.
pub fn file_number(fd: &OwnedFd) -> Option<(u64, u64)> {
    let opened = fstat(fd).ok()?;
    (FileType::from_raw_mode(opened.st_mode) == FileType::RegularFile).then_some((opened.st_dev, opened.st_ino))
}

/// The path and offset of a regular file that is open for reading, if the path still names it.
pub fn regular_file(fd: &OwnedFd) -> Option<(Vec<u8>, u64)> {
    if fcntl_getfl(fd).ok()?.contains(OFlags::WRONLY) {
        return None;
    }
    let path = named_file(fd)?;
    Some((path, seek(fd, SeekFrom::Current(0)).ok()?))
}

/// The path of a regular file, if the path still names it.
pub fn named_file(fd: &OwnedFd) -> Option<Vec<u8>> {
    use std::os::unix::ffi::OsStringExt;
    let opened = file_number(fd)?;
    let path = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()?;
    let named = stat(&path).ok()?;
    (opened == (named.st_dev, named.st_ino)).then(|| path.into_os_string().into_vec())
}

/// Moves a file's offset from where it was to where a task has left it. False: somebody else has moved it meanwhile, and the task has read
/// what is theirs.
pub fn move_offset(fd: &OwnedFd, from: u64, to: u64) -> bool {
    // Who has read nothing leaves it wherever it is now.
    from == to || seek(fd, SeekFrom::Current(0)) == Ok(from) && seek(fd, SeekFrom::Start(to)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::pipe;

    #[test]
    fn a_wait_can_be_called_off() {
        let (reader, _writer) = pipe().expect("a pipe");
        let stop = Stop::new().expect("an event");
        let waiting = {
            let stop = stop.clone();
            std::thread::spawn(move || read_some(&reader, &[&stop], 10))
        };
        stop.stop();
        assert_eq!(waiting.join().expect("no panic"), Done::Stopped);
    }

    #[test]
    fn a_closed_reader_is_noticed() {
        let (reader, writer) = pipe().expect("a pipe");
        drop(reader);
        let stop = Stop::new().expect("an event");
        assert_eq!(write_all(&writer, &stop, b"x"), Done::Closed);
    }

    #[test]
    fn much_is_written_whole_and_can_be_called_off_in_the_middle() {
        use std::io::Read;
        let much: Vec<u8> = (0..1 << 20).map(|at: u32| (at / 3) as u8).collect();
        let (reader, writer) = pipe().expect("a pipe");
        let stop = Stop::new().expect("an event");
        let writing = {
            let (much, stop) = (much.clone(), stop.clone());
            std::thread::spawn(move || write_all(&writer, &stop, &much))
        };
        let mut read = Vec::new();
        std::fs::File::from(reader).read_to_end(&mut read).expect("read");
        assert!(writing.join().expect("no panic") == Done::Ok(()) && read == much);
        let (reader, writer) = pipe().expect("a pipe");
        let writing = {
            let stop = stop.clone();
            std::thread::spawn(move || write_all(&writer, &stop, &much))
        };
        while rustix::io::ioctl_fionread(&reader).expect("a pipe") == 0 {
            std::thread::yield_now();
        }
        stop.stop();
        assert_eq!(writing.join().expect("no panic"), Done::Stopped, "nobody reads");
    }

    #[test]
    fn what_the_system_refuses_is_told_by_its_error() {
        let stop = Stop::new().expect("an event");
        let open = |path: &str, write: bool| {
            OwnedFd::from(std::fs::File::options().read(!write).write(write).open(path).expect("it opens"))
        };
        assert_eq!(write_all(&open("/dev/full", true), &stop, b"x"), Done::Failed(Errno::NOSPC));
        assert_eq!(write_all(&open("/dev/null", false), &stop, b"x"), Done::Failed(Errno::BADF));
        assert_eq!(read_some(&open("/", false), &[&stop], 10), Done::Failed(Errno::ISDIR));
        let file = OwnedFd::from(tempfile::tempfile().expect("a file"));
        assert_eq!((flush_error(&file), is_unnamed_pipe(&file)), (None, false));
        assert!(is_unnamed_pipe(&pipe().expect("a pipe").1));
    }

    #[test]
    fn files_are_found_by_path_and_offset() {
        use std::io::{Read, Seek};
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        std::io::Write::write_all(&mut file, b"hello").expect("written");
        let mut opened = std::fs::File::open(file.path()).expect("opened");
        opened.read_exact(&mut [0; 2]).expect("read");
        let fd = OwnedFd::from(opened.try_clone().expect("a copy"));
        let (path, offset) = regular_file(&fd).expect("a regular file");
        assert_eq!((path.as_slice(), offset), (file.path().as_os_str().as_encoded_bytes(), 2));
        assert!(move_offset(&fd, 2, 4) && move_offset(&fd, 1, 1) && !move_offset(&fd, 2, 5));
        assert_eq!(opened.stream_position().expect("a file"), 4, "the caller shares the offset");
        drop(file);
        assert_eq!(regular_file(&fd), None, "its name is gone");
    }
}

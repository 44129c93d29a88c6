//! What is looked into: a pipe, a stream socket, or a file.

use super::round_robin::{Bell, RoundRobin};
use crate::stdio::is_same_opening;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, SeekFrom, fcntl_getfl, fstat, open, seek, tell};
use rustix::io::{Errno, ioctl_fionread, pread, read};
use rustix::net::sockopt::socket_type;
use rustix::net::{RecvFlags, SocketType, recv};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice, tee};
use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Weak};
use std::time::Duration;
use wire::lock;

/// Size that a pipe is given in which much waits to be taken, bytes: what may be on its way to a worker that far away. As much as the
/// kernel gives anybody.
pub const PIPE_BYTES: usize = 1 << 20;
/// From so much on that waits to be taken out of a socket its writer may soon wait for room, bytes.
const SOCKET_BYTES: usize = 32 << 10;

/// All of them: two tasks that share one must not be sent the same bytes.
static ALL: LazyLock<Mutex<ByName>> = LazyLock::new(Mutex::default);

/// By device and inode number. A file may have been opened several times.
type ByName = HashMap<(u64, u64), Vec<Weak<Source>>>;

/// A pipe, a stream socket or a file that tasks look into, one at a time.
#[derive(Debug)]
pub struct Source {
    name: (u64, u64),
    fd: Arc<OwnedFd>,
    kind: Kind,
    found: Mutex<Found>,
}

#[derive(Debug)]
enum Kind {
    File,
    Pipe(Copier),
    Socket,
}

/// What is known of it.
#[derive(Debug)]
pub struct Found {
    /// What who looks has found in it, and is still there.
    pub bytes: VecDeque<u8>,
    /// Of a file: where they begin.
    place: Option<u64>,
    /// It is not looked into any more, but read.
    pub is_read: bool,
    /// Who looks.
    pub readers: RoundRobin,
}

/// What ends a wait.
pub enum Waited {
    /// Something was added, or may have been.
    Added,
    /// The bell.
    Rung,
    /// The time.
    Nothing,
}

impl Source {
    /// Takes part in what this descriptor reads. `None`: it cannot be looked into.
    pub fn join(fd: Arc<OwnedFd>, bell: Bell) -> Option<(Arc<Self>, u64)> {
        let found = fstat(&fd).ok()?;
        let kind = Kind::of(&fd, FileType::from_raw_mode(found.st_mode))?;
        let name = (found.st_dev, found.st_ino);
        // Those that go meanwhile do so once `ALL` is free again.
        let mut known: Vec<Arc<Self>> = Vec::new();
        let mut all = lock(&ALL);
        known.extend(all.get(&name).into_iter().flatten().filter_map(Weak::upgrade));
        let mut shared = None;
        for source in &known {
            // A file that was opened twice is read from two places. Where that cannot be told, it is read, as of any other descriptor.
            if !matches!(kind, Kind::File) || is_same_opening(&source.fd, &fd)? {
                shared = Some(source.clone());
            }
        }
        let source = match shared {
            Some(source) => source,
            None => {
                let found =
                    Found { bytes: VecDeque::new(), place: None, is_read: false, readers: RoundRobin::default() };
                let source = Arc::new(Self { name, fd, kind, found: Mutex::new(found) });
                all.entry(name).or_default().push(Arc::downgrade(&source));
                source
            }
        };
        let number = source.found().readers.join(bell);
        Some((source, number))
    }

    /// The descriptor.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// What is known of it.
    pub fn found(&self) -> MutexGuard<'_, Found> {
        lock(&self.found)
    }

    /// Whether nothing comes any more. To be asked before what there is.
    pub fn has_ended(&self) -> bool {
        matches!(self.kind, Kind::File) || has_no_writer(&self.fd)
    }

    /// Finds what is in it that is not found yet.
    pub fn find(&self, found: &mut Found, bytes_max: usize) -> rustix::io::Result<Vec<u8>> {
        let known = found.bytes.len();
        if !matches!(self.kind, Kind::File) {
            match ioctl_fionread(&self.fd)?.cmp(&(known as u64)) {
                Ordering::Less => return Err(Errno::IO),
                Ordering::Equal => return Ok(Vec::new()),
                Ordering::Greater => {}
            }
        }
        let bytes = match &self.kind {
            Kind::File => {
                let place = tell(&self.fd)?;
                if known > 0 && found.place != Some(place) {
                    return Err(Errno::IO);
                }
                found.place = Some(place);
                read_at(&self.fd, place + known as u64, bytes_max)?
            }
            Kind::Pipe(copier) => copier.copy_behind(&self.fd, known, bytes_max)?,
            Kind::Socket => peek_behind(&self.fd, known, bytes_max)?,
        };
        found.bytes.extend(&bytes);
        Ok(bytes)
    }

    /// Whether there is more in it than was found.
    pub fn has_more(&self, found: &Found) -> bool {
        let is_more = |there| there > found.bytes.len() as u64;
        matches!(self.kind, Kind::File) || ioctl_fionread(&self.fd).is_ok_and(is_more)
    }

    /// Whether who writes into it may soon wait for room.
    pub fn is_filling(&self, found: &Found) -> bool {
        match &self.kind {
            Kind::File => found.bytes.len() >= PIPE_BYTES,
            Kind::Pipe(copier) => copier.is_filling(&self.fd, found.bytes.len()),
            Kind::Socket => found.bytes.len() >= SOCKET_BYTES,
        }
    }

    /// Whether what was found is still there.
    pub fn is_as_found(&self, found: &Found) -> bool {
        if found.is_read || found.bytes.is_empty() {
            return true;
        }
        let there = match &self.kind {
            Kind::File => return tell(&self.fd).ok() == found.place,
            Kind::Pipe(copier) => copier.copy(&self.fd, found.bytes.len()),
            Kind::Socket => peek(&self.fd, found.bytes.len()),
        };
        there.is_ok_and(|there| found.bytes.iter().eq(&there))
    }

    /// Takes the first so many bytes out that were found. Returns them, as they are now, and whether they are what was found.
    pub fn take(&self, found: &mut Found, bytes: usize) -> (Vec<u8>, bool) {
        let there: Vec<u8> = match &self.kind {
            Kind::File if bytes == 0 => Vec::new(),
            Kind::File if tell(&self.fd).ok() == found.place => {
                found.place = seek(&self.fd, SeekFrom::Current(bytes as i64)).ok();
                found.bytes.range(..bytes).copied().collect()
            }
            Kind::File => Vec::new(),
            Kind::Pipe(copier) => copier.move_out(&self.fd, bytes),
            Kind::Socket => receive(&self.fd, bytes),
        };
        let is_same = found.bytes.drain(..bytes).eq(there.iter().copied());
        (there, is_same)
    }

    /// Waits until something is added, it has no writer, the bell is rung or one of `stops` ready. `edge`: kept between waits.
    pub fn wait(
        &self,
        edge: &mut Option<OwnedFd>,
        (bell, stops): (&Bell, Vec<PollFd<'_>>),
        limit: Option<Duration>,
    ) -> Waited {
        if edge.is_none() {
            *edge = edge_of(&self.fd).ok();
        }
        let mut fds = stops;
        fds.push(bell.poll_fd());
        fds.extend(edge.iter().map(|edge| PollFd::new(edge, PollFlags::IN)));
        let limit =
            limit.map(|limit| Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) });
        let ready = poll(&mut fds, limit.as_ref());
        if let Some(edge) = edge {
            let mut events = Vec::with_capacity(1);
            let _ = epoll::wait(edge, spare_capacity(&mut events), Some(&Timespec::default()));
        }
        match ready {
            _ if bell.was_rung() => Waited::Rung,
            Ok(0) => Waited::Nothing,
            Ok(_) | Err(_) => Waited::Added,
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let mut all = lock(&ALL);
        if let Some(known) = all.get_mut(&self.name) {
            known.retain(|known| known.strong_count() > 0);
            if known.is_empty() {
                all.remove(&self.name);
            }
        }
    }
}

impl Kind {
    fn of(fd: &OwnedFd, file_type: FileType) -> Option<Self> {
        match file_type {
            FileType::RegularFile => Some(Self::File),
            FileType::Fifo if !fcntl_getfl(fd).ok()?.contains(OFlags::DIRECT) => Copier::of(fd).map(Self::Pipe),
            FileType::Socket if socket_type(fd) == Ok(SocketType::STREAM) => Some(Self::Socket),
            _ => None,
        }
    }
}

/// Copies what is in a pipe without taking it out.
#[derive(Debug)]
struct Copier {
    /// Where it is copied or moved to: the ends for reading and for writing.
    copy: (OwnedFd, OwnedFd),
    null: OwnedFd,
}

impl Copier {
    fn of(pipe: &OwnedFd) -> Option<Self> {
        let copy = pipe_with(PipeFlags::CLOEXEC).ok()?;
        set_size(&copy.1, fcntl_getpipe_size(pipe).ok()?).ok()?;
        let null = open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        Some(Self { copy, null })
    }

    /// The first so many bytes.
    fn copy(&self, pipe: &OwnedFd, bytes: usize) -> rustix::io::Result<Vec<u8>> {
        let copied = tee(pipe, &self.copy.1, bytes, SpliceFlags::NONBLOCK)?;
        Ok(read_all(&self.copy.0, copied))
    }

    /// What is behind the first `known` bytes.
    fn copy_behind(&self, pipe: &OwnedFd, known: usize, bytes_max: usize) -> rustix::io::Result<Vec<u8>> {
        let copied = tee(pipe, &self.copy.1, known + bytes_max, SpliceFlags::NONBLOCK)?;
        // Nothing is copied only to be thrown away.
        let mut behind = 0;
        while behind < known {
            behind += splice(&self.copy.0, None, &self.null, None, known - behind, SpliceFlags::NONBLOCK)?;
        }
        if copied == known {
            return Err(Errno::NOBUFS);
        }
        Ok(read_all(&self.copy.0, copied - known))
    }

    /// Takes as much as this out of the pipe, as far as it is there: without waiting, should others read it as well.
    fn move_out(&self, pipe: &OwnedFd, bytes: usize) -> Vec<u8> {
        let mut moved = Vec::with_capacity(bytes);
        while moved.len() < bytes {
            match splice(pipe, None, &self.copy.1, None, bytes - moved.len(), SpliceFlags::NONBLOCK) {
                Ok(0) => break,
                Ok(count) => moved.extend(read_all(&self.copy.0, count)),
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        moved
    }

    /// Whether who writes into the pipe may soon wait for room. A pipe of ordinary size is made a large one.
    fn is_filling(&self, pipe: &OwnedFd, known: usize) -> bool {
        let Ok(size) = fcntl_getpipe_size(pipe) else { return true };
        if known < size / 2 {
            return false;
        }
        if size < PIPE_BYTES && set_size(&self.copy.1, PIPE_BYTES).is_ok() {
            let _ = fcntl_setpipe_size(pipe, PIPE_BYTES);
        }
        true
    }
}

fn read_at(file: &OwnedFd, place: u64, bytes_max: usize) -> rustix::io::Result<Vec<u8>> {
    let mut bytes = vec![0; bytes_max];
    let count = pread(file, &mut bytes, place)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// The first so many bytes in a socket.
fn peek(socket: &OwnedFd, bytes_max: usize) -> rustix::io::Result<Vec<u8>> {
    let mut bytes = vec![0; bytes_max];
    let (count, _) = recv(socket, &mut bytes, RecvFlags::PEEK | RecvFlags::DONTWAIT)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// What is in a socket behind the first `known` bytes.
fn peek_behind(socket: &OwnedFd, known: usize, bytes_max: usize) -> rustix::io::Result<Vec<u8>> {
    let mut bytes = peek(socket, known + bytes_max)?;
    match bytes.len() > known {
        true => Ok(bytes.split_off(known)),
        // What comes with a descriptor ends what can be looked into.
        false => Err(Errno::NOBUFS),
    }
}

/// Takes as much as this out of a socket, as far as it is there.
fn receive(socket: &OwnedFd, bytes: usize) -> Vec<u8> {
    filled(bytes, |rest| recv(socket, rest, RecvFlags::DONTWAIT).map(|(count, _)| count))
}

fn set_size(pipe: &OwnedFd, bytes: usize) -> rustix::io::Result<()> {
    match fcntl_getpipe_size(pipe)? >= bytes {
        true => Ok(()),
        false => fcntl_setpipe_size(pipe, bytes).map(drop),
    }
}

/// Reads as much as this, which is there.
fn read_all(pipe: &OwnedFd, bytes: usize) -> Vec<u8> {
    filled(bytes, |rest| read(pipe, rest))
}

/// As many bytes, or as there are until `read` finds none or fails.
fn filled(bytes: usize, read: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> Vec<u8> {
    let (mut buffer, mut filled) = (vec![0; bytes], 0);
    while filled < bytes {
        match read(&mut buffer[filled..]) {
            Ok(count) if count > 0 => filled += count,
            Err(Errno::INTR) => {}
            Ok(_) | Err(_) => break,
        }
    }
    buffer.truncate(filled);
    buffer
}

fn has_no_writer(fd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::IN | PollFlags::RDHUP)];
    let asked = poll(&mut fds, Some(&Timespec::default()));
    asked.is_ok() && fds[0].revents().intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR)
}

/// Tells of what is added to a pipe that is not empty.
fn edge_of(pipe: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let edge = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let events = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
    epoll::add(&edge, pipe.as_fd(), epoll::EventData::new_u64(0), events)?;
    Ok(edge)
}

//! What is looked into: a pipe, or a file.

use super::round_robin::{Bell, RoundRobin};
use crate::stdio::is_same_opening;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, SeekFrom, fcntl_getfl, fstat, open, seek, tell};
use rustix::io::{Errno, ioctl_fionread, pread, read};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice, tee};
use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Weak};
use std::time::Duration;
use wire::lock;

/// Size that a pipe is given in which much waits to be taken, bytes: what may be on its way to a worker that far away. As much as the
/// kernel gives anybody.
pub const PIPE_BYTES: usize = 1 << 20;

/// All of them: two tasks that share one must not be sent the same bytes.
static ALL: LazyLock<Mutex<ByName>> = LazyLock::new(Mutex::default);

/// By device and inode number. A file may have been opened several times.
type ByName = HashMap<(u64, u64), Vec<Weak<Source>>>;

/// A pipe or a file that tasks look into, one at a time.
#[derive(Debug)]
pub struct Source {
    name: (u64, u64),
    fd: Arc<OwnedFd>,
    is_file: bool,
    found: Mutex<Found>,
}

/// What is known of it.
#[derive(Debug)]
pub struct Found {
    /// Where what is in the pipe is copied or moved to: the ends for reading and for writing.
    copy: (OwnedFd, OwnedFd),
    null: OwnedFd,
    /// What who looks has found in it, and is still there.
    pub bytes: VecDeque<u8>,
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
        let is_file = match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => true,
            FileType::Fifo if !fcntl_getfl(&fd).ok()?.contains(OFlags::DIRECT) => false,
            _ => return None,
        };
        let name = (found.st_dev, found.st_ino);
        // Those that go meanwhile do so once `ALL` is free again.
        let mut known: Vec<Arc<Self>> = Vec::new();
        let mut all = lock(&ALL);
        known.extend(all.get(&name).into_iter().flatten().filter_map(Weak::upgrade));
        let mut shared = None;
        for source in &known {
            // A file that was opened twice is read from two places. Where that cannot be told, it is read, as of any other descriptor.
            if !is_file || is_same_opening(&source.fd, &fd)? {
                shared = Some(source.clone());
            }
        }
        let source = match shared {
            Some(source) => source,
            None => {
                let source = Arc::new(Self { name, is_file, found: Mutex::new(Found::new(&fd, is_file)?), fd });
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
        self.is_file || has_no_writer(&self.fd)
    }

    /// Finds what is in it that is not found yet.
    pub fn find(&self, found: &mut Found, bytes_max: usize) -> rustix::io::Result<Vec<u8>> {
        if !self.is_file {
            return found.find(&self.fd, bytes_max);
        }
        let mut bytes = vec![0; bytes_max];
        let at = tell(&self.fd)? + found.bytes.len() as u64;
        let count = pread(&self.fd, &mut bytes, at)?;
        bytes.truncate(count);
        found.bytes.extend(&bytes);
        Ok(bytes)
    }

    /// Whether there is more in it than was found.
    pub fn has_more(&self, found: &Found) -> bool {
        self.is_file || ioctl_fionread(&self.fd).is_ok_and(|there| there > found.bytes.len() as u64)
    }

    /// Whether who writes into it may soon wait for room.
    pub fn is_filling(&self, found: &Found) -> bool {
        if self.is_file { found.bytes.len() >= PIPE_BYTES } else { found.is_filling(&self.fd) }
    }

    /// Whether what was found is still there.
    pub fn is_as_found(&self, found: &Found) -> bool {
        self.is_file || found.is_read || found.is_as_found(&self.fd)
    }

    /// Takes the first so many bytes out that were found. Returns them, as they are now, and whether they are what was found.
    pub fn take(&self, found: &mut Found, bytes: usize) -> (Vec<u8>, bool) {
        let there: Vec<u8> = match self.is_file {
            true if seek(&self.fd, SeekFrom::Current(bytes as i64)).is_ok() => {
                found.bytes.range(..bytes).copied().collect()
            }
            true => Vec::new(),
            false => found.move_out(&self.fd, bytes),
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

impl Found {
    fn new(fd: &OwnedFd, is_file: bool) -> Option<Self> {
        let copy = pipe_with(PipeFlags::CLOEXEC).ok()?;
        if !is_file {
            set_size(&copy.1, fcntl_getpipe_size(fd).ok()?).ok()?;
        }
        let null = open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        Some(Self { copy, null, bytes: VecDeque::new(), is_read: false, readers: RoundRobin::default() })
    }

    /// What is in the pipe behind what was found.
    fn find(&mut self, pipe: &OwnedFd, bytes_max: usize) -> rustix::io::Result<Vec<u8>> {
        let known = self.bytes.len();
        match ioctl_fionread(pipe)?.cmp(&(known as u64)) {
            Ordering::Less => return Err(Errno::IO),
            Ordering::Equal => return Ok(Vec::new()),
            Ordering::Greater => {}
        }
        let copied = tee(pipe, &self.copy.1, known + bytes_max, SpliceFlags::NONBLOCK)?;
        // Nothing is copied only to be thrown away.
        let mut behind = 0;
        while behind < known {
            behind += splice(&self.copy.0, None, &self.null, None, known - behind, SpliceFlags::NONBLOCK)?;
        }
        if copied == known {
            return Err(Errno::NOBUFS);
        }
        let bytes = read_all(&self.copy.0, copied - known);
        self.bytes.extend(&bytes);
        Ok(bytes)
    }

    fn is_as_found(&self, pipe: &OwnedFd) -> bool {
        if self.bytes.is_empty() {
            return true;
        }
        let copied = tee(pipe, &self.copy.1, self.bytes.len(), SpliceFlags::NONBLOCK);
        copied.is_ok_and(|copied| self.bytes.iter().eq(&read_all(&self.copy.0, copied)))
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
    fn is_filling(&self, pipe: &OwnedFd) -> bool {
        let Ok(size) = fcntl_getpipe_size(pipe) else { return true };
        if self.bytes.len() < size / 2 {
            return false;
        }
        if size < PIPE_BYTES && set_size(&self.copy.1, PIPE_BYTES).is_ok() {
            let _ = fcntl_setpipe_size(pipe, PIPE_BYTES);
        }
        true
    }
}

fn set_size(pipe: &OwnedFd, bytes: usize) -> rustix::io::Result<()> {
    match fcntl_getpipe_size(pipe)? >= bytes {
        true => Ok(()),
        false => fcntl_setpipe_size(pipe, bytes).map(drop),
    }
}

/// Reads as much as this, which is there.
fn read_all(pipe: &OwnedFd, bytes: usize) -> Vec<u8> {
    let mut buffer = vec![0; bytes];
    let mut filled = 0;
    while filled < bytes {
        match read(pipe, &mut buffer[filled..]) {
            Ok(count) if count > 0 => filled += count,
            Err(Errno::INTR) => {}
            Ok(_) | Err(_) => break,
        }
    }
    buffer.truncate(filled);
    buffer
}

fn has_no_writer(pipe: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pipe, PollFlags::IN)];
    let asked = poll(&mut fds, Some(&Timespec::default()));
    asked.is_ok() && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

/// Tells of what is added to a pipe that is not empty.
fn edge_of(pipe: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let edge = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&edge, pipe.as_fd(), epoll::EventData::new_u64(0), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
    Ok(edge)
}

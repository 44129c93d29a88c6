//! A pipe, or a file without a name, as standard input: what is in it stays there until the task is known to have taken it.
//!
//! Here, a command that reads a part of a pipe leaves the rest to the next one: `seq 5 | (read first; cat)`. A task far away is sent what it
//! might read, which `tee` copies without taking it out, and of a file `pread`. Its worker says how much was read there, and so much is taken out: where
//! the pipe would fill up, and at the end. So a task that comes to nothing has mostly taken nothing.

use crate::stdio::{Done, READ_BYTES, Stop, read_some};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, SeekFrom, fcntl_getfl, fstat, open, seek, tell};
use rustix::io::{Errno, ioctl_fionread, pread, read};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice, tee};
use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::time::Duration;
use wire::lock;

/// Size that a pipe is given in which much waits to be taken, bytes: what may be on its way to a worker that far away. As much as the
/// kernel gives anybody.
const PIPE_BYTES: usize = 1 << 20;
/// Most bytes that one look finds.
const LOOK_BYTES: usize = 4 * READ_BYTES;
/// How long a look waits for an edge before it looks anyway: some kernels tell a reader of a pipe that is not empty nothing of what is added.
const EDGE_WAIT: Duration = Duration::from_millis(250);

/// What a task has taken of its standard input, over all attempts.
#[derive(Debug, Default)]
pub struct Taken {
    /// All of it, while it is little.
    pub kept: Vec<u8>,
    /// How much, bytes.
    pub bytes: u64,
}

impl Taken {
    /// Most bytes that are kept for another attempt.
    const KEPT_BYTES_MAX: usize = 1 << 20;

    /// Whether all of it can be sent to another attempt.
    pub fn is_whole(&self) -> bool {
        self.bytes == self.kept.len() as u64
    }

    /// Takes these as well.
    pub fn add(&mut self, bytes: &[u8]) {
        if self.is_whole() && self.kept.len() + bytes.len() <= Self::KEPT_BYTES_MAX {
            self.kept.extend_from_slice(bytes);
        }
        self.bytes += bytes.len() as u64;
    }
}

/// What tasks read as their standard input, by device and inode number: two that share it must not be sent the same bytes.
static READ: LazyLock<Mutex<HashMap<(u64, u64), Readers>>> = LazyLock::new(Mutex::default);

/// Who reads it.
#[derive(Default)]
struct Readers {
    count: usize,
    /// The first, who may look into it.
    first: Weak<Peeked>,
}

/// A task's part in what it reads as its standard input, as long as this lives.
#[derive(Debug)]
pub struct Part {
    name: (u64, u64),
    /// It looks into that, and need not read it.
    pub peeked: Option<Arc<Peeked>>,
}

impl Part {
    /// Takes part. `taken`: where goes what is taken.
    pub fn new(fd: Arc<OwnedFd>, taken: Arc<Mutex<Taken>>) -> Option<Self> {
        let found = fstat(&fd).ok()?;
        let name = (found.st_dev, found.st_ino);
        let mut all = lock(&READ);
        let readers = all.entry(name).or_default();
        readers.count += 1;
        if readers.count > 1 {
            // Of two that share a pipe each has what it reads first, as here.
            readers.first.upgrade().into_iter().for_each(|first| first.take_all(&mut lock(&first.state)));
            return Some(Self { name, peeked: None });
        }
        let peeked = Peeked::new(fd, FileType::from_raw_mode(found.st_mode), taken).map(Arc::new);
        readers.first = peeked.as_ref().map_or_else(Weak::new, Arc::downgrade);
        Some(Self { name, peeked })
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut all = lock(&READ);
        if let Some(readers) = all.get_mut(&self.name) {
            readers.count -= 1;
            if readers.count == 0 {
                all.remove(&self.name);
            }
        }
    }
}

/// A pipe or a file that is looked into.
#[derive(Debug)]
pub struct Peeked {
    fd: Arc<OwnedFd>,
    is_file: bool,
    state: Mutex<State>,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug)]
struct State {
    /// Where what is in the pipe is copied or moved to: the ends for reading and for writing.
    copy: (OwnedFd, OwnedFd),
    null: OwnedFd,
    /// What this attempt has found in the pipe, and is still there.
    found: VecDeque<u8>,
    /// How much of all that it was sent the task has taken, as far as its worker has said.
    told: u64,
    attempt: u32,
    /// It is not looked into any more, but read.
    is_read: bool,
    /// Something was not there any more that had been found.
    is_disturbed: bool,
}

impl Peeked {
    fn new(fd: Arc<OwnedFd>, kind: FileType, taken: Arc<Mutex<Taken>>) -> Option<Self> {
        let is_file = kind == FileType::RegularFile;
        let is_packets = fcntl_getfl(&fd).ok()?.contains(OFlags::DIRECT);
        if !is_file && (kind != FileType::Fifo || is_packets) {
            return None;
        }
        let copy = pipe_with(PipeFlags::CLOEXEC).ok()?;
        if !is_file {
            set_size(&copy.1, fcntl_getpipe_size(&fd).ok()?).ok()?;
        }
        let null = open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let (found, told, attempt, is_read, is_disturbed) = (VecDeque::new(), 0, 0, false, false);
        let state = State { copy, null, found, told, attempt, is_read, is_disturbed };
        Some(Self { fd, is_file, state: Mutex::new(state), taken })
    }

    /// Another attempt begins, from what is taken already. Returns its number.
    pub fn begin(&self) -> u32 {
        let mut state = lock(&self.state);
        state.found.clear();
        state.told = 0;
        state.attempt += 1;
        state.attempt
    }

    /// Finds what is in the pipe that this attempt has not found yet, waiting for the first byte; empty at the end. Blocks: call from a
    /// thread that may.
    pub fn look(&self, attempt: u32, stops: &[&Stop], bytes_max: usize) -> Done<Vec<u8>> {
        let mut edge = None;
        loop {
            // Once no writer is left nothing comes any more: asked first.
            let has_ended = self.is_file || has_no_writer(&self.fd);
            let mut state = lock(&self.state);
            if state.attempt != attempt {
                return Done::Stopped;
            }
            if state.is_read {
                drop(state);
                return self.read(stops, bytes_max);
            }
            match self.find(&mut state, bytes_max.min(LOOK_BYTES)) {
                Ok(bytes) if bytes.is_empty() && !has_ended => {}
                Ok(bytes) => return Done::Ok(bytes),
                // It cannot be copied, or is not what it was.
                Err(_) => {
                    self.take_all(&mut state);
                    continue;
                }
            }
            let is_empty = state.found.is_empty();
            drop(state);
            match self.wait(&mut edge, stops, is_empty) {
                Waited::Stopped => return Done::Stopped,
                Waited::Added => {}
                Waited::Nothing => self.make_room(&mut lock(&self.state)),
            }
        }
    }

    fn find(&self, state: &mut State, bytes_max: usize) -> rustix::io::Result<Vec<u8>> {
        if !self.is_file {
            return state.find(&self.fd, bytes_max);
        }
        let mut bytes = vec![0; bytes_max];
        let at = tell(&self.fd)? + state.found.len() as u64;
        let count = pread(&self.fd, &mut bytes, at)?;
        bytes.truncate(count);
        state.found.extend(&bytes);
        Ok(bytes)
    }

    /// Reads, as of any other descriptor.
    fn read(&self, stops: &[&Stop], bytes_max: usize) -> Done<Vec<u8>> {
        let read = read_some(&self.fd, stops, bytes_max);
        if let Done::Ok(bytes) = &read {
            lock(&self.taken).add(bytes);
        }
        read
    }

    /// Waits until something is added to the pipe, or it has no writer.
    fn wait(&self, edge: &mut Option<OwnedFd>, stops: &[&Stop], is_empty: bool) -> Waited {
        if edge.is_none() {
            *edge = edge_of(&self.fd).ok();
        }
        let mut fds: Vec<PollFd<'_>> = stops.iter().map(|stop| stop.poll_fd()).collect();
        fds.extend(edge.iter().map(|edge| PollFd::new(edge, PollFlags::IN)));
        let limit = Timespec { tv_sec: 0, tv_nsec: EDGE_WAIT.as_nanos() as i64 };
        let ready = poll(&mut fds, if is_empty && edge.is_some() { None } else { Some(&limit) });
        if let Some(edge) = edge {
            let mut events = Vec::with_capacity(1);
            let _ = epoll::wait(edge, spare_capacity(&mut events), Some(&Timespec::default()));
        }
        match ready {
            _ if stops.iter().any(|stop| stop.is_stopped()) => Waited::Stopped,
            Ok(0) => Waited::Nothing,
            Ok(_) | Err(_) => Waited::Added,
        }
    }

    /// The task has taken so many bytes since its attempt began: they are taken out of the pipe before it is full.
    pub fn note_taken(&self, bytes: u64) {
        let mut state = lock(&self.state);
        state.told = state.told.max(bytes);
        let is_filling = match self.is_file {
            true => state.found.len() >= PIPE_BYTES,
            false => state.is_filling(&self.fd),
        };
        if !state.is_read && is_filling {
            self.take_out(&mut state);
        }
    }

    /// How much the task has taken since its attempt began, as far as that is known.
    pub fn told(&self) -> u64 {
        lock(&self.state).told
    }

    /// Nothing comes any more. Where all that was found is taken, what there is may be all that has room: of many small pieces that is little.
    fn make_room(&self, state: &mut State) {
        if !state.is_read && state.told >= lock(&self.taken).bytes + state.found.len() as u64 {
            self.take_out(state);
        }
    }

    /// Whether somebody else has read what the task was sent.
    pub fn was_read_by_others(&self) -> bool {
        let state = lock(&self.state);
        state.is_disturbed || !self.is_file && !state.is_read && !state.is_as_found(&self.fd)
    }

    /// The task has ended, and has taken so many bytes since its attempt began.
    pub fn leave_rest(&self, bytes: u64) {
        let mut state = lock(&self.state);
        state.told = bytes;
        if !state.is_read {
            self.take_out(&mut state);
        }
    }

    /// Takes out of the pipe what the task has taken.
    fn take_out(&self, state: &mut State) {
        let due = state.told.saturating_sub(lock(&self.taken).bytes);
        self.take(state, due.try_into().unwrap_or(usize::MAX));
    }

    /// What has been found is taken, and the rest is read as it comes.
    fn take_all(&self, state: &mut State) {
        if !state.is_read {
            self.take(state, usize::MAX);
            state.is_read = true;
        }
    }

    fn take(&self, state: &mut State, bytes_max: usize) {
        let due = state.found.len().min(bytes_max);
        let bytes = match self.is_file {
            true if seek(&self.fd, SeekFrom::Current(due as i64)).is_ok() => {
                state.found.range(..due).copied().collect()
            }
            true => Vec::new(),
            false => state.move_out(&self.fd, due),
        };
        let (front, back) = state.found.as_slices();
        let at = front.len().min(bytes.len());
        state.is_disturbed |=
            bytes.len() < due || front[..at] != bytes[..at] || back[..bytes.len() - at] != bytes[at..];
        lock(&self.taken).add(&bytes);
        state.found.drain(..due);
    }
}

enum Waited {
    Added,
    Nothing,
    Stopped,
}

impl State {
    /// What is in the pipe behind what was found.
    fn find(&mut self, pipe: &OwnedFd, bytes_max: usize) -> rustix::io::Result<Vec<u8>> {
        let known = self.found.len();
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
        self.found.extend(&bytes);
        Ok(bytes)
    }

    fn is_as_found(&self, pipe: &OwnedFd) -> bool {
        if self.found.is_empty() {
            return true;
        }
        let copied = tee(pipe, &self.copy.1, self.found.len(), SpliceFlags::NONBLOCK);
        copied.is_ok_and(|copied| self.found.iter().eq(&read_all(&self.copy.0, copied)))
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
        if self.found.len() < size / 2 {
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::write;
    use rustix::pipe::pipe;

    struct Looked {
        peeked: Arc<Peeked>,
        part: Part,
        taken: Arc<Mutex<Taken>>,
        reader: Arc<OwnedFd>,
        writer: OwnedFd,
        stop: Stop,
    }

    fn looked() -> Looked {
        let (reader, writer) = pipe().expect("a pipe");
        let (reader, taken) = (Arc::new(reader), Arc::default());
        let part = Part::new(reader.clone(), Arc::clone(&taken)).expect("a pipe");
        let (peeked, stop) = (part.peeked.clone().expect("it is a pipe"), Stop::new().expect("an event"));
        Looked { peeked, part, taken, reader, writer, stop }
    }

    impl Looked {
        fn look(&self, attempt: u32) -> Vec<u8> {
            match self.peeked.look(attempt, &[&self.stop], 1 << 20) {
                Done::Ok(bytes) => bytes,
                other => panic!("{other:?}"),
            }
        }

        fn left(&self) -> u64 {
            ioctl_fionread(&self.reader).expect("a pipe")
        }
    }

    #[test]
    fn what_is_not_taken_stays_and_every_attempt_finds_it() {
        let looked = looked();
        write(&looked.writer, b"one\ntwo\n").unwrap();
        let first = looked.peeked.begin();
        assert_eq!(looked.look(first), b"one\ntwo\n");
        write(&looked.writer, b"three\n").unwrap();
        assert_eq!(looked.look(first), b"three\n", "what is there already is not found again");
        let second = looked.peeked.begin();
        assert_eq!(looked.peeked.look(first, &[], 100), Done::Stopped, "the first is over");
        assert_eq!(looked.look(second), b"one\ntwo\nthree\n");
        looked.peeked.note_taken(4);
        assert_eq!((looked.left(), lock(&looked.taken).bytes), (14, 0), "there is room enough");
        looked.peeked.leave_rest(4);
        assert_eq!((looked.left(), &lock(&looked.taken).kept[..]), (10, &b"one\n"[..]));
        assert!(!looked.peeked.was_read_by_others());
    }

    #[test]
    fn a_look_waits_for_more_and_for_the_end() {
        let looked = looked();
        let attempt = looked.peeked.begin();
        write(&looked.writer, b"x").unwrap();
        looked.look(attempt);
        let (peeked, stop) = (looked.peeked.clone(), looked.stop.clone());
        let (found, finds) = std::sync::mpsc::channel();
        let waiting = std::thread::spawn(move || {
            (0..2).for_each(|_| found.send(peeked.look(attempt, &[&stop], 100)).expect("it is waited for"));
        });
        let limit = Duration::from_secs(10);
        assert!(finds.recv_timeout(EDGE_WAIT * 2).is_err(), "there is nothing new");
        write(&looked.writer, b"y").unwrap();
        assert_eq!(finds.recv_timeout(limit), Ok(Done::Ok(b"y".to_vec())));
        let Looked { writer, .. } = looked;
        drop(writer);
        assert_eq!(finds.recv_timeout(limit), Ok(Done::Ok(Vec::new())));
        waiting.join().expect("no panic");
    }

    #[test]
    fn much_goes_through_a_pipe_that_is_made_large() {
        let looked = looked();
        let attempt = looked.peeked.begin();
        let much: Vec<u8> = (0..3_000_000u32).map(|at| (at / 7) as u8).collect();
        let (writer, wanted) = (looked.writer.try_clone().expect("a copy"), much.clone());
        let writing = std::thread::spawn(move || {
            let mut rest = &much[..];
            while !rest.is_empty() {
                rest = &rest[write(&writer, rest).expect("it goes on")..];
            }
        });
        let mut found = Vec::new();
        while found.len() < wanted.len() {
            found.extend(looked.look(attempt));
            looked.peeked.note_taken(found.len() as u64);
        }
        writing.join().expect("no panic");
        assert!(found == wanted && fcntl_getpipe_size(&looked.reader) == Ok(PIPE_BYTES));
        assert!(!lock(&looked.taken).is_whole(), "more than is kept");
        looked.peeked.leave_rest(found.len() as u64);
        assert_eq!((looked.left(), looked.peeked.was_read_by_others()), (0, false));
    }

    /// A page of the pipe holds one byte here: it is full long before its size.
    #[test]
    fn a_pipe_that_is_full_of_little_is_emptied_once_that_is_taken() {
        let looked = looked();
        let attempt = looked.peeked.begin();
        let (source, into) = pipe().expect("a pipe");
        let writer = looked.writer.try_clone().expect("a copy");
        let writing = std::thread::spawn(move || {
            for at in 0..40u8 {
                write(&into, &[at]).expect("room");
                splice(&source, None, &writer, None, 1, SpliceFlags::empty()).expect("room in the end");
            }
        });
        let mut found = Vec::new();
        while found.len() < 40 {
            found.extend(looked.look(attempt));
            looked.peeked.note_taken(found.len() as u64);
        }
        writing.join().expect("no panic");
        assert!(found.iter().copied().eq(0..40));
    }

    #[test]
    fn two_that_share_a_pipe_are_not_given_the_same() {
        let looked = looked();
        let attempt = looked.peeked.begin();
        write(&looked.writer, b"one").unwrap();
        assert_eq!(looked.look(attempt), b"one");
        let part = || Part::new(looked.reader.clone(), Arc::default()).expect("a pipe");
        let second = part();
        assert!(second.peeked.is_none(), "it is somebody's");
        assert_eq!((looked.left(), lock(&looked.taken).bytes), (0, 3), "what was sent is taken");
        write(&looked.writer, b"two").unwrap();
        assert_eq!((looked.look(attempt), looked.left()), (b"two".to_vec(), 0), "it is read from now on");
        let Looked { part: first, .. } = looked;
        drop(first);
        let part = || Part::new(looked.reader.clone(), Arc::default()).expect("a pipe");
        assert!(part().peeked.is_none(), "the second reads it still");
        drop(second);
        assert!(part().peeked.is_some(), "the next one has it alone");
    }

    #[test]
    fn the_place_in_a_file_is_where_the_task_has_left_it() {
        use std::io::{Read as _, Seek as _, Write as _};
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"one\ntwo\nthree\n").expect("written");
        file.seek(std::io::SeekFrom::Start(4)).expect("a place");
        let part = Part::new(Arc::new(file.try_clone().expect("a copy").into()), Arc::default()).expect("a file");
        let peeked = part.peeked.as_ref().expect("it is a file");
        for _ in 0..2 {
            let attempt = peeked.begin();
            assert_eq!(peeked.look(attempt, &[], 5), Done::Ok(b"two\nt".to_vec()));
            assert_eq!(peeked.look(attempt, &[], 100), Done::Ok(b"hree\n".to_vec()));
            assert_eq!(peeked.look(attempt, &[], 100), Done::Ok(Vec::new()), "its end");
        }
        peeked.note_taken(4);
        peeked.leave_rest(4);
        let mut rest = String::new();
        file.read_to_string(&mut rest).expect("read");
        assert!(rest == "three\n" && !peeked.was_read_by_others());
    }

    #[test]
    fn it_is_noticed_that_others_have_read_what_was_sent() {
        let looked = looked();
        let attempt = looked.peeked.begin();
        write(&looked.writer, b"one two").unwrap();
        looked.look(attempt);
        read(&looked.reader, &mut [0; 3]).unwrap();
        assert!(looked.peeked.was_read_by_others());
        write(&looked.writer, b"more than there was").unwrap();
        assert!(looked.peeked.was_read_by_others());
    }
}

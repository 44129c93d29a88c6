//! A pipe, a stream socket, or a file without a name as standard input: what is in it stays there until the task is known to have taken it.
//!
//! Here, a command that reads a part of a pipe leaves the rest to the next one: `seq 5 | (read first; cat)`. A task far away is sent what it
//! might read, which `tee` copies without taking it out, of a socket `MSG_PEEK`, and of a file `pread`. Its worker says how much was read there, and so much is taken out: where
//! the pipe would fill up, and at the end. So a task that comes to nothing has mostly taken nothing.
//!
//! Of tasks that read one pipe at the same time one looks at a time ([`round_robin`]): what it has been sent and has not read when its turn
//! ends is thrown away there, and found by the next.

mod round_robin;
mod source;
#[cfg(test)]
mod tests;

use crate::stdio::{Done, READ_BYTES, Stop, read_some};
use round_robin::{Bell, Whose};
use rustix::fd::OwnedFd;
use source::{Found, Source, Waited};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wire::lock;

/// Most bytes that one look finds.
const LOOK_BYTES: usize = 4 * READ_BYTES;
/// Most bytes that one look finds where others read as well: what is not read in a turn is sent again.
const SHARED_LOOK_BYTES: usize = 4096;
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

/// What a look came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Looked {
    /// What a read would have.
    Read(Done<Vec<u8>>),
    /// Others wait for their turn: the task is to give back what it has not read yet, and [`Peeked::gave_back`] to be told.
    GiveBack,
}

/// A task's part in what it looks into, as long as this lives.
#[derive(Debug)]
pub struct Part(Arc<Peeked>);

impl Part {
    /// Takes part in what this descriptor reads. `taken`: where goes what is taken. `None`: it cannot be looked into.
    pub fn new(fd: Arc<OwnedFd>, taken: Arc<Mutex<Taken>>) -> Option<Self> {
        let bell = Bell::new().ok()?;
        let (source, number) = Source::join(fd, bell.clone())?;
        Some(Self(Arc::new(Peeked { source, number, bell, own: Mutex::default(), taken })))
    }

    /// What it looks into.
    pub fn peeked(&self) -> &Arc<Peeked> {
        &self.0
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut found = self.0.source.found();
        // What it looks for still is for nobody.
        lock(&self.0.own).attempt += 1;
        if found.readers.leave(self.0.number, Instant::now()) {
            found.bytes.clear();
        }
    }
}

/// A pipe or a file that a task looks into.
#[derive(Debug)]
pub struct Peeked {
    source: Arc<Source>,
    /// Who this is of all that look into it.
    number: u64,
    bell: Bell,
    own: Mutex<Own>,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Own {
    /// How much of all that it was sent the task has taken, as far as its worker has said.
    told: u64,
    /// What that was when its turn began.
    told_before: u64,
    attempt: u32,
    /// Something was not there any more that had been found.
    is_disturbed: bool,
}

impl Peeked {
    /// Another attempt begins, from what is taken already. Returns its number.
    pub fn begin(&self) -> u32 {
        let mut found = self.source.found();
        if found.readers.is_of(self.number) {
            found.bytes.clear();
        }
        let mut own = lock(&self.own);
        (own.told, own.told_before) = (0, 0);
        own.attempt += 1;
        own.attempt
    }

    /// Finds what is in the pipe that this attempt has not found yet, waiting for the first byte; empty at the end. Blocks: call from a
    /// thread that may.
    pub fn look(&self, attempt: u32, stops: &[&Stop], bytes_max: usize) -> Looked {
        let mut edge = None;
        loop {
            // Once no writer is left nothing comes any more: asked first.
            let has_ended = self.source.has_ended();
            let mut found = self.source.found();
            if lock(&self.own).attempt != attempt {
                return Looked::Read(Done::Stopped);
            }
            if found.is_read {
                drop(found);
                return Looked::Read(self.read(stops, bytes_max));
            }
            let limit = match found.readers.ask(self.number, Instant::now()) {
                Whose::Anothers => None,
                Whose::Own(Some(Duration::ZERO)) if !self.is_all_taken(&found) => return Looked::GiveBack,
                Whose::Own(Some(Duration::ZERO)) if self.source.has_more(&found) => {
                    self.pass(&mut found);
                    continue;
                }
                Whose::Own(next) => match self.found_by(&mut found, bytes_max, has_ended) {
                    Ok(Some(looked)) => return looked,
                    Ok(None) => {
                        let is_empty = found.bytes.is_empty();
                        let limit = if is_empty && edge.is_some() { None } else { Some(EDGE_WAIT) };
                        next.filter(|next| !next.is_zero()).into_iter().chain(limit).min()
                    }
                    // It cannot be copied, or is not what it was.
                    Err(_) => {
                        self.take_all(&mut found);
                        continue;
                    }
                },
            };
            drop(found);
            let stop_fds = stops.iter().map(|stop| stop.poll_fd()).collect();
            match self.source.wait(&mut edge, (&self.bell, stop_fds), limit) {
                _ if stops.iter().any(|stop| stop.is_stopped()) => return Looked::Read(Done::Stopped),
                Waited::Added | Waited::Rung => {}
                Waited::Nothing => self.make_room(),
            }
        }
    }

    /// What this one, whose turn it is, finds; nothing yet.
    fn found_by(&self, found: &mut Found, bytes_max: usize, has_ended: bool) -> rustix::io::Result<Option<Looked>> {
        let most = if found.readers.are_several() { SHARED_LOOK_BYTES } else { LOOK_BYTES };
        let bytes = self.source.find(found, bytes_max.min(most))?;
        Ok((has_ended || !bytes.is_empty()).then_some(Looked::Read(Done::Ok(bytes))))
    }

    /// Reads, as of any other descriptor.
    fn read(&self, stops: &[&Stop], bytes_max: usize) -> Done<Vec<u8>> {
        let read = read_some(self.source.fd(), stops, bytes_max);
        if let Done::Ok(bytes) = &read {
            lock(&self.taken).add(bytes);
        }
        read
    }

    /// The task has taken so many bytes since its attempt began: they are taken out of the pipe before it is full.
    pub fn note_taken(&self, bytes: u64) {
        let mut found = self.source.found();
        {
            let mut own = lock(&self.own);
            own.told = own.told.max(bytes);
        }
        if found.is_read || !found.readers.is_of(self.number) {
            return;
        }
        if self.source.is_filling(&found) {
            self.take_out(&mut found);
        }
        if found.readers.are_several() {
            self.bell.ring();
        }
    }

    /// The task has taken so many bytes since its attempt began, and all else that it was sent is thrown away: the turn is another's.
    pub fn gave_back(&self, bytes: u64) {
        let mut found = self.source.found();
        let has_read = {
            let mut own = lock(&self.own);
            own.told = bytes;
            std::mem::replace(&mut own.told_before, bytes) < bytes
        };
        if !found.is_read && found.readers.is_of(self.number) {
            self.take_out(&mut found);
            found.bytes.clear();
            found.readers.pass(has_read, Instant::now());
        }
    }

    /// How much the task has taken since its attempt began, as far as that is known.
    pub fn told(&self) -> u64 {
        lock(&self.own).told
    }

    /// Waits until this one is to let others look, while it does not look itself: it has the turn, and others have waited for it for long
    /// enough.
    pub async fn is_wanted_by_others(&self) {
        loop {
            let next = {
                let found = self.source.found();
                let has_turn = !found.is_read && found.readers.is_of(self.number);
                if has_turn { found.readers.left(Instant::now()) } else { None }
            };
            match next {
                Some(Duration::ZERO) => return,
                Some(next) => drop(tokio::time::timeout(next, self.bell.rung()).await),
                None => self.bell.rung().await,
            }
        }
    }

    /// Others look now if the task has read all that it was sent, and has not to give anything back. Whether it is so.
    pub fn makes_way(&self) -> bool {
        let mut found = self.source.found();
        let is_all_taken = self.is_all_taken(&found);
        if is_all_taken && !found.is_read && found.readers.is_of(self.number) {
            self.pass(&mut found);
        }
        is_all_taken
    }

    /// The attempt has come to nothing, and another may not begin soon: others may look meanwhile.
    pub fn rest(&self) {
        let mut found = self.source.found();
        lock(&self.own).attempt += 1;
        if found.readers.is_of(self.number) && !found.is_read {
            if found.readers.are_several() {
                // What it has said rests on that.
                self.take_out(&mut found);
            }
            found.bytes.clear();
        }
        found.readers.rest(self.number, Instant::now());
    }

    /// Nothing comes any more. Where all that was found is taken, what there is may be all that has room: of many small pieces that is little.
    fn make_room(&self) {
        let mut found = self.source.found();
        if !found.is_read && found.readers.is_of(self.number) && self.is_all_taken(&found) {
            self.take_out(&mut found);
        }
    }

    /// Has taken all that was found.
    fn pass(&self, found: &mut Found) {
        self.take_out(found);
        let mut own = lock(&self.own);
        own.told_before = own.told;
        found.readers.pass(true, Instant::now());
    }

    fn is_all_taken(&self, found: &Found) -> bool {
        self.told() >= lock(&self.taken).bytes + found.bytes.len() as u64
    }

    /// Whether somebody else has read what the task was sent.
    pub fn was_read_by_others(&self) -> bool {
        let found = self.source.found();
        let is_as_found = !found.readers.is_of(self.number) || self.source.is_as_found(&found);
        lock(&self.own).is_disturbed || !is_as_found
    }

    /// The task has ended, and has taken so many bytes since its attempt began.
    pub fn leave_rest(&self, bytes: u64) {
        let mut found = self.source.found();
        lock(&self.own).told = bytes;
        if !found.is_read && found.readers.is_of(self.number) {
            self.take_out(&mut found);
        }
    }

    /// Takes out of the pipe what the task has taken.
    fn take_out(&self, found: &mut Found) {
        let due = self.told().saturating_sub(lock(&self.taken).bytes);
        self.take(found, due.try_into().unwrap_or(usize::MAX));
    }

    /// What has been found is taken, and the rest is read as it comes.
    fn take_all(&self, found: &mut Found) {
        self.take(found, usize::MAX);
        found.is_read = true;
        found.readers.ring_all();
    }

    fn take(&self, found: &mut Found, bytes_max: usize) {
        let due = found.bytes.len().min(bytes_max);
        let (bytes, is_same) = self.source.take(found, due);
        lock(&self.own).is_disturbed |= !is_same;
        lock(&self.taken).add(&bytes);
    }
}

//! A command's standard input at the client, over all attempts of its task.

use crate::exchange::Exchange;
use crate::peek::{Looked, Part, Peeked, Taken};
use crate::run::Outcome;
use crate::stdio::{self, Done, READ_BYTES, Stop};
use base::Stdin;
use bytes::Bytes;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use wire::message::{InputKind, OutputKind};
use wire::{Turn, lock};

/// How long what is being read may take to end once it is called off: only a read that others were quicker than does not end at once.
const SETTLE_LIMIT: Duration = Duration::from_secs(1);

/// Whether a task gives back what it has not read yet, for others to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Back {
    #[default]
    No,
    Due,
    /// Its answer is awaited.
    Asked,
}

/// Standard input, over all attempts of a task.
pub struct Input {
    fd: Arc<OwnedFd>,
    /// All that was taken of it.
    taken: Arc<Mutex<Taken>>,
    /// It is one that can be looked into, and the number of the attempt that does, if this one does.
    part: Option<Part>,
    peeks: Option<u32>,
    /// There is no more.
    pub(crate) ended: bool,
    /// Whether the caller owns its terminal.
    foreground: bool,
    /// Calls off what is being read.
    pause: Option<Stop>,
    /// What is being read.
    pub(crate) reading: Option<JoinHandle<Looked>>,
    /// Whether the task is to give back what it has not read.
    back: Back,
    /// Why it cannot be read any further, if that is not its end.
    pub(crate) failed: Option<Errno>,
    /// It is not known what a read that was called off has taken.
    is_unsettled: bool,
}

impl Input {
    /// Nothing read yet.
    pub fn new(fd: Arc<OwnedFd>) -> Self {
        let (taken, part, peeks, ended, foreground) = (Arc::default(), None, None, false, true);
        let (pause, reading, failed, is_unsettled, back) = (None, None, None, false, Back::No);
        Self { fd, taken, part, peeks, ended, foreground, pause, reading, back, failed, is_unsettled }
    }

    /// The caller's descriptor.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Whether all that was taken can be sent to another attempt.
    pub fn can_repeat(&self) -> bool {
        lock(&self.taken).is_whole()
    }

    /// Whether anything was taken, or may have been.
    pub fn is_touched(&self) -> bool {
        lock(&self.taken).bytes > 0 || self.is_unsettled
    }

    /// Another attempt begins: what it is sent first, since that is taken already.
    pub(crate) fn begin(&mut self) -> Bytes {
        if self.peeks.take().is_some() {
            // What the last attempt looks for is not for this one.
            self.pause.take().into_iter().for_each(|pause| pause.stop());
            (self.reading, self.ended, self.back) = (None, false, Back::No);
        }
        Bytes::copy_from_slice(&lock(&self.taken).kept)
    }

    /// The task has taken so many bytes since its attempt began, and its worker goes on to say so: before the first, it can be looked into.
    pub(crate) fn note_taken(&mut self, bytes: u64) {
        if bytes == 0 && self.peeks.is_none() && self.reading.is_none() {
            if self.part.is_none() {
                self.part = Part::new(self.fd.clone(), self.taken.clone());
            }
            self.peeks = self.peeked().map(|peeked| peeked.begin());
        } else if let Some(peeked) = self.looked_into() {
            peeked.note_taken(bytes);
        }
    }

    /// What this attempt looks into while it does not look.
    pub(crate) fn idle(&self) -> Option<Arc<Peeked>> {
        let is_idle = self.reading.is_none() && self.back == Back::No;
        self.looked_into().filter(|_| is_idle).cloned()
    }

    /// Others wait to look into what it does not look into now.
    pub(crate) fn make_way(&mut self) {
        if self.looked_into().is_some_and(|peeked| !peeked.makes_way()) {
            self.back = Back::Due;
        }
    }

    /// Until another attempt begins, others may look into it: unless this one `has_ended` with a result.
    pub(crate) fn rest_unless(&mut self, has_ended: bool) {
        if let Some(peeked) = self.looked_into().filter(|_| !has_ended) {
            peeked.rest();
            self.pause.take().into_iter().for_each(|pause| pause.stop());
            (self.reading, self.back) = (None, Back::No);
        }
    }

    fn peeked(&self) -> Option<&Arc<Peeked>> {
        Some(self.part.as_ref()?.peeked())
    }

    /// What this attempt looks into.
    fn looked_into(&self) -> Option<&Arc<Peeked>> {
        self.peeks.and(self.peeked())
    }

    /// Whether the answer of a task that gives back what it has not read is awaited.
    pub(crate) fn is_being_given_back(&self) -> bool {
        self.back == Back::Asked
    }

    /// Whether the task is to be asked for what it has not read yet; it is, from now on.
    fn is_wanted_back(&mut self) -> bool {
        let is_due = self.back == Back::Due;
        if is_due {
            self.back = Back::Asked;
        }
        is_due
    }

    /// The task has read so many bytes since its attempt began, and all else that it was sent is thrown away. Returns what was taken out for
    /// it already, and is to be sent again.
    pub(crate) fn gave_back(&mut self, bytes: u64) -> Option<Bytes> {
        // Its end as well, if it had come.
        (self.back, self.ended) = (Back::No, false);
        self.looked_into().into_iter().for_each(|peeked| peeked.gave_back(bytes));
        let taken = lock(&self.taken);
        let from = usize::try_from(bytes).unwrap_or(usize::MAX);
        taken.kept.get(from..).filter(|rest| !rest.is_empty()).map(Bytes::copy_from_slice)
    }

    /// How much the attempt has taken, as far as that is known.
    pub(crate) fn told(&self) -> u64 {
        self.looked_into().map_or(0, |peeked| peeked.told())
    }

    /// Whether something else has read what this attempt was sent.
    pub(crate) fn was_read_by_others(&self) -> bool {
        self.looked_into().is_some_and(|peeked| peeked.was_read_by_others())
    }

    /// The task has ended and has taken so many bytes since its attempt began; the rest is for the next one.
    pub(crate) fn leave_rest(&self, bytes: u64) {
        self.looked_into().into_iter().for_each(|peeked| peeked.leave_rest(bytes));
    }

    /// Reads some of it, unless that is being done.
    pub(crate) fn start_reading(&mut self, stop: &Stop, bytes_max: usize) {
        let terminal = stdio::is_terminal(&self.fd);
        if self.reading.is_some() || self.ended || self.back != Back::No || (terminal && !self.foreground) {
            return;
        }
        let peeked = self.peeks.zip(self.peeked().cloned());
        // Without an event of its own a read cannot be called off, and the terminal is shared as well as it can be.
        self.pause = if terminal || peeked.is_some() { Stop::new().ok() } else { None };
        let (fd, stop, pause) = (self.fd.clone(), stop.clone(), self.pause.clone());
        self.reading = Some(tokio::task::spawn_blocking(move || {
            let stops: Vec<&Stop> = [Some(&stop), pause.as_ref()].into_iter().flatten().collect();
            match peeked {
                Some((attempt, peeked)) => peeked.look(attempt, &stops, bytes_max),
                None => Looked::Read(stdio::read_some(&fd, &stops, bytes_max)),
            }
        }));
    }

    /// Whether the caller owns its terminal: while it does not, what is typed there is for others.
    pub(crate) fn set_foreground(&mut self, owned: bool) {
        self.foreground = owned;
        if let Some(pause) = self.pause.take_if(|_| !owned && stdio::is_terminal(&self.fd)) {
            pause.stop();
        }
    }

    /// Waits for the end of a read that was called off, and takes what it has read: nobody else finds that at the caller's descriptor.
    pub(crate) async fn settle(&mut self) {
        let Some(reading) = self.reading.take() else { return };
        match tokio::time::timeout(SETTLE_LIMIT, reading).await {
            Ok(Ok(read)) => {
                self.take(read);
            }
            Ok(Err(_)) | Err(_) => self.is_unsettled = true,
        }
    }

    /// Takes what was read; returns what is to be sent.
    pub(crate) fn take(&mut self, looked: Looked) -> Option<Bytes> {
        let read = match looked {
            Looked::Read(read) => read,
            Looked::GiveBack => {
                self.back = Back::Due;
                return None;
            }
        };
        let paused = self.pause.take().is_none() && stdio::is_terminal(&self.fd);
        match read {
            Done::Ok(bytes) if !bytes.is_empty() => {
                if self.peeks.is_none() {
                    lock(&self.taken).add(&bytes);
                }
                return Some(bytes.into());
            }
            Done::Stopped if paused => {}
            // A terminal that hung up has ended, as it has for a command that runs here.
            Done::Failed(errno) if !stdio::is_terminal(&self.fd) => self.failed = Some(errno),
            Done::Ok(_) | Done::Closed | Done::Stopped | Done::Failed(_) => self.ended = true,
        }
        None
    }
}

/// Once others wait to look into what this one, if any, does not look into now.
pub(crate) async fn wanted(idle: Option<Arc<Peeked>>) {
    match idle {
        Some(idle) => idle.is_wanted_by_others().await,
        None => std::future::pending().await,
    }
}

/// What was read, once it is.
pub(crate) async fn finished(reading: &mut Option<JoinHandle<Looked>>) -> Looked {
    match reading {
        Some(reading) => reading.await.unwrap_or(Looked::Read(Done::Closed)),
        None => std::future::pending().await,
    }
}

impl Exchange<'_> {
    /// Sends input as far as there is credit, and reads more.
    pub(crate) async fn feed(&mut self) {
        if self.session.input.is_wanted_back() {
            self.unsent.clear();
            self.tell(InputKind::StdinBack(true)).await;
        }
        if self.session.input.is_being_given_back() {
            return;
        }
        while self.credit > 0 {
            let Some(mut chunk) = self.unsent.pop_front() else { break };
            let portion = chunk.split_to(chunk.len().min(self.credit).min(READ_BYTES));
            if !chunk.is_empty() {
                self.unsent.push_front(chunk);
            }
            self.credit -= portion.len();
            // Where there is more than can be read at once, files that tasks read go before it: those do not wait without end.
            self.to_task.set_turn(if portion.len() < READ_BYTES { Turn::First } else { Turn::Last });
            self.tell(InputKind::Stdin(portion)).await;
        }
        if !self.unsent.is_empty() {
            return;
        }
        if self.session.input.ended {
            if !self.end_sent {
                self.end_sent = true;
                self.tell(InputKind::StdinEnd(true)).await;
            }
        } else if self.credit > 0 && matches!(self.session.plan.stdin, Stdin::Stream | Stdin::Terminal) {
            self.session.input.start_reading(&self.session.stop, self.credit);
        }
    }

    pub(crate) fn on_wanted(&mut self) -> Option<Outcome> {
        self.session.input.make_way();
        None
    }

    /// Whether its worker says something of what it was sent. That does not depend on the program's output, and does not wait for it.
    pub(crate) fn hears_of_input(&mut self, word: &OutputKind) -> bool {
        match word {
            OutputKind::StdinCredit(more) => {
                self.credit = self.credit.saturating_add(*more as usize);
            }
            OutputKind::StdinTaken(bytes) => self.session.input.note_taken(*bytes),
            OutputKind::StdinBack(bytes) => {
                self.unsent = self.session.input.gave_back(*bytes).into_iter().collect();
                self.end_sent = false;
            }
            _ => return false,
        }
        true
    }

    /// Input that cannot be read is not at its end: the task must not take it for that.
    pub(crate) async fn on_input(&mut self, read: Looked) -> Option<Outcome> {
        if self.session.plan.stdin == Stdin::Terminal {
            self.stops.typed(Instant::now());
        }
        self.unsent.extend(self.session.input.take(read));
        let errno = self.session.input.failed?;
        self.tell(InputKind::Cancel(true)).await;
        self.to_task.finish();
        Some(Outcome::Unplaced(format!("standard input cannot be read: {errno}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::pipe;

    #[tokio::test]
    async fn what_is_being_read_when_a_task_is_called_off_is_not_forgotten() {
        let (read, write) = pipe().unwrap();
        let mut input = Input::new(Arc::new(read));
        let stop = Stop::new().unwrap();
        input.start_reading(&stop, 100);
        rustix::io::write(&write, b"words").unwrap();
        // Nobody awaits the read any more when it has taken them.
        tokio::time::timeout(Duration::from_secs(10), async {
            while !input.reading.as_ref().is_some_and(JoinHandle::is_finished) {
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap();
        stop.stop();
        input.settle().await;
        assert!(input.is_touched() && input.begin() == b"words"[..]);

        let (read, _write) = pipe().unwrap();
        let mut input = Input::new(Arc::new(read));
        let stop = Stop::new().unwrap();
        input.start_reading(&stop, 100);
        stop.stop();
        input.settle().await;
        assert!(!input.is_touched(), "there was nothing to read");
    }
}

//! Requests of the kernel that wait for an answer from elsewhere: one question for all that wait for the same, an end to
//! each within a bound.
//!
//! A process in LOOKUP or READ cannot be killed until its request is answered. So a request ends when what it waits for
//! comes, when its lane is cancelled, when its process is being killed, or when its time is up.

use super::protocol::Header;
use base::{Digest, TreePath, ViewId};
use mirror::{LaneNumber, NodeId};
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

/// Most requests that may wait; further ones fail at once with `EIO`.
const WAITING_MAX: usize = 100_000;
/// Most interrupts remembered for requests that are not waiting yet.
const EARLY_MAX: usize = 4096;
/// Most faults listed for one lane; further ones are only counted.
const FAULTS_MAX: usize = 10_000;

/// What a request waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// A binding.
    Bind(ViewId, TreePath),
    /// A listing.
    Listing(Digest),
    /// A recipe.
    Recipe(Digest),
    /// Bytes, for the request with this number alone: the kernel itself asks once for each page.
    Bytes(u64),
}

/// A request that may have to wait.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) header: Header,
    pub(super) op: Op,
    /// How often it has waited.
    pub(super) waits: u8,
    /// The listing that it needs cannot be had.
    pub(super) unlisted: bool,
    /// When its time is up, set when it first waits.
    pub(super) deadline: Option<Instant>,
}

/// What a request that may have to wait wants.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Lookup { name: Vec<u8> },
    GetAttr,
    ReadDir { offset: u64, size: u32 },
    Read { offset: u64, size: u32 },
    Lseek { offset: u64, whence: u32 },
}

impl Call {
    pub(super) fn new(header: Header, op: Op) -> Self {
        Self { header, op, waits: 0, unlisted: false, deadline: None }
    }

    pub(super) fn node(&self) -> NodeId {
        self.header.node
    }
}

#[derive(Debug)]
struct Waiter {
    call: Call,
    key: Key,
    lane: Option<LaneNumber>,
    interrupted: bool,
}

/// A question under way.
#[derive(Debug)]
struct Flight {
    waiters: Vec<u64>,
    /// When it was asked last.
    asked: Instant,
}

/// What a lane's tasks had to wait for.
#[derive(Clone, Debug, Default)]
pub(super) struct LaneLog {
    pub(super) faults: Vec<TreePath>,
    pub(super) fault_count: u64,
    pub(super) waits: u64,
    /// One of its requests has waited as long as any may, or was not answered: the others of the same task wait no more.
    pub(super) is_late: bool,
    /// Questions for it that nobody could be asked.
    pub(super) unanswered: u64,
}

/// What became of a request that is to wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The question must be asked now.
    Ask,
    /// It is under way.
    Joined,
    /// Too many wait, or the request has come round too often: it fails.
    Refused,
}

/// All that waits.
#[derive(Debug)]
pub(super) struct Pending {
    waiting: HashMap<u64, Waiter>,
    flights: HashMap<Key, Flight>,
    deadlines: VecDeque<(Instant, u64)>,
    /// Interrupts that came before their requests began to wait.
    early: HashSet<u64>,
    interrupted: usize,
    timeout: Duration,
    pub(super) logs: HashMap<LaneNumber, LaneLog>,
    /// Questions that nobody could be asked, of which it is not known for which lane they were.
    pub(super) unanswered: u64,
    pub(super) stopping: bool,
}

impl Pending {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            waiting: HashMap::new(),
            flights: HashMap::new(),
            deadlines: VecDeque::new(),
            early: HashSet::new(),
            interrupted: 0,
            timeout,
            logs: HashMap::new(),
            unanswered: 0,
            stopping: false,
        }
    }

    /// Has `call` wait for `key`.
    pub(super) fn wait(&mut self, mut call: Call, key: Key, lane: Option<LaneNumber>, now: Instant) -> Wait {
        // A request waits for a listing, a binding, and what replaced them meanwhile: more is going round in circles.
        if self.waiting.len() >= WAITING_MAX || call.waits >= 8 || self.stopping {
            match lane {
                Some(lane) => self.logs.entry(lane).or_default().unanswered += 1,
                None => self.unanswered += 1,
            }
            return Wait::Refused;
        }
        if lane.is_some_and(|lane| self.logs.get(&lane).is_some_and(|log| log.is_late)) {
            return Wait::Refused;
        }
        call.waits += 1;
        let unique = call.header.unique;
        let deadline = *call.deadline.get_or_insert(now + self.timeout);
        if call.waits == 1 {
            self.deadlines.push_back((deadline, unique));
        }
        if let Some(lane) = lane {
            self.logs.entry(lane).or_default().waits += 1;
        }
        let interrupted = self.early.remove(&unique);
        self.interrupted += usize::from(interrupted);
        self.waiting.insert(unique, Waiter { call, key: key.clone(), lane, interrupted });
        let timeout = self.timeout;
        match self.flights.get_mut(&key) {
            // What was asked so long ago is taken for lost, and asked again.
            Some(flight) if now.duration_since(flight.asked) < timeout => {
                flight.waiters.push(unique);
                Wait::Joined
            }
            Some(flight) => {
                flight.waiters.push(unique);
                flight.asked = now;
                Wait::Ask
            }
            None => {
                self.flights.insert(key, Flight { waiters: vec![unique], asked: now });
                Wait::Ask
            }
        }
    }

    /// The answer to `key` came: what waited for it. A binding counts as a fault of the lanes that waited.
    pub(super) fn take(&mut self, key: &Key) -> Vec<Call> {
        let Some(flight) = self.flights.remove(key) else { return Vec::new() };
        let mut lanes = HashSet::new();
        let mut calls = Vec::with_capacity(flight.waiters.len());
        for unique in flight.waiters {
            if let Some(waiter) = self.remove(unique) {
                lanes.extend(waiter.lane);
                calls.push(waiter.call);
            }
        }
        if let Key::Bind(_, path) = key {
            for lane in lanes {
                let log = self.logs.entry(lane).or_default();
                log.fault_count += 1;
                if log.faults.len() < FAULTS_MAX {
                    log.faults.push(path.clone());
                }
            }
        }
        calls
    }

    /// Nobody could be asked for `key`: others of the same tasks wait no more.
    pub(super) fn note_unanswered(&mut self, key: &Key) {
        let waiters = self.flights.get(key).map(|flight| flight.waiters.as_slice()).unwrap_or_default();
        for unique in waiters {
            match self.waiting.get(unique).map(|waiter| waiter.lane) {
                Some(Some(lane)) => {
                    let log = self.logs.entry(lane).or_default();
                    log.unanswered += 1;
                    log.is_late = true;
                }
                Some(None) => self.unanswered += 1,
                None => {}
            }
        }
    }

    /// Ends the requests that wait in `lane` and that `which` picks by their process. Returns their numbers.
    pub(super) fn end_lane(&mut self, lane: LaneNumber, which: impl Fn(u32) -> bool) -> Vec<u64> {
        self.end(|waiter| waiter.lane == Some(lane) && which(waiter.call.header.pid))
    }

    /// Ends all requests. Returns their numbers.
    pub(super) fn end_all(&mut self) -> Vec<u64> {
        self.end(|_| true)
    }

    /// The kernel says that the process of a request got a signal; returns whether the request is to end, since `dies`
    /// says that the process does.
    pub(super) fn interrupt(&mut self, unique: u64, dies: impl Fn(u32) -> bool) -> bool {
        let Some(waiter) = self.waiting.get_mut(&unique) else {
            if self.early.len() >= EARLY_MAX {
                self.early.clear();
            }
            self.early.insert(unique);
            return false;
        };
        if !std::mem::replace(&mut waiter.interrupted, true) {
            self.interrupted += 1;
        }
        dies(waiter.call.header.pid) && self.end_one(unique)
    }

    /// Ends the interrupted requests whose process `dies`. Returns their numbers.
    pub(super) fn end_dying(&mut self, dies: impl Fn(u32) -> bool) -> Vec<u64> {
        if self.interrupted == 0 {
            return Vec::new();
        }
        self.end(|waiter| waiter.interrupted && dies(waiter.call.header.pid))
    }

    /// Ends the requests whose time is up. Returns their numbers.
    pub(super) fn end_late(&mut self, now: Instant) -> Vec<u64> {
        let mut ended = Vec::new();
        while let Some((deadline, unique)) = self.deadlines.front().copied() {
            let waits = self.waiting.get(&unique).is_some_and(|waiter| waiter.call.deadline == Some(deadline));
            if waits && deadline > now {
                break;
            }
            self.deadlines.pop_front();
            let lane = self.waiting.get(&unique).and_then(|waiter| waiter.lane);
            if waits && self.end_one(unique) {
                ended.push(unique);
                if let Some(lane) = lane {
                    self.logs.entry(lane).or_default().is_late = true;
                }
            }
        }
        ended
    }

    /// When [`Pending::end_late`] has work next.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.front().map(|(deadline, _)| *deadline)
    }

    /// For how long the oldest request has waited; none if none waits.
    pub(super) fn oldest(&self, now: Instant) -> Option<Duration> {
        // What has been answered meanwhile stays in the queue until its turn comes.
        let waits = |(deadline, unique): &&(Instant, u64)| {
            self.waiting.get(unique).is_some_and(|waiter| waiter.call.deadline == Some(*deadline))
        };
        let (deadline, _) = self.deadlines.iter().find(waits)?;
        Some(self.timeout.saturating_sub(deadline.saturating_duration_since(now)))
    }

    /// Whether a process that waits was interrupted, and lives.
    pub(super) fn has_interrupted(&self) -> bool {
        self.interrupted > 0
    }

    /// Requests that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    fn end(&mut self, which: impl Fn(&Waiter) -> bool) -> Vec<u64> {
        let uniques: Vec<u64> =
            self.waiting.iter().filter(|(_, waiter)| which(waiter)).map(|(unique, _)| *unique).collect();
        uniques.into_iter().filter(|unique| self.end_one(*unique)).collect()
    }

    fn end_one(&mut self, unique: u64) -> bool {
        let Some(waiter) = self.remove(unique) else { return false };
        if let Some(flight) = self.flights.get_mut(&waiter.key) {
            flight.waiters.retain(|other| *other != unique);
            if flight.waiters.is_empty() {
                self.flights.remove(&waiter.key);
            }
        }
        true
    }

    fn remove(&mut self, unique: u64) -> Option<Waiter> {
        let waiter = self.waiting.remove(&unique)?;
        self.interrupted -= usize::from(waiter.interrupted);
        Some(waiter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(unique: u64, pid: u32) -> Call {
        Call::new(Header { unique, node: NodeId(2), pid }, Op::GetAttr)
    }

    fn key(name: &[u8]) -> Key {
        Key::Bind(ViewId(1), TreePath::root().join(name))
    }

    #[test]
    fn the_oldest_request_is_known() {
        let (mut pending, now) = (Pending::new(Duration::from_secs(30)), Instant::now());
        assert_eq!(pending.oldest(now), None);
        pending.wait(call(1, 0), key(b"a"), None, now);
        pending.wait(call(2, 0), key(b"b"), None, now + Duration::from_secs(4));
        let later = now + Duration::from_secs(10);
        assert_eq!(pending.oldest(later), Some(Duration::from_secs(10)));
        pending.take(&key(b"a"));
        assert_eq!(pending.oldest(later), Some(Duration::from_secs(6)), "what was answered waits no more");
        pending.take(&key(b"b"));
        assert_eq!(pending.oldest(later), None);
    }

    #[test]
    fn one_question_for_all() {
        let (mut pending, now) = (Pending::new(Duration::from_secs(30)), Instant::now());
        let lane = Some(LaneNumber(1));
        assert_eq!(pending.wait(call(1, 0), key(b"a"), lane, now), Wait::Ask);
        assert_eq!(pending.wait(call(2, 0), key(b"a"), lane, now), Wait::Joined);
        assert_eq!(pending.wait(call(3, 0), key(b"b"), lane, now), Wait::Ask);
        assert_eq!(pending.take(&key(b"a")).len(), 2);
        let log = &pending.logs[&LaneNumber(1)];
        assert_eq!((log.fault_count, log.faults.len(), log.waits), (1, 1, 3));
        assert_eq!(pending.take(&key(b"a")).len(), 0, "a second answer finds nobody");
        assert_eq!(pending.len(), 1);
    }

    #[test]
    fn what_nobody_could_be_asked_is_noted_where_it_was_wanted() {
        let (mut pending, now) = (Pending::new(Duration::from_secs(30)), Instant::now());
        let bytes = Key::Bytes(3);
        pending.wait(call(1, 0), key(b"a"), Some(LaneNumber(1)), now);
        pending.wait(call(2, 0), key(b"b"), Some(LaneNumber(2)), now);
        pending.wait(call(3, 0), bytes.clone(), None, now);
        pending.note_unanswered(&key(b"a"));
        assert_eq!((pending.logs[&LaneNumber(1)].unanswered, pending.logs[&LaneNumber(2)].unanswered), (1, 0));
        assert_eq!(pending.unanswered, 0);
        pending.note_unanswered(&bytes);
        assert_eq!(pending.unanswered, 1);
        let again = |pending: &mut Pending, lane| pending.wait(call(4, 0), key(b"c"), Some(LaneNumber(lane)), now);
        assert_eq!(again(&mut pending, 1), Wait::Refused, "its task has waited for who does not answer");
        assert_eq!(again(&mut pending, 2), Wait::Ask);
    }

    #[test]
    fn every_wait_ends() {
        let (mut pending, now) = (Pending::new(Duration::from_secs(30)), Instant::now());
        let lane = |number| Some(LaneNumber(number));
        for unique in 1..=5 {
            pending.wait(call(unique, unique as u32), key(b"a"), lane(unique % 2), now);
        }
        assert_eq!(pending.end_lane(LaneNumber(0), |_| true).len(), 2);
        assert!(!pending.interrupt(1, |_| false), "a signal that does not kill");
        assert_eq!(pending.end_dying(|_| false), [0u64; 0]);
        assert_eq!(pending.end_dying(|pid| pid == 1), [1]);
        assert!(!pending.has_interrupted());
        assert!(pending.interrupt(3, |_| true));
        assert_eq!(pending.end_late(now + Duration::from_secs(29)), [0u64; 0]);
        assert_eq!(pending.end_late(now + Duration::from_secs(30)), [5]);
        assert_eq!(pending.next_deadline(), None);
        assert!(pending.flights.is_empty());
        pending.interrupt(9, |_| false);
        pending.wait(call(9, 9), key(b"a"), None, now);
        assert_eq!(pending.end_dying(|_| true), [9], "the interrupt came before the wait");
    }

    #[test]
    fn a_task_waits_once_for_who_does_not_answer() {
        let (mut pending, now) = (Pending::new(Duration::from_secs(30)), Instant::now());
        let (lane, other) = (Some(LaneNumber(1)), Some(LaneNumber(2)));
        pending.wait(call(1, 0), key(b"a"), lane, now);
        let later = now + Duration::from_secs(30);
        assert_eq!(pending.end_late(later), [1]);
        for unique in 2..20 {
            assert_eq!(pending.wait(call(unique, 0), key(b"b"), lane, later), Wait::Refused, "30 s in all");
        }
        assert_eq!(pending.wait(call(20, 0), key(b"b"), other, later), Wait::Ask);
    }

    #[test]
    fn waiting_again_keeps_the_first_deadline() {
        let (mut pending, now) = (Pending::new(Duration::from_secs(30)), Instant::now());
        pending.wait(call(1, 0), key(b"a"), None, now);
        let mut calls = pending.take(&key(b"a"));
        let later = now + Duration::from_secs(20);
        pending.wait(calls.remove(0), key(b"b"), None, later);
        assert_eq!(pending.end_late(now + Duration::from_secs(31)), [1]);
    }
}

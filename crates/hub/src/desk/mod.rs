//! The hub's desk: the ledger of all its work, and the journal under it.
//!
//! Everything that changes the ledger goes through [`Desk::act`], in one order: into the journal, then into the ledger. What follows
//! from it leaves when its record is durable: an answer waits at [`Desk::durable`], what nobody has asked for is held back until
//! [`Desk::told`]. Launches are the exception. Their clients send them again if the hub ends, so their effects leave at once, and
//! the disk is not waited for; their records are there all the same, because what the table does next follows from all before.

mod clock;
pub mod limits;
mod snapshots;
mod start;
pub mod upkeep;

pub use start::{DeskError, Room};

use crate::needs::Tags;
use crate::work::TAKES_LAUNCHES;
use base::codec::Writer;
use bytes::Bytes;
use clock::Clock;
use prost::Message;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use store::journal::{Histogram, JournalError, Seq};
use store::log::Log;
use tasks::{AccountName, Effect, Effects, Entry, Event, JobName, Kind, Ledger, Refusal, Table};
use tokio::sync::{Notify, oneshot};
use wire::message::work::JobOpen;

/// The first byte of a record: what the journal begins with, and an entry.
const BEGIN: u8 = 0;
const ENTRY: u8 = 1;
/// When those who are refused because the disk is behind may try again, in milliseconds.
const RETRY_MS: u32 = 200;
/// Jobs that are looked at together.
const JOBS_AT_ONCE: usize = 1024;

/// The ledger and its journal.
pub struct Desk {
    ledger: Ledger,
    effects: Effects,
    record: Writer,
    clock: Clock,
    /// Without one nothing outlives the hub.
    journal: Option<Arc<Log>>,
    /// What waits until its record is durable, in the order of the records, and since when.
    held: VecDeque<(Seq, u64, Held)>,
    /// How long what left had waited for the disk.
    waits: Histogram,
    taken: Seq,
    durable: Seq,
    dead: Option<Arc<JournalError>>,
    /// When the next tick was last said to be, in nanoseconds of the hub's time, and who is told if it is earlier, or if the desk
    /// has ended.
    next_tick: u64,
    sooner: Arc<Notify>,
    /// As long as this is there, the journal is kept short.
    works: Option<std::sync::mpsc::Sender<std::convert::Infallible>>,
}

/// What waits for the disk.
enum Held {
    Answer(oneshot::Sender<()>),
    Effect(Effect),
}

/// An answer that may be given.
pub struct Answer(oneshot::Sender<()>);

impl Answer {
    /// Lets it be given.
    pub fn release(self) {
        // Who waited may have left.
        let _ = self.0.send(());
    }
}

/// Completes when what was done before is durable. An error: the journal has ended, and nobody must be told.
pub type Durable = oneshot::Receiver<()>;

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").field("taken", &self.taken).field("durable", &self.durable).finish_non_exhaustive()
    }
}

impl Desk {
    fn over(ledger: Ledger, clock: Clock, journal: Option<Arc<Log>>) -> Self {
        let taken = journal.as_ref().map_or(Seq(0), |journal| journal.status().taken);
        Self {
            ledger,
            effects: Effects::default(),
            record: Writer::default(),
            clock,
            journal,
            held: VecDeque::new(),
            waits: Histogram::default(),
            taken,
            durable: taken,
            dead: None,
            next_tick: u64::MAX,
            sooner: Arc::default(),
            works: None,
        }
    }

    /// A desk without a journal.
    pub fn in_memory(room: Room, salt: u128) -> Self {
        let clock = Clock::start(0);
        let ledger = Ledger::new(room.capacity(), room.bytes_max, salt, clock.now());
        Self::over(ledger, clock, None)
    }

    /// The table, to be looked at.
    pub fn table(&self) -> &Table {
        self.ledger.table()
    }

    /// The ledger, to be looked at.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Nanoseconds of the hub's time.
    pub fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Milliseconds of the hub's time.
    pub fn now_ms(&self) -> u64 {
        self.clock.now() / 1_000_000
    }

    /// Whether the disk is so far behind that whoever asks for something is to wait, or has failed.
    pub fn is_crowded(&self) -> Result<(), Refusal> {
        let Some(journal) = &self.journal else { return Ok(()) };
        match self.dead.is_some() || journal.is_crowded() {
            true => Err(Refusal::Full(Kind::Journal, RETRY_MS)),
            false => Ok(()),
        }
    }

    /// Does an entry. Of its effects, those that somebody waits for are for the caller; the others are held back until they may
    /// leave.
    pub fn act<'a>(&mut self, entry: impl Into<Entry<'a>>) -> &[Effect] {
        let (entry, now) = (entry.into(), self.clock.now());
        if let Err(error) = self.write_down(&entry, now) {
            // What was to be done cannot be left out: whoever told of it would tell no more.
            self.end(Arc::new(error));
            self.effects.refuse(Refusal::Full(Kind::Journal, RETRY_MS));
            return &self.effects;
        }
        self.ledger.handle(&entry, now, &mut self.effects);
        let has_held = self.hold_back(now);
        if has_held {
            self.commit();
        }
        let next = self.next_tick();
        if next < self.next_tick {
            self.next_tick = next;
            self.sooner.notify_one();
        }
        &self.effects
    }

    /// The effects of the last entry.
    pub fn effects(&self) -> &[Effect] {
        &self.effects
    }

    /// Why the last entry was refused, if it was.
    pub fn refusal(&self) -> Option<Refusal> {
        let of = |effect: &Effect| if let Effect::Refused(refusal) = effect { Some(*refusal) } else { None };
        self.effects.iter().find_map(of)
    }

    fn write_down(&mut self, entry: &Entry<'_>, now: u64) -> Result<(), JournalError> {
        let Some(journal) = &self.journal else { return Ok(()) };
        if let Some(dead) = &self.dead {
            return Err(JournalError::Dead(dead.clone()));
        }
        self.record.0.clear();
        self.record.u8(ENTRY);
        entry.encode(now, &mut self.record);
        self.taken = journal.append_quietly(&self.record.0)?;
        Ok(())
    }

    /// Holds back what nobody waits for here.
    fn hold_back(&mut self, now: u64) -> bool {
        let table = self.ledger.table();
        let before = self.held.len();
        for effect in self.effects.iter() {
            let is_held = match effect {
                Effect::Send { host, instance, .. } => table.is_attached(*host) && !table.is_volatile(instance.task),
                Effect::Assimilate { task, .. } | Effect::Compare(task, _) => !table.is_volatile(*task),
                Effect::JobEnded(job) => table.job(*job).is_some_and(|job| !job.spec.is_volatile),
                Effect::Stop(_, instance) => !table.is_volatile(instance.task),
                _ => false,
            };
            if is_held {
                self.held.push_back((self.taken, now, Held::Effect(*effect)));
            }
        }
        self.held.len() > before
    }

    fn commit(&self) {
        self.journal.iter().for_each(|journal| journal.commit_soon());
    }

    /// For an answer that tells of what was done: to be waited for before it is given.
    pub fn durable(&mut self) -> Durable {
        let (sender, durable) = oneshot::channel();
        if self.journal.is_none() || self.taken <= self.durable {
            // Whoever waits has it still.
            let _ = sender.send(());
        } else if self.dead.is_none() {
            self.held.push_back((self.taken, self.clock.now(), Held::Answer(sender)));
            self.commit();
        }
        durable
    }

    /// Records are durable up to this one: gives the effects that may leave now, and the answers that may be given after them.
    pub fn told(&mut self, durable: Seq) -> (Vec<Effect>, Vec<Answer>) {
        self.durable = self.durable.max(durable);
        let (mut effects, mut answers) = (Vec::new(), Vec::new());
        let now = self.clock.now();
        while self.held.front().is_some_and(|(seq, ..)| *seq <= self.durable) {
            let Some((_, since, held)) = self.held.pop_front() else { break };
            self.waits.add(Duration::from_nanos(now.saturating_sub(since)));
            match held {
                Held::Answer(sender) => answers.push(Answer(sender)),
                Held::Effect(effect) => effects.push(effect),
            }
        }
        (effects, answers)
    }

    /// The journal has ended: nothing more is done, and whoever waits is not told.
    pub fn end(&mut self, why: Arc<JournalError>) {
        self.dead.get_or_insert(why);
        self.held.clear();
        self.sooner.notify_one();
    }

    /// Why nothing more is done, if so.
    pub fn dead(&self) -> Option<&Arc<JournalError>> {
        self.dead.as_ref()
    }

    /// The account with this key, as it was opened before or with the usual limits.
    pub fn account(&mut self, key: u128) -> Result<AccountName, Refusal> {
        if let Some(known) = self.table().account(key) {
            return Ok(known);
        }
        match *self.act(Event::Account(limits::usual(key))) {
            [Effect::Account(name), ..] => Ok(name),
            _ => Err(self.refusal().unwrap_or(Refusal::Unknown)),
        }
    }

    /// Whether a job's tasks are launches, which its client makes.
    pub fn is_driven(&self, job: JobName) -> bool {
        self.table().job(job).is_some_and(|job| !job.spec.is_volatile && job.spec.need.tags & TAKES_LAUNCHES != 0)
    }

    /// Whether a launch of a job has failed if it ends with another status than 0.
    pub fn retries_failures(&self, job: JobName) -> bool {
        // Without a copy: what is common to the tasks can be long.
        let open = self.ledger.job(job).and_then(|blob| JobOpen::decode(Bytes::from_owner(blob.clone())).ok());
        open.is_some_and(|open| open.retries_failures)
    }

    /// The tags that jobs in the journal ask for.
    pub fn tags(&self) -> Tags {
        let (mut tags, mut last) = (Tags::default(), None);
        loop {
            let jobs = self.table().jobs_after(last, JOBS_AT_ONCE);
            for job in &jobs {
                let open = self.ledger.job(*job).and_then(|blob| JobOpen::decode(Bytes::from_owner(blob.clone())).ok());
                if let Some(open) = open {
                    tags.known(open.tags, &open.tag_names);
                }
            }
            last = match jobs.last() {
                Some(job) => Some(*job),
                None => return tags,
            };
        }
    }

    /// When the next tick is due, in nanoseconds of the hub's time; the past, if it is. `u64::MAX`: never.
    pub fn next_tick(&self) -> u64 {
        self.table().next_tick().unwrap_or(u64::MAX)
    }

    /// As [`Desk::next_tick`], by whom ticks are made: he is told by [`Desk::sooner`] if one is due before that.
    pub fn schedule(&mut self) -> u64 {
        self.next_tick = self.next_tick();
        self.next_tick
    }

    /// Notified when the next tick is due sooner than was said, or the desk has ended.
    pub fn sooner(&self) -> Arc<Notify> {
        self.sooner.clone()
    }

    /// Which hub this is, of those that replaced one another on one journal.
    pub fn epoch(&self) -> u64 {
        self.journal.as_ref().map_or(0, |journal| journal.status().epoch)
    }

    /// The journal, if there is one.
    pub fn journal(&self) -> Option<&Arc<Log>> {
        self.journal.as_ref()
    }

    /// How long what had to wait for the disk has waited until its leave: effects from the taking of their records, answers from when
    /// [`Desk::durable`] was asked.
    pub fn waits(&self) -> &Histogram {
        &self.waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::journal::Options;
    use store::log::Place;

    #[test]
    fn a_record_that_is_not_taken_ends_the_desk() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let room = Room { hosts: 8, tasks: 64, bytes_max: 1 << 20 };
        // Fuller than this no journal is: the first record beyond it ends what would have to leave it out.
        let options = Options { segment_bytes: 4096, buffer_bytes_max: 600, ..Options::default() };
        let place = Place::Disk(folder.path().to_owned());
        let mut desk = Desk::open(place, room, options, Box::new(|_| {})).expect("opened");
        let name = desk.account(1).expect("room");
        let mut waits = desk.durable();
        while desk.dead().is_none() {
            desk.act(Event::Tick);
        }
        assert!(matches!(desk.refusal(), Some(Refusal::Full(Kind::Journal, _))));
        assert!(matches!(desk.is_crowded(), Err(Refusal::Full(Kind::Journal, _))));
        assert!(waits.try_recv().is_err(), "nothing more is told");
        assert_eq!(desk.account(1), Ok(name), "what was written down is there");
        assert!(desk.account(2).is_err());
    }
}

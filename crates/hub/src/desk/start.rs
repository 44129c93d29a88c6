//! Opening the desk: the ledger is made again from the journal, and what cannot go on is ended.

use super::clock::Clock;
use super::{BEGIN, Desk, ENTRY};
use crate::work::TAKES_LAUNCHES;
use base::codec::{Malformed, Reader, Writer};
use std::io::Read;
use std::sync::Arc;
use store::journal::{Entry as Record, JournalError, Options, Seq, Told};
use store::log::{Contents, Log, Place, Snapshot};
use tasks::{
    Capacity, Effect, Effects, Event, JobName, LOGIC_VERSION, Ledger, LoadError, SNAPSHOT_VERSION, Scratch, decode,
    written_by,
};

/// How much a hub can hold. What is beyond is refused, and may come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Hosts: workers, and those that ask for workunits.
    pub hosts: usize,
    /// Tasks that wait or run.
    pub tasks: usize,
    /// Bytes that belong to jobs, tasks and results.
    pub bytes_max: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { hosts: 4_096, tasks: 16_384, bytes_max: 256 << 20 }
    }
}

impl Room {
    /// Of the table. Each launch is a job of its own, and most hosts are accounts of their own.
    pub fn capacity(self) -> Capacity {
        let usual = Capacity::of(self.hosts, self.tasks);
        let jobs = self.tasks.min(65_536);
        Capacity {
            accounts: usual.accounts.max(4_096).max(2 * self.hosts),
            jobs,
            groups: usual.groups.max(jobs),
            ..usual
        }
    }
}

/// The desk cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum DeskError {
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A record of the journal is not what this version writes.
    #[error("record {seq} of the journal cannot be read: {why}")]
    Record {
        /// Which.
        seq: Seq,
        /// What is wrong with it.
        why: Malformed,
    },
    /// The state of the journal is not what this version writes.
    #[error("the journal's snapshot of record {seq} cannot be used: {why}")]
    Snapshot {
        /// The last record that it holds.
        seq: Seq,
        /// What is wrong with it.
        why: LoadError<std::io::Error>,
    },
    /// The state of the journal is of an older format, which can be brought up to this one.
    #[error(
        "the journal's snapshot of record {seq} has format {found}, and this version of gleaner starts from format {SNAPSHOT_VERSION}: \
         `gleaner journal upgrade` writes that, and with --check only says what it would do"
    )]
    Older {
        /// The last record that it holds.
        seq: Seq,
        /// Its format.
        found: u32,
    },
    /// The same with records behind it, which only the older version can do as they were done.
    #[error(
        "the journal's snapshot of record {seq} has format {found}, and records up to {last} come after it, of logic version {logic}, \
         which this version of gleaner would do otherwise: start the version that wrote them once more (its snapshots have format \
         {found}: {written_by}) and stop it, which leaves a snapshot of all; then `gleaner journal upgrade`",
        written_by = written_by(*found).unwrap_or("not known here")
    )]
    OlderWithRecords {
        /// The last record that it holds.
        seq: Seq,
        /// Its format.
        found: u32,
        /// The last record of all.
        last: Seq,
        /// The version of the logic of the first record after it.
        logic: u32,
    },
    /// Nothing is there.
    #[error(
        "there is no journal in {place}: no hub has kept one there; --state DIR names the folder of one that has another"
    )]
    NoJournal {
        /// Where it was looked for.
        place: String,
    },
    /// The journal does not begin as a hub's does.
    #[error("the journal does not begin with a hub's first record: it is of something else")]
    Foreign,
    /// Another version has written records that this one would understand otherwise.
    #[error(
        "the journal's last records were written by a version of gleaner whose task table is another one ({found}, not \
         {LOGIC_VERSION}): start that version once more and stop it, which leaves a snapshot of all; then this one starts, or says what to do"
    )]
    OtherLogic {
        /// The version of its logic.
        found: u32,
    },
}

impl DeskError {
    /// Whether another version of gleaner, or `gleaner journal upgrade`, is what the journal wants.
    pub fn is_of_version(&self) -> bool {
        matches!(self, Self::OtherLogic { .. } | Self::Older { .. } | Self::OlderWithRecords { .. })
    }
}

impl Desk {
    /// Opens the desk whose journal is in this place, or makes it. `told`: see [`Log::open`].
    ///
    /// # Errors
    /// [`DeskError`], each with what to do.
    pub fn open(place: Place, room: Room, options: Options, told: Told) -> Result<Self, DeskError> {
        let options = Options { logic_version: LOGIC_VERSION, ..options };
        let (journal, contents) = Log::open(place, options, told)?;
        let ledger = match again(contents)? {
            Some(again) => again,
            None => begin(&journal, room)?,
        };
        let clock = Clock::start(ledger.table().now());
        let mut desk = Self::over(ledger, clock, Some(Arc::new(journal)));
        desk.end_what_cannot_go_on()?;
        desk.keep_short();
        Ok(desk)
    }

    /// Workers that were connected are not, and launches are sent again by their clients: both are ended. What waited to be told is
    /// told again.
    fn end_what_cannot_go_on(&mut self) -> Result<(), JournalError> {
        let workers = self.table().hosts().filter(|(_, spec)| spec.shape.tags & TAKES_LAUNCHES != 0);
        let workers: Vec<_> = workers.map(|(host, _)| host).collect();
        for host in workers {
            self.act(Event::Leave(host));
        }
        let launches: Vec<JobName> = self.table().volatile().collect();
        for job in &launches {
            self.act(Event::CancelJob(*job));
        }
        self.settle();
        for job in launches {
            while let [first, ..] = self.table().tasks_of(job, 1)[..] {
                self.act(Event::Assimilated(&[first]));
                // Or the task would stay for ever.
                self.is_alive()?;
                self.settle();
            }
            self.act(Event::Forget(job));
        }
        // Nobody has come yet who would launch them.
        let mut jobs = self.table().jobs_after(None, usize::MAX);
        jobs.retain(|job| self.is_driven(*job));
        for job in jobs {
            self.act(Event::Away(job, true));
        }
        let pending: Vec<Effect> = self.table().pending().collect();
        let now = self.clock.now();
        self.held.extend(pending.into_iter().map(|effect| (self.taken, now, super::Held::Effect(effect))));
        self.commit();
        self.is_alive()
    }

    fn is_alive(&self) -> Result<(), JournalError> {
        self.dead.as_ref().map_or(Ok(()), |dead| Err(JournalError::Dead(dead.clone())))
    }

    fn settle(&mut self) {
        while self.dead.is_none() && self.table().is_behind(self.now()) {
            self.act(Event::Tick);
        }
    }
}

/// The first record of a journal: what the table was made with.
fn begin(journal: &Log, room: Room) -> Result<Ledger, DeskError> {
    let (now, salt) = (Clock::start(0).now(), rand::random());
    let capacity = room.capacity();
    let mut record = Writer::default();
    record.u8(BEGIN);
    record.u64(now);
    record.u128(salt);
    record.u64(room.bytes_max as u64);
    for count in counts(&capacity) {
        record.u64(count as u64);
    }
    journal.append_quietly(&record.0)?;
    Ok(Ledger::new(capacity, room.bytes_max, salt, now))
}

fn counts(capacity: &Capacity) -> [usize; 7] {
    let Capacity { accounts, hosts, jobs, groups, tasks, instances, nodes } = *capacity;
    [accounts, hosts, jobs, groups, tasks, instances, nodes]
}

fn begun(mut from: Reader<'_>) -> Result<Ledger, Malformed> {
    let (now, salt, bytes_max) = (from.u64()?, from.u128()?, from.u64()? as usize);
    let mut count = || from.u64().map(|count| count as usize);
    let capacity = Capacity {
        accounts: count()?,
        hosts: count()?,
        jobs: count()?,
        groups: count()?,
        tasks: count()?,
        instances: count()?,
        nodes: count()?,
    };
    Ok(Ledger::new(capacity, bytes_max, salt, now))
}

/// The ledger as the journal has it. `None`: the journal is new.
pub(super) fn again(contents: Contents) -> Result<Option<Ledger>, DeskError> {
    let mut replay = Replay::of(contents.snapshot.map(load).transpose()?);
    for record in contents.records {
        replay.take(&record?)?;
    }
    Ok(replay.ledger)
}

fn load(mut snapshot: Snapshot) -> Result<Ledger, DeskError> {
    let seq = snapshot.seq;
    Ledger::load_saved(|room| snapshot.read(room)).map_err(|why| match why {
        LoadError::Older(found) => DeskError::Older { seq, found },
        why => DeskError::Snapshot { seq, why },
    })
}

/// A ledger that is made again record by record.
pub(super) struct Replay {
    /// `None` before the first record of a journal.
    pub ledger: Option<Ledger>,
    effects: Effects,
    scratch: Scratch,
}

impl Replay {
    /// From the state of a snapshot on, or from the beginning.
    pub fn of(ledger: Option<Ledger>) -> Self {
        Self { ledger, effects: Effects::default(), scratch: Scratch::default() }
    }

    /// Does what the next record says.
    pub fn take(&mut self, record: &Record) -> Result<(), DeskError> {
        let broken = |why| DeskError::Record { seq: record.seq, why };
        if record.logic_version != LOGIC_VERSION {
            return Err(DeskError::OtherLogic { found: record.logic_version });
        }
        match &mut self.ledger {
            Some(ledger) => apply(ledger, record, &mut self.scratch, &mut self.effects).map_err(broken),
            None => {
                let mut from = Reader::new(&record.record);
                if from.u8().ok() != Some(BEGIN) {
                    return Err(DeskError::Foreign);
                }
                self.ledger = Some(begun(from).map_err(broken)?);
                Ok(())
            }
        }
    }
}

/// Does what a record says.
fn apply(ledger: &mut Ledger, record: &Record, scratch: &mut Scratch, effects: &mut Effects) -> Result<(), Malformed> {
    let Some((&ENTRY, entry)) = record.record.split_first() else {
        return Err(Malformed("a record of an unknown kind"));
    };
    let mut blobs = Vec::new();
    let (entry, now) = decode(entry, scratch, &mut blobs)?;
    ledger.handle(&entry, now, effects);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tasks::JobSpec;

    #[test]
    fn a_start_whose_journal_takes_no_record_is_an_error() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let open = |options| {
            let room = Room { hosts: 8, tasks: 64, bytes_max: 1 << 20 };
            Desk::open(Place::Disk(folder.path().to_owned()), room, options, Box::new(|_| {}))
        };
        let mut desk = open(Options::default()).expect("opened");
        let account = desk.account(1).expect("room");
        let spec = JobSpec {
            key: 1,
            account,
            urgency: tasks::Urgency::Interactive,
            need: tasks::Need { cpus: 1, ..tasks::Need::default() },
            policy: tasks::Policy::default(),
            cost_ms: 1,
            affinity: 0,
            failures_max: 0,
            is_volatile: true,
        };
        let [Effect::Job(job, _), ..] = *desk.act(Event::Open(spec)) else { panic!("{:?}", desk.effects()) };
        desk.act(Event::Submit { job, first: 0, count: 2, later: 0, is_promised: false, deadline_ms: 0 });
        assert_eq!(desk.table().tasks_of(job, 9).len(), 2);
        drop(desk);
        // It has no room for any record.
        let opened = open(Options { buffer_bytes_max: 8, ..Options::default() });
        assert!(matches!(opened, Err(DeskError::Journal(JournalError::Dead(_)))), "{opened:?}");
        let desk = open(Options::default()).expect("opened");
        assert_eq!(desk.table().counts()[2..], [0, 0, 0], "launches are ended");
    }
}

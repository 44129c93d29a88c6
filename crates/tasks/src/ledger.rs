//! The table, and with its jobs, tasks and results the bytes that belong to them. Nobody here looks into these: what a command is, and
//! what came of it, is between those who submit and those who run.
//!
//! As pure as the table: same entries, same ledger. What it keeps is bounded in bytes.

use crate::event::{BATCH_MAX, Effect, Effects, Event, INSTANCES_MAX, Kind, Refusal};
use crate::names::{AccountName, HostName, InstanceName, JobName, TaskName};
use crate::snapshot::LoadError;
use crate::table::{Capacity, Table};
use std::sync::Arc;

/// Most bytes that belong to one job, task or result. What is larger is kept elsewhere, and named.
pub const BLOB_BYTES_MAX: usize = 64 << 10;

/// What every saved ledger begins with.
const MAGIC: [u8; 8] = *b"GLNLEDG1";
/// Kinds of bytes in a saved ledger: a job's, a task's, and from the last one on results by the number of their instance.
const END: u8 = 0;
const OF_JOB: u8 = 1;
const OF_TASK: u8 = 2;
const OF_RESULT: u8 = 3;

/// When those that are refused for want of room may try again, in milliseconds.
const RETRY_MS: u32 = 1_000;

/// An event, with the bytes that it brings: of an opened job its own; of submitted tasks each its own, or none at all; of reports each
/// its result's, or none at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// What happens.
    pub event: Event<'a>,
    /// The bytes.
    pub blobs: &'a [&'a [u8]],
}

impl<'a> From<Event<'a>> for Entry<'a> {
    fn from(event: Event<'a>) -> Self {
        Self { event, blobs: &[] }
    }
}

/// Bytes that belong to a job, task or result.
pub type Blob = Arc<[u8]>;

/// A table with the bytes that belong to what is in it.
#[derive(Debug)]
pub struct Ledger {
    table: Table,
    jobs: Vec<Option<Blob>>,
    tasks: Vec<Option<Box<OfTask>>>,
    /// Bytes kept, and most that may be.
    bytes: usize,
    bytes_max: usize,
    /// Of these, what belongs to the jobs of each account, by its place in the table. Not saved: it follows from the rest.
    of_accounts: Vec<usize>,
}

/// What belongs to a task.
#[derive(Debug, Default)]
struct OfTask {
    input: Option<Blob>,
    /// By the number of the instance.
    results: Vec<(u8, Blob)>,
}

impl OfTask {
    fn bytes(&self) -> usize {
        self.input.iter().chain(self.results.iter().map(|(_, blob)| blob)).map(|blob| blob.len()).sum()
    }
}

impl Ledger {
    /// An empty ledger, see [`Table::new`]. `bytes_max`: most bytes that belong to jobs, tasks and results together.
    pub fn new(capacity: Capacity, bytes_max: usize, salt: u128, now: u64) -> Self {
        Self {
            table: Table::new(capacity, salt, now),
            jobs: vec![None; capacity.jobs],
            tasks: (0..capacity.tasks).map(|_| None).collect(),
            bytes: 0,
            bytes_max,
            of_accounts: vec![0; capacity.accounts],
        }
    }

    /// The table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Bytes that belong to jobs, tasks and results, and most that may.
    pub fn bytes(&self) -> (usize, usize) {
        (self.bytes, self.bytes_max)
    }

    /// Bytes that belong to the jobs of one account, with their tasks and results.
    pub fn bytes_of(&self, account: AccountName) -> usize {
        self.of_accounts.get(account.at as usize).copied().unwrap_or_default()
    }

    /// Does one entry at `now`, see [`Table::handle`]. It is refused if it brings bytes and these are too many. Results are taken all
    /// the same, for their tasks were; so is what brings none, for that is how room is made.
    pub fn handle(&mut self, entry: &Entry<'_>, now: u64, effects: &mut Effects) {
        if let Err(refusal) = self.has_room(entry) {
            effects.refuse(refusal);
            return;
        }
        if let Event::Report { host, reports, .. } = entry.event {
            for (report, blob) in reports.iter().zip(entry.blobs) {
                self.keep_result(host, report.instance, blob);
            }
        }
        self.table.handle(&entry.event, now, effects);
        match entry.event {
            Event::Open(_) => self.keep_job(entry.blobs, effects),
            Event::Submit { .. } => self.keep_tasks(entry.blobs, effects),
            Event::Forget(job) if !matches!(effects.first(), Some(Effect::Refused(_))) => {
                let forgotten = self.jobs[job.at as usize].take();
                self.is_less(self.table.account_of_job(job.at), forgotten.map_or(0, |blob| blob.len()));
            }
            _ => {}
        }
        for effect in effects.iter() {
            if let Effect::Deleted(task) = effect {
                let gone = self.tasks[task.at as usize].take();
                self.is_less(self.table.account_of_task(task.at), gone.map_or(0, |gone| gone.bytes()));
            }
        }
    }

    /// So many bytes more belong to an account's jobs.
    fn is_more(&mut self, account: u32, bytes: usize) {
        self.bytes += bytes;
        self.of_accounts.get_mut(account as usize).into_iter().for_each(|own| *own += bytes);
    }

    /// So many bytes fewer do.
    fn is_less(&mut self, account: u32, bytes: usize) {
        self.bytes -= bytes;
        self.of_accounts.get_mut(account as usize).into_iter().for_each(|own| *own -= bytes);
    }

    fn has_room(&self, entry: &Entry<'_>) -> Result<(), Refusal> {
        if entry.blobs.len() > BATCH_MAX || entry.blobs.iter().any(|blob| blob.len() > BLOB_BYTES_MAX) {
            return Err(Refusal::Invalid("a job, task or result has 64 KiB of its own at most"));
        }
        let more: usize = entry.blobs.iter().map(|blob| blob.len()).sum();
        let is_result = matches!(entry.event, Event::Report { .. });
        if more > 0 && !is_result && self.bytes + more > self.bytes_max {
            return Err(Refusal::Full(Kind::Bytes, RETRY_MS));
        }
        Ok(())
    }

    fn keep_job(&mut self, blobs: &[&[u8]], effects: &Effects) {
        let (Some(Effect::Job(name, _)), [blob]) = (effects.first(), blobs) else { return };
        let slot = &mut self.jobs[name.at as usize];
        // One that was opened before has its bytes.
        if slot.is_none() {
            *slot = Some(Blob::from(*blob));
            self.is_more(self.table.account_of_job(name.at), blob.len());
        }
    }

    fn keep_tasks(&mut self, blobs: &[&[u8]], effects: &Effects) {
        let names = effects.iter().filter_map(|effect| match effect {
            Effect::Submitted(name) => Some(*name),
            _ => None,
        });
        let names: Vec<TaskName> = names.collect();
        // Those that were submitted before come first.
        let known = blobs.len().saturating_sub(names.len());
        for (name, blob) in names.iter().zip(&blobs[known..]) {
            self.tasks[name.at as usize].get_or_insert_default().input = Some(Blob::from(*blob));
            self.is_more(self.table.account_of_task(name.at), blob.len());
        }
    }

    fn keep_result(&mut self, host: HostName, instance: InstanceName, blob: &[u8]) {
        if blob.is_empty() || !self.table.awaits(host, instance) {
            return;
        }
        let of_task = self.tasks[instance.task.at as usize].get_or_insert_default();
        if of_task.results.iter().all(|(number, _)| *number != instance.number) {
            of_task.results.push((instance.number, Blob::from(blob)));
            self.is_more(self.table.account_of_task(instance.task.at), blob.len());
        }
    }

    /// A job's bytes.
    pub fn job(&self, name: JobName) -> Option<&Blob> {
        self.table.job(name)?;
        self.jobs[name.at as usize].as_ref()
    }

    /// A task's own bytes.
    pub fn input(&self, name: TaskName) -> Option<&Blob> {
        self.of_task(name)?.input.as_ref()
    }

    /// The bytes of a result.
    pub fn result(&self, instance: InstanceName) -> Option<&Blob> {
        let results = &self.of_task(instance.task)?.results;
        results.iter().find(|(number, _)| *number == instance.number).map(|(_, blob)| blob)
    }

    /// Writes the whole ledger to `out`, piece by piece, see [`Table::save`].
    ///
    /// # Errors
    /// The first one of `out`.
    pub fn save<E>(&self, mut out: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        out(&MAGIC)?;
        out(&(self.bytes_max as u64).to_le_bytes())?;
        let mut blob = |kind: u8, at: usize, blob: &[u8]| {
            let mut head = [kind; 9];
            head[1..5].copy_from_slice(&(at as u32).to_le_bytes());
            head[5..].copy_from_slice(&(blob.len() as u32).to_le_bytes());
            out(&head)?;
            out(blob)
        };
        for (at, job) in self.jobs.iter().enumerate() {
            job.iter().try_for_each(|bytes| blob(OF_JOB, at, bytes))?;
        }
        for (at, task) in self.tasks.iter().enumerate() {
            let Some(task) = task else { continue };
            task.input.iter().try_for_each(|bytes| blob(OF_TASK, at, bytes))?;
            task.results.iter().try_for_each(|(number, bytes)| blob(OF_RESULT + number, at, bytes))?;
        }
        blob(END, 0, &[])?;
        self.table.save(out)
    }

    /// Makes a ledger again from what [`Ledger::save`] wrote, see [`Table::load_saved`].
    ///
    /// # Errors
    /// If `from` fails, or if these are no bytes of a ledger.
    pub fn load_saved<E>(from: impl FnMut(&mut [u8]) -> Result<usize, E>) -> Result<Self, LoadError<E>> {
        Self::load_with(from, |from| Table::load_saved(from).map(|table| ((), table))).map(|((), ledger)| ledger)
    }

    /// The same from what an older version wrote, too; with the format that its table had, see [`Table::load_any`].
    ///
    /// # Errors
    /// If `from` fails, or if these are no bytes of a ledger.
    pub fn load_any<E>(from: impl FnMut(&mut [u8]) -> Result<usize, E>) -> Result<(u32, Self), LoadError<E>> {
        Self::load_with(from, |from| Table::load_any(from))
    }

    fn load_with<E, F: FnMut(&mut [u8]) -> Result<usize, E>, V>(
        mut from: F,
        load_table: impl FnOnce(F) -> Result<(V, Table), LoadError<E>>,
    ) -> Result<(V, Self), LoadError<E>> {
        let mut head = [0; 16];
        fill(&mut from, &mut head)?;
        let (magic, bytes_max) = head.split_at(8);
        if magic != MAGIC {
            return Err(LoadError::Foreign);
        }
        let bytes_max = u64::from_le_bytes(*bytes_max.first_chunk().expect("8 of 16")) as usize;
        let mut blobs = Vec::new();
        loop {
            let mut head = [0; 9];
            fill(&mut from, &mut head)?;
            let number = |at: usize| u32::from_le_bytes(*head[at..].first_chunk().expect("4 of 9"));
            let (kind, at, len) = (head[0], number(1) as usize, number(5) as usize);
            if kind == END {
                break;
            }
            if len > BLOB_BYTES_MAX {
                return Err(LoadError::Damaged("more bytes belong to something than may"));
            }
            let mut bytes = vec![0; len];
            fill(&mut from, &mut bytes)?;
            blobs.push((kind, at, Blob::from(bytes)));
        }
        let (version, table) = load_table(from)?;
        let capacity = table.capacity();
        let mut ledger = Self {
            table,
            jobs: vec![None; capacity.jobs],
            tasks: (0..capacity.tasks).map(|_| None).collect(),
            bytes: 0,
            bytes_max,
            of_accounts: vec![0; capacity.accounts],
        };
        for (kind, at, blob) in blobs {
            ledger.put_back(kind, at, blob).ok_or(LoadError::Damaged("bytes of something that is not there"))?;
        }
        Ok((version, ledger))
    }

    fn put_back(&mut self, kind: u8, at: usize, blob: Blob) -> Option<()> {
        let (place, bytes) = (at as u32, blob.len());
        let account = if kind == OF_JOB { self.table.account_of_job(place) } else { self.table.account_of_task(place) };
        match kind {
            OF_JOB => *self.jobs.get_mut(at)? = Some(blob),
            OF_TASK => self.tasks.get_mut(at)?.get_or_insert_default().input = Some(blob),
            _ => {
                let number = kind.checked_sub(OF_RESULT).filter(|number| *number < INSTANCES_MAX)?;
                self.tasks.get_mut(at)?.get_or_insert_default().results.push((number, blob));
            }
        }
        self.is_more(account, bytes);
        Some(())
    }

    /// The bytes that came last of any instance of a task, also of one that came to no good end.
    pub fn last_result(&self, name: TaskName) -> Option<&Blob> {
        self.of_task(name)?.results.last().map(|(_, blob)| blob)
    }

    fn of_task(&self, name: TaskName) -> Option<&OfTask> {
        self.table.is_there(name).then(|| self.tasks[name.at as usize].as_deref()).flatten()
    }
}

/// Fills all of the room.
fn fill<E>(from: &mut impl FnMut(&mut [u8]) -> Result<usize, E>, room: &mut [u8]) -> Result<(), LoadError<E>> {
    let mut filled = 0;
    while filled < room.len() {
        match from(&mut room[filled..]).map_err(LoadError::Read)? {
            0 => return Err(LoadError::Damaged("it ends too early")),
            count => filled += count.min(room.len() - filled),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{AccountSpec, HostSpec, JobSpec, Outcome, Policy, Report, Urgency};
    use crate::kinds::{Need, Platform, Shape};
    use crate::record::{Scratch, decode};
    use base::codec::Writer;

    /// A ledger that does everything twice: from entries, and from their records.
    struct Twice {
        ledger: Ledger,
        again: Ledger,
        effects: Effects,
        now: u64,
    }

    impl Twice {
        fn new(bytes_max: usize) -> Self {
            let new = || Ledger::new(Capacity::of(16, 64), bytes_max, 7, 0);
            Self { ledger: new(), again: new(), effects: Effects::default(), now: 0 }
        }

        fn handle(&mut self, event: Event<'_>, blobs: &[&[u8]]) -> Vec<Effect> {
            let entry = Entry { event, blobs };
            self.now += 1_000_000;
            let mut record = Writer::default();
            entry.encode(self.now, &mut record);
            self.ledger.handle(&entry, self.now, &mut self.effects);
            let done = self.effects.to_vec();
            let (bytes, mut scratch) = (record.0, Scratch::default());
            let mut blobs = Vec::new();
            let (again, now) = decode(&bytes, &mut scratch, &mut blobs).expect("what was encoded");
            assert_eq!((again.event, again.blobs, now), (entry.event, entry.blobs, self.now));
            self.again.handle(&again, now, &mut self.effects);
            assert_eq!(*self.effects, *done);
            assert_eq!(self.ledger.bytes(), self.again.bytes());
            assert_eq!(self.ledger.of_accounts, self.again.of_accounts);
            assert_eq!(self.ledger.of_accounts.iter().sum::<usize>(), self.ledger.bytes);
            let saved = saved(&self.ledger);
            self.again = loaded(&saved);
            assert!(self::saved(&self.again) == saved);
            done
        }

        /// What is done by and by is done now.
        fn settle(&mut self) {
            while self.ledger.table().is_behind(self.now) {
                self.handle(Event::Tick, &[]);
            }
        }

        fn job(&mut self, account: AccountName, blob: &[u8]) -> JobName {
            let spec = JobSpec {
                key: 5,
                account,
                urgency: Urgency::Normal,
                need: Need { platform: Platform::LINUX_X86_64, cpus: 1, ..Need::default() },
                policy: Policy::default(),
                cost_ms: 10,
                affinity: 0,
                failures_max: 10,
                is_volatile: false,
            };
            match self.handle(Event::Open(spec), &[blob])[0] {
                Effect::Job(name, _) => name,
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn bytes_live_as_long_as_what_they_belong_to() {
        let mut ledger = Twice::new(1_000);
        let spec = AccountSpec { key: 1, weight: 1, share_permille: 0, tasks_max: 100, running_max: 100 };
        let Effect::Account(account) = ledger.handle(Event::Account(spec), &[])[0] else { panic!("no account") };
        let shape = Shape { platform: Platform::LINUX_X86_64, cpus: 4, largest: 4, ..Shape::default() };
        let host = HostSpec { key: 9, account, shape, speed_permille: 1_000, is_fresh: true, is_attached: false };
        let Effect::Host(host) = ledger.handle(Event::Join(host), &[])[0] else { panic!("no host") };
        let job = ledger.job(account, b"gcc");
        assert_eq!(ledger.job(account, b"other"), job, "opening again is the same job, with the bytes that it has");
        assert_eq!(ledger.ledger.job(job).map(|blob| &blob[..]), Some(&b"gcc"[..]));
        let submit = |first, count| Event::Submit { job, first, count, later: 0, is_promised: false, deadline_ms: 0 };
        let first = ledger.handle(submit(0, 2), &[b"a.c", b"b.c"]);
        let again = ledger.handle(submit(0, 3), &[b"a.c", b"b.c", b"c.c"]);
        let names: Vec<TaskName> = [first, again].concat().iter().filter_map(submitted).collect();
        let inputs = names.iter().map(|name| ledger.ledger.input(*name).expect("its input").to_vec());
        assert_eq!(inputs.collect::<Vec<_>>(), [b"a.c", b"b.c", b"c.c"]);
        ledger.handle(Event::Request { host, want: 2 }, &[]);
        let instance = InstanceName { task: names[0], number: 0 };
        let done = |instance| [Report { instance, outcome: Outcome::Done([1; 32]), cost_ms: 5 }];
        let strange = InstanceName { task: names[2], number: 0 };
        ledger.handle(Event::Report { host, reports: &done(strange), want: 0 }, &[b"not asked for"]);
        assert_eq!(ledger.ledger.result(strange), None);
        ledger.handle(Event::Report { host, reports: &done(instance), want: 0 }, &[b"a.o"]);
        assert_eq!(ledger.ledger.result(instance).map(|blob| &blob[..]), Some(&b"a.o"[..]));
        assert_eq!(ledger.ledger.bytes().0, 3 * 5);
        ledger.handle(Event::Assimilated(&[names[0]]), &[]);
        assert_eq!((ledger.ledger.result(instance), ledger.ledger.bytes().0), (None, 3 * 3));
        ledger.handle(Event::CancelJob(job), &[]);
        ledger.settle();
        ledger.handle(Event::Assimilated(&names[1..]), &[]);
        ledger.settle();
        ledger.handle(Event::Forget(job), &[]);
        assert_eq!(ledger.ledger.bytes().0, 0);
    }

    fn saved(ledger: &Ledger) -> Vec<u8> {
        let mut bytes = Vec::new();
        let Ok(()) = ledger.save(|piece| -> Result<(), std::convert::Infallible> {
            bytes.extend_from_slice(piece);
            Ok(())
        });
        bytes
    }

    fn loaded(mut bytes: &[u8]) -> Ledger {
        let read = |room: &mut [u8]| -> Result<usize, std::convert::Infallible> {
            let count = room.len().min(bytes.len()).min(1_000);
            room[..count].copy_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            Ok(count)
        };
        Ledger::load_saved(read).expect("what was saved")
    }

    fn submitted(effect: &Effect) -> Option<TaskName> {
        if let Effect::Submitted(name) = effect { Some(*name) } else { None }
    }

    #[test]
    fn more_bytes_than_there_is_room_for_are_refused() {
        let mut ledger = Twice::new(10);
        let spec = AccountSpec { key: 1, weight: 1, share_permille: 0, tasks_max: 100, running_max: 100 };
        let Effect::Account(account) = ledger.handle(Event::Account(spec), &[])[0] else { panic!("no account") };
        let job = ledger.job(account, b"12345");
        let submit = Event::Submit { job, first: 0, count: 1, later: 0, is_promised: false, deadline_ms: 0 };
        let refused = ledger.handle(submit, &[b"123456"]);
        assert_eq!(refused, [Effect::Refused(Refusal::Full(Kind::Bytes, RETRY_MS))]);
        let refused = ledger.handle(submit, &[&vec![0; BLOB_BYTES_MAX + 1]]);
        assert!(matches!(refused[..], [Effect::Refused(Refusal::Invalid(_))]), "{refused:?}");
        assert_eq!(ledger.ledger.bytes().0, 5);
    }

    #[test]
    fn a_ledger_that_results_have_overfilled_can_be_emptied() {
        let mut ledger = Twice::new(10);
        let spec = AccountSpec { key: 1, weight: 1, share_permille: 0, tasks_max: 100, running_max: 100 };
        let Effect::Account(account) = ledger.handle(Event::Account(spec), &[])[0] else { panic!("no account") };
        let shape = Shape { platform: Platform::LINUX_X86_64, cpus: 4, largest: 4, ..Shape::default() };
        let host = HostSpec { key: 9, account, shape, speed_permille: 1_000, is_fresh: true, is_attached: false };
        let Effect::Host(name) = ledger.handle(Event::Join(host), &[])[0] else { panic!("no host") };
        let job = ledger.job(account, b"12345");
        let submit = |first| Event::Submit { job, first, count: 1, later: 0, is_promised: false, deadline_ms: 0 };
        let task = ledger.handle(submit(0), &[]).iter().find_map(submitted).expect("it needs no bytes");
        ledger.handle(Event::Request { host: name, want: 1 }, &[]);
        let report = Report { instance: InstanceName { task, number: 0 }, outcome: Outcome::Done([1; 32]), cost_ms: 1 };
        ledger.handle(Event::Report { host: name, reports: &[report], want: 0 }, &[b"a long result"]);
        assert_eq!((ledger.ledger.bytes(), ledger.ledger.bytes_of(account)), ((18, 10), 18));
        assert_eq!(ledger.handle(submit(1), &[b"1"]), [Effect::Refused(Refusal::Full(Kind::Bytes, RETRY_MS))]);
        for event in [
            Event::Tick,
            Event::Leave(name),
            Event::Join(host),
            Event::Assimilated(&[task]),
            Event::CancelJob(job),
            Event::Forget(job),
        ] {
            let effects = ledger.handle(event, &[]);
            assert!(!matches!(effects[..], [Effect::Refused(_)]), "{event:?}: {effects:?}");
        }
        assert_eq!((ledger.ledger.bytes().0, ledger.ledger.bytes_of(account)), (0, 0));
    }
}

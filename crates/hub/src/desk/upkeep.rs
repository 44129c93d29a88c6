//! A hub's journal for those who run the hub: examined, cut down to one snapshot of all, brought up to the format of this version.
//!
//! To examine is to look and change nothing; a hub may go on with the journal meanwhile. The rest is for a journal that no hub has
//! open, and holds it so that none opens it.

use super::snapshots::save;
use super::start::{DeskError, Replay};
use base::Digest;
use std::convert::Infallible;
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use store::journal::{JournalError, Report, Seq};
use store::log::{Contents, Snapshot};
use store::upkeep::{Site, Upkeep};
use tasks::Ledger;
pub use tasks::{LOGIC_VERSION, SNAPSHOT_VERSION};

/// Most looks at a journal that is in use, where something looks wrong, and something else each time.
const LOOKS_MAX: usize = 8;
/// How many records are done between two words about it.
const TELL_EVERY: u64 = 4096;

/// What was found in a journal.
#[derive(Debug)]
pub struct Examined {
    /// What is stored, and which of that is not what was written.
    pub report: Report,
    /// The format of each snapshot; `None` if it cannot be read.
    pub formats: Vec<Option<u32>>,
    /// How many records were done again, after the newest whole snapshot.
    pub replayed: u64,
    /// What is whole and cannot be understood, or contradicts itself.
    pub contradictions: Vec<Wrong>,
    /// Whether this version of the hub starts from it; else why not, and what to do.
    pub start: Result<(), DeskError>,
}

/// Something that is wrong with a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// What is wrong, where, and what to do.
    pub message: String,
    /// The file, if it is in one, and where in it.
    pub place: Option<(PathBuf, u64)>,
    /// The record, or the last one of the snapshot, if that is known.
    pub record: Option<Seq>,
}

impl From<&JournalError> for Wrong {
    fn from(error: &JournalError) -> Self {
        let (place, record) = match error {
            JournalError::Damaged { path, offset, .. } => (Some((path.clone(), *offset)), None),
            JournalError::Newer { path, .. } => (Some((path.clone(), 0)), None),
            JournalError::DatabaseDamaged { seq, .. } => (None, Some(*seq)),
            JournalError::Missing { wanted, .. } => (None, Some(*wanted)),
            _ => (None, None),
        };
        Self { message: error.to_string(), place, record }
    }
}

impl From<&DeskError> for Wrong {
    fn from(error: &DeskError) -> Self {
        let record = match error {
            DeskError::Journal(error) => return error.into(),
            DeskError::Record { seq, .. } | DeskError::Snapshot { seq, .. } => Some(*seq),
            _ => None,
        };
        Self { message: error.to_string(), place: None, record }
    }
}

impl Examined {
    /// All that is wrong, each once. A journal that is for another version only has nothing wrong.
    pub fn wrong(&self) -> Vec<Wrong> {
        let start = self.start.as_ref().err().filter(|error| !error.is_of_version());
        let stored = self.report.wrong().map(Wrong::from);
        let mut all: Vec<Wrong> = Vec::new();
        for wrong in stored.chain(self.contradictions.iter().cloned()).chain(start.map(Wrong::from)) {
            if !all.contains(&wrong) {
                all.push(wrong);
            }
        }
        all
    }
}

/// What is being done, and how much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Everything is compared with its checksums.
    Checksums,
    /// The snapshot of this record is loaded.
    Snapshot(Seq),
    /// So many records of so many were done again.
    Records(u64, u64),
}

/// Looks at all of a journal. What looks wrong is believed once it is the same twice: a hub may go on with the journal meanwhile.
///
/// # Errors
/// [`DeskError::NoJournal`]; what the disk or the database said. What is wrong with the journal is no error.
pub fn examine(site: &Site, mut tell: impl FnMut(Stage)) -> Result<Examined, DeskError> {
    let mut before = Vec::new();
    let mut looks = 1;
    loop {
        let seen = look(site, &mut tell);
        let wrong = seen.as_ref().map_or_else(|error| vec![Wrong::from(error)], Examined::wrong);
        if wrong.is_empty() || wrong == before || looks == LOOKS_MAX {
            return seen;
        }
        (before, looks) = (wrong, looks + 1);
    }
}

fn look(site: &Site, tell: &mut impl FnMut(Stage)) -> Result<Examined, DeskError> {
    tell(Stage::Checksums);
    if !site.is_there()? {
        return Err(DeskError::NoJournal { place: site.to_string() });
    }
    let report = site.verify()?;
    let mut seen = Examined { report, formats: Vec::new(), replayed: 0, contradictions: Vec::new(), start: Ok(()) };
    let mut newest = None;
    let whole = seen.report.snapshots.iter().map(|snapshot| (snapshot.seq, snapshot.damage.is_none()));
    for (seq, is_whole) in whole.collect::<Vec<_>>() {
        if !is_whole {
            seen.formats.push(None);
            continue;
        }
        tell(Stage::Snapshot(seq));
        newest = Some(seq);
        let loaded = site.snapshot(seq).map_err(DeskError::from).and_then(load_any);
        match &loaded {
            Ok((_, ledger)) => seen.contradictions.extend(contradiction(ledger, seq)),
            Err(error) => seen.contradictions.push(error.into()),
        }
        seen.formats.push(loaded.ok().map(|(format, _)| format));
    }
    seen.start = site.contents(newest).map_err(DeskError::from).and_then(|contents| {
        let count = contents.last.0.saturating_sub(newest.unwrap_or_default().0);
        let state = State::of(contents, |done| {
            seen.replayed = done;
            if done.is_multiple_of(TELL_EVERY) {
                tell(Stage::Records(done, count));
            }
        })?;
        let Some(state) = state else { return Ok(()) };
        if seen.replayed > 0 {
            seen.contradictions.extend(contradiction(&state.ledger, state.last));
        }
        state.is_todays()
    });
    Ok(seen)
}

/// The ledger of a snapshot of any format that is known, and its format.
fn load_any(mut snapshot: Snapshot) -> Result<(u32, Ledger), DeskError> {
    let seq = snapshot.seq;
    Ledger::load_any(|room| snapshot.read(room)).map_err(|why| DeskError::Snapshot { seq, why })
}

/// A journal's ledger.
struct State {
    ledger: Ledger,
    /// The last record that it holds.
    last: Seq,
    /// The format of the snapshot that it was made from, if that is older than today's.
    older: Option<u32>,
}

impl State {
    /// As the journal has it; `None` if that is new. Records are done by today's rules, and formats change with the rules: those after an
    /// older snapshot are not done at all.
    fn of(contents: Contents, mut each: impl FnMut(u64)) -> Result<Option<Self>, DeskError> {
        let Contents { snapshot, mut records, last } = contents;
        let seq = snapshot.as_ref().map_or(Seq(0), |snapshot| snapshot.seq);
        let (format, ledger) = snapshot.map(load_any).transpose()?.unzip();
        let older = format.filter(|format| *format != SNAPSHOT_VERSION);
        if let Some(found) = older
            && let Some(record) = records.next()
        {
            return Err(DeskError::OlderWithRecords { seq, found, last, logic: record?.logic_version });
        }
        let mut replay = Replay::of(ledger);
        for (record, count) in records.zip(1..) {
            replay.take(&record?)?;
            each(count);
        }
        Ok(replay.ledger.map(|ledger| Self { ledger, last, older }))
    }

    /// Whether a hub of this version starts from it.
    fn is_todays(&self) -> Result<(), DeskError> {
        self.older.map_or(Ok(()), |found| Err(DeskError::Older { seq: self.last, found }))
    }
}

/// What contradicts itself in a table, if something does. Its checks are those that tests and simulations make: assertions.
fn contradiction(ledger: &Ledger, seq: Seq) -> Option<Wrong> {
    let payload = catch_unwind(AssertUnwindSafe(|| ledger.table().check_invariants())).err()?;
    let what = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
    let what = what.unwrap_or("it does not say what").replace('\n', ";");
    let message = format!(
        "the state after record {seq} contradicts itself ({what}): this is a bug of gleaner; keep a copy of the journal, and report it"
    );
    Some(Wrong { message, place: None, record: Some(seq) })
}

/// What came of cutting a journal down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pruned {
    /// The last record, which the snapshot holds.
    pub last: Seq,
    /// Bytes before and after.
    pub bytes: (u64, u64),
}

/// Writes a snapshot of all, reads it back, and removes what is older.
///
/// # Errors
/// [`Locked`](JournalError::Locked) and [`Held`](JournalError::Held) if a hub has the journal; as at a hub's start if it cannot be read. Then nothing is
/// removed.
pub fn prune(site: &Site) -> Result<Pruned, DeskError> {
    let (mut upkeep, state) = hold(site)?;
    let last = state.as_ref().map_or(Seq(0), |state| state.last);
    if let Some(state) = state {
        state.is_todays()?;
        put(&mut upkeep, &state.ledger)?;
        upkeep.remove_older()?;
    }
    Ok(Pruned { last, bytes: upkeep.bytes()? })
}

/// An upgrade of a journal: what it does, or would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upgrade {
    /// Nothing: a hub of this version starts from it.
    Needless,
    /// The snapshot of this record has an older format, and is written in this version's.
    Snapshot {
        /// Its last record.
        seq: Seq,
        /// The format that it has, or had.
        found: u32,
    },
}

/// What [`upgrade`] would do. Changes nothing; a hub may go on with the journal meanwhile.
///
/// # Errors
/// Those of [`upgrade`].
pub fn plan(site: &Site) -> Result<Upgrade, DeskError> {
    match examine(site, drop)?.start {
        Ok(()) => Ok(Upgrade::Needless),
        Err(DeskError::Older { seq, found }) => Ok(Upgrade::Snapshot { seq, found }),
        Err(error) => Err(error),
    }
}

/// Writes a snapshot of an older format in this version's, in its place once it was read back.
///
/// # Errors
/// [`DeskError::OlderWithRecords`] and [`DeskError::OtherLogic`] if another version has to be started first; [`Locked`](JournalError::Locked) and
/// [`Held`](JournalError::Held) if a hub has the journal; what is wrong with it. Then all stays as it was.
pub fn upgrade(site: &Site) -> Result<Upgrade, DeskError> {
    let (mut upkeep, state) = hold(site)?;
    let Some(State { ledger, last, older: Some(found) }) = state else { return Ok(Upgrade::Needless) };
    put(&mut upkeep, &ledger)?;
    Ok(Upgrade::Snapshot { seq: last, found })
}

/// Holds a journal, with what it has.
fn hold(site: &Site) -> Result<(Upkeep, Option<State>), DeskError> {
    if !site.is_there()? {
        return Err(DeskError::NoJournal { place: site.to_string() });
    }
    let (upkeep, contents) = Upkeep::open(site)?;
    Ok((upkeep, State::of(contents, drop)?))
}

/// Puts the snapshot of a ledger that is the state after the last record.
fn put(upkeep: &mut Upkeep, ledger: &Ledger) -> Result<(), DeskError> {
    let want = fingerprint(ledger);
    upkeep.put_snapshot(LOGIC_VERSION, &mut |out| save(ledger, out), |mut written| {
        let again = Ledger::load_saved(|room| written.read(room)).map_err(io::Error::other)?;
        if fingerprint(&again) == want {
            Ok(())
        } else {
            Err(io::Error::other("it is not what was written; this is a bug"))
        }
    })?;
    Ok(())
}

/// A digest of all that a ledger would save.
fn fingerprint(ledger: &Ledger) -> Digest {
    let mut all = Digest([0; 32]);
    let Ok(()) = ledger.save(|piece| -> Result<(), Infallible> {
        all = Digest::of(&[all.0, Digest::of(piece).0].concat());
        Ok(())
    });
    all
}

#[cfg(test)]
mod tests;

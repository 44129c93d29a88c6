//! Looking at a journal in a database without its lease, and without changing anything. All is read in one transaction, which sees the
//! tables as they were when it began: a hub that uses them is no hindrance, and has none.

use super::Place;
use super::engine::Engine;
use super::lease::Keeper;
use super::read::{SnapshotRow, View};
use super::schema::{self, Unready};
use super::session::Session;
use crate::journal::{JournalError, Report, Seq, SnapshotReport};
use crate::log;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Least time for an answer: nobody waits for a lease here.
const LIMIT_MIN: Duration = Duration::from_secs(10);

/// Whether there is a journal.
///
/// # Errors
/// [`JournalError::Database`], [`JournalError::NewerTables`].
pub fn is_there(place: &Place) -> Result<bool, JournalError> {
    Ok(reader(place)?.is_some())
}

/// As [`crate::journal::verify`], of a database. There are no segments.
///
/// # Errors
/// As [`is_there`]. Damage is told in the report.
pub fn verify(place: &Place) -> Result<Report, JournalError> {
    let Some(keeper) = reader(place)? else { return Ok(Report::default()) };
    let view = View::open(&keeper)?;
    let mut report = Report { is_there: true, identity: base::digest::hex(&keeper.identity.0), ..Report::default() };
    let rows = view.snapshots()?;
    let snapshots = rows.iter().map(|row| snapshot_report(&view, row)).collect::<Result<Vec<_>, _>>()?;
    report.bytes = view.sizes(0)?.0 + rows.iter().map(|row| row.bytes as u64).sum::<u64>();
    let oldest = snapshots.iter().find(|snapshot| snapshot.damage.is_none()).map_or(0, |snapshot| snapshot.seq.0);
    report.epoch = snapshots.iter().map(|snapshot| snapshot.epoch).max().unwrap_or(0);
    report.snapshots = snapshots;
    match read_all(&view, oldest, &mut report) {
        Err(error @ JournalError::DatabaseDamaged { .. }) => report.damage = Some(error),
        outcome => outcome?,
    }
    Ok(report)
}

/// As [`crate::journal::snapshot`], of a database.
///
/// # Errors
/// As [`is_there`]; [`JournalError::DatabaseDamaged`].
pub fn snapshot(place: &Place, seq: Seq) -> Result<log::Snapshot, JournalError> {
    let view = view(place)?;
    let row = whole(&view, seq)?;
    // No records are asked for.
    view.after(Some(row), 0)?.snapshot.ok_or_else(|| view.damaged(seq.0, "the snapshot is gone"))
}

/// As [`crate::journal::contents`], of a database.
///
/// # Errors
/// As [`is_there`]; [`JournalError::DatabaseDamaged`], also from the records.
pub fn contents(place: &Place, snapshot: Option<Seq>) -> Result<log::Contents, JournalError> {
    let view = view(place)?;
    let row = snapshot.map(|seq| whole(&view, seq)).transpose()?;
    view.after(row, view.last()?)
}

fn view(place: &Place) -> Result<View, JournalError> {
    View::open(&reader(place)?.ok_or_else(|| place.failed("read", "there is none"))?)
}

/// The row of a snapshot that is whole.
fn whole(view: &View, seq: Seq) -> Result<SnapshotRow, JournalError> {
    let row = view.snapshots()?.into_iter().find(|row| row.seq as u64 == seq.0);
    let row = row.ok_or_else(|| view.damaged(seq.0, "the snapshot is gone"))?;
    view.whole(row)?;
    Ok(row)
}

/// What reads, if there is a journal.
fn reader(place: &Place) -> Result<Option<Arc<Keeper>>, JournalError> {
    let engine = Engine::start().map_err(|error| place.failed("start a runtime for", error))?;
    let asked = place.clone();
    let found = engine.wait(async move {
        let limit = asked.lease().max(LIMIT_MIN);
        let mut session = Session::open(&asked, "gleaner journal", limit).await.map_err(|why| why.to_string())?;
        Ok(match schema::find(&mut session, &asked).await {
            Ok(identity) => Ok(identity),
            Err(Unready::Lost(why)) => return Err(why),
            Err(Unready::Final(error)) => Err(error),
        })
    });
    let failed = |why: String| place.failed("read", why);
    let identity = found.unwrap_or_else(|| Err("a bug".into())).map_err(failed)??;
    Ok(identity.map(|identity| Keeper::of_reader(place, identity, engine)))
}

fn snapshot_report(view: &View, row: &SnapshotRow) -> Result<SnapshotReport, JournalError> {
    let damage = match view.whole(*row) {
        Err(error @ JournalError::DatabaseDamaged { .. }) => Some(error),
        outcome => outcome.map(|()| None)?,
    };
    Ok(SnapshotReport {
        path: PathBuf::from(format!("snapshot {}", row.seq)),
        seq: Seq(row.seq as u64),
        logic_version: row.logic_version as u32,
        epoch: row.epoch as u64,
        bytes: row.bytes as u64,
        damage,
    })
}

/// All records that are stored, and that those after the oldest whole snapshot are there.
fn read_all(view: &View, oldest: u64, report: &mut Report) -> Result<(), JournalError> {
    let (first, last) = (view.first()?, view.last()?);
    (report.first, report.last) = (Seq(first), Seq(last.max(oldest)));
    if last > oldest && first > oldest + 1 {
        return Err(view.damaged(first, "the records before this one are missing"));
    }
    for entry in view.records(first.max(1) - 1, last)? {
        report.epoch = report.epoch.max(entry?.epoch);
    }
    Ok(())
}

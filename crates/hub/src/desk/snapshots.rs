//! Keeping the journal short: now and then a second ledger is made from what is on the disk, written out as a snapshot, and dropped again.
//! The one that works is not looked at and not held up; the thread that does it takes only time that nobody else wants.

use super::Desk;
use super::start::{DeskError, again};
use std::convert::Infallible;
use std::io::Write;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::Duration;
use store::journal::JournalError;
use store::log::Log;
use tasks::{LOGIC_VERSION, Ledger};

/// How much may be in the journal behind its newest snapshot, in bytes: what a start reads.
const BYTES_MAX: u64 = 64 << 20;
/// How often it is looked.
const LOOK: Duration = Duration::from_secs(2);

impl Desk {
    /// Sees to it, from now on, that the journal stays short.
    pub(super) fn keep_short(&mut self) {
        let Some(journal) = &self.journal else { return };
        let (journal, (works, ends)) = (Arc::downgrade(journal), mpsc::channel());
        self.works = Some(works);
        let spawned = std::thread::Builder::new().name("snapshots".into()).spawn(move || run(&journal, &ends));
        if let Err(error) = spawned {
            tracing::error!(%error, "the journal will grow: there is no thread for snapshots");
        }
    }

    /// Writes a snapshot of everything, so that the next start has nothing to do, and may be of another version.
    pub fn close(&self) {
        if let Some(journal) = &self.journal {
            let _ = journal.flush_wait(self.taken, Duration::from_secs(5));
            report(snapshot(journal));
        }
    }
}

fn run(journal: &Weak<Log>, ends: &Receiver<Infallible>) {
    // A thread of its own has a priority of its own.
    let _ = rustix::process::nice(19);
    while ends.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
        let Some(journal) = journal.upgrade() else { return };
        let status = journal.status();
        if status.bytes_after_snapshot > BYTES_MAX || status.is_tight {
            report(snapshot(&journal));
        }
    }
}

fn report(made: Result<(), DeskError>) {
    match made {
        Ok(()) | Err(DeskError::Journal(JournalError::SnapshotBusy)) => {}
        Err(error) => tracing::error!(%error, "no snapshot of the journal was written: it grows"),
    }
}

/// Writes a snapshot of what is durable, and frees what is before it.
fn snapshot(journal: &Log) -> Result<(), DeskError> {
    if let Some(durable) = journal.durable()? {
        let last = durable.last;
        let Some(ledger) = again(durable)? else { return Ok(()) };
        journal.write_snapshot(last, LOGIC_VERSION, &mut |out| save(&ledger, out))?;
    }
    // Also if there is nothing new: after the last snapshot it may have failed.
    journal.prune()?;
    Ok(())
}

/// Writes a ledger out.
pub(super) fn save(ledger: &Ledger, out: &mut dyn Write) -> std::io::Result<()> {
    ledger.save(|piece| out.write_all(piece))
}

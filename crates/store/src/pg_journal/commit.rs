//! Batches that are made durable: each in a transaction of its own.
//!
//! A batch is one statement, which is one transaction: it is there with its epoch checked, or not at all. It is named by its first
//! record and its epoch, which no two batches share. If the connection is lost before the answer, the batch may be there or may
//! still come: so after that it is looked for before it is written again; and should the lost session commit it between the two,
//! the second insertion finds the first by the table's key, and it is looked for once more.

use super::lease::{Keeper, fenced, pause};
use super::schema::batch_sum;
use super::session::{Session, Trouble};
use super::{Shared, Told};
use crate::intake::Written;
use crate::journal::{JournalError, Seq};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use tokio_postgres::error::SqlState;

const WRITE: &str = fenced!(
    "INSERT INTO {s}.batches (first, count, epoch, logic_version, bytes, checksum) \
     SELECT $2, $3, $1, $4, $5, $6 FROM fence"
);
const FIND: &str = "SELECT epoch, checksum FROM {s}.batches WHERE first = $1";

/// The committing side of a journal.
pub(crate) struct Committer {
    shared: Arc<Shared>,
    keeper: Arc<Keeper>,
    session: Option<Session>,
}

/// A batch as a row of its table.
struct Row<'a> {
    first: i64,
    count: i32,
    logic_version: i64,
    records: &'a [u8],
    checksum: Vec<u8>,
}

/// What came of one try.
enum Try {
    Durable,
    Fenced,
    /// Somebody else's batch has this number.
    Taken,
    Failed(Trouble),
}

impl Committer {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { keeper: shared.keeper.clone(), shared, session: None }
    }

    /// Commits until the journal stops or dies.
    pub fn run(mut self, told: &Told) {
        let shared = self.shared.clone();
        let Shared { keeper, options, .. } = &*shared;
        shared.intake.run(told, |batch| {
            let begun = Instant::now();
            let records = batch.records();
            let (first, count) = (batch.first as i64, batch.count as i32);
            let logic_version = i64::from(options.logic_version);
            let numbers = [first, count.into(), keeper.epoch as i64, logic_version];
            let checksum = batch_sum(&keeper.identity, numbers, records).to_vec();
            self.commit(&Row { first, count, logic_version, records, checksum })?;
            let len = records.len() as u64;
            shared.intake.bytes.fetch_add(len, Relaxed);
            shared.bytes_after_snapshot.fetch_add(len, Relaxed);
            Ok(Written { time: begun.elapsed(), end: 0 })
        });
    }

    /// Makes a batch durable. Lost connections are made again for as long as a lease lasts, and the lease with them.
    fn commit(&mut self, batch: &Row<'_>) -> Result<(), JournalError> {
        let give_up = Instant::now() + self.keeper.place.lease;
        let keeper = self.keeper.clone();
        let (mut is_doubtful, mut tries) = (false, 0);
        loop {
            let trying = attempt(&keeper, &mut self.session, batch, is_doubtful);
            let tried = keeper.engine.handle().block_on(keeper.unless_over(trying));
            self.shared.intake.check_alive()?;
            let why = match tried.unwrap_or_else(|| Try::Failed(Trouble::Lost("the lease has ended".into()))) {
                Try::Durable => return Ok(()),
                Try::Fenced => return Err(keeper.fenced()),
                Try::Taken => {
                    let what = "another batch has its number, though no other hub has taken over";
                    let (place, seq) = (keeper.place.to_string(), Seq(batch.first as u64));
                    return Err(JournalError::DatabaseDamaged { place, seq, what });
                }
                Try::Failed(Trouble::Refused(SqlState::UNIQUE_VIOLATION, why)) => {
                    is_doubtful = true;
                    why
                }
                Try::Failed(trouble) => {
                    is_doubtful |= matches!(trouble, Trouble::Lost(_));
                    self.session = None;
                    trouble.to_string()
                }
            };
            tracing::warn!(place = %keeper.place, why, "the journal could not commit; trying again");
            let again = Instant::now() + pause(tries);
            tries += 1;
            self.shared.intake.pause_until(again)?;
            if again >= give_up {
                return Err(keeper.place.failed("write a batch to", why));
            }
        }
    }
}

async fn attempt(keeper: &Keeper, session: &mut Option<Session>, batch: &Row<'_>, is_doubtful: bool) -> Try {
    match write(keeper, session, batch, is_doubtful).await {
        Ok(done) => done,
        Err(trouble) => Try::Failed(trouble),
    }
}

async fn write(
    keeper: &Keeper,
    session: &mut Option<Session>,
    batch: &Row<'_>,
    is_doubtful: bool,
) -> Result<Try, Trouble> {
    let session = match session {
        Some(session) => session,
        None => session.insert(keeper.session().await?),
    };
    let epoch = keeper.epoch as i64;
    if is_doubtful {
        let found = session.rows(FIND, &[&batch.first]).await?;
        if let Some(row) = found.first() {
            if (row.get::<_, i64>(0), row.get::<_, &[u8]>(1)) != (epoch, &batch.checksum[..]) {
                return Ok(if keeper.confirm(session).await? { Try::Taken } else { Try::Fenced });
            }
            // What can be seen may wait for a replica still; what is committed after it waits for both.
            return Ok(if keeper.confirm(session).await? { Try::Durable } else { Try::Fenced });
        }
    }
    let Row { first, count, logic_version, records, checksum } = batch;
    match session.execute(WRITE, &[&epoch, first, count, logic_version, records, checksum]).await? {
        0 => Ok(Try::Fenced),
        _ => Ok(Try::Durable),
    }
}

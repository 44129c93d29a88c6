//! The thread that commits: whatever has gathered while the last transaction was committed is the next one.
//!
//! A batch is one statement, which is one transaction: it is there with its epoch checked, or not at all. It is named by its first
//! record and its epoch, which no two batches share. If the connection is lost before the answer, the batch may be there or may
//! still come: so after that it is looked for before it is written again; and should the lost session commit it between the two,
//! the second insertion finds the first by the table's key, and it is looked for once more.

use super::lease::{Keeper, fenced, pause};
use super::schema::batch_sum;
use super::session::{Session, Trouble};
use super::{Shared, Told};
use crate::journal::format::BATCH_HEADER_BYTES;
use crate::journal::shared::{wait, wait_until};
use crate::journal::{JournalError, Seq};
use crate::lock;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
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
    told: Told,
    session: Option<Session>,
    /// The vector that was written last, to be filled again.
    emptied: Vec<u8>,
}

/// What is committed at once.
struct Batch {
    /// Room for a header, which is not used here, and records.
    bytes: Vec<u8>,
    first: i64,
    count: i32,
    logic_version: i64,
    checksum: Vec<u8>,
}

impl Batch {
    fn records(&self) -> &[u8] {
        &self.bytes[BATCH_HEADER_BYTES..]
    }
}

/// What came of one try.
enum Try {
    Durable,
    Fenced,
    /// Somebody else's batch has this number.
    Taken,
    Failed(Trouble),
}

/// Ends the journal if the thread that holds it panics.
struct EndOnPanic(Arc<Shared>);

impl Drop for EndOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.kill(JournalError::Panicked);
        }
    }
}

impl Committer {
    pub fn new(shared: Arc<Shared>, told: Told) -> Self {
        let keeper = shared.keeper.clone();
        Self { shared, keeper, told, session: None, emptied: Vec::new() }
    }

    /// Commits until the journal stops or dies.
    pub fn run(mut self) {
        let _end = EndOnPanic(self.shared.clone());
        while let Some(batch) = self.gather() {
            let begun = Instant::now();
            match self.commit(&batch) {
                Ok(()) => self.finish(batch, begun.elapsed()),
                Err(error) => drop(self.shared.kill(error)),
            }
        }
        let dead = lock(&self.shared.queue).dead.clone();
        if let Some(cause) = dead {
            (self.told)(Err(cause));
        }
    }

    /// Waits for records; `None` if there will be none.
    fn gather(&mut self) -> Option<Batch> {
        let mut queue = lock(&self.shared.queue);
        while queue.dead.is_none() && !queue.is_due() && !queue.is_stopping {
            queue.is_idle = true;
            queue = wait(&self.shared.gathered, queue);
        }
        (queue.is_idle, queue.is_wanted) = (false, false);
        if queue.dead.is_some() || queue.count == 0 {
            return None;
        }
        self.emptied.resize(BATCH_HEADER_BYTES, 0);
        let bytes = std::mem::replace(&mut queue.batch, std::mem::take(&mut self.emptied));
        let count = std::mem::take(&mut queue.count);
        queue.writing = bytes.len() - BATCH_HEADER_BYTES;
        let (first, count) = ((queue.next - u64::from(count)) as i64, count as i32);
        drop(queue);
        let logic_version = i64::from(self.shared.options.logic_version);
        let numbers = [first, count.into(), self.keeper.epoch as i64, logic_version];
        let checksum = batch_sum(&self.keeper.identity, numbers, &bytes[BATCH_HEADER_BYTES..]).to_vec();
        Some(Batch { bytes, first, count, logic_version, checksum })
    }

    /// Makes a batch durable. Lost connections are made again for as long as a lease lasts, and the lease with them.
    fn commit(&mut self, batch: &Batch) -> Result<(), JournalError> {
        let give_up = Instant::now() + self.keeper.place.lease;
        let keeper = self.keeper.clone();
        let (mut is_doubtful, mut tries) = (false, 0);
        loop {
            let trying = attempt(&keeper, &mut self.session, batch, is_doubtful);
            let tried = keeper.engine.handle().block_on(keeper.unless_over(trying));
            lock(&self.shared.queue).check_alive()?;
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
            let mut queue = lock(&self.shared.queue);
            while let Some(woken) = wait_until(&self.shared.progress, queue, again) {
                queue = woken;
                queue.check_alive()?;
            }
            if again >= give_up {
                return Err(keeper.place.failed("write a batch to", why));
            }
        }
    }

    /// Tells that a batch is durable.
    fn finish(&mut self, mut batch: Batch, time: Duration) {
        let (len, last) = (batch.records().len() as u64, batch.first as u64 + batch.count as u64 - 1);
        self.shared.bytes.fetch_add(len, Relaxed);
        self.shared.bytes_after_snapshot.fetch_add(len, Relaxed);
        batch.bytes.truncate(BATCH_HEADER_BYTES);
        self.emptied = batch.bytes;
        let mut queue = lock(&self.shared.queue);
        queue.syncs.add(time);
        queue.writing = 0;
        if queue.dead.is_some() {
            return;
        }
        queue.durable = last;
        drop(queue);
        self.shared.progress.notify_all();
        (self.told)(Ok(Seq(last)));
    }
}

async fn attempt(keeper: &Keeper, session: &mut Option<Session>, batch: &Batch, is_doubtful: bool) -> Try {
    match write(keeper, session, batch, is_doubtful).await {
        Ok(done) => done,
        Err(trouble) => Try::Failed(trouble),
    }
}

async fn write(
    keeper: &Keeper,
    session: &mut Option<Session>,
    batch: &Batch,
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
    let Batch { first, count, logic_version, checksum, .. } = batch;
    let records = batch.records();
    match session.execute(WRITE, &[&epoch, first, count, logic_version, &records, checksum]).await? {
        0 => Ok(Try::Fenced),
        _ => Ok(Try::Durable),
    }
}

//! Batch jobs: commands that need no caller. They are handed to the hub, which decides their order and remembers them; the daemon
//! makes the launches and puts the results into place, for it owns the files.
//!
//! What was submitted and how each task ended is in a [`folder`] for each job, in a [`log`] for the most part, written before anybody is told: a daemon that is
//! started again goes on where the last one was ([`drive`]). A task may run more than once; its changes are committed once ([`collect`]).
//!
//! All tasks of a job see the files as they were when it began, or when the daemon was started since. What a task changed that ran for a
//! daemon which is no more is committed only where nothing else has changed since the job began; else it is kept for `gleaner recover`.
//!
//! Where tasks come after others of the job ([`order`]) each sees the files as they are when it is launched, and the hub is given it when
//! those have ended well. What one changed that ran for a daemon which is no more is committed where nothing else has changed since its
//! launch; else it is run again.

pub mod answer;
mod assimilate;
mod collect;
mod compare;
mod drive;
pub mod folder;
mod hook;
pub mod job;
mod launch;
mod locks;
mod log;
mod order;
mod reason;
pub mod waiting;

use crate::daemon::Daemon;
use crate::report::BatchLine;
use crate::serve::blocking;
use crate::small_file;
use base::BatchId;
use job::Job;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use wire::lock;

/// Most jobs that are not over.
pub const OPEN_MAX: usize = 256;
/// Jobs that are over and still known; beyond, the oldest is forgotten, with its tasks' outputs.
pub const OVER_MAX: usize = 1000;
/// Longest line of a job that is over.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// This account's batch jobs.
#[derive(Debug, Default)]
pub struct Batches {
    folder: PathBuf,
    jobs: Mutex<Jobs>,
    /// The job that is over and was looked at last: who pages through its tasks does not have its log read each time.
    shown: Mutex<Option<Arc<Job>>>,
}

#[derive(Debug, Default)]
struct Jobs {
    open: BTreeMap<BatchId, Arc<Job>>,
    over: BTreeMap<BatchId, BatchLine>,
    /// Being submitted just now.
    drafts: BTreeSet<BatchId>,
    /// Their submitters wait for the hub's word.
    awaited: BTreeSet<BatchId>,
}

/// A job that is known.
#[derive(Debug)]
pub enum Found {
    /// It is not over.
    Open(Arc<Job>),
    /// It is over.
    Over(BatchId, Box<BatchLine>),
}

impl Found {
    /// It in a line.
    fn line(self) -> BatchLine {
        match self {
            Found::Open(job) => job.line(),
            Found::Over(_, line) => *line,
        }
    }
}

impl Batches {
    /// The jobs in `folder`, which need not be there.
    pub fn load(folder: &Path) -> Self {
        let mut jobs = Jobs::default();
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let id = entry.file_name().to_str().and_then(BatchId::from_hex);
            let Some(id) = id else { continue };
            load_one(&mut jobs, id, &entry.path());
        }
        Self { folder: folder.to_owned(), jobs: Mutex::new(jobs), shown: Mutex::default() }
    }

    /// The jobs that are not over go on.
    pub fn start(daemon: &Arc<Daemon>) {
        for job in lock(&daemon.batches.jobs).open.values() {
            tokio::spawn(drive::run(daemon.clone(), job.clone()));
        }
    }

    /// How many are not over.
    pub fn open(&self) -> usize {
        lock(&self.jobs).open.len()
    }

    /// All of them, newest first.
    pub fn lines(&self) -> Vec<BatchLine> {
        let jobs = lock(&self.jobs);
        let open = jobs.open.values().map(|job| job.line());
        let mut lines: Vec<BatchLine> = open.chain(jobs.over.values().cloned()).collect();
        lines.sort_by(|one, other| (other.submitted_ms, &other.job).cmp(&(one.submitted_ms, &one.job)));
        lines
    }

    /// The jobs whose numbers start with these digits.
    pub fn find(&self, digits: &str) -> Vec<Found> {
        let jobs = lock(&self.jobs);
        let fits = |id: &BatchId| id.to_hex().starts_with(digits);
        let open = jobs.open.iter().filter(|(id, _)| fits(id)).map(|(_, job)| Found::Open(job.clone()));
        let over = jobs.over.iter().filter(|(id, _)| fits(id));
        open.chain(over.map(|(id, line)| Found::Over(*id, Box::new(line.clone())))).collect()
    }

    /// A job that is over, as its folder tells it. Blocks.
    pub(crate) fn read(&self, id: BatchId) -> io::Result<Arc<Job>> {
        if let Some(job) = lock(&self.shown).as_ref().filter(|job| job.id() == id) {
            return Ok(job.clone());
        }
        let job = Job::load(&self.folder_of(id))?;
        *lock(&self.shown) = Some(job.clone());
        Ok(job)
    }

    /// Where a job is kept.
    pub fn folder_of(&self, id: BatchId) -> PathBuf {
        self.folder.join(id.to_hex())
    }

    /// Whether a job has ended well; `None`: it has not ended.
    pub(crate) fn ended_well(&self, id: BatchId) -> Option<bool> {
        let jobs = lock(&self.jobs);
        match jobs.open.contains_key(&id) {
            true => None,
            false => Some(jobs.over.get(&id).is_some_and(|line| line.failed == 0 && line.done == line.tasks)),
        }
    }

    /// Takes a job that was submitted, and sets it going.
    fn begin(daemon: &Arc<Daemon>, job: &Arc<Job>) {
        let mut jobs = lock(&daemon.batches.jobs);
        jobs.open.insert(job.id(), job.clone());
        jobs.awaited.insert(job.id());
        tokio::spawn(drive::run(daemon.clone(), job.clone()));
    }

    /// Nobody waits any more for what the hub says of a new job.
    fn stop_waiting(&self, id: BatchId) {
        lock(&self.jobs).awaited.remove(&id);
    }

    /// The hub refuses a job. If its submitter still waits and nothing of it was taken, it is as if there had never been one: true.
    async fn is_refused(&self, job: &Arc<Job>, why: &str) -> bool {
        {
            let mut jobs = lock(&self.jobs);
            if job.count_at_hub() > 0 || !jobs.awaited.remove(&job.id()) {
                return false;
            }
            jobs.open.remove(&job.id());
        }
        let folder = job.folder().to_owned();
        if let Some(Err(error)) = blocking(move || folder::remove(&folder)).await {
            tracing::warn!(%error, "a job that was refused could not be removed");
        }
        job.refuse(why.to_owned());
        true
    }

    /// A job is over: its line is kept, and the oldest ones go.
    async fn is_over(&self, job: &Arc<Job>) {
        let line = job.line();
        let goes: Vec<PathBuf> = {
            let mut jobs = lock(&self.jobs);
            jobs.open.remove(&job.id());
            jobs.over.insert(job.id(), line.clone());
            let mut by_age: Vec<(i64, BatchId)> = jobs.over.iter().map(|(id, line)| (line.submitted_ms, *id)).collect();
            by_age.sort();
            by_age.truncate(by_age.len().saturating_sub(OVER_MAX));
            by_age.iter().for_each(|(_, id)| drop(jobs.over.remove(id)));
            let is_gone = |shown: &mut Arc<Job>| by_age.iter().any(|(_, id)| *id == shown.id());
            drop(lock(&self.shown).take_if(is_gone));
            by_age.into_iter().map(|(_, id)| self.folder_of(id)).collect()
        };
        let path = job.folder().join(OVER);
        let kept = blocking(move || {
            small_file::write(&path, &serde_json::to_vec(&line)?)?;
            goes.iter().try_for_each(|folder| folder::remove(folder))
        });
        job.is_over();
        if let Some(Err(error)) = kept.await {
            tracing::info!(%error, "that a job is over is found out again by the next daemon");
        }
    }
}

/// In the folder of a job that is over: its line.
const OVER: &str = "over.json";

fn load_one(jobs: &mut Jobs, id: BatchId, folder: &Path) {
    let line = small_file::read(&folder.join(OVER), LINE_BYTES_MAX).ok();
    if let Some(line) = line.and_then(|bytes| serde_json::from_slice::<BatchLine>(&bytes).ok()) {
        jobs.over.insert(id, line);
        return;
    }
    match Job::load(folder) {
        Ok(job) => drop(jobs.open.insert(id, job)),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !folder.join(folder::JOB).exists() => {
            // Its submission was broken off: nobody was told that there is such a job.
            if let Err(error) = folder::remove(folder) {
                tracing::warn!(%error, "what is left of a submission could not be removed");
            }
        }
        Err(error) => {
            tracing::error!(folder = %folder.display(), %error, "a job cannot be read, and does not go on");
            jobs.over.insert(id, damaged(id, folder, &error));
        }
    }
}

/// A job whose folder cannot be read: nothing of it is run.
fn damaged(id: BatchId, folder: &Path, error: &io::Error) -> BatchLine {
    let changed = std::fs::metadata(folder).and_then(|found| found.modified()).ok();
    let since_1970 = changed.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok()).unwrap_or_default();
    let (folder, changed_ms) = (folder.display().to_string(), since_1970.as_millis() as i64);
    BatchLine {
        submitted_ms: changed_ms,
        ended_ms: Some(changed_ms),
        job: id.to_hex(),
        state: "damaged".into(),
        problem: Some(format!("{folder} cannot be read ({error}): submit it anew, and remove that folder")),
        folder,
        ..BatchLine::default()
    }
}

/// A job in the making: `None` for its place if there is one of this name already.
enum Reserved {
    New,
    Known,
    Crowded(String),
}

impl Batches {
    fn reserve(&self, id: BatchId) -> Reserved {
        let mut jobs = lock(&self.jobs);
        if jobs.open.contains_key(&id) || jobs.over.contains_key(&id) {
            return Reserved::Known;
        }
        if jobs.open.len() + jobs.drafts.len() >= OPEN_MAX {
            return Reserved::Crowded(format!("{OPEN_MAX} jobs are not over yet: wait until one is, or cancel one"));
        }
        match jobs.drafts.insert(id) {
            true => Reserved::New,
            false => Reserved::Crowded("a job with this key is being submitted just now".into()),
        }
    }

    fn give_back(&self, id: BatchId) {
        lock(&self.jobs).drafts.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::folder::tests::{spec_of, task};
    use super::folder::{Draft, Spec};
    use super::*;

    fn place(above: &Path, number: u128) -> (BatchId, PathBuf) {
        (BatchId(number), above.join(BatchId(number).to_hex()))
    }

    fn make(above: &Path, number: u128, submitted_ms: i64) {
        let (id, folder) = place(above, number);
        let mut spec: Spec = spec_of(1);
        (spec.batch.id, spec.submitted_ms) = (id, submitted_ms);
        let mut draft = Draft::begin(&folder).unwrap();
        draft.add(&[task("a")]).unwrap();
        draft.finish(&spec).unwrap();
    }

    #[tokio::test]
    async fn jobs_are_found_again_and_the_broken_off_removed() {
        let above = tempfile::tempdir().unwrap();
        make(above.path(), 0xa1 << 120, 5);
        make(above.path(), 0xa2 << 120, 6);
        let (_, broken) = place(above.path(), 3);
        std::fs::create_dir(&broken).unwrap();
        let batches = Batches::load(above.path());
        assert!(!broken.exists());
        let ids =
            |batches: &Batches| batches.lines().into_iter().map(|line| line.job[..2].to_owned()).collect::<Vec<_>>();
        assert_eq!(ids(&batches), ["a2", "a1"]);
        assert_eq!((batches.find("a").len(), batches.find("a1").len(), batches.find("b").len()), (2, 1, 0));
        let Some(Found::Open(job)) = batches.find("a1").pop() else { panic!("it is not over") };
        assert_eq!(batches.ended_well(job.id()), None);
        job.collected().unwrap();
        batches.is_over(&job).await;
        assert_eq!(batches.ended_well(job.id()), Some(false), "its task never ran");
        let again = Batches::load(above.path());
        assert_eq!((again.open(), ids(&again)), (1, vec!["a2".into(), "a1".into()]));
        assert!(matches!(again.find("a1").pop(), Some(Found::Over(_, line)) if line.is_over()));
        let (one, other) = (again.read(job.id()).unwrap(), again.read(job.id()).unwrap());
        assert!(Arc::ptr_eq(&one, &other) && one.is_collected(), "its log is read once");
    }

    #[test]
    fn a_name_is_taken_once() {
        let above = tempfile::tempdir().unwrap();
        make(above.path(), 7, 5);
        let batches = Batches::load(above.path());
        assert!(matches!(batches.reserve(BatchId(7)), Reserved::Known));
        assert!(matches!(batches.reserve(BatchId(8)), Reserved::New));
        assert!(matches!(batches.reserve(BatchId(8)), Reserved::Crowded(_)));
        batches.give_back(BatchId(8));
        assert!(matches!(batches.reserve(BatchId(8)), Reserved::New));
    }
}

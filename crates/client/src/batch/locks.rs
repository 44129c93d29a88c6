//! Locks of batch tasks. A task has them until its result is in place, or until it has none; all runs of it share them, for only one
//! result counts. Where they are let go while a run may still count, as when its job is given up and the hub is away, what that run makes is
//! not trusted.
//!
//! A task that meets a lock which others have, or files that others changed before it had its lock, ends and begins again: then it has
//! the lock from its start, and sees the files as they are. Should the daemon end meanwhile, its locks are lost, and what the task
//! made is not trusted.

use super::drive::{LIMIT_APART_MS, Way, time_limit};
use super::job::Job;
use crate::locks::{Asked, Locked, Locks, sees_what_is_there, was_there};
use crate::plan::Plan;
use crate::serve::blocking;
use crate::views::{Counted, Seen};
use base::TreePath;
use base::path::printable;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wire::lock;
use wire::message::LockRequest;
use wire::message::work::Place;

/// What the tasks of a job have locked, and wait for.
#[derive(Debug, Default)]
pub(super) struct JobLocks(Mutex<HashMap<u32, Arc<Shared>>>);

/// What the runs of one task share.
#[derive(Debug, Default)]
struct Shared {
    held: Mutex<Locks>,
    asked: Mutex<Asked>,
    wanted: Mutex<Option<LockRequest>>,
    holders: Mutex<Holders>,
}

/// The runs that have used what is held and of which it is not known that nothing comes, and when the last of them began to.
#[derive(Debug, Default)]
struct Holders {
    runs: BTreeSet<u32>,
    last: Option<Instant>,
    /// One has begun again for a lock.
    have_begun_again: bool,
}

/// A run's part in its task's locks.
#[derive(Clone)]
pub(super) struct TaskLocks {
    job: Arc<Job>,
    index: u32,
    number: u32,
    shared: Arc<Shared>,
}

impl JobLocks {
    /// The task has ended, or begins again.
    pub fn let_go(&self, index: u32) {
        lock(&self.0).remove(&index);
    }

    /// Nothing more comes of the job.
    pub fn let_go_all(&self) {
        lock(&self.0).clear();
    }

    /// The hub is away, and no launch is under way. Lets go for tasks whose job is given up, and for those whose runs the hub has ended by
    /// now, wherever it is: others wait for these locks.
    pub fn give_up(&self, job: &Job) {
        let is_cancelled = job.wanted().borrow().cancelled.is_some();
        let limit = time_limit(&job.spec.batch) + Duration::from_millis(LIMIT_APART_MS);
        let tasks: Vec<(u32, Arc<Shared>)> =
            lock(&self.0).iter().map(|(index, shared)| (*index, shared.clone())).collect();
        for (index, shared) in tasks {
            let is_late = lock(&shared.holders).last.is_none_or(|last| last.elapsed() > limit);
            // What is being put into place is not broken off, and ends soon.
            if (is_cancelled || is_late) && !job.is_being_taken(index) {
                let why = if is_cancelled { "its job was given up" } else { "it could not run any longer" };
                shared.let_go(job, index, &format!("{why} while the hub was away"));
            }
        }
    }

    /// What the task had locked before it was there, and somebody has made here meanwhile.
    pub fn overtaken(&self, index: u32) -> Option<TreePath> {
        let shared = lock(&self.0).get(&index).cloned()?;
        lock(&shared.held).overtaken().cloned()
    }

    /// What the task has locked.
    pub fn locked(&self, index: u32) -> Locked {
        let shared = lock(&self.0).get(&index).cloned();
        shared.map(|shared| lock(&shared.held).locked()).unwrap_or_default()
    }
}

impl Shared {
    /// Lets go. What comes of runs that had these locks is not trusted.
    fn let_go(&self, job: &Job, index: u32, why: &str) {
        let Some(path) = lock(&self.held).paths().next().cloned() else { return };
        let why = format!("{why}, and the lock on {path} was let go: run it again");
        let runs = std::mem::take(&mut lock(&self.holders).runs);
        runs.into_iter().for_each(|number| job.distrust(index, number, &why));
        *lock(&self.held) = Locks::default();
    }
}

impl TaskLocks {
    /// Of a run that is about to be launched.
    pub fn of(job: &Arc<Job>, place: &Place) -> Self {
        let shared = lock(&job.locks.0).entry(place.index).or_default().clone();
        let number = place.instance.unwrap_or_default().number;
        Self { job: job.clone(), index: place.index, number, shared }
    }

    /// The lock that an earlier run did not get.
    pub fn wanted(&self) -> Option<LockRequest> {
        lock(&self.shared.wanted).take()
    }

    /// Waits until it can be had, and takes it.
    pub async fn wait(&self, way: &Way, plan: &Plan, wanted: &LockRequest) {
        let new = &way.daemon.new_files;
        Locks::wait(&self.shared.held, new, &*plan.gate, wanted, true).await;
        lock(&self.shared.asked).take_free(&mut lock(&self.shared.held), new, &*plan.gate);
    }

    /// It was not had in time: the next run waits on.
    pub fn wants(&self, request: LockRequest) {
        *lock(&self.shared.wanted) = Some(request);
    }

    /// Whether the task holds anything.
    pub fn holds_any(&self) -> bool {
        lock(&self.shared.held).paths().next().is_some()
    }

    /// Notes what the run has from its start. It has been noted itself before.
    pub fn note_held(&self) -> Result<(), String> {
        let first = lock(&self.shared.held).paths().next().cloned();
        first.map_or(Ok(()), |path| {
            self.holds();
            self.note(path.as_bytes())
        })
    }

    /// Takes a lock for a run which has `seen` files. The error is why the run must begin again.
    ///
    /// A lock that a file or folder is by being there, and that was there before the run, is not waited for: the run finds it, as it
    /// would here, and goes by that. Should it ask again when the lock is gone, it begins again.
    pub async fn take(&self, way: &Arc<Way>, plan: &Plan, seen: Seen, request: LockRequest) -> Result<(), String> {
        let (way, plan, run) = (way.clone(), plan.clone(), self.clone());
        lock(&self.shared.asked).note(&request);
        let taken = blocking(move || {
            let was_there = was_there(&request, seen.since);
            let had = lock(&run.shared.held).has(&request);
            let is_first = !was_there && !lock(&run.shared.holders).have_begun_again;
            let taken = if was_there { Ok(()) } else { run.take_now(&way, &plan, &request) };
            let counted = is_first.then_some(Counted::All);
            let sees = || if had { Ok(()) } else { sees_what_is_there(&way.daemon, &plan, seen, &request, counted) };
            let taken = taken.and_then(|()| sees());
            if taken.is_err() {
                lock(&run.shared.holders).have_begun_again = true;
                *lock(&run.shared.wanted) = Some(request).filter(|_| !was_there);
                plan.view.epoch().iter().for_each(|epoch| epoch.leave(&plan.command.argv));
            }
            taken
        });
        taken.await.ok_or("the client daemon failed")?
    }

    /// Takes a lock that nobody else has, and notes it if it is the first at its path.
    fn take_now(&self, way: &Way, plan: &Plan, request: &LockRequest) -> Result<(), String> {
        let mut held = lock(&self.shared.held);
        let before = held.paths().count();
        held.take(&way.daemon.new_files, &*plan.gate, request).map_err(|not| not.why)?;
        let is_first = held.paths().count() > before;
        drop(held);
        self.holds();
        if is_first { self.note(&request.path) } else { Ok(()) }
    }

    /// Nothing comes of this run: if there is no other, its task holds nothing. If it `waits`, to begin again, the hub wants more than what
    /// has landed already.
    pub fn let_go(&self, waits: bool) {
        lock(&self.shared.holders).runs.remove(&self.number);
        let batch = &self.job.spec.batch;
        let is_one_enough = batch.quorum <= 1 && batch.deadline_ms.is_none();
        let may_count = self.job.has_landed(self.index) && !(waits && is_one_enough);
        if Arc::strong_count(&self.shared) <= 2 && !may_count {
            self.shared.let_go(&self.job, self.index, "another run of this task came to nothing");
        }
    }

    fn holds(&self) {
        let mut holders = lock(&self.shared.holders);
        holders.runs.insert(self.number);
        holders.last = Some(Instant::now());
    }

    /// Notes for a daemon that is started later that the run had a lock, which is lost then.
    fn note(&self, path: &[u8]) -> Result<(), String> {
        let noted = self.job.locked(self.index, self.number, &printable(path));
        noted.map_err(|error| format!("writing a job's log: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::folder::Draft;
    use super::super::folder::tests::{spec_of, task};
    use super::super::log::{Entry, Log};
    use super::*;
    use crate::policy::Open;
    use base::Time;
    use wire::message::work::Instance;

    fn job(folder: &std::path::Path) -> Arc<Job> {
        let mut draft = Draft::begin(folder).unwrap();
        draft.add(&[task("a"), task("b")]).unwrap();
        draft.finish(&spec_of(2)).unwrap();
        Job::load(folder).unwrap()
    }

    fn run_of(job: &Arc<Job>, index: u32, number: u32) -> TaskLocks {
        let instance = Some(Instance { number, ..Instance::default() });
        TaskLocks::of(job, &Place { index, instance, ..Place::default() })
    }

    #[test]
    fn the_runs_of_a_task_share_its_locks_and_those_of_others_do_not() {
        let above = tempfile::tempdir().unwrap();
        let job = job(&above.path().join("job"));
        let file = above.path().join("c");
        std::fs::write(&file, "").unwrap();
        let path = std::os::unix::ffi::OsStrExt::as_bytes(file.as_os_str()).to_vec();
        let wanted = LockRequest { number: 1, path, is_exclusive: true, ..LockRequest::default() };
        let new = crate::locks::NewFiles::default();
        let take = |run: &TaskLocks| lock(&run.shared.held).take(&new, &Open, &wanted).is_ok();
        let (one, other, apart) = (run_of(&job, 0, 1), run_of(&job, 0, 2), run_of(&job, 1, 1));
        assert!(take(&one) && take(&other) && !take(&apart));
        one.let_go(true);
        assert!(!take(&apart), "another run of the task has it");
        drop(one);
        other.let_go(false);
        assert!(take(&apart));
        assert_eq!(job.locks.locked(1).paths.len(), 1);
        let made = LockRequest { is_made: true, path: [&wanted.path[..], b".lock"].concat(), ..wanted.clone() };
        assert!(lock(&apart.shared.held).take(&new, &Open, &made).is_ok());
        assert_eq!(job.locks.overtaken(1), None);
        std::fs::write(above.path().join("c.lock"), "another's").unwrap();
        assert!(job.locks.overtaken(1).is_some() && job.locks.overtaken(0).is_none());
        let (began, later) = (Time(0), Time(i64::MAX));
        assert!(was_there(&made, later) && !was_there(&made, began) && !was_there(&wanted, later));
        job.locks.let_go(1);
        assert!(job.locks.locked(1).paths.is_empty() && job.locks.locked(0).paths.is_empty());
    }

    /// A job with a run of its first task that has a lock, and of which nothing is known any more.
    fn out_of_sight(folder: &std::path::Path) -> Arc<Job> {
        drop(job(folder));
        let (log, _) = Log::open(&folder.join("log")).unwrap();
        log.keep(&Entry::Launched { index: 0, number: 1, since_ns: 78, statement: None }).unwrap();
        drop(log);
        let job = Job::load(folder).unwrap();
        let run = run_of(&job, 0, 1);
        let path = [std::os::unix::ffi::OsStrExt::as_bytes(folder.as_os_str()), b".c"].concat();
        let wanted = LockRequest { path, ..LockRequest::default() };
        assert!(lock(&run.shared.held).take(&crate::locks::NewFiles::default(), &Open, &wanted).is_ok());
        run.holds();
        job
    }

    fn tainted(job: &Job) -> Option<String> {
        job.launched(0, 1).unwrap().tainted
    }

    #[test]
    fn while_the_hub_is_away_locks_stay_until_their_run_must_have_ended() {
        let above = tempfile::tempdir().unwrap();
        let job = out_of_sight(&above.path().join("job"));
        job.locks.give_up(&job);
        assert_eq!((job.locks.locked(0).paths.len(), tainted(&job)), (1, None), "the run may go on");
        let long = Duration::from_millis(LIMIT_APART_MS) + time_limit(&job.spec.batch) + Duration::from_secs(1);
        let shared = lock(&job.locks.0).get(&0).cloned().unwrap();
        lock(&shared.holders).last = Instant::now().checked_sub(long);
        job.locks.give_up(&job);
        assert!(job.locks.locked(0).paths.is_empty());
        let why = tainted(&job).unwrap();
        assert!(why.contains("hub was away") && why.contains("job.c was let go"), "{why}");
    }

    #[test]
    fn a_job_that_is_given_up_holds_nothing() {
        let above = tempfile::tempdir().unwrap();
        let job = out_of_sight(&above.path().join("job"));
        job.cancel("cancelled by gleaner cancel").unwrap();
        job.locks.give_up(&job);
        assert!(job.locks.locked(0).paths.is_empty() && tainted(&job).is_some());
        let job = out_of_sight(&above.path().join("other"));
        job.collected().unwrap();
        assert!(job.locks.locked(0).paths.is_empty());
    }

    #[test]
    fn a_run_that_is_lost_sight_of_is_not_trusted_once_its_locks_are_let_go() {
        let above = tempfile::tempdir().unwrap();
        let job = out_of_sight(&above.path().join("job"));
        let next = run_of(&job, 0, 2);
        next.note_held().unwrap();
        job.landed(0, 1);
        next.let_go(false);
        assert!(next.holds_any() && tainted(&job).is_none(), "what has landed may be what counts");
        next.let_go(true);
        assert!(!next.holds_any() && tainted(&job).is_some());
    }

    #[test]
    fn what_had_a_lock_is_not_trusted_by_the_next_daemon() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("job");
        drop(job(&folder));
        let (log, _) = Log::open(&folder.join("log")).unwrap();
        log.keep(&Entry::Launched { index: 1, number: 1, since_ns: 78, statement: None }).unwrap();
        log.keep(&Entry::Locked { index: 1, number: 1, path: "/c".into() }).unwrap();
        drop(log);
        let known = Job::load(&folder).unwrap().launched(1, 1).unwrap();
        assert!(known.tainted.unwrap().contains("/c locked"));
    }
}

//! Locks that tasks take on files of this machine, taken here for them.
//!
//! A task that locks a file (`flock`, `fcntl`) waits until its client holds the same lock, which every program here sees. The client
//! keeps it until the task's changes are committed, for before that nobody sees them. What the task has seen already must be what it
//! is now: else, and where somebody else has the lock, the task is called off and run here, where it waits as it always did.
//! A task never waits for a lock elsewhere, so no two can wait for each other.
//!
//! A file that only the task has made has no lock here: such paths are kept in a list of the daemon's, and the task's result does not
//! count if somebody has made the file here meanwhile.

use crate::caller::{Replies, Requests};
use crate::daemon::Daemon;
use crate::ending::Phase;
use crate::hedge::Again;
use crate::outputs::Output;
use crate::plan::Plan;
use crate::policy::{Access, FileFacts, Gate};
use crate::run::{Outcome, Session};
use crate::serve::blocking;
use crate::snapshot::disk::walk;
use crate::snapshot::patiently;
use crate::stdio;
use crate::views::{Counted, Seen};
use base::path::printable;
use base::{Time, TreePath};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;
use wire::message::{Exited, LockRequest};
use wire::{convert, lock, now_nanos};

/// Files that one task may lock; one with more is called off.
const FILES_MAX: usize = 256;

/// How often a lock that another program has is tried.
pub const POLL_PAUSE: Duration = Duration::from_millis(20);
/// How long a lock is waited for that its program would not wait for: one that is left behind is never let go.
const UNASKED_WAIT_MAX: Duration = Duration::from_secs(40);
/// As long as the caller likes.
const FOREVER: Duration = Duration::MAX;

/// Whose turn it is at a path.
type Turn = Arc<tokio::sync::Mutex<()>>;

/// Locked paths at which there is nothing here.
#[derive(Debug, Default)]
pub struct NewFiles(Mutex<HashMap<TreePath, Turn>>);

impl NewFiles {
    /// The turn at a path.
    pub fn turn(&self, path: &TreePath) -> Turn {
        let mut turns = lock(&self.0);
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        turns.entry(path.clone()).or_default().clone()
    }
}

/// Why a task does not get a lock.
#[derive(Debug)]
pub struct NotLocked {
    /// For people.
    pub why: String,
    /// Another command has it.
    pub is_taken: bool,
    /// What another task has, and there is nothing here to wait for it with.
    pub turn: Option<Turn>,
}

/// What is locked for one command, over all its attempts.
#[derive(Debug)]
pub(crate) struct TaskLocks {
    held: Locks,
    /// What the task sees, which must not have changed.
    pub seen: Seen,
    /// What it has asked for, over all its attempts.
    asked: Asked,
    /// What it did not get last.
    wanted: Option<LockRequest>,
    /// It could have had that, but for what has changed.
    is_free: bool,
    /// It has begun again for one.
    has_begun_again: bool,
}

impl TaskLocks {
    /// None yet, of a task that was launched then.
    pub fn new(launched: Time) -> Self {
        Self {
            held: Locks::default(),
            seen: Seen::new(launched, None),
            asked: Asked::default(),
            wanted: None,
            is_free: false,
            has_begun_again: false,
        }
    }

    /// Whether the program itself would wait for what it did not get.
    pub fn is_waited_for(&self) -> bool {
        self.wanted.as_ref().is_some_and(|request| request.may_wait)
    }
}

impl Session {
    /// What the task has seen, and what of that its own output has changed.
    fn seen(&self) -> Seen {
        let number = |output: &Output, fd| if output.delivered() > 0 { stdio::file_number(fd) } else { None };
        let [_, stdout, stderr] = &self.again.fds;
        Seen { own: [number(&self.stdout, stdout), number(&self.stderr, stderr)], ..self.locks.seen }
    }

    /// Takes a lock for the task. The error is why it must not go on with what it has seen.
    pub(crate) async fn lock_for_task(&mut self, request: LockRequest) -> Result<(), String> {
        let (daemon, plan, seen) = (self.daemon.clone(), self.plan.clone(), self.seen());
        let must_go = self.options.no_local || self.options.job.is_some();
        let begins_again = (must_go || self.is_noticed()) && self.can_be_unnoticed() && !self.locks.has_begun_again;
        let is_noticed = self.is_noticed();
        let mut held = std::mem::take(&mut self.locks.held);
        let taken = blocking(move || {
            if was_there(&request, seen.since) {
                // What it makes anew it has removed itself: nobody is kept out by that. What it finds it finds, as it would here; when that
                // is gone it asks again.
                return (Ok(()), held, request, true);
            }
            let had = held.has(&request);
            let taken = held.take(&daemon.new_files, &*plan.gate, &request).map_err(|not| not.why);
            let is_free = taken.is_ok();
            let counted = match (begins_again, is_noticed) {
                (false, _) => None,
                (true, false) => Some(Counted::All),
                // It must say once more what it has said.
                (true, true) => Some(Counted::Most),
            };
            let sees = || if had { Ok(()) } else { sees_what_is_there(&daemon, &plan, seen, &request, counted) };
            (taken.and_then(|()| sees()), held, request, is_free)
        });
        let Some((taken, held, request, is_free)) = taken.await else { return Err("the client daemon failed".into()) };
        self.locks.asked.note(&request);
        match taken {
            Ok(()) => self.locks.held = held,
            // Who waits holds nothing: so no two wait for each other.
            Err(_) => (self.locks.wanted, self.locks.is_free) = (Some(request), is_free),
        }
        taken
    }

    /// Whether it has not been noticed, or what was delivered can be left out when it begins again.
    fn can_be_unnoticed(&self) -> bool {
        !self.is_noticed() || self.can_repeat()
    }

    /// Whether it begins again elsewhere, with the lock that it did not get, instead of here. Here a program may be told that another has it, and
    /// go on without.
    pub(crate) fn begins_again_for_lock(&self) -> bool {
        let gets_it = self.locks.is_free || self.locks.is_waited_for();
        let must_go = match (self.options.no_local, self.is_noticed()) {
            (_, true) => gets_it,
            (true, false) => true,
            (false, false) => self.options.job.is_some() && self.locks.is_waited_for(),
        };
        must_go && self.can_be_unnoticed()
    }

    /// Why the result of a task that has ended does not count: somebody here has made what it had locked as its own, or, as far as
    /// that can still be mended, has changed something that it used.
    pub(crate) async fn overtaken(&self) -> Option<String> {
        if self.locks.held.new.is_empty() {
            return None;
        }
        if let Some(path) = self.locks.held.overtaken() {
            return Some(format!("another command made {path} while this one had it locked elsewhere"));
        }
        let (daemon, plan, seen) = (self.daemon.clone(), self.plan.clone(), self.seen());
        let look =
            move || daemon.server.views().moved(&plan.view, seen, (&plan.folder(), Counted::Nothing), &*plan.gate);
        let moved = if self.is_noticed() { None } else { blocking(look).await? };
        Some(format!("{} was changed by another command while this one had a lock", moved?))
    }

    /// Takes what a task that has ended has made, where its program would have failed had it been there: so only one of several that
    /// make it at once has, as it would be here. The error is why its result does not count.
    pub(crate) async fn lock_what_it_made(&mut self, exited: &Exited) -> Result<(), String> {
        if !self.plan.fails_if_there || exited.changes.is_empty() {
            return Ok(());
        }
        // What is no delta the commit says.
        let Ok(delta) = convert::delta(exited.changes.clone()) else { return Ok(()) };
        let Err(not) = self.locks.held.take_made(&self.daemon.new_files, delta.made()) else { return Ok(()) };
        // Who waits holds nothing; it begins again when the other one is done, and sees then that it is there.
        (self.locks.held, self.locks.wanted, self.locks.is_free) = (Locks::default(), None, true);
        if let Some(turn) = not.turn {
            let _ = tokio::time::timeout(UNASKED_WAIT_MAX, turn.lock()).await;
        }
        Err(not.why)
    }

    /// What the task has locked: its result is committed with care for who waits for that.
    pub(crate) fn locked(&self) -> Locked {
        self.locks.held.locked()
    }

    /// A task of a job that has waited for a lock sees the files as they are now: what others did under the lock is why it waited.
    /// The error is why it cannot run elsewhere any more.
    pub(crate) async fn leave_epoch(&mut self) -> Result<(), String> {
        let Some(epoch) = self.plan.view.epoch() else { return Ok(()) };
        let (daemon, options) = (self.daemon.clone(), self.options.clone());
        let Again { command, window, fds } = self.again.clone();
        epoch.leave(&command.argv);
        let planned = blocking(move || {
            let plan = Plan::new(&daemon, command, window, &options, None, &fds)?;
            plan.with_descriptors(&daemon, &options.descriptors)
        });
        let planned = planned.await.ok_or("the client daemon failed")?;
        self.plan = planned.map_err(|why| why.to_string())?;
        self.checked = None;
        Ok(())
    }

    /// Waits until the lock that the task did not get can be had, and takes it if the task is to begin `again`; who is to run here
    /// waits for it there, unless there is nothing to wait for yet.
    pub(crate) async fn wait_for_lock(
        &mut self,
        again: bool,
        caller: (&mut Requests, &mut Replies),
    ) -> Result<(), Outcome> {
        let Some(request) = self.locks.wanted.take() else { return Ok(()) };
        let (daemon, gate) = (self.daemon.clone(), self.plan.gate.clone());
        let (path, limit) = (printable(&request.path), if request.may_wait { FOREVER } else { UNASKED_WAIT_MAX });
        let held = Arc::new(Mutex::new(Locks::default()));
        let wait = {
            let held = held.clone();
            async move { Locks::wait(&held, &daemon.new_files, &*gate, &request, again).await }
        };
        let waited = self.hearing(Phase::BeforeStart, tokio::time::timeout(limit, wait), caller).await?;
        waited.map_err(|_| Outcome::Refused(format!("it locks {path}, which another command has")))?;
        if again {
            let (daemon, gate, asked) = (self.daemon.clone(), self.plan.gate.clone(), self.locks.asked.clone());
            let taken = blocking(move || {
                let mut held = std::mem::take(&mut *lock(&held));
                asked.take_free(&mut held, &daemon.new_files, &*gate);
                held
            });
            self.locks.held = taken.await.unwrap_or_default();
            self.locks.has_begun_again = true;
        }
        Ok(())
    }
}

/// Whether a task that has a lock may go on with what it has `seen`. The error is why not. `counted`: what a task goes by that begins again
/// for the first time, with the lock from its start.
pub fn sees_what_is_there(
    daemon: &Daemon,
    plan: &Plan,
    seen: Seen,
    request: &LockRequest,
    counted: Option<Counted<'_>>,
) -> Result<(), String> {
    if request.is_made && !request.is_gone && rustix::fs::lstat(request.path.as_slice()).is_err() {
        // Whatever it makes of that, it would find it there for ever.
        return Err(format!("{} is there no more, which it waits for", printable(&request.path)));
    }
    // What a lock is about is often beside it.
    let beside = TreePath::parse(&request.path).and_then(|path| path.parent());
    let counted = match &beside {
        _ if let Some(counted) = counted => counted,
        Some(folder) => Counted::Beside(folder),
        None => Counted::Nothing,
    };
    match daemon.server.views().moved(&plan.view, seen, (&plan.folder(), counted), &*plan.gate) {
        Some(path) => Err(format!("{path} was changed by another command before it had its lock")),
        None => Ok(()),
    }
}

/// Whether what a task would make as a lock of its own has been here since before the task.
pub fn was_there(request: &LockRequest, since: Time) -> bool {
    let changed = |stat: rustix::fs::Stat| Time::from_parts(stat.st_ctime, stat.st_ctime_nsec as i64);
    request.is_made && rustix::fs::lstat(request.path.as_slice()).is_ok_and(|stat| changed(stat) < since)
}

/// What a task has asked for. When it begins again for one lock, it has the others from its start, too, as far as they are free: else it
/// would begin again for each of them in turn, as often as something changes meanwhile.
#[derive(Clone, Debug, Default)]
pub struct Asked(Vec<LockRequest>);

impl Asked {
    /// One more, or one of these once more.
    pub fn note(&mut self, request: &LockRequest) {
        let plain = LockRequest { number: 0, may_wait: false, is_gone: false, ..request.clone() };
        if self.0.len() < FILES_MAX && !self.0.contains(&plain) {
            self.0.push(plain);
        }
    }

    /// Takes what of these nobody else has: who holds some waits for none.
    pub fn take_free(&self, held: &mut Locks, new: &NewFiles, gate: &dyn Gate) {
        for request in &self.0 {
            // Of what it does not get it is told when it asks again.
            let _ = held.take(new, gate, request);
        }
    }
}

/// The locks that are held for one task. Dropping them lets go.
#[derive(Debug, Default)]
pub struct Locks {
    files: HashMap<TreePath, File>,
    new: HashMap<TreePath, OwnedMutexGuard<()>>,
    /// When it got the first of them.
    since: Option<Time>,
}

/// What a task has locked.
#[derive(Clone, Debug, Default)]
pub struct Locked {
    /// Where.
    pub paths: HashSet<TreePath>,
    /// Where there was nothing, and still is not unless others have locked it here meanwhile, or the task leaves something there.
    pub new: Vec<TreePath>,
    /// Since when; `None`: it has nothing.
    pub since: Option<Time>,
}

#[derive(Debug)]
struct File {
    fd: OwnedFd,
    held: Vec<Held>,
}

/// A lock that is held: of the whole file (`flock`), or of a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    is_exclusive: bool,
    range: Option<(i64, i64)>,
}

impl Held {
    fn of(request: &LockRequest) -> Self {
        let range = request.is_range.then_some((request.start, request.len));
        Self { is_exclusive: request.is_exclusive, range }
    }
}

impl Locks {
    /// Takes what a task wants, which the `gate` lets it read. Looks at the file system; does not wait.
    ///
    /// # Errors
    /// Somebody else has it, or it cannot be had.
    pub fn take(&mut self, new: &NewFiles, gate: &dyn Gate, request: &LockRequest) -> Result<(), NotLocked> {
        let taken = self.take_one(new, gate, request);
        if taken.is_ok() {
            self.since.get_or_insert_with(|| Time(now_nanos()));
        }
        taken
    }

    fn take_one(&mut self, new: &NewFiles, gate: &dyn Gate, request: &LockRequest) -> Result<(), NotLocked> {
        let not = |why: String| NotLocked { why, is_taken: false, turn: None };
        let path = TreePath::parse(&request.path).ok_or_else(|| not("it locks what has no path".into()))?;
        if self.new.contains_key(&path) {
            return Ok(());
        }
        if self.files.len() + self.new.len() >= FILES_MAX && !self.files.contains_key(&path) {
            return Err(not(format!("it locks more than {FILES_MAX} files")));
        }
        if request.is_made {
            return match rustix::fs::lstat(path.as_bytes()) {
                Ok(_) => Err(NotLocked { why: locked(&path), is_taken: true, turn: None }),
                Err(_) => self.take_new(new, &path),
            };
        }
        let wanted = Held::of(request);
        if !self.files.contains_key(&path) {
            // The policy is asked about what is locked, and not about a link that leads there: a task may have made it.
            let found = walk(&path, &mut |_| {}).ok_or_else(|| not(format!("it locks {path}, which leads nowhere")))?;
            let stat = match rustix::fs::lstat(found.as_bytes()) {
                Err(Errno::NOENT | Errno::NOTDIR) => return self.take_new(new, &path),
                found => {
                    found.map_err(|error| not(format!("it locks {path}, which cannot be looked at here: {error}")))?
                }
            };
            let directory = rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Directory;
            let facts = FileFacts { uid: stat.st_uid, mode: stat.st_mode & 0o7777, directory };
            if !matches!(gate.access(&found, &facts), Access::Allow) {
                return Err(not(format!("it locks {found}, which the read policy keeps here")));
            }
            let fd =
                open(&found).map_err(|error| not(format!("it locks {path}, which cannot be opened here: {error}")))?;
            self.files.insert(path.clone(), File { fd, held: Vec::new() });
        }
        let Some(file) = self.files.get_mut(&path) else { return Ok(()) };
        match file.take(wanted) {
            Ok(()) if file.is_at(&path) => Ok(()),
            // It was replaced after it was opened: the lock is on a file that nobody finds any more.
            Ok(()) => {
                self.files.remove(&path);
                Err(NotLocked { why: locked(&path), is_taken: true, turn: None })
            }
            Err(Errno::AGAIN | Errno::ACCESS) => Err(NotLocked { why: locked(&path), is_taken: true, turn: None }),
            Err(error) => Err(not(format!("it locks {path}, which cannot be locked here: {error}"))),
        }
    }

    /// Takes all these paths, where there must be nothing but what the task has made elsewhere.
    ///
    /// # Errors
    /// Somebody else makes one of them, or has.
    pub fn take_made<'a>(
        &mut self,
        new: &NewFiles,
        paths: impl Iterator<Item = &'a TreePath>,
    ) -> Result<(), NotLocked> {
        for path in paths.filter(|path| !self.new.contains_key(path)).collect::<Vec<_>>() {
            self.take_new(new, path)?;
            // After the turn is had: who had it may have made it just now.
            if rustix::fs::lstat(path.as_bytes()).is_ok() {
                let why = format!("another command made {path} while this one made it elsewhere");
                return Err(NotLocked { why, is_taken: true, turn: None });
            }
            self.since.get_or_insert_with(|| Time(now_nanos()));
        }
        Ok(())
    }

    /// Waits until what a task wants can be had, and takes it. Ends as well where it cannot be had at all, which the task is told when it
    /// asks. A lock that a program here has is tried again and again if `polls`, or else not waited for.
    pub async fn wait(held: &Mutex<Self>, new: &NewFiles, gate: &dyn Gate, request: &LockRequest, polls: bool) {
        loop {
            let taken = lock(held).take(new, gate, request);
            match taken {
                Err(NotLocked { turn: Some(turn), .. }) => {
                    // Whose turn it is keeps it: several that let go and ask again would hand it round for ever.
                    let turn = turn.lock_owned();
                    tokio::pin!(turn);
                    loop {
                        match tokio::time::timeout(POLL_PAUSE, &mut turn).await {
                            Ok(turn) => match lock(held).keep(request, turn) {
                                true => return,
                                false => break,
                            },
                            // Another run of the task may have it for both.
                            Err(_) if lock(held).take(new, gate, request).is_ok() => return,
                            Err(_) => {}
                        }
                    }
                }
                Err(not) if not.is_taken && polls => tokio::time::sleep(POLL_PAUSE).await,
                Ok(()) | Err(_) => return,
            }
        }
    }

    /// Keeps the turn that was waited for, unless there is something at its path now.
    fn keep(&mut self, request: &LockRequest, turn: OwnedMutexGuard<()>) -> bool {
        let Some(path) = TreePath::parse(&request.path) else { return false };
        let is_new = rustix::fs::lstat(path.as_bytes()).is_err();
        if is_new {
            self.new.insert(path, turn);
            self.since.get_or_insert_with(|| Time(now_nanos()));
        }
        is_new
    }

    fn take_new(&mut self, new: &NewFiles, path: &TreePath) -> Result<(), NotLocked> {
        let turn = new.turn(path);
        match turn.clone().try_lock_owned() {
            Ok(guard) => {
                self.new.insert(path.clone(), guard);
                Ok(())
            }
            Err(_) => Err(NotLocked { why: locked(path), is_taken: true, turn: Some(turn) }),
        }
    }

    /// Whether it has been taken already: what is done under it nobody else has done since.
    pub fn has(&self, request: &LockRequest) -> bool {
        let Some(path) = TreePath::parse(&request.path) else { return false };
        self.new.contains_key(&path) || self.files.get(&path).is_some_and(|file| file.has(Held::of(request)))
    }

    /// What is locked.
    pub fn locked(&self) -> Locked {
        Locked { paths: self.paths().cloned().collect(), new: self.new.keys().cloned().collect(), since: self.since }
    }

    /// Where something is locked.
    pub fn paths(&self) -> impl Iterator<Item = &TreePath> {
        self.files.keys().chain(self.new.keys())
    }

    /// A file that the task alone had when it locked it, and that is here now: others may have locked this one.
    pub fn overtaken(&self) -> Option<&TreePath> {
        self.new.keys().find(|path| rustix::fs::lstat(path.as_bytes()).is_ok())
    }
}

fn locked(path: &TreePath) -> String {
    format!("it locks {path}, which another command has locked")
}

impl File {
    /// Whether this is what others find at the path.
    fn is_at(&self, path: &TreePath) -> bool {
        let identity = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
        let found = rustix::fs::stat(path.as_bytes()).map(identity);
        found.is_ok() && found == rustix::fs::fstat(&self.fd).map(identity)
    }

    fn has(&self, wanted: Held) -> bool {
        let covers = |held: &Held| held.range == wanted.range && (held.is_exclusive || !wanted.is_exclusive);
        self.held.iter().any(covers)
    }

    fn take(&mut self, wanted: Held) -> Result<(), Errno> {
        if self.has(wanted) {
            return Ok(());
        }
        match wanted.range {
            None if wanted.is_exclusive => rustix::fs::flock(&self.fd, FlockOperation::NonBlockingLockExclusive),
            None => rustix::fs::flock(&self.fd, FlockOperation::NonBlockingLockShared),
            Some((start, len)) => lock_range(&self.fd, wanted.is_exclusive, start, len),
        }?;
        self.held.push(wanted);
        Ok(())
    }
}

/// For writing if that is allowed: locks of ranges want it. Follows no link.
fn open(path: &TreePath) -> Result<OwnedFd, Errno> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::NO_SYMLINKS;
    let open = |mode| patiently(|| rustix::fs::openat2(CWD, path.as_bytes(), mode | flags, Mode::empty(), resolve));
    open(OFlags::RDWR).or_else(|_| open(OFlags::RDONLY))
}

/// Locks bytes of a file for this one opening of it, which locks of processes (`F_SETLK`) respect.
fn lock_range(fd: &OwnedFd, is_exclusive: bool, start: i64, len: i64) -> Result<(), Errno> {
    // SAFETY: all zeroes is a valid value of this plain structure.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = if is_exclusive { libc::F_WRLCK } else { libc::F_RDLCK } as libc::c_short;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    (range.l_start, range.l_len) = (start, len);
    // SAFETY: the structure outlives the call.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
    }
}

#[cfg(test)]
mod tests;

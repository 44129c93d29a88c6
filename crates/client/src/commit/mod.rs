//! Applies what a task left behind to the client's tree: all or nothing, safe against a crash at any moment, and against
//! changes that others made since the task saw the tree.
//!
//! The way of a delta: it is checked against the rules ([`validate()`]) and the write policy; new contents are written to
//! staging folders (`stage`); then, one commit at a time, the tree is compared with what the task saw (`check`), the steps
//! are written to a redo record (`plan`), and done (`apply`). Each step exchanges names and looks at what came out: if
//! somebody was faster, all is undone. What is displaced is kept until the record is closed. A local reader may see the
//! tree in the middle of a commit; a crash leaves it there only until [`Committer::recover`].
//!
//! A commit needs no more rights than a program that does the same here (`rights`): what cannot be replaced is written in
//! place, and of what others own nothing is set that only owners may set. What could be neither finished nor undone is set
//! aside after some starts (`aside`).
//!
//! Not kept: security labels of files that are replaced.

mod alone;
mod apply;
mod aside;
mod before;
mod check;
mod closed;
mod contents;
mod crash;
mod directories;
mod displaced;
mod emptied;
mod error;
mod evidence;
mod files;
mod kept;
mod leave;
mod made_links;
mod outcome;
mod place;
mod plan;
mod policy;
mod recover;
pub mod remedies;
mod rights;
mod stage;
mod stamp;
mod tree;
mod validate;

#[cfg(test)]
mod tests;

pub(crate) use before::Before;
pub(crate) use emptied::remove_all;
pub use error::{CommitError, Conflict, ConflictKind, Refusal};
pub use evidence::Evidence;
pub use kept::{KEPT_BYTES_MAX, KEPT_MAX, Keep, KeptChange, KeptInfo, Recommitted, SHOWN_MAX};
pub use outcome::OUTCOMES_MAX;
pub use recover::Recovered;
pub use stamp::Stamp;
pub use validate::{BYTES_MAX, CHANGES_MAX, validate};

use apply::{Applier, Failure};
use base::delta::FileChange;
use base::{Action, Change, Content, Delta, ExitStatus, TaskId, Time, TreePath};
use check::Planner;
use made_links::{Leaving, MadeLinks};
use outcome::Outcomes;
use plan::{Plan, Step};
use policy::Allowed;
use rustix::fs::FlockOperation;
use stage::{Stages, Yard};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use tree::Tree;
use wire::lock;

/// How often a commit that lost a race is tried from the start.
const TRIES_MAX: usize = 3;
/// Largest closed record whose file is kept for the next, in bytes.
const SPARE_BYTES_MAX: u64 = 1 << 20;
/// A change at most this long after `now` is a clock's error, not a time that somebody set; nanoseconds.
const CLOCK_ERROR_NS: i64 = 200_000_000;

/// How large a file of some content will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Measure {
    /// Its length in bytes.
    pub len: u64,
    /// How many of them are in no hole, and take room on a disk.
    pub data: u64,
}

/// Where the bytes of new files come from.
pub trait Contents {
    /// How large a file of `content` will be: asked of all files before anything is written.
    fn measure(&self, content: &Content) -> io::Result<Measure>;

    /// Writes all bytes of `content` to `file`, which is empty, with holes as holes (a hole at the end too: the length
    /// must be right).
    fn write_to(&self, content: &Content, file: &File) -> io::Result<()>;

    /// Gives a file that has all bytes of `content`, and is nobody else's, a name in `folder`, with holes as holes; false if there is none
    /// that can have a name there.
    fn link_to(&self, _content: &Content, _folder: BorrowedFd<'_>, _name: &[u8]) -> io::Result<bool> {
        Ok(false)
    }

    /// Writes the bytes of `content` from offset `from` on to the end of `file`.
    fn append_to(&self, content: &Content, from: u64, file: &File) -> io::Result<()>;

    /// Whether the first `from` bytes of `content` are those of `file`, as far as that can be told.
    fn begins_as(&self, content: &Content, from: u64, file: &File) -> io::Result<bool>;
}

/// What the write policy says of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteDecision {
    /// It is committed.
    Commit,
    /// It is dropped, and reported. The reason follows the path in a sentence.
    Scratch(&'static str),
    /// Nothing at all is committed. The reason follows the path in a sentence: "is outside the write policy".
    Refuse(String),
}

/// The write policy, asked path by path.
pub type WritePolicy<'a> = &'a dyn Fn(&TreePath) -> WriteDecision;

/// One task's changes to be committed.
pub struct Request<'a> {
    /// Whose.
    pub task: TaskId,
    /// How it ended: told by [`Committer::outcome`] from the moment that the changes are committed.
    pub status: ExitStatus,
    /// The changes.
    pub delta: &'a Delta,
    /// What the task saw.
    pub evidence: &'a dyn Evidence,
    /// The bytes.
    pub contents: &'a dyn Contents,
    /// What may be written.
    pub write: WritePolicy<'a>,
    /// Survive a power failure, too: flush to disk.
    pub durable: bool,
    /// When the task was launched, by the client's clock.
    pub launch: Time,
    /// Now, by the client's clock.
    pub now: Time,
}

/// What a commit did.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Report {
    /// Files and links that the commit made or changed, as they are now.
    pub committed: Vec<Committed>,
    /// Paths that were removed, renamed away, or replaced by something else.
    pub removed: Vec<TreePath>,
    /// Directories whose entries or attributes changed.
    pub directories: Vec<TreePath>,
    /// Paths that the write policy dropped, each with the reason.
    pub scratch: Vec<(TreePath, &'static str)>,
    /// What was not plain.
    pub notes: Vec<Note>,
}

/// A file, link or pipe after a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Where it is.
    pub path: TreePath,
    /// Its state.
    pub stamp: Stamp,
    /// Its bytes, if it is a file and they are known: those of an appended file only if nobody else appended.
    pub content: Option<Content>,
}

/// Something in a commit that `explain` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Where.
    pub path: TreePath,
    /// What.
    pub kind: NoteKind,
}

/// What was not plain in a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoteKind {
    /// The task and somebody else made this name; the task's is there now.
    #[error("was made here, too, while the task ran: the task's won")]
    LastWins,
    /// Others appended while the task ran; its lines come after theirs.
    #[error("grew here while the task ran: the task's part was added at the end")]
    AppendedAtEnd,
    /// The very same was there already.
    #[error("was the same already")]
    Identical,
    /// What the task removed or touched was removed already.
    #[error("was removed already")]
    AlreadyGone,
}

/// Commits deltas to one tree, with its state in one folder. One for each folder and moment.
pub struct Committer {
    state: PathBuf,
    root: PathBuf,
    /// The state folder as a path of the tree, if it is in it.
    own: Option<TreePath>,
    yard: Yard,
    /// One commit at a time; holds the log of outcomes.
    turn: Mutex<Outcomes>,
    /// Whether a commit has begun: staging is not swept after that.
    begun: AtomicBool,
    /// Commits that were done: counted under the turn.
    done: AtomicU64,
    /// Tasks of which an earlier life began a commit that could be neither finished nor undone, and why.
    stuck: Mutex<BTreeMap<TaskId, String>>,
    /// Tasks of which a commit is under way, and who waits for the end of one.
    under_way: Mutex<BTreeSet<TaskId>>,
    one_ended: Condvar,
    /// The links that were made.
    links: MadeLinks,
    /// Held for the life of the committer.
    _lock: File,
}

impl Committer {
    /// A committer for the whole file system, with its state in `state` (made if need be, mode 0700).
    ///
    /// # Errors
    /// [`CommitError::State`] if the folder cannot be used, or another committer uses it.
    pub fn open(state: &Path) -> Result<Self, CommitError> {
        Self::open_at(Path::new("/"), state)
    }

    /// A committer for the tree beneath `root`: paths of deltas are relative to it.
    ///
    /// # Errors
    /// As for [`Committer::open`].
    pub fn open_at(root: &Path, state: &Path) -> Result<Self, CommitError> {
        let open = || -> io::Result<Self> {
            files::make_private_folder(state)?;
            files::make_private_folder(&state.join("redo"))?;
            let (root, state) = (root.canonicalize()?, state.canonicalize()?);
            let path = state.join("lock");
            let lock = File::options().write(true).create(true).truncate(false).mode(0o600).open(path)?;
            let busy = |_| io::Error::other("another daemon uses it: is one running for this user?");
            rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(busy)?;
            Ok(Self {
                own: path_within(&root, &state),
                yard: Yard::open(&state)?,
                turn: Mutex::new(Outcomes::open(&state.join("outcomes"))?),
                begun: AtomicBool::new(false),
                done: AtomicU64::new(0),
                stuck: Mutex::default(),
                under_way: Mutex::default(),
                one_ended: Condvar::new(),
                links: MadeLinks::load(&root, &state.join("links")),
                root,
                state,
                _lock: lock,
            })
        };
        open().map_err(CommitError::State)
    }

    /// How `task` ended, if its changes are committed and among the last [`OUTCOMES_MAX`].
    pub fn outcome(&self, task: TaskId) -> Option<ExitStatus> {
        self.turn().get(task)
    }

    /// Notes how a task ended that changed nothing.
    pub fn note_outcome(&self, task: TaskId, status: ExitStatus) {
        if let Err(error) = self.turn().add(task, status, false) {
            tracing::warn!(%task, %error, "the outcome of a task could not be noted");
        }
    }

    fn turn(&self) -> MutexGuard<'_, Outcomes> {
        lock(&self.turn)
    }

    /// Whether the link at `path` was made by a commit.
    pub fn has_made_link(&self, path: &TreePath) -> bool {
        self.links.has(path)
    }

    fn tree(&self) -> Result<Tree, CommitError> {
        Tree::open(&self.root).map_err(CommitError::State)
    }

    /// Commits all changes of a task, or none.
    ///
    /// # Errors
    /// Says why nothing was committed.
    pub fn commit(&self, request: &Request<'_>) -> Result<Report, CommitError> {
        self.commit_asking_again(request, &|| {})
    }

    /// The same where the write policy looks at the tree, and is to `forget` that before it is asked again: what it let through may be
    /// something else after another commit.
    ///
    /// # Errors
    /// As for [`Committer::commit`].
    pub fn commit_asking_again(&self, request: &Request<'_>, forget: &dyn Fn()) -> Result<Report, CommitError> {
        self.commit_alone(request, forget).map_err(|error| match error {
            CommitError::State(source) if is_full(&source) => CommitError::NoStateSpace(self.state.clone()),
            error => error,
        })
    }

    fn commit_alone(&self, request: &Request<'_>, forget: &dyn Fn()) -> Result<Report, CommitError> {
        self.begun.store(true, Ordering::SeqCst);
        let _alone = self.alone(request.task);
        if let Some(status) = self.outcome(request.task) {
            return Err(CommitError::AlreadyCommitted(status));
        }
        if let Some(why) = lock(&self.stuck).get(&request.task) {
            return Err(CommitError::Stuck(why.clone()));
        }
        validate(request.delta)?;
        let tree = self.tree()?;
        let done = self.done.load(Ordering::SeqCst);
        let mut allowed = policy::allow(&tree, request.delta, request.write, self.own.as_ref())?;
        settle_times(&mut allowed.changes, request.now);
        if allowed.changes.is_empty() {
            self.turn().add(request.task, request.status, request.durable).map_err(CommitError::State)?;
            return Ok(Report { scratch: allowed.scratch, ..Report::default() });
        }
        self.yard.tidy(&tree);
        let mut stages = Stages::new(&self.yard, request.task).map_err(CommitError::State)?;
        let ask_again = || match self.done.load(Ordering::SeqCst) != done && policy::hangs_on_others(request.delta) {
            true => {
                forget();
                policy::allow(&tree, request.delta, request.write, self.own.as_ref()).map(drop)
            }
            false => Ok(()),
        };
        let result = self.commit_staged(request, &tree, &mut stages, &allowed, &ask_again);
        let closed = !matches!(result, Err(CommitError::HalfUndone { .. })) && !crashed();
        if result.is_ok() && closed {
            displaced::remove_later(request.task, &mut stages, allowed.changes.len());
        }
        if closed && let Err(error) = stages.clear(&tree) {
            tracing::warn!(task = %request.task, %error, "the staging folder is cleared before the next commit only");
        }
        let mut report = result?;
        report.scratch = allowed.scratch;
        Ok(report)
    }

    fn commit_staged<'a>(
        &self,
        request: &Request<'_>,
        tree: &'a Tree,
        stages: &mut Stages<'a>,
        allowed: &Allowed<'_>,
        ask_again: &dyn Fn() -> Result<(), CommitError>,
    ) -> Result<Report, CommitError> {
        let changes = &allowed.changes;
        place::measure(changes, request.contents, |path| place::room_at(tree, path))?;
        let slots = place::stage_files(tree, stages, changes, request.contents)?;
        let mut outcomes = self.turn();
        if let Some(status) = outcomes.get(request.task) {
            return Err(CommitError::AlreadyCommitted(status));
        }
        tree.forget();
        ask_again()?;
        let mut tries = 1;
        loop {
            tree.forget();
            let mut planner = Planner::new(tree, stages, (request.evidence, request.contents), allowed, &slots);
            let steps = planner.plan()?;
            let notes = std::mem::take(&mut planner.notes);
            let (task, status, durable) = (request.task, request.status, request.durable);
            let plan = Plan { task, status, durable, sites: stages.sites(), steps };
            match self.carry_out(tree, stages, &plan, &mut outcomes) {
                Err(Failure::Late(_)) if tries < TRIES_MAX => tries += 1,
                Err(failure) => return Err(failure.into_error()),
                Ok(Err(error)) => return Err(error),
                Ok(Ok(())) => {
                    self.done.fetch_add(1, Ordering::SeqCst);
                    return Ok(report(tree, changes, &plan, notes));
                }
            }
        }
    }

    /// Writes the record, does the steps, and closes the record; or undoes them.
    fn carry_out(
        &self,
        tree: &Tree,
        stages: &Stages<'_>,
        plan: &Plan,
        outcomes: &mut Outcomes,
    ) -> Result<Result<(), CommitError>, Failure> {
        let prepared = if plan.steps.is_empty() { Ok(()) } else { self.write_record(stages, plan) };
        if let Err(source) = prepared {
            return Ok(Err(CommitError::State(source)));
        }
        let leaving = self.links.leave(plan.steps.iter().filter_map(Step::takes_from));
        let applier = Applier { tree, stages, recovering: false, folders: Default::default() };
        if let Err((count, failure)) = applier.forward(plan) {
            if crashed() {
                return Err(failure);
            }
            return match self.undo(&applier, plan, count + 1) {
                Ok(()) => Err(failure),
                Err((path, source)) => {
                    let why = failure.into_error().to_string();
                    Ok(Err(CommitError::HalfUndone { why, path, source }))
                }
            };
        }
        Ok(self.close(tree, plan, &leaving, outcomes).map_err(CommitError::State))
    }

    fn record(&self, task: TaskId, extension: &str) -> PathBuf {
        self.state.join("redo").join(format!("{}.{extension}", task.to_hex()))
    }

    fn spare(&self) -> PathBuf {
        self.state.join("redo").join("spare")
    }

    /// Closes a record. Its file is kept for the next one, unless it is large.
    fn retire(&self, record: &Path) -> io::Result<()> {
        match std::fs::metadata(record)?.len() > SPARE_BYTES_MAX {
            true => std::fs::remove_file(record),
            false => std::fs::rename(record, self.spare()),
        }
    }

    fn write_record(&self, stages: &Stages<'_>, plan: &Plan) -> io::Result<()> {
        if plan.durable {
            stages.flush()?;
        }
        crash::point()?;
        let new = self.record(plan.task, "new");
        // The file of an earlier record, if there is one: file systems are slow to make new ones where many were removed.
        match std::fs::rename(self.spare(), &new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = File::create(&new)?;
        file.write_all(&plan.to_record())?;
        crash::point()?;
        if plan.durable {
            file.sync_all()?;
        }
        std::fs::rename(&new, self.record(plan.task, "redo"))?;
        if plan.durable {
            File::open(self.state.join("redo"))?.sync_all()?;
        }
        crash::point()
    }

    /// Undoes the first `count` steps, after the record says that this is under way, and drops the record.
    fn undo(&self, applier: &Applier<'_>, plan: &Plan, count: usize) -> Result<(), (TreePath, io::Error)> {
        let state = |source| (TreePath::root(), source);
        let undo = self.record(plan.task, "undo");
        match std::fs::rename(self.record(plan.task, "redo"), &undo) {
            // A crash came when this was under way already.
            Err(error) if error.kind() == io::ErrorKind::NotFound && undo.exists() => {}
            other => other.map_err(state)?,
        }
        crash::point().map_err(state)?;
        applier.backward(plan, count.min(plan.steps.len())).map_err(|failure| match failure {
            Failure::Late(path) | Failure::Incomplete(path) => (path, io::Error::other("it changed again")),
            Failure::Io { path, source, .. } => (path, source),
        })?;
        crash::point().map_err(state)?;
        self.retire(&undo).map_err(state)
    }

    /// Notes that the task's changes are in the tree, and drops the record.
    fn close(&self, tree: &Tree, plan: &Plan, leaving: &Leaving, outcomes: &mut Outcomes) -> io::Result<()> {
        self.links.note(plan.steps.iter().filter_map(Step::puts_at), leaving);
        crash::point()?;
        if plan.durable {
            let parents: BTreeSet<TreePath> = plan.steps.iter().filter_map(|step| step.path().parent()).collect();
            for parent in parents {
                match place::flush_directory(tree, &parent) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        outcomes.add(plan.task, plan.status, plan.durable)?;
        crash::point()?;
        if !plan.steps.is_empty() {
            self.retire(&self.record(plan.task, "redo"))?;
            if plan.durable {
                File::open(self.state.join("redo"))?.sync_all()?;
            }
        }
        crash::point()
    }
}

/// Whether a test has let this commit die: then nothing more is to be done, not even cleaning up.
fn crashed() -> bool {
    #[cfg(test)]
    return crash::is_dead();
    #[cfg(not(test))]
    false
}

/// Whether an error tells of a disk or quota that has no room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn path_within(root: &Path, path: &Path) -> Option<TreePath> {
    use std::os::unix::ffi::OsStrExt;
    let relative = path.strip_prefix(root).ok()?;
    TreePath::root().resolve(relative.as_os_str().as_bytes())
}

/// By how much the latest time in a delta is after `now`, as far as that is a clock's error.
pub(crate) fn nanos_ahead(delta: &Delta, now: Time) -> i64 {
    let ahead = delta.changes.iter().filter_map(|change| change.action.attr()).map(|attr| attr.mtime.since(now));
    ahead.filter(|ahead| (1..=CLOCK_ERROR_NS).contains(ahead)).max().unwrap_or(0)
}

/// A time that is in the future by no more than clocks err is now.
fn settle_times(changes: &mut [Cow<'_, Change>], now: Time) {
    let ahead = |time: Time| (1..=CLOCK_ERROR_NS).contains(&time.since(now));
    for change in changes {
        let Some(attr) = change.action.attr() else { continue };
        let settle = |time: Time| if ahead(time) { now } else { time };
        let accessed = base::Accessed(attr.accessed.0.map(settle));
        let settled = base::Attr { mtime: settle(attr.mtime), accessed, ..*attr };
        if settled.is_shown_as(attr) {
            continue;
        }
        if let Some(attr) = change.to_mut().action.attr_mut() {
            *attr = settled;
        }
    }
}

/// What the tree is like after the steps of `plan`. Looking is best effort: the commit is done.
fn report(tree: &Tree, changes: &[Cow<'_, Change>], plan: &Plan, notes: Vec<Note>) -> Report {
    let mut report = Report { notes, ..Report::default() };
    let mut directories = BTreeSet::new();
    for step in &plan.steps {
        match step {
            Step::Detach { path, .. } | Step::RemoveDirectory { path, .. } => {
                report.removed.push(path.clone());
                directories.extend(path.parent());
            }
            Step::Place { path, .. } => directories.extend(path.parent()),
            _ => {}
        }
    }
    let others: BTreeSet<&TreePath> =
        report.notes.iter().filter(|note| note.kind == NoteKind::AppendedAtEnd).map(|note| &note.path).collect();
    tree.forget();
    for change in changes {
        let content = match &change.action {
            Action::Remove | Action::LastWrite { .. } => continue,
            Action::Directory { .. } => {
                directories.insert(change.path.clone());
                continue;
            }
            Action::File { change: FileChange::Attributes, .. } => None,
            Action::File { content, .. } if !others.contains(&change.path) => Some(*content),
            _ => None,
        };
        let mut paths = vec![(&change.path, content)];
        if let Action::HardLink { to } = &change.action {
            paths.push((to, None));
        }
        for (path, content) in paths {
            if let Ok(Some(node)) = tree.node(path)
                && !node.is_directory()
            {
                let size = change.action.attr().map(|attr| attr.size);
                let content = content.filter(|_| size == Some(node.size));
                report.committed.push(Committed { path: path.clone(), stamp: Stamp::of_node(&node), content });
            }
        }
    }
    report.directories = directories.into_iter().collect();
    report
}

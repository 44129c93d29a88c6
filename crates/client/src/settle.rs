//! The end of a task: its delta is committed, or kept and refused; and what the commit changed is remembered, so that
//! the next launch neither hashes nor sends what the task made.

use crate::commit::{
    Before, CommitError, Committer, Conflict, ConflictKind, Contents, Evidence, Keep, Measure, Report, Request, Stamp,
    nanos_ahead,
};
use crate::daemon::Daemon;
use crate::locks::Locked;
use crate::plan::Plan;
use crate::recipes::Cut;
use crate::record::Record;
use crate::serve::blocking;
use crate::snapshot::{pause_nanos, stat_at};
use crate::spool::Spool;
use crate::views::Views;
use crate::write_rules::{Directories, NamesWithin, WriteRules};
use base::delta::FileChange;
use base::{Action, Attr, Change, Content, Delta, ExitStatus, Seq, TaskId, Time, TreePath};
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use wire::message::Exited;
use wire::{convert, now_nanos};

/// How a task's result came out.
pub enum Settled {
    /// It is in the client's tree.
    Committed(ExitStatus),
    /// Nothing was committed: a message for the caller.
    NotCommitted(String),
    /// Nothing was committed nor kept: others have changed what the task had locked, or changed under a lock, or there is no room for its
    /// result. Run here, the program waits for its lock, or sees that.
    Overtaken(String),
    /// Nothing was committed nor kept: the system refuses here what it allowed there. Run here, the program will see that.
    RefusedHere(String),
}

/// How a task stands at its end.
pub struct AtEnd {
    /// Nobody has noticed yet that it ran elsewhere, and it may run here.
    pub may_run_here: bool,
    /// What it has locked here.
    pub locked: Locked,
}

/// Commits the delta of a task that ended.
pub async fn settle(
    daemon: &Arc<Daemon>,
    task: TaskId,
    plan: &Plan,
    exited: Exited,
    spool: Spool,
    record: &mut Record,
    at_end: AtEnd,
) -> Settled {
    let status = exited.status();
    record.ended(&exited);
    let ended = Ended {
        task,
        argv: record.argv().to_vec(),
        write: plan.write.clone(),
        launch: plan.view.epoch().map_or(plan.launched(), |epoch| epoch.started()),
        trust: record.unreadable().cloned().map_or(Trust::Views, Trust::ReadWhileChanged),
        durable: daemon.config.durable,
        keeps: true,
        at_end,
        fails_if_there: plan.fails_if_there,
    };
    match settle_ended(daemon, ended, exited, spool).await {
        Ok(None) => Settled::Committed(status),
        Ok(Some(report)) => {
            record.committed(&report);
            Settled::Committed(status)
        }
        Err(NotCommitted { message, paths, remedy: Remedy::None }) => {
            record.not_committed(&paths);
            Settled::NotCommitted(message)
        }
        Err(NotCommitted { message, remedy: Remedy::RunHere, .. }) => Settled::Overtaken(message),
        Err(NotCommitted { message, remedy: Remedy::RunHereAlways, .. }) => Settled::RefusedHere(message),
    }
}

/// Why nothing was committed.
pub(crate) struct NotCommitted {
    /// For the caller.
    pub message: String,
    /// What it is about.
    pub paths: Vec<TreePath>,
    /// What helps.
    remedy: Remedy,
}

/// What helps a task whose result was not committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remedy {
    /// Nothing that can be done without its caller.
    None,
    /// To run it here: others have changed what it had locked, or there is no room.
    RunHere,
    /// To run it here, now and later: the system refuses here what it allowed there.
    RunHereAlways,
}

/// A task that ended, as far as its commit goes.
pub(crate) struct Ended {
    /// Its number: what was committed under it is not committed again.
    pub task: TaskId,
    /// The command, each word printable.
    pub argv: Vec<String>,
    /// What it may change.
    pub write: WriteRules,
    /// When it was launched.
    pub launch: Time,
    /// How what it saw is known.
    pub trust: Trust,
    /// Flush to disk.
    pub durable: bool,
    /// Keep what cannot be committed for `gleaner recover`.
    pub keeps: bool,
    /// Whether it can be run here, and what it has locked.
    pub at_end: AtEnd,
    /// What it makes is locked by that: its program would have failed where that is there already.
    pub fails_if_there: bool,
}

/// How what a task saw is known.
pub(crate) enum Trust {
    /// By the views.
    Views,
    /// By what the file system says: what has not changed since then is what it saw. It ran for a daemon that is no more.
    Since(Time),
    /// Not: this path changed while the task read it. Its delta is kept.
    ReadWhileChanged(TreePath),
    /// Not: the task asked what could not be told it, for this reason. Its delta is kept.
    NotTold(String),
}

/// Commits the delta of such a task; `None` if it changed nothing.
pub(crate) async fn settle_ended(
    daemon: &Arc<Daemon>,
    mut ended: Ended,
    exited: Exited,
    spool: Spool,
) -> Result<Option<Report>, NotCommitted> {
    let status = exited.status();
    let wrong = |what: String| {
        let message = format!("nothing committed: {what}");
        NotCommitted { message, paths: Vec::new(), remedy: Remedy::None }
    };
    let delta = convert::delta(exited.changes);
    let delta = delta.map_err(|error| wrong(format!("the worker's result is no result: {error}")))?;
    if delta.changes.is_empty() {
        daemon.committer.note_outcome(ended.task, status);
        return Ok(None);
    }
    if ended.fails_if_there {
        ended.at_end.locked.paths.extend(delta.made().cloned());
    }
    let daemon = daemon.clone();
    let work = move || {
        const RIGHTS: &str = "set-user-id or set-group-id rights";
        let gives = |path| (path, format!("it gives {path} {RIGHTS}, which only a command that runs here may give"));
        let keeps = |path| (path, format!("it writes to {path}, whose {RIGHTS} only a command that runs here keeps"));
        let refused = gives_rights(&delta).map(gives).or_else(|| writes_with_rights(&delta).map(keeps));
        if let Some((path, what)) = refused {
            let message = format!("nothing committed: {what}");
            return Err(NotCommitted { message, paths: vec![path.clone()], remedy: Remedy::RunHereAlways });
        }
        let directories = Directories::of(&delta);
        let write = |path: &TreePath| ended.write.decide(path, &directories);
        // A worker's clock may be a little ahead: a change here after the commit must not look older than what the task made.
        let ahead = nanos_ahead(&delta, Time(now_nanos()));
        if ahead > 0 {
            pause_nanos(ahead);
        }
        let now = Time(now_nanos());
        let (contents, why) = (&Spooled(&spool), "");
        let (task, argv) = (ended.task, ended.argv.as_slice());
        let keep = Keep { task, argv, status, delta: &delta, contents, write: &write, why, at: now };
        commit(&daemon, &keep, &spool, &ended, &|| directories.forget())
    };
    let done = blocking(work).await.unwrap_or_else(|| Err(wrong("the client daemon failed".into())));
    done.map(Some)
}

/// The first path to which a task gives set-user-id or set-group-id bits that it does not have here: no worker is trusted
/// to give them. A new folder may have the set-group-id bit that the folder above hands down.
fn gives_rights(delta: &Delta) -> Option<&TreePath> {
    const SET_USER_ID: u32 = 0o4000;
    const SET_GROUP_ID: u32 = 0o2000;
    let before = Before::of(&delta.changes);
    let present = |path: &TreePath| before.origin(path).map_or(0, |origin| mode_at(&origin));
    let hands_down = |path: &TreePath| {
        let above = std::iter::successors(path.parent(), TreePath::parent);
        let mut there = above.filter_map(|folder| stat_at(before.origin(&folder)?.as_bytes()).ok());
        there.next().is_some_and(|stat| u32::from(stat.stx_mode) & SET_GROUP_ID != 0)
    };
    let gives = |change: &&Change| {
        let (path, set) = (&change.path, |attr: &Attr| attr.mode & (SET_USER_ID | SET_GROUP_ID));
        match &change.action {
            Action::LastWrite { attr, .. } => set(attr) != 0 && set(attr) & !mode_at(path) != 0,
            Action::File { attr, .. } | Action::Fifo { attr } => set(attr) != 0 && set(attr) & !present(path) != 0,
            Action::Directory { attr, .. } => {
                let new = if set(attr) == 0 { 0 } else { set(attr) & !present(path) };
                new & SET_USER_ID != 0 || (new != 0 && !hands_down(path))
            }
            _ => false,
        }
    };
    delta.changes.iter().find(gives).map(|change| &change.path)
}

/// The first file with set-user-id or set-group-id bits that root has written to and that has lost them: here root keeps them, on a worker the
/// kernel takes them from whoever writes.
fn writes_with_rights(delta: &Delta) -> Option<&TreePath> {
    const SET_IDS: u32 = 0o6000;
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let before = Before::of(&delta.changes);
    let loses = |change: &&Change| {
        let (attr, how, was_at) = match &change.action {
            Action::LastWrite { attr, change: how, .. } => (attr, how, Some(change.path.clone())),
            Action::File { attr, change: how, .. } => (attr, how, before.origin(&change.path)),
            _ => return false,
        };
        *how != FileChange::Attributes && was_at.is_some_and(|at| mode_at(&at) & SET_IDS & !attr.mode != 0)
    };
    delta.changes.iter().find(loses).map(|change| &change.path)
}

/// The mode of what is at `path` here; 0 if nothing is.
fn mode_at(path: &TreePath) -> u32 {
    stat_at(path.as_bytes()).map_or(0, |stat| u32::from(stat.stx_mode))
}

/// What is asked of the committer.
fn request<'a>(keep: &Keep<'a>, ended: &Ended, evidence: &'a dyn Evidence) -> Request<'a> {
    Request {
        task: keep.task,
        status: keep.status,
        delta: keep.delta,
        evidence,
        contents: keep.contents,
        write: keep.write,
        durable: ended.durable,
        launch: ended.launch,
        now: keep.at,
    }
}

/// Commits what would be kept if that failed, unless the task read something that cannot be relied on.
fn commit(
    daemon: &Daemon,
    keep: &Keep<'_>,
    spool: &Spool,
    ended: &Ended,
    forget: &dyn Fn(),
) -> Result<Report, NotCommitted> {
    let committer: &Committer = &daemon.committer;
    let _committing = daemon.records.figures.committing(keep.task);
    let views = daemon.server.views();
    let (seen, unchanged);
    let evidence: Result<&dyn Evidence, CommitError> = match &ended.trust {
        Trust::Views => {
            seen = Seen(views, &ended.at_end.locked, ended.launch, NamesWithin::of(&ended.write));
            Ok(&seen)
        }
        Trust::Since(since) => {
            unchanged = Unchanged(*since, Some(NamesWithin::of(&ended.write)));
            Ok(&unchanged)
        }
        Trust::ReadWhileChanged(path) => Err(CommitError::ReadWhileChanged(path.clone())),
        Trust::NotTold(why) => Err(CommitError::NotTold(why.clone())),
    };
    let committed = match evidence {
        Err(error) => Err(error),
        Ok(evidence) => {
            let request = request(keep, ended, evidence);
            committer.commit_asking_again(&request, forget)
        }
    };
    match committed {
        Ok(report) => {
            remember(views, spool, &report);
            Ok(report)
        }
        Err(error) if ended.at_end.may_run_here && error.is_refusal_of_system() => {
            Err(NotCommitted { message: error.to_string(), paths: Vec::new(), remedy: Remedy::RunHereAlways })
        }
        // Run here, the program itself sees that there is no room, or cleans up in time.
        Err(error @ CommitError::NoSpace(_)) if ended.at_end.may_run_here => {
            Err(NotCommitted { message: error.to_string(), paths: Vec::new(), remedy: Remedy::RunHere })
        }
        Err(CommitError::Conflict(conflicts)) if ended.at_end.is_overtaken(&conflicts) => {
            let error = CommitError::Conflict(conflicts);
            Err(NotCommitted { message: error.to_string(), paths: Vec::new(), remedy: Remedy::RunHere })
        }
        Err(error) => {
            let may_be_kept = matches!(
                error,
                CommitError::Refused(_)
                    | CommitError::Conflict(_)
                    | CommitError::ReadWhileChanged(_)
                    | CommitError::NotTold(_)
                    | CommitError::NoSpace(_)
                    | CommitError::Io { .. }
            );
            let kept = ended.keeps && may_be_kept && committer.keep(&Keep { why: &error.to_string(), ..*keep }).unwrap_or_else(|failed| {
                tracing::warn!(task = %keep.task, error = %failed, "a delta that was not committed could not be kept");
                false
            });
            let paths = error.paths().into_iter().cloned().collect();
            let message = error.explain(keep.task, &ended.write.remedies(daemon.config.home.as_ref()), kept);
            let message = message.trim_start_matches("remrun: ").to_owned();
            Err(NotCommitted { message, paths, remedy: Remedy::None })
        }
    }
}

/// Notes what a commit made, with its contents, and what the views must look at anew.
fn remember(views: &Views, spool: &Spool, report: &Report) {
    for made in &report.committed {
        let Some(content) = made.content else { continue };
        let recipe = match content {
            Content::Recipe(_) => match spool.recipe(&content) {
                Ok(recipe) => Some(Arc::new(recipe)),
                Err(_) => continue,
            },
            _ => None,
        };
        views.snapshot().prime(&made.path, made.stamp, Cut { content, recipe });
    }
    look_anew(views, report);
}

/// Has the views look anew at what a commit changed.
pub fn look_anew(views: &Views, report: &Report) {
    let changed: Vec<TreePath> = report
        .committed
        .iter()
        .map(|made| made.path.clone())
        .chain(report.removed.iter().cloned())
        .chain(report.directories.iter().cloned())
        .collect();
    views.committed(&changed);
}

impl AtEnd {
    /// Whether the task can still be run here, had a lock, and others have changed what it locked or what it changed: run here it sees that.
    fn is_overtaken(&self, conflicts: &[Conflict]) -> bool {
        let counts =
            |conflict: &Conflict| conflict.why == ConflictKind::Changed || self.locked.paths.contains(&conflict.path);
        self.may_run_here && self.locked.since.is_some() && conflicts.iter().any(counts)
    }
}

/// What the client's views know of what its tasks saw, and what the task has locked.
struct Seen<'a>(&'a Views, &'a Locked, Time, NamesWithin<'a>);

impl Evidence for Seen<'_> {
    fn stamp_of(&self, path: &TreePath, seq: Seq) -> Option<Stamp> {
        self.0.stamp_of(path, seq)
    }

    fn is_locked(&self, path: &TreePath) -> bool {
        self.1.paths.contains(path)
    }

    fn may_show_at_all(&self, file: (u64, u64), names: u32) -> bool {
        self.3.has_all(file, names)
    }

    fn kept_free(&self) -> &[TreePath] {
        &self.1.new
    }

    fn seen_since(&self) -> Option<Time> {
        Some(self.2)
    }

    fn locked_since(&self) -> Option<Time> {
        self.1.since
    }
}

/// How long before a moment something must have changed last to be known not to have changed since: more than clocks of file systems
/// lag behind.
const CLOCK_GRAIN_NS: i64 = 1_000_000_000;

/// What a task saw whose daemon is no more, as far as it can be told: what has not been changed since.
struct Unchanged<'a>(Time, Option<NamesWithin<'a>>);

impl Evidence for Unchanged<'_> {
    fn stamp_of(&self, path: &TreePath, _: Seq) -> Option<Stamp> {
        let now = Stamp::of(&stat_at(path.as_bytes()).ok()?);
        (now.ctime.plus(CLOCK_GRAIN_NS) < self.0).then_some(now)
    }

    fn may_replace_new(&self) -> bool {
        false
    }

    fn may_show_at_all(&self, file: (u64, u64), names: u32) -> bool {
        self.1.as_ref().is_none_or(|within| within.has_all(file, names))
    }
}

/// Contents from a task's spool.
struct Spooled<'a>(&'a Spool);

impl Contents for Spooled<'_> {
    fn measure(&self, content: &Content) -> io::Result<Measure> {
        self.0.measure(content)
    }

    fn write_to(&self, content: &Content, file: &File) -> io::Result<()> {
        self.0.write_from(content, 0, file)
    }

    fn link_to(&self, content: &Content, folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<bool> {
        self.0.link_to(content, folder, name)
    }

    fn append_to(&self, content: &Content, from: u64, file: &File) -> io::Result<()> {
        self.0.write_from(content, from, file)
    }

    fn begins_as(&self, content: &Content, from: u64, file: &File) -> io::Result<bool> {
        self.0.begins_as(content, from, file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_id_bits_are_looked_for_where_a_file_was() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let root = TreePath::parse(folder.path().as_os_str().as_encoded_bytes()).unwrap();
        let at = |name: &str| root.join(name.as_bytes());
        for (name, mode) in [("set", 0o4755), ("plain", 0o755)] {
            let path = folder.path().join(name);
            std::fs::write(&path, name).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let attr = Attr { mode: 0o4755, ..Attr::default() };
        let file = |name: &str| Change {
            path: at(name),
            base: base::Base::Absent,
            action: Action::File {
                attr,
                xattrs: Vec::new(),
                content: Content::Empty,
                change: base::delta::FileChange::Written,
            },
        };
        let rename = |from: &str, to: &str| {
            let action = Action::Rename { from: at(from) };
            Change { path: at(to), base: base::Base::Absent, action }
        };
        let remove = |name: &str| Change { path: at(name), base: base::Base::Absent, action: Action::Remove };
        let gives = |changes: Vec<Change>| gives_rights(&Delta { changes }).is_some();
        assert!(!gives(vec![file("set")]) && gives(vec![file("plain")]) && gives(vec![file("new")]));
        assert!(!gives(vec![rename("set", "new"), file("new")]), "it has them where it was");
        assert!(gives(vec![rename("plain", "set"), remove("set"), file("set")]), "another file had them");
        assert!(gives(vec![remove("set"), file("set")]), "it is a new one");
        assert!(!gives(vec![rename("set", "plain"), rename("plain", "set"), file("plain")]));
        if rustix::process::geteuid().is_root() {
            let loses = |changes: Vec<Change>| writes_with_rights(&Delta { changes }).is_some();
            let without = |name: &str| {
                let mut change = file(name);
                let Action::File { attr, .. } = &mut change.action else { unreachable!() };
                attr.mode = 0o755;
                change
            };
            assert!(loses(vec![without("set")]) && !loses(vec![file("set")]) && !loses(vec![without("plain")]));
            assert!(!loses(vec![remove("set"), without("set")]), "it is a new one");
        }
    }

    #[test]
    fn what_has_changed_since_is_not_what_was_seen() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, b"x").unwrap();
        let path = TreePath::parse(file.as_os_str().as_encoded_bytes()).unwrap();
        let now = Time(now_nanos());
        let later = Unchanged(now.plus(10 * CLOCK_GRAIN_NS), None);
        assert_eq!(later.stamp_of(&path, Seq(1)).unwrap().size, 1);
        assert!(Unchanged(now, None).stamp_of(&path, Seq(1)).is_none());
        assert!(Unchanged(Time(i64::MIN), None).stamp_of(&path, Seq(1)).is_none());
        assert!(!later.may_replace_new() && later.stamp_of(&path.join(b"gone"), Seq(1)).is_none());
    }
}

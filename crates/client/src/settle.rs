//! The end of a task: its delta is committed, or kept and refused; and what the commit changed is remembered, so that
//! the next launch neither hashes nor sends what the task made.

use crate::commit::{CommitError, Committer, Contents, Evidence, Keep, Report, Request, Stamp, nanos_ahead};
use crate::daemon::Daemon;
use crate::plan::Plan;
use crate::recipes::Cut;
use crate::record::Record;
use crate::serve::blocking;
use crate::snapshot::{pause_nanos, stat_at};
use crate::spool::Spool;
use crate::views::Views;
use crate::write_rules::WriteRules;
use base::{Content, ExitStatus, Seq, TaskId, Time, TreePath};
use std::fs::File;
use std::io;
use std::sync::Arc;
use wire::message::Exited;
use wire::{convert, now_nanos};

/// How a task's result came out.
pub enum Settled {
    /// It is in the client's tree.
    Committed(ExitStatus),
    /// Nothing was committed: a message for the caller.
    NotCommitted(String),
    /// Nothing was committed nor kept: the system refuses here what it allowed there. Run here, the program will see that.
    RefusedHere(String),
}

/// Commits the delta of a task that ended. `may_run_here`: nobody has noticed yet that it ran elsewhere.
pub async fn settle(
    daemon: &Arc<Daemon>,
    task: TaskId,
    plan: &Plan,
    exited: Exited,
    spool: Spool,
    record: &mut Record,
    may_run_here: bool,
) -> Settled {
    let status = exited.status();
    record.ended(&exited);
    let ended = Ended {
        task,
        argv: record.argv().to_vec(),
        write: plan.write.clone(),
        launch: plan.launched(),
        trust: record.unreadable().cloned().map_or(Trust::Views, Trust::ReadWhileChanged),
        durable: daemon.config.durable,
        keeps: true,
        may_run_here,
    };
    match settle_ended(daemon, ended, exited, spool).await {
        Ok(None) => Settled::Committed(status),
        Ok(Some(report)) => {
            record.committed(&report);
            Settled::Committed(status)
        }
        Err(NotCommitted { message, paths, refused_here: false }) => {
            record.not_committed(&paths);
            Settled::NotCommitted(message)
        }
        Err(NotCommitted { message, .. }) => Settled::RefusedHere(message),
    }
}

/// Why nothing was committed.
pub(crate) struct NotCommitted {
    /// For the caller.
    pub message: String,
    /// What it is about.
    pub paths: Vec<TreePath>,
    /// The system refuses here what it allowed there, and the command may be run here.
    refused_here: bool,
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
    /// It can be run here, where the system would refuse what it allowed there.
    pub may_run_here: bool,
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
    ended: Ended,
    exited: Exited,
    spool: Spool,
) -> Result<Option<Report>, NotCommitted> {
    let status = exited.status();
    let wrong = |what: String| {
        let message = format!("nothing committed: {what}");
        NotCommitted { message, paths: Vec::new(), refused_here: false }
    };
    let delta = convert::delta(exited.changes);
    let delta = delta.map_err(|error| wrong(format!("the worker's result is no result: {error}")))?;
    if delta.changes.is_empty() {
        daemon.committer.note_outcome(ended.task, status);
        return Ok(None);
    }
    let daemon = daemon.clone();
    let work = move || {
        let write = |path: &TreePath| ended.write.decide(path);
        // A worker's clock may be a little ahead: a change here after the commit must not look older than what the task made.
        let ahead = nanos_ahead(&delta, Time(now_nanos()));
        if ahead > 0 {
            pause_nanos(ahead);
        }
        let now = Time(now_nanos());
        let (contents, why) = (&Spooled(&spool), "");
        let (task, argv) = (ended.task, ended.argv.as_slice());
        let keep = Keep { task, argv, status, delta: &delta, contents, write: &write, why, at: now };
        commit(&daemon, &keep, &spool, &ended)
    };
    let done = blocking(work).await.unwrap_or_else(|| Err(wrong("the client daemon failed".into())));
    done.map(Some)
}

/// Commits what would be kept if that failed, unless the task read something that cannot be relied on.
fn commit(daemon: &Daemon, keep: &Keep<'_>, spool: &Spool, ended: &Ended) -> Result<Report, NotCommitted> {
    let committer: &Committer = &daemon.committer;
    let views = daemon.server.views();
    let (seen, unchanged);
    let evidence: Result<&dyn Evidence, CommitError> = match &ended.trust {
        Trust::Views => {
            seen = Seen(views);
            Ok(&seen)
        }
        Trust::Since(since) => {
            unchanged = Unchanged(*since);
            Ok(&unchanged)
        }
        Trust::ReadWhileChanged(path) => Err(CommitError::ReadWhileChanged(path.clone())),
        Trust::NotTold(why) => Err(CommitError::NotTold(why.clone())),
    };
    let committed = match evidence {
        Err(error) => Err(error),
        Ok(evidence) => committer.commit(&Request {
            task: keep.task,
            status: keep.status,
            delta: keep.delta,
            evidence,
            contents: keep.contents,
            write: keep.write,
            durable: ended.durable,
            launch: ended.launch,
            now: keep.at,
        }),
    };
    match committed {
        Ok(report) => {
            remember(views, spool, &report);
            Ok(report)
        }
        Err(error) if ended.may_run_here && error.is_refusal_of_system() => {
            Err(NotCommitted { message: error.to_string(), paths: Vec::new(), refused_here: true })
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
            let message = error.explain(keep.task, daemon.config.home.as_ref(), kept);
            let message = message.trim_start_matches("remrun: ").to_owned();
            Err(NotCommitted { message, paths, refused_here: false })
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

/// What the client's views know of what its tasks saw.
struct Seen<'a>(&'a Views);

impl Evidence for Seen<'_> {
    fn stamp_of(&self, path: &TreePath, seq: Seq) -> Option<Stamp> {
        self.0.stamp_of(path, seq)
    }
}

/// How long before a moment something must have changed last to be known not to have changed since: more than clocks of file systems
/// lag behind.
const CLOCK_GRAIN_NS: i64 = 1_000_000_000;

/// What a task saw whose daemon is no more, as far as it can be told: what has not been changed since.
struct Unchanged(Time);

impl Evidence for Unchanged {
    fn stamp_of(&self, path: &TreePath, _: Seq) -> Option<Stamp> {
        let now = Stamp::of(&stat_at(path.as_bytes()).ok()?);
        (now.ctime.plus(CLOCK_GRAIN_NS) < self.0).then_some(now)
    }

    fn may_replace_new(&self) -> bool {
        false
    }
}

/// Contents from a task's spool.
struct Spooled<'a>(&'a Spool);

impl Contents for Spooled<'_> {
    fn write_to(&self, content: &Content, file: &File) -> io::Result<()> {
        self.0.write_from(content, 0, file)
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
    fn what_has_changed_since_is_not_what_was_seen() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, b"x").unwrap();
        let path = TreePath::parse(file.as_os_str().as_encoded_bytes()).unwrap();
        let now = Time(now_nanos());
        let later = Unchanged(now.plus(10 * CLOCK_GRAIN_NS));
        assert_eq!(later.stamp_of(&path, Seq(1)).unwrap().size, 1);
        assert!(Unchanged(now).stamp_of(&path, Seq(1)).is_none());
        assert!(Unchanged(Time(i64::MIN)).stamp_of(&path, Seq(1)).is_none());
        assert!(!later.may_replace_new() && later.stamp_of(&path.join(b"gone"), Seq(1)).is_none());
    }
}

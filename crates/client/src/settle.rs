//! The end of a task: its delta is committed, or kept and refused; and what the commit changed is remembered, so that
//! the next launch neither hashes nor sends what the task made.

use crate::commit::{CommitError, Committer, Contents, Evidence, Keep, Report, Request, Stamp};
use crate::daemon::Daemon;
use crate::plan::Plan;
use crate::recipes::Cut;
use crate::record::Record;
use crate::serve::blocking;
use crate::spool::Spool;
use crate::views::Views;
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
}

/// Commits the delta of a task that ended.
pub async fn settle(
    daemon: &Arc<Daemon>,
    task: TaskId,
    plan: &Plan,
    exited: Exited,
    spool: Spool,
    record: &mut Record,
) -> Settled {
    let status = exited.status();
    record.ended(&exited);
    let delta = match convert::delta(exited.changes) {
        Ok(delta) => delta,
        Err(error) => {
            return Settled::NotCommitted(format!("nothing committed: the worker's result is no result: {error}"));
        }
    };
    if delta.changes.is_empty() {
        daemon.committer.note_outcome(task, status);
        return Settled::Committed(status);
    }
    let work = {
        let (daemon, write, launch) = (daemon.clone(), plan.write.clone(), plan.launched());
        let (argv, unreadable) = (record.argv().to_vec(), record.unreadable().cloned());
        move || {
            let write = |path: &TreePath| write.decide(path);
            let now = Time(now_nanos());
            let (contents, why) = (&Spooled(&spool), "");
            let keep = Keep { task, argv: &argv, status, delta: &delta, contents, write: &write, why, at: now };
            commit(&daemon, &keep, &spool, launch, unreadable)
        }
    };
    match blocking(work).await {
        Some(Ok(report)) => {
            record.committed(&report);
            Settled::Committed(status)
        }
        Some(Err((message, paths))) => {
            record.not_committed(&paths);
            Settled::NotCommitted(message)
        }
        None => Settled::NotCommitted("nothing committed: the client daemon failed".into()),
    }
}

/// Commits what would be kept if that failed, unless the task read something `unreadable`.
fn commit(
    daemon: &Daemon,
    keep: &Keep<'_>,
    spool: &Spool,
    launch: Time,
    unreadable: Option<TreePath>,
) -> Result<Report, (String, Vec<TreePath>)> {
    let committer: &Committer = &daemon.committer;
    let views = daemon.server.views();
    let request = Request {
        task: keep.task,
        status: keep.status,
        delta: keep.delta,
        evidence: &Seen(views),
        contents: keep.contents,
        write: keep.write,
        durable: daemon.config.durable,
        launch,
        now: keep.at,
    };
    let committed = match unreadable {
        Some(path) => Err(CommitError::ReadWhileChanged(path)),
        None => committer.commit(&request),
    };
    match committed {
        Ok(report) => {
            remember(views, spool, &report);
            Ok(report)
        }
        Err(error) => {
            let keeps = matches!(
                error,
                CommitError::Refused(_)
                    | CommitError::Conflict(_)
                    | CommitError::ReadWhileChanged(_)
                    | CommitError::NoSpace(_)
                    | CommitError::Io { .. }
            );
            let kept = keeps && committer.keep(&Keep { why: &error.to_string(), ..*keep }).unwrap_or_else(|failed| {
                tracing::warn!(task = %keep.task, error = %failed, "a delta that was not committed could not be kept");
                false
            });
            let paths = error.paths().into_iter().cloned().collect();
            let message = error.explain(keep.task, daemon.config.home.as_ref(), kept);
            Err((message.trim_start_matches("remrun: ").to_owned(), paths))
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

/// Contents from a task's spool.
struct Spooled<'a>(&'a Spool);

impl Contents for Spooled<'_> {
    fn write_to(&self, content: &Content, file: &File) -> io::Result<()> {
        self.0.write_from(content, 0, file)
    }

    fn append_to(&self, content: &Content, from: u64, file: &File) -> io::Result<()> {
        self.0.write_from(content, from, file)
    }
}

//! Commits a kept delta over what is there now, because its owner said so.

use super::fit::{Fitted, Named, fit};
use super::stored::Stored;
use super::{KEPT_BYTES_MAX, Keep, bytes_of, nothing_kept, seal};
use crate::commit::tree::Tree;
use crate::commit::{CommitError, Committer, Report, Request, WriteDecision, crashed, files, policy, validate};
use base::codec::Encode;
use base::{Action, Content, Delta, ExitStatus, TaskId, Time, TreePath};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::io;
use wire::lock;

/// Largest stored delta that is read, in bytes.
const STORED_BYTES_MAX: u64 = 1 << 30;

/// What [`Committer::commit_kept`] did.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Recommitted {
    /// What the commit did.
    pub report: Report,
    /// The number under which what was replaced is kept, if anything was.
    pub replaced: Option<TaskId>,
    /// Paths of changes that could not be made, because what they are about is gone and the delta does not hold it.
    pub skipped: Vec<TreePath>,
}

impl Committer {
    /// Commits the kept delta of `task` over what is there now, except what the write policy refused and is not within
    /// `allowed`. What is replaced is kept first, as the delta of `undo`, whose commit brings it back. What was kept of
    /// `task` is then forgotten.
    ///
    /// # Errors
    /// Says why nothing was committed: then the delta is still kept.
    pub fn commit_kept(
        &self,
        task: TaskId,
        undo: TaskId,
        allowed: &[TreePath],
        durable: bool,
        now: Time,
    ) -> Result<Recommitted, CommitError> {
        if self.outcome(task).is_some() {
            // A crash came between the commit and this.
            self.drop_kept(task)?;
            return Ok(Recommitted::default());
        }
        if self.is_stuck(task) {
            let why = lock(&self.stuck).get(&task).cloned();
            return Err(CommitError::Stuck(why.unwrap_or_default()));
        }
        let stored = self.stored(task).map_err(CommitError::State)?;
        let write = as_decided(&stored, allowed);
        let tree = self.tree()?;
        let whole = Tree::open(&self.kept_folder().join(task.to_hex()).join("files")).map_err(CommitError::State)?;
        let names = names(&stored.delta);
        let contents = Named { tree: &whole, names: &names };
        let allowed = policy::allow(&tree, &stored.delta, &write, self.own.as_ref())?;
        let wanted = Delta { changes: allowed.changes.into_iter().map(Cow::into_owned).collect() };
        let fitted = fit(&tree, &wanted, &contents, now)?;
        let replaced = match fitted.replaces {
            true => Some(self.keep_replaced(task, undo, &tree, &fitted, now)?),
            false => None,
        };
        let request = Request {
            task,
            status: stored.status,
            delta: &fitted.delta,
            evidence: &fitted.seen,
            contents: &contents,
            write: &write,
            durable,
            launch: now,
            now,
        };
        match self.commit(&request) {
            Ok(report) => {
                self.drop_kept(task)?;
                let report = Report { scratch: allowed.scratch, ..report };
                Ok(Recommitted { report, replaced, skipped: fitted.skipped })
            }
            Err(error) => {
                // What a commit left half-way may yet be wanted.
                if let Some(replaced) =
                    replaced.filter(|_| !matches!(error, CommitError::HalfUndone { .. }) && !crashed())
                {
                    self.drop_kept(replaced)?;
                }
                Err(error)
            }
        }
    }

    fn stored(&self, task: TaskId) -> io::Result<Stored> {
        let folder = self.kept_folder().join(task.to_hex());
        if !folder.join("info").exists() {
            return Err(nothing_kept());
        }
        seal::check(&folder)?;
        let bytes = files::read_bounded(&folder.join("delta"), STORED_BYTES_MAX)?;
        Stored::from_bytes(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
    }

    /// Keeps what the commit of `fitted` will take away.
    fn keep_replaced(
        &self,
        task: TaskId,
        undo: TaskId,
        tree: &Tree,
        fitted: &Fitted,
        now: Time,
    ) -> Result<TaskId, CommitError> {
        if bytes_of(&fitted.undo) > KEPT_BYTES_MAX {
            return Err(too_large(&fitted.undo));
        }
        validate(&fitted.undo)?;
        let kept = self.keep_beside(
            &Keep {
                task: undo,
                argv: &["gleaner", "recover", &task.short()].map(str::to_owned),
                status: ExitStatus::Code(0),
                delta: &fitted.undo,
                contents: &Named { tree, names: &fitted.undo_contents },
                write: &|_| WriteDecision::Commit,
                why: &format!("was here before task {} was recovered", task.short()),
                at: now,
            },
            Some(task),
        )?;
        debug_assert!(kept, "it keeps the rules and is not too large");
        Ok(undo)
    }
}

/// The error when more would be replaced than can be kept.
fn too_large(undo: &Delta) -> CommitError {
    let size = |change: &&base::Change| match &change.action {
        Action::File { attr, .. } => attr.size,
        _ => 0,
    };
    let path = undo.changes.iter().max_by_key(size).map_or_else(TreePath::root, |change| change.path.clone());
    let source = io::Error::other(format!("{} bytes would be replaced, more than can be kept", bytes_of(undo)));
    CommitError::Io { what: "keep what is at", path, source }
}

/// What is said of a path that the write policy dropped when the delta was kept.
const WAS_DROPPED: &str = "was dropped by the write policy when this was kept";

/// The write policy as it was when the delta was kept, but that paths within `allowed` may be written.
fn as_decided<'a>(stored: &'a Stored, allowed: &'a [TreePath]) -> impl Fn(&TreePath) -> WriteDecision + 'a {
    let scratch: HashSet<&TreePath> = stored.scratch.iter().collect();
    let refused: HashMap<&TreePath, &str> = stored.refused.iter().map(|one| (&one.path, one.reason.as_str())).collect();
    move |path| match refused.get(path) {
        _ if allowed.iter().any(|allowed| path.is_within(allowed)) => WriteDecision::Commit,
        _ if scratch.contains(path) => WriteDecision::Scratch(WAS_DROPPED),
        Some(reason) => WriteDecision::Refuse((*reason).to_owned()),
        None => WriteDecision::Commit,
    }
}

/// Where a kept delta has its contents.
fn names(delta: &Delta) -> HashMap<Content, TreePath> {
    let file = |change: &base::Change| match &change.action {
        Action::File { content, .. } if *content != Content::Empty => Some((*content, change.path.clone())),
        _ => None,
    };
    delta.changes.iter().filter_map(file).collect()
}

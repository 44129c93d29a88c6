//! Why a commit did not happen.

use super::remedies::Remedies;
use crate::policy::{COULD_NOT, PROJECT_FILE};
use base::{ExitStatus, TaskId, TreePath};
use std::collections::HashSet;
use std::fmt::Write;

/// Nothing was committed, and why. Whatever the reason, the tree is as it was, save for
/// [`CommitError::HalfUndone`].
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The delta breaks the rules that every honest worker keeps.
    #[error("nothing committed: the worker sent changes that break the rules: {0}")]
    Invalid(String),
    /// The write policy keeps these paths from being written.
    #[error("nothing committed: {}", list(&by_reason(.0)))]
    Refused(Vec<Refusal>),
    /// These paths changed at the client since the task saw them.
    #[error("nothing committed: {}", list(.0))]
    Conflict(Vec<Conflict>),
    /// This path changed at the client while the task may have been reading it: what it made of that is not to be trusted.
    #[error("nothing committed: {0} was changed here while the command read it: run it again")]
    ReadWhileChanged(TreePath),
    /// The task asked what could not be told it: what it made of that is not to be trusted. The reason says what to do next.
    #[error("nothing committed: {0}")]
    NotTold(String),
    /// There is no room where this is to be.
    #[error("nothing committed: no room on the disk for {0}: make room there, and run it again")]
    NoSpace(TreePath),
    /// There is no room for the daemon's own state, in this folder.
    #[error("nothing committed: no room on the disk of gleaner's own state, {}: make room there, and run it again", .0.display())]
    NoStateSpace(std::path::PathBuf),
    /// The bytes of a file could not be had, or are not what the delta says.
    #[error("nothing committed: the new content of {path} cannot be had: {why}")]
    Content {
        /// Which file.
        path: TreePath,
        /// What went wrong.
        why: String,
    },
    /// This task's changes were committed before.
    #[error("the changes of this task are committed already")]
    AlreadyCommitted(ExitStatus),
    /// The file system did not do what was asked.
    #[error("nothing committed: cannot {what} {path}: {source}")]
    Io {
        /// What was tried, as a verb.
        what: &'static str,
        /// On which path.
        path: TreePath,
        /// What the system said.
        source: std::io::Error,
    },
    /// What is new here gets an access list from its directory, and what list a program would have got is not known.
    #[error(
        "nothing committed: {0} hands an access list (ACL) down, which files made elsewhere cannot have: run it here"
    )]
    HandsListDown(TreePath),
    /// The daemon's own state folder failed.
    #[error("nothing committed: the state folder cannot be used: {0}")]
    State(#[source] std::io::Error),
    /// A commit failed in the middle, and undoing it failed as well. The record stays, and is tried again at the
    /// daemon's next start.
    #[error(
        "a commit failed in the middle ({why}), and so did undoing it at {path} ({source}); it is tried again when \
             the daemon starts"
    )]
    HalfUndone {
        /// What failed first.
        why: String,
        /// Where undoing failed.
        path: TreePath,
        /// What the system said.
        source: std::io::Error,
    },
    /// An earlier life of the daemon began to commit this, and it could be neither finished nor undone since, for this
    /// reason. Nothing was done now.
    #[error(
        "an earlier commit of it stopped in the middle and could be neither finished nor undone ({0}): gleaner recover shows \
             it, and --into FOLDER copies what there is of it"
    )]
    Stuck(String),
}

/// Why a path is refused that looks like a staging folder.
pub(super) const KEPT_NAME: &str = "is a name that gleaner keeps";
/// Why a path is refused in the daemon's own folder.
pub(super) const OWN_STATE: &str = "is gleaner's own state";

/// A path that the write policy refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} {reason}")]
pub struct Refusal {
    /// Which.
    pub path: TreePath,
    /// Why, as what follows the path in a sentence: "is outside the write policy".
    pub reason: String,
}

impl Refusal {
    /// Whether it is not the policy that refuses, but the user's rights here.
    fn is_of_system(&self) -> bool {
        self.reason == COULD_NOT
    }

    /// Whether a caller may allow it all the same.
    pub(super) fn may_be_allowed(&self) -> bool {
        !self.is_of_system() && ![KEPT_NAME, OWN_STATE].contains(&self.reason.as_str())
    }
}

/// A path on which the task and somebody else disagree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} {why}")]
pub struct Conflict {
    /// Which.
    pub path: TreePath,
    /// How.
    pub why: ConflictKind,
}

/// How a path conflicts, as what follows the path in a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConflictKind {
    /// Both changed it.
    #[error("was changed here while the task ran")]
    Changed,
    /// The task changed it, somebody else removed it.
    #[error("was removed here while the task ran")]
    Gone,
    /// The task removed a directory that somebody else put this into.
    #[error("is new or changed in a directory that the task removed")]
    InRemovedDirectory,
    /// The task made a file where somebody else made a directory, or the like.
    #[error("is a directory here, and the task made something else")]
    DirectoryInTheWay,
    /// The directory that should hold it is gone, or is none.
    #[error("has no directory to be in any more")]
    ParentGone,
    /// Something is mounted there, or beneath: where it is has to stay.
    #[error("is a mount point here, or holds one, and can be neither moved nor removed: unmount it first")]
    MountPoint,
    /// The task made it as something that nobody else has, and so did somebody else.
    #[error("was made here, too, while the task ran, and only one can have made it")]
    Made,
    /// What the task saw there is not known any more.
    #[error("was changed by the task, and what it saw there is not known any more")]
    NoEvidence,
}

/// These, and first the first of each reason: the others cannot hide it.
fn by_reason(refused: &[Refusal]) -> Vec<&Refusal> {
    let mut reasons = HashSet::new();
    let (mut first, others): (Vec<_>, Vec<_>) = refused.iter().partition(|refusal| reasons.insert(&refusal.reason));
    first.extend(others);
    first
}

/// At most ten of `items`, and how many more there are.
fn list<T: std::fmt::Display>(items: &[T]) -> String {
    let mut text = String::new();
    for (at, item) in items.iter().take(10).enumerate() {
        let _ = write!(text, "{}{item}", if at == 0 { "" } else { "\n                " });
    }
    if items.len() > 10 {
        let _ = write!(text, "\n                and {} more", items.len() - 10);
    }
    text
}

impl CommitError {
    /// The paths at which it failed, for those who list them.
    pub fn paths(&self) -> Vec<&TreePath> {
        match self {
            Self::Refused(refusals) => refusals.iter().map(|refusal| &refusal.path).collect(),
            Self::Conflict(conflicts) => conflicts.iter().map(|conflict| &conflict.path).collect(),
            Self::ReadWhileChanged(path)
            | Self::HandsListDown(path)
            | Self::NoSpace(path)
            | Self::Content { path, .. }
            | Self::Io { path, .. }
            | Self::HalfUndone { path, .. } => vec![path],
            Self::Invalid(_)
            | Self::NotTold(_)
            | Self::AlreadyCommitted(_)
            | Self::NoStateSpace(_)
            | Self::State(_)
            | Self::Stuck(_) => Vec::new(),
        }
    }

    /// Whether this system refuses what the one where the task ran allowed: run here, the program itself would have been
    /// refused.
    pub fn is_refusal_of_system(&self) -> bool {
        use rustix::io::Errno;
        let source = match self {
            Self::Io { source, .. } => source,
            Self::Refused(refusals) => return refusals.iter().all(Refusal::is_of_system),
            _ => return matches!(self, Self::HandsListDown(_)),
        };
        let refusals =
            [Errno::PERM, Errno::ACCESS, Errno::ROFS, Errno::BUSY, Errno::XDEV, Errno::OPNOTSUPP, Errno::NAMETOOLONG];
        let code = source.raw_os_error().map(Errno::from_raw_os_error);
        code.is_some_and(|code| refusals.contains(&code))
    }

    /// What a user reads, with what to do next; `kept` tells that [`super::Committer::keep`] kept the delta.
    pub fn explain(&self, task: TaskId, remedies: &Remedies<'_>, kept: bool) -> String {
        let mut text = format!("remrun: {}", remedies.shortened(&self.to_string()));
        let refused = if let Self::Refused(refused) = self { refused.as_slice() } else { &[] };
        let once = remedies.once(refused);
        if kept {
            let _ = write!(text, "\n  kept: gleaner recover {}", task.short());
        }
        if let Some(once) = once {
            let gap = if kept { "      " } else { "\n  " };
            let _ = write!(text, "{gap}once: {once}");
        }
        if let Some(entry) = remedies.entry(refused) {
            let _ = write!(text, "\n  project: {entry} in {PROJECT_FILE}, then gleaner trust");
        }
        if let Some(why) = remedies.grants_nothing.filter(|_| !refused.is_empty()) {
            let _ = write!(text, "\n  {PROJECT_FILE} grants nothing: {why}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::BindError;

    #[test]
    fn what_to_do_is_said_once() {
        let path = TreePath::parse(b"/x").expect("a path");
        let late = CommitError::NotTold(BindError::Late { path: path.clone() }.to_string()).to_string();
        assert!(late.ends_with("used it: run it again in a new job"), "{late}");
        let many = CommitError::NotTold(BindError::TooMany { path, paths_max: 7 }.to_string()).to_string();
        assert!(many.ends_with("divide it into several") && !many.contains("again"), "{many}");
    }
}

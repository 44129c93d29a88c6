//! What of a delta the write policy lets through.

use super::check::is_staging;
use super::error::{CommitError, KEPT_NAME, OWN_STATE, Refusal};
use super::tree::{self, Tree};
use super::validate::committed_xattrs;
use super::{WriteDecision, WritePolicy};
use crate::guard::REPOSITORY;
use base::delta::FileChange;
use base::{Action, Attr, Change, Delta, TreePath, Xattr};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// What is to be committed, and the paths that the policy drops.
pub(crate) struct Allowed<'a> {
    pub(crate) changes: Vec<Cow<'a, Change>>,
    pub(crate) scratch: Vec<(TreePath, &'static str)>,
    /// Targets of renames and links that become copies, because the file itself is in a place of which nothing is
    /// committed, and stays there as it is.
    pub(crate) copies: HashSet<TreePath>,
}

/// Asks the policy about each change. `own` is the daemon's own folder, which nothing may touch.
///
/// A directory of which only the mtime changed, as it does with each file made in it, is never a reason to refuse: it gets
/// it if an entry of it is committed. A directory that is to be dropped is made all the same if something that is committed is in it. Who
/// gives a file another name can write to it by that name: so the policy is asked about the file, too.
pub(crate) fn allow<'a>(
    tree: &Tree,
    delta: &'a Delta,
    policy: WritePolicy<'_>,
    own: Option<&TreePath>,
) -> Result<Allowed<'a>, CommitError> {
    let mut verdicts = Vec::with_capacity(delta.changes.len());
    let mut refusals = Vec::new();
    let mut copies = HashSet::new();
    let made = made(delta);
    for change in &delta.changes {
        let decision = match decide(&change.path, policy, own) {
            WriteDecision::Refuse(_) | WriteDecision::Scratch(_) if is_mtime_only(tree, change) => Decision::Time,
            WriteDecision::Refuse(reason) => {
                refusals.push(Refusal { path: change.path.clone(), reason });
                Decision::Drop
            }
            WriteDecision::Scratch(why) => Decision::Scratch(why),
            WriteDecision::Commit => Decision::Commit,
        };
        let decision = match &change.action {
            Action::Rename { from } => match (decision, decide(from, policy, own)) {
                (_, WriteDecision::Refuse(reason)) => {
                    refusals.push(Refusal { path: from.clone(), reason });
                    Decision::Drop
                }
                (Decision::Commit, WriteDecision::Scratch(_)) if is_file(tree, from) => {
                    copies.insert(change.path.clone());
                    decision
                }
                (Decision::Commit, WriteDecision::Scratch(_)) | (Decision::Scratch(_), WriteDecision::Commit) => {
                    let reason = "is moved between what is kept and what the write policy drops".to_owned();
                    refusals.push(Refusal { path: from.clone(), reason });
                    Decision::Drop
                }
                (decision, _) => decision,
            },
            Action::HardLink { to } if decision == Decision::Commit && !made.contains(to) => {
                match decide(to, policy, own) {
                    WriteDecision::Commit => decision,
                    WriteDecision::Scratch(_) => {
                        copies.insert(change.path.clone());
                        decision
                    }
                    WriteDecision::Refuse(reason) => {
                        let reason = format!("is given another name, and {reason}");
                        refusals.push(Refusal { path: to.clone(), reason });
                        Decision::Drop
                    }
                }
            }
            _ => decision,
        };
        verdicts.push(decision);
    }
    match refusals.is_empty() {
        true => Ok(Allowed { copies, ..sort_out(delta, &verdicts) }),
        false => Err(CommitError::Refused(refusals)),
    }
}

/// Whether what the policy says of a delta may be something else after another commit: it moves or links something, or makes what git knows
/// repositories by, which count together.
pub(crate) fn hangs_on_others(delta: &Delta) -> bool {
    let is_part = |path: &TreePath| {
        REPOSITORY.iter().any(|part| part.as_bytes().eq_ignore_ascii_case(path.name()))
            && !path.components().any(|name| name == b".git")
    };
    delta.changes.iter().any(|change| match &change.action {
        Action::Rename { .. } | Action::Symlink { .. } | Action::HardLink { .. } => true,
        Action::Remove | Action::LastWrite { .. } => false,
        Action::Directory { .. } | Action::File { .. } | Action::Fifo { .. } => is_part(&change.path),
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Decision {
    Commit,
    /// For this reason.
    Scratch(&'static str),
    /// Of a directory that stays only the mtime changed.
    Time,
    Drop,
}

fn decide(path: &TreePath, policy: WritePolicy<'_>, own: Option<&TreePath>) -> WriteDecision {
    let touches_own = own.is_some_and(|own| path.is_within(own) || (own.is_within(path) && own != path));
    match policy(path) {
        WriteDecision::Commit if is_staging(path) => WriteDecision::Refuse(KEPT_NAME.to_owned()),
        WriteDecision::Commit if touches_own && own.is_some_and(|own| path.is_within(own)) => {
            WriteDecision::Refuse(OWN_STATE.to_owned())
        }
        decision => decision,
    }
}

/// The paths at which a delta makes or writes a file, link or pipe: about these the policy is asked on their own.
fn made(delta: &Delta) -> HashSet<&TreePath> {
    let makes = |change: &&Change| match change.action {
        Action::File { change: how, .. } => how != FileChange::Attributes,
        Action::Symlink { .. } | Action::HardLink { .. } | Action::Fifo { .. } => true,
        Action::Remove | Action::Rename { .. } | Action::Directory { .. } | Action::LastWrite { .. } => false,
    };
    delta.changes.iter().filter(makes).map(|change| &change.path).collect()
}

fn is_file(tree: &Tree, path: &TreePath) -> bool {
    tree.node(path).ok().flatten().is_some_and(|node| node.is_file())
}

/// Whether `change` is of a directory that stays, with all but its mtime as it is.
fn is_mtime_only(tree: &Tree, change: &Change) -> bool {
    let Action::Directory { attr, xattrs, replaces: false } = &change.action else { return false };
    let there = tree.node(&change.path).ok().flatten();
    let Some(node) = there.filter(|node| node.is_directory()) else { return false };
    let same = |attr: &Attr| (node.mode & 0o1777, node.uid, node.gid) == (attr.mode & 0o1777, attr.uid, attr.gid);
    same(attr) && has_xattrs(tree, &change.path, xattrs)
}

fn has_xattrs(tree: &Tree, path: &TreePath, wanted: &[Xattr]) -> bool {
    let there = tree.hold(path).and_then(|held| tree::xattrs_of(&held));
    there.is_ok_and(|there| there == committed_xattrs(wanted))
}

/// The directories of which a committed change makes, replaces or takes away an entry.
fn entered(delta: &Delta, verdicts: &[Decision]) -> HashSet<TreePath> {
    let committed = delta.changes.iter().zip(verdicts).filter(|(_, verdict)| **verdict == Decision::Commit);
    let from = |action: &Action| match action {
        Action::Rename { from } => from.parent(),
        _ => None,
    };
    committed.flat_map(|(change, _)| change.path.parent().into_iter().chain(from(&change.action))).collect()
}

fn sort_out<'a>(delta: &'a Delta, verdicts: &[Decision]) -> Allowed<'a> {
    let mut needed: HashSet<TreePath> = HashSet::new();
    let mut dropped: HashMap<&TreePath, &Change> = HashMap::new();
    for (change, verdict) in delta.changes.iter().zip(verdicts) {
        let mut parent = change.path.parent().filter(|_| *verdict == Decision::Commit);
        while let Some(path) = parent.take_if(|path| !needed.contains(path)) {
            parent = path.parent();
            needed.insert(path);
        }
        let has_content = matches!(change.action, Action::File { change: how, .. } if how != FileChange::Attributes);
        if *verdict != Decision::Commit && has_content {
            dropped.insert(&change.path, change);
        }
    }
    let entered = entered(delta, verdicts);
    let (scratch, copies) = Default::default();
    let mut allowed = Allowed { changes: Vec::with_capacity(delta.changes.len()), scratch, copies };
    // A second name of a dropped file becomes a file of its own, and further names are names of that.
    let mut stands_for: HashMap<&TreePath, &TreePath> = HashMap::new();
    for (change, verdict) in delta.changes.iter().zip(verdicts) {
        let directory = matches!(change.action, Action::Directory { .. });
        match verdict {
            Decision::Commit => {}
            Decision::Scratch(_) if directory && needed.contains(&change.path) => {}
            Decision::Scratch(why) => {
                allowed.scratch.push((change.path.clone(), *why));
                continue;
            }
            Decision::Time if entered.contains(&change.path) => {}
            Decision::Time | Decision::Drop => continue,
        }
        let changed = match &change.action {
            Action::HardLink { to } => match (stands_for.get(to), dropped.get(to)) {
                (Some(first), _) => {
                    let action = Action::HardLink { to: (*first).clone() };
                    Cow::Owned(Change { path: change.path.clone(), base: change.base, action })
                }
                (None, Some(original)) => {
                    stands_for.insert(to, &change.path);
                    Cow::Owned(standing_for(change, original))
                }
                (None, None) => Cow::Borrowed(change),
            },
            _ => Cow::Borrowed(change),
        };
        allowed.changes.push(changed);
    }
    allowed
}

/// The file that `original` makes, at the path of `link`.
fn standing_for(link: &Change, original: &Change) -> Change {
    let mut action = original.action.clone();
    if let Action::File { change, .. } = &mut action {
        *change = FileChange::Written;
    }
    Change { path: link.path.clone(), base: link.base, action }
}

//! After a crash: commits that were under way are finished or undone.

use super::apply::Applier;
use super::plan::Plan;
use super::stage::Stages;
use super::{CommitError, Committer, files};
use base::TaskId;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use wire::lock;

/// Largest redo record that is read, in bytes.
pub(super) const RECORD_BYTES_MAX: u64 = 4 << 30;

/// What [`Committer::recover`] did.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Tasks whose commit was finished.
    pub finished: Vec<TaskId>,
    /// Tasks whose commit was undone.
    pub undone: Vec<TaskId>,
    /// Tasks whose commit could be neither finished nor undone, and why. Their records stay, and are tried again.
    pub stuck: Vec<(TaskId, String)>,
    /// Those of which that was found for the last time now: they are kept, and not tried any more.
    pub set_aside: Vec<(TaskId, String)>,
}

impl Committer {
    /// Finishes each commit that a crash interrupted, or undoes it if its new contents are not all there or somebody has
    /// changed what it was to replace; and clears the staging folders. To be called before the first commit.
    ///
    /// # Errors
    /// [`CommitError::State`] if the state folder cannot be read.
    pub fn recover(&self) -> Result<Recovered, CommitError> {
        let mut recovered = Recovered::default();
        let tree = self.tree()?;
        let folder = self.state.join("redo");
        let mut records: Vec<_> = std::fs::read_dir(&folder)
            .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>())
            .map_err(CommitError::State)?;
        records.sort();
        for path in records {
            let extension = path.extension().and_then(|extension| extension.to_str());
            if self.is_of_stuck(&path) {
                continue;
            }
            if !matches!(extension, Some("redo" | "undo")) {
                // A record that was never completed, so that nothing of its commit was begun; or the spare one.
                match std::fs::remove_file(&path) {
                    // A note on a commit that could be finished or undone now.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    other => other.map_err(CommitError::State)?,
                }
                continue;
            }
            self.recover_one(&tree, &path, extension == Some("redo"), &mut recovered)?;
        }
        let mut stuck = recovered.stuck.clone();
        stuck.extend(self.set_aside(&tree));
        if !self.begun.load(Ordering::SeqCst) {
            let spared: Vec<TaskId> = stuck.iter().map(|(task, _)| *task).collect();
            self.yard.sweep(&tree, &spared).map_err(CommitError::State)?;
        }
        *lock(&self.stuck) = stuck.into_iter().collect();
        Ok(recovered)
    }

    fn found_stuck(&self, task: TaskId, record: &Path, why: String, recovered: &mut Recovered) {
        let aside = self.note_stuck(task, record, &why).unwrap_or_else(|error| {
            tracing::warn!(%task, %error, "it could not be noted that a commit is stuck: it is tried again");
            false
        });
        let found = if aside { &mut recovered.set_aside } else { &mut recovered.stuck };
        found.push((task, why));
    }

    fn recover_one(
        &self,
        tree: &super::Tree,
        path: &Path,
        finish: bool,
        recovered: &mut Recovered,
    ) -> Result<(), CommitError> {
        let bytes = files::read_bounded(path, RECORD_BYTES_MAX).map_err(CommitError::State)?;
        let Ok(plan) = Plan::from_record(&bytes) else {
            // Renamed before its bytes were on the disk, by a power failure: nothing was begun with fsync, and without
            // it nothing is promised.
            return std::fs::remove_file(path).map_err(CommitError::State);
        };
        let mut stages = match Stages::reopen(&self.yard, &plan, tree) {
            Ok(stages) => stages,
            Err(error) => {
                self.found_stuck(plan.task, path, error.to_string(), recovered);
                return Ok(());
            }
        };
        let applier = Applier { tree, stages: &stages, recovering: true, folders: Default::default() };
        let mut outcomes = self.turn();
        tree.forget();
        // What is known to be in the tree is not looked at again: others may have gone on from there.
        let closed = outcomes.get(plan.task).is_some();
        let finished = finish && (closed || applier.forward(&plan).is_ok());
        let result = match finished {
            true => self.close(tree, &plan, &Default::default(), &mut outcomes).map_err(|error| error.to_string()),
            false => {
                tree.forget();
                let undone = self.undo(&applier, &plan, plan.steps.len());
                undone.map_err(|(path, error)| format!("{path}: {error}"))
            }
        };
        match result {
            Err(why) => {
                stages.leave();
                let undo = self.record(plan.task, "undo");
                let record = if undo.exists() { &undo } else { path };
                self.found_stuck(plan.task, record, why, recovered);
            }
            Ok(()) => {
                self.forget_stuck(plan.task);
                let tasks = if finished { &mut recovered.finished } else { &mut recovered.undone };
                tasks.push(plan.task);
                if let Err(error) = stages.clear(tree) {
                    tracing::warn!(task = %plan.task, %error, "a staging folder could not be cleared");
                }
            }
        }
        Ok(())
    }
}

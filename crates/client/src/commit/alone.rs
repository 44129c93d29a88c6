//! One commit of a task at a time: a result may come again while it is still committed.

use super::Committer;
use base::TaskId;
use std::sync::PoisonError;
use wire::lock;

/// The only commit of a task that is under way, until this is dropped.
pub(super) struct Alone<'a> {
    committer: &'a Committer,
    task: TaskId,
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        lock(&self.committer.under_way).remove(&self.task);
        self.committer.one_ended.notify_all();
    }
}

impl Committer {
    /// Waits until no other commit of this task is under way: a result may come again while it is still committed.
    pub(super) fn alone(&self, task: TaskId) -> Alone<'_> {
        let mut under_way = lock(&self.under_way);
        while !under_way.insert(task) {
            under_way = self.one_ended.wait(under_way).unwrap_or_else(PoisonError::into_inner);
        }
        Alone { committer: self, task }
    }
}

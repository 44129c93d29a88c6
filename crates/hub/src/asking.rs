//! What a worker may ask, and for which task: for those alone that run there now, and for each within its budget.
//!
//! Tasks of one view share what is asked, and a task can end while another one waits for the answer to its question. So a question that
//! names a task which does not run there counts for another of the same client (and the same view) that does; if none does it is refused.
//! A worker that names the task of another worker gains nothing by it.

use crate::session::SessionKey;
use base::{TaskId, TreePath, ViewId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use wire::lock;
use wire::message::Budget;

/// The budget of a task whose client sets none.
const USUAL: Budget = Budget { paths: 4_000_000, bytes: 1 << 42 };
/// `EACCES`.
const EACCES: i32 = 13;

/// Why a worker is told nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// It has no such task now.
    #[error("no task of this client that could need it runs at this worker")]
    NotRunning,
    /// The task has had all that it may ask for.
    #[error("the task has asked for more than its budget allows")]
    Spent,
}

impl Denied {
    /// As `errno`s are in messages.
    pub fn errno(self) -> i32 {
        match self {
            Self::NotRunning => wire::fetch::UNANSWERED,
            Self::Spent => EACCES,
        }
    }
}

/// Paths that are remembered of what was asked for one task.
const FIRST_MAX: usize = 8;

/// The tasks that run at one worker, by client.
#[derive(Debug, Default)]
pub struct Asking {
    tasks: Mutex<HashMap<SessionKey, HashMap<TaskId, Runs>>>,
    /// Questions that were not answered, since no task could need it.
    refused: AtomicU64,
}

/// What a worker was told for a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// How many paths.
    pub paths: u64,
    /// The first of them.
    pub first: Vec<TreePath>,
    /// How many bytes of contents.
    pub bytes: u64,
}

#[derive(Debug)]
struct Runs {
    view: ViewId,
    /// The same task may run twice at a time: launched again before its first run was seen to have ended.
    count: usize,
    whole: Budget,
    left: Budget,
    /// The first paths that were asked for.
    first: Vec<TreePath>,
    /// What was over its budget has been logged.
    is_logged: bool,
}

impl Asking {
    /// A task begins to run there.
    pub fn begin(&self, client: &SessionKey, task: TaskId, view: ViewId, budget: Option<Budget>) {
        let budget = budget.unwrap_or(USUAL);
        let whole = Budget { paths: budget.paths.min(USUAL.paths), bytes: budget.bytes.min(USUAL.bytes) };
        let mut table = self.table();
        let runs = table.entry(client.clone()).or_default().entry(task);
        let runs = runs.or_insert(Runs { view, count: 0, whole, left: whole, first: Vec::new(), is_logged: false });
        runs.count += 1;
        runs.view = view;
    }

    /// It has ended: what was told for it, if it runs there no more.
    pub fn end(&self, client: &SessionKey, task: TaskId) -> Option<Asked> {
        let mut table = self.table();
        let tasks = table.get_mut(client)?;
        let runs = tasks.get_mut(&task)?;
        runs.count -= 1;
        let ended = if runs.count == 0 { tasks.remove(&task) } else { None };
        if tasks.is_empty() {
            table.remove(client);
        }
        ended.map(|Runs { whole, left, first, .. }| Asked {
            paths: whole.paths - left.paths,
            first,
            bytes: whole.bytes - left.bytes,
        })
    }

    /// Counts a question that is not answered. How many there were, now and then: at the first, the second, the fourth and so on.
    pub fn refuse(&self) -> Option<u64> {
        let count = self.refused.fetch_add(1, Ordering::Relaxed) + 1;
        count.is_power_of_two().then_some(count)
    }

    /// For which task a path of `view` is told.
    pub fn path(&self, client: &[u8], named: TaskId, view: ViewId, path: &TreePath) -> Result<TaskId, Denied> {
        self.spend(client, Some(named), Some((view, path)), Budget { paths: 1, bytes: 0 })
    }

    /// For which task contents are fetched.
    pub fn contents(&self, client: &[u8], named: Option<TaskId>) -> Result<TaskId, Denied> {
        self.spend(client, named, None, Budget::default())
    }

    /// So many bytes of contents go to the worker for `task`.
    pub fn bytes(&self, client: &[u8], task: TaskId, bytes: u64) -> Result<TaskId, Denied> {
        self.spend(client, Some(task), None, Budget { paths: 0, bytes })
    }

    fn spend(
        &self,
        client: &[u8],
        named: Option<TaskId>,
        path: Option<(ViewId, &TreePath)>,
        cost: Budget,
    ) -> Result<TaskId, Denied> {
        let mut table = self.table();
        let tasks = table.get_mut(client).ok_or(Denied::NotRunning)?;
        let fits = |runs: &Runs| path.is_none_or(|(view, _)| runs.view == view);
        let named = named.filter(|task| tasks.get(task).is_some_and(fits));
        let task = named.or_else(|| tasks.iter().find(|(_, runs)| fits(runs)).map(|(task, _)| *task));
        let task = task.ok_or(Denied::NotRunning)?;
        let runs = tasks.get_mut(&task).ok_or(Denied::NotRunning)?;
        let left = runs.left.paths.checked_sub(cost.paths).zip(runs.left.bytes.checked_sub(cost.bytes));
        let Some((paths, bytes)) = left else {
            if !std::mem::replace(&mut runs.is_logged, true) {
                tracing::warn!(%task, "a worker asks for more than the task's budget allows");
            }
            return Err(Denied::Spent);
        };
        runs.left = Budget { paths, bytes };
        runs.first.extend(path.filter(|_| runs.first.len() < FIRST_MAX).map(|(_, path)| path.clone()));
        Ok(task)
    }

    fn table(&self) -> MutexGuard<'_, HashMap<SessionKey, HashMap<TaskId, Runs>>> {
        lock(&self.tasks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SessionKey = SessionKey::from_static(b"one");
    const OTHER: SessionKey = SessionKey::from_static(b"other");

    #[test]
    fn a_worker_asks_for_its_own_tasks_while_they_run() {
        let asking = Asking::default();
        let (mine, theirs) = (TaskId(1), TaskId(2));
        assert_eq!(asking.path(&ONE, mine, ViewId(7), &TreePath::root()), Err(Denied::NotRunning));
        asking.begin(&ONE, mine, ViewId(7), None);
        assert_eq!(asking.path(&ONE, mine, ViewId(7), &TreePath::root()), Ok(mine));
        assert_eq!(
            asking.path(&ONE, theirs, ViewId(7), &TreePath::root()),
            Ok(mine),
            "what it names elsewhere counts for its own"
        );
        assert_eq!(
            asking.path(&ONE, mine, ViewId(8), &TreePath::root()),
            Err(Denied::NotRunning),
            "a view that no task here has"
        );
        assert_eq!(
            asking.path(&OTHER, mine, ViewId(7), &TreePath::root()),
            Err(Denied::NotRunning),
            "another client's"
        );
        assert_eq!(asking.contents(&OTHER, None), Err(Denied::NotRunning));
        assert_eq!(asking.contents(&ONE, None), Ok(mine));
        asking.begin(&ONE, mine, ViewId(7), None);
        asking.end(&ONE, mine);
        assert_eq!(asking.contents(&ONE, Some(mine)), Ok(mine), "it runs twice");
        let asked = asking.end(&ONE, mine).expect("it has ended");
        assert_eq!((asked.paths, asked.first.len(), asked.bytes), (2, 2, 0));
        assert_eq!(asking.end(&ONE, mine), None, "it ended before");
        assert_eq!(asking.contents(&ONE, Some(mine)), Err(Denied::NotRunning));
        assert!(asking.table().is_empty());
    }

    #[test]
    fn a_task_has_a_budget_of_paths_and_bytes() {
        let asking = Asking::default();
        let (task, view) = (TaskId(1), ViewId(7));
        asking.begin(&ONE, task, view, Some(Budget { paths: 10, bytes: 1000 }));
        let told = (0..4000).filter(|_| asking.path(&ONE, task, view, &TreePath::root()).is_ok()).count();
        assert_eq!((told, asking.path(&ONE, task, view, &TreePath::root())), (10, Err(Denied::Spent)));
        assert_eq!(asking.bytes(&ONE, task, 900), Ok(task));
        assert_eq!(asking.bytes(&ONE, task, 101), Err(Denied::Spent));
        assert_eq!(asking.bytes(&ONE, task, 100), Ok(task));
        asking.begin(&ONE, TaskId(2), view, Some(Budget { paths: u64::MAX, bytes: u64::MAX }));
        asking.path(&ONE, TaskId(2), view, &TreePath::root()).expect("another task has its own");
        let asked = asking.end(&ONE, task).expect("it has ended");
        assert_eq!((asked.paths, asked.first.len(), asked.bytes), (10, FIRST_MAX, 1000));
        let counted: Vec<u64> = (0..9).filter_map(|_| asking.refuse()).collect();
        assert_eq!(counted, [1, 2, 4, 8]);
    }
}

//! A task reads what the read policy keeps here. That a program finds a file closed which is open to it here would look
//! like its own failure, or pass unnoticed: so the task is called off and run here. If somebody has heard of it already,
//! it goes on, the file is closed to it, and its caller is told.

use crate::policy::{Access, Denial, FileFacts};
use crate::serve::{Running, Server};
use crate::snapshot::stat_at;
use base::{TaskId, TreePath};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use wire::lock;

/// How long a question waits for the end of the tasks that were called off because of it …
const END_TIME_MAX: Duration = Duration::from_secs(5);
/// … and how often it is looked whether they have ended.
const END_PAUSE: Duration = Duration::from_millis(10);
/// Paths that are kept of one task.
const PATHS_MAX: usize = 100;

/// A path that a task read and did not get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptBack {
    /// Which.
    pub path: TreePath,
    /// Why.
    pub denial: Denial,
}

impl fmt::Display for KeptBack {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}; {}", self.why(), self.denial.remedy())
    }
}

impl KeptBack {
    /// The same without what to do: for who learns that the command runs here for it.
    pub fn why(&self) -> String {
        if self.denial == Denial::Rights {
            return format!("{} may not be read by you, so it cannot be sent", self.path);
        }
        format!("{} was kept back by the read policy ({})", self.path, self.denial.reason())
    }
}

impl Server {
    /// A task reads the file with these `paths`, whose contents stay here. Calls it off, or notes that it was not told; returns
    /// when it is not to be left without an answer any longer.
    pub(crate) async fn keep_back(&self, paths: &[TreePath]) {
        let mut called: Vec<TaskId> = Vec::new();
        let tasks =
            paths.iter().flat_map(|path| self.tasks_with(path).into_iter().map(move |(task, of)| (path, task, of)));
        for (path, task, running) in tasks {
            if called.contains(&task) {
                continue;
            }
            let Some(denial) = denial(&running, path) else { continue };
            let kept = KeptBack { path: path.clone(), denial };
            let why = kept.why();
            let mut asked = lock(&running.asked);
            if asked.kept_back.len() < PATHS_MAX && !asked.kept_back.contains(&kept) {
                asked.kept_back.push(kept);
            }
            drop(asked);
            if !running.called_off.is_noticed() {
                running.call_off(why);
                called.push(task);
            }
        }
        // What a program says about a closed file must not be heard before it has ended.
        self.await_end(&called).await;
    }

    /// Waits until these tasks, which were called off, run no more, or for as long as that may take.
    pub(crate) async fn await_end(&self, called: &[TaskId]) {
        let since = tokio::time::Instant::now();
        while called.iter().any(|task| self.runs(*task)) && since.elapsed() < END_TIME_MAX {
            tokio::time::sleep(END_PAUSE).await;
        }
    }
}

/// Whether this user may read what is there.
fn is_readable(path: &TreePath) -> bool {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    accessat(CWD, path.as_bytes(), Access::READ_OK, AtFlags::EACCESS).is_ok()
}

fn denial(running: &Arc<Running>, path: &TreePath) -> Option<Denial> {
    let stat = stat_at(path.as_bytes()).ok()?;
    let facts = FileFacts { uid: stat.stx_uid, mode: u32::from(stat.stx_mode) & 0o7777, directory: false };
    match running.gate.access(path, &facts) {
        Access::Deny(denial) => Some(denial),
        Access::Pass => Some(Denial::Home),
        Access::Allow if !is_readable(path) => Some(Denial::Rights),
        Access::Allow => None,
    }
}

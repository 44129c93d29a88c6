//! A task reads what the read policy keeps here. That a program finds a file closed which is open to it here would look
//! like its own failure, or pass unnoticed: so the task is called off and run here. If somebody has heard of it already,
//! it goes on, the file is closed to it, and its caller is told.

use crate::policy::{Access, Denial, FileFacts, Trust};
use crate::serve::{Running, Server, blocking};
use crate::snapshot::{is_of_project, stat_at};
use base::{Digest, TaskId, TreePath};
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

/// A task that has a file in its view whose contents stay here.
struct Reader {
    path: TreePath,
    task: TaskId,
    running: Arc<Running>,
    denial: Denial,
    /// It could be given the contents, if it cannot be run here any more.
    is_trusted: bool,
}

impl Server {
    /// A task reads the file with these `paths`, whose contents stay here under this name. Calls it off, or notes that it was not told;
    /// returns when it is not to be left without an answer any longer: whether it is given the contents all the same.
    pub(crate) async fn keep_back(self: &Arc<Self>, name: &Digest, paths: Vec<TreePath>) -> bool {
        let mut called: Vec<TaskId> = Vec::new();
        let (mut lent, mut is_refused) = (Vec::new(), false);
        let server = self.clone();
        for reader in blocking(move || server.readers(&paths)).await.unwrap_or_default() {
            let Reader { path, task, running, denial, is_trusted } = reader;
            if called.contains(&task) {
                continue;
            }
            if is_trusted && running.called_off.is_noticed() {
                lent.push((running, path));
                continue;
            }
            is_refused = true;
            let kept = KeptBack { path, denial };
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
        // Tasks are not told apart by who asks: what one of them may not have, none of them is given.
        if is_refused || lent.is_empty() || !self.views().snapshot().lend(name) {
            return false;
        }
        for (running, path) in lent {
            let mut asked = lock(&running.asked);
            if asked.lent.len() < PATHS_MAX && !asked.lent.contains(&path) {
                asked.lent.push(path);
            }
        }
        true
    }

    /// The tasks that have one of these paths in their views and are kept from what it holds. Blocks.
    fn readers(&self, paths: &[TreePath]) -> Vec<Reader> {
        let mut readers = Vec::new();
        for path in paths {
            for (task, running) in self.tasks_with(path) {
                let Some(denial) = self.denial(&running, path) else { continue };
                let is_trusted = may_be_lent(&running, path, denial);
                readers.push(Reader { path: path.clone(), task, running, denial, is_trusted });
            }
        }
        readers
    }

    fn denial(&self, running: &Arc<Running>, path: &TreePath) -> Option<Denial> {
        let stat = stat_at(path.as_bytes()).ok()?;
        let facts = FileFacts { uid: stat.stx_uid, mode: u32::from(stat.stx_mode) & 0o7777, directory: false };
        match running.gate.access(path, &facts) {
            Access::Deny(denial) => Some(denial),
            Access::Pass => Some(Denial::Home),
            Access::Allow if !is_readable(path) => Some(Denial::Rights),
            // Another command of the same program may have closed it to the view that they share.
            Access::Allow => Some(self.views().snapshot().secret_at(path).unwrap_or(Denial::Closed)),
        }
    }

    /// Waits until these tasks, which were called off, run no more, or for as long as that may take.
    pub(crate) async fn await_end(&self, called: &[TaskId]) {
        let since = tokio::time::Instant::now();
        while called.iter().any(|task| self.runs(*task)) && since.elapsed() < END_TIME_MAX {
            tokio::time::sleep(END_PAUSE).await;
        }
    }
}

/// Whether a task that can no longer be run here is given a secret: on machines of one's own, what is the project's own, as the keys of its
/// tests. Otherwise a test would fail there that does not fail here.
fn may_be_lent(running: &Running, path: &TreePath, denial: Denial) -> bool {
    let folder = running.may_run_here_in.as_ref();
    running.trust == Trust::Own && matches!(denial, Denial::Key | Denial::Passwords) && is_of_project(path, folder)
}

/// Whether this user may read what is there.
fn is_readable(path: &TreePath) -> bool {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    accessat(CWD, path.as_bytes(), Access::READ_OK, AtFlags::EACCESS).is_ok()
}

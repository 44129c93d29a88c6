//! How much a worker may ask for one task. Honest programs never meet it: it grows with what the program's view holds from its earlier
//! runs, from a floor that is far above what such programs need. A worker that lies about what its task reads gets no more.

use crate::policy::Trust;
use crate::serve::Running;
use base::TreePath;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use wire::lock;
use wire::message::Budget;

/// Floors on machines of the user's own account: a walk over all that a disk holds is an honest program.
const OWN: Budget = Budget { paths: 2_000_000, bytes: 1 << 42 };
/// Floors elsewhere. A command that needs more is run here instead.
const OTHERS: Budget = Budget { paths: 20_000, bytes: 16 << 30 };
/// Floor for questions about paths that a command is not about: outside its project, and not named. A first `cargo build` asks 670 with
/// what answers bring besides, a walk over the 139,000 files of a `/usr` that no argument names 1,870.
const ELSEWHERE_PATHS: u64 = 2_000;
/// Said to who asks for too much.
pub(crate) const OVER: &str = "it asks for more files than such a program could need";
/// Paths for each path of the view.
const PATHS_FOR_EACH: u64 = 32;

/// What is left of what may be asked for a task.
#[derive(Debug)]
pub struct Allowance {
    whole: Budget,
    paths: AtomicU64,
    elsewhere: AtomicU64,
    bytes: AtomicU64,
    is_logged: AtomicBool,
}

impl Allowance {
    /// Of a task on workers of such, whose view holds so many paths.
    pub fn of(trust: Trust, view_paths: usize) -> Self {
        let floor = match trust {
            Trust::Own => OWN,
            Trust::Others | Trust::Anybody => OTHERS,
        };
        let known = PATHS_FOR_EACH.saturating_mul(view_paths as u64);
        Self::new(Budget { paths: floor.paths.max(known), ..floor }, ELSEWHERE_PATHS.max(known))
    }

    fn new(whole: Budget, elsewhere: u64) -> Self {
        let [paths, elsewhere, bytes] = [whole.paths, elsewhere, whole.bytes].map(AtomicU64::new);
        Self { whole, paths, elsewhere, bytes, is_logged: AtomicBool::new(false) }
    }

    /// `is_about`: it is a path that the command is about.
    fn path(&self, is_about: bool) -> bool {
        self.take(&self.paths, 1) && (is_about || self.take(&self.elsewhere, 1))
    }

    fn bytes(&self, bytes: u64) -> bool {
        self.take(&self.bytes, bytes)
    }

    fn take(&self, left: &AtomicU64, cost: u64) -> bool {
        let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(cost));
        if taken.is_err() && !self.is_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(?self.whole, "a worker asks for more than a task may need: it gets no more");
        }
        taken.is_ok()
    }
}

impl Running {
    /// What its worker may ask for it.
    pub fn budget(&self) -> Option<Budget> {
        Some(self.allowance.whole)
    }

    /// Whether one more path may be told for it. Counts what may not: then it is to run here, and what it leaves is not to be trusted.
    pub(crate) fn may_tell_path(&self, path: &TreePath) -> bool {
        let may = self.noted(self.allowance.path(self.gate.is_about(path)));
        if !may {
            self.call_off(OVER);
            self.taint(OVER);
        }
        may
    }

    /// Whether these bytes may be sent for it. Counts what may not.
    pub(crate) fn may_send(&self, bytes: &[u8]) -> bool {
        self.noted(self.allowance.bytes(bytes.len() as u64))
    }

    fn noted(&self, may: bool) -> bool {
        lock(&self.asked).over_budget += u64::from(!may);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_gets_so_much_and_no_more() {
        let allowance = Allowance::new(Budget { paths: 100, bytes: 1000 }, 40);
        let told = |is_about| (0..4000).filter(|_| allowance.path(is_about)).count();
        assert_eq!((told(false), told(true)), (40, 0), "who asks for too much gets nothing more");
        assert!(allowance.bytes(1000) && !allowance.bytes(1));
        let allowance = Allowance::new(Budget { paths: 100, bytes: 1000 }, 40);
        assert_eq!((0..4000).filter(|_| allowance.path(true)).count(), 100);
    }

    #[test]
    fn it_grows_with_what_the_program_read_before() {
        let paths = |trust, view| Allowance::of(trust, view).whole.paths;
        assert_eq!(paths(Trust::Others, 30), 20_000);
        assert_eq!(paths(Trust::Others, 10_000), 320_000);
        assert!(paths(Trust::Own, 0) >= 100_000 * 10, "a walk over many files");
    }
}

//! Whom a failed launch counts against. A worker at which launches of several accounts fail in a row is left alone for a while; where
//! only those of one account do while others have tasks, it may be these.

use base::NodeId;
use std::collections::{BTreeSet, HashMap};
use wire::message::{Failed, FailedKind};

/// Accounts that must have failed at a worker, if there are so many.
const ACCOUNTS_MIN: usize = 2;
/// Workers of which failures are known; beyond, all begin anew.
const WORKERS_MAX: usize = 4096;

/// Why nothing came of a launch.
#[derive(Debug)]
pub(crate) struct Trouble {
    /// What its client is told.
    pub failed: Failed,
    /// Its worker may be what fails, and not the hub or the client.
    pub is_workers: bool,
}

impl From<Failed> for Trouble {
    fn from(failed: Failed) -> Self {
        Self { is_workers: failed.reason() == FailedKind::Trouble, failed }
    }
}

impl Trouble {
    /// Of the hub, or of the client: the worker has nothing to do with it.
    pub fn elsewhere(failed: Failed) -> Self {
        Self { failed, is_workers: false }
    }
}

/// The accounts whose launches have failed at each worker, since one went well there.
#[derive(Debug, Default)]
pub(crate) struct Faults(HashMap<NodeId, BTreeSet<u128>>);

impl Faults {
    /// A launch of this account has failed at a worker. Whether that counts against the worker, where so many accounts have
    /// tasks at the hub.
    pub fn failed(&mut self, worker: NodeId, account: u128, accounts: usize) -> bool {
        if self.0.len() >= WORKERS_MAX && !self.0.contains_key(&worker) {
            self.0.clear();
        }
        let known = self.0.entry(worker).or_default();
        if known.len() < ACCOUNTS_MIN {
            known.insert(account);
        }
        known.len() >= ACCOUNTS_MIN.min(accounts)
    }

    /// A launch has gone well at a worker.
    pub fn worked(&mut self, worker: NodeId) {
        self.0.remove(&worker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Digest;

    #[test]
    fn one_account_alone_has_no_worker_rest_where_there_are_others() {
        let (mut faults, worker) = (Faults::default(), NodeId(Digest([7; 32])));
        let mut failed = |account, accounts| faults.failed(worker, account, accounts);
        assert!(failed(1, 1), "it is all that is known");
        assert!((0..100).all(|_| !failed(1, 2)));
        assert!(failed(2, 2) && failed(1, 2) && failed(3, 9));
        faults.worked(worker);
        assert!(!faults.failed(worker, 1, 2), "from the beginning");
    }

    #[test]
    fn what_is_not_the_worker_s_is_told_apart() {
        let trouble = || FailedKind::Trouble.because("something");
        assert!(Trouble::from(trouble()).is_workers && !Trouble::elsewhere(trouble()).is_workers);
        assert!(!Trouble::from(FailedKind::Refused.because("something")).is_workers);
    }
}

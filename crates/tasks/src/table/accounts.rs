//! Accounts as people see them, and the jobs of all accounts, page by page. Looking changes nothing, and each look is bounded.

use super::Table;
use crate::event::AccountSpec;
use crate::names::{AccountName, JobName};
use crate::shapes::NIL;

/// An account, as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountView {
    /// Its name.
    pub name: AccountName,
    /// Its key, weight, share and limits.
    pub spec: AccountSpec,
    /// Its tasks in the table.
    pub tasks: u32,
    /// Instances of its tasks that are out.
    pub running: u32,
    /// Processor time that its tasks have taken, in milliseconds.
    pub used_ms: u64,
    /// Processor time that its hosts have given in right results, in milliseconds, by what tasks were estimated to cost.
    pub given_ms: u64,
    /// Its tasks that had a result, and were deleted.
    pub done: u64,
    /// Those that had none.
    pub failed: u64,
    /// Deadlines met.
    pub met: u64,
    /// Deadlines missed.
    pub missed: u64,
}

/// How far a job is, beside what [`JobView`](super::JobView) tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Tasks of which instances are out, among those that were looked at.
    pub running: u32,
    /// The earliest deadline of tasks that have not ended, in milliseconds of the hub's time; 0: there is none.
    pub deadline_ms: u64,
}

impl Table {
    /// An account, if it is there.
    pub fn account_view(&self, name: AccountName) -> Option<AccountView> {
        let at = self.account_at(name).ok()?;
        let account = self.accounts.column.peek(at);
        Some(AccountView {
            name,
            spec: AccountSpec {
                key: account.key,
                weight: account.weight,
                share_permille: account.share_permille,
                tasks_max: account.tasks_max,
                running_max: account.running_max,
            },
            tasks: account.tasks,
            running: account.running,
            used_ms: account.used_ms,
            given_ms: account.given_ms,
            done: account.done,
            failed: account.failed,
            met: account.met,
            missed: account.missed,
        })
    }

    /// Accounts in the order in which they came, from one of them on (the first is 0), at most `count`. None ever leaves.
    pub fn accounts_from(&self, first: u32, count: u32) -> Vec<AccountView> {
        let end = self.accounts.fresh().min(first.saturating_add(count));
        let names = (first..end).map(|at| self.accounts.column.peek(at).name(at));
        names.filter_map(|name| self.account_view(name)).collect()
    }

    /// The place of the account that a job is of, or was, by the job's own. A record keeps it until its next user.
    pub(crate) fn account_of_job(&self, at: u32) -> u32 {
        self.jobs.column.get(at).map_or(NIL, |job| job.account)
    }

    /// The same by the place of a task.
    pub(crate) fn account_of_task(&self, at: u32) -> u32 {
        self.tasks.column.get(at).map_or(NIL, |task| self.account_of_job(task.job))
    }

    /// What is reserved for accounts in all, in thousandths.
    pub fn reserved_permille(&self) -> u64 {
        self.servers.reserved_permille()
    }

    /// The jobs in so many places of the table, from one of them on (the first is 0), and the place to go on at. `None`: that was the
    /// last.
    pub fn jobs_within(&self, first: u32, places: u32) -> (Vec<JobName>, Option<u32>) {
        let fresh = self.jobs.fresh();
        let end = fresh.min(first.saturating_add(places));
        let named = (first..end).map(|at| self.jobs.column.peek(at).name(at));
        let live = named.filter(|name| name.generation % 2 == 1);
        (live.collect(), (end < fresh).then_some(end))
    }

    /// How far a job is. So many of its tasks are looked at, those that were submitted first.
    pub fn progress(&self, name: JobName, looks: usize) -> Progress {
        let Ok(at) = self.job_at(name) else { return Progress::default() };
        let job = self.jobs.column.peek(at);
        let mut deadline_ms = u64::MAX;
        let mut group = job.groups;
        for _ in 0..job.group_count {
            let it = self.groups.column.peek(group);
            if it.deadline_ms != 0 && it.unfinished > 0 {
                deadline_ms = deadline_ms.min(it.deadline_ms);
            }
            group = it.siblings.next;
        }
        let tasks = self.tasks_of(name, looks);
        Progress {
            running: tasks.iter().filter(|task| self.tasks.column.peek(task.at).out > 0).count() as u32,
            deadline_ms: if deadline_ms == u64::MAX { 0 } else { deadline_ms },
        }
    }
}

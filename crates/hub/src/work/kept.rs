//! Jobs that stay until their client forgets them: how many an account may have and of how many needs, and their end when nobody has
//! the account any more.
//!
//! What is counted here follows from the table. It is no part of it: a hub that starts counts again.

use crate::state::State;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use tasks::{BATCH_MAX, Event, JobName, Kind, Need, Refusal};

/// An account has this part of the table's jobs at most: one in so many. As much is kept for commands that somebody waits for.
const JOBS_SHARE: usize = 8;
/// Different needs that the jobs of one account have at a time: an eighth of what the table tells apart.
const NEEDS_MAX: usize = tasks::KINDS_MAX / 8;
/// An account's jobs, tasks and results have this part of the ledger's bytes before it brings more: one in so many.
const BYTES_SHARE: usize = 2;
/// When those who are refused for want of room may try again, in milliseconds.
const RETRY_MS: u32 = 1_000;
/// Jobs of accounts without a member that are looked at together, and tasks of each.
const ENDING_AT_ONCE: usize = 16;
const TASKS_AT_ONCE: usize = 256;

/// The jobs of each account.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    of_accounts: HashMap<u128, OfAccount>,
    /// Accounts whose last member was revoked. No key will ever have one of these again.
    ended: HashSet<u128>,
}

#[derive(Debug, Default)]
struct OfAccount {
    jobs: HashMap<JobName, Need>,
    /// How many jobs have each need.
    needs: HashMap<Need, u32>,
}

impl Kept {
    /// A job of an account is there.
    pub fn opened(&mut self, account: u128, job: JobName, need: Need) {
        let own = self.of_accounts.entry(account).or_default();
        if let Entry::Vacant(place) = own.jobs.entry(job) {
            place.insert(need);
            *own.needs.entry(need).or_default() += 1;
        }
    }

    /// It is no more.
    pub fn forgotten(&mut self, account: u128, job: JobName) {
        let Some(own) = self.of_accounts.get_mut(&account) else { return };
        let Some(need) = own.jobs.remove(&job) else { return };
        if let Some(count) = own.needs.get_mut(&need) {
            *count -= 1;
            if *count == 0 {
                own.needs.remove(&need);
            }
        }
        if own.jobs.is_empty() {
            self.of_accounts.remove(&account);
        }
    }

    /// The accounts that have jobs.
    pub fn accounts(&self) -> impl Iterator<Item = u128> {
        self.of_accounts.keys().copied()
    }

    /// The bits of tags that jobs ask for.
    pub fn tags(&self) -> u64 {
        self.of_accounts.values().flat_map(|own| own.needs.keys()).fold(0, |bits, need| bits | need.tags)
    }

    /// Whether nobody has this account any more.
    pub fn has_ended(&self, account: u128) -> bool {
        self.ended.contains(&account)
    }

    /// Some jobs of accounts that nobody has.
    fn ending(&self) -> Vec<(u128, JobName)> {
        let of = |account: &u128| self.of_accounts.get(account).map(|own| (*account, own));
        let all = self.ended.iter().filter_map(of);
        all.flat_map(|(account, own)| own.jobs.keys().map(move |job| (account, *job))).take(ENDING_AT_ONCE).collect()
    }

    fn jobs_of(&self, account: u128) -> Vec<JobName> {
        self.of_accounts.get(&account).map(|own| own.jobs.keys().copied().collect()).unwrap_or_default()
    }
}

impl State {
    /// The jobs that are in the table when the hub starts.
    pub(crate) fn count_kept(&mut self) {
        let table = self.placement.desk.table();
        for view in table.jobs_after(None, usize::MAX).into_iter().filter_map(|job| table.job(job)) {
            let account = table.account_view(view.spec.account).filter(|_| !view.spec.is_volatile);
            let kept = &mut self.work.kept;
            account.into_iter().for_each(|account| kept.opened(account.spec.key, view.name, view.spec.need));
        }
    }

    /// Whether an account may open one more job, with this need.
    pub(super) fn may_open(&self, account: u128, need: &Need) -> Result<(), Refusal> {
        let table = self.placement.desk.table();
        let all = table.capacity().jobs;
        let most = (all / JOBS_SHARE).max(1);
        if let Some(own) = self.work.kept.of_accounts.get(&account) {
            if own.jobs.len() >= most {
                return Err(Refusal::AccountJobs(most as u32));
            }
            if own.needs.len() >= NEEDS_MAX && !own.needs.contains_key(need) {
                return Err(Refusal::Full(Kind::Kinds, RETRY_MS));
            }
        }
        let used = table.counts()[2];
        if used >= all - all / JOBS_SHARE { Err(Refusal::Full(Kind::Jobs, RETRY_MS)) } else { Ok(()) }
    }

    /// Whether an account may bring so many bytes for its jobs and tasks.
    pub(super) fn may_bring(&self, account: u128, bytes: usize) -> Result<(), Refusal> {
        let ledger = self.placement.desk.ledger();
        let own = ledger.table().account(account).map_or(0, |name| ledger.bytes_of(name));
        let is_too_much = bytes > 0 && own + bytes > ledger.bytes().1 / BYTES_SHARE;
        if is_too_much { Err(Refusal::Full(Kind::Bytes, RETRY_MS)) } else { Ok(()) }
    }

    /// Nobody has an account any more: its jobs are cancelled, which ends what runs of them, and forgotten by and by. Nobody will take
    /// their results.
    pub(crate) fn end_account(&mut self, account: u128) {
        self.work.kept.ended.insert(account);
        for job in self.work.kept.jobs_of(account) {
            self.act(Event::CancelJob(job));
        }
        self.placement.desk.sooner().notify_one();
    }

    /// The same at the hub's start: it may have ended between the revocation and that.
    pub(crate) fn end_jobs_without_members(&mut self, has_member: impl Fn(u128) -> bool) {
        let nobodys: Vec<u128> = self.work.kept.accounts().filter(|account| !has_member(*account)).collect();
        for account in nobodys {
            tracing::info!(account, "nobody has this account any more: its jobs are cancelled");
            self.end_account(account);
        }
    }

    /// Goes on with the jobs of accounts that nobody has. Says whether there are more.
    pub(super) fn end_jobs_of_nobody(&mut self) -> bool {
        let some = self.work.kept.ending();
        if some.is_empty() || self.placement.desk.is_crowded().is_err() {
            return !some.is_empty();
        }
        for (account, job) in some {
            let table = self.placement.desk.table();
            let mut ended = table.tasks_of(job, TASKS_AT_ONCE);
            ended.retain(|task| table.task(*task).is_some_and(|view| view.result.is_some()));
            for names in ended.chunks(BATCH_MAX) {
                self.act(Event::Assimilated(names));
            }
            self.work.launches.let_go(&ended);
            if self.placement.desk.table().job(job).is_none_or(|view| view.has_ended) {
                self.act(Event::Forget(job));
                self.forgets(account, job);
            }
        }
        true
    }

    /// A job is no more: nobody is told of it.
    pub(super) fn forgets(&mut self, account: u128, job: JobName) {
        self.work.feeds.forget(job);
        self.work.promises.forget(job);
        self.work.kept.forgotten(account, job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desk::{Desk, Room};
    use base::{Digest, NodeId};

    fn need(cpus: u16) -> Need {
        Need { cpus, tags: u64::from(cpus) << 8, ..Need::default() }
    }

    #[test]
    fn the_jobs_of_one_account_have_few_different_needs() {
        let desk = Desk::in_memory(Room { hosts: 8, tasks: 8_192, bytes_max: 1 << 20 }, 5);
        let mut state = State::new(desk, HashSet::new());
        let name = |at| JobName { at, generation: 1 };
        for number in 0..NEEDS_MAX as u16 {
            assert_eq!(state.may_open(7, &need(number)), Ok(()));
            state.work.kept.opened(7, name(number.into()), need(number));
        }
        assert_eq!(state.may_open(7, &need(500)), Err(Refusal::Full(Kind::Kinds, RETRY_MS)));
        assert_eq!((state.may_open(7, &need(3)), state.may_open(8, &need(500))), (Ok(()), Ok(())));
        // One that has two jobs stays, and one that has none any more does not.
        state.work.kept.opened(7, name(1_000), need(3));
        state.work.kept.opened(7, name(1_000), need(500));
        state.work.kept.forgotten(7, name(3));
        assert!(state.may_open(7, &need(500)).is_err());
        state.work.kept.forgotten(7, name(1_000));
        assert_eq!(state.may_open(7, &need(500)), Ok(()));
        (0..NEEDS_MAX as u32).for_each(|number| state.work.kept.forgotten(7, name(number)));
        assert_eq!((state.work.kept.accounts().count(), state.work.kept.tags()), (0, 0));
    }

    #[test]
    fn names_of_tags_make_way_that_no_worker_has_and_no_job_asks_for() {
        let desk = Desk::in_memory(Room { hosts: 8, tasks: 64, bytes_max: 1 << 20 }, 5);
        let mut state = State::new(desk, HashSet::new());
        let node = |number| NodeId(Digest([number; 32]));
        let names = |number: u8| (0..16).map(|at| format!("t{number}-{at}")).collect::<Vec<String>>();
        let bits: Vec<u64> = (1..=3).map(|number| state.placement.tags.lent(&names(number), node(number))).collect();
        let lent = crate::needs::Lent { tags: bits[0], ..crate::needs::Lent::by_machine(1) };
        state.placement.join(node(1), lent, false);
        state.work.kept.opened(7, JobName { at: 0, generation: 1 }, Need { tags: bits[1], ..Need::default() });
        state.make_room_for_tags(&names(4), node(4));
        assert_eq!(state.placement.tags.lent(&names(4), node(4)), bits[2], "those of a worker that is gone");
        state.make_room_for_tags(&names(1), node(5));
        assert_eq!(state.placement.tags.names(u64::MAX).len(), 48, "what is known needs no room");
    }
}

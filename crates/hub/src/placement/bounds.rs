//! How much of the table one account or worker may have, for launches and the workers that take them.

use super::{Launch, Placement, Refused, Worker};
use crate::needs::in_whole_steps;
use tasks::Need;
use wire::Trust;

/// A worker, or a hub with those behind it, has one in so many of the table's hosts at most, and may have so many in any case.
const HOSTS_SHARE: usize = 4;
const HOSTS_LEAST: usize = 64;
/// Workers that wait for approval and are in the table.
const UNAPPROVED_MAX: usize = 64;

/// Launches of one account that wait, if its hub's owner has set no limit: of the table's tasks one in so many, and so many at least.
const WAITING_SHARE: u32 = 4;
const WAITING_LEAST: u32 = 64;

impl Placement {
    /// Refuses one more launch of an account that has very many without a place. Where its owner has set a limit, that holds.
    pub(super) fn may_wait(&self, account: u128) -> Result<(), Refused> {
        let table = self.desk.table();
        let most = (table.capacity().tasks as u32 / WAITING_SHARE).max(WAITING_LEAST);
        let waits = self.waiting_of.get(&account).copied().unwrap_or_default();
        let is_unlimited = self.desk.account_view(account).spec.tasks_max == u32::MAX;
        if is_unlimited && waits >= most { Err(Refused::Waiting(most)) } else { Ok(()) }
    }

    /// A launch waits for a place.
    pub(super) fn begins_to_wait(&mut self, account: u128) {
        self.waiting += 1;
        *self.waiting_of.entry(account).or_default() += 1;
    }

    /// It does not any more.
    pub(super) fn waits_no_more(&mut self, launch: &Launch) {
        self.waiting -= 1;
        let account = launch.wanted.account;
        if let Some(count) = self.waiting_of.get_mut(&account) {
            *count -= 1;
            if *count == 0 {
                self.waiting_of.remove(&account);
            }
        }
    }

    /// How many hosts a worker may have in the table. One that waits for approval has one, so that jobs wait for it, and only some dozens
    /// of them do.
    pub(super) fn hosts_max(&self, worker: &Worker) -> usize {
        if worker.about.trust != Trust::Waiting {
            return (self.desk.table().capacity().hosts / HOSTS_SHARE).max(HOSTS_LEAST);
        }
        let waits = |other: &&Worker| other.about.trust == Trust::Waiting && !other.hosts.is_empty();
        let has_place = !worker.hosts.is_empty() || self.workers.values().filter(waits).count() < UNAPPROVED_MAX;
        usize::from(has_place)
    }

    /// The tags that workers have or launches ask for.
    pub fn tags_in_use(&self) -> u64 {
        let had = self.workers.values().map(|worker| worker.lent.tags | worker.most.tags);
        let asked = self.tickets.values().map(|launch| launch.wanted.need.tags);
        had.chain(asked).fold(0, |bits, some| bits | some)
    }
}

/// The same need as the table has it, which knows few kinds.
pub(super) fn in_few_kinds(need: Need) -> Need {
    Need { memory_mib: in_whole_steps(need.memory_mib), ..need }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desk::{Desk, Room};
    use crate::needs::{Lent, Tags};
    use crate::placement::{Ticket, Wanted};
    use base::{Digest, Needs, NodeId};

    fn node(number: u8) -> NodeId {
        NodeId(Digest([number; 32]))
    }

    fn placement() -> Placement {
        Placement::new(Desk::in_memory(Room { hosts: 512, tasks: 1_024, bytes_max: 1 << 20 }, 5))
    }

    fn wanted(account: u128, memory_mib: u32) -> Wanted {
        let need = Tags::default().need(&Needs { cpus: 1, memory_mib, ..Needs::default() }).expect("no tags");
        Wanted { account, need, affinity: 0 }
    }

    #[test]
    fn one_account_does_not_fill_the_table_with_launches_that_wait() {
        let mut placement = placement();
        placement.join(node(1), Lent::by_machine(1), false);
        // One runs, and a quarter of the table's tasks wait.
        let count = 1 + 256;
        for number in 0..count {
            placement.submit(Ticket(number), wanted(1, 0)).expect("room");
        }
        let refused = placement.submit(Ticket(count), wanted(1, 0)).expect_err("too many");
        assert!(refused == Refused::Waiting(256) && placement.is_passing(&refused), "it is to come again: {refused}");
        assert_eq!(placement.submit(Ticket(count), wanted(2, 0)), Ok(vec![]), "others wait");
        assert_eq!(placement.finish(Ticket(0)).len(), 1, "one more runs");
        placement.finish(Ticket(count - 1));
        for number in count + 1..count + 3 {
            placement.submit(Ticket(number), wanted(1, 0)).expect("room for who went, ran or waited");
        }
        assert!(placement.submit(Ticket(count + 3), wanted(1, 0)).is_err());
        let limits = crate::desk::limits::Limits { tasks_max: Some(400), ..Default::default() };
        placement.desk.limit(1, &limits).expect("its owner says so");
        placement.submit(Ticket(count + 3), wanted(1, 0)).expect("room");
        (0..count + 4).for_each(|number| drop(placement.finish(Ticket(number))));
        assert!(placement.waiting_of.is_empty() && placement.counts() == (0, 0));
    }

    #[test]
    fn launches_of_ever_new_needs_are_of_few_kinds() {
        let mut placement = placement();
        placement.join(node(1), Lent { memory_mib: 4_096, ..Lent::by_machine(1) }, false);
        placement.submit(Ticket(0), wanted(1, 0)).expect("it runs");
        // An account has few different needs at a time, and 250 amounts of memory are one.
        for memory_mib in 1..=250 {
            placement.submit(Ticket(memory_mib.into()), wanted(1, memory_mib)).expect("a kind that is known");
        }
    }

    #[test]
    fn who_waits_for_approval_has_next_to_nothing_of_the_table() {
        let mut placement = placement();
        let large = |memory_mib| Lent { cpus: 20_000, largest: 8, memory_mib, ..Lent::default() };
        for number in 0..UNAPPROVED_MAX as u8 + 9 {
            placement.come(node(number), (large(256 * u32::from(number)), Vec::new()), true, Trust::Waiting);
        }
        assert_eq!(placement.desk.table().counts()[1], UNAPPROVED_MAX);
        for number in 0..=200 {
            placement.resize(node(3), large(256 * number));
        }
        assert_eq!(placement.desk.table().counts()[1], UNAPPROVED_MAX);
        // Approved, it has all that it lends, as far as one may have that.
        placement.trusts(node(UNAPPROVED_MAX as u8 + 3), Trust::Site, false);
        let hosts = 512 / HOSTS_SHARE;
        assert_eq!(placement.desk.table().counts()[1], UNAPPROVED_MAX + hosts);
        placement.leave(node(0));
        placement.desk.act(tasks::Event::Tick);
        placement.resize(node(UNAPPROVED_MAX as u8 + 4), large(256));
        assert_eq!(placement.desk.table().counts()[1], UNAPPROVED_MAX + hosts, "another has its place");
    }

    #[test]
    fn tags_are_learnt_when_a_worker_is_approved() {
        let mut placement = placement();
        let names = vec!["gpu".to_owned()];
        placement.come(node(1), (Lent::by_machine(1), names.clone()), true, Trust::Waiting);
        assert!(placement.tags.needed(&names).is_err());
        placement.trusts(node(1), Trust::Own, false);
        let tags = placement.tags.needed(&names).expect("learnt");
        assert_eq!(placement.lent_by(node(1)).expect("here").tags & tags, tags);
        assert_eq!(placement.tags_in_use() & tags, tags);
    }
}

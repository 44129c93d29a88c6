//! Tasks whose deadlines are near get some instances more.

use crate::world::*;
use tasks::*;

/// So many hosts, each of an account of its own, and a job whose tasks take so long and get copies near their deadlines.
fn speculative(hosts: usize, policy: Policy, cost_ms: u32) -> (World, Vec<HostName>, JobName) {
    let mut world = World::new(8, 100);
    let accounts: Vec<AccountName> = (0..hosts).map(|_| world.account()).collect();
    let hosts = accounts.iter().map(|account| world.host(*account)).collect();
    let spec = world.job_spec(accounts[0]);
    let job = world.open(JobSpec { policy: Policy { is_speculative: true, ..policy }, cost_ms, ..spec });
    (world, hosts, job)
}

#[test]
fn a_near_deadline_gets_more_copies() {
    let policy = Policy { delay_bound_ms: 100_000, ..Policy::default() };
    let (mut world, hosts, job) = speculative(2, policy, 1_000);
    let (tasks, _) = world.submit(job, 1, 10_000);
    assert_eq!(world.request(hosts[0], 1).len(), 1);
    world.pass(7_999);
    assert_eq!(world.request(hosts[1], 1), []);
    world.pass(1);
    let copy = world.request(hosts[1], 1);
    assert_eq!(copy, [InstanceName { task: tasks[0], number: 1 }]);
    let effects = world.done(hosts[1], copy[0], 3);
    assert_eq!(decided(&effects), [(tasks[0], Ok(1))]);
}

#[test]
fn a_deadline_that_leaves_one_more_try_gets_several_at_once_and_not_too_early() {
    let policy = Policy { delay_bound_ms: 6_000, instances_max: 8, ..Policy::default() };
    let (mut world, hosts, job) = speculative(6, policy, 4_000);
    world.submit(job, 1, 10_000);
    assert_eq!(world.request(hosts[0], 1).len(), 1);
    world.pass(4_999);
    assert_eq!(world.request(hosts[1], 1), [], "it may end any moment");
    world.pass(1);
    let copies = hosts[1..].iter().map(|host| world.request(*host, 1).len());
    assert_eq!(copies.collect::<Vec<_>>(), [1, 1, 1, 1, 0]);
    // One that is lost when there is no time to wait for the next is followed by several.
    let (tasks, _) = world.submit(job, 1, 10_000);
    let first = world.request(hosts[5], 1);
    assert_eq!(first[0].task, tasks[0]);
    world.pass(3_000);
    world.handle(Event::Leave(hosts[5]));
    world.pass(1);
    let copies = hosts[..5].iter().map(|host| world.request(*host, 1).len());
    assert_eq!(copies.sum::<usize>(), 4);
}

#[test]
fn the_last_tries_are_not_given_up_before_the_deadline() {
    let policy = Policy { delay_bound_ms: 4_700, instances_max: 8, ..Policy::default() };
    let (mut world, hosts, job) = speculative(2, policy, 3_500);
    let (tasks, _) = world.submit(job, 1, 10_000);
    assert_eq!(world.request(hosts[0], 1).len(), 1);
    world.pass(4_375);
    let copy = world.request(hosts[1], 1);
    world.pass(5_624);
    assert_eq!(world.table.totals().late, 1);
    let effects = world.done(hosts[1], copy[0], 3);
    assert_eq!(decided(&effects), [(tasks[0], Ok(1))]);
}

#[test]
fn what_is_idle_is_shared_by_all_that_are_near_their_deadline() {
    let mut world = World::new(8, 100);
    let accounts = [(); 6].map(|()| world.account());
    let hosts = accounts.map(|account| world.host(account));
    let spec = world.job_spec(accounts[0]);
    let policy = Policy { is_speculative: true, delay_bound_ms: 100_000, instances_max: 8, ..Policy::default() };
    let cpus = world.table.gauges().cpus as u32;
    let need = Need { cpus: cpus as u16 / 6, ..spec.need };
    let job = world.open(JobSpec { policy, need, cost_ms: cpus / 6 * 1_000, ..spec });
    world.submit(job, 2, 10_000);
    let first = hosts.map(|host| world.request(host, 1).len());
    assert_eq!(first, [1, 1, 0, 0, 0, 0]);
    world.pass(8_000);
    let copies = hosts.map(|host| world.request(host, 1).len());
    assert_eq!(copies, [0, 0, 1, 1, 1, 1], "two for each of the two");
    assert_eq!(world.table.totals().speculated, 4);
}

#[test]
fn copies_are_added_once_and_counted() {
    let policy = Policy { quorum: 2, target: 2, delay_bound_ms: 100_000, instances_max: 16, ..Policy::default() };
    let (mut world, hosts, job) = speculative(8, policy, 4_000);
    world.submit(job, 1, 10_000);
    // Both are watched, and not until the same time.
    assert_eq!(world.request(hosts[0], 1).len(), 1);
    world.pass(500);
    assert_eq!(world.request(hosts[1], 1).len(), 1);
    let mut copies = 0;
    for _ in 0..95 {
        world.pass(100);
        copies += hosts[2..].iter().map(|host| world.request(*host, 1).len()).sum::<usize>();
    }
    assert_eq!((copies, world.table.totals().speculated), (4, 4));
}

#[test]
fn after_its_deadline_a_task_gets_no_copies() {
    let policy = Policy { delay_bound_ms: 5_000, ..Policy::default() };
    let (mut world, hosts, job) = speculative(4, policy, 1_000);
    let (tasks, _) = world.submit(job, 1, 10_000);
    // Given up before the deadline is near, and had again only when that is over.
    assert_eq!(world.request(hosts[0], 1).len(), 1);
    world.pass(11_000);
    assert_eq!(world.request(hosts[1], 1).len(), 1);
    world.handle(Event::Leave(hosts[1]));
    world.pass(1);
    assert_eq!(world.table.task(tasks[0]).expect("there").unsent, 1);
    assert_eq!(world.table.totals().speculated, 0);
}

#[test]
fn where_no_more_instances_may_be_made_no_copies_are_counted() {
    let policy = Policy { delay_bound_ms: 4_700, instances_max: 2, ..Policy::default() };
    let (mut world, hosts, job) = speculative(3, policy, 1_000);
    world.submit(job, 1, 10_000);
    assert_eq!(world.request(hosts[0], 1).len(), 1);
    world.pass(9_000);
    assert_eq!(world.request(hosts[1], 1).len(), 1);
    // It is lost as well, and there may be no third.
    world.handle(Event::Leave(hosts[1]));
    world.pass(1);
    assert_eq!(world.request(hosts[2], 1).len(), 0);
    assert_eq!(world.table.totals().speculated, 0);
}

#[test]
fn copies_of_many_tasks_go_out_at_once() {
    let mut world = World::new(128, 1_000);
    let accounts = [(); 60].map(|()| world.account());
    for account in accounts {
        world.attached(account);
    }
    let spec = world.job_spec(accounts[0]);
    let cpus = world.table.gauges().cpus as u32 / 60;
    let policy = Policy { is_speculative: true, delay_bound_ms: 100_000, instances_max: 8, ..Policy::default() };
    let need = Need { cpus: cpus as u16, ..spec.need };
    let job = world.open(JobSpec { policy, need, cost_ms: cpus * 1_000, ..spec });
    world.submit(job, 12, 10_000);
    assert_eq!(world.table.totals().sent, 12);
    world.pass(8_000);
    let totals = world.table.totals();
    assert!(totals.speculated >= 24, "{totals:?}");
    assert_eq!((totals.sent - 12, world.table.gauges().ready), (totals.speculated, 0), "none waits");
}

#[test]
fn a_host_that_a_later_copy_overtook_gets_nothing_until_it_is_heard_of() {
    let policy = Policy { delay_bound_ms: 100_000, ..Policy::default() };
    let (mut world, hosts, job) = speculative(2, policy, 4_000);
    let (tasks, _) = world.submit(job, 1, 10_000);
    let slow = world.request(hosts[0], 1);
    world.pass(5_000);
    let copy = world.request(hosts[1], 1);
    world.pass(4_000);
    let is_silent = |world: &World| world.table.host(hosts[0]).is_some_and(|host| host.is_silent);
    world.done(hosts[1], copy[0], 3);
    world.handle(Event::Assimilated(&tasks));
    let effects = world.pass(1);
    assert!(effects.contains(&Effect::Stop(hosts[0], slow[0])) && is_silent(&world));
    assert_eq!(world.request(hosts[0], 1), []);
    assert!(!is_silent(&world), "it is there");
    // The copy that was not needed says nothing against its host.
    let (tasks, _) = world.submit(job, 1, 20_000);
    let first = world.request(hosts[1], 1);
    world.pass(5_000);
    assert_eq!(world.request(hosts[0], 1).len(), 1);
    world.done(hosts[1], first[0], 3);
    world.handle(Event::Assimilated(&tasks));
    world.pass(1);
    assert!(!is_silent(&world));
}

#[test]
fn a_task_of_several_processors_takes_as_much_less_time() {
    let policy = Policy { delay_bound_ms: 100_000, ..Policy::default() };
    let (mut world, hosts, _) = speculative(2, policy, 1_000);
    let spec = world.job_spec(world.table.host(hosts[0]).expect("there").account);
    let need = Need { cpus: 4, ..spec.need };
    let policy = Policy { is_speculative: true, ..policy };
    let job = world.open(JobSpec { policy, need, cost_ms: 4_000, ..spec });
    world.submit(job, 1, 10_000);
    assert_eq!(world.request(hosts[0], 1).len(), 1);
    world.pass(7_999);
    assert_eq!(world.request(hosts[1], 1), []);
    world.pass(1);
    assert_eq!(world.request(hosts[1], 1).len(), 1);
}

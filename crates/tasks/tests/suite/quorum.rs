//! Results that must agree, or be good: whose they are.

use crate::world::*;
use tasks::*;

#[test]
fn a_quorum_needs_different_accounts() {
    let mut world = World::new(8, 16);
    let accounts: Vec<AccountName> = (0..4).map(|_| world.account()).collect();
    let policy =
        Policy { quorum: 2, target: 2, instances_max: 8, errors_max: 4, successes_max: 6, ..Policy::default() };
    let spec = world.job_spec(accounts[0]);
    let job = world.open(JobSpec { policy, ..spec });
    let (tasks, _) = world.submit(job, 1, 0);
    let hosts: Vec<HostName> = [0, 0, 1, 2].map(|at: usize| world.host(accounts[at])).to_vec();
    let first = world.request(hosts[0], 1);
    assert_eq!(world.request(hosts[0], 1), [], "not twice to a host");
    assert_eq!(world.request(hosts[1], 1), [], "nor to an account");
    let second = world.request(hosts[2], 1);
    assert_eq!(decided(&world.done(hosts[0], first[0], 1)), []);
    assert_eq!(decided(&world.done(hosts[2], second[0], 2)), [], "they differ");
    let third = world.request(hosts[3], 1);
    assert_eq!(decided(&world.done(hosts[3], third[0], 2)), [(tasks[0], Ok(1))], "the first of those that agree");
    world.handle(Event::Assimilated(&tasks));
    world.pass(10);
    assert_eq!(world.table.host(hosts[2]).expect("here").right, 1);
    assert_eq!(world.table.host(hosts[0]).expect("here").right, 0);
    assert_eq!(world.table.counts()[3..], [0, 0]);
}

#[test]
fn a_task_that_no_account_here_may_have_keeps_no_other_waiting() {
    for deadline_ms in [0, 100_000] {
        let mut world = World::new(8, 16);
        let account = world.account();
        let host = world.host(account);
        let spec = world.job_spec(account);
        let policy = Policy { quorum: 2, target: 2, instances_max: 4, ..Policy::default() };
        let twice = world.open(JobSpec { policy, ..spec });
        let (tasks, _) = world.submit(twice, 1, deadline_ms);
        assert_eq!(world.request(host, 1).len(), 1);
        let other = world.job(account);
        let (others, _) = world.submit(other, 2, 0);
        let mut had: Vec<TaskName> = Vec::new();
        for _ in 0..40 {
            had.extend(world.request(host, 1).iter().map(|instance| instance.task));
        }
        assert_eq!(had, others, "after some looks in vain");
        assert_eq!(world.table.waits(tasks[0]), Some(Waits::OtherAccounts));
        // Nor is it forgotten while there is always something else.
        let elsewhere = world.account();
        let elsewhere = world.host(elsewhere);
        let (more, _) = world.submit(other, 12, 0);
        for looks in 1.. {
            let got = world.request(elsewhere, 1);
            world.done(elsewhere, got[0], 1);
            if got[0].task == tasks[0] {
                break;
            }
            assert!(more.contains(&got[0].task) && looks <= 8, "one look in eight is its");
        }
    }
}

#[test]
fn what_is_looked_at_alone_may_come_from_one_account() {
    let mut world = World::new(8, 16);
    let account = world.account();
    let host = world.host(account);
    let spec = world.job_spec(account);
    let policy = Policy { validation: Validation::Command, instances_max: 8, successes_max: 3, ..Policy::default() };
    let job = world.open(JobSpec { policy, ..spec });
    let (tasks, _) = world.submit(job, 1, 0);
    let mut looked = 0;
    for _ in 0..200 {
        for sent in world.request(host, 1) {
            let effects = world.done(host, sent, 1);
            let Some(Effect::Compare(task, _)) = effects.iter().find(|effect| matches!(effect, Effect::Compare(..)))
            else {
                panic!("it is looked at: {effects:?}")
            };
            looked += 1;
            let effects = world.handle(Event::Compared { task: *task, agree: 0 });
            if looked == 4 {
                assert_eq!(decided(&effects), [(tasks[0], Err(Failure::NoConsensus))]);
                return;
            }
        }
    }
    panic!("it waits after {looked} results");
}

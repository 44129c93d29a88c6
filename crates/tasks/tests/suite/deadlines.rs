//! Deadlines: what is admitted, what is first, and what is reserved.

use crate::world::{DESK, World, decided, refused};
use tasks::*;

#[test]
fn the_earliest_deadline_is_first() {
    let mut world = World::new(64, 400);
    let account = world.account();
    let spec = world.job_spec(account);
    let spare = world.host_spec(account, Shape { cpus: 64, largest: 64, ..DESK });
    let (host, _) = world.join(spare);
    let job = world.open(JobSpec { cost_ms: 1, ..spec });
    // Near, far, none, and far before near ones that come later.
    let deadlines = [900_000, 20_000, 0, 20_001, 4_000_000, 500];
    let tasks: Vec<TaskName> = deadlines.iter().map(|deadline| world.submit(job, 1, *deadline).0[0]).collect();
    let order: Vec<u64> = world
        .request(host, 16)
        .iter()
        .map(|instance| deadlines[tasks.iter().position(|task| *task == instance.task).expect("one of them")])
        .collect();
    assert_eq!(order, [500, 20_000, 20_001, 900_000, 4_000_000, 0]);
}

#[test]
fn a_deadline_that_cannot_be_met_is_refused_with_the_estimate() {
    let mut world = World::new(4, 400);
    let account = world.account();
    let host = world.host(account);
    let spec = world.job_spec(account);
    let job = world.open(JobSpec { cost_ms: 1_000, ..spec });
    // 4 processors, 10 s less one for the last ones: 36 tasks of 1 s.
    for _ in 0..9 {
        assert_eq!(world.submit(job, 4, 10_000).0.len(), 4);
    }
    let (_, effects) = world.submit(job, 4, 10_000);
    assert_eq!(refused(&effects), Some(Refusal::TooLate(10_750)));
    assert_eq!(world.table.job(job).expect("there").tasks, 36, "nothing was taken");
    // Behind all that is due in the bucket of 10 s.
    let (_, effects) = world.submit(job, 1, 500);
    assert_eq!(refused(&effects), Some(Refusal::TooLate(10_240)));
    for _ in 0..9 {
        let out = world.request(host, 4);
        world.pass(1_000);
        out.iter().for_each(|instance| drop(world.done(host, *instance, 1)));
    }
    assert_eq!(world.table.totals().met, 36);
}

#[test]
fn none_is_taken_of_a_job_that_cannot_be_done_as_a_whole() {
    let mut world = World::new(4, 400);
    let account = world.account();
    world.host(account);
    let job = world.job(account);
    let mut submit = |later, deadline_ms| {
        let event = Event::Submit { job, first: 0, count: 4, later, is_promised: false, deadline_ms };
        refused(&world.handle(event))
    };
    // 4 processors, and 40 tasks of 1 s: all but the last are done before that begins.
    assert_eq!(submit(36, 10_000), Some(Refusal::TooLate(10_750)));
    assert_eq!(submit(1 << 24, 10_000), Some(Refusal::TooLate(4_194_305_750)));
    assert!(matches!(submit(u32::MAX, 10_000), Some(Refusal::Invalid(_))));
    assert_eq!(submit(36, 10_750), None);
    assert_eq!(world.table.job(job).expect("there").tasks, 4);
    // Time passes before the others come, of which nothing has been done: that they can be done in time holds.
    world.pass(1_000);
    let mut submit = |is_promised| {
        world.handle(Event::Submit { job, first: 4, count: 4, later: 32, is_promised, deadline_ms: 10_750 })
    };
    assert!(matches!(refused(&submit(false)), Some(Refusal::TooLate(_))));
    assert_eq!(submit(true).len(), 4);
}

#[test]
fn a_task_with_a_quorum_costs_as_often_as_it_is_done() {
    let mut world = World::new(4, 400);
    let accounts = [world.account(), world.account()];
    let _ = accounts.map(|account| world.host(account));
    let spec = world.job_spec(accounts[0]);
    let policy = Policy { quorum: 2, target: 2, ..Policy::default() };
    let job = world.open(JobSpec { policy, ..spec });
    // 8 processors, 10 s less one for the last ones: 72 results of 1 s.
    let admitted = (0..50).take_while(|_| world.submit(job, 1, 10_000).0.len() == 1).count();
    assert_eq!(admitted, 36);
}

#[test]
fn a_reserved_share_is_no_more_than_that_while_others_wait() {
    let mut world = World::new(4, 4000);
    let [reserved, other] = [world.account_with(1, 500), world.account_with(1, 0)];
    let host = world.host(other);
    let [own, others] = [reserved, other].map(|account| {
        let spec = world.job_spec(account);
        world.open(spec)
    });
    // Half of four processors for 100 s: all that can be reserved, and not urgent.
    for _ in 0..12 {
        assert_eq!(world.submit(own, 16, 100_000).0.len(), 16);
    }
    world.submit(others, 16, 0);
    let mut of_others = 0;
    for _ in 0..9 {
        let out = world.request(host, 4);
        of_others +=
            out.iter().filter(|instance| world.table.task(instance.task).expect("there").job == others).count();
        world.pass(1_000);
        out.iter().for_each(|instance| drop(world.done(host, *instance, 1)));
    }
    assert!(of_others >= 15, "{of_others}");
}

#[test]
fn reserved_shares_are_kept() {
    let mut world = World::new(4, 4000);
    let [reserved, greedy] = [world.account_with(1, 500), world.account_with(1000, 0)];
    let lender = world.account();
    let host = world.host(lender);
    let [own, other] = [reserved, greedy].map(|account| {
        let spec = world.job_spec(account);
        world.open(spec)
    });
    for _ in 0..20 {
        world.submit(other, 16, 0);
    }
    // Two of four processors are reserved: 2 tasks a second, with a deadline 2 s away, always.
    for second in 0..10 {
        let deadline_ms = (second + 2) * 1_000;
        assert_eq!(world.submit(own, 2, deadline_ms).1, [], "second {second}");
        let out = world.request(host, 4);
        assert_eq!(out.len(), 4);
        world.pass(1_000);
        out.iter().for_each(|instance| {
            for (task, _) in decided(&world.done(host, *instance, 1)) {
                world.handle(Event::Assimilated(&[task]));
            }
        });
    }
    assert_eq!((world.table.totals().met, world.table.totals().missed), (20, 0));
}

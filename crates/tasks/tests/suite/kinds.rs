//! Kinds of hosts and needs: however many there have been, those that are in use have room.

use crate::world::*;
use tasks::*;

/// More than there can be at a time.
const MANY: u32 = KINDS_MAX as u32 + 200;

fn need(number: u32) -> Need {
    Need { memory_mib: 1 + number, ..SMALL }
}

#[test]
fn needs_that_nobody_has_any_more_make_way() {
    let mut world = World::new(8, 64);
    let account = world.account();
    let host = world.host(account);
    // Its need is there all the time, and its task can be had at the end as at the beginning.
    let spec = world.job_spec(account);
    let lasting = world.open(spec);
    let (tasks, _) = world.submit(lasting, 1, 0);
    for number in 0..MANY {
        let spec = world.job_spec(account);
        let job = world.open(JobSpec { need: need(number), ..spec });
        world.handle(Event::CancelJob(job));
        assert_eq!(world.handle(Event::Forget(job)), []);
    }
    let again = loaded(&saved(&world.table), 4096).expect("what was saved");
    again.check_invariants();
    let spec = world.job_spec(account);
    let large = world.open(JobSpec { need: Need { memory_mib: DESK.memory_mib + 1, ..SMALL }, ..spec });
    let submit = Event::Submit { job: large, first: 0, count: 1, later: 0, is_promised: false, deadline_ms: 0 };
    assert_eq!(refused(&world.handle(submit)), Some(Refusal::FitsNowhere), "what was there before fitted");
    assert_eq!(world.request(host, 4), [InstanceName { task: tasks[0], number: 0 }]);
    // A table that was loaded takes the same places again.
    let mut copy = World::new(8, 64);
    copy.table = again;
    copy.now = world.now;
    assert_eq!(copy.open(JobSpec { need: Need { memory_mib: DESK.memory_mib + 1, ..SMALL }, ..spec }), large);
    copy.handle(submit);
    copy.request(host, 4);
    assert!(saved(&copy.table) == saved(&world.table), "same events, same table");
}

#[test]
fn a_host_that_changes_all_the_time_needs_one_kind() {
    let mut world = World::new(8, 64);
    let account = world.account();
    let host = world.attached(account);
    for number in 0..MANY {
        let shape = Shape { memory_mib: 10_000 + number, cpus: 1 + (number % 4) as u16, ..DESK };
        assert_eq!(refused(&world.handle(Event::Resize(host, shape))), None, "{number}");
    }
    let job = world.job(account);
    assert_eq!(sent(&world.submit(job, 9, 0).1).len(), 1 + (MANY as usize - 1) % 4);
    // Hosts that come and go are the same.
    for number in 0..MANY {
        let spec = world.host_spec(account, Shape { memory_mib: 90_000 + number, ..DESK });
        let (host, _) = world.join(spec);
        world.handle(Event::Leave(host));
        world.pass(1);
    }
}

//! One promise each.

use crate::world::*;
use tasks::*;

#[test]
fn the_whole_life_of_a_task() {
    let mut world = World::new(4, 16);
    let account = world.account();
    let host = world.host(account);
    let job = world.job(account);
    let (tasks, _) = world.submit(job, 1, 0);
    let sent = world.request(host, 4);
    assert_eq!(sent, [InstanceName { task: tasks[0], number: 0 }]);
    assert_eq!(decided(&world.done(host, sent[0], 1)), [(tasks[0], Ok(0))]);
    assert_eq!(world.table.pending().count(), 1, "until it has reached where it goes");
    assert_eq!(world.handle(Event::Assimilated(&tasks)), [Effect::Deleted(tasks[0])]);
    assert_eq!(world.handle(Event::Assimilated(&tasks)), [], "the word may come twice");
    assert_eq!(world.table.task(tasks[0]), None);
    assert_eq!(world.handle(Event::Close(job)), [Effect::JobEnded(job)]);
    assert_eq!(world.handle(Event::Forget(job)), []);
    assert_eq!(world.table.counts(), [1, 1, 0, 0, 0]);
}

#[test]
fn an_attached_host_is_sent_tasks_as_they_come() {
    let mut world = World::new(4, 16);
    let account = world.account();
    let host = world.attached(account);
    let spec = world.job_spec(account);
    let job = world.open(spec);
    let (_, effects) = world.submit(job, 6, 0);
    let first = sent(&effects);
    assert_eq!(first.len(), 4, "as many as it has processors");
    assert_eq!(sent(&world.done(host, first[0], 1)).len(), 1, "and the next with each that ends");
}

#[test]
fn limits_of_an_account_hold_as_they_are_changed() {
    let mut world = World::new(8, 64);
    let (account, lender) = (world.account(), world.account());
    let spec = world.table.account_view(account).expect("there").spec;
    let changed = AccountSpec { running_max: 1, tasks_max: 3, share_permille: 300, ..spec };
    assert_eq!(world.handle(Event::Account(changed)), [Effect::Account(account)]);
    let host = world.attached(lender);
    let job = world.job(account);
    let (_, effects) = world.submit(job, 3, 0);
    assert_eq!(sent(&effects).len(), 1, "one at a time, of four processors");
    let submit = Event::Submit { job, first: 3, count: 1, later: 0, is_promised: false, deadline_ms: 0 };
    assert_eq!(refused(&world.handle(submit)), Some(Refusal::AccountFull(3)));
    let greedy = AccountSpec { share_permille: 701, ..world.table.account_view(lender).expect("there").spec };
    assert!(matches!(refused(&world.handle(Event::Account(greedy))), Some(Refusal::Invalid(_))));
    assert_eq!(world.table.account_view(lender).expect("there").spec.share_permille, 0, "refused is unchanged");
    assert_eq!(world.table.reserved_permille(), 300);
    // More than one may run now: hosts that wait are tried again with time.
    world.handle(Event::Account(AccountSpec { running_max: 2, ..changed }));
    let again = sent(&world.pass(200));
    assert_eq!(again.len(), 1);
    world.done(host, again[0], 1);
    let view = world.table.account_view(account).expect("there");
    assert_eq!((view.tasks, view.running, view.spec.running_max), (3, 2, 2));
    assert_eq!(world.table.progress(job, 64), Progress { running: 2, deadline_ms: 0 });
    assert_eq!(world.table.accounts_from(0, 256).iter().map(|view| view.name).collect::<Vec<_>>(), [account, lender]);
    assert_eq!(world.table.accounts_from(1, 1)[0].name, lender);
    let again = loaded(&saved(&world.table), 4096).expect("what was saved");
    assert_eq!(again.accounts_from(0, 256), world.table.accounts_from(0, 256), "kept");
    assert_eq!(world.table.jobs_within(0, 16), (vec![job], None));
    assert_eq!(world.table.jobs_within(1, 16), (vec![], None));
}

#[test]
fn a_share_is_taken_back_while_its_tasks_wait() {
    let mut world = World::new(8, 64);
    let (account, other) = (world.account_with(1, 400), world.account());
    let host = world.host(other);
    let spec = world.job_spec(account);
    let job = world.open(spec);
    let deadline_ms = world.now / MS + 60_000;
    world.submit(job, 3, deadline_ms);
    assert_eq!(world.table.progress(job, 2).deadline_ms, deadline_ms);
    let spec = world.table.account_view(account).expect("there").spec;
    world.handle(Event::Account(AccountSpec { share_permille: 0, ..spec }));
    // Another one has its place, and neither the place's old tasks nor the new ones are lost.
    let spec = world.table.account_view(other).expect("there").spec;
    world.handle(Event::Account(AccountSpec { share_permille: 1_000, ..spec }));
    let spec = world.job_spec(other);
    let late = world.open(spec);
    world.submit(late, 1, deadline_ms);
    let got = world.request(host, 4);
    assert_eq!(got.len(), 4, "{got:?}");
    for instance in got {
        world.done(host, instance, 1);
    }
    let met = |world: &World, name| world.table.account_view(name).map(|view| view.met);
    assert_eq!((met(&world, account), met(&world, other)), (Some(3), Some(1)));
}

#[test]
fn what_is_lost_is_done_elsewhere() {
    let mut world = World::new(8, 16);
    let account = world.account();
    let hosts: Vec<HostName> = (0..3).map(|_| world.host(account)).collect();
    let spec = world.job_spec(account);
    let other = world.account();
    let elsewhere = world.host(other);
    let policy = Policy { delay_bound_ms: 5_000, ..Policy::default() };
    let job = world.open(JobSpec { policy, ..spec });
    let (tasks, _) = world.submit(job, 1, 0);
    let first = world.request(hosts[0], 1);
    assert_eq!(world.table.next_tick(), Some(5_000 * MS));
    world.pass(4_999);
    assert_eq!(world.request(elsewhere, 1), [], "it is out");
    let effects = world.pass(1);
    assert_eq!(effects, [Effect::Stop(hosts[0], first[0])]);
    let again = world.request(elsewhere, 1);
    assert_eq!(again, [InstanceName { task: tasks[0], number: 1 }]);
    // The host is gone: at once.
    world.handle(Event::Leave(elsewhere));
    world.pass(1);
    assert_eq!(world.table.task(tasks[0]).expect("there").unsent, 1);
    // The late result of the first is welcome.
    assert_eq!(decided(&world.done(hosts[0], first[0], 9)), [(tasks[0], Ok(0))]);
    assert_eq!(world.request(hosts[1], 1), []);
}

#[test]
fn a_task_that_fails_everywhere_has_failed() {
    let mut world = World::new(8, 16);
    let accounts: Vec<AccountName> = (0..6).map(|_| world.account()).collect();
    let hosts: Vec<HostName> = accounts.iter().map(|account| world.host(*account)).collect();
    let spec = world.job_spec(accounts[0]);
    let job = world.open(JobSpec { policy: Policy { errors_max: 2, ..Policy::default() }, failures_max: 0, ..spec });
    let (tasks, _) = world.submit(job, 2, 0);
    let mut all = Vec::new();
    for host in &hosts[..3] {
        let instance = world.request(*host, 1).into_iter().find(|instance| instance.task == tasks[0]);
        let Some(instance) = instance else { continue };
        all.extend(world.failed(*host, instance));
    }
    // Copies go apart: the second task may have been sent in between.
    while decided(&all).is_empty() {
        let host = hosts[5];
        let got = world.request(host, 1);
        assert!(!got.is_empty());
        all.extend(world.failed(host, got[0]));
        world.pass(10_000);
    }
    let (task, result) = decided(&all)[0];
    assert_eq!(result, Err(Failure::Errors));
    let effects = world.handle(Event::Assimilated(&[task]));
    assert!(effects.contains(&Effect::Deleted(task)) || !world.pass(10).is_empty());
    // One more failure than is allowed: the job is cancelled.
    world.pass(10);
    assert!(!world.table.job(job).expect("there").is_open);
}

#[test]
fn a_job_that_is_cancelled_sends_nothing_more() {
    let mut world = World::new(8, 200);
    let account = world.account();
    let host = world.host(account);
    let job = world.job(account);
    for _ in 0..10 {
        world.submit(job, 10, 0);
    }
    let out = world.request(host, 4);
    world.handle(Event::CancelJob(job));
    assert_eq!(world.request(host, 4), []);
    let mut effects = world.pass(100);
    let decisions = decided(&effects);
    assert_eq!(decisions.len(), 100);
    assert!(decisions.iter().all(|(_, result)| *result == Err(Failure::Cancelled)));
    for (task, _) in decisions {
        effects.extend(world.handle(Event::Assimilated(&[task])));
    }
    effects.extend(world.pass(100));
    for instance in out {
        assert!(effects.contains(&Effect::Stop(host, instance)));
    }
    assert!(effects.contains(&Effect::JobEnded(job)));
    assert_eq!(world.table.counts()[3..], [0, 0]);
}

#[test]
fn accounts_take_turns_by_weight() {
    let mut world = World::new(64, 400);
    let owners = [world.account_with(1, 0), world.account_with(3, 0)];
    let jobs = owners.map(|account| {
        let spec = world.job_spec(account);
        world.open(spec)
    });
    for _ in 0..10 {
        jobs.iter().for_each(|job| drop(world.submit(*job, 16, 0)));
    }
    let lender = world.account();
    let mut counts = [0, 0];
    for _ in 0..30 {
        let host = world.host(lender);
        for instance in world.request(host, 4) {
            let job = world.table.task(instance.task).expect("there").job;
            counts[jobs.iter().position(|other| *other == job).expect("one of them")] += 1;
        }
    }
    assert_eq!(counts, [30, 90]);
}

#[test]
fn large_tasks_are_not_passed_over_for_ever() {
    let mut world = World::new(4, 1000);
    let account = world.account();
    let host = world.attached(account);
    let spec = world.job_spec(account);
    let small = world.open(spec);
    for _ in 0..20 {
        world.submit(small, 16, 0);
    }
    let (other, spec) = (world.account(), world.job_spec(account));
    let large = world.open(JobSpec { account: other, need: Need { cpus: 4, ..SMALL }, ..spec });
    let (tasks, _) = world.submit(large, 1, 0);
    for round in 0..200 {
        let running = world.table.host(host).expect("here").running;
        let Some(instance) = running.first() else { panic!("idle in round {round}") };
        if instance.task == tasks[0] {
            return;
        }
        world.done(host, *instance, 1);
    }
    panic!("the large task never ran");
}

#[test]
fn hosts_that_fail_everything_are_sent_back() {
    let mut world = World::new(4, 100);
    let account = world.account();
    let host = world.attached(account);
    let job = world.job(account);
    world.submit(job, 16, 0);
    let mut backed_off = Vec::new();
    for _ in 0..4 {
        let running = world.table.host(host).expect("here").running;
        let Some(instance) = running.first() else { break };
        backed_off.extend(world.failed(host, *instance));
    }
    assert!(backed_off.contains(&Effect::BackOff(host, 2_000)), "{backed_off:?}");
    for instance in world.table.host(host).expect("here").running {
        assert_eq!(sent(&world.done(host, instance, 1)), [], "it gets nothing for a while");
    }
    assert_eq!(sent(&world.pass(1_999)), []);
    assert_eq!(sent(&world.pass(1)).len(), 1, "then one, to try");
}

#[test]
fn a_host_is_not_blamed_for_tasks_that_end_badly() {
    let mut world = World::new(4, 100);
    let account = world.account();
    let host = world.attached(account);
    let policy =
        Policy { errors_max: 200, instances_max: 1, excuses_late: true, delay_bound_ms: 10, ..Policy::default() };
    let spec = world.job_spec(account);
    let job = world.open(JobSpec { policy, failures_max: 1_000, ..spec });
    let (_, effects) = world.submit(job, 16, 0);
    let mut out = sent(&effects);
    for _ in 0..8 {
        let instance = out.pop().expect("it goes on being sent tasks");
        let report = Report { instance, outcome: Outcome::Unsuccessful, cost_ms: 1 };
        let effects = world.handle(Event::Report { host, reports: &[report], want: 0 });
        assert!(!effects.iter().any(|effect| matches!(effect, Effect::BackOff(..))), "{effects:?}");
        out.extend(sent(&effects));
    }
    assert!(!world.table.host(host).expect("it is there").is_backing_off);
}

#[test]
fn files_that_are_near_are_waited_for_a_little() {
    let mut world = World::new(8, 100);
    let account = world.account();
    let [cold, warm] = [0, 1].map(|_| {
        let spec = world.host_spec(account, DESK);
        world.join(HostSpec { is_attached: true, ..spec }).0
    });
    world.handle(Event::Warm(warm, 77));
    let spec = world.job_spec(account);
    let job = world.open(JobSpec { affinity: 77, ..spec });
    let (_, effects) = world.submit(job, 1, 0);
    assert!(matches!(effects[..], [Effect::Send { host, .. }] if host == warm), "{effects:?}");
    let (_, effects) = world.submit(job, 4, 0);
    let hosts: Vec<HostName> = effects
        .iter()
        .filter_map(|effect| if let Effect::Send { host, .. } = effect { Some(*host) } else { None })
        .collect();
    assert!(hosts.contains(&warm) && hosts.contains(&cold), "none idles: {hosts:?}");
}

#[test]
fn late_tasks_are_dropped_if_that_is_wanted() {
    let mut world = World::new(8, 100);
    let account = world.account();
    world.host(account);
    let spec = world.job_spec(account);
    let job = world.open(JobSpec { policy: Policy { drops_late: true, ..Policy::default() }, ..spec });
    world.submit(job, 3, 5_000);
    world.submit(job, 2, 0);
    let effects = world.pass(5_001);
    assert_eq!(decided(&effects).len(), 3);
    assert!(decided(&effects).iter().all(|(_, result)| *result == Err(Failure::Late)));
    assert_eq!(world.table.totals().missed, 3);
}

#[test]
fn trusted_hosts_need_no_others() {
    let mut world = World::new(8, 400);
    let accounts = [world.account(), world.account()];
    let hosts = accounts.map(|account| world.host(account));
    let policy = Policy { quorum: 2, target: 2, is_adaptive: true, instances_max: 8, ..Policy::default() };
    let spec = world.job_spec(accounts[0]);
    let job = world.open(JobSpec { policy, ..spec });
    let (mut singles, mut pairs) = (0, 0);
    for _ in 0..100 {
        let (tasks, _) = world.submit(job, 1, 0);
        let mut effects = Vec::new();
        for host in hosts {
            for instance in world.request(host, 1) {
                effects.extend(world.done(host, instance, 5));
            }
        }
        assert_eq!(decided(&effects).len(), 1, "{:?}", world.table.task(tasks[0]));
        let made = world.table.task(tasks[0]).expect("there").made;
        if made == 1 {
            singles += 1
        } else {
            pairs += 1
        }
        world.handle(Event::Assimilated(&tasks));
        world.pass(10);
    }
    assert!(singles > 50 && pairs > 10, "{singles} by one, {pairs} by two");
}

#[test]
fn the_users_command_decides() {
    let mut world = World::new(8, 100);
    let accounts = [world.account(), world.account(), world.account()];
    let hosts = accounts.map(|account| world.host(account));
    let policy =
        Policy { quorum: 2, target: 2, validation: Validation::Command, instances_max: 8, ..Policy::default() };
    let spec = world.job_spec(accounts[0]);
    let job = world.open(JobSpec { policy, ..spec });
    let (tasks, _) = world.submit(job, 1, 0);
    let mut effects = Vec::new();
    for (host, result) in hosts.into_iter().zip([1, 2]) {
        let instance = world.request(host, 1)[0];
        effects = world.done(host, instance, result);
    }
    assert_eq!(effects, [Effect::Compare(tasks[0], 0b11)]);
    assert_eq!(world.table.pending().collect::<Vec<_>>(), effects);
    assert_eq!(world.handle(Event::Compared { task: tasks[0], agree: 0b01 }), [], "one more is wanted");
    let instance = world.request(hosts[2], 1)[0];
    assert_eq!(world.done(hosts[2], instance, 3), [Effect::Compare(tasks[0], 0b111)]);
    let effects = world.handle(Event::Compared { task: tasks[0], agree: 0b101 });
    assert_eq!(decided(&effects), [(tasks[0], Ok(0))]);
}

#[test]
fn what_can_run_nowhere_is_refused_and_explained() {
    let mut world = World::new(8, 100);
    let account = world.account();
    let spec = world.job_spec(account);
    let before = world.open(JobSpec { need: Need { cpus: 8, ..SMALL }, ..spec });
    let (tasks, _) = world.submit(before, 1, 0);
    assert_eq!(world.table.waits(tasks[0]), Some(Waits::NoHosts));
    world.host(account);
    assert_eq!(world.table.waits(tasks[0]), Some(Waits::FitsNowhere(vec![Misfit::Cpus(4, 8)])));
    let spec = world.job_spec(account);
    let job = world.open(JobSpec { need: Need { platform: Platform::LINUX_ARM64, ..SMALL }, ..spec });
    assert_eq!(refused(&world.submit(job, 1, 0).1), Some(Refusal::FitsNowhere));
}

#[test]
fn submitting_again_changes_nothing() {
    let mut world = World::new(8, 100);
    let account = world.account();
    let spec = world.job_spec(account);
    let job = world.open(spec);
    world.submit(job, 5, 0);
    assert_eq!(world.handle(Event::Open(spec)), [Effect::Job(job, 5)]);
    assert_eq!(
        world.handle(Event::Submit { job, first: 0, count: 5, later: 0, is_promised: false, deadline_ms: 0 }),
        []
    );
    let other = world.account();
    let effects = world.handle(Event::Open(JobSpec { account: other, ..spec }));
    assert!(matches!(effects[..], [Effect::Job(theirs, 0)] if theirs != job), "another account's");
    let effects = world.handle(Event::Submit { job, first: 3, count: 4, later: 0, is_promised: false, deadline_ms: 0 });
    assert_eq!(effects.len(), 2, "those that are new");
    assert_eq!(
        refused(&world.handle(Event::Submit { job, first: 9, count: 1, later: 0, is_promised: false, deadline_ms: 0 })),
        Some(Refusal::Gap(7))
    );
}

#[test]
fn held_jobs_wait_and_urgent_ones_go_first() {
    let mut world = World::new(8, 100);
    let account = world.account();
    let host = world.host(account);
    let (first, second) = (world.job_spec(account), world.job_spec(account));
    let [first, second] = [first, second].map(|spec| {
        let job = world.open(spec);
        world.submit(job, 4, 0);
        job
    });
    let job_of = |world: &World, instance: InstanceName| world.table.task(instance.task).expect("there").job;
    world.handle(Event::Hold(first, true));
    let got = world.request(host, 1);
    assert_eq!(job_of(&world, got[0]), second);
    world.handle(Event::Hold(first, false));
    world.handle(Event::Urgency(first, Urgency::Interactive));
    let got = world.request(host, 1);
    assert_eq!(job_of(&world, got[0]), first);
}

#[test]
fn a_full_table_refuses_and_keeps_what_it_has() {
    let mut world = World::new(2, 32);
    let account = world.account();
    let job = world.job(account);
    world.submit(job, 16, 0);
    world.submit(job, 16, 0);
    assert_eq!(refused(&world.submit(job, 1, 0).1), Some(Refusal::Full(Kind::Tasks, 1_000)));
    for _ in 0..2 {
        world.host(account);
    }
    let spec = world.host_spec(account, DESK);
    assert_eq!(refused(&world.handle(Event::Join(spec))), Some(Refusal::Full(Kind::Hosts, 1_000)));
}

#[test]
fn a_host_that_lends_less_keeps_what_it_has() {
    let mut world = World::new(4, 100);
    let account = world.account();
    let host = world.attached(account);
    let job = world.job(account);
    let (_, effects) = world.submit(job, 8, 0);
    let out = sent(&effects);
    world.handle(Event::Resize(host, Shape { cpus: 2, largest: 1, ..DESK }));
    assert_eq!(world.table.host(host).expect("here").cpus_free, -2);
    assert_eq!(sent(&world.done(host, out[0], 1)), []);
    assert_eq!(sent(&world.done(host, out[1], 1)), []);
    assert_eq!(sent(&world.done(host, out[2], 1)).len(), 1);
    assert_eq!(sent(&world.handle(Event::Resize(host, Shape { cpus: 4, largest: 4, ..DESK }))).len(), 2);
}

#[test]
fn what_comes_while_all_hosts_rest_waits() {
    let mut world = World::new(4, 100);
    let account = world.account();
    let host = world.attached(account);
    world.handle(Event::Resize(host, Shape { cpus: 0, largest: 4, ..DESK }));
    let job = world.job(account);
    let (tasks, effects) = world.submit(job, 1, 0);
    assert_eq!((refused(&effects), sent(&effects).len()), (None, 0));
    assert_eq!(world.table.waits(tasks[0]), Some(Waits::Resting));
    world.table.check_invariants();
    assert_eq!(sent(&world.handle(Event::Resize(host, Shape { cpus: 4, largest: 4, ..DESK }))).len(), 1);
    // Who will lend nothing more is not waited for.
    world.handle(Event::Resize(host, Shape { cpus: 0, largest: 0, ..DESK }));
    let refused_now =
        world.handle(Event::Submit { job, first: 1, count: 1, later: 0, is_promised: false, deadline_ms: 0 });
    assert_eq!(refused(&refused_now), Some(Refusal::FitsNowhere));
}

#[test]
fn when_an_instance_is_given_up_is_known() {
    let mut world = World::new(8, 100);
    let account = world.account();
    let host = world.host(account);
    let spec = world.job_spec(account);
    let policy = Policy { delay_bound_ms: 5_000, ..Policy::default() };
    let job = world.open(JobSpec { policy, ..spec });
    let (tasks, _) = world.submit(job, 1, 0);
    world.pass(700);
    world.request(host, 1);
    world.pass(3_000);
    assert_eq!(world.table.instances(tasks[0])[0].due_ms, 5_700);
    world.pass(2_000);
    assert_eq!(world.table.instances(tasks[0])[0].due_ms, 0, "it was");
    // One that is watched is given up so long after its task has got some more.
    let job = world.open(JobSpec { policy: Policy { is_speculative: true, ..policy }, key: 99, ..spec });
    let (tasks, _) = world.submit(job, 1, 9_700);
    assert_eq!(world.request(host, 1)[0].task, tasks[0]);
    let due_ms = |world: &World| world.table.instances(tasks[0]).last().expect("the first").due_ms;
    assert_eq!(due_ms(&world), 12_700);
    world.pass(2_500);
    assert_eq!(due_ms(&world), 12_700);
    world.pass(12_700 - 8_200 - 1);
    assert_eq!(due_ms(&world), 12_700);
    world.pass(1);
    assert_eq!(due_ms(&world), 0);
}

#[test]
fn a_host_that_was_late_gets_nothing_until_it_says_something() {
    let mut world = World::new(8, 64);
    let account = world.account();
    let host = world.attached(account);
    let spec = world.job_spec(account);
    let policy = Policy { delay_bound_ms: 1_000, ..Policy::default() };
    let job = world.open(JobSpec { policy, ..spec });
    let first = sent(&world.submit(job, 2, 0).1);
    assert_eq!(first.len(), 2);
    world.pass(2_000);
    assert_eq!(sent(&world.submit(job, 12, 0).1), [], "it may be no more");
    assert_eq!(sent(&world.done(host, first[0], 1)).len(), 1, "it was only slow");
    world.pass(1_500);
    assert_eq!(sent(&world.pass(20_000)), []);
    assert!(!sent(&world.pass(20_000)).is_empty(), "it may have lost what it was sent, and goes on");
}

#[test]
fn a_task_goes_where_it_is_expected_to_end_first() {
    let mut world = World::new(8, 100);
    let account = world.account();
    let hosts = [world.attached(account), world.attached(account), world.attached(account)];
    for (host, permille) in hosts.into_iter().zip([300, 950, 600]) {
        world.handle(Event::Speed(host, permille));
    }
    let spec = world.job_spec(account);
    let job = world.open(JobSpec { affinity: 77, ..spec });
    let next = |world: &mut World| {
        let effects = world.submit(job, 1, 0).1;
        let sent = effects.iter().find_map(|effect| match effect {
            Effect::Send { host, instance, .. } => Some((*host, *instance)),
            _ => None,
        });
        sent.expect("there is a host")
    };
    // Also when others have more processors free.
    let (first, instance) = next(&mut world);
    assert_eq!((first, next(&mut world).0), (hosts[1], hosts[1]));
    // A third faster is worth as much as files that are near.
    world.handle(Event::Warm(hosts[2], 77));
    assert_eq!(next(&mut world).0, hosts[1]);
    world.handle(Event::Speed(hosts[1], 700));
    assert_eq!(next(&mut world).0, hosts[2]);
    // Who has become slow is slow for what comes; what he has goes on.
    world.handle(Event::Speed(hosts[2], 1));
    world.handle(Event::Speed(hosts[1], 1));
    assert_eq!(next(&mut world).0, hosts[0]);
    world.done(hosts[1], instance, 1);
    for wrong in [0, 1_000_001] {
        assert!(matches!(refused(&world.handle(Event::Speed(hosts[0], wrong))), Some(Refusal::Invalid(_))));
    }
    world.table.check_invariants();
}

#[test]
fn a_host_that_fails_everything_is_tried_again_every_few_minutes() {
    let mut world = World::new(4, 64);
    let account = world.account();
    let host = world.host(account);
    let spec = world.job_spec(account);
    let job = world.open(JobSpec { policy: Policy { errors_max: 15, instances_max: 16, ..Policy::default() }, ..spec });
    world.submit(job, 16, 0);
    let mut longest = 0;
    // Each has another task: who has failed one gets that not so soon again.
    for _ in 0..14 {
        let instance = world.request(host, 1)[0];
        let effects = world.failed(host, instance);
        let back_off = effects.iter().find_map(|effect| match effect {
            Effect::BackOff(_, ms) => Some(u64::from(*ms)),
            _ => None,
        });
        longest = longest.max(back_off.unwrap_or(0));
        world.pass(back_off.unwrap_or(0));
    }
    assert_eq!(longest, 300_000, "one that was wrongly blamed is not away for an hour");
}

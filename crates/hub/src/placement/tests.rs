//! Launches get their places, one after the other, on the right workers.

use super::*;
use crate::desk::Room;
use base::{Digest, Needs};
use proptest::prelude::*;

fn node(number: u8) -> NodeId {
    NodeId(Digest([number; 32]))
}

fn wanted(cpus: u32) -> Wanted {
    let need = Tags::default().need(&Needs { cpus, ..Needs::default() }).expect("no tags");
    Wanted { account: 1, need, affinity: 0 }
}

fn placement() -> Placement {
    Placement::new(Desk::in_memory(Room::default(), 5))
}

#[test]
fn spreads_over_workers_and_queues() {
    let mut placement = placement();
    assert_eq!(placement.submit(Ticket(0), wanted(1)), Err(Refused::NoWorker(Vec::new())));
    placement.join(node(1), Lent::by_machine(1), false);
    placement.join(node(2), Lent::by_machine(1), false);
    let first = placement.submit(Ticket(1), Wanted { affinity: 7, ..wanted(1) }).expect("fits");
    placement.finish(Ticket(1));
    let again = placement.submit(Ticket(1), Wanted { affinity: 7, ..wanted(1) }).expect("fits");
    assert_eq!(again[0].worker, first[0].worker, "the one that knows the files");
    assert_eq!(again[0].why, "1 of 1 CPUs free, knows the program's files");
    assert_ne!(placement.submit(Ticket(2), wanted(1)).expect("fits")[0].worker, first[0].worker);
    assert_eq!(placement.submit(Ticket(3), wanted(1)), Ok(vec![]));
    assert_eq!(placement.counts(), (2, 1));
    assert_eq!(placement.finish(Ticket(1))[0].ticket, Ticket(3));
    assert_eq!(placement.submit(Ticket(4), wanted(2)), Err(Lack::Cpus { asked: 2, largest: 1 }.into()));
}

#[test]
fn what_tasks_have_that_wait_for_their_streams_is_lent_once_more() {
    let mut placement = placement();
    let one = Lent::by_machine(1);
    placement.join(node(1), one, false);
    for number in 1..=3 {
        placement.submit(Ticket(number), wanted(1)).expect("fits");
    }
    assert_eq!(placement.counts(), (1, 2));
    let made = placement.resize(node(1), Lent { cpus_again: 1, ..one });
    assert_eq!(made.iter().map(|made| made.ticket).collect::<Vec<_>>(), [Ticket(2)]);
    assert_eq!(placement.load(node(1)), Some((1, 1)), "one waits, one runs");
    assert_eq!(placement.submit(Ticket(4), wanted(2)), Err(Lack::Cpus { asked: 2, largest: 1 }.into()));
    assert_eq!(placement.resize(node(1), one), vec![], "both go on");
    assert_eq!(placement.finish(Ticket(1)), vec![], "the other has the place");
    assert_eq!(placement.finish(Ticket(2))[0].ticket, Ticket(3));
    let rests = Lent { cpus: 0, cpus_again: 5, ..one };
    placement.resize(node(1), rests);
    assert_eq!(placement.finish(Ticket(3)), vec![], "who lends nothing lends nothing once more");
}

#[test]
fn a_lost_worker_gives_up_its_tasks() {
    let mut placement = placement();
    placement.join(node(1), Lent::by_machine(2), false);
    placement.submit(Ticket(1), wanted(2)).expect("fits");
    placement.submit(Ticket(2), wanted(1)).expect("waits");
    assert_eq!(placement.leave(node(1)), vec![], "nothing is placed on it");
    assert_eq!(placement.stranded(), vec![Ticket(2)]);
    assert_eq!(placement.counts(), (0, 0));
    assert_eq!(placement.tick(), vec![], "its places go by and by");
    assert_eq!(placement.desk.table().counts()[1..], [0, 0, 0, 0], "no hosts, jobs, tasks or instances");
}

#[test]
fn what_left_a_moment_ago_may_be_back() {
    let mut placement = placement();
    let none = placement.submit(Ticket(0), wanted(1)).expect_err("nobody is there");
    placement.join(node(1), Lent::by_machine(1), false);
    let lack = placement.submit(Ticket(1), wanted(2)).expect_err("it has one");
    assert!(placement.is_passing(&none) && placement.is_passing(&lack), "the hub has just begun");
    assert!(placement.is_passing(&Refused::Table(Refusal::FitsNowhere)), "so a job's are");
    placement.left_at = placement.desk.now().wrapping_sub(BACK_WITHIN.as_nanos() as u64 * 2);
    assert!(!placement.is_passing(&lack) && placement.is_passing(&none) && !placement.may_be_back());
    placement.join(node(2), Lent::by_machine(2), false);
    placement.leave(node(2));
    assert!(placement.is_passing(&lack) && !placement.is_passing(&Refused::Table(Refusal::Unknown)));
}

#[test]
fn a_hub_that_works_for_this_one_lends_what_its_workers_lend() {
    let mut placement = placement();
    placement.join(node(1), Lent::default(), false);
    assert_eq!(placement.submit(Ticket(1), wanted(1)), Err(Refused::NoWorker(Vec::new())), "nobody is behind it yet");
    assert_eq!(placement.resize(node(1), Lent { cpus: 4, largest: 2, ..Lent::default() }), vec![]);
    assert_eq!(placement.submit(Ticket(2), wanted(3)), Err(Lack::Cpus { asked: 3, largest: 2 }.into()));
    for number in 3..6 {
        placement.submit(Ticket(number), wanted(2)).expect("fits");
    }
    assert_eq!(placement.counts(), (2, 1));
    // A worker behind it is gone: what runs is not touched, and the next one waits until the CPUs are there.
    assert_eq!(placement.resize(node(1), Lent { cpus: 2, largest: 2, ..Lent::default() }), vec![]);
    assert_eq!(placement.load(node(1)), Some((2, 4)));
    assert_eq!(placement.finish(Ticket(3)), vec![]);
    assert_eq!(placement.finish(Ticket(4)).len(), 1);
    placement.resize(node(1), Lent::default());
    placement.submit(Ticket(9), wanted(1)).expect_err("nobody is behind it");
    assert_eq!((placement.counts(), placement.lent()), ((1, 0), Lent::default()));
}

#[test]
fn a_large_branch_joins_as_several_hosts() {
    let mut placement = placement();
    placement.join(node(1), Lent { cpus: 300, largest: 8, ..Lent::default() }, false);
    for number in 0..301 {
        placement.submit(Ticket(number), wanted(1)).expect("fits");
    }
    assert_eq!(placement.counts(), (300, 1));
    assert_eq!(placement.load(node(1)), Some((300, 300)));
    placement.leave(node(1));
    assert_eq!(placement.stranded(), [Ticket(300)]);
    let all = Lent { cpus: 192, largest: 192, ..Lent::default() };
    placement.join(node(2), all, false);
    assert_eq!(placement.submit(Ticket(400), wanted(192)).expect("fits")[0].worker, node(2));
}

#[test]
fn all_of_a_job_are_placed_where_its_files_are_and_elsewhere() {
    let mut placement = placement();
    placement.join(node(1), Lent::by_machine(1), false);
    placement.join(node(2), Lent::default(), false);
    placement.resize(node(2), Lent { cpus: 1, largest: 1, ..Lent::default() });
    placement.resize(node(2), Lent { cpus: 2, largest: 1, ..Lent::default() });
    let mut running = std::collections::VecDeque::new();
    for number in 0..8 {
        let wanted = Wanted { affinity: 7, ..wanted(1) };
        running.extend(placement.submit(Ticket(number), wanted).expect("fits"));
    }
    assert_eq!(running.len(), 3);
    for left in (0..8).rev() {
        let ended = running.pop_front().unwrap_or_else(|| panic!("{left} are never placed"));
        running.extend(placement.finish(ended.ticket));
    }
}

#[test]
fn a_drained_worker_goes_on_with_what_it_has_and_gets_no_more() {
    let mut placement = placement();
    let drained = |count: u8| (1..=count).map(|number| format!("{} (drained)", node(number).short())).collect();
    placement.join(node(1), Lent::by_machine(2), false);
    let placed = placement.submit(Ticket(1), wanted(1)).expect("fits");
    assert_eq!(placed.len(), 1);
    assert_eq!(placement.drain(node(1), true), vec![]);
    assert_eq!(placement.submit(Ticket(2), wanted(1)), Err(Refused::NoWorker(drained(1))));
    placement.join(node(2), Lent::by_machine(1), true);
    assert_eq!(
        placement.submit(Ticket(2), wanted(1)),
        Err(Refused::NoWorker(drained(2))),
        "it is drained from the start"
    );
    assert_eq!(placement.counts(), (1, 0), "what runs goes on");
    placement.join(node(3), Lent::by_machine(1), false);
    assert_eq!(placement.submit(Ticket(2), wanted(1)).expect("fits")[0].worker, node(3));
    assert_eq!(placement.submit(Ticket(3), wanted(1)), Ok(vec![]));
    assert_eq!(placement.finish(Ticket(1)), vec![], "there is room, and it is not lent");
    assert_eq!(placement.drain(node(1), false)[0].ticket, Ticket(3));
}

#[test]
fn a_launch_waits_for_no_worker_that_takes_none() {
    let mut placement = placement();
    let none = Lent { cpus: 0, largest: 0, ..Lent::default() };
    placement.join(node(1), Lent::by_machine(4), false);
    placement.join(node(2), Lent::by_machine(1), false);
    placement.submit(Ticket(1), wanted(4)).expect("fits");
    assert_eq!(placement.submit(Ticket(2), wanted(4)), Ok(vec![]));
    placement.resize(node(1), none);
    assert_eq!(placement.stranded(), [Ticket(2)], "its worker is paused");
    let lack = placement.submit(Ticket(3), wanted(4));
    assert_eq!(lack, Err(Lack::Cpus { asked: 4, largest: 1 }.into()));
    assert_eq!((placement.workers_for(&wanted(4).need), placement.lent().largest), (0, 1));
    // A job would wait for it, and not for what it never lent.
    assert_eq!(placement.lent_in_time().largest, 4);
    assert_eq!(placement.resting_for(&wanted(5).need), "");
    placement.drain(node(1), true);
    assert_eq!(placement.resting_for(&wanted(4).need), format!(": {} (drained)", node(1).short()));
    placement.resize(node(1), Lent::by_machine(4));
    assert_eq!(placement.drain(node(1), false), vec![]);
    assert_eq!(placement.submit(Ticket(4), wanted(4)), Ok(vec![]), "the first has its place still");
    assert_eq!(placement.finish(Ticket(1))[0].ticket, Ticket(4));
}

#[test]
fn a_job_waits_for_a_worker_that_waits_for_approval() {
    let mut placement = placement();
    placement.join(node(1), Lent::by_machine(4), true);
    placement.is_known(node(1), About { trust: Trust::Waiting, ..About::default() });
    let own = Need { tags: trust::tags(Trust::Own), ..wanted(4).need };
    assert!(placement.lent_in_time().has_all(&own) && !placement.lent().has_all(&own));
    let why = format!(": {} (waits for `gleaner approve`)", node(1).short());
    assert_eq!(placement.resting_for(&own), why);
    let wanted = Wanted { need: own, ..wanted(4) };
    assert!(matches!(placement.submit(Ticket(1), wanted), Err(Refused::NoWorker(_))), "a launch does not wait");
    assert_eq!(placement.trusts(node(1), Trust::Volunteer, false), vec![]);
    assert!(!placement.lent_in_time().has_all(&own), "now it is known");
    placement.trusts(node(1), Trust::Own, false);
    assert_eq!(placement.submit(Ticket(2), wanted).expect("fits").len(), 1);
}

#[test]
fn a_task_would_be_better_off_only_where_it_may_be() {
    let mut placement = placement();
    let tags = placement.tags.lent(&["here".to_owned()], node(9));
    placement.join(node(1), Lent { tags, ..Lent::by_machine(2) }, false);
    let need = Need { tags, ..wanted(1).need };
    placement.submit(Ticket(1), Wanted { need, ..wanted(1) }).expect("fits");
    placement.join(node(2), Lent::by_machine(2), false);
    assert_eq!(placement.elsewhere(node(1)), 0, "it may be nowhere else");
    placement.join(node(3), Lent { tags, ..Lent::by_machine(1) }, false);
    assert_eq!(placement.elsewhere(node(1)), 1_000);
    assert_eq!(placement.elsewhere(node(2)), 1_000, "of nobody's needs any will do");
    placement.finish(Ticket(1));
    let need = Need { cpus: 2, ..need };
    placement.submit(Ticket(2), Wanted { need, ..wanted(2) }).expect("fits");
    assert_eq!(placement.elsewhere(node(1)), 0, "nobody else has two");
}

fn busy(cpus: u32) -> Lent {
    let expected = Some(Expected { mean: 3, low: 0, high: 10, error: 0, covered: 1_000 });
    Lent { expected, ..Lent::by_machine(cpus) }
}

#[test]
fn a_worker_that_gives_nothing_gets_nothing_while_another_gives_something() {
    let mut placement = placement();
    placement.join(node(1), busy(8), false);
    assert_eq!(placement.submit(Ticket(0), wanted(1)).expect("fits")[0].worker, node(1), "there is no other");
    placement.join(node(2), Lent::by_machine(1), false);
    assert_eq!(placement.submit(Ticket(1), wanted(1)).expect("fits")[0].worker, node(2));
    for number in 2..6 {
        assert_eq!(placement.submit(Ticket(number), wanted(1)), Ok(vec![]), "it waits for the one that is full");
    }
    assert_eq!(placement.counts(), (2, 4));
    assert!(!placement.offer(b"").is_free, "and whoever asks is told so");
    let next = placement.finish(Ticket(1));
    assert_eq!((next[0].ticket, next[0].worker), (Ticket(2), node(2)));
    assert_eq!(placement.give_up_choosing(), vec![], "they have not waited for long");
    let all = placement.resize(node(2), busy(1));
    let placed: Vec<_> = all.iter().map(|made| (made.ticket, made.worker)).collect();
    assert_eq!(placed, [3, 4, 5].map(|number| (Ticket(number), node(1))), "nobody gives anything");
    placement.resize(node(2), Lent::by_machine(1));
    assert_eq!(placement.submit(Ticket(6), wanted(1)), Ok(vec![]));
    assert_eq!(placement.leave(node(2))[0].worker, node(1), "and nobody does any more");
    assert_eq!(placement.stranded(), vec![]);
    assert_eq!((placement.counts(), placement.choosing.len()), ((5, 0), 0));
}

#[test]
fn nobody_waits_long_for_a_worker_that_gives_something() {
    let mut placement = placement();
    placement.join(node(1), busy(2), false);
    placement.join(node(2), Lent::by_machine(1), false);
    placement.submit(Ticket(1), wanted(1)).expect("fits");
    placement.submit(Ticket(2), wanted(1)).expect("waits");
    placement.tickets.get_mut(&Ticket(2)).expect("it waits").since = 0;
    let made = placement.give_up_choosing();
    assert_eq!((made.len(), made[0].ticket, made[0].worker), (1, Ticket(2), node(1)));
    assert_eq!(placement.submit(Ticket(3), wanted(2)).expect("fits"), vec![], "who needs two has no other");
}

#[test]
fn launches_end_when_the_journal_has() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = store::log::Place::Disk(folder.path().to_owned());
    let room = Room { hosts: 8, tasks: 64, bytes_max: 1 << 20 };
    let desk = Desk::open(place, room, Default::default(), Box::new(|_| {})).expect("opened");
    let mut placement = Placement::new(desk);
    placement.join(node(1), Lent::by_machine(1), false);
    placement.submit(Ticket(1), wanted(1)).expect("fits");
    placement.submit(Ticket(2), wanted(1)).expect("waits");
    placement.desk.end(std::sync::Arc::new(store::journal::JournalError::Panicked));
    assert_eq!(placement.finish(Ticket(1)), vec![]);
    assert_eq!(placement.finish(Ticket(2)), vec![]);
    assert_eq!(placement.counts(), (0, 0));
}

#[test]
fn accounts_take_turns() {
    let mut placement = placement();
    placement.join(node(1), Lent::by_machine(1), false);
    for number in 0..10 {
        placement.submit(Ticket(number), wanted(1)).expect("fits");
    }
    placement.submit(Ticket(99), Wanted { account: 2, ..wanted(1) }).expect("waits");
    let mut made = placement.finish(Ticket(0));
    made.extend(placement.finish(made[0].ticket));
    assert!(made.iter().any(|made| made.ticket == Ticket(99)), "{made:?}");
}

proptest! {
    #[test]
    fn every_task_is_placed_once(steps in proptest::collection::vec((0u8..5, 0u8..6, 1u32..4), 1..200)) {
        let mut placement = placement();
        let mut placed = std::collections::HashSet::new();
        for (number, (kind, which, cpus)) in steps.into_iter().enumerate() {
            let mut made = match kind {
                0 => placement.join(node(which), Lent::by_machine(cpus), false),
                4 => placement.resize(node(which), Lent { cpus: cpus * 2 - 2, largest: cpus - 1, ..Lent::default() }),
                1 => placement.leave(node(which)),
                2 => placement.submit(Ticket(number as u64), wanted(cpus)).unwrap_or_default(),
                _ => {
                    let some = placed.iter().next().copied();
                    some.map_or(vec![], |ticket| placement.finish(ticket))
                }
            };
            made.extend(placement.tick());
            placement.stranded();
            for assignment in made {
                prop_assert!(placed.insert(assignment.ticket), "placed twice");
            }
            let (running, waiting) = placement.counts();
            prop_assert_eq!(placement.desk.table().counts()[3], running + waiting);
        }
    }
}

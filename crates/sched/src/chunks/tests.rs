//! Machines that have to spare what is foretold, or other than that; and work and machines of all kinds.

use super::*;
use proptest::prelude::*;

fn share(value: f64, low: f64, high: f64) -> Forecast {
    Forecast { value, low, high }
}

fn machine(value: f64, low: f64) -> Machine {
    let share = share(value, low, (2.0 * value - low).min(1.0));
    Machine { processors: 1, speed: 1.0, share, bytes_per_s: f64::INFINITY, overhead_s: 0.0 }
}

fn work(records: u64) -> Work {
    Work { records, record_s: 1.0, record_bytes: 0.0 }
}

fn divided(records: u64, machines: &[Machine]) -> Division {
    Division::new(work(records), machines).expect("sound")
}

/// Has all of it done, by machines that have these shares to spare: the chunks with who did them, and when the last one ended.
fn run(division: &mut Division, shares: &[f64]) -> (Vec<(usize, Range<u64>)>, f64) {
    let count = division.processors();
    let (mut ends, mut chunks, mut now_s) = (vec![None; count], Vec::new(), 0.0);
    loop {
        for (processor, end) in ends.iter_mut().enumerate() {
            if end.is_some() {
                continue;
            }
            let Some(chunk) = division.next(processor, now_s) else { continue };
            let at = division.machine_of(processor);
            let machine = division.machines[at];
            let takes_s = (chunk.end - chunk.start) as f64 * division.record_s(&machine, shares[at]);
            *end = Some(now_s + machine.overhead_s + takes_s);
            chunks.push((processor, chunk));
        }
        let Some(next_s) = ends.iter().flatten().copied().reduce(f64::min) else { break };
        now_s = next_s;
        ends.iter_mut().filter(|end| **end == Some(now_s)).for_each(|end| *end = None);
    }
    assert_eq!(division.left(), 0, "whoever is first takes what is left");
    (chunks, now_s)
}

#[test]
fn parts_are_as_what_is_foretold() {
    let division = divided(100, &[machine(0.2, 0.1), machine(0.8, 0.8)]);
    assert_eq!(division.parts(0.0), [20, 80]);
    let finish = division.finish(0.0);
    assert!((finish.expected_s - 100.0).abs() < 1e-9, "{finish:?}");
    assert!(
        (finish.latest_s - 100.0 / 0.9).abs() < 1e-9 && (finish.soonest_s - 100.0 / 1.1).abs() < 1e-9,
        "{finish:?}"
    );
    let fast = Machine { speed: 3.0, ..machine(0.5, 0.5) };
    let two = Machine { processors: 2, ..machine(0.25, 0.25) };
    assert_eq!(divided(100, &[fast, two]).parts(0.0), [75, 13, 12]);
    // A link of one record a second is as much in the way as a processor of which half is there.
    let far = Machine { bytes_per_s: 10.0, ..machine(1.0, 1.0) };
    let bytes = Work { record_bytes: 10.0, ..work(90) };
    assert_eq!(Division::new(bytes, &[far, machine(1.0, 1.0)]).expect("sound").parts(0.0), [30, 60]);
}

#[test]
fn the_more_a_launch_costs_the_more_is_given_at_once() {
    assert_eq!(at_once(0.0), AT_ONCE.0, "launches that cost nothing can be many");
    assert!((at_once(1e-3) - (1e-3 * 1e3f64.ln() / AT_STAKE).sqrt()).abs() < 1e-12);
    assert_eq!(at_once(0.3), AT_ONCE.1);
    let first = |overhead_s: f64| {
        let costly = Machine { overhead_s, ..machine(0.5, 0.2) };
        let all = divided(1_000, &[costly, costly]).next(0, 0.0).expect("work");
        all.end - all.start
    };
    // Of a part of 500 records, which takes 1,000 s.
    assert_eq!([0.0, 1.0, 100.0].map(first), [31, 83, 250]);
}

#[test]
fn chunks_fall_in_size_and_all_end_together() {
    let mut division = divided(10_000, &[machine(0.2, 0.1), machine(0.9, 0.8)]);
    let finish = division.finish(0.0);
    let (chunks, end_s) = run(&mut division, &[0.2, 0.9]);
    assert!(end_s - finish.expected_s < 5.0, "a record takes 5 s on the slower one: {end_s}, {finish:?}");
    for processor in 0..2 {
        let sizes: Vec<u64> =
            chunks.iter().filter(|(who, _)| *who == processor).map(|(_, all)| all.end - all.start).collect();
        assert!(sizes.is_sorted_by(|one, other| one >= other) && sizes.len() > 4, "{sizes:?}");
    }
}

#[test]
fn a_launch_is_not_worth_less_than_it_costs() {
    let costly = |machine: Machine| Machine { overhead_s: 10.0, ..machine };
    let machines = [costly(machine(1.0, 0.5)), costly(machine(1.0, 0.5))];
    let mut sure = divided(20, &machines);
    assert_eq!([sure.next(0, 0.0), sure.next(1, 0.0)], [Some(0..10), Some(10..20)], "at once, rather than by fives");
    let mut slow = divided(20, &[costly(machine(1.0, 0.5)), Machine { overhead_s: 100.0, ..machine(1.0, 0.5) }]);
    assert_eq!(slow.next(1, 0.0), None, "the other one has done it all before this one has begun");
    assert_eq!((slow.next(0, 0.0), slow.left()), (Some(0..20), 0));
    assert_eq!(slow.next(0, 30.0), None, "all is given away");
}

#[test]
fn who_turns_out_slow_holds_nobody_up_for_long() {
    // Foretold is half, with a quarter for its low end; there is that quarter.
    let machines = [machine(0.5, 0.25), machine(0.5, 0.5)];
    let (_, end_s) = run(&mut divided(10_000, &machines), &[0.25, 0.5]);
    let (best_s, halves_s) = (10_000.0 / 0.75, 5_000.0 / 0.25);
    assert!(end_s < best_s * 1.01 && halves_s > best_s * 1.4, "{end_s} beside {best_s}");
}

#[test]
fn newer_forecasts_count() {
    let mut division = divided(100, &[machine(0.5, 0.5), machine(0.5, 0.5)]);
    division.forecast(0, share(0.25, 0.25, 0.25));
    division.forecast(1, share(f64::NAN, 0.0, 1.0));
    division.forecast(1, share(0.75, 0.75, 0.75));
    assert_eq!(division.parts(0.0), [25, 75]);
    division.forecast(0, share(0.0, 0.0, 0.0));
    assert!(division.finish(0.0).expected_s.is_finite() && division.parts(0.0)[0] <= 2, "{:?}", division.parts(0.0));
}

#[test]
fn what_is_no_work_or_no_machine_is_refused() {
    let refused = |work: Work, machines: &[Machine]| Division::new(work, machines).expect_err("unsound").to_string();
    let one = machine(1.0, 1.0);
    assert_eq!(refused(work(1), &[]), "there is no processor to do the work");
    assert_eq!(refused(work(1), &[Machine { processors: 0, ..one }]), "there is no processor to do the work");
    let free = Work { record_s: 0.0, ..work(1) };
    assert_eq!(refused(free, &[one]), "the cost of a record is 0: it must be finite, and above 0");
    let wrong = [one, Machine { speed: f64::NAN, ..one }];
    assert_eq!(refused(work(1), &wrong), "the speed of machine 1 is NaN: it must be finite, and above 0");
    let mut none = divided(0, &[one]);
    assert_eq!((none.next(0, 5.0), none.finish(5.0).expected_s), (None, 5.0));
}

fn machines() -> impl Strategy<Value = Vec<Machine>> {
    let one =
        (1u32..4, 0.1f64..10.0, 0.0f64..1.0, 0.0f64..1.0, 0.0f64..5.0, prop_oneof![Just(f64::INFINITY), 1.0f64..1e4]);
    let made = one.prop_map(|(processors, speed, value, low, overhead_s, bytes_per_s)| {
        let share = share(value, value * low, (value * 1.5).min(1.0));
        Machine { processors, speed, share, bytes_per_s, overhead_s }
    });
    proptest::collection::vec(made, 1..6)
}

proptest! {
    #[test]
    fn all_is_covered_once_and_no_chunk_is_empty(
        machines in machines(),
        records in 0u64..5_000,
        record_bytes in 0.0f64..100.0,
        came in proptest::collection::vec(0.01f64..1.0, 6),
    ) {
        let mut division = Division::new(Work { record_bytes, ..work(records) }, &machines).expect("sound");
        let (chunks, _) = run(&mut division, &came);
        let mut next = 0;
        for (_, chunk) in chunks {
            prop_assert!(chunk.start == next && chunk.end > next);
            next = chunk.end;
        }
        prop_assert_eq!(next, records);
    }

    #[test]
    fn it_is_expected_no_later_than_with_equal_parts(machines in machines(), records in 1u64..100_000) {
        let division = Division::new(work(records), &machines).expect("sound");
        let each = records as f64 / division.processors() as f64;
        let equal_s = machines.iter().map(|machine| machine.overhead_s + each * division.record_s(machine, machine.share.value));
        let finish = division.finish(0.0);
        prop_assert!(finish.expected_s <= equal_s.fold(0.0, f64::max) * (1.0 + 1e-9));
        prop_assert!(finish.soonest_s <= finish.expected_s && finish.expected_s <= finish.latest_s);
        prop_assert_eq!(division.parts(0.0).iter().sum::<u64>(), records);
    }

    #[test]
    fn what_comes_as_foretold_ends_as_expected(machines in machines(), records in 1u64..5_000) {
        let mut division = Division::new(work(records), &machines).expect("sound");
        let expected_s = division.finish(0.0).expected_s;
        let shares: Vec<f64> = machines.iter().map(|machine| machine.share.value).collect();
        let (chunks, end_s) = run(&mut division, &shares);
        // Each further chunk of a processor costs a launch; the last one may be a record too long.
        let launches = (0..division.processors()).map(|at| chunks.iter().filter(|(who, _)| *who == at).count());
        let overhead_s = machines.iter().map(|machine| machine.overhead_s).fold(0.0, f64::max);
        let record_s = machines.iter().map(|machine| division.record_s(machine, machine.share.value)).fold(0.0, f64::max);
        let late_s = launches.max().unwrap_or_default() as f64 * overhead_s + record_s;
        prop_assert!(end_s <= expected_s + late_s, "{end_s} is later than {expected_s} by more than {late_s}");
    }
}

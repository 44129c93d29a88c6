//! Here or there: where a command is expected to end first. Pure: costs, link, load and what workers offer are inputs.
//!
//! A command runs here only where that is *clearly* better. Now and then the other side is tried, if it may be about as good: else a change
//! there would never be noticed. A command of which nothing is known goes, unless workers expect to give it far less of a processor than it
//! gets here.

use std::fmt;

/// A hub with a shorter round trip is near. Microseconds.
const NEAR_US: f64 = 10_000.0;
/// By so much at least must it be quicker here, microseconds; …
const MARGIN_US: f64 = 10_000.0;
/// … and by this share of the time there.
const MARGIN_SHARE: f64 = 0.2;
/// The same where the hub is near: that a command is no slower for being sent than by so much, or by 15%, is what is promised.
const NEAR_MARGIN_US: f64 = 30_000.0;
const NEAR_MARGIN_SHARE: f64 = 0.13;
/// Of a command of which nothing is known it is assumed that it computes for so long; microseconds.
const UNKNOWN_US: f64 = 500_000.0;
/// It stays here if it gets less there than this part of what it gets here.
const UNKNOWN_PART: f64 = 0.5;
/// Less than this part of a processor nobody is expected to get: no wait is for ever.
const SHARE_MIN: f64 = 0.002;
/// After so many runs the other side is tried; after each try in vain, after twice as many.
const TRY_AFTER: u32 = 32;
/// Doublings at most.
const DOUBLINGS_MAX: u32 = 6;
/// The other side is tried if at its best it takes no longer than so many times what the chosen one takes.
const TRY_WITHIN: f64 = 1.5;

/// What never ran here is tried here once, if it may be quicker and takes no longer than this there; microseconds. What it takes here
/// is known then: a worker's owner may have left it little.
const FIRST_TRY_US: f64 = 10e6;

/// What a command is expected to cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// Runs from which this was learnt, on both sides.
    pub runs: u32,
    /// Time here on an idle machine, if it ever ran here; microseconds.
    pub here_us: Option<f64>,
    /// Time from start to end there, without what its questions waited; microseconds.
    pub there_us: f64,
    /// The same as a guess of the time here.
    pub there_as_here_us: f64,
    /// CPU time, microseconds: the least that it can take here.
    pub cpu_us: f64,
    /// Questions that it waits for.
    pub questions: f64,
    /// Bytes that go up.
    pub bytes_up: f64,
    /// Bytes that come down.
    pub bytes_down: f64,
    /// All else there, microseconds.
    pub other_us: f64,
    /// Runs since the side that is not chosen was tried.
    pub untried: u32,
    /// How often it was tried in vain.
    pub tries: u32,
}

/// How link and machine are now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Now {
    /// Round trip to the hub, microseconds.
    pub round_trip_us: f64,
    /// The shortest that is known of this way, if any.
    pub shortest_us: Option<f64>,
    /// Bytes a second up, if known.
    pub rate_up: Option<u64>,
    /// Bytes a second down, if known.
    pub rate_down: Option<u64>,
    /// CPUs here.
    pub cpus: u32,
    /// What wants a CPU here now.
    pub runnable: u32,
    /// CPUs that the command asks for.
    pub wanted: u32,
    /// What workers offer, if that is known.
    pub there: Option<There>,
}

/// What workers offer a command that comes now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct There {
    /// What it gets of a processor on the best of them (0 to 1); `None`: the best is this machine, where it has the same priority as here.
    pub share: Option<f64>,
    /// A processor is free.
    pub is_free: bool,
    /// Commands that wait for a place.
    pub waiting: u32,
    /// CPUs that are lent.
    pub cpus: u32,
}

impl Now {
    /// Whether the hub is so near that distance decides nothing. A busy machine measures long round trips to near hubs, too.
    pub fn is_near(&self) -> bool {
        let was_near = self.shortest_us.is_some_and(|shortest| shortest < NEAR_US / 2.0);
        self.round_trip_us < NEAR_US || was_near && self.round_trip_us < NEAR_US * 5.0
    }

    /// The round trip without what this machine's load adds to it: that is over when the answer comes.
    fn trip_us(&self) -> f64 {
        self.shortest_us
            .filter(|_| self.is_near())
            .map_or(self.round_trip_us, |shortest| shortest.min(self.round_trip_us))
    }

    /// How much longer a command takes here for what else runs.
    fn crowding(&self) -> f64 {
        crowding(self.runnable, self.wanted, self.cpus)
    }

    /// What a command gets of a processor there.
    fn share_there(&self) -> f64 {
        let share = self.there.map_or(Some(1.0), |there| there.share);
        share.unwrap_or(1.0 / self.crowding()).clamp(SHARE_MIN, 1.0)
    }

    /// How long a command that computes for so long waits for a place: as many of its kind must end as are before it.
    fn queue_us(&self, compute_us: f64) -> f64 {
        match self.there {
            Some(there) if !there.is_free => compute_us * f64::from(there.waiting + 1) / f64::from(there.cpus.max(1)),
            _ => 0.0,
        }
    }
}

/// How many times longer a command that asks for `wanted` CPUs takes than on an idle machine, where so many others want one.
pub(crate) fn crowding(runnable: u32, wanted: u32, cpus: u32) -> f64 {
    ((f64::from(runnable) + f64::from(wanted.max(1))) / f64::from(cpus.max(1))).max(1.0)
}

/// How long something takes that computes for `cpu_us` of `all_us` on a whole processor, where it gets this share of one.
fn stretched(all_us: f64, cpu_us: f64, share: f64) -> f64 {
    let cpu_us = cpu_us.min(all_us);
    all_us - cpu_us + cpu_us / share
}

/// Where a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// On this machine.
    Here,
    /// On the pool.
    There,
}

/// What was chosen, and from what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Where it runs.
    pub side: Side,
    /// It is tried there, although the other side is expected to be better.
    pub is_try: bool,
    /// Expected here, microseconds.
    pub here_us: f64,
    /// Expected there, microseconds.
    pub there_us: f64,
    /// Round trip, microseconds.
    pub round_trip_us: f64,
    /// By how much the load here lengthens it.
    pub crowding: f64,
    /// What it gets of a processor there (0 to 1).
    pub share_there: f64,
    /// It was run before; else both times are what a command takes that computes for half a second.
    pub is_known: bool,
}

/// Of a command of which nothing is known: here, if it would get far less there; `None`: it goes.
pub fn choose_unknown(now: &Now) -> Option<Choice> {
    let (crowding, share_there) = (now.crowding(), now.share_there());
    let here_us = UNKNOWN_US * crowding;
    let there_us = UNKNOWN_US / share_there + now.queue_us(UNKNOWN_US) + now.trip_us();
    let stays = share_there < UNKNOWN_PART / crowding || there_us * UNKNOWN_PART > here_us;
    stays.then_some(Choice {
        side: Side::Here,
        is_try: false,
        here_us,
        there_us,
        round_trip_us: now.trip_us(),
        crowding,
        share_there,
        is_known: false,
    })
}

/// Chooses by what the command has cost before.
pub fn choose(expected: &Expected, now: &Now) -> Choice {
    let travel = |bytes: f64, rate: Option<u64>| rate.map_or(0.0, |rate| bytes * 1e6 / rate.max(1) as f64);
    let bytes_us = travel(expected.bytes_up, now.rate_up) + travel(expected.bytes_down, now.rate_down);
    let (crowding, share_there) = (now.crowding(), now.share_there());
    let compute_us = stretched(expected.there_us, expected.cpu_us, share_there);
    // The least it can be, with nothing to be asked or sent.
    let at_best_us = now.trip_us() + compute_us + now.queue_us(compute_us);
    let there_us = at_best_us + now.trip_us() * expected.questions + bytes_us + expected.other_us;
    let idle_us = expected.here_us.unwrap_or(expected.there_as_here_us);
    // On the same machine it needs the same processor time.
    let least_us = if now.there.is_some_and(|there| there.share.is_none()) { expected.cpu_us } else { 0.0 };
    let here_us = stretched(idle_us.max(least_us), expected.cpu_us, 1.0 / crowding);
    let margin = match now.is_near() {
        true => NEAR_MARGIN_US.max(there_us * NEAR_MARGIN_SHARE),
        false => MARGIN_US.max(there_us * MARGIN_SHARE),
    };
    let better = if here_us + margin < there_us { Side::Here } else { Side::There };
    let is_due = expected.untried >= TRY_AFTER << expected.tries.min(DOUBLINGS_MAX);
    let may_be_as_good = match better {
        Side::Here => at_best_us <= here_us * TRY_WITHIN,
        Side::There => here_us <= there_us * TRY_WITHIN,
    };
    let never_here = expected.here_us.is_none() && better == Side::There;
    let first_try = never_here && there_us <= FIRST_TRY_US && expected.cpu_us * crowding + margin < there_us;
    let is_try = first_try || is_due && may_be_as_good;
    let side = match (better, is_try) {
        (side, false) => side,
        (Side::Here, true) => Side::There,
        (Side::There, true) => Side::Here,
    };
    let round_trip_us = now.trip_us();
    Choice { side, is_try, here_us, there_us, round_trip_us, crowding, share_there, is_known: true }
}

impl Choice {
    /// Where it is expected to end first.
    pub fn better(&self) -> Side {
        match (self.side, self.is_try) {
            (side, false) => side,
            (Side::Here, true) => Side::There,
            (Side::There, true) => Side::Here,
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| (share * 100.0).round();
        if !self.is_known {
            let (here, there) = (percent(1.0 / self.crowding), percent(self.share_there));
            return write!(f, "workers are busy: a command gets about {there}% of a processor there, {here}% here");
        }
        match (self.side, self.is_try) {
            (_, true) => f.write_str("tried, to know how long it takes: ")?,
            (Side::Here, false) => f.write_str("quicker here: ")?,
            (Side::There, false) => {}
        }
        let (here, there, trip) = (seconds(self.here_us), seconds(self.there_us), seconds(self.round_trip_us));
        write!(f, "{here} here")?;
        if self.crowding > 1.05 {
            write!(f, " ({:.1} times as long as on an idle machine)", self.crowding)?;
        }
        write!(f, ", about {there} there (round trip {trip}")?;
        if self.share_there < 0.95 {
            write!(f, ", {}% of a processor", percent(self.share_there))?;
        }
        f.write_str(")")
    }
}

/// Microseconds, for a person.
pub(crate) fn seconds(us: f64) -> String {
    base::units::micros(us.max(0.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: f64 = 1e3;

    fn expected(here_ms: Option<f64>, there_ms: f64) -> Expected {
        Expected {
            runs: 3,
            here_us: here_ms.map(|ms| ms * MS),
            there_us: there_ms * MS,
            there_as_here_us: there_ms * MS,
            cpu_us: there_ms * MS,
            questions: 0.0,
            bytes_up: 400.0,
            bytes_down: 400.0,
            other_us: 4.0 * MS,
            untried: 0,
            tries: 0,
        }
    }

    fn cable() -> Now {
        Now {
            round_trip_us: 70.0 * MS,
            shortest_us: Some(70.0 * MS),
            rate_up: Some(500_000),
            rate_down: Some(2_000_000),
            cpus: 2,
            runnable: 0,
            wanted: 1,
            there: None,
        }
    }

    fn side(expected: &Expected, now: &Now) -> Option<Side> {
        Some(choose(expected, now).side)
    }

    #[test]
    fn short_commands_stay_here_and_long_ones_go() {
        let choice = choose(&expected(Some(1.0), 1.0), &cable());
        assert_eq!(choice.side, Side::Here);
        assert_eq!(choice.to_string(), "quicker here: 1.0 ms here, about 76 ms there (round trip 70 ms)");
        assert_eq!(
            side(&expected(None, 1.0), &cable()),
            Some(Side::Here),
            "as long here as there, if it never ran here"
        );
        assert_eq!(side(&expected(Some(1000.0), 1000.0), &cable()), Some(Side::There), "not clearly better");
        assert_eq!(side(&expected(Some(5000.0), 1000.0), &cable()), Some(Side::There), "a slow machine here");
        assert_eq!(side(&expected(Some(1000.0), 5000.0), &cable()), Some(Side::Here), "a slow machine there");
    }

    #[test]
    fn bytes_and_questions_count() {
        let second = expected(Some(1000.0), 1000.0);
        let large = Expected { bytes_up: 1e6, ..second };
        let choice = choose(&large, &cable());
        assert_eq!((choice.side, choice.there_us.round()), (Side::Here, 3_074_200.0));
        assert_eq!(side(&Expected { questions: 20.0, ..second }, &cable()), Some(Side::Here));
        assert_eq!(
            side(&large, &Now { rate_up: None, ..cable() }),
            Some(Side::There),
            "an unknown rate is no hindrance"
        );
    }

    #[test]
    fn a_busy_machine_sends_away_what_it_would_keep() {
        let compile = expected(Some(200.0), 200.0);
        assert_eq!(side(&compile, &cable()), Some(Side::Here));
        let busy = Now { runnable: 3, ..cable() };
        assert_eq!(side(&compile, &busy), Some(Side::There));
        let choice = choose(&expected(Some(1.0), 1.0), &busy);
        assert_eq!(choice.side, Side::Here);
        assert!(choice.to_string().contains("2.0 ms here (2.0 times as long as on an idle machine)"), "{choice}");
        assert_eq!(side(&compile, &Now { wanted: 4, ..cable() }), Some(Side::There), "it wants more than there are");
    }

    fn near(share: Option<f64>) -> Now {
        let there = There { share, is_free: true, waiting: 0, cpus: 4 };
        Now { round_trip_us: 300.0, shortest_us: None, there: Some(there), ..cable() }
    }

    #[test]
    fn to_a_near_hub_all_goes_that_is_not_clearly_slower_there() {
        for (here, there) in [(Some(80.0), 80.0), (None, 80.0), (Some(1.0), 1.0), (Some(60.0), 80.0)] {
            assert_eq!(side(&expected(here, there), &near(Some(1.0))), Some(Side::There), "{here:?} {there}");
        }
        assert_eq!(side(&expected(Some(20.0), 80.0), &near(Some(1.0))), Some(Side::Here), "a walk over many files");
        let starved = Now { round_trip_us: 30.0 * MS, shortest_us: Some(200.0), ..near(Some(1.0)) };
        assert_eq!(side(&expected(Some(1.0), 1.0), &starved), Some(Side::There), "a busy machine's near hub");
        let moved = Now { round_trip_us: 70.0 * MS, shortest_us: Some(200.0), ..cable() };
        assert_eq!(side(&expected(Some(1.0), 1.0), &moved), Some(Side::Here));
    }

    #[test]
    fn what_workers_give_decides() {
        let compile = expected(Some(100.0), 100.0);
        assert_eq!(side(&compile, &near(Some(0.9))), Some(Side::There));
        assert_eq!(side(&compile, &near(Some(0.3))), Some(Side::Here));
        let busy = Now { runnable: 8, ..near(Some(0.3)) };
        assert_eq!(side(&compile, &busy), Some(Side::There), "it gets less here");
        let nothing = Now { runnable: 4, ..near(Some(0.0)) };
        assert_eq!(side(&compile, &nothing), Some(Side::Here));
        assert_eq!(side(&expected(Some(1.0), 1.0), &nothing), Some(Side::Here));
        let own = Now { runnable: 4, ..near(None) };
        assert_eq!(side(&compile, &own), Some(Side::There), "it gets the same there");
        let full = There { share: Some(1.0), is_free: false, waiting: 7, cpus: 4 };
        assert_eq!(side(&compile, &Now { there: Some(full), ..near(None) }), Some(Side::Here), "eight are before it");
    }

    #[test]
    fn of_what_nothing_is_known_stays_only_where_it_would_get_far_less() {
        assert_eq!(choose_unknown(&cable()), None);
        assert_eq!(choose_unknown(&near(Some(0.6))), None);
        let stays = choose_unknown(&Now { runnable: 1, ..near(Some(0.02)) }).expect("it stays");
        assert_eq!(stays.to_string(), "workers are busy: a command gets about 2% of a processor there, 100% here");
        assert_eq!(choose_unknown(&Now { runnable: 60, ..near(Some(0.02)) }), None, "it is no better here");
        assert_eq!(choose_unknown(&Now { runnable: 60, ..near(None) }), None);
        let full = There { share: Some(1.0), is_free: false, waiting: 9, cpus: 2 };
        assert!(choose_unknown(&Now { there: Some(full), ..near(None) }).is_some());
    }

    #[test]
    fn the_other_side_is_tried_ever_more_rarely_if_it_may_be_as_good() {
        // Cold runs cost many questions there: what it costs now is only known by trying.
        let cold = Expected { questions: 30.0, untried: 31, ..expected(Some(2000.0), 2000.0) };
        assert_eq!(side(&cold, &cable()), Some(Side::Here));
        let choice = choose(&Expected { untried: 32, ..cold }, &cable());
        assert!(choice.side == Side::There && choice.is_try, "{choice:?}");
        assert!(choice.to_string().starts_with("tried, to know how long it takes: 2.00 s here"), "{choice}");
        assert_eq!(side(&Expected { untried: 100, tries: 2, ..cold }, &cable()), Some(Side::Here));
        assert_eq!(side(&Expected { untried: 128, tries: 2, ..cold }, &cable()), Some(Side::There));
        let never = Expected { untried: u32::MAX, ..expected(Some(1.0), 1.0) };
        assert_eq!(side(&never, &cable()), Some(Side::Here), "`true` can never be as quick there");
        assert_eq!(side(&Expected { untried: u32::MAX, tries: u32::MAX, ..cold }, &cable()), Some(Side::There));
        let idle = Expected { cpu_us: 1.0 * MS, ..expected(None, 1000.0) };
        let first = choose(&idle, &cable());
        assert!(first.side == Side::Here && first.is_try && first.better() == Side::There, "{first:?}");
        assert_eq!(side(&Expected { here_us: Some(1e6), ..idle }, &cable()), Some(Side::There), "once");
        assert_eq!(side(&Expected { there_us: 60e6, there_as_here_us: 60e6, ..idle }, &cable()), Some(Side::There));
        let long = Expected { untried: 40, ..expected(None, 1000.0) };
        assert_eq!(side(&long, &cable()), Some(Side::Here), "what it takes here is not known: it is tried");
    }
}

//! Whether a command that was sent away is late: whether it would end sooner if it began again, here or on another worker. Pure: what is known of
//! the command, its worker and this machine are inputs.
//!
//! Late is who waits rather than computes: for a place, for its start, for a processor. Who computes is not, however long it takes.

use crate::choice::seconds;

/// A command is not looked at before this, microseconds: a place, a sandbox and the first files take so long on a busy hub, too.
const PATIENCE_US: f64 = 60_000.0;
/// What the way there and back may add to that, in round trips.
const PATIENCE_ROUND_TRIPS: f64 = 5.0;
/// It must have run for so long before its share of a processor says anything, microseconds.
const RAN_US_MIN: f64 = 150_000.0;
/// It is late if it would need so many times what it needs anew, …
const FACTOR: f64 = 1.5;
/// … and so much more, microseconds.
const MARGIN_US: f64 = 50_000.0;
/// Of a command of which nothing is known, microseconds of processor time.
const UNKNOWN_US: f64 = 200_000.0;
/// Least share of a processor that is believed: nobody waits for ever.
const SHARE_MIN: f64 = 0.002;
/// A share that is worth to begin again for …
const SHARE_WORTH: f64 = 0.2;
/// … and one that is worth to leave a queue for, which may end at any moment.
const SHARE_QUEUED: f64 = 0.6;

/// How a command has come along.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stage {
    /// It has no place yet.
    Queued,
    /// It has a place, and has not started; for so long nothing was heard or asked on its behalf, microseconds.
    Starting {
        /// For how long.
        quiet_us: f64,
    },
    /// It runs, by its worker's accounts.
    Runs {
        /// For how long, microseconds.
        ran_us: f64,
        /// Processor time that it has had, microseconds.
        cpu_us: f64,
        /// For how long it was ready and had no processor, microseconds.
        waited_us: f64,
        /// Its worker's guests rest or stand aside.
        rests: bool,
    },
}

/// What is known of a command that was sent away.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Facts {
    /// Since its launch, microseconds.
    pub elapsed_us: f64,
    /// How it has come along.
    pub stage: Stage,
    /// Processor time that it is expected to need, microseconds, if anything is known of its kind.
    pub expected_us: Option<f64>,
    /// What it would get of a processor here.
    pub share_here: f64,
    /// And on another worker; 0: none is free.
    pub share_elsewhere: f64,
    /// Round trip to the hub, microseconds.
    pub round_trip_us: f64,
}

/// A command is late.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Late {
    /// It would end sooner here than elsewhere.
    pub is_better_here: bool,
    /// Processor time that it has had and that is done again, microseconds.
    pub lost_us: f64,
    /// What it would still take there, microseconds; infinite if it rests.
    pub left_us: f64,
    /// What it takes anew, microseconds …
    pub again_us: f64,
    /// … and what processor time that is.
    pub needs_us: f64,
}

impl Late {
    /// Whether what it has done so far is so little that nothing is lost by ending it there.
    pub fn is_lost_little(&self) -> bool {
        self.lost_us < self.needs_us / 4.0
    }
}

impl std::fmt::Display for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.left_us.is_finite() {
            write!(f, "about {} left there, ", seconds(self.left_us))?;
        }
        let place = if self.is_better_here { "here" } else { "elsewhere" };
        write!(f, "{} {place} from the start", seconds(self.again_us))
    }
}

fn patience_us(round_trip_us: f64) -> f64 {
    PATIENCE_US + PATIENCE_ROUND_TRIPS * round_trip_us
}

/// Whether a command waits rather than computes, so that it may be late: what it would get elsewhere matters only then.
pub fn waits(elapsed_us: f64, stage: Stage, round_trip_us: f64) -> bool {
    let patience_us = patience_us(round_trip_us);
    elapsed_us >= patience_us
        && match stage {
            Stage::Queued | Stage::Runs { rests: true, .. } => true,
            Stage::Starting { quiet_us } => quiet_us > patience_us * 2.0,
            Stage::Runs { ran_us, cpu_us, waited_us, rests: false } => {
                ran_us >= RAN_US_MIN && waited_us >= ran_us / 2.0 && cpu_us <= ran_us / 2.0
            }
        }
}

/// Whether the command is late; `None`: it is not, or nothing else would be quicker.
pub fn judge(facts: &Facts) -> Option<Late> {
    let share = facts.share_here.max(facts.share_elsewhere);
    if !waits(facts.elapsed_us, facts.stage, facts.round_trip_us) || share < SHARE_WORTH {
        return None;
    }
    let known_us = facts.expected_us.unwrap_or(UNKNOWN_US).max(1_000.0);
    let late = |lost_us: f64, left_us: f64, needs_us: f64| {
        let is_better_here = facts.share_here >= facts.share_elsewhere;
        Late { is_better_here, lost_us, left_us, again_us: needs_us / share, needs_us }
    };
    match facts.stage {
        // How long the queue is going to take is not known: it is given as long as the command takes here, and longer where that is busy.
        Stage::Queued => {
            let late = late(0.0, f64::INFINITY, known_us);
            let busy = if share < SHARE_QUEUED { late.again_us * 3.0 + 2e6 } else { 0.0 };
            (facts.elapsed_us > late.again_us.min(1e6).max(patience_us(facts.round_trip_us)) + busy).then_some(late)
        }
        Stage::Starting { .. } => Some(late(0.0, f64::INFINITY, known_us)),
        Stage::Runs { cpu_us, rests: true, .. } => Some(late(cpu_us, f64::INFINITY, known_us.max(cpu_us * 1.5))),
        Stage::Runs { ran_us, cpu_us, rests: false, .. } => {
            // Who has had more than was expected needs, as a rule, about half as much again.
            let needs_us = known_us.max(cpu_us * 1.5);
            let left_us = (needs_us - cpu_us) / (cpu_us / ran_us).max(SHARE_MIN);
            let late = late(cpu_us, left_us, needs_us);
            (left_us > late.again_us * FACTOR + MARGIN_US).then_some(late)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: f64 = 1e3;

    fn facts(elapsed_ms: f64, stage: Stage) -> Facts {
        Facts {
            elapsed_us: elapsed_ms * MS,
            stage,
            expected_us: Some(100.0 * MS),
            share_here: 0.5,
            share_elsewhere: 0.0,
            round_trip_us: 200.0,
        }
    }

    fn runs(ran_ms: f64, cpu_ms: f64, waited_ms: f64) -> Stage {
        Stage::Runs { ran_us: ran_ms * MS, cpu_us: cpu_ms * MS, waited_us: waited_ms * MS, rests: false }
    }

    #[test]
    fn who_gets_no_processor_is_late_and_who_computes_or_sleeps_is_not() {
        let starved = judge(&facts(300.0, runs(250.0, 2.0, 240.0))).expect("late");
        assert!(starved.is_better_here && starved.is_lost_little() && starved.left_us > 1e6, "{starved:?}");
        assert_eq!(judge(&facts(3_000.0, runs(2_900.0, 2_800.0, 50.0))), None, "it computes, longer than expected");
        assert_eq!(judge(&facts(60_000.0, runs(60_000.0, 3.0, 1.0))), None, "it sleeps");
        assert_eq!(judge(&facts(300.0, runs(100.0, 0.0, 100.0))), None, "nothing can be said yet");
        assert_eq!(judge(&facts(400.0, runs(350.0, 98.0, 200.0))), None, "it is about to end");
    }

    #[test]
    fn who_has_had_much_is_late_only_if_little_more_comes() {
        let known = Facts { expected_us: Some(20e6), ..facts(12_000.0, runs(12_000.0, 5_000.0, 6_500.0)) };
        assert_eq!(judge(&known), None, "15 s at a 42% share are no worse than 20 s at a half");
        let slow = Facts { expected_us: Some(20e6), ..facts(60_000.0, runs(60_000.0, 5_000.0, 54_000.0)) };
        let late = judge(&slow).expect("late");
        assert!(!late.is_lost_little(), "{late:?}");
    }

    #[test]
    fn nobody_begins_again_where_it_would_starve_as_well() {
        let starved = facts(3_000.0, runs(2_900.0, 2.0, 2_890.0));
        assert_eq!(judge(&Facts { share_here: 0.1, ..starved }), None);
        let elsewhere = judge(&Facts { share_here: 0.1, share_elsewhere: 1.0, ..starved }).expect("late");
        assert!(!elsewhere.is_better_here);
    }

    #[test]
    fn places_and_starts_are_waited_for_and_rest_is_not() {
        assert_eq!(judge(&facts(50.0, Stage::Queued)), None);
        let idle = |elapsed_ms| Facts { share_here: 1.0, ..facts(elapsed_ms, Stage::Queued) };
        assert!(judge(&idle(250.0)).is_some(), "it would have ended here by now");
        assert!(judge(&facts(2_700.0, Stage::Queued)).is_none() && judge(&facts(2_900.0, Stage::Queued)).is_some());
        assert!(judge(&Facts { expected_us: Some(60e6), ..idle(900.0) }).is_none());
        assert!(judge(&Facts { expected_us: Some(60e6), ..idle(1_100.0) }).is_some());
        assert_eq!(judge(&facts(900.0, Stage::Starting { quiet_us: 100.0 * MS })), None, "files are still asked for");
        assert!(judge(&facts(900.0, Stage::Starting { quiet_us: 200.0 * MS })).is_some());
        let far = Facts { round_trip_us: 300.0 * MS, ..facts(900.0, Stage::Starting { quiet_us: 200.0 * MS }) };
        assert_eq!(judge(&far), None);
        let rests = Stage::Runs { ran_us: 1e6, cpu_us: 0.5e6, waited_us: 0.0, rests: true };
        assert!(judge(&facts(1_100.0, rests)).is_some());
    }
}

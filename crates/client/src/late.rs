//! Whether a command that was sent away is late: whether it would end sooner if it began again, here or on another worker. Pure: what is known of
//! the command, its worker and this machine are inputs.
//!
//! Late is who waits rather than computes: for a place, for its start, for a processor. Who computes is not, however long it takes.

use crate::choice::seconds;

/// A command is not late before this, microseconds: a place, a sandbox and the first files take so long on a busy hub, too.
const PATIENCE_US: f64 = 60_000.0;
/// One that is over sooner, as a rule, is late after so many times what it takes, …
const PATIENCE_TIMES: f64 = 4.0;
/// … though not before this, microseconds.
const PATIENCE_US_MIN: f64 = 30_000.0;
/// What the way there and back may add to that, in round trips.
const PATIENCE_ROUND_TRIPS: f64 = 5.0;
/// It must have run for so long before its share of a processor says anything, microseconds, …
const RAN_US_MIN: f64 = 150_000.0;
/// … or for so many times the processor time that it needs, …
const RAN_TIMES: f64 = 2.0;
/// … though not for less than this, microseconds: its worker has told nothing before.
const RAN_US_LEAST: f64 = 40_000.0;
/// It is late if it would need so many times what it needs anew, …
const FACTOR: f64 = 1.5;
/// … and so much more, microseconds.
const MARGIN_US: f64 = 50_000.0;
/// Of a command of which nothing is known, microseconds of processor time.
const UNKNOWN_US: f64 = 200_000.0;
/// Least share of a processor that is believed: nobody waits for ever.
const SHARE_MIN: f64 = 0.002;
/// A share for which a command that does nothing begins again at once. For less it waits as long as it would take there: what it waits for may
/// come at any moment.
const SHARE_WORTH: f64 = 0.2;
/// And one that is worth to leave a queue for.
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

/// What commands of a kind cost, as a rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Processor time, microseconds.
    pub cpu_us: f64,
    /// From launch to end, microseconds.
    pub all_us: f64,
}

/// What is known of a command that was sent away.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Facts {
    /// Since its launch, microseconds.
    pub elapsed_us: f64,
    /// How it has come along.
    pub stage: Stage,
    /// What it is expected to cost, if anything is known of its kind.
    pub cost: Option<Cost>,
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

fn patience_us(round_trip_us: f64, cost: Option<Cost>) -> f64 {
    let usual_us = cost.map_or(PATIENCE_US, |cost| cost.all_us * PATIENCE_TIMES);
    usual_us.clamp(PATIENCE_US_MIN, PATIENCE_US) + PATIENCE_ROUND_TRIPS * round_trip_us
}

/// For how long it must have run before its share of a processor says anything.
fn ran_us_min(cost: Option<Cost>) -> f64 {
    cost.map_or(RAN_US_MIN, |cost| (cost.cpu_us * RAN_TIMES).clamp(RAN_US_LEAST, RAN_US_MIN))
}

/// Whether a command waits rather than computes, so that it may be late: what it would get elsewhere matters only then.
pub fn waits(elapsed_us: f64, stage: Stage, round_trip_us: f64, cost: Option<Cost>) -> bool {
    let patience_us = patience_us(round_trip_us, cost);
    elapsed_us >= patience_us
        && match stage {
            Stage::Queued | Stage::Runs { rests: true, .. } => true,
            Stage::Starting { quiet_us } => quiet_us > patience_us * 2.0,
            Stage::Runs { ran_us, cpu_us, waited_us, rests: false } => {
                ran_us >= ran_us_min(cost) && waited_us >= ran_us / 2.0 && cpu_us <= ran_us / 2.0
            }
        }
}

/// Whether the command is late; `None`: it is not, or nothing else would be quicker.
pub fn judge(facts: &Facts) -> Option<Late> {
    let share = facts.share_here.max(facts.share_elsewhere);
    if !waits(facts.elapsed_us, facts.stage, facts.round_trip_us, facts.cost) || share <= SHARE_MIN {
        return None;
    }
    let known_us = facts.cost.map_or(UNKNOWN_US, |cost| cost.cpu_us).max(1_000.0);
    let late = |lost_us: f64, left_us: f64, needs_us: f64| {
        let is_better_here = facts.share_here >= facts.share_elsewhere;
        Late { is_better_here, lost_us, left_us, again_us: needs_us / share, needs_us }
    };
    let is_due = |late: &Late| share >= SHARE_WORTH || facts.elapsed_us >= late.again_us;
    match facts.stage {
        // How long the queue is going to take is not known: it is given as long as the command takes here, and longer where that is busy.
        Stage::Queued => {
            let late = late(0.0, f64::INFINITY, known_us);
            let busy = if share < SHARE_QUEUED { late.again_us * 3.0 + 2e6 } else { 0.0 };
            (facts.elapsed_us > late.again_us.min(1e6).max(patience_us(facts.round_trip_us, facts.cost)) + busy)
                .then_some(late)
        }
        Stage::Starting { .. } => Some(late(0.0, f64::INFINITY, known_us)).filter(is_due),
        Stage::Runs { cpu_us, rests: true, .. } => {
            Some(late(cpu_us, f64::INFINITY, known_us.max(cpu_us * 1.5))).filter(is_due)
        }
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

    /// Of what computes for so long, and takes as long again for its files.
    fn costs(cpu_ms: f64) -> Option<Cost> {
        Some(Cost { cpu_us: cpu_ms * MS, all_us: cpu_ms * 2.0 * MS })
    }

    fn facts(elapsed_ms: f64, stage: Stage) -> Facts {
        Facts {
            elapsed_us: elapsed_ms * MS,
            stage,
            cost: costs(100.0),
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
        let known = Facts { cost: costs(20e3), ..facts(12_000.0, runs(12_000.0, 5_000.0, 6_500.0)) };
        assert_eq!(judge(&known), None, "15 s at a 42% share are no worse than 20 s at a half");
        let slow = Facts { cost: costs(20e3), ..facts(60_000.0, runs(60_000.0, 5_000.0, 54_000.0)) };
        let late = judge(&slow).expect("late");
        assert!(!late.is_lost_little(), "{late:?}");
    }

    #[test]
    fn nobody_begins_again_where_it_would_starve_as_well() {
        let starved = facts(3_000.0, runs(2_900.0, 2.0, 2_890.0));
        assert_eq!(judge(&Facts { share_here: 0.002, ..starved }), None);
        let elsewhere = judge(&Facts { share_here: 0.1, share_elsewhere: 1.0, ..starved }).expect("late");
        assert!(!elsewhere.is_better_here);
    }

    #[test]
    fn what_it_gets_is_compared_with_what_it_would_get() {
        let alternative = |share_here, stage| judge(&Facts { share_here, ..facts(3_000.0, stage) });
        assert!(alternative(0.1, runs(2_900.0, 2.0, 2_890.0)).is_some(), "a tenth is more than nothing");
        assert_eq!(
            alternative(0.1, runs(2_900.0, 70.0, 2_800.0)),
            None,
            "1.2 s for what is left are hardly more than 1 s anew"
        );
        assert_eq!(alternative(0.4, runs(900.0, 50.0, 800.0)).map(|late| late.is_lost_little()), Some(false));
        let starting = |elapsed_ms| {
            judge(&Facts { share_here: 0.1, ..facts(elapsed_ms, Stage::Starting { quiet_us: elapsed_ms * MS }) })
        };
        assert!(starting(900.0).is_none() && starting(1_100.0).is_some(), "as long as it would take there");
    }

    #[test]
    fn who_needs_little_is_late_soon() {
        let short = |elapsed_ms, stage| Facts { cost: costs(1.0), share_here: 1.0, ..facts(elapsed_ms, stage) };
        assert!(judge(&short(70.0, runs(60.0, 0.0, 58.0))).is_some());
        assert_eq!(judge(&short(50.0, runs(30.0, 0.0, 30.0))), None, "nothing can be said yet");
        let quiet = Stage::Starting { quiet_us: 70.0 * MS };
        assert!(judge(&short(70.0, quiet)).is_some() && judge(&facts(70.0, quiet)).is_none());
        assert!(judge(&short(40.0, Stage::Queued)).is_some() && judge(&short(25.0, Stage::Queued)).is_none());
        let unknown = Facts { cost: None, ..short(70.0, runs(60.0, 0.0, 58.0)) };
        assert_eq!(judge(&unknown), None);
    }

    #[test]
    fn places_and_starts_are_waited_for_and_rest_is_not() {
        assert_eq!(judge(&facts(50.0, Stage::Queued)), None);
        let idle = |elapsed_ms| Facts { share_here: 1.0, ..facts(elapsed_ms, Stage::Queued) };
        assert!(judge(&idle(250.0)).is_some(), "it would have ended here by now");
        assert!(judge(&facts(2_700.0, Stage::Queued)).is_none() && judge(&facts(2_900.0, Stage::Queued)).is_some());
        assert!(judge(&Facts { cost: costs(60e3), ..idle(900.0) }).is_none());
        assert!(judge(&Facts { cost: costs(60e3), ..idle(1_100.0) }).is_some());
        assert_eq!(judge(&facts(900.0, Stage::Starting { quiet_us: 100.0 * MS })), None, "files are still asked for");
        assert!(judge(&facts(900.0, Stage::Starting { quiet_us: 200.0 * MS })).is_some());
        let far = Facts { round_trip_us: 300.0 * MS, ..facts(900.0, Stage::Starting { quiet_us: 200.0 * MS }) };
        assert_eq!(judge(&far), None);
        let rests = Stage::Runs { ran_us: 1e6, cpu_us: 0.5e6, waited_us: 0.0, rests: true };
        assert!(judge(&facts(1_100.0, rests)).is_some());
    }
}

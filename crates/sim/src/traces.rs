//! Owners whose use of the processor was measured: traces, of which each machine goes through one from a place of its own.

use crate::dice::Dice;
use crate::owners::{STEP_S, Sample};
use std::sync::Arc;

/// A machine that uses less of its processor than this, without input, for [`QUIET_S`] is idle.
pub const IDLE_BELOW: f64 = 0.10;
/// In seconds.
pub const QUIET_S: f64 = 60.0;
/// From so many samples before its beginning it is found out for how long the machine's owner has been there.
const LOOKED_BACK: usize = 2_000;

/// A series of measurements of one machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// From one to the next, in seconds; no less than a step of worlds.
    interval_s: f64,
    /// The part of the processor that was used, and whether there was input.
    samples: Vec<(f32, bool)>,
}

/// Why a series cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum TraceError {
    /// Nothing was measured.
    #[error("it has no measurements")]
    Empty,
    /// The interval is no time span.
    #[error("{0} s is no interval of measurements")]
    Interval(f64),
    /// A measurement, by its number from 0, is no part of a processor.
    #[error("measurement {} is {used}, and no part of a processor, which is 0 to 1", at + 1)]
    Used {
        /// Which one.
        at: usize,
        /// What it is.
        used: f64,
    },
}

impl Trace {
    /// Of parts of the processor used, measured every so many seconds, and of whether there was input meanwhile, if that is known: none is
    /// taken to be where `input` is empty.
    pub fn new(used: &[f64], input: &[bool], interval_s: f64) -> Result<Self, TraceError> {
        if used.is_empty() {
            return Err(TraceError::Empty);
        }
        if !interval_s.is_finite() || interval_s <= 0.0 {
            return Err(TraceError::Interval(interval_s));
        }
        if let Some((at, used)) = used.iter().enumerate().find(|(_, used)| !(0.0..=1.0).contains(*used)) {
            return Err(TraceError::Used { at, used: *used });
        }
        // What is measured more often than worlds go on is averaged.
        let group = ((STEP_S / interval_s).ceil() as usize).max(1);
        let samples = used.chunks(group).enumerate().map(|(at, part)| {
            let mean = part.iter().sum::<f64>() / part.len() as f64;
            let any = input.iter().skip(at * group).take(group).any(|any| *any);
            (mean as f32, any)
        });
        Ok(Self { interval_s: interval_s * group as f64, samples: samples.collect() })
    }

    /// How long it lasts, in seconds.
    pub fn lasts_s(&self) -> f64 {
        self.samples.len() as f64 * self.interval_s
    }
}

/// A machine that goes through a trace, and begins again at its end.
#[derive(Clone, Debug)]
pub struct Played {
    trace: Arc<Trace>,
    at: usize,
    within_s: f64,
    /// For how long it has been quiet, and the owner there or away.
    quiet_s: f64,
    since_s: f64,
}

impl Played {
    /// From somewhere on.
    pub fn new(trace: &Arc<Trace>, mut dice: Dice) -> Self {
        let count = trace.samples.len();
        let start = (dice.unit() * count as f64) as usize % count;
        let back = LOOKED_BACK.min(count);
        let mut played = Self {
            trace: Arc::clone(trace),
            at: (start + count - back % count) % count,
            within_s: 0.0,
            quiet_s: QUIET_S,
            since_s: 0.0,
        };
        for _ in 0..back {
            played.goes_on(trace.interval_s);
            played.at = (played.at + 1) % count;
        }
        played.within_s = dice.unit() * trace.interval_s;
        played
    }

    /// As the sample at hand says, for so long.
    fn goes_on(&mut self, seconds: f64) {
        let (used, input) = self.trace.samples[self.at];
        let was_there = self.quiet_s < QUIET_S;
        let is_quiet = f64::from(used) < IDLE_BELOW && !input;
        self.quiet_s = if is_quiet { self.quiet_s + seconds } else { 0.0 };
        self.since_s = if was_there == (self.quiet_s < QUIET_S) { self.since_s + seconds } else { 0.0 };
    }

    /// The next two seconds.
    pub fn step(&mut self) -> Sample {
        self.goes_on(STEP_S);
        let used = f64::from(self.trace.samples[self.at].0);
        self.within_s += STEP_S;
        while self.within_s >= self.trace.interval_s {
            self.within_s -= self.trace.interval_s;
            self.at = (self.at + 1) % self.trace.samples.len();
        }
        Sample { owner_s: (self.quiet_s < QUIET_S).then_some(self.since_s), used }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn played(used: &[f64], interval_s: f64) -> Played {
        let trace = Arc::new(Trace::new(used, &[], interval_s).expect("sound"));
        Played { trace, at: 0, within_s: 0.0, quiet_s: QUIET_S, since_s: 0.0 }
    }

    #[test]
    fn an_owner_is_there_until_it_has_been_quiet_for_a_minute() {
        let mut machine = played(&[0.0, 0.5, 0.0, 0.0, 0.0], 30.0);
        let there: Vec<bool> = (0..75).map(|_| machine.step().owner_s.is_some()).collect();
        let since = there.iter().position(|there| *there).expect("he comes");
        let until = since + there[since..].iter().position(|there| !there).expect("he goes");
        assert_eq!((since, until), (15, 15 + 15 + 29));
    }

    #[test]
    fn a_machine_begins_as_what_was_before_says() {
        let trace = Arc::new(Trace::new(&[0.9; 100], &[], 300.0).expect("sound"));
        let sample = Played::new(&trace, Dice::new(1, 1)).step();
        assert!(sample.owner_s.expect("busy for ever") > 20_000.0 && (sample.used - 0.9).abs() < 1e-6);
        let idle = Arc::new(Trace::new(&[0.01; 100], &[], 300.0).expect("sound"));
        assert_eq!(Played::new(&idle, Dice::new(1, 1)).step().owner_s, None);
        let typed = Arc::new(Trace::new(&[0.01; 100], &[true; 100], 300.0).expect("sound"));
        assert!(Played::new(&typed, Dice::new(1, 1)).step().owner_s.is_some(), "input counts");
    }

    #[test]
    fn what_is_no_use_of_a_processor_is_refused() {
        assert_eq!(Trace::new(&[], &[], 2.0), Err(TraceError::Empty));
        assert_eq!(Trace::new(&[0.5], &[], 0.0), Err(TraceError::Interval(0.0)));
        assert_eq!(Trace::new(&[0.5, 40.0], &[], 2.0), Err(TraceError::Used { at: 1, used: 40.0 }));
        let fine = Trace::new(&[0.0, 1.0, 0.5, 0.5], &[], 1.0).expect("sound");
        assert_eq!((fine.interval_s, fine.samples), (2.0, vec![(0.5, false), (0.5, false)]));
    }
}

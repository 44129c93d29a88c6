//! Work that can be divided anywhere, as a library that is searched, on owners' machines: by fixed chunks, by falling ones, and by forecast.
//!
//! Each machine has one processor, and does a chunk at a time of what its owner leaves over. A chunk costs a launch besides its records. The
//! machines of a seed do the same whatever is done with them, so that ways can be compared world by world.
//!
//! Deliberately not here: links (a chunk's transfer is part of its launch), machines that are lost, and what chunks cost the hub.

mod available;

use crate::cluster::Source;
use crate::dice::Dice;
use available::Available;
use sched::chunks::{Division, Finish, Machine, Work};
use sched::forecast::Forecast;

/// A part of each seed that no machine has.
const PART_OF_SPEEDS: u64 = 1 << 41;

/// What is divided, and over which machines.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Machines, of one processor each.
    pub machines: usize,
    /// Who owns them.
    pub source: Source,
    /// Records.
    pub records: u64,
    /// What all of them cost, in seconds of a whole processor of speed 1 for each machine.
    pub work_s: f64,
    /// Machines are from 1 to so many times as fast, evenly by the logarithm.
    pub speed_max: f64,
    /// From one measurement to the next, in seconds.
    pub every_s: f64,
    /// For how long machines have been measured before, in seconds.
    pub watched_s: f64,
}

/// How work is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Self-scheduling: chunks of one size, so many for each machine; one: equal parts.
    Fixed(u32),
    /// Guided self-scheduling (Polychronopoulos, Kuck, 1987): of what is left, its part by the number of machines.
    Guided,
    /// Factoring (Hummel, Schonberg, Flynn, 1992): half of what is left, in as many equal chunks as there are machines, and so on.
    Factoring,
    /// One chunk for each machine, by its forecast.
    Once,
    /// By forecasts and their intervals: [`sched::chunks`].
    Forecast,
    /// What can be had at best, by who knows all: one chunk each, and all end at the same moment.
    Oracle,
}

/// What came of it in one world.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// When all was done, in seconds from the beginning.
    pub finish_s: f64,
    /// How long the first machine that had nothing to do any more waited for that, in seconds.
    pub waited_s: f64,
    /// Chunks.
    pub chunks: u64,
    /// When all was foretold to be done at the beginning, if that was asked.
    pub foretold: Option<Finish>,
}

/// Machines, as they are in one world.
#[derive(Debug)]
pub struct World {
    setting: Setting,
    machines: Vec<Available>,
    speeds: Vec<f64>,
}

impl World {
    /// The one of this seed.
    pub fn new(setting: &Setting, seed: u64) -> Self {
        let mut dice = Dice::new(seed, PART_OF_SPEEDS);
        let speeds = (0..setting.machines).map(|_| dice.between(0.0, setting.speed_max.max(1.0).ln()).exp());
        Self {
            setting: setting.clone(),
            speeds: speeds.collect(),
            machines: (0..setting.machines).map(|number| Available::new(setting, seed, number)).collect(),
        }
    }

    /// Has all of it done. A chunk costs `overhead_s` besides its records, in seconds.
    pub fn run(&mut self, way: Way, overhead_s: f64) -> Outcome {
        let mut giver = match way {
            Way::Oracle => return self.oracle(overhead_s),
            Way::Fixed(of_each) => Giver::fixed(self.setting.records, self.machines.len(), of_each),
            Way::Guided => Giver::Guided { left: self.setting.records, machines: self.machines.len() as u64 },
            Way::Factoring => Giver::factoring(self.setting.records, self.machines.len()),
            Way::Once => Giver::Once(self.division(overhead_s).parts(0.0)),
            Way::Forecast => Giver::Forecast(Box::new(self.division(overhead_s))),
        };
        let foretold = if let Giver::Forecast(division) = &giver { Some(division.finish(0.0)) } else { None };
        Outcome { foretold, ..self.drive(&mut giver, overhead_s) }
    }

    /// Each machine does chunk after chunk until nothing is left.
    fn drive(&mut self, giver: &mut Giver, overhead_s: f64) -> Outcome {
        let count = self.machines.len();
        let (mut now_s, mut chunks) = (0.0, 0);
        let (mut ends, mut idle_since) = (vec![None; count], vec![0.0; count]);
        loop {
            for (at, end) in ends.iter_mut().enumerate() {
                if end.is_none()
                    && let Some(records) = giver.next(at, now_s, self)
                {
                    chunks += 1;
                    let from_s = now_s + overhead_s;
                    let needs_s = records as f64 * self.record_s() / self.speeds[at];
                    *end = Some(self.machines[at].done_s(from_s, needs_s));
                }
            }
            let Some(next_s) = ends.iter().flatten().copied().reduce(f64::min) else { break };
            let asks_again = giver.left() > 0 && ends.iter().any(Option::is_none);
            now_s = if asks_again { next_s.min(now_s + self.setting.every_s) } else { next_s };
            for (end, since) in ends.iter_mut().zip(&mut idle_since) {
                if end.is_some_and(|end_s| end_s <= now_s) {
                    (*end, *since) = (None, now_s);
                }
            }
        }
        assert_eq!(giver.left(), 0, "whoever is first takes what is left");
        let first_s = idle_since.iter().copied().fold(f64::INFINITY, f64::min);
        Outcome { finish_s: now_s, waited_s: now_s - first_s, chunks, foretold: None }
    }

    /// The earliest moment by which all together have had what the work needs, after a launch on each.
    fn oracle(&mut self, overhead_s: f64) -> Outcome {
        let needs_s = self.record_s() * self.setting.records as f64;
        let from_s = overhead_s;
        let mut had_s = |until_s: f64| -> f64 {
            let speeds = self.speeds.iter();
            self.machines.iter_mut().zip(speeds).map(|(machine, speed)| machine.had_s(from_s, until_s) * speed).sum()
        };
        let (mut low_s, mut high_s) = (from_s, from_s + self.setting.work_s.max(1.0));
        while had_s(high_s) < needs_s {
            (low_s, high_s) = (high_s, from_s + (high_s - from_s) * 2.0);
        }
        while high_s - low_s > 1e-6 * high_s {
            let middle_s = f64::midpoint(low_s, high_s);
            if had_s(middle_s) < needs_s { low_s = middle_s } else { high_s = middle_s }
        }
        Outcome { finish_s: high_s, chunks: self.machines.len() as u64, ..Outcome::default() }
    }

    fn record_s(&self) -> f64 {
        self.setting.work_s * self.setting.machines as f64 / self.setting.records as f64
    }

    /// All of it, with what is foretold at the beginning.
    fn division(&mut self, overhead_s: f64) -> Division {
        let Setting { records, work_s, .. } = self.setting;
        let machine = |(machine, speed): (&mut Available, &f64)| Machine {
            processors: 1,
            speed: *speed,
            share: machine.foretold(0.0, work_s),
            bytes_per_s: f64::INFINITY,
            overhead_s,
        };
        let machines: Vec<Machine> = self.machines.iter_mut().zip(&self.speeds).map(machine).collect();
        let work = Work { records, record_s: self.record_s(), record_bytes: 0.0 };
        Division::new(work, &machines).expect("there are machines, and all numbers are sound")
    }

    /// What is foretold of each machine, over about the time to come.
    fn foretold(&mut self, now_s: f64, horizon_s: f64) -> Vec<Forecast> {
        self.machines.iter_mut().map(|machine| machine.foretold(now_s, horizon_s)).collect()
    }
}

/// Who hands chunks out.
enum Giver {
    Fixed { left: u64, size: u64 },
    Guided { left: u64, machines: u64 },
    Factoring { left: u64, machines: u64, size: u64, of_batch: u64 },
    Once(Vec<u64>),
    Forecast(Box<Division>),
}

impl Giver {
    fn fixed(records: u64, machines: usize, of_each: u32) -> Self {
        Self::Fixed { left: records, size: records.div_ceil(machines as u64 * u64::from(of_each)).max(1) }
    }

    fn factoring(records: u64, machines: usize) -> Self {
        Self::Factoring { left: records, machines: machines as u64, size: 0, of_batch: 0 }
    }

    /// Records that nobody has been given.
    fn left(&self) -> u64 {
        match self {
            Self::Fixed { left, .. } | Self::Guided { left, .. } | Self::Factoring { left, .. } => *left,
            Self::Once(parts) => parts.iter().sum(),
            Self::Forecast(division) => division.left(),
        }
    }

    /// How many records this machine does next.
    fn next(&mut self, machine: usize, now_s: f64, world: &mut World) -> Option<u64> {
        if self.left() == 0 {
            return None;
        }
        match self {
            Self::Fixed { left, size } => Some(take(left, *size)),
            Self::Guided { left, machines } => {
                let size = left.div_ceil(*machines);
                Some(take(left, size))
            }
            Self::Factoring { left, machines, size, of_batch } => {
                if *of_batch == 0 {
                    (*size, *of_batch) = (left.div_ceil(2 * *machines), *machines);
                }
                *of_batch -= 1;
                Some(take(left, *size))
            }
            Self::Once(parts) => Some(std::mem::take(&mut parts[machine])).filter(|part| *part > 0),
            Self::Forecast(division) => {
                let horizon_s = division.finish(now_s).expected_s - now_s;
                for (at, share) in world.foretold(now_s, horizon_s).into_iter().enumerate() {
                    division.forecast(at, share);
                }
                division.next(machine, now_s).map(|chunk| chunk.end - chunk.start)
            }
        }
    }
}

fn take(left: &mut u64, size: u64) -> u64 {
    let size = size.min(*left);
    *left -= size;
    size
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owners::Owners;
    use crate::traces::Trace;
    use std::sync::Arc;

    const WAYS: [Way; 7] =
        [Way::Fixed(1), Way::Fixed(16), Way::Guided, Way::Factoring, Way::Once, Way::Forecast, Way::Oracle];

    fn setting(source: Source) -> Setting {
        Setting {
            machines: 4,
            source,
            records: 10_000,
            work_s: 600.0,
            speed_max: 1.0,
            every_s: 10.0,
            watched_s: 3_600.0,
        }
    }

    fn steady(used: &[f64]) -> Source {
        let trace = |used: &f64| Arc::new(Trace::new(&[*used; 10], &[], 10.0).expect("sound"));
        Source::Measured(used.iter().map(trace).collect())
    }

    #[test]
    fn machines_that_keep_to_what_they_do_are_divided_at_once() {
        let mut world = World::new(&setting(steady(&[0.0, 0.5, 0.75, 0.75])), 1);
        let [equal, fixed, _, _, once, forecast, oracle] = WAYS.map(|way| world.run(way, 0.5));
        assert!((oracle.finish_s - 1_200.5).abs() < 0.1, "{oracle:?}");
        assert!((equal.finish_s - 2_400.5).abs() < 0.1 && (equal.waited_s - 1_800.0).abs() < 0.1, "{equal:?}");
        assert!(once.finish_s < 1_201.5 && once.chunks == 4, "{once:?}");
        // Each chunk that is kept back at first costs a launch.
        assert!(forecast.finish_s < 1_225.0 && forecast.waited_s < 3.0, "{forecast:?}");
        assert!(fixed.chunks == 64 && fixed.finish_s > forecast.finish_s, "{fixed:?}");
        let foretold = forecast.foretold.expect("asked");
        assert!((foretold.expected_s - 1_200.5).abs() < 1.0, "{foretold:?}");
    }

    #[test]
    fn nobody_is_ahead_of_who_knows_all_and_seeds_tell_everything() {
        for seed in 1..=6 {
            let setting = Setting { speed_max: 4.0, ..setting(Source::Drawn(Owners::default())) };
            let mut world = World::new(&setting, seed);
            let outcomes = WAYS.map(|way| world.run(way, 0.5));
            let oracle_s = outcomes[6].finish_s;
            for (way, outcome) in WAYS.iter().zip(&outcomes) {
                assert!(outcome.finish_s >= oracle_s - 0.01, "{way:?}: {outcome:?}, {oracle_s}");
                assert_eq!(World::new(&setting, seed).run(*way, 0.5), *outcome, "whatever was run before");
            }
        }
    }

    #[test]
    fn an_hour_of_work_is_divided_better_by_forecast_than_equally() {
        let setting = setting(Source::Drawn(Owners::default()));
        let mut ratio = 0.0;
        for seed in 1..=20 {
            let mut world = World::new(&setting, seed);
            ratio += (world.run(Way::Forecast, 0.5).finish_s / world.run(Way::Fixed(1), 0.5).finish_s).ln() / 20.0;
        }
        assert!(ratio.exp() < 0.9, "{}", ratio.exp());
    }
}

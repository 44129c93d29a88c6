//! Chunks of work that can be divided anywhere, such as the records of a library that is searched: how much of it each machine does, by what
//! is foretold that it has to spare. After AppLeS (Spring, Wolski: Application level scheduling of gene sequence comparison on
//! metacomputers, 1998), which divided such a library once.
//!
//! Parts are such that all machines are expected to end together. Of its part a processor at first gets some, the less the less launches cost; the
//! rest is kept, and divided anew, by newer forecasts, whenever a processor has done what it had. So chunks fall in size, as in factoring (Hummel,
//! Schonberg, Flynn, 1992), until what would be kept takes no longer than handing it out.
//!
//! Deliberately not here: clocks and who runs chunks; records that differ in cost (count in what costs alike, as bytes); chunks that are lost,
//! which the task table has done again.

#[cfg(test)]
mod tests;

use crate::forecast::Forecast;
use std::ops::Range;

/// Of no machine less is expected: so each end has a time.
pub const SHARE_MIN: f64 = 0.01;
/// The least of its part that a processor gets at once, however little launches cost, as a part of that; and the most, however much, as in
/// factoring: an owner who has been away for long may come back.
const AT_ONCE: (f64, f64) = (0.0625, 0.5);
/// What is lost when a share changes, as a part of the chunk at work (found in simulations, on other worlds than those of
/// docs/decisions/0033-chunks-by-forecast.md).
const AT_STAKE: f64 = 0.25;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// How many records there are. Chunks are ranges of their numbers, from 0.
    pub records: u64,
    /// What one costs: seconds of a whole processor of speed 1.
    pub record_s: f64,
    /// Bytes of one, which go over the link to the machine that does it.
    pub record_bytes: f64,
}

/// A machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Processors that it lends; each does a chunk at a time.
    pub processors: u32,
    /// How many times faster one is than a processor of speed 1.
    pub speed: f64,
    /// The part of each processor that a chunk will get, in the mean over about the time until all is done.
    pub share: Forecast,
    /// Bytes a second over the link to it, which its processors share; infinite if the records are there.
    pub bytes_per_s: f64,
    /// What a chunk costs besides its records, in seconds: launch, start, result.
    pub overhead_s: f64,
}

/// Why work cannot be divided.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ChunksError {
    /// Nobody is there to do it.
    #[error("there is no processor to do the work")]
    NoProcessor,
    /// A number of the work is out of bounds.
    #[error("{what} is {value}: it must be {bound}")]
    Work {
        /// Which number.
        what: &'static str,
        /// What it is.
        value: f64,
        /// What it must be.
        bound: &'static str,
    },
    /// A number of a machine is out of bounds.
    #[error("{what} of machine {machine} is {value}: it must be {bound}")]
    Machine {
        /// Which machine, from 0.
        machine: usize,
        /// Which number.
        what: &'static str,
        /// What it is.
        value: f64,
        /// What it must be.
        bound: &'static str,
    },
}

/// When all will be done, in seconds on the clock that the division is told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finish {
    /// If each machine has to spare what is foretold.
    pub expected_s: f64,
    /// If each has as much as the high end of its interval.
    pub soonest_s: f64,
    /// If each has as little as the low end.
    pub latest_s: f64,
}

/// Work that is being handed out.
#[derive(Clone, Debug)]
pub struct Division {
    work: Work,
    machines: Vec<Machine>,
    /// Processors of all machines, one after the other.
    processors: Vec<Processor>,
    /// The first record that nobody has been given.
    next: u64,
}

#[derive(Clone, Copy, Debug)]
struct Processor {
    machine: usize,
    running: Option<Running>,
}

/// A chunk at work.
#[derive(Clone, Copy, Debug)]
struct Running {
    records: u64,
    began_s: f64,
}

/// Which end of the interval counts.
type End = fn(&Forecast) -> f64;

/// A processor from when on it can do records, and what each takes.
#[derive(Clone, Copy, Debug)]
struct Pace {
    from_s: f64,
    record_s: f64,
}

impl Pace {
    /// Records that it does until then.
    fn until(&self, at_s: f64) -> f64 {
        ((at_s - self.from_s) / self.record_s).max(0.0)
    }
}

impl Division {
    /// Of this work over these machines, in their order.
    pub fn new(work: Work, machines: &[Machine]) -> Result<Self, ChunksError> {
        check(&work, machines)?;
        let processors = machines.iter().enumerate().flat_map(|(machine, of)| {
            std::iter::repeat_n(Processor { machine, running: None }, of.processors as usize)
        });
        Ok(Self { work, machines: machines.to_vec(), processors: processors.collect(), next: 0 })
    }

    /// Processors of all machines.
    pub fn processors(&self) -> usize {
        self.processors.len()
    }

    /// Whose a processor is. Processors are counted from 0, those of the first machine first.
    ///
    /// # Panics
    /// If there is no such processor.
    pub fn machine_of(&self, processor: usize) -> usize {
        self.processors[processor].machine
    }

    /// Records that nobody has been given.
    pub fn left(&self) -> u64 {
        self.work.records - self.next
    }

    /// A newer forecast of a machine. One that is not finite is left out.
    ///
    /// # Panics
    /// If there is no such machine.
    pub fn forecast(&mut self, machine: usize, share: Forecast) {
        if [share.value, share.low, share.high].iter().all(|number| number.is_finite()) {
            self.machines[machine].share = share;
        }
    }

    /// What this processor does next, which has done what it had. `None`: all is given away, or the others are expected to have done the rest
    /// before it would be worth a launch here; as long as there is something [left](Self::left), it is to ask again when another one
    /// has ended or forecasts are newer.
    ///
    /// # Panics
    /// If there is no such processor.
    pub fn next(&mut self, processor: usize, now_s: f64) -> Option<Range<u64>> {
        self.processors[processor].running = None;
        if self.left() == 0 {
            return None;
        }
        let paces = self.paces(now_s, |share| share.value);
        let pace = paces[processor];
        let part = pace.until(level(&paces, self.left() as f64));
        let records = match self.given(processor, &pace, part) {
            0 if is_first(&paces, processor) => 1,
            0 => return None,
            records => records.min(self.left()),
        };
        let from = self.next;
        self.next += records;
        self.processors[processor].running = Some(Running { records, began_s: now_s });
        Some(from..self.next)
    }

    /// What each processor is expected to do of the records that nobody has been given, if all end together.
    pub fn parts(&self, now_s: f64) -> Vec<u64> {
        let paces = self.paces(now_s, |share| share.value);
        let end_s = level(&paces, self.left() as f64);
        let (mut exact, mut before) = (0.0, 0);
        let parts = paces.iter().map(|pace| {
            // Rounded as a sum, so that they come to all of it.
            exact += pace.until(end_s);
            let until = (exact.round() as u64).clamp(before, self.left());
            let part = until - before;
            before = until;
            part
        });
        let mut parts: Vec<u64> = parts.collect();
        if let Some(last) = parts.iter_mut().rev().find(|part| **part > 0) {
            *last += self.left() - before;
        }
        parts
    }

    /// When all will be done.
    pub fn finish(&self, now_s: f64) -> Finish {
        let by = |end: End| {
            let ends = self.processors.iter().filter_map(|processor| self.ends_s(processor, now_s, end));
            let end_s = ends.fold(now_s, f64::max);
            match self.left() {
                0 => end_s,
                left => end_s.max(level(&self.paces(now_s, end), left as f64)),
            }
        };
        Finish {
            expected_s: by(|share| share.value),
            soonest_s: by(|share| share.high),
            latest_s: by(|share| share.low),
        }
    }

    /// How much of its part a processor is given at once: all of it if the rest would take no longer than handing that out.
    fn given(&self, processor: usize, pace: &Pace, part: f64) -> u64 {
        let machine = &self.machines[self.processors[processor].machine];
        let at_once = part * at_once(machine.overhead_s / (part * pace.record_s));
        let given = if (part - at_once) * pace.record_s <= machine.overhead_s { part } else { at_once };
        (given.round() as u64).max((part.round() as u64).min(1))
    }

    /// What a record takes on a processor of a machine that has this share of it to spare.
    fn record_s(&self, machine: &Machine, share: f64) -> f64 {
        let computing_s = self.work.record_s / (machine.speed * share.max(SHARE_MIN));
        computing_s + self.work.record_bytes * f64::from(machine.processors) / machine.bytes_per_s
    }

    /// When a processor will have done what it has.
    fn ends_s(&self, processor: &Processor, now_s: f64, end: End) -> Option<f64> {
        let Running { records, began_s } = processor.running?;
        let machine = &self.machines[processor.machine];
        let takes_s = machine.overhead_s + records as f64 * self.record_s(machine, end(&machine.share));
        Some((began_s + takes_s).max(now_s))
    }

    fn paces(&self, now_s: f64, end: End) -> Vec<Pace> {
        let pace = |processor: &Processor| {
            let machine = &self.machines[processor.machine];
            let free_s = self.ends_s(processor, now_s, end).unwrap_or(now_s);
            Pace { from_s: free_s + machine.overhead_s, record_s: self.record_s(machine, end(&machine.share)) }
        };
        self.processors.iter().map(pace).collect()
    }
}

/// The part of its part that a processor gets at once, where a launch takes so much of the time for the part. Handed out by falling chunks that
/// are `once` of what is left, it takes about `ln(1 / launch) / once` launches, and `once * AT_STAKE` is lost by a change: the least of both together.
fn at_once(launch: f64) -> f64 {
    let launches = if launch > 0.0 { launch * (1.0 / launch).ln() } else { 0.0 };
    (launches / AT_STAKE).max(0.0).sqrt().clamp(AT_ONCE.0, AT_ONCE.1)
}

/// When processors have done so many records, if all end together that take part.
fn level(paces: &[Pace], records: f64) -> f64 {
    let mut order: Vec<&Pace> = paces.iter().collect();
    order.sort_unstable_by(|one, other| one.from_s.total_cmp(&other.from_s));
    let (mut rate, mut late, mut end_s) = (0.0, records, f64::INFINITY);
    for pace in order {
        if end_s <= pace.from_s {
            break;
        }
        // The end with those so far: the sum of (end - from) / record over them is all records.
        rate += 1.0 / pace.record_s;
        late += pace.from_s / pace.record_s;
        end_s = late / rate;
    }
    end_s
}

/// Whether no other processor would do a single record sooner.
fn is_first(paces: &[Pace], processor: usize) -> bool {
    let one_s = |pace: &Pace| pace.from_s + pace.record_s;
    paces.iter().all(|other| one_s(&paces[processor]) <= one_s(other))
}

fn check(work: &Work, machines: &[Machine]) -> Result<(), ChunksError> {
    let is_positive = |value: f64| value.is_finite() && value > 0.0;
    let is_natural = |value: f64| value.is_finite() && value >= 0.0;
    const POSITIVE: &str = "finite, and above 0";
    const NATURAL: &str = "finite, and 0 or more";
    let numbers = [
        ("the cost of a record", work.record_s, is_positive(work.record_s), POSITIVE),
        ("the size of a record", work.record_bytes, is_natural(work.record_bytes), NATURAL),
    ];
    if let Some((what, value, _, bound)) = numbers.into_iter().find(|(_, _, is_sound, _)| !is_sound) {
        return Err(ChunksError::Work { what, value, bound });
    }
    if machines.iter().all(|machine| machine.processors == 0) {
        return Err(ChunksError::NoProcessor);
    }
    for (machine, of) in machines.iter().enumerate() {
        let Forecast { value, low, high } = of.share;
        let numbers = [
            ("the speed", of.speed, is_positive(of.speed), POSITIVE),
            ("the link", of.bytes_per_s, of.bytes_per_s > 0.0, "above 0"),
            ("the overhead", of.overhead_s, is_natural(of.overhead_s), NATURAL),
            ("the share", value, value.is_finite(), "finite"),
            ("the low end of the share", low, low.is_finite(), "finite"),
            ("the high end of the share", high, high.is_finite(), "finite"),
        ];
        if let Some((what, value, _, bound)) = numbers.into_iter().find(|(_, _, is_sound, _)| !is_sound) {
            return Err(ChunksError::Machine { machine, what, value, bound });
        }
    }
    Ok(())
}

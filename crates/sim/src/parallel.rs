//! A parallel job that computes in phases, at whose ends all machines wait for one another and exchange data, on machines of which some are
//! in use: lingering there, or going on with those that are free.
//!
//! Where the job lingers a phase takes as long as on the machine that got least. That is known in closed form, up to a sum that turns a
//! transform back: what owners take from a machine while it does its share has a distribution, and so has the most of several
//! ([`Shape::lingering`]). [`explicit`] goes through every burst on every machine, and is there to check it.

use crate::bursts::{Bursts, Lengths};
use crate::complex::{Complex, inverse};
use crate::dice::Dice;

/// A job's shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Its name.
    pub name: &'static str,
    /// What each of all machines computes in a phase, in seconds.
    pub compute_s: f64,
    /// What exchanging data takes then, in seconds.
    pub exchange_s: f64,
    /// How that grows with the number of machines: its power.
    pub exchange_growth: f64,
}

/// Shapes like those of the published study, which names them; their times are assumed. Successive over-relaxation exchanges rows with two
/// neighbours, whatever the number of machines; Water tells all about its molecules after much computing; FFT transposes a matrix, of which
/// each machine has the less the more there are.
pub const SHAPES: [Shape; 3] = [
    Shape { name: "sor", compute_s: 0.040, exchange_s: 0.004, exchange_growth: 0.0 },
    Shape { name: "water", compute_s: 0.250, exchange_s: 0.015, exchange_growth: 0.0 },
    Shape { name: "fft", compute_s: 0.100, exchange_s: 0.060, exchange_growth: -1.0 },
];

impl Shape {
    /// A phase on `machines` of `all`, all free, in seconds.
    pub fn phase_s(&self, machines: u32, all: u32) -> f64 {
        let part = f64::from(machines) / f64::from(all);
        self.compute_s / part + self.exchange_s * part.powf(self.exchange_growth)
    }

    /// How many times longer the job takes on fewer machines, all of them free; `None`: on no machine it never ends.
    pub fn fewer(&self, machines: u32, all: u32) -> Option<f64> {
        (machines > 0).then(|| self.phase_s(machines, all) / self.phase_s(all, all))
    }

    /// How many times longer it takes if it lingers where owners are: on `in_use` of `machines`, of which it wants `all`.
    pub fn lingering(&self, machines: u32, in_use: u32, all: u32, bursts: &Bursts, used: f64) -> f64 {
        let compute_s = self.compute_s * f64::from(all) / f64::from(machines);
        let exchange_s = self.phase_s(machines, all) - compute_s;
        let taken_s = Taken::new(bursts, used, compute_s).most_in_turn(in_use, exchange_s);
        (self.phase_s(machines, all) + taken_s) / self.phase_s(all, all)
    }
}

/// What owner and switches take from a machine while it computes for so long: its distribution, by its transform.
struct Taken {
    runs: Lengths,
    rests: Lengths,
    switch_s: f64,
    compute_s: f64,
    /// How a phase of computing begins: the owner rests or runs, in the first or second phase of either.
    begins: [f64; 4],
}

/// Rounds in which it is found how phases of computing begin that follow one another.
const ROUNDS: usize = 5;
/// Waits are told apart by so many parts of a distribution.
const QUANTILES: usize = 12;
/// Steps in which a distribution is added up, for each of its scales.
const SUM_STEPS: usize = 24;
/// What is rarer does not count.
const RARE: f64 = 1e-9;

impl Taken {
    fn new(bursts: &Bursts, used: f64, compute_s: f64) -> Self {
        let used = used.clamp(1e-6, 1.0 - 1e-3);
        let rests = bursts.rests(used);
        // As it happens at any moment: both phases have half of the time.
        let begins = [(1.0 - used) / 2.0, (1.0 - used) / 2.0, used / 2.0, used / 2.0];
        Self { runs: bursts.runs(), rests, switch_s: bursts.switch_s, compute_s, begins }
    }

    /// The mean of the most that is taken of so many machines, in seconds, where phases of computing follow one another: when a machine has
    /// done its share the owner rests; what he does when the next one begins depends on how long it is until then, which is the exchange
    /// and the wait for the slowest of the others, whatever these were doing.
    fn most_in_turn(mut self, machines: u32, exchange_s: f64) -> f64 {
        if machines == 0 {
            return 0.0;
        }
        let mut table = self.table();
        for _ in 1..ROUNDS {
            let ends = self.ends();
            let middle = |at: usize| (at as f64 + 0.5) / QUANTILES as f64;
            let own: Vec<f64> = (0..QUANTILES).map(|at| table.quantile(middle(at))).collect();
            // The most of several is below a value if all are.
            let power = 1.0 / f64::from(machines - 1);
            let slowest =
                (0..QUANTILES).map(|at| if machines > 1 { table.quantile(middle(at).powf(power)) } else { 0.0 });
            let mut begins = [0.0; 4];
            for slowest_s in slowest {
                for own_s in &own {
                    let then = self.alone(ends, (slowest_s - own_s).max(0.0) + exchange_s);
                    begins = [0, 1, 2, 3].map(|state| begins[state] + then[state] / (QUANTILES * QUANTILES) as f64);
                }
            }
            self.begins = begins;
            table = self.table();
        }
        table.most_of(machines)
    }

    /// The owner's phases of resting when the share is done.
    fn ends(&self) -> [f64; 2] {
        let (begin, grows) = self.parts(0.0.into());
        [0, 1].map(|phase| (begin[0] * grows[0][phase] + begin[1] * grows[1][phase]).re)
    }

    /// What he does so long after that if nobody else computes: by as many possible changes as there may be (uniformisation).
    fn alone(&self, rests: [f64; 2], seconds: f64) -> [f64; 4] {
        let rates = [self.rests.rates[0], self.rests.rates[1], self.runs.rates[0], self.runs.rates[1]];
        let fastest = rates.into_iter().fold(0.0, f64::max);
        let mean = fastest * seconds;
        // So many changes that nothing is left of how it began.
        if mean > 10_000.0 {
            return self.begins;
        }
        let mut now = [rests[0], rests[1], 0.0, 0.0];
        let (mut sum, mut log_weight) = ([0.0; 4], -mean);
        for change in 1..(mean + 10.0 * mean.sqrt() + 20.0) as u32 {
            let weight = log_weight.exp();
            sum = [0, 1, 2, 3].map(|state| sum[state] + weight * now[state]);
            let left = [0, 1, 2, 3].map(|state| now[state] * rates[state] / fastest);
            let into = |first: f64, from: f64| [first * from, (1.0 - first) * from];
            let (rest, run) = (into(self.rests.first, left[2] + left[3]), into(self.runs.first, left[0] + left[1]));
            let come = [rest[0], rest[1], run[0], run[1]];
            now = [0, 1, 2, 3].map(|state| now[state] - left[state] + come[state]);
            log_weight += (mean / f64::from(change)).ln();
        }
        sum
    }

    /// The transform of the distribution.
    fn transform(&self, s: Complex) -> Complex {
        let (begin, grows) = self.parts(s);
        begin[0] * (grows[0][0] + grows[0][1]) + begin[1] * (grows[1][0] + grows[1][1])
    }

    /// Its parts: how it begins, by the owner's phase of resting, and what becomes of each phase. While the job computes, a rest ends at
    /// the rate of its phase; then there come a switch, a run, a rest of which a switch is lost, and again a run if that was too short.
    fn parts(&self, s: Complex) -> ([Complex; 2], [[Complex; 2]; 2]) {
        let one = Complex::from(1.0);
        let first = |lengths: &Lengths| [lengths.first, 1.0 - lengths.first];
        let ends = |rate: f64| Complex::from(rate) / (s + rate.into());
        let run = |shares: [f64; 2]| ends(self.runs.rates[0]) * shares[0] + ends(self.runs.rates[1]) * shares[1];
        let switch = (s * -self.switch_s).exp();
        let burst = switch * run(first(&self.runs));
        let rest = first(&self.rests);
        let mut again = Complex::from(0.0);
        for (share, rate) in rest.into_iter().zip(self.rests.rates) {
            again = again + ends(rate) * (one - switch * (-rate * self.switch_s).exp()) * share;
        }
        let after = switch / (one - burst * again);
        let into = |phase: usize| after * (rest[phase] * (-self.rests.rates[phase] * self.switch_s).exp());
        let running = run([self.begins[2], self.begins[3]]);
        let begin = [0, 1].map(|phase| running * into(phase) + self.begins[phase].into());
        let [slow, fast] = self.rests.rates;
        let bursts = [burst * into(0), burst * into(1)];
        // exp(Q t) of two phases.
        let q = [[(bursts[0] - one) * slow, bursts[1] * slow], [bursts[0] * fast, (bursts[1] - one) * fast]];
        let middle = (q[0][0] + q[1][1]) * 0.5;
        let apart = (middle * middle - (q[0][0] * q[1][1] - q[0][1] * q[1][0])).sqrt();
        let (high, low) = (((middle + apart) * self.compute_s).exp(), ((middle - apart) * self.compute_s).exp());
        let is_one = apart.re.hypot(apart.im) * self.compute_s < 1e-9;
        let slope = if is_one { high * self.compute_s } else { (high - low) / (apart * 2.0) };
        let even = (high + low) * 0.5;
        let grows = [0, 1].map(|from: usize| {
            [0, 1].map(|to: usize| if from == to { even + slope * (q[from][to] - middle) } else { slope * q[from][to] })
        });
        (begin, grows)
    }

    /// How likely more than so much is taken.
    fn above(&self, taken_s: f64) -> f64 {
        let one = Complex::from(1.0);
        inverse(|s| (one - self.transform(s)) / s, taken_s).clamp(0.0, 1.0)
    }

    /// How likely more is taken, at values that are close to one another beside a burst and farther apart beyond, until nothing is left.
    fn table(&self) -> Table {
        let mut from_s = 1e-4 / self.runs.rates[0].max(self.runs.rates[1]);
        let mut points = vec![(from_s, self.above(from_s))];
        while points.last().is_some_and(|(_, above)| *above > RARE) && from_s < 1e9 {
            let step_s = from_s / SUM_STEPS as f64;
            points.extend((1..=SUM_STEPS).map(|at| from_s + step_s * at as f64).map(|at_s| (at_s, self.above(at_s))));
            from_s *= 2.0;
        }
        Table(points)
    }
}

/// How likely more than so many seconds is taken.
struct Table(Vec<(f64, f64)>);

impl Table {
    /// The mean of the most that is taken of so many machines: the sum of how likely it is that any has more.
    fn most_of(&self, machines: u32) -> f64 {
        let any = |above: f64| 1.0 - (1.0 - above).powi(machines as i32);
        let (first_s, first) = self.0[0];
        let between = self.0.windows(2).map(|pair| (any(pair[0].1) + any(pair[1].1)) / 2.0 * (pair[1].0 - pair[0].0));
        first_s * any(first) + between.sum::<f64>()
    }

    /// No more than this is taken so often.
    fn quantile(&self, often: f64) -> f64 {
        let at = self.0.partition_point(|(_, above)| 1.0 - above < often);
        if at == 0 { 0.0 } else { self.0[at.min(self.0.len() - 1)].0 }
    }
}

/// A machine in use, burst by burst: whether its owner's process runs, and until when.
struct Node {
    runs: Lengths,
    rests: Lengths,
    is_running: bool,
    until_s: f64,
}

impl Node {
    fn new(bursts: &Bursts, used: f64, dice: &mut Dice) -> Self {
        let mut node = Self { runs: bursts.runs(), rests: bursts.rests(used), is_running: false, until_s: 0.0 };
        // From an unknown moment: after some bursts nothing is left of how it began.
        let from_s = (node.runs.mean_above(0.0) + node.rests.mean_above(0.0)) * 20.0 * (1.0 + dice.unit());
        node.alone_until(from_s, dice);
        node.until_s -= from_s;
        node
    }

    /// The owner's process goes on without the job.
    fn alone_until(&mut self, until_s: f64, dice: &mut Dice) {
        while self.until_s <= until_s {
            self.is_running = !self.is_running;
            self.until_s += if self.is_running { self.runs.draw(dice) } else { self.rests.draw(dice) };
        }
    }

    /// The job computes from then on; it is told when it has.
    fn computes(&mut self, from_s: f64, compute_s: f64, switch_s: f64, dice: &mut Dice) -> f64 {
        self.alone_until(from_s, dice);
        let (mut now_s, mut left_s) = (from_s, compute_s);
        loop {
            if self.is_running {
                // The owner's run ends; the job is switched to while he rests.
                now_s = self.until_s + switch_s;
                self.is_running = false;
                self.until_s += self.rests.draw(dice);
            }
            let gets_s = (self.until_s - now_s).max(0.0);
            if gets_s >= left_s {
                return now_s + left_s;
            }
            left_s -= gets_s;
            self.is_running = true;
            self.until_s += switch_s + self.runs.draw(dice);
        }
    }
}

/// How many times longer than with all machines free a job takes that lingers, burst by burst through so many phases.
pub fn explicit(shape: &Shape, all: u32, in_use: u32, bursts: &Bursts, used: f64, phases: u32, seed: u64) -> f64 {
    let mut dice = Dice::new(seed, 0);
    let mut nodes: Vec<Node> = (0..in_use).map(|_| Node::new(bursts, used, &mut dice)).collect();
    let mut now_s = 0.0f64;
    for _ in 0..phases {
        let begin_s = now_s;
        now_s += shape.compute_s;
        for node in &mut nodes {
            now_s = now_s.max(node.computes(begin_s, shape.compute_s, bursts.switch_s, &mut dice));
        }
        now_s += shape.exchange_s;
    }
    now_s / (shape.phase_s(all, all) * f64::from(phases))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closed_form_is_what_bursts_come_to() {
        for (shape, used, variation, switch_s) in [
            (SHAPES[0], 0.2, 4.0, 100e-6),
            (SHAPES[1], 0.2, 4.0, 100e-6),
            (SHAPES[2], 0.5, 4.0, 100e-6),
            (SHAPES[2], 0.1, 1.0, 1e-3),
            (SHAPES[1], 0.8, 9.0, 100e-6),
        ] {
            let bursts = Bursts { variation, switch_s, ..Bursts::default() };
            for in_use in [1, 4, 8] {
                let closed = shape.lingering(8, in_use, 8, &bursts, used);
                let runs = (1..=8).map(|seed| explicit(&shape, 8, in_use, &bursts, used, 2_500, seed));
                let found = runs.sum::<f64>() / 8.0;
                assert!((closed / found - 1.0).abs() < 0.015, "{} {used} {in_use}: {closed} {found}", shape.name);
            }
        }
    }

    #[test]
    fn without_owners_a_job_takes_what_it_takes() {
        let bursts = Bursts::default();
        for shape in SHAPES {
            assert_eq!(shape.lingering(8, 0, 8, &bursts, 0.5), 1.0);
            assert!((explicit(&shape, 8, 0, &bursts, 0.5, 100, 1) - 1.0).abs() < 1e-9);
            assert_eq!((shape.fewer(8, 8), shape.fewer(0, 8)), (Some(1.0), None));
        }
        let even = Shape { exchange_s: 0.0, ..SHAPES[0] };
        assert_eq!(even.fewer(4, 8), Some(2.0));
        assert!((SHAPES[2].fewer(4, 8).expect("four") - 2.0).abs() < 1e-12, "an FFT's data are halved as well");
    }

    #[test]
    fn a_distribution_has_its_mean() {
        // Each burst takes a run and two switches; the owner rests for `rest_s` on average.
        let bursts = Bursts { variation: 1.0, switch_s: 0.0, ..Bursts::default() };
        let mean = Taken::new(&bursts, 0.5, 1.0).table().most_of(1);
        let want = 0.5 * 0.020 + 1.0 / 0.020 * 0.020;
        assert!((mean / want - 1.0).abs() < 0.002, "{mean} {want}");
    }
}

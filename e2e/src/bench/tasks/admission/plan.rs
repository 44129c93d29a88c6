//! What happens from outside, drawn from a seed before anything runs: so every world of a plan has the same history.

use crate::bench::tasks::dice::Dice;

/// Accounts that submit; the first of them have a reserved share.
pub const SHARES_PERMILLE: [u16; 8] = [200, 100, 0, 0, 0, 0, 0, 0];
/// Accounts that lend hosts, besides.
pub const LENDERS: usize = 16;
/// What a task costs: from, to.
const COST_MS: (f64, f64) = (1_000.0, 16_000.0);
/// A deadline is so many times the cost ahead: from, to.
const SLACK: (f64, f64) = (1.5, 16.0);
/// The farthest deadline is less than so far ahead.
pub const AHEAD_MS_MAX: u64 = (COST_MS.1 * SLACK.1) as u64 + 1;
/// Batches of a hundred whose tasks are done twice, by a quorum of two.
const TWICE_PERCENT: usize = 10;
/// Where costs are off: the standard deviation of the logarithm of the factor, whose mean is 1.
const SIGMA: f64 = 0.5;
/// Where hosts come and go: how long one stays, and how long it is away, in the mean.
const STAY_MS: f64 = 600_000.0;
const AWAY_MS: f64 = 60_000.0;

/// How the world differs from what the table is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Not at all: tasks cost what was estimated, and hosts stay.
    AsEstimated,
    /// Each task's cost is off by a factor.
    CostsOff,
    /// That, and hosts leave, with what they had, and come back.
    HostsGo,
    /// Not at all, and accounts without a reserved share are one: with several they take turns, and with one the earliest deadline is
    /// first.
    OneAccount,
}

impl Setting {
    /// All of them, and what their figures end in.
    pub const ALL: [(Self, &str); 4] = [
        (Self::AsEstimated, ""),
        (Self::CostsOff, "_off"),
        (Self::HostsGo, "_churn"),
        (Self::OneAccount, "_one_account"),
    ];
}

/// Tasks that are submitted together: 1 to 16.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// When.
    pub at_ms: u64,
    /// By whom, by number.
    pub account: usize,
    /// How many tasks.
    pub count: u8,
    /// What each costs, as estimated.
    pub cost_ms: u32,
    /// When they must be done.
    pub deadline_ms: u64,
    /// How many must agree.
    pub quorum: u8,
}

impl Batch {
    /// Processor time of all its instances, as estimated.
    pub fn work_ms(&self) -> u64 {
        u64::from(self.cost_ms) * u64::from(self.count) * u64::from(self.quorum)
    }
}

/// A host.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Processors.
    pub cpus: u16,
    /// Of one, in thousandths.
    pub speed_permille: u32,
    /// Whose it is: the number of a lender.
    pub lender: usize,
}

/// A host comes or goes.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// When.
    pub at_ms: u64,
    /// Which.
    pub machine: usize,
    /// It leaves.
    pub leaves: bool,
}

/// The whole history.
#[derive(Clone, Debug)]
pub struct Plan {
    seed: u64,
    setting: Setting,
    /// By number.
    pub machines: Vec<Machine>,
    /// In order of time.
    pub batches: Vec<Batch>,
    /// In order of time.
    pub turns: Vec<Turn>,
}

impl Plan {
    /// Draws a history of so many milliseconds, in which what is submitted is so much of what all hosts can compute.
    pub fn draw(setting: Setting, machines: usize, load_percent: u64, until_ms: u64, seed: u64) -> Self {
        let mut dice = Dice(seed);
        let machines: Vec<Machine> = (0..machines)
            .map(|number| Machine {
                cpus: dice.of(&[2, 4, 8]),
                speed_permille: dice.of(&[500, 1000, 1000, 2000]),
                lender: number % LENDERS,
            })
            .collect();
        let mut plan = Self { seed, setting, machines, batches: Vec::new(), turns: Vec::new() };
        let mut dice = Dice(seed ^ 1 << 32);
        plan.draw_batches(&mut dice, load_percent, until_ms);
        plan.draw_turns(&mut dice, until_ms);
        plan
    }

    /// What all hosts can compute in a second, in milliseconds of processor time at speed 1000.
    pub fn supply_per_s(&self) -> u64 {
        self.machines.iter().map(|machine| u64::from(machine.cpus) * u64::from(machine.speed_permille)).sum()
    }

    /// Each account offers the load of its part: of its reserved share, or of an equal part of the rest.
    fn draw_batches(&mut self, dice: &mut Dice, load_percent: u64, until_ms: u64) {
        let reserved: u16 = SHARES_PERMILLE.iter().sum();
        let others = SHARES_PERMILLE.iter().filter(|share| **share == 0).count() as f64;
        let last = if self.setting == Setting::OneAccount { 2 } else { SHARES_PERMILLE.len() - 1 };
        for (account, share) in SHARES_PERMILLE.iter().enumerate() {
            let permille = if *share > 0 { f64::from(*share) } else { f64::from(1000 - reserved) / others };
            let work_per_ms = self.supply_per_s() as f64 / 1_000.0 * permille / 1_000.0 * load_percent as f64 / 100.0;
            let mut at_ms = 0.0;
            loop {
                let mut batch = draw_batch(dice, account.min(last));
                // As long after the one before as that work takes, by chance.
                at_ms += interval(dice, mean_work_ms() / work_per_ms);
                if at_ms as u64 >= until_ms {
                    break;
                }
                batch.at_ms = at_ms as u64;
                batch.deadline_ms += batch.at_ms;
                self.batches.push(batch);
            }
        }
        self.batches.sort_by_key(|batch| batch.at_ms);
    }

    fn draw_turns(&mut self, dice: &mut Dice, until_ms: u64) {
        if self.setting != Setting::HostsGo {
            return;
        }
        for machine in 0..self.machines.len() {
            let (mut at_ms, mut leaves) = (0.0, true);
            loop {
                at_ms += interval(dice, if leaves { STAY_MS } else { AWAY_MS });
                if at_ms as u64 >= until_ms {
                    break;
                }
                self.turns.push(Turn { at_ms: at_ms as u64, machine, leaves });
                leaves = !leaves;
            }
        }
        self.turns.sort_by_key(|turn| turn.at_ms);
    }

    /// What a task really costs, in milliseconds of processor time at speed 1000: the same in every world, wherever it runs.
    pub fn cost_ms(&self, batch: u32, index: u8) -> f64 {
        let estimated = f64::from(self.batches[batch as usize].cost_ms);
        if !matches!(self.setting, Setting::CostsOff | Setting::HostsGo) {
            return estimated;
        }
        let mut dice = Dice(self.seed ^ u64::from(batch) << 8 ^ u64::from(index) ^ 1 << 48);
        dice.next();
        // Box and Muller 1958.
        let (radius, angle) = ((-2.0 * (1.0 - unit(&mut dice)).ln()).sqrt(), std::f64::consts::TAU * unit(&mut dice));
        estimated * (SIGMA * radius * angle.cos() - SIGMA * SIGMA / 2.0).exp()
    }
}

/// At least 0, below 1.
fn unit(dice: &mut Dice) -> f64 {
    (dice.next() >> 11) as f64 / (1u64 << 53) as f64
}

/// Until something happens that happens at any time alike, and after so long in the mean.
fn interval(dice: &mut Dice, mean: f64) -> f64 {
    -(1.0 - unit(dice)).ln() * mean
}

/// Between two numbers, each power of two as often as any other.
fn between(dice: &mut Dice, (from, to): (f64, f64)) -> f64 {
    from * (to / from).powf(unit(dice))
}

fn draw_batch(dice: &mut Dice, account: usize) -> Batch {
    let cost_ms = between(dice, COST_MS);
    let deadline_ms = (cost_ms * between(dice, SLACK)) as u64;
    let quorum = if dice.percent(TWICE_PERCENT) { 2 } else { 1 };
    let count = 1 + dice.below(tasks::BATCH_MAX) as u8;
    Batch { at_ms: 0, account, count, cost_ms: cost_ms as u32, deadline_ms, quorum }
}

/// [`Batch::work_ms`] in the mean.
fn mean_work_ms() -> f64 {
    let cost_ms = (COST_MS.1 - COST_MS.0) / (COST_MS.1 / COST_MS.0).ln();
    let count = (1.0 + tasks::BATCH_MAX as f64) / 2.0;
    cost_ms * count * (1.0 + TWICE_PERCENT as f64 / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_offers_the_load_that_was_asked_for_and_costs_are_right_in_the_mean() {
        let until_ms = 1_000_000;
        let plan = Plan::draw(Setting::CostsOff, 50, 80, until_ms, 5);
        let offered: u64 = plan.batches.iter().map(Batch::work_ms).sum();
        let load = offered as f64 / (plan.supply_per_s() * until_ms / 1_000) as f64;
        assert!((0.76..0.84).contains(&load), "{load}");
        assert!(plan.batches.iter().all(|batch| batch.deadline_ms - batch.at_ms < AHEAD_MS_MAX));
        let count = plan.batches.len() as u32;
        let real: f64 =
            (0..count).map(|batch| plan.cost_ms(batch, 0) / f64::from(plan.batches[batch as usize].cost_ms)).sum();
        assert!((0.97..1.03).contains(&(real / f64::from(count))), "{real} of {count}");
    }
}

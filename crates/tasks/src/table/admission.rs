//! Whether a deadline can be met: what is asked for until then against what the hosts can compute.
//!
//! What is asked for is kept by when it is due, in buckets of 1 second for about a minute, of 64 seconds for about an hour, and of
//! 68 minutes for three days; a task goes into the finest that reaches its deadline, and stays there. For every bucket from the
//! deadline on, all that is due by its end must fit into what can be computed until then (the demand-bound test of earliest
//! deadline first: Baruah, Rosier, Howell 1990), less the time that a task takes on a slow host: tasks are not divided, and a processor
//! that comes free later is of no use to it. What is in a wide bucket counts as spread evenly over it, and a task as often as it has
//! instances.
//! So an answer is wrong by what is in one bucket, by what tasks cost other than was estimated, by hosts that come and go, and by accounts
//! that take turns instead of the earliest deadline's being first; both kinds of errors are counted ([`Totals`](super::Totals)), and
//! measured by `cargo xtask bench tasks --only admission`.

use super::Table;
use super::records::NO_SERVER;
use crate::event::{RESERVED_MAX, Refusal};
use crate::shapes::meter::Meter;
use crate::snapshot::{Loader, Saver, Stopped};
use base::codec::Malformed;

/// In no demand: no deadline.
pub(super) const NONE: u8 = 255;
/// Buckets of one width.
const BUCKETS: u64 = 64;
/// Widths of buckets as shifts of milliseconds: 1.02 s, 65.5 s, 70 minutes.
const SHIFTS: [u32; 3] = [10, 16, 22];
/// Those without a reserved share have one demand together.
const SHARED: u8 = RESERVED_MAX as u8;

/// What is asked for, in milliseconds of processor time at speed 1000.
#[derive(Clone, Copy, Debug)]
struct Demand {
    buckets: [[u64; BUCKETS as usize]; SHIFTS.len()],
    /// Which buckets are not empty: bit n is bucket n.
    filled: [u64; SHIFTS.len()],
    /// Of tasks whose deadlines have passed.
    late: u64,
}

/// The demands of accounts with a reserved share, each, and of all others.
#[derive(Debug)]
pub(super) struct Demands {
    all: Vec<Demand>,
    pub meter: Meter,
}

impl Default for Demands {
    fn default() -> Self {
        Self {
            all: vec![
                Demand { buckets: [[0; BUCKETS as usize]; SHIFTS.len()], filled: [0; SHIFTS.len()], late: 0 };
                RESERVED_MAX + 1
            ],
            meter: Meter::default(),
        }
    }
}

impl Demands {
    /// Which buckets are not empty follows from what is in them.
    pub fn save(&self, out: &mut Saver<'_>) -> Result<(), Stopped> {
        let Self { all, meter: _ } = self;
        for Demand { buckets, filled: _, late } in all {
            out.put(late)?;
            out.runs(buckets.as_flattened(), &0)?;
        }
        Ok(())
    }

    /// Loads what [`Demands::save`] wrote.
    pub fn load(from: &mut Loader<'_>) -> Result<Self, Malformed> {
        let mut demands = Self::default();
        for demand in &mut demands.all {
            demand.late = from.get()?;
            let Demand { buckets, filled, late: _ } = demand;
            from.runs(buckets.as_flattened_mut(), |at, _| {
                filled[at / BUCKETS as usize] |= 1 << (at % BUCKETS as usize);
                Ok(())
            })?;
        }
        Ok(demands)
    }

    /// Whether it is a demand, as [`Demands::of`] gives it, or none.
    pub fn is_demand(at: u8) -> bool {
        at == NONE || (at & 63 <= SHARED && usize::from(at >> 6) < SHIFTS.len())
    }

    /// Where tasks with this deadline of an account with this server are counted.
    pub fn of(&self, server: u8, deadline_ms: u64, now_ms: u64) -> u8 {
        let place = if server == NO_SERVER { SHARED } else { server };
        let fits = |shift: &u32| (deadline_ms >> shift) < (now_ms >> shift) + BUCKETS;
        let level = SHIFTS.iter().position(fits).unwrap_or(SHIFTS.len() - 1);
        place | (level as u8) << 6
    }

    /// Changes what is in the bucket of a deadline.
    fn change(&mut self, at: u8, deadline_ms: u64, change: impl FnOnce(u64) -> u64) {
        let level = usize::from(at >> 6);
        let bucket = ((deadline_ms >> SHIFTS[level]) % BUCKETS) as usize;
        self.meter.touch(usize::from(at & 63) * 32 + level * 8 + bucket / 8);
        let demand = &mut self.all[usize::from(at & 63)];
        let in_it = &mut demand.buckets[level][bucket];
        *in_it = change(*in_it);
        if *in_it == 0 {
            demand.filled[level] &= !(1 << bucket);
        } else {
            demand.filled[level] |= 1 << bucket;
        }
    }

    /// So much more is due.
    pub fn add(&mut self, at: u8, deadline_ms: u64, cost_ms: u64) {
        self.change(at, deadline_ms, |in_it| in_it + cost_ms);
    }

    /// A task with a deadline has ended.
    pub fn take(&mut self, at: u8, deadline_ms: u64, cost_ms: u64, is_late: bool) {
        if is_late {
            let late = &mut self.all[usize::from(at & 63)].late;
            *late = late.saturating_sub(cost_ms);
        } else {
            self.change(at, deadline_ms, |in_it| in_it.saturating_sub(cost_ms));
        }
    }

    /// A deadline has passed with so much to be done.
    pub fn passed(&mut self, at: u8, deadline_ms: u64, cost_ms: u64) {
        self.change(at, deadline_ms, |in_it| in_it.saturating_sub(cost_ms));
        self.all[usize::from(at & 63)].late += cost_ms;
    }

    /// Whether these can be done by a deadline beside all else. If not: the earliest one by which they can, in milliseconds.
    fn check(&self, place: u8, now_ms: u64, deadline_ms: u64, new: &New) -> Result<(), u64> {
        let demand = &self.all[usize::from(place)];
        let done_ms = |by_ms: u64| u128::from(by_ms.saturating_sub(now_ms + new.run_ms)) * u128::from(new.rate);
        // The last one needs its own time, also if nothing comes before it.
        let fits = |work: u64, by_ms: u64| by_ms >= now_ms + new.run_ms && u128::from(work) * 1_000 <= done_ms(by_ms);
        // What is due by the end of the buckets so far. When the last one of the new tasks begins, the others have been done.
        let mut sum = demand.late + new.cost_ms;
        let before = |sum: u64, by_ms: u64| sum - new.one_ms + demand.parts(now_ms, by_ms);
        // From when on it may be that they fit before all buckets to come; and if that is known: by when they do, and with what before them.
        let mut from_ms = deadline_ms;
        let mut found: Option<(u64, u64)> = None;
        // The buckets in which something is due, of all levels side by side, in order of their ends.
        let mut left: [u64; SHIFTS.len()] = std::array::from_fn(|level| {
            let first = (now_ms >> SHIFTS[level]) % BUCKETS;
            demand.filled[level].rotate_right(first as u32)
        });
        for _ in 0..BUCKETS * SHIFTS.len() as u64 {
            let next = (0..SHIFTS.len()).filter(|level| left[*level] != 0).map(|level| {
                let bucket = (now_ms >> SHIFTS[level]) + u64::from(left[level].trailing_zeros());
                ((bucket + 1) << SHIFTS[level], level, bucket)
            });
            let Some((end_ms, level, bucket)) = next.min() else { break };
            self.meter.touch(usize::from(place) * 32 + level * 8 + (bucket % BUCKETS / 8) as usize);
            left[level] &= left[level] - 1;
            if end_ms > from_ms && found.is_none() {
                let by_ms = [from_ms, end_ms - 1].into_iter().find(|by_ms| fits(before(sum, *by_ms), *by_ms));
                found = by_ms.map(|by_ms| (by_ms, sum));
            }
            sum += demand.buckets[level][(bucket % BUCKETS) as usize];
            // Are those that are due later still in time?
            if end_ms > from_ms && !(found.is_some() && fits(sum + demand.parts(now_ms, end_ms), end_ms)) {
                (from_ms, found) = (end_ms, None);
            }
        }
        let last_ms =
            now_ms + new.run_ms + (u128::from(sum - new.one_ms) * 1_000).div_ceil(new.rate.max(1).into()) as u64;
        let (mut by_ms, sum) = found.unwrap_or((last_ms.max(from_ms), sum));
        if by_ms <= deadline_ms {
            return Ok(());
        }
        while from_ms < by_ms {
            let middle_ms = from_ms.midpoint(by_ms);
            match fits(before(sum, middle_ms), middle_ms) {
                true => by_ms = middle_ms,
                false => from_ms = middle_ms + 1,
            }
        }
        Err(by_ms.max(deadline_ms + 1))
    }
}

impl Demand {
    /// What is due by a time of what is in the buckets in which that time lies.
    fn parts(&self, now_ms: u64, by_ms: u64) -> u64 {
        let part = |(level, shift): (usize, &u32)| {
            let bucket = by_ms >> shift;
            let begin_ms = (bucket << shift).max(now_ms);
            if bucket >= (now_ms >> shift) + BUCKETS || by_ms <= begin_ms {
                return 0;
            }
            let in_it = self.buckets[level][(bucket % BUCKETS) as usize];
            let width_ms = ((bucket + 1) << shift) - begin_ms;
            (u128::from(in_it) * u128::from(by_ms - begin_ms) / u128::from(width_ms)) as u64
        };
        SHIFTS.iter().enumerate().map(part).sum()
    }
}

/// Tasks that are asked for.
struct New {
    /// What one instance costs, and all of all of them.
    one_ms: u64,
    cost_ms: u64,
    /// How long one takes on a slow host.
    run_ms: u64,
    /// What is computed in 1,000 ms, in milliseconds of processor time.
    rate: u64,
}

impl Table {
    /// Whether so many more tasks of a job can be done in time.
    pub(super) fn admit(&mut self, job_at: u32, new: u32, deadline_ms: u64) -> Result<(), Refusal> {
        if deadline_ms == 0 {
            return Ok(());
        }
        let now_ms = self.now_ms();
        let job = &self.jobs[job_at];
        let (account, one_ms) = (job.account, u64::from(job.cost_ms));
        let server = self.accounts[account].server;
        let reserved = self.servers.reserved_permille();
        let (place, permille) = match server {
            NO_SERVER => (SHARED, 1_000 - reserved),
            server => (server, self.servers.share_permille(server)),
        };
        let rate = self.supply_total * permille / 1_000;
        let new = New {
            one_ms,
            cost_ms: job.demand_ms() * u64::from(new),
            run_ms: (self.run_ms(job_at) * 1_000).div_ceil(self.speeds.slow_permille().into()),
            rate,
        };
        self.demands.check(place, now_ms, deadline_ms, &new).map_err(|by_ms| {
            self.totals.too_late += 1;
            Refusal::TooLate(by_ms)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000;

    /// So many tasks of 1 s, for 10 processors.
    fn new(count: u64) -> New {
        New { one_ms: 1_000, cost_ms: 1_000 * count, run_ms: 1_000, rate: 10_000 }
    }

    #[test]
    fn what_fits_is_admitted_and_no_more() {
        let mut demands = Demands::default();
        let deadline = NOW + 5_000;
        let at = demands.of(NO_SERVER, deadline, NOW);
        let mut admitted = 0;
        while demands.check(SHARED, NOW, deadline, &new(1)).is_ok() {
            demands.add(at, deadline, 1_000);
            admitted += 1;
        }
        // Until the last ones begin at 4 s, or at the end of their bucket, as much as is computed until then.
        assert_eq!(admitted, 45);
        let later = demands.check(SHARED, NOW, deadline, &new(1)).expect_err("full");
        assert_eq!(later, NOW + 5_568, "at the bucket's end: in 4.5 s 45 tasks are done, and one takes another second");
        assert_eq!(demands.check(SHARED, NOW, later, &new(1)), Ok(()), "the estimate is kept");
        demands.check(SHARED, NOW, deadline - 3_000, &new(1)).expect_err("an earlier one would make the others late");
        demands.take(at, deadline, 1_000, false);
        assert_eq!(demands.check(SHARED, NOW, deadline, &new(1)), Ok(()));
    }

    #[test]
    fn a_task_needs_its_own_time_on_a_slow_host() {
        let demands = Demands::default();
        let slow = New { run_ms: 2_000, ..new(1) };
        assert_eq!(demands.check(SHARED, NOW, NOW + 1_999, &slow), Err(NOW + 2_000));
        assert_eq!(demands.check(SHARED, NOW, NOW + 2_000, &slow), Ok(()));
        // Of 21 the last one begins when 20 have been done.
        assert_eq!(demands.check(SHARED, NOW, NOW + 2_999, &new(21)), Err(NOW + 3_000));
    }

    /// Whatever is asked for: what is named as the earliest deadline is admitted at once, and nothing much earlier is.
    #[test]
    fn estimates_are_kept() {
        let mut demands = Demands::default();
        let mut dice = 1u64;
        let mut next = |bound: u64| {
            dice = dice.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (dice >> 33) % bound
        };
        let (mut now, mut refused) = (NOW, 0);
        for _ in 0..2_000 {
            now += next(200);
            let one_ms = 100 + next(5_000);
            let new = New { one_ms, cost_ms: one_ms * (1 + next(16)), run_ms: one_ms, rate: 10_000 };
            let ahead = 1 << (10 + next(8));
            let mut deadline = now + one_ms + next(ahead);
            if let Err(later) = demands.check(SHARED, now, deadline, &new) {
                assert!(later > deadline);
                assert_eq!(demands.check(SHARED, now, later, &new), Ok(()), "{later} at {now}");
                assert!(demands.check(SHARED, now, later - 1, &new).is_err(), "{later} at {now}");
                deadline = later;
                refused += 1;
            }
            if deadline < now + 200_000 {
                let at = demands.of(NO_SERVER, deadline, now);
                demands.add(at, deadline, new.cost_ms);
            }
        }
        assert!(refused > 500, "{refused}");
    }
}

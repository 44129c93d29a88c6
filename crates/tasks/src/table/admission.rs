//! Whether a deadline can be met: what is asked for until then against what the hosts can compute.
//!
//! What is asked for is kept by when it is due, in buckets of 1 second for about a minute, of 64 seconds for about an hour, and of
//! 68 minutes for three days; a task goes into the finest that reaches its deadline, and stays there. For every bucket from the
//! deadline on, all that is due by its end must fit into what can be computed until then (the demand-bound test of earliest
//! deadline first: Baruah, Rosier, Howell 1990). So an answer is wrong by what is in one bucket, by what tasks cost other than was estimated,
//! and by hosts that come and go; both kinds of errors are counted ([`Totals`](super::Totals)).

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

    /// Whether `cost_ms` more can be done by a deadline, beside all else, if `rate` milliseconds of processor time are computed in
    /// 1,000 ms. If not: when it could be, in milliseconds.
    fn check(&self, place: u8, now_ms: u64, deadline_ms: u64, cost_ms: u64, rate: u64) -> Result<(), u64> {
        let demand = &self.all[usize::from(place)];
        let done_by = |work: u64| now_ms + (u128::from(work) * 1_000).div_ceil(rate.max(1).into()) as u64;
        let mut sum = demand.late + cost_ms;
        // The buckets in which something is due, of all levels side by side, in order of their ends.
        let mut left: [u64; SHIFTS.len()] = std::array::from_fn(|level| {
            let first = (now_ms >> SHIFTS[level]) % BUCKETS;
            demand.filled[level].rotate_right(first as u32)
        });
        let mut is_checked = false;
        for _ in 0..BUCKETS * SHIFTS.len() as u64 {
            let next = (0..SHIFTS.len()).filter(|level| left[*level] != 0).map(|level| {
                let bucket = (now_ms >> SHIFTS[level]) + u64::from(left[level].trailing_zeros());
                ((bucket + 1) << SHIFTS[level], level, bucket)
            });
            let Some((end, level, bucket)) = next.min() else { break };
            self.meter.touch(usize::from(place) * 32 + level * 8 + (bucket % BUCKETS / 8) as usize);
            left[level] &= left[level] - 1;
            if !is_checked && end > deadline_ms {
                // What is due within its own bucket may be due before it.
                let others = if bucket == deadline_ms >> SHIFTS[level] {
                    demand.buckets[level][(bucket % BUCKETS) as usize]
                } else {
                    0
                };
                let by = done_by(sum + others);
                if by > deadline_ms {
                    return Err(by);
                }
                is_checked = true;
            }
            sum += demand.buckets[level][(bucket % BUCKETS) as usize];
            if end > deadline_ms && done_by(sum) > end {
                return Err(done_by(sum));
            }
        }
        let by = done_by(sum);
        if !is_checked && by > deadline_ms { Err(by) } else { Ok(()) }
    }
}

impl Table {
    /// Whether so many more tasks of a job can be done in time.
    pub(super) fn admit(&mut self, job_at: u32, new: u32, deadline_ms: u64) -> Result<(), Refusal> {
        if deadline_ms == 0 {
            return Ok(());
        }
        let now_ms = self.now_ms();
        if deadline_ms > now_ms + u64::from(crate::event::DELAY_MAX_MS) {
            return Err(Refusal::Invalid("a deadline is ten days ahead at most"));
        }
        let job = &self.jobs[job_at];
        let (account, one_ms) = (job.account, u64::from(job.cost_ms));
        let server = self.accounts[account].server;
        let reserved = self.servers.reserved_permille();
        let (place, permille) = match server {
            NO_SERVER => (SHARED, 1_000 - reserved),
            server => (server, self.servers.share_permille(server)),
        };
        let rate = self.supply_total * permille / 1_000;
        let alone_by = now_ms + one_ms;
        let checked = self.demands.check(place, now_ms, deadline_ms, one_ms * u64::from(new), rate);
        let checked =
            if alone_by > deadline_ms { Err(checked.err().unwrap_or(alone_by).max(alone_by)) } else { checked };
        checked.map_err(|by| {
            self.totals.too_late += 1;
            Refusal::TooLate(by)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_admitted_and_no_more() {
        let mut demands = Demands::default();
        // 10 processors, 5 s from now: 50 s of work fit.
        let (now, deadline, rate) = (1_000_000, 1_005_000, 10_000);
        let at = demands.of(NO_SERVER, deadline, now);
        let mut admitted = 0;
        while demands.check(SHARED, now, deadline, 1_000, rate).is_ok() {
            demands.add(at, deadline, 1_000);
            admitted += 1;
        }
        assert_eq!(admitted, 50);
        let later = demands.check(SHARED, now, deadline, 1_000, rate).expect_err("full");
        assert_eq!(later, now + 5_100, "the estimate");
        assert_eq!(demands.check(SHARED, now, deadline + 2_000, 1_000, rate), Ok(()), "a later one fits");
        demands
            .check(SHARED, now, deadline - 3_000, 10_000, rate)
            .expect_err("an earlier one would make the others late");
        demands.take(at, deadline, 1_000, false);
        assert_eq!(demands.check(SHARED, now, deadline, 1_000, rate), Ok(()));
    }
}

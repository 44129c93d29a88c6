//! What goes wrong at a worker without anybody's noticing: requests of guests that nobody answers, tasks that do not end, a clock that is
//! off. It is told to the hub with what is lent, in steps, so that there is next to no traffic for it.

use crate::clients::Clients;
use base::TaskId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wire::message::Troubles;
use wire::{Joined, lock};

/// A task that was told to end is gone by then, unless something holds it in the kernel.
const END_TIME_MAX: Duration = Duration::from_secs(5);
/// A clock that is off by less is as good as the hub's, and what is told of it are multiples of this.
const CLOCK_STEP_MS: i64 = 200;

/// Tasks that have been told to end, until they have.
#[derive(Clone, Debug, Default)]
pub struct Endings(Arc<Mutex<HashMap<TaskId, Since>>>);

#[derive(Clone, Copy, Debug)]
struct Since {
    told: Instant,
    is_logged: bool,
}

/// One of them, until this is dropped.
#[derive(Debug)]
pub struct Ending(Endings, TaskId);

impl Drop for Ending {
    fn drop(&mut self) {
        lock(&self.0.0).remove(&self.1);
    }
}

impl Endings {
    /// A task is told to end.
    pub fn begin(&self, task: TaskId) -> Ending {
        lock(&self.0).insert(task, Since { told: Instant::now(), is_logged: false });
        Ending(self.clone(), task)
    }

    /// How many should be gone by now and are not. Each is logged once.
    fn unkillable(&self, now: Instant) -> u32 {
        let mut tasks = lock(&self.0);
        let late = tasks.iter_mut().filter(|(_, since)| now.saturating_duration_since(since.told) >= END_TIME_MAX);
        late.map(|(task, since)| {
            if !std::mem::replace(&mut since.is_logged, true) {
                tracing::warn!(%task, seconds = END_TIME_MAX.as_secs(), "a task was told to end, and has not");
            }
        })
        .count() as u32
    }
}

/// What there is trouble with now.
pub fn look(clients: &Clients, joined: &Joined) -> Option<Troubles> {
    let oldest = clients.oldest_request().unwrap_or_default();
    let troubles = Troubles {
        oldest_request_s: in_steps(oldest),
        unkillable: clients.endings.unkillable(Instant::now()),
        clock_ahead_ms: clock_ahead_ms(joined.clock_offset_ns()),
    };
    (troubles != Troubles::default()).then_some(troubles)
}

/// Seconds: 0, 1, 2, 4, 8 and so on.
fn in_steps(waited: Duration) -> u32 {
    let seconds = u32::try_from(waited.as_secs()).unwrap_or(u32::MAX);
    seconds.checked_ilog2().map_or(0, |power| 1 << power)
}

/// How far this machine's clock is ahead of the hub's. `offset_ns`: what is to be added to it to have that.
fn clock_ahead_ms(offset_ns: i64) -> i32 {
    let steps = offset_ns / 1_000_000 / CLOCK_STEP_MS;
    i32::try_from(-(steps * CLOCK_STEP_MS)).unwrap_or(if offset_ns > 0 { i32::MIN } else { i32::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_does_not_end_is_counted() {
        let endings = Endings::default();
        let (one, two) = (endings.begin(TaskId(1)), endings.begin(TaskId(2)));
        let (now, later) = (Instant::now(), Instant::now() + END_TIME_MAX);
        assert_eq!((endings.unkillable(now), endings.unkillable(later)), (0, 2));
        drop(one);
        assert_eq!(endings.unkillable(later), 1);
        drop(two);
        assert_eq!(endings.unkillable(later), 0);
    }

    #[test]
    fn what_is_told_changes_seldom() {
        let steps = [0, 999, 1000, 1999, 2000, 3999, 4000, 29_999].map(|ms| in_steps(Duration::from_millis(ms)));
        assert_eq!(steps, [0, 0, 1, 1, 2, 2, 4, 16]);
        assert_eq!(in_steps(Duration::MAX), 1 << 31);
        let clocks = [0, 199_000_000, -199_000_000, 3_600_000_000_000, -450_000_000].map(clock_ahead_ms);
        assert_eq!(clocks, [0, 0, 0, -3_600_000, 400]);
        assert_eq!((clock_ahead_ms(i64::MAX), clock_ahead_ms(i64::MIN)), (i32::MIN, i32::MAX));
    }
}

//! Who sweeps: launches that arrive together share one sweep that started after they arrived.

use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};
use wire::lock;

/// Longest wait for others' sweeps, in seconds.
pub const WAIT_SECS_MAX: u64 = 60;

/// Counts the sweeps of one view.
#[derive(Debug, Default)]
pub(super) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Sweeps that have started; the last of them is running if `running`.
    started: u64,
    running: bool,
    /// The last sweep that finished, and under which policy.
    finished: u64,
    fingerprint: u64,
}

/// A launch's place: it needs a sweep with a larger number.
pub(super) struct Ticket {
    after: u64,
    until: Instant,
}

/// What a launch is to do.
pub(super) enum Turn<'a> {
    /// Sweep.
    Mine(Guard<'a>),
    /// Use what another sweep found.
    Shared,
}

/// A sweep that is running. Dropped before it is done, the sweep counts for nobody.
pub(super) struct Guard<'a> {
    turns: &'a Turns,
    number: u64,
    fingerprint: Option<u64>,
}

impl Turns {
    /// Takes a place now: only sweeps that start from here on will do.
    pub fn ticket(&self) -> Ticket {
        Ticket { after: lock(&self.state).started, until: Instant::now() + Duration::from_secs(WAIT_SECS_MAX) }
    }

    /// Waits until a sweep can be shared, or has to be made. A sweep that was offered is not offered again to the same
    /// ticket. `None` after [`WAIT_SECS_MAX`].
    pub fn take(&self, ticket: &mut Ticket, fingerprint: u64) -> Option<Turn<'_>> {
        let mut state = lock(&self.state);
        loop {
            if state.finished > ticket.after && state.fingerprint == fingerprint {
                ticket.after = state.finished;
                return Some(Turn::Shared);
            }
            if !state.running {
                state.running = true;
                state.started += 1;
                return Some(Turn::Mine(Guard { turns: self, number: state.started, fingerprint: None }));
            }
            let left = ticket.until.checked_duration_since(Instant::now())?;
            state = self.changed.wait_timeout(state, left).unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }
}

impl Guard<'_> {
    /// The sweep was made, under this policy.
    pub fn done(mut self, fingerprint: u64) {
        self.fingerprint = Some(fingerprint);
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.turns.state);
        state.running = false;
        if let Some(fingerprint) = self.fingerprint {
            state.finished = self.number;
            state.fingerprint = fingerprint;
        }
        self.turns.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_serves_those_who_came_before_it_started() {
        let turns = Turns::default();
        let (mut first, mut second) = (turns.ticket(), turns.ticket());
        let Some(Turn::Mine(guard)) = turns.take(&mut first, 1) else { panic!("nobody sweeps yet") };
        let mut third = turns.ticket();
        guard.done(1);
        assert!(matches!(turns.take(&mut second, 1), Some(Turn::Shared)));
        assert!(matches!(turns.take(&mut third, 1), Some(Turn::Mine(_))), "it came after the sweep had started");
    }

    #[test]
    fn a_sweep_under_another_policy_or_that_failed_serves_nobody() {
        let turns = Turns::default();
        let mut tickets = [turns.ticket(), turns.ticket(), turns.ticket()];
        let Some(Turn::Mine(guard)) = turns.take(&mut tickets[0], 1) else { panic!("nobody sweeps yet") };
        guard.done(1);
        let Some(Turn::Mine(guard)) = turns.take(&mut tickets[1], 2) else { panic!("another policy") };
        drop(guard);
        assert!(matches!(turns.take(&mut tickets[2], 2), Some(Turn::Mine(_))), "the sweep failed");
    }
}

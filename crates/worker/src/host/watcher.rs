//! Looks every ten seconds whether the owner is there, how the machine is and what it has to spare, and tells the keeper.

use super::bounds::Bounds;
use super::conditions::Reader;
use super::presence::Watcher;
use super::{Seen, Shared, own_time, wait};
use sched::linger::outlook::Outlook;
use sched::presence::Presence;
use sched::rest::{Conditions, Rest};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use wire::lock;

/// How often it is looked.
pub const PERIOD: Duration = super::sensing::EVERY;
/// How soon the end is noticed.
const STEP: Duration = Duration::from_millis(500);

/// Looks until the worker ends.
pub fn run(shared: &Shared) {
    let (mut watcher, mut reader) = (Watcher::default(), Reader::default());
    let (mut presence, mut rest) = (Presence::default(), Rest::new(shared.settings.rules.clone()));
    let mut outlook = Outlook::default();
    let mut bounds = Bounds::new(&shared.levers);
    let start = Instant::now();
    let mut next = start;
    while !shared.has_ended() {
        let (expected, spare) = {
            let mut sensing = lock(&shared.sensing);
            let aside_ns = shared.aside_ns.swap(0, Ordering::Relaxed);
            let aside = aside_ns as f64 / PERIOD.as_nanos() as f64;
            if let Err(error) = sensing.step(aside, bounds.look(&shared.levers)) {
                tracing::debug!(%error, "what this machine has to spare could not be read");
            }
            (sensing.expected(), sensing.spare())
        };
        let signs = watcher.look(shared.levers.cpu_used().unwrap_or_default() + own_time());
        let now_s = start.elapsed().as_secs_f64();
        presence.observe(&signs, now_s);
        let owner_s = presence.for_s(now_s);
        if let Some(spare) = spare {
            outlook.observe(owner_s.is_some(), 1.0 - spare, PERIOD.as_secs_f64());
        }
        let conditions = Conditions { is_present: owner_s.is_some(), ..reader.read() };
        let seen = Seen {
            reasons: rest.reasons(&conditions),
            owner_s,
            used: signs.used,
            sees_input: signs.input_s.is_some(),
            is_idle: shared.hurries.load(Ordering::Relaxed) || shared.levers.keep_idle(),
            expected,
            outlook,
        };
        *lock(&shared.seen) = seen;
        shared.wake_keeper();
        // At even times, however long a look takes.
        while next <= Instant::now() {
            next += PERIOD;
        }
        while Instant::now() < next && !shared.has_ended() {
            wait(STEP.min(next.saturating_duration_since(Instant::now())));
        }
    }
}

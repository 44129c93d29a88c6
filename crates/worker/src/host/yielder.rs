//! Has guests stand aside altogether while their owner has work for all processors ([`sched::aside`]): looks some times a second while guests are
//! here, and tells the keeper; and what is left at this moment, also while none is here ([`sched::recent`]). While they run, some are moved to a processor that is idle ([`super::mover`]).

use super::bounds::Bounds;
use super::guests::Known;
use super::mover::Mover;
use super::presence::Load;
use super::{Shared, own_time, wait};
use sched::aside::{Aside, Look};
use sched::recent::Fared;
use std::fs;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// From look to look while guests stand aside …
const PERIOD: Duration = Duration::from_millis(100);
/// … and while they run.
const CALM: Duration = Duration::from_millis(200);
/// And while no guest is here.
const NOBODY: Duration = Duration::from_millis(500);
/// Guests that have had less than this of a processor do not stand aside, for a minute: most are done by then, somebody waits for them, and the owner
/// is not slowed down for long by so little.
const LITTLE: Duration = Duration::from_millis(500);
const YOUNG: Duration = Duration::from_secs(60);

/// Looks until the worker ends.
pub fn run(shared: &Shared) {
    let (mut aside, mut load, mut mover) = (Aside::default(), Load::default(), Mover::default());
    let mut bounds = Bounds::new(&shared.levers);
    let (mut guests_had, mut guests_waited) = (Duration::ZERO, Duration::ZERO);
    // Without a way to freeze guests, or to count what they use, they are left to their priority.
    while !shared.has_ended() && shared.levers.cpu_used().is_some() {
        let guests = shared.guests.list();
        let is_young = |guest: &Known| guest.since.elapsed() < YOUNG && shared.spent(guest) < LITTLE;
        let is_young = guests.iter().any(is_young) || !shared.guests.hurrying().is_empty();
        let look = look(shared, &mut load, &mut guests_had);
        let waited = shared.levers.waited_by("").unwrap_or_default();
        let waited_s = waited.saturating_sub(std::mem::replace(&mut guests_waited, waited)).as_secs_f64();
        let bound = bounds.look(&shared.levers);
        look.iter().for_each(|look| {
            let waited = waited_s / look.seconds.max(f64::MIN_POSITIVE);
            shared.note_recent(&look.within(bound), &Fared { guests: guests.len(), waited });
        });
        let is_aside = if guests.is_empty() {
            // What comes of others is not known.
            aside = Aside::default();
            false
        } else if is_young {
            aside.end();
            false
        } else {
            look.is_some_and(|look| aside.judge(&look))
        };
        if shared.is_aside.swap(is_aside, Ordering::Relaxed) != is_aside {
            shared.wake_keeper();
        }
        if !is_aside && !guests.is_empty() {
            mover.look(shared, &guests);
        }
        let since = Instant::now();
        wait(if guests.is_empty() {
            NOBODY
        } else if is_aside {
            PERIOD
        } else {
            CALM
        });
        if is_aside {
            shared.aside_ns.fetch_add(since.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
    }
}

/// What processors did since the last look; nothing at the first.
fn look(shared: &Shared, load: &mut Load, guests_had: &mut Duration) -> Option<Look> {
    let had = shared.levers.cpu_used()?;
    let guests_s = had.saturating_sub(std::mem::replace(guests_had, had)).as_secs_f64();
    // Guests of other workers on this machine are not its owner's: else each would stand aside for the others.
    let ours = had + shared.levers.cpu_used_by_others() + own_time();
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let spent = load.look(&stat, ours.as_secs_f64())?;
    // After a line for all of them together comes one for each.
    let processors = stat.lines().skip(1).take_while(|line| line.starts_with("cpu")).count() as f64;
    let part = |seconds: f64| processors * seconds / spent.all_s;
    Some(Look {
        seconds: spent.all_s / processors,
        processors: part(spent.all_s - spent.taken_s),
        owner: part(spent.owner_s),
        guests: part(guests_s),
    })
}

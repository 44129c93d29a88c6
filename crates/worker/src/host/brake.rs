//! Guests that leave too much unwritten are stopped until the [`super::pacer`] has written it. This thread waits for no disk: a guest writes a
//! gigabyte in a second.

use super::guests::Known;
use super::{Shared, wait};
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Guests' files that need not be written yet, in bytes: most are gone before that.
pub const LOOSE_BYTES: u64 = 8 << 20;
/// A guest that has left so much unwritten waits, in bytes; and so much while others want the disk.
const DIRTY_BYTES_MAX: u64 = 48 << 20;
const DIRTY_BYTES_PACED: u64 = 16 << 20;

/// The bound at the moment.
pub fn dirty_bytes_max(is_paced: bool) -> u64 {
    if is_paced { DIRTY_BYTES_PACED } else { DIRTY_BYTES_MAX }
}

/// How often it is looked. (A look takes 0.2 ms.)
pub const LOOK: Duration = Duration::from_millis(100);
/// And for a while after something was written.
pub const LOOK_CLOSELY: Duration = Duration::from_millis(5);
const CLOSELY_FOR: Duration = Duration::from_secs(2);

/// Whom it holds.
#[derive(Debug, Default)]
pub struct Brake {
    groups: Mutex<HashSet<String>>,
    /// What all guests have left unwritten, in bytes, as it was seen last.
    dirty: AtomicU64,
}

/// Goes on until the worker ends.
pub fn run(shared: &Shared) {
    let mut wrote: Option<Instant> = None;
    while !shared.has_ended() {
        let held = if shared.guests.count() > 0 { shared.levers.held() } else { None };
        let dirty = held.as_ref().map_or(0, |held| held.dirty);
        shared.brake.dirty.store(dirty, Ordering::Relaxed);
        if dirty >= LOOSE_BYTES / 2 {
            wrote = Some(Instant::now());
            shared.brake.hold(shared);
        }
        let writes = held.is_some() && wrote.is_some_and(|wrote| wrote.elapsed() < CLOSELY_FOR);
        wait(if writes { LOOK_CLOSELY } else { LOOK });
    }
    shared.brake.release(shared, |_| true);
}

impl Brake {
    /// Stops those that have left too much.
    fn hold(&self, shared: &Shared) {
        let bytes_max = dirty_bytes_max(shared.is_paced.load(Ordering::Relaxed));
        for guest in shared.guests.list() {
            let mut groups = wire::lock(&self.groups);
            if !groups.contains(&guest.group)
                && dirty(shared, &guest) > bytes_max
                && shared.levers.freeze_task(&guest.group, true).is_ok_and(|frozen| frozen)
            {
                groups.insert(guest.group);
            }
        }
    }

    /// Lets those go on whose group is such a one.
    pub fn release(&self, shared: &Shared, which: impl Fn(&String) -> bool) {
        wire::lock(&self.groups).retain(|group| {
            let goes = which(group);
            if goes {
                let _ = shared.levers.freeze_task(group, false);
            }
            !goes
        });
    }

    /// Whether anybody waits.
    pub fn holds_any(&self) -> bool {
        !wire::lock(&self.groups).is_empty()
    }

    /// What all guests have left unwritten, in bytes, as it was seen last.
    pub fn dirty(&self) -> u64 {
        self.dirty.load(Ordering::Relaxed)
    }
}

/// What a guest has left unwritten, in bytes.
pub fn dirty(shared: &Shared, guest: &Known) -> u64 {
    let held = if guest.group.is_empty() { None } else { shared.levers.held_by(&guest.group) };
    held.map_or(0, |held| held.dirty)
}

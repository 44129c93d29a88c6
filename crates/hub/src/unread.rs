//! Contents that a hub holds for a machine: fetched for it, and not read by it yet, or given by it before the launch that needs them.
//! Bounded for each connection: who asks and does not read, or gives and does not launch, waits, and costs the hub no more.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wire::message::Object;

/// Bytes of contents that are fetched for one connection at a time; who wants more waits until it has read some.
const FETCHED_MAX: u64 = 128 << 20;
/// Bytes given before one launch that are passed on with it, and those that one connection has given for launches that are not at their
/// workers yet; beyond, contents are in the store alone.
const GIVEN_FOR_ONE_MAX: usize = 8 << 20;
const GIVEN_MAX: u64 = 64 << 20;
/// One permit is for so many.
const UNIT: u64 = 64 << 10;

/// Room for what is held for one machine.
#[derive(Clone, Debug)]
pub struct Unread {
    fetched: Arc<Semaphore>,
    given: Arc<Semaphore>,
}

/// It is held.
pub type Hold = OwnedSemaphorePermit;

/// Objects that came before the launch that needs them.
#[derive(Debug, Default)]
pub struct Given {
    /// In the order in which they came.
    pub objects: Vec<Object>,
    /// Held for them.
    pub room: Vec<Hold>,
    bytes: usize,
}

impl Given {
    /// One more, as long as there is room.
    pub fn take(&mut self, object: Object, unread: &Unread) {
        self.bytes += object.bytes.len();
        let room = (self.bytes <= GIVEN_FOR_ONE_MAX).then(|| unread.room_for_given(object.bytes.len() as u64));
        if let Some(room) = room.flatten() {
            self.objects.push(object);
            self.room.push(room);
        }
    }
}

impl Default for Unread {
    fn default() -> Self {
        let room = |bytes: u64| Arc::new(Semaphore::new((bytes / UNIT) as usize));
        Self { fetched: room(FETCHED_MAX), given: room(GIVEN_MAX) }
    }
}

impl Unread {
    /// Waits for room for contents of so many bytes at most, as long as they are held.
    pub async fn room(&self, bytes: u64) -> Option<Hold> {
        // Never closed.
        self.fetched.clone().acquire_many_owned(units(bytes.min(FETCHED_MAX))).await.ok()
    }

    /// Room for contents of so many bytes that came before they were asked for, if there is some.
    fn room_for_given(&self, bytes: u64) -> Option<Hold> {
        self.given.clone().try_acquire_many_owned(units(bytes)).ok()
    }
}

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_does_not_read_waits() {
        let unread = Unread::default();
        let first = unread.room(FETCHED_MAX - UNIT).await.expect("room");
        let wait = std::time::Duration::from_millis(50);
        assert!(tokio::time::timeout(wait, unread.room(UNIT + 1)).await.is_err());
        assert!(tokio::time::timeout(wait, unread.room(UNIT)).await.is_ok());
        drop(first);
        assert!(tokio::time::timeout(wait, unread.room(u64::MAX)).await.is_ok(), "what is larger than all room");
    }

    #[test]
    fn who_gives_more_gives_it_to_the_store_alone() {
        let unread = Unread::default();
        let first = unread.room_for_given(GIVEN_MAX - 1).expect("room");
        assert!(unread.room_for_given(1).is_none() && unread.room_for_given(u64::MAX).is_none());
        drop(first);
        assert!(unread.room_for_given(GIVEN_MAX).is_some());
    }
}

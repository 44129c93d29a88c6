//! What the worker itself has written for guests and the disk has not: contents that were fetched, and results. An owner's fsync would wait for
//! all of it, so it is bounded: who reads or ends waits while [`crate::host::pacer`] writes it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use store::{BlockStore, Mark, Stretch};
use wire::lock;

/// How often it is looked whether there is room.
const LOOK: Duration = Duration::from_millis(5);
/// Longest wait: whoever writes it may be gone.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// What is in a store and not yet on its disk.
#[derive(Debug)]
pub struct Backlog {
    store: Arc<BlockStore>,
    /// All before this is on disk.
    written: Mutex<Mark>,
    /// In bytes. Until somebody writes it there is none.
    limit: AtomicU64,
    /// Either of the two is another.
    changed: Condvar,
}

impl Backlog {
    /// What is in the store already is not counted.
    pub fn new(store: Arc<BlockStore>) -> Self {
        let written = Mutex::new(store.mark());
        Self { store, written, limit: AtomicU64::new(u64::MAX), changed: Condvar::new() }
    }

    /// How much there is, in bytes.
    pub fn bytes(&self) -> u64 {
        self.store.appended_bytes(*lock(&self.written))
    }

    /// Where it is, the oldest first.
    pub fn stretches(&self) -> Vec<Stretch> {
        self.store.appended(*lock(&self.written))
    }

    /// All before `mark` is on disk.
    pub fn wrote(&self, mark: Mark) {
        *lock(&self.written) = mark;
        self.changed.notify_all();
    }

    /// There may be so many bytes from now on.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
        self.changed.notify_all();
    }

    fn has_room(&self, written: Mark) -> bool {
        self.store.appended_bytes(written) < self.limit.load(Ordering::Relaxed)
    }

    /// Waits until there is room for more, for five seconds at most.
    pub async fn room(&self) {
        let began = Instant::now();
        while !self.has_room(*lock(&self.written)) && began.elapsed() < WAIT_MAX {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The same, on a thread that may block.
    pub fn room_blocking(&self) {
        let written = lock(&self.written);
        let is_full = |written: &mut Mark| !self.has_room(*written);
        drop(self.changed.wait_timeout_while(written, WAIT_MAX, is_full));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_adds_to_it_waits_until_some_is_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Arc::new(BlockStore::open(folder.path(), store::Options::default()).expect("opens"));
        let put = |byte: u8| store.put(base::Tenant(1), &[byte; 1000]).expect("has room");
        put(1);
        let backlog = Backlog::new(store.clone());
        assert_eq!(backlog.bytes(), 0, "of an earlier life");
        put(2);
        assert!(backlog.bytes() >= 1000);
        // Nobody writes it yet.
        backlog.room().await;
        backlog.set_limit(1000);
        assert!(tokio::time::timeout(LOOK * 10, backlog.room()).await.is_err());
        let stretches = backlog.stretches();
        let [stretch] = &*stretches else { panic!("{stretches:?}") };
        assert!(stretch.bytes.end - stretch.bytes.start == backlog.bytes() && stretch.path.exists());
        backlog.wrote(stretch.mark(stretch.bytes.start + 500));
        assert!(backlog.bytes() < 1000);
        backlog.room().await;
        backlog.room_blocking();
    }
}

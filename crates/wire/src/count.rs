//! How many of something there are at the moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts those that live.
#[derive(Clone, Debug, Default)]
pub struct Count(Arc<AtomicUsize>);

/// One of them, until this is dropped.
#[derive(Debug)]
pub struct Counted(Arc<AtomicUsize>);

impl Count {
    /// There is one more.
    pub fn one(&self) -> Counted {
        self.0.fetch_add(1, Ordering::Relaxed);
        Counted(self.0.clone())
    }

    /// How many there are now.
    pub fn now(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_dropped_counts_no_more() {
        let count = Count::default();
        let (one, two) = (count.one(), count.clone().one());
        assert_eq!(count.now(), 2);
        drop(one);
        assert_eq!(count.now(), 1);
        drop(two);
        assert_eq!(count.now(), 0);
    }
}

//! Work on several things at a time.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Does `work` with each of `all`, by as many threads as there are `jobs` (one at least), each of which takes the next as soon as it has done
/// with one. `work` is told the thread's number, from 0.
pub fn several<T: Sync>(jobs: usize, all: &[T], work: impl Fn(usize, &T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for job in 0..jobs.max(1) {
            let (next, work) = (&next, &work);
            scope.spawn(move || {
                while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(job, one);
                }
            });
        }
    });
}

//! Heap and processor time that something takes in its thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

/// The system's allocator, which counts what each thread holds. Without it as the global one no heap is seen.
pub struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(change: isize) {
    // A thread that ends has no more to count.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + change);
        PEAK.with(|peak| peak.set(peak.get().max(held.get())));
    });
}

// SAFETY: each call goes to the system's allocator with the caller's own arguments; counting touches two cells without destructors, so
// it neither allocates nor panics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise is the one that is asked for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// What something took.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// Most heap that its thread held at a time beyond what it held before, in bytes.
    pub heap: usize,
    /// Processor time of its thread.
    pub cpu: Duration,
}

/// Does something, and measures it.
pub fn measure<T>(work: impl FnOnce() -> T) -> (Taken, T) {
    let before = HELD.with(Cell::get);
    PEAK.with(|peak| peak.set(before));
    let started = cpu();
    let result = work();
    let heap = PEAK.with(Cell::get) - before;
    (Taken { heap: heap.max(0) as usize, cpu: cpu().saturating_sub(started) }, result)
}

fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.clamp(0, 999_999_999) as u32)
}

//! The clock that single events are timed with: the processor's time stamp counter, between fences, where there is one.
//!
//! It is compared with [`Instant`] once, and what reading it twice costs is measured and taken off. Elsewhere it is `Instant` itself.

use std::time::{Duration, Instant};

/// How long it is compared with [`Instant`].
const COMPARED: Duration = Duration::from_millis(100);

/// How to read a number of ticks.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Nanoseconds of one tick.
    pub ns_per_tick: f64,
    /// What [`begin`] and [`end`] with nothing between them tell: the median of many.
    pub overhead: u32,
}

impl Clock {
    /// Compares it, and measures its own cost.
    pub fn measured() -> Self {
        let (started, first) = (Instant::now(), begin());
        while started.elapsed() < COMPARED {
            std::hint::spin_loop();
        }
        let (last, took) = (end(), started.elapsed());
        let mut empty: Vec<u32> = (0..20_001).map(|_| ticks(begin())).collect();
        empty.sort_unstable();
        Self { ns_per_tick: took.as_nanos() as f64 / last.wrapping_sub(first) as f64, overhead: empty[10_000] }
    }
}

/// Ticks since then.
#[inline(always)]
pub fn ticks(begun: u64) -> u32 {
    u32::try_from(end().wrapping_sub(begun)).unwrap_or(u32::MAX)
}

/// Now, before what is timed: all before it is done, and nothing behind it has begun.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn begin() -> u64 {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: both instructions are in every x86-64 processor and touch no memory.
    unsafe {
        _mm_lfence();
        let now = _rdtsc();
        _mm_lfence();
        now
    }
}

/// Now, behind what is timed.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn end() -> u64 {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: both instructions are in every x86-64 processor and touch no memory.
    unsafe {
        _mm_lfence();
        let now = _rdtsc();
        _mm_lfence();
        now
    }
}

/// Now, in nanoseconds.
#[cfg(not(target_arch = "x86_64"))]
pub fn begin() -> u64 {
    use std::sync::OnceLock;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

#[cfg(not(target_arch = "x86_64"))]
fn end() -> u64 {
    begin()
}

//! What the language has no safe word for: that memory is needed soon.

/// Has the processor get the first line of something while other things are done.
#[inline]
#[cfg(target_arch = "x86_64")]
pub(crate) fn prefetch<T>(what: &T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: it reads nothing, and changes nothing but what is in the cache.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(what).cast()) };
}

#[inline]
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn prefetch<T>(_what: &T) {}

//! What a task said, in memory that C gives back.

use gleaner_client::{Outcome, Place};
use libc::{c_char, c_int};
use std::ptr;

/// `gleaner_output` of `gleaner.h`.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct gleaner_output {
    out: *mut c_char,
    out_length: usize,
    err: *mut c_char,
    err_length: usize,
    ran_here: c_int,
}

impl Default for gleaner_output {
    fn default() -> Self {
        Self { out: ptr::null_mut(), out_length: 0, err: ptr::null_mut(), err_length: 0, ran_here: 0 }
    }
}

impl gleaner_output {
    /// Gives away what a task said.
    pub fn fill(&mut self, outcome: Outcome) {
        (self.out, self.out_length) = give(outcome.stdout);
        (self.err, self.err_length) = give(outcome.stderr);
        self.ran_here = matches!(outcome.place, Place::Here { .. }).into();
    }

    /// Takes it back.
    ///
    /// # Safety
    /// It was filled by [`Self::fill`], or is all null.
    pub unsafe fn free(&mut self) {
        // SAFETY: by the caller's promise.
        unsafe {
            take(self.out, self.out_length);
            take(self.err, self.err_length);
        }
        *self = Self::default();
    }
}

/// A text with a NUL behind it, and its length without that.
fn give(mut text: Vec<u8>) -> (*mut c_char, usize) {
    let length = text.len();
    text.push(0);
    (Box::into_raw(text.into_boxed_slice()).cast::<c_char>(), length)
}

/// # Safety
/// Null, or what [`give`] gave, once.
unsafe fn take(text: *mut c_char, length: usize) {
    if !text.is_null() {
        let slice = ptr::slice_from_raw_parts_mut(text.cast::<u8>(), length + 1);
        // SAFETY: `give` made a box of this length.
        drop(unsafe { Box::from_raw(slice) });
    }
}

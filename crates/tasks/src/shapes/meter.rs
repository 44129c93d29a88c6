//! Counts what an event touches.

use std::cell::{Cell, RefCell};

/// Steps, and, if asked for, which cache lines.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    steps: Cell<u32>,
    is_tracing: Cell<bool>,
    lines: RefCell<Vec<u32>>,
}

impl Meter {
    /// A line of 64 bytes of this shape was looked at.
    #[inline]
    pub fn touch(&self, line: usize) {
        self.steps.set(self.steps.get().wrapping_add(1));
        if self.is_tracing.get() {
            self.trace(line as u32);
        }
    }

    #[cold]
    fn trace(&self, line: u32) {
        let mut lines = self.lines.borrow_mut();
        if !lines.contains(&line) {
            lines.push(line);
        }
    }

    /// Starts or ends the tracing of lines.
    pub fn set_tracing(&self, is_tracing: bool) {
        self.is_tracing.set(is_tracing);
    }

    /// Steps and lines since the last call.
    pub fn take(&self) -> Work {
        let lines = if self.is_tracing.get() { std::mem::take(&mut *self.lines.borrow_mut()).len() as u32 } else { 0 };
        Work { steps: self.steps.take(), lines }
    }
}

/// What an event cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Records and words of bitmaps looked at.
    pub steps: u32,
    /// Distinct cache lines of 64 bytes; 0 unless they are traced.
    pub lines: u32,
}

impl std::ops::AddAssign for Work {
    fn add_assign(&mut self, other: Self) {
        self.steps += other.steps;
        self.lines += other.lines;
    }
}

//! Counts what an event touches, when it is asked to.

use std::cell::{Cell, RefCell};

/// What is counted of each event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counting {
    /// Nothing: counting takes a sixth of an event's time.
    #[default]
    Nothing,
    /// Steps.
    Steps,
    /// Steps, and which cache lines they were at: that takes much longer.
    Lines,
}

/// Steps, and which cache lines.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    counting: Cell<Counting>,
    steps: Cell<u32>,
    lines: RefCell<Vec<u32>>,
}

impl Meter {
    /// A line of 64 bytes of this shape was looked at.
    #[inline]
    pub fn touch(&self, line: usize) {
        if self.counting.get() != Counting::Nothing {
            self.count(line as u32);
        }
    }

    #[cold]
    fn count(&self, line: u32) {
        self.steps.set(self.steps.get().saturating_add(1));
        let mut lines = self.lines.borrow_mut();
        if self.counting.get() == Counting::Lines && !lines.contains(&line) {
            lines.push(line);
        }
    }

    /// What is counted from now on.
    pub fn set(&self, counting: Counting) {
        self.counting.set(counting);
    }

    /// Steps and lines since the last call.
    pub fn take(&self) -> Work {
        let lines = std::mem::take(&mut *self.lines.borrow_mut()).len() as u32;
        Work { steps: self.steps.take(), lines }
    }
}

/// What an event cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Records and words of bitmaps looked at.
    pub steps: u32,
    /// Distinct cache lines of 64 bytes.
    pub lines: u32,
}

impl std::ops::AddAssign for Work {
    fn add_assign(&mut self, other: Self) {
        self.steps += other.steps;
        self.lines += other.lines;
    }
}

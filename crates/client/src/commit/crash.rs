//! Points at which tests let a commit die.

/// Passes, or in a test that asked for it fails as if the process had been killed here.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn point() -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
pub(crate) use armed::*;

#[cfg(test)]
mod armed {
    use std::cell::{Cell, RefCell};
    use std::io;

    type Meddler = Box<dyn FnOnce()>;

    thread_local! {
        static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
        static DEAD: Cell<bool> = const { Cell::new(false) };
        static PASSED: Cell<u32> = const { Cell::new(0) };
        static MEDDLER: RefCell<Option<(u32, Meddler)>> = const { RefCell::new(None) };
    }

    /// Has `meddler` do something at the point after `after` others, as another process might.
    pub(crate) fn meddle(after: u32, meddler: impl FnOnce() + 'static) {
        PASSED.set(0);
        MEDDLER.set(Some((after, Box::new(meddler))));
    }

    /// Forgets a meddler that did not have its turn; tells whether there was one.
    pub(crate) fn unmeddle() -> bool {
        MEDDLER.take().is_some()
    }

    /// Dies at the point after `after` others; `None`: never.
    pub(crate) fn arm(after: Option<u32>) {
        LEFT.set(after);
        DEAD.set(false);
    }

    /// Whether the armed crash has come: everything fails from then on, as nothing is done by the dead.
    pub(crate) fn is_dead() -> bool {
        DEAD.get()
    }

    pub(crate) fn point() -> io::Result<()> {
        let passed = PASSED.replace(PASSED.get() + 1);
        let due = MEDDLER.with_borrow(|meddler| meddler.as_ref().is_some_and(|(after, _)| *after == passed));
        if due && let Some((_, meddler)) = MEDDLER.take() {
            meddler();
        }
        match LEFT.get() {
            _ if DEAD.get() => Err(io::Error::other("crashed")),
            Some(0) => {
                DEAD.set(true);
                Err(io::Error::other("crashed"))
            }
            Some(left) => {
                LEFT.set(Some(left - 1));
                Ok(())
            }
            None => Ok(()),
        }
    }
}

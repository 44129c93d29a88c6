//! The edge to C: errors become `errno` and words, and a panic stops here.

use gleaner_client::Error;
use gleaner_client::door::DoorError;
use libc::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the body of a function that C calls; `failed` is what it returns if that fails.
pub fn guarded<T>(failed: T, body: impl FnOnce() -> Result<T, Error>) -> T {
    // Whatever a panic leaves behind here is this call's own, or whole: handles change by single steps.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => {
            remember::note(&error.to_string());
            set_errno(errno_of(&error));
            failed
        }
        Err(_) => {
            remember::note("a fault of libgleaner: please report it with what was written to standard error");
            set_errno(libc::ENOTRECOVERABLE);
            failed
        }
    }
}

fn errno_of(error: &Error) -> c_int {
    match error {
        Error::Argument(_) => libc::EINVAL,
        Error::Door(DoorError::Folder { .. } | DoorError::Stranger { .. }) => libc::EPERM,
        Error::Door(DoorError::Silent(_)) => libc::ETIMEDOUT,
        Error::Door(_) => libc::ECONNREFUSED,
        Error::NotRun { code: 127, .. } => libc::ENOENT,
        Error::NotRun { code: 126, .. } => libc::EACCES,
        Error::NotRun { .. } => libc::EIO,
        Error::Cancelled => libc::ECANCELED,
        Error::TooMuchOutput { .. } => libc::EFBIG,
        Error::System { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
    }
}

fn set_errno(errno: c_int) {
    // SAFETY: the C library gives each thread a place of its own.
    unsafe { *libc::__errno_location() = errno };
}

/// The words of each thread's last error.
pub mod remember {
    use libc::c_char;
    use std::cell::RefCell;
    use std::ffi::CString;

    thread_local! {
        static LAST: RefCell<CString> = RefCell::default();
    }

    /// Notes what went wrong.
    pub fn note(words: &str) {
        let words = CString::new(words.replace('\0', " ")).unwrap_or_default();
        LAST.with(|last| *last.borrow_mut() = words);
    }

    /// What went wrong last; empty if nothing did.
    pub fn last() -> *const c_char {
        LAST.with(|last| last.borrow().as_ptr())
    }
}

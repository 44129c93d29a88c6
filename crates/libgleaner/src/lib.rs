//! `libgleaner.so`: what `gleaner_client` does, for C and whatever speaks C. `include/gleaner.h` is its manual.
//!
//! A crate of its own, so that the unsafe edge is small and seen whole: pointers are read in [`arguments`], results are
//! given away in [`output`]. No panic leaves a function ([`guard`]).

mod arguments;
mod guard;
mod output;

use arguments::{streams, task_of, words};
use base::ExitStatus;
use gleaner_client::{Cancel, Ended, Error, Job, Session, Streams, Task};
use guard::{guarded, remember};
use libc::{c_char, c_int};
use std::os::fd::BorrowedFd;
use std::ptr;

pub use arguments::gleaner_task;
pub use output::gleaner_output;

/// A job of a C program.
pub struct Handle {
    job: Job,
}

/// See `gleaner.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gleaner_job_open() -> *mut Handle {
    let open = || Ok(Box::into_raw(Box::new(Handle { job: Session::open()?.job()? })));
    guarded(ptr::null_mut(), open)
}

/// See `gleaner.h`.
///
/// # Safety
/// `job` is null or came from [`gleaner_job_open`] and was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gleaner_job_cancel(job: *mut Handle) {
    // SAFETY: by the caller's promise; jobs may be shared by threads.
    let job = unsafe { job.as_ref() };
    guarded((), || {
        if let Some(handle) = job {
            handle.job.cancel();
        }
        Ok(())
    });
}

/// See `gleaner.h`.
///
/// # Safety
/// As [`gleaner_job_cancel`], and nothing else uses the job.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gleaner_job_close(job: *mut Handle) {
    guarded((), || {
        if !job.is_null() {
            // SAFETY: it was made by Box::into_raw, and is given back once by the caller's promise.
            drop(unsafe { Box::from_raw(job) });
        }
        Ok(())
    });
}

/// See `gleaner.h`.
///
/// # Safety
/// `job` as for [`gleaner_job_cancel`]; `argv` is null or an array of strings that ends with a null pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remrun(job: *mut Handle, argv: *const *const c_char) -> c_int {
    // SAFETY: by the caller's promise.
    let (job, words) = unsafe { (job.as_ref(), words(argv)) };
    guarded(-1, || {
        let task = Task::new(words.ok_or_else(|| Error::Argument("argv is NULL".into()))?);
        let ended = run_with(job, &task, streams([0, 1, 2])?)?;
        Ok(wait_status(ended.status))
    })
}

/// See `gleaner.h`.
///
/// # Safety
/// `job` as for [`gleaner_job_cancel`]; `task` and `output` are null or point to structures as `gleaner.h` has them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gleaner_run(
    job: *mut Handle,
    task: *const gleaner_task,
    output: *mut gleaner_output,
) -> c_int {
    // SAFETY: by the caller's promise.
    let (job, task, output) = unsafe { (job.as_ref(), task.as_ref().map(|task| task_of(task)), output.as_mut()) };
    guarded(-1, || {
        let (task, descriptors) = task.ok_or_else(|| Error::Argument("task is NULL".into()))??;
        let Some(output) = output else {
            return Ok(wait_status(run_with(job, &task, streams(descriptors)?)?.status));
        };
        *output = gleaner_output::default();
        let outcome = match job {
            Some(handle) => handle.job.run(&task),
            None => Session::open()?.run(&task),
        }?;
        let status = outcome.status;
        output.fill(outcome);
        Ok(wait_status(status))
    })
}

/// See `gleaner.h`.
///
/// # Safety
/// `output` is null or was filled by [`gleaner_run`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gleaner_output_free(output: *mut gleaner_output) {
    // SAFETY: by the caller's promise.
    if let Some(output) = unsafe { output.as_mut() } {
        // SAFETY: its texts were given away by `fill`, and are taken back once: they are null afterwards.
        unsafe { output.free() };
    }
}

/// See `gleaner.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gleaner_error() -> *const c_char {
    remember::last()
}

fn run_with(job: Option<&Handle>, task: &Task, streams: Streams<'_>) -> Result<Ended, Error> {
    match job {
        Some(handle) => handle.job.run_with(task, streams),
        None => Session::open()?.run_with(task, streams, &Cancel::new()?),
    }
}

/// A status as `waitpid` gives it.
fn wait_status(status: ExitStatus) -> c_int {
    match status {
        ExitStatus::Code(code) => c_int::from(code) << 8,
        ExitStatus::Signal(signal) => c_int::from(signal),
    }
}

/// A descriptor that the caller keeps open during the call.
///
/// # Safety
/// It is open, and stays so for `'a`.
unsafe fn borrow<'a>(descriptor: c_int) -> BorrowedFd<'a> {
    // SAFETY: by the caller's promise.
    unsafe { BorrowedFd::borrow_raw(descriptor) }
}

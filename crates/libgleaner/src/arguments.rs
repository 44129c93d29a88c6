//! What C passes in, read and checked.

use crate::borrow;
use gleaner_client::{CPUS_MAX, Error, Streams, Task};
use libc::{c_char, c_int, c_uint};
use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

const NO_LOCAL: c_uint = 1;
const NO_REMOTE: c_uint = 2;

/// `gleaner_task` of `gleaner.h`.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct gleaner_task {
    argv: *const *const c_char,
    env: *const *const c_char,
    folder: *const c_char,
    streams: *const c_int,
    cpus: c_uint,
    flags: c_uint,
}

/// The strings of an array that ends with a null pointer; `None` if there is no array.
///
/// # Safety
/// `array` is null or such an array.
pub unsafe fn words(array: *const *const c_char) -> Option<Vec<OsString>> {
    if array.is_null() {
        return None;
    }
    let mut words = Vec::new();
    // SAFETY: the array ends with a null pointer, and what comes before points to strings.
    unsafe {
        let mut at = array;
        while !(*at).is_null() {
            words.push(OsString::from_vec(CStr::from_ptr(*at).to_bytes().to_vec()));
            at = at.add(1);
        }
    }
    Some(words)
}

/// The task, and the descriptors of its streams.
///
/// # Safety
/// All pointers in `task` are null or as `gleaner.h` says.
pub unsafe fn task_of(task: &gleaner_task) -> Result<(Task, [c_int; 3]), Error> {
    // SAFETY: by the caller's promise.
    let (argv, env) = unsafe { (words(task.argv), words(task.env)) };
    let mut made = Task::new(argv.ok_or_else(|| Error::Argument("argv is NULL".into()))?);
    for entry in env.unwrap_or_default() {
        let bytes = entry.as_bytes();
        made = match bytes.iter().position(|byte| *byte == b'=') {
            Some(at) => made.env(OsStr::from_bytes(&bytes[..at]), OsStr::from_bytes(&bytes[at + 1..])),
            None => made.env_remove(&entry),
        };
    }
    if !task.folder.is_null() {
        // SAFETY: a string, by the caller's promise.
        made = made.folder(OsStr::from_bytes(unsafe { CStr::from_ptr(task.folder) }.to_bytes()));
    }
    if task.flags & !(NO_LOCAL | NO_REMOTE) != 0 {
        return Err(Error::Argument(format!("unknown flags {:#x}", task.flags)));
    }
    if task.cpus > CPUS_MAX {
        return Err(Error::Argument(format!("a task may ask for 1 to {CPUS_MAX} CPUs, not {}", task.cpus)));
    }
    let made = made.cpus(task.cpus.max(1));
    let made = made.no_local(task.flags & NO_LOCAL != 0).no_remote(task.flags & NO_REMOTE != 0);
    let streams = match task.streams.is_null() {
        true => [0, 1, 2],
        // SAFETY: three numbers, by the caller's promise.
        false => unsafe { *task.streams.cast::<[c_int; 3]>() },
    };
    Ok((made, streams))
}

/// Descriptors that are open, as streams.
pub fn streams<'a>(descriptors: [c_int; 3]) -> Result<Streams<'a>, Error> {
    for descriptor in descriptors {
        // SAFETY: F_GETFD only looks.
        if descriptor < 0 || unsafe { libc::fcntl(descriptor, libc::F_GETFD) } == -1 {
            return Err(Error::Argument(format!("descriptor {descriptor} is not open")));
        }
    }
    // SAFETY: they are open, and the caller keeps them so during the call.
    let [stdin, stdout, stderr] = descriptors.map(|descriptor| unsafe { borrow(descriptor) });
    Ok(Streams { stdin, stdout, stderr })
}

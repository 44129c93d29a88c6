//! Runs the command in place of `remrun` itself, as the caller's shell would have.

use base::path::printable;
use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Exit status when a command cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// Exit status when a command is not found.
pub const NOT_FOUND: u8 = 127;

/// What ccache does not find in its cache it has compiled by `remrun`, unless somebody has set another prefix.
pub fn have_ccache_send() {
    let Ok(own) = std::env::current_exe() else { return };
    // ccache divides it at spaces.
    let Some(own) = CString::new(own.as_os_str().as_bytes()).ok().filter(|own| !own.as_bytes().contains(&b' ')) else {
        return;
    };
    // SAFETY: both are C strings, and `remrun` has no threads that could read the environment meanwhile.
    unsafe { libc::setenv(c"CCACHE_PREFIX".as_ptr(), own.as_ptr(), 0) };
}

/// Becomes the command. Returns only if that fails: with what to say, and the status to exit with.
pub fn become_command(argv: &[Vec<u8>]) -> (String, u8) {
    // The kernel passed these bytes as C strings, so there is no NUL in them.
    let words: Vec<CString> = argv.iter().filter_map(|word| CString::new(word.clone()).ok()).collect();
    let mut pointers: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let Some(program) = words.first() else { return ("no command given".into(), NOT_FOUND) };
    // SAFETY: the array ends with a null pointer, and its strings live until the call returns.
    unsafe { libc::execvp(program.as_ptr(), pointers.as_ptr()) };
    complaint(&argv[0], std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

fn complaint(program: &[u8], error: i32) -> (String, u8) {
    let name = printable(program);
    let is_path = program.contains(&b'/');
    let path = Path::new(std::ffi::OsStr::from_bytes(program));
    match error {
        libc::ENOENT if is_path && path.exists() => {
            (format!("{name}: its interpreter or loader is missing"), NOT_FOUND)
        }
        libc::ENOENT if is_path => (format!("{name}: no such file or directory"), NOT_FOUND),
        libc::ENOENT => (format!("{name}: command not found"), NOT_FOUND),
        libc::EACCES if is_path && path.is_dir() => (format!("{name}: is a directory"), NOT_EXECUTABLE),
        libc::EACCES => (format!("{name}: permission denied"), NOT_EXECUTABLE),
        error => (format!("{name}: {}", std::io::Error::from_raw_os_error(error)), NOT_EXECUTABLE),
    }
}

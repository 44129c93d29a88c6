//! The `remrun` binary. It has a C `main` because Rust's own start-up would change what the command is to inherit: it
//! ignores SIGPIPE and opens `/dev/null` in place of closed descriptors.
#![no_main]

#[cfg(all(target_env = "gnu", target_arch = "x86_64", not(whole)))]
#[path = "../old_glibc.rs"]
mod old_glibc;

use std::ffi::{CStr, c_char, c_int};

/// Entry point.
#[unsafe(no_mangle)]
extern "C" fn main(argc: c_int, argv: *const *const c_char) -> c_int {
    let argument = |at: c_int| {
        // SAFETY: the C runtime passes `argc` pointers to NUL-terminated strings that live as long as the process.
        unsafe { CStr::from_ptr(*argv.add(at as usize)) }.to_bytes().to_vec()
    };
    cli::remrun::main((1..argc).map(argument).collect())
}

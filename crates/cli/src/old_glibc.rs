//! Has a program use the C library's functions in the versions that were there in 2020 (glibc 2.31), however new the one is
//! that it is built with. Each name below is defined within the program and jumps to an older version of the same function:
//! a linker by itself takes the newest version, and the program would not start where that is missing.
//!
//! It must be a module of the program itself: what is in a library is linked only where a name is still open.

use std::arch::global_asm;
use std::ffi::{c_char, c_int, c_void};

/// `"name" in "version"`, and if the older function takes other arguments, `after` what moves them.
macro_rules! older {
    ($($name:literal in $version:literal $(after $moves:literal)?;)*) => {
        $(global_asm!(
            concat!(".symver older_", $name, ", ", $name, "@", $version, ", remove"),
            concat!(".pushsection .text.older_", $name, ",\"ax\",@progbits"),
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ": endbr64"),
            $($moves,)?
            concat!("jmp *older_", $name, "@GOTPCREL(%rip)"),
            concat!(".size ", $name, ", .-", $name),
            ".popsection",
            options(att_syntax)
        );)*
    };
}

older! {
    "pthread_create" in "GLIBC_2.2.5";
    "pthread_join" in "GLIBC_2.2.5";
    "pthread_detach" in "GLIBC_2.2.5";
    "pthread_attr_setstacksize" in "GLIBC_2.2.5";
    "pthread_attr_getguardsize" in "GLIBC_2.2.5";
    "pthread_attr_getstack" in "GLIBC_2.2.5";
    "pthread_getattr_np" in "GLIBC_2.2.5";
    "pthread_key_create" in "GLIBC_2.2.5";
    "pthread_key_delete" in "GLIBC_2.2.5";
    "pthread_getspecific" in "GLIBC_2.2.5";
    "pthread_setspecific" in "GLIBC_2.2.5";
    "pthread_sigmask" in "GLIBC_2.2.5";
    "pthread_kill" in "GLIBC_2.2.5";
    "pthread_once" in "GLIBC_2.2.5";
    "pthread_setname_np" in "GLIBC_2.12";
    "sem_init" in "GLIBC_2.2.5";
    "sem_post" in "GLIBC_2.2.5";
    "sem_wait" in "GLIBC_2.2.5";
    "sem_destroy" in "GLIBC_2.2.5";
    "dlsym" in "GLIBC_2.2.5";
    "dlopen" in "GLIBC_2.2.5";
    "dlclose" in "GLIBC_2.2.5";
    "dlerror" in "GLIBC_2.2.5";
    "hypot" in "GLIBC_2.2.5";
    // What was before 2.34 has the program run its constructors itself, by the fourth argument.
    "__libc_start_main" in "GLIBC_2.2.5" after "leaq gleaner_run_constructors(%rip), %rcx";
}

// These were macros until 2.33, over functions that not every linker finds by their version. The kernel's structure is the C
// library's.

#[unsafe(no_mangle)]
unsafe extern "C" fn stat64(path: *const c_char, found: *mut c_void) -> c_int {
    // SAFETY: the caller passes what the kernel wants.
    unsafe { libc::syscall(libc::SYS_stat, path, found) as c_int }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lstat64(path: *const c_char, found: *mut c_void) -> c_int {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_lstat, path, found) as c_int }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fstat64(fd: c_int, found: *mut c_void) -> c_int {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_fstat, fd, found) as c_int }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fstatat64(folder: c_int, path: *const c_char, found: *mut c_void, flags: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_newfstatat, folder, path, found, flags) as c_int }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn stat(path: *const c_char, found: *mut c_void) -> c_int {
    // SAFETY: as above.
    unsafe { stat64(path, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lstat(path: *const c_char, found: *mut c_void) -> c_int {
    // SAFETY: as above.
    unsafe { lstat64(path, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fstat(fd: c_int, found: *mut c_void) -> c_int {
    // SAFETY: as above.
    unsafe { fstat64(fd, found) }
}

// Numbers of half precision, which nothing here has: the standard library can show them, by functions that only the libgcc of
// GCC 12 has.
global_asm!(
    ".pushsection .text.half_precision,\"ax\",@progbits",
    ".globl __extendhfsf2",
    ".hidden __extendhfsf2",
    ".type __extendhfsf2, @function",
    "__extendhfsf2:",
    ".globl __truncsfhf2",
    ".hidden __truncsfhf2",
    ".type __truncsfhf2, @function",
    "__truncsfhf2:",
    "ud2",
    ".popsection",
    options(att_syntax)
);

type Constructor = unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char);

unsafe extern "C" {
    /// The linker makes both.
    static __init_array_start: [Constructor; 0];
    static __init_array_end: [Constructor; 0];
}

/// Runs the program's constructors, as its start-up code did before 2.34.
///
/// # Safety
/// The C library calls it once, before `main`.
#[unsafe(no_mangle)]
unsafe extern "C" fn gleaner_run_constructors(argc: c_int, argv: *const *const c_char, env: *const *const c_char) {
    // SAFETY: the linker puts all constructors between the two, and they expect these arguments.
    unsafe {
        let mut at = (&raw const __init_array_start).cast::<Constructor>();
        let end = (&raw const __init_array_end).cast::<Constructor>();
        while at < end {
            (*at)(argc, argv, env);
            at = at.add(1);
        }
    }
}

//! Has a program use the C library's functions in the versions that were there in 2020 (glibc 2.31), however new the one is
//! that it is built with. Each name below is defined within the program and jumps to an older version of the same function:
//! a linker by itself takes the newest version, and the program would not start where that is missing.
//!
//! It must be a module of the program itself: what is in a library is linked only where a name is still open.

use std::arch::global_asm;
use std::ffi::{c_char, c_int};

/// `"name" is "older name" "version"`, and if the older function takes other arguments, `after` the moves.
macro_rules! older {
    ($($name:literal is $older:literal $version:literal $(after $moves:literal)?;)*) => {
        $(global_asm!(
            concat!(".symver older_", $name, ", ", $older, "@", $version, ", remove"),
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
    "pthread_create" is "pthread_create" "GLIBC_2.2.5";
    "pthread_join" is "pthread_join" "GLIBC_2.2.5";
    "pthread_detach" is "pthread_detach" "GLIBC_2.2.5";
    "pthread_attr_setstacksize" is "pthread_attr_setstacksize" "GLIBC_2.2.5";
    "pthread_attr_getguardsize" is "pthread_attr_getguardsize" "GLIBC_2.2.5";
    "pthread_attr_getstack" is "pthread_attr_getstack" "GLIBC_2.2.5";
    "pthread_getattr_np" is "pthread_getattr_np" "GLIBC_2.2.5";
    "pthread_key_create" is "pthread_key_create" "GLIBC_2.2.5";
    "pthread_key_delete" is "pthread_key_delete" "GLIBC_2.2.5";
    "pthread_getspecific" is "pthread_getspecific" "GLIBC_2.2.5";
    "pthread_setspecific" is "pthread_setspecific" "GLIBC_2.2.5";
    "pthread_sigmask" is "pthread_sigmask" "GLIBC_2.2.5";
    "pthread_kill" is "pthread_kill" "GLIBC_2.2.5";
    "pthread_once" is "pthread_once" "GLIBC_2.2.5";
    "pthread_setname_np" is "pthread_setname_np" "GLIBC_2.12";
    "sem_init" is "sem_init" "GLIBC_2.2.5";
    "sem_post" is "sem_post" "GLIBC_2.2.5";
    "sem_wait" is "sem_wait" "GLIBC_2.2.5";
    "sem_destroy" is "sem_destroy" "GLIBC_2.2.5";
    "dlsym" is "dlsym" "GLIBC_2.2.5";
    "dlopen" is "dlopen" "GLIBC_2.2.5";
    "dlclose" is "dlclose" "GLIBC_2.2.5";
    "dlerror" is "dlerror" "GLIBC_2.2.5";
    "hypot" is "hypot" "GLIBC_2.2.5";
    // These were macros, over functions whose first argument is the version of the structure: 1.
    "stat64" is "__xstat64" "GLIBC_2.2.5" after "movq %rsi, %rdx; movq %rdi, %rsi; movl $1, %edi";
    "lstat64" is "__lxstat64" "GLIBC_2.2.5" after "movq %rsi, %rdx; movq %rdi, %rsi; movl $1, %edi";
    "stat" is "__xstat" "GLIBC_2.2.5" after "movq %rsi, %rdx; movq %rdi, %rsi; movl $1, %edi";
    "lstat" is "__lxstat" "GLIBC_2.2.5" after "movq %rsi, %rdx; movq %rdi, %rsi; movl $1, %edi";
    "fstat64" is "__fxstat64" "GLIBC_2.2.5" after "movq %rsi, %rdx; movl %edi, %esi; movl $1, %edi";
    "fstat" is "__fxstat" "GLIBC_2.2.5" after "movq %rsi, %rdx; movl %edi, %esi; movl $1, %edi";
    "fstatat64" is "__fxstatat64" "GLIBC_2.4"
        after "movl %ecx, %r8d; movq %rdx, %rcx; movq %rsi, %rdx; movl %edi, %esi; movl $1, %edi";
    // What was before 2.34 has the program run its constructors itself, by the fourth argument.
    "__libc_start_main" is "__libc_start_main" "GLIBC_2.2.5" after "leaq gleaner_run_constructors(%rip), %rcx";
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

//! Has the programs start on a C library of 2020: see `src/old_glibc.rs`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, wanted: &str| std::env::var(name).is_ok_and(|found| found == wanted);
    if is("CARGO_CFG_TARGET_ENV", "gnu") && is("CARGO_CFG_TARGET_ARCH", "x86_64") {
        // Where threads and dlsym were before they became part of libc itself. Later C libraries have these as empty files.
        println!("cargo::rustc-link-arg-bins=-Wl,--no-as-needed,-l:libpthread.so.0,-l:libdl.so.2,--as-needed");
    }
}

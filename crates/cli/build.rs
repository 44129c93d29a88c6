//! Has the programs start on a C library of 2020 (see `src/old_glibc.rs`), and `remrun` without any, where it can be linked like that.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What the compiler asks for, each with the archives that it gets instead.
const LIBRARIES: [(&str, &[&str]); 7] = [
    ("gcc_s", &["libgcc_eh.a", "libgcc.a"]),
    ("c", &["libc.a", "libgcc_eh.a", "libgcc.a"]),
    ("m", &["libm.a"]),
    ("rt", &["librt.a"]),
    ("pthread", &["libpthread.a"]),
    ("dl", &["libdl.a"]),
    ("util", &["libutil.a"]),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(whole)");
    let is = |name: &str, wanted: &str| std::env::var(name).is_ok_and(|found| found == wanted);
    if !is("CARGO_CFG_TARGET_ENV", "gnu") || !is("CARGO_CFG_TARGET_ARCH", "x86_64") {
        return;
    }
    // Where threads and dlsym were before they became part of libc itself. Later C libraries have these as empty files.
    let old = "-Wl,--no-as-needed,-l:libpthread.so.0,-l:libdl.so.2,--as-needed";
    println!("cargo::rustc-link-arg-bin=gleaner={old}");
    let is_native = std::env::var("HOST") == std::env::var("TARGET");
    match is_native.then(static_libraries).flatten() {
        Some(folder) => {
            println!("cargo::rustc-cfg=whole");
            println!("cargo::rustc-link-arg-bin=remrun=-static-pie");
            println!("cargo::rustc-link-arg-bin=remrun=-L{}", folder.display());
        }
        None => println!("cargo::rustc-link-arg-bin=remrun={old}"),
    }
}

/// A folder in which a linker finds the archives of the C library by the names of the shared ones; `None`: they are not installed.
fn static_libraries() -> Option<PathBuf> {
    let folder = Path::new(&std::env::var_os("OUT_DIR")?).join("static");
    std::fs::create_dir_all(&folder).ok()?;
    for (name, archives) in LIBRARIES {
        let archives: Vec<String> = archives.iter().map(|archive| find(archive)).collect::<Option<_>>()?;
        std::fs::write(folder.join(format!("lib{name}.so")), format!("GROUP ( {} )\n", archives.join(" "))).ok()?;
    }
    Some(folder)
}

/// Where the C compiler has this file.
fn find(archive: &str) -> Option<String> {
    let told = Command::new("cc").arg(format!("-print-file-name={archive}")).output().ok()?;
    let path = String::from_utf8(told.stdout).ok()?.trim().to_owned();
    Path::new(&path).is_absolute().then_some(path)
}

//! Looks with libFuzzer for bytes that make the hub's table of tasks and its model differ.
//!
//! The instrumentation is LLVM's own, which every toolchain has: neither a nightly one nor `cargo fuzz` is needed. Sanitizers are left
//! out; the core has no unsafe code that they could find faults in.

use crate::run::{cargo, root, say, target};
use std::process::Command;

/// What libFuzzer needs to see which ways the bytes take (LLVM's SanitizerCoverage).
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";
/// Longest input, in bytes: some hundreds of events.
const LEN_MAX: u32 = 1500;
const SECONDS: u32 = 60;
/// An input that takes longer is a find, in seconds.
const INPUT_SECONDS_MAX: u32 = 10;

/// `cargo xtask fuzz [--seconds N]`. What was found before is kept below `target/fuzz`, and begun with.
pub fn run(rest: &[&str]) -> Result<(), String> {
    let seconds = match rest {
        [] => SECONDS,
        ["--seconds", seconds] => seconds.parse().map_err(|_| format!("`{seconds}` is no number of seconds"))?,
        _ => return Err("usage: cargo xtask fuzz [--seconds N]".into()),
    };
    let folder = target().join("fuzz");
    let triple = host_triple()?;
    say("building the fuzz target …");
    let built = cargo(&["build", "--release", "--manifest-path", "fuzz/Cargo.toml", "--target", &triple])
        .env("RUSTFLAGS", FLAGS)
        .env("CARGO_TARGET_DIR", &folder)
        .status();
    if !built.map_err(|error| format!("cannot run cargo: {error}"))?.success() {
        return Err("the fuzz target could not be built".into());
    }
    let corpus = folder.join("corpus/table");
    let found = folder.join("found");
    for folder in [&corpus, &found] {
        std::fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    }
    let program = folder.join(&triple).join("release/table");
    let ended = Command::new(&program)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={LEN_MAX}"))
        .arg(format!("-timeout={INPUT_SECONDS_MAX}"))
        .arg(format!("-artifact_prefix={}/", found.display()))
        .args(["-print_final_stats=1", "-verbosity=0"])
        .arg(&corpus)
        .current_dir(root())
        .status();
    match ended.map_err(|error| format!("cannot run {}: {error}", program.display()))?.success() {
        true => Ok(()),
        false => Err(format!(
            "it ended early: the table and its model differ, it panicked, or it took more than {INPUT_SECONDS_MAX} s. The bytes are in {}, \
             if it found any; `{} FILE` shows it again",
            found.display(),
            program.display()
        )),
    }
}

/// The platform that this toolchain builds for. It must be named, or the build's own programs would be instrumented as well.
fn host_triple() -> Result<String, String> {
    let said = Command::new("rustc").arg("-vV").output().map_err(|error| format!("cannot run rustc: {error}"))?;
    let said = String::from_utf8_lossy(&said.stdout);
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc does not say what it builds for".into())
}

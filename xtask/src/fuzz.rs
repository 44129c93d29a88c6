//! Looks with libFuzzer for bytes on which a parser breaks its properties (`parsers`), or the hub's table of tasks and its model
//! differ.
//!
//! The instrumentation is LLVM's own, which every toolchain has: neither a nightly one nor `cargo fuzz` is needed. Sanitizers are left
//! out: what is fuzzed has next to no unsafe code that they could find faults in. Heap, processor time and stack are bounded instead.

use crate::run::{cargo, root, say, target};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What libFuzzer needs to see which ways the bytes take (LLVM's SanitizerCoverage).
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";
/// The table of tasks beside its model: a program of its own.
const TABLE: &str = "table";
/// Names the target to the program of all others.
const NAME: &str = "GLEANER_FUZZ";
/// Longest input of the table, in bytes: some hundreds of events.
const TABLE_LEN_MAX: u32 = 1500;
/// The same of parsers.
const LEN_MAX: u32 = 4096;
/// For each target.
const SECONDS: u32 = 60;
/// An input that takes longer is a find, in seconds.
const INPUT_SECONDS_MAX: u32 = 10;
/// Stack of the fuzzer, in KiB: a parser that recurses on its input ends.
const STACK_KIB: u32 = 1024;
/// What the committed corpus is below.
const CORPUS: &str = "fuzz/corpus";

/// `cargo xtask fuzz [--target NAME] [--seconds N]`. What was found before is kept below `target/fuzz`, and begun with.
pub fn run(rest: &[&str]) -> Result<(), String> {
    let (mut only, mut seconds) = (None, SECONDS);
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        match (*word, words.next()) {
            ("--target", Some(name)) => only = Some(*name),
            ("--seconds", Some(text)) => {
                seconds = text.parse().map_err(|_| format!("`{text}` is no number of seconds"))?;
            }
            _ => return Err("usage: cargo xtask fuzz [--target NAME] [--seconds N]".into()),
        }
    }
    let known = targets()?;
    let chosen: Vec<String> = known.iter().filter(|name| only.is_none_or(|only| only == *name)).cloned().collect();
    if chosen.is_empty() {
        return Err(format!("there is no target {}: there are {}", only.unwrap_or_default(), known.join(", ")));
    }
    let programs = build()?;
    let broken: Vec<String> = chosen.iter().filter_map(|name| one(&programs, name, seconds).err()).collect();
    if broken.is_empty() { Ok(()) } else { Err(broken.join("\n")) }
}

/// The table, and what has a corpus.
fn targets() -> Result<Vec<String>, String> {
    let folder = root().join(CORPUS);
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names: Vec<String> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.push(TABLE.to_owned());
    names.sort();
    Ok(names)
}

/// Builds the programs; the folder that they are in.
fn build() -> Result<PathBuf, String> {
    let folder = target().join("fuzz");
    let triple = host_triple()?;
    say("building the fuzz targets …");
    let built = cargo(&["build", "--release", "--manifest-path", "fuzz/Cargo.toml", "--target", &triple])
        .env("RUSTFLAGS", FLAGS)
        .env("CARGO_TARGET_DIR", &folder)
        .status();
    match built.map_err(|error| format!("cannot run cargo: {error}"))?.success() {
        true => Ok(folder.join(&triple).join("release")),
        false => Err("the fuzz targets could not be built".into()),
    }
}

/// Fuzzes one target for so many seconds.
fn one(programs: &Path, name: &str, seconds: u32) -> Result<(), String> {
    say(&format!("fuzzing {name} for {seconds} s …"));
    let folder = target().join("fuzz");
    let (corpus, found) = (folder.join("corpus").join(name), folder.join("found").join(name));
    for folder in [&corpus, &found] {
        std::fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    }
    let (program, len_max) = match name {
        TABLE => (programs.join(TABLE), TABLE_LEN_MAX),
        _ => (programs.join("parsers"), LEN_MAX),
    };
    let committed = root().join(CORPUS).join(name);
    let ended = Command::new("sh")
        .args(["-c", &format!("ulimit -s {STACK_KIB}; exec \"$@\""), "sh"])
        .arg(&program)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={len_max}"))
        .arg(format!("-timeout={INPUT_SECONDS_MAX}"))
        .arg(format!("-artifact_prefix={}/", found.display()))
        .args(["-print_final_stats=1", "-verbosity=0"])
        .arg(&corpus)
        .args(Some(&committed).filter(|folder| folder.exists()))
        .env(NAME, name)
        .current_dir(root())
        .status();
    match ended.map_err(|error| format!("cannot run {}: {error}", program.display()))?.success() {
        true => Ok(()),
        false => Err(format!(
            "{name} ended early: a property does not hold, it panicked, or it took more than {INPUT_SECONDS_MAX} s. The bytes are in \
             {}, if it found any; `{NAME}={name} {} FILE` shows it again",
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

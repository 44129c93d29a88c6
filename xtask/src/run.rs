//! Runs cargo and the suite's binary.

use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The root of the source tree.
pub fn root() -> PathBuf {
    // Where this program was built is another tree if its target folder was copied.
    let own = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let own = Path::new(&own);
    own.parent().unwrap_or(own).to_path_buf()
}

/// A cargo command at the root of the tree.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// Says what is being done, on a terminal.
pub fn say(text: &str) {
    if std::io::stderr().is_terminal() {
        eprintln!("{text}");
    }
}

/// Builds the product and the suite, and returns the folder with their programs. Shows cargo's progress on a terminal; in a pipe,
/// what cargo said is shown only if it fails.
pub fn build(release: bool) -> Result<PathBuf, String> {
    let profile = if release { "release" } else { "debug" };
    say(&format!("building ({profile}; a fresh tree takes some minutes) …"));
    let mut arguments = vec!["build", "-p", "cli", "-p", "libgleaner", "-p", "e2e", "--lib", "--bins"];
    if release {
        arguments.push("--release");
    }
    let started = Instant::now();
    let mut command = cargo(&arguments);
    if std::io::stderr().is_terminal() {
        let status = command.status().map_err(|error| format!("cannot run cargo: {error}"))?;
        if !status.success() {
            return Err(format!("the build failed: {status}"));
        }
    } else {
        let output = command.stdin(Stdio::null()).output().map_err(|error| format!("cannot run cargo: {error}"))?;
        if !output.status.success() {
            return Err(format!("the build failed:\n{}", String::from_utf8_lossy(&output.stderr)));
        }
    }
    say(&format!("built in {:.1} s", started.elapsed().as_secs_f64()));
    built(release)
}

/// The folder with the programs that an earlier build has made.
pub fn built(release: bool) -> Result<PathBuf, String> {
    let folder = target().join(if release { "release" } else { "debug" });
    match folder.join("remrun").exists() && folder.join("gleaner").exists() {
        true => Ok(folder),
        false => Err(format!("the build left no gleaner and remrun in {}", folder.display())),
    }
}

/// Where cargo puts what it builds.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// Runs the suite's binary with these arguments, its output passed on.
pub fn e2e(programs: &Path, arguments: &[&str]) -> Result<(), String> {
    let status = Command::new(programs.join("e2e"))
        .args(arguments)
        .status()
        .map_err(|error| format!("cannot run {}: {error}", programs.join("e2e").display()))?;
    if status.success() { Ok(()) } else { Err(format!("{} failed", arguments.join(" "))) }
}

/// Runs the testbed's command, its exit status passed on.
pub fn testbed(arguments: &[&str]) -> Result<(), String> {
    let built = cargo(&["build", "--quiet", "--release", "-p", "testbed"]).status();
    match built.map_err(|error| format!("cannot run cargo: {error}"))? {
        status if status.success() => {}
        status => return Err(format!("the build failed: {status}")),
    }
    // It takes this process's place: its status is the command's.
    Err(format!("cannot run the testbed: {}", Command::new(target().join("release/testbed")).args(arguments).exec()))
}

//! `cargo xtask test`: everything that can be tested here, with one line at the end.

use crate::{need, run};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// How long one section may take: what hangs fails, and the others are still run.
const SECTION_LIMIT: Duration = Duration::from_secs(15 * 60);

/// What is said of one that was killed.
const NOT_DONE: &str = "FAILED  not done after";

/// Tests by what came of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
}

impl Counts {
    pub fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// Runs the sections in order; an error if anything failed, or was skipped that can run here.
pub fn run(arguments: &[&str]) -> Result<(), String> {
    let mut rest: Vec<&str> = arguments.to_vec();
    let mut flag = |name: &str| {
        let at = rest.iter().position(|argument| *argument == name);
        at.map(|at| rest.remove(at)).is_some()
    };
    let (real, real_only, release) = (flag("--real"), flag("--real-only"), flag("--release"));
    let filter = match rest.as_slice() {
        [] => None,
        ["--filter", text] => Some(*text),
        other => return Err(format!("unknown arguments: {}", other.join(" "))),
    };
    let capable = need::is_root() && Path::new("/dev/fuse").exists();
    let mut counts = Counts::default();
    let mut sections = Sections::default();
    if need::is_root() {
        sections.time("prerequisites", || {
            need::programs(&[&need::DEMO[..], need::TESTS].concat())?;
            if real || real_only { need::programs(&need::REAL) } else { Ok(()) }
        })?;
    } else {
        println!(
            "not root: the end-to-end suite needs it and is skipped; `sudo -E env PATH=\"$PATH\" cargo xtask test` runs it"
        );
        counts.skipped += 1;
    }
    if !real_only && filter.is_none() {
        sections.time("build", build_all)?;
        counts.add(sections.time("unit and integration tests", unit)?);
    }
    if capable {
        let programs = match !release && !real_only && filter.is_none() {
            true => run::built(false)?,
            false => sections.time("build", || run::build(release))?,
        };
        if !real_only {
            let arguments = filter.map_or(vec!["suite"], |text| vec!["suite", "--filter", text]);
            counts.add(sections.time("end-to-end suite", || suite(&programs, &arguments))?);
        }
        if real || real_only {
            let arguments = filter.map_or(vec!["real"], |text| vec!["real", "--filter", text]);
            counts.add(sections.time("real input", || suite(&programs, &arguments))?);
        }
    }
    sections.print();
    println!("{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.skipped);
    match counts {
        Counts { failed: 0, skipped: 0, .. } => Ok(()),
        Counts { failed: 0, .. } if !capable => Ok(()),
        Counts { failed: 0, skipped, .. } => Err(format!("{skipped} tests were skipped that can run here")),
        Counts { failed, .. } => Err(format!("{failed} tests failed")),
    }
}

/// How long each section took.
#[derive(Default)]
struct Sections(Vec<(String, f64)>);

impl Sections {
    fn time<T>(&mut self, name: &str, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        run::say(&format!("{name} …"));
        let started = Instant::now();
        let result = work();
        self.0.push((name.to_owned(), started.elapsed().as_secs_f64()));
        result
    }

    fn print(&self) {
        for (name, seconds) in &self.0 {
            println!("{name}: {seconds:.1} s");
        }
    }
}

/// Builds the programs and what [`unit`] runs: at once, or their libraries would be built twice, as the tests ask for other features. In a
/// time of its own: on a busy machine it takes as long as the tests do.
fn build_all() -> Result<(), String> {
    let mut command = run::cargo(&["build", "--workspace", "--lib", "--bins", "--tests", "--examples", "--quiet"]);
    match lines(&mut command, SECTION_LIMIT, |line| println!("{line}"))? {
        true => Ok(()),
        false => Err("the programs and tests were not built".to_owned()),
    }
}

fn unit() -> Result<Counts, String> {
    let mut command = run::cargo(&["test", "--workspace", "--no-fail-fast", "--quiet", "--", "--show-output"]);
    let mut reader = CargoOutput::default();
    let mut is_whole = true;
    let good = lines(&mut command, SECTION_LIMIT, |line| {
        is_whole &= !line.starts_with(NOT_DONE);
        if let Some(shown) = reader.line(line).or_else(|| (!is_whole).then(|| line.to_owned())) {
            println!("{shown}");
        }
    })?;
    let mut counts = reader.counts;
    if !good && counts.failed == 0 {
        println!("{}", reader.recent.join("\n"));
        counts.failed += 1;
    } else if !is_whole {
        // What has not run did not pass.
        counts.failed += 1;
    }
    Ok(counts)
}

fn suite(programs: &Path, arguments: &[&str]) -> Result<Counts, String> {
    let mut command = Command::new(programs.join("e2e"));
    command.args(arguments);
    let mut found = None;
    let good = lines(&mut command, SECTION_LIMIT, |line| {
        found = closing_line(line).or(found);
        if closing_line(line).is_none() {
            println!("{line}");
        }
    })?;
    let mut counts = found.unwrap_or_default();
    if !good && counts.failed == 0 {
        println!("FAILED  the {} did not come to its end", arguments.join(" "));
        counts.failed += 1;
    }
    Ok(counts)
}

/// Runs a command and hands over each line of its standard output; true if it succeeded. One that has not ended within the
/// limit is killed.
pub fn lines(command: &mut Command, limit: Duration, mut each: impl FnMut(&str)) -> Result<bool, String> {
    let broken = |error: std::io::Error| format!("cannot run a part of the tests: {error}");
    let deadline = Instant::now() + limit;
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(broken)?;
    let (found, arriving) = std::sync::mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || BufReader::new(stdout).split(b'\n').try_for_each(|line| found.send(line)));
    }
    loop {
        match arriving.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => each(&String::from_utf8_lossy(&line.map_err(broken)?)),
            Err(RecvTimeoutError::Disconnected) => return Ok(child.wait().map_err(broken)?.success()),
            Err(RecvTimeoutError::Timeout) => {
                child.kill().map_err(broken)?;
                child.wait().map_err(broken)?;
                each(&format!("{NOT_DONE} {} minutes", limit.as_secs() / 60));
                return Ok(false);
            }
        }
    }
}

/// `N passed, N failed, N skipped`.
pub fn closing_line(line: &str) -> Option<Counts> {
    let numbers: Vec<(usize, &str)> = line
        .split(", ")
        .map(|part| part.split_once(' ').and_then(|(number, word)| Some((number.parse().ok()?, word))))
        .collect::<Option<_>>()?;
    match numbers.as_slice() {
        [(passed, "passed"), (failed, "failed"), (skipped, "skipped")] => {
            Some(Counts { passed: *passed, failed: *failed, skipped: *skipped })
        }
        _ => None,
    }
}

/// Reads what `cargo test -- --show-output` prints: counts, tests that say `SKIPPED:`, and what failed tests say.
#[derive(Default)]
struct CargoOutput {
    counts: Counts,
    skipped_here: usize,
    in_failures: bool,
    section_counted: bool,
    recent: Vec<String>,
}

impl CargoOutput {
    /// Takes a line; returns what of it is worth showing.
    fn line(&mut self, line: &str) -> Option<String> {
        self.recent.push(line.to_owned());
        if self.recent.len() > 30 {
            self.recent.remove(0);
        }
        if let Some(result) = line.strip_prefix("test result: ") {
            self.result(result);
            return None;
        }
        match line {
            "failures:" => self.in_failures = true,
            "successes:" => self.in_failures = false,
            _ if line.starts_with("---- ") => self.section_counted = false,
            _ if line.trim_start().starts_with("SKIPPED:") && !self.in_failures => {
                if !self.section_counted {
                    self.skipped_here += 1;
                    self.section_counted = true;
                }
                return Some(line.trim().to_owned());
            }
            _ => {}
        }
        (self.in_failures && !line.is_empty()).then(|| line.to_owned())
    }

    fn result(&mut self, text: &str) {
        let number = |word: &str| {
            text.split("; ")
                .flat_map(|part| part.split(". "))
                .find_map(|part| part.trim().strip_suffix(word)?.trim().parse().ok())
        };
        let (passed, failed, ignored): (usize, usize, usize) =
            (number("passed").unwrap_or(0), number("failed").unwrap_or(0), number("ignored").unwrap_or(0));
        self.counts.add(Counts {
            passed: passed.saturating_sub(self.skipped_here),
            failed,
            skipped: ignored + self.skipped_here,
        });
        self.skipped_here = 0;
        self.in_failures = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_output_is_counted() {
        let text = "running 4 tests\n....\nsuccesses:\n\n---- a::b stdout ----\nSKIPPED: no root\nSKIPPED: no fuse\n\n---- c stdout ----\n\
                    talk\n\nsuccesses:\n    a::b\n\ntest result: ok. 4 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s\n\
                    failures:\n\n---- d stdout ----\npanicked here\n\nfailures:\n    d\n\ntest result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured\n";
        let mut reader = CargoOutput::default();
        let shown: Vec<String> = text.lines().filter_map(|line| reader.line(line)).collect();
        assert_eq!(reader.counts, Counts { passed: 5, failed: 1, skipped: 2 });
        assert!(shown.contains(&"panicked here".to_owned()) && shown.contains(&"SKIPPED: no root".to_owned()));
        assert!(!shown.contains(&"talk".to_owned()));
    }

    #[test]
    fn closing_lines() {
        assert_eq!(closing_line("3 passed, 1 failed, 0 skipped"), Some(Counts { passed: 3, failed: 1, skipped: 0 }));
        assert_eq!(closing_line("3 passed"), None);
        assert_eq!(closing_line("ok      files/a new file"), None);
    }
}

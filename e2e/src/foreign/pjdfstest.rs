//! A suite of what file systems owe to POSIX, from crates.io: each test is a run of its program.

use super::{Built, RUN_TEST, build, by_status, listed, shelf};
use crate::error::{Context, Error, Result};
use crate::process::{Ended, Outcome, Run};
use std::process::Command;

/// The release that is run.
const VERSION: &str = "0.2.2";
/// What this system offers of what it can test, and whom it may become.
const SETTINGS: &str = "[features]\nposix_fallocate = {}\nrename_ctime = {}\nutimensat = {}\nutime_now = {}\n\
    [settings]\nnaptime = 0.02\nallow_remount = false\nexpected_failures = []\n\
    [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"games\", \"games\"]]\n";
/// What its names begin with.
const PREFIX: &str = "pjdfstest::tests::";

/// Builds it once: some 400 tests.
pub fn pjdfstest() -> Result<Built> {
    let folder = shelf("pjdfstest").join("tree");
    let list = folder.join("tests.list");
    if !list.exists() {
        std::fs::create_dir_all(&folder).at("create", &folder)?;
        let install = format!("cargo install --quiet --locked --debug --root . --version {VERSION} pjdfstest");
        build(&folder, &format!("CARGO_TARGET_DIR={} {install}", shelf("pjdfstest").join("target").display()))?;
        let settings = folder.join("settings.toml");
        std::fs::write(&settings, SETTINGS).at("write", &settings)?;
        let top = folder.display();
        let script = format!("exec {top}/bin/pjdfstest -c {top}/settings.toml -p . -e \"{PREFIX}$1\"\n");
        let run_test = folder.join(RUN_TEST);
        std::fs::write(&run_test, script).at("write", &run_test)?;
        std::fs::write(&list, names(&folder)?).at("write", &list)?;
    }
    let tests = listed(&list)?;
    Ok(Built { folder, tests, setup: "", setup_each: None, judge })
}

/// The program has no list of its tests but that of a run.
fn names(folder: &std::path::Path) -> Result<String> {
    let scratch = crate::scratch::Scratch::new()?;
    let mut command = Command::new(folder.join("bin/pjdfstest"));
    command.arg("-c").arg(folder.join("settings.toml")).arg("-p").arg(scratch.path()).env("NO_COLOR", "1");
    let outcome = Run::new(command).within(super::BUILD_LIMIT).run()?;
    let text = outcome.text();
    let mut names: Vec<&str> = text.lines().filter_map(name_in).collect();
    names.sort_unstable();
    names.dedup();
    match names.is_empty() {
        true => Err(Error::Missing(format!("pjdfstest listed no tests: {}\n{}", outcome.ended, outcome.said()))),
        false => Ok(names.into_iter().map(|name| format!("{name}\n")).collect()),
    }
}

/// The test that a line of its output is about.
fn name_in(line: &str) -> Option<&str> {
    let (name, came) = line.split_once(' ')?;
    let came = came.trim();
    let is_verdict = matches!(came, "ok" | "FAILED" | "skipped");
    (is_verdict && name.contains("::")).then_some(name)
}

fn judge(outcome: &Outcome) -> String {
    let text = outcome.text();
    let came = text.lines().find(|line| name_in(line).is_some()).and_then(|line| line.split_whitespace().last());
    match (outcome.ended, came) {
        (Ended::TimedOut | Ended::Code(super::FAILED), _) => by_status(outcome),
        (_, Some("ok")) => "PASS".into(),
        (_, Some("skipped")) => "SKIP".into(),
        (_, Some(_)) => "FAIL".into(),
        (ended, None) => format!("ERROR ({ended})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tests() {
        assert_eq!(name_in("chmod::errno::enoent           ok"), Some("chmod::errno::enoent"));
        assert_eq!(name_in("\tSummary: 1 ok"), None);
        assert_eq!(name_in("chmod::x   1 passed"), None);
    }
}

//! The shell's own tests: scripts whose output is compared with what it was when the shell was released.

use super::{Built, RUN_TEST, build, by_status, shelf, unpack};
use crate::error::{Context, Result};
use crate::process::{Ended, Outcome};

/// The tests write into their folder.
const COPY: &str = "cp -R \"$TOP\"/tests/. .\n";

/// As `make tests` runs one, but for the file that its output goes to.
const SCRIPT: &str = "PATH=.:$PATH TMPDIR=/tmp THIS_SH=TOP/bash BUILD_DIR=TOP BASH_TSTOUT=$PWD/gleaner.out\n\
    export PATH TMPDIR THIS_SH BUILD_DIR BASH_TSTOUT\nunset SHELLOPTS BASH_ENV\nexec sh \"./$1\"\n";

/// Builds it once: some 80 tests.
pub fn bash() -> Result<Built> {
    let folder = shelf("bash").join("tree");
    let ready = folder.join(RUN_TEST);
    if !ready.exists() {
        unpack("bash", &folder)?;
        build(&folder, "./configure --quiet --disable-nls --without-bash-malloc")?;
        build(&folder, "make -s -j2 && make -s recho zecho printenv xcase && cp recho zecho printenv xcase tests/")?;
        build(&folder, "find . -name '*.[oa]' -delete; rm -rf doc po; strip bash")?;
        let script = SCRIPT.replace("TOP", &folder.to_string_lossy());
        std::fs::write(&ready, script).at("write", &ready)?;
    }
    let tests = folder.join("tests");
    let entries = std::fs::read_dir(&tests).at("list", &tests)?.flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut tests: Vec<String> = names.filter(|name| is_test(name)).collect();
    tests.sort();
    Ok(Built { folder, tests, setup: COPY, setup_each: None, judge })
}

fn is_test(name: &str) -> bool {
    name.starts_with("run-") && !["run-all", "run-minimal", "run-gprof"].contains(&name)
}

/// Some fail on any machine, by a few lines: a sum of these says whether they fail alike.
fn judge(outcome: &Outcome) -> String {
    let text = outcome.text();
    let lines: Vec<String> = text.lines().filter(|line| line.starts_with(['<', '>'])).map(unnumbered).collect();
    match outcome.ended {
        Ended::Code(0 | super::FAILED) | Ended::TimedOut => by_status(outcome),
        _ => format!(
            "FAIL by {} lines ({})",
            lines.len(),
            blake3::hash(lines.join("\n").as_bytes()).to_hex().split_at(6).0
        ),
    }
}

/// A line without the numbers in brackets: they are of processes.
fn unnumbered(line: &str) -> String {
    let mut parts = line.split('(');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push('(');
        text.push_str(part.trim_start_matches(|letter: char| letter.is_ascii_digit()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_processes_do_not_count() {
        assert_eq!(unnumbered("< terminal process group (711): 12 (x)"), "< terminal process group (): 12 (x)");
    }
}

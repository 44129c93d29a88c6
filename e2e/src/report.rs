//! Counts and prints results, one plain line each, and the closing line that `cargo xtask test` reads.

use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What came of one test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All agreed.
    Passed,
    /// What did not, one text each.
    Failed(Vec<String>),
    /// Why it could not run here.
    Skipped(String),
}

impl Verdict {
    /// Of what was found wrong, in words, or why nothing could be found.
    pub fn of(found: Result<Vec<String>>) -> Self {
        match found {
            Ok(wrong) if wrong.is_empty() => Self::Passed,
            Ok(wrong) => Self::Failed(wrong),
            Err(Error::Missing(why)) => Self::Skipped(why),
            Err(error) => Self::Failed(vec![error.to_string()]),
        }
    }
}

/// Collects verdicts from many threads.
#[derive(Debug)]
pub struct Report {
    inner: Mutex<Inner>,
    verbose: bool,
    started: Instant,
}

#[derive(Debug, Default)]
struct Inner {
    passed: usize,
    failed: Vec<String>,
    skipped: BTreeMap<String, usize>,
}

impl Report {
    /// An empty one; `verbose` prints passing tests as well.
    pub fn new(verbose: bool) -> Self {
        Self { inner: Mutex::default(), verbose, started: Instant::now() }
    }

    /// Adds a verdict and prints it where it matters.
    pub fn add(&self, name: &str, verdict: Verdict, took: Duration) {
        let mut inner = self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match verdict {
            Verdict::Passed => {
                inner.passed += 1;
                if self.verbose {
                    println!("ok      {name} ({:.2} s)", took.as_secs_f64());
                }
            }
            Verdict::Failed(why) => {
                println!("FAILED  {name} ({:.2} s)", took.as_secs_f64());
                for line in why.iter().flat_map(|text| text.lines()).take(40) {
                    println!("        {}", printable(line));
                }
                inner.failed.push(name.to_owned());
            }
            Verdict::Skipped(why) => {
                println!("SKIPPED: {name}: {why}");
                *inner.skipped.entry(why).or_default() += 1;
            }
        }
        let done = inner.passed + inner.failed.len();
        if std::io::stderr().is_terminal() && !self.verbose {
            eprint!("\r{done} done, {} failed ", inner.failed.len());
        }
    }

    /// Prints the closing line; true if nothing failed.
    pub fn close(&self) -> bool {
        let inner = self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if std::io::stderr().is_terminal() && !self.verbose {
            eprintln!();
        }
        let skipped: usize = inner.skipped.values().sum();
        for name in &inner.failed {
            println!("failed: {name}");
        }
        println!("suite took {:.1} s", self.started.elapsed().as_secs_f64());
        println!("{} passed, {} failed, {skipped} skipped", inner.passed, inner.failed.len());
        inner.failed.is_empty()
    }
}

/// The text with control characters made visible.
pub fn printable(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect::<Vec<_>>() } else { vec![c] }).collect()
}

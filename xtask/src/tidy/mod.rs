//! `cargo xtask tidy`: the rules of the house that a compiler does not check.

mod code;
mod layers;
mod map;
mod promises;
mod sources;

use crate::run;
use std::fmt;
use std::path::{Path, PathBuf};

/// One breach of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file, from the root of the tree.
    pub file: PathBuf,
    /// Line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// What is wrong, and what would be right.
    pub what: String,
    /// Whether it is only told.
    pub warning: bool,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.warning { "warning: " } else { "" };
        write!(f, "{}:{}: {kind}{}", self.file.display(), self.line, self.what)
    }
}

impl Finding {
    /// A breach that fails the check.
    pub fn error(file: &Path, line: usize, what: String) -> Self {
        Self { file: file.to_path_buf(), line, what, warning: false }
    }
}

/// Checks everything; an error if a rule is broken. `quick` leaves out the lints.
pub fn run(quick: bool) -> Result<(), String> {
    let root = run::root();
    let crates = layers::read(&root)?;
    let mut findings = layers::check(&crates);
    findings.extend(map::check(&root, &crates)?);
    findings.extend(promises::check(&root)?);
    for found in &crates {
        findings.extend(sources::check(&root, found)?);
    }
    findings.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    findings.iter().for_each(|finding| println!("{finding}"));
    let errors = findings.iter().filter(|finding| !finding.warning).count();
    let mut wrong = Vec::new();
    if errors > 0 {
        wrong.push(format!("{errors} rules broken"));
    }
    if !run::cargo(&["fmt", "--all", "--check"]).status().is_ok_and(|status| status.success()) {
        wrong.push("not formatted: run `cargo fmt --all`".to_owned());
    }
    let lints = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
    if !quick && !run::cargo(&lints).status().is_ok_and(|status| status.success()) {
        wrong.push("clippy has something to say".to_owned());
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

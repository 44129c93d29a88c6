//! Hub and worker as services: the packages' units under a systemd that runs, and a machine that goes to sleep.
//!
//! Each check is a script in `e2e/services`, and continues where the one before has left the machine. One ends with 0 where all is right,
//! with 1 where it is not, and with 77 where it cannot be tried.

use super::BOUND;
use crate::error::{Context, Result};
use crate::process::{Ended, Run};
use crate::report::{Report, Verdict};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long one may take, all its waits together.
const LIMIT: Duration = BOUND.saturating_mul(3);
/// What a script says that cannot be tried here.
const CANNOT: i32 = 77;
/// What the others use.
const HELPERS: &str = "helpers.sh";

/// Runs all scripts, in the order of their names, whatever the filter, if one of them is meant: each needs those before it.
pub fn run(filter: &str, report: &Report) -> Result<()> {
    let scripts = scripts()?;
    let name_of = |path: &Path| format!("services/{}", path.file_stem().unwrap_or_default().to_string_lossy());
    if !scripts.iter().any(|path| name_of(path).contains(filter)) {
        return Ok(());
    }
    for path in scripts {
        let started = Instant::now();
        let mut command = Command::new("bash");
        command.arg(&path);
        let verdict = Run::new(command).within(LIMIT).run().map(|outcome| match outcome.ended {
            Ended::Code(0) => Verdict::Passed,
            Ended::Code(CANNOT) => Verdict::Skipped(outcome.text()),
            _ => Verdict::Failed(vec![format!("{}\n{}{}", outcome.ended, outcome.text(), outcome.said())]),
        });
        let verdict = verdict.unwrap_or_else(|error| Verdict::Failed(vec![error.to_string()]));
        report.add(&name_of(&path), verdict, started.elapsed());
    }
    Ok(())
}

fn scripts() -> Result<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("services");
    let entries = std::fs::read_dir(&folder).at("list", &folder)?;
    let mut scripts: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    scripts.retain(|path| !path.ends_with(HELPERS));
    scripts.sort();
    Ok(scripts)
}

//! Scripts that are edited while a batch job waits: all its tasks see one state of them, or say what was changed.

use super::batch::{command, is_over, job, job_once, submit};
use crate::error::{Context, Error, Result};
use crate::pool::Pool;
use crate::process::{Run, pause, wait_for};
use crate::scenario::{END_BOUND, folder};
use std::path::Path;
use std::time::Duration;

/// Longer than clocks are apart.
const APART: Duration = Duration::from_millis(1500);

fn said(pool: &Pool, place: &Path, id: &str) -> Result<String> {
    let output = Run::new(command(pool, place, &["jobs", "output", id])).within(END_BOUND).run()?;
    Ok(output.text().trim().to_owned())
}

/// A held job begins when it is released; one that waits began when it was submitted.
pub fn scripts(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "edited")?;
    let mut wrong = Vec::new();
    let write = |name: &str, text: &str| std::fs::write(place.join(name), text).at("write", &place);
    write("held.sh", "echo old\n")?;
    write("go", "")?;
    write("late.sh", "echo old\n")?;
    pause(APART);
    let held = submit(pool, &place, &["--hold", "--", "sh", "held.sh"])?;
    pause(APART);
    write("held.sh", "echo new\n")?;
    Run::new(command(pool, &place, &["release", &held])).within(END_BOUND).run()?.expect_ok("gleaner release")?;
    let report = job_once(pool, &held, is_over)?;
    if report["job"]["state"] != "done" || said(pool, &place, &held)? != "new" {
        wrong.push(format!("a held job begins when it is released: {report}"));
    }
    // One after the other: the second uses its script long after the start.
    let cpus = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let first = "touch begun; sleep 3.19";
    let lines = format!(
        "{{\"argv\": [\"sh\", \"-c\", \"{first}\"]}}\n{{\"argv\": [\"sh\", \"-c\", \"sleep 3.21; . ./late.sh; touch made\"]}}\n"
    );
    write("lines", &lines)?;
    let late = submit(pool, &place, &["--cpus", &cpus, "lines"])?;
    if wait_for(END_BOUND, || (crate::scenario::guests(pool, "sleep\u{0}3.") > 0).then_some(())).is_none() {
        return Err(Error::Product("no task runs".to_owned()));
    }
    write("late.sh", "echo new\n")?;
    let report = job_once(pool, &late, is_over)?;
    let (task, text) = (&report["tasks"][1], said(pool, &place, &late)?);
    let why = task["why"].as_str().unwrap_or_default();
    let is_told = !why.is_empty() && why.contains("late.sh changed after the job had started");
    if !is_told || task["status"] == "exit 0" || place.join("made").exists() || text.contains("new") {
        wrong.push(format!("what was changed is told, and not run: {text:?}, {}", job(pool, &late)?));
    }
    // The list of commands was read when it was submitted.
    write("list", "sleep 1\necho two\n")?;
    let listed = submit(pool, &place, &["list"])?;
    write("list", "echo three\n")?;
    let report = job_once(pool, &listed, is_over)?;
    if report["job"]["done"] != 2 || said(pool, &place, &listed)? != "two" {
        wrong.push(format!("the commands are those that were submitted: {report}"));
    }
    Ok(wrong)
}

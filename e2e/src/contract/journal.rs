//! The hub's journal in its operator's hands: examined beside the hub and without it, damaged, cut down, and gone on with.

use super::batch;
use crate::error::{Context, Result};
use crate::pool::Pool;
use crate::process::{Ended, Outcome};
use crate::scenario::folder;
use serde_json::Value;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// How long the hub may take to end.
const STOP_BOUND: Duration = Duration::from_secs(15);
/// The status of `verify` if something is wrong, and of what cannot be done now.
const UNSOUND: Ended = Ended::Code(65);
const UNAVAILABLE: Ended = Ended::Code(69);

/// What `gleaner journal verify` says, and how it ends.
fn verify(pool: &Pool) -> Result<(Outcome, Value)> {
    let outcome = pool.owner.gleaner(&["journal", "verify", "--json"])?;
    let told = serde_json::from_str(&outcome.text()).unwrap_or_default();
    Ok((outcome, told))
}

/// Flips a bit of a file.
fn flip(path: &Path, at: u64) -> Result<()> {
    let file = std::fs::File::options().read(true).write(true).open(path).at("open", path)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).at("read", path)?;
    file.write_all_at(&[byte[0] ^ 1], at).at("write", path)
}

/// A hub with jobs runs, is stopped, and goes on; its journal is looked at, damaged and pruned meanwhile.
pub fn kept_in_order(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let place = folder(pool, "journal")?;
    let held = batch::submit(pool, &place, &["--hold", "--", "touch", "released"])?;
    for outcome in [pool.owner.gleaner(&["journal", "prune"])?, pool.owner.gleaner(&["journal", "upgrade"])?] {
        if outcome.ended != UNAVAILABLE || !outcome.said().contains("in use by another process") {
            wrong.push(format!("a hub has the journal: {}, {}", outcome.ended, outcome.said()));
        }
    }
    let (outcome, told) = verify(pool)?;
    if !outcome.ok() || told["sound"] != true || told["starts"] != true || told["replayed"] == 0 {
        wrong.push(format!("beside its hub: {}, {told}, {}", outcome.ended, outcome.said()));
    }
    if !pool.hub.stop(STOP_BOUND) {
        wrong.push("the hub does not end".to_owned());
    }
    let (outcome, told) = verify(pool)?;
    if !outcome.ok() || told["sound"] != true || told["starts"] != true || told["replayed"] != 0 {
        wrong.push(format!("a stopped hub's is sound: {}, {told}, {}", outcome.ended, outcome.said()));
    }
    let segment = told["segments"][0]["file"].as_str().unwrap_or_default().to_owned();
    // Within the first batch, which begins at 512.
    flip(Path::new(&segment), 560)?;
    let (outcome, told) = verify(pool)?;
    let found = &told["wrong"][0];
    if outcome.ended != UNSOUND || found["file"] != segment.as_str() || found["offset"] != 512 {
        wrong.push(format!("a flipped bit is found: {}, {told}", outcome.ended));
    }
    flip(Path::new(&segment), 560)?;
    let before = told["bytes"].as_u64().unwrap_or_default();
    pool.owner.gleaner(&["journal", "prune"])?.expect_ok("gleaner journal prune")?;
    let (outcome, told) = verify(pool)?;
    if !outcome.ok() || told["bytes"].as_u64().is_none_or(|bytes| bytes == 0 || bytes >= before) {
        wrong.push(format!("pruned it is sound and smaller than {before}: {}, {told}", outcome.ended));
    }
    let check = pool.owner.gleaner(&["journal", "upgrade", "--check"])?;
    if !check.ok() || !check.text().contains("nothing to do") {
        wrong.push(format!("there is nothing to upgrade: {}, {}", check.text(), check.said()));
    }
    pool.restart_hub()?;
    pool.wait_for_workers(pool.workers.len())?;
    pool.client.gleaner(&["release", &held])?.expect_ok("gleaner release")?;
    let report = batch::job_once(pool, &held, batch::is_over)?;
    if report["job"]["done"] != 1 || !place.join("released").exists() {
        wrong.push(format!("the hub goes on with its jobs: {report}"));
    }
    Ok(wrong)
}

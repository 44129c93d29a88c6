//! The machine's clock is set while commands run: an hour on, and two hours back.

use super::{BOUND, Guest};
use crate::error::{Context, Result};
use crate::pool::Pool;
use crate::process::{Ended, Run};
use crate::scenario::folder;
use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};
use std::path::Path;

/// By how much it is set on or back each time, in seconds.
const SETS: [i64; 2] = [3600, -7200];
/// A guest's work that takes ten seconds by any clock, and then leaves a file.
const WORK: &str = "select(undef, undef, undef, 0.5) for 1..20; open F, '>', 'done' or die; print F 'done'";

/// Sets the clock right when it is dropped: certificates, logs and other tests are of one time.
struct Moved(i64);

impl Moved {
    fn by(&mut self, seconds: i64) -> Result<()> {
        let now = clock_gettime(ClockId::Realtime);
        let then = Timespec { tv_sec: now.tv_sec + seconds, ..now };
        clock_settime(ClockId::Realtime, then).context(|| "cannot set the clock".to_owned())?;
        self.0 += seconds;
        Ok(())
    }
}

impl Drop for Moved {
    fn drop(&mut self) {
        let _ = self.by(-self.0);
    }
}

/// A guest runs meanwhile, and others read what was written before and after.
pub fn set(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let mut moved = Moved(0);
    for (seconds, name) in SETS.into_iter().zip(["on", "back"]) {
        let (mut guest, _) = Guest::start(pool, name, WORK)?;
        moved.by(seconds)?;
        let place = folder(pool, "clock")?;
        for text in ["one", "other"] {
            // Written again within the same second, and of the same length if it is cut.
            wrong.extend(copied(pool, &place, &format!("{name} {text}"))?.map(|why| format!("set {name}: {why}")));
        }
        let ended = guest.ended();
        if ended != Some(Ended::Code(0)) || !pool.place(&format!("{name}/done")).exists() {
            wrong.push(format!("set {name}: the guest that ran meanwhile: {ended:?}"));
        }
    }
    Ok(wrong)
}

/// What is wrong with a copy, made elsewhere, of what was written here just now.
fn copied(pool: &Pool, place: &Path, text: &str) -> Result<Option<String>> {
    std::fs::write(place.join("in"), text).at("write", place)?;
    let mut command = pool.client.remrun(&["--no-local", "cp", "in", "out"]);
    command.current_dir(place);
    let outcome = Run { limit: BOUND, ..Run::new(command) }.run()?;
    let out = std::fs::read_to_string(place.join("out")).unwrap_or_default();
    Ok((!outcome.ok() || out != text).then(|| format!("{text:?} was copied as {out:?}: {}", outcome.said())))
}

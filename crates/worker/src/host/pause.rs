//! The owner's word that guests are to rest. It holds for as long as he has said, also if the worker or the machine starts again meanwhile: it is
//! kept in the worker's folder.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The file's name in the worker's folder: a line with its begin and, unless it has none, its end, in seconds since 1970.
const NAME: &str = "paused";
/// And while it is written.
const NEW: &str = "paused.new";

/// A pause.
#[derive(Clone, Copy, Debug)]
pub struct Paused {
    since: Instant,
    until: Option<Instant>,
}

impl Paused {
    /// One that begins now; without `for_s`, in seconds, it has no end.
    pub fn begin(for_s: Option<f64>) -> Self {
        let since = Instant::now();
        let until = for_s.and_then(|for_s| Duration::try_from_secs_f64(for_s).ok());
        Self { since, until: until.and_then(|time| since.checked_add(time)) }
    }

    /// The one that an earlier worker in `folder` was told of, if it has not ended. What cannot be read is one without an end: its owner has
    /// said that he wants the machine for himself.
    pub fn kept(folder: &Path) -> Option<Self> {
        let text = match fs::read_to_string(folder.join(NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            read => read.unwrap_or_default(),
        };
        let now = (Instant::now(), SystemTime::now());
        let mut times = text.split_whitespace().map(|time| at(time.parse().ok()?, now));
        let (since, until) = (times.next().flatten().unwrap_or(now.0), times.next().flatten());
        let paused = Self { since: since.min(now.0), until };
        if paused.has_ended(now.0) {
            let _ = Self::forget(folder);
            return None;
        }
        Some(paused)
    }

    /// Keeps it in `folder`, in place of an earlier one.
    pub fn keep(&self, folder: &Path) -> io::Result<()> {
        let now = (Instant::now(), SystemTime::now());
        let times = [Some(self.since), self.until].into_iter().flatten();
        let text: Vec<String> = times.map(|time| seconds(time, now).to_string()).collect();
        let new = folder.join(NEW);
        // Not synced: who keeps it must not wait for the disk.
        fs::write(&new, text.join(" ") + "\n")?;
        fs::rename(new, folder.join(NAME))
    }

    /// None is kept in `folder` any more.
    pub fn forget(folder: &Path) -> io::Result<()> {
        match fs::remove_file(folder.join(NAME)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether it is over at `now`.
    pub fn has_ended(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now >= until)
    }

    /// How long it has lasted.
    pub fn lasted(&self) -> Duration {
        self.since.elapsed()
    }

    /// How long it still lasts, if it has an end.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        self.until.map(|until| until.saturating_duration_since(now))
    }
}

/// A moment by the clock on the wall, in seconds since 1970.
fn seconds(moment: Instant, (now, wall): (Instant, SystemTime)) -> f64 {
    let (ago, ahead) = (now.saturating_duration_since(moment), moment.saturating_duration_since(now));
    wall.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64() - ago.as_secs_f64() + ahead.as_secs_f64()
}

/// The reverse; none where the clock of this start of the machine does not reach.
fn at(seconds: f64, (now, wall): (Instant, SystemTime)) -> Option<Instant> {
    let ahead = seconds - wall.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let by = Duration::try_from_secs_f64(ahead.abs()).ok()?;
    if ahead < 0.0 { Some(now.checked_sub(by).unwrap_or(now)) } else { now.checked_add(by) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: Duration, b: f64) -> bool {
        (a.as_secs_f64() - b).abs() < 5.0
    }

    #[test]
    fn a_pause_outlives_the_worker() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        let kept = || Paused::kept(folder);
        let now = Instant::now();
        assert!(kept().is_none());
        Paused::begin(Some(600.0)).keep(folder).expect("kept");
        assert!(kept().and_then(|paused| paused.left(now)).is_some_and(|left| close(left, 600.0)));
        Paused::begin(None).keep(folder).expect("kept");
        assert!(kept().is_some_and(|paused| paused.left(now).is_none() && close(paused.lasted(), 0.0)));
        assert_eq!(fs::read_dir(folder).expect("a folder").count(), 1);
        Paused::forget(folder).expect("forgotten");
        Paused::forget(folder).expect("it is");
        assert!(kept().is_none());
    }

    #[test]
    fn times_are_by_the_clock_on_the_wall_and_what_cannot_be_read_has_no_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let said = |text: &str| {
            fs::write(folder.path().join(NAME), text).expect("a file");
            Paused::kept(folder.path())
        };
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs_f64();
        assert!(said(&format!("{} {}\n", wall - 20.0, wall - 10.0)).is_none(), "it is over");
        assert!(!folder.path().join(NAME).exists());
        let paused = said(&format!("{} {}\n", wall - 20.0, wall + 100.0)).expect("it is not");
        assert!(close(paused.lasted(), 20.0) && paused.left(Instant::now()).is_some_and(|left| close(left, 100.0)));
        for text in ["", "x", "NaN -1e300x", "-1e30", "1e300"] {
            assert!(said(text).is_some_and(|paused| paused.left(Instant::now()).is_none()), "{text}");
        }
    }
}

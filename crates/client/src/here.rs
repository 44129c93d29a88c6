//! What runs on this machine by our word: how long it takes, for the next time, and how busy the machine is.
//!
//! A command that is to run here is `remrun` itself, become that command: the daemon watches the process until its end, which costs
//! the command nothing.

use crate::choice::crowding;
use crate::history::{History, Kind};
use rustix::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Processes that are watched at once; of more, nothing is learnt.
const WATCHED_MAX: u32 = 512;
/// A process is watched for this long at most: what takes longer is long enough.
const WATCHED_TIME_MAX: Duration = Duration::from_secs(3600);

/// The commands that run here by our word.
#[derive(Debug)]
pub struct Here {
    history: Arc<History>,
    running: AtomicU32,
}

impl Here {
    /// None yet.
    pub fn new(history: Arc<History>) -> Arc<Self> {
        Arc::new(Self { history, running: AtomicU32::new(0) })
    }

    /// Watches a process that now becomes a command of this kind, and learns how long that takes.
    pub fn watch(self: &Arc<Self>, kind: Kind, process: OwnedFd) {
        let (begun, crowding) = (Instant::now(), self.crowding(1));
        if self.running.fetch_add(1, Ordering::Relaxed) >= WATCHED_MAX {
            self.running.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let here = self.clone();
        tokio::spawn(async move {
            let ended = async {
                // Readable once the process has ended.
                // SAFETY: the descriptor is open, and owned by the AsyncFd, which nobody else has.
                let process = unsafe { AsyncFd::register_with_interest(process, Interest::READABLE) }?;
                process.readable().await.map(drop)
            };
            let ended = tokio::time::timeout(WATCHED_TIME_MAX, ended).await;
            here.running.fetch_sub(1, Ordering::Relaxed);
            if !matches!(ended, Ok(Err(_))) {
                // What is known is what it takes on an idle machine: how busy this one is the next time is seen then. Only what it computes
                // was made longer.
                let took_us = begun.elapsed().as_micros() as f64;
                let cpu_us = here.history.expected(&kind).map_or(0.0, |expected| expected.cpu_us);
                let idle_us = (took_us - cpu_us * (crowding - 1.0)).max(took_us / crowding);
                here.history.ran_here(&kind, idle_us as u64);
            }
        });
    }

    /// How many times longer a command that asks for so many CPUs takes here than on an idle machine.
    pub fn crowding(&self, wanted: u32) -> f64 {
        let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
        crowding(self.runnable(), wanted, cpus)
    }

    /// How many processes or threads want a CPU of this machine, as far as is known. Commands that have just been sent here may not
    /// have begun yet, so that they are counted as well.
    pub fn runnable(&self) -> u32 {
        let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let others = runnable_in(&text).unwrap_or(0);
        others.max(self.running.load(Ordering::Relaxed))
    }
}

/// From the text of `/proc/loadavg`: those that want a CPU, without the one that reads it.
fn runnable_in(text: &str) -> Option<u32> {
    let (runnable, _) = text.split_whitespace().nth(3)?.split_once('/')?;
    runnable.parse::<u32>().ok().map(|count| count.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::ViewKey;
    use base::TreePath;
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    #[test]
    fn load_is_read() {
        assert_eq!(runnable_in("0.20 0.18 0.12 3/812 11206\n"), Some(2));
        assert_eq!(runnable_in("0.20 0.18 0.12 0/812 11206\n"), Some(0));
        assert_eq!(runnable_in("odd"), None);
    }

    #[tokio::test]
    async fn what_runs_here_is_timed_from_outside() {
        let folder = tempfile::tempdir().unwrap();
        let history = Arc::new(History::load(&folder.path().join("history.json")));
        let here = Here::new(history.clone());
        let key = ViewKey { program: TreePath::root(), variant: None };
        let kind = Kind::new(&key, &[], b"/", 0);
        (0..3).for_each(|_| history.ran_there(&kind, &Default::default()));
        let mut child = std::process::Command::new("sleep").arg("0.05").spawn().unwrap();
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        here.watch(kind, process);
        assert_eq!(here.running.load(Ordering::Relaxed), 1);
        let learnt = async {
            loop {
                tokio::time::sleep(Duration::from_millis(5)).await;
                if let Some(took) = history.expected(&kind).and_then(|expected| expected.here_us) {
                    break took;
                }
            }
        };
        let took = tokio::time::timeout(Duration::from_secs(10), learnt).await.expect("it ends");
        child.wait().unwrap();
        assert!((20_000.0..5_000_000.0).contains(&took), "{took}");
        assert_eq!(here.running.load(Ordering::Relaxed), 0);
    }
}

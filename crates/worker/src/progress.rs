//! How far a task has come: processor time that it has had, and how long it waited for more, by the accounts of its control group.
//!
//! Its client learns from it that a task is late, and why, while it runs.

use crate::host::guests::Guests;
use crate::sandbox::{Levers, wants_processor};
use rustix::process::Pid;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::message::Progress;

/// When a task that has begun is looked at, and from then on each time after as long: somebody waits for the shortest. The first time
/// before its client, which hears nothing while its program waits for its files, takes it for late.
const FIRST: [Duration; 5] = [
    Duration::from_millis(25),
    Duration::from_millis(60),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
];
const EVERY: Duration = Duration::from_secs(1);
/// Threads of a task that are looked at, where the kernel does not count the waiting of a group.
const THREADS_MAX: usize = 64;

/// The accounts of one task.
#[derive(Debug)]
pub struct Accounts {
    levers: Levers,
    guests: Option<Arc<Guests>>,
    group: String,
    since: Instant,
    /// What its group had used, and waited, before it came: groups are used again.
    used_before: Duration,
    waited_before: Duration,
    waited: Duration,
    looks: usize,
}

impl Accounts {
    /// Of a task that has just been given this group. `guests`: it is one of these, and rests when they do.
    pub fn begin(levers: Levers, group: String, guests: Option<Arc<Guests>>) -> Self {
        let used_before = levers.cpu_used_by(&group).unwrap_or_default();
        let waited_before = levers.waited_by(&group).unwrap_or_default();
        let (since, waited) = (Instant::now(), Duration::ZERO);
        Self { levers, guests, group, since, used_before, waited_before, waited, looks: 0 }
    }

    /// When to look next. `None`: there are no accounts here.
    pub fn next(&self) -> Option<Instant> {
        let last = FIRST[FIRST.len() - 1];
        let later = || last + EVERY * (self.looks - FIRST.len() + 1) as u32;
        (!self.group.is_empty()).then(|| self.since + FIRST.get(self.looks).copied().unwrap_or_else(later))
    }

    /// Waits until then.
    pub async fn due(&self) {
        wire::until(self.next()).await;
    }

    /// Looks; `None` if nothing is counted here.
    pub fn look(&mut self) -> Option<Progress> {
        // After a look that came late, no others are made up for.
        self.looks += 1;
        while self.next().is_some_and(|next| next < Instant::now()) {
            self.looks += 1;
        }
        let used = self.used()?;
        let waited = match self.levers.waited_by(&self.group) {
            Some(waited) => waited.saturating_sub(self.waited_before),
            None => self.threads_waited(),
        };
        self.waited = self.waited.max(waited);
        Some(Progress {
            ran_us: self.since.elapsed().as_micros() as u64,
            cpu_us: used.as_micros() as u64,
            waited_us: self.waited.as_micros() as u64,
            rests: self.guests.as_ref().map(|guests| guests.why_resting()).unwrap_or_default(),
        })
    }

    /// The processor time that it has had; `None` if nothing is counted here.
    pub fn used(&self) -> Option<Duration> {
        Some(self.levers.cpu_used_by(&self.group)?.saturating_sub(self.used_before))
    }

    /// Threads that are ready to run at this moment.
    pub fn ready(&self) -> Vec<Pid> {
        let mut threads = self.levers.threads_of(&self.group, THREADS_MAX);
        threads.retain(|thread| wants_processor(thread.as_raw_nonzero().get() as u32));
        threads
    }

    /// For how long threads that are there now were ready and waited, the longest of them.
    fn threads_waited(&self) -> Duration {
        let threads = self.levers.threads_of(&self.group, THREADS_MAX);
        let waited = threads.into_iter().filter_map(|thread| {
            let stat = std::fs::read_to_string(format!("/proc/{}/schedstat", thread.as_raw_nonzero())).ok()?;
            stat.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
        });
        waited.max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_task_had_and_waited_is_told_without_what_was_before_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let group = folder.path().join("task0");
        std::fs::create_dir(&group).expect("a folder");
        let write = |used_us: u64, waited_us: u64| {
            std::fs::write(group.join("cpu.stat"), format!("usage_usec {used_us}\n")).expect("written");
            let pressure =
                format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={waited_us}\nfull avg10=0.00 total=0\n");
            std::fs::write(group.join("cpu.pressure"), pressure).expect("written");
        };
        write(5_000, 7_000);
        let guests = Arc::new(Guests::default());
        let levers = Levers::over(folder.path().to_owned());
        let mut accounts = Accounts::begin(levers, "task0".into(), Some(guests.clone()));
        let first = accounts.next().expect("there are accounts");
        assert!(first - accounts.since <= Duration::from_millis(30), "before its client takes it for late");
        write(25_000, 107_000);
        let told = accounts.look().expect("they are read");
        assert_eq!((told.cpu_us, told.waited_us, told.rests.as_str()), (20_000, 100_000, ""));
        assert!(accounts.next().expect("there are accounts") > first);
        guests.rest("paused by its owner");
        assert_eq!(accounts.look().expect("they are read").rests, "paused by its owner");
        let none = Accounts::begin(Levers::default(), String::new(), None);
        assert!(none.next().is_none());
    }
}

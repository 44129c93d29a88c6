//! The tasks that run here now: what is known of each, and the way to have it end because the owner needs its place.

use crate::cpus::Share;
use base::TaskId;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};
use wire::lock;
use wire::message::{Failed, Resting, is_ending};

/// For how long a task that was sent a signal gets the processor as others do: to end takes processor time, of which the lowest priority gets
/// next to none while the owner works.
const HURRY: Duration = Duration::from_secs(2);
/// And how soon again.
const HURRY_AGAIN: Duration = Duration::from_secs(60);
/// A task that rests is told so again after this: there may be a better place by then.
const REMIND: Duration = Duration::from_secs(5);

/// All tasks that run.
#[derive(Debug, Default)]
pub struct Guests {
    table: Mutex<Table>,
    /// Wakes who looks after them.
    wake: OnceLock<OwnedFd>,
}

#[derive(Debug, Default)]
struct Table {
    /// Why none of them runs; empty: they may.
    rests: String,
    next: u64,
    present: BTreeMap<u64, Present>,
}

#[derive(Debug)]
struct Present {
    known: Known,
    /// Says why it must go.
    evict: Option<oneshot::Sender<Failed>>,
    /// When it was last sent a signal that hurried it.
    hurried: Option<Instant>,
    /// Its client wants it to end.
    is_unwanted: bool,
    /// Says why it rests, while it does.
    rests: watch::Sender<Option<String>>,
}

/// One task that runs.
#[derive(Clone, Debug)]
pub struct Known {
    /// By which it is evicted.
    pub number: u64,
    /// Its name at the hub.
    pub task: TaskId,
    /// What it runs, for a person.
    pub program: String,
    /// Its control group; empty: it has none of its own.
    pub group: String,
    /// Folder of what it writes.
    pub scratch: std::path::PathBuf,
    /// The processors that it is to use.
    pub cpus: Arc<Share>,
    /// When it came.
    pub since: Instant,
    /// What its control group had used before it came: groups are used again.
    pub used_before: Duration,
    /// It was told to end.
    pub is_leaving: bool,
}

/// A task's stay, until this is dropped.
#[derive(Debug)]
pub struct Stay {
    guests: Arc<Guests>,
    number: u64,
    rests: Rests,
}

/// Whether a task rests.
#[derive(Debug)]
struct Rests {
    told: watch::Receiver<Option<String>>,
    /// When it is told the next time.
    next: Instant,
}

impl Guests {
    /// A task has begun. The second part is told if it must go, and why.
    pub fn arrive(self: &Arc<Self>, known: Known) -> (Stay, oneshot::Receiver<Failed>) {
        let (evict, told) = oneshot::channel();
        let rests = watch::Sender::new(None);
        let stays = Rests { told: rests.subscribe(), next: Instant::now() };
        let mut table = lock(&self.table);
        let number = table.next;
        table.next += 1;
        let known = Known { number, ..known };
        table.present.insert(number, Present { known, evict: Some(evict), hurried: None, is_unwanted: false, rests });
        (Stay { guests: self.clone(), number, rests: stays }, told)
    }

    /// Who looks after them is woken by this event from now on.
    pub fn woken_by(&self, event: OwnedFd) {
        let _ = self.wake.set(event);
    }

    /// Has who looks after them look now.
    pub fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
        }
    }

    /// Those that are to end soon: told to end, or sent a signal just now.
    pub fn hurrying(&self) -> Vec<Known> {
        let hurries = |present: &&Present| {
            present.known.is_leaving || present.hurried.is_some_and(|hurried| hurried.elapsed() < HURRY)
        };
        lock(&self.table).present.values().filter(hurries).map(|present| present.known.clone()).collect()
    }

    /// All are to end soon.
    pub fn hurry_all(&self) {
        let now = Some(Instant::now());
        lock(&self.table).present.values_mut().for_each(|present| present.hurried = now);
        self.wake();
    }

    /// Those whose clients want them to end.
    pub fn unwanted(&self) -> Vec<Known> {
        let table = lock(&self.table);
        let unwanted = table.present.values().filter(|present| present.is_unwanted && !present.known.is_leaving);
        unwanted.map(|present| present.known.clone()).collect()
    }

    /// Says to one why it rests, or that it does not. One that is leaving has been told why, and is told no more.
    pub fn offer(&self, number: u64, why: Option<String>) {
        if let Some(present) = lock(&self.table).present.get(&number) {
            let why = why.filter(|_| !present.known.is_leaving);
            present.rests.send_if_modified(|told| std::mem::replace(told, why.clone()) != why);
        }
    }

    /// Says why none of them runs now, or that they may.
    pub fn rest(&self, why: &str) {
        let mut table = lock(&self.table);
        if table.rests != why {
            table.rests = why.to_owned();
        }
    }

    /// Why none of them runs now; empty: they may.
    pub fn why_resting(&self) -> String {
        lock(&self.table).rests.clone()
    }

    /// All that are here, the longest first.
    pub fn list(&self) -> Vec<Known> {
        lock(&self.table).present.values().map(|present| present.known.clone()).collect()
    }

    /// Whether some were told to end and are still here.
    pub fn are_leaving(&self) -> bool {
        lock(&self.table).present.values().any(|present| present.known.is_leaving)
    }

    /// How many are here.
    pub fn count(&self) -> usize {
        lock(&self.table).present.len()
    }

    /// Has one end, to be done elsewhere; `why` is what its client is told. False: it is gone, or on its way.
    pub fn evict(&self, number: u64, why: Failed) -> bool {
        let mut table = lock(&self.table);
        let Some(present) = table.present.get_mut(&number) else { return false };
        present.known.is_leaving = true;
        present.evict.take().is_some_and(|evict| evict.send(why).is_ok())
    }
}

impl Stay {
    /// Its client has sent it a signal.
    pub fn signalled(&self, signal: u32) {
        self.change(|present| {
            if present.hurried.is_none_or(|hurried| hurried.elapsed() > HURRY_AGAIN) {
                present.hurried = Some(Instant::now());
            }
            present.is_unwanted |= is_ending(signal);
        });
    }

    /// It was killed.
    pub fn leaves(&self) {
        self.change(|present| present.known.is_leaving = true);
    }

    fn change(&self, change: impl FnOnce(&mut Present)) {
        if let Some(present) = lock(&self.guests.table).present.get_mut(&self.number) {
            change(present);
        }
        self.guests.wake();
    }

    /// Waits until it is to be said that it rests: when it begins to, and now and then while it does.
    pub async fn rests(&mut self) -> Resting {
        let Rests { told, next } = &mut self.rests;
        loop {
            let why = told.borrow_and_update().clone();
            let now = Instant::now();
            match why {
                Some(why) if now >= *next => {
                    *next = now + REMIND;
                    return Resting { why, elsewhere: false };
                }
                Some(_) => drop(tokio::time::timeout_at((*next).into(), told.changed()).await),
                None => {
                    *next = now;
                    if told.changed().await.is_err() {
                        return std::future::pending().await;
                    }
                }
            }
        }
    }
}

/// The same of a task that may be no guest.
pub async fn rests(stay: &mut Option<Stay>) -> Resting {
    match stay {
        Some(stay) => stay.rests().await,
        None => std::future::pending().await,
    }
}

/// What a guest is told; nothing, ever, if it is none.
pub async fn told(evicted: &mut Option<oneshot::Receiver<Failed>>) -> Result<Failed, oneshot::error::RecvError> {
    match evicted {
        Some(evicted) => evicted.await,
        None => std::future::pending().await,
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        lock(&self.guests.table).present.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpus::Cpus;
    use wire::message::FailedKind;

    fn known() -> Known {
        Known {
            number: 0,
            task: TaskId(7),
            program: "cc".into(),
            group: String::new(),
            scratch: "/nowhere".into(),
            cpus: Arc::new(Cpus::new([0]).take(1)),
            since: Instant::now(),
            used_before: Duration::ZERO,
            is_leaving: false,
        }
    }

    #[tokio::test]
    async fn a_guest_is_told_that_it_rests_once_and_then_now_and_then() {
        let guests = Arc::new(Guests::default());
        let (mut stay, _evicted) = guests.arrive(known());
        let soon = Duration::from_millis(20);
        assert!(tokio::time::timeout(soon, stay.rests()).await.is_err(), "it runs");
        guests.offer(stay.number, Some("paused".into()));
        assert_eq!(stay.rests().await.why, "paused");
        assert!(tokio::time::timeout(soon, stay.rests()).await.is_err(), "it was told");
        guests.offer(stay.number, None);
        assert!(tokio::time::timeout(soon, stay.rests()).await.is_err(), "it runs again");
        guests.offer(stay.number, Some("battery".into()));
        assert_eq!(stay.rests().await.why, "battery");
        guests.offer(stay.number, None);
        assert!(guests.evict(stay.number, FailedKind::Evicted.because("its owner wants it")));
        guests.offer(stay.number, Some("paused".into()));
        assert!(tokio::time::timeout(soon, stay.rests()).await.is_err(), "it has been told why it leaves");
    }

    #[test]
    fn who_is_to_end_hurries_for_a_while() {
        let guests = Arc::new(Guests::default());
        let (stay, _evicted) = guests.arrive(known());
        assert!(guests.hurrying().is_empty());
        stay.signalled(10);
        assert_eq!((guests.hurrying().len(), guests.unwanted().len()), (1, 0));
        stay.signalled(15);
        assert_eq!(guests.unwanted().len(), 1);
        let (_other, _told) = guests.arrive(known());
        assert_eq!(guests.hurrying().len(), 1);
        guests.hurry_all();
        assert_eq!(guests.hurrying().len(), 2);
        stay.leaves();
        assert_eq!((guests.hurrying().len(), guests.unwanted().len()), (2, 0), "it is on its way");
    }
}

//! This machine, and what its owner is spared: guests have the lowest priority in everything, and rest or leave when he needs what they have.
//!
//! Five threads of normal priority, so that they are heard however busy the machine is; none waits for another, nor for the rest of the worker:
//!
//! * [`keeper`] decides, twenty times a second where memory is short: freezes guests and lets them go on, bounds their memory, ends them, or lets
//!   them begin again where they would end sooner ([`lingering`]); answers the owner ([`control`]), whose word holds beyond this process ([`pause`]).
//! * [`pacer`] does what takes time: writes guests' files, and what the worker keeps for them ([`crate::backlog`]), to disk piece by piece and has the
//!   disk keep them ([`flushes`]); drops their cache.
//! * [`brake`] stops guests that write faster than that.
//! * [`watcher`] looks every ten seconds whether the owner is there ([`presence`]), how the machine is ([`conditions`]), and what it has to spare, now and soon
//!   ([`sensing`], from [`counters`]).
//! * [`yielder`] looks some times a second, while guests are here, whether the owner has work for all processors; and whether guests wait for one while
//!   another is idle ([`mover`]).
//!
//! What they go by is pure: `sched::memory`, `sched::presence`, `sched::rest`, `sched::linger`, `sched::aside`. Processor time is the scheduler's business: guests are in a
//! group with `cpu.idle` (`sandbox/cgroup.rs`); here it is seen to that they stay so.

pub mod bounds;
pub mod brake;
pub mod conditions;
pub mod control;
pub mod counters;
pub mod flushes;
pub mod guests;
pub mod keeper;
pub mod lingering;
pub mod memory;
pub mod mover;
pub mod pacer;
pub mod pause;
pub mod presence;
pub mod say;
pub mod sensing;
pub mod watcher;
pub mod yielder;

use crate::backlog::Backlog;
use crate::cpus::Cpus;
use crate::sandbox::Levers;
use brake::Brake;
use guests::{Guests, Known};
use lingering::Elsewhere;
use rustix::event::{EventfdFlags, PollFd};
use rustix::time::Timespec;
use sched::aside::Look;
use sched::linger::outlook::Outlook;
use sched::memory::Marks;
use sched::recent::{Fared, Recent};
use sched::rest::{Reason, Rules};
use sensing::Sensing;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use wire::lock;
use wire::message::Expected;

/// What the owner wants.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The worker's folder: there is the door for the owner.
    pub folder: PathBuf,
    /// CPUs lent.
    pub cpus: u32,
    /// When guests rest.
    pub rules: Rules,
    /// Memory that guests leave free, in bytes; `None`: a tenth of it, at least half a GiB and at most three.
    pub memory_reserve: Option<u64>,
    /// Memory that guests have at most, in bytes; `None`: all beyond the reserve.
    pub memory_max: Option<u64>,
}

impl Settings {
    /// How much memory guests may have on a machine with so much, in bytes.
    pub fn marks(&self, total: u64) -> Marks {
        Marks::of(total, self.memory_reserve, self.memory_max)
    }
}

/// What is lent at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lending {
    /// CPUs for tasks that come now.
    pub cpus: u32,
    /// CPUs that a task can have; more than `cpus`: soon again.
    pub largest: u32,
    /// What a task will get of one, if that is known.
    pub expected: Option<Expected>,
    /// Guests might be better off elsewhere: is anybody free?
    pub asks: bool,
    /// Why guests rest, for a person; empty: they do not.
    pub rests: String,
}

impl Lending {
    /// All of so many CPUs.
    pub fn all(cpus: u32) -> Self {
        Self { cpus, largest: cpus, expected: None, asks: false, rests: String::new() }
    }
}

/// The threads, until this is dropped.
#[derive(Debug)]
pub struct Host {
    shared: Arc<Shared>,
    /// What is lent, whenever that changes.
    pub lending: watch::Receiver<Lending>,
}

/// What the threads share.
#[derive(Debug)]
pub struct Shared {
    settings: Settings,
    levers: Levers,
    guests: Arc<Guests>,
    /// The processors that are lent.
    cpus: Arc<Cpus>,
    seen: Mutex<Seen>,
    sensing: Mutex<Sensing>,
    /// What the worker has written for guests.
    backlog: Arc<Backlog>,
    /// Cache of guests to be dropped, in bytes.
    to_drop: AtomicU64,
    /// Guests write at a pace that their owner does not feel.
    is_paced: AtomicBool,
    /// Guests that wait, for they have left too much unwritten.
    brake: Brake,
    /// Guests that were ended, or sent a signal, get processor time to end.
    hurries: AtomicBool,
    /// The owner has work for all processors.
    is_aside: AtomicBool,
    /// What was left over the last seconds.
    recent: Mutex<Recent>,
    /// For how long guests have stood aside since the watcher looked last, in nanoseconds.
    aside_ns: AtomicU64,
    /// What the hub has said of other workers.
    elsewhere: Mutex<Elsewhere>,
    has_ended: AtomicBool,
    /// Why no more tasks are taken, for a person, if so: the worker is about to end, or the machine to sleep.
    lends_nothing: Mutex<Option<&'static str>>,
    /// Wakes the keeper.
    wake: OwnedFd,
}

/// What the watcher has seen.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Why guests rest.
    pub reasons: Vec<Reason>,
    /// For how long the owner has been there, in seconds.
    pub owner_s: Option<f64>,
    /// The part of the processors that is used by others than guests.
    pub used: f64,
    /// Whether anything tells that he types or moves something.
    pub sees_input: bool,
    /// Whether guests' group still has `cpu.idle`.
    pub is_idle: bool,
    /// What a task will get of a processor.
    pub expected: Option<Expected>,
    /// What guests may expect here, by this machine's past.
    pub outlook: Outlook,
}

impl Host {
    /// Starts the threads.
    pub fn start(
        settings: Settings,
        levers: Levers,
        guests: Arc<Guests>,
        cpus: Arc<Cpus>,
        backlog: Arc<Backlog>,
    ) -> io::Result<Self> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let lent = Lending::all(settings.cpus);
        let group = levers.tree().and_then(|tree| tree.file_name()?.to_str().map(str::to_owned));
        let sensing = Mutex::new(Sensing::new(group.as_deref(), watcher::PERIOD));
        let shared = Arc::new(Shared {
            sensing,
            settings,
            levers,
            guests,
            cpus,
            backlog,
            seen: Mutex::default(),
            to_drop: AtomicU64::new(0),
            is_paced: AtomicBool::new(false),
            brake: Brake::default(),
            hurries: AtomicBool::new(false),
            is_aside: AtomicBool::new(false),
            recent: Mutex::default(),
            aside_ns: AtomicU64::new(0),
            elsewhere: Mutex::default(),
            has_ended: AtomicBool::new(false),
            lends_nothing: Mutex::default(),
            wake,
        });
        if let Ok(wake) = shared.wake.try_clone() {
            shared.guests.woken_by(wake);
        }
        let (lending, told) = watch::channel(lent);
        let keeper = keeper::Keeper::new(shared.clone(), lending)?;
        let host = Self { shared: shared.clone(), lending: told };
        spawn("keeper", move || keeper.run())?;
        spawn("pacer", {
            let shared = shared.clone();
            move || pacer::run(&shared)
        })?;
        spawn("brake", {
            let shared = shared.clone();
            move || brake::run(&shared)
        })?;
        spawn("yielder", {
            let shared = shared.clone();
            move || yielder::run(&shared)
        })?;
        spawn("watcher", move || watcher::run(&shared))?;
        Ok(host)
    }
}

impl Host {
    /// The keeper's ear.
    pub fn ear(&self) -> Ear {
        Ear(self.shared.clone())
    }
}

/// Through which the keeper hears what the hub says.
#[derive(Clone, Debug)]
pub struct Ear(Arc<Shared>);

impl Ear {
    /// A task would get this part of a processor on another worker.
    pub fn elsewhere(&self, share: f64) {
        *lock(&self.0.elsewhere) = Elsewhere::heard(share);
        self.0.wake_keeper();
    }

    /// Nothing is lent any more, because of `why`; `None`: all is lent again.
    pub fn lends_nothing(&self, why: Option<&'static str>) {
        *lock(&self.0.lends_nothing) = why;
        self.0.wake_keeper();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Relaxed);
        self.shared.wake_keeper();
    }
}

impl Shared {
    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Processor time that a guest has had: what its end would cost, for it is done again from the start.
    fn spent(&self, guest: &Known) -> Duration {
        let used = self.levers.cpu_used_by(&guest.group).filter(|_| !guest.group.is_empty());
        used.map_or_else(|| guest.since.elapsed(), |used| used.saturating_sub(guest.used_before))
    }

    /// Another look at the processors: what is left at this moment may bound what is expected.
    fn note_recent(&self, look: &Look, fared: &Fared) {
        // More than this many steps from the last that was told, the hub is told again.
        const STEPS: f64 = 8.0;
        let step = |recent: &Recent| recent.share().map(|share| (share * STEPS).round() as i32);
        let (before, now) = {
            let mut recent = lock(&self.recent);
            let before = step(&recent);
            recent.observe(look);
            recent.guests_fared(look, fared);
            (before, step(&recent))
        };
        if before != now {
            self.wake_keeper();
        }
    }

    /// What a task that comes now will get of a processor: what is forecast, or what is left at this moment if that is far less.
    fn expected_now(&self, forecast: Option<Expected>) -> Option<Expected> {
        let mean = forecast.map_or(1.0, |expected| f64::from(expected.mean) / 1e3);
        let Some(share) = lock(&self.recent).bounds(mean) else { return forecast };
        let permille = (share * 1e3) as u32;
        Some(Expected { mean: permille, low: 0, high: permille.max(1), ..forecast.unwrap_or_default() })
    }

    fn wake_keeper(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.into()).spawn(run).map(drop)
}

/// Processor time of this process: what the worker does for guests is not the owner's either.
fn own_time() -> Duration {
    let id = rustix::time::ClockId::ProcessCPUTime;
    let time = rustix::time::clock_gettime(id);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Waits on a thread of its own.
pub(crate) fn wait(time: Duration) {
    wait_for(&mut [], time);
}

/// Waits until one of these is ready, for so long at most.
fn wait_for(what: &mut [PollFd<'_>], time: Duration) {
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    let _ = rustix::event::poll(what, Some(&time));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Instant;

    fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
        let since = Instant::now();
        while !is_so() {
            assert!(since.elapsed() < Duration::from_secs(20), "{what}");
            wait(Duration::from_millis(5));
        }
    }

    fn known() -> Known {
        Known {
            number: 0,
            task: base::TaskId(7),
            program: "cc".into(),
            group: String::new(),
            scratch: PathBuf::from("/nowhere"),
            cpus: Arc::new(Cpus::new([0]).take(1)),
            since: Instant::now(),
            used_before: Duration::ZERO,
            is_leaving: false,
        }
    }

    fn backlog(folder: &tempfile::TempDir) -> Arc<Backlog> {
        let store = store::BlockStore::open(&folder.path().join("store"), store::Options::default()).expect("opens");
        Arc::new(Backlog::new(Arc::new(store)))
    }

    #[test]
    fn an_owner_is_heard_and_guests_that_cannot_be_frozen_leave() {
        let folder = tempfile::tempdir().expect("a folder");
        let rules = Rules { battery: false, celsius_max: None, full_screen: false, metered: false, ..Rules::default() };
        // Memory is whatever it is while tests run.
        let settings = Settings {
            folder: folder.path().to_owned(),
            cpus: 3,
            rules,
            memory_reserve: Some(1 << 20),
            memory_max: None,
        };
        let guests = Arc::new(Guests::default());
        let host = Host::start(settings, Levers::default(), guests.clone(), Cpus::new([0]), backlog(&folder))
            .expect("it starts");
        let (stay, mut evicted) = guests.arrive(known());
        let ask = |question| control::ask(folder.path(), &question).expect("it answers");
        let lent = || host.lending.borrow().clone();
        assert_eq!((lent().cpus, lent().largest), (3, 3));

        let told = ask(json!({"ask": "guests"}));
        assert_eq!(
            (&told["guests"][0]["program"], &told["rests"], &told["cpus"]),
            (&"cc".into(), &false.into(), &3.into())
        );
        let told = ask(json!({"ask": "pause", "for_s": 0.4}));
        assert_eq!((&told["rests"], &told["reasons"][0]), (&true.into(), &"paused by its owner".into()), "{told}");
        assert_eq!((lent().cpus, lent().largest), (0, 0));
        assert!(evicted.try_recv().is_ok_and(|why| why.message.contains("cannot be frozen")));
        eventually("a pause has an end", || lent().cpus == 3);

        ask(json!({"ask": "pause"}));
        drop(stay);
        let told = ask(json!({"ask": "resume"}));
        assert_eq!(
            (&told["guests"], &told["rests"], &told["evicted"]),
            (&json!([]), &false.into(), &1.into()),
            "{told}"
        );
        assert_eq!(ask(json!({"ask": "forecast"}))["every_s"], 10.0);
        assert!(ask(json!({"ask": "dance"}))["hint"].is_string());
        drop(host);
        eventually("it ends", || control::ask(folder.path(), &json!({"ask": "guests"})).is_err());
    }

    #[test]
    fn guests_stand_aside_for_an_owner_who_uses_all_but_not_in_their_first_moments() {
        let folder = tempfile::tempdir().expect("a folder");
        let tree = folder.path().join("gleaner-test");
        std::fs::create_dir(&tree).expect("a folder");
        // Guests that use a fifth of a processor, whatever they are told.
        let since = Instant::now();
        let guests_go_on = || {
            let used = format!("usage_usec {}\n", since.elapsed().as_micros() / 5);
            let new = tree.join("new");
            std::fs::write(&new, used).and_then(|()| std::fs::rename(new, tree.join("cpu.stat"))).expect("a file");
        };
        guests_go_on();
        let settings = Settings {
            folder: folder.path().to_owned(),
            cpus: 2,
            rules: Rules { battery: false, celsius_max: None, full_screen: false, metered: false, ..Rules::default() },
            memory_reserve: Some(1 << 20),
            memory_max: None,
        };
        let guests = Arc::new(Guests::default());
        let levers = Levers::over(tree.clone());
        let _host = Host::start(settings, levers, guests.clone(), Cpus::new([0]), backlog(&folder)).expect("it starts");
        let is = |wanted: &str| {
            guests_go_on();
            std::fs::read_to_string(tree.join("cgroup.freeze")).is_ok_and(|said| said == wanted)
        };
        let cpus = std::thread::available_parallelism().expect("processors").get();
        let mut owner: Vec<_> = (0..cpus)
            .map(|_| std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("a shell"))
            .collect();
        let long_ago = Instant::now().checked_sub(Duration::from_secs(60)).expect("the machine has run for a minute");
        let _stay = guests.arrive(Known { since: long_ago, ..known() });
        if cpus > 1 {
            eventually("they stand aside", || is("1"));
            let told = control::ask(folder.path(), &json!({"ask": "guests"})).expect("it answers");
            assert_eq!((&told["aside"], &told["rests"], &told["cpus"]), (&true.into(), &false.into(), &2.into()));
            let _young = guests.arrive(known());
            eventually("who has just come has time", || is("0"));
        }
        for process in &mut owner {
            process.kill().and_then(|()| process.wait()).expect("it ends");
        }
    }
}

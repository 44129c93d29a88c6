//! Decides what guests may do now, and has it done at once: they run, rest, get less memory, or end. Answers the owner.

use super::control::{Listener, not_understood};
use super::guests::Known;
use super::lingering::{Lot, STAY_MIN};
use super::memory::{Memory, shortage};
use super::pause::Paused;
use super::{Lending, Shared};
use crate::room::Room;
use crate::sandbox::{Held, Waits};
use rustix::event::{PollFd, PollFlags};
use sched::linger::foresight::Guest;
use sched::linger::needs::Needs;
use sched::linger::{Action, Here, Policy, decide};
use sched::memory::{Keeper as MemoryKeeper, Verdict};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use wire::lock;
use wire::message::{Failed, FailedKind};

/// Longest time between two looks.
const LOOK_MAX: Duration = Duration::from_secs(2);
/// And while guests are on their way out.
const SOON: Duration = Duration::from_millis(100);
/// A guest that rests is done again elsewhere at the earliest after so long, in seconds, also if that may fail …
const REST_S_MIN: f64 = 30.0;
/// … and at once where that cannot, unless it has had more processor time than this: such a one rests for as long.
const LITTLE_S: f64 = 60.0;
/// How long is waited at most, before the owner is answered, until guests are frozen that were told so.
const FREEZE_WAIT: Duration = Duration::from_millis(100);
/// Guests wait for memory if they hold so much of what they may have, and come to its bound again and again.
const CROWDED_PERCENT: u64 = 95;
/// Guests that have had no processor time for so long do not run.
const QUIET: Duration = Duration::from_millis(5);
/// Measurements that are told: an hour.
const HISTORY: usize = 360;
/// Why guests get no processor for a moment.
const ASIDE: &str = "it stands aside while the machine's owner has work for all processors";
/// Why guests end for want of memory.
const NO_MEMORY: &str = "the machine's owner needs its memory";

/// The thread.
#[derive(Debug)]
pub struct Keeper {
    listener: Listener,
    /// Ready when memory is short.
    shortage: Option<OwnedFd>,
    state: State,
}

/// What it knows and has done.
#[derive(Debug)]
struct State {
    shared: Arc<Shared>,
    lending: watch::Sender<Lending>,
    start: Instant,
    memory: MemoryKeeper,
    verdict: Option<Verdict>,
    /// Memory of guests, as it was read last.
    held: Held,
    /// The limit that was set last, in bytes.
    limit: u64,
    /// How often guests have come to it, where that is counted, and when they did last.
    came: (u64, Option<Instant>),
    paused: Option<Paused>,
    room: Room,
    /// No task can write here.
    is_full: bool,
    /// The kernel tells when memory is short.
    tells_shortage: bool,
    /// Since when guests rest: for as long as they do they are frozen.
    frozen_since: Option<Instant>,
    /// They are frozen only because their owner has work for all processors, which may be over in a moment.
    is_aside: bool,
    /// Groups of guests that got processor time to end.
    hurried: Vec<String>,
    /// Guests that have made room for the owner.
    evicted: u64,
    /// What guests needed that have ended.
    needs: Needs,
    /// What those that were here at the last count have had by then, in seconds; and when that was.
    had: BTreeMap<u64, f64>,
    counted: Instant,
}

impl Keeper {
    /// Opens the owner's door.
    pub fn new(shared: Arc<Shared>, lending: watch::Sender<Lending>) -> io::Result<Self> {
        let listener = Listener::new(&shared.settings.folder)?;
        let total = Memory::read().map_or(u64::MAX, |memory| memory.total);
        let memory = MemoryKeeper::new(shared.settings.marks(total));
        shared.levers.wait_for_memory();
        shared.levers.forbid_swap();
        // What a program may use by itself, it can change (`sched_setaffinity`).
        let here = std::thread::available_parallelism().map_or(1, usize::from);
        shared.levers.bound_cpus(Some(shared.settings.cpus).filter(|cpus| (*cpus as usize) < here));
        let shortage = shortage();
        // Where no bound is set, it is what guests are to have.
        let limit = if shared.levers.held().is_some() { u64::MAX } else { memory.marks().most };
        let paused = Paused::kept(&shared.settings.folder);
        if paused.is_some() {
            tracing::warn!("guests rest here, as was said before this start: `gleaner resume` lets them go on");
        }
        let room = Room::new(&shared.settings.folder);
        let state = State {
            tells_shortage: shortage.is_some(),
            shared,
            lending,
            start: Instant::now(),
            memory,
            verdict: None,
            held: Held::default(),
            limit,
            came: (0, None),
            paused,
            room,
            is_full: false,
            frozen_since: None,
            is_aside: false,
            hurried: Vec::new(),
            evicted: 0,
            needs: Needs::default(),
            had: BTreeMap::new(),
            counted: Instant::now(),
        };
        Ok(Self { listener, shortage, state })
    }

    /// Goes on until the worker ends.
    pub fn run(mut self) {
        let shared = self.state.shared.clone();
        while !shared.has_ended() {
            let next = self.state.look();
            let mut poll =
                vec![PollFd::new(self.listener.descriptor(), PollFlags::IN), PollFd::new(&shared.wake, PollFlags::IN)];
            poll.extend(self.shortage.as_ref().map(|shortage| PollFd::new(shortage, PollFlags::PRI)));
            super::wait_for(&mut poll, next);
            let [asked, woken] = [0, 1].map(|at: usize| !poll[at].revents().is_empty());
            if woken {
                let _ = rustix::io::read(&shared.wake, &mut [0; 8]);
            }
            if asked {
                self.listener.answer(|question| self.state.on_question(question));
            }
        }
    }
}

impl State {
    /// Looks how it is, does what follows, and says when to look again.
    fn look(&mut self) -> Duration {
        let now = Instant::now();
        if self.paused.is_some_and(|paused| paused.has_ended(now)) {
            self.pause_or_not(None);
        }
        let look_s = self.keep_memory(now);
        self.count(now);
        let (lot, expected) = {
            let seen = lock(&self.shared.seen);
            (Lot::new(seen.owner_s, seen.expected, seen.outlook), seen.expected)
        };
        let expected = self.shared.expected_now(expected);
        let rests = self.rests();
        self.freeze(rests || self.verdict.is_some_and(|verdict| verdict.freeze), now);
        self.end_unwanted();
        self.offer_resting(rests, now);
        self.evict_resting(now);
        self.move_on(&lot);
        self.hurry();
        let cpus = self.shared.settings.cpus;
        // Who rests for want of memory goes on soon; nobody knows how long the other reasons last.
        let takes_none = self.full_disk().or_else(|| lock(&self.shared.lends_nothing).map(str::to_owned));
        let rests = rests || takes_none.is_some();
        let (cpus, largest) = match (rests, self.frozen_since) {
            (true, _) => (0, 0),
            (false, Some(_)) => (0, cpus),
            (false, None) => (cpus, cpus),
        };
        let asks = lot.asks() && self.frozen_since.is_none() && self.shared.guests.count() > 0;
        let rests = if self.frozen_since.is_some() { self.reasons().join("; ") } else { String::new() };
        self.shared.guests.rest(if self.is_aside { ASIDE } else { &rests });
        let rests = takes_none.filter(|_| rests.is_empty()).unwrap_or(rests);
        let lent = Lending { cpus, largest, expected, asks, rests };
        self.lending.send_if_modified(|lending| std::mem::replace(lending, lent.clone()) != lent);
        let until = self.paused.and_then(|paused| paused.left(now));
        let soon = if self.shared.hurries.load(Ordering::Relaxed) { SOON } else { LOOK_MAX };
        Duration::from_secs_f64(look_s).min(soon).min(until.unwrap_or(LOOK_MAX))
    }

    /// Why no task can write here, if so.
    fn full_disk(&mut self) -> Option<String> {
        let why = self.room.shortage();
        if why.is_some() != self.is_full {
            self.is_full = why.is_some();
            let what = why.as_deref().unwrap_or("there is room on its disk again");
            tracing::warn!(takes_tasks = why.is_none(), "{what}");
        }
        why
    }

    /// Whether guests rest until their owner, or what he has settled, says otherwise.
    fn rests(&self) -> bool {
        self.paused.is_some() || !lock(&self.shared.seen).reasons.is_empty()
    }

    /// When to look again, in seconds.
    fn keep_memory(&mut self, now: Instant) -> f64 {
        let Some(memory) = Memory::read() else { return LOOK_MAX.as_secs_f64() };
        self.held = self.shared.levers.held().unwrap_or_default();
        let waits = self.guests_wait();
        let verdict = self.memory.judge(&memory.beside(self.held, waits), (now - self.start).as_secs_f64());
        let limit = limit(verdict.limit, self.held.fixed + self.held.cache, self.limit);
        if limit != self.limit && self.shared.levers.bound_memory(limit) {
            self.limit = limit;
        }
        if verdict.drop > 0 {
            self.shared.to_drop.fetch_max(verdict.drop, Ordering::Relaxed);
        }
        self.verdict = Some(verdict);
        if verdict.end > 0 {
            self.end_some(verdict.end);
        }
        if verdict.crowded {
            self.end_one();
        }
        verdict.look_s
    }

    /// Whether guests wait for memory that the limit does not let them have.
    fn guests_wait(&mut self) -> bool {
        match self.shared.levers.waits_for_memory() {
            None => false,
            Some(Waits::Now(waits)) => waits,
            Some(Waits::Count(count)) => {
                if count > self.came.0 {
                    self.came = (count, Some(Instant::now()));
                }
                // They come to it also when only cache is to go; and whoever is slowed down there comes to it every two seconds.
                let lately = self.came.1.is_some_and(|came| came.elapsed() < LOOK_MAX * 2);
                lately && self.held.fixed >= self.limit / 100 * CROWDED_PERCENT
            }
        }
    }

    /// Ends one of those guests that have their part of all memory that guests hold, or most of that: the one that loses least by it.
    fn end_one(&mut self) {
        let guests = self.costs();
        if guests.iter().any(|(_, _, guest)| guest.is_leaving) {
            return;
        }
        let all: u64 = guests.iter().map(|(_, held, _)| held).sum();
        let part = all / (2 * guests.len().max(1)) as u64;
        let large = guests.into_iter().filter(|(_, held, _)| *held >= part);
        let Some((spent, held, guest)) = large.min_by_key(|(spent, ..)| *spent) else { return };
        let lent = self.limit >> 20;
        // One that nobody is in the way of would come back, and again.
        let why = if held / 10 >= all / 11 {
            FailedKind::Trouble.because(format!("it needs more memory than this machine lends now, {lent} MiB"))
        } else {
            FailedKind::Evicted.because(format!("guests wait for memory: this machine lends {lent} MiB now"))
        };
        self.end(&guest, why, spent);
    }

    /// Of each guest: the processor time that its end would cost, and the memory that it would give back, in bytes.
    fn costs(&self) -> Vec<(Duration, u64, Known)> {
        let held = |guest: &Known| self.shared.levers.held_by(&guest.group).unwrap_or_default().fixed;
        let of = |guest: Known| (self.shared.spent(&guest), held(&guest), guest);
        self.shared.guests.list().into_iter().map(of).collect()
    }

    /// Ends guests that hold so much memory together: those first that lose least by it.
    fn end_some(&mut self, bytes: u64) {
        let mut guests = self.costs();
        // Those that are on their way out first: what they hold will be free.
        guests.sort_by_key(|(spent, _, guest)| (!guest.is_leaving, *spent));
        let mut freed = 0;
        for (spent, held, guest) in guests {
            if freed >= bytes {
                break;
            }
            if guest.is_leaving || self.evict(&guest, NO_MEMORY, spent) {
                freed += held;
            }
        }
    }

    fn evict(&mut self, guest: &Known, why: &str, spent: Duration) -> bool {
        self.end(guest, FailedKind::Evicted.because(why), spent)
    }

    fn end(&mut self, guest: &Known, why: Failed, spent: Duration) -> bool {
        let message = why.message.clone();
        let is_told = self.shared.guests.evict(guest.number, why);
        if is_told {
            self.evicted += 1;
            self.had.remove(&guest.number);
            tracing::info!(task = %guest.task, why = message, spent_s = spent.as_secs_f64(), "a guest makes room");
        }
        is_told
    }

    fn freeze(&mut self, rest: bool, now: Instant) {
        let is_aside = !rest && self.shared.is_aside.load(Ordering::Relaxed);
        let (frozen, was_frozen) = (rest || is_aside, self.frozen_since.is_some() || self.is_aside);
        let begins_or_ends = rest != self.frozen_since.is_some();
        self.is_aside = is_aside;
        if frozen != was_frozen {
            match self.shared.levers.freeze(frozen) {
                Ok(true) => {}
                // Without a way to freeze them guests end: their owner's word counts more than their work.
                Ok(false) if rest => self.end_all("guests must rest, and cannot be frozen here"),
                Ok(false) => {}
                Err(error) => tracing::error!(%error, frozen, "guests cannot be frozen or thawed"),
            }
        }
        if begins_or_ends {
            self.frozen_since = rest.then_some(now);
            tracing::info!(frozen = rest, why = self.reasons().join("; "), "guests");
        }
    }

    fn end_all(&mut self, why: &str) {
        for guest in self.shared.guests.list() {
            let spent = self.shared.spent(&guest);
            self.evict(&guest, why, spent);
        }
    }

    /// Guests that rest cannot take a signal. One that is to end them does.
    fn end_unwanted(&mut self) {
        if self.frozen_since.is_some() {
            for guest in self.shared.guests.unwanted() {
                let spent = self.shared.spent(&guest);
                self.evict(&guest, "it was told to end while guests rest here", spent);
            }
        }
    }

    /// Says to guests that rest that they may be done again elsewhere, if their clients have a place where nothing is lost by that but what
    /// they have had here.
    fn offer_resting(&self, rests: bool, now: Instant) {
        let rested_s = self.frozen_since.filter(|_| rests).map(|since| (now - since).as_secs_f64());
        for guest in self.shared.guests.list() {
            let spent_s = self.shared.spent(&guest).as_secs_f64();
            let patience_s = if spent_s > LITTLE_S { spent_s } else { 0.0 };
            let why = rested_s.filter(|rested_s| *rested_s >= patience_s).map(|_| self.reasons().join("; "));
            self.shared.guests.offer(guest.number, why);
        }
    }

    /// Has guests done again elsewhere that have rested for longer than what they lose by that: as PM does.
    fn evict_resting(&mut self, now: Instant) {
        let Some(since) = self.frozen_since else { return };
        let frozen_s = (now - since).as_secs_f64();
        if frozen_s < REST_S_MIN {
            return;
        }
        for guest in self.shared.guests.list() {
            let spent = self.shared.spent(&guest);
            let policy = Policy::PauseAndMigrate(spent.as_secs_f64().max(REST_S_MIN));
            let here = Here { owner_s: Some(frozen_s), used: 1.0 };
            if decide(policy, here, Some(0.0), spent.as_secs_f64()) == Action::Move {
                let why = format!("guests rest here: {}", self.reasons().join("; "));
                self.evict(&guest, &why, spent);
            }
        }
    }

    /// Learns from guests that have ended since the last count what guests need.
    fn count(&mut self, now: Instant) {
        if now.duration_since(self.counted) < LOOK_MAX {
            return;
        }
        self.counted = now;
        let stay = self.shared.guests.list().into_iter().filter(|guest| !guest.is_leaving);
        let had: BTreeMap<u64, f64> =
            stay.map(|guest| (guest.number, self.shared.spent(&guest).as_secs_f64())).collect();
        let before = std::mem::replace(&mut self.had, had);
        let ended = before.iter().filter(|(number, _)| !self.had.contains_key(number));
        ended.for_each(|(_, had_s)| self.needs.ended(*had_s));
    }

    /// Has the guest begin again elsewhere that ends sooner by it, if the hub has a better place.
    fn move_on(&mut self, lot: &Lot) {
        let Some(elsewhere) = lock(&self.shared.elsewhere).take() else { return };
        let may_go = |guest: &Known| !guest.is_leaving && guest.since.elapsed() >= STAY_MIN;
        let known: Vec<Known> = self.shared.guests.list().into_iter().filter(may_go).collect();
        let guest = |guest: &Known| {
            let spent_s = self.shared.spent(guest).as_secs_f64();
            lot.guest(guest.since.elapsed().as_secs_f64(), spent_s, self.needs.left_s(spent_s))
        };
        let guests: Vec<Guest<'_>> = known.iter().map(guest).collect();
        let Some((at, saves_s)) = lot.goes(&guests, elsewhere) else { return };
        let [here, there] = [lot.worth, elsewhere].map(|share| share * 100.0);
        let (for_s, spent_s) = (lot.owner_s.unwrap_or_default(), guests[at].spent_s);
        let why = format!(
            "its owner leaves {here:.0}% of a CPU for {for_s:.0} s now, another machine {there:.0}%: \
             {spent_s:.0} s of work are done again there, and it is expected to end {saves_s:.0} s sooner"
        );
        self.evict(&known[at], &why, Duration::from_secs_f64(spent_s));
    }

    /// Those that were ended, or sent a signal, get processor time for that; the owner feels it for a moment. Without groups they have the
    /// lowest priority themselves.
    fn hurry(&mut self) {
        let hurrying = self.shared.guests.hurrying();
        let hurries = !hurrying.is_empty();
        hurrying.iter().for_each(|guest| self.shared.levers.hurry_task(&guest.group, true));
        let are_over = self.hurried.iter().filter(|before| !hurrying.iter().any(|guest| guest.group == **before));
        are_over.for_each(|group| self.shared.levers.hurry_task(group, false));
        self.hurried = hurrying.into_iter().map(|guest| guest.group).collect();
        if self.shared.hurries.swap(hurries, Ordering::Relaxed) == hurries {
            return;
        }
        if hurries {
            self.shared.levers.hurry();
        } else {
            self.shared.levers.keep_idle();
        }
    }

    /// Why guests rest.
    fn reasons(&self) -> Vec<String> {
        let mut reasons: Vec<String> = lock(&self.shared.seen).reasons.iter().map(ToString::to_string).collect();
        if self.paused.is_some() {
            reasons.push("paused by its owner".into());
        }
        if self.verdict.is_some_and(|verdict| verdict.freeze) {
            reasons.push(NO_MEMORY.into());
        }
        reasons
    }

    fn on_question(&mut self, question: &Value) -> Value {
        match question["ask"].as_str() {
            Some("pause") => self.pause(question["for_s"].as_f64(), question["evict"] == true),
            Some("resume") => {
                self.pause_or_not(None);
                self.look();
                self.told()
            }
            Some("guests") => self.told(),
            Some("forecast") => {
                let report = lock(&self.shared.sensing).report(HISTORY);
                serde_json::to_value(report).unwrap_or_else(|error| json!({ "error": error.to_string() }))
            }
            _ => not_understood(question),
        }
    }

    fn pause(&mut self, for_s: Option<f64>, evicts: bool) -> Value {
        let since = Instant::now();
        self.paused = Some(Paused::begin(for_s));
        if evicts {
            // Told first: else the hub gives the same tasks again.
            self.lending.send_modify(|lending| (lending.cpus, lending.largest) = (0, 0));
            self.end_all("the machine's owner wants it for himself");
        }
        self.look();
        let is_quiet = self.wait_for_quiet(since);
        let took_ms = since.elapsed().as_secs_f64() * 1e3;
        // Guests rest by now: the disk may take its time.
        self.pause_or_not(self.paused);
        let mut told = self.told();
        told["took_ms"] = json!(took_ms);
        told["quiet"] = json!(is_quiet);
        told["frozen"] = json!(self.shared.guests.count() == 0 || self.shared.levers.is_frozen());
        told
    }

    /// The owner's word is this, and is kept for a worker that comes after this one.
    fn pause_or_not(&mut self, paused: Option<Paused>) {
        self.paused = paused;
        let folder = &self.shared.settings.folder;
        if let Err(error) = paused.map_or_else(|| Paused::forget(folder), |paused| paused.keep(folder)) {
            tracing::warn!(%error, folder = %folder.display(), "that guests are paused, or not any more, is not kept for the next start");
        }
    }

    /// Waits until no guest gets the processor any more, for a bounded time. Guests that have waited for it, because their host is busy, are
    /// frozen as soon as they would go on: that can be long after.
    fn wait_for_quiet(&self, since: Instant) -> bool {
        let levers = &self.shared.levers;
        let mut used = levers.cpu_used();
        while self.shared.guests.count() > 0 && !levers.is_frozen() {
            super::wait(QUIET);
            let now = levers.cpu_used();
            if now.is_some() && now == used {
                return true;
            }
            if since.elapsed() > FREEZE_WAIT {
                return false;
            }
            used = now;
        }
        true
    }

    /// What the owner is told.
    fn told(&self) -> Value {
        let levers = &self.shared.levers;
        let guests = self.shared.guests.list().into_iter().map(|guest| {
            let held = levers.held_by(&guest.group).unwrap_or_default();
            json!({
                "task": guest.task.to_string(), "program": guest.program, "since_s": guest.since.elapsed().as_secs_f64(),
                "cpu_s": self.shared.spent(&guest).as_secs_f64(), "memory_bytes": held.fixed, "cache_bytes": held.cache,
            })
        });
        let seen = lock(&self.shared.seen).clone();
        let marks = self.memory.marks();
        json!({
            "guests": guests.collect::<Vec<Value>>(),
            "rests": self.frozen_since.is_some(),
            "aside": self.is_aside,
            "reasons": self.reasons(),
            "paused_s": self.paused.map(|paused| paused.lasted().as_secs_f64()),
            "paused_for_s": self.paused.and_then(|paused| Some(paused.left(Instant::now())?.as_secs_f64())),
            "owner_s": seen.owner_s,
            "owner_used": seen.used,
            "cpus": self.lending.borrow().cpus,
            "evicted": self.evicted,
            "memory": {
                "held_bytes": self.held.fixed, "cache_bytes": self.held.cache, "limit_bytes": self.limit,
                "reserve_bytes": marks.high, "low_bytes": marks.low,
            },
            "priority": {
                "cpu_idle": seen.is_idle, "after_all": levers.come_after_all(), "freeze": levers.tree().is_some(),
                "memory": levers.held().is_some(), "shortage": self.tells_shortage, "input": seen.sees_input,
                "paced": self.shared.is_paced.load(Ordering::Relaxed),
            },
        })
    }
}

/// The limit to set, where guests are to have `wanted`, hold `held`, and the limit is `set`; all in bytes. Not below what they hold: the kernel
/// would take that back at once, and this thread would have to wait, which is the pacer's. Nor does it follow guests that are beyond it: version 2 has them grow, but
/// slower and slower.
fn limit(wanted: u64, held: u64, set: u64) -> u64 {
    if wanted >= held { wanted } else { held.min(set) }
}

#[cfg(test)]
mod tests {
    use super::limit;

    #[test]
    fn a_limit_is_lowered_to_what_is_held_and_not_raised_by_it() {
        assert_eq!(limit(900, 300, u64::MAX), 900);
        assert_eq!(limit(200, 300, 900), 300);
        assert_eq!(limit(200, 320, 300), 300, "they have grown beyond it");
        assert_eq!(limit(200, 250, 300), 250, "their cache was dropped");
        assert_eq!(limit(280, 250, 250), 280);
    }
}

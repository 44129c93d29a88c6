//! The table among hosts that lie, vanish, repeat, lag, swallow work and fail it, behind a network that loses, repeats and reorders
//! what is said, with a hub that is killed at any point of its journal, and with a table that is now and then replaced by what was
//! made again of its snapshot: in virtual time, from a seed.
//!
//! After each step everything must agree; at the end every task must have ended once, under one key, with the right result
//! wherever honest hosts could outvote the others.

use crate::world::{loaded, saved};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use tasks::*;

const MS: u64 = 1_000_000;

/// Numbers from a seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nature {
    Honest,
    /// Says something of its own.
    Lies,
    /// Says what all of this kind say.
    Colludes,
    /// Takes work and is never heard of again.
    Vanishes,
    /// Fails whatever it gets, at once.
    Fails,
    /// Takes longer than it may.
    Lags,
    /// Now and then says nothing of an instance.
    Swallows,
}

struct Host {
    spec: HostSpec,
    nature: Nature,
    name: Option<HostName>,
    is_gone: bool,
}

/// What happens in the world, at its time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    HostJoins(usize),
    HostAsks(usize),
    HostReports(usize, InstanceName, bool),
    Submits(usize),
    Assimilates(TaskName),
    Compares(TaskName, u16),
    Cancels(usize),
    Ticks,
    HubDies,
}

struct Job {
    spec: JobSpec,
    name: Option<JobName>,
    tasks: u32,
    submitted: u32,
    deadline_ms: u64,
    is_cancelled: bool,
}

struct World {
    dice: Dice,
    /// When the table is replaced: other dice, so that the world is the same with and without.
    copies: Dice,
    was_replaced: bool,
    capacity: Capacity,
    table: Table,
    effects: Effects,
    /// The journal: each event as bytes. What is behind `durable` is lost when the hub dies.
    journal: Vec<Vec<u8>>,
    durable: usize,
    /// Effects that wait until their event is durable.
    held: Vec<Effect>,
    events: BinaryHeap<std::cmp::Reverse<(u64, u64, Happens)>>,
    count: u64,
    now: u64,
    hosts: Vec<Host>,
    jobs: Vec<Job>,
    accounts: Vec<AccountName>,
    /// By key: what was assimilated.
    results: BTreeMap<(u128, u32), Result<u8, Failure>>,
    /// What an instance said, for those that the table decided by.
    said: BTreeMap<InstanceName, [u8; 32]>,
    sent: BTreeSet<InstanceName>,
    loss_percent: u64,
    deaths: u32,
}

/// The right result of a task.
fn right(task: TaskName) -> [u8; 32] {
    let mut digest = [7; 32];
    digest[..8].copy_from_slice(&task.to_u64().wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    digest
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let capacity = Capacity::of(24, 200);
        let loss_percent = dice.below(4) * 5;
        Self {
            capacity,
            table: Table::new(capacity, 1, 0),
            effects: Effects::default(),
            journal: Vec::new(),
            durable: 0,
            held: Vec::new(),
            events: BinaryHeap::new(),
            count: 0,
            now: 0,
            hosts: Vec::new(),
            jobs: Vec::new(),
            accounts: Vec::new(),
            results: BTreeMap::new(),
            said: BTreeMap::new(),
            sent: BTreeSet::new(),
            loss_percent,
            deaths: 0,
            copies: Dice(!seed),
            was_replaced: false,
            dice,
        }
    }

    fn after(&mut self, ms: u64, what: Happens) {
        self.count += 1;
        self.events.push(std::cmp::Reverse((self.now + ms * MS, self.count, what)));
    }

    /// As `after`, over the network: lost, late and repeated as it may be.
    fn say(&mut self, ms: u64, what: Happens) {
        if self.dice.percent(self.loss_percent) {
            return;
        }
        let delay = self.dice.below(50);
        if self.dice.percent(self.loss_percent) {
            let again = self.dice.below(3_000);
            self.after(ms + again, what.clone());
        }
        self.after(ms + delay, what);
    }

    /// One event at the hub: into the journal, into the table. Its effects wait for the journal.
    fn handle(&mut self, event: Event<'_>) -> Vec<Effect> {
        let mut out = base::codec::Writer::default();
        Entry::from(event).encode(self.now, &mut out);
        self.journal.push(out.0);
        self.table.handle(&event, self.now, &mut self.effects);
        self.held.extend(self.effects.iter().copied());
        let effects = self.effects.to_vec();
        // The disk is done with a batch now and then.
        if self.dice.percent(60) {
            self.durable = self.journal.len();
            let held = std::mem::take(&mut self.held);
            held.into_iter().for_each(|effect| self.carry_out(effect));
        }
        effects
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Send { host, instance, .. } => {
                self.sent.insert(instance);
                let Some(at) = self.hosts.iter().position(|other| other.name == Some(host)) else { return };
                self.run(at, instance);
            }
            Effect::Assimilate { task, job, index, result } => {
                let before = self.results.insert((job, index), result);
                assert!(before.is_none_or(|before| before == result), "two results for {job}/{index}");
                self.check_result(task, result);
                let delay = self.dice.below(500);
                self.after(delay, Happens::Assimilates(task));
            }
            Effect::Compare(task, mask) => {
                let delay = self.dice.below(500);
                self.after(delay, Happens::Compares(task, mask));
            }
            _ => {}
        }
    }

    /// A host computes.
    fn run(&mut self, at: usize, instance: InstanceName) {
        let nature = self.hosts[at].nature;
        let mut ms = 200 + self.dice.below(3_000);
        match nature {
            Nature::Vanishes => return,
            Nature::Swallows if self.dice.percent(50) => return,
            Nature::Fails => ms = 1,
            Nature::Lags => ms += 9_000,
            _ => {}
        }
        let is_done = nature != Nature::Fails && !self.dice.percent(2);
        self.say(ms, Happens::HostReports(at, instance, is_done));
    }

    /// With two or more honest accounts against at most one other kind of lie, what is decided is right.
    fn check_result(&self, task: TaskName, result: Result<u8, Failure>) {
        let Ok(number) = result else { return };
        let instance = InstanceName { task, number };
        let said = self.said.get(&instance).unwrap_or_else(|| panic!("{instance} has said nothing"));
        let quorum = self.table.task(task).map(|view| view.quorum);
        if quorum.is_some_and(|quorum| quorum >= 3) {
            assert_eq!(*said, right(task), "a wrong result was taken for {task}");
        }
    }

    fn set_up(&mut self) {
        for key in 0..14 {
            let (weight, share_permille) = (1 + self.dice.below(3) as u16, if key == 0 { 300 } else { 0 });
            let spec = AccountSpec { key, weight, share_permille, tasks_max: 150, running_max: 60 };
            let effects = self.handle(Event::Account(spec));
            let Effect::Account(name) = effects[0] else { panic!("{effects:?}") };
            self.accounts.push(name);
        }
        self.durable = self.journal.len();
        let others = [Nature::Lies, Nature::Vanishes, Nature::Fails, Nature::Lags, Nature::Swallows, Nature::Colludes];
        for at in 0..14usize {
            // At most two that collude, so that no quorum of three can be theirs.
            let nature = match at {
                0..6 => Nature::Honest,
                6 => Nature::Colludes,
                _ => others[self.dice.below(5) as usize],
            };
            let shape = Shape {
                platform: Platform::LINUX_X86_64,
                level: 1 + self.dice.below(4) as u8,
                cpus: 1 + self.dice.below(8) as u16,
                largest: 8,
                memory_mib: 4096,
                tags: 0,
                redundancy: self.dice.below(2) as u8,
            };
            let shape = Shape { largest: shape.cpus, ..shape };
            let spec = HostSpec {
                key: 1000 + at as u128,
                account: self.accounts[at],
                shape: if at < 6 { Shape { level: 4, cpus: 4, largest: 4, redundancy: 1, ..shape } } else { shape },
                speed_permille: 500 + self.dice.below(2000) as u32,
                is_fresh: true,
                is_attached: self.dice.percent(50),
            };
            self.hosts.push(Host { spec, nature, name: None, is_gone: false });
            let delay = self.dice.below(3_000);
            self.after(delay, Happens::HostJoins(at));
        }
        for at in 0..6 {
            self.set_up_job(at);
        }
        if self.dice.percent(60) {
            let delay = self.dice.below(20_000);
            self.after(delay, Happens::HubDies);
        }
        self.after(0, Happens::Ticks);
    }

    fn set_up_job(&mut self, at: usize) {
        let quorum = [1, 1, 2, 3, 3, 2][at];
        let policy = Policy {
            quorum,
            target: quorum + self.dice.below(2) as u8,
            instances_max: 16,
            errors_max: 14,
            successes_max: 14,
            validation: if at == 4 { Validation::Command } else { Validation::Bitwise },
            is_adaptive: at == 2,
            is_speculative: self.dice.percent(50),
            drops_late: at == 1,
            excuses_late: self.dice.percent(20),
            delay_bound_ms: 8_000,
        };
        let spec = JobSpec {
            key: 5000 + at as u128,
            account: self.accounts[self.dice.below(10) as usize],
            urgency: [Urgency::Normal, Urgency::Interactive, Urgency::Spare][self.dice.below(3) as usize],
            need: Need {
                platform: Platform::LINUX_X86_64,
                level: self.dice.below(4) as u8,
                cpus: 1 + self.dice.below(2) as u16,
                memory_mib: 100,
                tags: 0,
                is_homogeneous: at == 5,
            },
            policy,
            cost_ms: 500 + self.dice.below(2_000) as u32,
            affinity: self.dice.below(3) as u32,
            failures_max: if self.dice.percent(20) { 3 } else { u32::MAX },
            is_volatile: false,
        };
        let tasks = 1 + self.dice.below(30) as u32;
        let deadline_ms = if self.dice.percent(40) { 5_000 + self.dice.below(60_000) } else { 0 };
        self.jobs.push(Job { spec, name: None, tasks, submitted: 0, deadline_ms, is_cancelled: false });
        let delay = self.dice.below(5_000);
        self.after(delay, Happens::Submits(at));
        if self.dice.percent(15) {
            let delay = self.dice.below(20_000);
            self.after(delay, Happens::Cancels(at));
        }
    }

    fn happen(&mut self, what: Happens) {
        match what {
            Happens::Ticks => {
                loop {
                    self.handle(Event::Tick);
                    if !self.table.is_behind(self.now) {
                        break;
                    }
                }
                self.after(20, Happens::Ticks);
            }
            Happens::HostJoins(at) => self.host_joins(at),
            Happens::HostAsks(at) => self.host_asks(at),
            Happens::HostReports(at, instance, is_done) => self.host_reports(at, instance, is_done),
            Happens::Submits(at) => self.submits(at),
            Happens::Assimilates(task) => {
                self.handle(Event::Assimilated(&[task]));
            }
            Happens::Compares(task, mask) => self.compares(task, mask),
            Happens::Cancels(at) => {
                if let Some(name) = self.jobs[at].name {
                    self.jobs[at].is_cancelled = true;
                    self.handle(Event::CancelJob(name));
                }
            }
            Happens::HubDies => self.hub_dies(),
        }
    }

    fn host_joins(&mut self, at: usize) {
        let spec = self.hosts[at].spec;
        let effects = self.handle(Event::Join(spec));
        let Some(Effect::Host(name)) = effects.first() else { panic!("{effects:?}") };
        self.hosts[at].name = Some(*name);
        // From the second time on it goes on with what it has.
        self.hosts[at].spec.is_fresh = false;
        self.after(100, Happens::HostAsks(at));
        if self.dice.percent(10) {
            let delay = self.dice.below(30_000);
            self.hosts[at].is_gone = self.dice.percent(50) && at >= 6;
            self.hosts[at].spec.is_fresh = self.dice.percent(50);
            self.after(delay, Happens::HostJoins(at));
        }
    }

    fn host_asks(&mut self, at: usize) {
        let Some(host) = self.hosts[at].name else { return };
        if self.hosts[at].is_gone {
            self.handle(Event::Leave(host));
            return;
        }
        if !self.hosts[at].spec.is_attached {
            let want = 1 + self.dice.below(6) as u8;
            self.handle(Event::Request { host, want });
        }
        self.after(1_000, Happens::HostAsks(at));
    }

    fn host_reports(&mut self, at: usize, instance: InstanceName, is_done: bool) {
        let Some(host) = self.hosts[at].name else { return };
        let mut digest = right(instance.task);
        match self.hosts[at].nature {
            Nature::Lies => digest[20] = at as u8,
            Nature::Colludes => digest[21] = 99,
            _ => {}
        }
        let outcome = if is_done { Outcome::Done(digest) } else { Outcome::Failed };
        if is_done {
            self.said.insert(instance, digest);
        }
        let report = Report { instance, outcome, cost_ms: self.dice.below(5_000) as u32 };
        let want = self.dice.below(4) as u8;
        self.handle(Event::Report { host, reports: &[report], want });
    }

    fn submits(&mut self, at: usize) {
        let spec = self.jobs[at].spec;
        let effects = self.handle(Event::Open(spec));
        let Some(Effect::Job(name, known)) = effects.first() else { panic!("{effects:?}") };
        let (name, known) = (*name, *known);
        self.jobs[at].name = Some(name);
        if known >= self.jobs[at].tasks {
            self.handle(Event::Close(name));
            return;
        }
        let count = (self.jobs[at].tasks - known).min(1 + self.dice.below(16) as u32) as u8;
        let deadline_ms = self.jobs[at].deadline_ms;
        let effects =
            self.handle(Event::Submit { job: name, first: known, count, later: 0, is_promised: false, deadline_ms });
        if effects.iter().any(|effect| matches!(effect, Effect::Refused(Refusal::TooLate(_)))) {
            self.jobs[at].deadline_ms = 0;
        }
        self.jobs[at].submitted = known + u32::from(count);
        let delay = 1 + self.dice.below(2_000);
        self.after(delay, Happens::Submits(at));
    }

    /// The user's command: those that say what is right agree.
    fn compares(&mut self, task: TaskName, mask: u16) {
        let agrees = |number: &u8| {
            let said = self.said.get(&InstanceName { task, number: *number });
            mask & 1 << number != 0 && said == Some(&right(task))
        };
        let agree = (0..16u8).filter(agrees).fold(0, |agree, number| agree | 1 << number);
        self.handle(Event::Compared { task, agree });
    }

    /// The hub is killed: what was not durable may be lost, from some record on. It starts again from its journal.
    fn hub_dies(&mut self) {
        self.deaths += 1;
        self.held.clear();
        let kept = self.durable + self.dice.below((self.journal.len() - self.durable) as u64 + 1) as usize;
        self.journal.truncate(kept);
        self.durable = kept;
        self.table = replay(self.capacity, self.table_salt(), &self.journal);
        // What was decided is said again; clients and hosts come back.
        let pending: Vec<Effect> = self.table.pending().collect();
        pending.into_iter().for_each(|effect| self.carry_out(effect));
        for at in 0..self.hosts.len() {
            if self.hosts[at].name.is_some() && !self.hosts[at].is_gone {
                self.host_joins(at);
                self.send_again(at);
            }
        }
        for at in 0..self.jobs.len() {
            let delay = self.dice.below(1_000);
            if self.jobs[at].name.is_some() && !self.jobs[at].is_cancelled {
                self.after(delay, Happens::Submits(at));
            } else if self.jobs[at].is_cancelled {
                self.after(delay, Happens::Cancels(at));
            }
        }
        if self.deaths < 3 && self.dice.percent(50) {
            let delay = self.dice.below(10_000);
            self.after(delay, Happens::HubDies);
        }
    }

    /// Goes on with a copy made of what is saved of the table.
    fn replace_by_copy(&mut self) {
        self.was_replaced = true;
        let bytes = saved(&self.table);
        self.table = loaded(&bytes, usize::MAX).expect("was written by us");
        assert!(saved(&self.table) == bytes, "saved, loaded and saved again is the same");
    }

    fn table_salt(&self) -> u128 {
        1
    }

    /// What a host should have and never got.
    fn send_again(&mut self, at: usize) {
        let Some(name) = self.hosts[at].name else { return };
        let running = self.table.host(name).map(|host| host.running).unwrap_or_default();
        for instance in running {
            if self.sent.insert(instance) {
                self.run(at, instance);
            }
        }
    }

    /// Runs until everything has ended, or for too long.
    fn run_all(&mut self) {
        self.set_up();
        let end = 900_000 * MS;
        while let Some(std::cmp::Reverse((at, _, what))) = self.events.pop() {
            self.now = self.now.max(at);
            assert!(self.now < end, "not at its end: {}", self.left());
            self.happen(what);
            if self.copies.below(COPY_EACH) == 0 {
                self.replace_by_copy();
            }
            if self.count.is_multiple_of(64) {
                self.table.check_invariants();
            }
            let ended = |job: &Job| {
                job.name
                    .and_then(|name| self.table.job(name))
                    .is_some_and(|view| view.has_ended || (job.is_cancelled && view.unfinished == 0))
            };
            if self.jobs.iter().all(ended) && self.table.counts()[3] == 0 {
                break;
            }
        }
        self.finish();
    }

    /// What has not ended, in words.
    fn left(&self) -> String {
        let mut said = format!("{:?}", self.table.totals());
        let jobs = self.jobs.iter().filter_map(|job| job.name);
        for task in jobs.flat_map(|job| self.table.tasks_of(job, 3)) {
            let (view, waits) = (self.table.task(task), self.table.waits(task));
            said += &format!("\n{view:?} {waits:?}");
            self.table.instances(task).iter().for_each(|instance| {
                let said_it =
                    self.said.get(&instance.name).map(|digest| (*digest == right(task), digest[20], digest[21]));
                said += &format!("\n   {instance:?} {said_it:?}");
            });
        }
        for host in &self.hosts {
            let view = host.name.and_then(|name| self.table.host(name));
            said += &format!("\n{:?} {:?} attached {} {view:?}", host.name, host.nature, host.spec.is_attached);
        }
        said
    }

    fn finish(&mut self) {
        self.durable = self.journal.len();
        let held = std::mem::take(&mut self.held);
        held.into_iter().for_each(|effect| self.carry_out(effect));
        self.table.check_invariants();
        for job in &self.jobs {
            let view = self.table.job(job.name.expect("all were opened")).expect("none was forgotten");
            assert_eq!(view.done + view.failed, view.tasks, "every task has ended: {view:?}");
            for index in 0..view.tasks {
                assert!(self.results.contains_key(&(job.spec.key, index)), "task {index} was lost");
            }
        }
        // The journal makes the same table again.
        let again = replay(self.capacity, self.table_salt(), &self.journal);
        assert_eq!(again.totals(), self.table.totals(), "replayed");
        // To the last bit, though it was never replaced.
        if self.was_replaced {
            assert!(saved(&again) == saved(&self.table), "a copy went on otherwise");
        }
    }
}

fn replay(capacity: Capacity, salt: u128, journal: &[Vec<u8>]) -> Table {
    let mut table = Table::new(capacity, salt, 0);
    let (mut effects, mut scratch) = (Effects::default(), Scratch::default());
    for record in journal {
        let mut blobs = Vec::new();
        let (entry, now) = decode(record, &mut scratch, &mut blobs).expect("was written by us");
        table.handle(&entry.event, now, &mut effects);
    }
    table.check_invariants();
    table
}

/// After how many happenings, on average, the table is replaced by a copy of itself: about six times in ten worlds.
const COPY_EACH: u64 = 5_000;

/// How many worlds, from which on: `SEEDS` and `SEED` in the environment say otherwise.
const SEEDS: u64 = 10_000;

#[test]
fn nothing_is_lost_and_nothing_done_twice() {
    let number = |name: &str, default| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (first, seeds): (u64, u64) = (number("SEED", 0), number("SEEDS", SEEDS));
    let run = |half: u64| {
        for seed in (first..first + seeds).filter(|seed| seed % 2 == half) {
            let run = std::panic::catch_unwind(|| World::new(seed).run_all());
            assert!(run.is_ok(), "seed {seed} failed: run it alone with SEED={seed} SEEDS=1");
        }
    };
    std::thread::scope(|threads| {
        let halves = [0, 1].map(|half| threads.spawn(move || run(half)));
        for half in halves {
            half.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
}

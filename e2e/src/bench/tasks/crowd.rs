//! Hosts and clients that make the table work as hard as they can.

use super::dice::Dice;
use super::steps::{Found, Most};
use super::world::{MS, mixed};
use std::time::Instant;
use tasks::*;

/// Names of each kind that are remembered: so that events meet again what others have left.
const KNOWN: usize = 512;
/// Hosts that act at a time, of however many there are.
const ACTIVE: usize = 96;
/// Kinds of needs, and shapes of hosts.
const NEEDS: usize = 48;
const SHAPES: usize = 24;

/// What the crowd is up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// A bit of everything.
    Mixed,
    /// Much is sent, and nothing comes back in time.
    Expiring,
    /// Jobs with many deadlines are cancelled.
    Cancelling,
    /// Hosts take all they can, and leave.
    Leaving,
    /// Attached hosts wait for what they cannot have.
    Waiting,
    /// All fails, or results differ.
    Failing,
    /// Clients submit, nobody works.
    Flooding,
}

impl Mood {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Mixed, Self::Expiring, Self::Cancelling, Self::Leaving, Self::Waiting, Self::Failing, Self::Flooding];

    /// How often each action is taken: submit, request, report, assimilated, tick, open, cancel task, cancel job, hold, urgency,
    /// join, leave, drain, warm, compared, close, forget.
    fn weights(self) -> [usize; 17] {
        match self {
            Self::Mixed => [10, 10, 10, 6, 8, 3, 2, 1, 2, 2, 3, 1, 1, 2, 2, 1, 2],
            Self::Expiring => [20, 30, 2, 6, 12, 3, 1, 0, 1, 0, 2, 0, 0, 1, 1, 1, 1],
            Self::Cancelling => [30, 10, 3, 4, 10, 8, 6, 5, 2, 2, 2, 0, 0, 0, 1, 1, 3],
            Self::Leaving => [16, 30, 3, 4, 10, 3, 1, 0, 0, 0, 8, 4, 1, 0, 1, 0, 1],
            Self::Waiting => [16, 4, 10, 6, 10, 3, 2, 0, 5, 2, 8, 1, 2, 2, 2, 0, 1],
            Self::Failing => [10, 20, 30, 6, 6, 3, 1, 0, 1, 0, 3, 1, 1, 1, 6, 0, 1],
            Self::Flooding => [40, 1, 1, 2, 4, 10, 2, 0, 3, 3, 1, 0, 0, 0, 1, 1, 1],
        }
    }
}

/// A job, as far as it is known.
#[derive(Clone, Copy, Debug)]
struct Known {
    name: JobName,
    submitted: u32,
    deadlines: [u64; 16],
}

/// The table, and what some remember of it.
pub struct Crowd {
    /// What chance says.
    pub dice: Dice,
    /// Events so far.
    pub events: usize,
    /// What was found.
    pub most: Most,
    table: Table,
    effects: Effects,
    now: u64,
    mood: Mood,
    accounts: Vec<AccountName>,
    hosts: Vec<Option<HostName>>,
    jobs: Vec<Known>,
    leaving: Vec<JobName>,
    sent: Vec<(HostName, InstanceName)>,
    decided: Vec<TaskName>,
    tasks: Vec<TaskName>,
    asked: Vec<(TaskName, u16)>,
    next_key: u128,
}

impl std::fmt::Debug for Crowd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a crowd after {} events", self.events)
    }
}

impl Crowd {
    /// Around an empty table of this size.
    pub fn new(hosts: usize, tasks: usize, dice: Dice) -> Self {
        Self {
            dice,
            events: 0,
            most: Most::new(),
            table: counted(Table::new(Capacity::of(hosts, tasks), 7, 0)),
            effects: Effects::default(),
            now: MS,
            mood: Mood::Mixed,
            accounts: Vec::new(),
            hosts: vec![None; hosts],
            jobs: Vec::new(),
            leaving: Vec::new(),
            sent: Vec::new(),
            decided: Vec::new(),
            tasks: Vec::new(),
            asked: Vec::new(),
            next_key: 0,
        }
    }

    /// Accounts and hosts come, and the table fills.
    pub fn gather(&mut self) {
        for number in 0..Capacity::of(self.hosts.len(), 1).accounts {
            let running_max = [u32::MAX, u32::MAX, 200, 1][number % 4];
            let share_permille = if number < 10 { 20 } else { 0 };
            let weight = [1, 1, 10, 1000][number / 4 % 4];
            let key = mixed(1 << 80 | number as u128);
            let spec = AccountSpec { key, weight, share_permille, tasks_max: u32::MAX / 2, running_max };
            self.handle("account", &Event::Account(spec));
        }
        for number in 0..self.hosts.len() {
            let is_attached = number % 3 == 0;
            self.join(number, is_attached);
        }
        for _ in 0..400 {
            self.open();
        }
    }

    /// Does an event, and remembers what follows from it.
    fn handle(&mut self, kind: &'static str, event: &Event<'_>) {
        self.events += 1;
        self.now += 1000;
        self.table.work();
        let started = Instant::now();
        self.table.handle(event, self.now, &mut self.effects);
        let took = started.elapsed();
        let steps = self.table.work().steps;
        let is_refused = matches!(self.effects.last(), Some(Effect::Refused(_)));
        let most = self.most.entry(kind).or_insert(Found { steps: 0, mood: self.mood, took, events: 0, refused: 0 });
        most.events += 1;
        most.refused += usize::from(is_refused);
        if steps > most.steps {
            *most = Found { steps, mood: self.mood, took, ..*most };
        }
        let dice = &mut self.dice;
        for effect in self.effects.iter() {
            match *effect {
                Effect::Account(name) => self.accounts.push(name),
                Effect::Submitted(task) => drop(remember(dice, &mut self.tasks, task)),
                Effect::Send { host, instance, .. } => drop(remember(dice, &mut self.sent, (host, instance))),
                Effect::Assimilate { task, .. } => self.decided.push(task),
                Effect::Compare(task, which) => drop(remember(dice, &mut self.asked, (task, which))),
                _ => {}
            }
        }
    }

    /// Does something by chance.
    pub fn act(&mut self, mood: Mood) {
        self.mood = mood;
        let weights = mood.weights();
        let mut left = self.dice.below(weights.iter().sum());
        let chosen = weights.iter().position(|weight| {
            let is_it = left < *weight;
            left = left.saturating_sub(*weight);
            is_it
        });
        let host = self.host();
        match chosen.unwrap_or_default() {
            0 => self.submit(),
            1 => self.request(host),
            2 => self.report(),
            3 => self.assimilate(),
            4 => self.tick(),
            5 => self.open(),
            6 => {
                let task = self.task();
                self.handle("cancel_task", &Event::CancelTask(task));
            }
            action @ 7..=9 => self.change_job(action),
            10 => {
                let (number, is_attached) = (self.number(), self.dice.percent(60));
                self.join(number, is_attached);
            }
            11 => self.leave(),
            12 => {
                let is_draining = self.dice.percent(40);
                self.each(host, "drain", |host| Event::Drain(host, is_draining));
            }
            13 => {
                let affinity = 1 + self.dice.below(6) as u32;
                self.each(host, "warm", |host| Event::Warm(host, affinity));
            }
            14 => self.compare(),
            action => self.end_job(action == 15),
        }
    }

    fn each(&mut self, host: Option<HostName>, kind: &'static str, event: impl FnOnce(HostName) -> Event<'static>) {
        if let Some(host) = host {
            self.handle(kind, &event(host));
        }
    }

    fn number(&mut self) -> usize {
        let all = self.hosts.len();
        // Mostly the same few, so that they have much; now and then any.
        if self.dice.percent(95) { self.dice.below(ACTIVE.min(all)) } else { self.dice.below(all) }
    }

    fn host(&mut self) -> Option<HostName> {
        let number = self.number();
        self.hosts[number]
    }

    fn task(&mut self) -> TaskName {
        let any = TaskName { at: 0, generation: 1 };
        if self.tasks.is_empty() { any } else { self.dice.of(&self.tasks) }
    }

    fn join(&mut self, number: usize, is_attached: bool) {
        let account = self.accounts[number % 7 % self.accounts.len()];
        let key = mixed(1 << 90 | number as u128);
        let shape = shape(if self.hosts.len() == 1 { self.dice.below(SHAPES) } else { number });
        let is_fresh = self.dice.percent(50);
        let spec = HostSpec { key, account, shape, speed_permille: 1_000_000, is_fresh, is_attached };
        self.handle("join", &Event::Join(spec));
        if let Some(Effect::Host(name)) = self.effects.first() {
            self.hosts[number] = Some(*name);
        }
    }

    fn leave(&mut self) {
        let number = self.number();
        if let Some(host) = self.hosts[number].take() {
            // With as much as it can have.
            for _ in 0..if self.dice.percent(50) { 8 } else { 0 } {
                self.handle("request", &Event::Request { host, want: 16 });
            }
            self.handle("leave", &Event::Leave(host));
        }
    }

    fn request(&mut self, host: Option<HostName>) {
        let want = if self.dice.percent(70) { 16 } else { 1 };
        self.each(host, "request", |host| Event::Request { host, want });
    }

    fn report(&mut self) {
        if self.sent.is_empty() {
            return;
        }
        let (host, _) = self.dice.of(&self.sent);
        let fails = if self.mood == Mood::Failing { 60 } else { 15 };
        let mut reports = Vec::with_capacity(BATCH_MAX);
        let most = if self.dice.percent(70) { BATCH_MAX } else { 1 };
        let mut at = 0;
        while at < self.sent.len() && reports.len() < most {
            if self.sent[at].0 != host {
                at += 1;
                continue;
            }
            let (_, instance) = self.sent.swap_remove(at);
            let digest = [self.dice.below(3) as u8; 32];
            let outcome = if self.dice.percent(fails) { Outcome::Failed } else { Outcome::Done(digest) };
            reports.push(Report { instance, outcome, cost_ms: self.dice.below(3000) as u32 });
        }
        let want = self.dice.of(&[0, 1, 16]);
        self.handle("report", &Event::Report { host, reports: &reports, want });
    }

    fn assimilate(&mut self) {
        let most = if self.dice.percent(80) { BATCH_MAX } else { 1 };
        let mut names = Vec::with_capacity(BATCH_MAX);
        while names.len() < most && !self.decided.is_empty() {
            let at = self.dice.below(self.decided.len());
            names.push(self.decided.swap_remove(at));
        }
        self.handle("assimilated", &Event::Assimilated(&names));
    }

    /// Time passes, and some ticks come, but not always as many as are needed.
    fn tick(&mut self) {
        let jump_ms = match self.mood {
            Mood::Expiring => self.dice.of(&[0, 1, 1000, 60_000, 250_000, 4_000_000, 140_000_000]),
            _ => self.dice.of(&[0, 1, 1, 50, 60, 3000, 300_000]),
        };
        self.now += jump_ms * MS;
        for _ in 0..self.dice.of(&[1, 4, 64]) {
            self.handle("tick", &Event::Tick);
            if !self.table.is_behind(self.now) {
                break;
            }
        }
    }

    fn open(&mut self) {
        for _ in 0..2.min(self.leaving.len()) {
            let at = self.dice.below(self.leaving.len());
            if self.table.job(self.leaving[at]).is_none_or(|job| job.has_ended) {
                let job = self.leaving.swap_remove(at);
                self.handle("forget", &Event::Forget(job));
            }
        }
        self.next_key += 1;
        let dice = &mut self.dice;
        let quorum = dice.of(&[1, 1, 2, 3, 5]);
        let target = quorum.max(dice.of(&[1, 2, 4, 16]));
        let policy = Policy {
            quorum,
            target,
            instances_max: 16,
            errors_max: dice.of(&[0, 4, 15]),
            successes_max: dice.of(&[quorum, 16]),
            validation: if dice.percent(20) { Validation::Command } else { Validation::Bitwise },
            is_adaptive: dice.percent(20),
            is_speculative: dice.percent(40),
            drops_late: dice.percent(30),
            excuses_late: dice.percent(30),
            delay_bound_ms: dice.of(&[1, 1000, 1000, 1000, 300_000, 200_000_000]),
        };
        // Accounts as hosts have, so that they meet their own.
        let account = self.accounts[dice.below(self.accounts.len().min(64))];
        let spec = JobSpec {
            key: mixed(self.next_key),
            account,
            urgency: dice.of(&[Urgency::Interactive, Urgency::Normal, Urgency::Normal, Urgency::Spare]),
            need: need(dice.below(NEEDS)),
            policy,
            cost_ms: dice.of(&[1, 1, 10]),
            affinity: dice.of(&[0, 0, 1, 2, 3]),
            failures_max: dice.of(&[0, 10, u32::MAX]),
            is_volatile: false,
        };
        self.handle("open", &Event::Open(spec));
        if let Some(Effect::Job(name, submitted)) = self.effects.first() {
            let job = Known { name: *name, submitted: *submitted, deadlines: [0; 16] };
            if let Some(other) = remember(&mut self.dice, &mut self.jobs, job) {
                // Nobody would ever end it.
                self.handle("cancel_job", &Event::CancelJob(other.name));
                self.leaving.push(other.name);
            }
        }
    }

    fn submit(&mut self) {
        if self.jobs.is_empty() {
            return;
        }
        let at = self.dice.below(self.jobs.len());
        let which = self.dice.below(16);
        let now_ms = self.now / MS;
        if self.jobs[at].deadlines[which] <= now_ms {
            // Far from each other and near, in each unit that queues have.
            let ahead = match self.dice.below(5) {
                0 => 0,
                1 => 100 + self.dice.below(2_000),
                2 => 1000 + self.dice.below(250_000),
                3 => 300_000 + self.dice.below(36_000_000),
                _ => 1000 + self.dice.below(250_000_000),
            };
            self.jobs[at].deadlines[which] = if ahead == 0 { 0 } else { now_ms + ahead as u64 };
        }
        let job = self.jobs[at];
        let count = if self.dice.percent(80) { 16 } else { 1 };
        let deadline_ms = job.deadlines[which];
        self.handle(
            "submit",
            &Event::Submit { job: job.name, first: job.submitted, count, later: 0, is_promised: false, deadline_ms },
        );
        match self.effects.first() {
            Some(Effect::Submitted(_)) => self.jobs[at].submitted += u32::from(count),
            Some(Effect::Refused(Refusal::Gap(first))) => self.jobs[at].submitted = *first,
            Some(Effect::Refused(Refusal::Unknown | Refusal::Ended)) => drop(self.jobs.swap_remove(at)),
            _ => {}
        }
    }

    fn change_job(&mut self, action: usize) {
        if self.jobs.is_empty() {
            return;
        }
        let job = self.dice.of(&self.jobs).name;
        match action {
            7 => self.handle("cancel_job", &Event::CancelJob(job)),
            8 => {
                let is_held = self.dice.percent(40);
                self.handle("hold", &Event::Hold(job, is_held));
            }
            _ => {
                let urgency = self.dice.of(&[Urgency::Interactive, Urgency::Normal, Urgency::Spare]);
                self.handle("urgency", &Event::Urgency(job, urgency));
            }
        }
    }

    fn end_job(&mut self, is_closing: bool) {
        if self.jobs.is_empty() {
            return;
        }
        let at = self.dice.below(self.jobs.len());
        let job = self.jobs[at].name;
        if is_closing {
            return self.handle("close", &Event::Close(job));
        }
        if self.table.job(job).is_some_and(|job| job.has_ended) {
            self.handle("forget", &Event::Forget(job));
        }
    }

    fn compare(&mut self) {
        let Some((task, which)) = self.asked.pop() else { return };
        let agree = which & self.dice.next() as u16;
        self.handle("compared", &Event::Compared { task, agree });
    }
}

/// Keeps one more in mind, in the place of any if there are many: that one.
fn remember<T>(dice: &mut Dice, known: &mut Vec<T>, one: T) -> Option<T> {
    if known.len() < KNOWN {
        known.push(one);
        return None;
    }
    let at = dice.below(KNOWN);
    Some(std::mem::replace(&mut known[at], one))
}

/// A table that counts its steps.
fn counted(mut table: Table) -> Table {
    table.count(Counting::Steps);
    table
}

fn shape(number: usize) -> Shape {
    let kind = number % SHAPES;
    let cpus = [128, 64, 17, 3, 8, 128][kind % 6];
    Shape {
        platform: Platform::LINUX_X86_64,
        level: 1 + (kind % 4) as u8,
        cpus,
        largest: cpus,
        memory_mib: 4096 << (kind % 3),
        tags: (kind % 8) as u64,
        redundancy: (kind % 3) as u8,
    }
}

fn need(kind: usize) -> Need {
    Need {
        platform: Platform::LINUX_X86_64,
        level: 1 + (kind % 3) as u8,
        cpus: [1, 1, 2, 1, 3, 16, 1, 64][kind % 8],
        memory_mib: 512 + (kind as u32 % 5) * 900,
        tags: [0, 0, 1, 2, 3, 0][kind % 6],
        is_homogeneous: kind.is_multiple_of(11),
    }
}

//! A table that is driven event by event, each of which is measured; and what must be known of it to go on.

use super::dice::Turns;
use super::record::{Op, Record};
use std::collections::VecDeque;
use tasks::*;

/// Nanoseconds in a millisecond.
pub const MS: u64 = 1_000_000;
/// The time from one event to the next: half a million of them in a second.
const STEP_NS: u64 = 2_000;
/// The least time from one tick to the next while much time passes, in milliseconds: so much more is due at a time.
const PASS_MS: u64 = 250;
/// Needs that there are, and shapes of hosts.
const NEEDS: usize = 16;
/// Needs of one account.
const NEEDS_OF_ONE: usize = 4;
/// The nearest deadline that a job has, and the farthest, in milliseconds; and how they are rounded.
const DUE_MS: (u64, u64) = (120_000, 7_200_000);
const DUE_ROUND_MS: u64 = 64;
/// Accounts with a reserved share.
const RESERVED: usize = 4;
/// From sending until an instance is given up.
pub const DELAY_BOUND_MS: u32 = 3_600_000;

/// A job, as its client knows it.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Its name; none once it is forgotten.
    pub name: Option<JobName>,
    /// Tasks submitted.
    pub submitted: u32,
    /// 0: none.
    pub deadline_ms: u64,
}

/// The table and those around it: hosts, clients.
pub struct World {
    /// The table.
    pub table: Table,
    /// Its size.
    pub capacity: Capacity,
    /// What is measured.
    pub record: Record,
    /// Nanoseconds.
    pub now: u64,
    effects: Effects,
    accounts: Vec<AccountName>,
    /// By number.
    pub hosts: Vec<HostName>,
    /// Those without deadlines, then those with.
    pub jobs: Vec<Job>,
    /// How many have none.
    pub plain: usize,
    /// The task in each place.
    pub names: Vec<TaskName>,
    /// Instances that are out, the oldest first.
    pub out: VecDeque<(HostName, InstanceName)>,
    /// Tasks whose results are on their way.
    pub decided: VecDeque<TaskName>,
    /// Tasks that are in the table.
    pub live: usize,
    refused: u64,
    first_refusal: Option<(Op, Refusal)>,
    digest: u64,
    plain_turns: Turns,
    due_turns: Turns,
    is_due_next: bool,
    next_key: u128,
}

impl World {
    /// An empty table of this size, with its accounts.
    pub fn new(capacity: Capacity, mut record: Record) -> Self {
        let before = resident();
        let table = Table::new(capacity, 7, 0);
        record.facts.resident = resident() - before;
        record.facts.bytes = table.bytes() as f64;
        // Kept down until the end, where it is taken off.
        record.facts.resident_at_end = before;
        let name = TaskName { at: 0, generation: 0 };
        let due = (capacity.nodes / 4).min(capacity.groups / 4).min(capacity.jobs / 4);
        let plain = capacity.jobs * 3 / 4 - due;
        let mut world = Self {
            table,
            capacity,
            record,
            now: MS,
            effects: Effects::default(),
            accounts: Vec::new(),
            hosts: touched(HostName { at: 1, generation: 1 }, capacity.hosts).into(),
            jobs: Vec::with_capacity(capacity.jobs),
            plain,
            names: vec![TaskName { at: 1, ..name }; capacity.tasks],
            out: touched(
                (HostName { at: 1, generation: 1 }, InstanceName { task: name, number: 1 }),
                capacity.tasks + 1,
            ),
            decided: touched(TaskName { at: 1, generation: 1 }, capacity.tasks + 1),
            live: 0,
            refused: 0,
            first_refusal: None,
            digest: 0,
            plain_turns: Turns::new(plain),
            due_turns: Turns::new(due),
            is_due_next: false,
            next_key: 1 << 100,
        };
        (0..capacity.accounts).for_each(|number| world.account(number));
        world
    }

    /// What is known at the end of a run.
    pub fn end(mut self) -> Record {
        if let Some((op, refusal)) = self.first_refusal {
            eprintln!("bench: {} events were refused; the first was {}: {refusal}", self.refused, op.name());
        }
        self.record.facts.refused = self.refused as f64;
        self.record.facts.digest = (self.digest >> 12) as f64;
        self.record.facts.resident_at_end = resident() - self.record.facts.resident_at_end;
        self.record
    }

    fn account(&mut self, number: usize) {
        let share_permille = if number < RESERVED { 50 } else { 0 };
        let most = u32::MAX / 2;
        let key = mixed(number as u128);
        let spec = AccountSpec { key, weight: 1, share_permille, tasks_max: most, running_max: most };
        self.table.handle(&Event::Account(spec), self.now, &mut self.effects);
        if let Some(Effect::Account(name)) = self.effects.first() {
            self.accounts.push(*name);
        }
    }

    /// Does an event, measures it, and keeps in mind what follows from it. Returns how many instances were sent.
    pub fn handle(&mut self, op: Op, event: &Event<'_>) -> usize {
        self.now += STEP_NS;
        self.record.handle(op, &mut self.table, event, self.now, &mut self.effects);
        let mut sent = 0;
        for effect in self.effects.iter() {
            let seen = match *effect {
                Effect::Submitted(task) => {
                    self.names[task.at as usize] = task;
                    self.live += 1;
                    task.to_u64()
                }
                Effect::Send { host, instance, .. } => {
                    self.out.push_back((host, instance));
                    sent += 1;
                    instance.task.to_u64() ^ host.to_u64()
                }
                Effect::Assimilate { task, .. } => {
                    self.decided.push_back(task);
                    task.to_u64()
                }
                Effect::Deleted(task) => {
                    self.live -= 1;
                    task.to_u64()
                }
                Effect::Refused(refusal) => {
                    self.refused += 1;
                    self.first_refusal.get_or_insert((op, refusal));
                    1
                }
                _ => 2,
            };
            self.digest = (self.digest.rotate_left(5) ^ seen).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        sent
    }

    /// A host joins, or joins again. `is_fresh`: with nothing.
    pub fn join(&mut self, op: Op, number: usize, is_fresh: bool, is_attached: bool) {
        let account = self.accounts[number % self.accounts.len()];
        let key = mixed(1 << 90 | number as u128);
        let spec = HostSpec { key, account, shape: shape(number), speed_permille: 1000, is_fresh, is_attached };
        self.handle(op, &Event::Join(spec));
        if let Some(Effect::Host(name)) = self.effects.first() {
            match self.hosts.get_mut(number) {
                Some(host) => *host = *name,
                None => self.hosts.push(*name),
            }
        }
    }

    /// Opens a job for an account, by its number, with a need, by its number.
    pub fn open(&mut self, number: usize, need_number: usize, has_deadline: bool) {
        self.next_key += 1;
        let urgency = if number % 16 == 5 { Urgency::Interactive } else { Urgency::Normal };
        let spec = JobSpec {
            key: mixed(self.next_key),
            account: self.accounts[number % self.accounts.len()],
            urgency,
            need: need(need_number),
            policy: Policy { delay_bound_ms: DELAY_BOUND_MS, ..Policy::default() },
            cost_ms: if has_deadline { 10 } else { 1000 },
            affinity: 0,
            failures_max: u32::MAX,
            is_volatile: false,
        };
        self.handle(Op::Open, &Event::Open(spec));
        if let Some(Effect::Job(name, _)) = self.effects.first() {
            self.jobs.push(Job { name: Some(*name), submitted: 0, deadline_ms: u64::from(has_deadline) });
        }
    }

    /// Opens all jobs.
    pub fn open_all(&mut self) {
        let all = self.capacity.jobs * 3 / 4;
        for number in 0..all {
            let need = number % self.accounts.len() + number / self.accounts.len() % NEEDS_OF_ONE;
            self.open(number, need, number >= self.plain);
        }
    }

    /// Submits so many tasks to the next job in turn, if there is room: one without a deadline, one with.
    pub fn submit(&mut self, count: u8) {
        if self.live + usize::from(count) > self.capacity.tasks {
            return;
        }
        self.is_due_next = !self.is_due_next;
        let at = if self.is_due_next { self.plain + self.due_turns.next() } else { self.plain_turns.next() };
        let op = match (self.is_due_next, count) {
            (false, 1) => Op::Submit1,
            (true, 1) => Op::SubmitDue1,
            (false, _) => Op::Submit16,
            (true, _) => Op::SubmitDue16,
        };
        self.submit_to(op, at, count);
    }

    /// Submits so many tasks to a job.
    pub fn submit_to(&mut self, op: Op, at: usize, count: u8) {
        let now_ms = self.now / MS;
        let job = &mut self.jobs[at];
        let Some(name) = job.name else { return };
        if job.deadline_ms != 0 && job.deadline_ms < now_ms + 60_000 {
            let ahead = DUE_MS.0 + (at as u64 * 7_919 * DUE_ROUND_MS) % (DUE_MS.1 - DUE_MS.0);
            job.deadline_ms = (now_ms + ahead) / DUE_ROUND_MS * DUE_ROUND_MS;
        }
        let event = Event::Submit {
            job: name,
            first: job.submitted,
            count,
            later: 0,
            is_promised: false,
            deadline_ms: job.deadline_ms,
        };
        let before = self.live;
        self.handle(op, &event);
        self.jobs[at].submitted += (self.live - before) as u32;
    }

    /// A host asks.
    pub fn request(&mut self, op: Op, host: usize, want: u8) -> usize {
        self.handle(op, &Event::Request { host: self.hosts[host], want })
    }

    /// The host that has had its instance for longest reports it, and what it got together with it, up to so many.
    pub fn report(&mut self, op: Op, most: usize, want: u8, outcome: Outcome) {
        let Some((host, first)) = self.out.pop_front() else { return };
        let one = |instance| Report { instance, outcome, cost_ms: 1000 };
        let mut reports = [one(first); BATCH_MAX];
        let mut count = 1;
        while count < most
            && let Some((_, instance)) = self.out.front().filter(|(other, _)| *other == host)
        {
            reports[count] = one(*instance);
            count += 1;
            self.out.pop_front();
        }
        self.handle(op, &Event::Report { host, reports: &reports[..count], want });
    }

    /// Some results are where they go.
    pub fn assimilate(&mut self, op: Op, most: usize) {
        let mut names = [TaskName { at: 0, generation: 0 }; BATCH_MAX];
        let mut count = 0;
        while count < most
            && let Some(task) = self.decided.pop_front()
        {
            names[count] = task;
            count += 1;
        }
        if count > 0 {
            self.handle(op, &Event::Assimilated(&names[..count]));
        }
    }

    /// All results are where they go.
    pub fn assimilate_all(&mut self) {
        while !self.decided.is_empty() {
            self.assimilate(Op::Assimilated16, BATCH_MAX);
        }
    }

    /// Fills the table of tasks, as far as it has room for their instances beside those that were lost and are still known.
    pub fn fill(&mut self) {
        for count in [BATCH_MAX, 1] {
            let mut before = usize::MAX;
            while self.live + count <= self.capacity.tasks && before != self.live {
                before = self.live;
                self.submit(count as u8);
            }
        }
    }

    /// Ticks until nothing is left to be done now.
    pub fn tick(&mut self, op: Op) {
        self.handle(op, &Event::Tick);
        while self.table.is_behind(self.now) {
            self.handle(op, &Event::Tick);
        }
    }

    /// Lets time pass, with all that is due.
    pub fn pass(&mut self, ms: u64) {
        let until = self.now + ms * MS;
        while self.now < until {
            let next = self.table.next_tick().unwrap_or(until);
            self.now = next.max(self.now + PASS_MS * MS).min(until);
            let op = if self.table.is_behind(self.now) { Op::TickDue } else { Op::TickIdle };
            self.tick(op);
        }
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a world of {} hosts and {} tasks", self.hosts.len(), self.live)
    }
}

/// A queue with room for so many, all of it touched.
fn touched<T: Copy>(any: T, count: usize) -> VecDeque<T> {
    let mut queue = VecDeque::from(vec![any; count]);
    queue.clear();
    queue
}

/// A key as digests are: spread over all bits.
pub fn mixed(number: u128) -> u128 {
    let mixed = number.wrapping_add(1).wrapping_mul(0xda94_2042_e4dd_58b5_9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 67).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
}

/// The shape of a host: the first can do all, others part of it.
fn shape(number: usize) -> Shape {
    let kind = number % NEEDS;
    let cpus = if kind == 0 { 128 } else { 32 + 32 * (kind % 2) as u16 };
    Shape {
        platform: Platform::LINUX_X86_64,
        level: if kind == 0 { 4 } else { 1 + (kind % 4) as u8 },
        cpus,
        largest: cpus,
        memory_mib: 8192 << (kind % 3),
        tags: u64::from(kind.is_multiple_of(3)),
        redundancy: 1 + (kind / 8) as u8,
    }
}

/// The need of a job: the first is what any host can do.
fn need(number: usize) -> Need {
    let kind = number % NEEDS;
    Need {
        platform: Platform::LINUX_X86_64,
        level: 1 + (kind % 4) as u8,
        cpus: 1 + (kind / 4 % 2) as u16,
        memory_mib: 512 * (1 + kind as u32 % 5),
        tags: u64::from(kind >= 12),
        is_homogeneous: false,
    }
}

/// Bytes of memory of this process that are there.
pub fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    pages * rustix::param::page_size() as f64
}

/// Page faults of this process so far that needed no disk.
pub fn faults() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit(')').next().unwrap_or_default();
    fields.split_whitespace().nth(7).and_then(|field| field.parse().ok()).unwrap_or(0.0)
}

//! A table in virtual time with the hosts and accounts of a [`Plan`], which can be forked: from there on two worlds go on apart, with
//! the same history from outside.

use super::plan::{Batch, LENDERS, Plan, SHARES_PERMILLE};
use crate::bench::tasks::world::{MS, mixed};
use crate::error::{Error, Result};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::convert::Infallible;
use tasks::*;

/// Tasks that the table has room for, for each host.
const TASKS_PER_HOST: usize = 120;
/// What a small machine is, and what a task needs of it: all can do all.
const SHAPE: Shape =
    Shape { platform: Platform::LINUX_X86_64, level: 1, cpus: 1, largest: 1, memory_mib: 8192, tags: 0, redundancy: 1 };
const NEED: Need =
    Need { platform: Platform::LINUX_X86_64, level: 1, cpus: 1, memory_mib: 512, tags: 0, is_homogeneous: false };
/// Keys of hosts begin here, and there is one that is no host.
const MACHINE_KEYS: u128 = 1 << 64;
const NO_MACHINE: u128 = 1 << 65;

/// What the table said of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answer {
    /// It was not submitted yet.
    #[default]
    None,
    /// It can be done in time.
    Admitted,
    /// It cannot; when it could.
    Refused(u64),
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fate {
    /// What the table said.
    pub answer: Answer,
    /// Tasks that have not ended.
    pub left: u8,
    /// Tasks that ended after their deadline, or badly.
    pub late: u8,
    /// When the last one ended.
    pub ended_ms: u64,
}

impl Fate {
    /// All were done in time.
    pub fn is_met(&self) -> bool {
        self.answer == Answer::Admitted && self.left == 0 && self.late == 0
    }
}

/// A host is done with an instance of a batch's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ends {
    at_ms: u64,
    /// So that none are equal.
    number: u64,
    machine: u32,
    host: HostName,
    instance: InstanceName,
    cost_ms: u32,
}

/// The world: the table, and all that is on its way.
pub struct Future<'a> {
    plan: &'a Plan,
    table: Table,
    effects: Effects,
    /// What the last event wanted done.
    wanted: Vec<Effect>,
    now_ms: u64,
    running: BinaryHeap<Reverse<Ends>>,
    sent: u64,
    next_batch: usize,
    next_turn: usize,
    accounts: Vec<AccountName>,
    /// By number; none: away.
    hosts: Vec<Option<HostName>>,
    /// By place in the table of hosts: its number.
    machines: Vec<u32>,
    /// By place in the table of tasks: its batch, and its number there.
    owners: Vec<(u32, u8)>,
    /// By batch.
    pub fates: Vec<Fate>,
    /// What is to be told to the table.
    decided: Vec<TaskName>,
    over: Vec<JobName>,
}

impl<'a> Future<'a> {
    /// At time 0, with all hosts.
    pub fn new(plan: &'a Plan) -> Result<Self> {
        let machines = plan.machines.len();
        let usual = Capacity::of(machines + 1, machines * TASKS_PER_HOST);
        let capacity = Capacity { nodes: usual.tasks, instances: usual.tasks * 2, ..usual };
        let mut future = Self {
            plan,
            table: Table::new(capacity, 7, 0),
            effects: Effects::default(),
            wanted: Vec::new(),
            now_ms: 0,
            running: BinaryHeap::new(),
            sent: 0,
            next_batch: 0,
            next_turn: 0,
            accounts: Vec::new(),
            hosts: vec![None; machines],
            machines: vec![0; capacity.hosts],
            owners: vec![(0, 0); capacity.tasks],
            fates: vec![Fate::default(); plan.batches.len()],
            decided: Vec::new(),
            over: Vec::new(),
        };
        for number in 0..SHARES_PERMILLE.len() + LENDERS {
            let share_permille = SHARES_PERMILLE.get(number).copied().unwrap_or(0);
            let (key, most) = (mixed(number as u128), u32::MAX / 2);
            let spec = AccountSpec { key, weight: 1, share_permille, tasks_max: most, running_max: most };
            future.handle(&Event::Account(spec))?;
            let Some(Effect::Account(name)) = future.wanted.first() else { return Err(unexpected(&future.wanted)) };
            future.accounts.push(*name);
        }
        (0..machines).try_for_each(|machine| future.joins(machine))?;
        Ok(future)
    }

    /// Another world that is the same until now.
    pub fn fork(&self) -> Result<Self> {
        let mut bytes = Vec::new();
        let Ok(()) = self.table.save(|piece| {
            bytes.extend_from_slice(piece);
            Ok::<_, Infallible>(())
        });
        let mut rest = &bytes[..];
        let table = Table::load_saved(|room| {
            let (piece, later) = rest.split_at(room.len().min(rest.len()));
            room[..piece.len()].copy_from_slice(piece);
            rest = later;
            Ok::<_, Infallible>(piece.len())
        });
        let table = table.map_err(|error| Error::Product(format!("a table was not loaded: {error}")))?;
        Ok(Self {
            plan: self.plan,
            table,
            effects: Effects::default(),
            wanted: Vec::new(),
            now_ms: self.now_ms,
            running: self.running.clone(),
            sent: self.sent,
            next_batch: self.next_batch,
            next_turn: self.next_turn,
            accounts: self.accounts.clone(),
            hosts: self.hosts.clone(),
            machines: self.machines.clone(),
            owners: self.owners.clone(),
            fates: self.fates.clone(),
            decided: Vec::new(),
            over: Vec::new(),
        })
    }

    /// The next batch that is submitted, if there is one.
    pub fn next_batch(&self) -> usize {
        self.next_batch
    }

    /// Goes on until so many batches were submitted, and at most until then; the next one's time has come then.
    pub fn run(&mut self, batches: usize, until_ms: u64) -> Result<()> {
        loop {
            let batch = self.plan.batches.get(self.next_batch);
            let turn = self.plan.turns.get(self.next_turn);
            let (batch_ms, turn_ms) = (batch.map(|batch| batch.at_ms), turn.map(|turn| turn.at_ms));
            let ends_ms = self.running.peek().map(|Reverse(ends)| ends.at_ms);
            let tick_ms = self.table.next_tick().map(|ns| ns.div_ceil(MS).max(self.now_ms));
            let Some(next_ms) = [batch_ms, turn_ms, ends_ms, tick_ms].into_iter().flatten().min() else {
                return Ok(());
            };
            if next_ms > until_ms {
                self.now_ms = until_ms;
                return Ok(());
            }
            self.now_ms = next_ms;
            let is_now = |at_ms: Option<u64>| at_ms == Some(next_ms);
            if is_now(tick_ms) {
                self.handle(&Event::Tick)?;
            } else if is_now(ends_ms) {
                self.ends()?;
            } else if is_now(turn_ms) {
                self.turns()?;
            } else if self.next_batch >= batches {
                return Ok(());
            } else {
                let at = self.next_batch as u32;
                self.next_batch += 1;
                self.submit(at, self.plan.batches[at as usize].deadline_ms, false)?;
            }
        }
    }

    /// Goes on until all tasks of a batch have ended, and at most until then.
    pub fn run_to_end(&mut self, batch: u32, until_ms: u64) -> Result<()> {
        while self.fates[batch as usize].left > 0 && self.now_ms < until_ms {
            self.run(usize::MAX, self.now_ms + 1_000)?;
        }
        Ok(())
    }

    /// The next batch has this answer instead of one of the table's: it is admitted with its own deadline, or asked for with another.
    pub fn submit_next(&mut self, deadline_ms: u64, is_forced: bool) -> Result<Answer> {
        let at = self.next_batch as u32;
        self.next_batch += 1;
        self.submit(at, deadline_ms, is_forced)?;
        Ok(self.fates[at as usize].answer)
    }

    fn submit(&mut self, at: u32, deadline_ms: u64, is_forced: bool) -> Result<()> {
        let Batch { account, count, cost_ms, quorum, .. } = self.plan.batches[at as usize];
        let ahead_ms = deadline_ms.saturating_sub(self.now_ms);
        // Without others, and without slow hosts, it can be done in time.
        let cost_ms = if is_forced { cost_ms.min((ahead_ms / 4).max(1) as u32) } else { cost_ms };
        let most = Policy::default();
        let policy = Policy { quorum, target: quorum, instances_max: INSTANCES_MAX, errors_max: 15, ..most };
        let spec = JobSpec {
            key: mixed(1 << 80 | u128::from(at)),
            account: self.accounts[account],
            urgency: Urgency::Normal,
            need: NEED,
            policy,
            cost_ms,
            affinity: 0,
            failures_max: u32::MAX,
            is_volatile: false,
        };
        self.handle(&Event::Open(spec))?;
        let Some(&Effect::Job(job, _)) = self.wanted.first() else { return Err(unexpected(&self.wanted)) };
        let event = Event::Submit { job, first: 0, count, later: 0, is_promised: false, deadline_ms };
        if is_forced {
            self.handle(&Event::Hold(job, true))?;
            let there_is_more = self.pretends()?;
            self.handle_batch(at, &event)?;
            self.handle(&Event::Leave(there_is_more))?;
            self.handle(&Event::Hold(job, false))?;
        } else {
            self.handle_batch(at, &event)?;
        }
        self.handle(&Event::Close(job))
    }

    /// A host comes that can do none of the tasks, and is so large that every deadline can be met.
    fn pretends(&mut self) -> Result<HostName> {
        let shape = Shape { platform: Platform(u16::MAX), cpus: u16::MAX, largest: u16::MAX, ..SHAPE };
        let (key, account) = (mixed(NO_MACHINE), self.accounts[SHARES_PERMILLE.len()]);
        let spec = HostSpec { key, account, shape, speed_permille: 1_000_000, is_fresh: true, is_attached: false };
        self.handle(&Event::Join(spec))?;
        let Some(&Effect::Host(host)) = self.wanted.first() else { return Err(unexpected(&self.wanted)) };
        Ok(host)
    }

    /// Submits a batch, and notes the answer.
    fn handle_batch(&mut self, at: u32, event: &Event<'_>) -> Result<()> {
        self.table.handle(event, self.now_ms * MS, &mut self.effects);
        let fate = &mut self.fates[at as usize];
        fate.answer = Answer::Admitted;
        for effect in self.effects.iter() {
            match *effect {
                Effect::Submitted(task) => {
                    self.owners[task.at as usize] = (at, fate.left);
                    fate.left += 1;
                }
                Effect::Refused(Refusal::TooLate(earliest_ms)) => fate.answer = Answer::Refused(earliest_ms),
                _ => {}
            }
        }
        self.carry_out()
    }

    fn joins(&mut self, number: usize) -> Result<()> {
        let machine = self.plan.machines[number];
        let spec = HostSpec {
            key: mixed(MACHINE_KEYS + number as u128),
            account: self.accounts[SHARES_PERMILLE.len() + machine.lender],
            shape: Shape { cpus: machine.cpus, largest: machine.cpus, ..SHAPE },
            speed_permille: machine.speed_permille,
            is_fresh: true,
            is_attached: true,
        };
        self.table.handle(&Event::Join(spec), self.now_ms * MS, &mut self.effects);
        let Some(&Effect::Host(host)) = self.effects.first() else { return Err(unexpected(&self.effects)) };
        self.hosts[number] = Some(host);
        self.machines[host.at as usize] = number as u32;
        self.carry_out()
    }

    fn turns(&mut self) -> Result<()> {
        let turn = self.plan.turns[self.next_turn];
        self.next_turn += 1;
        if !turn.leaves {
            return self.joins(turn.machine);
        }
        match self.hosts[turn.machine].take() {
            Some(host) => self.handle(&Event::Leave(host)),
            None => Ok(()),
        }
    }

    fn ends(&mut self) -> Result<()> {
        let Some(Reverse(Ends { machine, host, instance, cost_ms, .. })) = self.running.pop() else { return Ok(()) };
        if self.hosts[machine as usize] != Some(host) {
            // It left with what it had.
            return Ok(());
        }
        let report = Report { instance, outcome: Outcome::Done([1; 32]), cost_ms };
        self.handle(&Event::Report { host, reports: &[report], want: 0 })
    }

    /// Does an event, and what follows from it.
    fn handle(&mut self, event: &Event<'_>) -> Result<()> {
        self.table.handle(event, self.now_ms * MS, &mut self.effects);
        self.carry_out()
    }

    /// Does what the last event wanted done, and what follows from that.
    fn carry_out(&mut self) -> Result<()> {
        self.look()?;
        // The caller looks at what its own event wanted.
        let wanted = std::mem::take(&mut self.wanted);
        while let Some(task) = self.decided.pop() {
            self.then(&Event::Assimilated(&[task]))?;
        }
        while let Some(job) = self.over.pop() {
            self.then(&Event::Forget(job))?;
        }
        self.wanted = wanted;
        Ok(())
    }

    fn then(&mut self, event: &Event<'_>) -> Result<()> {
        self.table.handle(event, self.now_ms * MS, &mut self.effects);
        self.look()
    }

    /// Takes what the last event wanted done, and does what is done at once.
    fn look(&mut self) -> Result<()> {
        self.wanted.clear();
        self.wanted.extend(self.effects.iter().copied());
        for at in 0..self.wanted.len() {
            match self.wanted[at] {
                Effect::Send { host, instance, .. } => self.starts(host, instance),
                Effect::Assimilate { task, result, .. } => {
                    let (batch, _) = self.owners[task.at as usize];
                    let deadline_ms = self.plan.batches[batch as usize].deadline_ms;
                    let fate = &mut self.fates[batch as usize];
                    fate.left -= 1;
                    fate.late += u8::from(result.is_err() || self.now_ms > deadline_ms);
                    fate.ended_ms = self.now_ms;
                    self.decided.push(task);
                }
                Effect::JobEnded(job) => self.over.push(job),
                Effect::Refused(Refusal::TooLate(_)) => {}
                Effect::Refused(refusal) => return Err(Error::Product(format!("the table refused: {refusal}"))),
                _ => {}
            }
        }
        Ok(())
    }

    /// A host has been sent an instance, and begins at once.
    fn starts(&mut self, host: HostName, instance: InstanceName) {
        let machine = self.machines[host.at as usize];
        let (batch, index) = self.owners[instance.task.at as usize];
        let cost_ms = self.plan.cost_ms(batch, index);
        let speed = f64::from(self.plan.machines[machine as usize].speed_permille) / 1_000.0;
        let at_ms = self.now_ms + (cost_ms / speed).ceil() as u64;
        self.sent += 1;
        let cost_ms = cost_ms as u32;
        self.running.push(Reverse(Ends { at_ms, number: self.sent, machine, host, instance, cost_ms }));
    }
}

impl std::fmt::Debug for Future<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a world after {} of {} batches", self.next_batch, self.fates.len())
    }
}

fn unexpected(effects: &[Effect]) -> Error {
    Error::Product(format!("the table answered otherwise than it should: {effects:?}"))
}

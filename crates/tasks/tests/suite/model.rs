//! The table beside a model that is as simple as it can be: maps, and no bounds on steps.
//!
//! The model does not say what the table must choose, for there it has its own mind; it says of each effect whether it may be, and
//! of each decision whether it must be so. What happens comes from bytes: from proptest here, from a fuzzer in `fuzz/`.

use std::collections::{BTreeMap, BTreeSet};
use tasks::*;

const MS: u64 = 1_000_000;
/// Most steps of any event, whatever is in the table.
const STEPS_MAX: u32 = 8_000;
/// Most instances of one account that may be out.
const OUT_MAX: usize = 12;

/// What happens, out of bytes; nothing when they are at their end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::from(self.next().unwrap_or_default()) % bound.max(1)
    }

    fn flag(&mut self) -> bool {
        self.below(2) == 1
    }
}

struct Task {
    job: JobName,
    /// By number: which account, and what came of it.
    copies: Vec<Copy>,
    decided: Option<Result<u8, Failure>>,
}

#[derive(Debug)]
struct Copy {
    host: HostName,
    account: AccountName,
    said: Option<[u8; 32]>,
    is_out: bool,
    is_late: bool,
}

struct Host {
    account: AccountName,
    spec: HostSpec,
    is_draining: bool,
}

#[derive(Default)]
struct Model {
    accounts: Vec<AccountName>,
    hosts: BTreeMap<HostName, Host>,
    jobs: BTreeMap<JobName, JobSpec>,
    tasks: BTreeMap<TaskName, Task>,
    held: BTreeSet<JobName>,
    cancelled: BTreeSet<JobName>,
    /// Keys that were assimilated, with what.
    keys: BTreeMap<(u128, u32), Result<u8, Failure>>,
    compares: Vec<(TaskName, u16)>,
    now_ms: u64,
}

impl Model {
    fn cpus_used(&self, host: HostName) -> u16 {
        let of = |task: &Task| {
            let out = task.copies.iter().filter(|copy| copy.is_out && copy.host == host).count() as u16;
            out * self.jobs[&task.job].need.cpus
        };
        self.tasks.values().map(of).sum()
    }

    /// Looks at what an event came to.
    fn observe(&mut self, effects: &[Effect]) {
        for effect in effects {
            match *effect {
                Effect::Send { host, instance, index: _, due_ms } => self.on_send(host, instance, due_ms),
                Effect::Stop(_, instance) => {
                    if let Some(task) = self.tasks.get_mut(&instance.task) {
                        let copy = &mut task.copies[usize::from(instance.number)];
                        assert!(copy.is_out, "what is stopped was out");
                        copy.is_out = false;
                        copy.is_late = true;
                    }
                }
                Effect::Submitted(name) => {
                    assert!(!self.tasks.contains_key(&name), "a name is given once");
                }
                Effect::Assimilate { task, job, index, result } => self.on_decided(task, (job, index), result),
                Effect::Compare(task, mask) => self.on_compare(task, mask),
                Effect::Deleted(name) => {
                    let task = self.tasks.remove(&name).expect("what is deleted was there");
                    assert!(task.decided.is_some(), "deleted before it was decided");
                }
                Effect::JobEnded(job) => {
                    assert!(self.tasks.values().all(|task| task.job != job), "a job ends with its last task");
                }
                _ => {}
            }
        }
    }

    fn on_send(&mut self, host: HostName, instance: InstanceName, due_ms: u64) {
        let there = self.hosts.get(&host).expect("sent to a host that is there");
        let used = self.cpus_used(host);
        let (account, shape) = (there.account, there.spec.shape);
        assert!(!there.is_draining, "sent to a host that is to get nothing");
        let owner = self.jobs[&self.tasks.get(&instance.task).expect("sent of a task that is there").job].account;
        let of_owner = self.tasks.values().filter(|task| self.jobs[&task.job].account == owner);
        let running: usize = of_owner.map(|task| task.copies.iter().filter(|copy| copy.is_out).count()).sum();
        let task = self.tasks.get_mut(&instance.task).expect("sent of a task that is there");
        let job = &self.jobs[&task.job];
        assert_eq!(misfit(&shape, &job.need), None, "sent where it does not fit");
        assert!(used + job.need.cpus <= shape.cpus, "sent where there is no room");
        assert!(running < OUT_MAX, "more out than the account may have");
        assert_eq!(task.decided, None, "sent after it was decided");
        assert!(!self.held.contains(&task.job) && !self.cancelled.contains(&task.job), "sent while held or cancelled");
        assert_eq!(usize::from(instance.number), task.copies.len(), "copies are numbered in order");
        assert!(instance.number < job.policy.instances_max, "more copies than may be");
        // One that is good by itself needs no other account beside it.
        let is_lone = job.policy.quorum <= 1;
        let is_second = |copy: &Copy| copy.account == account && (copy.is_out || (copy.said.is_some() && !is_lone));
        assert!(!task.copies.iter().any(is_second), "two copies at one account");
        assert_eq!(due_ms, self.now_ms + u64::from(job.policy.delay_bound_ms));
        task.copies.push(Copy { host, account, said: None, is_out: true, is_late: false });
    }

    fn on_decided(&mut self, name: TaskName, key: (u128, u32), result: Result<u8, Failure>) {
        let before = self.keys.insert(key, result);
        assert_eq!(before, None, "decided twice");
        let task = self.tasks.get_mut(&name).expect("decided of a task that is there");
        let policy = self.jobs[&task.job].policy;
        let results: Vec<&Copy> = task.copies.iter().filter(|copy| copy.said.is_some()).collect();
        match result {
            Ok(number) => {
                let said = task.copies[usize::from(number)].said.expect("the canonical one has said something");
                let agree = results.iter().filter(|copy| copy.said == Some(said)).count();
                let accounts: BTreeSet<AccountName> = results.iter().map(|copy| copy.account).collect();
                assert!(policy.quorum <= 1 || accounts.len() == results.len(), "one account counts once");
                let is_trusted = policy.is_adaptive && results.len() == 1;
                let by_command =
                    policy.validation == Validation::Command && results.len() >= usize::from(policy.quorum);
                assert!(
                    is_trusted || by_command || agree >= usize::from(policy.quorum),
                    "no quorum for {name}: {:?}, {policy:?}",
                    task.copies
                );
            }
            Err(Failure::Errors) => {
                let errors = task.copies.iter().filter(|copy| !copy.is_out && copy.said.is_none()).count();
                assert!(errors > usize::from(policy.errors_max), "{errors} errors");
            }
            Err(Failure::NoConsensus) => assert!(results.len() > usize::from(policy.successes_max)),
            Err(Failure::Instances) => {
                let is_all = task.copies.len() >= usize::from(policy.instances_max);
                // Or the table has no record for one more than was set aside.
                assert!(is_all || task.copies.len() >= usize::from(policy.target));
            }
            Err(Failure::Late) => assert!(policy.drops_late),
            Err(Failure::Cancelled) => {}
        }
        task.decided = Some(result);
    }

    fn on_compare(&mut self, name: TaskName, mask: u16) {
        let task = &self.tasks[&name];
        let said = (0..16).filter(|number| task.copies.get(*number).is_some_and(|copy| copy.said.is_some()));
        assert_eq!(mask, said.fold(0, |mask, number| mask | 1 << number), "all results are compared");
        self.compares.push((name, mask));
    }
}

struct Both {
    table: Table,
    effects: Effects,
    model: Model,
    keys: u128,
}

impl Both {
    fn handle(&mut self, event: Event<'_>) -> Vec<Effect> {
        self.table.handle(&event, self.model.now_ms * MS, &mut self.effects);
        let steps = self.table.work().steps;
        assert!(steps <= STEPS_MAX, "{steps} steps for {event:?}");
        let effects = self.effects.to_vec();
        let is_own = |effect: &Effect| matches!(effect, Effect::Host(_) | Effect::Submitted(_));
        // What the event itself makes is put into the model by who sent it, before the rest is looked at.
        if !effects.iter().any(is_own) {
            self.model.observe(&effects);
        }
        effects
    }

    fn key(&mut self) -> u128 {
        self.keys += 1;
        self.keys
    }

    fn step(&mut self, kind: u8, bytes: &mut Bytes<'_>) {
        match kind % 16 {
            0 => self.join(bytes),
            1 => self.open(bytes),
            2 | 3 => self.submit(bytes),
            4..=6 => self.request(bytes),
            7..=10 => self.report(bytes),
            11 => self.pass(bytes),
            12 => self.assimilate(bytes),
            13 => self.compare(bytes),
            14 => self.host_changes(bytes),
            _ => self.job_changes(bytes),
        }
    }

    fn join(&mut self, bytes: &mut Bytes<'_>) {
        let account = self.model.accounts[bytes.below(self.model.accounts.len())];
        let shape = Shape {
            platform: Platform(1),
            level: bytes.below(3) as u8,
            cpus: 1 + bytes.below(4) as u16,
            largest: 4,
            memory_mib: 100,
            tags: bytes.below(4) as u64,
            redundancy: bytes.below(2) as u8,
        };
        let shape = Shape { largest: shape.cpus, ..shape };
        let key = self.key();
        let spec = HostSpec { key, account, shape, speed_permille: 1000, is_fresh: true, is_attached: bytes.flag() };
        let effects = self.handle(Event::Join(spec));
        if let Some(Effect::Host(name)) = effects.first() {
            self.model.hosts.insert(*name, Host { account, spec, is_draining: false });
            self.model.observe(&effects);
        }
    }

    fn open(&mut self, bytes: &mut Bytes<'_>) {
        let quorum = 1 + bytes.below(3) as u8;
        let policy = Policy {
            quorum,
            target: quorum + bytes.below(2) as u8,
            instances_max: 4 + bytes.below(13) as u8,
            errors_max: bytes.below(5) as u8,
            successes_max: quorum + bytes.below(4) as u8,
            validation: if bytes.below(4) == 0 { Validation::Command } else { Validation::Bitwise },
            is_adaptive: bytes.below(4) == 0,
            is_speculative: bytes.flag(),
            drops_late: bytes.below(4) == 0,
            excuses_late: bytes.flag(),
            delay_bound_ms: 1 + 100 * bytes.below(50) as u32,
        };
        let spec = JobSpec {
            key: self.key(),
            account: self.model.accounts[bytes.below(self.model.accounts.len())],
            urgency: [Urgency::Interactive, Urgency::Normal, Urgency::Spare][bytes.below(3)],
            need: Need {
                platform: Platform(1),
                level: bytes.below(3) as u8,
                cpus: 1 + bytes.below(3) as u16,
                memory_mib: 1,
                tags: bytes.below(2) as u64,
                is_homogeneous: bytes.below(4) == 0,
            },
            policy,
            cost_ms: 1 + bytes.below(256) as u32,
            affinity: bytes.below(3) as u32,
            failures_max: if bytes.flag() { 2 } else { u32::MAX },
            is_volatile: false,
        };
        if let [Effect::Job(name, 0)] = self.handle(Event::Open(spec))[..] {
            self.model.jobs.insert(name, spec);
        }
    }

    fn some_job(&self, bytes: &mut Bytes<'_>) -> Option<JobName> {
        self.model.jobs.keys().nth(bytes.below(self.model.jobs.len())).copied()
    }

    fn submit(&mut self, bytes: &mut Bytes<'_>) {
        let Some(job) = self.some_job(bytes) else { return };
        let first = self.table.job(job).expect("known").tasks;
        let deadline_ms = if bytes.flag() { self.model.now_ms + 1 + 50 * bytes.below(256) as u64 } else { 0 };
        let count = 1 + bytes.below(16) as u8;
        let effects = self.handle(Event::Submit { job, first, count, later: 0, is_promised: false, deadline_ms });
        for effect in &effects {
            if let Effect::Submitted(name) = effect {
                let task = Task { job, copies: Vec::new(), decided: None };
                assert!(self.model.tasks.insert(*name, task).is_none(), "a name is given once");
            }
        }
        let rest: Vec<Effect> = effects.into_iter().filter(|effect| !matches!(effect, Effect::Submitted(_))).collect();
        if self.table.job(job).expect("known").tasks > first {
            self.model.observe(&rest);
        }
    }

    fn some_host(&self, bytes: &mut Bytes<'_>) -> Option<HostName> {
        self.model.hosts.keys().nth(bytes.below(self.model.hosts.len())).copied()
    }

    fn request(&mut self, bytes: &mut Bytes<'_>) {
        let Some(host) = self.some_host(bytes) else { return };
        self.handle(Event::Request { host, want: 1 + bytes.below(16) as u8 });
    }

    /// An instance of a host ends.
    fn report(&mut self, bytes: &mut Bytes<'_>) {
        let Some(host) = self.some_host(bytes) else { return };
        let at_host = |copy: &Copy| copy.host == host && (copy.is_out || copy.is_late);
        let mut all = Vec::new();
        for (name, task) in &self.model.tasks {
            let numbered = task.copies.iter().enumerate().filter(|(_, copy)| at_host(copy));
            all.extend(numbered.map(|(number, _)| InstanceName { task: *name, number: number as u8 }));
        }
        if all.is_empty() {
            return;
        }
        let instance = all.swap_remove(bytes.below(all.len()));
        let outcome = match bytes.below(8) {
            0 if bytes.flag() => Outcome::Unsuccessful,
            0 => Outcome::Failed,
            // The first bytes are the same: lies that look alike.
            1 | 2 => Outcome::Done([[1; 16], [bytes.below(3) as u8; 16]].concat().try_into().expect("32 bytes")),
            _ => Outcome::Done([1; 32]),
        };
        // Where there is no room for another copy the record of a late one is used for it: then it is known no more.
        let is_known = self.table.instances(instance.task).iter().any(|known| known.name == instance);
        let task = self.model.tasks.get_mut(&instance.task).expect("there");
        let account = task.copies[usize::from(instance.number)].account;
        let is_lone = self.model.jobs[&task.job].policy.quorum <= 1;
        let is_second = !is_lone && task.copies.iter().any(|copy| copy.account == account && copy.said.is_some());
        let copy = &mut task.copies[usize::from(instance.number)];
        if let (Outcome::Done(digest), false, true) = (outcome, is_second, is_known) {
            copy.said = Some(digest);
        }
        copy.is_out = false;
        copy.is_late = false;
        let report = Report { instance, outcome, cost_ms: bytes.below(256) as u32 };
        self.handle(Event::Report { host, reports: &[report], want: bytes.below(4) as u8 });
    }

    fn pass(&mut self, bytes: &mut Bytes<'_>) {
        let until = self.model.now_ms + [1, 10, 100, 1_000, 5_000, 400_000][bytes.below(6)];
        while self.model.now_ms < until {
            let next = self.table.next_tick().map_or(until, |next| (next / MS).clamp(self.model.now_ms + 1, until));
            self.model.now_ms = next;
            self.catch_up();
        }
    }

    /// All that is due, or is done by and by.
    fn catch_up(&mut self) {
        self.handle(Event::Tick);
        for _ in 0..10_000 {
            if !self.table.is_behind(self.model.now_ms * MS) {
                return;
            }
            self.handle(Event::Tick);
        }
        panic!("ticks without an end: {:?}", self.table.totals());
    }

    fn assimilate(&mut self, bytes: &mut Bytes<'_>) {
        let decided = self.model.tasks.iter().filter(|(_, task)| task.decided.is_some());
        let names: Vec<TaskName> = decided.map(|(name, _)| *name).take(1 + bytes.below(16)).collect();
        self.handle(Event::Assimilated(&names));
    }

    fn compare(&mut self, bytes: &mut Bytes<'_>) {
        let Some((task, mask)) = self.model.compares.pop() else { return };
        let agree = mask & !(bytes.next().unwrap_or_default() as u16 & 0b11);
        self.handle(Event::Compared { task, agree });
    }

    fn host_changes(&mut self, bytes: &mut Bytes<'_>) {
        let Some(host) = self.some_host(bytes) else { return };
        match bytes.below(3) {
            0 => {
                let is_draining = bytes.flag();
                self.model.hosts.get_mut(&host).expect("there").is_draining = is_draining;
                self.handle(Event::Drain(host, is_draining));
            }
            1 => drop(self.handle(Event::Warm(host, bytes.below(3) as u32))),
            _ => {
                self.model.hosts.remove(&host);
                self.handle(Event::Leave(host));
                // It is taken back by and by; for the model at once.
                for copy in self.model.tasks.values_mut().flat_map(|task| &mut task.copies) {
                    if copy.host == host {
                        copy.is_out = false;
                        copy.is_late = false;
                    }
                }
                self.catch_up();
            }
        }
    }

    fn job_changes(&mut self, bytes: &mut Bytes<'_>) {
        let Some(job) = self.some_job(bytes) else { return };
        match bytes.below(6) {
            0 => {
                let is_held = bytes.flag();
                let is_open = self.table.job(job).is_some_and(|view| !view.has_ended);
                if is_open && !self.model.cancelled.contains(&job) {
                    let is_away = bytes.flag();
                    self.handle(if is_away { Event::Away(job, is_held) } else { Event::Hold(job, is_held) });
                    let view = self.table.job(job).expect("it is there");
                    if view.is_held || view.is_away {
                        self.model.held.insert(job)
                    } else {
                        self.model.held.remove(&job)
                    };
                }
            }
            1 => drop(self.handle(Event::Urgency(job, Urgency::ALL[[0, 2, 3][bytes.below(3)]]))),
            2 => drop(self.handle(Event::Close(job))),
            3 => {
                self.model.cancelled.insert(job);
                self.handle(Event::CancelJob(job));
            }
            4 => {
                let task = self.model.tasks.keys().nth(bytes.below(self.model.tasks.len())).copied();
                task.into_iter().for_each(|task| drop(self.handle(Event::CancelTask(task))));
            }
            _ => {
                if self.table.job(job).is_some_and(|view| view.has_ended) {
                    self.handle(Event::Forget(job));
                    self.model.jobs.remove(&job);
                }
            }
        }
    }
}

/// Has happen what the bytes say, and compares.
pub fn compare_by(bytes: &[u8]) {
    let capacity = Capacity { accounts: 8, hosts: 8, jobs: 8, groups: 24, tasks: 40, instances: 60, nodes: 64 };
    let mut table = Table::new(capacity, 3, 0);
    table.count(Counting::Steps);
    let mut both = Both { table, effects: Effects::default(), model: Model::default(), keys: 0 };
    for _ in 0..5 {
        let key = both.key();
        let spec = AccountSpec { key, weight: 1, share_permille: 100, tasks_max: 30, running_max: OUT_MAX as u32 };
        if let [Effect::Account(name)] = both.handle(Event::Account(spec))[..] {
            both.model.accounts.push(name);
        }
    }
    let mut bytes = Bytes(bytes);
    while let Some(kind) = bytes.next() {
        both.step(kind, &mut bytes);
        both.table.check_invariants();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    /// Each has hundreds of events. They are the same each time; looking for others is a fuzzer's work.
    const CASES: u32 = 200;
    const SEED: RngSeed = RngSeed::Fixed(2026);

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: SEED, ..ProptestConfig::with_cases(CASES) })]
        #[test]
        fn the_table_does_what_the_model_allows(bytes in proptest::collection::vec(any::<u8>(), 1..1500)) {
            super::compare_by(&bytes);
        }
    }
}

//! A table with the words to drive it.

use std::convert::Infallible;
use tasks::*;

/// Nanoseconds in a millisecond.
pub const MS: u64 = 1_000_000;

/// A table, and the time.
pub struct World {
    pub table: Table,
    pub effects: Effects,
    pub now: u64,
    next_key: u128,
}

/// What a desk is.
pub const DESK: Shape =
    Shape { platform: Platform::LINUX_X86_64, level: 3, cpus: 4, largest: 4, memory_mib: 8192, tags: 0, redundancy: 1 };
/// What a simple task needs.
pub const SMALL: Need =
    Need { platform: Platform::LINUX_X86_64, level: 1, cpus: 1, memory_mib: 100, tags: 0, is_homogeneous: false };

impl World {
    pub fn new(hosts: usize, tasks: usize) -> Self {
        Self { table: Table::new(Capacity::of(hosts, tasks), 7, 0), effects: Effects::default(), now: 0, next_key: 0 }
    }

    /// Does an event, and returns its effects.
    pub fn handle(&mut self, event: Event<'_>) -> Vec<Effect> {
        self.table.handle(&event, self.now, &mut self.effects);
        self.table.check_invariants();
        self.effects.to_vec()
    }

    fn key(&mut self) -> u128 {
        self.next_key += 1;
        self.next_key
    }

    pub fn account(&mut self) -> AccountName {
        self.account_with(1, 0)
    }

    pub fn account_with(&mut self, weight: u16, share_permille: u16) -> AccountName {
        let key = self.key();
        let spec = AccountSpec { key, weight, share_permille, tasks_max: 100_000, running_max: 100_000 };
        match self.handle(Event::Account(spec))[..] {
            [Effect::Account(name)] => name,
            ref other => panic!("{other:?}"),
        }
    }

    pub fn host_spec(&mut self, account: AccountName, shape: Shape) -> HostSpec {
        let key = self.key();
        HostSpec { key, account, shape, speed_permille: 1000, is_fresh: true, is_attached: false }
    }

    /// A host that asks for work.
    pub fn host(&mut self, account: AccountName) -> HostName {
        let spec = self.host_spec(account, DESK);
        self.join(spec).0
    }

    /// A host that is sent work as it comes.
    pub fn attached(&mut self, account: AccountName) -> HostName {
        let spec = self.host_spec(account, DESK);
        self.join(HostSpec { is_attached: true, ..spec }).0
    }

    /// A host joins: its name, and what it was sent at once.
    pub fn join(&mut self, spec: HostSpec) -> (HostName, Vec<Effect>) {
        let effects = self.handle(Event::Join(spec));
        match effects[0] {
            Effect::Host(name) => (name, effects[1..].to_vec()),
            ref other => panic!("{other:?}"),
        }
    }

    pub fn job_spec(&mut self, account: AccountName) -> JobSpec {
        JobSpec {
            key: self.key(),
            account,
            urgency: Urgency::Normal,
            need: SMALL,
            policy: Policy::default(),
            cost_ms: 1000,
            affinity: 0,
            failures_max: u32::MAX,
            is_volatile: false,
        }
    }

    /// A job as [`World::job_spec`] has it.
    pub fn job(&mut self, account: AccountName) -> JobName {
        let spec = self.job_spec(account);
        self.open(spec)
    }

    pub fn open(&mut self, spec: JobSpec) -> JobName {
        match self.handle(Event::Open(spec))[..] {
            [Effect::Job(name, _)] => name,
            ref other => panic!("{other:?}"),
        }
    }

    /// Submits tasks to a job, and returns their names and the other effects.
    pub fn submit(&mut self, job: JobName, count: u8, deadline_ms: u64) -> (Vec<TaskName>, Vec<Effect>) {
        let first = self.table.job(job).expect("known").tasks;
        let effects = self.handle(Event::Submit { job, first, count, later: 0, is_promised: false, deadline_ms });
        let name = |effect: &Effect| if let Effect::Submitted(name) = effect { Some(*name) } else { None };
        (
            effects.iter().filter_map(name).collect(),
            effects.into_iter().filter(|effect| name(effect).is_none()).collect(),
        )
    }

    /// What a host gets that asks for so many.
    pub fn request(&mut self, host: HostName, want: u8) -> Vec<InstanceName> {
        sent(&self.handle(Event::Request { host, want }))
    }

    pub fn done(&mut self, host: HostName, instance: InstanceName, result: u8) -> Vec<Effect> {
        let report = Report { instance, outcome: Outcome::Done([result; 32]), cost_ms: 1000 };
        self.handle(Event::Report { host, reports: &[report], want: 0 })
    }

    pub fn failed(&mut self, host: HostName, instance: InstanceName) -> Vec<Effect> {
        let report = Report { instance, outcome: Outcome::Failed, cost_ms: 1 };
        self.handle(Event::Report { host, reports: &[report], want: 0 })
    }

    /// Lets time pass, with all that is due.
    pub fn pass(&mut self, ms: u64) -> Vec<Effect> {
        let mut all = Vec::new();
        let until = self.now + ms * MS;
        loop {
            let next = self.table.next_tick().filter(|next| *next <= until);
            self.now = next.unwrap_or(until).max(self.now);
            all.extend(self.handle(Event::Tick));
            while self.table.is_behind(self.now) {
                all.extend(self.handle(Event::Tick));
            }
            if self.now == until {
                return all;
            }
        }
    }
}

/// A table as bytes.
pub fn saved(table: &Table) -> Vec<u8> {
    let mut bytes = Vec::new();
    let Ok(()) = table.save(|piece| {
        bytes.extend_from_slice(piece);
        Ok::<_, Infallible>(())
    });
    bytes
}

/// A table from bytes, which come in pieces of so many at most.
pub fn loaded(mut bytes: &[u8], piece: usize) -> Result<Table, LoadError<Infallible>> {
    Table::load_saved(|room| {
        let (now, later) = bytes.split_at(piece.min(room.len()).min(bytes.len()));
        room[..now.len()].copy_from_slice(now);
        bytes = later;
        Ok(now.len())
    })
}

/// The instances that effects send.
pub fn sent(effects: &[Effect]) -> Vec<InstanceName> {
    effects
        .iter()
        .filter_map(|effect| if let Effect::Send { instance, .. } = effect { Some(*instance) } else { None })
        .collect()
}

/// The decisions among effects.
pub fn decided(effects: &[Effect]) -> Vec<(TaskName, Result<u8, Failure>)> {
    let of = |effect: &Effect| {
        if let Effect::Assimilate { task, result, .. } = effect { Some((*task, *result)) } else { None }
    };
    effects.iter().filter_map(of).collect()
}

/// Why the event was refused, if it was.
pub fn refused(effects: &[Effect]) -> Option<Refusal> {
    effects.iter().find_map(|effect| if let Effect::Refused(refusal) = effect { Some(*refusal) } else { None })
}

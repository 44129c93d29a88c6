//! What always holds, looked at over the whole table: for tests, simulations, and an operator who has a journal verified.

use super::Table;
use super::records::{Fate, JobStage, NO_INSTANCE, Presence, Stage, Standing};
use crate::kinds::KINDS_MAX;
use crate::shapes::NIL;
use std::collections::BTreeMap;

/// Counts by index.
type Counts = BTreeMap<u32, u32>;

fn add(counts: &mut Counts, at: u32, number: u32) {
    *counts.entry(at).or_default() += number;
}

fn of(counts: &Counts, at: u32) -> u32 {
    counts.get(&at).copied().unwrap_or_default()
}

impl Table {
    /// Looks whether everything agrees with everything.
    ///
    /// # Panics
    /// If not. It takes time in proportion to the table.
    pub fn check_invariants(&self) {
        let mut seen = Seen::default();
        for (at, task) in self.tasks.all().filter(|(_, task)| task.stage != Stage::Free) {
            self.check_task(at, task, &mut seen);
        }
        assert_eq!(self.instances.used() as u32, seen.instances, "instances belong to tasks");
        assert_eq!(self.set_aside, seen.set_aside, "set aside");
        assert!(self.instances.room() >= self.set_aside as usize, "what is set aside is there");
        let groups = self.groups_by(|group| group.job);
        for (at, job) in self.jobs.all().filter(|(_, job)| job.stage != JobStage::Free) {
            assert_eq!(job.unfinished, of(&seen.of_job, at), "tasks of job {at}");
            assert_eq!(u32::from(job.group_count), of(&groups, at), "groups of job {at}");
        }
        for (at, account) in self.accounts.all().filter(|(_, account)| account.generation != 0) {
            assert_eq!(account.running, of(&seen.running, at), "instances out of account {at}");
            assert_eq!(account.tasks, of(&seen.of_account, at), "tasks of account {at}");
        }
        assert_eq!(self.gauges, self.counted(), "what is counted as it changes");
        assert_eq!(self.speeds, self.speeds_counted(), "processors by speed");
        self.check_queues(&seen);
        self.check_hosts(&seen);
        self.check_kinds();
    }

    /// A kind that somebody uses makes way for no other.
    fn check_kinds(&self) {
        let (mut hosts, mut jobs) = (vec![0u32; KINDS_MAX], vec![0u32; KINDS_MAX]);
        let (of_hosts, of_jobs) = self.users_of_kinds();
        of_hosts.into_iter().for_each(|kind| hosts[usize::from(kind)] += 1);
        of_jobs.into_iter().for_each(|kind| jobs[usize::from(kind)] += 1);
        assert_eq!(self.kinds.users(), (&hosts[..], &jobs[..]), "users of each kind");
        let lanes = self.lanes.all().filter(|(_, lane)| lane.users > 0);
        lanes.for_each(|(at, lane)| assert!(jobs[usize::from(lane.need)] > 0, "lane {at} is of a job"));
        for (kind, hosts) in hosts.iter().enumerate().filter(|(_, hosts)| **hosts == 0) {
            assert_eq!(*self.supply.peek(kind as u32), 0, "nobody of kind {kind} lends: {hosts}");
        }
    }

    fn check_task(&self, at: u32, task: &super::records::Task, seen: &mut Seen) {
        let account = self.jobs[task.job].account;
        add(&mut seen.of_job, task.job, 1);
        add(&mut seen.of_account, account, 1);
        seen.set_aside += u32::from(task.set_aside);
        let (mut out, mut done) = (0, 0);
        let mut instance_at = task.newest;
        while instance_at != NIL {
            let instance = &self.instances[instance_at];
            seen.instances += 1;
            done += u8::from(instance.fate == Fate::Done);
            if instance.fate == Fate::Out {
                out += 1;
                assert_ne!(instance.bucket, NIL, "an instance that is out has a timer");
                add(&mut seen.running, account, 1);
                *seen.places.entry(instance.host).or_default() |= 1u128 << instance.place;
                let more = &self.host_more[instance.host];
                assert_eq!(more.running[instance.place as usize], instance_at, "its place at its host");
                add(&mut seen.cpus, instance.host, self.kinds.need(self.jobs[task.job].need).cpus.into());
            }
            instance_at = instance.before;
        }
        assert_eq!(task.out, out, "instances out of task {at}");
        assert_eq!(
            task.group != NIL,
            matches!(task.stage, Stage::Open | Stage::Comparing),
            "in a group while undecided"
        );
        match task.stage {
            Stage::Open => {
                assert_eq!(task.successes, done, "results of task {at}");
                assert_eq!(task.unsent > 0, task.is_listed, "ready, so listed");
                assert!(task.unsent > 0 || task.out > 0, "task {at} would wait for ever");
                add(&mut seen.of_group, task.group, 1);
                add(&mut seen.ready, task.group, u32::from(task.is_listed));
            }
            Stage::Comparing => {
                assert!(!task.is_listed, "not sent while it is compared");
                add(&mut seen.of_group, task.group, 1);
            }
            Stage::Assimilating if task.canonical != NO_INSTANCE => self.check_quorum(at, task),
            Stage::Assimilating | Stage::Cleaning | Stage::Free => {}
        }
    }

    /// The quorum was met by results of as many accounts.
    fn check_quorum(&self, at: u32, task: &super::records::Task) {
        let mut accounts = std::collections::BTreeSet::new();
        let mut instance_at = task.newest;
        let all = std::iter::from_fn(|| {
            let found = (instance_at != NIL).then(|| &self.instances[instance_at])?;
            instance_at = found.before;
            Some(found)
        });
        for instance in all.filter(|instance| instance.fate == Fate::Done) {
            let is_first = accounts.insert(instance.account);
            assert!(
                is_first || !self.jobs[task.job].policy.needs_agreement(),
                "two results of one account for task {at}"
            );
        }
        assert!(accounts.len() >= usize::from(task.quorum), "a quorum for task {at}");
    }

    fn groups_by(&self, key: impl Fn(&super::records::Group) -> u32) -> Counts {
        let mut counts = Counts::new();
        for (_, group) in self.groups.all().filter(|(_, group)| group.unfinished > 0) {
            add(&mut counts, key(group), 1);
        }
        counts
    }

    fn check_queues(&self, seen: &Seen) {
        let mut standing = Counts::new();
        for (at, group) in self.groups.all().filter(|(_, group)| group.unfinished > 0) {
            assert_eq!(group.unfinished, of(&seen.of_group, at), "tasks of group {at}");
            let job = &self.jobs[group.job];
            let is_held = job.held != 0 || (group.is_late && job.policy.drops_late);
            let stands = group.standing != Standing::Out;
            assert_eq!(stands, of(&seen.ready, at) > 0 && !is_held, "group {at} stands if it is ready");
            assert_eq!(group.ready == NIL, of(&seen.ready, at) == 0, "ready tasks of group {at}");
            add(&mut standing, group.lane, u32::from(stands));
        }
        let users = self.groups_by(|group| group.lane);
        let mut weights = Counts::new();
        for (at, lane) in self.lanes.all().filter(|(_, lane)| lane.users > 0) {
            assert_eq!((lane.users, lane.standing), (of(&users, at), of(&standing, at)), "groups in lane {at}");
            if lane.standing > 0 {
                assert_ne!(self.head(at), NIL, "lane {at} has a first group");
                add(&mut weights, Self::ring_of(lane.urgency, lane.need), lane.weight.into());
            }
        }
        for at in 0..super::RINGS as u32 {
            let ring = self.rings.peek(at);
            assert_eq!((ring.weight, ring.first == NIL), (of(&weights, at), of(&weights, at) == 0), "ring {at}");
        }
    }

    fn check_hosts(&self, seen: &Seen) {
        for (at, host) in self.hosts.all().filter(|(_, host)| host.presence != Presence::Free) {
            assert_eq!(host.places, seen.places.get(&at).copied().unwrap_or_default(), "places of host {at}");
            let cpus = i32::from(self.kinds.shape(host.kind).cpus);
            assert_eq!(host.cpus_free + of(&seen.cpus, at) as i32, cpus, "processors of host {at}");
        }
    }
}

/// What was counted on the way through the tasks.
#[derive(Default)]
struct Seen {
    instances: u32,
    set_aside: u32,
    of_job: Counts,
    of_account: Counts,
    of_group: Counts,
    ready: Counts,
    running: Counts,
    places: BTreeMap<u32, u128>,
    cpus: Counts,
}

//! Which task a host gets, and which host a task: both come down to "what is next for this host".
//!
//! All loops have a bound of their own, and one event has [`LOOKS_MAX`] looks at heads of queues, whatever it gives out. When these
//! are spent, hosts wait although there may be something for them, and are tried again soon.

use super::hosts::{WRONG_MAX, tag_of};
use super::records::{Fate, Instance, NO_SERVER, Presence, Ready, Standing};
use super::{MS, Table};
use crate::event::{BATCH_MAX, Effect, Effects, RUNNING_MAX, Urgency};
use crate::names::InstanceName;
use crate::shapes::NIL;
use crate::shapes::list::{push_back, rotate, unlink};

/// Heads of queues that one event may look at.
pub(super) const LOOKS_MAX: u32 = 64;
/// Rings that are compared for one instance.
const RINGS_MAX: usize = 8;
/// Lanes of a ring that are looked at for one instance.
const LANES_MAX: u32 = 4;
/// Tasks of a group that are looked at for one instance: a copy of the first may be out to the same account.
const TASKS_MAX: u32 = 4;
/// How often a group may stand first and not fit before processors are kept free for it.
const PASSES_MAX: u8 = 32;
/// How often a group is passed over for a host that has not its files near.
const COLD_PASSES_MAX: u8 = 3;
/// How often a task may be first in vain before accounts may have a second copy; and the same where none needs to agree with another.
const TASK_PASSES_MAX: u8 = 64;
const LONE_PASSES_MAX: u8 = 8;
/// Results in a row that were right, from which on a host is trusted (BOINC: adaptive replication).
const TRUSTED: u16 = 10;

/// What is looked at one after the other: those with a reserved share that have had what it is worth for now come behind others who
/// are not idle, so that these get the rest.
const ORDER: [(Urgency, bool); 5] = [
    (Urgency::Interactive, false),
    (Urgency::Reserved, false),
    (Urgency::Normal, false),
    (Urgency::Reserved, true),
    (Urgency::Spare, false),
];

/// A task that a host may have.
struct Choice {
    group: u32,
    task: u32,
}

impl Table {
    /// Gives a host up to `want` instances, at most a batch. Returns how many.
    pub(super) fn serve(&mut self, host: u32, want: usize, effects: &mut Effects) -> usize {
        self.host_more.prefetch(host);
        let mut given = 0;
        while given < want.min(BATCH_MAX) && self.looks > 0 && self.may_have_more(host) {
            let Some(choice) = self.choose(host) else { break };
            self.send(host, choice, effects);
            given += 1;
        }
        given
    }

    pub(super) fn may_have_more(&self, host: u32) -> bool {
        let host = &self.hosts[host];
        host.presence == Presence::Here
            && !host.is_backing_off
            && !host.is_silent
            // One that was sent back is given one at a time until one is right.
            && (host.wrong < WRONG_MAX || host.places == 0)
            && host.cpus_free > 0
            && (host.places.count_ones() as usize) < RUNNING_MAX
            && self.instances.room() > 0
    }

    fn choose(&mut self, host: u32) -> Option<Choice> {
        if self.hosts[host].reserved != NIL
            && let Some(choice) = self.choose_reserved(host)
        {
            return choice;
        }
        let kind = self.hosts[host].kind;
        for (urgency, is_ahead) in ORDER {
            let (mut rings, count) = self.rings_for(urgency, kind);
            // The one that was given least comes first.
            if count > 1 {
                rings[..count].sort_unstable();
            }
            for (_, ring) in &rings[..count] {
                let found = self.choose_in(*ring, urgency, is_ahead, host);
                if found.is_some() || self.looks == 0 {
                    return found;
                }
            }
        }
        None
    }

    /// Some group waits for this host's processors. `None`: no longer.
    fn choose_reserved(&mut self, host: u32) -> Option<Option<Choice>> {
        let at = self.hosts[host].reserved;
        let group = &self.groups[at];
        // It may have been dropped since, and its record be another's that this host cannot serve.
        let kind = self.hosts[host].kind;
        if group.standing == Standing::Out || !self.kinds.can_serve(kind, self.lanes[group.lane].need) {
            self.hosts[host].reserved = NIL;
            return None;
        }
        let account = &self.accounts[self.lanes[group.lane].account];
        if i32::from(group.cpus) > self.hosts[host].cpus_free || account.running >= account.running_max {
            return Some(None);
        }
        self.hosts[host].reserved = NIL;
        self.task_for(at, host).map(|task| Some(Choice { group: at, task }))
    }

    /// The rings with lanes that hosts of a kind can serve: up to some, each with what it was given.
    fn rings_for(&self, urgency: Urgency, kind: u16) -> ([(u64, u32); RINGS_MAX], usize) {
        let mut found = [(u64::MAX, NIL); RINGS_MAX];
        // Elsewhere each time, so that all have their turn where there are more.
        let needs = self.waiting.common(urgency as usize, self.kinds.serves(kind), self.totals.sent as u32);
        let mut count = 0;
        for need in needs.take(RINGS_MAX) {
            let ring = Self::ring_of(urgency, need);
            found[count] = (self.rings[ring].given, ring);
            count += 1;
        }
        (found, count)
    }

    fn choose_in(&mut self, ring: u32, urgency: Urgency, is_ahead: bool, host: u32) -> Option<Choice> {
        if urgency == Urgency::Reserved && !is_ahead && self.are_ahead(ring) {
            return None;
        }
        let mut fallback = None;
        for number in 0..LANES_MAX.min(self.looks) {
            self.looks -= 1;
            let by_server = urgency == Urgency::Reserved && number == 0;
            let lane = if by_server { self.lane_by_server(ring) } else { self.lane_in_turn(ring) };
            let group = self.next_in(lane);
            debug_assert_ne!(group, NIL, "a lane in a ring has a group");
            match self.look(lane, group, host) {
                Look::Cold if fallback.is_none() => fallback = Some((group, lane)),
                Look::Cold | Look::Not => {}
                Look::Task(task) => return Some(Choice { group, task }),
            }
            // Another account's, if there is one.
            let before = self.rings[ring].first;
            self.pass_turn(ring);
            if self.rings[ring].first == before || fallback.is_some_and(|(_, lane)| lane == self.rings[ring].first) {
                break;
            }
        }
        // Rather one whose files are elsewhere than none.
        let (group, _) = fallback?;
        self.task_for(group, host).map(|task| Choice { group, task })
    }

    fn look(&mut self, lane: u32, at: u32, host: u32) -> Look {
        let account = &self.accounts[self.lanes[lane].account];
        if account.running >= account.running_max {
            return Look::Not;
        }
        let group = &self.groups[at];
        self.tasks.column.prefetch(group.ready);
        self.tags.prefetch(group.ready);
        self.jobs.column.prefetch(group.job);
        if i32::from(group.cpus) > self.hosts[host].cpus_free {
            let passes = group.passes.saturating_add(1);
            self.groups[at].passes = passes;
            if passes >= PASSES_MAX && self.hosts[host].reserved == NIL {
                self.hosts[host].reserved = at;
            }
            return Look::Not;
        }
        let affinity = self.jobs[group.job].affinity;
        if affinity != 0 && group.cold_passes < COLD_PASSES_MAX && !self.host_more[host].warm.contains(&affinity) {
            self.groups[at].cold_passes += 1;
            return Look::Cold;
        }
        match self.task_for(at, host) {
            Some(task) => Look::Task(task),
            None => {
                self.missed(at);
                Look::Not
            }
        }
    }

    /// A ready task of a group that this host may have: no other copy was its account's, and it is of the same redundancy class.
    fn task_for(&mut self, group: u32, host: u32) -> Option<u32> {
        let tag = tag_of(self.hosts[host].account);
        let redundancy = self.hosts[host].redundancy;
        for _ in 0..TASKS_MAX {
            let at = self.groups[group].ready;
            let task = &self.tasks[at];
            self.tasks.column.prefetch(task.ready.prev);
            self.tasks.column.prefetch(task.ready.next);
            let (made, wanted) = (usize::from(task.made), task.redundancy);
            let is_others = made == 0 || !self.tags[at].accounts[..made].contains(&tag);
            if is_others && (wanted == 0 || wanted == redundancy) {
                if self.has_record(at) {
                    return Some(at);
                }
            } else {
                self.pass_over(at);
            }
            let first = &mut self.groups[group].ready;
            rotate::<Ready, _>(&mut self.tasks, first);
            if *first == at {
                break;
            }
        }
        None
    }

    /// Sets a record aside for one more instance of a task, unless there is one. False: there is none.
    pub(super) fn sets_aside(&mut self, at: u32) -> bool {
        if self.tasks[at].set_aside == 0 && self.instances.room() > self.set_aside as usize {
            self.tasks[at].set_aside = 1;
            self.set_aside += 1;
        }
        self.has_record(at)
    }

    /// Whether there is a record for one more instance of a task: set aside for it, not set aside for any, or that of an earlier
    /// one of which nothing came.
    fn has_record(&mut self, at: u32) -> bool {
        if self.tasks[at].set_aside > 0 || self.instances.room() > self.set_aside as usize {
            return true;
        }
        let (mut after, mut instance_at) = (NIL, self.tasks[at].newest);
        while instance_at != NIL {
            let instance = &self.instances[instance_at];
            let (fate, before) = (instance.fate, instance.before);
            if matches!(fate, Fate::Failed | Fate::Late) {
                match after {
                    NIL => self.tasks[at].newest = before,
                    after => self.instances[after].before = before,
                }
                self.instances.give(instance_at);
                self.tasks[at].set_aside += 1;
                self.set_aside += 1;
                return true;
            }
            (after, instance_at) = (instance_at, before);
        }
        false
    }

    /// A task was first and could not be had. If that goes on, those may have another copy of whose first nothing came, or no good one
    /// where one is enough, and another redundancy class if none has one now: better than that it waits for ever.
    fn pass_over(&mut self, at: u32) {
        let task = &mut self.tasks[at];
        let is_lone = !self.jobs[task.job].policy.needs_agreement();
        task.passes += 1;
        if task.passes < if is_lone { LONE_PASSES_MAX } else { TASK_PASSES_MAX } {
            return;
        }
        task.passes = 0;
        if task.out == 0 {
            task.redundancy = 0;
        }
        let mut instance_at = task.newest;
        while instance_at != NIL {
            let instance = &self.instances[instance_at];
            if matches!(instance.fate, Fate::Failed | Fate::Late) || (is_lone && instance.fate == Fate::Done) {
                self.tags[at].accounts[instance.number as usize] = 0;
            }
            instance_at = instance.before;
        }
    }

    fn send(&mut self, host_at: u32, choice: Choice, effects: &mut Effects) {
        let Choice { group: group_at, task: task_at } = choice;
        let job_at = self.groups[group_at].job;
        self.adapt(task_at, job_at, host_at);
        let job = &self.jobs[job_at];
        let (cost_ms, policy, account_at, need) = (job.cost_ms, job.policy, job.account, job.need);
        let group = &mut self.groups[group_at];
        group.passes = 0;
        group.cold_passes = 0;
        let (deadline_ms, lane) = (group.deadline_ms, group.lane);

        let now_ms = self.now_ms();
        let due_ms = now_ms + u64::from(policy.delay_bound_ms);
        let is_last = self.tasks[task_at].is_speculated;
        // Who is given up before the deadline without time for another try is given up for nothing.
        let due_ms = if is_last { due_ms.max(deadline_ms) } else { due_ms };
        let watch_ms = if policy.is_speculative { watch_ms(deadline_ms, self.run_ms(job_at), now_ms) } else { 0 };
        let is_watched = watch_ms > now_ms && watch_ms < due_ms && !is_last;
        let number = self.make_instance(task_at, host_at, need, if is_watched { watch_ms } else { due_ms }, is_watched);

        let task = &self.tasks[task_at];
        let (name, index) = (task.name(task_at), task.index);
        if task.unsent == 0 {
            self.unlist(task_at);
        } else if self.groups[group_at].ready == task_at {
            // Copies go apart: the next one is sent when all others have had theirs.
            rotate::<Ready, _>(&mut self.tasks, &mut self.groups[group_at].ready);
        }
        self.charge(lane, cost_ms);
        self.hit(group_at);
        let account = &mut self.accounts[account_at];
        account.running += 1;
        let server = account.server;
        if server != NO_SERVER {
            self.servers.charge(server, u64::from(cost_ms) * MS, self.now);
        }
        self.totals.sent += 1;
        let (host, instance) = (self.hosts[host_at].name(host_at), InstanceName { task: name, number });
        effects.push(Effect::Send { host, instance, index, due_ms });
    }

    /// The record of one more instance of a task, with its place at its host and its timer.
    fn make_instance(&mut self, task_at: u32, host_at: u32, need: u16, due_ms: u64, is_watched: bool) -> u8 {
        let at = self.instances.take().expect("whoever chooses has seen that there is room");
        let need = self.kinds.need(need);
        let (cpus, is_homogeneous) = (need.cpus, need.is_homogeneous);
        let host = &mut self.hosts[host_at];
        let place = (!host.places).trailing_zeros();
        host.places |= 1 << place;
        host.cpus_free -= i32::from(cpus);
        let (host_generation, account, redundancy) = (host.generation as u16, host.account, host.redundancy);
        self.host_more[host_at].running[place as usize] = at;

        let task = &mut self.tasks[task_at];
        let number = task.made;
        let before = std::mem::replace(&mut task.newest, at);
        task.made += 1;
        task.out += 1;
        task.unsent -= 1;
        self.gauges.out += 1;
        self.gauges.running += u32::from(task.out == 1);
        self.gauges.cpus_busy += u64::from(cpus);
        if is_homogeneous {
            task.redundancy = redundancy;
        }
        if task.set_aside > 0 {
            task.set_aside -= 1;
            self.set_aside -= 1;
        }
        self.tags[task_at].accounts[number as usize] = tag_of(account);
        self.instances[at] = Instance {
            task: task_at,
            before,
            host: host_at,
            host_generation,
            number,
            account,
            due_ms: due_ms as u32,
            place: place as u8,
            is_watched,
            ..Instance::default()
        };
        self.instances_due.insert(&mut self.instances, at);
        number
    }

    /// A task that no other host has yet: whether this one's result will do, or a quorum is wanted.
    fn adapt(&mut self, task_at: u32, job_at: u32, host_at: u32) {
        let policy = &self.jobs[job_at].policy;
        if !policy.is_adaptive {
            return;
        }
        let (quorum, target, instances_max) = (policy.quorum, policy.target, policy.instances_max);
        let right = self.hosts[host_at].right;
        let task = &self.tasks[task_at];
        if task.out > 0 || task.successes > 0 {
            return;
        }
        // One in so many is looked at all the same: the better the host, the fewer.
        let dice = (u64::from(task.generation) << 32 | u64::from(task_at)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let is_trusted = right >= TRUSTED && dice % u64::from(right) != 0;
        let (quorum, target) = if is_trusted { (1, 1) } else { (quorum, target) };
        let task = &mut self.tasks[task_at];
        let room = instances_max.saturating_sub(task.made);
        task.quorum = quorum;
        task.target = target;
        task.unsent = target.min(room).max(1);
    }

    /// Puts a task into its group's list of those that are ready.
    pub(super) fn list(&mut self, task_at: u32) {
        let task = &mut self.tasks[task_at];
        if std::mem::replace(&mut task.is_listed, true) {
            return;
        }
        self.gauges.ready += 1;
        let group_at = task.group;
        push_back::<Ready, _>(&mut self.tasks, &mut self.groups[group_at].ready, task_at);
        self.stand(group_at);
    }

    /// Takes it out of that list, if it is in.
    pub(super) fn unlist(&mut self, task_at: u32) {
        let task = &mut self.tasks[task_at];
        if !std::mem::replace(&mut task.is_listed, false) {
            return;
        }
        self.gauges.ready -= 1;
        let group_at = task.group;
        let first = &mut self.groups[group_at].ready;
        unlink::<Ready, _>(&mut self.tasks, first, task_at);
        if *first == NIL {
            self.stand_down(group_at);
        }
    }
}

enum Look {
    Task(u32),
    /// There is one, but its files are elsewhere.
    Cold,
    Not,
}

/// When a task that was sent just now gets some instances more, if nothing has come of it: when there is time for two more tries one
/// after the other, but not before it should have ended; and in time for one more.
fn watch_ms(deadline_ms: u64, run_ms: u64, now_ms: u64) -> u64 {
    let (early, late) = (deadline_ms.saturating_sub(2 * run_ms), deadline_ms.saturating_sub(run_ms + run_ms / 4));
    early.max(now_ms + run_ms + run_ms / 4).min(late)
}

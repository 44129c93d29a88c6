//! Hosts: they join, wait for work, are sent back for a while, and leave.

use super::Table;
use super::records::{Fate, Host, HostMore, NO_PARK, Parked, Presence};
use crate::event::{AccountSpec, BATCH_MAX, Effect, Effects, HostSpec, Kind, RESERVED_MAX, Refusal};
use crate::kinds::{KINDS_MAX, Shape};
use crate::names::HostName;
use crate::shapes::NIL;
use crate::shapes::list::{push_back, push_front, unlink};
use crate::shapes::slab::Slab;

/// Lists of hosts that wait for work, by how many processors they have free: 1, 2, 3, 4, 6, 8, 12, 16 and so on, at least.
pub(super) const PARKS: usize = 16;
/// Kinds of hosts of one list that are looked at for a task.
const KINDS_TRIED: usize = 4;
/// The list of those that may have more than one event could give them.
pub(super) const HUNGRY: u8 = 254;
/// Parked hosts of one kind that are looked at for a task.
const HOSTS_MAX: u32 = 4;
/// Lists that are looked into for a task, unless one of the fastest hosts is found before.
const LISTS_MAX: u32 = 8;
/// What a host with the task's files near is worth beside others of its speed: a third more.
const WARM_WORTH: u64 = 4;
/// See `WARM_WORTH`.
const COLD_WORTH: u64 = 3;
/// Errors in a row from which on a host is sent back for a while.
pub(super) const WRONG_MAX: u16 = 3;
/// The first while, which doubles with each further error, and the longest one. A host that fails everything costs a task in each;
/// one that failed only what was wrong by itself is there again for others.
const BACK_OFF_MS: u32 = 2_000;
const BACK_OFF_MAX_MS: u32 = 300_000;
/// For how long a host gets nothing that was late and says nothing: it may be no more.
const SILENCE_MS: u32 = 30_000;
/// When a host that got nothing should ask again.
const ASK_AGAIN_MS: u32 = 1_000;

/// Sixteen bits that stand for an account: two accounts have the same by chance once in 65,536, and then one host fewer may
/// have a copy. Never 0.
pub(super) fn tag_of(account: u32) -> u16 {
    ((account.wrapping_add(1).wrapping_mul(0x9e37_79b1) >> 16) as u16).max(1)
}

/// Refuses a speed that is none, in thousandths.
fn is_speed(permille: u32) -> Result<(), Refusal> {
    let refused = Refusal::Invalid("a host's speed is 1 to 1,000,000 thousandths");
    if (1..=1_000_000).contains(&permille) { Ok(()) } else { Err(refused) }
}

/// The list for hosts with so many processors free.
fn park_of(cpus: u16) -> usize {
    let log = cpus.max(1).ilog2();
    let half = if log == 0 { 0 } else { usize::from(cpus >> (log - 1)) & 1 };
    (2 * log as usize + half).min(PARKS - 1)
}

impl Table {
    pub(super) fn on_account(&mut self, spec: &AccountSpec, effects: &mut Effects) -> Result<(), Refusal> {
        if spec.weight == 0 {
            return Err(Refusal::Invalid("an account's weight is 1 at least"));
        }
        let accounts = &self.accounts;
        let known = self.account_keys.find(spec.key, |at| accounts[at].key == spec.key);
        let at = match known {
            Some(at) => at,
            None => {
                let at = self.accounts.take_as(&mut self.account_keys, spec.key);
                let at = at.ok_or(Refusal::Full(Kind::Accounts, super::submit::RETRY_MS))?;
                let generation = self.accounts[at].generation + 1;
                self.accounts[at] = super::records::Account { key: spec.key, generation, ..Default::default() };
                at
            }
        };
        let server = self.servers.set(self.accounts[at].server, spec.share_permille, self.now)?;
        let account = &mut self.accounts[at];
        account.server = server;
        account.weight = spec.weight;
        account.share_permille = spec.share_permille;
        account.tasks_max = spec.tasks_max;
        account.running_max = spec.running_max;
        effects.push(Effect::Account(account.name(at)));
        Ok(())
    }

    pub(super) fn on_join(&mut self, spec: &HostSpec, effects: &mut Effects) -> Result<(), Refusal> {
        let account = self.account_at(spec.account)?;
        is_speed(spec.speed_permille)?;
        let hosts = &self.host_more;
        let known = self.host_keys.find(spec.key, |at| hosts[at].key == spec.key);
        if let Some(at) = known {
            let host = &self.hosts[at];
            if !spec.is_fresh && host.presence != Presence::Gone && *self.kinds.shape(host.kind) == spec.shape {
                return self.come_back(at, spec, effects);
            }
            self.depart(at);
        }
        let kind = self.kinds.of_host(&spec.shape).ok_or(Refusal::Full(Kind::Kinds, super::submit::RETRY_MS))?;
        let at = self.hosts.take_as(&mut self.host_keys, spec.key);
        let at = at.ok_or(Refusal::Full(Kind::Hosts, super::submit::RETRY_MS))?;
        self.kinds.host_came(kind);
        let generation = self.hosts[at].generation + 1;
        self.hosts[at] = Host {
            generation,
            account,
            kind,
            cpus_free: spec.shape.cpus.into(),
            presence: Presence::Here,
            is_attached: spec.is_attached,
            redundancy: spec.shape.redundancy,
            ..Host::default()
        };
        let more = HostMore { key: spec.key, speed_permille: spec.speed_permille, ..HostMore::default() };
        self.host_more.put(at, more);
        self.supplies(kind, spec.speed_permille, true);
        self.totals.hosts += 1;
        effects.push(Effect::Host(self.hosts[at].name(at)));
        self.feed(at, BATCH_MAX, effects);
        Ok(())
    }

    /// A host that was here goes on with what it has.
    fn come_back(&mut self, at: u32, spec: &HostSpec, effects: &mut Effects) -> Result<(), Refusal> {
        self.is_as_fast_as(at, spec.speed_permille);
        self.hosts[at].is_attached = spec.is_attached;
        effects.push(Effect::Host(self.hosts[at].name(at)));
        self.heard_of(at);
        self.unpark(at);
        self.feed(at, BATCH_MAX, effects);
        Ok(())
    }

    fn supplies(&mut self, kind: u16, speed_permille: u32, is_more: bool) {
        let Shape { cpus, largest, .. } = *self.kinds.shape(kind);
        // Who lends nothing for a while is there all the same: tasks wait for him.
        let rests = cpus == 0 && largest > 0;
        let supply = u64::from(cpus) * u64::from(speed_permille) + u64::from(rests);
        let of_kind = &mut self.supply[u32::from(kind)];
        if is_more {
            *of_kind += supply;
            self.supply_total += supply;
            self.gauges.cpus += u64::from(cpus);
        } else {
            *of_kind -= supply;
            self.supply_total -= supply;
            self.gauges.cpus -= u64::from(cpus);
        }
        self.speeds.change(cpus, speed_permille, is_more);
        if self.supply[u32::from(kind)] > 0 {
            self.present.insert(0, kind);
        } else {
            self.present.remove(0, kind);
        }
        self.servers.supply_permille = self.supply_total;
    }

    pub(super) fn on_leave(&mut self, host: HostName) -> Result<(), Refusal> {
        let at = self.host_at(host)?;
        self.depart(at);
        Ok(())
    }

    /// A host is gone. What it had is taken back by and by.
    fn depart(&mut self, at: u32) {
        if self.hosts[at].presence == Presence::Gone {
            return;
        }
        self.unpark(at);
        self.hosts_due.remove(&mut self.host_more, at);
        let (key, speed) = (self.host_more[at].key, self.host_more[at].speed_permille);
        self.host_keys.remove(key, at);
        let host = &mut self.hosts[at];
        host.presence = Presence::Gone;
        // From now on its name is of nothing.
        host.generation += 1;
        let kind = host.kind;
        self.supplies(kind, speed, false);
        self.totals.hosts -= 1;
        push_back::<Parked, _>(&mut self.hosts, &mut self.gone, at);
    }

    /// Takes back what hosts that are gone had: so many instances at most.
    pub(super) fn take_back(&mut self, budget: u32, effects: &mut Effects) {
        for _ in 0..budget {
            let at = self.gone;
            if at == NIL {
                return;
            }
            let places = self.hosts[at].places;
            if places == 0 {
                unlink::<Parked, _>(&mut self.hosts, &mut self.gone, at);
                self.hosts[at].presence = Presence::Free;
                self.kinds.host_went(self.hosts[at].kind);
                self.hosts.give(at);
                continue;
            }
            let instance = self.host_more[at].running[places.trailing_zeros() as usize];
            self.lose(instance, Fate::Failed, effects);
        }
    }

    pub(super) fn on_resize(&mut self, host: HostName, shape: &Shape, effects: &mut Effects) -> Result<(), Refusal> {
        let at = self.host_at(host)?;
        let (before, speed) = (self.hosts[at].kind, self.host_more[at].speed_permille);
        if !self.kinds.can_become(before, shape) {
            return Err(Refusal::Full(Kind::Kinds, super::submit::RETRY_MS));
        }
        // The lists of those that wait are by kind.
        self.unpark(at);
        let cpus = self.kinds.shape(before).cpus;
        self.supplies(before, speed, false);
        // Its own kind may make way for the new one: a host that changes all the time needs one at a time.
        self.kinds.host_went(before);
        let kind = self.kinds.of_host(shape).expect("it was looked whether it can be had");
        self.kinds.host_came(kind);
        self.supplies(kind, speed, true);
        let host = &mut self.hosts[at];
        host.kind = kind;
        host.redundancy = shape.redundancy;
        host.cpus_free += i32::from(shape.cpus) - i32::from(cpus);
        self.feed(at, BATCH_MAX, effects);
        Ok(())
    }

    pub(super) fn on_speed(&mut self, host: HostName, speed_permille: u32) -> Result<(), Refusal> {
        let at = self.host_at(host)?;
        is_speed(speed_permille)?;
        self.is_as_fast_as(at, speed_permille);
        Ok(())
    }

    /// From now on a host has this speed.
    fn is_as_fast_as(&mut self, at: u32, speed_permille: u32) {
        let kind = self.hosts[at].kind;
        let before = std::mem::replace(&mut self.host_more[at].speed_permille, speed_permille);
        self.supplies(kind, before, false);
        self.supplies(kind, speed_permille, true);
    }

    pub(super) fn on_drain(&mut self, host: HostName, is_draining: bool, effects: &mut Effects) -> Result<(), Refusal> {
        let at = self.host_at(host)?;
        if is_draining {
            self.unpark(at);
            self.hosts[at].presence = Presence::Draining;
        } else {
            self.hosts[at].presence = Presence::Here;
            self.feed(at, BATCH_MAX, effects);
        }
        Ok(())
    }

    pub(super) fn on_warm(&mut self, host: HostName, affinity: u32) -> Result<(), Refusal> {
        let at = self.host_at(host)?;
        let warm = &mut self.host_more[at].warm;
        let place = warm.iter().position(|known| *known == affinity).unwrap_or(warm.len() - 1);
        warm[..=place].rotate_right(1);
        warm[0] = affinity;
        Ok(())
    }

    pub(super) fn on_request(&mut self, host: HostName, want: u8, effects: &mut Effects) -> Result<(), Refusal> {
        let at = self.host_at(host)?;
        if want == 0 || want as usize > BATCH_MAX {
            return Err(Refusal::Invalid("a host asks for 1 to 16 instances at a time"));
        }
        self.heard_of(at);
        self.unpark(at);
        let given = self.serve(at, want.into(), effects);
        if given < want.into() && !self.hosts[at].is_attached {
            // All together ask a thousand times a second at most.
            effects.push(Effect::Nothing(host, self.totals.hosts.max(ASK_AGAIN_MS)));
        }
        self.park(at);
        Ok(())
    }

    /// A host may have more than before: gives it some, and lets it wait if it can have more still.
    pub(super) fn feed(&mut self, at: u32, want: usize, effects: &mut Effects) {
        if !self.hosts[at].is_attached {
            return;
        }
        self.unpark(at);
        let given = self.serve(at, want, effects);
        if (given == want || self.looks == 0) && self.may_have_more(at) {
            self.hosts[at].park = HUNGRY;
            push_back::<Parked, _>(&mut self.hosts, &mut self.hungry, at);
        } else {
            self.park(at);
        }
    }

    /// Gives one host of those that may have more its next instances.
    pub(super) fn feed_hungry(&mut self, want: usize, effects: &mut Effects) {
        if self.hungry != NIL {
            self.feed(self.hungry, want, effects);
        }
    }

    /// Puts an attached host that can have more into a list of those that wait.
    fn park(&mut self, at: u32) {
        self.park_by(at, push_front::<Parked, _>);
    }

    /// Behind all others of its list.
    fn park_last(&mut self, at: u32) {
        self.park_by(at, push_back::<Parked, _>);
    }

    fn park_by(&mut self, at: u32, push: impl FnOnce(&mut Slab<Host>, &mut u32, u32)) {
        if !self.hosts[at].is_attached || self.hosts[at].park != NO_PARK || !self.may_have_more(at) {
            return;
        }
        let host = &mut self.hosts[at];
        let park = park_of(host.cpus_free.clamp(1, u16::MAX.into()) as u16);
        host.park = park as u8;
        let kind = host.kind;
        let head = (park * KINDS_MAX) as u32 + u32::from(kind);
        push(&mut self.hosts, &mut self.parks[head], at);
        self.parked.insert(park, kind);
    }

    /// Takes a host out of the list that it waits in, if it does.
    pub(super) fn unpark(&mut self, at: u32) {
        let host = &mut self.hosts[at];
        let (park, kind) = (std::mem::replace(&mut host.park, NO_PARK), host.kind);
        if park == NO_PARK {
            return;
        }
        if park == HUNGRY {
            return unlink::<Parked, _>(&mut self.hosts, &mut self.hungry, at);
        }
        let head = (park as usize * KINDS_MAX) as u32 + u32::from(kind);
        let first = &mut self.parks[head];
        unlink::<Parked, _>(&mut self.hosts, first, at);
        if *first == NIL {
            self.parked.remove(park as usize, kind);
        }
    }

    /// A host that waits and can have a task with this need: of some, beginning with those that have the most processors free, the one that
    /// is fastest, or has its files near and is hardly slower.
    pub(super) fn waiting_host(&self, need: u16, cpus: u16, affinity: u32) -> Option<u32> {
        let can = self.kinds.served_by(need);
        let (mut best, mut lists) = (None, 0);
        for park in (park_of(cpus)..PARKS).rev() {
            for kind in self.parked.common(park, can, 0).take(KINDS_TRIED) {
                let first = self.parks[(park * KINDS_MAX) as u32 + u32::from(kind)];
                best = self.better_of(best, first, cpus, affinity);
                lists += 1;
                if lists == LISTS_MAX || best.is_some_and(|(_, host)| self.is_of_the_fastest(host)) {
                    return best.map(|(_, host)| host);
                }
            }
        }
        best.map(|(_, host)| host)
    }

    /// The best that is known, or the best of the first hosts of a list with enough processors free: with what each is worth. Who comes
    /// first stays unless another is worth an eighth more.
    fn better_of(&self, known: Option<(u64, u32)>, first: u32, cpus: u16, affinity: u32) -> Option<(u64, u32)> {
        let (mut best, mut at) = (known, first);
        for _ in 0..HOSTS_MAX {
            if self.hosts[at].cpus_free >= i32::from(cpus) {
                let more = &self.host_more[at];
                let is_warm = affinity == 0 || more.warm.contains(&affinity);
                let worth = u64::from(more.speed_permille) * if is_warm { WARM_WORTH } else { COLD_WORTH };
                if best.is_none_or(|(known, _)| worth > known + known / 8) {
                    best = Some((worth, at));
                }
                if is_warm && self.is_of_the_fastest(at) {
                    break;
                }
            }
            at = self.hosts[at].parked.next;
            if at == first {
                break;
            }
        }
        best
    }

    fn is_of_the_fastest(&self, host: u32) -> bool {
        self.host_more[host].speed_permille >= self.speeds.fast_permille()
    }

    /// Tasks of a job have become ready: gives them to hosts that wait, so many at most.
    pub(super) fn hand_out(&mut self, job: u32, count: usize, effects: &mut Effects) {
        let job = &self.jobs[job];
        if job.held != 0 {
            return;
        }
        let (need, affinity) = (job.need, job.affinity);
        let cpus = self.kinds.need(need).cpus;
        for _ in 0..count {
            if self.looks == 0 {
                return;
            }
            let Some(host) = self.waiting_host(need, cpus, affinity) else { return };
            self.unpark(host);
            if self.serve(host, 1, effects) == 0 {
                return self.park_last(host);
            }
            self.park(host);
        }
    }

    /// Tasks that are ready and hosts that wait, and yet none got the other: a host may have had a copy before, or too few
    /// processors. Some of those that wait are tried again now and then, each in its turn. Tells whether any got something.
    pub(super) fn try_again(&mut self, count: u32, effects: &mut Effects) -> bool {
        let mut given = 0;
        for _ in 0..count {
            if !self.is_restless() {
                break;
            }
            self.tries_made = self.tries_made.wrapping_add(1);
            let Some((_, need)) = self.waiting.some(None, self.tries_made) else { break };
            let can = self.kinds.served_by(need);
            let Some((park, kind)) = self.parked.some(Some(can), !self.tries_made) else { continue };
            let host = self.parks[(park * KINDS_MAX) as u32 + u32::from(kind)];
            self.unpark(host);
            given += self.serve(host, 1, effects);
            self.park_last(host);
        }
        given > 0
    }

    /// Whether tasks are ready while hosts wait.
    pub(super) fn is_restless(&self) -> bool {
        !self.waiting.are_empty() && !self.parked.are_empty()
    }

    /// What a host has done is judged: after some errors in a row it gets nothing for a while.
    pub(super) fn judge(&mut self, at: u32, is_right: bool, effects: &mut Effects) {
        let host = &mut self.hosts[at];
        if is_right {
            host.right = host.right.saturating_add(1);
            host.wrong = 0;
            return;
        }
        host.right = 0;
        host.wrong = host.wrong.saturating_add(1);
        if host.wrong < WRONG_MAX || host.is_backing_off {
            return;
        }
        let doublings = u32::from(host.wrong - WRONG_MAX).min(11);
        let back_off_ms = (BACK_OFF_MS << doublings).min(BACK_OFF_MAX_MS);
        (host.is_backing_off, host.is_silent) = (true, false);
        let name = host.name(at);
        self.rests(at, back_off_ms);
        self.totals.back_offs += 1;
        effects.push(Effect::BackOff(name, back_off_ms));
    }

    /// A host was late, or overtaken, and has said nothing: until it does, or for a while, it gets nothing more.
    pub(super) fn on_silence(&mut self, at: u32) {
        let left_ms = self.host_more[at].until_ms.wrapping_sub(self.now_ms() as u32);
        let host = &mut self.hosts[at];
        let was_silent = std::mem::replace(&mut host.is_silent, true);
        let rests_longer = host.is_backing_off && left_ms >= SILENCE_MS;
        if !was_silent && !rests_longer {
            self.rests(at, SILENCE_MS);
        }
    }

    /// A host gets nothing for so long from now on.
    fn rests(&mut self, at: u32, while_ms: u32) {
        self.unpark(at);
        self.hosts_due.remove(&mut self.host_more, at);
        self.host_more[at].until_ms = (self.now_ms() as u32).wrapping_add(while_ms);
        self.hosts_due.insert(&mut self.host_more, at);
    }

    /// A host has said something.
    pub(super) fn heard_of(&mut self, at: u32) {
        let host = &mut self.hosts[at];
        if std::mem::take(&mut host.is_silent) && !host.is_backing_off {
            self.hosts_due.remove(&mut self.host_more, at);
        }
    }

    /// A host's while is over.
    pub(super) fn on_back(&mut self, at: u32, effects: &mut Effects) {
        self.hosts[at].is_backing_off = false;
        self.hosts[at].is_silent = false;
        self.feed(at, 1, effects);
    }
}

const _: () = assert!(RESERVED_MAX <= 255 && PARKS < HUNGRY as usize);

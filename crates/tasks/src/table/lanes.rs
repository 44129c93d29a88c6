//! Who is next: by urgency, then ring, then lane in turn, then the group with the earliest deadline.
//!
//! *Rings.* One for each urgency and kind of need. Among rings that a host can serve, the one that was given least for its weight
//! is next, as in start-time fair queueing (Goyal, Vin, Cheng: Start-Time Fair Queueing, 1996, section 2).
//! *Lanes.* In a ring accounts take turns by deficit round robin (Shreedhar, Varghese: Efficient Fair Queueing Using Deficit Round
//! Robin, 1995, section 3), in processor time as estimated, corrected when it is known. A turn is worth the largest cost of a task
//! in the ring, so that each lane is served at its first or second turn. An account that has several lanes shares its turn among them.
//! *Groups.* Earliest deadline first: late ones, then by the millisecond within 262 seconds, by four seconds within ten days. One that
//! stood first in vain, because copies of its tasks were at all accounts that asked, stands aside and gets one look in eight.

use super::Table;
use super::records::{OfJob, Queued, Ring, Standing, Turn};
use crate::event::{Kind, Refusal, Urgency};
use crate::kinds::KINDS_MAX;
use crate::shapes::NIL;
use crate::shapes::list::{push_back, rotate, unlink};
use crate::shapes::trie::KEYS;

/// Most lanes of one account: kinds of needs with one urgency that it uses at a time.
pub(super) const LANES_MAX: usize = 16;
/// How far ahead a deadline may be to be kept to the millisecond: within one round of the keys.
const NEAR_MS: u64 = KEYS as u64 - 1024;
/// Width of a bucket beyond that, as a shift.
const FAR_SHIFT: u32 = 12;
/// How often in a row a group may stand first and have nothing for the host before it stands aside.
const MISSES_MAX: u8 = 16;
/// One look in so many goes to a group that stands aside.
const ASIDE_TURN: u8 = 8;
/// Lanes that are looked at before one is served whose turn it is not.
const TURNS_MAX: u32 = 4;

impl Table {
    pub(super) fn ring_of(urgency: Urgency, need: u16) -> u32 {
        (urgency as usize * KINDS_MAX + need as usize) as u32
    }

    /// The lane of an account for an urgency and a need; a new one if need be.
    pub(super) fn lane_for(&mut self, account: u32, urgency: Urgency, need: u16) -> Result<u32, Refusal> {
        let first = self.accounts[account].lanes;
        let mut at = first;
        while at != NIL {
            let lane = &self.lanes[at];
            if lane.urgency == urgency && lane.need == need {
                return Ok(at);
            }
            at = lane.sibling;
        }
        if self.accounts[account].lanes_count as usize == LANES_MAX {
            return Err(Refusal::Full(Kind::Kinds, super::submit::RETRY_MS));
        }
        let at = self.lanes.take().ok_or(Refusal::Full(Kind::Deadlines, super::submit::RETRY_MS))?;
        self.lanes[at] = super::records::Lane { account, urgency, need, sibling: first, ..Default::default() };
        let account = &mut self.accounts[account];
        account.lanes = at;
        account.lanes_count += 1;
        Ok(at)
    }

    /// A group uses its lane no more.
    pub(super) fn leave_lane(&mut self, at: u32) {
        self.lanes[at].users -= 1;
        if self.lanes[at].users > 0 {
            return;
        }
        let (account, sibling) = (self.lanes[at].account, self.lanes[at].sibling);
        let first = self.accounts[account].lanes;
        if first == at {
            self.accounts[account].lanes = sibling;
        } else {
            let mut before = first;
            while self.lanes[before].sibling != at {
                before = self.lanes[before].sibling;
            }
            self.lanes[before].sibling = sibling;
        }
        self.accounts[account].lanes_count -= 1;
        self.lanes.give(at);
    }

    /// Has a group stand in its lane, if it has ready tasks and does not yet.
    pub(super) fn stand(&mut self, at: u32) {
        let group = &self.groups[at];
        let job = &self.jobs[group.job];
        // Late tasks that are to be dropped are on their way out.
        let is_out = job.held != 0 || (group.is_late && job.policy.drops_late);
        if group.standing != Standing::Out || group.ready == NIL || is_out {
            return;
        }
        let (lane_at, deadline_ms) = (group.lane, group.deadline_ms);
        let ahead = deadline_ms.saturating_sub(self.groups_due.base_ms());
        let standing = match deadline_ms {
            _ if group.misses >= MISSES_MAX => Standing::Aside,
            0 => Standing::Whenever,
            // Where there is no room for one more deadline it comes first: too early, and never lost.
            _ if group.is_late || !self.tries.has_room() => Standing::Late,
            _ if ahead < NEAR_MS => Standing::Near,
            _ => Standing::Far,
        };
        self.groups[at].standing = standing;
        self.queue(lane_at, standing, deadline_ms, |groups, first| push_back::<Queued, _>(groups, first, at));
        self.lanes[lane_at].standing += 1;
        if self.lanes[lane_at].standing == 1 {
            let cost_ms = self.jobs[self.groups[at].job].cost_ms;
            self.enter_ring(lane_at, cost_ms);
        }
    }

    /// Takes a group out of its lane, if it stands there.
    pub(super) fn stand_down(&mut self, at: u32) {
        let group = &mut self.groups[at];
        let standing = std::mem::take(&mut group.standing);
        if standing == Standing::Out {
            return;
        }
        let (lane_at, deadline_ms) = (group.lane, group.deadline_ms);
        self.queue(lane_at, standing, deadline_ms, |groups, first| unlink::<Queued, _>(groups, first, at));
        self.lanes[lane_at].standing -= 1;
        if self.lanes[lane_at].standing == 0 {
            self.leave_ring(lane_at);
        }
    }

    /// Changes the list in a lane that a group with this standing and deadline is in.
    fn queue(
        &mut self,
        lane: u32,
        standing: Standing,
        deadline_ms: u64,
        change: impl FnOnce(&mut crate::shapes::slab::Slab<super::records::Group>, &mut u32),
    ) {
        let lane = &mut self.lanes[lane];
        let (root, key) = match standing {
            Standing::Out => return,
            Standing::Late => return change(&mut self.groups, &mut lane.late),
            Standing::Whenever => return change(&mut self.groups, &mut lane.whenever),
            Standing::Aside => return change(&mut self.groups, &mut lane.aside),
            Standing::Near => (&mut lane.near, (deadline_ms % u64::from(KEYS)) as u32),
            Standing::Far => (&mut lane.far, ((deadline_ms >> FAR_SHIFT) % u64::from(KEYS)) as u32),
        };
        let before = self.tries.get(*root, key);
        let mut first = before;
        change(&mut self.groups, &mut first);
        if first != before {
            self.tries.set(root, key, first);
        }
    }

    /// A group stood first, and had nothing that the host may have.
    pub(super) fn missed(&mut self, at: u32) {
        let group = &mut self.groups[at];
        group.misses = group.misses.saturating_add(1);
        let (lane_at, standing, deadline_ms) = (group.lane, group.standing, group.deadline_ms);
        if standing == Standing::Aside {
            let first = &mut self.lanes[lane_at].aside;
            rotate::<Queued, _>(&mut self.groups, first);
        } else if self.groups[at].misses >= MISSES_MAX && standing != Standing::Out {
            self.queue(lane_at, standing, deadline_ms, |groups, first| unlink::<Queued, _>(groups, first, at));
            self.groups[at].standing = Standing::Aside;
            self.queue(lane_at, Standing::Aside, 0, |groups, first| push_back::<Queued, _>(groups, first, at));
        }
    }

    /// A group had a task for a host: it stands where it belongs.
    pub(super) fn hit(&mut self, at: u32) {
        let group = &mut self.groups[at];
        group.misses = 0;
        if group.standing == Standing::Aside {
            self.stand_down(at);
            self.stand(at);
        }
    }

    /// The group of a lane that is looked at next.
    pub(super) fn next_in(&mut self, lane_at: u32) -> u32 {
        let lane = &mut self.lanes[lane_at];
        if lane.aside != NIL {
            lane.looks = (lane.looks + 1) % ASIDE_TURN;
            if lane.looks == 0 {
                return lane.aside;
            }
        }
        self.head(lane_at)
    }

    /// The group of a lane that is first.
    pub(super) fn head(&self, lane: u32) -> u32 {
        let lane = &self.lanes[lane];
        if lane.late != NIL {
            return lane.late;
        }
        let base = self.groups_due.base_ms();
        let first = |root: u32, from: u64| {
            let from = (from % u64::from(KEYS)) as u32;
            self.tries.first_around(root, from).map_or(NIL, |(_, group)| group)
        };
        let near = if lane.near == NIL { NIL } else { first(lane.near, base) };
        let far = if lane.far == NIL { NIL } else { first(lane.far, base >> FAR_SHIFT) };
        match (near, far) {
            (NIL, NIL) if lane.whenever == NIL => lane.aside,
            (NIL, NIL) => lane.whenever,
            (NIL, only) | (only, NIL) => only,
            (near, far) if self.groups[near].deadline_ms <= self.groups[far].deadline_ms => near,
            (_, far) => far,
        }
    }

    fn enter_ring(&mut self, lane_at: u32, cost_ms: u32) {
        let lane = &self.lanes[lane_at];
        let (account_at, urgency, need) = (lane.account, lane.urgency, lane.need);
        let account = &mut self.accounts[account_at];
        account.lanes_standing += 1;
        let weight = account.weight;
        let lane = &mut self.lanes[lane_at];
        lane.weight = weight;
        lane.credit_ms = 0;
        let ring_at = Self::ring_of(urgency, need);
        let ring = &mut self.rings[ring_at];
        if ring.first == NIL {
            // It does not make up for the time in which nothing was wanted.
            *ring = Ring { given: ring.given.max(self.given[urgency as usize]), ..Ring::default() };
            self.waiting.insert(urgency as usize, need);
        }
        ring.weight += u32::from(weight);
        ring.quantum_ms = ring.quantum_ms.max(cost_ms);
        push_back::<Turn, _>(&mut self.lanes, &mut ring.first, lane_at);
    }

    fn leave_ring(&mut self, lane_at: u32) {
        let lane = &self.lanes[lane_at];
        let (account, urgency, need, weight) = (lane.account, lane.urgency, lane.need, lane.weight);
        self.accounts[account].lanes_standing -= 1;
        let ring_at = Self::ring_of(urgency, need);
        let ring = &mut self.rings[ring_at];
        unlink::<Turn, _>(&mut self.lanes, &mut ring.first, lane_at);
        ring.weight -= u32::from(weight);
        if ring.first == NIL {
            self.waiting.remove(urgency as usize, need);
        }
    }

    /// The lane of a ring whose turn it is.
    pub(super) fn lane_in_turn(&mut self, ring_at: u32) -> u32 {
        let quantum_ms = i64::from(self.rings[ring_at].quantum_ms);
        let mut first = self.rings[ring_at].first;
        let mut richest = (i64::MIN, first);
        for _ in 0..TURNS_MAX {
            let lane = &self.lanes[first];
            let (account, weight) = (lane.account, i64::from(lane.weight));
            let account = &mut self.accounts[account];
            let (correction, shares) = (std::mem::take(&mut account.correction_ms), i64::from(account.lanes_standing));
            let lane = &mut self.lanes[first];
            lane.credit_ms = lane.credit_ms.saturating_sub(correction);
            if lane.credit_ms > 0 {
                self.rings[ring_at].first = first;
                return first;
            }
            lane.credit_ms += (quantum_ms * weight / shares.max(1)).max(1);
            if lane.credit_ms > richest.0 {
                richest = (lane.credit_ms, first);
            }
            rotate::<Turn, _>(&mut self.lanes, &mut first);
        }
        self.rings[ring_at].first = richest.1;
        richest.1
    }

    /// Gives the turn to the next lane of a ring.
    pub(super) fn pass_turn(&mut self, ring_at: u32) {
        rotate::<Turn, _>(&mut self.lanes, &mut self.rings[ring_at].first);
    }

    /// Charges a lane, and its ring, for a task that it was given.
    pub(super) fn charge(&mut self, lane: u32, cost_ms: u32) {
        let lane = &mut self.lanes[lane];
        lane.credit_ms -= i64::from(cost_ms);
        let urgency = lane.urgency;
        let ring_at = Self::ring_of(urgency, lane.need);
        let ring = &mut self.rings[ring_at];
        ring.given += (u64::from(cost_ms) << 10) / u64::from(ring.weight.max(1));
        let given = &mut self.given[urgency as usize];
        *given = (*given).max(ring.given);
    }

    /// The group of a job with a deadline, if there is one: the one that was used last is found first.
    pub(super) fn group_with(&mut self, job: u32, deadline_ms: u64) -> Option<u32> {
        let first = self.jobs[job].groups;
        let mut at = first;
        for _ in 0..self.jobs[job].group_count {
            if self.groups[at].deadline_ms == deadline_ms && !self.groups[at].is_late {
                self.jobs[job].groups = at;
                return Some(at);
            }
            at = self.groups[at].siblings.next;
        }
        None
    }

    /// Forgets a group whose tasks have all ended.
    pub(super) fn drop_group(&mut self, at: u32) {
        self.stand_down(at);
        self.groups_due.remove(&mut self.groups, at);
        let (job_at, lane) = (self.groups[at].job, self.groups[at].lane);
        let job = &mut self.jobs[job_at];
        unlink::<OfJob, _>(&mut self.groups, &mut job.groups, at);
        job.group_count -= 1;
        self.groups.give(at);
        self.leave_lane(lane);
    }
}

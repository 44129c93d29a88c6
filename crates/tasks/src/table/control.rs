//! What users change of jobs that are there.

use super::Table;
use super::records::JobStage;
use crate::event::{Effects, Refusal, Urgency};
use crate::names::JobName;

impl Table {
    /// A job's tasks wait for one reason more, or less.
    pub(super) fn on_hold(
        &mut self,
        name: JobName,
        why: u8,
        holds: bool,
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        let at = self.job_at(name)?;
        let job = &mut self.jobs[at];
        if !matches!(job.stage, JobStage::Open | JobStage::Closed) {
            return Err(Refusal::Ended);
        }
        let was_held = job.is_held();
        job.held = if holds { job.held | why } else { job.held & !why };
        let is_held = job.is_held();
        match (was_held, is_held) {
            (false, true) => self.gauges.held += job.unfinished,
            (true, false) => self.gauges.held -= job.unfinished,
            _ => {}
        }
        let (first, count) = (job.groups, job.group_count);
        let mut group = first;
        for _ in 0..count {
            if is_held {
                self.stand_down(group);
            } else {
                self.stand(group);
            }
            group = self.groups[group].siblings.next;
        }
        self.hand_out(at, crate::event::BATCH_MAX, effects);
        Ok(())
    }

    pub(super) fn on_urgency(&mut self, name: JobName, urgency: Urgency) -> Result<(), Refusal> {
        let at = self.job_at(name)?;
        if urgency == Urgency::Reserved {
            return Err(Refusal::Invalid("a job becomes reserved by its account's share and its deadlines"));
        }
        let job = &self.jobs[at];
        if !matches!(job.stage, JobStage::Open | JobStage::Closed) {
            return Err(Refusal::Ended);
        }
        let (account, need, first, count) = (job.account, job.need, job.groups, job.group_count);
        let server = self.accounts[account].server;
        // Both lanes that its groups may go to, before anything is changed.
        let without = self.lane_for(account, urgency, need)?;
        self.lanes[without].users += 1;
        let with = match self.lane_for(account, self.urgency_with(urgency, u64::MAX, server), need) {
            Ok(lane) => lane,
            Err(refusal) => {
                self.leave_lane(without);
                return Err(refusal);
            }
        };
        self.lanes[with].users += 1;
        let mut group = first;
        for _ in 0..count {
            let lane = if self.groups[group].deadline_ms == 0 { without } else { with };
            self.lanes[lane].users += 1;
            self.stand_down(group);
            let before = std::mem::replace(&mut self.groups[group].lane, lane);
            self.leave_lane(before);
            self.stand(group);
            group = self.groups[group].siblings.next;
        }
        self.leave_lane(without);
        self.leave_lane(with);
        self.jobs[at].urgency = urgency;
        Ok(())
    }
}

//! What is no longer wanted: a task at once, a job's tasks by and by, but none of them is sent any more from that moment on.

use super::Table;
use super::records::{HELD, JobStage, Reaped, Siblings, Stage};
use crate::event::{Effects, Failure, Refusal};
use crate::names::{JobName, TaskName};
use crate::shapes::NIL;
use crate::shapes::list::{push_back, rotate, unlink};

impl Table {
    pub(super) fn on_cancel_task(&mut self, name: TaskName, effects: &mut Effects) -> Result<(), Refusal> {
        let at = self.task_at(name)?;
        self.give_up(at, Failure::Cancelled, effects);
        Ok(())
    }

    /// A task is not wanted any more, unless it is decided.
    fn give_up(&mut self, at: u32, failure: Failure, effects: &mut Effects) {
        match self.tasks[at].stage {
            Stage::Open => {}
            Stage::Comparing => self.tasks[at].stage = Stage::Open,
            Stage::Free | Stage::Assimilating | Stage::Cleaning => return,
        }
        self.decide(at, Err(failure), effects);
        self.recall_all(at, effects);
    }

    pub(super) fn on_cancel_job(&mut self, name: JobName, effects: &mut Effects) -> Result<(), Refusal> {
        let at = self.job_at(name)?;
        if matches!(self.jobs[at].stage, JobStage::Open | JobStage::Closed) {
            self.cancel(at, effects);
        }
        Ok(())
    }

    /// A job is cancelled: its groups, at most 16, leave their queues now, its tasks are looked at one by one.
    pub(super) fn cancel(&mut self, at: u32, effects: &mut Effects) {
        let job = &mut self.jobs[at];
        if job.is_held() {
            self.gauges.held -= job.unfinished;
        }
        job.stage = JobStage::Cancelled;
        self.stand_all_down(at);
        self.look_through(at);
        self.end_job(at, effects);
    }

    fn stand_all_down(&mut self, at: u32) {
        // Held groups do not stand up again.
        self.jobs[at].held |= HELD;
        let mut group = self.jobs[at].groups;
        for _ in 0..self.jobs[at].group_count {
            self.stand_down(group);
            group = self.groups[group].siblings.next;
        }
    }

    /// All tasks of a job are to be looked at, by and by.
    fn look_through(&mut self, at: u32) {
        let job = &mut self.jobs[at];
        let was = std::mem::replace(&mut job.reap_left, job.unfinished);
        if was == 0 && job.unfinished > 0 {
            push_back::<Reaped, _>(&mut self.jobs, &mut self.reaped, at);
        }
    }

    /// A job has no more tasks to be looked at.
    pub(super) fn look_no_more(&mut self, at: u32) {
        self.jobs[at].reap_left = 0;
        unlink::<Reaped, _>(&mut self.jobs, &mut self.reaped, at);
    }

    /// Some deadline of a job has passed that drops its late tasks.
    pub(super) fn drop_late(&mut self, job_at: u32) {
        self.look_through(job_at);
    }

    /// Looks at so many tasks of cancelled jobs, or of jobs that drop late ones.
    pub(super) fn reap(&mut self, budget: u32, effects: &mut Effects) {
        for _ in 0..budget {
            let job_at = self.reaped;
            if job_at == NIL {
                return;
            }
            let job = &mut self.jobs[job_at];
            job.reap_left -= 1;
            let (is_last, task) = (job.reap_left == 0, job.tasks);
            let is_cancelled = job.stage == JobStage::Cancelled;
            if is_last || task == NIL {
                self.look_no_more(job_at);
            }
            if task == NIL {
                continue;
            }
            rotate::<Siblings, _>(&mut self.tasks, &mut self.jobs[job_at].tasks);
            if is_cancelled {
                self.give_up(task, Failure::Cancelled, effects);
            } else {
                let group = self.tasks[task].group;
                if group != NIL && self.groups[group].is_late {
                    self.give_up(task, Failure::Late, effects);
                }
            }
        }
    }
}

//! Instances have ended: what their hosts say of them.

use super::Table;
use super::hosts::tag_of;
use super::records::{Fate, RESULT_BYTES, Stage};
use crate::event::{BATCH_MAX, Effects, Outcome, Refusal, Report};
use crate::names::HostName;

impl Table {
    pub(super) fn on_report(
        &mut self,
        host: HostName,
        reports: &[Report],
        want: u8,
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        let at = self.host_at(host)?;
        if reports.len() > BATCH_MAX || want as usize > BATCH_MAX {
            return Err(Refusal::Invalid("an event has 16 items at most"));
        }
        self.fetch(reports.iter().map(|report| report.instance.task));
        self.heard_of(at);
        for report in reports {
            self.on_one(at, report, effects);
        }
        if self.hosts[at].is_attached {
            self.feed(at, reports.len().max(1), effects);
        } else if want > 0 {
            self.on_request(host, want, effects)?;
        }
        Ok(())
    }

    /// One report. What is not this host's, or came before, is not counted.
    fn on_one(&mut self, host: u32, report: &Report, effects: &mut Effects) {
        let Ok(task) = self.task_at(report.instance.task) else { return };
        let Some(at) = self.instance_of(task, report.instance.number) else { return };
        if self.host_of(at) != Some(host) {
            return;
        }
        let was = self.instances[at].fate;
        match was {
            Fate::Out => self.take_in(at, Fate::Out),
            // It comes late, and may still be wanted.
            Fate::Late => {}
            Fate::Done | Fate::Failed => return,
        }
        self.account_for(task, report.cost_ms);
        match report.outcome {
            Outcome::Done(digest) => self.on_done(host, task, at, was, &digest, effects),
            Outcome::Failed | Outcome::Unsuccessful => {
                self.instances[at].fate = Fate::Failed;
                if report.outcome == Outcome::Failed {
                    self.host_more[host].failed += 1;
                    self.judge(host, false, effects);
                }
                if was == Fate::Out {
                    self.tasks[task].errors += 1;
                    self.go_on(task, effects);
                }
            }
        }
    }

    fn on_done(&mut self, host: u32, at: u32, instance_at: u32, was: Fate, digest: &[u8; 32], effects: &mut Effects) {
        let instance = &mut self.instances[instance_at];
        let needs_agreement = self.jobs[self.tasks[at].job].policy.needs_agreement();
        let (tag, tags) = (tag_of(instance.account), &mut self.tags[at]);
        let is_second =
            needs_agreement && (0..16).any(|number| tags.accounts[number] == tag && tags.results[number] != 0);
        if is_second {
            // One account counts once, where several must agree.
            instance.fate = Fate::Failed;
            return self.go_on(at, effects);
        }
        tags.accounts[instance.number as usize] = tag;
        instance.fate = Fate::Done;
        instance.result.copy_from_slice(&digest[..RESULT_BYTES]);
        let number = instance.number;
        // 0 says that there is none.
        self.tags[at].results[number as usize] = u16::from_le_bytes([digest[0], digest[1]]).max(1);
        self.host_more[host].done += 1;
        let policy = &self.jobs[self.tasks[at].job].policy;
        let (quorum, target) = (policy.quorum, policy.target);
        let task = &mut self.tasks[at];
        task.successes += 1;
        if was == Fate::Late {
            // If fewer must agree because another host is trusted, that was not said of this one.
            task.quorum = quorum;
            task.target = task.target.max(target);
            task.errors -= 1;
            // It takes the place of the one that was to be sent instead.
            if task.stage == Stage::Open && task.unsent > 0 {
                task.unsent -= 1;
                if task.unsent == 0 {
                    self.unlist(at);
                }
            }
        }
        self.go_on(at, effects);
    }

    /// What a task has cost is known now: its account is charged the rest.
    fn account_for(&mut self, task: u32, cost_ms: u32) {
        let job = &self.jobs[self.tasks[task].job];
        let (estimated, account) = (job.cost_ms, job.account);
        let account = &mut self.accounts[account];
        account.used_ms += u64::from(cost_ms);
        account.correction_ms += i64::from(cost_ms) - i64::from(estimated);
    }
}

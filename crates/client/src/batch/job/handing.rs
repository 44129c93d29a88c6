//! Which of a job's tasks the hub is given, and under which numbers it has them: where some come after others it gets each when that is
//! ready, and its numbers are not those of the job. Whatever goes to the hub or comes from it by number is translated here.

use super::super::log::{Entry, shortened};
use super::{Job, State};
use std::io;
use wire::lock;

/// Most tasks that are handed over at once.
const PORTION_MAX: usize = 1024;
/// Most tasks of a job that the hub has and that have not ended: its table has room for all accounts' jobs, and more of one job there
/// would not have it done any sooner.
const AHEAD_MAX: u32 = 8192;
/// With fewer it is given more: many at a time, and not one by one.
const AHEAD_MIN: u32 = AHEAD_MAX / 2;

impl State {
    /// What came of a task is not used.
    pub(super) fn again(&mut self, index: u32) {
        self.launched.remove(&index);
        self.order.iter_mut().for_each(|order| order.again(index));
    }
}

impl Job {
    /// Whether some of its tasks come after others.
    pub fn is_ordered(&self) -> bool {
        self.spec.after > 0
    }

    /// Which task the hub has under this number; `None`: there is none, or it has been handed over again since.
    pub fn index_of(&self, number: u32) -> Option<u32> {
        match &lock(&self.state).order {
            Some(order) => order.index_of(number),
            None => (number < self.spec.tasks).then_some(number),
        }
    }

    /// Under which number the hub has a task; `None`: it was not given it.
    pub fn number_of(&self, index: u32) -> Option<u32> {
        let state = lock(&self.state);
        match &state.order {
            Some(order) => order.number_of(index),
            None => (index < state.at_hub).then_some(index),
        }
    }

    /// How many tasks the hub is to have by now. If it has all that it was to have, the next ones get their numbers, for good. While a job
    /// is held none are handed over: they would take the room of others' in the hub's table.
    pub fn hand_over(&self, at_hub: u32) -> io::Result<u32> {
        self.end_lost()?;
        let waits = self.waits_here();
        let next = match &mut *lock(&self.state) {
            state if state.order.is_none() => return Ok(if waits { at_hub } else { self.to_hand_over(state, at_hub) }),
            State { order: Some(order), .. } if at_hub < order.count() => return Ok(order.count()),
            State { order: Some(order), .. } if at_hub > order.count() => {
                return Err(io::Error::other("the hub has tasks of it that are not known"));
            }
            State { order: Some(order), .. } if !waits => order.next(PORTION_MAX),
            _ => return Ok(at_hub),
        };
        if !next.is_empty() {
            self.log.keep(&Entry::HandedOver(next.clone()))?;
        }
        let mut state = lock(&self.state);
        state.order.iter_mut().for_each(|order| order.handed_over(&next));
        Ok(self.to_hand_over(&state, at_hub))
    }

    /// Whether its tasks wait here. With a deadline they do not: the hub says at once whether that can be met.
    fn waits_here(&self) -> bool {
        self.spec.batch.deadline_ms.is_none() && self.wanted.borrow().is_held == Some(true)
    }

    /// How many tasks the hub is to have, as far as that is decided.
    pub(super) fn to_hand_over(&self, state: &State, at_hub: u32) -> u32 {
        let (all, ended) = (self.spec.tasks, state.ends.len() as u32);
        match &state.order {
            Some(order) => order.count(),
            // Whether they can all be done in time is found out once.
            None if self.spec.batch.deadline_ms.is_some() => all,
            None if at_hub.saturating_sub(ended) >= AHEAD_MIN => at_hub,
            None => ended.saturating_add(AHEAD_MAX).min(all).max(at_hub),
        }
    }

    /// Whether the hub will be given no more, if it has so many. Where some come after others a task may be handed over again until all
    /// have ended.
    pub fn is_handed_over(&self, at_hub: u32) -> bool {
        let state = lock(&self.state);
        let all = self.spec.tasks;
        if state.order.is_some() { state.ends.len() >= all as usize } else { at_hub >= all }
    }

    /// Waits until that may have changed.
    pub async fn more(&self) {
        self.more.notified().await;
    }

    /// What came of a task is not used, and it is handed over again.
    pub fn again(&self, index: u32) -> io::Result<()> {
        self.log.keep(&Entry::Again(index))?;
        self.locks.let_go(index);
        lock(&self.state).again(index);
        self.more.notify_one();
        Ok(())
    }

    /// An instance has a lock on this file.
    pub fn locked(&self, index: u32, number: u32, path: &str) -> io::Result<()> {
        self.log.keep(&Entry::Locked { index, number, path: shortened(path) })
    }

    /// What comes of an instance is not to be trusted, from now on and also by a daemon that is started later.
    pub fn distrust(&self, index: u32, number: u32, why: &str) {
        let why = shortened(why);
        if let Err(error) = self.log.keep(&Entry::Tainted { index, number, why: why.clone() }) {
            tracing::error!(job = %self.id(), index, %error, "why a task is not to be trusted cannot be written down");
        }
        lock(&self.state).taint(index, number, why);
    }

    /// Whether a task's result is being put into place.
    pub fn is_being_taken(&self, index: u32) -> bool {
        lock(&self.taking).contains(&index)
    }

    /// Whether a task waits with a result of it: for others', or to be put into place.
    pub fn has_result(&self, index: u32) -> bool {
        let is_stuck = lock(&self.state).stuck.contains_key(&index);
        is_stuck || self.has_landed(index)
    }

    /// Whether the hub has what came of an instance of a task.
    pub fn has_landed(&self, index: u32) -> bool {
        lock(&self.state).launched.get(&index).into_iter().flatten().any(|(_, launched)| launched.is_over)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::folder::tests::make_ordered;
    use super::super::super::log::{End, How};
    use super::*;
    use base::Time;
    use std::path::Path;
    use std::sync::Arc;

    /// 1 and 2 come after 0, 3 after both, 4 after nothing.
    fn job(folder: &Path, change: impl FnOnce(&mut base::Batch)) -> Arc<Job> {
        make_ordered(folder, &[&[], &[0], &[0], &[1, 2], &[]], change);
        Job::load(folder).unwrap()
    }

    fn ends(job: &Job, index: u32, how: How) {
        job.ended(End::of(index, how)).unwrap();
    }

    /// The tasks by their numbers at the hub.
    fn numbered(job: &Job) -> Vec<Option<u32>> {
        let count = job.to_hand_over(&lock(&job.state), 0);
        (0..count).map(|number| job.index_of(number)).collect()
    }

    #[test]
    fn the_hub_gets_what_is_ready_also_after_a_restart() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("job");
        let before = job(&folder, |_| {});
        assert_eq!((before.hand_over(0).unwrap(), numbered(&before)), (2, vec![Some(0), Some(4)]));
        assert_eq!(before.hand_over(2).unwrap(), 2);
        ends(&before, 0, How::Exit(0));
        assert_eq!(before.hand_over(1).unwrap(), 2, "the hub does not have all that it was to have");
        let waits_for = |job: &Job, index: usize| job.task_lines(0, 9)[index].waits_for.clone();
        assert_eq!((waits_for(&before, 1), waits_for(&before, 3)), (vec![], vec![1, 2]));
        assert_eq!(before.hand_over(2).unwrap(), 4);
        drop(before);
        let after = Job::load(&folder).unwrap();
        let all = [Some(0), Some(4), Some(1), Some(2)];
        assert_eq!((numbered(&after), after.number_of(2), after.number_of(3)), (all.to_vec(), Some(3), None));
        // A hub that has lost the job is given the same.
        assert_eq!((after.hand_over(0).unwrap(), after.hand_over(4).unwrap()), (4, 4));
        assert!(after.hand_over(5).is_err());
        [2, 1].iter().for_each(|index| ends(&after, *index, How::Exit(0)));
        assert_eq!((after.hand_over(4).unwrap(), after.index_of(4)), (5, Some(3)));
        ends(&after, 3, How::Exit(0));
        assert!(!after.is_handed_over(5), "one has not ended");
        ends(&after, 4, How::Exit(0));
        assert!(after.is_handed_over(5) && after.all_ended());
    }

    #[test]
    fn what_comes_after_a_failure_is_not_run() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("job");
        let before = job(&folder, |batch| (batch.failures_max, batch.assimilate) = (Some(1), Some(b"true".to_vec())));
        before.hand_over(0).unwrap();
        ends(&before, 0, How::Exit(3));
        let check = |job: &Job| {
            let line = job.line();
            assert_eq!(
                (line.failed, line.state.as_str()),
                (4, "submitting"),
                "what was not run is no failure of its own"
            );
            let task = &job.task_lines(1, 1)[0];
            assert_eq!(task.status, "not run");
            assert_eq!(task.why.as_deref(), Some("task 0, after which it comes, failed (exit 3)"));
            assert_eq!(job.end(3).unwrap().how.why(), Some("task 1, after which it comes, was not run"));
            assert!(job.is_done(3) && !job.is_done(0) && job.hand_over(2).unwrap() == 2);
        };
        check(&before);
        drop(before);
        // Killed between the end and what follows from it.
        let log = std::fs::read_to_string(folder.join("log")).unwrap();
        let lines: Vec<&str> = log.split_inclusive('\n').collect();
        for kept in 2..=lines.len() {
            std::fs::write(folder.join("log"), lines[..kept].concat()).unwrap();
            check(&Job::load(&folder).unwrap());
        }
        let after = Job::load(&folder).unwrap();
        ends(&after, 4, How::Exit(0));
        [0, 4].iter().for_each(|index| after.assimilated(*index).unwrap());
        assert!(after.is_handed_over(2) && after.all_ended());
    }

    #[test]
    fn what_comes_after_a_task_that_was_cancelled_is_cancelled() {
        let above = tempfile::tempdir().unwrap();
        let job = job(&above.path().join("job"), |_| {});
        ends(&job, 0, How::Cancelled);
        assert_eq!(job.end(3).unwrap().how, How::Cancelled);
    }

    #[test]
    fn what_is_handed_over_again_has_another_number() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("job");
        let before = job(&folder, |_| {});
        before.hand_over(0).unwrap();
        before.log.keep(&Entry::Launched { index: 0, number: 0, since_ns: 7, statement: None }).unwrap();
        before.again(0).unwrap();
        for job in [before, Job::load(&folder).unwrap()] {
            assert_eq!((job.index_of(0), job.number_of(0), job.launched(0, 0).is_none()), (None, None, true));
        }
        let after = Job::load(&folder).unwrap();
        assert_eq!((after.hand_over(2).unwrap(), numbered(&after)), (3, vec![None, Some(4), Some(0)]));
        let again = Job::load(&folder).unwrap();
        assert_eq!((numbered(&again), again.launched(0, 0).map(|known| known.since)), (numbered(&after), None::<Time>));
    }

    #[test]
    fn a_large_job_is_given_in_parts_and_a_held_one_not_at_all() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("job");
        let after = vec![&[][..]; AHEAD_MAX as usize + 100];
        make_ordered(&folder, &after, |batch| batch.is_held = true);
        let job = Job::load(&folder).unwrap();
        assert_eq!((job.hand_over(0).unwrap(), job.line().state.as_str()), (0, "held"));
        job.hold(false).unwrap();
        assert_eq!((job.hand_over(0).unwrap(), job.line().state.as_str()), (AHEAD_MAX, "submitting"));
        assert_eq!(job.hand_over(AHEAD_MAX - 1).unwrap(), AHEAD_MAX - 1, "it has enough");
        job.at_hub(AHEAD_MAX);
        assert_eq!((job.line().state.as_str(), job.is_handed_over(AHEAD_MAX)), ("waiting", false));
        (0..AHEAD_MAX - AHEAD_MIN + 1).for_each(|index| lock(&job.state).end(End::of(index, How::Exit(0))));
        assert_eq!(job.hand_over(AHEAD_MAX).unwrap(), AHEAD_MAX + 100);
        job.hold(true).unwrap();
        assert_eq!(job.hand_over(AHEAD_MAX).unwrap(), AHEAD_MAX, "what waits here goes on waiting");
    }

    #[test]
    fn a_job_with_a_deadline_is_given_whole_also_if_it_is_held() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("job");
        make_ordered(&folder, &[&[], &[]], |batch| (batch.is_held, batch.deadline_ms) = (true, Some(60_000)));
        assert_eq!(Job::load(&folder).unwrap().hand_over(0).unwrap(), 2, "the hub says whether it can be met");
    }

    #[test]
    fn without_an_order_numbers_are_those_of_the_job() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("job");
        make_ordered(&folder, &[&[], &[]], |_| {});
        let job = Job::load(&folder).unwrap();
        assert_eq!((job.index_of(1), job.index_of(2), job.number_of(1)), (Some(1), None, None));
        job.at_hub(2);
        assert_eq!((job.number_of(1), job.is_ordered()), (Some(1), false));
        assert_eq!((job.hand_over(0).unwrap(), job.is_handed_over(1), job.is_handed_over(2)), (2, false, true));
        assert_eq!(std::fs::read(folder.join("log")).unwrap(), b"");
    }
}

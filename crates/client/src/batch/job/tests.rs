//! Jobs as they are told, and as a restart finds them.

use super::super::folder::Draft;
use super::super::folder::tests::{spec_of, task};
use super::super::log::Own;
use super::*;

fn job(folder: &Path, failures_max: Option<u32>) -> Arc<Job> {
    let mut draft = Draft::begin(folder).unwrap();
    draft.add(&[task("a"), task("b"), task("c")]).unwrap();
    let mut spec = spec_of(3);
    spec.batch.failures_max = failures_max;
    draft.finish(&spec).unwrap();
    Job::load(folder).unwrap()
}

fn end(index: u32, how: How) -> End {
    End { worker: "rack".into(), at_ms: 5, ..End::of(index, how) }
}

#[test]
fn a_restart_forgets_nothing_that_was_said() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("job");
    let before = job(&folder, None);
    before.ended(end(1, How::Exit(0))).unwrap();
    before.ended(end(1, How::Exit(9))).unwrap();
    before.hold(true).unwrap();
    before.set_priority(Priority::Spare).unwrap();
    drop(before);
    let after = Job::load(&folder).unwrap();
    assert!(after.is_done(1) && !after.is_done(0));
    assert_eq!(after.end(1).unwrap().how, How::Exit(0), "the first end counts");
    let line = after.line();
    assert_eq!((line.state.as_str(), line.done, line.waiting, line.priority.as_str()), ("held", 1, 2, "spare"));
    after.hold(false).unwrap();
    after.ended(end(0, How::Failed("no agreement".into()))).unwrap();
    after.collected().unwrap();
    let line = Job::load(&folder).unwrap().line();
    assert_eq!((line.state.as_str(), line.done, line.failed), ("failed", 1, 2));
}

#[test]
fn with_too_many_failures_it_is_given_up() {
    let above = tempfile::tempdir().unwrap();
    let job = job(&above.path().join("job"), Some(1));
    job.ended(end(0, How::Exit(1))).unwrap();
    assert_eq!(job.line().state, "submitting");
    job.ended(end(1, How::Signal(9))).unwrap();
    assert_eq!(job.line().state, "cancelling");
    assert!(job.wanted().borrow().cancelled.as_deref().unwrap().contains("--max-failures 1"));
}

#[test]
fn what_hinders_a_job_and_what_was_cut_is_told() {
    let above = tempfile::tempdir().unwrap();
    let job = job(&above.path().join("job"), None);
    job.stuck(1, "No space left on device");
    assert!(job.line().problem.unwrap().ends_with("task 1 made waits to be put into place: No space left on device"));
    job.ended(end(1, How::Exit(0))).unwrap();
    assert_eq!(job.line().problem, None);
    job.not_assimilated(1, Some("--assimilate failed"));
    assert_eq!(job.line().problem.as_deref(), Some("task 1 has ended: --assimilate failed"));
    assert_eq!(job.task_lines(1, 1)[0].why.as_deref(), Some("--assimilate failed"));
    job.not_assimilated(1, None);
    assert_eq!(job.line().problem, None);
    job.ended(End { is_cut: true, ..end(0, How::Exit(0)) }).unwrap();
    job.ended(End { own: Some(Own::Signal(9)), ..end(2, How::NotCommitted("/x".into())) }).unwrap();
    job.collected().unwrap();
    assert!(job.line().problem.unwrap().contains("the output of a task was cut"));
    assert_eq!(job.line().state, "failed");
    let tasks = job.task_lines(0, 3);
    assert!(tasks[0].why.as_ref().unwrap().contains("cut") && tasks[0].exit == Some(0));
    assert_eq!((tasks[0].status.as_str(), tasks[1].status.as_str()), ("exit 0, output cut", "exit 0"));
    assert_eq!((tasks[2].exit, tasks[2].signal, tasks[2].signal_name.as_deref()), (None, Some(9), Some("SIGKILL")));
}

#[test]
fn a_job_that_is_done_but_for_output_that_was_cut_is_not_just_done() {
    let above = tempfile::tempdir().unwrap();
    let job = job(&above.path().join("job"), None);
    (0..3).for_each(|index| job.ended(End { is_cut: index == 1, ..end(index, How::Exit(0)) }).unwrap());
    job.collected().unwrap();
    assert_eq!((job.line().state.as_str(), job.line().done, job.line().failed), ("cut", 3, 0));
}

#[test]
fn a_quorum_that_cannot_be_met_is_told() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("job");
    let mut draft = Draft::begin(&folder).unwrap();
    draft.add(&[task("a")]).unwrap();
    let mut spec = spec_of(1);
    spec.batch.quorum = 2;
    draft.finish(&spec).unwrap();
    let job = Job::load(&folder).unwrap();
    job.set_workers(2);
    assert_eq!(job.line().problem, None);
    job.set_workers(1);
    assert!(job.line().problem.unwrap().starts_with("--quorum 2 needs 2 workers of different owners, and 1 "));
    let launched = Launched::earlier(Time(1));
    lock(&job.state).launch(0, 0, launched);
    assert_eq!(job.task_lines(0, 1)[0].why, None);
    job.landed(0, 0);
    let task = &job.task_lines(0, 1)[0];
    let why = "it has 1 of the 2 results that must agree, and the only worker that is here has run it: it waits for another one";
    assert_eq!((task.status.as_str(), task.why.as_deref()), ("waiting", Some(why)));
}

#[test]
fn what_an_instance_was_not_told_outlives_the_daemon() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("job");
    let before = job(&folder, None);
    before.log.keep(&Entry::Launched { index: 2, number: 1, since_ns: 77, statement: None }).unwrap();
    before.taint(2, 1, "/x changed");
    drop(before);
    let after = Job::load(&folder).unwrap();
    let known = after.launched(2, 1).unwrap();
    assert_eq!((known.since, known.tainted.as_deref(), known.view.is_none()), (Time(77), Some("/x changed"), true));
    assert!(after.launched(2, 2).is_none());
    assert_ne!(after.commit_task(1), after.commit_task(2));
}

#[test]
fn a_job_that_does_not_reach_the_hub_says_why() {
    let above = tempfile::tempdir().unwrap();
    let job = job(&above.path().join("job"), None);
    let tries = job.unreached();
    job.is_out_of_reach("nobody listens there");
    assert_eq!((tries.has_changed().unwrap(), job.line().problem.as_deref()), (true, Some("nobody listens there")));
}

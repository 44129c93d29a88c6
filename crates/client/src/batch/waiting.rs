//! Why tasks of a job wait: what is known here, and else what the hub says of those that it has.

use super::Found;
use super::job::Job;
use crate::ask::ask_hub;
use crate::daemon::Daemon;
use crate::report::{BatchLine, BatchReport, BatchTaskLine};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

/// For how long the hub's word on a job is used, and how long it may take.
const FRESH: Duration = Duration::from_secs(3);
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// Most jobs of a list of which it is asked.
const JOBS_ASKED_MAX: usize = 16;
/// Tasks that are named as those that another one comes after.
const TASKS_NAMED_MAX: usize = 10;

/// Why the tasks of a job wait that is held.
pub const HELD: &str = "its job is held: gleaner release lets it go on";

/// Why a task waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waits {
    /// For this.
    For(String),
    /// The hub knows. What went wrong with it before, if anything did.
    AtHub(Option<String>),
}

impl Waits {
    /// In words, with what the hub says if it knows. `None`: nothing is known.
    pub fn in_words(self, hub: Option<&str>) -> Option<String> {
        match self {
            Self::For(why) => Some(why),
            Self::AtHub(last) => match (hub, last) {
                (Some(why), Some(last)) => Some(format!("{why}; last: {last}")),
                (why, last) => why.map(str::to_owned).or(last),
            },
        }
    }
}

/// What the hub says of the tasks of a job that wait there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HubWord {
    /// Why one of them waits; `None`: the hub was not reached, or none does.
    why: Option<String>,
    /// They wait for a worker that is not here, or takes no tasks.
    lacks_worker: bool,
}

impl From<&Value> for HubWord {
    fn from(answer: &Value) -> Self {
        let why = answer["why"].as_str().filter(|_| answer["waits"] == true).map(str::to_owned);
        Self { lacks_worker: why.is_some() && answer["lacks_worker"] == true, why }
    }
}

/// The hub's last word on a job: who asks again soon is told the same.
#[derive(Debug, Default)]
pub struct LastWord(Mutex<Option<(Instant, HubWord)>>);

impl LastWord {
    /// The last word if it is fresh, or another one. Where tasks run, a worker has come since none was there.
    async fn or_ask(&self, any_runs: bool, ask: impl Future<Output = HubWord>) -> HubWord {
        let mut last = self.0.lock().await;
        if let Some((at, word)) = &*last
            && at.elapsed() < FRESH
            && !(any_runs && word.lacks_worker)
        {
            return word.clone();
        }
        let word = ask.await;
        *last = Some((Instant::now(), word.clone()));
        word
    }
}

/// Says in a report of a job why its tasks wait. The hub is asked if it is to know.
pub(super) async fn add_reasons(daemon: &Arc<Daemon>, job: &Job, report: &mut BatchReport) {
    let waits = |task: &&mut BatchTaskLine| task.status == "waiting";
    let all: Vec<(&mut BatchTaskLine, Waits)> = {
        let waiting = report.tasks.iter_mut().filter(waits);
        waiting.map(|task| (job.waits(&report.job, task), task)).map(|(why, task)| (task, why)).collect()
    };
    let is_any_at_hub = all.iter().any(|(_, waits)| matches!(waits, Waits::AtHub(_)));
    let may_lack_worker = may_lack_worker(&report.job);
    let word = match is_any_at_hub || may_lack_worker {
        true => job.last_word.or_ask(report.job.running > 0, ask(daemon, &report.job)).await,
        false => HubWord::default(),
    };
    all.into_iter().for_each(|(task, waits)| task.why = waits.in_words(word.why.as_deref()));
    if may_lack_worker && word.lacks_worker {
        report.job.problem = word.why;
    }
}

/// Says of jobs in a list that they lack a worker, where that is why nothing of them runs.
pub async fn add_problems(daemon: &Arc<Daemon>, jobs: &mut [BatchLine]) {
    let mut asked = JoinSet::new();
    for line in jobs.iter().filter(|line| may_lack_worker(line)).take(JOBS_ASKED_MAX) {
        if let Some(Found::Open(job)) = daemon.batches.find(&line.job).pop() {
            let (daemon, line) = (daemon.clone(), line.clone());
            asked.spawn(async move { (job.last_word.or_ask(false, ask(&daemon, &line)).await, line.job) });
        }
    }
    while let Some(answer) = asked.join_next().await {
        if let Ok((HubWord { why, lacks_worker: true }, key)) = answer
            && let Some(line) = jobs.iter_mut().find(|line| line.job == key)
        {
            line.problem = why;
        }
    }
}

fn may_lack_worker(job: &BatchLine) -> bool {
    let is_open = matches!(job.state.as_str(), "waiting" | "running");
    is_open && job.running == 0 && job.waiting > 0 && job.problem.is_none()
}

async fn ask(daemon: &Arc<Daemon>, job: &BatchLine) -> HubWord {
    let asked = ask_hub(daemon, json!({"ask": "waits", "key": job.job}));
    match tokio::time::timeout(ANSWER_TIME_MAX, asked).await {
        Ok(Ok(answer)) => HubWord::from(&answer),
        Ok(Err(_)) | Err(_) => HubWord::default(),
    }
}

/// Why a task waits whose job is found so.
pub fn waits(daemon: &Daemon, line: &BatchLine, task: &BatchTaskLine) -> Option<Waits> {
    match daemon.batches.find(&line.job).pop() {
        Some(Found::Open(job)) => Some(job.waits(line, task)),
        _ => None,
    }
}

impl Job {
    /// Why one of its tasks waits; both as the job's own lines tell them.
    fn waits(&self, line: &BatchLine, task: &BatchTaskLine) -> Waits {
        if let Some(why) = task.why.clone().filter(|_| self.has_result(task.index)) {
            return Waits::For(why);
        }
        let here = self
            .hindrance()
            .or_else(|| comes_after(&task.waits_for))
            .or_else(|| (line.state == "held").then(|| HELD.to_owned()))
            .or_else(|| {
                let why = "it waits here until the hub has done with tasks of its job that come before it";
                self.number_of(task.index).is_none().then(|| why.to_owned())
            });
        match (here, task.why.clone()) {
            (Some(here), Some(last)) => Waits::For(format!("{here}; last: {last}")),
            (Some(here), None) => Waits::For(here),
            (None, last) => Waits::AtHub(last),
        }
    }
}

/// That a task comes after these, if there are any.
fn comes_after(tasks: &[u32]) -> Option<String> {
    let named = tasks.iter().take(TASKS_NAMED_MAX).map(u32::to_string).collect::<Vec<_>>().join(", ");
    match tasks.len() {
        0 => None,
        1 => Some(format!("it comes after task {named}, which has not ended")),
        count if count > TASKS_NAMED_MAX => {
            Some(format!("it comes after tasks {named} and others, which have not ended"))
        }
        _ => Some(format!("it comes after tasks {named}, which have not ended")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::folder::tests::make_ordered;
    use super::*;

    #[test]
    fn a_task_waits_for_what_is_known_here_or_at_the_hub() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("job");
        make_ordered(&folder, &[&[], &[0]], |_| {});
        let job = Job::load(&folder).unwrap();
        let waits = |index: u32| job.waits(&job.line(), &job.task_lines(index, 1)[0]);
        job.hand_over(0).unwrap();
        job.at_hub(1);
        assert_eq!(waits(0), Waits::AtHub(None));
        assert_eq!(waits(1), Waits::For("it comes after task 0, which has not ended".into()));
        job.trouble(0, "its worker was told to end");
        let last = waits(0);
        assert_eq!(last, Waits::AtHub(Some("its worker was told to end".into())));
        let why = last.in_words(Some("no worker is here"));
        assert_eq!(why.as_deref(), Some("no worker is here; last: its worker was told to end"));
        job.set_problem(Some("nobody listens there".into()));
        assert_eq!(waits(0), Waits::For("nobody listens there; last: its worker was told to end".into()));
        job.set_problem(None);
        job.stuck(0, "No space left on device");
        assert_eq!(waits(0), Waits::For("No space left on device".into()), "it has run");
    }

    #[test]
    fn tasks_that_one_comes_after_are_named() {
        assert_eq!(comes_after(&[]), None);
        assert_eq!(comes_after(&[3, 4]).as_deref(), Some("it comes after tasks 3, 4, which have not ended"));
        let many: Vec<u32> = (0..11).collect();
        assert!(comes_after(&many).is_some_and(|why| why.contains("8, 9 and others")));
    }

    #[test]
    fn an_answer_says_why_only_of_what_waits() {
        let word = |text: &str| HubWord::from(&serde_json::from_str::<Value>(text).unwrap());
        let lacks = word(r#"{"waits": true, "why": "no worker is here", "lacks_worker": true}"#);
        assert_eq!((lacks.why.as_deref(), lacks.lacks_worker), (Some("no worker is here"), true));
        let earlier = word(r#"{"waits": true, "why": "its turn will come"}"#);
        assert_eq!((earlier.why.is_some(), earlier.lacks_worker), (true, false), "a hub of an earlier version");
        assert_eq!(word(r#"{"waits": false, "why": "it runs", "lacks_worker": true}"#), HubWord::default());
    }

    #[tokio::test]
    async fn the_hub_is_asked_once_for_many() {
        let last = LastWord::default();
        let word = |text: &str| HubWord { why: Some(text.into()), lacks_worker: true };
        assert_eq!(last.or_ask(false, async { word("a") }).await, word("a"));
        assert_eq!(last.or_ask(false, async { panic!("it is fresh") }).await, word("a"));
        assert_eq!(last.or_ask(true, async { word("b") }).await, word("b"), "there is a worker now");
    }
}

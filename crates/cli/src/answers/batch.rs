//! What is said of batch jobs, as text.

use super::{COMMAND_WIDTH, Render};
use crate::render::{Facts, Table, age, command_line, time};
use base::path::shown;
use client::report::{BatchChanged, BatchLine, BatchReport, BatchTaskLine, Batches, TaskReport, short};
use wire::now_millis;

/// Tasks that are shown as those that another one waits for.
const WAITS_SHOWN_MAX: usize = 5;

fn age_at(now_ms: i64, then_ms: i64) -> String {
    age((now_ms.saturating_sub(then_ms) / 1000).max(0) as u64)
}

impl Render for Batches {
    fn render(&self) -> String {
        self.render_in(None)
    }

    fn render_in(&self, columns: Option<usize>) -> String {
        list(self, now_millis(), columns)
    }
}

fn list(batches: &Batches, now_ms: i64, columns: Option<usize>) -> String {
    let mut table = Table::new(&["ID", "STATE", "DONE", "FAILED", "RUNNING", "WAITING", "AGE", "NAME"]);
    for job in &batches.jobs {
        table.row(vec![
            short(&job.job),
            job.state.clone(),
            job.done.to_string(),
            job.failed.to_string(),
            job.running.to_string(),
            job.waiting.to_string(),
            age_at(now_ms, job.submitted_ms),
            job.name.clone(),
        ]);
    }
    let mut text = table.text_in("no batch jobs: gleaner submit hands one over", columns);
    for job in batches.jobs.iter().filter(|job| !job.is_over() || job.state == "damaged") {
        if let Some(problem) = &job.problem {
            text.push_str(&format!("{}: {problem}\n", short(&job.job)));
        }
    }
    if batches.older > 0 {
        text.push_str(&format!("... and {} older ones (--all shows them)\n", batches.older));
    }
    text
}

fn facts(job: &BatchLine) -> Facts {
    let mut facts = Facts::default();
    facts.fact("job", &job.job);
    if !job.name.is_empty() {
        facts.fact("name", shown(&job.name));
    }
    facts.fact("state", format!("{}, {}", job.state, job.priority));
    if let Some(problem) = &job.problem {
        facts.fact(if job.state == "cut" { "note" } else { "because" }, problem);
    }
    let counts = format!("{} done, {} failed, {} running, {} waiting", job.done, job.failed, job.running, job.waiting);
    facts.fact("tasks", counts).fact("submitted", time(job.submitted_ms));
    if let Some(ended_ms) = job.ended_ms {
        facts.fact("ended", time(ended_ms));
    }
    facts
}

/// How a job, or a task of it, stands, and why.
pub fn explained(report: &TaskReport, job: &BatchLine) -> String {
    // A job's problem is among its facts.
    let (mut facts, is_said) = match report.task == job.job {
        true => (facts(job), job.problem.is_some()),
        false => (task_facts(report), false),
    };
    if !report.why.is_empty() && !is_said {
        facts.fact("because", &report.why);
    }
    facts.text().to_owned()
}

fn task_facts(report: &TaskReport) -> Facts {
    let mut facts = Facts::default();
    facts.fact("task", &report.task).fact("command", command_line(&report.argv, 400)).fact("status", &report.status);
    if let Some(worker) = &report.worker {
        facts.fact("worker", worker);
    }
    facts
}

impl Render for BatchReport {
    fn render(&self) -> String {
        self.render_in(None)
    }

    fn render_in(&self, columns: Option<usize>) -> String {
        let mut facts = facts(&self.job);
        facts.fact("folder", &self.cwd).fact("kept in", &self.job.folder);
        let mut text = facts.text().to_owned();
        // Only where some wait for others.
        let is_ordered = self.tasks.iter().any(|task| !task.waits_for.is_empty());
        let mut headings = vec!["TASK", "STATUS", "WORKER", "COMMAND"];
        if is_ordered {
            headings.insert(2, "WAITS FOR");
        }
        let mut table = Table::new(&headings);
        for task in &self.tasks {
            let command = if task.name.is_empty() { command_line(&task.argv, usize::MAX) } else { task.name.clone() };
            let worker = task.worker.clone().unwrap_or_default();
            let mut row = vec![task.index.to_string(), task.status.clone(), worker, command];
            if is_ordered {
                row.insert(2, waits_for(&task.waits_for));
            }
            table.row(row);
        }
        text.push_str(&format!("\n{}", table.text_in("no tasks on this page", columns)));
        for task in with_reasons(self) {
            text.push_str(&task.render());
        }
        let shown = self.first.saturating_add(self.tasks.len() as u32);
        if shown < self.job.tasks && !self.tasks.is_empty() {
            text.push_str(&format!("... and {} more (--page shows them)\n", self.job.tasks - shown));
        }
        text.push_str(&format!("\ngleaner jobs output {} prints what they said\n", short(&self.job.job)));
        text
    }
}

/// The tasks of which it is said why they did not end well, or wait: of several in a row that wait for the same the first one.
fn with_reasons(report: &BatchReport) -> Vec<&BatchTaskLine> {
    let problem = report.job.problem.as_deref();
    let mut said = None;
    let mut shown = Vec::new();
    // Why tasks were cancelled is among the facts, and which tasks one comes after in the table.
    for task in report.tasks.iter().filter(|task| task.status != "cancelled" && task.waits_for.is_empty()) {
        let Some(why) = task.why.as_deref() else { continue };
        let waits = task.status == "waiting";
        if waits && [problem, said].contains(&Some(why)) {
            continue;
        }
        if waits {
            said = Some(why);
        }
        shown.push(task);
    }
    shown
}

/// The numbers of the tasks that one waits for, as many as there is room for.
fn waits_for(tasks: &[u32]) -> String {
    let shown: Vec<String> = tasks.iter().take(WAITS_SHOWN_MAX).map(u32::to_string).collect();
    format!("{}{}", shown.join(" "), if tasks.len() > WAITS_SHOWN_MAX { " ..." } else { "" })
}

/// A line for one that did not end well.
impl Render for BatchTaskLine {
    fn render(&self) -> String {
        let why = self.why.as_ref().map(|why| format!(": {}", why.replace('\n', " "))).unwrap_or_default();
        format!("task {}, {}: {}{why}\n", self.index, command_line(&self.argv, COMMAND_WIDTH), self.status)
    }
}

impl Render for BatchChanged {
    fn render(&self) -> String {
        let when = match (&self.why_not, self.at_hub) {
            (_, true) => String::new(),
            (Some(why), false) => format!("\nthe hub is told as soon as that is possible: {why}"),
            (None, false) => "\nthe hub is told as soon as that is possible".into(),
        };
        format!("job {}: {}, {}{when}\n", short(&self.job.job), self.job.state, self.job.priority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> BatchLine {
        BatchLine {
            job: "8f3a1234000000000000000000000001".into(),
            name: "night".into(),
            state: "running".into(),
            priority: "spare".into(),
            tasks: 60,
            done: 1,
            failed: 1,
            running: 2,
            waiting: 56,
            submitted_ms: 0,
            folder: "/s".into(),
            ..BatchLine::default()
        }
    }

    #[test]
    fn jobs_in_a_list() {
        let held = BatchLine { state: "waiting".into(), problem: Some("no hub".into()), name: String::new(), ..job() };
        let want = "\
ID        STATE    DONE  FAILED  RUNNING  WAITING  AGE  NAME
8f3a1234  running     1       1        2       56  2 h  night
8f3a1234  waiting     1       1        2       56  2 h
8f3a1234: no hub
... and 3 older ones (--all shows them)
";
        assert_eq!(list(&Batches { jobs: vec![job(), held], older: 3 }, 7_500_000, None), want);
    }

    #[test]
    fn tasks_that_wait_for_others() {
        let task = |index, waits_for: Vec<u32>| BatchTaskLine {
            index,
            argv: vec!["./m".into()],
            status: "waiting".into(),
            waits_for,
            ..BatchTaskLine::default()
        };
        let tasks = vec![task(0, vec![]), task(1, vec![0]), task(9, (0..6).collect())];
        let report = BatchReport { job: job(), cwd: "/home".into(), tasks, first: 0 };
        let want = "
TASK  STATUS   WAITS FOR      WORKER  COMMAND
0     waiting                         ./m
1     waiting  0                      ./m
9     waiting  0 1 2 3 4 ...          ./m
";
        let said = report.render();
        assert!(said.contains(want), "{said}");
    }

    #[test]
    fn one_job() {
        let task = |index, status: &str, why: Option<&str>| BatchTaskLine {
            index,
            argv: vec!["./m".into(), "1".into()],
            status: status.into(),
            why: why.map(str::to_owned),
            worker: Some("rack".into()),
            ..BatchTaskLine::default()
        };
        let tasks = vec![task(0, "exit 0", None), task(1, "not committed", Some("/x was changed here"))];
        let want = "\
job           8f3a1234000000000000000000000001
name          night
state         running, spare
tasks         1 done, 1 failed, 2 running, 56 waiting
submitted     1970-01-01 00:00:00 UTC
folder        /home
kept in       /s

TASK  STATUS         WORKER  COMMAND
0     exit 0         rack    ./m 1
1     not committed  rack    ./m 1
task 1, ./m 1: not committed: /x was changed here
... and 58 more (--page shows them)

gleaner jobs output 8f3a1234 prints what they said
";
        assert_eq!(BatchReport { job: job(), cwd: "/home".into(), tasks, first: 0 }.render(), want);
        let waits = |index, why: &str| task(index, "waiting", Some(why));
        let waiting = ["its turn", "its turn", "none is here"];
        let mut tasks: Vec<BatchTaskLine> = (0..).zip(waiting).map(|(index, why)| waits(index, why)).collect();
        tasks.push(task(3, "running", None));
        let job_waits = BatchLine { problem: Some("none is here".into()), ..job() };
        let report = BatchReport { job: job_waits, cwd: "/home".into(), tasks, first: 0 };
        let shown: Vec<u32> = with_reasons(&report).iter().map(|task| task.index).collect();
        assert_eq!(shown, [0], "each reason once");
        let (task, why) = (job().job, "no worker is here".into());
        let report = TaskReport { task, why, job: Some(Box::new(job())), ..TaskReport::default() };
        let want = "\
job           8f3a1234000000000000000000000001
name          night
state         running, spare
tasks         1 done, 1 failed, 2 running, 56 waiting
submitted     1970-01-01 00:00:00 UTC
because       no worker is here
";
        assert_eq!(report.render(), want);
        let (task, status) = ("8f3a/7".into(), "waiting".into());
        let report = TaskReport { task, status, argv: vec!["./m".into()], ..report };
        let want = "\
task          8f3a/7
command       ./m
status        waiting
because       no worker is here
";
        assert_eq!(report.render(), want);
        let changed = BatchChanged { job: job(), at_hub: true, why_not: None };
        assert_eq!(changed.render(), "job 8f3a1234: running, spare\n");
        let later = BatchChanged { at_hub: false, why_not: Some("it comes after job 7".into()), ..changed };
        assert!(later.render().ends_with("\nthe hub is told as soon as that is possible: it comes after job 7\n"));
    }
}

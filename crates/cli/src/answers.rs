//! The client daemon's answers as text. Their JSON, which `--json` prints, is defined in [`client::report`].

mod accounts;
mod batch;
mod grants;

use crate::render::{Facts, Table, age, bytes, command_line, micros, time};
use client::report::{
    Approved, Audit, Cancelled, Done, Drained, ExpectedShare, Kept, KeptDelta, Moment, Recovered, Revoked, Status,
    TaskReport, Tasks, Token, short,
};

/// Characters of a command that a list shows.
const COMMAND_WIDTH: usize = 60;

/// An answer that people can read.
pub trait Render {
    /// The answer as lines of text, whole.
    fn render(&self) -> String;

    /// The same for a terminal of so many columns, if it is one.
    fn render_in(&self, _columns: Option<usize>) -> String {
        self.render()
    }
}

/// What there is to say of what carries the link.
fn over_tcp(carrier: Option<&str>) -> &'static str {
    if carrier == Some("tcp") { " over TCP, for no UDP passes" } else { "" }
}

/// What there is to say of the hub's clock, if it differs.
fn clocks_differ(hub_ahead_us: Option<i64>) -> Option<String> {
    /// Less is measured where a link is slow.
    const TOLD_US: u64 = 500_000;
    let ahead = hub_ahead_us.filter(|ahead| ahead.unsigned_abs() >= TOLD_US)?;
    let way = if ahead > 0 { "ahead of" } else { "behind" };
    Some(format!("the hub's is {:.1} s {way} this machine's", ahead.unsigned_abs() as f64 / 1e6))
}

impl Render for Status {
    fn render(&self) -> String {
        self.render_in(None)
    }

    fn render_in(&self, columns: Option<usize>) -> String {
        let mut facts = Facts::default();
        match (&self.hub, self.connected) {
            (None, _) => {
                facts.fact("hub", "none: commands run on this machine");
                facts.fact("", "start a pool: gleaner up     use one: gleaner use TOKEN");
            }
            (Some(hub), true) => {
                let trip = self.round_trip_us.map(|us| format!(", round trip {}", micros(us))).unwrap_or_default();
                let over = over_tcp(self.carrier.as_deref());
                facts.fact("hub", format!("{hub}, connected{over}{trip}"));
            }
            (Some(hub), false) => {
                facts.fact("hub", format!("{hub}, NOT connected: commands run on this machine"));
            }
        }
        if let Some(problem) = &self.problem {
            facts.fact("problem", problem);
        }
        if !self.trust.is_empty() {
            facts.fact(
                "trust",
                format!("the workers are taken for {} ({}): {}", class(&self.trust), self.trust, self.trust_why),
            );
        }
        facts.fact("tasks", format!("{} running, {} waiting", self.tasks_running, self.tasks_queued));
        if let Some(differs) = clocks_differ(self.client.hub_clock_ahead_us) {
            facts.fact("clock", differs);
        }
        if self.hub.is_none() || !self.connected && self.workers.is_empty() {
            return facts.text().to_owned();
        }
        let has_tags = self.workers.iter().any(|worker| !worker.tags.is_empty());
        // Where all are one's own nothing need be said of that.
        let has_classes = self.workers.iter().any(|worker| !matches!(worker.trust.as_str(), "" | "own"));
        let mut headings = vec!["WORKER", "ID", "CPUS", "BUSY", "STATE", "GIVES"];
        headings.extend(has_tags.then_some("TAGS"));
        headings.extend(has_classes.then_some("TRUST"));
        let mut table = Table::new(&headings);
        let gives = |expected: ExpectedShare| format!("{}-{}%", expected.low / 10, expected.high / 10);
        for worker in &self.workers {
            let mut row = vec![
                worker.name.clone(),
                worker.id.clone(),
                worker.cpus.to_string(),
                worker.busy.to_string(),
                worker.state.clone(),
                worker.expected.map_or(String::new(), gives),
            ];
            row.extend(has_tags.then(|| worker.tags.join(" ")));
            row.extend(has_classes.then(|| worker.trust.clone()));
            table.row(row);
        }
        let workers = table.text_in("no workers: `gleaner token` makes a token for `gleaner join`", columns);
        let why = self.workers.iter().filter_map(|worker| Some(format!("{}: {}\n", worker.name, worker.why.as_ref()?)));
        let troubles = self
            .workers
            .iter()
            .filter_map(|worker| Some(format!("{}: {}\n", worker.name, worker.troubles?.in_words())));
        let workers = workers + &why.chain(troubles).collect::<String>();
        if self.clients.is_empty() {
            return format!("{}\n{workers}", facts.text());
        }
        let mut table = Table::new(&["CLIENT", "ID", "STATE"]);
        for client in &self.clients {
            let state = if client.connected { "connected" } else { "away" };
            table.row(vec![client.name.clone(), client.id.clone(), state.to_owned()]);
        }
        format!("{}\n{workers}\n{}", facts.text(), table.text_in("", columns))
    }
}

impl Render for Tasks {
    fn render(&self) -> String {
        self.render_in(None)
    }

    fn render_in(&self, columns: Option<usize>) -> String {
        let mut table = Table::new(&["TASK", "STATUS", "TIME", "PLACE", "COMMAND"]);
        for task in &self.tasks {
            table.row(vec![
                short(&task.task),
                task.status.clone(),
                micros(task.elapsed_us),
                task.worker.clone().unwrap_or_else(|| task.place.clone()),
                command_line(&task.argv, usize::MAX),
            ]);
        }
        let table = table.text_in("no tasks yet: remrun COMMAND starts one", columns);
        let waits = self.tasks.iter().filter_map(|task| Some((short(&task.task), task.waits.as_ref()?)));
        table + &waits.map(|(task, waits)| format!("{task} {waits}\n")).collect::<String>()
    }
}

impl Render for TaskReport {
    fn render(&self) -> String {
        if let Some(job) = &self.job {
            return batch::explained(self, job);
        }
        let mut facts = Facts::default();
        let place = match &self.worker {
            Some(worker) => format!("{} on {worker}", self.place),
            None => self.place.clone(),
        };
        facts
            .fact("task", &self.task)
            .fact("command", command_line(&self.argv, 400))
            .fact("started", time(self.started_ms))
            .fact("status", &self.status)
            .fact("ran", place)
            .fact("because", &self.why);
        // Of one that came nowhere the reason is that.
        if let Some(told) = self.failed.as_ref().filter(|told| told.lines().next() != Some(&self.why)) {
            facts.fact("failed", told);
        }
        if let (Some(here), Some(there)) = (self.expected_here_us, self.expected_there_us) {
            facts.fact("expected", format!("{} here, {} there", micros(here), micros(there)));
        }
        if let Some(waits) = &self.waits {
            facts.fact("waits", waits);
        }
        if let Some(again) = self.again_us {
            let again = micros(again);
            facts.fact(
                "if it moves",
                format!("it begins again elsewhere: {again} at most are done again (no checkpoint)"),
            );
        }
        facts
            .fact("round trips", self.round_trips.to_string())
            .fact(
                "bytes",
                format!(
                    "{} up, {} down{}",
                    bytes(self.bytes_up),
                    bytes(self.bytes_down),
                    over_tcp(self.carrier.as_deref())
                ),
            )
            .fact("paths", format!("{} known beforehand, {} asked for", self.paths_in_view, self.faults))
            .list("asked for", &self.faulted_paths)
            .list("late", &self.late)
            .list("committed", &self.committed)
            .list("dropped", &dropped(self))
            .list("CONFLICT", &self.conflicts)
            .list("kept back", &self.kept_back.iter().map(kept_back).collect::<Vec<_>>())
            .list("lent", &self.lent);
        if let Some(why) = &self.grants_nothing {
            facts.fact(".gleaner.toml", format!("grants nothing: {why}"));
        }
        if !self.withheld.is_empty() {
            let names = self.withheld.join(", ");
            facts.fact(
                "variables",
                format!("kept here, since they look secret and the workers are not your own: {names}"),
            );
        }
        if self.over_budget > 0 {
            let what =
                format!("{} questions of the worker were refused: more than such a program needs", self.over_budget);
            facts.fact("OVER BUDGET", what);
        }
        facts.text().to_owned() + &time_line(self)
    }
}

fn time_line(task: &TaskReport) -> String {
    let title = if task.timeline.is_empty() { "" } else { "\ntime line\n" };
    let line = |moment: &Moment| format!("{:>12}  {}\n", micros(moment.at_us), moment.what);
    task.timeline.iter().fold(title.to_owned(), |text, moment| text + &line(moment))
}

impl Render for Cancelled {
    fn render(&self) -> String {
        match &self.job {
            Some(job) => job.render(),
            None => format!("cancelled {}: {}\n", short(&self.task), command_line(&self.argv, COMMAND_WIDTH)),
        }
    }
}

impl Render for Revoked {
    fn render(&self) -> String {
        format!("revoked {} ({})\n", self.name, self.id)
    }
}

impl Render for Approved {
    fn render(&self) -> String {
        format!("{} ({}) is trusted as {}\n", self.name, self.id, self.trust)
    }
}

impl Render for Audit {
    fn render(&self) -> String {
        let line = |entry: &serde_json::Value| {
            let word = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let facts = entry.as_object().into_iter().flatten();
            let facts = facts.filter(|(name, _)| *name != "at_ms" && *name != "what");
            let facts: String = facts.map(|(name, value)| format!("  {name}={}", word(value))).collect();
            format!("{}  {}{facts}\n", time(entry["at_ms"].as_i64().unwrap_or(0)), word(&entry["what"]))
        };
        self.entries.iter().map(line).collect()
    }
}

impl Render for Drained {
    fn render(&self) -> String {
        let Self { name, id, takes_tasks, busy } = self;
        match (takes_tasks, busy) {
            (true, _) => format!("{name} ({id}) takes tasks again\n"),
            (false, 0) => format!("{name} ({id}) takes no more tasks, and has none\n"),
            (false, busy) => format!("{name} ({id}) takes no more tasks; those on {busy} CPUs go on to their end\n"),
        }
    }
}

/// Only the token: it is piped into `gleaner join -`.
impl Render for Token {
    fn render(&self) -> String {
        format!("{}\n", self.token)
    }
}

impl Render for Kept {
    fn render(&self) -> String {
        if self.kept.is_empty() {
            return "nothing is kept: every task's changes were committed\n".to_owned();
        }
        let mut text: String = self.kept.iter().map(|delta| delta.render() + "\n").collect();
        text.push_str("gleaner recover TASK commits it over what is here now, once you have agreed;\n");
        text.push_str("gleaner recover TASK --into FOLDER writes its files there\n");
        text
    }
}

impl Render for KeptDelta {
    fn render(&self) -> String {
        let mut facts = Facts::default();
        let why: Vec<String> = self.reason.lines().map(|line| line.trim().to_owned()).collect();
        facts
            .fact("task", short(&self.task))
            .fact("command", command_line(&self.argv, 400))
            .fact("kept", format!("{}, {} ago", time(self.kept_ms), age(self.age_s)))
            .list("because", &why)
            .list(&format!("{} changes", self.changes_count), &self.changes);
        let unseen = self.changes_count.saturating_sub(self.changes.len() as u64);
        if unseen > 0 {
            facts.fact("", format!("... and {unseen} that only GLEANER-CHANGES lists, which --into writes"));
        }
        facts.text().to_owned()
    }
}

impl Render for Recovered {
    fn render(&self) -> String {
        let mut facts = Facts::default();
        let what = match &self.into {
            Some(into) => format!("written into {into}"),
            None if self.changes_count == 0 => "committed before: nothing was left to do".to_owned(),
            None => "committed".to_owned(),
        };
        facts.fact("task", format!("{}, {what}", short(&self.task)));
        facts.list(&format!("{} paths", self.changes_count), &self.paths).list("skipped", &self.skipped);
        if let Some(replaced) = &self.replaced {
            facts.fact("replaced", format!("what was there is kept: gleaner recover {} undoes this", short(replaced)));
        }
        facts.text().to_owned()
    }
}

impl Render for Done {
    fn render(&self) -> String {
        self.note.as_ref().map(|note| format!("{note}\n")).unwrap_or_default()
    }
}

/// What was dropped, with the reasons; those of before have none.
fn dropped(report: &TaskReport) -> Vec<String> {
    if report.dropped.is_empty() {
        return report.scratch.clone();
    }
    report.dropped.iter().map(|line| format!("{} {}", line.path, line.reason)).collect()
}

/// Whose workers of this class are.
fn class(trust: &str) -> &'static str {
    match trust {
        "own" => "your own",
        "site" => "others' of this site",
        _ => "anybody's",
    }
}

fn kept_back(line: &client::report::KeptBackLine) -> String {
    format!("{}: {}; {}", line.path, line.reason, line.remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::report::{ClientStatus, Moment, TaskLine, WorkerStatus, WorkerTroubles};

    #[test]
    fn status_of_a_pool() {
        let worker = |name: &str, busy, state: &str| WorkerStatus {
            name: name.into(),
            id: "01ab23cd".into(),
            cpus: 16,
            busy,
            state: state.into(),
            ..WorkerStatus::default()
        };
        let mut status = Status {
            hub: Some("rack:7433".into()),
            connected: true,
            round_trip_us: Some(310),
            carrier: Some("udp".into()),
            problem: None,
            workers: vec![worker("rack", 16, "full"), worker("desk-of-ada", 0, "ready")],
            clients: vec![ClientStatus { name: "ada".into(), id: "4f0c11d2".into(), connected: true }],
            tasks_running: 16,
            tasks_queued: 2,
            ..Status::default()
        };
        let want = "\
hub           rack:7433, connected, round trip 310 us
tasks         16 running, 2 waiting

WORKER       ID        CPUS  BUSY  STATE  GIVES
rack         01ab23cd    16    16  full
desk-of-ada  01ab23cd    16     0  ready  25-100%

CLIENT  ID        STATE
ada     4f0c11d2  connected
";
        status.workers[1].expected =
            Some(ExpectedShare { mean: 600, low: 255, high: 1_000, ..ExpectedShare::default() });
        assert_eq!(status.render(), want);
        status.workers[0].tags = ["gpu", "big"].map(str::to_owned).to_vec();
        status.workers[0].troubles = Some(WorkerTroubles { unkillable: 2, ..WorkerTroubles::default() });
        status.client.hub_clock_ahead_us = Some(-3_600_000_000);
        let shown = status.render();
        assert!(shown.contains("\nrack: tasks that cannot be ended: 2\n"), "{shown}");
        assert!(shown.contains("the hub's is 3600.0 s behind this machine's"), "{shown}");
        assert!(shown.contains("GIVES    TAGS\n") && shown.contains("full            gpu big\n"), "{shown}");
        (status.trust, status.trust_why) = ("site".into(), "as you said".into());
        let trust = "\ntrust         the workers are taken for others' of this site (site): as you said\n";
        assert!(status.render().contains(trust), "{}", status.render());
    }

    #[test]
    fn status_without_a_pool() {
        let want = "\
hub           none: commands run on this machine
              start a pool: gleaner up     use one: gleaner use TOKEN
tasks         0 running, 0 waiting
";
        assert_eq!(Status::default().render(), want);
    }

    #[test]
    fn explanation() {
        let report = TaskReport {
            task: "8f3a0000000000000000000000000001".into(),
            argv: vec!["gcc".into(), "-c".into(), "x.c".into()],
            place: "remote".into(),
            worker: Some("rack".into()),
            why: "most idle CPUs".into(),
            status: "failed 125".into(),
            failed: Some("nothing committed: /src/x.o was changed here while the task ran\n/src/y.o too".into()),
            timeline: vec![Moment { at_us: 0, what: "received".into() }, Moment { at_us: 9300, what: "done".into() }],
            round_trips: 1,
            carrier: Some("udp".into()),
            bytes_up: 4100,
            bytes_down: 900,
            paths_in_view: 383,
            committed: vec!["/src/x.o".into()],
            ..TaskReport::default()
        };
        let want = "\
task          8f3a0000000000000000000000000001
command       gcc -c x.c
started       1970-01-01 00:00:00 UTC
status        failed 125
ran           remote on rack
because       most idle CPUs
failed        nothing committed: /src/x.o was changed here while the task ran
              /src/y.o too
round trips   1
bytes         4.1 KB up, 900 B down
paths         383 known beforehand, 0 asked for
committed     /src/x.o

time line
        0 us  received
      9.3 ms  done
";
        assert_eq!(report.render(), want);
    }

    #[test]
    fn lists() {
        let task = TaskLine {
            task: "8f3a1234000000000000000000000001".into(),
            argv: vec!["make".into()],
            place: "local".into(),
            status: "exit 2".into(),
            elapsed_us: 1_500_000,
            ..TaskLine::default()
        };
        let want = "\
TASK      STATUS    TIME  PLACE  COMMAND
8f3a1234  exit 2  1.50 s  local  make
";
        assert_eq!(Tasks { tasks: vec![task] }.render(), want);
        assert_eq!(Kept::default().render(), "nothing is kept: every task's changes were committed\n");
        let recovered = Recovered {
            task: "8f3a1234aa".into(),
            paths: vec!["/t/a".into()],
            changes_count: 1,
            replaced: Some("01ab23cd00".into()),
            ..Recovered::default()
        };
        let want = "\
task          8f3a1234, committed
1 paths       /t/a
replaced      what was there is kept: gleaner recover 01ab23cd undoes this
";
        assert_eq!(recovered.render(), want);
    }

    #[test]
    fn kept_deltas() {
        let delta = KeptDelta {
            task: "8f3a1234000000000000000000000001".into(),
            argv: vec!["sh".into(), "-c".into(), "x".into()],
            reason: "nothing committed: /x was changed here while the task ran\n                /y too".into(),
            paths: vec!["/x".into()],
            changes: vec!["file       /x (mode 644, 5 bytes)".into()],
            changes_count: 3,
            age_s: 125,
            ..KeptDelta::default()
        };
        let want = "\
task          8f3a1234
command       sh -c x
kept          1970-01-01 00:00:00 UTC, 2 min ago
because       nothing committed: /x was changed here while the task ran
              /y too
3 changes     file       /x (mode 644, 5 bytes)
              ... and 2 that only GLEANER-CHANGES lists, which --into writes

gleaner recover TASK commits it over what is here now, once you have agreed;
gleaner recover TASK --into FOLDER writes its files there
";
        assert_eq!(Kept { kept: vec![delta] }.render(), want);
    }
}

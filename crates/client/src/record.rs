//! What became of each command: collected while it runs, kept for `gleaner explain`.
//!
//! The last tasks are kept in memory, and as one JSON object a line in a file that a new daemon reads, so that a restart
//! forgets none.

use crate::choice::{Choice, Side};
use crate::commit::{NoteKind, Report};
use crate::figures::Figures;
use crate::history::Kind;
use crate::kept_back::KeptBack;
use crate::plan::Plan;
use crate::report::{DroppedLine, KeptBackLine, Moment, TaskLine, TaskReport};
use crate::serve::Asked;
use crate::small_file;
use crate::waits::Waits;
use crate::weigh::Ran;
use base::door::Reply;
use base::path::{faithful, printable, told};
use base::units::{bytes, micros, of};
use base::{Command, ExitStatus, TaskId, TreePath};
use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use wire::message::{Exited, Placed, Progress};
use wire::{Carrier, lock, now_millis};

/// Tasks that are kept.
const KEPT_MAX: usize = 1000;
/// The file is rewritten once it has this many lines.
const LINES_MAX: usize = 4 * KEPT_MAX;
/// Paths of one kind that are kept of one task.
const PATHS_MAX: usize = 100;
/// What it waits for that was sent and has no worker yet.
const AT_HUB: &str = "waits for a place at the hub";
/// What it waits for while nothing is heard of the hub.
const LINK: &str = "waits for the link to the hub";
/// Moments of one task that are kept.
const MOMENTS_MAX: usize = 1000;
/// Longest name, and longest text, of what hub and worker say of a task, bytes.
const NAME_BYTES_MAX: usize = 200;
pub(crate) const TOLD_BYTES_MAX: usize = 1000;

/// One command, while it runs.
pub struct Record {
    task: TaskId,
    report: TaskReport,
    begun: Instant,
    /// Times it was launched.
    pub attempts: u32,
    notes: Vec<String>,
    unreadable: Option<TreePath>,
    kept_back: Vec<KeptBack>,
    /// What it left and is not here.
    left_behind: Vec<String>,
    late_in_job: Option<String>,
    /// For how long its last attempt waited for a processor, microseconds.
    waited_us: u64,
    /// What it has waited for, before and after it was placed.
    waits: Waits,
    kind: Option<Kind>,
    /// It ran in the sandbox of this machine.
    is_here: bool,
}

impl Record {
    /// It has just been asked for.
    pub fn new(task: TaskId, command: &Command) -> Self {
        let report = TaskReport {
            task: task.to_hex(),
            argv: command.argv.iter().map(|word| faithful(word)).collect(),
            status: "running".into(),
            started_ms: now_millis(),
            ..TaskReport::default()
        };
        Self {
            task,
            report,
            begun: Instant::now(),
            attempts: 0,
            notes: Vec::new(),
            unreadable: None,
            kept_back: Vec::new(),
            left_behind: Vec::new(),
            late_in_job: None,
            waited_us: 0,
            waits: Waits::default(),
            kind: None,
            is_here: false,
        }
    }

    fn at(&mut self, what: impl Into<String>) {
        let at_us = self.begun.elapsed().as_micros() as u64;
        if self.report.timeline.len() < MOMENTS_MAX {
            self.report.timeline.push(Moment { at_us, what: what.into() });
        }
    }

    /// The command, each word printable.
    pub fn argv(&self) -> &[String] {
        &self.report.argv
    }

    /// Where it was placed.
    pub fn worker(&self) -> Option<&str> {
        self.report.worker.as_deref()
    }

    /// Something happened.
    pub fn moment(&mut self, what: &str) {
        self.at(what);
    }

    /// Something worth telling happened.
    pub fn note(&mut self, what: String) {
        self.at(what.clone());
        self.notes.push(what);
    }

    /// It waits for this now, and for nothing else.
    pub(crate) fn begins_waiting(&mut self, reason: &str) {
        self.waits.begin(reason, Instant::now());
    }

    /// What it waited for has come.
    pub(crate) fn goes_on(&mut self) {
        self.waits.end(Instant::now());
    }

    /// Nothing is heard of the hub, or something is again.
    pub(crate) fn link_is_silent(&mut self, is_silent: bool) {
        match self.waits.reason() {
            _ if is_silent => self.begins_waiting(LINK),
            Some(LINK) if self.report.worker.is_none() => self.begins_waiting(AT_HUB),
            Some(LINK) => self.goes_on(),
            _ => {}
        }
    }

    /// For how long it has waited for what it waits for now.
    pub(crate) fn waited(&self) -> Duration {
        self.waits.lasted(Instant::now())
    }

    /// It was handed to the hub, which has a place for it, or not yet.
    pub fn sent(&mut self) {
        self.at("sent to the hub");
        self.begins_waiting(AT_HUB);
    }

    /// It can run elsewhere.
    pub fn planned(&mut self, plan: &Plan) {
        self.at("planned");
        self.kind = Some(plan.kind());
        self.report.paths_in_view = plan.view.len() as u64;
        self.report.grants_nothing = plan.write.grants_nothing().map(str::to_owned);
        if plan.watch.network {
            self.note("it may use the network, and so is begun once only".to_owned());
        }
        self.report.withheld = plan.withheld.iter().take(PATHS_MAX).map(|name| printable(name)).collect();
    }

    /// It is a command of this kind, and it was weighed where it is expected to end first.
    pub fn weighed(&mut self, kind: Kind, choice: &Choice) {
        self.kind = Some(kind);
        self.report.expected_here_us = Some(choice.here_us as u64);
        self.report.expected_there_us = Some(choice.there_us as u64);
        self.at(format!("weighed: {choice}"));
    }

    /// It won a race.
    pub fn won(&mut self, side: Side, other: Option<String>) {
        self.is_here = side == Side::Here;
        let place = if self.is_here { "here" } else { "there" };
        self.report.why = format!("--race: it ended {place} first");
        other.into_iter().for_each(|why| self.note(format!("no race: {why}")));
    }

    /// It was late elsewhere, began here as well, and that run, whose record this is, was first.
    pub fn was_hedged(&mut self, hedged: Record) {
        let (argv, started_ms, why) = (self.report.argv.clone(), self.report.started_ms, self.report.why.clone());
        let mut timeline = std::mem::take(&mut self.report.timeline);
        timeline.extend(
            hedged
                .report
                .timeline
                .into_iter()
                .map(|moment| Moment { what: format!("here: {}", moment.what), ..moment }),
        );
        self.report = TaskReport {
            argv,
            started_ms,
            why: format!("{why}; it was late there, and ended here first"),
            timeline,
            ..hedged.report
        };
        self.is_here = true;
        self.notes.extend(hedged.notes);
    }

    /// By what its costs are known, if it could run elsewhere.
    pub fn kind(&self) -> Option<Kind> {
        self.kind
    }

    /// The files that the program uses were checked.
    pub fn swept(&mut self, paths: usize, changed: usize, objects: usize) {
        self.report.paths_in_view = paths as u64;
        self.at(format!("{paths} paths checked, {changed} sent, with {objects} objects"));
    }

    /// The hub chose a worker.
    pub fn placed(&mut self, placed: &Placed) {
        self.goes_on();
        self.report.place = "remote".into();
        self.report.worker = Some(told(&placed.name, NAME_BYTES_MAX));
        self.report.why = told(&placed.why, TOLD_BYTES_MAX);
        self.at(format!("placed after {} in the hub's queue", micros(placed.queued_ns / 1000)));
    }

    /// How far it has come, by its worker's accounts.
    pub fn progress(&mut self, progress: &Progress) {
        self.report.cpu_us = Some(progress.cpu_us);
        self.waited_us = progress.waited_us;
        let waits = waits(progress);
        if let Some(waits) = waits.as_ref().filter(|_| self.report.waits.is_none()) {
            self.at(waits.clone());
        }
        self.waits.counted(waits.as_deref(), Duration::from_micros(progress.waited_us), Instant::now());
        self.report.waits = waits;
    }

    /// What it waits for now, for a person.
    pub fn waits(&self) -> Option<String> {
        waits_of(&self.report).or_else(|| self.waits.reason().map(str::to_owned))
    }

    /// What crossed the link, and what was asked over it.
    pub fn traffic(&mut self, before: (u64, u64), after: (u64, u64), asked: &Asked) {
        self.report.bytes_up += after.0.saturating_sub(before.0);
        self.report.bytes_down += after.1.saturating_sub(before.1);
        // The launch itself is one; each question that the task waited for is another.
        self.report.round_trips += 1 + asked.questions;
        self.report.faults += asked.questions;
        self.report.faulted_paths = shown(&asked.paths);
        self.report.late = shown(&asked.late);
        self.unreadable = asked.unreadable.clone();
        self.kept_back = asked.kept_back.clone();
        self.report.kept_back = self.kept_back.iter().map(KeptBackLine::from).collect();
        self.report.lent = shown(&asked.lent);
        self.late_in_job = asked.late_in_job.clone();
        self.report.over_budget += asked.over_budget;
    }

    /// What a run that has just ended there came to, if it went to its own end at once.
    pub(crate) fn ran<'a>(&self, exited: &'a Exited) -> Option<Ran<'a>> {
        let bytes = (self.report.bytes_up, self.report.bytes_down);
        let (took, questions) = (self.begun.elapsed(), self.report.faults);
        let waited = Duration::from_micros(self.waited_us);
        (self.attempts == 1 && exited.signal == 0).then_some(Ran { exited, took, questions, bytes, waited })
    }

    /// What the last attempt could not be told, since it was no longer as at the start of its job.
    pub fn late_in_job(&self) -> Option<&str> {
        self.late_in_job.as_deref()
    }

    /// What the read policy kept back when the last attempt read it.
    pub fn kept_back(&self) -> &[KeptBack] {
        &self.kept_back
    }

    /// What secret the last attempt read, whether it was given to it or not.
    pub fn read_secret(&self) -> Option<String> {
        let lent = || Some(format!("{} holds a secret, which it reads", self.report.lent.first()?));
        self.kept_back.first().map(KeptBack::why).or_else(lent)
    }

    /// What the command left and is not here, for its caller.
    pub fn left_behind(&self) -> &[String] {
        &self.left_behind
    }

    /// What carried the link.
    pub fn carried_by(&mut self, carrier: Carrier) {
        self.report.carrier = Some(carrier.name().to_owned());
    }

    /// A path whose bytes the last attempt may have wanted, and which could not be had any more.
    pub fn unreadable(&self) -> Option<&TreePath> {
        self.unreadable.as_ref()
    }

    /// The command ended at the worker, which tells what it did when.
    pub fn ended(&mut self, exited: &Exited) {
        self.goes_on();
        let started = self.report.timeline.iter().rev().find(|moment| is_placed(moment));
        let from = started.map_or(0, |moment| moment.at_us);
        for moment in exited.timeline.iter().take(MOMENTS_MAX) {
            let what = format!("worker: {}", told(&moment.what, TOLD_BYTES_MAX));
            self.report.timeline.push(Moment { at_us: from.saturating_add(moment.at_ns / 1000), what });
        }
        self.report.timeline.sort_by_key(|moment| moment.at_us);
        for path in exited.skipped.iter().take(PATHS_MAX) {
            self.left_behind.push(format!("{} was not brought back: it is a socket or a device", printable(path)));
        }
        for name in exited.left.iter().take(PATHS_MAX) {
            let name = told(name, NAME_BYTES_MAX);
            self.left_behind
                .push(format!("{name} was left running, and ended with the command: run it without remrun to keep it"));
        }
        self.notes.extend(self.left_behind.iter().cloned());
    }

    /// Its result is in the tree.
    pub fn committed(&mut self, report: &Report) {
        self.at(format!("committed {} changes", report.committed.len() + report.removed.len()));
        let made: Vec<TreePath> = report.committed.iter().map(|made| made.path.clone()).collect();
        self.report.committed = shown(made.iter().chain(&report.removed));
        self.report.scratch = shown(report.scratch.iter().map(|(path, _)| path));
        let dropped = report.scratch.iter().take(PATHS_MAX);
        let dropped = dropped.map(|(path, why)| DroppedLine { path: path.to_string(), reason: (*why).to_owned() });
        self.report.dropped = dropped.collect();
        for note in report.notes.iter().filter(|note| note.kind != NoteKind::Identical).take(PATHS_MAX) {
            self.report.conflicts.push(format!("{} {}", note.path, note.kind));
        }
    }

    /// Its result was refused.
    pub fn not_committed(&mut self, paths: &[TreePath]) {
        self.at("nothing committed");
        self.report.conflicts = shown(paths);
    }

    /// It is over for the daemon: this is what the caller is told.
    fn finish(mut self, reply: &Reply) -> TaskReport {
        let (place, status) = match reply {
            Reply::RunHere { why } => {
                self.report.why = why.clone();
                self.report.worker = None;
                ("local", "handed back".to_owned())
            }
            Reply::Done(ExitStatus::Code(code)) => ("remote", format!("exit {code}")),
            Reply::Done(ExitStatus::Signal(signal)) => ("remote", format!("signal {signal}")),
            Reply::Failed { message, code } => {
                self.at(message.clone());
                self.report.failed = Some(message.clone());
                let place = if self.report.worker.is_some() { "remote" } else { "nowhere" };
                if self.report.why.is_empty() {
                    self.report.why = message.lines().next().unwrap_or_default().to_owned();
                }
                (place, format!("failed {code}"))
            }
            _ => ("remote", "unknown".to_owned()),
        };
        self.report.place = place.into();
        if self.is_here {
            (self.report.place, self.report.worker) = ("local".into(), None);
        }
        self.report.status = status;
        (self.report.waits, self.report.cpu_us) = (None, None);
        if let Reply::Done(ended) = reply {
            (self.report.exit, self.report.signal, self.report.signal_name) = crate::report::ended(*ended);
        }
        self.at("answered");
        self.report
    }

    /// One line for `remrun --verbose`: what it cost, and why it waited.
    pub fn summary(&self) -> String {
        let report = &self.report;
        let place = report.worker.as_ref().map_or("not placed".into(), |worker| format!("ran on {worker}"));
        let took = micros(self.begun.elapsed().as_micros() as u64);
        let (trips, faults) = (of(report.round_trips, "round trip"), of(report.faults, "fault"));
        let (up, down, paths) = (bytes(report.bytes_up), bytes(report.bytes_down), of(report.paths_in_view, "path"));
        let task = self.task.short();
        let waited = self.waits.in_words(Instant::now()).map(|waited| format!("; {waited}")).unwrap_or_default();
        format!("{place} in {took}: {trips}, {up} up, {down} down, {faults}, {paths}{waited}; gleaner explain {task}")
    }
}

/// What a task that runs waits for now.
fn waits_of(report: &TaskReport) -> Option<String> {
    match report.worker {
        Some(_) => report.waits.clone(),
        None => Some(AT_HUB.into()),
    }
}

/// What a task waits for that has come so far, if it waits more than it runs.
pub(crate) fn waits(progress: &Progress) -> Option<String> {
    const RAN_US_MIN: u64 = 200_000;
    let Progress { ran_us, cpu_us, waited_us, rests } = progress;
    if !rests.is_empty() {
        return Some(format!("rests: {}", told(rests, NAME_BYTES_MAX)));
    }
    let waits = *ran_us >= RAN_US_MIN && waited_us.saturating_mul(2) > *ran_us && cpu_us.saturating_mul(2) < *ran_us;
    let s = |us: &u64| *us as f64 / 1e6;
    waits.then(|| format!("waits for a processor: got {:.1} s of {:.1}", s(cpu_us), s(ran_us)))
}

fn shown<'a>(paths: impl IntoIterator<Item = &'a TreePath>) -> Vec<String> {
    paths.into_iter().take(PATHS_MAX).map(TreePath::to_string).collect()
}

/// The tasks that run, and the last that did.
pub struct Records {
    path: PathBuf,
    state: Mutex<State>,
    /// What is counted of them.
    pub figures: Figures,
}

#[derive(Default)]
struct State {
    running: HashMap<TaskId, Running>,
    ended: VecDeque<TaskReport>,
    lines: usize,
    /// Where reports are added.
    file: Option<std::fs::File>,
}

struct Running {
    /// As it was when something about it was told last.
    report: TaskReport,
    begun: Instant,
    cancel: Arc<Notify>,
}

impl Running {
    /// What is known of it now.
    fn report(&self) -> TaskReport {
        let now_us = self.begun.elapsed().as_micros() as u64;
        let placed = self.report.timeline.iter().rev().find(|moment| is_placed(moment));
        let (again_us, waits) = (placed.map(|moment| now_us - moment.at_us), waits_of(&self.report));
        TaskReport { again_us, waits, ..self.report.clone() }
    }

    fn line(&self) -> TaskLine {
        let elapsed_us = self.begun.elapsed().as_micros() as u64;
        let waits = waits_of(&self.report);
        TaskLine { place: "remote".into(), elapsed_us, waits, ..line_of(&self.report) }
    }
}

/// Whether it was given a place then.
fn is_placed(moment: &Moment) -> bool {
    moment.what.starts_with("placed")
}

impl Records {
    /// The records in `folder`; lines that cannot be read are forgotten.
    pub fn open(folder: &Path) -> Self {
        let path = folder.join("tasks.jsonl");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let mut ended: VecDeque<TaskReport> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        while ended.len() > KEPT_MAX {
            ended.pop_front();
        }
        let lines = text.lines().count();
        let state = Mutex::new(State { ended, lines, ..State::default() });
        Self { path, state, figures: Figures::default() }
    }

    /// A command begins. The notice ends it, if somebody asks for that.
    pub fn begin(&self, record: &Record) -> Arc<Notify> {
        let cancel = Arc::new(Notify::new());
        let running = Running { report: record.report.clone(), begun: record.begun, cancel: cancel.clone() };
        lock(&self.state).running.insert(record.task, running);
        // Arguments may hold secrets.
        tracing::debug!(task = %record.task, program = record.report.argv.first(), "a command begins");
        cancel
    }

    /// Something about a command is to be told while it runs.
    pub fn tell(&self, record: &Record) {
        if let Some(running) = lock(&self.state).running.get_mut(&record.task) {
            running.report = record.report.clone();
        }
    }

    /// A command is over.
    pub fn end(&self, record: Record, reply: &Reply) {
        let task = record.task;
        self.figures.ended(reply, record.attempts);
        let report = record.finish(reply);
        tracing::debug!(%task, place = report.place, status = report.status, "a command has ended");
        let mut state = lock(&self.state);
        state.running.remove(&task);
        let line = serde_json::to_string(&report).unwrap_or_default();
        state.ended.push_back(report);
        if state.ended.len() > KEPT_MAX {
            state.ended.pop_front();
        }
        state.lines += 1;
        let written = if state.lines > LINES_MAX { self.rewrite(&mut state) } else { self.append(&mut state, &line) };
        if let Err(error) = written {
            tracing::debug!(%error, "the record of a task was not kept");
        }
    }

    fn append(&self, state: &mut State, line: &str) -> std::io::Result<()> {
        let file = match &mut state.file {
            Some(file) => file,
            None => {
                let opened = std::fs::File::options().append(true).create(true).mode(0o600).open(&self.path)?;
                state.file.insert(opened)
            }
        };
        file.write_all(format!("{line}\n").as_bytes())
    }

    fn rewrite(&self, state: &mut State) -> std::io::Result<()> {
        let lines: Vec<String> = state.ended.iter().filter_map(|report| serde_json::to_string(report).ok()).collect();
        state.lines = lines.len();
        state.file = None;
        small_file::write(&self.path, (lines.join("\n") + "\n").as_bytes())
    }

    /// The last report whose number starts with these digits, of those that have ended first; with none, the last of all.
    pub fn find(&self, digits: &str) -> Option<TaskReport> {
        let state = lock(&self.state);
        let ended = state.ended.iter().rev().find(|report| report.task.starts_with(digits));
        ended.cloned().or_else(|| {
            let running = state.running.values().filter(|running| running.report.task.starts_with(digits));
            running.max_by_key(|running| running.begun).map(Running::report)
        })
    }

    /// All that run and the last that ended, newest first.
    pub fn list(&self) -> Vec<TaskLine> {
        let state = lock(&self.state);
        let mut lines: Vec<TaskLine> =
            state.running.values().map(Running::line).chain(state.ended.iter().map(line_of)).collect();
        lines.sort_by_key(|line| std::cmp::Reverse(line.started_ms));
        lines
    }

    /// Ends the running task whose number starts with these digits; returns its line.
    pub fn cancel(&self, digits: &str) -> Option<TaskLine> {
        let state = lock(&self.state);
        let running = state.running.values().find(|running| running.report.task.starts_with(digits))?;
        running.cancel.notify_one();
        Some(running.line())
    }

    /// Whether a task runs whose number starts with these digits.
    pub fn is_running(&self, digits: &str) -> bool {
        lock(&self.state).running.values().any(|running| running.report.task.starts_with(digits))
    }

    /// How many tasks run.
    pub fn running(&self) -> usize {
        lock(&self.state).running.len()
    }
}

fn line_of(report: &TaskReport) -> TaskLine {
    TaskLine {
        task: report.task.clone(),
        argv: report.argv.clone(),
        place: report.place.clone(),
        worker: report.worker.clone(),
        status: report.status.clone(),
        exit: report.exit,
        signal: report.signal,
        signal_name: report.signal_name.clone(),
        started_ms: report.started_ms,
        waits: report.waits.clone(),
        elapsed_us: report.timeline.last().map_or(0, |moment| moment.at_us),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_is_explained_with_what_it_would_lose_elsewhere() {
        let folder = tempfile::tempdir().expect("a folder");
        let records = Records::open(folder.path());
        let mut record = Record::new(TaskId(7), &Command::default());
        records.begin(&record);
        let digits = TaskId(7).to_hex();
        let told = records.find(&digits).expect("it runs");
        assert_eq!((told.status.as_str(), told.again_us, told.worker), ("running", None, None));
        record.placed(&Placed { name: "rack".into(), why: "idle".into(), ..Placed::default() });
        records.tell(&record);
        let told = records.find("").expect("nothing else was");
        assert!(told.again_us.is_some(), "{told:?}");
        assert_eq!((told.worker.as_deref(), told.why.as_str()), (Some("rack"), "idle"));
        records.end(record, &Reply::Done(ExitStatus::Code(0)));
        let told = records.find(&digits).expect("it has ended");
        assert_eq!((told.status.as_str(), told.again_us, records.running()), ("exit 0", None, 0));
    }
}

//! `gleaner submit`: reads the commands of a batch job, hands them to the client daemon, and waits for the job if asked to.

mod line;

use super::{ask, understand};
use crate::answers::Render;
use crate::args::Submit;
use crate::error::{CliError, Result};
use crate::job::progress::Progress;
use crate::job::source::{Item, Source, Typed};
use crate::job::template::Template;
use crate::render;
use base::batch::{TASK_BYTES_MAX, TASKS_MAX};
use base::codec::Encode;
use base::door::{Reply, Request, VERSION};
use base::{Batch, BatchId, BatchTask};
use client::report::{self, BatchLine, BatchReport, Question, Submitted};
use gleaner_client::START_TIME_MAX;
use gleaner_client::door::{Door, DoorError, Folder};
use gleaner_client::gather;
use line::Before;
use serde_json::Value;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long the daemon may take to answer: it waits for the hub.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(120);
/// Bytes and tasks in one message.
const MESSAGE_BYTES: usize = 1 << 20;
const MESSAGE_TASKS: usize = 4096;
/// How long the daemon may wait for news of a job until it tells.
const LOOK_MS: u32 = 1000;
/// How often in a row the daemon may fail to tell.
const LOOKS_FAILED_MAX: u32 = 10;
/// How long a job that has just been submitted may wait until it is said for what.
const WAITS_MIN: Duration = Duration::from_secs(3);
/// Failed tasks that are shown.
const FAILED_SHOWN_MAX: usize = 10;

/// Submits a job.
pub fn run(arguments: Submit) -> Result<ExitCode> {
    let mut tasks = Tasks::new(&arguments)?;
    let batch = batch(&arguments)?;
    let submitted = submit(batch, &mut tasks)?;
    let job = &submitted.job;
    let short = report::short(&job.job);
    if submitted.existed {
        render::say(&format!("job {short} was submitted with this key before; nothing was changed"));
    } else if !submitted.at_hub && !job.is_over() {
        let why = job.problem.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
        render::say(&format!("the hub has not taken job {short} yet{why}; it is kept here until it does"));
    } else if let Some(problem) = job.problem.as_ref().filter(|_| !job.is_over()) {
        render::say(&format!("job {short}: {problem}"));
    }
    if !arguments.wait {
        if arguments.json {
            render::print_json(&submitted)?
        } else {
            render::print(&format!("{short}\n"))?
        }
        return Ok(ExitCode::SUCCESS);
    }
    if !arguments.json {
        render::print(&format!("{short}\n"))?;
    }
    let over = wait(job)?;
    if arguments.json {
        let submitted = Submitted { job: over.clone(), ..submitted };
        render::print_json(&waited(&submitted).map_err(|error| CliError::internal(error.to_string()))?)?;
    } else {
        let state = if over.state == "cut" { "done, but output was cut" } else { &over.state };
        render::say(&format!("job {short} {state}: {} done, {} failed", over.done, over.failed));
        show_failed(&over)?;
    }
    Ok(if over.state == "done" { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What `--wait --json` prints: what is printed without `--wait`, and beside that the members of the job's line, where they used to be.
fn waited(submitted: &Submitted) -> serde_json::Result<Value> {
    let (mut all, named) = (serde_json::to_value(&submitted.job)?, serde_json::to_value(submitted)?);
    if let (Value::Object(all), Value::Object(named)) = (&mut all, named) {
        all.extend(named);
    }
    Ok(all)
}

/// All of the job but its tasks.
fn batch(arguments: &Submit) -> Result<Batch> {
    let id = match &arguments.key {
        Some(key) => BatchId::of_key(key.as_bytes()),
        None => BatchId(u128::from_be_bytes(uuid()?)),
    };
    let after = arguments.after.iter().map(|digits| find(digits)).collect::<Result<_>>()?;
    let millis = |duration: Duration| duration.as_millis() as u64;
    if let (Some(takes), Some(limit)) = (arguments.takes, arguments.time_limit)
        && takes > limit
    {
        return Err(CliError::user("no task can end within --time-limit if it takes as long as --takes says")
            .hint("set a longer --time-limit, or none"));
    }
    Ok(Batch {
        id,
        name: arguments.name.clone().or_else(|| arguments.key.clone()).unwrap_or_default(),
        surroundings: gather::command(vec![b"-".to_vec()], arguments.needs.with_cpus(arguments.cpus))?,
        allow_write: arguments.allow_write.iter().map(|path| path.as_os_str().as_bytes().to_vec()).collect(),
        priority: arguments.priority,
        is_held: arguments.hold,
        quorum: arguments.quorum,
        deadline_ms: arguments.deadline.map(millis),
        takes_ms: arguments.takes.map(millis),
        time_limit_ms: arguments.time_limit.map(millis),
        retries: arguments.retries,
        failures_max: arguments.max_failures,
        assimilate: arguments.assimilate.clone().map(String::into_bytes),
        validate: arguments.validate.clone().map(String::into_bytes),
        after,
    })
}

/// A name that nobody else has.
fn uuid() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| CliError::environment(format!("the kernel gives no random number: {errno}")))?;
    Ok(bytes)
}

/// The job whose number starts with these digits.
fn find(digits: &str) -> Result<BatchId> {
    let report: BatchReport = ask(&Question::Job { job: digits.to_owned(), first: 0, count: 0, wait_ms: 0 })?;
    BatchId::from_hex(&report.job.job).ok_or_else(|| CliError::internal("a job without a number"))
}

/// The tasks of a job that is submitted.
struct Tasks {
    source: Option<Source>,
    /// The only one.
    single: Option<BatchTask>,
    /// Lines may be JSON.
    has_lines: bool,
    before: Before,
}

impl Tasks {
    fn new(arguments: &Submit) -> Result<Self> {
        let typed = Typed::new(arguments.command.iter().cloned().map(OsString::into_vec));
        let has_lines = typed.command.is_empty() && typed.lists.is_empty();
        if arguments.file.is_none() && typed.lists.is_empty() {
            let argv = match typed.command.as_slice() {
                [] => return Err(CliError::user("no commands given").hint("gleaner submit --help")),
                [line] => Template::verbatim(line).fill(&[], 1).argv,
                words => words.to_vec(),
            };
            let single = Some(BatchTask { argv, ..BatchTask::default() });
            return Ok(Self { source: None, single, has_lines: false, before: Before::default() });
        }
        let source = Source::new(arguments.file.as_deref(), typed)?;
        if let Some(total) = source.total().filter(|total| *total > TASKS_MAX.into()) {
            return Err(
                CliError::user(format!("{total} tasks: a job has at most {TASKS_MAX}")).hint("submit several jobs")
            );
        }
        Ok(Self { source: Some(source), single: None, has_lines, before: Before::default() })
    }

    fn next(&mut self) -> Result<Option<BatchTask>> {
        let Some(source) = &mut self.source else { return Ok(self.single.take()) };
        let Some(item) = source.take()? else { return Ok(None) };
        let origin = item.origin.clone().unwrap_or_else(|| format!("task {}", item.index()));
        let task = self.task(item).map_err(|what| CliError::user(format!("{origin}: {what}")))?;
        match task.to_bytes().len() > TASK_BYTES_MAX {
            true => Err(CliError::user(format!("{origin}: a command of more than {} KiB", TASK_BYTES_MAX >> 10))
                .hint("put the arguments into a file that the command reads")),
            false => Ok(Some(task)),
        }
    }

    /// As many as go into one message; none: there are no more.
    fn portion(&mut self) -> Result<Vec<BatchTask>> {
        let (mut tasks, mut bytes) = (Vec::new(), 0);
        while bytes < MESSAGE_BYTES && tasks.len() < MESSAGE_TASKS {
            let Some(task) = self.next()? else { break };
            bytes += task.argv.iter().map(|word| word.len() + 4).sum::<usize>() + task.after.len() * 4;
            tasks.push(task);
        }
        Ok(tasks)
    }

    fn task(&mut self, item: Item) -> std::result::Result<BatchTask, String> {
        let text = item.command.shown.trim_ascii();
        if self.has_lines && text.starts_with(b"{\"") {
            return self.before.line(text);
        }
        self.before.unnamed();
        Ok(BatchTask { argv: item.command.argv, ..BatchTask::default() })
    }
}

fn submit(batch: Batch, tasks: &mut Tasks) -> Result<Submitted> {
    // What cannot be read is found before there is a job.
    let mut portion = tasks.portion()?;
    if portion.is_empty() {
        return Err(CliError::user("there are no commands").hint("gleaner submit --help"));
    }
    let mut door = Door::open_or_start(&Folder::of_environment(), Instant::now() + START_TIME_MAX)?;
    let request = Request::Submit { version: VERSION, batch: Box::new(batch), world: gather::world() };
    door.send(&request, &[]).map_err(lost)?;
    while !portion.is_empty() {
        door.send(&Request::Tasks(portion), &[]).map_err(lost)?;
        portion = tasks.portion()?;
    }
    door.send(&Request::Submitted, &[]).map_err(lost)?;
    match door.receive(Instant::now() + ANSWER_TIME_MAX).map_err(lost)? {
        Some(Reply::Answer(answer)) => understand(&answer),
        _ => Err(lost(DoorError::NotListening)),
    }
}

fn lost(error: DoorError) -> CliError {
    match error {
        DoorError::NotListening | DoorError::System { .. } | DoorError::Silent(_) => {
            CliError::environment("the client daemon went away while the job was submitted")
                .hint("`gleaner jobs` shows whether it was taken; with --key it can be submitted again in any case")
        }
        error => error.into(),
    }
}

/// Shows how far the job is until it is over.
fn wait(job: &BatchLine) -> Result<BatchLine> {
    let mut progress = Progress::new(Some(job.tasks.into()));
    let (mut wait_ms, mut failed) = (0, 0);
    let (mut said, begun) = (job.problem.clone(), Instant::now());
    loop {
        match ask::<BatchReport>(&Question::Job { job: job.job.clone(), first: 0, count: 0, wait_ms }) {
            Ok(report) => {
                let now = report.job;
                (wait_ms, failed) = (LOOK_MS, 0);
                let is_soon = now.state == "waiting" && begun.elapsed() < WAITS_MIN;
                if now.problem != said && !is_soon {
                    said = now.problem.clone();
                    if let Some(problem) = &said {
                        let text = format!("job {}: {problem}", report::short(&now.job));
                        progress.beside(|| render::say(&text));
                    }
                }
                progress.stands_at((now.done + now.failed).into(), now.failed.into(), now.running.into());
                if now.is_over() {
                    progress.close();
                    return Ok(now);
                }
            }
            // A daemon that has just been killed is started again by the next question.
            Err(error) => {
                failed += 1;
                if failed > LOOKS_FAILED_MAX {
                    progress.close();
                    return Err(error);
                }
            }
        }
    }
}

/// Says of the first tasks that failed, or whose output was cut, why.
fn show_failed(job: &BatchLine) -> Result {
    let (mut first, mut shown) = (0, 0);
    while (job.failed > 0 || job.state == "cut") && first < job.tasks && shown < FAILED_SHOWN_MAX {
        let report: BatchReport = ask(&Question::Job { job: job.job.clone(), first, count: 1000, wait_ms: 0 })?;
        first += report.tasks.len().max(1) as u32;
        for task in report.tasks.iter().filter(|task| task.status != "exit 0").take(FAILED_SHOWN_MAX - shown) {
            shown += 1;
            render::say(task.render().trim_end());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Arguments, Command};
    use clap::Parser;

    fn tasks(line: &str) -> Result<Vec<Vec<String>>> {
        let arguments = Arguments::try_parse_from(line.split_whitespace()).expect("sound");
        let Command::Submit(submit) = arguments.command else { panic!("not submit") };
        let mut tasks = Tasks::new(&submit)?;
        let mut all = Vec::new();
        while let Some(task) = tasks.next()? {
            let words = task.argv.into_iter().map(|word| String::from_utf8(word).expect("text"));
            all.push(std::iter::once(task.name).chain(words).collect());
        }
        Ok(all)
    }

    #[test]
    fn commands_come_from_lines_arguments_or_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("job");
        std::fs::write(&path, "# no\ngcc -c a.c\n{\"argv\": [\"./m\", \"1 2\"], \"name\": \"one\"}\n{ a; }\n")
            .expect("written");
        let file = path.to_str().expect("text");
        let lines = tasks(&format!("gleaner submit --hold {file}")).expect("sound");
        assert_eq!(
            lines,
            [vec!["", "gcc", "-c", "a.c"], vec!["one", "./m", "1 2"], vec!["", "/bin/sh", "-c", "{ a; }"]]
        );
        let filled = tasks("gleaner submit -- cp {} {.}.b ::: x.a y.a").expect("sound");
        assert_eq!(filled, [["", "cp", "x.a", "x.b"], ["", "cp", "y.a", "y.b"]]);
        assert_eq!(tasks("gleaner submit -- echo {} -n").expect("sound"), [["", "echo", "{}", "-n"]]);
        assert_eq!(tasks("gleaner submit").expect_err("nothing").message, "no commands given");
        std::fs::write(&path, "true\n{\"argv\": []}\n").expect("written");
        let said = tasks(&format!("gleaner submit {file}")).expect_err("no program").message;
        assert!(said.ends_with("job:2: `argv` names no program"), "{said}");
        std::fs::write(&path, "# a\ntrue\n{\"argv\": [\"x\"], \"after\": [0, \"y\"]}\n").expect("written");
        let said = tasks(&format!("gleaner submit {file}")).expect_err("no such task").message;
        assert!(said.contains("job:3: `after` has the name `y`, which no earlier line has"), "{said}");
    }
}

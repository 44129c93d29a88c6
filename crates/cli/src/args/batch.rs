//! The arguments of what is about batch jobs.

use super::Needs;
use super::times::duration;
use base::Priority;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// `gleaner submit`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = SUBMIT_HELP)]
pub struct Submit {
    /// Name of the job, for people
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,
    /// The job's key: to submit a key again changes nothing, and says so
    #[arg(long, value_name = "TEXT")]
    pub key: Option<String>,
    /// Run each task on several workers, until the results of N of them agree
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=8))]
    pub quorum: u32,
    /// Give up tasks that are not done by then: a number with s, m or h
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub deadline: Option<Duration>,
    /// How long a task takes, about, on an idle worker: what --deadline then cannot allow for is refused at once; 1s if not given
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub takes: Option<Duration>,
    /// Run a task again whose status is not 0 or that took too long, up to N times. Tasks that were lost with their worker are run again in any case
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=11))]
    pub retries: Option<u32>,
    /// Give the job up when more than N tasks have failed
    #[arg(long, value_name = "N")]
    pub max_failures: Option<u32>,
    /// End a run of a task that takes longer: the task has failed, unless --retries has it run again; an hour, or four times --takes, if not given
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub time_limit: Option<Duration>,
    /// How urgent it is
    #[arg(long, default_value = "normal", value_parser = priority())]
    pub priority: Priority,
    /// CPUs that each task asks for
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub cpus: u32,
    /// What else they ask for.
    #[command(flatten)]
    pub needs: Needs,
    /// Let tasks change PATH too; may be repeated
    #[arg(long, value_name = "PATH")]
    pub allow_write: Vec<PathBuf>,
    /// Run COMMAND here with `sh -c` when a task has ended and its changes are in place
    #[arg(long, value_name = "COMMAND", value_hint = ValueHint::CommandString)]
    pub assimilate: Option<String>,
    /// Let COMMAND say whether two results agree, which otherwise must be equal; without --quorum, whether one is good
    #[arg(long, value_name = "COMMAND", value_hint = ValueHint::CommandString)]
    pub validate: Option<String>,
    /// Begin when this job has ended well; if it does not, the new one is given up. May be repeated
    #[arg(long, value_name = "JOB")]
    pub after: Vec<String>,
    /// Have its tasks wait here until `gleaner release`: the hub is not given them before, unless there is a --deadline
    #[arg(long)]
    pub hold: bool,
    /// Wait until it is over; the status is then 1 if any task failed or was cancelled. Ctrl-C ends the waiting, not the job
    #[arg(short, long)]
    pub wait: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// A file with a command a line, `-`: standard input
    pub file: Option<PathBuf>,
    /// The command; then `:::` and arguments, or `::::` and a file with an argument a line, each to be filled in
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// Reads a priority by its name.
fn priority() -> impl TypedValueParser<Value = Priority> {
    let value = |priority: Priority| {
        PossibleValue::new(priority.name()).help(match priority {
            Priority::Urgent => "Somebody waits for it",
            Priority::Normal => "As jobs are",
            Priority::Spare => "When nothing else is to be done",
        })
    };
    PossibleValuesParser::new(Priority::ALL.map(value)).try_map(|name| Priority::of_name(&name).ok_or("no priority"))
}

/// What help and manual say of batch jobs.
const SUBMIT_HELP: &str = "\
Examples:
  gleaner submit commands.txt                            every line is a command
  gleaner submit --wait -- convert {} {.}.png ::: *.jpg  a command for every argument
  gleaner submit --quorum 2 -- ./model 17                one command, whose result two workers agree on
  gleaner submit --deadline 2h --takes 5m models.txt     refused at once if the workers cannot be done with it in two hours
  gleaner submit --quorum 2 --validate 'diff -q \"$1/stdout\" \"$2/stdout\"' runs.txt
                                                         results agree that print the same, whatever else they change
  gleaner submit --key night-7 --hold night.jsonl        lines such as {\"argv\": [\"./model\", \"17\"], \"name\": \"17\"}

Lines, COMMAND and what is filled in are as for `gleaner run --job`, see `gleaner run --help`; a line that is a JSON object has the \
words of a command in `argv`, and may have a `name`, and `after`: a list of tasks of earlier lines, by their names or their numbers from 0. No task \
reads standard input.

A task with `after`, such as {\"argv\": [\"./sum\", \"out\"], \"after\": [\"17\", 0]}, begins when all of these have ended with status 0 and their changes are in place; \
--assimilate is not waited for. If one has not ended well the task is `not run`, and so are those after it: the job has failed, --max-failures does \
not count them, and --assimilate is not run for them. `gleaner jobs` shows what a task waits for.

The job's number is printed when the hub has taken it for good: it outlives hub, client daemon and this machine's next start. Should the hub not be \
reached, the job is kept here until it can be. The client daemon launches tasks and puts their changes into place, so it must run for the job to go \
on: after a start of this machine any gleaner or remrun command starts it. `gleaner jobs` shows how far it is, and where the outputs are.

Tasks see the files as they were when the job began: when it was submitted, released if it was held, or when the daemon was started anew meanwhile. A file that has changed since, and \
that no task of the job had used before, is told to none: the task that wants it fails, and says so. The commands themselves are those that were read at submission. But if any line has `after`, each task sees the files as \
they are when it begins itself, and so does a task that waits for a lock. A task may run more than once; what it changes is committed \
once. What conflicts with changes made here meanwhile is not committed, but kept for `gleaner recover`, and the task has failed. A command that \
cannot run on another machine fails.

A task that fails says why in `gleaner jobs JOB`: its own status and how often it ran, the limit that it met, results that do not agree, a deadline that passed. With --quorum each of the results comes from a worker of another owner; if \
fewer are here `submit` and `gleaner jobs` say so, and the job waits for more.

With --deadline the hub takes a job if the workers can do all of its tasks by then beside what they have taken on already, going by --takes, and otherwise says by when they could. When the deadline is near and workers are idle, tasks that have not ended are run on those too: the first to end counts. What has not ended at the deadline has failed.

--validate is run with `sh -c`, as a task of its own. It gets two results of a task as $1 and $2 (one if no --quorum is asked for), and exits with 0 if they agree, with 1 if they do not; \
anything else is tried again, and then means that they do not. A result is a folder: `stdout`, `stderr`, `status` ($?), `changes` (a line each, as \
`file PATH`), and under `files` what the task wrote, at its whole path. Results with different status are not compared: they differ.

--assimilate finds in its environment: GLEANER_JOB, GLEANER_INDEX (from 0), GLEANER_KEY (job/index), GLEANER_STATUS ($? of the task, of its last run if --retries did not help; 125 if it has \
none, or ended with 0 and has no result that counts), GLEANER_STDOUT and GLEANER_STDERR (files). It runs at least once for each task, and again, after growing pauses, until it exits with 0. What it \
says is in assimilate.log in the job's folder.";

/// `gleaner jobs`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_long_help = JOBS_HELP)]
pub struct Jobs {
    /// What to do with one.
    #[command(subcommand)]
    pub command: Option<JobsCommand>,
    /// The first digits of a job's number: show it and its tasks
    pub job: Option<String>,
    /// List those that were over long ago, too
    #[arg(long, conflicts_with = "job")]
    pub all: bool,
    /// List the jobs of all accounts, as the hub sees them: for the hub's owner
    #[arg(long, conflicts_with_all = ["job", "all"])]
    pub everyone: bool,
    /// Which page of the job's tasks, or of everyone's jobs, from 1
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub page: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What help and manual say of the list of jobs.
const JOBS_HELP: &str = "\
Examples:
  gleaner jobs                      the jobs of this account
  gleaner jobs 8f3a --page 2        one of them, and its tasks from the 51st on
  gleaner jobs output 8f3a          what its tasks said
  gleaner jobs --everyone           100 jobs of all accounts, for the hub's owner; --page 2 has the next

With --everyone a job is `ready`, `running`, `held`, `away` (the daemon that launches its tasks is not connected) or `ended`. TASKS are those \
that the hub was given so far, ENDED those whose end was told. A job that was submitted to an earlier version of the hub has no ID there.";

/// What is done with one job.
#[derive(Clone, Debug, Subcommand)]
pub enum JobsCommand {
    /// Print what tasks said, standard output and standard error apart
    Output(Output),
}

/// `gleaner jobs output`.
#[derive(Clone, Debug, Args)]
pub struct Output {
    /// The first digits of the job's number
    pub job: String,
    /// The task's number within the job, from 0; all tasks in their order if not given
    pub index: Option<u32>,
}

/// A batch job.
#[derive(Clone, Debug, Args)]
pub struct JobArgument {
    /// The first digits of the job's number
    pub job: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `gleaner priority`.
#[derive(Clone, Debug, Args)]
pub struct PriorityArguments {
    /// The first digits of the job's number
    pub job: String,
    /// How urgent it becomes
    #[arg(value_parser = priority())]
    pub priority: Priority,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

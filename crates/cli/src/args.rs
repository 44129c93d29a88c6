//! The arguments of `gleaner`: help, man pages and completions all come from here.

mod accounts;
mod batch;
mod bundle;
mod completions;
mod errors;
mod forecast;
mod grants;
mod guests;
mod journal;
mod json;
pub mod remrun;
mod sim;
mod times;
mod trust;

pub use accounts::{Accounts, Limit};
pub use batch::{JobArgument, Jobs, JobsCommand, Output, PriorityArguments, Submit};
pub use bundle::Bundle;
pub use completions::{Completions, Program};
pub use errors::{for_program, with_tip};
pub use forecast::Forecast;
pub use grants::TrustProject;
pub use guests::{Guests, Pause};
pub use journal::{Journal, JournalCommand, Site, Upgrade, Verify};
pub use json::may_want_json;
pub use sim::{Bursts, Chunks, Linger, Measured, OwnersBursts, Parallel, Set, Sim, SimCommand, Sweep, Unit};
pub use trust::{Approve, Audit, TokenArgument, Trust, Use};

use self::times::{interval, lifetime};
use crate::config::Cpus;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Run commands on other machines' spare cycles as if they ran here.
///
/// Two commands make a pool: `gleaner up` on one machine, and the line that it prints on each of the others. Then
/// `remrun COMMAND` runs a command there.
#[derive(Clone, Debug, Parser)]
#[command(name = "gleaner", version, propagate_version = true, max_term_width = 100)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Arguments {
    /// Whether errors are for a program, too.
    pub fn wants_json(&self) -> bool {
        match &self.command {
            Command::Run(run) => run.json,
            _ => may_want_json(std::env::args_os()),
        }
    }
}

/// The subcommands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Start a pool on this machine: hub and worker in one process; prints the line that joins others
    Up(Up),
    /// Start a hub alone
    Hub(Hub),
    /// Start the worker of a pool that this machine has joined
    Worker(Worker),
    /// Join a pool as a worker
    Join(Join),
    /// Use a pool from this account: its commands then run there
    Use(Use),
    /// Make a token for a machine that is to join
    Token(Token),
    /// Run a command on the pool, as `remrun` does, or the many commands of a job
    Run(Run),
    /// Hand commands over to be run some time, without anybody waiting for them: a batch job
    Submit(Submit),
    /// List the batch jobs, or show one, or what its tasks said
    Jobs(Jobs),
    /// Have the tasks of a batch job wait that do not run yet
    Hold(JobArgument),
    /// Have a batch job that was held go on
    Release(JobArgument),
    /// Make a batch job more or less urgent
    Priority(PriorityArguments),
    /// Show the pool: hub, workers, tasks
    Status(Json),
    /// Watch the pool: CPUs, queues, rates, the journal, workers, batch jobs
    Top(Top),
    /// Foretell a series of values, and tell how good that was so far
    Forecast(Forecast),
    /// Simulate what policies do with guests on owners' machines
    Sim(Sim),
    /// Tell where a task ran and why, what it cost, and what happened when
    Explain(Explain),
    /// List the tasks that run, wait or ended lately
    Tasks(Json),
    /// End a task or a batch job
    Cancel(TaskArgument),
    /// Have a worker take no more tasks; what runs there goes on to its end
    Drain(Drain),
    /// Show what accounts may have at the hub, and what they have used
    Accounts(Accounts),
    /// Change what an account may have at the hub
    Limit(Limit),
    /// Have a worker take tasks that joined, and say how far it is trusted
    Approve(Approve),
    /// Shut a machine out of the pool, at once
    Revoke(Node),
    /// Show who joined, was approved or shut out, and launched what
    Audit(Audit),
    /// Get back what a task wrote that could not be committed
    Recover(Recover),
    /// Trust the `.gleaner.toml` of a project: show what it grants, and let it count
    Trust(TrustProject),
    /// Look after the journal of this machine's hub: verify, prune, upgrade
    Journal(Journal),
    /// Show the settings in effect, and where each comes from
    Config(Json),
    /// Show what runs on this machine for others, and what it leaves to its owner
    Guests(Guests),
    /// Have guests rest on this machine, at once
    Pause(Pause),
    /// Have guests go on that `pause` stopped
    Resume(Guests),
    /// Stop what `up`, `hub`, `worker` or `join` started here, and the client daemon
    Stop(Stop),
    /// Find out what is missing on this machine, and what to do about it
    Doctor(Json),
    /// Gather what is needed to find a fault, without secrets, in one file
    Bundle(Bundle),
    /// Print the completions for a shell: of `gleaner`, or of `remrun`
    Completions(Completions),
    /// Write the manual pages into a folder
    Man(Man),
    /// Run the client daemon; remrun starts it when it is needed
    #[command(hide = true)]
    Daemon(Daemon),
}

/// Whether the output is for a program.
#[derive(Clone, Copy, Debug, Args)]
pub struct Json {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Settings of what runs on this machine. Each can also be set by the environment or in node.toml.
#[derive(Clone, Debug, Default, Args)]
pub struct NodeFlags {
    /// Folder for keys, journal and blocks [env: GLEANER_STATE_DIR]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Name of this machine in the pool; its host name if not given [env: GLEANER_NAME]
    #[arg(long)]
    pub name: Option<String>,
}

/// How a process that stays is started.
#[derive(Clone, Debug, Default, Args)]
pub struct Background {
    /// Return once it is ready, and leave it running
    #[arg(long)]
    pub detach: bool,
    /// Descriptor of the pipe that waits for readiness
    #[arg(long, hide = true, value_name = "N")]
    pub ready_fd: Option<i32>,
}

/// The hub that a hub works for.
#[derive(Clone, Debug, Default, Args)]
pub struct Above {
    /// Have the hub work for another one, too, to which TOKEN lets in a worker: what its workers lend is lent there, and what they
    /// read comes over once. It is remembered. `-` reads the token from standard input, where other users of this machine cannot
    /// see it
    #[arg(long, value_name = "TOKEN", allow_hyphen_values = true)]
    pub join: Option<String>,
}

/// Where a hub listens.
#[derive(Clone, Debug, Default, Args)]
pub struct Serve {
    /// Address and port that workers and clients connect to [env: GLEANER_LISTEN]
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<String>,
    /// Address and port at which whoever reaches them gets the hub's figures for Prometheus, as `GET /metrics`; none if not given
    /// [env: GLEANER_METRICS]
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics: Option<String>,
}

/// `gleaner up`.
#[derive(Clone, Debug, Args)]
pub struct Up {
    /// Settings of both.
    #[command(flatten)]
    pub node: NodeFlags,
    /// The hub above.
    #[command(flatten)]
    pub above: Above,
    /// Where it listens.
    #[command(flatten)]
    pub serve: Serve,
    /// CPUs to offer, or a part of all such as 50%; all if not given [env: GLEANER_CPUS]
    #[arg(long, value_name = "N")]
    pub cpus: Option<Cpus>,
    /// A name that commands may ask for with --tag, such as gpu; may be repeated [env: GLEANER_TAGS, with commas]
    #[arg(long, value_name = "NAME")]
    pub tag: Vec<String>,
    /// End when standard input ends, which is a pipe
    #[arg(long, hide = true)]
    pub while_stdin: bool,
    /// How it is started.
    #[command(flatten)]
    pub background: Background,
    /// Print where the hub listens and the token as JSON
    #[arg(long)]
    pub json: bool,
}

/// `gleaner hub`.
#[derive(Clone, Debug, Args)]
pub struct Hub {
    /// Settings.
    #[command(flatten)]
    pub node: NodeFlags,
    /// The hub above.
    #[command(flatten)]
    pub above: Above,
    /// Where it listens.
    #[command(flatten)]
    pub serve: Serve,
    /// How it is started.
    #[command(flatten)]
    pub background: Background,
    /// Print where the hub listens and the token as JSON
    #[arg(long)]
    pub json: bool,
}

/// `gleaner worker`.
#[derive(Clone, Debug, Args)]
pub struct Worker {
    /// Settings.
    #[command(flatten)]
    pub node: NodeFlags,
    /// CPUs to offer, or a part of all such as 50%; all if not given [env: GLEANER_CPUS]
    #[arg(long, value_name = "N")]
    pub cpus: Option<Cpus>,
    /// A name that commands may ask for with --tag, such as gpu; may be repeated [env: GLEANER_TAGS, with commas]
    #[arg(long, value_name = "NAME")]
    pub tag: Vec<String>,
    /// How it is started.
    #[command(flatten)]
    pub background: Background,
}

/// `gleaner join`.
#[derive(Clone, Debug, Args)]
pub struct Join {
    /// The token.
    #[command(flatten)]
    pub token: TokenArgument,
    /// How the worker is run.
    #[command(flatten)]
    pub worker: Worker,
}

/// `gleaner top`.
#[derive(Clone, Copy, Debug, Args)]
pub struct Top {
    /// Seconds from one look to the next
    #[arg(short, long, value_name = "S", value_parser = interval, default_value = "1")]
    pub interval: Duration,
    /// Print a line of JSON for each look; so it is in a pipe, too
    #[arg(long)]
    pub json: bool,
    /// Look once, and print that as JSON
    #[arg(long)]
    pub once: bool,
}

/// What a joiner may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Runs tasks
    Worker,
    /// Sends tasks
    Client,
    /// Sends tasks, makes tokens and shuts machines out
    Admin,
}

impl Role {
    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Client => "client",
            Self::Admin => "admin",
        }
    }
}

/// `gleaner token`.
#[derive(Clone, Copy, Debug, Args)]
pub struct Token {
    /// What the joiner may be
    #[arg(long, value_enum, default_value = "worker")]
    pub role: Role,
    /// How long the token is good for, at most 15 minutes: a number with s or m
    #[arg(long, value_parser = lifetime, default_value = "15m")]
    pub ttl: Duration,
    /// How far a worker is trusted at once that joins with it. Without it, one of the hub's own account and machine is its owner's own,
    /// and any other waits for `gleaner approve`
    #[arg(long, value_enum)]
    pub trust: Option<Trust>,
    /// A worker that joins with it waits for `gleaner approve`, whatever machine it is on
    #[arg(long, conflicts_with = "trust")]
    pub wait: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What commands need of a worker, but for CPUs.
#[derive(Clone, Debug, Default, Args)]
pub struct Needs {
    /// Only on a worker that lends as much memory, or here: a number with M or G
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub memory: Option<u32>,
    /// Only on a worker that has this tag, and not on this machine; may be repeated
    #[arg(long, value_name = "NAME", value_parser = tag)]
    pub tag: Vec<String>,
}

impl Needs {
    /// With so many CPUs.
    pub fn with_cpus(&self, cpus: u32) -> base::Needs {
        base::Needs { cpus, memory_mib: self.memory.unwrap_or(0), level: 0, tags: self.tag.clone() }
    }
}

/// Reads a size of memory, in MiB.
fn memory(text: &str) -> Result<u32, String> {
    base::command::memory_mib(text).ok_or_else(|| format!("not a size such as 500M or 8G: {text}"))
}

/// Reads the name of a tag.
fn tag(text: &str) -> Result<String, String> {
    let is_tag = base::command::is_tag(text);
    is_tag.then(|| text.to_owned()).ok_or_else(|| format!("not a name of letters, digits, and . _ : - within: {text}"))
}

/// `gleaner run`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = JOBS_HELP)]
pub struct Run {
    /// Run every line of FILE (`-`: standard input), or COMMAND for every line of it
    #[arg(long, value_name = "FILE")]
    pub job: Option<PathBuf>,
    /// Tasks at once; as many as the pool has CPUs if not given
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=512))]
    pub jobs: Option<u32>,
    /// Run a task of a job that fails again, up to N times
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1000))]
    pub retries: u32,
    /// Show what tasks of a job say in the order of the tasks, not of their ends
    #[arg(short, long)]
    pub keep_order: bool,
    /// What to do when a task of a job fails
    #[arg(long, value_enum, value_name = "WHEN", default_value = "never")]
    pub halt: Halt,
    /// Print a line of JSON for each task of a job, and one for all at the end
    #[arg(long)]
    pub json: bool,
    /// CPUs that each command asks for, and sees on another's machine
    ///
    /// `nproc`, OpenMP, Java, Rust's and Go's thread pools go by the CPUs that they may use.
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub cpus: u32,
    /// What else they ask for.
    #[command(flatten)]
    pub needs: Needs,
    /// Fail rather than run a command on this machine
    #[arg(long, conflicts_with = "no_remote")]
    pub no_local: bool,
    /// Run a single command here as well, in a sandbox, and keep the result of the one that ends first; not if it reads a terminal or a pipe
    #[arg(long, conflicts_with_all = ["no_remote", "no_local", "job"])]
    pub race: bool,
    /// Run on this machine only
    #[arg(long)]
    pub no_remote: bool,
    /// Let commands change PATH too; may be repeated
    #[arg(long, value_name = "PATH")]
    pub allow_write: Vec<PathBuf>,
    /// Say on standard error where commands ran, and why
    #[arg(short, long)]
    pub verbose: bool,
    /// The command; then `:::` and arguments, or `::::` and a file with an argument a line, each to be filled in
    #[arg(trailing_var_arg = true, value_name = "COMMAND", value_hint = clap::ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// What to do when a task of a job fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Halt {
    /// Run all tasks
    Never,
    /// Begin no further task
    #[value(alias = "soon,fail=1")]
    Soon,
    /// End those that run as well
    #[value(alias = "now,fail=1")]
    Now,
}

/// What help and manual say of jobs.
const JOBS_HELP: &str = "\
Jobs:
  gleaner run --job commands.txt                         every line is a command
  gleaner run convert {} {.}.png ::: *.jpg               a command for every argument
  gleaner run 'gzip -9 <{} >{}.gz' ::: *.log             one word is a command line for the shell
  find . -name '*.c' | gleaner run --job - gcc -O2 -c    a command for every line

A line of --job without COMMAND is a command for /bin/sh, or run without a shell if it is simple words. Blank lines and lines that begin with # \
are left out. With `:::` behind it, every line is run for every argument. COMMAND of several words is run as it is, without a shell. Several `:::` \
give all combinations.

Filled in: {} the argument, {.} without its extension, {/} its last part, {//} its folder, {/.} its last part without extension, {#} the task's \
number from 1 (as GNU parallel counts; else tasks are counted from 0), {2} {2.} {2/} {2//} {2/.} the same of the second argument. If no place is said, the argument goes to the end. What is filled into a \
command line is quoted.

All tasks of a job see the files as they were when the job began, whatever others of its tasks changed since; a path that has been changed by \
others between the job's begin and its first use is an error that names it. A command that has to run on this machine, or waits for a lock, sees the files as they are. \
Tasks should write files of their own: of a file that several create, the last one's stays.

What a task says is shown when it has ended, whole, standard error apart from standard output. Ctrl-C ends all tasks; nothing of \
them is committed.

Exit status of a job: how many tasks failed, at most 101. Of a single command: as remrun, see `remrun --help`.";

/// A task.
#[derive(Clone, Debug, Args)]
pub struct TaskArgument {
    /// The first digits of the task's or the job's number
    pub task: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `gleaner explain`.
#[derive(Clone, Debug, Args)]
pub struct Explain {
    /// The first digits of the task's number, or of a batch job's, or JOB/INDEX for one of its tasks: why it waits; the last task if not
    /// given
    pub task: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `gleaner drain`.
#[derive(Clone, Debug, Args)]
pub struct Drain {
    /// The machine's name, or the first digits of its id
    pub node: String,
    /// Have it take tasks again
    #[arg(long)]
    pub undo: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `gleaner revoke`.
#[derive(Clone, Debug, Args)]
pub struct Node {
    /// The machine's name, or the first digits of its id
    pub node: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `gleaner recover`.
#[derive(Clone, Debug, Args)]
pub struct Recover {
    /// The first digits of the task's number; without it, what is kept is listed (with --into: the newest is written)
    pub task: Option<String>,
    /// Commit it over what is there now, without asking; what that replaces is kept in its stead
    #[arg(long, requires = "task", conflicts_with = "into")]
    pub commit: bool,
    /// Commit changes at this path and beneath, too, although the write policy refused them (can be repeated)
    #[arg(long, value_name = "PATH", requires = "task", conflicts_with = "into")]
    pub allow_write: Vec<PathBuf>,
    /// Write the files into this folder instead of where they belong; it stays kept
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,
    /// Only list what is kept
    #[arg(long, conflicts_with_all = ["task", "into"])]
    pub list: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `gleaner stop`.
#[derive(Clone, Debug, Args)]
pub struct Stop {
    /// Folder of what is to be stopped, if it was started with another [env: GLEANER_STATE_DIR]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

/// `gleaner man`.
#[derive(Clone, Debug, Args)]
pub struct Man {
    /// The folder; made if it is missing
    pub dir: PathBuf,
}

/// `gleaner daemon`.
#[derive(Clone, Copy, Debug, Args)]
pub struct Daemon {
    /// Descriptor of the pipe that waits for readiness
    #[arg(long, hide = true, value_name = "N")]
    pub ready_fd: Option<i32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::str::FromStr;

    fn parsed(line: &str) -> Result<Command, clap::Error> {
        Arguments::try_parse_from(line.split_whitespace()).map(|arguments| arguments.command)
    }

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn what_follows_the_command_is_the_command_s() {
        let Ok(Command::Run(run)) = parsed("gleaner run -c 4 --no-local gcc -c x.c --help") else { panic!("not run") };
        assert_eq!((run.cpus, run.no_local, run.job), (4, true, None));
        assert_eq!(run.command, ["gcc", "-c", "x.c", "--help"]);
        let Ok(Command::Run(run)) = parsed("gleaner run -kj2 --halt now,fail=1 --job - -- -x {} ::: --job") else {
            panic!("not run")
        };
        assert_eq!((run.keep_order, run.jobs, run.halt), (true, Some(2), Halt::Now));
        assert_eq!((run.job, run.command.len()), (Some("-".into()), 4));
        for wrong in ["-j 0 x", "-j 513 x", "--frob x", "--halt later x", "--no-local --no-remote x"] {
            assert!(parsed(&format!("gleaner run {wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tokens() {
        let Ok(Command::Join(join)) = parsed("gleaner join - --cpus 2 --detach") else { panic!("not join") };
        assert_eq!(
            (join.token.token.as_deref(), join.worker.cpus, join.worker.background.detach),
            (Some("-"), Cpus::from_str("2").ok(), true)
        );
        let Ok(Command::Token(token)) = parsed("gleaner token --role client --ttl 2m") else { panic!("not token") };
        assert_eq!((token.role, token.ttl), (Role::Client, Duration::from_secs(120)));
        assert!(["gleaner recover abc --list", "gleaner frob"].iter().all(|wrong| parsed(wrong).is_err()));
    }
}

//! Attackers: programs of their own that a pool has let in, and that say what no honest part would say, by the wire protocol.
//!
//! * [`worker`]: joins by a token and takes launches; [`silence`], [`lies`] and [`questions`] are what must hold meanwhile.
//! * [`client`]: joins by a token and wants what is not its own; [`by_client`] is what must hold.
//! * [`hub`]: prints a token, and has clients that use it; [`by_hub`] is what must hold. [`between`]: one that has a worker, too.
//!
//! `e2e hostile worker TOKEN MANNER` is one by itself, against any pool. It prints a line for what it does and is told.

mod between;
mod by_client;
mod by_hub;
mod client;
mod hub;
mod lies;
mod questions;
mod silence;
mod worker;

use crate::error::{Context as _, Error, Result};
use crate::pool::{Options, Pool, workers_in};
use crate::process::{Daemon, Outcome, Run, wait_for};
use crate::report::Report;
use crate::scenario::{self, END_BOUND, Scenario, Work, folder};
use bytes::Bytes;
use std::process::{Command, ExitCode};
use std::time::Duration;
use wire::flow::Paths;
use wire::message::Hello;
use wire::{Endpoint, Hold, Joined, Key, Token};

/// First argument with which the suite's binary is an attacker.
pub const SUBCOMMAND: &str = "hostile";
/// Longer than a silent worker has its task.
const SILENCE_BOUND: Duration = Duration::from_secs(45);

const SCENARIOS: &[Scenario] = &[
    ("hostile/a worker that says nothing: the command runs elsewhere", silence::elsewhere),
    ("hostile/a worker that says nothing, alone: a clear error", silence::alone),
    (
        "hostile/a worker that says nothing, and SIGINT: the command ends, and begins nowhere again",
        silence::interrupted,
    ),
    ("hostile/a worker's result that does not come: the command ends", silence::half_a_result),
    ("hostile/a worker that stops what nobody stopped", lies::stops),
    ("hostile/a worker that tells ends which there are not", lies::ends),
    ("hostile/a worker with escapes in all that it says", lies::escapes),
    ("hostile/a worker's delta that lies", lies::deltas),
    ("hostile/a worker that asks for what is not its own", questions::asked),
    ("hostile/a client whose launches lead out of the sandbox", by_client::paths),
    ("hostile/a client that asks for what is its owner's, or another's", by_client::questions),
    ("hostile/a client with a greeting of a megabyte", by_client::greets),
    ("hostile/a client with more connections than a key has", by_client::crowd),
    ("hostile/a client whose signals there are not, and too many that there are", by_client::signals),
    ("hostile/a client with another's session", by_client::session),
    ("hostile/a hub that says nothing", by_hub::silent),
    ("hostile/a hub with results that nobody asked for", by_hub::unasked),
    ("hostile/a hub that stops what nobody stopped", by_hub::stops),
    ("hostile/a hub that asks for what no task may read", by_hub::asks),
    ("hostile/a hub that forges launches, and sends them twice", by_hub::commands),
    ("hostile/a hub that tells a worker of other files than its client's", by_hub::tells_of_other_files),
];

/// What is done to a pool whose workers are other people's.
const GUESTS: &[Scenario] =
    &[("hostile/a client that tells nothing of its files, and `pause` meanwhile", by_client::mute)];

/// The scenarios whose name contains `filter`, each on a pool of this kind of its own with one honest worker.
pub fn works<'a>(options: &Options, filter: &str, report: &'a Report) -> Vec<Work<'a>> {
    let options = Options { workers: 1, ..options.clone() };
    let mut works = scenario::works(SCENARIOS, &options, filter, report);
    works.extend(scenario::works(GUESTS, &Options { guests: true, ..options }, filter, report));
    works
}

/// Is an attacker until its hub has had enough of it.
pub fn main(arguments: &[String]) -> ExitCode {
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["worker", token, manner] => attack(worker::run(token, manner)),
        ["client", token, manner, word] => attack(client::run(token, manner, word)),
        ["hub", "between"] => attack(between::run()),
        ["hub", manner] => attack(hub::run(manner)),
        _ => {
            Err(Error::Missing("usage: e2e hostile worker TOKEN MANNER | client TOKEN MANNER WORD | hub MANNER".into()))
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hostile: {error}");
            ExitCode::FAILURE
        }
    }
}

fn attack(attacker: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.context(|| "cannot start an async runtime".to_owned())?;
    let done = runtime.block_on(attacker);
    runtime.shutdown_background();
    done
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Product(error.to_string())
}

/// Joins the token's hub with a new key, for the first time.
async fn join(token: &str, hold: Hold, hello: Hello) -> Result<Joined> {
    join_as(token, hold, Hello { instance: rand::random(), ..hello }).await
}

/// The same, as the session of this number.
async fn join_as(token: &str, hold: Hold, hello: Hello) -> Result<Joined> {
    let token = Token::parse(token).map_err(failed)?;
    let endpoint = Endpoint::new(&Key::generate(), hold).map_err(failed)?;
    let hello = Hello { role: token.role.number().into(), secret: Bytes::copy_from_slice(&token.secret), ..hello };
    wire::dial(&endpoint, &token.addresses, token.hub, |_| Paths::default(), hello).await.map_err(failed)
}

/// An attacker that runs.
struct Attacker {
    daemon: Daemon,
}

impl Attacker {
    fn start(pool: &Pool, role: &str, manner: &str, words: &[&str]) -> Result<Self> {
        let suite = std::env::current_exe().context(|| "cannot find the suite's own binary".to_owned())?;
        let mut command = Command::new(suite);
        command.args([SUBCOMMAND, role]).args(words);
        let log = pool.scratch.path().join(format!("log/hostile-{role}-{manner}.log"));
        // An attacker of the same kind may have been there before.
        let _ = std::fs::remove_file(&log);
        Ok(Self { daemon: Daemon::start(manner, command, &log)? })
    }

    /// A worker that is trusted so far, once it is at the hub.
    fn worker(pool: &Pool, manner: &str, trust: &str) -> Result<Self> {
        let token = pool.owner.gleaner(&["token", "--role", "worker", "--trust", trust])?.expect_ok("gleaner token")?;
        let token = token.text().split_whitespace().last().unwrap_or_default().to_owned();
        let liar = Self::start(pool, "worker", manner, &[&token, manner])?;
        let is_there = || {
            let status = pool.owner.json(&["status", "--json"]).ok()?;
            let is_it = |worker: &&serde_json::Value| worker["tags"][0] == manner && worker["cpus"] != 0;
            workers_in(&status).into_iter().find(is_it).map(drop)
        };
        match wait_for(END_BOUND, is_there) {
            Some(()) => Ok(liar),
            None => Err(Error::Product(format!("the hostile worker is not at the hub: {}", liar.log()))),
        }
    }

    /// A client.
    fn client(pool: &Pool, manner: &str, word: &str) -> Result<Self> {
        let token = pool.token("client")?;
        Self::start(pool, "client", manner, &[&token, manner, word])
    }

    /// What follows this beginning of a line that it has printed.
    fn said(&self, beginning: &str) -> Option<String> {
        self.log().lines().find_map(|line| line.strip_prefix(beginning)).map(str::to_owned)
    }

    /// What it has printed.
    fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.daemon.log).unwrap_or_default()).into_owned()
    }

    /// How many launches it has had.
    fn launches(&self) -> usize {
        self.log().lines().filter(|line| line.starts_with("launch ")).count()
    }

    /// Waits until it has had a launch.
    fn has_launch(&self) -> bool {
        wait_for(END_BOUND, || (self.launches() > 0).then_some(())).is_some()
    }
}

/// `remrun --no-local` of these words at this hostile worker, in a folder of this name.
fn at_liar(pool: &Pool, liar: &Attacker, place: &str, words: &[&str]) -> Result<Command> {
    let place = folder(pool, place)?;
    let mut command = pool.client.remrun(&[&["--no-local", "--tag", &liar.daemon.name], words].concat());
    command.current_dir(place);
    Ok(command)
}

/// The same, to its end.
fn run_at_liar(pool: &Pool, liar: &Attacker, place: &str, words: &[&str]) -> Result<Outcome> {
    Run::new(at_liar(pool, liar, place, words)?).within(SILENCE_BOUND * 2).run()
}

/// What must hold after any attack: the honest worker runs commands.
fn serves(pool: &Pool) -> Result<Option<String>> {
    let mut command = pool.client.remrun(&["--no-local", "--tag", "worker0", "true"]);
    command.current_dir(folder(pool, "after")?);
    let outcome = Run::new(command).within(END_BOUND).run()?;
    Ok((!outcome.ok())
        .then(|| format!("afterwards `true` at the honest worker: {}, {}", outcome.ended, outcome.said())))
}

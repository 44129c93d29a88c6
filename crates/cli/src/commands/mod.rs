//! The subcommands of `gleaner`, a file for each.

mod accounts;
mod approve;
mod bundle;
pub mod cancel;
pub mod completions;
pub mod daemon;
pub mod doctor;
mod drain;
pub mod explain;
mod forecast;
mod guests;
pub mod hub;
mod inputs;
pub mod jobs;
pub mod join;
mod journal;
pub mod man;
mod progress;
pub mod recover;
pub mod revoke;
pub mod run;
pub mod settings;
mod sim;
pub mod status;
pub mod stop;
pub mod submit;
mod svg;
pub mod tasks;
pub mod token;
pub mod top;
mod trust;
pub mod up;
pub mod use_hub;
pub mod worker;

use crate::answers::Render;
use crate::args::{Arguments, Command, TokenArgument};
use crate::config::KnownHub;
use crate::error::{CliError, Result};
use crate::parts::PartError;
use crate::render::{self, say};
use client::report::{Done, Question, Refusal};
use gleaner_client::START_TIME_MAX;
use gleaner_client::door::{Door, DoorError, Folder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long it may take to answer: it may have to ask the hub, across a slow link.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
/// Longest token.
const TOKEN_BYTES_MAX: u64 = 4096;

/// Runs a subcommand. The process must have a single thread.
pub fn run(arguments: Arguments) -> Result<ExitCode> {
    leave_out()?;
    let done = match arguments.command {
        Command::Up(arguments) => up::run(arguments),
        Command::Hub(arguments) => hub::run(arguments),
        Command::Worker(arguments) => worker::run(arguments),
        Command::Join(arguments) => join::run(arguments),
        Command::Use(arguments) => use_hub::run(arguments),
        Command::Token(arguments) => token::run(arguments),
        Command::Run(arguments) => return run::run(arguments),
        Command::Submit(arguments) => return submit::run(arguments),
        Command::Jobs(arguments) => return jobs::run(arguments),
        Command::Hold(arguments) => jobs::hold(arguments, true),
        Command::Release(arguments) => jobs::hold(arguments, false),
        Command::Priority(arguments) => jobs::priority(arguments),
        Command::Status(arguments) => status::run(arguments),
        Command::Top(arguments) => return top::run(arguments),
        Command::Explain(arguments) => explain::run(arguments),
        Command::Tasks(arguments) => tasks::run(arguments),
        Command::Cancel(arguments) => cancel::run(arguments),
        Command::Drain(arguments) => drain::run(arguments),
        Command::Accounts(arguments) => accounts::run(arguments),
        Command::Limit(arguments) => accounts::limit(arguments),
        Command::Approve(arguments) => approve::run(arguments),
        Command::Revoke(arguments) => revoke::run(arguments),
        Command::Audit(arguments) => approve::audit(arguments),
        Command::Recover(arguments) => recover::run(arguments),
        Command::Trust(arguments) => trust::run(arguments),
        Command::Forecast(arguments) => forecast::run(&arguments),
        Command::Sim(arguments) => sim::run(&arguments),
        Command::Journal(arguments) => return journal::run(arguments),
        Command::Config(arguments) => settings::run(arguments),
        Command::Guests(arguments) => guests::show(&arguments),
        Command::Pause(arguments) => guests::pause(&arguments),
        Command::Resume(arguments) => guests::resume(&arguments),
        Command::Stop(arguments) => stop::run(arguments),
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Bundle(arguments) => bundle::run(&arguments),
        Command::Completions(arguments) => completions::run(arguments),
        Command::Man(arguments) => man::run(arguments),
        Command::Daemon(arguments) => daemon::run(arguments),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// As `$GLEANER_WITHOUT` says, for measurement only, and `$GLEANER_PROTOCOL`, for tests only.
fn leave_out() -> Result {
    if let Some(version) = std::env::var_os("GLEANER_PROTOCOL") {
        crate::parts::be_like(&version.to_string_lossy()).map_err(|error| {
            CliError::environment(format!("GLEANER_PROTOCOL: {error}")).hint("unset GLEANER_PROTOCOL")
        })?;
    }
    let Some(list) = std::env::var_os("GLEANER_WITHOUT") else { return Ok(()) };
    crate::parts::leave_out(&list.to_string_lossy())
        .map_err(|error| CliError::environment(format!("GLEANER_WITHOUT: {error}")).hint("unset GLEANER_WITHOUT"))
}

/// Asks the client daemon, which is started if it does not run.
pub(crate) fn ask<T: DeserializeOwned>(question: &Question) -> Result<T> {
    let open = || Door::open_or_start(&Folder::of_environment(), Instant::now() + START_TIME_MAX);
    let json = encode(question)?;
    // A daemon that was just ending (`gleaner use` restarts it) takes no question; all but one do no harm when asked twice.
    match open()?.ask(json.clone(), ANSWER_TIME_MAX) {
        Err(DoorError::NotListening | DoorError::System { .. }) if !matches!(question, Question::Recover { .. }) => {
            understand(&open()?.ask(json, ANSWER_TIME_MAX)?)
        }
        asked => understand(&asked?),
    }
}

/// Has the daemon at the other end of `door` end: `question` is that. One that is gone before it answers was ending.
fn end_daemon(door: &mut Door, question: &Question) -> Result<Done> {
    match door.ask(encode(question)?, ANSWER_TIME_MAX) {
        Err(DoorError::NotListening | DoorError::System { .. }) => Ok(Done { note: None }),
        answer => understand(&answer?),
    }
}

fn encode(question: &Question) -> Result<Vec<u8>> {
    serde_json::to_vec(question).map_err(|error| CliError::internal(error.to_string()))
}

fn understand<T: DeserializeOwned>(answer: &[u8]) -> Result<T> {
    if let Ok(refusal) = serde_json::from_slice::<Refusal>(answer) {
        return Err(refusal.error.into());
    }
    serde_json::from_slice(answer).map_err(|error| {
        CliError::internal(format!("the client daemon's answer cannot be read: {error}"))
            .hint("`gleaner stop`, then try again: the daemon may be of another version")
    })
}

/// Asks, and prints the answer as text or JSON.
fn ask_and_print<T: DeserializeOwned + Serialize + Render>(question: &Question, json: bool) -> Result {
    print_answer(&ask::<T>(question)?, json)
}

/// Prints an answer as text or JSON.
fn print_answer<T: Serialize + Render>(answer: &T, json: bool) -> Result {
    if json { render::print_json(answer) } else { render::print(&answer.render_in(render::columns())) }
}

/// The token that was given: from a file, from standard input for `-`, or as an argument, which others can see.
fn token_of(argument: &TokenArgument) -> Result<String> {
    match (&argument.token_file, &argument.token) {
        (Some(file), _) => {
            let read = File::open(file).and_then(first_line);
            let text =
                read.map_err(|error| CliError::user(format!("reading the token from {}: {error}", file.display())))?;
            non_empty(&text, &format!("{} holds no token", file.display()))
        }
        (None, Some(text)) => token_text(text),
        (None, None) => token_text("-"),
    }
}

/// The same of a word, which is `-` for standard input.
fn token_text(argument: &str) -> Result<String> {
    if argument != "-" {
        say("a token in arguments can be seen by other users of this machine; `-` reads it from standard input");
        return Ok(argument.to_owned());
    }
    let read = first_line(std::io::stdin().lock());
    let text = read.map_err(|error| CliError::user(format!("reading the token from standard input: {error}")))?;
    non_empty(&text, "no token came on standard input")
}

/// The first line that is not blank: who pastes a token ends it by the return key.
fn first_line(from: impl Read) -> std::io::Result<String> {
    let mut from = BufReader::new(from.take(TOKEN_BYTES_MAX));
    let mut line = String::new();
    while line.trim().is_empty() {
        line.clear();
        if from.read_line(&mut line)? == 0 {
            break;
        }
    }
    Ok(line.trim().to_owned())
}

fn non_empty(text: &str, none: &str) -> Result<String> {
    match text {
        "" => Err(CliError::user(none).hint("gleaner token | ssh HOST gleaner join -")),
        token => Ok(token.to_owned()),
    }
}

/// What a part says went wrong.
fn part_failed(error: PartError) -> CliError {
    let message = error.to_string();
    let hint = match message.contains(&std::io::Error::from_raw_os_error(libc::EADDRINUSE).to_string()) {
        true => "another program has it (`ss -lnp` shows which): end that, or choose another by --listen",
        false => "`gleaner doctor` shows what is missing",
    };
    CliError::environment(message).hint(hint)
}

/// The hub as text: its first address.
fn hub_name(hub: &KnownHub) -> &str {
    hub.addresses.first().map_or("(no address)", String::as_str)
}

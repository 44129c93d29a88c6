//! Where a bundle's entries come from: what can be asked, the ends of logs, settings and variables.

use super::{Body, Entry, machine};
use crate::args::Bundle;
use crate::commands::daemon::in_a_line;
use crate::commands::{doctor, guests};
use crate::config::{Config, Surroundings};
use crate::error::{CliError, Result};
use base::path::shown_lines;
use client::report::Question;
use gleaner_client::door::start::LOG_NAME;
use gleaner_client::door::{Door, DoorError, Folder};
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long one answer may take, and all of them together.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
const ANSWERS_TIME_MAX: Duration = Duration::from_secs(30);
/// How long the system's journal may take, and each wait for a hub's metrics.
const JOURNAL_TIME_MAX: Duration = Duration::from_secs(10);
const METRICS_TIME_MAX: Duration = Duration::from_secs(2);
/// As much of the end of a log is looked at.
const LOG_BYTES_MAX: u64 = 8 << 20;
/// And as much of metrics.
const METRICS_BYTES_MAX: u64 = 1 << 20;
/// Lines of the audit log.
const AUDIT_LINES: u32 = 1000;
/// The units that packages install.
const UNITS: [&str; 4] = ["-u", "gleaner-hub.service", "-u", "gleaner-worker.service"];
/// Variables whose values tell something, beside gleaner's own.
const VARIABLES: [&str; 14] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "TZ",
    "TERM",
    "TMPDIR",
    "RUST_LOG",
    "RUST_BACKTRACE",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
    "XDG_CONFIG_HOME",
];

/// All entries.
pub fn gather(arguments: &Bundle, around: &Surroundings, config: Result<Config>) -> Vec<Entry> {
    let state = config.as_ref().ok().map(|config| config.state_dir.value.clone());
    let metrics = config.as_ref().ok().and_then(|config| config.metrics.as_ref()).map(|metrics| metrics.value);
    let json = |name: &str, value| (name.to_owned(), Body::Json(value));
    let text = |name: &str, text| (name.to_owned(), Body::Text(text));
    let findings = doctor::judge(&doctor::look());
    let mut entries = vec![
        json("versions.json", machine::versions()),
        json("doctor.json", json!({ "findings": findings })),
        json("config.json", settings(config)),
        json("environment.json", variables(around)),
        text("kernel.txt", machine::kernel(state.as_deref())),
    ];
    entries.extend(answers().into_iter().map(|(name, value)| json(name, value)));
    let question = json!({"ask": "guests"});
    let guests = guests::told_by_worker(arguments.state.as_ref(), &question).unwrap_or_else(|error| error.json());
    entries.push(json("guests.json", guests));
    if let Some(state) = &state {
        entries.push(json("processes.json", machine::processes(state)));
        entries.push(text("state.txt", machine::files(state)));
    }
    let lines = arguments.lines as usize;
    entries.extend(logs(state.as_deref(), lines).into_iter().map(|(name, log)| text(&name, log)));
    entries.extend(metrics.map(|address| text("metrics.txt", scraped(address))));
    entries
}

fn settings(config: Result<Config>) -> Value {
    match config {
        Ok(config) => config.json(),
        // Of a line that cannot be understood it is not known what in it is secret.
        Err(error) => CliError { message: in_a_line(&error.message), ..error }.json(),
    }
}

/// Names of all variables, values of those that are known to hold no secret.
fn variables(around: &Surroundings) -> Value {
    let is_shown = |name: &&String| name.starts_with("GLEANER_") || VARIABLES.contains(&name.as_str());
    let (shown, others): (Vec<_>, Vec<_>) = around.variables.keys().partition(is_shown);
    let shown: Map<_, _> = shown.into_iter().map(|name| (name.clone(), json!(around.variables[name]))).collect();
    json!({"shown": shown, "names_of_others": others})
}

/// What the client daemon answers; it is not started for that.
fn answers() -> Vec<(&'static str, Value)> {
    let questions = [
        ("status.json", Question::Status),
        ("top.json", Question::Overview),
        ("tasks.json", Question::Tasks),
        ("last-task.json", Question::Explain { task: None }),
        ("jobs.json", Question::Jobs { all: false }),
        ("kept.json", Question::Kept),
        ("audit.json", Question::Audit { count: AUDIT_LINES }),
    ];
    let give_up = Instant::now() + ANSWERS_TIME_MAX;
    let mut is_silent = false;
    let answer = |(name, question)| {
        if is_silent || Instant::now() >= give_up {
            return (name, json!({"error": "not asked: an earlier question was not answered in time"}));
        }
        let answered = ask(&question);
        is_silent = matches!(answered, Err(DoorError::Silent(_) | DoorError::Stopped(_)));
        (name, answered.unwrap_or_else(|error| CliError::from(error).json()))
    };
    questions.into_iter().map(answer).collect()
}

fn ask(question: &Question) -> Result<Value, DoorError> {
    let mut door = Door::open(&Folder::of_environment())?;
    let question = serde_json::to_vec(question).unwrap_or_default();
    let answer = door.ask(question, ANSWER_TIME_MAX)?;
    Ok(serde_json::from_slice(&answer).unwrap_or_else(|error| json!({"error": format!("not understood: {error}")})))
}

/// The ends of the logs that there are.
fn logs(state: Option<&Path>, lines: usize) -> Vec<(String, String)> {
    let runtime = Folder::of_environment().path().join(LOG_NAME);
    let of_state = state.map(|state| [state.join("gleaner.log"), state.join("client/race/log")]);
    let files = of_state.into_iter().flatten().zip(["gleaner.log", "race.log"]).chain([(runtime, LOG_NAME)]);
    let found = files.filter_map(|(path, name)| match end_of_log(&path, lines) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        end => Some((format!("logs/{name}"), end.unwrap_or_else(|error| format!("({}: {error})\n", path.display())))),
    });
    let journal = journal(lines).map(|text| ("logs/journal.log".to_owned(), text));
    found.chain(journal).collect()
}

/// The last lines of a file. It is read without waiting, whatever it is.
fn end_of_log(path: &Path, lines: usize) -> std::io::Result<String> {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(path, flags, rustix::fs::Mode::empty())?);
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(std::io::Error::other("not a file"));
    }
    file.seek(SeekFrom::Start(found.len().saturating_sub(LOG_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(LOG_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(last_lines(&String::from_utf8_lossy(&bytes), lines))
}

fn last_lines(text: &str, lines: usize) -> String {
    let text = super::redact::without_colours(text);
    let end = text.trim_end_matches('\n');
    let from = end.rmatch_indices('\n').nth(lines - 1).map_or(0, |(at, _)| at + 1);
    shown_lines(&text[from..]).into_owned()
}

/// What the units of this machine have logged, where systemd keeps that.
fn journal(lines: usize) -> Option<String> {
    if !Path::new("/run/systemd/system").exists() {
        return None;
    }
    let count = lines.to_string();
    let arguments = [&["--no-pager", "--quiet", "--output=short-iso", "--lines", &count][..], &UNITS].concat();
    let mut process = Command::new("journalctl");
    process.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = process.spawn().ok()?;
    let mut out = process.stdout.take()?.take(LOG_BYTES_MAX);
    let (says, said) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = out.read_to_end(&mut bytes);
        // Nobody waits any more if this fails.
        let _ = says.send(bytes);
    });
    let bytes = said.recv_timeout(JOURNAL_TIME_MAX);
    // It has ended, or is to.
    let _ = process.kill();
    let _ = process.wait();
    let _ = reader.join();
    let text = bytes.map(|bytes| last_lines(&String::from_utf8_lossy(&bytes), lines));
    Some(text.unwrap_or_else(|_| format!("(journalctl took more than {} s)\n", JOURNAL_TIME_MAX.as_secs())))
}

/// The hub's metrics.
fn scraped(address: SocketAddr) -> String {
    let scrape = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, METRICS_TIME_MAX)?;
        stream.set_read_timeout(Some(METRICS_TIME_MAX))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut page = Vec::new();
        stream.take(METRICS_BYTES_MAX).read_to_end(&mut page)?;
        let page = String::from_utf8_lossy(&page).into_owned();
        Ok(page.split_once("\r\n\r\n").map_or(page.clone(), |(_, body)| body.to_owned()))
    };
    scrape().unwrap_or_else(|error| format!("({address}: {error})\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_is_taken_and_no_pipe_is_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        std::fs::write(&log, "one\ntwo\n\u{1b}[31mthree\u{1b}[0m\u{7}\n").expect("written");
        assert_eq!(end_of_log(&log, 2).expect("read"), "two\nthree\\u{7}\n");
        assert_eq!(end_of_log(&log, 9).expect("read").lines().count(), 3);
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .expect("a pipe");
        assert!(end_of_log(&pipe, 9).is_err());
    }

    #[test]
    fn values_of_variables_are_shown_by_name_alone() {
        let variables = [("GLEANER_LOG", "debug"), ("MY_OWN", "value"), ("HOME", "/h")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let around = Surroundings { variables: variables.into(), ..Surroundings::default() };
        let told = super::variables(&around);
        assert_eq!(told["shown"], json!({"GLEANER_LOG": "debug", "HOME": "/h"}));
        assert_eq!(told["names_of_others"], json!(["MY_OWN"]));
    }
}

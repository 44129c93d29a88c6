//! `gleaner guests`, `gleaner pause`, `gleaner resume`: what runs on this machine for others, and its owner's word on it.

use crate::args::{Guests, Pause};
use crate::config::{Config, Flags, Surroundings};
use crate::error::{CliError, Result};
use crate::render::{Table, age, bytes, print, print_json};
use serde_json::{Value, json};
use std::path::PathBuf;
use worker::host::control::ask;

/// Shows the guests of this machine, and how they are kept.
pub fn show(arguments: &Guests) -> Result {
    let told = told_by_worker(arguments.state.as_ref(), &json!({"ask": "guests"}))?;
    if arguments.json { print_json(&told) } else { print(&text(&told)) }
}

/// Has all guests of this machine rest.
pub fn pause(arguments: &Pause) -> Result {
    let for_s = arguments.time.map(|time| time.as_secs_f64());
    let question = json!({"ask": "pause", "for_s": for_s, "evict": arguments.evict});
    let told = told_by_worker(arguments.guests.state.as_ref(), &question)?;
    if told["quiet"] != true {
        return Err(CliError::environment("guests have been told to end, for they cannot be frozen here")
            .hint("`gleaner doctor` says what is missing; `gleaner guests` shows what still runs"));
    }
    if arguments.guests.json {
        return print_json(&told);
    }
    let until = arguments.time.map_or("until `gleaner resume`".into(), |time| format!("for {}", age(time.as_secs())));
    let count = told["guests"].as_array().map_or(0, Vec::len);
    let took = told["took_ms"].as_f64().unwrap_or(0.0);
    print(&format!("{} here {until}; {}\n", guests_rest(count), stopped(told["frozen"] == true, took)))
}

/// How they have stopped. Who waits within the kernel cannot be frozen before it is answered.
fn stopped(is_frozen: bool, took_ms: f64) -> String {
    match is_frozen {
        true => format!("stopped within {took_ms:.1} ms"),
        false => format!(
            "none computes any more, after {took_ms:.1} ms, but not all are frozen: one waits for a file of its client, 30 s at most, or for \
             a processor, and is frozen as soon as it would go on"
        ),
    }
}

fn guests_rest(count: usize) -> String {
    match count {
        0 => "no guest runs".into(),
        1 => "1 guest rests".into(),
        _ => format!("{count} guests rest"),
    }
}

/// Has the guests of this machine go on.
pub fn resume(arguments: &Guests) -> Result {
    let told = told_by_worker(arguments.state.as_ref(), &json!({"ask": "resume"}))?;
    if arguments.json { print_json(&told) } else { print(&text(&told)) }
}

/// What the worker of this machine answers.
pub(super) fn told_by_worker(state: Option<&PathBuf>, question: &Value) -> Result<Value> {
    let flags = Flags { state_dir: state.cloned(), ..Flags::default() };
    let config = Config::load(&Surroundings::of_process(), flags)?;
    let folder = config.state_dir.value.join("worker");
    let told = ask(&folder, question).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => {
            CliError::environment(format!("no worker runs here with state in {}", config.state_dir.value.display()))
                .hint("--state names another folder; `gleaner up` or `gleaner worker` starts one")
        }
        std::io::ErrorKind::PermissionDenied => CliError::environment(format!("{}: {error}", folder.display()))
            .hint("the worker is another account's: ask as that one, or as root"),
        _ => CliError::environment(format!("asking the worker: {error}")).hint("is it stopped, or of another version?"),
    })?;
    match told["error"].as_str() {
        None => Ok(told),
        Some(why) => {
            Err(CliError::environment(why.to_owned()).hint(told["hint"].as_str().unwrap_or_default().to_owned()))
        }
    }
}

fn text(told: &Value) -> String {
    let words = |value: &Value| {
        let words = value.as_array().into_iter().flatten().filter_map(Value::as_str);
        words.collect::<Vec<_>>().join("; ")
    };
    let size = |value: &Value| bytes(value.as_u64().unwrap_or(0));
    let seconds = |value: &Value| age(value.as_f64().unwrap_or(0.0) as u64);
    let mut table = Table::new(&["TASK", "PROGRAM", "HERE FOR", "CPU TIME", "MEMORY", "CACHE"]);
    for guest in told["guests"].as_array().into_iter().flatten() {
        let cell = |name: &str| guest[name].as_str().unwrap_or_default().to_owned();
        table.row(vec![
            cell("task"),
            cell("program"),
            seconds(&guest["since_s"]),
            seconds(&guest["cpu_s"]),
            size(&guest["memory_bytes"]),
            size(&guest["cache_bytes"]),
        ]);
    }
    let state = match (told["rests"].as_bool(), told["aside"].as_bool()) {
        (Some(true), _) => format!("guests rest: {}", words(&told["reasons"])),
        (_, Some(true)) => "guests stand aside while the owner has work for all CPUs".into(),
        _ if told["cpus"] == 1 => "guests may run on 1 CPU".into(),
        _ => format!("guests may run on {} CPUs", told["cpus"]),
    };
    let owner = match told["owner_s"].as_f64() {
        Some(here_s) => format!("here for {}", age(here_s as u64)),
        None => "away".into(),
    };
    let memory = &told["memory"];
    format!(
        "{state}\nowner: {owner}, uses {:.0}% of the processors; {} guests have made room so far\n\
         memory: guests hold {} and {} of cache, at most {}; {} stay free\n\n{}",
        told["owner_used"].as_f64().unwrap_or(0.0) * 100.0,
        told["evicted"],
        size(&memory["held_bytes"]),
        size(&memory["cache_bytes"]),
        size(&memory["limit_bytes"]),
        size(&memory["reserve_bytes"]),
        table.text("no guest runs here")
    )
}

//! Two machines with one key, as after a state folder was copied: each would be taken for the other.

use super::{Finding, Verdict, finding};
use crate::config::Config;
use crate::machine;
use client::report::{Question, Status};
use gleaner_client::door::{Door, Folder};
use std::time::Duration;

/// How long the client daemon, and the hub that it asks, may take.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(3);
/// What a hub says of such a worker.
const USED_TWICE: &str = "key used twice";

/// What speaks for a copied key: a folder that was made on another machine, or what the hub has seen.
pub fn look(config: Option<&Config>) -> Option<String> {
    let of_folders = config.and_then(|config| {
        let parts = ["worker", "hub", "client"].map(|part| config.state_dir.value.join(part));
        let copied = parts.iter().find(|folder| machine::is_of_another(folder))?;
        Some(format!("{} was made on another machine, by its machine-id", copied.display()))
    });
    of_folders.or_else(seen_by_hub)
}

/// Asks the client daemon, if one runs.
fn seen_by_hub() -> Option<String> {
    let mut door = Door::open(&Folder::of_environment()).ok()?;
    let question = serde_json::to_vec(&Question::Status).ok()?;
    let status: Status = serde_json::from_slice(&door.ask(question, ANSWER_TIME_MAX).ok()?).ok()?;
    let twin = status.workers.into_iter().find(|worker| worker.state.contains(USED_TWICE))?;
    Some(format!("the hub was greeted by two machines with the key of the worker {}", twin.name))
}

/// Says so.
pub fn judge(copied: Option<&str>) -> Option<Finding> {
    let remedy = "if both machines are in use: remove the key (worker/worker.key, client/client.key) and the file `machine` beside it on the copy, and join \
                  anew; if this one replaced the other, remove the file `machine` only";
    copied.map(|found| finding("keys", &["worker", "client"], Verdict::Weak, found.into(), remedy))
}

//! What a worker asks: it is told of its own tasks, while they run, as much as they may need, and of nothing else.

use super::worker::QUESTIONS;
use super::{Attacker, SILENCE_BOUND, run_at_liar, serves};
use crate::contract::secrets::armoured;
use crate::error::{Context as _, Result};
use crate::pool::Pool;
use crate::process::wait_for;
use crate::scenario::END_BOUND;
use std::time::Instant;

/// A worker is told so many paths that a task with a small view is not about.
const PATHS_MAX: usize = 2_500;

/// It asks for more paths than any task needs, for other views and clients, and when its task has ended.
pub(super) fn asked(pool: &mut Pool) -> Result<Vec<String>> {
    let liar = Attacker::worker(pool, "asks", "site")?;
    let secret = pool.scratch.path().join("client/home/.ssh/id_ed25519");
    let key = &armoured("OPENSSH PRIVATE KEY");
    std::fs::create_dir_all(secret.parent().unwrap_or(&secret)).context(|| "cannot make a folder".to_owned())?;
    std::fs::write(&secret, key).context(|| "cannot write a key".to_owned())?;
    let name = secret.to_string_lossy().into_owned();
    let words = ["true", &name, key];
    // The client learns within seconds that there is a worker that is not its own.
    let (until, mut outcome) = (Instant::now() + END_BOUND, run_at_liar(pool, &liar, "asks", &words)?);
    while liar.launches() == 0 && Instant::now() < until {
        outcome = run_at_liar(pool, &liar, "asks", &words)?;
    }
    let is_done = || liar.log().contains("\nasked").then_some(());
    let mut wrong = Vec::new();
    if wait_for(SILENCE_BOUND, is_done).is_none() {
        wrong.push(format!("it did not come to its end: {}, {}", outcome.ended, outcome.said()));
    }
    let log = liar.log();
    let said = |what: &str| log.lines().find_map(|line| line.strip_prefix(what)).map(str::to_owned);
    let count = |what: &str| said(&format!("answered {what}: ")).and_then(|count| count.parse::<usize>().ok());
    if !count("own").is_some_and(|told| (1..=PATHS_MAX.min(QUESTIONS)).contains(&told)) {
        wrong.push(format!("for its own task: {:?} of {QUESTIONS} paths", count("own")));
    }
    for refused in ["deep", "view", "client", "after"] {
        if count(refused) != Some(0) {
            wrong.push(format!("{refused}: {:?} paths", count(refused)));
        }
    }
    // Kind 1 is denied.
    let told = said("secret: ").unwrap_or_default();
    if !["Ok(([1], 0)), 0 bytes", "Ok(([], 0)), 0 bytes"].contains(&told.as_str()) {
        wrong.push(format!("of a private key: {told:?}"));
    }
    for name in ["launch", "ask", "token", "jobs", "host", "collect", "drive"] {
        wrong.extend(said(&format!("answered {name}: ")).map(|bytes| format!("a stream `{name}`: {bytes} bytes")));
    }
    let log = std::fs::read_to_string(&pool.hub.log).unwrap_or_default();
    if !log.contains("more than the task's budget allows") {
        wrong.push("the hub's log does not tell what was refused".to_owned());
    }
    wrong.extend(serves(pool)?);
    Ok(wrong)
}

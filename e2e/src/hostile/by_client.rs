//! What must hold against a hostile client.

use super::client::{CROWD, FOLDERS, VIEWS};
use super::{Attacker, SILENCE_BOUND, serves};
use crate::contract::guests::{owner, told};
use crate::error::{Context as _, Result};
use crate::pool::Pool;
use crate::process::wait_for;
use crate::scenario::{END_BOUND, descendants, folder};

/// Most connections of one key.
const CONNECTIONS_MAX: usize = 64;

/// Launches that name what leads out of the sandbox do not start; a plain one does.
pub(super) fn paths(pool: &mut Pool) -> Result<Vec<String>> {
    let client = Attacker::client(pool, "paths", "")?;
    let mut wrong = client.is_done();
    if !client.said("plain: ").is_some_and(|how| how.starts_with("started, exited 0") && how.contains("ran")) {
        wrong.push(format!("a plain launch: {:?}", client.said("plain: ")));
    }
    let folders = FOLDERS.iter().map(|folder| format!("folder {folder}: "));
    let others =
        ["stdin /proc/self/fd/9: ", "stdin /proc/1/environ: ", "stdin /proc/self/root/etc/shadow: ", "stdin ..: "];
    let programs = ["program /proc/self/exe: ", "program /proc/1/exe: ", "program /proc/self/fd/9: "];
    for what in folders.chain(others.into_iter().chain(programs).map(str::to_owned)) {
        if !client.said(&what).is_some_and(|how| how.starts_with("failed")) {
            wrong.push(format!("{what}{:?}", client.said(&what)));
        }
    }
    wrong.extend(serves(pool)?);
    Ok(wrong)
}

/// It tells nothing of its files: its task ends, and the owner of the worker is told how guests have stopped meanwhile.
pub(super) fn mute(pool: &mut Pool) -> Result<Vec<String>> {
    let client = Attacker::client(pool, "mute", "")?;
    let mut wrong = Vec::new();
    if wait_for(END_BOUND, || client.log().contains("asked").then_some(())).is_none() {
        wrong.push(format!("nothing was asked: {}", client.log()));
    }
    let paused = told(&owner(pool, 0, &["pause"])?);
    let frozen = group_is_frozen(pool);
    if paused["quiet"] != true || frozen.is_some_and(|frozen| paused["frozen"] != frozen) {
        wrong.push(format!(
            "`pause` says quiet {}, frozen {}: the group is {frozen:?}",
            paused["quiet"], paused["frozen"]
        ));
    }
    owner(pool, 0, &["resume"])?.expect_ok("gleaner resume")?;
    wrong.extend(client.is_done());
    let ended = client.said("mute: ").unwrap_or_default();
    if !ended.contains("failed") || ended.contains("started") {
        wrong.push(format!("its task: {ended}"));
    }
    println!("measured: a client that does not answer: its task: {ended}");
    wrong.extend(serves(pool)?);
    Ok(wrong)
}

/// What the kernel says of the group of guests below the first worker.
fn group_is_frozen(pool: &Pool) -> Option<bool> {
    let group = descendants(pool.workers[0].pid().as_raw_nonzero().get()).into_iter().find_map(|pid| {
        let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?.split('/').next()?.to_owned();
        group.starts_with("gleaner-").then_some(group)
    })?;
    let read = |root: &str| std::fs::read_to_string(format!("{root}/{group}/cgroup.events")).ok();
    let events = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].into_iter().find_map(read)?;
    Some(events.lines().any(|line| line == "frozen 1"))
}

/// It asks what is for the owner, and for contents that another client has shown the hub.
pub(super) fn questions(pool: &mut Pool) -> Result<Vec<String>> {
    let contents = "what only one client has shown";
    let place = folder(pool, "questions")?;
    std::fs::write(place.join("shown"), contents).context(|| "cannot write a file".to_owned())?;
    let read = pool.client.script(&place, "$R cat shown", "remrun --no-local --tag worker0", END_BOUND)?;
    read.expect_ok("reading a file elsewhere")?;
    let client = Attacker::client(pool, "questions", contents)?;
    let mut wrong = client.is_done();
    for what in ["token", "approve", "drain", "revoke", "audit", "none"] {
        let said = client.said(&format!("question {what}: "));
        if said.as_deref() != Some("refused") {
            wrong.push(format!("{what}: {said:?}"));
        }
    }
    let is_tried = client.said("stealing: ").is_some_and(|how| how.contains("ran"));
    if client.said("stolen: ").as_deref() != Some("nothing") || !is_tried {
        wrong.push(format!("another client's contents, by their name: {:?}", client.said("stealing: ")));
    }
    if client.said("contents: ").as_deref() != Some("0 bytes") {
        wrong.push(format!("another client's contents: {:?}", client.said("contents: ")));
    }
    wrong.extend(serves(pool)?);
    Ok(wrong)
}

/// A greeting of a megabyte is refused, and does not use up the token; a name is cut and printable.
pub(super) fn greets(pool: &mut Pool) -> Result<Vec<String>> {
    let client = Attacker::client(pool, "greets", "")?;
    let mut wrong = client.is_done();
    for (what, how) in [("large: ", "refused"), ("small: ", "let in")] {
        if client.said(what).as_deref() != Some(how) {
            wrong.push(format!("{what}{:?}", client.said(what)));
        }
    }
    for words in [&["status"][..], &["audit"], &["audit", "--json"]] {
        let outcome = pool.owner.gleaner(words)?;
        wrong.extend(super::lies::taken(&outcome.stdout).map(|line| format!("{}: {line}", words.join(" "))));
    }
    wrong.extend(serves(pool)?);
    Ok(wrong)
}

/// A task is told of no signal that there is not, and of others no worse for their number.
pub(super) fn signals(pool: &mut Pool) -> Result<Vec<String>> {
    let client = Attacker::client(pool, "signals", "")?;
    let mut wrong = client.is_done();
    if client.said("signals: ").as_deref() != Some("started, exited 0: \"ran\\n\"") {
        wrong.push(format!("its task: {:?}", client.said("signals: ")));
    }
    wrong.extend(serves(pool)?);
    Ok(wrong)
}

/// Whose session a launch is of is known by its connection, whatever it says.
pub(super) fn session(pool: &mut Pool) -> Result<Vec<String>> {
    let liar = Attacker::worker(pool, "ends-twice", "own")?;
    let contents = "what only one client has shown";
    let place = folder(pool, "session")?;
    std::fs::write(place.join("shown"), contents).context(|| "cannot write a file".to_owned())?;
    let read = pool.client.script(&place, "$R cat shown", "remrun --no-local --tag worker0", END_BOUND)?;
    read.expect_ok("reading a file elsewhere")?;
    super::run_at_liar(pool, &liar, "session", &["true"])?;
    let number = liar.said("client ").unwrap_or_default();
    let client = Attacker::client(pool, "session", &number)?;
    let mut wrong = client.is_done();
    if number.is_empty() {
        wrong.push(format!("no number of a session: {}", liar.log()));
    }
    for view in 1..=VIEWS {
        let said = client.said(&format!("view {view}: "));
        if !said.as_ref().is_some_and(|said| said.starts_with("failed") && !said.contains(contents)) {
            wrong.push(format!("view {view} of another's session: {said:?}"));
        }
    }
    let again = pool.client.script(&place, "$R cat shown", "remrun --no-local --tag worker0", END_BOUND)?;
    if again.text() != contents {
        wrong.push(format!("its owner afterwards: {}, {}", again.ended, again.said()));
    }
    wrong.extend(serves(pool)?);
    Ok(wrong)
}

/// One key has so many connections, and others are let in all the same.
pub(super) fn crowd(pool: &mut Pool) -> Result<Vec<String>> {
    let client = Attacker::client(pool, "crowd", "")?;
    let mut wrong = client.is_done();
    let count = client.said("connections: ").and_then(|count| count.parse::<usize>().ok());
    if !count.is_some_and(|count| (1..=CONNECTIONS_MAX).contains(&count)) {
        wrong.push(format!("{count:?} of {CROWD} connections"));
    }
    wrong.extend(serves(pool)?);
    Ok(wrong)
}

impl Attacker {
    /// What is wrong if it does not come to its end.
    pub(super) fn is_done(&self) -> Vec<String> {
        let done = wait_for(SILENCE_BOUND * 2, || self.log().lines().any(|line| line == "done").then_some(()));
        if done.is_some() { Vec::new() } else { vec![format!("it does not come to its end: {}", self.log())] }
    }
}

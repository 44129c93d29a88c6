//! Runs a case locally and remotely, at the same path, and compares everything that can be seen.

use crate::case::Case;
use crate::client::Client;
use crate::error::{Context, Result};
use crate::process::{Ended, Outcome, Run, tail};
use crate::scratch::remove_all;
use crate::tree::{self, Side, Tree, Window};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

/// One side's result.
struct Half {
    before: Tree,
    after: Tree,
    outcome: Outcome,
}

/// Runs `case` in `place` (which must not exist) on both sides. Returns what differs, in words; nothing if all agree.
/// On agreement `place` is removed, else the trees stay there as `local` and `remote`.
pub fn compare(case: &Case, place: &Path, client: &Client) -> Result<Vec<String>> {
    std::fs::create_dir_all(place).at("create", place)?;
    own(place, client)?;
    let local = half(case, place, client, false)?;
    if local.outcome.ended != case.status {
        let said = tail(&[local.outcome.stdout.as_slice(), local.outcome.stderr.as_slice()].concat(), 10);
        let (want, got) = (case.status, local.outcome.ended);
        return Ok(vec![format!("the local run itself ended with {got}, not {want}: the case is wrong here\n{said}")]);
    }
    let remote = half(case, place, client, true)?;
    let found = judge(case, &local, &remote);
    if found.is_empty() {
        remove_all(place)?;
    }
    Ok(found)
}

fn half(case: &Case, place: &Path, client: &Client, remotely: bool) -> Result<Half> {
    let work = place.join("work");
    let since = SystemTime::now();
    std::fs::create_dir(&work).at("create", &work)?;
    own(&work, client)?;
    if !case.setup.is_empty() {
        let what = format!("setup of {:?}", case.name);
        client.script(&work, &case.setup, "", Duration::from_secs(60))?.expect_ok(&what)?;
    }
    tree::settle_times(&work, since)?;
    let before = Tree::read(&work)?;
    let mut command = command(case, client, remotely);
    command.current_dir(&work);
    client.dress(&mut command);
    let run =
        Run { command, input: case.input.clone(), streams: case.streams, typed: case.typed.clone(), limit: case.limit };
    let outcome = run.run()?;
    let after = Tree::read(&work)?;
    let saved = place.join(if remotely { "remote" } else { "local" });
    std::fs::rename(&work, &saved).at("rename", &work)?;
    Ok(Half { before, after, outcome })
}

fn own(path: &Path, client: &Client) -> Result<()> {
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).at("chmod", path)?;
    if client.user != 0 {
        std::os::unix::fs::chown(path, Some(client.user), Some(client.user)).at("chown", path)?;
    }
    Ok(())
}

fn command(case: &Case, client: &Client, remotely: bool) -> Command {
    let options: &[&str] = if case.local_allowed { &[] } else { &["--no-local"] };
    if !remotely || !case.whole() {
        let mut prefix = String::new();
        if remotely {
            prefix = format!("{} {}", client.remrun.display(), options.join(" "));
        }
        let mut command = Command::new(&case.shell);
        command.arg("-c").arg(case.run.replace("$R", prefix.trim_end()));
        return command;
    }
    let mut command = Command::new(&client.remrun);
    command.args(options).arg(&case.shell).arg("-c").arg(&case.run);
    command
}

fn judge(case: &Case, local: &Half, remote: &Half) -> Vec<String> {
    let mut found = Vec::new();
    let (here, there) = (&local.outcome, &remote.outcome);
    if there.ended == Ended::TimedOut || (!case.ignore.status && here.ended != there.ended) {
        found.push(format!("ended locally with {}, remotely with {}", here.ended, there.ended));
    }
    if !case.ignore.stdout {
        found.extend(streams("standard output", &here.stdout, &there.stdout, case.ignore.stdout_order));
    }
    if !case.ignore.stderr {
        found.extend(streams("standard error", &here.stderr, &there.stderr, false));
    }
    if let Some(expected) = &case.stdout {
        for (side, outcome) in [("locally", here), ("remotely", there)] {
            if outcome.stdout != expected.as_bytes() {
                found.push(format!("standard output {side} is not what it must be: {:?}", excerpt(&outcome.stdout, 0)));
            }
        }
    }
    let said = found.len();
    if !case.ignore.tree {
        let side = |half: &Half| Window { start: half.outcome.started, end: half.outcome.finished };
        let (here, there) = (
            Side { before: &local.before, after: &local.after, window: side(local) },
            Side { before: &remote.before, after: &remote.after, window: side(remote) },
        );
        found.extend(tree::differences(&here, &there, &case.ignore.mtime));
    }
    if !found.is_empty() && !there.stderr.is_empty() {
        // Before what is left out of a long list.
        found.insert(said, format!("standard error of the remote run:\n{}", tail(&there.stderr, 8)));
    }
    found
}

/// How two streams differ, in words.
pub(crate) fn streams(name: &str, here: &[u8], there: &[u8], any_order: bool) -> Option<String> {
    if here == there || (any_order && sorted(here) == sorted(there)) {
        return None;
    }
    let at = here.iter().zip(there).position(|(a, b)| a != b).unwrap_or(here.len().min(there.len()));
    let (from, sizes) = (at.saturating_sub(40), format!("{} and {} bytes", here.len(), there.len()));
    let (here, there) = (excerpt(here, from), excerpt(there, from));
    Some(format!("{name} differs from byte {at} on ({sizes})\n  locally  {here:?}\n  remotely {there:?}"))
}

fn sorted(bytes: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    lines.sort_unstable();
    lines
}

/// Some bytes from a place on, as text.
pub(crate) fn excerpt(bytes: &[u8], from: usize) -> String {
    let from = from.min(bytes.len());
    String::from_utf8_lossy(&bytes[from..bytes.len().min(from + 160)]).into_owned()
}

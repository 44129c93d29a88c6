//! This machine as a pool of its own, for races: a hub with a worker in a process of its own, `gleaner up` on the loopback interface,
//! with keys and state apart from the user's. Started by the first race; it ends with the daemon, whose end of its standard input
//! it watches.

use crate::daemon::Daemon;
use base::{Digest, NodeId};
use serde::Deserialize;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use wire::Whereabouts;

/// The daemon's own program, which is `gleaner`.
const PROGRAM: &str = "/proc/self/exe";
/// How long its start may take.
const START_TIME_MAX: Duration = Duration::from_secs(20);
/// How long it may take to end.
const STOP_TIME_MAX: Duration = Duration::from_secs(8);
/// After a start that failed it is left alone for this long.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(60);
/// How long the pool of an earlier daemon is waited for, and how often it is looked whether it has ended.
const PREDECESSOR_TIME_MAX: Duration = Duration::from_secs(8);
const PREDECESSOR_PAUSE: Duration = Duration::from_millis(250);
/// What `gleaner up` says if there is one yet.
const HELD: &str = "runs already";
/// Longest line that says that it is ready.
const READY_BYTES_MAX: u64 = 64 << 10;
/// Its settings are in its own folder: these would be another pool's.
const VARIABLES: [&str; 6] =
    ["GLEANER_LISTEN", "GLEANER_HUB", "GLEANER_HUB_KEY", "GLEANER_CPUS", "GLEANER_NAME", "GLEANER_OWN_WORK"];

/// The pool, once there is one.
#[derive(Default)]
pub(crate) struct OwnPool(tokio::sync::Mutex<State>);

#[derive(Default)]
struct State {
    running: Option<(Child, Arc<Daemon>)>,
    failed: Option<(Instant, String)>,
}

/// What `gleaner up --json` says.
#[derive(Deserialize)]
struct Ready {
    addresses: Vec<String>,
    hub_key: String,
}

impl OwnPool {
    /// The daemon `main` towards this pool, which is started if it does not run. The error says why it cannot be had.
    pub async fn daemon(&self, main: &Daemon) -> Result<Arc<Daemon>, String> {
        let mut state = self.0.lock().await;
        if let Some((process, daemon)) = &mut state.running
            && matches!(process.try_wait(), Ok(None))
        {
            return Ok(daemon.clone());
        }
        state.running = None;
        if let Some((at, why)) = &state.failed
            && at.elapsed() < PAUSE_AFTER_FAILURE
        {
            return Err(why.clone());
        }
        let give_up = Instant::now() + PREDECESSOR_TIME_MAX;
        let mut started = start(main).await;
        // The pool of a daemon that has just ended is about to end as well.
        while started.as_ref().is_err_and(|why| why.contains(HELD)) && Instant::now() < give_up {
            tokio::time::sleep(PREDECESSOR_PAUSE).await;
            started = start(main).await;
        }
        match started {
            Ok((process, daemon)) => {
                state.running = Some((process, daemon.clone()));
                Ok(daemon)
            }
            Err(why) => {
                let why = format!("this machine cannot run it in a sandbox: {why}");
                state.failed = Some((Instant::now(), why.clone()));
                Err(why)
            }
        }
    }

    /// Has the pool end. Not waited for: until the daemon has ended no other one can start.
    pub async fn stop(&self) {
        if let Ok(mut state) = self.0.try_lock()
            && let Some((process, daemon)) = state.running.take()
        {
            if let Some(link) = daemon.link() {
                link.close().await;
            }
            drop(process);
        }
    }
}

/// Closes its standard input, which ends it, and waits.
async fn end(process: &mut Child) {
    drop(process.stdin.take());
    if tokio::time::timeout(STOP_TIME_MAX, process.wait()).await.is_err() {
        tracing::warn!("this machine's own pool did not end in time");
        let _ = process.kill().await;
    }
}

async fn start(main: &Daemon) -> Result<(Child, Arc<Daemon>), String> {
    let folder = main.config.state_dir.join("race");
    let mut process = spawn(&folder).map_err(|error| format!("starting it: {error}"))?;
    let ready = tokio::time::timeout(START_TIME_MAX, listen(&mut process)).await;
    let log = folder.join("log");
    let late = || Err(format!("it was not ready within {} s", START_TIME_MAX.as_secs()));
    let hub = ready.unwrap_or_else(|_| late()).and_then(|ready| address(&ready));
    let daemon = hub.and_then(|hub| main.beside(hub, folder.join("client")).map_err(|error| error.to_string()));
    match daemon {
        Ok(daemon) => Ok((process, daemon)),
        Err(why) => {
            end(&mut process).await;
            let said = first_line(&log).unwrap_or(why);
            Err(format!("{said}; its log is {}", log.display()))
        }
    }
}

fn spawn(folder: &Path) -> io::Result<Child> {
    let make = |path: &Path| std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    let (config, runtime) = (folder.join("config"), folder.join("run"));
    [folder, &config, &runtime].into_iter().try_for_each(make)?;
    let log = std::fs::File::options().create(true).write(true).truncate(true).mode(0o600).open(folder.join("log"))?;
    let mut command = Command::new(PROGRAM);
    command.arg0("gleaner").args(["up", "--listen", "127.0.0.1:0", "--name", "here", "--json", "--while-stdin"]);
    for name in VARIABLES {
        command.env_remove(name);
    }
    command.env("GLEANER_STATE_DIR", folder).env("GLEANER_CONFIG_DIR", config).env("GLEANER_RUNTIME_DIR", runtime);
    // A signal that is typed is not for it.
    command.process_group(0).current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
    command.spawn()
}

async fn listen(process: &mut Child) -> Result<Ready, String> {
    let stdout = process.stdout.take().ok_or("it has no standard output")?;
    let mut line = String::new();
    let mut stdout = BufReader::new(stdout.take(READY_BYTES_MAX));
    stdout.read_line(&mut line).await.map_err(|error| error.to_string())?;
    if line.is_empty() {
        return Err("it ended before it was ready".into());
    }
    serde_json::from_str(&line).map_err(|error| format!("what it says is not understood: {error}"))
}

/// What it said first, which is why it ended.
fn first_line(log: &Path) -> Option<String> {
    use std::io::BufRead;
    let file = std::fs::File::open(log).ok()?;
    let mut lines = std::io::BufReader::new(io::Read::take(file, READY_BYTES_MAX)).split(b'\n');
    let line = lines.next()?.ok()?;
    let said = base::path::printable(line.strip_prefix(b"gleaner: ").unwrap_or(&line));
    (!said.is_empty()).then_some(said)
}

fn address(ready: &Ready) -> Result<Arc<Whereabouts>, String> {
    let key = Digest::from_hex(&ready.hub_key).ok_or("it has no key")?;
    let addresses = ready.addresses.iter().filter_map(|address| address.parse().ok()).collect();
    Ok(Arc::new(Whereabouts::new(NodeId(key), addresses)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_says_is_understood() {
        let said = format!(r#"{{"addresses":["127.0.0.1:7433","odd"],"hub_key":"{}","join":"x"}}"#, "0a".repeat(32));
        let hub = address(&serde_json::from_str(&said).expect("it is JSON")).expect("it is an address");
        assert_eq!(hub.addresses(), ["127.0.0.1:7433".parse().expect("an address")]);
        assert!(address(&Ready { addresses: Vec::new(), hub_key: "7".into() }).is_err());
    }

    #[test]
    fn why_it_ended_is_the_first_line_of_its_log() {
        let log = tempfile::NamedTempFile::new().expect("a file");
        assert_eq!(first_line(log.path()), None);
        std::fs::write(log.path(), "gleaner: no ids\nhint: x\n").expect("written");
        assert_eq!(first_line(log.path()).as_deref(), Some("no ids"));
    }
}

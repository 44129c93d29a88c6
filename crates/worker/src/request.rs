//! A launch as it came, checked: what a task is to run, over which files, for whom.

use crate::charge::Task as Charged;
use crate::cpus::Share;
use crate::delta::SAME_CLOCK_NS;
use crate::host::guests::Known;
use crate::ids::Ids;
use crate::sandbox::{
    Failure, Guest, Levers, Order, Priority, STEP_DIRECTORY, STEP_EXECUTE, STEP_MOUNTS, STEP_NETWORK, SandboxServer,
};
use crate::scratch::Scratch;
use crate::streams::Streams;
use base::{Command, Digest, Mount, Output, Stdin, TaskId, Time, ViewUpdate, Watch, WindowSize};
use bytes::Bytes;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::convert;
use wire::message::work::OUTPUT_BYTES_MAX;
use wire::message::{Failed, FailedKind, Launch};
use wire::signed::Streams as Said;

/// A launch, checked.
pub(crate) struct Request {
    /// Its number.
    pub task: TaskId,
    /// Which try this is, from 1.
    pub attempt: u32,
    /// What to run.
    pub command: Command,
    /// Standard input.
    pub stdin: Stdin,
    /// Standard output.
    pub stdout: Output,
    /// Standard error.
    pub stderr: Output,
    /// Size of its terminal.
    pub window: WindowSize,
    /// The step of its view.
    pub update: ViewUpdate,
    /// The client's clock at the launch.
    pub launched: Time,
    /// What its client says to be this machine's owner.
    pub owner_proof: Bytes,
    /// What it is watched for.
    pub watch: Option<Watch>,
    /// How many others of its client waited for a place when it got its own.
    pub waiting: u32,
    /// Number of the program's process; 0: the next one.
    pub first_process: u32,
    /// The client's mounts that it is shown.
    pub mounts: Vec<Mount>,
    /// Lazily bound files that are fetched as a whole.
    pub whole: Vec<Digest>,
    /// Processes that outlive the program and hold its output are waited for.
    pub linger: bool,
    /// The hub keeps its output until its client collects it.
    pub is_kept: bool,
    /// Nanoseconds to add to this machine's clock to get the client's.
    pub to_client_clock: i64,
}

impl Request {
    /// What the sandbox is to start, without bounds.
    pub fn order(
        &self,
        streams: &mut Streams,
        (lower, scratch): (PathBuf, &Scratch),
        (id_base, ids): (u32, &Ids),
        priority: Priority,
    ) -> Order {
        Order {
            command: self.command.clone(),
            lower,
            mounts: self.mounts.clone(),
            scratch: scratch.folder.clone(),
            stdin: std::mem::take(&mut streams.stdin),
            stdout: std::mem::take(&mut streams.stdout),
            stderr: std::mem::take(&mut streams.stderr),
            terminal: self.has_terminal().then_some(self.window),
            id_base,
            ids: ids.clone(),
            cpus: Vec::new(),
            first_process: self.first_process,
            memory_bytes_max: None,
            pids_max: None,
            priority,
            session_nice: 0,
            watch: self.watch.clone(),
            keeps_xattrs_back: false,
        }
    }

    pub fn new(launch: Launch, to_hub_clock: i64) -> Result<Self, wire::Invalid> {
        let missing = || wire::Invalid("a launch without command, input or view");
        Ok(Self {
            task: convert::task(&launch.task)?,
            attempt: launch.attempt,
            command: launch.command.ok_or_else(missing)?.try_into()?,
            stdin: launch.stdin.ok_or_else(missing)?.try_into()?,
            stdout: convert::output(launch.stdout)?,
            stderr: convert::output(launch.stderr)?,
            window: convert::window(launch.window),
            update: launch.view.ok_or_else(missing)?.try_into()?,
            launched: Time(launch.launched),
            owner_proof: launch.owner_proof,
            linger: launch.linger,
            mounts: convert::mounts(launch.mounts)?,
            whole: launch.whole.iter().map(|name| convert::digest(name)).collect::<Result<_, _>>()?,
            watch: launch.watch.map(TryInto::try_into).transpose()?,
            waiting: launch.waiting,
            first_process: launch.first_process,
            is_kept: launch.place.is_some(),
            to_client_clock: to_hub_clock.saturating_sub(launch.client_to_hub),
        })
    }

    /// To whom it is charged, and what of it can be measured.
    pub fn charged(&self, client: u32, scratch: &Scratch, guest: &Guest, levers: Levers, is_guest: bool) -> Charged {
        Charged {
            client,
            folder: scratch.folder.clone(),
            is_on_disk: scratch.is_on_disk(),
            is_guest,
            group: guest.group().to_owned(),
            levers,
            control: Some(guest.control()),
            asked_memory: self.asked_memory(),
        }
    }

    /// The memory of a machine that it has asked for, in bytes.
    pub fn asked_memory(&self) -> u64 {
        u64::from(self.command.needs.memory_mib) << 20
    }

    /// What its machine's owner is told of it.
    pub fn known(&self, sandbox: &SandboxServer, guest: &Guest, scratch: &Scratch, cpus: Arc<Share>) -> Known {
        let group = guest.group().to_owned();
        Known {
            number: 0,
            task: self.task,
            program: base::path::printable(&self.command.argv[0]),
            used_before: sandbox.levers().cpu_used_by(&group).unwrap_or_default(),
            group,
            scratch: scratch.folder.clone(),
            cpus,
            since: Instant::now(),
            is_leaving: false,
        }
    }

    /// What it says is counted for its result's signature: of a job's task, as much as the hub keeps.
    pub fn said(&self) -> Said {
        if self.is_kept { Said::up_to(OUTPUT_BYTES_MAX) } else { Said::default() }
    }

    pub fn has_terminal(&self) -> bool {
        self.stdin == Stdin::Terminal || self.stdout == Output::Terminal || self.stderr == Output::Terminal
    }

    /// Why it cannot run here for the difference between this machine's clock and the client's.
    pub fn clock_trouble(&self) -> Option<String> {
        clock_trouble(&self.command.argv, self.to_client_clock)
    }

    /// The clocks by which its result is dated.
    pub fn clock(&self, started: Time, ended: Time) -> crate::result::Clock {
        crate::result::Clock { started, ended, launched: self.launched, to_client: self.to_client_clock }
    }

    /// What its client is told of a program that could not be started.
    pub fn not_started(&self, failure: &Failure) -> Failed {
        let program = base::path::printable(&self.command.argv[0]);
        if failure.step == STEP_EXECUTE || failure.step == STEP_DIRECTORY {
            let message = match failure.errno {
                // Its client has found the program itself.
                libc::ENOENT if failure.step == STEP_EXECUTE => {
                    format!("{program}: its interpreter or loader is missing")
                }
                _ if failure.step == STEP_EXECUTE => format!("{program}: {}", failure.message),
                _ => format!("{}: {}", base::path::printable(&self.command.cwd), failure.message),
            };
            return Failed { errno: failure.errno, ..FailedKind::Exec.because(message) };
        }
        match failure.step.as_str() {
            STEP_MOUNTS => FailedKind::Unable
                .because(format!("{} cannot be shown it on a worker: {}", failure.step, failure.message)),
            STEP_NETWORK => FailedKind::Unable.because(format!("it gets no network on a worker: {}", failure.message)),
            _ => FailedKind::Trouble.because(format!("the sandbox failed: {failure}")),
        }
    }
}

/// Why a program that notes what times its results have is of no use here: they will have others at the client.
fn clock_trouble(argv: &[Vec<u8>], to_client: i64) -> Option<String> {
    let name = argv.first().map(|name| base::words::last_name(name))?;
    let has = |word: &[u8]| argv.iter().any(|argument| argument == word);
    let notes = match name {
        b"ninja" | b"ninja-build" | b"samu" => true,
        b"cmake" => has(b"--build"),
        b"meson" => has(b"compile"),
        _ => false,
    };
    if !notes || to_client.unsigned_abs() <= SAME_CLOCK_NS.unsigned_abs() {
        return None;
    }
    let (name, seconds) = (base::path::printable(name), Duration::from_nanos(to_client.unsigned_abs()).as_secs_f64());
    Some(format!(
        "{name} notes the times of what it builds, and the worker's clock is {seconds:.2} s off this machine's: have NTP set both"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A launch that can be run, from a client whose clock is as it says.
    fn launch(client_to_hub: i64) -> Launch {
        let command =
            wire::message::Command { argv: vec![b"ninja".to_vec()], cwd: b"/".to_vec(), ..Default::default() };
        Launch {
            task: convert::task_bytes(base::TaskId(1)),
            command: Some(command),
            stdin: Some(Default::default()),
            view: Some(Default::default()),
            client_to_hub,
            ..Launch::default()
        }
    }

    #[test]
    fn a_clock_as_far_off_as_can_be_said_is_only_far_off() {
        for (to_hub, client_to_hub) in [(1, i64::MIN), (-2, i64::MAX), (i64::MIN, i64::MAX), (i64::MAX, i64::MIN)] {
            let request = Request::new(launch(client_to_hub), to_hub).expect("it is sound");
            assert!(request.clock_trouble().is_some_and(|why| why.contains(" s off")));
        }
    }

    #[test]
    fn what_notes_times_wants_the_clocks_to_agree() {
        for (command, off, is_trouble) in [
            ("ninja -C b", SAME_CLOCK_NS, false),
            ("ninja -C b", -SAME_CLOCK_NS - 1, true),
            ("/usr/bin/ninja", 3_000_000_000, true),
            ("cmake --build b", 3_000_000_000, true),
            ("cmake -S .", 3_000_000_000, false),
            ("make", 3_000_000_000, false),
        ] {
            let argv: Vec<Vec<u8>> = command.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            let why = clock_trouble(&argv, off);
            assert_eq!(why.is_some(), is_trouble, "{command} {off}");
            assert!(why.is_none_or(|why| why.contains(" s off")));
        }
    }
}

//! A launch as it came, checked: what a task is to run, over which files, for whom.

use crate::cpus::Share;
use crate::host::guests::Known;
use crate::sandbox::{Failure, Guest, STEP_DIRECTORY, STEP_EXECUTE, STEP_MOUNTS, SandboxServer};
use crate::scratch::Scratch;
use base::{Command, Mount, Output, Stdin, TaskId, Time, ViewUpdate, Watch, WindowSize};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Instant;
use wire::convert;
use wire::message::{Failed, FailedKind, Launch};

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
    /// Number of the program's process; 0: the next one.
    pub first_process: u32,
    /// The client's mounts that it is shown.
    pub mounts: Vec<Mount>,
    /// Processes that outlive the program and hold its output are waited for.
    pub linger: bool,
    /// Nanoseconds to add to this machine's clock to get the client's.
    pub to_client_clock: i64,
}

impl Request {
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
            watch: launch.watch.map(TryInto::try_into).transpose()?,
            first_process: launch.first_process,
            to_client_clock: to_hub_clock - launch.client_to_hub,
        })
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

    pub fn has_terminal(&self) -> bool {
        self.stdin == Stdin::Terminal || self.stdout == Output::Terminal || self.stderr == Output::Terminal
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
                libc::ENOENT if failure.step == STEP_EXECUTE => format!("{program}: command not found"),
                _ if failure.step == STEP_EXECUTE => format!("{program}: {}", failure.message),
                _ => format!("{}: {}", base::path::printable(&self.command.cwd), failure.message),
            };
            return Failed { errno: failure.errno, ..FailedKind::Exec.because(message) };
        }
        if failure.step == STEP_MOUNTS {
            return FailedKind::Unable
                .because(format!("{} cannot be shown it on a worker: {}", failure.step, failure.message));
        }
        FailedKind::Trouble.because(format!("the sandbox failed: {failure}"))
    }
}

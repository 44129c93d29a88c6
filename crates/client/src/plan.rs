//! How a command is to run elsewhere: which program it is, which view it needs, what it may read and write, what its
//! standard streams are. Made before anything is launched; what cannot run elsewhere is found here.

use crate::commit::WriteDecision;
use crate::daemon::Daemon;
use crate::policy::{Gate, Open};
use crate::profile;
use crate::stdio;
use crate::views::{Launch, Swept, TRAVEL_BYTES, View};
use base::{Command, Output, Stdin, Time, TreePath, WindowSize};
use rustix::fd::OwnedFd;
use std::sync::Arc;
use wire::now_nanos;

/// Decides what may be written.
#[derive(Clone, Debug)]
pub struct WriteRules;

impl WriteRules {
    /// What becomes of a change at `path`.
    pub fn decide(&self, _path: &TreePath) -> WriteDecision {
        WriteDecision::Commit
    }
}

/// A command that can run elsewhere.
#[derive(Clone)]
pub struct Plan {
    /// What is sent.
    pub command: Command,
    /// Standard input.
    pub stdin: Stdin,
    /// Standard output.
    pub stdout: Output,
    /// Standard error.
    pub stderr: Output,
    /// Size of the terminal.
    pub window: WindowSize,
    /// The program's view.
    pub view: Arc<View>,
    /// What may be read.
    pub gate: Arc<dyn Gate>,
    /// What may be written.
    pub write: WriteRules,
    /// Paths that are in the view whatever the profile says.
    include: Vec<TreePath>,
    launched: Time,
}

impl Plan {
    /// Plans a command of a caller with these descriptors 0, 1 and 2. The error says why it cannot run elsewhere.
    /// Blocks on the file system.
    pub fn new(
        daemon: &Daemon,
        command: Command,
        window: Option<WindowSize>,
        _allow_write: &[Vec<u8>],
        fds: &[Arc<OwnedFd>; 3],
    ) -> Result<Self, String> {
        if daemon.link().is_none() {
            return Err("no pool is configured (gleaner up, or gleaner use TOKEN)".into());
        }
        let cwd = TreePath::parse(&command.cwd).ok_or("the working directory has no path")?;
        let resolved = profile::resolve(&command, &cwd)?;
        let first_sight = || vec![resolved.program.clone()];
        let view = daemon.server.views().open(&resolved.key, first_sight);
        let (stdin, stdout, stderr) = streams(fds);
        let tmp = TreePath::root().join(b"tmp");
        Ok(Self {
            command,
            stdin,
            stdout,
            stderr,
            window: window.unwrap_or_default(),
            view,
            gate: Arc::new(Open),
            write: WriteRules,
            include: vec![cwd, tmp],
            launched: Time(now_nanos()),
        })
    }

    /// Whether the task has a terminal.
    pub fn has_terminal(&self) -> bool {
        self.stdin == Stdin::Terminal || self.stdout == Output::Terminal || self.stderr == Output::Terminal
    }

    /// When it was planned, by this machine's clock.
    pub fn launched(&self) -> Time {
        self.launched
    }

    /// Checks the files that the program uses, for a launch over the connection with this number. Blocks.
    pub fn sweep(&self, daemon: &Daemon, connection: u64) -> Result<Swept, String> {
        let launch = Launch {
            connection,
            gate: &*self.gate,
            include: &self.include,
            hub_has: &|digest| daemon.server.hub_has(connection, digest),
            travel_bytes: TRAVEL_BYTES,
        };
        daemon.server.views().sweep(&self.view, &launch).map_err(|error| error.to_string())
    }
}

/// What kind of streams the caller's descriptors are.
fn streams(fds: &[Arc<OwnedFd>; 3]) -> (Stdin, Output, Output) {
    let stdin = match &fds[0] {
        fd if stdio::is_null(fd) => Stdin::Null,
        fd if stdio::is_terminal(fd) => Stdin::Terminal,
        fd => stdio::regular_file(fd).map_or(Stdin::Stream, |(path, offset)| Stdin::File { path, offset }),
    };
    let output = |fd: &OwnedFd| match fd {
        fd if stdio::is_null(fd) => Output::Null,
        fd if stdio::is_terminal(fd) => Output::Terminal,
        _ => Output::Stream,
    };
    let stdout = output(&fds[1]);
    let stderr = match output(&fds[2]) {
        Output::Stream if stdio::is_same_file(&fds[1], &fds[2]) => Output::SameAsStdout,
        other => other,
    };
    (stdin, stdout, stderr)
}

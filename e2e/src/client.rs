//! Where commands are typed: the environment in which a script runs locally, or with `remrun` before its commands.

use crate::error::{Error, Result};
use crate::process::{Outcome, Run, shell};
use crate::scratch::MARK;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The ordinary user of the suite.
pub const NOBODY: u32 = 65534;

/// A user at a client, with everything that decides what a command does, and nothing from the environment of the suite.
#[derive(Clone, Debug)]
pub struct Client {
    /// User and group id; 0 runs as the suite itself.
    pub user: u32,
    /// The program that runs a command remotely.
    pub remrun: PathBuf,
    /// The `gleaner` program; none where the harness tests itself.
    pub gleaner: Option<PathBuf>,
    /// The host of a testbed that it is on; none is this machine itself.
    pub host: Option<testbed::Entrance>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
}

impl Client {
    /// A client whose home, configuration, state and daemon live in `folder`, with the programs of `bin` in its PATH.
    pub fn new(bin: &Path, folder: &Path, mark: &Path, user: u32) -> Self {
        let path = format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", bin.display());
        let name = if user == 0 { "root" } else { "nobody" };
        let mut env: Vec<(OsString, OsString)> = vec![
            ("PATH".into(), path.into()),
            ("HOME".into(), folder.join("home").into()),
            ("USER".into(), name.into()),
            ("LOGNAME".into(), name.into()),
            ("LANG".into(), "C.UTF-8".into()),
            ("TERM".into(), "xterm".into()),
            ("SHELL".into(), "/bin/sh".into()),
            ("GLEANER_RUNTIME_DIR".into(), folder.join("run").into()),
            ("GLEANER_CONFIG_DIR".into(), folder.join("config").into()),
            ("GLEANER_STATE_DIR".into(), folder.join("state").into()),
            (MARK.into(), mark.into()),
        ];
        env.extend(std::env::var_os("RUST_BACKTRACE").map(|value| ("RUST_BACKTRACE".into(), value)));
        Self { user, remrun: bin.join("remrun"), gleaner: Some(bin.join("gleaner")), host: None, env }
    }

    /// Gives `command` this user, this environment and this host.
    pub fn dress(&self, command: &mut Command) {
        self.host.iter().for_each(|host| host.run_here(command));
        command.env_clear().envs(self.env.iter().map(|(name, value)| (name, value)));
        if self.user != 0 {
            command.uid(self.user).gid(self.user);
        }
    }

    /// PATH of this client.
    pub fn path(&self) -> String {
        let path = self.env.iter().find(|(name, _)| name == "PATH");
        path.map_or(String::new(), |(_, value)| value.to_string_lossy().into_owned())
    }

    /// A fresh token of the hub that this account owns.
    pub fn token(&self, role: &str) -> Result<String> {
        let mut line = vec!["token", "--role", role];
        if role == "worker" {
            line.extend(["--trust", "own"]);
        }
        let outcome = self.gleaner(&line)?.expect_ok("gleaner token")?;
        let token = outcome.text().split_whitespace().last().map(str::to_owned);
        token.ok_or_else(|| Error::Product("gleaner token said nothing".into()))
    }

    /// `remrun` with these arguments.
    pub fn remrun(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.remrun);
        command.args(arguments);
        self.dress(&mut command);
        command
    }

    /// Runs a script in `folder` as this client, `$R` replaced by `prefix`.
    pub fn script(&self, folder: &Path, script: &str, prefix: &str, limit: Duration) -> Result<Outcome> {
        let mut command = shell(&script.replace("$R", prefix));
        command.current_dir(folder);
        self.dress(&mut command);
        Run::new(command).within(limit).run()
    }

    /// Runs `gleaner` with these arguments.
    pub fn gleaner(&self, arguments: &[&str]) -> Result<Outcome> {
        let program = self.gleaner.clone().unwrap_or_else(|| PathBuf::from("gleaner"));
        let mut command = Command::new(program);
        command.args(arguments);
        self.dress(&mut command);
        Run::new(command).within(Duration::from_secs(30)).run()
    }

    /// What `gleaner` prints with `--json`.
    pub fn json(&self, arguments: &[&str]) -> Result<serde_json::Value> {
        let outcome = self.gleaner(arguments)?.expect_ok(&format!("gleaner {}", arguments.join(" ")))?;
        serde_json::from_slice(&outcome.stdout).map_err(|error| {
            crate::error::Error::Product(format!("gleaner {}: not JSON: {error}", arguments.join(" ")))
        })
    }
}

//! Where one peer is set up: a folder in the scratch folder, and how its commands and daemons are started.

use crate::error::{Context, Error, Result};
use crate::pool::{CLIENT, Pool, SITE};
use crate::process::{Daemon, Outcome, Run, wait_for};
use crate::scratch::MARK;
use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use testbed::{Entrance, Host};

/// A whole environment.
pub type Environment = Vec<(OsString, OsString)>;

/// How long a daemon may take until it listens, or has found the others.
const LISTEN: Duration = Duration::from_secs(60);
/// How long a step of the setting up may take.
const STEP: Duration = Duration::from_secs(180);

/// Where one peer is set up.
pub struct Site<'a> {
    pool: &'a Pool,
    /// The peer's own folder, without a space in its name.
    pub folder: PathBuf,
}

impl<'a> Site<'a> {
    /// A new one, with an empty folder.
    pub fn new(pool: &'a Pool, name: &str) -> Result<Self> {
        Ok(Self { pool, folder: pool.scratch.folder(&format!("peers/{name}"), 0o755)? })
    }

    /// The hosts of the client and of the pool, if a link of the testbed is between them.
    pub fn hosts(&self) -> Option<[&Host; 2]> {
        self.pool.testbed.as_ref().map(|testbed| [CLIENT, SITE].map(|name| testbed.host(name)))
    }

    /// The way to where the client is, if that is a host of its own.
    pub fn near(&self) -> Option<Entrance> {
        self.hosts().map(|[near, _]| near.entrance())
    }

    /// Starts a daemon where the client is.
    pub fn near_daemon(&self, name: &str, mut command: Command, env: &Environment) -> Result<Daemon> {
        self.near().iter().for_each(|near| near.run_here(&mut command));
        self.daemon(name, command, env)
    }

    /// A folder in the peer's.
    pub fn inner(&self, name: &str, mode: u32) -> Result<PathBuf> {
        let path = self.folder.join(name);
        std::fs::create_dir_all(&path).at("create", &path)?;
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).at("chmod", &path)?;
        Ok(path)
    }

    /// Writes a file in the peer's folder.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        std::fs::write(&path, text).at("write", &path)?;
        Ok(path)
    }

    /// The environment of the pool's client with these variables set.
    pub fn environment(&self, more: &[(&str, String)]) -> Environment {
        let mut env = self.pool.client.env.clone();
        env.retain(|(name, _)| more.iter().all(|(newer, _)| name != newer));
        env.extend(more.iter().map(|(name, value)| ((*name).into(), value.into())));
        env
    }

    /// Runs a step of the setting up in the peer's folder.
    pub fn run(&self, what: &str, mut command: Command) -> Result<Outcome> {
        command.current_dir(&self.folder).env(MARK, self.pool.scratch.path());
        Run::new(command).within(STEP).run()?.expect_ok(what)
    }

    /// Starts a daemon in this environment; its output goes to a log named after it.
    pub fn daemon(&self, name: &str, mut command: Command, env: &Environment) -> Result<Daemon> {
        command.env_clear().envs(env.iter().map(|(name, value)| (name, value)));
        Daemon::start(name, command, &self.folder.join(format!("{name}.log")))
    }
}

/// A TCP port of this machine that nobody uses now.
pub fn free_port() -> Result<u16> {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    Ok(address.context(|| "cannot find a free port".to_owned())?.port())
}

/// Waits until something listens there; an error that shows the daemon's log if nothing does.
pub fn wait_to_listen(daemon: &mut Daemon, address: SocketAddr) -> Result<()> {
    let tried = || TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok();
    let found = wait_for(LISTEN, || if daemon.check().is_err() { Some(false) } else { tried().map(|_| true) });
    match found {
        Some(true) => Ok(()),
        _ => daemon.check().and(Err(Error::Missing(format!("{} did not listen within {LISTEN:?}", daemon.name)))),
    }
}

/// Waits for `text` in the daemon's log.
pub fn wait_to_log(daemon: &mut Daemon, text: &str) -> Result<()> {
    let logged = || std::fs::read(&daemon.log).is_ok_and(|log| String::from_utf8_lossy(&log).contains(text));
    match wait_for(LISTEN, || logged().then_some(())) {
        Some(()) => Ok(()),
        None => {
            daemon.check().and(Err(Error::Missing(format!("{} did not log {text:?} within {LISTEN:?}", daemon.name))))
        }
    }
}

//! The peers that install here, in the same rounds: outrun over ssh to this machine, icecc and distcc for C.

use super::launch::{installed, time_ms};
use super::samples::{Figures, Samples};
use crate::error::{Context, Result};
use crate::pool::Pool;
use crate::process::{Daemon, Run, shell, wait_for};
use std::ffi::OsString;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A peer that serves.
#[derive(Debug)]
pub struct Peer {
    name: &'static str,
    /// Kinds of launch (`true`, `gcc`) with the words before the command.
    kinds: Vec<&'static str>,
    prefix: Vec<String>,
    env: Vec<(OsString, OsString)>,
    place: PathBuf,
    _daemons: Vec<Daemon>,
}

impl Peer {
    fn command(&self, kind: &str) -> Command {
        let words = match kind {
            "true" => "/bin/true",
            _ => "gcc -O2 -c medium.c -o medium.o",
        };
        let mut command = Command::new(&self.prefix[0]);
        command.args(&self.prefix[1..]).args(words.split(' ')).current_dir(&self.place);
        command.env_clear().envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    /// One launch of each kind.
    pub fn round(&self, samples: &mut Samples) -> Result<()> {
        for kind in &self.kinds {
            samples.add(&format!("{}_{kind}", self.name), time_ms(self.command(kind))?);
        }
        Ok(())
    }

    /// Its medians.
    pub fn figures(&self, samples: &Samples, figures: &mut Figures) {
        for kind in &self.kinds {
            let name = format!("{}_{kind}", self.name);
            figures.add(&format!("{name}_ms_p50"), samples.median(&name));
        }
    }
}

/// Starts what is installed; says in `figures` why the others are missing.
pub fn start(pool: &Pool, place: &Path, figures: &mut Figures, say: &dyn Fn(&str)) -> Result<Vec<Peer>> {
    let mut peers = Vec::new();
    type Start = fn(&Pool, &Path) -> Result<std::result::Result<Peer, String>>;
    for (name, start) in [("distcc", distcc as Start), ("icecc", icecc), ("outrun", outrun)] {
        let started = start(pool, place)?;
        // A peer that starts and cannot do the work is missing as well.
        let tried = started
            .and_then(|peer| peer.round(&mut Samples::default()).map(|()| peer).map_err(|error| error.to_string()));
        match tried {
            Ok(peer) => peers.push(peer),
            Err(why) => {
                say(&format!("without {name}: {why}"));
                figures.missing(&format!("{name}_gcc_ms_p50"), &why);
            }
        }
    }
    Ok(peers)
}

/// A TCP port that nobody uses now.
fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").context(|| "cannot find a free port".to_owned())?;
    Ok(listener.local_addr().context(|| "cannot find a free port".to_owned())?.port())
}

fn listens(port: u16) -> bool {
    let tried = || TcpStream::connect(("127.0.0.1", port)).ok();
    wait_for(Duration::from_secs(10), tried).is_some()
}

fn daemon(pool: &Pool, name: &str, mut command: Command) -> Result<Daemon> {
    let env: Vec<_> = pool.client.env.clone();
    command.env_clear().envs(env);
    Daemon::start(name, command, &pool.scratch.path().join(format!("log/{name}.log")))
}

fn env_with(pool: &Pool, more: &[(&str, String)]) -> Vec<(OsString, OsString)> {
    let mut env = pool.client.env.clone();
    for (name, value) in more {
        env.retain(|(old, _)| old != name);
        env.push((name.into(), value.into()));
    }
    env
}

fn distcc(pool: &Pool, place: &Path) -> Result<std::result::Result<Peer, String>> {
    if !installed("distccd") {
        return Ok(Err("distccd is not installed (apt-get install distcc)".to_owned()));
    }
    let port = free_port()?;
    let mut command = Command::new("distccd");
    command.args(["--daemon", "--no-detach", "--allow", "127.0.0.1", "--listen", "127.0.0.1", "--jobs", "4"]);
    command.args(["--enable-tcp-insecure", "--log-stderr", "--port", &port.to_string()]);
    let daemon = daemon(pool, "distccd", command)?;
    if !listens(port) {
        return Ok(Err("distccd did not listen".to_owned()));
    }
    let env = env_with(pool, &[("DISTCC_HOSTS", format!("127.0.0.1:{port}/4")), ("DISTCC_FALLBACK", "0".to_owned())]);
    let prefix = vec!["distcc".to_owned()];
    Ok(Ok(Peer { name: "distcc", kinds: vec!["gcc"], prefix, env, place: place.into(), _daemons: vec![daemon] }))
}

fn icecc(pool: &Pool, place: &Path) -> Result<std::result::Result<Peer, String>> {
    if !installed("icecc-scheduler") || !installed("iceccd") {
        return Ok(Err("icecc is not installed (apt-get install icecc)".to_owned()));
    }
    let port = free_port()?;
    let net = format!("bench{port}");
    let mut command = Command::new("icecc-scheduler");
    command.args(["-n", &net, "-p", &port.to_string(), "-vv"]);
    let scheduler = daemon(pool, "icecc-scheduler", command)?;
    if !listens(port) {
        return Ok(Err("icecc-scheduler did not listen".to_owned()));
    }
    // iceccd serves its clients on a fixed socket of the machine: it must not be ours to take from a running one.
    if Path::new("/var/run/icecc/iceccd.socket").exists() {
        return Ok(Err("an iceccd already runs on this machine".to_owned()));
    }
    let base = pool.scratch.folder("icecc", 0o777)?;
    let mut command = Command::new("iceccd");
    command.args(["-n", &net, "-s", &format!("127.0.0.1:{port}"), "-m", "4", "-b"]).arg(&base);
    let iceccd = daemon(pool, "iceccd", command)?;
    let logged = || {
        let log = std::fs::read_to_string(&scheduler.log).unwrap_or_default();
        log.contains("login").then_some(())
    };
    if wait_for(Duration::from_secs(10), logged).is_none() {
        return Ok(Err("iceccd did not log in to its scheduler".to_owned()));
    }
    let prefix = vec!["icecc".to_owned()];
    let env = env_with(pool, &[]);
    Ok(Ok(Peer {
        name: "icecc",
        kinds: vec!["gcc"],
        prefix,
        env,
        place: place.into(),
        _daemons: vec![scheduler, iceccd],
    }))
}

/// outrun over an sshd of our own, with keys and configuration in the scratch folder.
fn outrun(pool: &Pool, place: &Path) -> Result<std::result::Result<Peer, String>> {
    let sshd = Path::new("/usr/sbin/sshd");
    if !sshd.exists() {
        return Ok(Err("sshd is not installed (apt-get install openssh-server)".to_owned()));
    }
    let folder = pool.scratch.folder("ssh", 0o700)?;
    let venv = folder.join("venv");
    let install = format!(
        "python3 -m venv {0} && {0}/bin/pip install -q outrun && ssh-keygen -q -t ed25519 -N '' -f {1}/host && ssh-keygen -q -t \
         ed25519 -N '' -f {1}/user && cp {1}/user.pub {1}/authorized && chmod 600 {1}/authorized && mkdir -p /run/sshd",
        venv.display(),
        folder.display()
    );
    let mut command = shell(&install);
    command.env("GIT_TERMINAL_PROMPT", "0");
    let outcome = Run::new(command).within(Duration::from_secs(180)).run()?;
    if !outcome.ok() {
        return Ok(Err(format!("outrun does not install: {}", crate::process::tail(&outcome.stderr, 2))));
    }
    let port = free_port()?;
    let text = folder.display().to_string();
    let config = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {text}/host\nAuthorizedKeysFile {text}/authorized\nStrictModes no\n\
         PermitRootLogin yes\nPidFile none\nUsePAM no\nSetEnv PATH={text}/venv/bin:/usr/bin:/bin:/usr/sbin:/sbin\n"
    );
    let ssh = format!("#!/bin/sh\nexec /usr/bin/ssh -F {text}/config \"$@\"\n");
    let client = format!(
        "Host *\n  Port {port}\n  IdentityFile {text}/user\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n"
    );
    for (name, content) in [("sshd_config", config), ("config", client), ("ssh", ssh)] {
        std::fs::write(folder.join(name), content).at("write", &folder.join(name))?;
    }
    std::fs::set_permissions(folder.join("ssh"), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .at("chmod", &folder)?;
    let mut command = Command::new(sshd);
    command.args(["-D", "-e", "-f"]).arg(folder.join("sshd_config"));
    let daemon = daemon(pool, "sshd", command)?;
    if !listens(port) {
        return Ok(Err("sshd did not listen".to_owned()));
    }
    let path = format!("{text}:{text}/venv/bin:{}", pool.client.path());
    let prefix = vec![venv.join("bin/outrun").display().to_string(), "127.0.0.1".to_owned()];
    let env = env_with(pool, &[("PATH", path)]);
    Ok(Ok(Peer {
        name: "outrun",
        kinds: vec!["true", "gcc"],
        prefix,
        env,
        place: place.into(),
        _daemons: vec![daemon],
    }))
}

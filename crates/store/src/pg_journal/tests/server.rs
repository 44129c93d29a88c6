//! A PostgreSQL server in a temporary folder, and a proxy before it that loses answers.

use super::Place;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use tempfile::TempDir;

/// A server of its own, stopped when dropped.
pub struct Server {
    folder: TempDir,
    programs: PathBuf,
    account: Option<(u32, u32)>,
}

/// The newest version that is installed.
fn programs() -> PathBuf {
    let found = std::fs::read_dir("/usr/lib/postgresql").map(|versions| {
        versions.flatten().map(|version| version.path().join("bin")).filter(|bin| bin.join("initdb").exists()).max()
    });
    found.ok().flatten().expect("PostgreSQL is not installed: apt-get install postgresql")
}

/// The ids of an account that may run a server: root may not.
fn account() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap();
    let line = accounts.lines().find(|line| line.starts_with("postgres:")).expect("no account `postgres`");
    let field = |at| line.split(':').nth(at).unwrap().parse().unwrap();
    Some((field(2), field(3)))
}

impl Server {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let server = Self { programs: programs(), account: account(), folder };
        let home = server.folder.path().join("pg");
        std::fs::create_dir(&home).unwrap();
        if let Some((user, group)) = server.account {
            chown(&home, Some(user), Some(group)).unwrap();
        }
        server.run("initdb", &["-D", "data", "-U", "hub", "-A", "trust", "-N", "--locale=C", "-E", "UTF8"]);
        let settings = format!(
            "listen_addresses=''\nunix_socket_directories='{}'\nfsync=off\nshared_buffers=16MB\nmax_connections=30\n\
             log_min_messages=fatal\nautovacuum=off\n",
            home.display()
        );
        let path = home.join("data/postgresql.auto.conf");
        std::fs::write(path, settings).unwrap();
        server.run("pg_ctl", &["-D", "data", "-w", "-s", "-l", "log", "start"]);
        server
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        assert!(self.does(program, arguments), "{program} {arguments:?}");
    }

    /// Whether a program ends well.
    fn does(&self, program: &str, arguments: &[&str]) -> bool {
        let mut command = Command::new(self.programs.join(program));
        command.args(arguments).current_dir(self.home()).stdin(Stdio::null()).stdout(Stdio::null());
        if let Some((user, group)) = self.account {
            command.gid(group).uid(user);
        }
        command.status().is_ok_and(|status| status.success())
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("pg")
    }

    pub fn url_at(&self, folder: &Path, rest: &str) -> String {
        format!("postgres://hub@{}/postgres?{rest}", folder.display().to_string().replace('/', "%2F"))
    }

    pub fn url(&self, rest: &str) -> String {
        self.url_at(&self.home(), rest)
    }

    pub fn place(&self, lease_ms: u32) -> Place {
        Place::parse(&self.url(&format!("lease_ms={lease_ms}"))).unwrap()
    }

    /// Kills the server in whatever it does, and starts it again, which recovers what it committed.
    pub fn crash(&self) {
        self.run("pg_ctl", &["-D", "data", "-w", "-s", "-l", "log", "-m", "immediate", "restart"]);
    }

    /// Does a statement as an administrator.
    pub fn sql(&self, text: &str) {
        let home = self.home();
        self.run("psql", &["-q", "-h", home.to_str().unwrap(), "-U", "hub", "-d", "postgres", "-c", text]);
    }

    /// A proxy before it, in a folder of its own.
    pub fn proxy(&self) -> Proxy {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let (target, loses) = (self.home().join(".s.PGSQL.5432"), Arc::new(AtomicBool::new(false)));
        let (armed, silent) = (loses.clone(), Arc::new(AtomicBool::new(false)));
        let is_silent = silent.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = UnixStream::connect(&target) else { continue };
                let (from_client, to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let quiet = is_silent.clone();
                std::thread::spawn(move || pass(from_client, to_server, &AtomicBool::new(false), &quiet));
                let (armed, quiet) = (armed.clone(), is_silent.clone());
                std::thread::spawn(move || pass(server, client, &armed, &quiet));
            }
        });
        Proxy { folder, loses, silent }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let stopped = self.does("pg_ctl", &["-D", "data", "-w", "-s", "-m", "immediate", "stop"]);
        assert!(stopped || std::thread::panicking(), "the server goes on");
    }
}

/// Passes on what comes, or nothing any more if it is `silent`. What comes while `loses` is set is lost, and the connection with it.
fn pass(mut from: UnixStream, mut to: UnixStream, loses: &AtomicBool, silent: &AtomicBool) {
    let mut buffer = [0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if silent.load(SeqCst) {
            continue;
        }
        if loses.swap(false, SeqCst) || to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

pub struct Proxy {
    folder: TempDir,
    loses: Arc<AtomicBool>,
    silent: Arc<AtomicBool>,
}

impl Proxy {
    pub fn place(&self, server: &Server, lease_ms: u32) -> Place {
        Place::parse(&server.url_at(self.folder.path(), &format!("lease_ms={lease_ms}"))).unwrap()
    }

    /// Passes nothing on any more, and closes nothing: as a network that is cut.
    pub fn fall_silent(&self) {
        self.silent.store(true, SeqCst);
    }

    /// Loses the next answer of the server, whatever it is, and the connection.
    pub fn lose_an_answer(&self) {
        self.loses.store(true, SeqCst);
    }
}

//! A PostgreSQL server in a folder of its own, for tests and benchmarks; Debian's package `postgresql` must be installed.
//!
//! It listens at a socket in its folder alone, unless it has a certificate: then also on the loopback interface.

use super::{Error, system};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A server, stopped when dropped; its folder is left.
#[derive(Debug)]
pub struct Postgres {
    home: PathBuf,
    programs: PathBuf,
    account: Option<(u32, u32)>,
    port: u16,
}

/// The newest version that is installed.
fn programs() -> Result<PathBuf, Error> {
    let found = std::fs::read_dir("/usr/lib/postgresql").map(|versions| {
        versions.flatten().map(|version| version.path().join("bin")).filter(|bin| bin.join("initdb").exists()).max()
    });
    let missing = || Error::Wrong("PostgreSQL is not installed: apt-get install postgresql".to_owned());
    found.ok().flatten().ok_or_else(missing)
}

/// The ids of an account that may run a server: root may not.
fn account() -> Result<Option<(u32, u32)>, Error> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let accounts = std::fs::read_to_string("/etc/passwd").map_err(system("read /etc/passwd"))?;
    let line = accounts.lines().find(|line| line.starts_with("postgres:"));
    let field = |at| line.and_then(|line| line.split(':').nth(at)?.parse().ok());
    let missing = || Error::Wrong("there is no account `postgres`".to_owned());
    Ok(Some(field(2).zip(field(3)).ok_or_else(missing)?))
}

impl Postgres {
    /// Starts one in this folder, which others must be able to search.
    ///
    /// # Errors
    /// It is not installed, or does not start.
    pub fn start(folder: &Path) -> Result<Self, Error> {
        Self::start_with(folder, None)
    }

    /// The same with a certificate and its key, PEM: then it takes TLS at [`Postgres::port`] of the loopback interface.
    ///
    /// # Errors
    /// As [`Postgres::start`].
    pub fn start_with(folder: &Path, certificate: Option<(&[u8], &[u8])>) -> Result<Self, Error> {
        let home = folder.join("pg");
        let port = match certificate {
            Some(_) => TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).map(|free| free.port()),
            None => Ok(5432),
        };
        let port = port.map_err(system("find a free port"))?;
        let server = Self { programs: programs()?, account: account()?, home, port };
        std::fs::create_dir(&server.home).map_err(system("make the server's folder"))?;
        server.give(&server.home)?;
        server.run("initdb", &["-D", "data", "-U", "hub", "-A", "trust", "-N", "--locale=C", "-E", "UTF8"])?;
        let mut settings = format!(
            "listen_addresses='{}'\nport={port}\nunix_socket_directories='{}'\nfsync=off\nshared_buffers=16MB\n\
             max_connections=30\nlog_min_messages=fatal\nautovacuum=off\n",
            if certificate.is_some() { "127.0.0.1" } else { "" },
            server.home.display()
        );
        if let Some((certificate, key)) = certificate {
            settings.push_str("ssl=on\n");
            for (name, bytes) in [("data/server.crt", certificate), ("data/server.key", key)] {
                let path = server.home.join(name);
                std::fs::write(&path, bytes).map_err(system("write the server's certificate"))?;
                std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).map_err(system("chmod"))?;
                server.give(&path)?;
            }
        }
        let path = server.home.join("data/postgresql.auto.conf");
        std::fs::write(path, settings).map_err(system("write the server's settings"))?;
        server.run("pg_ctl", &["-D", "data", "-w", "-s", "-l", "log", "start"])?;
        Ok(server)
    }

    fn give(&self, path: &Path) -> Result<(), Error> {
        match self.account {
            Some((user, group)) => chown(path, Some(user), Some(group)).map_err(system("chown")),
            None => Ok(()),
        }
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<(), Error> {
        match self.does(program, arguments) {
            true => Ok(()),
            false => Err(Error::Wrong(format!("{program} {} failed", arguments.join(" ")))),
        }
    }

    /// Whether a program ends well.
    fn does(&self, program: &str, arguments: &[&str]) -> bool {
        let mut command = Command::new(self.programs.join(program));
        command.args(arguments).current_dir(&self.home).stdin(Stdio::null()).stdout(Stdio::null());
        if let Some((user, group)) = self.account {
            command.gid(group).uid(user);
        }
        command.status().is_ok_and(|status| status.success())
    }

    /// Where its socket is.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The name of its socket.
    pub fn socket(&self) -> PathBuf {
        self.home.join(format!(".s.PGSQL.{}", self.port))
    }

    /// The port on the loopback interface, if it has a certificate.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A URL by way of a socket in this folder, with `rest` as its query.
    pub fn url_at(&self, folder: &Path, rest: &str) -> String {
        format!("postgres://hub@{}:{}/postgres?{rest}", folder.display().to_string().replace('/', "%2F"), self.port)
    }

    /// The same by way of its own socket.
    pub fn url(&self, rest: &str) -> String {
        self.url_at(&self.home, rest)
    }

    /// Kills it in whatever it does, and starts it again, which recovers what it committed.
    ///
    /// # Errors
    /// It does not start.
    pub fn crash(&self) -> Result<(), Error> {
        self.run("pg_ctl", &["-D", "data", "-w", "-s", "-l", "log", "-m", "immediate", "restart"])
    }

    /// Does a statement as an administrator.
    ///
    /// # Errors
    /// It was refused.
    pub fn sql(&self, text: &str) -> Result<(), Error> {
        let (home, port) = (self.home.display().to_string(), self.port.to_string());
        self.run("psql", &["-q", "-h", &home, "-p", &port, "-U", "hub", "-d", "postgres", "-c", text])
    }

    /// Stops it. False: it goes on.
    fn stop(&self) -> bool {
        self.does("pg_ctl", &["-D", "data", "-w", "-s", "-m", "immediate", "stop"])
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if self.home.join("data/postmaster.pid").exists() && !self.stop() {
            eprintln!("the PostgreSQL server in {} goes on", self.home.display());
        }
    }
}

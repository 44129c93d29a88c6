//! A PostgreSQL server in a temporary folder, and a proxy before it that loses answers.

use super::Place;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use tempfile::TempDir;
use testbed::postgres::Postgres;

/// A server of its own, stopped when dropped.
pub struct Server {
    pub postgres: Postgres,
    _folder: TempDir,
}

impl Server {
    pub fn start() -> Self {
        Self::start_with(None)
    }

    /// With a certificate and its key.
    pub fn start_with(certificate: Option<(&[u8], &[u8])>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        Self { postgres: Postgres::start_with(folder.path(), certificate).unwrap(), _folder: folder }
    }

    pub fn url(&self, rest: &str) -> String {
        self.postgres.url(rest)
    }

    pub fn place(&self, lease_ms: u32) -> Place {
        Place::parse(&self.url(&format!("lease_ms={lease_ms}"))).unwrap()
    }

    /// Kills the server in whatever it does, and starts it again, which recovers what it committed.
    pub fn crash(&self) {
        self.postgres.crash().unwrap();
    }

    /// Does a statement as an administrator.
    pub fn sql(&self, text: &str) {
        self.postgres.sql(text).unwrap();
    }

    /// A proxy before it, in a folder of its own.
    pub fn proxy(&self) -> Proxy {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let (target, loses) = (self.postgres.socket(), Arc::new(AtomicBool::new(false)));
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
        Place::parse(&server.postgres.url_at(self.folder.path(), &format!("lease_ms={lease_ms}"))).unwrap()
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

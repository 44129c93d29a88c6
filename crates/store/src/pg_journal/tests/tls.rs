//! TLS to the database.

use super::*;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs `openssl` in this folder.
fn openssl(folder: &Path, arguments: &str) {
    let mut command = Command::new("openssl");
    command.args(arguments.split(' ')).current_dir(folder).stdin(Stdio::null()).stderr(Stdio::null());
    assert!(command.status().expect("openssl is installed").success(), "openssl {arguments}");
}

/// Makes a certificate that signs itself, and one for the name `localhost` that it has signed.
fn certificates(folder: &Path) {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(folder, &format!("req -x509 -days 2 {key} -keyout ca.key -out ca.pem -subj /CN=site"));
    openssl(folder, &format!("req -new {key} -keyout server.key -out server.csr -subj /CN=database"));
    std::fs::write(folder.join("names"), "subjectAltName=DNS:localhost\n").unwrap();
    openssl(
        folder,
        "x509 -req -days 2 -in server.csr -CA ca.pem -CAkey ca.key -set_serial 7 -extfile names -out server.pem",
    );
    openssl(folder, &format!("req -x509 -days 2 {key} -keyout other.key -out other.pem -subj /CN=other"));
}

fn server(folder: &Path, name: &str) -> Server {
    let read = |end: &str| std::fs::read(folder.join(format!("{name}.{end}"))).unwrap();
    Server::start_with(Some((&read("pem"), &read("key"))))
}

/// Takes the lease by TCP, and says whether a connection of the hub's is encrypted; else why it was not taken.
fn take_at(server: &Server, host: &str, rest: &str) -> Result<bool, String> {
    let url = format!("postgres://hub@{host}:{}/postgres?lease_ms=5000&{rest}", server.postgres.port());
    let place = Place::parse(&url).map_err(|error| error.to_string())?;
    match block_on(Lease::take(&place, "test", &[])).map_err(|error| error.to_string())? {
        Taking::Taken(lease) => {
            // One that is closed again; then the one that commits, which stays.
            lease.files().put("file", b"bytes").map_err(|error| error.to_string())?;
            let (hub, _) = open_with(lease, Options::default()).map_err(|error| error.to_string())?;
            hub.commit(1).map_err(|error| error.to_string())?;
            let encrypted = "DO $$ BEGIN IF NOT EXISTS (SELECT 1 FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
                             WHERE s.ssl AND a.application_name LIKE 'gleaner hub%') THEN RAISE EXCEPTION 'none'; END IF; \
                             END $$";
            Ok(server.postgres.sql(encrypted).is_ok())
        }
        Taking::Held(by) => Err(format!("held by {by}")),
        Taking::Lost(why) => Err(format!("lost: {why}")),
    }
}

#[test]
fn a_certificate_is_looked_at_as_far_as_was_asked() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let root = |name: &str| format!("sslrootcert={}/{name}", folder.path().display());
    let signed = server(folder.path(), "server");
    let at = |host: &str, mode: &str, root: &str| take_at(&signed, host, &format!("sslmode={mode}&{root}"));
    assert_eq!(at("127.0.0.1", "disable", ""), Ok(false));
    assert_eq!(take_at(&signed, "127.0.0.1", ""), Ok(true), "the server offers it");
    assert_eq!(at("127.0.0.1", "require", ""), Ok(true), "whosever it is");
    assert_eq!(at("127.0.0.1", "require", &root("ca.pem")), Ok(true));
    assert_eq!(at("127.0.0.1", "verify-ca", &root("ca.pem")), Ok(true));
    assert_eq!(at("localhost", "verify-full", &root("ca.pem")), Ok(true));
    assert_eq!(at("localhost", "verify-full", &root("server.pem")), Ok(true), "it is pinned");
    for (host, mode, with) in [
        ("127.0.0.1", "require", "other.pem"),
        ("127.0.0.1", "verify-ca", "other.pem"),
        ("localhost", "verify-full", "other.pem"),
        ("127.0.0.1", "verify-full", "ca.pem"),
        ("127.0.0.1", "verify-full", "server.pem"),
    ] {
        let why = at(host, mode, &root(with)).unwrap_err();
        assert!(why.contains("certificate") && !why.starts_with("lost"), "{host} {mode} {with}: {why}");
    }
    assert!(at("localhost", "verify-full", &root("missing")).unwrap_err().contains("sslrootcert="));
    assert!(at("localhost", "verify-full", &root("ca.key")).unwrap_err().contains("no certificate"));
    drop(signed);
    // One that signs itself, as the manual of PostgreSQL has it.
    let own = server(folder.path(), "ca");
    assert_eq!(take_at(&own, "127.0.0.1", &format!("sslmode=verify-ca&{}", root("ca.pem"))), Ok(true));
    // A server without TLS.
    let local = Server::start();
    let place = Place::parse(&local.url("sslmode=verify-full&sslrootcert=/nowhere")).unwrap();
    assert!(block_on(Lease::take(&place, "test", &[])).is_err(), "a file that is named must be there");
    drop(take(&Place::parse(&local.url("sslmode=require")).unwrap()));
}

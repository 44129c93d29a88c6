//! distcc: preprocesses here and compiles on a distccd of our own; in pump mode it preprocesses there as well.

use super::packages::Packages;
use super::site::{Site, free_port, wait_to_listen};
use super::{Build, Peer};
use crate::error::{Error, Result};
use crate::process::{Daemon, wait_for};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

/// The Python that the package is made for.
const PYTHON: &str = "/usr/bin/python3";
/// How long the include server of pump mode may take until it serves.
const INCLUDE_SERVER: Duration = Duration::from_secs(20);

/// Preprocesses here.
pub fn plain(site: &Site) -> Result<Peer> {
    let packages = Packages::fetch(site, &["distcc"])?;
    let (server, address) = server(site, &packages)?;
    // What fails there must not run here unnoticed.
    peer(site, &packages, server, &[("DISTCC_HOSTS", format!("{address}/8")), ("DISTCC_FALLBACK", "0".to_owned())])
}

/// Preprocesses there: an include server finds out here which headers to send.
pub fn pump(site: &Site) -> Result<Peer> {
    let packages = Packages::fetch(site, &["distcc", "distcc-pump"])?;
    let (server, address) = server(site, &packages)?;
    // Some files it cannot do, and does them here; that must not end pump mode for all others.
    let variables = [("DISTCC_HOSTS", format!("{address}/8,cpp,lzo")), ("DISTCC_MAX_DISCREPANCY", "1000".to_owned())];
    let mut peer = peer(site, &packages, server, &variables)?;
    let folder = packages.file("usr/lib/python3/dist-packages/include_server");
    let env = [&peer.env[..], &[("PYTHONPATH".into(), folder.clone().into())]].concat();
    // The one of distcc 3.4 fails with Python 3.10 and later (distcc issue 454); distcc then preprocesses here, and says so.
    let mut probe = Command::new(PYTHON);
    probe.args(["-c", "import distcc_pump_c_extensions as probed; probed.OsPathIsFile('/')"]).envs(env.clone());
    site.run("the include server of this distcc does not work with this Python", probe)?;
    let socket = site.folder.join("include-server");
    let mut command = Command::new(PYTHON);
    command.arg("-O").arg(folder.join("include_server.py")).arg("--port").arg(&socket);
    command.args(["--pid_file", "include-server.pid", "-d1"]).current_dir(&site.folder);
    let mut server = site.daemon("include-server", command, &env)?;
    let serves = wait_for(INCLUDE_SERVER, || socket.exists().then_some(()));
    if serves.is_none() {
        return server.check().and(Err(Error::Missing("the include server does not serve".to_owned())));
    }
    peer.daemons.push(server);
    peer.env.push(("INCLUDE_SERVER_PORT".into(), socket.into()));
    Ok(peer)
}

/// A distccd that listens on this machine only.
fn server(site: &Site, packages: &Packages) -> Result<(Daemon, SocketAddr)> {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    let temporary = site.inner("temporary", 0o1777)?;
    let mut command = Command::new(packages.program("distccd")?);
    command.args(["--daemon", "--no-detach", "--allow", "127.0.0.1", "--listen", "127.0.0.1", "--user", "nobody"]);
    command.args(["--jobs", "8", "--enable-tcp-insecure", "--log-stderr", "--log-level", "notice"]);
    command.arg("--port").arg(address.port().to_string());
    let env = site.environment(&[packages.libraries(), ("TMPDIR", temporary.display().to_string())]);
    let mut server = site.daemon("distccd", command, &env)?;
    wait_to_listen(&mut server, address)?;
    Ok((server, address))
}

fn peer(site: &Site, packages: &Packages, server: Daemon, variables: &[(&str, String)]) -> Result<Peer> {
    let state = site.inner("state", 0o755)?;
    let own = [packages.libraries(), ("DISTCC_DIR", state.display().to_string())];
    let env = site.environment(&[&own, variables].concat());
    Ok(Peer {
        prefix: vec![packages.program("distcc")?.display().to_string()],
        env,
        build: Build::EachCompilation,
        log: server.log.clone(),
        mark: "COMPILE_OK",
        near: site.near(),
        daemons: vec![server],
    })
}

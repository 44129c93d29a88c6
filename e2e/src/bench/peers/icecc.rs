//! icecc: a scheduler, a near daemon that takes commands and no work from others, and a far one that compiles.

use super::far_side::{self, Cable};
use super::packages::Packages;
use super::site::{Site, wait_to_log};
use super::{Build, Peer};
use crate::client::NOBODY;
use crate::error::{Context, Error, Result};
use std::path::PathBuf;
use std::process::Command;

/// The scheduler's port, on the cable only.
const PORT: &str = "8765";

/// Starts the three.
pub fn start(site: &Site) -> Result<Peer> {
    let packages = Packages::fetch(site, &["icecc"])?;
    let compiler = compiler(site, &packages)?;
    let cable = Cable::new(site);
    let socket = |name: &str| ("ICECC_TEST_SOCKET", site.folder.join(name).join("socket").display().to_string());
    let env = |name: &str| site.environment(&[packages.libraries(), socket(name)]);
    let far = far_side::start(site, &cable, "", &daemon(site, &packages, &cable, "far")?, &env("far"))?;
    let mut command = Command::new(packages.program("icecc-scheduler")?);
    command.args(["-n", &cable.near.0, "-i", &cable.near.0, "-p", PORT, "-vvv"]);
    let mut scheduler = site.near_daemon("scheduler", command, &env("near"))?;
    let mut command = daemon(site, &packages, &cable, "near")?;
    command.arg("--no-remote");
    let near = site.near_daemon("near", command, &env("near"))?;
    for name in ["near", "far"] {
        wait_to_log(&mut scheduler, &format!("login {name} "))?;
    }
    Ok(Peer {
        prefix: vec![packages.program("icecc")?.display().to_string()],
        env: site.environment(&[
            packages.libraries(),
            socket("near"),
            ("ICECC_VERSION", compiler.display().to_string()),
            // Else the scheduler gives work back to us when the far side seems busy.
            ("ICECC_PREFERRED_HOST", "far".to_owned()),
        ]),
        build: Build::EachCompilation,
        log: scheduler.log.clone(),
        mark: "server=far",
        near: site.near(),
        daemons: vec![scheduler, near, far],
    })
}

/// The archive with the compiler that the far side works with.
fn compiler(site: &Site, packages: &Packages) -> Result<PathBuf> {
    let folder = site.inner("compiler", 0o755)?;
    let mut command = Command::new("bash");
    command.arg("-c").arg("cd \"$1\" && bash \"$2\" \"$(command -v gcc)\" --compression none").arg("bash");
    command.arg(&folder).arg(packages.program("icecc-create-env")?);
    command.env_clear().envs(site.environment(&[]));
    site.run("icecc-create-env", command)?;
    let mut entries = std::fs::read_dir(&folder).at("list", &folder)?.flatten();
    let entry = entries.next().ok_or_else(|| Error::Missing("icecc-create-env made no archive".to_owned()))?;
    Ok(entry.path())
}

/// An iceccd as `nobody`, with the one privilege that it keeps when it is started as root: so it leaves nothing in `/var/run`.
fn daemon(site: &Site, packages: &Packages, cable: &Cable, name: &str) -> Result<Command> {
    let folder = site.inner(name, 0o755)?;
    std::os::unix::fs::chown(&folder, Some(NOBODY), Some(NOBODY)).at("chown", &folder)?;
    let user = NOBODY.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
    command.args(["--inh-caps", "+sys_chroot", "--ambient-caps", "+sys_chroot", "--"]);
    command.arg(packages.program("iceccd")?).args(["-N", name, "-n", &cable.near.0, "-m", "8", "-vv", "-s"]);
    command.arg(format!("{}:{PORT}", cable.near.1)).arg("-b").arg(folder.join("environments"));
    Ok(command)
}

//! outrun, over an sshd of our own: keys, accounts and home are in the scratch folder.

use super::far_side::{self, Cable};
use super::packages::Packages;
use super::site::{Site, wait_to_log};
use super::{Build, Peer};
use crate::error::{Context, Result};
use crate::scratch::MARK;
use std::path::Path;
use std::process::Command;

/// Another `/run`, where sshd wants a folder, and other accounts: root may be locked, and sshd wants a user.
const PREPARE: &str = "mount -t tmpfs tmpfs /run
mkdir -m 755 /run/sshd
mount --bind passwd /etc/passwd
mount --bind shadow /etc/shadow
";

/// Sets it up and waits until sshd listens.
pub fn start(site: &Site) -> Result<Peer> {
    let packages = Packages::fetch(site, &["openssh-server"])?;
    install(site, &packages)?;
    let cable = Cable::new(site);
    configure(site, &cable)?;
    let mut sshd = Command::new(packages.program("sshd")?);
    sshd.args(["-D", "-e", "-f"]).arg(site.folder.join("sshd_config"));
    let mut far = far_side::start(site, &cable, PREPARE, &sshd, &site.environment(&[packages.libraries()]))?;
    wait_to_log(&mut far, "Server listening on")?;
    let program = site.folder.join("venv/bin/outrun").display().to_string();
    let ssh = format!("--ssh=-F{}", site.folder.join("ssh_config").display());
    Ok(Peer {
        prefix: vec![program, ssh, cable.far.1.to_string()],
        env: site.environment(&[]),
        // Without the option nothing can append to a file.
        build: Build::Whole("--sync-writes"),
        log: far.log.clone(),
        mark: "Accepted publickey",
        near: site.near(),
        daemons: vec![far],
    })
}

/// outrun in a virtual environment, and keys for both sides.
fn install(site: &Site, packages: &Packages) -> Result<()> {
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-m", "venv", "venv"]);
    site.run("python3 -m venv", command)?;
    let mut command = Command::new(site.folder.join("venv/bin/pip"));
    command.args(["install", "-q", "outrun"]);
    site.run("pip install outrun", command)?;
    for key in ["host", "user"] {
        let mut command = Command::new(packages.program("ssh-keygen")?);
        command.args(["-q", "-t", "ed25519", "-N", "", "-f", key]).env(packages.libraries().0, packages.libraries().1);
        site.run("ssh-keygen", command)?;
    }
    Ok(())
}

/// Writes what sshd, ssh and the far side read.
fn configure(site: &Site, cable: &Cable) -> Result<()> {
    let folder = site.folder.display();
    let bin = site.inner("bin", 0o755)?;
    let (home, temporary) = (site.inner("home", 0o700)?, site.inner("temporary", 0o700)?);
    // outrun asks the list of modules for FUSE, where it is not if it is built into the kernel.
    let lsmod = site.write("bin/lsmod", "#!/bin/sh\necho fuse\n")?;
    std::fs::set_permissions(&lsmod, std::os::unix::fs::PermissionsExt::from_mode(0o755)).at("chmod", &lsmod)?;
    let accounts = Path::new("/etc/passwd");
    let accounts = std::fs::read_to_string(accounts).at("read", accounts)?;
    let others = accounts.lines().filter(|line| !line.starts_with("root:") && !line.starts_with("sshd:"));
    let mut passwd: String = others.map(|line| format!("{line}\n")).collect();
    passwd.push_str(&format!("root:x:0:0::{}:/bin/sh\nsshd:x:65534:65534::/run/sshd:/bin/false\n", home.display()));
    site.write("passwd", &passwd)?;
    site.write("shadow", "root:*:1::::::\n")?;
    let path = format!("{}:{folder}/venv/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", bin.display());
    let mark = site.environment(&[]).into_iter().find(|(name, _)| name == MARK);
    let mark = mark.map_or_else(String::new, |(_, value)| value.to_string_lossy().into_owned());
    site.write(
        "sshd_config",
        &format!(
            "ListenAddress {}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\nStrictModes no\nPidFile none\nUsePAM no\n\
             PermitRootLogin prohibit-password\nPasswordAuthentication no\nSetEnv PATH={path} TMPDIR={} {MARK}={}\n",
            cable.far.1,
            temporary.display(),
            mark
        ),
    )?;
    site.write(
        "ssh_config",
        &format!(
            "User root\nIdentityFile {folder}/user\nIdentitiesOnly yes\nStrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n\
             BatchMode yes\nConnectTimeout 20\n"
        ),
    )
    .map(drop)
}

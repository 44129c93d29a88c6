//! The far side of a peer: a process in namespaces of its own on this machine, at the other end of a cable, or of the link of a
//! testbed. When it ends, nothing of it is left, the cable included.
//!
//! A peer whose two sides share a network does not do what it does between two machines: icecc keeps the work to itself, and outrun
//! listens on one port twice, itself and through ssh.

use super::site::{Environment, Site};
use crate::error::{Error, Result};
use crate::process::{Daemon, shell, wait_for};
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use testbed::host::DEVICE;

/// How long the far side may take until it is apart.
const APART: Duration = Duration::from_secs(10);

/// What the far side does first. `$1` is its end of the cable, `$2` its address; then comes what it runs.
const BEGIN: &str = "set -e
: > apart
";
const TAKE_END: &str = "tries=0
until ip addr add $2/30 dev $1 2> /dev/null; do tries=$((tries + 1)); [ $tries -lt 500 ]; sleep 0.02; done
ip link set lo up
ip link set $1 up
";

/// Its ends have names, and addresses that are used on one link only.
#[derive(Clone, Debug)]
pub struct Cable {
    /// The end on this side.
    pub near: (String, Ipv4Addr),
    /// The other.
    pub far: (String, Ipv4Addr),
    /// Whether it is to be laid: between the hosts of a testbed there is a link.
    is_new: bool,
}

impl Cable {
    /// The link of the testbed; else a cable that no other run on this machine is likely to have, nor this run twice.
    pub fn new(site: &Site) -> Self {
        if let Some(hosts) = site.hosts() {
            let [near, far] = hosts.map(|host| (DEVICE.to_owned(), host.address()));
            return Self { near, far, is_new: false };
        }
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = (std::process::id() * 4 + COUNT.fetch_add(1, Ordering::Relaxed)) % 16_000;
        let [third, fourth] = [1 + number / 64, 4 * (number % 63)].map(|byte| byte as u8);
        let end =
            |name: &str, last: u8| (format!("bench{number}{name}"), Ipv4Addr::new(169, 254, third, fourth + last));
        Self { near: end("n", 1), far: end("f", 2), is_new: true }
    }
}

/// Starts `program` on the far side, after the further lines of shell in `prepare`, and lays the cable to it.
pub fn start(site: &Site, cable: &Cable, prepare: &str, program: &Command, env: &Environment) -> Result<Daemon> {
    // The shell stays: as the first process of its namespace it takes all others with it, and unlike a program that changes its
    // user it ends when `unshare` does.
    let take_end = if cable.is_new { TAKE_END } else { "" };
    site.write("far-side", &format!("{BEGIN}{take_end}shift 2\n{prepare}\"$@\"\nexit $?\n"))?;
    let mut command = Command::new("unshare");
    command.args(cable.is_new.then_some("--net"));
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "far-side"]);
    command.args([&cable.far.0, &cable.far.1.to_string()]);
    command.arg(program.get_program()).args(program.get_args()).current_dir(&site.folder);
    site.hosts().iter().for_each(|[_, far]| far.run_here(&mut command));
    let mut far = site.daemon("far", command, env)?;
    // Until then its network is ours.
    let apart = wait_for(APART, || site.folder.join("apart").exists().then_some(()));
    if apart.is_none() {
        return far.check().and(Err(Error::Missing(format!("the far side is not apart within {APART:?}"))));
    }
    if !cable.is_new {
        return Ok(far);
    }
    let ((near, address), (end, _)) = (&cable.near, &cable.far);
    let lay = format!(
        "ip link add {near} type veth peer name {end} netns {} && ip addr add {address}/30 dev {near} && ip link set {near} up",
        far.pid().as_raw_nonzero()
    );
    site.run("ip link add", shell(&lay))?;
    Ok(far)
}

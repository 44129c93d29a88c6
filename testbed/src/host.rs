//! A host: a network namespace with a loopback and a TUN device, whose other end the relay holds.

use crate::{Error, system};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::thread::LinkNameSpaceType;
use std::fs::File;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

/// The device's name in its namespace.
pub const DEVICE: &str = "tb0";
/// All hosts are on one network of this prefix, and reach each other through the device.
const PREFIX: u8 = 16;

/// A host of a testbed.
#[derive(Debug)]
pub struct Host {
    name: String,
    address: Ipv4Addr,
    namespace: Arc<OwnedFd>,
    device: OwnedFd,
}

/// A host's network namespace, held.
#[derive(Clone, Debug)]
pub struct Entrance(Arc<OwnedFd>);

impl Entrance {
    /// A network namespace that somebody else has made.
    pub fn of(namespace: OwnedFd) -> Self {
        Self(Arc::new(namespace))
    }

    /// Moves the calling thread there: the sockets that it makes are the host's.
    pub fn enter(&self) -> std::io::Result<()> {
        Ok(rustix::thread::move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// Lets `command` run on the host: same files, other network.
    pub fn run_here(&self, command: &mut Command) {
        let there = self.clone();
        // SAFETY: between fork and exec the closure makes one system call and allocates nothing.
        unsafe { command.pre_exec(move || there.enter()) };
    }
}

impl Host {
    pub(crate) fn new(name: &str, address: Ipv4Addr) -> Result<Self, Error> {
        // A thread of its own enters the new namespace, and takes its configuration with it when it ends.
        let made = std::thread::scope(|scope| scope.spawn(|| make(address)).join());
        let (namespace, device) = made.map_err(|_| Error::Wrong("making a host panicked".into()))??;
        Ok(Self { name: name.to_owned(), address, namespace: Arc::new(namespace), device })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The way in, for those who outlive a borrow of the host.
    pub fn entrance(&self) -> Entrance {
        Entrance(self.namespace.clone())
    }

    /// Lets `command` run on this host: same files, other network.
    pub fn run_here(&self, command: &mut Command) {
        self.entrance().run_here(command);
    }

    /// Runs `what` on a thread on this host: the sockets that it makes are the host's.
    pub fn spawn<T: Send + 'static>(&self, what: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>, Error> {
        let there = self.entrance();
        let thread = std::thread::Builder::new().name(self.name.clone()).spawn(move || {
            there.enter().expect("the namespace is held, and its maker may enter");
            what()
        });
        thread.map_err(system("cannot run a thread on a host"))
    }

    pub(crate) fn device(&self) -> Result<OwnedFd, Error> {
        rustix::io::fcntl_dupfd_cloexec(&self.device, 3)
            .map_err(|error| system("cannot hold a TUN device")(error.into()))
    }

    pub(crate) fn set_address(&mut self, address: Ipv4Addr) -> Result<(), Error> {
        let (old, new) = (format!("{}/{PREFIX}", self.address), format!("{address}/{PREFIX}"));
        // The first address of a network takes all others of it along when it goes.
        ip(&["address", "del", &old, "dev", DEVICE], |command| self.run_here(command))?;
        ip(&["address", "add", &new, "dev", DEVICE], |command| self.run_here(command))?;
        self.address = address;
        Ok(())
    }
}

/// Makes the namespace of the calling thread.
fn make(address: Ipv4Addr) -> Result<(OwnedFd, OwnedFd), Error> {
    // SAFETY: a namespace of its own for this thread, which shares nothing that others rely on.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }
        .map_err(|error| system("cannot make a network namespace (this needs root)")(error.into()))?;
    let own = File::open("/proc/thread-self/ns/net").map_err(system("cannot hold a network namespace"))?;
    let device = tun().map_err(system("cannot make a TUN device (is there a /dev/net/tun?)"))?;
    // Nothing is heard over IPv6 here, so nothing need be asked.
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
    ip(&["link", "set", "lo", "up"], |_| {})?;
    ip(&["address", "add", &format!("{address}/{PREFIX}"), "dev", DEVICE], |_| {})?;
    ip(&["link", "set", DEVICE, "up"], |_| {})?;
    Ok((own.into(), device))
}

/// A TUN device in the namespace of the calling thread.
fn tun() -> std::io::Result<OwnedFd> {
    let file = File::options().read(true).write(true).open("/dev/net/tun")?;
    rustix::io::ioctl_fionbio(&file, true)?;
    // SAFETY: all zeroes is a valid value of this plain structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(DEVICE.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the request is a plain structure with a NUL-terminated name, and outlives the call.
    match unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw const request) } {
        0 => Ok(file.into()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn ip(arguments: &[&str], prepare: impl FnOnce(&mut Command)) -> Result<(), Error> {
    let mut command = Command::new("ip");
    command.args(arguments).stdin(Stdio::null());
    prepare(&mut command);
    let output = command.output().map_err(system("cannot run ip (Debian package iproute2)"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(Error::Wrong(format!("`ip {}` failed: {said}", arguments.join(" "))))
        }
    }
}

//! Network interfaces of a task: the loopback, and for one that may use the network another, of which what is sent comes out of a descriptor, which
//! the worker reads ([`crate::network`]).

use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use super::sys::check;

/// What the task is called on its interface.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
const MASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 0);
/// Who passes on what it sends, and answers what it asks for by name.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
/// Longest packet, bytes: they travel within one machine.
pub const MTU: usize = 32_768;

/// Makes an interface in this process's network namespace, with the way to everywhere behind it. Wants rights over the namespace.
pub fn open() -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let device = rustix::fs::openat(CWD, "/dev/net/tun", flags, Mode::empty())?;
    // The kernel gives it a number.
    let mut request = Request::of(b"eth%d");
    request.flags((libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short);
    request.apply(device.as_raw_fd(), libc::TUNSETIFF as _)?;
    let socket = any_socket()?;
    let on = socket.as_raw_fd();
    request.address(ADDRESS);
    request.apply(on, libc::SIOCSIFADDR as _)?;
    request.address(MASK);
    request.apply(on, libc::SIOCSIFNETMASK as _)?;
    request.0.ifr_ifru.ifru_mtu = MTU as libc::c_int;
    request.apply(on, libc::SIOCSIFMTU as _)?;
    request.bring_up(on)?;
    add_default_route(on)?;
    Ok(device)
}

/// Brings the loopback interface of this network namespace up.
pub fn loopback_up() -> Result<(), Errno> {
    Request::of(b"lo").bring_up(any_socket()?.as_raw_fd())
}

/// Through which the kernel is told of interfaces.
fn any_socket() -> Result<OwnedFd, Errno> {
    // SAFETY: plain integers; the kernel has just given the descriptor, which nobody else has.
    unsafe {
        let socket = check(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0).into())?;
        Ok(OwnedFd::from_raw_fd(socket as RawFd))
    }
}

/// What the kernel is told of an interface, which keeps the name that it was given.
struct Request(libc::ifreq);

impl Request {
    fn of(name: &[u8]) -> Self {
        // SAFETY: all zeroes is a valid value of this plain structure.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (at, byte) in request.ifr_name.iter_mut().zip(name) {
            *at = *byte as libc::c_char;
        }
        Self(request)
    }

    fn flags(&mut self, flags: libc::c_short) {
        self.0.ifr_ifru.ifru_flags = flags;
    }

    fn address(&mut self, address: Ipv4Addr) {
        self.0.ifr_ifru.ifru_addr = generic(address);
    }

    fn bring_up(&mut self, on: RawFd) -> Result<(), Errno> {
        self.flags((libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short);
        self.apply(on, libc::SIOCSIFFLAGS as _)
    }

    fn apply(&mut self, on: RawFd, call: libc::c_ulong) -> Result<(), Errno> {
        // SAFETY: the structure has the layout that these calls take, a name that ends in a zero byte, and outlives the call.
        check(unsafe { libc::ioctl(on, call as _, &raw mut self.0) }.into()).map(drop)
    }
}

fn add_default_route(socket: RawFd) -> Result<(), Errno> {
    // SAFETY: all zeroes is a valid value of this plain structure.
    let mut route: libc::rtentry = unsafe { std::mem::zeroed() };
    (route.rt_dst, route.rt_genmask) = (generic(Ipv4Addr::UNSPECIFIED), generic(Ipv4Addr::UNSPECIFIED));
    route.rt_gateway = generic(GATEWAY);
    route.rt_flags = libc::RTF_UP | libc::RTF_GATEWAY;
    // SAFETY: the structure has the layout that this call takes, and outlives it.
    check(unsafe { libc::ioctl(socket, libc::SIOCADDRT as _, &raw const route) }.into()).map(drop)
}

fn generic(address: Ipv4Addr) -> libc::sockaddr {
    let [a, b, c, d] = address.octets().map(|byte| byte as libc::c_char);
    // Family, port, address.
    let sa_data = [0, 0, a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0];
    libc::sockaddr { sa_family: libc::AF_INET as _, sa_data }
}

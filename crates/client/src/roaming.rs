//! Notices that this machine is somewhere else: that it slept, or that its addresses or routes have changed.

use rustix::fd::OwnedFd;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use rustix::time::ClockId;
use std::io;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The kernel's news of addresses and routes, of IPv4 and IPv6 (`RTMGRP_*` of linux/rtnetlink.h).
const GROUPS: u32 = 0x10 | 0x40 | 0x100 | 0x400;
/// Clocks that differ by more than before by this much: the machine slept.
const SLEPT: Duration = Duration::from_secs(1);
/// News come in bunches: an address goes, another comes, then its routes.
const BUNCH: Duration = Duration::from_millis(50);
/// A bunch is no larger than this.
const BUNCH_MAX: usize = 32;

/// News of this machine's addresses and routes.
#[derive(Debug)]
pub struct Routes(AsyncFd<OwnedFd>);

impl Routes {
    /// From now on. Must be called within a tokio runtime.
    pub fn listen() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        // SAFETY: an `OwnedFd` names one open file, and closes it when it is dropped, which is after its registration.
        let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) };
        Ok(Self(socket.map_err(io::Error::from)?))
    }

    /// Waits for news, and for the others of their bunch.
    pub async fn news(&self) -> io::Result<()> {
        self.drain().await?;
        tokio::time::sleep(BUNCH).await;
        // What they say is looked up anew, not read from them.
        for _ in 0..BUNCH_MAX {
            if !tokio::time::timeout(BUNCH, self.drain()).await.is_ok_and(|drained| drained.is_ok()) {
                break;
            }
        }
        Ok(())
    }

    async fn drain(&self) -> io::Result<()> {
        let mut buffer = [0u8; 8192];
        let mut receive = |socket: &OwnedFd| match rustix::net::recv(socket, &mut buffer[..], RecvFlags::empty()) {
            // More than there was room for is news, too.
            Ok(_) | Err(rustix::io::Errno::NOBUFS) => Ok(()),
            Err(error) => Err(error.into()),
        };
        self.0.async_io(Interest::READABLE, |socket| receive(socket)).await
    }
}

/// Tells whether the machine has slept.
#[derive(Debug)]
pub struct SleepWatch(Duration);

impl Default for SleepWatch {
    fn default() -> Self {
        Self(slept_so_far())
    }
}

impl SleepWatch {
    /// Whether it has, since this was last asked.
    pub fn has_slept(&mut self) -> bool {
        self.take(slept_so_far())
    }

    fn take(&mut self, slept: Duration) -> bool {
        let has = slept.saturating_sub(self.0) > SLEPT;
        self.0 = slept;
        has
    }
}

/// One clock goes on while the machine sleeps, the other does not.
fn slept_so_far() -> Duration {
    let read = |clock| {
        let time = rustix::time::clock_gettime(clock);
        Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec as u32)
    };
    let awake = read(ClockId::Monotonic);
    read(ClockId::Boottime).saturating_sub(awake)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_is_told_once() {
        let mut watch = SleepWatch(Duration::from_secs(100));
        assert!(!watch.take(Duration::from_millis(100_900)));
        assert!(watch.take(Duration::from_secs(700)));
        assert!(!watch.take(Duration::from_secs(700)));
        assert!(!SleepWatch::default().has_slept());
    }

    #[tokio::test]
    async fn a_machine_that_stays_has_no_news() {
        let Ok(routes) = Routes::listen() else {
            println!("SKIPPED: no netlink here");
            return;
        };
        // Other tests of this machine may change its routes; none changes them all the time.
        let quiet = async { while tokio::time::timeout(Duration::from_millis(200), routes.news()).await.is_ok() {} };
        tokio::time::timeout(Duration::from_secs(10), quiet).await.expect("quiet for a moment");
    }
}

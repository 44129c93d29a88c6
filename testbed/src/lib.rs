//! Machines joined by links, on one machine: hosts are network namespaces, and a relay in this process carries their packets with
//! the delay, rate, queue, loss and jitter that each host's link is to have.
//!
//! * [`link`]: what a link is like, and the presets. A packet passes its sender's `up`, then its receiver's `down`.
//! * [`net`]: the relay as a pure machine: packets in, packets out, time as an input.
//! * [`pipe`]: one direction of one link.
//! * [`host`]: a network namespace with a TUN device in it.
//! * [`postgres`]: beside all that, a database server for hubs whose journal is in one.
//! * [`Testbed`]: hosts and the thread that relays for them, for as long as it lives.
//!
//! The packets are the kernel's own, of any protocol over IPv4. What it does not have: IPv6, broadcast, more than one path.

pub mod host;
pub mod link;
pub mod net;
pub mod pipe;
pub mod postgres;
mod relay;

pub use host::{Entrance, Host};
pub use link::{Link, Shape};
pub use net::Traffic;

use net::Net;
use relay::Relay;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Why there is no testbed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something that the system does not let us do.
    #[error("{what}: {source}")]
    System {
        /// What it was.
        what: String,
        /// Why not.
        source: std::io::Error,
    },
    /// There is no such link or host, or it makes no sense.
    #[error("{0}")]
    Wrong(String),
}

pub(crate) fn system(what: &str) -> impl FnOnce(std::io::Error) -> Error {
    let what = what.to_owned();
    move |source| Error::System { what, source }
}

/// Hosts joined by links. Their namespaces live for as long as it, or a process in them, does.
#[derive(Debug)]
pub struct Testbed {
    hosts: Vec<Host>,
    relay: Relay,
}

impl Testbed {
    /// Hosts of these names, each with its link to all others. The same `seed` loses the same packets. Needs root.
    pub fn start(hosts: &[(&str, Link)], seed: u64) -> Result<Self, Error> {
        let made = hosts.iter().enumerate().map(|(at, (name, _))| Host::new(name, address_of(at)));
        let made = made.collect::<Result<Vec<_>, Error>>()?;
        let mut net = Net::new(seed);
        for (host, (_, link)) in made.iter().zip(hosts) {
            net.add(host.address(), *link);
        }
        let relay = Relay::start(net, made.iter().map(Host::device).collect::<Result<_, _>>()?)?;
        Ok(Self { hosts: made, relay })
    }

    /// The host of this name.
    ///
    /// # Panics
    /// If there is none: names are the caller's own.
    pub fn host(&self, name: &str) -> &Host {
        &self.hosts[self.number(name)]
    }

    /// Gives a host another link. What is under way arrives as it would have.
    pub fn set_link(&self, name: &str, link: Link) {
        let host = self.number(name);
        self.relay.tell(|net| net.set_link(host, link));
    }

    /// Cuts a host off (packets vanish and nobody is told), or joins it again.
    pub fn cut(&self, name: &str, cut: bool) {
        let host = self.number(name);
        self.relay.tell(|net| net.set_cut(host, cut));
    }

    /// Lets a host's UDP through, or no more: what some hotels and offices do.
    pub fn block_udp(&self, name: &str, block: bool) {
        let host = self.number(name);
        self.relay.tell(|net| net.set_udp_blocked(host, block));
    }

    /// Moves a host to another network: it has another address from now on, and what is sent to the old one is lost.
    pub fn readdress(&mut self, name: &str) -> Result<Ipv4Addr, Error> {
        let host = self.number(name);
        let address = next_address(self.hosts[host].address());
        self.hosts[host].set_address(address)?;
        self.relay.tell(|net| net.set_address(host, address));
        Ok(address)
    }

    /// What has passed a host's link so far.
    pub fn traffic(&self, name: &str) -> Traffic {
        let host = self.number(name);
        self.relay.tell(|net| net.traffic(host))
    }

    /// The longest that the relay was late in passing a packet on, since this was last asked.
    pub fn take_lateness(&self) -> Duration {
        self.relay.tell(Net::take_lateness)
    }

    fn number(&self, name: &str) -> usize {
        let at = self.hosts.iter().position(|host| host.name() == name);
        at.unwrap_or_else(|| panic!("the testbed has no host {name}"))
    }
}

/// The first host is 10.77.0.1.
fn address_of(at: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, at as u8 + 1)
}

/// The host's address in the next network: 10.77.1.1 after 10.77.0.1.
fn next_address(address: Ipv4Addr) -> Ipv4Addr {
    let [a, b, network, host] = address.octets();
    Ipv4Addr::new(a, b, network.wrapping_add(1), host)
}

//! Where hubs are: this machine's own addresses, and those of a hub that is to be reached: what the settings say, and what it told since,
//! which is kept in the folder for state.

use crate::config::KnownHub;
use crate::parts::PartError;
use base::NodeId;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use wire::Whereabouts;

/// Most addresses of this machine, beside its loopback's, that are told.
const OWN_MAX: usize = 8;
/// What a hub told, in a part's folder.
const FILE: &str = "hub-addresses.json";

/// What [`FILE`] holds.
#[derive(Default, Serialize, Deserialize)]
struct Told {
    /// The hub's key: what another hub told is of no use.
    hub: String,
    addresses: Vec<SocketAddr>,
}

/// A hub as the settings have it, with what it told the part whose folder this is.
///
/// # Errors
/// No address is known.
pub async fn find(hub: &KnownHub, state_dir: &Path) -> Result<Arc<Whereabouts>, PartError> {
    let (names, key, file) = (hub.addresses.clone(), hub.key, state_dir.join(FILE));
    let look_up = move || {
        let found: Vec<SocketAddr> = names.iter().filter_map(|name| name.to_socket_addrs().ok()).flatten().collect();
        let told = told(&file, &key.to_hex());
        if found.is_empty() && told.is_empty() {
            return Err(PartError::Failed(format!("no address is known for {}", names.join(", "))));
        }
        let keeps = move |addresses: &[SocketAddr]| keep(&file, key.to_hex(), addresses);
        Ok(Arc::new(Whereabouts::new(NodeId(key), found).with_told(told, Box::new(keeps))))
    };
    tokio::task::spawn_blocking(look_up).await.map_err(|error| PartError::Failed(error.to_string()))?
}

fn told(file: &Path, hub: &str) -> Vec<SocketAddr> {
    // A file that is missing or torn costs what it says.
    let told = std::fs::read(file).ok().and_then(|bytes| serde_json::from_slice::<Told>(&bytes).ok());
    told.filter(|told| told.hub == hub).map_or(Vec::new(), |told| told.addresses)
}

fn keep(file: &Path, hub: String, addresses: &[SocketAddr]) {
    let told = Told { hub, addresses: addresses.to_vec() };
    let kept = serde_json::to_vec(&told).map_err(Into::into);
    if let Err(error) = kept.and_then(|bytes| store::write_private(file, &bytes, false)) {
        tracing::info!(%error, "where the hubs are cannot be kept in {}", file.display());
    }
}

/// The addresses of this machine at which a hub that listens there is reached; none if it listens on one alone.
pub fn advertised(listen: SocketAddr) -> Vec<IpAddr> {
    if listen.ip().is_unspecified() { own_addresses(listen.is_ipv6()) } else { Vec::new() }
}

/// The addresses at which others reach a hub that listens on all: the one towards the rest of the network first, then those on other networks,
/// for not all machines are reached from all of them.
fn own_addresses(with_six: bool) -> Vec<IpAddr> {
    // Connecting a UDP socket sends nothing: it only has the kernel choose a route. The address is one for documentation.
    let outward = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
        .and_then(|socket| socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).and_then(|()| socket.local_addr()));
    let outward = outward.ok().map(|address| address.ip()).filter(|ip| !ip.is_unspecified() && !ip.is_loopback());
    let others =
        [on_four(&read("/proc/net/fib_trie")), if with_six { on_six(&read("/proc/net/if_inet6")) } else { Vec::new() }];
    let mut addresses: Vec<IpAddr> = outward.into_iter().collect();
    for address in others.into_iter().flatten() {
        if addresses.len() < OWN_MAX && !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses.push(Ipv4Addr::LOCALHOST.into());
    addresses
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// This machine's addresses of version 4, as the kernel's table of routes has them: `|-- ADDRESS`, and below `/32 host LOCAL`.
fn on_four(table: &str) -> Vec<IpAddr> {
    let mut at = None;
    let local = table.lines().filter_map(|line| {
        let line = line.trim();
        match line.strip_prefix("|-- ") {
            Some(address) => at = address.parse::<Ipv4Addr>().ok(),
            None if line == "/32 host LOCAL" => return at,
            None => {}
        }
        None
    });
    local.filter(|address| !address.is_loopback() && !address.is_link_local()).map(IpAddr::from).collect()
}

/// Those of version 6 that are not of one link or of this machine alone: address, number, prefix, scope, flags, name.
fn on_six(table: &str) -> Vec<IpAddr> {
    const GLOBAL: &str = "00";
    let global = table.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let bits = words.first().filter(|_| words.get(3) == Some(&GLOBAL))?;
        u128::from_str_radix(bits, 16).ok()
    });
    global.map(|bits| IpAddr::from(Ipv6Addr::from(bits))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Digest;

    #[test]
    fn a_machine_on_several_networks_names_them_all() {
        let table = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     +-- 127.0.0.0/8 2 0 2\n           |-- 127.0.0.1\n              /32 host LOCAL\n\
            \x20    |-- 192.0.2.2\n        /32 host LOCAL\n     |-- 192.0.2.255\n        /32 link BROADCAST\n\
            \x20    |-- 198.51.100.7\n        /32 host LOCAL\n     |-- 169.254.1.1\n        /32 host LOCAL\n";
        let told: Vec<String> = on_four(table).iter().map(ToString::to_string).collect();
        assert_eq!(told, ["192.0.2.2", "198.51.100.7"]);
        let table = "20010db8000000000000000000000001 02 40 00 80     eth0\n00000000000000000000000000000001 01 80 10 80       lo\n\
            fe800000000000000000000000000001 02 40 20 80     eth0\n";
        assert_eq!(on_six(table), ["2001:db8::1".parse::<IpAddr>().expect("an address")]);
        let own = own_addresses(false);
        assert_eq!(own.last(), Some(&Ipv4Addr::LOCALHOST.into()));
    }

    #[tokio::test]
    async fn what_a_hub_told_is_known_at_the_next_start() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let known = |key: &[u8], name: &str| KnownHub { addresses: vec![name.into()], key: Digest::of(key) };
        let file = folder.path().join(FILE);
        keep(&file, Digest::of(b"one").to_hex(), &["127.0.0.2:7".parse().expect("an address")]);
        let ports = async |hub| find(&hub, folder.path()).await.map(|hub| hub.addresses().len()).ok();
        assert_eq!(ports(known(b"one", "127.0.0.1:5")).await, Some(2));
        assert_eq!(ports(known(b"one", "no port")).await, Some(1), "as long as one is known");
        assert_eq!(ports(known(b"two", "127.0.0.1:5")).await, Some(1), "another hub's are of no use");
        assert_eq!(ports(known(b"two", "no port")).await, None);
        std::fs::write(&file, "{").expect("written");
        assert_eq!(ports(known(b"one", "127.0.0.1:5")).await, Some(1), "a torn file is no harm");
    }
}

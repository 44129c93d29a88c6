//! What was learnt of the ways to hubs, from each network that the user has been on: so that the first flight of the next day
//! fills the link, and does not flood it.
//!
//! A network is told by the address that this machine has there, without its last part, and by the router's own: a laptop that
//! comes home finds what it knew. What is remembered wrongly costs a round trip or two.

use crate::small_file;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path as FilePath, PathBuf};
use std::sync::Mutex;
use wire::flow::{Path, Paths};
use wire::lock;

/// Ways that are remembered; the ones longest unused are forgotten.
const WAYS_MAX: usize = 256;
/// Largest file that is read, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// All that is remembered.
#[derive(Debug)]
pub struct Networks {
    file: PathBuf,
    ways: Mutex<Vec<Way>>,
}

/// One network's way to one hub, the newest last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Way {
    network: String,
    hub: SocketAddr,
    up: Option<Learnt>,
    down: Option<Learnt>,
    /// It goes over TCP, since no UDP passes.
    #[serde(default)]
    tcp: bool,
}

/// A [`Path`] as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Learnt {
    bytes_per_s: u64,
    round_trip_us: u64,
}

impl From<Path> for Learnt {
    fn from(path: Path) -> Self {
        Self { bytes_per_s: path.rate, round_trip_us: path.round_trip / 1000 }
    }
}

impl From<Learnt> for Path {
    fn from(learnt: Learnt) -> Self {
        Self { rate: learnt.bytes_per_s, round_trip: learnt.round_trip_us * 1000 }
    }
}

impl Networks {
    /// What `file` has; nothing if it cannot be read.
    pub fn load(file: &FilePath) -> Self {
        let ways = small_file::learnt(file, FILE_BYTES_MAX, "links are learnt anew");
        Self { file: file.to_owned(), ways: Mutex::new(ways) }
    }

    /// What is known of the way to `hub` from the network that leads there now.
    pub fn paths(&self, hub: SocketAddr) -> Paths {
        let Some(network) = network_towards(hub) else { return Paths::default() };
        let ways = lock(&self.ways);
        // The one that was last used counts: over UDP, or not.
        let way = ways.iter().rev().find(|way| way.hub == hub && way.network == network);
        way.map_or(Paths::default(), |way| Paths {
            up: way.up.map(Into::into),
            down: way.down.map(Into::into),
            is_udp_blocked: way.tcp,
        })
    }

    /// Remembers what was learnt. What is not known now stays as it was.
    pub fn learnt(&self, hub: SocketAddr, paths: Paths) -> io::Result<()> {
        let Some(network) = network_towards(hub) else { return Ok(()) };
        let mut ways = lock(&self.ways);
        let tcp = paths.is_udp_blocked;
        let is_known = ways.iter().any(|way| way.hub == hub && way.network == network);
        if !is_known && paths == Paths::default() {
            return Ok(());
        }
        let is_same = |way: &Way| way.hub == hub && way.network == network && way.tcp == tcp;
        let is_newest = ways.iter().rev().find(|way| way.hub == hub && way.network == network).is_some_and(is_same);
        let before = ways.iter().position(is_same).map(|at| ways.remove(at));
        let (up, down) = before.as_ref().map_or((None, None), |way| (way.up, way.down));
        let (up, down) = (paths.up.map(Into::into).or(up), paths.down.map(Into::into).or(down));
        let way = Way { network, hub, up, down, tcp };
        let is_news = before.as_ref() != Some(&way) || !is_newest;
        ways.push(way);
        if ways.len() > WAYS_MAX {
            ways.remove(0);
        }
        if is_news { small_file::write(&self.file, &serde_json::to_vec(&*ways)?) } else { Ok(()) }
    }
}

/// This machine's address on the way to `hub`; `None` if there is no way now.
pub fn own_address(hub: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = if hub.is_ipv4() { [0, 0, 0, 0].into() } else { [0u16; 8].into() };
    // Connecting a datagram socket sends nothing: the kernel looks up the way.
    let own = UdpSocket::bind((any, 0)).and_then(|socket| socket.connect(hub).and_then(|()| socket.local_addr()));
    own.ok().map(|own| own.ip())
}

/// Names the network from which packets to `hub` leave; `None` if there is none now.
fn network_towards(hub: SocketAddr) -> Option<String> {
    let place = match own_address(hub)? {
        IpAddr::V4(own) => format!("{}/24", std::net::Ipv4Addr::from_bits(own.to_bits() & !0xff)),
        IpAddr::V6(own) => format!("{}/64", std::net::Ipv6Addr::from_bits(own.to_bits() >> 64 << 64)),
    };
    Some(format!("{place} {}", router().unwrap_or_default()))
}

/// The hardware address of the router of the default route, if there is one and it is known.
fn router() -> Option<String> {
    let routes = std::fs::read_to_string("/proc/net/route").ok()?;
    let default = routes.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let gateway = default
        .filter(|fields| fields.get(1) == Some(&"00000000"))
        .find_map(|fields| fields.get(2).copied().map(str::to_owned))?;
    let address = std::net::Ipv4Addr::from(u32::from_str_radix(&gateway, 16).ok()?.to_le_bytes());
    let neighbours = std::fs::read_to_string("/proc/net/arp").ok()?;
    let mut lines = neighbours.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let ours = lines.find(|fields| fields.first() == Some(&address.to_string().as_str()))?;
    ours.get(3).map(|hardware| (*hardware).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_learnt_is_there_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("networks.json");
        let hub: SocketAddr = "127.0.0.1:4433".parse().unwrap();
        let networks = Networks::load(&file);
        assert_eq!(networks.paths(hub), Paths::default());
        let up = Path { rate: 500_000, round_trip: 70_000_000 };
        networks.learnt(hub, Paths { up: Some(up), ..Paths::default() }).unwrap();
        let down = Path { rate: 2_000_000, ..up };
        networks.learnt(hub, Paths { down: Some(down), ..Paths::default() }).unwrap();
        assert_eq!(Networks::load(&file).paths(hub), Paths { up: Some(up), down: Some(down), is_udp_blocked: false });
        let slower = Paths { up: Some(Path { rate: 100_000, ..up }), down: None, is_udp_blocked: true };
        networks.learnt(hub, slower).unwrap();
        assert_eq!(Networks::load(&file).paths(hub), slower, "what was last used");
        networks.learnt(hub, Paths::default()).unwrap();
        assert_eq!(Networks::load(&file).paths(hub).up, Some(up), "UDP passes again");
        assert_eq!(Networks::load(&file).paths("127.0.0.1:9".parse().unwrap()), Paths::default());
        std::fs::write(&file, "{").unwrap();
        assert_eq!(Networks::load(&file).paths(hub), Paths::default(), "a torn file is no harm");
    }
}

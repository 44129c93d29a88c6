//! The relay as a pure machine: packets and the time go in, packets that have arrived come out.

use crate::link::Link;
use crate::pipe::{Fate, Nanos, Pipe};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Packets that may be under way; beyond, they are dropped.
const UNDER_WAY_MAX: usize = 200_000;
const HEADER_BYTES: usize = 20;
const PROTOCOL_UDP: u8 = 17;

/// What has passed a host's link: IP packets, with their headers. What is dropped or lost on the way up counts as sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Packets that the host sent.
    pub packets_up: u64,
    /// Their bytes.
    pub bytes_up: u64,
    /// Packets that reached the host.
    pub packets_down: u64,
    /// Their bytes.
    pub bytes_down: u64,
    /// Packets for which there was no room, both ways.
    pub dropped: u64,
    /// Packets that were lost on the way, both ways.
    pub lost: u64,
}

impl Traffic {
    /// What has passed since `before`.
    pub fn since(&self, before: &Traffic) -> Traffic {
        Traffic {
            packets_up: self.packets_up - before.packets_up,
            bytes_up: self.bytes_up - before.bytes_up,
            packets_down: self.packets_down - before.packets_down,
            bytes_down: self.bytes_down - before.bytes_down,
            dropped: self.dropped - before.dropped,
            lost: self.lost - before.lost,
        }
    }
}

#[derive(Debug)]
struct Node {
    address: Ipv4Addr,
    up: Pipe,
    down: Pipe,
    cut: bool,
    udp_blocked: bool,
    traffic: Traffic,
}

/// A packet on its way: through its sender's link, then through its receiver's.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct UnderWay {
    at: Nanos,
    /// Of those that arrive together the one that was sent first goes first.
    number: u64,
    node: usize,
    arrived: bool,
    packet: Vec<u8>,
}

/// All hosts' links.
#[derive(Debug)]
pub struct Net {
    seed: u64,
    nodes: Vec<Node>,
    under_way: BinaryHeap<Reverse<UnderWay>>,
    number: u64,
    lateness: Nanos,
}

impl Net {
    /// No hosts yet.
    pub fn new(seed: u64) -> Self {
        Self { seed, nodes: Vec::new(), under_way: BinaryHeap::new(), number: 0, lateness: 0 }
    }

    /// Adds a host.
    pub fn add(&mut self, address: Ipv4Addr, link: Link) {
        let seed = self.seed.wrapping_add(self.nodes.len() as u64 * 2);
        let (up, down) = (Pipe::new(link.up, seed), Pipe::new(link.down, seed + 1));
        self.nodes.push(Node { address, up, down, cut: false, udp_blocked: false, traffic: Traffic::default() });
    }

    /// Gives a host another link.
    pub fn set_link(&mut self, node: usize, link: Link) {
        self.nodes[node].up.reshape(link.up);
        self.nodes[node].down.reshape(link.down);
    }

    /// Whether all to and from a host is lost.
    pub fn set_cut(&mut self, node: usize, cut: bool) {
        self.nodes[node].cut = cut;
    }

    /// Whether UDP to and from a host is lost.
    pub fn set_udp_blocked(&mut self, node: usize, blocked: bool) {
        self.nodes[node].udp_blocked = blocked;
    }

    /// Where a host is from now on.
    pub fn set_address(&mut self, node: usize, address: Ipv4Addr) {
        self.nodes[node].address = address;
    }

    /// What has passed a host's link.
    pub fn traffic(&mut self, node: usize) -> Traffic {
        self.nodes[node].traffic
    }

    /// The longest that a packet was taken out too late, since this was last asked.
    pub fn take_lateness(&mut self) -> Duration {
        Duration::from_nanos(std::mem::take(&mut self.lateness))
    }

    /// A host sends a packet.
    pub fn send(&mut self, now: Nanos, from: usize, packet: Vec<u8>) {
        // What is not IPv4 goes nowhere.
        if packet.len() < HEADER_BYTES || packet[0] >> 4 != 4 {
            return;
        }
        let node = &mut self.nodes[from];
        node.traffic.packets_up += 1;
        node.traffic.bytes_up += packet.len() as u64;
        let fate = if node.passes(&packet) { node.up.offer(now, packet.len()) } else { Fate::Lost };
        let to = Ipv4Addr::new(packet[16], packet[17], packet[18], packet[19]);
        match (fate, self.nodes.iter().position(|node| node.address == to)) {
            (Fate::Arrives(at), Some(to)) => self.put(at, to, false, packet, from),
            (Fate::Arrives(_), None) => {}
            (Fate::Dropped, _) => self.nodes[from].traffic.dropped += 1,
            (Fate::Lost, _) => self.nodes[from].traffic.lost += 1,
        }
    }

    /// When [`Net::due`] has something to say next.
    pub fn next(&self) -> Option<Nanos> {
        self.under_way.peek().map(|next| next.0.at)
    }

    /// The packets that have arrived by `now`, in order, each with the host that it reached.
    pub fn due(&mut self, now: Nanos) -> Vec<(usize, Vec<u8>)> {
        let mut out = Vec::new();
        while self.next().is_some_and(|at| at <= now) {
            let Some(Reverse(UnderWay { at, node, arrived, packet, .. })) = self.under_way.pop() else { break };
            self.lateness = self.lateness.max(now - at);
            let reached = &mut self.nodes[node];
            if arrived {
                reached.traffic.packets_down += 1;
                reached.traffic.bytes_down += packet.len() as u64;
                out.push((node, packet));
                continue;
            }
            match if reached.passes(&packet) { reached.down.offer(at, packet.len()) } else { Fate::Lost } {
                Fate::Arrives(at) => self.put(at, node, true, packet, node),
                Fate::Dropped => reached.traffic.dropped += 1,
                Fate::Lost => reached.traffic.lost += 1,
            }
        }
        out
    }

    fn put(&mut self, at: Nanos, node: usize, arrived: bool, packet: Vec<u8>, blamed: usize) {
        if self.under_way.len() >= UNDER_WAY_MAX {
            self.nodes[blamed].traffic.dropped += 1;
            return;
        }
        self.number += 1;
        self.under_way.push(Reverse(UnderWay { at, number: self.number, node, arrived, packet }));
    }
}

impl Node {
    fn passes(&self, packet: &[u8]) -> bool {
        let is_stopped = self.cut || self.udp_blocked && packet[9] == PROTOCOL_UDP;
        !is_stopped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Shape;

    fn packet(to: [u8; 4], protocol: u8, len: usize) -> Vec<u8> {
        let mut packet = vec![0; len];
        packet[0] = 0x45;
        packet[9] = protocol;
        packet[16..20].copy_from_slice(&to);
        packet
    }

    fn net() -> Net {
        let slow = Shape { delay: Duration::from_millis(5), rate: Some(8_000_000), ..Shape::NONE };
        let mut net = Net::new(1);
        net.add([10, 0, 0, 1].into(), Link { up: slow, down: Shape::NONE });
        net.add([10, 0, 0, 2].into(), Link { up: Shape::NONE, down: slow });
        net
    }

    #[test]
    fn both_links_are_passed() {
        let mut net = net();
        net.send(0, 0, packet([10, 0, 0, 2], 6, 1000));
        assert_eq!(net.next(), Some(6_000_000));
        assert_eq!(net.due(11_999_999), []);
        assert_eq!(net.next(), Some(12_000_000));
        assert_eq!(net.due(12_000_000).len(), 1);
        assert_eq!((net.traffic(0).bytes_up, net.traffic(1).bytes_down, net.next()), (1000, 1000, None));
        net.send(20_000_000, 1, packet([10, 0, 0, 1], 6, 1000));
        assert_eq!(net.due(20_000_000).len(), 1, "the other way there is no delay");
    }

    #[test]
    fn a_cut_and_a_block_lose_and_say_nothing() {
        let mut net = net();
        net.set_udp_blocked(1, true);
        net.send(0, 0, packet([10, 0, 0, 2], PROTOCOL_UDP, 100));
        net.send(0, 0, packet([10, 0, 0, 2], 6, 100));
        net.send(0, 0, packet([10, 0, 0, 9], 6, 100));
        net.send(0, 0, vec![0x60; 60]);
        assert_eq!(net.due(u64::MAX / 2).len(), 1);
        net.set_cut(0, true);
        net.send(u64::MAX / 2, 0, packet([10, 0, 0, 2], 6, 100));
        assert_eq!((net.next(), net.traffic(0).lost, net.traffic(1).lost), (None, 1, 1));
    }

    #[test]
    fn who_moved_is_reached_at_the_new_address_only() {
        let mut net = net();
        net.set_address(1, [10, 0, 1, 2].into());
        net.send(0, 0, packet([10, 0, 0, 2], 6, 100));
        net.send(0, 0, packet([10, 0, 1, 2], 6, 100));
        assert_eq!(net.due(u64::MAX / 2).len(), 1);
    }
}

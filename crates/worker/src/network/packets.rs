//! What a packet of a task is, and packets to it. Bytes from a task are hostile: what is not well-formed is nothing.

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpProtocol, Ipv4Packet, Ipv4Repr, TcpPacket, UdpPacket, UdpRepr};
use std::net::SocketAddrV4;

const HOPS: u8 = 64;

/// Where a packet comes from, and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Way {
    /// The task's end.
    pub from: SocketAddrV4,
    /// The other end.
    pub to: SocketAddrV4,
}

/// What a task sends.
#[derive(Debug, PartialEq, Eq)]
pub enum Packet {
    /// It wants a connection.
    Opens(Way),
    /// It goes on with one.
    Tcp,
    /// A datagram.
    Datagram(Way, Vec<u8>),
}

/// What these bytes are, if they are anything that is passed on.
pub fn read(bytes: &[u8]) -> Option<Packet> {
    let packet = Ipv4Packet::new_checked(bytes).ok()?;
    if packet.version() != 4 || packet.more_frags() || packet.frag_offset() != 0 {
        return None;
    }
    let (from, to) = (packet.src_addr(), packet.dst_addr());
    let way = |from_port, to_port| Way { from: SocketAddrV4::new(from, from_port), to: SocketAddrV4::new(to, to_port) };
    match packet.next_header() {
        IpProtocol::Tcp => {
            let tcp = TcpPacket::new_checked(packet.payload()).ok()?;
            let opens = tcp.syn() && !tcp.ack() && !tcp.rst();
            Some(if opens { Packet::Opens(way(tcp.src_port(), tcp.dst_port())) } else { Packet::Tcp })
        }
        IpProtocol::Udp => {
            let udp = UdpPacket::new_checked(packet.payload()).ok()?;
            Some(Packet::Datagram(way(udp.src_port(), udp.dst_port()), udp.payload().to_vec()))
        }
        _ => None,
    }
}

/// A datagram to the task, which takes it for one of the other end of its way.
pub fn datagram(way: Way, payload: &[u8]) -> Vec<u8> {
    let udp = UdpRepr { src_port: way.to.port(), dst_port: way.from.port() };
    let ip = Ipv4Repr {
        src_addr: *way.to.ip(),
        dst_addr: *way.from.ip(),
        next_header: IpProtocol::Udp,
        payload_len: udp.header_len() + payload.len(),
        hop_limit: HOPS,
    };
    let checks = ChecksumCapabilities::default();
    let mut bytes = vec![0; ip.buffer_len() + ip.payload_len];
    let mut packet = Ipv4Packet::new_unchecked(&mut bytes[..]);
    ip.emit(&mut packet, &checks);
    let (from, to) = (ip.src_addr.into(), ip.dst_addr.into());
    let fill = |room: &mut [u8]| room.copy_from_slice(payload);
    udp.emit(&mut UdpPacket::new_unchecked(packet.payload_mut()), &from, &to, payload.len(), fill, &checks);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let way = Way { from: "1.2.3.4:53".parse().expect("one"), to: "10.0.2.15:4000".parse().expect("one") };
        let back = Way { from: way.to, to: way.from };
        assert_eq!(read(&datagram(back, b"answer")), Some(Packet::Datagram(way, b"answer".to_vec())));
    }

    #[test]
    fn nonsense_is_nothing() {
        let good =
            datagram(Way { from: "1.2.3.4:5".parse().expect("one"), to: "6.7.8.9:10".parse().expect("one") }, b"x");
        for len in 0..good.len() {
            assert_eq!(read(&good[..len]), None, "{len}");
        }
        // A fragment; another version; another protocol.
        for (at, byte) in [(6, 0x20), (0, 0x65), (9, 1)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert_eq!(read(&bad), None, "{at}");
        }
    }
}

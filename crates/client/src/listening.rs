//! The ports of this machine's loopback address on which somebody listens by TCP, or that somebody has by UDP: a task that wants to
//! talk to one of them must be here.

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use wire::lock;

/// `SOCK_DIAG_BY_FAMILY`, and the end of an answer.
const BY_FAMILY: u16 = 20;
const DONE: u16 = 3;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;
/// The protocols, and in which states a socket is a service's: one bit for each. One of UDP that is not connected is closed.
const TCP: (u8, u32) = (6, 1 << 10);
const UDP: (u8, u32) = (17, 1 << 7);
const IPV4: u8 = 2;
const IPV6: u8 = 10;
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = 72;
/// Of an answer: the family, the port, the address; and how long it is at least.
const FAMILY: usize = HEADER_BYTES;
const PORT: usize = HEADER_BYTES + 4;
const ADDRESS: usize = HEADER_BYTES + 8;
const ANSWER_BYTES: usize = HEADER_BYTES + 72;
/// Most packets of an answer.
const PACKETS_MAX: usize = 256;
/// Ports that are told at most.
const PORTS_MAX: usize = 1024;

/// By which the kernel is asked, while nobody does: to make and to close one takes longer than the question.
static IDLE: Mutex<Option<OwnedFd>> = Mutex::new(None);

/// How long what was told of UDP is good for one command after the other: the kernel goes through a table of all ports to tell it, which
/// takes thirty microseconds for each family.
const UDP_AGE_MAX: Duration = Duration::from_millis(50);

/// What was last told of UDP, and when it was asked for.
static UDP_KNOWN: Mutex<Option<(Instant, Vec<u16>)>> = Mutex::new(None);

/// The ports, sorted; none if the kernel does not say.
pub fn ports() -> Vec<u16> {
    let mut ports = of(TCP);
    let known = lock(&UDP_KNOWN).clone().filter(|(asked, _)| asked.elapsed() < UDP_AGE_MAX);
    let (_, of_udp) = known.unwrap_or_else(|| {
        let told = (Instant::now(), of(UDP));
        *lock(&UDP_KNOWN) = Some(told.clone());
        told
    });
    ports.extend(of_udp);
    ports.sort_unstable();
    ports.dedup();
    ports.truncate(PORTS_MAX);
    ports
}

fn of(protocol: (u8, u32)) -> Vec<u16> {
    [IPV4, IPV6].into_iter().flat_map(|family| ask(protocol, family).unwrap_or_default()).collect()
}

fn ask(protocol: (u8, u32), family: u8) -> rustix::io::Result<Vec<u16>> {
    let kept = lock(&IDLE).take();
    let socket = kept.map_or_else(socket, Ok)?;
    rustix::net::send(&socket, &request(protocol, family), SendFlags::empty())?;
    let (mut ports, mut buffer) = (Vec::new(), vec![0; 32 << 10]);
    for _ in 0..PACKETS_MAX {
        // The kernel has answered before the request returned: there is nothing to wait for.
        let (count, _) = rustix::net::recv(&socket, &mut buffer[..], RecvFlags::DONTWAIT)?;
        match read(&buffer[..count], &mut ports) {
            Read::More => {}
            Read::All => {
                // Nothing is left in it that a later question could take for its answer.
                *lock(&IDLE) = Some(socket);
                break;
            }
            Read::Failed => break,
        }
    }
    Ok(ports)
}

fn socket() -> rustix::io::Result<OwnedFd> {
    let protocol = Some(netlink::SOCK_DIAG);
    rustix::net::socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, protocol)
}

fn request((protocol, states): (u8, u32), family: u8) -> [u8; REQUEST_BYTES] {
    let mut request = [0; REQUEST_BYTES];
    request[..4].copy_from_slice(&(REQUEST_BYTES as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    request[6..8].copy_from_slice(&DUMP.to_ne_bytes());
    request[FAMILY..FAMILY + 2].copy_from_slice(&[family, protocol]);
    request[HEADER_BYTES + 4..HEADER_BYTES + 8].copy_from_slice(&states.to_ne_bytes());
    request
}

/// What a packet of an answer is.
enum Read {
    /// More follow.
    More,
    /// The last one.
    All,
    /// No answer.
    Failed,
}

/// Takes the ports out of a packet.
fn read(mut packet: &[u8], ports: &mut Vec<u16>) -> Read {
    while let Some(header) = packet.first_chunk::<HEADER_BYTES>() {
        let len = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        if kind == DONE {
            return Read::All;
        }
        if kind != BY_FAMILY || len < HEADER_BYTES || len > packet.len() {
            return Read::Failed;
        }
        ports.extend(port(&packet[..len]));
        packet = packet.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Read::More
}

/// The port of a socket that can be reached at the loopback address.
fn port(answer: &[u8]) -> Option<u16> {
    let answer = answer.get(..ANSWER_BYTES)?;
    let ip = match answer[FAMILY] {
        IPV4 => IpAddr::from(Ipv4Addr::from(*answer[ADDRESS..].first_chunk::<4>()?)),
        _ => IpAddr::from(Ipv6Addr::from(*answer[ADDRESS..].first_chunk::<16>()?)).to_canonical(),
    };
    let port = u16::from_be_bytes([answer[PORT], answer[PORT + 1]]);
    (ip.is_loopback() || ip.is_unspecified()).then_some(port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};

    #[test]
    fn who_listens_is_told() {
        let one = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let port = one.local_addr().expect("an address").port();
        if ports().is_empty() {
            println!("SKIPPED: this kernel does not tell who listens");
            return;
        }
        assert!(ports().contains(&port));
        drop(one);
        assert!(!ports().contains(&port));
        if let Ok(six) = TcpListener::bind("[::1]:0") {
            assert!(ports().contains(&six.local_addr().expect("an address").port()));
        }
    }

    #[test]
    fn who_has_a_port_by_udp_is_told() {
        let one = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let port = one.local_addr().expect("an address").port();
        if of(UDP).is_empty() {
            println!("SKIPPED: this kernel does not tell who has ports by UDP");
            return;
        }
        assert!(of(UDP).contains(&port));
        // Who is connected hears nobody else.
        one.connect("127.0.0.1:9").expect("an address");
        assert!(!of(UDP).contains(&port));
    }
}

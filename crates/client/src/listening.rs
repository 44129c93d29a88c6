//! The ports of this machine's loopback address that services have, and its processes: a task that wants to talk to one of them must be here.
//!
//! A launch lists those on which somebody listens by TCP. For UDP the kernel goes through a table of all ports, which takes thirty
//! microseconds for each family: so it is asked only when a task is about to talk to a port that is not listed and that nobody in the task
//! has ([`answer`]), and then of TCP as well, for services that came later.

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use rustix::process::{Pid, test_kill_process, test_kill_process_group};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use wire::lock;
use wire::message::{ServiceAnswer, ServiceRequest};

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

/// The ports on which somebody listens by TCP, sorted; none if the kernel does not say.
pub fn ports() -> Vec<u16> {
    let mut ports = of(TCP);
    ports.sort_unstable();
    ports.dedup();
    ports.truncate(PORTS_MAX);
    ports
}

/// The answer to a task that asks whether somebody has a port here, by TCP or UDP, or whether there is a process or a group of this number.
pub fn answer(ServiceRequest { number, port, process }: ServiceRequest) -> ServiceAnswer {
    let has_port = || u16::try_from(port).is_ok_and(|port| [TCP, UDP].into_iter().any(|by| of(by).contains(&port)));
    let is_there = if process == 0 { has_port() } else { is_process(process) };
    ServiceAnswer { number, is_there }
}

/// Whether there is a process of this number, or with a negative one a group, whoever may signal it.
fn is_process(number: i32) -> bool {
    let Some(pid) = i32::try_from(number.unsigned_abs()).ok().and_then(Pid::from_raw) else { return false };
    let tried = match number {
        1.. => test_kill_process(pid),
        // -1 would be all that there are.
        ..-1 => test_kill_process_group(pid),
        _ => return false,
    };
    matches!(tried, Ok(()) | Err(Errno::PERM))
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
    fn whether_there_is_a_service_is_answered() {
        let one = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let port = one.local_addr().expect("an address").port();
        if of(UDP).is_empty() {
            println!("SKIPPED: this kernel does not tell who has ports by UDP");
            return;
        }
        let is_there = |port: u16| answer(ServiceRequest { number: 7, port: port.into(), process: 0 });
        assert_eq!(is_there(port), ServiceAnswer { number: 7, is_there: true });
        // Who is connected hears nobody else.
        one.connect("127.0.0.1:9").expect("an address");
        assert!(!is_there(port).is_there);
        let other = TcpListener::bind("127.0.0.1:0").expect("a socket");
        assert!(is_there(other.local_addr().expect("an address").port()).is_there);
        assert!(!answer(ServiceRequest { number: 7, port: u32::MAX, process: 0 }).is_there);
    }

    #[test]
    fn whether_there_is_a_process_is_answered() {
        let is_there = |process: i32| answer(ServiceRequest { number: 7, port: 0, process }).is_there;
        let own = std::process::id() as i32;
        assert!(is_there(own) && is_there(1));
        let group = rustix::process::getpgrp().as_raw_nonzero().get();
        assert!(is_there(-group));
        let mut child = std::process::Command::new("true").spawn().expect("a process");
        child.wait().expect("it ends");
        assert!(!is_there(child.id() as i32), "it has ended");
        assert!(![-1, i32::MIN, i32::MAX, -i32::MAX].into_iter().any(is_there));
    }
}

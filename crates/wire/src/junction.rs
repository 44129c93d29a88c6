//! The socket of an endpoint: UDP, and tunnels that carry datagrams where UDP does not pass ([`crate::tunnel`]).
//!
//! To QUIC a tunnel is an address. At the side that connects it takes the place of the address that it leads to, so that a
//! connection goes on through it without knowing. At the side that listens each has an address of its own, from a range that
//! leads nowhere (RFC 6666), and a connection that comes through it now has migrated there.

use crate::lock;
use bytes::Bytes;
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use tokio::sync::mpsc;

/// Datagrams that wait for one tunnel; further ones are dropped, as by a queue before a link.
const OUTGOING_MAX: usize = 512;
/// Bytes that came through tunnels and wait to be taken; further ones are dropped, as by a socket.
const ARRIVED_BYTES_MAX: usize = 8 << 20;

/// The same of one tunnel: who floods takes nobody else's room.
const ARRIVED_BYTES_OF_ONE_MAX: usize = 1 << 20;

/// UDP and tunnels as one socket.
#[derive(Debug)]
pub(crate) struct Junction {
    udp: Arc<dyn AsyncUdpSocket>,
    tunnels: Arc<Tunnels>,
}

/// The tunnels of an endpoint. They outlive its sockets.
#[derive(Debug, Default)]
pub(crate) struct Tunnels {
    open: Mutex<HashMap<SocketAddr, Open>>,
    /// How many are open, to be read without a lock.
    count: AtomicUsize,
    made: AtomicU64,
    arrived: Mutex<Arrived>,
}

#[derive(Debug)]
struct Open {
    number: u64,
    outgoing: mpsc::Sender<Bytes>,
    real: SocketAddr,
}

#[derive(Debug, Default)]
struct Arrived {
    datagrams: VecDeque<(SocketAddr, Bytes)>,
    bytes: usize,
    /// Of those, by tunnel.
    of_one: HashMap<SocketAddr, usize>,
    waker: Option<Waker>,
}

impl Arrived {
    fn taken(&mut self, from: SocketAddr, bytes: usize) {
        if let Some(own) = self.of_one.get_mut(&from) {
            *own -= bytes;
            if *own == 0 {
                self.of_one.remove(&from);
            }
        }
    }
}

/// One end of an open tunnel. It is closed when this is dropped.
#[derive(Debug)]
pub(crate) struct TunnelEnd {
    tunnels: Arc<Tunnels>,
    address: SocketAddr,
    number: u64,
    /// What is to be sent; ends when another tunnel takes this one's place.
    pub outgoing: mpsc::Receiver<Bytes>,
}

impl Junction {
    pub fn new(udp: Arc<dyn AsyncUdpSocket>, tunnels: Arc<Tunnels>) -> Self {
        Self { udp, tunnels }
    }
}

impl Tunnels {
    /// Opens a tunnel to `real` that takes all that is sent to `address`, instead of the one that did.
    pub fn open(self: &Arc<Self>, address: SocketAddr, real: SocketAddr) -> TunnelEnd {
        let (sender, outgoing) = mpsc::channel(OUTGOING_MAX);
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let mut open = lock(&self.open);
        open.insert(address, Open { number, outgoing: sender, real });
        self.count.store(open.len(), Ordering::Release);
        TunnelEnd { tunnels: self.clone(), address, number, outgoing }
    }

    /// Opens a tunnel that came from `real`, at an address of its own.
    pub fn open_from(self: &Arc<Self>, real: SocketAddr) -> TunnelEnd {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let [a, b, c, d] = [48, 32, 16, 0].map(|shift| (number >> shift) as u16);
        self.open(SocketAddr::new(Ipv6Addr::new(NOWHERE, 0, 0, 0, a, b, c, d).into(), real.port()), real)
    }

    /// Closes the tunnel at `address`.
    pub fn close(&self, address: SocketAddr) {
        let mut open = lock(&self.open);
        open.remove(&address);
        self.count.store(open.len(), Ordering::Release);
    }

    /// Where the tunnel at `address` leads to, or comes from; `None` if there is none.
    pub fn real(&self, address: SocketAddr) -> Option<SocketAddr> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        lock(&self.open).get(&address).map(|open| open.real)
    }

    /// Whether a tunnel takes what is to be sent. It may drop it: so may any link.
    fn take(&self, transmit: &Transmit<'_>) -> bool {
        if is_nowhere(transmit.destination.ip()) || self.count.load(Ordering::Acquire) > 0 {
            let open = lock(&self.open);
            if let Some(open) = open.get(&transmit.destination) {
                let size = transmit.segment_size.unwrap_or(transmit.contents.len()).max(1);
                for datagram in transmit.contents.chunks(size) {
                    let _ = open.outgoing.try_send(Bytes::copy_from_slice(datagram));
                }
                return true;
            }
        }
        is_nowhere(transmit.destination.ip())
    }

    fn arrive(&self, from: SocketAddr, datagram: Bytes) {
        let mut arrived = lock(&self.arrived);
        let own = arrived.of_one.get(&from).map_or(0, |bytes| *bytes) + datagram.len();
        if arrived.bytes + datagram.len() > ARRIVED_BYTES_MAX || own > ARRIVED_BYTES_OF_ONE_MAX {
            return;
        }
        arrived.of_one.insert(from, own);
        arrived.bytes += datagram.len();
        arrived.datagrams.push_back((from, datagram));
        arrived.waker.take().into_iter().for_each(Waker::wake);
    }

    /// Fills the buffers with what has come through tunnels; has the task woken when there is something if there is nothing.
    fn receive(&self, cx: &Context<'_>, bufs: &mut [IoSliceMut<'_>], meta: &mut [RecvMeta]) -> usize {
        let mut arrived = lock(&self.arrived);
        let mut filled = 0;
        for (buffer, meta) in bufs.iter_mut().zip(meta) {
            let Some((from, datagram)) = arrived.datagrams.pop_front() else { break };
            arrived.bytes -= datagram.len();
            arrived.taken(from, datagram.len());
            // Larger than any buffer is larger than any packet of ours.
            let len = datagram.len().min(buffer.len());
            buffer[..len].copy_from_slice(&datagram[..len]);
            *meta = RecvMeta { addr: from, len, stride: len, ecn: None, dst_ip: None };
            filled += 1;
        }
        if filled == 0 {
            arrived.waker = Some(cx.waker().clone());
        }
        filled
    }
}

impl TunnelEnd {
    /// A datagram came out of the tunnel.
    pub fn arrived(&self, datagram: Bytes) {
        if !datagram.is_empty() {
            self.tunnels.arrive(self.address, datagram);
        }
    }
}

impl Drop for TunnelEnd {
    fn drop(&mut self) {
        let mut open = lock(&self.tunnels.open);
        if open.get(&self.address).is_some_and(|open| open.number == self.number) {
            open.remove(&self.address);
        }
        self.tunnels.count.store(open.len(), Ordering::Release);
    }
}

impl AsyncUdpSocket for Junction {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.udp.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        if self.tunnels.take(transmit) { Ok(()) } else { self.udp.try_send(transmit) }
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        match self.tunnels.receive(cx, bufs, meta) {
            0 => self.udp.poll_recv(cx, bufs, meta),
            filled => Poll::Ready(Ok(filled)),
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.udp.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.udp.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.udp.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.udp.may_fragment()
    }
}

/// The first word of the addresses that lead nowhere, 100::/64.
const NOWHERE: u16 = 0x100;

fn is_nowhere(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.segments()[..4] == [NOWHERE, 0, 0, 0])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transmit(destination: SocketAddr, contents: &[u8], segment_size: Option<usize>) -> Transmit<'_> {
        Transmit { destination, ecn: None, contents, segment_size, src_ip: None }
    }

    #[test]
    fn the_newest_tunnel_takes_what_is_sent_to_its_address() {
        let tunnels = Arc::new(Tunnels::default());
        let hub: SocketAddr = "192.0.2.1:7433".parse().unwrap();
        assert!(!tunnels.take(&transmit(hub, b"abcde", Some(2))));
        let mut first = tunnels.open(hub, hub);
        assert!(tunnels.take(&transmit(hub, b"abcde", Some(2))));
        let sent: Vec<_> = std::iter::from_fn(|| first.outgoing.try_recv().ok()).collect();
        assert_eq!(sent, [&b"ab"[..], b"cd", b"e"]);
        let mut second = tunnels.open(hub, hub);
        tunnels.take(&transmit(hub, b"x", None));
        assert!(first.outgoing.try_recv().is_err() && second.outgoing.try_recv().is_ok());
        drop(first);
        assert_eq!(tunnels.real(hub), Some(hub), "the one that was replaced closes nothing");
        drop(second);
        assert_eq!((tunnels.real(hub), tunnels.count.load(Ordering::Acquire)), (None, 0));
    }

    #[test]
    fn what_is_meant_for_a_closed_tunnel_goes_nowhere() {
        let tunnels = Arc::new(Tunnels::default());
        let real: SocketAddr = "192.0.2.9:5000".parse().unwrap();
        let (one, two) = (tunnels.open_from(real), tunnels.open_from(real));
        assert_ne!(one.address, two.address);
        assert_eq!(tunnels.real(one.address), Some(real));
        let address = one.address;
        drop(one);
        assert!(tunnels.take(&transmit(address, b"x", None)));
    }

    #[test]
    fn what_came_is_taken_in_order_and_bounded() {
        let tunnels = Arc::new(Tunnels::default());
        let end = tunnels.open_from("192.0.2.9:5000".parse().unwrap());
        end.arrived(Bytes::from_static(b"one"));
        end.arrived(Bytes::from_static(b"three"));
        let (mut a, mut b) = ([0; 4], [0; 4]);
        let mut bufs = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
        let mut meta = [RecvMeta::default(); 2];
        let cx = Context::from_waker(Waker::noop());
        assert_eq!(tunnels.receive(&cx, &mut bufs, &mut meta), 2);
        assert_eq!((meta[0].len, meta[1].len, meta[0].addr), (3, 4, end.address));
        assert_eq!((&bufs[0][..3], &bufs[1][..]), (&b"one"[..], &b"thre"[..]));
        assert_eq!(tunnels.receive(&cx, &mut bufs, &mut meta), 0);
        (0..ARRIVED_BYTES_MAX / 1000 + 5).for_each(|_| end.arrived(Bytes::from(vec![1; 1000])));
        assert!(lock(&tunnels.arrived).bytes <= ARRIVED_BYTES_OF_ONE_MAX);
        let other = tunnels.open_from("192.0.2.10:5000".parse().unwrap());
        other.arrived(Bytes::from_static(b"four"));
        assert_eq!(lock(&tunnels.arrived).of_one[&other.address], 4, "one that floods takes no other one's room");
        while tunnels.receive(&cx, &mut bufs, &mut meta) > 0 {}
        assert!(lock(&tunnels.arrived).of_one.is_empty() && lock(&tunnels.arrived).bytes == 0);
    }
}

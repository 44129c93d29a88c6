//! A link that can be cut: datagrams pass through a relay, until it is told to drop them all.
//!
//! Each sender is given a socket of its own towards the other end, as by a router that translates addresses. Nobody is told of
//! a cut: packets only stop coming, which is what a pulled cable looks like from both ends.

use crate::error::{Context, Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Largest datagram.
const DATAGRAM_BYTES_MAX: usize = 65536;
/// Most senders: beyond them the one is forgotten from which nothing has come for longest.
const SENDERS_MAX: usize = 64;
/// How often the relay looks whether it is to end, in nanoseconds.
const LOOK_NS: i64 = 100_000_000;

/// A relay, until it is dropped.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct State {
    cut: AtomicBool,
    ended: AtomicBool,
}

impl Relay {
    /// A relay to `target`, an address and port.
    pub fn to(target: &str) -> Result<Self> {
        let what = || "cannot set up a relay".to_owned();
        let target: SocketAddr =
            target.parse().map_err(|_| Error::Product(format!("the hub's address is none: {target}")))?;
        let front = UdpSocket::bind("127.0.0.1:0").context(what)?;
        front.set_nonblocking(true).context(what)?;
        let address = front.local_addr().context(what)?;
        let state = Arc::new(State::default());
        let shared = state.clone();
        let thread = std::thread::Builder::new().name("relay".into()).spawn(move || serve(&front, target, &shared));
        Ok(Self { address, state, thread: Some(thread.context(what)?) })
    }

    /// Where to send to.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Drops everything, both ways, from now on.
    pub fn cut(&self) {
        self.state.cut.store(true, Ordering::SeqCst);
    }

    /// Passes everything on again.
    pub fn mend(&self) {
        self.state.cut.store(false, Ordering::SeqCst);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Passes datagrams on until the end. What cannot be sent is lost, as on any link.
fn serve(front: &UdpSocket, target: SocketAddr, state: &State) {
    let mut senders: Vec<(SocketAddr, UdpSocket)> = Vec::new();
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    while !state.ended.load(Ordering::SeqCst) {
        let mut polled = vec![PollFd::new(front, PollFlags::IN)];
        polled.extend(senders.iter().map(|(_, back)| PollFd::new(back, PollFlags::IN)));
        let _ = rustix::event::poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: LOOK_NS }));
        while let Ok((count, from)) = front.recv_from(&mut buffer) {
            let cut = state.cut.load(Ordering::SeqCst);
            if let Some(back) = back_of(&mut senders, from, target).filter(|_| !cut) {
                let _ = back.send(&buffer[..count]);
            }
        }
        for (sender, back) in &senders {
            while let Ok(count) = back.recv(&mut buffer) {
                if !state.cut.load(Ordering::SeqCst) {
                    let _ = front.send_to(&buffer[..count], sender);
                }
            }
        }
    }
}

/// The socket towards the target for datagrams of `from`; made for the first one.
fn back_of(senders: &mut Vec<(SocketAddr, UdpSocket)>, from: SocketAddr, target: SocketAddr) -> Option<&UdpSocket> {
    if let Some(at) = senders.iter().position(|(sender, _)| *sender == from) {
        // Those heard last are at the end.
        let known = senders.remove(at);
        senders.push(known);
        return senders.last().map(|(_, back)| back);
    }
    if senders.len() >= SENDERS_MAX {
        senders.remove(0);
    }
    let back = UdpSocket::bind("127.0.0.1:0").ok()?;
    back.connect(target).ok()?;
    back.set_nonblocking(true).ok()?;
    senders.push((from, back));
    senders.last().map(|(_, back)| back)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_cut_link_carries_nothing_either_way() {
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        for socket in [&far, &near] {
            socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        }
        let relay = Relay::to(&far.local_addr().unwrap().to_string()).unwrap();
        near.connect(relay.address()).unwrap();
        let mut buffer = [0; 8];
        near.send(b"one").unwrap();
        let (count, from) = far.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..count], b"one");
        far.send_to(b"two", from).unwrap();
        assert_eq!(near.recv(&mut buffer).unwrap(), 3);
        relay.cut();
        near.send(b"lost").unwrap();
        far.send_to(b"lost", from).unwrap();
        assert!(far.recv(&mut buffer).is_err() && near.recv(&mut buffer).is_err());
        relay.mend();
        near.send(b"three").unwrap();
        assert_eq!(far.recv(&mut buffer).unwrap(), 5);
    }
}

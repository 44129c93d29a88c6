//! The network of a task whose client lets it have one (`remrun --net`).
//!
//! The task has an interface of its own ([`crate::sandbox::Event::Network`]), with nothing behind it but this: its connections end
//! here, in a TCP stack of the worker's, and are made anew by sockets of the worker. So a task needs no right over the machine's network, and
//! what it may reach is decided where they are made ([`reachable`]). Names are looked up by the machine's own resolver.

mod connections;
mod datagrams;
mod device;
mod packets;
mod reachable;

use crate::sandbox::{NETWORK_ADDRESS, NETWORK_GATEWAY, NETWORK_MTU};
use base::TaskId;
use connections::Connections;
use datagrams::Datagrams;
use device::{PACKETS_MAX, Queues};
use packets::{Packet, Way};
use smoltcp::iface::{Config, Interface};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpCidr};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Bits of the task's address that its network has.
const NETWORK_BITS: u8 = 24;
const DOMAIN: u16 = 53;
/// Where the machine's own resolver is named, and how much of that is read, bytes.
const RESOLVERS: &str = "/etc/resolv.conf";
const RESOLVERS_BYTES_MAX: u64 = 64 << 10;
/// So many places to which a task connects are named in the log.
const NAMED_MAX: u32 = 64;

/// A task's network, until it is dropped.
#[derive(Debug)]
pub struct Network(JoinHandle<()>);

impl Network {
    /// Serves the interface behind `device`, one of `task`. Must run in a tokio runtime.
    pub fn serve(device: OwnedFd, task: TaskId) -> io::Result<Self> {
        let exchange = Exchange::new(device, task)?;
        Ok(Self(tokio::spawn(exchange.run())))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// All that goes between a task and the network.
struct Exchange {
    device: AsyncFd<OwnedFd>,
    queues: Queues,
    interface: Interface,
    connections: Connections,
    datagrams: Datagrams,
    wake: Arc<Notify>,
    log: Log,
}

impl Exchange {
    fn new(device: OwnedFd, task: TaskId) -> io::Result<Self> {
        let mut queues = Queues::default();
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = rand::random();
        let mut interface = Interface::new(config, &mut queues, Instant::now());
        interface.update_ip_addrs(|addresses| {
            let _ = addresses.push(IpCidr::new(NETWORK_GATEWAY.into(), NETWORK_BITS));
        });
        // What goes anywhere is taken for this end's own.
        interface.set_any_ip(true);
        interface.routes_mut().add_default_ipv4_route(NETWORK_GATEWAY).map_err(io::Error::other)?;
        let wake = Arc::new(Notify::new());
        Ok(Self {
            // SAFETY: what the AsyncFd holds keeps this one descriptor open.
            device: unsafe { AsyncFd::register(device) }?,
            queues,
            interface,
            connections: Connections::new(wake.clone()),
            datagrams: Datagrams::default(),
            wake,
            log: Log { task, left: NAMED_MAX },
        })
    }

    async fn run(mut self) {
        loop {
            self.turn();
            let next = self.interface.poll_delay(Instant::now(), self.connections.sockets());
            let is_full = self.queues.coming.len() >= PACKETS_MAX;
            tokio::select! {
                ready = self.device.readable(), if !is_full => match ready {
                    Ok(mut ready) => {
                        let device = ready.get_inner();
                        if let Err(error) = take_all(device, &mut self.queues, |packet| {
                            on_packet(packet, &mut self.connections, &mut self.datagrams, &mut self.log)
                        }) {
                            match error.kind() {
                                io::ErrorKind::WouldBlock => ready.clear_ready(),
                                _ => return,
                            }
                        }
                    }
                    Err(_) => return,
                },
                Some((way, payload)) = self.datagrams.next() => {
                    if self.queues.going.len() < PACKETS_MAX {
                        self.queues.going.push_back(packets::datagram(way, &payload));
                    }
                }
                () = self.wake.notified() => {}
                () = pause(next) => {}
            }
        }
    }

    /// Moves on what can be moved on.
    fn turn(&mut self) {
        loop {
            self.interface.poll(Instant::now(), &mut self.queues, self.connections.sockets_mut());
            self.connections.pass();
            self.interface.poll_egress(Instant::now(), &mut self.queues, self.connections.sockets_mut());
            // All that came is looked at by now, unless there was no room for what it led to.
            if self.queues.going.is_empty() {
                return;
            }
            for packet in self.queues.going.drain(..) {
                // An interface that takes nothing loses it, as any does.
                let _ = rustix::io::write(self.device.get_ref(), &packet);
            }
        }
    }
}

/// Reads what the task has sent, as far as there is room for it; the error is why there is no more.
fn take_all(
    device: &OwnedFd,
    queues: &mut Queues,
    mut on_packet: impl FnMut(Vec<u8>) -> Option<Vec<u8>>,
) -> io::Result<()> {
    let mut buffer = vec![0; NETWORK_MTU];
    while queues.coming.len() < PACKETS_MAX {
        let count = rustix::io::read(device, &mut buffer[..])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        queues.coming.extend(on_packet(buffer[..count].to_vec()));
    }
    Ok(())
}

/// What of a packet is for the TCP stack.
fn on_packet(
    bytes: Vec<u8>,
    connections: &mut Connections,
    datagrams: &mut Datagrams,
    log: &mut Log,
) -> Option<Vec<u8>> {
    match packets::read(&bytes)? {
        Packet::Tcp => Some(bytes),
        Packet::Opens(way) => {
            // Without anybody who expects it, the stack refuses it.
            if let Some(to) = destination(way) {
                log.names(way, "connects to");
                connections.open(way, to);
            }
            Some(bytes)
        }
        Packet::Datagram(way, payload) => {
            if datagrams.is_new(way) {
                log.names(way, "sends to");
            }
            datagrams.pass(way, payload, || destination(way));
            None
        }
    }
}

/// Where what goes to the end of this way is sent, if it may be sent at all.
fn destination(way: Way) -> Option<SocketAddr> {
    if way.from.ip() != &NETWORK_ADDRESS {
        return None;
    }
    if way.to.ip() == &NETWORK_GATEWAY {
        return (way.to.port() == DOMAIN).then(resolver).flatten();
    }
    reachable::is_reachable(*way.to.ip()).then_some(SocketAddr::V4(way.to))
}

/// The machine's own resolver.
fn resolver() -> Option<SocketAddr> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(RESOLVERS).ok()?.take(RESOLVERS_BYTES_MAX).read_to_string(&mut text).ok()?;
    first_resolver(&text).map(|address| SocketAddr::new(address, DOMAIN))
}

fn first_resolver(text: &str) -> Option<IpAddr> {
    let words = text.lines().map(|line| line.split_whitespace());
    words.filter_map(|mut words| (words.next()? == "nameserver").then(|| words.next())??.parse().ok()).next()
}

async fn pause(time: Option<smoltcp::time::Duration>) {
    match time {
        Some(time) => tokio::time::sleep(Duration::from_micros(time.total_micros())).await,
        None => std::future::pending().await,
    }
}

/// Names in the log where a task connects to, up to a bound.
struct Log {
    task: TaskId,
    left: u32,
}

impl Log {
    fn names(&mut self, way: Way, what: &str) {
        if self.left > 0 {
            self.left -= 1;
            tracing::info!(task = %self.task, "a guest {what} {}", way.to);
        }
    }
}

#[cfg(test)]
mod tests;

//! What a watched task connects or sends to: its own, or its client's.

use super::super::order::Sought;
use super::{Decision, Listener, Notice, located, read_memory};
use base::watch::USES_NETWORK;
use std::cell::RefCell;
use std::collections::HashMap;
use std::os::unix::fs::FileTypeExt;
use std::time::{Duration, Instant};

/// The services by which the C library looks users up: it asks those of a machine that has none just as well.
const LOOKUPS: [&[u8]; 3] = [b"nscd/socket", b"io.systemd.DynamicUser", b"systemd/userdb/"];
/// The same for hosts.
const RESOLVER: &[u8] = b"systemd/resolve/";

/// Where names of hosts are looked up.
const DOMAIN: u16 = 53;

/// What was found of ports at the loopback address: that somebody in the task has one, or that nobody at the client does; and what is asked
/// of the client.
#[derive(Debug, Default)]
pub(super) struct Looked {
    /// When the task may talk to one without being asked again.
    free: RefCell<HashMap<u16, Instant>>,
    /// The client was asked: numbers of calls, and for what.
    asked: Vec<(u64, Sought)>,
}

/// How long what was found is relied on: who waits for a service of its own tries often.
const RELIED_ON: Duration = Duration::from_secs(1);
/// Ports that are kept in mind, and calls that wait.
const PORTS_MAX: usize = 1024;

impl Looked {
    fn is_free(&self, port: u16) -> bool {
        self.free.borrow().get(&port).is_some_and(|found| found.elapsed() < RELIED_ON)
    }

    pub(super) fn found_free(&self, port: u16) {
        let mut free = self.free.borrow_mut();
        if free.len() >= PORTS_MAX {
            free.clear();
        }
        free.insert(port, Instant::now());
    }

    /// The call of this number waits for an answer.
    pub(super) fn asked(&mut self, number: u64, sought: Sought) {
        // Who waits no longer, since a signal came, has asked again.
        if self.asked.len() == PORTS_MAX {
            self.asked.remove(0);
        }
        self.asked.push((number, sought));
    }

    /// The answer has come: what it is about.
    pub(super) fn heard(&mut self, number: u64) -> Option<Sought> {
        let at = self.asked.iter().position(|(asked, _)| *asked == number)?;
        Some(self.asked.swap_remove(at).1)
    }
}

impl Listener {
    /// A place that is connected to or sent to, by its address in memory.
    pub(super) fn on_address(&self, notice: &Notice, (address, len): (u64, u64)) -> Decision {
        let process = notice.process;
        let Some(bytes) = read_memory(process, address, (len as usize).min(128)) else { return Decision::Go };
        let Some(family) = bytes.first_chunk().map(|family| i32::from(u16::from_ne_bytes(*family))) else {
            return Decision::Go;
        };
        let port = bytes.get(2..4).map_or(0, |port| u16::from_be_bytes([port[0], port[1]]));
        let loopback = match family {
            libc::AF_INET => bytes.get(4..8).is_none_or(|ip| ip[0] == 127 || ip == [0; 4]),
            libc::AF_INET6 => bytes.get(8..24).is_none_or(is_loopback),
            libc::AF_UNIX => return on_socket_file(process, &bytes, self.watch.network),
            _ => return Decision::Go,
        };
        match loopback {
            true => self.on_port(notice, port),
            false if self.watch.network => Decision::Go,
            false => Decision::CallOff(format!("{USES_NETWORK}: {}", shown(family, &bytes, port))),
        }
    }

    /// Messages that are sent, each perhaps to an address: `struct mmsghdr` in memory, or one `struct msghdr`.
    pub(super) fn on_messages(&self, notice: &Notice, headers: u64, count: u64) -> Decision {
        // No more are sent at once.
        const COUNT_MAX: u64 = 1024;
        let step = size_of::<libc::mmsghdr>() as u64;
        let of_one = |at: u64| {
            // The address comes first, and then its length.
            let header = read_memory(notice.process, headers.wrapping_add(at * step), 12)?;
            let address = u64::from_ne_bytes(*header.first_chunk()?);
            let len = u32::from_ne_bytes(header[8..].try_into().ok()?);
            (address != 0).then(|| self.on_address(notice, (address, len.into())))
        };
        let told = (0..count.min(COUNT_MAX)).filter_map(of_one).find(|decision| *decision != Decision::Go);
        told.unwrap_or(Decision::Go)
    }

    /// A port of the loopback address. What nobody in the task has may be a service of the client's machine, which its client knows.
    fn on_port(&self, notice: &Notice, port: u16) -> Decision {
        if port == 0 || self.sought.is_free(port) {
            return Decision::Go;
        }
        if is_listened_to(port) {
            self.sought.found_free(port);
            return Decision::Go;
        }
        if port == DOMAIN || self.watch.ports.binary_search(&port).is_ok() {
            return Decision::CallOff(talks_to(port));
        }
        match self.watch.tells_ports {
            true => Decision::AskService(notice.id, Sought::Port(port)),
            false => Decision::Go,
        }
    }
}

/// Why a task is called off that talks to a service of its client's machine.
pub(super) fn talks_to(port: u16) -> String {
    let what = if port == DOMAIN { " (it looks up a name)" } else { "" };
    format!("it talks to a service of this machine, at port {port}{what}")
}

/// A socket in the tree at which nobody of the task listens is the client's.
///
/// Who looks up names and may use the network asks the worker's resolver, where the client's does not answer.
fn on_socket_file(process: u32, address: &[u8], has_network: bool) -> Decision {
    let path = address.get(2..).unwrap_or_default();
    if let Some(name) = path.strip_prefix(b"\0") {
        return on_abstract_socket(name);
    }
    let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
    let is_of = |service: &[u8]| path.windows(service.len()).any(|part| part == service);
    if path.is_empty() || LOOKUPS.iter().any(|lookup| is_of(lookup)) || (has_network && is_of(RESOLVER)) {
        return Decision::Go;
    }
    let found = std::fs::metadata(located(process, libc::AT_FDCWD, path));
    if !found.is_ok_and(|found| found.file_type().is_socket()) {
        return Decision::Go;
    }
    let name = base::words::last_name(path);
    let bound = std::fs::read("/proc/self/net/unix").unwrap_or_default();
    match bound.split(|byte| *byte == b'\n').any(|line| line.ends_with(name)) {
        true => Decision::Go,
        false => {
            Decision::CallOff(format!("it talks to a service of this machine, at {}", base::path::printable(path)))
        }
    }
}

/// A socket with a name and no place: what nobody of the task listens at may be its client's.
fn on_abstract_socket(name: &[u8]) -> Decision {
    let shown = [b" @", name].concat();
    let bound = std::fs::read("/proc/self/net/unix").unwrap_or_default();
    // In the kernel's list zero bytes are shown as at signs.
    let is_same = |line: &[u8]| {
        let end = line.get(line.len().saturating_sub(shown.len())..).unwrap_or_default();
        end.iter().zip(&shown).all(|(a, b)| a == b || *a == b'@' && *b == 0) && end.len() == shown.len()
    };
    match name.is_empty() || bound.split(|byte| *byte == b'\n').any(is_same) {
        true => Decision::Go,
        false => {
            Decision::CallOff(format!("it talks to a service of this machine, at @{}", base::path::printable(name)))
        }
    }
}

fn is_loopback(ip: &[u8]) -> bool {
    let ip: [u8; 16] = ip.try_into().unwrap_or_default();
    let ip = std::net::Ipv6Addr::from(ip);
    let mapped = ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback() || ip.is_unspecified());
    mapped || ip.is_loopback() || ip.is_unspecified()
}

fn shown(family: i32, bytes: &[u8], port: u16) -> String {
    let ip = match family {
        libc::AF_INET => bytes.get(4..8).and_then(|ip| <[u8; 4]>::try_from(ip).ok()).map(std::net::IpAddr::from),
        _ => bytes.get(8..24).and_then(|ip| <[u8; 16]>::try_from(ip).ok()).map(std::net::IpAddr::from),
    };
    let Some(ip) = ip else { return "an address".into() };
    let what = if port == 53 { "it looks up a name at " } else { "it connects to " };
    format!("{what}{}", std::net::SocketAddr::new(ip, port))
}

/// Whether somebody in the task listens on a TCP port, or has a UDP port.
fn is_listened_to(port: u16) -> bool {
    const LISTENS: &str = "0A";
    const UNCONNECTED: &str = "07";
    let local = format!(":{port:04X}");
    ["tcp", "tcp6", "udp", "udp6"].iter().any(|table| {
        let text = std::fs::read_to_string(format!("/proc/self/net/{table}")).unwrap_or_default();
        text.lines().skip(1).any(|line| {
            let mut words = line.split_whitespace().skip(1);
            let at = words.next().is_some_and(|address| address.ends_with(&local));
            at && words.nth(1).is_some_and(|state| state == LISTENS || state == UNCONNECTED)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses_are_told_from_others() {
        for (ip, want) in
            [("::1", true), ("::", true), ("::ffff:127.0.0.53", true), ("::ffff:10.0.0.1", false), ("fe80::1", false)]
        {
            let ip: std::net::Ipv6Addr = ip.parse().expect("an address");
            assert_eq!(is_loopback(&ip.octets()), want, "{ip}");
        }
    }

    #[test]
    fn who_listens_is_seen() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
        let port = socket.local_addr().expect("an address").port();
        assert!(is_listened_to(port));
        drop(socket);
        // Another test's child may have it for a moment.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while is_listened_to(port) {
            assert!(std::time::Instant::now() < end, "nobody listens any more");
            std::thread::yield_now();
        }
    }

    #[test]
    fn sockets_without_a_place_are_told_apart() {
        use std::os::linux::net::SocketAddrExt;
        let name = format!("gleaner-test-{}", std::process::id());
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).expect("an address");
        assert!(matches!(on_abstract_socket(name.as_bytes()), Decision::CallOff(_)));
        let _listener = std::os::unix::net::UnixListener::bind_addr(&address).expect("a socket");
        assert_eq!(on_abstract_socket(name.as_bytes()), Decision::Go);
    }
}

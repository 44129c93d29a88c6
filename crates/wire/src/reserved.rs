//! An address that is kept for a listener which starts later, as that of a standby: nobody else gets its port meanwhile, and who connects is
//! told that nobody listens, as if it was free.

use rustix::net::{AddressFamily, SocketType, bind, socket};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

/// As long as it lives.
#[derive(Debug)]
pub struct Reserved {
    _udp: UdpSocket,
    _tcp: OwnedFd,
}

impl Reserved {
    /// Keeps this address; `None` where the kernel is to choose the port.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub fn at(address: SocketAddr) -> std::io::Result<Option<Self>> {
        if address.port() == 0 {
            return Ok(None);
        }
        // Of one that is connected the kernel hands in nothing of others.
        const DISCARD: u16 = 9;
        let udp = UdpSocket::bind(address)?;
        udp.connect(match address {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, DISCARD)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::LOCALHOST, DISCARD)),
        })
        .or_else(|_| udp.connect(address))?;
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let tcp = socket(family, SocketType::STREAM, None)?;
        bind(&tcp, &address)?;
        Ok(Some(Self { _udp: udp, _tcp: tcp }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    #[test]
    fn nobody_gets_it_and_nobody_listens_there() {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
        for address in [free, SocketAddr::from((Ipv4Addr::UNSPECIFIED, free.port()))] {
            let reserved = Reserved::at(address).expect("it is free").expect("it has a port");
            assert!(TcpListener::bind(free).is_err() && UdpSocket::bind(free).is_err(), "{address}");
            assert_eq!(TcpStream::connect(free).expect_err("nobody").kind(), ErrorKind::ConnectionRefused);
            let asks = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            asks.connect(free).expect("connected");
            asks.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
            asks.send(b"x").expect("sent");
            assert_eq!(asks.recv(&mut [0]).expect_err("nobody").kind(), ErrorKind::ConnectionRefused, "{address}");
            drop(reserved);
            assert!(TcpListener::bind(free).is_ok() && UdpSocket::bind(free).is_ok());
        }
        assert!(Reserved::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("nothing to do").is_none());
    }
}

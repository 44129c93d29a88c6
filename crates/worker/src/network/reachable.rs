//! Where a task may connect to: hosts of the internet, and nothing that is near this machine.

use std::net::{Ipv4Addr, UdpSocket};

/// Networks that are not the internet: first address, and how many bits of it count (RFC 6890 and its registry).
const NEAR: [(Ipv4Addr, u32); 15] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// Whether a task may connect to this address. Asks the system for the machine's own.
pub fn is_reachable(address: Ipv4Addr) -> bool {
    !is_near(address) && !is_own(address)
}

fn is_near(address: Ipv4Addr) -> bool {
    let mask = |bits: u32| u32::MAX << (32 - bits);
    NEAR.iter().any(|(first, bits)| (address.to_bits() ^ first.to_bits()) & mask(*bits) == 0)
}

/// Only a machine's own addresses can be bound there.
fn is_own(address: Ipv4Addr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_internet_is_reachable() {
        for (text, want) in [
            ("1.1.1.1", true),
            ("11.0.0.1", true),
            ("100.63.255.255", true),
            ("100.128.0.0", true),
            ("172.15.0.1", true),
            ("172.32.0.1", true),
            ("223.255.255.255", true),
            ("0.1.2.3", false),
            ("10.255.0.1", false),
            ("100.64.0.1", false),
            ("127.0.0.1", false),
            ("169.254.169.254", false),
            ("172.31.255.255", false),
            ("192.168.1.1", false),
            ("198.19.0.1", false),
            ("224.0.0.251", false),
            ("255.255.255.255", false),
        ] {
            let address: Ipv4Addr = text.parse().expect("an address");
            assert_eq!(!is_near(address), want, "{text}");
        }
        assert!(is_own(Ipv4Addr::LOCALHOST) && !is_own(Ipv4Addr::new(1, 1, 1, 1)));
    }
}

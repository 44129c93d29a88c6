//! A task's interface as the TCP stack sees it: two bounded queues of packets.

use crate::sandbox::NETWORK_MTU;
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use std::collections::VecDeque;

/// Packets that wait on each side at most; TCP sends again what is lost.
pub const PACKETS_MAX: usize = 64;

/// What comes from the task and is not looked at, and what goes to it and is not written.
#[derive(Debug, Default)]
pub struct Queues {
    /// From the task.
    pub coming: VecDeque<Vec<u8>>,
    /// To the task.
    pub going: VecDeque<Vec<u8>>,
}

/// One packet from the task.
pub struct Coming(Vec<u8>);

/// Room for one to it.
pub struct Room<'a>(&'a mut VecDeque<Vec<u8>>);

impl Device for Queues {
    type RxToken<'a> = Coming;
    type TxToken<'a> = Room<'a>;

    fn receive(&mut self, _now: Instant) -> Option<(Coming, Room<'_>)> {
        if self.going.len() >= PACKETS_MAX {
            return None;
        }
        let packet = self.coming.pop_front()?;
        Some((Coming(packet), Room(&mut self.going)))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Room<'_>> {
        (self.going.len() < PACKETS_MAX).then_some(Room(&mut self.going))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        (capabilities.medium, capabilities.max_transmission_unit) = (Medium::Ip, NETWORK_MTU);
        capabilities
    }
}

impl RxToken for Coming {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, look: F) -> R {
        look(&self.0)
    }
}

impl TxToken for Room<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, fill: F) -> R {
        let mut packet = vec![0; len];
        let filled = fill(&mut packet);
        self.0.push_back(packet);
        filled
    }
}

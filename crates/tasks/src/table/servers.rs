//! Reserved shares: a constant-bandwidth server for each account that has one.
//!
//! Such an account's tasks with deadlines are served, among all that are reserved, by the deadline of its server: it moves on by a
//! period whenever the server has used up what a period is worth. So an account gets its share however much others ask for, and
//! no more at others' cost (Abeni, Buttazzo: Integrating Multimedia Applications in Hard Real-Time Systems, 1998, section 3).

use super::records::{NO_SERVER, Turn};
use super::{MS, Table};
use crate::event::{Kind, RESERVED_MAX, Refusal};
use crate::shapes::list::Linked;
use crate::snapshot::saved;

/// The period of all servers.
const PERIOD_NS: u64 = 1_000 * MS;

#[derive(Clone, Copy, Debug, Default)]
struct Server {
    share_permille: u16,
    /// Its deadline.
    deadline: u64,
    /// What is left until then: processor time in nanoseconds, at speed 1000.
    budget: i64,
}

saved!(Server { share_permille: u16, deadline: u64, budget: i64 });

/// The servers of all accounts with a reserved share.
#[derive(Debug, Default)]
pub(super) struct Servers {
    all: [Server; RESERVED_MAX],
    /// Processors times speed in thousandths of the whole pool, for what a share is worth.
    pub supply_permille: u64,
}

/// How one of them is saved.
#[cfg(test)]
pub(super) const LAYOUT: &str = <Server as crate::snapshot::Saved>::LAYOUT;

saved!(Servers { all: [Server; RESERVED_MAX], supply_permille: u64 });

impl Servers {
    /// Changes what is reserved for an account; returns its place.
    pub fn set(&mut self, place: u8, share_permille: u16, now: u64) -> Result<u8, Refusal> {
        if share_permille == 0 {
            if let Some(server) = self.all.get_mut(place as usize) {
                *server = Server::default();
            }
            return Ok(NO_SERVER);
        }
        let is_free = |server: &Server| server.share_permille == 0;
        let place = match place {
            NO_SERVER => self.all.iter().position(is_free).ok_or(Refusal::Full(Kind::Shares, 0))?,
            place => place.into(),
        };
        let others: u32 = self.all.iter().map(|server| u32::from(server.share_permille)).sum::<u32>()
            - u32::from(self.all[place].share_permille);
        if others + u32::from(share_permille) > 1_000 {
            return Err(Refusal::Invalid("more than the whole pool would be reserved"));
        }
        self.all[place].share_permille = share_permille;
        self.all[place].deadline = self.all[place].deadline.max(now);
        Ok(place as u8)
    }

    /// What is reserved in all, in thousandths.
    pub fn reserved_permille(&self) -> u64 {
        self.all.iter().map(|server| u64::from(server.share_permille)).sum()
    }

    pub fn share_permille(&self, place: u8) -> u64 {
        self.all.get(place as usize).map_or(0, |server| server.share_permille.into())
    }

    pub fn deadline(&self, place: u8) -> u64 {
        self.all.get(place as usize).map_or(u64::MAX, |server| server.deadline)
    }

    /// An account was given a task of this cost, in nanoseconds of processor time.
    pub fn charge(&mut self, place: u8, cost: u64, now: u64) {
        let supply = self.supply_permille;
        let server = &mut self.all[place as usize];
        // Both in thousandths: what the share of the pool can compute within a period.
        let worth = (PERIOD_NS / 1_000_000 * u64::from(server.share_permille) * supply).max(1) as i64;
        if server.deadline <= now {
            // It was idle: what it did not use then is not made up for.
            server.deadline = now + PERIOD_NS;
            server.budget = worth;
        }
        server.budget -= cost as i64;
        if server.budget <= 0 {
            let periods = server.budget.unsigned_abs() / worth.unsigned_abs() + 1;
            server.deadline += periods.saturating_mul(PERIOD_NS);
            server.budget += worth.saturating_mul(periods as i64);
        }
    }
}

impl Table {
    /// The lane in a ring whose account's server has the earliest deadline. There are few with a reserved share.
    pub(super) fn lane_by_server(&mut self, ring_at: u32) -> u32 {
        let first = self.rings[ring_at].first;
        let mut best = (u64::MAX, first);
        let mut at = first;
        for _ in 0..RESERVED_MAX {
            let account = self.lanes[at].account;
            let deadline = self.servers.deadline(self.accounts[account].server);
            if deadline < best.0 {
                best = (deadline, at);
            }
            at = Linked::<Turn>::links(&mut self.lanes[at]).next;
            if at == first {
                break;
            }
        }
        self.rings[ring_at].first = best.1;
        best.1
    }

    /// Whether all accounts in a ring have been given what their shares are worth in this period.
    pub(super) fn are_ahead(&mut self, ring_at: u32) -> bool {
        let lane = self.lane_by_server(ring_at);
        let server = self.accounts[self.lanes[lane].account].server;
        self.servers.deadline(server) > self.now + PERIOD_NS
    }
}

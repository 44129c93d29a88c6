//! A worker whose machine is busy with something else gives a task next to nothing. So a launch waits for one that gives something, as
//! long as there is one; not for long, for that one may have work for hours.

use super::{Assignment, GIVES, Placement, Ticket};
use tasks::Need;

/// How long a launch waits rather than go where it gets nothing, in nanoseconds.
const CHOOSES_NS: u64 = 2_000_000_000;
/// Launches that are looked at at a time.
const LOOKS_MAX: usize = 256;

impl Placement {
    /// What a launch needs that is to go where it gets something. `None`: no worker that can have it gives anything, or all do.
    pub(super) fn choosy(&self, need: &Need) -> Option<Need> {
        let choosy = Need { tags: need.tags | GIVES, ..*need };
        let mut lending = self.workers.values().filter(|worker| !worker.is_drained && worker.lent.cpus > 0);
        lending.any(|worker| worker.lent.has_all(&choosy)).then_some(choosy)
    }

    /// Whether a launch waits for a worker that gives something.
    pub fn chooses(&self) -> bool {
        !self.choosing.is_empty()
    }

    /// Workers have left, or give less: launches that wait for one that gives something, where there is none any more, take what there is.
    pub(super) fn choose_again(&mut self) -> Vec<Assignment> {
        let is_vain = |ticket: &Ticket| {
            let launch = self.tickets.get(ticket)?;
            self.choosy(&launch.wanted.need).is_none().then_some(*ticket)
        };
        // Whoever is not looked at now waits for as long as any.
        let vain: Vec<Ticket> = self.choosing.iter().take(LOOKS_MAX).filter_map(is_vain).collect();
        self.settle_for_less(vain)
    }

    /// Time has passed: who has waited for long takes what there is.
    pub fn give_up_choosing(&mut self) -> Vec<Assignment> {
        let now = self.desk.now();
        // Those that came first have waited longest.
        let is_due = |ticket: &&Ticket| {
            self.tickets.get(ticket).is_some_and(|launch| now.saturating_sub(launch.since) >= CHOOSES_NS)
        };
        let due: Vec<Ticket> = self.choosing.iter().take(LOOKS_MAX).take_while(is_due).copied().collect();
        self.settle_for_less(due)
    }

    fn settle_for_less(&mut self, tickets: Vec<Ticket>) -> Vec<Assignment> {
        let mut made = Vec::new();
        for ticket in tickets {
            let Some(launch) = self.tickets.get(&ticket).copied() else { continue };
            made.extend(self.finish(ticket));
            match self.enter(ticket, launch.wanted, None, launch.since) {
                Ok(placed) => made.extend(placed),
                Err(error) => {
                    tracing::warn!(%error, "a launch that waited for a better place gets none");
                    self.turned_away.push(ticket);
                }
            }
        }
        made
    }
}

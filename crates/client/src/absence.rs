//! What a command that may not run here waits for while no worker takes it: those that all rest, or that are away for a moment; and for a
//! hub that is.

use crate::caller::{Replies, Requests};
use crate::daemon::Daemon;
use crate::ending::Phase;
use crate::hedge::offered;
use crate::record::Record;
use crate::run::{Outcome, Session};
use base::door::Reply;
use std::time::{Duration, Instant};
use wire::Joined;
use wire::message::Offer;

/// How long it waits while all workers rest.
const REST_MAX: Duration = Duration::from_secs(600);
/// How often it looks whether they do, or are there again.
const LOOK: Duration = Duration::from_millis(500);
/// How often it looks whether a worker that is away is there again: for about five seconds. Each look is an answer of the hub's, so
/// that on a busy machine it waits for longer, as a worker needs longer there.
const LOOKS_MAX: u32 = 8;
/// How long a hub that cannot be dialled is waited for.
const HUB_WAIT: Duration = Duration::from_secs(5);

/// What a command knows of workers that do not take it.
#[derive(Debug, Default)]
pub(crate) struct Absence {
    /// The hub says that one may be there in a moment.
    pub is_passing: bool,
    /// How often it has looked for one.
    looks: u32,
    /// It has waited for workers that rest for as long as it may.
    has_rested: bool,
}

impl Absence {
    /// A worker has taken it: the next absence is another one.
    pub fn is_over(&mut self) {
        self.looks = 0;
    }

    /// Whether it is still waited for. `offer`: what is offered now, if that is known.
    fn is_worth_a_look(&mut self, offer: Option<&Offer>) -> bool {
        let is_away = self.is_passing || offer.is_some_and(|offer| offer.cpus == 0);
        self.looks += u32::from(is_away);
        is_away && self.looks <= LOOKS_MAX
    }
}

impl Session {
    /// The connection to the hub, and its number. Where the command may not run here, a hub that starts anew is waited for.
    pub(crate) async fn connected(&mut self, caller: (&mut Requests, &mut Replies)) -> Result<(Joined, u64), Outcome> {
        let (daemon, begun) = (self.daemon.clone(), Instant::now());
        let patience = if self.options.no_local { daemon.settings.choices().link_wait } else { Duration::ZERO };
        loop {
            let connecting = daemon.connect(patience);
            let connected = self.hearing(Phase::BeforeStart, connecting, (&mut *caller.0, &mut *caller.1)).await?;
            let why = match connected {
                Ok(connected) => return Ok(connected),
                Err(why) => why,
            };
            if !self.options.no_local || !why.may_pass() || begun.elapsed() >= HUB_WAIT {
                return Err(Outcome::Unplaced(why.to_string()));
            }
            self.hearing(Phase::BeforeStart, tokio::time::sleep(LOOK), (&mut *caller.0, &mut *caller.1)).await?;
        }
    }

    /// Waits, where the command may not run here, until workers that all rest take tasks again. False: that is not what it waits for, or it has
    /// waited for long enough.
    pub(crate) async fn wait_for_rest(
        &mut self,
        caller: (&mut Requests, &mut Replies),
        record: &mut Record,
    ) -> Result<bool, Outcome> {
        let daemon = self.daemon.clone();
        let resting = |daemon: &Daemon| daemon.link()?.offers.all_rest();
        if !self.options.no_local {
            return Ok(false);
        }
        // What was offered before it was refused says nothing.
        self.hearing(Phase::BeforeStart, renewed(&daemon), (&mut *caller.0, &mut *caller.1)).await?;
        let Some(who) = resting(&daemon) else { return self.wait_for_return(caller).await };
        if self.absence.has_rested {
            return Ok(false);
        }
        let waits = format!("waits until a worker takes tasks again: {who}");
        record.begins_waiting(&waits);
        record.note(waits);
        self.daemon.records.tell(record);
        if self.is_listened_to() {
            let line =
                format!("waits until a worker takes tasks again, {} minutes at most: {who}", REST_MAX.as_secs() / 60);
            let _ = caller.1.send(&Reply::Note(line)).await;
        }
        let goes_on = async {
            while resting(&daemon).is_some() {
                tokio::time::sleep(LOOK).await;
            }
        };
        let waiting = tokio::time::timeout(REST_MAX, goes_on);
        let waited = self.hearing(Phase::BeforeStart, waiting, caller).await;
        record.goes_on();
        let waited = waited?;
        // Once: who finds them at rest again right away is not to wait for ever.
        self.absence.has_rested = waited.is_err();
        Ok(waited.is_ok())
    }

    /// The same where nobody rests, but none is there that could take it: one whose connection broke, or that has just joined, is there within
    /// seconds. It may have come since it was missed, and be gone again by the next attempt.
    async fn wait_for_return(&mut self, caller: (&mut Requests, &mut Replies)) -> Result<bool, Outcome> {
        let daemon = self.daemon.clone();
        let mut offer = offered(&daemon);
        while self.absence.is_worth_a_look(offer.as_ref()) {
            // A hub that does not answer any more is what the next attempt finds.
            if offer.is_none_or(|offer| offer.cpus > 0) {
                return Ok(true);
            }
            let look = async {
                tokio::time::sleep(LOOK).await;
                renewed(&daemon).await;
            };
            self.hearing(Phase::BeforeStart, look, (&mut *caller.0, &mut *caller.1)).await?;
            offer = offered(&daemon);
        }
        Ok(false)
    }
}

/// Waits for an answer of the hub's to what it offers from now on, for a bounded time.
async fn renewed(daemon: &Daemon) {
    if let Some(offers) = daemon.link().map(|link| link.offers.clone()) {
        offers.renewed().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_away_is_looked_for_so_often() {
        let offer = |cpus| Offer { cpus, ..Offer::default() };
        let looks = |absence: &mut Absence, offer: Option<Offer>| {
            (0..LOOKS_MAX * 2).take_while(|_| absence.is_worth_a_look(offer.as_ref())).count() as u32
        };
        assert_eq!(looks(&mut Absence::default(), Some(offer(2))), 0, "it was refused for another reason");
        assert_eq!(looks(&mut Absence::default(), None), 0);
        assert_eq!(looks(&mut Absence::default(), Some(offer(0))), LOOKS_MAX);
        let mut absence = Absence { is_passing: true, ..Absence::default() };
        assert_eq!(looks(&mut absence, Some(offer(2))), LOOKS_MAX, "it came a moment too late");
        assert_eq!(looks(&mut absence, None), 0);
        absence.is_over();
        assert_eq!(looks(&mut absence, None), LOOKS_MAX);
    }
}

//! What becomes of tasks when their worker is told to end, or its machine goes to sleep: it takes no more, lets those end that are about to, and
//! hands the others back, to be done elsewhere. Without this their clients would wait until the hub notices that nothing is heard of the worker.

use crate::clients::Clients;
use crate::host::Ear;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use wire::message::{Failed, FailedKind};
use wire::{Count, Counted};

/// For how long tasks may end by themselves.
const GRACE: Duration = Duration::from_secs(1);
/// And how long it may take to hand the others back. Somebody who stops a service waits.
const HAND_BACK: Duration = Duration::from_secs(3);
/// From look to look whether all are gone.
const LOOK: Duration = Duration::from_millis(10);

/// Launches that are here, from their arrival until their answers are at the hub.
#[derive(Clone, Debug, Default)]
pub struct Launches {
    here: Count,
    /// Why all are handed back, if they are.
    hands_back: watch::Sender<Option<&'static str>>,
}

impl Launches {
    /// One has come.
    pub fn arrive(&self) -> Counted {
        self.here.one()
    }

    /// Waits until all are handed back: what their clients are told.
    pub async fn handed_back(&self) -> Failed {
        let mut hands_back = self.hands_back.subscribe();
        let why = hands_back.wait_for(Option::is_some).await.ok().and_then(|why| *why);
        // The sender is ours, so that it cannot be gone.
        FailedKind::Evicted.because(why.unwrap_or_default())
    }
}

/// Nothing is lent any more, because of `why`. Returns when no task is left, or after a bounded time.
pub async fn good_bye(clients: &Clients, ear: &Ear, why: &'static str) {
    ear.lends_nothing(Some(why));
    // Those that are about to end need the processor for it, of which they get next to none while the owner works.
    clients.guests.hurry_all();
    let begun = Instant::now();
    wait_for_end(&clients.launches, GRACE).await;
    let handed_back = clients.launches.here.now();
    clients.launches.hands_back.send_replace(Some(why));
    wait_for_end(&clients.launches, HAND_BACK).await;
    let (left, took_ms) = (clients.launches.here.now(), begun.elapsed().as_millis() as u64);
    tracing::info!(why, handed_back, left, took_ms, "no more tasks are taken");
}

/// All is lent again, after [`good_bye`].
pub fn welcome_back(clients: &Clients, ear: &Ear) {
    clients.launches.hands_back.send_replace(None);
    ear.lends_nothing(None);
}

async fn wait_for_end(launches: &Launches, limit: Duration) {
    let begun = Instant::now();
    while launches.here.now() > 0 && begun.elapsed() < limit {
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_launch_is_here_until_it_is_answered() {
        let launches = Launches::default();
        let present = [launches.arrive(), launches.arrive()];
        assert_eq!(launches.here.now(), 2);
        drop(present);
        assert_eq!(launches.here.now(), 0);
        launches.hands_back.send_replace(Some("it ends"));
        assert_eq!(launches.handed_back().await.reason(), FailedKind::Evicted, "also one that comes late");
        launches.hands_back.send_replace(None);
        let late = tokio::time::timeout(Duration::from_millis(20), launches.handed_back());
        assert!(late.await.is_err(), "one that comes when all is lent again");
    }
}

//! What the hub offers a command that comes now: asked for some times a second while commands come, so that none waits for the answer.

use crate::link::Link;
use bytes::Bytes;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use wire::message::{Offer, OpenKind};
use wire::{Joined, lock};

/// From one question to the next …
const EVERY: Duration = Duration::from_millis(400);
/// … for so long after the last command.
const IDLE: Duration = Duration::from_secs(10);
/// An answer as old as this says nothing any more.
const FRESH: Duration = Duration::from_secs(3);

/// The latest answer.
#[derive(Debug, Default)]
pub struct Offers {
    state: Mutex<State>,
    /// Told when a command comes.
    wanted: Notify,
}

#[derive(Debug, Default)]
struct State {
    offer: Option<(Instant, Offer)>,
    wanted_at: Option<Instant>,
}

impl Offers {
    /// What is offered, if that is known. From now on it is asked for.
    pub fn latest(&self) -> Option<Offer> {
        let mut state = lock(&self.state);
        let now = Instant::now();
        if state.wanted_at.replace(now).is_none_or(|before| now - before > IDLE) {
            self.wanted.notify_one();
        }
        state.offer.as_ref().filter(|(at, _)| now - *at < FRESH).map(|(_, offer)| offer.clone())
    }

    /// Which workers rest and why, if none takes tasks.
    pub fn all_rest(&self) -> Option<String> {
        let offer = self.latest()?;
        (offer.cpus == 0 && !offer.resting.is_empty()).then(|| offer.resting.join(", "))
    }

    /// Waits for an answer to a question that is asked from now on, for a bounded time.
    pub async fn renewed(&self) {
        let since = Instant::now();
        let is_old = || lock(&self.state).offer.as_ref().is_none_or(|(at, _)| *at < since + EVERY / 8);
        drop(self.latest());
        while is_old() && since.elapsed() < FRESH {
            tokio::time::sleep(EVERY / 8).await;
        }
    }

    fn is_wanted(&self) -> bool {
        lock(&self.state).wanted_at.is_some_and(|at| at.elapsed() < IDLE)
    }
}

/// Asks over this connection, until it ends.
pub(crate) async fn ask(link: Weak<Link>, joined: Joined) {
    while let Some(offers) = link.upgrade().map(|link| link.offers.clone()) {
        if joined.connection.is_closed() {
            return;
        }
        let mark = wire::owner::Secret::read().map(|secret| Bytes::copy_from_slice(&secret.mark().0));
        match joined.connection.request::<Offer>(OpenKind::Offer(mark.unwrap_or_default())).await {
            Ok(offer) => {
                link.upgrade().into_iter().for_each(|link| link.class.store(offer.trust, Ordering::Relaxed));
                lock(&offers.state).offer = Some((Instant::now(), offer));
            }
            Err(error) => tracing::debug!(%error, "the hub does not say what it offers"),
        }
        if offers.is_wanted() {
            tokio::time::sleep(EVERY).await;
        } else {
            tokio::select! {
                () = offers.wanted.notified() => {}
                _ = joined.connection.closed() => return,
            }
        }
    }
}

//! Looks after a connection to the hub: notices silence, sleep and changes of network, goes around what lets no UDP pass, and looks for
//! the hub at its other addresses.
//!
//! A change of network costs no connection: the hub knows it by its numbers. So fresh sockets are taken and the hub is told at once,
//! and both ends go by what was learnt of the new network before.

use crate::link::Link;
use crate::networks::own_address;
use crate::pulse::Look;
use crate::roaming::{Routes, SleepWatch};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use wire::endpoint::{NoDetour, is_too_narrow};
use wire::{Joined, lock};

/// While the hub is silent a way around is looked for this often.
const DETOUR_INTERVAL: Duration = Duration::from_secs(3);
/// It is silent for so long before another one is looked for: a link that is cut for a moment is not given up for that.
const ELSEWHERE_AFTER: Duration = Duration::from_secs(3);
/// For so long it is relied on how wide packets may be.
const WIDTH_INTERVAL: Duration = Duration::from_secs(1);
/// How long a detour is used before the direct way is tried again; it doubles each time that is in vain.
const WAY_BACK_FIRST: Duration = Duration::from_secs(60);
const WAY_BACK_LAST: Duration = Duration::from_secs(600);

/// Watches one connection until it ends.
pub(crate) async fn connection(link: Arc<Link>, joined: Joined) {
    let mut slept = SleepWatch::default();
    let (mut silent, mut detoured): (Option<Instant>, Option<Instant>) = (None, None);
    let mut elsewhere: Option<JoinHandle<()>> = None;
    let mut width = Width::default();
    loop {
        if slept.has_slept() {
            moved(&link, &joined, "this machine slept");
        }
        let look = look(&link, &joined);
        if look.probe {
            joined.probe();
        }
        tell(&link, look.silent);
        silent = look.silent.and(silent.or_else(|| Some(Instant::now())));
        if (look.silent.is_some() || width.is_narrow(&link, &joined))
            && detoured.is_none_or(|at| at.elapsed() >= DETOUR_INTERVAL)
        {
            detoured = Some(Instant::now());
            tokio::spawn(detour(link.clone(), joined.clone()));
            let is_long = silent.is_some_and(|since| since.elapsed() >= ELSEWHERE_AFTER);
            if is_long && elsewhere.as_ref().is_none_or(JoinHandle::is_finished) {
                let (link, joined) = (link.clone(), joined.clone());
                elsewhere = Some(tokio::spawn(async move { link.look_elsewhere(&joined).await }));
            }
        }
        let next = wire::until(look.next);
        tokio::select! {
            // What wakes the one who watches the next connection is not to be taken from it.
            biased;
            _ = joined.connection.closed() => break,
            () = next => {}
            () = link.woken.notified() => {}
        }
    }
    // Whoever waits for this connection learns its end from it; another one may be watched already.
    if link.current_or_silent().is_none() {
        link.condition.send_modify(|condition| (condition.silent, condition.ended) = (None, true));
    }
}

/// Whether QUIC's packets were too wide for an address, and when the kernel was asked: each launch wakes who wants to know.
#[derive(Default)]
struct Width(Option<(SocketAddr, Instant, bool)>);

impl Width {
    /// What is small passes, and nothing else: commands wait for contents, and yet the hub is heard.
    fn is_narrow(&mut self, link: &Link, joined: &Joined) -> bool {
        let address = joined.connection.address().filter(|_| link.is_waited_for());
        let Some(address) = address.filter(|address| !link.endpoint.is_detoured(*address)) else { return false };
        match self.0 {
            Some((of, at, is_narrow)) if of == address && at.elapsed() < WIDTH_INTERVAL => is_narrow,
            _ => {
                let is_narrow = is_too_narrow(address);
                self.0 = Some((address, Instant::now(), is_narrow));
                is_narrow
            }
        }
    }
}

fn look(link: &Link, joined: &Joined) -> Look {
    let now = Instant::now();
    let mut pulse = lock(&link.pulse);
    pulse.hear(now, joined.connection.heard());
    pulse.look(now, joined.connection.round_trip(), link.is_waited_for())
}

fn tell(link: &Link, silent: Option<Instant>) {
    link.condition.send_if_modified(|condition| {
        let is_news = condition.silent.is_some() != silent.is_some();
        if is_news {
            condition.silent = silent;
            tracing::info!(silent = silent.is_some(), "the link to the hub");
        }
        is_news
    });
}

fn news(link: &Link, what: String) {
    tracing::info!(what, "the link to the hub");
    link.condition.send_modify(|condition| condition.news = Some(what));
}

/// This machine is somewhere else, or was away: the hub is told at once.
fn moved(link: &Arc<Link>, joined: &Joined, why: &str) {
    let Some(address) = joined.connection.address() else { return };
    // A tunnel does not outlive its addresses. Whether one is needed here shows.
    link.endpoint.forget_detour(address);
    if let Err(error) = link.endpoint.rebind() {
        tracing::warn!(%error, "no fresh sockets; going on with the old ones");
    }
    let known = link.networks.paths(address);
    joined.moved(known);
    lock(&link.pulse).start_over(Instant::now());
    joined.probe();
    news(link, why.to_owned());
    link.woken.notify_one();
    if known.is_udp_blocked {
        tokio::spawn(detour(link.clone(), joined.clone()));
    }
}

/// Notices changes of addresses and routes, for as long as the link lives.
pub(crate) async fn routes(link: Weak<Link>) {
    let routes = match Routes::listen() {
        Ok(routes) => routes,
        Err(error) => {
            tracing::info!(%error, "changes of network are noticed by silence only");
            return;
        }
    };
    while routes.news().await.is_ok() {
        let Some(link) = link.upgrade() else { return };
        let Some((joined, _)) = link.current_or_silent() else {
            link.hub().addresses().iter().for_each(|address| link.endpoint.forget_detour(*address));
            continue;
        };
        if let Some(now) = joined.connection.address().and_then(own_address).filter(|now| link.is_elsewhere(*now)) {
            moved(&link, &joined, &format!("this machine's address is {now} now"));
        }
    }
}

/// Looks for a way around what lets no UDP pass. If nobody is at the hub's address any more, its connection has ended.
async fn detour(link: Arc<Link>, joined: Joined) {
    let Some(address) = joined.connection.address() else { return };
    let was_detoured = link.endpoint.is_detoured(address);
    let round_trip = joined.connection.round_trip();
    match link.endpoint.detour(address, link.hub().hub(), round_trip).await {
        Ok(()) => {
            joined.probe();
            if !was_detoured {
                news(&link, "no UDP passes: the link goes over TCP".to_owned());
                tokio::spawn(way_back(Arc::downgrade(&link), joined));
            }
        }
        Err(NoDetour::NobodyThere) => joined.connection.close("nobody listens at the hub's address any more"),
        Err(NoDetour::NotNeeded) => joined.probe(),
        Err(NoDetour::NoTunnel(why)) => tracing::debug!(why, "no way around"),
    }
}

/// Tries UDP again now and then, for as long as a tunnel is in use.
pub(crate) async fn way_back(link: Weak<Link>, joined: Joined) {
    let Some(address) = joined.connection.address() else { return };
    let mut pause = WAY_BACK_FIRST;
    loop {
        let ended = tokio::time::timeout(pause, joined.connection.closed()).await.is_ok();
        let Some(link) = link.upgrade().filter(|_| !ended) else { return };
        if !link.endpoint.is_detoured(address) {
            return;
        }
        if link.endpoint.end_detour(address).await {
            news(&link, "UDP passes again".to_owned());
            link.asked(&joined);
            joined.probe();
            return;
        }
        pause = (pause * 2).min(WAY_BACK_LAST);
    }
}

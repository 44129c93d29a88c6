//! The machine goes to sleep: guests leave before, so that it can.
//!
//! The kernel puts no process to sleep that waits for an answer of a mirror, since who answers sleeps already; after 20 s it gives the whole
//! sleep up. And a guest that sleeps is of no use: its client would wait until the hub notices. logind tells of a sleep beforehand, and waits a few
//! seconds for who has asked it to (an inhibitor lock of the mode `delay`, <https://systemd.io/INHIBITOR_LOCKS>).

use crate::clients::Clients;
use crate::good_bye::{good_bye, welcome_back};
use crate::host::Ear;
use futures_util::StreamExt as _;
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::timeout;
use zbus::Connection;

/// From one try to reach logind to the next: it may start later, and is started anew in upgrades.
const TRY_EVERY: Duration = Duration::from_secs(60);
/// Longest time awake until all is lent again, should nobody tell that the sleep is over.
const AWAKE_MAX: Duration = Duration::from_secs(30);
/// What is told of why guests leave.
const WHY: &str = "its machine goes to sleep";

/// What is used of logind.
#[zbus::proxy(
    interface = "org.freedesktop.login1.Manager",
    default_service = "org.freedesktop.login1",
    default_path = "/org/freedesktop/login1"
)]
trait Manager {
    /// A lock, until the descriptor is closed.
    fn inhibit(&self, what: &str, who: &str, why: &str, mode: &str) -> zbus::Result<zbus::OwnedFd>;

    /// It begins (`true`), or is over.
    #[zbus(signal)]
    fn prepare_for_sleep(&self, begins: bool) -> zbus::Result<()>;
}

/// Has guests leave whenever this machine goes to sleep, and lends again when it is awake, where logind is there to tell.
pub async fn make_way(clients: &Clients, ear: &Ear) -> Infallible {
    loop {
        if let Err(error) = heed(clients, ear).await {
            tracing::debug!(%error, "nobody tells when this machine goes to sleep");
        }
        // Whoever would have told that it is awake again may be gone.
        welcome_back(clients, ear);
        tokio::time::sleep(TRY_EVERY).await;
    }
}

/// The same while logind is heard.
async fn heed(clients: &Clients, ear: &Ear) -> zbus::Result<()> {
    let bus = Connection::system().await?;
    let logind = ManagerProxy::new(&bus).await?;
    let mut sleeps = logind.receive_prepare_for_sleep().await?;
    loop {
        let delay = logind.inhibit("sleep", "Gleaner", "tasks of others leave before", "delay").await?;
        tracing::debug!("guests leave before this machine goes to sleep");
        while !next(&mut sleeps).await? {}
        good_bye(clients, ear, WHY).await;
        drop(delay);
        // Time asleep does not count.
        while timeout(AWAKE_MAX, next(&mut sleeps)).await.unwrap_or(Ok(false))? {}
        welcome_back(clients, ear);
        tracing::info!("this machine is awake, and lends again");
    }
}

/// Whether a sleep begins; if not, one is over.
async fn next(sleeps: &mut PrepareForSleepStream) -> zbus::Result<bool> {
    let sleep = sleeps.next().await.ok_or(zbus::Error::InvalidReply)?;
    Ok(*sleep.args()?.begins())
}

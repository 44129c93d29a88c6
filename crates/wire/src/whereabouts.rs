//! Where a hub may be found: at the addresses that were given (settings, a token), and at those that it told since of itself and of the
//! hubs that would replace it. What was given is never forgotten; what was told is replaced by what is told next.
//!
//! Hubs that replace one another have one key and different epochs. Who has seen a later one joins no earlier one: that one will find
//! out that it was replaced, and nothing that it says until then lasts.

use crate::dial::{DialError, Joined, dial_unless};
use crate::endpoint::Endpoint;
use crate::flow::Paths;
use crate::lock;
use crate::message::Hello;
use base::NodeId;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// Most addresses of one hub that are told and kept; further ones are left out.
pub const ADDRESSES_MAX: usize = 16;

/// Keeps the addresses that were told, for the next start.
pub type Keeps = Box<dyn Fn(&[SocketAddr]) + Send + Sync>;

/// See the module.
pub struct Whereabouts {
    hub: NodeId,
    given: Vec<SocketAddr>,
    known: Mutex<Known>,
    keeps: Option<Keeps>,
    /// Held while something is kept: what is kept last is what is known.
    keeping: Mutex<()>,
}

#[derive(Default)]
struct Known {
    told: Vec<SocketAddr>,
    /// Where it was joined last.
    good: Option<SocketAddr>,
    /// Where one was met that had been replaced.
    stale: Option<SocketAddr>,
    /// The highest epoch that was seen.
    newest: u64,
}

impl std::fmt::Debug for Whereabouts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Whereabouts").field("hub", &self.hub).field("addresses", &self.addresses()).finish()
    }
}

impl Whereabouts {
    /// Of the hub with this key, at the addresses that were given.
    pub fn new(hub: NodeId, given: Vec<SocketAddr>) -> Self {
        Self { hub, given, known: Mutex::default(), keeps: None, keeping: Mutex::default() }
    }

    /// With what an earlier start was told; `keeps` is called with what is told now, where that is something else,
    /// on a thread that may block.
    pub fn with_told(self, told: Vec<SocketAddr>, keeps: Keeps) -> Self {
        let known = Known { told: bounded(told), ..Known::default() };
        Self { known: Mutex::new(known), keeps: Some(keeps), ..self }
    }

    /// The hub's key.
    pub fn hub(&self) -> NodeId {
        self.hub
    }

    /// All addresses that are known, in the order in which they are tried.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let known = lock(&self.known);
        let mut all: Vec<SocketAddr> = Vec::new();
        for address in known.good.iter().chain(&self.given).chain(&known.told) {
            if !all.contains(address) {
                all.push(*address);
            }
        }
        if let Some(at) = all.iter().position(|address| known.stale == Some(*address)) {
            let last = all.remove(at);
            all.push(last);
        }
        all
    }

    /// Connects and greets as [`crate::dial()`] does, at all addresses that are known, and learns what the hub tells.
    ///
    /// # Errors
    /// As [`crate::dial()`]; [`DialError::Replaced`], after which the connection is closed.
    pub async fn dial(
        self: &Arc<Self>,
        endpoint: &Endpoint,
        known: impl Fn(SocketAddr) -> Paths,
        hello: Hello,
    ) -> Result<Joined, DialError> {
        self.dial_at(endpoint, &self.addresses(), known, hello, std::future::pending()).await
    }

    /// The same at these addresses alone, until `gives_up` completes. A greeting that has begun is waited for all the same.
    ///
    /// # Errors
    /// As [`Whereabouts::dial`]; [`DialError::GivenUp`].
    pub async fn dial_at(
        self: &Arc<Self>,
        endpoint: &Endpoint,
        addresses: &[SocketAddr],
        known: impl Fn(SocketAddr) -> Paths,
        hello: Hello,
        gives_up: impl Future<Output = ()>,
    ) -> Result<Joined, DialError> {
        let joined = dial_unless(endpoint, addresses, self.hub, known, hello, gives_up).await?;
        let (address, epoch) = (joined.connection.address(), joined.welcome.epoch);
        if let Err(error) = self.met(address, epoch) {
            joined.connection.close("a later hub has replaced this one");
            return Err(error);
        }
        let (own, mut hubs) = (Arc::downgrade(self), joined.hubs());
        let mut is_news = self.learn(&hubs.borrow_and_update().clone());
        tokio::spawn(async move {
            loop {
                if is_news && let Some(own) = own.upgrade() {
                    // One that panicked is told of by itself.
                    let _ = tokio::task::spawn_blocking(move || own.keep()).await;
                }
                if hubs.changed().await.is_err() {
                    return;
                }
                let Some(own) = own.upgrade() else { return };
                let told = hubs.borrow_and_update().clone();
                is_news = own.learn(&told);
            }
        });
        Ok(joined)
    }

    /// A hub of this epoch was met.
    fn met(&self, address: Option<SocketAddr>, epoch: u64) -> Result<(), DialError> {
        let known = &mut *lock(&self.known);
        if epoch < known.newest {
            (known.good, known.stale) = (None, address);
            return Err(DialError::Replaced { epoch, newest: known.newest });
        }
        (known.newest, known.good) = (epoch, address);
        known.stale = known.stale.filter(|stale| Some(*stale) != address);
        Ok(())
    }

    /// Whether that is news, to be kept.
    fn learn(&self, told: &[SocketAddr]) -> bool {
        let told = bounded(told.to_vec());
        let known = &mut lock(&self.known).told;
        let is_news = *known != told;
        *known = told;
        is_news
    }

    /// Keeps what was told last. Blocks.
    fn keep(&self) {
        let Some(keeps) = &self.keeps else { return };
        let _turn = lock(&self.keeping);
        let told = lock(&self.known).told.clone();
        keeps(&told);
    }
}

/// Addresses as a hub tells them; what is none is left out.
pub fn parsed(addresses: &[String]) -> Vec<SocketAddr> {
    bounded(addresses.iter().filter_map(|address| address.parse().ok()).collect())
}

fn bounded(mut addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    addresses.retain(|address| address.port() != 0 && !address.ip().is_unspecified());
    addresses.truncate(ADDRESSES_MAX);
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Digest;

    fn address(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    fn ports(whereabouts: &Whereabouts) -> Vec<u16> {
        whereabouts.addresses().iter().map(SocketAddr::port).collect()
    }

    #[test]
    fn what_was_told_comes_behind_what_was_given_and_is_kept() {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let keeping = kept.clone();
        let keeps = Box::new(move |told: &[SocketAddr]| lock(&keeping).push(told.to_vec()));
        let hub = Whereabouts::new(NodeId(Digest::of(b"hub")), vec![address(1), address(2)]);
        let hub = hub.with_told(vec![address(3)], keeps);
        assert_eq!(ports(&hub), [1, 2, 3]);
        assert!(!hub.learn(&[address(3)]));
        assert!(hub.learn(&[address(5)]) && hub.learn(&[address(4), address(2)]));
        hub.keep();
        assert_eq!((ports(&hub), lock(&kept).as_slice()), (vec![1, 2, 4], &[vec![address(4), address(2)]][..]));
        assert!(hub.learn(&(10..99).map(address).collect::<Vec<_>>()));
        assert_eq!(ports(&hub).len(), 2 + ADDRESSES_MAX);
        assert_eq!(parsed(&["127.0.0.1:5".into(), "x:6".into(), "0.0.0.0:7".into(), "[::1]:0".into()]), [address(5)]);
    }

    #[test]
    fn a_hub_that_was_replaced_is_known_by_its_epoch() {
        let hub = Whereabouts::new(NodeId(Digest::of(b"hub")), vec![address(1), address(2)]);
        let met = |port, epoch| hub.met(Some(address(port)), epoch).is_ok();
        assert!(met(1, 0) && met(1, 3) && met(2, 3));
        assert_eq!(ports(&hub), [2, 1], "where it was found last it is looked for first");
        assert!(!met(2, 2) && !met(2, 0));
        assert_eq!(ports(&hub), [1, 2], "and where an old one is last");
        assert!(met(2, 4) && !met(1, 3));
        assert_eq!(ports(&hub), [2, 1]);
    }
}

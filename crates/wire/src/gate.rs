//! Places for those who have knocked and are not let in yet.
//!
//! There are few, and whoever needs no key can ask for them. So no source gets more than are left for others, and where there is no
//! place the newcomer takes that of whoever has been slow for longest at the source that holds most. What deserves a place is decided
//! elsewhere: whoever is let in gives it back.

use crate::lock;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Who has sent nothing for so long can lose its place to a newcomer.
pub(crate) const SILENT_GRACE: Duration = Duration::from_millis(250);
/// The same of those who have shown that they speak: two round trips of a slow link.
pub(crate) const GRACE: Duration = Duration::from_secs(2);
/// A source may hold so many, however few are left.
const FEW: usize = 4;

/// Where a connection comes from, as far as places go: an address, or the network that one customer has (RFC 6177).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Source(IpAddr);

impl Source {
    pub fn of(address: SocketAddr) -> Self {
        Self(match address.ip().to_canonical() {
            IpAddr::V6(ip) => {
                let [a, b, c, d, ..] = ip.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            four => four,
        })
    }
}

/// Gives places.
#[derive(Debug)]
pub(crate) struct Gate<From> {
    most: usize,
    inner: Arc<Mutex<Inner<From>>>,
}

#[derive(Debug)]
struct Inner<From> {
    next: u64,
    /// In the order of their coming.
    held: BTreeMap<u64, Held<From>>,
    counts: HashMap<From, usize>,
}

#[derive(Debug)]
struct Held<From> {
    from: From,
    since: Instant,
    has_spoken: bool,
    /// Tells the holder that it has lost its place.
    lost: Option<oneshot::Sender<()>>,
}

/// A place. It is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Place<From: Copy + Eq + Hash> {
    number: u64,
    inner: Arc<Mutex<Inner<From>>>,
}

/// Ends when a place is lost to a newcomer; an error says that it was given back.
pub(crate) type Lost = oneshot::Receiver<()>;

impl<From: Copy + Eq + Hash> Gate<From> {
    /// One with this many places.
    pub fn new(most: usize) -> Self {
        let inner = Inner { next: 0, held: BTreeMap::new(), counts: HashMap::new() };
        Self { most, inner: Arc::new(Mutex::new(inner)) }
    }

    /// How many places are free.
    pub fn free(&self) -> usize {
        self.most.saturating_sub(lock(&self.inner).held.len())
    }

    /// A place for somebody from `from`; `None` if there is none to be had `now`.
    pub fn enter(&self, from: From, now: Instant) -> Option<(Place<From>, Lost)> {
        self.enter_at_most(from, usize::MAX, now)
    }

    /// The same where no source may hold more than `most`.
    pub fn enter_at_most(&self, from: From, most: usize, now: Instant) -> Option<(Place<From>, Lost)> {
        let mut inner = lock(&self.inner);
        let free = self.most.saturating_sub(inner.held.len());
        let own = inner.counts.get(&from).copied().unwrap_or(0);
        if free == 0 {
            let heaviest = inner.heaviest()?;
            inner.take_from(heaviest, now)?;
        } else if own >= free.max(FEW).min(most) {
            inner.take_from(from, now)?;
        }
        let (lost, told) = oneshot::channel();
        let number = inner.next;
        inner.next += 1;
        inner.held.insert(number, Held { from, since: now, has_spoken: false, lost: Some(lost) });
        *inner.counts.entry(from).or_default() += 1;
        Some((Place { number, inner: self.inner.clone() }, told))
    }
}

impl<From: Copy + Eq + Hash> Inner<From> {
    fn heaviest(&self) -> Option<From> {
        self.counts.iter().max_by_key(|(_, count)| **count).map(|(from, _)| *from)
    }

    /// Takes the place of one who has been slow; the silent before the others, the first first. `None`: nobody has had its time.
    fn take_from(&mut self, from: From, now: Instant) -> Option<()> {
        let is_slow = |held: &Held<From>, has_spoken: bool, grace: Duration| {
            held.from == from && held.has_spoken == has_spoken && now.saturating_duration_since(held.since) >= grace
        };
        let find = |has_spoken, grace| self.held.iter().find(|(_, held)| is_slow(held, has_spoken, grace));
        let number = *find(false, SILENT_GRACE).or_else(|| find(true, GRACE))?.0;
        let mut gone = self.remove(number)?;
        // It has ended by itself, perhaps.
        gone.lost.take().map(|lost| lost.send(()).unwrap_or_default())
    }

    fn remove(&mut self, number: u64) -> Option<Held<From>> {
        let gone = self.held.remove(&number)?;
        if let Some(count) = self.counts.get_mut(&gone.from) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&gone.from);
            }
        }
        Some(gone)
    }
}

impl<From: Copy + Eq + Hash> Place<From> {
    /// Its holder has said what only a program of ours says, and has some time more from `now` on.
    pub fn has_spoken(&self, now: Instant) {
        if let Some(held) = lock(&self.inner).held.get_mut(&self.number) {
            (held.has_spoken, held.since) = (true, now);
        }
    }
}

impl<From: Copy + Eq + Hash> Drop for Place<From> {
    fn drop(&mut self) {
        lock(&self.inner).remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_source_takes_what_is_left_for_others() {
        let gate = Gate::new(64);
        let now = Instant::now();
        let flood: Vec<_> = std::iter::from_fn(|| gate.enter(1, now)).take(1000).collect();
        assert_eq!((flood.len(), gate.free()), (32, 32));
        let more: Vec<_> = std::iter::from_fn(|| gate.enter(2, now)).take(1000).collect();
        assert!(more.len() >= 16 && gate.free() > 0, "{} {}", more.len(), gate.free());
        assert!(gate.enter(3, now).is_some());
        drop((flood, more));
        assert_eq!(gate.free(), 64);
        assert!(lock(&gate.inner).counts.is_empty());
    }

    #[test]
    fn a_newcomer_takes_the_place_of_the_silent_and_of_the_slow() {
        let gate = Gate::new(8);
        let begun = Instant::now();
        let mut held: Vec<_> = std::iter::from_fn(|| gate.enter(1, begun)).take(100).collect();
        let later = begun + SILENT_GRACE;
        held[0].0.has_spoken(begun);
        let new = gate.enter(1, later).expect("the silent one's");
        assert!(held[0].1.try_recv().is_err(), "who has spoken stays");
        assert_eq!(held[1].1.try_recv(), Ok(()));
        held.iter().chain([&new]).for_each(|(place, _)| place.has_spoken(later));
        assert!(gate.enter(1, later).is_none());
        let _newer = gate.enter(1, later + GRACE).expect("a slow one's");
        drop(held);
        assert_eq!(gate.free(), 6, "who lost its place gives back none");
    }

    #[test]
    fn when_all_is_taken_the_heaviest_source_pays() {
        let gate = Gate::new(16);
        let begun = Instant::now();
        let mut honest = gate.enter(0, begun).expect("a place");
        let _flood: Vec<_> = std::iter::from_fn(|| gate.enter(1, begun)).take(100).collect();
        let _few: Vec<_> = (2..100).map_while(|from| gate.enter(from, begun)).collect();
        assert_eq!(gate.free(), 0);
        let newer: Vec<_> = (100..104).map(|from| gate.enter(from, begun + GRACE).expect("the flood's")).collect();
        assert!(honest.1.try_recv().is_err(), "it holds one, and has been silent as long");
        assert_eq!((newer.len(), lock(&gate.inner).counts[&1]), (4, 4));
    }

    #[test]
    fn addresses_of_one_customer_are_one_source() {
        let source = |text: &str| Source::of(text.parse().expect("an address"));
        assert_eq!(source("[2001:db8:1:2::1]:1"), source("[2001:db8:1:2:ffff::9]:2"));
        assert_ne!(source("[2001:db8:1:2::1]:1"), source("[2001:db8:1:3::1]:1"));
        assert_eq!(source("[::ffff:192.0.2.1]:5"), source("192.0.2.1:9"));
        assert_ne!(source("192.0.2.1:5"), source("192.0.2.2:5"));
    }
}

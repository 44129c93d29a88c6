//! Giving way: what goes to and from a machine that belongs to somebody else takes what his own traffic leaves, and no share of the rest
//! (less than best effort, RFC 6297).
//!
//! A flow that fills its link has a queue of its own, which goes away when less is under way. A queue that stays is another's. From then on
//! there are two packets a round trip, enough to see when that queue is gone; then an eighth of what fills the link more each round.
//!
//! What is short does not wait for that: a share of the link is saved up meanwhile, up to what fills it once, and spent as fast as one likes.
//!
//! Not seen is a neighbour whose packets do not wait where ours do (fair queueing gives both a half), or whose queue is hardly longer than ours.
//! On the shortest paths nobody gives way: what waits there is told from a busy processor by nothing.

use super::{FASTER_ROUNDS, Flow, MS, Nanos, Path, Round, SECOND};

/// Nobody gives way on shorter paths.
const ROUND_TRIP_MIN: Nanos = 2 * MS;
/// How long packets may wait for those of the same flow: a sixteenth of the round trip, within these bounds.
const OWN_QUEUE_MIN: Nanos = 3 * MS;
const OWN_QUEUE_MAX: Nanos = 5 * MS;
/// Rounds in a row with a queue, although less and less was under way, that make it another's.
const ROUNDS: u32 = 2;
/// A look whether another's queue is gone takes so many round trips, …
const HOLD_ROUND_TRIPS: u64 = 4;
/// … and no less than this; when the queue is back soon after, twice as long as before, up to …
const HOLD_MIN: Nanos = SECOND / 5;
/// … this.
const HOLD_MAX: Nanos = 2 * SECOND;
/// Soon: within so many times the look's length.
const SOON: u64 = 8;
/// What is saved up meanwhile: the link's rate, divided by this.
const SAVED: u64 = 40;
/// Packets that all wait equally long (within `STEADY`) for such a time are on a path that has become longer: queues of others come and go.
const LONGER_TIME: Nanos = 20 * SECOND;
const STEADY: Nanos = 5 * MS;

/// What a flow that gives way has seen of others.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Behind {
    hold: Option<Hold>,
    /// How long the last one took a look, and when it ended.
    last: Option<(Nanos, Nanos)>,
    /// Rounds in a row with a queue.
    queued: u32,
    waiting: Option<Waiting>,
}

/// Somebody else's queue is there.
#[derive(Clone, Copy, Debug)]
struct Hold {
    until: Nanos,
    length: Nanos,
    /// What was there all the time since it was last looked at.
    least: Nanos,
    /// Bytes that may be sent beside, and when that was counted.
    saved: u64,
    counted: Nanos,
}

/// The round trips of the time in which there was always a queue.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    since: Nanos,
    least: Nanos,
    most: Nanos,
}

impl Behind {
    /// Whether a rate is seen that is another's doing.
    pub(super) fn is_holding(&self) -> bool {
        self.hold.is_some()
    }

    fn hold(&mut self, now: Nanos, path: &Path) {
        let usual = (HOLD_ROUND_TRIPS * path.round_trip).clamp(HOLD_MIN, HOLD_MAX);
        let again = self.last.filter(|(length, ended)| now.saturating_sub(*ended) < SOON * length);
        let length = again.map_or(usual, |(length, _)| (2 * length).clamp(usual, HOLD_MAX));
        self.hold = Some(Hold { until: now + length, length, least: Nanos::MAX, saved: 0, counted: now });
    }

    /// Whether another's queue is there still, at the end of a round in which so much stood.
    fn holds(&mut self, now: Nanos, standing: Nanos, own: Nanos) -> bool {
        let Some(hold) = &mut self.hold else { return false };
        hold.least = hold.least.min(standing);
        if now >= hold.until && hold.least <= own {
            self.last = Some((hold.length, now));
            (self.hold, self.queued) = (None, 0);
        } else if now >= hold.until {
            (hold.until, hold.least) = (now + hold.length, Nanos::MAX);
        }
        self.hold.is_some()
    }

    /// The round trip of a path that has become longer.
    fn longer(&mut self, now: Nanos, shortest: Nanos, is_queue: bool) -> Option<Nanos> {
        let begun = Waiting { since: now, least: shortest, most: shortest };
        let Some(Waiting { since, least, most }) = self.waiting.filter(|_| is_queue) else {
            self.waiting = is_queue.then_some(begun);
            return None;
        };
        let seen = Waiting { since, least: least.min(shortest), most: most.max(shortest) };
        self.waiting = Some(if seen.most - seen.least > STEADY { begun } else { seen });
        (now - since > LONGER_TIME && seen.most - seen.least <= STEADY).then_some(seen.least)
    }
}

impl Path {
    /// Whether flows can give way on it.
    fn is_long(&self) -> bool {
        self.round_trip >= ROUND_TRIP_MIN
    }

    /// How long packets may wait for those of the same flow that gives way.
    fn own_queue(&self) -> Nanos {
        (self.round_trip / 16).clamp(OWN_QUEUE_MIN, OWN_QUEUE_MAX)
    }
}

impl Flow {
    /// From now on it takes what others leave.
    pub fn give_way(&mut self) {
        self.behind.get_or_insert_default();
    }

    /// Whether it is one that others go before, on this path.
    pub(super) fn gives_way(&self, path: &Path) -> bool {
        self.behind.is_some() && path.is_long()
    }

    /// Whether so little is under way for another's sake that the rate cannot be seen.
    pub(super) fn is_back(&self) -> bool {
        let Some(behind) = &self.behind else { return false };
        let is_less = |path: Path| path.is_long() && self.window < path.product() * 3 / 4;
        behind.is_holding() || !self.starting && self.path().is_some_and(is_less)
    }

    /// What it has in any case: two packets, which are acknowledged at once, and quinn wants room for a bit more.
    pub(super) fn window_behind(&self) -> u64 {
        let saved = self.behind.and_then(|behind| behind.hold).map_or(0, |hold| hold.saved);
        self.mtu * 5 / 2 + saved
    }

    /// Counts what was saved up, and what of it is spent by sending so much.
    pub(super) fn spend(&mut self, now: Nanos, bytes: u64) {
        let path = self.path();
        let Some(hold) = self.behind.as_mut().and_then(|behind| behind.hold.as_mut()) else { return };
        let Some(path) = path else { return };
        let earned = path.bytes_in(now.saturating_sub(hold.counted)) / SAVED;
        hold.saved = (hold.saved + earned).min(path.product()).saturating_sub(bytes);
        hold.counted = now;
    }

    /// A queue that stays for so long and so steadily is the path's own length.
    pub(super) fn watch_length(&mut self, now: Nanos, shortest: Nanos, standing: Nanos, path: &Path) {
        let Some(behind) = &mut self.behind else { return };
        if let Some(longer) = behind.longer(now, shortest, standing > path.own_queue()) {
            *behind = Behind::default();
            self.round_trip = Some(longer);
            self.starting = true;
        }
    }

    /// As much as fills the path, if nobody else does.
    pub(super) fn follow_behind(&mut self, now: Nanos, round: &Round, standing: Nanos, path: &Path) {
        let (own, least, product) = (path.own_queue(), self.window_behind(), path.product());
        let Some(behind) = &mut self.behind else { return };
        if behind.holds(now, standing, own) {
            return;
        }
        if !round.full {
            // Little is sent: it fills nothing.
            self.faster = 0;
            return;
        }
        if standing > own {
            self.faster = 0;
            behind.queued += 1;
            self.window = self.window.saturating_sub(path.bytes_in(standing - own / 2)).max(least);
            if behind.queued >= ROUNDS {
                behind.hold(now, path);
                self.window = least;
            }
            return;
        }
        behind.queued = 0;
        if standing > own / 2 {
            self.faster = 0;
            return;
        }
        let most = self.ceiling.map_or(super::WINDOW_MAX, |(window, _)| window.max(product));
        if self.window < product {
            self.window = (self.window + (product / 8).max(self.mtu)).min(product).min(most);
            return;
        }
        self.faster += 1;
        let much = if self.faster >= FASTER_ROUNDS { self.window / 4 } else { 0 };
        self.window = (self.window + path.bytes_in(own / 4).max(self.mtu / 2).max(much)).min(most);
    }
}

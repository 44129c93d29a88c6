//! Giving way: what goes to and from a machine that belongs to somebody else takes what his own traffic leaves, and no share of the rest
//! (less than best effort, RFC 6297).
//!
//! A flow that fills its link has a queue of its own, which goes away when less is under way. A longer one may be another's: then only half as much
//! is under way, and if packets that were sent since still wait, it is. From then on there are two packets a round trip, enough to see when that
//! queue is gone; then an eighth of what fills the link more each round.
//!
//! What is short does not wait for that: a share of the link is saved up meanwhile, up to what fills it once, and spent as fast as one likes.
//!
//! Not seen is a neighbour whose packets do not wait where ours do (fair queueing gives both a half), or whose queue is hardly longer than ours.
//! On the shortest paths nobody gives way: what waits there is told from a busy processor by nothing.

use super::{FASTER_ROUNDS, Flow, MS, Nanos, Path, Round, SECOND, TOGETHER_MAX, WINDOW_MAX};

/// Nobody gives way on shorter paths.
const ROUND_TRIP_MIN: Nanos = 2 * MS;
/// How long packets may wait for those of the same flow: a sixteenth of the round trip, within these bounds.
const OWN_QUEUE_MIN: Nanos = 3 * MS;
const OWN_QUEUE_MAX: Nanos = 5 * MS;
/// Packets in a row that wait for longer than ours explain, …
const WAITED: u32 = 8;
/// … for longer than so many take to be sent: as many may leave at one moment.
const BURST: u64 = 15;
/// A look whether another's queue is gone takes so many round trips, …
const HOLD_ROUND_TRIPS: u64 = 4;
/// … and no less than this; when the queue is back soon after, twice as long as before, up to …
const HOLD_MIN: Nanos = SECOND / 5;
/// … this.
const HOLD_MAX: Nanos = 2 * SECOND;
/// Soon: within so many times the look's length.
const SOON: u64 = 8;
/// Once it is gone each round brings so much more of what fills the link: one part of so many.
const GROWS: u64 = 8;
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
    /// Packets in a row that waited for longer than ours explain, and the first one's arrival.
    waited: u32,
    waited_since: Nanos,
    /// When less was sent because of that: what was sent before tells nothing new.
    suspected: Option<Nanos>,
    /// The window of the round before.
    before: u64,
    /// What comes through while the window is used up, bytes a second; and that when less was sent.
    brought: u64,
    suspect: u64,
    waiting: Option<Waiting>,
}

/// Somebody else's queue is there.
#[derive(Clone, Copy, Debug)]
struct Hold {
    until: Nanos,
    length: Nanos,
    /// What was there all the time since it was last looked at.
    least: Nanos,
    /// It was looked at before.
    is_lasting: bool,
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
        (self.suspected, self.waited) = (None, 0);
        self.hold =
            Some(Hold { until: now + length, length, least: Nanos::MAX, is_lasting: false, saved: 0, counted: now });
    }

    /// Looks whether another's queue is there still, at the end of a round in which so much stood. Returns it when it is gone.
    fn look(&mut self, now: Nanos, standing: Nanos, own: Nanos) -> Option<Hold> {
        let hold = self.hold.as_mut()?;
        hold.least = hold.least.min(standing);
        if now < hold.until {
            return None;
        }
        if hold.least <= own {
            self.last = Some((hold.length, now));
            return self.hold.take();
        }
        (hold.until, hold.least, hold.is_lasting) = (now + hold.length, Nanos::MAX, true);
        None
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

    /// How long it takes to send so much.
    fn time_for(&self, bytes: u64) -> Nanos {
        (u128::from(bytes) * u128::from(SECOND) / u128::from(self.rate.max(1))) as u64
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
        if !self.behind.is_some_and(|behind| behind.is_holding()) {
            return;
        }
        let path = self.path();
        let hold = self.behind.as_mut().and_then(|behind| behind.hold.as_mut());
        let (Some(hold), Some(path)) = (hold, path) else { return };
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

    /// A packet of so many bytes that was sent at `sent` has come through.
    pub(super) fn notice(&mut self, now: Nanos, sent: Nanos, bytes: u64) {
        let Some(path) = self.path().filter(|path| !self.starting && self.gives_way(path)) else { return };
        let least = self.window_behind();
        let Some(behind) = &mut self.behind else { return };
        if behind.is_holding() || behind.suspected.is_some_and(|then| sent <= then) {
            return;
        }
        // What is more under way than fills the link waits for itself.
        let ours = self.window.max(behind.before).saturating_sub(path.product()) + TOGETHER_MAX * self.mtu;
        let waited = (now - sent).saturating_sub(path.round_trip).saturating_sub(path.time_for(ours));
        if waited <= path.own_queue() {
            behind.waited = 0;
            let (was_ours, brought) = (behind.suspected.take().is_some(), behind.suspect);
            if was_ours {
                self.is_no_faster_than(brought);
            }
            if self.window < path.product() && self.round.full {
                // Bit by bit: what leaves at one moment waits for itself.
                self.window += path.product() * bytes / (GROWS * self.window);
            }
            return;
        }
        if behind.waited == 0 {
            behind.waited_since = now;
        }
        behind.waited += 1;
        if behind.waited < WAITED || now - behind.waited_since < path.time_for(BURST * self.mtu) {
            return;
        }
        self.faster = 0;
        if behind.suspected.is_some() {
            behind.hold(now, &path);
            self.window = least;
        } else {
            (behind.waited, behind.suspected, behind.suspect) = (0, Some(now), behind.brought);
            behind.before = 0;
            self.window = (self.window.min(path.product()) / 2).max(least);
        }
    }

    /// A queue was ours, or of one who was soon gone: the link was full, and what came through is what it can do. If not, that will be seen.
    fn is_no_faster_than(&mut self, brought: u64) {
        if brought > 0 {
            self.rates.lower(brought + brought / 16);
        }
    }

    /// So much comes through while the window is used up, bytes a second.
    pub(super) fn brought(&mut self, rate: u64) {
        self.behind.iter_mut().for_each(|behind| behind.brought = rate);
    }

    /// As much as fills the path, if nobody else does.
    pub(super) fn follow_behind(&mut self, now: Nanos, round: &Round, standing: Nanos, path: &Path) {
        let (own, product) = (path.own_queue(), path.product());
        let Some(behind) = &mut self.behind else { return };
        behind.before = self.window;
        let (ended, brought) = (behind.look(now, standing, own), behind.suspect);
        if behind.is_holding() || behind.suspected.is_some() {
            return;
        }
        if let Some(hold) = ended {
            // What was lost meanwhile was lost to him.
            self.ceiling = None;
            if !hold.is_lasting {
                self.is_no_faster_than(brought);
            }
        }
        if !round.full || standing > own / 2 {
            self.faster = 0;
            if round.full && standing > own {
                self.window = self.window.min(product);
            }
            return;
        }
        self.faster += 1;
        let more = if self.window < product {
            0
        } else if self.faster > FASTER_ROUNDS {
            self.faster = 0;
            self.window / 4
        } else {
            path.bytes_in(own / 4).max(self.mtu / 2)
        };
        let most = self.ceiling.map_or(WINDOW_MAX, |(window, _)| window.max(product));
        self.window = (self.window + more).min(most);
    }
}

//! The window as a pure machine: what was sent, acknowledged and lost, and when, goes in.
//!
//! It knows two numbers of the path: the *rate* at which packets are delivered, and the *round trip* without queueing. Their
//! product fills the link. What is more waits in a queue, and is seen as a longer round trip: the window shrinks until hardly any
//! waits. A queue may also be too short to be seen: where more is lost than usual the window goes back to the product, and keeps
//! away for some time from where that was. What is lost when no more than that is under way is usual there (Wi-Fi, long distance),
//! and no sign of a full link.
//!
//! Rates are sampled as by draft-cheng-iccrg-delivery-rate-estimation; the two things that are ours are that a short flight
//! tells the rate by how far apart its acknowledgements come, and that the window follows the queue and not the loss.

mod behind;

use behind::Behind;
use std::collections::VecDeque;

/// Nanoseconds of a clock that does not go back.
pub type Nanos = u64;

const SECOND: Nanos = 1_000_000_000;
const MS: Nanos = 1_000_000;

/// How long packets may wait in queues, beside the time that those sent together take: two round trips, within these bounds. Less
/// would be taken for a queue where a processor was busy, more is felt by other traffic.
const STANDING_MIN: Nanos = 3 * MS;
const STANDING_MAX: Nanos = 10 * MS;
/// A smaller window would stall on delayed acknowledgements, packets.
const PACKETS_MIN: u64 = 4;
/// The window of a path of which nothing is known, packets (RFC 9002, section 7.2).
const PACKETS_FIRST: u64 = 10;
/// Packets that are acknowledged together (RFC 9000, section 13.2.2: every second one) are those that left together: the time in which
/// the link sends them is no queue. More than so many are acknowledgements that were held up.
const TOGETHER_MAX: u64 = 2;
/// Never more under way than this, bytes.
const WINDOW_MAX: u64 = 64 << 20;
/// Moments of sending that are remembered; what was sent before gives no samples.
const RECORDS_MAX: usize = 8192;
/// The rate is the highest of this many rounds.
const RATE_ROUNDS: usize = 10;
/// From this share of lost bytes on, less is under way than fills the link; …
const LOSS_MAX: f64 = 0.1;
/// … from this one on, beside what is usual on the path, no more than that: the queue may be shorter than we let one grow.
const LOSS_NOTICED: f64 = 0.01;
/// Loss is counted over at least so many packets.
const LOSS_PACKETS: u64 = 128;
/// Rounds in a row without 25% more before a start is over.
const LEVEL_ROUNDS: u32 = 3;
/// Rounds in a row with a full window and no queue before it grows by a quarter: the link has become faster.
const FASTER_ROUNDS: u32 = 3;
/// Rounds for which a window at which something was lost is kept away from.
const CEILING_ROUNDS: u32 = 200;
/// Rounds in a row with a queue although the window is at its least: then the path has become longer.
const LONGER_ROUNDS: u32 = 6;
/// The same for rounds in which hardly anything was sent.
const LONGER_ROUNDS_IDLE: u32 = 3;
/// Packets that are sent within this time travel together, as a train: their acknowledgements come apart at the link's rate.
const TRAIN_SENT: Nanos = 2 * MS;
/// It must be so many, less the first acknowledgement's, …
const TRAIN_PACKETS: u64 = 6;
/// … and take so long, or what it says is noise.
const TRAIN_TIME: Nanos = 5 * MS;

/// What is known of a path, one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Bytes a second, as QUIC counts them.
    pub rate: u64,
    /// Round trip without queueing, nanoseconds.
    pub round_trip: Nanos,
}

impl Path {
    /// Bytes that the path takes in this time.
    fn bytes_in(&self, time: Nanos) -> u64 {
        (u128::from(self.rate) * u128::from(time) / u128::from(SECOND)) as u64
    }

    /// How long packets may wait on it.
    fn standing_max(&self) -> Nanos {
        (self.round_trip * 2).clamp(STANDING_MIN, STANDING_MAX)
    }

    /// Bytes that are under way on a full path without a queue.
    pub fn product(&self) -> u64 {
        self.bytes_in(self.round_trip)
    }
}

/// One direction of one connection.
#[derive(Clone, Debug)]
pub struct Flow {
    mtu: u64,
    window: u64,
    /// The window grows by all that is delivered, until the path is known.
    starting: bool,
    round_trip: Option<Nanos>,
    /// What was remembered, until the first acknowledgement.
    unproven: Option<Path>,
    rates: Rates,
    sent: Sent,
    round: Round,
    train: Train,
    loss: Loss,
    /// The rate when it last grew by a quarter, and rounds since.
    level: (u64, u32),
    faster: u32,
    longer: u32,
    /// A window at which much was lost, and how many rounds it is to be kept away from.
    ceiling: Option<(u64, u32)>,
    /// The share that is lost when hardly more is under way than fills the link.
    usual_loss: f64,
    /// Rounds in a row that were longer although hardly anything was sent, and the shortest of them.
    longer_idle: (u32, Nanos),
    /// Of one that gives way to others.
    behind: Option<Behind>,
}

/// What is under way, and what has been delivered.
#[derive(Clone, Debug, Default)]
struct Sent {
    in_flight: u64,
    delivered: u64,
    delivered_at: Nanos,
    /// Of this, what was at that moment.
    together: u64,
    /// When the packet was sent that was last known to be delivered.
    first: Nanos,
    records: VecDeque<Record>,
}

/// What was sent at one moment.
#[derive(Clone, Copy, Debug)]
struct Record {
    at: Nanos,
    /// The fields of [`Sent`] at that moment.
    delivered: u64,
    delivered_at: Nanos,
    first: Nanos,
}

/// From the sending of a packet to its acknowledgement: what happened meanwhile.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    begun: Nanos,
    /// It ends with the acknowledgement of a packet that was sent after this much had been delivered.
    ends: u64,
    shortest: Option<Nanos>,
    acked: u64,
    /// Most bytes acknowledged at one moment.
    together: u64,
    /// The window was used up.
    full: bool,
}

/// The first packets of a flight.
#[derive(Clone, Copy, Debug, Default)]
struct Train {
    sent: Nanos,
    first_ack: Option<Nanos>,
    /// What was acknowledged after that.
    bytes: u64,
}

/// What was lost of what was sent since the last look.
#[derive(Clone, Copy, Debug, Default)]
struct Loss {
    lost: u64,
    acked: u64,
    /// When the window was last made smaller: what was sent before is no news.
    answered: Nanos,
}

/// The highest rates of the last rounds that had any.
#[derive(Clone, Debug, Default)]
struct Rates(VecDeque<u64>);

impl Rates {
    fn see(&mut self, rate: u64) {
        match self.0.back_mut() {
            Some(last) => *last = rate.max(*last),
            None => self.0.push_back(rate),
        }
    }

    fn end_round(&mut self) {
        if self.0.back().is_some_and(|rate| *rate > 0) {
            self.0.push_back(0);
        }
        if self.0.len() > RATE_ROUNDS {
            self.0.pop_front();
        }
    }

    fn highest(&self) -> u64 {
        self.0.iter().copied().max().unwrap_or(0)
    }

    fn lower(&mut self, to: u64) {
        self.0.iter_mut().for_each(|rate| *rate = to.min(*rate));
    }
}

impl Flow {
    /// A path of which `known` was remembered, if anything. `mtu`: bytes of a full packet.
    pub fn new(mtu: u64, known: Option<Path>) -> Self {
        let mut flow = Self {
            mtu,
            window: PACKETS_FIRST * mtu,
            starting: true,
            round_trip: None,
            unproven: None,
            rates: Rates::default(),
            sent: Sent::default(),
            round: Round::default(),
            train: Train::default(),
            loss: Loss::default(),
            level: (0, 0),
            faster: 0,
            longer: 0,
            ceiling: None,
            usual_loss: 0.0,
            longer_idle: (0, Nanos::MAX),
            behind: None,
        };
        known.into_iter().for_each(|path| flow.remember(path));
        flow
    }

    /// Goes by what was known of the path before. What turns out to be wrong is corrected within some round trips; what is of
    /// another path, by its round trip, counts for nothing.
    pub fn remember(&mut self, path: Path) {
        if self.round_trip.is_some_and(|seen| is_another(&path, seen)) {
            return;
        }
        self.unproven = Some(path);
        self.rates.see(path.rate);
        self.round_trip = Some(self.round_trip.map_or(path.round_trip, |known| known.min(path.round_trip)));
        self.starting = false;
        self.window = self.enough(&path).max(self.window);
    }

    /// The same after it has moved to another path, of which `known` was remembered, if anything. What is under way still is.
    pub fn on_another_path(&self, known: Option<Path>) -> Self {
        let mut flow = self.anew(self.mtu, known);
        flow.sent.in_flight = self.sent.in_flight;
        flow
    }

    /// One that is to others as this one is, of a path of which `known` was remembered, if anything.
    pub fn anew(&self, mtu: u64, known: Option<Path>) -> Self {
        Self { behind: self.behind.map(|_| Behind::default()), ..Self::new(mtu, known) }
    }

    /// What has been learnt; `None` before a rate was seen.
    pub fn path(&self) -> Option<Path> {
        let rate = self.rates.highest();
        Some(Path { rate, round_trip: self.round_trip? }).filter(|_| rate > 0)
    }

    /// Whether the rate is the link's, and not only what there was to send.
    pub fn is_trained(&self) -> bool {
        !self.starting
    }

    /// Bytes that may be under way.
    pub fn window(&self) -> u64 {
        let least = if self.behind.is_some() { self.window_behind() } else { PACKETS_MIN * self.mtu };
        self.window.max(least).min(WINDOW_MAX)
    }

    /// Packets are of this size from now on.
    pub fn set_mtu(&mut self, mtu: u64) {
        self.mtu = mtu;
    }

    /// `bytes` were sent.
    pub fn on_sent(&mut self, now: Nanos, bytes: u64) {
        let sent = &mut self.sent;
        if sent.in_flight == 0 {
            // A pause says nothing about the rate.
            (sent.first, sent.delivered_at) = (now, now.max(sent.delivered_at));
            self.train = Train { sent: now, ..Train::default() };
        }
        sent.in_flight += bytes;
        if sent.records.back().is_none_or(|last| last.at < now) {
            let Sent { delivered, delivered_at, first, .. } = *sent;
            sent.records.push_back(Record { at: now, delivered, delivered_at, first });
            if sent.records.len() > RECORDS_MAX {
                sent.records.pop_front();
            }
        }
        self.spend(now, bytes);
        self.round.full |= self.sent.in_flight + self.mtu > self.window();
    }

    /// `bytes` that were sent at `sent` were acknowledged; `app_limited`: there was nothing else to send.
    ///
    /// Who reads datagrams looks at the clock once for many of them: on a busy machine an acknowledgement is then said to have come before
    /// its packet was sent, or before another. Here time does not go back.
    pub fn on_acked(&mut self, now: Nanos, sent: Nanos, bytes: u64, app_limited: bool) {
        let now = now.max(sent).max(self.sent.delivered_at);
        self.sent.in_flight = self.sent.in_flight.saturating_sub(bytes);
        self.sent.delivered += bytes;
        self.sent.together = if now > self.sent.delivered_at { bytes } else { self.sent.together + bytes };
        self.sent.delivered_at = now;
        self.round.acked += bytes;
        self.round.together = self.round.together.max(self.sent.together);
        let took = now.saturating_sub(sent);
        if self.unproven.take().is_some_and(|remembered| is_another(&remembered, took)) {
            self.begin_anew();
        }
        self.round_trip = Some(self.round_trip.map_or(took, |known| known.min(took)));
        self.round.shortest = Some(self.round.shortest.map_or(took, |known| known.min(took)));
        self.loss.acked += bytes;
        self.ride_train(now, sent, bytes);
        if !app_limited {
            self.notice(now, sent, bytes);
        }
        if self.starting && (self.round.full || !app_limited) {
            self.window = (self.window + bytes).min(WINDOW_MAX);
        }
        while self.sent.records.front().is_some_and(|record| record.at < sent) {
            self.sent.records.pop_front();
        }
        let Some(record) = self.sent.records.front().copied().filter(|record| record.at == sent) else { return };
        self.sent.first = sent;
        self.sample(now, &record, app_limited);
        if record.delivered >= self.round.ends {
            self.end_round(now);
        }
    }

    /// Nothing is known of the path, after all.
    fn begin_anew(&mut self) {
        self.rates = Rates::default();
        self.round_trip = None;
        self.starting = true;
        self.window = PACKETS_FIRST * self.mtu;
    }

    /// So much is under way, by the count of who sends: some packets are given up without being acknowledged or lost.
    pub fn set_in_flight(&mut self, bytes: u64) {
        self.sent.in_flight = bytes;
    }

    /// `bytes` are taken for lost, of which the last was sent at `sent`; `persistent`: nothing came through for several
    /// round trips.
    pub fn on_lost(&mut self, sent: Nanos, bytes: u64, persistent: bool) {
        self.sent.in_flight = self.sent.in_flight.saturating_sub(bytes);
        if sent > self.loss.answered {
            self.loss.lost += bytes;
        }
        if persistent {
            self.window = (self.window / 2).max(PACKETS_MIN * self.mtu);
        }
    }

    /// A rate by what was delivered between a packet's sending and its acknowledgement.
    fn sample(&mut self, now: Nanos, record: &Record, app_limited: bool) {
        let took = (now - record.delivered_at).max(record.at.saturating_sub(record.first));
        let bytes = self.sent.delivered - record.delivered;
        if took == 0 || bytes < 2 * self.mtu {
            return;
        }
        let seen = rate(bytes, took);
        if !app_limited && self.round.full {
            self.brought(seen);
        }
        // Who has little to send does not see what the link could do.
        if seen > self.rates.highest() || !app_limited && self.round.full && !self.is_back() {
            self.rates.see(seen);
        }
    }

    fn ride_train(&mut self, now: Nanos, sent: Nanos, bytes: u64) {
        let train = &mut self.train;
        if sent.saturating_sub(train.sent) > TRAIN_SENT {
            return;
        }
        let Some(first_ack) = train.first_ack else {
            train.first_ack = Some(now);
            return;
        };
        if now > first_ack {
            train.bytes += bytes;
        }
        let apart = now - first_ack;
        if train.bytes >= TRAIN_PACKETS * self.mtu && apart >= TRAIN_TIME {
            let seen = rate(train.bytes, apart);
            if seen > self.rates.highest() {
                self.rates.see(seen);
                let path = self.path().expect("it has a rate, and was acknowledged");
                self.window = self.window.max(self.enough(&path));
                self.starting = false;
            }
        }
    }

    fn end_round(&mut self, now: Nanos) {
        let round =
            std::mem::replace(&mut self.round, Round { begun: now, ends: self.sent.delivered, ..Round::default() });
        let (Some(path), Some(shortest)) = (self.path(), round.shortest) else { return };
        let took = now.saturating_sub(round.begun).max(1);
        let delivered = rate(round.acked, took);
        let together = round.together.clamp(self.mtu, TOGETHER_MAX * self.mtu);
        let sending = u128::from(together) * u128::from(SECOND) / u128::from(path.rate.max(1));
        let standing = shortest.saturating_sub(path.round_trip).saturating_sub(sending as u64);
        if round.full && standing > path.standing_max() / 2 && !self.gives_way(&path) {
            // The link was busy all the time: what came through is what it can do.
            self.rates.lower(delivered + delivered / 16);
        }
        let lost = self.loss_share(now);
        if self.gives_way(&path) {
            self.watch_length(now, shortest, standing, &path);
        } else {
            self.watch_idle(&round, shortest, &path);
        }
        if self.starting {
            self.end_starting_round(&round, standing, lost);
        } else {
            self.follow(now, &round, standing, lost);
        }
        if !self.is_back() {
            self.rates.end_round();
        }
    }

    /// A round trip that is longer without our doing is the path's own: soon it is taken for what it is.
    fn watch_idle(&mut self, round: &Round, shortest: Nanos, known: &Path) {
        let (count, least) = self.longer_idle;
        self.longer_idle = match !round.full && shortest > known.round_trip + known.standing_max() {
            true => (count + 1, least.min(shortest)),
            false => (0, Nanos::MAX),
        };
        if self.longer_idle.0 >= LONGER_ROUNDS_IDLE {
            self.round_trip = Some(self.longer_idle.1);
            self.longer_idle = (0, Nanos::MAX);
            let path = self.path().filter(|_| !self.starting);
            self.window = self.window.max(path.map_or(0, |path| self.enough(&path)));
        }
    }

    /// The share that was lost, once enough was sent to tell.
    fn loss_share(&mut self, now: Nanos) -> f64 {
        let Loss { lost, acked, .. } = self.loss;
        let share = lost as f64 / (lost + acked).max(1) as f64;
        let is_much = share > LOSS_MAX && lost + acked >= LOSS_PACKETS / 2 * self.mtu;
        if !is_much && lost + acked < LOSS_PACKETS * self.mtu {
            return 0.0;
        }
        let answered = if share > LOSS_NOTICED { now } else { self.loss.answered };
        self.loss = Loss { answered, ..Loss::default() };
        share
    }

    fn end_starting_round(&mut self, round: &Round, standing: Nanos, lost: f64) {
        let rate = self.rates.highest();
        if rate >= self.level.0 + self.level.0 / 4 {
            self.level = (rate, 0);
        } else if round.full {
            self.level.1 += 1;
        }
        let queued = self.path().is_some_and(|path| standing > path.standing_max());
        if round.full && (queued || lost > LOSS_NOTICED) || lost > LOSS_MAX || self.level.1 >= LEVEL_ROUNDS {
            self.starting = false;
            self.level = (0, 0);
            let path = self.path().expect("a round had a rate");
            self.window = self.enough(&path);
        }
    }

    /// A path that is known: as much as fills it, and hardly waits.
    fn follow(&mut self, now: Nanos, round: &Round, standing: Nanos, lost: f64) {
        self.ceiling = self.ceiling.and_then(|(window, rounds)| Some((window, rounds.checked_sub(1)?)));
        let path = self.path().expect("a round had a rate");
        let least = if self.gives_way(&path) { self.window_behind() } else { self.least(&path) };
        let full = path.product() + path.product() / 8 + 2 * self.mtu;
        // Somebody else fills the queue.
        let lost = if self.is_back() { 0.0 } else { lost };
        if lost > LOSS_MAX {
            self.faster = 0;
            self.ceiling = Some((self.window - self.window / 8, CEILING_ROUNDS));
            self.window = (self.window.min(full) * 7 / 10).max(least);
            return;
        }
        if lost > 0.0 && self.window <= full {
            // It is not for too much being under way.
            self.usual_loss += (lost - self.usual_loss) / 2.0;
            self.ceiling = None;
        } else if lost > LOSS_NOTICED + self.usual_loss * 1.5 {
            self.faster = 0;
            self.ceiling = Some((self.window - self.window / 8, CEILING_ROUNDS));
            self.window = self.window.min(full).max(least);
            return;
        }
        if self.gives_way(&path) {
            return self.follow_behind(now, round, standing, &path);
        }
        let standing_max = path.standing_max();
        if standing > standing_max && !round.full {
            // It is not our queue.
            return;
        }
        if standing > standing_max {
            self.faster = 0;
            self.longer = if self.window <= least + self.mtu { self.longer + 1 } else { 0 };
            let waiting = path.bytes_in(standing - standing_max / 2);
            self.window = self.window.saturating_sub(waiting).max(least);
            if self.longer >= LONGER_ROUNDS {
                self.longer = 0;
                self.round_trip = round.shortest;
                self.starting = true;
            }
            return;
        }
        self.longer = 0;
        if round.full && standing < standing_max / 2 {
            self.faster += 1;
            let more = path.bytes_in(standing_max / 4).max(self.mtu / 2);
            let much = if self.faster >= FASTER_ROUNDS { self.window / 4 } else { 0 };
            let most = self.ceiling.map_or(WINDOW_MAX, |(window, _)| window.max(path.product()));
            self.window = (self.window + more.max(much)).max(path.product()).min(most);
        } else {
            self.faster = 0;
        }
        self.window = self.window.max(least);
    }

    /// Fills a path from its first packet on.
    fn enough(&self, path: &Path) -> u64 {
        path.product() + path.bytes_in(path.standing_max()).max(2 * self.mtu)
    }

    /// What a path has in any case. On a short path that is what waits within the time that is allowed.
    fn least(&self, path: &Path) -> u64 {
        (path.product() * 3 / 4).max(path.bytes_in(path.standing_max() / 2)).max(PACKETS_MIN * self.mtu)
    }
}

/// Whether a round trip shows that what was remembered is of another path (RFC 9959 retreats in this case, too).
fn is_another(remembered: &Path, round_trip: Nanos) -> bool {
    round_trip > remembered.round_trip * 2 + STANDING_MAX
}

/// Bytes a second; `time` is not zero.
fn rate(bytes: u64, time: Nanos) -> u64 {
    (u128::from(bytes) * u128::from(SECOND) / u128::from(time)) as u64
}

#[cfg(test)]
mod tests;

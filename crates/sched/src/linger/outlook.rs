//! What a guest may expect of a host: how long its owner stays or stays away, and what he leaves of the processor meanwhile, learnt from
//! the host's own past as it goes by.
//!
//! Three things are learnt, each from a first guess on, by time: how long episodes last (Wyckoff, Jeong, Johnson, Shasha: Predicting the
//! remaining idle period probability, 1998, found one month's lengths to tell the next one's, and hosts to differ widely); what is used in
//! them; and for how long a use above or below that goes on.

/// Ages of episodes are told apart between 15 s and 12 days, in steps of two.
const AGES: usize = 17;
const AGE_S_MIN: f64 = 15.0;
/// At each age it is believed at first, as if so many episodes had ended there, that half of them last for as long again.
const BELIEF: f64 = 1.0;
/// And that at no age half of them end within less than this, in seconds.
const HALF_S_MIN: f64 = 900.0;
/// Older measurements fade: time constant of what is used, in seconds (a week), and of what is used now.
const MEMORY_S: f64 = 7.0 * 86_400.0;
const NOW_S: f64 = 6.0;
/// The first guess of what is used counts as so many seconds.
const GUESS_S: f64 = 300.0;
const GUESS_AWAY: f64 = 0.03;
const GUESS_THERE: f64 = 0.25;
/// Use is compared with what it was so long before, in seconds, to see for how long it goes on.
const LAG_S: f64 = 20.0;
/// First guess of how it resembles that, which counts as so many comparisons of unlike values.
const GUESS_LIKENESS: f64 = 0.7;
const GUESS_VARIANCE: f64 = 0.02 * 20.0;
const LIKENESS_MAX: f64 = 0.998;
/// Nothing is taken to be busier than this: else nothing would ever end there.
const USED_MAX: f64 = 0.995;

/// What is learnt of a host while its owner is there, or while he is away.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Times {
    /// By age: episodes that ended at it, and how long they were seen at it, in seconds. (So those that still last count as well.)
    ended: [f32; AGES],
    seen_s: [f32; AGES],
    /// Seconds that count, and what was used in them.
    seconds: f64,
    used_s: f64,
    /// Of use and that of some time before, each less the mean: sums of squares and of products.
    squares: f64,
    products: f64,
}

impl Times {
    fn new(guess: f64) -> Self {
        let products = GUESS_VARIANCE * GUESS_LIKENESS;
        Self {
            ended: [0.0; AGES],
            seen_s: [0.0; AGES],
            seconds: GUESS_S,
            used_s: guess * GUESS_S,
            squares: GUESS_VARIANCE,
            products,
        }
    }

    fn mean(&self) -> f64 {
        self.used_s / self.seconds
    }

    fn observe(&mut self, used: f64, lasted_s: f64) {
        let keep = 1.0 - lasted_s / (lasted_s + MEMORY_S);
        self.seconds = self.seconds * keep + lasted_s;
        self.used_s = self.used_s * keep + used * lasted_s;
    }

    fn compare(&mut self, before: f64, now: f64) {
        let mean = self.mean();
        let keep = 1.0 - LAG_S / MEMORY_S;
        self.squares = self.squares * keep + (before - mean).powi(2);
        self.products = self.products * keep + (before - mean) * (now - mean);
    }

    /// For how long use stays above or below its mean, in seconds.
    fn goes_on_s(&self) -> f64 {
        let likeness = (self.products / self.squares).clamp(0.05, LIKENESS_MAX);
        -LAG_S / likeness.ln()
    }

    /// How likely it is that an episode lasts for `further_s` once it has lasted for `since_s`.
    fn lasts(&self, since_s: f64, further_s: f64) -> f64 {
        let (mut at_s, until_s) = (since_s, since_s + further_s);
        let mut expected = 0.0;
        for age in age_of(since_s)..AGES {
            let begins_s = AGE_S_MIN * f64::from(1u32 << age);
            let ends_s = if age + 1 == AGES { f64::INFINITY } else { 2.0 * begins_s };
            let within_s = until_s.min(ends_s) - at_s;
            let believed_s = BELIEF * begins_s.max(HALF_S_MIN) / std::f64::consts::LN_2;
            expected += within_s * (f64::from(self.ended[age]) + BELIEF) / (f64::from(self.seen_s[age]) + believed_s);
            if until_s <= ends_s {
                break;
            }
            at_s = ends_s;
        }
        (-expected).exp()
    }
}

/// The step in which an age lies; the first is from 0 to 30 s.
fn age_of(since_s: f64) -> usize {
    ((since_s / AGE_S_MIN).max(1.0).log2() as usize).min(AGES - 1)
}

/// What a guest may expect of a host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outlook {
    there: Times,
    away: Times,
    owner_is_there: bool,
    since_s: f64,
    now: f64,
    before: Option<f64>,
    before_since_s: f64,
}

impl Default for Outlook {
    fn default() -> Self {
        Self {
            there: Times::new(GUESS_THERE),
            away: Times::new(GUESS_AWAY),
            owner_is_there: false,
            since_s: 0.0,
            now: GUESS_AWAY,
            before: None,
            before_since_s: 0.0,
        }
    }
}

impl Outlook {
    /// Of a host of which nothing is known but for how long its owner has been there, or away.
    pub fn new(owner_is_there: bool, since_s: f64) -> Self {
        let now = if owner_is_there { GUESS_THERE } else { GUESS_AWAY };
        Self { owner_is_there, since_s, now, ..Self::default() }
    }

    /// Takes in a measurement over `lasted_s`: whether the owner was there, and what part of the processor others than guests used.
    pub fn observe(&mut self, owner_is_there: bool, used: f64, lasted_s: f64) {
        if owner_is_there != self.owner_is_there {
            let age = age_of(self.since_s);
            self.times_mut().ended[age] += 1.0;
            (self.owner_is_there, self.since_s) = (owner_is_there, 0.0);
            (self.now, self.before) = (used, None);
        }
        let age = age_of(self.since_s);
        self.times_mut().seen_s[age] += lasted_s as f32;
        self.since_s += lasted_s;
        self.now += (used - self.now) * lasted_s / (lasted_s + NOW_S);
        let now = self.now;
        self.times_mut().observe(used, lasted_s);
        self.before_since_s += lasted_s;
        if self.before_since_s >= LAG_S || self.before.is_none() {
            if let Some(before) = self.before {
                self.times_mut().compare(before, now);
            }
            (self.before, self.before_since_s) = (Some(now), 0.0);
        }
    }

    /// Whether the owner is there.
    pub fn owner_is_there(&self) -> bool {
        self.owner_is_there
    }

    fn times_mut(&mut self) -> &mut Times {
        if self.owner_is_there { &mut self.there } else { &mut self.away }
    }

    /// The part of the processor that will be used within so many seconds, on average.
    pub fn used_within(&self, within_s: f64) -> f64 {
        let (same, other) = if self.owner_is_there { (&self.there, &self.away) } else { (&self.away, &self.there) };
        let at = |part: f64| same.lasts(self.since_s, within_s * part);
        let stays = (at(1.0 / 6.0) + at(0.5) + at(5.0 / 6.0)) / 3.0;
        let goes_on_s = same.goes_on_s();
        let still = goes_on_s / within_s * (1.0 - (-within_s / goes_on_s).exp());
        let used = same.mean() + (self.now - same.mean()) * still;
        // Once he has come or gone nobody knows for how long: the host is then as it is on average.
        let average = (same.used_s + other.used_s) / (same.seconds + other.seconds);
        (stays * used + (1.0 - stays) * average).clamp(0.0, USED_MAX)
    }

    /// How long it will be until a guest has got so much processor time, in seconds.
    pub fn takes_s(&self, work_s: f64) -> f64 {
        if work_s <= 0.0 {
            return 0.0;
        }
        let mut takes_s = work_s;
        // Each round goes about as far from the answer as use changes over the time that is left: three leave little.
        for _ in 0..3 {
            takes_s = work_s / (1.0 - self.used_within(takes_s));
        }
        takes_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(episodes: &[(bool, f64, f64)]) -> Outlook {
        let mut outlook = Outlook::default();
        for (there, used, seconds) in episodes {
            for _ in 0..(*seconds / 2.0) as usize {
                outlook.observe(*there, *used, 2.0);
            }
        }
        outlook
    }

    #[test]
    fn at_first_what_has_lasted_lasts_as_long_again() {
        let outlook = Outlook::new(true, 1_000.0);
        assert!(
            (outlook.there.lasts(1_000.0, 1_000.0) - 0.5).abs() < 0.05,
            "{}",
            outlook.there.lasts(1_000.0, 1_000.0)
        );
        let long = Outlook::new(false, 50_000.0);
        let short = Outlook::new(false, 100.0);
        assert!(long.takes_s(600.0) < short.takes_s(600.0), "who has been away for long stays away");
        assert_eq!(long.takes_s(0.0), 0.0);
    }

    #[test]
    fn an_owner_of_habits_is_known_by_them() {
        let mut habits = Vec::new();
        for _ in 0..30 {
            habits.extend([(true, 0.9, 300.0), (false, 0.0, 3_000.0)]);
        }
        habits.push((true, 0.9, 200.0));
        let outlook = fed(&habits);
        assert!(outlook.there.lasts(200.0, 400.0) < 0.1, "he goes after 300 s");
        assert!(outlook.used_within(2_000.0) < 0.2, "{}", outlook.used_within(2_000.0));
        assert!(outlook.used_within(10.0) > 0.8, "{}", outlook.used_within(10.0));
    }

    #[test]
    fn a_burst_is_told_from_a_level() {
        let mut bursts = Vec::new();
        for _ in 0..60 {
            bursts.extend([(true, 0.9, 60.0), (true, 0.0, 240.0)]);
        }
        bursts.push((true, 0.9, 20.0));
        let (bursts, level) = (fed(&bursts), fed(&[(true, 0.9, 18_000.0)]));
        assert!(bursts.used_within(600.0) < 0.35, "{}", bursts.used_within(600.0));
        assert!(level.used_within(600.0) > 0.8, "{}", level.used_within(600.0));
    }

    #[test]
    fn what_takes_longer_is_more_work_or_a_busier_host() {
        let outlook = fed(&[(true, 0.5, 4_000.0)]);
        let mut last_s = 0.0;
        for work_s in [1.0, 10.0, 100.0, 1_000.0, 10_000.0] {
            let takes_s = outlook.takes_s(work_s);
            assert!(takes_s > last_s && takes_s >= work_s);
            last_s = takes_s;
        }
        assert!(fed(&[(true, 1.0, 4_000.0)]).takes_s(1.0).is_finite());
    }
}

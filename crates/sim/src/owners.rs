//! Owners, who come and go, and what they use of their machines' processors: a sample every two seconds.

use crate::dice::Dice;

/// Seconds from one sample to the next.
pub const STEP_S: f64 = 2.0;

/// What owners are like. The parameters are fitted to the figures that Linger-Longer's authors gave of their traces and their results, so
/// that agreement with those alone proves little.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Owners {
    /// How long owners are away: median in seconds, and deviation of the logarithm.
    pub away: (f64, f64),
    /// How long they are there.
    pub present: (f64, f64),
    /// No episode is longer, in seconds.
    pub episode_s_max: f64,
    /// What machines use by themselves: exponential with this mean, and no more than `low_max`.
    pub away_use: f64,
    /// What owners use who read and write: exponential with this mean, and no more than `low_max`.
    pub low_use: f64,
    /// See `away_use`.
    pub low_max: f64,
    /// What owners use who compute: a level between these for each time that they do.
    pub high_use: (f64, f64),
    /// Deviation of a sample from that level.
    pub high_jitter: f64,
    /// The part of their presence in which they compute, and for how long at a time, in seconds.
    pub high_part: f64,
    /// See `high_part`.
    pub high_s: f64,
}

impl Default for Owners {
    fn default() -> Self {
        Self {
            away: (7_397.0, 1.98),
            present: (12_724.0, 0.90),
            episode_s_max: 86_400.0,
            away_use: 0.039,
            low_use: 0.050,
            low_max: 0.10,
            high_use: (0.72, 1.0),
            high_jitter: 0.025,
            high_part: 0.24,
            high_s: 53.0,
        }
    }
}

/// A machine's state over two seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// For how long its owner has been there, in seconds; `None`: he is away.
    pub owner_s: Option<f64>,
    /// The part of the processor that is used without guests.
    pub used: f64,
}

/// One owner, from now on.
#[derive(Clone, Debug)]
pub struct Owner {
    like: Owners,
    dice: Dice,
    is_there: bool,
    /// How long the episode has lasted, and how long it lasts on.
    since_s: f64,
    left_s: f64,
    /// What he uses while he computes, if he does, and for how long it goes on as it is.
    high: Option<f64>,
    phase_left_s: f64,
}

impl Owner {
    /// An owner somewhere in the middle of his life, and of an episode.
    pub fn new(like: Owners, mut dice: Dice) -> Self {
        let is_there = dice.unit() < 1.0 - like.idle_part();
        // A moment falls into a long episode more often than into a short one.
        let length_s = loop {
            let length_s = draw(&like, if is_there { like.present } else { like.away }, &mut dice);
            if dice.unit() * like.episode_s_max < length_s {
                break length_s;
            }
        };
        let since_s = length_s * dice.unit();
        let mut owner =
            Self { like, dice, is_there, since_s, left_s: length_s - since_s, high: None, phase_left_s: 0.0 };
        if owner.dice.unit() < owner.like.high_part {
            owner.begin_high();
        } else {
            owner.begin_low();
        }
        owner
    }

    fn begin_high(&mut self) {
        self.high = Some(self.dice.between(self.like.high_use.0, self.like.high_use.1));
        self.phase_left_s = self.dice.exponential(self.like.high_s);
    }

    fn begin_low(&mut self) {
        self.high = None;
        let low_s = self.like.high_s * (1.0 - self.like.high_part) / self.like.high_part;
        self.phase_left_s = self.dice.exponential(low_s);
    }

    /// The next two seconds.
    pub fn step(&mut self) -> Sample {
        if self.left_s <= 0.0 {
            self.is_there = !self.is_there;
            let episode = if self.is_there { self.like.present } else { self.like.away };
            (self.since_s, self.left_s) = (0.0, draw(&self.like, episode, &mut self.dice));
        }
        let sample = Sample { owner_s: self.is_there.then_some(self.since_s), used: self.uses() };
        self.since_s += STEP_S;
        self.left_s -= STEP_S;
        sample
    }

    fn uses(&mut self) -> f64 {
        if !self.is_there {
            return self.dice.exponential(self.like.away_use).min(self.like.low_max);
        }
        if self.phase_left_s <= 0.0 {
            if self.high.is_some() { self.begin_low() } else { self.begin_high() }
        }
        self.phase_left_s -= STEP_S;
        match self.high {
            Some(level) => (level + self.like.high_jitter * self.dice.normal()).clamp(0.0, 1.0),
            None => self.dice.exponential(self.like.low_use).min(self.like.low_max),
        }
    }
}

fn draw(like: &Owners, (median, sigma): (f64, f64), dice: &mut Dice) -> f64 {
    dice.lognormal(median, sigma).min(like.episode_s_max)
}

impl Owners {
    /// The part of the time that they are away.
    pub fn idle_part(&self) -> f64 {
        let (away_s, there_s) = (self.mean_s(self.away), self.mean_s(self.present));
        away_s / (away_s + there_s)
    }

    /// The same, but there for so much longer or shorter that they are away for this part of the time, as nearly as the longest episode
    /// lets them; where that is too short, away for shorter.
    pub fn with_idle_part(self, part: f64) -> Self {
        let stretched = |factor: f64| Self {
            present: (self.present.0 * factor, self.present.1),
            away: (self.away.0 / factor.max(1.0).sqrt(), self.away.1),
            ..self
        };
        // By halves: the longer they are there, the smaller the part.
        let (mut low, mut high) = (1e-6f64, 1e6f64);
        for _ in 0..60 {
            let middle = (low * high).sqrt();
            if stretched(middle).idle_part() > part { low = middle } else { high = middle }
        }
        stretched(low)
    }

    /// The mean of a kind of episodes, in seconds: a lognormal one that is cut off.
    fn mean_s(&self, (median, sigma): (f64, f64)) -> f64 {
        let at = (self.episode_s_max / median).ln() / sigma;
        let mean = median * (sigma * sigma / 2.0).exp();
        mean * normal_below(at - sigma) + self.episode_s_max * (1.0 - normal_below(at))
    }
}

/// The part of a normal distribution below a value (Abramowitz, Stegun: Handbook of mathematical functions, 26.2.17; off by 1e-7).
fn normal_below(value: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * value.abs());
    let series = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let sum = series.iter().rev().fold(0.0, |sum, part| (sum + part) * t);
    let above = (-value * value / 2.0).exp() / std::f64::consts::TAU.sqrt() * sum;
    if value >= 0.0 { 1.0 - above } else { above }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_as_they_were_measured() {
        let (mut away, mut low, mut there, mut steps) = (0u32, 0u32, 0u32, 0u32);
        for number in 0..400 {
            let mut owner = Owner::new(Owners::default(), Dice::new(3, number));
            for _ in 0..2_000 {
                let sample = owner.step();
                steps += 1;
                away += u32::from(sample.owner_s.is_none());
                there += u32::from(sample.owner_s.is_some());
                low += u32::from(sample.owner_s.is_some() && sample.used <= 0.10);
            }
        }
        let (idle, low) = (f64::from(away) / f64::from(steps), f64::from(low) / f64::from(there));
        assert!((0.45..0.65).contains(&idle), "idle 50 to 60% of the time: {idle}");
        assert!((0.73..0.79).contains(&low), "10% or less for 75% of the time that they are used: {low}");
    }

    #[test]
    fn the_mean_of_an_episode_is_that_of_its_draws() {
        let like = Owners::default();
        let mut dice = Dice::new(5, 5);
        for episode in [like.away, like.present] {
            let drawn = (0..200_000).map(|_| draw(&like, episode, &mut dice)).sum::<f64>() / 200_000.0;
            assert!((drawn / like.mean_s(episode) - 1.0).abs() < 0.02, "{drawn}, {}", like.mean_s(episode));
        }
        assert!((normal_below(1.0) - 0.841_345).abs() < 1e-5 && (normal_below(-1.0) - 0.158_655).abs() < 1e-5);
    }
}

//! Weighing forecasters by how good they were.
//!
//! [`Polynomial`] has no parameter, and its error is near that of the best weights in hindsight, however the series goes (ML-Poly: Gaillard,
//! Stoltz, van Erven: A second-order bound with excess losses, 2014). [`Fading`] forgets, and so follows who is good now (Hedge, with
//! losses that fade, as parts of the loss that was usual lately). Both are the same for any unit of the values.
//!
//! Who foretells far hears late how good that was: until the mean of the next thirty values is known everything may have changed. So some
//! weighings hear sooner, by the mean of the first few of these values, and who is right about the level shows at once.

/// How fast weights of the next value's forecasters forget, by score: for series that change their ways, and those that do not.
const FADING: [f64; 4] = [0.9, 0.95, 0.98, 0.995];
/// The same further ahead, by horizon.
const FADING_AHEAD: f64 = 0.98;
/// Those that hear sooner: after which part of the horizon, and how fast they forget, by as many steps.
const SOONER: [(usize, f64); 2] = [(usize::MAX, 0.95), (6, 0.9)];

/// Two levels of weights: below, several over all forecasters; above, one over these.
#[derive(Clone, Debug)]
pub struct Weighing {
    lower: Vec<Lower>,
    upper: Rule,
}

/// Weights of the lower level.
#[derive(Clone, Debug)]
struct Lower {
    rule: Rule,
    /// After how many values it hears how good forecasts were.
    after: usize,
}

#[derive(Clone, Debug)]
enum Rule {
    Polynomial(Polynomial),
    Fading(Fading),
}

impl Weighing {
    /// Of so many forecasters of the mean of the next so many values.
    pub fn new(count: usize, horizon: usize) -> Self {
        let fading = |count: usize, memory: f64, alike: usize| {
            let part = 1.0 / alike as f64;
            Rule::Fading(Fading::new(count, memory.powf(part), part))
        };
        let lower = |rule: Rule, after: usize| Lower { rule, after };
        let mut all = vec![lower(Rule::Polynomial(Polynomial::new(count)), horizon)];
        if horizon == 1 {
            all.extend(FADING.map(|memory| lower(fading(count, memory, 1), 1)));
            let upper = Rule::Polynomial(Polynomial::new(all.len()));
            return Self { lower: all, upper };
        }
        all.push(lower(fading(count, FADING_AHEAD, horizon), horizon));
        all.extend(SOONER.map(|(part, memory)| {
            let after = (horizon / part).max(1);
            lower(fading(count, memory, after), after)
        }));
        let upper = fading(all.len(), FADING_AHEAD, horizon);
        Self { lower: all, upper }
    }

    /// After how many values some hear sooner than at the horizon how good forecasts were.
    pub fn sooner(horizon: usize) -> impl Iterator<Item = usize> {
        let mut all = SOONER.map(|(part, _)| (horizon / part).max(1)).to_vec();
        all.dedup();
        all.into_iter().filter(move |after| *after < horizon)
    }

    /// Weighings of the lower level.
    pub fn lower(&self) -> usize {
        self.lower.len()
    }

    /// One forecast of all; and what the weighings of the lower level make of them.
    pub fn combine(&self, each: &[f64], below: &mut [f64]) -> f64 {
        for (below, lower) in below.iter_mut().zip(&self.lower) {
            *below = lower.rule.combine(each);
        }
        self.upper.combine(below)
    }

    /// What came of these forecasts after so many values, and, if these are all, of what the lower level had made of them.
    pub fn learn(&mut self, after: usize, each: &[f64], below: Option<&[f64]>, value: f64) {
        if let Some(below) = below {
            self.upper.learn(below, value);
        }
        let lower = self.lower.iter_mut().filter(|lower| lower.after == after);
        lower.for_each(|lower| lower.rule.learn(each, value));
    }
}

impl Rule {
    fn combine(&self, each: &[f64]) -> f64 {
        match self {
            Self::Polynomial(rule) => rule.combine(each),
            Self::Fading(rule) => rule.combine(each),
        }
    }

    fn learn(&mut self, each: &[f64], value: f64) {
        match self {
            Self::Polynomial(rule) => rule.learn(each, value),
            Self::Fading(rule) => rule.learn(each, value),
        }
    }
}

/// Weights by the regret for not having followed a forecaster, and by how much that varied.
#[derive(Clone, Debug)]
pub struct Polynomial {
    regrets: Vec<f64>,
    squares: Vec<f64>,
}

impl Polynomial {
    /// Of so many forecasters.
    pub fn new(count: usize) -> Self {
        Self { regrets: vec![0.0; count], squares: vec![0.0; count] }
    }

    /// One forecast of all.
    pub fn combine(&self, each: &[f64]) -> f64 {
        mean(each, |at| if self.squares[at] > 0.0 { self.regrets[at].max(0.0) / self.squares[at] } else { 0.0 })
    }

    /// What came of these forecasts.
    pub fn learn(&mut self, each: &[f64], value: f64) {
        let own = self.combine(each);
        // The absolute error's slope: how much less it had been, to first order, had one been followed a little more.
        let slope = if own == value { 0.0 } else { (own - value).signum() };
        for (at, forecast) in each.iter().enumerate() {
            let regret = slope * (own - forecast);
            self.regrets[at] += regret;
            self.squares[at] += regret * regret;
        }
    }
}

/// Weights by losses that fade.
#[derive(Clone, Debug)]
struct Fading {
    /// What a score leaves of a loss.
    memory: f64,
    /// What a score counts.
    part: f64,
    losses: Vec<f64>,
    /// Its own loss, usually, and over how many scores that is a mean.
    usual: f64,
    scores: f64,
}

impl Fading {
    /// One of so many forecasters that forgets so fast, and counts each score as a part of one.
    fn new(count: usize, memory: f64, part: f64) -> Self {
        Self { memory, part, losses: vec![0.0; count], usual: 0.0, scores: 0.0 }
    }

    /// One forecast of all.
    fn combine(&self, each: &[f64]) -> f64 {
        let least = self.losses.iter().copied().fold(f64::INFINITY, f64::min);
        mean(each, |at| match self.losses[at] - least {
            more if more <= 0.0 => 1.0,
            _ if self.usual <= 0.0 => 0.0,
            more => (-more / self.usual).exp(),
        })
    }

    /// What came of these forecasts.
    fn learn(&mut self, each: &[f64], value: f64) {
        let own = (self.combine(each) - value).abs();
        for (loss, forecast) in self.losses.iter_mut().zip(each) {
            *loss = *loss * self.memory + (forecast - value).abs() * self.part;
        }
        self.scores = self.scores * self.memory + 1.0;
        self.usual += (own - self.usual) / self.scores;
    }
}

/// The weighed mean; the plain one if nobody has a weight.
fn mean(each: &[f64], weight: impl Fn(usize) -> f64) -> f64 {
    let (mut sum, mut weights) = (0.0, 0.0);
    for (at, forecast) in each.iter().enumerate() {
        let weight = weight(at);
        sum += weight * forecast;
        weights += weight;
    }
    if weights > 0.0 && sum.is_finite() && weights.is_finite() {
        return sum / weights;
    }
    each.iter().sum::<f64>() / each.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_is_right_gets_all() {
        let (mut polynomial, mut fading) = (Polynomial::new(3), Fading::new(3, 0.9, 1.0));
        let each = [1.0, 2.0, 9.0];
        assert_eq!((polynomial.combine(&each), fading.combine(&each)), (4.0, 4.0));
        for _ in 0..200 {
            polynomial.learn(&each, 2.0);
            fading.learn(&each, 2.0);
        }
        assert!((polynomial.combine(&each) - 2.0).abs() < 0.05, "{}", polynomial.combine(&each));
        assert!((fading.combine(&each) - 2.0).abs() < 0.05, "{}", fading.combine(&each));
    }

    #[test]
    fn a_mean_of_two_may_be_better_than_either() {
        let mut polynomial = Polynomial::new(2);
        for _ in 0..2_000 {
            polynomial.learn(&[0.0, 10.0], 4.0);
        }
        assert!((polynomial.combine(&[0.0, 10.0]) - 4.0).abs() < 0.3, "{}", polynomial.combine(&[0.0, 10.0]));
    }

    #[test]
    fn who_forgets_follows_a_change_at_once() {
        let mut fading = Fading::new(2, 0.9, 1.0);
        (0..1_000).for_each(|_| fading.learn(&[0.0, 1.0], 0.0));
        (0..40).for_each(|_| fading.learn(&[0.0, 1.0], 1.0));
        assert!(fading.combine(&[0.0, 1.0]) > 0.9, "{}", fading.combine(&[0.0, 1.0]));
    }
}

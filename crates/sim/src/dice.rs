//! Randomness from a seed: the same seed, the same numbers, on any machine.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The stream of this seed and this part of it: parts do not depend on one another.
    pub fn new(seed: u64, part: u64) -> Self {
        let mut dice = Self(seed ^ part.wrapping_mul(0xd1b5_4a32_d192_ed03));
        let mixed = dice.bits();
        Self(mixed ^ part)
    }

    /// 64 bits (SplitMix64: Steele, Lea, Flood, 2014).
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// From 0 to 1, without 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Between two numbers.
    pub fn between(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * self.unit()
    }

    /// Exponential, with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// Normal, with mean 0 and deviation 1 (Box, Muller, 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Lognormal: the logarithm has this deviation around that of the median.
    pub fn lognormal(&mut self, median: f64, sigma: f64) -> f64 {
        median * (sigma * self.normal()).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_what_they_should_be() {
        let mut dice = Dice::new(1, 2);
        let mut mean = |draw: fn(&mut Dice) -> f64| (0..100_000).map(|_| draw(&mut dice)).sum::<f64>() / 100_000.0;
        assert!((mean(Dice::unit) - 0.5).abs() < 0.01);
        assert!((mean(|dice| dice.exponential(3.0)) - 3.0).abs() < 0.05);
        assert!(mean(Dice::normal).abs() < 0.02);
        assert!((mean(|dice| dice.lognormal(2.0, 0.5)) - 2.0 * 0.125f64.exp()).abs() < 0.05);
    }

    #[test]
    fn streams_are_repeated_and_differ_by_seed_and_part() {
        let first = |seed, part| Dice::new(seed, part).unit();
        assert_eq!(first(7, 1), first(7, 1));
        assert!(first(7, 1) != first(7, 2) && first(7, 1) != first(8, 1) && first(1, 2) != first(2, 1));
    }
}

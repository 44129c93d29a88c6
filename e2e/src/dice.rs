//! Numbers by chance that are the same in each run.

/// Numbers from a seed (splitmix64: Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub struct Dice(pub u64);

impl Dice {
    /// The next one.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// One below a bound.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// True so often in a hundred.
    pub fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    /// Between 0 and 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Exponential, with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// In another order.
    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            all.swap(at, self.below(at + 1));
        }
    }

    /// One of some.
    pub fn of<T: Copy>(&mut self, some: &[T]) -> T {
        some[self.below(some.len())]
    }
}

/// All numbers below a count, each once, then again: far from each other, as if by chance.
#[derive(Clone, Debug)]
pub struct Turns {
    count: u64,
    stride: u64,
    at: u64,
}

impl Turns {
    /// The numbers below `count`.
    pub fn new(count: usize) -> Self {
        let count = count.max(1) as u64;
        let shares_factor = |a: u64| {
            let (mut a, mut b) = (a, count);
            while b != 0 {
                (a, b) = (b, a % b);
            }
            a != 1
        };
        // About the golden section, so that neighbours in time are nowhere near in place.
        let mut stride = ((count as f64 * 0.618_033_988_75) as u64).max(1);
        while shares_factor(stride) {
            stride += 1;
        }
        Self { count, stride, at: 0 }
    }

    /// The next one.
    pub fn next(&mut self) -> usize {
        self.at = (self.at + self.stride) % self.count;
        self.at as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_take_each_number_once() {
        for count in [1, 2, 10, 65_536, 99_999] {
            let mut turns = Turns::new(count);
            let mut seen = vec![false; count];
            (0..count).for_each(|_| assert!(!std::mem::replace(&mut seen[turns.next()], true)));
        }
    }
}

//! Numbers by chance that are the same in each run, and inputs made of them.

use crate::Draw;

/// Numbers from a seed (splitmix64: Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub struct Dice(pub u64);

impl Dice {
    /// The next one.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// One below a bound.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.number() % bound.max(1) as u64) as usize
    }

    /// So many bytes. Half of them are small, as lengths and kinds are.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let byte = |word: u64| if word & 0x100 == 0 { word as u8 } else { word as u8 & 7 };
        (0..count).map(|_| byte(self.number())).collect()
    }

    /// One of these inputs, damaged.
    pub fn mutated(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut input = corpus.get(self.below(corpus.len())).cloned().unwrap_or_default();
        let turns = self.bytes(64);
        Draw::new(&turns).damage(&mut input);
        input
    }
}

//! Bytes by chance that are the same in each run.

/// A small generator (xorshift, Marsaglia 2003): not for anything but filling files.
#[derive(Clone, Debug)]
pub struct Noise(u64);

impl Noise {
    /// The same seed makes the same noise.
    pub fn new(seed: u64) -> Self {
        let mut noise = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xd1b5_4a32_d192_ed03);
        // Seeds that are alike begin alike.
        (0..8).for_each(|_| {
            noise.next();
        });
        noise
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Bytes that cannot be packed.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..count.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        bytes.truncate(count);
        bytes
    }

    /// Numbers as text, as in a file of shapes: packed they take less than half.
    pub fn numbers(&mut self, count: usize) -> Vec<u8> {
        let mut text = String::with_capacity(count + 24);
        while text.len() < count {
            let [x, y, z] = std::array::from_fn(|_| self.below(900_000) + 100_000);
            text.push_str(&format!("v {x} {y} {z}\n"));
        }
        text.truncate(count);
        text.into_bytes()
    }
}

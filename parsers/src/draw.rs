//! Values drawn from bytes: a fuzzer that changes the bytes changes the values. Bytes that have run out are zeros, so every draw ends.

use base::TreePath;

/// Numbers at which something changes.
const EDGES: [u64; 14] = [
    0,
    1,
    255,
    256,
    4095,
    65_535,
    65_536,
    1 << 20,
    i32::MAX as u64,
    u32::MAX as u64,
    1 << 32,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];
/// Names of which paths are made: few, so that paths meet.
const NAMES: [&[u8]; 8] = [b"a", b"b", b"c", b"link", b"d", b".git", b"\xff", b"a b"];
/// Most names in a path.
const DEPTH_MAX: usize = 5;

/// What is left to draw from.
#[derive(Debug)]
pub struct Draw<'a>(&'a [u8]);

impl<'a> Draw<'a> {
    /// Draws from these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether all was drawn.
    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        let Some((byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *byte
    }

    /// A number below a bound, which is at most 2^24.
    pub fn below(&mut self, bound: usize) -> usize {
        let mut number = 0;
        let mut room = 1;
        while room < bound {
            number = number << 8 | usize::from(self.byte());
            room <<= 8;
        }
        number % bound.max(1)
    }

    /// Yes or no.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Any number; most are small, or at an edge.
    pub fn number(&mut self) -> u64 {
        match self.byte() % 4 {
            0 | 1 => self.byte().into(),
            2 => self.of(&EDGES).wrapping_add_signed(i64::from(self.byte() as i8) % 2),
            _ => (0..8).fold(0, |number, _| number << 8 | u64::from(self.byte())),
        }
    }

    /// Any 32-bit number.
    pub fn word(&mut self) -> u32 {
        self.number() as u32
    }

    /// One of some.
    pub fn of<T: Copy>(&mut self, some: &[T]) -> T {
        some[self.below(some.len())]
    }

    /// Bytes, at most so many.
    pub fn blob(&mut self, most: usize) -> Vec<u8> {
        let count = self.below(most + 1);
        (0..count).map(|_| self.byte()).collect()
    }

    /// Bytes of which none is NUL.
    pub fn words(&mut self, most: usize) -> Vec<u8> {
        self.blob(most).into_iter().map(|byte| byte.max(1)).collect()
    }

    /// Text.
    pub fn text(&mut self, most: usize) -> String {
        let letters = ['a', 'Z', '0', ' ', '\n', '\u{1b}', '\u{fc}', '\u{202e}', '/', '"', '=', '.'];
        let count = self.below(most + 1);
        (0..count).map(|_| self.of(&letters)).collect()
    }

    /// A list, at most so long.
    pub fn list<T>(&mut self, most: usize, mut each: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = self.below(most + 1);
        (0..count).map(|_| each(self)).collect()
    }

    /// So many bytes of a name or digest: few different ones.
    pub fn name<const N: usize>(&mut self) -> [u8; N] {
        [self.byte() & 3; N]
    }

    /// A path.
    pub fn path(&mut self) -> TreePath {
        let count = 1 + self.below(DEPTH_MAX);
        (0..count).fold(TreePath::root(), |path, _| path.join(self.of(&NAMES)))
    }

    /// Damages bytes as a hostile or broken sender would: bits, lengths, parts that are missing, doubled or strange.
    pub fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len() + 1);
            let end = (at + 1 + self.below(16)).min(bytes.len());
            match self.byte() % 8 {
                0 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << (self.byte() % 8)),
                1 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = self.byte()),
                2 => {
                    let edge = self.number();
                    let raw = if self.flag() { edge.to_le_bytes() } else { edge.to_be_bytes() };
                    let width = 1 << self.below(4);
                    let part = if self.flag() { &raw[..width] } else { &raw[8 - width..] };
                    bytes.iter_mut().skip(at).zip(part).for_each(|(byte, new)| *byte = *new);
                }
                3 => drop(bytes.drain(at.min(end)..end)),
                4 => {
                    let part = bytes[at.min(end)..end].to_vec();
                    let times = 1 + self.below(32);
                    bytes.splice(at..at, part.repeat(times));
                }
                5 => bytes.truncate(at),
                6 => {
                    let new = self.blob(12);
                    bytes.splice(at..at, new);
                }
                _ => {
                    let part = bytes[at.min(end)..end].to_vec();
                    let to = self.below(bytes.len() + 1);
                    bytes.iter_mut().skip(to).zip(part).for_each(|(byte, new)| *byte = new);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_run_out_is_zeros_and_ends() {
        let mut draw = Draw::new(&[]);
        assert_eq!((draw.byte(), draw.below(1 << 20), draw.number(), draw.flag()), (0, 0, 0, false));
        assert!(draw.blob(9).is_empty() && draw.list(9, Draw::byte).is_empty());
        let mut bytes = vec![1, 2, 3];
        draw.damage(&mut bytes);
        assert_eq!(bytes, [0, 2, 3]);
    }

    #[test]
    fn damage_never_grows_beyond_reason() {
        let mut dice = crate::dice::Dice(7);
        for _ in 0..10_000 {
            let mut bytes = dice.bytes(40);
            Draw::new(&dice.bytes(64)).damage(&mut bytes);
            assert!(bytes.len() <= 40 + 4 * 16 * 33, "{}", bytes.len());
        }
    }
}

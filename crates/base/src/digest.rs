//! BLAKE3 digests: the names of blocks, listings, recipes and keys.

use std::fmt;

/// A 256-bit BLAKE3 digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// The digest of `bytes` that only holders of `key` can make.
    pub fn keyed(key: &[u8; 32], bytes: &[u8]) -> Self {
        Self(*blake3::keyed_hash(key, bytes).as_bytes())
    }

    /// Whether these bytes are this digest, in a time that does not tell how much of it they match.
    pub fn is(&self, bytes: &[u8]) -> bool {
        Self::from_slice(bytes).is_some_and(|other| blake3::Hash::from(self.0) == blake3::Hash::from(other.0))
    }

    /// Reads a digest from exactly 32 bytes.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The number that its first 16 bytes are, the most significant one first.
    pub fn first_u128_be(&self) -> u128 {
        u128::from_be_bytes(*self.0.first_chunk().expect("a digest has 32 bytes"))
    }

    /// The number that its first 16 bytes are, the least significant one first.
    pub fn first_u128_le(&self) -> u128 {
        u128::from_le_bytes(*self.0.first_chunk().expect("a digest has 32 bytes"))
    }

    /// The digest as 64 hexadecimal digits.
    pub fn to_hex(self) -> String {
        hex(&self.0)
    }

    /// Reads 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        unhex(text).and_then(|bytes| Self::from_slice(&bytes))
    }
}

/// The digest of bytes that come in parts.
#[derive(Clone, Debug, Default)]
pub struct Digester(blake3::Hasher);

impl Digester {
    /// More has come.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all that has come: as [`Digest::of`] all of it.
    pub fn digest(&self) -> Digest {
        Digest(*self.0.finalize().as_bytes())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..", hex(&self.0[..6]))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

/// Lower-case hexadecimal digits of `bytes`.
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes that an even number of hexadecimal digits stands for.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_round_trips() {
        let digest = Digest::of(b"gleaner");
        assert_eq!(Digest::from_hex(&digest.to_hex()), Some(digest));
        assert_eq!(unhex("0g"), None);
        assert_eq!((unhex("abc"), unhex("+f")), (None, None));
    }

    #[test]
    fn parts_have_the_digest_of_the_whole() {
        let mut digester = Digester::default();
        assert_eq!(digester.digest(), Digest::of(b""));
        [&b"glea"[..], b"", b"ner"].into_iter().for_each(|part| digester.add(part));
        assert_eq!(digester.digest(), Digest::of(b"gleaner"));
    }

    #[test]
    fn the_first_bytes_are_a_number_either_way() {
        let digest = Digest(std::array::from_fn(|at| u8::from(at == 0)));
        assert_eq!((digest.first_u128_le(), digest.first_u128_be()), (1, 1 << 120));
    }
}

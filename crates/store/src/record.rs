//! The format of a record in a segment file. All integers are little-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | magic `GlnB` |
//! | 4 | version of the format: 1 |
//! | 5 | kind: 1 a block, 2 an alias (the tenant has shown a block whose bytes an earlier record holds) |
//! | 6 | encoding of the bytes: 0 as they are (others are left for compression) |
//! | 7 | zero |
//! | 8..12 | tenant |
//! | 12..16 | length of the bytes that follow the header; 0 in an alias |
//! | 16..48 | digest of the block |
//! | 48..56 | the first eight bytes of the BLAKE3 hash of all before |
//!
//! A record of another version is not understood: reading a segment ends there, and a cache starts anew.

use base::{BLOB_BYTES_MAX, Digest, Tenant};

/// Length of a header in bytes.
pub(crate) const HEADER_BYTES: usize = 56;
const MAGIC: [u8; 4] = *b"GlnB";
const VERSION: u8 = 1;
const CHECKED_BYTES: usize = 48;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A block with its bytes.
    Block,
    /// A further tenant of a block.
    Alias,
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub kind: Kind,
    pub tenant: Tenant,
    pub digest: Digest,
    /// Length of the bytes that follow.
    pub len: u32,
}

impl Header {
    /// The header of a block. Its length must be within [`BLOB_BYTES_MAX`].
    pub fn block(tenant: Tenant, digest: Digest, len: usize) -> Self {
        assert!(len <= BLOB_BYTES_MAX, "the store refuses larger blocks before it makes their header");
        Self { kind: Kind::Block, tenant, digest, len: len as u32 }
    }

    /// The header of an alias.
    pub fn alias(tenant: Tenant, digest: Digest) -> Self {
        Self { kind: Kind::Alias, tenant, digest, len: 0 }
    }

    /// Length of the whole record in bytes.
    pub fn record_bytes(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.len)
    }

    /// The header as it is stored.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..4].copy_from_slice(&MAGIC);
        out[4] = VERSION;
        out[5] = match self.kind {
            Kind::Block => 1,
            Kind::Alias => 2,
        };
        out[8..12].copy_from_slice(&self.tenant.0.to_le_bytes());
        out[12..16].copy_from_slice(&self.len.to_le_bytes());
        out[16..48].copy_from_slice(&self.digest.0);
        let checksum = checksum(&out[..CHECKED_BYTES]);
        out[CHECKED_BYTES..].copy_from_slice(&checksum);
        out
    }

    /// Reads a stored header; `None` if it is torn, damaged or of another version.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        if bytes[..4] != MAGIC || bytes[4] != VERSION || bytes[6..8] != [0, 0] {
            return None;
        }
        if bytes[CHECKED_BYTES..] != checksum(&bytes[..CHECKED_BYTES]) {
            return None;
        }
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let len = word(12);
        let kind = match bytes[5] {
            1 if len as usize <= BLOB_BYTES_MAX => Kind::Block,
            2 if len == 0 => Kind::Alias,
            _ => return None,
        };
        Some(Self { kind, tenant: Tenant(word(8)), digest: Digest::from_slice(&bytes[16..48])?, len })
    }
}

fn checksum(bytes: &[u8]) -> [u8; HEADER_BYTES - CHECKED_BYTES] {
    let hash = Digest::of(bytes).0;
    std::array::from_fn(|at| hash[at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::digest::hex;

    #[test]
    fn golden_bytes() {
        let block = Header::block(Tenant(7), Digest::of(b"gleaner"), 7);
        let alias = Header::alias(Tenant(0x0102_0304), Digest::of(b"gleaner"));
        assert_eq!(
            hex(&block.encode()),
            concat!(
                "476c6e4201010000",
                "07000000",
                "07000000",
                "63637039d41738b55bcda5653076a2bfb457c668d2e31edc09a1fdcd803d0afc",
                "03e80a6a6b56cdc1"
            )
        );
        assert_eq!(
            hex(&alias.encode()),
            concat!(
                "476c6e4201020000",
                "04030201",
                "00000000",
                "63637039d41738b55bcda5653076a2bfb457c668d2e31edc09a1fdcd803d0afc",
                "e5033bcded833a9c"
            )
        );
        assert_eq!(Header::decode(&block.encode()), Some(block));
        assert_eq!(Header::decode(&alias.encode()), Some(alias));
    }

    #[test]
    fn a_header_with_any_bit_flipped_is_refused() {
        let good = Header::block(Tenant(1), Digest::of(b"x"), 1).encode();
        for bit in 0..HEADER_BYTES * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&bad), None, "bit {bit}");
        }
    }

    #[test]
    fn a_length_beyond_the_largest_blob_is_refused() {
        let mut header = Header::block(Tenant(1), Digest::of(b"x"), BLOB_BYTES_MAX);
        assert!(Header::decode(&header.encode()).is_some());
        header.len += 1;
        assert!(Header::decode(&header.encode()).is_none());
        let alias = Header { len: 1, ..Header::alias(Tenant(1), Digest::of(b"x")) };
        assert!(Header::decode(&alias.encode()).is_none());
    }
}

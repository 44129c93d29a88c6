//! The bytes of the journal. All integers are little-endian; every checksum is the first 16 bytes of a BLAKE3 hash.
//!
//! The file `journal` names the journal:
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | magic `GlnJrnl\0` |
//! | 8..12 | version of the format: 1 |
//! | 12..16 | zero |
//! | 16..32 | identity, random |
//! | 32..48 | checksum of all before |
//!
//! A segment `log-INDEX` begins with a header of 512 bytes:
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | magic `GlnJSeg\0` |
//! | 8..12 | version of the format: 1 |
//! | 12..16 | logic version: of the core that wrote the records |
//! | 16..32 | identity of the journal |
//! | 32..40 | index of the segment, as in its name |
//! | 40..48 | number of its first record |
//! | 48..56 | epoch |
//! | 56..64 | length of the segment in bytes |
//! | 64..496 | zero |
//! | 496..512 | checksum of all before |
//!
//! Batches follow, each at a multiple of 512, so that none shares a disk's sector with one that is durable already:
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | magic `GlnJ` |
//! | 4..20 | checksum of all that follows, up to the next multiple of 512 |
//! | 20..24 | length in bytes, from the magic to the end of the records |
//! | 24..32 | number of the first record |
//! | 32..40 | epoch |
//! | 40..44 | count of records, at least 1 |
//! | 44..48 | zero |
//! | 48.. | records: each its length in four bytes, and its bytes; then zeros up to a multiple of 512 |
//!
//! The key of a batch's hash is made of the journal's identity and the segment's index. So what an earlier use of the
//! file left behind, another journal's batch, or a record whose bytes look like a batch, never has a right checksum.
//! BLAKE3 and not a CRC, for that key; because it is in the tree already; and since at 16 bytes no damage of any shape
//! goes unseen. Beside a sync it costs nothing that could be measured.
//!
//! A snapshot `snapshot-SEQ` is a header of 96 bytes and chunks:
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | magic `GlnJSnp\0` |
//! | 8..12 | version of the format: 1 |
//! | 12..16 | logic version |
//! | 16..32 | identity of the journal |
//! | 32..40 | number of the last record that it holds |
//! | 40..48 | epoch |
//! | 48..80 | zero |
//! | 80..96 | checksum of all before |
//!
//! A chunk is a checksum (16 bytes, keyed by identity and record number) of what follows in it, a length (4), the
//! chunk's number (8, from 0) and the bytes. The last chunk is empty, and the file ends with it.
//!
//! In every version the first 12 bytes of a file and the place of the header's checksum stay as they are.

/// What batches are aligned to, and the length of a segment's header, in bytes.
pub(crate) const SECTOR_BYTES: usize = 512;
/// The version of all formats here.
pub(crate) const VERSION: u32 = 1;
/// Length of a batch's header in bytes.
pub(crate) const BATCH_HEADER_BYTES: usize = 48;
/// Length of the file that names the journal.
pub(crate) const IDENTITY_FILE_BYTES: usize = 48;
/// Length of a snapshot's header.
pub(crate) const SNAPSHOT_HEADER_BYTES: usize = 96;
/// Length of what stands before a chunk's bytes.
pub(crate) const CHUNK_HEADER_BYTES: usize = 28;
/// Most bytes in a chunk.
pub(crate) const CHUNK_BYTES_MAX: usize = 256 << 10;

const CHECKSUM_BYTES: usize = 16;
const IDENTITY_MAGIC: &[u8; 8] = b"GlnJrnl\0";
const SEGMENT_MAGIC: &[u8; 8] = b"GlnJSeg\0";
const SNAPSHOT_MAGIC: &[u8; 8] = b"GlnJSnp\0";
const BATCH_MAGIC: &[u8; 4] = b"GlnJ";

/// A header as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decoded<T> {
    /// It is whole.
    Whole(T),
    /// It is torn, damaged, or something else.
    Broken,
    /// It is whole, and of a newer version than is known here.
    Newer(u32),
}

/// The random name of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity(pub [u8; 16]);

/// The key of the checksums in one file.
pub(crate) type Key = [u8; 32];

impl Identity {
    /// The key of a segment's batches.
    pub fn segment_key(&self, index: u64) -> Key {
        self.key(b"segment", index)
    }

    /// The key of a snapshot's chunks.
    pub fn snapshot_key(&self, seq: u64) -> Key {
        self.key(b"snapshot", seq)
    }

    fn key(&self, what: &[u8], number: u64) -> Key {
        let parts = [&self.0[..], &number.to_le_bytes(), what].concat();
        *blake3::hash(&parts).as_bytes()
    }

    /// The file that names the journal.
    pub fn encode(&self) -> [u8; IDENTITY_FILE_BYTES] {
        let mut out = [0; IDENTITY_FILE_BYTES];
        begin(&mut out, IDENTITY_MAGIC, 0);
        out[16..32].copy_from_slice(&self.0);
        close(&mut out);
        out
    }

    /// Reads that file.
    pub fn decode(bytes: &[u8]) -> Decoded<Self> {
        if bytes.len() != IDENTITY_FILE_BYTES {
            return Decoded::Broken;
        }
        checked(bytes, IDENTITY_MAGIC, || Self(array(bytes, 16)))
    }
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub logic_version: u32,
    pub identity: Identity,
    pub index: u64,
    pub first: u64,
    pub epoch: u64,
    pub bytes: u64,
}

impl SegmentHeader {
    /// As it is stored.
    pub fn encode(&self) -> [u8; SECTOR_BYTES] {
        let mut out = [0; SECTOR_BYTES];
        begin(&mut out, SEGMENT_MAGIC, self.logic_version);
        out[16..32].copy_from_slice(&self.identity.0);
        for (at, word) in [(32, self.index), (40, self.first), (48, self.epoch), (56, self.bytes)] {
            out[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        close(&mut out);
        out
    }

    /// Reads a stored header.
    pub fn decode(bytes: &[u8; SECTOR_BYTES]) -> Decoded<Self> {
        checked(bytes, SEGMENT_MAGIC, || Self {
            logic_version: word(bytes, 12),
            identity: Identity(array(bytes, 16)),
            index: long(bytes, 32),
            first: long(bytes, 40),
            epoch: long(bytes, 48),
            bytes: long(bytes, 56),
        })
    }
}

/// The header of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotHeader {
    pub logic_version: u32,
    pub identity: Identity,
    pub seq: u64,
    pub epoch: u64,
}

impl SnapshotHeader {
    /// As it is stored.
    pub fn encode(&self) -> [u8; SNAPSHOT_HEADER_BYTES] {
        let mut out = [0; SNAPSHOT_HEADER_BYTES];
        begin(&mut out, SNAPSHOT_MAGIC, self.logic_version);
        out[16..32].copy_from_slice(&self.identity.0);
        out[32..40].copy_from_slice(&self.seq.to_le_bytes());
        out[40..48].copy_from_slice(&self.epoch.to_le_bytes());
        close(&mut out);
        out
    }

    /// Reads a stored header.
    pub fn decode(bytes: &[u8; SNAPSHOT_HEADER_BYTES]) -> Decoded<Self> {
        checked(bytes, SNAPSHOT_MAGIC, || Self {
            logic_version: word(bytes, 12),
            identity: Identity(array(bytes, 16)),
            seq: long(bytes, 32),
            epoch: long(bytes, 40),
        })
    }
}

/// Puts a chunk's header before its bytes, for which `chunk` has left room.
pub(crate) fn seal_chunk(chunk: &mut [u8], key: &Key, number: u64) {
    let len = (chunk.len() - CHUNK_HEADER_BYTES) as u32;
    chunk[16..20].copy_from_slice(&len.to_le_bytes());
    chunk[20..28].copy_from_slice(&number.to_le_bytes());
    let sum = keyed(key, &chunk[CHECKSUM_BYTES..]);
    chunk[..CHECKSUM_BYTES].copy_from_slice(&sum);
}

/// The length that a chunk's header gives; `None` if it cannot be.
pub(crate) fn chunk_len(header: &[u8; CHUNK_HEADER_BYTES]) -> Option<usize> {
    Some(word(header, 16) as usize).filter(|len| *len <= CHUNK_BYTES_MAX)
}

/// Whether a chunk with its header is what was written as the chunk of this number.
pub(crate) fn chunk_is_whole(chunk: &[u8], key: &Key, number: u64) -> bool {
    long(chunk, 20) == number && chunk[..CHECKSUM_BYTES] == keyed(key, &chunk[CHECKSUM_BYTES..])
}

/// What the header of a batch says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    /// Length up to the end of the records.
    pub len: usize,
    pub first: u64,
    pub epoch: u64,
    pub count: u32,
}

/// Length up to the next multiple of a sector.
pub(crate) fn padded(len: usize) -> usize {
    len.next_multiple_of(SECTOR_BYTES)
}

/// Makes a batch of records for which `batch` has left room in front.
pub(crate) fn seal_batch(batch: &mut Vec<u8>, key: &Key, first: u64, epoch: u64, count: u32) {
    let len = batch.len() as u32;
    batch.resize(padded(batch.len()), 0);
    batch[..4].copy_from_slice(BATCH_MAGIC);
    batch[20..24].copy_from_slice(&len.to_le_bytes());
    batch[24..32].copy_from_slice(&first.to_le_bytes());
    batch[32..40].copy_from_slice(&epoch.to_le_bytes());
    batch[40..44].copy_from_slice(&count.to_le_bytes());
    batch[44..48].fill(0);
    let sum = keyed(key, &batch[20..]);
    batch[4..20].copy_from_slice(&sum);
}

/// Reads the header of what may be a batch; the checksum is for [`batch_is_whole`].
pub(crate) fn batch_header(bytes: &[u8]) -> Option<BatchHeader> {
    if bytes.len() < BATCH_HEADER_BYTES || bytes[..4] != *BATCH_MAGIC {
        return None;
    }
    let len = word(bytes, 20) as usize;
    let header = BatchHeader { len, first: long(bytes, 24), epoch: long(bytes, 32), count: word(bytes, 40) };
    (len > BATCH_HEADER_BYTES && header.count > 0).then_some(header)
}

/// Whether the bytes of a batch, padding included, are what was written.
pub(crate) fn batch_is_whole(bytes: &[u8], key: &Key) -> bool {
    bytes[4..20] == keyed(key, &bytes[20..])
}

/// Appends a record to a batch.
pub(crate) fn push_record(batch: &mut Vec<u8>, record: &[u8]) {
    batch.extend_from_slice(&(record.len() as u32).to_le_bytes());
    batch.extend_from_slice(record);
}

/// The record at the front of `bytes`; `None` if they do not hold a whole one.
pub(crate) fn front_record(bytes: &[u8]) -> Option<&[u8]> {
    let len = bytes.get(..4).map(|len| word(len, 0) as usize)?;
    bytes.get(4..4 + len)
}

fn begin(out: &mut [u8], magic: &[u8; 8], logic_version: u32) {
    out[..8].copy_from_slice(magic);
    out[8..12].copy_from_slice(&VERSION.to_le_bytes());
    out[12..16].copy_from_slice(&logic_version.to_le_bytes());
}

fn close(out: &mut [u8]) {
    let end = out.len() - CHECKSUM_BYTES;
    let sum = checksum(&out[..end]);
    out[end..].copy_from_slice(&sum);
}

fn checked<T>(bytes: &[u8], magic: &[u8; 8], decode: impl FnOnce() -> T) -> Decoded<T> {
    let (body, sum) = bytes.split_at(bytes.len() - CHECKSUM_BYTES);
    if bytes[..8] != *magic || *sum != checksum(body) {
        return Decoded::Broken;
    }
    match word(bytes, 8) {
        VERSION => Decoded::Whole(decode()),
        newer => Decoded::Newer(newer),
    }
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    array(blake3::hash(bytes).as_bytes(), 0)
}

fn keyed(key: &Key, bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    array(blake3::keyed_hash(key, bytes).as_bytes(), 0)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[at + i])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::digest::hex;

    const IDENTITY: Identity = Identity(*b"0123456789abcdef");
    const SEGMENT: SegmentHeader = SegmentHeader {
        logic_version: 7,
        identity: IDENTITY,
        index: 0x0102_0304_0506_0708,
        first: 1_000_000,
        epoch: 3,
        bytes: 64 << 20,
    };
    const SNAPSHOT: SnapshotHeader = SnapshotHeader { logic_version: 7, identity: IDENTITY, seq: 999_999, epoch: 3 };

    fn batch() -> Vec<u8> {
        let mut batch = vec![0xff; BATCH_HEADER_BYTES];
        push_record(&mut batch, b"gleaner");
        push_record(&mut batch, b"");
        seal_batch(&mut batch, &IDENTITY.segment_key(5), 41, 3, 2);
        batch
    }

    #[test]
    fn golden_bytes_of_headers() {
        let segment = SEGMENT.encode();
        assert_eq!(
            hex(&IDENTITY.encode()),
            "476c6e4a726e6c000100000000000000303132333435363738396162636465662dc12f8d7473169d76030fc9a989f244"
        );
        assert_eq!(
            hex(&segment[..64]),
            "476c6e4a53656700010000000700000030313233343536373839616263646566080706050403020140420f000000000003000000000000000000000400000000"
        );
        assert!(segment[64..496].iter().all(|byte| *byte == 0));
        assert_eq!(hex(&segment[496..]), "debaa5d53bfd82cd6f42d9fdd50c6d65");
        assert_eq!(
            hex(&SNAPSHOT.encode()),
            "476c6e4a536e70000100000007000000303132333435363738396162636465663f420f000000000003000000000000000000000000000000000000000000000000000000000000000000000000000000ddab11d52428620cac1e99cfb7ea9642"
        );
        assert_eq!(Identity::decode(&IDENTITY.encode()), Decoded::Whole(IDENTITY));
        assert_eq!(SegmentHeader::decode(&segment), Decoded::Whole(SEGMENT));
        assert_eq!(SnapshotHeader::decode(&SNAPSHOT.encode()), Decoded::Whole(SNAPSHOT));
    }

    #[test]
    fn golden_bytes_of_a_batch_and_a_chunk() {
        let batch = batch();
        assert_eq!(batch.len(), SECTOR_BYTES);
        assert_eq!(
            hex(&batch[..64]),
            "476c6e4abb1bc481c0c480bc0fad703c21bbb28c3f00000029000000000000000300000000000000020000000000000007000000676c65616e65720000000000"
        );
        assert!(batch[64..].iter().all(|byte| *byte == 0));
        let header = batch_header(&batch).unwrap();
        assert_eq!(header, BatchHeader { len: 48 + 11 + 4, first: 41, epoch: 3, count: 2 });
        assert!(batch_is_whole(&batch, &IDENTITY.segment_key(5)));
        assert!(!batch_is_whole(&batch, &IDENTITY.segment_key(6)), "another use of the file");
        assert_eq!(front_record(&batch[48..header.len]), Some(&b"gleaner"[..]));
        assert_eq!(front_record(&batch[59..header.len]), Some(&b""[..]));

        let mut chunk = [&[0xff; CHUNK_HEADER_BYTES][..], b"state"].concat();
        seal_chunk(&mut chunk, &IDENTITY.snapshot_key(9), 1);
        assert_eq!(hex(&chunk), "16efeb2cc8fc9bc45fdc9ccd4c9012ef0500000001000000000000007374617465");
        assert!(chunk_is_whole(&chunk, &IDENTITY.snapshot_key(9), 1));
        assert!(!chunk_is_whole(&chunk, &IDENTITY.snapshot_key(9), 2), "another place");
        assert!(!chunk_is_whole(&chunk, &IDENTITY.snapshot_key(8), 1), "another snapshot");
    }

    #[test]
    fn any_bit_that_is_flipped_is_seen() {
        let key = IDENTITY.segment_key(5);
        let flipped = |bytes: &[u8], bit: usize| {
            let mut bad = bytes.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            bad
        };
        let segment = SEGMENT.encode();
        let batch = batch();
        for bit in 0..SECTOR_BYTES * 8 {
            let bad = flipped(&segment, bit).try_into().unwrap();
            assert_eq!(SegmentHeader::decode(&bad), Decoded::Broken, "bit {bit}");
            let bad = flipped(&batch, bit);
            assert!(batch_header(&bad).is_none() || !batch_is_whole(&bad, &key), "bit {bit}");
        }
        for bit in 0..IDENTITY_FILE_BYTES * 8 {
            assert_eq!(Identity::decode(&flipped(&IDENTITY.encode(), bit)), Decoded::Broken, "bit {bit}");
        }
    }

    #[test]
    fn a_newer_version_is_told_from_damage() {
        let mut header = SEGMENT.encode();
        header[8] = 2;
        assert_eq!(SegmentHeader::decode(&header), Decoded::Broken);
        close(&mut header);
        assert_eq!(SegmentHeader::decode(&header), Decoded::Newer(2));
    }

    #[test]
    fn a_record_that_ends_before_its_length_is_none() {
        assert_eq!(front_record(&[1, 0, 0]), None);
        assert_eq!(front_record(&[2, 0, 0, 0, 9]), None);
        assert_eq!(front_record(&[1, 0, 0, 0, 9]), Some(&[9][..]));
    }
}

//! A table as bytes, and made again from them exactly: how integers, records and arrays of them are written and read.
//!
//! The format is our own and fixed: little-endian, each record of one length, whatever the layout in memory is. What a record is
//! made of is listed by hand beside it ([`saved`]), once for both directions, and the compiler knows when a field is missing.
//! Whoever changes such a list raises [`SNAPSHOT_VERSION`], and [`LOGIC_VERSION`](crate::LOGIC_VERSION) if events have it: the
//! journal's records are written by these lists, too. Tests notice if not.
//!
//! Bytes come from outside and go there through functions that the caller gives, in pieces of [`PIECE_BYTES`] at most: no files
//! here. Whether they were damaged on the way is for the caller to know, by a checksum over all. Damage does no harm to the process
//! that loads all the same: no panic, no endless loop, no more memory than a sane table has.

use crate::shapes::NIL;
use base::codec::Malformed;

/// Which format snapshots have. A hub starts from this one only; `gleaner journal upgrade` makes it from older ones.
///
/// Whoever raises it keeps the reader of the one before, in `table::older`: the records that have changed, as they were, with what
/// becomes of them, and a snapshot of that format that is in the tree (`tests/golden`), written by the last code that wrote it.
pub const SNAPSHOT_VERSION: u32 = 2;
/// What every snapshot begins with.
pub(crate) const MAGIC: [u8; 8] = *b"GLNTABLE";
/// How much is passed on, or asked for, at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Why no table could be made from a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum LoadError<E> {
    /// What gives the bytes has failed.
    #[error("the snapshot cannot be read: {0}")]
    Read(#[source] E),
    /// It begins otherwise than snapshots do.
    #[error("this is no snapshot of a task table")]
    Foreign,
    /// It was written in another version of the format, which is not known here: this one.
    #[error("the snapshot has format {0}, and none after {known} is known here", known = SNAPSHOT_VERSION)]
    Version(u32),
    /// It was written in an older version of the format, which is known: this one.
    #[error("the snapshot has format {0}, which is older than {known}", known = SNAPSHOT_VERSION)]
    Older(u32),
    /// It is cut short, too long, or has values that no table has.
    #[error("the snapshot is damaged: {0}")]
    Damaged(&'static str),
}

/// A value with a fixed number of bytes.
pub(crate) trait Saved: Sized {
    /// How many.
    const BYTES: usize;
    /// The names and types of a record's fields in their order: what a test knows changes by.
    #[cfg(test)]
    const LAYOUT: &'static str = "";

    /// Writes it over [`Saved::BYTES`] bytes.
    fn put(&self, to: &mut [u8]);
    /// Reads it from [`Saved::BYTES`] bytes.
    fn get(from: &[u8]) -> Result<Self, Malformed>;
}

/// Saves a record field by field, as listed. A field that is not listed is an error of the compiler. A list of something that snapshots
/// have is changed with `SNAPSHOT_VERSION`; one of something that events have, with `LOGIC_VERSION`; one of both, with both.
macro_rules! saved {
    ($record:ty { $($field:ident: $type:ty),* $(,)? }) => {
        impl $crate::snapshot::Saved for $record {
            const BYTES: usize = 0 $(+ <$type as $crate::snapshot::Saved>::BYTES)*;
            #[cfg(test)]
            const LAYOUT: &'static str =
                concat!(stringify!($record), " {", $(" ", stringify!($field), ": ", stringify!($type), ",",)* " }");

            #[inline]
            fn put(&self, to: &mut [u8]) {
                let Self { $($field),* } = self;
                $(
                    let (place, to) = to.split_at_mut(<$type as $crate::snapshot::Saved>::BYTES);
                    <$type as $crate::snapshot::Saved>::put($field, place);
                )*
                debug_assert!(to.is_empty());
            }

            #[inline]
            fn get(from: &[u8]) -> Result<Self, base::codec::Malformed> {
                $(
                    let (place, from) = from.split_at(<$type as $crate::snapshot::Saved>::BYTES);
                    let $field = <$type as $crate::snapshot::Saved>::get(place)?;
                )*
                debug_assert!(from.is_empty());
                Ok(Self { $($field),* })
            }
        }
    };
}
pub(crate) use saved;

/// Saves a choice as one byte, by the numbers listed. One that is not listed is an error of the compiler.
macro_rules! saved_choice {
    ($choice:ty { $($variant:ident = $number:literal),* $(,)? }) => {
        impl $crate::snapshot::Saved for $choice {
            const BYTES: usize = 1;
            #[cfg(test)]
            const LAYOUT: &'static str =
                concat!(stringify!($choice), " {", $(" ", stringify!($variant), " = ", $number, ",",)* " }");

            #[inline]
            fn put(&self, to: &mut [u8]) {
                to[0] = match self { $(Self::$variant => $number),* };
            }

            #[inline]
            fn get(from: &[u8]) -> Result<Self, base::codec::Malformed> {
                match from[0] {
                    $($number => Ok(Self::$variant),)*
                    _ => Err(base::codec::Malformed(concat!("no ", stringify!($choice), " has this number"))),
                }
            }
        }
    };
}
pub(crate) use saved_choice;

macro_rules! integers {
    ($($type:ty),*) => { $(
        impl Saved for $type {
            const BYTES: usize = size_of::<$type>();

            #[inline]
            fn put(&self, to: &mut [u8]) {
                to.copy_from_slice(&self.to_le_bytes());
            }

            #[inline]
            fn get(from: &[u8]) -> Result<Self, Malformed> {
                Ok(Self::from_le_bytes(from.try_into().expect("whoever reads gives as many bytes as it has")))
            }
        }
    )* };
}
integers!(u8, u16, u32, u64, u128, i32, i64);

/// As 64 bits, on every machine.
impl Saved for usize {
    const BYTES: usize = 8;

    fn put(&self, to: &mut [u8]) {
        (*self as u64).put(to);
    }

    fn get(from: &[u8]) -> Result<Self, Malformed> {
        Self::try_from(u64::get(from)?).map_err(|_| Malformed("a number larger than this machine's memory"))
    }
}

impl Saved for bool {
    const BYTES: usize = 1;

    #[inline]
    fn put(&self, to: &mut [u8]) {
        to[0] = (*self).into();
    }

    #[inline]
    fn get(from: &[u8]) -> Result<Self, Malformed> {
        match from[0] {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a truth value that is neither 0 nor 1")),
        }
    }
}

/// None is as long as some.
impl<T: Saved> Saved for Option<T> {
    const BYTES: usize = 1 + T::BYTES;

    #[inline]
    fn put(&self, to: &mut [u8]) {
        to.fill(0);
        if let Some(value) = self {
            to[0] = 1;
            value.put(&mut to[1..]);
        }
    }

    #[inline]
    fn get(from: &[u8]) -> Result<Self, Malformed> {
        if bool::get(&from[..1])? {
            return T::get(&from[1..]).map(Some);
        }
        if from.iter().any(|byte| *byte != 0) { Err(Malformed("nothing that is something")) } else { Ok(None) }
    }
}

/// Of one item at least.
impl<T: Saved + Copy, const N: usize> Saved for [T; N] {
    const BYTES: usize = N * T::BYTES;

    #[inline]
    fn put(&self, to: &mut [u8]) {
        self.iter().zip(to.chunks_exact_mut(T::BYTES)).for_each(|(item, place)| item.put(place));
    }

    #[inline]
    fn get(from: &[u8]) -> Result<Self, Malformed> {
        let mut items = [T::get(&from[..T::BYTES])?; N];
        for (item, place) in items.iter_mut().zip(from.chunks_exact(T::BYTES)) {
            *item = T::get(place)?;
        }
        Ok(items)
    }
}

/// Whoever takes the bytes wants no more.
#[derive(Debug)]
pub(crate) struct Stopped;

/// Where to: passes the bytes on.
pub(crate) type Write<'a> = dyn FnMut(&[u8]) -> Result<(), Stopped> + 'a;
/// Where from: fills the front of the room, and says how much of it. Nothing: that was all.
pub(crate) type Read<'a> = dyn FnMut(&mut [u8]) -> Result<usize, Stopped> + 'a;

/// Writes values one behind the other.
pub(crate) struct Saver<'a> {
    out: &'a mut Write<'a>,
    piece: Vec<u8>,
    filled: usize,
}

impl<'a> Saver<'a> {
    pub fn new(out: &'a mut Write<'a>) -> Self {
        Self { out, piece: vec![0; PIECE_BYTES], filled: 0 }
    }

    #[inline]
    pub fn put<T: Saved>(&mut self, value: &T) -> Result<(), Stopped> {
        const { assert!(T::BYTES <= PIECE_BYTES) };
        if self.piece.len() - self.filled < T::BYTES {
            self.end()?;
        }
        let end = self.filled + T::BYTES;
        value.put(&mut self.piece[self.filled..end]);
        self.filled = end;
        Ok(())
    }

    /// Writes all of them, and not how many they are.
    pub fn all<T: Saved>(&mut self, values: &[T]) -> Result<(), Stopped> {
        values.iter().try_for_each(|value| self.put(value))
    }

    /// Writes an array of which many items are `empty`: only the others, run by run, each with how many are between.
    pub fn runs<T: Saved + PartialEq>(&mut self, values: &[T], empty: &T) -> Result<(), Stopped> {
        // An array of records is no longer than an index can say, and one of names four times as long at most.
        let length = |length: usize| u32::try_from(length).expect("no array has more than 2^32 items");
        self.put(&length(values.len()))?;
        let mut rest = values;
        while let Some(gap) = first_other(rest, empty) {
            let count = rest[gap..].iter().position(|value| value == empty).unwrap_or(rest.len() - gap);
            self.put(&[length(gap), length(count)])?;
            self.all(&rest[gap..gap + count])?;
            rest = &rest[gap + count..];
        }
        self.put(&[0u32; 2])
    }

    /// Passes on what is left.
    pub fn end(&mut self) -> Result<(), Stopped> {
        let filled = std::mem::take(&mut self.filled);
        if filled == 0 { Ok(()) } else { (self.out)(&self.piece[..filled]) }
    }
}

/// Reads values one behind the other.
pub(crate) struct Loader<'a> {
    from: &'a mut Read<'a>,
    piece: Vec<u8>,
    /// What has been read and not yet used.
    start: usize,
    end: usize,
}

impl<'a> Loader<'a> {
    pub fn new(from: &'a mut Read<'a>) -> Self {
        Self { from, piece: vec![0; PIECE_BYTES], start: 0, end: 0 }
    }

    #[inline]
    pub fn get<T: Saved>(&mut self) -> Result<T, Malformed> {
        const { assert!(T::BYTES <= PIECE_BYTES) };
        while self.end - self.start < T::BYTES {
            if !self.more()? {
                return Err(Malformed("it ends too early"));
            }
        }
        let start = self.start;
        self.start += T::BYTES;
        T::get(&self.piece[start..self.start])
    }

    /// Has more bytes at hand than before. False: there are no more.
    fn more(&mut self) -> Result<bool, Malformed> {
        self.piece.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let room = &mut self.piece[self.end..];
        // Why it stopped is known to whoever gave the function.
        let count = (self.from)(room).map_err(|Stopped| Malformed("it cannot be read"))?;
        if count > room.len() {
            return Err(Malformed("more was read than there is room"));
        }
        self.end += count;
        Ok(count > 0)
    }

    /// Reads so many values, into an array that will have more. The caller has seen that so many are sane.
    pub fn all<T: Saved>(&mut self, count: usize, capacity: usize) -> Result<Vec<T>, Malformed> {
        self.all_as::<T, T>(count, capacity)
    }

    /// The same of values that were saved as `S`.
    pub fn all_as<S: Saved + Into<T>, T>(&mut self, count: usize, capacity: usize) -> Result<Vec<T>, Malformed> {
        let mut values = Vec::with_capacity(capacity);
        for _ in 0..count {
            values.push(self.get::<S>()?.into());
        }
        Ok(values)
    }

    /// Reads what [`Saver::runs`] wrote of an array that is as long as this one. What is not written stays as it is, and what is,
    /// is told with its index: it may be wrong.
    pub fn runs<T: Saved>(
        &mut self,
        values: &mut [T],
        mut each: impl FnMut(usize, &T) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        if self.get::<u32>()? as usize != values.len() {
            return Err(Malformed("an array has another length here"));
        }
        let (mut rest, mut at) = (values, 0);
        loop {
            let [gap, count] = self.get::<[u32; 2]>()?.map(|number| number as usize);
            if count == 0 {
                return if gap == 0 { Ok(()) } else { Err(Malformed("an empty run")) };
            }
            let tail = rest.split_at_mut_checked(gap).and_then(|(_, tail)| tail.split_at_mut_checked(count));
            let Some((run, tail)) = tail else { return Err(Malformed("a run beyond the end of its array")) };
            at += gap;
            for value in run {
                *value = self.get()?;
                each(at, value)?;
                at += 1;
            }
            rest = tail;
        }
    }

    /// Nothing may follow.
    pub fn end(&mut self) -> Result<(), Malformed> {
        if self.end > self.start || self.more()? { Err(Malformed("bytes left over")) } else { Ok(()) }
    }
}

/// The first item that is not `empty`.
fn first_other<T: PartialEq>(values: &[T], empty: &T) -> Option<usize> {
    // Most items of most arrays are empty. Without an early end the compiler compares many at once.
    const BLOCK: usize = 256;
    let is_empty = |block: &[T]| block.iter().fold(true, |is_empty, value| is_empty & (value == empty));
    let skipped = values.chunks(BLOCK).take_while(|block| is_empty(block)).count() * BLOCK;
    let rest = values.get(skipped..)?;
    rest.iter().position(|value| value != empty).map(|at| skipped + at)
}

/// For [`Loader::runs`]: whether an item is a record among the first `count`, or none.
pub(crate) fn below(count: u32) -> impl Fn(usize, &u32) -> Result<(), Malformed> {
    move |_, at| if *at == NIL || *at < count { Ok(()) } else { Err(Malformed("a record that was never used")) }
}

/// Whether all of these are records among the first `count`, or none.
pub(crate) fn are_below(count: u32, indices: impl IntoIterator<Item = u32>) -> bool {
    indices.into_iter().all(|at| at == NIL || at < count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Sample {
        wide: u128,
        signed: i32,
        flag: bool,
        numbers: [u16; 3],
        maybe: Option<u8>,
    }
    saved!(Sample { wide: u128, signed: i32, flag: bool, numbers: [u16; 3], maybe: Option<u8> });

    fn written(write: impl Fn(&mut Saver<'_>) -> Result<(), Stopped>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut out = |piece: &[u8]| {
            bytes.extend_from_slice(piece);
            Ok(())
        };
        let mut saver = Saver::new(&mut out);
        write(&mut saver).and_then(|()| saver.end()).expect("memory takes everything");
        bytes
    }

    #[test]
    fn a_record_is_its_fields_in_order() {
        let sample = Sample { wide: 5, signed: -2, flag: true, numbers: [1, 2, 0x300], maybe: None };
        let mut bytes = vec![0xff; Sample::BYTES];
        sample.put(&mut bytes);
        assert_eq!(bytes[16..], [0xfe, 0xff, 0xff, 0xff, 1, 1, 0, 2, 0, 0, 3, 0, 0]);
        assert_eq!(Sample::get(&bytes), Ok(sample));
        bytes[20] = 2;
        Sample::get(&bytes).expect_err("no truth value");
        assert_eq!(
            Sample::LAYOUT,
            "Sample { wide: u128, signed: i32, flag: bool, numbers: [u16; 3], maybe: Option<u8>, }"
        );
    }

    proptest! {
        #[test]
        fn runs_are_the_array_again(values in proptest::collection::vec(0u32..3, 0..200), piece in 1usize..20) {
            let bytes = written(|out| out.runs(&values, &0));
            // However few bytes come at a time.
            let mut rest = &bytes[..];
            let mut from = |room: &mut [u8]| {
                let (now, later) = rest.split_at(piece.min(rest.len()));
                room[..now.len()].copy_from_slice(now);
                rest = later;
                Ok(now.len())
            };
            let mut again = vec![0; values.len()];
            let mut loader = Loader::new(&mut from);
            prop_assert_eq!(loader.runs(&mut again, |_, _| Ok(())), Ok(()));
            prop_assert_eq!(loader.end(), Ok(()));
            prop_assert_eq!(again, values);
        }
    }

    #[test]
    fn large_arrays_go_in_pieces() {
        let values: Vec<u64> = (0..300_000).collect();
        let mut pieces = Vec::new();
        let mut out = |piece: &[u8]| {
            pieces.push(piece.len());
            if pieces.len() < 2 { Ok(()) } else { Err(Stopped) }
        };
        Saver::new(&mut out).all(&values).expect_err("stopped");
        assert_eq!(pieces, [PIECE_BYTES; 2], "and nothing after it");
        assert_eq!(written(|out| out.all(&values)).len(), 2_400_000);
    }
}

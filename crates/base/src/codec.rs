//! A small binary encoding for what stays on one machine or is named by its hash: recipes, listings, the door's
//! messages, orders to the sandbox. Integers are little-endian; byte strings and lists carry a 32-bit length.
//!
//! Messages between machines are protobuf instead (`wire`), so that versions can differ.

use std::fmt;

/// What was read is not what this version writes: cut short, too long, or with values outside their range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed data: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

/// A type with an encoding of its own.
pub trait Encode: Sized {
    /// Appends the encoding of `self`.
    fn encode(&self, out: &mut Writer);
    /// Reads one value, and leaves the reader behind it.
    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed>;

    /// The encoding as bytes.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        self.encode(&mut out);
        out.0
    }

    /// Reads a value that must fill `bytes` exactly.
    fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(bytes);
        let value = Self::decode(&mut from)?;
        if from.is_empty() { Ok(value) } else { Err(Malformed("bytes left over")) }
    }
}

/// Collects an encoding.
#[derive(Default, Debug)]
pub struct Writer(pub Vec<u8>);

/// Reads an encoding from the front.
#[derive(Debug)]
pub struct Reader<'a>(&'a [u8]);

macro_rules! integers {
    ($($name:ident: $type:ty),*) => {
        impl Writer { $(
            /// Appends an integer.
            pub fn $name(&mut self, value: $type) { self.0.extend_from_slice(&value.to_le_bytes()); }
        )* }
        impl Reader<'_> { $(
            /// Reads an integer.
            pub fn $name(&mut self) -> Result<$type, Malformed> {
                let bytes = self.take(size_of::<$type>())?;
                Ok(<$type>::from_le_bytes(bytes.try_into().expect("take returns the length asked for")))
            }
        )* }
    };
}
integers!(u8: u8, u16: u16, u32: u32, u64: u64, u128: u128, i32: i32, i64: i64);

impl Writer {
    /// Appends a byte string with its length.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
    }

    /// Appends bytes without a length.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Appends 0 or 1.
    pub fn bool(&mut self, value: bool) {
        self.u8(value.into());
    }

    /// Appends a list with its length.
    pub fn list<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.u32(items.len() as u32);
        for item in items {
            each(self, item);
        }
    }

    /// Appends 0, or 1 and the value.
    pub fn option<T>(&mut self, value: Option<&T>, each: impl FnOnce(&mut Self, &T)) {
        self.bool(value.is_some());
        if let Some(value) = value {
            each(self, value);
        }
    }
}

impl<'a> Reader<'a> {
    /// Reads from the front of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether all has been read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads `count` bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed("cut short"))?;
        self.0 = rest;
        Ok(taken)
    }

    /// Reads as many bytes as an array has.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        Ok(self.take(N)?.try_into().expect("take returns the length asked for"))
    }

    /// Reads a byte string with its length.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let count = self.u32()? as usize;
        self.take(count)
    }

    /// Reads 0 or 1.
    pub fn bool(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a truth value that is neither 0 nor 1")),
        }
    }

    /// Reads a list with its length.
    pub fn list<T>(&mut self, mut each: impl FnMut(&mut Self) -> Result<T, Malformed>) -> Result<Vec<T>, Malformed> {
        let count = self.u32()? as usize;
        // Every item takes a byte or more, so a length beyond what is left is a lie: no memory is set aside for it.
        if count > self.0.len() {
            return Err(Malformed("a list longer than its data"));
        }
        (0..count).map(|_| each(self)).collect()
    }

    /// Reads what [`Writer::option`] wrote.
    pub fn option<T>(&mut self, each: impl FnOnce(&mut Self) -> Result<T, Malformed>) -> Result<Option<T>, Malformed> {
        if self.bool()? { each(self).map(Some) } else { Ok(None) }
    }
}

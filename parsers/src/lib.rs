//! Parsers of bytes from elsewhere, and the properties that they keep whatever the bytes are.
//!
//! Each [`Target`] reads one kind of bytes. Its check holds for any bytes: no panic, no endless loop, no more heap than stated, and
//! what is read is written and read again as the same. Its `draw` writes bytes that must be read, so that damaged ones
//! come far into the parser. [`run`] does either, by the first byte of its input.
//!
//! The same targets run in two ways: in the test suite over the corpus with mutations drawn from a seed ([`passes`]), and under
//! libFuzzer (`fuzz/`, `cargo xtask fuzz`).

pub mod bounds;
pub mod dice;
pub mod draw;
pub mod passes;
mod targets;

pub use draw::Draw;
pub use targets::{TARGETS, of_name};

use std::time::Duration;

/// First byte of an input whose rest decides what is drawn. After any other byte the rest goes to the parser as it is.
pub const DRAWN: u8 = b'd';
/// The byte before bytes for the parser in the corpus.
pub const RAW: u8 = b'r';
/// Processor time that one check may take. Inputs are of some KB.
const CPU_MAX: Duration = Duration::from_secs(2);

/// One kind of bytes, and who reads them.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, and that of its folder in the corpus.
    pub name: &'static str,
    /// Checks all that holds of any bytes; whether they were taken.
    pub check: fn(&[u8]) -> bool,
    /// Writes bytes that are taken.
    pub draw: fn(&mut Draw<'_>) -> Vec<u8>,
    /// Heap that the check of these bytes may hold at a time, in bytes.
    pub heap: fn(&[u8]) -> usize,
}

/// Checks one input.
///
/// # Panics
/// If a property does not hold.
pub fn run(target: &Target, input: &[u8]) {
    let Some((kind, rest)) = input.split_first() else { return };
    if *kind != DRAWN {
        bounded(target, rest);
        return;
    }
    let mut draw = Draw::new(rest);
    let mut bytes = (target.draw)(&mut draw);
    assert!(bounded(target, &bytes), "{}: what was written is not read", target.name);
    draw.damage(&mut bytes);
    bounded(target, &bytes);
}

/// Checks bytes within the bounds of the target; whether they were taken.
fn bounded(target: &Target, bytes: &[u8]) -> bool {
    let allowed = (target.heap)(bytes);
    let (taken, is_taken) = bounds::measure(|| (target.check)(bytes));
    let (name, len) = (target.name, bytes.len());
    assert!(taken.heap <= allowed, "{name}: {len} bytes took {} of heap, not {allowed}", taken.heap);
    assert!(taken.cpu <= CPU_MAX, "{name}: {len} bytes took {:?} of a processor", taken.cpu);
    is_taken
}

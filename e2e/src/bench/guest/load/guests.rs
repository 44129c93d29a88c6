//! What guests do: never rest.

use super::{READY, Words, Work};
use crate::error::{Context, Result};
use std::fs::File;
use std::io::{Seek, Write};
use std::path::PathBuf;

/// Bytes written at once.
const CHUNK: usize = 1 << 20;

fn ready() {
    println!("{READY}");
}

/// Computes.
pub fn spin(_: &mut Words<'_>) -> Result<()> {
    let mut work = Work::new();
    ready();
    loop {
        work.steps(1 << 20);
    }
}

/// Holds so many MiB and writes to each cache line of them, again and again, on this CPU (-1: on any). It is ready before it has them: beside a
/// busy owner it may never come to that.
pub fn touch(words: &mut Words<'_>) -> Result<()> {
    let (mib, cpu): (usize, i64) = (words.next()?, words.next()?);
    super::stay_on(cpu)?;
    ready();
    let mut memory = vec![1u64; mib << 17];
    loop {
        super::owner::pass(&mut memory);
    }
}

/// Writes a file of so many MiB in large pieces, again and again, never waiting for the disk.
pub fn stream(words: &mut Words<'_>) -> Result<()> {
    let (path, mib) = (words.next::<PathBuf>()?, words.next::<usize>()?);
    let mut file = File::create(&path).at("create", &path)?;
    let bytes: Vec<u8> = (0..CHUNK).map(|index| (index * 31 % 251) as u8).collect();
    ready();
    loop {
        file.rewind().at("rewind", &path)?;
        for _ in 0..mib {
            file.write_all(&bytes).at("write", &path)?;
        }
    }
}

/// Holds so many MiB and does nothing.
pub fn hold(words: &mut Words<'_>) -> Result<()> {
    let memory = vec![1u8; words.next::<usize>()? << 20];
    std::hint::black_box(&memory);
    ready();
    loop {
        std::thread::park();
    }
}

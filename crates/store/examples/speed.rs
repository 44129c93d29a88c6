//! Prints how fast this machine cuts and hashes a file, writes its blocks to a store, and reads them back, in MB/s:
//! `cargo run --release -p store --example speed [FILE]`. Without a file, 512 MiB of noise are made.

use base::{Digest, Tenant};
use std::convert::Infallible;
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};
use store::{BlockStore, Cutter, Options};

const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = match std::env::args_os().nth(1) {
        Some(path) => path.into(),
        None => {
            let path = folder.path().join("noise");
            make_noise(&path, 512 << 20)?;
            path
        }
    };
    let file = File::open(&path)?;
    let size = file.metadata()?.len();
    let mut cutter = Cutter::default();
    let mut cut = || cutter.cut(&file, size, &mut |_, _| Ok::<_, Infallible>(()));

    // The first round brings the file into the page cache.
    let (mut pieces, mut times) = (0, Vec::new());
    for _ in 0..=ROUNDS {
        let start = Instant::now();
        pieces = cut()?.recipe.map_or(1, |cut| cut.recipe.pieces.len());
        times.push(start.elapsed());
    }
    report("cut and hash", size, times.split_off(1));
    println!("{:<24} {:>8} of {} bytes on average", "pieces", pieces, size / pieces.max(1) as u64);

    let options = Options { bytes_max: size * 2 + (1 << 30), ..Options::default() };
    let store = BlockStore::open(&folder.path().join("store"), options)?;
    let mut digests: Vec<Digest> = Vec::new();
    let start = Instant::now();
    cutter.cut(&file, size, &mut |digest, bytes| {
        digests.push(digest);
        store.put_named(Tenant(0), digest, bytes)
    })?;
    report("cut, hash, hash, put", size, vec![start.elapsed()]);
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for digest in &digests {
            store.get(Tenant(0), digest)?;
        }
        times.push(start.elapsed());
    }
    report("get", size, times);
    Ok(())
}

fn report(what: &str, bytes: u64, mut times: Vec<Duration>) {
    times.sort();
    let median = times[times.len() / 2].as_secs_f64();
    println!("{what:<24} {:>8.0} MB/s", bytes as f64 / 1e6 / median);
}

/// Writes bytes that do not repeat: the output of a small xorshift generator.
fn make_noise(path: &std::path::Path, bytes: usize) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block = Vec::with_capacity(1 << 20);
    for _ in 0..bytes >> 20 {
        block.clear();
        while block.len() < 1 << 20 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            block.extend_from_slice(&state.to_le_bytes());
        }
        file.write_all(&block)?;
    }
    Ok(())
}

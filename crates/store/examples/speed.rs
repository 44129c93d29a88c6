//! Prints how fast this machine cuts and hashes a file, writes its blocks to a store, and reads them back, in MB/s, and
//! how long small blocks take: `cargo run --release -p store --example speed [FILE]`. Without a file, 512 MiB of noise
//! are made. All is measured in CPU time of the one thread, so that a busy machine says nearly the same as a quiet one;
//! what waits for a disk is not seen.

use base::{Digest, Tenant};
use std::convert::Infallible;
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::time::Duration;
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
        let start = cpu_time();
        pieces = cut()?.recipe.map_or(1, |cut| cut.recipe.pieces.len());
        times.push(cpu_time() - start);
    }
    report("cut and hash", size, times.split_off(1));
    println!("{:<24} {:>8} of {} bytes on average", "pieces", pieces, size / pieces.max(1) as u64);

    let options = Options { bytes_max: size * 2 + (1 << 30), ..Options::default() };
    let store = BlockStore::open(&folder.path().join("store"), options)?;
    let mut digests: Vec<Digest> = Vec::new();
    let start = cpu_time();
    cutter.cut(&file, size, &mut |digest, bytes| {
        digests.push(digest);
        store.put_named(Tenant(0), digest, bytes)
    })?;
    report("cut, hash, hash, put", size, vec![cpu_time() - start]);
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = cpu_time();
        for digest in &digests {
            store.get(Tenant(0), digest)?;
        }
        times.push(cpu_time() - start);
    }
    report("get", size, times);
    small_blocks(&folder.path().join("small"))
}

/// Times a hundred thousand blocks of 4 KiB, and opening the store that holds them.
fn small_blocks(dir: &std::path::Path) -> Result<(), Box<dyn Error>> {
    const COUNT: u64 = 100_000;
    let per_block = |start: Duration| (cpu_time() - start).as_secs_f64() * 1e6 / COUNT as f64;
    let store = BlockStore::open(dir, Options::default())?;
    let mut block = vec![0; 4096];
    let mut digests = Vec::with_capacity(COUNT as usize);
    let start = cpu_time();
    for number in 0..COUNT {
        block[..8].copy_from_slice(&number.to_le_bytes());
        digests.push(store.put(Tenant(0), &block)?);
    }
    println!("{:<24} {:>8.2} us", "put of 4 KiB", per_block(start));
    let start = cpu_time();
    for digest in &digests {
        store.read_at(Tenant(0), digest, 0, &mut block)?;
    }
    println!("{:<24} {:>8.2} us", "read_at of 4 KiB", per_block(start));
    drop(store);
    let start = cpu_time();
    let store = BlockStore::open(dir, Options::default())?;
    println!("{:<24} {:>8.2} us a block, {} blocks", "open", per_block(start), store.stats().blocks);
    Ok(())
}

/// CPU time of this thread so far.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
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

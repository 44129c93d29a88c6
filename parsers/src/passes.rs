//! The short way: each target over its corpus, then over inputs that are drawn and mutated from a seed, without a fuzzer.

use crate::dice::Dice;
use crate::{DRAWN, RAW, TARGETS, Target, run};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Stack of the thread that checks. A parser that recurses on its input ends here, and a test with it.
const STACK_BYTES: usize = 512 << 10;
/// Longest drawn input, in bytes.
const DRAWN_BYTES_MAX: usize = 600;
/// Inputs that the corpus is given of each target, at most: what [`seeds`] writes.
const SEEDS: u64 = 8;

/// Where the corpus is, in the source tree from which this was built.
pub fn corpus_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus")
}

/// The inputs of one target in the corpus, in the order of their names.
pub fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(corpus_folder().join(target.name)).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.sort();
    files.iter().filter_map(|file| std::fs::read(file).ok()).collect()
}

/// Inputs to begin with: bytes that are taken, and bytes from which values are drawn.
pub fn seeds(target: &Target) -> Vec<Vec<u8>> {
    let of = |seed: u64| {
        let drawn = Dice(seed).bytes(80);
        match seed % 2 {
            0 => [&[DRAWN][..], &drawn].concat(),
            _ => [vec![RAW], (target.draw)(&mut crate::Draw::new(&drawn))].concat(),
        }
    };
    (1..=SEEDS).map(of).filter(|input| input.len() < 4096).collect()
}

/// Why a target failed, with the input that shows it.
#[derive(Debug)]
pub struct Found {
    /// Which target.
    pub target: &'static str,
    /// The input.
    pub input: Vec<u8>,
}

/// Runs one target over its corpus, then for `time` over inputs made from `seed`. How many inputs that were.
///
/// # Errors
/// The first input that the target fails on.
pub fn pass(target: &'static Target, seed: u64, time: Duration) -> Result<usize, Found> {
    let corpus = corpus(target);
    let (tried, tries) = mpsc::channel::<Vec<u8>>();
    let work = move || {
        let mut count = 0;
        let mut one = |input: Vec<u8>| {
            // What came last is what it failed on.
            let _ = tried.send(input.clone());
            run(target, &input);
            count += 1;
        };
        corpus.iter().cloned().for_each(&mut one);
        let (started, mut dice) = (Instant::now(), Dice(seed));
        while started.elapsed() < time {
            let len = dice.below(DRAWN_BYTES_MAX);
            let fresh = [&[DRAWN][..], &dice.bytes(len)].concat();
            one(if dice.below(2) == 0 { dice.mutated(&corpus) } else { fresh });
        }
        count
    };
    let thread = thread::Builder::new().name(target.name.into()).stack_size(STACK_BYTES).spawn(work);
    let thread = thread.expect("a thread can be started");
    let mut last = Vec::new();
    while let Ok(input) = tries.recv() {
        last = input;
    }
    thread.join().map_err(|_| Found { target: target.name, input: last })
}

/// Runs all targets, some at a time; `each` is told how many inputs were tried of each, or what was found.
pub fn all(seed: u64, time: Duration, mut each: impl FnMut(&'static Target, Result<usize, Found>)) {
    let beside = thread::available_parallelism().map_or(1, usize::from);
    for some in TARGETS.chunks(beside) {
        let threads: Vec<_> = some.iter().map(|target| thread::spawn(move || pass(target, seed, time))).collect();
        for (target, thread) in some.iter().zip(threads) {
            each(target, thread.join().expect("a pass returns what it finds"));
        }
    }
}

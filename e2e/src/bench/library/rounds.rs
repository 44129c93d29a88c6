//! One search of the whole library: two threads, each of which has its worker do chunk after chunk.

use super::genes::{self, Hit};
use super::median;
use super::scan::{self, SCAN_SUBCOMMAND};
use super::sense::Senses;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::process::Run;
use sched::chunks::{Division, Machine, Work};
use sched::forecast::Forecast;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A chunk that takes longer is given up, and with it the search.
const CHUNK: Duration = Duration::from_secs(180);
/// Whoever has nothing to do asks again after this, if nobody has ended before.
const AGAIN: Duration = Duration::from_millis(500);
/// Empty chunks that tell what a launch costs.
const LAUNCHES: usize = 5;

/// How the library is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// In so many chunks of one size.
    Fixed(u64),
    /// In chunks that are half of what is left, for both.
    Factoring,
    /// By forecasts and their intervals.
    Forecast,
}

/// What is searched, and through whom.
#[derive(Clone, Debug)]
pub struct Search {
    pub client: Client,
    pub place: PathBuf,
    pub program: PathBuf,
    pub library: PathBuf,
    pub queries: PathBuf,
    /// Of the library.
    pub bytes: u64,
    /// What a byte takes a whole processor, in seconds.
    pub byte_s: f64,
    /// What a chunk takes besides, in seconds.
    pub overhead_s: f64,
}

/// What came of one search.
#[derive(Clone, Debug)]
pub struct Done {
    /// Until all was done, in seconds.
    pub s: f64,
    /// How long the first worker waited for the other one, in seconds.
    pub waited_s: f64,
    pub chunks: u64,
    /// When all was foretold to be done at the soonest and at the latest, if it was by forecast.
    pub foretold: Option<[f64; 2]>,
    pub hits: Vec<Hit>,
}

impl Search {
    /// Has a worker scan a range of the library.
    pub fn chunk(&self, worker: usize, range: Range<u64>) -> Result<Vec<Hit>> {
        let (tag, from, to) = (format!("worker{worker}"), range.start.to_string(), range.end.to_string());
        let paths = [&self.program, &self.library, &self.queries].map(|path| path.to_string_lossy().into_owned());
        let [program, library, queries] = &paths;
        let mut command =
            self.client.remrun(&["--no-local", "--tag", &tag, program, SCAN_SUBCOMMAND, library, queries, &from, &to]);
        command.current_dir(&self.place);
        let outcome = Run::new(command).within(CHUNK).run()?.expect_ok("a chunk")?;
        scan::hits(&outcome.text())
    }

    /// What a chunk costs besides its bytes: a launch that scans nothing.
    pub fn learn(&mut self) -> Result<()> {
        let mut took = Vec::new();
        for launch in 0..2 * LAUNCHES {
            let began = Instant::now();
            self.chunk(launch % 2, 0..0)?;
            took.push(began.elapsed().as_secs_f64());
        }
        // The first ones learn the way.
        self.overhead_s = median(took.split_off(2)).unwrap_or_default();
        Ok(())
    }

    /// Searches all of it.
    pub fn run(&self, way: Way, senses: &Senses) -> Result<Done> {
        let began = Instant::now();
        let mut giver = match way {
            Way::Fixed(chunks) => Giver::Fixed { next: 0, bytes: self.bytes, size: self.bytes.div_ceil(chunks) },
            Way::Factoring => Giver::Factoring { next: 0, bytes: self.bytes, size: 0, of_batch: 0 },
            Way::Forecast => Giver::Forecast(self.division(senses)?),
        };
        let foretold = match &mut giver {
            Giver::Forecast(division) => Some(division.finish(0.0)).map(|all| [all.soonest_s, all.latest_s]),
            _ => None,
        };
        let shared = (Mutex::new(giver), Condvar::new());
        let one = |worker: usize| self.work(worker, &shared, began, senses);
        let both: [Result<Worked>; 2] = std::thread::scope(|scope| {
            let running = [scope.spawn(|| one(0)), scope.spawn(|| one(1))];
            running.map(|thread| thread.join().unwrap_or_else(|why| std::panic::resume_unwind(why)))
        });
        let [first, second] = both;
        let (first, second) = (first?, second?);
        let hits = genes::best([first.hits, second.hits].concat());
        let s = first.ended_s.max(second.ended_s);
        let waited_s = s - first.ended_s.min(second.ended_s);
        Ok(Done { s, waited_s, chunks: first.chunks + second.chunks, foretold, hits })
    }

    /// What one worker does, to the end.
    fn work(&self, worker: usize, shared: &(Mutex<Giver>, Condvar), began: Instant, senses: &Senses) -> Result<Worked> {
        let (mutex, changed) = shared;
        let mut worked = Worked::default();
        let mut giver = mutex.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match giver.next(worker, began.elapsed().as_secs_f64(), senses) {
                Some(range) => {
                    drop(giver);
                    let found = self.chunk(worker, range);
                    worked.ended_s = began.elapsed().as_secs_f64();
                    giver = mutex.lock().unwrap_or_else(PoisonError::into_inner);
                    changed.notify_all();
                    let found = found.inspect_err(|_| giver.give_up())?;
                    worked.hits.extend(found);
                    worked.chunks += 1;
                }
                None if giver.left() == 0 => return Ok(worked),
                None => giver = changed.wait_timeout(giver, AGAIN).unwrap_or_else(PoisonError::into_inner).0,
            }
        }
    }

    fn division(&self, senses: &Senses) -> Result<Division> {
        let foretold = senses.foretold(self.bytes as f64 * self.byte_s);
        let unknown = || Error::Missing("nothing is foretold yet".to_owned());
        let machines = foretold.into_iter().map(|share| {
            let overhead_s = self.overhead_s;
            let share = share.ok_or_else(unknown)?;
            Ok(Machine { processors: 1, speed: 1.0, share, bytes_per_s: f64::INFINITY, overhead_s })
        });
        let work = Work { records: self.bytes, record_s: self.byte_s, record_bytes: 0.0 };
        Division::new(work, &machines.collect::<Result<Vec<Machine>>>()?)
            .map_err(|error| Error::Missing(error.to_string()))
    }
}

/// What one worker did.
#[derive(Clone, Debug, Default)]
struct Worked {
    ended_s: f64,
    chunks: u64,
    hits: Vec<Hit>,
}

/// Who hands chunks out.
enum Giver {
    Fixed {
        next: u64,
        bytes: u64,
        size: u64,
    },
    Factoring {
        next: u64,
        bytes: u64,
        size: u64,
        of_batch: u64,
    },
    Forecast(Division),
    /// A chunk failed: nothing more.
    Over,
}

impl Giver {
    fn left(&self) -> u64 {
        match self {
            Self::Fixed { next, bytes, .. } | Self::Factoring { next, bytes, .. } => bytes - next,
            Self::Forecast(division) => division.left(),
            Self::Over => 0,
        }
    }

    fn give_up(&mut self) {
        *self = Self::Over;
    }

    fn next(&mut self, worker: usize, now_s: f64, senses: &Senses) -> Option<Range<u64>> {
        match self {
            Self::Fixed { next, bytes, size } => take(next, *bytes, *size),
            Self::Factoring { next, bytes, size, of_batch } => {
                if *of_batch == 0 {
                    (*size, *of_batch) = ((*bytes - *next).div_ceil(4), 2);
                }
                *of_batch -= 1;
                take(next, *bytes, *size)
            }
            Self::Forecast(division) => {
                let horizon_s = division.finish(now_s).expected_s - now_s;
                let newer: Vec<Option<Forecast>> = senses.foretold(horizon_s);
                for (machine, share) in newer.into_iter().enumerate() {
                    share.into_iter().for_each(|share| division.forecast(machine, share));
                }
                division.next(worker, now_s)
            }
            Self::Over => None,
        }
    }
}

fn take(next: &mut u64, bytes: u64, size: u64) -> Option<Range<u64>> {
    let from = *next;
    *next = bytes.min(from + size);
    (*next > from).then_some(from..*next)
}

//! `bench library`: a library of DNA sequences is searched for what resembles some queries, by guests on two machines whose owners use them:
//! chunks of one size, which the machines take one after the other, beside chunks by forecast (after AppLeS: Spring, Wolski, 1998).
//!
//! The machines are two workers of one pool, each of which may use one processor of this machine alone. Owners are [`spinner`]s in control
//! groups of their own. A chunk is a `remrun` of a real [`scan`] of so many bytes of the library; what all chunks found together must be what a
//! scan of the whole found. In each round every way has its turn, in an order by chance; the workers have had the library before.
//!
//! Prints, for each kind of owners and each way (medians over rounds): `_s`, until all was done; `_waited_s`, how long the machine that was
//! first to have nothing more to do waited for the other one; `_chunks`; and `_of_forecast`, the time over that by forecast, round by round.
//!
//! What it does not show: many machines, and records that are not at the workers yet.
//!
//! [`spinner`]: super::forecast

mod genes;
mod rounds;
mod scan;
mod sense;

pub use scan::{SCAN_SUBCOMMAND, scan};

use super::forecast::spinner::{Kind, Running, Spinner};
use super::group::{Group, Weight};
use super::samples::{Figures, Samples, median};
use super::tasks::dice::Dice;
use crate::error::{Context, Error, Result};
use crate::pool::{CLIENT, Options as PoolOptions, Pool};
use crate::process::pause;
use genes::Hit;
use rounds::{Search, Way};
use sense::Senses;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use testbed::Link;

/// What is measured, and how it is shown.
#[derive(Clone, Debug)]
pub struct Options {
    /// Figures as JSON on standard output, instead of a table.
    pub json: bool,
    /// How often each way has its turn.
    pub rounds: usize,
    /// What the search takes one whole processor, about, in seconds.
    pub work_s: f64,
    /// How long owners are watched before the first round, in seconds.
    pub watched_s: u64,
    /// For the library, the owners and the order of ways.
    pub seed: u64,
    /// Only the owners of this name.
    pub only: Option<String>,
    /// The link between the client and the workers: a preset's name.
    pub link: String,
}

impl Options {
    /// All of it takes a quarter of an hour; `quick`: a look at whether all works, in about two minutes.
    pub fn new(quick: bool) -> Self {
        let (rounds, work_s, watched_s) = if quick { (1, 4.0, 15) } else { (5, 12.0, 90) };
        Self { json: false, rounds, work_s, watched_s, seed: 1, only: None, link: "none".to_owned() }
    }
}

/// Two owners: how long each computes and rests, in milliseconds, in the mean; nothing: he is away.
type Owners = [Option<(u64, u64)>; 2];

/// Kinds of owners: one uses 70% in short bursts and the other one is away; the same beside one who uses 30%; and one who uses all for ten seconds,
/// then nothing for ten.
const OWNERS: [(&str, Owners); 3] = [
    ("busy_away", [Some((700, 300)), None]),
    ("busy_light", [Some((700, 300)), Some((300, 700))]),
    ("changing", [Some((10_000, 10_000)), None]),
];

/// Ways to divide: in so many chunks of one size, or by forecast.
const WAYS: [(&str, Way); 6] = [
    ("fixed_2", Way::Fixed(2)),
    ("fixed_8", Way::Fixed(8)),
    ("fixed_32", Way::Fixed(32)),
    ("fixed_128", Way::Fixed(128)),
    ("factoring", Way::Factoring),
    ("forecast", Way::Forecast),
];

/// The names of the kinds of owners.
pub fn parts() -> Vec<&'static str> {
    OWNERS.map(|(name, _)| name).to_vec()
}

const QUERIES: usize = 4;
/// Of the library, whose scan says what a byte takes.
const TRIED_BYTES: usize = 1 << 20;

/// Measures and prints.
pub fn run(options: &Options) -> Result<()> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus < 2 {
        return Err(Error::Missing("two machines of a processor each need two processors".to_owned()));
    }
    let mut figures = Figures::default();
    figures.add("seed", Some(options.seed as f64));
    let mut bench = Bench::start(options)?;
    figures.add("library_mib", Some(bench.search.bytes as f64 / f64::from(1 << 20)));
    figures.add("chunk_overhead_s", Some(bench.search.overhead_s));
    figures.add("work_s", Some(bench.search.byte_s * bench.search.bytes as f64));
    for (name, owners) in OWNERS.iter().filter(|(name, _)| options.only.as_ref().is_none_or(|only| only == name)) {
        eprintln!("bench: {name}");
        if let Err(error) = bench.measure(name, owners, &mut figures) {
            eprintln!("bench: {name}: {error}");
            figures.missing(name, &error.to_string());
        }
    }
    let Bench { pool, .. } = bench;
    super::stop(pool)?;
    figures.print(options.json);
    Ok(())
}

/// What all kinds of owners are measured with.
struct Bench {
    options: Options,
    pool: Pool,
    search: Search,
    dice: Dice,
    /// What there is to find.
    known: Vec<Hit>,
}

impl Bench {
    /// Makes the library, starts the pool, and has each worker do a bit of the work.
    fn start(options: &Options) -> Result<Self> {
        let link = Link::preset(&options.link)?;
        let far = (options.link != "none").then_some(Link::NONE);
        let pool = Pool::start(PoolOptions { pinned: true, link: far, ..PoolOptions::new(2, 1)? })?;
        let place = pool.place("library");
        std::fs::create_dir_all(&place).at("create", &place)?;
        let (library, queries) = (place.join("library.fasta"), place.join("queries"));
        // What a byte takes is tried on the first of it.
        let tried = genes::library(TRIED_BYTES, options.seed);
        let asked = genes::queries(&tried, QUERIES, options.seed + 1);
        let began = Instant::now();
        genes::scan(&tried, &asked);
        let byte_s = began.elapsed().as_secs_f64() / tried.len() as f64;
        let text = genes::library((options.work_s / byte_s) as usize, options.seed);
        std::fs::write(&library, &text).at("write", &library)?;
        std::fs::write(&queries, &asked).at("write", &queries)?;
        let known = genes::scan(&text, &asked);
        let program = std::env::current_exe().context(|| "cannot find the suite's own binary".to_owned())?;
        let mut search = Search {
            client: pool.client.clone(),
            place,
            program,
            library,
            queries,
            bytes: text.len() as u64,
            byte_s,
            overhead_s: 0.0,
        };
        // Each worker reads all of the library once, and the link is learnt.
        for worker in 0..2 {
            search.chunk(worker, 0..search.bytes)?;
        }
        if far.is_some() {
            pool.testbed().set_link(CLIENT, link);
        }
        search.learn()?;
        Ok(Self { options: options.clone(), pool, search, dice: Dice(options.seed), known })
    }

    fn measure(&mut self, name: &str, owners: &Owners, figures: &mut Figures) -> Result<()> {
        let senses = Senses::start(&[0, 1])?;
        let _owners = start(owners, self.options.seed)?;
        pause(Duration::from_secs(self.options.watched_s));
        self.tell_workers(name, &senses, figures);
        let mut samples = Samples::default();
        for _ in 0..self.options.rounds {
            let mut ways = WAYS.to_vec();
            self.dice.shuffle(&mut ways);
            for (way, how) in ways {
                let done = self.search.run(how, &senses)?;
                if done.hits != self.known {
                    return Err(Error::Product(format!("{way}: what was found is not what a scan of the whole finds")));
                }
                eprintln!(
                    "bench:   {way:<10} {:>6.2} s, waited {:>5.2} s, {} chunks",
                    done.s, done.waited_s, done.chunks
                );
                samples.add(way, done.s);
                samples.add(&format!("{way}_waited"), done.waited_s);
                samples.add(&format!("{way}_chunks"), done.chunks as f64);
                if let Some(held) = done.foretold.map(|[soonest_s, latest_s]| (soonest_s..=latest_s).contains(&done.s))
                {
                    samples.add(&format!("{way}_held"), f64::from(held));
                }
            }
        }
        for (way, _) in WAYS {
            figures.add(&format!("{name}_{way}_s"), samples.median(way));
            figures.add(&format!("{name}_{way}_waited_s"), samples.median(&format!("{way}_waited")));
            figures.add(&format!("{name}_{way}_chunks"), samples.median(&format!("{way}_chunks")));
            let ratio = samples.median_of_pairs(way, "forecast", |other, ours| other / ours);
            figures.add(&format!("{name}_{way}_of_forecast"), ratio);
        }
        figures.add(&format!("{name}_forecast_held"), samples.mean("forecast_held"));
        Ok(())
    }

    /// What the workers themselves say that a guest gets, of this machine as a whole, beside what is foretold of each one's processor.
    fn tell_workers(&self, name: &str, senses: &Senses, figures: &mut Figures) {
        for (worker, foretold) in senses.foretold(f64::INFINITY).into_iter().enumerate() {
            let state: PathBuf = self.pool.scratch.path().join(format!("worker{worker}/state"));
            let told = self.pool.client.json(&["forecast", "--json", "--state", &state.to_string_lossy()]);
            let value = told.ok().and_then(|told| told["guest"]["next"][1]["value"].as_f64());
            figures.add(&format!("{name}_share_{worker}"), foretold.map(|foretold| foretold.value));
            figures.add(&format!("{name}_machine_share_by_worker_{worker}"), value);
        }
    }
}

/// Owners at work, until this is dropped.
fn start(owners: &Owners, seed: u64) -> Result<Vec<(Running, Group)>> {
    let mut started = Vec::new();
    for (cpu, owner) in owners.iter().enumerate() {
        let Some((on_ms, off_ms)) = owner else { continue };
        let group = Group::with(None, &format!("owner{cpu}"), Weight::Usual)?;
        let kind = Kind::Bursts(*on_ms, *off_ms);
        let spinner = Spinner {
            kind,
            cpu: Some(cpu),
            cgroup: Some(group.procs()),
            seed: seed + cpu as u64,
            ..Spinner::default()
        };
        started.push((spinner.start()?, group));
    }
    Ok(started)
}

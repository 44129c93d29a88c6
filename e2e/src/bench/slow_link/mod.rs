//! `bench slow-link`: what commands and jobs cost over links with delay and little rate, made by the testbed. UCop's evaluation
//! (USENIX ATC 2010) again, with its three jobs, and real work beside.
//!
//! * [`single`]: one command: `true`, an edited file compiled, a first use; a ping beside an upload.
//! * [`workload`]: the three jobs; [`batch`]: how their tasks are launched; [`jobs`]: what they take.
//! * [`phases`]: where the time of a task went.
//! * [`real`]: a C project rebuilt, an image traced.
//! * [`peers`]: others over the same links.
//! * [`draw`]: the figures of the run, beside UCop's own numbers.
//!
//! Computing is sleeping in real time: a job of 64 workers takes as long as it would, on two CPUs. The rest is not: guests take only
//! what others leave of the CPUs, so that beside a busy neighbour 64 of them wait long for a little. Each run tells how busy the
//! machine was (`others_cpu`).

mod batch;
mod draw;
mod jobs;
mod noise;
mod peers;
mod phases;
mod real;
mod single;
mod workload;

pub use batch::{CALLS_SUBCOMMAND, calls};

use super::samples::Figures;
use crate::error::{Context, Result};
use crate::pool::{Options as PoolOptions, Pool};
use crate::process::pause;
use crate::slow::timed;
use noise::Noise;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use testbed::Link;

/// Presets, and what their figures' names end in.
const LINKS: [(&str, &str); 2] = [("cable", ""), ("coffee", "_coffee")];

/// The share of the CPUs that others may use while we measure.
const QUIET: f64 = 0.1;

/// What is measured, and how it is shown.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Figures as JSON on standard output, instead of a table.
    pub json: bool,
    /// All points of all curves, which takes hours, instead of those that tell most.
    pub full: bool,
    /// Only the part of this name.
    pub only: Option<String>,
    /// Where figures are drawn, if they are.
    pub draw: Option<PathBuf>,
    /// Figures that were measured before, as JSON, are drawn; nothing is measured.
    pub from: Option<PathBuf>,
}

/// A part of the benchmark. The flag says whether all points are wanted.
type Part = (&'static str, fn(bool, &mut Figures) -> Result<()>);

const PARTS: [Part; 12] = [
    ("warm", single::warm),
    ("cold", single::cold),
    ("loss", single::loss),
    ("render", jobs::render),
    ("workers", jobs::workers),
    ("round-trips", jobs::round_trips),
    ("uplinks", jobs::uplinks),
    ("search", jobs::search),
    ("video", jobs::video),
    ("switches", jobs::switches),
    ("real", real::run),
    ("peers", peers::run),
];

/// Measures, prints and draws. A part that fails is missing, with the reason.
pub fn run(options: &Options) -> Result<()> {
    if let Some(file) = &options.from {
        let text = std::fs::read(file).at("read", file)?;
        let json = serde_json::from_slice(&text).map_err(std::io::Error::from).at("understand", file)?;
        return draw::all(&json, options.draw.as_deref().unwrap_or(Path::new("bench/results")));
    }
    let mut figures = Figures::default();
    let mut others = 0.0_f64;
    for (name, part) in PARTS.iter().filter(|(name, _)| options.only.as_ref().is_none_or(|only| only == name)) {
        others = others.max(busy(Duration::from_secs(2)));
        if others > QUIET {
            eprintln!("bench: others use {:.0}% of the CPUs: what is measured now tells little", others * 100.0);
        }
        let started = Instant::now();
        eprintln!("bench: {name}");
        if let Err(error) = part(options.full, &mut figures) {
            eprintln!("bench: {name}: {error}");
            figures.missing(name, &error.to_string());
        }
        eprintln!("bench: {name} took {:.0} s", started.elapsed().as_secs_f64());
        figures.add(&format!("{}_part_s", name.replace('-', "_")), Some(started.elapsed().as_secs_f64()));
    }
    figures.add("others_cpu", Some(others));
    figures.print(options.json);
    options.draw.iter().try_for_each(|folder| draw::all(&figures.to_json(), folder))
}

/// The share of the machine's CPU time that is used within some time in which we do nothing.
fn busy(time: Duration) -> f64 {
    // Fields of the first line of /proc/stat, in ticks: user, nice, system, idle, waiting for disks, …
    let ticks = || -> Vec<f64> {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = text.lines().next().unwrap_or_default();
        line.split_whitespace().skip(1).take(8).filter_map(|field| field.parse().ok()).collect()
    };
    let before = ticks();
    pause(time);
    let passed: Vec<f64> = ticks().iter().zip(&before).map(|(after, before)| after - before).collect();
    let (all, idle) = (passed.iter().sum::<f64>(), passed.iter().skip(3).take(2).sum::<f64>());
    if all > 0.0 { 1.0 - idle / all } else { 0.0 }
}

/// The names of the parts.
pub fn parts() -> Vec<&'static str> {
    PARTS.map(|(name, _)| name).to_vec()
}

/// A far pool, and a folder for commands.
fn start(options: PoolOptions) -> Result<Pool> {
    let pool = Pool::start(options)?;
    std::fs::create_dir_all(pool.place("")).at("create", &pool.place(""))?;
    Ok(pool)
}

/// Gives the client this link, and has the connection learn it.
fn train(pool: &Pool, link: Link) -> Result<()> {
    pool.relink(link)?;
    upload(pool, link, Duration::from_secs(2))?;
    // A fresh connection compares clocks often.
    pause(Duration::from_secs(3));
    Ok(())
}

/// Has a command read what takes about `time` to send, and cannot be packed.
fn upload(pool: &Pool, link: Link, time: Duration) -> Result<()> {
    let bytes = link.up.rate.unwrap_or(100_000_000) as f64 / 8.0 * time.as_secs_f64();
    let place = pool.place("");
    let file = place.join("noise");
    // Other noise each time.
    let seed = std::fs::metadata(&file).and_then(|meta| meta.modified()).ok();
    let seed = seed.and_then(|time| time.elapsed().ok()).map_or(1, |elapsed| elapsed.as_nanos() as u64);
    std::fs::write(&file, Noise::new(seed).bytes(bytes as usize)).at("write", &file)?;
    timed(pool, &place, &["sha256sum", "noise"]).map(drop)
}

/// How long bytes take over a link at its rate, in seconds, both ways one after the other.
fn sending(link: Link, passed: testbed::Traffic) -> f64 {
    let seconds = |bytes: u64, rate: Option<u64>| bytes as f64 * 8.0 / rate.unwrap_or(u64::MAX) as f64;
    seconds(passed.bytes_up, link.up.rate) + seconds(passed.bytes_down, link.down.rate)
}

//! `bench slow-link`: what a command costs over links with delay and little rate, made by the testbed.

use super::samples::{Figures, median};
use super::{Options, stop};
use crate::error::{Context, Error, Result};
use crate::pool::{CLIENT, Options as PoolOptions, Pool, SITE};
use crate::process::{Run, pause};
use crate::slow::{Project, round_trips, timed, traffic_of};
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testbed::Link;

/// Presets, and what their figures' names end in.
const LINKS: [(&str, &str); 2] = [("cable", ""), ("coffee", "_coffee")];
/// Commands of each kind.
const ROUNDS: usize = 15;
/// How long the upload lasts beside which pings are sent.
const UPLOAD: Duration = Duration::from_secs(20);
const PING_PORT: u16 = 7000;

/// Measures and prints.
pub fn run(options: &Options) -> Result<()> {
    let mut figures = Figures::default();
    for (name, ending) in LINKS {
        let link = Link::preset(name)?;
        eprintln!("bench: {name}, warm");
        warm(link, ending, &mut figures)?;
        eprintln!("bench: {name}, cold");
        cold(link, ending, &mut figures)?;
    }
    figures.print(options.json);
    Ok(())
}

fn start(link: Link) -> Result<Pool> {
    let pool = Pool::start(PoolOptions::far(2, link)?)?;
    std::fs::create_dir_all(pool.place("")).at("create", &pool.place(""))?;
    Ok(pool)
}

/// A pool that has run the programs before, over a fast link, and a connection that has learnt the slow one.
fn warm(link: Link, ending: &str, figures: &mut Figures) -> Result<()> {
    let pool = start(Link::NONE)?;
    let place = pool.place("");
    let mut project = Project::new(&pool, place.clone())?;
    for program in ["true", "sha256sum"] {
        timed(&pool, &place, &[program, "/dev/null"])?;
    }
    pool.relink(link)?;
    upload(&pool, &place, link, Duration::from_secs(2))?;
    pause(Duration::from_secs(3));

    let launches = (0..ROUNDS).map(|_| timed(&pool, &place, &["true"])).collect::<Result<Vec<_>>>()?;
    let over = launches.iter().map(|took| (took.as_secs_f64() - link.round_trip().as_secs_f64()) * 1e3);
    figures.add(&format!("true_over_rtt_ms{ending}"), median(over));
    let (_, passed) = traffic_of(&pool, || timed(&pool, &place, &["true"]))?;
    figures.add(&format!("true_bytes{ending}"), Some((passed.bytes_up + passed.bytes_down) as f64));

    let mut overheads = Vec::new();
    for _ in 0..ROUNDS {
        project.edit()?;
        let here = local_compile(&place)?;
        let (took, passed) = traffic_of(&pool, || project.compile(&pool))?;
        let sending = |bytes: u64, rate: Option<u64>| bytes as f64 * 8.0 / rate.unwrap_or(u64::MAX) as f64;
        let moving = sending(passed.bytes_up, link.up.rate) + sending(passed.bytes_down, link.down.rate);
        overheads.push(took.as_secs_f64() - here.as_secs_f64() - link.round_trip().as_secs_f64() - moving);
    }
    figures.add(&format!("edit_compile_overhead_ms{ending}"), median(overheads).map(|seconds| seconds * 1e3));
    figures.add(&format!("ping_delay_ms{ending}"), ping_delay(&pool, &place, link)?);
    let trips = round_trips(&pool, link, || {
        project.edit()?;
        project.compile(&pool)
    })?;
    figures.add(&format!("edit_compile_rtts{ending}"), Some(trips));
    stop(pool)
}

fn local_compile(place: &Path) -> Result<Duration> {
    let mut command = Command::new("gcc");
    command.args(["-O1", "-c", "edited.c", "-o", "local.o"]).current_dir(place);
    let started = Instant::now();
    Run::new(command).within(Duration::from_secs(60)).run()?.expect_ok("gcc")?;
    Ok(started.elapsed())
}

/// Has a command read what takes about `time` to send.
fn upload(pool: &Pool, place: &Path, link: Link, time: Duration) -> Result<()> {
    let bytes = link.up.rate.unwrap_or(100_000_000) as f64 / 8.0 * time.as_secs_f64();
    // Nothing that could be packed.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ bytes as u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let noise: Vec<u8> = (0..(bytes / 8.0) as usize).flat_map(|_| next().to_le_bytes()).collect();
    let file = place.join("noise");
    std::fs::write(&file, noise).at("write", &file)?;
    timed(pool, place, &["sha256sum", "noise"]).map(drop)
}

/// How many milliseconds longer a ping takes beside an upload; the medians' difference.
fn ping_delay(pool: &Pool, place: &Path, link: Link) -> Result<Option<f64>> {
    let far = pool.testbed().host(SITE).address();
    let stop = Arc::new(AtomicBool::new(false));
    let ended = stop.clone();
    let echo = pool.testbed().host(SITE).spawn(move || -> std::io::Result<()> {
        let socket = UdpSocket::bind((far, PING_PORT))?;
        socket.set_read_timeout(Some(Duration::from_millis(300)))?;
        let mut buffer = [0; 64];
        while !ended.load(Ordering::Relaxed) {
            if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                socket.send_to(&buffer[..length], from)?;
            }
        }
        Ok(())
    });
    let echo = echo?;
    pause(Duration::from_millis(200));
    let quiet = pings(pool, Duration::from_secs(4))?;
    let beside = std::thread::scope(|scope| {
        let uploading = scope.spawn(|| upload(pool, place, link, UPLOAD));
        // It has begun, and goes on for longer than the pings.
        pause(Duration::from_secs(5));
        let beside = pings(pool, UPLOAD - Duration::from_secs(10));
        uploading.join().map_err(|_| Error::Product("the upload panicked".into()))??;
        beside
    })?;
    stop.store(true, Ordering::Relaxed);
    echo.join().map_err(|_| Error::Product("the echo panicked".into()))?.context(|| "the echo failed".to_owned())?;
    Ok(beside.zip(quiet).map(|(beside, quiet)| beside - quiet))
}

/// The median of pings in milliseconds, ten a second for some time.
fn pings(pool: &Pool, time: Duration) -> Result<Option<f64>> {
    let far = pool.testbed().host(SITE).address();
    let pings = pool.testbed().host(CLIENT).spawn(move || -> std::io::Result<Vec<Duration>> {
        let socket = UdpSocket::bind(("0.0.0.0", 0))?;
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        let (started, mut times, mut buffer) = (Instant::now(), Vec::new(), [0; 64]);
        while started.elapsed() < time {
            let sent = Instant::now();
            socket.send_to(b"ping", (far, PING_PORT))?;
            if socket.recv_from(&mut buffer).is_ok() {
                times.push(sent.elapsed());
            }
            pause(Duration::from_millis(100));
        }
        Ok(times)
    });
    let pings = pings?;
    let times = pings.join().map_err(|_| Error::Product("pinging panicked".into()))?;
    let times = times.context(|| "pinging failed".to_owned())?;
    Ok(median(times.iter().map(|time| time.as_secs_f64() * 1e3)))
}

/// A compiler's first use, by a client and a pool that know nothing.
fn cold(link: Link, ending: &str, figures: &mut Figures) -> Result<()> {
    let pool = start(link)?;
    let place = pool.place("");
    let mut project = Project::fresh(place.clone());
    project.edit()?;
    let here = local_compile(&place)?;
    let (took, passed) = traffic_of(&pool, || project.compile(&pool))?;
    let sending = passed.bytes_up as f64 * 8.0 / link.up.rate.unwrap_or(u64::MAX) as f64;
    figures.add(&format!("cold_gcc_s{ending}"), Some(took.as_secs_f64()));
    figures.add(&format!("cold_gcc_mb{ending}"), Some(passed.bytes_up as f64 / 1e6));
    figures.add(&format!("cold_gcc_over_s{ending}"), Some(took.as_secs_f64() - here.as_secs_f64() - sending));
    figures.add(&format!("cold_gcc_rtts{ending}"), last_round_trips(&pool)?);
    stop(pool)
}

/// What `gleaner explain` says of the last command.
fn last_round_trips(pool: &Pool) -> Result<Option<f64>> {
    let tasks = pool.client.json(&["tasks", "--json"])?;
    let list = tasks.as_array().or_else(|| tasks.get("tasks")?.as_array());
    let Some(task) = list.and_then(|list| list.first()?.get("task")?.as_str()) else { return Ok(None) };
    Ok(pool.client.json(&["explain", "--json", task])?.get("round_trips").and_then(serde_json::Value::as_f64))
}

//! One command over a slow link: `true`, an edited file compiled, a compiler's first use; and a ping beside an upload.

use super::{LINKS, sending, start, train, upload};
use crate::bench::samples::{Figures, median};
use crate::bench::stop;
use crate::error::{Context, Error, Result};
use crate::pool::{CLIENT, Options as PoolOptions, Pool, SITE};
use crate::process::{Run, pause};
use crate::slow::{ENDED, Project, STARTED, explained, moment, round_trips, timed, traffic_of};
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testbed::{Link, Traffic};

/// Commands of each kind.
const ROUNDS: usize = 25;
/// Edits by which the round trips of one are told.
const EDITS: usize = 100;
/// How long the upload lasts beside which pings are sent.
const UPLOAD: Duration = Duration::from_secs(30);
const PING_PORT: u16 = 7000;

/// Commands that the pool has run before, over a connection that has learnt the link.
pub fn warm(full: bool, figures: &mut Figures) -> Result<()> {
    LINKS.iter().try_for_each(|(name, ending)| warm_on(Link::preset(name)?, ending, full, figures))
}

/// A compiler's first use, by a client and a pool that know nothing.
pub fn cold(_: bool, figures: &mut Figures) -> Result<()> {
    for (name, ending) in LINKS {
        let link = Link::preset(name)?;
        cold_on(PoolOptions::far(2, link)?, link, ending, figures)?;
        // A hub apart from its worker has this machine's files; only the worker's root is empty.
        let alike = PoolOptions { link: Some(link), ..PoolOptions::new(1, 2)? };
        cold_on(alike, link, &format!("_shared{ending}"), figures)?;
    }
    Ok(())
}

/// Edits where a packet in a hundred is lost.
pub fn loss(_: bool, figures: &mut Figures) -> Result<()> {
    for (name, ending) in LINKS {
        let link = Link::preset(name)?.with_loss(0.01);
        let (pool, mut project) = used(link)?;
        figures.add(&format!("edit_compile_rtts_loss1{ending}"), Some(edit_round_trips(&pool, link, &mut project)?));
        stop(pool)?;
    }
    Ok(())
}

/// A pool that has run the programs before, over a fast link, and a connection that has learnt the slow one.
fn used(link: Link) -> Result<(Pool, Project)> {
    let pool = start(PoolOptions::far(2, Link::NONE)?)?;
    let place = pool.place("");
    let project = Project::new(&pool, place.clone())?;
    for program in ["true", "sha256sum"] {
        timed(&pool, &place, &[program, "/dev/null"])?;
    }
    train(&pool, link)?;
    Ok((pool, project))
}

fn warm_on(link: Link, ending: &str, full: bool, figures: &mut Figures) -> Result<()> {
    let (pool, mut project) = used(link)?;
    let place = pool.place("");
    let launches = (0..ROUNDS).map(|_| timed(&pool, &place, &["true"])).collect::<Result<Vec<_>>>()?;
    let over = launches.iter().map(|took| (took.as_secs_f64() - link.round_trip().as_secs_f64()) * 1e3);
    figures.add(&format!("true_over_rtt_ms{ending}"), median(over));
    let (_, passed) = traffic_of(&pool, || timed(&pool, &place, &["true"]))?;
    figures.add(&format!("true_bytes{ending}"), Some((passed.bytes_up + passed.bytes_down) as f64));

    let (mut overheads, mut outside) = (Vec::new(), Vec::new());
    for _ in 0..if full { 100 } else { ROUNDS } {
        project.edit()?;
        let here = local_compile(&place)?;
        let (took, passed) = traffic_of(&pool, || project.compile(&pool))?;
        let explained = explained(&pool)?;
        let compiling =
            moment(&explained, ENDED).zip(moment(&explained, STARTED)).map(|(ended, started)| ended - started);
        let beyond = took.as_secs_f64() - link.round_trip().as_secs_f64() - sending(link, passed);
        overheads.push((beyond - here.as_secs_f64()) * 1e3);
        outside.extend(compiling.map(|compiling| (beyond - compiling) * 1e3));
    }
    figures.add(&format!("edit_compile_overhead_ms{ending}"), median(overheads));
    // The same with the time that the compiler took there: how long it takes here and there differs from one run to the next.
    figures.add(&format!("edit_compile_outside_ms{ending}"), median(outside));
    figures.add(&format!("ping_delay_ms{ending}"), ping_delay(&pool, link)?);
    figures.add(&format!("edit_compile_rtts{ending}"), Some(edit_round_trips(&pool, link, &mut project)?));
    stop(pool)
}

fn edit_round_trips(pool: &Pool, link: Link, project: &mut Project) -> Result<f64> {
    round_trips(pool, link, EDITS, || {
        project.edit()?;
        project.compile(pool)
    })
}

fn local_compile(place: &Path) -> Result<Duration> {
    let mut command = Command::new("gcc");
    command.args(["-O1", "-c", "edited.c", "-o", "local.o"]).current_dir(place);
    let started = Instant::now();
    Run::new(command).within(Duration::from_secs(60)).run()?.expect_ok("gcc")?;
    Ok(started.elapsed())
}

/// How many milliseconds longer a ping takes beside an upload; the medians' difference.
fn ping_delay(pool: &Pool, link: Link) -> Result<Option<f64>> {
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
        let uploading = scope.spawn(|| upload(pool, link, UPLOAD));
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

fn cold_on(options: PoolOptions, link: Link, ending: &str, figures: &mut Figures) -> Result<()> {
    let pool = start(options)?;
    let place = pool.place("");
    let mut project = Project::fresh(place.clone());
    project.edit()?;
    let here = local_compile(&place)?;
    let (took, passed) = traffic_of(&pool, || project.compile(&pool))?;
    // What comes back could come while more is sent.
    let up = Traffic { bytes_down: 0, ..passed };
    figures.add(&format!("cold_gcc_s{ending}"), Some(took.as_secs_f64()));
    figures.add(&format!("cold_gcc_mb{ending}"), Some(passed.bytes_up as f64 / 1e6));
    figures.add(&format!("cold_gcc_over_s{ending}"), Some(took.as_secs_f64() - here.as_secs_f64() - sending(link, up)));
    figures.add(&format!("cold_gcc_rtts{ending}"), last_round_trips(&pool)?);
    stop(pool)
}

/// What `gleaner explain` says of the last command.
fn last_round_trips(pool: &Pool) -> Result<Option<f64>> {
    Ok(explained(pool)?["round_trips"].as_f64())
}

//! `bench launch`: the figures of SPECIFICATION.md, "Speed".

use super::peers::Peers;
use super::samples::{Figures, Samples};
use super::{Options, stop};
use crate::error::{Context, Error, Result};
use crate::pool::Pool;
use crate::source;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long launches per second are counted.
const RATE_TIME: Duration = Duration::from_secs(5);
/// Clients that launch at the same time while they are counted.
const RATE_CLIENTS: usize = 8;
/// Fresh pools for the first use of a program.
const COLD_ROUNDS: usize = 5;
/// Warm uses after each, where nothing else is measured.
const WARM_USES: usize = 5;
/// Builds on each side; and with the peers, which take long.
const BUILD_ROUNDS: usize = 4;
const PEER_BUILD_ROUNDS: usize = 2;

/// Measures and prints.
pub fn run(options: &Options) -> Result<()> {
    let say = |text: &str| eprintln!("bench: {text}");
    let mut figures = Figures::default();
    let mut samples = Samples::default();
    if options.cold_only {
        say("first uses, each on a pool of its own");
        for _ in 0..options.rounds {
            cold_round(options, &mut samples, WARM_USES)?;
        }
        ["true", "gcc"].iter().for_each(|name| figures.add(&format!("{name}_ms_p50"), samples.median(name)));
        cold_figures(&samples, &mut figures);
        figures.print(options.json);
        return Ok(());
    }
    say("a pool of one worker");
    let cpus = std::thread::available_parallelism().map_or(2, usize::from);
    let pool = Pool::start(options.pool(cpus)?)?;
    let place = pool.place("bench");
    std::fs::create_dir_all(&place).at("create", &place)?;
    std::fs::write(place.join("medium.c"), medium_source()).at("write", &place)?;
    say("launches, in interleaved rounds");
    let mut peers = if options.peers { Peers::start(&pool, &place, &say)? } else { Peers::default() };
    rounds(&pool, &place, options.rounds, &mut peers, &mut samples, &say)?;
    launch_figures(&samples, &mut figures);
    peers.figures(&samples, &mut figures);
    say("launches per second, and what they cost the client");
    rate(&pool, &place, &mut figures)?;
    figures.add("worker_rss_mb", resident_mb(pool.first_worker().pid().as_raw_nonzero().get()));
    if options.build {
        say("coreutils, locally and remotely");
        let mut times = Samples::default();
        if let Err(error) = build(&pool, &mut peers, &mut times, &say) {
            say(&format!("{error}\n{}", pool.logs(10)));
            figures.missing("build_rounds", &error.to_string());
        }
        build_figures(&times, &peers, &mut figures);
    } else {
        figures.missing("build_ratio", "left out by --no-build");
    }
    drop(peers);
    stop(pool)?;
    say("first uses, each on a pool of its own");
    for _ in 0..COLD_ROUNDS {
        cold_round(options, &mut samples, 0)?;
    }
    cold_figures(&samples, &mut figures);
    figures.print(options.json);
    Ok(())
}

/// A C file of a usual length: some six hundred lines after its headers.
fn medium_source() -> String {
    let mut text = String::from("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n");
    for function in 0..60 {
        text.push_str(&format!(
            "static int work{function}(int x, const char *s) {{\n    int sum = {function};\n    for (int i = 0; i < x; i++) {{\n        \
             sum += (int)strlen(s) * i;\n        if (sum > 100000) sum -= x;\n    }}\n    return sum;\n}}\n\n"
        ));
    }
    text.push_str("int main(int argc, char **argv) {\n    int sum = 0;\n");
    (0..60).for_each(|function| text.push_str(&format!("    sum += work{function}(argc, argv[0]);\n")));
    text.push_str("    printf(\"%d\\n\", sum);\n    return 0;\n}\n");
    text
}

/// How long a command takes, in milliseconds.
pub fn time_ms(mut command: Command) -> Result<f64> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let started = Instant::now();
    let status = command.status().context(|| "cannot run a command of the benchmark".to_owned())?;
    let took = started.elapsed().as_secs_f64() * 1000.0;
    match status.success() {
        true => Ok(took),
        false => Err(Error::Product(format!("{:?} failed: {status}", command.get_program()))),
    }
}

fn local(pool: &Pool, place: &Path, program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(place);
    pool.client.dress(&mut command);
    command
}

fn remote(pool: &Pool, place: &Path, arguments: &[&str]) -> Command {
    let mut command = pool.client.remrun(&[&["--no-local"], arguments].concat());
    command.current_dir(place);
    command
}

/// What `gcc` is told.
pub const COMPILE: [&str; 6] = ["-O2", "-c", "medium.c", "-o", "medium.o", "-pipe"];

fn rounds(
    pool: &Pool,
    place: &Path,
    count: usize,
    peers: &mut Peers,
    samples: &mut Samples,
    say: &dyn Fn(&str),
) -> Result<()> {
    let compile: Vec<&str> = [&["gcc"], &COMPILE[..]].concat();
    for round in 0..count + 3 {
        let spawn = time_ms(local(pool, place, "/bin/true", &[]))?;
        let launched = time_ms(remote(pool, place, &["/bin/true"]))?;
        let (gcc, remote_gcc) = if round % 5 < 2 || count < 20 {
            (Some(time_ms(local(pool, place, "gcc", &COMPILE))?), Some(time_ms(remote(pool, place, &compile))?))
        } else {
            (None, None)
        };
        // The first rounds warm everything up.
        if round < 3 {
            continue;
        }
        samples.add("spawn", spawn);
        samples.add("true", launched);
        gcc.into_iter().for_each(|value| samples.add("gcc_local", value));
        remote_gcc.into_iter().for_each(|value| samples.add("gcc", value));
        if round % 5 == 0 || count < 20 {
            peers.round(samples, say);
        }
    }
    Ok(())
}

fn launch_figures(samples: &Samples, figures: &mut Figures) {
    figures.add("true_ms_p50", samples.median("true"));
    figures.add("true_ms_p99", samples.quantile("true", 0.99));
    figures.add("spawn_ms_p50", samples.median("spawn"));
    figures.add("gcc_local_ms_p50", samples.median("gcc_local"));
    figures.add("gcc_ms_p50", samples.median("gcc"));
    figures.add("gcc_overhead_ms_p50", samples.median_of_pairs("gcc", "gcc_local", |remote, local| remote - local));
}

/// CPU time, in milliseconds, that a process has used; its ended children not counted.
fn cpu_ms(pid: i32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or("");
    let field =
        |index: usize| after.split_whitespace().nth(index).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    (field(11) + field(12)) * 1000.0 / rustix::param::clock_ticks_per_second() as f64
}

/// Resident memory of a process, in MB of 2^20 bytes.
pub fn resident_mb(pid: i32) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<f64>().ok().map(|kib| kib / 1024.0)
}

fn rate(pool: &Pool, place: &Path, figures: &mut Figures) -> Result<()> {
    let daemons = pool.client_daemons();
    let before: f64 = daemons.iter().map(|pid| cpu_ms(*pid)).sum();
    let (stop, count, failed) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..RATE_CLIENTS {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let good = time_ms(remote(pool, place, &["/bin/true"])).is_ok();
                    if good { &count } else { &failed }.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        crate::process::pause(RATE_TIME);
        stop.store(true, Ordering::Relaxed);
    });
    let launches = count.load(Ordering::Relaxed) as f64;
    if failed.load(Ordering::Relaxed) > 0 || launches < 1.0 {
        let failed = failed.load(Ordering::Relaxed);
        return Err(Error::Product(format!("{failed} of {launches} launches failed under load\n{}", pool.logs(10))));
    }
    figures.add("launches_per_s", Some(launches / started.elapsed().as_secs_f64()));
    let after: f64 = daemons.iter().map(|pid| cpu_ms(*pid)).sum();
    figures.add("client_cpu_ms", Some((after - before) / launches));
    Ok(())
}

/// Seconds of `make -j8` of coreutils, configured once: locally, with the peers, and through `remrun`.
fn build(pool: &Pool, peers: &mut Peers, times: &mut Samples, say: &dyn Fn(&str)) -> Result<()> {
    let input = pool.scratch.path().join("coreutils");
    std::fs::create_dir_all(&input).at("create", &input)?;
    let source: PathBuf = source::fetch("coreutils", &input)?;
    let script = |text: &str, prefix: &str| pool.client.script(&source, text, prefix, Duration::from_secs(1500));
    let clean = || script("make -s clean > log 2>&1", "")?.expect_ok("make clean").map(drop);
    say("configure");
    script("FORCE_UNSAFE_CONFIGURE=1 ./configure --quiet --disable-nls > log 2>&1", "")?.expect_ok("configure")?;
    let make = |side: &str, prefix: &str| -> Result<f64> {
        clean()?;
        say(&format!("make -j8, {side}"));
        let outcome = script("make -j8 CC=\"$R gcc\" > log 2>&1 || { tail -n 20 log; exit 1; }", prefix)?;
        Ok(outcome.expect_ok("make")?.elapsed.as_secs_f64())
    };
    let prefix = format!("{} --no-local", pool.client.remrun.display());
    for round in 0..BUILD_ROUNDS {
        // Whatever makes the machine slower from one build to the next strikes both sides.
        let sides = [("local", ""), ("remote", prefix.as_str())];
        for at in [round % 2, (round + 1) % 2] {
            let (side, prefix) = sides[at];
            let seconds = make(side, prefix)?;
            say(&format!("it took {seconds:.1} s"));
            times.add(side, seconds);
        }
        if round < PEER_BUILD_ROUNDS {
            peers.build(&source, &clean, times, say)?;
        }
    }
    Ok(())
}

fn build_figures(times: &Samples, peers: &Peers, figures: &mut Figures) {
    figures.add("build_local_s", times.median("local"));
    figures.add("build_remote_s", times.median("remote"));
    figures.add("build_ratio", times.median_of_pairs("remote", "local", |remote, local| remote / local));
    peers.build_figures(times, figures);
}

/// The first use of a program, on pools of its own; and so many warm uses after it.
fn cold_round(options: &Options, samples: &mut Samples, warm: usize) -> Result<()> {
    for (name, arguments) in [("true", vec!["/bin/true"]), ("gcc", [&["gcc"], &COMPILE[..]].concat())] {
        for (state, before) in [("cold", &["/bin/date"][..]), ("fresh", &[])] {
            let uses = first_uses(options, before, &arguments, 1 + warm)?;
            samples.add(&format!("{state}_{name}"), uses[0]);
            uses[1..].iter().for_each(|warm| samples.add(name, *warm));
        }
    }
    Ok(())
}

/// The first use of a program, against the median of warm use: in a pool that has run another program (`cold_…`), and in one
/// that has run none (`fresh_…`), where all that programs have in common is new, too.
fn cold_figures(samples: &Samples, figures: &mut Figures) {
    for name in ["true", "gcc"] {
        for state in ["cold", "fresh"] {
            let first = samples.median(&format!("{state}_{name}"));
            figures.add(&format!("{state}_{name}_ms_p50"), first);
            let warm = samples.median(name);
            figures.add(&format!("{state}_{name}_ratio"), first.zip(warm).map(|(first, warm)| first / warm));
        }
    }
}

/// Milliseconds of the first so many uses of a program in a pool of its own, which has run `before`.
fn first_uses(options: &Options, before: &[&str], arguments: &[&str], count: usize) -> Result<Vec<f64>> {
    let pool = Pool::start(options.pool(2)?)?;
    let place = pool.place("cold");
    std::fs::create_dir_all(&place).at("create", &place)?;
    std::fs::write(place.join("medium.c"), medium_source()).at("write", &place)?;
    // What is measured is a program's first use, not the start of the client's daemon.
    let status = pool.client.json(&["status", "--json"])?;
    if status.get("connected").and_then(serde_json::Value::as_bool) == Some(false) {
        return Err(Error::Product("the client is not connected to the fresh pool".into()));
    }
    for program in before {
        time_ms(remote(&pool, &place, &[program]))?;
    }
    let took = (0..count).map(|_| time_ms(remote(&pool, &place, arguments))).collect();
    stop(pool)?;
    took
}

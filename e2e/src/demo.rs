//! The main job on real input, shown: a pool of workers with empty roots builds GNU hello through `remrun`, and every file that
//! comes of it is compared with a local build.

use crate::error::{Context, Result};
use crate::pool::{Options, Pool};
use crate::process::Run;
use crate::source;
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

/// What is built, in turn locally and remotely, at the same path.
const CONFIGURE: &str = "cd tree && FORCE_UNSAFE_CONFIGURE=1 ./configure --quiet CC=\"$R gcc\" > ../log 2>&1";
const MAKE: &str = "cd tree && make -j4 CC=\"$R gcc\" >> ../log 2>&1";

/// Runs it; true if all agreed and nothing was left. `keep` leaves the temporary folder.
pub fn run(keep: bool) -> Result<bool> {
    let say = |text: &str| {
        if std::io::stderr().is_terminal() {
            eprintln!("{text}");
        }
    };
    say("starting a hub and two workers with empty roots …");
    let pool = Pool::start(Options { guests: false, ..Options::new(2, 2)? })?;
    let input = pool.scratch.path().join("input");
    std::fs::create_dir_all(&input).at("create", &input)?;
    say("fetching the source of GNU hello …");
    let source = match source::fetch("hello", &input) {
        Ok(source) => source,
        Err(error) => {
            println!("GNU hello could not be fetched ({error}); a generated project takes its place");
            source::generate(&input, 24)?
        }
    };
    let name = source.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
    show_root(&pool)?;
    let good = build(&pool, &source, &name, &say)?;
    where_it_ran(&pool)?;
    say("stopping …");
    let place = pool.scratch.path().to_path_buf();
    let wrong = pool.stop(keep)?;
    for line in &wrong {
        println!("left behind: {line}");
    }
    if wrong.is_empty() {
        println!(
            "no process, mount or file is left{}",
            if keep { format!(", but {}", place.display()) } else { String::new() }
        );
    }
    Ok(good && wrong.is_empty())
}

/// Shows that a worker has nothing of ours.
fn show_root(pool: &Pool) -> Result<()> {
    let pid = pool.workers[0].pid().as_raw_nonzero();
    let root = format!("/proc/{pid}/root");
    let mut find = std::process::Command::new("find");
    find.arg(format!("{root}/")).args(["-xdev", "-type", "f", "-printf", "%P\\n"]);
    let files = Run::new(find).run()?.text();
    let gcc = ["usr/bin/gcc", "bin/sh", "usr/include"].iter().any(|name| Path::new(&root).join(name).exists());
    println!(
        "a worker's root: {}; compiler, shell, headers: {}",
        files.split_whitespace().collect::<Vec<_>>().join(" "),
        if gcc { "present" } else { "none" }
    );
    Ok(())
}

fn build(pool: &Pool, source: &Path, name: &str, say: &dyn Fn(&str)) -> Result<bool> {
    let place = pool.place("build");
    let work = place.join("work");
    let mut times = Vec::new();
    for (side, prefix) in [("local", String::new()), ("remote", format!("{} --no-local", pool.client.remrun.display()))]
    {
        std::fs::create_dir_all(&work).at("create", &work)?;
        let copy = format!("cp -a {} tree", source.display());
        pool.client.script(&work, &copy, "", Duration::from_secs(60))?.expect_ok("copying the source")?;
        for (step, script) in [("configure", CONFIGURE), ("make -j4", MAKE)] {
            say(&format!("{side}: {step} …"));
            let started = Instant::now();
            let outcome = pool.client.script(&work, script, &prefix, Duration::from_secs(1200))?;
            if !outcome.ok() {
                let log = std::fs::read(work.join("log")).unwrap_or_default();
                println!("{side} {step}: {}\n{}", outcome.ended, crate::process::tail(&log, 20));
                return Ok(false);
            }
            times.push((side, step, started.elapsed()));
        }
        std::fs::rename(&work, place.join(side)).at("rename", &work)?;
    }
    println!("\n{name}: `./configure CC=\"remrun gcc\" && make -j4 CC=\"remrun gcc\"`\n");
    println!("{:<12} {:>10} {:>10} {:>8}", "", "local", "remote", "ratio");
    for step in ["configure", "make -j4"] {
        let time = |wanted: &str| {
            times
                .iter()
                .find(|(side, at, _)| *side == wanted && *at == step)
                .map_or(0.0, |(_, _, took)| took.as_secs_f64())
        };
        println!(
            "{step:<12} {:>8.2} s {:>8.2} s {:>8.2}",
            time("local"),
            time("remote"),
            time("remote") / time("local")
        );
    }
    println!();
    identical(&place)
}

/// Compares everything that was compiled or linked, and the configuration that was found out.
fn identical(place: &Path) -> Result<bool> {
    let script = "cd local && find . -type f \\( -name '*.o' -o -name '*.a' -o -name config.h -o -perm -100 \\) \
                  ! -name config.status ! -name libtool | sort";
    let mut list = crate::process::shell(script);
    list.current_dir(place);
    let names = Run::new(list).run()?.expect_ok("find")?.text();
    let (mut same, mut differ, mut bytes) = (0, Vec::new(), 0);
    for name in names.lines() {
        let local = std::fs::read(place.join("local").join(name)).at("read", Path::new(name))?;
        match std::fs::read(place.join("remote").join(name)) {
            Ok(remote) if remote == local => (same, bytes) = (same + 1, bytes + local.len()),
            _ => differ.push(name),
        }
    }
    println!(
        "{same} objects, archives, programs and config.h identical, {:.1} MB; {} differ",
        bytes as f64 / 1e6,
        differ.len()
    );
    differ.iter().for_each(|name| println!("  differs: {name}"));
    Ok(differ.is_empty() && same > 0)
}

fn where_it_ran(pool: &Pool) -> Result<()> {
    let tasks = pool.client.json(&["tasks", "--json"])?;
    let mut counts = std::collections::BTreeMap::new();
    for task in tasks.get("tasks").and_then(|tasks| tasks.as_array()).into_iter().flatten() {
        let place = task.get("worker").and_then(|worker| worker.as_str()).unwrap_or("here");
        *counts.entry(place.to_owned()).or_insert(0) += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(place, count)| format!("{place} {count}")).collect();
    println!("tasks by place: {}", counts.join(", "));
    Ok(())
}

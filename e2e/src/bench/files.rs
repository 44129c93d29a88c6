//! `bench files`: commands on many and on large files, sent to a worker on this machine beside the same commands here, in turns: a tree of
//! 100,000 files is gone through, 300 MB go through pipes, 2 GB are written, 50,000 files are removed.

use super::samples::{Figures, Samples};
use super::stop;
use crate::error::{Context, Result};
use crate::pool::{Options as PoolOptions, Pool};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What is measured, and how it is shown.
#[derive(Clone, Debug)]
pub struct Options {
    /// Figures as JSON on standard output, instead of a table.
    pub json: bool,
    /// Runs of each command on each side, after one of each that is not counted.
    pub rounds: usize,
    /// One of so many of the files and bytes.
    pub part: usize,
    /// One command alone.
    pub only: Option<String>,
}

/// Files of each folder of a tree.
const FILES_IN_FOLDER: usize = 100;
/// Longest run of one command.
const LIMIT: Duration = Duration::from_secs(600);
/// The ways in which a command is sent: as it is weighed, and to a worker whatever that takes.
const WAYS: [(&str, &str); 2] = [("auto", "remrun"), ("sent", "remrun --no-local")];

/// One command, and what makes its input anew before each run.
struct Task {
    name: &'static str,
    before: String,
    script: String,
}

/// Measures and prints.
pub fn run(options: &Options) -> Result<()> {
    let cpus = std::thread::available_parallelism().map_or(2, usize::from);
    let pool = Pool::start(PoolOptions { guests: false, prefers_pool: false, ..PoolOptions::together(cpus)? })?;
    let place = prepare(&pool, options.part.max(1))?;
    let mut samples = Samples::default();
    let mut figures = Figures::default();
    let wanted = |task: &Task| options.only.as_deref().is_none_or(|only| only == task.name);
    for task in tasks(options.part.max(1)).iter().filter(|task| wanted(task)) {
        eprintln!("bench: {}", task.name);
        // The first round is not counted: what is used for the first time is learnt.
        for round in 0..=options.rounds {
            for (way, prefix) in [("here", "")].into_iter().chain(WAYS) {
                let took = timed(&pool, &place, task, prefix)?;
                let name = if round == 0 { "first" } else { "warm" };
                samples.add(&format!("{} {way} {name}", task.name), took);
            }
        }
        add(task.name, &samples, &mut figures);
    }
    figures.print(options.json);
    stop(pool)
}

fn add(name: &str, samples: &Samples, figures: &mut Figures) {
    let median = |way: &str, which: &str| samples.median(&format!("{name} {way} {which}"));
    figures.add(&format!("{name}_here_s"), median("here", "warm"));
    for (way, _) in WAYS {
        figures.add(&format!("{name}_{way}_s"), median(way, "warm"));
        figures.add(&format!("{name}_{way}_first_s"), median(way, "first"));
        let [there, here] = [way, "here"].map(|way| format!("{name} {way} warm"));
        figures.add(&format!("{name}_{way}_ratio"), samples.median_of_pairs(&there, &here, |there, here| there / here));
    }
}

fn tasks(part: usize) -> Vec<Task> {
    let megabytes = 2_000 / part;
    let task = |name, before: &str, script: String| Task { name, before: before.to_owned(), script };
    vec![
        task("find", "", "$R find tree -size +1k > found".into()),
        task("du", "", "$R du -s tree > used".into()),
        task("git", "", "cd tree && $R git status --short > ../status".into()),
        task("pipe_out", "", "$R cat big > out".into()),
        task("pipe_in", "", "cat big | $R cat > out".into()),
        task(
            "write",
            "rm -f written; sync",
            format!("$R dd if=/dev/zero of=written bs=1M count={megabytes} 2>/dev/null"),
        ),
        task("remove", "cp -a removable gone", "$R rm -rf gone".into()),
    ]
}

/// A tree in a repository, one to remove, and a large file.
fn prepare(pool: &Pool, part: usize) -> Result<PathBuf> {
    let place = pool.place("files");
    make_tree(&place.join("tree"), 100_000 / part)?;
    make_tree(&place.join("removable"), 50_000 / part)?;
    let git = "cd tree && git init -q && git add . && git -c user.name=b -c user.email=b@c commit -q -m all && cd ..";
    let big = format!("head -c {}M /dev/urandom > big", 300 / part);
    for script in [git, &big, "sync"] {
        pool.client.script(&place, script, "", LIMIT)?.expect_ok(script)?;
    }
    Ok(place)
}

fn make_tree(at: &Path, files: usize) -> Result<()> {
    for folder in 0..files.div_ceil(FILES_IN_FOLDER) {
        let folder = at.join(format!("d{folder:04}"));
        std::fs::create_dir_all(&folder).at("create", &folder)?;
        for file in 0..FILES_IN_FOLDER {
            let file = folder.join(format!("f{file:03}"));
            std::fs::write(&file, format!("{}\n", file.display())).at("write", &file)?;
        }
    }
    Ok(())
}

/// How long a command takes that is prefixed so, seconds.
fn timed(pool: &Pool, place: &Path, task: &Task, prefix: &str) -> Result<f64> {
    if !task.before.is_empty() {
        pool.client.script(place, &task.before, "", LIMIT)?.expect_ok(&task.before)?;
    }
    let started = Instant::now();
    pool.client.script(place, &task.script, prefix, LIMIT)?.expect_ok(&task.script)?;
    Ok(started.elapsed().as_secs_f64())
}

//! What an owner does with files: a build of many short processes, reads, and writes that must be on disk.

use super::owner::{now, sleep_until};
use super::{SUBCOMMAND, Words, Work};
use crate::error::{Context, Error, Result};
use rustix::fs::Advice;
use serde_json::json;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Sources in a build, their size, that of what is made of each, and the work of making it.
const UNITS: usize = 16;
const SOURCE_BYTES: usize = 96 << 10;
const OBJECT_BYTES: usize = 48 << 10;
const UNIT_MS: u64 = 20;
/// How often something is written that must be on disk, and how much.
const FSYNC_NS: u64 = 50_000_000;
const FSYNC_BYTES: usize = 4096;

fn within(seconds: f64, started: Instant) -> bool {
    started.elapsed().as_secs_f64() < seconds
}

/// `SECONDS STEPS_PER_MS FOLDER JOBS`: builds, one after the other: 16 processes, so many at a time, each reads a source, works 20 ms and
/// writes an object; then all are put together into one file. `{"ms": [...]}`: each build.
pub fn build(words: &mut Words<'_>) -> Result<()> {
    let (seconds, per_ms): (f64, u64) = (words.next()?, words.next()?);
    let (folder, jobs): (PathBuf, usize) = (words.next()?, words.next()?);
    let own = std::env::current_exe().context(|| "cannot find this program".to_owned())?;
    std::fs::create_dir_all(&folder).at("create", &folder)?;
    for index in 0..UNITS {
        let path = folder.join(format!("{index}.c"));
        std::fs::write(&path, vec![b'x'; SOURCE_BYTES]).at("write", &path)?;
    }
    let (started, mut took) = (Instant::now(), Vec::new());
    while took.is_empty() || within(seconds, started) {
        let (begun, next, failed) = (Instant::now(), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    while let index @ 0..UNITS = next.fetch_add(1, Ordering::Relaxed) {
                        let mut unit = Command::new(&own);
                        unit.arg(SUBCOMMAND).arg("unit").arg(per_ms.to_string()).arg(&folder).arg(index.to_string());
                        let good = unit.stdin(Stdio::null()).status().is_ok_and(|status| status.success());
                        failed.fetch_add(usize::from(!good), Ordering::Relaxed);
                    }
                });
            }
        });
        if failed.into_inner() > 0 {
            return Err(Error::Product("a process of the build failed".to_owned()));
        }
        link(&folder)?;
        took.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    println!("{}", json!({ "ms": took }));
    Ok(())
}

fn link(folder: &Path) -> Result<()> {
    let mut all = Vec::with_capacity(UNITS * OBJECT_BYTES);
    for index in 0..UNITS {
        let path = folder.join(format!("{index}.o"));
        File::open(&path).and_then(|mut file| file.read_to_end(&mut all)).at("read", &path)?;
    }
    let path = folder.join("program");
    std::fs::write(&path, all).at("write", &path)
}

/// `STEPS_PER_MS FOLDER INDEX`: one process of a build.
pub fn unit(words: &mut Words<'_>) -> Result<()> {
    let (per_ms, folder, index): (u64, PathBuf, usize) = (words.next()?, words.next()?, words.next()?);
    let (source, object) = (folder.join(format!("{index}.c")), folder.join(format!("{index}.o")));
    let mut bytes = std::fs::read(&source).at("read", &source)?;
    Work::new().steps(per_ms * UNIT_MS);
    bytes.truncate(OBJECT_BYTES);
    std::fs::write(&object, bytes).at("write", &object)
}

/// `SECONDS STEPS_PER_MS FILE cached|cold`: reads a file from beginning to end, from the page cache, or after having its pages dropped.
/// `{"ms": [...]}`: each time, without the dropping.
pub fn reads(words: &mut Words<'_>) -> Result<()> {
    let (seconds, _): (f64, u64) = (words.next()?, words.next()?);
    let (path, how): (PathBuf, String) = (words.next()?, words.next()?);
    let mut file = File::open(&path).at("open", &path)?;
    let mut buffer = vec![0; 1 << 16];
    let mut read = |file: &mut File| -> Result<f64> {
        let started = Instant::now();
        file.rewind().at("rewind", &path)?;
        while file.read(&mut buffer).at("read", &path)? > 0 {}
        Ok(started.elapsed().as_secs_f64() * 1e3)
    };
    read(&mut file)?;
    let (started, mut took) = (Instant::now(), Vec::new());
    while took.is_empty() || within(seconds, started) {
        if how == "cold" {
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).context(|| "cannot drop pages".to_owned())?;
        }
        took.push(read(&mut file)?);
    }
    println!("{}", json!({ "ms": took }));
    Ok(())
}

/// `SECONDS STEPS_PER_MS FILE`: every 50 ms writes 4 KB to a file and waits until they are on disk. `{"ms": [...]}`: each write with its wait.
pub fn fsync(words: &mut Words<'_>) -> Result<()> {
    let (seconds, _, path): (f64, u64, PathBuf) = (words.next()?, words.next()?, words.next()?);
    let mut file = File::create(&path).at("create", &path)?;
    file.write_all(&vec![0; FSYNC_BYTES * 64]).and_then(|()| file.sync_all()).at("write", &path)?;
    let (started, mut took, mut due) = (Instant::now(), Vec::new(), now());
    while within(seconds, started) {
        sleep_until(due);
        let (begun, block) = (Instant::now(), took.len() % 64);
        let bytes = [took.len() as u8; FSYNC_BYTES];
        file.write_all_at(&bytes, (block * FSYNC_BYTES) as u64).and_then(|()| file.sync_all()).at("write", &path)?;
        took.push(begun.elapsed().as_secs_f64() * 1e3);
        due = (due + FSYNC_NS).max(now());
    }
    println!("{}", json!({ "ms": took }));
    Ok(())
}

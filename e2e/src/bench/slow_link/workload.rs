//! The three jobs of UCop's evaluation (USENIX ATC 2010) in their shapes: a render, a search, a video. Files at the client, and tasks
//! that read them, compute by sleeping (`task.c`), and write.
//!
//! The same seeds make the same files and times in each run.

use super::noise::Noise;
use crate::error::{Context, Result};
use crate::process::Run;
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAM: &str = include_str!("task.c");
/// Which files each task reads: a line each.
const LIST: &str = "list";

/// The scene of the render: 14.2 MiB, in files of numbers as text.
const SCENE_FILES: usize = 71;
const SCENE_FILE_BYTES: usize = 209_715;
/// Of these files one part in a row is other than before, after each edit: 11% of the scene.
const EDITED_FILES: usize = 24;
const EDITED_BYTES: usize = 68_250;
/// Seconds of a render's tasks: evenly from the least to the most, 6.7 on average.
const TILE_SECONDS: (f64, f64) = (2.9, 10.5);
const TILE_BYTES: usize = 10_000;

const SEARCHES: usize = 86;
/// Seconds of a search's tasks: each longer than the one before by the same factor.
const SEARCH_SECONDS: (f64, f64) = (0.5, 12.0);
const POSITION_BYTES: usize = 60_000;

/// The clips of the video: 29 MiB, packed by their nature.
const CLIPS: usize = 484;
const CLIP_BYTES: usize = 62_827;
const SEGMENTS: usize = 64;
const CLIPS_OF_SEGMENT: usize = 8;
const SEGMENT_SECONDS: (f64, f64) = (3.0, 7.0);
const SEGMENT_BYTES: usize = 60_000;
/// How long a segment of the video plays.
pub const PLAY_SECONDS: f64 = 2.0;

/// One task of a job.
#[derive(Clone, Debug)]
pub struct Task {
    /// How long it computes.
    pub seconds: f64,
    line: usize,
    bytes: usize,
}

/// A job, with its files in a folder at the client.
#[derive(Debug)]
pub struct Workload {
    place: PathBuf,
    kind: Kind,
    edits: u64,
    /// In the order of what they write.
    pub tasks: Vec<Task>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Render,
    Search,
    Video,
}

impl Workload {
    /// An image of so many tiles.
    pub fn render(place: PathBuf, tiles: usize) -> Result<Self> {
        let times = shuffled(tiles, |at| between(TILE_SECONDS, at));
        let tasks = times.into_iter().map(|seconds| Task { seconds, line: 0, bytes: TILE_BYTES }).collect();
        let made = Self::made(place, Kind::Render, tasks)?;
        for number in 0..SCENE_FILES {
            made.write(&scene_file(number), &Noise::new(number as u64).numbers(SCENE_FILE_BYTES))?;
        }
        made.list([(0..SCENE_FILES).map(scene_file).collect()].into_iter())?;
        Ok(made)
    }

    /// A search among the moves of a game.
    pub fn search(place: PathBuf) -> Result<Self> {
        let (least, most) = SEARCH_SECONDS;
        let times = shuffled(SEARCHES, |at| least * (most / least).powf(at));
        let tasks = times.into_iter().enumerate().map(|(line, seconds)| Task { seconds, line, bytes: 200 }).collect();
        let made = Self::made(place, Kind::Search, tasks)?;
        made.write("position", &Noise::new(1).numbers(POSITION_BYTES))?;
        made.list((0..SEARCHES).map(|_| vec!["position".to_owned()]))?;
        Ok(made)
    }

    /// A video cut from many clips.
    pub fn video(place: PathBuf) -> Result<Self> {
        let times = shuffled(SEGMENTS, |at| between(SEGMENT_SECONDS, at));
        let task = |(line, seconds)| Task { seconds, line, bytes: SEGMENT_BYTES };
        let tasks = times.into_iter().enumerate().map(task).collect();
        let made = Self::made(place, Kind::Video, tasks)?;
        for number in 0..CLIPS {
            made.write(&clip(number), &Noise::new(number as u64).bytes(CLIP_BYTES))?;
        }
        made.list_cuts()?;
        Ok(made)
    }

    fn made(place: PathBuf, kind: Kind, tasks: Vec<Task>) -> Result<Self> {
        std::fs::create_dir_all(place.join("in")).at("create", &place)?;
        std::fs::create_dir_all(place.join("out")).at("create", &place)?;
        let made = Self { place, kind, edits: 0, tasks };
        made.write("task.c", PROGRAM.as_bytes())?;
        let mut compile = Command::new("gcc");
        compile.args(["-O2", "-o", "task", "task.c"]).current_dir(&made.place);
        Run::new(compile).run()?.expect_ok("gcc task.c")?;
        Ok(made)
    }

    /// The folder.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// What a person changes between two runs: some objects of the scene, the position, some cuts.
    pub fn edit(&mut self) -> Result<()> {
        self.edits += 1;
        match self.kind {
            Kind::Search => self.write("position", &Noise::new(1000 + self.edits).numbers(POSITION_BYTES)),
            Kind::Video => self.list_cuts(),
            Kind::Render => self.edited_files().try_for_each(|number| {
                let path = self.place.join(scene_file(number));
                let mut text = std::fs::read(&path).at("read", &path)?;
                let noise = Noise::new(1_000_000 * self.edits + number as u64).numbers(EDITED_BYTES);
                text[EDITED_BYTES..2 * EDITED_BYTES].copy_from_slice(&noise);
                self.write(&scene_file(number), &text)
            }),
        }
    }

    fn edited_files(&self) -> impl Iterator<Item = usize> + use<> {
        (0..EDITED_FILES).map(|at| at * SCENE_FILES / EDITED_FILES)
    }

    /// The files that an edit of the scene changes, as they are now.
    pub fn edited(&self) -> Result<Vec<Vec<u8>>> {
        let paths = self.edited_files().map(|number| self.place.join(scene_file(number)));
        paths.map(|path| std::fs::read(&path).at("read", &path)).collect()
    }

    /// The words of a task's command; at once without its computing.
    pub fn command(&self, number: usize, at_once: bool) -> Vec<String> {
        let Task { seconds, line, bytes } = self.tasks[number];
        let seconds = if at_once { 0.0 } else { seconds };
        ["./task", LIST, &line.to_string(), &seconds.to_string(), &bytes.to_string(), &output(number)]
            .map(str::to_owned)
            .to_vec()
    }

    /// Removes what the tasks wrote; an error if one did not write all of it.
    pub fn take_outputs(&self) -> Result<()> {
        for (number, task) in self.tasks.iter().enumerate() {
            let path = self.place.join(output(number));
            let length = std::fs::metadata(&path).at("look at", &path)?.len();
            if length != task.bytes as u64 {
                let what = format!("{} has {length} bytes, not {}", path.display(), task.bytes);
                return Err(crate::error::Error::Product(what));
            }
            std::fs::remove_file(&path).at("remove", &path)?;
        }
        Ok(())
    }

    /// Seconds of the longest task.
    pub fn slowest(&self) -> f64 {
        self.tasks.iter().map(|task| task.seconds).fold(0.0, f64::max)
    }

    /// Seconds of all tasks.
    pub fn work(&self) -> f64 {
        self.tasks.iter().map(|task| task.seconds).sum()
    }

    /// Seconds that so many workers need at least, each taking the next task when it is free.
    pub fn ideal(&self, workers: usize) -> f64 {
        self.ends(workers).into_iter().fold(0.0, f64::max)
    }

    /// When each task would end on so many workers that nothing delays.
    pub fn ends(&self, workers: usize) -> Vec<f64> {
        let mut free: Vec<f64> = vec![0.0; workers.max(1)];
        let end = |task: &Task| {
            let first = free.iter_mut().min_by(|a, b| a.total_cmp(b)).expect("there is a worker");
            *first += task.seconds;
            *first
        };
        self.tasks.iter().map(end).collect()
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.place.join(name);
        std::fs::write(&path, bytes).at("write", &path)
    }

    fn list(&self, lines: impl Iterator<Item = Vec<String>>) -> Result<()> {
        let text: String = lines.map(|names| names.join(" ") + "\n").collect();
        self.write(LIST, text.as_bytes())
    }

    /// The edit list: of which clips each segment is made. Some of it is other than before after each edit.
    fn list_cuts(&self) -> Result<()> {
        let mut noise = Noise::new(77);
        let mut cuts: Vec<Vec<String>> =
            (0..SEGMENTS).map(|_| (0..CLIPS_OF_SEGMENT).map(|_| clip(noise.below(CLIPS))).collect()).collect();
        for _ in 0..self.edits * 3 {
            let (a, b) = (noise.below(SEGMENTS), noise.below(SEGMENTS));
            cuts.swap(a, b);
        }
        self.list(cuts.into_iter())
    }
}

/// The earliest that playing can begin so that it never waits for a segment, in seconds; by when the segments are there.
pub fn preroll(ends: &[f64]) -> f64 {
    ends.iter().enumerate().map(|(number, end)| end - number as f64 * PLAY_SECONDS).fold(0.0, f64::max)
}

fn scene_file(number: usize) -> String {
    format!("in/object{number:02}")
}

fn clip(number: usize) -> String {
    format!("in/clip{number:03}")
}

/// Where a task writes, which is the last word of its command.
pub fn output(number: usize) -> String {
    format!("out/{number:03}")
}

fn between((least, most): (f64, f64), at: f64) -> f64 {
    least + (most - least) * at
}

/// `value` of evenly spaced numbers from 0 to 1, in an order that is always the same.
fn shuffled(count: usize, value: impl Fn(f64) -> f64) -> Vec<f64> {
    let mut times: Vec<f64> = (0..count).map(|at| value(at as f64 / (count - 1).max(1) as f64)).collect();
    let mut noise = Noise::new(count as u64);
    for at in (1..count).rev() {
        times.swap(at, noise.below(at + 1));
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_render_has_ucops_shape() {
        let times = shuffled(32, |at| between(TILE_SECONDS, at));
        let mean = times.iter().sum::<f64>() / 32.0;
        assert!((mean - 6.7).abs() < 0.01 && times.iter().copied().fold(0.0, f64::max) == 10.5);
        let scene = (SCENE_FILES * SCENE_FILE_BYTES) as f64;
        assert!((scene / (14.2 * 1024.0 * 1024.0) - 1.0).abs() < 0.001);
        assert!(((EDITED_FILES * EDITED_BYTES) as f64 / scene - 0.11).abs() < 0.001);
        assert!(((CLIPS * CLIP_BYTES) as f64 / (29.0 * 1024.0 * 1024.0) - 1.0).abs() < 0.001);
    }

    #[test]
    fn playing_waits_for_the_segment_that_is_latest_for_its_place() {
        assert_eq!(preroll(&[1.0, 2.0, 9.0, 6.0]), 9.0 - 2.0 * PLAY_SECONDS);
        assert_eq!(preroll(&[]), 0.0);
    }
}

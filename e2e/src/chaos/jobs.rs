//! Commands that run while things go wrong, and whether each came to an end that it may come to.

use super::work::{Expected, Kind, Reference, look};
use crate::client::Client;
use crate::error::{Context, Result};
use crate::process::Ended;
use rustix::process::{Pid, Signal};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The status with which `remrun` says that nothing was committed.
const FAILED: i32 = 125;

/// How a command came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// As here.
    Right,
    /// By a clear error, with nothing committed.
    Clear,
    /// By a signal to `remrun` or to the program itself, which leaves what that leaves here.
    Killed,
    /// Otherwise.
    Wrong,
}

impl Ending {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::Clear => "clear error",
            Self::Killed => "killed",
            Self::Wrong => "wrong",
        }
    }
}

/// A command under way.
#[derive(Debug)]
pub struct Job {
    /// What it does.
    pub kind: Kind,
    /// Its folder.
    pub place: PathBuf,
    /// Its own word, an argument of its processes.
    pub word: String,
    /// It may run here: then `remrun` is the program itself.
    pub may_run_here: bool,
    /// `remrun` was killed: what it would have said is not known.
    pub remrun_killed: bool,
    /// A process of the task may have been killed.
    pub guest_killed: bool,
    child: Child,
    writer: Option<JoinHandle<()>>,
    started: Instant,
    ended: Option<(Ended, Duration)>,
    /// Where its output is, beside the pool's folder of places.
    said: PathBuf,
}

impl Job {
    /// Launches a command of this kind in `place`, which is prepared.
    pub fn launch(
        client: &Client,
        kind: Kind,
        place: &Path,
        word: &str,
        may_run_here: bool,
        said: &Path,
    ) -> Result<Self> {
        std::fs::create_dir_all(said).at("create", said)?;
        let said = said.join(word);
        let output = |end: &str| {
            let path = said.with_extension(end);
            File::create(&path).at("create", &path)
        };
        let options: &[&str] = if may_run_here { &[] } else { &["--no-local"] };
        let mut command = client.remrun(&[options, &["sh", "-c", kind.script(), "sh", word]].concat());
        command.current_dir(place).stdout(output("out")?).stderr(output("err")?);
        let input = kind.input();
        command.stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() });
        let mut child = command.spawn().context(|| "cannot start remrun".to_owned())?;
        let writer = child.stdin.take().map(|mut stdin| {
            std::thread::spawn(move || {
                // Whoever is killed reads no more.
                let _ = stdin.write_all(&input);
            })
        });
        let (place, word) = (place.to_path_buf(), word.to_owned());
        let (remrun_killed, guest_killed, started, ended) = (false, false, Instant::now(), None);
        Ok(Self { kind, place, word, may_run_here, remrun_killed, guest_killed, child, writer, started, ended, said })
    }

    /// The process of `remrun`, while it runs.
    pub fn pid(&self) -> Option<Pid> {
        self.ended.is_none().then(|| Pid::from_child(&self.child))
    }

    /// Looks whether it has ended.
    pub fn poll(&mut self) -> bool {
        if self.ended.is_none()
            && let Ok(Some(status)) = self.child.try_wait()
        {
            self.ended = Some((Ended::from(status), self.started.elapsed()));
        }
        self.ended.is_some()
    }

    /// What it wrote to standard error.
    pub fn complaint(&self) -> String {
        String::from_utf8_lossy(&self.read("err")).trim_end().to_owned()
    }

    /// For how long it ran, or runs.
    pub fn took(&self) -> Duration {
        self.ended.map_or_else(|| self.started.elapsed(), |(_, took)| took)
    }

    /// Ends one that has run for too long.
    fn give_up(&mut self) {
        if let Some(pid) = self.pid() {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
            let _ = self.child.wait();
        }
    }

    /// How it ended, and what is wrong with that. `must_be_right`: nothing was in its way.
    pub fn judge(mut self, reference: &Reference, bound: Duration, must_be_right: bool) -> (Ending, Vec<String>) {
        let Some((ended, took)) = self.ended else {
            let took = self.took();
            self.give_up();
            return (Ending::Wrong, vec![self.say(&format!("it had not ended after {:.1} s", took.as_secs_f64()))]);
        };
        drop(self.writer.take().map(JoinHandle::join));
        let (stdout, stderr) = (self.read("out"), self.read("err"));
        let files = look(&self.place);
        let mut wrong = Vec::new();
        if took > bound {
            wrong.push(format!("it took {:.1} s, more than {:.1} s", took.as_secs_f64(), bound.as_secs_f64()));
        }
        let is_whole = |expected: &Expected| {
            (ended, &stdout) == (expected.ended, &expected.stdout)
                && (self.kind == Kind::Append || files == expected.files)
        };
        let ending = if reference.after.iter().any(is_whole) {
            Ending::Right
        } else if ended == Ended::Code(FAILED) {
            if stderr.is_empty() {
                wrong.push("it failed without a word".to_owned());
            }
            Ending::Clear
        } else if matches!(ended, Ended::Signal(9) | Ended::Code(137)) && (self.remrun_killed || self.guest_killed) {
            Ending::Killed
        } else if self.guest_killed {
            // A program lost a process of its own, and made of that what it would make here.
            Ending::Killed
        } else {
            wrong.push(format!("it ended with {ended}, which no such command does here"));
            Ending::Wrong
        };
        if ending != Ending::Right {
            wrong.extend(self.is_whole_or_nothing(ending, reference, &files));
            let is_begun = |expected: &Expected| expected.stdout.starts_with(&stdout);
            if !self.guest_killed && !reference.after.iter().any(is_begun) {
                wrong.push(format!("it said {:?}, which no such command says here", String::from_utf8_lossy(&stdout)));
            }
        }
        if must_be_right && ending != Ending::Right && wrong.is_empty() {
            wrong.push(format!("{ended} although nothing was in its way"));
        }
        let wrong: Vec<String> = wrong.iter().map(|what| self.say(what)).collect();
        (if wrong.is_empty() { ending } else { Ending::Wrong }, wrong)
    }

    /// What is wrong with the files of one that did not come to its right end.
    fn is_whole_or_nothing(&self, ending: Ending, reference: &Reference, files: &super::work::Files) -> Option<String> {
        let is_nothing = *files == reference.before;
        let is_all = reference.after.iter().any(|expected| expected.files == *files);
        let is_fine = match (self.kind, ending) {
            // Others write to the same file: all are counted together.
            (Kind::Append, _) => true,
            (_, Ending::Clear) => is_nothing,
            // What a program has done before a process of it was killed is committed, as it is here.
            _ => is_nothing || is_all || self.guest_killed,
        };
        (!is_fine)
            .then(|| format!("{}: {files:?}", if is_all { "all is there after a failure" } else { "half is there" }))
    }

    /// How many lines of its own it may have left in the file that all append to.
    pub fn lines(&self) -> std::ops::RangeInclusive<usize> {
        match self.ended {
            _ if self.remrun_killed || self.guest_killed => 0..=1,
            Some((Ended::Code(0), _)) => 1..=1,
            _ => 0..=0,
        }
    }

    fn read(&self, end: &str) -> Vec<u8> {
        std::fs::read(self.said.with_extension(end)).unwrap_or_default()
    }

    fn say(&self, what: &str) -> String {
        let said = self.complaint();
        format!("{} {}: {what}{}{said}", self.kind.name(), self.word, if said.is_empty() { "" } else { "; it said: " })
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// What is wrong with the file to which all of these have appended.
pub fn appended(jobs: &[Job], place: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(place.join("log")).unwrap_or_default();
    let count = |word: &str| text.lines().filter(|line| *line == word).count();
    let mut wrong: Vec<String> = text
        .lines()
        .filter(|line| !jobs.iter().any(|job| job.word == **line))
        .map(|line| format!("append: a line that nobody wrote: {line:?}"))
        .collect();
    for job in jobs.iter().filter(|job| job.kind == Kind::Append) {
        let (found, may) = (count(&job.word), job.lines());
        if !may.contains(&found) {
            wrong.push(format!("append {}: its line is there {found} times, not {may:?}", job.word));
        }
    }
    wrong
}

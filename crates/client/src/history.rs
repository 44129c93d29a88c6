//! What commands have cost, here and there: for each command line, and for each program with inputs of about one size.
//!
//! Averages that follow what changes, and that one odd run moves little. Commands are kept by their hash alone, for arguments can be
//! secrets. Bounded; a file of it that cannot be read is forgotten. How the numbers are used: [`crate::choice`].

use crate::choice::{Choice, Expected, Side};
use crate::profile::ViewKey;
use crate::small_file;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use wire::lock;

/// Runs after which a side counts as known.
pub const RUNS_MIN: u32 = 3;
/// Costs that are kept; of more, the quarter that was longest unused is forgotten.
const COSTS_MAX: usize = 4096;
/// Largest file that is read, bytes.
const FILE_BYTES_MAX: u64 = 8 << 20;
/// How much the newest run counts, once there were several.
const WEIGHT: f64 = 0.3;
/// A run of the same line that took longer than so many times the mean counts as if it had taken so long: a machine stalls now and
/// then. Of the same program it counts as it is: the next one may well do the same.
const ODD: f64 = 4.0;
/// What is always believed, microseconds: short runs differ by more than their length.
const ODD_FLOOR_US: f64 = 2_000.0;

/// Names a command by what it may be known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The same words in the same folder, with inputs of about the same size.
    line: u64,
    /// The same program (or script), with inputs of about the same size.
    program: u64,
}

impl Kind {
    /// Of a command with this program, these words, in this folder, whose named files have so many bytes in all.
    pub fn new(key: &ViewKey, argv: &[Vec<u8>], cwd: &[u8], input_bytes: u64) -> Self {
        let mut hasher = blake3::Hasher::new();
        let mut add = |part: &[u8]| {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
            hasher.clone()
        };
        add(key.program.as_bytes());
        add(key.variant.as_deref().unwrap_or_default());
        // The power of two: 0 for nothing at all.
        let program = add(&(u64::BITS - input_bytes.leading_zeros()).to_le_bytes());
        let line = argv.iter().fold(add(cwd), |_, word| add(word));
        let short = |hasher: blake3::Hasher| {
            let digest = hasher.finalize();
            u64::from_le_bytes(*digest.as_bytes().first_chunk().expect("a digest has 32 bytes"))
        };
        Self { line: short(line), program: short(program) }
    }
}

/// A quantity over several runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Average {
    mean: f64,
    deviation: f64,
    runs: u32,
}

impl Average {
    fn add(&mut self, sample: f64, same: bool) {
        let limited = same && self.runs >= RUNS_MIN;
        let sample = if limited { sample.min(self.mean * ODD + ODD_FLOOR_US) } else { sample };
        let weight = WEIGHT.max(1.0 / f64::from(self.runs.saturating_add(1)));
        let off = sample - self.mean;
        if self.runs > 0 {
            self.deviation += weight * (off.abs() - self.deviation);
        }
        self.mean += weight * off;
        self.runs = self.runs.saturating_add(1);
    }

    fn is_sound(&self) -> bool {
        [self.mean, self.deviation].iter().all(|value| value.is_finite() && *value >= 0.0)
    }

    /// What it most likely is; `None` before the first run.
    fn likely(&self) -> Option<f64> {
        (self.runs > 0).then_some(self.mean)
    }

    /// What it hardly exceeds.
    fn at_most(&self) -> Option<f64> {
        (self.runs > 0).then_some(self.mean + 2.0 * self.deviation)
    }
}

/// What a run at a worker cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RunThere {
    /// From the program's start to its end, without what its questions waited; microseconds.
    pub compute_us: u64,
    /// CPU time, microseconds.
    pub cpu_us: u64,
    /// Questions that it waited for.
    pub questions: u64,
    /// Bytes that went up for it.
    pub bytes_up: u64,
    /// Bytes that came down for it.
    pub bytes_down: u64,
    /// What was neither: waiting for a CPU there, sandbox, looking at files, commit; microseconds.
    pub other_us: u64,
}

/// What runs of one kind cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Cost {
    key: u64,
    here_us: Average,
    there_us: Average,
    cpu_us: Average,
    questions: Average,
    bytes_up: Average,
    bytes_down: Average,
    other_us: Average,
    /// Runs since the side that is not chosen was tried.
    untried: u32,
    /// How often it was tried in vain.
    tries: u32,
    /// Here was the better side, the last time that this was weighed.
    is_here: bool,
    #[serde(skip)]
    used: u64,
}

impl Cost {
    fn is_sound(&self) -> bool {
        let all =
            [self.here_us, self.there_us, self.cpu_us, self.questions, self.bytes_up, self.bytes_down, self.other_us];
        all.iter().all(Average::is_sound)
    }

    /// What another run is expected to cost. `same`: the runs were of the very same command line.
    fn expected(&self, same: bool) -> Option<Expected> {
        // Of others of the same program the worst is assumed where that speaks for staying here.
        let cautious = |average: &Average| if same { average.likely() } else { average.at_most() };
        // As long there as here, if it never ran there.
        let there = self.there_us.likely().or(self.here_us.likely())?;
        Some(Expected {
            runs: self.there_us.runs.saturating_add(self.here_us.runs),
            here_us: cautious(&self.here_us),
            there_us: there,
            there_as_here_us: cautious(&self.there_us).unwrap_or(there),
            cpu_us: cautious(&self.cpu_us).unwrap_or(there),
            questions: self.questions.mean,
            bytes_up: self.bytes_up.mean,
            bytes_down: self.bytes_down.mean,
            other_us: self.other_us.mean,
            untried: self.untried,
            tries: self.tries,
        })
    }
}

/// All that is known.
#[derive(Debug)]
pub struct History {
    file: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    costs: HashMap<u64, Cost>,
    uses: u64,
    changed: bool,
}

impl History {
    /// What `file` has; nothing if it cannot be read.
    pub fn load(file: &Path) -> Self {
        let costs: Vec<Cost> = small_file::learnt(file, FILE_BYTES_MAX, "what commands cost is learnt anew");
        let mut state = State::default();
        for mut cost in costs.into_iter().filter(Cost::is_sound) {
            state.uses += 1;
            cost.used = state.uses;
            state.costs.insert(cost.key, cost);
        }
        state.shrink();
        Self { file: file.to_owned(), state: Mutex::new(state) }
    }

    /// What another run of this kind is expected to cost; `None` if too little is known.
    pub fn expected(&self, kind: &Kind) -> Option<Expected> {
        let state = lock(&self.state);
        let known = |key, same| {
            let expected = state.costs.get(key).and_then(|cost| cost.expected(same));
            expected.filter(|expected| expected.runs >= RUNS_MIN)
        };
        known(&kind.line, true).or_else(|| known(&kind.program, false))
    }

    /// A run begins where it was chosen.
    pub fn chosen(&self, kind: &Kind, choice: &Choice) {
        let is_here = choice.better() == Side::Here;
        lock(&self.state).each(kind, |cost, _| {
            if std::mem::replace(&mut cost.is_here, is_here) != is_here {
                (cost.untried, cost.tries) = (0, 0);
            }
            match choice.is_try {
                true => (cost.untried, cost.tries) = (0, cost.tries.saturating_add(1)),
                false => cost.untried = cost.untried.saturating_add(1),
            }
        });
    }

    /// A run here ended after so many microseconds.
    pub fn ran_here(&self, kind: &Kind, took_us: u64) {
        lock(&self.state).each(kind, |cost, same| cost.here_us.add(took_us as f64, same));
    }

    /// A run there ended.
    pub fn ran_there(&self, kind: &Kind, run: &RunThere) {
        lock(&self.state).each(kind, |cost, same| {
            cost.there_us.add(run.compute_us as f64, same);
            cost.cpu_us.add(run.cpu_us as f64, same);
            cost.questions.add(run.questions as f64, same);
            cost.bytes_up.add(run.bytes_up as f64, same);
            cost.bytes_down.add(run.bytes_down as f64, same);
            cost.other_us.add(run.other_us as f64, same);
        });
    }

    /// Writes down what is news.
    pub fn save(&self) -> io::Result<()> {
        let mut costs: Vec<Cost> = {
            let mut state = lock(&self.state);
            if !std::mem::take(&mut state.changed) {
                return Ok(());
            }
            state.costs.values().cloned().collect()
        };
        costs.sort_by_key(|cost| cost.used);
        let written =
            serde_json::to_vec(&costs).map_err(Into::into).and_then(|bytes| small_file::write(&self.file, &bytes));
        if written.is_err() {
            lock(&self.state).changed = true;
        }
        written
    }
}

impl State {
    /// `change` is told whether the cost is of the same line.
    fn each(&mut self, kind: &Kind, change: impl Fn(&mut Cost, bool)) {
        self.changed = true;
        for (key, same) in [(kind.line, true), (kind.program, false)] {
            self.uses += 1;
            let cost = self.costs.entry(key).or_default();
            (cost.key, cost.used) = (key, self.uses);
            change(cost, same);
        }
        self.shrink();
    }

    fn shrink(&mut self) {
        if self.costs.len() > COSTS_MAX {
            let mut used: Vec<u64> = self.costs.values().map(|cost| cost.used).collect();
            used.sort_unstable();
            let oldest = used[used.len() - COSTS_MAX * 3 / 4];
            self.costs.retain(|_, cost| cost.used >= oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::TreePath;

    fn kind(words: &str, bytes: u64) -> Kind {
        let key = ViewKey { program: TreePath::parse(b"/usr/bin/tool").unwrap(), variant: None };
        let argv: Vec<Vec<u8>> = words.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        Kind::new(&key, &argv, b"/home", bytes)
    }

    fn history() -> (tempfile::TempDir, History) {
        let folder = tempfile::tempdir().unwrap();
        let history = History::load(&folder.path().join("history.json"));
        (folder, history)
    }

    fn there(compute_us: u64) -> RunThere {
        RunThere { compute_us, ..RunThere::default() }
    }

    #[test]
    fn kinds_tell_words_and_sizes_apart() {
        assert_eq!(kind("tool a", 1000), kind("tool a", 600), "one power of two");
        assert_ne!(kind("tool a", 1000).program, kind("tool a", 2000).program);
        let (one, other) = (kind("tool a", 9), kind("tool b", 9));
        assert!(one.line != other.line && one.program == other.program);
        assert_ne!(kind("tool ab c", 9).line, kind("tool a bc", 9).line);
    }

    #[test]
    fn the_same_line_is_known_after_three_runs_and_others_by_their_program() {
        let (_folder, history) = history();
        let one = kind("tool one", 9);
        for _ in 0..2 {
            history.ran_there(&one, &there(1000));
        }
        assert_eq!(history.expected(&one), None, "two runs tell little");
        history.ran_there(&one, &there(1000));
        assert_eq!(history.expected(&one).map(|expected| expected.there_us), Some(1000.0));
        let other = kind("tool other", 9);
        let of_program = history.expected(&other).expect("the program is known");
        assert_eq!((of_program.there_us, of_program.there_as_here_us), (1000.0, 1000.0));
        history.ran_there(&other, &there(5_000_000));
        let uneven = history.expected(&kind("tool third", 9)).expect("the program is known");
        assert!(uneven.there_as_here_us > 2_500_000.0, "what differs much may take long: {uneven:?}");
        assert_eq!(history.expected(&one).map(|expected| expected.there_us), Some(1000.0));
    }

    #[test]
    fn one_odd_run_moves_little_and_a_change_is_followed() {
        let mut average = Average::default();
        (0..10).for_each(|_| average.add(100_000.0, true));
        average.add(60_000_000.0, true);
        assert!(average.mean < 200_000.0, "{average:?}");
        (0..12).for_each(|_| average.add(1_000_000.0, true));
        assert!((900_000.0..1_100_000.0).contains(&average.mean), "{average:?}");
        (0..12).for_each(|_| average.add(1_000.0, true));
        assert!(average.mean < 20_000.0, "{average:?}");
    }

    #[test]
    fn what_was_learnt_survives_a_restart_and_garbage_does_not() {
        let (folder, history) = history();
        let one = kind("tool one", 9);
        (0..3).for_each(|_| history.ran_there(&one, &there(7)));
        history.ran_here(&one, 5);
        history.save().unwrap();
        let file = folder.path().join("history.json");
        assert_eq!(History::load(&file).expected(&one), history.expected(&one));
        assert!(!std::fs::read_to_string(&file).unwrap().contains("tool"), "no words of commands");
        for garbage in ["", "[{}", "[7]", "[{\"here_us\":{\"mean\":-5.0,\"deviation\":0.0,\"runs\":9}}]", "[{}]"] {
            std::fs::write(&file, garbage).unwrap();
            assert_eq!(History::load(&file).expected(&one), None, "{garbage}");
        }
    }

    #[test]
    fn it_is_bounded() {
        let (_folder, history) = history();
        let last = kind("tool last", 0);
        for number in 0..COSTS_MAX * 2 {
            history.ran_here(&kind(&format!("tool {number}"), 0), 5);
        }
        (0..3).for_each(|_| history.ran_there(&last, &there(7)));
        assert!(lock(&history.state).costs.len() <= COSTS_MAX);
        assert!(history.expected(&last).is_some());
    }
}

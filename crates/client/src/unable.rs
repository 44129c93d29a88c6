//! Commands that were called off: which of them cannot be done elsewhere, and why. The next one of the kind runs here at once.
//!
//! A kind is a program, its command word (`install` of `pip install x`; without one all its words) and a folder. Kinds are kept by
//! their hash alone, for arguments can be secrets. Bounded; a file of it that cannot be read is forgotten. A kind is tried again
//! when its program has changed, or when it was not used for a month; one that had been noticed too late to be run here in the same
//! breath is not tried again for its program's sake, since each try is a failed command.

use crate::policy::Trust;
use crate::profile::Program;
use crate::small_file;
use base::TreePath;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use wire::lock;

/// Kinds that are kept; of more, the quarter that was longest unused is forgotten.
const KINDS_MAX: usize = 1024;
/// How long an unused kind is kept, seconds.
const KEPT_SECONDS: u64 = 30 * 24 * 3600;
/// Largest file that is read, bytes.
const FILE_BYTES_MAX: u64 = 2 << 20;
/// Longest reason that is kept, bytes.
const WHY_BYTES_MAX: usize = 500;

/// Names what a command is known by, and the state of its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    key: u64,
    program: u64,
}

impl Kind {
    /// Of a command of this program with these words in this folder. Looks at the program's file and its script's.
    pub fn new(program: &Program, argv: &[Vec<u8>], cwd: &[u8]) -> Self {
        let mut parts: Vec<&[u8]> = vec![program.key.program.as_bytes(), cwd];
        parts.push(program.key.variant.as_deref().unwrap_or_default());
        match argv.get(1).filter(|word| is_command_word(word)) {
            Some(word) => parts.push(word),
            None => parts.extend(argv.iter().skip(1).map(Vec::as_slice)),
        }
        let files = [Some(&program.real), program.script.as_ref()];
        let stamps: Vec<Vec<u8>> = files.into_iter().flatten().map(stamp).collect();
        Self { key: hash(parts), program: hash(stamps.iter().map(Vec::as_slice)) }
    }

    /// The kind of the same commands where descriptors above standard error are open for them.
    pub fn with_descriptors(self) -> Self {
        Self { key: hash([&b"descriptors"[..], &self.key.to_le_bytes()]), ..self }
    }

    /// The kind of the same commands on machines of this class: what may go there is another's.
    pub fn on_machines_of(self, trust: Trust) -> Self {
        let class = format!("{trust:?}");
        Self { key: hash([class.as_bytes(), &self.key.to_le_bytes()]), ..self }
    }

    /// The kind of the same commands where they may use the network.
    pub fn with_network(self) -> Self {
        Self { key: hash([&b"network"[..], &self.key.to_le_bytes()]), ..self }
    }
}

/// A reason with what is open at the descriptor of which it speaks. That did not travel, so who called the command off does not know.
pub fn naming(why: &str, number: u32, open: &[(u32, String)]) -> String {
    match open.iter().find(|(open, _)| *open == number) {
        Some((_, what)) => why.replacen(&format!("descriptor {number}"), &format!("descriptor {number} ({what})"), 1),
        None => why.to_owned(),
    }
}

/// Whether a first argument says which of its commands a program is to do, as in `pip install`.
fn is_command_word(word: &[u8]) -> bool {
    let letter = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
    word.first().is_some_and(u8::is_ascii_lowercase) && word.iter().all(letter)
}

fn stamp(path: &TreePath) -> Vec<u8> {
    let Ok(found) = std::fs::metadata(OsStr::from_bytes(path.as_bytes())) else { return Vec::new() };
    [found.ino() as i64, found.size() as i64, found.mtime(), found.mtime_nsec()].map(i64::to_le_bytes).concat()
}

fn hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    u64::from_le_bytes(*hasher.finalize().as_bytes().first_chunk().expect("a digest has 32 bytes"))
}

/// What is known of one kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Known {
    key: u64,
    /// State of the program when it was called off.
    program: u64,
    why: String,
    /// It was noticed when output had been delivered or input read, so that the command failed.
    failed: bool,
    /// When it was last asked for, seconds since the epoch.
    used_s: u64,
}

/// All that is known.
#[derive(Debug)]
pub struct Unable {
    file: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    kinds: HashMap<u64, Known>,
    changed: bool,
}

impl Unable {
    /// What `file` has; nothing if it cannot be read.
    pub fn load(file: &Path) -> Self {
        let known: Vec<Known> = small_file::learnt(file, FILE_BYTES_MAX, "what cannot run elsewhere is learnt anew");
        let kinds = known.into_iter().map(|known| (known.key, known)).collect();
        let mut state = State { kinds, changed: false };
        state.shrink();
        Self { file: file.to_owned(), state: Mutex::new(state) }
    }

    /// Why a command of this kind cannot be done elsewhere, if one was called off before. `now_s`: seconds since the epoch.
    pub fn why(&self, kind: &Kind, now_s: u64) -> Option<String> {
        let mut state = lock(&self.state);
        let known = state.kinds.get_mut(&kind.key)?;
        let is_old = now_s.saturating_sub(known.used_s) > KEPT_SECONDS;
        if is_old || (known.program != kind.program && !known.failed) {
            state.kinds.remove(&kind.key);
            state.changed = true;
            return None;
        }
        let why = known.why.clone();
        // To the day: the file need not be written for each use.
        if now_s.saturating_sub(known.used_s) > 24 * 3600 {
            known.used_s = now_s;
            state.changed = true;
        }
        Some(why)
    }

    /// A command of this kind was called off. `failed`: too late to be run here in the same breath.
    pub fn note(&self, kind: &Kind, why: &str, failed: bool, now_s: u64) {
        let why = why[..why.floor_char_boundary(WHY_BYTES_MAX)].to_owned();
        let mut state = lock(&self.state);
        let failed = failed || state.kinds.get(&kind.key).is_some_and(|known| known.failed);
        state.kinds.insert(kind.key, Known { key: kind.key, program: kind.program, why, failed, used_s: now_s });
        state.changed = true;
        state.shrink();
    }

    /// Writes down what is news.
    pub fn save(&self) -> io::Result<()> {
        let mut known: Vec<Known> = {
            let mut state = lock(&self.state);
            if !std::mem::take(&mut state.changed) {
                return Ok(());
            }
            state.kinds.values().cloned().collect()
        };
        known.sort_by_key(|known| (known.used_s, known.key));
        let written =
            serde_json::to_vec(&known).map_err(Into::into).and_then(|bytes| small_file::write(&self.file, &bytes));
        if written.is_err() {
            lock(&self.state).changed = true;
        }
        written
    }
}

impl State {
    fn shrink(&mut self) {
        if self.kinds.len() > KINDS_MAX {
            let mut used: Vec<(u64, u64)> = self.kinds.values().map(|known| (known.used_s, known.key)).collect();
            used.sort_unstable();
            for (_, key) in &used[..used.len() - KINDS_MAX * 3 / 4] {
                self.kinds.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::ViewKey;

    fn kind(folder: &Path, words: &str) -> Kind {
        let path = TreePath::parse(folder.join("tool").as_os_str().as_bytes()).unwrap();
        let key = ViewKey { program: path.clone(), variant: None };
        let program = Program { key, path: path.clone(), real: path, script: None };
        let argv: Vec<Vec<u8>> = words.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        Kind::new(&program, &argv, b"/home")
    }

    fn unable() -> (tempfile::TempDir, Unable) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("tool"), "1").unwrap();
        let unable = Unable::load(&folder.path().join("unable.json"));
        (folder, unable)
    }

    #[test]
    fn a_command_word_stands_for_all_that_follow_and_other_words_for_themselves() {
        let (folder, unable) = unable();
        let of = |words: &str| kind(folder.path(), words);
        unable.note(&of("tool install one"), "it uses the network", false, 7);
        assert_eq!(unable.why(&of("tool install other"), 8).as_deref(), Some("it uses the network"));
        assert_eq!(unable.why(&of("tool build one"), 8), None);
        unable.note(&of("tool ./one"), "it locks", false, 7);
        assert_eq!(unable.why(&of("tool ./other"), 8), None);
        assert!(unable.why(&of("tool ./one"), 8).is_some());
    }

    #[test]
    fn what_uses_descriptors_is_kept_here_only_with_them() {
        let (folder, unable) = unable();
        let one = kind(folder.path(), "tool x");
        unable.note(&one.with_descriptors(), "it uses descriptor 5", false, 7);
        assert!(unable.why(&one.with_descriptors(), 8).is_some());
        assert_eq!(unable.why(&one, 8), None);
        let named = naming(&base::watch::uses_descriptor(5), 5, &[(5, "a file, /log".into())]);
        assert_eq!(named, "it uses descriptor 5 (a file, /log), which is open on this machine alone");
    }

    #[test]
    fn a_changed_program_is_tried_again_unless_that_would_fail_the_command() {
        for failed in [false, true] {
            let (folder, unable) = unable();
            unable.note(&kind(folder.path(), "tool x"), "why", failed, 7);
            std::fs::write(folder.path().join("tool"), "22").unwrap();
            assert_eq!(unable.why(&kind(folder.path(), "tool x"), 8).is_some(), failed);
        }
    }

    #[test]
    fn it_survives_a_restart_and_is_forgotten_when_it_is_old() {
        let (folder, unable) = unable();
        let one = kind(folder.path(), "tool x");
        unable.note(&one, "why", false, 7);
        unable.save().unwrap();
        let again = Unable::load(&folder.path().join("unable.json"));
        assert_eq!(again.why(&one, KEPT_SECONDS).as_deref(), Some("why"));
        assert_eq!(again.why(&one, 3 * KEPT_SECONDS), None, "a month after its last use");
        std::fs::write(folder.path().join("unable.json"), "[{").unwrap();
        assert_eq!(Unable::load(&folder.path().join("unable.json")).why(&one, 8), None);
    }

    #[test]
    fn it_is_bounded() {
        let (folder, unable) = unable();
        for number in 0..KINDS_MAX as u64 * 2 {
            unable.note(&kind(folder.path(), &format!("tool {number}")), &"é".repeat(9999), false, number);
        }
        assert!(lock(&unable.state).kinds.len() <= KINDS_MAX);
        assert!(unable.why(&kind(folder.path(), &format!("tool {}", KINDS_MAX * 2 - 1)), 9).is_some());
        unable.save().unwrap();
        assert!(std::fs::metadata(folder.path().join("unable.json")).unwrap().len() < FILE_BYTES_MAX);
    }
}

//! Commits that stopped in the middle and could be neither finished nor undone.
//!
//! Each start of the daemon tries again, [`STARTS_MAX`] times in all: a disk may be back, or room be made. Then the record is set
//! aside, with all that it needs, and is not tried any more. Until its owner has copied what there is of it, it is among what is kept.

use super::kept::{self, KEPT_MAX, KeptChange, KeptInfo, SHOWN_MAX};
use super::plan::{Plan, Step};
use super::stage::{Slot, Stages};
use super::tree::{Tree, os};
use super::{Committer, files};
use base::{TaskId, Time, TreePath};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// How often it is tried to finish or undo a commit.
const STARTS_MAX: u32 = 3;
/// Largest note, in bytes.
const NOTE_BYTES_MAX: u64 = 1 << 16;

/// A commit that could be neither finished nor undone.
struct Stuck {
    task: TaskId,
    record: PathBuf,
    why: String,
    at: Time,
}

impl Committer {
    /// Notes that a commit could be neither finished nor undone once more. Returns whether it was set aside for that.
    pub(super) fn note_stuck(&self, task: TaskId, record: &Path, why: &str) -> io::Result<bool> {
        let note = self.record(task, "why");
        let tries = read_note(&note).map_or(0, |(tries, _)| tries).saturating_add(1);
        std::fs::write(&note, format!("{tries}\n{why}"))?;
        if tries < STARTS_MAX {
            return Ok(false);
        }
        std::fs::rename(record, self.record(task, "aside"))?;
        Ok(true)
    }

    /// Forgets that a commit was stuck: it could be finished or undone after all.
    pub(super) fn forget_stuck(&self, task: TaskId) {
        // What stays is a note on nothing: the next start removes it.
        let _ = std::fs::remove_file(self.record(task, "why"));
    }

    /// The commits that are set aside, with the reasons; the oldest are forgotten where they are more than is kept.
    pub(super) fn set_aside(&self, tree: &Tree) -> Vec<(TaskId, String)> {
        let mut aside = self.stuck_commits();
        aside.retain(|stuck| stuck.record.extension().is_some_and(|extension| extension == "aside"));
        aside.sort_by_key(|stuck| std::cmp::Reverse((stuck.at, stuck.task)));
        for stuck in aside.split_off(aside.len().min(KEPT_MAX)) {
            self.forget(tree, &stuck);
        }
        aside.into_iter().map(|stuck| (stuck.task, stuck.why)).collect()
    }

    /// Whether the note or record at `path` belongs to a commit that is stuck.
    pub(super) fn is_of_stuck(&self, path: &Path) -> bool {
        let extension = path.extension().and_then(|extension| extension.to_str());
        match extension {
            Some("aside") => true,
            Some("why") => ["redo", "undo", "aside"].iter().any(|other| path.with_extension(other).exists()),
            _ => false,
        }
    }

    fn stuck_commits(&self) -> Vec<Stuck> {
        let Ok(entries) = std::fs::read_dir(self.state.join("redo")) else { return Vec::new() };
        let notes = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let notes = notes.filter(|path| path.extension().is_some_and(|extension| extension == "why"));
        notes.filter_map(|note| stuck_of(&note)).collect()
    }

    /// What is known of commits that are stuck, as of what is kept.
    pub(super) fn stuck_infos(&self) -> Vec<KeptInfo> {
        self.stuck_commits().iter().map(info_of).collect()
    }

    /// Whether `task` has a commit that is stuck.
    pub(super) fn is_stuck(&self, task: TaskId) -> bool {
        self.record(task, "why").exists()
    }

    /// Copies what there is of a stuck commit beneath `into`: new contents that are not in place, and what was in the places
    /// of those that are. `GLEANER-CHANGES` says what is what.
    pub(super) fn copy_stuck(&self, task: TaskId, into: &Path) -> io::Result<()> {
        let stuck = stuck_of(&self.record(task, "why")).ok_or_else(kept::nothing_kept)?;
        let plan = plan_of(&stuck.record)?;
        let tree = Tree::open(&self.root)?;
        let mut stages = Stages::reopen(&self.yard, &plan, &tree)?;
        let target = Tree::open(into)?;
        let mut lines = format!("{}\n", stuck.why);
        for step in &plan.steps {
            for (slot, what) in slots_of(step) {
                if let Some(kind) = copy_slot(&stages, slot, &target, step.path())? {
                    lines += &format!("{kind} {what} {}\n", step.path());
                }
            }
        }
        stages.leave();
        std::fs::write(into.join("GLEANER-CHANGES"), lines)
    }

    fn forget(&self, tree: &Tree, stuck: &Stuck) {
        let cleared = plan_of(&stuck.record).and_then(|plan| Stages::reopen(&self.yard, &plan, tree)?.clear(tree));
        if let Err(error) = cleared {
            tracing::warn!(task = %stuck.task, %error, "what a commit that stopped in the middle left could not be removed");
        }
        let _ = std::fs::remove_file(&stuck.record);
        self.forget_stuck(stuck.task);
    }
}

fn read_note(path: &Path) -> Option<(u32, String)> {
    let text = String::from_utf8(files::read_bounded(path, NOTE_BYTES_MAX).ok()?).ok()?;
    let (tries, why) = text.split_once('\n')?;
    Some((tries.parse().ok()?, why.to_owned()))
}

fn stuck_of(note: &Path) -> Option<Stuck> {
    let (_, why) = read_note(note)?;
    let task = TaskId(u128::from_str_radix(note.file_stem()?.to_str()?, 16).ok()?);
    let record = ["aside", "undo", "redo"].map(|extension| note.with_extension(extension));
    let record = record.into_iter().find(|record| record.exists())?;
    let since = record.metadata().ok()?.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(Stuck { task, record, why, at: Time(i64::try_from(since.as_nanos()).ok()?) })
}

fn plan_of(record: &Path) -> io::Result<Plan> {
    let bytes = files::read_bounded(record, super::recover::RECORD_BYTES_MAX)?;
    Plan::from_record(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
}

fn info_of(stuck: &Stuck) -> KeptInfo {
    let steps = plan_of(&stuck.record).map(|plan| plan.steps).unwrap_or_default();
    let mut paths: Vec<&TreePath> = steps.iter().map(Step::path).collect();
    paths.sort();
    paths.dedup();
    let line = |path: &TreePath| KeptChange { path: path.clone(), line: format!("in the middle {path}") };
    KeptInfo {
        task: stuck.task,
        argv: Vec::new(),
        at: stuck.at,
        why: format!("a commit stopped in the middle, and could be neither finished nor undone: {}", stuck.why),
        changes: paths.len() as u64,
        bytes: 0,
        shown: paths.into_iter().take(SHOWN_MAX / 8).map(line).collect(),
    }
}

/// The slots of a step, and what is in them while the step is not done.
fn slots_of(step: &Step) -> Vec<(Slot, &'static str)> {
    match step {
        Step::Open { .. } | Step::Attributes { .. } | Step::RemoveDirectory { .. } => Vec::new(),
        Step::Detach { slot, .. } => vec![(*slot, "was at")],
        Step::Place { slot, .. } => vec![(*slot, "belongs to, or was at,")],
        Step::Append { slot, .. } => vec![(*slot, "is to be added to")],
        Step::Overwrite { slot, undo, .. } => vec![(*slot, "is to be in"), (*undo, "was in")],
    }
}

/// Copies the file or link in `slot` to `path` beneath `target`, or beside it where something is there already. Returns what it
/// was, with the name of the copy; `None` if nothing is there that can be copied.
fn copy_slot(stages: &Stages<'_>, slot: Slot, target: &Tree, path: &TreePath) -> io::Result<Option<String>> {
    let Some(node) = stages.node(slot)? else { return Ok(None) };
    if !node.is_file() && node.kind != FileType::Symlink {
        return Ok(Some("not copied, but kept: the directory or pipe that".to_owned()));
    }
    let parent = path.parent().unwrap_or_else(TreePath::root);
    kept::make_folders(target, &parent)?;
    let parent = target.directory(&parent)?;
    let mut name = path.name().to_vec();
    while rustix::fs::statat(&*parent, os(&name), AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        name.extend_from_slice(b".2");
    }
    let shown = base::path::printable(&name);
    if node.kind == FileType::Symlink {
        let link = rustix::fs::readlinkat(stages.held(slot.folder), os(&stages.name(slot)), Vec::new())?;
        rustix::fs::symlinkat(link.as_c_str(), &*parent, os(&name))?;
    } else {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&*parent, os(&name), flags, Mode::from_raw_mode(0o600))?);
        files::copy_content(&stages.open(slot)?, &file)?;
    }
    Ok(Some(format!("{shown}: what")))
}

//! One view's table: its paths in order, what each is, and how to check them all quickly.
//!
//! Paths are checked by their absolute names. Names relative to held directories were measured a fifth cheaper (0.3 us of
//! 1.5 a path), which is not worth thousands of open descriptors.

mod marks;
mod moved;

pub use marks::NotBound;

use super::epoch::{Adopted, Epoch};
use super::ledger::{Known, Ledger};
use super::{PATHS_MAX, VIEW_BYTES_MAX};
use crate::policy::{Access, FileFacts, Gate};
use crate::snapshot::{BindError, Observed, Snapshot, Stamp, attr_of, look_at_mounts, stat_at};
use base::{Attr, Binding, Bound, Seq, TreePath, Version, ViewId, ViewUpdate};
use marks::Marks;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound::{Included, Unbounded};

/// Drops that are remembered: a hub that is further behind gets the whole view.
const DROPS_MAX: usize = 8192;
/// Paths known to be absent one by one; beyond, all of them are learned anew.
const ABSENT_MAX: usize = 2_000;
/// A view with more paths than this leaves out where walks went, once a command is about something else.
const PATHS_BEFORE_LEAVING: usize = 20_000;
/// Paths that are worth a thread that looks at them, and the most such threads.
const PATHS_FOR_A_THREAD: usize = 8_192;
const THREADS_MAX: usize = 8;
/// Changes that are remembered in their order.
const CHANGED_MAX: usize = 16_384;
/// A view with more paths than this forgets those that were not used in the last [`UNUSED_SWEEPS_MAX`] sweeps.
const PATHS_BEFORE_AGEING: usize = 4_000;
const UNUSED_SWEEPS_MAX: u32 = 512;

/// One path of a view.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub seq: Seq,
    /// The version of the view that brought this binding.
    pub version: u64,
    pub stamp: Option<Stamp>,
    pub binding: Binding,
    pub access: Access,
    facts: FileFacts,
    /// A change would show in the stamp.
    settled: bool,
    /// A change by a call would.
    tells_calls: bool,
    /// The view had nothing at the path before.
    is_first: bool,
    /// To be bound anew whatever the stamp says.
    stale: bool,
    /// The sweep after which it was last used.
    used: u32,
    /// It was brought ahead of a walk.
    walked: bool,
}

/// How paths are looked at.
pub(super) struct Look<'a> {
    pub snapshot: &'a Snapshot,
    pub ledger: &'a Ledger,
    pub gate: &'a dyn Gate,
    /// The job's epoch, in a view of a job.
    pub epoch: Option<&'a Epoch>,
    /// Told what each path that is bound anew was found to be.
    pub seen: &'a dyn Fn(&Binding),
}

impl Look<'_> {
    fn bind(&self, path: &TreePath) -> Result<Observed, BindError> {
        match self.epoch {
            Some(epoch) => epoch.bind(path, self.gate, self.snapshot),
            None => self.snapshot.bind(path, self.gate),
        }
    }
}

/// The paths of one view.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: BTreeMap<TreePath, Entry>,
    /// Paths that were learned and not yet looked at.
    pending: BTreeSet<TreePath>,
    version: u64,
    /// As they travel, about.
    bytes: usize,
    /// Who is behind this version gets the whole view.
    floor: u64,
    dropped: VecDeque<(u64, TreePath)>,
    /// The last changes, and the version up to which they are not all among them.
    changed: VecDeque<(u64, TreePath)>,
    unchanged: u64,
    absent: usize,
    sweeps: u32,
    fingerprint: Option<u64>,
    unsaved: bool,
    marks: Marks,
}

impl Table {
    /// A table of paths that are yet to be looked at.
    pub fn new(paths: Vec<TreePath>, unsaved: bool) -> Self {
        let pending = paths.into_iter().take(PATHS_MAX).collect();
        Self { pending, unsaved, ..Self::default() }
    }

    pub fn len(&self) -> usize {
        self.entries.len() + self.pending.len()
    }

    pub fn version(&self) -> Version {
        Version(self.version)
    }

    pub fn has(&self, path: &TreePath) -> bool {
        self.entries.contains_key(path)
    }

    pub fn binding(&self, path: &TreePath) -> Option<&Binding> {
        Some(&self.entries.get(path)?.binding)
    }

    pub fn each_path(&self, mut shown: impl FnMut(&TreePath, &Binding)) {
        self.entries.iter().for_each(|(path, entry)| shown(path, &entry.binding));
    }

    /// The policy under which all of it was last checked.
    pub fn fingerprint(&self) -> Option<u64> {
        self.fingerprint
    }

    #[cfg(test)]
    pub fn sweeps(&self) -> u32 {
        self.sweeps
    }

    pub fn touch(&mut self, path: &TreePath) {
        if let Some(entry) = self.entries.get_mut(path) {
            entry.used = self.sweeps;
        }
    }

    pub fn mark_walked(&mut self, path: &TreePath) {
        if let Some(entry) = self.entries.get_mut(path) {
            entry.walked = true;
        }
    }

    /// Leaves out where walks went, if that is much and beneath none of the paths that a command is about, of which each has `/tmp`.
    pub fn leave_walks(&mut self, about: &[TreePath]) {
        if self.entries.len() <= PATHS_BEFORE_LEAVING {
            return;
        }
        let about = |path: &TreePath| about.iter().any(|about| about.as_bytes() != b"/tmp" && path.is_within(about));
        let walked = self.entries.iter().filter(|(path, entry)| entry.walked && !about(path));
        self.leave(walked.map(|(path, _)| path.clone()).collect());
    }

    /// Leaves these out: who uses one asks for it.
    pub fn leave(&mut self, paths: Vec<TreePath>) {
        let next = self.version + 1;
        paths.iter().for_each(|path| self.drop_within(path, next));
    }

    pub fn mark_stale(&mut self, path: &TreePath) {
        if let Some(entry) = self.entries.get_mut(path) {
            entry.stale = true;
        }
    }

    pub fn known(&self, path: &TreePath, seq: Seq) -> Option<Known> {
        let entry = self.entries.get(path).filter(|entry| entry.seq == seq)?;
        Some(Known::of(entry.stamp, &entry.binding))
    }

    /// Notes paths that the next sweep is to look at.
    pub fn expect<'a>(&mut self, paths: impl Iterator<Item = &'a TreePath>) {
        let room = PATHS_MAX.saturating_sub(self.len());
        let news: Vec<TreePath> = paths.filter(|path| !self.has(path)).take(room).cloned().collect();
        self.unsaved |= !news.is_empty();
        self.pending.extend(news);
    }

    /// The same paths, as they are now.
    fn copy(&self) -> Self {
        Self {
            entries: self.entries.clone(),
            dropped: self.dropped.clone(),
            changed: self.changed.clone(),
            marks: self.marks.present(),
            pending: BTreeSet::new(),
            unsaved: false,
            ..*self
        }
    }

    /// A copy for a job, in which every path is what it was when the job's epoch began.
    pub fn in_epoch(&self, epoch: &Epoch, look: &Look<'_>) -> Self {
        let mut copy = self.copy();
        let next = copy.version + 1;
        for path in self.entries.keys() {
            // It may have been dropped with the directory that it is in.
            let Some(entry) = copy.entries.get(path) else { continue };
            match epoch.adopt(path, &entry.observed(), look.gate) {
                Adopted::Same => {}
                Adopted::Other(observed) => copy.put(path, *observed, next, look.ledger),
                Adopted::Late => copy.drop_within(path, next),
            }
        }
        copy
    }

    /// Checks every path, and binds anew what changed.
    pub fn sweep(&mut self, look: &Look<'_>) {
        self.sweeps = self.sweeps.wrapping_add(1);
        look_at_mounts();
        let fingerprint = look.gate.fingerprint();
        let policy = (self.fingerprint != Some(fingerprint)).then_some(look.gate);
        let mut suspects = self.suspects(policy);
        self.take_pending(&mut suspects);
        self.rebind_all(suspects, look);
        self.fingerprint = Some(fingerprint);
        self.age();
    }

    /// The paths that have to be bound anew.
    fn suspects(&self, policy: Option<&dyn Gate>) -> BTreeSet<TreePath> {
        let is_suspect = |(path, entry): &(&TreePath, &Entry)| entry.is_suspect(path, policy);
        if self.entries.len() < PATHS_FOR_A_THREAD {
            return self.entries.iter().filter(is_suspect).map(|(path, _)| path.clone()).collect();
        }
        let entries: Vec<(&TreePath, &Entry)> = self.entries.iter().collect();
        let threads = std::thread::available_parallelism().map_or(1, |count| count.get().min(THREADS_MAX));
        let part = entries.len().div_ceil(threads).max(PATHS_FOR_A_THREAD);
        let look = |part: &[(&TreePath, &Entry)]| -> Vec<TreePath> {
            part.iter().copied().filter(|entry| is_suspect(entry)).map(|(path, _)| path.clone()).collect()
        };
        std::thread::scope(|scope| {
            let spawn = |part| std::thread::Builder::new().spawn_scoped(scope, move || look(part)).ok();
            let parts: Vec<_> = entries.chunks(part).map(|part| (part, spawn(part))).collect();
            // Without a thread it takes longer.
            let found = parts.into_iter().flat_map(|(part, thread)| match thread.map(|thread| thread.join()) {
                Some(Ok(found)) => found,
                _ => look(part),
            });
            found.collect()
        })
    }

    /// Adds paths and looks at them.
    pub fn add_all(&mut self, paths: Vec<TreePath>, look: &Look<'_>) {
        if paths.is_empty() {
            return;
        }
        self.pending.extend(paths);
        let mut suspects = BTreeSet::new();
        self.take_pending(&mut suspects);
        self.rebind_all(suspects, look);
    }

    /// What a path is at its first use.
    pub fn fault(&mut self, path: &TreePath, look: &Look<'_>) -> Result<Bound, BindError> {
        let ledger = look.ledger;
        if self.fingerprint != Some(look.gate.fingerprint()) {
            // A command of another policy shares the view: the next sweep decides anew for each path.
            self.fingerprint = None;
        }
        let is_full = || {
            let has_paths = self.entries.len() + path.components().count() >= PATHS_MAX;
            has_paths || self.bytes + path.way_bytes() > VIEW_BYTES_MAX
        };
        if !self.has(path) && is_full() {
            self.empty();
        }
        let next = self.version + 1;
        for directory in path.way() {
            if self.entries.get(&directory).is_none_or(|entry| entry.stale) {
                let observed = look.bind(&directory)?;
                self.put(&directory, observed, next, ledger);
            }
            match self.entries.get(&directory).map(|entry| &entry.binding) {
                Some(Binding::Directory { .. }) => {}
                Some(Binding::Denied) => return Ok(self.unkept(path, Binding::Denied, ledger)),
                _ => return Ok(self.unkept(path, Binding::Absent, ledger)),
            }
        }
        if let Some(entry) = self.entries.get_mut(path).filter(|entry| !entry.stale) {
            entry.used = self.sweeps;
            return Ok(Bound { path: path.clone(), seq: entry.seq, binding: entry.binding.clone() });
        }
        let observed = look.bind(path)?;
        let binding = observed.binding.clone();
        self.put(path, observed, next, ledger);
        match self.entries.get(path) {
            Some(entry) => Ok(Bound { path: path.clone(), seq: entry.seq, binding: entry.binding.clone() }),
            None => Ok(self.unkept(path, binding, ledger)),
        }
    }

    /// An answer that is not in the table, from which no sweep would tell that it has changed: who gets it drops it at its next step.
    fn unkept(&mut self, path: &TreePath, binding: Binding, ledger: &Ledger) -> Bound {
        self.drop_elsewhere(path, self.version + 1);
        let bound = unbound(path, binding, ledger);
        self.marks.begin(path, bound.seq, &bound.binding);
        self.marks.end(bound.seq, self.version);
        bound
    }

    /// The step from `from` to now; from nothing, if it is not known any more what `from` was.
    pub fn update_since(&self, view: ViewId, from: Version) -> ViewUpdate {
        let version = Version(self.version);
        let bound = |(path, entry): (&TreePath, &Entry)| Bound {
            path: path.clone(),
            seq: entry.seq,
            binding: entry.binding.clone(),
        };
        if from.0 == 0 || from.0 < self.floor || from > version {
            let set = self.entries.iter().map(bound).collect();
            return ViewUpdate { view, base: Version(0), version, set, drop: Vec::new() };
        }
        if from == version {
            return ViewUpdate { view, base: from, version, set: Vec::new(), drop: Vec::new() };
        }
        let set = match from.0 >= self.unchanged {
            true => self.changed_since(from.0).into_iter().map(bound).collect(),
            false => self.entries.iter().filter(|(_, entry)| entry.version > from.0).map(bound).collect(),
        };
        let gone = self.dropped.iter().filter(|(at, path)| *at > from.0 && !self.entries.contains_key(path));
        let drop: BTreeSet<TreePath> = gone.map(|(_, path)| path.clone()).collect();
        ViewUpdate { view, base: from, version, set, drop: drop.into_iter().collect() }
    }

    /// What changed after a version up to which the changes are remembered.
    fn changed_since(&self, from: u64) -> BTreeMap<&TreePath, &Entry> {
        let changed = self.changed.iter().rev().take_while(|(version, _)| *version > from);
        let there = changed.filter_map(|(_, path)| self.entries.get_key_value(path));
        there.filter(|(_, entry)| entry.version > from).collect()
    }

    /// The paths, if they are others than when they were last taken.
    pub fn take_unsaved(&mut self) -> Option<Vec<TreePath>> {
        if !std::mem::take(&mut self.unsaved) {
            return None;
        }
        let present = self.entries.iter().filter(|(_, entry)| entry.binding != Binding::Absent && !entry.walked);
        Some(present.map(|(path, _)| path.clone()).chain(self.pending.iter().cloned()).collect())
    }

    pub fn set_unsaved(&mut self) {
        self.unsaved = true;
    }

    /// Moves the paths that were not yet looked at to `suspects`, with the directories on the way to them.
    fn take_pending(&mut self, suspects: &mut BTreeSet<TreePath>) {
        for path in std::mem::take(&mut self.pending) {
            let mut next = Some(path);
            while let Some(path) = next.filter(|path| !self.entries.contains_key(path) && !suspects.contains(path)) {
                next = path.parent();
                suspects.insert(path);
            }
        }
        if self.entries.len() + suspects.len() > PATHS_MAX || self.bytes > VIEW_BYTES_MAX {
            self.empty();
            suspects.clear();
        }
    }

    /// Binds paths anew, in order: directories before what is in them.
    fn rebind_all(&mut self, paths: BTreeSet<TreePath>, look: &Look<'_>) {
        let next = self.version + 1;
        for path in paths {
            let parent = path.parent().and_then(|parent| self.entries.get(&parent));
            let in_directory = parent.is_some_and(|entry| matches!(entry.binding, Binding::Directory { .. }));
            if !path.is_root() && !in_directory {
                self.drop_within(&path, next);
                continue;
            }
            match look.bind(&path) {
                Ok(observed) => {
                    (look.seen)(&observed.binding);
                    self.put(&path, observed, next, look.ledger);
                }
                // Who uses it will ask, and be told the error; who does not is not bothered.
                Err(error) => {
                    tracing::debug!(%error, "left out of the view");
                    self.drop_within(&path, next);
                }
            }
        }
    }

    /// Enters what a path was found to be. An absence that the directory's listing shows is not kept.
    fn put(&mut self, path: &TreePath, observed: Observed, next: u64, ledger: &Ledger) {
        let is_directory = matches!(observed.binding, Binding::Directory { .. });
        if !is_directory {
            self.drop_beneath(path, next);
        }
        let parent = path.parent().and_then(|parent| self.entries.get(&parent));
        let listed = parent.is_some_and(|entry| matches!(entry.binding, Binding::Directory { listing: Some(_), .. }));
        if observed.binding == Binding::Absent && listed {
            self.drop_within(path, next);
            return;
        }
        if matches!(observed.binding, Binding::Directory { listing: Some(_), .. }) && self.absent > 0 {
            self.drop_absent_in(path, next);
        }
        let before = self.entries.get(path);
        let (seq, version) = match before {
            Some(entry) if is_same(path, entry, &observed) => (entry.seq, entry.version),
            _ => {
                let seq = ledger.enter(path, &observed);
                self.marks.begin(path, seq, &observed.binding);
                before.into_iter().for_each(|before| self.marks.end(before.seq, next));
                (seq, next)
            }
        };
        if version == next {
            self.version = next;
            self.unsaved |= before.is_none();
            self.changed.push_back((next, path.clone()));
        }
        if self.changed.len() > CHANGED_MAX
            && let Some((at, _)) = self.changed.pop_front()
        {
            self.unchanged = self.unchanged.max(at);
        }
        let used = before.map_or(self.sweeps, |entry| entry.used);
        let walked = before.is_some_and(|entry| entry.walked);
        let was_absent = before.is_some_and(|entry| entry.binding == Binding::Absent);
        self.absent += usize::from(observed.binding == Binding::Absent);
        self.absent -= usize::from(was_absent);
        self.bytes -= before.map_or(0, |entry| bytes_of(path, &entry.binding));
        self.bytes += bytes_of(path, &observed.binding);
        let Observed { binding, stamp, access, facts, settled, tells_calls } = observed;
        let is_first = before.is_none_or(|entry| entry.is_first && entry.version == version);
        let entry = Entry {
            seq,
            version,
            stamp,
            binding,
            access,
            facts,
            settled,
            tells_calls,
            is_first,
            stale: false,
            used,
            walked,
        };
        self.entries.insert(path.clone(), entry);
    }

    fn drop_within(&mut self, path: &TreePath, next: u64) {
        self.drop_beneath(path, next);
        self.remove(path, next);
    }

    fn drop_beneath(&mut self, path: &TreePath, next: u64) {
        // No name sorts before this one.
        let first = path.join(b"\x01");
        let beneath = self.entries.range((Included(first), Unbounded)).map(|(path, _)| path);
        let gone: Vec<TreePath> = beneath.take_while(|other| other.is_within(path)).cloned().collect();
        for path in gone {
            self.remove(&path, next);
        }
    }

    fn drop_absent_in(&mut self, directory: &TreePath, next: u64) {
        let first = directory.join(b"\x01");
        let beneath =
            self.entries.range((Included(first), Unbounded)).take_while(|(path, _)| path.is_within(directory));
        let absent = beneath.filter(|(path, entry)| {
            entry.binding == Binding::Absent && path.parent().is_some_and(|parent| parent == *directory)
        });
        let gone: Vec<TreePath> = absent.map(|(path, _)| path.clone()).collect();
        for path in gone {
            self.remove(&path, next);
        }
    }

    fn remove(&mut self, path: &TreePath, next: u64) {
        let Some(entry) = self.entries.remove(path) else { return };
        self.marks.end(entry.seq, next);
        self.absent -= usize::from(entry.binding == Binding::Absent);
        self.bytes -= bytes_of(path, &entry.binding);
        self.unsaved = true;
        self.drop_elsewhere(path, next);
    }

    /// Has who holds the path drop it.
    fn drop_elsewhere(&mut self, path: &TreePath, next: u64) {
        self.version = next;
        self.dropped.push_back((next, path.clone()));
        if self.dropped.len() > DROPS_MAX
            && let Some((at, _)) = self.dropped.pop_front()
        {
            self.floor = self.floor.max(at);
        }
    }

    /// Forgets everything: a view that grew beyond its bound is learned anew.
    fn empty(&mut self) {
        self.end_all(self.version + 1);
        self.entries.clear();
        self.dropped.clear();
        self.changed.clear();
        (self.absent, self.bytes) = (0, 0);
        self.version += 1;
        self.floor = self.version;
        self.unchanged = self.version;
        self.unsaved = true;
    }

    fn age(&mut self) {
        let next = self.version + 1;
        let crowded = self.entries.len() > PATHS_BEFORE_AGEING;
        if self.absent <= ABSENT_MAX && !crowded {
            return;
        }
        let too_many_absent = self.absent > ABSENT_MAX;
        let now = self.sweeps;
        let old = |entry: &Entry| {
            let unused = now.wrapping_sub(entry.used) > UNUSED_SWEEPS_MAX;
            match entry.binding {
                Binding::Absent => too_many_absent || (crowded && unused),
                // What is in it would be lost with it.
                Binding::Directory { .. } => false,
                _ => crowded && unused,
            }
        };
        let gone = self.entries.iter().filter(|(_, entry)| old(entry)).map(|(path, _)| path.clone());
        for path in gone.collect::<Vec<_>>() {
            self.remove(&path, next);
        }
    }
}

impl Entry {
    fn observed(&self) -> Observed {
        let Self { binding, stamp, access, facts, settled, tells_calls, .. } = self.clone();
        Observed { binding, stamp, access, facts, settled, tells_calls }
    }

    /// Whether the path has to be bound anew: its stamp changed, or would not show it, or the policy has changed.
    fn is_suspect(&self, path: &TreePath, policy: Option<&dyn Gate>) -> bool {
        if self.stale || !self.settled {
            return true;
        }
        let Some(stamp) = self.stamp else {
            return match (&self.binding, stat_at(path.as_bytes())) {
                (Binding::Absent, Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG)) => false,
                (Binding::Denied, Err(Errno::ACCESS | Errno::PERM)) => false,
                // A folder that every worker has of its own.
                (Binding::Directory { .. }, Ok(_)) => false,
                _ => true,
            };
        };
        if policy.is_some_and(|gate| gate.access(path, &self.facts) != self.access) {
            return true;
        }
        let Ok(stat) = stat_at(path.as_bytes()) else { return true };
        let is_accessed = |before: &Attr| !attr_of(&stat).is_accessed_as(before);
        Stamp::of(&stat) != stamp || (self.binding.attr().is_some_and(is_accessed) && shows_access(path, &self.binding))
    }
}

/// Whether two looks at `path` found the same.
fn is_same(path: &TreePath, entry: &Entry, observed: &Observed) -> bool {
    let is_denied = |access| matches!(access, Access::Deny(_));
    let mount = |stamp: Option<Stamp>| stamp.map(|stamp| stamp.mount);
    let attrs = entry.binding.attr().zip(observed.binding.attr());
    entry.binding == observed.binding
        && (attrs.is_none_or(|(before, now)| now.is_accessed_as(before)) || !shows_access(path, &observed.binding))
        && is_denied(entry.access) == is_denied(observed.access)
        && mount(entry.stamp) == mount(observed.stamp)
}

/// Whether a view follows the time of the last access when that alone has moved. Not of the distribution's files, which are
/// many, and not of links and of what others own, since looking at these moves it.
fn shows_access(path: &TreePath, binding: &Binding) -> bool {
    let user = rustix::process::geteuid().as_raw();
    let may_look = |attr: &Attr| (user == 0 || attr.uid == user) && !attr.is_of_system(path);
    !matches!(binding, Binding::Symlink { .. }) && binding.attr().is_some_and(may_look)
}

/// How much a path and what it is take in a message, about.
fn bytes_of(path: &TreePath, binding: &Binding) -> usize {
    const OTHERS: usize = 150;
    let xattrs: usize = binding.xattrs().iter().map(|xattr| xattr.name.len() + xattr.value.len()).sum();
    let target = if let Binding::Symlink { target, .. } = binding { target.len() } else { 0 };
    OTHERS + path.as_bytes().len() + xattrs + target
}

fn unbound(path: &TreePath, binding: Binding, ledger: &Ledger) -> Bound {
    let observed = Observed { binding, ..Observed::absent() };
    Bound { path: path.clone(), seq: ledger.enter(path, &observed), binding: observed.binding }
}

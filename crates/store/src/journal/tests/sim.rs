//! A disk in memory that knows what a power cut would leave of it, and that fails when it is told to.

use crate::disk::{Access, Disk, DiskFile};
use crate::lock;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// A file: what reading gives, what a power cut leaves for certain, and the writes in between.
#[derive(Clone, Debug, Default)]
struct Inode {
    now: Vec<u8>,
    safe: Vec<u8>,
    pending: Vec<(usize, Vec<u8>)>,
}

#[derive(Clone, Debug)]
enum NameChange {
    /// The file has this name, and has lost that one.
    Put(OsString, usize, Option<OsString>),
    Remove(OsString),
}

type Names = BTreeMap<OsString, usize>;

/// All that is on the disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    inodes: Vec<Inode>,
    names: Names,
    safe_names: Names,
    pending_names: Vec<NameChange>,
}

/// What a power cut leaves of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    Lost,
    Kept,
    /// Of the last write to each file the first bytes.
    Torn(usize),
    /// Any sectors of any write, and any changes of names.
    Random(u64),
}

/// When operations fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The first operation that fails, counted from the beginning.
    pub at: usize,
    pub errno: Errno,
    /// Whether only that one does.
    pub once: bool,
    /// Only operations that change something count, and fail.
    pub is_of_changes: bool,
}

#[derive(Default)]
struct State {
    world: World,
    operations: usize,
    changes: usize,
    fault: Option<Fault>,
    fail_create: Option<Errno>,
    /// The world before each operation that changes it, and what had been told durable then.
    history: Option<Vec<(World, u64)>>,
}

/// The disk. Clones are the same disk.
#[derive(Clone, Default)]
pub(crate) struct SimDisk {
    state: Arc<Mutex<State>>,
    /// The last record that was told durable.
    pub told: Arc<AtomicU64>,
}

struct SimFile {
    disk: SimDisk,
    inode: usize,
}

/// A random number; the state is never zero.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn apply_write(bytes: &mut Vec<u8>, at: usize, written: &[u8]) {
    if bytes.len() < at + written.len() {
        bytes.resize(at + written.len(), 0);
    }
    bytes[at..at + written.len()].copy_from_slice(written);
}

fn apply_name(names: &mut Names, change: &NameChange) {
    match change {
        NameChange::Put(name, inode, lost) => {
            if let Some(lost) = lost.as_ref().filter(|lost| names.get(*lost) == Some(inode)) {
                names.remove(lost);
            }
            names.insert(name.clone(), *inode);
        }
        NameChange::Remove(name) => drop(names.remove(name)),
    }
}

impl Inode {
    fn after(&self, crash: Crash, seed: &mut u64) -> Self {
        let mut left = self.safe.clone();
        for (nth, (at, bytes)) in self.pending.iter().enumerate() {
            match crash {
                Crash::Lost => {}
                Crash::Torn(keep) if nth + 1 == self.pending.len() => {
                    apply_write(&mut left, *at, &bytes[..keep.min(bytes.len())]);
                }
                Crash::Kept | Crash::Torn(_) => apply_write(&mut left, *at, bytes),
                Crash::Random(_) => {
                    for (sector, part) in bytes.chunks(512).enumerate() {
                        // A whole sector, nothing of it, or its first bytes.
                        let keep = [part.len(), 0, random(seed) as usize % part.len()][random(seed) as usize % 3];
                        apply_write(&mut left, at + sector * 512, &part[..keep]);
                    }
                }
            }
        }
        Self { now: left.clone(), safe: left, pending: Vec::new() }
    }
}

impl World {
    /// The world after a power cut.
    pub fn after(&self, crash: Crash) -> Self {
        let mut seed = if let Crash::Random(seed) = crash { seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 } else { 1 };
        let mut names = self.safe_names.clone();
        for change in &self.pending_names {
            let is_kept = match crash {
                Crash::Lost => false,
                Crash::Kept | Crash::Torn(_) => true,
                Crash::Random(_) => random(&mut seed).is_multiple_of(2),
            };
            if is_kept {
                apply_name(&mut names, change);
            }
        }
        let inodes = self.inodes.iter().map(|inode| inode.after(crash, &mut seed)).collect();
        Self { inodes, safe_names: names.clone(), names, pending_names: Vec::new() }
    }

    /// Length of the longest write that is not synced.
    pub fn pending_len(&self) -> usize {
        self.inodes.iter().filter_map(|inode| inode.pending.last()).map(|(_, bytes)| bytes.len()).max().unwrap_or(0)
    }
}

impl SimDisk {
    /// A disk that holds this.
    pub fn of(world: World) -> Self {
        let state = State { world, ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), told: Arc::default() }
    }

    pub fn world(&self) -> World {
        lock(&self.state).world.clone()
    }

    pub fn record(&self) {
        lock(&self.state).history = Some(Vec::new());
    }

    /// What was recorded, and the present as its end.
    pub fn history(&self) -> Vec<(World, u64)> {
        let mut state = lock(&self.state);
        let mut history = state.history.take().unwrap();
        history.push((state.world.clone(), self.told.load(SeqCst)));
        history
    }

    pub fn set_fault(&self, fault: Option<Fault>) {
        lock(&self.state).fault = fault;
    }

    /// Has all attempts to create a file fail.
    pub fn fail_create(&self, errno: Option<Errno>) {
        lock(&self.state).fail_create = errno;
    }

    /// How many operations there were.
    pub fn operations(&self) -> usize {
        lock(&self.state).operations
    }

    /// How many of them changed something.
    pub fn changes(&self) -> usize {
        lock(&self.state).changes
    }

    pub fn names(&self) -> Vec<String> {
        lock(&self.state).world.names.keys().map(|name| name.to_str().unwrap().to_owned()).collect()
    }

    /// A file's bytes, to be looked at or changed as damage would.
    pub fn with<T>(&self, name: &str, look: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let mut state = lock(&self.state);
        let inode = state.world.names[&OsString::from(name)];
        let out = look(&mut state.world.inodes[inode].now);
        state.world.inodes[inode].safe = state.world.inodes[inode].now.clone();
        out
    }

    /// Takes a file away as if it had never been.
    pub fn lose(&self, name: &str) {
        let mut state = lock(&self.state);
        state.world.names.remove(&OsString::from(name)).unwrap();
        state.world.safe_names.remove(&OsString::from(name));
    }
}

impl State {
    fn check(&mut self) -> io::Result<()> {
        self.operations += 1;
        self.outcome(false, self.operations - 1)
    }

    fn outcome(&self, is_of_changes: bool, at: usize) -> io::Result<()> {
        match self.fault.filter(|fault| fault.is_of_changes == is_of_changes) {
            Some(fault) if at == fault.at || (at > fault.at && !fault.once) => Err(fault.errno.into()),
            _ => Ok(()),
        }
    }

    fn change(&mut self, told: &AtomicU64) -> io::Result<()> {
        if let Some(history) = &mut self.history {
            history.push((self.world.clone(), told.load(SeqCst)));
        }
        self.changes += 1;
        self.outcome(true, self.changes - 1).and(self.check())
    }

    fn rename(&mut self, change: NameChange) {
        apply_name(&mut self.world.names, &change);
        self.world.pending_names.push(change);
    }

    fn find(&self, path: &Path) -> io::Result<usize> {
        let name = path.file_name().unwrap();
        self.world.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn name(path: &Path) -> OsString {
    path.file_name().unwrap().to_owned()
}

impl Disk for SimDisk {
    fn list(&self, _: &Path) -> io::Result<Vec<OsString>> {
        let mut state = lock(&self.state);
        state.check()?;
        Ok(state.world.names.keys().cloned().collect())
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        let mut state = lock(&self.state);
        if access == Access::Create {
            state.change(&self.told)?;
            if let Some(errno) = state.fail_create {
                return Err(errno.into());
            }
            if state.find(path).is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            let inode = state.world.inodes.len();
            state.world.inodes.push(Inode::default());
            state.rename(NameChange::Put(name(path), inode, None));
        } else {
            state.check()?;
        }
        let inode = state.find(path)?;
        Ok(Box::new(SimFile { disk: self.clone(), inode }))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.change(&self.told)?;
        state.find(path)?;
        state.rename(NameChange::Remove(name(path)));
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.change(&self.told)?;
        let inode = state.find(from)?;
        state.rename(NameChange::Put(name(to), inode, Some(name(from))));
        Ok(())
    }

    fn sync_names(&self, _: &Path) -> io::Result<()> {
        let mut state = lock(&self.state);
        let outcome = state.change(&self.told);
        let World { safe_names, pending_names, .. } = &mut state.world;
        for change in pending_names.drain(..).filter(|_| outcome.is_ok()) {
            apply_name(safe_names, &change);
        }
        outcome
    }
}

impl DiskFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        let mut state = lock(&self.disk.state);
        state.check()?;
        Ok(state.world.inodes[self.inode].now.len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = lock(&self.disk.state);
        state.check()?;
        let bytes = &state.world.inodes[self.inode].now;
        let rest = bytes.get(offset as usize..).unwrap_or(&[]);
        let count = rest.len().min(buf.len());
        buf[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let mut bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let mut state = lock(&self.disk.state);
        let outcome = state.change(&self.disk.told);
        if outcome.is_err() {
            // Some of it may have been written all the same.
            bytes.truncate(bytes.len() / 2);
        }
        let inode = &mut state.world.inodes[self.inode];
        apply_write(&mut inode.now, offset as usize, &bytes);
        let count = bytes.len();
        inode.pending.push((offset as usize, bytes));
        outcome.map(|()| count)
    }

    fn truncate(&self, _: u64) -> io::Result<()> {
        unreachable!("the journal cuts no file")
    }

    /// A sync that fails leaves the bytes to be read, and forgets that they are not on the disk.
    fn sync(&self) -> io::Result<()> {
        let mut state = lock(&self.disk.state);
        let outcome = state.change(&self.disk.told);
        let Inode { safe, pending, .. } = &mut state.world.inodes[self.inode];
        for (at, bytes) in pending.drain(..).filter(|_| outcome.is_ok()) {
            apply_write(safe, at, &bytes);
        }
        outcome
    }
}

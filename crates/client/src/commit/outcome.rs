//! How the last tasks ended whose changes are committed: survives the daemon, for a remrun that outlived it.
//!
//! A file of fixed entries, written round and round: 16 bytes task, 2 bytes status, 8 bytes serial number, 6 bytes of a
//! digest of these.

use base::codec::{Encode, Reader, Writer};
use base::{Digest, ExitStatus, TaskId};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Tasks remembered.
pub const OUTCOMES_MAX: u64 = 4096;
const ENTRY_BYTES: u64 = 32;

/// The log, held in memory and in its file.
pub(crate) struct Outcomes {
    file: File,
    next: u64,
    by_task: HashMap<TaskId, ExitStatus>,
    by_place: HashMap<u64, TaskId>,
}

impl Outcomes {
    /// Reads the log at `path`, or starts one. Entries that were not written to their end are forgotten.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut bytes = vec![0u8; (file.metadata()?.len().min(OUTCOMES_MAX * ENTRY_BYTES)) as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let mut outcomes = Self { file, next: 1, by_task: HashMap::new(), by_place: HashMap::new() };
        let mut found: Vec<(u64, TaskId, ExitStatus)> =
            bytes.chunks_exact(ENTRY_BYTES as usize).filter_map(parse).collect();
        found.sort_by_key(|(serial, ..)| *serial);
        for (serial, task, status) in found {
            outcomes.by_task.insert(task, status);
            outcomes.by_place.insert(serial % OUTCOMES_MAX, task);
            outcomes.next = serial + 1;
        }
        Ok(outcomes)
    }

    /// How `task` ended.
    pub(crate) fn get(&self, task: TaskId) -> Option<ExitStatus> {
        self.by_task.get(&task).copied()
    }

    /// Remembers how `task` ended; the oldest is forgotten.
    pub(crate) fn add(&mut self, task: TaskId, status: ExitStatus, durable: bool) -> io::Result<()> {
        if self.by_task.contains_key(&task) {
            return Ok(());
        }
        let place = self.next % OUTCOMES_MAX;
        let mut entry = Writer::default();
        entry.u128(task.0);
        status.encode(&mut entry);
        entry.u64(self.next);
        let digest = Digest::of(&entry.0);
        entry.raw(&digest.0[..6]);
        self.file.write_all_at(&entry.0, place * ENTRY_BYTES)?;
        if durable {
            self.file.sync_data()?;
        }
        self.next += 1;
        if let Some(old) = self.by_place.insert(place, task) {
            self.by_task.remove(&old);
        }
        self.by_task.insert(task, status);
        Ok(())
    }
}

fn parse(entry: &[u8]) -> Option<(u64, TaskId, ExitStatus)> {
    let (body, digest) = entry.split_at_checked(26)?;
    if Digest::of(body).0[..6] != *digest {
        return None;
    }
    let mut from = Reader::new(body);
    let task = TaskId(from.u128().ok()?);
    let status = ExitStatus::decode(&mut from).ok()?;
    Some((from.u64().ok()?, task, status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_are_remembered_across_restarts() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("outcomes");
        let mut outcomes = Outcomes::open(&path).expect("opens");
        for task in 0..OUTCOMES_MAX as u128 + 10 {
            outcomes.add(TaskId(task), ExitStatus::Code(task as u8), false).expect("adds");
        }
        drop(outcomes);
        let outcomes = Outcomes::open(&path).expect("opens again");
        assert_eq!(outcomes.get(TaskId(9)), None, "the oldest are forgotten");
        assert_eq!(outcomes.get(TaskId(10)), Some(ExitStatus::Code(10)));
        assert_eq!(outcomes.get(TaskId(OUTCOMES_MAX as u128 + 9)), Some(ExitStatus::Code(9)));
    }

    #[test]
    fn a_torn_entry_is_forgotten_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("outcomes");
        let mut outcomes = Outcomes::open(&path).expect("opens");
        outcomes.add(TaskId(1), ExitStatus::Code(1), false).expect("adds");
        outcomes.add(TaskId(2), ExitStatus::Signal(9), false).expect("adds");
        outcomes.file.write_all_at(b"x", ENTRY_BYTES + 3).expect("writes");
        let outcomes = Outcomes::open(&path).expect("opens again");
        assert_eq!(outcomes.get(TaskId(1)), None);
        assert_eq!(outcomes.get(TaskId(2)), Some(ExitStatus::Signal(9)));
    }
}

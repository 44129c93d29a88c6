//! Segments made ahead: written with zeros, so that a commit changes no metadata of the file and its sync is one write
//! to the disk; and freed by pruning, to be used again.

use super::JournalError;
use super::format::SegmentHeader;
use super::shared::{Files, Shared};
use crate::disk::{Access, write_all_at};
use crate::intake::wait;
use crate::lock;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// How much of a new segment is written before it is synced, in bytes: commits wait behind it on the disk.
const STEP_BYTES: usize = 1 << 20;
/// Most segments that pruning keeps to be used again.
const RECYCLED_MAX: usize = 2;

/// Lets those go who wait for a segment, should the thread that makes them panic.
struct StopOnExit(Arc<Shared>);

impl Drop for StopOnExit {
    fn drop(&mut self) {
        lock(&self.0.files).is_stopping = true;
        self.0.files_changed.notify_all();
    }
}

/// Makes a segment whenever one is wanted, until the journal stops.
pub(crate) fn run(shared: Arc<Shared>) {
    let _stop = StopOnExit(shared.clone());
    loop {
        let mut files = lock(&shared.files);
        while !files.is_wanted && !files.is_stopping {
            files = wait(&shared.files_changed, files);
        }
        if files.is_stopping {
            return;
        }
        (files.is_wanted, files.is_making, files.failed) = (false, true, None);
        drop(files);
        let made = shared.make_zeros();
        let mut files = lock(&shared.files);
        let made = made.and_then(|made| if made { shared.name_ahead(&mut files) } else { Ok(()) });
        files.is_making = false;
        files.failed = made.err().map(Arc::new);
        drop(files);
        shared.files_changed.notify_all();
    }
}

impl Shared {
    /// The next segment to be used. Waits while one is made, and asks for the one after it.
    pub fn take_ahead(&self) -> Result<u64, JournalError> {
        let mut files = lock(&self.files);
        let mut has_asked = false;
        loop {
            if let Some(index) = files.ahead.pop_front() {
                self.want_ahead(&mut files);
                return Ok(index);
            }
            self.intake.check_alive()?;
            if files.is_stopping {
                return Err(JournalError::Panicked);
            }
            if !files.is_making && !files.is_wanted {
                if let Some(cause) = files.failed.clone().filter(|_| has_asked) {
                    return Err(JournalError::Dead(cause));
                }
                has_asked = true;
                self.want_ahead(&mut files);
            }
            files = wait(&self.files_changed, files);
        }
    }

    /// Has a segment made if there is none ahead.
    pub fn want_ahead(&self, files: &mut Files) {
        if files.ahead.is_empty() && !files.is_making {
            files.is_wanted = true;
            self.files_changed.notify_all();
        }
    }

    /// Writes the file of a new segment; false if the journal stopped meanwhile. Leaves nothing behind if it fails.
    fn make_zeros(&self) -> Result<bool, JournalError> {
        let path = self.folder.unfinished_path("log");
        let made = self.write_zeros(&path);
        if !matches!(made, Ok(true)) {
            // What cannot be removed now is removed by the next start.
            let _ = self.folder.remove(&path);
        }
        made
    }

    fn write_zeros(&self, path: &std::path::Path) -> Result<bool, JournalError> {
        let file = self.folder.open(path, Access::Create)?;
        let zeros = vec![0; STEP_BYTES.min(self.options.segment_bytes as usize)];
        let mut at = 0;
        while at < self.options.segment_bytes {
            if lock(&self.files).is_stopping {
                return Ok(false);
            }
            let step = zeros.len().min((self.options.segment_bytes - at) as usize);
            write_all_at(&*file, &[&zeros[..step]], at)
                .and_then(|()| file.sync())
                .map_err(|error| JournalError::io("make a segment,", path, error))?;
            at += step as u64;
        }
        Ok(true)
    }

    /// Gives the new file its name. A name that cannot be relied on ends the journal.
    fn name_ahead(&self, files: &mut Files) -> Result<(), JournalError> {
        let index = files.next_index;
        let path = self.folder.segment_path(index);
        let named = self.folder.rename(&self.folder.unfinished_path("log"), &path);
        self.intake.fatal(named.and_then(|()| self.folder.sync_names()))?;
        files.next_index += 1;
        files.ahead.push_back(index);
        self.segments.fetch_add(1, Relaxed);
        self.intake.bytes.fetch_add(self.options.segment_bytes, Relaxed);
        Ok(())
    }

    /// Frees the segments that end before the older of the two snapshots and are not being read; says how many.
    pub fn prune(&self) -> Result<u64, JournalError> {
        let mut files = lock(&self.files);
        self.intake.check_alive()?;
        let Some(older) = files.snapshots.len().checked_sub(2).map(|at| files.snapshots[at].0) else { return Ok(0) };
        // A reader that begins from now on finds the segments as they are after this: it needs the lock of the files.
        let unread = lock(&self.pins).iter().copied().fold(older, u64::min);
        let mut recycled = Vec::new();
        let freed = self.free_before(&mut files, unread, &mut recycled);
        // Even if not all could be freed: what was renamed has taken its index.
        self.intake.fatal(self.folder.sync_names())?;
        files.ahead.extend(recycled);
        drop(files);
        self.files_changed.notify_all();
        freed
    }

    fn free_before(&self, files: &mut Files, last: u64, recycled: &mut Vec<u64>) -> Result<u64, JournalError> {
        let mut freed = 0;
        while let Some((index, bytes)) = files.strays.last().copied() {
            self.free(index, bytes)?;
            files.strays.pop();
            freed += 1;
        }
        while files.used.get(1).is_some_and(|next| next.first <= last + 1) {
            let SegmentHeader { index, bytes, .. } = files.used[0];
            if files.ahead.len() + recycled.len() < RECYCLED_MAX && bytes == self.options.segment_bytes {
                let (from, to) = (self.folder.segment_path(index), self.folder.segment_path(files.next_index));
                self.intake.fatal(self.folder.rename(&from, &to))?;
                recycled.push(files.next_index);
                files.next_index += 1;
            } else {
                self.free(index, bytes)?;
            }
            files.used.pop_front();
            freed += 1;
        }
        Ok(freed)
    }

    fn free(&self, index: u64, bytes: u64) -> Result<(), JournalError> {
        self.folder.remove(&self.folder.segment_path(index))?;
        self.segments.fetch_sub(1, Relaxed);
        self.intake.bytes.fetch_sub(bytes, Relaxed);
        Ok(())
    }
}

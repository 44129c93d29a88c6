//! Where tasks write: for each an upper layer of its own, in memory as long as all of them together are small, else on disk.
//!
//! An overlay makes and removes a dozen files before its task has written any, and a disk takes a hundred times as long for
//! that as memory does. What a mounted overlay writes cannot be moved: a task that fills memory ([`memory`]) starts again on disk, as
//! do later ones of its kind. How much may be on disk is bounded by [`crate::charge`].

mod memory;

use crate::host::guests::Guests;
use crate::room::Room;
use crate::trees;
use base::ViewId;
use bytes::Bytes;
use memory::{Memory, Place};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use store::shrink::PIECE_BYTES;
use wire::message::{Failed, FailedKind};

/// How often it is looked how full memory is …
const TICK: Duration = Duration::from_millis(100);
/// … and the disk, while a task writes there: from one look to the next it does not fill what must be left.
const DISK_TICK: Duration = Duration::from_millis(20);
const CRAMPED: &str = "what it writes fills this worker's memory: it must start again on disk";
/// How long a task that found no room waits to say so: meanwhile the hub hears that the worker takes none.
const SAY_SO: Duration = Duration::from_millis(100);

/// Large files on disk are taken away in so many pieces: of more bytes, the larger ones. That bounds how long it takes.
const PIECES_MAX: u64 = 500;
/// Files that are taken away like this.
const LARGE_FILES_MAX: usize = 200;

/// The program of a client: whose tasks write alike.
pub type Writer = (Bytes, ViewId);

/// All upper layers of a worker.
#[derive(Debug)]
pub struct Scratches {
    disk: PathBuf,
    memory: Option<Arc<Memory>>,
    next: AtomicU64,
    room: Arc<Room>,
}

/// A task's folder: upper layer, work folder, mount point. Removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    /// Where.
    pub folder: PathBuf,
    memory: Option<(Arc<Memory>, Place, Writer)>,
    room: Arc<Room>,
    /// How often the disk had been short of room before.
    shortages: u64,
    is_removed: AtomicBool,
}

impl Scratches {
    /// Beneath `folder`, in this process's own mount namespace.
    pub fn new(folder: &Path, privileged: bool) -> Self {
        let memory = Memory::new(folder.join("memory"), memory_bytes(), privileged);
        let memory = memory.inspect_err(|error| tracing::info!(%error, "tasks write to disk only")).ok();
        let (disk, room) = (folder.join("tasks"), Arc::new(Room::new(folder)));
        Self { disk, memory: memory.map(Arc::new), next: AtomicU64::new(0), room }
    }

    /// What the client of a task that came to nothing is told: if there is no room on the disk, that was why, and it must be done elsewhere.
    pub async fn explain(&self, failed: Failed, guests: &Guests) -> Failed {
        let may_be = matches!(failed.reason(), FailedKind::Trouble | FailedKind::Evicted);
        let why = if may_be { self.room.shortage() } else { None };
        let Some(why) = why else { return failed };
        guests.wake();
        tokio::time::sleep(SAY_SO).await;
        match failed.message.starts_with(crate::room::SHORT) {
            true => FailedKind::Evicted.because(failed.message),
            false => FailedKind::Evicted.because(format!("{why} ({})", failed.message)),
        }
    }

    /// An empty one. `again`: the task came to nothing before, perhaps for want of memory.
    pub fn take(&self, writer: Writer, again: bool) -> io::Result<Scratch> {
        let memory = self.memory.as_ref().filter(|memory| !again && !memory.is_large(&writer));
        let shortages = self.room.shortages();
        if memory.is_none()
            && let Some(why) = self.room.shortage()
        {
            return Err(io::Error::new(io::ErrorKind::StorageFull, why));
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed).to_string();
        let memory = memory.and_then(|memory| {
            let place = memory.take().inspect_err(|error| tracing::warn!(%error, "a task writes to disk"));
            Some((memory.clone(), place.ok()?, writer))
        });
        let folder = memory.as_ref().map_or(&self.disk, |(_, place, _)| &place.folder).join(number);
        let scratch =
            Scratch { folder, memory, room: self.room.clone(), shortages, is_removed: AtomicBool::new(false) };
        std::fs::create_dir(&scratch.folder).map_err(|error| self.is_gone().unwrap_or(error))?;
        for name in ["upper", "work", "root"] {
            std::fs::create_dir(scratch.folder.join(name))?;
        }
        Ok(scratch)
    }

    /// Why nothing can be made any more, if somebody has removed the worker's folder.
    fn is_gone(&self) -> Option<io::Error> {
        let why = || {
            let folder = base::path::printable(self.disk.as_os_str().as_encoded_bytes());
            format!("{folder} was removed, with all that this worker keeps there: end the worker, and start it again")
        };
        matches!(self.disk.try_exists(), Ok(false)).then(|| io::Error::new(io::ErrorKind::NotFound, why()))
    }
}

impl Scratch {
    /// Removes the folder if it is in memory and nothing was written there, which takes no time; otherwise that is to be done where
    /// blocking is no harm. Nobody uses it any more.
    pub fn is_removed_at_once(&self) -> bool {
        let is_removed = self.memory.is_some() && self.remove_empty().is_ok();
        self.is_removed.store(is_removed, Ordering::Relaxed);
        is_removed
    }

    /// Removes what is left where nothing was written, without looking.
    fn remove_empty(&self) -> io::Result<()> {
        let remove = |name: &str| std::fs::remove_dir(self.folder.join(name));
        remove("upper")?;
        // An overlay leaves both, or is none that was mounted.
        for name in ["work/work", "work/index"] {
            let _ = remove(name);
        }
        ["work", "root"].into_iter().try_for_each(remove)?;
        std::fs::remove_dir(&self.folder)
    }

    /// It is on disk.
    pub fn is_on_disk(&self) -> bool {
        self.memory.is_none()
    }

    /// Returns when memory is full and this task is one of those that fill it: it must start again on disk; or when it writes to disk, and
    /// there is no room.
    pub async fn outgrown(&self) -> Failed {
        let Some((memory, place, writer)) = &self.memory else { return self.disk_is_short().await };
        loop {
            tokio::time::sleep(TICK).await;
            if memory.is_outgrown(place) {
                memory.note_large(writer);
                return FailedKind::Trouble.because(CRAMPED);
            }
        }
    }

    async fn disk_is_short(&self) -> Failed {
        loop {
            tokio::time::sleep(DISK_TICK).await;
            if let Some(why) = self.room.shortage() {
                return FailedKind::Trouble.because(why);
            }
        }
    }

    /// Whether memory, or the disk, is or was so full that the task may have found no room there: then its result does not count.
    pub fn cramped(&self) -> Option<Failed> {
        let Some((memory, place, writer)) = &self.memory else {
            let was_short =
                || (self.room.shortages() != self.shortages).then(|| "its disk was full for a while".into());
            return self.room.shortage().or_else(was_short).map(|why| FailedKind::Evicted.because(why));
        };
        let is_cramped = memory.is_full(place);
        if is_cramped {
            memory.note_large(writer);
        }
        is_cramped.then(|| FailedKind::Trouble.because(CRAMPED))
    }

    fn remove(&self) {
        if self.is_removed.load(Ordering::Relaxed) || self.remove_empty().is_ok() {
            return;
        }
        if let Err(error) = trees::remove(&self.folder)
            && error != Errno::NOENT
        {
            tracing::warn!(%error, folder = %self.folder.display(), "a task's folder was not removed");
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.memory.is_none() {
            uppers(&self.folder).iter().for_each(|upper| shrink(upper));
        }
        self.remove();
        if let Some((memory, place, _)) = &self.memory {
            memory.give_back(place);
        }
    }
}

/// Takes large files beneath `folder` away, but for their last pieces. Nobody writes there any more.
fn shrink(folder: &Path) {
    let mut large = Vec::new();
    find_large(folder, &mut large);
    let bytes: u64 = large.iter().map(|(_, length)| length).sum();
    let piece = PIECE_BYTES.max(bytes / PIECES_MAX);
    for (file, length) in large {
        if let Err(error) = store::shrink::shrink(&file, length, piece) {
            tracing::debug!(%error, "a large file is freed at once");
        }
    }
}

/// Files beneath `folder` that take more than a piece, and their lengths. No link is followed: all there is a guest's.
fn find_large(folder: &Path, large: &mut Vec<(File, u64)>) {
    trees::walk(folder, |held, name, found| {
        let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        if is_file && found.st_blocks as u64 * 512 > PIECE_BYTES && large.len() < LARGE_FILES_MAX {
            let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            if let Ok(file) = rustix::fs::openat(held, name, flags, Mode::empty()) {
                large.push((File::from(file), found.st_size as u64));
            }
        }
    });
}

/// The upper layers in a task's folder: its own, and those of the client's mounts.
fn uppers(folder: &Path) -> Vec<PathBuf> {
    let mounts = (0..base::mount::MOUNTS_MAX).map(|index| crate::sandbox::mount_folder(folder, index));
    let mounts = mounts.filter(|folder| folder.is_dir());
    std::iter::once(folder.to_owned()).chain(mounts).map(|folder| folder.join("upper")).collect()
}

/// Memory of the machine, or of the container that this is, in bytes.
pub fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    let total = info.totalram as u64 * u64::from(info.mem_unit);
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let limit = limits.iter().filter_map(|path| std::fs::read_to_string(path).ok()?.trim().parse().ok()).min();
    total.min(limit.unwrap_or(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer() -> Writer {
        (Bytes::from_static(b"client"), ViewId(1))
    }

    #[test]
    fn large_files_are_taken_away_piece_by_piece() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("d")).expect("a folder");
        let (large, small, elsewhere) = (folder.path().join("d/large"), folder.path().join("small"), "/dev/null");
        std::fs::write(&large, vec![1; 3 * PIECE_BYTES as usize + 5]).expect("a file");
        std::fs::write(&small, "small").expect("a file");
        std::os::unix::fs::symlink(elsewhere, folder.path().join("link")).expect("a link");
        shrink(folder.path());
        let length = |path: &Path| std::fs::metadata(path).expect("is there").len();
        assert_eq!((length(&large), length(&small)), (5, 5));
    }

    #[test]
    fn each_task_has_a_folder_until_it_ends() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("tasks")).expect("a folder");
        let room = Arc::new(Room::new(folder.path()));
        let scratches = Scratches { disk: folder.path().join("tasks"), memory: None, next: AtomicU64::new(0), room };
        let (one, two) = (scratches.take(writer(), false).expect("one"), scratches.take(writer(), false).expect("two"));
        assert_ne!(one.folder, two.folder);
        std::fs::write(two.folder.join("upper/f"), "x").expect("a file");
        let gone = two.folder.clone();
        drop(two);
        assert!(one.folder.join("work").is_dir() && !gone.exists());
    }

    #[test]
    fn nothing_is_begun_on_a_full_disk() {
        let folder = tempfile::tempdir().expect("a folder");
        // There is no room in /proc.
        let room = Arc::new(Room::new(Path::new("/proc")));
        let scratches = Scratches { disk: folder.path().to_owned(), memory: None, next: AtomicU64::new(0), room };
        let refused = scratches.take(writer(), false).expect_err("no room");
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn what_ran_while_the_disk_was_full_does_not_count() {
        let folder = tempfile::tempdir().expect("a folder");
        let room = Arc::new(Room::new(folder.path()));
        let scratches =
            Scratches { disk: folder.path().to_owned(), memory: None, next: AtomicU64::new(0), room: room.clone() };
        let scratch = scratches.take(writer(), false).expect("room");
        assert!(scratch.cramped().is_none());
        room.note_shortage();
        assert_eq!(scratch.cramped().expect("was full").reason(), FailedKind::Evicted);
        assert!(scratches.take(writer(), false).expect("room again").cramped().is_none());
    }

    #[test]
    fn what_outgrew_memory_goes_on_disk_the_next_time() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["tasks", "memory"] {
            std::fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        let memory = Some(Arc::new(Memory::over(folder.path().join("memory"), 1)));
        let room = Arc::new(Room::new(folder.path()));
        let scratches = Scratches { disk: folder.path().join("tasks"), memory, next: AtomicU64::new(0), room };
        let first = scratches.take(writer(), false).expect("first");
        assert!(first.folder.starts_with(folder.path().join("memory")) && first.cramped().is_some());
        drop(first);
        let on_disk = folder.path().join("tasks");
        assert!(scratches.take(writer(), false).expect("later").folder.starts_with(&on_disk));
        let other = (Bytes::from_static(b"other"), ViewId(1));
        assert!(scratches.take(other.clone(), true).expect("again").folder.starts_with(&on_disk));
        assert!(!scratches.take(other, false).expect("other").folder.starts_with(&on_disk));
    }
}

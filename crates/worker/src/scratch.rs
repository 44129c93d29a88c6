//! Where tasks write: for each an upper layer of its own, in memory as long as all of them together are small, else on disk.
//!
//! An overlay makes and removes a dozen files before its task has written any, and a disk takes a hundred times as long for
//! that as memory does. What a mounted overlay writes cannot be moved: a task that fills memory starts again on disk, as
//! do later ones of its kind.

use crate::host::guests::Guests;
use crate::room::Room;
use crate::trees;
use base::ViewId;
use bytes::Bytes;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::mount::MountFlags;
use std::collections::HashSet;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::shrink::PIECE_BYTES;
use wire::lock;
use wire::message::{Failed, FailedKind};

/// The part of the machine's memory that tasks may fill before some must go on disk; the file system takes twice that.
const MEMORY_PART: u64 = 8;
/// Files in memory at most, each of which takes about a KiB beside its contents.
const FILES_MAX: u64 = 1 << 20;
/// How often it is looked how full memory is …
const TICK: Duration = Duration::from_millis(100);
/// … and the disk, while a task writes there: from one look to the next it does not fill what must be left.
const DISK_TICK: Duration = Duration::from_millis(20);
const CRAMPED: &str = "what it writes fills this worker's memory: it must start again on disk";
/// How long a task that found no room waits to say so: meanwhile the hub hears that the worker takes none.
const SAY_SO: Duration = Duration::from_millis(100);
/// Kinds of tasks that are known to write much; beyond, they are found out anew.
const LARGE_MAX: usize = 10_000;

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

/// A file system in memory.
#[derive(Debug)]
struct Memory {
    folder: PathBuf,
    /// Bytes in use beyond which tasks go on disk.
    bytes_max: u64,
    /// Tasks that write there.
    tasks: AtomicU32,
    large: Mutex<HashSet<Writer>>,
}

/// A task's folder: upper layer, work folder, mount point. Removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    /// Where.
    pub folder: PathBuf,
    memory: Option<(Arc<Memory>, Writer)>,
    room: Arc<Room>,
    /// How often the disk had been short of room before.
    shortages: u64,
    is_removed: AtomicBool,
}

impl Scratches {
    /// Beneath `folder`, in this process's own mount namespace.
    pub fn new(folder: &Path, privileged: bool) -> Self {
        let memory = Memory::mount(folder.join("memory"), privileged);
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
        let memory = self.memory.as_ref().filter(|memory| !again && !lock(&memory.large).contains(&writer));
        let shortages = self.room.shortages();
        if memory.is_none()
            && let Some(why) = self.room.shortage()
        {
            return Err(io::Error::new(io::ErrorKind::StorageFull, why));
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed).to_string();
        let folder = memory.map_or(&self.disk, |memory| &memory.folder).join(number);
        std::fs::create_dir(&folder)?;
        let memory = memory.map(|memory| {
            memory.tasks.fetch_add(1, Ordering::Relaxed);
            (memory.clone(), writer)
        });
        let scratch =
            Scratch { folder, memory, room: self.room.clone(), shortages, is_removed: AtomicBool::new(false) };
        for name in ["upper", "work", "root"] {
            std::fs::create_dir(scratch.folder.join(name))?;
        }
        Ok(scratch)
    }
}

impl Memory {
    fn mount(folder: PathBuf, privileged: bool) -> io::Result<Self> {
        std::fs::create_dir_all(&folder)?;
        let bytes_max = memory_bytes() / MEMORY_PART;
        let options = format!("mode=700,size={},nr_inodes={FILES_MAX}", bytes_max * 2);
        let options = CString::new(options).expect("numbers and words have no NUL");
        rustix::mount::mount("gleaner", &folder, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(&*options))?;
        let memory = Self { folder, bytes_max, tasks: AtomicU32::new(0), large: Mutex::default() };
        // Attributes in memory are young: overlayfs needs its own, and guests theirs.
        let names: &[&str] = if privileged { &["user.gleaner", "trusted.gleaner"] } else { &["user.gleaner"] };
        let none = rustix::fs::XattrFlags::empty();
        let probe = memory.folder.join("probe");
        let probed = std::fs::File::create(&probe)
            .and_then(|file| names.iter().try_for_each(|name| Ok(rustix::fs::fsetxattr(&file, *name, b"1", none)?)))
            .and_then(|()| std::fs::remove_file(&probe));
        if let Err(error) = probed {
            rustix::mount::unmount(&memory.folder, rustix::mount::UnmountFlags::DETACH)?;
            return Err(error);
        }
        Ok(memory)
    }

    /// How full it is, in parts of what it may hold; files count as well as bytes.
    fn fullness(&self) -> f64 {
        let Ok(state) = rustix::fs::statvfs(&self.folder) else { return 0.0 };
        let bytes = (state.f_blocks - state.f_bfree) as f64 * state.f_frsize as f64 / self.bytes_max as f64;
        let files = (state.f_files - state.f_ffree) as f64 * 2.0 / FILES_MAX as f64;
        bytes.max(files)
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

    /// Returns when memory is full and this task is one of those that fill it: it must start again on disk; or when it writes to disk, and
    /// there is no room.
    pub async fn outgrown(&self) -> Failed {
        let Some((memory, writer)) = &self.memory else { return self.disk_is_short().await };
        loop {
            tokio::time::sleep(TICK).await;
            let tasks = memory.tasks.load(Ordering::Relaxed).max(1);
            if memory.fullness() <= 1.0 {
                continue;
            }
            let folder = self.folder.clone();
            let (bytes, files) = tokio::task::spawn_blocking(move || weigh_all(&folder)).await.unwrap_or_default();
            let tasks = u64::from(tasks);
            if bytes >= memory.bytes_max / tasks || files >= FILES_MAX / 2 / tasks {
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
        let Some((memory, writer)) = &self.memory else {
            let was_short =
                || (self.room.shortages() != self.shortages).then(|| "its disk was full for a while".into());
            return self.room.shortage().or_else(was_short).map(|why| FailedKind::Evicted.because(why));
        };
        let is_cramped = memory.fullness() > 1.9;
        if is_cramped {
            memory.note_large(writer);
        }
        is_cramped.then(|| FailedKind::Trouble.because(CRAMPED))
    }
}

impl Memory {
    fn note_large(&self, writer: &Writer) {
        let mut large = lock(&self.large);
        if large.len() >= LARGE_MAX {
            large.clear();
        }
        large.insert(writer.clone());
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some((memory, _)) = &self.memory {
            memory.tasks.fetch_sub(1, Ordering::Relaxed);
        } else {
            uppers(&self.folder).iter().for_each(|upper| shrink(upper));
        }
        if self.is_removed.load(Ordering::Relaxed) || self.remove_empty().is_ok() {
            return;
        }
        if let Err(error) = trees::remove(&self.folder) {
            tracing::warn!(%error, folder = %self.folder.display(), "a task's folder was not removed");
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

/// Bytes and number of files in all of them.
fn weigh_all(folder: &Path) -> (u64, u64) {
    let each = uppers(folder).into_iter().map(|upper| weigh(&upper));
    each.fold((0, 0), |(bytes, files), (more_bytes, more_files)| (bytes + more_bytes, files + more_files))
}

/// Bytes and number of files beneath `folder`. What vanishes meanwhile is not counted.
fn weigh(folder: &Path) -> (u64, u64) {
    let mut weight = (0, 0);
    trees::walk(folder, |_, _, found| weight = (weight.0 + found.st_blocks as u64 * 512, weight.1 + 1));
    weight
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
    fn folders_weigh_what_is_in_them() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("d")).expect("a folder");
        std::fs::write(folder.path().join("d/f"), vec![1; 100_000]).expect("a file");
        let (bytes, files) = weigh(folder.path());
        assert!(bytes >= 100_000 && files == 2, "{bytes} {files}");
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
        let memory = folder.path().join("memory");
        let memory = Memory { folder: memory, bytes_max: 1, tasks: AtomicU32::new(0), large: Mutex::default() };
        let memory = Some(Arc::new(memory));
        let room = Arc::new(Room::new(folder.path()));
        let scratches = Scratches { disk: folder.path().join("tasks"), memory, next: AtomicU64::new(0), room };
        let first = scratches.take(writer(), false).expect("first");
        assert!(first.folder.starts_with(folder.path().join("memory")) && first.cramped().is_some());
        let on_disk = folder.path().join("tasks");
        assert!(scratches.take(writer(), false).expect("later").folder.starts_with(&on_disk));
        let other = (Bytes::from_static(b"other"), ViewId(1));
        assert!(scratches.take(other.clone(), true).expect("again").folder.starts_with(&on_disk));
        assert!(!scratches.take(other, false).expect("other").folder.starts_with(&on_disk));
    }
}

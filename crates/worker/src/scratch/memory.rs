//! Upper layers in memory: for each task a file system of its own, whose size is bounded. So no task is told of a lack of room that another one
//! has caused, and what one holds without a name is bounded as well.

use super::Writer;
use rustix::mount::{MountFlags, UnmountFlags};
use std::collections::HashSet;
use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use store::room::Room;
use wire::lock;

/// The part of the machine's memory that tasks may fill together before some must go on disk; the file system of each takes twice that.
const MEMORY_PART: u64 = 8;
/// Files at most, each of which takes about a KiB beside its contents; attributes of files take from the same.
const FILES_MAX: u64 = 1 << 19;
const FILE_BYTES: u64 = 1 << 10;
/// Empty file systems that are kept for later tasks: each is copied and dropped at every start of a task.
const SPARE_MAX: usize = 8;
/// Kinds of tasks that are known to write much; beyond, they are found out anew.
const LARGE_MAX: usize = 10_000;

/// What may be in memory, and what is.
#[derive(Debug)]
pub struct Memory {
    folder: PathBuf,
    /// Bytes and files in use beyond which tasks go on disk: the file system of each takes twice that.
    bytes_max: u64,
    files_max: u64,
    /// Tasks that write there.
    tasks: AtomicU32,
    /// What they have there together, as each saw its own last.
    bytes: AtomicU64,
    files: AtomicU64,
    spare: Mutex<Vec<PathBuf>>,
    next: AtomicU64,
    large: Mutex<HashSet<Writer>>,
}

/// One task's file system.
#[derive(Debug)]
pub struct Place {
    /// Where it is mounted.
    pub folder: PathBuf,
    /// Bytes and files in it, as they were seen last.
    bytes: AtomicU64,
    files: AtomicU64,
}

impl Memory {
    /// Mounts beneath `folder`; fails where a file system in memory has not the attributes that overlays and guests need.
    pub fn new(folder: PathBuf, bytes_of_machine: u64, privileged: bool) -> io::Result<Self> {
        std::fs::create_dir_all(&folder)?;
        let (tasks, bytes, files, spare, next, large) = Default::default();
        let bytes_max = bytes_of_machine / MEMORY_PART;
        let files_max = FILES_MAX.min(bytes_max / FILE_BYTES);
        let memory = Self { folder, bytes_max, files_max, tasks, bytes, files, spare, next, large };
        let place = memory.mount()?;
        // Attributes in memory are young: overlayfs needs its own, and guests theirs.
        let names: &[&str] = if privileged { &["user.gleaner", "trusted.gleaner"] } else { &["user.gleaner"] };
        let none = rustix::fs::XattrFlags::empty();
        let probe = place.join("probe");
        let probed = std::fs::File::create(&probe)
            .and_then(|file| names.iter().try_for_each(|name| Ok(rustix::fs::fsetxattr(&file, *name, b"1", none)?)))
            .and_then(|()| std::fs::remove_file(&probe));
        match probed {
            Ok(()) => lock(&memory.spare).push(place),
            Err(error) => {
                unmount(&place);
                return Err(error);
            }
        }
        Ok(memory)
    }

    fn mount(&self) -> io::Result<PathBuf> {
        let folder = self.folder.join(self.next.fetch_add(1, Ordering::Relaxed).to_string());
        std::fs::create_dir(&folder)?;
        let options = format!("mode=700,size={},nr_inodes={}", self.bytes_max * 2, self.files_max * 2);
        let options = CString::new(options).expect("numbers and words have no NUL");
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        if let Err(errno) = rustix::mount::mount("gleaner", &folder, "tmpfs", flags, Some(&*options)) {
            let _ = std::fs::remove_dir(&folder);
            return Err(errno.into());
        }
        Ok(folder)
    }

    /// An empty one for one more task.
    pub fn take(&self) -> io::Result<Place> {
        let spare = lock(&self.spare).pop();
        let folder = spare.map_or_else(|| self.mount(), Ok)?;
        self.tasks.fetch_add(1, Ordering::Relaxed);
        Ok(Place { folder, bytes: AtomicU64::new(0), files: AtomicU64::new(0) })
    }

    /// Takes one back.
    pub fn give_back(&self, place: &Place) {
        self.note(place, 0, 0);
        self.tasks.fetch_sub(1, Ordering::Relaxed);
        let is_empty = std::fs::read_dir(&place.folder).is_ok_and(|mut entries| entries.next().is_none());
        let mut spare = lock(&self.spare);
        if is_empty && spare.len() < SPARE_MAX {
            spare.push(place.folder.clone());
            return;
        }
        drop(spare);
        unmount(&place.folder);
    }

    /// Sees how full a task's file system is.
    fn look(&self, place: &Place) -> (u64, u64) {
        let Ok(room) = Room::at(&place.folder) else { return (0, 0) };
        self.note(place, room.used_bytes, room.used_files);
        (room.used_bytes, room.used_files)
    }

    fn note(&self, place: &Place, bytes: u64, files: u64) {
        for (own, sum, now) in [(&place.bytes, &self.bytes, bytes), (&place.files, &self.files, files)] {
            let before = own.swap(now, Ordering::Relaxed);
            // The sum wraps as its parts do.
            sum.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    /// Whether memory is full, and this task one of those that fill it: it must start again on disk.
    pub fn is_outgrown(&self, place: &Place) -> bool {
        let (bytes, files) = self.look(place);
        let all = (self.bytes.load(Ordering::Relaxed), self.files.load(Ordering::Relaxed));
        let tasks = u64::from(self.tasks.load(Ordering::Relaxed).max(1));
        let is_full = all.0 > self.bytes_max || all.1 > self.files_max;
        is_full && (bytes >= self.bytes_max / tasks || files >= self.files_max / tasks)
    }

    /// Whether a task's file system is so full that it may have found no room there.
    pub fn is_full(&self, place: &Place) -> bool {
        let (bytes, files) = self.look(place);
        bytes > self.bytes_max / 10 * 19 || files > self.files_max / 10 * 19
    }

    /// A task that wrote much, and whose kind goes on disk from now on.
    pub fn note_large(&self, writer: &Writer) {
        let mut large = lock(&self.large);
        if large.len() >= LARGE_MAX {
            large.clear();
        }
        large.insert(writer.clone());
    }

    /// Whether it is of such a kind.
    pub fn is_large(&self, writer: &Writer) -> bool {
        lock(&self.large).contains(writer)
    }

    /// Over a folder that is no file system of its own.
    #[cfg(test)]
    pub fn over(folder: PathBuf, bytes_max: u64) -> Self {
        let (tasks, bytes, files, next, large) = Default::default();
        Self {
            spare: Mutex::new(vec![folder.clone()]),
            folder,
            bytes_max,
            files_max: FILES_MAX,
            tasks,
            bytes,
            files,
            next,
            large,
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let spare = std::mem::take(&mut *lock(&self.spare));
        spare.iter().for_each(|folder| unmount(folder));
    }
}

fn unmount(folder: &Path) {
    // What is no mount is only removed if it is empty.
    let _ = rustix::mount::unmount(folder, UnmountFlags::DETACH);
    let _ = std::fs::remove_dir(folder);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_fills_its_own_file_system_takes_nothing_from_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let memory = match Memory::new(folder.path().join("memory"), 64 << 20, true) {
            Ok(memory) => memory,
            Err(error) => return println!("SKIPPED: {error}"),
        };
        let (large, small) = (memory.take().expect("one"), memory.take().expect("another"));
        assert!(!memory.is_outgrown(&large) && !memory.is_full(&large));
        // A file without a name.
        let mut file = std::fs::File::create(large.folder.join("f")).expect("a file");
        std::fs::remove_file(large.folder.join("f")).expect("it is there");
        let written = std::io::copy(&mut std::io::repeat(1), &mut file);
        assert_eq!(written.expect_err("there is an end").kind(), io::ErrorKind::StorageFull);
        assert!(memory.is_outgrown(&large) && memory.is_full(&large));
        std::fs::write(small.folder.join("f"), vec![1; 1 << 20]).expect("there is room");
        assert!(!memory.is_outgrown(&small) && !memory.is_full(&small), "it is small");
        // As many attributes as there are files at most.
        let value = vec![1; 60_000];
        let set = |number: usize| {
            let name = format!("user.{number}");
            rustix::fs::setxattr(small.folder.join("f"), name, &value, rustix::fs::XattrFlags::empty())
        };
        assert!((0..1_000).any(|number| set(number).is_err()), "attributes have an end");
        drop(file);
        memory.give_back(&large);
        memory.give_back(&small);
        let other = memory.take().expect("one");
        assert!(other.folder != small.folder, "what is not empty is not used again");
        memory.give_back(&other);
    }
}

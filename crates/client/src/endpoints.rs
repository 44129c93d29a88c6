//! The files at the ends of a command's standard streams, as far as they keep it here: because they cannot be read or written,
//! or because a write there may fail in a way that the command has to see at once. Elsewhere it would hear of that late, and
//! only that nobody listens.

use crate::stdio;
use base::{Limit, TreePath};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstatfs};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use store::room::Room;

/// A disk with less space than this may become full from what a command says. 64 MiB.
const SPACE_BYTES_MIN: u64 = 64 << 20;
/// The same for a folder in which a command may write: what is found to have no room at the commit is run here as well, but not what was
/// removed again. 16 MiB.
const ROOM_BYTES_MIN: u64 = 16 << 20;
/// Files that a file system may have besides, at least.
const ROOM_FILES_MIN: u64 = 1000;
/// `RLIMIT_FSIZE`.
const FILE_SIZE: u32 = 1;
/// File systems in memory. They have no number of blocks where nothing bounds them.
const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;

/// Why a command with these descriptors 0, 1 and 2 and these limits is to run here: a sentence.
pub fn keeps_here(fds: &[Arc<OwnedFd>; 3], limits: &[Limit]) -> Option<String> {
    let [stdin, stdout, stderr] = fds;
    if let Some(why) = unreadable(stdin) {
        return Some(format!("its standard input {why}"));
    }
    let file_size = limits.iter().find(|limit| limit.resource == FILE_SIZE).map_or(u64::MAX, |limit| limit.soft);
    if stdio::is_opened_twice(stdout, stderr) {
        return Some("its standard output and error are one file that was opened twice".into());
    }
    let outputs = [("output", stdout), ("error", stderr)];
    outputs.into_iter().find_map(|(name, fd)| Some(format!("its standard {name} {}", unwritable(fd, file_size)?)))
}

fn unreadable(fd: &OwnedFd) -> Option<&'static str> {
    if stdio::kind(fd) == Some(FileType::Directory) {
        return Some("is a folder");
    }
    let flags = fcntl_getfl(fd).ok()?;
    let closed = flags.contains(OFlags::WRONLY) || flags.contains(OFlags::PATH);
    if flags.contains(OFlags::DIRECT) && stdio::kind(fd) == Some(FileType::Fifo) {
        return Some("is a pipe of packets, each of which is read as one");
    }
    let is_changed = flags.contains(OFlags::RDWR) && stdio::kind(fd) == Some(FileType::RegularFile);
    match closed {
        true => Some("is not open for reading"),
        false => is_changed.then_some("is a file that is open for writing as well"),
    }
}

fn unwritable(fd: &OwnedFd, file_size: u64) -> Option<String> {
    let flags = fcntl_getfl(fd).ok()?;
    if !flags.intersects(OFlags::WRONLY | OFlags::RDWR) || flags.contains(OFlags::PATH) {
        return Some("is not open for writing".into());
    }
    match stdio::kind(fd) {
        Some(FileType::Fifo) if is_unread(fd) => Some("is a pipe that nobody reads".into()),
        Some(FileType::RegularFile) if file_size != u64::MAX => {
            Some(format!("is a file, and a limit allows none above {file_size} bytes"))
        }
        Some(FileType::RegularFile) => little_space(fd),
        _ => None,
    }
}

fn is_unread(fd: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(fd, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&at_once)).is_ok() && polled[0].revents().contains(PollFlags::ERR)
}

fn little_space(fd: &OwnedFd) -> Option<String> {
    let found = fstatfs(fd).ok()?;
    let kind = found.f_type as i64;
    if found.f_blocks == 0 {
        let is_unbounded = [TMPFS, RAMFS].contains(&kind);
        return (!is_unbounded).then(|| "is a file of a file system that the kernel makes up".into());
    }
    let bytes = (found.f_bavail as u64).saturating_mul(found.f_bsize as u64);
    (bytes < SPACE_BYTES_MIN).then(|| format!("is a file on a disk with only {} MiB left", bytes >> 20))
}

/// Why a command that may change these folders is to run here, if the file system of one has so little room left that it may
/// become full: elsewhere it would not notice.
pub fn lacks_room<'a>(folders: impl IntoIterator<Item = &'a TreePath>) -> Option<String> {
    folders.into_iter().find_map(|folder| {
        let room = Room::at(Path::new(OsStr::from_bytes(folder.as_bytes()))).ok()?;
        // What is read-only, and what has no bound, does not become full.
        if room.is_unbounded {
            return None;
        }
        if room.bytes < ROOM_BYTES_MIN {
            return Some(format!("{folder} is on a disk with only {} MiB left", room.bytes >> 20));
        }
        let files = Some(room.files).filter(|files| *files < ROOM_FILES_MIN);
        files.map(|files| format!("{folder} is on a file system that may have only {files} more files"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn fds(stdin: OwnedFd, stdout: OwnedFd) -> [Arc<OwnedFd>; 3] {
        let stderr = File::options().write(true).open("/dev/null").expect("a device");
        [stdin, stdout, stderr.into()].map(Arc::new)
    }

    fn null() -> OwnedFd {
        File::options().read(true).write(true).open("/dev/null").expect("a device").into()
    }

    #[test]
    fn usual_streams_keep_nothing_here() {
        let (_reader, writer) = rustix::pipe::pipe().expect("a pipe");
        assert_eq!(keeps_here(&fds(null(), writer), &[]), None);
        let limit = Limit { resource: FILE_SIZE, soft: 4096, hard: 4096 };
        assert_eq!(keeps_here(&fds(null(), null()), &[limit]), None, "a device has no size");
    }

    #[test]
    fn what_the_command_must_see_at_once_keeps_it_here() {
        let why = |stdin, stdout| keeps_here(&fds(stdin, stdout), &[]).unwrap_or_default();
        assert_eq!(why(File::open("/").expect("a folder").into(), null()), "its standard input is a folder");
        let write_only = File::options().write(true).open("/dev/null").expect("a device");
        assert_eq!(why(write_only.into(), null()), "its standard input is not open for reading");
        let read_only = File::open("/dev/null").expect("a device");
        assert_eq!(why(null(), read_only.into()), "its standard output is not open for writing");
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        drop(reader);
        assert_eq!(why(null(), writer), "its standard output is a pipe that nobody reads");
        let made_up = File::options().write(true).open("/proc/self/comm").expect("a file of /proc");
        assert!(why(null(), made_up.into()).contains("makes up"));
    }

    #[test]
    fn a_folder_in_memory_of_bounded_size_is_told_from_others() {
        let root = TreePath::root();
        let shown = rustix::fs::statfs("/").expect("a root");
        let room = (shown.f_bavail as u64).saturating_mul(shown.f_bsize as u64);
        assert_eq!(
            lacks_room([&root]).is_some(),
            room < ROOM_BYTES_MIN || (1..ROOM_FILES_MIN).contains(&(shown.f_ffree as u64))
        );
        assert_eq!(lacks_room([&TreePath::parse(b"/proc").expect("a path")]), None, "it has no bound");
    }

    #[test]
    fn a_limit_of_file_size_keeps_output_to_files_here() {
        let file = || tempfile::tempfile().expect("a file").into();
        let limit = Limit { resource: FILE_SIZE, soft: 4096, hard: u64::MAX };
        let why = keeps_here(&fds(null(), file()), &[limit]).expect("a reason");
        assert!(why.contains("4096 bytes"), "{why}");
    }
}

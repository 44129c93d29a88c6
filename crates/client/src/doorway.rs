//! Where callers find the daemon: the locks that make it the only one of its folders, and the door itself.

use crate::daemon::DaemonError;
use base::door::SOCKET_NAME;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::net::UnixListener;

/// Name of the lock in the runtime folder and in the state folder.
const LOCK_NAME: &str = "daemon.lock";
/// In the state folder: the path of the door of the daemon that uses it.
const DOOR_NAME: &str = "door";
/// How long an earlier daemon may take to end, and how often it is looked whether it has.
const PREDECESSOR_TIME_MAX: Duration = Duration::from_secs(4);
const PREDECESSOR_PAUSE: Duration = Duration::from_millis(10);
/// Longest path of a socket.
const PATH_BYTES_MAX: usize = 107;

/// Whose the state folder is.
pub(crate) enum Held {
    /// This process's, as long as it keeps this.
    Here(File),
    /// A daemon's whose door is there.
    Elsewhere(PathBuf),
}

/// The door of this daemon.
#[derive(Debug)]
pub(crate) struct Door {
    path: PathBuf,
    /// Device and inode of the socket's name: another daemon would make another one.
    made: (u64, u64),
}

/// Waits for a daemon that was told to end, and has then written down what it knows.
pub(crate) async fn take_lock(folder: &Path) -> Result<File, DaemonError> {
    let path = folder.join(LOCK_NAME);
    let file = lock_file(&path)?;
    let give_up = Instant::now() + PREDECESSOR_TIME_MAX;
    while !is_locked_now(&file) {
        if Instant::now() > give_up {
            return Err(DaemonError::Running(path));
        }
        tokio::time::sleep(PREDECESSOR_PAUSE).await;
    }
    Ok(file)
}

/// The same for the state folder, which sessions with other runtime folders share. A daemon that serves one of them serves all.
pub(crate) async fn take_state(folder: &Path) -> Result<Held, DaemonError> {
    let path = folder.join(LOCK_NAME);
    let file = lock_file(&path)?;
    let give_up = Instant::now() + PREDECESSOR_TIME_MAX;
    while !is_locked_now(&file) {
        let door = std::fs::read(folder.join(DOOR_NAME)).unwrap_or_default();
        let door = PathBuf::from(std::ffi::OsString::from_vec(door));
        if door.is_absolute() && reach(&door, |near| std::os::unix::net::UnixStream::connect(near)).is_ok() {
            return Ok(Held::Elsewhere(door));
        }
        if Instant::now() > give_up {
            return Err(DaemonError::Running(path));
        }
        tokio::time::sleep(PREDECESSOR_PAUSE).await;
    }
    Ok(Held::Here(file))
}

fn lock_file(path: &Path) -> Result<File, DaemonError> {
    let opened = File::options().create(true).truncate(false).write(true).open(path);
    opened.map_err(|source| DaemonError::Folder { path: path.to_owned(), source })
}

fn is_locked_now(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Does something with a socket by a path that is short enough for one.
fn reach<T>(path: &Path, act: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    if path.as_os_str().len() <= PATH_BYTES_MAX {
        return act(path);
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return act(path) };
    let folder = open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    act(&Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name))
}

/// Sends the callers of this runtime folder to another one's door.
pub(crate) fn point_to(runtime_dir: &Path, door: &Path) -> Result<(), DaemonError> {
    let path = runtime_dir.join(SOCKET_NAME);
    let made = remove(&path).and_then(|()| symlink(door, &path));
    made.map_err(|source| DaemonError::Listen { path, source })
}

impl Door {
    /// Makes the socket in the runtime folder, and notes in the state folder where it is.
    pub(crate) fn open(runtime_dir: &Path, state_dir: &Path) -> Result<(Self, UnixListener), DaemonError> {
        let path = runtime_dir.join(SOCKET_NAME);
        let failed = |source| DaemonError::Listen { path: path.clone(), source };
        remove(&path).map_err(failed)?;
        let listener = reach(&path, |near| UnixListener::bind(near)).map_err(failed)?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).map_err(failed)?;
        let made = identity(&path).map_err(failed)?;
        std::fs::write(state_dir.join(DOOR_NAME), path.as_os_str().as_bytes()).map_err(failed)?;
        Ok((Self { path, made }, listener))
    }

    /// Whether callers still find it: somebody may have emptied the folder.
    pub(crate) fn is_there(&self) -> bool {
        identity(&self.path).is_ok_and(|found| found == self.made)
    }

    /// Takes the name away, so that who comes now finds that nobody listens.
    pub(crate) fn close(&self) {
        if self.is_there() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Takes the lock of a runtime folder that was emptied; `None` if another daemon has.
pub(crate) fn take_lock_again(runtime_dir: &Path) -> Option<File> {
    lock_file(&runtime_dir.join(LOCK_NAME)).ok().filter(is_locked_now)
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_door_is_opened_by_a_long_path_and_missed_when_it_is_gone() {
        let folder = tempfile::tempdir().expect("a folder");
        let long = folder.path().join("x".repeat(120));
        std::fs::create_dir(&long).expect("made");
        let (door, _listener) = Door::open(&long, folder.path()).expect("a socket");
        assert!(door.is_there());
        let noted = std::fs::read(folder.path().join(DOOR_NAME)).expect("noted");
        assert_eq!(noted, long.join(SOCKET_NAME).as_os_str().as_bytes());
        assert!(reach(&long.join(SOCKET_NAME), |near| std::os::unix::net::UnixStream::connect(near)).is_ok());
        door.close();
        assert!(!door.is_there());
    }

    #[tokio::test]
    async fn one_state_folder_has_one_daemon() {
        let folder = tempfile::tempdir().expect("a folder");
        let (run, state) = (folder.path().join("run"), folder.path().join("state"));
        std::fs::create_dir(&run).expect("made");
        std::fs::create_dir(&state).expect("made");
        let Ok(Held::Here(_lock)) = take_state(&state).await else { panic!("it is free") };
        let (_door, _listener) = Door::open(&run, &state).expect("a socket");
        match take_state(&state).await {
            Ok(Held::Elsewhere(door)) => assert_eq!(door, run.join(SOCKET_NAME)),
            _ => panic!("another has it"),
        }
    }
}

//! A temporary folder that is gone when the test is, and the mark by which its processes are known.

use crate::error::{Context, Result};
use std::fs::{File, TryLockError};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Environment variable that every process of a run carries; its value is the scratch folder.
pub const MARK: &str = "GLEANER_E2E";
/// How the names of scratch folders begin.
pub const PREFIX: &str = "gleaner-e2e-";
/// From its making on.
const LOCKED_WITHIN: Duration = Duration::from_secs(10);

/// Copies a program by a process of its own. Were it written to here, a child that another thread forks meanwhile would hold it open for
/// writing, and it could not be executed until that child executes its own program.
pub fn copy_program(from: &Path, to: &Path) -> Result<()> {
    let hint = "copy (build it with `cargo build -p cli -p libgleaner -p e2e --bins`)";
    let copied = std::process::Command::new("cp").arg(from).arg(to).stderr(std::process::Stdio::null()).status();
    let failed = || std::io::Error::other("cp failed");
    copied.and_then(|status| if status.success() { Ok(()) } else { Err(failed()) }).at(hint, from)
}

/// A folder under the system's temporary folder, readable by all, removed on drop.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    keep: bool,
    /// Locked as long as this process lives: by this others know that it is in use.
    _lock: File,
}

impl Scratch {
    /// Makes a new one.
    pub fn new() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.subsec_nanos());
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("{PREFIX}{}-{count}-{nanos:x}", std::process::id()));
        std::fs::create_dir(&path).at("create", &path)?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).at("chmod", &path)?;
        let lock = File::open(&path).at("open", &path)?;
        lock.lock().at("lock", &path)?;
        Ok(Self { path, keep: false, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a folder in it with this mode.
    pub fn folder(&self, name: &str, mode: u32) -> Result<PathBuf> {
        let path = self.path.join(name);
        std::fs::create_dir_all(&path).at("create", &path)?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).at("chmod", &path)?;
        Ok(path)
    }

    /// Leaves the folder where it is, for a person to look at.
    pub fn keep(&mut self) {
        self.keep = true;
    }

    /// Removes it, and says if that cannot be done.
    pub fn remove(mut self) -> Result<()> {
        self.keep = true;
        remove_all(&self.path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.keep {
            // What still runs in it after a failure would make parts of it again.
            crate::leftovers::sweep(&self.path);
            let _ = remove_all(&self.path);
        }
    }
}

/// The folders whose names begin so.
pub fn folders(prefix: &str) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    entries.filter(move |entry| entry.file_name().to_string_lossy().starts_with(prefix)).map(|entry| entry.path())
}

/// Those of this user's runs that have ended without removing them.
pub fn abandoned() -> Vec<PathBuf> {
    folders(PREFIX).filter(|path| is_abandoned(path)).collect()
}

fn is_abandoned(path: &Path) -> bool {
    let Ok(folder) = File::open(path) else { return false };
    let Ok(found) = folder.metadata() else { return false };
    // One just made is not locked yet.
    let is_new = found.modified().ok().and_then(|made| made.elapsed().ok()).is_none_or(|age| age <= LOCKED_WITHIN);
    let is_own = found.uid() == rustix::process::geteuid().as_raw();
    is_own && !is_new && !matches!(folder.try_lock(), Err(TryLockError::WouldBlock))
}

/// Removes a tree, also where directories in it may not be written or searched.
pub fn remove_all(path: &Path) -> Result<()> {
    if std::fs::symlink_metadata(path).is_err() {
        return Ok(());
    }
    if std::fs::remove_dir_all(path).is_ok() {
        return Ok(());
    }
    open_up(path);
    std::fs::remove_dir_all(path).at("remove", path)
}

fn open_up(path: &Path) {
    let Ok(meta) = std::fs::symlink_metadata(path) else { return };
    if !meta.is_dir() {
        return;
    }
    let _ = std::fs::set_permissions(path, PermissionsExt::from_mode(0o700));
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        open_up(&entry.path());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_gone_afterwards() {
        let scratch = Scratch::new().unwrap();
        let inner = scratch.folder("a/b", 0o500).unwrap();
        std::fs::write(scratch.path().join("a/f"), b"x").unwrap();
        let path = scratch.path().to_path_buf();
        assert!(inner.is_dir());
        assert!(!abandoned().contains(&path), "it is in use");
        scratch.remove().unwrap();
        assert!(!path.exists());
    }
}

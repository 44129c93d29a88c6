//! The projects whose file this user trusts: each with the hash that the file had then, in one file of the client's state folder.

use crate::small_file;
use crate::snapshot::pause_nanos;
use base::{Digest, TreePath};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use wire::lock;

/// Its name in the state folder.
const NAME: &str = "trusted.json";
/// Most projects, and most bytes that they take.
const PINS_MAX: usize = 4096;
const BYTES_MAX: u64 = 32 << 20;
/// How long another change is waited for.
const TRIES_MAX: u32 = 250;
const TRY_PAUSE_NS: i64 = 20_000_000;

/// One project that is trusted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// The project's root.
    pub folder: String,
    /// The BLAKE3 hash of its file, in hexadecimal digits.
    pub digest: String,
    /// When that was said: milliseconds since 1970 UTC.
    pub trusted_ms: i64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Ledger {
    pins: Vec<Pin>,
}

/// The projects that are trusted.
#[derive(Debug)]
pub struct Pins {
    path: PathBuf,
    /// As they were read last, with that by which it is known whether that file is still there.
    known: Mutex<Option<(Stamp, Arc<Vec<Pin>>)>>,
}

/// By what a changed file is known.
type Stamp = (u64, u64, u64, i64, i64);

impl Pins {
    /// Those in the client's state folder, where there need be none yet.
    pub fn new(state: &Path) -> Self {
        Self { path: state.join(NAME), known: Mutex::default() }
    }

    /// The hash that the file of the project at `root` had when it was trusted; `None` if it never was.
    ///
    /// # Errors
    /// Says why it is not known.
    pub fn of(&self, root: &TreePath) -> io::Result<Option<Digest>> {
        let Ok(folder) = std::str::from_utf8(root.as_bytes()) else { return Ok(None) };
        let all = self.all()?;
        Ok(all.iter().find(|pin| pin.folder == folder).and_then(|pin| Digest::from_hex(&pin.digest)))
    }

    /// All of them.
    ///
    /// # Errors
    /// Says why they are not known.
    pub fn all(&self) -> io::Result<Arc<Vec<Pin>>> {
        let found = match std::fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Arc::default()),
            other => other?,
        };
        // Whoever else could have written it could trust in this user's name.
        if !found.is_file() || found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o022 != 0 {
            let what = format!("others may have written {}: remove it, and trust again", self.path.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        let stamp = (found.dev(), found.ino(), found.size(), found.mtime(), found.mtime_nsec());
        let mut known = lock(&self.known);
        if let Some((at, pins)) = &*known
            && *at == stamp
        {
            return Ok(pins.clone());
        }
        let ledger: Ledger = serde_json::from_slice(&small_file::read(&self.path, BYTES_MAX)?)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", self.path.display())))?;
        let pins = Arc::new(ledger.pins);
        *known = Some((stamp, pins.clone()));
        Ok(pins)
    }

    /// Trusts the file of the project at `root` as long as it has this hash.
    ///
    /// # Errors
    /// Says why nothing has changed.
    pub fn add(&self, root: &TreePath, digest: Digest, now_ms: i64) -> io::Result<()> {
        let folder = std::str::from_utf8(root.as_bytes());
        let folder = folder.map_err(|_| io::Error::other("the project's path is not UTF-8"))?;
        self.change(|pins| {
            pins.retain(|pin| pin.folder != folder);
            if pins.len() >= PINS_MAX {
                return Err(io::Error::other(format!("{PINS_MAX} projects are trusted already: revoke some")));
            }
            pins.push(Pin { folder: folder.to_owned(), digest: digest.to_hex(), trusted_ms: now_ms });
            pins.sort_by(|a, b| a.folder.cmp(&b.folder));
            Ok(())
        })
    }

    /// Trusts the project at `root` no more. Tells whether it was trusted.
    ///
    /// # Errors
    /// Says why nothing has changed.
    pub fn remove(&self, root: &TreePath) -> io::Result<bool> {
        let mut was_there = false;
        self.change(|pins| {
            let count = pins.len();
            pins.retain(|pin| pin.folder.as_bytes() != root.as_bytes());
            was_there = pins.len() < count;
            Ok(())
        })?;
        Ok(was_there)
    }

    /// Changes the list while nobody else does.
    fn change(&self, change: impl FnOnce(&mut Vec<Pin>) -> io::Result<()>) -> io::Result<()> {
        let turn = self.path.with_extension("lock");
        let turn = File::options().write(true).create(true).truncate(false).mode(0o600).open(turn)?;
        let mut tries = 0;
        while let Err(error) = rustix::fs::flock(&turn, FlockOperation::NonBlockingLockExclusive) {
            if error != Errno::WOULDBLOCK {
                return Err(error.into());
            }
            tries += 1;
            if tries >= TRIES_MAX {
                return Err(io::Error::other("another `gleaner trust` has been changing it for 5 s: try again"));
            }
            pause_nanos(TRY_PAUSE_NS);
        }
        let mut ledger = Ledger { pins: self.all()?.to_vec() };
        change(&mut ledger.pins)?;
        let text = serde_json::to_vec_pretty(&ledger).map_err(io::Error::other)?;
        if text.len() as u64 > BYTES_MAX {
            return Err(io::Error::other("the paths of the trusted projects are too long: revoke some"));
        }
        store::write_private(&self.path, &text, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn path(text: &str) -> TreePath {
        TreePath::parse(text.as_bytes()).expect("a normal path")
    }

    #[test]
    fn what_is_pinned_is_known_to_others_at_once_and_private() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mine, daemons) = (Pins::new(folder.path()), Pins::new(folder.path()));
        let (a, b) = (path("/p/a"), path("/p/b"));
        assert_eq!(daemons.of(&a).expect("none"), None);
        mine.add(&a, Digest::of(b"1"), 1).expect("pinned");
        assert_eq!(daemons.of(&a).expect("known"), Some(Digest::of(b"1")));
        mine.add(&b, Digest::of(b"2"), 2).expect("pinned");
        mine.add(&a, Digest::of(b"3"), 3).expect("pinned anew");
        assert_eq!(daemons.of(&a).expect("known"), Some(Digest::of(b"3")));
        assert_eq!(daemons.all().expect("known").len(), 2);
        assert!(mine.remove(&a).expect("removed") && !mine.remove(&a).expect("was gone"));
        assert_eq!((daemons.of(&a).expect("known"), daemons.of(&path("/p")).expect("known")), (None, None));
        let mode = std::fs::metadata(folder.path().join(NAME)).expect("is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn many_at_once_lose_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        std::thread::scope(|scope| {
            for number in 0..8 {
                let pins = Pins::new(folder.path());
                let root = path(&format!("/p/{number}"));
                scope.spawn(move || pins.add(&root, Digest::of(b"x"), 0).expect("pinned"));
            }
        });
        assert_eq!(Pins::new(folder.path()).all().expect("known").len(), 8);
    }

    #[test]
    fn a_list_that_others_could_have_written_is_not_believed() {
        let folder = tempfile::tempdir().expect("a folder");
        let pins = Pins::new(folder.path());
        pins.add(&path("/p"), Digest::of(b"x"), 0).expect("pinned");
        let file = folder.path().join(NAME);
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o622)).expect("opened");
        assert!(pins.of(&path("/p")).is_err() && pins.add(&path("/q"), Digest::of(b"x"), 0).is_err());
        std::fs::remove_file(&file).expect("removed");
        std::os::unix::fs::symlink("/dev/null", &file).expect("linked");
        assert!(pins.of(&path("/p")).is_err());
        std::fs::remove_file(&file).expect("removed");
        std::fs::write(&file, "not json").expect("written");
        assert!(pins.of(&path("/p")).is_err());
    }
}

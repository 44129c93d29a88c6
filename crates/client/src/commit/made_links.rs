//! The links that commits have made, also those that they gave another name: what such a link leads to is not what its user means by
//! naming it. A link of the user's own is.

use super::Committed;
use crate::small_file;
use base::TreePath;
use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use wire::lock;

/// Links that are remembered. Beyond, any link may be one.
const LINKS_MAX: usize = 65_536;
/// As much is read of what was remembered.
const BYTES_MAX: u64 = 16 << 20;

/// A link: device, inode, and when it came to be, in seconds and nanoseconds; where that is not known, when its target was written.
type Link = (u64, u64, i64, u32);

/// Those of one tree, also of earlier lives.
#[derive(Debug)]
pub(super) struct MadeLinks {
    root: PathBuf,
    file: PathBuf,
    known: Mutex<Known>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Known {
    links: BTreeSet<Link>,
    /// Some were not remembered.
    are_more: bool,
}

impl MadeLinks {
    /// Those beneath `root` that are kept in `file`. Where that cannot be read any link may be one.
    pub fn load(root: &Path, file: &Path) -> Self {
        let known = match small_file::read(file, BYTES_MAX).map(|bytes| serde_json::from_slice(&bytes)) {
            Ok(Ok(known)) => known,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Known::default(),
            _ => Known { are_more: true, ..Known::default() },
        };
        Self { root: root.to_owned(), file: file.to_owned(), known: Mutex::new(known) }
    }

    /// A commit has made these, links among them.
    pub fn note(&self, committed: &[Committed]) {
        // What has contents is a file.
        let others = committed.iter().filter(|made| made.content.is_none());
        let links: Vec<Link> = others.filter_map(|made| self.link(&made.path)).collect();
        let mut known = lock(&self.known);
        let count = known.links.len();
        known.links.extend(links);
        if known.links.len() > LINKS_MAX {
            *known = Known { are_more: true, ..Known::default() };
        }
        let has_changed = known.links.len() != count;
        if has_changed
            && let Err(error) =
                serde_json::to_vec(&*known).map_err(Into::into).and_then(|bytes| small_file::write(&self.file, &bytes))
        {
            tracing::warn!(%error, "{}: the links that a result has made are not remembered", self.file.display());
        }
    }

    /// Whether the link at `path` may be one of these.
    pub fn has(&self, path: &TreePath) -> bool {
        let known = lock(&self.known);
        known.are_more || (!known.links.is_empty() && self.link(path).is_none_or(|link| known.links.contains(&link)))
    }

    /// What is at `path`, if it is a link.
    fn link(&self, path: &TreePath) -> Option<Link> {
        let wanted = StatxFlags::INO | StatxFlags::TYPE | StatxFlags::BTIME | StatxFlags::MTIME;
        let at = path.components().fold(self.root.clone(), |at, name| at.join(OsStr::from_bytes(name)));
        let stat: Statx = rustix::fs::statx(CWD, &at, AtFlags::SYMLINK_NOFOLLOW, wanted).ok()?;
        if FileType::from_raw_mode(stat.stx_mode.into()) != FileType::Symlink {
            return None;
        }
        let has_birth = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
        let time = if has_birth { stat.stx_btime } else { stat.stx_mtime };
        let dev = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
        Some((dev, stat.stx_ino, time.tv_sec, time.tv_nsec))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::Stamp;
    use base::Time;
    use std::os::unix::fs::symlink;

    fn made(path: &str) -> Committed {
        let path = TreePath::parse(path.as_bytes()).expect("a path");
        let stamp = Stamp { dev: 0, ino: 0, size: 0, mtime: Time(0), ctime: Time(0), mount: 0 };
        Committed { path, stamp, content: None }
    }

    #[test]
    fn links_of_results_are_told_from_the_user_s_also_later_and_elsewhere() {
        let folder = tempfile::tempdir().expect("a folder");
        let (root, file) = (folder.path().join("root"), folder.path().join("state/links"));
        std::fs::create_dir(&root).expect("a folder");
        let links = MadeLinks::load(&root, &file);
        let has = |links: &MadeLinks, name: &str| links.has(&made(name).path);
        ["own", "made"].iter().for_each(|name| symlink("/srv", root.join(name)).expect("a link"));
        assert!(!has(&links, "/own") && !has(&links, "/made"));
        std::fs::write(root.join("file"), "").expect("a file");
        links.note(&["/made", "/file", "/absent"].map(made));
        for links in [&links, &MadeLinks::load(&root, &file)] {
            assert!(has(links, "/made") && !has(links, "/own"));
        }
        std::fs::rename(root.join("made"), root.join("moved")).expect("moved");
        assert!(has(&links, "/moved"), "by another name, too");
        std::fs::write(&file, "torn").expect("written");
        assert!(has(&MadeLinks::load(&root, &file), "/own"), "nobody knows");
    }
}

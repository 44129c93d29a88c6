//! The folders of a project in which a way to what is guarded begins, however deep they lie. Found by a walk, which is remembered for a
//! while: a task cannot make such a way, and who works in the project seldom does.

use super::{is_repository, list};
use crate::policy::begins_guarded;
use base::TreePath;
use rustix::fs::FileType;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wire::lock;

/// How long a walk is remembered.
const FRESH: Duration = Duration::from_secs(60);
/// How long one may take, and how many folders it may look into: those that are nearest to the root come first.
const TIME_MAX: Duration = Duration::from_millis(300);
const FOLDERS_MAX: usize = 20_000;
/// Entries of a folder that are looked at.
const ENTRIES_MAX: usize = 10_000;
/// Folders that are found, and projects and homes that are remembered.
const FOUND_MAX: usize = 1024;
const PROJECTS_MAX: usize = 16;
/// How deep, and in how many folders, links are looked for in a home's settings.
const SETTINGS_DEPTH: usize = 3;
const SETTINGS_FOLDERS_MAX: usize = 512;
const SETTINGS_LINKS_MAX: usize = 1024;

/// The walks of late.
#[derive(Debug, Default)]
pub struct Walks {
    known: Mutex<HashMap<TreePath, Walk>>,
    of_homes: Mutex<HashMap<TreePath, Walk>>,
}

#[derive(Debug)]
struct Walk {
    ended: Instant,
    found: Arc<[TreePath]>,
}

impl Walks {
    /// The folders in the project at `root` that have something that is guarded, or leads there. Looks at the file system.
    pub fn found_in(&self, root: &TreePath) -> Arc<[TreePath]> {
        remembered(&self.known, root, walked)
    }

    /// The links in the folders of `home`'s settings, as those have them who keep their settings elsewhere. Looks at the file system.
    pub(super) fn links_in_settings(&self, home: &TreePath) -> Arc<[TreePath]> {
        remembered(&self.of_homes, home, links_in_settings)
    }
}

fn remembered(
    known: &Mutex<HashMap<TreePath, Walk>>,
    root: &TreePath,
    walked: fn(&TreePath) -> Vec<TreePath>,
) -> Arc<[TreePath]> {
    let mut known = lock(known);
    if let Some(walk) = known.get(root).filter(|walk| walk.ended.elapsed() < FRESH) {
        return walk.found.clone();
    }
    known.retain(|_, walk| walk.ended.elapsed() < FRESH);
    let found: Arc<[TreePath]> = walked(root).into();
    if known.len() < PROJECTS_MAX {
        known.insert(root.clone(), Walk { ended: Instant::now(), found: found.clone() });
    }
    found
}

/// In the folders of `.config`, not in it itself, those that are nearest to it first.
fn links_in_settings(home: &TreePath) -> Vec<TreePath> {
    let begun = Instant::now();
    let (mut found, mut looked_into) = (Vec::new(), 0);
    let mut ahead = VecDeque::from([(home.join(b".config"), 0)]);
    while let Some((folder, depth)) = ahead.pop_front() {
        looked_into += 1;
        if looked_into > SETTINGS_FOLDERS_MAX || begun.elapsed() > TIME_MAX {
            break;
        }
        for (name, kind) in list(&folder).into_iter().flatten().take(ENTRIES_MAX) {
            match kind {
                FileType::Symlink if depth > 0 && found.len() < SETTINGS_LINKS_MAX => found.push(folder.join(&name)),
                FileType::Directory if depth + 1 < SETTINGS_DEPTH => ahead.push_back((folder.join(&name), depth + 1)),
                _ => {}
            }
        }
    }
    found
}

/// Nearest to the root first.
fn walked(root: &TreePath) -> Vec<TreePath> {
    let begun = Instant::now();
    let (mut found, mut looked_into) = (Vec::new(), 0);
    let mut ahead = VecDeque::from([root.clone()]);
    while let Some(folder) = ahead.pop_front() {
        looked_into += 1;
        if looked_into > FOLDERS_MAX || found.len() >= FOUND_MAX || begun.elapsed() > TIME_MAX {
            break;
        }
        let entries: Vec<(Vec<u8>, FileType)> = list(&folder).into_iter().flatten().take(ENTRIES_MAX).collect();
        let has = |wanted: &str| entries.iter().any(|(name, _)| name == wanted.as_bytes());
        if entries.iter().any(|(name, _)| begins_guarded(name)) || is_repository(has) {
            found.push(folder.clone());
        }
        let inner = entries.iter().filter(|(name, kind)| *kind == FileType::Directory && name != b".git");
        ahead.extend(inner.map(|(name, _)| folder.join(name)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_is_remembered_for_a_while() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = TreePath::parse(folder.path().as_os_str().as_encoded_bytes()).expect("a path");
        std::fs::create_dir_all(folder.path().join("a/b/c/.cargo")).expect("made");
        std::fs::create_dir_all(folder.path().join("a/.git/modules/x")).expect("made");
        let walks = Walks::default();
        let found = walks.found_in(&root);
        let [a, c] = ["a", "a/b/c"].map(|at| root.resolve(at.as_bytes()).expect("a path"));
        assert_eq!(*found, [a, c]);
        std::fs::create_dir(folder.path().join(".cargo")).expect("made");
        assert!(Arc::ptr_eq(&found, &walks.found_in(&root)));
        assert_eq!(walked(&root).len(), 3);
    }
}

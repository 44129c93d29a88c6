//! Which files and directories have POSIX access lists (ACL). A mirror shows modes, owners and groups only: a command that uses
//! a file with a list, or makes one in a directory that hands a list down, runs here.

use base::TreePath;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use wire::lock;

/// Most paths that are noted.
const PATHS_MAX: usize = 1 << 16;

/// The paths that have a list.
#[derive(Debug, Default)]
pub struct AccessLists(Mutex<Arc<BTreeSet<TreePath>>>);

impl AccessLists {
    /// Notes whether what is at `path` has one. At the bound nothing new is noted: so many are seen one by one.
    pub(super) fn note(&self, path: &TreePath, has: bool) {
        let mut paths = lock(&self.0);
        match has {
            true if paths.len() < PATHS_MAX => drop(Arc::make_mut(&mut paths).insert(path.clone())),
            true => {}
            false if paths.is_empty() => {}
            false => drop(Arc::make_mut(&mut paths).remove(path)),
        }
    }

    /// Why a command that uses paths of which `uses` is true is to run here, if one of them has a list.
    pub fn why_here(&self, uses: impl Fn(&TreePath) -> bool) -> Option<String> {
        // Not locked while `uses` looks: it waits for a view, whose holder may be about to note a path.
        let paths = lock(&self.0).clone();
        let path = paths.iter().find(|path| uses(path))?;
        Some(format!("{path} has an access list (ACL), by which only this machine can decide"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_noted_and_forgotten() {
        let path = TreePath::parse(b"/a").expect("a normal path");
        let lists = AccessLists::default();
        lists.note(&path, false);
        assert_eq!(lists.why_here(|_| true), None);
        lists.note(&path, true);
        assert!(lists.why_here(|_| false).is_none());
        assert!(lists.why_here(|used| *used == path).is_some_and(|why| why.starts_with("/a has an access list")));
        lists.note(&path, false);
        assert_eq!(lists.why_here(|_| true), None);
    }

    #[test]
    fn paths_can_be_noted_while_somebody_looks() {
        let path = TreePath::parse(b"/a").expect("a normal path");
        let lists = AccessLists::default();
        lists.note(&path, true);
        let noting = |path: &TreePath| {
            lists.note(path, false);
            true
        };
        assert!(lists.why_here(noting).is_some());
        assert_eq!(lists.why_here(|_| true), None);
    }
}

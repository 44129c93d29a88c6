//! A file system that the policies' tests make up: what marks a project, and what leads to a secret.

use super::Lookup;
use base::TreePath;

/// Nothing in it is a link or has a text.
pub(crate) struct Marked<'a> {
    /// The folders that have what marks a project.
    pub roots: &'a [&'a str],
    /// What secrets of a home lead to, within it.
    pub secrets: &'a [&'a str],
}

impl Lookup for Marked<'_> {
    fn has_any(&self, directory: &TreePath, _names: &[&str]) -> bool {
        self.roots.iter().any(|root| root.as_bytes() == directory.as_bytes())
    }
    fn physical(&self, path: &TreePath) -> Option<TreePath> {
        Some(path.clone())
    }
    fn links_to(&self, _path: &TreePath) -> Vec<TreePath> {
        Vec::new()
    }
    fn text(&self, _path: &TreePath) -> Option<Vec<u8>> {
        None
    }
    fn names(&self, _directory: &TreePath) -> Vec<Vec<u8>> {
        Vec::new()
    }
    fn secrets(&self, home: &TreePath) -> Vec<TreePath> {
        self.secrets.iter().filter_map(|secret| home.resolve(secret.as_bytes())).collect()
    }
    fn may_be_closed(&self, _path: &TreePath) -> bool {
        true
    }
}

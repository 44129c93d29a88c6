//! Where the paths after a delta are before it.

use base::{Action, Change, TreePath};
use std::collections::{HashMap, HashSet};

/// What a delta renames and removes.
#[derive(Debug, Default)]
pub(crate) struct Before<'a> {
    renamed: HashMap<&'a TreePath, &'a TreePath>,
    /// What is removed or renamed away: what is there afterwards is new.
    gone: HashSet<&'a TreePath>,
}

impl<'a> Before<'a> {
    /// Of these changes.
    pub fn of(changes: impl IntoIterator<Item = &'a Change>) -> Self {
        let mut before = Self::default();
        for change in changes {
            match &change.action {
                Action::Rename { from } => {
                    before.renamed.insert(&change.path, from);
                    before.gone.insert(from);
                }
                Action::Remove => drop(before.gone.insert(&change.path)),
                _ => {}
            }
        }
        before
    }

    /// Where what is at `path` afterwards was before, as far as the delta says; `None`: it is new, or is in a folder that is.
    pub fn origin(&self, path: &TreePath) -> Option<TreePath> {
        if self.gone.is_empty() {
            return Some(path.clone());
        }
        let (mut after, mut here) = (TreePath::root(), Some(TreePath::root()));
        for name in path.components() {
            after = after.join(name);
            here = match self.renamed.get(&after) {
                Some(from) => Some((*from).clone()),
                None => here.map(|here| here.join(name)).filter(|here| !self.gone.contains(here)),
            };
        }
        here
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Base;

    #[test]
    fn what_is_in_a_folder_that_takes_another_ones_place_is_new() {
        let path = |text: &str| TreePath::parse(text.as_bytes()).unwrap();
        let change = |at: &str, action| Change { path: path(at), base: Base::Absent, action };
        let changes = [
            change("/d", Action::Rename { from: path("/c") }),
            change("/x/y", Action::Rename { from: path("/d") }),
            change("/e", Action::Remove),
        ];
        let before = Before::of(&changes);
        let origin = |at: &str| before.origin(&path(at)).map(|here| here.to_string());
        for (at, was) in [
            ("/f/g", Some("/f/g")),
            ("/d", Some("/c")),
            ("/d/a/b", Some("/c/a/b")),
            ("/x/y/a", Some("/d/a")),
            ("/x/z", Some("/x/z")),
            ("/c", None),
            ("/c/a/b", None),
            ("/e", None),
            ("/e/a", None),
        ] {
            assert_eq!(origin(at).as_deref(), was, "{at}");
        }
        assert_eq!(Before::default().origin(&path("/c/a")), Some(path("/c/a")));
    }
}

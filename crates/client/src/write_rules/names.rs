//! The names of files with several, as far as a result may write to them. Package managers give a file of a project a second name in their
//! own store: what is written to it in place shows there, where the write policy was not asked.

use super::WriteRules;
use crate::guard::list;
use crate::policy::Trust;
use base::TreePath;
use rustix::fs::FileType;
use std::collections::{HashMap, VecDeque};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long a walk may take, and how many folders it may look into. Of what it does not come to the names are not known.
const TIME_MAX: Duration = Duration::from_millis(300);
const FOLDERS_MAX: usize = 20_000;

/// Names in the project and in the environments that a command may change.
#[derive(Debug)]
pub struct NamesWithin<'a> {
    rules: &'a WriteRules,
    /// How many there are of each file that has several; counted when it is asked for.
    counted: OnceLock<HashMap<(u64, u64), u32>>,
}

impl<'a> NamesWithin<'a> {
    /// Those where `rules` let a result write.
    pub fn of(rules: &'a WriteRules) -> Self {
        Self { rules, counted: OnceLock::new() }
    }

    /// Whether the file of this device and inode has all its `names` there, or its worker is one's own. Looks at the file system.
    pub fn has_all(&self, file: (u64, u64), names: u32) -> bool {
        let scope = self.rules.policy.scope();
        if scope.trust == Trust::Own {
            return true;
        }
        let counted = self.counted.get_or_init(|| count(self.rules.policy.roots().chain(&scope.own_environments)));
        counted.get(&file).is_some_and(|count| *count >= names)
    }
}

/// Each folder once, those that are nearest to a root first.
fn count<'a>(roots: impl Iterator<Item = &'a TreePath>) -> HashMap<(u64, u64), u32> {
    let begun = Instant::now();
    let mut ahead: VecDeque<TreePath> = VecDeque::new();
    for root in roots {
        let is_within = ahead.iter().any(|other| root.is_within(other));
        ahead.retain(|other| !other.is_within(root));
        if !is_within {
            ahead.push_back(root.clone());
        }
    }
    let (mut counted, mut looked_into) = (HashMap::new(), 0);
    while let Some(folder) = ahead.pop_front() {
        looked_into += 1;
        if looked_into > FOLDERS_MAX {
            break;
        }
        for (name, kind) in list(&folder).into_iter().flatten() {
            if begun.elapsed() > TIME_MAX {
                return counted;
            }
            match kind {
                FileType::Directory => ahead.push_back(folder.join(&name)),
                FileType::RegularFile | FileType::Unknown => {
                    let file = super::stat(&folder.join(&name)).filter(|stat| stat.st_nlink > 1);
                    file.into_iter().for_each(|stat| *counted.entry((stat.st_dev, stat.st_ino)).or_default() += 1);
                }
                _ => {}
            }
        }
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_counted_once_in_roots_within_each_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("p/env/deep")).expect("made");
        for (first, second) in [("p/a", "p/env/deep/a"), ("p/b", "outside"), ("p/env/c", "p/env/d")] {
            std::fs::write(at(first), "x").expect("written");
            std::fs::hard_link(at(first), at(second)).expect("linked");
        }
        let path = |name: &str| TreePath::parse(at(name).as_os_str().as_encoded_bytes()).expect("a path");
        let counted = count([path("p"), path("p/env")].iter());
        let of = |name: &str| {
            let stat = super::super::stat(&path(name)).expect("is there");
            counted.get(&(stat.st_dev, stat.st_ino)).copied()
        };
        assert_eq!([of("p/a"), of("p/b"), of("p/env/c")], [Some(2), Some(1), Some(2)]);
    }

    /// A package manager's file is its own, and the project's are the project's.
    #[test]
    fn others_workers_write_at_names_within_alone() {
        use crate::policy::testing::Marked;
        use crate::policy::{Scope, ScopeInput};
        use std::sync::Arc;
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("is there");
        std::fs::create_dir_all(root.join("p/node_modules")).expect("made");
        for (first, second) in [("p/a", "p/b"), ("store", "p/node_modules/x")] {
            std::fs::write(root.join(first), "x").expect("written");
            std::fs::hard_link(root.join(first), root.join(second)).expect("linked");
        }
        let path = |name: &str| TreePath::parse(root.join(name).as_os_str().as_encoded_bytes()).expect("a path");
        let (project, argv) = (path("p"), [b"make".to_vec()]);
        for (trust, is_let_through) in [(Trust::Own, true), (Trust::Others, false), (Trust::Anybody, false)] {
            let input = ScopeInput { home: None, uid: 1, cwd: &project, argv: &argv, env: &[], program: &[], trust };
            let scope = Scope::new(&input, &Marked { roots: &[&project.to_string()], secrets: &[] });
            let rules = WriteRules::new(scope, Vec::new(), Arc::default());
            let within = NamesWithin::of(&rules);
            let has_all = |name: &str| {
                let stat = super::super::stat(&path(name)).expect("is there");
                within.has_all((stat.st_dev, stat.st_ino), 2)
            };
            assert!(has_all("p/a"), "{trust:?}");
            assert_eq!(has_all("p/node_modules/x"), is_let_through, "{trust:?}");
        }
    }
}

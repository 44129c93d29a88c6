//! Files and directories of which a mirror cannot show all: POSIX access lists (ACL), attributes of the system's own, and pipes and
//! devices, whose other end is here. A command that uses one, or makes a file in a directory that hands a list down, runs here.

use base::TreePath;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use wire::lock;

/// Most paths that are noted.
const PATHS_MAX: usize = 1 << 16;
/// Programs of the system have capabilities, and nobody asks for them who only lists a folder.
const SYSTEM: [&[u8]; 6] = [b"usr", b"bin", b"sbin", b"opt", b"snap", b"nix"];

/// What a mirror does not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unshown {
    /// An access list.
    List,
    /// Capabilities, or attributes of root's.
    Attributes,
    /// The other end of a named pipe.
    Pipe,
    /// A device.
    Device,
    /// What is in shared memory, and has a link to it.
    Memory,
}

/// The paths that have something which is not shown.
#[derive(Debug, Default)]
pub struct NotShown(Mutex<Arc<BTreeMap<TreePath, Unshown>>>);

impl Unshown {
    /// What has this as one of the attributes of these names, each with a zero byte behind it.
    pub(super) fn of_names(path: &TreePath, names: &[u8]) -> Option<Self> {
        let is_system = || path.components().next().is_some_and(|first| SYSTEM.contains(&first));
        let kind = |name: &[u8]| match name {
            _ if name.starts_with(b"system.posix_acl_") => Some(Self::List),
            _ if name == b"security.capability" && !is_system() => Some(Self::Attributes),
            _ if name.starts_with(b"trusted.") && !name.starts_with(b"trusted.overlay.") => Some(Self::Attributes),
            _ => None,
        };
        names.split(|byte| *byte == 0).find_map(kind)
    }

    /// What a symbolic link has that leads there.
    pub(super) fn of_target(target: &[u8]) -> Option<Self> {
        let rest = target.strip_prefix(b"/dev/shm")?;
        matches!(rest.first(), None | Some(b'/')).then_some(Self::Memory)
    }

    fn sentence(self, path: &TreePath) -> String {
        match self {
            Self::List => format!("{path} has an access list (ACL), by which only this machine can decide"),
            Self::Attributes => {
                format!("{path} has capabilities or attributes of root's, which only this machine shows")
            }
            Self::Pipe => format!("{path} is a named pipe, and what is at its other end is on this machine"),
            Self::Device => format!("{path} is a device of this machine"),
            Self::Memory => format!("{path} is a link to shared memory of this machine"),
        }
    }

    /// Whether a command that was noticed already, or must not run here, goes on without it.
    fn is_dispensable(self) -> bool {
        matches!(self, Self::Pipe | Self::Device)
    }
}

impl NotShown {
    /// Notes what of `path` is not shown. At the bound nothing new is noted: so many are seen one by one.
    pub(super) fn note(&self, path: &TreePath, what: Option<Unshown>) {
        let mut paths = lock(&self.0);
        match what {
            Some(what) if paths.get(path) == Some(&what) => {}
            Some(what) if paths.len() < PATHS_MAX => drop(Arc::make_mut(&mut paths).insert(path.clone(), what)),
            Some(_) => {}
            None if !paths.contains_key(path) => {}
            None => drop(Arc::make_mut(&mut paths).remove(path)),
        }
    }

    /// Whether all is shown.
    pub fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    /// Paths of which `is_one` is true that have something which no command may do without.
    pub fn indispensable(&self, is_one: impl Fn(&TreePath) -> bool) -> Vec<TreePath> {
        let paths = lock(&self.0).clone();
        let found = paths.iter().filter(|(path, what)| !what.is_dispensable() && is_one(path));
        found.map(|(path, _)| path.clone()).collect()
    }

    /// Why a command that uses paths of which `uses` is true is to run here, if one of them has something that is not shown.
    /// `may_go_on`: it goes on without what it may do without. `about`: that counts only where this is true.
    pub fn why_here(
        &self,
        may_go_on: bool,
        uses: impl Fn(&TreePath) -> bool,
        about: impl Fn(&TreePath) -> bool,
    ) -> Option<String> {
        // Not locked while `uses` looks: it waits for a view, whose holder may be about to note a path.
        let paths = lock(&self.0).clone();
        let counts = |(path, what): &(&TreePath, &Unshown)| {
            let is_left_out = what.is_dispensable() && (may_go_on || !about(path));
            !is_left_out && uses(path)
        };
        let (path, what) = paths.iter().find(counts)?;
        Some(what.sentence(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> TreePath {
        TreePath::parse(text.as_bytes()).expect("a normal path")
    }

    #[test]
    fn a_list_is_noted_and_forgotten() {
        let (path, lists) = (path("/a"), NotShown::default());
        let why = |uses: bool| lists.why_here(true, |_| uses, |_| true);
        lists.note(&path, None);
        assert_eq!(why(true), None);
        lists.note(&path, Some(Unshown::List));
        assert!(why(false).is_none());
        assert!(why(true).is_some_and(|why| why.starts_with("/a has an access list")));
        lists.note(&path, None);
        assert_eq!(why(true), None);
    }

    #[test]
    fn a_pipe_keeps_here_who_may_run_here_and_is_about_it() {
        let (path, lists) = (path("/a/p"), NotShown::default());
        lists.note(&path, Some(Unshown::Pipe));
        assert_eq!(lists.why_here(true, |_| true, |_| true), None);
        assert_eq!(lists.why_here(false, |_| true, |_| false), None);
        assert!(lists.why_here(false, |_| true, |_| true).is_some_and(|why| why.starts_with("/a/p is a named pipe")));
    }

    #[test]
    fn attributes_that_are_not_shown() {
        let of = |at: &str, names: &[u8]| Unshown::of_names(&path(at), names);
        assert_eq!(of("/home/u/x", b"user.a\0system.posix_acl_access\0"), Some(Unshown::List));
        assert_eq!(of("/home/u/x", b"security.capability\0"), Some(Unshown::Attributes));
        assert_eq!(of("/usr/bin/ping", b"security.capability\0"), None);
        assert_eq!(of("/srv/x", b"user.a\0trusted.b\0"), Some(Unshown::Attributes));
        assert_eq!(of("/srv/x", b"trusted.overlay.opaque\0security.selinux\0"), None);
    }

    #[test]
    fn links_to_shared_memory() {
        assert_eq!(Unshown::of_target(b"/dev/shm/x"), Some(Unshown::Memory));
        assert_eq!(Unshown::of_target(b"/dev/shm"), Some(Unshown::Memory));
        assert_eq!([&b"/dev/shmx"[..], b"../dev/shm/x", b"x"].map(Unshown::of_target), [None, None, None]);
    }

    #[test]
    fn paths_can_be_noted_while_somebody_looks() {
        let (path, lists) = (path("/a"), NotShown::default());
        lists.note(&path, Some(Unshown::List));
        let noting = |path: &TreePath| {
            lists.note(path, None);
            true
        };
        assert!(lists.why_here(true, noting, |_| true).is_some());
        assert_eq!(lists.why_here(true, |_| true, |_| true), None);
    }
}

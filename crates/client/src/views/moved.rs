//! Whether what a task has seen is still so, when it gets a lock.

use super::{View, Views};
use crate::policy::Gate;
use base::{Binding, Content, Time, TreePath, Version};
use wire::lock;

/// How coarse the clocks of file systems are.
const GRAIN_NS: i64 = 10_000_000;

/// What a task has seen of its view: it was launched then, with this version of it, if that is known.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Or when its job's epoch began.
    pub since: Time,
    /// What is of this version and has the same stamp still is what it has seen, whatever the clock says.
    pub version: Option<Version>,
    /// The numbers of device and file of where its output goes, as far as there is some: that changes these.
    pub own: [Option<(u64, u64)>; 2],
}

impl Seen {
    /// What a task has seen that was launched then, with this version of its view.
    pub fn new(since: Time, version: Option<Version>) -> Self {
        Self { since, version, own: [None; 2] }
    }
}

/// Which folders count as changed that others change all the time: `/tmp`, and those above the working folder.
#[derive(Clone, Copy, Debug)]
pub enum Counted<'a> {
    /// None.
    Nothing,
    /// This one, unless it is `/tmp`.
    Beside(&'a TreePath),
    /// All but `/tmp` and `/`, in which nobody keeps what commands count in.
    Most,
    /// All of them.
    All,
}

impl Counted<'_> {
    /// Whether a change of this path counts.
    fn has(self, path: &TreePath, cwd: &TreePath) -> bool {
        match self {
            Counted::All => true,
            _ if path.as_bytes() == b"/tmp" => false,
            Counted::Most => !path.is_root(),
            Counted::Beside(folder) if path == folder => true,
            _ => path == cwd || !cwd.is_within(path),
        }
    }
}

impl Views {
    /// A path of the view that has changed since a task saw it. What changed within the clock's grain before that is bound once more under
    /// `gate`, and has changed if it is something else then. What is in a folder counts in any case, but for names that the folder's
    /// listing has shown as absent.
    pub fn moved(
        &self,
        view: &View,
        seen: Seen,
        (cwd, counted): (&TreePath, Counted<'_>),
        gate: &dyn Gate,
    ) -> Option<TreePath> {
        let seen = Seen { since: Time(seen.since.0 - GRAIN_NS), ..seen };
        // As it is now, in a job's view too: what the job's epoch has of it is what the task saw.
        let is_same = |path: &TreePath, seen: &Binding| {
            // What is not read is named by its stamp, which does not tell.
            let tells = !matches!(seen, Binding::File { content: Content::Lazy(_), .. });
            tells && self.snapshot.bind(path, gate).is_ok_and(|now| now.binding == *seen)
        };
        lock(&view.table).moved(seen, |path| counted.has(path, cwd), is_same).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_change_all_the_time_counts_where_it_is_asked_for() {
        let path = |text: &str| TreePath::parse(text.as_bytes()).unwrap();
        let (cwd, above) = (path("/home/u/work"), path("/home/u"));
        let counted = |counted: Counted<'_>| {
            ["/tmp", "/home", "/home/u", "/home/u/work", "/home/u/work/in", "/usr", "/tmp/in"]
                .into_iter()
                .filter(|text| counted.has(&path(text), &cwd))
                .count()
        };
        assert_eq!(counted(Counted::Nothing), 4);
        assert_eq!(counted(Counted::Beside(&above)), 5);
        assert_eq!(counted(Counted::Beside(&path("/tmp"))), 4);
        assert_eq!(counted(Counted::All), 7);
    }
}

//! A delta is hostile input: what every honest worker keeps to is checked before anything else.

use super::error::CommitError;
use super::tree::is_mirrored_xattr;
use base::delta::FileChange;
use base::{Action, Attr, Base, Change, Content, Delta, TreePath, Xattr};
use std::collections::{HashMap, HashSet};

/// Most changes in a delta.
pub const CHANGES_MAX: usize = 1_000_000;
/// Most bytes of all files of a delta together, holes not counted where they are known as such.
pub const BYTES_MAX: u64 = 1 << 42;
/// What the folders above all paths of a delta have in bytes together: each is gone through a few times. A million files in ten folders
/// each have a sixth of that.
const WAYS_BYTES_MAX: usize = 4 << 30;
/// As much of a path is told that is refused.
const SHOWN_BYTES_MAX: usize = 256;
/// Most `user.` attributes of one file.
const XATTRS_MAX: usize = 256;
/// Longest target of a symbolic link in bytes.
const TARGET_BYTES_MAX: usize = 4095;

/// The position in the order of a delta.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    LastWrites,
    Renames,
    Removals,
    Rest,
}

/// Checks the rules that [`Delta`] states, and the limits above.
///
/// # Errors
/// [`CommitError::Invalid`] with the first rule that is broken.
pub fn validate(delta: &Delta) -> Result<(), CommitError> {
    if delta.changes.len() > CHANGES_MAX {
        return Err(invalid(format!("{} changes, more than {CHANGES_MAX}", delta.changes.len())));
    }
    let mut seen = Seen::default();
    delta.changes.iter().try_for_each(|change| seen.accept(change))?;
    accept_nesting(delta)?;
    delta.changes.iter().try_for_each(|change| seen.accept_whole(change))
}

/// What is in a directory of the rest comes after it, and in nothing else of the rest is anything. In the order of the tree, so that no
/// path is gone through once for each of its ancestors: it may have thirty thousand.
fn accept_nesting(delta: &Delta) -> Result<(), CommitError> {
    let changes = delta.changes.iter().enumerate();
    let mut rest: Vec<(usize, &Change)> = changes.filter(|(_, change)| group(change) == Group::Rest).collect();
    rest.sort_unstable_by(|(_, a), (_, b)| in_tree_order(&a.path).cmp(in_tree_order(&b.path)));
    let mut outer: Vec<(usize, &Change)> = Vec::new();
    for (at, change) in rest {
        let path = &change.path;
        while outer.last().is_some_and(|(_, outer)| !path.is_within(&outer.path)) {
            outer.pop();
        }
        match outer.last() {
            Some((_, outer)) if !matches!(outer.action, Action::Directory { .. }) => {
                return Err(invalid(format!("{path} is in something that is no directory")));
            }
            Some((before, _)) if *before > at => return Err(invalid(format!("{path} comes before what it needs"))),
            _ => outer.push((at, change)),
        }
    }
    Ok(())
}

/// By this a directory comes before all beneath it, and that before all else.
fn in_tree_order(path: &TreePath) -> impl Iterator<Item = u8> {
    path.as_bytes().iter().map(|byte| if *byte == b'/' { 0 } else { *byte })
}

fn group(change: &Change) -> Group {
    match &change.action {
        Action::LastWrite { .. } => Group::LastWrites,
        Action::Rename { .. } => Group::Renames,
        Action::Remove => Group::Removals,
        _ => Group::Rest,
    }
}

fn invalid(why: impl Into<String>) -> CommitError {
    CommitError::Invalid(why.into())
}

#[derive(Default)]
struct Seen<'a> {
    group: Option<Group>,
    from: HashSet<&'a TreePath>,
    to: HashSet<&'a TreePath>,
    removed: HashSet<&'a TreePath>,
    written: HashSet<&'a TreePath>,
    /// Whether what the rest has at a path can have a second name.
    rest: HashMap<&'a TreePath, bool>,
    bytes: u64,
    way_bytes: usize,
}

impl<'a> Seen<'a> {
    fn accept(&mut self, change: &'a Change) -> Result<(), CommitError> {
        let path = &change.path;
        self.accept_path(path)?;
        let group = group(change);
        if self.group.is_some_and(|last| last > group) {
            return Err(invalid(format!("{path} is out of order")));
        }
        self.group = Some(group);
        let directory = matches!(change.action, Action::Directory { .. });
        let linkable = matches!(change.action, Action::File { .. } | Action::Symlink { .. } | Action::Fifo { .. });
        let fresh = match &change.action {
            Action::Rename { from } => {
                self.accept_path(from)?;
                self.from.insert(from) && self.to.insert(path) && !from.is_root()
            }
            Action::Remove => self.removed.insert(path),
            Action::LastWrite { .. } => self.written.insert(path),
            _ => self.rest.insert(path, linkable).is_none(),
        };
        if !fresh {
            return Err(invalid(format!("{path} occurs twice")));
        }
        let replaces = matches!(change.action, Action::Directory { replaces: true, .. });
        if path.is_root() && (!directory || replaces) {
            return Err(invalid("the root cannot be replaced"));
        }
        self.accept_action(change)
    }

    fn accept_path(&mut self, path: &TreePath) -> Result<(), CommitError> {
        if !TreePath::accepts(path.as_bytes()) {
            let shown = base::path::told(&path.to_string(), SHOWN_BYTES_MAX);
            return Err(invalid(format!("{shown} is no path that a file can have, or too long a one")));
        }
        self.way_bytes += path.way_bytes();
        match self.way_bytes > WAYS_BYTES_MAX {
            true => Err(invalid("more folders above its files than anybody could go through")),
            false => Ok(()),
        }
    }

    fn accept_action(&mut self, change: &Change) -> Result<(), CommitError> {
        let path = &change.path;
        match &change.action {
            Action::Remove | Action::Rename { .. } | Action::LastWrite { .. } if change.base == Base::Absent => {
                Err(invalid(format!("{path}: nothing was there")))
            }
            Action::Remove | Action::Rename { .. } => Ok(()),
            Action::Directory { attr, xattrs, .. } => {
                accept_attr(path, attr)?;
                accept_xattrs(path, xattrs)
            }
            Action::LastWrite { change: FileChange::Appended { .. }, .. } => {
                Err(invalid(format!("{path} grew and lost its name")))
            }
            Action::File { attr, xattrs, content, change: how }
            | Action::LastWrite { attr, xattrs, content, change: how } => {
                accept_attr(path, attr)?;
                accept_xattrs(path, xattrs)?;
                if *how != FileChange::Attributes {
                    self.bytes = self.bytes.saturating_add(attr.size);
                }
                if self.bytes > BYTES_MAX {
                    return Err(invalid(format!("more than {BYTES_MAX} bytes")));
                }
                accept_content(change, attr, content, how)
            }
            Action::Symlink { target, attr } => {
                accept_attr(path, attr)?;
                match target.is_empty() || target.len() > TARGET_BYTES_MAX || target.contains(&0) {
                    true => Err(invalid(format!("{path} is a link to nothing that a link can point to"))),
                    false => Ok(()),
                }
            }
            Action::HardLink { to } => {
                self.accept_path(to)?;
                match self.rest.get(to) {
                    _ if to == path => Err(invalid(format!("{path} is a link to itself"))),
                    Some(false) => Err(invalid(format!("{path} is a second name of what can have none"))),
                    _ => Ok(()),
                }
            }
            Action::Fifo { attr } => accept_attr(path, attr),
        }
    }

    /// What can only be told when all changes are known: a link comes after what it is a name of.
    fn accept_whole(&mut self, change: &'a Change) -> Result<(), CommitError> {
        let path = &change.path;
        match &change.action {
            Action::Rename { .. } | Action::Remove => return Ok(()),
            Action::LastWrite { .. } if self.removed.contains(path) => return Ok(()),
            Action::LastWrite { .. } => {
                return Err(invalid(format!("{path} is said to have lost its name, and has not")));
            }
            _ => {}
        }
        // Those passed are taken out of `rest`: what is still in it comes later.
        self.rest.remove(path);
        match &change.action {
            Action::HardLink { to } if self.rest.contains_key(to) => {
                Err(invalid(format!("{path} comes before what it needs")))
            }
            _ => Ok(()),
        }
    }
}

fn accept_attr(path: &TreePath, attr: &Attr) -> Result<(), CommitError> {
    match attr.mode & !0o7777 != 0 || attr.size > i64::MAX as u64 || attr.uid == u32::MAX || attr.gid == u32::MAX {
        true => Err(invalid(format!("{path} has attributes that no file can have"))),
        false => Ok(()),
    }
}

fn accept_xattrs(path: &TreePath, xattrs: &[Xattr]) -> Result<(), CommitError> {
    let plain = |xattr: &Xattr| {
        xattr.name.starts_with(b"user.")
            && (6..=255).contains(&xattr.name.len())
            && !xattr.name.contains(&0)
            && xattr.value.len() <= 1 << 16
    };
    let mut names: Vec<&[u8]> = xattrs.iter().map(|xattr| xattr.name.as_slice()).collect();
    names.sort_unstable();
    let repeated = names.windows(2).any(|pair| pair[0] == pair[1]);
    match xattrs.len() > XATTRS_MAX || repeated || !xattrs.iter().all(plain) {
        true => Err(invalid(format!("{path} has extended attributes other than plain `user.` ones"))),
        false => Ok(()),
    }
}

fn accept_content(change: &Change, attr: &Attr, content: &Content, how: &FileChange) -> Result<(), CommitError> {
    let path = &change.path;
    match content {
        // Whatever is said of bytes that stay is ignored.
        _ if *how == FileChange::Attributes => {}
        Content::Lazy(_) | Content::Unreadable(_) => return Err(invalid(format!("{path} has no content"))),
        Content::Empty if attr.size != 0 => return Err(invalid(format!("{path} is empty and is not"))),
        Content::Block(_) if attr.size > base::BLOCK_BYTES_MAX as u64 => {
            return Err(invalid(format!("{path} is one block and larger than a block can be")));
        }
        _ => {}
    }
    match how {
        FileChange::Written => Ok(()),
        FileChange::Appended { from: 0 } => Ok(()),
        _ if change.base == Base::Absent => Err(invalid(format!("{path} is new, and is said to be old"))),
        FileChange::Appended { from } if *from > attr.size => {
            Err(invalid(format!("{path} is said to have grown, and has not")))
        }
        FileChange::Appended { .. } | FileChange::Attributes => Ok(()),
    }
}

/// The attributes of `xattrs` that are committed. What stands for a value that the task was not shown is none.
pub(crate) fn committed_xattrs(xattrs: &[Xattr]) -> Vec<Xattr> {
    let is_committed = |xattr: &&Xattr| is_mirrored_xattr(&xattr.name) && !xattr.is_kept_back();
    let mut kept: Vec<Xattr> = xattrs.iter().filter(is_committed).cloned().collect();
    kept.sort_by(|a, b| a.name.cmp(&b.name));
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Seq;

    fn path(text: &str) -> TreePath {
        TreePath::parse(text.as_bytes()).expect("a normal path")
    }

    fn change(at: &str, base: Base, action: Action) -> Change {
        Change { path: path(at), base, action }
    }

    fn file(at: &str) -> Change {
        let action = Action::File {
            attr: Attr::default(),
            xattrs: vec![],
            content: Content::Empty,
            change: FileChange::Written,
        };
        change(at, Base::Absent, action)
    }

    fn directory(at: &str, replaces: bool) -> Change {
        change(at, Base::Absent, Action::Directory { attr: Attr::default(), xattrs: vec![], replaces })
    }

    fn with(action: impl FnOnce(&mut Attr, &mut Vec<Xattr>, &mut Content, &mut FileChange)) -> Vec<Change> {
        let mut made = file("/a");
        let Action::File { attr, xattrs, content, change } = &mut made.action else { panic!("a file") };
        action(attr, xattrs, content, change);
        vec![made]
    }

    fn xattr(name: &str) -> Xattr {
        Xattr { name: name.into(), value: vec![] }
    }

    /// Each is in another folder, and each of thirty thousand folders above it would be looked for.
    #[test]
    fn paths_as_deep_as_can_be_take_no_time() {
        let deep = |name: usize| {
            let folders = "/x".repeat(4000);
            file(&format!("/{name}{folders}/f"))
        };
        let delta = Delta { changes: (0..200).map(deep).collect() };
        let cpu = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime).tv_sec;
        let before = cpu();
        assert!(validate(&delta).is_ok());
        assert!(cpu() - before <= 3, "{} s", cpu() - before);
    }

    #[test]
    fn what_no_honest_worker_sends_is_refused() {
        let symlink = |at: &str, target: &str| {
            change(at, Base::Absent, Action::Symlink { attr: Attr::default(), target: target.into() })
        };
        let link = |at: &str, to: &str| change(at, Base::Absent, Action::HardLink { to: path(to) });
        let seen = Base::Bound(Seq(1));
        let last_write = |at: &str| {
            let (attr, change_of) = (Attr::default(), FileChange::Attributes);
            let action = Action::LastWrite { attr, xattrs: vec![], content: Content::Empty, change: change_of };
            change(at, seen, action)
        };
        let bad: Vec<(&str, Vec<Change>)> = vec![
            ("twice", vec![file("/a"), file("/a")]),
            ("in a file", vec![file("/a"), file("/a/b")]),
            ("in a link", vec![symlink("/a", "/etc"), file("/a/b/c")]),
            ("before its directory", vec![file("/a/b"), directory("/a", false)]),
            ("far below a link that comes later", vec![file("/a/b/c/d"), symlink("/a/b", "/etc")]),
            ("far below a directory that comes later", vec![file("/a/b/c/d"), file("/a-"), directory("/a", false)]),
            ("removal late", vec![file("/a"), change("/b", seen, Action::Remove)]),
            ("root", vec![change("/", seen, Action::Remove)]),
            ("root file", vec![file("/")]),
            ("removal of nothing", vec![change("/b", Base::Absent, Action::Remove)]),
            ("link to itself", vec![link("/a", "/a")]),
            ("link before file", vec![link("/a", "/b"), file("/b")]),
            ("link to directory", vec![directory("/b", false), link("/c", "/b")]),
            ("empty link", vec![symlink("/a", "")]),
            ("NUL in link", vec![symlink("/a", "a\0b")]),
            ("mode", with(|attr, _, _, _| attr.mode = 0o100644)),
            ("owner", with(|attr, _, _, _| attr.uid = u32::MAX)),
            ("size", with(|attr, _, _, _| attr.size = 5)),
            ("xattr", with(|_, xattrs, _, _| xattrs.push(xattr("security.capability")))),
            ("xattr twice", with(|_, xattrs, _, _| xattrs.extend([xattr("user.a"), xattr("user.a")]))),
            ("lazy", with(|_, _, content, _| *content = Content::Lazy(base::Digest([0; 32])))),
            ("last write of what stays", vec![last_write("/a")]),
            ("late last write", vec![change("/a", seen, Action::Remove), last_write("/a")]),
            ("append to more than there is", with(|_, _, _, how| *how = FileChange::Appended { from: 1 << 40 })),
        ];
        for (name, changes) in bad {
            let result = validate(&Delta { changes });
            assert!(matches!(result, Err(CommitError::Invalid(_))), "{name}: {result:?}");
        }
        let beside =
            vec![directory("/a", false), file("/a-b"), file("/a/b"), file("/a.c"), file("/a/b.d"), file("/ab/c")];
        assert!(validate(&Delta { changes: beside }).is_ok());
        let good = vec![
            last_write("/d"),
            change("/new", seen, Action::Rename { from: path("/old") }),
            change("/d", seen, Action::Remove),
            directory("/d", true),
            file("/d/a"),
            link("/d/b", "/d/a"),
        ];
        assert!(validate(&Delta { changes: good }).is_ok());
    }
}

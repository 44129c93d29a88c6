//! Nodes: what a kernel knows by number.
//!
//! Files and links are shared by all lanes of a mount, so that the kernel caches their pages once: one node for each
//! (device, inode, attributes, content) of the client. Never by content alone: two equal files must stay two, and the
//! names of one file must stay one. When attributes or content change it is another node, so nothing that a kernel
//! caches of a file is ever wrong. Directories have a node in each lane.

use crate::answer::LaneNumber;
use crate::evidence::By;
use crate::lane::Told;
use base::{Attr, Binding, Bound, Content, Digest, Seq, TreePath, ViewId, Xattr};
use std::collections::HashMap;
use std::sync::Arc;

/// What a kernel knows a directory, file or link by. Never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u64);

/// The root of the mount, which holds the lanes.
pub const ROOT: NodeId = NodeId(1);

/// What kind of node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeShape {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link.
    Symlink,
    /// What cannot be used elsewhere; shown as a socket.
    Special,
}

/// All that a node of a file or link shows: two bindings that agree in this are one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileData {
    pub(crate) attr: Attr,
    pub(crate) body: Body,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Body {
    File { content: Content, xattrs: Vec<Xattr> },
    Symlink { target: Vec<u8> },
    Special,
}

impl FileData {
    /// The data of a binding to a file or link.
    pub(crate) fn of(binding: &Binding) -> Option<Self> {
        match binding {
            Binding::File { attr, content, xattrs } => {
                Some(Self { attr: *attr, body: Body::File { content: *content, xattrs: xattrs.clone() } })
            }
            Binding::Symlink { attr, target } => {
                Some(Self { attr: *attr, body: Body::Symlink { target: target.clone() } })
            }
            Binding::Special { attr } => Some(Self { attr: *attr, body: Body::Special }),
            Binding::Absent | Binding::Denied | Binding::Directory { .. } => None,
        }
    }

    /// Whether `binding` has this data.
    pub(crate) fn is_of(&self, binding: &Binding) -> bool {
        match (binding, &self.body) {
            (Binding::File { attr, content, xattrs }, Body::File { content: own, xattrs: own_xattrs }) => {
                *attr == self.attr && content == own && xattrs == own_xattrs
            }
            (Binding::Symlink { attr, target }, Body::Symlink { target: own }) => *attr == self.attr && target == own,
            (Binding::Special { attr }, Body::Special) => *attr == self.attr,
            _ => false,
        }
    }

    /// Whether `binding` has this data, the time of the last access included.
    pub(crate) fn shows(&self, binding: &Binding) -> bool {
        self.is_of(binding) && binding.attr().is_some_and(|attr| attr.is_accessed_as(&self.attr))
    }

    /// Whether both are of one file in one state. Where its bytes are may have been told in two ways (the read policy keeps one name's
    /// contents and attributes at the client and not the other's, or somebody has had it open for writing), and how much room they take
    /// changes as the client's file system writes them out.
    pub(crate) fn is_same_file_as(&self, other: &Self) -> bool {
        let is_body_same = match (&self.body, &other.body) {
            (Body::File { xattrs, .. }, Body::File { xattrs: others, .. }) => {
                let is_same = |(one, other): (&Xattr, &Xattr)| {
                    one.name == other.name && (one.value == other.value || one.is_kept_back() || other.is_kept_back())
                };
                xattrs.len() == others.len() && xattrs.iter().zip(others).all(is_same)
            }
            (body, other) => body == other,
        };
        is_body_same && self.attr == Attr { blocks: self.attr.blocks, ..other.attr }
    }

    /// The binding that has this data.
    pub(crate) fn binding(&self) -> Binding {
        match &self.body {
            Body::File { content, xattrs } => {
                Binding::File { attr: self.attr, content: *content, xattrs: xattrs.clone() }
            }
            Body::Symlink { target } => Binding::Symlink { attr: self.attr, target: target.clone() },
            Body::Special => Binding::Special { attr: self.attr },
        }
    }

    pub(crate) fn shape(&self) -> NodeShape {
        match self.body {
            Body::File { .. } => NodeShape::File,
            Body::Symlink { .. } => NodeShape::Symlink,
            Body::Special => NodeShape::Special,
        }
    }
}

/// A file or link.
#[derive(Debug)]
pub(crate) struct FileNode {
    pub(crate) data: Arc<FileData>,
    /// Where its bytes can be asked: the binding that was last seen to lead to it.
    pub(crate) view: ViewId,
    pub(crate) path: TreePath,
    pub(crate) seq: Seq,
    pub(crate) lookups: u64,
}

/// A directory of a lane.
#[derive(Debug)]
pub(crate) struct DirNode {
    pub(crate) lane: LaneNumber,
    pub(crate) path: TreePath,
    /// The kernel's references; the kernel knows nothing of the directory when there are none.
    pub(crate) lookups: u64,
    /// Part of its lane; if not, it only waits for the kernel to forget it.
    pub(crate) attached: bool,
    /// The attributes that the kernel was last told; `None`: it will ask.
    pub(crate) shown: Option<Attr>,
    /// Mode, owner and group that the kernel was last told. It decides by them who may do what, and an overlay does so
    /// without asking again: they end with the name only.
    pub(crate) rights: Option<(u32, u32, u32)>,
    /// What the kernel was told of its names.
    pub(crate) told: HashMap<Box<[u8]>, Told>,
    /// The listings that the kernel was shown.
    pub(crate) listed: Seen,
    /// The listings that proved absences to the kernel.
    pub(crate) absences: Seen,
    /// The binding of the directory by which the kernel was last told of its attributes, names or absences.
    pub(crate) by: Option<By>,
}

/// Which listings something was taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Nothing,
    One(Digest),
    Many,
}

impl Seen {
    /// Something was taken from `listing`.
    pub(crate) fn add(&mut self, listing: Digest) {
        *self = match *self {
            Self::Nothing => Self::One(listing),
            Self::One(held) if held == listing => Self::One(held),
            Self::One(_) | Self::Many => Self::Many,
        };
    }

    /// Whether all was taken from `listing`.
    pub(crate) fn agrees(self, listing: Option<Digest>) -> bool {
        match self {
            Self::Nothing => true,
            Self::One(held) => listing == Some(held),
            Self::Many => false,
        }
    }
}

/// The attributes by which a binding to a directory is shown.
pub(crate) fn directory_attr(bound: &Bound) -> Option<Attr> {
    match &bound.binding {
        Binding::Directory { attr, .. } => Some(*attr),
        _ => None,
    }
}

impl DirNode {
    /// Notes what the kernel is told of the directory.
    pub(crate) fn show(&mut self, shown: Option<Attr>) {
        self.shown = shown;
        self.rights = shown.as_ref().map(rights).or(self.rights);
    }
}

/// What of attributes decides who may do what.
pub(crate) fn rights(attr: &Attr) -> (u32, u32, u32) {
    (attr.mode, attr.uid, attr.gid)
}

#[derive(Debug)]
pub(crate) enum Node {
    Dir(Box<DirNode>),
    File(FileNode),
}

/// All nodes of a mount but its root.
#[derive(Debug)]
pub(crate) struct Nodes {
    all: HashMap<NodeId, Node>,
    files: HashMap<Arc<FileData>, NodeId>,
    next: u64,
}

impl Nodes {
    pub(crate) fn new() -> Self {
        Self { all: HashMap::new(), files: HashMap::new(), next: ROOT.0 + 1 }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn get(&self, id: NodeId) -> Option<&Node> {
        self.all.get(&id)
    }

    pub(crate) fn all_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.all.get_mut(&id)
    }

    pub(crate) fn file(&self, id: NodeId) -> Option<&FileNode> {
        match self.all.get(&id)? {
            Node::File(file) => Some(file),
            Node::Dir(_) => None,
        }
    }

    pub(crate) fn file_mut(&mut self, id: NodeId) -> Option<&mut FileNode> {
        match self.all.get_mut(&id)? {
            Node::File(file) => Some(file),
            Node::Dir(_) => None,
        }
    }

    pub(crate) fn dir(&self, id: NodeId) -> Option<&DirNode> {
        match self.all.get(&id)? {
            Node::Dir(dir) => Some(dir),
            Node::File(_) => None,
        }
    }

    pub(crate) fn dir_mut(&mut self, id: NodeId) -> Option<&mut DirNode> {
        match self.all.get_mut(&id)? {
            Node::Dir(dir) => Some(dir),
            Node::File(_) => None,
        }
    }

    pub(crate) fn new_dir(&mut self, lane: LaneNumber, path: TreePath) -> NodeId {
        let dir = DirNode {
            lane,
            path,
            lookups: 0,
            attached: true,
            shown: None,
            rights: None,
            told: HashMap::new(),
            listed: Seen::Nothing,
            absences: Seen::Nothing,
            by: None,
        };
        self.insert(Node::Dir(Box::new(dir)))
    }

    /// The node with `data`, made if there is none; its bytes can be asked by `bound` from now on.
    pub(crate) fn file_with(&mut self, data: FileData, view: ViewId, bound: &Bound) -> NodeId {
        let (path, seq) = (bound.path.clone(), bound.seq);
        if let Some(id) = self.files.get(&data) {
            let id = *id;
            let file = self.file_mut(id).expect("the table of files names living files");
            (file.view, file.path, file.seq) = (view, path, seq);
            if !file.data.attr.is_accessed_as(&data.attr) {
                // The same node, whose pages are as good as before: the table finds it by data that are equal.
                file.data = Arc::new(data);
            }
            return id;
        }
        let data = Arc::new(data);
        let id = self.insert(Node::File(FileNode { data: data.clone(), view, path, seq, lookups: 0 }));
        self.files.insert(data, id);
        id
    }

    pub(crate) fn remove(&mut self, id: NodeId) {
        if let Some(Node::File(file)) = self.all.remove(&id) {
            self.files.remove(&file.data);
        }
    }

    fn insert(&mut self, node: Node) -> NodeId {
        let id = NodeId(self.next);
        self.next += 1;
        self.all.insert(id, node);
        id
    }
}

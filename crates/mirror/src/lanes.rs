//! All that one mount shows, and what its kernel was told: views, lanes, nodes, listings.
//!
//! A kernel keeps every name, attribute, absence and page that it is told, without limit of time. That is right while a
//! lane stays at one version; when it is taken to another ([`Lanes::take`]), what no longer holds is invalidated.

use crate::cache::Cache;
use crate::lane::{Lane, Told};
use crate::node::{Body, DirShown, FileData, Node, NodeId, NodeShape, Nodes, ROOT};
use crate::view::{Applied, Gap, Known, View};
use base::delta::Base;
use base::{Attr, Binding, Bound, Content, Digest, Listing, Seq, TaskId, TreePath, Version, ViewId, ViewUpdate, Xattr};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Number of a lane within its mount: its root's name there. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneNumber(pub u64);

/// Bounds of what one mount keeps.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Names told to the kernel beyond which idle lanes are dropped, the least recently used first. At twice this,
    /// absences proved by listings are no longer left in the kernel's cache.
    pub names: usize,
    /// Lanes beyond which idle ones are dropped.
    pub lanes: usize,
    /// Views beyond which those without a lane are forgotten, the least recently used first.
    pub views: usize,
    /// Bytes of listings.
    pub listing_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { names: 200_000, lanes: 256, views: 1024, listing_bytes: 64 << 20 }
    }
}

/// All that one mount shows.
#[derive(Debug)]
pub struct Lanes {
    pub(crate) limits: Limits,
    pub(crate) views: HashMap<ViewId, Held>,
    pub(crate) lanes: BTreeMap<LaneNumber, Lane>,
    pub(crate) nodes: Nodes,
    pub(crate) listings: Cache<Arc<Listing>>,
    /// Names told to the kernel, over all lanes.
    pub(crate) names: usize,
    uses: u64,
    next_lane: u64,
    /// The client's devices in the order in which they were met.
    devices: Vec<u64>,
}

/// A view, and as it was at older versions that running tasks still see.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) head: View,
    old: Vec<View>,
    used: u64,
}

impl Held {
    /// The view at `version`, if it is held.
    fn at(&self, version: Version) -> Option<&View> {
        match self.head.version() == version {
            true => Some(&self.head),
            false => self.old.iter().find(|view| view.version() == version),
        }
    }
}

/// A node with what a kernel is to know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The node.
    pub node: NodeId,
    /// The inode number to show: the client's, with a mark in bits 40 and up for files of its second and further file
    /// systems, since the mirror is one.
    pub ino: u64,
    /// Directory, file or link.
    pub shape: NodeShape,
    /// Attributes at the client.
    pub attr: Attr,
}

/// A path that must be asked of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The lane in which it is needed.
    pub lane: LaneNumber,
    /// The lane's view.
    pub view: ViewId,
    /// The first of the tasks that use the lane.
    pub task: TaskId,
    /// The path.
    pub path: TreePath,
}

/// The answer to a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The kernel may keep name and attributes for ever, and has one reference more to the node.
    Found(Shown),
    /// As `Found`, for the root of a lane whose attributes are not known yet: the kernel must ask for them. So nobody
    /// who waits for a lane's root holds up the directory of lanes.
    FoundRoot(NodeId),
    /// There is nothing of this name.
    Absent {
        /// The kernel may keep that.
        keep: bool,
    },
    /// `EACCES`: the policy keeps it at the client, or it is not a file, directory or link.
    Denied,
    /// The path must be bound ([`Lanes::learn`]) first.
    Fault(Fault),
    /// The listing with this digest is needed ([`Lanes::put_listing`]) first, in this lane.
    NeedsListing(LaneNumber, Digest),
    /// The directory is no longer in a lane that tasks use.
    Stale,
}

/// The answer to a question for attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attributes {
    /// The kernel may keep them for ever.
    Found(Shown),
    /// The path must be bound first.
    Fault(Fault),
    /// The node shows nothing any more.
    Stale,
}

/// The answer to a question for a directory's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    /// The names; the kernel may keep them for ever.
    Found {
        /// All names.
        listing: Arc<Listing>,
        /// The directory's own inode number, to show.
        ino: u64,
        /// The inode number of the directory above, to show.
        parent_ino: u64,
        /// What to combine with the entries' inode numbers, by exclusive or, to show them.
        ino_mark: u64,
    },
    /// The path must be bound first.
    Fault(Fault),
    /// The listing with this digest is needed first, in this lane.
    NeedsListing(LaneNumber, Digest),
    /// The client cannot list it, or it is too large.
    Unlistable,
    /// The node is no directory that tasks use.
    Stale,
}

/// Where the bytes of a file can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// A view that has the file.
    pub view: ViewId,
    /// A path of it there.
    pub path: TreePath,
    /// The binding of that path.
    pub seq: Seq,
    /// Its content.
    pub content: Content,
    /// Its length in bytes.
    pub size: u64,
}

/// What a kernel must be told to forget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// A name of a directory, or its absence, with all beneath.
    Entry {
        /// The directory.
        parent: NodeId,
        /// The name.
        name: Vec<u8>,
    },
    /// The attributes and the listing of a directory.
    Inode {
        /// The directory.
        node: NodeId,
    },
}

/// A lane given to a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The lane.
    pub lane: LaneNumber,
    /// What the kernel must forget before the task starts.
    pub invalidations: Vec<Invalidation>,
    /// Other tasks use it already.
    pub shared: bool,
}

/// Why a task gets no lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoLane {
    /// The view was never sent here, or was forgotten.
    #[error("view {} is not known: send the whole view", .0.0)]
    View(ViewId),
    /// The view is at another version.
    #[error("version {} of the view is not held, version {} is: apply the launch's view update first", wanted.0, held.0)]
    Version {
        /// The version asked for.
        wanted: Version,
        /// The version that is held.
        held: Version,
    },
}

impl Lanes {
    /// A mount without views and lanes.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            views: HashMap::new(),
            lanes: BTreeMap::new(),
            nodes: Nodes::new(),
            listings: Cache::new(limits.listing_bytes),
            names: 0,
            uses: 0,
            next_lane: 1,
            devices: Vec::new(),
        }
    }

    /// Takes a step of a view. Running tasks go on to see the version that they were launched with.
    pub fn apply(&mut self, update: &ViewUpdate) -> Result<Applied, Gap> {
        let used = self.next_use();
        if !self.views.contains_key(&update.view) {
            self.forget_views();
        }
        let held = self.views.entry(update.view).or_insert_with(|| Held {
            head: View::new(update.view),
            old: Vec::new(),
            used,
        });
        held.used = used;
        let version = held.head.version();
        let fits = update.base == Version(0) || update.base == version;
        let in_use = |lane: &Lane| !lane.is_idle() && lane.view == update.view && lane.version == version;
        if fits && update.version != version && self.lanes.values().any(in_use) {
            held.old.push(held.head.snapshot());
        }
        held.head.apply(update)
    }

    /// Takes in the answer to a fault. Returns whether it was news.
    pub fn learn(&mut self, view: ViewId, bound: Bound) -> bool {
        let Some(held) = self.views.get_mut(&view) else { return false };
        for old in held.old.iter_mut().filter(|old| old.get(&bound.path).is_none()) {
            old.learn(bound.clone());
        }
        held.head.learn(bound)
    }

    /// Keeps a listing, which takes about `bytes`.
    pub fn put_listing(&mut self, digest: Digest, listing: Arc<Listing>, bytes: usize) {
        self.listings.put(digest, listing, bytes);
    }

    /// Whether the listing is at hand.
    pub fn has_listing(&self, digest: &Digest) -> bool {
        self.listings.peek(digest).is_some()
    }

    /// The version of `view` that is held.
    pub fn version(&self, view: ViewId) -> Option<Version> {
        self.views.get(&view).map(|held| held.head.version())
    }

    /// Whether `path` is bound in what `lane` shows.
    pub fn is_bound(&self, lane: LaneNumber, path: &TreePath) -> bool {
        self.view_of(lane).is_some_and(|view| view.get(path).is_some())
    }

    /// Names that the kernel was told, over all lanes.
    pub fn names(&self) -> usize {
        self.names
    }

    /// Nodes that are known by number.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The lanes.
    pub fn lanes(&self) -> impl Iterator<Item = LaneNumber> {
        self.lanes.keys().copied()
    }

    /// Tasks that use `lane`.
    pub fn tasks(&self, lane: LaneNumber) -> usize {
        self.lanes.get(&lane).map_or(0, |lane| lane.tasks.len())
    }

    /// Gives `task` a lane for `view` at `version`: one that is at this version and in use, else an idle one of this
    /// view, advanced, else a new one. The invalidations must be carried out before the task starts.
    pub fn take(&mut self, view: ViewId, version: Version, task: TaskId) -> Result<Taken, NoLane> {
        let used = self.next_use();
        let held = self.views.get_mut(&view).ok_or(NoLane::View(view))?;
        held.used = used;
        let head = held.head.version();
        if held.at(version).is_none() {
            return Err(NoLane::Version { wanted: version, held: head });
        }
        let at_it = |lane: &&mut Lane| !lane.is_idle() && lane.view == view && lane.version == version;
        if let Some(lane) = self.lanes.values_mut().find(at_it) {
            lane.tasks.push(task);
            lane.used = used;
            return Ok(Taken { lane: lane.number, invalidations: Vec::new(), shared: true });
        }
        // An older version is held only while a lane at it is in use, and that lane was found above.
        debug_assert_eq!(version, head, "an old version without a lane");
        let idle = self.lanes.values().filter(|lane| lane.is_idle() && lane.view == view);
        let number = match idle.max_by_key(|lane| (lane.version == version, lane.used)).map(|lane| lane.number) {
            Some(number) => number,
            None => self.new_lane(view, version),
        };
        let invalidations = self.advance(number);
        let lane = self.lanes.get_mut(&number).expect("the lane was found or made above");
        lane.tasks.push(task);
        lane.used = used;
        Ok(Taken { lane: number, invalidations, shared: false })
    }

    /// Ends `task`'s use of `lane`. Returns whether the lane is idle now.
    pub fn release(&mut self, lane: LaneNumber, task: TaskId) -> bool {
        let used = self.next_use();
        let Some(found) = self.lanes.get_mut(&lane) else { return true };
        if let Some(at) = found.tasks.iter().position(|other| *other == task) {
            found.tasks.swap_remove(at);
        }
        found.used = used;
        if !found.is_idle() {
            return false;
        }
        let (view, version) = (found.view, found.version);
        if std::mem::take(&mut found.forgotten) {
            self.sweep(lane);
        }
        let in_use = |lane: &Lane| !lane.is_idle() && lane.view == view && lane.version == version;
        if !self.lanes.values().any(in_use)
            && let Some(held) = self.views.get_mut(&view)
        {
            held.old.retain(|old| old.version() != version);
        }
        true
    }

    /// The idle lanes to give up, so that names and lanes stay within their limits: the least recently used.
    pub fn idle_lanes_to_drop(&self) -> Vec<LaneNumber> {
        let mut idle: Vec<&Lane> = self.lanes.values().filter(|lane| lane.is_idle()).collect();
        idle.sort_by_key(|lane| lane.used);
        let (mut names, mut lanes) = (self.names, self.lanes.len());
        let mut dropped = Vec::new();
        for lane in idle {
            if names <= self.limits.names && lanes <= self.limits.lanes {
                break;
            }
            names -= lane.names;
            lanes -= 1;
            dropped.push(lane.number);
        }
        dropped
    }

    /// Gives up an idle lane; the invalidation must be carried out. `None` if it is in use or unknown.
    pub fn drop_lane(&mut self, lane: LaneNumber) -> Option<Invalidation> {
        let root = self.lanes.get(&lane).filter(|lane| lane.is_idle())?.root;
        self.detach(root);
        self.lanes.remove(&lane);
        Some(Invalidation::Entry { parent: ROOT, name: lane.0.to_string().into_bytes() })
    }

    /// Looks `name` up in the directory `parent`.
    pub fn lookup(&mut self, parent: NodeId, name: &[u8]) -> Lookup {
        if parent == ROOT {
            return self.lookup_lane(name);
        }
        let Some(dir) = self.nodes.dir(parent).filter(|dir| dir.attached) else { return Lookup::Stale };
        if !base::path::is_plain_name(name) {
            return Lookup::Absent { keep: false };
        }
        let (number, path) = (dir.lane, dir.path.join(name));
        let Some((lane, view)) = self.in_use(number) else { return Lookup::Stale };
        let (view_id, task) = (lane.view, lane.tasks[0]);
        let known = view.known(&path, |digest| self.listings.peek(digest).cloned());
        match known {
            Known::Bound(bound) => self.show(number, view_id, parent, name, &bound),
            Known::Unlisted(listing) => self.show_unlisted(parent, name, listing),
            Known::NeedsListing(digest) => Lookup::NeedsListing(number, digest),
            Known::Unknown => Lookup::Fault(Fault { lane: number, view: view_id, task, path }),
        }
    }

    /// The fault for `name` in the directory `parent`, for when its listing cannot be had.
    pub fn fault(&self, parent: NodeId, name: &[u8]) -> Option<Fault> {
        let dir = self.nodes.dir(parent).filter(|dir| dir.attached && base::path::is_plain_name(name))?;
        let (lane, _) = self.in_use(dir.lane)?;
        Some(Fault { lane: lane.number, view: lane.view, task: lane.tasks[0], path: dir.path.join(name) })
    }

    /// The attributes of `node`.
    pub fn attributes(&mut self, node: NodeId) -> Attributes {
        match self.nodes.get(node) {
            Some(Node::File(file)) => {
                let (shape, attr) = (file.data.shape(), file.data.attr);
                Attributes::Found(Shown { node, ino: self.ino(&attr), shape, attr })
            }
            Some(Node::Dir(dir)) if dir.attached => self.directory_attributes(node),
            _ => Attributes::Stale,
        }
    }

    /// The names of the directory `node`.
    pub fn listing(&mut self, node: NodeId) -> Names {
        let Some(dir) = self.nodes.dir(node).filter(|dir| dir.attached) else { return Names::Stale };
        let (number, path) = (dir.lane, dir.path.clone());
        let Some((lane, view)) = self.in_use(number) else { return Names::Stale };
        let Some(bound) = view.get(&path) else {
            return Names::Fault(Fault { lane: number, view: lane.view, task: lane.tasks[0], path });
        };
        let (attr, digest) = match &bound.binding {
            Binding::Directory { attr, listing: Some(digest), .. } => (*attr, *digest),
            Binding::Directory { listing: None, .. } => return Names::Unlistable,
            _ => return Names::Stale,
        };
        let above = path.parent().and_then(|parent| view.get(&parent)).and_then(|above| above.binding.attr()).copied();
        let Some(listing) = self.listings.get(&digest) else { return Names::NeedsListing(number, digest) };
        self.nodes.dir_mut(node).expect("found above").listed.add(digest);
        let ino = self.ino(&attr);
        let parent_ino = above.map_or(ino, |above| self.ino(&above));
        Names::Found { listing, ino, parent_ino, ino_mark: ino ^ attr.ino }
    }

    /// Where the link `node` points.
    pub fn readlink(&self, node: NodeId) -> Option<&[u8]> {
        match &self.nodes.file(node)?.data.body {
            Body::Symlink { target } => Some(target),
            Body::File { .. } => None,
        }
    }

    /// Where the bytes of the file `node` can be asked.
    pub fn source(&self, node: NodeId) -> Option<Source> {
        let file = self.nodes.file(node)?;
        let Body::File { content, .. } = file.data.body else { return None };
        Some(Source { view: file.view, path: file.path.clone(), seq: file.seq, content, size: file.data.attr.size })
    }

    /// The `user.` attributes of `node`.
    pub fn xattrs(&self, node: NodeId) -> Option<Vec<Xattr>> {
        match self.nodes.get(node)? {
            Node::File(file) => match &file.data.body {
                Body::File { xattrs, .. } => Some(xattrs.clone()),
                Body::Symlink { .. } => Some(Vec::new()),
            },
            Node::Dir(dir) => match &self.view_of(dir.lane)?.get(&dir.path)?.binding {
                Binding::Directory { xattrs, .. } => Some(xattrs.clone()),
                _ => None,
            },
        }
    }

    /// The lane of the directory `node`.
    pub fn lane_of(&self, node: NodeId) -> Option<LaneNumber> {
        self.nodes.dir(node).map(|dir| dir.lane)
    }

    /// The kernel has `count` references less to `node`.
    pub fn forget(&mut self, node: NodeId, count: u64) {
        match self.nodes.all_mut(node) {
            Some(Node::File(file)) => {
                file.lookups = file.lookups.saturating_sub(count);
                if file.lookups == 0 {
                    self.nodes.remove(node);
                }
            }
            Some(Node::Dir(dir)) => {
                dir.lookups = dir.lookups.saturating_sub(count);
                if dir.lookups == 0 {
                    self.forgotten_directory(node);
                }
            }
            None => {}
        }
    }

    /// What a task in `lane` saw at `path`, if it was told anything, else what it would be told; `None` if that is not
    /// known.
    pub fn base_of(&self, lane: LaneNumber, path: &TreePath) -> Option<Base> {
        match self.told(lane, path) {
            Some(Told::Absent { .. }) => return Some(Base::Absent),
            Some(Told::Node { seq, .. } | Told::Refused { seq }) => return Some(Base::Bound(seq)),
            None => {}
        }
        match self.view_of(lane)?.known(path, |digest| self.listings.peek(digest).cloned()) {
            Known::Bound(bound) if bound.binding == Binding::Absent => Some(Base::Absent),
            Known::Bound(bound) => Some(Base::Bound(bound.seq)),
            Known::Unlisted(_) => Some(Base::Absent),
            Known::NeedsListing(_) | Known::Unknown => None,
        }
    }

    /// The binding by which a task in `lane` saw `path`; `None` if it is not bound, be it known to be absent.
    pub fn binding_of(&self, lane: LaneNumber, path: &TreePath) -> Option<Arc<Bound>> {
        let bound = self.view_of(lane).and_then(|view| view.get(path)).cloned();
        // A fault's answer can have replaced the binding since the task was told.
        if let Some(Told::Node { node, seq }) = self.told(lane, path)
            && bound.as_ref().is_none_or(|bound| bound.seq != seq)
            && let Some(file) = self.nodes.file(node)
        {
            return Some(Arc::new(Bound { path: path.clone(), seq, binding: file.data.binding() }));
        }
        bound
    }

    /// Panics if what is kept does not fit together. For tests.
    pub fn check_invariants(&self) {
        let mut names = 0;
        for lane in self.lanes.values() {
            let mut of_lane = 0;
            for (path, id) in &lane.dirs {
                let dir = self.nodes.dir(*id).expect("a lane's directory is a node");
                assert!(dir.attached && dir.path == *path && dir.lane == lane.number, "{dir:?}");
                of_lane += dir.told.len();
            }
            assert_eq!(of_lane, lane.names, "names of {:?}", lane.number);
            assert!(lane.is_idle() || self.view_of(lane.number).is_some(), "no view for {:?}", lane.number);
            names += of_lane;
        }
        assert_eq!(names, self.names);
    }

    pub(crate) fn view_of(&self, lane: LaneNumber) -> Option<&View> {
        let lane = self.lanes.get(&lane)?;
        self.views.get(&lane.view)?.at(lane.version)
    }

    /// The lane, if tasks use it, and what it shows.
    fn in_use(&self, number: LaneNumber) -> Option<(&Lane, &View)> {
        let lane = self.lanes.get(&number).filter(|lane| !lane.is_idle())?;
        Some((lane, self.views.get(&lane.view)?.at(lane.version)?))
    }

    fn told(&self, lane: LaneNumber, path: &TreePath) -> Option<Told> {
        let lane = self.lanes.get(&lane)?;
        let Some(parent) = path.parent() else {
            let shown = self.nodes.dir(lane.root)?.shown?;
            return Some(Told::Node { node: lane.root, seq: shown.seq });
        };
        self.nodes.dir(*lane.dirs.get(&parent)?)?.told.get(path.name()).copied()
    }

    fn next_use(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }

    /// Makes room for one view more.
    fn forget_views(&mut self) {
        while self.views.len() >= self.limits.views {
            let free = |id: &ViewId| !self.lanes.values().any(|lane| lane.view == *id);
            let oldest = self.views.iter().filter(|(id, _)| free(id)).min_by_key(|(_, held)| held.used);
            let Some(id) = oldest.map(|(id, _)| *id) else { return };
            self.views.remove(&id);
        }
    }

    fn new_lane(&mut self, view: ViewId, version: Version) -> LaneNumber {
        let number = LaneNumber(self.next_lane);
        self.next_lane += 1;
        let root = self.nodes.new_dir(number, TreePath::root());
        let position = self.views.get(&view).map_or(0, |held| held.head.position());
        let lane = Lane {
            number,
            view,
            version,
            position,
            tasks: Vec::new(),
            used: self.uses,
            root,
            dirs: HashMap::from([(TreePath::root(), root)]),
            names: 0,
            forgotten: false,
        };
        self.lanes.insert(number, lane);
        number
    }

    fn lookup_lane(&mut self, name: &[u8]) -> Lookup {
        let number = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok()).map(LaneNumber);
        let lane = number.and_then(|number| self.lanes.get(&number)).filter(|lane| !lane.is_idle());
        let Some(root) = lane.map(|lane| lane.root) else { return Lookup::Absent { keep: false } };
        let attributes = self.directory_attributes(root);
        self.nodes.dir_mut(root).expect("a lane's root is a directory").lookups += 1;
        match attributes {
            Attributes::Found(shown) => Lookup::Found(shown),
            Attributes::Fault(_) | Attributes::Stale => Lookup::FoundRoot(root),
        }
    }

    /// Answers a lookup by a binding, and records it.
    fn show(&mut self, number: LaneNumber, view: ViewId, parent: NodeId, name: &[u8], bound: &Bound) -> Lookup {
        let seq = bound.seq;
        let (node, shape, attr) = match &bound.binding {
            Binding::Absent => {
                self.tell(parent, name, Told::Absent { seq: Some(seq) });
                return Lookup::Absent { keep: true };
            }
            Binding::Denied | Binding::Special => {
                self.tell(parent, name, Told::Refused { seq });
                return Lookup::Denied;
            }
            Binding::Directory { attr, .. } => (self.directory_at(number, &bound.path), NodeShape::Directory, *attr),
            Binding::File { .. } | Binding::Symlink { .. } => {
                let data = FileData::of(&bound.binding).expect("a file or link has data");
                let (shape, attr) = (data.shape(), data.attr);
                (self.nodes.file_with(data, view, bound), shape, attr)
            }
        };
        match self.nodes.all_mut(node) {
            Some(Node::Dir(dir)) => {
                dir.lookups += 1;
                dir.shown = DirShown::of(bound);
            }
            Some(Node::File(file)) => file.lookups += 1,
            None => {}
        }
        self.tell(parent, name, Told::Node { node, seq });
        Lookup::Found(Shown { node, ino: self.ino(&attr), shape, attr })
    }

    fn show_unlisted(&mut self, parent: NodeId, name: &[u8], listing: Digest) -> Lookup {
        let full = self.names >= self.limits.names.saturating_mul(2);
        let dir = self.nodes.dir_mut(parent).expect("the caller found the directory");
        if full && !dir.told.contains_key(name) {
            return Lookup::Absent { keep: false };
        }
        dir.absences.add(listing);
        self.tell(parent, name, Told::Absent { seq: None });
        Lookup::Absent { keep: true }
    }

    /// The node of the directory `path` in a lane, made if there is none.
    fn directory_at(&mut self, number: LaneNumber, path: &TreePath) -> NodeId {
        let lane = self.lanes.get_mut(&number).expect("the caller found the lane");
        if let Some(id) = lane.dirs.get(path) {
            return *id;
        }
        let id = self.nodes.new_dir(number, path.clone());
        lane.dirs.insert(path.clone(), id);
        id
    }

    fn directory_attributes(&mut self, node: NodeId) -> Attributes {
        let Some(dir) = self.nodes.dir(node) else { return Attributes::Stale };
        let shape = NodeShape::Directory;
        let Some((lane, view)) = self.in_use(dir.lane) else {
            // Nobody uses the lane; what was told stays true to what it was told by.
            let Some(attr) = dir.shown.map(|shown| shown.attr) else { return Attributes::Stale };
            return Attributes::Found(Shown { node, ino: self.ino(&attr), shape, attr });
        };
        let Some(bound) = view.get(&dir.path) else {
            let (view, task, path) = (lane.view, lane.tasks[0], dir.path.clone());
            return Attributes::Fault(Fault { lane: dir.lane, view, task, path });
        };
        let Some(shown) = DirShown::of(bound) else { return Attributes::Stale };
        self.nodes.dir_mut(node).expect("found above").shown = Some(shown);
        let attr = shown.attr;
        Attributes::Found(Shown { node, ino: self.ino(&attr), shape, attr })
    }

    /// Records what the kernel is told of a name.
    fn tell(&mut self, parent: NodeId, name: &[u8], told: Told) {
        let dir = self.nodes.dir_mut(parent).expect("the caller found the directory");
        let number = dir.lane;
        // No allocation when the name was told before.
        let before = match dir.told.get_mut(name) {
            Some(held) => Some(std::mem::replace(held, told)),
            None => dir.told.insert(name.into(), told),
        };
        match (before, told) {
            (None, _) => {
                self.names += 1;
                if let Some(lane) = self.lanes.get_mut(&number) {
                    lane.names += 1;
                }
            }
            (Some(Told::Node { node: old, .. }), Told::Node { node, .. }) if old == node => {}
            (Some(Told::Node { node: old, .. }), _) => self.detach(old),
            _ => {}
        }
    }

    /// The kernel has no reference to a directory any more.
    fn forgotten_directory(&mut self, node: NodeId) {
        let Some(dir) = self.nodes.dir(node) else { return };
        if !dir.attached {
            self.nodes.remove(node);
            return;
        }
        match self.lanes.get_mut(&dir.lane) {
            Some(lane) if lane.root == node => {}
            // What running tasks saw stays on record until they end.
            Some(lane) if !lane.is_idle() => lane.forgotten = true,
            _ => self.prune(node),
        }
    }

    /// Removes the directories that the kernel has forgotten.
    fn sweep(&mut self, lane: LaneNumber) {
        let Some(lane) = self.lanes.get(&lane) else { return };
        let unused = |id: &&NodeId| **id != lane.root && self.nodes.dir(**id).is_some_and(|dir| dir.lookups == 0);
        let unused: Vec<NodeId> = lane.dirs.values().filter(unused).copied().collect();
        for id in unused {
            self.prune(id);
        }
    }

    /// Removes a directory that the kernel has forgotten, and its name.
    fn prune(&mut self, id: NodeId) {
        let Some(dir) = self.nodes.dir(id).filter(|dir| dir.attached) else { return };
        let (number, path) = (dir.lane, dir.path.clone());
        let parent = path.parent().and_then(|parent| self.lanes.get(&number)?.dirs.get(&parent).copied());
        if let Some(parent) = parent {
            self.untell(parent, path.name());
        }
        self.detach(id);
    }

    /// Removes the record of a name; a directory of that name is detached.
    pub(crate) fn untell(&mut self, parent: NodeId, name: &[u8]) {
        let Some(dir) = self.nodes.dir_mut(parent) else { return };
        let number = dir.lane;
        let Some(told) = dir.told.remove(name) else { return };
        self.names -= 1;
        if let Some(lane) = self.lanes.get_mut(&number) {
            lane.names -= 1;
        }
        if let Told::Node { node, .. } = told {
            self.detach(node);
        }
    }

    /// Takes a directory with all beneath out of its lane: its nodes wait for the kernel to forget them, and are never
    /// shown again.
    fn detach(&mut self, top: NodeId) {
        let mut rest = vec![top];
        while let Some(id) = rest.pop() {
            let Some(dir) = self.nodes.dir_mut(id).filter(|dir| dir.attached) else { continue };
            dir.attached = false;
            let told = std::mem::take(&mut dir.told);
            let unreferenced = dir.lookups == 0;
            self.names -= told.len();
            if let Some(lane) = self.lanes.get_mut(&dir.lane) {
                lane.names -= told.len();
                lane.dirs.remove(&dir.path);
            }
            rest.extend(told.values().filter_map(|told| match told {
                Told::Node { node, .. } => Some(*node),
                _ => None,
            }));
            if unreferenced {
                self.nodes.remove(id);
            }
        }
    }

    /// The inode number to show.
    fn ino(&mut self, attr: &Attr) -> u64 {
        let at = match self.devices.iter().position(|device| *device == attr.dev) {
            Some(at) => at,
            None if self.devices.len() < 1 << 16 => {
                self.devices.push(attr.dev);
                self.devices.len() - 1
            }
            None => self.devices.len(),
        };
        attr.ino ^ ((at as u64) << 40)
    }
}

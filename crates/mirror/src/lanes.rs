//! All that one mount shows, and what its kernel was told: views, lanes, nodes, listings.
//!
//! A kernel keeps every name, attribute, absence and page that it is told, without limit of time. That is right while a
//! lane stays at one version; when it is taken to another ([`Lanes::take`]), what no longer holds is invalidated.

use crate::answer::{
    Attributes, Fault, Invalidation, LaneNumber, Limits, Lookup, Names, NoLane, Shown, Source, Taken, shown_ino,
};
use crate::cache::Cache;
use crate::evidence::By;
use crate::lane::{Lane, Told};
use crate::node::{Body, FileData, Node, NodeId, NodeShape, Nodes, ROOT, directory_attr};
use crate::view::{Applied, Gap, Known, View};
use base::delta::Base;
use base::{Attr, Binding, Bound, Digest, Listing, TaskId, TreePath, Version, ViewId, ViewUpdate, Xattr};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A directory's own user may search it.
const OWNER_MAY_SEARCH: u32 = 0o100;

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
        held.head.take(update)
    }

    /// Takes in what answers a fault that was asked when `view` was at version `asked`.
    pub fn learn(&mut self, view: ViewId, bounds: Vec<Bound>, asked: Version) {
        let Some(held) = self.views.get_mut(&view) else { return };
        for bound in bounds {
            for old in held.old.iter_mut().filter(|old| old.get(&bound.path).is_none()) {
                let version = old.version();
                old.learn(bound.clone(), version);
            }
            held.head.learn(bound, asked);
        }
    }

    /// Keeps a listing, which takes about `bytes`.
    pub fn put_listing(&mut self, digest: Digest, listing: Arc<Listing>, bytes: usize) {
        self.listings.put(digest, listing, bytes);
    }

    /// Whether the listing is at hand.
    pub fn has_listing(&self, digest: &Digest) -> bool {
        self.listings.peek(digest).is_some()
    }

    /// All of `view` that is held.
    pub fn whole_view(&self, view: ViewId) -> Option<ViewUpdate> {
        self.views.get(&view).map(|held| held.head.update_since(Version(0)))
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

    /// Whether [`Lanes::take`] finds a lane that is at this version already: then the kernel has nothing to forget.
    pub fn is_ready(&self, view: ViewId, version: Version) -> bool {
        self.lanes.values().any(|lane| lane.view == view && lane.version == version)
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
        if found.past.as_ref().is_none_or(|past| !past.is_empty()) {
            (found.past, found.evidence) = (Some(Vec::new()), None);
        }
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
            Known::Bound(bound) => match self.show(number, view_id, parent, name, &bound) {
                Lookup::Denied => self.denied(number, path),
                shown => shown,
            },
            Known::Unlisted(listing) => {
                if let Some(above) = path.parent().and_then(|above| view.get(&above)).cloned() {
                    self.rest_on(parent, By::bound(&above));
                }
                self.show_unlisted(parent, name, listing)
            }
            Known::NeedsListing(digest) => Lookup::NeedsListing(number, digest),
            Known::Unknown => Lookup::Fault(Fault { lane: number, view: view_id, task, path }),
        }
    }

    /// The answer for a path that the client may not look at.
    fn denied(&self, lane: LaneNumber, path: TreePath) -> Lookup {
        let view = self.in_use(lane).map(|(_, view)| view);
        let is_closed = |above: &TreePath| {
            let attr = view.and_then(|view| view.get(above)).and_then(|above| above.binding.attr());
            attr.is_some_and(|attr| attr.mode & OWNER_MAY_SEARCH == 0)
        };
        match path.parent().filter(is_closed) {
            Some(path) => Lookup::Closed { lane, path },
            None => Lookup::Denied,
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
        let bound = bound.clone();
        let (attr, digest) = match &bound.binding {
            Binding::Directory { attr, listing: Some(digest), .. } => (*attr, *digest),
            Binding::Directory { listing: None, .. } => return Names::Unlistable { lane: number, path },
            _ => {
                self.rest_on(node, By::bound(&bound));
                return Names::Stale;
            }
        };
        let above = path.parent().and_then(|parent| view.get(&parent)).and_then(|above| above.binding.attr()).copied();
        let Some(listing) = self.listings.get(&digest) else { return Names::NeedsListing(number, digest) };
        self.nodes.dir_mut(node).expect("found above").listed.add(digest);
        self.rest_on(node, By::bound(&bound));
        let ino = self.ino(&attr);
        let parent_ino = above.map_or(ino, |above| self.ino(&above));
        Names::Found { listing, ino, parent_ino, ino_mark: shown_ino(attr.ino, ino) }
    }

    /// Where the link `node` points.
    pub fn readlink(&self, node: NodeId) -> Option<&[u8]> {
        match &self.nodes.file(node)?.data.body {
            Body::Symlink { target } => Some(target),
            Body::File { .. } | Body::Special => None,
        }
    }

    /// Where the bytes of the file `node` can be asked.
    pub fn source(&self, node: NodeId) -> Option<Source> {
        let file = self.nodes.file(node)?;
        let Body::File { content, .. } = file.data.body else { return None };
        Some(Source { view: file.view, path: file.path.clone(), seq: file.seq, content, size: file.data.attr.size })
    }

    /// The `user.` attributes of `node`.
    pub fn xattrs(&mut self, node: NodeId) -> Option<Vec<Xattr>> {
        match self.nodes.get(node)? {
            Node::File(file) => match &file.data.body {
                Body::File { xattrs, .. } => Some(xattrs.clone()),
                Body::Symlink { .. } | Body::Special => Some(Vec::new()),
            },
            Node::Dir(dir) => {
                let bound = self.view_of(dir.lane)?.get(&dir.path)?.clone();
                let Binding::Directory { xattrs, .. } = &bound.binding else { return None };
                self.rest_on(node, By::bound(&bound));
                Some(xattrs.clone())
            }
        }
    }

    /// The lane of the directory `node`.
    pub fn lane_of(&self, node: NodeId) -> Option<LaneNumber> {
        self.nodes.dir(node).map(|dir| dir.lane)
    }

    /// What a task in `lane` saw at `path`, if it was told anything, else what it would be told; `None` if that is not
    /// known.
    pub fn base_of(&self, lane: LaneNumber, path: &TreePath) -> Option<Base> {
        match self.told(lane, path) {
            Some(Told::Absent { .. }) => return Some(Base::Absent),
            Some(Told::Node { by, .. } | Told::Refused { by }) => return Some(Base::Bound(by.seq)),
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
        let is_told = |by: By| bound.as_ref().is_some_and(|bound| By::bound(bound) == by);
        // An answer can have replaced the binding since the task was told.
        match self.told(lane, path) {
            Some(Told::Node { node, by }) if !is_told(by) => match self.nodes.file(node) {
                Some(file) => Some(Arc::new(Bound { path: path.clone(), seq: by.seq, binding: file.data.binding() })),
                None => bound,
            },
            Some(Told::Absent { .. }) => bound.filter(|bound| bound.binding == Binding::Absent),
            _ => bound,
        }
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
            let by = self.nodes.dir(lane.root)?.by?;
            return Some(Told::Node { node: lane.root, by });
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
            linked: HashMap::new(),
            names: 0,
            forgotten: false,
            past: Some(Vec::new()),
            lazy: HashMap::new(),
            evidence: None,
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
        let by = By::bound(bound);
        let (node, shape, attr) = match &bound.binding {
            Binding::Absent => {
                self.tell(parent, name, Told::Absent { by: Some(by) });
                return Lookup::Absent { keep: true };
            }
            Binding::Denied => {
                self.tell(parent, name, Told::Refused { by });
                return Lookup::Denied;
            }
            Binding::Directory { attr, .. } => (self.directory_at(number, &bound.path), NodeShape::Directory, *attr),
            Binding::File { .. } | Binding::Symlink { .. } | Binding::Special { .. } => {
                let data = FileData::of(&bound.binding).expect("a file or link has data");
                let (shape, attr) = (data.shape(), data.attr);
                match self.linked(number, &data) {
                    Some((node, attr)) => (node, shape, attr),
                    None => (self.file_with(number, data, view, bound), shape, attr),
                }
            }
        };
        match self.nodes.all_mut(node) {
            Some(Node::Dir(dir)) => {
                dir.lookups += 1;
                dir.show(directory_attr(bound));
                self.rest_on(node, by);
            }
            Some(Node::File(file)) => file.lookups += 1,
            None => {}
        }
        self.note_lazy(number, bound);
        self.tell(parent, name, Told::Node { node, by });
        Lookup::Found(Shown { node, ino: self.ino(&attr), shape, attr })
    }

    /// What the kernel was told of the same file by another name, in this lane at this version. An overlay takes what has two nodes for
    /// two files, and what is written by one name does not show at the other.
    fn linked(&self, number: LaneNumber, data: &FileData) -> Option<(NodeId, Attr)> {
        let node = *self.lanes.get(&number)?.linked.get(&(data.attr.dev, data.attr.ino))?;
        let file = self.nodes.file(node)?;
        file.data.is_same_file_as(data).then_some((node, file.data.attr))
    }

    fn file_with(&mut self, number: LaneNumber, data: FileData, view: ViewId, bound: &Bound) -> NodeId {
        let (inode, has_names) = ((data.attr.dev, data.attr.ino), data.attr.nlink > 1);
        let node = self.nodes.file_with(data, view, bound);
        if let Some(lane) = self.lanes.get_mut(&number).filter(|_| has_names) {
            lane.linked.insert(inode, node);
        }
        node
    }

    fn show_unlisted(&mut self, parent: NodeId, name: &[u8], listing: Digest) -> Lookup {
        let full = self.names >= self.limits.names.saturating_mul(2);
        let dir = self.nodes.dir_mut(parent).expect("the caller found the directory");
        if full && !dir.told.contains_key(name) {
            return Lookup::Absent { keep: false };
        }
        dir.absences.add(listing);
        self.tell(parent, name, Told::Absent { by: None });
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
            let Some(attr) = dir.shown else { return Attributes::Stale };
            return Attributes::Found(Shown { node, ino: self.ino(&attr), shape, attr });
        };
        let Some(bound) = view.get(&dir.path) else {
            let (view, task, path) = (lane.view, lane.tasks[0], dir.path.clone());
            return Attributes::Fault(Fault { lane: dir.lane, view, task, path });
        };
        let bound = bound.clone();
        self.rest_on(node, By::bound(&bound));
        let Some(attr) = directory_attr(&bound) else { return Attributes::Stale };
        self.nodes.dir_mut(node).expect("found above").show(Some(attr));
        Attributes::Found(Shown { node, ino: self.ino(&attr), shape, attr })
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
        shown_ino(attr.ino, (at as u64) << 40)
    }
}

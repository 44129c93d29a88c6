//! Lanes against a trivial kernel, which keeps every answer for ever and drops only what it is told to: after any
//! changes at the client, each of its walks must give what the client had at the lane's version.

use base::delta::Base;
use base::{
    Attr, Binding, Bound, Content, Digest, Listing, ListingEntry, Mark, NodeKind, Seq, TaskId, Time, TreePath, Version,
    ViewId, ViewUpdate,
};
use mirror::{Attributes, Invalidation, LaneNumber, Lanes, Limits, Lookup, Names, NodeId, NodeShape, ROOT};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

const VIEW: ViewId = ViewId(3);
const NAMES: [&[u8]; 3] = [b"a", b"b", b"c"];

/// What a path of the made-up client is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Thing {
    Dir { stamp: u64, listable: bool },
    File { stamp: u64, ino: u64 },
    Link { stamp: u64 },
    Secret,
}

type Tree = BTreeMap<TreePath, Thing>;

/// A client: its tree, what it bound, and what it believes the worker to know.
#[derive(Default)]
struct Client {
    tree: Tree,
    stamp: u64,
    bound: HashMap<TreePath, Bound>,
    seq: u64,
    view: BTreeSet<TreePath>,
    sent: HashMap<TreePath, Seq>,
    version: u64,
    listings: HashMap<Digest, Arc<Listing>>,
}

impl Client {
    fn tick(&mut self) -> u64 {
        self.stamp += 1;
        self.stamp
    }

    fn children<'a>(&'a self, path: &'a TreePath) -> impl Iterator<Item = &'a TreePath> {
        self.tree.keys().filter(move |other| other.parent().as_ref() == Some(path))
    }

    fn touch_dir(&mut self, path: &TreePath) {
        let now = self.tick();
        if let Some(Thing::Dir { stamp, .. }) = self.tree.get_mut(path) {
            *stamp = now;
        }
    }

    /// Puts a thing at `path`, or removes what is there; does nothing where that is impossible.
    /// `quiet`: the directory's attributes do not show it, as with clocks that are too coarse.
    fn put(&mut self, path: &TreePath, thing: Option<Thing>, quiet: bool) {
        let Some(parent) = path.parent() else { return };
        if !matches!(self.tree.get(&parent), Some(Thing::Dir { .. })) {
            return;
        }
        let stays = matches!((&thing, self.tree.get(path)), (Some(Thing::Dir { .. }), Some(Thing::Dir { .. })));
        if !stays {
            self.tree.retain(|other, _| !other.is_within(path));
            if !quiet {
                self.touch_dir(&parent);
            }
        }
        if let Some(thing) = thing {
            self.tree.insert(path.clone(), thing);
        }
    }

    fn binding(&mut self, path: &TreePath) -> Binding {
        let attr = |stamp: u64, ino: u64| Attr { ino, ctime: Time(stamp as i64), mode: 0o644, ..Attr::default() };
        match self.tree.get(path).cloned() {
            None => Binding::Absent,
            Some(Thing::Secret) => Binding::Denied,
            Some(Thing::File { stamp, ino }) => {
                let content = Content::Block(Digest::of(&stamp.to_le_bytes()));
                Binding::File { attr: attr(stamp, ino), content, xattrs: Vec::new() }
            }
            Some(Thing::Link { stamp }) => {
                Binding::Symlink { attr: attr(stamp, 7), target: stamp.to_string().into_bytes() }
            }
            Some(Thing::Dir { stamp, listable }) => {
                let kind = NodeKind::File;
                let entry = |path: &TreePath| ListingEntry { name: path.name().to_vec(), kind, ino: 1 };
                let listing = Listing::new(self.children(path).map(entry).collect());
                let digest = Digest::of(&base::codec::Encode::to_bytes(&listing));
                self.listings.insert(digest, Arc::new(listing));
                let attr = Attr { mode: if listable { 0o755 } else { 0o644 }, ..attr(stamp, 1) };
                Binding::Directory { attr, listing: listable.then_some(digest), xattrs: Vec::new() }
            }
        }
    }

    fn bind(&mut self, path: &TreePath) -> Bound {
        let binding = self.binding(path);
        match self.bound.get(path) {
            Some(held) if held.binding == binding => {}
            _ => {
                self.seq += 1;
                let bound = Bound { path: path.clone(), seq: Seq(self.seq), binding };
                self.bound.insert(path.clone(), bound);
            }
        }
        self.bound[path].clone()
    }

    /// Answers a fault: the path is in the view from now on.
    fn answer(&mut self, path: &TreePath) -> Bound {
        let bound = self.bind(path);
        self.view.insert(path.clone());
        self.sent.insert(path.clone(), bound.seq);
        bound
    }

    /// Sweeps the view, as for a launch.
    fn launch(&mut self, whole: bool, drop: &[TreePath]) -> ViewUpdate {
        let mut dropped = Vec::new();
        for path in drop {
            if self.view.remove(path) {
                self.sent.remove(path);
                dropped.push(path.clone());
            }
        }
        let bounds: Vec<Bound> = self.view.clone().iter().map(|path| self.bind(path)).collect();
        let base = if whole || self.version == 0 { Version(0) } else { Version(self.version) };
        let news = |bound: &Bound| base == Version(0) || self.sent.get(&bound.path) != Some(&bound.seq);
        let set: Vec<Bound> = bounds.into_iter().filter(news).collect();
        if self.version == 0 || !set.is_empty() || !dropped.is_empty() {
            self.version += 1;
        }
        self.sent.extend(set.iter().map(|bound| (bound.path.clone(), bound.seq)));
        let drop = if base == Version(0) { Vec::new() } else { dropped };
        ViewUpdate { view: VIEW, base, version: Version(self.version), set, drop }
    }
}

/// A kernel that never forgets by itself.
#[derive(Default)]
struct Kernel {
    entries: HashMap<(NodeId, Vec<u8>), Option<NodeId>>,
    attrs: HashMap<NodeId, (NodeShape, Attr)>,
    names: HashMap<NodeId, Vec<Vec<u8>>>,
    lookups: HashMap<NodeId, u64>,
    asked: usize,
}

#[derive(Debug, PartialEq)]
enum Walk {
    Found(NodeShape, Attr),
    Absent,
    NotDirectory,
    Denied,
    /// A fault that the test cannot answer as of the lane's version.
    Unanswerable,
}

impl Kernel {
    fn invalidate(&mut self, what: &Invalidation) {
        match what {
            Invalidation::Entry { parent, name } => {
                self.entries.remove(&(*parent, name.clone()));
            }
            Invalidation::Inode { node } => {
                self.attrs.remove(node);
                self.names.remove(node);
            }
        }
    }

    /// Forgets a node to which nothing leads but names of files.
    fn forget(&mut self, lanes: &mut Lanes, pick: usize) {
        let mut nodes: Vec<NodeId> = self.lookups.keys().copied().collect();
        nodes.sort();
        let Some(node) = nodes.get(pick % nodes.len().max(1)).copied() else { return };
        if self.entries.keys().any(|(parent, _)| *parent == node) {
            return;
        }
        self.entries.retain(|_, to| *to != Some(node));
        self.attrs.remove(&node);
        self.names.remove(&node);
        let count = self.lookups.remove(&node).unwrap_or(0);
        lanes.forget(node, count);
    }
}

/// A running task: its lane, and the client as it was at its launch.
struct Running {
    lane: LaneNumber,
    task: TaskId,
    tree: Tree,
    bound: HashMap<TreePath, Bound>,
}

struct World {
    client: Client,
    lanes: Lanes,
    kernel: Kernel,
    running: Vec<Running>,
    tasks: u128,
}

impl World {
    fn new(limits: Limits) -> Self {
        let mut client = Client::default();
        client.tree.insert(TreePath::root(), Thing::Dir { stamp: 0, listable: true });
        Self { client, lanes: Lanes::new(limits), kernel: Kernel::default(), running: Vec::new(), tasks: 0 }
    }

    fn launch(&mut self, whole: bool, drop: &[TreePath]) -> Vec<Invalidation> {
        let update = self.client.launch(whole, drop);
        self.lanes.apply(&update).expect("the updates are in order");
        self.tasks += 1;
        let task = TaskId(self.tasks);
        let taken = self.lanes.take(VIEW, update.version, task).expect("the version was just applied");
        taken.invalidations.iter().for_each(|what| self.kernel.invalidate(what));
        let in_view = |(path, _): &(&TreePath, &Bound)| self.client.view.contains(*path);
        let bound =
            self.client.bound.iter().filter(in_view).map(|(path, bound)| (path.clone(), bound.clone())).collect();
        let tree = self.client.tree.clone();
        self.running.push(Running { lane: taken.lane, task, tree, bound });
        self.lanes.check_invariants();
        taken.invalidations
    }

    fn end(&mut self, at: usize) {
        if self.running.is_empty() {
            return;
        }
        self.check_evidence(at % self.running.len(), None);
        let task = self.running.remove(at % self.running.len());
        self.lanes.release(task.lane, task.task);
        for lane in self.lanes.idle_lanes_to_drop() {
            let what = self.lanes.drop_lane(lane).expect("the lane is idle");
            self.kernel.invalidate(&what);
        }
        self.lanes.check_invariants();
    }

    /// Answers a fault if the client still has there what it had when each task that lacks the path was launched.
    fn answer(&mut self, path: &TreePath) -> bool {
        let now = self.client.binding(path);
        let lacking: Vec<usize> =
            (0..self.running.len()).filter(|at| !self.running[*at].bound.contains_key(path)).collect();
        for at in &lacking {
            let then = std::mem::replace(&mut self.client.tree, self.running[*at].tree.clone());
            let same = self.client.binding(path) == now;
            self.client.tree = then;
            if !same {
                return false;
            }
        }
        let bound = self.client.answer(path);
        for at in lacking {
            self.running[at].bound.insert(path.clone(), bound.clone());
        }
        let asked = self.lanes.version(VIEW).expect("a lane shows it");
        self.lanes.learn(VIEW, vec![bound], asked);
        true
    }

    fn put_listing(&mut self, digest: Digest) {
        let listing = self.client.listings[&digest].clone();
        self.lanes.put_listing(digest, listing, 100);
    }

    fn lookup(&mut self, parent: NodeId, name: &[u8]) -> Result<Option<NodeId>, Walk> {
        if let Some(cached) = self.kernel.entries.get(&(parent, name.to_vec())) {
            return Ok(*cached);
        }
        for _ in 0..4 {
            self.kernel.asked += 1;
            match self.lanes.lookup(parent, name) {
                Lookup::Found(shown) => {
                    self.kernel.entries.insert((parent, name.to_vec()), Some(shown.node));
                    self.kernel.attrs.insert(shown.node, (shown.shape, shown.attr));
                    *self.kernel.lookups.entry(shown.node).or_default() += 1;
                    return Ok(Some(shown.node));
                }
                Lookup::FoundRoot(node) => {
                    self.kernel.entries.insert((parent, name.to_vec()), Some(node));
                    *self.kernel.lookups.entry(node).or_default() += 1;
                    return Ok(Some(node));
                }
                Lookup::Absent { keep } => {
                    if keep {
                        self.kernel.entries.insert((parent, name.to_vec()), None);
                    }
                    return Ok(None);
                }
                Lookup::Denied | Lookup::Closed { .. } => return Err(Walk::Denied),
                Lookup::Fault(fault) if !self.answer(&fault.path) => return Err(Walk::Unanswerable),
                Lookup::Fault(_) => {}
                Lookup::NeedsListing(_, digest) => self.put_listing(digest),
                Lookup::Stale => panic!("a lane in use is stale"),
            }
        }
        panic!("a lookup never ends");
    }

    fn attributes(&mut self, node: NodeId) -> Result<(NodeShape, Attr), Walk> {
        for _ in 0..3 {
            if let Some(cached) = self.kernel.attrs.get(&node) {
                return Ok(*cached);
            }
            self.kernel.asked += 1;
            match self.lanes.attributes(node) {
                Attributes::Found(shown) => {
                    self.kernel.attrs.insert(node, (shown.shape, shown.attr));
                }
                Attributes::Fault(fault) if !self.answer(&fault.path) => return Err(Walk::Unanswerable),
                Attributes::Fault(_) => {}
                Attributes::Stale => panic!("a node that the kernel can reach is stale"),
            }
        }
        panic!("a question for attributes never ends");
    }

    fn walk(&mut self, at: usize, path: &TreePath) -> Result<(NodeId, Walk), Walk> {
        let name = self.running[at].lane.0.to_string();
        let mut node = self.lookup(ROOT, name.as_bytes())?.expect("the lane is there");
        let mut found = self.attributes(node)?;
        for part in path.components() {
            if found.0 != NodeShape::Directory {
                return Ok((node, Walk::NotDirectory));
            }
            match self.lookup(node, part)? {
                Some(next) => node = next,
                None => return Ok((node, Walk::Absent)),
            }
            found = self.attributes(node)?;
        }
        Ok((node, Walk::Found(found.0, found.1)))
    }

    /// What the walk must give.
    fn truth(&mut self, at: usize, path: &TreePath) -> Walk {
        let tree = self.running[at].tree.clone();
        let mut here = TreePath::root();
        for part in path.components() {
            match tree.get(&here) {
                Some(Thing::Dir { .. }) => {}
                Some(Thing::Secret) => return Walk::Denied,
                None => return Walk::Absent,
                Some(_) => return Walk::NotDirectory,
            }
            here = here.join(part);
        }
        let now = std::mem::replace(&mut self.client.tree, tree);
        let binding = self.client.binding(path);
        self.client.tree = now;
        match binding {
            Binding::Absent => Walk::Absent,
            Binding::Directory { attr, .. } => Walk::Found(NodeShape::Directory, attr),
            Binding::File { attr, .. } => Walk::Found(NodeShape::File, attr),
            Binding::Symlink { attr, .. } => Walk::Found(NodeShape::Symlink, attr),
            Binding::Special { attr } => Walk::Found(NodeShape::Special, attr),
            Binding::Denied => Walk::Denied,
        }
    }

    fn check_walk(&mut self, at: usize, path: &TreePath, list: bool) {
        let truth = self.truth(at, path);
        let (node, got) = match self.walk(at, path) {
            Ok(found) => found,
            Err(Walk::Unanswerable) => return,
            Err(other) => (ROOT, other),
        };
        assert_eq!(got, truth, "at {path} in {:?}", self.running[at].lane);
        let lane = self.running[at].lane;
        match got {
            Walk::Found(..) => {
                let seq = self.running[at].bound[path].seq;
                assert_eq!(self.lanes.base_of(lane, path), Some(Base::Bound(seq)), "base of {path}");
                let bound = self.lanes.binding_of(lane, path).expect("what was found is bound");
                assert_eq!(*bound, self.running[at].bound[path], "binding of {path}");
            }
            Walk::Absent if self.is_directory(at, path.parent()) => {
                assert_eq!(self.lanes.base_of(lane, path), Some(Base::Absent), "base of {path}");
            }
            _ => {}
        }
        if list && matches!(got, Walk::Found(NodeShape::Directory, _)) {
            self.check_listing(at, node, path);
        }
        self.check_evidence(at, Some((path, got == Walk::Absent)));
    }

    /// What a task rests on is what the client had, and has all that it has looked at.
    fn check_evidence(&mut self, at: usize, walked: Option<(&TreePath, bool)>) {
        let task = &self.running[at];
        let evidence = self.lanes.evidence(task.lane).expect("it is not much");
        let marks: HashMap<u64, Digest> = task.bound.values().map(|bound| (bound.seq.0, Mark::of(bound).0)).collect();
        let checked = evidence.bindings.check(|seq| marks.get(&seq).copied().ok_or("not what it had"), "differs");
        assert_eq!(checked, Ok(()), "after {walked:?}");
        let Some((path, is_absent)) = walked else { return };
        let numbers: BTreeSet<u64> = evidence.bindings.numbers().collect();
        let rests_on = |path: &TreePath| task.bound.get(path).is_some_and(|bound| numbers.contains(&bound.seq.0));
        let way = path.way().chain([path.clone()]).filter(|path| task.tree.contains_key(path));
        // A client that closed a directory keeps what is in it, of which the task sees nothing.
        let open = way.take_while(|path| !matches!(task.tree.get(path), Some(Thing::Secret)));
        open.for_each(|path| assert!(rests_on(&path), "nothing is said of {path}"));
        let above = path.parent().filter(|_| is_absent && self.is_directory(at, path.parent()));
        assert!(
            above.is_none_or(|above| rests_on(path) || rests_on(&above)),
            "nothing is said of {path}, which is absent"
        );
    }

    fn is_directory(&self, at: usize, path: Option<TreePath>) -> bool {
        path.is_some_and(|path| matches!(self.running[at].tree.get(&path), Some(Thing::Dir { .. })))
    }

    fn check_listing(&mut self, at: usize, node: NodeId, path: &TreePath) {
        let tree = &self.running[at].tree;
        let names: Vec<Vec<u8>> = tree
            .keys()
            .filter(|other| other.parent().as_ref() == Some(path))
            .map(|other| other.name().to_vec())
            .collect();
        let listable = matches!(tree.get(path), Some(Thing::Dir { listable: true, .. }));
        for _ in 0..3 {
            if let Some(cached) = self.kernel.names.get(&node) {
                assert!(listable && *cached == names, "names of {path}: {cached:?}, {names:?}");
                return;
            }
            self.kernel.asked += 1;
            match self.lanes.listing(node) {
                Names::Found { listing, .. } => {
                    let listed = listing.entries.iter().map(|entry| entry.name.clone()).collect();
                    self.kernel.names.insert(node, listed);
                }
                Names::NeedsListing(_, digest) => self.put_listing(digest),
                Names::Unlistable { .. } => return assert!(!listable),
                Names::Fault(fault) if !self.answer(&fault.path) => return,
                Names::Fault(_) => {}
                Names::Stale => panic!("a directory that the kernel can reach is stale"),
            }
        }
        panic!("a listing never ends");
    }
}

#[derive(Clone, Debug)]
enum Op {
    Put(TreePath, u8, bool),
    Link(TreePath, TreePath),
    Launch { whole: bool, drop: Vec<TreePath> },
    End(usize),
    Walk { task: usize, path: TreePath, list: bool },
    Forget(usize),
}

fn any_path() -> impl Strategy<Value = TreePath> {
    proptest::collection::vec(0..NAMES.len(), 0..4)
        .prop_map(|parts| parts.iter().fold(TreePath::root(), |path, at| path.join(NAMES[*at])))
}

fn any_op() -> impl Strategy<Value = Op> {
    let walk = (0..4usize, any_path(), any::<bool>()).prop_map(|(task, path, list)| Op::Walk { task, path, list });
    let drop = proptest::collection::vec(any_path(), 0..3);
    prop_oneof![
        6 => (any_path(), 0..8u8, prop::bool::weighted(0.2)).prop_map(|(path, what, quiet)| Op::Put(path, what, quiet)),
        1 => (any_path(), any_path()).prop_map(|(from, to)| Op::Link(from, to)),
        3 => (prop::bool::weighted(0.1), drop).prop_map(|(whole, drop)| Op::Launch { whole, drop }),
        2 => (0..4usize).prop_map(Op::End),
        8 => walk,
        1 => any::<usize>().prop_map(Op::Forget),
    ]
}

fn run(ops: Vec<Op>, limits: Limits) {
    let mut world = World::new(limits);
    world.launch(false, &[]);
    for op in ops {
        match op {
            Op::Put(path, what, quiet) => {
                let stamp = world.client.tick();
                let thing = match what {
                    0 | 1 => None,
                    2 | 3 => Some(Thing::Dir { stamp, listable: true }),
                    4 => Some(Thing::Dir { stamp, listable: false }),
                    5 => Some(Thing::Link { stamp }),
                    6 => Some(Thing::Secret),
                    _ => Some(Thing::File { stamp, ino: 100 + stamp }),
                };
                world.client.put(&path, thing, quiet);
            }
            Op::Link(from, to) => {
                if let Some(Thing::File { .. }) = world.client.tree.get(&from) {
                    let thing = world.client.tree.get(&from).cloned();
                    world.client.put(&to, thing, false);
                }
            }
            Op::Launch { whole, drop } => {
                world.launch(whole, &drop);
            }
            Op::End(at) => world.end(at),
            Op::Walk { task, path, list } if !world.running.is_empty() => {
                let at = task % world.running.len();
                world.check_walk(at, &path, list);
            }
            Op::Walk { .. } => {}
            Op::Forget(pick) => world.kernel.forget(&mut world.lanes, pick),
        }
        world.lanes.check_invariants();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_kernel_that_keeps_all_sees_the_client(ops in proptest::collection::vec(any_op(), 1..80)) {
        run(ops, Limits::default());
    }

    #[test]
    fn also_when_lanes_and_listings_are_given_up(ops in proptest::collection::vec(any_op(), 1..80)) {
        run(ops, Limits { names: 4, lanes: 2, views: 1, listing_bytes: 400 });
    }
}

fn path(text: &str) -> TreePath {
    TreePath::parse(text.as_bytes()).expect("a normal path")
}

#[test]
fn nothing_changed_nothing_asked() {
    let mut world = World::new(Limits::default());
    for (at, what) in [("/a", 0u8), ("/a/b", 0), ("/a/b/c", 1), ("/a/c", 1)] {
        let stamp = world.client.tick();
        let thing =
            if what == 0 { Thing::Dir { stamp, listable: true } } else { Thing::File { stamp, ino: 100 + stamp } };
        world.client.put(&path(at), Some(thing), false);
    }
    let walks = ["/a/b/c", "/a/c", "/a/b/a", "/c", "/a/a/b"];
    world.launch(false, &[]);
    walks.iter().for_each(|walk| world.check_walk(0, &path(walk), true));
    world.end(0);
    let asked = world.kernel.asked;
    assert_eq!(world.launch(false, &[]), [], "nothing to invalidate");
    walks.iter().for_each(|walk| world.check_walk(0, &path(walk), true));
    assert_eq!(world.kernel.asked, asked, "nothing to ask");
    world.end(0);

    // One file changes: that name, and nothing else, is asked again.
    let stamp = world.client.tick();
    world.client.put(&path("/a/c"), None, false);
    world.client.put(&path("/a/c"), Some(Thing::File { stamp, ino: 100 + stamp }), false);
    let what = world.launch(false, &[]);
    assert_eq!(what.len(), 2, "the name, and its directory's attributes: {what:?}");
    walks.iter().for_each(|walk| world.check_walk(0, &path(walk), true));
    assert_eq!(world.kernel.asked, asked + 2, "the name, and the attributes");
}

#[test]
fn equal_files_are_two_and_hard_links_one() {
    let mut world = World::new(Limits::default());
    world.client.put(&path("/a"), Some(Thing::File { stamp: 5, ino: 100 }), false);
    world.client.put(&path("/b"), Some(Thing::File { stamp: 5, ino: 101 }), false);
    world.client.put(&path("/c"), Some(Thing::File { stamp: 5, ino: 100 }), false);
    world.launch(false, &[]);
    let node = |world: &mut World, name| world.walk(0, &path(name)).expect("it can be walked").0;
    let (a, b, c) = (node(&mut world, "/a"), node(&mut world, "/b"), node(&mut world, "/c"));
    assert_ne!(a, b);
    assert_eq!(a, c);
    // In another lane they are the same nodes, so that pages are shared.
    let stamp = world.client.tick();
    world.client.put(&path("/d"), Some(Thing::File { stamp, ino: 9 }), false);
    world.launch(false, &[]);
    assert_ne!(world.running[0].lane, world.running[1].lane);
    assert_eq!(world.walk(1, &path("/a")).expect("it can be walked").0, a);
}

#[test]
fn what_may_not_be_looked_at_is_closed_where_its_directory_is_closed_to_its_user() {
    let mut world = World::new(Limits::default());
    for (at, listable) in [("/a", true), ("/b", false)] {
        world.client.put(&path(at), Some(Thing::Dir { stamp: 1, listable }), false);
        world.client.put(&path(&format!("{at}/c")), Some(Thing::Secret), false);
    }
    world.launch(false, &[]);
    for at in ["/a/c", "/b/c"] {
        assert_eq!(world.walk(0, &path(at)), Err(Walk::Denied), "it is asked, and bound");
    }
    let [open, closed] = ["/a", "/b"].map(|at| world.walk(0, &path(at)).expect("it can be walked").0);
    assert_eq!(world.lanes.lookup(open, b"c"), Lookup::Denied);
    assert_eq!(world.lanes.lookup(closed, b"c"), Lookup::Closed { lane: world.running[0].lane, path: path("/b") });
}

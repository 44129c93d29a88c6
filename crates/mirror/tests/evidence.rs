//! What the tasks of a lane rest on, over its life.

use base::{Attr, Binding, Bound, Content, Digest, Mark, Seq, TaskId, TreePath, Version, ViewId, ViewUpdate};
use mirror::{Attributes, LaneNumber, Lanes, Limits, Lookup, NodeId, ROOT};

const VIEW: ViewId = ViewId(1);
const LAZY: Digest = Digest([7; 32]);

fn bound(path: &str, seq: u64, binding: Binding) -> Bound {
    Bound { path: TreePath::parse(path.as_bytes()).expect("a sound path"), seq: Seq(seq), binding }
}

fn file(content: Content) -> Binding {
    Binding::File { attr: Attr { mode: 0o644, size: 1, ..Attr::default() }, content, xattrs: Vec::new() }
}

struct World(Lanes);

impl World {
    fn take(&mut self, base: u64, version: u64, set: Vec<Bound>) -> (LaneNumber, NodeId) {
        let step = ViewUpdate { view: VIEW, base: Version(base), version: Version(version), set, drop: Vec::new() };
        self.0.apply(&step).expect("it follows");
        let lane = self.0.take(VIEW, Version(version), TaskId(version.into())).expect("it is held").lane;
        match self.0.lookup(ROOT, lane.0.to_string().as_bytes()) {
            Lookup::Found(shown) => (lane, shown.node),
            other => panic!("{other:?}"),
        }
    }

    fn rests_on(&mut self, lane: LaneNumber) -> (Vec<u64>, Vec<Digest>) {
        let evidence = self.0.evidence(lane).expect("it is not much");
        (evidence.bindings.numbers().collect(), evidence.lazy.clone())
    }
}

#[test]
fn what_a_task_was_told_first_is_not_forgotten_while_it_runs() {
    let mut world = World(Lanes::new(Limits::default()));
    let top = Binding::Directory { attr: Attr { mode: 0o755, ..Attr::default() }, listing: None, xattrs: Vec::new() };
    let set = vec![bound("/", 1, top), bound("/a", 2, Binding::Absent), bound("/unused", 3, Binding::Absent)];
    let (lane, node) = world.take(0, 1, set);
    assert_eq!(world.0.lookup(node, b"a"), Lookup::Absent { keep: true });
    assert_eq!(world.rests_on(lane), (vec![1, 2], vec![]));
    world.0.learn(VIEW, vec![bound("/a", 9, file(Content::Lazy(LAZY)))], Version(1));
    assert!(matches!(world.0.lookup(node, b"a"), Lookup::Found(_)));
    assert_eq!(world.rests_on(lane), (vec![1, 2, 9], vec![LAZY]), "it has seen both");
    world.0.release(lane, TaskId(1));

    let (lane, node) = world.take(1, 2, Vec::new());
    assert_eq!(world.rests_on(lane), (vec![1, 9], vec![LAZY]), "the kernel still has that, and asks no more");
    assert!(matches!(world.0.lookup(node, b"a"), Lookup::Found(_)));
    world.0.release(lane, TaskId(2));

    let (lane, node) = world.take(2, 3, vec![bound("/a", 12, file(Content::Block(Digest::of(b"x"))))]);
    assert_eq!(world.rests_on(lane), (vec![1], vec![]), "it was told to forget what has changed");
    assert!(matches!(world.0.lookup(node, b"a"), Lookup::Found(_)));
    assert_eq!(world.rests_on(lane), (vec![1, 12], vec![]));
}

/// Who passes on the client's words says that a directory was dropped, and then that it is something else under the same number.
#[test]
fn a_number_that_stood_for_something_else_is_seen() {
    let directory = |mode| Binding::Directory { attr: Attr { mode, ..Attr::default() }, listing: None, xattrs: vec![] };
    let honest = [bound("/", 1, directory(0o755)), bound("/d", 2, directory(0o755))];
    let mut world = World(Lanes::new(Limits::default()));
    let (lane, node) = world.take(0, 1, honest.to_vec());
    let Lookup::Found(shown) = world.0.lookup(node, b"d") else { panic!("it is there") };
    let marks =
        |seq: u64| honest.iter().find(|bound| bound.seq.0 == seq).map(|bound| Mark::of(bound).0).ok_or("unknown");
    let check = |world: &mut World| world.0.evidence(lane).expect("it is not much").bindings.check(marks, "differs");
    assert_eq!(check(&mut world), Ok(()));
    let drop = vec![honest[1].path.clone()];
    let step = ViewUpdate { view: VIEW, base: Version(1), version: Version(1), set: Vec::new(), drop };
    world.0.apply(&step).expect("it leads nowhere");
    world.0.learn(VIEW, vec![bound("/d", 2, directory(0o700))], Version(1));
    assert!(matches!(world.0.attributes(shown.node), Attributes::Found(shown) if shown.attr.mode == 0o700));
    assert_eq!(check(&mut world), Err("differs"));
}

//! Files with several names.

use base::{Attr, Binding, Bound, Content, Digest, Seq, TaskId, Time, TreePath, Version, ViewId, ViewUpdate, Xattr};
use mirror::{Lanes, Limits, Lookup, ROOT};

fn path(text: &str) -> TreePath {
    TreePath::parse(text.as_bytes()).expect("a sound path")
}

#[test]
fn names_of_one_file_are_one_node_however_they_were_bound() {
    let attr = Attr { mode: 0o644, nlink: 2, size: 10, blocks: 8, dev: 1, ino: 7, ctime: Time(5), ..Attr::default() };
    // Of one name the read policy keeps contents and attributes at the client.
    let xattr = |name: &str| match name {
        "/c" => Xattr::kept_back(b"user.a".to_vec()),
        _ => Xattr { name: b"user.a".to_vec(), value: b"1".to_vec() },
    };
    let bound = |name: &str, seq, attr, content| Bound {
        path: path(name),
        seq: Seq(seq),
        binding: Binding::File { attr, content: Content::Lazy(Digest([content; 32])), xattrs: vec![xattr(name)] },
    };
    let top = Binding::Directory { attr: Attr { mode: 0o755, ..Attr::default() }, listing: None, xattrs: Vec::new() };
    // The client's file system has written it out, and it was open for writing, between the looks at its names.
    let set = vec![
        Bound { path: path("/"), seq: Seq(1), binding: top },
        bound("/a", 2, attr, 1),
        bound("/b", 3, Attr { blocks: 16, ..attr }, 1),
        bound("/c", 4, attr, 2),
        bound("/changed", 5, Attr { ctime: Time(6), ..attr }, 1),
    ];
    let (view, mut lanes) = (ViewId(1), Lanes::new(Limits::default()));
    let mut nodes = |base, version, set, task| {
        let step = ViewUpdate { view, base: Version(base), version: Version(version), set, drop: Vec::new() };
        lanes.apply(&step).expect("it follows");
        let lane = lanes.take(view, Version(version), TaskId(task)).expect("it is held").lane;
        let top = match lanes.lookup(ROOT, lane.0.to_string().as_bytes()) {
            Lookup::Found(shown) => shown.node,
            other => panic!("{other:?}"),
        };
        let found = ["a", "b", "c", "changed"].map(|name| match lanes.lookup(top, name.as_bytes()) {
            Lookup::Found(shown) => (shown.node, shown.attr.blocks),
            other => panic!("{other:?}"),
        });
        lanes.release(lane, TaskId(task));
        found
    };
    let [a, b, c, changed] = nodes(0, 1, set, 1);
    assert_eq!((a, a), (b, c));
    assert_ne!(a.0, changed.0);
    // Later it is found to hold something else, by the same attributes.
    let [later, b, c, _] =
        nodes(1, 2, vec![bound("/a", 6, attr, 3), bound("/b", 7, attr, 3), bound("/c", 8, attr, 3)], 2);
    assert_ne!(later.0, a.0);
    assert_eq!((later, later), (b, c));
}

//! Tests of conversions between messages and the types of [`base`].

use super::*;

fn example_attr() -> Attr {
    Attr { mode: 0o4755, uid: 7, size: 3, mtime: Time(-5), ctime: Time(9), ..Attr::default() }
}

#[test]
fn bounds_round_trip() {
    let some = Digest::of(b"x");
    let xattrs = vec![Xattr { name: b"user.a".to_vec(), value: b"1".to_vec() }];
    for binding in [
        Binding::Absent,
        Binding::Denied,
        Binding::Special { attr: example_attr() },
        Binding::Directory { attr: example_attr(), listing: Some(some), xattrs: xattrs.clone() },
        Binding::Directory { attr: example_attr(), listing: None, xattrs: vec![] },
        Binding::File { attr: example_attr(), content: Content::Lazy(some), xattrs },
        Binding::File { attr: example_attr(), content: Content::Unreadable(13), xattrs: vec![] },
        Binding::Symlink { attr: example_attr(), target: b"../\xff".to_vec() },
    ] {
        let bound = Bound { path: TreePath::parse(b"/a/\xfe").expect("normal"), seq: Seq(4), binding };
        assert_eq!(Bound::try_from(proto::Bound::from(&bound)), Ok(bound));
    }
}

#[test]
fn times_of_the_last_access_go_along() {
    let far = |accessed: Option<i64>| {
        let attr = Attr { accessed: Accessed(accessed.map(Time)), ..example_attr() };
        Attr::from(proto::Attr::from(&attr)).accessed.0
    };
    assert_eq!((far(Some(-3)), far(Some(0)), far(None)), (Some(Time(-3)), Some(Time(0)), None));
}

#[test]
fn changes_round_trip() {
    let here = TreePath::parse(b"/a").expect("normal");
    let file = |content, change| Action::File { attr: example_attr(), xattrs: vec![], content, change };
    for action in [
        Action::Remove,
        Action::Rename { from: here.clone() },
        Action::Directory { attr: example_attr(), xattrs: vec![], replaces: true },
        file(Content::Empty, FileChange::Written),
        file(Content::Empty, FileChange::Attributes),
        file(Content::Block(Digest::of(b"")), FileChange::Appended { from: 9 }),
        file(Content::Block(Digest::of(b"")), FileChange::Appended { from: 0 }),
        Action::Symlink { attr: example_attr(), target: b"t".to_vec() },
        Action::HardLink { to: here.clone() },
        Action::Fifo { attr: example_attr() },
        Action::LastWrite {
            attr: example_attr(),
            xattrs: vec![],
            content: Content::Block(Digest::of(b"")),
            change: FileChange::Written,
        },
    ] {
        for base in [Base::Absent, Base::Bound(Seq(3))] {
            let change = Change { path: here.clone(), base, action: action.clone() };
            assert_eq!(Change::try_from(proto::Change::from(&change)), Ok(change));
        }
    }
}

#[test]
fn hostile_values_are_refused() {
    let bound = proto::Bound { path: b"/a/../b".to_vec(), ..proto::Bound::default() };
    assert!(Bound::try_from(bound).is_err());
    let change = proto::Change { path: b"/a".to_vec(), action: 4, content: 3, ..proto::Change::default() };
    assert!(Change::try_from(change).is_err(), "no attributes");
    let xattr = vec![b"security.capability".to_vec(), b"x".to_vec()];
    assert!(super::xattrs(xattr).is_err());
}

#[test]
fn places_that_a_launch_names_are_absolute() {
    let relative: [&[u8]; 9] = [b"", b".", b"..", b"a", b"./a", b"/a/../proc/self/fd/9", b"/a/", b"//a", b"/a\0b"];
    for named in relative {
        let command = proto::Command { argv: vec![b"true".to_vec()], cwd: named.to_vec(), ..Default::default() };
        let refused = Command::try_from(command).expect_err("a working directory");
        assert!(refused.to_string().contains("working directory that is not absolute"), "{refused}");
        let stdin = proto::Stdin { kind: 2, path: named.to_vec(), offset: 0 };
        Stdin::try_from(stdin).expect_err("standard input");
        let mount = proto::Mount { at: named.to_vec(), ..Default::default() };
        mounts(vec![mount]).expect_err("a mount");
    }
    let command = proto::Command { argv: vec![b"./a".to_vec()], cwd: b"/a b".to_vec(), ..Default::default() };
    assert_eq!(Command::try_from(command).expect("a program may be relative").cwd, b"/a b");
    // Standard input of another kind has no path.
    assert_eq!(Stdin::try_from(proto::Stdin { kind: 1, ..Default::default() }), Ok(Stdin::Stream));
}

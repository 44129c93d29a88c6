//! Drawn values of the words that all parts share.

use crate::Draw;
use base::delta::FileChange;
use base::{
    Accessed, Action, Attr, Base, Binding, Bound, Change, Command, Content, Digest, Limit, Needs, Recipe, Seq, Time,
    Version, ViewId, ViewUpdate, Xattr,
};

/// Attributes that a file can have.
pub fn attr(draw: &mut Draw<'_>) -> Attr {
    Attr {
        mode: draw.word() & 0o7777,
        uid: draw.of(&[0, 7, 1000]),
        gid: draw.of(&[0, 7, 1000]),
        nlink: draw.word(),
        size: draw.number() >> 1,
        blocks: draw.number(),
        dev: draw.number(),
        ino: draw.number(),
        mtime: time(draw),
        ctime: time(draw),
        accessed: Accessed(draw.flag().then(|| time(draw))),
    }
}

fn time(draw: &mut Draw<'_>) -> Time {
    Time(draw.number() as i64)
}

/// A digest, one of few.
pub fn digest(draw: &mut Draw<'_>) -> Digest {
    Digest(draw.name())
}

/// `user.` attributes.
pub fn xattrs(draw: &mut Draw<'_>) -> Vec<Xattr> {
    draw.list(2, |draw| Xattr { name: [&b"user."[..], &draw.words(6)].concat(), value: draw.blob(9) })
}

/// Where bytes are.
pub fn content(draw: &mut Draw<'_>) -> Content {
    match draw.below(5) {
        0 => Content::Empty,
        1 => Content::Block(digest(draw)),
        2 => Content::Recipe(digest(draw)),
        3 => Content::Lazy(digest(draw)),
        _ => Content::Unreadable(draw.word() as i32),
    }
}

/// What a path is.
pub fn binding(draw: &mut Draw<'_>) -> Binding {
    match draw.below(6) {
        0 => Binding::Absent,
        1 => Binding::Denied,
        2 => {
            let listing = draw.flag().then(|| digest(draw));
            Binding::Directory { attr: attr(draw), listing, xattrs: xattrs(draw) }
        }
        3 => Binding::File { attr: attr(draw), content: content(draw), xattrs: xattrs(draw) },
        4 => Binding::Symlink { attr: attr(draw), target: draw.blob(9) },
        _ => Binding::Special { attr: attr(draw) },
    }
}

/// A path and what it is.
pub fn bound(draw: &mut Draw<'_>) -> Bound {
    Bound { path: draw.path(), seq: Seq(draw.number()), binding: binding(draw) }
}

/// A step of a view.
pub fn view_update(draw: &mut Draw<'_>) -> ViewUpdate {
    ViewUpdate {
        view: ViewId(draw.number()),
        base: Version(draw.number()),
        version: Version(draw.number()),
        set: draw.list(6, bound),
        drop: draw.list(3, Draw::path),
    }
}

/// A command line with its surroundings.
pub fn command(draw: &mut Draw<'_>) -> Command {
    let tags = draw.list(3, |draw| draw.of(&["gpu", "8g", "site:a-b"]).to_owned());
    Command {
        argv: [vec![draw.words(9)], draw.list(4, |draw| draw.words(9))].concat(),
        env: draw.list(4, |draw| draw.words(12)),
        cwd: draw.path().as_bytes().to_vec(),
        umask: draw.word(),
        uid: draw.word(),
        gid: draw.word(),
        groups: draw.list(4, Draw::word),
        limits: draw.list(3, |draw| Limit { resource: draw.word(), soft: draw.number(), hard: draw.number() }),
        hostname: draw.words(9),
        needs: Needs { cpus: draw.word().max(1), memory_mib: draw.word(), level: draw.byte() % 5, tags },
        ignored_signals: draw.number(),
        blocked_signals: draw.number(),
        nice: draw.byte() % 20,
    }
}

/// A change, such as a worker sends; whether a task can have made it is another question.
pub fn change(draw: &mut Draw<'_>) -> Change {
    let base = if draw.flag() { Base::Bound(Seq(draw.number().max(1))) } else { Base::Absent };
    let action = match draw.below(9) {
        0 => Action::Remove,
        1 => Action::Rename { from: draw.path() },
        2 => Action::Directory { attr: attr(draw), xattrs: xattrs(draw), replaces: draw.flag() },
        3 | 4 => {
            let (attr, xattrs, (content, change)) = (attr(draw), xattrs(draw), written(draw, base));
            Action::File { attr, xattrs, content, change }
        }
        5 => {
            let (attr, xattrs, (content, change)) = (attr(draw), xattrs(draw), written(draw, base));
            Action::LastWrite { attr, xattrs, content, change }
        }
        6 => Action::Symlink { attr: attr(draw), target: draw.blob(20) },
        7 => Action::HardLink { to: draw.path() },
        _ => Action::Fifo { attr: attr(draw) },
    };
    Change { path: draw.path(), base, action }
}

/// The bytes of a file of a delta, and how they relate to those before.
fn written(draw: &mut Draw<'_>, base: Base) -> (Content, FileChange) {
    let content = match draw.below(3) {
        0 => Content::Empty,
        1 => Content::Block(digest(draw)),
        _ => Content::Recipe(digest(draw)),
    };
    match draw.below(3) {
        0 => (content, FileChange::Written),
        1 => {
            let from = if base == Base::Absent { 0 } else { draw.number() };
            (content, FileChange::Appended { from })
        }
        _ => (Content::Empty, FileChange::Attributes),
    }
}

/// A recipe that adds up.
pub fn recipe(draw: &mut Draw<'_>) -> Recipe {
    let pieces = draw.list(6, |draw| {
        let block = draw.flag().then(|| digest(draw));
        let most = if block.is_some() { base::BLOCK_BYTES_MAX as u64 } else { 1 << 50 };
        base::Piece { len: draw.number() % most + 1, block }
    });
    Recipe { size: pieces.iter().map(|piece| piece.len).sum(), pieces }
}

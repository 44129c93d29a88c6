//! The steps of a commit, as data: what the redo record holds.
//!
//! Each step can be done and undone by looking at inode numbers alone, so that after a crash it does not matter which
//! of them had been done.

use super::stage::{Site, Slot};
use super::stamp::Seen;
use super::tree::Meta;
use base::codec::{Encode, Malformed, Reader, Writer};
use base::{Digest, ExitStatus, TaskId, Time, TreePath, Xattr};

/// One step. Paths of [`Step::Detach`] and [`Step::Open`] are those before the commit, all others those after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Makes a directory writable for the time of the commit; or, with nothing new, keeps what it was for undoing.
    Open { path: TreePath, ino: u64, old: Meta, new: Meta },
    /// Moves what is at `path` into `slot`. With `beneath` it is a directory to be removed, whose entries have this
    /// digest; without, if `moves`, a directory to be renamed.
    Detach { path: TreePath, slot: Slot, seen: Seen, beneath: Option<Digest>, moves: bool },
    /// Moves what is in `slot` to `path`: exchanged with what was seen there, or to where nothing is. `moved`
    /// tells that a [`Step::Detach`] put it into the slot.
    Place { path: TreePath, slot: Slot, ino: u64, over: Option<Seen>, moved: bool },
    /// Gives the file at `path` the content of `slot` and `meta`; `undo` holds its content before.
    Overwrite { path: TreePath, slot: Slot, undo: Slot, seen: Seen, old: Meta, meta: Meta },
    /// Gives what is at `path` new attributes.
    Attributes { path: TreePath, ino: u64, old: Meta, new: Meta },
    /// Removes the directory at `path`, which steps before this one have emptied: where directories cannot be renamed.
    RemoveDirectory { path: TreePath, ino: u64, old: Meta },
    /// Adds the content of `slot` to the end of the file at `path`, which was at `at` when this was written.
    Append { path: TreePath, slot: Slot, ino: u64, at: u64, len: u64, old: Meta, meta: Meta },
}

impl Step {
    /// Where it takes something away, or replaces it.
    pub(crate) fn takes_from(&self) -> Option<&TreePath> {
        match self {
            Self::Detach { path, .. } | Self::Place { path, over: Some(_), .. } => Some(path),
            _ => None,
        }
    }

    /// Where it puts something.
    pub(crate) fn puts_at(&self) -> Option<&TreePath> {
        if let Self::Place { path, .. } = self { Some(path) } else { None }
    }

    /// The path that the step is about.
    pub(crate) fn path(&self) -> &TreePath {
        match self {
            Self::Open { path, .. }
            | Self::Detach { path, .. }
            | Self::Place { path, .. }
            | Self::Overwrite { path, .. }
            | Self::Attributes { path, .. }
            | Self::RemoveDirectory { path, .. }
            | Self::Append { path, .. } => path,
        }
    }
}

/// What a redo record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub task: TaskId,
    pub status: ExitStatus,
    pub durable: bool,
    /// The staging folders that slots speak of.
    pub sites: Vec<Site>,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// The version of the record's format: the first one knew no access times.
const VERSION: u8 = 2;

impl Plan {
    /// The bytes of a record: version, body, digest of both.
    pub(crate) fn to_record(&self) -> Vec<u8> {
        self.to_record_of(VERSION)
    }

    fn to_record_of(&self, version: u8) -> Vec<u8> {
        let mut out = Writer::default();
        out.u8(version);
        out.u128(self.task.0);
        self.status.encode(&mut out);
        out.bool(self.durable);
        out.list(&self.sites, |out, site| match site {
            Site::State => out.u8(0),
            Site::Tree(path) => {
                out.u8(1);
                out.bytes(path.as_bytes());
            }
            Site::Beside(path) => {
                out.u8(2);
                out.bytes(path.as_bytes());
            }
        });
        out.list(&self.steps, |out, step| put_step(out, step, version));
        let digest = Digest::of(&out.0);
        out.raw(&digest.0);
        out.0
    }

    /// Reads a record; one that was not written to its end is malformed.
    pub(crate) fn from_record(bytes: &[u8]) -> Result<Self, Malformed> {
        let (body, digest) = bytes.split_last_chunk::<32>().ok_or(Malformed("cut short"))?;
        if Digest::of(body).0 != *digest {
            return Err(Malformed("a redo record that was not written to its end"));
        }
        let mut from = Reader::new(body);
        let version = from.u8()?;
        if !(1..=VERSION).contains(&version) {
            return Err(Malformed("a redo record of an unknown version"));
        }
        let plan = Self {
            task: TaskId(from.u128()?),
            status: ExitStatus::decode(&mut from)?,
            durable: from.bool()?,
            sites: from.list(|from| match from.u8()? {
                0 => Ok(Site::State),
                1 => Ok(Site::Tree(get_path(from)?)),
                2 => Ok(Site::Beside(get_path(from)?)),
                _ => Err(Malformed("an unknown kind of staging folder")),
            })?,
            steps: from.list(|from| get_step(from, version))?,
        };
        if from.is_empty() { Ok(plan) } else { Err(Malformed("bytes left over")) }
    }

    /// All slots that the steps use.
    pub(crate) fn slots(&self) -> Vec<Slot> {
        let mut slots = Vec::new();
        for step in &self.steps {
            match step {
                Step::Open { .. } | Step::Attributes { .. } | Step::RemoveDirectory { .. } => {}
                Step::Detach { slot, .. } | Step::Place { slot, .. } | Step::Append { slot, .. } => slots.push(*slot),
                Step::Overwrite { slot, undo, .. } => slots.extend([*slot, *undo]),
            }
        }
        slots
    }
}

fn put_step(out: &mut Writer, step: &Step, version: u8) {
    let put_meta = |out: &mut Writer, meta: &Meta| put_meta(out, meta, version);
    match step {
        Step::Open { path, ino, old, new } | Step::Attributes { path, ino, old, new } => {
            out.u8(if matches!(step, Step::Open { .. }) { 0 } else { 4 });
            out.bytes(path.as_bytes());
            out.u64(*ino);
            put_meta(out, old);
            put_meta(out, new);
        }
        Step::Detach { path, slot, seen, beneath, moves } => {
            out.u8(1);
            out.bytes(path.as_bytes());
            put_slot(out, slot);
            put_seen(out, seen);
            out.option(beneath.as_ref(), |out, digest| out.raw(&digest.0));
            out.bool(*moves);
        }
        Step::Place { path, slot, ino, over, moved } => {
            out.u8(2);
            out.bytes(path.as_bytes());
            put_slot(out, slot);
            out.u64(*ino);
            out.option(over.as_ref(), put_seen);
            out.bool(*moved);
        }
        Step::Overwrite { path, slot, undo, seen, old, meta } => {
            out.u8(3);
            out.bytes(path.as_bytes());
            put_slot(out, slot);
            put_slot(out, undo);
            put_seen(out, seen);
            put_meta(out, old);
            put_meta(out, meta);
        }
        Step::RemoveDirectory { path, ino, old } => {
            out.u8(6);
            out.bytes(path.as_bytes());
            out.u64(*ino);
            put_meta(out, old);
        }
        Step::Append { path, slot, ino, at, len, old, meta } => {
            out.u8(5);
            out.bytes(path.as_bytes());
            put_slot(out, slot);
            out.u64(*ino);
            out.u64(*at);
            out.u64(*len);
            put_meta(out, old);
            put_meta(out, meta);
        }
    }
}

fn get_step(from: &mut Reader<'_>, version: u8) -> Result<Step, Malformed> {
    let get_meta = |from: &mut Reader<'_>| get_meta(from, version);
    let kind = from.u8()?;
    let path = get_path(from)?;
    Ok(match kind {
        0 => Step::Open { path, ino: from.u64()?, old: get_meta(from)?, new: get_meta(from)? },
        1 => Step::Detach {
            path,
            slot: get_slot(from)?,
            seen: get_seen(from)?,
            beneath: from.option(base::binding::read_digest)?,
            moves: from.bool()?,
        },
        2 => Step::Place {
            path,
            slot: get_slot(from)?,
            ino: from.u64()?,
            over: from.option(get_seen)?,
            moved: from.bool()?,
        },
        3 => Step::Overwrite {
            path,
            slot: get_slot(from)?,
            undo: get_slot(from)?,
            seen: get_seen(from)?,
            old: get_meta(from)?,
            meta: get_meta(from)?,
        },
        4 => Step::Attributes { path, ino: from.u64()?, old: get_meta(from)?, new: get_meta(from)? },
        5 => Step::Append {
            path,
            slot: get_slot(from)?,
            ino: from.u64()?,
            at: from.u64()?,
            len: from.u64()?,
            old: get_meta(from)?,
            meta: get_meta(from)?,
        },
        6 => Step::RemoveDirectory { path, ino: from.u64()?, old: get_meta(from)? },
        _ => return Err(Malformed("an unknown kind of step")),
    })
}

/// Reads a path in normal form.
pub(crate) fn get_path(from: &mut Reader<'_>) -> Result<TreePath, Malformed> {
    TreePath::parse(from.bytes()?).ok_or(Malformed("a path that is not in normal form"))
}

fn put_slot(out: &mut Writer, slot: &Slot) {
    out.u32(slot.folder);
    out.u32(slot.number);
}

fn get_slot(from: &mut Reader<'_>) -> Result<Slot, Malformed> {
    Ok(Slot { folder: from.u32()?, number: from.u32()? })
}

fn put_seen(out: &mut Writer, seen: &Seen) {
    out.u64(seen.ino);
    out.u64(seen.size);
    out.i64(seen.mtime.0);
}

fn get_seen(from: &mut Reader<'_>) -> Result<Seen, Malformed> {
    Ok(Seen { ino: from.u64()?, size: from.u64()?, mtime: Time(from.i64()?) })
}

fn put_meta(out: &mut Writer, meta: &Meta, version: u8) {
    out.u32(meta.mode);
    out.u32(meta.uid);
    out.u32(meta.gid);
    out.i64(meta.mtime.0);
    if version > 1 {
        out.option(meta.atime.as_ref(), |out, atime| out.i64(atime.0));
    }
    out.option(meta.xattrs.as_ref(), |out, xattrs| put_xattrs(out, xattrs));
}

fn get_meta(from: &mut Reader<'_>, version: u8) -> Result<Meta, Malformed> {
    Ok(Meta {
        mode: from.u32()?,
        uid: from.u32()?,
        gid: from.u32()?,
        mtime: Time(from.i64()?),
        atime: if version > 1 { from.option(|from| Ok(Time(from.i64()?)))? } else { None },
        xattrs: from.option(get_xattrs)?,
    })
}

/// Appends a list of extended attributes.
pub(crate) fn put_xattrs(out: &mut Writer, xattrs: &[Xattr]) {
    out.list(xattrs, |out, xattr| {
        out.bytes(&xattr.name);
        out.bytes(&xattr.value);
    });
}

/// Reads what [`put_xattrs`] wrote.
pub(crate) fn get_xattrs(from: &mut Reader<'_>) -> Result<Vec<Xattr>, Malformed> {
    from.list(|from| Ok(Xattr { name: from.bytes()?.to_vec(), value: from.bytes()?.to_vec() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Meta {
        Meta { mode: 0o644, uid: 6, gid: 7, mtime: Time(-8), atime: None, xattrs: None }
    }

    fn every_step(atime: Option<Time>) -> Vec<Step> {
        let path = TreePath::parse(b"/a").expect("a normal path");
        let slot = Slot { folder: 1, number: 2 };
        let seen = Seen { ino: 3, size: 4, mtime: Time(5) };
        let xattrs = Some(vec![Xattr { name: b"user.a".to_vec(), value: b"v".to_vec() }]);
        let old = plain();
        let new = Meta { xattrs, atime, ..old.clone() };
        let (path_, old_, new_) = (path.clone(), old.clone(), new.clone());
        vec![
            Step::Open { path: path.clone(), ino: 9, old: old.clone(), new: new.clone() },
            Step::Detach { path: path.clone(), slot, seen, beneath: Some(Digest([1; 32])), moves: false },
            Step::Place { path: path.clone(), slot, ino: 10, over: Some(seen), moved: true },
            Step::Overwrite { path: path.clone(), slot, undo: slot, seen, old: old.clone(), meta: new.clone() },
            Step::Attributes { path, ino: 11, old, new },
            Step::Append { path: path_, slot, ino: 12, at: 13, len: 14, old: old_, meta: new_ },
        ]
    }

    #[test]
    fn records_round_trip_and_keep_their_bytes() {
        let sites = vec![Site::State, Site::Tree(TreePath::parse(b"/m/.gleaner-x").expect("a normal path"))];
        let plan = Plan {
            task: TaskId(1),
            status: ExitStatus::Code(2),
            durable: true,
            sites,
            steps: every_step(Some(Time(-9))),
        };
        let bytes = plan.to_record();
        assert_eq!(Plan::from_record(&bytes).as_ref(), Ok(&plan));
        let first = Plan { steps: every_step(None), ..plan }.to_record_of(1);
        let digest = Digest::of(&first).to_hex();
        assert_eq!(digest, "c00225014afb76762b753f0e20c1fa25df0a40e78ede24c7b52204e6ad063879", "as it was written");
        assert_eq!(Plan::from_record(&first).map(|plan| plan.steps), Ok(every_step(None)));
        let digest = Digest::of(&bytes).to_hex();
        assert_eq!(
            digest, "c5ee203b0f40fa571da63f0bc30f7ea73f8281fdd7a01c6e0e5ae6577a648d32",
            "the stored format changed: raise VERSION and keep a reader"
        );
        let (path, meta) = (TreePath::parse(b"/d").expect("a normal path"), Meta { mode: 0o700, ..plain() });
        let steps = vec![Step::RemoveDirectory { path: path.clone(), ino: u64::MAX, old: meta }];
        let sites = vec![Site::State, Site::Beside(path)];
        let later = Plan { task: TaskId(2), status: ExitStatus::Code(0), durable: false, sites, steps };
        assert_eq!(Plan::from_record(&later.to_record()), Ok(later));
        for cut in 0..bytes.len() {
            assert!(Plan::from_record(&bytes[..cut]).is_err(), "a record of {cut} bytes");
        }
    }
}

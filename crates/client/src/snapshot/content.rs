//! Regular files: contents by hash, never torn.

use super::stamp::{is_open_to_write, stat_open};
use super::{Grain, Snapshot, Stamp, attr_of, now, open, pause_nanos};
use base::{Attr, Binding, Content, TreePath};
use rustix::fs::{OFlags, Statx};
use rustix::io::Errno;
use std::fs::File;
use std::sync::atomic::Ordering;

/// Most bytes of data in a large file that is hashed because the rest of it is holes.
const SPARSE_DATA_BYTES_MAX: u64 = 64 << 20;
/// Most runs of data of a file that are looked for; one with more is not taken for mostly holes.
const EXTENTS_MAX: usize = 1024;

impl Snapshot {
    /// Binds the regular file that `stat` was of, and tells whether its stamp shows later changes; `None`: it changed
    /// meanwhile.
    pub(super) fn file(&self, path: &TreePath, stat: &Statx) -> Result<Option<(Binding, bool)>, Errno> {
        let (attr, stamp) = (attr_of(stat), Stamp::of(stat));
        let of = |content, xattrs| Binding::File { attr, content, xattrs };
        let bind = |content, xattrs| Some((of(content, xattrs), true));
        let file = match open(path, OFlags::RDONLY) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            // Who may only execute it, or write into it, can do that here.
            Err(Errno::ACCESS | Errno::PERM) => return Ok(Some((self.keep_back(path, stat, stamp), true))),
            Err(errno) => return Ok(bind(Content::Unreadable(errno.raw_os_error()), Vec::new())),
        };
        if Stamp::of(&stat_open(&file)?) != stamp {
            return Ok(None);
        }
        let xattrs = self.xattrs(path, &file);
        let names = attr.nlink;
        if let Some(cut) = self.linked.cut(&stamp, names).or_else(|| self.recipes.get(path, &stamp)) {
            let cut = self.linked.agree(&stamp, names, cut);
            self.sources_of_cut(path, stamp, &cut);
            return Ok(bind(cut.content, xattrs));
        }
        if self.secret_of(path, &file, stat).is_some() {
            return Ok(Some((self.keep_back(path, stat, stamp), true)));
        }
        let hashed = if attr.is_of_system(path) { &self.hashes.system } else { &self.hashes.users };
        let written = !attr.is_of_system(path) && is_open_to_write(&file);
        let content = match stamp.size > hashed.load(Ordering::Relaxed) && !is_mostly_holes(&file, &attr) {
            true => self.lazy(path, &file, stamp, written)?,
            false => self.hashed(path, &file, stamp, written, names)?,
        };
        Ok(content.map(|content| (of(content, xattrs), !written)))
    }

    /// Hashes a file between two looks at its stamp. `written`: somebody has it open for writing; `names`: how many it has.
    fn hashed(
        &self,
        path: &TreePath,
        file: &File,
        stamp: Stamp,
        written: bool,
        names: u32,
    ) -> Result<Option<Content>, Errno> {
        let place = self.places.of(&stamp, file);
        let grain = place.grain;
        if !self.outwait(file, &stamp)? {
            return Ok(None);
        }
        let racy = grain.is_racy(&stamp, now());
        await_writes(file);
        let mut keep = |digest, block| self.sources.add_fresh(digest, block);
        let cut = match self.cutter.cut(file, stamp.size, &mut keep) {
            Ok(cut) => cut,
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Ok(Some(Content::Unreadable(error.raw_os_error().unwrap_or(libc::EIO)))),
        };
        if Stamp::of(&stat_open(file)?) != stamp {
            return Ok(None);
        }
        let is_sure = !racy && !written;
        let cut = if is_sure { self.linked.agree(&stamp, names, cut) } else { cut };
        self.sources_of_cut(path, stamp, &cut);
        let content = cut.content;
        if is_sure {
            self.recipes.put(path.clone(), stamp, cut, place.is_lasting(&stamp));
        }
        Ok(Some(content))
    }

    /// Names a file by its stamp, once a change would show in it.
    fn lazy(&self, path: &TreePath, file: &File, stamp: Stamp, written: bool) -> Result<Option<Content>, Errno> {
        if !self.outwait(file, &stamp)? {
            return Ok(None);
        }
        let digest = match written {
            // What is read of it now must not be taken for what it holds later.
            true => self.linked.passing_name(&stamp, &self.secret),
            false => stamp.name(&self.secret, self.places.of(&stamp, file).is_lasting(&stamp)),
        };
        self.sources.add_lazy(digest, path, stamp);
        Ok(Some(Content::Lazy(digest)))
    }

    /// Waits until a write after the last look would give the file a new stamp, where stamps are as coarse as the
    /// kernel's tick. (Where they are as coarse as seconds, nothing waits that long: the file is looked at again before
    /// each launch until then.) Returns whether the file is still in this state.
    fn outwait(&self, file: &File, stamp: &Stamp) -> Result<bool, Errno> {
        let grain = self.places.of(stamp, file).grain;
        let looked = now();
        if grain.multigrain || !grain.is_racy(stamp, looked) {
            return Ok(true);
        }
        let longest = grain.nanos.min(Grain::TICK.nanos);
        pause_nanos((longest - looked.since(stamp.ctime)).clamp(0, longest));
        Ok(Stamp::of(&stat_open(file)?) == *stamp)
    }
}

/// Whether a large file is mostly holes, so that hashing it is soon done; and its holes are then known elsewhere, too.
fn is_mostly_holes(file: &File, attr: &Attr) -> bool {
    use rustix::fs::{SeekFrom, seek};
    if attr.blocks.saturating_mul(512) > attr.size / 2 {
        return false;
    }
    let (mut at, mut data) = (0, 0);
    for _ in 0..EXTENTS_MAX {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            // No data after this.
            Err(Errno::NXIO) => return true,
            Err(_) => return false,
        };
        // A file system that knows no holes has data throughout.
        let Ok(end) = seek(file, SeekFrom::Hole(start)) else { return false };
        data += end.saturating_sub(start);
        if data > SPARSE_DATA_BYTES_MAX.min(attr.size / 2) {
            return false;
        }
        at = end;
    }
    false
}

/// Waits for the end of a `write` that is under way. A write sets the file's times first and then copies its bytes, so
/// that two looks at the stamp around a read do not show one that began before the first look: call this between the
/// first look and the read. A write that begins later shows in the second look.
///
/// Looking for a hole takes the lock that writes hold on the file systems whose reads do not wait for writes by
/// themselves (ext4, tmpfs, btrfs, f2fs).
pub(super) fn await_writes(file: &File) {
    use rustix::fs::{SeekFrom, seek};
    // What it finds does not matter, nor that an empty file has none.
    let _ = seek(file, SeekFrom::Hole(0));
    let _ = seek(file, SeekFrom::Start(0));
}

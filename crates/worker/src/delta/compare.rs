//! Comparing what is in the upper directory with what the task saw.

use super::Options;
use crate::ids::{NOBODY, Places};
use base::{Accessed, Attr, Binding, Content, Time, Xattr};
use rustix::fs::Stat;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Longest beginning of a file that is compared byte by byte with the mirror's.
pub(crate) const COMPARED_BYTES_MAX: u64 = 64 << 20;
/// Kernels stamp files with a clock that is behind by up to this, in nanoseconds: one tick at 100 Hz.
const CLOCK_GRAIN_NS: i64 = 10_000_000;
/// Clocks that differ by no more than this, in nanoseconds, are taken for the same one. What `stat` showed the task is then
/// what the client gets, to the nanosecond: ninja, for one, writes it down, and builds all again if it does not fit.
pub(crate) const SAME_CLOCK_NS: i64 = 50_000_000;
/// A difference between clocks of one machine: so much the way to the client errs.
const SAME_MACHINE_NS: i64 = 500_000;

/// The attributes of an entry as the client will see them. `before` is what was at its place.
pub(crate) fn attr_of(stat: &Stat, before: Option<&Attr>, options: &Options) -> Attr {
    let mtime = Time::from_parts(stat.st_mtime, stat.st_mtime_nsec as i64);
    let mtime = match before {
        Some(before) if before.mtime == mtime => mtime,
        _ => client_time(mtime, options),
    };
    let id = |places, id, before| client_id(id, before, options.id_base, places);
    let is_as_before = before.is_some_and(|before| before.shown_access() == accessed_at(stat));
    Attr {
        mode: stat.st_mode & 0o7777,
        uid: id(&options.ids.users, stat.st_uid, before.map(|before| before.uid)),
        gid: id(&options.ids.groups, stat.st_gid, before.map(|before| before.gid)),
        nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        dev: 0,
        ino: 0,
        mtime,
        ctime: mtime,
        accessed: Accessed((!is_as_before).then(|| client_time(accessed_at(stat), options))),
    }
}

/// The attributes of what is new: unlike those of what was there, they include the time of the last access whatever it is.
pub(crate) fn attr_of_new(stat: &Stat, before: Option<&Attr>, options: &Options) -> Attr {
    let attr = attr_of(stat, before, options);
    Attr { accessed: Accessed(attr.accessed.0.or(Some(accessed_at(stat)))), ..attr }
}

fn accessed_at(stat: &Stat) -> Time {
    Time::from_parts(stat.st_atime, stat.st_atime_nsec as i64)
}

/// A time as the client's clock would have shown it. What falls within the run is the run's; other times were set by
/// the task (`touch -d`, `cp -p`, `tar`) and are kept.
fn client_time(time: Time, options: &Options) -> Time {
    let within = time.since(options.task_start) >= -CLOCK_GRAIN_NS && time <= options.task_end;
    let offset_ns = options.clock_offset_ns.saturating_abs();
    if !within || offset_ns <= SAME_MACHINE_NS {
        time
    } else if offset_ns <= SAME_CLOCK_NS {
        time.max(options.launch)
    } else {
        time.plus(options.clock_offset_ns).max(options.launch)
    }
}

/// An id as the client has it. Ids without a place are shown to the task as nobody's: then what was before is still so.
fn client_id(id: u32, before: Option<u32>, base: u32, places: &Places) -> u32 {
    let inside = match id.checked_sub(base) {
        Some(id) if base == 0 => id,
        Some(offset) => places.id_at(offset),
        None => NOBODY,
    };
    match before {
        Some(before) if inside == NOBODY && places.shown(before) == NOBODY => before,
        _ => inside,
    }
}

/// Whether mode, owner, times and extended attributes are as they were. (Not the length: that is for the content.)
///
/// Reading moves the time of the last access of new files only: the overlay's inode of a file below has `S_NOATIME` from
/// FUSE. So a time that differs was set.
pub(crate) fn same_attributes(now: &Attr, before: &Attr, xattrs: &[Xattr], xattrs_before: &[Xattr]) -> bool {
    (now.mode, now.uid, now.gid, now.mtime) == (before.mode, before.uid, before.gid, before.mtime)
        && now.accessed.0.is_none()
        && same_xattrs(xattrs, xattrs_before)
}

fn same_xattrs(now: &[Xattr], before: &[Xattr]) -> bool {
    now.len() == before.len() && before.iter().all(|old| now.contains(old))
}

/// `now` with those of `before` that it lacks: for a mirror that does not show such attributes.
pub(crate) fn with_old_xattrs(now: &[Xattr], before: &[Xattr]) -> Vec<Xattr> {
    let mut all = now.to_vec();
    all.extend(before.iter().filter(|old| now.iter().all(|new| new.name != old.name)).cloned());
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// The extended attributes of a binding.
pub(crate) fn xattrs_before(binding: &Binding) -> &[Xattr] {
    match binding {
        Binding::Directory { xattrs, .. } | Binding::File { xattrs, .. } => xattrs,
        _ => &[],
    }
}

/// Whether both contents name the same bytes; `None` if their names do not tell.
pub(crate) fn same_content(now: &Content, before: &Content) -> Option<bool> {
    match (now, before) {
        (now, before) if now == before => Some(true),
        (Content::Empty | Content::Block(_), Content::Empty | Content::Block(_)) => Some(false),
        // Recipes differ for files with holes in other places; lazy files have no digest of their bytes.
        _ => None,
    }
}

/// Whether the first `len` bytes of both files are equal. What of `before` the read policy keeps back is not: the task has not seen it.
pub(crate) fn same_beginning(now: &File, before: &File, len: u64) -> io::Result<bool> {
    let (mut left, mut right) = (vec![0u8; 1 << 17], vec![0u8; 1 << 17]);
    let mut at = 0;
    while at < len {
        let want = (len - at).min(1 << 17) as usize;
        now.read_exact_at(&mut left[..want], at)?;
        match before.read_exact_at(&mut right[..want], at) {
            Err(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::PermissionDenied) => {
                return Ok(false);
            }
            other => other?,
        }
        if left[..want] != right[..want] {
            return Ok(false);
        }
        at += want as u64;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Table;

    #[test]
    fn times_of_the_run_are_the_clients_and_others_are_kept() {
        let second = 1_000_000_000;
        let mut options = Options::new(Time(100 * second), Time(110 * second), Time(50 * second));
        options.clock_offset_ns = -45 * second;
        let map = |secs: i64| client_time(Time(secs * second), &options).0 / second;
        assert_eq!(map(99), 99, "before the run: set by the task");
        assert_eq!(map(100), 55);
        assert_eq!(map(110), 65);
        assert_eq!(map(111), 111);
        options.clock_offset_ns = -55 * second;
        assert_eq!(client_time(Time(100 * second), &options), Time(50 * second), "not before the launch");
        options.launch = Time(100 * second + 7);
        for offset in [-SAME_CLOCK_NS, -1, 0, 1, SAME_CLOCK_NS] {
            options.clock_offset_ns = offset;
            let shown = Time(105 * second + 123_456_789);
            assert_eq!(client_time(shown, &options), shown, "what the task saw is what the client gets");
        }
        assert_eq!(client_time(Time(100 * second), &options), options.launch, "not before the launch");
        options.clock_offset_ns = SAME_MACHINE_NS;
        assert_eq!(client_time(Time(100 * second), &options), Time(100 * second), "a kernel's coarse clock is behind");
    }

    #[test]
    fn ids_lose_their_base() {
        let table = Table::new(100_000);
        let command = base::Command { uid: 1_200_345, ..Default::default() };
        table.place(&command).expect("there is room");
        let users = &table.places().users;
        let client_id = |id, before| client_id(id, before, 100_000, users);
        assert_eq!(client_id(100_000, None), 0);
        assert_eq!(client_id(101_000, Some(1000)), 1000);
        assert_eq!(client_id(165_534, Some(70_000)), 70_000, "an id without a place is still the old one");
        assert_eq!(client_id(165_534, Some(1_200_345)), NOBODY, "one that has a place was changed");
        assert_eq!(client_id(table.show(1_200_345, 0)[0], None), 1_200_345);
        assert_eq!((client_id(5, None), client_id(200_000, None)), (NOBODY, NOBODY));
        assert_eq!(super::client_id(70_000, None, 0, users), 70_000);
    }
}

//! What a task does to lock something, which its client must have for it before it goes on: locks on files, and files, folders and links that must
//! not be there yet.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use base::watch::is_lock_name;

use super::super::order::Lock;
use super::{Decision, LOCKS_MAX, Listener, Notice, is_own, located, read_memory, read_text};

/// Who tries so often to make what is there waits for it to go.
const TRIES_MIN: u32 = 3;
/// Who makes more things by names that are not those of locks makes no locks. A client keeps 256 locks of a task.
const MADE_MAX: usize = 64;

impl Listener {
    /// A pipe or device file: which arguments are its folder, name and mode.
    pub(super) fn on_pipe_or_device(&self, notice: &Notice, arguments: (Option<usize>, usize, usize)) -> Decision {
        let ((folder, name, mode), args) = (arguments, &notice.data.args);
        match args[mode] as u32 & libc::S_IFMT {
            libc::S_IFCHR | libc::S_IFBLK => {
                self.if_root("it makes a device file, which it can only do on this machine")
            }
            _ if self.watch.lock_files => {
                self.on_made_node(notice, folder.map_or(libc::AT_FDCWD, |at| args[at] as i32), args[name])
            }
            _ => Decision::Go,
        }
    }

    /// A folder, link or pipe.
    pub(super) fn on_made_node(&self, notice: &Notice, folder: i32, path: u64) -> Decision {
        match on_made(notice, folder, path, false) {
            Decision::Go => self.on_made_by_script(notice, folder, path),
            asked => asked,
        }
    }

    /// A folder or link of any name that a script makes and takes away again, as locks are. What is there already fails by itself;
    /// who tries again and again waits for another command to take it away, which shows only to who begins again.
    fn on_made_by_script(&self, notice: &Notice, folder: i32, path: u64) -> Decision {
        let Some(text) = read_text(notice.process, path).filter(|_| self.watch.lock_files) else { return Decision::Go };
        if !self.scripts.makes_locks(notice.process, &text) {
            return Decision::Go;
        }
        let Some(whole) = canonical(&located(notice.process, folder, &text)) else { return Decision::Go };
        if std::fs::symlink_metadata(&whole).is_ok() {
            let mut tries = self.tries.borrow_mut();
            if tries.len() >= LOCKS_MAX {
                tries.clear();
            }
            let count = tries.entry(whole).or_default();
            *count += 1;
            if *count < TRIES_MIN {
                return Decision::Go;
            }
        }
        self.on_made_by_any_name(notice, folder, path, true)
    }

    /// As [`on_made`]. Who makes very many things by names that are not those of locks locks nothing by them.
    pub(super) fn on_made_by_any_name(&self, notice: &Notice, folder: i32, path: u64, any: bool) -> Decision {
        let decision = on_made(notice, folder, path, any);
        if let Decision::Ask(lock) = &decision
            && let path = Path::new(std::ffi::OsStr::from_bytes(&lock.path))
            && !path.file_name().is_some_and(|name| is_lock_name(name.as_bytes()))
        {
            let mut made = self.made_by_any_name.borrow_mut();
            if made.len() < MADE_MAX {
                made.insert(path.to_owned());
            } else if !made.contains(path) {
                return Decision::Go;
            }
        }
        decision
    }
}

/// The flags of a call of `openat2`, with which its `struct open_how` begins.
pub(super) fn flags_of_how(notice: &Notice) -> u64 {
    let how = read_memory(notice.process, notice.data.args[2], size_of::<u64>()).unwrap_or_default();
    how.first_chunk().map_or(0, |flags| u64::from_ne_bytes(*flags))
}

/// A lock on a file that others may lock as well.
pub(super) fn on_lock(notice: &Notice, (is_exclusive, range): (bool, Option<(i64, i64)>), may_wait: bool) -> Decision {
    let descriptor = notice.data.args[0] as i32;
    let Ok(path) = std::fs::read_link(format!("/proc/{}/fd/{descriptor}", notice.process)) else { return Decision::Go };
    // What has no name, or lies in a place that is the task's own, no other command can lock.
    let Ok(found) = std::fs::metadata(&path) else { return Decision::Go };
    if is_own(&path) || !(found.is_file() || found.is_dir()) {
        return Decision::Go;
    }
    let path = path.into_os_string().into_encoded_bytes();
    Decision::Ask(Lock { number: notice.id, path, is_exclusive, range, is_made: false, may_wait, is_gone: false })
}

/// A file, folder or link that must not be there yet, as locks are made. By `any` name: but for those of temporary files.
fn on_made(notice: &Notice, folder: i32, path: u64, any: bool) -> Decision {
    let Some(path) = read_text(notice.process, path) else { return Decision::Go };
    let path = located(notice.process, folder, &path);
    let is_meant = |name: &[u8]| is_lock_name(name) || any && !is_drawn(name);
    let Some(name) = path.file_name().filter(|name| is_meant(name.as_bytes())) else { return Decision::Go };
    let Some(path) = canonical(&path) else { return Decision::Go };
    let folder = path.parent().unwrap_or(&path);
    if is_own(folder) || !is_lock_name(name.as_bytes()) && is_for_all(folder) {
        return Decision::Go;
    }
    let is_gone = std::fs::symlink_metadata(&path).is_err();
    let path = path.into_os_string().into_encoded_bytes();
    let (is_made, may_wait) = (true, false);
    Decision::Ask(Lock { number: notice.id, path, is_exclusive: true, range: None, is_made, may_wait, is_gone })
}

/// A path as it is for every process: by its own working folder, it is another for each.
fn canonical(path: &Path) -> Option<PathBuf> {
    Some(std::fs::canonicalize(path.parent()?).ok()?.join(path.file_name()?))
}

/// Whether a name has a part that was drawn or counted, as those of temporary files have.
fn is_drawn(name: &[u8]) -> bool {
    const LEAST: usize = 6;
    let kind = |byte: &u8| (byte.is_ascii_digit(), byte.is_ascii_uppercase());
    name.starts_with(b"tmp")
        || name.split(|byte| !byte.is_ascii_alphanumeric()).filter(|part| part.len() >= LEAST).any(|part| {
            let changes = part.windows(2).filter(|pair| kind(&pair[0]) != kind(&pair[1])).count();
            changes > 2 || part.iter().all(u8::is_ascii_digit)
        })
}

/// Whether a folder is for everybody's temporary files.
fn is_for_all(folder: &Path) -> bool {
    std::fs::metadata(folder).is_ok_and(|found| found.mode() & 0o1000 != 0)
}

/// What a call of `fcntl` locks: whether for one alone, from where, and how many bytes. `None`: it lets go.
pub(super) fn range(notice: &Notice) -> Option<(bool, (i64, i64))> {
    let bytes = read_memory(notice.process, notice.data.args[2], size_of::<libc::flock>())?;
    if bytes.len() < size_of::<libc::flock>() {
        return None;
    }
    // SAFETY: there are as many bytes as the structure has, which is of plain integers; it need not be aligned.
    let lock: libc::flock = unsafe { bytes.as_ptr().cast::<libc::flock>().read_unaligned() };
    // From where the file stands or ends: all of it is as good.
    let (start, len) = if i32::from(lock.l_whence) == libc::SEEK_SET { (lock.l_start, lock.l_len) } else { (0, 0) };
    let is_let_go = i32::from(lock.l_type) == libc::F_UNLCK;
    (!is_let_go).then_some((i32::from(lock.l_type) == libc::F_WRLCK, (start, len)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_meant_are_told_from_those_that_were_drawn() {
        for meant in ["mutex", "n.pid", "counter1", "in-use", "state2.pid", ".running", "run1"] {
            assert!(!is_drawn(meant.as_bytes()), "{meant}");
        }
        for drawn in ["cc7aX2bQ.s", "tmpabcdefgh", "x.pyc.139872349872", "sh-thd.8f2Kq1", "a1b2c3d4"] {
            assert!(is_drawn(drawn.as_bytes()), "{drawn}");
        }
    }
}

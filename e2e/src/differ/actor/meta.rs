//! Operations on names and attributes.

use super::files::{done, unsafe_zeroed};
use super::{Actor, Fault, Reported, Words, escape, filled, show, sys};
use std::ffi::{CStr, CString};

const AT: i32 = libc::AT_FDCWD;
/// Times of the last so many seconds are not reported: the harness compares them.
const RECENT_SECONDS: i64 = 1200;

impl Actor {
    /// Names: making, moving, removing, listing.
    pub(super) fn name(&mut self, words: &Words<'_>) -> Option<Reported> {
        Some(match words.verb {
            "mkdir" => words.path(0).and_then(|path| sys!(libc::mkdir(path.as_ptr(), words.mode(1)?))).map(done),
            "mkfifo" => words.path(0).and_then(|path| sys!(libc::mkfifo(path.as_ptr(), words.mode(1)?))).map(done),
            "rmdir" => words.path(0).and_then(|path| sys!(libc::rmdir(path.as_ptr()))).map(done),
            "unlink" => words.path(0).and_then(|path| sys!(libc::unlink(path.as_ptr()))).map(done),
            "rename" => rename(words),
            "link" => link(words),
            "symlink" => symlink(words),
            "readlink" => words.path(0).and_then(|path| read_link(&path)).map(|target| escape(&target, false)),
            "list" => list(words),
            "chdir" => words.path(0).and_then(|path| sys!(libc::chdir(path.as_ptr()))).map(done),
            "getcwd" => self.folder(),
            "same" => same(words),
            "access" => access(words),
            "linkfd" => self.link_of_descriptor(words),
            _ => return None,
        })
    }

    /// Attributes: modes, owners, times, extended ones.
    pub(super) fn attribute(&mut self, words: &Words<'_>) -> Option<Reported> {
        Some(match words.verb {
            "chmod" => words.path(0).and_then(|path| sys!(libc::chmod(path.as_ptr(), words.mode(1)?))).map(done),
            "fchmod" => self.slot(words, 0).and_then(|fd| sys!(libc::fchmod(fd, words.mode(1)?))).map(done),
            "chown" => change_owner(words),
            "fchown" => {
                self.slot(words, 0).and_then(|fd| sys!(libc::fchown(fd, id(words, 1)?, id(words, 2)?))).map(done)
            }
            "utimens" => set_times(words),
            "stat" => words.path(0).and_then(|path| stat(&path, 0)),
            "lstat" => words.path(0).and_then(|path| stat(&path, libc::AT_SYMLINK_NOFOLLOW)),
            "fstat" => self.slot(words, 0).and_then(|fd| {
                let mut found: libc::stat = unsafe_zeroed();
                // An overlay does not count the names of a file that is open and has none.
                let is_gone = std::fs::read_link(format!("/proc/self/fd/{fd}"))
                    .is_ok_and(|path| path.as_os_str().as_encoded_bytes().ends_with(b" (deleted)"));
                sys!(libc::fstat(fd, &mut found)).map(|_| {
                    found.st_nlink = if is_gone { 0 } else { found.st_nlink };
                    shown(&found)
                })
            }),
            "umask" => words.mode(0).and_then(|mode| sys!(libc::umask(mode))).map(|old| format!("{old:o}")),
            "setxattr" => set_attribute(words),
            "getxattr" => get_attribute(words),
            "listxattr" => list_attributes(words),
            "removexattr" => remove_attribute(words),
            _ => return None,
        })
    }

    fn folder(&mut self) -> Reported {
        let mut buffer = vec![0u8; 8192];
        // The call itself returns the length with the zero at the end.
        let len = sys!(libc::syscall(libc::SYS_getcwd, buffer.as_mut_ptr(), buffer.len()))?;
        let folder = &buffer[..(len as usize).saturating_sub(1)];
        let rest = folder.strip_prefix(self.home.as_slice());
        Ok(rest
            .map_or_else(|| format!("outside {}", escape(folder, false)), |rest| format!(".{}", escape(rest, false))))
    }

    /// Gives a name to an open file, which may have none.
    fn link_of_descriptor(&mut self, words: &Words<'_>) -> Reported {
        let (fd, path) = (self.slot(words, 0)?, words.path(1)?);
        let own = CString::new(format!("/proc/self/fd/{fd}")).unwrap_or_default();
        sys!(libc::linkat(AT, own.as_ptr(), AT, path.as_ptr(), libc::AT_SYMLINK_FOLLOW)).map(done)
    }
}

fn id(words: &Words<'_>, at: usize) -> Result<u32, Fault> {
    Ok(words.number(at)? as u32)
}

fn rename(words: &Words<'_>) -> Reported {
    let known = [("noreplace", libc::RENAME_NOREPLACE as i32), ("exchange", libc::RENAME_EXCHANGE as i32)];
    let (from, to, flags) = (words.path(0)?, words.path(1)?, words.flags(2, &known)?);
    if flags == 0 {
        return sys!(libc::rename(from.as_ptr(), to.as_ptr())).map(done);
    }
    sys!(libc::renameat2(AT, from.as_ptr(), AT, to.as_ptr(), flags as u32)).map(done)
}

fn link(words: &Words<'_>) -> Reported {
    let (from, to) = (words.path(0)?, words.path(1)?);
    let flags = words.flags(2, &[("follow", libc::AT_SYMLINK_FOLLOW)])?;
    sys!(libc::linkat(AT, from.as_ptr(), AT, to.as_ptr(), flags)).map(done)
}

fn symlink(words: &Words<'_>) -> Reported {
    let (target, path) = (words.path(0)?, words.path(1)?);
    sys!(libc::symlink(target.as_ptr(), path.as_ptr())).map(done)
}

fn read_link(path: &CStr) -> Result<Vec<u8>, Fault> {
    let mut buffer = vec![0u8; 8192];
    let len = sys!(libc::readlink(path.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()))?;
    buffer.truncate(len as usize);
    Ok(buffer)
}

/// The names in a folder, in order, with their kinds as the listing has them.
fn list(words: &Words<'_>) -> Reported {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::FileTypeExt;
    let path = std::ffi::OsStr::from_bytes(words.bytes(0)?);
    let fault = |error: std::io::Error| Fault::System(error.raw_os_error().unwrap_or(0));
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path).map_err(fault)? {
        let entry = entry.map_err(fault)?;
        let kind = entry.file_type().map_err(fault)?;
        let letter = if kind.is_dir() {
            'd'
        } else if kind.is_symlink() {
            'l'
        } else if kind.is_fifo() {
            'p'
        } else if kind.is_socket() {
            's'
        } else {
            'f'
        };
        names.push(format!("{}:{letter}", escape(entry.file_name().as_bytes(), false)));
    }
    names.sort();
    Ok(format!("{} {}", names.len(), names.join(" ")))
}

/// Whether two names are one file. Whether they are on one file system is not shown: a folder that is seen twice is not for a worker.
fn same(words: &Words<'_>) -> Reported {
    let [mut one, mut other]: [libc::stat; 2] = [unsafe_zeroed(); 2];
    sys!(libc::lstat(words.path(0)?.as_ptr(), &mut one))?;
    sys!(libc::lstat(words.path(1)?.as_ptr(), &mut other))?;
    Ok(format!("file {}", one.st_dev == other.st_dev && one.st_ino == other.st_ino))
}

fn access(words: &Words<'_>) -> Reported {
    let known = [("r", libc::R_OK), ("w", libc::W_OK), ("x", libc::X_OK)];
    let flags = words.flags(2, &[("effective", libc::AT_EACCESS), ("nofollow", libc::AT_SYMLINK_NOFOLLOW)])?;
    sys!(libc::faccessat(AT, words.path(0)?.as_ptr(), words.flags(1, &known)?, flags)).map(done)
}

fn change_owner(words: &Words<'_>) -> Reported {
    let (path, uid, gid) = (words.path(0)?, id(words, 1)?, id(words, 2)?);
    let flags = words.flags(3, &[("nofollow", libc::AT_SYMLINK_NOFOLLOW)])?;
    sys!(libc::fchownat(AT, path.as_ptr(), uid, gid, flags)).map(done)
}

/// Times are `omit`, `now`, or `SECONDS.NANOSECONDS`.
fn set_times(words: &Words<'_>) -> Reported {
    let time = |at: usize| -> Result<libc::timespec, Fault> {
        let text = words.text(at)?;
        let (seconds, nanos) = match text {
            "omit" => (0, libc::UTIME_OMIT),
            "now" => (0, libc::UTIME_NOW),
            _ => {
                let parts =
                    text.split_once('.').and_then(|(whole, part)| Some((whole.parse().ok()?, part.parse().ok()?)));
                parts.ok_or_else(|| Fault::Wrong("no time".into()))?
            }
        };
        Ok(libc::timespec { tv_sec: seconds, tv_nsec: nanos })
    };
    let times = [time(1)?, time(2)?];
    let flags = words.flags(3, &[("nofollow", libc::AT_SYMLINK_NOFOLLOW)])?;
    sys!(libc::utimensat(AT, words.path(0)?.as_ptr(), times.as_ptr(), flags)).map(done)
}

fn stat(path: &CStr, flags: i32) -> Reported {
    let mut found: libc::stat = unsafe_zeroed();
    sys!(libc::fstatat(AT, path.as_ptr(), &mut found, flags)).map(|_| shown(&found))
}

fn shown(found: &libc::stat) -> String {
    let is_folder = found.st_mode & libc::S_IFMT == libc::S_IFDIR;
    // How large a folder is, and whether its subfolders count as links, is each file system's own way.
    let size = if is_folder { String::new() } else { format!(" size {} links {}", found.st_size, found.st_nlink) };
    let mut now: libc::timespec = unsafe_zeroed();
    let _ = sys!(libc::clock_gettime(libc::CLOCK_REALTIME, &mut now));
    let is_recent = (now.tv_sec - RECENT_SECONDS..=now.tv_sec + 1).contains(&found.st_mtime);
    // A worker's overlay counts a file as changed when it is opened for writing after its attributes or name changed.
    let is_file = found.st_mode & libc::S_IFMT == libc::S_IFREG;
    let time = if is_recent || is_file { "-".into() } else { format!("{}.{}", found.st_mtime, found.st_mtime_nsec) };
    format!("mode {:o} owner {}:{}{size} time {time}", found.st_mode, found.st_uid, found.st_gid)
}

fn set_attribute(words: &Words<'_>) -> Reported {
    let (path, name) = (words.path(0)?, words.path(1)?);
    let value = filled(words.number(2)?.clamp(0, 1 << 17) as usize, 9);
    let flags = words.flags(3, &[("create", libc::XATTR_CREATE), ("replace", libc::XATTR_REPLACE)])?;
    sys!(libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), flags)).map(done)
}

/// That a file has no such attribute, and that nothing in its tree can have any, is one: a worker that knows of none says the latter,
/// so that the kernel does not ask it for each file.
fn none_there(fault: Fault) -> Fault {
    if matches!(fault, Fault::System(libc::EOPNOTSUPP)) { Fault::System(libc::ENODATA) } else { fault }
}

fn get_attribute(words: &Words<'_>) -> Reported {
    let mut value = vec![0u8; 1 << 16];
    let (path, name) = (words.path(0)?, words.path(1)?);
    let len = words.number(2)?.clamp(0, value.len() as i64) as usize;
    let found =
        sys!(libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), len)).map_err(none_there)?;
    Ok(if len == 0 { found.to_string() } else { show(&value[..found as usize]) })
}

fn list_attributes(words: &Words<'_>) -> Reported {
    let mut names = vec![0u8; 1 << 16];
    let path = words.path(0)?;
    let listed = sys!(libc::listxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()));
    let len = match listed {
        Err(Fault::System(libc::EOPNOTSUPP)) => 0,
        listed => listed?,
    };
    let mut names: Vec<String> = names[..len as usize]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| escape(name, false))
        .collect();
    names.sort();
    Ok(names.join(" "))
}

fn remove_attribute(words: &Words<'_>) -> Reported {
    sys!(libc::removexattr(words.path(0)?.as_ptr(), words.path(1)?.as_ptr())).map_err(none_there).map(done)
}

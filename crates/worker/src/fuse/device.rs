//! The connection to the kernel: mounting, reading requests, writing answers and invalidations, unmounting.

use super::protocol::{self, Request};
use mirror::Invalidation;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

/// The file system type, as mountinfo shows it: by it a restart finds what a killed worker left mounted.
const TYPE: &str = "fuse.gleaner";
/// Room for the largest request: nothing is written, so names and lists of forgotten nodes.
pub(super) const REQUEST_BYTES_MAX: usize = 64 << 10;

/// A connection, which ends when it is dropped: all that still waits for an answer fails then.
#[derive(Debug)]
pub(super) struct Device {
    fd: OwnedFd,
}

/// A mount, by a descriptor of its root: whatever happens to its path, it is this mount that is detached.
#[derive(Debug)]
pub(super) struct MountHandle {
    root: OwnedFd,
}

/// Mounts on `mount_point`, in the caller's mount namespace, and answers the kernel's greeting.
pub(super) fn mount(mount_point: &Path, allow_other: bool) -> io::Result<(Device, MountHandle)> {
    let fd = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let allow = if allow_other { ",allow_other" } else { "" };
    let options = format!(
        "fd={},rootmode=40000,user_id={user},group_id={group},default_permissions,max_read={}{allow}",
        fd.as_raw_fd(),
        protocol::READ_BYTES_MAX
    );
    let options = CString::new(options)?;
    let flags = MountFlags::RDONLY | MountFlags::NOATIME | MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("gleaner", mount_point, TYPE, flags, Some(options.as_c_str()))?;
    let device = Device { fd };
    let greeted = device.greet();
    let root = rustix::fs::open(mount_point, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    match (greeted, root) {
        (Ok(()), Ok(root)) => Ok((device, MountHandle { root })),
        (greeted, root) => {
            rustix::mount::unmount(mount_point, UnmountFlags::DETACH)?;
            greeted?;
            root?;
            Err(io::Error::other("the mount ended while it was being made"))
        }
    }
}

impl Device {
    fn greet(&self) -> io::Result<()> {
        let mut buffer = vec![0; REQUEST_BYTES_MAX];
        let len = self.receive(&mut buffer)?;
        match protocol::parse(&buffer[..len]) {
            Some((header, Request::Init { major: 7, minor, max_readahead, flags })) if minor >= 31 => {
                self.answer(header.unique, &protocol::init_answer(max_readahead, flags))?;
                Ok(())
            }
            Some((header, Request::Init { major, minor, .. })) => {
                self.refuse(header.unique, Errno::PROTO)?;
                let text = format!("the kernel speaks FUSE {major}.{minor}; 7.31 (Linux 5.4) or later is needed");
                Err(io::Error::new(io::ErrorKind::Unsupported, text))
            }
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel's first FUSE request is not INIT")),
        }
    }

    /// Waits for the next request. Fails with `ENODEV` when the file system was unmounted.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        loop {
            match rustix::io::read(&self.fd, &mut *buffer) {
                // ENOENT: the request was taken back before it was read.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                other => return other,
            }
        }
    }

    /// Answers a request with `body`. Fails with `ENOENT` if it was taken back.
    pub(super) fn answer(&self, unique: u64, body: &[u8]) -> Result<(), Errno> {
        let header = protocol::answer_header(unique, 0, body.len());
        rustix::io::writev(&self.fd, &[IoSlice::new(&header), IoSlice::new(body)]).map(drop)
    }

    /// Answers a request with an error.
    pub(super) fn refuse(&self, unique: u64, error: Errno) -> Result<(), Errno> {
        let header = protocol::answer_header(unique, -error.raw_os_error(), 0);
        rustix::io::write(&self.fd, &header).map(drop)
    }

    /// Has the kernel forget. What it does not hold is no error.
    pub(super) fn invalidate(&self, what: &Invalidation) -> Result<(), Errno> {
        let message = match what {
            Invalidation::Entry { parent, name } => protocol::invalidate_entry(*parent, name),
            Invalidation::Inode { node } => protocol::invalidate_inode(*node),
        };
        match rustix::io::write(&self.fd, &message) {
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl MountHandle {
    /// Has the kernel ask one question of the file system (STATFS), and waits for the answer.
    pub(super) fn poke(&self) {
        // The answer is of no interest: a thread that waited for requests got one.
        let _ = rustix::fs::fstatfs(&self.root);
    }

    /// Detaches the mount, wherever it is now. Must run in the mount namespace in which it was made.
    pub(super) fn detach(self) -> io::Result<()> {
        let path = format!("/proc/self/fd/{}", self.root.as_fd().as_raw_fd());
        Ok(rustix::mount::unmount(path, UnmountFlags::DETACH)?)
    }

    /// Raises the kernel's read-ahead from 128 KiB, where the machine lets us.
    pub(super) fn raise_read_ahead(&self) {
        let Ok(stat) = rustix::fs::fstat(&self.root) else { return };
        let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
        let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
        if let Err(error) = std::fs::write(&path, (protocol::READ_BYTES_MAX >> 10).to_string()) {
            tracing::debug!(%error, path, "the mirror's read-ahead stays at the kernel's default");
        }
    }
}

/// Detaches mirrors that a killed worker left mounted beneath `folder`, in the caller's mount namespace. Returns how
/// many.
pub fn detach_left_over(folder: &Path) -> io::Result<usize> {
    // The calling thread's: threads can differ in their namespace.
    let mounts = std::fs::read("/proc/thread-self/mountinfo")?;
    let mut count = 0;
    for line in mounts.split(|byte| *byte == b'\n') {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let Some(separator) = fields.iter().position(|field| *field == b"-") else { continue };
        let (Some(path), Some(kind)) = (fields.get(4), fields.get(separator + 1)) else { continue };
        let path = unescape(path);
        let path = Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(&path));
        if *kind == TYPE.as_bytes() && path.starts_with(folder) {
            rustix::mount::unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?;
            count += 1;
        }
    }
    Ok(count)
}

/// A path of mountinfo, where blanks and the like are written as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut at = 0;
    while at < field.len() {
        let octal = field.get(at + 1..at + 4).filter(|_| field[at] == b'\\');
        let code =
            octal.and_then(|digits| std::str::from_utf8(digits).ok()).and_then(|d| u8::from_str_radix(d, 8).ok());
        out.push(code.unwrap_or(field[at]));
        at += if code.is_some() { 4 } else { 1 };
    }
    out
}

/// Makes `path` a directory to mount on.
pub(super) fn make_mount_point(path: &Path) -> io::Result<()> {
    match rustix::fs::mkdirat(CWD, path, Mode::from_raw_mode(0o700)) {
        Err(Errno::EXIST) => Ok(()),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn paths_of_mountinfo() {
        assert_eq!(super::unescape(b"/a\\040b\\134"), b"/a b\\");
    }
}

//! Stand-ins for descriptors that are open for the command at its client, and do not travel. Most programs that inherit one never
//! use it. One that does is called off, and run where the descriptor is.
//!
//! A task has a file of its own at each such number. The filter has the init decide on calls that name the number
//! ([`arguments`]); what reaches the file another way, as by `/dev/fd/5` or by a copy, the kernel reports (inotify). A number at
//! which the task has opened something else, or nothing, is the task's.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;

use libc::*;
use rustix::fs::inotify::{self, ReadFlags};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::io::Errno;
use seccompiler::BpfProgram;

use super::notices::{Decision, read_memory};
use super::seccomp::{self, CACHESTAT, FCHMODAT2};
use super::sys;

/// What init holds for itself is moved to numbers from here on.
const OWN_FROM: RawFd = 1 + *base::watch::DESCRIPTOR_NUMBERS.end() as RawFd;
/// Copies from here on are what shells keep while they redirect a number: what becomes of them the kernel reports.
const KEPT_FROM: u64 = 10;
/// Descriptors of one call of `poll` that are looked at.
const POLLED_MAX: usize = 4096;

/// What stands at a task's numbers.
#[derive(Debug)]
pub struct StandIns {
    all: Vec<StandIn>,
    events: OwnedFd,
    /// The filter of a task without any.
    ordinary: BpfProgram,
}

#[derive(Debug)]
struct StandIn {
    number: u32,
    /// Device and inode number.
    file: (u64, u64),
    /// By which the kernel reports it.
    watch: i32,
}

/// A descriptor of init's, out of the way of stand-ins.
pub fn out_of_the_way(own: impl AsFd) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(own, OWN_FROM)
}

/// By which the kernel reports what becomes of stand-ins. Who closes the last descriptor of it waits for the kernel, for 15 ms and more:
/// it is to be used again.
pub fn events() -> Result<OwnedFd, Errno> {
    use inotify::CreateFlags;
    inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
}

impl StandIns {
    /// Puts one at each number, over whatever is there, for a task that has the `ordinary` filter otherwise. `events`: from [`events`], read
    /// by nobody else now.
    pub fn place(numbers: &[u32], ordinary: BpfProgram, events: impl AsFd) -> Result<Self, Errno> {
        use inotify::WatchFlags;
        let events = out_of_the_way(events)?;
        let mut made = Vec::new();
        for number in numbers {
            let file = rustix::fs::memfd_create(c"elsewhere", MemfdFlags::CLOEXEC)?;
            // What is empty could be read without an event.
            rustix::io::write(&file, b"\0")?;
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            // The kernel reports nothing of the descriptor that such a file was made with.
            let file = out_of_the_way(rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)?;
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            let what = WatchFlags::OPEN | WatchFlags::ACCESS | WatchFlags::MODIFY;
            let watch = inotify::add_watch(&events, &path, what)?;
            let stat = rustix::fs::fstat(&file)?;
            made.push((StandIn { number: *number, file: (stat.st_dev, stat.st_ino), watch }, file));
        }
        for (stand_in, file) in &made {
            sys::copy_to(file.as_raw_fd(), stand_in.number as RawFd)?;
        }
        Ok(Self { all: made.into_iter().map(|(stand_in, _)| stand_in).collect(), events, ordinary })
    }

    /// Their numbers.
    pub fn numbers(&self) -> impl Iterator<Item = RawFd> {
        self.all.iter().map(|stand_in| stand_in.number as RawFd)
    }

    /// Readable when one was used that the filter did not see.
    pub fn events(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// Why the task is to be called off, if one was used.
    pub fn why_used(&self) -> Option<String> {
        let mut room = [std::mem::MaybeUninit::uninit(); 1024];
        let mut events = inotify::Reader::new(&self.events, &mut room);
        // What the kernel says of the files of an earlier task, which are gone, is of no interest.
        while let Ok(event) = events.next() {
            debug_assert!(!event.events().contains(ReadFlags::QUEUE_OVERFLOW));
            if let Some(used) = self.all.iter().find(|stand_in| stand_in.watch == event.wd()) {
                return Some(base::watch::uses_descriptor(used.number));
            }
        }
        None
    }

    /// What becomes of a call of this process; `None`: it is to be decided on as of any other task.
    pub fn decide(&self, process: u32, data: &seccomp_data) -> Option<Decision> {
        let used = named(process, data).into_iter().find(|number| self.stands_at(process, *number));
        match used.filter(|_| !is_kept(data)) {
            Some(number) => Some(Decision::CallOff(base::watch::uses_descriptor(number))),
            None => match seccomp::evaluate(&self.ordinary, data) {
                SECCOMP_RET_ALLOW => Some(Decision::Go),
                answer if answer & SECCOMP_RET_ACTION_FULL == SECCOMP_RET_ERRNO => {
                    Some(Decision::Fail((answer & SECCOMP_RET_DATA) as i32))
                }
                _ => None,
            },
        }
    }

    /// Whether the process still has the stand-in at this number.
    fn stands_at(&self, process: u32, number: u32) -> bool {
        let Some(stand_in) = self.all.iter().find(|stand_in| stand_in.number == number) else { return false };
        match std::fs::metadata(format!("/proc/{process}/fd/{number}")) {
            Ok(found) => (found.dev(), found.ino()) == stand_in.file,
            // Of a process that cannot be looked into nobody knows.
            Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
        }
    }
}

/// The descriptors that a call names.
fn named(process: u32, data: &seccomp_data) -> Vec<u32> {
    match c_long::from(data.nr) {
        number if is_poll(number) => polled(process, data.args[0], data.args[1]),
        number if is_select(number) => {
            let beyond = data.args[0].min(OWN_FROM as u64) as u32;
            let sets = data.args[1..4].iter().filter(|set| **set != 0);
            sets.flat_map(|set| selected(process, *set, beyond)).collect()
        }
        number => arguments(number).iter().map(|at| data.args[*at as usize] as u32).collect(),
    }
}

/// Whether a shell only keeps a copy of what it will put back.
fn is_kept(data: &seccomp_data) -> bool {
    let copies = [F_DUPFD, F_DUPFD_CLOEXEC].contains(&(data.args[1] as i32));
    c_long::from(data.nr) == SYS_fcntl && copies && data.args[2] >= KEPT_FROM
}

fn polled(process: u32, address: u64, count: u64) -> Vec<u32> {
    let count = (count as usize).min(POLLED_MAX);
    let bytes = read_memory(process, address, count * size_of::<pollfd>()).unwrap_or_default();
    let entries = bytes.chunks_exact(size_of::<pollfd>());
    entries.filter_map(|entry| Some(u32::from_ne_bytes(*entry.first_chunk()?))).collect()
}

/// The members below `beyond` of a set of `select`.
fn selected(process: u32, address: u64, beyond: u32) -> Vec<u32> {
    let bytes = read_memory(process, address, beyond.div_ceil(8) as usize).unwrap_or_default();
    let is_in = |number: &u32| bytes.get(*number as usize / 8).is_some_and(|byte| byte & (1 << (number % 8)) != 0);
    (0..beyond).filter(is_in).collect()
}

fn is_poll(number: c_long) -> bool {
    #[cfg(target_arch = "x86_64")]
    if number == SYS_poll {
        return true;
    }
    number == SYS_ppoll
}

fn is_select(number: c_long) -> bool {
    #[cfg(target_arch = "x86_64")]
    if number == SYS_select {
        return true;
    }
    number == SYS_pselect6
}

/// Whether a call names its descriptors in memory, which no filter sees.
pub fn names_in_memory(number: c_long) -> bool {
    is_poll(number) || is_select(number)
}

/// Values of the second argument with which a call only asks or sets whether a descriptor is passed on.
pub fn harmless(number: c_long) -> &'static [u32] {
    match number {
        _ if number == SYS_fcntl => &[F_GETFD as u32, F_SETFD as u32],
        _ if number == SYS_ioctl => &[FIOCLEX as u32, FIONCLEX as u32],
        _ => &[],
    }
}

/// Calls whose first argument is a descriptor that they use.
#[rustfmt::skip]
const FIRST: &[c_long] = &[
    SYS_read, SYS_write, SYS_pread64, SYS_pwrite64, SYS_readv, SYS_writev, SYS_preadv, SYS_pwritev, SYS_preadv2,
    SYS_pwritev2, SYS_dup, SYS_dup3, SYS_fstat, SYS_fstatfs, SYS_lseek, SYS_ftruncate, SYS_fallocate, SYS_fsync,
    SYS_fdatasync, SYS_fchmod, SYS_fchown, SYS_fchdir, SYS_flock, SYS_getdents64, SYS_fadvise64, SYS_readahead,
    SYS_syncfs, SYS_fgetxattr, SYS_fsetxattr, SYS_flistxattr, SYS_fremovexattr, SYS_ioctl, SYS_fcntl, SYS_newfstatat,
    SYS_statx, SYS_openat, SYS_openat2, SYS_readlinkat, SYS_faccessat, SYS_faccessat2, SYS_fchmodat, FCHMODAT2,
    SYS_fchownat, SYS_mkdirat, SYS_mknodat, SYS_unlinkat, SYS_utimensat, SYS_execveat, SYS_vmsplice, CACHESTAT,
    SYS_sendto, SYS_sendmsg, SYS_sendmmsg, SYS_recvfrom, SYS_recvmsg, SYS_recvmmsg, SYS_connect, SYS_getsockname,
    SYS_getpeername, SYS_getsockopt, SYS_setsockopt, SYS_shutdown, SYS_accept, SYS_accept4,
];
#[cfg(target_arch = "x86_64")]
const FIRST_HERE: &[c_long] = &[SYS_dup2, SYS_getdents, SYS_futimesat, SYS_sync_file_range];
/// sync_file_range.
#[cfg(target_arch = "aarch64")]
const FIRST_HERE: &[c_long] = &[84];

/// Which arguments of a call are descriptors that it uses. To close one, or to put something else in its place, is no use.
pub fn arguments(number: c_long) -> &'static [u32] {
    match number {
        _ if number == SYS_mmap => &[4],
        _ if number == SYS_epoll_ctl => &[2],
        _ if number == SYS_symlinkat => &[1],
        _ if [SYS_sendfile, SYS_tee].contains(&number) => &[0, 1],
        _ if [SYS_splice, SYS_copy_file_range, SYS_linkat, SYS_renameat2].contains(&number) => &[0, 2],
        #[cfg(target_arch = "x86_64")]
        _ if number == SYS_renameat => &[0, 2],
        _ if FIRST.contains(&number) || FIRST_HERE.contains(&number) => &[0],
        _ => &[],
    }
}

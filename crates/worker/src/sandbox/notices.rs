//! What a watched task does that its init decides on: calls that are refused in a sandbox, connections, and, if that is watched for,
//! programs and locks. The kernel stops the caller until the init has answered (seccomp user notification).
//!
//! Nothing here guards anything: the namespaces and the filter do that. So it does not matter that what is read of a stopped process
//! can change behind the init's back, or cannot be read at all: then the call goes on as if nobody watched.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base::Watch;
use base::watch::{HEAD_BYTES, OutputFile};
use rustix::io::Errno;
use seccompiler::BpfProgram;

use crate::ids::{Ids, Owner};

use super::order::{Lock, Sought};
use super::scripts::{self, Scripts};
use super::seccomp::{self, Caller};
use super::stand_ins::StandIns;
use super::{attributes, copying, sys};

mod addresses;
mod locking;
mod owners;
mod processes;

use locking::{flags_of_how, on_lock, range};

/// Room for the kernel's structures, which newer kernels may make longer.
const ROOM: usize = 512;
/// Locks that are kept in mind.
const LOCKS_MAX: usize = 1024;
/// Longest path that is looked at, bytes.
const PATH_BYTES_MAX: usize = 4096;

/// What the init decides of one call.
#[derive(Debug, PartialEq, Eq)]
pub enum Decision {
    /// It goes on.
    Go,
    /// It was carried out, and returns this.
    Return(i64),
    /// It fails.
    Fail(i32),
    /// It fails, which people may want to know.
    FailAndTell(i32, String),
    /// The task is to be called off: why. The call waits for its end.
    CallOff(String),
    /// It names a user or group that the task does not know: it is to be called off as well.
    Names(Owner),
    /// It waits until the client has the lock.
    Ask(Lock),
    /// It waits until the client has said whether its machine has this; by the number of the call.
    AskService(u64, Sought),
    /// It goes on, and makes the file at this path to add to it.
    Adds(Vec<u8>),
}

/// Where a watched task's calls arrive.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    watch: Watch,
    is_root: bool,
    has_told: bool,
    /// Locks that are waited for, and locks that the client has; their numbers do not count.
    asked: Vec<Lock>,
    granted: HashSet<Lock>,
    stand_ins: Option<StandIns>,
    /// How often scripts have tried to make what was there.
    tries: RefCell<HashMap<PathBuf, u32>>,
    scripts: Scripts,
    /// What scripts have made by names that are not those of locks.
    made_by_any_name: RefCell<HashSet<PathBuf>>,
    sought: addresses::Looked,
    /// The first of the task's own numbers of processes.
    first_process: u32,
    /// The pipes to its client: devices and inodes.
    outputs: [Option<(u64, u64)>; 2],
    ids: Ids,
}

/// A call that waits.
struct Notice {
    id: u64,
    /// The thread, in this process's namespace.
    process: u32,
    data: libc::seccomp_data,
}

/// Puts this process and its children to come under `filter`, and returns where the calls arrive that it does not decide.
pub fn install(filter: &BpfProgram) -> Result<OwnedFd, Errno> {
    // A signal handler must not make a call of it begin again and again; older kernels do not know the flag.
    const WAIT_KILLABLE: libc::c_ulong = 1 << 5;
    rustix::thread::set_no_new_privs(true)?;
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr() as *mut libc::sock_filter };
    let mut last = Errno::INVAL;
    for flags in [WAIT_KILLABLE, 0] {
        let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | flags;
        // SAFETY: the program outlives the call, which copies it; both crates' instructions are laid out as the kernel's.
        let made = unsafe {
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER as libc::c_long, flags, &raw const program)
        };
        if made >= 0 {
            // SAFETY: the kernel has just made this descriptor for us.
            return Ok(unsafe { OwnedFd::from_raw_fd(made as RawFd) });
        }
        last = Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL);
        if last != Errno::INVAL {
            break;
        }
    }
    Err(last)
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Listener {
    /// Of a task that is watched for this.
    /// `outputs`: device and inode of the pipes to its client.
    pub fn new(
        fd: OwnedFd,
        watch: Watch,
        is_root: bool,
        stand_ins: Option<StandIns>,
        outputs: [Option<(u64, u64)>; 2],
        first_process: u32,
    ) -> Self {
        Self {
            outputs,
            fd,
            watch,
            is_root,
            has_told: false,
            asked: Vec::new(),
            granted: HashSet::new(),
            stand_ins,
            tries: RefCell::default(),
            scripts: Scripts::default(),
            made_by_any_name: RefCell::default(),
            sought: addresses::Looked::default(),
            first_process,
            ids: Ids::default(),
        }
    }

    /// What stands for its client's descriptors.
    pub fn stand_ins(&self) -> Option<&StandIns> {
        self.stand_ins.as_ref()
    }

    /// Decides on one call that waits, and answers it unless the task is to be called off.
    pub fn attend(&mut self) -> Decision {
        let Some(notice) = self.receive() else { return Decision::Go };
        let mut decision = self.decide(&notice);
        if let Decision::FailAndTell(errno, _) = decision
            && std::mem::replace(&mut self.has_told, true)
        {
            decision = Decision::Fail(errno);
        }
        match &decision {
            Decision::Go | Decision::Adds(_) => self.answer(notice.id, None),
            Decision::Return(value) => self.answer(notice.id, Some(Ok(*value))),
            Decision::Fail(errno) | Decision::FailAndTell(errno, _) => self.answer(notice.id, Some(Err(*errno))),
            Decision::CallOff(_) | Decision::Names(_) => {}
            Decision::AskService(number, sought) => self.sought.asked(*number, *sought),
            Decision::Ask(lock) if self.granted.contains(&Lock { number: 0, ..lock.clone() }) => {
                self.answer(notice.id, None);
                decision = Decision::Go;
            }
            Decision::Ask(lock) => {
                // Who waits no longer, since a signal came, has asked again.
                if self.asked.len() == LOCKS_MAX {
                    self.asked.remove(0);
                }
                self.asked.push(lock.clone());
            }
        }
        decision
    }

    /// The client has the lock of this number: who waits for it goes on.
    pub fn grant(&mut self, number: u64) {
        self.answer(number, None);
        let Some(at) = self.asked.iter().position(|lock| lock.number == number) else { return };
        let lock = self.asked.swap_remove(at);
        // Of what is there, which the call finds, the client is asked again: it may be there no more.
        let is_found = lock.is_made && !lock.is_gone;
        if self.granted.len() < LOCKS_MAX && !is_found {
            self.granted.insert(Lock { number: 0, ..lock });
        }
    }

    /// The client has said whether its machine has what the call of this number is about: why the task is to be called off,
    /// or else the call goes on.
    pub fn hear_of_service(&mut self, number: u64, is_there: bool) -> Option<String> {
        let sought = self.sought.heard(number)?;
        match sought {
            Sought::Port(port) if is_there => return Some(addresses::talks_to(port)),
            Sought::Process(process) if is_there => return Some(processes::signals(process)),
            Sought::Port(port) => self.sought.found_free(port),
            Sought::Process(_) => {}
        }
        self.answer(number, None);
        None
    }

    fn receive(&self) -> Option<Notice> {
        #[repr(C, align(8))]
        struct Room([u8; ROOM]);
        let mut room = Room([0; ROOM]);
        // SAFETY: the room is zeroed and larger than what the kernel writes. That the caller is gone meanwhile is an error.
        let got = unsafe {
            libc::ioctl(self.fd.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, (&raw mut room).cast::<libc::c_void>())
        };
        if got < 0 {
            return None;
        }
        // SAFETY: the room is aligned, and the kernel has filled the structure at its beginning, of plain integers.
        let notif = unsafe { &*(&raw const room).cast::<libc::seccomp_notif>() };
        Some(Notice { id: notif.id, process: notif.pid, data: notif.data })
    }

    /// The call returns this or fails with this error number; `None`: it goes on.
    fn answer(&self, id: u64, result: Option<Result<i64, i32>>) {
        let flags = if result.is_none() { libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32 } else { 0 };
        let (val, error) = match result {
            Some(Ok(value)) => (value, 0),
            Some(Err(errno)) => (0, -errno),
            None => (0, 0),
        };
        let answer = libc::seccomp_notif_resp { id, val, error, flags };
        // SAFETY: the structure outlives the call. A caller that is gone meanwhile needs no answer.
        let _ = unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const answer) };
    }

    fn decide(&self, notice: &Notice) -> Decision {
        let Notice { data, .. } = notice;
        let number = libc::c_long::from(data.nr);
        if data.arch != seccomp::NATIVE {
            return Decision::CallOff("a program of it is for 32-bit processors, which workers do not run".into());
        }
        if let Some(decision) = self.stand_ins.as_ref().and_then(|stand_ins| stand_ins.decide(notice.process, data)) {
            return decision;
        }
        match number {
            libc::SYS_connect => self.on_address(notice, (data.args[1], data.args[2])),
            libc::SYS_sendto => self.on_address(notice, (data.args[4], data.args[5])),
            libc::SYS_sendmsg => self.on_messages(notice, data.args[1], 1),
            libc::SYS_sendmmsg => self.on_messages(notice, data.args[1], data.args[2]),
            libc::SYS_kill => self.on_signal(notice),
            libc::SYS_copy_file_range => copying::on_copy(notice.process, &data.args),
            libc::SYS_ioctl if seccomp::SET_FLAGS.contains(&(data.args[1] as u32)) => {
                Decision::CallOff("it sets flags of a file (as chattr does), which workers do not have".into())
            }
            libc::SYS_ioctl if seccomp::READ_FLAGS.contains(&(data.args[1] as u32)) => on_flags(notice.process),
            _ if seccomp::RAISES.contains(&number) => self.on_priority(notice),
            libc::SYS_capget => self.if_root("it asks for its capabilities, of which root has fewer on workers"),
            libc::SYS_ioctl => copying::on_clone(notice.process, &data.args, self.watch.clones),
            libc::SYS_execve | libc::SYS_execveat => self.on_program(notice),
            libc::SYS_flock => {
                let has = |flag| data.args[1] as i32 & flag != 0;
                on_lock(notice, (!has(libc::LOCK_SH), None), !has(libc::LOCK_NB))
            }
            libc::SYS_openat => self.on_open(notice, data.args[0] as i32, [data.args[1], data.args[2]]),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => self.on_open(notice, libc::AT_FDCWD, [data.args[0], data.args[1]]),
            libc::SYS_openat2 => self.on_open(notice, data.args[0] as i32, [data.args[1], flags_of_how(notice)]),
            libc::SYS_renameat2
                if data.args[4] as u32 & libc::RENAME_NOREPLACE == 0 || !scripts::renames_to_new(notice.process) =>
            {
                Decision::Go
            }
            _ if let Some((folder, name)) = seccomp::makes(number) => {
                let folder = folder.map_or(libc::AT_FDCWD, |at| data.args[at] as i32);
                self.on_made_node(notice, folder, data.args[name])
            }
            libc::SYS_fcntl => match range(notice) {
                Some((is_exclusive, range)) => {
                    let may_wait = matches!(data.args[1] as i32, libc::F_SETLKW | libc::F_OFD_SETLKW);
                    on_lock(notice, (is_exclusive, Some(range)), may_wait)
                }
                None => Decision::Go,
            },
            libc::SYS_lseek | libc::SYS_ftruncate => self.on_output(notice),
            libc::SYS_fstat | libc::SYS_newfstatat | libc::SYS_statx => self.on_output_asked(notice),
            libc::SYS_mq_open | libc::SYS_shmget | libc::SYS_semget | libc::SYS_msgget => on_key(data),
            _ if let Some(at) = seccomp::name_of_attribute(number) => self.on_attribute(notice, data.args[at]),
            _ if seccomp::asks_for_attribute(number) => attributes::on_value(notice.process, number, &data.args),
            libc::SYS_io_uring_setup => {
                Decision::FailAndTell(libc::ENOSYS, "the program was told that there is no io_uring".into())
            }
            libc::SYS_fallocate if copying::is_room(data.args[1]) => copying::on_room(notice.process, &data.args),
            libc::SYS_fallocate => Decision::CallOff(
                "it has the file system zero, take out or insert parts of a file, which this machine's may do".into(),
            ),
            libc::SYS_clone | libc::SYS_unshare => {
                Decision::CallOff("it makes namespaces, which it can only do on this machine".into())
            }
            _ if let Some(arguments) = seccomp::makes_node(number) => self.on_pipe_or_device(notice, arguments),
            _ if number >= libc::c_long::from(seccomp::X32) => {
                Decision::CallOff("a program of it is for the x32 interface, which workers do not have".into())
            }
            _ => self.on_owner(notice).unwrap_or_else(|| self.on_refused(number)),
        }
    }

    /// A call that the filter refuses.
    fn on_refused(&self, number: libc::c_long) -> Decision {
        match seccomp::refused(number) {
            Some((Caller::Root, _)) if !self.is_root => Decision::Fail(libc::EPERM),
            Some((_, name)) => {
                Decision::CallOff(format!("it makes the system call {name}, which it can only make on this machine"))
            }
            None => Decision::Fail(libc::ENOSYS),
        }
    }

    /// What root may do on its own machine, and has to be called off for here. Of others the kernel decides.
    fn if_root(&self, why: &str) -> Decision {
        if self.is_root { Decision::CallOff(why.into()) } else { Decision::Go }
    }

    /// Standard output or error, in which a program moves, or which it cuts: that of its client may be a file, where that can be done.
    fn on_output(&self, notice: &Notice) -> Decision {
        match self.output_at(notice).is_some() {
            true => Decision::CallOff("it moves within its output, which is on this machine".into()),
            false => Decision::Go,
        }
    }

    /// Which of its outputs is at the descriptor that is a call's first argument.
    fn output_at(&self, notice: &Notice) -> Option<usize> {
        let used = std::fs::metadata(format!("/proc/{}/fd/{}", notice.process, notice.data.args[0] as i32)).ok()?;
        self.outputs.iter().position(|output| *output == Some((used.dev(), used.ino())))
    }

    /// Standard output or error, of which a program asks what it is: the file of its client's. Programs compare it with the files that they
    /// read and write, and say more or less to a pipe.
    fn on_output_asked(&self, notice: &Notice) -> Decision {
        let (number, args) = (libc::c_long::from(notice.data.nr), &notice.data.args);
        // Which arguments are a path, that is to be empty, and where the answer goes.
        let [path, answer] = match number {
            libc::SYS_fstat => [0, 1],
            libc::SYS_newfstatat => [1, 2],
            _ => [1, 4],
        };
        let is_empty = || args[path] == 0 || read_memory(notice.process, args[path], 1) == Some(vec![0]);
        let is_named = number != libc::SYS_fstat && !is_empty();
        let file = || self.watch.outputs[self.output_at(notice)?].as_ref();
        // What this process would find in places of its own is no guest's business.
        let is_elsewhere = |file: &&OutputFile| !is_own(Path::new(std::ffi::OsStr::from_bytes(&file.path)));
        let file = if is_named { None } else { file().filter(is_elsewhere) };
        let mask = (number == libc::SYS_statx).then_some(args[3] as u32);
        let Some(told) = file.and_then(|file| sys::told_of_file(&file.path, mask)) else { return Decision::Go };
        write_memory(notice.process, args[answer], &told);
        Decision::Return(0)
    }

    /// A priority that is set: above the ordinary one it is root's, and root's only on its own machine.
    fn on_priority(&self, notice: &Notice) -> Decision {
        const REAL_TIME_DISK: u64 = 1;
        const CLASS_SHIFT: u32 = 13;
        let is_real_time =
            |policy: i32| [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE].contains(&(policy & 0xff));
        let args = &notice.data.args;
        let is_raised = match libc::c_long::from(notice.data.nr) {
            libc::SYS_setpriority => (args[2] as i32) < sys::nice_of(notice.process),
            libc::SYS_sched_setscheduler => is_real_time(args[1] as i32),
            libc::SYS_ioprio_set => args[2] >> CLASS_SHIFT == REAL_TIME_DISK,
            // `struct sched_attr`: its size, then the policy.
            _ => read_memory(notice.process, args[1].wrapping_add(4), 4)
                .and_then(|bytes| Some(is_real_time(i32::from_ne_bytes(*bytes.first_chunk()?))))
                .unwrap_or(false),
        };
        match is_raised {
            true => self.if_root("it raises its priority, which it can only do on this machine"),
            false => Decision::Go,
        }
    }

    /// A file that is opened to be made or added to.
    fn on_open(&self, notice: &Notice, folder: i32, [path, flags]: [u64; 2]) -> Decision {
        let flags = flags as i32;
        if flags & libc::O_NOFOLLOW != 0 && flags & libc::O_CREAT == 0 {
            return on_shared_memory(notice, path);
        }
        let made = match flags & libc::O_EXCL != 0 && self.watch.lock_files {
            true => self.on_made_by_any_name(notice, folder, path, self.scripts.open_locks(notice.process)),
            false => Decision::Go,
        };
        match made {
            Decision::Go if flags & (libc::O_APPEND | libc::O_CREAT) == libc::O_APPEND | libc::O_CREAT => {
                on_added(notice, folder, path)
            }
            made => made,
        }
    }

    /// An attribute that is set: those of the system are root's, and root's only on its own machine.
    fn on_attribute(&self, notice: &Notice, name: u64) -> Decision {
        let Some(name) = read_text(notice.process, name).filter(|_| self.is_root) else { return Decision::Go };
        match name.starts_with(b"trusted.") || name.starts_with(b"security.") {
            true => Decision::CallOff(format!(
                "it sets the attribute {} of a file, which it can only do on this machine",
                base::path::printable(&name)
            )),
            false => Decision::Go,
        }
    }

    fn on_program(&self, notice: &Notice) -> Decision {
        let args = &notice.data.args;
        let (folder, path) = match libc::c_long::from(notice.data.nr) {
            libc::SYS_execveat => (args[0] as i32, args[1]),
            _ => (libc::AT_FDCWD, args[0]),
        };
        let Some(path) = read_text(notice.process, path) else { return Decision::Go };
        let at = located(notice.process, folder, &path);
        if !self.is_root && processes::takes_rights(notice.process, &at) {
            let name = base::words::last_name(&path);
            return Decision::CallOff(base::watch::takes_rights(&base::path::printable(name)));
        }
        let has_formats = !self.watch.formats.is_empty();
        match if has_formats { self.format_of(&at, 1) } else { None } {
            Some(name) => Decision::CallOff(format!(
                "{} is a program of the kind {name}, for which this machine has an interpreter (binfmt_misc)",
                base::path::printable(&path)
            )),
            None => Decision::Go,
        }
    }

    /// The format of a program, or of the interpreter that it names, if the client has an interpreter for that.
    fn format_of(&self, path: &Path, deeper: u32) -> Option<String> {
        let file = std::fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
        let found = file.metadata().ok()?;
        if !found.is_file() || found.mode() & 0o111 == 0 {
            return None;
        }
        let mut head = [0; HEAD_BYTES];
        let count = file.read_at(&mut head, 0).ok()?;
        let head = &head[..count];
        if let Some(format) = self.watch.format_of(path.as_os_str().as_bytes(), head) {
            return Some(base::path::printable(&format.name));
        }
        let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
        let interpreter = line.split(|byte| matches!(byte, b' ' | b'\t')).find(|word| !word.is_empty())?;
        let next = deeper.checked_sub(1)?;
        // Through a link of `/proc` this process would look at what itself has.
        sys::open_inside(&std::ffi::CString::new(interpreter).ok()?, rustix::fs::OFlags::PATH).ok()?;
        self.format_of(Path::new(std::ffi::OsStr::from_bytes(interpreter)), next)
    }
}

/// Flags of a file, or where its blocks are, are read. Programs for that have nothing else to tell; others do without, as on the file
/// systems that have no flags.
fn on_flags(process: u32) -> Decision {
    const TELL_FLAGS: [&[u8]; 4] = [b"lsattr", b"chattr", b"filefrag", b"e4defrag"];
    let name = std::fs::read(format!("/proc/{process}/comm")).unwrap_or_default();
    match TELL_FLAGS.contains(&name.trim_ascii_end()) {
        true => Decision::CallOff("it asks for flags of a file (as lsattr does), which workers do not have".into()),
        false => Decision::Go,
    }
}

/// Memory that programs share by a name: what nobody of the task has made may be its client's.
fn on_shared_memory(notice: &Notice, path: u64) -> Decision {
    let Some(path) = read_text(notice.process, path).filter(|path| path.starts_with(b"/dev/shm/")) else {
        return Decision::Go;
    };
    match std::fs::symlink_metadata(located(notice.process, libc::AT_FDCWD, &path)) {
        Ok(_) => Decision::Go,
        Err(_) => Decision::CallOff(format!("it shares memory of this machine, {}", base::path::printable(&path))),
    }
}

/// A file that is added to. Where there is none yet, others may make it meanwhile as well, and add to it.
fn on_added(notice: &Notice, folder: i32, path: u64) -> Decision {
    let Some(path) = read_text(notice.process, path) else { return Decision::Go };
    let path = located(notice.process, folder, &path);
    if !std::fs::symlink_metadata(&path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return Decision::Go;
    }
    let (Some(Ok(folder)), Some(name)) = (path.parent().map(std::fs::canonicalize), path.file_name()) else {
        return Decision::Go;
    };
    match is_own(&folder) {
        true => Decision::Go,
        false => Decision::Adds(folder.join(name).into_os_string().into_encoded_bytes()),
    }
}

/// Whether a path lies in a place that the task has for itself.
fn is_own(path: &Path) -> bool {
    ["/dev", "/proc", "/sys"].iter().any(|own| path.starts_with(own))
}

/// What System V knows by a key, and what is expected to be there already, is its client's, unless the task has made it.
fn on_key(data: &libc::seccomp_data) -> Decision {
    let (flags, table) = match libc::c_long::from(data.nr) {
        libc::SYS_mq_open => {
            let why = "it uses a queue of messages (POSIX), which belongs to the machine that it runs on";
            return Decision::CallOff(why.into());
        }
        libc::SYS_shmget => (data.args[2], "shm"),
        libc::SYS_semget => (data.args[2], "sem"),
        _ => (data.args[1], "msg"),
    };
    let key = data.args[0] as i32;
    if key == libc::IPC_PRIVATE || flags as i32 & libc::IPC_CREAT != 0 {
        return Decision::Go;
    }
    let known = std::fs::read_to_string(format!("/proc/self/sysvipc/{table}")).unwrap_or_default();
    let is_there = known.lines().skip(1).any(|line| line.split_whitespace().next() == Some(&key.to_string()));
    match is_there {
        true => Decision::Go,
        false => Decision::CallOff(
            "it uses what another program has made by a key (System V), which belongs to the machine that it runs on"
                .into(),
        ),
    }
}

/// Where a path of another process is found from here.
pub fn located(process: u32, folder: i32, path: &[u8]) -> PathBuf {
    let start = match folder {
        libc::AT_FDCWD => format!("/proc/{process}/cwd"),
        number => format!("/proc/{process}/fd/{number}"),
    };
    // An absolute path stands for itself: init and task have one root.
    if path.is_empty() { start.into() } else { Path::new(&start).join(std::ffi::OsStr::from_bytes(path)) }
}

/// A text in another process's memory.
pub fn read_text(process: u32, mut address: u64) -> Option<Vec<u8>> {
    const PAGE: u64 = 4096;
    let mut text = Vec::new();
    while text.len() < PATH_BYTES_MAX {
        // Not beyond the page: the next one may not be there.
        let bytes = read_memory(process, address, 256.min(PAGE - address % PAGE) as usize)?;
        if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
            text.extend_from_slice(&bytes[..end]);
            return Some(text);
        }
        address += bytes.len() as u64;
        text.extend(bytes);
    }
    None
}

/// Bytes of another process's memory; fewer where there are no more.
pub fn read_memory(process: u32, address: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    let ours = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: len };
    let theirs = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: len };
    // SAFETY: our buffer is as long as is said; the other address is only read, and by the kernel.
    let count = unsafe { libc::process_vm_readv(process as i32, &raw const ours, 1, &raw const theirs, 1, 0) };
    bytes.truncate(usize::try_from(count).ok().filter(|count| *count > 0)?);
    Some(bytes)
}

/// Writes into another process's memory, as far as it is there.
pub fn write_memory(process: u32, address: u64, bytes: &[u8]) {
    let ours = libc::iovec { iov_base: bytes.as_ptr() as *mut libc::c_void, iov_len: bytes.len() };
    let theirs = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: bytes.len() };
    // SAFETY: our buffer is as long as is said, and only read; the other address is written by the kernel, in a process that waits.
    let _ = unsafe { libc::process_vm_writev(process as i32, &raw const ours, 1, &raw const theirs, 1, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_a_process_are_read_to_their_end() {
        let text = std::ffi::CString::new(vec![b'x'; 1000]).expect("no NUL");
        let read = read_text(std::process::id(), text.as_ptr() as u64).expect("it is there");
        assert_eq!(read, text.as_bytes());
        assert_eq!(read_text(std::process::id(), 16), None);
    }
}

//! Copies and clones between files (`copy_file_range`, `FICLONE`), which init does for a task. The kernel's own go within one file
//! system alone, and a task's files are of two: those of its client, and those that it has changed. There they are one.
//!
//! What cannot be done here goes on, and fails as the kernel sees fit: programs copy by reading and writing then.
//!
//! And room that is asked for at once (`fallocate`): where a worker has not so much, its client may.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, OFlags, Stat, StatxFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};
use store::room::Room;

use super::notices::{Decision, read_memory, write_memory};

/// Most bytes that one call copies: init does nothing else meanwhile. The caller goes on from there, as it has to anyway.
const COPY_BYTES_MAX: u64 = 64 << 20;
/// Largest clone that is made by copying. A file system that clones does more at once.
const CLONE_BYTES_MAX: u64 = 16 << 20;
/// Bytes at a time.
const BUFFER_BYTES: usize = 256 << 10;
/// `FICLONE` and `FICLONERANGE`.
pub const CLONE_FILE: u32 = 0x4004_9409;
pub const CLONE_RANGE: u32 = 0x4020_940d;

/// Two files of a process, the same open files as its own.
struct Pair {
    from: OwnedFd,
    to: OwnedFd,
    from_stat: Stat,
    /// The process.
    leader: Pid,
    /// Its limit of file size.
    end_max: u64,
}

/// Where one side of a copy is.
enum At {
    /// Where its open file stands.
    File(u64),
    /// Where the process has it in its memory.
    Memory(u64, u64),
}

/// Whether `fallocate` in this mode asks for room, and for nothing else.
pub fn is_room(mode: u64) -> bool {
    mode as i32 & !libc::FALLOC_FL_KEEP_SIZE == 0
}

/// Room of a file's.
pub fn on_room(process: u32, args: &[u64; 6]) -> Decision {
    let file = format!("/proc/{process}/fd/{}", args[0] as RawFd);
    let (Ok(found), Ok(room)) = (rustix::fs::stat(&*file), Room::at(Path::new(&file))) else { return Decision::Go };
    // What the file has already may be a part of it.
    let wanted = args[3].saturating_sub(found.st_blocks as u64 * 512);
    match wanted > room.bytes {
        true => {
            Decision::CallOff(format!("it has {} MiB kept free for a file, which this worker has not", args[3] >> 20))
        }
        false => Decision::Go,
    }
}

/// `copy_file_range`.
pub fn on_copy(process: u32, args: &[u64; 6]) -> Decision {
    const FLAGS: usize = 5;
    let [from, from_at, to, to_at, len, _] = *args;
    let Some(pair) = Pair::of(process, from as RawFd, to as RawFd).filter(|_| args[FLAGS] == 0) else {
        return Decision::Go;
    };
    let (Some(from_at), Some(to_at)) = (At::of(process, &pair.from, from_at), At::of(process, &pair.to, to_at)) else {
        return Decision::Go;
    };
    let room = pair.end_max.saturating_sub(to_at.offset());
    if room == 0 && len > 0 && pair.has_from(from_at.offset()) {
        return pair.too_large(process);
    }
    match pair.copy(from_at.offset(), to_at.offset(), len.min(COPY_BYTES_MAX).min(room)) {
        Ok(count) => {
            from_at.advance(process, &pair.from, count);
            to_at.advance(process, &pair.to, count);
            Decision::Return(count as i64)
        }
        Err(errno) => Decision::Fail(errno.raw_os_error()),
    }
}

/// `FICLONE` and `FICLONERANGE`. `is_able`: the file system of the client can do that.
pub fn on_clone(process: u32, args: &[u64; 6], is_able: bool) -> Decision {
    let [to, request, argument, ..] = *args;
    let range = match request as u32 {
        CLONE_FILE => Some([argument, 0, 0, 0]),
        _ => range(process, argument),
    };
    let Some([from, from_at, len, to_at]) = range else { return Decision::Go };
    let Some(pair) = Pair::of(process, from as RawFd, to as RawFd) else { return Decision::Go };
    if !is_able {
        return Decision::Fail(libc::EOPNOTSUPP);
    }
    let rest = (pair.from_stat.st_size as u64).checked_sub(from_at);
    let Some(len) = rest.filter(|rest| len <= *rest).map(|rest| if len == 0 { rest } else { len }) else {
        return Decision::Fail(libc::EINVAL);
    };
    if len > CLONE_BYTES_MAX {
        return Decision::CallOff("it clones a large file, which the file system of this machine does at once".into());
    }
    if pair.end_max < to_at.saturating_add(len) {
        return pair.too_large(process);
    }
    match pair.copy(from_at, to_at, len) {
        Ok(count) if count == len => Decision::Return(0),
        Ok(_) => Decision::Fail(libc::EIO),
        Err(errno) => Decision::Fail(errno.raw_os_error()),
    }
}

/// A `struct file_clone_range`.
fn range(process: u32, address: u64) -> Option<[u64; 4]> {
    let bytes = read_memory(process, address, 32)?;
    let mut words = bytes.chunks_exact(8).filter_map(|word| Some(u64::from_ne_bytes(*word.first_chunk()?)));
    Some([words.next()?, words.next()?, words.next()?, words.next()?])
}

impl Pair {
    /// `None`: none that is copied here.
    fn of(process: u32, from: RawFd, to: RawFd) -> Option<Self> {
        let leader = leader_of(process)?;
        let pidfd = rustix::process::pidfd_open(leader, PidfdFlags::empty()).ok()?;
        let get = |fd: RawFd| {
            // SAFETY: plain integers; the kernel makes a descriptor for us.
            let got = unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), fd, 0) };
            // SAFETY: as above.
            (got >= 0).then(|| unsafe { OwnedFd::from_raw_fd(got as RawFd) })
        };
        let (from, to) = (get(from)?, get(to)?);
        let (from_flags, to_flags) = (rustix::fs::fcntl_getfl(&from).ok()?, rustix::fs::fcntl_getfl(&to).ok()?);
        let access = |flags: OFlags| flags & OFlags::RWMODE;
        if access(from_flags) == OFlags::WRONLY
            || access(to_flags) == OFlags::RDONLY
            || to_flags.contains(OFlags::APPEND)
            || (from_flags | to_flags).contains(OFlags::PATH)
        {
            return None;
        }
        let (from_stat, to_stat) = (rustix::fs::fstat(&from).ok()?, rustix::fs::fstat(&to).ok()?);
        let is_file = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let is_same = (from_stat.st_dev, from_stat.st_ino) == (to_stat.st_dev, to_stat.st_ino);
        // Within one file the kernel can do it.
        let is_ours = is_file(&from_stat) && is_file(&to_stat) && !is_same;
        let end_max = size_limit(leader)?;
        (is_ours && mount_of(&from)? == mount_of(&to)?).then_some(Self { from, to, from_stat, leader, end_max })
    }

    /// Whether there is anything to copy from there on.
    fn has_from(&self, at: u64) -> bool {
        at < self.from_stat.st_size as u64
    }

    /// What the kernel does to a thread that would write beyond its limit of file size.
    fn too_large(&self, thread: u32) -> Decision {
        // SAFETY: plain integers. A thread that is gone needs no signal.
        unsafe { libc::syscall(libc::SYS_tgkill, self.leader.as_raw_nonzero().get(), thread, libc::SIGXFSZ) };
        Decision::Fail(libc::EFBIG)
    }

    /// Copies up to `len` bytes; fewer at the end of the file, or where something fails after the first.
    fn copy(&self, mut from_at: u64, mut to_at: u64, len: u64) -> Result<u64, Errno> {
        let mut buffer = vec![0; BUFFER_BYTES.min(len as usize)];
        let mut done = 0;
        while done < len {
            let want = ((len - done) as usize).min(buffer.len());
            let copied = rustix::io::pread(&self.from, &mut buffer[..want], from_at).and_then(|count| match count {
                0 => Ok(0),
                _ => rustix::io::pwrite(&self.to, &buffer[..count], to_at),
            });
            match copied {
                Ok(0) => break,
                Ok(count) => {
                    done += count as u64;
                    from_at += count as u64;
                    to_at += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(_) if done > 0 => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(done)
    }
}

impl At {
    fn of(process: u32, file: &OwnedFd, address: u64) -> Option<Self> {
        if address == 0 {
            return rustix::fs::tell(file).ok().map(Self::File);
        }
        let bytes = read_memory(process, address, 8)?;
        let offset = u64::from_ne_bytes(*bytes.first_chunk()?);
        i64::try_from(offset).ok().map(|_| Self::Memory(address, offset))
    }

    fn offset(&self) -> u64 {
        match self {
            Self::File(offset) | Self::Memory(_, offset) => *offset,
        }
    }

    fn advance(&self, process: u32, file: &OwnedFd, count: u64) {
        match self {
            Self::File(offset) => {
                let _ = rustix::fs::seek(file, rustix::fs::SeekFrom::Start(offset + count));
            }
            Self::Memory(address, offset) => write_memory(process, *address, &(offset + count).to_ne_bytes()),
        }
    }
}

/// The mount that a file is on.
fn mount_of(file: &OwnedFd) -> Option<u64> {
    let found = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    Some(found.stx_mnt_id)
}

/// The process that a thread is of.
fn leader_of(thread: u32) -> Option<Pid> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let leader = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    Pid::from_raw(leader.trim().parse().ok()?)
}

/// The size beyond which a process may not write; `u64::MAX`: none.
fn size_limit(process: Pid) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let id = process.as_raw_nonzero().get();
    // SAFETY: the place is valid, and nothing is set.
    let got = unsafe { libc::prlimit(id, libc::RLIMIT_FSIZE, std::ptr::null(), &raw mut limit) };
    (got == 0).then_some(limit.rlim_cur)
}

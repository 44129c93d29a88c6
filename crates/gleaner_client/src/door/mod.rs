//! The caller's side of the door (`base::door`): finds the daemon's socket, connects, starts the daemon if nobody
//! listens ([`start`]), and passes messages. Synchronous, and without threads of its own.

pub mod pulse;
pub mod start;

use base::codec::{Encode, Malformed};
use base::door::{self, Reply, Request};
use base::path::printable;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags};
use rustix::net::{SocketAddrUnix, SocketType, sockopt};
use std::ffi::OsStr;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long one message may take to be accepted by the daemon, before it counts as hung.
const SEND_TIME_MAX: Duration = Duration::from_secs(10);

/// Bytes read from the socket at a time.
const READ_BYTES: usize = 16 << 10;

/// Why the daemon cannot be talked to.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// The folder of the socket is not safe to use.
    #[error("{}: {why}", printable(.path.as_os_str().as_bytes()))]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What is wrong, and what to do.
        why: String,
    },
    /// No daemon listens.
    #[error("no client daemon runs")]
    NotListening,
    /// The listener belongs to someone else.
    #[error("the listener at {} belongs to user {uid}: remove it, or set GLEANER_RUNTIME_DIR", printable(.path.as_os_str().as_bytes()))]
    Stranger {
        /// The socket.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: &'static str,
        /// Why it failed.
        source: Errno,
    },
    /// The working directory cannot be named.
    #[error("the working directory cannot be reached by its path: {0}")]
    Directory(Errno),
    /// The daemon could not be started.
    #[error("the client daemon did not start: {0}")]
    NotStarted(String),
    /// What came is not of this protocol.
    #[error("the client daemon does not speak this version's language ({0}): `gleaner stop`, then try again")]
    Malformed(#[from] Malformed),
    /// It does not run on.
    #[error("the client daemon (process {0}) is stopped: `kill -CONT {0}` has it go on")]
    Stopped(i32),
    /// No answer in time.
    #[error("the client daemon gave no answer within {0} s: `gleaner stop`, then try again")]
    Silent(u64),
}

/// Names what failed in a system call.
pub fn system(what: &'static str) -> impl FnOnce(Errno) -> DoorError {
    move |source| DoorError::System { what, source }
}

/// The folder that holds the daemon's socket and locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder(PathBuf);

impl Folder {
    /// The folder of this user, by the environment. Nothing is made or checked yet.
    pub fn of_environment() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let variable = |name: &str| std::env::var_os(name).map(OsStringExt::into_vec);
        let usable = |path: &[u8]| {
            rustix::fs::stat(path)
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir() && stat.st_uid == uid)
        };
        let gleaner = variable("GLEANER_RUNTIME_DIR");
        let folder = door::runtime_folder(gleaner.as_deref(), variable("XDG_RUNTIME_DIR").as_deref(), uid, usable);
        let folder = PathBuf::from(OsStr::from_bytes(&folder));
        let is_shared = folder.parent() == Some(Path::new("/tmp")) && gleaner.is_none();
        Self(
            Some(folder.clone())
                .filter(|folder| !is_shared || may_be_ours(folder, uid))
                .or_else(of_state)
                .unwrap_or(folder),
        )
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The daemon's socket in it.
    pub fn socket(&self) -> PathBuf {
        self.0.join(door::SOCKET_NAME)
    }

    /// Makes the folder if it is missing, and sees that it is a real folder, ours, and closed to others.
    pub fn secure(&self) -> Result<(), DoorError> {
        let refuse = |why: String| DoorError::Folder { path: self.0.clone(), why };
        match make_folder(&self.0) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(refuse(format!("cannot make this folder ({error}): set GLEANER_RUNTIME_DIR"))),
        }
        let stat = rustix::fs::statat(CWD, &self.0, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| refuse(format!("cannot look at this folder: {error}")))?;
        if !FileType::from_raw_mode(stat.st_mode).is_dir() {
            return Err(refuse(
                "is not a folder (a link is not trusted): remove it, or set GLEANER_RUNTIME_DIR".into(),
            ));
        }
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(refuse(format!("belongs to user {}: remove it, or set GLEANER_RUNTIME_DIR", stat.st_uid)));
        }
        if stat.st_mode & 0o077 != 0 {
            return Err(refuse(format!("is open to others (mode {:o}): chmod 700 it", stat.st_mode & 0o7777)));
        }
        Ok(())
    }
}

/// Whether `path` is free, or a real folder of this user's: anybody may take a name in `/tmp` first.
fn may_be_ours(path: &Path, uid: u32) -> bool {
    match rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => FileType::from_raw_mode(stat.st_mode).is_dir() && stat.st_uid == uid,
        Err(error) => error == Errno::NOENT,
    }
}

/// The folder to use where another user has taken the name in `/tmp`: nobody else can make one there.
fn of_state() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    state.map(|state| state.join("gleaner/run"))
}

/// Makes a folder, and those above it that are missing.
fn make_folder(path: &Path) -> Result<(), Errno> {
    match (rustix::fs::mkdir(path, Mode::RWXU), path.parent()) {
        (Err(Errno::NOENT), Some(parent)) if !parent.as_os_str().is_empty() => {
            make_folder(parent)?;
            rustix::fs::mkdir(path, Mode::RWXU)
        }
        (made, _) => made,
    }
}

/// The socket's path, by way of a descriptor where it would be too long for a socket.
struct Near {
    socket: PathBuf,
    _folder: Option<OwnedFd>,
}

impl Near {
    /// Longest path of a socket.
    const PATH_BYTES_MAX: usize = 107;

    fn new(folder: &Folder) -> Result<Self, DoorError> {
        let socket = folder.socket();
        if socket.as_os_str().len() <= Self::PATH_BYTES_MAX {
            return Ok(Self { socket, _folder: None });
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&folder.0, flags, Mode::empty()).map_err(system("opening the runtime folder"))?;
        let socket = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd())).join(door::SOCKET_NAME);
        Ok(Self { socket, _folder: Some(opened) })
    }
}

/// A connection to the daemon.
#[derive(Debug)]
pub struct Door {
    socket: OwnedFd,
    received: Vec<u8>,
    /// The daemon's, if it is to be seen from here.
    process: Option<i32>,
}

/// What a look at the connection found.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// A message.
    Reply(Reply),
    /// Nothing now.
    Nothing,
    /// The daemon is gone.
    End,
}

/// Who listens at the other end. Its number is 0 if it is not to be seen from this process's namespace.
fn listener_of(socket: &OwnedFd) -> Result<libc::ucred, Errno> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the place is as long as is said.
    let asked = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &raw mut len)
    };
    match asked {
        0 => Ok(peer),
        _ => Err(crate::door::start::last_error()),
    }
}

impl Door {
    /// Connects to the daemon that listens in `folder`, and sees that it is this user's.
    pub fn open(folder: &Folder) -> Result<Self, DoorError> {
        let path = folder.socket();
        folder.secure()?;
        let near = Near::new(folder)?;
        let address = SocketAddrUnix::new(&near.socket).map_err(system("naming the client daemon's socket"))?;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(system("making a socket"))?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(SEND_TIME_MAX))
            .map_err(system("setting the socket's time limit"))?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => {}
            // A full backlog that stays full for the time limit is a daemon that hangs.
            Err(Errno::AGAIN) => return Err(DoorError::Silent(SEND_TIME_MAX.as_secs())),
            Err(Errno::NOENT | Errno::CONNREFUSED) => return Err(DoorError::NotListening),
            Err(error) => return Err(system("connecting to the client daemon")(error)),
        }
        let peer = listener_of(&socket).map_err(system("asking who listens"))?;
        let process = Some(peer.pid).filter(|process| *process > 0);
        match peer.uid == rustix::process::geteuid().as_raw() {
            true => Ok(Self { socket, received: Vec::new(), process }),
            false => Err(DoorError::Stranger { path, uid: peer.uid }),
        }
    }

    /// Sends a message, with `descriptors` beside its first byte. An error means that the connection is of no more use.
    pub fn send(&self, request: &impl Encode, descriptors: &[BorrowedFd<'_>]) -> Result<(), DoorError> {
        let bytes = door::frame(request)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(system("passing descriptors")(Errno::MSGSIZE));
        }
        let mut sent = 0;
        while sent < bytes.len() {
            let outcome =
                rustix::net::sendmsg(&self.socket, &[IoSlice::new(&bytes[sent..])], &mut beside, SendFlags::NOSIGNAL);
            match outcome {
                Ok(count) => {
                    sent += count;
                    beside.clear();
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(DoorError::Silent(SEND_TIME_MAX.as_secs())),
                Err(error) => return Err(system("writing to the client daemon")(error)),
            }
        }
        Ok(())
    }

    /// The next message if it is already here; never waits.
    pub fn receive_now(&mut self) -> Result<Received, DoorError> {
        loop {
            if let Some(message) = door::take_frame(&mut self.received)? {
                return Ok(Received::Reply(Reply::from_bytes(&message)?));
            }
            let mut buffer = [0u8; READ_BYTES];
            match rustix::net::recv(&self.socket, &mut buffer, RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return Ok(Received::End),
                Ok((count, _)) => self.received.extend_from_slice(&buffer[..count]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                Err(error) => return Err(system("reading from the client daemon")(error)),
            }
        }
    }

    /// The next message, waited for until `deadline`; `None` when the daemon is gone.
    pub fn receive(&mut self, deadline: Instant) -> Result<Option<Reply>, DoorError> {
        let begun = Instant::now();
        loop {
            match self.receive_now()? {
                Received::Reply(reply) => return Ok(Some(reply)),
                Received::End => return Ok(None),
                Received::Nothing => {}
            }
            if !wait_readable(self.socket.as_fd(), deadline)? {
                if self.process.is_some_and(pulse::is_stopped) {
                    return Err(self.stopped());
                }
                return Err(DoorError::Silent(deadline.duration_since(begun).as_secs()));
            }
        }
    }

    /// Sends a question of `gleaner` and waits at most `time_max` for the answer, JSON both.
    pub fn ask(&mut self, question: Vec<u8>, time_max: Duration) -> Result<Vec<u8>, DoorError> {
        self.send(&Request::Ask(question), &[])?;
        let deadline = Instant::now() + time_max;
        loop {
            match self.receive(deadline)? {
                Some(Reply::Answer(json)) => return Ok(json),
                Some(Reply::Note(_)) => {}
                Some(_) => return Err(Malformed("a question answered by something else").into()),
                None => return Err(DoorError::NotListening),
            }
        }
    }

    /// The daemon's process; `None` if it cannot be seen from here.
    pub fn process(&self) -> Option<i32> {
        self.process
    }

    /// That the daemon is stopped.
    pub fn stopped(&self) -> DoorError {
        DoorError::Stopped(self.process.unwrap_or_default())
    }

    /// The socket, to be waited for together with other things.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Waits until `descriptor` can be read or is closed by the other side, at most until `deadline`; whether it can.
pub fn wait_readable(descriptor: BorrowedFd<'_>, deadline: Instant) -> Result<bool, DoorError> {
    loop {
        let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        match poll(&mut polled, Some(&timespec_until(deadline))) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(system("waiting for the client daemon")(error)),
        }
    }
}

/// The time left until `deadline`, as `poll` wants it.
pub fn timespec_until(deadline: Instant) -> Timespec {
    let left = deadline.saturating_duration_since(Instant::now());
    Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_name_that_another_has_taken_is_not_ours() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let uid = rustix::process::geteuid().as_raw();
        let (own, link, file) = (dir.path().join("own"), dir.path().join("link"), dir.path().join("file"));
        std::fs::create_dir(&own).expect("made");
        symlink(&own, &link).expect("made");
        std::fs::write(&file, "").expect("made");
        assert!(may_be_ours(&own, uid) && may_be_ours(&dir.path().join("free"), uid));
        assert!(!may_be_ours(&own, uid + 1) && !may_be_ours(&link, uid) && !may_be_ours(&file, uid));
    }

    #[test]
    fn folders_that_others_could_use_are_refused() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let folder = Folder(dir.path().join("run"));
        folder.secure().expect("made");
        assert_eq!(std::fs::metadata(folder.path()).expect("there").permissions().mode() & 0o7777, 0o700);
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o750)).expect("chmod");
        assert!(folder.secure().expect_err("open to the group").to_string().contains("chmod 700"));
        let link = Folder(dir.path().join("link"));
        symlink(dir.path(), link.path()).expect("a link");
        assert!(link.secure().expect_err("a link").to_string().contains("not a folder"));
    }

    #[test]
    fn nobody_listens() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let folder = Folder(dir.path().join("run"));
        assert!(matches!(Door::open(&folder), Err(DoorError::NotListening)));
        let long = Folder(dir.path().join("x".repeat(120)));
        assert!(matches!(Door::open(&long), Err(DoorError::NotListening)), "a long path is as good");
        let deep = Folder(dir.path().join("a/b/c"));
        assert!(matches!(Door::open(&deep), Err(DoorError::NotListening)), "what is missing is made");
    }
}

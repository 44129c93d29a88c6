//! The descriptors above standard error that the caller left open for the command. They do not travel: a command that names one
//! runs here, and one that turns out to use one is called off. Some are open by accident, for terminals, editors and build services
//! forget to close theirs. These are told apart by what they are, and a pipe or terminal by how far it came: the caller has it from
//! its own parent. A file counts in any case.

use base::watch::{DESCRIPTOR_NUMBERS, DESCRIPTORS_MAX};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// Descriptors that are looked at, one by one, where there is no /proc to list them.
const LOOKED_AT: RawFd = 1024;
/// Longest list of a process's descriptors that is read.
const LISTED_MAX: usize = 4096;
/// Files that editors and browsers leave open in the terminals that they start.
const FORGOTTEN: [&[u8]; 6] =
    [b"v8_context_snapshot.bin", b"snapshot_blob.bin", b"icudtl.dat", b".pak", b".asar", b"/dev/shm/.org.chromium."];
/// How memory is called that has a descriptor and no name (`memfd_create`).
const MEMORY: &[u8] = b"/memfd:";

/// What the descriptors above standard error mean for a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inherited {
    /// It is to run here: why, a sentence.
    Here(String),
    /// It may go elsewhere. If it uses one of these there, it is called off: their numbers, and what is open there.
    Watched(Vec<(u32, String)>),
}

/// A descriptor that a command may use.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Usable {
    what: String,
    /// The command's words or variables speak of it.
    is_named: bool,
    /// Where nobody watches it may be absent: a copy of a standard stream, which shells keep for themselves, or a device like `/dev/null`.
    is_minor: bool,
}

/// What those that this process would pass on mean for a command of these words, in this environment.
pub fn look(argv: &[Vec<u8>], env: &[Vec<u8>]) -> Inherited {
    judge(usable(argv, env))
}

/// Why a command is to run here that nobody would watch: a sentence, or `None`.
pub fn keep_here(argv: &[Vec<u8>], env: &[Vec<u8>]) -> Option<String> {
    usable(argv, env).find(|(_, usable)| !usable.is_minor).map(|(fd, usable)| does_not_travel(fd, &usable.what))
}

fn usable(argv: &[Vec<u8>], env: &[Vec<u8>]) -> impl Iterator<Item = (RawFd, Usable)> {
    let inherited = inherited();
    let jobserver = if inherited.is_empty() { Vec::new() } else { jobserver(env) };
    inherited.into_iter().filter_map(move |fd| Some((fd, of_use(fd, argv, env, &jobserver)?)))
}

fn does_not_travel(fd: RawFd, what: &str) -> String {
    format!("descriptor {fd} is open for it ({what}), and does not travel")
}

fn judge(usable: impl Iterator<Item = (RawFd, Usable)>) -> Inherited {
    let mut watched = Vec::new();
    for (fd, Usable { what, is_named, is_minor }) in usable {
        let number = u32::try_from(fd).ok().filter(|number| DESCRIPTOR_NUMBERS.contains(number));
        match number.filter(|_| !is_named && watched.len() < DESCRIPTORS_MAX) {
            Some(number) => watched.push((number, what)),
            None if is_minor => {}
            None => return Inherited::Here(does_not_travel(fd, &what)),
        }
    }
    Inherited::Watched(watched)
}

/// What is open there, if the command may use it.
fn of_use(fd: RawFd, argv: &[Vec<u8>], env: &[Vec<u8>], jobserver: &[RawFd]) -> Option<Usable> {
    // SAFETY: this process of one thread has just found it open, and closes none of those that it inherited.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let stat = rustix::fs::fstat(borrowed).ok()?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let is_named = is_named_by_words(fd, argv) || is_named_by_variables(fd, env);
    if !is_named && kind == FileType::Fifo && jobserver.contains(&fd) {
        return None;
    }
    if !is_named && (0..3).any(|stream| is_same_open_file(stream, fd)) {
        return Some(Usable { what: "a copy of a standard stream".into(), is_named, is_minor: true });
    }
    let is_terminal = kind == FileType::CharacterDevice && rustix::termios::isatty(borrowed);
    let of_kind = match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a folder",
        FileType::Fifo => "a pipe",
        FileType::BlockDevice => "a device",
        FileType::CharacterDevice if is_terminal => "a terminal",
        _ if is_named => "named by the command",
        FileType::CharacterDevice => "a device",
        FileType::Unknown => "what programs count or wait with",
        _ => return None,
    };
    let is_minor = !is_named && kind == FileType::CharacterDevice && !is_terminal;
    let path = path_of(fd);
    let is_by_accident = match kind {
        FileType::RegularFile if path.starts_with(MEMORY) => is_from_afar(fd, &path),
        FileType::RegularFile => is_forgotten(&path) || is_lock(fd),
        FileType::Fifo | FileType::CharacterDevice | FileType::Unknown => is_from_afar(fd, &path),
        _ => false,
    };
    if is_by_accident && !is_named {
        return None;
    }
    let what = match path.starts_with(b"/") {
        true => format!("{of_kind}, {}", base::path::printable(&path)),
        false => of_kind.to_owned(),
    };
    Some(Usable { what, is_named, is_minor })
}

/// Descriptors above 2 that a program executed by this process would have.
fn inherited() -> Vec<RawFd> {
    let is_kept = |fd: &RawFd| {
        // SAFETY: only looks, at whatever is or is not open under this number.
        let flags = unsafe { libc::fcntl(*fd, libc::F_GETFD) };
        flags != -1 && flags & libc::FD_CLOEXEC == 0
    };
    match listed() {
        Some(all) => all.into_iter().filter(is_kept).collect(),
        None => (3..LOOKED_AT).filter(is_kept).collect(),
    }
}

/// All descriptors above 2, in order.
fn listed() -> Option<Vec<RawFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(c"/proc/self/fd", flags, Mode::empty()).ok()?;
    let mut buffer = Vec::with_capacity(2048);
    let mut entries = rustix::fs::RawDir::new(&folder, buffer.spare_capacity_mut());
    let mut all = Vec::new();
    while let Some(entry) = entries.next() {
        let number: Option<RawFd> = entry.ok()?.file_name().to_str().ok().and_then(|name| name.parse().ok());
        all.extend(number.filter(|fd| *fd > 2 && *fd != folder.as_raw_fd()));
        if all.len() > LISTED_MAX {
            break;
        }
    }
    all.sort_unstable();
    Some(all)
}

/// Whether both are one open file, with one offset: what goes to the one is seen at the other.
fn is_same_open_file(one: RawFd, other: RawFd) -> bool {
    const FILES: c_int = 0;
    // SAFETY: compares two descriptors of this process, and changes nothing.
    let compared = unsafe {
        let own = libc::getpid();
        libc::syscall(libc::SYS_kcmp, own, own, FILES, one, other)
    };
    match compared {
        0 => true,
        -1 => is_same_channel(one, other),
        _ => false,
    }
}

/// As well as it can be told on a kernel that does not compare open files: of files with offsets it cannot.
fn is_same_channel(one: RawFd, other: RawFd) -> bool {
    // SAFETY: they are looked at and not kept.
    let stat = |fd| rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(fd) });
    // SAFETY: as above.
    let access = |fd| unsafe { libc::fcntl(fd, libc::F_GETFL) } & libc::O_ACCMODE;
    let (Ok(first), Ok(second)) = (stat(one), stat(other)) else { return false };
    let has_offset = FileType::from_raw_mode(first.st_mode) == FileType::RegularFile;
    !has_offset && (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino) && access(one) == access(other)
}

fn path_of(fd: RawFd) -> Vec<u8> {
    rustix::fs::readlink(format!("/proc/self/fd/{fd}"), Vec::new()).map(|path| path.into_bytes()).unwrap_or_default()
}

/// Whether the caller's own parent has the same open under this number. A shell opens what a command is to use for that command, or
/// for itself. Beyond a change of user nobody can look, and few things are passed on purpose.
fn is_from_afar(fd: RawFd, path: &[u8]) -> bool {
    let caller = rustix::process::getppid().map_or(0, |id| id.as_raw_nonzero().get());
    let stat = std::fs::read_to_string(format!("/proc/{caller}/stat")).unwrap_or_default();
    // The second field is a name in parentheses, which may have spaces; the state and the parent follow.
    let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)).unwrap_or("0");
    let there = rustix::fs::readlink(format!("/proc/{parent}/fd/{fd}"), Vec::new());
    match there {
        Ok(there) => there.as_bytes() == path,
        Err(errno) => errno == Errno::ACCESS,
    }
}

fn is_forgotten(path: &[u8]) -> bool {
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    FORGOTTEN.iter().any(|name| if name.starts_with(b"/") { path.starts_with(name) } else { path.ends_with(name) })
}

/// Whether the file is open for the lock on it (`exec 9> lock; flock 9`), which this process holds as long as the command runs.
fn is_lock(fd: RawFd) -> bool {
    std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}"))
        .is_ok_and(|text| text.lines().any(|line| line.starts_with("lock:") && line.contains("FLOCK")))
}

/// The pipe by which a `make` and those that it starts share their slots. The command has none of them elsewhere.
fn jobserver(env: &[Vec<u8>]) -> Vec<RawFd> {
    const VARIABLES: [&[u8]; 3] = [b"MAKEFLAGS=", b"MFLAGS=", b"CARGO_MAKEFLAGS="];
    const OPTIONS: [&str; 2] = ["--jobserver-auth=", "--jobserver-fds="];
    let values = env.iter().filter_map(|entry| VARIABLES.iter().find_map(|name| entry.strip_prefix(*name)));
    let mut all = Vec::new();
    for value in values {
        for word in String::from_utf8_lossy(value).split_whitespace() {
            let pair = OPTIONS.iter().find_map(|option| word.strip_prefix(option)).unwrap_or_default();
            all.extend(pair.split(',').filter_map(|number| number.parse::<RawFd>().ok()));
        }
    }
    all
}

/// Whether the command's words name this descriptor: `/dev/fd/3`, `<&3`, `fd:3`, `--pass-fd 3`.
fn is_named_by_words(fd: RawFd, argv: &[Vec<u8>]) -> bool {
    let number = fd.to_string();
    let mut speaks_of_descriptors = false;
    for word in argv {
        let text = String::from_utf8_lossy(word);
        let is_value = speaks_of_descriptors && text == number.as_str();
        speaks_of_descriptors = text.starts_with('-') && text.to_ascii_lowercase().contains("fd");
        let as_value = speaks_of_descriptors && text.ends_with(&format!("={number}"));
        if is_value || as_value || places_of(&text, &number).any(is_before_descriptor) {
            return true;
        }
    }
    false
}

/// What stands in `text` before each place where the number stands alone.
fn places_of<'a>(text: &'a str, number: &'a str) -> impl Iterator<Item = &'a str> {
    let is_digit = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_digit());
    text.match_indices(number).filter_map(move |(at, found)| {
        let (before, after) = (&text[..at], &text[at + found.len()..]);
        let alone = !is_digit(before.chars().next_back()) && !is_digit(after.chars().next());
        alone.then_some(before)
    })
}

fn is_before_descriptor(before: &str) -> bool {
    let redirects = || {
        let left = before.trim_end_matches(' ').strip_suffix('&');
        left.is_some_and(|left| left.ends_with(['<', '>']))
    };
    before.ends_with("/dev/fd/") || before.ends_with("/self/fd/") || before.ends_with("fd:") || redirects()
}

/// Whether a variable names it: `NODE_CHANNEL_FD=3`, `LISTEN_FDS=1`.
fn is_named_by_variables(fd: RawFd, env: &[Vec<u8>]) -> bool {
    let number = fd.to_string();
    env.iter().any(|entry| {
        let Some(at) = entry.iter().position(|byte| *byte == b'=') else { return false };
        let (name, value) = (&entry[..at], String::from_utf8_lossy(&entry[at + 1..]));
        match name {
            // So many, from 3 on.
            b"LISTEN_FDS" => value.parse::<RawFd>().is_ok_and(|count| fd < count.saturating_add(3)),
            name => name.windows(2).any(|two| two == b"FD") && value == number.as_str(),
        }
    })
}

/// Makes this process's copy of `fd` one that a program executed in its place has. For tests.
#[cfg(test)]
fn pass_on(fd: impl std::os::fd::AsFd) {
    rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty()).expect("a descriptor");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn words(text: &str) -> Vec<Vec<u8>> {
        text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    fn why(fd: impl AsFd, argv: &str, env: &[&str]) -> Option<String> {
        let env: Vec<Vec<u8>> = env.iter().map(|entry| entry.as_bytes().to_vec()).collect();
        of_use(fd.as_fd().as_raw_fd(), &words(argv), &env, &jobserver(&env)).map(|usable| usable.what)
    }

    #[test]
    fn files_and_pipes_keep_it_here() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        pass_on(&file);
        assert!(inherited().contains(&file.as_fd().as_raw_fd()));
        let said = why(&file, "make", &[]).expect("a reason");
        assert!(said.starts_with("a file, /"), "{said}");
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        assert_eq!(why(&reader, "make", &[]).as_deref(), Some("a pipe"));
        let auth = format!("MAKEFLAGS= -j8 --jobserver-auth={},{}", reader.as_raw_fd(), writer.as_raw_fd());
        assert_eq!(why(&reader, "make", &[&auth]), None);
        let redirected = format!("sh -c cat<&{}", reader.as_raw_fd());
        assert!(why(&reader, &redirected, &[&auth]).is_some());
        let folder = std::fs::File::open("/").expect("a folder");
        assert!(why(&folder, "make", &[]).expect("a reason").starts_with("a folder"));
    }

    #[test]
    fn what_is_not_named_is_watched_as_far_as_that_goes() {
        let usable = |is_named, is_minor| Usable { what: "a file".into(), is_named, is_minor };
        let plain = || usable(false, false);
        let watched = judge([(3, plain()), (63, usable(false, true))].into_iter());
        assert_eq!(watched, Inherited::Watched(vec![(3, "a file".into()), (63, "a file".into())]));
        assert!(matches!(judge([(3, usable(true, false))].into_iter()), Inherited::Here(_)));
        assert!(matches!(judge([(64, plain())].into_iter()), Inherited::Here(_)));
        assert_eq!(judge([(64, usable(false, true))].into_iter()), Inherited::Watched(Vec::new()));
        assert!(matches!(judge((3..20).map(|fd| (fd, plain()))), Inherited::Here(_)), "too many");
    }

    #[test]
    fn what_parents_forget_does_not() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let number = one.as_raw_fd();
        assert_eq!(why(&one, "make", &[]), None);
        assert!(why(&one, "make", &[&format!("NODE_CHANNEL_FD={number}")]).is_some());
        assert!(why(&one, &format!("tool --status-fd {number}"), &[]).is_some());
        let count = rustix::event::eventfd(1, rustix::event::EventfdFlags::empty()).expect("a counter");
        assert_eq!(why(&count, "make", &[]).as_deref(), Some("what programs count or wait with"));
        let memory = rustix::fs::memfd_create(c"m", rustix::fs::MemfdFlags::empty()).expect("memory");
        assert!(why(&memory, "make", &[]).is_some_and(|said| said.starts_with("a file, /memfd:m")));
        let null = std::fs::File::open("/dev/null").expect("a device");
        // Its number is watched, and nothing more.
        let usable = of_use(null.as_raw_fd(), &words("make"), &[], &[]);
        assert!(usable.is_some_and(|usable| usable.is_minor && usable.what == "a device, /dev/null"));
        let locked = tempfile::tempfile().expect("a file");
        assert!(why(&locked, "make", &[]).is_some());
        rustix::fs::flock(&locked, rustix::fs::FlockOperation::LockExclusive).expect("a lock");
        assert_eq!(why(&locked, "make", &[]), None);
        assert!(is_forgotten(b"/usr/share/code/v8_context_snapshot.bin"));
        assert!(!is_forgotten(b"/home/me/data.bin"));
        let copy = rustix::io::dup(&null).expect("a copy");
        assert!(is_same_open_file(null.as_raw_fd(), copy.as_raw_fd()));
        let again = std::fs::File::open("/dev/null").expect("a device");
        assert!(!is_same_open_file(null.as_raw_fd(), again.as_raw_fd()));
    }

    #[test]
    fn words_name_descriptors() {
        for text in ["sh -c read<&3", "diff a /dev/fd/3", "openssl -pass fd:3", "x --fd=3", "x -fd 3"] {
            assert!(is_named_by_words(3, &words(text)), "{text}");
        }
        assert!(is_named_by_words(3, &[b"echo >& 3".to_vec()]));
        for text in ["make -j 3", "sh -c echo>&33", "head -n 3 /dev/fd/13", "tar --level=3"] {
            assert!(!is_named_by_words(3, &words(text)), "{text}");
        }
        assert!(is_named_by_variables(4, &[b"LISTEN_FDS=2".to_vec()]));
        assert!(!is_named_by_variables(5, &[b"LISTEN_FDS=2".to_vec()]));
    }
}

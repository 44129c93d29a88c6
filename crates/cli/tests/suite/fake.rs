//! A client daemon that does as it is told, in a thread of the test or as a process that `remrun` starts.

use base::codec::Encode;
use base::door::{self, Reply, Request};
use base::{Command, ExitStatus};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::fs::File;
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;

/// The job of [`Place::job_daemon`].
pub const JOB: base::JobId = base::JobId(77);

/// One caller.
pub struct Caller {
    stream: UnixStream,
    received: Vec<u8>,
    pub descriptors: Vec<OwnedFd>,
}

impl Caller {
    fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time limit");
        Self { stream, received: Vec::new(), descriptors: Vec::new() }
    }

    /// The next message; `None` when the caller is gone.
    pub fn request(&mut self) -> Option<Request> {
        loop {
            if let Some(message) = door::take_frame(&mut self.received).expect("a frame") {
                return Some(Request::from_bytes(&message).expect("a request"));
            }
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
            let mut beside = RecvAncillaryBuffer::new(&mut space);
            let mut buffer = [0; 4096];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let got = rustix::net::recvmsg(&self.stream, &mut [IoSliceMut::new(&mut buffer)], &mut beside, flags);
            let count = match got {
                Ok(got) => got.bytes,
                Err(rustix::io::Errno::CONNRESET) => 0,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => panic!("the caller said nothing: {error}"),
            };
            for message in beside.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                    self.descriptors.extend(descriptors);
                }
            }
            if count == 0 {
                return None;
            }
            self.received.extend_from_slice(&buffer[..count]);
        }
    }

    /// Waits for so long, in which the caller says nothing and stays.
    pub fn wait(&self, milliseconds: i64) {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let time = Timespec { tv_sec: milliseconds / 1000, tv_nsec: milliseconds % 1000 * 1_000_000 };
        let said = poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], Some(&time)).expect("a socket");
        assert_eq!(said, 0, "the caller goes, or says something");
    }

    /// The command that the first message must carry.
    pub fn run(&mut self) -> (Command, door::Options, Option<base::WindowSize>) {
        match self.request() {
            Some(Request::Run { command, options, window, version: door::VERSION, .. }) => (*command, options, window),
            other => panic!("not a command: {other:?}"),
        }
    }

    pub fn reply(&mut self, reply: Reply) {
        self.stream.write_all(&door::frame(&reply).expect("short")).expect("the caller listens");
    }

    pub fn launched(&mut self, terminal: bool) {
        self.reply(Reply::Launched { task: base::TaskId(7), terminal });
    }

    /// Writes to the caller's standard stream `number`.
    pub fn write(&mut self, number: usize, text: &str) {
        let copy = self.descriptors[number].try_clone().expect("a descriptor");
        File::from(copy).write_all(text.as_bytes()).expect("the stream is open");
    }
}

/// The places of one test: a runtime folder, and a folder with `remrun` beside a fake `gleaner`.
pub struct Place {
    dir: TempDir,
    programs: TempDir,
}

impl Place {
    pub fn new() -> Self {
        // A name drawn by chance may look like a secret.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("gleaner-cli-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        // Of a run that was killed.
        let _ = std::fs::remove_dir_all(std::env::temp_dir().join(&name));
        let dir = tempfile::Builder::new().prefix(&name).rand_bytes(0).tempdir().expect("a temporary folder");
        let programs = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder");
        // To measure a release build: REMRUN_BINARY=target/release/remrun, absolute.
        let remrun = std::env::var_os("REMRUN_BINARY").unwrap_or(env!("CARGO_BIN_EXE_remrun").into());
        std::fs::hard_link(remrun, programs.path().join("remrun")).expect("a link");
        let fake = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/fake-gleaner");
        std::os::unix::fs::symlink(fake, programs.path().join("gleaner")).expect("a link");
        std::fs::create_dir(dir.path().join("run")).expect("a folder");
        rustix::fs::chmod(dir.path().join("run"), rustix::fs::Mode::RWXU).expect("chmod");
        Self { dir, programs }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn remrun_path(&self) -> PathBuf {
        self.programs.path().join("remrun")
    }

    /// `remrun` that uses this place.
    pub fn remrun(&self) -> Process {
        let mut process = Process::new(self.remrun_path());
        process.stdin(Stdio::null());
        self.set_environment(&mut process);
        process
    }

    pub fn set_environment(&self, process: &mut Process) {
        process.env("GLEANER_RUNTIME_DIR", self.dir.path().join("run"));
        process.env("FAKE_GLEANER", std::env::current_exe().expect("this program"));
        process.env("FAKE_PLACE", self.dir.path());
    }

    /// A daemon in a thread, that serves each of `callers` callers with `serve`.
    pub fn daemon(&self, callers: usize, serve: impl Fn(usize, Caller) + Send + 'static) -> JoinHandle<()> {
        let listener = UnixListener::bind(self.dir.path().join("run/door")).expect("a socket");
        std::thread::spawn(move || {
            for number in 0..callers {
                let (stream, _) = listener.accept().expect("a caller");
                serve(number, Caller::new(stream));
            }
        })
    }

    /// A daemon that serves one job: its opener, and `tasks` callers, each in a thread of its own, with `serve`.
    pub fn job_daemon(&self, tasks: usize, serve: impl Fn(Caller) + Send + Sync + 'static) -> JoinHandle<()> {
        let listener = UnixListener::bind(self.dir.path().join("run/door")).expect("a socket");
        std::thread::spawn(move || {
            let mut opener = Caller::new(listener.accept().expect("the opener").0);
            assert_eq!(opener.request(), Some(Request::Job { version: door::VERSION }));
            opener.reply(Reply::Job(JOB));
            std::thread::scope(|threads| {
                for _ in 0..tasks {
                    let caller = Caller::new(listener.accept().expect("a caller").0);
                    threads.spawn(|| serve(caller));
                }
            });
            assert_eq!(opener.request(), None, "the job lasts until its tasks have ended");
        })
    }

    /// What the fake `gleaner daemon` shall do, by [`daemon_process`].
    pub fn script(&self, script: &str) {
        std::fs::write(self.dir.path().join("script"), script).expect("a file");
    }

    pub fn starts(&self) -> usize {
        std::fs::read_to_string(self.dir.path().join("starts")).unwrap_or_default().lines().count()
    }
}

/// Not a test: what the fake `gleaner` becomes. Its script is one word for each caller, and it ends after the last.
#[test]
fn daemon_process() {
    let Some(place) = std::env::var_os("FAKE_PLACE").map(PathBuf::from) else { return };
    let mut starts = File::options().append(true).create(true).open(place.join("starts")).expect("a file");
    starts.write_all(b"started\n").expect("written");
    let script = std::fs::read_to_string(place.join("script")).unwrap_or_default();
    let ready = gleaner_client::door::start::take_ready_descriptor(3).expect("a pipe");
    let mut ready = File::from(ready);
    if script.starts_with("complain") {
        ready.write_all(b"no room\nat all\n").expect("written");
        return;
    }
    let socket = place.join("run/door");
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).expect("a socket");
    ready.write_all(door::READY).expect("written");
    drop(ready);
    for word in script.split_whitespace() {
        let (stream, _) = listener.accept().expect("a caller");
        let mut caller = Caller::new(stream);
        match word {
            "done" => {
                caller.run();
                caller.reply(Reply::Done(ExitStatus::Code(7)));
            }
            "die" => drop(caller),
            "outcome" | "nothing" => {
                assert_eq!(caller.request(), Some(Request::Outcome(base::TaskId(7))));
                let status = (word == "outcome").then_some(ExitStatus::Code(9));
                caller.reply(Reply::Outcome(status));
            }
            other => panic!("{other}"),
        }
    }
    let _ = std::fs::remove_file(&socket);
}

/// Reads until `wanted` has come.
pub fn read_until(from: &mut impl Read, wanted: &str) -> String {
    let mut text = Vec::new();
    let mut buffer = [0; 1024];
    while !String::from_utf8_lossy(&text).contains(wanted) {
        match from.read(&mut buffer) {
            Ok(0) => panic!("ended before {wanted:?}: {:?}", String::from_utf8_lossy(&text)),
            Ok(count) => text.extend_from_slice(&buffer[..count]),
            Err(error) => panic!("{error} before {wanted:?}: {:?}", String::from_utf8_lossy(&text)),
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

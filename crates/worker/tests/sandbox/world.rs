//! A sandbox for one test, and how tests talk to it.

use std::fs::File;
use std::io::Read;
use std::time::{Duration, Instant};

use base::{Command, ExitStatus};
use tokio::runtime::Runtime;
use worker::ids::{Ids, Table};
use worker::sandbox::{self, Config, Error, Event, Failure, Guest, Input, Order, Priority, SandboxServer, Sink};

pub const BASE: u32 = 0x6100_0000;
pub const UID: u32 = 1000;
/// No step of a test takes longer, though guests get only the CPU that nobody else on the machine wants.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A sandbox of its own for one test. Its folders are in memory: an upper layer must not lie beneath its lower one.
pub struct World {
    pub server: SandboxServer,
    pub runtime: Runtime,
    pub folder: tempfile::TempDir,
}

impl World {
    /// `None`: not here, and said so.
    pub fn new() -> Option<Self> {
        Self::with_cgroup(None)
    }

    pub fn with_cgroup(cgroup: Option<String>) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: needs root");
            return None;
        }
        let folder = folder_in_memory();
        let config = Config { place: folder.path().join("place"), cgroup };
        let server = sandbox::prepare(&config).expect("a sandbox");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Some(Self { server, runtime, folder })
    }

    pub fn order(&self, argv: &[&str]) -> Order {
        let scratch = tempfile::tempdir_in(self.folder.path()).expect("a folder").keep();
        for name in ["upper", "work", "root"] {
            std::fs::create_dir(scratch.join(name)).expect("a folder");
        }
        Order {
            command: Command {
                ignored_signals: 0,
                blocked_signals: 0,
                nice: 0,
                argv: argv.iter().map(|argument| argument.as_bytes().to_vec()).collect(),
                env: vec![b"PATH=/usr/bin:/bin".to_vec(), b"LC_ALL=C".to_vec()],
                cwd: b"/tmp".to_vec(),
                umask: 0o022,
                uid: UID,
                gid: UID,
                groups: vec![UID],
                limits: Vec::new(),
                hostname: b"client".to_vec(),
                needs: base::Needs::default(),
            },
            lower: "/".into(),
            mounts: Vec::new(),
            scratch,
            stdin: Input::Null,
            stdout: Sink::Null,
            stderr: Sink::Null,
            terminal: None,
            id_base: BASE,
            ids: Default::default(),
            cpus: Vec::new(),
            first_process: 0,
            memory_bytes_max: None,
            pids_max: None,
            priority: Priority::Guest,
            session_nice: 0,
            watch: None,
            keeps_xattrs_back: false,
        }
    }

    pub fn shell(&self, script: &str) -> Order {
        self.order(&["sh", "-c", script])
    }

    pub fn spawn(&self, order: Order) -> Result<Guest, Error> {
        self.runtime.block_on(self.server.spawn(order))
    }

    pub fn event(&self, guest: &mut Guest) -> Event {
        let next = self.runtime.block_on(async { tokio::time::timeout(PATIENCE, guest.event()).await });
        next.expect("an event in time").expect("an event")
    }

    /// Runs to the end: what it printed (both streams), and how it ended.
    pub fn run(&self, mut order: Order) -> (String, ExitStatus) {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
        (order.stdout, order.stderr) = (Sink::Stream(write), Sink::SameAsStdout);
        let reader = std::thread::spawn(move || {
            let mut text = Vec::new();
            File::from(read).read_to_end(&mut text).expect("what it printed");
            String::from_utf8_lossy(&text).into_owned()
        });
        let mut guest = self.spawn(order).expect("a guest");
        let status = loop {
            match self.event(&mut guest) {
                Event::Exited { status, .. } => break status,
                Event::Failed(failure) => panic!("failed: {failure}"),
                // For want of memory the kernel may choose the init.
                Event::Killed => break ExitStatus::Signal(9),
                Event::OthersRemain => guest.control().end_others(),
                _ => {}
            }
        };
        self.runtime.block_on(guest.gone()).expect("gone");
        (reader.join().expect("a reader"), status)
    }

    pub fn output(&self, script: &str) -> String {
        let (text, status) = self.run(self.shell(script));
        assert_eq!(status, ExitStatus::Code(0), "{script}: {text}");
        text.trim_end().to_owned()
    }

    pub fn failure(&self, order: Order) -> Failure {
        let mut guest = self.spawn(order).expect("a guest");
        match self.event(&mut guest) {
            Event::Failed(failure) => failure,
            other => panic!("no failure: {other:?}"),
        }
    }

    pub fn started(&self, order: Order) -> Guest {
        let mut guest = self.spawn(order).expect("a guest");
        let event = self.event(&mut guest);
        assert!(matches!(event, Event::Started { .. }), "{event:?}");
        guest
    }
}

/// The places of an order's ids.
pub fn places(order: &Order) -> Ids {
    let table = Table::new(order.id_base);
    table.place(&order.command).expect("there is room");
    table.places()
}

impl Drop for World {
    fn drop(&mut self) {
        let place = self.folder.path().join("place");
        let _ = rustix::mount::unmount(&place, rustix::mount::UnmountFlags::DETACH);
    }
}

pub fn folder_in_memory() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("gleaner-sandbox-").tempdir_in("/dev/shm").expect("a folder in memory")
}

macro_rules! world {
    () => {
        match $crate::world::World::new() {
            Some(world) => world,
            None => return,
        }
    };
}

/// Waits for `done` for a while.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        let pause = rustix::time::Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
        let _ = rustix::event::poll(&mut [], Some(&pause));
    }
}

pub(crate) use world;

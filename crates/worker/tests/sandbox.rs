//! The sandbox as the worker uses it, with real namespaces and overlays. The machine's own root serves as the lower layer.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base::{Command, ExitStatus, Limit, WindowSize};
use tokio::runtime::Runtime;
use worker::sandbox::{self, Config, Error, Event, Failure, Guest, Input, Order, SandboxServer, Sink};

const BASE: u32 = 0x6100_0000;
const UID: u32 = 1000;
/// No step of a test takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A sandbox of its own for one test. Its folders are in memory: an upper layer must not lie beneath its lower one.
struct World {
    server: SandboxServer,
    runtime: Runtime,
    folder: tempfile::TempDir,
}

impl World {
    /// `None`: not here, and said so.
    fn new() -> Option<Self> {
        Self::with_cgroup(None)
    }

    fn with_cgroup(cgroup: Option<String>) -> Option<Self> {
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

    fn order(&self, argv: &[&str]) -> Order {
        let scratch = tempfile::tempdir_in(self.folder.path()).expect("a folder").keep();
        for name in ["upper", "work", "root"] {
            std::fs::create_dir(scratch.join(name)).expect("a folder");
        }
        Order {
            command: Command {
                argv: argv.iter().map(|argument| argument.as_bytes().to_vec()).collect(),
                env: vec![b"PATH=/usr/bin:/bin".to_vec(), b"LC_ALL=C".to_vec()],
                cwd: b"/tmp".to_vec(),
                umask: 0o022,
                uid: UID,
                gid: UID,
                groups: vec![UID],
                limits: Vec::new(),
                hostname: b"client".to_vec(),
                cpus: 1,
            },
            lower: "/".into(),
            scratch,
            stdin: Input::Null,
            stdout: Sink::Null,
            stderr: Sink::Null,
            terminal: None,
            id_base: BASE,
            cpus: Vec::new(),
            memory_bytes_max: None,
            pids_max: None,
        }
    }

    fn shell(&self, script: &str) -> Order {
        self.order(&["sh", "-c", script])
    }

    fn spawn(&self, order: Order) -> Result<Guest, Error> {
        self.runtime.block_on(self.server.spawn(order))
    }

    fn event(&self, guest: &mut Guest) -> Event {
        let next = self.runtime.block_on(async { tokio::time::timeout(PATIENCE, guest.event()).await });
        next.expect("an event in time").expect("an event")
    }

    /// Runs to the end: what it printed (both streams), and how it ended.
    fn run(&self, mut order: Order) -> (String, ExitStatus) {
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
                _ => {}
            }
        };
        self.runtime.block_on(guest.gone()).expect("gone");
        (reader.join().expect("a reader"), status)
    }

    fn output(&self, script: &str) -> String {
        let (text, status) = self.run(self.shell(script));
        assert_eq!(status, ExitStatus::Code(0), "{script}: {text}");
        text.trim_end().to_owned()
    }

    fn failure(&self, order: Order) -> Failure {
        let mut guest = self.spawn(order).expect("a guest");
        match self.event(&mut guest) {
            Event::Failed(failure) => failure,
            other => panic!("no failure: {other:?}"),
        }
    }

    fn started(&self, order: Order) -> Guest {
        let mut guest = self.spawn(order).expect("a guest");
        let event = self.event(&mut guest);
        assert!(matches!(event, Event::Started { .. }), "{event:?}");
        guest
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let place = self.folder.path().join("place");
        let _ = rustix::mount::unmount(&place, rustix::mount::UnmountFlags::DETACH);
    }
}

fn folder_in_memory() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("gleaner-sandbox-").tempdir_in("/dev/shm").expect("a folder in memory")
}

macro_rules! world {
    () => {
        match World::new() {
            Some(world) => world,
            None => return,
        }
    };
}

/// Waits for `done` for a while.
fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        let pause = rustix::time::Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
        let _ = rustix::event::poll(&mut [], Some(&pause));
    }
}

#[test]
fn ends_as_the_program_ends() {
    let world = world!();
    assert_eq!(world.run(world.order(&["true"])).1, ExitStatus::Code(0));
    assert_eq!(world.run(world.order(&["/bin/false"])).1, ExitStatus::Code(1));
    assert_eq!(world.run(world.shell("exit 77")).1, ExitStatus::Code(77));
    assert_eq!(world.run(world.shell("kill -TERM $$")).1, ExitStatus::Signal(15));
    assert_eq!(world.run(world.shell("sleep 1000 & echo left")).0, "left\n", "what it leaves behind is killed");
    // Rust ignores SIGPIPE; a guest must not inherit that.
    assert_eq!(world.output("yes | head -n1; sh -c 'kill -PIPE $$'; echo $?"), "y\n141");
}

#[test]
fn sees_what_the_client_has() {
    let world = world!();
    assert_eq!(world.output("hostname; pwd; umask"), "client\n/tmp\n0022");
    assert_eq!(world.output("id -u; id -g; id -G"), "1000\n1000\n1000");
    let mut order = world.shell("ulimit -n; ulimit -Hn; nproc; echo \"$0\"");
    order.command.limits = vec![Limit { resource: libc::RLIMIT_NOFILE, soft: 99, hard: u64::MAX }];
    order.cpus = vec![0];
    let (text, _) = world.run(order);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!([lines[0], lines[2], lines[3]], ["99", "1", "sh"]);
    let mut order = world.order(&["id", "-u"]);
    order.command.uid = 4_000_000;
    assert_eq!(world.run(order).0, "65534\n");
}

#[test]
fn files_are_the_clients_users() {
    let world = world!();
    let order = world.shell("echo x > made; mkdir folder; touch folder/in; ls -ln made | cut -d' ' -f3,4");
    let upper = order.scratch.join("upper/tmp");
    assert_eq!(world.run(order).0, "1000 1000\n");
    for name in ["made", "folder", "folder/in"] {
        let found = std::fs::metadata(upper.join(name)).expect("it is in the upper layer");
        assert_eq!((found.uid(), found.gid()), (BASE + UID, BASE + UID), "{name}");
    }
}

#[test]
fn has_no_rights() {
    let world = world!();
    let text = world.output("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status");
    for line in text.lines().filter(|line| line.starts_with("Cap")) {
        assert!(line.ends_with("\t0000000000000000"), "{line}");
    }
    assert!(text.contains("NoNewPrivs:\t1") && text.contains("Seccomp:\t2"), "{text}");

    // CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID: bits 0, 1, 3, 4, 5, 6, 7.
    let mut order = world.shell("grep -E '^Cap(Prm|Eff|Bnd)' /proc/self/status; id -u");
    order.command.uid = 0;
    let (text, _) = world.run(order);
    assert_eq!(text.matches("00000000000000fb\n").count(), 3, "{text}");
    assert!(text.ends_with("\n0\n"));
    let mut order = world.shell(
        "cd /tmp && touch a && chown 5:6 a && chmod 600 a && cat a && stat -c %u:%g a; \
         mount -t tmpfs x /mnt; unshare -U true; unshare -n true; mknod d c 1 3; hostname other; chroot / true; true",
    );
    order.command.uid = 0;
    let (text, _) = world.run(order);
    assert!(text.starts_with("5:6\n"), "{text}");
    for refused in ["mount:", "unshare: unshare failed", "mknod: ", "hostname: ", "chroot: "] {
        assert!(text.contains(refused), "{refused} in {text}");
    }
}

#[test]
fn calls_are_filtered() {
    let world = world!();
    let script = "import ctypes, os, socket, errno
libc = ctypes.CDLL(None, use_errno=True)
def call(*a):
    r = libc.syscall(*a); return 0 if r >= 0 else ctypes.get_errno()
print(call(425, 1, 0), call(323, 0), call(321, 0, 0, 0), call(435, 0, 0), call(9999))
def family(f, t, p=0):
    try: socket.socket(f, t, p).close(); return 'ok'
    except OSError as e: return errno.errorcode[e.errno]
print(family(38, 5), family(40, 1), family(17, 3), family(16, 3, 0), family(16, 3, 9), family(1, 1))
print(call(16, 0, 0x5412, 0))
import threading; t = threading.Thread(target=lambda: print('thread')); t.start(); t.join()
";
    let Some(python) = python() else { return };
    let (text, _) = world.run(world.order(&[&python, "-c", script]));
    let want = "1 1 1 38 38\nEAFNOSUPPORT EAFNOSUPPORT EAFNOSUPPORT ok EAFNOSUPPORT ok\n1\nthread\n";
    if cfg!(target_arch = "x86_64") {
        assert_eq!(text, want);
    }
}

/// A Python that a guest can run.
fn python() -> Option<String> {
    let found = ["/usr/bin/python3", "/usr/local/bin/python3"].iter().find(|path| Path::new(path).exists());
    if found.is_none() {
        println!("SKIPPED: no python3 for everyone here");
    }
    found.map(|path| (*path).to_owned())
}

#[test]
fn network_is_loopback_alone() {
    let world = world!();
    assert_eq!(world.output("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '"), "lo");
    // The kernel's table of local addresses names 127.0.0.1 once the interface is up.
    assert!(world.output("cat /proc/net/fib_trie").contains("127.0.0.1"));
    if let Some(python) = python() {
        let script = "import socket; s = socket.socket(); s.bind(('127.0.0.1', 7777)); s.listen()
c = socket.create_connection(('127.0.0.1', 7777)); a, _ = s.accept(); c.send(b'hi'); print(a.recv(2)); a.close()";
        for _ in 0..2 {
            let (text, _) = world.run(world.order(&[&python, "-c", script]));
            assert_eq!(text, "b'hi'\n", "also at once after another task closed the port");
        }
    }
}

#[test]
fn nothing_of_the_worker_shows() {
    let world = world!();
    let mounts = world.output("cut -d' ' -f2,3 /proc/mounts | sort");
    let want = "/ overlay\n/dev tmpfs\n/dev/pts devpts\n/dev/shm tmpfs\n/proc proc\n/sys sysfs";
    assert_eq!(mounts, want);
    let options = world.output("head -1 /proc/mounts");
    assert!(options.contains("nosuid,nodev"), "{options}");
    assert_eq!(world.output("ls /proc | grep -c '^[0-9]*$'"), "4", "init, sh, ls, grep");
    assert_eq!(world.output("ls -l /proc/self/fd | grep -c pipe:"), "2", "no descriptors but the streams");
    assert!(!world.run(world.shell("ls -l /proc/1/fd /proc/1/root/ && ls /proc/1/cwd/")).1.eq(&ExitStatus::Code(0)));
    let (text, status) =
        world.run(world.shell("echo x > /sys/kernel/x; echo x > /proc/sys/vm/swappiness; touch /dev/x"));
    assert_ne!(status, ExitStatus::Code(0), "{text}");
    assert_eq!(world.output("test -e /dev/gleaner && echo guest"), "guest");
    assert_eq!(world.output("cat /proc/sys/user/max_user_namespaces"), "0");
    assert_eq!(
        world.output("cat /proc/self/oom_score_adj; echo x > /dev/null && head -c4 /dev/zero | wc -c"),
        "1000\n4"
    );
    assert_eq!(world.output("echo in > /dev/shm/x && cat /dev/shm/x && echo err > /dev/stderr"), "in\nerr");
}

#[test]
fn init_cannot_be_touched() {
    let world = world!();
    for uid in [UID, 0] {
        let mut order = world.shell("kill -KILL 1; kill -STOP 1; cat /proc/1/environ; echo alive");
        order.command.uid = uid;
        let (text, status) = world.run(order);
        assert!(text.ends_with("alive\n") && status == ExitStatus::Code(0), "{text}");
        assert!(text.contains("Permission denied"), "{text}");
    }
}

#[test]
fn terminal_is_a_terminal() {
    let world = world!();
    let mut order = world.shell("tty; stty size; echo ready; exec sleep 1000");
    order.terminal = Some(WindowSize { rows: 33, columns: 77 });
    (order.stdin, order.stdout, order.stderr) = (Input::Terminal, Sink::Terminal, Sink::Terminal);
    let mut guest = world.spawn(order).expect("a guest");
    let Event::Started { terminal: Some(terminal) } = world.event(&mut guest) else { panic!("no terminal") };
    let mut terminal = File::from(terminal);
    let mut text = String::new();
    let mut read = |terminal: &mut File, until: &str| {
        while !text.contains(until) {
            let mut some = [0; 256];
            let count = terminal.read(&mut some).expect("what it printed");
            text.push_str(&String::from_utf8_lossy(&some[..count]));
        }
        text.clone()
    };
    assert_eq!(read(&mut terminal, "ready\r\n"), "/dev/pts/0\r\n33 77\r\nready\r\n");
    terminal.write_all(b"\x1a").expect("Ctrl-Z");
    assert!(matches!(world.event(&mut guest), Event::Stopped(20)));
    guest.control().signal(libc::SIGCONT as u8, true);
    assert!(matches!(world.event(&mut guest), Event::Continued));
    terminal.write_all(b"\x03").expect("Ctrl-C");
    let Event::Exited { status, .. } = world.event(&mut guest) else { panic!("no end") };
    assert_eq!(status, ExitStatus::Signal(2));
    let mut rest = [0; 64];
    while terminal.read(&mut rest).is_ok_and(|count| count > 0) {}
}

#[test]
fn hangup_reaches_the_program() {
    let world = world!();
    let mut order = world.order(&["sleep", "1000"]);
    order.terminal = Some(WindowSize::default());
    order.stdin = Input::Terminal;
    let mut guest = world.spawn(order).expect("a guest");
    let Event::Started { terminal } = world.event(&mut guest) else { panic!("no terminal") };
    drop(terminal);
    let Event::Exited { status, .. } = world.event(&mut guest) else { panic!("no end") };
    assert_eq!(status, ExitStatus::Signal(1));
}

#[test]
fn pseudo_terminals_can_be_had_inside() {
    let world = world!();
    let (text, status) = world.run(world.order(&["script", "-qec", "tty", "/dev/null"]));
    assert_eq!((text.trim_end(), status), ("/dev/pts/0", ExitStatus::Code(0)));
}

#[test]
fn stops_and_continues() {
    let world = world!();
    let mut guest = world.started(world.order(&["sleep", "1000"]));
    guest.control().signal(libc::SIGTSTP as u8, true);
    assert!(matches!(world.event(&mut guest), Event::Stopped(20)));
    guest.control().signal(libc::SIGCONT as u8, true);
    assert!(matches!(world.event(&mut guest), Event::Continued));
    guest.control().signal(libc::SIGTERM as u8, true);
    let Event::Exited { status, .. } = world.event(&mut guest) else { panic!("no end") };
    assert_eq!(status, ExitStatus::Signal(15));
    assert!(matches!(world.runtime.block_on(guest.event()), Err(Error::Ended)));
}

#[test]
fn exec_failures_are_told() {
    let world = world!();
    let failure = world.failure(world.order(&["no-such-program"]));
    assert_eq!((failure.step.as_str(), failure.shell_code()), (sandbox::STEP_EXECUTE, 127));
    let failure = world.failure(world.order(&["/etc/passwd"]));
    assert_eq!((failure.errno, failure.shell_code()), (libc::EACCES, 126));
    let failure = world.failure(world.order(&[""]));
    assert_eq!(failure.errno, libc::ENOENT);
    let mut order = world.order(&["true"]);
    order.command.cwd = b"/no/such/folder".to_vec();
    assert_eq!(world.failure(order).step, sandbox::STEP_DIRECTORY);
    let mut order = world.order(&["true"]);
    order.stdin = Input::File { path: b"/no/such/file".to_vec(), offset: 0 };
    assert_eq!(world.failure(order).errno, libc::ENOENT);
    let mut order = world.order(&["true"]);
    order.lower = "/no/such/lane".into();
    assert_eq!(world.failure(order).step, "overlay");
    // A script without a first line is the shell's.
    assert_eq!(world.output("printf 'echo script $1' > s && chmod +x s && exec env ./s one"), "script one");
    let mut order = world.order(&["./s", "two"]);
    std::fs::create_dir(order.scratch.join("upper/tmp")).expect("a folder");
    let script = order.scratch.join("upper/tmp/s");
    std::fs::write(&script, "echo script $1").expect("a script");
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("its mode");
    order.command.umask = 0o077;
    assert_eq!(world.run(order).0, "script two\n");
}

#[test]
fn file_input_starts_and_ends_at_an_offset() {
    let world = world!();
    let mut order = world.shell("read line; echo $line");
    std::fs::create_dir(order.scratch.join("upper/tmp")).expect("a folder");
    std::fs::write(order.scratch.join("upper/tmp/in"), "one\ntwo\nthree\n").expect("a file");
    order.stdin = Input::File { path: b"/tmp/in".to_vec(), offset: 4 };
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
    order.stdout = Sink::Stream(write);
    let mut guest = world.spawn(order).expect("a guest");
    assert!(matches!(world.event(&mut guest), Event::Started { terminal: None }));
    let Event::Exited { stdin_offset, usage, .. } = world.event(&mut guest) else { panic!("no end") };
    assert_eq!(stdin_offset, Some(8), "sh reads byte by byte, or seeks back");
    assert!(usage.max_rss_kib > 0);
    let mut text = String::new();
    File::from(read).read_to_string(&mut text).expect("what it printed");
    assert_eq!(text, "two\n");
}

#[test]
fn large_environments_pass() {
    let world = world!();
    let mut order = world.shell("echo ${#A}");
    order.command.env.push([b"A=".to_vec(), vec![b'x'; 100_000]].concat());
    assert_eq!(world.run(order).0, "100000\n");
}

/// Processes, anywhere on this machine, of this client.
fn processes_of(base: u32) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let owned = |process: &i32| {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        if status.contains("\nState:\tZ") {
            return false;
        }
        let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next()?.parse().ok());
        uid.is_some_and(|uid: u32| (base..base + 65_536).contains(&uid))
    };
    numbers.filter(owned).collect()
}

#[test]
fn kill_leaves_nothing() {
    let world = world!();
    let base = BASE + 65_536;
    let mut order = world.shell("sleep 1000 & setsid sleep 1000 & (trap '' TERM; sleep 1000) & wait");
    order.id_base = base;
    let scratch: PathBuf = order.scratch.clone();
    let mut guest = world.started(order);
    eventually("all run", || processes_of(base).len() >= 5);
    guest.control().kill();
    let Event::Exited { status, .. } = world.event(&mut guest) else { panic!("no end") };
    assert_eq!(status, ExitStatus::Signal(9));
    assert_eq!(processes_of(base), []);
    world.runtime.block_on(guest.gone()).expect("gone");
    std::fs::remove_dir_all(scratch).expect("nothing is mounted there");

    let mut order = world.shell("sleep 1000");
    order.id_base = base;
    drop(world.started(order));
    eventually("a dropped guest is gone", || processes_of(base).is_empty());
}

#[test]
fn guests_die_with_the_worker() {
    let base = BASE + 2 * 65_536;
    let (read, write) = rustix::pipe::pipe().expect("a pipe");
    // SAFETY: the child uses memory and threads of its own making only, as the C library allows after a fork.
    let worker = unsafe { libc::fork() };
    if worker == 0 {
        play_worker(base, write);
    }
    drop(write);
    let mut told = [0; 256];
    let count = rustix::io::read(&read, &mut told).expect("its word");
    if count == 0 {
        println!("SKIPPED: needs root");
        return;
    }
    let folder = PathBuf::from(String::from_utf8_lossy(&told[..count]).into_owned());
    assert!(!processes_of(base).is_empty());
    // SAFETY: this is our child.
    unsafe {
        libc::kill(worker, libc::SIGKILL);
        libc::waitpid(worker, std::ptr::null_mut(), 0);
    }
    eventually("all guests are gone", || processes_of(base).is_empty());
    std::fs::remove_dir_all(folder).expect("nothing is mounted there");
}

/// Starts a guest, says in which folder, and waits to be killed.
fn play_worker(base: u32, tell: OwnedFd) -> ! {
    if let Some(world) = World::new() {
        let mut order = world.shell("sleep 1000 & sleep 1000");
        order.id_base = base;
        let guest = world.started(order);
        eventually("both run", || processes_of(base).len() >= 3);
        let _ = rustix::io::write(&tell, world.folder.path().as_os_str().as_encoded_bytes());
        world.runtime.block_on(tokio::time::sleep(Duration::from_secs(60)));
        drop(guest);
    }
    // SAFETY: a forked child must not return into the test harness.
    unsafe { libc::_exit(0) }
}

#[test]
fn worker_learns_of_the_zygotes_death() {
    let world = world!();
    let base = BASE + 3 * 65_536;
    let mut order = world.shell("sleep 1000");
    order.id_base = base;
    let mut guest = world.started(order);
    let [init] = processes_of(base)[..1] else { panic!("no process") };
    let status = std::fs::read_to_string(format!("/proc/{init}/status")).expect("its status");
    let parent = |status: &str| -> i32 {
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:\t"));
        line.expect("a parent").parse().expect("a number")
    };
    let zygote = parent(&status);
    assert_ne!(zygote, std::process::id() as i32);
    // SAFETY: this is the process that our sandbox forked.
    unsafe { libc::kill(zygote, libc::SIGKILL) };
    let Event::Exited { status, .. } = world.event(&mut guest) else { panic!("no end") };
    assert_eq!(status, ExitStatus::Signal(9));
    let ended = async { tokio::time::timeout(PATIENCE, world.server.ended()).await };
    world.runtime.block_on(ended).expect("in time").expect("an end");
    assert!(matches!(world.spawn(world.shell("true")), Err(Error::ZygoteGone)));
    eventually("all guests are gone", || processes_of(base).is_empty());
}

#[test]
fn clients_roots_cannot_lead_astray() {
    let world = world!();
    let tree = world.folder.path().join("tree");
    std::fs::create_dir(&tree).expect("a folder");
    std::os::unix::fs::symlink("/etc", tree.join("proc")).expect("a link");
    let mut order = world.order(&["/true"]);
    order.lower = tree;
    let failure = world.failure(order);
    assert_eq!((failure.step.as_str(), failure.errno), ("/proc", libc::ENOTDIR));
}

#[test]
fn groups_hold_limits() {
    let name = format!("gleaner-sandbox-{}", std::process::id());
    let Some(world) = World::with_cgroup(Some(name.clone())) else { return };
    let limits = world.server.limits();
    if !(limits.memory && limits.pids) {
        println!("SKIPPED: no control groups here: {limits:?}");
        return;
    }
    let mut order = world.shell("for i in 1 2 3 4 5 6 7 8; do sleep 1 & done; true");
    order.pids_max = Some(5);
    assert!(world.run(order).0.contains("fork"), "too many processes");
    let mut order = world.order(&["sh", "-c", "head -c 200000000 /dev/zero | tail -c 200000000 | wc -c; exit 3"]);
    order.memory_bytes_max = Some(64 << 20);
    assert_ne!(world.run(order).0, "200000000\n", "tail holds all of it in memory");
    assert_eq!(world.run(world.order(&["true"])).1, ExitStatus::Code(0), "the next task in the same group");
    let folders =
        ["cpu", "memory", "pids", "unified", ""].map(|kind| Path::new("/sys/fs/cgroup").join(kind).join(&name));
    drop(world);
    eventually("groups are removed", || folders.iter().all(|folder| !folder.exists()));
}

/// Without root: a user with subordinate ids. The test plays that user in a child process, whose view of the two files
/// that grant the ids is its own.
#[test]
fn works_without_root() {
    if !rustix::process::geteuid().is_root() || !Path::new("/usr/bin/newuidmap").exists() {
        println!("SKIPPED: needs root to become another user, and newuidmap (package uidmap)");
        return;
    }
    let (read, write) = rustix::pipe::pipe().expect("a pipe");
    // The machine's root is mounted here in the child's view alone; removed by the parent, to whom it is empty: nothing
    // that the child removes recursively may have it beneath.
    let lower = tempfile::Builder::new().prefix("gleaner-lower-").tempdir_in("/dev/shm").expect("a folder").keep();
    // SAFETY: the child uses memory and threads of its own making only, as the C library allows after a fork.
    let worker = unsafe { libc::fork() };
    if worker == 0 {
        let told =
            std::panic::catch_unwind(|| play_unprivileged_worker(&lower)).unwrap_or_else(|_| "it panicked".into());
        let _ = rustix::io::write(&write, told.as_bytes());
        // SAFETY: a forked child must not return into the test harness.
        unsafe { libc::_exit(0) }
    }
    drop(write);
    let mut told = String::new();
    File::from(read).read_to_string(&mut told).expect("what it says");
    // SAFETY: this is our child.
    unsafe { libc::waitpid(worker, std::ptr::null_mut(), 0) };
    std::fs::remove_dir(&lower).expect("an empty folder");
    if told.starts_with("SKIPPED") {
        return println!("{told}");
    }
    assert_eq!(told, "1000\nclient\n0000000000000000\nnull\n2001:2001 1001:1001");
}

fn play_unprivileged_worker(lower: &Path) -> String {
    const DAEMON: u32 = 1;
    let folder = folder_in_memory();
    let ids = folder.path().join("ids");
    std::fs::write(&ids, "daemon:200000:65536\n").expect("a file");
    // SAFETY: descriptors are not unshared.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.expect("a mount namespace");
    let private = rustix::mount::MountPropagationFlags::REC | rustix::mount::MountPropagationFlags::PRIVATE;
    rustix::mount::mount_change("/", private).expect("private mounts");
    for file in ["/etc/subuid", "/etc/subgid"] {
        if rustix::mount::mount_bind(&ids, file).is_err() {
            return format!("SKIPPED: there is no {file}");
        }
    }
    std::os::unix::fs::chown(folder.path(), Some(DAEMON), Some(DAEMON)).expect("its folder");
    // Without what is mounted beneath: a layer with mounts that the user may not undo is refused.
    rustix::mount::mount_bind("/", lower).expect("a lower layer");
    let (user, group) = (rustix::fs::Uid::from_raw(DAEMON), rustix::fs::Gid::from_raw(DAEMON));
    rustix::thread::set_thread_groups(&[]).expect("no groups");
    rustix::thread::set_thread_res_gid(group, group, group).expect("another group");
    rustix::thread::set_thread_res_uid(user, user, user).expect("another user");
    // A program that the user had started would be.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable).expect("dumpable");
    let config = Config { place: folder.path().join("place"), cgroup: None };
    let server = match sandbox::prepare(&config) {
        Err(error @ Error::NoUserNamespaces(_)) => return format!("SKIPPED: {error}"),
        other => other.expect("a sandbox"),
    };
    assert!(!server.privileged());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let world = World { server, runtime, folder };
    let mut order = world
        .shell("id -u; hostname; grep CapEff /proc/self/status | cut -f2; echo x > /dev/null && echo null; touch made");
    order.id_base = world.server.id_base();
    order.lower = lower.into();
    // The machine's own folder belongs to an id that the user does not have, so it could not be copied up.
    let tmp = order.scratch.join("upper/tmp");
    std::fs::create_dir(&tmp).expect("a folder");
    std::fs::set_permissions(&tmp, std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("its mode");
    let made = order.scratch.join("upper/tmp/made");
    let (mut text, _) = world.run(order);
    // In the worker's own namespace the file is the guest's; outside it is of a subordinate id.
    let found = std::fs::metadata(made).expect("what it made");
    let again = format!("{}:{}", found.uid() + 1000, found.gid() + 1000);
    text.push_str(&format!("{again} {}:{}", found.uid(), found.gid()));
    text
}

/// Not a check but a measurement: `cargo test --release -p worker --test sandbox -- --nocapture launches`.
#[test]
fn launches_are_quick() {
    let name = format!("gleaner-launch-{}", std::process::id());
    for cgroup in [None, Some(name)] {
        let grouped = cgroup.is_some();
        let Some(world) = World::with_cgroup(cgroup) else { return };
        let (mut all, mut gone) = (Vec::new(), Vec::new());
        for _ in 0..200 {
            let order = world.order(&["/bin/true"]);
            let start = Instant::now();
            let mut guest = world.spawn(order).expect("a guest");
            while !matches!(world.event(&mut guest), Event::Exited { .. }) {}
            all.push(start.elapsed().as_micros());
            world.runtime.block_on(guest.gone()).expect("gone");
            gone.push(start.elapsed().as_micros());
        }
        all.sort_unstable();
        gone.sort_unstable();
        println!(
            "200 launches, groups {grouped}: to exit p50 {} us, p99 {} us; to gone p50 {} us",
            all[100], all[198], gone[100]
        );
        assert!(all[100] < 100_000, "a launch takes {} us", all[100]);
    }
}

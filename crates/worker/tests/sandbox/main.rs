//! The sandbox as the worker uses it, with real namespaces and overlays. The machine's own root serves as the lower layer.

mod escapes;
mod lives;
mod world;

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use base::watch::{Format, Sign};
use base::{ExitStatus, Limit, Watch, WindowSize};
use worker::sandbox::{self, Error, Event, Input, Priority, Sink};

use world::{BASE, UID, world};

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
fn guests_come_after_all_others_and_the_owners_own_tasks_do_not() {
    let world = world!();
    const SCHED_OTHER: &str = "0";
    const SCHED_IDLE: &str = "5";
    for (priority, policy, ioclass) in [(Priority::Guest, SCHED_IDLE, "idle"), (Priority::Owner, SCHED_OTHER, "none")] {
        let mut order = world.shell("cut -d' ' -f41 /proc/self/stat; ionice");
        order.priority = priority;
        let (said, _) = world.run(order);
        assert!(said.starts_with(policy) && said.contains(ioclass), "{priority:?}: {said}");
    }
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
fn ids_of_a_directory_are_the_clients() {
    let world = world!();
    let mut order = world.shell(
        "id -u; id -g; id -G; touch made; chgrp 70002 made; stat -c %u:%g made; chgrp 70003 made 2> /dev/null || echo no",
    );
    let command = &mut order.command;
    (command.uid, command.gid, command.groups) = (1_200_345_678, 70_001, vec![70_001, 70_002]);
    order.ids = world::places(&order);
    let upper = order.scratch.join("upper/tmp");
    let lines = ["1200345678", "70001", "70001 70002", "1200345678:70002", "no", ""];
    assert_eq!(world.run(order).0, lines.join("\n"));
    let found = std::fs::metadata(upper.join("made")).expect("it is in the upper layer");
    let first = BASE + worker::ids::WIDE_MIN;
    assert_eq!((found.uid(), found.gid()), (first, first + 1));
    // As many as there can be, of numbers as long as there are.
    let mut order = world.shell("id -u; id -G | wc -w");
    order.command.uid = u32::MAX - 1;
    order.command.groups = (0..159).map(|number| u32::MAX - 1 - number).collect();
    order.command.gid = u32::MAX - 500;
    order.ids = world::places(&order);
    assert_eq!(world.run(order).0, "4294967294\n160\n");
}

/// Why a watched task with this script is called off; `None` if it ends.
fn called_off(world: &world::World, script: &str, uid: u32, watch: Watch) -> Option<String> {
    let mut order = world.shell(script);
    (order.watch, order.command.uid) = (Some(watch), uid);
    ended(world, order, script)
}

fn ended(world: &world::World, order: worker::sandbox::Order, script: &str) -> Option<String> {
    let mut guest = world.spawn(order).expect("a guest");
    loop {
        match world.event(&mut guest) {
            Event::Names(owner) => {
                guest.control().kill();
                while !matches!(world.event(&mut guest), Event::Killed) {}
                return Some(format!("names {owner}"));
            }
            Event::Unable(why) => {
                guest.control().kill();
                // It may do more of it until it is dead.
                while !matches!(world.event(&mut guest), Event::Killed | Event::Exited { .. }) {}
                return Some(why);
            }
            Event::Exited { status, .. } => {
                assert_eq!(status, ExitStatus::Code(0), "{script}");
                return None;
            }
            Event::OthersRemain => guest.control().end_others(),
            _ => {}
        }
    }
}

#[test]
fn a_watched_task_is_called_off_where_only_its_client_can_do_what_it_does() {
    let world = world!();
    let python = |code: &str| format!("python3 -c '{code}'");
    let connect = |to: &str| python(&format!("import socket; s = socket.socket(); s.settimeout(1); s.connect({to})"));
    let own = "import socket as s; l = s.create_server((\"127.0.0.1\", 0)); s.create_connection(l.getsockname())";
    for (script, uid, want) in [
        ("true".to_owned(), 0, None),
        ("unshare -r true".to_owned(), UID, Some("it makes namespaces")),
        ("mount -t tmpfs x /mnt || true".to_owned(), 0, Some("the system call mount")),
        // Who may not do it at home either is told so.
        (python("import ctypes; assert ctypes.CDLL(None).mount(b\"x\", b\"/\", b\"tmpfs\", 0, 0)"), UID, None),
        ("mknod d c 1 3".to_owned(), 0, Some("a device file")),
        ("touch f; chown 5:7 f; chown 65534 f; chown -h :100 f".to_owned(), 0, None),
        ("touch f; chown 70000 f".to_owned(), 0, Some("names the user 70000")),
        ("touch f; chgrp 70001 f".to_owned(), UID, Some("names the group 70001")),
        (python("import os; os.setresuid(5, 70000, -1)"), 0, Some("names the user 70000")),
        (python("import os; os.setgroups([5, 70002])"), 0, Some("names the group 70002")),
        (python("import os; os.setgroups([5, 65534]); os.setgid(5)"), 0, None),
        ("mknod f p".to_owned(), UID, None),
        ("cd $(mktemp -d); fallocate -l 100M f; stat -c %s f | grep -q 104857600".to_owned(), UID, None),
        ("cd $(mktemp -d); fallocate -l 1000000G f || true".to_owned(), UID, Some("it has 1024000000 MiB kept free")),
        (connect("(\"192.0.2.1\", 80)"), UID, Some("it connects to 192.0.2.1:80")),
        (
            python("import socket; socket.socket(2, 2).sendto(b\"x\", (\"192.0.2.1\", 53))"),
            UID,
            Some("looks up a name"),
        ),
        (python(own), UID, None),
        (format!("{} || true", connect("(\"127.0.0.1\", 9)")), UID, None),
    ] {
        let why = called_off(&world, &script, uid, Watch::default());
        match want {
            Some(want) => assert!(why.as_ref().is_some_and(|why| why.contains(want)), "{script}: {why:?}"),
            None => assert_eq!(why, None, "{script}"),
        }
    }
    let watch = Watch { ports: vec![9], ..Watch::default() };
    let why = called_off(&world, &connect("(\"127.0.0.1\", 9)"), UID, watch);
    assert_eq!(why.as_deref(), Some("it talks to a service of this machine, at port 9"));
    let datagram = |code: &str| python(&format!("import socket; s = socket.socket(2, 2); {code}"));
    let own =
        "r = socket.socket(2, 2); r.bind((\"127.0.0.1\", 18125)); s.sendmsg([b\"x\"], [], 0, (\"127.0.0.1\", 18125))";
    for (code, want) in [
        ("s.sendto(b\"x\", (\"127.0.0.1\", 18125))", true),
        ("s.sendmsg([b\"x\"], [], 0, (\"127.0.0.1\", 18125))", true),
        ("s.sendmsg([b\"x\"], [], 0, (\"127.0.0.1\", 18126))", false),
        ("a, b = socket.socketpair(); a.sendmsg([b\"x\"]); assert b.recv(9) == b\"x\"", false),
        ("a, b = socket.socketpair(); socket.send_fds(a, [b\"x\"], [0])", false),
        (own, false),
    ] {
        let watch = Watch { ports: vec![18125], ..Watch::default() };
        let why = called_off(&world, &datagram(code), UID, watch);
        assert_eq!(why.is_some_and(|why| why.contains("service of this machine, at port 18125")), want, "{code}");
    }
}

#[test]
fn a_watched_task_is_called_off_for_a_format_of_its_client() {
    let world = world!();
    let sign = Sign::Magic { offset: 1, magic: b"FOO".to_vec(), mask: Vec::new() };
    let watch = Watch { formats: vec![Format { name: b"foo".to_vec(), sign }], ..Watch::default() };
    let make = "cd $(mktemp -d); printf '\\177FOO true' > p; chmod +x p;";
    for (script, want) in [("./p", true), ("cat p", false), ("printf '#!%s/p\\n' $PWD > s; chmod +x s; ./s", true)] {
        let why = called_off(&world, &format!("{make} {script}"), UID, watch.clone());
        assert_eq!(why.is_some_and(|why| why.contains("of the kind foo")), want, "{script}");
    }
}

#[test]
fn a_task_is_called_off_that_asks_for_an_attribute_which_stayed_at_its_client() {
    let world = world!();
    let value =
        base::Xattr::kept_back(Vec::new()).value.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    let make = "cd $(mktemp -d); echo x > f; ln -s f l";
    for (script, want) in [
        ("test \"$(getfattr f)\"; getfattr -d other", false),
        ("setfattr -n user.kept -v new f; getfattr -d f", false),
        ("chmod 0 f; getfattr -d f", false),
        ("getfattr -n user.kept f || true", true),
        ("getfattr -d l", true),
        ("setfattr -x user.kept f", true),
        ("python3 -c 'import os; os.getxattr(os.open(\"f\", 0), \"user.kept\")'", true),
        ("python3 -c 'import os; os.getxattr(\"l\", \"user.kept\", follow_symlinks=False)' || true", false),
    ] {
        let mut order = world.shell(&format!(
            "{make}; setfattr -n user.kept -v 0x{value} f; echo y > other; setfattr -n user.own -v 1 other; {script}"
        ));
        order.keeps_xattrs_back = true;
        let why = ended(&world, order, script);
        assert_eq!(why.is_some_and(|why| why.contains("the attribute user.kept")), want, "{script}");
    }
}

#[test]
fn a_watched_task_is_called_off_where_it_uses_what_is_open_at_its_client() {
    let world = world!();
    let python = |code: &str| format!("python3 -c 'import os, select, fcntl; {code}'");
    for (script, want) in [
        ("true", false),
        ("test -e /proc/self/fd/5", false),
        ("echo x >&5", true),
        ("read x <&5", true),
        ("(sleep 0; echo x >&5) & wait", true),
        ("echo x > /dev/fd/5", true),
        ("cat /proc/self/fd/7", true),
        ("cat <&6", true),
        ("exec 5>&-; ! (echo x >&5) 2>/dev/null", false),
        ("exec 5> own; echo x >&5; test $(cat own) = x", false),
        ("{ echo x; } 5> own; echo y", false),
        ("{ echo x >&5; } 5> own; cat own | grep -q x", false),
        ("exec 3< /etc/passwd 4<&3 8<&4; cat <&8 | grep -q root", false),
        ("seq 1 9 | sort -r | head -n 1 | grep -q 9", false),
        (&python("os.set_inheritable(5, False); os.close(6); os.dup2(0, 7)"), false),
        (&python("os.fstat(5)"), true),
        (&python("os.lseek(7, 0, 1)"), true),
        (&python("os.isatty(6)"), true),
        (&python("os.dup(5)"), true),
        (&python("os.write(fcntl.fcntl(5, fcntl.F_DUPFD, 10), b\"x\")"), true),
        (&python("os.read(fcntl.fcntl(5, fcntl.F_DUPFD, 10), 9)"), true),
        (&python("p = select.poll(); p.register(0, 1); p.poll(1)"), false),
        (&python("p = select.poll(); p.register(7, 1); p.poll(1)"), true),
        (&python("select.select([0], [], [], 0)"), false),
        (&python("select.select([0, 7], [], [], 0)"), true),
        (&python("os.close(5); select.select([os.open(\"/dev/null\", 0)], [], [], 0); os.fstat(3)"), false),
        (&python("import mmap; mmap.mmap(5, 1)"), true),
        (&python("os.open(\"x\", 0, dir_fd=6)"), true),
        // Files of its own at those numbers, by threads too.
        (
            &python(
                "import threading; os.dup2(os.open(\"/etc/passwd\", 0), 5); t = threading.Thread(target=lambda: os.read(5, 1)); t.start(); t.join()",
            ),
            false,
        ),
    ] {
        let watch = Watch { descriptors: vec![5, 6, 7], locks: true, lock_files: true, ..Watch::default() };
        let why = called_off(&world, &format!("cd $(mktemp -d); {script}"), UID, watch);
        let is_right = why.as_ref().map(|why| base::watch::used_descriptor(why).is_some());
        assert_eq!(is_right, want.then_some(true), "{script}: {why:?}");
    }
}

#[test]
fn descriptors_that_stand_where_init_has_its_own_do_no_harm() {
    let world = world!();
    let watch = Watch { descriptors: (3..19).collect(), ..Watch::default() };
    let why = called_off(&world, "seq 1 1000 | sort -rn | head -n 1 | grep -q 1000", UID, watch.clone());
    assert_eq!(why, None);
    let why = called_off(&world, "echo x >&9", 0, watch.clone());
    assert_eq!(why, Some(base::watch::uses_descriptor(9)));
    let mut order = world.shell("ls /proc/self/fd | wc -l; echo said");
    order.watch = Some(watch);
    assert_eq!(world.run(order).0, "20\nsaid\n");
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

/// The kernel charges to the worker's own user what its guests take of these.
#[test]
fn what_the_worker_s_user_may_have_is_not_used_up() {
    let world = world!();
    let script = "import ctypes
libc = ctypes.CDLL(None)
instances = 0
while libc.inotify_init1(0o2000000) >= 0: instances += 1
timers, id = 0, ctypes.c_void_p()
while libc.timer_create(1, None, ctypes.byref(id)) == 0: timers += 1
print(instances, timers)
";
    let Some(python) = python() else { return };
    let (text, _) = world.run(world.order(&[&python, "-c", script]));
    let taken: Vec<u64> = text.split_whitespace().map(|number| number.parse().expect("a number")).collect();
    let all = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").expect("a number");
    let pending = rustix::process::getrlimit(rustix::process::Resource::Sigpending).current.unwrap_or(u64::MAX);
    let parts = [all.trim().parse::<u64>().expect("a number") / 8, pending / 8];
    assert!(taken.len() == 2 && taken.iter().all(|taken| *taken > 0), "{text}");
    assert!(taken.iter().zip(parts).all(|(taken, part)| *taken <= part), "{taken:?} of {parts:?}");
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
    let processes = world.output("ls /proc | grep -c '^[0-9]*$'");
    assert!(["3", "4"].contains(&processes.as_str()), "init, sh, ls, perhaps grep: {processes}");
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
    assert!(matches!(world.event(&mut guest), Event::Signalled(18)));
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
    assert!(matches!(world.event(&mut guest), Event::Signalled(20)));
    assert!(matches!(world.event(&mut guest), Event::Stopped(20)));
    guest.control().signal(libc::SIGCONT as u8, true);
    assert!(matches!(world.event(&mut guest), Event::Signalled(18)));
    assert!(matches!(world.event(&mut guest), Event::Continued));
    guest.control().signal(libc::SIGTERM as u8, true);
    assert!(matches!(world.event(&mut guest), Event::Signalled(15)));
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

//! Attacks of a hostile client and of a hostile guest on the sandbox: each must come to nothing, and what a guest can reach
//! is a list that fails on anything new.

use base::watch::{Format, Sign};
use base::{ExitStatus, Mount, TreePath, Watch};
use worker::sandbox::{self, Event, Input, Order, Priority};

use super::world::World;

/// Descriptors of init's that are tried, from the first beyond the standard streams.
const DESCRIPTORS: std::ops::Range<u32> = 3..40;

/// Names of what init itself has: descriptors, roots, executables, namespaces.
fn names_of_what_init_has() -> Vec<String> {
    let mut names = Vec::new();
    for process in ["self", "thread-self", "1", "self/task/1"] {
        for link in ["root", "cwd", "exe", "ns/mnt", "root/..", "cwd/.."] {
            names.push(format!("/proc/{process}/{link}"));
        }
        names.extend(DESCRIPTORS.map(|number| format!("/proc/{process}/fd/{number}")));
    }
    for number in DESCRIPTORS {
        names.push(format!("/dev/fd/{number}"));
        names.push(format!("/proc/self/fd/{number}/.."));
        names.push(format!("/tmp/../proc/self/fd/{number}/../../bin"));
    }
    names
}

/// What [`names_of_what_init_has`] has, and links to some of it that the client's tree holds.
fn with_links(world: &World, name: &str, try_it: impl Fn(&World, Order, &str)) {
    try_it(world, world.order(&["/bin/pwd", "-P"]), name);
    let order = world.order(&["/bin/pwd", "-P"]);
    let folder = order.scratch.join("upper/tmp");
    std::fs::create_dir(&folder).expect("a folder");
    std::os::unix::fs::symlink(name, folder.join("link")).expect("a link");
    try_it(world, order, "/tmp/link");
}

/// Programs are begun in two ways: this has the other one.
fn attended() -> Watch {
    let sign = Sign::Magic { offset: 1, magic: b"FOO".to_vec(), mask: Vec::new() };
    Watch { formats: vec![Format { name: b"foo".to_vec(), sign }], ..Watch::default() }
}

fn must_fail(world: &World, order: Order, step: &str, what: &str) {
    let mut guest = world.spawn(order).expect("a guest");
    match world.event(&mut guest) {
        Event::Failed(failure) => assert_eq!(failure.step, step, "{what}: {failure}"),
        other => panic!("{what} was used as {step}: {other:?}"),
    }
}

#[test]
fn no_working_directory_leads_out() {
    let world = super::world::world!();
    for name in names_of_what_init_has() {
        for watch in [None, Some(attended())] {
            with_links(&world, &name, |world, mut order, name| {
                order.command.cwd = name.as_bytes().to_vec();
                order.watch.clone_from(&watch);
                must_fail(world, order, sandbox::STEP_DIRECTORY, name);
            });
        }
    }
}

#[test]
fn no_standard_input_leads_out() {
    let world = super::world::world!();
    for name in names_of_what_init_has() {
        for name in [name.clone(), format!("{name}/etc/passwd")] {
            with_links(&world, &name, |world, mut order, name| {
                order.stdin = Input::File { path: name.as_bytes().to_vec(), offset: 0 };
                must_fail(world, order, "standard input", name);
            });
        }
    }
}

#[test]
fn no_program_and_no_path_leads_out() {
    let world = super::world::world!();
    for name in names_of_what_init_has() {
        for watch in [None, Some(attended())] {
            with_links(&world, &name, |world, mut order, name| {
                order.command.argv[0] = name.as_bytes().to_vec();
                order.watch.clone_from(&watch);
                must_fail(world, order, sandbox::STEP_EXECUTE, name);
            });
            with_links(&world, &name, |world, mut order, name| {
                order.command.argv = vec![b"pwd".to_vec()];
                order.command.env = vec![format!("PATH={name}/bin:{name}").into_bytes()];
                order.watch.clone_from(&watch);
                must_fail(world, order, sandbox::STEP_EXECUTE, name);
            });
        }
    }
}

/// Puts a program of this name into the folder that the order's program begins in.
fn put(order: &Order, name: &str, bytes: &[u8]) {
    let file = order.scratch.join("upper/tmp").join(name);
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
    std::fs::write(&file, bytes).expect("a file");
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("its mode");
}

#[test]
fn no_interpreter_and_no_loader_leads_out() {
    let world = super::world::world!();
    let names = ["/proc/self/exe", "/proc/self/fd/0", "/proc/thread-self/exe", "/proc/1/exe", "/tmp/link", "./link"];
    let program = std::fs::read("/bin/true").expect("a program");
    let loader = b"/lib64/ld-linux-x86-64.so.2\0";
    let at = program.windows(loader.len()).position(|part| part == loader);
    for watch in [None, Some(attended())] {
        for name in names {
            let attempt = |put_all: &dyn Fn(&Order)| {
                let mut order = world.order(&["/tmp/p"]);
                order.watch.clone_from(&watch);
                put_all(&order);
                std::os::unix::fs::symlink("/proc/self/exe", order.scratch.join("upper/tmp/link")).expect("a link");
                must_fail(&world, order, sandbox::STEP_EXECUTE, name);
            };
            attempt(&|order| put(order, "p", format!("#!{name}\n").as_bytes()));
            attempt(&|order| put(order, "p", format!("#! \t{name} --version").as_bytes()));
            attempt(&|order| {
                put(order, "p", b"#!/tmp/q\n");
                put(order, "q", format!("#!{name}\n").as_bytes());
            });
            let Some(at) = at else { continue };
            let mut changed = program.clone();
            changed[at..at + loader.len()].fill(0);
            changed[at..at + name.len()].copy_from_slice(name.as_bytes());
            attempt(&|order| put(order, "p", &changed));
        }
    }
    let order = world.order(&["/tmp/p"]);
    put(&order, "p", b"#!/tmp/q -x\n");
    put(&order, "q", b"#!/bin/echo run\n");
    assert_eq!(world.run(order).0, "run /tmp/q -x /tmp/p\n", "an interpreter that is inside");
}

#[test]
fn no_mount_leads_out() {
    let world = super::world::world!();
    for name in ["/proc/self/cwd", "/proc/self/fd/5", "/proc/1/root", "/dev/fd", "/proc/self"] {
        let mut order = world.order(&["true"]);
        let at = TreePath::parse(name.as_bytes()).expect("a plain path");
        order.mounts = vec![Mount { at, read_only: false, no_exec: false }];
        must_fail(&world, order, sandbox::STEP_MOUNTS, name);
    }
    // A link in the client's tree is not followed either.
    let tree = world.folder.path().join("tree");
    std::fs::create_dir_all(tree.join("real")).expect("a folder");
    std::os::unix::fs::symlink("/proc/self/cwd", tree.join("link")).expect("a link");
    for name in ["/link", "/link/x", "/real/../link"] {
        let Some(at) = TreePath::parse(name.as_bytes()) else { continue };
        let mut order = world.order(&["true"]);
        order.lower.clone_from(&tree);
        order.mounts = vec![Mount { at, read_only: false, no_exec: false }];
        must_fail(&world, order, sandbox::STEP_MOUNTS, name);
    }
}

/// Prints, one a line, all that a guest can reach beyond its files; the worker's words are made plain.
const REACH: &str = r#"
import os, re
def said(path):
    try: return open(path, 'rb').read()
    except OSError as e: return ('!%d' % e.errno).encode()
def link(path):
    try: return os.readlink(path)
    except OSError as e: return '!%d' % e.errno
for process in sorted((p for p in os.listdir('/proc') if p.isdigit()), key=int):
    name = 'self' if int(process) == os.getpid() else process
    print(name, 'links', *[link('/proc/%s/%s' % (process, what)) for what in ('root', 'cwd', 'exe')])
    print(name, 'command', said('/proc/%s/cmdline' % process).replace(b'\0', b' ').strip().split(b' ')[0].decode())
    print(name, 'environment', said('/proc/%s/environ' % process).replace(b'\0', b' ').strip().decode())
    try: held = sorted(int(fd) for fd in os.listdir('/proc/%s/fd' % process))
    except OSError as e: held = ['!%d' % e.errno]
    # The one that is gone was the folder that was listed.
    links = [re.sub(r'\[.*', '', str(link('/proc/%s/fd/%s' % (process, fd)))) for fd in held]
    print(name, 'descriptors', *[l for l in links if not l.endswith('/fd') and l != '!2'])
for line in open('/proc/self/mountinfo'):
    fields = line.split()
    print('mount', fields[3], fields[4], fields[fields.index('-') + 1], *sorted(re.findall(r'\b(?:lower|upper|work)dir=[^,]*', line)))
print('sockets', *sorted(set(l.split()[-1] for l in open('/proc/net/unix') if '/' in l or '@' in l)))
print('groups', *sorted(set(l.rstrip().split(':', 2)[2] for l in open('/proc/self/cgroup'))))
print('status', *[l.split()[1] for l in open('/proc/self/status') if l.startswith(('NoNewPrivs', 'Seccomp:'))])
"#;

#[test]
fn what_a_guest_can_reach_is_this_and_no_more() {
    let world = super::world::world!();
    let Some(python) = super::python() else { return };
    for (uid, watch) in [(super::UID, None), (0, None), (super::UID, Some(attended()))] {
        let mut order = world.order(&[&python, "-I", "-S", "-c", REACH]);
        (order.command.uid, order.command.gid, order.watch) = (uid, uid, watch);
        let exe = std::fs::canonicalize(&python).expect("its place");
        let (text, status) = world.run(order);
        assert_eq!(status, ExitStatus::Code(0), "{text}");
        let want = format!(
            "1 links !13 !13 !13\n\
             1 command gleaner\n\
             1 environment !13\n\
             1 descriptors !13\n\
             self links / /tmp {}\n\
             self command {python}\n\
             self environment PATH=/usr/bin:/bin LC_ALL=C\n\
             self descriptors /dev/null pipe: pipe:\n\
             mount / / overlay lowerdir=/proc/self/fd/N upperdir=upper workdir=work\n\
             mount / /proc proc\n\
             mount / /sys sysfs\n\
             mount / /dev tmpfs\n\
             mount / /dev/shm tmpfs\n\
             mount / /dev/pts devpts\n\
             sockets\n\
             groups /\n\
             status 1 2\n",
            exe.display()
        );
        let text: Vec<String> = text.lines().map(without_number).collect();
        assert_eq!(text.join("\n") + "\n", want, "uid {uid}");
    }
}

/// A line with the numbers of init's descriptors left out, which differ. The lowest layer is an empty folder, where the kernel allows that.
fn without_number(line: &str) -> String {
    let mut parts = line.split("/proc/self/fd/");
    let first = parts.next().unwrap_or_default().to_owned();
    let without = |part: &str| part.trim_start_matches(|digit: char| digit.is_ascii_digit()).to_owned();
    let line = parts.fold(first, |line, part| format!("{line}/proc/self/fd/N{}", without(part)));
    line.replace("/proc/self/fd/N:/proc/self/fd/N", "/proc/self/fd/N")
}

/// Prints what a root guest managed to do to what is not its own; see `docs/decisions/0007-rights-of-root-inside.md`.
const ROOT: &str = r#"
import os, signal
def tries(what, call):
    try: call(); print(what)
    except OSError: pass
def write(path):
    with open(path, 'w') as file: file.write('0')
# The lower layer's files are the worker's, whose ids are not mapped here.
tries('reads what the worker closed', lambda: open('/etc/shadow').read())
tries('opens what the worker closed', lambda: open('/etc/shadow', 'r+'))
tries('owns what is the worker\'s', lambda: os.chown('/etc/passwd', 0, 0))
tries('opens up what is the worker\'s', lambda: os.chmod('/etc/shadow', 0o666))
tries('gives away to an id beyond', lambda: (open('/tmp/own', 'w'), os.chown('/tmp/own', 70000, 70000)))
tries('becomes an id beyond', lambda: os.setresuid(70000, 70000, 70000))
tries('joins a group beyond', lambda: os.setgroups([70000]))
for path in ('/proc/sys/kernel/core_pattern', '/proc/sys/vm/drop_caches', '/proc/sys/user/max_user_namespaces',
             '/proc/sysrq-trigger', '/proc/1/oom_score_adj', '/sys/power/state', '/sys/kernel/uevent_helper'):
    tries('writes ' + path, lambda: write(path))
    tries('takes ' + path, lambda: os.chown(path, 0, 0))
for path in ('/proc/1/mem', '/proc/1/environ', '/proc/1/maps', '/proc/kcore', '/dev/mem', '/dev/kmsg'):
    tries('reads ' + path, lambda: open(path, 'rb').read(1))
# Set-id bits are kept, and mean nothing.
os.chmod('/tmp/own', 0o6755)
pid = os.fork()
if pid == 0: signal.pause()
os.kill(pid, signal.SIGKILL)
print(os.waitpid(pid, 0)[1])
os.setresgid(5, 5, 5); os.setresuid(5, 5, 5)
print(os.getresuid(), [line.split()[1] for line in open('/proc/self/status') if line.startswith('CapEff')])
tries('comes back', lambda: os.setresuid(0, 0, 0))
"#;

/// Does what root does every day, each by one of its rights; see `docs/decisions/0007-rights-of-root-inside.md`.
const USES: &str = r#"
import os, signal
def tries(what, call):
    try: call(); print(what)
    except OSError as e: print(what, 'failed:', e)
open('f', 'w').write('x')
tries('CHOWN', lambda: os.chown('f', 5, 6))
tries('FOWNER', lambda: os.chmod('f', 0))
tries('DAC_OVERRIDE', lambda: open('f').read())
os.chmod('f', 0o2755)
print('FSETID' if os.stat('f').st_mode & 0o2000 else 'the set-group-id bit is gone')
def becomes():
    os.setgroups([7]); os.setresgid(5, 5, 5)
child = os.fork()
if child == 0:
    tries('SETGID', becomes)
    tries('SETUID', lambda: os.setresuid(5, 5, 5))
    os.write(1, b'')
    signal.pause()
import time
while open('/proc/%d/status' % child).read().split('Uid:')[1].split()[0] != '5': time.sleep(0.01)
tries('KILL', lambda: os.kill(child, signal.SIGKILL))
os.waitpid(child, 0)
"#;

#[test]
fn root_needs_each_of_its_rights() {
    let world = super::world::world!();
    let Some(python) = super::python() else { return };
    let mut order = world.order(&[&python, "-I", "-S", "-u", "-c", USES]);
    (order.command.uid, order.command.gid) = (0, 0);
    let (text, status) = world.run(order);
    let want = ["CHOWN", "FOWNER", "DAC_OVERRIDE", "FSETID", "SETGID", "SETUID", "KILL"];
    assert_eq!((text.lines().collect::<Vec<_>>(), status), (want.to_vec(), ExitStatus::Code(0)));
}

#[test]
fn the_rights_of_a_guest_are_this_list() {
    const NAMES: [&str; 9] =
        ["chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap"];
    let world = super::world::world!();
    for priority in [Priority::Guest, Priority::Owner] {
        for (uid, want) in [(super::UID, ""), (0, "chown dac_override fowner fsetid kill setgid setuid")] {
            let mut order = world.shell("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status");
            (order.command.uid, order.command.gid, order.priority) = (uid, uid, priority);
            let (text, _) = world.run(order);
            for line in text.lines() {
                let (name, value) = line.split_once(":\t").expect("a name and a value");
                let want = match name {
                    "NoNewPrivs" | "Seccomp" => {
                        assert_eq!(value, if name == "Seccomp" { "2" } else { "1" });
                        continue;
                    }
                    "CapInh" | "CapAmb" => "",
                    _ => want,
                };
                let bits = u64::from_str_radix(value, 16).expect("digits");
                let named: Vec<String> = (0..64)
                    .filter(|bit| bits & 1 << bit != 0)
                    .map(|bit| NAMES.get(bit).map_or_else(|| bit.to_string(), |name| (*name).to_owned()))
                    .collect();
                assert_eq!(named.join(" "), want, "{name}, uid {uid}, {priority:?}");
            }
            assert_eq!(text.lines().count(), 7, "{text}");
        }
    }
}

#[test]
fn the_rights_of_root_reach_its_own_files_and_processes_alone() {
    let world = super::world::world!();
    let Some(python) = super::python() else { return };
    let mut order = world.order(&[&python, "-I", "-S", "-c", ROOT]);
    (order.command.uid, order.command.gid) = (0, 0);
    let (text, status) = world.run(order);
    assert_eq!((text.as_str(), status), ("9\n(5, 5, 5) ['0000000000000000']\n", ExitStatus::Code(0)));
}

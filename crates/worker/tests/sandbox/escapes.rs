//! Attacks of a hostile client and of a hostile guest on the sandbox: each must come to nothing, and what a guest can reach
//! is a list that fails on anything new.

use base::watch::{Format, Sign};
use base::{ExitStatus, Mount, TreePath, Watch};
use worker::sandbox::{self, Event, Input, Order};

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
             status 1 2\n",
            exe.display()
        );
        let text: Vec<String> = text.lines().map(without_number).collect();
        assert_eq!(text.join("\n") + "\n", want, "uid {uid}");
    }
}

/// A line with the number of init's descriptor left out, which differs.
fn without_number(line: &str) -> String {
    match line.split_once("/proc/self/fd/") {
        Some((before, after)) => {
            format!("{before}/proc/self/fd/N{}", after.trim_start_matches(|digit: char| digit.is_ascii_digit()))
        }
        None => line.to_owned(),
    }
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

#[test]
fn the_rights_of_root_reach_its_own_files_and_processes_alone() {
    let world = super::world::world!();
    let Some(python) = super::python() else { return };
    let mut order = world.order(&[&python, "-I", "-S", "-c", ROOT]);
    (order.command.uid, order.command.gid) = (0, 0);
    let (text, status) = world.run(order);
    assert_eq!((text.as_str(), status), ("9\n(5, 5, 5) ['0000000000000000']\n", ExitStatus::Code(0)));
}

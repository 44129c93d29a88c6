//! The harness tried on itself: with a program that runs its arguments here everything must agree, and with one that gets a single
//! thing wrong exactly that must be found.

use e2e::case::{self, Case};
use e2e::client::Client;
use e2e::differential::compare;
use e2e::report::Report;
use e2e::scratch::Scratch;
use e2e::suite;
use std::os::unix::fs::PermissionsExt;

/// Takes remrun's options off and runs the rest.
const PRELUDE: &str = "#!/bin/sh\nwhile :; do case $1 in --no-local|-v) shift;; -c) shift 2;; *) break;; esac; done\n";

struct Stub {
    scratch: Scratch,
    client: Client,
}

fn stub(script: &str) -> Stub {
    let scratch = Scratch::new().unwrap();
    let bin = scratch.folder("bin", 0o755).unwrap();
    let folder = scratch.folder("client", 0o755).unwrap();
    scratch.folder("client/home", 0o777).unwrap();
    let remrun = bin.join("remrun");
    std::fs::write(&remrun, format!("{PRELUDE}{script}\n")).unwrap();
    std::fs::set_permissions(&remrun, PermissionsExt::from_mode(0o755)).unwrap();
    let client = Client::new(&bin, &folder, scratch.path(), 0);
    Stub { scratch, client }
}

fn differences(script: &str, case: &Case) -> Vec<String> {
    let stub = stub(script);
    compare(case, &stub.scratch.path().join("place"), &stub.client).unwrap()
}

fn case() -> Case {
    let setup = "mkdir d; echo x > d/f; echo y > g; chmod 640 g; ln -s g l; echo h > h1; ln h1 h2; touch -d '2005-05-05 UTC' t; \
                 truncate -s 100000 hole";
    Case::script("t", setup, "$R sh -c 'echo out; echo err >&2; echo new > n; exit 3' || exit 3")
}

fn three() -> Case {
    Case { status: e2e::process::Ended::Code(3), ..case() }
}

#[test]
fn the_same_is_the_same() {
    assert_eq!(differences("exec \"$@\"", &three()), Vec::<String>::new());
}

/// What goes wrong after the command, and the word by which it must be reported.
const FAULTS: [(&str, &str); 15] = [
    ("printf x >> n", "length"),
    ("printf NEW'\\n' > n", "bytes differ"),
    ("chmod 600 g", "mode"),
    ("chmod 700 .", "mode"),
    ("rm g", "absent remotely"),
    ("echo x > extra", "there remotely"),
    ("ln -sfn other l", "Symlink"),
    ("rm h2; cp -p h1 h2", "number of names"),
    ("touch t", "time of change"),
    ("touch -d '2005-05-05 UTC' n", "time of change"),
    ("touch d", "time of change"),
    ("cp --sparse=never -p hole hole2; mv hole2 hole", "sparse"),
    ("echo more", "standard output"),
    ("echo more >&2", "standard error"),
    ("s=4", "ended locally with status 3, remotely with status 4"),
];

#[test]
fn each_fault_is_found() {
    for (fault, word) in FAULTS {
        // The script gives the status 3 of any failing command back as such, unless the fault changes it.
        let script = format!("\"$@\"; s=$?; {fault}; exit $s");
        let mut case = three();
        case.run = case.run.replace(" || exit 3", "");
        let found = differences(&script, &case);
        assert!(found.iter().any(|line| line.contains(word)), "{fault}: {found:?}");
    }
}

#[test]
fn owners_and_extended_attributes_are_compared() {
    if !rustix::process::getuid().is_root() {
        println!("SKIPPED: changing an owner needs root");
        return;
    }
    let found = differences("\"$@\"; s=$?; chown 1:1 n; exit $s", &three());
    assert!(found.iter().any(|line| line.contains("owner")), "{found:?}");
    let python = "\"$@\"; s=$?; python3 -c 'import os; os.setxattr(\"n\", \"user.a\", b\"1\")'; exit $s";
    let found = differences(python, &three());
    assert!(found.iter().any(|line| line.contains("extended attributes")), "{found:?}");
}

#[test]
fn a_signal_is_not_a_status_and_order_matters() {
    let mut killed = Case::script("t", "", "kill -9 $$");
    killed.status = e2e::process::Ended::Signal(9);
    assert_eq!(differences("exec \"$@\"", &killed), Vec::<String>::new());
    assert!(differences("\"$@\"; exit $?", &killed)[0].contains("remotely with status 137"));
    let mut merged = Case::script("t", "", "echo a; echo b >&2; echo c");
    merged.streams = e2e::process::Streams::Merged;
    assert_eq!(differences("exec \"$@\"", &merged), Vec::<String>::new());
    assert!(!differences("\"$@\" 2> err; cat err >&2; rm err", &merged).is_empty());
}

#[test]
fn a_case_that_fails_here_does_not_pass() {
    let found = differences("exec \"$@\"", &Case::script("t", "", "exit 1"));
    assert!(found[0].contains("the case is wrong here"), "{found:?}");
}

#[test]
fn the_table_of_cases_agrees_with_itself() {
    if !rustix::process::getuid().is_root() {
        println!("SKIPPED: the cases of an ordinary user need root");
        return;
    }
    let cases = case::read_folder(&suite::cases_folder()).unwrap();
    assert!(cases.len() >= 150, "{} cases", cases.len());
    let mut names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), cases.len(), "names must differ");
    let stub = stub("exec \"$@\"");
    let nobody = Client { user: e2e::client::NOBODY, ..stub.client.clone() };
    let report = Report::new(false);
    let place = stub.scratch.folder("place", 0o755).unwrap();
    suite::run("", 4, &place, &report, |case| Ok(if case.as_nobody { &nobody } else { &stub.client })).unwrap();
    assert!(report.close());
}

/// The command that runs `program` in an empty root, by way of the suite's binary.
fn in_empty_root(scratch: &Scratch, program: &str, arguments: &[&str]) -> std::process::Command {
    let (root, state) = (scratch.folder("root", 0o755).unwrap(), scratch.folder("state", 0o700).unwrap());
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_e2e"));
    command.arg("empty-root").args([&root, std::path::Path::new(program), &state, scratch.path()]).args(arguments);
    command
}

#[test]
fn an_empty_root_is_empty_and_leaves_nothing() {
    if !rustix::process::getuid().is_root() || !std::path::Path::new("/dev/fuse").exists() {
        println!("SKIPPED: a mount namespace with devices needs root and /dev/fuse");
        return;
    }
    let scratch = Scratch::new().unwrap();
    let before = e2e::leftovers::Before::look();
    let list = in_empty_root(&scratch, "/usr/bin/find", &["/", "-xdev", "-not", "-type", "d"]);
    let text = e2e::process::Run::new(list).run().unwrap().expect_ok("find").unwrap().text();
    let names: Vec<&str> = text.lines().filter(|name| !name.starts_with("/dev/") && !name.contains("/lib")).collect();
    assert_eq!(names, ["/bin/gleaner"], "{text}");
    std::fs::write(scratch.path().join("state/kept"), b"state\n").unwrap();
    let read = in_empty_root(&scratch, "/bin/cat", &["/state/kept", "/dev/null", "/proc/self/comm"]);
    assert_eq!(e2e::process::Run::new(read).run().unwrap().text(), "state\ngleaner");
    let stay = in_empty_root(&scratch, "/bin/sleep", &["60"]);
    let mut daemon = e2e::process::Daemon::start("sleep", stay, &scratch.path().join("log")).unwrap();
    let found = || Some(e2e::leftovers::processes(scratch.path())).filter(|pids| !pids.is_empty());
    assert!(
        e2e::process::wait_for(std::time::Duration::from_secs(5), found).is_some(),
        "a process in an empty root is seen"
    );
    daemon.kill();
    assert_eq!(before.leftovers(scratch.path(), std::time::Duration::from_secs(5)), Vec::<String>::new());
    scratch.remove().unwrap();
}

//! The pool and the failure tests' judgement tried with a stand-in for the product: programs that only look like it.

use e2e::pool::{Options, Pool};
use e2e::process::{Run, shell};
use e2e::scenario;
use e2e::scratch::Scratch;
use std::os::unix::fs::PermissionsExt;

/// Serves until it is stopped, prints what the pool waits for, and shows as many workers as there are.
const GLEANER: &str = r#"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "hub")) { puts("gleaner join hub-token"); fflush(stdout); pause(); return 0; }
    if (argc > 1 && !strcmp(argv[1], "join")) {
        if (!access("/bin/sh", F_OK) || access("/dev/fuse", R_OK) || access("/state", W_OK)) return 1;
        for (;;) pause();
    }
    if (argc > 1 && !strcmp(argv[1], "token")) { puts("a-token"); return 0; }
    if (argc > 1 && !strcmp(argv[1], "status")) {
        puts("{\"workers\": [{\"name\": \"worker0\", \"tasks_done\": 1}, {\"name\": \"worker1\", \"tasks_done\": 2}]}");
        return 0;
    }
    if (argc > 1 && (!strcmp(argv[1], "use") || !strcmp(argv[1], "stop"))) return 0;
    return 2;
}
"#;
const REMRUN: &str =
    "#!/bin/sh\nwhile :; do case $1 in --no-local|-v) shift;; -c) shift 2;; *) break;; esac; done\nexec \"$@\"\n";

fn programs(scratch: &Scratch) -> Options {
    let bin = scratch.folder("programs", 0o755).unwrap();
    std::fs::write(bin.join("gleaner.c"), GLEANER).unwrap();
    let mut build = shell("gcc -o gleaner gleaner.c");
    build.current_dir(&bin);
    Run::new(build).run().unwrap().expect_ok("gcc").unwrap();
    std::fs::write(bin.join("remrun"), REMRUN).unwrap();
    std::fs::set_permissions(bin.join("remrun"), PermissionsExt::from_mode(0o755)).unwrap();
    // Nobody calls it here.
    std::fs::write(bin.join("libgleaner.so"), "").unwrap();
    let suite = std::path::PathBuf::from(env!("CARGO_BIN_EXE_e2e"));
    Options {
        workers: 2,
        together: false,
        cpus: 1,
        pinned: false,
        nobody: true,
        link: None,
        apart: None,
        without: "",
        database: false,
        hub_env: Vec::new(),
        prefers_pool: true,
        guests: true,
        groups: Vec::new(),
        programs: bin,
        suite,
    }
}

fn can_run() -> bool {
    let can = rustix::process::getuid().is_root() && std::path::Path::new("/dev/fuse").exists();
    if !can {
        println!("SKIPPED: workers with empty roots need root and /dev/fuse");
    }
    can
}

#[test]
fn a_pool_starts_stops_and_leaves_nothing() {
    if !can_run() {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let mut pool = Pool::start(programs(&scratch)).unwrap();
    let folder = pool.scratch.path().to_path_buf();
    for worker in &mut pool.workers {
        worker.check().unwrap();
    }
    let outcome = Run::new(pool.client.remrun(&["--no-local", "echo", "hi"])).run().unwrap();
    assert_eq!(outcome.text(), "hi");
    let nobody = pool.nobody.clone().unwrap();
    assert_eq!(Run::new(nobody.remrun(&["id", "-u"])).run().unwrap().text(), "65534");
    pool.restart_worker(1).unwrap();
    pool.restart_hub().unwrap();
    assert_eq!(pool.stop(false).unwrap(), Vec::<String>::new());
    assert!(!folder.exists());
}

#[test]
fn what_stays_is_reported_and_swept() {
    if !can_run() {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let pool = Pool::start(programs(&scratch)).unwrap();
    let mut stray = pool.client.remrun(&["sleep", "300"]).spawn().unwrap();
    let wrong = pool.stop(false).unwrap();
    assert!(wrong.iter().any(|line| line.contains("sleep 300")), "{wrong:?}");
    stray.wait().unwrap();
}

#[test]
fn failures_are_judged() {
    if !can_run() {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let options = programs(&scratch);
    let report = e2e::report::Report::new(false);
    scenario::beside(&e2e::failure::works(&options, "failure/worker killed", &report));
    assert!(report.close(), "a stand-in that runs everything here survives the death of a worker");
    // One that writes half of its result and then fails must be caught.
    std::fs::write(options.programs.join("remrun"), "#!/bin/sh\necho begun > begun; exit 1\n").unwrap();
    let report = e2e::report::Report::new(false);
    scenario::beside(&e2e::failure::works(&options, "failure/no workers", &report));
    assert!(!report.close());
}

//! `remrun` against a daemon that does as the test says.

use crate::fake::{Caller, Place};
use base::ExitStatus;
use base::door::{Reply, Request};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Output, Stdio};
use std::time::Instant;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn output(process: &mut std::process::Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = process.output().expect("remrun starts");
    (status.code(), text(&stdout), text(&stderr))
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, signal).expect("the child lives");
}

#[test]
fn hands_the_command_over_and_ends_like_it() {
    let place = Place::new();
    let daemon = place.daemon(1, |_, mut caller| {
        let (command, options, window) = caller.run();
        assert_eq!(command.argv, [&b"gcc"[..], b"-c", b"x.c"]);
        assert_eq!(command.cwd, b"/");
        assert_eq!((command.needs.cpus, command.umask, window), (3, 0o27, None));
        assert!(command.env.contains(&b"MARK=1".to_vec()));
        assert!(options.no_local);
        assert_eq!(command.limits.len(), 16);
        assert_eq!(caller.descriptors.len(), 3);
        caller.launched(false);
        caller.write(1, "out");
        caller.write(2, "err");
        caller.reply(Reply::Note("it rains".into()));
        caller.reply(Reply::Done(ExitStatus::Code(42)));
    });
    let mut process = place.remrun();
    process.args(["-c", "3", "--no-local", "gcc", "-c", "x.c"]).env("MARK", "1").current_dir("/");
    // SAFETY: umask is safe between fork and exec.
    unsafe {
        process.pre_exec(|| {
            rustix::process::umask(rustix::fs::Mode::from_bits_retain(0o27));
            Ok(())
        });
    }
    assert_eq!(output(&mut process), (Some(42), "out".into(), "errremrun: it rains\n".into()));
    daemon.join().expect("the daemon saw what it should");
}

#[test]
fn death_by_signal_is_passed_on_without_a_core() {
    let place = Place::new();
    let daemon = place.daemon(2, |number, mut caller| {
        caller.run();
        caller.reply(Reply::Done(ExitStatus::Signal(if number == 0 { 15 } else { 11 })));
    });
    for signal in [15, 11] {
        let status = place.remrun().arg("x").status().expect("remrun starts");
        assert_eq!((status.signal(), status.core_dumped()), (Some(signal), false));
    }
    daemon.join().expect("the daemon saw what it should");
}

#[test]
fn runs_here_when_told_to() {
    let place = Place::new();
    let daemon = place.daemon(5, |_, mut caller| {
        caller.run();
        caller.reply(Reply::RunHere { why: "no pool is configured".into() });
    });
    let here = "remrun: runs here: no pool is configured\n";
    let got = output(place.remrun().args(["-v", "sh", "-c", "echo $0; exit 3", "zero"]));
    assert_eq!(got, (Some(3), "zero\n".into(), here.into()));
    let got = output(place.remrun().arg("no-such-command"));
    assert_eq!(got, (Some(127), String::new(), "remrun: no-such-command: command not found\n".into()));
    let got = output(place.remrun().arg("/etc/passwd"));
    assert_eq!(got, (Some(126), String::new(), "remrun: /etc/passwd: permission denied\n".into()));
    // Nested: the inner remrun asks the daemon as well.
    let remrun = place.remrun_path();
    assert_eq!(output(place.remrun().arg(remrun).args(["echo", "hi"])), (Some(0), "hi\n".into(), String::new()));
    daemon.join().expect("the daemon saw what it should");
}

#[test]
fn running_here_keeps_dispositions_masks_and_closed_streams() {
    let place = Place::new();
    let daemon = place.daemon(4, |_, mut caller| {
        caller.run();
        assert_eq!(caller.descriptors.len(), 3, "a closed stream is replaced for the daemon");
        caller.reply(Reply::RunHere { why: "test".into() });
    });
    let script = "grep -E '^Sig(Blk|Ign)' /proc/self/status; ls -m /proc/self/fd; [ -e /proc/self/fd/0 ]";
    let run = |prefix: &str, ignored: &str, closed: &str| {
        let mut shell = std::process::Command::new("sh");
        // Signals ignored, standard streams closed; nothing is to differ from a plain start.
        shell.args(["-c", &format!("trap '' {ignored}; exec {prefix} sh -c \"$1\" {closed}"), "sh", script]);
        place.set_environment(&mut shell);
        output(&mut shell)
    };
    for (ignored, closed) in [("HUP", "<&-"), ("HUP PIPE", "<&- 2>&-")] {
        let plain = run("", ignored, closed);
        assert_eq!((plain.0, plain.1.contains("SigBlk")), (Some(1), true), "standard input is closed: {plain:?}");
        for prefix in
            [format!("{}", place.remrun_path().display()), concat!(env!("CARGO_BIN_EXE_gleaner"), " run").to_owned()]
        {
            assert_eq!(run(&prefix, ignored, closed), plain, "{prefix}");
        }
        assert_eq!(run(concat!(env!("CARGO_BIN_EXE_gleaner"), " run --no-remote"), ignored, closed), plain);
    }
    daemon.join().expect("the daemon saw what it should");
}

#[test]
fn what_is_written_to_a_closed_output_fails() {
    let place = Place::new();
    let run = |line: &str| {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", line, env!("CARGO_BIN_EXE_gleaner")]);
        place.set_environment(&mut shell);
        output(&mut shell)
    };
    for (line, status, said) in [
        ("\"$0\" run --no-remote /bin/echo x >&-", 1, "Bad file descriptor"),
        ("\"$0\" run --no-remote -k /bin/echo ::: x >&-", 69, "writing to standard output: Bad file descriptor"),
        ("\"$0\" run --no-remote --json --job - <&-", 2, "standard input: Bad file descriptor"),
        ("\"$0\" config >&-", 69, "writing to standard output: Bad file descriptor"),
        ("\"$0\" run --no-remote no-such-program", 127, "no-such-program: command not found"),
        (
            "s=$(mktemp) && echo '#!/no/such' > $s && chmod 755 $s && \"$0\" run --no-remote $s; r=$?; rm $s; exit $r",
            127,
            "its interpreter or loader is missing",
        ),
    ] {
        let (code, out, err) = run(line);
        assert!(code == Some(status) && (out + &err).contains(said), "{line}: {code:?} {err}");
    }
}

#[test]
fn failures_say_what_and_how() {
    let place = Place::new();
    let daemon = place.daemon(1, |_, mut caller| {
        caller.run();
        let message = "nothing committed: ~/.bashrc is outside the write policy\n  kept: gleaner recover 8f3a".into();
        caller.reply(Reply::Failed { message, code: 125 });
    });
    let (code, _, err) = output(place.remrun().arg("x"));
    assert_eq!(code, Some(125));
    assert_eq!(err, "remrun: nothing committed: ~/.bashrc is outside the write policy\n  kept: gleaner recover 8f3a\n");
    daemon.join().expect("the daemon saw what it should");
    let (code, _, err) = output(place.remrun().arg("--frob"));
    assert_eq!((code, err.as_str()), (Some(125), "remrun: unknown option --frob\n  help: remrun --help\n"));
    assert_eq!(output(place.remrun().arg("--version")).0, Some(0));
}

#[test]
fn signals_reach_the_task() {
    let place = Place::new();
    let daemon = place.daemon(1, |_, mut caller| {
        caller.run();
        caller.launched(false);
        caller.write(1, "up\n");
        for number in [10, 12, 1, 2, 3, 14, 15] {
            assert_eq!(caller.request(), Some(Request::Signal(number)));
            caller.write(1, "next\n");
        }
        caller.reply(Reply::Done(ExitStatus::Code(0)));
    });
    let mut child = place.remrun().arg("x").stdout(Stdio::piped()).spawn().expect("remrun starts");
    let mut stdout = child.stdout.take().expect("piped");
    crate::fake::read_until(&mut stdout, "up");
    use rustix::process::Signal;
    for number in [Signal::USR1, Signal::USR2, Signal::HUP, Signal::INT, Signal::QUIT, Signal::ALARM, Signal::TERM] {
        signal(&child, number);
        crate::fake::read_until(&mut stdout, "next");
    }
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    daemon.join().expect("the daemon saw what it should");
}

#[test]
fn a_daemon_that_hangs_before_the_launch_can_be_interrupted() {
    let place = Place::new();
    let daemon = place.daemon(1, |_, mut caller| {
        caller.run();
        caller.write(1, "up\n");
        assert_eq!(caller.request(), Some(Request::Signal(2)));
        assert_eq!(caller.request(), None);
    });
    let mut child = place.remrun().arg("x").stdout(Stdio::piped()).spawn().expect("remrun starts");
    crate::fake::read_until(child.stdout.as_mut().expect("piped"), "up");
    let begun = Instant::now();
    signal(&child, rustix::process::Signal::INT);
    assert_eq!(child.wait().expect("it ends").signal(), Some(2));
    assert!(begun.elapsed().as_secs() < 4);
    daemon.join().expect("the daemon saw what it should");
}

#[test]
fn stops_and_continues_with_the_task() {
    let place = Place::new();
    let daemon = place.daemon(1, |_, mut caller| {
        caller.run();
        caller.launched(false);
        caller.reply(Reply::Note("up".into()));
        stop_and_end(&mut caller);
    });
    assert_eq!(stopped_and_continued(&place), Some(5));
    daemon.join().expect("the daemon saw what it should");
}

/// The caller says that it is to stop, is told to, and says that it goes on; then the command ends.
fn stop_and_end(caller: &mut crate::fake::Caller) {
    assert_eq!(caller.request(), Some(Request::Signal(libc::SIGTSTP as u8)));
    caller.reply(Reply::Stopped(libc::SIGTSTP as u8));
    assert_eq!(caller.request(), Some(Request::Signal(libc::SIGCONT as u8)));
    caller.reply(Reply::Done(ExitStatus::Code(5)));
}

/// The end of a `remrun` that is told to stop as soon as it says that it is up, and then continued.
fn stopped_and_continued(place: &Place) -> Option<i32> {
    let mut process = place.remrun();
    // A group of its own, whose parent is in the same session: not orphaned, so that it can be stopped.
    let mut child = process.arg("x").stderr(Stdio::piped()).process_group(0).spawn().expect("remrun starts");
    crate::fake::read_until(child.stderr.as_mut().expect("piped"), "up");
    signal(&child, rustix::process::Signal::TSTP);
    let pid = rustix::process::Pid::from_child(&child);
    let (_, status) = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::UNTRACED)
        .expect("it can be waited for")
        .expect("a status");
    assert_eq!(status.stopping_signal(), Some(libc::SIGTSTP));
    signal(&child, rustix::process::Signal::CONT);
    child.wait().expect("it ends").code()
}

#[test]
fn what_stops_it_before_the_launch_stops_the_task_as_well() {
    let place = Place::new();
    let daemon = place.daemon(1, |_, mut caller| {
        caller.run();
        caller.reply(Reply::Note("up".into()));
        caller.wait(100);
        caller.launched(false);
        stop_and_end(&mut caller);
    });
    assert_eq!(stopped_and_continued(&place), Some(5));
    daemon.join().expect("the daemon saw what it should");
    // And a daemon that hangs does not keep it from stopping.
    let place = Place::new();
    let daemon = place.daemon(1, |_, mut caller| {
        caller.run();
        caller.reply(Reply::Note("up".into()));
        caller.wait(1500);
        caller.reply(Reply::Done(ExitStatus::Code(6)));
    });
    assert_eq!(stopped_and_continued(&place), Some(6));
    daemon.join().expect("the daemon saw what it should");
}

#[test]
fn many_at_once_start_one_daemon() {
    let place = Place::new();
    place.script(&"done ".repeat(64));
    let children: Vec<Child> =
        (0..64).map(|_| place.remrun().arg("x").stderr(Stdio::piped()).spawn().expect("remrun starts")).collect();
    for child in children {
        let output = child.wait_with_output().expect("it ends");
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(7), ""));
    }
    assert_eq!(place.starts(), 1);
}

#[test]
fn without_a_daemon_it_runs_here_or_says_why_not() {
    let place = Place::new();
    place.script("complain");
    let (code, out, err) = output(place.remrun().args(["echo", "hi"]));
    assert_eq!((code, out.as_str()), (Some(0), "hi\n"));
    assert_eq!(err, "remrun: the client daemon did not start: no room; at all; running here\n");
    let (code, out, err) = output(place.remrun().args(["--no-local", "echo", "hi"]));
    assert_eq!((code, out.as_str()), (Some(125), ""));
    assert!(err.contains("no room"), "{err}");
}

#[test]
fn a_daemon_that_dies_before_the_launch_is_replaced() {
    let place = Place::new();
    place.script("done");
    let daemon = place.daemon(1, |_, caller| drop(caller));
    let got = output(place.remrun().arg("x"));
    daemon.join().expect("the daemon saw what it should");
    assert_eq!((got.0, place.starts()), (Some(7), 1), "{}", got.2);

    let place = Place::new();
    place.script("die");
    let daemon = place.daemon(1, |_, caller| drop(caller));
    let got = output(place.remrun().args(["echo", "hi"]));
    daemon.join().expect("the daemon saw what it should");
    assert_eq!((got.0, got.1.as_str(), place.starts() <= 2), (Some(0), "hi\n", true), "{}", got.2);
}

#[test]
fn a_daemon_that_dies_after_the_launch_is_asked_for_the_outcome() {
    let die = |_: usize, mut caller: Caller| {
        caller.run();
        caller.launched(false);
    };
    for (word, want, say) in
        [("outcome", 9, ""), ("nothing", 125, "nothing was committed"), ("die", 125, "died while the command ran")]
    {
        let place = Place::new();
        place.script(word);
        let daemon = place.daemon(1, die);
        let (code, _, err) = output(place.remrun().arg("x"));
        daemon.join().expect("the daemon saw what it should");
        assert_eq!(code, Some(want), "{err}");
        assert!(err.contains(say), "{err}");
    }
}

#[test]
fn an_unsafe_folder_is_not_used() {
    let place = Place::new();
    rustix::fs::chmod(place.path().join("run"), rustix::fs::Mode::from_bits_retain(0o755)).expect("chmod");
    let (code, out, err) = output(place.remrun().args(["echo", "hi"]));
    assert_eq!((code, out.as_str()), (Some(0), "hi\n"), "it runs here: {err}");
    assert!(err.contains("chmod 700"), "{err}");
}

#[test]
fn starts_quickly() {
    const ROUNDS: usize = 100;
    let place = Place::new();
    let daemon = place.daemon(ROUNDS, |_, mut caller| {
        caller.run();
        caller.launched(false);
        caller.reply(Reply::Done(ExitStatus::Code(0)));
    });
    let median = |program: &std::path::Path, arguments: &[&str]| {
        let mut times: Vec<_> = (0..ROUNDS)
            .map(|_| {
                let mut process = std::process::Command::new(program);
                process.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
                place.set_environment(&mut process);
                let begun = Instant::now();
                assert!(process.status().expect("it starts").success());
                begun.elapsed()
            })
            .collect();
        times.sort();
        times[ROUNDS / 2]
    };
    let remrun = place.remrun_path();
    let (spawn, version) = (median("/bin/true".as_ref(), &[]), median(&remrun, &["--version"]));
    let round_trip = median(&remrun, &["true"]);
    daemon.join().expect("the daemon saw what it should");
    println!("median of {ROUNDS}: /bin/true {spawn:?}, remrun --version {version:?}, whole round trip {round_trip:?}");
    // Twenty times what a release build takes on a quiet machine: only a blunder gets there.
    assert!(round_trip.as_millis() < 40, "{round_trip:?}");
}

//! `gleaner run` with many commands, against a daemon that does as the test says.

use crate::fake::{Caller, JOB, Place, read_until};
use crate::gleaner::{gleaner, output};
use base::ExitStatus;
use base::door::Reply;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

fn run(place: &Place, arguments: &str) -> Command {
    let mut process = gleaner(place);
    process.arg("run").args(arguments.split_whitespace()).stdin(Stdio::null());
    process
}

/// The words of the task's command, which must be of the job.
fn words(caller: &mut Caller) -> Vec<String> {
    let (command, options, _) = caller.run();
    assert_eq!(options.job, Some(JOB));
    assert_eq!(caller.descriptors.len(), 3);
    command.argv.into_iter().map(|word| String::from_utf8(word).expect("text")).collect()
}

fn end(caller: &mut Caller, code: u8) {
    caller.reply(Reply::Done(ExitStatus::Code(code)));
}

#[test]
fn tasks_are_shown_apart_and_in_order() {
    let place = Place::new();
    let (running, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let daemon = place.job_daemon(6, {
        let (running, most) = (running.clone(), most.clone());
        move |mut caller| {
            let words = words(&mut caller);
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            caller.launched(false);
            caller.write(1, &format!("{} begins\n", words[1]));
            // The first ends last.
            caller.wait(if words[1] == "a" { 200 } else { 20 });
            caller.write(1, &format!("{} ends\n", words[1]));
            caller.write(2, &format!("{}?\n", words[1]));
            running.fetch_sub(1, Ordering::SeqCst);
            end(&mut caller, u8::from(words[1] == "c") * 7);
        }
    });
    let (code, out, err) = output(&mut run(&place, "-k -j 3 do {} ::: a b c d e f"));
    daemon.join().expect("the daemon saw what it should");
    let shown: String = ["a", "b", "c", "d", "e", "f"].map(|name| format!("{name} begins\n{name} ends\n")).concat();
    let asked: String = ["a", "b", "c", "d", "e", "f"].map(|name| format!("{name}?\n")).concat();
    let summary = "gleaner run: 1 of 6 tasks failed:\n  task 2: exited with status 7: do c\n";
    assert_eq!((code, out, err), (Some(1), shown, asked + summary));
    assert_eq!(most.load(Ordering::SeqCst), 3, "as many at once as was said");
}

#[test]
fn a_task_that_fails_is_run_again() {
    let place = Place::new();
    let tries = AtomicU32::new(0);
    let daemon = place.job_daemon(5, move |mut caller| {
        let words = words(&mut caller);
        caller.launched(false);
        caller.write(1, "said\n");
        let again = words[1] == "never" || tries.fetch_add(1, Ordering::SeqCst) == 0;
        end(&mut caller, u8::from(again));
    });
    let file = place.path().join("commands");
    std::fs::write(&file, "# two tasks\nx sometimes\n\nx never\n").expect("written");
    let (code, out, err) = output(run(&place, "-j1 --retries 2 --job").arg(&file));
    daemon.join().expect("the daemon saw what it should");
    assert_eq!((code, out.as_str()), (Some(1), "said\nsaid\n"), "only the last attempt is shown");
    assert!(err.ends_with("commands:4: exited with status 1: x never\n"), "{err}");
}

#[test]
fn what_did_not_take_place_is_told() {
    let place = Place::new();
    let daemon = place.job_daemon(1, |mut caller| {
        words(&mut caller);
        caller.reply(Reply::Failed { message: "nothing committed: /x is outside the write policy".into(), code: 125 });
    });
    let (code, out, err) = output(&mut run(&place, "-j1 x ::: 1"));
    daemon.join().expect("the daemon saw what it should");
    assert_eq!((code, out.as_str()), (Some(1), ""));
    let said = "nothing committed: /x is outside the write policy";
    let want = format!("gleaner run: task 0: {said}\ngleaner run: 1 of 1 tasks failed:\n  task 0: {said}: x 1\n");
    assert_eq!(err, want);
}

#[test]
fn each_task_is_a_line_of_json() {
    let place = Place::new();
    let daemon = place.job_daemon(3, |mut caller| {
        let words = words(&mut caller);
        caller.launched(false);
        caller.write(1, &format!("\"{}\"\n", words[1]));
        match words[1].as_str() {
            "1" => end(&mut caller, 0),
            "2" => caller.reply(Reply::Done(ExitStatus::Signal(9))),
            _ => caller.reply(Reply::RunHere { why: "it likes it here".into() }),
        }
    });
    let (code, out, _) = output(&mut run(&place, "-k -j1 --json /bin/echo ::: 1 2 3"));
    daemon.join().expect("the daemon saw what it should");
    let lines: Vec<serde_json::Value> =
        out.lines().map(|line| serde_json::from_str(line).expect("JSON in each line")).collect();
    let [one, two, three, all] = lines.as_slice() else { panic!("{out}") };
    assert_eq!(
        (code, &one["status"], &one["exit"], &one["stdout_text"], &one["place"]),
        (Some(1), &"exit 0".into(), &0.into(), &"\"1\"\n".into(), &"remote".into())
    );
    assert_eq!(
        (&one["number"], &one["index"], &one["argv"], one["task"].is_string(), one["elapsed_us"].is_u64()),
        (&1.into(), &0.into(), &serde_json::json!(["/bin/echo", "1"]), true, true)
    );
    let ended = (&two["status"], &two["signal"], &two["signal_name"], &two["exit"]);
    assert_eq!(ended, (&"signal 9".into(), &9.into(), &"SIGKILL".into(), &serde_json::Value::Null));
    assert_eq!((&three["why"], &three["place"]), (&"it likes it here".into(), &"local".into()));
    assert_eq!(
        (&all["summary"]["tasks"], &all["summary"]["failed"], &all["summary"]["here"]),
        (&3.into(), &1.into(), &1.into())
    );
}

#[test]
fn ctrl_c_ends_all_tasks() {
    let place = Place::new();
    let (launched, launches) = std::sync::mpsc::channel();
    let daemon = place.job_daemon(2, move |mut caller| {
        words(&mut caller);
        caller.launched(false);
        launched.send(()).expect("the test waits");
        assert_eq!(caller.request(), None, "the caller goes, and with it the task");
    });
    let mut child = run(&place, "-j2 x ::: 1 2 3 4").stderr(Stdio::piped()).spawn().expect("gleaner starts");
    launches.iter().take(2).for_each(drop);
    let begun = Instant::now();
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
        .expect("it lives");
    let status = child.wait().expect("it ends");
    assert_eq!(status.signal(), Some(2));
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    let mut err = child.stderr.take().expect("piped");
    read_until(&mut err, "2 of 2 tasks were called off");
    daemon.join().expect("the daemon saw what it should");
}

#[test]
fn a_failure_halts_soon_or_now() {
    for (halt, summary) in [("soon", "1 of 2 tasks failed"), ("now", "1 of 2 tasks were called off")] {
        let place = Place::new();
        let daemon = place.job_daemon(2, move |mut caller| {
            let words = words(&mut caller);
            caller.launched(false);
            match (words[1].as_str(), halt) {
                ("1", _) => {
                    caller.wait(150);
                    end(&mut caller, 1);
                }
                (_, "now") => assert_eq!(caller.request(), None),
                _ => {
                    caller.wait(300);
                    end(&mut caller, 0);
                }
            }
        });
        let (code, _, err) = output(&mut run(&place, &format!("-j2 --halt {halt} x ::: 1 2 3 4 5")));
        daemon.join().expect("the daemon saw what it should");
        assert!(code == Some(1) && err.contains(summary), "{halt}: {code:?} {err}");
    }
}

#[test]
fn what_is_wrong_with_the_line_is_said() {
    let place = Place::new();
    for (arguments, want) in [
        ("--job /no/such/file", "gleaner: error: /no/such/file: No such file or directory (os error 2)\n"),
        ("", "gleaner: error: no command given\nhint: gleaner run --help\n"),
        ("-k x", "gleaner: error: --jobs, --retries, --keep-order and --json are for jobs\n"),
        ("x ::::", "gleaner: error: `::::` wants a file\n"),
    ] {
        let (code, _, err) = output(&mut run(&place, arguments));
        assert!(code == Some(2) && err.starts_with(want), "{arguments}: {code:?} {err}");
    }
    assert_eq!(output(&mut run(&place, "--no-remote echo one")), (Some(0), "one\n".into(), String::new()));
}

#[test]
fn a_line_that_cannot_be_read_ends_the_job_after_those_before() {
    let place = Place::new();
    let mut process = run(&place, "--no-remote -j2 --job -");
    let mut child =
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    std::io::Write::write_all(&mut child.stdin.take().expect("piped"), b"echo one\nx\0y\necho three\n").expect("read");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b"one\n"[..]));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said, "gleaner: error: standard input:2: a line with a NUL in it\n");
}

#[test]
fn a_job_without_a_daemon_runs_here() {
    let place = Place::new();
    // Much output, which goes through files; and more failures than an exit status can count.
    let (code, out, err) = output(&mut run(&place, "--no-remote -k -j4 seq 1 ::: 20000 30000"));
    assert_eq!((code, out.lines().count(), err.as_str()), (Some(0), 50_000, ""));
    let numbers: Vec<String> = (0..120).map(|number| number.to_string()).collect();
    let (code, _, err) = output(run(&place, "--no-remote -j8 sh -c :;exit${IFS}3 :::").args(numbers));
    assert_eq!(code, Some(101));
    assert!(err.contains("120 of 120 tasks failed") && err.ends_with("and 100 more\n"), "{err}");
}

//! `gleaner top` on a terminal and in a pipe.

use crate::fake::{Place, read_until};
use crate::gleaner::gleaner;
use crate::terminal::{is_raw, spawn_on, terminal};
use base::door::{Reply, Request};
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

const QUESTION: &str = r#"{"ask":"overview"}"#;
/// The last that is said to a terminal: to show the ordinary screen again.
const LEAVES: &str = "\u{1b}[?1049l";

/// Answers so many questions; the hub is heard of in the first `good` of them.
fn answering(place: &Place, good: usize, count: usize) -> std::thread::JoinHandle<()> {
    place.daemon(count, move |number, mut caller| {
        assert_eq!(caller.request(), Some(Request::Ask(QUESTION.as_bytes().to_vec())));
        let answer = if number < good {
            r#"{"status": {"hub": "rack:7433", "connected": true}, "figures": {"hub": "rack", "uptime_ms": 5000}}"#
        } else {
            r#"{"status": {"hub": "rack:7433", "problem": "the hub is gone"}, "figures": null}"#
        };
        caller.reply(Reply::Answer(answer.as_bytes().to_vec()));
    })
}

#[test]
fn the_terminal_is_left_as_it_was() {
    for way in ["key", "control", "signal"] {
        let place = Place::new();
        // More than are asked: no other daemon is started.
        answering(&place, 1, usize::MAX);
        let (mut user, programs) = terminal();
        let mut child = spawn_on(gleaner(&place).args(["top", "--interval", "0.1"]).env("TERM", "xterm"), &programs);
        // Words are together, and between them the cursor is moved.
        let shown = read_until(&mut user, "gone");
        assert!(shown.contains("rack") && is_raw(&programs), "{shown}");
        let want = match way {
            "key" | "control" => {
                user.write_all(if way == "key" { b"q" } else { b"\x03" }).expect("typed");
                0
            }
            _ => {
                let child = rustix::process::Pid::from_child(&child);
                rustix::process::kill_process(child, rustix::process::Signal::TERM).expect("sent");
                143
            }
        };
        read_until(&mut user, LEAVES);
        assert_eq!(child.wait().expect("it ends").code(), Some(want));
        assert!(!is_raw(&programs), "{way}");
    }
}

#[test]
fn it_ends_when_its_terminal_is_gone() {
    let place = Place::new();
    answering(&place, usize::MAX, usize::MAX);
    let (mut user, programs) = terminal();
    let mut child = spawn_on(gleaner(&place).arg("top").env("TERM", "xterm"), &programs);
    read_until(&mut user, "rack");
    drop((user, programs));
    let status = child.wait().expect("it ends");
    assert!(status.code().is_some(), "{status}");
}

#[test]
fn a_line_of_json_for_each_look_until_nobody_reads() {
    let place = Place::new();
    let daemon = answering(&place, 2, 3);
    let mut child = gleaner(&place)
        .args(["top", "--interval", "0.5"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("gleaner starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut next =
        || -> serde_json::Value { serde_json::from_str(&lines.next().expect("a line").expect("text")).expect("JSON") };
    assert_eq!(next()["figures"]["hub"], "rack");
    assert_eq!(next()["status"]["connected"], true);
    let lost = next();
    assert!(lost["figures"].is_null() && lost["status"]["problem"] == "the hub is gone", "{lost}");
    drop(lines);
    daemon.join().expect("the daemon saw what it should");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn one_look_fails_without_an_answer() {
    let place = Place::new();
    let daemon = answering(&place, 0, 1);
    let (code, out, err) = crate::gleaner::output(gleaner(&place).args(["top", "--once"]));
    assert!(out.contains("\"problem\": \"the hub is gone\""), "{out}");
    assert_eq!(code, Some(69), "{err}");
    daemon.join().expect("the daemon saw what it should");
}

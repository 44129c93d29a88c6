//! `remrun` on a terminal.

use crate::fake::{Place, read_until};
use base::door::{Reply, Request};
use base::{ExitStatus, WindowSize};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command};

/// A terminal of 24 lines and 80 characters: the side of its user, and the side of the programs.
pub fn terminal() -> (File, OwnedFd) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let user = openpt(flags).expect("a terminal");
    grantpt(&user).and_then(|()| unlockpt(&user)).expect("usable");
    let programs = ioctl_tiocgptpeer(&user, flags).expect("its other side");
    resize(&user, 24, 80);
    (File::from(user), programs)
}

pub fn resize(terminal: impl std::os::fd::AsFd, rows: u16, columns: u16) {
    tcsetwinsize(terminal, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).expect("a size");
}

pub fn is_raw(terminal: &OwnedFd) -> bool {
    !tcgetattr(terminal).expect("a terminal").local_modes.contains(LocalModes::ICANON)
}

/// Starts `process` as the leader of a session that `terminal` controls.
pub fn spawn_on(process: &mut Command, terminal: &OwnedFd) -> Child {
    let copy = || terminal.try_clone().expect("a descriptor");
    process.stdin(copy()).stdout(copy()).stderr(copy());
    // SAFETY: only system calls, safe between fork and exec.
    unsafe {
        process.pre_exec(|| {
            rustix::process::setsid()?;
            rustix::process::ioctl_tiocsctty(std::os::fd::BorrowedFd::borrow_raw(0))?;
            Ok(())
        });
    }
    process.spawn().expect("it starts")
}

#[test]
fn raw_while_the_task_has_the_terminal() {
    let place = Place::new();
    let (mut user, programs) = terminal();
    let daemon = place.daemon(1, |_, mut caller| {
        let (_, _, window) = caller.run();
        assert_eq!(window, Some(WindowSize { rows: 24, columns: 80 }));
        caller.launched(true);
        caller.reply(Reply::Note("a note".into()));
        assert_eq!(caller.request(), Some(Request::Resize(WindowSize { rows: 30, columns: 90 })));
        caller.reply(Reply::Done(ExitStatus::Code(3)));
    });
    let mut child = spawn_on(place.remrun().arg("x"), &programs);
    assert_eq!(read_until(&mut user, "\n"), "remrun: a note\r\n");
    assert!(is_raw(&programs));
    resize(&user, 30, 90);
    assert_eq!(child.wait().expect("it ends").code(), Some(3));
    assert!(!is_raw(&programs));
    daemon.join().expect("the daemon saw what it should");
}

#[test]
fn restored_on_fatal_signals_and_lost_daemons() {
    for way in ["term", "segv", "lost"] {
        let place = Place::new();
        place.script("nothing");
        let (mut user, programs) = terminal();
        let daemon = place.daemon(1, move |_, mut caller| {
            caller.run();
            caller.launched(true);
            caller.reply(Reply::Note("up".into()));
            match way {
                "term" => {
                    assert_eq!(caller.request(), Some(Request::Signal(15)));
                    caller.reply(Reply::Done(ExitStatus::Signal(15)));
                }
                "segv" => assert_eq!(caller.request(), None),
                _ => {}
            }
        });
        let mut child = spawn_on(place.remrun().arg("x"), &programs);
        read_until(&mut user, "up");
        let pid = Pid::from_child(&child);
        let want = match way {
            "term" => (None, Some(15)),
            "segv" => (None, Some(11)),
            _ => (Some(125), None),
        };
        match way {
            "term" => rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it lives"),
            "segv" => rustix::process::kill_process(pid, rustix::process::Signal::SEGV).expect("it lives"),
            _ => {}
        }
        let status = child.wait().expect("it ends");
        assert_eq!((status.code(), status.signal()), want, "{way}");
        assert!(!is_raw(&programs), "{way}");
        daemon.join().expect("the daemon saw what it should");
    }
}

#[test]
fn job_control_in_a_shell() {
    let place = Place::new();
    let (mut user, programs) = terminal();
    let daemon = place.daemon(1, |_, mut caller| {
        caller.run();
        caller.launched(true);
        // The user typed Ctrl-Z, which went to the task as a byte.
        caller.reply(Reply::Stopped(libc::SIGTSTP as u8));
        assert_eq!(caller.request(), Some(Request::Foreground(false)), "what is typed now is for the shell");
        assert_eq!(caller.request(), Some(Request::Foreground(true)));
        assert_eq!(caller.request(), Some(Request::Resize(WindowSize { rows: 24, columns: 80 })));
        assert_eq!(caller.request(), Some(Request::Signal(libc::SIGCONT as u8)));
        caller.reply(Reply::Note("continued".into()));
        caller.reply(Reply::Done(ExitStatus::Code(5)));
    });
    let script = "set -m; $0 x; echo status $?; stty -a | grep -o -e '-*icanon'; fg; echo end $?";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(place.remrun_path());
    place.set_environment(&mut shell);
    let mut child = spawn_on(&mut shell, &programs);
    let seen = read_until(&mut user, "end 5");
    assert!(seen.contains("status 148"), "{seen}");
    assert!(seen.contains("\nicanon"), "the shell gets its terminal back as it was: {seen}");
    assert!(seen.contains("remrun: continued"), "{seen}");
    child.wait().expect("it ends");
    assert!(!is_raw(&programs));
    daemon.join().expect("the daemon saw what it should");
}

#[test]
fn in_the_background_it_leaves_the_terminal_alone() {
    let place = Place::new();
    let (mut user, programs) = terminal();
    let daemon = place.daemon(1, |_, mut caller| {
        caller.run();
        caller.launched(true);
        assert_eq!(caller.request(), Some(Request::Foreground(false)));
        caller.reply(Reply::Note("background".into()));
        assert_eq!(caller.request(), Some(Request::Foreground(true)), "fg gives it the terminal");
        caller.reply(Reply::Done(ExitStatus::Code(4)));
    });
    let script = "set -m; $0 x & read line; echo got $line; fg; echo end $?";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(place.remrun_path());
    place.set_environment(&mut shell);
    let mut child = spawn_on(&mut shell, &programs);
    read_until(&mut user, "background");
    assert!(!is_raw(&programs));
    user.write_all(b"typed\n").expect("typed");
    let seen = read_until(&mut user, "end 4");
    assert!(seen.contains("got typed"), "{seen}");
    child.wait().expect("it ends");
    daemon.join().expect("the daemon saw what it should");
}

#[test]
fn keys_are_signals_but_while_the_program_runs() {
    let place = Place::new();
    place.script("nothing");
    let (mut user, programs) = terminal();
    let daemon = place.daemon(1, |_, mut caller| {
        caller.run();
        caller.launched(true);
        caller.reply(Reply::Note("waits".into()));
        assert_eq!(caller.request(), Some(Request::Signal(libc::SIGQUIT as u8)));
        caller.reply(Reply::Keys(true));
        caller.reply(Reply::Note("runs".into()));
        // What is typed now is not heard of: the end is.
        assert_eq!(caller.request(), Some(Request::Signal(libc::SIGTERM as u8)));
        caller.reply(Reply::Keys(false));
        caller.reply(Reply::Note("has ended".into()));
        assert_eq!(caller.request(), Some(Request::Signal(libc::SIGINT as u8)));
        caller.reply(Reply::Done(ExitStatus::Code(6)));
    });
    let mut child = spawn_on(place.remrun().arg("x"), &programs);
    read_until(&mut user, "waits");
    assert!(is_raw(&programs));
    user.write_all(b"\x1c").expect("typed");
    read_until(&mut user, "runs");
    user.write_all(b"\x03\x1c").expect("typed");
    let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
    let arrived = poll(&mut [PollFd::new(&programs, PollFlags::IN)], Some(&limit));
    assert_eq!(arrived, Ok(1), "the keys are there for the task");
    rustix::process::kill_process(Pid::from_child(&child), rustix::process::Signal::TERM).expect("it lives");
    read_until(&mut user, "has ended");
    user.write_all(b"\x03").expect("typed");
    assert_eq!(child.wait().expect("it ends").code(), Some(6));
    assert!(!is_raw(&programs));
    daemon.join().expect("the daemon saw what it should");
}

#[test]
fn what_was_typed_to_end_the_task_ends_the_group() {
    let place = Place::new();
    let (mut user, programs) = terminal();
    let daemon = place.daemon(1, |_, mut caller| {
        caller.run();
        caller.launched(true);
        caller.reply(Reply::Keys(true));
        caller.reply(Reply::Keys(false));
        caller.reply(Reply::Done(ExitStatus::Signal(libc::SIGINT as u8)));
    });
    let mut shell = Command::new("sh");
    shell.args(["-c", "$0 x; echo went on"]).arg(place.remrun_path());
    place.set_environment(&mut shell);
    let mut child = spawn_on(&mut shell, &programs);
    assert_eq!(child.wait().expect("it ends").signal(), Some(libc::SIGINT));
    daemon.join().expect("the daemon saw what it should");
    user.write_all(b"x").expect("the terminal is still there");
    // The last copies of the other side, so that reading ends.
    drop((shell, programs));
    let mut seen = String::new();
    let _ = std::io::Read::read_to_string(&mut user, &mut seen);
    assert!(!seen.contains("went on"), "{seen}");
}

//! Job control: what stops `remrun` stops the guest, and what continues it continues the guest.

use crate::error::{Context, Error, Result};
use crate::pool::Pool;
use crate::process::{Action, Ended, Run, Streams, Typed, pause, wait_for};
use crate::scenario::{END_BOUND, GUEST_BOUND, descendants, folder};
use crate::terminal::Size;
use rustix::process::{Pid, Signal, WaitOptions};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Moments after the start at which `remrun` is stopped, in milliseconds: while it is launched, and while it runs.
const MOMENTS_MS: [u64; 6] = [0, 5, 12, 30, 200, 500];
/// Waits, as a shell does at each command it begins, for a child that shares its memory until it has executed something (`vfork`): the child
/// can be stopped, and as long as it is the parent cannot. Here it takes its time, by `clone`'s own number.
const BEGINS_ANOTHER: &str = "import ctypes, os, time
clone = {'x86_64': 56, 'aarch64': 220}[os.uname().machine]
child = ctypes.CDLL(None).syscall(clone, 0x4000 | 17, 0, 0, 0, 0)
if child == 0:
    time.sleep(1)
    os._exit(0)
os.waitpid(child, 0)
open('out', 'w').write('end\\n')
print('end')";

/// The state letters of the guests below the workers, or below a hub that is one itself, whose arguments contain `word`.
fn states(pool: &Pool, word: &str) -> String {
    let parts = pool.workers.iter().chain([&pool.hub]);
    let below = parts.flat_map(|part| descendants(part.pid().as_raw_nonzero().get()));
    let line = |pid: &i32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let state = |pid: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().and_then(|rest| rest.chars().next())
    };
    below.filter(|pid| String::from_utf8_lossy(&line(pid)).contains(word)).filter_map(state).collect()
}

/// Waits until a child is stopped by SIGTSTP, within a bound; what happened instead.
fn until_stopped(child: &Child) -> std::result::Result<(), String> {
    let options = WaitOptions::UNTRACED | WaitOptions::NOHANG;
    let waited = || rustix::process::waitpid(Some(Pid::from_child(child)), options).ok().flatten();
    match wait_for(GUEST_BOUND, waited) {
        Some((_, status)) if status.stopping_signal() == Some(libc::SIGTSTP) => Ok(()),
        Some((_, status)) => Err(format!("{status:?}")),
        None => Err("it goes on".to_owned()),
    }
}

/// `kill -TSTP` and `kill -CONT`, as a shell's job control sends them.
pub fn stopped(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for moment in MOMENTS_MS {
        let word = format!("0.7{moment}");
        let script = format!("sleep {word}; echo end | tee out");
        wrong.extend(stopped_after(pool, moment, &word, &["sh", "-c", &script])?);
    }
    wrong.extend(stopped_after(pool, 400, "ctypes", &["python3", "-c", BEGINS_ANOTHER])?);
    Ok(wrong)
}

/// One command, whose processes have `word` among their arguments, stopped so long after its start.
fn stopped_after(pool: &Pool, moment: u64, word: &str, words: &[&str]) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let place = folder(pool, &format!("stopped-{moment}"))?;
    let mut command = pool.client.remrun(&[&["--no-local"], words].concat());
    command.current_dir(&place).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().context(|| "cannot start remrun".to_owned())?;
    pause(Duration::from_millis(moment));
    let _ = rustix::process::kill_process(Pid::from_child(&child), Signal::TSTP);
    if let Err(instead) = until_stopped(&child) {
        let states = states(pool, word);
        let _ = child.kill();
        let output = child.wait_with_output().map(|output| output.stderr).unwrap_or_default();
        let said = String::from_utf8_lossy(&output);
        return Ok(vec![format!(
            "after {moment} ms SIGTSTP did not stop {word}: {instead}, its processes {states:?}, {said:?}"
        )]);
    }
    let rests = || wait_for(GUEST_BOUND, || Some(states(pool, word)).filter(|states| !states.contains(['S', 'R'])));
    let settled = rests();
    // Longer than the command takes: a guest that goes on would end, and leave its file. One that begins only now, on a busy machine,
    // is told to stop as soon as it has.
    pause(Duration::from_millis(1200));
    if settled.is_none() || rests().is_none() || place.join("out").exists() {
        let states = states(pool, word);
        wrong.push(format!("stopped after {moment} ms: {word} goes on, its processes are {states:?}"));
    }
    let _ = rustix::process::kill_process(Pid::from_child(&child), Signal::CONT);
    let ended = wait_for(END_BOUND, || child.try_wait().ok().flatten()).map(Ended::from);
    let _ = child.kill();
    let output = child.wait_with_output().context(|| "cannot wait for remrun".to_owned())?;
    if ended != Some(Ended::Code(0)) || output.stdout != b"end\n" || !place.join("out").exists() {
        wrong.push(format!("stopped after {moment} ms and continued: {word} {ended:?}, {:?}", output.stdout));
    }
    Ok(wrong)
}

/// Ctrl-Z typed at a command in a terminal, `fg` typed after that.
pub fn in_a_shell(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "shell")?;
    let mut command = std::process::Command::new("bash");
    command.args(["--norc", "-i"]);
    pool.client.dress(&mut command);
    command.current_dir(&place).env("PS1", "$ ");
    let typed = |wait: &str, text: &str| Typed { wait: wait.into(), action: Action::Text(text.into()) };
    let line =
        format!("{} --no-local sh -c 'echo rea\"\"dy; sleep 3.33; echo e\"\"nd'\n", pool.client.remrun.display());
    let typed = vec![
        typed("$ ", &line),
        typed("ready", "\x1a"),
        typed("Stopped", ""),
        typed("$ ", "echo co\"\"de=$?; touch stopped; while [ ! -e go ]; do sleep 0.1; done; fg\n"),
        typed("end", ""),
        typed("$ ", "exit\n"),
    ];
    let run = Run { streams: Streams::Terminal(Size { rows: 24, columns: 200 }), typed, ..Run::new(command) };
    let started = Instant::now();
    let runner = std::thread::spawn(move || run.within(END_BOUND * 2).run());
    let mut wrong = Vec::new();
    if wait_for(END_BOUND, || place.join("stopped").exists().then_some(())).is_none() {
        wrong.push("the shell did not notice that its job was stopped".to_owned());
    }
    // `D`: it waits for a child that was stopped before it had executed anything.
    let all_stopped = |states: &String| states.contains('T') && states.chars().all(|state| "TD".contains(state));
    if wait_for(GUEST_BOUND, || Some(states(pool, "3.33")).filter(all_stopped)).is_none() {
        wrong.push(format!("the guest's processes are {:?}, not all stopped", states(pool, "3.33")));
    }
    std::fs::write(place.join("go"), b"").ok();
    let outcome = runner.join().map_err(|_| Error::Product("the runner panicked".to_owned()))??;
    let text = outcome.text();
    if !text.contains("code=148") || !text.contains("end") || outcome.ended == Ended::TimedOut {
        wrong.push(format!("{} after {:?}: {text:?}", outcome.ended, started.elapsed()));
    }
    Ok(wrong)
}

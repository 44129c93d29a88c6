//! How BOINC's client treats its guests under Linux, as its preferences and its source say (`client/app_start.cpp`, `client/cs_prefs.cpp`,
//! `client/app.cpp` of github.com/BOINC/boinc): processes at nice 19, SCHED_IDLE, in the control group of the `boinc-client` service, which has
//! the default weight and the idle I/O class. "Suspend when non-BOINC CPU usage is above 25%": every 10 s it computes the part of all CPUs' time
//! that others have used since; above 25% all guests are stopped, and for 20 s at least.
//!
//! Not modelled: its rules for a user at the keyboard (a machine with a console stops guests while it is in use, if asked to) and its limits of
//! memory. It polls anew with each block, at a phase by chance; where the owner uses much of
//! the CPU, in `work` and `share`, he does so for a period before the measured block begins.

use super::load::cpu_ns;
use super::rounds::CpuTimes;
use rustix::process::{Pid, Signal};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the use of the CPU is computed.
pub const PERIOD: Duration = Duration::from_secs(10);
/// How long guests stay stopped at least.
const STOPPED: Duration = Duration::from_secs(20);
/// The part of all CPUs' time that others may use.
const OTHERS_MAX: f64 = 0.25;

/// Has the calling process compute, and use the disk, when nobody else does. Only for between fork and exec.
pub fn be_idle() -> std::io::Result<()> {
    const IOPRIO_WHO_PROCESS: libc::c_long = 1;
    const IOPRIO_CLASS_IDLE: libc::c_long = 3 << 13;
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameter outlives the call; the rest are plain integers.
    let done = unsafe {
        libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameter) == 0
            && libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_CLASS_IDLE) == 0
    };
    if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Looks after guests until it is dropped.
#[derive(Debug)]
pub struct Poller {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Poller {
    /// Looks after these processes.
    pub fn start(pids: Vec<i32>) -> Self {
        let (end, ended) = channel();
        let wait = move |time| ended.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
        let thread = std::thread::spawn(move || poll(&pids, wait));
        Self { end: Some(end), thread: Some(thread) }
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn poll(pids: &[i32], wait: impl Fn(Duration) -> bool) {
    let phase = PERIOD.mul_f64(rand::random::<f64>()).max(Duration::from_millis(200));
    let (mut stopped, mut before) = (None::<Instant>, Sample::take(pids));
    let mut pause = phase;
    while wait(pause) {
        let now = Sample::take(pids);
        let busy = now.others_since(&before);
        (before, pause) = (now, PERIOD);
        if busy > OTHERS_MAX {
            signal(pids, Signal::STOP);
            stopped = Some(Instant::now());
        } else if stopped.is_some_and(|at| at.elapsed() >= STOPPED) {
            signal(pids, Signal::CONT);
            stopped = None;
        }
    }
}

/// CPU times at some moment.
struct Sample {
    all: CpuTimes,
    guests_s: f64,
}

impl Sample {
    fn take(pids: &[i32]) -> Self {
        let guests: u64 = pids.iter().filter_map(|pid| cpu_ns(*pid)).sum();
        Self { all: CpuTimes::now(), guests_s: guests as f64 / 1e9 }
    }

    /// The part of all CPUs' time that others than the guests have used.
    fn others_since(&self, before: &Self) -> f64 {
        let (busy, idle) = (self.all.busy_s - before.all.busy_s, self.all.idle_s - before.all.idle_s);
        (busy - (self.guests_s - before.guests_s)) / (busy + idle).max(f64::MIN_POSITIVE)
    }
}

fn signal(pids: &[i32], signal: Signal) {
    for pid in pids.iter().filter_map(|pid| Pid::from_raw(*pid)) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

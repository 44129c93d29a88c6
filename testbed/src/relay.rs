//! The thread that carries the packets. It has real-time priority where that is allowed: late is wrong here.

use crate::net::Net;
use crate::pipe::Nanos;
use crate::{Error, system};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// Packets taken from one device before the others have their turn.
const BATCH: usize = 64;
/// Largest IP packet.
const PACKET_BYTES_MAX: usize = 65_536;
/// Above ordinary processes, below what the machine itself needs.
const PRIORITY: i32 = 10;
/// Longest rest.
const REST: Nanos = 1_000_000_000;
/// Most by which the relay's long sleep ends before a packet is due.
const EARLY_MAX: Nanos = 1_000_000;

/// A running relay, until it is dropped.
#[derive(Debug)]
pub(crate) struct Relay {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    net: Mutex<Net>,
    ended: AtomicBool,
    wake: OwnedFd,
}

impl Relay {
    /// Carries packets between these devices, in the order of the net's hosts.
    pub fn start(net: Net, devices: Vec<OwnedFd>) -> Result<Self, Error> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = wake.map_err(|error| system("cannot make an eventfd")(error.into()))?;
        let shared = Arc::new(Shared { net: Mutex::new(net), ended: AtomicBool::new(false), wake });
        let thread = std::thread::Builder::new().name("testbed".into());
        let thread = thread.spawn({
            let shared = shared.clone();
            move || serve(&shared, &devices)
        });
        Ok(Self { shared, thread: Some(thread.map_err(system("cannot start the relay"))?) })
    }

    /// Does something with the net, and lets the relay notice.
    pub fn tell<T>(&self, what: impl FnOnce(&mut Net) -> T) -> T {
        let result = what(&mut self.shared.net());
        self.shared.wake();
        result
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            // It has nothing to say but that it panicked, which was printed.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn net(&self) -> MutexGuard<'_, Net> {
        self.net.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn wake(&self) {
        // A full counter wakes as well.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

fn serve(shared: &Shared, devices: &[OwnedFd]) {
    be_punctual();
    let mut early = 0;
    let mut buffer = vec![0; PACKET_BYTES_MAX];
    while !shared.ended.load(Ordering::Acquire) {
        let due = {
            let mut net = shared.net();
            for (at, device) in devices.iter().enumerate() {
                for _ in 0..BATCH {
                    match rustix::io::read(device, &mut buffer) {
                        Ok(length) => net.send(now(), at, buffer[..length].to_vec()),
                        Err(_) => break,
                    }
                }
            }
            net.due(now())
        };
        for (at, packet) in due {
            // A device that takes nothing is one that is down: its packets are lost.
            let _ = rustix::io::write(&devices[at], &packet);
        }
        early = rest(shared, devices, early);
    }
}

/// Waits for a packet, an order, or until `early` before the next arrival: a machine that has slept for long wakes late. What is left is
/// slept by a machine that was awake just now. Returns how early the next long sleep should end.
fn rest(shared: &Shared, devices: &[OwnedFd], early: Nanos) -> Nanos {
    let next = shared.net().next();
    let until = next.map_or(REST, |next| next.saturating_sub(now())).min(REST);
    let is_long = until > early;
    let for_nanos = if is_long { until - early } else { until };
    let begun = now();
    let limit = Timespec { tv_sec: (for_nanos / REST) as i64, tv_nsec: (for_nanos % REST) as _ };
    let all = devices.iter().chain([&shared.wake]);
    let mut polled: Vec<PollFd<'_>> = all.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let mut wanted = early;
    match rustix::event::poll(&mut polled, Some(&limit)) {
        Ok(0) if is_long => {
            let late = (now() - begun).saturating_sub(for_nanos).min(EARLY_MAX);
            wanted = late.max(early - early / 16);
        }
        Ok(_) | Err(Errno::INTR) => {}
        // Not to be expected; the loop must not spin.
        Err(_) => std::thread::yield_now(),
    }
    let mut count = [0; 8];
    let _ = rustix::io::read(&shared.wake, &mut count);
    wanted
}

fn be_punctual() {
    let parameters = libc::sched_param { sched_priority: PRIORITY };
    // SAFETY: plain values; the thread is the calling one. Without the right it stays an ordinary thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const parameters) };
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

fn now() -> Nanos {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

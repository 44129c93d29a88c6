//! Signals by which the caller of a task wants it to end, until the task's init confirms that it has delivered them. Meanwhile the
//! caller waits; afterwards the program has the say. An init that hangs confirms nothing: its task is ended.

use crate::sandbox::{Control, Levers, Sent, wants_processor};
use base::Command;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use wire::message::{Failed, FailedKind, is_ending};

/// From look to look at an init that has not confirmed.
const LOOK: Duration = Duration::from_millis(250);
/// It hangs if it stands still at so many looks in a row. Looks are counted, not time: a worker that was stopped, or asleep, looks
/// once. Their time is less than a client waits (`ANSWER_LIMIT` in `crates/client/src/ending.rs`).
const LOOKS_MAX: u32 = 10;

/// Signals that are waited for at a time; of a client that sends more, the others are sent and answered at once.
const WAITING_MAX: usize = 256;
/// Numbers of signals.
const SIGNALS: std::ops::RangeInclusive<u32> = 1..=64;

/// Signals on their way to one task.
#[derive(Debug, Default)]
pub struct Unconfirmed {
    signals: VecDeque<Signal>,
    /// When to look at the init.
    look: Option<Instant>,
    /// At so many looks in a row it stood still.
    still: u32,
    /// Over the task's control group, which has this name.
    levers: Levers,
    group: String,
}

#[derive(Debug)]
struct Signal {
    number: u32,
    /// It is in the init's socket.
    is_sent: bool,
    /// The client was answered already.
    is_answered: bool,
}

impl Unconfirmed {
    /// None yet, to a task in this control group.
    pub fn new(levers: Levers, group: String) -> Self {
        Self { levers, group, ..Self::default() }
    }

    /// Sends a signal to the program, and returns it if its client is to be answered at once: it waits for those that end the program.
    pub fn send(&mut self, number: u32, command: &Command, control: &Control) -> Option<u32> {
        if !SIGNALS.contains(&number) {
            return Some(number);
        }
        let sent = control.signal(number as u8, true);
        let waits = sent != Sent::Gone && is_ending(number) && command.is_ended_by(number as u8) && self.has_room();
        if waits {
            self.begin(number, sent == Sent::OnItsWay);
        }
        (!waits).then_some(number)
    }

    fn has_room(&self) -> bool {
        self.signals.len() < WAITING_MAX
    }

    /// This signal is on its way, or waits for room in the init's socket.
    fn begin(&mut self, number: u32, is_sent: bool) {
        if self.signals.is_empty() {
            self.begin_looks();
        }
        self.signals.push_back(Signal { number, is_sent, is_answered: false });
    }

    fn begin_looks(&mut self) {
        (self.look, self.still) = (Some(Instant::now() + LOOK), 0);
    }

    /// The init has delivered this signal. Returns it if the client waits for that answer.
    pub fn confirm(&mut self, number: u32) -> Option<u32> {
        let at = self.signals.iter().position(|signal| signal.number == number)?;
        let confirmed = self.signals.remove(at)?;
        self.begin_looks();
        self.look = self.look.filter(|_| !self.signals.is_empty());
        (!confirmed.is_answered).then_some(number)
    }

    /// Those that the client waits for: it is to be answered now.
    pub fn unanswered(&mut self) -> Vec<u32> {
        let waiting = self.signals.iter_mut().filter(|signal| !signal.is_answered);
        let answer = |signal: &mut Signal| {
            signal.is_answered = true;
            signal.number
        };
        waiting.map(answer).collect()
    }

    /// Waits until it is time to look.
    pub async fn due(&self) {
        wire::until(self.look).await;
    }

    /// Looks at the init. Returns the signals that the client is to be told of; or that the task is to be ended, and why.
    pub fn look(&mut self, control: &Control) -> Result<Vec<u32>, Failed> {
        for signal in self.signals.iter_mut().filter(|signal| !signal.is_sent) {
            signal.is_sent = control.signal(signal.number as u8, true) != Sent::NoRoom;
        }
        self.judge(self.levers.is_to_freeze(&self.group) || waits_for_processor(control.process_id()))
    }

    /// An init that others hold up would go on if it might: its worker answers for it, as what its program catches is the program's.
    fn judge(&mut self, is_held_up: bool) -> Result<Vec<u32>, Failed> {
        self.look = Some(Instant::now() + LOOK);
        if is_held_up {
            self.still = 0;
            return Ok(self.unanswered());
        }
        self.still += 1;
        let hangs = || FailedKind::Trouble.because("the task's init hangs: it did not deliver a signal");
        if self.still < LOOKS_MAX { Ok(Vec::new()) } else { Err(hangs()) }
    }
}

/// Whether a process is ready and gets no processor.
fn waits_for_processor(process: Option<u32>) -> bool {
    process.is_some_and(wants_processor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGINT: u32 = 2;
    const SIGTERM: u32 = 15;

    #[test]
    fn each_signal_is_answered_once() {
        let mut unconfirmed = Unconfirmed::default();
        assert!(unconfirmed.confirm(SIGINT).is_none() && unconfirmed.look.is_none(), "nobody waits for it");
        [SIGINT, SIGTERM, SIGINT].into_iter().for_each(|signal| unconfirmed.begin(signal, true));
        assert!(unconfirmed.confirm(SIGINT).is_some() && unconfirmed.look.is_some());
        assert_eq!(unconfirmed.unanswered(), [SIGTERM, SIGINT]);
        assert!([SIGTERM, SIGINT].into_iter().all(|signal| unconfirmed.confirm(signal).is_none()), "answered before");
        assert!(unconfirmed.look.is_none(), "nothing to look for");
    }

    #[test]
    fn a_flood_of_signals_is_not_kept() {
        let mut unconfirmed = Unconfirmed::default();
        for _ in 0..WAITING_MAX {
            assert!(unconfirmed.has_room());
            unconfirmed.begin(SIGTERM, true);
        }
        assert!(!unconfirmed.has_room());
        unconfirmed.confirm(SIGTERM);
        assert!(unconfirmed.has_room());
    }

    #[test]
    fn an_init_that_stands_still_hangs() {
        let mut unconfirmed = Unconfirmed::default();
        unconfirmed.begin(SIGINT, true);
        (1..LOOKS_MAX).for_each(|_| assert_eq!(unconfirmed.judge(false), Ok(Vec::new())));
        unconfirmed.begin(SIGTERM, true);
        assert!(unconfirmed.judge(false).is_err(), "another signal makes no difference");
    }

    #[test]
    fn an_init_that_is_held_up_or_goes_on_does_not() {
        let mut unconfirmed = Unconfirmed::default();
        [SIGINT, SIGTERM].into_iter().for_each(|signal| unconfirmed.begin(signal, true));
        (1..LOOKS_MAX).for_each(|_| assert_eq!(unconfirmed.judge(false), Ok(Vec::new())));
        assert_eq!(unconfirmed.confirm(SIGINT), Some(SIGINT));
        assert_eq!(unconfirmed.judge(false), Ok(Vec::new()), "it has gone on");
        assert_eq!(unconfirmed.judge(true), Ok(vec![SIGTERM]), "the worker answers for it");
        (1..LOOKS_MAX).for_each(|_| assert_eq!(unconfirmed.judge(false), Ok(Vec::new())));
        assert!(unconfirmed.judge(false).is_err());
    }

    #[test]
    fn who_is_ready_waits_for_a_processor() {
        let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("a child");
        let becomes = |wanted: bool| {
            let limit = Instant::now() + Duration::from_secs(10);
            while waits_for_processor(Some(child.id())) != wanted {
                assert!(Instant::now() < limit, "ready: {wanted}");
                std::thread::park_timeout(Duration::from_millis(2));
            }
        };
        becomes(true);
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::STOP)
            .expect("stopped");
        becomes(false);
        child.kill().expect("killed");
        child.wait().expect("ended");
        assert!(!waits_for_processor(None));
    }
}

//! What a worker says of a task that has stopped, or says nothing of at all.
//!
//! `remrun` stops as its task does, for the shell it is the task. But a worker may say anything: only what came from here stops `remrun`, a
//! signal of the caller's or what was typed at its terminal.

use crate::caller::Replies;
use crate::exchange::{Exchange, SIGCONT, SIGTSTP};
use crate::run::Outcome;
use base::door::Reply;
use std::time::{Duration, Instant};
use wire::message::{OutputKind, TaskOutput};
use wire::quiet::HUB_QUIET_MAX;

/// Signals by which a process stops.
const STOPPING: std::ops::RangeInclusive<u32> = 19..=22;
/// How long after something was typed, or a signal was sent that does something else as a rule, the task may stop by it.
const CAUSE: Duration = Duration::from_secs(30);

/// What from here may have stopped the task.
#[derive(Debug, Default)]
pub(crate) struct Stops {
    /// SIGTSTP was sent.
    is_sent: bool,
    /// When something was typed, or another signal was sent.
    cause: Option<Instant>,
    /// It has stopped by itself, which its caller was told.
    pub(crate) is_by_itself: bool,
}

impl Stops {
    /// The task was sent a signal.
    pub fn sent(&mut self, signal: u8, now: Instant) {
        match signal {
            SIGCONT => *self = Self::default(),
            SIGTSTP => self.is_sent = true,
            _ => self.cause = Some(now),
        }
    }

    /// Something was typed for it.
    pub fn typed(&mut self, now: Instant) {
        self.cause = Some(now);
    }

    /// Whether its caller stops with it, if it stopped by this signal. Each cause counts once.
    fn counts(&mut self, signal: u32, now: Instant) -> bool {
        let is_sent = std::mem::take(&mut self.is_sent);
        let is_caused = self.cause.take().is_some_and(|at| now.saturating_duration_since(at) < CAUSE);
        STOPPING.contains(&signal) && (is_sent || is_caused)
    }
}

impl Exchange<'_> {
    /// Its worker says that the task has stopped.
    pub(crate) async fn on_stopped(&mut self, signal: u32, replies: &mut Replies) {
        if self.session.caller_stopped || !self.started {
            return;
        }
        if self.stops.counts(signal, Instant::now()) {
            // The stopping signals are less than 256.
            return self.session.stop_caller(signal as u8, replies).await;
        }
        if std::mem::replace(&mut self.stops.is_by_itself, true) {
            return;
        }
        let line = format!("by its worker it was stopped by signal {signal}, which came from nobody here");
        if self.session.is_listened_to() {
            let line = format!("{line}: `kill -CONT` of remrun has it go on, Ctrl-C ends it");
            let _ = replies.send(&Reply::Note(line)).await;
        }
        self.record.note(line);
    }

    /// Something came from the hub. After the end of the task only more of its result counts as that, and the hub's own word that it has
    /// the task: it looks after its worker.
    pub(crate) fn hears(&mut self, TaskOutput { kind }: &TaskOutput) {
        let is_news = match kind {
            _ if self.exited.is_none() => true,
            Some(OutputKind::Object(object)) => !self.has(object),
            Some(OutputKind::Alive(_)) => true,
            kind => kind.as_ref().is_some_and(OutputKind::is_of_result),
        };
        if is_news {
            self.quiet.heard();
        }
    }

    /// The hub has said nothing for too long, neither that it waits nor that a worker has the task.
    pub(crate) async fn on_quiet(&mut self) -> Option<Outcome> {
        self.cancel().await;
        let silence_s = HUB_QUIET_MAX.as_secs();
        Some(Outcome::Unplaced(format!("the hub said nothing of the command for {silence_s} s: see its log")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGSTOP: u32 = 19;
    const SIGUSR1: u8 = 10;

    #[test]
    fn only_what_came_from_here_stops_the_caller() {
        let now = Instant::now();
        let mut stops = Stops::default();
        assert!(!stops.counts(SIGTSTP.into(), now) && !stops.counts(SIGSTOP, now), "nobody has done anything");
        stops.sent(SIGTSTP, now);
        assert!(stops.counts(SIGTSTP.into(), now + CAUSE * 2), "it may take its time");
        assert!(!stops.counts(SIGTSTP.into(), now), "once");
        stops.typed(now);
        assert!(stops.counts(SIGSTOP, now + CAUSE / 2) && !stops.counts(SIGSTOP, now));
        stops.typed(now);
        assert!(!stops.counts(SIGSTOP, now + CAUSE), "long ago");
        stops.sent(SIGUSR1, now);
        assert!(stops.counts(SIGSTOP, now), "a program may stop by that");
        stops.sent(SIGTSTP, now);
        stops.sent(SIGCONT, now);
        assert!(!stops.counts(SIGTSTP.into(), now), "it was continued");
    }

    #[test]
    fn what_is_no_stop_stops_nobody() {
        let now = Instant::now();
        for signal in [0, 2, 9, 18, 23, 19 + 256, 20 | 1 << 8, u32::MAX] {
            let mut stops = Stops::default();
            stops.sent(SIGTSTP, now);
            assert!(!stops.counts(signal, now), "{signal}");
        }
    }
}

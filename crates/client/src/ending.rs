//! Signals that end a command, and `gleaner cancel`: what came is remembered by the session. The program has the first say, for as long as
//! its worker answers. Where nobody answers, or the worker is lost, the command ends by the signal, and begins nowhere again.

use crate::caller::{Replies, Requests};
use crate::exchange::{SIGCONT, SIGTSTP, asked};
use crate::run::{CODE_FAILED, Outcome, Session};
use base::ExitStatus;
use base::door::{Reply, Request};
use std::time::{Duration, Instant};

/// How long a worker may take to say that a signal has reached the program. The promise is that a command whose worker does not
/// answer ends within five seconds.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(4);

/// Signals that are kept for a command that does not run yet.
const SIGNALS_HELD_MAX: usize = 256;

/// How a wait takes a signal that would end the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The program has not started: any signal is the end, at once.
    BeforeStart,
    /// The program has ended, and its result is on its way: an ending signal is the end if that takes long.
    AfterEnd,
}

/// Whether the caller wants the command to end by this signal. A program that goes on nevertheless is not begun again elsewhere.
pub(crate) fn is_ending(signal: u8) -> bool {
    wire::message::is_ending(signal.into())
}

/// What becomes of a command whose attempt came out like this after its caller sent `ending`.
pub(crate) fn heed(outcome: Outcome, ending: Option<u8>) -> Outcome {
    match (outcome, ending) {
        (
            Outcome::Lost(_) | Outcome::Evicted(_) | Outcome::Unplaced(_) | Outcome::Unable(_) | Outcome::Contended(_),
            Some(signal),
        ) => Outcome::Cancelled(Some(signal)),
        (outcome, _) => outcome,
    }
}

/// Waits until then; without a time, for ever.
pub(crate) async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

pub(crate) fn cancelled() -> Outcome {
    Outcome::Refused("cancelled by gleaner cancel: nothing was committed".into())
}

impl Session {
    /// Waits for `work`, and hears the caller meanwhile. The error is what becomes of the command if the caller ends it.
    pub(crate) async fn hearing<T>(
        &mut self,
        phase: Phase,
        work: impl Future<Output = T>,
        (requests, replies): (&mut Requests, &mut Replies),
    ) -> Result<T, Outcome> {
        tokio::pin!(work);
        let mut limit = None;
        loop {
            let request = tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                request = requests.next() => request,
                () = asked(&self.cancel) => return Err(cancelled()),
                () = until(limit) => return Err(Outcome::Cancelled(self.ending)),
            };
            match request {
                None => return Err(Outcome::Cancelled(None)),
                Some(Request::Foreground(owned)) => self.input.set_foreground(owned),
                Some(Request::Signal(signal)) if phase == Phase::BeforeStart => match signal {
                    SIGTSTP => self.stop_caller(signal, replies).await,
                    SIGCONT => self.caller_stopped = false,
                    signal if self.plan.command.is_ended_by(signal) => return Err(Outcome::Cancelled(Some(signal))),
                    signal => self.hold(signal),
                },
                Some(Request::Signal(signal)) if self.is_told_to_end(signal) => {
                    self.ending.get_or_insert(signal);
                    limit.get_or_insert_with(|| Instant::now() + ANSWER_LIMIT);
                }
                Some(_) => {}
            }
        }
    }

    /// Whether the caller wants the command to end by this signal, which the command does not ignore from its start.
    pub(crate) fn is_told_to_end(&self, signal: u8) -> bool {
        is_ending(signal) && self.plan.command.is_ended_by(signal)
    }

    /// The caller ended it: by this signal, or it is gone.
    pub(crate) fn cancelled(&self, signal: Option<u8>) -> Reply {
        let Some(signal) = signal else { return self.gone() };
        self.stop.stop();
        Reply::Done(ExitStatus::Signal(signal))
    }

    /// The caller is gone.
    pub(crate) fn gone(&self) -> Reply {
        self.stop.stop();
        Reply::Failed { message: "cancelled: its caller is gone".into(), code: CODE_FAILED }
    }

    /// Keeps a signal for the command until it runs.
    pub(crate) fn hold(&mut self, signal: u8) {
        if self.held_signals.len() < SIGNALS_HELD_MAX {
            self.held_signals.push(signal);
        }
    }

    /// Has the caller stop, unless it has: it would stop once more when it is continued.
    pub(crate) async fn stop_caller(&mut self, signal: u8, replies: &mut Replies) {
        if !std::mem::replace(&mut self.caller_stopped, true) {
            // From now on the terminal is the shell's. The caller says when it is its own again.
            self.input.set_foreground(false);
            let _ = replies.send(&Reply::Stopped(signal)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGINT: u8 = 2;

    fn lost() -> Outcome {
        Outcome::Lost("the worker is gone".into())
    }

    #[test]
    fn a_command_that_was_told_to_end_begins_nowhere_again() {
        let ends = |outcome, ending| matches!(heed(outcome, ending), Outcome::Cancelled(Some(SIGINT)));
        for outcome in [lost(), Outcome::Evicted("paused".into()), Outcome::Unplaced("no worker".into())] {
            assert!(ends(outcome, Some(SIGINT)));
        }
        assert!(matches!(heed(lost(), None), Outcome::Lost(_)));
        let refused = Outcome::Refused("not allowed".into());
        assert!(matches!(heed(refused, Some(SIGINT)), Outcome::Refused(_)), "that is worth knowing");
    }

    #[test]
    fn signals_that_programs_take_for_news_are_not_the_end() {
        const SIGUSR1: u8 = 10;
        assert!([1, SIGINT, 3, 15].into_iter().all(is_ending));
        assert!([SIGUSR1, SIGCONT, SIGTSTP].into_iter().all(|signal| !is_ending(signal)));
    }
}

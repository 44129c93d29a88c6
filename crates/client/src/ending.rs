//! Signals that end a command, and `gleaner cancel`: what came is remembered by the session. The program has the first say, for as long as
//! its worker answers. Where nobody answers, or the worker is lost, the command ends by the signal, and begins nowhere again.

use crate::caller::{Replies, Requests};
use crate::exchange::{Exchange, SIGCONT, SIGTSTP, asked};
use crate::roaming::SleepWatch;
use crate::run::{CODE_FAILED, Outcome, Session};
use base::ExitStatus;
use base::door::{Reply, Request};
use base::watch::OWNERS;
use std::time::{Duration, Instant};
use wire::message::{Exited, InputKind, OutputKind};
use wire::until;

/// How long a worker may take to say that a signal has reached the program. The promise is that a command whose worker does not
/// answer ends within five seconds.
const ANSWER_LIMIT: Duration = Duration::from_secs(4);

/// The last part of it: how long a hub that has passed on the answer may be silent after it was asked for a sign of life.
const LIFE_LIMIT: Duration = Duration::from_secs(2);
/// Who looks later than this was stopped, or asleep: what has come meanwhile is yet to be read, so the wait begins anew.
const LATE: Duration = Duration::from_secs(1);
/// Longest round trip at which it is asked: several must fit into [`LIFE_LIMIT`].
const LOOKED_AT_ROUND_TRIP: Duration = Duration::from_millis(300);

/// How long the reader of an output may take to go on reading it when the command has ended by its caller's signal.
const UNREAD_LIMIT: Duration = Duration::from_secs(3);

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

/// The answer to a signal that ends programs: its worker says that it has reached the program.
#[derive(Debug, Default)]
pub(crate) struct Awaited {
    /// By when it is due: that to the first signal without one.
    by: Option<Instant>,
    /// The answer has come, which may have been the last word of the hub: when the hub is to be asked for a sign of life.
    /// Once it was asked: when to look, and how much had been heard of it by then. (The hub looks after the worker.)
    look: Option<(Instant, Option<Heard>)>,
    /// By when all that the program has said is to be taken, whose end is behind that.
    unread: Option<Instant>,
    slept: SleepWatch,
}

/// How much was heard of the hub, over the connection with this number.
pub(crate) type Heard = (u64, u64);

/// What is due of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing yet, or nothing more.
    Nothing,
    /// To ask the hub for a sign of life.
    Probe,
    /// The end of the command by its signal, for this reason, which has held for so long.
    End(&'static str, Duration),
}

impl Awaited {
    /// The program was sent a signal.
    pub fn asked(&mut self, now: Instant) {
        if self.by.is_none() {
            (self.by, self.slept) = (Some(now + ANSWER_LIMIT), SleepWatch::default());
        }
    }

    /// The program has started; whether its worker is one that answers.
    pub fn started(&mut self, answers: bool) {
        self.by = self.by.filter(|_| answers);
    }

    /// The program has ended by itself, and its output waits for a reader, or would soon.
    fn ended(&mut self, now: Instant) {
        (self.by, self.look, self.unread) = (None, None, Some(now + UNREAD_LIMIT));
    }

    /// All that the program has said is taken.
    pub fn is_read(&mut self) {
        self.unread = None;
    }

    /// The answer is there. `is_looked_at`: to a signal by which the caller wants the command to end, over a link that answers soon.
    pub fn came(&mut self, is_looked_at: bool) {
        let asked = self.by.take().filter(|_| is_looked_at).map(|by| (by - LIFE_LIMIT, None));
        self.look = asked.or(self.look);
    }

    /// Whether it is waited for.
    pub fn is_due(&self) -> bool {
        self.by.is_some()
    }

    /// When to look what is due.
    pub fn next(&self) -> Option<Instant> {
        self.by.into_iter().chain(self.look.map(|(next, _)| next)).chain(self.unread).min()
    }

    /// What is due now. `heard`: how much was heard of the hub so far; `None`: there is no link to it.
    pub fn due(&mut self, now: Instant, heard: Option<Heard>) -> Due {
        if self.next().is_some_and(|next| now > next + LATE) || self.slept.has_slept() {
            self.by = self.by.map(|_| now + ANSWER_LIMIT);
            self.look = self.look.map(|_| (now, None));
            self.unread = self.unread.map(|_| now + UNREAD_LIMIT);
            return Due::Nothing;
        }
        if self.unread.is_some_and(|unread| unread <= now) {
            return Due::End("nobody has read all that it has said", UNREAD_LIMIT);
        }
        if self.by.is_some_and(|by| by <= now) {
            return Due::End("nobody answered a signal", ANSWER_LIMIT);
        }
        match (self.look.take_if(|(next, _)| *next <= now), heard) {
            (Some((_, None)), Some(heard)) => {
                self.look = Some((now + LIFE_LIMIT, Some(heard)));
                Due::Probe
            }
            (Some((_, before)), Some(_)) if before == heard => {
                Due::End("nothing was heard of the hub since it passed on a signal", ANSWER_LIMIT)
            }
            _ => Due::Nothing,
        }
    }
}

/// Whether the caller wants the command to end by this signal. A program that goes on nevertheless is not begun again elsewhere.
pub(crate) fn is_ending(signal: u8) -> bool {
    wire::message::is_ending(signal.into())
}

impl Outcome {
    /// It was called off by its worker.
    pub(crate) fn unable(why: String) -> Self {
        if why.starts_with(OWNERS) { Self::UnableNow(why) } else { Self::Unable(why) }
    }
}

/// What becomes of a command whose attempt came out like this after its caller sent `ending`.
pub(crate) fn heed(outcome: Outcome, ending: Option<u8>) -> Outcome {
    match (outcome, ending) {
        (
            Outcome::Lost(_)
            | Outcome::Evicted(_)
            | Outcome::Unplaced(_)
            | Outcome::Unable(_)
            | Outcome::UnableNow(_)
            | Outcome::Contended(_),
            Some(signal),
        ) => Outcome::Cancelled(Some(signal)),
        (outcome, _) => outcome,
    }
}

pub(crate) fn cancelled() -> Outcome {
    Outcome::Refused("cancelled by gleaner cancel: nothing was committed".into())
}

impl Exchange<'_> {
    /// The caller sends a signal. The outcome is that it cannot be passed on.
    pub(crate) async fn on_caller_signal(&mut self, signal: u8, replies: &mut Replies) -> Option<Outcome> {
        let told = tokio::time::timeout(ANSWER_LIMIT, self.pass_signal(signal, replies)).await;
        told.is_err().then_some(Outcome::Cancelled(Some(signal)))
    }

    async fn pass_signal(&mut self, signal: u8, replies: &mut Replies) {
        match signal {
            // Elsewhere any signal before the start is the end. The caller stops at once, and the task when it starts.
            SIGTSTP if !self.started => self.session.stop_caller(signal, replies).await,
            SIGCONT if !self.started => self.session.caller_stopped = false,
            signal if !self.started && !self.session.plan.command.is_ended_by(signal) => self.session.hold(signal),
            signal => {
                self.signal = Some(signal);
                self.session.caller_stopped &= signal != SIGCONT;
                let is_to_end = self.session.is_told_to_end(signal);
                if is_to_end {
                    self.session.ending.get_or_insert(signal);
                }
                if self.session.plan.command.is_ended_by(signal) {
                    self.answer.asked(Instant::now());
                    self.answer_is_behind();
                }
                self.look_for_end_behind();
                self.tell(InputKind::Signal(signal.into())).await;
                if is_to_end && self.stops.is_by_itself {
                    // Stopped, it cannot take the signal.
                    self.tell(InputKind::Signal(SIGCONT.into())).await;
                }
                self.stops.sent(signal, Instant::now());
                if let Some(hedge) = &self.session.hedge {
                    hedge.tell(&Request::Signal(signal)).await;
                }
            }
        }
    }

    /// The worker, or the way to it, may be dead or frozen; a program that has not started has no say.
    pub(crate) async fn on_unanswered(&mut self) -> Option<Outcome> {
        let hub = self.session.daemon.link().and_then(|link| link.current_or_silent());
        let hub = hub.filter(|(hub, _)| !hub.connection.is_within_process());
        let heard = hub.as_ref().map(|(hub, number)| (*number, hub.connection.heard()));
        match self.answer.due(Instant::now(), heard) {
            Due::Nothing => None,
            Due::Probe => {
                hub.iter().for_each(|(hub, _)| hub.probe());
                None
            }
            Due::End(why, limit) => {
                self.cancel().await;
                self.record.note(format!("{why}, for {} s: the command ends by it", limit.as_secs()));
                Some(Outcome::Cancelled(self.session.ending.or(self.signal)))
            }
        }
    }

    /// Where this is the last word of a command that its caller's signal has ended, its output is not waited for without end: here the
    /// program would have stood still at what nobody reads, and have ended there.
    pub(crate) fn on_last(&mut self, kind: &OutputKind) {
        let is_last = match kind {
            // Here it would have had its end by the signal, while it waited for somebody to read that.
            OutputKind::Exited(exited) if exited.signal == 0 => {
                if self.session.ending.is_some() && self.is_held_up() {
                    self.answer.ended(Instant::now());
                }
                false
            }
            OutputKind::Exited(_) | OutputKind::Failed(_) => true,
            _ => false,
        };
        if is_last && self.session.ending.is_some() {
            let stop = self.session.stop.clone();
            tokio::spawn(async move {
                tokio::time::sleep(UNREAD_LIMIT).await;
                stop.stop();
            });
        }
    }

    /// A signal has reached the program, which may take it as it likes. Where there is none, not yet or no more, that is no answer.
    pub(crate) fn on_answer(&mut self) {
        if !self.started || self.exited.is_some() {
            return;
        }
        self.answer.came(self.session.ending.is_some() && self.round_trip <= LOOKED_AT_ROUND_TRIP);
    }
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

    /// Whether what is typed is the program's, Ctrl-C included: only as long as there is one.
    pub(crate) async fn give_keys(&mut self, given: bool, replies: &mut Replies) {
        if self.plan.has_terminal() && std::mem::replace(&mut self.gives_keys, given) != given {
            let _ = replies.send(&Reply::Keys(given)).await;
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

/// Why a command cannot have ended as its worker says: `remrun` ends as the command did, and by SIGSTOP it would stop instead.
pub(crate) fn impossible_end(exited: &Exited) -> Option<String> {
    let signal = exited.signal;
    let is_possible = signal == 0 || base::command::is_fatal(signal);
    (!is_possible).then(|| {
        format!("the worker says that the command ended by signal {signal}, by which none ends: nothing was committed")
    })
}

/// Why a command that leaves this program running runs here.
pub(crate) fn leaves_running(name: &str) -> String {
    format!("it leaves {} running behind it, which elsewhere would end with it", base::path::printable(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_worker_stops_a_caller_by_its_end() {
        let ended = |signal| Exited { signal, ..Exited::default() };
        for signal in [19, 20, 21, 22, 17, 18, 23, 28, 65, 128 + 9, 1 << 8 | 19, u32::MAX] {
            assert!(impossible_end(&ended(signal)).is_some(), "{signal}");
        }
        for signal in [0, 1, 2, 6, 9, 11, 15, 31, 34, 64] {
            assert_eq!(impossible_end(&ended(signal)), None, "{signal}");
        }
    }

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
    fn an_answer_is_waited_for_until_it_comes() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut answer = Awaited::default();
        answer.asked(start);
        answer.asked(start + second);
        answer.started(true);
        assert_eq!(answer.next(), Some(start + ANSWER_LIMIT), "of the first signal");
        assert_eq!(answer.due(start + second, Some((1, 7))), Due::Nothing);
        assert!(answer.is_due() && matches!(answer.due(start + ANSWER_LIMIT, Some((1, 7))), Due::End(..)));
        answer.came(false);
        assert!(!answer.is_due() && answer.next().is_none());
        answer.asked(start);
        answer.started(false);
        assert_eq!(answer.next(), None, "a worker that never answers is not waited for");
    }

    /// It was there, and then no more: the caller must not wait until the link is given up.
    #[test]
    fn after_the_answer_the_hub_is_asked_for_a_sign_of_life() {
        let start = Instant::now();
        for (heard, ends) in [(Some((1, 7)), true), (Some((1, 8)), false), (Some((2, 7)), false), (None, false)] {
            let mut answer = Awaited::default();
            answer.asked(start);
            answer.came(true);
            answer.came(true);
            let asks = start + ANSWER_LIMIT - LIFE_LIMIT;
            assert_eq!((answer.is_due(), answer.next()), (false, Some(asks)));
            assert_eq!(answer.due(start, Some((1, 7))), Due::Nothing, "too early");
            assert_eq!(answer.due(asks, Some((1, 7))), Due::Probe);
            assert_eq!(answer.next(), Some(start + ANSWER_LIMIT));
            assert_eq!(matches!(answer.due(start + ANSWER_LIMIT, heard), Due::End(..)), ends, "{heard:?}");
            assert_eq!(answer.next(), None, "from now on it is the program's");
        }
    }

    /// Here it would have had its end by the signal, while it waited for a reader.
    #[test]
    fn who_has_ended_unread_ends_by_the_signal() {
        let (start, mut answer) = (Instant::now(), Awaited::default());
        answer.asked(start);
        answer.ended(start);
        let limit = start + UNREAD_LIMIT;
        assert_eq!((answer.is_due(), answer.next()), (false, Some(limit)));
        assert_eq!(answer.due(start, Some((1, 7))), Due::Nothing);
        let mut read = Awaited::default();
        read.ended(start);
        read.is_read();
        assert_eq!((read.next(), read.due(limit, Some((1, 7)))), (None, Due::Nothing));
        assert!(matches!(answer.due(limit, None), Due::End(..)));
    }

    /// Stopped between two looks, the daemon has not read what came meanwhile.
    #[test]
    fn who_was_stopped_waits_anew() {
        let (start, pause) = (Instant::now(), Duration::from_secs(60));
        let mut answer = Awaited::default();
        answer.asked(start);
        assert_eq!(answer.due(start + pause, Some((1, 7))), Due::Nothing);
        assert_eq!(answer.next(), Some(start + pause + ANSWER_LIMIT));
        answer.came(true);
        assert_eq!(answer.due(start + pause * 2, Some((1, 7))), Due::Nothing);
        assert_eq!(answer.due(start + pause * 2, Some((1, 7))), Due::Probe);
        assert_eq!(answer.due(start + pause * 3, Some((1, 7))), Due::Nothing, "and asks once more");
        assert_eq!(answer.due(start + pause * 3, Some((1, 7))), Due::Probe);
        assert!(matches!(answer.due(start + pause * 3 + LIFE_LIMIT, Some((1, 7))), Due::End(..)));
    }

    #[test]
    fn signals_that_programs_take_for_news_are_not_the_end() {
        const SIGUSR1: u8 = 10;
        assert!([1, SIGINT, 3, 15].into_iter().all(is_ending));
        assert!([SIGUSR1, SIGCONT, SIGTSTP].into_iter().all(|signal| !is_ending(signal)));
    }
}

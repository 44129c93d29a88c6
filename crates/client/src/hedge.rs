//! Hedging: a command that was sent away and is late ([`crate::late`]) begins again, here or on another worker, and the first result counts.
//!
//! Who has done little there yet is called off, and begins anew. Who has done much runs on, and here as well, in the sandbox of this machine's own
//! pool, as in a race ([`crate::race`]). Only what may be done twice is: nothing of it was delivered, and its input can be read again.

use crate::caller::{Replies, Requests};
use crate::choice::Side;
use crate::daemon::Daemon;
use crate::ending::Phase;
use crate::exchange::Exchange;
use crate::late::{Cost, Facts, Late, Stage, judge, waits};
use crate::outputs::{Output, Stream};
use crate::polling::Polling;
use crate::race::{Contestant, Lane, contestants, once_only};
use crate::record::Record;
use crate::run::{Call, Outcome, Session};
use base::door::{Reply, Request};
use base::{Command, WindowSize};
use rustix::fd::OwnedFd;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use wire::lock;
use wire::message::{Offer, Progress};

/// When a command that was launched is looked at; later, each second.
const LOOKS: [Duration; 6] = [
    Duration::from_millis(35),
    Duration::from_millis(70),
    Duration::from_millis(130),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
];
/// Its caller is told after so long what it waits for.
const SAY_AFTER: Duration = Duration::from_secs(5);
/// A wait is seen to begin so long after the launch, at most, that is all that the command does.
const BEFORE_WAIT: Duration = Duration::from_secs(1);
/// How often a command begins again on another worker.
const MOVES_MAX: u32 = 3;
/// Of all processor time, so much at most may be spent twice, …
const EXTRA_PART: f64 = 0.05;
/// … beside so much, microseconds.
const EXTRA_US: u64 = 10_000_000;

/// What was spent on commands, and what of it a second time.
#[derive(Debug, Default)]
pub struct Hedges {
    work_us: AtomicU64,
    extra_us: AtomicU64,
    begun: AtomicU64,
}

impl Hedges {
    /// A command has come to its end after so much processor time.
    pub fn spent(&self, us: u64) {
        self.work_us.fetch_add(us, Ordering::Relaxed);
    }

    /// So much was done for nothing, since another run of the command was better.
    fn lost(&self, us: f64) {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.extra_us.fetch_add(us.max(0.0) as u64, Ordering::Relaxed);
    }

    /// Whether a command may run twice that has had, or will have, so much processor time on one of the sides in vain.
    fn allows(&self, us: f64) -> bool {
        let (work, extra) = (self.work_us.load(Ordering::Relaxed), self.extra_us.load(Ordering::Relaxed));
        extra as f64 + us <= work as f64 * EXTRA_PART + EXTRA_US as f64
    }

    /// Processor time of all commands, what of it was spent a second time, both in microseconds; and how many commands began again.
    pub fn counts(&self) -> (u64, u64, u64) {
        let [work, extra, begun] =
            [&self.work_us, &self.extra_us, &self.begun].map(|count| count.load(Ordering::Relaxed));
        (work, extra, begun)
    }
}

/// What another run of a command needs.
#[derive(Clone)]
pub(crate) struct Again {
    pub command: Command,
    pub window: Option<WindowSize>,
    pub fds: [Arc<OwnedFd>; 3],
}

impl Again {
    fn call(&self, session: &Session, contestant: Contestant) -> io::Result<Call> {
        let mut options = session.options.clone();
        // Where it runs is decided.
        (options.race, options.no_local, options.verbose) = (true, true, false);
        let descriptors = self.fds.iter().map(|fd| fd.try_clone()).collect::<io::Result<_>>()?;
        Ok(Call {
            task: session.task(),
            command: self.command.clone(),
            options,
            window: self.window,
            descriptors,
            contestant: Some(contestant),
        })
    }
}

/// The run here of a command that runs elsewhere as well.
pub(crate) struct Hedge {
    lane: Lane,
    first: watch::Receiver<Option<Side>>,
}

impl Hedge {
    /// Returns whether the run here has won, once that is known.
    pub async fn decided(&mut self) -> bool {
        let is_here = |first: &Option<Side>| *first == Some(Side::Here);
        loop {
            let said = tokio::select! {
                biased;
                first = self.first.wait_for(Option::is_some) => return first.is_ok_and(|first| is_here(&first)),
                said = self.lane.next() => said,
            };
            if said.is_none() {
                return is_here(&self.first.borrow());
            }
        }
    }

    /// What it came to.
    pub async fn finish(mut self) -> Option<(Reply, Record)> {
        while self.lane.ended().is_none() {
            self.lane.next().await;
        }
        self.lane.into_ended()
    }

    /// Passes on what the caller says.
    pub async fn tell(&self, request: &Request) {
        self.lane.tell(request).await;
    }
}

/// How a launched command comes along.
#[derive(Debug)]
pub(crate) struct Headway {
    launched: Instant,
    looks: usize,
    /// When something was heard or asked on its behalf last.
    heard: Instant,
    questions: u64,
    progress: Option<Progress>,
    is_told: bool,
    pub polling: Polling,
}

impl Headway {
    /// From its launch on, when so much had been asked.
    pub fn begin(questions: u64) -> Self {
        let now = Instant::now();
        let (progress, is_told, polling) = (None, false, Polling::default());
        Self { launched: now, looks: 0, heard: now, questions, progress, is_told, polling }
    }

    /// When to look next.
    pub fn next(&self) -> Instant {
        let last = LOOKS[LOOKS.len() - 1];
        let later = || last * (self.looks + 2 - LOOKS.len()) as u32;
        self.launched + LOOKS.get(self.looks).copied().unwrap_or_else(later)
    }

    /// Something came from its worker.
    pub fn hear(&mut self) {
        self.heard = Instant::now();
    }

    /// Its worker tells how far it has come.
    pub fn progress(&mut self, progress: Progress) {
        self.hear();
        self.progress = Some(progress);
    }

    /// It has been looked at; `questions` were asked for it so far, contents that it may wait for included. Returns whether its caller is to be told what it waits
    /// for, if it has `waited` for so long: it may have begun to wait shortly after its launch, or much later.
    pub fn look(&mut self, questions: u64, waited: Duration) -> bool {
        let now = Instant::now();
        while self.next() <= now {
            self.looks += 1;
        }
        if questions != self.questions {
            (self.questions, self.heard) = (questions, now);
        }
        let is_due = self.launched.elapsed() >= SAY_AFTER && waited + BEFORE_WAIT >= SAY_AFTER;
        is_due && !std::mem::replace(&mut self.is_told, true)
    }

    fn stage(&self, is_placed: bool, is_started: bool) -> Stage {
        let us = |time: Duration| time.as_micros() as f64;
        match &self.progress {
            _ if !is_placed => Stage::Queued,
            Some(progress) => Stage::Runs {
                ran_us: progress.ran_us as f64,
                cpu_us: progress.cpu_us as f64,
                waited_us: progress.waited_us as f64,
                rests: !progress.rests.is_empty(),
            },
            None if is_started => Stage::Runs { ran_us: 0.0, cpu_us: 0.0, waited_us: 0.0, rests: false },
            None => Stage::Starting { quiet_us: us(self.heard.elapsed()) },
        }
    }
}

/// What is to be done about a command that is late.
pub(crate) enum Remedy {
    /// End it there, and run it here.
    Here(Late),
    /// End it there, and let it begin on another worker.
    Elsewhere(Late),
    /// Let it go on there, and run it here as well.
    Both(Late),
}

impl Session {
    /// What to do about the command now, if it is late. `worker`: where it was placed, if it was.
    pub(crate) fn remedy(
        &self,
        headway: &Headway,
        worker: Option<&str>,
        is_started: bool,
        round_trip: Duration,
    ) -> Option<Remedy> {
        if self.is_contestant() || self.hedge.is_some() || self.ending.is_some() {
            return None;
        }
        let stage = headway.stage(worker.is_some(), is_started);
        let (elapsed_us, round_trip_us) =
            (headway.launched.elapsed().as_micros() as f64, round_trip.as_micros() as f64);
        let expected = self.daemon.history.expected(&self.plan.kind());
        let cost = expected.map(|of| Cost { cpu_us: of.cpu_us, all_us: of.there_us + of.other_us });
        if !waits(elapsed_us, stage, round_trip_us, cost) {
            return None;
        }
        let may_here = self.may_run_here() && !self.is_noticed();
        let offer = self.daemon.link().and_then(|link| link.offers.latest()).unwrap_or_default();
        // The offer is a moment old: it may be of the same worker. Where guests rest, the hub itself says whether there is another place.
        let is_another =
            worker.is_some_and(|worker| worker != offer.name) && !matches!(stage, Stage::Runs { rests: true, .. });
        let may_elsewhere = is_another && self.moves < MOVES_MAX && self.can_repeat();
        let facts = Facts {
            elapsed_us,
            stage,
            cost,
            share_here: if may_here { 1.0 / self.daemon.here.crowding(self.plan.command.needs.cpus) } else { 0.0 },
            share_elsewhere: if may_elsewhere && offer.is_free { f64::from(offer.share) / 1e3 } else { 0.0 },
            round_trip_us,
        };
        let late = judge(&facts)?;
        match (late.is_better_here, late.is_lost_little()) {
            (true, true) => Some(Remedy::Here(late)),
            (true, false) => {
                let may_both =
                    self.daemon.hedges.allows(late.again_us * facts.share_here) && once_only(&self.again.fds).is_none();
                may_both.then_some(Remedy::Both(late))
            }
            (false, _) => self.daemon.hedges.allows(late.lost_us).then_some(Remedy::Elsewhere(late)),
        }
    }

    /// Counts what is done again.
    pub(crate) fn begins_again(&mut self, late: &Late) {
        self.moves += 1;
        self.daemon.hedges.lost(late.lost_us);
    }

    /// Begins the command here as well. From now on nothing that the run elsewhere says is delivered before it has won.
    pub(crate) fn begin_here_too(&mut self, late: &Late) -> io::Result<()> {
        let (here, there) = contestants();
        let first = there.watch();
        let call = self.again.call(self, here)?;
        let own: Arc<Daemon> = self.daemon.clone();
        let lane = Lane::start(async move { own.own_pool.daemon(&own).await }, call);
        let output = |stream, fd: &Arc<OwnedFd>| {
            Output::new(stream, fd.clone(), self.stop.clone(), self.closing.clone(), Some(there.clone()))
        };
        let [_, stdout, stderr] = &self.again.fds;
        (self.stdout, self.stderr) = (output(Stream::Stdout, stdout), output(Stream::Stderr, stderr));
        self.becomes_contestant(there);
        self.hedge = Some(Hedge { lane, first });
        self.daemon.hedges.lost(late.lost_us.min(late.again_us));
        Ok(())
    }
}

/// What the hub's workers offer now, as far as that is known.
pub(crate) fn offered(daemon: &Daemon) -> Option<Offer> {
    daemon.link()?.offers.latest()
}

impl Exchange<'_> {
    /// Its worker says how far it has come.
    pub(crate) async fn on_progress(&mut self, progress: Progress, replies: &mut Replies) -> Option<Outcome> {
        self.record.progress(&progress);
        // Who has read something has not waited for a file.
        let questions = lock(&self.running.asked).questions + self.session.input.told();
        let may_poll = self.headway.polling.progress(&progress, questions);
        self.headway.progress(progress);
        let polls = if may_poll { self.on_polling(replies).await } else { None };
        self.session.daemon.records.tell(self.record);
        if polls.is_some() { polls } else { self.on_look(replies).await }
    }

    /// Looks whether the command is late, and does what is to be done about it. Its caller learns once what it waits for.
    pub(crate) async fn on_look(&mut self, replies: &mut Replies) -> Option<Outcome> {
        // While its files are on their way it does not wait for a processor.
        let questions = lock(&self.running.asked).questions + self.session.daemon.server.contents();
        let is_due = self.headway.look(questions, self.record.waited());
        if let (true, Some(waits)) = (is_due && self.session.is_listened_to(), self.record.waits()) {
            let place = self.record.worker().map(|worker| format!(" on {worker}")).unwrap_or_default();
            let line = format!("{waits}{place} (gleaner explain {} tells more)", self.session.task().short());
            let _ = replies.send(&Reply::Note(line)).await;
        }
        let (worker, is_started) = (self.record.worker(), self.started);
        let remedy = self.session.remedy(&self.headway, worker, is_started, self.round_trip)?;
        let waits = self.record.waits().unwrap_or_else(|| "nothing is heard of it".into());
        match remedy {
            Remedy::Here(late) => {
                self.cancel().await;
                self.session.begins_again(&late);
                Some(Outcome::Unplaced(format!("late: it {waits}; {late}")))
            }
            Remedy::Elsewhere(late) => {
                self.cancel().await;
                self.session.begins_again(&late);
                Some(Outcome::Evicted(format!("late: it {waits}; {late}")))
            }
            Remedy::Both(late) => {
                match self.session.begin_here_too(&late) {
                    Ok(()) => self.record.note(format!("late: it {waits}; {late}: it runs here as well")),
                    Err(error) => self.record.note(format!("late: it {waits}; it cannot run here as well: {error}")),
                }
                None
            }
        }
    }

    /// The run here has won, or has come to nothing.
    pub(crate) async fn on_hedged(&mut self, is_first: bool, caller: (&mut Requests, &mut Replies)) -> Option<Outcome> {
        let hedge = self.session.hedge.take()?;
        if is_first {
            self.cancel().await;
        }
        let ended = match self.session.hearing(Phase::AfterEnd, hedge.finish(), caller).await {
            Ok(ended) => ended,
            Err(ended) => return Some(ended),
        };
        match ended {
            Some(ended) if is_first => Some(Outcome::Hedged(Box::new(ended))),
            Some((reply, _)) => {
                self.record.note(format!("its run here came to nothing: {}", in_words(&reply)));
                None
            }
            None => None,
        }
    }
}

/// Whether the run here was first, once that is known.
pub(crate) async fn hedged(hedge: &mut Option<Hedge>) -> bool {
    match hedge {
        Some(hedge) => hedge.decided().await,
        None => std::future::pending().await,
    }
}

fn in_words(reply: &Reply) -> &str {
    match reply {
        Reply::RunHere { why } => why,
        Reply::Failed { message, .. } => message,
        _ => "it was not first",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_done_twice_is_bounded_by_what_is_done() {
        let hedges = Hedges::default();
        assert!(hedges.allows(EXTRA_US as f64) && !hedges.allows(EXTRA_US as f64 + 1.0));
        hedges.lost(EXTRA_US as f64);
        assert!(!hedges.allows(1.0));
        hedges.spent(1_000_000_000);
        assert!(hedges.allows(50e6) && !hedges.allows(51e6), "a twentieth");
        assert_eq!(hedges.counts(), (1_000_000_000, EXTRA_US, 1));
    }

    #[test]
    fn a_command_is_looked_at_ever_more_rarely_and_its_caller_is_told_once() {
        let mut headway = Headway::begin(0);
        assert_eq!(headway.next() - headway.launched, LOOKS[0]);
        headway.looks = LOOKS.len();
        assert_eq!(headway.next() - headway.launched, Duration::from_secs(2));
        headway.looks += 1;
        assert_eq!(headway.next() - headway.launched, Duration::from_secs(3));
        assert!(!headway.look(0, SAY_AFTER));
        headway.launched = Instant::now().checked_sub(SAY_AFTER).expect("a moment ago");
        assert!(!headway.look(0, SAY_AFTER / 2), "it has run until now");
        assert!(headway.look(0, SAY_AFTER - BEFORE_WAIT) && !headway.look(0, SAY_AFTER));
    }

    #[test]
    fn questions_and_words_are_signs_of_life() {
        let mut headway = Headway::begin(2);
        headway.heard = Instant::now().checked_sub(Duration::from_secs(1)).expect("a moment ago");
        let quiet = |headway: &Headway| match headway.stage(true, false) {
            Stage::Starting { quiet_us } => quiet_us,
            other => panic!("{other:?}"),
        };
        headway.look(2, Duration::ZERO);
        assert!(quiet(&headway) >= 1e6, "what was asked before it is none");
        headway.look(3, Duration::ZERO);
        assert!(quiet(&headway) < 1e6);
        assert_eq!(headway.stage(false, false), Stage::Queued);
        headway.progress(Progress { ran_us: 9, cpu_us: 4, waited_us: 5, rests: String::new() });
        assert!(matches!(headway.stage(true, true), Stage::Runs { cpu_us, rests: false, .. } if cpu_us == 4.0));
    }
}

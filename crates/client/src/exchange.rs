//! The streams of one attempt: what the caller says and types goes to the task, what the task says comes back, until the
//! task has ended one way or the other.

use crate::arrivals::Arrivals;
use crate::call_off::called;
use crate::caller::{Replies, Requests};
use crate::ending::{Awaited, Phase, cancelled, impossible_end, leaves_running};
use crate::hedge::{Headway, hedged};
use crate::hold::{FRAME_BYTES, Held};
use crate::input::{finished, wanted};
use crate::link_wait::LinkWait;
use crate::listening;
use crate::outputs::{Differs, REPEATED_DIFFERENTLY, Stream, reserve};
use crate::peek::Looked;
use crate::record::{Record, TOLD_BYTES_MAX};
use crate::run::{Outcome, Session};
use crate::serve::Running;
use crate::signatures::Signed;
use crate::spool::Spool;
use crate::stops::Stops;
use base::door::Request;
use base::path::told;
use bytes::Bytes;
use prost::Message as _;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use wire::message::{
    Exited, Failed, FailedKind, InputKind, LockRequest, Object, OutputKind, Resting, TaskInput, TaskOutput,
};
use wire::quiet::HUB_QUIET_MAX;
use wire::signed::Streams;
use wire::{Connection, Quiet, Receiver, Sender, WireError, convert, until};

/// How long a cancelled task may take to end before it begins again.
const CANCEL_TIME_MAX: Duration = Duration::from_secs(5);
/// Most bytes of output that are taken while their reader does not, to find the answer to a signal behind them.
const BEHIND_BYTES_MAX: usize = 1 << 20;
/// The same to find the end of a command that its caller wants to end: more than is on its way from a program that is gone.
const BEHIND_BYTES_LAST: usize = 32 << 20;
/// How long it may take to hand over that a task is cancelled; the stream's end says the same.
const CANCEL_LIMIT: Duration = Duration::from_millis(100);

/// The streams of one attempt.
pub struct Exchange<'a> {
    pub(crate) session: &'a mut Session,
    pub(crate) to_task: Sender,
    from_task: Receiver,
    pub(crate) signed: Signed,
    pub(crate) record: &'a mut Record,
    pub(crate) started: bool,
    /// Input that waits for credit.
    pub(crate) unsent: VecDeque<Bytes>,
    pub(crate) end_sent: bool,
    pub(crate) credit: usize,
    /// A frame that waits for its writer. Until it is taken no other is read, and the task feels it.
    waiting: Option<(mpsc::Sender<Bytes>, Bytes)>,
    /// What is not delivered yet, since the task is young.
    held: Held,
    /// Why the task was called off, once it was.
    calls: watch::Receiver<Option<String>>,
    arrivals: Option<Arrivals>,
    pub(crate) exited: Option<Box<Exited>>,
    /// Over which the hub speaks, and how long it has said nothing.
    connection: Connection,
    pub(crate) quiet: Quiet,
    pub(crate) stops: Stops,
    /// The hub has found a place for it.
    has_place: bool,
    pub(crate) signal: Option<u8>,
    /// The worker says when a signal has reached the program.
    is_answered: bool,
    /// That it says so is waited for.
    pub(crate) answer: Awaited,
    /// What came while `waiting` was full, and its bytes.
    behind: VecDeque<OutputKind>,
    behind_bytes: usize,
    link: LinkWait,
    pub(crate) running: Arc<Running>,
    pub(crate) headway: Headway,
    pub(crate) round_trip: Duration,
}

/// What happens next.
enum Next {
    Caller(Option<Request>),
    Closed(Stream),
    Room(Option<mpsc::OwnedPermit<Bytes>>),
    Input(Looked),
    /// Others would read the same input.
    Wanted,
    Frame(Result<Option<TaskOutput>, WireError>),
    Cancel,
    /// The task does what cannot be done elsewhere.
    CalledOff(String),
    /// Output has been held back for long enough.
    Deliver,
    /// The link is silent, or back, or has moved.
    Link,
    /// It was silent for too long.
    GivenUp,
    /// The hub is heard, and says nothing of the task.
    Quiet,
    /// Nobody has said that a signal has reached the program.
    Unanswered,
    /// It is time to look whether it is late.
    Look,
    /// Its run here has won, or has come to nothing.
    Hedged(bool),
}

impl<'a> Exchange<'a> {
    /// Over the two halves of a launch's stream.
    pub(crate) fn new(
        session: &'a mut Session,
        connection: &Connection,
        ((to_task, from_task), signed): ((Sender, Receiver), Signed),
        record: &'a mut Record,
        running: &Arc<Running>,
    ) -> Self {
        let held = Held::new(session.hold);
        let daemon = &session.daemon;
        let arrivals = Arrivals::new(Spool::new(daemon.spool_folder()), daemon.server.clone(), connection.clone());
        let link = LinkWait::new(daemon.link(), daemon.settings.choices().link_wait);
        let contents = daemon.server.contents();
        let unsent = Some(session.input.begin()).filter(|repeated| !repeated.is_empty()).into_iter().collect();
        Self {
            session,
            to_task,
            from_task,
            signed,
            record,
            started: false,
            unsent,
            end_sent: false,
            credit: 0,
            waiting: None,
            held,
            calls: running.called_off.subscribe(),
            arrivals: Some(arrivals),
            exited: None,
            connection: connection.clone(),
            quiet: Quiet::new(HUB_QUIET_MAX),
            stops: Stops::default(),
            has_place: false,
            signal: None,
            is_answered: false,
            answer: Awaited::default(),
            behind: VecDeque::new(),
            behind_bytes: 0,
            link,
            running: running.clone(),
            headway: Headway::begin(contents),
            round_trip: connection.round_trip(),
        }
    }

    /// Passes everything both ways until the end.
    pub(crate) async fn pass(mut self, requests: &mut Requests, replies: &mut Replies) -> Outcome {
        let outcome = self.pass_all(requests, replies).await;
        if self.answer.is_due() {
            self.session.ending = self.session.ending.or(self.signal);
        }
        outcome
    }

    async fn pass_all(&mut self, requests: &mut Requests, replies: &mut Replies) -> Outcome {
        loop {
            self.feed().await;
            if self.session.is_noticed() {
                self.running.called_off.note_noticed();
            }
            let next = self.next(requests).await;
            let outcome = match next {
                Next::Caller(request) => self.on_caller(request, replies).await,
                Next::Closed(stream) => self.on_closed(stream).await,
                Next::Cancel => self.on_cancel().await,
                Next::CalledOff(why) => self.on_called_off(why).await,
                Next::Deliver => self.on_deliver(),
                Next::Link => self.on_link(),
                Next::Quiet => self.on_quiet().await,
                Next::GivenUp => Some(Outcome::Unplaced(self.link.given_up())),
                Next::Room(permit) => self.on_room(permit),
                Next::Input(read) => self.on_input(read).await,
                Next::Wanted => self.on_wanted(),
                Next::Unanswered => self.on_unanswered().await,
                Next::Look => self.on_look(replies).await,
                Next::Hedged(is_first) => self.on_hedged(is_first, (requests, replies)).await,
                Next::Frame(Ok(Some(TaskOutput { kind }))) => match kind {
                    Some(kind) if self.waiting.is_some() => self.on_behind(kind),
                    Some(kind) => self.on_output(kind, requests, replies).await,
                    None => None,
                },
                Next::Frame(Ok(None)) => Some(Outcome::Lost("the hub ended the task's stream early".into())),
                Next::Frame(Err(error)) => Some(Outcome::Lost(error.to_string())),
            };
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
    }

    async fn next(&mut self, requests: &mut Requests) -> Next {
        let goes_on = self.goes_on();
        if let Some(kind) = self.next_behind() {
            return Next::Frame(Ok(Some(kind.into())));
        }
        if !goes_on {
            self.quiet.heard();
        }
        let session = &mut *self.session;
        let idle = session.input.idle();
        let writer = self.waiting.as_ref().map(|(writer, _)| writer.clone());
        let next = tokio::select! {
            biased;
            request = requests.next() => Next::Caller(request),
            Some(stream) = session.closed.recv() => Next::Closed(stream),
            () = asked(&session.cancel) => Next::Cancel,
            why = called(&mut self.calls) => Next::CalledOff(why),
            () = until(self.answer.next()) => Next::Unanswered,
            given_up = self.link.next() => if given_up { Next::GivenUp } else { Next::Link },
            permit = reserve(writer), if self.waiting.is_some() => Next::Room(permit),
            () = self.held.over() => Next::Deliver,
            is_first = hedged(&mut session.hedge) => Next::Hedged(is_first),
            () = until(Some(self.headway.next())) => Next::Look,
            frame = self.from_task.next::<TaskOutput>(), if goes_on => Next::Frame(frame),
            read = finished(&mut session.input.reading), if session.input.reading.is_some() => {
                session.input.reading = None;
                Next::Input(read)
            }
            () = wanted(idle) => Next::Wanted,
            () = self.quiet.over(&self.connection), if goes_on => Next::Quiet,
        };
        if let Next::Frame(Ok(Some(output))) = &next {
            self.hears(output);
        }
        next
    }

    /// Says something to the task. If it cannot be said, the connection is lost, which the reading side reports.
    pub(crate) async fn tell(&mut self, kind: InputKind) {
        let _ = self.to_task.send(&TaskInput::from(kind)).await;
    }

    async fn on_caller(&mut self, request: Option<Request>, replies: &mut Replies) -> Option<Outcome> {
        match request {
            Some(Request::Signal(signal)) => self.on_caller_signal(signal, replies).await,
            Some(Request::Resize(window)) => {
                self.tell(InputKind::Resize(convert::window_number(window))).await;
                None
            }
            Some(Request::Foreground(owned)) => {
                self.session.input.set_foreground(owned);
                None
            }
            Some(
                Request::Run { .. }
                | Request::Job { .. }
                | Request::Submit { .. }
                | Request::Tasks(_)
                | Request::Submitted
                | Request::Outcome(_)
                | Request::Ask(_),
            ) => None,
            None => {
                self.cancel().await;
                Some(Outcome::Cancelled(None))
            }
        }
    }

    /// Nobody wants the task any more.
    pub(crate) async fn cancel(&mut self) {
        let _ = tokio::time::timeout(CANCEL_LIMIT, self.tell(InputKind::Cancel(true))).await;
        self.to_task.finish();
    }

    /// Whether the next frame is taken: not if an earlier one waits for its writer, unless it may be the answer to a signal, the end that
    /// it asks for, or what others wait for who read the same input.
    fn goes_on(&self) -> bool {
        let wants_end = self.session.ending.is_some() && self.behind_bytes < BEHIND_BYTES_LAST;
        let is_there = matches!(self.behind.back(), Some(OutputKind::End(_) | OutputKind::Failed(_)));
        let is_asked = self.answer.is_due() || self.session.input.is_being_given_back();
        let wants_answer = is_asked && self.behind_bytes < BEHIND_BYTES_MAX;
        self.waiting.is_none() || (wants_end || wants_answer) && !is_there
    }

    /// What came while an earlier frame waited for its writer.
    fn on_behind(&mut self, kind: OutputKind) -> Option<Outcome> {
        match kind {
            OutputKind::Signalled(_) => {
                self.on_answer();
                return None;
            }
            OutputKind::Alive(_) => return None,
            kind if self.hears_of_input(&kind) => return None,
            _ => {}
        }
        self.on_last(&kind);
        self.behind_bytes += TaskOutput::from(kind.clone()).encoded_len() + FRAME_BYTES;
        self.behind.push_back(kind);
        self.answer_is_behind();
        None
    }

    /// Whether something that came waits for its writer.
    pub(crate) fn is_held_up(&self) -> bool {
        self.waiting.is_some() || !self.behind.is_empty()
    }

    /// The end may have come, and wait behind output.
    pub(crate) fn look_for_end_behind(&mut self) {
        if let Some(end) = self.behind.iter().find(|kind| matches!(kind, OutputKind::Exited(_))).cloned() {
            self.on_last(&end);
        }
    }

    /// Somebody says all that is behind; where that is much, the answer may be behind it.
    pub(crate) fn answer_is_behind(&mut self) {
        if self.behind_bytes >= BEHIND_BYTES_MAX {
            self.on_answer();
        }
    }

    fn next_behind(&mut self) -> Option<OutputKind> {
        let kind = if self.waiting.is_none() { self.behind.pop_front() } else { None };
        if self.behind.is_empty() {
            self.behind_bytes = 0;
        }
        kind
    }

    async fn on_cancel(&mut self) -> Option<Outcome> {
        self.cancel().await;
        Some(cancelled())
    }

    async fn on_called_off(&mut self, why: String) -> Option<Outcome> {
        self.cancel().await;
        Some(Outcome::Unable(why))
    }

    /// Cancels the task and waits until the hub has let go of it: it may begin again at once, under the same number.
    async fn cancel_to_the_end(&mut self) {
        self.cancel().await;
        let ended = async {
            while let Ok(Some(TaskOutput { kind })) = self.from_task.next::<TaskOutput>().await {
                if matches!(kind, Some(OutputKind::End(_) | OutputKind::Failed(_))) {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(CANCEL_TIME_MAX, ended).await;
    }

    /// The task waits for a lock. It gets it at once or not at all.
    async fn on_lock(&mut self, request: LockRequest) -> Option<Outcome> {
        let number = request.number;
        match self.session.lock_for_task(request).await {
            Ok(()) => {
                self.tell(InputKind::Locked(number)).await;
                None
            }
            Err(why) => {
                self.cancel_to_the_end().await;
                Some(Outcome::Contended(why))
            }
        }
    }

    /// What becomes of a task that has ended and whose result is not that of a run here.
    async fn disqualified(&mut self, exited: &Exited) -> Option<Outcome> {
        if let Some(why) = impossible_end(exited) {
            return Some(Outcome::Refused(why));
        }
        if let Some(why) = self.session.overtaken().await {
            return Some(Outcome::Contended(why));
        }
        if let Err(why) = self.session.lock_what_it_made(exited).await {
            return Some(Outcome::Contended(why));
        }
        let name = exited.left.first().filter(|_| !self.session.options.no_local && !self.session.is_noticed())?;
        Some(Outcome::Unable(leaves_running(name)))
    }

    fn on_deliver(&mut self) -> Option<Outcome> {
        self.held.end();
        self.deliver_next()
    }

    /// Who has not been placed can as well run here; who has, waits for the link.
    fn on_link(&mut self) -> Option<Outcome> {
        let (notes, is_silent) = self.link.on_change();
        notes.into_iter().for_each(|note| self.record.note(note));
        self.record.link_is_silent(is_silent);
        let may_run_here = self.record.worker().is_none() && !self.session.options.no_local;
        (is_silent && may_run_here).then(|| Outcome::Unplaced(self.link.silence()))
    }

    fn on_room(&mut self, permit: Option<mpsc::OwnedPermit<Bytes>>) -> Option<Outcome> {
        if let (Some((_, frame)), Some(permit)) = (self.waiting.take(), permit) {
            permit.send(frame);
        }
        self.deliver_next()
    }

    async fn on_output(&mut self, kind: OutputKind, requests: &mut Requests, replies: &mut Replies) -> Option<Outcome> {
        self.on_last(&kind);
        match kind {
            OutputKind::Stdout(bytes) => return self.deliver((Stream::Stdout, Streams::STDOUT), bytes),
            OutputKind::Stderr(bytes) => return self.deliver((Stream::Stderr, Streams::STDERR), bytes),
            OutputKind::Terminal(bytes) => return self.deliver((Stream::Terminal, Streams::TERMINAL), bytes),
            OutputKind::StdinTaken(_) | OutputKind::StdinCredit(_) | OutputKind::StdinBack(_) => {
                self.hears_of_input(&kind);
            }
            OutputKind::Placed(placed) => {
                self.has_place = true;
                self.record.placed(&placed);
                self.signed.placed(&placed);
                self.headway.hear();
                self.is_answered = placed.answers_signals;
                self.session.daemon.records.tell(self.record);
            }
            OutputKind::Started(_) if self.started => {}
            OutputKind::Started(_) => {
                self.started = true;
                self.held.start(tokio::time::Instant::now());
                self.answer.started(self.is_answered);
                self.record.moment("command started");
                self.session.give_keys(true, replies).await;
                self.on_started().await;
            }
            OutputKind::Signalled(_) => self.on_answer(),
            OutputKind::Resting(resting) => return self.on_resting(resting).await,
            OutputKind::Stopped(signal) => self.on_stopped(signal, replies).await,
            OutputKind::Alive(_) => {}
            OutputKind::Progress(progress) => return self.on_progress(progress, replies).await,
            OutputKind::Lock(request) => return self.on_lock(request).await,
            OutputKind::Service(request) => self.tell(InputKind::Service(listening::answer(request))).await,
            OutputKind::Exited(_) if self.exited.is_some() => {
                return Some(Outcome::Lost("the worker ended the command twice".into()));
            }
            OutputKind::Exited(exited) => {
                self.record.moment("command ended");
                self.session.give_keys(false, replies).await;
                self.answer.is_read();
                self.signed.ended(&exited);
                if let Some(outcome) = self.disqualified(&exited).await {
                    self.cancel_to_the_end().await;
                    return Some(outcome);
                }
                let expected = self.arrivals.as_mut().map_or(Ok(()), |arrivals| arrivals.expect(&exited.changes));
                let mut objects = exited.objects.iter();
                let kept = expected.and_then(|()| objects.try_for_each(|object| self.keep(object)));
                self.exited = Some(exited);
                return kept.err().map(Outcome::Lost).or_else(|| self.on_deliver());
            }
            OutputKind::Object(object) => return self.keep(&object).err().map(Outcome::Lost),
            OutputKind::End(_) => return Some(self.on_end(requests, replies).await),
            OutputKind::Failed(failed) => return Some(self.on_failed(failed)),
        }
        None
    }

    /// Guests rest where it runs: it is done again elsewhere, or here, if nobody notices.
    async fn on_resting(&mut self, resting: Resting) -> Option<Outcome> {
        let session = &*self.session;
        let may_be_here = !session.options.no_local && !session.is_noticed();
        let goes = session.contestant.is_none() && session.can_repeat() && (resting.elsewhere || may_be_here);
        if !goes {
            return None;
        }
        let why = format!("guests rest where it ran: {}", told(&resting.why, TOLD_BYTES_MAX));
        self.cancel().await;
        Some(if resting.elsewhere { Outcome::Evicted(why) } else { Outcome::Unplaced(why) })
    }

    async fn on_end(&mut self, requests: &mut Requests, replies: &mut Replies) -> Outcome {
        self.record.moment("result arrived");
        let Some(arrivals) = self.arrivals.take() else { return Outcome::Lost("a result ended twice".into()) };
        let changes = self.exited.as_ref().map(|exited| &exited.changes[..]).unwrap_or_default();
        let finishing = arrivals.finish(changes);
        let spool = match self.session.hearing(Phase::AfterEnd, finishing, (requests, replies)).await {
            Ok(spool) => spool,
            Err(ended) => return ended,
        };
        self.tell(InputKind::Settled(true)).await;
        self.to_task.finish();
        match (spool, self.exited.take()) {
            (Ok(spool), Some(exited)) => {
                let accepted = self.accept(&exited);
                match self.session.hearing(Phase::AfterEnd, accepted, (requests, replies)).await {
                    Ok(Ok(())) => Outcome::Ended(exited, Box::new(spool)),
                    Ok(Err(why)) => Outcome::Lost(why),
                    Err(ended) => ended,
                }
            }
            (Ok(_), None) => Outcome::Lost("the worker sent no result".into()),
            (Err(why), _) => Outcome::Lost(why),
        }
    }

    /// Whether this part of the result is here.
    pub(crate) fn has(&self, object: &Object) -> bool {
        self.arrivals.as_ref().is_some_and(|arrivals| arrivals.has(object))
    }

    fn keep(&mut self, object: &Object) -> Result<(), String> {
        self.arrivals
            .as_mut()
            .map_or_else(|| Err("a result came after its end".into()), |arrivals| arrivals.take(object))
    }

    fn on_failed(&mut self, failed: Failed) -> Outcome {
        let failed = Failed { message: told(&failed.message, TOLD_BYTES_MAX), ..failed };
        self.session.absence.is_passing = failed.is_passing;
        // Without a place it never left the hub. After that its worker alone knows.
        self.session.may_have_begun &= self.has_place && !failed.is_not_begun;
        match failed.reason() {
            FailedKind::Exec if self.started => {
                Outcome::Lost("its worker says that it began, and then that it could not".into())
            }
            FailedKind::Exec => Outcome::NotExecuted(failed),
            FailedKind::Trouble | FailedKind::ViewGap => Outcome::Lost(failed.message),
            FailedKind::Evicted => Outcome::Evicted(failed.message),
            FailedKind::NoWorker => Outcome::Unplaced(failed.message),
            FailedKind::Unable => Outcome::unable(failed.message),
            FailedKind::Cancelled if !self.started => Outcome::Cancelled(self.signal),
            FailedKind::Cancelled | FailedKind::Refused | FailedKind::Changed => Outcome::Refused(failed.message),
        }
    }

    /// Takes a frame of output, which is delivered at once unless the task is young.
    fn deliver(&mut self, (stream, counted): (Stream, usize), bytes: Bytes) -> Option<Outcome> {
        if self.exited.is_some() {
            // The end is said, and signed, after all output.
            return Some(Outcome::Lost("output came after the command's end".into()));
        }
        self.signed.said(counted, &bytes);
        self.held.push(stream, bytes);
        self.deliver_next()
    }

    /// Delivers what is not held back, until a writer makes it wait.
    fn deliver_next(&mut self) -> Option<Outcome> {
        while self.waiting.is_none()
            && let Some((stream, bytes)) = self.held.next_due()
        {
            let outcome = self.hand_over(stream, bytes);
            if outcome.is_some() {
                return outcome;
            }
        }
        None
    }

    /// Hands a frame of output to its writer, who may make it wait.
    fn hand_over(&mut self, stream: Stream, bytes: Bytes) -> Option<Outcome> {
        let output = match stream {
            Stream::Stdout => &mut self.session.stdout,
            Stream::Stderr => &mut self.session.stderr,
            Stream::Terminal => &mut self.session.terminal,
        };
        match output.fresh(bytes) {
            Err(Differs) => return Some(Outcome::Refused(REPEATED_DIFFERENTLY.into())),
            Ok(fresh) if !fresh.is_empty() => {
                self.running.called_off.note_noticed();
                self.waiting = output.sender().map(|writer| (writer, fresh));
            }
            Ok(_) => {}
        }
        None
    }
}

pub(crate) const SIGCONT: u8 = 18;
pub(crate) const SIGTSTP: u8 = 20;

pub(crate) async fn asked(cancel: &Option<Arc<Notify>>) {
    match cancel {
        Some(cancel) => cancel.notified().await,
        None => std::future::pending().await,
    }
}

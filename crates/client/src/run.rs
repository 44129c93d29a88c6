//! One command, from the caller's request to its end: where it runs, its launch, its streams, its result.
//!
//! The way of a command: [`run`] decides whether it can run elsewhere; [`attempt`] launches it at the hub and passes its
//! streams both ways; [`settle`] commits what it left behind. A task that came to nothing is tried again, then run here.

use crate::absence::Absence;
pub use crate::call::Call;
use crate::caller::{Replies, Requests};
use crate::choice::Side;
use crate::daemon::Daemon;
use crate::ending::{Phase, heed};
use crate::exchange::Exchange;
use crate::hedge::{Again, Hedge};
use crate::hold::Hold;
use crate::input::Input;
use crate::link::{Link, Reach};
use crate::locks::TaskLocks;
use crate::not_executed::contradiction;
use crate::outputs::{Differs, Output, REPEATED_DIFFERENTLY, Stream, with_lost_output};
use crate::plan::{NotPlanned, Plan, now_seconds};
use crate::race::{self, Contestant};
use crate::record::Record;
use crate::serve::{Running, blocking};
use crate::settings::Prefer;
use crate::settle::{AtEnd, Settled, settle};
use crate::spool::Spool;
use crate::stdio::{self, Stop};
use crate::takeoff::{Checked, QuestionsEnd, message};
use crate::weigh::{plan_and_weigh, run_there};
use base::door::{Options, Reply};
use base::{Command, Stdin, TaskId, Time, TreePath, WindowSize};
use rustix::fd::OwnedFd;
use std::sync::Arc;
use tokio::sync::{Notify, OwnedMutexGuard, mpsc};
use wire::message::{Exited, Failed, Launch};
use wire::{Joined, convert, lock, now_nanos};

/// How often a task is launched before it is given up.
const ATTEMPTS_MAX: u32 = 3;
/// How often a task may have to make room for owners.
const EVICTIONS_MAX: u32 = 20;
/// Paths that were kept back and that its caller is told of at the command's end; `gleaner explain` has all.
const NOTES_MAX: usize = 3;
const READ_BY_OTHERS: &str =
    "nothing committed: another program has read from its standard input what the command was given";
/// Exit status of a command that did not take place.
pub const CODE_FAILED: u8 = 125;

/// How an attempt came out.
pub(crate) enum Outcome {
    /// The command ended, and its result is here.
    Ended(Box<Exited>, Box<Spool>),
    /// It could not be executed: not found (127) or not executable (126).
    NotExecuted(Failed),
    /// It came to nothing; another attempt may do better.
    Lost(String),
    /// The owner of the machine where it was needs that himself.
    Evicted(String),
    /// It came to nothing, and another attempt would not do better: run it here.
    Unplaced(String),
    /// It was called off: it does what cannot be done elsewhere. Such commands are run here from now on.
    Unable(String),
    /// The same, for what may be otherwise for the next one of the kind.
    UnableNow(String),
    /// It wants a lock that another command has, or had.
    Contended(String),
    /// It came to nothing, for a reason that the caller must see.
    Refused(String),
    /// The caller is gone, or a signal reached the task before it started.
    Cancelled(Option<u8>),
    /// It was begun here as well, and that run came to this first.
    Hedged(Box<(Reply, Record)>),
}

/// Runs a command for a caller, and answers it in any case.
pub async fn run(
    daemon: Arc<Daemon>,
    command: Command,
    options: Options,
    window: Option<WindowSize>,
    descriptors: Vec<OwnedFd>,
    mut requests: Requests,
    mut replies: Replies,
) {
    let task = TaskId(rand::random());
    let mut record = Record::new(task, &command);
    let cancel = daemon.records.begin(&record);
    let (verbose, becomes) = (options.verbose, options.becomes);
    let call = Call { task, command, options, window, descriptors, contestant: None };
    let no_race = if call.options.race { race::cannot_race(&daemon, &call) } else { None };
    let reply = if call.options.race && no_race.is_none() {
        let raced = race::run(&daemon, call, &mut requests, &mut replies, &cancel).await;
        record = raced.record;
        raced.reply
    } else {
        no_race.into_iter().for_each(|why| record.note(format!("no race: {why}")));
        carry_out(&daemon, call, &mut requests, &mut replies, &mut record, Some(cancel)).await
    };
    // Who runs it himself is kept from nothing, and a failure for it says so.
    if matches!(reply, Reply::Done(_)) {
        for kept in record.kept_back().iter().take(NOTES_MAX) {
            let _ = replies.send(&Reply::Note(kept.to_string())).await;
        }
        for left in record.left_behind().iter().take(NOTES_MAX) {
            let _ = replies.send(&Reply::Note(left.clone())).await;
        }
    }
    if verbose {
        let _ = replies.send(&Reply::Note(record.summary())).await;
    }
    // As long as it waits for our answer it is who it was.
    let process = if becomes && matches!(reply, Reply::RunHere { .. }) { replies.process() } else { None };
    if replies.send(&reply).await.is_ok()
        && let (Some(kind), Some(process)) = (record.kind(), process)
    {
        daemon.here.watch(kind, process);
    }
    daemon.records.end(record, &reply);
}

/// Takes a command to its end at one pool, and returns the answer.
pub(crate) async fn carry_out(
    daemon: &Arc<Daemon>,
    call: Call,
    requests: &mut Requests,
    replies: &mut Replies,
    record: &mut Record,
    cancel: Option<Arc<Notify>>,
) -> Reply {
    match Session::prepare(daemon, call, record).await {
        Ok(mut session) => {
            session.cancel = cancel;
            session.carry(requests, replies, record).await
        }
        Err(reply) => reply,
    }
}

/// The answer to a caller whose command does not go, for this reason.
fn here(why: String, no_local: bool) -> Reply {
    match no_local {
        false => Reply::RunHere { why },
        true => Reply::Failed { message: format!("{why}, and --no-local forbids to run it here"), code: CODE_FAILED },
    }
}

/// The answer to a caller whose command was not planned.
fn not_planned(why: Option<NotPlanned>, no_local: bool, record: &mut Record) -> Reply {
    match why {
        None => here("the client daemon failed".into(), no_local),
        Some(NotPlanned::NotFound(missing)) if no_local => {
            Reply::Failed { code: missing.exit_code(), message: missing.to_string() }
        }
        Some(why) => {
            if let NotPlanned::Better(kind, choice) = &why {
                record.weighed(*kind, choice);
            }
            here(why.to_string(), no_local)
        }
    }
}

/// A command on its way.
pub(crate) struct Session {
    pub(crate) daemon: Arc<Daemon>,
    task: TaskId,
    pub(crate) plan: Plan,
    pub(crate) checked: Option<Checked>,
    pub(crate) options: Options,
    pub(crate) stdout: Output,
    pub(crate) stderr: Output,
    pub(crate) terminal: Output,
    /// Told of outputs that nobody reads any more.
    pub(crate) closed: mpsc::UnboundedReceiver<Stream>,
    pub(crate) stop: Stop,
    pub(crate) input: Input,
    /// Told when somebody asks `gleaner cancel`.
    pub(crate) cancel: Option<Arc<Notify>>,
    /// The signal by which the caller wants it to end.
    pub(crate) ending: Option<u8>,
    /// It may use the network, and may have begun: it does so once only.
    pub(crate) may_have_begun: bool,
    /// The caller was told that what is typed is the task's.
    pub(crate) gives_keys: bool,
    /// The caller was told to stop, as the task did or, if it has not started, as it will.
    pub(crate) caller_stopped: bool,
    pub(crate) contestant: Option<Contestant>,
    /// Its run here, if it was late elsewhere and runs on both sides now.
    pub(crate) hedge: Option<Hedge>,
    /// What it knows of workers that are away.
    pub(crate) absence: Absence,
    /// How often it has begun again because it was late.
    pub(crate) moves: u32,
    /// What another run needs.
    pub(crate) again: Again,
    /// Told of outputs that nobody reads any more.
    pub(crate) closing: mpsc::UnboundedSender<Stream>,
    /// What is locked for it here.
    pub(crate) locks: TaskLocks,
    /// Signals that came before the command ran, and do not end it.
    pub(crate) held_signals: Vec<u8>,
    /// Outputs that nobody reads any more: each attempt is told when it has started.
    pub(crate) unread: Vec<Stream>,
    /// How long a young task's output is held back.
    pub(crate) hold: Hold,
}

impl Session {
    /// Decides whether the command can run elsewhere. The error is the answer to a caller whose command cannot.
    async fn prepare(daemon: &Arc<Daemon>, call: Call, record: &mut Record) -> Result<Self, Reply> {
        let Call { task, command, options, window, descriptors, contestant } = call;
        let no_local = options.no_local;
        let [stdin, stdout, stderr]: [OwnedFd; 3] = match descriptors.try_into() {
            Ok(three) => three,
            // The kernel drops those for which a process has no room.
            Err(_) => {
                let why =
                    "its standard streams did not reach the client daemon, which has too many files open (ulimit -n)";
                return Err(here(why.into(), no_local));
            }
        };
        let job = match options.job.map(|job| daemon.jobs.get(job).ok_or("the job that it belongs to has ended")) {
            Some(Err(why)) => return Err(Reply::Failed { message: why.into(), code: CODE_FAILED }),
            Some(Ok(job)) => Some(job),
            None => None,
        };
        let failed = |error: std::io::Error| here(format!("this machine is short of resources: {error}"), no_local);
        if let Some(why) = options.here.clone() {
            return Err(here(why, no_local));
        }
        let fds = [stdin, stdout, stderr].map(Arc::new);
        let again = Again { command: command.clone(), window, fds: fds.clone() };
        let planned = plan_and_weigh(daemon, command, (&options, window, job), &fds).await;
        let (checked, plan, choice) = planned.map_err(|why| not_planned(why, no_local, record))?;
        record.planned(&plan);
        choice.iter().for_each(|choice| record.weighed(plan.kind(), choice));
        let seen_since = plan.view.epoch().map_or(plan.launched(), |epoch| epoch.started());
        let stop = Stop::new().map_err(failed)?;
        let (closing, closed) = mpsc::unbounded_channel();
        let output = |stream, fd: &Arc<OwnedFd>| {
            Output::new(stream, fd.clone(), stop.clone(), closing.clone(), contestant.clone())
        };
        let shown = fds.iter().skip(1).chain(&fds[..1]).find(|fd| stdio::is_terminal(fd)).unwrap_or(&fds[1]);
        Ok(Self {
            task,
            stdout: output(Stream::Stdout, &fds[1]),
            stderr: output(Stream::Stderr, &fds[2]),
            terminal: output(Stream::Terminal, shown),
            closed,
            input: Input::new(fds[0].clone()),
            cancel: None,
            ending: None,
            may_have_begun: false,
            gives_keys: false,
            caller_stopped: false,
            held_signals: Vec::new(),
            unread: Vec::new(),
            contestant,
            hedge: None,
            absence: Absence::default(),
            moves: 0,
            again,
            closing,
            daemon: daemon.clone(),
            plan,
            checked,
            options,
            stop,
            locks: TaskLocks::new(seen_since),
            hold: Hold::new(&fds),
        })
    }

    /// Launches until it is done or given up.
    async fn carry(&mut self, requests: &mut Requests, replies: &mut Replies, record: &mut Record) -> Reply {
        let terminal = self.plan.has_terminal();
        if replies.send(&Reply::Launched { task: self.task, terminal }).await.is_err() {
            return self.gone();
        }
        let _alone = match self.wait_for_tree(requests, replies).await {
            Ok(alone) => alone,
            Err(ended) => return self.ended(ended),
        };
        let mut trouble = String::new();
        let (mut attempt, mut evictions) = (0, 0);
        while attempt - evictions < ATTEMPTS_MAX && evictions < EVICTIONS_MAX {
            attempt += 1;
            record.attempts = attempt;
            let outcome = heed(self.attempt(attempt, requests, replies, record).await, self.ending);
            self.input.rest_unless(matches!(outcome, Outcome::Ended(..)));
            evictions += u32::from(matches!(outcome, Outcome::Evicted(_)));
            match outcome {
                Outcome::Ended(exited, spool) => {
                    return self.conclude(*exited, *spool, (requests, replies), record).await;
                }
                Outcome::NotExecuted(failed) => return self.not_executed(&failed),
                Outcome::Cancelled(signal) => return self.cancelled(signal),
                Outcome::Refused(why) => return self.fail(why),
                Outcome::Unplaced(why) => match self.wait_for_rest((requests, replies), record).await {
                    Ok(true) => {
                        attempt -= 1;
                        trouble = if trouble.is_empty() { why } else { trouble };
                    }
                    Ok(false) if trouble.is_empty() || trouble == why => return self.fall_back(why).await,
                    Ok(false) => return self.fall_back(format!("{trouble}\n  then: {why}")).await,
                    Err(Outcome::Cancelled(signal)) => return self.cancelled(signal),
                    Err(_) => return self.gone(),
                },
                Outcome::Contended(why) => {
                    record.note(format!("called off: {why}"));
                    let again = self.begins_again_for_lock() && evictions < EVICTIONS_MAX;
                    record.begins_waiting(&format!("waits for a lock: {why}"));
                    let waited = self.wait_for_lock(again, (requests, replies)).await;
                    record.goes_on();
                    if let Err(ended) = waited {
                        return self.ended(ended);
                    }
                    let left = if again { self.leave_epoch().await } else { Err(why.clone()) };
                    if let Err(why) = left {
                        return self.fall_back(why).await;
                    }
                    evictions += 1;
                    trouble = why;
                    self.stdout.start_over();
                    self.stderr.start_over();
                }
                Outcome::Unable(why) => return self.called_off(why, record).await,
                Outcome::UnableNow(why) => return self.called_off_now(why, record).await,
                Outcome::Hedged(ended) => return self.was_first_here(*ended, record),
                Outcome::Lost(why) | Outcome::Evicted(why) => {
                    tracing::warn!(task = %self.task, attempt, why, "an attempt came to nothing");
                    record.note(format!("attempt {attempt} came to nothing: {why}"));
                    trouble = why;
                    self.absence.is_over();
                    if !self.can_repeat() {
                        break;
                    }
                    self.stdout.start_over();
                    self.stderr.start_over();
                }
            }
        }
        self.fall_back(trouble).await
    }

    /// Two commands that lock files in one tree run one after the other: neither would see the other's lock. The error is
    /// what becomes of a command whose caller went away meanwhile, or ends it.
    async fn wait_for_tree(
        &mut self,
        requests: &mut Requests,
        replies: &mut Replies,
    ) -> Result<Option<OwnedMutexGuard<()>>, Outcome> {
        let Some(tree) = &self.plan.alone_in else { return Ok(None) };
        let turn = self.daemon.tree(tree).lock_owned();
        self.hearing(Phase::BeforeStart, turn, (requests, replies)).await.map(Some)
    }

    /// What the caller is told who ended it while it waited.
    fn ended(&self, ended: Outcome) -> Reply {
        match ended {
            Outcome::Cancelled(signal) => self.cancelled(signal),
            Outcome::Refused(why) => self.fail(why),
            _ => self.gone(),
        }
    }

    /// The run here of a command that was late elsewhere was first.
    fn was_first_here(&mut self, (reply, hedged): (Reply, Record), record: &mut Record) -> Reply {
        self.stop.stop();
        record.was_hedged(hedged);
        reply
    }

    /// Whether somebody reads what is said to the caller while the command runs: at a terminal, or who asked for it.
    pub(crate) fn is_listened_to(&self) -> bool {
        self.options.verbose || stdio::is_terminal(&self.again.fds[2])
    }

    /// Its number.
    pub(crate) fn task(&self) -> TaskId {
        self.task
    }

    /// Whether it is one of two runs.
    pub(crate) fn is_contestant(&self) -> bool {
        self.contestant.is_some()
    }

    /// From now on it is one of two.
    pub(crate) fn becomes_contestant(&mut self, contestant: Contestant) {
        self.contestant = Some(contestant);
    }

    /// Whether the caller lets it run here, and the pool is not preferred whatever it costs.
    pub(crate) fn may_run_here(&self) -> bool {
        let must_go = self.options.no_local || self.options.job.is_some();
        !must_go && self.daemon.settings.choices().prefer == Prefer::Auto
    }

    /// What a worker could not execute is looked at here.
    async fn doubt(&self, outcome: Outcome) -> Outcome {
        let Outcome::NotExecuted(failed) = &outcome else { return outcome };
        contradiction(&self.plan.command, &failed.message).await.map_or(outcome, Outcome::Lost)
    }

    fn fail(&self, why: String) -> Reply {
        self.stop.stop();
        Reply::Failed { message: why, code: CODE_FAILED }
    }

    fn not_executed(&self, failed: &Failed) -> Reply {
        const ENOENT: i32 = 2;
        self.stop.stop();
        let code = if failed.errno == ENOENT { 127 } else { 126 };
        Reply::Failed { message: failed.message.clone(), code }
    }

    /// One launch, to its end.
    async fn attempt(
        &mut self,
        attempt: u32,
        requests: &mut Requests,
        replies: &mut Replies,
        record: &mut Record,
    ) -> Outcome {
        let daemon = self.daemon.clone();
        self.give_keys(false, replies).await;
        let (joined, connection) = match self.connected((requests, replies)).await {
            Ok(connected) => connected,
            Err(ended) => return ended,
        };
        let _waiting = self.daemon.link().map(Link::waiting);
        let launched = Time(now_nanos());
        if attempt > 1 && self.plan.view.epoch().is_none() {
            self.locks.seen.since = launched;
        }
        let view = self.plan.view.clone();
        let reach = Reach::of(&joined);
        let may_run_here_in = (!self.options.no_local).then(|| self.plan.folder());
        let seen = (view.clone(), self.plan.gate.clone());
        let running = Running::of_command(seen, self.plan.trust, launched, (connection, reach), may_run_here_in);
        let running = daemon.server.begin(self.task, running);
        let _questions = QuestionsEnd { daemon: self.daemon.clone(), task: self.task };

        let checked = match self.checked.take().filter(|checked| checked.connection == connection) {
            Some(checked) => Some(checked),
            None => {
                let (daemon, plan, to) = (self.daemon.clone(), self.plan.clone(), joined.clone());
                let checking = blocking(move || Checked::new(&plan, &daemon, &to, connection));
                match self.hearing(Phase::BeforeStart, checking, (requests, replies)).await {
                    Ok(checked) => checked,
                    Err(ended) => return self.call_off(ended, &joined),
                }
            }
        };
        let Some(checked) = checked else { return Outcome::Unplaced("the client daemon failed".into()) };
        let bytes_before = checked.bytes_before;
        let ready = match checked.ready {
            Ok(ready) => ready,
            Err(why) => return Outcome::Unplaced(why),
        };
        let not_shown = daemon.server.views().snapshot().not_shown();
        let uses = |path: &TreePath| view.has(path) && self.plan.is_about(path);
        if let Some(why) = running.unshown(not_shown, uses, None) {
            return Outcome::UnableNow(why);
        }
        record.swept(view.len(), ready.changed(), ready.objects());
        self.locks.seen.version = Some(ready.version());
        let launch = Launch { attempt, launched: launched.0, budget: running.budget(), ..self.launch() };
        let Some(link) = daemon.link() else { return Outcome::Unplaced("no hub is known".into()) };
        let (launch, signed) = link.signatures().sign(&joined, launch);
        self.may_have_begun = self.plan.watch.network;
        let opening = ready.take_off(&daemon, &joined, launch);
        let opened = self.hearing(Phase::BeforeStart, opening, (requests, replies)).await;
        record.sent();
        let streams = match opened {
            Ok(Ok(streams)) => streams,
            Ok(Err(error)) => return Outcome::Lost(error.to_string()),
            Err(ended) => return self.call_off(ended, &joined),
        };
        let outcome =
            Exchange::new(self, &joined.connection, (streams, signed), record, &running).pass(requests, replies).await;
        record.carried_by(joined.connection.carrier());
        record.traffic(bytes_before, joined.connection.bytes(), &lock(&running.asked));
        self.learn_from(&outcome, &joined, record);
        self.doubt(outcome).await
    }

    /// The command ends before its launch is at the hub, which may not know what was to go with it.
    fn call_off(&self, ended: Outcome, joined: &Joined) -> Outcome {
        self.plan.forget_sent(&self.daemon, joined);
        ended
    }

    /// What the launch of each attempt says.
    fn launch(&self) -> Launch {
        Launch {
            window: convert::window_number(self.plan.window),
            linger: self.plan.linger,
            ..message(self.task, &self.plan, self.options.job.map(|_| self.options.rank))
        }
    }

    /// What an attempt's end means for the launches after it.
    fn learn_from(&self, outcome: &Outcome, joined: &Joined, record: &Record) {
        match outcome {
            // What the task made is at the hub already: the next task's launch need not send it.
            Outcome::Ended(exited, spool) => {
                self.daemon.server.note_sent(spool.digests());
                if let Some(ran) = record.ran(exited) {
                    let (history, kind, run) = (&self.daemon.history, self.plan.kind(), run_there(&ran, joined));
                    self.daemon.hedges.spent(run.cpu_us);
                    match self.contestant.as_ref().map(Contestant::side) {
                        Some(Side::Here) => history.ran_here(&kind, run.compute_us),
                        Some(Side::There) | None => history.ran_there(&kind, &run),
                    }
                }
            }
            Outcome::Lost(_) => self.plan.forget_sent(&self.daemon, joined),
            _ => {}
        }
    }

    /// The command has ended: its output is delivered, its result committed.
    async fn conclude(
        &mut self,
        exited: Exited,
        spool: Spool,
        caller: (&mut Requests, &mut Replies),
        record: &mut Record,
    ) -> Reply {
        if self.contestant.as_ref().is_some_and(|contestant| !contestant.claim()) {
            return match self.hedge.take() {
                Some(hedge) => match hedge.finish().await {
                    Some(ended) => self.was_first_here(ended, record),
                    None => self.fail("the run here was first, and came to nothing".into()),
                },
                None => self.fail("the other run of the race was first".into()),
            };
        }
        let (stdout, stderr, terminal) = (self.stdout.finish(), self.stderr.finish(), self.terminal.finish());
        let finishing = async move {
            [(Stream::Stdout, stdout.await), (Stream::Stderr, stderr.await), (Stream::Terminal, terminal.await)]
        };
        let (requests, replies) = caller;
        let finished = match self.hearing(Phase::AfterEnd, finishing, (requests, replies)).await {
            Ok(finished) => finished,
            Err(Outcome::Cancelled(signal)) => return self.cancelled(signal),
            Err(Outcome::Refused(why)) => return self.fail(why),
            Err(_) => return self.gone(),
        };
        self.stop.stop();
        if finished.iter().any(|(_, written)| *written == Err(Differs)) {
            return self.fail(REPEATED_DIFFERENTLY.into());
        }
        let lost = finished.into_iter().find_map(|(stream, written)| Some((stream, written.ok()??)));
        let taken = exited.stdin_offset;
        if let Stdin::File { offset, .. } = self.plan.stdin
            && !stdio::move_offset(self.input.fd(), offset, taken)
        {
            return self
                .fall_back("another program has read the file that is its standard input meanwhile".into())
                .await;
        }
        if self.input.was_read_by_others() {
            return self.fail(READ_BY_OTHERS.into());
        }
        record.moment("output delivered");
        if let Some(why) = record.read_secret() {
            // It has noticed, or may have: the next one of the kind is to find everything open.
            self.daemon.unable.note(&self.plan.unable, &why, true, now_seconds());
        }
        if let Some(why) = record.late_in_job() {
            return self.fail(format!("nothing committed: {why}"));
        }
        let may_run_here = !self.is_noticed() && !self.options.no_local && self.contestant.is_none();
        let at_end = AtEnd { may_run_here, locked: self.locked() };
        match settle(&self.daemon, self.task, &self.plan, exited, spool, record, at_end).await {
            Settled::Committed(status) => {
                self.input.leave_rest(taken);
                with_lost_output(status, lost, replies).await
            }
            Settled::NotCommitted(message) => Reply::Failed { message, code: CODE_FAILED },
            Settled::Overtaken(why) => {
                record.note(format!("called off: {why}"));
                self.fall_back(why).await
            }
            Settled::RefusedHere(why) => self.called_off(why, record).await,
        }
    }
}

//! One task at the hub: placed, sent to its worker, and its two streams passed on until both sides are done.
//!
//! Bytes are passed on as they are encoded. Only what the hub must know is decoded: the objects of a delta, which it
//! keeps (so that the next task's read does not cross the client's link), and the end, which frees the worker's CPUs.

use crate::budget::LaunchRoom;
use crate::differences::{Differences, Packed};
use crate::placement::Ticket;
use crate::server::Shared;
use crate::session::{ClientSession, WorkerSession};
use crate::unread::Given;
use crate::views::Copied;
use crate::work::cost_ms;
use base::{Seq, TaskId, ViewId, ViewUpdate};
use bytes::Bytes;
use prost::Message;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};
use wire::message::{
    Failed, FailedKind, InputKind, Launch, OpenKind, OutputKind, Placed, Resting, TaskInput, TaskOutput, is_ending,
};
use wire::quiet::{SAY_EVERY, START_MAX, WORKER_QUIET_MAX};
use wire::{Connection, Quiet, Receiver, Sender, Turn, WireError, convert, lock};

/// Bytes of objects that go with a launch to a hub. While more are on their way launches of the same view would wait for the step
/// that comes with them, and those of other programs would ask for them a second time: the hub is told their names instead, and
/// asks for each once.
const OBJECTS_TO_HUB_MAX: usize = 64 << 10;
/// How long a worker may take to end a task that nobody waits for any more.
pub(crate) const WIND_UP: Duration = Duration::from_secs(10);
/// How long a signal to end may take to its worker. What was heard of the worker before that shows nothing.
const REACHED_AFTER: Duration = Duration::from_secs(1);
/// How long after the signal a worker counts as gone, if nothing was heard of it since [`REACHED_AFTER`]. Workers that
/// live are heard every 1.5 s, and a client waits for five seconds.
const SILENCE_LIMIT: Duration = Duration::from_secs(4);
/// Longest frame that may be a signal, bytes.
const SIGNAL_BYTES_MAX: usize = 16;

/// Carries one launch through: answers the client on `to_client` in any case. `given`: objects for it that came before it and
/// are kept already.
pub async fn run(
    shared: Arc<Shared>,
    client: Arc<ClientSession>,
    launch: Launch,
    given: Given,
    mut to_client: Sender,
    mut from_client: Receiver,
) {
    to_client.set_turn(Turn::ranked(launch.rank));
    let ticket = shared.ticket();
    let task = task_of(&launch);
    let _asker = client.asked_for(task);
    let outcome = carry(&shared, &client, ticket, launch, given, &mut to_client, &mut from_client).await;
    shared.finished(ticket);
    match outcome {
        Ok(()) => tracing::debug!(%task, "a launch is over"),
        Err(failed) => {
            tracing::debug!(%task, why = failed.message, "a launch came to nothing");
            lock(&shared.state).launches_failed[failed.reason() as usize] += 1;
            if failed.reason() == FailedKind::Refused {
                shared.note_refused_launch(&client, task, &failed.message);
            }
            fail(&mut to_client, failed).await;
        }
    }
}

/// Which task a launch is of. One without a number is nobody's.
pub(crate) fn task_of(launch: &Launch) -> TaskId {
    convert::task(&launch.task).unwrap_or(TaskId(0))
}

async fn fail(to_client: &mut Sender, failed: Failed) {
    let _ = to_client.send(&TaskOutput::from(OutputKind::Failed(failed))).await;
    to_client.finish();
}

async fn carry(
    shared: &Arc<Shared>,
    client: &Arc<ClientSession>,
    ticket: Ticket,
    launch: Launch,
    given: Given,
    to_client: &mut Sender,
    from_client: &mut Receiver,
) -> Result<(), Failed> {
    let room = room_for(client, &launch)?;
    let (mut launch, view) = alive(to_client, prepare(client, launch)).await?;
    let needs = launch.command.as_ref().map(convert::needs).transpose();
    let needs = needs.map_err(|error| FailedKind::Refused.because(error.to_string()))?.unwrap_or_default();
    let queued = Instant::now();
    // Who has run tasks of the view that this one was copied from has their files.
    let placed = shared.place(ticket, client, client.origin(view).unwrap_or(view), (&needs, launch.trust));
    let placed = placed.map_err(|refused| Failed {
        is_passing: shared.is_passing(&refused),
        ..FailedKind::NoWorker.because(refused.to_string())
    })?;
    let waits = client.waiting.one();
    let (worker, why) = alive(to_client, wait_for_place(placed, from_client)).await?;
    drop(waits);
    launch.waiting = client.waiting.now() as u32;
    let placed = placed_at(&worker, why, queued.elapsed());
    to_client.send(&TaskOutput::from(OutputKind::Placed(placed.clone()))).await.map_err(gone(&worker))?;
    shared.note_launch(client, &worker, &launch);
    tracing::debug!(task = %task_of(&launch), client = client.name, worker = worker.name, "a launch has a place");
    let sending = send_launch(shared, client, &worker, launch, view, given);
    let (to_worker, from_worker) = alive(to_client, sending).await?;
    drop(room);
    let way = Way { shared, client, worker: &worker, ticket, view, placed };
    pass_both_ways(way, (to_client, from_client), (to_worker, from_worker)).await
}

/// Room for a launch until it is at its worker, also while the step before it is on its way. Where the client has too much on its way it
/// is to come again.
pub(crate) fn room_for(client: &ClientSession, launch: &Launch) -> Result<LaunchRoom, Failed> {
    let why = "launches of this client that wait at the hub have too many bytes together; try again later";
    let room = client.held.budget.launch(launch.encoded_len() as u64);
    room.ok_or_else(|| Failed { is_passing: true, ..FailedKind::NoWorker.because(why) })
}

/// Waits for `work`, and says meanwhile that this hub has the task.
pub(crate) async fn alive<T>(to_client: &mut Sender, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        match tokio::time::timeout(SAY_EVERY, &mut work).await {
            Ok(done) => return done,
            // A client that is gone is noticed by whoever hears it.
            Err(_) => drop(to_client.say_alive().await),
        }
    }
}

/// Takes in what comes with a launch: contents, and its step of the view, which it names.
pub(crate) async fn prepare(client: &Arc<ClientSession>, mut launch: Launch) -> Result<(Launch, ViewId), Failed> {
    let update = launch.view.take().ok_or_else(|| FailedKind::Refused.because("a launch without a view"))?;
    let update = ViewUpdate::try_from(update).map_err(|error| FailedKind::Refused.because(error.to_string()))?;
    launch.objects = launch.objects.iter().filter_map(|object| client.keep(object)).collect();
    let gap = |_| FailedKind::ViewGap.because("the hub does not know the files that this launch builds on");
    let copied = launch.copied.take().map(convert_copied).transpose()?;
    if let Some(number) = launch.coming.take() {
        client.knows_what_comes(number).await;
    }
    client.advance(copied.as_ref(), &update).await.map_err(gap)?;
    Ok((launch, update.view))
}

/// What a client is told of its place.
pub(crate) fn placed_at(worker: &WorkerSession, why: String, queued: Duration) -> Placed {
    Placed {
        worker: Bytes::copy_from_slice(&worker.node.0.0),
        name: worker.name.clone(),
        why,
        queued_ns: queued.as_nanos() as u64,
        answers_signals: worker.answers_signals,
    }
}

fn gone(worker: &WorkerSession) -> impl Fn(WireError) -> Failed {
    |error| FailedKind::Trouble.because(format!("worker {}: {error}", worker.name))
}

/// Sends a prepared launch on to its worker.
pub(crate) async fn send_launch<'a>(
    shared: &'a Shared,
    client: &'a Arc<ClientSession>,
    worker: &'a WorkerSession,
    mut launch: Launch,
    view: ViewId,
    given: Given,
) -> Result<(Sender, FromWorker<'a>), Failed> {
    if !worker.may_run(launch.trust) {
        // It was approved for less since the launch got its place.
        return Err(FailedKind::Trouble.because(format!("worker {} is not trusted with it", worker.name)));
    }
    let current = worker.update_for(client, view);
    let current = current.ok_or_else(|| FailedKind::ViewGap.because("the view is gone"))?;
    launch.view = Some((&current).into());
    launch.client = client.key.clone();
    launch.tenant_number = client.tenant.0;
    if worker.connection.is_within_process() {
        // They are in the store that it has, too.
        launch.objects.clear();
    } else {
        launch.objects.extend(given.objects);
    }
    if worker.is_hub {
        name_large(&mut launch);
    }
    let unanswered = client.unanswered();
    let task = task_of(&launch);
    worker.asking.begin(&client.key, task, view, launch.budget);
    let asks = Asks { shared, client, worker, task };
    let opened = worker.connection.open(OpenKind::Launch(Box::new(launch))).await;
    drop(given.room);
    let (sender, receiver) = opened.map_err(gone(worker))?;
    let quiet = Quiet::new(WORKER_QUIET_MAX);
    // Behind a hub it may wait for a place, which that hub looks after.
    let start = (!worker.is_hub).then(|| Quiet::new(START_MAX));
    let has_ended = false;
    let from_worker = FromWorker { receiver, shared, client, worker, unanswered, quiet, start, has_ended, _asks: asks };
    Ok((sender, from_worker))
}

/// What a worker says of a task, as far as it can be relied on.
pub(crate) struct FromWorker<'a> {
    receiver: Receiver,
    shared: &'a Shared,
    client: &'a ClientSession,
    worker: &'a WorkerSession,
    /// Questions to the client that had stayed without an answer before.
    unanswered: u64,
    quiet: Quiet,
    /// Until the task has started.
    start: Option<Quiet>,
    /// It has said how the task ended.
    has_ended: bool,
    _asks: Asks<'a>,
}

/// The worker may ask for the task until this is dropped.
struct Asks<'a> {
    shared: &'a Shared,
    client: &'a ClientSession,
    worker: &'a WorkerSession,
    task: TaskId,
}

impl Drop for Asks<'_> {
    fn drop(&mut self) {
        let asked = self.worker.asking.end(&self.client.key, self.task);
        if let Some(asked) = asked.filter(|asked| asked.paths > 0 || asked.bytes > 0) {
            self.shared.note_asked(self.worker, self.task, &asked);
        }
    }
}

impl FromWorker<'_> {
    /// Whether its client left a question without an answer since the task began: then little that the worker says is its fault.
    pub fn is_left_alone(&self) -> bool {
        self.client.unanswered() != self.unanswered
    }

    /// What comes next, also as it is encoded. Safe to cancel. A worker that says nothing for too long has lost the task.
    pub async fn next(&mut self) -> Result<(Bytes, TaskOutput), Failed> {
        loop {
            let (frame, output) = self.take().await?;
            let is_of_result = output.kind.as_ref().is_some_and(OutputKind::is_of_result);
            let is_of_hub = self.worker.is_hub && matches!(output.kind, Some(OutputKind::Alive(_)));
            if is_of_result || is_of_hub || !self.has_ended {
                self.quiet.heard();
            }
            // That it lives is for this hub, which says so itself.
            if !matches!(output.kind, Some(OutputKind::Alive(_))) {
                return Ok((frame, output));
            }
        }
    }

    async fn take(&mut self) -> Result<(Bytes, TaskOutput), Failed> {
        let Self { client, worker, .. } = *self;
        let frame = tokio::select! {
            biased;
            frame = self.receiver.next_encoded() => frame.map_err(gone(worker))?,
            () = self.quiet.over(&worker.connection) => {
                return Err(self.is_lost(format!("said nothing of the task for {} s", WORKER_QUIET_MAX.as_secs())));
            }
            () = over(&mut self.start, &worker.connection) => {
                return Err(self.is_lost(format!("did not start the task for {} s", START_MAX.as_secs())));
            }
        };
        let early = || WireError::Lost("it ended the task's stream early".into());
        let frame = frame.ok_or_else(early).map_err(gone(worker))?;
        let output = wire::decode::<TaskOutput>(frame.clone()).map_err(gone(worker))?;
        match &output.kind {
            Some(OutputKind::Exited(_)) if std::mem::replace(&mut self.has_ended, true) => {
                return Err(FailedKind::Trouble.because(format!("worker {}: it ended the task twice", worker.name)));
            }
            Some(OutputKind::Exited(_)) if client.unanswered() != self.unanswered => return Err(not_answered()),
            // Why its program was not found, or not executed.
            Some(OutputKind::Failed(failed))
                if failed.reason() == FailedKind::Exec && client.unanswered() != self.unanswered =>
            {
                return Err(not_answered());
            }
            Some(OutputKind::Failed(failed)) if failed.reason() == FailedKind::ViewGap => worker.forget(&client.key),
            Some(OutputKind::Started(_) | OutputKind::Exited(_)) => self.start = None,
            // It was frozen before it could start: its worker's owner came back.
            Some(OutputKind::Resting(_)) => self.start.iter_mut().for_each(Quiet::heard),
            _ => {}
        }
        Ok((frame, output))
    }

    /// It gets no more tasks for a while: this one would come to it again.
    fn is_lost(&self, why: String) -> Failed {
        let Self { worker, shared, .. } = self;
        lock(&shared.state).set_aside(worker.node, Instant::now());
        tracing::warn!(worker = %worker.node, name = worker.name, why, "a worker gets no tasks for a while");
        FailedKind::Trouble.because(format!("worker {}: it {why}", worker.name))
    }
}

fn not_answered() -> Failed {
    FailedKind::Trouble.because("the client, or the link to it, did not answer in time when its files were needed")
}

async fn over(quiet: &mut Option<Quiet>, connection: &Connection) {
    match quiet {
        Some(quiet) => quiet.over(connection).await,
        None => std::future::pending().await,
    }
}

/// Leaves the names of a launch's objects, from the largest on, until the others are few bytes.
fn name_large(launch: &mut Launch) {
    launch.objects.sort_by_key(|object| object.bytes.len());
    let mut bytes = 0;
    let few = launch.objects.iter().take_while(|object| {
        bytes += object.bytes.len();
        bytes <= OBJECTS_TO_HUB_MAX
    });
    let few = few.count();
    launch.needs = launch.objects.drain(few..).map(|object| object.digest).collect();
}

/// Between whom a placed launch goes back and forth.
struct Way<'a> {
    shared: &'a Shared,
    client: &'a Arc<ClientSession>,
    worker: &'a WorkerSession,
    ticket: Ticket,
    view: ViewId,
    /// What the client was told of its place.
    placed: Placed,
}

impl Way<'_> {
    /// What the client is told instead of what the worker says: whether there is another place; and if the worker is a hub, which worker
    /// behind it has the task, and that it may be tried elsewhere if there is none.
    fn told_instead(&self, output: &OutputKind) -> Option<OutputKind> {
        match output {
            OutputKind::Resting(resting) => {
                let elsewhere = lock(&self.shared.state).placement.elsewhere(self.worker.node) > 0;
                Some(OutputKind::Resting(Resting { elsewhere: resting.elsewhere || elsewhere, ..resting.clone() }))
            }
            _ if !self.worker.is_hub => None,
            OutputKind::Placed(behind) => Some(OutputKind::Placed(Placed {
                worker: behind.worker.clone(),
                name: format!("{}/{}", self.placed.name, behind.name),
                why: format!("{}; there {}", self.placed.why, behind.why),
                queued_ns: self.placed.queued_ns.saturating_add(behind.queued_ns),
                answers_signals: behind.answers_signals,
            })),
            OutputKind::Failed(failed) if failed.reason() == FailedKind::NoWorker => {
                let why = format!("hub {}: {}", self.placed.name, failed.message);
                Some(OutputKind::Failed(FailedKind::Trouble.because(why)))
            }
            _ => None,
        }
    }
}

fn convert_copied(copied: wire::message::Copied) -> Result<Copied, Failed> {
    let refused = |error: wire::convert::Invalid| FailedKind::Refused.because(error.to_string());
    let step = copied.step.ok_or(wire::convert::Invalid("a copy of no view")).map_err(refused)?;
    Ok(Copied { step: step.try_into().map_err(refused)?, seq_max: Seq(copied.seq_max) })
}

/// Waits until the task is placed, or the client takes it back.
async fn wait_for_place(
    mut placed: oneshot::Receiver<(Arc<WorkerSession>, String)>,
    from_client: &mut Receiver,
) -> Result<(Arc<WorkerSession>, String), Failed> {
    loop {
        tokio::select! {
            place = &mut placed => {
                let left = || FailedKind::NoWorker.because("the workers that could take it have left");
                return place.map_err(|_| Failed { is_passing: true, ..left() });
            }
            input = from_client.next::<TaskInput>() => match input {
                // A signal before the start: what it would do to the command is not known, so the task is taken back.
                Ok(Some(TaskInput { kind: Some(InputKind::Resize(_)) })) => {}
                Ok(Some(_)) => return Err(FailedKind::Cancelled.because("cancelled before it was placed")),
                Ok(None) | Err(_) => return Err(FailedKind::Cancelled.because("the client is gone")),
            }
        }
    }
}

async fn pass_both_ways(
    way: Way<'_>,
    (to_client, from_client): (&mut Sender, &mut Receiver),
    (mut to_worker, mut from_worker): (Sender, FromWorker<'_>),
) -> Result<(), Failed> {
    let (told_to_end, mut ending) = watch::channel(());
    let forth = async {
        while let Ok(Some(frame)) = from_client.next_encoded().await {
            if tells_to_end(&frame) {
                told_to_end.send_replace(());
            }
            if to_worker.send_encoded(frame).await.is_err() {
                return;
            }
        }
        // The client is gone or has finished: the worker is told either way, and ends what still runs.
        let _ = to_worker.send(&TaskInput::from(InputKind::Cancel(true))).await;
        to_worker.finish();
    };
    // A hub above passes results on to clients that may have other contents than it has itself.
    let is_far_client = way.client.connection.is_far() && !way.client.is_behind;
    let differences = is_far_client.then(|| Differences::new(way.client.clone(), way.view));
    let back = pass_output(&way, differences, &mut from_worker, to_client);
    let silent = silence(way.worker, &mut ending);
    tokio::pin!(forth, back, silent);
    tokio::select! {
        done = &mut back => done,
        why = &mut silent => Err(why),
        () = &mut forth => {
            let late = FailedKind::Trouble.because("the worker did not wind up in time");
            tokio::time::timeout(WIND_UP, back).await.unwrap_or(Err(late))
        }
    }
}

/// Whether a client's frame is a signal by which the task is to end.
fn tells_to_end(frame: &Bytes) -> bool {
    if frame.len() > SIGNAL_BYTES_MAX {
        return false;
    }
    let input = TaskInput::decode(frame.clone());
    matches!(input, Ok(TaskInput { kind: Some(InputKind::Signal(signal)) }) if is_ending(signal))
}

/// Returns when nothing was heard of a worker since its task was told to end: it is dead or frozen. It may have answered
/// that the signal reached the program before it froze, and the connection's own limit is longer than a caller is to wait.
async fn silence(worker: &WorkerSession, ending: &mut watch::Receiver<()>) -> Failed {
    let connection = &worker.connection;
    while !connection.is_within_process() && ending.changed().await.is_ok() {
        tokio::time::sleep(REACHED_AFTER).await;
        if wire::awake::is_silent(connection, SILENCE_LIMIT - REACHED_AFTER).await {
            let why = format!("nothing was heard of it for {} s", (SILENCE_LIMIT - REACHED_AFTER).as_secs());
            return gone(worker)(WireError::Lost(why));
        }
    }
    std::future::pending().await
}

/// Passes a task's output on until its end. An error means that the client has not been told of an end.
async fn pass_output(
    way: &Way<'_>,
    mut differences: Option<Differences>,
    from_worker: &mut FromWorker<'_>,
    to_client: &mut Sender,
) -> Result<(), Failed> {
    let Way { shared, client, ticket, .. } = *way;
    let mut said_alive = Instant::now();
    let mut half_told = None;
    loop {
        let (frame, output) = alive(to_client, from_worker.next()).await?;
        let instead = output.kind.as_ref().and_then(|kind| way.told_instead(kind));
        let last = matches!(output.kind, Some(OutputKind::End(_) | OutputKind::Failed(_)));
        match &output.kind {
            Some(OutputKind::Exited(exited)) => {
                exited.objects.iter().for_each(|object| drop(client.keep(object)));
                shared.exited(ticket, cost_ms(exited));
            }
            Some(OutputKind::Object(object)) => drop(client.keep(object)),
            Some(OutputKind::Stdout(_) | OutputKind::Stderr(_)) if half_told.is_none() => {
                half_told = Some(shared.half_told.one());
            }
            _ => {}
        }
        let packed = differences.as_mut().map(|differences| tokio::task::block_in_place(|| differences.pack(&output)));
        let frame = match packed {
            Some(Packed::Instead(frame)) => frame,
            Some(Packed::Nothing) => {
                // Its client has it: that nothing goes there is no silence.
                if said_alive.elapsed() >= SAY_EVERY {
                    said_alive = Instant::now();
                    let _ = to_client.say_alive().await;
                }
                continue;
            }
            Some(Packed::AsItCame) | None => {
                instead.map_or(frame, |instead| TaskOutput::from(instead).encode_to_vec().into())
            }
        };
        // A client that is gone must not keep the worker from ending: its frames are taken all the same.
        let sent = to_client.send_encoded(frame).await;
        if last {
            to_client.finish();
            if let Some(half_told) = half_told {
                half_told.told(to_client.stopped()).await;
            }
            return Ok(());
        }
        if sent.is_err() && client.connection.is_closed() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_to_end_is_known_among_what_clients_say() {
        let encoded = |kind: InputKind| Bytes::from(TaskInput::from(kind).encode_to_vec());
        let [interrupt, stop, longest] = [2, 20, u32::MAX].map(|signal| encoded(InputKind::Signal(signal)));
        assert!(tells_to_end(&interrupt) && !tells_to_end(&stop) && longest.len() <= SIGNAL_BYTES_MAX);
        assert!(!tells_to_end(&encoded(InputKind::Stdin(interrupt))) && !tells_to_end(&vec![0xff; 5].into()));
    }

    #[test]
    fn a_hub_is_told_the_names_of_large_objects() {
        let object = |bytes: usize| wire::message::Object::new(base::Digest([bytes as u8; 32]), vec![0; bytes]);
        let objects = [OBJECTS_TO_HUB_MAX, 3, OBJECTS_TO_HUB_MAX - 3, 0].map(object).to_vec();
        let mut launch = Launch { objects: objects.clone(), ..Launch::default() };
        name_large(&mut launch);
        assert_eq!(
            launch.objects.iter().map(|object| object.bytes.len()).collect::<Vec<_>>(),
            [0, 3, OBJECTS_TO_HUB_MAX - 3]
        );
        assert_eq!(launch.needs, [objects[0].digest.clone()]);
    }
}

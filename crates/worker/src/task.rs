//! One task at the worker: from the launch to the delta.
//!
//! [`run`] prepares a lane of the client's mirror and an empty upper layer, has the sandbox start the program on the two,
//! passes its streams on, and when nothing of it is left reads the upper layer into a delta.

use crate::charge::Charge;
use crate::clients::{Client, Clients};
use crate::feeding::{Feeding, InputItem};
use crate::fuse::LaneGuard;
use crate::good_bye::Launches;
use crate::host::guests::{Stay, rests, told};
use crate::lane;
use crate::network::Network;
use crate::out::Out;
use crate::own_share::Share;
use crate::progress::Accounts;
use crate::pumps::{Passing, Pumps, pump_output, unwanted};
use crate::request::Request;
use crate::result::{Made, NotRead, Written, collect};
use crate::sandbox::{Event, Guest, Lock, Order, Priority};
use crate::scratch::Scratch;
use crate::signatures::{Admitted, Claimed};
use crate::stream_waits::StreamWait;
use crate::streams::{Streams, Terminal, inode};
use crate::unconfirmed::Unconfirmed;
use base::codec::Encode as _;
use base::watch::OWNERS;
use base::{ExitStatus, Stdin, TaskId, Time, TreePath, Usage};
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use wire::fetch::Asker;
use wire::message::{
    Exited, Failed, FailedKind, InputKind, Launch, LockRequest, Moment, Object, OutputKind, ServiceRequest, TaskInput,
};
use wire::signed::Streams as Said;
use wire::{Joined, Receiver, Sender, convert, now_nanos};

/// Most time by which a start is delayed until this clock has passed the client's at the launch.
const CLOCK_WAIT_MAX: Duration = Duration::from_millis(300);
/// Files that a task made to add to them, of which its worker keeps account.
const ADDED_MAX: usize = 4096;

/// Runs a launch, and answers it on `to_hub` in any case.
pub async fn run(clients: Arc<Clients>, joined: Joined, launch: Launch, to_hub: Sender, from_hub: Receiver) {
    let arrived = Instant::now();
    let (out, writer) = Out::start(to_hub);
    let task = convert::task(&launch.task).unwrap_or(TaskId(0));
    if let Err(failed) = carry(&clients, &joined, launch, arrived, &out, from_hub).await {
        tracing::debug!(%task, why = failed.message, "a task came to nothing");
        let failed = clients.scratches.explain(failed, &clients.guests).await;
        let _ = out.words.send(OutputKind::Failed(failed).into()).await;
    }
    drop(out);
    let _ = writer.await;
}

/// A launch whose client's files are here, and by which what it asks for is answered as long as this lives.
struct Ready {
    client: Arc<Client>,
    request: Request,
    claimed: Claimed,
    _asker: Option<Asker>,
}

/// Takes what came with a launch.
fn ready(clients: &Arc<Clients>, joined: &Joined, mut launch: Launch) -> Result<Ready, Failed> {
    let claimed = clients.signatures.claim(&launch, joined)?;
    let client = clients.client(&launch.client, base::Tenant(launch.tenant_number), joined);
    let client = client.map_err(|error| match error.kind() {
        std::io::ErrorKind::ResourceBusy => FailedKind::Evicted.because(error.to_string()),
        _ => trouble(format!("the client's files cannot be mounted: {error}")),
    })?;
    // A launch without a number has no task that could ask.
    let _asker = convert::task(&launch.task).ok().map(|task| client.contents.asked_for(task));
    for object in std::mem::take(&mut launch.objects) {
        client.contents.keep(&object);
    }
    let request = Request::new(launch, joined.clock_offset_ns());
    let request = request.map_err(|error| FailedKind::Refused.because(error.to_string()))?;
    client.ids.place(&request.command).map_err(|why| FailedKind::Unable.because(why))?;
    match request.clock_trouble() {
        Some(why) => Err(FailedKind::Unable.because(why)),
        None => Ok(Ready { client, request, claimed, _asker }),
    }
}

fn trouble(why: String) -> Failed {
    FailedKind::Trouble.because(why)
}

const NO_NETWORK: &str = "the owner of the worker's machine lets no guest use the network there (`network = true` in `[guests]` of its node.toml would)";
const OWNER: &str = "a user or group came up that it did not know";
const XATTRS: &str = "a file with extended attributes came up: it must start again where they are shown";

/// Returns when the task must start again, elsewhere on this machine or on another: why.
async fn misplaced(scratch: Arc<Scratch>, lane: Arc<LaneGuard>, launches: Launches) -> Failed {
    tokio::select! {
        why = scratch.outgrown() => why,
        () = lane.xattrs_missed() => trouble(XATTRS.into()),
        () = lane.ids().over() => FailedKind::Evicted.because(OWNER),
        path = lane.looked_into_unlistable() => {
            FailedKind::Unable.because(format!("it has to look into {path}, which cannot be done elsewhere"))
        }
        why = launches.handed_back() => why,
    }
}

/// A task whose program runs.
struct Live {
    guest: Guest,
    lane: Arc<LaneGuard>,
    scratch: Arc<Scratch>,
    /// Its stay as a guest, if it is one; and what tells it why it must make room for the machine's owner.
    stay: Option<Stay>,
    evicted: Option<oneshot::Receiver<Failed>>,
    charge: Charge,
    accounts: Accounts,
    signals: Unconfirmed,
    launches: Launches,
    timeline: Vec<Moment>,
    /// Names of processes that had left its session.
    left: Vec<String>,
    /// Files that it has made to add to them.
    added_to: HashSet<TreePath>,
    /// The network that it may use.
    network: Option<Network>,
    /// What its client has said with its launch.
    admitted: Admitted,
    /// What it has said, as far as that is sent.
    said: Arc<Said>,
    /// Its part of the processors, if it is its owner's own.
    share: Option<Share>,
    /// Its waits for its streams.
    stream_wait: StreamWait,
    arrived: Instant,
}

async fn carry(
    clients: &Arc<Clients>,
    joined: &Joined,
    launch: Launch,
    arrived: Instant,
    out: &Out,
    from_hub: Receiver,
) -> Result<(), Failed> {
    let ready = ready(clients, joined, launch).map_err(Failed::before_begin)?;
    let Ready { client, request, claimed, _asker } = ready;
    let client = &client;
    let before = (client.contents.fetched_bytes(), client.contents.refusals());
    let started = start(clients, client, (&request, claimed), arrived).await;
    let (mut live, streams, started_at) = started.map_err(Failed::before_begin)?;
    let ended = live.attend(&request, streams, out, from_hub).await;
    let end = match ended {
        Ok(end) => end,
        Err(failed) => {
            live.wind_up(request.task, clients.clone(), client.clone());
            return Err(failed);
        }
    };
    mark(&mut live.timeline, arrived, "process ended");
    let ended_at = Time(now_nanos());
    let made = match read_result(clients, client, &live, &request, &end, (started_at, ended_at)).await {
        Ok(made) => made,
        Err(failed) => {
            live.wind_up(request.task, clients.clone(), client.clone());
            return Err(failed);
        }
    };
    mark(&mut live.timeline, arrived, "result read");
    let mut exited = live.told(&end, &made);
    tell_basis(&mut exited, client, &live.lane, before);
    clients.signatures.sign(&live.admitted, &live.said, &mut exited);
    live.wind_up(request.task, clients.clone(), client.clone());
    send_result(clients, client, exited, made, out).await
}

/// Prepares a task's files and has its program started: what is to be attended, and since when.
async fn start(
    clients: &Arc<Clients>,
    client: &Arc<Client>,
    (request, claimed): (&Request, Claimed),
    arrived: Instant,
) -> Result<(Live, Streams, Time), Failed> {
    client.contents.fetch_whole(&request.update.set, &request.whole);
    let lane = Arc::new(with_owners(lane::take(client, request).await?, request)?);
    let mut timeline = Vec::new();
    mark(&mut timeline, arrived, "files ready");
    wait_for_clock(request.launched).await;
    let scratch = clients.scratches.take((client.key.clone(), request.update.view), request.attempt > 1);
    let scratch = Arc::new(scratch.map_err(|error| trouble(format!("no room for a task: {error}")))?);
    let streams = Streams::new(&request.stdin, request.stdout, request.stderr);
    let mut streams = streams.map_err(|error| trouble(format!("no streams for a task: {error}")))?;
    let cpus = Arc::new(clients.cpus.take(request.command.needs.cpus));
    let priority = clients.priority(request.task, &request.owner_proof);
    let share = (priority == Priority::Owner).then(|| clients.own.begin(request.waiting));
    let (is_guest, bounds) = (priority == Priority::Guest, clients.charges.bounds());
    // Elsewhere its calls would fail at the bound: it is watched instead.
    let is_bounded = is_guest && clients.sandbox.levers().kills_at_bound();
    let order = Order {
        session_nice: share.as_ref().map_or(0, Share::nice),
        cpus: if is_guest { cpus.numbers() } else { Vec::new() },
        memory_bytes_max: is_bounded.then(|| bounds.memory_of_task(request.asked_memory())),
        // The kernel's bound is above the task's own, so that this is noticed before it is told of a fork that failed.
        pids_max: Some(bounds.all.processes.min(u32::MAX.into()) as u32),
        keeps_xattrs_back: lane.keeps_xattrs_back(),
        ..request.order(&mut streams, (lane.path(), &scratch), (client.ids.base(), lane.ids().ids()), priority)
    };
    if order.has_network() && is_guest && !clients.lends_network {
        return Err(FailedKind::Unable.because(NO_NETWORK));
    }
    let (admitted, started_at) = (clients.signatures.admit(&claimed)?, Time(now_nanos()));
    let guest = clients.sandbox.spawn(order).await.map_err(|error| trouble(error.to_string()))?;
    mark(&mut timeline, arrived, "process made");
    // Its owner's own task is no guest: it neither rests nor makes room.
    let known = is_guest.then(|| request.known(&clients.sandbox, &guest, &scratch, cpus));
    let (stay, evicted) = known.map(|known| clients.guests.arrive(known)).unzip();
    let (levers, guests) = match priority {
        Priority::Guest => (clients.sandbox.levers(), Some(clients.guests.clone())),
        Priority::Owner => (clients.sandbox.own_levers(), None),
    };
    let charged = request.charged(client.tenant.0, &scratch, &guest, levers.clone(), is_guest);
    let charge = clients.charges.begin(charged);
    let signals = Unconfirmed::new(levers.clone(), guest.group().to_owned());
    let accounts = Accounts::begin(levers.clone(), guest.group().to_owned(), guests);
    let (left, added_to, network) = Default::default();
    let live = Live {
        guest,
        lane,
        scratch,
        stay,
        evicted,
        charge,
        accounts,
        signals,
        launches: clients.launches.clone(),
        timeline,
        left,
        added_to,
        network,
        admitted,
        said: Arc::new(request.said()),
        share,
        stream_wait: clients.stream_waits.begin(request.command.needs.cpus),
        arrived,
    };
    Ok((live, streams, started_at))
}

/// The lane, if its task can be shown whose its files are; root's alone must be.
fn with_owners(lane: LaneGuard, request: &Request) -> Result<LaneGuard, Failed> {
    match lane.ids().lacks().filter(|_| request.command.uid == 0) {
        Some(why) => Err(FailedKind::Unable.because(format!("{OWNERS}: {why}"))),
        None => Ok(lane),
    }
}

/// Says what a result rests on, where so many bytes had been fetched and so much refused before its task. Nobody knows what it would have
/// been where that is not known.
fn tell_basis(exited: &mut Exited, client: &Client, lane: &LaneGuard, (bytes, refusals): (u64, u64)) {
    exited.fetched_bytes = client.contents.fetched_bytes().saturating_sub(bytes);
    match lane.evidence().and_then(|evidence| client.contents.basis(&evidence, refusals)) {
        Some(basis) => exited.basis = basis.to_bytes().into(),
        None => exited.is_unanswered = true,
    }
}

/// Reads what a task that has ended left in all its upper layers.
async fn read_result(
    clients: &Arc<Clients>,
    client: &Arc<Client>,
    live: &Live,
    request: &Request,
    end: &End,
    (started, ended): (Time, Time),
) -> Result<Made, Failed> {
    let written = Written {
        scratch: &live.scratch.folder,
        mounts: &request.mounts,
        shared: end.shared.as_ref(),
        added_to: &live.added_to,
    };
    let made = collect(clients, client, &live.lane, &written, &request.clock(started, ended)).await;
    let not_read = |NotRead { why, is_unable }| if is_unable { FailedKind::Unable.because(why) } else { trouble(why) };
    let made = made.map_err(not_read)?;
    if live.lane.ids().is_over() {
        return Err(FailedKind::Evicted.because(OWNER));
    }
    let unclear = || made.unclear_owner(&request.command, &client.ids.places(), live.lane.ids().is_outdated());
    match made.moved_mount(&request.mounts).or_else(unclear) {
        Some(why) => Err(FailedKind::Unable.because(why)),
        None => Ok(made),
    }
}

/// Sends the end of a task, and the larger objects of its delta after it.
async fn send_result(
    clients: &Arc<Clients>,
    client: &Arc<Client>,
    exited: Exited,
    made: Made,
    out: &Out,
) -> Result<(), Failed> {
    let gone = |_| FailedKind::Cancelled.because("the client is gone");
    out.output.send(OutputKind::Exited(Box::new(exited)).into()).await.map_err(gone)?;
    for digest in &made.large {
        let bytes = clients.store.get(client.tenant, digest).ok().flatten();
        let bytes =
            bytes.ok_or_else(|| trouble("a result was lost from the worker's store: is its disk full?".into()))?;
        out.output.send(OutputKind::Object(Object::new(*digest, bytes)).into()).await.map_err(gone)?;
    }
    out.output.send(OutputKind::End(true).into()).await.map_err(gone)
}

fn mark(timeline: &mut Vec<Moment>, arrived: Instant, what: &str) {
    timeline.push(Moment { what: what.into(), at_ns: arrived.elapsed().as_nanos() as u64 });
}

/// `make` inside compares what it writes with what it finds: this clock must have passed the client's at the launch.
async fn wait_for_clock(launched: Time) {
    let ahead = launched.since(Time(now_nanos()));
    if ahead > 0 {
        tokio::time::sleep(Duration::from_nanos(ahead as u64).min(CLOCK_WAIT_MAX)).await;
    }
}

/// How a program ended.
struct End {
    status: ExitStatus,
    usage: Usage,
    stdin_offset: u64,
    /// The folder of shared memory, if something is left in it.
    shared: Option<OwnedFd>,
}

impl Live {
    /// What the hub and the client are told of the end.
    fn told(&mut self, end: &End, made: &Made) -> Exited {
        let bytes = |paths: &[TreePath]| paths.iter().map(|path| path.as_bytes().to_vec()).collect();
        Exited {
            code: if let ExitStatus::Code(code) = end.status { code.into() } else { 0 },
            signal: if let ExitStatus::Signal(signal) = end.status { signal.into() } else { 0 },
            user_us: end.usage.user_us,
            system_us: end.usage.system_us,
            max_rss_kib: end.usage.max_rss_kib,
            stdin_offset: end.stdin_offset,
            changes: made.delta.changes.iter().map(Into::into).collect(),
            objects: made.small.iter().map(|(digest, bytes)| Object::new(*digest, bytes.clone())).collect(),
            faults: bytes(&self.lane.faults().paths),
            skipped: bytes(&made.skipped),
            is_unanswered: self.lane.is_unanswered(),
            timeline: std::mem::take(&mut self.timeline),
            left: std::mem::take(&mut self.left),
            ..Exited::default()
        }
    }

    /// Passes everything between the program and the hub until the program has ended.
    async fn attend(
        &mut self,
        request: &Request,
        streams: Streams,
        out: &Out,
        mut from_hub: Receiver,
    ) -> Result<End, Failed> {
        tracing::debug!(task = %request.task, "a task runs");
        let mut pumps = self.start_pumps(streams, out);
        let mut connected = true;
        let mut cancelled: Option<Failed> = None;
        let mut misplaced = std::pin::pin!(misplaced(self.scratch.clone(), self.lane.clone(), self.launches.clone()));
        let ended = loop {
            tokio::select! {
                event = self.guest.event() => {
                    let event = event.map_err(|error| trouble(error.to_string()))?;
                    if cancelled.is_some() && matches!(event, Event::Killed) {
                        break None;
                    }
                    if let Some(why) = self.called_off(&event) {
                        // It will be run at its client, or begin again: nobody must see how it dies.
                        cancelled.get_or_insert(why);
                        pumps.silence();
                        self.kill();
                        continue;
                    }
                    if let Some(ended) = self.on_event(event, request, &mut pumps, out)? {
                        break Some(ended);
                    }
                }
                why = &mut misplaced, if cancelled.is_none() => cancelled = Some(self.give_up(why, &pumps)),
                Ok(why) = told(&mut self.evicted), if cancelled.is_none() => cancelled = Some(self.give_up(why, &pumps)),
                why = self.charge.passed(), if cancelled.is_none() => cancelled = Some(self.give_up(why, &pumps)),
                resting = rests(&mut self.stay), if cancelled.is_none() => out.say(OutputKind::Resting(resting)),
                () = self.accounts.due() => {
                    self.accounts.look().into_iter().for_each(|progress| out.say(OutputKind::Progress(progress)));
                }
                () = share_due(&self.share) => {
                    self.share.iter_mut().for_each(|share| share.follow(&self.accounts.ready(), self.accounts.used()));
                }
                () = self.stream_wait.due() => self.stream_wait.look(&self.guest.control(), pumps.awaited(out)),
                () = self.signals.due(), if cancelled.is_none() => cancelled = self.look_at_init(&pumps, out),
                () = pumps.finished(), if pumps.lingering => {
                    pumps.lingering = false;
                    self.guest.control().end_others();
                }
                input = from_hub.next::<TaskInput>(), if connected => match input {
                    Ok(Some(TaskInput { kind: Some(InputKind::Cancel(_)) })) | Ok(None) | Err(_) => {
                        connected = false;
                        cancelled.get_or_insert_with(|| FailedKind::Cancelled.because("cancelled"));
                        self.kill();
                    }
                    Ok(Some(TaskInput { kind: Some(kind) })) => self.on_input(kind, request, &mut pumps, out).await,
                    Ok(Some(TaskInput { kind: None })) => {}
                },
            }
        };
        let cancelled = cancelled.or_else(|| self.scratch.cramped()).or_else(|| self.charge.refused());
        match (ended, cancelled) {
            (Some(ended), None) if self.stream_wait.over(pumps.drain(unwanted(&mut from_hub))).await => Ok(ended),
            (_, cancelled) => {
                pumps.silence();
                Err(cancelled.unwrap_or_else(|| FailedKind::Cancelled.because("cancelled")))
            }
        }
    }

    /// Why it is not to go on, if that is what is reported.
    fn called_off(&self, event: &Event) -> Option<Failed> {
        match event {
            Event::Unable(why) => Some(FailedKind::Unable.because(why.clone())),
            Event::Names(owner) if self.lane.ids().place_named(*owner) => Some(FailedKind::Evicted.because(OWNER)),
            Event::Names(owner) => Some(FailedKind::Unable.because(format!("{OWNERS}: {owner}"))),
            _ => None,
        }
    }

    /// It will start again elsewhere: nobody must see how it dies.
    fn give_up(&self, why: Failed, pumps: &Pumps) -> Failed {
        pumps.silence();
        self.kill();
        why
    }

    fn kill(&self) {
        self.guest.control().kill();
        self.stay.iter().for_each(Stay::leaves);
        self.lane.cancel();
    }

    fn start_pumps(&self, mut streams: Streams, out: &Out) -> Pumps {
        let pump = |reader: Option<pipe::Receiver>, stream, wrap| {
            reader.map(|reader| tokio::spawn(pump_output(reader, Passing::new(out, &self.said, stream, wrap))))
        };
        let init = self.guest.control().process_id();
        let input = streams.input.take().zip(streams.fed.take());
        let outputs = [&streams.output, &streams.error].into_iter().flatten().map(inode).collect();
        Pumps {
            outputs,
            stdout: pump(streams.output.take(), Said::STDOUT, OutputKind::Stdout),
            stderr: pump(streams.error.take(), Said::STDERR, OutputKind::Stderr),
            terminal: None,
            lingering: false,
            input: input.map(|pipe| Feeding::begin(pipe, init, out.words.clone())),
        }
    }

    fn on_event(
        &mut self,
        event: Event,
        request: &Request,
        pumps: &mut Pumps,
        out: &Out,
    ) -> Result<Option<End>, Failed> {
        match event {
            Event::Started { terminal } => {
                mark(&mut self.timeline, self.arrived, "program started");
                out.say(OutputKind::Started(now_nanos()));
                if let Some(master) = terminal {
                    let terminal = Terminal::new(master).map_err(|error| trouble(error.to_string()))?;
                    let passing = Passing::new(out, &self.said, Said::TERMINAL, OutputKind::Terminal);
                    let lane = self.lane.clone();
                    pumps.open_terminal(terminal, passing, move || lane.ids().go_on());
                    if request.stdin == Stdin::Terminal {
                        out.say(OutputKind::StdinCredit(u32::MAX));
                    }
                }
            }
            Event::Stopped(signal) => out.say(OutputKind::Stopped(signal.into())),
            Event::Continued | Event::Unable(_) | Event::Names(_) => {}
            Event::Network(device) => {
                let network = Network::serve(device, request.task);
                self.network = Some(network.map_err(|error| trouble(format!("no network for a task: {error}")))?);
            }
            Event::Lock(lock) => out.say(OutputKind::Lock(lock_request(lock))),
            Event::Service { number, sought } => {
                let (port, process) = sought.numbers();
                out.say(OutputKind::Service(ServiceRequest { number, port: port.into(), process }))
            }
            Event::Left(name) => self.left.push(name),
            Event::Adds(path) if self.added_to.len() < ADDED_MAX => self.added_to.extend(TreePath::parse(&path)),
            Event::Adds(path) => drop(path),
            Event::Refused(what) => mark(&mut self.timeline, self.arrived, &what),
            Event::OthersRemain if request.linger => pumps.lingering = true,
            Event::OthersRemain => self.guest.control().end_others(),
            Event::Exited { left: Some(what), .. } => {
                let why = format!("it left {what} (System V), which belongs to the machine that it runs on");
                return Err(FailedKind::Unable.because(why));
            }
            Event::Signalled(signal) => out.answer(self.signals.confirm(signal.into())),
            Event::Exited { status, usage, stdin_offset, shared, .. } => {
                // What came too late for the program is answered as what reached it: its result may take long.
                out.answer(self.signals.unanswered());
                let stdin_offset = stdin_offset.or(pumps.input.as_ref().map(Feeding::taken)).unwrap_or(0);
                return Ok(Some(End { status, usage, stdin_offset, shared }));
            }
            Event::Killed => {
                let killed = || trouble("the task was killed with all its processes".into());
                return Err(self.charge.refused().unwrap_or_else(killed));
            }
            Event::Failed(failure) => return Err(request.not_started(&failure).before_begin()),
        }
        Ok(None)
    }

    /// The init has not confirmed a signal yet.
    fn look_at_init(&mut self, pumps: &Pumps, out: &Out) -> Option<Failed> {
        match self.signals.look(&self.guest.control()) {
            Ok(signals) => out.answer(signals),
            Err(hangs) => return Some(self.give_up(hangs, pumps)),
        }
        None
    }

    async fn on_input(&mut self, kind: InputKind, request: &Request, pumps: &mut Pumps, out: &Out) {
        match kind {
            InputKind::Signal(signal) => {
                out.answer(self.signals.send(signal, &request.command, &self.guest.control()));
                self.stay.iter().for_each(|stay| stay.signalled(signal));
            }
            InputKind::OutputClosed(1) => pumps.stdout.take().into_iter().for_each(|pump| pump.abort()),
            InputKind::OutputClosed(_) => pumps.stderr.take().into_iter().for_each(|pump| pump.abort()),
            InputKind::Resize(window) => {
                if let Some((terminal, _)) = &pumps.terminal {
                    terminal.resize(convert::window(window));
                }
            }
            InputKind::Stdin(bytes) => pumps.feed(InputItem::Bytes(bytes)).await,
            InputKind::StdinEnd(_) => pumps.feed(InputItem::End).await,
            InputKind::StdinBack(_) => pumps.feed(InputItem::Back).await,
            InputKind::Locked(number) => self.guest.control().locked(number),
            InputKind::Service(answer) => self.guest.control().service(answer.number, answer.is_there),
            InputKind::Cancel(_) | InputKind::Settled(_) => {}
        }
    }

    /// Gives everything back once nothing of the task is left.
    fn wind_up(self, task: TaskId, clients: Arc<Clients>, client: Arc<Client>) {
        let Self { guest, lane, scratch, stay, .. } = self;
        let ending = clients.endings.begin(task);
        tracing::debug!(%task, "a task has ended");
        tokio::spawn(async move {
            if let Err(error) = guest.gone().await {
                tracing::error!(%task, %error, "a task is not gone; its folder and lane stay until the worker ends");
                std::mem::forget((lane, scratch, client, ending));
                return;
            }
            drop((lane, stay, client, ending));
            if scratch.is_removed_at_once() {
                return;
            }
            let removed = tokio::task::spawn_blocking(move || drop(scratch)).await;
            if let Err(error) = removed {
                tracing::warn!(%task, %error, "a task's folder was not removed");
            }
            drop(clients);
        });
    }
}

/// Waits until the owner's own task should be weighed; for ever if it is none.
async fn share_due(share: &Option<Share>) {
    match share {
        Some(share) => share.due().await,
        None => std::future::pending().await,
    }
}

fn lock_request(lock: Lock) -> LockRequest {
    let Lock { number, path, is_exclusive, range, is_made, may_wait, is_gone } = lock;
    let (start, len) = range.unwrap_or_default();
    LockRequest { number, path, is_exclusive, is_range: range.is_some(), start, len, is_made, may_wait, is_gone }
}

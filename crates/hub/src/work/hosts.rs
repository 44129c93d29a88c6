//! Hosts that ask for workunits, or wait for them: volunteers, pilot jobs, machines without the files of anybody.

use crate::desk::{Desk, Durable};
use crate::needs::in_steps;
use crate::server::{Shared, blocking};
use crate::shared::Hubs;
use crate::state::State;
use crate::work::{ASKS, OWNERS_TAGS};
use base::NodeId;
use bytes::Bytes;
use prost::Message;
use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tasks::{
    AccountName, BATCH_MAX, Effect, Entry, Event, HostName, HostSpec, InstanceName, JobName, Outcome, Platform,
    RUNNING_MAX, Refusal, Report, Shape, TaskName,
};
use tokio::sync::Notify;
use wire::message::work::{Assigned, HostAsk, HostGreeting, HostTold, Instance, JobOpen, Reported};
use wire::message::{Open, OpenKind};
use wire::{Connection, Receiver, Sender, Trust, WireError, lock};

/// How long a host may be away before what it had is done elsewhere.
const AWAY_MAX: Duration = Duration::from_secs(60);
/// A machine has one in so many of the table's hosts at most, and may have so many in any case.
const MACHINE_SHARE: usize = 16;
const MACHINE_LEAST: usize = 64;
/// Different shapes that the hosts of one machine have: the table tells few apart.
const SHAPES_MAX: usize = 64;
/// Most jobs whose bytes a host is remembered to have; it is told them again beyond.
const JOBS_KNOWN_MAX: usize = 1024;
/// The hosts, with what they are to be told.
#[derive(Default)]
pub(crate) struct Hosts {
    known: HashMap<HostName, Host>,
    /// Their names in the table by those outside. One that started anew has another one there.
    names: HashMap<u128, HostName>,
    /// The shapes of those of each machine, and how many there are: by the accounts of these.
    of_machines: HashMap<AccountName, HashMap<Shape, usize>>,
    /// How many of them are away.
    away: usize,
    /// The connections of their machines, by number.
    machines: HashMap<u64, Connection>,
    streams: u64,
}

struct Host {
    spec: HostSpec,
    /// Its newest stream; an earlier one has no say any more.
    stream: u64,
    /// Not told yet. At most what it can have, and as much that it is to stop.
    news: Vec<Effect>,
    has_news: Arc<Notify>,
    /// When its stream ended, if it has none.
    away: Option<Instant>,
}

impl Hosts {
    /// A host is to be told this.
    pub fn tell(&mut self, host: HostName, effect: Effect) {
        let Some(known) = self.known.get_mut(&host) else { return };
        if known.news.len() < 2 * RUNNING_MAX {
            known.news.push(effect);
            known.has_news.notify_one();
        }
    }

    /// How many there are, and how many of them are away.
    pub fn counts(&self) -> (usize, usize) {
        (self.known.len(), self.away)
    }

    /// Closes the connections of a machine.
    pub fn close(&self, node: NodeId, why: &str) {
        self.machines.values().filter(|machine| machine.peer() == node).for_each(|machine| machine.close(why));
    }

    /// A host is there, from now on under this name.
    fn add(&mut self, name: HostName, host: Host) {
        // Its earlier stream, if it has one, ends with the next thing that it asks.
        let earlier = self.names.get(&host.spec.key).copied();
        earlier.into_iter().for_each(|earlier| self.remove(earlier));
        self.names.insert(host.spec.key, name);
        *self.of_machines.entry(host.spec.account).or_default().entry(host.spec.shape).or_default() += 1;
        self.known.insert(name, host);
    }

    fn remove(&mut self, name: HostName) {
        let Some(host) = self.known.remove(&name) else { return };
        self.away -= usize::from(host.away.is_some());
        if self.names.get(&host.spec.key) == Some(&name) {
            self.names.remove(&host.spec.key);
        }
        if let Some(shapes) = self.of_machines.get_mut(&host.spec.account) {
            shapes.get_mut(&host.spec.shape).into_iter().for_each(|count| *count -= 1);
            shapes.retain(|_, count| *count > 0);
            if shapes.is_empty() {
                self.of_machines.remove(&host.spec.account);
            }
        }
    }

    /// Whether a machine may have this host, or have it again.
    fn may_come(&self, spec: &HostSpec, capacity: usize) -> bool {
        let Some(shapes) = self.of_machines.get(&spec.account) else { return true };
        let most = capacity.div_ceil(MACHINE_SHARE).max(MACHINE_LEAST);
        let has_room = self.names.contains_key(&spec.key) || shapes.values().sum::<usize>() < most;
        has_room && (shapes.len() < SHAPES_MAX || shapes.contains_key(&spec.shape))
    }

    /// Those that have been away for too long at `now`; they are forgotten here.
    fn take_gone(&mut self, now: Instant) -> Vec<HostName> {
        let is_gone = |host: &Host| host.away.is_some_and(|since| now.duration_since(since) >= AWAY_MAX);
        let gone = self.known.iter().filter(|(_, host)| is_gone(host)).map(|(name, _)| *name);
        let gone: Vec<HostName> = gone.collect();
        gone.iter().for_each(|name| self.remove(*name));
        gone
    }
}

/// One host, over one stream.
struct Served {
    host: HostName,
    stream: u64,
    waits: bool,
    /// Jobs whose bytes it has.
    jobs: HashSet<JobName>,
    has_news: Arc<Notify>,
}

impl Shared {
    /// Serves a machine whose hosts ask, until it leaves. Its first stream stays open, and all that is said there is where
    /// the hubs are.
    pub(crate) async fn serve_asking(
        self: &Arc<Self>,
        connection: Connection,
        (mut control, _receiver): (Sender, Receiver),
        mut hubs: Hubs,
    ) {
        let number = {
            let hosts = &mut lock(&self.state).work.hosts;
            hosts.streams += 1;
            hosts.machines.insert(hosts.streams, connection.clone());
            hosts.streams
        };
        self.look_again(&connection);
        loop {
            let opened = tokio::select! {
                opened = connection.accept_control() => opened,
                told = hubs.changed() => {
                    // In a box: it is seldom told.
                    if Box::pin(control.send(&told)).await.is_err() {
                        break;
                    }
                    continue;
                }
            };
            let Ok((mut sender, mut receiver)) = opened else { break };
            let (shared, node) = (self.clone(), connection.peer());
            tokio::spawn(async move {
                // In a box of its own: when the host is there, its room is given back.
                let came = Box::pin(shared.host_comes(node, &mut sender, &mut receiver)).await;
                let ended = match came {
                    Ok(Some(mut served)) => {
                        let ended = shared.exchange(&mut served, &mut sender, &mut receiver).await;
                        lock(&shared.state).host_away(served.host, served.stream);
                        ended
                    }
                    Ok(None) => Ok(()),
                    Err(error) => Err(error),
                };
                if let Err(error) = ended {
                    tracing::debug!(%node, %error, "a host's stream ended");
                }
            });
        }
        lock(&self.state).work.hosts.machines.remove(&number);
    }

    /// Lets a host join over its stream. `None`: it was told why not, or did not say what it is.
    async fn host_comes(
        self: &Arc<Self>,
        node: NodeId,
        sender: &mut Sender,
        receiver: &mut Receiver,
    ) -> Result<Option<Served>, WireError> {
        let Some(Open { kind: Some(OpenKind::Host(greeting)) }) = receiver.next::<Open>().await? else {
            return Ok(None);
        };
        let shared = self.clone();
        let waits = move || lock(&shared.registry).trust(node) == Trust::Waiting;
        let joined = match blocking(waits).await? {
            true => Err("this machine waits for `gleaner approve`: nothing is given to it until then".to_owned()),
            false => lock(&self.state).host_joins(node, &greeting).map_err(|refusal| refusal.to_string()),
        };
        let (served, told, durable) = match joined {
            Ok(joined) => joined,
            Err(refusal) => {
                sender.send(&HostTold { refusal, ..HostTold::default() }).await?;
                sender.finish();
                return Ok(None);
            }
        };
        if durable.await.is_err() {
            lock(&self.state).host_away(served.host, served.stream);
            return Err(WireError::Lost("the hub ends".into()));
        }
        sender.send(&told).await.inspect_err(|_| lock(&self.state).host_away(served.host, served.stream))?;
        Ok(Some(served))
    }

    async fn exchange(
        &self,
        served: &mut Served,
        sender: &mut Sender,
        receiver: &mut Receiver,
    ) -> Result<(), WireError> {
        let has_news = served.has_news.clone();
        loop {
            let answer = tokio::select! {
                ask = receiver.next_encoded() => {
                    let Some(ask) = ask? else { return Ok(()) };
                    let ask = wire::decode::<HostAsk>(ask)?;
                    let answer = lock(&self.state).host_asks(served, &ask);
                    Some(answer.map_err(|refusal| WireError::Invalid(refusal.to_string()))?)
                }
                () = has_news.notified(), if served.waits => None,
            };
            let (mut told, is_news) = (HostTold::default(), answer.is_none());
            if let Some((first, durable)) = answer {
                told = HostTold { is_answer: true, ..first };
                if let Some(durable) = durable {
                    durable.await.map_err(|_| WireError::Lost("the hub ends".into()))?;
                }
            }
            // What has come up meanwhile goes with it, if any has.
            let mut has_more = is_news || pin!(has_news.notified()).enable();
            loop {
                has_more = has_more && !lock(&self.state).host_news(served, &mut told);
                if told.is_answer || !told.assigned.is_empty() || !told.stop.is_empty() {
                    // In a box: most of the time nothing is being sent.
                    Box::pin(sender.send(&std::mem::take(&mut told))).await?;
                }
                if !has_more {
                    break;
                }
            }
        }
    }

    /// Hosts that have been away for long are given up, now and then.
    pub(crate) fn drop_gone_hosts(&self, now: Instant) {
        let mut state = lock(&self.state);
        for host in state.work.hosts.take_gone(now) {
            state.act(Event::Leave(host));
        }
    }
}

impl State {
    fn host_joins(&mut self, node: NodeId, greeting: &HostGreeting) -> Result<(Served, HostTold, Durable), Refusal> {
        self.placement.desk.is_crowded()?;
        let account = self.placement.desk.account(node.0.first_u128_le())?;
        let which = u128::from_le_bytes(*node.0.0.last_chunk().expect("half of a digest"));
        let spec = HostSpec {
            key: which ^ u128::from(greeting.number),
            account,
            shape: shape(greeting),
            speed_permille: greeting.speed_permille.max(1),
            is_fresh: greeting.is_fresh,
            is_attached: greeting.waits,
        };
        if !self.work.hosts.may_come(&spec, self.placement.desk.table().capacity().hosts) {
            return Err(Refusal::Invalid(
                "this machine has as many hosts at the hub as one may have, or of as many sizes",
            ));
        }
        let said = self.act(Event::Join(spec));
        let host = match said.first() {
            Some(Effect::Host(host)) => *host,
            Some(Effect::Refused(refusal)) => return Err(*refusal),
            _ => return Err(Refusal::Unknown),
        };
        let hosts = &mut self.work.hosts;
        hosts.streams += 1;
        let (stream, has_news) = (hosts.streams, Arc::<Notify>::default());
        let known = Host { spec, stream, news: Vec::new(), has_news: has_news.clone(), away: None };
        hosts.add(host, known);
        let running = self.placement.desk.table().host(host).map(|view| view.running).unwrap_or_default();
        let has = running.iter().map(|instance| told_instance(*instance)).collect();
        let mut told = HostTold { has, ..HostTold::default() };
        let mut served = Served { host, stream, waits: greeting.waits, jobs: HashSet::new(), has_news };
        // Not what it is given just now: that is news yet to come.
        let is_new = |instance| {
            said.iter().any(|effect| matches!(effect, Effect::Send { instance: new, .. } if *new == instance))
        };
        for instance in running.into_iter().filter(|instance| !is_new(*instance)) {
            if !greeting.has.contains(&told_instance(instance)) {
                self.assign_again(&mut served, instance, &mut told);
            }
        }
        Ok((served, told, self.placement.desk.durable()))
    }

    /// The hosts that were there when the hub ended may come back to the new one, with what they have.
    pub(crate) fn expect_hosts(&mut self) {
        let hosts: Vec<(HostName, HostSpec)> = self.placement.desk.table().hosts().collect();
        for (host, spec) in hosts {
            let known = Host { spec, stream: 0, news: Vec::new(), has_news: Arc::default(), away: None };
            self.work.hosts.add(host, known);
            self.host_away(host, 0);
        }
    }

    /// A host tells and asks. The answer may have to wait.
    fn host_asks(&mut self, served: &mut Served, ask: &HostAsk) -> Result<(HostTold, Option<Durable>), Refusal> {
        let known = self.work.hosts.known.get(&served.host).filter(|known| known.stream == served.stream);
        let speed = known.ok_or(Refusal::Unknown)?.spec.speed_permille;
        if let Err(refusal) = self.placement.desk.is_crowded() {
            return Ok((refused(refusal), None));
        }
        let told = ask.reports.iter().filter_map(|told| Some((report(told, speed)?, &told.result[..])));
        let (reports, blobs): (Vec<Report>, Vec<&[u8]>) = told.unzip();
        let want = ask.want.min(BATCH_MAX as u32) as u8;
        let said = if reports.is_empty() {
            if served.waits || want == 0 {
                return Ok((HostTold::default(), None));
            }
            self.act(Event::Request { host: served.host, want })
        } else {
            self.act(Entry { event: Event::Report { host: served.host, reports: &reports, want }, blobs: &blobs })
        };
        let mut told = HostTold::default();
        for effect in &said {
            match effect {
                // What those are sent that wait is held back, theirs and others'.
                Effect::Send { host, .. } if !served.waits && *host == served.host => {
                    self.assign(served, effect, &mut told);
                }
                Effect::Nothing(_, again_ms) | Effect::BackOff(_, again_ms) => told.again_ms = (*again_ms).max(1),
                Effect::Refused(refusal) => told = refused(*refusal),
                _ => {}
            }
        }
        let must_wait = !reports.is_empty() || !told.assigned.is_empty();
        let durable = must_wait.then(|| self.placement.desk.durable());
        Ok((told, durable))
    }

    /// Adds what a host is to be told beside. False: there is more.
    fn host_news(&mut self, served: &mut Served, told: &mut HostTold) -> bool {
        let Some(known) = self.work.hosts.known.get_mut(&served.host) else { return true };
        if known.stream != served.stream {
            return true;
        }
        let count = known.news.len().min(BATCH_MAX);
        let news: Vec<Effect> = known.news.drain(..count).collect();
        let is_all = known.news.is_empty();
        for effect in &news {
            match effect {
                Effect::Send { .. } => self.assign(served, effect, told),
                Effect::Stop(_, instance) => told.stop.push(told_instance(*instance)),
                _ => {}
            }
        }
        is_all
    }

    fn assign(&self, served: &mut Served, effect: &Effect, told: &mut HostTold) {
        let Effect::Send { instance, index, due_ms, .. } = *effect else { return };
        let desk: &Desk = &self.placement.desk;
        // It may have been cancelled while its record became durable.
        let Some(task) = desk.table().task(instance.task) else { return };
        if served.jobs.len() == JOBS_KNOWN_MAX {
            served.jobs.clear();
        }
        let is_new = served.jobs.insert(task.job);
        let common = is_new.then(|| desk.ledger().job(task.job)).flatten();
        let common = common.and_then(|blob| JobOpen::decode(Bytes::from_owner(blob.clone())).ok());
        let common = common.map_or(Bytes::new(), |open| open.common);
        let input = desk.ledger().input(instance.task).cloned();
        told.assigned.push(Assigned {
            instance: Some(told_instance(instance)),
            job: task.job.to_u64(),
            index,
            due_in_ms: due_ms.saturating_sub(desk.now_ms()).min(u32::MAX.into()) as u32,
            input: input.map_or(Bytes::new(), Bytes::from_owner),
            common,
        });
    }

    /// A host does not have what it was sent: the word was lost on the way.
    fn assign_again(&self, served: &mut Served, instance: InstanceName, told: &mut HostTold) {
        let table = self.placement.desk.table();
        let Some(task) = table.task(instance.task) else { return };
        let view = table.instances(instance.task).into_iter().find(|view| view.name == instance);
        let due_ms = view.map_or(0, |view| view.due_ms);
        let again = Effect::Send { host: served.host, instance, index: task.index, due_ms };
        self.assign(served, &again, told);
    }

    /// A host's stream has ended. It may come back; until then it is sent nothing.
    fn host_away(&mut self, host: HostName, stream: u64) {
        let hosts = &mut self.work.hosts;
        let Some(known) = hosts.known.get_mut(&host).filter(|known| known.stream == stream) else { return };
        hosts.away += usize::from(known.away.replace(Instant::now()).is_none());
        known.news.clear();
        if known.spec.is_attached {
            let spec = HostSpec { is_fresh: false, is_attached: false, ..known.spec };
            self.act(Event::Join(spec));
        }
    }
}

fn refused(refusal: Refusal) -> HostTold {
    let again_ms = if let Refusal::Full(_, ms) = refusal { ms } else { 0 };
    HostTold { refusal: refusal.to_string(), again_ms, ..HostTold::default() }
}

fn shape(greeting: &HostGreeting) -> Shape {
    let cpus = greeting.cpus.clamp(1, RUNNING_MAX as u32) as u16;
    Shape {
        platform: Platform::LINUX_X86_64,
        level: greeting.level.min(4) as u8,
        cpus,
        largest: cpus,
        memory_mib: in_steps(greeting.memory_mib),
        tags: greeting.tags & OWNERS_TAGS | ASKS,
        redundancy: greeting.redundancy.min(u8::MAX.into()) as u8,
    }
}

pub(super) fn told_instance(name: InstanceName) -> Instance {
    Instance { task: name.task.to_u64(), number: name.number.into() }
}

/// What a host says of an instance; nothing if that cannot be read.
fn report(told: &Reported, speed_permille: u32) -> Option<Report> {
    let instance = told.instance?;
    let number = u8::try_from(instance.number).ok()?;
    let outcome = match &told.digest[..] {
        [] => Outcome::Failed,
        digest => Outcome::Done(*digest.first_chunk()?),
    };
    let cost_ms = u64::from(told.cost_ms) * u64::from(speed_permille) / 1_000;
    let instance = InstanceName { task: TaskName::from_u64(instance.task), number };
    Some(Report { instance, outcome, cost_ms: cost_ms.min(u32::MAX.into()) as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desk::Room;
    use base::Digest;

    #[test]
    fn one_machine_never_fills_the_table_with_hosts() {
        let room = Room { hosts: 1_600, tasks: 64, bytes_max: 1 << 20 };
        let mut state = State::new(Desk::in_memory(room, 5), HashSet::new());
        let node = |number| NodeId(Digest([number; 32]));
        let greeting = |number, is_fresh| HostGreeting { number, is_fresh, cpus: 1, ..HostGreeting::default() };
        for number in 0..100 {
            assert!(state.host_joins(node(1), &greeting(number, true)).is_ok(), "{number}");
        }
        let refused = state.host_joins(node(1), &greeting(100, true)).map(drop).expect_err("too many");
        assert!(refused.to_string().contains("as many hosts"), "{refused}");
        assert!(state.host_joins(node(2), &greeting(100, true)).is_ok(), "another machine");
        let large = |number, gib: u32| HostGreeting { memory_mib: gib << 10, ..greeting(number, true) };
        for gib in 1..SHAPES_MAX as u32 {
            assert!(state.host_joins(node(1), &large(gib, gib)).is_ok(), "{gib}");
        }
        assert!(state.host_joins(node(1), &large(70, 99)).is_err(), "of another size");
        assert!(state.host_joins(node(1), &large(70, 3)).is_ok(), "of one that it has");
        // The same ones come again, as they were or anew.
        for is_fresh in [true, false, true] {
            for number in 0..100 {
                assert!(state.host_joins(node(1), &greeting(number, is_fresh)).is_ok(), "{number}");
            }
        }
        assert_eq!(state.work.hosts.counts(), (101, 0));
        let (served, ..) = state.host_joins(node(1), &greeting(5, false)).map_err(drop).expect("it is known");
        state.host_away(served.host, served.stream);
        assert_eq!(state.work.hosts.counts(), (101, 1));
        assert_eq!(state.work.hosts.take_gone(Instant::now() + AWAY_MAX), [served.host]);
        assert!(state.host_joins(node(1), &greeting(100, true)).is_ok(), "in the place of one that is gone");
        assert_eq!(state.work.hosts.counts(), (101, 0));
    }
}

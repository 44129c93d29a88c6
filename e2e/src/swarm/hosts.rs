//! Hosts: each with a connection of its own.

use super::plan::Plan;
use crate::error::{Error, Result};
use base::Digest;
use bytes::Bytes;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};
use wire::flow::Paths;
use wire::message::work::{Assigned, HostAsk, HostGreeting, HostTold, Instance, Reported};
use wire::message::{Hello, OpenKind};
use wire::{Endpoint, Hold, Joined, Key, Pauses, Receiver, Role, Sender, Token};

/// Handshakes at a time.
const DIALLING_MAX: usize = 32;
/// Hosts that leave at a time.
const LEAVING_AT_ONCE: usize = 50;
/// Reports in one message.
const REPORTS_MAX: usize = 16;
/// How long all may take to be there.
const JOIN_LIMIT: Duration = Duration::from_secs(300);
/// What a host says of what it can run: only the swarm's tasks want that.
pub const TAG: u64 = 1 << 40;

/// All hosts of a swarm.
pub struct Hosts {
    shared: Arc<Shared>,
    living: JoinSet<()>,
    leaving: Vec<AbortHandle>,
    /// How long it took until all were there.
    pub joined_in: Duration,
}

struct Shared {
    plan: Plan,
    dialling: Semaphore,
    connected: AtomicUsize,
    reconnected: AtomicU64,
    died: AtomicU64,
}

/// A machine with a key, which some hosts are on.
#[derive(Clone)]
pub struct Machine {
    endpoint: Endpoint,
    token: Token,
    address: SocketAddr,
    hello: Hello,
}

impl Machine {
    /// Redeems its token.
    pub async fn join(token: &str, address: &str, role: Role) -> Result<Self> {
        let failed = |what: String| Error::Product(format!("a machine of the swarm: {what}"));
        let token = Token::parse(token).map_err(|error| failed(error.to_string()))?;
        let address = address.parse().map_err(|_| failed(format!("{address} is no address")))?;
        let hold = if role == Role::Worker { Hold::Asking } else { Hold::Long };
        let endpoint = Endpoint::new(&Key::generate(), hold).map_err(|error| failed(error.to_string()))?;
        let hello = Hello {
            role: role.number().into(),
            name: "swarm".into(),
            asks: role == Role::Worker,
            instance: rand::random(),
            ..Hello::default()
        };
        let machine = Self { endpoint, token, address, hello };
        let secret = Bytes::copy_from_slice(&machine.token.secret);
        let hello = Hello { secret, ..machine.hello.clone() };
        let joined = machine.dial_with(hello).await.map_err(failed)?;
        joined.connection.close("redeemed");
        Ok(machine)
    }

    /// Connects.
    pub async fn dial(&self) -> std::result::Result<Joined, String> {
        self.dial_with(Hello { instance: rand::random(), ..self.hello.clone() }).await
    }

    async fn dial_with(&self, hello: Hello) -> std::result::Result<Joined, String> {
        let none = |_| Paths::default();
        let dialled = wire::dial(&self.endpoint, &[self.address], self.token.hub, none, hello).await;
        dialled.map_err(|error| error.to_string())
    }
}

impl Hosts {
    /// Waits until all are there.
    pub async fn join(plan: &Plan) -> Result<Self> {
        let begun = Instant::now();
        let mut machines = Vec::new();
        for token in &plan.host_tokens {
            machines.push(Machine::join(token, &plan.address, Role::Worker).await?);
        }
        let shared = Arc::new(Shared {
            plan: plan.clone(),
            dialling: Semaphore::new(DIALLING_MAX),
            connected: AtomicUsize::new(0),
            reconnected: AtomicU64::new(0),
            died: AtomicU64::new(0),
        });
        let (mut living, mut leaving) = (JoinSet::new(), Vec::new());
        for number in 0..plan.hosts {
            let host = Host {
                number: number as u32,
                machine: machines[number % machines.len()].clone(),
                shared: shared.clone(),
                is_fresh: true,
                doing: Vec::new(),
                told: Vec::new(),
            };
            leaving.push(living.spawn(host.live()));
        }
        let mut hosts = Self { shared, living, leaving, joined_in: Duration::ZERO };
        while hosts.count() < plan.hosts {
            if begun.elapsed() > JOIN_LIMIT {
                return Err(Error::Product(format!("{} of {} hosts joined", hosts.count(), plan.hosts)));
            }
            sleep(Duration::from_millis(20)).await;
        }
        hosts.joined_in = begun.elapsed();
        Ok(hosts)
    }

    /// Has all leave, and say so to the hub.
    pub async fn leave(mut self) {
        // Some at a time: should the word of one be lost, the hub gives it work for minutes.
        for some in self.leaving.chunks(LEAVING_AT_ONCE) {
            some.iter().for_each(AbortHandle::abort);
            sleep(Duration::from_millis(10)).await;
        }
        self.living.shutdown().await;
        // What they say is on its way then.
        sleep(Duration::from_millis(500)).await;
    }

    /// How many are there.
    pub fn count(&self) -> usize {
        self.shared.connected.load(Ordering::Relaxed)
    }

    /// How many have died so far.
    pub fn died(&self) -> u64 {
        self.shared.died.load(Ordering::Relaxed)
    }
}

struct Host {
    number: u32,
    machine: Machine,
    shared: Arc<Shared>,
    is_fresh: bool,
    doing: Vec<Doing>,
    /// Reports that the hub has not said to have.
    told: Vec<Reported>,
}

struct Doing {
    instance: Instance,
    until: Instant,
    input: Bytes,
    dies: bool,
}

/// Why a host's stream ended.
enum End {
    /// The hub is gone.
    Lost,
    /// It died; its stream is open still, and nobody reads there.
    Died(Box<Joined>),
}

impl Host {
    async fn live(mut self) {
        let mut pauses = Pauses::default();
        loop {
            match self.serve(&mut pauses).await {
                Ok(End::Died(silent)) => {
                    self.shared.died.fetch_add(1, Ordering::Relaxed);
                    sleep(Duration::from_millis(self.shared.plan.dead_ms)).await;
                    silent.connection.close("its machine starts anew");
                    (self.is_fresh, self.doing, self.told) = (true, Vec::new(), Vec::new());
                }
                Ok(End::Lost) | Err(_) => {
                    self.shared.reconnected.fetch_add(1, Ordering::Relaxed);
                    sleep(pauses.next_pause()).await;
                }
            }
        }
    }

    async fn serve(&mut self, pauses: &mut Pauses) -> std::result::Result<End, String> {
        let joined = {
            let _place = self.shared.dialling.acquire().await.map_err(|error| error.to_string())?;
            self.machine.dial().await?
        };
        let plan = &self.shared.plan;
        let greeting = HostGreeting {
            number: self.number,
            cpus: plan.cpus,
            tags: TAG,
            speed_permille: 1_000,
            is_fresh: self.is_fresh,
            waits: plan.waits,
            has: self
                .doing
                .iter()
                .map(|doing| doing.instance)
                .chain(self.told.iter().filter_map(|told| told.instance))
                .collect(),
            ..HostGreeting::default()
        };
        let lost = |error: wire::WireError| error.to_string();
        let (mut sender, mut receiver) = joined.connection.open(OpenKind::Host(greeting)).await.map_err(lost)?;
        let told = receiver.next::<HostTold>().await.map_err(lost)?.ok_or("no answer")?;
        if !told.refusal.is_empty() {
            return Err(told.refusal);
        }
        (self.is_fresh, *pauses) = (false, Pauses::default());
        // What is not there any more is not waited for.
        self.doing.retain(|doing| told.has.contains(&doing.instance));
        told.assigned.into_iter().for_each(|assigned| self.begin(assigned));
        self.shared.connected.fetch_add(1, Ordering::Relaxed);
        let ended = self.work(&mut sender, &mut receiver).await;
        self.shared.connected.fetch_sub(1, Ordering::Relaxed);
        Ok(if ended.map_err(lost)? { End::Died(Box::new(joined)) } else { End::Lost })
    }

    /// Works until the hub is gone, or until it dies: true.
    async fn work(
        &mut self,
        sender: &mut Sender,
        receiver: &mut Receiver,
    ) -> std::result::Result<bool, wire::WireError> {
        let (waits, want) = (self.shared.plan.waits, self.shared.plan.want);
        let mut asks_at = (!waits).then(Instant::now);
        // What is asked: so many reports, the first of those that are to be told.
        let mut asked = None;
        loop {
            let done_at = self.doing.iter().map(|doing| doing.until).min();
            let next = match asked {
                Some(_) => None,
                None if !self.told.is_empty() => Some(asks_at.unwrap_or_else(Instant::now)),
                None => done_at.into_iter().chain(asks_at).min(),
            };
            tokio::select! {
                told = receiver.next::<HostTold>() => {
                    let Some(told) = told? else { return Ok(false) };
                    if let Some(count) = asked.filter(|_| told.is_answer) {
                        if !told.refusal.is_empty() && told.again_ms == 0 {
                            return Ok(false);
                        }
                        asked = None;
                        if told.refusal.is_empty() {
                            self.told.drain(..count);
                        }
                        let again = Duration::from_millis(told.again_ms.into());
                        asks_at = (told.again_ms > 0 || !waits && told.assigned.is_empty()).then(|| Instant::now() + again);
                    }
                    self.doing.retain(|doing| !told.stop.contains(&doing.instance));
                    told.assigned.into_iter().for_each(|assigned| self.begin(assigned));
                }
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            }
            if asked.is_some() {
                continue;
            }
            if self.end_those_done() {
                return Ok(true);
            }
            let may_ask = asks_at.is_none_or(|at| at <= Instant::now());
            if may_ask && (!self.told.is_empty() || !waits && self.doing.is_empty()) {
                let count = self.told.len().min(REPORTS_MAX);
                let want = if waits { 0 } else { want };
                sender.send(&HostAsk { reports: self.told[..count].to_vec(), want }).await?;
                (asked, asks_at) = (Some(count), None);
            }
        }
    }

    fn begin(&mut self, assigned: Assigned) {
        let Some(instance) = assigned.instance else { return };
        let ms = assigned.input.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let dies = rand::random::<f64>() * 100.0 < self.shared.plan.dying_percent;
        let takes = Duration::from_millis(u64::from(ms) / if dies { 2 } else { 1 });
        self.doing.push(Doing { instance, until: Instant::now() + takes, input: assigned.input, dies });
    }

    /// Puts aside what to report. True: the host dies.
    fn end_those_done(&mut self) -> bool {
        let now = Instant::now();
        if self.doing.iter().any(|doing| doing.dies && doing.until <= now) {
            return true;
        }
        for doing in self.doing.extract_if(.., |doing| doing.until <= now) {
            let digest = Bytes::copy_from_slice(&Digest::of(&doing.input).0);
            let report = Reported { instance: Some(doing.instance), digest, result: doing.input, cost_ms: 1 };
            self.told.push(report);
        }
        false
    }
}

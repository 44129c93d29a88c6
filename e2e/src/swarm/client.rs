//! A client: submits what is due, and collects what came of it.

use super::hosts::{Hosts, Machine, TAG};
use super::plan::{Outcome, Phase, Plan, three};
use super::watch::{Pace, Watch};
use crate::error::{Error, Result};
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use wire::message::OpenKind;
use wire::message::work::{Collect, Endings, JobAsk, JobAskKind, JobOpen, JobSubmit, JobTold, Taken};
use wire::{Joined, Pauses, Receiver, Role, Sender, WireError};

/// How often what is due is submitted.
const TURN: Duration = Duration::from_micros(200);
/// How long the rest may take when nothing more is submitted.
const REST_LIMIT: Duration = Duration::from_secs(120);
/// Endings that may be on their way.
const AHEAD: u32 = 4096;
/// Submissions without an answer.
const UNANSWERED_MAX: usize = 128;

/// The client of a swarm.
pub struct Client {
    machine: Machine,
}

/// What is known of one task.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Known {
    #[default]
    Nothing,
    Accepted,
    /// Its end was told.
    Ended,
    Settled,
}

/// A phase that runs.
struct Run<'a> {
    phase: &'a Phase,
    key: Bytes,
    begun: Instant,
    /// Tasks that were ever due; sent over this connection; accepted; settled.
    due: u32,
    sent: u32,
    accepted: u32,
    settled: u32,
    known: Vec<Known>,
    /// Submissions without an answer: how far each goes.
    unanswered: VecDeque<u32>,
    /// Nothing is submitted before.
    paused_until: Instant,
    /// Those taken, in order, that are not settled: which, and when.
    taken: VecDeque<(u32, u64)>,
    settled_here: u64,
    life: Vec<(u64, u64)>,
    accepted_ns: Vec<u64>,
    ended_ns: Vec<u64>,
    lag_ns: Vec<u64>,
    out: Outcome,
}

/// The streams of one connection.
struct Streams {
    _joined: Joined,
    job: u64,
    jobs: (Sender, Receiver),
    collect: (Sender, Receiver),
}

impl Client {
    /// Redeems its token.
    pub async fn join(plan: &Plan) -> Result<Self> {
        Ok(Self { machine: Machine::join(&plan.client_token, &plan.address, Role::Client).await? })
    }

    /// Runs a phase to its end.
    pub async fn run(&self, phase: &Phase, hosts: &Hosts) -> Result<Outcome> {
        let died = hosts.died();
        let mut run = Run::new(phase);
        let watch = Watch::start();
        let mut pauses = Pauses::default();
        let limit = Duration::from_secs_f64(phase.seconds) + REST_LIMIT;
        loop {
            if run.begun.elapsed() > limit {
                return Err(Error::Product(format!(
                    "{}: {} of {} tasks had an end after {limit:?}",
                    phase.name, run.settled, run.due
                )));
            }
            let connected = timeout(limit, self.connect(&mut run)).await;
            let ended = match connected {
                Ok(Ok(mut streams)) => {
                    pauses = Pauses::default();
                    let exchanged =
                        timeout(limit.saturating_sub(run.begun.elapsed()), run.exchange(&mut streams)).await;
                    exchanged.unwrap_or_else(|_| Err("too late".into()))
                }
                Ok(Err(error)) => Err(error),
                Err(_) => Err("too late".into()),
            };
            match ended {
                Ok(()) => break,
                Err(why) => {
                    eprintln!("swarm: {}: {why}", phase.name);
                    run.out.reconnected += 1;
                    sleep(pauses.next_pause()).await;
                }
            }
        }
        let mut out = run.outcome();
        out.hiccup_ms = three(&mut watch.stop());
        out.died = hosts.died() - died;
        Ok(out)
    }

    async fn connect(&self, run: &mut Run<'_>) -> std::result::Result<Streams, String> {
        let joined = self.machine.dial().await?;
        let lost = |error: WireError| error.to_string();
        let mut jobs = joined.connection.open(OpenKind::Jobs(true)).await.map_err(lost)?;
        let open = JobAskKind::Open(run.open());
        jobs.0.send(&JobAsk { kind: Some(open) }).await.map_err(lost)?;
        let told = jobs.1.next::<JobTold>().await.map_err(lost)?.ok_or("no answer")?;
        if !told.refusal.is_empty() {
            return Err(told.refusal);
        }
        run.goes_on_from(told.tasks);
        let wanted = Collect { job: told.job, ahead: AHEAD };
        let collect = joined.connection.open(OpenKind::Collect(wanted)).await.map_err(lost)?;
        Ok(Streams { _joined: joined, job: told.job, jobs, collect })
    }
}

impl<'a> Run<'a> {
    fn new(phase: &'a Phase) -> Self {
        let key: [u8; 16] = rand::random();
        Self {
            phase,
            key: Bytes::copy_from_slice(&key),
            begun: Instant::now(),
            due: 0,
            sent: 0,
            accepted: 0,
            settled: 0,
            known: Vec::new(),
            unanswered: VecDeque::new(),
            paused_until: Instant::now(),
            taken: VecDeque::new(),
            settled_here: 0,
            life: Vec::new(),
            accepted_ns: Vec::new(),
            ended_ns: Vec::new(),
            lag_ns: Vec::new(),
            out: Outcome { phase: phase.name.clone(), ..Outcome::default() },
        }
    }

    fn open(&self) -> JobOpen {
        let phase = self.phase;
        JobOpen {
            key: self.key.clone(),
            name: phase.name.clone(),
            cpus: 1,
            tags: TAG,
            quorum: phase.quorum,
            errors_max: 10,
            instances_max: 12,
            is_speculative: phase.is_speculative,
            delay_bound_ms: phase.delay_bound_ms,
            cost_ms: phase.task_ms.max(1),
            failures_max: u32::MAX,
            ..JobOpen::default()
        }
    }

    /// A connection is there: the hub has so many tasks.
    fn goes_on_from(&mut self, tasks: u32) {
        if tasks < self.accepted {
            self.out.lost += u64::from(self.accepted - tasks);
        }
        self.sent = tasks;
        self.unanswered.clear();
        self.taken.clear();
        self.settled_here = 0;
        self.accept(tasks);
    }

    /// When a task was due, in nanoseconds since the beginning.
    fn due_ns(&self, index: u32) -> u64 {
        let phase = self.phase;
        let seconds = if let Some(turn) = index.checked_div(phase.burst) {
            f64::from(turn) * phase.every_s
        } else if phase.rate > 0.0 {
            f64::from(index) / phase.rate
        } else {
            return 0;
        };
        (seconds * 1e9) as u64
    }

    fn since(&self, index: u32) -> u64 {
        (self.begun.elapsed().as_nanos() as u64).saturating_sub(self.due_ns(index))
    }

    /// How many tasks are due now.
    fn due_now(&self) -> u32 {
        let elapsed = self.begun.elapsed().as_secs_f64().min(self.phase.seconds);
        let phase = self.phase;
        let due = if phase.burst > 0 {
            ((elapsed / phase.every_s) as u32 + 1).min((phase.seconds / phase.every_s) as u32) * phase.burst
        } else if phase.rate > 0.0 {
            ((elapsed * phase.rate) as u32 + 1).min((phase.seconds * phase.rate) as u32)
        } else if self.is_over() {
            self.due
        } else {
            u32::MAX
        };
        due.min(self.settled.saturating_add(phase.window)).max(self.due)
    }

    fn is_over(&self) -> bool {
        self.begun.elapsed().as_secs_f64() >= self.phase.seconds
    }

    fn accept(&mut self, tasks: u32) {
        for index in self.accepted..tasks {
            if index as usize >= self.known.len() {
                self.known.resize(index as usize + 1, Known::Nothing);
            }
            self.known[index as usize] = self.known[index as usize].max(Known::Accepted);
            self.accepted_ns.push(self.since(index));
        }
        self.accepted = self.accepted.max(tasks);
    }

    /// Until all is done: submits, takes, and ends the job.
    async fn exchange(&mut self, streams: &mut Streams) -> std::result::Result<(), String> {
        let lost = |error: WireError| error.to_string();
        let Streams { job, jobs: (to_jobs, from_jobs), collect: (to_collect, from_collect), .. } = streams;
        let mut is_closed = false;
        let pace = Pace::start(TURN);
        loop {
            tokio::select! {
                biased;
                endings = from_collect.next::<Endings>() => {
                    let endings = endings.map_err(lost)?.ok_or("the collector's stream ended")?;
                    if !endings.refusal.is_empty() {
                        return Err(endings.refusal);
                    }
                    let taken = self.take(&endings);
                    if !taken.is_empty() {
                        to_collect.send(&Taken { tasks: taken, ..Taken::default() }).await.map_err(lost)?;
                    }
                    if endings.is_last {
                        break;
                    }
                }
                told = from_jobs.next::<JobTold>() => {
                    let told = told.map_err(lost)?.ok_or("the jobs' stream ended")?;
                    self.answered(&told)?;
                }
                () = pace.next() => {
                    for submit in self.submissions(*job) {
                        to_jobs.send(&JobAsk { kind: Some(JobAskKind::Submit(submit)) }).await.map_err(lost)?;
                    }
                }
            }
            if self.phase.only_submits && self.accepted >= self.phase.window {
                return Ok(());
            }
            let is_all = self.is_over() && self.accepted == self.due && self.due_now() == self.due;
            if is_all && !is_closed && self.unanswered.is_empty() {
                to_jobs.send(&JobAsk { kind: Some(JobAskKind::Close(*job)) }).await.map_err(lost)?;
                self.unanswered.push_back(self.due);
                is_closed = true;
            }
        }
        to_jobs.send(&JobAsk { kind: Some(JobAskKind::Forget(*job)) }).await.map_err(lost)?;
        from_jobs.next::<JobTold>().await.map_err(lost)?;
        Ok(())
    }

    /// What is to be submitted now.
    fn submissions(&mut self, job: u64) -> Vec<JobSubmit> {
        let mut all = Vec::new();
        if Instant::now() < self.paused_until {
            return all;
        }
        self.due = self.due_now();
        while self.sent < self.due && self.unanswered.len() < UNANSWERED_MAX {
            let count = (self.due - self.sent).min(self.phase.batch.max(1));
            for index in self.sent..self.sent + count {
                let lag = self.since(index);
                self.lag_ns.push(lag);
            }
            let input = Bytes::copy_from_slice(&self.phase.task_ms.to_le_bytes());
            let left = u64::from(self.phase.deadline_ms).saturating_sub(self.since(self.sent) / 1_000_000);
            let deadline_in_ms = if self.phase.deadline_ms == 0 { 0 } else { left.max(1) as u32 };
            let inputs = vec![input; count as usize];
            all.push(JobSubmit { job, first: self.sent, count, deadline_in_ms, inputs, later: 0 });
            self.sent += count;
            self.unanswered.push_back(self.sent);
        }
        all
    }

    fn answered(&mut self, told: &JobTold) -> std::result::Result<(), String> {
        self.unanswered.pop_front();
        if told.refusal.is_empty() {
            self.accept(told.tasks);
            return Ok(());
        }
        self.out.refused += 1;
        if told.again_ms == 0 && told.tasks == 0 {
            return Err(told.refusal.clone());
        }
        self.accept(told.tasks);
        if self.unanswered.is_empty() {
            // Those sent behind it were refused as well.
            self.sent = self.accepted;
            self.paused_until = Instant::now() + Duration::from_millis(told.again_ms.max(1).into());
        }
        Ok(())
    }

    /// Takes what has ended, and notes what is settled.
    fn take(&mut self, endings: &Endings) -> Vec<u64> {
        let now = self.begun.elapsed().as_nanos() as u64;
        for ended in &endings.ended {
            let index = ended.index as usize;
            if index >= self.known.len() {
                self.known.resize(index + 1, Known::Nothing);
            }
            if self.known[index] == Known::Settled {
                self.out.twice += 1;
            }
            self.known[index] = self.known[index].max(Known::Ended);
            let since = now.saturating_sub(self.due_ns(ended.index));
            self.ended_ns.push(since);
            self.out.failed += u64::from(ended.failure != 0);
            let deadline_ns = u64::from(self.phase.deadline_ms) * 1_000_000;
            self.out.late += u64::from(deadline_ns > 0 && since > deadline_ns);
            self.taken.push_back((ended.index, since));
        }
        while self.settled_here < endings.settled {
            self.settled_here += 1;
            let Some((index, _)) = self.taken.pop_front() else { break };
            let known = &mut self.known[index as usize];
            if *known != Known::Settled {
                *known = Known::Settled;
                self.settled += 1;
                self.out.done += 1;
                self.life.push((now, now.saturating_sub(self.due_ns(index))));
            }
        }
        endings.ended.iter().map(|ended| ended.task).collect()
    }

    fn outcome(mut self) -> Outcome {
        // The word that an end was known to be taken may be lost with the hub; that end is not told again, and is none the less.
        self.out.lost += self.known.iter().filter(|known| **known == Known::Accepted).count() as u64;
        let (from, to) = (self.phase.seconds * 0.1e9, self.phase.seconds * 0.9e9);
        let within = self.life.iter().filter(|(at, _)| (*at as f64) >= from && (*at as f64) < to).count();
        self.out.per_s = within as f64 / ((to - from) / 1e9);
        let mut life: Vec<u64> = self.life.iter().map(|(_, life)| *life).collect();
        self.out.life_ms = three(&mut life);
        self.out.accepted_ms = three(&mut self.accepted_ns);
        self.out.ended_ms = three(&mut self.ended_ns);
        self.out.lag_ms = three(&mut self.lag_ns);
        self.out
    }
}

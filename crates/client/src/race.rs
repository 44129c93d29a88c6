//! Races (`--race`): a command runs on the pool and, in a sandbox, on this machine; the one that ends first is committed.
//!
//! Each run is a task like any other, for a caller within the daemon. What a run says is held back and what it changed stays in its
//! sandbox until it has *claimed* the race, which one run can, once. The other run is then called off: its caller goes away.

use crate::caller::{Replies, Requests, Within, within};
use crate::choice::Side;
use crate::daemon::Daemon;
use crate::record::Record;
use crate::run::{CODE_FAILED, Call, carry_out};
use crate::stdio;
use base::door::{Reply, Request};
use rustix::fd::OwnedFd;
use std::io;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc, watch};

/// A run's part in a race.
#[derive(Clone)]
pub(crate) struct Contestant {
    side: Side,
    first: Arc<watch::Sender<Option<Side>>>,
}

impl Contestant {
    /// Where it runs.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Claims the race; whether it is ours.
    pub fn claim(&self) -> bool {
        self.first.send_if_modified(|first| first.replace(first.unwrap_or(self.side)).is_none());
        *self.first.borrow() == Some(self.side)
    }

    /// Who has claimed the race, now and later.
    pub fn watch(&self) -> watch::Receiver<Option<Side>> {
        self.first.subscribe()
    }

    /// Waits until somebody has claimed the race; whether it is ours.
    pub async fn decided(&self) -> bool {
        let mut first = self.first.subscribe();
        // The sender is ours, so that it cannot be gone.
        first.wait_for(Option::is_some).await.is_ok_and(|first| *first == Some(self.side))
    }
}

/// How a race came out.
pub(crate) struct Raced {
    /// For the caller.
    pub reply: Reply,
    /// Of the run whose result that is.
    pub record: Record,
}

/// Why a command cannot race; `None` if it can. What is read from a pipe or terminal can be read once.
pub(crate) fn cannot_race(daemon: &Daemon, call: &Call) -> Option<&'static str> {
    if daemon.link().is_none() {
        return Some("there is no pool to race with");
    }
    if call.options.net {
        return Some("it may use the network, and so runs once");
    }
    if call.options.here.is_some() {
        return Some("it has to run here");
    }
    let [stdin, stdout, stderr] = call.descriptors.as_slice() else { return Some("the caller sent no descriptors") };
    once_only(&[stdin, stdout, stderr]).or(call.options.job.map(|_| "it belongs to a job"))
}

/// Why a command with these descriptors 0, 1 and 2 can run once only; `None` if it can run twice at a time.
pub(crate) fn once_only(fds: &[impl std::ops::Deref<Target = OwnedFd>; 3]) -> Option<&'static str> {
    if fds.iter().any(|fd| stdio::is_terminal(fd)) {
        return Some("it has a terminal, of which there is one");
    }
    let is_read_once = !stdio::is_null(&fds[0]) && stdio::regular_file(&fds[0]).is_none();
    is_read_once.then_some("its standard input can be read once only")
}

/// One run.
pub(crate) struct Lane {
    /// None once it is called off.
    requests: Option<mpsc::Sender<Request>>,
    replies: mpsc::Receiver<Reply>,
    ended: Option<(Reply, Record)>,
    end: tokio::task::JoinHandle<(Reply, Record)>,
}

impl Lane {
    /// Starts a run at the pool of the daemon that `daemon` comes to.
    pub fn start(daemon: impl Future<Output = Result<Arc<Daemon>, String>> + Send + 'static, call: Call) -> Self {
        let (Within { requests, replies }, mut said, mut answers) = within();
        let mut record = Record::new(call.task, &call.command);
        let end = tokio::spawn(async move {
            let reply = match daemon.await {
                Ok(daemon) => carry_out(&daemon, call, &mut said, &mut answers, &mut record, None).await,
                Err(why) => Reply::RunHere { why },
            };
            (reply, record)
        });
        Self { requests: Some(requests), replies, ended: None, end }
    }

    /// What it says to its caller; none of that is left once it has ended.
    pub async fn next(&mut self) -> Option<Reply> {
        if self.ended.is_some() {
            return std::future::pending().await;
        }
        if let Some(reply) = self.replies.recv().await {
            return Some(reply);
        }
        let failed = |error: tokio::task::JoinError| Reply::Failed { message: error.to_string(), code: CODE_FAILED };
        self.ended = match (&mut self.end).await {
            Ok(ended) => Some(ended),
            Err(error) => Some((failed(error), Record::new(base::TaskId(0), &base::Command::default()))),
        };
        None
    }

    /// What it came to, once it has ended.
    pub fn ended(&self) -> Option<&(Reply, Record)> {
        self.ended.as_ref()
    }

    /// The same.
    pub fn into_ended(self) -> Option<(Reply, Record)> {
        self.ended
    }

    /// Passes on what the caller says.
    pub async fn tell(&self, request: &Request) {
        if let Some(requests) = &self.requests {
            let _ = requests.send(request.clone()).await;
        }
    }

    fn call_off(&mut self) {
        self.requests = None;
    }
}

fn part(call: &Call, side: Side, first: &Arc<watch::Sender<Option<Side>>>) -> io::Result<Call> {
    Ok(Call {
        task: call.task,
        command: call.command.clone(),
        options: call.options.clone(),
        window: call.window,
        descriptors: call.descriptors.iter().map(|fd| fd.try_clone()).collect::<io::Result<_>>()?,
        contestant: Some(Contestant { side, first: first.clone() }),
    })
}

/// Runs a command on both sides, and returns what the first one came to.
pub(crate) async fn run(
    daemon: &Arc<Daemon>,
    call: Call,
    requests: &mut Requests,
    replies: &mut Replies,
    cancel: &Notify,
) -> Raced {
    let first = Arc::new(watch::Sender::new(None));
    let parts = part(&call, Side::There, &first).and_then(|there| Ok((there, part(&call, Side::Here, &first)?)));
    let (there, here) = match parts {
        Ok(parts) => parts,
        Err(error) => {
            let reply = Reply::RunHere { why: format!("this machine is short of resources: {error}") };
            return Raced { reply, record: Record::new(call.task, &call.command) };
        }
    };
    let _ = replies.send(&Reply::Launched { task: call.task, terminal: false }).await;
    let (main, own) = (daemon.clone(), daemon.clone());
    let there = Lane::start(async move { Ok(main) }, there);
    let here = Lane::start(async move { own.own_pool.daemon(&own).await }, here);
    let pool = Contestant { side: Side::There, first };
    Race { there, here, first: pool.first.subscribe(), pool, is_stopped: false, called_off: None }
        .pass(requests, replies, cancel)
        .await
}

struct Race {
    there: Lane,
    here: Lane,
    first: watch::Receiver<Option<Side>>,
    /// Claims the race for the run on the pool.
    pool: Contestant,
    is_stopped: bool,
    /// Why both were called off.
    called_off: Option<&'static str>,
}

impl Race {
    async fn pass(mut self, requests: &mut Requests, replies: &mut Replies, cancel: &Notify) -> Raced {
        let mut decided = false;
        while !self.is_over() {
            tokio::select! {
                biased;
                said = requests.next(), if self.called_off.is_none() => match said {
                    Some(request) => self.tell(&request).await,
                    None => self.call_off("cancelled: its caller is gone"),
                },
                () = cancel.notified(), if self.called_off.is_none() => self.call_off("cancelled by `gleaner cancel`"),
                _ = self.first.changed(), if !decided => {
                    decided = true;
                    self.loser().into_iter().for_each(Lane::call_off);
                }
                reply = self.there.next() => {
                    self.pass_on(reply, replies).await;
                    self.hand_back();
                }
                reply = self.here.next() => self.pass_on(reply, replies).await,
            }
        }
        self.result()
    }

    fn winner(&self) -> Option<Side> {
        *self.first.borrow()
    }

    fn loser(&mut self) -> Option<&mut Lane> {
        match self.winner()? {
            Side::Here => Some(&mut self.there),
            Side::There => Some(&mut self.here),
        }
    }

    /// Whether the run that won has ended, or both have.
    fn is_over(&self) -> bool {
        match self.winner() {
            Some(Side::Here) => self.here.ended.is_some(),
            Some(Side::There) => self.there.ended.is_some(),
            None => self.here.ended.is_some() && self.there.ended.is_some(),
        }
    }

    async fn tell(&mut self, request: &Request) {
        self.is_stopped &= *request != Request::Signal(crate::exchange::SIGCONT);
        self.there.tell(request).await;
        self.here.tell(request).await;
    }

    fn call_off(&mut self, why: &'static str) {
        self.called_off = Some(why);
        self.there.call_off();
        self.here.call_off();
    }

    /// What cannot run elsewhere can as little run in the sandbox: there is no race, unless that one was first after all.
    fn hand_back(&mut self) {
        let unable = |(reply, record): &(Reply, Record)| matches!(reply, Reply::RunHere { .. }) && record.attempts == 0;
        if self.there.ended.as_ref().is_some_and(unable) {
            self.pool.claim();
        }
    }

    /// Of what the runs say while they run, the caller wants to know once that it is to stop, and whose the keys are.
    async fn pass_on(&mut self, reply: Option<Reply>, replies: &mut Replies) {
        let wanted = reply.filter(|reply| match reply {
            Reply::Stopped(_) => !std::mem::replace(&mut self.is_stopped, true),
            reply => matches!(reply, Reply::Keys(_)),
        });
        if let Some(reply) = wanted {
            let _ = replies.send(&reply).await;
        }
    }

    /// Of the run that won; if none did, of the one on the pool, which tells why.
    fn result(self) -> Raced {
        let winner = self.winner();
        let own_trouble = match (&self.here.ended, winner) {
            (Some((Reply::RunHere { why }, _)), Some(Side::There) | None) => Some(why.clone()),
            _ => None,
        };
        let ended = if winner == Some(Side::Here) { self.here.ended } else { self.there.ended };
        // The loop ends when it is there.
        let (mut reply, mut record) = ended.expect("the run has ended");
        match winner {
            Some(side) => record.won(side, own_trouble),
            None => own_trouble.into_iter().for_each(|why| record.note(format!("no race: {why}"))),
        }
        if let (None, Some(why)) = (winner, self.called_off) {
            reply = Reply::Failed { message: why.into(), code: CODE_FAILED };
        }
        Raced { reply, record }
    }
}

/// The two of a race that nobody has won yet: here, and there.
pub(crate) fn contestants() -> (Contestant, Contestant) {
    let first = Arc::new(watch::Sender::new(None));
    (Contestant { side: Side::Here, first: first.clone() }, Contestant { side: Side::There, first })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run that says what it is told to say, and nothing else.
    fn lane(reply: Reply, attempts: u32) -> Lane {
        let (Within { requests, replies }, _, _) = within();
        let mut record = Record::new(base::TaskId(7), &base::Command::default());
        record.attempts = attempts;
        let end = tokio::spawn(async move { (reply, record) });
        Lane { requests: Some(requests), replies, ended: None, end }
    }

    async fn outcome(here: Lane, there: Lane, claimed: Option<Side>) -> Reply {
        let first = Arc::new(watch::Sender::new(claimed));
        let pool = Contestant { side: Side::There, first };
        let (_caller, mut requests, mut replies) = within();
        Race { there, here, first: pool.first.subscribe(), pool, is_stopped: false, called_off: None }
            .pass(&mut requests, &mut replies, &Notify::new())
            .await
            .reply
    }

    #[tokio::test]
    async fn who_claimed_is_who_answers_and_without_a_winner_the_pool() {
        let done = |code| Reply::Done(base::ExitStatus::Code(code));
        let here = |why: &str| Reply::RunHere { why: why.into() };
        for (claimed, want) in [(Some(Side::Here), 1), (Some(Side::There), 2)] {
            assert_eq!(outcome(lane(done(1), 1), lane(done(2), 1), claimed).await, done(want));
        }
        assert_eq!(outcome(lane(here("no sandbox"), 0), lane(here("link down"), 1), None).await, here("link down"));
        // What cannot run elsewhere does not wait for the sandbox.
        let mut never = lane(done(1), 1);
        never.end = tokio::spawn(std::future::pending());
        assert_eq!(outcome(never, lane(here("it needs this machine"), 0), None).await, here("it needs this machine"));
    }

    #[tokio::test]
    async fn a_race_is_claimed_once() {
        let (here, there) = contestants();
        assert!(there.claim() && there.claim() && !here.claim() && there.claim());
        assert!(there.decided().await && !here.decided().await);
    }
}

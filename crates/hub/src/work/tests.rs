//! Jobs through a hub: submitted, asked for, done, collected; over restarts.

mod bounds;
mod driven;

use crate::testing::{LIMIT, Served, hello, node, serve_journalled};
use bytes::Bytes;
use prost::Message;
use std::future::Future;
use std::time::Duration;
use wire::message::work::{
    Assigned, Collect, Drive, Ended, Endings, HostAsk, HostGreeting, HostTold, JobAsk, JobAskKind, JobOpen, JobSubmit,
    JobTold, LaunchResult, Place, PlaceBack, Reported, Taken,
};
use wire::message::{
    Exited, FailedKind, Hello, InputKind, Lends, LockRequest, Open, OpenKind, OutputKind, TaskInput, TaskOutput,
};
use wire::{Joined, Receiver, Role, Sender, Trust, lock};

/// A stream, and the connection that it is of.
struct Stream {
    joined: Joined,
    sender: Sender,
    receiver: Receiver,
}

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, what).await.expect("in time")
}

impl Stream {
    async fn open(hub: &Served, number: usize, hello: Hello, kind: OpenKind) -> Self {
        let joined = hub.join(number, Hello { instance: rand::random(), ..hello }).await;
        let (sender, receiver) = joined.connection.open(kind).await.expect("opened");
        Self { joined, sender, receiver }
    }

    async fn next<M: prost::Message + Default + 'static>(&mut self) -> M {
        in_time(self.receiver.next::<M>()).await.expect("no error").expect("not ended")
    }
}

/// A client's streams.
struct Client {
    jobs: Stream,
}

impl Client {
    async fn of(hub: &Served) -> Self {
        Self { jobs: Stream::open(hub, 1, hello(Role::Client, 0), OpenKind::Jobs(true)).await }
    }

    async fn ask(&mut self, kind: JobAskKind) -> JobTold {
        self.jobs.sender.send(&JobAsk { kind: Some(kind) }).await.expect("sent");
        self.jobs.next().await
    }

    async fn open(&mut self, job: JobOpen) -> u64 {
        let job = JobOpen { key: Bytes::from_static(&[5; 16]), cpus: 1, failures_max: 100, errors_max: 4, ..job };
        let told = self.ask(JobAskKind::Open(job)).await;
        assert_eq!(told.refusal, "");
        told.job
    }

    async fn submit(&mut self, job: u64, first: u32, inputs: &[&'static [u8]]) -> JobTold {
        let inputs: Vec<Bytes> = inputs.iter().map(|input| Bytes::from_static(input)).collect();
        let count = inputs.len() as u32;
        self.ask(JobAskKind::Submit(JobSubmit { job, first, count, inputs, ..JobSubmit::default() })).await
    }

    /// Tasks whose commands the client keeps.
    async fn submit_launches(&mut self, job: u64, first: u32, count: u32) -> JobTold {
        self.ask(JobAskKind::Submit(JobSubmit { job, first, count, ..JobSubmit::default() })).await
    }

    async fn collect(hub: &Served, job: u64) -> Stream {
        Stream::open(hub, 1, hello(Role::Client, 0), OpenKind::Collect(Collect { job, ahead: 0 })).await
    }
}

struct Host(Stream);

impl Host {
    async fn of(hub: &Served, number: usize, greeting: HostGreeting) -> (Self, HostTold) {
        let hello = Hello { asks: true, ..hello(Role::Worker, 1) };
        let mut stream = Stream::open(hub, number, hello, OpenKind::Host(greeting)).await;
        let told = stream.next().await;
        (Self(stream), told)
    }

    async fn ask(&mut self, reports: Vec<Reported>, want: u32) -> HostTold {
        self.0.sender.send(&HostAsk { reports, want }).await.expect("sent");
        self.0.next().await
    }
}

fn asks() -> HostGreeting {
    HostGreeting { cpus: 4, speed_permille: 1_000, is_fresh: true, ..HostGreeting::default() }
}

/// Does what was assigned: its result is its input twice.
fn done(assigned: &Assigned) -> Reported {
    let result = Bytes::from([&assigned.input[..], &assigned.input[..]].concat());
    let digest = Bytes::from(base::Digest::of(&result).0.to_vec());
    Reported { instance: assigned.instance, digest, result, cost_ms: 1 }
}

async fn collected(stream: &mut Stream, count: usize) -> Vec<Ended> {
    let mut all = Vec::new();
    while all.len() < count {
        let endings: Endings = stream.next().await;
        assert!(!endings.is_last && endings.refusal.is_empty(), "{endings:?}");
        all.extend(endings.ended);
    }
    all.sort_by_key(|ended| ended.index);
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_done_by_a_host_that_asks() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = serve_journalled(folder.path());
    let mut client = Client::of(&hub).await;
    let (mut host, told) = Host::of(&hub, 2, asks()).await;
    assert_eq!(told, HostTold::default());
    let job = client.open(JobOpen { common: Bytes::from_static(b"program"), ..JobOpen::default() }).await;
    assert_eq!(client.submit(job, 0, &[b"a", b"b", b"c"]).await.tasks, 3);
    assert_eq!(client.submit(job, 0, &[b"a", b"b", b"c"]).await.tasks, 3, "it is the same submission");
    assert_eq!(client.ask(JobAskKind::Close(job)).await.refusal, "");
    let told = host.ask(Vec::new(), 2).await;
    let of = |assigned: &Assigned| (assigned.input.to_vec(), assigned.common.to_vec());
    assert_eq!(
        told.assigned.iter().map(of).collect::<Vec<_>>(),
        [(b"a".to_vec(), b"program".to_vec()), (b"b".to_vec(), vec![])]
    );
    let reports = told.assigned.iter().map(done).collect();
    let told = host.ask(reports, 2).await;
    assert_eq!(told.assigned.len(), 1);
    let told = host.ask(vec![done(&told.assigned[0])], 2).await;
    assert!(told.assigned.is_empty() && told.again_ms > 0, "{told:?}");
    let mut collect = Client::collect(&hub, job).await;
    let ended = collected(&mut collect, 3).await;
    assert_eq!(ended.iter().map(|ended| ended.result.to_vec()).collect::<Vec<_>>(), [b"aa", b"bb", b"cc"]);
    collect
        .sender
        .send(&Taken { tasks: ended.iter().map(|ended| ended.task).collect(), ..Taken::default() })
        .await
        .expect("sent");
    while !collect.next::<Endings>().await.is_last {}
    assert_eq!(client.ask(JobAskKind::Forget(job)).await.refusal, "");
    assert!(!client.ask(JobAskKind::Hold(job)).await.refusal.is_empty(), "it is no more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_waits_for_approval_gets_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = serve_journalled(folder.path());
    let (host, told) = Host::of(&hub, 2, asks()).await;
    assert_eq!(told.refusal, "");
    let Host(Stream { joined, .. }) = host;
    let told = async |trust| {
        lock(&hub.shared.registry).approve(&node(2).0.to_hex(), trust).expect("kept");
        let (_sender, mut receiver) = joined.connection.open(OpenKind::Host(asks())).await.expect("opened");
        in_time(receiver.next::<HostTold>()).await.expect("no error").expect("an answer")
    };
    assert!(told(Trust::Waiting).await.refusal.contains("gleaner approve"));
    assert_eq!(told(Trust::Site).await.refusal, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_account_never_fills_the_table() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = serve_journalled(folder.path());
    let mut client = Client::of(&hub).await;
    let job = client.open(JobOpen::default()).await;
    // There is room for 1,024.
    let told = client.submit_launches(job, 0, 700).await;
    assert_eq!((told.tasks, told.again_ms > 0), (512, true), "{told:?}");
    assert!(told.refusal.contains("as many tasks at the hub as it may have: 512"), "{told:?}");
    assert_eq!(client.submit_launches(job, 0, 512).await.refusal, "", "what is there is taken again");
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_follow_a_job() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = serve_journalled(folder.path());
    let mut client = Client::of(&hub).await;
    let (mut host, _) = Host::of(&hub, 2, asks()).await;
    let job = client.open(JobOpen::default()).await;
    client.submit(job, 0, &[b"a", b"b", b"c"]).await;
    let told = host.ask(Vec::new(), 2).await;
    let figures = hub.shared.figures();
    assert_eq!((figures.cpus_lent, figures.cpus_busy), (4, 2));
    assert_eq!((figures.tasks_waiting, figures.tasks_running, figures.tasks_held), (1, 2, 0));
    assert_eq!((figures.hosts_here, figures.hosts_away, figures.jobs, figures.instances_out), (1, 0, 1, 2));
    assert_eq!((figures.totals.submitted, figures.totals.dispatched), (3, 2));
    let journal = figures.journal.expect("there is one");
    assert!(journal.records_durable >= 4 && journal.syncs.count > 0 && journal.bytes > 0, "{journal:?}");
    assert!(figures.record_waits.count > 0 && figures.record_waits.max_us >= figures.record_waits.p50_us);
    client.ask(JobAskKind::Hold(job)).await;
    assert_eq!(hub.shared.figures().tasks_held, 3);
    host.ask(told.assigned.iter().map(done).collect(), 0).await;
    let mut collect = Client::collect(&hub, job).await;
    let ended = collected(&mut collect, 2).await;
    collect
        .sender
        .send(&Taken { tasks: ended.iter().map(|ended| ended.task).collect(), ..Taken::default() })
        .await
        .expect("sent");
    let all_taken = async {
        while hub.shared.figures().totals.done < 2 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    in_time(all_taken).await;
    // Whoever is let in may ask for them, and is told the same.
    let question = OpenKind::Ask(Bytes::from_static(b"{\"ask\": \"figures\"}"));
    let connection = &client.jobs.joined.connection;
    let answer: wire::message::Answer = in_time(connection.request(question)).await.expect("answered");
    let figures: crate::figures::Figures = serde_json::from_slice(&answer.json).expect("figures");
    assert_eq!((figures.hub.as_str(), figures.tasks_waiting, figures.tasks_held), ("hub", 1, 1));
    assert_eq!((figures.cpus_busy, figures.totals.done), (0, 2));
    drop(host);
    in_time(async {
        while hub.shared.figures().hosts_away < 1 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(hub.shared.figures().hosts_here, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn why_a_task_waits_is_told_to_its_client() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = serve_journalled(folder.path());
    let mut client = Client::of(&hub).await;
    let job = client.open(JobOpen::default()).await;
    client.submit(job, 0, &[b"a", b"b", b"c"]).await;
    let connection = client.jobs.joined.connection.clone();
    let ask = async |who: &wire::Connection, index: &str| {
        let question = format!("{{\"ask\": \"waits\", \"key\": \"{}\", \"index\": {index}}}", "05".repeat(16));
        let asked = who.request(OpenKind::Ask(Bytes::from(question)));
        let answer: wire::message::Answer = in_time(asked).await.expect("answered");
        String::from_utf8(answer.json.to_vec()).expect("text")
    };
    assert!(ask(&connection, "null").await.contains("no host is here"));
    let (mut host, _) = Host::of(&hub, 2, HostGreeting { cpus: 1, ..asks() }).await;
    host.ask(Vec::new(), 1).await;
    assert!(ask(&connection, "0").await.contains("it runs"), "{}", ask(&connection, "0").await);
    let said = ask(&connection, "1").await;
    assert!(
        said.contains("1 of 1 CPUs are busy, and 2 tasks wait in all") && said.contains("\"waits\":true"),
        "{said}"
    );
    client.ask(JobAskKind::Hold(job)).await;
    assert!(ask(&connection, "null").await.contains("gleaner release"));
    let stranger = hub.join(3, hello(Role::Client, 0)).await;
    assert!(ask(&stranger.connection, "null").await.contains("error"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_waits_is_told_as_work_comes() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = serve_journalled(folder.path());
    let mut client = Client::of(&hub).await;
    let (mut host, _) = Host::of(&hub, 2, HostGreeting { waits: true, cpus: 2, ..asks() }).await;
    let job = client.open(JobOpen::default()).await;
    client.submit(job, 0, &[b"a", b"b", b"c"]).await;
    let mut assigned = Vec::new();
    while assigned.len() < 2 {
        assigned.extend(host.0.next::<HostTold>().await.assigned);
    }
    let told = host.ask(vec![done(&assigned[0])], 0).await;
    assert!(told.is_answer);
    assert_eq!(told.assigned.len(), 1, "the third one");
    client.ask(JobAskKind::Cancel(job)).await;
    let told: HostTold = host.0.next().await;
    assert!(!told.stop.is_empty(), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_was_said_is_lost_when_the_hub_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = serve_journalled(folder.path());
    let mut client = Client::of(&hub).await;
    let job = client.open(JobOpen::default()).await;
    client.submit(job, 0, &[b"a", b"b", b"c"]).await;
    let (mut host, _) = Host::of(&hub, 2, asks()).await;
    let told = host.ask(Vec::new(), 2).await;
    host.ask(vec![done(&told.assigned[0])], 0).await;
    let left = told.assigned[1].clone();
    // And one that waits for tasks, and is told of the third.
    let (mut waiting, _) = Host::of(&hub, 6, HostGreeting { waits: true, cpus: 1, ..asks() }).await;
    let third = waiting.0.next::<HostTold>().await.assigned.remove(0);
    drop((client, host, waiting));
    hub.kill().await;

    let hub = serve_journalled(folder.path());
    let mut client = Client::of(&hub).await;
    assert_eq!(client.open(JobOpen::default()).await, job);
    assert_eq!(client.submit(job, 0, &[b"a", b"b", b"c"]).await.tasks, 3);
    let has = vec![left.instance.expect("named")];
    let (mut host, told) = Host::of(&hub, 2, HostGreeting { is_fresh: false, has, ..asks() }).await;
    assert_eq!(told.has, [left.instance.expect("named")], "it goes on with what it has");
    host.ask(vec![done(&left)], 0).await;
    let greeting = HostGreeting { waits: true, cpus: 1, is_fresh: false, ..asks() };
    let (_, told) = Host::of(&hub, 6, greeting.clone()).await;
    assert_eq!(told.assigned[0].input, third.input, "it is sent again what it does not have");
    let has = vec![third.instance.expect("named")];
    let (mut waiting, told) = Host::of(&hub, 6, HostGreeting { has: has.clone(), ..greeting }).await;
    assert_eq!((told.has, told.assigned.len()), (has, 0), "it goes on with what it has, too");
    waiting.ask(vec![done(&third)], 0).await;
    let mut collect = Client::collect(&hub, job).await;
    let ended = collected(&mut collect, 3).await;
    assert_eq!(ended.iter().map(|ended| ended.result.to_vec()).collect::<Vec<_>>(), [b"aa", b"bb", b"cc"]);
    // Not taken: told again, also after an end in good order, which leaves a snapshot.
    drop((client, host, waiting, collect));
    hub.end().await;
    let journal = store::journal::verify(&folder.path().join("hub/journal")).expect("a journal");
    assert_eq!(journal.snapshots.len(), 1, "{journal:?}");
    let hub = serve_journalled(folder.path());
    let mut collect = Client::collect(&hub, job).await;
    assert_eq!(collected(&mut collect, 3).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_host_is_sent_is_told_to_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = serve_journalled(folder.path());
    let mut client = Client::of(&hub).await;
    let job = client.open(JobOpen::default()).await;
    client.submit(job, 0, &[b"a"]).await;
    let (mut asking, _) = Host::of(&hub, 2, asks()).await;
    let first = asking.ask(Vec::new(), 1).await.assigned.remove(0);
    let (mut waiting, _) = Host::of(&hub, 6, HostGreeting { waits: true, ..asks() }).await;
    // It fails at the one, and the other has it next.
    let failed = Reported { instance: first.instance, cost_ms: 1, ..Reported::default() };
    assert_eq!(asking.ask(vec![failed], 0).await.assigned, []);
    let second = waiting.0.next::<HostTold>().await.assigned.remove(0);
    assert_eq!((second.input, second.instance.map(|instance| instance.number)), (first.input, Some(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_host_is_told_again_is_due_when_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = serve_journalled(folder.path());
    let mut client = Client::of(&hub).await;
    let job = client.open(JobOpen { delay_bound_ms: 60_000, ..JobOpen::default() }).await;
    client.submit(job, 0, &[b"a"]).await;
    let (mut host, _) = Host::of(&hub, 2, asks()).await;
    let first = host.ask(Vec::new(), 1).await.assigned.remove(0);
    let pause = std::time::Duration::from_millis(50);
    tokio::time::sleep(pause).await;
    // The word was lost on the way: it says that it has nothing.
    let (_, told) = Host::of(&hub, 2, HostGreeting { is_fresh: false, ..asks() }).await;
    let again = &told.assigned[0];
    assert_eq!(again.instance, first.instance);
    assert!(again.due_in_ms <= first.due_in_ms - 50, "{} after {}", again.due_in_ms, first.due_in_ms);
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_their_clients_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = serve_journalled(folder.path());
    let mut client = Client::of(&hub).await;
    let job = client.open(JobOpen::default()).await;
    let stranger = Stream::open(&hub, 3, hello(Role::Client, 0), OpenKind::Jobs(true)).await;
    let mut stranger = Client { jobs: stranger };
    assert!(!stranger.ask(JobAskKind::Cancel(job)).await.refusal.is_empty());
    let mut collect = Stream::open(&hub, 3, hello(Role::Client, 0), OpenKind::Collect(Collect { job, ahead: 0 })).await;
    assert!(!collect.next::<Endings>().await.refusal.is_empty());
    assert_ne!(stranger.open(JobOpen::default()).await, job, "its key means another job");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_promised_to_a_job_holds_for_its_further_messages() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = serve_journalled(folder.path());
    let mut client = Client::of(&hub).await;
    let _worker = hub.join(7, hello(Role::Worker, 4)).await;
    // It is welcomed before its processors count.
    in_time(async {
        while wire::lock(&hub.shared.state).workers.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let job = client.open(JobOpen { is_driven: true, cost_ms: 10_000, ..JobOpen::default() }).await;
    let mut submit = async |first, count, later, deadline_in_ms| {
        let submit = JobSubmit { job, first, count, later, deadline_in_ms, inputs: Vec::new() };
        client.ask(JobAskKind::Submit(submit)).await
    };
    // 40 tasks of 10 s for four processors: the last one begins after 97.5 s.
    let refused = submit(0, 20, 20, 50_000).await;
    // Some of that passes until it is said.
    assert!(refused.tasks == 0 && (107_000..=107_500).contains(&refused.earliest_in_ms), "{refused:?}");
    assert_eq!(submit(0, 20, 20, 107_500).await.tasks, 20);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (other, more) = (submit(20, 20, 0, 50_000).await, submit(20, 40, 0, 107_000).await);
    assert!(other.earliest_in_ms > 50_000 && more.earliest_in_ms > 107_000, "{other:?} {more:?}");
    assert_eq!(submit(20, 20, 0, 107_000).await.tasks, 40);
    let promised = wire::lock(&hub.shared.state).work.promises.count();
    assert_eq!(promised, 0, "all has come");
}

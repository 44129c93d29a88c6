//! Accounts through a hub: who may ask and change what, what limits do, and what is kept.

use super::*;
use crate::desk::{Desk, Room};
use crate::needs::{Lent, Tags};
use crate::placement::{COST_MS, Placement, Ticket, Wanted};
use crate::testing::{LIMIT, Served, hello, node, serve_journalled};
use bytes::Bytes;
use wire::message::work::{HostAsk, HostGreeting, HostTold, JobAsk, JobAskKind, JobSubmit, JobTold, Reported};
use wire::message::{Answer, Hello, OpenKind};
use wire::{Joined, Receiver, Role, Sender};

/// A member called so, connected.
async fn member(hub: &Served, number: usize, role: &str, name: &str) -> Joined {
    let joined = hub.join(number, Hello { instance: rand::random(), ..hello(Role::Client, 0) }).await;
    lock(&hub.shared.registry).add(node(number), role, name, 1).expect("let in");
    joined
}

async fn ask(who: &Joined, question: Value) -> Value {
    let asked = who.connection.request(OpenKind::Ask(Bytes::from(question.to_string())));
    let answer: Answer = tokio::time::timeout(LIMIT, asked).await.expect("in time").expect("answered");
    serde_json::from_slice(&answer.json).expect("JSON")
}

/// A member's stream for jobs.
struct Jobs(Sender, Receiver);

impl Jobs {
    async fn of(joined: &Joined) -> Self {
        let (sender, receiver) = joined.connection.open(OpenKind::Jobs(true)).await.expect("opened");
        Self(sender, receiver)
    }

    async fn ask(&mut self, kind: JobAskKind) -> JobTold {
        self.0.send(&JobAsk { kind: Some(kind) }).await.expect("sent");
        self.1.next().await.expect("no error").expect("an answer")
    }

    async fn open(&mut self, key: u8) -> u64 {
        let open =
            JobOpen { key: Bytes::from(vec![key; 16]), name: format!("job {key}"), cpus: 1, ..JobOpen::default() };
        let told = self.ask(JobAskKind::Open(open)).await;
        assert_eq!(told.refusal, "");
        told.job
    }

    async fn submit(&mut self, job: u64, first: u32, count: u32) -> JobTold {
        let inputs = vec![Bytes::from_static(b"x"); count as usize];
        self.ask(JobAskKind::Submit(JobSubmit { job, first, count, deadline_in_ms: 60_000, inputs, later: 0 })).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_the_owners_to_change_and_hold_over_restarts() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = serve_journalled(folder.path());
    let owner = member(&hub, 1, "admin", "owner").await;
    let ada = member(&hub, 3, "client", "ada").await;
    lock(&hub.shared.registry).add(node(4), "client", "eve", 1).expect("let in");
    let limit = json!({"ask": "limit", "account": "ada", "running": 1, "tasks": 2, "weight": 3});
    let refused = ask(&ada, limit.clone()).await;
    assert!(refused["error"].as_str().is_some_and(|why| why.contains("owner")), "{refused}");
    let unknown = ask(&owner, json!({"ask": "limit", "account": "bob", "tasks": 2})).await;
    assert!(unknown["error"].is_string() && unknown["hint"].is_string(), "{unknown}");
    let told = ask(&owner, limit).await;
    assert_eq!(
        (&told["weight"], &told["running_max"], &told["tasks_max"]),
        (&3.into(), &1.into(), &2.into()),
        "{told}"
    );
    // One that was never here, in advance.
    let told = ask(&owner, json!({"ask": "limit", "account": "eve", "share_permille": 250})).await;
    assert_eq!((&told["share_permille"], &told["tasks_max"]), (&250.into(), &Value::Null), "{told}");
    let greedy = json!({"ask": "limit", "account": "ada", "share_permille": 800});
    let why = ask(&owner, greedy).await["error"].to_string();
    assert!(why.contains("25% are reserved for others, so 75% at most"), "{why}");
    let wrong = ask(&owner, json!({"ask": "limit", "account": "ada", "weight": 70_000})).await;
    assert!(wrong["error"].to_string().contains("weight"), "{wrong}");

    let greeting = HostGreeting { cpus: 4, speed_permille: 1_000, is_fresh: true, ..HostGreeting::default() };
    let worker = hub.join(2, Hello { asks: true, ..hello(Role::Worker, 1) }).await;
    let (mut to_hub, mut from_hub) = worker.connection.open(OpenKind::Host(greeting)).await.expect("opened");
    from_hub.next::<HostTold>().await.expect("no error").expect("greeted");
    let mut jobs = Jobs::of(&ada).await;
    let job = jobs.open(5).await;
    let told = jobs.submit(job, 0, 3).await;
    assert!(told.tasks == 2 && told.again_ms > 0 && told.refusal.contains("as it may have: 2"), "{told:?}");
    to_hub.send(&HostAsk { reports: Vec::new(), want: 2 }).await.expect("sent");
    let told: HostTold = from_hub.next().await.expect("no error").expect("an answer");
    assert_eq!(told.assigned.len(), 1, "one runs at a time: {told:?}");
    let everyone = ask(&owner, json!({"ask": "everyone"})).await;
    let row = &everyone["jobs"][0];
    assert_eq!((&row["job"], &row["name"], &row["account"]), (&"05".repeat(16).into(), &"job 5".into(), &"ada".into()));
    assert_eq!((&row["tasks"], &row["running"], &row["state"]), (&2.into(), &1.into(), &"running".into()), "{row}");
    assert!(row["deadline_ms"].as_i64().is_some_and(|ms| (0..=60_001).contains(&(ms - now_millis()))), "{row}");
    let refused = ask(&ada, json!({"ask": "everyone"})).await;
    assert!(refused["error"].is_string() && refused["hint"].is_string(), "{refused}");
    let (digest, result) = (Bytes::from(vec![1; 32]), Bytes::from_static(b"r"));
    let report = Reported { instance: told.assigned[0].instance, digest, result, cost_ms: 1_500 };
    to_hub.send(&HostAsk { reports: vec![report], want: 0 }).await.expect("sent");
    from_hub.next::<HostTold>().await.expect("no error").expect("taken");
    let own = ask(&ada, json!({"ask": "accounts"})).await;
    assert_eq!(own["accounts"].as_array().map(Vec::len), Some(1), "nobody else's: {own}");
    assert_eq!(own["accounts"][0]["used_ms"], 1_500, "{own}");
    assert_eq!(own["accounts"][0]["met"], 1, "{own}");
    let before = ask(&owner, json!({"ask": "accounts"})).await;
    drop((owner, ada, jobs, worker, to_hub, from_hub));
    hub.kill().await;

    let hub = serve_journalled(folder.path());
    let owner = member(&hub, 1, "admin", "owner").await;
    let after = ask(&owner, json!({"ask": "accounts"})).await;
    assert_eq!(after, before, "limits and use are kept");
    let names: Vec<&str> =
        after["accounts"].as_array().into_iter().flatten().filter_map(|it| it["nodes"][0]["name"].as_str()).collect();
    assert_eq!(names, ["ada", "eve", "machine"]);
    assert_eq!(ask(&owner, json!({"ask": "accounts", "page": 2})).await, json!({"accounts": [], "more": 0}));
    let ada = member(&hub, 3, "client", "ada").await;
    let mut jobs = Jobs::of(&ada).await;
    assert!(jobs.submit(job, 2, 1).await.refusal.contains("as it may have: 2"), "it holds as before");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_everyone_come_in_pages() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = serve_journalled(folder.path());
    let (owner, ada) = (member(&hub, 1, "admin", "owner").await, member(&hub, 3, "client", "ada").await);
    let mut jobs = Jobs::of(&ada).await;
    for key in 0..JOBS_PAGE as u8 {
        jobs.open(key).await;
    }
    let first = Jobs::of(&owner).await.open(200).await;
    let held = Jobs::of(&owner).await.ask(JobAskKind::Hold(first)).await;
    assert_eq!(held.refusal, "");
    let page = async |number: u32| ask(&owner, json!({"ask": "everyone", "page": number})).await;
    let (one, two) = (page(1).await, page(2).await);
    assert_eq!((one["jobs"].as_array().map(Vec::len), &one["more"]), (Some(JOBS_PAGE), &true.into()));
    assert_eq!((two["jobs"].as_array().map(Vec::len), &two["more"]), (Some(1), &false.into()));
    assert_eq!((&two["jobs"][0]["account"], &two["jobs"][0]["state"]), (&"owner".into(), &"held".into()));
    assert_eq!((&one["jobs"][0]["state"], &one["jobs"][0]["deadline_ms"]), (&"ready".into(), &Value::Null));
    assert_eq!(page(3).await, json!({"jobs": [], "more": false}));
}

#[test]
fn an_account_is_charged_what_its_launch_took() {
    let mut placement = Placement::new(Desk::in_memory(Room::default(), 5));
    placement.join(node(1), Lent::by_machine(1), false);
    let need = Tags::default().need(&base::Needs::default()).unwrap();
    let wanted = Wanted { account: 1, need, affinity: 0 };
    placement.submit(Ticket(1), wanted).expect("room");
    placement.submit(Ticket(2), wanted).expect("waits");
    placement.cost(Ticket(1), 7_000);
    placement.finish(Ticket(1));
    placement.finish(Ticket(2));
    assert_eq!(placement.desk.account_view(1).used_ms, 7_000 + u64::from(COST_MS));
}

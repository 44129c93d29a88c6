//! What one account or machine may have at the hub, and what is left of an account when its last key is revoked.

use super::driven::{driving, last_said, launched, next_place};
use super::*;
use crate::testing::serve_storing;
use serde_json::{Value, json};

fn key(number: u32) -> Bytes {
    Bytes::from(u128::from(number).to_le_bytes().to_vec())
}

fn job(number: u32) -> JobOpen {
    JobOpen { key: key(number), cpus: 1, ..JobOpen::default() }
}

/// What the hub's owner is told of a question.
async fn asked(hub: &Served, question: Value) -> Value {
    let admin = hub.join(99, hello(Role::Admin, 0)).await;
    let asked = admin.connection.request(OpenKind::Ask(Bytes::from(question.to_string())));
    let answer: wire::message::Answer = in_time(asked).await.expect("answered");
    serde_json::from_slice(&answer.json).expect("JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn one_account_never_has_all_jobs_and_others_leave_some_for_launches() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = serve_journalled(folder.path());
    // There is room for 1,024 jobs.
    let mut first = None;
    for account in 1..=8 {
        let stream = Stream::open(&hub, account, hello(Role::Client, 0), OpenKind::Jobs(true)).await;
        let mut client = Client { jobs: stream };
        let mut opened = 0;
        let refused = loop {
            let told = client.ask(JobAskKind::Open(job(opened))).await;
            if !told.refusal.is_empty() {
                break told;
            }
            opened += 1;
        };
        assert!(refused.again_ms > 0, "{refused:?}");
        if account == 8 {
            assert_eq!(opened, 0, "the last eighth is for launches");
            assert!(refused.refusal.contains("no room for more jobs"), "{refused:?}");
        } else {
            assert_eq!(opened, 128);
            assert!(refused.refusal.contains("as many jobs at the hub as it may have: 128"), "{refused:?}");
        }
        first.get_or_insert(client);
    }
    let mut client = first.expect("one");
    let again = client.ask(JobAskKind::Open(job(0))).await;
    assert_eq!(again.refusal, "", "what is there is opened again");
    for ask in [JobAskKind::Close(again.job), JobAskKind::Forget(again.job)] {
        assert_eq!(client.ask(ask).await.refusal, "");
    }
    assert_eq!(client.ask(JobAskKind::Open(job(128))).await.refusal, "", "in the place of one that is forgotten");
    // After a start they are counted as before.
    drop(client);
    hub.end().await;
    let hub = serve_journalled(folder.path());
    let stream = Stream::open(&hub, 1, hello(Role::Client, 0), OpenKind::Jobs(true)).await;
    let told = Client { jobs: stream }.ask(JobAskKind::Open(job(129))).await;
    assert!(told.refusal.contains("as many jobs"), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_account_never_has_all_bytes() {
    static INPUT: [u8; 60_000] = [7; 60_000];
    let folder = tempfile::tempdir().expect("a folder");
    let hub = serve_journalled(folder.path());
    let mut client = Client::of(&hub).await;
    let job = client.open(JobOpen::default()).await;
    // There is room for 1 MiB.
    for number in 0..8 {
        assert_eq!(client.submit(job, number, &[&INPUT]).await.refusal, "", "{number}");
    }
    let told = client.submit(job, 8, &[&INPUT]).await;
    assert!(told.tasks == 8 && told.again_ms > 0 && told.refusal.contains("no room for more bytes"), "{told:?}");
    assert_eq!(client.submit(job, 7, &[&INPUT]).await.refusal, "", "what is there is taken again");
    assert_eq!(client.submit_launches(job, 8, 1).await.refusal, "", "and what brings no bytes");
    let stream = Stream::open(&hub, 3, hello(Role::Client, 0), OpenKind::Jobs(true)).await;
    let mut other = Client { jobs: stream };
    let job = other.open(JobOpen::default()).await;
    assert_eq!(other.submit(job, 0, &[&INPUT]).await.refusal, "", "others have the rest");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_jobs_of_a_revoked_client_end_with_what_runs_of_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = serve_journalled(folder.path());
    let worker = hub.join(7, hello(Role::Worker, 2)).await;
    let (mut client, job, (_to_hub, mut places)) = driving(&hub, JobOpen::default()).await;
    client.submit_launches(job, 1, 1).await;
    // One has its result, which waits to be taken; the other one runs.
    let place = next_place(&mut places).await;
    let (_to_first, mut said) = client.launch(&place).await;
    let (_, mut to_hub) = launched(&worker).await;
    for kind in [OutputKind::Exited(Box::default()), OutputKind::End(true)] {
        to_hub.send(&TaskOutput::from(kind)).await.expect("sent");
    }
    assert_eq!(last_said(&mut said).await, Some(OutputKind::End(true)));
    let place = next_place(&mut places).await;
    let _second = client.launch(&place).await;
    let (mut to_worker, mut from_hub) = {
        let (sender, mut receiver) = in_time(worker.connection.accept_control()).await.expect("a launch");
        let _: Open = in_time(receiver.next()).await.expect("no error").expect("it");
        (sender, receiver)
    };
    let kept = || lock(&hub.shared.state).work.launches.kept();
    assert_eq!(kept(), 1);
    let other = Stream::open(&hub, 3, hello(Role::Client, 0), OpenKind::Jobs(true)).await;
    let others = Client { jobs: other }.open(JobOpen::default()).await;
    assert!(asked(&hub, json!({"ask": "revoke", "node": node(1).0.to_hex()})).await["error"].is_null());
    let stopped = async {
        while let Ok(Some(input)) = from_hub.next::<TaskInput>().await {
            if matches!(input.kind, Some(InputKind::Cancel(_))) {
                return true;
            }
        }
        false
    };
    assert_eq!(tokio::time::timeout(Duration::from_secs(5), stopped).await, Ok(true), "what runs ends");
    let failed = OutputKind::Failed(FailedKind::Cancelled.because("as it was told"));
    let _ = to_worker.send(&TaskOutput::from(failed)).await;
    let is_gone = async {
        while lock(&hub.shared.state).placement.desk.table().counts()[2..] != [1, 0, 0] {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    in_time(is_gone).await;
    let stays = lock(&hub.shared.state).placement.desk.table().job(tasks::JobName::from_u64(others)).is_some();
    assert!(stays, "another account's job");
    assert_eq!(kept(), 0, "and the results have no room");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_an_account_that_nobody_has_end_at_the_next_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = serve_journalled(folder.path());
    let mut client = Client::of(&hub).await;
    let job = client.open(JobOpen::default()).await;
    client.submit(job, 0, &[b"a"]).await;
    drop(client);
    // As if the hub had ended right after that.
    lock(&hub.shared.registry).revoke(&node(1).0.to_hex()).expect("known");
    hub.end().await;
    let hub = serve_journalled(folder.path());
    let is_gone = async {
        while lock(&hub.shared.state).placement.desk.table().counts()[2..] != [0, 0, 0] {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    in_time(is_gone).await;
    assert_eq!(lock(&hub.shared.state).placement.desk.ledger().bytes().0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn results_that_wait_to_be_taken_never_fill_the_store() {
    let folder = tempfile::tempdir().expect("a folder");
    // A quarter is 256 KiB.
    let stores = store::Options { bytes_max: 1 << 20, segment_bytes: 1 << 16, ..store::Options::default() };
    let hub = serve_storing(folder.path(), stores);
    let worker = hub.join(7, hello(Role::Worker, 1)).await;
    let (mut client, job, (_to_hub, mut places)) = driving(&hub, JobOpen { errors_max: 9, ..JobOpen::default() }).await;
    client.submit_launches(job, 1, 3).await;
    for number in 0..2u8 {
        let place = next_place(&mut places).await;
        let (_to_hub, mut said) = client.launch(&place).await;
        let (_, mut to_hub) = launched(&worker).await;
        let printed = Bytes::from(vec![number; 150_000]);
        for kind in [OutputKind::Stdout(printed), OutputKind::Exited(Box::default()), OutputKind::End(true)] {
            to_hub.send(&TaskOutput::from(kind)).await.expect("sent");
        }
        assert_eq!(last_said(&mut said).await, Some(OutputKind::End(true)));
    }
    // The next one is not begun before there is room for what will come of it.
    let place = next_place(&mut places).await;
    let (_to_hub, mut said) = client.launch(&place).await;
    let begun = tokio::time::timeout(Duration::from_millis(300), launched(&worker)).await;
    assert!(begun.is_err(), "it would be done for nothing");
    let mut collect = Client::collect(&hub, job).await;
    let ended = collected(&mut collect, 2).await;
    let tasks = ended.iter().map(|ended| ended.task).collect();
    collect.sender.send(&Taken { tasks, ..Taken::default() }).await.expect("sent");
    let is_taken = async {
        while lock(&hub.shared.state).work.launches.kept() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    in_time(is_taken).await;
    let (_, mut to_hub) = launched(&worker).await;
    for kind in [OutputKind::Exited(Box::default()), OutputKind::End(true)] {
        to_hub.send(&TaskOutput::from(kind)).await.expect("sent");
    }
    assert_eq!(last_said(&mut said).await, Some(OutputKind::End(true)));
}

/// A client's launches fail at a worker, again and again: that client alone says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_does_not_rest_because_of_one_of_several_accounts() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = serve_journalled(folder.path());
    let worker = hub.join(7, hello(Role::Worker, 1)).await;
    let other = Stream::open(&hub, 3, hello(Role::Client, 0), OpenKind::Jobs(true)).await;
    let mut other = Client { jobs: other };
    let waits = other.open(JobOpen { is_driven: true, ..JobOpen::default() }).await;
    assert_eq!(other.submit_launches(waits, 0, 1).await.tasks, 1);
    let opens = JobOpen { instances_max: 16, ..JobOpen::default() };
    let (mut client, job, (_to_hub, mut places)) = driving(&hub, opens).await;
    client.submit_launches(job, 1, 5).await;
    for _ in 0..5 {
        let place = next_place(&mut places).await;
        let (_to_hub, mut said) = client.launch(&place).await;
        let (_, mut to_hub) = launched(&worker).await;
        let failed = OutputKind::Failed(FailedKind::Trouble.because("it cannot be begun"));
        to_hub.send(&TaskOutput::from(failed)).await.expect("sent");
        assert!(matches!(last_said(&mut said).await, Some(OutputKind::Failed(_))));
    }
    assert_eq!(lock(&hub.shared.state).placement.desk.table().totals().back_offs, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn why_a_task_waits_names_the_memory_that_was_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = serve_journalled(folder.path());
    let mut client = Client::of(&hub).await;
    let job = client.open(JobOpen { memory_mib: 513, ..JobOpen::default() }).await;
    client.submit(job, 0, &[b"a"]).await;
    let _host = Host::of(&hub, 2, HostGreeting { memory_mib: 700, ..asks() }).await;
    let why = |state: &crate::state::State| {
        let account = state.work.kept.accounts().next().expect("one");
        state.why_waits(account, u128::from_be_bytes([5; 16]), None).expect("its job").why
    };
    let why = why(&lock(&hub.shared.state));
    assert!(why.contains("1 CPUs and 513 MiB asked, 512 MiB there"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn results_that_have_taken_all_bytes_can_be_taken_over_another_connection() {
    static RESULT: [u8; 60_000] = [9; 60_000];
    let folder = tempfile::tempdir().expect("a folder");
    let hub = serve_journalled(folder.path());
    let mut client = Client::of(&hub).await;
    let job = client.open(JobOpen::default()).await;
    assert_eq!(client.submit(job, 0, &[&b"a"[..]; 20]).await.tasks, 20);
    let (mut host, _) = Host::of(&hub, 2, HostGreeting { cpus: 20, ..asks() }).await;
    // So few at a time that the small journal has room for them.
    for _ in 0..10 {
        let assigned = host.ask(Vec::new(), 2).await.assigned;
        let result = |assigned: &Assigned| Reported { result: Bytes::from_static(&RESULT), ..done(assigned) };
        assert_eq!(host.ask(assigned.iter().map(result).collect(), 0).await.refusal, "");
    }
    let (bytes, most) = lock(&hub.shared.state).placement.desk.ledger().bytes();
    assert!(bytes > most, "{bytes} of {most}");
    drop(client);
    let mut client = Client::of(&hub).await;
    assert_eq!(client.open(JobOpen::default()).await, job);
    let again = client.submit(job, 0, &[&b"a"[..]; 20]).await;
    assert_eq!((again.tasks, &again.refusal[..]), (20, ""), "what is there is taken again");
    assert!(client.submit(job, 20, &[b"b"]).await.refusal.contains("no room for more bytes"));
    let mut collect = Client::collect(&hub, job).await;
    let tasks = collected(&mut collect, 20).await.iter().map(|ended| ended.task).collect();
    collect.sender.send(&Taken { tasks, ..Taken::default() }).await.expect("sent");
    let has_room = async {
        while lock(&hub.shared.state).placement.desk.ledger().bytes().0 > 1_000 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    in_time(has_room).await;
    assert_eq!(client.submit(job, 20, &[b"b"]).await.refusal, "");
}

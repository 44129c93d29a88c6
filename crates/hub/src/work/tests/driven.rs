//! Jobs whose tasks their client launches itself, at the places that it is told of.

use super::*;

impl Client {
    /// The stream on which the client is told of places.
    async fn drive(&self, job: u64) -> (Sender, Receiver) {
        self.jobs.joined.connection.open(OpenKind::Drive(Drive { job })).await.expect("opened")
    }

    /// Launches a task at its place.
    pub(super) async fn launch(&self, place: &Place) -> (Sender, Receiver) {
        self.jobs.joined.connection.open(launch_at(place)).await.expect("opened")
    }
}

/// A client that drives a job of one task: the job, and the stream on which it is told of places.
pub(super) async fn driving(hub: &Served, job: JobOpen) -> (Client, u64, (Sender, Receiver)) {
    let mut client = Client::of(hub).await;
    let job = client.open(JobOpen { is_driven: true, ..job }).await;
    assert_eq!(client.submit_launches(job, 0, 1).await.tasks, 1);
    let places = client.drive(job).await;
    (client, job, places)
}

/// What is said last of a launch.
pub(super) async fn last_said(said: &mut Receiver) -> Option<OutputKind> {
    let mut last = None;
    while let Some(output) = in_time(said.next::<TaskOutput>()).await.expect("no error") {
        last = output.kind;
    }
    last
}

pub(super) async fn next_place(places: &mut Receiver) -> Place {
    in_time(places.next::<Place>()).await.expect("no error").expect("a place")
}

/// A worker's end of a launch: what it was sent, and where it answers.
pub(super) async fn launched(worker: &Joined) -> (wire::message::Launch, Sender) {
    let (sender, mut receiver) = in_time(worker.connection.accept_control()).await.expect("a launch");
    match receiver.next::<Open>().await {
        Ok(Some(Open { kind: Some(OpenKind::Launch(launch)) })) => {
            // The worker reads on as long as it answers.
            tokio::spawn(async move { while let Ok(Some(_)) = receiver.next::<TaskInput>().await {} });
            (*launch, sender)
        }
        other => panic!("{other:?}"),
    }
}

fn view() -> wire::message::ViewUpdate {
    let (set, drop) = Default::default();
    let update =
        base::ViewUpdate { view: base::ViewId(1), base: base::Version(0), version: base::Version(1), set, drop };
    (&update).into()
}

fn launch_at(place: &Place) -> OpenKind {
    let command = Some(wire::message::Command::default());
    let launch = wire::message::Launch { view: Some(view()), command, place: place.instance, ..Default::default() };
    OpenKind::Launch(Box::new(launch))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driven_job_is_launched_by_its_client_and_its_results_wait() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = serve_journalled(folder.path());
    let worker = hub.join(7, hello(Role::Worker, 2)).await;
    let opens = JobOpen { retries_failures: true, ..JobOpen::default() };
    let (mut client, job, (to_hub, mut places)) = driving(&hub, opens).await;
    // The first try fails, the second does not.
    for code in [1, 0] {
        let place = next_place(&mut places).await;
        assert_eq!((place.index, &place.refusal[..]), (0, ""));
        let (_to_hub, mut said) = client.launch(&place).await;
        let (_, mut to_hub) = launched(&worker).await;
        let exited = Exited { code, ..Exited::default() };
        for kind in [
            OutputKind::Stdout(Bytes::from_static(b"pri")),
            OutputKind::Stdout(Bytes::from_static(b"nted")),
            OutputKind::Exited(Box::new(exited)),
            OutputKind::End(true),
        ] {
            to_hub.send(&TaskOutput::from(kind)).await.expect("sent");
        }
        assert_eq!(last_said(&mut said).await, Some(OutputKind::End(true)));
    }
    drop(to_hub);
    let mut collect = Client::collect(&hub, job).await;
    let ended = collected(&mut collect, 1).await;
    let result = LaunchResult::decode(ended[0].result.clone()).expect("a result");
    assert_eq!((result.exited.map(|exited| exited.code), &result.worker[..]), (Some(0), "worker2"));
    let names = wire::message::ObjectsRequest { digests: result.stdout, ..Default::default() };
    let mut objects = collect.joined.connection.ask(OpenKind::Objects(names)).await.expect("asked");
    let object = in_time(objects.next::<wire::message::ObjectReply>()).await.expect("no error").expect("it");
    assert_eq!((&object.bytes[..], &object.error[..]), (&b"printed"[..], ""));
    // Nobody drives it: what is submitted now waits.
    drop(places);
    assert_eq!(client.submit_launches(job, 1, 1).await.tasks, 2);
    let accepted =
        tokio::time::timeout(std::time::Duration::from_millis(200), worker.connection.accept_control()).await;
    assert!(accepted.is_err(), "nobody launches it");
}

/// Most of what a task says stays at the hub: its client is told that it lives all the same.
#[tokio::test(flavor = "multi_thread")]
async fn who_drives_a_task_that_talks_is_told_that_it_lives() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = serve_journalled(folder.path());
    let worker = hub.join(7, hello(Role::Worker, 2)).await;
    let (client, _job, (_to_hub, mut places)) = driving(&hub, JobOpen::default()).await;
    let place = next_place(&mut places).await;
    let (_to_hub, mut said) = client.launch(&place).await;
    let (_, mut to_hub) = launched(&worker).await;
    tokio::spawn(async move {
        while to_hub.send(&TaskOutput::from(OutputKind::Stdout(Bytes::from_static(b"x")))).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
    });
    let is_alive = async {
        while let Some(output) = said.next::<TaskOutput>().await.expect("no error") {
            if matches!(output.kind, Some(OutputKind::Alive(_))) {
                return true;
            }
        }
        false
    };
    let told = tokio::time::timeout(wire::quiet::SAY_EVERY * 2, is_alive).await;
    assert_eq!(told, Ok(true), "its worker talks");
}

/// A worker redeems its token, and a hub behind this one has no workers yet.
#[tokio::test(flavor = "multi_thread")]
async fn who_lends_nothing_yet_is_no_host_for_which_jobs_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = serve_journalled(folder.path());
    let _redeems = hub.join(7, hello(Role::Worker, 0)).await;
    let _behind = hub.join(8, Hello { behind: Some(Lends::default()), ..hello(Role::Worker, 0) }).await;
    let mut client = Client::of(&hub).await;
    let job = client.open(JobOpen { is_driven: true, ..JobOpen::default() }).await;
    let told = client.submit_launches(job, 0, 1).await;
    assert_eq!((told.tasks, &told.refusal[..]), (1, ""), "it waits for workers");
    let (_to_hub, mut places) = client.drive(job).await;
    let _worker = hub.join(7, hello(Role::Worker, 2)).await;
    let place = next_place(&mut places).await;
    assert_eq!((place.index, &place.refusal[..]), (0, ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_waits_for_a_worker_that_is_paused_or_drained() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = serve_journalled(folder.path());
    let worker = hub.join(7, hello(Role::Worker, 2)).await;
    hub.lends(2).await;
    assert!(worker.lends(Lends::default()).await, "it is paused");
    hub.lends(0).await;
    let mut client = Client::of(&hub).await;
    let job = client.open(JobOpen { is_driven: true, ..JobOpen::default() }).await;
    let (_to_hub, mut places) = client.drive(job).await;
    assert_eq!(client.submit_launches(job, 0, 1).await.refusal, "", "it waits for the worker to take tasks again");
    let too_large = JobOpen { key: Bytes::from_static(&[6; 16]), is_driven: true, cpus: 3, ..JobOpen::default() };
    let told = client.ask(JobAskKind::Open(too_large)).await;
    assert_eq!(told.refusal, "3 CPUs asked, but the largest worker lends 2", "for that nobody need wait");
    assert!(worker.lends(Lends { cpus: 2, largest: 2, ..Lends::default() }).await, "it is resumed");
    assert_eq!(next_place(&mut places).await.index, 0);
    lock(&hub.shared.state).drain(node(7), true);
    assert_eq!(client.submit_launches(job, 1, 1).await.refusal, "", "it waits until the drain is undone");
    lock(&hub.shared.state).drain(node(7), false);
    assert_eq!(next_place(&mut places).await.index, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ends_when_its_task_was_taken_is_not_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = serve_journalled(folder.path());
    let worker = hub.join(7, hello(Role::Worker, 1)).await;
    let (mut client, job, (_to_hub, mut places)) = driving(&hub, JobOpen::default()).await;
    let place = next_place(&mut places).await;
    let (_to_hub, mut said) = client.launch(&place).await;
    let (_, mut to_hub) = launched(&worker).await;
    client.ask(JobAskKind::Cancel(job)).await;
    let mut collect = Client::collect(&hub, job).await;
    let ended = collected(&mut collect, 1).await;
    assert_eq!(ended[0].failure, 5, "cancelled");
    collect.sender.send(&Taken { tasks: vec![ended[0].task], ..Taken::default() }).await.expect("sent");
    while !collect.next::<Endings>().await.is_last {}
    for kind in [OutputKind::Exited(Box::default()), OutputKind::End(true)] {
        to_hub.send(&TaskOutput::from(kind)).await.expect("sent");
    }
    assert_eq!(last_said(&mut said).await, Some(OutputKind::End(true)));
    assert_eq!(wire::lock(&hub.shared.state).work.launches.kept(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn places_are_given_back_and_tasks_that_are_over_are_cancelled() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = serve_journalled(folder.path());
    let _workers = [hub.join(7, hello(Role::Worker, 2)).await, hub.join(8, hello(Role::Worker, 2)).await];
    let opens = JobOpen { quorum: 2, ..JobOpen::default() };
    let (mut client, job, (mut to_hub, mut places)) = driving(&hub, opens).await;
    let mut numbers = Vec::new();
    for is_over in [false, false, true] {
        let place = next_place(&mut places).await;
        numbers.push(place.instance.expect("named").number);
        to_hub.send(&PlaceBack { instance: place.instance, is_over, kept: None }).await.expect("sent");
    }
    assert_eq!(numbers, [0, 1, 2], "one that is given back is had again");
    let mut collect = Client::collect(&hub, job).await;
    assert_eq!(collected(&mut collect, 1).await[0].failure, 5, "cancelled");
    // Both workers are free again: the next task has its two places at once.
    client.submit_launches(job, 1, 1).await;
    let mut next = Vec::new();
    while next.len() < 2 {
        let place = next_place(&mut places).await;
        next.extend((place.index == 1).then_some(place.instance.expect("named").number));
    }
    assert_eq!(next, [0, 1]);
}

/// A task asks for two locks; its client has one for it, and not the other. It begins again at its place, unless nobody wants it any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_waits_for_one_of_its_locks_keeps_its_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = serve_journalled(folder.path());
    let worker = hub.join(7, hello(Role::Worker, 2)).await;
    let (mut client, job, (_to_hub, mut places)) = driving(&hub, JobOpen::default()).await;
    let place = next_place(&mut places).await;
    for is_wanted in [true, false] {
        let (mut to_hub, mut said) = client.launch(&place).await;
        let (_, mut to_client) = launched(&worker).await;
        for number in [1, 2] {
            let lock = OutputKind::Lock(LockRequest { number, ..LockRequest::default() });
            to_client.send(&TaskOutput::from(lock)).await.expect("sent");
        }
        let mut asked = 0;
        while asked < 2 {
            let said = in_time(said.next::<TaskOutput>()).await.expect("no error").expect("more").kind;
            asked += u32::from(matches!(said, Some(OutputKind::Lock(_))));
        }
        if !is_wanted {
            client.ask(JobAskKind::Cancel(job)).await;
        }
        for kind in [InputKind::Locked(1), InputKind::Cancel(true)] {
            to_hub.send(&TaskInput::from(kind)).await.expect("sent");
        }
        // Else the worker may have ended it before the hub has heard that.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let ended = OutputKind::Failed(FailedKind::Cancelled.because("as its client wanted"));
        to_client.send(&TaskOutput::from(ended)).await.expect("sent");
        let Some(OutputKind::Failed(failed)) =
            in_time(said.next::<TaskOutput>()).await.expect("no error").expect("it").kind
        else {
            panic!("it has not failed")
        };
        let reason = if is_wanted { FailedKind::Changed } else { FailedKind::Cancelled };
        assert_eq!(failed.reason(), reason, "{}", failed.message);
    }
    let (_to_hub, mut said) = client.launch(&place).await;
    let refused = in_time(said.next::<TaskOutput>()).await.expect("no error").expect("it").kind;
    assert!(matches!(refused, Some(OutputKind::Failed(failed)) if failed.reason() == FailedKind::Refused));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_its_client_waits_with_is_not_idle() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = serve_journalled(folder.path());
    let _worker = hub.join(7, hello(Role::Worker, 2)).await;
    let (_client, _, (mut to_hub, mut places)) = driving(&hub, JobOpen::default()).await;
    let place = next_place(&mut places).await;
    let late = std::time::Instant::now() + Duration::from_secs(60) + Duration::from_millis(1);
    let is_idle = || !wire::lock(&hub.shared.state).work.launches.idle(late).is_empty();
    assert!(is_idle());
    tokio::time::sleep(Duration::from_millis(2)).await;
    to_hub.send(&PlaceBack { kept: place.instance, ..PlaceBack::default() }).await.expect("sent");
    in_time(async {
        while is_idle() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

//! A snapshot of format 1, as the last version of the code before format 2 wrote it: it is read, is what it should be, and goes on.
//!
//! `ledger-1.snapshot` is [`saved`] of [`history`], as these two gave it among the tests of the last version that wrote that format. Nothing happens in it
//! for which only format 2 has words (no group stands aside, no host is silent), so it must be the same table today.

use base::Digest;
use std::convert::Infallible;
use tasks::*;

const FORMAT_1: &[u8] = include_bytes!("../golden/ledger-1.snapshot");

/// A ledger, and the time.
struct Course {
    ledger: Ledger,
    effects: Effects,
    now: u64,
}

impl Course {
    fn over(ledger: Ledger) -> Self {
        let now = ledger.table().now();
        Self { ledger, effects: Effects::default(), now }
    }

    fn handle(&mut self, event: Event<'_>, blobs: &[&[u8]]) -> Vec<Effect> {
        self.now += 1_000_000;
        self.ledger.handle(&Entry { event, blobs }, self.now, &mut self.effects);
        self.ledger.table().check_invariants();
        self.effects.to_vec()
    }

    fn settle(&mut self) {
        while self.ledger.table().is_behind(self.now) {
            self.handle(Event::Tick, &[]);
        }
    }

    fn account(&mut self, key: u128) -> AccountName {
        let spec = AccountSpec { key, weight: 1, share_permille: 0, tasks_max: 1_000, running_max: 1_000 };
        match self.handle(Event::Account(spec), &[])[0] {
            Effect::Account(name) => name,
            ref other => panic!("{other:?}"),
        }
    }

    fn host(&mut self, key: u128, account: AccountName) -> HostName {
        let shape =
            Shape { platform: Platform::LINUX_X86_64, cpus: 4, largest: 4, memory_mib: 8192, ..Shape::default() };
        let spec = HostSpec { key, account, shape, speed_permille: 1_000, is_fresh: true, is_attached: false };
        match self.handle(Event::Join(spec), &[])[0] {
            Effect::Host(name) => name,
            ref other => panic!("{other:?}"),
        }
    }

    fn job(&mut self, key: u128, account: AccountName, urgency: Urgency, policy: Policy) -> JobName {
        let need = Need { platform: Platform::LINUX_X86_64, cpus: 1, memory_mib: 100, ..Need::default() };
        let (cost_ms, affinity, failures_max) = (1_000, 0, u32::MAX);
        let spec = JobSpec { key, account, urgency, need, policy, cost_ms, affinity, failures_max, is_volatile: false };
        match self.handle(Event::Open(spec), &[b"what the job is"])[0] {
            Effect::Job(name, _) => name,
            ref other => panic!("{other:?}"),
        }
    }

    fn submit(&mut self, job: JobName, count: u8, deadline_ms: u64) {
        let first = self.ledger.table().job(job).expect("known").tasks;
        let inputs: Vec<Vec<u8>> = (0..count).map(|at| vec![b'i', at]).collect();
        let inputs: Vec<&[u8]> = inputs.iter().map(|input| &input[..]).collect();
        self.handle(Event::Submit { job, first, count, later: 0, is_promised: false, deadline_ms }, &inputs);
    }

    fn request(&mut self, host: HostName, want: u8) -> Vec<InstanceName> {
        let sent = |effect: &Effect| if let Effect::Send { instance, .. } = effect { Some(*instance) } else { None };
        self.handle(Event::Request { host, want }, &[]).iter().filter_map(sent).collect()
    }

    fn report(&mut self, host: HostName, instance: InstanceName, outcome: Outcome) -> Vec<Effect> {
        let reports = [Report { instance, outcome, cost_ms: 900 }];
        self.handle(Event::Report { host, reports: &reports, want: 0 }, &[b"a result"])
    }
}

/// Jobs of several kinds with their tasks, in each stage of a life that there is.
fn history() -> Course {
    let mut course = Course::over(Ledger::new(Capacity::of(8, 32), 1 << 20, 7, 0));
    let accounts = [1, 2, 3].map(|key| course.account(key));
    let hosts = [course.host(11, accounts[1]), course.host(12, accounts[2])];
    let one = course.job(21, accounts[0], Urgency::Normal, Policy::default());
    course.submit(one, 6, 0);
    course.submit(one, 2, 90_000);
    let got = course.request(hosts[0], 4);
    assert_eq!(got.len(), 4);
    course.report(hosts[0], got[0], Outcome::Done([1; 32]));
    course.report(hosts[0], got[1], Outcome::Done([2; 32]));
    course.handle(Event::Assimilated(&[got[0].task]), &[]);
    let held = course.job(22, accounts[0], Urgency::Spare, Policy::default());
    course.submit(held, 3, 0);
    course.handle(Event::Hold(held, true), &[]);
    let policy = Policy { quorum: 2, target: 2, ..Policy::default() };
    let two = course.job(23, accounts[0], Urgency::Interactive, policy);
    course.submit(two, 1, 0);
    for host in hosts {
        let got = course.request(host, 1);
        assert_eq!(got.len(), 1);
        course.report(host, got[0], Outcome::Done([3; 32]));
    }
    let gone = course.job(24, accounts[1], Urgency::Normal, Policy::default());
    course.submit(gone, 2, 0);
    course.handle(Event::CancelJob(gone), &[]);
    course.settle();
    course
}

/// What comes after: the rest is done, and what was held.
fn go_on(course: &mut Course) -> Vec<Effect> {
    let table = course.ledger.table();
    let job = |key| {
        table
            .jobs_after(None, usize::MAX)
            .into_iter()
            .find(|job| table.job(*job).is_some_and(|job| job.spec.key == key))
    };
    let held = job(22).expect("it is there");
    let hosts: Vec<HostName> = table.hosts().map(|(host, _)| host).collect();
    let mut all = course.handle(Event::Hold(held, false), &[]);
    for _ in 0..10 {
        for host in &hosts {
            for instance in course.request(*host, 3) {
                all.extend(course.report(*host, instance, Outcome::Done([4; 32])));
            }
        }
        course.now += 1_000_000_000;
        course.settle();
    }
    all
}

fn saved(ledger: &Ledger) -> Vec<u8> {
    let mut bytes = Vec::new();
    let Ok(()) = ledger.save(|piece| {
        bytes.extend_from_slice(piece);
        Ok::<_, Infallible>(())
    });
    bytes
}

fn loaded(mut bytes: &[u8]) -> Result<(u32, Ledger), LoadError<Infallible>> {
    Ledger::load_any(|room| {
        let (now, later) = bytes.split_at(room.len().min(bytes.len()));
        room[..now.len()].copy_from_slice(now);
        bytes = later;
        Ok(now.len())
    })
}

#[test]
fn a_snapshot_of_format_1_is_read_and_goes_on() {
    assert_eq!(&Digest::of(FORMAT_1).to_hex()[..16], "24fb8f60e0cd4475", "it is never written anew");
    let (format, ledger) = loaded(FORMAT_1).expect("the bytes of format 1");
    assert_eq!(format, 1);
    ledger.table().check_invariants();
    let (mut course, mut want) = (Course::over(ledger), history());
    assert!(saved(&course.ledger) == saved(&want.ledger), "what it holds is what happened");
    let effects = go_on(&mut course);
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Assimilate { .. })), "{effects:?}");
    assert_eq!(effects, go_on(&mut want));
    assert!(saved(&course.ledger) == saved(&want.ledger), "it does what the table does that never was of format 1");
}

#[test]
fn a_hub_s_start_takes_no_older_format_and_nobody_a_newer_one() {
    let mut bytes = FORMAT_1;
    let read = |room: &mut [u8]| std::io::Read::read(&mut bytes, room);
    let error = Ledger::load_saved(read).expect_err("an older format");
    assert!(matches!(error, LoadError::Older(1)), "{error}");
    assert_eq!(error.to_string(), "the snapshot has format 1, which is older than 2");
    let at = FORMAT_1.windows(8).position(|bytes| bytes == b"GLNTABLE").expect("the table") + 8;
    let mut newer = FORMAT_1.to_vec();
    newer[at] = 9;
    assert!(matches!(loaded(&newer), Err(LoadError::Version(9))));
}

#[test]
fn an_older_snapshot_that_is_cut_short_is_refused() {
    for length in (0..FORMAT_1.len()).step_by(7) {
        assert!(matches!(loaded(&FORMAT_1[..length]), Err(LoadError::Damaged("it ends too early"))), "{length}");
    }
}

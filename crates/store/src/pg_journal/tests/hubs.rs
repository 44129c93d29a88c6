//! Two hubs and one journal: one of them writes.

use super::*;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// One server for both: a start takes a second.
#[test]
fn a_hub_that_was_replaced_writes_nothing() {
    let server = Server::start();
    of_what_it_took(&server.place(600));
    of_what_it_commits(&Place::parse(&server.url("lease_ms=600&schema=other")).unwrap());
}

fn of_what_it_took(place: &Place) {
    let (old, _) = open(place);
    old.commit(10).unwrap();
    assert!(matches!(block_on(Lease::take(place, "second", &[])), Ok(Taking::Held(by)) if by == "test"));
    old.journal.files().put("hub.key", b"one").unwrap();
    // It sleeps, and takes records that it has not committed.
    old.journal.freeze();
    old.journal.append_quietly(&record(11)).unwrap();
    let (new, contents) = open(place);
    assert_eq!((check(contents), new.journal.status().epoch), ((0, 10), 2));
    new.commit(5).unwrap();
    // It wakes.
    assert!(matches!(old.journal.files().put("hub.key", b"two"), Err(JournalError::Fenced { found: 2, given: 1 })));
    let snapshot = old.journal.write_snapshot(Seq(10), 3, &mut |out| out.write_all(b"old"));
    assert!(matches!(&snapshot, Err(JournalError::Dead(cause)) if matches!(**cause, JournalError::Fenced { .. })));
    let end = old.end();
    assert!(matches!(&*end, JournalError::Fenced { found: 2, given: 1 }), "{end}");
    assert!(matches!(old.commit(1), Err(JournalError::Dead(_))));
    assert_eq!(old.durable(), 10);
    new.commit(5).unwrap();
    drop((old, new));
    let lease = take(place);
    assert_eq!(lease.file("hub.key").unwrap().as_deref(), Some(&b"one"[..]));
    assert_eq!(lease.file("nodes.json").unwrap(), None);
    let (_hub, contents) = open_with(lease, Options { logic_version: 3, ..Options::default() }).unwrap();
    assert_eq!(check(contents), (0, 20), "what the old one took is not there");
}

fn of_what_it_commits(place: &Place) {
    let (old, _) = open(place);
    old.commit(10).unwrap();
    old.journal.freeze();
    let (new, _) = open(place);
    assert!(matches!(old.commit(1), Err(JournalError::Dead(cause)) if matches!(*cause, JournalError::Fenced { .. })));
    new.commit(1).unwrap();
}

#[test]
fn a_hub_that_stops_gives_its_lease_back() {
    let server = Server::start();
    let place = server.place(60_000);
    let (hub, _) = open(&place);
    let standby = place.clone();
    let waiting = std::thread::spawn(move || {
        let mut said = Vec::new();
        let lease = block_on(Lease::wait(&standby, "second", &[], |why| said.push(why.to_owned()))).unwrap();
        (lease, said)
    });
    for _ in 0..10 {
        hub.commit(1).unwrap();
        std::thread::park_timeout(Duration::from_millis(20));
    }
    let begun = Instant::now();
    drop(hub);
    let (lease, said) = waiting.join().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(3));
    assert_eq!(lease.epoch(), 2);
    assert!(matches!(&said[..], [held] if held.contains("the hub test holds the journal")), "{said:?}");
}

#[test]
fn all_hubs_are_known_to_the_one_that_serves() {
    let server = Server::start();
    let place = server.place(900);
    let at = |port| std::net::SocketAddr::from(([10, 0, 0, 1], port));
    let lease = take(&place);
    let mut hubs = lease.hubs(vec![at(1)]);
    assert_eq!(*hubs.borrow_and_update(), [at(1)]);
    server.sql("INSERT INTO gleaner.hubs VALUES ('10.0.0.9:9', now() - interval '2 days'), ('odd', now())");
    assert!(matches!(block_on(Lease::take(&place, "second", &[at(2), at(3), at(3)])), Ok(Taking::Held(_))));
    let all = [at(1), at(2), at(3)];
    let found = block_on(async { tokio::time::timeout(LONG, hubs.wait_for(|known| *known == all)).await.is_ok() });
    assert!(found, "{:?}", *hubs.borrow());
    // What was said lately is not written again, nor its row locked.
    lease.hubs(vec![at(1), at(4)]);
    server
        .sql("DO $$ BEGIN IF EXISTS (SELECT FROM gleaner.hubs WHERE xmax <> '0') THEN RAISE 'locked'; END IF; END $$");
    // One hub with many addresses leaves room for the other's.
    let many: Vec<_> = (100..200).map(at).collect();
    let known = lease.hubs(many).borrow().clone();
    assert_eq!(known.len(), 4 + 8);
    assert!(known.contains(&at(2)) && known.contains(&at(3)), "{known:?}");
    // Tables of the version before.
    drop(lease);
    server.sql("DROP TABLE gleaner.hubs");
    assert_eq!(*take(&place).hubs(vec![at(5)]).borrow(), [at(5)]);
}

#[test]
fn a_standby_that_gives_up_takes_nothing_later() {
    let server = Server::start();
    let place = server.place(600);
    drop(take(&place));
    std::thread::scope(|scope| {
        // Longer than the standby waits for an answer.
        scope.spawn(|| server.sql("SELECT FROM gleaner.lease FOR UPDATE; SELECT pg_sleep(3)"));
        let locked = "DO $$ BEGIN PERFORM FROM gleaner.lease FOR UPDATE NOWAIT; END $$";
        while server.postgres.sql(locked).is_ok() {}
        let taking = block_on(Lease::take(&place, "test", &[])).unwrap();
        assert!(matches!(&taking, Taking::Lost(why) if why.contains("lock timeout")), "{taking:?}");
    });
    assert_eq!(take(&place).epoch(), 2);
}

/// A process of its own, which appends until it is ended.
struct Stopped(Child);

impl Stopped {
    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const URL: &str = "GLEANER_TEST_STOPPED_HUB";

/// Not a test by itself: the other process of the next one.
#[test]
fn stopped_hub() {
    let Ok(url) = std::env::var(URL) else { return };
    let (hub, _) = open(&Place::parse(&url).unwrap());
    loop {
        match hub.commit(3) {
            Ok(durable) => eprintln!("told {durable}"),
            Err(error) => return eprintln!("ended {error}"),
        }
    }
}

#[test]
fn a_process_that_is_stopped_and_wakes_commits_nothing() {
    let server = Server::start();
    let url = server.url("lease_ms=700");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "pg_journal::tests::hubs::stopped_hub", "--nocapture", "--test-threads=1"]);
    let child = command.env(URL, &url).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut old = Stopped(child);
    let mut lines = BufReader::new(old.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let told = |line: &str| line.strip_prefix("told ").and_then(|seq| seq.parse::<u64>().ok());
    let mut last = lines.by_ref().filter_map(|line| told(&line)).nth(50).unwrap();
    old.signal(rustix::process::Signal::STOP);
    let begun = Instant::now();
    let (new, contents) = open(&Place::parse(&url).unwrap());
    let (_, found) = check(contents);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    new.commit(10).unwrap();
    old.signal(rustix::process::Signal::CONT);
    let mut end = String::new();
    for line in lines {
        last = told(&line).unwrap_or(last);
        if line.starts_with("ended ") {
            end = line;
        }
    }
    // What it was told of before it was stopped it may say later.
    assert!(last <= found, "{last} was told, and {found} was there");
    assert!(end.contains("must not go on"), "{end}");
    new.commit(10).unwrap();
    drop(new);
    let (_hub, contents) = open(&Place::parse(&url).unwrap());
    assert_eq!(check(contents), (0, found + 20));
}

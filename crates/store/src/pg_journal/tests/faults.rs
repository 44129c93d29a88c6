//! Lost connections, lost answers, and a server that crashes: what was told is there, once.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Instant;

/// Appends while `disturb` is called again and again, then looks for all that was told.
fn disturbed(place: &Place, times: u32, mut disturb: impl FnMut(u32)) {
    let (owned, _) = open(place);
    let (hub, done, begun) = (&owned, &AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while !done.load(SeqCst) && begun.elapsed() < 2 * LONG {
                let next = hub.journal.status().taken.0 + 1;
                match hub.journal.append(&record(next)) {
                    Ok(seq) => assert_eq!(seq.0, next),
                    Err(JournalError::Full { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
                std::thread::park_timeout(Duration::from_micros(100));
            }
        });
        for time in 0..times {
            let durable = hub.durable();
            disturb(time);
            let begun = Instant::now();
            while hub.durable() == durable && lock(&hub.told).end.is_none() {
                assert!(begun.elapsed() < LONG, "nothing becomes durable any more");
                std::thread::park_timeout(Duration::from_millis(1));
            }
        }
        done.store(true, SeqCst);
    });
    assert!(lock(&hub.told).end.is_none(), "{:?}", hub.end());
    let taken = hub.journal.status().taken;
    hub.journal.flush_wait(taken, LONG).unwrap();
    drop(owned);
    let (_hub, contents) = open(place);
    assert_eq!(check(contents), (0, taken.0), "nothing is lost, and nothing twice");
}

#[test]
fn a_server_that_crashes_loses_nothing_that_was_told() {
    let server = Server::start();
    disturbed(&server.place(20_000), 6, |time| {
        std::thread::park_timeout(Duration::from_millis(7 * u64::from(time) % 23));
        server.crash();
    });
}

#[test]
fn an_answer_that_is_lost_is_looked_for() {
    let server = Server::start();
    let proxy = server.proxy();
    disturbed(&proxy.place(&server, 20_000), 60, |time| {
        std::thread::park_timeout(Duration::from_micros(137 * u64::from(time) % 3000));
        proxy.lose_an_answer();
    });
}

#[test]
fn sessions_that_are_ended_are_made_again() {
    let server = Server::start();
    disturbed(&server.place(20_000), 10, |_| {
        server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'gleaner hub%'");
    });
}

#[test]
fn without_its_server_the_journal_ends_with_the_lease() {
    let server = Server::start();
    let proxy = server.proxy();
    ends_with_the_lease(&proxy.place(&server, 900), || proxy.fall_silent());
    ends_with_the_lease(&Place::parse(&server.url("lease_ms=900&schema=other")).unwrap(), || drop(server));
}

fn ends_with_the_lease(place: &Place, cut: impl FnOnce()) {
    let (hub, _) = open(place);
    hub.commit(3).unwrap();
    cut();
    hub.journal.append(&record(4)).unwrap();
    let begun = Instant::now();
    let end = hub.end();
    assert!(matches!(&*end, JournalError::LeaseLost { .. }), "{end}");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(matches!(hub.journal.append(b"x"), Err(JournalError::Dead(_))));
    assert_eq!(lock(&hub.told).durable, 3);
}

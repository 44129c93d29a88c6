//! What is written is found again.

use super::*;

#[test]
fn records_and_snapshots_are_found_again_and_pruned() {
    let server = Server::start();
    let place = server.place(3000);
    let (hub, contents) = open(&place);
    assert_eq!((hub.journal.status().epoch, check(contents)), (1, (0, 0)));
    assert!(hub.journal.durable().unwrap().is_none(), "there is nothing");
    for count in 1..30 {
        hub.commit(count).unwrap();
    }
    assert_eq!(check(hub.journal.durable().unwrap().unwrap()), (0, 435));
    hub.snapshot().unwrap();
    assert!(hub.journal.durable().unwrap().is_none(), "the snapshot holds it all");
    assert_eq!(hub.journal.status().bytes_after_snapshot, 0);
    assert!(matches!(hub.snapshot(), Err(JournalError::SnapshotOrder { .. })));
    assert_eq!(hub.journal.prune().unwrap(), 0, "there is no older one");
    hub.commit(100).unwrap();
    let reading = hub.journal.durable().unwrap().unwrap();
    hub.snapshot().unwrap();
    hub.commit(7).unwrap();
    hub.snapshot().unwrap();
    let bytes = hub.journal.status().bytes;
    assert!(hub.journal.prune().unwrap() > 0);
    assert!(hub.journal.status().bytes < bytes);
    assert_eq!(check(reading), (435, 535), "pruning takes nothing from a reader");
    hub.commit(5).unwrap();
    let status = hub.journal.status();
    assert_eq!((status.durable, status.snapshot), (Seq(547), Seq(542)));
    drop(hub);
    let (hub, contents) = open(&place);
    assert_eq!((check(contents), hub.journal.status().epoch), ((542, 547), 2));
    let again = hub.journal.status();
    assert_eq!((again.bytes, again.bytes_after_snapshot), (status.bytes, status.bytes_after_snapshot));
    hub.commit(1).unwrap();
    // Without its last snapshot it goes by the one before.
    server.sql("UPDATE gleaner.chunks SET bytes = bytes || '\\x00' WHERE seq = 542 AND number = 0");
    assert_eq!(check(hub.journal.durable().unwrap().unwrap()), (535, 548));
    drop(hub);
    let (hub, contents) = open(&place);
    assert_eq!(check(contents), (535, 548));
    hub.snapshot().unwrap();
    hub.commit(1).unwrap();
    drop(hub);
    server.sql("UPDATE gleaner.batches SET count = count + 1 WHERE first = 549");
    let (_hub, mut contents) = open(&place);
    let error = contents.records.next().unwrap().unwrap_err();
    assert!(matches!(error, JournalError::DatabaseDamaged { seq: Seq(549), .. }), "{error}");
    assert!(contents.records.next().is_none());
}

#[test]
fn bytes_are_counted_again_with_each_snapshot() {
    let server = Server::start();
    let place = server.place(3000);
    let (hub, _) = open(&place);
    for _ in 0..2 {
        hub.commit(50).unwrap();
        hub.commit(50).unwrap();
        hub.snapshot().unwrap();
    }
    // As pruning does whose answer is lost.
    server.sql("DELETE FROM gleaner.batches WHERE first <= 100");
    assert_eq!(hub.journal.prune().unwrap(), 0);
    hub.commit(50).unwrap();
    hub.snapshot().unwrap();
    hub.commit(7).unwrap();
    let status = hub.journal.status();
    drop(hub);
    let (hub, _) = open(&place);
    let again = hub.journal.status();
    assert_eq!((again.bytes, again.bytes_after_snapshot), (status.bytes, status.bytes_after_snapshot));
}

/// One server for both: a start takes a second.
#[test]
fn bounds_and_errors_are_said() {
    let server = Server::start();
    it_is_bounded(&server);
    what_cannot_pass_by_itself_is_said(&server);
}

fn it_is_bounded(server: &Server) {
    let options = Options { buffer_bytes_max: 3000, bytes_max: 4 * 4096, segment_bytes: 4096, ..Options::default() };
    let (hub, _) = open_with(take(&server.place(3000)), options).unwrap();
    assert!(matches!(hub.journal.append(&[0; 4000]), Err(JournalError::TooLarge { .. })));
    for _ in 0..2 {
        hub.journal.append_quietly(&[0; 1400]).unwrap();
    }
    assert!(hub.journal.is_crowded());
    assert!(matches!(hub.journal.append_quietly(&[0; 1400]), Err(JournalError::Full { .. })));
    hub.journal.flush_wait(Seq(2), LONG).unwrap();
    for seq in 3..13 {
        hub.journal.append(&[0; 1400]).unwrap();
        hub.journal.flush_wait(Seq(seq), LONG).unwrap();
    }
    assert!(hub.journal.is_crowded() && hub.journal.status().is_tight);
    assert!(matches!(hub.journal.append(&[0; 1400]), Err(JournalError::TooManyBytes { .. })));
}

fn what_cannot_pass_by_itself_is_said(server: &Server) {
    let place = |name: &str, rest: &str| Place::parse(&server.url(rest).replace("/postgres?", name)).unwrap();
    let error = block_on(Lease::wait(&place("/nowhere?", ""), "test", &[], |_| {})).unwrap_err();
    assert!(error.to_string().contains("does not exist"), "{error}");
    drop(take(&place("/postgres?", "schema=other")));
    server.sql("UPDATE other.about SET version = 2");
    let error = block_on(Lease::wait(&place("/postgres?", "schema=other"), "test", &[], |_| {})).unwrap_err();
    assert!(matches!(error, JournalError::NewerTables { found: 2, .. }), "{error}");
}

//! A journal in a database is looked at beside the hub that has it, and put in order once none has.

use super::*;
use crate::upkeep::{Site, Upkeep};
use std::io::{self, Read};

/// Puts this as the snapshot of all.
fn put(upkeep: &mut Upkeep, bytes: &[u8]) -> Result<(), JournalError> {
    upkeep.put_snapshot(4, &mut |out| out.write_all(bytes), |mut written| {
        let mut again = Vec::new();
        written.read_to_end(&mut again)?;
        if again == bytes { Ok(()) } else { Err(io::Error::other("another one")) }
    })
}

#[test]
fn it_is_looked_at_beside_its_hub_and_held_without_one() {
    let server = Server::start();
    let place = server.place(3000);
    let site = Site::Postgres(Box::new(place.clone()));
    assert!(!site.is_there().unwrap() && !site.verify().unwrap().is_there);
    let (hub, _) = open(&place);
    for _ in 0..3 {
        hub.commit(40).unwrap();
        hub.snapshot().unwrap();
    }
    hub.commit(7).unwrap();
    let report = site.verify().unwrap();
    assert!(report.is_there && report.is_sound(), "{report:?}");
    assert_eq!((report.first, report.last, report.epoch), (Seq(1), Seq(127), 1));
    assert_eq!((report.snapshots.len(), report.snapshots[1].seq, report.identity.len()), (2, Seq(120), 32));
    assert_eq!(check(site.contents(Some(Seq(80))).unwrap()), (80, 127));
    assert_eq!(check(site.contents(None).unwrap()), (0, 127));
    let error = Upkeep::open(&site).unwrap_err();
    assert!(matches!(&error, JournalError::Held { by, .. } if by == "test"), "{error}");
    drop(hub);

    // What is refused when it is read back is not there, and what is put is there in the place of what was.
    for (put_at, want) in [(127, b"first".as_slice()), (127, b"and in its place".as_slice())] {
        let (mut upkeep, contents) = Upkeep::open(&site).unwrap();
        assert_eq!(contents.last.0, put_at);
        drop(contents);
        let refused = upkeep.put_snapshot(4, &mut |out| out.write_all(b"x"), |_| Err(io::Error::other("another one")));
        assert!(refused.unwrap_err().to_string().contains("another one"));
        put(&mut upkeep, want).unwrap();
        drop(upkeep);
        let mut bytes = Vec::new();
        let contents = site.contents(Some(Seq(127))).unwrap();
        contents.snapshot.unwrap().read_to_end(&mut bytes).unwrap();
        assert_eq!((bytes, contents.records.count()), (want.to_vec(), 0));
        assert!(site.verify().unwrap().is_sound());
    }
    let (mut upkeep, _) = Upkeep::open(&site).unwrap();
    put(&mut upkeep, &state(127)).unwrap();
    upkeep.remove_older().unwrap();
    let (before, after) = upkeep.bytes().unwrap();
    assert!(after < before, "{before}, {after}");
    drop(upkeep);
    let report = site.verify().unwrap();
    assert!(report.is_sound(), "{report:?}");
    assert_eq!((report.first, report.last, report.snapshots.len()), (Seq(0), Seq(127), 1));
    let (hub, contents) = open(&place);
    assert_eq!((contents.last, contents.records.count()), (Seq(127), 0));
    assert_eq!(hub.commit(5).unwrap(), Seq(132));
    drop(hub);

    server.sql("UPDATE gleaner.chunks SET bytes = bytes || '\\x00' WHERE seq = 127");
    let report = site.verify().unwrap();
    assert!(matches!(report.snapshots[0].damage, Some(JournalError::DatabaseDamaged { seq: Seq(127), .. })));
    server.sql("UPDATE gleaner.batches SET bytes = bytes || '\\x00' WHERE first = 128");
    let report = site.verify().unwrap();
    assert!(matches!(report.damage, Some(JournalError::DatabaseDamaged { seq: Seq(128), .. })), "{report:?}");
}

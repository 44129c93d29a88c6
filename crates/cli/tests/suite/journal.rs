//! `gleaner journal`, on journals of this version, of an older one, and of none.

use crate::fake::Place;
use crate::gleaner::{gleaner, output};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;
use store::journal::{Journal, Options};

/// What format 1 is: see the tests of `tasks`. Logic version 3 wrote it.
const FORMAT_1: &[u8] = include_bytes!("../../../tasks/tests/golden/ledger-1.snapshot");

/// The journal that a hub of an older version left, with so many records after its snapshot.
fn older(place: &Place, behind: usize) -> PathBuf {
    let folder = place.path().join("state/hub/journal");
    let options = Options { segment_bytes: 64 << 10, logic_version: 3, ..Options::default() };
    let (journal, _) = Journal::open(&folder, options, Box::new(|_| {})).expect("opened");
    let write = |what: &[u8]| journal.flush_wait(journal.append(what).expect("taken"), Duration::from_secs(20));
    let last = write(b"a record").expect("durable");
    journal.write_snapshot(last, 3, &mut |out| out.write_all(FORMAT_1)).expect("written");
    for _ in 0..behind {
        write(b"one more").expect("durable");
    }
    folder
}

#[test]
fn an_older_journal_is_upgraded_and_small_and_sound_then() {
    let place = Place::new();
    let folder = older(&place, 0);
    let run = |arguments: &[&str]| output(gleaner(&place).arg("journal").args(arguments));
    let (code, out, err) = run(&["verify"]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(
        out.contains("snapshot-00000000000000000001     1       1      3 ")
            && out.contains("`gleaner journal upgrade`"),
        "{out}"
    );
    let (code, _, err) = run(&["prune"]);
    assert!(code == Some(69) && err.contains("has format 1") && err.contains("`gleaner journal upgrade`"), "{err}");
    let (code, out, _) = run(&["upgrade", "--check"]);
    assert!(
        code == Some(0) && out.starts_with("the snapshot of record 1 would be written in format 2 instead of 1"),
        "{out}"
    );
    let (code, out, _) = run(&["upgrade"]);
    assert!(code == Some(0) && out.starts_with("the snapshot of record 1 has format 2 now, and had 1"), "{out}");
    let (code, out, _) = run(&["upgrade"]);
    assert!(code == Some(0) && out.starts_with("nothing to do"), "{out}");
    let (code, out, err) = run(&["prune"]);
    assert!(code == Some(0) && out.contains(" KB before, ") && out.contains(" KB after"), "{out}{err}");
    let (code, out, err) = run(&["verify", "--json"]);
    let told: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert_eq!((&told["sound"], &told["starts"], &told["starts_not"]), (&true.into(), &true.into(), &Value::Null));
    assert_eq!((&told["snapshots"][0]["format"], &told["last"]), (&2.into(), &1.into()));
    assert_eq!(told["journal"], folder.to_str().expect("a name"));
}

#[test]
fn damage_has_a_status_of_its_own_and_is_told_with_file_and_offset() {
    let place = Place::new();
    let folder = older(&place, 3);
    let log = folder.join("log-000000000001");
    let mut bytes = std::fs::read(&log).expect("a segment");
    bytes[600] ^= 1;
    std::fs::write(&log, bytes).expect("written");
    let (code, out, err) = output(gleaner(&place).args(["journal", "verify", "--json"]));
    let told: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, err.as_str(), &told["sound"]), (Some(65), "", &false.into()), "{out}");
    assert_eq!((&told["wrong"][0]["file"], &told["wrong"][0]["offset"]), (&log.to_str().into(), &512.into()), "{out}");
    let (code, out, _) = output(gleaner(&place).args(["journal", "verify"]));
    let want = format!("WRONG: the journal is damaged at {}, byte 512: ", log.display());
    assert!(code == Some(65) && out.contains(&want) && out.contains("\nnot sound"), "{out}");
}

#[test]
fn what_cannot_be_done_says_what_to_do() {
    let place = Place::new();
    for what in [&["verify"] as &[&str], &["prune"], &["upgrade"], &["upgrade", "--check"]] {
        let (code, _, err) = output(gleaner(&place).arg("journal").args(what));
        assert!(code == Some(69) && err.contains("there is no journal in ") && err.contains("hint: "), "{err}");
    }
    older(&place, 2);
    for what in [&["upgrade"] as &[&str], &["upgrade", "--check"], &["prune"]] {
        let (code, _, err) = output(gleaner(&place).arg("journal").args(what));
        let says =
            err.contains("start the version that wrote them once more") && err.contains("up to 23 November 2026");
        assert!(code == Some(69) && says, "{err}");
    }
    let folder = place.path().join("state/hub/journal");
    let options = Options { segment_bytes: 64 << 10, logic_version: 3, ..Options::default() };
    let _open = Journal::open(&folder, options, Box::new(|_| {})).expect("opened");
    let (code, _, err) = output(gleaner(&place).args(["journal", "prune"]));
    assert!(code == Some(69) && err.contains("in use by another process") && err.contains("gleaner stop"), "{err}");
}

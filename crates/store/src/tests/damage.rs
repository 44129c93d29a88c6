//! Stores whose files were torn or changed while they were closed.

use super::{A, B, noise, put_all, segment_files, small};
use crate::{BlockStore, Options};
use base::Digest;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// A store of two blocks and a last record; returns the digests of the blocks.
fn three_records(dir: &Path, last_is_alias: bool) -> [Digest; 3] {
    let store = BlockStore::open(dir, Options::default()).unwrap();
    let first = store.put(A, &noise(1, 90)).unwrap();
    let second = store.put(A, &noise(2, 60)).unwrap();
    let third = if last_is_alias { store.put(B, &noise(2, 60)) } else { store.put(B, &noise(3, 70)) };
    [first, second, third.unwrap()]
}

/// Checks that only the last record is lost, and that the store can be used and reopened.
fn check_last_lost(dir: &Path, digests: [Digest; 3], last: &[u8]) {
    let [first, second, third] = digests;
    for round in 0..2 {
        let store = BlockStore::open(dir, Options::default()).unwrap();
        assert_eq!(store.get(A, &first).unwrap().unwrap(), noise(1, 90));
        assert_eq!(store.get(A, &second).unwrap().unwrap(), noise(2, 60));
        assert_eq!(store.get(B, &third).unwrap().is_some(), round == 1);
        assert_eq!(store.put(B, last).unwrap(), third);
        assert_eq!(store.get(B, &third).unwrap().unwrap(), last);
    }
}

#[test]
fn a_last_record_torn_at_any_byte_is_cut_off() {
    for (is_alias, last) in [(false, noise(3, 70)), (true, noise(2, 60))] {
        let folder = tempfile::tempdir().unwrap();
        let digests = three_records(folder.path(), is_alias);
        let (path, len) = segment_files(folder.path()).remove(0);
        let whole = fs::read(&path).unwrap();
        let start = 56 + 90 + 56 + 60;
        for cut in start..len as usize {
            fs::write(&path, &whole[..cut]).unwrap();
            check_last_lost(folder.path(), digests, &last);
        }
    }
}

#[test]
fn a_last_record_with_any_byte_changed_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let digests = three_records(folder.path(), false);
    let (path, len) = segment_files(folder.path()).remove(0);
    let whole = fs::read(&path).unwrap();
    for at in 56 + 90 + 56 + 60..len as usize {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(&path, bytes).unwrap();
        check_last_lost(folder.path(), digests, &noise(3, 70));
    }
}

#[test]
fn damage_in_an_old_segment_is_found_when_the_block_is_read_and_healed_when_it_is_put() {
    for way in 0..4 {
        let folder = tempfile::tempdir().unwrap();
        let options = small(16 << 10);
        let store = BlockStore::open(folder.path(), options).unwrap();
        let digests = put_all(&store, 0..10);
        drop(store);
        let (path, _) = segment_files(folder.path()).remove(0);
        OpenOptions::new().write(true).open(path).unwrap().write_at(b"!", 56 + 499).unwrap();

        let store = BlockStore::open(folder.path(), options).unwrap();
        assert!(store.contains(A, &digests[0]), "headers alone are read at the start");
        let tenant = match way {
            0 => {
                assert_eq!(store.get(A, &digests[0]).unwrap(), None);
                A
            }
            1 => {
                assert_eq!(store.read_at(A, &digests[0], 0, &mut [0; 8]).unwrap(), None);
                A
            }
            2 => A,
            _ => B,
        };
        assert_eq!(store.contains(A, &digests[0]), way >= 2);
        store.put(tenant, &noise(0, 500)).unwrap();
        assert_eq!(store.get(tenant, &digests[0]).unwrap().unwrap(), noise(0, 500));
        assert_eq!(store.stats().blocks_damaged, 1);
        drop(store);
        let store = BlockStore::open(folder.path(), options).unwrap();
        for (seed, digest) in digests.iter().enumerate() {
            let tenant = if seed == 0 { tenant } else { A };
            assert_eq!(store.get(tenant, digest).unwrap().unwrap(), noise(seed as u64, 500));
        }
    }
}

#[test]
fn damage_is_found_while_the_store_is_open_and_healed_when_the_block_is_put() {
    for reads_part in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let store = BlockStore::open(folder.path(), small(16 << 10)).unwrap();
        let digests = put_all(&store, 0..3);
        let read = |at: usize| match reads_part {
            false => store.get(A, &digests[at]).unwrap().map(|bytes| bytes[..8].to_vec()),
            true => {
                let mut part = vec![0; 8];
                store.read_at(A, &digests[at], 0, &mut part).unwrap().map(|_| part)
            }
        };
        assert!((1..3).all(|at| read(at).is_some()));
        let (path, _) = segment_files(folder.path()).remove(0);
        // Behind the part that is read: nothing of a damaged block is shown.
        OpenOptions::new().write(true).open(path).unwrap().write_at(b"!", 56 + 499).unwrap();
        assert_eq!(read(0), None);
        assert_eq!(store.stats().blocks_damaged, 1);
        store.put(A, &noise(0, 500)).unwrap();
        assert_eq!(read(0).as_deref(), Some(&noise(0, 500)[..8]));
        assert!((1..3).all(|at| read(at).is_some()));
    }
}

#[test]
fn a_damaged_header_in_an_old_segment_hides_what_follows_there_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let options = small(16 << 10);
    let store = BlockStore::open(folder.path(), options).unwrap();
    let digests = put_all(&store, 0..10);
    drop(store);
    let (path, len) = segment_files(folder.path()).remove(0);
    assert_eq!(len, 3 * 556);
    OpenOptions::new().write(true).open(path).unwrap().write_at(b"!", 556 + 4).unwrap();
    let store = BlockStore::open(folder.path(), options).unwrap();
    let seen: Vec<bool> = digests.iter().map(|digest| store.contains(A, digest)).collect();
    assert_eq!(seen, [true, false, false, true, true, true, true, true, true, true]);
    assert_eq!(store.stats().bytes, 10 * 556, "what cannot be read still takes its room");
    store.put(A, &noise(1, 500)).unwrap();
    assert!(store.contains(A, &digests[1]));
}

#[test]
fn files_of_others_in_the_folder_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("seg-1"), b"mine").unwrap();
    fs::write(folder.path().join("notes"), b"mine").unwrap();
    let store = BlockStore::open(folder.path(), small(4096)).unwrap();
    put_all(&store, 0..50);
    assert!(store.stats().segments_dropped > 0);
    assert_eq!(fs::read(folder.path().join("seg-1")).unwrap(), b"mine");
    assert_eq!(fs::read(folder.path().join("notes")).unwrap(), b"mine");
}

#[test]
fn a_segment_of_noise_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("seg-00000001"), noise(1, 5000)).unwrap();
    fs::write(folder.path().join("seg-00000002"), noise(2, 5000)).unwrap();
    let store = BlockStore::open(folder.path(), Options::default()).unwrap();
    let digest = store.put(A, b"x").unwrap();
    drop(store);
    let store = BlockStore::open(folder.path(), Options::default()).unwrap();
    assert_eq!(store.get(A, &digest).unwrap().unwrap(), b"x");
    assert_eq!(store.stats().entries, 1);
}

/// Not a test of its own: the process that the next test kills. It writes blocks, and says how many there are.
#[test]
fn writes_until_killed() {
    let Some(dir) = std::env::var_os("GLEANER_TEST_STORE") else { return };
    let store = BlockStore::open(Path::new(&dir), small(64 << 20)).unwrap();
    let (mut stdout, start) = (std::io::stdout(), store.stats().blocks);
    for seed in start..10_000 {
        store.put(A, &noise(seed, 3000)).unwrap();
        writeln!(stdout, "block {}", seed + 1).unwrap();
    }
}

#[test]
fn a_killed_process_loses_nothing_that_it_has_stored() {
    let folder = tempfile::tempdir().unwrap();
    for round in 1..=4 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::damage::writes_until_killed", "--nocapture"])
            .env("GLEANER_TEST_STORE", folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut blocks = lines.filter_map(|line| line.rsplit_once("block ")?.1.parse::<u64>().ok());
        let mut stored = blocks.by_ref().take(100 * round).last().expect("the process writes blocks");
        child.kill().unwrap();
        child.wait().unwrap();
        stored = blocks.last().unwrap_or(stored);
        let store = BlockStore::open(folder.path(), small(64 << 20)).expect("the lock went with the process");
        for seed in 0..stored {
            let bytes = noise(seed, 3000);
            assert_eq!(store.get(A, &Digest::of(&bytes)).unwrap(), Some(bytes), "block {seed} of {stored}");
        }
    }
}

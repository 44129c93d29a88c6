//! A disk that fails.

use super::{A, FaultyDisk, noise, put, put_all, segment_files, small};
use crate::{BlockStore, Options, StoreError};
use base::Digest;

fn check(store: &BlockStore, digests: &[Digest]) {
    for (seed, digest) in digests.iter().enumerate() {
        assert_eq!(store.get(A, digest).unwrap().unwrap(), noise(seed as u64, 500), "block {seed}");
    }
}

#[test]
fn short_writes_are_continued() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    disk.set(|faults| faults.write_bytes_max = Some(7));
    let store = disk.open(folder.path(), small(1 << 20));
    let digests = put_all(&store, 0..20);
    check(&store, &digests);
    drop(store);
    check(&disk.open(folder.path(), small(1 << 20)), &digests);
}

#[test]
fn a_write_that_fails_at_any_byte_leaves_nothing_behind() {
    for fail_truncate in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::default();
        let store = disk.open(folder.path(), small(1 << 20));
        let mut digests = vec![put(&store, 0)];
        for after in (0..556).step_by(if fail_truncate { 37 } else { 1 }) {
            let seed = digests.len() as u64;
            disk.set(|faults| (faults.fail_write_after, faults.fail_truncate) = (Some(after), fail_truncate));
            let error = store.put(A, &noise(seed, 500)).unwrap_err();
            assert!(matches!(error, StoreError::Io { .. }), "{error}");
            assert!(!store.contains(A, &Digest::of(&noise(seed, 500))));
            disk.set(|faults| faults.fail_truncate = false);
            if after % 8 == 0 {
                digests.push(put(&store, seed));
            }
        }
        check(&store, &digests);
        let torn = segment_files(folder.path()).iter().map(|(_, len)| len % 556).sum::<u64>();
        assert_eq!(torn > 0, fail_truncate);
        drop(store);
        check(&disk.open(folder.path(), small(1 << 20)), &digests);
    }
}

#[test]
fn a_disk_that_takes_nothing_fills_the_folder_with_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let store = disk.open(folder.path(), small(1 << 20));
    for seed in 0..50 {
        disk.set(|faults| {
            (faults.fail_write_after, faults.fail_truncate) = (Some(0), true);
            faults.fail_create = seed % 2 == 0;
        });
        assert!(store.put(A, &noise(seed, 500)).is_err());
    }
    assert_eq!(segment_files(folder.path()), []);
    assert_eq!((store.stats().segments, store.stats().bytes), (0, 0));
    disk.set(|faults| *faults = Default::default());
    put(&store, 0);
}

#[test]
fn a_full_disk_takes_the_place_of_the_oldest_segment() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    disk.set(|faults| faults.room = Some(10 * 556 + 100));
    let store = disk.open(folder.path(), small(24 * 556));
    let digests = put_all(&store, 0..40);
    assert!(store.stats().segments_dropped >= 10);
    assert!(!store.contains(A, &digests[0]));
    assert!(digests[33..].iter().all(|digest| store.contains(A, digest)));
}

#[test]
fn a_full_disk_is_an_error_when_all_is_pinned_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    disk.set(|faults| faults.room = Some(10 * 556 + 100));
    let store = disk.open(folder.path(), small(24 * 556));
    let digests = put_all(&store, 0..10);
    let pin = store.pin(A, &digests);
    for _ in 0..3 {
        let error = store.put(A, &noise(50, 500)).unwrap_err();
        assert!(matches!(error, StoreError::DiskFull { .. }), "{error}");
    }
    check(&store, &digests);
    drop(pin);
    put(&store, 50);
    drop(store);
    assert!(disk.open(folder.path(), small(24 * 556)).contains(A, &digests[9]));
}

#[test]
fn a_full_disk_takes_even_the_only_segment() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    disk.set(|faults| faults.room = Some(2 * 556 + 100));
    let store = disk.open(folder.path(), small(24 * 556));
    let digests = put_all(&store, 0..3);
    let seen: Vec<bool> = digests.iter().map(|digest| store.contains(A, digest)).collect();
    assert_eq!(seen, [false, false, true]);
}

#[test]
fn a_pinned_block_that_cannot_be_copied_keeps_its_segment() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let store = disk.open(folder.path(), small(24 * 556));
    let digests = put_all(&store, 0..24);
    let _pin = store.pin(A, &digests[1..2]);
    disk.set(|faults| faults.fail_create = true);
    assert!(store.put(A, &noise(90, 500)).is_err());
    assert!(store.contains(A, &digests[1]));
    assert_eq!(store.get(A, &digests[1]).unwrap().unwrap(), noise(1, 500));
    disk.set(|faults| faults.fail_create = false);
    put_all(&store, 90..190);
    assert_eq!(store.get(A, &digests[1]).unwrap().unwrap(), noise(1, 500));
}

#[test]
fn a_block_that_the_disk_cannot_read_is_an_error_once_and_then_absent() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let store = disk.open(folder.path(), small(24 * 556));
    let digest = put(&store, 0);
    disk.set(|faults| faults.fail_reads = true);
    assert!(matches!(store.get(A, &digest), Err(StoreError::Io { .. })));
    assert!(store.get(A, &digest).unwrap().is_none());
    disk.set(|faults| faults.fail_reads = false);
    put(&store, 0);
    check(&store, &[digest]);
}

#[test]
fn a_segment_that_cannot_be_removed_is_dropped_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    disk.set(|faults| faults.fail_remove = true);
    let store = disk.open(folder.path(), small(24 * 556));
    let digests = put_all(&store, 0..50);
    assert!(store.contains(A, &digests[49]) && !store.contains(A, &digests[0]));
    disk.set(|faults| faults.fail_remove = false);
    drop(store);
    let store = disk.open(folder.path(), small(24 * 556));
    assert!(store.stats().bytes <= 24 * 556, "the next start drops it for good");
    assert!(store.contains(A, &digests[49]) && !store.contains(A, &digests[0]));
}

#[test]
fn a_store_that_could_not_copy_what_is_pinned_tries_again() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let store = disk.open(folder.path(), small(24 * 556));
    let digests = put_all(&store, 0..24);
    let pinned: Vec<Digest> = digests.iter().copied().step_by(3).collect();
    let _pin = store.pin(A, &pinned);
    disk.set(|faults| faults.fail_create = true);
    assert!(matches!(store.put(A, &noise(90, 500)), Err(StoreError::Full { .. })));
    disk.set(|faults| faults.fail_create = false);
    put(&store, 90);
    assert!(pinned.iter().all(|digest| store.contains(A, digest)));
}

#[test]
fn what_cannot_be_read_at_the_start_is_not_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let digests = put_all(&disk.open(folder.path(), small(24 * 556)), 0..5);
    disk.set(|faults| faults.fail_reads = true);
    let store = disk.open(folder.path(), small(24 * 556));
    assert_eq!((store.stats().entries, store.stats().bytes), (0, 5 * 556));
    put(&store, 6);
    disk.set(|faults| faults.fail_reads = false);
    drop(store);
    check(&disk.open(folder.path(), small(24 * 556)), &digests);
}

/// A small file system of its own, unmounted at the end.
struct Mounted(tempfile::TempDir);

impl Mounted {
    /// `None` where mounting is not allowed.
    fn new(bytes: u64) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let options = std::ffi::CString::new(format!("size={bytes}")).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        match rustix::mount::mount("gleaner-test", folder.path(), "tmpfs", flags, Some(options.as_c_str())) {
            Ok(()) => Some(Self(folder)),
            Err(errno) => {
                eprintln!("SKIPPED: cannot mount a small file system: {errno}");
                None
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}

/// Set where the next test is in a process of its own.
const ALONE: &str = "GLEANER_TEST_FULL_DISK";

/// In a process of its own: what another test starts holds, between fork and exec, all files that are open here, and so the room of those
/// that were dropped.
#[test]
fn a_real_full_disk_keeps_the_newest_blocks() {
    if std::env::var_os(ALONE).is_none() {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "tests::faults::a_real_full_disk_keeps_the_newest_blocks", "--nocapture"]);
        assert!(command.env(ALONE, "1").status().unwrap().success());
        return;
    }
    let Some(mounted) = Mounted::new(1 << 20) else { return };
    let options = Options { bytes_max: 64 << 20, segment_bytes: 128 << 10, ..Options::default() };
    let store = BlockStore::open(&mounted.0.path().join("store"), options).unwrap();
    let digests: Vec<Digest> = (0..300).map(|seed| store.put(A, &noise(seed, 20_000)).unwrap()).collect();
    assert!(store.stats().segments_dropped > 10);
    assert!(digests[270..].iter().all(|digest| store.contains(A, digest)));
    let kept: Vec<Digest> = digests.iter().copied().filter(|digest| store.contains(A, digest)).collect();
    let _pins = store.pin(A, &kept);
    for seed in 300..400 {
        match store.put(A, &noise(seed, 20_000)) {
            // Written since and not pinned, so it makes room for the next.
            Ok(_) | Err(StoreError::DiskFull { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert!(kept.iter().all(|digest| store.get(A, digest).unwrap().is_some()));
}

//! A power cut at every point: all that was told durable is there afterwards, in order, and nothing else but what was
//! taken after it.

use super::sim::{Crash, SimDisk, World};
use super::{commit, commits, exercise, late, open, restart, small};

/// Cuts the power, starts, and cuts it again right after: what a start gives is durable.
fn check(world: &World, told: u64, crash: Crash) -> u64 {
    let options = late();
    let after = |what: &str, error| panic!("{what} with {told} told, {crash:?}: {error}");
    let (last, started) = restart(world.after(crash), options).unwrap_or_else(|error| after("the first start", error));
    assert!(last >= told, "{crash:?} has lost records after {last}, {told} was told");
    let (again, _) =
        restart(started.after(Crash::Lost), options).unwrap_or_else(|error| after("the second start", error));
    assert_eq!(again, last, "{crash:?}: a start gave what a second crash could undo");
    last
}

#[test]
fn nothing_told_is_lost_by_a_crash_at_any_point() {
    let folder = tempfile::tempdir().unwrap();
    let disk = SimDisk::default();
    disk.record();
    exercise(&disk, folder.path()).unwrap();
    let history = disk.history();
    assert!(history.len() > 250, "the exercise is too short: {}", history.len());
    let total = history.last().unwrap().1;
    let mut beyond = 0;
    for (point, (world, told)) in history.iter().enumerate() {
        check(world, *told, Crash::Lost);
        beyond += u64::from(check(world, *told, Crash::Kept) > *told);
        for seed in 0..3 {
            check(world, *told, Crash::Random((point * 3 + seed) as u64));
        }
        let torn = (0..world.pending_len()).step_by(101).chain([1, 20, 24, 48, 511, 512, 513]);
        for keep in torn.filter(|keep| *keep < world.pending_len()) {
            check(world, *told, Crash::Torn(keep));
        }
    }
    assert!(beyond > 10, "some crashes keep what was not told: {beyond}");
    assert_eq!(restart(history.last().unwrap().0.after(Crash::Lost), late()).unwrap().0, total);
}

#[test]
fn a_process_that_is_killed_at_any_point_and_goes_on_loses_nothing_by_a_crash_after() {
    let folder = tempfile::tempdir().unwrap();
    let disk = SimDisk::default();
    disk.record();
    exercise(&disk, folder.path()).unwrap();
    for (world, told) in disk.history() {
        // All that was written is there to be read, synced or not.
        let disk = SimDisk::of(world);
        let (journal, recovered) = open(&disk, folder.path(), late()).unwrap();
        assert!(recovered.last.0 >= told);
        commits(&journal, 10, 1);
        let told = journal.status().durable.0;
        let left = disk.world().after(Crash::Lost);
        assert_eq!(restart(left, late()).unwrap().0, told);
    }
}

#[test]
fn a_batch_torn_at_any_byte_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let disk = SimDisk::default();
    let (journal, _) = open(&disk, folder.path(), small()).unwrap();
    commit(&journal, 5).unwrap();
    disk.record();
    commit(&journal, 4).unwrap();
    drop(journal);
    let history = disk.history();
    let mut kept = 0;
    // Before each sync.
    for (world, told) in history.iter().filter(|(world, _)| world.pending_len() > 0) {
        for keep in 0..=world.pending_len() {
            let last = check(world, *told, Crash::Torn(keep));
            kept += u64::from(keep == world.pending_len() && last > *told);
        }
    }
    assert!(kept > 0, "a batch that was written in full is there");
}

#[test]
fn what_a_torn_batch_left_is_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let mut disk = SimDisk::default();
    let mut told = 0;
    for round in 0..40 {
        let (journal, _) = open(&disk, folder.path(), small()).unwrap();
        assert!(journal.status().durable.0 >= told);
        told = commit(&journal, 1 + round % 3).unwrap().0;
        disk.record();
        commit(&journal, 6).unwrap();
        drop(journal);
        let history = disk.history();
        let (world, told_then) = history.iter().rfind(|(world, _)| world.pending_len() > 0).unwrap();
        told = told.max(*told_then);
        let keep = world.pending_len() * (round as usize % 7) / 7;
        disk = SimDisk::of(world.after(Crash::Torn(keep)));
    }
    assert!(restart(disk.world(), small()).unwrap().0 >= told);
}

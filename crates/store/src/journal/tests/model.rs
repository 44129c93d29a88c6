//! The journal against a trivial model: a list of records.

use super::sim::{Crash, SimDisk};
use super::{
    Durable, Journal, JournalError, LONG, Options, Seq, append, check, check_durable, commit, cycle, open, small,
    snapshot,
};
use proptest::prelude::*;
use std::sync::atomic::Ordering::SeqCst;

#[derive(Clone, Debug)]
enum Op {
    Append(u64),
    Commit(u64),
    Snapshot,
    Prune,
    Cycle,
    /// Begins to read what is durable, and reads it later.
    Read,
    Epoch(u64),
    Reopen(u32),
    Crash(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => (1..5u64).prop_map(Op::Append),
        6 => (1..5u64).prop_map(Op::Commit),
        2 => Just(Op::Snapshot),
        2 => Just(Op::Prune),
        2 => Just(Op::Cycle),
        2 => Just(Op::Read),
        1 => (0..3u64).prop_map(Op::Epoch),
        1 => (0..2u32).prop_map(Op::Reopen),
        2 => any::<u64>().prop_map(Op::Crash),
    ];
    proptest::collection::vec(op, 1..80)
}

struct World {
    folder: tempfile::TempDir,
    disk: SimDisk,
    journal: Option<Journal>,
    options: Options,
    taken: u64,
    /// What is being read, and how far it was durable before that began.
    reading: Option<(Durable, u64)>,
}

impl World {
    fn step(&mut self, op: &Op) {
        let journal = self.journal.as_ref().unwrap();
        match *op {
            // The bounds are met where nothing waits.
            Op::Append(count) => match append(journal, count) {
                Ok(_) | Err(JournalError::Full { .. }) => {}
                Err(error) => panic!("{error}"),
            },
            Op::Commit(count) => {
                journal.flush_wait(journal.status().taken, LONG).unwrap();
                commit(journal, count).unwrap();
            }
            Op::Snapshot => match snapshot(journal) {
                Ok(()) | Err(JournalError::SnapshotOrder { .. }) => {}
                Err(error) => panic!("{error}"),
            },
            Op::Prune => drop(journal.prune().unwrap()),
            Op::Cycle => cycle(journal).unwrap(),
            Op::Read if self.reading.is_some() => self.read(),
            Op::Read => {
                let told = journal.status().durable.0;
                self.reading = journal.durable().unwrap().map(|durable| (durable, told));
            }
            Op::Epoch(more) => {
                self.options.epoch += more;
                journal.set_epoch(self.options.epoch).unwrap();
            }
            Op::Reopen(more) => {
                self.options.logic_version += more;
                self.taken = journal.status().taken.0;
                self.read();
                self.journal = None;
                let last = self.reopen();
                assert_eq!(last, self.taken, "a journal that is closed has committed all");
            }
            Op::Crash(seed) => self.crash(seed),
        }
    }

    fn read(&mut self) {
        let Some((durable, told)) = self.reading.take() else { return };
        assert!(check_durable(durable).unwrap() >= told);
    }

    /// Takes the disk as it is at this moment, and starts from what a power cut leaves of it.
    fn crash(&mut self, seed: u64) {
        let journal = self.journal.as_ref().unwrap();
        // What is told after the power cut counts for nothing; what was told before it must be there.
        let told = self.disk.told.load(SeqCst);
        let world = self.disk.world().after(Crash::Random(seed));
        let taken = journal.status().taken.0;
        self.read();
        self.journal = None;
        self.disk = SimDisk::of(world);
        let last = self.reopen();
        assert!((told..=taken).contains(&last), "{last} of {told} told, {taken} taken");
    }

    fn reopen(&mut self) -> u64 {
        let (journal, recovered) = open(&self.disk, self.folder.path(), self.options).unwrap();
        assert_eq!((journal.status().taken, journal.status().durable), (recovered.last, recovered.last));
        self.disk.told.store(recovered.last.0, SeqCst);
        self.journal = Some(journal);
        check(recovered).unwrap()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_told_is_there_after_anything(ops in ops()) {
        let folder = tempfile::tempdir().unwrap();
        let disk = SimDisk::default();
        let mut world = World { folder, disk, journal: None, options: small(), taken: 0, reading: None };
        assert_eq!(world.reopen(), 0);
        ops.iter().for_each(|op| world.step(op));
        world.read();
        let journal = world.journal.take().unwrap();
        let taken = journal.status().taken;
        drop(journal);
        assert_eq!(Seq(world.reopen()), taken);
    }
}

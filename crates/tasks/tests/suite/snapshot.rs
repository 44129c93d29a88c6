//! A table saved and made again: the bytes are known, what is damaged is refused, and the copy does the same.

use crate::world::*;
use base::Digest;
use proptest::prelude::*;
use tasks::*;

fn of_everything() -> World {
    with_hosts().0
}

/// A small table in which there is something of everything, and the hosts that are there.
fn with_hosts() -> (World, [HostName; 3]) {
    let mut world = World::new(8, 32);
    let accounts = [world.account_with(3, 200), world.account(), world.account(), world.account()];
    let hosts = [world.attached(accounts[0]), world.host(accounts[1]), world.host(accounts[2])];
    world.handle(Event::Warm(hosts[0], 77));
    let spec = world.job_spec(accounts[0]);
    let reserved = world.open(JobSpec { affinity: 77, is_volatile: true, ..spec });
    world.submit(reserved, 6, 40_000);
    world.submit(reserved, 1, 100_000_000);
    let policy = Policy { quorum: 2, target: 2, validation: Validation::Command, ..Policy::default() };
    let spec = world.job_spec(accounts[1]);
    let compared = world.open(JobSpec { policy, urgency: Urgency::Interactive, ..spec });
    world.submit(compared, 2, 0);
    world.pass(1_234);
    for host in [hosts[1], hosts[2]] {
        for instance in world.request(host, 2) {
            world.done(host, instance, 5);
        }
    }
    let spec = world.job_spec(accounts[3]);
    let held = world.open(JobSpec { urgency: Urgency::Spare, ..spec });
    world.submit(held, 9, 9_000_000);
    world.handle(Event::Hold(held, true));
    // One that fails what it gets, one that leaves with something, and one whose record is used again.
    let fails = world.host(accounts[3]);
    let other = world.job(accounts[2]);
    world.submit(other, 5, 0);
    for instance in world.request(fails, 3) {
        world.failed(fails, instance);
    }
    let leaves = world.host(accounts[3]);
    world.request(leaves, 2);
    world.handle(Event::Leave(leaves));
    world.pass(50);
    world.host(accounts[2]);
    let cancelled = world.job(accounts[1]);
    world.submit(cancelled, 3, 0);
    world.handle(Event::CancelJob(cancelled));
    world.handle(Event::Submit { job: held, first: 99, count: 1, later: 0, is_promised: false, deadline_ms: 0 });
    (world, hosts)
}

/// A table with little in it: a few kB.
fn small() -> Table {
    let mut world = World::new(8, 32);
    let account = world.account();
    let host = world.host(account);
    let job = world.job(account);
    world.submit(job, 2, 40_000);
    world.request(host, 1);
    world.table
}

/// What is known of the bytes of [`of_everything`]: their version, how many they are, and their digest.
const KNOWN: (u32, usize, &str) = (2, 13013, "12c88afde54a55c3");

#[test]
fn its_bytes_are_known() {
    let bytes = saved(&of_everything().table);
    let found = (SNAPSHOT_VERSION, bytes.len(), &Digest::of(&bytes).to_hex()[..16]);
    assert_eq!(
        found, KNOWN,
        "the bytes of a snapshot have changed. If what is saved is listed in another way, or in another order: raise \
         SNAPSHOT_VERSION, and put what was found into KNOWN. If only what the table does has changed, so that the same events \
         give another table: raise LOGIC_VERSION, and put it in without a new SNAPSHOT_VERSION"
    );
}

#[test]
fn however_it_comes_it_is_the_same() {
    let world = of_everything();
    let bytes = saved(&world.table);
    for piece in [1, 7, 4096, usize::MAX] {
        let copy = loaded(&bytes, piece).expect("was written by us");
        copy.check_invariants();
        assert_eq!(saved(&copy), bytes);
        assert_eq!((copy.capacity(), copy.bytes()), (world.table.capacity(), world.table.bytes()));
    }
    assert_eq!(world.table.capacity(), Capacity::of(8, 32));
}

#[test]
fn a_copy_does_what_the_table_does() {
    let ((mut world, hosts), mut other) = (with_hosts(), of_everything());
    other.table = loaded(&saved(&world.table), usize::MAX).expect("was written by us");
    for _ in 0..40 {
        let effects = world.pass(1_000);
        assert_eq!(effects, other.pass(1_000));
        let sent = sent(&effects);
        for host in hosts {
            assert_eq!(world.request(host, 2), other.request(host, 2));
            for instance in &sent {
                assert_eq!(world.done(host, *instance, 3), other.done(host, *instance, 3));
            }
        }
    }
    assert!(saved(&world.table) == saved(&other.table));
}

#[test]
fn what_was_never_used_is_not_written() {
    let mut world = World::new(10_000, 1_000_000);
    let account = world.account();
    let job = world.job(account);
    world.submit(job, 10, 0);
    let bytes = saved(&world.table);
    assert!(bytes.len() < 3_000, "{} bytes", bytes.len());
}

#[test]
fn what_is_cut_short_or_too_long_is_refused() {
    let mut bytes = saved(&small());
    for length in 0..bytes.len() {
        let error = loaded(&bytes[..length], usize::MAX).expect_err("cut short");
        assert!(matches!(error, LoadError::Damaged("it ends too early")), "{error}");
    }
    bytes.push(0);
    assert!(matches!(loaded(&bytes, usize::MAX), Err(LoadError::Damaged("bytes left over"))));
}

#[test]
fn damage_does_no_harm() {
    let bytes = saved(&small());
    let room = small().bytes();
    for at in 0..bytes.len() {
        // One bit, another one for each byte; and all.
        for change in [1 << (at % 8), 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= change;
            if let Ok(table) = loaded(&damaged, usize::MAX) {
                assert!(at >= 76, "the version and the capacity are never taken for others");
                assert_eq!(table.bytes(), room, "no more memory than before");
                assert!(saved(&table) != bytes, "byte {at} says something");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn more_damage_does_none_either(changes in proptest::collection::vec((84usize.., any::<u8>()), 1..20), cut in 84usize..) {
        let mut bytes = saved(&of_everything().table);
        for (at, value) in changes {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        bytes.truncate(cut % (4 * bytes.len()));
        let _ = loaded(&bytes, usize::MAX);
    }
}

#[test]
fn errors_say_what_is_wrong() {
    let mut bytes = saved(&of_everything().table);
    bytes[8] = 9;
    let said = loaded(&bytes, usize::MAX).expect_err("another version").to_string();
    assert_eq!(said, "the snapshot has format 9, and none after 2 is known here");
    bytes[0] = 0;
    let said = loaded(&bytes, usize::MAX).expect_err("something else").to_string();
    assert_eq!(said, "this is no snapshot of a task table");
    let failed = Table::load_saved(|_| Err("the disk is gone".parse::<u8>().expect_err("no number")));
    assert!(matches!(failed, Err(LoadError::Read(_))));
    let mut calls = 0;
    let stopped = of_everything().table.save(|_| {
        calls += 1;
        Err("full")
    });
    assert_eq!((stopped, calls), (Err("full"), 1));
}

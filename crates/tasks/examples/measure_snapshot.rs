//! How long a table of 1,000,000 tasks takes to be saved and made again, to and from memory:
//! `cargo run --release -p tasks --example measure_snapshot`.

use std::convert::Infallible;
use std::time::Instant;
use tasks::*;

const HOSTS: usize = 10_000;
const TASKS: usize = 1_000_000;
const ACCOUNTS: u128 = 100;
/// Tasks of one job.
const JOB_TASKS: usize = 1_000;
/// Instances that one host has.
const PLACES: u16 = 96;

fn main() {
    let begun = Instant::now();
    let table = filled();
    let [accounts, hosts, jobs, tasks, instances] = table.counts();
    println!("{accounts} accounts, {hosts} hosts, {jobs} jobs, {tasks} tasks, {instances} instances");
    println!("{} MiB of memory, made in {:?}", table.bytes() >> 20, begun.elapsed());
    for _ in 0..3 {
        // With room, as a disk has: it is the table that is measured.
        let mut bytes: Vec<u8> = Vec::with_capacity(512 << 20);
        bytes.resize(bytes.capacity(), 1);
        bytes.clear();
        let begun = Instant::now();
        let Ok(()) = table.save(|piece| {
            bytes.extend_from_slice(piece);
            Ok::<_, Infallible>(())
        });
        let saving = begun.elapsed();
        let begun = Instant::now();
        let mut rest = &bytes[..];
        let copy = Table::load_saved(|room| {
            let (now, later) = rest.split_at(room.len().min(rest.len()));
            room[..now.len()].copy_from_slice(now);
            rest = later;
            Ok::<_, Infallible>(now.len())
        });
        let copy = copy.expect("was written by us");
        println!("{} MiB, saved in {saving:?}, loaded in {:?}", bytes.len() >> 20, begun.elapsed());
        assert_eq!(copy.totals(), table.totals());
    }
}

/// A table full of tasks, with as many instances at hosts as these take.
fn filled() -> Table {
    let mut table = Table::new(Capacity::of(HOSTS, TASKS), 7, 0);
    let mut effects = Effects::default();
    let mut accounts = Vec::new();
    for key in 0..ACCOUNTS {
        let spec = AccountSpec { key, weight: 1, share_permille: 0, tasks_max: TASKS as u32, running_max: u32::MAX };
        table.handle(&Event::Account(spec), 0, &mut effects);
        let Effect::Account(name) = effects[0] else { panic!("{effects:?}") };
        accounts.push(name);
    }
    // Hosts first: without them no deadline can be met.
    let hosts = join(&mut table, &accounts, &mut effects);
    for at in 0..TASKS / JOB_TASKS {
        submit(&mut table, at, accounts[at % accounts.len()], &mut effects);
    }
    for (at, host) in hosts.into_iter().enumerate() {
        for turn in 0..u64::from(PLACES) / BATCH_MAX as u64 {
            // Not all at the same time: so their timers are not all in one bucket.
            let now = (at as u64 * 4 + turn) * 1_000_000;
            table.handle(&Event::Request { host, want: BATCH_MAX as u8 }, now, &mut effects);
        }
    }
    table
}

fn join(table: &mut Table, accounts: &[AccountName], effects: &mut Effects) -> Vec<HostName> {
    let platform = Platform::LINUX_X86_64;
    let shape = Shape { platform, level: 3, cpus: PLACES, largest: PLACES, memory_mib: 65_536, tags: 0, redundancy: 1 };
    let mut hosts = Vec::new();
    for at in 0..HOSTS {
        let spec = HostSpec {
            key: (at as u128) << 32,
            account: accounts[at % accounts.len()],
            shape,
            speed_permille: 1_000,
            is_fresh: true,
            is_attached: false,
        };
        table.handle(&Event::Join(spec), 0, effects);
        let Effect::Host(host) = effects[0] else { panic!("{effects:?}") };
        hosts.push(host);
    }
    hosts
}

/// One job with its tasks; every other one has a deadline.
fn submit(table: &mut Table, at: usize, account: AccountName, effects: &mut Effects) {
    let platform = Platform::LINUX_X86_64;
    let spec = JobSpec {
        key: (at as u128) << 64,
        account,
        urgency: Urgency::Normal,
        need: Need { platform, level: 1, cpus: 1, memory_mib: 100, tags: 0, is_homogeneous: false },
        policy: Policy::default(),
        cost_ms: 1_000,
        affinity: 0,
        failures_max: u32::MAX,
        is_volatile: false,
    };
    table.handle(&Event::Open(spec), 0, effects);
    let Effect::Job(job, _) = effects[0] else { panic!("{effects:?}") };
    let deadline_ms = if at.is_multiple_of(2) { 0 } else { 800_000_000 + at as u64 * 10 };
    let mut first = 0;
    while first < JOB_TASKS as u32 {
        let count = (JOB_TASKS as u32 - first).min(BATCH_MAX as u32) as u8;
        table.handle(&Event::Submit { job, first, count, later: 0, is_promised: false, deadline_ms }, 0, effects);
        assert!(matches!(effects[0], Effect::Submitted(_)), "{effects:?}");
        first += u32::from(count);
    }
}

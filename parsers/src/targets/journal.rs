//! What a hub reads of its own disk: entries of the ledger, and the ledger as a whole.

use super::SMALL;
use crate::{Draw, Target};
use base::codec::Writer;
use std::convert::Infallible;
use tasks::{
    AccountName, AccountSpec, Capacity, Effects, Entry, Event, HostName, HostSpec, InstanceName, JobName, JobSpec,
    Ledger, Need, Outcome, Platform, Policy, Report, Scratch, Shape, TaskName, Urgency, decode,
};

/// Entries, one after the other, each with its length before it: a journal.
pub const ENTRY: Target =
    Target { name: "journal_entry", check: check_entries, draw: draw_entries, heap: |_| LEDGER_BYTES };
/// A ledger as it was saved.
pub const SNAPSHOT: Target =
    Target { name: "journal_snapshot", check: check_snapshot, draw: draw_snapshot, heap: |_| 3 * LEDGER_BYTES };

/// Heap of a ledger of the capacity here, with room for what is read and saved a piece at a time.
const LEDGER_BYTES: usize = 16 << 20;
/// Bytes that may belong to jobs and tasks of this ledger.
const BLOBS_MAX: usize = 8 * SMALL;

fn ledger() -> Ledger {
    let capacity = Capacity { accounts: 8, hosts: 8, jobs: 8, groups: 24, tasks: 40, instances: 60, nodes: 64 };
    Ledger::new(capacity, BLOBS_MAX, 3, 0)
}

/// What is read is written again as it was; and whatever it says, the table takes or refuses it and stays sound.
fn check_entries(bytes: &[u8]) -> bool {
    let (mut ledger, mut effects) = (ledger(), Effects::default());
    let (mut rest, mut is_sound) = (bytes, !bytes.is_empty());
    while let Some((len, behind)) = rest.split_at_checked(2) {
        let len = usize::from(u16::from_le_bytes([len[0], len[1]]));
        let Some((entry, behind)) = behind.split_at_checked(len) else { return false };
        rest = behind;
        let (mut scratch, mut blobs) = (Scratch::default(), Vec::new());
        let Ok((read, now)) = decode(entry, &mut scratch, &mut blobs) else {
            is_sound = false;
            continue;
        };
        let mut again = Writer::default();
        read.encode(now, &mut again);
        assert_eq!(again.0, entry, "an entry changes by being read");
        ledger.handle(&read, now, &mut effects);
        ledger.table().check_invariants();
        assert!(ledger.bytes().0 <= BLOBS_MAX + bytes.len());
    }
    is_sound && rest.is_empty()
}

fn saved(ledger: &Ledger) -> Vec<u8> {
    let mut bytes = Vec::new();
    let Ok(()) = ledger.save(|piece| {
        bytes.extend_from_slice(piece);
        Ok::<(), Infallible>(())
    });
    bytes
}

fn check_snapshot(bytes: &[u8]) -> bool {
    let load = |mut rest: &[u8]| {
        Ledger::load_any(move |room: &mut [u8]| {
            let count = rest.len().min(room.len());
            room[..count].copy_from_slice(&rest[..count]);
            rest = &rest[count..];
            Ok::<usize, Infallible>(count)
        })
    };
    let Ok((_, ledger)) = load(bytes) else { return false };
    let again = saved(&ledger);
    let (_, copy) = load(&again).expect("what was saved is loaded");
    assert_eq!(saved(&copy), again);
    true
}

fn draw_entries(draw: &mut Draw<'_>) -> Vec<u8> {
    let mut all = Vec::new();
    let mut now = 0;
    for _ in 0..=draw.below(40) {
        now += draw.number() % 10_000_000_000;
        entry(draw, now, &mut all);
    }
    all
}

/// Appends an entry, about few hosts, jobs and tasks, so that most are of something that is there.
fn entry(draw: &mut Draw<'_>, now: u64, all: &mut Vec<u8>) {
    let account = AccountName { at: draw.below(3) as u32, generation: draw.below(2) as u32 };
    let host = HostName { at: draw.below(3) as u32, generation: draw.below(2) as u32 };
    let job = JobName { at: draw.below(3) as u32, generation: draw.below(2) as u32 };
    let task = TaskName { at: draw.below(8) as u32, generation: draw.below(2) as u32 };
    let blobs: Vec<Vec<u8>> = draw.list(2, |draw| draw.blob(20));
    let blobs: Vec<&[u8]> = blobs.iter().map(Vec::as_slice).collect();
    let reports = draw.list(3, |draw| Report {
        instance: InstanceName { task, number: draw.byte() % 4 },
        outcome: [Outcome::Done(draw.name()), Outcome::Failed, Outcome::Unsuccessful][draw.below(3)],
        cost_ms: draw.word(),
    });
    let tasks = [task, TaskName { at: task.at + 1, ..task }];
    let event = match draw.below(16) {
        0 => Event::Account(AccountSpec {
            key: draw.number().into(),
            weight: 1,
            share_permille: 100,
            tasks_max: 30,
            running_max: 9,
        }),
        1 | 2 => Event::Join(host_spec(draw, account)),
        3 => Event::Leave(host),
        4 => Event::Open(job_spec(draw, account)),
        5..=7 => Event::Submit {
            job,
            first: draw.below(6) as u32,
            count: draw.byte() % 5,
            later: draw.word(),
            is_promised: draw.flag(),
            deadline_ms: draw.number(),
        },
        8 | 9 => Event::Request { host, want: draw.byte() % 5 },
        10 => Event::Report { host, reports: &reports, want: draw.byte() % 5 },
        11 => Event::Compared { task, agree: draw.word() as u16 },
        12 => Event::Assimilated(&tasks),
        13 => {
            if draw.flag() {
                Event::CancelJob(job)
            } else {
                Event::Forget(job)
            }
        }
        14 => {
            if draw.flag() {
                Event::Close(job)
            } else {
                Event::Speed(host, draw.word())
            }
        }
        _ => Event::Tick,
    };
    let mut out = Writer::default();
    Entry { event, blobs: &blobs }.encode(now, &mut out);
    all.extend_from_slice(&(out.0.len() as u16).to_le_bytes());
    all.extend_from_slice(&out.0);
}

fn host_spec(draw: &mut Draw<'_>, account: AccountName) -> HostSpec {
    let shape = Shape {
        platform: Platform::LINUX_X86_64,
        level: draw.byte() % 5,
        cpus: 4,
        largest: 4,
        memory_mib: draw.word(),
        tags: draw.number(),
        redundancy: draw.byte(),
    };
    let (key, is_fresh, is_attached) = (draw.number().into(), draw.flag(), draw.flag());
    HostSpec { key, account, shape, speed_permille: draw.word(), is_fresh, is_attached }
}

fn job_spec(draw: &mut Draw<'_>, account: AccountName) -> JobSpec {
    let need = Need {
        platform: Platform::LINUX_X86_64,
        level: draw.byte() % 5,
        cpus: 1 + draw.word() as u16 % 4,
        memory_mib: draw.word(),
        tags: 0,
        is_homogeneous: draw.flag(),
    };
    JobSpec {
        key: draw.number().into(),
        account,
        urgency: draw.of(&Urgency::ALL),
        need,
        policy: Policy::default(),
        cost_ms: draw.word(),
        affinity: draw.word(),
        failures_max: draw.word(),
        is_volatile: draw.flag(),
    }
}

fn draw_snapshot(draw: &mut Draw<'_>) -> Vec<u8> {
    let (mut ledger, mut effects) = (ledger(), Effects::default());
    let entries = draw_entries(draw);
    let mut rest = &entries[..];
    while let Some((len, behind)) = rest.split_at_checked(2) {
        let (entry, behind) = behind.split_at(usize::from(u16::from_le_bytes([len[0], len[1]])));
        let (mut scratch, mut blobs) = (Scratch::default(), Vec::new());
        let (read, now) = decode(entry, &mut scratch, &mut blobs).expect("it was written here");
        ledger.handle(&read, now, &mut effects);
        rest = behind;
    }
    saved(&ledger)
}

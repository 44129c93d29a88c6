//! An entry of the ledger as bytes: what the journal keeps. Together with the time at which it was handled it is all that the ledger
//! needs to be made again.

use crate::event::{BATCH_MAX, Event, Outcome, Report};
use crate::ledger::Entry;
use crate::names::TaskName;
use crate::snapshot::Saved;
use base::codec::{Malformed, Reader, Writer};

/// Changes with every change of what the table does with an event, or of how an event is written down: an older journal's events would
/// come to something else.
pub const LOGIC_VERSION: u32 = 9;

/// Room for the items of an event that is read.
#[derive(Debug, Default)]
pub struct Scratch {
    reports: Vec<Report>,
    tasks: Vec<TaskName>,
}

impl Entry<'_> {
    /// Appends the entry, handled at `now`.
    pub fn encode(&self, now: u64, out: &mut Writer) {
        out.u64(now);
        self.event.encode(out);
        for blob in self.blobs {
            out.bytes(blob);
        }
    }
}

/// Appends a value with a fixed number of bytes.
fn put<T: Saved>(out: &mut Writer, value: &T) {
    let start = out.0.len();
    out.0.resize(start + T::BYTES, 0);
    value.put(&mut out.0[start..]);
}

/// Reads what [`put`] wrote.
fn get<T: Saved>(from: &mut Reader<'_>) -> Result<T, Malformed> {
    T::get(from.take(T::BYTES)?)
}

impl Event<'_> {
    fn encode(&self, out: &mut Writer) {
        match self {
            Event::Account(spec) => with(out, 0, spec),
            Event::Join(spec) => with(out, 1, spec),
            Event::Leave(host) => with(out, 2, host),
            Event::Drain(host, is_draining) => {
                with(out, 3, host);
                put(out, is_draining);
            }
            Event::Warm(host, affinity) => {
                with(out, 4, host);
                put(out, affinity);
            }
            Event::Open(spec) => with(out, 5, spec),
            Event::Submit { job, first, count, later, is_promised, deadline_ms } => {
                with(out, 6, job);
                put(out, first);
                put(out, count);
                put(out, later);
                put(out, is_promised);
                put(out, deadline_ms);
            }
            Event::Close(job) => with(out, 7, job),
            Event::Request { host, want } => {
                with(out, 8, host);
                put(out, want);
            }
            Event::Report { host, reports, want } => {
                with(out, 9, host);
                put(out, want);
                out.u8(reports.len() as u8);
                reports.iter().for_each(|report| encode_report(report, out));
            }
            Event::Compared { task, agree } => {
                with(out, 10, task);
                put(out, agree);
            }
            Event::Assimilated(tasks) => {
                with(out, 11, &(tasks.len() as u8));
                tasks.iter().for_each(|task| put(out, task));
            }
            Event::CancelTask(task) => with(out, 12, task),
            Event::CancelJob(job) => with(out, 13, job),
            Event::Hold(job, is_held) => {
                with(out, 14, job);
                put(out, is_held);
            }
            Event::Urgency(job, urgency) => {
                with(out, 15, job);
                put(out, urgency);
            }
            Event::Forget(job) => with(out, 16, job),
            Event::Tick => out.u8(17),
            Event::Resize(host, shape) => {
                with(out, 18, host);
                put(out, shape);
            }
            Event::Away(job, is_away) => {
                with(out, 19, job);
                put(out, is_away);
            }
            Event::Speed(host, permille) => {
                with(out, 20, host);
                put(out, permille);
            }
        }
    }
}

/// Appends the number of a kind of event, and what it is about.
fn with<T: Saved>(out: &mut Writer, kind: u8, value: &T) {
    out.u8(kind);
    put(out, value);
}

fn encode_report(report: &Report, out: &mut Writer) {
    put(out, &report.instance);
    match &report.outcome {
        Outcome::Done(digest) => {
            out.u8(1);
            out.raw(digest);
        }
        Outcome::Failed => out.u8(0),
        Outcome::Unsuccessful => out.u8(2),
    }
    put(out, &report.cost_ms);
}

/// Reads an entry, and when it was handled. `blobs`: room for what it refers to.
///
/// # Errors
/// If it is not what [`Entry::encode`] writes.
pub fn decode<'s>(
    bytes: &'s [u8],
    scratch: &'s mut Scratch,
    blobs: &'s mut Vec<&'s [u8]>,
) -> Result<(Entry<'s>, u64), Malformed> {
    let mut from = Reader::new(bytes);
    let now = from.u64()?;
    let event = decode_event(&mut from, scratch)?;
    blobs.clear();
    while !from.is_empty() {
        if blobs.len() == BATCH_MAX {
            return Err(Malformed("too many items in an entry"));
        }
        blobs.push(from.bytes()?);
    }
    Ok((Entry { event, blobs }, now))
}

fn decode_event<'s>(from: &mut Reader<'_>, scratch: &'s mut Scratch) -> Result<Event<'s>, Malformed> {
    Ok(match from.u8()? {
        0 => Event::Account(get(from)?),
        1 => Event::Join(get(from)?),
        2 => Event::Leave(get(from)?),
        3 => Event::Drain(get(from)?, get(from)?),
        4 => Event::Warm(get(from)?, get(from)?),
        5 => Event::Open(get(from)?),
        6 => Event::Submit {
            job: get(from)?,
            first: get(from)?,
            count: get(from)?,
            later: get(from)?,
            is_promised: get(from)?,
            deadline_ms: get(from)?,
        },
        7 => Event::Close(get(from)?),
        8 => Event::Request { host: get(from)?, want: get(from)? },
        9 => {
            let (host, want, count) = (get(from)?, get(from)?, bounded(from.u8()?)?);
            scratch.reports.clear();
            for _ in 0..count {
                scratch.reports.push(decode_report(from)?);
            }
            Event::Report { host, reports: &scratch.reports, want }
        }
        10 => Event::Compared { task: get(from)?, agree: get(from)? },
        11 => {
            let count = bounded(from.u8()?)?;
            scratch.tasks.clear();
            for _ in 0..count {
                scratch.tasks.push(get(from)?);
            }
            Event::Assimilated(&scratch.tasks)
        }
        12 => Event::CancelTask(get(from)?),
        13 => Event::CancelJob(get(from)?),
        14 => Event::Hold(get(from)?, get(from)?),
        15 => Event::Urgency(get(from)?, get(from)?),
        16 => Event::Forget(get(from)?),
        17 => Event::Tick,
        18 => Event::Resize(get(from)?, get(from)?),
        19 => Event::Away(get(from)?, get(from)?),
        20 => Event::Speed(get(from)?, get(from)?),
        _ => return Err(Malformed("an event of an unknown kind")),
    })
}

fn bounded(count: u8) -> Result<u8, Malformed> {
    if usize::from(count) <= BATCH_MAX { Ok(count) } else { Err(Malformed("too many items in an event")) }
}

fn decode_report(from: &mut Reader<'_>) -> Result<Report, Malformed> {
    let instance = get(from)?;
    let outcome = match from.u8()? {
        0 => Outcome::Failed,
        1 => Outcome::Done(from.array()?),
        2 => Outcome::Unsuccessful,
        _ => return Err(Malformed("an outcome of an unknown kind")),
    };
    Ok(Report { instance, outcome, cost_ms: get(from)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{AccountSpec, HostSpec, JobSpec, Policy, Urgency, Validation};
    use crate::kinds::{Need, Platform, Shape};
    use crate::names::{AccountName, HostName, InstanceName, JobName};

    const SHAPE: Shape = Shape {
        platform: Platform(0x0102),
        level: 3,
        cpus: 0x0405,
        largest: 0x0607,
        memory_mib: 0x0809_0a0b,
        tags: 0x0c0d_0e0f_1011_1213,
        redundancy: 0x14,
    };

    fn account() -> AccountSpec {
        AccountSpec { key: 0x0100, weight: 2, share_permille: 3, tasks_max: 4, running_max: 5 }
    }

    fn host() -> HostSpec {
        let account = AccountName { at: 2, generation: 3 };
        HostSpec { key: 1, account, shape: SHAPE, speed_permille: 4, is_fresh: true, is_attached: false }
    }

    fn job() -> JobSpec {
        let need = Need { platform: Platform(4), level: 5, cpus: 6, memory_mib: 7, tags: 8, is_homogeneous: true };
        let policy = Policy {
            quorum: 9,
            target: 10,
            instances_max: 11,
            errors_max: 12,
            successes_max: 13,
            validation: Validation::Command,
            is_adaptive: true,
            is_speculative: false,
            drops_late: true,
            excuses_late: false,
            delay_bound_ms: 14,
        };
        JobSpec {
            key: 1,
            account: AccountName { at: 2, generation: 3 },
            urgency: Urgency::Spare,
            need,
            policy,
            cost_ms: 15,
            affinity: 16,
            failures_max: 17,
            is_volatile: true,
        }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_bytes_of_each_kind_are_known() {
        let (host_name, job_name) = (HostName { at: 0x21, generation: 1 }, JobName { at: 0x22, generation: 1 });
        let task = TaskName { at: 0x23, generation: 1 };
        let instance = InstanceName { task, number: 7 };
        let report = |outcome| Report { instance, outcome, cost_ms: 6 };
        let reports = [report(Outcome::Done([0xdd; 32])), report(Outcome::Failed), report(Outcome::Unsuccessful)];
        let tasks = [task, task];
        let known = [
            (Event::Account(account()), "00 00010000000000000000000000000000 0200 0300 04000000 05000000"),
            (
                Event::Join(host()),
                "01 01000000000000000000000000000000 0200000003000000 0201 03 0504 0706 0b0a0908 131211100f0e0d0c 14 \
                 04000000 01 00",
            ),
            (Event::Leave(host_name), "02 2100000001000000"),
            (Event::Drain(host_name, true), "03 2100000001000000 01"),
            (Event::Warm(host_name, 8), "04 2100000001000000 08000000"),
            (
                Event::Open(job()),
                "05 01000000000000000000000000000000 0200000003000000 03 0400 05 0600 07000000 0800000000000000 01 \
                 090a0b0c0d 01 01000100 0e000000 0f000000 10000000 11000000 01",
            ),
            (
                Event::Submit { job: job_name, first: 9, count: 2, later: 300, is_promised: true, deadline_ms: 10 },
                "06 2200000001000000 09000000 02 2c010000 01 0a00000000000000",
            ),
            (Event::Close(job_name), "07 2200000001000000"),
            (Event::Request { host: host_name, want: 3 }, "08 2100000001000000 03"),
            (
                Event::Report { host: host_name, reports: &reports, want: 4 },
                "09 2100000001000000 04 03 230000000100000007 \
                 01dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd 06000000 230000000100000007 00 \
                 06000000 230000000100000007 02 06000000",
            ),
            (Event::Compared { task, agree: 5 }, "0a 2300000001000000 0500"),
            (Event::Assimilated(&tasks), "0b 02 2300000001000000 2300000001000000"),
            (Event::CancelTask(task), "0c 2300000001000000"),
            (Event::CancelJob(job_name), "0d 2200000001000000"),
            (Event::Hold(job_name, true), "0e 2200000001000000 01"),
            (Event::Urgency(job_name, Urgency::Normal), "0f 2200000001000000 02"),
            (Event::Forget(job_name), "10 2200000001000000"),
            (Event::Tick, "11"),
            (Event::Resize(host_name, SHAPE), "12 2100000001000000 0201 03 0504 0706 0b0a0908 131211100f0e0d0c 14"),
            (Event::Away(job_name, true), "13 2200000001000000 01"),
            (Event::Speed(host_name, 0x0304), "14 2100000001000000 04030000"),
        ];
        for (event, want) in known {
            let mut out = Writer::default();
            Entry { event, blobs: &[b"ab"] }.encode(0x99, &mut out);
            let bytes = hex(&out.0);
            let body = bytes.strip_prefix("9900000000000000").and_then(|rest| rest.strip_suffix("020000006162"));
            assert_eq!(body, Some(&*want.replace(' ', "")), "{event:?}: raise LOGIC_VERSION if this is to be so");
            let (mut scratch, mut blobs) = (Scratch::default(), Vec::new());
            let (again, now) = decode(&out.0, &mut scratch, &mut blobs).expect("what was written");
            assert_eq!((again.event, again.blobs, now), (event, &[&b"ab"[..]][..], 0x99));
        }
    }
}

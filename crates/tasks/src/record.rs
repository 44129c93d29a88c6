//! An entry of the ledger as bytes: what the journal keeps. Together with the time at which it was handled it is all that the ledger
//! needs to be made again.

use crate::event::{AccountSpec, BATCH_MAX, Event, HostSpec, JobSpec, Outcome, Policy, Report, Urgency, Validation};
use crate::kinds::{Need, Platform, Shape};
use crate::ledger::Entry;
use crate::names::{AccountName, HostName, InstanceName, JobName, TaskName};
use base::codec::{Malformed, Reader, Writer};

/// Changes with every change of what the table does with an event: an older journal's events would come to something else.
pub const LOGIC_VERSION: u32 = 2;

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

impl Event<'_> {
    fn encode(&self, out: &mut Writer) {
        match self {
            Event::Account(spec) => encode_account(spec, out),
            Event::Join(spec) => {
                out.u8(1);
                encode_host(spec, out);
            }
            Event::Leave(host) => named(out, 2, host.to_u64()),
            Event::Drain(host, is_draining) => {
                named(out, 3, host.to_u64());
                out.bool(*is_draining);
            }
            Event::Warm(host, affinity) => {
                named(out, 4, host.to_u64());
                out.u32(*affinity);
            }
            Event::Open(spec) => {
                out.u8(5);
                encode_job(spec, out);
            }
            Event::Submit { job, first, count, deadline_ms } => {
                named(out, 6, job.to_u64());
                out.u32(*first);
                out.u8(*count);
                out.u64(*deadline_ms);
            }
            Event::Close(job) => named(out, 7, job.to_u64()),
            Event::Request { host, want } => {
                named(out, 8, host.to_u64());
                out.u8(*want);
            }
            Event::Report { host, reports, want } => {
                named(out, 9, host.to_u64());
                out.u8(*want);
                out.u8(reports.len() as u8);
                reports.iter().for_each(|report| encode_report(report, out));
            }
            Event::Compared { task, agree } => {
                named(out, 10, task.to_u64());
                out.u16(*agree);
            }
            Event::Assimilated(tasks) => {
                out.u8(11);
                out.u8(tasks.len() as u8);
                tasks.iter().for_each(|task| out.u64(task.to_u64()));
            }
            Event::CancelTask(task) => named(out, 12, task.to_u64()),
            Event::CancelJob(job) => named(out, 13, job.to_u64()),
            Event::Hold(job, is_held) => {
                named(out, 14, job.to_u64());
                out.bool(*is_held);
            }
            Event::Away(job, is_away) => {
                named(out, 19, job.to_u64());
                out.bool(*is_away);
            }
            Event::Urgency(job, urgency) => {
                named(out, 15, job.to_u64());
                out.u8(*urgency as u8);
            }
            Event::Forget(job) => named(out, 16, job.to_u64()),
            Event::Tick => out.u8(17),
            Event::Resize(host, shape) => {
                named(out, 18, host.to_u64());
                encode_shape(shape, out);
            }
        }
    }
}

fn named(out: &mut Writer, kind: u8, name: u64) {
    out.u8(kind);
    out.u64(name);
}

fn encode_account(spec: &AccountSpec, out: &mut Writer) {
    out.u8(0);
    out.u128(spec.key);
    out.u16(spec.weight);
    out.u16(spec.share_permille);
    out.u32(spec.tasks_max);
    out.u32(spec.running_max);
}

fn encode_host(spec: &HostSpec, out: &mut Writer) {
    out.u128(spec.key);
    out.u64(spec.account.to_u64());
    encode_shape(&spec.shape, out);
    out.u32(spec.speed_permille);
    out.bool(spec.is_fresh);
    out.bool(spec.is_attached);
}

fn encode_shape(shape: &Shape, out: &mut Writer) {
    out.u16(shape.platform.0);
    out.u8(shape.level);
    out.u16(shape.cpus);
    out.u16(shape.largest);
    out.u32(shape.memory_mib);
    out.u64(shape.tags);
    out.u8(shape.redundancy);
}

fn decode_shape(from: &mut Reader<'_>) -> Result<Shape, Malformed> {
    Ok(Shape {
        platform: Platform(from.u16()?),
        level: from.u8()?,
        cpus: from.u16()?,
        largest: from.u16()?,
        memory_mib: from.u32()?,
        tags: from.u64()?,
        redundancy: from.u8()?,
    })
}

fn encode_job(spec: &JobSpec, out: &mut Writer) {
    out.u128(spec.key);
    out.u64(spec.account.to_u64());
    out.u8(spec.urgency as u8);
    out.u16(spec.need.platform.0);
    out.u8(spec.need.level);
    out.u16(spec.need.cpus);
    out.u32(spec.need.memory_mib);
    out.u64(spec.need.tags);
    out.bool(spec.need.is_homogeneous);
    let policy = &spec.policy;
    for number in [policy.quorum, policy.target, policy.instances_max, policy.errors_max, policy.successes_max] {
        out.u8(number);
    }
    out.bool(policy.validation == Validation::Command);
    for flag in [policy.is_adaptive, policy.is_speculative, policy.drops_late, policy.excuses_late, spec.is_volatile] {
        out.bool(flag);
    }
    for number in [policy.delay_bound_ms, spec.cost_ms, spec.affinity, spec.failures_max] {
        out.u32(number);
    }
}

fn encode_report(report: &Report, out: &mut Writer) {
    out.u64(report.instance.task.to_u64());
    out.u8(report.instance.number);
    match &report.outcome {
        Outcome::Done(digest) => {
            out.u8(1);
            out.raw(digest);
        }
        Outcome::Failed => out.u8(0),
        Outcome::Unsuccessful => out.u8(2),
    }
    out.u32(report.cost_ms);
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
    let host = |from: &mut Reader<'_>| from.u64().map(HostName::from_u64);
    let job = |from: &mut Reader<'_>| from.u64().map(JobName::from_u64);
    let task = |from: &mut Reader<'_>| from.u64().map(TaskName::from_u64);
    Ok(match from.u8()? {
        0 => Event::Account(AccountSpec {
            key: from.u128()?,
            weight: from.u16()?,
            share_permille: from.u16()?,
            tasks_max: from.u32()?,
            running_max: from.u32()?,
        }),
        1 => Event::Join(decode_host(from)?),
        2 => Event::Leave(host(from)?),
        3 => Event::Drain(host(from)?, from.bool()?),
        4 => Event::Warm(host(from)?, from.u32()?),
        5 => Event::Open(decode_job(from)?),
        6 => Event::Submit { job: job(from)?, first: from.u32()?, count: from.u8()?, deadline_ms: from.u64()? },
        7 => Event::Close(job(from)?),
        8 => Event::Request { host: host(from)?, want: from.u8()? },
        9 => {
            let (host, want, count) = (host(from)?, from.u8()?, bounded(from.u8()?)?);
            scratch.reports.clear();
            for _ in 0..count {
                scratch.reports.push(decode_report(from)?);
            }
            Event::Report { host, reports: &scratch.reports, want }
        }
        10 => Event::Compared { task: task(from)?, agree: from.u16()? },
        11 => {
            let count = bounded(from.u8()?)?;
            scratch.tasks.clear();
            for _ in 0..count {
                scratch.tasks.push(task(from)?);
            }
            Event::Assimilated(&scratch.tasks)
        }
        12 => Event::CancelTask(task(from)?),
        13 => Event::CancelJob(job(from)?),
        14 => Event::Hold(job(from)?, from.bool()?),
        15 => Event::Urgency(job(from)?, urgency(from.u8()?)?),
        16 => Event::Forget(job(from)?),
        17 => Event::Tick,
        18 => Event::Resize(host(from)?, decode_shape(from)?),
        19 => Event::Away(job(from)?, from.bool()?),
        _ => return Err(Malformed("an event of an unknown kind")),
    })
}

fn bounded(count: u8) -> Result<u8, Malformed> {
    if usize::from(count) <= BATCH_MAX { Ok(count) } else { Err(Malformed("too many items in an event")) }
}

fn urgency(number: u8) -> Result<Urgency, Malformed> {
    Urgency::ALL.get(usize::from(number)).copied().ok_or(Malformed("no urgency"))
}

fn decode_host(from: &mut Reader<'_>) -> Result<HostSpec, Malformed> {
    Ok(HostSpec {
        key: from.u128()?,
        account: AccountName::from_u64(from.u64()?),
        shape: decode_shape(from)?,
        speed_permille: from.u32()?,
        is_fresh: from.bool()?,
        is_attached: from.bool()?,
    })
}

fn decode_job(from: &mut Reader<'_>) -> Result<JobSpec, Malformed> {
    let (key, account, urgency) = (from.u128()?, AccountName::from_u64(from.u64()?), urgency(from.u8()?)?);
    let need = Need {
        platform: Platform(from.u16()?),
        level: from.u8()?,
        cpus: from.u16()?,
        memory_mib: from.u32()?,
        tags: from.u64()?,
        is_homogeneous: from.bool()?,
    };
    let mut policy = Policy {
        quorum: from.u8()?,
        target: from.u8()?,
        instances_max: from.u8()?,
        errors_max: from.u8()?,
        successes_max: from.u8()?,
        validation: if from.bool()? { Validation::Command } else { Validation::Bitwise },
        is_adaptive: from.bool()?,
        is_speculative: from.bool()?,
        drops_late: from.bool()?,
        excuses_late: from.bool()?,
        delay_bound_ms: 0,
    };
    let is_volatile = from.bool()?;
    policy.delay_bound_ms = from.u32()?;
    let (cost_ms, affinity, failures_max) = (from.u32()?, from.u32()?, from.u32()?);
    Ok(JobSpec { key, account, urgency, need, policy, cost_ms, affinity, failures_max, is_volatile })
}

fn decode_report(from: &mut Reader<'_>) -> Result<Report, Malformed> {
    let instance = InstanceName { task: TaskName::from_u64(from.u64()?), number: from.u8()? };
    let outcome = match from.u8()? {
        0 => Outcome::Failed,
        1 => Outcome::Done(from.array()?),
        2 => Outcome::Unsuccessful,
        _ => return Err(Malformed("an outcome of an unknown kind")),
    };
    Ok(Report { instance, outcome, cost_ms: from.u32()? })
}

//! What was measured of each event of a run, as memory that is all there before it begins, and as a file.

use super::clock::{self, Clock};
use crate::error::{Context, Error, Result};
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;
use tasks::{Effects, Event, Table, Work};

/// What is done with the table: each has figures of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Op {
    /// A job is opened.
    Open,
    /// A host joins: first while the table of hosts fills, then in the place of one that left.
    Join,
    /// A host that is known says that it is attached from now on.
    Attach,
    /// One task is submitted, without a deadline.
    Submit1,
    /// One task with a deadline.
    SubmitDue1,
    /// Sixteen.
    Submit16,
    /// Sixteen with a deadline.
    SubmitDue16,
    /// A host asks for one.
    Request1,
    /// A host asks for sixteen.
    Request16,
    /// A host reports one.
    Report1,
    /// A host reports one and asks for one in the same message.
    ReportRequest1,
    /// A host reports sixteen.
    Report16,
    /// A host says that it could not do one.
    Fail1,
    /// One result is where it goes.
    Assimilated1,
    /// Sixteen are.
    Assimilated16,
    /// Nothing is due.
    TickIdle,
    /// Many deadlines are due.
    TickDue,
    /// Much is to be taken apart.
    TickClean,
    /// A job waits.
    Hold,
    /// It goes on.
    Release,
    /// A task is no longer wanted.
    CancelTask,
    /// A job is no longer wanted.
    CancelJob,
    /// A job is forgotten.
    Forget,
    /// A host leaves.
    Leave,
    /// Somebody asks what has become of a task.
    Query,
    /// A task is submitted for which an attached host waits: it is sent at once.
    SubmitPushed1,
    /// An attached host reports one, and there is none for it: it waits.
    ReportPushed1,
}

impl Op {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 27] = [
        Self::Open,
        Self::Join,
        Self::Attach,
        Self::Submit1,
        Self::SubmitDue1,
        Self::Submit16,
        Self::SubmitDue16,
        Self::Request1,
        Self::Request16,
        Self::Report1,
        Self::ReportRequest1,
        Self::Report16,
        Self::Fail1,
        Self::Assimilated1,
        Self::Assimilated16,
        Self::TickIdle,
        Self::TickDue,
        Self::TickClean,
        Self::Hold,
        Self::Release,
        Self::CancelTask,
        Self::CancelJob,
        Self::Forget,
        Self::Leave,
        Self::Query,
        Self::SubmitPushed1,
        Self::ReportPushed1,
    ];

    /// As figures are called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Join => "join",
            Self::Attach => "attach",
            Self::Submit1 => "submit_1",
            Self::SubmitDue1 => "submit_due_1",
            Self::Submit16 => "submit_16",
            Self::SubmitDue16 => "submit_due_16",
            Self::Request1 => "request_1",
            Self::Request16 => "request_16",
            Self::Report1 => "report_1",
            Self::ReportRequest1 => "report_request_1",
            Self::Report16 => "report_16",
            Self::Fail1 => "fail_1",
            Self::Assimilated1 => "assimilated_1",
            Self::Assimilated16 => "assimilated_16",
            Self::TickIdle => "tick_idle",
            Self::TickDue => "tick_due",
            Self::TickClean => "tick_clean",
            Self::Hold => "hold",
            Self::Release => "release",
            Self::CancelTask => "cancel_task",
            Self::CancelJob => "cancel_job",
            Self::Forget => "forget",
            Self::Leave => "leave",
            Self::Query => "query",
            Self::SubmitPushed1 => "submit_pushed_1",
            Self::ReportPushed1 => "report_pushed_1",
        }
    }
}

/// What a run measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Ticks of the clock.
    Time,
    /// Steps, and cache lines.
    Work,
}

/// Numbers of a whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Facts {
    /// The clock's; see [`Clock`].
    pub ns_per_tick: f64,
    /// The clock's own cost, in ticks.
    pub overhead: f64,
    /// Events from here ..
    pub mix_from: f64,
    /// .. to here, exclusive, are the mix.
    pub mix_to: f64,
    /// Page faults while events were timed.
    pub faults: f64,
    /// What the table says that it holds.
    pub bytes: f64,
    /// By how much the process grew when the table was made, in bytes.
    pub resident: f64,
    /// And until the end of the run.
    pub resident_at_end: f64,
    /// Events that were refused.
    pub refused: f64,
    /// A sum over all effects: two runs that differ in any have another one.
    pub digest: f64,
}

impl Facts {
    fn fields(&mut self) -> [&mut f64; 10] {
        [
            &mut self.ns_per_tick,
            &mut self.overhead,
            &mut self.mix_from,
            &mut self.mix_to,
            &mut self.faults,
            &mut self.bytes,
            &mut self.resident,
            &mut self.resident_at_end,
            &mut self.refused,
            &mut self.digest,
        ]
    }
}

/// What was measured.
#[derive(Debug)]
pub struct Record {
    /// Ticks, or steps and lines ([`pack`]), of each event.
    pub values: Vec<u32>,
    /// Which kind of event it was.
    pub ops: Vec<u8>,
    /// Of the whole run.
    pub facts: Facts,
    what: What,
    count: usize,
}

/// Steps and lines in one number.
fn pack(work: Work) -> u32 {
    work.steps.min(0xffff) << 16 | work.lines.min(0xffff)
}

/// The steps and lines of a number.
pub fn unpack(value: u32) -> (u32, u32) {
    (value >> 16, value & 0xffff)
}

impl Record {
    /// Room for so many events, all of it touched.
    pub fn new(what: What, room: usize) -> Self {
        let clock = Clock::measured();
        let facts = Facts { ns_per_tick: clock.ns_per_tick, overhead: clock.overhead.into(), ..Facts::default() };
        // Ones, because zeros would be given by the system only when they are written to.
        Self { values: vec![1; room], ops: vec![1; room], facts, what, count: 0 }
    }

    /// Events so far.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Has the table do an event, and keeps what it took.
    #[inline]
    pub fn handle(&mut self, op: Op, table: &mut Table, event: &Event<'_>, now: u64, effects: &mut Effects) {
        self.measure(op, table, |table| table.handle(event, now, effects));
    }

    /// Does something with the table, and keeps what it took.
    #[inline]
    pub fn measure(&mut self, op: Op, table: &mut Table, act: impl FnOnce(&mut Table)) {
        let value = match self.what {
            What::Time => {
                let begun = clock::begin();
                act(table);
                clock::ticks(begun)
            }
            What::Work => {
                table.work();
                act(table);
                pack(table.work())
            }
        };
        assert!(self.count < self.values.len(), "there is room for all events of a run");
        self.values[self.count] = value;
        self.ops[self.count] = op as u8;
        self.count += 1;
    }

    /// Writes it to a file.
    pub fn write(&mut self, file: &Path) -> Result<()> {
        self.values.truncate(self.count);
        self.ops.truncate(self.count);
        let mut out = BufWriter::new(File::create(file).at("create", file)?);
        let mut put = |bytes: &[u8]| out.write_all(bytes).at("write", file);
        put(&(self.count as u64).to_le_bytes())?;
        self.facts.fields().iter().try_for_each(|field| put(&field.to_le_bytes()))?;
        put(&self.ops)?;
        self.values.iter().try_for_each(|value| put(&value.to_le_bytes()))?;
        out.flush().at("write", file)
    }

    /// Reads it from a file.
    pub fn read(file: &Path) -> Result<Self> {
        let mut from = BufReader::new(File::open(file).at("open", file)?);
        let mut eight = [0; 8];
        let mut next = |from: &mut BufReader<File>| from.read_exact(&mut eight).at("read", file).map(|()| eight);
        let count = u64::from_le_bytes(next(&mut from)?) as usize;
        let mut facts = Facts::default();
        for field in facts.fields() {
            *field = f64::from_le_bytes(next(&mut from)?);
        }
        let mut ops = vec![0; count];
        from.read_exact(&mut ops).at("read", file)?;
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).at("read", file)?;
        let values: Vec<u32> =
            bytes.chunks_exact(4).map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect();
        if values.len() != count || ops.iter().any(|op| usize::from(*op) >= Op::ALL.len()) {
            return Err(Error::Product(format!("{} is not a record of a run", file.display())));
        }
        Ok(Self { values, ops, facts, what: What::Time, count })
    }

    /// Ticks as nanoseconds, without the clock's own.
    pub fn ns(&self, ticks: u32) -> f64 {
        (f64::from(ticks) - self.facts.overhead).max(0.0) * self.facts.ns_per_tick
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_in_order() {
        assert!(Op::ALL.iter().enumerate().all(|(at, op)| *op as usize == at));
        let names: std::collections::BTreeSet<&str> = Op::ALL.iter().map(|op| op.name()).collect();
        assert_eq!(names.len(), Op::ALL.len());
    }

    #[test]
    fn a_file_holds_all() {
        let file = std::env::temp_dir().join(format!("gleaner-record-{}", std::process::id()));
        let mut record = Record::new(What::Time, 10);
        (record.count, record.facts.digest) = (2, 7.0);
        (record.values[1], record.ops[1]) = (99, Op::Hold as u8);
        record.write(&file).unwrap();
        let read = Record::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!((read.values, read.ops, read.facts), (record.values, record.ops, record.facts));
    }
}

//! Batch jobs as they are handed to the client daemon: commands that run some time, in an order that the hub decides.

use crate::codec::{Encode, Malformed, Reader, Writer};
use crate::command::Command;
use crate::digest::Digest;
use crate::id::BatchId;

/// Most tasks of one batch job.
pub const TASKS_MAX: u32 = 1 << 20;
/// Longest task, encoded, in bytes.
pub const TASK_BYTES_MAX: usize = 64 << 10;
/// Most tasks that one task comes after.
pub const AFTER_MAX: usize = 10_000;
/// The same over all tasks of a job: each costs its client's daemon four bytes.
pub const AFTER_OF_JOB_MAX: u32 = 4 << 20;

impl BatchId {
    /// Of a job that its owner has given this key.
    pub fn of_key(key: &[u8]) -> Self {
        Self(Digest::of(&[b"gleaner batch key\0", key].concat()).first_u128_be())
    }
}

/// How urgent a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Priority {
    /// Somebody waits for each task.
    Urgent,
    /// As jobs are.
    #[default]
    Normal,
    /// When nothing else is to be done.
    Spare,
}

impl Priority {
    /// All of them, the most urgent first.
    pub const ALL: [Self; 3] = [Self::Urgent, Self::Normal, Self::Spare];

    /// Its number in messages and files: 1 to 3.
    pub fn number(self) -> u8 {
        match self {
            Self::Urgent => 1,
            Self::Normal => 2,
            Self::Spare => 3,
        }
    }

    /// Of this number.
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|priority| priority.number() == number)
    }

    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Urgent => "urgent",
            Self::Normal => "normal",
            Self::Spare => "spare",
        }
    }

    /// Of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|priority| priority.name() == name)
    }
}

/// A batch job, but for its tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Its name for client and hub.
    pub id: BatchId,
    /// Its name for people.
    pub name: String,
    /// What its tasks see of their caller. Its `argv` does not count.
    pub surroundings: Command,
    /// Paths that the write policy shall admit.
    pub allow_write: Vec<Vec<u8>>,
    /// How urgent it is.
    pub priority: Priority,
    /// Its tasks wait until it is released.
    pub is_held: bool,
    /// Results that must agree; at least 1.
    pub quorum: u32,
    /// By when its tasks are to be done, from its submission, in milliseconds.
    pub deadline_ms: Option<u64>,
    /// How long one run of a task takes, about, in milliseconds; `None`: nobody knows.
    pub takes_ms: Option<u64>,
    /// How long one run of a task may take, in milliseconds.
    pub time_limit_ms: Option<u64>,
    /// How often a task that ends with another status than 0 is run again; `None`: that is its end.
    pub retries: Option<u32>,
    /// With more failed tasks than that it is cancelled.
    pub failures_max: Option<u32>,
    /// A command line that is run at the client when a task has ended.
    pub assimilate: Option<Vec<u8>>,
    /// A command line that says whether two results of a task agree, or whether one is good; `None`: equal ones do.
    pub validate: Option<Vec<u8>>,
    /// It begins when all of these have ended well.
    pub after: Vec<BatchId>,
}

/// One task of a batch job.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct BatchTask {
    /// Its name for people; empty: none.
    pub name: String,
    /// Program and arguments; at least one.
    pub argv: Vec<Vec<u8>>,
    /// Earlier tasks of the job, by their numbers: it begins when all of them have ended well.
    pub after: Vec<u32>,
}

fn text(from: &mut Reader<'_>) -> Result<String, Malformed> {
    String::from_utf8(from.bytes()?.to_vec()).map_err(|_| Malformed("text that is not UTF-8"))
}

impl Encode for Batch {
    fn encode(&self, out: &mut Writer) {
        out.u128(self.id.0);
        out.bytes(self.name.as_bytes());
        self.surroundings.encode_kept(out);
        out.list(&self.allow_write, |out, path| out.bytes(path));
        out.u8(self.priority.number());
        out.bool(self.is_held);
        out.u32(self.quorum);
        out.option(self.deadline_ms.as_ref(), |out, ms| out.u64(*ms));
        out.option(self.takes_ms.as_ref(), |out, ms| out.u64(*ms));
        out.option(self.time_limit_ms.as_ref(), |out, ms| out.u64(*ms));
        out.option(self.retries.as_ref(), |out, count| out.u32(*count));
        out.option(self.failures_max.as_ref(), |out, count| out.u32(*count));
        out.option(self.assimilate.as_ref(), |out, line| out.bytes(line));
        out.option(self.validate.as_ref(), |out, line| out.bytes(line));
        out.list(&self.after, |out, id| out.u128(id.0));
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            id: BatchId(from.u128()?),
            name: text(from)?,
            surroundings: Command::decode_kept(from)?,
            allow_write: from.list(|from| Ok(from.bytes()?.to_vec()))?,
            priority: Priority::of_number(from.u8()?).ok_or(Malformed("an unknown priority"))?,
            is_held: from.bool()?,
            quorum: from.u32()?,
            deadline_ms: from.option(|from| from.u64())?,
            takes_ms: from.option(|from| from.u64())?,
            time_limit_ms: from.option(|from| from.u64())?,
            retries: from.option(|from| from.u32())?,
            failures_max: from.option(|from| from.u32())?,
            assimilate: from.option(|from| Ok(from.bytes()?.to_vec()))?,
            validate: from.option(|from| Ok(from.bytes()?.to_vec()))?,
            after: from.list(|from| Ok(BatchId(from.u128()?)))?,
        })
    }
}

impl Encode for BatchTask {
    fn encode(&self, out: &mut Writer) {
        out.bytes(self.name.as_bytes());
        out.list(&self.argv, |out, word| out.bytes(word));
        out.list(&self.after, |out, index| out.u32(*index));
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            name: text(from)?,
            argv: from.list(|from| Ok(from.bytes()?.to_vec()))?,
            after: from.list(|from| from.u32())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Needs;

    #[test]
    fn jobs_and_tasks_round_trip() {
        let batch = Batch {
            id: BatchId::of_key(b"nightly"),
            name: "nightly".into(),
            surroundings: Command {
                argv: vec![b"-".to_vec()],
                cwd: b"/x".to_vec(),
                needs: Needs { cpus: 2, ..Needs::default() },
                ..Command::default()
            },
            allow_write: vec![b"/y".to_vec()],
            priority: Priority::Spare,
            is_held: true,
            quorum: 2,
            deadline_ms: Some(7),
            takes_ms: Some(6),
            time_limit_ms: None,
            retries: Some(3),
            failures_max: Some(0),
            assimilate: Some(b"true".to_vec()),
            validate: Some(b"cmp".to_vec()),
            after: vec![BatchId(5), BatchId(6)],
        };
        assert_eq!(Batch::from_bytes(&batch.to_bytes()), Ok(batch));
        let task = BatchTask { name: "a".into(), argv: vec![b"b".to_vec(), vec![0xff]], after: vec![258] };
        // These bytes are in files.
        let want = b"\x01\0\0\0a\x02\0\0\0\x01\0\0\0b\x01\0\0\0\xff\x01\0\0\0\x02\x01\0\0";
        assert_eq!(task.to_bytes(), *want);
        assert_eq!(BatchTask::from_bytes(&task.to_bytes()), Ok(task));
    }

    #[test]
    fn ids_are_read_as_they_are_written() {
        let id = BatchId(0xab << 100);
        assert_eq!(BatchId::from_hex(&id.to_hex()), Some(id));
        assert_eq!((BatchId::from_hex("ab"), BatchId::from_hex(&"+".repeat(32))), (None, None));
        assert_ne!(BatchId::of_key(b"a"), BatchId::of_key(b"b"));
    }

    #[test]
    fn priorities_have_names_and_numbers() {
        for priority in Priority::ALL {
            assert_eq!(Priority::of_name(priority.name()), Some(priority));
            assert_eq!(Priority::of_number(priority.number()), Some(priority));
        }
        assert_eq!((Priority::of_name("Urgent"), Priority::of_number(0)), (None, None));
    }
}

//! The names of what is in the table: an index and a generation, so that a name that has had its time is known as such.

use crate::snapshot::saved;
use std::fmt;

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident),*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name {
            /// Index of its record.
            pub at: u32,
            /// Which of the record's users it is.
            pub generation: u32,
        }

        impl $name {
            /// As one number: what people see, and what goes over the wire.
            pub fn to_u64(self) -> u64 {
                u64::from(self.generation) << 32 | u64::from(self.at)
            }

            /// The name with this number.
            pub fn from_u64(number: u64) -> Self {
                Self { at: number as u32, generation: (number >> 32) as u32 }
            }
        }

        saved!($name { at: u32, generation: u32 });

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}.{}", self.at, self.generation)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}.{}", self.at, self.generation)
            }
        }
    )* };
}

names! {
    /// A task (BOINC: a workunit).
    TaskName,
    /// A job: tasks of one account, with one requirement and one policy.
    JobName,
    /// A host that runs instances.
    HostName,
    /// An account: who owns jobs, or hosts, or both.
    AccountName
}

/// One instance of a task: the copy with this number, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InstanceName {
    /// Its task.
    pub task: TaskName,
    /// Which copy.
    pub number: u8,
}

saved!(InstanceName { task: TaskName, number: u8 });

impl fmt::Display for InstanceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.task, self.number)
    }
}

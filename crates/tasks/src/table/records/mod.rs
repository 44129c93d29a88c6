//! The records of the table. What is used together lies together, in one cache line where it can.

mod host;
mod owner;
mod queue;
mod task;

pub(crate) use host::{Host, HostMore, NO_PARK, Parked, Presence};
pub(crate) use owner::{AWAY, Account, HELD, Job, JobStage, NO_SERVER, Reaped};
pub(crate) use queue::{Group, Lane, OfJob, Queued, Ring, Standing, Turn};
pub(crate) use task::{Fate, Instance, NO_INSTANCE, RESULT_BYTES, Ready, Siblings, Stage, Tags, Task};

use crate::shapes::slab::Named;

macro_rules! named {
    ($($record:ty),*) => { $(
        impl Named for $record {
            fn generation(&self) -> u32 {
                self.generation
            }
        }
    )* };
}

named!(Account, Host, Job, Task);

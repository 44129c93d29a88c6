//! Tasks and their instances.

use crate::event::Failure;
use crate::names::TaskName;
use crate::shapes::NIL;
use crate::shapes::list::{Linked, Links};
use crate::shapes::slab::Item;
use crate::shapes::wheel::{Due, Timed};
use crate::snapshot::{saved, saved_choice};

/// Where a task is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    /// No task: the record is free.
    #[default]
    Free,
    /// Results are wanted.
    Open,
    /// The user's command looks at the results.
    Comparing,
    /// Its result, or that there is none, is on its way to where it goes.
    Assimilating,
    /// Its instances are taken apart.
    Cleaning,
}

saved_choice!(Stage { Free = 0, Open = 1, Comparing = 2, Assimilating = 3, Cleaning = 4 });

/// A task: the line that dispatch and reports use.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Task {
    pub generation: u32,
    pub job: u32,
    pub group: u32,
    /// In its group's list of those that are ready; or in the list of those to be cleaned.
    pub ready: Links,
    /// In its job's list.
    pub siblings: Links,
    /// The newest instance; each knows the one before.
    pub newest: u32,
    /// Number within the job.
    pub index: u32,
    pub stage: Stage,
    /// Instances still to be sent.
    pub unsent: u8,
    /// Instances that are out.
    pub out: u8,
    pub successes: u8,
    pub errors: u8,
    /// Instances made.
    pub made: u8,
    /// Results that must agree, and instances that are to have one: of the policy, or one where a trusted host has it.
    pub quorum: u8,
    pub target: u8,
    /// Redundancy class of its instances; 0: any.
    pub redundancy: u8,
    /// The instance whose result it is, once that is decided; 255: none.
    pub canonical: u8,
    /// Whether it is in a list with `ready`.
    pub is_listed: bool,
    pub is_speculated: bool,
    /// Instances of it that were set aside for it and are not made yet.
    pub set_aside: u8,
    pub failure: Option<Failure>,
    /// Results that the user's command has looked at, and those that it found to agree: bit n is instance n.
    pub compared: u16,
    pub agreed: u16,
    /// How often it was first in vain.
    pub passes: u8,
}

saved!(Task {
    generation: u32,
    job: u32,
    group: u32,
    ready: Links,
    siblings: Links,
    newest: u32,
    index: u32,
    stage: Stage,
    unsent: u8,
    out: u8,
    successes: u8,
    errors: u8,
    made: u8,
    quorum: u8,
    target: u8,
    redundancy: u8,
    canonical: u8,
    is_listed: bool,
    is_speculated: bool,
    set_aside: u8,
    failure: Option<Failure>,
    compared: u16,
    agreed: u16,
    passes: u8,
});

/// What is compared of a task's instances without looking at them.
#[derive(Clone, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Tags {
    /// Of the accounts that have had one, by number of instance; 0: nothing came of it, and the account may have another.
    pub accounts: [u16; 16],
    /// Of the results, by number of instance; 0: none.
    pub results: [u16; 16],
}

saved!(Tags { accounts: [u16; 16], results: [u16; 16] });

impl Default for Task {
    fn default() -> Self {
        Self {
            generation: 0,
            job: NIL,
            group: NIL,
            ready: Links::default(),
            siblings: Links::default(),
            newest: NIL,
            index: 0,
            stage: Stage::Free,
            unsent: 0,
            out: 0,
            successes: 0,
            errors: 0,
            made: 0,
            quorum: 0,
            target: 0,
            redundancy: 0,
            canonical: NO_INSTANCE,
            is_listed: false,
            is_speculated: false,
            set_aside: 0,
            failure: None,
            compared: 0,
            agreed: 0,
            passes: 0,
        }
    }
}

/// No instance.
pub(crate) const NO_INSTANCE: u8 = 255;

impl Task {
    pub fn name(&self, at: u32) -> TaskName {
        TaskName { at, generation: self.generation }
    }
}

impl Item for Task {
    fn next_free(&mut self) -> &mut u32 {
        &mut self.ready.next
    }
}

/// Ready tasks of a group, or tasks to be cleaned.
pub(crate) struct Ready;
/// Tasks of a job.
pub(crate) struct Siblings;

impl Linked<Ready> for Task {
    fn links(&mut self) -> &mut Links {
        &mut self.ready
    }
}

impl Linked<Siblings> for Task {
    fn links(&mut self) -> &mut Links {
        &mut self.siblings
    }
}

/// What has become of an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is at its host.
    #[default]
    Out,
    /// A result came.
    Done,
    /// It failed, was lost or refused.
    Failed,
    /// Nothing came in time. A late result still counts.
    Late,
}

saved_choice!(Fate { Out = 0, Done = 1, Failed = 2, Late = 3 });

/// An instance that has been sent.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Instance {
    pub task: u32,
    /// The instance before it, of the same task.
    pub before: u32,
    pub host: u32,
    /// Low bits of the host's generation: whether it is still that host.
    pub host_generation: u16,
    pub fate: Fate,
    pub number: u8,
    pub account: u32,
    pub timer: Links,
    pub bucket: u32,
    pub due_ms: u32,
    /// Its place among those that its host has.
    pub place: u8,
    /// Its first timer is for one more instance, not for giving it up.
    pub is_watched: bool,
    /// The result: the first 22 bytes of its digest.
    pub result: [u8; 22],
}

saved!(Instance {
    task: u32,
    before: u32,
    host: u32,
    host_generation: u16,
    fate: Fate,
    number: u8,
    account: u32,
    timer: Links,
    bucket: u32,
    due_ms: u32,
    place: u8,
    is_watched: bool,
    result: [u8; 22],
});

/// Bytes of a digest that are compared: 176 bits.
pub(crate) const RESULT_BYTES: usize = 22;

impl Default for Instance {
    fn default() -> Self {
        Self {
            task: NIL,
            before: NIL,
            host: NIL,
            host_generation: 0,
            fate: Fate::Out,
            number: 0,
            account: NIL,
            timer: Links::default(),
            bucket: NIL,
            due_ms: 0,
            place: 0,
            is_watched: false,
            result: [0; RESULT_BYTES],
        }
    }
}

impl Item for Instance {
    fn next_free(&mut self) -> &mut u32 {
        &mut self.before
    }
}

impl Linked<Due> for Instance {
    fn links(&mut self) -> &mut Links {
        &mut self.timer
    }
}

impl Timed for Instance {
    fn bucket(&mut self) -> &mut u32 {
        &mut self.bucket
    }

    fn due_ms(&self) -> u32 {
        self.due_ms
    }
}

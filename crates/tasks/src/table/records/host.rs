//! Hosts.

use crate::names::HostName;
use crate::shapes::NIL;
use crate::shapes::list::{Linked, Links};
use crate::shapes::slab::Item;
use crate::shapes::wheel::{Due, Timed};
use crate::snapshot::{saved, saved_choice};

/// Whether a host is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Presence {
    /// No host: the record is free.
    #[default]
    Free,
    /// It works.
    Here,
    /// It gets nothing more.
    Draining,
    /// It is gone; what it had is being taken back.
    Gone,
}

saved_choice!(Presence { Free = 0, Here = 1, Draining = 2, Gone = 3 });

/// A host: the line that dispatch and reports use.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Host {
    pub generation: u32,
    pub account: u32,
    /// A group that waits for enough of its processors to be free.
    pub reserved: u32,
    /// In the list of those that wait for work, or of those that are gone.
    pub parked: Links,
    /// Which of its places are taken.
    pub places: u128,
    pub kind: u16,
    /// Below zero where it lends less than before and what it has goes on.
    pub cpus_free: i32,
    /// Results in a row that were right.
    pub right: u16,
    /// Errors in a row.
    pub wrong: u16,
    pub presence: Presence,
    pub is_attached: bool,
    pub is_backing_off: bool,
    /// It was late, and nothing was heard of it since.
    pub is_silent: bool,
    /// In which list of parked hosts; 255: none.
    pub park: u8,
    pub redundancy: u8,
}

saved!(Host {
    generation: u32,
    account: u32,
    reserved: u32,
    parked: Links,
    places: u128,
    kind: u16,
    cpus_free: i32,
    right: u16,
    wrong: u16,
    presence: Presence,
    is_attached: bool,
    is_backing_off: bool,
    is_silent: bool,
    park: u8,
    redundancy: u8,
});

/// A host's other lines, which few events use.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct HostMore {
    pub key: u128,
    /// What it has near, the latest first.
    pub warm: [u32; 16],
    pub speed_permille: u32,
    pub bucket: u32,
    pub timer: Links,
    /// Until when it gets nothing, while it backs off: milliseconds, the low 32 bits.
    pub until_ms: u32,
    pub done: u32,
    pub failed: u32,
    pub late: u32,
    pub invalid: u32,
    /// The instance in each place.
    pub running: [u32; crate::event::RUNNING_MAX],
}

saved!(HostMore {
    key: u128,
    warm: [u32; 16],
    speed_permille: u32,
    bucket: u32,
    timer: Links,
    until_ms: u32,
    done: u32,
    failed: u32,
    late: u32,
    invalid: u32,
    running: [u32; crate::event::RUNNING_MAX],
});

impl Default for Host {
    fn default() -> Self {
        Self {
            generation: 0,
            account: NIL,
            reserved: NIL,
            parked: Links::default(),
            places: 0,
            kind: 0,
            cpus_free: 0,
            right: 0,
            wrong: 0,
            presence: Presence::Free,
            is_attached: false,
            is_backing_off: false,
            is_silent: false,
            park: NO_PARK,
            redundancy: 0,
        }
    }
}

impl Default for HostMore {
    fn default() -> Self {
        Self {
            key: 0,
            warm: [0; 16],
            speed_permille: 1000,
            bucket: NIL,
            timer: Links::default(),
            until_ms: 0,
            done: 0,
            failed: 0,
            late: 0,
            invalid: 0,
            running: [NIL; crate::event::RUNNING_MAX],
        }
    }
}

/// In no list of parked hosts.
pub(crate) const NO_PARK: u8 = 255;

impl Host {
    pub fn name(&self, at: u32) -> HostName {
        HostName { at, generation: self.generation }
    }
}

impl Item for Host {
    fn next_free(&mut self) -> &mut u32 {
        &mut self.parked.next
    }
}

/// Hosts that wait for work, or are gone.
pub(crate) struct Parked;

impl Linked<Parked> for Host {
    fn links(&mut self) -> &mut Links {
        &mut self.parked
    }
}

impl Linked<Due> for HostMore {
    fn links(&mut self) -> &mut Links {
        &mut self.timer
    }
}

impl Timed for HostMore {
    fn bucket(&mut self) -> &mut u32 {
        &mut self.bucket
    }

    fn due_ms(&self) -> u32 {
        self.until_ms
    }
}

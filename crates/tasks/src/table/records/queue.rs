//! Groups, lanes and rings: what stands in queues.

use crate::event::Urgency;
use crate::shapes::NIL;
use crate::shapes::list::{Linked, Links};
use crate::shapes::slab::Item;
use crate::shapes::wheel::{Due, Timed};
use crate::snapshot::{saved, saved_choice};

/// Tasks of one job with one deadline: what stands in a queue.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Group {
    pub job: u32,
    pub lane: u32,
    /// In its lane's bucket or list.
    pub queued: Links,
    /// In its job's list.
    pub siblings: Links,
    /// Its ready tasks.
    pub ready: u32,
    /// Tasks of it that have not ended.
    pub unfinished: u32,
    pub deadline_ms: u64,
    pub timer: Links,
    pub bucket: u32,
    pub cpus: u16,
    /// How often it stood first and did not fit.
    pub passes: u8,
    /// How often it stood first and its files were elsewhere.
    pub cold_passes: u8,
    pub standing: Standing,
    /// Its deadline has passed.
    pub is_late: bool,
    /// Which of its account's demands its tasks are in; 255: none.
    pub demand: u8,
    /// How often in a row it stood first and had no task that the host may have.
    pub misses: u8,
}

saved!(Group {
    job: u32,
    lane: u32,
    queued: Links,
    siblings: Links,
    ready: u32,
    unfinished: u32,
    deadline_ms: u64,
    timer: Links,
    bucket: u32,
    cpus: u16,
    passes: u8,
    cold_passes: u8,
    standing: Standing,
    is_late: bool,
    demand: u8,
    misses: u8,
});

/// In which queue of its lane a group stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    /// In none: it has no ready tasks, or its job is held.
    #[default]
    Out,
    /// Its deadline has passed: these come first.
    Late,
    /// By deadline, to the millisecond.
    Near,
    /// By deadline, to four seconds.
    Far,
    /// It has no deadline.
    Whenever,
    /// The hosts that came may not have its tasks: the others of its lane are not kept waiting by it.
    Aside,
}

saved_choice!(Standing { Out = 0, Late = 1, Near = 2, Far = 3, Whenever = 4, Aside = 5 });

impl Default for Group {
    fn default() -> Self {
        Self {
            job: NIL,
            lane: NIL,
            queued: Links::default(),
            siblings: Links::default(),
            ready: NIL,
            unfinished: 0,
            deadline_ms: 0,
            timer: Links::default(),
            bucket: NIL,
            cpus: 1,
            passes: 0,
            cold_passes: 0,
            standing: Standing::Out,
            is_late: false,
            demand: 255,
            misses: 0,
        }
    }
}

impl Item for Group {
    fn next_free(&mut self) -> &mut u32 {
        &mut self.ready
    }
}

/// Groups in a bucket or list of their lane.
pub(crate) struct Queued;
/// Groups of one job.
pub(crate) struct OfJob;

impl Linked<Queued> for Group {
    fn links(&mut self) -> &mut Links {
        &mut self.queued
    }
}

impl Linked<OfJob> for Group {
    fn links(&mut self) -> &mut Links {
        &mut self.siblings
    }
}

impl Linked<Due> for Group {
    fn links(&mut self) -> &mut Links {
        &mut self.timer
    }
}

impl Timed for Group {
    fn bucket(&mut self) -> &mut u32 {
        &mut self.bucket
    }

    fn due_ms(&self) -> u32 {
        self.deadline_ms as u32
    }
}

/// The ready groups of one account with one urgency and one kind of need.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Lane {
    pub account: u32,
    /// Lanes of one ring, while it has groups that stand in it.
    pub turn: Links,
    pub next_free: u32,
    /// Groups that use it, standing in it or not.
    pub users: u32,
    /// How many stand in it.
    pub standing: u32,
    pub late: u32,
    pub near: u32,
    pub far: u32,
    pub whenever: u32,
    /// What it may still be given in this turn: processor time in milliseconds.
    pub credit_ms: i64,
    /// The next lane of its account.
    pub sibling: u32,
    pub need: u16,
    /// Its weight in its ring, while it is in it.
    pub weight: u16,
    pub urgency: Urgency,
    /// Looks while groups stand aside.
    pub looks: u8,
    pub aside: u32,
}

saved!(Lane {
    account: u32,
    turn: Links,
    next_free: u32,
    users: u32,
    standing: u32,
    late: u32,
    near: u32,
    far: u32,
    whenever: u32,
    credit_ms: i64,
    sibling: u32,
    need: u16,
    weight: u16,
    urgency: Urgency,
    looks: u8,
    aside: u32,
});

impl Default for Lane {
    fn default() -> Self {
        Self {
            account: NIL,
            turn: Links::default(),
            next_free: NIL,
            users: 0,
            standing: 0,
            late: NIL,
            near: NIL,
            far: NIL,
            whenever: NIL,
            credit_ms: 0,
            sibling: NIL,
            need: 0,
            weight: 0,
            urgency: Urgency::Normal,
            looks: 0,
            aside: NIL,
        }
    }
}

impl Item for Lane {
    fn next_free(&mut self) -> &mut u32 {
        &mut self.next_free
    }
}

/// Lanes that take turns.
pub(crate) struct Turn;

impl Linked<Turn> for Lane {
    fn links(&mut self) -> &mut Links {
        &mut self.turn
    }
}

/// The lanes with one urgency and one kind of need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ring {
    /// The lane whose turn it is.
    pub first: u32,
    /// Sum of the weights of the lanes in it.
    pub weight: u32,
    /// The largest cost of a task in it, in milliseconds: what one turn is worth.
    pub quantum_ms: u32,
    /// What it was given, over its weight: the ring with the least is next.
    pub given: u64,
}

saved!(Ring { first: u32, weight: u32, quantum_ms: u32, given: u64 });

impl Default for Ring {
    fn default() -> Self {
        Self { first: NIL, weight: 0, quantum_ms: 1, given: 0 }
    }
}

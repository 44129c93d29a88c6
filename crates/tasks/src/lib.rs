//! The hub's task table: who wants what done, who can do it, and what has become of it.
//!
//! It is BOINC's model of work (a task is a *workunit*, its copies are *instances*) for deadlines in seconds: a pure state machine
//! in memory of a fixed size, in which every event takes a bounded number of steps however many hosts and tasks there are, as
//! RT-BOINC showed (Yi, Anderson, Kondo: RT-BOINC, 2010), and whose bound is counted and not only measured.
//!
//! [`Table::handle`] is all of it: `(event, now) -> effects`. Same events, same effects: so a journal of the events is a
//! journal of the table.
//!
//! Deliberately not here: what a task is (its command, its files), whom hosts and accounts are, clocks, threads, disks, networks.

mod event;
mod kinds;
mod ledger;
mod names;
mod record;
mod shapes;
mod snapshot;
mod table;

pub use event::{
    AccountSpec, BATCH_MAX, DEADLINES_MAX, DELAY_MAX_MS, EFFECTS_MAX, Effect, Effects, Event, Failure, HostSpec,
    INSTANCES_MAX, JobSpec, Kind, Outcome, Policy, RESERVED_MAX, RUNNING_MAX, Refusal, Report, Urgency, Validation,
};
pub use kinds::{KINDS_MAX, Misfit, Need, Platform, Shape, misfit};
pub use ledger::{BLOB_BYTES_MAX, Blob, Entry, Ledger};
pub use names::{AccountName, HostName, InstanceName, JobName, TaskName};
pub use record::{LOGIC_VERSION, Scratch, decode};
pub use shapes::meter::{Counting, Work};
pub use snapshot::{LoadError, SNAPSHOT_VERSION};
pub use table::{
    AccountView, Capacity, DUE_MAX, Gauges, HostLoad, HostView, InstanceState, InstanceView, JobView, Progress, Table,
    TaskView, Totals, Waits, written_by,
};

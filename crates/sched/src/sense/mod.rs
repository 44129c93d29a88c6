//! What a host has to spare, from the counters that its kernel keeps: pure functions of texts and of what changed from one reading to the
//! next. Availability is the part of one processor that a process gets which never waits for anything but a processor.
//!
//! * [`parse`]: the kernel's texts.
//! * [`load`]: two readings, and what each thread ran and waited for between them.
//! * [`share`]: what a guest of idle class and a newcomer of full priority would have got, along the cgroups' weights.
//! * [`bound`]: what a container's quota of processor time leaves, which the machine's counters do not show.
//! * [`published`]: the three sensors of the Network Weather Service, for comparison.
//!
//! Deliberately not here: which files are read when, and which threads are worth a look. A reading costs, and its reader bounds that.

pub mod bound;
pub mod load;
pub mod parse;
pub mod published;
pub mod share;

//! The client daemon: what it knows of its own file system, what it lets out and in, and how it commits.
//!
//! The way of a command: [`daemon`] takes the caller, [`run`] decides and launches ([`ahead`]: contents that go before), [`exchange`]
//! passes its streams (`ending`: signals that end it; `warm`: what all need, before the first comes), [`settle`] commits its delta; [`jobs`] are commands that see one state of the files. Beside that, [`serve`]
//! answers what the hub asks while the command runs. [`batch`] jobs need no caller: the hub says when each of their commands is launched.
//!
//! * Its files: `mounts` (which file system is where), [`snapshot`] (what a path is now), [`recipes`] (which bytes a file has), [`views`] and [`profile`]
//!   (which paths a program uses).
//! * What it allows: [`plan`], [`policy`], [`write_rules`]; what projects grant: [`grants`].
//! * Whether it runs here or there: [`choice`], from [`history`] and what is known of link and machine ([`here`]).
//! * What can only run here: [`remote_ability`], `formats`, `listening`, `clones`. What tasks lock: `locks`. What was not executed: `not_executed`.
//! * What was called off, since it cannot be done elsewhere: [`unable`], `falling_back`; what makes that possible: [`hold`].
//! * What waits for workers since it may not run here: `absence`. A command that runs here as well: `race`, on `own_pool`.
//! * Its changes: [`commit`], and on their way there [`arrivals`], [`spool`].
//! * Its hub: what it has ([`shadow`], [`earlier`]), [`link`], whether it is heard of ([`pulse`], `watch`, [`roaming`]), and what was learnt of the ways there
//!   ([`networks`]). What of all this outlives the daemon is in small files (`small_file`).
//! * Its callers: [`caller`], whether they stand where it stands (`world`), [`stdio`], [`outputs`]; for people [`record`], [`report`], [`ask`].

mod absence;
pub mod ahead;
pub mod allowance;
pub mod arrivals;
pub mod ask;
mod basis;
pub mod batch;
mod call;
pub mod call_off;
pub mod caller;
pub mod choice;
mod clones;
pub mod commit;
pub mod cutter;
pub mod daemon;
mod doorway;
pub mod earlier;
mod ending;
mod endpoints;
pub mod exchange;
mod falling_back;
pub mod figures;
mod formats;
pub mod grants;
mod guard;
mod hedge;
pub mod here;
pub mod history;
pub mod hold;
pub mod input;
pub mod jobs;
pub mod kept_back;
mod late;
pub mod link;
mod link_wait;
mod listening;
mod locks;
mod mounts;
pub mod networks;
mod not_executed;
mod offers;
pub mod outputs;
mod own_pool;
pub mod peek;
pub mod plan;
pub mod policy;
mod polling;
pub mod process_numbers;
pub mod profile;
pub mod program;
pub mod pulse;
mod race;
mod read_ahead;
pub mod recipes;
pub mod record;
pub mod remote_ability;
pub mod report;
pub mod roaming;
pub mod run;
pub mod serve;
pub mod settings;
mod settle;
pub mod shadow;
mod signatures;
mod small_file;
pub mod snapshot;
pub mod spool;
mod standing;
pub mod stdio;
mod stops;
mod takeoff;
pub mod unable;
pub mod views;
mod waits;
mod warm;
mod watch;
mod weigh;
mod words;
mod world;
pub mod write_rules;

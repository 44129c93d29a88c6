//! What each parser reads, and what holds of it.

mod basis;
mod commits;
mod disk;
mod door;
mod files;
mod frames;
mod journal;
mod lanes;
mod made;
mod messages;
mod programs;
mod settings;
mod words;

use crate::Target;

/// Heap beside what grows with the input, in bytes: messages of errors, tables of a few entries.
const SMALL: usize = 64 << 10;

/// Every parser of bytes from elsewhere.
pub const TARGETS: &[Target] = &[
    // The network: what other machines send.
    frames::FRAMES,
    frames::PATCH,
    frames::DATAGRAMS,
    messages::GREETING,
    messages::OPEN,
    messages::INPUT,
    messages::OUTPUT,
    messages::REPLY,
    messages::WORK,
    messages::DELTA,
    commits::COMMIT,
    basis::BASIS,
    files::RECIPE,
    files::LISTING,
    lanes::LANES,
    // This machine: what other programs and users write.
    door::REQUEST,
    door::REPLY,
    door::STREAM,
    programs::ELF,
    programs::SCRIPT,
    programs::LINKER_CACHE,
    words::TOKEN,
    words::PATH,
    settings::CLIENT,
    settings::NODE,
    // Disks: what was written before.
    journal::ENTRY,
    journal::SNAPSHOT,
    disk::JOURNAL,
];

/// The target of this name.
pub fn of_name(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

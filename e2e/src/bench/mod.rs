//! What a launch costs, measured in interleaved rounds, beside the same work run locally and by the peers that install here.

pub mod launch;
pub mod peers;
pub mod samples;

/// What is measured, and how it is shown.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Figures as JSON on standard output, instead of a table.
    pub json: bool,
    /// Rounds; in each, every kind of launch once.
    pub rounds: usize,
    /// Whether coreutils is built as well (minutes).
    pub build: bool,
    /// Whether peers run beside us.
    pub peers: bool,
}

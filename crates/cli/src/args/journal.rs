//! The arguments of what is done with a hub's journal.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `gleaner journal`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = JOURNAL_HELP)]
pub struct Journal {
    /// What to do with it.
    #[command(subcommand)]
    pub command: JournalCommand,
}

/// What help and manual say of the journal.
const JOURNAL_HELP: &str = "\
Examples:
  gleaner journal verify                        is the journal of this machine's hub sound?
  gleaner journal verify --state /srv/g --json  the same of another folder, for a program
  gleaner journal prune                         make it small, while the hub is stopped
  gleaner journal upgrade --check               what would have to be done for this version of gleaner?

The journal is where the hub keeps it: in the folder `hub/journal` of the folder for state, or in the database that `journal` in node.toml or \
GLEANER_JOURNAL names.

Exit status: 0 if it is sound or was done; 65 if `verify` has found something wrong; 69 if it could not be done, with the reason on standard \
error: a hub has the journal, there is none, it cannot be read, or another version of gleaner has to be started first.";

/// What is done with a journal.
#[derive(Clone, Debug, Subcommand)]
pub enum JournalCommand {
    /// Read all of it and say whether it is sound, and whether this version starts from it; changes nothing, and a hub may run
    Verify(Verify),
    /// Write a snapshot of all and remove what is older; the hub must be stopped
    Prune(Site),
    /// Bring a journal that an older version left to what this version starts from; the hub must be stopped
    Upgrade(Upgrade),
}

/// Whose journal.
#[derive(Clone, Debug, Args)]
pub struct Site {
    /// Folder for the hub's state, if it was started with another [env: GLEANER_STATE_DIR]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

/// `gleaner journal verify`.
#[derive(Clone, Debug, Args)]
pub struct Verify {
    /// Whose.
    #[command(flatten)]
    pub site: Site,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `gleaner journal upgrade`.
#[derive(Clone, Debug, Args)]
pub struct Upgrade {
    /// Whose.
    #[command(flatten)]
    pub site: Site,
    /// Only tell what would be done; a hub may run
    #[arg(long)]
    pub check: bool,
}

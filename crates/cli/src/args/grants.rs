//! The arguments of `gleaner trust`.

use clap::Args;
use std::path::PathBuf;

/// `gleaner trust`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = FILE_HELP)]
pub struct TrustProject {
    /// A folder of the project; the working folder if not given
    #[arg(value_hint = clap::ValueHint::DirPath)]
    pub folder: Option<PathBuf>,
    /// Show the projects that are trusted, and whether their files still count
    #[arg(long, conflicts_with_all = ["folder", "revoke"])]
    pub list: bool,
    /// Trust the project no more: its file grants nothing then
    #[arg(long)]
    pub revoke: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What help and manual say of the file.
const FILE_HELP: &str = "\
The file:
  A project's .gleaner.toml stands in its root: the folder that has .git, .hg, .svn or .jj, else the nearest one that has this file.

    write = [\"~/.bashrc\", \"../shared/out/**\"]     commands may change these, beside what all commands may
    read = [\"~/data\"]                              commands may read these, also on workers of others
    network = true                                 commands that are known to want the network have it elsewhere, and are begun once only

  A path is absolute, in your home (~/...), or relative to the project's root, and means all beneath it, too. `*` stands for a part of a name. Links are \
not followed. Whole homes, secrets (~/.ssh and the like) and what decides what is run later (.git/hooks, .git/config, .envrc, CI workflows, \
.gleaner.toml itself) are never granted: allow the latter for one command by `remrun --allow-write PATH`.

  The file counts as long as it has the contents that it had when it was trusted, belongs to you, is no symbolic link, and is not writable by all. No \
task can change it.";

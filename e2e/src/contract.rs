//! Clauses of the contract that need more than one command, or a look at the pool beside it.

mod answers;
mod jobs;
mod kept;
mod revoked;
mod snapshot;

use crate::pool::Options;
use crate::report::Report;
use crate::scenario::{self, Scenario};

const SCENARIOS: [Scenario; 10] = [
    ("contract/a conflict: nothing is committed, all is kept, and recovered", kept::conflict),
    ("contract/what the write policy refused is recovered if allowed", kept::refusal),
    ("contract/SIGTSTP stops remrun and the guest, SIGCONT continues both", jobs::stopped),
    ("contract/Ctrl-Z in a shell with job control", jobs::in_a_shell),
    ("contract/a file that changes while it is read is never torn", snapshot::torn_files),
    ("contract/a file that is replaced while it is read is read to its end", snapshot::replaced),
    ("contract/what changes after the launch is late, and told", snapshot::late),
    ("contract/a revoked worker runs nothing more", revoked::worker),
    ("contract/a revoked client runs nothing more", revoked::client),
    ("contract/answers as JSON, with and without a pool", answers::all),
];

/// Runs the scenarios whose name contains `filter` on pools of this kind.
pub fn run(options: &Options, filter: &str, report: &Report) {
    scenario::run(&SCENARIOS, options, filter, report);
}

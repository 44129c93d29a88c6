//! Clauses of the contract that need more than one command, or a look at the pool beside it.

mod answers;
mod batch;
mod bounds;
mod bundle;
mod deadline;
mod edited;
pub mod guests;
mod job;
mod jobs;
mod journal;
mod kept;
mod limits;
mod needs;
mod ordered;
mod reasons;
mod revoked;
pub mod secrets;
mod snapshot;
mod standby;
mod trust;
mod unprivileged;
mod up;

use crate::pool::Options;
use crate::report::Report;
use crate::scenario::{self, Scenario, Work};

const SCENARIOS: &[Scenario] = &[
    ("contract/a conflict: nothing is committed, all is kept, and recovered", kept::conflict),
    ("contract/what the write policy refused is recovered if allowed", kept::refusal),
    ("contract/what the read policy kept back is named, and read here the next time", kept::kept_back),
    ("contract/secrets by what they hold and where they are never leave", secrets::by_content),
    ("contract/a secret that is read after output: the project's own is lent, others are not", secrets::read_late),
    ("contract/the user's word on whose the workers are is the bound", secrets::by_class),
    ("contract/SIGTSTP stops remrun and the guest, SIGCONT continues both", jobs::stopped),
    ("contract/Ctrl-Z in a shell with job control", jobs::in_a_shell),
    ("contract/a file that changes while it is read is never torn", snapshot::torn_files),
    ("contract/a file that is replaced while it is read is read to its end", snapshot::replaced),
    ("contract/what changes after the launch is late, and told", snapshot::late),
    ("contract/a worker that joins waits for approval, and gets what its class allows", trust::approved),
    ("contract/a drained worker gets nothing more", revoked::drained),
    ("contract/a revoked worker runs nothing more", revoked::worker),
    ("contract/a revoked client runs nothing more", revoked::client),
    ("contract/commands go to workers that have what they ask for, or nowhere", needs::met),
    ("contract/a job of many tasks: each shown apart and in order", job::many),
    ("contract/tasks of a job see one state of the files", job::one_state),
    ("contract/Ctrl-C ends a job and its guests", job::interrupted),
    ("contract/a bundle for who is asked for help holds no secret", bundle::without_secrets),
    ("contract/answers as JSON, with and without a pool", answers::all),
    ("contract/a batch job's task that runs for long is done once", batch::long),
    ("contract/a batch job whose client daemon is killed: all is done once", batch::daemon_killed),
    ("contract/a batch job whose hub is killed: all is done once", batch::hub_killed),
    ("contract/a batch job never overwrites what changed while no daemon ran", batch::changed_meanwhile),
    ("contract/a batch job whose tasks come after others: each sees what those made", ordered::in_order),
    ("contract/a batch job in order whose client daemon is killed: all is done once", ordered::daemon_killed),
    ("contract/batch jobs with a quorum, retries and a time limit", batch::again_and_twice),
    ("contract/batch jobs whose results a command compares, also when the hub is killed meanwhile", batch::compared),
    ("contract/batch jobs are held, released, cancelled, and assimilated", batch::ways),
    ("contract/batch jobs held with more tasks than the hub has room for are in nobody's way", reasons::held),
    ("contract/batch jobs whose tasks fail, take too long or never run say why", reasons::told),
    ("contract/batch jobs whose results cannot agree say why", reasons::quorum),
    ("contract/batch jobs whose output is cut say so", reasons::cut),
    ("contract/batch jobs whose scripts are edited while they wait run one state of them, or say so", edited::scripts),
    ("contract/a hub's journal is verified, damaged, pruned, and gone on with", journal::kept_in_order),
];

/// Those that count on the processors there are.
const ALONE: [Scenario; 2] = [
    ("contract/an account's limits hold", limits::hold),
    ("contract/batch jobs with deadlines: refused, met and missed", deadline::kept),
];

/// What is done to a pool whose workers are other people's.
const GUESTS: [Scenario; 3] = [
    ("contract/guests that take more than they may are called off, and run here", bounds::hold),
    ("contract/guests rest, or leave, when the owner of their host says so", guests::rest_and_leave),
    ("contract/guests of a host that is paused are done elsewhere at once, or here", guests::leave_when_paused),
];

/// What takes a second client, of an ordinary user.
const OTHERS: [Scenario; 1] =
    [("contract/a worker without root takes one client at a time, and says so", unprivileged::one_client)];

/// What is done to a pool of one process.
const IN_ONE_PROCESS: [Scenario; 8] = [
    ("up/a compiler, a chain of commands, large files", up::commands),
    ("up/a conflict: nothing is committed, all is kept, and recovered", kept::conflict),
    ("up/SIGTSTP stops remrun and the guest, SIGCONT continues both", jobs::stopped),
    ("up/a file that changes while it is read is never torn", snapshot::torn_files),
    ("up/what changes after the launch is late, and told", snapshot::late),
    ("up/tasks of a job see one state of the files", job::one_state),
    ("up/a C program maps in parallel", job::from_c),
    ("up/killed", up::killed),
];

/// What is done to a pool whose hub's journal is in a database, most of it with a second hub.
const STANDBY: [Scenario; 3] = [
    ("standby/the hub is killed: a batch job goes on at the other one, nothing is done twice", standby::killed),
    ("standby/the hub is stopped and wakes: it ends, and nobody goes back to it", standby::stopped),
    ("standby/the database is killed under load: the hub goes on", standby::database_killed),
];

/// The scenarios whose name contains `filter`, on pools of this kind, that may run beside others.
pub fn works<'a>(options: &Options, filter: &str, report: &'a Report) -> Vec<Work<'a>> {
    let with_other = Options { nobody: true, ..options.clone() };
    let with_database = Options { database: true, ..options.clone() };
    let in_one_process = Options { workers: 0, together: true, ..options.clone() };
    let kinds: [(&[Scenario], &Options); 4] =
        [(&STANDBY, &with_database), (&OTHERS, &with_other), (&IN_ONE_PROCESS, &in_one_process), (SCENARIOS, options)];
    kinds.into_iter().flat_map(|(scenarios, options)| scenario::works(scenarios, options, filter, report)).collect()
}

/// Runs the others.
pub fn run(options: &Options, filter: &str, report: &Report) {
    scenario::run(&ALONE, options, filter, report);
    scenario::run(&GUESTS, &Options { guests: true, ..options.clone() }, filter, report);
}

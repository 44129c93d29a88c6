//! Whether a caller stands where the daemon stands. The daemon reads and writes files by the paths that a caller names:
//! in another mount namespace, or with another root folder, those are other files. Such a command runs at its caller.

use crate::caller::Replies;
use crate::daemon::Daemon;
use crate::mounts::{self, Mount};
use crate::record::Record;
use crate::run::CODE_FAILED;
use crate::serve::blocking;
use crate::snapshot::STATX_MNT_ID_UNIQUE;
use base::door::{Options, Reply, Scheduling, World};
use base::{Command, TaskId, TreePath};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::thread::CapabilitySet;
use std::collections::BTreeMap;

/// What a worker gives to a task of root, and to no other: CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_KILL,
/// CAP_SETGID, CAP_SETUID.
const ROOT_HAS: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID);

/// Why a command of this caller cannot run elsewhere as if there; `None` if it can. Costs three system calls where the
/// caller stands where the daemon stands.
pub async fn obstacle(caller: World, process: Option<i32>, uid: u32) -> Option<String> {
    if let Some(why) = other_rights(&caller, uid).or_else(|| other_scheduling(caller.scheduling, own_processors())) {
        return Some(why);
    }
    if is_root_here(&caller) {
        return None;
    }
    blocking(move || other_files(process)).await.unwrap_or_else(|| Some("the client daemon failed".into()))
}

/// Tells a caller to run its command itself, for this reason.
pub async fn send_back(daemon: &Daemon, command: &Command, options: &Options, why: String, replies: &mut Replies) {
    let record = Record::new(TaskId(rand::random()), command);
    let _ = daemon.records.begin(&record);
    let reply = match options.no_local {
        false => Reply::RunHere { why },
        true => Reply::Failed { message: format!("{why}, and --no-local forbids to run it here"), code: CODE_FAILED },
    };
    if options.verbose {
        let _ = replies.send(&Reply::Note(record.summary())).await;
    }
    let _ = replies.send(&reply).await;
    daemon.records.end(record, &reply);
}

/// Rights and conditions of the caller's process that a worker does not give.
fn other_rights(caller: &World, uid: u32) -> Option<String> {
    if caller.personality != 0 {
        return Some(format!("it has an execution domain of its own (personality {:#x})", caller.personality));
    }
    let own_users = rustix::fs::stat("/proc/self/ns/user").map_or(0, |found| found.st_ino);
    if caller.users != 0 && own_users != 0 && caller.users != own_users {
        return Some("it is in another user namespace than the client daemon".into());
    }
    let has = CapabilitySet::from_bits_retain(caller.capabilities);
    let beyond = has & (ROOT_HAS | CapabilitySet::DAC_READ_SEARCH);
    match uid {
        0 if !has.contains(ROOT_HAS) => Some("it runs as root without all capabilities of root".into()),
        0 => None,
        _ if !beyond.is_empty() => Some("it has capabilities, though it does not run as root".into()),
        _ => None,
    }
}

/// What the caller has set for its commands that means something on this machine alone. `own`: the processors that this process may use,
/// which has given up what its own caller had set.
fn other_scheduling(caller: Scheduling, own: u32) -> Option<String> {
    let Scheduling { is_raised, policy, disk, processors } = caller;
    if is_raised {
        return Some("its caller has a priority above the ordinary one (nice), which only this machine gives".into());
    }
    if policy != 0 {
        return Some(format!("its caller has a scheduling policy of its own (chrt), number {policy}"));
    }
    if disk != 0 {
        return Some("its caller has set the priority of its disk requests (ionice), which are this machine's".into());
    }
    let is_bound = processors != 0 && processors < own;
    is_bound.then(|| format!("its caller is bound to {processors} of the {own} processors of this machine (taskset)"))
}

/// How many processors this process may use; 0: not known.
fn own_processors() -> u32 {
    rustix::thread::sched_getaffinity(None).map_or(0, |set| set.count())
}

/// Whether the caller's root folder is this process's, on the same mount: then it is in the same mount namespace, too.
fn is_root_here(caller: &World) -> bool {
    let wanted = StatxFlags::INO | StatxFlags::MNT_ID | StatxFlags::from_bits_retain(STATX_MNT_ID_UNIQUE);
    let Ok(root) = rustix::fs::statx(CWD, "/", AtFlags::STATX_DONT_SYNC, wanted) else { return false };
    let mount = match root.stx_mnt_id {
        0 => rustix::fs::stat("/proc/self/ns/mnt").map_or(0, |found| found.st_ino),
        mount => mount,
    };
    (caller.root_mount, caller.root_inode) == (mount, root.stx_ino)
}

/// Compares the mounts of the caller with this process's: `ip netns exec`, for one, makes a namespace in which all
/// files are the same.
fn other_files(process: Option<i32>) -> Option<String> {
    const HOW: &str = "`gleaner stop`, and the next remrun there starts one that does";
    let unseen = || Some("the client daemon cannot see in which mount namespace it is".to_owned());
    // Of a process in a PID namespace that is not visible here the kernel says 0.
    let Some(process) = process.filter(|process| *process > 0) else { return unseen() };
    let lists =
        ["/proc/self/mountinfo".to_owned(), format!("/proc/{process}/mountinfo")].map(|path| mounts::read(&path));
    let [Ok(own), Ok(callers)] = lists else { return unseen() };
    let at = difference(&table(own), &table(callers))?;
    Some(format!(
        "it is in another mount namespace than the client daemon, or has another root folder: {at} is not mounted alike, \
         and the daemon does not see its files ({HOW})"
    ))
}

/// What is mounted where.
type Table = BTreeMap<TreePath, Mount>;

/// Of several mounts at one place the last counts. Those in folders that every worker has of its own do not matter, nor do
/// names of namespaces (`/run/netns`), which have no contents.
fn table(mounts: Vec<Mount>) -> Table {
    let matter = mounts.into_iter().filter(|mount| !mount.is_machines_own() && mount.kind != b"nsfs");
    matter.map(|mount| (mount.at.clone(), mount)).collect()
}

/// The first place at which two tables differ.
fn difference(one: &Table, other: &Table) -> Option<TreePath> {
    let how = |mount: &Mount| (mount.device.clone(), mount.folder.clone(), mount.options.clone());
    let differs = |at: &&TreePath| one.get(at).map(how) != other.get(at).map(how);
    one.keys().chain(other.keys()).filter(differs).min().cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "21 1 254:0 / / rw,relatime - ext4 /dev/root rw\n\
        22 21 0:20 / /sys rw - sysfs sysfs rw\n\
        23 21 0:21 / /home ro,noexec - tmpfs t rw\n\
        24 21 0:4 net:[4026532] /run/netns/a rw - nsfs nsfs rw\n";

    fn differs(other: &str) -> Option<String> {
        let [one, other] = [TABLE, other].map(|text| table(mounts::parse(text.as_bytes())));
        difference(&one, &other).map(|at| at.to_string())
    }

    #[test]
    fn namespaces_with_the_same_files_are_alike() {
        assert_eq!(differs(TABLE), None);
        // Other numbers, another /sys, no name of a namespace: as after `ip netns exec`.
        let other = TABLE.replace("21 1 ", "121 101 ").replace("0:20 / /sys rw", "0:99 / /sys ro");
        let other = other.lines().filter(|line| !line.contains("nsfs")).collect::<Vec<_>>().join("\n");
        assert_eq!(differs(&other), None);
    }

    #[test]
    fn other_mounts_are_found() {
        assert_eq!(differs(&TABLE.replace("0:21", "0:22")).as_deref(), Some("/home"), "another file system");
        assert_eq!(differs(&TABLE.replace("0:21 /", "0:21 /sub")).as_deref(), Some("/home"), "another folder of it");
        assert_eq!(differs(&TABLE.replace("ro,noexec", "rw")).as_deref(), Some("/home"), "other options");
        assert_eq!(differs(&format!("{TABLE}25 21 0:30 / /home/x rw - tmpfs t rw\n")).as_deref(), Some("/home/x"));
        assert_eq!(differs(&format!("{TABLE}25 21 0:30 / / rw - tmpfs t rw\n")).as_deref(), Some("/"), "covered");
        assert_eq!(differs("").as_deref(), Some("/"), "a root folder that is no mount point has no line");
    }

    #[test]
    fn scheduling_that_a_worker_does_not_do() {
        let ordinary = Scheduling { processors: 4, ..Scheduling::default() };
        let here = |caller| other_scheduling(caller, 4).is_some();
        assert!(!here(ordinary) && !here(Scheduling::default()));
        assert!(other_scheduling(ordinary, 2).is_none(), "a daemon that is bound itself");
        assert!(here(Scheduling { is_raised: true, ..ordinary }));
        assert!(here(Scheduling { policy: 3, ..ordinary }));
        assert!(here(Scheduling { disk: 3 << 13, ..ordinary }));
        assert!(here(Scheduling { processors: 3, ..ordinary }));
    }

    #[test]
    fn rights_that_a_worker_does_not_give() {
        let of = |capabilities: CapabilitySet, uid| {
            other_rights(&World { capabilities: capabilities.bits(), ..World::default() }, uid).is_some()
        };
        assert!(!of(CapabilitySet::all(), 0) && !of(CapabilitySet::empty(), 1000));
        assert!(!of(CapabilitySet::WAKE_ALARM, 1000), "as desktop sessions have it");
        assert!(of(CapabilitySet::all() - CapabilitySet::DAC_OVERRIDE, 0) && of(CapabilitySet::DAC_OVERRIDE, 1000));
        assert!(other_rights(&World { personality: 0x40000, ..World::default() }, 1000).is_some());
        assert!(other_rights(&World { users: 1, ..World::default() }, 1000).is_some());
    }
}

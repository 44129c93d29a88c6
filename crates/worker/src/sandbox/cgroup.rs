//! Control groups: guests get the CPU that nobody else wants, and no more memory and processes than granted.
//!
//! Two groups per worker at the top of the hierarchy, or of the part of it that is this user's: one with `cpu.idle` for guests, and one for
//! the owner's own tasks. Beneath each, one group per running task, kept for the next task once it is empty, since making one costs more than using one.
//! Version 2 where it has the controllers, otherwise version 1, and of version 2 what it does without any: freezing, and
//! counting processor time. Where neither can be written, resource limits alone must do (see [`Limits`]).

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, Mode, OFlags};

use super::levers::{Levers, Memory, is_idle};
use super::order::Priority;
use super::sys;

/// Empty groups kept for later tasks.
const SPARE_MAX: usize = 64;
/// How often, and how long apart, the removal of a group is tried: its last process may still be on its way out.
const REMOVE_TRIES: u32 = 200;
const REMOVE_PAUSE_NS: i64 = 5_000_000;

/// What control groups hold on this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Guests run only when nobody else wants the CPU, whatever they do to their own priority (`cpu.idle`).
    pub cpu_idle: bool,
    /// That holds beside all others of this machine, and not only beside what is in the same part of the hierarchy.
    pub after_all: bool,
    /// A task's memory is bounded as a whole; otherwise each process's data segment (`RLIMIT_DATA`).
    pub memory: bool,
    /// A task's processes are counted; otherwise those of each of a client's users (`RLIMIT_NPROC`).
    pub pids: bool,
    /// Guests can be frozen and thawed at once (`cgroup.freeze`).
    pub freeze: bool,
}

/// The worker's groups.
#[derive(Debug)]
pub struct Cgroups {
    /// The worker's own group in version 2.
    tree: Option<PathBuf>,
    /// Whether that one has the controllers; otherwise those of version 1 are used.
    is_unified: bool,
    /// The worker's own groups in version 1.
    cpu: Option<PathBuf>,
    memory: Option<PathBuf>,
    pids: Option<PathBuf>,
    /// Of the tasks in them.
    priority: Priority,
    spare: Vec<Slot>,
    next: u64,
}

/// The group of one task.
#[derive(Debug)]
pub struct Slot {
    name: String,
    /// Version 2: the folder, for `CLONE_INTO_CGROUP`, which costs nothing.
    pub folder: Option<OwnedFd>,
    /// Version 1: the `tasks` files; a process that writes 0 joins, which is cheap only for itself.
    pub tasks: Vec<OwnedFd>,
    /// Version 1: the same of the idle group, which only the program itself joins. Its init stays out: starved of CPU
    /// while it mounts, it would hold up others in the kernel.
    pub idle: Option<OwnedFd>,
    memory_bytes_max: Option<u64>,
    pids_max: Option<u32>,
}

impl Slot {
    /// Name of the group, beneath the worker's.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Cgroups {
    /// Makes the group `name` for tasks of this priority, after killing and removing what an earlier worker of this name left. `None`:
    /// there is no hierarchy that could be used.
    pub fn prepare(name: &str, priority: Priority) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let mut made = Self {
            tree: None,
            is_unified: false,
            cpu: None,
            memory: None,
            pids: None,
            priority,
            spare: Vec::new(),
            next: 0,
        };
        if let Some(root) = find(&mounts, "cgroup2", "").and_then(|root| writable(&root)) {
            made.tree = prepare_unified(&root, name, priority);
            made.is_unified = made.tree.is_some();
            made.tree = made.tree.or_else(|| prepare_group(&root, name));
        }
        if !made.is_unified {
            if priority == Priority::Guest {
                made.cpu = find(&mounts, "cgroup", "cpu").and_then(|root| prepare_group(&root, name));
                made.cpu = made.cpu.filter(|group| fs::write(group.join("cpu.idle"), "1").is_ok());
            }
            made.memory = find(&mounts, "cgroup", "memory").and_then(|root| prepare_group(&root, name));
            made.pids = find(&mounts, "cgroup", "pids").and_then(|root| prepare_group(&root, name));
        }
        (!made.groups().is_empty()).then_some(made)
    }

    /// What holds.
    pub fn limits(&self) -> Limits {
        Limits {
            cpu_idle: self.tree.as_deref().is_some_and(is_idle) || self.cpu.is_some(),
            after_all: self.levers().come_after_all(),
            memory: self.is_unified || self.memory.is_some(),
            pids: self.is_unified || self.pids.is_some(),
            freeze: self.tree.is_some(),
        }
    }

    /// The same groups, for who does not start tasks.
    pub fn levers(&self) -> Levers {
        let unified = self.tree.clone().filter(|_| self.is_unified);
        Levers {
            pids: unified.clone().or_else(|| self.pids.clone()),
            idle: unified.clone().filter(|_| self.priority == Priority::Guest).or_else(|| self.cpu.clone()),
            tree: self.tree.clone(),
            memory: match unified {
                Some(group) => Some(Memory { group, is_unified: true }),
                None => self.memory.clone().map(|group| Memory { group, is_unified: false }),
            },
        }
    }

    /// A group for one task.
    pub fn take(&mut self, memory_bytes_max: Option<u64>, pids_max: Option<u32>) -> io::Result<Slot> {
        let fits = |slot: &Slot| slot.memory_bytes_max == memory_bytes_max && slot.pids_max == pids_max;
        let at = self.spare.iter().rposition(fits).or(self.spare.len().checked_sub(1));
        let mut slot = match at {
            Some(at) => self.spare.swap_remove(at),
            None => self.make()?,
        };
        if slot.memory_bytes_max != memory_bytes_max {
            self.write(&self.memory, &slot, ["memory.limit_in_bytes", "memory.max"], memory_bytes_max)?;
            slot.memory_bytes_max = memory_bytes_max;
        }
        if slot.pids_max != pids_max {
            self.write(&self.pids, &slot, ["pids.max", "pids.max"], pids_max.map(u64::from))?;
            slot.pids_max = pids_max;
        }
        Ok(slot)
    }

    /// Gives back a group whose task is gone.
    pub fn give_back(&mut self, slot: Slot) {
        if self.spare.len() < SPARE_MAX {
            return self.spare.push(slot);
        }
        for group in self.groups() {
            remove(&group.join(&slot.name));
        }
    }

    /// Removes all groups; every task must be gone.
    pub fn remove(self) {
        for group in self.groups() {
            remove(&group);
        }
    }

    fn groups(&self) -> Vec<PathBuf> {
        [&self.tree, &self.cpu, &self.memory, &self.pids].into_iter().flatten().cloned().collect()
    }

    fn make(&mut self) -> io::Result<Slot> {
        let name = format!("task{}", self.next);
        self.next += 1;
        let mut slot =
            Slot { name, folder: None, tasks: Vec::new(), idle: None, memory_bytes_max: None, pids_max: None };
        if let Some(group) = &self.tree {
            let path = group.join(&slot.name);
            fs::create_dir(&path)?;
            if self.is_unified {
                // Who is out of memory ends as a whole, its init included: nobody sees a command go on that has lost a process.
                let _ = fs::write(path.join("memory.oom.group"), "1");
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            slot.folder = Some(rustix::fs::open(&path, flags, Mode::empty())?);
        }
        if let Some(group) = &self.cpu {
            slot.idle = Some(open_tasks(group)?);
        }
        for group in [&self.memory, &self.pids].into_iter().flatten() {
            let path = group.join(&slot.name);
            fs::create_dir(&path)?;
            slot.tasks.push(open_tasks(&path)?);
        }
        Ok(slot)
    }

    /// Writes a limit to the file of version 1 in `old`, or of version 2; the names are in this order.
    fn write(&self, old: &Option<PathBuf>, slot: &Slot, names: [&str; 2], limit: Option<u64>) -> io::Result<()> {
        let unified = self.tree.as_ref().filter(|_| self.is_unified);
        let path = match (unified, old) {
            (Some(group), _) => group.join(&slot.name).join(names[1]),
            (None, Some(group)) => group.join(&slot.name).join(names[0]),
            (None, None) => return Ok(()),
        };
        let unlimited = if names[0].ends_with("in_bytes") && unified.is_none() { "-1" } else { "max" };
        fs::write(path, limit.map_or(unlimited.to_owned(), |limit| limit.to_string()))
    }
}

fn open_tasks(group: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(group.join("tasks"), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Where by `/proc/self/mountinfo` the hierarchy of this type, and of version 1 with this controller, is mounted.
pub fn find(mounts: &str, kind: &str, controller: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (place, source) = line.split_once(" - ")?;
        let mut source = source.split(' ');
        if source.next() != Some(kind) {
            return None;
        }
        let options = source.nth(1).unwrap_or_default();
        let wanted = controller.is_empty() || options.split(',').any(|option| option == controller);
        wanted.then(|| place.split(' ').nth(4).map(PathBuf::from)).flatten()
    })
}

/// Where groups of version 2 can be made that processes of this one can be in: at the top, or as near to it as may be.
fn writable(root: &Path) -> Option<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?.to_owned();
    let mut group = root.join(own);
    let mut found = None;
    // To be moved, a process must be within what this user may write, and its new group too.
    while group.starts_with(root) && rustix::fs::access(group.join("cgroup.procs"), Access::WRITE_OK).is_ok() {
        found = Some(group.clone());
        group.pop();
    }
    found
}

/// The worker's group in version 2, with the controllers that tasks need.
fn prepare_unified(root: &Path, name: &str, priority: Priority) -> Option<PathBuf> {
    let controllers = fs::read_to_string(root.join("cgroup.controllers")).ok()?;
    if !["memory", "pids"].iter().all(|wanted| controllers.split_whitespace().any(|have| have == *wanted)) {
        return None;
    }
    // Enabled already is fine; refused shows below, where the group's own files are missing.
    let _ = fs::write(root.join("cgroup.subtree_control"), "+memory +pids");
    let _ = fs::write(root.join("cgroup.subtree_control"), "+cpu");
    let group = prepare_group(root, name)?;
    if priority == Priority::Guest {
        let _ = fs::write(group.join("cpu.idle"), "1");
    }
    if fs::write(group.join("cgroup.subtree_control"), "+memory +pids").is_err() {
        remove(&group);
        return None;
    }
    // As long as it is used beneath, nobody can take it away above: a service manager would where nothing of its own needs it.
    let _ = fs::write(group.join("cgroup.subtree_control"), "+cpu");
    Some(group)
}

/// An empty group: processes and groups that an earlier worker left are killed and removed.
fn prepare_group(root: &Path, name: &str) -> Option<PathBuf> {
    let group = root.join(name);
    if group.exists() {
        kill_all(&group);
        remove(&group);
    }
    match fs::create_dir(&group) {
        Ok(()) => Some(group),
        // What could not be removed in time is used on.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Some(group),
        Err(_) => None,
    }
}

fn kill_all(group: &Path) {
    for child in children(group) {
        kill_all(&child);
    }
    let processes = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    for process in processes.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|process| *process > 1) {
        let _ = sys::kill(process, libc::SIGKILL);
    }
}

/// Removes a group and what is beneath it, trying for a second at most.
fn remove(group: &Path) {
    for child in children(group) {
        remove(&child);
    }
    for _ in 0..REMOVE_TRIES {
        match fs::remove_dir(group) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            _ => return,
        }
        let pause = rustix::time::Timespec { tv_sec: 0, tv_nsec: REMOVE_PAUSE_NS };
        let _ = rustix::event::poll(&mut [], Some(&pause));
    }
}

fn children(group: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(group) else { return Vec::new() };
    let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_found() {
        let mounts = "30 25 0:26 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
                      31 25 0:27 / /sys/fs/cgroup/unified rw shared:3 - cgroup2 cgroup2 rw\n";
        assert_eq!(find(mounts, "cgroup", "cpu"), Some("/sys/fs/cgroup/cpu".into()));
        assert_eq!(find(mounts, "cgroup", "memory"), None);
        assert_eq!(find(mounts, "cgroup2", ""), Some("/sys/fs/cgroup/unified".into()));
    }

    #[test]
    fn groups_are_reused_and_removed() {
        let name = format!("gleaner-test-{}", std::process::id());
        let Some(mut groups) = Cgroups::prepare(&name, Priority::Guest) else {
            println!("SKIPPED: no control group hierarchy can be written here");
            return;
        };
        let slot = groups.take(Some(64 << 20), Some(10)).expect("a group");
        let first = slot.name.clone();
        groups.give_back(slot);
        let slot = groups.take(None, Some(10)).expect("a group");
        assert_eq!(slot.name, first);
        groups.give_back(slot);
        let places = groups.groups();
        assert!(!places.is_empty());
        groups.remove();
        assert!(places.iter().all(|place| !place.exists()), "{places:?}");
    }
}

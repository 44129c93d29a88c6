//! What the worker itself may do with its guests' control groups while they run: freeze and thaw them, bound and take back their
//! memory, and see what they use. Making and removing the groups is the zygote's (see `cgroup.rs`).

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Pid;

use super::sys;

/// How names of workers' groups begin.
const WORKERS: &str = "gleaner-";
/// The accounts that are looked for are in the first lines.
const SHORT_BYTES: usize = 1024;
/// Most threads of a task that are hurried.
const HURRIED_MAX: usize = 1024;
/// In which a bound on processor time holds, in microseconds: what kernels have by themselves.
const QUOTA_PERIOD_US: u64 = 100_000;

/// The worker's groups, by path. One that is missing is a lever less: what needs it does nothing and says so.
#[derive(Clone, Debug, Default)]
pub struct Levers {
    /// The group of version 2.
    pub(super) tree: Option<PathBuf>,
    /// The group with `cpu.idle`.
    pub(super) idle: Option<PathBuf>,
    pub(super) memory: Option<Memory>,
    /// The group that bounds processes.
    pub(super) pids: Option<PathBuf>,
}

/// How often the kernel has refused something to tasks of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Processes killed for want of memory.
    pub kills: u64,
    /// Processes or threads that could not be made.
    pub processes: u64,
}

/// The group that bounds memory.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    pub group: PathBuf,
    pub is_unified: bool,
}

/// Memory of guests, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// What only their end, or swapping, gives back.
    pub fixed: u64,
    /// Cache of files: can be dropped.
    pub cache: u64,
    /// The part of it that must be written to disk first.
    pub dirty: u64,
}

/// Whether guests come to their bound of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// One waits at this moment.
    Now(bool),
    /// It was so often so far.
    Count(u64),
}

impl Levers {
    /// Over a folder that is like a group of version 2.
    #[cfg(test)]
    pub fn over(tree: PathBuf) -> Self {
        Self { tree: Some(tree), ..Self::default() }
    }

    /// The same that counts memory and processes.
    #[cfg(test)]
    pub fn counting(tree: PathBuf) -> Self {
        let memory = Some(Memory { group: tree.clone(), is_unified: true });
        Self { memory, pids: Some(tree.clone()), ..Self::over(tree) }
    }

    /// The same whose guests have the lowest priority.
    #[cfg(test)]
    pub fn beneath(tree: PathBuf) -> Self {
        Self { idle: Some(tree.clone()), ..Self::over(tree) }
    }

    /// Freezes all guests, or thaws them, and returns once that is so or after a bounded wait; false: there is no way to.
    pub fn freeze(&self, frozen: bool) -> io::Result<bool> {
        match &self.tree {
            Some(tree) => set_frozen(tree, frozen).map(|()| true),
            None => Ok(false),
        }
    }

    /// The same for one task, by the name of its group.
    pub fn freeze_task(&self, task: &str, frozen: bool) -> io::Result<bool> {
        match &self.tree {
            Some(tree) => set_frozen(&tree.join(task), frozen).map(|()| true),
            None => Ok(false),
        }
    }

    /// Whether all guests are frozen, every process of them.
    pub fn is_frozen(&self) -> bool {
        self.tree.as_ref().is_some_and(|tree| events(tree).lines().any(|line| line == "frozen 1"))
    }

    /// Whether this task is frozen, or about to be, by itself or with all guests.
    pub fn is_to_freeze(&self, task: &str) -> bool {
        let is_to = |group: &Path| short(&group.join("cgroup.freeze")).is_ok_and(|said| said.starts_with('1'));
        self.tree.as_ref().is_some_and(|tree| is_to(tree) || is_to(&tree.join(task)))
    }

    /// Processor time that all guests have had since the worker's start, if it is counted.
    pub fn cpu_used(&self) -> Option<Duration> {
        cpu_used(self.tree.as_ref()?)
    }

    /// The same of the guests of other workers on this machine, as far as their groups are beside this one's.
    pub fn cpu_used_by_others(&self) -> Duration {
        self.others().filter_map(|other| cpu_used(&other)).sum()
    }

    /// Groups of the guests of other workers.
    fn others(&self) -> impl Iterator<Item = PathBuf> {
        let own = self.tree.as_ref().and_then(|tree| Some((tree.parent()?, tree.file_name()?)));
        let entries = own.map(|(parent, own)| (fs::read_dir(parent).into_iter().flatten().flatten(), own));
        entries.into_iter().flat_map(|(entries, own)| {
            entries.map(|entry| entry.path()).filter(move |path| {
                let name = path.file_name();
                name != Some(own) && name.and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(WORKERS))
            })
        })
    }

    /// The same as far as their groups are in this folder as well.
    pub fn cpu_used_beside(&self, folder: &Path) -> Duration {
        self.others()
            .filter(|other| other.file_name().is_some_and(|name| folder.join(name).exists()))
            .filter_map(|other| cpu_used(&other))
            .sum()
    }

    /// Groups above guests' that may bound their processor time: a container's.
    pub fn bounding(&self) -> Vec<PathBuf> {
        let groups = self.idle.iter().flat_map(|group| group.ancestors().skip(1));
        let bounding = |group: &&Path| ["cpu.max", "cpu.cfs_quota_us"].iter().any(|name| group.join(name).exists());
        groups.take_while(|group| group.parent().is_some()).filter(bounding).map(Path::to_owned).collect()
    }

    /// The same of the task that is in this group now, and of those that were in it before.
    pub fn cpu_used_by(&self, task: &str) -> Option<Duration> {
        cpu_used(&self.tree.as_ref()?.join(task))
    }

    /// For how long something of this task, or of those before it in its group, was ready and had no processor; `None`: the kernel does not
    /// count that.
    pub fn waited_by(&self, task: &str) -> Option<Duration> {
        let pressure = short(&self.tree.as_ref()?.join(task).join("cpu.pressure")).ok()?;
        let some = pressure.lines().find_map(|line| line.strip_prefix("some "))?;
        some.split_once("total=")?.1.trim().parse().ok().map(Duration::from_micros)
    }

    /// Threads of the task in this group, as many as asked for.
    pub fn threads_of(&self, task: &str, count_max: usize) -> Vec<Pid> {
        let Some(tree) = self.tree.as_ref().filter(|_| !task.is_empty()) else { return Vec::new() };
        let text = fs::read_to_string(tree.join(task).join("cgroup.threads")).unwrap_or_default();
        text.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)).take(count_max).collect()
    }

    /// Memory of all guests, if it is counted.
    pub fn held(&self) -> Option<Held> {
        let memory = self.memory.as_ref()?;
        memory.held(&memory.group)
    }

    /// Memory of the task in this group, if it is counted.
    pub fn held_by(&self, task: &str) -> Option<Held> {
        let memory = self.memory.as_ref()?;
        memory.held(&memory.group.join(task))
    }

    /// Whether memory and processes of each task are counted, and so can be bounded.
    pub fn counts(&self) -> bool {
        self.memory.is_some() && self.pids.is_some()
    }

    /// Processes and threads of the task in this group, if they are counted.
    pub fn pids_of(&self, task: &str) -> Option<u64> {
        number(&self.pids.as_ref()?.join(task).join("pids.current"))
    }

    /// What was refused so far to the task in this group, and to those before it.
    pub fn refusals(&self, task: &str) -> Refusals {
        let value = |path: PathBuf, name: &str| {
            let text = short(&path).ok()?;
            text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
        };
        let kills = self.memory.as_ref().and_then(|memory| {
            let file = if memory.is_unified { "memory.events" } else { "memory.oom_control" };
            value(memory.group.join(task).join(file), "oom_kill ")
        });
        let processes = self.pids.as_ref().and_then(|group| value(group.join(task).join("pids.events"), "max "));
        Refusals { kills: kills.unwrap_or_default(), processes: processes.unwrap_or_default() }
    }

    /// Whether a task that wants more memory than it may have is killed as a whole (version 2).
    pub fn kills_at_bound(&self) -> bool {
        self.memory.as_ref().is_some_and(|memory| memory.is_unified)
    }

    /// Bounds the memory of all guests: who wants more is slowed down and loses cache (version 2), or waits (version 1). False:
    /// there is no way to, or the kernel cannot get them below this.
    pub fn bound_memory(&self, bytes: u64) -> bool {
        let Some(memory) = &self.memory else { return false };
        let name = if memory.is_unified { "memory.high" } else { "memory.limit_in_bytes" };
        fs::write(memory.group.join(name), bytes.to_string()).is_ok()
    }

    /// Has processes wait, rather than be killed, that want more memory than all guests may have. What version 2 does by itself.
    pub fn wait_for_memory(&self) {
        if let Some(memory) = self.memory.as_ref().filter(|memory| !memory.is_unified) {
            let _ = fs::write(memory.group.join("memory.oom_control"), "1");
        }
    }

    /// How often guests have come to their bound, where that is counted (version 2); else whether one waits at it now (version 1).
    pub fn waits_for_memory(&self) -> Option<Waits> {
        let memory = self.memory.as_ref()?;
        let (file, name) =
            if memory.is_unified { ("memory.events", "high ") } else { ("memory.oom_control", "under_oom ") };
        let text = fs::read_to_string(memory.group.join(file)).ok()?;
        let value: u64 = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())?;
        Some(if memory.is_unified { Waits::Count(value) } else { Waits::Now(value != 0) })
    }

    /// Bounds the processor time of all guests, whatever they want and whoever else does: no more than so many processors have. False: there is no
    /// way to.
    pub fn bound_cpus(&self, cpus: Option<u32>) -> bool {
        let Some(group) = &self.idle else { return false };
        let quota_us = cpus.map(|cpus| u64::from(cpus) * QUOTA_PERIOD_US);
        // Each version has only its own file.
        let version_2 = quota_us.map_or("max".to_owned(), |quota| format!("{quota} {QUOTA_PERIOD_US}"));
        let version_1 = quota_us.map_or("-1".to_owned(), |quota| quota.to_string());
        let write = |name: &str, text: String| group.join(name).exists() && fs::write(group.join(name), text).is_ok();
        write("cpu.max", version_2) || write("cpu.cfs_quota_us", version_1)
    }

    /// Keeps guests out of the owner's swap. There they would have more memory than they are granted, and room in it is the owner's; what they hold
    /// would no longer be what their end gives back.
    pub fn forbid_swap(&self) {
        if let Some(memory) = &self.memory {
            let name = if memory.is_unified { "memory.swap.max" } else { "memory.swappiness" };
            // Without swap a kernel may have no such file.
            let _ = fs::write(memory.group.join(name), "0");
        }
    }

    /// Drops cache of guests, up to so many bytes. Returns when that is done, or cannot be.
    pub fn drop_cache(&self, bytes: u64) {
        let Some(memory) = &self.memory else { return };
        if memory.is_unified {
            // Kernels before 6.8 know no second word. It fails as well when it has got less: that is as good as it gets.
            let reclaim = memory.group.join("memory.reclaim");
            let dropped = fs::write(&reclaim, format!("{bytes} swappiness=0"));
            if dropped.is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput) {
                let _ = fs::write(&reclaim, bytes.to_string());
            }
            return;
        }
        // Version 1 drops what is above a limit when that is set. A limit that it cannot reach it does not set.
        let limit = memory.group.join("memory.limit_in_bytes");
        let (Some(used), Some(before)) = (number(&memory.group.join("memory.usage_in_bytes")), number(&limit)) else {
            return;
        };
        let _ = fs::write(&limit, used.saturating_sub(bytes).to_string());
        let _ = fs::write(&limit, before.to_string());
    }

    /// Whether guests run only when nobody else wants the processor; makes it so again if something has changed it.
    pub fn keep_idle(&self) -> bool {
        let Some(group) = &self.idle else { return false };
        let path = group.join("cpu.idle");
        if is_idle(group) {
            return true;
        }
        if let Some(parent) = group.parent().filter(|_| !path.exists()) {
            let _ = fs::write(parent.join("cgroup.subtree_control"), "+cpu");
        }
        fs::write(&path, "1").is_ok() && is_idle(group)
    }

    /// Whether guests run only when nobody else on this machine wants the processor. Groups are compared with those beside them: if guests' is not at
    /// the top of the hierarchy, one above it must be idle that is.
    pub fn come_after_all(&self) -> bool {
        let mut groups = self.idle.iter().flat_map(|group| group.ancestors());
        groups.any(|group| is_idle(group) && group.parent().is_some_and(is_top))
    }

    /// Has guests that were killed or sent a signal end soon: that takes processor time, of which the lowest priority gets next to none while the
    /// owner works, and what they hold is held till then. For a while only.
    pub fn hurry(&self) {
        if let Some(group) = &self.idle {
            let _ = fs::write(group.join("cpu.idle"), "0");
        }
    }

    /// Threads of this task come before those of other guests, or after all again.
    pub fn hurry_task(&self, task: &str, hurries: bool) {
        let threads = self.threads_of(task, HURRIED_MAX);
        threads.into_iter().for_each(|thread| sys::set_idle(thread, !hurries));
    }

    /// The folder of version 2, whose files count what guests use.
    pub fn tree(&self) -> Option<&Path> {
        self.tree.as_deref()
    }
}

impl Memory {
    fn held(&self, group: &Path) -> Option<Held> {
        let stat = fs::read_to_string(group.join("memory.stat")).ok()?;
        let used = number(&group.join(if self.is_unified { "memory.current" } else { "memory.usage_in_bytes" }))?;
        Some(held(&stat, used, self.is_unified))
    }
}

/// Reads `memory.stat` of a group that uses so many bytes.
fn held(stat: &str, used: u64, is_unified: bool) -> Held {
    // Version 1 has the group's own first, then those with what is beneath it.
    let prefix = if is_unified { "" } else { "total_" };
    let sum = |names: [&str; 2]| {
        let values = stat.lines().filter_map(|line| {
            let (name, value) = line.strip_prefix(prefix)?.split_once(' ')?;
            names.contains(&name).then(|| value.parse::<u64>().ok())?
        });
        values.sum::<u64>()
    };
    let cache = sum(["inactive_file", "active_file"]).min(used);
    let dirty = if is_unified { sum(["file_dirty", "file_writeback"]) } else { sum(["dirty", "writeback"]) };
    Held { fixed: used - cache, cache, dirty }
}

pub(super) fn is_idle(group: &Path) -> bool {
    number(&group.join("cpu.idle")) == Some(1)
}

/// Whether a process or thread has a processor, or is ready for one.
pub fn wants_processor(number: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('R'))
}

/// Whether all groups of the machine are beneath this one: in a container a part of them looks like all. Files tell that only the top has
/// (version 1), or lacks.
fn is_top(group: &Path) -> bool {
    let has = |name: &str| group.join(name).exists();
    has("release_agent") || (has("cgroup.controllers") && !has("cgroup.events"))
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn events(group: &Path) -> String {
    fs::read_to_string(group.join("cgroup.events")).unwrap_or_default()
}

fn set_frozen(group: &Path, frozen: bool) -> io::Result<()> {
    fs::write(group.join("cgroup.freeze"), if frozen { "1" } else { "0" })
}

/// The beginning of a file of the kernel's, which is what is wanted of it, in one read: each task has some read for it.
fn short(path: &Path) -> io::Result<String> {
    let mut bytes = [0; SHORT_BYTES];
    let count = fs::File::open(path)?.read(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes[..count]).into_owned())
}

fn cpu_used(group: &Path) -> Option<Duration> {
    let stat = short(&group.join("cpu.stat")).ok()?;
    let usage = stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
    usage.trim().parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From a kernel 6.18, shortened.
    const VERSION_1: &str = "cache 0\nrss 0\ndirty 0\ninactive_file 0\nhierarchical_memory_limit 9223372036854771712\n\
        total_cache 9461760\ntotal_rss 2162688\ntotal_shmem 540672\ntotal_dirty 135168\ntotal_writeback 4096\n\
        total_inactive_anon 2703360\ntotal_inactive_file 8650752\ntotal_active_file 270336\n";
    const VERSION_2: &str = "anon 2162688\nfile 9461760\nshmem 540672\nfile_mapped 0\nfile_dirty 135168\n\
        file_writeback 4096\ninactive_anon 2703360\ninactive_file 8650752\nactive_file 270336\n";

    #[test]
    fn what_guests_hold_is_read_from_both_versions() {
        let told = Held { fixed: 3_000_000, cache: 8_921_088, dirty: 139_264 };
        assert_eq!(held(VERSION_1, 11_921_088, false), told);
        assert_eq!(held(VERSION_2, 11_921_088, true), told);
        assert_eq!(held("", 5, true), Held { fixed: 5, cache: 0, dirty: 0 });
        assert_eq!(held(VERSION_2, 100, true).fixed, 0, "the two were not read at the same moment");
    }

    #[test]
    fn what_was_refused_is_read_from_both_versions() {
        for (is_unified, file, text) in [
            (true, "memory.events", "high 0\nmax 5\noom 2\noom_kill 1\n"),
            (false, "memory.oom_control", "oom_kill_disable 1\nunder_oom 1\noom_kill 1\n"),
        ] {
            let folder = tempfile::tempdir().expect("a folder");
            let (group, all) = (folder.path().join("task3"), folder.path().to_owned());
            fs::create_dir(&group).expect("a folder");
            fs::write(group.join(file), text).expect("a file");
            fs::write(group.join("pids.events"), "max 4\n").expect("a file");
            fs::write(group.join("pids.current"), "17\n").expect("a file");
            let memory = Some(Memory { group: all.clone(), is_unified });
            let levers = Levers { memory, pids: Some(all), ..Levers::default() };
            assert_eq!(levers.refusals("task3"), Refusals { kills: 1, processes: 4 });
            assert_eq!((levers.pids_of("task3"), levers.kills_at_bound()), (Some(17), is_unified));
        }
        assert_eq!(Levers::default().refusals("task3"), Refusals::default());
    }

    #[test]
    fn swap_is_the_owners() {
        for (is_unified, name) in [(true, "memory.swap.max"), (false, "memory.swappiness")] {
            let folder = tempfile::tempdir().expect("a folder");
            let memory = Some(Memory { group: folder.path().to_owned(), is_unified });
            Levers { memory, ..Levers::default() }.forbid_swap();
            assert_eq!(number(&folder.path().join(name)), Some(0));
        }
    }

    #[test]
    fn processor_time_is_bounded_in_both_versions() {
        for (name, texts) in [("cpu.max", ["300000 100000", "max"]), ("cpu.cfs_quota_us", ["300000", "-1"])] {
            let folder = tempfile::tempdir().expect("a folder");
            let file = folder.path().join(name);
            let levers = Levers { idle: Some(folder.path().to_owned()), ..Levers::default() };
            assert!(!levers.bound_cpus(Some(3)), "there is no such file");
            fs::write(&file, "").expect("a file");
            for (cpus, text) in [Some(3), None].into_iter().zip(texts) {
                assert!(levers.bound_cpus(cpus));
                assert_eq!(fs::read_to_string(&file).expect("written"), text);
            }
        }
    }

    #[test]
    fn guests_that_wait_for_memory_are_seen_in_both_versions() {
        for (is_unified, name, text, waits) in [
            (true, "memory.events", "low 0\nhigh 17\nmax 3\n", Waits::Count(17)),
            (false, "memory.oom_control", "oom_kill_disable 1\nunder_oom 1\noom_kill 0\n", Waits::Now(true)),
        ] {
            let folder = tempfile::tempdir().expect("a folder");
            let levers =
                Levers { memory: Some(Memory { group: folder.path().to_owned(), is_unified }), ..Levers::default() };
            assert_eq!(levers.waits_for_memory(), None);
            fs::write(folder.path().join(name), text).expect("a file");
            assert_eq!(levers.waits_for_memory(), Some(waits));
        }
    }

    #[test]
    fn guests_come_after_all_where_a_group_at_the_top_is_idle() {
        let folder = tempfile::tempdir().expect("a folder");
        let nested = folder.path().join("unit/guests");
        fs::create_dir_all(&nested).expect("folders");
        let levers = Levers { idle: Some(nested.clone()), ..Levers::default() };
        let write = |path: &str, text: &str| fs::write(folder.path().join(path), text).expect("written");
        write("cgroup.controllers", "cpu memory pids");
        write("unit/cgroup.controllers", "cpu memory pids");
        write("unit/cgroup.events", "populated 1");
        write("unit/guests/cpu.idle", "1");
        assert!(levers.keep_idle() && !levers.come_after_all(), "others are beside the unit");
        write("unit/cpu.idle", "1");
        assert!(levers.come_after_all());
        write("cgroup.events", "populated 1");
        assert!(!levers.come_after_all(), "the top is a container's");
        write("release_agent", "");
        assert!(levers.come_after_all(), "version 1");
        write("unit/cpu.idle", "0");
        assert!(!levers.come_after_all());
    }

    #[test]
    fn a_controller_that_was_taken_away_is_asked_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let (group, control) = (folder.path().join("guests"), folder.path().join("cgroup.subtree_control"));
        fs::create_dir(&group).expect("a folder");
        let levers = Levers { idle: Some(group), ..Levers::default() };
        // A kernel would have made the file by then.
        assert!(levers.keep_idle());
        assert_eq!(fs::read_to_string(control).expect("written"), "+cpu");
    }

    #[test]
    fn without_groups_nothing_is_done() {
        let none = Levers::default();
        assert!(!none.freeze(true).expect("no error") && !none.is_frozen() && !none.keep_idle());
        assert!(!none.bound_memory(0) && none.held().is_none() && none.cpu_used().is_none());
    }
}

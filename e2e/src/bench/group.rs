//! Control groups of a benchmark's own, at the top of the `cpu` hierarchy, as login sessions have them: siblings of the guests'. And within these.

use crate::error::{Context, Error, Result};
use crate::process::wait_for;
use rustix::process::{Pid, Signal};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use worker::sandbox::hierarchy as find;

/// How the names of the groups begin; the process id of the benchmark follows.
const PREFIX: &str = "gleaner-bench-";

/// What a group counts among its siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// The default.
    Usual,
    /// Idle class: what nobody else wants.
    Idle,
    /// As much as can be.
    Most,
}

/// A group. Whatever runs in it is killed, and it is removed, when this is dropped.
#[derive(Debug)]
pub struct Group {
    folder: PathBuf,
    /// As the kernel names it: from the root of the hierarchy.
    pub name: String,
}

impl Group {
    /// A new one, of default weight.
    ///
    /// # Errors
    /// If there is no `cpu` hierarchy in which this process may make one.
    pub fn new(name: &str) -> Result<Self> {
        Self::with(None, name, Weight::Usual)
    }

    /// A new one, at the top or within another one, which is to be dropped after it.
    pub fn with(within: Option<&Self>, name: &str, weight: Weight) -> Result<Self> {
        let lacking = "there is no cpu controller of control groups here: owner and guests cannot be apart";
        let root = hierarchy().ok_or_else(|| Error::Missing(lacking.to_owned()))?;
        let name = match within {
            Some(outer) => format!("{}/{name}", outer.name),
            None => format!("/{PREFIX}{}-{name}", std::process::id()),
        };
        let folder = root.join(&name[1..]);
        std::fs::create_dir(&folder).at("create", &folder)?;
        let group = Self { folder, name };
        // Of version 2 only: what is within shares processors too.
        let _ = std::fs::write(group.folder.join("cgroup.subtree_control"), "+cpu");
        let set = |file: &str, value: &str| std::fs::write(group.folder.join(file), value);
        match weight {
            Weight::Usual => {}
            Weight::Idle => set("cpu.idle", "1").at("set cpu.idle of", &group.folder)?,
            Weight::Most => set("cpu.shares", "262144")
                .or_else(|_| set("cpu.weight", "10000"))
                .at("set the weight of", &group.folder)?,
        }
        Ok(group)
    }

    /// What a process writes 0 to that joins it.
    pub fn procs(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// Has the command start in this group.
    pub fn holds(&self, command: &mut Command) -> Result<()> {
        let path = self.procs();
        let file = File::options().write(true).open(&path).at("open", &path)?;
        // SAFETY: between fork and exec the closure makes one system call, on a descriptor that it owns.
        unsafe {
            command.pre_exec(move || {
                rustix::io::write(&file, b"0")?;
                Ok(())
            });
        }
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        remove(&self.folder);
    }
}

/// Removes what a benchmark with this process id left.
pub fn sweep(pid: u32) {
    let prefix = format!("{PREFIX}{pid}-");
    let entries = hierarchy().and_then(|root| std::fs::read_dir(root).ok());
    for entry in entries.into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            remove(&entry.path());
        }
    }
}

fn remove(folder: &Path) {
    let inner = std::fs::read_dir(folder).into_iter().flatten().flatten();
    inner.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).for_each(|entry| remove(&entry.path()));
    let gone = wait_for(Duration::from_secs(3), || {
        let processes = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        for pid in processes.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        (std::fs::remove_dir(folder).is_ok() || !folder.exists()).then_some(())
    });
    if gone.is_none() {
        eprintln!("bench: cannot remove {}", folder.display());
    }
}

/// Where the `cpu` controller is: version 2 if it is there, with the controller given to groups at the top; else version 1.
fn hierarchy() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let unified = find(&mounts, "cgroup2", "").filter(|root| {
        let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap_or_default();
        if read("cgroup.controllers").split_whitespace().any(|name| name == "cpu") {
            let _ = std::fs::write(root.join("cgroup.subtree_control"), "+cpu");
        }
        read("cgroup.subtree_control").split_whitespace().any(|name| name == "cpu")
    });
    unified.or_else(|| find(&mounts, "cgroup", "cpu"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::shell;

    #[test]
    fn hierarchies_are_found() {
        let mounts = "30 25 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                      31 25 0:27 / /sys/fs/cgroup/unified rw shared:3 - cgroup2 cgroup2 rw\n";
        assert_eq!(find(mounts, "cgroup", "cpu"), Some("/sys/fs/cgroup/cpu".into()));
        assert_eq!(find(mounts, "cgroup2", ""), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(find(mounts, "cgroup", "memory"), None);
    }

    #[test]
    fn a_group_is_gone_with_what_runs_in_it() {
        let Ok(group) = Group::new("test") else {
            eprintln!("skipped: no control groups can be made here");
            return;
        };
        let mut command = shell("sleep 60");
        group.holds(&mut command).unwrap();
        let mut child = command.spawn().unwrap();
        let inside = std::fs::read_to_string(format!("/proc/{}/cgroup", child.id())).unwrap();
        assert!(inside.contains(PREFIX), "{inside}");
        let folder = group.folder.clone();
        drop(group);
        assert!(!child.wait().unwrap().success() && !folder.exists());
    }
}

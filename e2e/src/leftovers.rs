//! What a run may leave behind and must not: processes, mounts, control groups.

use crate::pool::{NODES, NODES_TOGETHER};
use crate::process::wait_for;
use crate::scratch::MARK;
use rustix::process::{Pid, Signal};
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What was there before a run.
#[derive(Clone, Debug)]
pub struct Before {
    mounts: BTreeSet<String>,
    groups: BTreeSet<PathBuf>,
}

impl Before {
    /// Looks around.
    pub fn look() -> Self {
        Self { mounts: mounts(), groups: groups() }
    }

    /// What has come since and belongs to the run in `scratch`: one line each. Waits up to `limit` for it to go.
    pub fn leftovers(&self, scratch: &Path, limit: Duration) -> Vec<String> {
        let mut last = Vec::new();
        wait_for(limit, || {
            last = self.now(scratch);
            last.is_empty().then_some(())
        });
        last
    }

    fn now(&self, scratch: &Path) -> Vec<String> {
        let mut found = Vec::new();
        for pid in processes(scratch) {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            found.push(format!("process {pid}: {}", String::from_utf8_lossy(&line).replace('\0', " ")));
        }
        let scratch = scratch.to_string_lossy();
        let ours = |line: &&String| line.contains(scratch.as_ref());
        found.extend(mounts().difference(&self.mounts).filter(ours).map(|line| format!("mount {line}")));
        let known = known_keys(Path::new(scratch.as_ref()));
        let ours = |group: &&PathBuf| named_after(group).is_some_and(|key| known.contains(&key));
        let groups = groups();
        let new = groups.difference(&self.groups).filter(ours);
        found.extend(new.map(|path| format!("group {}", path.display())));
        found
    }
}

/// The first digits of a worker's key, after which its control group is named.
fn named_after(group: &Path) -> Option<String> {
    let name = group.file_name()?.to_string_lossy().into_owned();
    let name = name.strip_prefix("own-").unwrap_or(&name);
    let digits: String = name.strip_prefix("gleaner-")?.chars().take_while(char::is_ascii_hexdigit).collect();
    (digits.len() >= 8).then_some(digits)
}

/// What the run's hub wrote of the machines that joined, in which their keys occur.
fn known_keys(scratch: &Path) -> String {
    [NODES, NODES_TOGETHER].iter().filter_map(|path| std::fs::read_to_string(scratch.join(path)).ok()).collect()
}

/// Processes of the run: those that carry its mark, hold its folder as their folder or program, or see it among their mounts
/// as the source of one.
pub fn processes(scratch: &Path) -> Vec<i32> {
    let own = std::process::id() as i32;
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| *pid != own && belongs(*pid, scratch)).collect()
}

fn belongs(pid: i32, scratch: &Path) -> bool {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let state = std::fs::read_to_string(folder.join("stat")).unwrap_or_default();
    let zombie = state.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'));
    let kernel = std::fs::read(folder.join("cmdline")).is_ok_and(|line| line.is_empty());
    if state.is_empty() || zombie || kernel || is_ancestor(pid) {
        return false;
    }
    let mark = [MARK.as_bytes(), b"=", scratch.as_os_str().as_bytes()].concat();
    let environment = std::fs::read(folder.join("environ")).unwrap_or_default();
    if environment.split(|byte| *byte == 0).any(|variable| variable == mark) {
        return true;
    }
    let within = |link: &str| std::fs::read_link(folder.join(link)).is_ok_and(|path| path.starts_with(scratch));
    if within("cwd") || within("exe") {
        return true;
    }
    // In another mount namespace our folder appears as the root of a bind mount.
    let text = scratch.to_string_lossy();
    let mounts = std::fs::read_to_string(folder.join("mountinfo")).unwrap_or_default();
    let own = std::fs::read_link("/proc/self/ns/mnt").ok();
    std::fs::read_link(folder.join("ns/mnt")).ok() != own && mounts.lines().any(|line| line.contains(text.as_ref()))
}

/// Whether this is the suite's own parent, or further up: they may carry the mark of a run inside a run.
fn is_ancestor(pid: i32) -> bool {
    let mut at = std::process::id() as i32;
    for _ in 0..64 {
        let stat = std::fs::read_to_string(format!("/proc/{at}/stat")).unwrap_or_default();
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse::<i32>().ok());
        match parent {
            Some(parent) if parent == pid => return true,
            Some(parent) if parent > 1 => at = parent,
            _ => return false,
        }
    }
    false
}

/// Kills what is left of the run in `scratch`, each process by its id; removes its groups and mounts.
pub fn sweep(scratch: &Path) {
    for _ in 0..5 {
        let found = processes(scratch);
        if found.is_empty() {
            break;
        }
        for pid in found {
            if let Some(pid) = Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
        wait_for(Duration::from_secs(2), || processes(scratch).is_empty().then_some(()));
    }
    let known = known_keys(scratch);
    let is_known = |group: &&PathBuf| named_after(group).is_some_and(|key| known.contains(&key));
    groups().iter().filter(is_known).for_each(|group| remove_group(group));
    for line in mounts() {
        let Some(point) = line.split(' ').nth(4) else { continue };
        if Path::new(point).starts_with(scratch) {
            let _ = rustix::mount::unmount(point, rustix::mount::UnmountFlags::DETACH);
        }
    }
    detach_disks(scratch);
}

/// Has no device be a file of the run any more.
fn detach_disks(scratch: &Path) {
    for device in std::fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let file = std::fs::read(device.path().join("loop/backing_file")).unwrap_or_default();
        if Path::new(std::ffi::OsStr::from_bytes(&file)).starts_with(scratch) {
            let device = Path::new("/dev").join(device.file_name());
            let _ = std::process::Command::new("losetup").arg("--detach").arg(device).status();
        }
    }
}

/// Removes a group of no processes, and those beneath it. A killed process whose group is idle dies only once nobody else wants the
/// CPU: so the group no longer is.
fn remove_group(group: &Path) {
    let _ = std::fs::write(group.join("cpu.idle"), "0");
    let entries = std::fs::read_dir(group).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_group(&entry.path());
    }
    let is_gone = || (std::fs::remove_dir(group).is_ok() || !group.exists()).then_some(());
    wait_for(Duration::from_secs(5), is_gone);
}

fn mounts() -> BTreeSet<String> {
    let text = std::fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn groups() -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    add_groups(Path::new("/sys/fs/cgroup"), 0, &mut found);
    found
}

fn add_groups(folder: &Path, depth: u32, found: &mut BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if entry.file_name().to_string_lossy().contains("gleaner") {
            found.insert(entry.path());
        }
        if depth < 4 {
            add_groups(&entry.path(), depth + 1, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::shell;
    use crate::scratch::Scratch;

    #[test]
    fn a_process_that_stays_is_found_and_swept() {
        let scratch = Scratch::new().unwrap();
        let before = Before::look();
        assert_eq!(before.leftovers(scratch.path(), Duration::ZERO), Vec::<String>::new());
        let mut marked = shell("sleep 60").env(MARK, scratch.path()).spawn().unwrap();
        let mut inside = shell("sleep 60").current_dir(scratch.path()).spawn().unwrap();
        let found =
            wait_for(Duration::from_secs(5), || Some(processes(scratch.path())).filter(|found| found.len() >= 2));
        assert!(found.is_some(), "both must be found");
        assert!(before.leftovers(scratch.path(), Duration::ZERO)[0].contains("sleep"));
        sweep(scratch.path());
        marked.wait().unwrap();
        inside.wait().unwrap();
        assert_eq!(before.leftovers(scratch.path(), Duration::from_secs(5)), Vec::<String>::new());
    }
}

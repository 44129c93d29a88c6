//! What the kernel's files and the folder for state tell of this machine, its processes and its mounts.

use crate::detach::running;
use serde_json::{Map, Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Processes, mounts and files that are listed at most.
const LISTED_MAX: usize = 2000;
/// How deep folders are looked through.
const DEPTH_MAX: usize = 4;
/// A key is no larger.
const KEY_BYTES_MAX: u64 = 4096;

/// Versions, and what this machine is.
pub fn versions() -> Value {
    let kernel = rustix::system::uname();
    let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let program = fs::read_link("/proc/self/exe").ok();
    let release = read("/etc/os-release");
    let system = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or("unknown");
    json!({
        "gleaner": env!("CARGO_PKG_VERSION"),
        "protocol": wire::VERSION,
        "program": program.as_ref().map(|path| path.to_string_lossy().into_owned()),
        "program_bytes": program.and_then(|path| Some(fs::metadata(path).ok()?.len())),
        "kernel": text(kernel.release()),
        "kernel_build": text(kernel.version()),
        "machine": text(kernel.machine()),
        "host": text(kernel.nodename()),
        "system": system.trim_matches('"'),
        "uid": rustix::process::geteuid().as_raw(),
        "at_ms": wire::now_millis(),
        "uptime_s": read("/proc/uptime").split_whitespace().next().and_then(|seconds| seconds.parse::<f64>().ok()),
    })
}

/// What the parts that run here hold, and how the kernel sees them.
pub fn processes(state: &Path) -> Value {
    let roles =
        ["hub", "worker"].into_iter().filter_map(|role| Some((role.to_owned(), process(running(state, role)?))));
    json!({ "state_dir": state.to_string_lossy(), "running": roles.collect::<Map<_, _>>() })
}

fn process(pid: i32) -> Value {
    let folder = format!("/proc/{pid}");
    let status = read(&format!("{folder}/status"));
    let wanted = ["Name", "State", "Threads", "VmRSS", "VmHWM", "FDSize", "NoNewPrivs", "CapEff"];
    let facts = status.lines().filter_map(|line| line.split_once(':')).filter(|(name, _)| wanted.contains(name));
    let mut facts: Map<_, _> = facts.map(|(name, value)| (name.to_owned(), value.trim().into())).collect();
    facts.insert("pid".into(), pid.into());
    facts.insert("descriptors".into(), fs::read_dir(format!("{folder}/fd")).map(Iterator::count).ok().into());
    facts.insert("cgroup".into(), read(&format!("{folder}/cgroup")).trim().into());
    facts.into()
}

/// Memory, load, what waits for what; requests that FUSE has not been answered; processes that no signal ends.
pub fn kernel(state: Option<&Path>) -> String {
    let mut text = String::new();
    let files = ["/proc/loadavg", "/proc/meminfo", "/proc/pressure/cpu", "/proc/pressure/memory", "/proc/pressure/io"];
    for file in files {
        let body: String = read(file).lines().take(60).map(|line| format!("{line}\n")).collect();
        text.push_str(&format!("## {file}\n{body}\n"));
    }
    if let Some(room) = state.and_then(|state| rustix::fs::statvfs(state).ok()) {
        let (free, all) = (room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize);
        let files = (room.f_ffree, room.f_files);
        text.push_str(&format!("## the disk of the folder for state\n{free} of {all} bytes free, "));
        text.push_str(&format!("{} of {} files\n\n", files.0, files.1));
    }
    text.push_str("## FUSE connections: requests that wait for an answer\n");
    for connection in entries(Path::new("/sys/fs/fuse/connections")) {
        let waiting = fs::read_to_string(connection.join("waiting")).unwrap_or_else(|error| format!("({error})"));
        let name = connection.file_name().unwrap_or_default().to_string_lossy().into_owned();
        text.push_str(&format!("{name}: {}\n", waiting.trim()));
    }
    text.push_str("\n## processes that no signal ends now (state D): number, name, where in the kernel, group\n");
    stuck().iter().for_each(|line| text.push_str(line));
    text.push_str("\n## mounts of FUSE and overlayfs\n");
    let mounts = read("/proc/self/mountinfo");
    let mounts = mounts.lines().filter(|line| line.contains(" - fuse") || line.contains(" - overlay"));
    mounts.take(LISTED_MAX).for_each(|line| text.push_str(&format!("{line}\n")));
    text
}

fn stuck() -> Vec<String> {
    let all = entries(Path::new("/proc"));
    let numbered =
        all.iter().filter(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes()[0].is_ascii_digit()));
    let stuck = numbered.filter_map(|path| {
        let status = fs::read_to_string(path.join("status")).ok()?;
        status.lines().find(|line| line.starts_with("State:") && line.contains('D'))?;
        let name = status.lines().next()?.trim_start_matches("Name:").trim().to_owned();
        let read = |file: &str| fs::read_to_string(path.join(file)).unwrap_or_default().trim().replace('\n', " ");
        let number = path.file_name()?.to_string_lossy().into_owned();
        Some(format!("{number} {name} {} {}\n", read("wchan"), read("cgroup")))
    });
    stuck.take(LISTED_MAX).collect()
}

/// The files in the folder for state: mode, size, and how long ago each was written.
pub fn files(state: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    let mut text = String::from("mode, bytes, seconds since it was written, path\n");
    for path in below(state) {
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        let age = found.modified().ok().and_then(|at| at.elapsed().ok()).map_or(0, |age| age.as_secs());
        let name = path.strip_prefix(state).unwrap_or(&path).to_string_lossy().into_owned();
        text.push_str(&format!("{:06o} {} {age} {name}\n", found.mode(), found.len()));
    }
    text
}

/// The files of keys there.
pub fn key_files(state: &Path) -> Vec<PathBuf> {
    let is_key = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "key")
            && fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && found.len() <= KEY_BYTES_MAX)
    };
    below(state).into_iter().filter(is_key).collect()
}

/// What is in a folder and in those in it, but behind no mount and no link.
fn below(folder: &Path) -> Vec<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let device = fs::symlink_metadata(folder).map_or(0, |found| found.dev());
    let (mut found, mut level) = (Vec::new(), vec![folder.to_owned()]);
    for _ in 0..DEPTH_MAX {
        let mut next = Vec::new();
        for path in level.iter().flat_map(|folder| entries(folder)) {
            if found.len() >= LISTED_MAX {
                return found;
            }
            if fs::symlink_metadata(&path).is_ok_and(|at| at.is_dir() && at.dev() == device) {
                next.push(path.clone());
            }
            found.push(path);
        }
        level = next;
    }
    found
}

/// What is in a folder, in order; no more than is looked at.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).take(LISTED_MAX * 10).collect();
    paths.sort();
    paths
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

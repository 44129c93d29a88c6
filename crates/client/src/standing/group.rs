//! The control groups that a process is in, and which of them bound it.

use std::path::{Path, PathBuf};

/// Where they are, both versions.
const MOUNTS: &str = "/sys/fs/cgroup";
/// By controller of version 1, or `""` for version 2: a file with a bound, and what is bounded.
const BOUNDS: [(&str, &str, &str); 8] = [
    ("", "memory.max", "memory"),
    ("", "memory.high", "memory"),
    ("", "cpu.max", "processor time"),
    ("", "pids.max", "processes"),
    ("memory", "memory.limit_in_bytes", "memory"),
    ("memory", "memory.soft_limit_in_bytes", "memory"),
    ("cpu", "cpu.cfs_quota_us", "processor time"),
    ("pids", "pids.max", "processes"),
];
/// A bound of memory in bytes from which on there is none: version 1 has the largest number of pages.
const NONE: u64 = 1 << 60;

/// A group with a bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bounded {
    /// Of version 1; empty for version 2.
    controller: &'static str,
    group: PathBuf,
    what: &'static str,
}

impl Bounded {
    /// The groups with bounds that `process` is in, or that these are in.
    pub fn of(process: &str) -> Vec<Self> {
        let told = std::fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
        Self::among(&told, &|controller, group, file| {
            let rest = group.strip_prefix("/").unwrap_or(group);
            std::fs::read_to_string(Path::new(MOUNTS).join(controller).join(rest).join(file)).ok()
        })
    }

    fn among(told: &str, read: &dyn Fn(&str, &Path, &str) -> Option<String>) -> Vec<Self> {
        let mut all = Vec::new();
        for (controller, file, what) in BOUNDS {
            let Some(own) = group_of(told, controller) else { continue };
            // Those above bind as well, but for the root, which has no bounds.
            let above = own.ancestors().filter(|group| group.parent().is_some());
            let bounded = above.filter(|group| read(controller, group, file).is_some_and(|value| is_bound(&value)));
            all.extend(bounded.map(|group| Self { controller, group: group.to_owned(), what }));
        }
        all
    }

    /// What is bounded for processes in this group, and for `process` by no group at all. (Of two bounds none is taken for the better one:
    /// daemons that are started in either would make way for each other all day.)
    pub fn beyond(&self, process: i32) -> Option<&'static str> {
        let told = std::fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
        let is_bounded = || Self::of(&process.to_string()).iter().any(|bounded| bounded.what == self.what);
        (self.is_beyond(&told) && !is_bounded()).then_some(self.what)
    }

    fn is_beyond(&self, told: &str) -> bool {
        group_of(told, self.controller).is_some_and(|group| !group.starts_with(&self.group))
    }
}

/// The group in what `/proc/PID/cgroup` tells of a controller.
fn group_of<'a>(told: &'a str, controller: &str) -> Option<&'a Path> {
    let line = told.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, group) = rest.split_once(':')?;
        let is_it = match controller {
            "" => controllers.is_empty(),
            _ => controllers.split(',').any(|one| one == controller),
        };
        is_it.then_some(group)
    });
    line.map(Path::new)
}

/// Whether this is a bound: `max`, `max 100000`, `-1` and what is larger than any machine are none.
fn is_bound(value: &str) -> bool {
    let first = value.split_whitespace().next().unwrap_or("max");
    first.parse::<u64>().is_ok_and(|value| value < NONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_binds_those_in_it_and_no_others() {
        let told = "5:cpu,cpuacct:/job/a\n4:memory:/job/a\n1:name=systemd:/x\n0::/user.slice/job.scope\n";
        let values = |controller: &str, group: &Path, file: &str| {
            let value = match (controller, group.to_str()?, file) {
                ("memory", "/job", "memory.limit_in_bytes") => "1000000\n",
                ("memory", _, "memory.limit_in_bytes") => "9223372036854771712\n",
                ("cpu", _, "cpu.cfs_quota_us") => "-1\n",
                ("", "/user.slice/job.scope", "cpu.max") => "50000 100000\n",
                ("", _, "cpu.max") => "max 100000\n",
                ("", _, _) => "max\n",
                _ => return None,
            };
            Some(value.to_owned())
        };
        let bounded = Bounded::among(told, &values);
        let found: Vec<_> = bounded.iter().map(|one| (one.group.to_str().unwrap(), one.what)).collect();
        assert_eq!(found, [("/user.slice/job.scope", "processor time"), ("/job", "memory")]);
        let beyond = |told: &str| bounded.iter().filter(|one| one.is_beyond(told)).count();
        assert_eq!((beyond(told), beyond("4:memory:/job\n0::/user.slice/job.scope/in\n")), (0, 0));
        assert_eq!((beyond("4:memory:/jobs\n0::/user.slice/other.scope\n"), beyond("")), (2, 0));
    }
}

//! Reads what a container lets guests have: the control groups above theirs that bound processor time, and what others in them use of it
//! ([`sched::sense::bound`]).

use crate::sandbox::Levers;
use sched::sense::bound::{Bound, Counts, Quota, throttled};
use sched::sense::parse;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::own_time;

/// The groups, and what was counted at the last look.
#[derive(Debug, Default)]
pub struct Bounds {
    folders: Vec<(PathBuf, Option<Counts>)>,
}

impl Bounds {
    /// Of the groups above this worker's guests.
    pub fn new(levers: &Levers) -> Self {
        Self { folders: levers.bounding().into_iter().map(|folder| (folder, None)).collect() }
    }

    /// The tightest of them since the last look; `None`: there is none, or this is the first look.
    pub fn look(&mut self, levers: &Levers) -> Option<Bound> {
        let bounds = self.folders.iter_mut().filter_map(|(folder, before)| {
            let quota = quota(folder)?;
            let ours = levers.cpu_used().unwrap_or_default() + levers.cpu_used_beside(folder) + own_time();
            let now = counts(folder, ours)?;
            Bound::between(&quota, &before.replace(now)?, &now)
        });
        bounds.min_by(|one, other| one.left().total_cmp(&other.left()))
    }
}

fn read(folder: &Path, name: &str) -> Option<String> {
    fs::read_to_string(folder.join(name)).ok()
}

fn quota(folder: &Path) -> Option<Quota> {
    match read(folder, "cpu.max") {
        Some(text) => Quota::of_version_2(&text),
        None => Quota::of_version_1(&read(folder, "cpu.cfs_quota_us")?, &read(folder, "cpu.cfs_period_us")?),
    }
}

fn counts(folder: &Path, ours: Duration) -> Option<Counts> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let stat = read(folder, "cpu.stat")?;
    // Of version 1 another controller counts that, which may be mounted at the same place.
    let used_ns = parse::usage_ns(&stat).or_else(|| parse::number(&read(folder, "cpuacct.usage")?));
    Some(Counts {
        at_ns: now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs(),
        used_ns,
        throttled: throttled(&stat).unwrap_or_default(),
        ours_ns: ours.as_nanos() as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_s_quota_and_what_others_use_of_it_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let tree = folder.path().join("gleaner-test");
        fs::create_dir(&tree).expect("a folder");
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
        write("cpu.max", "max 100000\n");
        write("cpu.stat", "usage_usec 5\nnr_periods 1\nnr_throttled 0\n");
        let levers = Levers::beneath(tree);
        let mut bounds = Bounds::new(&levers);
        assert_eq!((bounds.look(&levers), bounds.look(&levers)), (None, None), "no bound");
        write("cpu.max", "50000 100000\n");
        assert_eq!(bounds.look(&levers), None, "the first look");
        write("cpu.stat", "usage_usec 99000000\nnr_periods 1\nnr_throttled 0\n");
        let bound = bounds.look(&levers).expect("the second");
        assert_eq!((bound.processors, bound.left()), (0.5, 0.0));
        assert_eq!(Bounds::new(&Levers::default()).look(&Levers::default()), None);
    }
}

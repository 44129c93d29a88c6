//! Reads the kernel's counters: which files, how many of them, and when. What they say is [`sched::sense`]'s.
//!
//! A reading looks at every processor, at the processes that used one lately, and at some of the others in turn, so that its cost is bounded
//! whatever runs here. Only of those that used one are threads and cgroups looked at.

use crate::sandbox::hierarchy;
use rustix::process::Pid;
use rustix::time::{ClockId, clock_gettime};
use sched::sense::load::{Group, Reading, Thread, weight_of_group, weight_of_nice};
use sched::sense::parse::{self, Process, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Processes that are looked at in one reading, besides those that used a processor lately: the others come in turn.
const OTHERS_MAX: usize = 256;
/// Threads that are looked at in one reading.
const THREADS_MAX: usize = 256;
/// Readings after which the weights of cgroups are read anew.
const WEIGHTS_KEPT: u32 = 6;
/// Longest text that is read, in bytes: `/proc/stat` of a large machine.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Ticks of a process from one reading to the next that make it worth a look.
const TICKS_MIN: u64 = 1;

/// A reader of counters.
#[derive(Debug)]
pub struct Reader {
    /// The name of the cgroup that holds our guests.
    guests: Option<String>,
    /// Where the hierarchies are mounted that share processors out: of version 1, and of version 2.
    roots: [Option<PathBuf>; 2],
    autogroups: bool,
    /// Each process that was looked at: when it began, and its ticks.
    known: BTreeMap<u32, (u64, u64)>,
    /// Those that used a processor at the last reading or the one before.
    active: BTreeMap<u32, u8>,
    /// The last of the others that was looked at.
    cursor: u32,
    /// Weights of cgroups; none: no sharing of processors goes by it.
    weights: BTreeMap<String, Option<f64>>,
    readings: u32,
    text: String,
}

impl Reader {
    /// One that knows our guests by the name of the cgroup that holds them.
    pub fn new(guests: Option<&str>) -> Self {
        let mut text = String::new();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let enabled = read(Path::new("/proc/sys/kernel/sched_autogroup_enabled"), &mut text).is_ok();
        Self {
            guests: guests.map(str::to_owned),
            roots: [("cgroup", "cpu"), ("cgroup2", "")].map(|(kind, with)| hierarchy(&mounts, kind, with)),
            autogroups: enabled && parse::number(&text) == Some(1),
            known: BTreeMap::new(),
            active: BTreeMap::new(),
            cursor: 0,
            weights: BTreeMap::new(),
            readings: 0,
            text,
        }
    }

    /// Reads all that is worth a look.
    pub fn read(&mut self) -> io::Result<Reading> {
        if self.readings.is_multiple_of(WEIGHTS_KEPT) {
            self.weights.clear();
        }
        self.readings = self.readings.wrapping_add(1);
        let now = clock_gettime(ClockId::Boottime);
        let at_ns = now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs();
        read(Path::new("/proc/stat"), &mut self.text)?;
        let strange = || io::Error::new(io::ErrorKind::InvalidData, "/proc/stat is not as expected");
        let (cpus, running) = parse::stat(&self.text).ok_or_else(strange)?;
        read(Path::new("/proc/loadavg"), &mut self.text)?;
        let load_average = parse::load_average(&self.text).unwrap_or_default();
        let threads = self.threads()?;
        Ok(Reading { at_ns, cpus, running, load_average, threads })
    }

    /// The way from the root to where a process is, as the kernel shares processors out. `None`: there is no such process.
    pub fn path(&mut self, id: u32) -> Option<Vec<Group>> {
        read(&PathBuf::from(format!("/proc/{id}/cgroup")), &mut self.text).ok()?;
        let (version, path) = parse::cgroup(&self.text).map(|(version, path)| (version, path.to_owned()))?;
        let mut groups = Vec::new();
        let mut name = String::new();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            name.push('/');
            name.push_str(part);
            if let Some(weight) = self.weight(version, &name) {
                groups.push(Group { name: name.clone(), weight });
            }
        }
        if groups.is_empty() && self.autogroups {
            read(&PathBuf::from(format!("/proc/{id}/autogroup")), &mut self.text).ok()?;
            let group = parse::autogroup(&self.text);
            groups.extend(
                group.map(|(number, nice)| Group { name: format!("autogroup {number}"), weight: weight_of_nice(nice) }),
            );
        }
        Some(groups)
    }

    fn threads(&mut self) -> io::Result<Vec<Thread>> {
        let mut ids: Vec<u32> = Vec::new();
        for entry in std::fs::read_dir("/proc")? {
            ids.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
        }
        ids.sort_unstable();
        let there: BTreeSet<u32> = ids.iter().copied().collect();
        self.known.retain(|id, _| there.contains(id));
        self.active.retain(|id, _| there.contains(id));
        let chosen = self.choose(&ids);
        let mut threads = Vec::new();
        for id in chosen {
            if let Some(process) = self.process(id) {
                self.look(id, &process, &mut threads);
            }
        }
        Ok(threads)
    }

    /// Whom to look at: those that used a processor, and others in turn, the newest first of all.
    fn choose(&mut self, ids: &[u32]) -> Vec<u32> {
        let mut chosen: Vec<u32> = self.active.keys().copied().collect();
        let is_new = |id: &&u32| !self.known.contains_key(id) && !self.active.contains_key(id);
        let mut others: Vec<u32> = ids.iter().rev().filter(is_new).copied().take(OTHERS_MAX).collect();
        let at = ids.partition_point(|id| *id <= self.cursor);
        let in_turn = ids[at..].iter().chain(&ids[..at]).copied();
        let known = in_turn.filter(|id| self.known.contains_key(id) && !self.active.contains_key(id));
        let rest: Vec<u32> = known.take(OTHERS_MAX - others.len()).collect();
        self.cursor = rest.last().copied().unwrap_or(self.cursor);
        others.extend(rest);
        chosen.extend(others);
        chosen
    }

    /// The state of a process, if it used a processor lately.
    fn process(&mut self, id: u32) -> Option<Process> {
        /// For so many readings it stays worth a look.
        const STAYS: u8 = 2;
        read(&PathBuf::from(format!("/proc/{id}/stat")), &mut self.text).ok()?;
        let process = parse::process(&self.text)?;
        let before = self.known.insert(id, (process.started, process.ticks));
        let ticks = match before {
            Some((started, ticks)) if started == process.started => process.ticks.saturating_sub(ticks),
            // What it used before is of no account, but what it will use is.
            _ => process.ticks,
        };
        let left = match ticks >= TICKS_MIN {
            true => STAYS,
            false => self.active.get(&id).copied().unwrap_or_default().saturating_sub(1),
        };
        match left {
            0 => drop(self.active.remove(&id)),
            _ => drop(self.active.insert(id, left)),
        }
        (left > 0).then_some(process)
    }

    /// Looks at the threads of a process.
    fn look(&mut self, id: u32, process: &Process, threads: &mut Vec<Thread>) {
        if threads.len() >= THREADS_MAX {
            return;
        }
        let Some(path) = self.path(id) else { return };
        let is_guest = self.guests.as_ref().is_some_and(|name| path.iter().any(|group| group.name.contains(name)));
        if process.threads <= 1 {
            threads.extend(self.thread(&format!("/proc/{id}"), id, Some(*process), &path, is_guest));
            return;
        }
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{id}/task")) else { return };
        for task in tasks.flatten().take(THREADS_MAX - threads.len()) {
            let Some(thread) = task.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            threads.extend(self.thread(&format!("/proc/{id}/task/{thread}"), thread, None, &path, is_guest));
        }
    }

    fn thread(
        &mut self,
        folder: &str,
        id: u32,
        process: Option<Process>,
        path: &[Group],
        is_guest: bool,
    ) -> Option<Thread> {
        read(&PathBuf::from(format!("{folder}/schedstat")), &mut self.text).ok()?;
        let ran = parse::schedstat(&self.text)?;
        let process = match process {
            Some(process) => process,
            None => {
                read(&PathBuf::from(format!("{folder}/stat")), &mut self.text).ok()?;
                parse::process(&self.text)?
            }
        };
        Some(Thread { id, process, ran, path: path.to_vec(), pinned: pinned(id), is_guest })
    }

    /// What a cgroup counts among its siblings; `None`: it is none of those between which processors are shared.
    fn weight(&mut self, version: Version, name: &str) -> Option<f64> {
        if let Some(known) = self.weights.get(name) {
            return *known;
        }
        let [first, second] = &self.roots;
        let root = if version == Version::One { first } else { second };
        let weight = weight(version, root.as_deref()?, name);
        self.weights.insert(name.to_owned(), weight);
        weight
    }
}

fn weight(version: Version, root: &Path, name: &str) -> Option<f64> {
    let group = root.join(name.trim_start_matches('/'));
    let number = |file: &str| {
        let mut text = String::new();
        read(&group.join(file), &mut text).ok()?;
        parse::number(&text)
    };
    let (idle, shares, weight) = match version {
        Version::One => (number("cpu.idle"), number("cpu.shares"), None),
        Version::Two => (number("cpu.idle"), None, number("cpu.weight")),
    };
    (shares.is_some() || weight.is_some() || idle == Some(1)).then(|| weight_of_group(idle, shares, weight))
}

/// The only processor that a thread may use, if there is only one.
fn pinned(id: u32) -> Option<u32> {
    let allowed = rustix::thread::sched_getaffinity(Pid::from_raw(id.try_into().ok()?)).ok()?;
    if allowed.count() != 1 {
        return None;
    }
    (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).and_then(|cpu| cpu.try_into().ok())
}

fn read(path: &Path, text: &mut String) -> io::Result<()> {
    text.clear();
    let mut bytes = std::mem::take(text).into_bytes();
    let read = File::open(path)?.take(TEXT_BYTES_MAX as u64).read_to_end(&mut bytes);
    // Names of processes may be anything.
    *text = String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    read.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sched::sense::load::Load;

    #[test]
    fn a_busy_process_is_found_and_its_way_known() {
        let mut reader = Reader::new(None);
        let before = reader.read().expect("counters");
        let began = std::time::Instant::now();
        while began.elapsed().as_millis() < 300 {
            std::hint::spin_loop();
        }
        let after = reader.read().expect("counters");
        let load = Load::between(&before, &after).expect("a while");
        assert!(load.seconds > 0.25 && !load.cpus.is_empty());
        let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let own = after.threads.iter().find(|known| known.id == thread).expect("this thread");
        assert!(own.ran.run_ns > 10_000_000, "{own:?}");
        assert_eq!(reader.path(std::process::id()), Some(own.path.clone()));
    }

    #[test]
    fn who_is_gone_is_nobody() {
        let mut reader = Reader::new(Some("gleaner"));
        assert_eq!(reader.path(u32::MAX), None);
    }
}

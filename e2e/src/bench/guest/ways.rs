//! The ways to have guests on a machine, and guests that run in one of them.

use super::boinc::{self, Poller};
use super::load::{READY, SUBCOMMAND, cpu_ns};
use super::ours::Ours;
use crate::bench::group::Group;
use crate::error::{Context, Error, Result};
use crate::process::{pause, wait_for};
use rustix::process::{Pid, Signal};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long a guest may take to begin, and to be gone.
const BEGIN: Duration = Duration::from_secs(60);
const GONE: Duration = Duration::from_secs(30);

/// How long guests are left to themselves before anything is measured: they are to have been there for a while, as guests that never rest have.
const SETTLE: Duration = Duration::from_secs(1);

/// How guests are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// As the owner's programs are, in a session of another user: a control group of default weight.
    Equal,
    /// As the owner's programs are, in the owner's own session.
    Same,
    /// At nice 19, in a session of another user.
    Nice,
    /// As BOINC does it: see [`boinc`].
    Boinc,
    /// By `remrun`, on a worker.
    Ours,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Equal, Self::Same, Self::Nice, Self::Boinc, Self::Ours];

    /// What it is called on the command line and in figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Same => "same",
            Self::Nice => "nice19",
            Self::Boinc => "boinc",
            Self::Ours => "ours",
        }
    }

    /// Those in a list of names, or what is wrong with it.
    pub fn list(names: &str) -> Result<Vec<Self>> {
        let known = || Self::ALL.map(Self::name).join(", ");
        let one = |name: &str| Self::ALL.into_iter().find(|way| way.name() == name);
        let wrong = |name: &str| Error::Missing(format!("there is no arrangement {name}: there are {}", known()));
        names.split(',').map(|name| one(name).ok_or_else(|| wrong(name))).collect()
    }
}

/// Where guests are begun.
#[derive(Debug)]
pub struct Host {
    /// The session of the owner.
    pub owner: Group,
    /// The session of another user.
    pub other: Group,
    /// A pool with a worker, if one is wanted.
    pub ours: Option<Ours>,
    /// The suite's binary.
    pub program: PathBuf,
    /// A folder on disk for what plain guests write.
    pub place: PathBuf,
}

impl Host {
    /// Begins guests, each of which does what its words say, and returns when all are at work.
    pub fn begin(&self, way: Way, loads: &[Vec<String>]) -> Result<Guests> {
        let mut guests = Guests { way, children: Vec::new(), mark: String::new(), seen: BTreeMap::new(), poller: None };
        // What a guest does not read of its arguments tells which guests are ours among all processes.
        guests.mark = format!("guest-{}-{:x}", std::process::id(), rand::random::<u32>());
        let mut outputs = Vec::new();
        for load in loads {
            let mut child = self.command(way, load, &guests.mark)?.spawn().context(|| "cannot begin a guest".into())?;
            outputs.extend(child.stdout.take());
            guests.children.push(child);
        }
        for output in outputs {
            wait_until_ready(output)?;
        }
        guests.look();
        if guests.seen.len() < loads.len() {
            return Err(Error::Product(format!("of {} guests {} are there", loads.len(), guests.seen.len())));
        }
        // What begins a guest has more to do behind it, which is no part of having one.
        pause(SETTLE);
        guests.poller = (way == Way::Boinc).then(|| Poller::start(guests.pids()));
        Ok(guests)
    }

    fn command(&self, way: Way, load: &[String], mark: &str) -> Result<Command> {
        let words = [&[SUBCOMMAND.to_owned()], load, &[mark.to_owned()]].concat();
        let mut command = match (way, &self.ours) {
            (Way::Ours, Some(ours)) => ours.command(&self.program, &words),
            (Way::Ours, None) => return Err(Error::Missing("there is no pool".to_owned())),
            _ => {
                let mut command = Command::new(&self.program);
                command.args(&words).current_dir(&self.place);
                command
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        match way {
            Way::Same => self.owner.holds(&mut command)?,
            Way::Equal | Way::Nice | Way::Boinc => self.other.holds(&mut command)?,
            Way::Ours => {}
        }
        // SAFETY: between fork and exec the closure makes system calls only.
        unsafe {
            command.pre_exec(move || {
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
                if matches!(way, Way::Nice | Way::Boinc) {
                    rustix::process::setpriority_process(None, 19)?;
                }
                if way == Way::Boinc { boinc::be_idle() } else { Ok(()) }
            });
        }
        Ok(command)
    }
}

/// Reads on in a thread of its own once a guest has said that it is there: nobody stops because nobody listens.
fn wait_until_ready(output: ChildStdout) -> Result<()> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
            let _ = sender.send(line == READY);
        }
    });
    match receiver.recv_timeout(BEGIN) {
        Ok(true) => Ok(()),
        _ => Err(Error::Product("a guest did not begin".to_owned())),
    }
}

/// Guests at work. Dropping ends them.
#[derive(Debug)]
pub struct Guests {
    way: Way,
    children: Vec<Child>,
    mark: String,
    /// CPU time, in nanoseconds, of each guest's process when last looked at.
    seen: BTreeMap<i32, u64>,
    poller: Option<Poller>,
}

impl Guests {
    /// The processes of the guests that are there.
    pub fn pids(&self) -> Vec<i32> {
        self.seen.keys().copied().collect()
    }

    /// CPU time that the guests have got, in seconds.
    pub fn cpu_s(&self) -> f64 {
        self.seen.keys().filter_map(|pid| cpu_ns(*pid)).sum::<u64>() as f64 / 1e9
    }

    /// Looks which guests there are; returns the CPU time, in seconds, of those that have gone since: their work is lost.
    pub fn look(&mut self) -> f64 {
        let found = match self.way {
            Way::Ours => marked(&self.mark),
            _ => self.children.iter_mut().filter_map(running).collect(),
        };
        let now: BTreeMap<i32, u64> = found.into_iter().filter_map(|pid| Some((pid, cpu_ns(pid)?))).collect();
        let lost: u64 = self.seen.iter().filter(|(pid, _)| !now.contains_key(pid)).map(|(_, cpu)| cpu).sum();
        self.seen = now;
        lost as f64 / 1e9
    }

    /// Has them run on one CPU only.
    pub fn pin(&self, cpu: usize) -> Result<()> {
        let mut set = rustix::thread::CpuSet::new();
        set.set(cpu);
        for pid in self.pids() {
            let pinned = rustix::thread::sched_setaffinity(Pid::from_raw(pid), &set);
            pinned.context(|| "cannot have a guest stay on one CPU".to_owned())?;
        }
        Ok(())
    }
}

impl Drop for Guests {
    fn drop(&mut self) {
        drop(self.poller.take());
        for child in &mut self.children {
            // `remrun` passes this on to the guest; the others are just ended.
            let signal = if self.way == Way::Ours { Signal::TERM } else { Signal::KILL };
            let _ = rustix::process::kill_process(Pid::from_child(child), signal);
        }
        for child in &mut self.children {
            let ended = wait_for(GONE, || child.try_wait().ok().flatten());
            if ended.is_none() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        let gone = wait_for(GONE, || marked(&self.mark).is_empty().then_some(()));
        if gone.is_none() {
            eprintln!("bench: guests that do not go: {:?}", marked(&self.mark));
        }
    }
}

fn running(child: &mut Child) -> Option<i32> {
    matches!(child.try_wait(), Ok(None)).then(|| child.id() as i32)
}

/// The guests' processes with this mark; not what started them and carries it too.
fn marked(mark: &str) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_guest = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        words.get(1) == Some(&SUBCOMMAND.as_bytes()) && words.contains(&mark.as_bytes())
    };
    pids.filter(is_guest).collect()
}

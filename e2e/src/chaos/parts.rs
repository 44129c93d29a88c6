//! The parts of a pool, and what is done to them: killed, stopped, cut off, left without room; and all of it made good again.

use super::disks::Disks;
use super::jobs::Job;
use super::plan::{Fault, Part, WITH_DISKS};
use super::work::disturb;
use crate::dice::Dice;
use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::process::{Daemon, Run, wait_for};
use crate::relay::Relay;
use crate::scenario::{END_BOUND, descendants, stop};
use rustix::process::{Pid, Signal};
use std::path::PathBuf;
use std::time::Duration;

/// The bound within which a pool of which all parts are back runs commands elsewhere again.
const SERVES_BOUND: Duration = Duration::from_secs(40);
/// The bound within which nothing of a task is left after its end, when all parts are back.
const LEFT_BOUND: Duration = Duration::from_secs(20);
/// How long commands wait for a link that is down, in seconds: less than by default, so that a campaign has many rounds.
const LINK_WAIT_S: &str = "6";

/// What makes a fault good again.
#[derive(Debug)]
pub enum Heal {
    /// Processes go on.
    Continue(Vec<Pid>),
    /// A link passes all again.
    Mend(Part),
    /// A disk has room again.
    Empty(Part),
    /// A disk is mounted anew, and its part begins anew.
    Replace(Part),
    /// A disk can be written to again.
    Writable,
    /// A part begins anew.
    Revive(Part),
    /// All parts begin anew, in this order.
    ReviveAll(u64),
}

/// A pool with a relay before each worker and the client, and disks of its own.
#[derive(Debug)]
pub struct Parts {
    /// The pool.
    pub pool: Pool,
    relays: Vec<Relay>,
    client_relay: Relay,
    disks: Disks,
}

impl Parts {
    /// Puts relays and disks between the parts of a pool.
    pub fn new(mut pool: Pool) -> Result<Self> {
        let hub = pool.hub_address()?;
        pool.client.env.push(("GLEANER_LINK_WAIT_S".into(), LINK_WAIT_S.into()));
        let client_relay = Relay::to(&hub)?;
        pool.redirect_client(&client_relay.address())?;
        let disks = Disks::mount(&mut pool)?;
        let relays = (0..pool.workers.len()).map(|_| Relay::to(&hub)).collect::<Result<Vec<_>>>()?;
        let mut parts = Self { pool, relays, client_relay, disks };
        for index in 0..parts.relays.len() {
            parts.start_worker(index)?;
        }
        parts.pool.wait_for_workers(parts.relays.len())?;
        Ok(parts)
    }

    fn start_worker(&mut self, index: usize) -> Result<()> {
        self.pool.redirect_worker(index, &self.relays[index].address())
    }

    /// Has something go wrong. What makes it good again, and after how long; none: nothing was there to which it could be done.
    pub fn begin(&mut self, fault: Fault, jobs: &mut [Job], dice: &mut Dice) -> Option<(Duration, Option<Heal>)> {
        match fault {
            Fault::Kill(part, time) => {
                let pids = self.processes(part, jobs, dice, true);
                send(&pids, Signal::KILL);
                let revives = matches!(part, Part::Worker(_) | Part::Hub).then_some(Heal::Revive(part));
                (!pids.is_empty()).then_some((time, revives))
            }
            Fault::Stop(part, time) => {
                let mut pids = self.processes(part, jobs, dice, false);
                let is_none = pids.is_empty();
                pids.iter().for_each(|pid| stop(*pid));
                if part == Part::Guest {
                    // With its task a caller stops, as with its job in a shell.
                    pids.extend(jobs.iter().filter_map(Job::pid));
                }
                (!is_none).then_some((time, Some(Heal::Continue(pids))))
            }
            Fault::Cut(part, time) => {
                self.relay(part).cut();
                Some((time, Some(Heal::Mend(part))))
            }
            Fault::FillDisk(part, time) => self.disks.fill(part).then_some((time, Some(Heal::Empty(part)))),
            Fault::FailDisk(part, time) => self.disks.fail(part).then_some((time, Some(Heal::Replace(part)))),
            Fault::ReadOnly(time) => {
                send(&self.daemons(), Signal::KILL);
                self.disks.set_read_only(Part::Daemon, true).then_some((time, Some(Heal::Writable)))
            }
            Fault::Change | Fault::Vanish => {
                let places: Vec<PathBuf> = jobs.iter().map(|job| job.place.clone()).collect();
                disturb(&places, fault == Fault::Vanish);
                Some((Duration::ZERO, None))
            }
            Fault::RestartAll(order) => {
                let mut all: Vec<usize> = (0..=self.pool.workers.len()).collect();
                Dice(order).shuffle(&mut all);
                for at in all {
                    match self.pool.workers.get_mut(at) {
                        Some(worker) => worker.kill(),
                        None => self.pool.hub.kill(),
                    }
                }
                send(&self.daemons(), Signal::KILL);
                Some((Duration::ZERO, Some(Heal::ReviveAll(order.rotate_left(7)))))
            }
        }
    }

    /// Makes something good again.
    pub fn heal(&mut self, heal: Heal) -> Result<()> {
        match heal {
            Heal::Continue(pids) => {
                send(&pids, Signal::CONT);
                Ok(())
            }
            Heal::Mend(part) => {
                self.relay(part).mend();
                Ok(())
            }
            Heal::Empty(part) => {
                self.disks.empty(part);
                Ok(())
            }
            Heal::Replace(part) => self.replace(part),
            Heal::Writable => {
                self.disks.set_read_only(Part::Daemon, false);
                Ok(())
            }
            Heal::Revive(Part::Hub) => self.revive_hub(),
            Heal::Revive(Part::Worker(index)) => self.revive_worker(index),
            Heal::Revive(_) => Ok(()),
            Heal::ReviveAll(order) => {
                let mut all: Vec<usize> = (0..=self.pool.workers.len()).collect();
                Dice(order).shuffle(&mut all);
                all.into_iter()
                    .try_for_each(|at| if at < self.relays.len() { self.revive_worker(at) } else { self.revive_hub() })
            }
        }
    }

    /// Gives a part another disk for one that has failed, with what was written out for good.
    fn replace(&mut self, part: Part) -> Result<()> {
        if !self.disks.has_failed(part) {
            return Ok(());
        }
        match part {
            Part::Worker(index) => self.pool.workers[index].kill(),
            Part::Hub => self.pool.hub.kill(),
            _ => {}
        }
        // Each command that comes meanwhile starts a client daemon.
        let end = || {
            if part == Part::Daemon {
                send(&self.daemons(), Signal::KILL);
            }
        };
        self.disks.replace(part, end)?;
        self.heal(Heal::Revive(part))
    }

    fn revive_hub(&mut self) -> Result<()> {
        // A hub without a disk that works does not begin. When it has one again it does.
        if self.pool.hub.check().is_err() && self.disks.works(Part::Hub) { self.pool.restart_hub() } else { Ok(()) }
    }

    fn revive_worker(&mut self, index: usize) -> Result<()> {
        let works = self.disks.works(Part::Worker(index));
        if self.pool.workers[index].check().is_err() && works { self.start_worker(index) } else { Ok(()) }
    }

    /// Makes all good that is not yet, and waits until commands run elsewhere again. What is wrong if they do not, and how long it took.
    pub fn recover(&mut self) -> Result<(Vec<String>, Duration)> {
        let started = std::time::Instant::now();
        WITH_DISKS.into_iter().try_for_each(|part| self.replace(part))?;
        self.disks.empty_all();
        self.disks.set_read_only(Part::Daemon, false);
        self.relays.iter().chain([&self.client_relay]).for_each(Relay::mend);
        let mut parts = self.daemons();
        parts.extend(self.pool.workers.iter_mut().chain([&mut self.pool.hub]).flat_map(alive));
        send(&parts, Signal::CONT);
        self.revive_hub()?;
        (0..self.relays.len()).try_for_each(|index| self.revive_worker(index))?;
        let served = wait_for(SERVES_BOUND, || {
            let mut command = self.pool.client.remrun(&["--no-local", "true"]);
            command.current_dir(self.pool.scratch.path());
            Run::new(command).within(END_BOUND).run().is_ok_and(|outcome| outcome.ok()).then_some(())
        });
        let mut wrong = Vec::new();
        if served.is_none() {
            wrong.push(format!("{SERVES_BOUND:?} after all parts were back nothing runs elsewhere"));
        }
        if let Err(error) = self.pool.wait_for_workers(self.relays.len()) {
            wrong.push(error.to_string());
        }
        Ok((wrong, started.elapsed()))
    }

    /// What is left of a round's tasks: processes, folders of workers, files of the client's daemon.
    pub fn left(&self, round: &str) -> Vec<String> {
        let mut last = Vec::new();
        wait_for(LEFT_BOUND, || {
            last = self.left_now(round);
            last.is_empty().then_some(())
        });
        last
    }

    fn left_now(&self, round: &str) -> Vec<String> {
        let mut found: Vec<String> =
            self.guests(round).iter().map(|pid| format!("guest {}", pid.as_raw_nonzero())).collect();
        let mut folders = Vec::new();
        for worker in &self.pool.workers {
            let root = PathBuf::from(format!("/proc/{}/root/state/run", worker.pid().as_raw_nonzero()));
            folders.extend([root.join("tasks"), root.join("memory")]);
        }
        let client = self.pool.scratch.path().join("client/state");
        folders.extend(["commit/stage", "commit/redo", "spool"].map(|name| client.join(name)));
        for folder in folders {
            let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
            found.extend(names.filter(|name| name != "spare").map(|name| format!("{}/{name}", folder.display())));
        }
        found
    }

    /// Processes of a part. Who is killed is noted with its command.
    fn processes(&mut self, part: Part, jobs: &mut [Job], dice: &mut Dice, are_killed: bool) -> Vec<Pid> {
        match part {
            // The number of one that has ended and was waited for may be another's by now.
            Part::Worker(index) => alive(&mut self.pool.workers[index]).into_iter().collect(),
            Part::Hub => alive(&mut self.pool.hub).into_iter().collect(),
            Part::Daemon => self.daemons(),
            Part::Remrun => {
                let running: Vec<usize> = (0..jobs.len()).filter(|at| jobs[*at].pid().is_some()).collect();
                let Some(at) = running.get(dice.below(running.len())) else { return Vec::new() };
                jobs[*at].remrun_killed |= are_killed;
                jobs[*at].guest_killed |= are_killed && jobs[*at].may_run_here;
                jobs[*at].pid().into_iter().collect()
            }
            Part::Guest => {
                let Some(round) = jobs.first().map(|job| super::round_of(&job.word)) else { return Vec::new() };
                let guests = self.guests(&round);
                let Some(pid) = guests.get(dice.below(guests.len())).copied() else { return Vec::new() };
                if are_killed {
                    let words = arguments(pid);
                    // A process without the word among its arguments may be of any command.
                    let is_named = jobs.iter().any(|job| words.contains(&job.word));
                    jobs.iter_mut().for_each(|job| job.guest_killed |= !is_named || words.contains(&job.word));
                }
                vec![pid]
            }
        }
    }

    fn daemons(&self) -> Vec<Pid> {
        self.pool.client_daemons().into_iter().filter_map(Pid::from_raw).collect()
    }

    /// Processes of a round's tasks, by their folder or their arguments.
    fn guests(&self, round: &str) -> Vec<Pid> {
        let below = self.pool.workers.iter().flat_map(|worker| descendants(worker.pid().as_raw_nonzero().get()));
        let mut found: Vec<i32> = below
            .filter(|pid| {
                let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
                cwd.to_string_lossy().contains(&format!("/{round}/"))
                    || arguments_of(*pid).contains(&format!("{round}-"))
            })
            .collect();
        found.sort_unstable();
        found.into_iter().filter_map(Pid::from_raw).collect()
    }

    fn relay(&self, part: Part) -> &Relay {
        match part {
            Part::Worker(index) => &self.relays[index],
            _ => &self.client_relay,
        }
    }

    /// Stops all. What is wrong about that, and what is left.
    pub fn stop(self, keep: bool) -> Result<Vec<String>> {
        let Self { mut pool, relays, client_relay, disks } = self;
        let mut wrong = Vec::new();
        if let Err(error) = pool.client.gleaner(&["stop"])?.expect_ok("gleaner stop") {
            wrong.push(error.to_string());
        }
        for daemon in pool.workers.iter_mut().chain([&mut pool.hub]) {
            if !daemon.stop(END_BOUND) {
                wrong.push(format!("{} did not stop within {END_BOUND:?} of SIGTERM", daemon.name));
            }
        }
        drop((relays, client_relay));
        disks.unmount(&pool).map_err(|error| Error::Product(format!("the disks stay: {error}")))?;
        wrong.extend(pool.stop(keep)?);
        Ok(wrong)
    }
}

/// Sends a signal to processes. Who has ended needs none.
fn send(pids: &[Pid], signal: Signal) {
    for pid in pids {
        let _ = rustix::process::kill_process(*pid, signal);
    }
}

/// The process of a daemon, while there is one.
fn alive(daemon: &mut Daemon) -> Option<Pid> {
    daemon.check().is_ok().then(|| daemon.pid())
}

fn arguments(pid: Pid) -> String {
    arguments_of(pid.as_raw_nonzero().get())
}

fn arguments_of(pid: i32) -> String {
    String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()).into_owned()
}

//! The run that is measured: each operation over every possible key, as RT-BOINC's evaluation did it, while the table is full.
//!
//! What a host reports, or a client is told, comes long after it was sent, with many others between, as it would: so records are
//! not in the cache because the event before used them.

use super::dice::Turns;
use super::record::{Op, Record, What};
use super::world::{DELAY_BOUND_MS, World, faults};
use tasks::{BATCH_MAX, Capacity, Counting, Event, Outcome};

/// Results that are on their way to their clients at a time, at most.
const LAG_MAX: usize = 4096;
const DONE: Outcome = Outcome::Done([7; 32]);

/// How large a run is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Hosts, all there.
    pub hosts: usize,
    /// Tasks, all there.
    pub tasks: usize,
}

impl Size {
    /// With so many hosts: as many tasks, and 100,000 at least.
    pub fn of(hosts: usize) -> Self {
        Self { hosts, tasks: hosts.max(100_000) }
    }

    /// Instances that are out while single ones are measured.
    fn out(self) -> usize {
        if self.hosts == 1 { 64 } else { (self.hosts / 2).min(self.tasks / 2) }
    }

    fn lag(self) -> usize {
        (self.tasks / 16).min(LAG_MAX)
    }

    /// More events than there will be.
    fn events(self) -> usize {
        30 * self.tasks + 25 * self.hosts + 500_000
    }
}

/// Does the run, and returns what was measured.
pub fn run(size: Size, what: What) -> Record {
    let mut world = World::new(Capacity::of(size.hosts, size.tasks), Record::new(what, size.events()));
    world.table.count(if what == What::Work { Counting::Lines } else { Counting::Nothing });
    let before = faults();
    let hosts = &mut Turns::new(size.hosts);
    (0..size.hosts).for_each(|number| world.join(Op::Join, number, true, false));
    world.open_all();
    world.fill();
    mix(&mut world, size, hosts);
    together(&mut world, size, hosts);
    batches(&mut world, size, hosts);
    failures(&mut world, size, hosts);
    held(&mut world);
    queries(&mut world, size);
    cancelled_tasks(&mut world, size, hosts);
    pushed(&mut world, size);
    leaving(&mut world, size, hosts);
    expiry(&mut world, size, hosts);
    cancelled_jobs(&mut world);
    world.record.facts.faults = faults() - before;
    world.end()
}

fn ask(world: &mut World, size: Size, hosts: &mut Turns) {
    for _ in 0..size.out() {
        world.request(Op::Request1, hosts.next(), 1);
    }
}

/// Report, assimilated, submit, request, tick: each as often as there are tasks.
fn mix(world: &mut World, size: Size, hosts: &mut Turns) {
    ask(world, size, hosts);
    let round = |world: &mut World, hosts: &mut Turns| {
        world.report(Op::Report1, 1, 0, DONE);
        if world.decided.len() > size.lag() {
            world.assimilate(Op::Assimilated1, 1);
            world.submit(1);
        }
        world.request(Op::Request1, hosts.next(), 1);
        world.tick(Op::TickIdle);
    };
    (0..size.lag()).for_each(|_| round(world, hosts));
    world.record.facts.mix_from = world.record.count() as f64;
    (0..size.tasks).for_each(|_| round(world, hosts));
    world.record.facts.mix_to = world.record.count() as f64;
}

/// Reports together with requests.
fn together(world: &mut World, size: Size, hosts: &mut Turns) {
    for _ in 0..size.tasks {
        if world.out.is_empty() {
            world.request(Op::Request1, hosts.next(), 1);
        }
        world.report(Op::ReportRequest1, 1, 1, DONE);
        world.assimilate(Op::Assimilated1, 1);
        world.submit(1);
    }
}

/// All that is out is reported, all that is decided assimilated, and the table filled again.
fn settle(world: &mut World) {
    while !world.out.is_empty() {
        world.report(Op::Report1, 1, 0, DONE);
        if world.decided.len() >= BATCH_MAX {
            world.assimilate(Op::Assimilated16, BATCH_MAX);
        }
    }
    world.assimilate_all();
    world.fill();
}

/// Sixteen at a time.
fn batches(world: &mut World, size: Size, hosts: &mut Turns) {
    settle(world);
    let out = if size.hosts == 1 { 32 } else { size.out().min(size.hosts / 2 * BATCH_MAX) };
    for _ in 0..size.tasks / BATCH_MAX {
        world.request(Op::Request16, hosts.next(), BATCH_MAX as u8);
        if world.out.len() > out {
            world.report(Op::Report16, BATCH_MAX, 0, DONE);
            while world.decided.len() > size.lag() {
                world.assimilate(Op::Assimilated16, BATCH_MAX);
            }
            world.submit(BATCH_MAX as u8);
        }
    }
    settle(world);
}

/// Each host fails one, and then does another one, or it would be sent back for a while. What failed is given up: an account does
/// not get again soon what it has failed, and with one host there is one account.
fn failures(world: &mut World, size: Size, hosts: &mut Turns) {
    for _ in 0..(size.hosts / 4).max(size.tasks / 4) {
        let host = hosts.next();
        world.request(Op::Request1, host, 1);
        let Some((_, instance)) = world.out.front().copied() else { continue };
        world.report(Op::Fail1, 1, 0, Outcome::Failed);
        world.handle(Op::CancelTask, &Event::CancelTask(instance.task));
        world.request(Op::Request1, host, 1);
        world.report(Op::Report1, 1, 0, DONE);
        world.assimilate(Op::Assimilated1, 1);
        world.assimilate(Op::Assimilated1, 1);
        world.fill();
    }
    settle(world);
}

/// All jobs wait, and go on.
fn held(world: &mut World) {
    hold_all(world, true);
    hold_all(world, false);
}

fn hold_all(world: &mut World, is_held: bool) {
    let op = if is_held { Op::Hold } else { Op::Release };
    let mut jobs = Turns::new(world.jobs.len());
    for _ in 0..world.jobs.len() {
        if let Some(name) = world.jobs[jobs.next()].name {
            world.handle(op, &Event::Hold(name, is_held));
        }
    }
}

/// What has become of each task.
fn queries(world: &mut World, size: Size) {
    let mut tasks = Turns::new(size.tasks);
    for _ in 0..size.tasks {
        let name = world.names[tasks.next()];
        world.record.measure(Op::Query, &mut world.table, |table| {
            std::hint::black_box(table.task(name));
        });
    }
}

/// Each task is cancelled, some of which are out.
fn cancelled_tasks(world: &mut World, size: Size, hosts: &mut Turns) {
    ask(world, size, hosts);
    let mut tasks = Turns::new(size.tasks);
    for _ in 0..size.tasks {
        let name = world.names[tasks.next()];
        world.handle(Op::CancelTask, &Event::CancelTask(name));
        world.assimilate(Op::Assimilated1, 1);
        let op = if world.table.is_behind(world.now) { Op::TickClean } else { Op::TickIdle };
        world.tick(op);
        world.fill();
    }
    world.out.clear();
}

/// Hosts that are attached and wait, and tasks that come.
fn pushed(world: &mut World, size: Size) {
    settle(world);
    let mut tasks = Turns::new(size.tasks);
    for _ in 0..size.tasks / 16 {
        let name = world.names[tasks.next()];
        world.handle(Op::CancelTask, &Event::CancelTask(name));
        world.assimilate(Op::Assimilated1, 1);
    }
    hold_all(world, true);
    (0..size.hosts).for_each(|number| world.join(Op::Attach, number, false, true));
    world.open(1, 0, false);
    let job = world.jobs.len() - 1;
    for _ in 0..size.tasks {
        world.submit_to(Op::SubmitPushed1, job, 1);

        if world.out.len() > size.out().min(1000) {
            world.report(Op::ReportPushed1, 1, 0, DONE);
            world.assimilate(Op::Assimilated1, 1);
        }
    }
    while !world.out.is_empty() {
        world.report(Op::ReportPushed1, 1, 0, DONE);
    }
    world.assimilate_all();
    (0..size.hosts).for_each(|number| world.join(Op::Attach, number, false, false));
    hold_all(world, false);
    world.fill();
}

/// Each host leaves with what it has, and another comes in its place.
fn leaving(world: &mut World, size: Size, hosts: &mut Turns) {
    ask(world, size, hosts);
    for round in 0..size.hosts.max(size.tasks / 10) {
        let host = hosts.next();
        if round % 8 == 0 {
            world.request(Op::Request16, host, BATCH_MAX as u8);
        }
        world.handle(Op::Leave, &Event::Leave(world.hosts[host]));
        world.tick(Op::TickClean);
        world.join(Op::Join, host, true, false);
        // Tasks that were lost too often.
        if !world.decided.is_empty() {
            world.assimilate_all();
            world.submit(1);
        }
    }
    world.out.clear();
}

/// All that is out is due at nearly the same time, and so are many deadlines.
fn expiry(world: &mut World, size: Size, hosts: &mut Turns) {
    let rounds = if size.hosts == 1 { 20 } else { 1 };
    for _ in 0..rounds {
        for _ in 0..size.out() * 2 {
            world.request(Op::Request1, hosts.next(), 1);
        }
        world.pass(u64::from(DELAY_BOUND_MS) + 1000);
        world.out.clear();
        world.assimilate_all();
        world.fill();
        // Hosts that were too late often are sent back for an hour at most, and make it good again.
        world.pass(u64::from(DELAY_BOUND_MS));
        world.request(Op::Request1, hosts.next(), 1);
        world.report(Op::Report1, 1, 0, DONE);
        world.assimilate_all();
    }
}

/// Each job is cancelled.
fn cancelled_jobs(world: &mut World) {
    world.fill();
    let mut jobs = Turns::new(world.jobs.len());
    for _ in 0..world.jobs.len() {
        let Some(name) = world.jobs[jobs.next()].name else { continue };
        world.handle(Op::CancelJob, &Event::CancelJob(name));
        world.tick(Op::TickClean);
        world.assimilate_all();
        world.tick(Op::TickClean);
        world.handle(Op::Forget, &Event::Forget(name));
    }
}

//! What tasks cause here is charged to them: bytes and files that they write, memory, processes. One thread measures it, and a task that passes
//! a bound is called off, so that nobody is told of a full disk, or of a fork or an allocation that failed, which at its client would not have.
//!
//! Control groups hold processes of a task in any case, and in version 2 memory: who passes a bound between two looks is refused a process, or ends as a
//! whole. The kernel counts that, and such a result is not used. A bound of version 1 would have calls of the program fail for want of memory, which it
//! does not count: there, and where there are no groups, this thread looks often.
//! What is written has no such help: an upper layer in memory is a file system of its own ([`crate::scratch`]), on disk it is weighed ([`disk`]). Who must go is
//! decided by `sched::charge`.

mod bounds;
mod disk;
mod processes;

pub use bounds::Lent;

use crate::host::wait;
use crate::sandbox::{Control, Levers, Refusals};
use disk::Disk;
use sched::charge::{Account, Amounts, Bounds, Excess, Kind, Whose, judge};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use wire::lock;
use wire::message::{Failed, FailedKind};

/// How often what is written is looked at, on disk and in memory: a look at file systems, not at files.
const DISK_LOOK: Duration = Duration::from_millis(20);
const MEMORY_LOOK: Duration = Duration::from_millis(100);
/// How often memory and processes are, where groups hold both, and where not.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_CLOSELY: Duration = Duration::from_millis(250);
/// And how often it is looked whether there are tasks.
const IDLE: Duration = Duration::from_millis(250);

/// What the client of a task is told of which the kernel has killed a process.
const KILLED: &str = "the worker's machine ran out of memory, and a process of it was killed";

/// All tasks that run, and what they may take.
#[derive(Debug)]
pub struct Charges {
    bounds: Bounds,
    table: Mutex<Table>,
    /// What the kernel had counted in a control group when its last task ended: groups are used again. It is to be read where that is not
    /// known, as after a task that was killed.
    refused: Mutex<HashMap<(bool, String), Refusals>>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    tasks: BTreeMap<u64, Present>,
}

#[derive(Debug)]
struct Present {
    task: Arc<Task>,
    /// Says why it must go.
    end: Option<oneshot::Sender<Failed>>,
}

/// A task that runs.
#[derive(Debug)]
pub struct Task {
    /// Whose: the number of the client's machine at the hub, however many daemons it has started.
    pub client: u32,
    /// Folder of what it writes.
    pub folder: PathBuf,
    /// That is on disk.
    pub is_on_disk: bool,
    /// It is no task of the machine's owner: the memory that it has is bounded.
    pub is_guest: bool,
    /// Its control group, and what can be seen of it.
    pub group: String,
    /// See `group`.
    pub levers: Levers,
    /// By which its first process is found.
    pub control: Option<Control>,
    /// The memory of a machine that it has asked for, in bytes.
    pub asked_memory: u64,
}

/// A task's account, until this is dropped.
#[derive(Debug)]
pub struct Charge {
    charges: Arc<Charges>,
    number: u64,
    task: Arc<Task>,
    /// Why it must go, once it must.
    ended: oneshot::Receiver<Failed>,
    /// It was asked at its end what was refused.
    is_asked: AtomicBool,
    /// How many processes the machine had killed for want of memory when the task began, where no group counts that.
    killed_before: Option<u64>,
}

impl Charges {
    /// Has a thread of its own look after tasks until this is dropped.
    pub fn start(bounds: Bounds) -> io::Result<Arc<Self>> {
        let charges = Arc::new(Self { bounds, table: Mutex::default(), refused: Mutex::default() });
        let held = Arc::downgrade(&charges);
        std::thread::Builder::new().name("charger".into()).spawn(move || run(&held))?;
        Ok(charges)
    }

    /// What may be taken.
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// A task has begun.
    pub fn begin(self: &Arc<Self>, task: Task) -> Charge {
        let (end, ended) = oneshot::channel();
        if !task.group.is_empty() {
            let read = || task.levers.refusals(&task.group);
            lock(&self.refused).entry(task.key()).or_insert_with(read);
        }
        let killed_before = if task.group.is_empty() { processes::killed() } else { None };
        let task = Arc::new(task);
        let mut table = lock(&self.table);
        let number = table.next;
        table.next += 1;
        table.tasks.insert(number, Present { task: task.clone(), end: Some(end) });
        Charge { charges: self.clone(), number, task, ended, is_asked: AtomicBool::new(false), killed_before }
    }

    /// Those that were not called off.
    fn tasks(&self) -> Vec<(u64, Arc<Task>)> {
        let table = lock(&self.table);
        let stay = table.tasks.iter().filter(|(_, present)| present.end.is_some());
        stay.map(|(number, present)| (*number, present.task.clone())).collect()
    }

    fn end(&self, excess: &Excess) {
        let why = why(excess);
        let end = lock(&self.table).tasks.get_mut(&excess.number).and_then(|present| present.end.take());
        if let Some(end) = end {
            tracing::warn!(why = why.message, "a task is called off");
            let _ = end.send(why);
        }
    }
}

impl Charge {
    /// Waits until the task must go: what its client is told.
    pub async fn passed(&mut self) -> Failed {
        match (&mut self.ended).await {
            Ok(why) => why,
            // The sender is gone with the verdict.
            Err(_) => std::future::pending().await,
        }
    }

    /// Whether the kernel has refused the task something for want of memory or processes since it began: then its result does not
    /// count. To be asked once, at its end.
    pub fn refused(&self) -> Option<Failed> {
        if self.killed_before.is_some_and(|before| processes::killed().is_some_and(|now| now > before)) {
            return Some(FailedKind::Evicted.because(KILLED));
        }
        let (before, now) = self.note_refusals()?;
        let bounds = &self.charges.bounds;
        let excess = |kind, bound| Excess { number: self.number, kind, whose: Whose::Task, used: bound, bound };
        if now.processes > before.processes {
            return Some(why(&excess(Kind::Processes, bounds.task.processes.min(bounds.all.processes))));
        }
        let is_own = self.task.is_guest && self.task.levers.kills_at_bound();
        match now.kills > before.kills {
            true if is_own => Some(why(&excess(Kind::Memory, bounds.memory_of_task(self.task.asked_memory)))),
            // Nobody is killed at a bound of its own: the machine had no more.
            true => Some(FailedKind::Evicted.because(KILLED)),
            false => None,
        }
    }

    /// What the kernel had counted when the task began, and has now; that is what was before the next one in the group.
    fn note_refusals(&self) -> Option<(Refusals, Refusals)> {
        if self.task.group.is_empty() {
            return None;
        }
        self.is_asked.store(true, Ordering::Relaxed);
        let now = self.task.levers.refusals(&self.task.group);
        let before = lock(&self.charges.refused).insert(self.task.key(), now);
        Some((before.unwrap_or(now), now))
    }
}

impl Task {
    fn key(&self) -> (bool, String) {
        (self.is_guest, self.group.clone())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if !self.is_asked.load(Ordering::Relaxed) && !self.task.group.is_empty() {
            lock(&self.charges.refused).remove(&self.task.key());
        }
        lock(&self.charges.table).tasks.remove(&self.number);
    }
}

/// What the client of a task is told that must go. Its own bound it would pass again on this worker: it is done where it was sent from.
fn why(excess: &Excess) -> Failed {
    let Excess { kind, whose, used, bound, .. } = excess;
    let what = match kind {
        Kind::Disk => "writes more",
        Kind::Files => "makes more files",
        Kind::Memory => "needs more memory",
        Kind::Processes => "has more processes",
    };
    let amount = |amount: u64| match kind {
        Kind::Files | Kind::Processes => amount.to_string(),
        Kind::Disk | Kind::Memory => format!("{} MiB", amount >> 20),
    };
    let bound = amount(*bound);
    match whose {
        Whose::Task => FailedKind::Unable.because(format!("it {what} than a task may on this worker: {bound}")),
        Whose::Client => {
            let why = format!("with its client's other tasks it {what} than a client may on this worker");
            FailedKind::Evicted.because(format!("{why}: {} of {bound}", amount(*used)))
        }
        Whose::All => {
            let why = format!("with all guests of this worker it {what} than that lends");
            FailedKind::Evicted.because(format!("{why}: {} of {bound}", amount(*used)))
        }
    }
}

fn run(charges: &Weak<Charges>) {
    let mut looker = Looker::default();
    while let Some(charges) = charges.upgrade() {
        let pause = looker.look(&charges);
        drop(charges);
        wait(pause);
    }
}

/// What the thread has seen.
#[derive(Default)]
struct Looker {
    disk: Disk,
    /// Memory and processes of each task, as they were looked at last, and when that was.
    taken: HashMap<u64, (u64, u64)>,
    looked: Option<Instant>,
}

impl Looker {
    /// Looks, has those go that must, and says when to look again.
    fn look(&mut self, charges: &Charges) -> Duration {
        let tasks = charges.tasks();
        if tasks.is_empty() {
            *self = Self::default();
            return IDLE;
        }
        self.disk.look(&tasks, &charges.bounds);
        self.look_at_processes(&tasks, &charges.bounds);
        let account = |(number, task): &(u64, Arc<Task>)| {
            let (disk, files) = self.disk.used(*number);
            let (memory, processes) = self.taken.get(number).copied().unwrap_or_default();
            let used = Amounts { disk, files, memory, processes };
            Account { number: *number, client: task.client, used, asked_memory: task.asked_memory }
        };
        let accounts: Vec<Account> = tasks.iter().map(account).collect();
        judge(&accounts, &charges.bounds).iter().for_each(|excess| charges.end(excess));
        if tasks.iter().any(|(_, task)| task.is_on_disk) { DISK_LOOK } else { MEMORY_LOOK }
    }

    fn look_at_processes(&mut self, tasks: &[(u64, Arc<Task>)], bounds: &Bounds) {
        let are_counted = tasks.iter().all(|(_, task)| task.levers.counts());
        let are_held = are_counted && tasks.iter().all(|(_, task)| task.levers.kills_at_bound());
        let every = if are_held { LOOK } else { LOOK_CLOSELY };
        if self.looked.is_some_and(|looked| looked.elapsed() < every) {
            return;
        }
        self.looked = Some(Instant::now());
        // Of all tasks that groups say nothing of at once: each look at the processes of a machine costs milliseconds.
        let all = if are_counted { Vec::new() } else { processes::all() };
        let of = |task: &Task| {
            let bound = bounds.memory_of_task(task.asked_memory);
            let (memory, processes) = match by_group(task) {
                Some(taken) => taken,
                None => processes::taken(task, &all, bound),
            };
            (if task.is_guest { memory } else { 0 }, processes)
        };
        self.taken = tasks.iter().map(|(number, task)| (*number, of(task))).collect();
    }
}

/// Memory and processes of a task, as its control groups count them; `None`: they do not count both.
fn by_group(task: &Task) -> Option<(u64, u64)> {
    let processes = task.levers.pids_of(&task.group).filter(|_| !task.group.is_empty())?;
    Some((task.levers.held_by(&task.group)?.fixed, processes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn task(folder: &Path, client: u32) -> Task {
        Task {
            client,
            folder: folder.to_owned(),
            is_on_disk: true,
            is_guest: true,
            group: String::new(),
            levers: Levers::default(),
            control: None,
            asked_memory: 0,
        }
    }

    fn bounds() -> Bounds {
        let all = Amounts { disk: 64 << 20, files: 1_000, memory: 1 << 40, processes: 1 << 20 };
        Bounds::of(all, 25, 50)
    }

    async fn told(charge: &mut Charge) -> Option<Failed> {
        tokio::time::timeout(Duration::from_secs(20), charge.passed()).await.ok()
    }

    #[tokio::test]
    async fn who_fills_the_disk_or_makes_too_many_files_is_called_off_and_nobody_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let charges = Charges::start(bounds()).expect("a thread");
        let begin = |name: &str| {
            let own = folder.path().join(name);
            std::fs::create_dir(&own).expect("a folder");
            (charges.begin(task(&own, 1)), own)
        };
        let ((mut large, large_folder), (mut many, many_folder), (mut other, _)) =
            (begin("large"), begin("many"), begin("other"));
        std::fs::write(large_folder.join("f"), vec![1; 17 << 20]).expect("a file");
        let why = told(&mut large).await.expect("it is called off");
        assert_eq!((why.reason(), why.message.contains("writes more")), (FailedKind::Unable, true), "{}", why.message);
        drop(large);
        for number in 0..300 {
            std::fs::write(many_folder.join(number.to_string()), "").expect("a file");
        }
        let why = told(&mut many).await.expect("it is called off");
        assert!(why.message.contains("makes more files than a task may on this worker: 250"), "{}", why.message);
        drop(many);
        assert!(tokio::time::timeout(MEMORY_LOOK * 3, other.passed()).await.is_err());
    }

    #[tokio::test]
    async fn a_file_without_a_name_is_charged_to_who_holds_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut file = std::fs::File::create(folder.path().join("f")).expect("a file");
        std::fs::remove_file(folder.path().join("f")).expect("it is there");
        std::io::Write::write_all(&mut file, &vec![1; 17 << 20]).expect("writes");
        let own = [std::process::id()];
        // Here it is no overlay's: it is counted as any file system's.
        let (bytes, files) = disk::nameless(&own, |_| true);
        assert!(bytes >= 17 << 20 && files >= 1, "{bytes} {files}");
        assert_eq!(disk::nameless(&own, |_| false), (0, 0));
    }

    #[tokio::test]
    async fn the_sum_of_a_client_is_bounded() {
        let folder = tempfile::tempdir().expect("a folder");
        let charges = Charges::start(bounds()).expect("a thread");
        let mut begun: Vec<Charge> = (0..3)
            .map(|number| {
                let own = folder.path().join(number.to_string());
                std::fs::create_dir(&own).expect("a folder");
                std::fs::write(own.join("f"), vec![1; (13 + number) << 20]).expect("a file");
                charges.begin(task(&own, 1))
            })
            .collect();
        let why = told(&mut begun[2]).await.expect("the largest is called off");
        assert_eq!(
            (why.reason(), why.message.contains("a client may")),
            (FailedKind::Evicted, true),
            "{}",
            why.message
        );
        drop(begun.pop());
        assert!(tokio::time::timeout(MEMORY_LOOK * 3, begun[0].passed()).await.is_err());
    }

    #[test]
    fn what_the_kernel_refused_is_charged_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let group = folder.path().join("task0");
        std::fs::create_dir(&group).expect("a folder");
        let write = |kills: u64, processes: u64| {
            std::fs::write(group.join("memory.events"), format!("max 3\noom_kill {kills}\n")).expect("written");
            std::fs::write(group.join("pids.events"), format!("max {processes}\n")).expect("written");
        };
        let charges = Charges::start(bounds()).expect("a thread");
        let begin = || {
            let levers = Levers::counting(folder.path().to_owned());
            charges.begin(Task { group: "task0".into(), levers, ..task(folder.path(), 1) })
        };
        write(0, 0);
        assert!(begin().refused().is_none());
        write(1, 0);
        assert_eq!(begin().refused().expect("a process was killed").reason(), FailedKind::Unable);
        assert!(begin().refused().is_none(), "not of this one");
        write(1, 2);
        assert!(begin().refused().is_some_and(|why| why.message.contains("has more processes")));
        let killed = begin();
        write(4, 9);
        drop(killed);
        assert!(begin().refused().is_none(), "nor of this one");
    }
}

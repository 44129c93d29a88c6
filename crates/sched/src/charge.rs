//! What guests cause is charged to them: which task must go when one takes more than a task may have, when the tasks of a client
//! together take more than a client may, or when all of them take more than their host lends.
//!
//! Deliberately not here: how it is measured, and how a task is ended.

use std::collections::BTreeMap;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes that a task has written and not removed.
    Disk,
    /// Files, folders and links that it has made or copied.
    Files,
    /// Bytes of memory that only its end gives back.
    Memory,
    /// Processes and threads.
    Processes,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Disk, Self::Files, Self::Memory, Self::Processes];
}

/// So much of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// See [`Kind::Disk`].
    pub disk: u64,
    /// See [`Kind::Files`].
    pub files: u64,
    /// See [`Kind::Memory`].
    pub memory: u64,
    /// See [`Kind::Processes`].
    pub processes: u64,
}

impl Amounts {
    /// Of this kind.
    pub fn of(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Disk => self.disk,
            Kind::Files => self.files,
            Kind::Memory => self.memory,
            Kind::Processes => self.processes,
        }
    }

    fn map(self, change: impl Fn(u64) -> u64) -> Self {
        let Self { disk, files, memory, processes } = self;
        Self { disk: change(disk), files: change(files), memory: change(memory), processes: change(processes) }
    }
}

/// How much may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// By one task.
    pub task: Amounts,
    /// By all tasks of one client.
    pub client: Amounts,
    /// By all.
    pub all: Amounts,
}

impl Bounds {
    /// Of what is lent in all a task may have one part, and a client another one, in percent.
    pub fn of(all: Amounts, task_percent: u32, client_percent: u32) -> Self {
        let part = |percent: u32| all.map(|all| (u128::from(all) * u128::from(percent) / 100) as u64);
        Self { task: part(task_percent), client: part(client_percent), all }
    }

    /// The memory that a task may have which has asked for a machine with so much.
    pub fn memory_of_task(&self, asked: u64) -> u64 {
        self.task.memory.max(asked.min(self.all.memory))
    }
}

/// One task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// By which it is ended.
    pub number: u64,
    /// Whose it is.
    pub client: u32,
    /// What it has.
    pub used: Amounts,
    /// The memory of a machine that it has asked for, in bytes.
    pub asked_memory: u64,
}

/// Whose bound was passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The task's own.
    Task,
    /// Its client's.
    Client,
    /// The host's.
    All,
}

/// A task that must go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excess {
    /// Which.
    pub number: u64,
    /// For what.
    pub kind: Kind,
    /// Whose bound was passed.
    pub whose: Whose,
    /// How much of it was taken, by whom the bound is for.
    pub used: u64,
    /// The bound.
    pub bound: u64,
}

/// Those that must go, so that the others are within all bounds. Beyond a sum those go first that have most: of all tasks those of the client
/// that has most, so that many small ones do not drive out a large one of somebody else's.
pub fn judge(accounts: &[Account], bounds: &Bounds) -> Vec<Excess> {
    let mut left: Vec<Account> = accounts.to_vec();
    let mut gone = Vec::new();
    for kind in Kind::ALL {
        own(kind, &mut left, bounds, &mut gone);
        sums_of_clients(kind, &mut left, bounds, &mut gone);
        sum_of_all(kind, &mut left, bounds, &mut gone);
    }
    gone
}

fn own(kind: Kind, left: &mut Vec<Account>, bounds: &Bounds, gone: &mut Vec<Excess>) {
    left.retain(|account| {
        let bound = match kind {
            Kind::Memory => bounds.memory_of_task(account.asked_memory),
            kind => bounds.task.of(kind),
        };
        let used = account.used.of(kind);
        if used > bound {
            gone.push(Excess { number: account.number, kind, whose: Whose::Task, used, bound });
        }
        used <= bound
    });
}

fn sums_of_clients(kind: Kind, left: &mut Vec<Account>, bounds: &Bounds, gone: &mut Vec<Excess>) {
    for (client, mut used) in sums(kind, left) {
        // What one task has asked for and got it may have.
        let asked = left.iter().filter(|account| account.client == client).map(|account| account.asked_memory).max();
        let asked = asked.filter(|_| kind == Kind::Memory).map_or(0, |asked| bounds.memory_of_task(asked));
        let bound = bounds.client.of(kind).max(asked);
        while used > bound {
            let Some(large) = take_largest(kind, client, left) else { break };
            gone.push(Excess { number: large.number, kind, whose: Whose::Client, used, bound });
            used -= large.used.of(kind);
        }
    }
}

fn sum_of_all(kind: Kind, left: &mut Vec<Account>, bounds: &Bounds, gone: &mut Vec<Excess>) {
    let bound = bounds.all.of(kind);
    loop {
        let sums = sums(kind, left);
        let used = sums.values().fold(0u64, |sum, used| sum.saturating_add(*used));
        if used <= bound {
            return;
        }
        let largest = sums.iter().max_by_key(|(_, used)| **used).map(|(client, _)| *client);
        let Some(large) = largest.and_then(|client| take_largest(kind, client, left)) else { return };
        gone.push(Excess { number: large.number, kind, whose: Whose::All, used, bound });
    }
}

fn sums(kind: Kind, left: &[Account]) -> BTreeMap<u32, u64> {
    let mut sums = BTreeMap::new();
    for account in left {
        let sum: &mut u64 = sums.entry(account.client).or_default();
        *sum = sum.saturating_add(account.used.of(kind));
    }
    sums
}

fn take_largest(kind: Kind, client: u32, left: &mut Vec<Account>) -> Option<Account> {
    let of_client = left.iter().enumerate().filter(|(_, account)| account.client == client);
    let at = of_client.max_by_key(|(_, account)| account.used.of(kind)).map(|(at, _)| at)?;
    Some(left.swap_remove(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds() -> Bounds {
        let all = Amounts { disk: 1000, files: 100, memory: 400, processes: 40 };
        Bounds::of(all, 50, 75)
    }

    fn account(number: u64, client: u32, used: Amounts) -> Account {
        Account { number, client, used, asked_memory: 0 }
    }

    fn disk(disk: u64) -> Amounts {
        Amounts { disk, ..Amounts::default() }
    }

    fn numbers(accounts: &[Account]) -> Vec<(u64, Whose)> {
        judge(accounts, &bounds()).into_iter().map(|excess| (excess.number, excess.whose)).collect()
    }

    #[test]
    fn who_passes_its_own_bound_goes_for_each_kind() {
        assert_eq!(bounds().task, Amounts { disk: 500, files: 50, memory: 200, processes: 20 });
        for (used, kind, bound) in [
            (disk(501), Kind::Disk, 500),
            (Amounts { files: 51, ..disk(0) }, Kind::Files, 50),
            (Amounts { memory: 201, ..disk(0) }, Kind::Memory, 200),
            (Amounts { processes: 21, ..disk(0) }, Kind::Processes, 20),
        ] {
            let others = account(1, 1, disk(10));
            let want = Excess { number: 7, kind, whose: Whose::Task, used: bound + 1, bound };
            assert_eq!(judge(&[others, account(7, 2, used)], &bounds()), [want]);
        }
        assert!(judge(&[account(7, 2, disk(500))], &bounds()).is_empty(), "at the bound it stays");
    }

    #[test]
    fn a_task_has_the_memory_that_it_has_asked_for() {
        let asks = |asked_memory| Account { asked_memory, ..account(1, 1, Amounts { memory: 390, ..disk(0) }) };
        assert_eq!(judge(&[asks(395)], &bounds()), []);
        assert_eq!(judge(&[asks(300)], &bounds())[0].bound, 300);
        assert_eq!(bounds().memory_of_task(u64::MAX), 400, "no more than is lent");
    }

    #[test]
    fn beyond_a_clients_sum_its_largest_go() {
        let tasks =
            [account(1, 1, disk(300)), account(2, 1, disk(290)), account(3, 1, disk(200)), account(4, 2, disk(9))];
        assert_eq!(numbers(&tasks), [(1, Whose::Client)]);
    }

    #[test]
    fn beyond_the_hosts_sum_those_of_the_client_that_has_most_go() {
        let mut tasks: Vec<Account> = (1..=70).map(|number| account(number, 1, disk(10))).collect();
        tasks.push(account(99, 2, disk(310)));
        assert_eq!(numbers(&tasks), [(70, Whose::All)], "not the one large one of somebody else's");
    }
}

//! The clients whose tasks run here: for each its mirrors, its range of user ids, and where its files are fetched.

use crate::backlog::Backlog;
use crate::charge::Charges;
use crate::content::Contents;
use crate::cpus::Cpus;
use crate::good_bye::Launches;
use crate::host::guests::Guests;
use crate::ids::{IDS, Table};
use crate::mirrors::Mirrors;
use crate::own_share::Running;
use crate::sandbox::{Priority, SandboxServer};
use crate::scratch::Scratches;
use crate::signatures::Signatures;
use crate::stream_waits::StreamWaits;
use crate::troubles::Endings;
use base::{TaskId, Tenant};
use bytes::Bytes;
use sched::charge::Bounds;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};
use store::BlockStore;
use store::system::SystemFiles;
use wire::owner::Secret;
use wire::without;
use wire::{Joined, lock};

/// Most clients with a mirror here; beyond, the one longest idle loses its mirror.
const CLIENTS_MAX: usize = 64;
/// A client without tasks for this long loses its mirror.
const IDLE_LIMIT: Duration = Duration::from_secs(600);
/// What a client is told that comes while another one has tasks at a worker without root.
const ONE_CLIENT: &str =
    "it runs without root and takes one client at a time, and another one has tasks here: start the worker as root";

/// All that tasks share.
pub struct Clients {
    /// How processes are started.
    pub sandbox: SandboxServer,
    /// Where contents are kept.
    pub store: Arc<BlockStore>,
    /// What of these is not on disk yet.
    pub backlog: Arc<Backlog>,
    system: Arc<SystemFiles>,
    /// Which processors are lent.
    pub cpus: Arc<Cpus>,
    /// Where tasks write.
    pub scratches: Scratches,
    /// Which run now.
    pub guests: Arc<Guests>,
    /// The owner's own that run now.
    pub own: Running,
    /// Those that only wait for their streams.
    pub stream_waits: StreamWaits,
    /// What has come and is not answered.
    pub launches: Launches,
    /// Tasks that have been told to end.
    pub endings: Endings,
    /// Folder for mounts and upper layers.
    folder: PathBuf,
    /// What tasks take, and may take.
    pub charges: Arc<Charges>,
    /// Guests may use the network, if their clients let them.
    pub lends_network: bool,
    /// Who may have what begun, and by which key results are signed.
    pub signatures: Signatures,
    /// By which tasks of this worker's own account are recognised; none: all tasks are guests.
    owner: Option<Secret>,
    table: Mutex<HashMap<Bytes, Arc<Client>>>,
}

/// One start of one client's daemon.
pub struct Client {
    /// Its name at the hub.
    pub key: Bytes,
    /// Whose blocks it may use here.
    pub tenant: Tenant,
    /// Its user and group ids here.
    pub ids: Arc<Table>,
    /// Where its contents are, or are fetched.
    pub contents: Arc<Contents>,
    /// Its files.
    pub mirrors: Mirrors,
    used: Mutex<Instant>,
}

impl Clients {
    /// No client yet. `folder` must exist and belong to this worker alone. `lends_network`: guests may use the network.
    /// Fails where no thread can be started.
    pub fn new(
        sandbox: SandboxServer,
        store: Arc<BlockStore>,
        cpus: Vec<u32>,
        folder: PathBuf,
        bounds: Bounds,
        (owner, lends_network): (Option<Secret>, bool),
        signatures: Signatures,
    ) -> io::Result<Arc<Self>> {
        let cpus = Cpus::new(cpus);
        let scratches = Scratches::new(&folder, sandbox.privileged());
        if !sandbox.privileged() {
            tracing::info!("without root this worker has one range of user ids: it takes one client at a time");
        }
        let backlog = Arc::new(Backlog::new(store.clone()));
        let (system, table, guests, launches, endings, own, stream_waits) = Default::default();
        let charges = Charges::start(bounds)?;
        Ok(Arc::new(Self {
            sandbox,
            store,
            backlog,
            system,
            cpus,
            scratches,
            guests,
            own,
            stream_waits,
            launches,
            endings,
            folder,
            charges,
            lends_network,
            signatures,
            owner,
            table,
        }))
    }

    /// The mark of the account whose tasks are no guests here; empty: of none.
    pub fn owner_mark(&self) -> Bytes {
        self.owner.as_ref().map(|owner| Bytes::copy_from_slice(&owner.mark().0)).unwrap_or_default()
    }

    /// What a task is to this machine's owner, if its launch carries this proof.
    pub fn priority(&self, task: TaskId, proof: &[u8]) -> Priority {
        match &self.owner {
            Some(owner) if owner.is_proved(task, proof) => Priority::Owner,
            _ if without::is_left_out(without::Part::Guests) => {
                static SAID: Once = Once::new();
                SAID.call_once(|| {
                    tracing::warn!("GLEANER_WITHOUT=guests: nothing is spared the owner of this machine, which is for measurement only");
                });
                Priority::Owner
            }
            _ => Priority::Guest,
        }
    }

    /// For how long the oldest request of a guest for a file has waited; none if none does.
    pub fn oldest_request(&self) -> Option<Duration> {
        lock(&self.table).values().filter_map(|client| client.mirrors.oldest_request()).max()
    }

    /// A connection to the hub was made: contents are fetched over it from now on.
    pub fn connected(&self, joined: &Joined) {
        for client in lock(&self.table).values() {
            client.contents.connect(joined);
        }
    }

    /// The client with this name, mounted if it is new. `tenant` is its number in the hub's store, which may be this one.
    pub fn client(&self, key: &Bytes, tenant: Tenant, joined: &Joined) -> io::Result<Arc<Client>> {
        let mut table = lock(&self.table);
        if let Some(client) = table.get(key) {
            *lock(&client.used) = Instant::now();
            return Ok(client.clone());
        }
        drop_idle(&mut table);
        if !self.sandbox.privileged() {
            make_room_for_one(&mut table)?;
        }
        let id_base = free_range(&self.sandbox, &table)
            .ok_or_else(|| io::Error::other(format!("{CLIENTS_MAX} clients have tasks here already")))?;
        let ids = Arc::new(Table::new(id_base));
        let contents =
            Contents::new(key.clone(), tenant, self.backlog.clone(), self.store.clone(), self.system.clone());
        contents.connect(joined);
        let mirrors = Mirrors::mount(&self.folder.join("mirrors"), ids.clone(), contents.clone())?;
        let used = Mutex::new(Instant::now());
        let client = Arc::new(Client { key: key.clone(), tenant, ids, contents, mirrors, used });
        table.insert(key.clone(), client.clone());
        Ok(client)
    }
}

/// Forgets clients that have had no task for long, and the longest idle one if there are too many.
fn drop_idle(table: &mut HashMap<Bytes, Arc<Client>>) {
    let idle = |client: &Arc<Client>| Arc::strong_count(client) == 1;
    table.retain(|_, client| !idle(client) || lock(&client.used).elapsed() < IDLE_LIMIT);
    if table.len() >= CLIENTS_MAX {
        let oldest = table.values().filter(|client| idle(client)).min_by_key(|client| *lock(&client.used));
        if let Some(key) = oldest.map(|client| client.key.clone()) {
            table.remove(&key);
        }
    }
}

/// Without root there is one range of user ids, and no two clients may have it at the same time: the client before must have ended all its
/// tasks, and loses its mirror.
fn make_room_for_one<T>(table: &mut HashMap<Bytes, Arc<T>>) -> io::Result<()> {
    table.retain(|_, client| Arc::strong_count(client) > 1);
    match table.is_empty() {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::ResourceBusy, ONE_CLIENT)),
    }
}

/// A range of user ids that no other client has. Without root there is one range only, which one client has at a time.
fn free_range(sandbox: &SandboxServer, table: &HashMap<Bytes, Arc<Client>>) -> Option<u32> {
    let first = sandbox.id_base();
    if !sandbox.privileged() {
        return Some(first);
    }
    let taken: HashSet<u32> = table.values().map(|client| client.ids.base()).collect();
    (0..CLIENTS_MAX as u32).map(|number| first + number * IDS).find(|base| !taken.contains(base))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_root_a_client_waits_until_the_one_before_it_has_no_task() {
        let (one, other) = (Bytes::from_static(b"one"), Bytes::from_static(b"other"));
        let mut table = HashMap::new();
        make_room_for_one(&mut table).expect("nobody is here");
        let task = table.entry(one.clone()).or_insert_with(|| Arc::new(())).clone();
        let refused = make_room_for_one(&mut table).expect_err("it has a task");
        assert_eq!((refused.kind(), table.len()), (io::ErrorKind::ResourceBusy, 1));
        drop(task);
        make_room_for_one(&mut table).expect("it has no task any more");
        assert!(!table.contains_key(&one), "its mirror is gone, for the other one gets its ids");
        table.insert(other, Arc::new(()));
    }
}

//! A whole installation in one temporary folder: a hub, workers with empty roots, clients. Stopped by pid, and then nothing of
//! it may be left.

mod branch;
mod other;
mod standby;
mod unprivileged;

pub use other::OtherHub;

use crate::client::{Client, NOBODY};
use crate::empty_root::{EmptyRoot, MACHINE, OWNERS};
use crate::error::{Context, Error, Result};
use crate::leftovers::{self, Before};
use crate::process::{Daemon, tail, wait_for};
use crate::scratch::{Scratch, copy_program};
use crate::supervise::KEEP;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use testbed::postgres::Postgres;
use testbed::{Entrance, Link, Testbed};

/// The hub's list of machines that joined, in a pool's folder.
pub const NODES: &str = "hub/state/hub/nodes.json";
/// The same where hub and worker are one process.
pub const NODES_TOGETHER: &str = "worker0/state/hub/nodes.json";
/// Where the client is, if there is a link, and where the pool is.
pub const CLIENT: &str = "client";
/// See [`CLIENT`].
pub const SITE: &str = "site";
/// Where a hub behind the pool's may be.
pub const BRANCH: &str = "branch";
/// Ports that are tried to find a free one.
const PORTS_TRIED: usize = 100;
/// Where the hub listens there.
const FAR_PORT: u16 = 4433;
/// The variable that tells the product's processes what to leave out.
pub const WITHOUT: &str = "GLEANER_WITHOUT";
/// How long a daemon may take until it serves.
const START: Duration = Duration::from_secs(30);
/// How long a daemon may take to stop when asked.
const STOP: Duration = Duration::from_secs(10);
/// How long after that something of the run may still be there.
const VANISH: Duration = Duration::from_secs(10);

/// Two hosts.
#[derive(Clone, Debug)]
pub struct Apart {
    /// Where the client is.
    pub client: Entrance,
    /// Where the pool is.
    pub site: Entrance,
    /// The pool's address, as the client sees it.
    pub address: String,
}

/// What kind of pool.
#[derive(Clone, Debug)]
pub struct Options {
    /// Workers.
    pub workers: usize,
    /// One worker, in the hub's process, as `gleaner up` makes them; instead of `workers`.
    pub together: bool,
    /// CPUs that each offers.
    pub cpus: usize,
    /// Each worker may use one CPU of this machine only: that of its own number.
    pub pinned: bool,
    /// Whether there is a second client, of an ordinary user.
    pub nobody: bool,
    /// The link between the client and the pool, which are on one machine without.
    pub link: Option<Link>,
    /// Client and pool are on hosts that somebody else has made and joined; instead of `link`.
    pub apart: Option<Apart>,
    /// What of the product is left out, for measurement: see [`WITHOUT`].
    pub without: &'static str,
    /// The hub's journal is in a database, so that a standby can take over.
    pub database: bool,
    /// More for the hub's environment.
    pub hub_env: Vec<(&'static str, String)>,
    /// Commands go to the pool whatever it costs, unless they cannot.
    pub prefers_pool: bool,
    /// Tasks are guests, as on machines of others. Otherwise they have the priority of any process, so that a busy machine does not stop them.
    pub guests: bool,
    /// For each worker the control group of version 1 for processors that is all the machine to it; none: it has the whole machine.
    pub groups: Vec<String>,
    /// Folder with `gleaner` and `remrun`.
    pub programs: PathBuf,
    /// The suite's own binary, which makes empty roots.
    pub suite: PathBuf,
}

impl Options {
    /// Programs beside the suite's own binary, no ordinary user.
    pub fn new(workers: usize, cpus: usize) -> Result<Self> {
        let suite = std::env::current_exe().context(|| "cannot find the suite's own binary".to_owned())?;
        let programs = suite.parent().unwrap_or(Path::new("/")).to_path_buf();
        Ok(Self {
            workers,
            together: false,
            cpus,
            pinned: false,
            nobody: false,
            link: None,
            apart: None,
            without: "",
            database: false,
            hub_env: Vec::new(),
            prefers_pool: true,
            guests: true,
            groups: Vec::new(),
            programs,
            suite,
        })
    }

    /// Hub and worker in one process.
    pub fn together(cpus: usize) -> Result<Self> {
        Ok(Self { together: true, ..Self::new(0, cpus)? })
    }

    /// The same, at the far end of a link.
    pub fn far(cpus: usize, link: Link) -> Result<Self> {
        Ok(Self { link: Some(link), prefers_pool: false, ..Self::together(cpus)? })
    }
}

/// A running installation.
#[derive(Debug)]
pub struct Pool {
    /// Everything of it is in here.
    pub scratch: Scratch,
    /// The hub.
    pub hub: Daemon,
    /// The workers, in order of their names `worker0`, `worker1`, …
    pub workers: Vec<Daemon>,
    /// The client as the suite's user.
    pub client: Client,
    /// The client as an ordinary user, if asked for.
    pub nobody: Option<Client>,
    /// The hub's owner, where the hub is.
    pub owner: Client,
    /// The hosts [`CLIENT`] and [`SITE`], if there is a link between them.
    pub testbed: Option<Testbed>,
    /// The hub behind the pool's, if one was added.
    pub branch: Option<OtherHub>,
    /// The hub that takes over from the pool's, if one was started.
    pub standby: Option<OtherHub>,
    /// What keeps the hub's journal, if that is a database.
    pub database: Option<Postgres>,
    options: Options,
    before: Before,
}

impl Pool {
    /// Starts hub, workers and client, and waits until the client sees all workers.
    pub fn start(options: Options) -> Result<Self> {
        if !rustix::process::getuid().is_root() {
            let what = "a pool of workers with empty roots needs root: run `sudo -E cargo xtask test` (or demo)";
            return Err(Error::Missing(what.to_owned()));
        }
        let before = Before::look();
        let scratch = Scratch::new()?;
        let root = scratch.path().to_path_buf();
        Self::start_in(options, scratch, before).inspect_err(|_| leftovers::sweep(&root))
    }

    fn start_in(options: Options, scratch: Scratch, before: Before) -> Result<Self> {
        let root = scratch.path().to_path_buf();
        let bin = make(&root, "bin", 0o755, 0)?;
        for program in ["gleaner", "remrun", "libgleaner.so"] {
            copy_program(&options.programs.join(program), &bin.join(program))?;
        }
        make(&root, "log", 0o755, 0)?;
        let mut owner = client_in(&root, "hub", &bin, 0)?;
        let without = (!options.without.is_empty()).then(|| (WITHOUT.into(), options.without.into()));
        owner.env.extend(without.clone());
        owner.env.extend(options.hub_env.iter().map(|(name, value)| ((*name).into(), value.into())));
        let database = options.database.then(|| Postgres::start(&root)).transpose();
        let database = database.map_err(|error| Error::Missing(error.to_string()))?;
        owner.env.extend(database.as_ref().map(|database| ("GLEANER_JOURNAL".into(), database.url("").into())));
        let hosts = |link| [(CLIENT, link), (SITE, Link::NONE), (BRANCH, Link::NONE)];
        let testbed = options.link.map(|link| Testbed::start(&hosts(link), 1)).transpose();
        let testbed = testbed.map_err(|error| Error::Missing(error.to_string()))?;
        let apart = options.apart.clone().or_else(|| testbed.as_ref().map(apart_in));
        if let Some(apart) = &apart {
            owner.host = Some(apart.site.clone());
            let file = root.join("hub/address");
            std::fs::write(&file, format!("{}:{FAR_PORT}", apart.address)).at("write", &file)?;
        }
        let hub = match options.together {
            true => start_together(&root, &mut owner, &options)?,
            false => start_hub(&root, &owner)?,
        };
        let mut client = client_in(&root, "client", &bin, 0)?;
        client.host = apart.map(|apart| apart.client);
        client.env.extend(without);
        let mut nobody = if options.nobody { Some(client_in(&root, "nobody", &bin, NOBODY)?) } else { None };
        // The suite keeps the machine busy: what is to be tried on the pool would run here.
        if options.prefers_pool {
            let clients = [Some(&mut client), nobody.as_mut()].into_iter().flatten();
            clients.for_each(|client| client.env.push(("GLEANER_PREFER".into(), "there".into())));
        }
        let mut pool = Self {
            scratch,
            hub,
            workers: Vec::new(),
            client,
            nobody,
            owner,
            testbed,
            branch: None,
            standby: None,
            database,
            options: options.clone(),
            before,
        };
        for index in 0..options.workers {
            let worker = pool.start_worker(index)?;
            pool.workers.push(worker);
        }
        for client in [Some(&pool.client), pool.nobody.as_ref()].into_iter().flatten() {
            let token = pool.token("client")?;
            // The ordinary user's account is not the hub's: it has to say so.
            client.gleaner(&["use", &token, "--trust", "own"])?.expect_ok("gleaner use")?;
        }
        pool.wait_for_workers(options.workers.max(options.together.into()))?;
        Ok(pool)
    }

    /// The process in which the first worker is.
    pub fn first_worker(&self) -> &Daemon {
        self.workers.first().unwrap_or(&self.hub)
    }

    /// A fresh token for this role.
    pub fn token(&self, role: &str) -> Result<String> {
        self.owner.token(role)
    }

    fn start_worker(&self, index: usize) -> Result<Daemon> {
        let token = self.token("worker")?;
        self.run_worker(index, &["join", &token], self.owner.host.as_ref())
    }

    /// One on a host of its own.
    fn start_worker_at(&self, index: usize, host: &Entrance) -> Result<Daemon> {
        let token = self.token("worker")?;
        self.run_worker(index, &["join", &token], Some(host))
    }

    /// Starts one more worker, with this token. Returns its number.
    pub fn add_worker(&mut self, token: &str) -> Result<usize> {
        let index = self.workers.len();
        let worker = self.run_worker(index, &["join", token], self.owner.host.as_ref())?;
        self.workers.push(worker);
        Ok(index)
    }

    fn run_worker(&self, index: usize, begin: &[&str], host: Option<&Entrance>) -> Result<Daemon> {
        let (name, root) = (format!("worker{index}"), self.scratch.path());
        let mut command = in_empty_root(root, &name, begin, &self.options)?;
        host.into_iter().for_each(|host| host.run_here(&mut command));
        if self.options.pinned {
            pin(&mut command, index);
        }
        Daemon::start(&name, command, &root.join(format!("log/{name}.log")))
    }

    /// Where the hub listens.
    pub fn hub_address(&self) -> Result<String> {
        let path = self.scratch.path().join("hub/address");
        std::fs::read_to_string(&path).at("read", &path)
    }

    /// The keys of the machines that joined as `role`, in hexadecimal digits.
    pub fn keys_of(&self, role: &str) -> Result<Vec<String>> {
        let path = self.scratch.path().join(NODES);
        let text = std::fs::read(&path).at("read", &path)?;
        let list: serde_json::Value =
            serde_json::from_slice(&text).map_err(|error| Error::Product(format!("{}: {error}", path.display())))?;
        let nodes = list["nodes"].as_object().into_iter().flatten();
        Ok(nodes.filter(|(_, node)| node["role"] == role).map(|(key, _)| key.clone()).collect())
    }

    /// Starts a worker again, without a token, which reaches the hub at `address` from now on.
    pub fn redirect_worker(&mut self, index: usize, address: &str) -> Result<()> {
        let root = self.scratch.path().to_path_buf();
        self.workers[index].kill();
        redirect(&root.join(format!("worker{index}/state/config/node.toml")), address)?;
        self.workers[index] = self.run_worker(index, &["worker"], self.owner.host.as_ref())?;
        Ok(())
    }

    /// Starts a worker again with these lines at the beginning and at the end of its `node.toml`.
    pub fn set_worker(&mut self, index: usize, first: &str, last: &str) -> Result<()> {
        self.workers[index].kill();
        let file = self.scratch.path().join(format!("worker{index}/state/config/node.toml"));
        let text = std::fs::read_to_string(&file).at("read", &file)?;
        std::fs::write(&file, format!("{first}{text}\n{last}")).at("write", &file)?;
        self.workers[index] = self.run_worker(index, &["worker"], self.owner.host.as_ref())?;
        Ok(())
    }

    /// Has the client reach the hub at `address` from now on; its daemon is stopped.
    pub fn redirect_client(&self, address: &str) -> Result<()> {
        redirect(&self.scratch.path().join("client/config/client.toml"), address)?;
        self.stop_client()
    }

    /// Starts a worker again that was killed, on its old state.
    pub fn restart_worker(&mut self, index: usize) -> Result<()> {
        self.workers[index].kill();
        self.workers[index] = self.start_worker(index)?;
        Ok(())
    }

    /// Starts the hub again that was killed, on its old state and address.
    pub fn restart_hub(&mut self) -> Result<()> {
        self.hub.kill();
        self.hub = start_hub(self.scratch.path(), &self.owner)?;
        Ok(())
    }

    /// Waits until `gleaner status` at the client shows this many workers.
    pub fn wait_for_workers(&mut self, count: usize) -> Result<()> {
        let client = self.client.clone();
        let found = wait_for(START, || {
            let status = client.json(&["status", "--json"]).ok()?;
            (workers_in(&status).len() >= count).then_some(())
        });
        if found.is_some() {
            return Ok(());
        }
        self.hub.check()?;
        for worker in &mut self.workers {
            worker.check()?;
        }
        let logs = self.logs(15);
        Err(Error::Product(format!("the client did not see {count} workers within {START:?}\n{logs}")))
    }

    /// The last lines of every daemon's log.
    pub fn logs(&self, lines: usize) -> String {
        let mut text = String::new();
        let branch = self.branch.as_ref().map(|branch| &branch.hub);
        let standby = self.standby.as_ref().map(|standby| &standby.hub);
        for daemon in std::iter::once(&self.hub).chain(branch).chain(standby).chain(&self.workers) {
            let log = std::fs::read(&daemon.log).unwrap_or_default();
            text.push_str(&format!("--- {}\n{}\n", daemon.name, tail(&log, lines)));
        }
        text
    }

    /// The hosts and the link between them.
    ///
    /// # Panics
    /// If the pool has no link.
    pub fn testbed(&self) -> &Testbed {
        self.testbed.as_ref().expect("a scenario on a link has a pool with one")
    }

    /// Gives the client another link, and has it connect anew.
    pub fn relink(&self, link: Link) -> Result<()> {
        self.stop_client()?;
        self.testbed().set_link(CLIENT, link);
        Ok(())
    }

    /// Stops the client's daemon. Nothing of it is left then: what it still sent would be taken for the next one's.
    pub fn stop_client(&self) -> Result<()> {
        self.client.gleaner(&["stop"])?.expect_ok("gleaner stop")?;
        match &self.client_daemons()[..] {
            [] => Ok(()),
            left => Err(Error::Product(format!("`gleaner stop` has ended, and the daemon has not: {left:?}"))),
        }
    }

    /// A folder for the trees of cases.
    pub fn place(&self, name: &str) -> PathBuf {
        self.scratch.path().join("place").join(name)
    }

    /// Process ids of the client daemons.
    pub fn client_daemons(&self) -> Vec<i32> {
        let runtime = self.client.env.iter().find(|(name, _)| name == "GLEANER_RUNTIME_DIR").map(|(_, value)| value);
        let wanted =
            format!("GLEANER_RUNTIME_DIR={}", runtime.map_or(String::new(), |dir| dir.to_string_lossy().into()));
        let program = self.scratch.path().join("bin/gleaner");
        leftovers::processes(self.scratch.path())
            .into_iter()
            .filter(|pid| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program))
            .filter(|pid| {
                let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
            })
            .collect()
    }

    /// Stops everything, removes the folder, and returns what is wrong about that: what did not stop when asked, and what was
    /// left. Empty if all is well.
    pub fn stop(mut self, keep: bool) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        for other in self.other_hubs() {
            wrong.extend(other.stop()?);
        }
        for client in [Some(&self.client), Some(&self.owner), self.nobody.as_ref()].into_iter().flatten() {
            let outcome = client.gleaner(&["stop"])?;
            if !outcome.ok() {
                wrong.push(format!("gleaner stop: {}: {}", outcome.ended, String::from_utf8_lossy(&outcome.stderr)));
            }
        }
        for daemon in self.workers.iter_mut().chain(std::iter::once(&mut self.hub)) {
            if !daemon.stop(STOP) {
                wrong.push(format!("{} did not stop within {STOP:?} of SIGTERM", daemon.name));
            }
        }
        drop(self.database.take());
        wrong.extend(self.before.leftovers(self.scratch.path(), VANISH));
        if keep {
            let note = self.scratch.path().join(KEEP);
            std::fs::write(&note, b"left for a person to look at\n").at("write", &note)?;
            self.scratch.keep();
            return Ok(wrong);
        }
        let path = self.scratch.path().to_path_buf();
        leftovers::sweep(&path);
        self.scratch.remove()?;
        if path.exists() {
            wrong.push(format!("{} is still there", path.display()));
        }
        Ok(wrong)
    }
}

fn apart_in(testbed: &Testbed) -> Apart {
    let [client, site] = [CLIENT, SITE].map(|name| testbed.host(name));
    Apart { client: client.entrance(), site: site.entrance(), address: site.address().to_string() }
}

fn make(root: &Path, name: &str, mode: u32, user: u32) -> Result<PathBuf> {
    let path = root.join(name);
    std::fs::create_dir_all(&path).at("create", &path)?;
    std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).at("chmod", &path)?;
    if user != 0 {
        std::os::unix::fs::chown(&path, Some(user), Some(user)).at("chown", &path)?;
    }
    Ok(path)
}

/// Has a command use this CPU only.
fn pin(command: &mut Command, cpu: usize) {
    let mut allowed = rustix::thread::CpuSet::new();
    allowed.set(cpu);
    // SAFETY: between fork and exec the closure makes one system call and allocates nothing.
    unsafe {
        command.pre_exec(move || Ok(rustix::thread::sched_setaffinity(None, &allowed)?));
    }
}

fn client_in(root: &Path, name: &str, bin: &Path, user: u32) -> Result<Client> {
    let folder = make(root, name, 0o755, user)?;
    for inner in ["home", "run", "config", "state"] {
        make(&folder, inner, 0o700, user)?;
    }
    Ok(Client::new(bin, &folder, root, user))
}

/// Puts another address of the hub into a file of settings.
fn redirect(file: &Path, address: &str) -> Result<()> {
    let text = std::fs::read_to_string(file).at("read", file)?;
    let other = text.lines().filter(|line| !line.starts_with("hub ="));
    let lines: Vec<String> = other.map(str::to_owned).chain([format!("hub = [\"{address}\"]\n")]).collect();
    std::fs::write(file, lines.join("\n")).at("write", file)
}

/// The command that starts `gleaner` with what `begin` says, in an empty root of its own.
fn in_empty_root(root: &Path, name: &str, begin: &[&str], options: &Options) -> Result<Command> {
    let mount_point = make(root, &format!("{name}/root"), 0o755, 0)?;
    let state = make(root, &format!("{name}/state"), 0o700, 0)?;
    let place = EmptyRoot { mount_point, program: root.join("bin/gleaner"), state, mark: root.to_path_buf() };
    // What is to run on a certain one asks for it by its name.
    let rest = ["--state", "/state", "--cpus", &options.cpus.to_string(), "--name", name, "--tag", name];
    let mut command = place.command(&options.suite, &[begin, &rest].concat());
    let number = name.strip_prefix("worker").and_then(|number| number.parse::<usize>().ok());
    if let Some(group) = number.and_then(|number| options.groups.get(number)) {
        command.env(MACHINE, group);
    }
    match options.guests {
        true => command.env(WITHOUT, options.without),
        // The worker is root's: it takes tasks of the ordinary user for its owner's as well.
        false => command.env(WITHOUT, format!("{},guests", options.without)).env(OWNERS, "1"),
    };
    Ok(command)
}

/// Where the hub listens: a hub that is started again must be where its workers and clients look for it.
fn hub_listens(root: &Path) -> Result<String> {
    let file = root.join("hub/address");
    let listen = std::fs::read_to_string(&file).unwrap_or_else(|_| free_address());
    std::fs::write(&file, &listen).at("write", &file)?;
    Ok(listen)
}

/// Starts the hub and waits until it prints how to join it.
fn start_hub(root: &Path, side: &Client) -> Result<Daemon> {
    wait_for_hub(root, "hub", other::hub_command(root, "hub", side, &hub_listens(root)?))
}

/// Starts hub and worker in one process, in an empty root; `owner` is then who started them.
fn start_together(root: &Path, owner: &mut Client, options: &Options) -> Result<Daemon> {
    let mut command = in_empty_root(root, "worker0", &["up", "--listen", &hub_listens(root)?], options)?;
    owner.host.iter().for_each(|host| host.run_here(&mut command));
    let state = root.join("worker0/state");
    for (name, value) in &mut owner.env {
        match name.to_str() {
            Some("GLEANER_CONFIG_DIR") => *value = state.join("config").into(),
            Some("GLEANER_STATE_DIR") => *value = state.clone().into(),
            _ => {}
        }
    }
    wait_for_hub(root, "hub", command)
}

fn wait_for_hub(root: &Path, name: &str, command: Command) -> Result<Daemon> {
    let log = root.join(format!("log/{name}.log"));
    let from = std::fs::metadata(&log).map_or(0, |meta| meta.len() as usize);
    let mut hub = Daemon::start(name, command, &log)?;
    let ready = wait_for(START, || {
        if hub.check().is_err() {
            return Some(false);
        }
        let text = std::fs::read(&log).unwrap_or_default();
        String::from_utf8_lossy(&text[from.min(text.len())..]).contains("gleaner join ").then_some(true)
    });
    match ready {
        Some(true) => Ok(hub),
        _ => {
            hub.check()?;
            let text = std::fs::read(&log).unwrap_or_default();
            Err(Error::Product(format!(
                "the hub printed no `gleaner join` line within {START:?}:\n{}",
                tail(&text, 20)
            )))
        }
    }
}

/// An address of this machine whose port nobody uses now. It is none of those that the kernel gives to anybody: it must be free again when
/// who listens there has been killed.
pub(crate) fn free_address() -> String {
    let tried = std::iter::repeat_with(|| rand::random_range(10_000..32_000)).take(PORTS_TRIED);
    let is_free = |port: &u16| {
        let address = ("127.0.0.1", *port);
        std::net::UdpSocket::bind(address).is_ok() && std::net::TcpListener::bind(address).is_ok()
    };
    format!("127.0.0.1:{}", tried.into_iter().find(is_free).unwrap_or(0))
}

/// The workers in what `gleaner status --json` prints.
pub fn workers_in(status: &serde_json::Value) -> Vec<&serde_json::Value> {
    status.get("workers").and_then(|workers| workers.as_array()).map_or(Vec::new(), |workers| workers.iter().collect())
}

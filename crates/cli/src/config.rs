//! Settings: TOML file, then environment, then flags, the later the stronger; and where each one came from.
//!
//! `client.toml` says which hub this account uses; `node.toml` is for hub and worker on this machine. Both lie in
//! `$GLEANER_CONFIG_DIR`, else `$XDG_CONFIG_HOME/gleaner`, else `~/.config/gleaner`.

mod hubs;
mod owner;
mod signatures;

use hubs::{hub, known_hub, trust};
pub use owner::{Cpus, Guests, GuestsFile, Memory, RestFile};

use crate::error::{CliError, Result};
use crate::parts::OwnWork;
use base::command::are_tags;
use serde::{Deserialize, Serialize};
use serde_json::json;
use signatures::Signatures;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use store::pg_journal::Place;
use wire::Trust;

/// Where hubs listen if nothing else is said.
pub const LISTEN_DEFAULT: &str = "0.0.0.0:7433";
/// How long commands that run wait for a link that is down, in seconds, if nothing else is said.
const LINK_WAIT_DEFAULT: u32 = 25;
/// Hosts that a hub has room for, if nothing else is said; it takes some 1 KB for each.
const HOSTS_MAX_DEFAULT: u32 = 4_096;
/// Tasks that a hub has room for, if nothing else is said; it takes some 300 bytes for each.
const TASKS_MAX_DEFAULT: u32 = 65_536;
/// Name of the client's file.
pub const CLIENT_FILE: &str = "client.toml";
/// Name of the file for hub and worker.
pub const NODE_FILE: &str = "node.toml";

/// What `client.toml` may hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientFile {
    /// The hub's addresses, `HOST:PORT` each.
    pub hub: Vec<String>,
    /// The hub's key: 64 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hub_key: Option<String>,
    /// Folder for the client's keys, journal and caches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_dir: Option<PathBuf>,
    /// Seconds for which commands that run wait for a link that is down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_wait_s: Option<u32>,
    /// `auto`: commands run where they are expected to end first; `there`: on the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefer: Option<String>,
    /// Whose the workers of that hub are, whatever it says of them: `own`, `site` or `volunteer`. Unsaid: one's own if the hub is of this
    /// account on this machine, else the site's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trust: Option<String>,
    /// Results without their worker's signature: `known`: they count unless it has signed before; `required`: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signatures: Option<String>,
}

/// What `node.toml` may hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeFile {
    /// The addresses of the hub that this machine works for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hub: Vec<String>,
    /// That hub's key: 64 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hub_key: Option<String>,
    /// The addresses of the hub that a hub on this machine works for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub above: Vec<String>,
    /// That hub's key: 64 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub above_key: Option<String>,
    /// Address and port that a hub on this machine listens on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// Folder for keys, journal and blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_dir: Option<PathBuf>,
    /// The database that keeps the journal of a hub on this machine: `postgres://…`. May hold a password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journal: Option<String>,
    /// Address and port at which a hub on this machine has metrics for Prometheus.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<String>,
    /// CPUs that a worker on this machine offers: a number, or a part of all such as `"50%"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<toml::Value>,
    /// Tags of a worker on this machine: commands may ask for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Name of this machine in the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Memory that guests on this machine leave free, such as `4G` or `25%`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_reserve: Option<String>,
    /// Memory that guests on this machine have at most, however much is free; the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_max: Option<String>,
    /// Priority of this account's own tasks on this machine: `ordinary` or `guest`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_work: Option<String>,
    /// Launches without their client's signature: `known`: they count unless it has signed before; `required`: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signatures: Option<String>,
    /// When guests on this machine rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rest: Option<RestFile>,
    /// What guests on this machine may have beside processors and memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guests: Option<GuestsFile>,
    /// Hosts that a hub on this machine has room for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts_max: Option<u32>,
    /// Tasks that a hub on this machine has room for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks_max: Option<u32>,
}

/// What the flags of a subcommand say.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--listen`.
    pub listen: Option<String>,
    /// `--metrics`.
    pub metrics: Option<String>,
    /// `--state`.
    pub state_dir: Option<PathBuf>,
    /// `--cpus`.
    pub cpus: Option<Cpus>,
    /// `--tag`.
    pub tags: Vec<String>,
    /// `--name`.
    pub name: Option<String>,
}

/// Names that commands may ask for, with commas between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags(pub Vec<String>);

impl std::str::FromStr for Tags {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        let tags: Vec<String> = text.split_terminator(',').map(|tag| tag.trim().to_owned()).collect();
        if are_tags(&tags) { Ok(Self(tags)) } else { Err(()) }
    }
}

/// Where a setting came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nothing was said.
    Default,
    /// A file.
    File(PathBuf),
    /// A variable of the environment.
    Environment(&'static str),
    /// A flag.
    Flag(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment(name) => write!(f, "${name}"),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// A setting with its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting<T> {
    /// Its value.
    pub value: T,
    /// Where it came from.
    pub source: Source,
}

/// A hub that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownHub {
    /// Its addresses.
    pub addresses: Vec<String>,
    /// Its key.
    pub key: base::Digest,
}

/// The environment, and what of the machine decides defaults.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Variables.
    pub variables: BTreeMap<String, String>,
    /// The home that the system's list of accounts gives this one.
    pub account_home: Option<String>,
    /// Whether this is the superuser.
    pub is_root: bool,
    /// The host's name.
    pub hostname: String,
    /// CPUs that this process may use.
    pub cpus: u32,
}

impl Surroundings {
    /// Those of this process.
    pub fn of_process() -> Self {
        Self {
            variables: std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .collect(),
            account_home: account_home(),
            is_root: rustix::process::geteuid().is_root(),
            hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            cpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32),
        }
    }

    fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn home(&self, xdg: &str, below_home: &str) -> Result<PathBuf> {
        if let Some(path) = self.variable(xdg).filter(|path| path.starts_with('/')) {
            return Ok(Path::new(path).join("gleaner"));
        }
        let home = self.variable("HOME").filter(|path| path.starts_with('/')).or(self.account_home.as_deref());
        let home = home.ok_or_else(|| {
            CliError::environment("neither HOME nor its XDG variables are set")
                .hint("set HOME, or GLEANER_CONFIG_DIR and GLEANER_STATE_DIR")
        })?;
        Ok(Path::new(home).join(below_home).join("gleaner"))
    }

    /// The folder of the configuration.
    pub fn config_dir(&self) -> Result<PathBuf> {
        match self.variable("GLEANER_CONFIG_DIR") {
            Some(path) => Ok(PathBuf::from(path)),
            None => self.home("XDG_CONFIG_HOME", ".config"),
        }
    }

    fn state_dir_default(&self) -> Result<PathBuf> {
        if self.is_root && self.variable("XDG_STATE_HOME").is_none() {
            return Ok(PathBuf::from("/var/lib/gleaner"));
        }
        self.home("XDG_STATE_HOME", ".local/state")
    }
}

/// The home of this account in the system's list: for programs that are started without an environment.
fn account_home() -> Option<String> {
    let own = rustix::process::geteuid().as_raw().to_string();
    let list = std::fs::read_to_string("/etc/passwd").ok()?;
    let mut accounts = list.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let account = accounts.find(|fields| fields.len() >= 6 && fields[2] == own)?;
    account[5].starts_with('/').then(|| account[5].to_owned())
}

/// Where commands run that could run here as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefer {
    /// Where they are expected to end first.
    Auto,
    /// On the pool.
    There,
}

impl Prefer {
    fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::There => "there",
        }
    }
}

impl std::str::FromStr for Prefer {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        [Self::Auto, Self::There].into_iter().find(|prefer| prefer.name() == text).ok_or(())
    }
}

/// The settings in effect.
#[derive(Clone, Debug)]
pub struct Config {
    /// Folder of the files.
    pub dir: PathBuf,
    /// The hub that this account's commands go to, if any.
    pub client_hub: Option<Setting<KnownHub>>,
    /// Whose the workers of that hub are, if that was said.
    pub client_trust: Option<Setting<Trust>>,
    /// The hub that this machine works for, if any.
    pub worker_hub: Option<Setting<KnownHub>>,
    /// The hub that a hub on this machine works for, if any.
    pub hub_above: Option<Setting<KnownHub>>,
    /// Seconds for which commands that run wait for a link that is down.
    pub link_wait_s: Setting<u32>,
    /// Where commands run that could run here as well.
    pub prefer: Setting<Prefer>,
    /// Whether results count that no worker has signed.
    pub client_signatures: Setting<Signatures>,
    /// Where a hub on this machine listens.
    pub listen: Setting<SocketAddr>,
    /// Folder for state; each part has a folder of its own in it.
    pub state_dir: Setting<PathBuf>,
    /// The database that keeps a hub's journal, if it is not in the folder for state.
    pub journal: Option<Setting<Place>>,
    /// Where a hub on this machine has metrics, if anywhere.
    pub metrics: Option<Setting<SocketAddr>>,
    /// CPUs that a worker offers.
    pub cpus: Setting<u32>,
    /// Tags of a worker.
    pub tags: Setting<Tags>,
    /// Memory that guests of a worker leave free, if that was said.
    pub memory_reserve: Option<Setting<Memory>>,
    /// And have at most, if that was said.
    pub memory_max: Option<Setting<Memory>>,
    /// Priority of this account's own tasks on this machine.
    pub own_work: Setting<OwnWork>,
    /// Whether a worker takes launches that no client has signed.
    pub node_signatures: Setting<Signatures>,
    /// When guests of a worker rest.
    pub rest: Setting<sched::rest::Rules>,
    /// What guests of a worker may have beside processors and memory.
    pub guests: Setting<Guests>,
    /// This machine's name.
    pub name: Setting<String>,
    /// Hosts that a hub has room for.
    pub hosts_max: Setting<u32>,
    /// Tasks that a hub has room for.
    pub tasks_max: Setting<u32>,
}

impl Config {
    /// Reads files and environment, and puts the flags on top.
    pub fn load(around: &Surroundings, flags: Flags) -> Result<Self> {
        let dir = around.config_dir()?;
        let (client_path, node_path) = (dir.join(CLIENT_FILE), dir.join(NODE_FILE));
        let client: ClientFile = read(&client_path)?;
        let node: NodeFile = read(&node_path)?;
        let pick = Pick { around, file: &node_path };
        let listen = pick.text("GLEANER_LISTEN", ("--listen", flags.listen), node.listen, || LISTEN_DEFAULT.into());
        let listen = parse(listen, "listen", "an address and port such as 0.0.0.0:7433")?;
        let text = |number: u32| number.to_string();
        let cpus_flag = flags.cpus.map(|cpus| cpus.to_string());
        let cpus = pick.text("GLEANER_CPUS", ("--cpus", cpus_flag), node.cpus.map(owner::text), || "100%".into());
        let cpus: Setting<Cpus> = parse(cpus, "cpus", Cpus::WANT)?;
        let tags = |tags: Vec<String>| Some(tags.join(",")).filter(|text| !text.is_empty());
        let tags = pick.text("GLEANER_TAGS", ("--tag", tags(flags.tags)), tags(node.tags), String::new);
        let of_client = Pick { around, file: &client_path };
        let wait_file = client.link_wait_s.map(text);
        let wait = of_client.text("GLEANER_LINK_WAIT_S", ("", None), wait_file, || LINK_WAIT_DEFAULT.to_string());
        let (hosts_file, tasks_file) = (node.hosts_max.map(text), node.tasks_max.map(text));
        let hosts_max = pick.text("GLEANER_HOSTS_MAX", ("", None), hosts_file, || HOSTS_MAX_DEFAULT.to_string());
        let tasks_max = pick.text("GLEANER_TASKS_MAX", ("", None), tasks_file, || TASKS_MAX_DEFAULT.to_string());
        let own_work = pick.text("GLEANER_OWN_WORK", ("", None), node.own_work, || OwnWork::default().name().into());
        let signatures = |pick: &Pick<'_>, file| {
            let picked = pick.text("GLEANER_SIGNATURES", ("", None), file, || Signatures::Known.name().into());
            parse(picked, "signatures", Signatures::WANT)
        };
        let prefer = of_client.text("GLEANER_PREFER", ("", None), client.prefer, || "auto".into());
        let state_default = around.state_dir_default()?;
        let state_file = node.state_dir.or(client.state_dir);
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let state_flag = ("--state", flags.state_dir.map(text));
        let state = pick.text("GLEANER_STATE_DIR", state_flag, state_file.map(text), || text(state_default));
        let name = pick.text("GLEANER_NAME", ("--name", flags.name), node.name, || around.hostname.clone());
        let trust_file = client.trust.map(|class| (class, client.hub_key.clone()));
        let client_hub = hub(around, &client_path, client.hub, client.hub_key)?;
        Ok(Self {
            client_trust: trust(&of_client, client_hub.as_ref(), trust_file)?,
            client_hub,
            worker_hub: hub(around, &node_path, node.hub, node.hub_key)?,
            hub_above: known_hub(node.above, node.above_key, Source::File(node_path.clone()))?,
            memory_reserve: owner::memory(&pick, "memory_reserve", "GLEANER_MEMORY_RESERVE", node.memory_reserve)?,
            memory_max: owner::memory(&pick, "memory_max", "GLEANER_MEMORY_MAX", node.memory_max)?,
            own_work: parse(own_work, "own_work", "ordinary or guest")?,
            rest: owner::rules(node.rest, &node_path)?,
            guests: owner::guests(node.guests, &node_path)?,
            journal: journal(&pick, node.journal)?,
            metrics: metrics(&pick, flags.metrics, node.metrics)?,
            link_wait_s: number(wait, "link_wait_s", 1..=600)?,
            prefer: parse(prefer, "prefer", "auto or there")?,
            client_signatures: signatures(&of_client, client.signatures)?,
            node_signatures: signatures(&pick, node.signatures)?,
            listen,
            state_dir: Setting {
                value: std::path::absolute(&state.value).unwrap_or(state.value.into()),
                source: state.source,
            },
            cpus: Setting { value: cpus.value.of(around.cpus), source: cpus.source },
            tags: parse(tags, "tags", "at most 16 names of letters, digits, and `.`, `_`, `:`, `-` within")?,
            name,
            hosts_max: number(hosts_max, "hosts_max", 16..=1_000_000)?,
            tasks_max: number(tasks_max, "tasks_max", 64..=4_000_000)?,
            dir,
        })
    }

    /// Key, value and source of every setting.
    pub fn table(&self) -> Vec<(&'static str, serde_json::Value, String)> {
        let hub = |hub: &Option<Setting<KnownHub>>| match hub {
            Some(hub) => (hub.value.addresses.clone().into(), hub.value.key.to_hex().into(), hub.source.to_string()),
            None => (serde_json::Value::Null, serde_json::Value::Null, Source::Default.to_string()),
        };
        let (client_hub, client_key, client_source) = hub(&self.client_hub);
        let trust = self.client_trust.as_ref();
        let trust_source = trust.map_or(Source::Default, |trust| trust.source.clone()).to_string();
        let (worker_hub, worker_key, worker_source) = hub(&self.worker_hub);
        let (above, above_key, above_source) = hub(&self.hub_above);
        // Without its password.
        let (journal, journal_source) = shown(self.journal.as_ref());
        let (metrics, metrics_source) = shown(self.metrics.as_ref());
        let (reserve, reserve_source) = shown(self.memory_reserve.as_ref());
        let (most, most_source) = shown(self.memory_max.as_ref());
        let signed = |key: &'static str, signatures: &Setting<Signatures>| {
            (key, signatures.value.name().into(), signatures.source.to_string())
        };
        let path = |path: &Path| serde_json::Value::from(path.to_string_lossy().into_owned());
        vec![
            ("client.hub", client_hub, client_source.clone()),
            ("client.hub_key", client_key, client_source),
            ("client.trust", trust.map(|trust| trust.value.name()).into(), trust_source),
            ("client.link_wait_s", self.link_wait_s.value.into(), self.link_wait_s.source.to_string()),
            signed("client.signatures", &self.client_signatures),
            ("client.prefer", self.prefer.value.name().into(), self.prefer.source.to_string()),
            ("node.hub", worker_hub, worker_source.clone()),
            ("node.hub_key", worker_key, worker_source),
            ("node.above", above, above_source.clone()),
            ("node.above_key", above_key, above_source),
            ("node.listen", self.listen.value.to_string().into(), self.listen.source.to_string()),
            ("node.journal", journal, journal_source),
            ("node.metrics", metrics, metrics_source),
            ("node.cpus", self.cpus.value.into(), self.cpus.source.to_string()),
            ("node.tags", self.tags.value.0.clone().into(), self.tags.source.to_string()),
            ("node.memory_reserve", reserve, reserve_source),
            ("node.memory_max", most, most_source),
            ("node.own_work", self.own_work.value.name().into(), self.own_work.source.to_string()),
            signed("node.signatures", &self.node_signatures),
            ("node.guests", self.guests.value.shown(), self.guests.source.to_string()),
            ("node.rest", owner::shown(&self.rest.value), self.rest.source.to_string()),
            ("node.name", self.name.value.clone().into(), self.name.source.to_string()),
            ("node.hosts_max", self.hosts_max.value.into(), self.hosts_max.source.to_string()),
            ("node.tasks_max", self.tasks_max.value.into(), self.tasks_max.source.to_string()),
            ("state_dir", path(&self.state_dir.value), self.state_dir.source.to_string()),
        ]
    }

    /// The same as JSON, with the folder of the files.
    pub fn json(&self) -> serde_json::Value {
        let row = |(key, value, source): (&str, _, _)| (key.to_owned(), json!({"value": value, "source": source}));
        let settings: serde_json::Map<_, _> = self.table().into_iter().map(row).collect();
        json!({"config_dir": self.dir.to_string_lossy(), "settings": settings})
    }
}

/// Chooses the strongest of a setting's sources.
struct Pick<'a> {
    around: &'a Surroundings,
    file: &'a Path,
}

impl Pick<'_> {
    /// A setting that need not be there.
    fn said(
        &self,
        variable: &'static str,
        flag: (&'static str, Option<String>),
        file_value: Option<String>,
    ) -> Option<Setting<String>> {
        Some(self.text(variable, flag, file_value, String::new)).filter(|text| text.source != Source::Default)
    }

    fn text(
        &self,
        variable: &'static str,
        (flag, flag_value): (&'static str, Option<String>),
        file_value: Option<String>,
        default: impl FnOnce() -> String,
    ) -> Setting<String> {
        if let Some(value) = flag_value {
            return Setting { value, source: Source::Flag(flag) };
        }
        if let Some(value) = self.around.variable(variable) {
            return Setting { value: value.into(), source: Source::Environment(variable) };
        }
        match file_value {
            Some(value) => Setting { value, source: Source::File(self.file.to_owned()) },
            None => Setting { value: default(), source: Source::Default },
        }
    }
}

/// Value and source of a setting that need not be there.
fn shown<T: std::fmt::Display>(setting: Option<&Setting<T>>) -> (serde_json::Value, String) {
    match setting {
        Some(setting) => (setting.value.to_string().into(), setting.source.to_string()),
        None => (serde_json::Value::Null, Source::Default.to_string()),
    }
}

/// Where the journal is. What is wrong with the URL is said without it.
fn journal(pick: &Pick<'_>, of_file: Option<String>) -> Result<Option<Setting<Place>>> {
    let text = pick.text("GLEANER_JOURNAL", ("", None), of_file, String::new);
    if text.value.is_empty() {
        return Ok(None);
    }
    match Place::parse(&text.value) {
        Ok(value) => Ok(Some(Setting { value, source: text.source })),
        Err(error) => Err(CliError::config(format!("{}: journal: {error}", text.source))
            .hint("correct it, or leave it out: then the journal is in the folder for state")),
    }
}

/// Where metrics are, if anywhere.
fn metrics(pick: &Pick<'_>, of_flag: Option<String>, of_file: Option<String>) -> Result<Option<Setting<SocketAddr>>> {
    let Some(text) = pick.said("GLEANER_METRICS", ("--metrics", of_flag), of_file) else { return Ok(None) };
    parse(text, "metrics", "an address and port such as 127.0.0.1:9433").map(Some)
}

fn parse<T: std::str::FromStr>(text: Setting<String>, key: &str, want: &str) -> Result<Setting<T>> {
    match text.value.parse() {
        Ok(value) => Ok(Setting { value, source: text.source }),
        Err(_) => Err(wrong(key, &text.source, &text.value, want)),
    }
}

/// A setting that is a number within these bounds.
fn number(text: Setting<String>, key: &str, within: RangeInclusive<u32>) -> Result<Setting<u32>> {
    let want = format!("a number from {} to {}", within.start(), within.end());
    let number: Setting<u32> = parse(text, key, &want)?;
    match within.contains(&number.value) {
        true => Ok(number),
        false => Err(wrong(key, &number.source, &number.value.to_string(), &want)),
    }
}

fn wrong(key: &str, source: &Source, value: &str, want: &str) -> CliError {
    let value = base::path::printable(value.as_bytes());
    let error = match source {
        Source::Flag(flag) => return CliError::user(format!("{flag} {value}: not {want}")),
        Source::Environment(name) => CliError::config(format!("${name} is `{value}`: not {want}")),
        source => CliError::config(format!("{source}: {key} = `{value}`: not {want}")),
    };
    error.hint(format!("set {key} to {want}, or leave it out"))
}

/// Reads a file of settings; one that is missing is empty.
pub fn read<T: serde::de::DeserializeOwned + Default>(path: &Path) -> Result<T> {
    // Of a pipe nothing might ever come.
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(CliError::config(format!("{}: it is no file", path.display()))
            .hint(format!("move {} away", path.display())));
    }
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(T::default()),
        Err(error) => return Err(CliError::config(format!("{}: {error}", path.display()))),
    };
    toml::from_str(&text).map_err(|error| {
        CliError::config(format!("{}: {}", path.display(), error.to_string().trim_end()))
            .hint(format!("correct that line, or move {} away", path.display()))
    })
}

/// Writes a file of settings, readable by its owner only; all or nothing.
pub fn write<T: Serialize>(path: &Path, settings: &T) -> Result {
    let text = toml::to_string(settings).map_err(|error| CliError::internal(error.to_string()))?;
    store::write_private(path, text.as_bytes(), true).map_err(|error| CliError::file("writing", path, &error))
}

#[cfg(test)]
mod tests;

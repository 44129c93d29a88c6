//! What the owner of a lending machine has settled: how much of it guests may have, and when they rest.

use super::{Pick, Setting, Source, parse};
use crate::error::{CliError, Result};
use base::command::memory_mib;
use sched::rest::{Hours, Rules};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// The part `[rest]` of `node.toml`. What is left out stays as it is by default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RestFile {
    /// Rest on battery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub battery: Option<bool>,
    /// Rest from this temperature on, in degrees Celsius; 0: however hot it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub celsius: Option<f64>,
    /// Rest under a full-screen program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_screen: Option<bool>,
    /// Rest on a network that is paid by volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metered: Option<bool>,
    /// Rest while somebody is at the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence: Option<bool>,
    /// Rest at these times, such as `mon-fri 9:00-17:30`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hours: Vec<String>,
}

/// The rules that a file gives.
pub(super) fn rules(given: Option<RestFile>, file: &Path) -> Result<Setting<Rules>> {
    let default = Rules::default();
    let Some(given) = given else { return Ok(Setting { value: default, source: Source::Default }) };
    let source = Source::File(file.to_owned());
    let wrong = |what: String, hint: &str| CliError::config(format!("{source}: rest.{what}")).hint(hint);
    let hours = given.hours.iter().map(|text| {
        text.parse::<Hours>()
            .map_err(|error| wrong(format!("hours: {error}"), "correct it, in this machine's own time"))
    });
    let celsius = given.celsius.or(default.celsius_max).filter(|celsius| *celsius != 0.0);
    if let Some(celsius) = celsius.filter(|celsius| !(20.0..=120.0).contains(celsius)) {
        return Err(wrong(format!("celsius: {celsius}"), "give degrees from 20 to 120, or 0: however hot it is"));
    }
    let value = Rules {
        battery: given.battery.unwrap_or(default.battery),
        celsius_max: celsius,
        full_screen: given.full_screen.unwrap_or(default.full_screen),
        metered: given.metered.unwrap_or(default.metered),
        presence: given.presence.unwrap_or(default.presence),
        hours: hours.collect::<Result<_>>()?,
    };
    Ok(Setting { value, source })
}

/// The part `[guests]` of `node.toml`: what guests may have beside processors and memory, and one task or one client of all that.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GuestsFile {
    /// What they write on disk, such as `50G` or `25%`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_max: Option<String>,
    /// Files that they make.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files_max: Option<u64>,
    /// Processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes_max: Option<u64>,
    /// The part of each of these, and of memory, that one task may have, such as `75%`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_max: Option<String>,
    /// And all tasks of one client together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_max: Option<String>,
    /// They may use the network, if their clients let them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<bool>,
}

/// What guests may have, as it was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guests {
    /// On disk, in all.
    pub disk_max: Option<Memory>,
    /// Files, in all.
    pub files_max: Option<u64>,
    /// Processes and threads, in all.
    pub processes_max: Option<u64>,
    /// One task, in percent.
    pub task_percent: u32,
    /// One client, in percent.
    pub client_percent: u32,
    /// They may use the network.
    pub network: bool,
}

impl Default for Guests {
    fn default() -> Self {
        Self {
            disk_max: None,
            files_max: None,
            processes_max: None,
            task_percent: 75,
            client_percent: 90,
            network: false,
        }
    }
}

impl Guests {
    /// What a worker is told whose guests write to a file system with so many bytes.
    pub fn lent(&self, disk: u64) -> worker::charge::Lent {
        worker::charge::Lent {
            disk_bytes: self.disk_max.map(|most| most.bytes(disk)),
            files: self.files_max,
            processes: self.processes_max,
            task_percent: self.task_percent,
            client_percent: self.client_percent,
        }
    }

    /// For `gleaner config`.
    pub(super) fn shown(&self) -> serde_json::Value {
        let Self { disk_max, files_max, processes_max, task_percent, client_percent, network } = self;
        let said = [
            ("disk", disk_max.map(|most| most.to_string())),
            ("files", files_max.map(|most| most.to_string())),
            ("processes", processes_max.map(|most| most.to_string())),
        ];
        let said = said.into_iter().filter_map(|(what, most)| Some(format!("{what} {}", most?)));
        let network = if *network { "network" } else { "no network" };
        let parts = [format!("task {task_percent}%"), format!("client {client_percent}%"), network.into()];
        said.chain(parts).collect::<Vec<String>>().into()
    }
}

/// What a file says of guests.
pub(super) fn guests(given: Option<GuestsFile>, file: &Path) -> Result<Setting<Guests>> {
    let default = Guests::default();
    let Some(given) = given else { return Ok(Setting { value: default, source: Source::Default }) };
    let source = Source::File(file.to_owned());
    let wrong = |key: &str, said: &str, want: &str| {
        let said = base::path::printable(said.as_bytes());
        CliError::config(format!("{source}: guests.{key} = `{said}`: not {want}"))
            .hint(format!("set {key} to {want}, or leave it out"))
    };
    let percent = |key: &str, said: Option<String>, default: u32| {
        let Some(said) = said else { return Ok(default) };
        match said.parse() {
            Ok(Memory(Amount::Percent(percent))) => Ok(percent),
            _ => Err(wrong(key, &said, "a part such as 75%")),
        }
    };
    let number = |key: &str, said: Option<u64>, least: u64| match said {
        Some(said) if said < least => Err(wrong(key, &said.to_string(), &format!("a number from {least}"))),
        said => Ok(said),
    };
    let disk = |said: String| {
        said.parse::<Memory>().map_err(|()| wrong("disk_max", &said, "a size such as 50G, or a part such as 25%"))
    };
    let value = Guests {
        disk_max: given.disk_max.map(disk).transpose()?,
        files_max: number("files_max", given.files_max, 1_000)?,
        processes_max: number("processes_max", given.processes_max, 100)?,
        task_percent: percent("task_max", given.task_max, default.task_percent)?,
        client_percent: percent("client_max", given.client_max, default.client_percent)?,
        network: given.network.unwrap_or(default.network),
    };
    Ok(Setting { value, source })
}

/// So much, or a part of what this machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Amount {
    Whole(u32),
    Percent(u32),
}

impl Amount {
    /// `whole` reads what is not a part.
    fn read(text: &str, whole: impl Fn(&str) -> Option<u32>) -> Option<Self> {
        match text.strip_suffix('%') {
            Some(part) => part.parse().ok().filter(|percent| (1..=100).contains(percent)).map(Self::Percent),
            None => whole(text).map(Self::Whole),
        }
    }

    fn show(self, f: &mut fmt::Formatter<'_>, unit: &str) -> fmt::Result {
        match self {
            Self::Whole(amount) => write!(f, "{amount}{unit}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// CPUs that a worker offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpus(Amount);

impl Cpus {
    /// What it may be.
    pub const WANT: &str = "a number from 1 to 4096, or a part of all such as 50%";

    /// Of `all` that there are: at most that part, and at least one.
    pub fn of(self, all: u32) -> u32 {
        match self.0 {
            Amount::Whole(count) => count,
            Amount::Percent(percent) => (all.saturating_mul(percent) / 100).max(1),
        }
    }
}

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let count = |text: &str| text.parse().ok().filter(|count| (1..=4096).contains(count));
        Amount::read(text, count).map(Self).ok_or_else(|| format!("not {}", Self::WANT))
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.show(f, "")
    }
}

/// An amount of memory: what guests leave free, or have at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory(Amount);

impl Memory {
    /// Of `all` that there is, in bytes.
    pub fn bytes(self, all: u64) -> u64 {
        match self.0 {
            Amount::Whole(mib) => u64::from(mib) << 20,
            Amount::Percent(percent) => all / 100 * u64::from(percent),
        }
    }
}

impl FromStr for Memory {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        Amount::read(text, memory_mib).map(Self).ok_or(())
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.show(f, "M")
    }
}

/// The amount of memory that is called `key`, if one was named.
pub(super) fn memory(
    pick: &Pick<'_>,
    key: &str,
    variable: &'static str,
    of_file: Option<String>,
) -> Result<Option<Setting<Memory>>> {
    let Some(text) = pick.said(variable, ("", None), of_file) else { return Ok(None) };
    parse(text, key, "a size such as 4G, or a part of all such as 25%").map(Some)
}

/// A number or a text of a file, as text.
pub(super) fn text(value: toml::Value) -> String {
    match value {
        toml::Value::String(text) => text,
        other => other.to_string(),
    }
}

/// The rules, for `gleaner config`.
pub(super) fn shown(rules: &Rules) -> serde_json::Value {
    let when = [
        ("battery", rules.battery),
        ("full screen", rules.full_screen),
        ("metered network", rules.metered),
        ("presence", rules.presence),
    ];
    let mut all: Vec<String> = when.iter().filter(|(_, is_so)| *is_so).map(|(name, _)| (*name).to_owned()).collect();
    all.extend(rules.celsius_max.map(|celsius| format!("{celsius} °C")));
    all.extend(rules.hours.iter().map(ToString::to_string));
    all.into()
}

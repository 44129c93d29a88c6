//! What the owner of a lending machine has settled: when guests rest, and how much memory is his in any case.

use super::{Pick, Setting, Source, parse};
use crate::error::{CliError, Result};
use base::command::memory_mib;
use sched::rest::{Hours, Rules};
use serde::{Deserialize, Serialize};
use std::path::Path;

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

/// Memory that guests leave free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// In MiB.
    pub mib: u32,
}

impl std::str::FromStr for Reserve {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        memory_mib(text).map(|mib| Self { mib }).ok_or(())
    }
}

impl std::fmt::Display for Reserve {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}M", self.mib)
    }
}

impl Reserve {
    /// In bytes.
    pub fn bytes(self) -> u64 {
        u64::from(self.mib) << 20
    }
}

/// The reserve, if one was named.
pub(super) fn reserve(pick: &Pick<'_>, of_file: Option<String>) -> Result<Option<Setting<Reserve>>> {
    let text = pick.text("GLEANER_MEMORY_RESERVE", ("", None), of_file, String::new);
    if text.source == Source::Default {
        return Ok(None);
    }
    parse(text, "memory_reserve", "a size such as 4G").map(Some)
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

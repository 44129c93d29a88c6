//! Which hubs are known, and how far an account trusts the workers of its own.

use super::{KnownHub, Pick, Setting, Source, Surroundings, wrong};
use crate::error::{CliError, Result};
use std::path::Path;
use wire::Trust;

/// A hub as files and environment name it.
pub(super) fn hub(
    around: &Surroundings,
    file: &Path,
    addresses: Vec<String>,
    key: Option<String>,
) -> Result<Option<Setting<KnownHub>>> {
    // The two go together: a hub's address with another hub's key would only fail later.
    let (addresses, key, source) = match around.variable("GLEANER_HUB") {
        Some(list) => (
            list.split(',').map(|address| address.trim().to_owned()).collect(),
            around.variable("GLEANER_HUB_KEY").map(String::from),
            Source::Environment("GLEANER_HUB"),
        ),
        None => (addresses, key, Source::File(file.to_owned())),
    };
    known_hub(addresses, key, source)
}

/// The same of these addresses and this key.
pub(super) fn known_hub(
    addresses: Vec<String>,
    key: Option<String>,
    source: Source,
) -> Result<Option<Setting<KnownHub>>> {
    if addresses.is_empty() {
        return Ok(None);
    }
    for address in &addresses {
        let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
        if !matches!(port, Some(Ok(1..))) {
            return Err(wrong("hub", &source, address, "a host and port such as hub.example:7433"));
        }
    }
    let Some(text) = key else {
        return Err(CliError::config(format!("{source}: a hub is given, but not its key"))
            .hint("`gleaner use TOKEN` and `gleaner join TOKEN` write both; beside GLEANER_HUB set GLEANER_HUB_KEY"));
    };
    let key = base::Digest::from_hex(&text)
        .ok_or_else(|| wrong("hub_key", &source, &text, "a key of 64 hexadecimal digits"))?;
    Ok(Some(Setting { value: KnownHub { addresses, key }, source }))
}

/// Whose the workers are of `hub`. What the file says is of the hub whose key is beside it, and of no other.
pub(super) fn trust(
    pick: &Pick<'_>,
    hub: Option<&Setting<KnownHub>>,
    of_file: Option<(String, Option<String>)>,
) -> Result<Option<Setting<Trust>>> {
    let is_of = |key: &String| hub.is_some_and(|hub| base::Digest::from_hex(key) == Some(hub.value.key));
    let of_file = of_file.filter(|(_, key)| key.as_ref().is_some_and(is_of)).map(|(class, _)| class);
    let Some(text) = pick.said("GLEANER_TRUST", ("", None), of_file) else { return Ok(None) };
    match Trust::from_name(&text.value) {
        Some(value) => Ok(Some(Setting { value, source: text.source })),
        None => Err(wrong("trust", &text.source, &text.value, "own, site or volunteer")),
    }
}

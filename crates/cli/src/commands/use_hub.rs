//! `gleaner use`: has this account's commands run on a pool.

use crate::args::TokenArgument;
use crate::config::{self, CLIENT_FILE, ClientFile, Config, Flags, KnownHub, Surroundings};
use crate::detach::make_private_folder;
use crate::error::{CliError, Result};
use crate::parts::{self, Joiner};
use crate::render::say;
use client::report::{Done, Question};
use gleaner_client::door::{Door, DoorError, Folder};

/// Redeems a token as a client.
pub fn run(arguments: TokenArgument) -> Result {
    let config = Config::load(&Surroundings::of_process(), Flags::default())?;
    let token = super::token_of(&arguments)?;
    let hub = redeem(&config, &token)?;
    say(&format!("commands of this account now run on the pool of {}: try `remrun true`", super::hub_name(&hub)));
    // Last, since redeeming may have left threads behind, and only a running daemon must know.
    reload(&Folder::of_environment())
}

/// Redeems `token` and writes `client.toml`.
pub fn redeem(config: &Config, token: &str) -> Result<KnownHub> {
    let state_dir = config.state_dir.value.join("client");
    make_private_folder(&state_dir)?;
    let hub = parts::redeem(token, Joiner::Client, &state_dir, &config.name.value).map_err(super::part_failed)?;
    let path = config.dir.join(CLIENT_FILE);
    let before: ClientFile = config::read(&path)?;
    if !before.hub.is_empty() && before.hub_key.as_ref().is_some_and(|key| *key != hub.key.to_hex()) {
        say(&format!("{} named another hub before: {}", path.display(), before.hub.join(", ")));
    }
    let after = ClientFile { hub: hub.addresses.clone(), hub_key: Some(hub.key.to_hex()), ..before };
    config::write(&path, &after)?;
    Ok(hub)
}

/// Has the daemon of `folder`, if it runs, read the configuration again.
pub fn reload(folder: &Folder) -> Result {
    match Door::open(folder) {
        Ok(mut door) => super::ask_through::<Done>(&mut door, &Question::Reload).map(drop),
        Err(DoorError::NotListening) => Ok(()),
        Err(error) => Err(CliError::from(error)),
    }
}

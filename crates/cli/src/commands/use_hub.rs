//! `gleaner use`: has this account's commands run on a pool.

use crate::args::Use;
use crate::config::{self, CLIENT_FILE, ClientFile, Config, Flags, KnownHub, Surroundings};
use crate::detach::make_private_folder;
use crate::error::{CliError, Result};
use crate::parts::{self, Joiner};
use crate::render::say;
use client::report::Question;
use gleaner_client::door::{Door, DoorError, Folder};

/// Redeems a token as a client, or says whose the workers are of the pool in use.
pub fn run(arguments: Use) -> Result {
    let config = Config::load(&Surroundings::of_process(), Flags::default())?;
    let word = arguments.trust.map(|trust| trust.name());
    match arguments.token() {
        Some(token) => {
            let token = super::token_of(&token)?;
            let (hub, class) = redeem(&config, &token, Whose::Said(word))?;
            let pool = super::hub_name(&hub);
            say(&format!("commands of this account now run on the pool of {pool}: try `remrun true`"));
            if class != "own" {
                say(&taken_for(&class));
            }
        }
        None => trust(&config, word.unwrap_or_default())?,
    }
    // Last, since redeeming may have left threads behind, and only a running daemon must know.
    reload(&Folder::of_environment())
}

/// What follows from workers being of this class.
fn taken_for(class: &str) -> String {
    let open = if class == "volunteer" { "what a command names" } else { "projects and what commands name" };
    format!(
        "its workers are taken for other people's ({class}): of your home only {open} goes there, and variables that look secret stay \
         here. If all of them are yours: gleaner use --trust own"
    )
}

/// Says whose the workers are of the pool in use.
fn trust(config: &Config, word: &str) -> Result {
    let path = config.dir.join(CLIENT_FILE);
    let before: ClientFile = config::read(&path)?;
    let Some(key) = before.hub_key.clone().filter(|_| !before.hub.is_empty()) else {
        return Err(
            CliError::config(format!("{}: no pool is in use", path.display())).hint("gleaner use - --trust own")
        );
    };
    let pool = before.hub.first().cloned().unwrap_or(key);
    config::write(&path, &ClientFile { trust: Some(word.to_owned()), ..before })?;
    match word {
        "own" => say(&format!("the workers of {pool} are taken for your own: all but secrets may go there")),
        class => say(&taken_for(class)),
    }
    Ok(())
}

/// What is known of whose a pool's workers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose<'a> {
    /// What the user says, if anything.
    Said(Option<&'a str>),
    /// This account has started the hub.
    OfOwnHub,
}

/// Redeems `token` and writes `client.toml`. Returns the hub and the class that is kept.
pub fn redeem(config: &Config, token: &str, whose: Whose<'_>) -> Result<(KnownHub, String)> {
    let state_dir = config.state_dir.value.join("client");
    make_private_folder(&state_dir)?;
    let redeemed = parts::redeem(token, Joiner::Client, &state_dir, &config.name.value).map_err(super::part_failed)?;
    let path = config.dir.join(CLIENT_FILE);
    let before: ClientFile = config::read(&path)?;
    let is_same = before.hub_key.as_ref().is_some_and(|key| *key == redeemed.hub.key.to_hex());
    if !before.hub.is_empty() && !is_same {
        say(&format!("{} named another hub before: {}", path.display(), before.hub.join(", ")));
    }
    let earlier = before.trust.clone().filter(|_| is_same);
    let class = class_of(whose, earlier.as_deref(), redeemed.is_own).to_owned();
    let hub = redeemed.hub;
    let after = ClientFile {
        hub: hub.addresses.clone(),
        hub_key: Some(hub.key.to_hex()),
        trust: Some(class.clone()),
        ..before
    };
    config::write(&path, &after)?;
    Ok((hub, class))
}

/// Whose the workers are: as is said now, or was of the same hub; else one's own where the hub is of this account on this machine.
fn class_of<'a>(whose: Whose<'a>, earlier: Option<&'a str>, is_own: bool) -> &'a str {
    let (word, is_own) = match whose {
        Whose::Said(word) => (word, is_own),
        Whose::OfOwnHub => (None, true),
    };
    word.or(earlier).unwrap_or(if is_own { "own" } else { "site" })
}

/// Has the daemon of `folder`, if it runs, read the configuration again.
pub fn reload(folder: &Folder) -> Result {
    match Door::open(folder) {
        Ok(mut door) => super::end_daemon(&mut door, &Question::Reload).map(drop),
        Err(DoorError::NotListening) => Ok(()),
        Err(error) => Err(CliError::from(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_workers_are_is_what_was_said_or_what_the_hub_has_shown() {
        assert_eq!(class_of(Whose::Said(None), None, true), "own");
        assert_eq!(class_of(Whose::Said(None), None, false), "site", "nobody has said that they are the user's");
        assert_eq!(class_of(Whose::Said(Some("volunteer")), Some("own"), true), "volunteer");
        assert_eq!(class_of(Whose::Said(None), Some("own"), false), "own", "a further token takes nothing back");
        assert_eq!(class_of(Whose::OfOwnHub, None, false), "own");
        assert_eq!(class_of(Whose::OfOwnHub, Some("site"), true), "site", "nor does a further start of the hub");
    }

    #[test]
    fn what_a_class_means_is_said() {
        assert!(taken_for("site").contains("(site)") && taken_for("site").contains("projects"));
        assert!(!taken_for("volunteer").contains("projects"));
    }
}

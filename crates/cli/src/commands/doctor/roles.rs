//! What this machine is in its pool, and where it runs: a hint helps only where it can be followed.

use super::Facts;
use crate::config::Config;
use std::path::Path;

/// What this machine is. By default all that it may become: whoever asks before the first pool wants to know of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    /// It lends. All send.
    pub worker: bool,
}

impl Default for Roles {
    fn default() -> Self {
        Self { worker: true }
    }
}

impl Roles {
    /// By its settings, and by what was started here before.
    pub fn look(config: &Config) -> Self {
        let has = |part: &str| config.state_dir.value.join(part).exists();
        let lends = config.worker_hub.is_some() || has("worker");
        let is_new = config.client_hub.is_none() && !has("hub");
        Self { worker: lends || is_new }
    }

    /// Whether something matters that matters for these.
    pub fn has(self, roles: &[&str]) -> bool {
        self.worker || roles.contains(&"client")
    }
}

/// Where this runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a container.
    Container,
    /// Elsewhere, as the superuser.
    Root,
    /// Elsewhere, as an ordinary user.
    Account,
}

impl Place {
    /// What to do where control groups cannot be made.
    pub fn groups(self) -> &'static str {
        match self {
            Self::Container => {
                "start the container with writable control groups (--privileged), or run the worker outside of it"
            }
            Self::Root => "mount the control groups: mount -t cgroup2 none /sys/fs/cgroup",
            Self::Account => {
                "run the worker as root, or where this account may make control groups: systemd-run --user -p Delegate=yes gleaner worker"
            }
        }
    }
}

/// Where the machine of these facts is.
pub fn place(facts: &Facts) -> Place {
    match (facts.is_container, facts.is_root) {
        (true, _) => Place::Container,
        (false, true) => Place::Root,
        (false, false) => Place::Account,
    }
}

/// Whether this is a container, as its makers say.
pub fn is_container() -> bool {
    let files = ["/.dockerenv", "/run/.containerenv", "/run/systemd/container"];
    let is_named = std::fs::read("/proc/1/environ")
        .is_ok_and(|variables| variables.split(|byte| *byte == 0).any(|entry| entry.starts_with(b"container=")));
    is_named || files.iter().any(|file| Path::new(file).exists())
}

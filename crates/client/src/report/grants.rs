//! What `gleaner trust` shows.

use crate::grants::{Pin, Pins, ProjectFile, Standing, standing};
use crate::policy::{Granted, Lookup, Pattern, without_effect};
use crate::snapshot::Disk;
use base::TreePath;
use serde::{Deserialize, Serialize};
use std::io;

/// A project whose file has just been trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProjectGrants {
    /// The project's root.
    pub folder: String,
    /// The BLAKE3 hash of its file: it counts as long as it has this.
    pub digest: String,
    /// What commands there may change, as it is written.
    pub write: Vec<String>,
    /// What they may read.
    pub read: Vec<String>,
    /// Whether they may use the network elsewhere.
    pub network: bool,
    /// Entries that are without effect.
    pub never: Vec<NeverGranted>,
}

/// An entry of a project's file that is without effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NeverGranted {
    /// As it is written.
    pub entry: String,
    /// Why.
    pub reason: String,
}

/// The projects that are trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrustedProjects {
    /// By their roots.
    pub projects: Vec<TrustedProject>,
}

/// A project that is trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrustedProject {
    /// The project's root.
    pub folder: String,
    /// The BLAKE3 hash that its file had.
    pub digest: String,
    /// When it was trusted: milliseconds since 1970 UTC.
    pub trusted_ms: i64,
    /// Why its file grants nothing now; null if it counts.
    pub grants_nothing: Option<String>,
}

/// A project that is trusted no more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Revocation {
    /// Its root.
    pub folder: String,
}

impl ProjectGrants {
    /// What `file` grants to a user with this home.
    pub fn of(file: &ProjectFile, granted: &Granted, home: Option<&TreePath>) -> Self {
        let texts = |patterns: &[Pattern]| patterns.iter().map(|pattern| pattern.text().to_owned()).collect();
        let closed = home.map(|home| Disk::default().secrets(home)).unwrap_or_default();
        let never = without_effect(granted, home, &closed).into_iter();
        let never = never.map(|(pattern, reason)| NeverGranted { entry: pattern.text().into(), reason: reason.into() });
        Self {
            folder: file.root.to_string(),
            digest: file.digest.to_hex(),
            write: texts(&granted.write),
            read: texts(&granted.read),
            network: granted.network,
            never: never.collect(),
        }
    }
}

impl TrustedProjects {
    /// All of `pins`, as they are for a user with this home.
    ///
    /// # Errors
    /// Says why they are not known.
    pub fn of(pins: &Pins, home: Option<&TreePath>) -> io::Result<Self> {
        let project = |pin: &Pin| {
            let standing = TreePath::parse(pin.folder.as_bytes()).map(|root| standing(&root, home, pins));
            let grants_nothing = match standing {
                Some(Standing::Trusted(_)) => None,
                Some(Standing::Idle(why)) => Some(why),
                Some(Standing::Absent) | None => Some("it is gone".to_owned()),
            };
            TrustedProject {
                folder: pin.folder.clone(),
                digest: pin.digest.clone(),
                trusted_ms: pin.trusted_ms,
                grants_nothing,
            }
        };
        Ok(Self { projects: pins.all()?.iter().map(project).collect() })
    }
}

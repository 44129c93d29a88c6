//! Paths of which there is more to say: what was dropped, what was kept back.

use crate::kept_back::KeptBack;
use serde::{Deserialize, Serialize};

/// A path that the task changed, and that was dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DroppedLine {
    /// Which.
    pub path: String,
    /// Why, as what follows the path in a sentence.
    pub reason: String,
}

/// A path that the read policy kept back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptBackLine {
    /// Which.
    pub path: String,
    /// Why.
    pub reason: String,
    /// What to do.
    pub remedy: String,
}

impl From<&KeptBack> for KeptBackLine {
    fn from(kept: &KeptBack) -> Self {
        let (path, denial) = (kept.path.to_string(), kept.denial);
        Self { path, reason: denial.reason().into(), remedy: denial.remedy().into() }
    }
}

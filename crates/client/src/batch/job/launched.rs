//! What is known of an instance of a task that was launched.

use crate::views::{Held, View};
use crate::write_rules::WriteRules;
use base::{NodeId, Time, Version};
use std::sync::Arc;
use wire::signed::Statement;

/// An instance that was launched, and whose task has not ended.
#[derive(Clone, Debug)]
pub struct Launched {
    /// What it saw was so then, or was looked at later.
    pub since: Time,
    /// Of this daemon: what it saw is known as long as this is held, and what it may change.
    pub view: Option<(Arc<View>, WriteRules)>,
    /// What the view said since is remembered until the result has come.
    pub held: Option<Arc<Held>>,
    /// The version of the view with which it was launched, of this daemon.
    pub version: Option<Version>,
    /// What was said with the launch, which the result's signature names; none: an earlier version has not noted that.
    pub statement: Option<Statement>,
    /// Who has it, if this daemon was told.
    pub worker: Option<NodeId>,
    /// What it could not be told.
    pub tainted: Option<String>,
    /// The hub has what came of it.
    pub is_over: bool,
}

impl Launched {
    /// One of an earlier daemon.
    pub fn earlier(since: Time) -> Self {
        Self {
            since,
            view: None,
            held: None,
            version: None,
            statement: None,
            worker: None,
            tainted: None,
            is_over: false,
        }
    }
}

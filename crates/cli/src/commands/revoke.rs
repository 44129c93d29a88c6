//! `gleaner revoke`.

use crate::args::Node;
use crate::error::Result;
use client::report::{Question, Revoked};

/// Shuts a machine out.
pub fn run(arguments: Node) -> Result {
    super::ask_and_print::<Revoked>(&Question::Revoke { node: arguments.node }, arguments.json)
}

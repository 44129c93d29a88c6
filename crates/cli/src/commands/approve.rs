//! `gleaner approve` and `gleaner audit`: who may lend, and who did what.

use crate::args::{Approve, Audit};
use crate::error::Result;
use client::report::{self, Approved, Question};

/// Says how far a worker is trusted.
pub fn run(arguments: Approve) -> Result {
    let question = Question::Approve { node: arguments.node, trust: arguments.trust.name().into() };
    super::ask_and_print::<Approved>(&question, arguments.json)
}

/// Shows the hub's audit log.
pub fn audit(arguments: Audit) -> Result {
    super::ask_and_print::<report::Audit>(&Question::Audit { count: arguments.last }, arguments.json)
}

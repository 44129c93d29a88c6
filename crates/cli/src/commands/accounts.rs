//! `gleaner accounts` and `gleaner limit`.

use crate::args::{Accounts, Limit};
use crate::error::Result;
use client::report::{self, Question};

/// Lists accounts.
pub fn run(arguments: Accounts) -> Result {
    super::ask_and_print::<report::Accounts>(&Question::Accounts { page: arguments.page }, arguments.json)
}

/// Changes the limits of one, as far as they are given.
pub fn limit(arguments: Limit) -> Result {
    let Limit { account, weight, share: share_permille, tasks, running, json } = arguments;
    let question = Question::Limit { account, weight, share_permille, tasks, running };
    super::ask_and_print::<report::Account>(&question, json)
}

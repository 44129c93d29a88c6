//! What is said of accounts, and of the jobs of all of them, as text.

use super::{Render, short};
use crate::render::{Facts, Table, micros, time};
use client::report::{Account, Accounts, EveryonesJobs};

/// How many there are, and how many there may be.
fn of(count: u32, most: Option<u32>) -> String {
    most.map_or(count.to_string(), |most| format!("{count} of {most}"))
}

fn percent(permille: u16) -> String {
    match permille % 10 {
        0 => format!("{}%", permille / 10),
        tenth => format!("{}.{tenth}%", permille / 10),
    }
}

/// What each node of an account is called, or its like.
fn joined(account: &Account, what: impl Fn(&client::report::AccountNode) -> String) -> String {
    account.nodes.iter().map(what).collect::<Vec<_>>().join(", ")
}

impl Render for Accounts {
    fn render(&self) -> String {
        self.render_in(None)
    }

    fn render_in(&self, columns: Option<usize>) -> String {
        let mut table = Table::new(&[
            "NAME", "ID", "ROLE", "WEIGHT", "SHARE", "TASKS", "RUNNING", "USED", "GIVEN", "MET", "MISSED", "DONE",
            "FAILED",
        ]);
        for account in &self.accounts {
            let name = joined(account, |node| node.name.clone());
            table.row(vec![
                if name.is_empty() { "(revoked)".into() } else { name },
                joined(account, |node| short(&node.id)),
                joined(account, |node| node.role.clone()),
                account.weight.to_string(),
                percent(account.share_permille),
                of(account.tasks, account.tasks_max),
                of(account.running, account.running_max),
                micros(account.used_ms.saturating_mul(1_000)),
                micros(account.given_ms.saturating_mul(1_000)),
                account.met.to_string(),
                account.missed.to_string(),
                account.done.to_string(),
                account.failed.to_string(),
            ]);
        }
        let mut text = table.text_in("no accounts on this page", columns);
        if self.more > 0 {
            text.push_str(&format!("... and {} more (--page shows them)\n", self.more));
        }
        text
    }
}

impl Render for Account {
    fn render(&self) -> String {
        let most = |most: Option<u32>, now: u32| match most {
            Some(most) => format!("{most} at most, {now} now"),
            None => format!("no limit, {now} now"),
        };
        let mut facts = Facts::default();
        facts
            .fact("account", joined(self, |node| format!("{} ({})", node.name, short(&node.id))))
            .fact("weight", self.weight.to_string())
            .fact("share", percent(self.share_permille))
            .fact("tasks", most(self.tasks_max, self.tasks))
            .fact("running", most(self.running_max, self.running));
        facts.text().to_owned()
    }
}

impl Render for EveryonesJobs {
    fn render(&self) -> String {
        self.render_in(None)
    }

    fn render_in(&self, columns: Option<usize>) -> String {
        let headings =
            ["ID", "ACCOUNT", "STATE", "PRIORITY", "TASKS", "ENDED", "FAILED", "RUNNING", "DEADLINE", "NAME"];
        let mut table = Table::new(&headings);
        for job in &self.jobs {
            table.row(vec![
                if job.job.is_empty() { "-".into() } else { short(&job.job) },
                if job.account.is_empty() { "(revoked)".into() } else { job.account.clone() },
                job.state.clone(),
                job.priority.clone(),
                job.tasks.to_string(),
                job.ended.to_string(),
                job.failed.to_string(),
                job.running.to_string(),
                job.deadline_ms.map(time).unwrap_or_default(),
                job.name.clone(),
            ]);
        }
        let mut text = table.text_in("no jobs on this page", columns);
        if self.more {
            text.push_str("... and more (--page shows them)\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::report::{AccountNode, EveryonesJob};

    fn ada() -> Account {
        Account {
            nodes: vec![AccountNode { name: "ada".into(), id: "4f0c11d2aa".into(), role: "client".into() }],
            weight: 3,
            share_permille: 125,
            tasks: 7,
            tasks_max: Some(5000),
            running: 2,
            used_ms: 93_500,
            done: 40,
            met: 4,
            ..Account::default()
        }
    }

    #[test]
    fn accounts_in_a_list() {
        let gone = Account { weight: 1, ..Account::default() };
        let want = "\
NAME       ID        ROLE    WEIGHT  SHARE      TASKS  RUNNING    USED  GIVEN  MET  MISSED  DONE  FAILED
ada        4f0c11d2  client       3  12.5%  7 of 5000        2  93.5 s   0 us    4       0    40       0
(revoked)                         1     0%          0        0    0 us   0 us    0       0     0       0
... and 3 more (--page shows them)
";
        assert_eq!(Accounts { accounts: vec![ada(), gone], more: 3 }.render(), want);
        assert_eq!(Accounts::default().render(), "no accounts on this page\n");
    }

    #[test]
    fn limits_of_an_account() {
        let want = "\
account       ada (4f0c11d2)
weight        3
share         12.5%
tasks         5000 at most, 7 now
running       no limit, 2 now
";
        assert_eq!(ada().render(), want);
    }

    #[test]
    fn jobs_of_everyone() {
        let job = EveryonesJob {
            job: "8f3a1234000000000000000000000001".into(),
            name: "night".into(),
            account: "ada".into(),
            state: "running".into(),
            priority: "spare".into(),
            tasks: 60,
            ended: 12,
            failed: 1,
            running: 4,
            deadline_ms: Some(0),
        };
        let old = EveryonesJob { job: String::new(), account: String::new(), deadline_ms: None, ..job.clone() };
        let want = "\
ID        ACCOUNT    STATE    PRIORITY  TASKS  ENDED  FAILED  RUNNING  DEADLINE                 NAME
8f3a1234  ada        running  spare        60     12       1        4  1970-01-01 00:00:00 UTC  night
-         (revoked)  running  spare        60     12       1        4                           night
... and more (--page shows them)
";
        assert_eq!(EveryonesJobs { jobs: vec![job, old], more: true }.render(), want);
    }
}

//! What is asked about accounts: their limits, what they have used, and the jobs of all of them. A member is told of its own account,
//! the hub's owner of all.

use crate::desk::limits::Limits;
use crate::registry::{Member, RegistryError};
use crate::server::Shared;
use crate::session::ClientSession;
use crate::state::State;
use base::Priority;
use base::digest::hex;
use prost::Message;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use tasks::{AccountView, JobName, JobView, Urgency};
use wire::message::work::JobOpen;
use wire::{lock, now_millis};

/// Accounts on a page.
const ACCOUNTS_PAGE: u32 = 256;
/// Jobs on a page.
const JOBS_PAGE: usize = 100;
/// Places of the table that are looked at for jobs before others have their turn.
const PLACES_AT_ONCE: u32 = 1024;
/// Tasks of a job that are looked at for those that run.
const TASKS_LOOKED_AT: usize = 4096;

/// A refusal, and what to do.
fn refused(why: impl std::fmt::Display, hint: &str) -> Value {
    json!({"error": why.to_string(), "hint": hint})
}

/// Which page is asked for, from 0.
fn page(question: &Value) -> u64 {
    question["page"].as_u64().unwrap_or(1).max(1) - 1
}

/// The number with this name, if it is given: an error if it is none.
fn number<T: TryFrom<u64>>(question: &Value, name: &str) -> Result<Option<T>, String> {
    if question[name].is_null() {
        return Ok(None);
    }
    let number = question[name].as_u64().and_then(|number| T::try_from(number).ok());
    number.map(Some).ok_or_else(|| format!("`{}` is not in the range of {name}", question[name]))
}

/// An account in an answer.
fn told(view: &AccountView, members: &BTreeMap<u128, Vec<Member>>) -> Value {
    let spec = &view.spec;
    let limit = |number: u32| (number != u32::MAX).then_some(number);
    let nodes = members.get(&spec.key).into_iter().flatten();
    let nodes: Vec<Value> =
        nodes.map(|member| json!({"name": member.name, "id": member.id, "role": member.role})).collect();
    json!({
        "nodes": nodes, "weight": spec.weight, "share_permille": spec.share_permille,
        "tasks": view.tasks, "tasks_max": limit(spec.tasks_max),
        "running": view.running, "running_max": limit(spec.running_max),
        "used_ms": view.used_ms, "given_ms": view.given_ms, "done": view.done, "failed": view.failed,
        "met": view.met, "missed": view.missed,
    })
}

impl Shared {
    /// A page of all accounts, or the client's own.
    pub(crate) fn accounts(&self, client: &ClientSession, is_admin: bool, question: &Value) -> Value {
        let first = page(question).saturating_mul(ACCOUNTS_PAGE.into()).min(u32::MAX.into()) as u32;
        let (views, more) = {
            let state = lock(&self.state);
            let desk = &state.placement.desk;
            match is_admin {
                true => {
                    let views = desk.table().accounts_from(first, ACCOUNTS_PAGE);
                    let end = u64::from(first) + views.len() as u64;
                    (views, (desk.table().counts()[0] as u64).saturating_sub(end))
                }
                false => (vec![desk.account_view(client.account())], 0),
            }
        };
        let members = self.members(views.iter().map(|view| view.spec.key));
        let accounts: Vec<Value> = views.iter().map(|view| told(view, &members)).collect();
        json!({"accounts": accounts, "more": more})
    }

    fn members(&self, accounts: impl Iterator<Item = u128>) -> BTreeMap<u128, Vec<Member>> {
        lock(&self.registry).members_of(&accounts.collect::<BTreeSet<u128>>())
    }

    /// Changes limits. The answer is given when that is durable: it blocks until then.
    pub(crate) fn limit(&self, question: &Value) -> Value {
        let limits = || {
            Ok::<_, String>(Limits {
                weight: number(question, "weight")?,
                share_permille: number(question, "share_permille")?,
                tasks_max: number(question, "tasks")?,
                running_max: number(question, "running")?,
            })
        };
        let limits = match limits() {
            Ok(limits) => limits,
            Err(why) => return refused(why, "gleaner limit --help"),
        };
        let who = question["account"].as_str().unwrap_or_default();
        let called = lock(&self.registry).account_called(who);
        let key = match called {
            Ok(key) => key,
            Err(error @ RegistryError::NoSuchNode(_)) => {
                return refused(error, "gleaner accounts lists those that were here");
            }
            Err(error) => return refused(error, ""),
        };
        let (changed, durable) = {
            let mut state = lock(&self.state);
            let desk = &mut state.placement.desk;
            (desk.limit(key, &limits), desk.durable())
        };
        match (changed, durable.blocking_recv()) {
            (Ok(view), Ok(())) => {
                if limits != Limits::default() {
                    tracing::info!(who, ?limits, "an account's limits are changed");
                }
                told(&view, &self.members([key].into_iter()))
            }
            (Err(why), _) => refused(why, ""),
            (Ok(_), Err(_)) => refused("the hub's journal has ended: whether this was kept is not known", ""),
        }
    }

    /// A page of the jobs of all accounts. Between the places of the table that are looked at others have their turn, so what is on which page
    /// may change meanwhile.
    pub(crate) fn everyones_jobs(&self, question: &Value) -> Value {
        let skip = page(question).saturating_mul(JOBS_PAGE as u64);
        let (mut passed, mut found, mut at, mut more) = (0, Vec::new(), Some(0), false);
        while let Some(first) = at.filter(|_| !more) {
            let state = lock(&self.state);
            let table = state.placement.desk.table();
            let (names, next) = table.jobs_within(first, PLACES_AT_ONCE);
            // Launches are jobs of one task, and nobody asks for these.
            let lasting = |name: &JobName| table.job(*name).is_some_and(|view| !view.spec.is_volatile);
            for name in names.into_iter().filter(lasting) {
                more |= found.len() == JOBS_PAGE;
                match passed < skip {
                    true => passed += 1,
                    false if !more => found.push(name),
                    false => {}
                }
            }
            at = next;
        }
        let rows = found.into_iter().filter_map(|name| lock(&self.state).everyones_job(name));
        let rows: Vec<(u128, Value)> = rows.collect();
        let members = self.members(rows.iter().map(|(account, _)| *account));
        let jobs = rows.into_iter().map(|(account, mut row)| {
            let nodes = members.get(&account).into_iter().flatten();
            row["account"] = nodes.map(|member| member.name.as_str()).collect::<Vec<_>>().join(", ").into();
            row
        });
        json!({"jobs": jobs.collect::<Vec<Value>>(), "more": more})
    }
}

impl State {
    /// A job, and the key of its account.
    fn everyones_job(&self, name: JobName) -> Option<(u128, Value)> {
        let desk = &self.placement.desk;
        let table = desk.table();
        let view = table.job(name)?;
        let account = table.account_view(view.spec.account)?.spec.key;
        let open = desk.ledger().job(name).and_then(|blob| JobOpen::decode(&blob[..]).ok()).unwrap_or_default();
        let progress = table.progress(name, TASKS_LOOKED_AT);
        let deadline_ms = (progress.deadline_ms > 0).then(|| {
            let in_ms = progress.deadline_ms as i64 - desk.now_ms() as i64;
            now_millis() + in_ms
        });
        let row = json!({
            "job": hex(&open.key), "name": open.name, "state": state_of(&view, progress.running),
            "priority": priority_of(view.spec.urgency), "tasks": view.tasks, "ended": view.done + view.failed,
            "failed": view.failed, "running": progress.running, "deadline_ms": deadline_ms,
        });
        Some((account, row))
    }
}

fn state_of(job: &JobView, running: u32) -> &'static str {
    match job {
        JobView { has_ended: true, .. } => "ended",
        JobView { is_held: true, .. } => "held",
        _ if running > 0 => "running",
        // Whoever launches its tasks is not connected.
        JobView { is_away: true, .. } => "away",
        _ => "ready",
    }
}

fn priority_of(urgency: Urgency) -> &'static str {
    let priority = match urgency {
        Urgency::Interactive => Priority::Urgent,
        Urgency::Reserved | Urgency::Normal => Priority::Normal,
        Urgency::Spare => Priority::Spare,
    };
    priority.name()
}

#[cfg(test)]
mod tests;

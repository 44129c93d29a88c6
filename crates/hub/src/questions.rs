//! What members ask of a hub, and what it answers: JSON, of which `gleaner` shows what people want to see.

use crate::asking::Asked;
use crate::greet::REVOKED;
use crate::registry::{RegistryError, TOKEN_SECONDS};
use crate::relay::task_of;
use crate::server::Shared;
use crate::session::{ClientSession, WorkerSession};
use base::{NodeId, TaskId};
use serde_json::{Value, json};
use std::time::Instant;
use wire::message::{Expected, Launch};
use wire::{Role, Trust, lock};

/// Longest question, in bytes: as JSON it may take twenty times as much memory.
const QUESTION_BYTES_MAX: usize = 64 << 10;

impl Shared {
    /// Answers a question of `gleaner`.
    pub(crate) fn answer(&self, client: &ClientSession, question: &[u8]) -> Value {
        if question.len() > QUESTION_BYTES_MAX {
            return json!({"error": format!("a question has {QUESTION_BYTES_MAX} bytes at most, not {}", question.len())});
        }
        let question: Value = serde_json::from_slice(question).unwrap_or_default();
        let text = |name: &str| question[name].as_str().unwrap_or_default().to_owned();
        let is_admin = || lock(&self.registry).role(client.node) == Some(Role::Admin);
        match text("ask").as_str() {
            "status" => self.status(is_admin()),
            "figures" => json!(self.figures()),
            "waits" => {
                let key = question["key"].as_str().and_then(|text| u128::from_str_radix(text, 16).ok());
                let index = question["index"].as_u64().and_then(|index| u32::try_from(index).ok());
                match key.and_then(|key| lock(&self.state).why_waits(client.account(), key, index)) {
                    Some(why) => json!({ "waits": why.waits, "lacks_worker": why.lacks_worker, "why": why.why }),
                    None => json!({"error": "the hub has no such job or task of this account"}),
                }
            }
            "accounts" => self.accounts(client, is_admin(), &question),
            "token" | "revoke" | "drain" | "approve" | "audit" if !is_admin() => {
                let why = "only the hub's owner may invite, approve, revoke or drain others, and read the audit log";
                self.only_the_owner(client, &text("ask"), json!({"error": why}))
            }
            "limit" if !is_admin() => self.only_the_owner(client, "limit", json!({
                "error": "only the hub's owner may change an account's limits", "hint": "gleaner accounts shows yours",
            })),
            "everyone" if !is_admin() => self.only_the_owner(client, "everyone", json!({
                "error": "only the hub's owner may see the jobs of all accounts", "hint": "gleaner jobs lists yours",
            })),
            "limit" => self.limit(&question),
            "everyone" => self.everyones_jobs(&question),
            "token" => {
                let role = Role::from_name(&text("role"));
                let seconds = question["seconds"].as_u64().unwrap_or(TOKEN_SECONDS).clamp(1, TOKEN_SECONDS);
                let trust = match text("trust").as_str() {
                    "waiting" => Some(Trust::Waiting),
                    name => Trust::from_name(name),
                };
                match role.map(|role| self.token(role, trust, seconds)) {
                    Some(Ok(token)) => json!({"token": token.to_string(), "seconds": seconds}),
                    Some(Err(error)) => json!({"error": error.to_string()}),
                    None => json!({"error": "the role must be worker, client or admin"}),
                }
            }
            "revoke" => match self.revoke(&text("node")) {
                Ok(node) => json!({"revoked": node.0.to_hex(), "name": self.name_of(node)}),
                Err(error) => json!({"error": error.to_string()}),
            },
            "approve" => match Trust::from_name(&text("trust")).map(|trust| self.approve(&text("node"), trust)) {
                Some(Ok(node)) => json!({"approved": node.0.to_hex(), "name": self.name_of(node), "trust": text("trust")}),
                Some(Err(error)) => json!({"error": error.to_string()}),
                None => json!({"error": "a machine is trusted as own, site or volunteer"}),
            },
            "audit" => {
                let count = question["count"].as_u64().map_or(100, |count| count.min(1000) as usize);
                json!({"entries": self.audit.last(count)})
            }
            "drain" => match self.drain(&text("node"), !question["undo"].as_bool().unwrap_or(false)) {
                Ok((node, busy)) => json!({"drained": node.0.to_hex(), "name": self.name_of(node), "busy": busy}),
                Err(error) => json!({"error": error.to_string()}),
            },
            other => json!({"error": format!("the hub does not know the question `{other}`")}),
        }
    }

    /// What a node is called; empty: it is not known any more.
    fn name_of(&self, node: NodeId) -> String {
        lock(&self.registry).name(node).unwrap_or_default().to_owned()
    }

    fn revoke(&self, who: &str) -> Result<NodeId, RegistryError> {
        let mut registry = lock(&self.registry);
        let account = registry.launches_as(who);
        let node = registry.revoke(who)?;
        let orphan = account.filter(|account| !registry.has_member(*account));
        self.audit.note("revoked", json!({"node": node.0.to_hex()}));
        let mut state = lock(&self.state);
        // Should it join anew it takes tasks. Until then its connection ends.
        state.forget_word_on(node);
        let workers = state.workers.get(&node).map(|worker| worker.connection.clone());
        let clients = state.clients.values().filter(|client| client.node == node);
        let clients = clients.map(|client| client.connection.clone());
        workers.into_iter().chain(clients).for_each(|connection| connection.close(REVOKED));
        state.work.hosts.close(node, REVOKED);
        // Another key of the same account goes on with its jobs.
        orphan.into_iter().for_each(|account| state.end_account(account));
        Ok(node)
    }

    /// Says how far a worker is trusted, from now on. Returns its key.
    fn approve(&self, who: &str, trust: Trust) -> Result<NodeId, RegistryError> {
        // As with draining: the list and the state change together.
        let mut registry = lock(&self.registry);
        let node = registry.approve(who, trust)?;
        self.audit.note("approved", json!({"node": node.0.to_hex(), "trust": trust.name()}));
        lock(&self.state).trusts(node, trust);
        Ok(node)
    }

    /// Notes a launch, and whose it is.
    pub(crate) fn note_launch(&self, client: &ClientSession, worker: &WorkerSession, launch: &Launch) {
        let program = launch.command.as_ref().and_then(|command| command.argv.first()).map_or(&b""[..], |name| name);
        self.audit.note(
            "launch",
            json!({
                "node": client.node.0.to_hex(), "client": client.name, "worker": worker.name,
                "command": crate::audit::text(program), "task": task_of(launch).to_string(),
            }),
        );
    }

    /// Notes what a worker was told for a task beside what came with the launch.
    pub(crate) fn note_asked(&self, worker: &WorkerSession, task: TaskId, asked: &Asked) {
        let first: Vec<String> = asked.first.iter().map(|path| crate::audit::text(path.as_bytes())).collect();
        self.audit.note(
            "asked",
            json!({
                "node": worker.node.0.to_hex(), "worker": worker.name, "task": task.to_string(),
                "paths": asked.paths, "first": first, "bytes": asked.bytes,
            }),
        );
    }

    /// Notes a launch that was refused for what it is.
    pub(crate) fn note_refused_launch(&self, client: &ClientSession, task: TaskId, why: &str) {
        if self.members_logged.has_room() {
            let why = crate::audit::text(why.as_bytes());
            self.audit.refused((client.node, &client.name), &why, json!({"task": task.to_string()}));
        }
    }

    /// The answer to who wanted what only the hub's owner may, which is noted.
    fn only_the_owner(&self, client: &ClientSession, what: &str, answer: Value) -> Value {
        if self.members_logged.has_room() {
            let why = format!("only the hub's owner may: {what}");
            self.audit.refused((client.node, &client.name), &why, json!({}));
        }
        answer
    }

    /// Says which worker that is, and how many CPUs are busy there still.
    fn drain(&self, who: &str, is_drained: bool) -> Result<(NodeId, u32), RegistryError> {
        // Held until the state is as the list: of two such questions the later one decides in both.
        let mut registry = lock(&self.registry);
        let node = registry.drain(who, is_drained)?;
        let mut state = lock(&self.state);
        state.drain(node, is_drained);
        Ok((node, state.placement.load(node).map_or(0, |(_, busy)| busy)))
    }

    /// Who else may launch is for the hub's owner to know.
    fn status(&self, is_admin: bool) -> Value {
        let launchers = if is_admin { lock(&self.registry).launchers() } else { Vec::new() };
        let state = lock(&self.state);
        let is_here = |node: NodeId| state.clients.values().any(|client| client.node == node);
        let clients: Vec<Value> = launchers
            .into_iter()
            .map(|(node, name)| json!({"name": name, "id": node.0.to_hex(), "connected": is_here(node)}))
            .collect();
        let now = Instant::now();
        let (running, queued) = state.placement.counts();
        let (hosts, away) = state.work.hosts.counts();
        let mut workers: Vec<Value> = state
            .workers
            .values()
            .map(|worker| {
                let (cpus, busy) = state.placement.load(worker.node).unwrap_or_default();
                let lent = state.placement.lent_by(worker.node).unwrap_or_default();
                let tags = state.placement.tags.names(lent.tags);
                let trust = *lock(&worker.trust);
                let told = match (state.drained.contains(&worker.node), cpus) {
                    _ if trust == Trust::Waiting => "waiting for approval",
                    (true, _) => "drained",
                    _ if state.is_aside(worker.node) => "set aside, it was silent",
                    (false, 0) => "resting",
                    (false, _) if state.twins.has(worker.node, now) => "ready, key used twice",
                    (false, _) if worker.one_client => "ready, one client at a time",
                    (false, _) => "ready",
                };
                json!({
                    "name": worker.name, "id": worker.node.0.to_hex(), "cpus": cpus, "busy": busy, "state": told, "trust": trust.name(),
                    "address": worker.connection.address().map(|address| address.to_string()), "platform": worker.platform,
                    "memory_mib": lent.memory_mib, "level": lent.level, "tags": tags,
                    "expected": lent.expected.map(|told| json!({
                        "mean": told.mean, "low": told.low, "high": told.high, "error": told.error, "covered": told.covered,
                    })),
                    "why": why_little(state.placement.why_resting(worker.node), lent.expected),
                    "troubles": state.troubles.get(&worker.node).map(|told| json!({
                        "oldest_request_s": told.oldest_request_s, "unkillable": told.unkillable, "clock_ahead_ms": told.clock_ahead_ms,
                    })),
                    "round_trip_us": worker.connection.round_trip().as_micros() as u64,
                })
            })
            .collect();
        workers.sort_by_key(|worker| worker["name"].as_str().unwrap_or_default().to_owned());
        json!({
            "hub": self.name, "hub_id": self.key.node().0.to_hex(), "workers": workers,
            "tasks_running": running, "tasks_queued": queued, "clients": clients, "hosts": hosts, "hosts_away": away,
        })
    }
}

/// Why a worker gives nothing, or next to nothing.
fn why_little(rests: &str, expected: Option<Expected>) -> Option<String> {
    /// Less than this part of a processor is next to nothing, in thousandths.
    const LITTLE: u32 = 100;
    match expected {
        _ if !rests.is_empty() => Some(format!("guests rest: {rests}")),
        Some(expected) if expected.mean < LITTLE => {
            Some(format!("its owner has work for all processors: a task gets {}% of one", expected.mean / 10))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LIMIT, hello, node, serve_hub};
    use bytes::Bytes;
    use std::time::Duration;
    use wire::Joined;
    use wire::message::{Answer, Hello, OpenKind};

    async fn asked(admin: &Joined, question: Value) -> Value {
        let asked = admin.connection.request(OpenKind::Ask(Bytes::from(question.to_string())));
        let answer: Answer = tokio::time::timeout(LIMIT, asked).await.expect("in time").expect("answered");
        serde_json::from_slice(&answer.json).expect("JSON")
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_worker_that_is_not_here_can_be_drained() {
        let hub = serve_hub("hub");
        let admin = hub.join(1, hello(Role::Admin, 0)).await;
        lock(&hub.shared.registry).add(node(7), "worker", "machine", 1).expect("let in");
        let seven = node(7).0.to_hex();
        let answer = asked(&admin, json!({"ask": "drain", "node": seven})).await;
        assert_eq!(answer, json!({"drained": seven, "name": "machine", "busy": 0}));
        let _drained = hub.join(7, hello(Role::Worker, 3)).await;
        let _other = hub.join(8, hello(Role::Worker, 2)).await;
        hub.lends(2).await;
        asked(&admin, json!({"ask": "drain", "node": seven, "undo": true})).await;
        hub.lends(5).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_question_of_nothing_but_brackets_is_not_read() {
        let hub = serve_hub("hub");
        let admin = hub.join(1, hello(Role::Admin, 0)).await;
        let brackets = vec![Value::Array(Vec::new()); 30_000];
        let answer = asked(&admin, json!({"ask": "status", "more": brackets})).await;
        assert!(answer["error"].as_str().is_some_and(|error| error.contains("bytes at most")), "{answer}");
        assert!(asked(&admin, json!({"ask": "status"})).await["error"].is_null());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_worker_that_takes_one_client_at_a_time_says_so() {
        let hub = serve_hub("hub");
        let admin = hub.join(1, hello(Role::Admin, 0)).await;
        let _worker = hub.join(7, Hello { one_client: true, ..hello(Role::Worker, 3) }).await;
        hub.lends(3).await;
        let answer = asked(&admin, json!({"ask": "status"})).await;
        assert_eq!(answer["workers"][0]["state"], "ready, one client at a time", "{answer}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_machine_that_is_revoked_while_it_comes_is_sent_away() {
        let hub = serve_hub("hub");
        let _worker = hub.join(7, hello(Role::Worker, 3)).await;
        hub.lends(3).await;
        let connection = lock(&hub.shared.state).workers[&node(7)].connection.clone();
        // As if that had been before its session was there, and could be ended.
        lock(&hub.shared.registry).revoke(&node(7).0.to_hex()).expect("known");
        hub.shared.look_again(&connection);
        let closed = async {
            while !connection.is_closed() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LIMIT, closed).await.expect("in time");
    }
}

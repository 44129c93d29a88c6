//! Who may do what: the keys that have joined, with their roles, and the tokens that still work. Kept in one JSON file,
//! replaced as a whole at each change.

mod accounts;
pub(crate) mod trust;

pub use accounts::Member;

use base::{Digest, NodeId, Tenant};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use store::pg_journal::Files;
use wire::{Role, Trust};

/// How long a token works.
pub const TOKEN_SECONDS: u64 = 15 * 60;
/// Most tokens that may wait to be used; the oldest makes room.
const TOKENS_MAX: usize = 1024;
/// Most tenants of other hubs that are told apart here.
const ABOVE_MAX: usize = 4096;
const VERSION: u32 = 1;

/// The hub's list of nodes and tokens.
#[derive(Debug)]
pub struct Registry {
    path: PathBuf,
    kept: Kept,
    /// Where it is kept first, for the hub that replaces this one.
    shared: Option<Files>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    version: u32,
    /// By the node's name in hexadecimal digits.
    nodes: BTreeMap<String, Node>,
    /// By the hash of the secret.
    tokens: BTreeMap<String, Invitation>,
    revoked: BTreeMap<String, String>,
    /// Workers that take no more tasks, by name in hexadecimal digits.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    drained: BTreeSet<String>,
    next_tenant: u32,
    /// Tenants of hubs that this one works for: the hub's name in hexadecimal digits, its number for the tenant, and ours.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    above: BTreeMap<String, BTreeMap<u32, u32>>,
}

/// A machine that has joined.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Node {
    /// Name for people.
    pub name: String,
    /// `client`, `worker` or `admin`.
    pub role: String,
    /// Whose blocks it may read.
    pub tenant: u32,
    /// When it joined, seconds since 1970.
    pub joined: u64,
    /// Of a worker: how far it is trusted.
    #[serde(default)]
    pub trust: Trust,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Invitation {
    role: String,
    expires: u64,
    /// How far who redeems it is trusted at once; none: that is said when it is here.
    #[serde(default)]
    trust: Option<Trust>,
}

/// A machine is not let in, or the list cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The key has not joined and showed no secret.
    #[error("the key {0} has not joined this hub: ask for a token (`gleaner token`) and join with it")]
    Unknown(NodeId),
    /// The key was revoked.
    #[error("the key {0} was revoked")]
    Revoked(NodeId),
    /// No token has this secret, or it was used or is too old.
    #[error("this token was used before, or is older than {} minutes: ask for a new one (`gleaner token`)", TOKEN_SECONDS / 60)]
    Stale,
    /// It joined as something else.
    #[error("the key {node} joined as {role}, not as {wanted}")]
    Role {
        /// The key.
        node: NodeId,
        /// What it is.
        role: String,
        /// What it wants to be.
        wanted: &'static str,
    },
    /// Nobody has such a name or key.
    #[error("no node is called `{0}`; see `gleaner status`")]
    NoSuchNode(String),
    /// Only workers take tasks.
    #[error("`{who}` is no worker but joined as {role}: it takes no tasks")]
    NoWorker {
        /// What was asked for.
        who: String,
        /// What it is.
        role: String,
    },
    /// Only those who launch have tasks that limits are for.
    #[error("`{who}` joined as {role}: it lends, and has no tasks that could be limited")]
    Lends {
        /// What was asked for.
        who: String,
        /// What it is.
        role: String,
    },
    /// Several have this name, or keys that begin so.
    #[error("several nodes are called `{who}`: {}; give the first digits of one", nodes.join(", "))]
    Ambiguous {
        /// What was asked for.
        who: String,
        /// Role and first digits of each.
        nodes: Vec<String>,
    },
    /// A hub that this one works for has sent tasks of too many.
    #[error("tasks of {ABOVE_MAX} tenants came from other hubs: no more are told apart here")]
    Tenants,
    /// The file cannot be used.
    #[error("cannot keep the list of nodes in {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The file is not ours.
    #[error("{} does not hold a list of nodes: {why}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
}

impl Registry {
    /// The list in `path`, empty if there is none.
    pub fn open(path: &Path) -> Result<Self, RegistryError> {
        let kept = match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice::<Kept>(&bytes).map_err(|error| error.to_string()).and_then(|kept| {
                if kept.version == VERSION { Ok(kept) } else { Err(format!("version {} is unknown", kept.version)) }
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok(Kept { version: VERSION, next_tenant: 1, ..Kept::default() })
            }
            Err(source) => return Err(RegistryError::File { path: path.to_owned(), source }),
        };
        match kept {
            Ok(kept) => Ok(Self { path: path.to_owned(), kept, shared: None }),
            Err(why) => Err(RegistryError::Invalid { path: path.to_owned(), why }),
        }
    }

    /// Has it kept in the database of the hub's journal as well, from now on.
    pub fn share(&mut self, files: Files) {
        self.shared = Some(files);
    }

    /// Remembers a token's secret. `trust`: how far a worker is trusted at once that redeems it; `None`: it waits for approval. `now` in
    /// seconds since 1970.
    pub fn invite(
        &mut self,
        secret: &[u8; 16],
        role: Role,
        trust: Option<Trust>,
        seconds: u64,
        now: u64,
    ) -> Result<(), RegistryError> {
        self.kept.tokens.retain(|_, invitation| invitation.expires > now);
        while self.kept.tokens.len() >= TOKENS_MAX {
            let oldest = self.kept.tokens.iter().min_by_key(|(_, token)| token.expires).map(|(hash, _)| hash.clone());
            let Some(oldest) = oldest else { break };
            self.kept.tokens.remove(&oldest);
        }
        let invitation = Invitation { role: role.name().into(), expires: now + seconds, trust };
        self.kept.tokens.insert(Digest::of(secret).to_hex(), invitation);
        self.save()
    }

    /// Lets a machine in that holds the key `node`: it has joined before, or shows a secret that still works, which is
    /// used up. `now` in seconds since 1970.
    pub fn admit(
        &mut self,
        node: NodeId,
        wanted: Role,
        name: &str,
        secret: &[u8],
        now: u64,
    ) -> Result<Tenant, RegistryError> {
        self.admit_joiner(node, wanted, name, (secret, false), now)
    }

    /// The same, of a machine that has shown whether it is of the hub's own account and machine: such a worker is the owner's own, if its
    /// token says nothing else.
    pub fn admit_joiner(
        &mut self,
        node: NodeId,
        wanted: Role,
        name: &str,
        (secret, is_own): (&[u8], bool),
        now: u64,
    ) -> Result<Tenant, RegistryError> {
        let key = node.0.to_hex();
        if !secret.is_empty() {
            let hash = Digest::of(secret).to_hex();
            let invitation = self.kept.tokens.get(&hash).filter(|invitation| invitation.expires > now);
            if let Some(invitation) = invitation {
                // The hub's owner who redeems a client's token goes on as its owner, who may do all that a client may.
                let is = |role: Role| self.kept.nodes.get(&key).is_some_and(|known| known.role == role.name());
                let is_owner = is(Role::Admin) && !self.kept.revoked.contains_key(&key);
                let client = invitation.role == Role::Client.name();
                let role = if client && is_owner { Role::Admin.name().into() } else { invitation.role.clone() };
                let known = self.kept.nodes.get(&key).map(|known| known.trust);
                let unsaid = if is_own { Trust::Own } else { Trust::Waiting };
                let trust = invitation.trust.or(known).unwrap_or(unsaid);
                self.kept.tokens.remove(&hash);
                self.kept.revoked.remove(&key);
                self.put(node, Node { role, name: name.into(), tenant: 0, joined: now, trust });
                self.save()?;
            } else if !self.kept.nodes.contains_key(&key) {
                return Err(RegistryError::Stale);
            }
        }
        if self.kept.revoked.contains_key(&key) {
            return Err(RegistryError::Revoked(node));
        }
        let known = self.kept.nodes.get(&key).ok_or(RegistryError::Unknown(node))?;
        let role = Role::from_name(&known.role);
        let fits = role == Some(wanted) || (role == Some(Role::Admin) && wanted == Role::Client);
        if !fits {
            return Err(RegistryError::Role { node, role: known.role.clone(), wanted: wanted.name() });
        }
        Ok(Tenant(known.tenant))
    }

    /// Lets the machine in without a token: the hub's own worker and its owner's client.
    pub fn add(&mut self, node: NodeId, role: &str, name: &str, now: u64) -> Result<(), RegistryError> {
        self.put(node, Node { name: name.into(), role: role.into(), tenant: 0, joined: now, trust: Trust::Own });
        self.save()
    }

    /// Keeps a node, whose tenant is the one that it had, or a new one.
    fn put(&mut self, node: NodeId, known: Node) {
        let key = node.0.to_hex();
        let tenant = match self.kept.nodes.get(&key) {
            Some(known) => known.tenant,
            None => {
                self.kept.next_tenant += 1;
                self.kept.next_tenant - 1
            }
        };
        self.kept.nodes.insert(key, Node { tenant, ..known });
    }

    /// Whose blocks a client may read that comes through the hub `above`, which knows it as `theirs`. Nobody else's: that
    /// hub's numbers mean nothing here.
    pub fn tenant_above(&mut self, above: NodeId, theirs: Tenant) -> Result<Tenant, RegistryError> {
        let key = above.0.to_hex();
        if let Some(known) = self.kept.above.get(&key).and_then(|tenants| tenants.get(&theirs.0)) {
            return Ok(Tenant(*known));
        }
        if self.kept.above.values().map(BTreeMap::len).sum::<usize>() >= ABOVE_MAX {
            return Err(RegistryError::Tenants);
        }
        let ours = self.kept.next_tenant;
        self.kept.next_tenant += 1;
        self.kept.above.entry(key).or_default().insert(theirs.0, ours);
        self.save()?;
        Ok(Tenant(ours))
    }

    /// What the owner of a key is called, or was.
    pub fn name(&self, node: NodeId) -> Option<&str> {
        let key = node.0.to_hex();
        let known = self.kept.nodes.get(&key).map(|known| &known.name);
        known.or_else(|| self.kept.revoked.get(&key)).map(String::as_str)
    }

    /// The role of a key that has joined.
    pub fn role(&self, node: NodeId) -> Option<Role> {
        self.kept.nodes.get(&node.0.to_hex()).and_then(|known| Role::from_name(&known.role))
    }

    /// The machines that may launch: their keys and names, by name.
    pub fn launchers(&self) -> Vec<(NodeId, String)> {
        let launches = |node: &Node| Role::from_name(&node.role).is_some_and(Role::launches);
        let known = self.kept.nodes.iter().filter(|(_, node)| launches(node));
        let mut found: Vec<(NodeId, String)> =
            known.filter_map(|(key, node)| Some((NodeId(Digest::from_hex(key)?), node.name.clone()))).collect();
        found.sort_by(|a, b| a.1.cmp(&b.1));
        found
    }

    /// The machine called `who`: a name, or the first digits of a key. Its key, and what is known of it.
    fn find(&self, who: &str) -> Result<(NodeId, &Node), RegistryError> {
        self.find_among(who, |_| true)
    }

    /// The same, of those that are meant.
    fn find_among(&self, who: &str, is_meant: impl Fn(&Node) -> bool) -> Result<(NodeId, &Node), RegistryError> {
        let is_called = |key: &str, node: &Node| node.name == who || (who.len() >= 4 && key.starts_with(who));
        let fits = |(key, node): &(&String, &Node)| is_meant(node) && is_called(key, node);
        let found: Vec<(&String, &Node)> = self.kept.nodes.iter().filter(fits).collect();
        let nobody = || RegistryError::NoSuchNode(who.into());
        match found.as_slice() {
            [] => Err(nobody()),
            [(key, known)] => Ok((Digest::from_hex(key).map(NodeId).ok_or_else(nobody)?, known)),
            several => {
                let line = |(key, node): &(&String, &Node)| format!("{} {}", node.role, key.get(..8).unwrap_or(key));
                let nodes = several.iter().map(line).collect();
                Err(RegistryError::Ambiguous { who: who.into(), nodes })
            }
        }
    }

    /// Ends the rights of the machine called `who`: a name, or the first digits of a key. Returns its key.
    pub fn revoke(&mut self, who: &str) -> Result<NodeId, RegistryError> {
        let (node, known) = self.find(who)?;
        let (key, name) = (node.0.to_hex(), known.name.clone());
        self.kept.nodes.remove(&key);
        self.kept.drained.remove(&key);
        self.kept.revoked.insert(key, name);
        self.save()?;
        Ok(node)
    }

    /// Has the worker called `who` take no more tasks, or take them again. Returns its key.
    pub fn drain(&mut self, who: &str, is_drained: bool) -> Result<NodeId, RegistryError> {
        let (node, known) = self.find(who)?;
        if Role::from_name(&known.role) != Some(Role::Worker) {
            return Err(RegistryError::NoWorker { who: who.into(), role: known.role.clone() });
        }
        let key = node.0.to_hex();
        match is_drained {
            true => self.kept.drained.insert(key),
            false => self.kept.drained.remove(&key),
        };
        self.save()?;
        Ok(node)
    }

    /// Workers that take no more tasks.
    pub fn drained(&self) -> HashSet<NodeId> {
        self.kept.drained.iter().filter_map(|key| Digest::from_hex(key).map(NodeId)).collect()
    }

    fn save(&self) -> Result<(), RegistryError> {
        let failed = |source| RegistryError::File { path: self.path.clone(), source };
        let text = serde_json::to_vec_pretty(&self.kept).map_err(|error| failed(error.into()))?;
        if let Some(files) = &self.shared {
            let name = crate::shared::NODES_FILE;
            files.put(name, &text).map_err(|error| failed(std::io::Error::other(error)))?;
        }
        store::write_private(&self.path, &text, true).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u8) -> NodeId {
        NodeId(Digest([number; 32]))
    }

    #[test]
    fn a_token_lets_one_key_in_once() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("nodes.json");
        let mut registry = Registry::open(&path).expect("opened");
        registry.invite(&[1; 16], Role::Worker, None, 60, 100).expect("kept");
        let mut registry = Registry::open(&path).expect("survives a restart");
        assert!(matches!(registry.admit(node(1), Role::Worker, "w", &[], 100), Err(RegistryError::Unknown(_))));
        let role = registry.admit(node(1), Role::Client, "w", &[1; 16], 110);
        assert!(matches!(role, Err(RegistryError::Role { .. })), "a worker's token makes no client");
        registry.admit(node(1), Role::Worker, "w", &[], 120).expect("joined");
        registry.admit(node(1), Role::Worker, "w", &[1; 16], 120).expect("showing the old secret again is harmless");
        assert!(matches!(registry.admit(node(2), Role::Worker, "x", &[1; 16], 130), Err(RegistryError::Stale)));
    }

    #[test]
    fn tenants_of_another_hub_are_nobody_s_here() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("nodes.json");
        let mut registry = Registry::open(&path).expect("opened");
        registry.add(node(1), "client", "own", 100).expect("kept");
        let own = registry.admit(node(1), Role::Client, "own", &[], 100).expect("known");
        let first = registry.tenant_above(node(7), own).expect("room");
        let second = registry.tenant_above(node(8), own).expect("room");
        assert!(own != first && own != second && first != second);
        let mut registry = Registry::open(&path).expect("survives a restart");
        assert_eq!(registry.tenant_above(node(7), own).expect("known"), first);
        for number in 2..ABOVE_MAX as u32 {
            registry.kept.above.entry(node(9).0.to_hex()).or_default().insert(number, number);
        }
        assert!(matches!(registry.tenant_above(node(9), Tenant(1)), Err(RegistryError::Tenants)));
    }

    #[test]
    fn tokens_expire_and_keys_are_revoked() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut registry = Registry::open(&folder.path().join("nodes.json")).expect("opened");
        registry.invite(&[1; 16], Role::Client, None, 60, 100).expect("kept");
        assert!(matches!(registry.admit(node(1), Role::Client, "c", &[1; 16], 161), Err(RegistryError::Stale)));
        registry.add(node(1), "admin", "owner", 100).expect("kept");
        registry.admit(node(1), Role::Client, "owner", &[], 100).expect("an admin is a client too");
        registry.invite(&[2; 16], Role::Client, None, 60, 100).expect("kept");
        registry.admit(node(1), Role::Client, "owner", &[2; 16], 100).expect("redeemed");
        assert_eq!(
            registry.role(node(1)),
            Some(Role::Admin),
            "whoever redeems a client's token keeps what they may do"
        );
        assert_eq!(registry.revoke("owner").expect("known"), node(1));
        registry.add(node(2), "worker", "desk", 100).expect("kept");
        registry.add(node(3), "client", "desk", 100).expect("kept");
        assert!(matches!(registry.revoke("desk"), Err(RegistryError::Ambiguous { nodes, .. }) if nodes.len() == 2));
        let again = registry.admit(node(1), Role::Client, "owner", &[], 100);
        assert!(matches!(again, Err(RegistryError::Revoked(_))));
    }
}

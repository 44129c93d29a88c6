//! Whose the accounts of the task table are: those who launch have one for each tenant, and each worker has its own.

use super::{Node, Registry, RegistryError};
use base::{Digest, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use wire::Role;

/// A machine that an account is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its key in hexadecimal digits.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// `client`, `worker` or `admin`; `hub` for clients that come through the hub above of this key.
    pub role: String,
}

/// The key of a node's account in the task table.
fn account_key(node: NodeId, known: &Node) -> u128 {
    match Role::from_name(&known.role).is_some_and(Role::launches) {
        true => known.tenant.into(),
        false => node.0.first_u128_le(),
    }
}

impl Registry {
    /// Whose these accounts are. One without a member here is of machines that were revoked.
    pub fn members_of(&self, accounts: &BTreeSet<u128>) -> BTreeMap<u128, Vec<Member>> {
        let mut found: BTreeMap<u128, Vec<Member>> = BTreeMap::new();
        for (id, known) in &self.kept.nodes {
            let key = Digest::from_hex(id).map(|digest| account_key(NodeId(digest), known));
            let Some(key) = key.filter(|key| accounts.contains(key)) else { continue };
            let member = Member { id: id.clone(), name: known.name.clone(), role: known.role.clone() };
            found.entry(key).or_default().push(member);
        }
        for (id, tenants) in &self.kept.above {
            for tenant in tenants.values().filter(|tenant| accounts.contains(&u128::from(**tenant))) {
                let digits: String = id.chars().take(8).collect();
                let member = Member { id: id.clone(), name: format!("by hub {digits}"), role: "hub".into() };
                found.entry((*tenant).into()).or_default().push(member);
            }
        }
        found
    }

    /// The account of the machine called `who`, a name or the first digits of its key, if it may launch.
    pub fn launches_as(&self, who: &str) -> Option<u128> {
        let (node, known) = self.find(who).ok()?;
        Role::from_name(&known.role).is_some_and(Role::launches).then(|| account_key(node, known))
    }

    /// Whether somebody has this account, or may have it again: a client that lends for a while keeps its jobs.
    pub fn has_member(&self, account: u128) -> bool {
        let is_tenant = self.kept.nodes.values().any(|known| u128::from(known.tenant) == account);
        is_tenant || self.members_of(&BTreeSet::from([account])).values().flatten().any(|member| member.role == "hub")
    }

    /// The account of the machine called `who`, by its name or the first digits of its key, if that launches.
    pub fn account_called(&self, who: &str) -> Result<u128, RegistryError> {
        let launches = |node: &Node| Role::from_name(&node.role).is_some_and(Role::launches);
        match self.find_among(who, launches) {
            Ok((node, known)) => Ok(account_key(node, known)),
            Err(RegistryError::NoSuchNode(_)) => {
                let (_, known) = self.find(who)?;
                Err(RegistryError::Lends { who: who.into(), role: known.role.clone() })
            }
            Err(other) => Err(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Tenant;

    #[test]
    fn accounts_are_called_by_who_launches() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut registry = Registry::open(&folder.path().join("nodes.json")).expect("opened");
        let node = |number: u8| NodeId(Digest([number; 32]));
        for (number, role, name) in
            [(1, "admin", "desk"), (2, "worker", "desk"), (3, "client", "ada"), (4, "worker", "w")]
        {
            registry.add(node(number), role, name, 100).expect("kept");
        }
        let desk = registry.account_called("desk").expect("the worker of that name is not meant");
        let ada = registry.account_called("0303").expect("by its key");
        assert!(matches!(registry.account_called("w"), Err(RegistryError::Lends { .. })));
        assert!(matches!(registry.account_called("bob"), Err(RegistryError::NoSuchNode(_))));
        registry.add(node(5), "client", "ada", 100).expect("kept");
        assert!(
            matches!(registry.account_called("ada"), Err(RegistryError::Ambiguous { nodes, .. }) if nodes.len() == 2)
        );
        let behind = u128::from(registry.tenant_above(node(9), Tenant(1)).expect("room").0);
        let worker = node(2).0.first_u128_le();
        let members = registry.members_of(&BTreeSet::from([desk, ada, worker, behind, 77]));
        let named = |key: u128| members.get(&key).map(|all| (all[0].name.as_str(), all[0].role.as_str()));
        assert_eq!((named(desk), named(ada)), (Some(("desk", "admin")), Some(("ada", "client"))));
        assert_eq!((named(worker), named(behind)), (Some(("desk", "worker")), Some(("by hub 09090909", "hub"))));
        assert_eq!(members.len(), 4);
        assert_eq!((registry.launches_as("0303"), registry.launches_as("w")), (Some(ada), None));
        assert!(registry.has_member(ada) && registry.has_member(behind) && !registry.has_member(worker));
        registry.revoke("0303").expect("known");
        assert!(!registry.has_member(ada) && registry.has_member(desk));
    }
}

//! How far machines that lend are trusted: not before somebody has said so, and then as a machine of one's own, of the site, or a volunteer's.

use super::{Registry, RegistryError};
use base::NodeId;
use wire::{Role, Trust};

/// Tag of workers that launches of this site may go to: its own, and those of the accounts' owners.
pub(crate) const KNOWN: u64 = 1 << 60;
/// Tag of workers that are the owner's own.
pub(crate) const OWN: u64 = 1 << 59;

/// The tags that workers of this class have for placement.
pub(crate) fn tags(trust: Trust) -> u64 {
    match trust {
        Trust::Own => KNOWN | OWN,
        Trust::Site => KNOWN,
        Trust::Volunteer | Trust::Waiting => 0,
    }
}

/// The tags that a launch asks for which was prepared for workers of this class; nobody's but volunteers' if it asks for that.
pub(crate) fn needed(class: u32) -> u64 {
    match class {
        class if class == Trust::Own.number() => KNOWN | OWN,
        class if class == Trust::Volunteer.number() => 0,
        _ => KNOWN,
    }
}

impl Registry {
    /// How far a machine is trusted that lends; who is not known waits.
    pub fn trust(&self, node: NodeId) -> Trust {
        self.kept.nodes.get(&node.0.to_hex()).map_or(Trust::Waiting, |known| known.trust)
    }

    /// Says how far the worker called `who` is trusted. Returns its key.
    pub fn approve(&mut self, who: &str, trust: Trust) -> Result<NodeId, RegistryError> {
        let (node, known) = self.find_among(who, |node| Role::from_name(&node.role) == Some(Role::Worker))?;
        let key = node.0.to_hex();
        if known.trust != trust {
            self.set_trust(&key, trust);
            self.save()?;
        }
        Ok(node)
    }

    pub(super) fn set_trust(&mut self, key: &str, trust: Trust) {
        if let Some(known) = self.kept.nodes.get_mut(key) {
            known.trust = trust;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Digest;

    #[test]
    fn who_joins_by_token_waits_unless_the_token_says_more() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("nodes.json");
        let mut registry = Registry::open(&path).expect("opened");
        let node = |number: u8| NodeId(Digest([number; 32]));
        registry.invite(&[1; 16], Role::Worker, None, 60, 100).expect("kept");
        registry.invite(&[2; 16], Role::Worker, Some(Trust::Site), 60, 100).expect("kept");
        registry.admit(node(1), Role::Worker, "one", &[1; 16], 110).expect("joined");
        registry.admit(node(2), Role::Worker, "two", &[2; 16], 110).expect("joined");
        assert_eq!((registry.trust(node(1)), registry.trust(node(2))), (Trust::Waiting, Trust::Site));
        assert_eq!(registry.trust(node(9)), Trust::Waiting, "nobody");
        registry.approve("one", Trust::Own).expect("known");
        registry.add(node(3), "client", "three", 100).expect("kept");
        assert!(registry.approve("three", Trust::Own).is_err(), "a client lends nothing");
        let mut registry = Registry::open(&path).expect("survives a restart");
        assert_eq!(registry.trust(node(1)), Trust::Own);
        registry.invite(&[3; 16], Role::Worker, None, 60, 100).expect("kept");
        registry.admit(node(1), Role::Worker, "one", &[3; 16], 110).expect("joined");
        assert_eq!(registry.trust(node(1)), Trust::Own, "a plain token takes nothing back");
        registry.revoke("one").expect("known");
        registry.invite(&[4; 16], Role::Worker, None, 60, 100).expect("kept");
        registry.admit(node(1), Role::Worker, "one", &[4; 16], 110).expect("joined anew");
        assert_eq!(registry.trust(node(1)), Trust::Waiting, "who was shut out begins at the beginning");
        let tokens = [(5, None), (6, Some(Trust::Waiting)), (7, Some(Trust::Site))];
        for (number, trust) in tokens {
            registry.invite(&[number; 16], Role::Worker, trust, 60, 100).expect("kept");
            let shown = (&[number; 16][..], true);
            registry.admit_joiner(node(number), Role::Worker, "near", shown, 110).expect("joined");
            assert_eq!(
                registry.trust(node(number)),
                trust.unwrap_or(Trust::Own),
                "of the hub's own account and machine"
            );
        }
    }

    #[test]
    fn classes_have_tags_for_what_they_may_run() {
        let may = |trust: Trust, launch: u32| needed(launch) & !tags(trust) == 0;
        assert!(may(Trust::Own, 0) && may(Trust::Own, 1) && may(Trust::Site, 0) && may(Trust::Site, 2));
        assert!(!may(Trust::Site, 1), "what was prepared for own machines stays there");
        assert!(!may(Trust::Volunteer, 0) && !may(Trust::Volunteer, 1) && may(Trust::Volunteer, 3));
        assert_eq!(Trust::from_name("waiting"), None, "nobody is made to wait");
    }
}

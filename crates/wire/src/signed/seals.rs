//! Seals: authentication codes by a secret that follows from two machines' keys, for those who have had a signature of each other. They
//! say what a signature says, but to nobody else, and take a microsecond each instead of fifty.
//!
//! A client signs every launch, for it does not know yet who will get it, and adds seals for the workers of which it has had results
//! last. A worker that finds its own checks that alone, and seals the result: that client has its key.

use super::{Claim, NotSigned, Statement};
use crate::key::{Key, PUBLIC_BYTES, node_of_public};
use crate::lock;
use base::{Digest, NodeId};
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

/// The secret's purpose, with the version of how it is made.
const SECRET: &[u8] = b"gleaner seal 1";
/// Bytes of a seal.
const SEAL_BYTES: usize = 16;
/// Machines whose secrets are kept; then they are made anew, as is needed.
const SECRETS_MAX: usize = 4_096;
/// Seals that a launch carries at most.
const RECENT_MAX: usize = 4;

/// What one machine seals with.
#[derive(Debug)]
pub struct Seals {
    key: Key,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    secrets: HashMap<NodeId, [u8; 32]>,
    /// Those that have been heard last, the last one first.
    recent: VecDeque<NodeId>,
}

/// Who says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signer {
    /// Its name.
    pub node: NodeId,
    /// It has sealed that, and so will understand a seal.
    pub has_sealed: bool,
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Known({} secrets)", self.secrets.len())
    }
}

impl Seals {
    /// By this key.
    pub fn new(key: Key) -> Self {
        Self { key, known: Mutex::default() }
    }

    /// Who says what is claimed, by a seal among these or by its signature; `None`: there is neither.
    ///
    /// # Errors
    /// [`NotSigned`] if what there is does not fit.
    pub fn check(&self, claim: &Claim, seals: &Bytes) -> Result<Option<Signer>, NotSigned> {
        let sealed_by = claim.expected.filter(|node| self.fits(*node, claim, seals));
        let signer = match sealed_by {
            Some(node) => Signer { node, has_sealed: true },
            None if claim.signed.is_empty() && !seals.is_empty() => return Err(NotSigned::Wrong),
            None => match claim.check()? {
                Some(node) => Signer { node, has_sealed: false },
                None => return Ok(None),
            },
        };
        self.heard(signer.node, &claim.signed);
        Ok(Some(signer))
    }

    /// A seal on this for a machine whose key is known.
    pub fn seal(&self, node: NodeId, statement: &Statement) -> Option<Bytes> {
        let known = lock(&self.known);
        known.secrets.get(&node).map(|secret| Bytes::copy_from_slice(&code(secret, statement)))
    }

    /// Seals on this for those that were heard last, at most so many.
    pub fn recent(&self, statement: &Statement, count: usize) -> Bytes {
        let known = lock(&self.known);
        let secrets = known.recent.iter().take(count).filter_map(|node| known.secrets.get(node));
        secrets.flat_map(|secret| code(secret, statement)).collect()
    }

    fn fits(&self, node: NodeId, claim: &Claim, seals: &[u8]) -> bool {
        if seals.is_empty() || seals.len() > RECENT_MAX * SEAL_BYTES {
            return false;
        }
        let Some(secret) = self.secret(node, &claim.signed) else { return false };
        let own = u128::from_le_bytes(code(&secret, &claim.statement));
        // As one number: how long that takes does not tell how much of it matches.
        seals.chunks(SEAL_BYTES).any(|seal| seal.try_into().is_ok_and(|seal| u128::from_le_bytes(seal) == own))
    }

    /// That which is shared with this machine, whose public key `signed` begins with if it has not been heard before.
    fn secret(&self, node: NodeId, signed: &[u8]) -> Option<[u8; 32]> {
        if let Some(secret) = lock(&self.known).secrets.get(&node) {
            return Some(*secret);
        }
        let public = signed.first_chunk::<PUBLIC_BYTES>().filter(|public| node_of_public(&public[..]) == node)?;
        let shared = self.key.shared_with(public)?;
        let (low, high) = (node.min(self.key.node()), node.max(self.key.node()));
        let secret = Digest::keyed(&shared, &[SECRET, &low.0.0, &high.0.0].concat()).0;
        let mut known = lock(&self.known);
        if known.secrets.len() >= SECRETS_MAX {
            *known = Known::default();
        }
        known.secrets.insert(node, secret);
        Some(secret)
    }

    /// Something of it counts.
    fn heard(&self, node: NodeId, signed: &[u8]) {
        if self.secret(node, signed).is_none() {
            return;
        }
        let mut known = lock(&self.known);
        if known.recent.front() != Some(&node) {
            known.recent.retain(|other| *other != node);
            known.recent.push_front(node);
            known.recent.truncate(RECENT_MAX);
        }
    }
}

/// The seal.
fn code(secret: &[u8; 32], statement: &Statement) -> [u8; SEAL_BYTES] {
    *Digest::keyed(secret, &statement.0.0).0.first_chunk().expect("a digest is longer")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(statement: Statement, signed: Bytes, from: &Key) -> Claim {
        Claim { statement, signed, expected: Some(from.node()) }
    }

    fn statement(number: u8) -> Statement {
        Statement::from_digest(Digest::of(&[number]))
    }

    fn signed(key: &Key, statement: &Statement) -> Bytes {
        Bytes::copy_from_slice(&key.sign(&statement.0))
    }

    #[test]
    fn who_has_signed_is_sealed_with() {
        let (client, worker) = (Key::generate(), Key::generate());
        let (here, there) = (Seals::new(client.clone()), Seals::new(worker.clone()));
        let (launch, result) = (statement(1), statement(2));
        assert!(here.recent(&launch, 4).is_empty() && there.seal(client.node(), &result).is_none(), "nobody is known");
        let first = claim(result, signed(&worker, &result), &worker);
        let signer = Signer { node: worker.node(), has_sealed: false };
        assert_eq!(here.check(&first, &Bytes::new()), Ok(Some(signer)));
        let seals = here.recent(&launch, 4);
        assert!(here.recent(&launch, 0).is_empty());
        let launched = claim(launch, signed(&client, &launch), &client);
        let signer = Signer { node: client.node(), has_sealed: true };
        assert_eq!(there.check(&launched, &seals), Ok(Some(signer)), "a key that was not heard before");
        let seal = there.seal(client.node(), &result).expect("it is known now");
        let signer = Signer { node: worker.node(), has_sealed: true };
        assert_eq!(here.check(&claim(result, Bytes::new(), &worker), &seal), Ok(Some(signer)));
    }

    #[test]
    fn another_s_seal_counts_for_nothing() {
        let (client, worker, other) = (Key::generate(), Key::generate(), Key::generate());
        let [here, there, third] = [&client, &worker, &other].map(|key| Seals::new(key.clone()));
        let (said, changed) = (statement(1), statement(2));
        for (from, seals) in [(&worker, &there), (&other, &third)] {
            here.check(&claim(said, signed(from, &said), from), &Bytes::new()).expect("signed");
            seals.check(&claim(said, signed(&client, &said), &client), &Bytes::new()).expect("signed");
        }
        let seal = there.seal(client.node(), &said).expect("known");
        let unsigned = |statement, from| claim(statement, Bytes::new(), from);
        assert_eq!(here.check(&unsigned(changed, &worker), &seal), Err(NotSigned::Wrong), "of something else");
        assert_eq!(here.check(&unsigned(said, &other), &seal), Err(NotSigned::Wrong), "somebody else's");
        let cut = seal.slice(..SEAL_BYTES - 1);
        assert_eq!(here.check(&unsigned(said, &worker), &cut), Err(NotSigned::Wrong));
        let many = Bytes::from(seal.repeat(RECENT_MAX + 1));
        assert_eq!(here.check(&unsigned(said, &worker), &many), Err(NotSigned::Wrong));
        let stranger = claim(said, signed(&other, &said), &worker);
        assert!(here.check(&stranger, &third.seal(client.node(), &said).expect("known")).is_err());
        assert_eq!(here.check(&unsigned(said, &worker), &Bytes::new()), Ok(None), "nothing is said");
        let signer = Signer { node: worker.node(), has_sealed: false };
        let both = claim(said, signed(&worker, &said), &worker);
        assert_eq!(here.check(&both, &Bytes::from_static(&[0; SEAL_BYTES])), Ok(Some(signer)), "the signature counts");
    }

    #[test]
    fn those_heard_last_get_seals() {
        let (client, said) = (Key::generate(), statement(1));
        let here = Seals::new(client);
        let workers: Vec<Key> = (0..6).map(|_| Key::generate()).collect();
        for worker in workers.iter().chain([&workers[2]]) {
            here.check(&claim(said, signed(worker, &said), worker), &Bytes::new()).expect("signed");
        }
        let seals = here.recent(&said, RECENT_MAX);
        assert_eq!(seals.len(), RECENT_MAX * SEAL_BYTES);
        assert_eq!(&seals[..SEAL_BYTES], &here.seal(workers[2].node(), &said).expect("known")[..]);
        assert_eq!(here.recent(&said, 1), seals.slice(..SEAL_BYTES));
    }
}

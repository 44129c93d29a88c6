//! Signatures from end to end: a launch carries its client's, a result its worker's, so that a hub between the two can pass both on or
//! not, and make neither.
//!
//! A signature is the signer's public key, which its name is the digest of, and Ed25519 over a [`Statement`]: the digest of a purpose
//! and of fields in a fixed order ([`statement`]). A result's statement names the statement of its launch. What hubs set or replace in a
//! launch on its way is in no statement, and neither are the bindings of its view: see decision 61.
//!
//! Between two machines that have had a signature of each other, a seal does the same ([`seals`]), in a fiftieth of the time.

mod begun;
mod peers;
mod seals;
mod statement;

pub use begun::{Begun, NotNew};
pub use peers::Peers;
pub use seals::{Seals, Signer};
pub use statement::{Parties, Statement, Streams};

use crate::key::{Key, signer};
use crate::message::{Exited, Launch};
use base::NodeId;
use bytes::Bytes;

/// Why a launch or a result does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSigned {
    /// Nobody has signed it, and here it has to be.
    #[error("it carries no signature, and signatures are required here")]
    Required,
    /// Nobody has signed it, though who it is of signs.
    #[error("it carries no signature, and {0} signs")]
    Missing(NodeId),
    /// The signature is of other contents, or none.
    #[error("its signature does not fit: it was changed on its way")]
    Wrong,
    /// Somebody else has signed it.
    #[error("{found} has signed it, not {expected}")]
    Other {
        /// Who should have.
        expected: NodeId,
        /// Who has.
        found: NodeId,
    },
    /// It does not say whose it is.
    #[error("it does not say whose it is")]
    Nobody,
}

/// Has a client sign a launch for the hub that it is about to be sent to.
pub fn sign_launch(key: &Key, hub: NodeId, launch: &mut Launch) -> Statement {
    let statement = Statement::of_launch(launch, Parties { client: key.node(), hub });
    launch.signature = statement.signed_by(key);
    statement
}

/// A statement, and the signature that came with it, which is not checked yet: that takes some fifty microseconds.
#[derive(Clone, Debug)]
pub struct Claim {
    /// What is said.
    pub statement: Statement,
    signed: Bytes,
    /// Who should have said it, if that is known.
    expected: Option<NodeId>,
}

impl Claim {
    /// What a launch says that has come over a connection to `hub`, and between whom.
    ///
    /// # Errors
    /// [`NotSigned::Nobody`] if it says of no client that it is its.
    pub fn of_launch(launch: &Launch, hub: NodeId) -> Result<(Parties, Self), NotSigned> {
        let parties = Parties::of(&launch.client, hub).ok_or(NotSigned::Nobody)?;
        let (statement, signed) = (Statement::of_launch(launch, parties), launch.signature.clone());
        Ok((parties, Self { statement, signed, expected: Some(parties.client) }))
    }

    /// What is said to have come of a launch. `worker`: who had it, if that is known.
    pub fn of_result(exited: &Exited, launch: &Statement, streams: &Streams, worker: Option<NodeId>) -> Self {
        let statement = Statement::of_result(launch, streams, exited);
        Self { statement, signed: exited.signature.clone(), expected: worker }
    }

    /// Who has signed it, if anybody has.
    ///
    /// # Errors
    /// [`NotSigned`] if the signature is of something else, or somebody else's.
    pub fn check(&self) -> Result<Option<NodeId>, NotSigned> {
        if self.signed.is_empty() {
            return Ok(None);
        }
        let found = signer(&self.statement.0, &self.signed).ok_or(NotSigned::Wrong)?;
        match self.expected.filter(|expected| *expected != found) {
            Some(expected) => Err(NotSigned::Other { expected, found }),
            None => Ok(Some(found)),
        }
    }
}

#[cfg(test)]
mod tests;

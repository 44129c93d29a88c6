//! Signatures from end to end: a launch carries its client's, a result its worker's, so that a hub between the two can pass both on or
//! not, and make neither.
//!
//! A signature is the signer's public key, which its name is the digest of, and Ed25519 over a [`Statement`]: the digest of a purpose
//! and of fields in a fixed order ([`statement`]). A result's statement names the statement of its launch. What hubs set or replace in a
//! launch on its way is in no statement, and neither are the bindings of its view: see decision 61.

mod begun;
mod peers;
mod statement;

pub use begun::{Begun, NotNew};
pub use peers::Peers;
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
    launch.signature = Bytes::copy_from_slice(&key.sign(&statement.0));
    statement
}

/// What a launch says that has come over a connection to `hub`, and whether its client has signed that.
///
/// # Errors
/// [`NotSigned`] if it carries a signature that is not its client's over all of it, or says of no client that it is its.
pub fn check_launch(launch: &Launch, hub: NodeId) -> Result<(Parties, Statement, bool), NotSigned> {
    let parties = Parties::of(&launch.client, hub).ok_or(NotSigned::Nobody)?;
    let statement = Statement::of_launch(launch, parties);
    let is_signed = check(&statement, &launch.signature, Some(parties.client))?.is_some();
    Ok((parties, statement, is_signed))
}

/// Has a worker sign what came of a launch.
pub fn sign_result(key: &Key, launch: &Statement, streams: &Streams, exited: &mut Exited) {
    let statement = Statement::of_result(launch, streams, exited);
    exited.signature = Bytes::copy_from_slice(&key.sign(&statement.0));
}

/// Who has signed that this came of a launch, if anybody has. `worker`: who should have, if that is known.
///
/// # Errors
/// [`NotSigned`] if it carries a signature that is not that worker's over all of it.
pub fn check_result(
    exited: &Exited,
    launch: &Statement,
    streams: &Streams,
    worker: Option<NodeId>,
) -> Result<Option<NodeId>, NotSigned> {
    check(&Statement::of_result(launch, streams, exited), &exited.signature, worker)
}

fn check(statement: &Statement, signed: &Bytes, expected: Option<NodeId>) -> Result<Option<NodeId>, NotSigned> {
    if signed.is_empty() {
        return Ok(None);
    }
    let found = signer(&statement.0, signed).ok_or(NotSigned::Wrong)?;
    match expected.filter(|expected| *expected != found) {
        Some(expected) => Err(NotSigned::Other { expected, found }),
        None => Ok(Some(found)),
    }
}

#[cfg(test)]
mod tests;

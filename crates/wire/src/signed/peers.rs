//! Who has signed before: whoever has is not heard without a signature any more.

use super::NotSigned;
use crate::{lock, versions};
use base::NodeId;
use std::collections::HashSet;
use std::sync::Mutex;

/// Keys that are remembered; who comes after so many is not.
const PEERS_MAX: usize = 65_536;

/// Those at the other ends. They are remembered as long as this process lives.
#[derive(Debug, Default)]
pub struct Peers {
    /// Nobody is heard without a signature.
    is_required: bool,
    signers: Mutex<HashSet<NodeId>>,
}

impl Peers {
    /// Nobody has signed yet. `is_required`: nobody is heard who does not.
    pub fn new(is_required: bool) -> Self {
        Self { is_required, signers: Mutex::default() }
    }

    /// Whether what this one has signed, or nobody, may be `node`'s; `None`: it is not known whose it
    /// is. `version`: that which is spoken with the hub. Who has signed is remembered.
    ///
    /// # Errors
    /// [`NotSigned`] if it may not.
    pub fn accept(&self, signer: Option<NodeId>, node: Option<NodeId>, version: u32) -> Result<(), NotSigned> {
        match signer {
            Some(signer) => {
                self.has_signed(signer);
                Ok(())
            }
            None => self.may_be_unsigned(node, version),
        }
    }

    /// This one has signed.
    pub(super) fn has_signed(&self, node: NodeId) {
        let mut signers = lock(&self.signers);
        if signers.len() < PEERS_MAX {
            signers.insert(node);
        }
    }

    /// Whether what nobody has signed may be this one's; `None`: it is not known whose it is. `version`: that which is spoken with the
    /// hub. A hub that itself is of a version without signatures may be one that was taken back, with all that is behind it: it is
    /// believed, unless signatures are required.
    ///
    /// # Errors
    /// [`NotSigned`] if it may not.
    pub(super) fn may_be_unsigned(&self, node: Option<NodeId>, version: u32) -> Result<(), NotSigned> {
        let signs = |node| versions::has_signatures(version) && lock(&self.signers).contains(&node);
        match node {
            _ if self.is_required => Err(NotSigned::Required),
            Some(node) if signs(node) => Err(NotSigned::Missing(node)),
            _ => Ok(()),
        }
    }
}

//! Who has signed before: whoever has is not heard without a signature any more.

use super::NotSigned;
use crate::{lock, versions};
use base::{Digest, NodeId};
use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Mutex;

/// Keys that are remembered; who comes after so many is not.
const PEERS_MAX: usize = 65_536;
/// Bytes of a node id in the file.
const NODE_BYTES: usize = 32;

/// Those at the other ends.
#[derive(Debug, Default)]
pub struct Peers {
    /// Nobody is heard without a signature.
    is_required: bool,
    signers: Mutex<Signers>,
}

#[derive(Debug, Default)]
struct Signers {
    nodes: HashSet<NodeId>,
    /// Their ids, one after the other.
    file: Option<File>,
}

impl Peers {
    /// Those who have signed are in this file, which is made if it is missing; without one they are forgotten when this process ends.
    /// `is_required`: nobody is heard who does not sign.
    pub fn new(file: Option<&Path>, is_required: bool) -> Self {
        let opened = file.and_then(|path| {
            let opened = File::options().read(true).append(true).create(true).mode(0o600).open(path);
            opened.inspect_err(|error| tracing::warn!(path = %path.display(), %error, "who signs is not kept")).ok()
        });
        let mut known = Vec::new();
        if let Some(file) = &opened {
            // What cannot be read is heard of again.
            let _ = file.take((PEERS_MAX * NODE_BYTES) as u64).read_to_end(&mut known);
        }
        let nodes = known.chunks_exact(NODE_BYTES).filter_map(Digest::from_slice).map(NodeId).collect();
        // One that was cut off while it was written would shift all that come later.
        let file = opened.filter(|file| {
            let whole = known.len() - known.len() % NODE_BYTES;
            whole == known.len() || file.set_len(whole as u64).is_ok()
        });
        Self { is_required, signers: Mutex::new(Signers { nodes, file }) }
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
        if signers.nodes.len() < PEERS_MAX && signers.nodes.insert(node) {
            // Without it, this is known until the process ends.
            let _ = signers.file.as_mut().map(|file| file.write_all(&node.0.0));
        }
    }

    /// Whether what nobody has signed may be this one's; `None`: it is not known whose it is. `version`: that which is spoken with the
    /// hub. A hub that itself is of a version without signatures may be one that was taken back, with all that is behind it: it is
    /// believed, unless signatures are required.
    ///
    /// # Errors
    /// [`NotSigned`] if it may not.
    pub(super) fn may_be_unsigned(&self, node: Option<NodeId>, version: u32) -> Result<(), NotSigned> {
        let signs = |node| versions::has_signatures(version) && lock(&self.signers).nodes.contains(&node);
        match node {
            _ if self.is_required => Err(NotSigned::Required),
            Some(node) if signs(node) => Err(NotSigned::Missing(node)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_signed_is_known_after_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("signers");
        let node = |number: u8| NodeId(Digest([number; 32]));
        let misses = |peers: &Peers, number: u8| peers.may_be_unsigned(Some(node(number)), versions::NEWEST).is_err();
        let peers = Peers::new(Some(&path), false);
        assert!(!misses(&peers, 1));
        [1, 2, 1].into_iter().for_each(|number| peers.has_signed(node(number)));
        assert_eq!(std::fs::metadata(&path).expect("it is there").len(), 64);
        // The machine went down while it wrote.
        std::fs::File::options()
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(b"torn"))
            .expect("written");
        let again = Peers::new(Some(&path), false);
        assert!(misses(&again, 1) && misses(&again, 2) && !misses(&again, 3));
        again.has_signed(node(3));
        assert!(misses(&Peers::new(Some(&path), false), 3));
        assert!(!misses(&Peers::new(Some(folder.path()), false), 1), "without a file it goes on");
    }
}

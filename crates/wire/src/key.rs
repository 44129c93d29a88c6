//! A machine's key pair: Ed25519, made on first use, kept in a file that only its owner can read.

use base::{Digest, NodeId};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A key pair, and the name that follows from it.
#[derive(Clone)]
pub struct Key {
    pkcs8: Arc<[u8]>,
    certified: Arc<CertifiedKey>,
    node: NodeId,
}

/// A key could not be made, read or kept.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file system refused.
    #[error("cannot {what} the key {}: {source}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The file can be read or written by others.
    #[error("the key {} can be read by other users; make it private (chmod 600) or remove it to get a new one", .0.display())]
    Exposed(PathBuf),
    /// The file holds no key.
    #[error("{} does not hold an Ed25519 key; remove it to get a new one (the machine must then join again)", .0.display())]
    Invalid(PathBuf),
}

impl Key {
    /// A new key, kept nowhere.
    pub fn generate() -> Self {
        let random = ring::rand::SystemRandom::new();
        let pkcs8 = ring::signature::Ed25519KeyPair::generate_pkcs8(&random)
            .expect("the kernel's random numbers are there on every Linux that runs QUIC");
        Self::from_pkcs8(pkcs8.as_ref()).expect("a key just made is valid")
    }

    /// The key in `path`, made if there is none.
    pub fn load_or_create(path: &Path) -> Result<Self, KeyError> {
        let failed = |what| move |source| KeyError::File { what, path: path.to_owned(), source };
        match std::fs::read(path) {
            Ok(bytes) => {
                let mode = std::fs::metadata(path).map_err(failed("read"))?.mode();
                if mode & 0o077 != 0 {
                    return Err(KeyError::Exposed(path.to_owned()));
                }
                Self::from_pkcs8(&bytes).ok_or_else(|| KeyError::Invalid(path.to_owned()))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let key = Self::generate();
                let fresh = path.with_extension(format!("new-{}", std::process::id()));
                std::fs::OpenOptions::new()
                    .write(true)
                    .create(true)
                    .truncate(true)
                    .mode(0o600)
                    .open(&fresh)
                    .and_then(|mut file| file.write_all(&key.pkcs8))
                    .map_err(failed("write"))?;
                // Of two programs that start at once the first one's key counts.
                match std::fs::hard_link(&fresh, path) {
                    Ok(()) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                    Err(error) => return Err(failed("write")(error)),
                }
                std::fs::remove_file(&fresh).map_err(failed("write"))?;
                Self::load_or_create(path)
            }
            Err(error) => Err(failed("read")(error)),
        }
    }

    fn from_pkcs8(pkcs8: &[u8]) -> Option<Self> {
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pkcs8.to_vec()));
        let signing = rustls::crypto::ring::sign::any_eddsa_type(match &der {
            PrivateKeyDer::Pkcs8(key) => key,
            _ => return None,
        })
        .ok()?;
        let public = signing.public_key()?;
        let node = node_of(&public);
        let certified = CertifiedKey::new(vec![CertificateDer::from(public.to_vec())], signing);
        Some(Self { pkcs8: Arc::from(pkcs8), certified: Arc::new(certified), node })
    }

    /// The name of the machine that holds this key.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// A secret for one purpose, the same whenever this machine starts.
    pub(crate) fn secret_for(&self, purpose: &str) -> [u8; 32] {
        let tag = ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &self.pkcs8), purpose.as_bytes());
        tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
    }

    pub(crate) fn certified(&self) -> Arc<CertifiedKey> {
        self.certified.clone()
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({})", self.node)
    }
}

/// The name of the machine with this public key (`SubjectPublicKeyInfo`).
pub(crate) fn node_of(public: &[u8]) -> NodeId {
    NodeId(Digest::of(public))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_kept_and_must_be_private() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("key");
        let first = Key::load_or_create(&path).expect("made");
        assert_eq!(Key::load_or_create(&path).expect("read").node(), first.node());
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).expect("chmod");
        assert!(matches!(Key::load_or_create(&path), Err(KeyError::Exposed(_))));
        std::fs::write(&path, b"nonsense").expect("write");
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("chmod");
        assert!(matches!(Key::load_or_create(&path), Err(KeyError::Invalid(_))));
    }
}

//! A machine's key pair: Ed25519, made on first use, kept in a file that only its owner can read.

use base::{Digest, NodeId};
use ed25519_dalek::{SigningKey, VerifyingKey};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
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
    pair: Arc<Ed25519KeyPair>,
    node: NodeId,
}

/// Bytes of a public key.
pub(crate) const PUBLIC_BYTES: usize = 32;
/// Bytes of a signature.
pub(crate) const SIGNATURE_BYTES: usize = 64;
/// Where the seed is in a private key in PKCS #8 (RFC 8410), and what is before it: an octet string of 32 bytes.
const SEED_AT: usize = 16;
const SEED_START: [u8; 2] = [0x04, 0x20];
/// What a `SubjectPublicKeyInfo` of Ed25519 begins with (RFC 8410); the public key's bytes follow.
const INFO_START: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

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
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&random)
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
                    // Whoever was told of the key must find it again after a power cut.
                    .and_then(|mut file| file.write_all(&key.pkcs8).and_then(|()| file.sync_all()))
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
        let pair = Arc::new(Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8).ok()?);
        Some(Self { pkcs8: Arc::from(pkcs8), certified: Arc::new(certified), pair, node })
    }

    /// The name of the machine that holds this key.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// A secret for one purpose, the same whenever this machine starts.
    pub fn secret_for(&self, purpose: &str) -> [u8; 32] {
        let tag = ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &self.pkcs8), purpose.as_bytes());
        tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
    }

    /// The public key, and the signature that its holder alone can give to this digest.
    pub(crate) fn sign(&self, digest: &Digest) -> [u8; PUBLIC_BYTES + SIGNATURE_BYTES] {
        let mut signed = [0; PUBLIC_BYTES + SIGNATURE_BYTES];
        signed[..PUBLIC_BYTES].copy_from_slice(self.public());
        signed[PUBLIC_BYTES..].copy_from_slice(self.pair.sign(&digest.0).as_ref());
        signed
    }

    /// The public key's bytes.
    fn public(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    /// A secret that only this machine and the holder of a public key can make: X25519 with the keys' Montgomery forms. `None`: nobody holds
    /// that key.
    pub(crate) fn shared_with(&self, public: &[u8; PUBLIC_BYTES]) -> Option<[u8; 32]> {
        let seed = self.pkcs8.get(SEED_AT..SEED_AT + 32)?.first_chunk()?;
        let own = SigningKey::from_bytes(seed);
        if self.pkcs8[..SEED_AT].last_chunk() != Some(&SEED_START) || own.verifying_key().as_bytes() != self.public() {
            return None;
        }
        let other = VerifyingKey::from_bytes(public).ok().filter(|key| !key.is_weak())?;
        Some(other.to_montgomery().mul_clamped(own.to_scalar_bytes()).to_bytes())
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

/// The machine that has signed this digest, if what [`Key::sign`] gave fits.
pub(crate) fn signer(digest: &Digest, signed: &[u8]) -> Option<NodeId> {
    let (public, signature) = signed.split_at_checked(PUBLIC_BYTES)?;
    UnparsedPublicKey::new(&ED25519, public).verify(&digest.0, signature).ok()?;
    Some(node_of_public(public))
}

/// The name of the machine with the public key of these bytes.
pub(crate) fn node_of_public(public: &[u8]) -> NodeId {
    node_of(&[&INFO_START[..], public].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_signed_is_known_by_its_name() {
        let (key, digest) = (Key::generate(), Digest::of(b"said"));
        let mut signed = key.sign(&digest);
        assert_eq!(signer(&digest, &signed), Some(key.node()), "as in the handshake");
        assert_eq!(signer(&Digest::of(b"other"), &signed), None);
        assert_eq!(signer(&digest, &signed[..95]), None);
        assert_eq!(signer(&digest, &[]), None);
        signed[..PUBLIC_BYTES].copy_from_slice(&Key::generate().sign(&digest)[..PUBLIC_BYTES]);
        assert_eq!(signer(&digest, &signed), None, "another's key");
    }

    #[test]
    fn two_machines_share_a_secret() {
        let (one, other, third) = (Key::generate(), Key::generate(), Key::generate());
        let shared = |key: &Key, with: &Key| key.shared_with(with.public().first_chunk().expect("32 bytes"));
        assert!(shared(&one, &other).is_some());
        assert_eq!(shared(&one, &other), shared(&other, &one));
        assert_ne!(shared(&one, &other), shared(&one, &third));
        let neutral: [u8; PUBLIC_BYTES] = std::array::from_fn(|at| u8::from(at == 0));
        assert_eq!(one.shared_with(&neutral), None, "anybody could make it");
    }

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

//! Newtypes for everything that is counted or named.

use crate::digest::{Digest, hex, unhex};
use std::fmt;

/// A machine's name for itself: the digest of its public key (in `SubjectPublicKeyInfo` form).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub Digest);

impl NodeId {
    /// The first eight hexadecimal digits: what people see and type.
    pub fn short(self) -> String {
        hex(&self.0.0[..4])
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())
    }
}

macro_rules! long_ids {
    ($($(#[$doc:meta])* $name:ident),*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u128);

        impl $name {
            /// The first eight hexadecimal digits: what people see and type.
            pub fn short(self) -> String {
                hex(&self.0.to_be_bytes()[..4])
            }

            /// All 32 hexadecimal digits.
            pub fn to_hex(self) -> String {
                hex(&self.0.to_be_bytes())
            }

            /// Reads 32 hexadecimal digits.
            pub fn from_hex(text: &str) -> Option<Self> {
                let bytes: [u8; 16] = unhex(text)?.try_into().ok()?;
                Some(Self(u128::from_be_bytes(bytes)))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.short())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.short())
            }
        }
    )* };
}

long_ids! {
    /// A task, named by 128 random bits that its client chose.
    TaskId,
    /// A batch job's name, for client and hub: the same name is the same job.
    BatchId
}

/// A job at one client daemon: tasks that see the client's files as they were when the job was opened. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub u64);

/// Whose bytes: blocks are readable, and known to exist, only within the tenant that has shown them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tenant(pub u32);

/// A view of one client's files: the paths that one program (and script) uses. Chosen by the client, unique within its
/// session with the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ViewId(pub u64);

/// A numbered state of a view (its epoch). Each launch that finds a change makes the next version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Version(pub u64);

/// A binding's serial number at its client, strictly increasing over the client daemon's life: of two bindings of one
/// path the one with the larger number is the newer. Zero is never used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Seq(pub u64);

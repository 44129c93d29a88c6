//! What a path means at its client, at one moment: the client's binding of names to contents.

use crate::attr::{Attr, Xattr};
use crate::codec::{Encode, Malformed, Reader, Writer};
use crate::digest::Digest;
use crate::path::is_plain_name;

/// What one path is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Binding {
    /// There is nothing of this name.
    Absent,
    /// The read policy keeps it at the client: shown as `EACCES`, never as absent.
    Denied,
    /// A directory. Where `listing` is known, a name that is not in it is known to be absent.
    Directory {
        /// Attributes.
        attr: Attr,
        /// Digest of the encoded [`Listing`]; `None` if it cannot be read or is too large, so that names are asked one
        /// by one.
        listing: Option<Digest>,
        /// Attributes in the `user.` namespace.
        xattrs: Vec<Xattr>,
    },
    /// A regular file.
    File {
        /// Attributes.
        attr: Attr,
        /// Where its bytes are.
        content: Content,
        /// Attributes in the `user.` namespace.
        xattrs: Vec<Xattr>,
    },
    /// A symbolic link.
    Symlink {
        /// Attributes.
        attr: Attr,
        /// Where it points, as written.
        target: Vec<u8>,
    },
    /// A socket, pipe or device. It can be seen, renamed and removed elsewhere, but not used: it is shown as a socket,
    /// which cannot be opened (`ENXIO`).
    Special {
        /// Attributes.
        attr: Attr,
    },
}

impl Binding {
    /// The attributes, of what has any.
    pub fn attr(&self) -> Option<&Attr> {
        match self {
            Self::Directory { attr, .. }
            | Self::File { attr, .. }
            | Self::Symlink { attr, .. }
            | Self::Special { attr } => Some(attr),
            Self::Absent | Self::Denied => None,
        }
    }

    /// The attributes in the `user.` namespace.
    pub fn xattrs(&self) -> &[Xattr] {
        match self {
            Self::Directory { xattrs, .. } | Self::File { xattrs, .. } => xattrs,
            Self::Symlink { .. } | Self::Special { .. } | Self::Absent | Self::Denied => &[],
        }
    }
}

/// Where the bytes of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    /// The file is empty.
    Empty,
    /// The whole file is one block.
    Block(Digest),
    /// The file is many blocks: the digest of its encoded [`Recipe`].
    Recipe(Digest),
    /// The file was not hashed: pieces of [`crate::LAZY_PIECE_BYTES`] are asked of the client under this name, which only the client can make
    /// of what identifies the file's state there (device, inode, size, mtime, ctime).
    Lazy(Digest),
    /// The client cannot read it, for this `errno`.
    Unreadable(i32),
}

impl Content {
    /// The name of its block or recipe, where it has one.
    pub fn name(&self) -> Option<Digest> {
        match self {
            Self::Block(name) | Self::Recipe(name) => Some(*name),
            Self::Empty | Self::Lazy(_) | Self::Unreadable(_) => None,
        }
    }
}

/// The blocks of a file, in order.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Recipe {
    /// Length of the file in bytes: the sum of the pieces.
    pub size: u64,
    /// The pieces, none empty.
    pub pieces: Vec<Piece>,
}

/// A run of a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Length in bytes.
    pub len: u64,
    /// The block that holds the bytes; `None` for a hole, which reads as zeros.
    pub block: Option<Digest>,
}

impl Encode for Recipe {
    fn encode(&self, out: &mut Writer) {
        out.u8(1);
        out.u64(self.size);
        out.list(&self.pieces, |out, piece| {
            out.u64(piece.len);
            out.option(piece.block.as_ref(), |out, block| out.raw(&block.0));
        });
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        if from.u8()? != 1 {
            return Err(Malformed("a recipe of an unknown version"));
        }
        let size = from.u64()?;
        let pieces = from.list(|from| {
            let len = from.u64()?;
            Ok(Piece { len, block: from.option(read_digest)? })
        })?;
        let sum = pieces.iter().try_fold(0u64, |sum, piece| sum.checked_add(piece.len));
        let within = |piece: &Piece| piece.block.is_none() || piece.len <= crate::BLOCK_BYTES_MAX as u64;
        match sum == Some(size) && pieces.iter().all(|piece| piece.len > 0 && within(piece)) {
            true => Ok(Self { size, pieces }),
            false => Err(Malformed("a recipe whose pieces do not add up")),
        }
    }
}

/// What kind of thing a name in a listing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A device.
    Device,
}

/// All names of a directory, sorted by their bytes, without `.` and `..`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Listing {
    /// The entries.
    pub entries: Vec<ListingEntry>,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListingEntry {
    /// The name.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: NodeKind,
    /// Inode number at the client.
    pub ino: u64,
}

impl Listing {
    /// A listing of `entries` in any order.
    pub fn new(mut entries: Vec<ListingEntry>) -> Self {
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Self { entries }
    }

    /// The entry called `name`.
    pub fn get(&self, name: &[u8]) -> Option<&ListingEntry> {
        let at = self.entries.binary_search_by(|entry| entry.name.as_slice().cmp(name)).ok()?;
        self.entries.get(at)
    }
}

impl Encode for Listing {
    fn encode(&self, out: &mut Writer) {
        out.u8(1);
        out.list(&self.entries, |out, entry| {
            out.u8(entry.kind as u8);
            out.u64(entry.ino);
            out.bytes(&entry.name);
        });
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        if from.u8()? != 1 {
            return Err(Malformed("a listing of an unknown version"));
        }
        let entries = from.list(|from| {
            let kind = NodeKind::from_code(from.u8()?).ok_or(Malformed("an unknown kind of file"))?;
            let ino = from.u64()?;
            Ok(ListingEntry { name: from.bytes()?.to_vec(), kind, ino })
        })?;
        let sorted = entries.windows(2).all(|pair| pair[0].name < pair[1].name);
        match sorted && entries.iter().all(|entry| is_plain_name(&entry.name)) {
            true => Ok(Self { entries }),
            false => Err(Malformed("a listing with names that are unsorted, repeated or impossible")),
        }
    }
}

impl NodeKind {
    /// The kind with this code in a stored listing.
    pub fn from_code(code: u8) -> Option<Self> {
        [Self::Directory, Self::File, Self::Symlink, Self::Fifo, Self::Socket, Self::Device].get(code as usize).copied()
    }
}

/// Reads the 32 bytes of a digest.
pub fn read_digest(from: &mut Reader<'_>) -> Result<Digest, Malformed> {
    Ok(Digest(from.take(32)?.try_into().expect("take returns the length asked for")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes() {
        let listing = Listing::new(vec![ListingEntry { name: b"a".to_vec(), kind: NodeKind::File, ino: 7 }]);
        assert_eq!(crate::digest::hex(&listing.to_bytes()), "01010000000107000000000000000100000061");
        let recipe = Recipe { size: 3, pieces: vec![Piece { len: 3, block: None }] };
        assert_eq!(crate::digest::hex(&recipe.to_bytes()), "01030000000000000001000000030000000000000000");
    }

    #[test]
    fn recipes_that_do_not_add_up_are_refused() {
        let lie = Recipe { size: 4, pieces: vec![Piece { len: 3, block: None }] };
        assert!(Recipe::from_bytes(&lie.to_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(listing) = Listing::from_bytes(&bytes) {
                prop_assert_eq!(listing.to_bytes(), bytes.clone());
            }
            if let Ok(recipe) = Recipe::from_bytes(&bytes) {
                prop_assert_eq!(recipe.to_bytes(), bytes);
            }
        }
    }
}

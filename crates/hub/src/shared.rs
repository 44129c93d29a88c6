//! What hubs that replace one another on one journal have in common beside it: the key, by which clients and workers know the
//! hub, and the list of nodes.
//!
//! Both are kept in the journal's database. A hub that has taken over writes them into its own folder, where the rest of it looks;
//! the first one offers those of its folder. Who can read that database can pass for the hub: it is as secret as the folder.

use std::path::{Path, PathBuf};
use store::journal::JournalError;
use store::pg_journal::Lease;
use store::write_private;

/// The file of the hub's key, in its folder and in the database.
pub const KEY_FILE: &str = "hub.key";
/// The file of the list of nodes.
pub const NODES_FILE: &str = "nodes.json";

/// What the hubs share cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SharedError {
    /// The database fails.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A file in the folder cannot be used.
    #[error("cannot read or write {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The folder is another hub's.
    #[error(
        "{} is not the key of the hub whose journal is in {place}: this folder is another hub's. Give the standby a state \
         folder of its own, or move that file away if nobody knows that hub",
        path.display()
    )]
    OtherHub {
        /// The key's file.
        path: PathBuf,
        /// The database.
        place: String,
    },
}

/// Writes what is in the database into the hub's folder. A key that is there must be the same.
///
/// # Errors
/// [`SharedError`].
pub fn fetch(lease: &Lease, folder: &Path) -> Result<(), SharedError> {
    for name in [KEY_FILE, NODES_FILE] {
        let path = folder.join(name);
        let Some(shared) = lease.file(name)? else { continue };
        match read(&path)? {
            Some(own) if own == shared => continue,
            Some(_) if name == KEY_FILE => {
                return Err(SharedError::OtherHub { path, place: lease.place().to_string() });
            }
            _ => write_private(&path, &shared, true).map_err(|source| SharedError::File { path, source })?,
        }
    }
    Ok(())
}

/// Puts into the database what is only in the hub's folder.
///
/// # Errors
/// [`SharedError`].
pub fn offer(lease: &Lease, folder: &Path) -> Result<(), SharedError> {
    for name in [KEY_FILE, NODES_FILE] {
        if lease.file(name)?.is_none()
            && let Some(own) = read(&folder.join(name))?
        {
            lease.files().put(name, &own)?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, SharedError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(SharedError::File { path: path.to_owned(), source }),
    }
}

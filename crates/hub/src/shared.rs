//! What hubs that replace one another on one journal have in common beside it: the key, by which clients and workers know the
//! hub, the list of nodes, and where each of these hubs is.
//!
//! All is kept in the journal's database. A hub that has taken over writes key and list into its own folder, where the rest of it looks;
//! the first one offers those of its folder. Who can read that database can pass for the hub: it is as secret as the folder.

use crate::server::addresses_of;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use store::journal::JournalError;
use store::pg_journal::Lease;
use store::write_private;
use tokio::sync::watch;
use wire::message::{self, Control, ControlKind};

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

/// Where the hubs of a journal are, as far as somebody was told; nowhere if no other can take over.
#[derive(Clone, Debug)]
pub struct Hubs(pub Option<watch::Receiver<Vec<SocketAddr>>>);

impl Hubs {
    /// All that are known, which counts as told.
    pub fn now(&mut self) -> Vec<SocketAddr> {
        self.0.as_mut().map_or(Vec::new(), |known| known.borrow_and_update().clone())
    }

    /// Waits until there are others than were told last, and gives what is to be told. Safe to cancel.
    pub async fn changed(&mut self) -> Control {
        if let Some(known) = &mut self.0
            && known.changed().await.is_ok()
        {
            let addresses = known.borrow_and_update().iter().map(ToString::to_string).collect();
            return ControlKind::Hubs(message::Hubs { addresses }).into();
        }
        std::future::pending().await
    }
}

/// Where other machines may find a hub that listens at `listen`, if these are its machine's addresses: without those of use there alone,
/// unless there are no others. With port 0 nobody knows before it listens.
pub fn addresses_for_others(listen: SocketAddr, advertise: &[IpAddr]) -> Vec<SocketAddr> {
    if listen.port() == 0 {
        return Vec::new();
    }
    let (own, outward): (Vec<_>, Vec<_>) =
        addresses_of(listen, advertise).into_iter().partition(|address| address.ip().is_loopback());
    if outward.is_empty() { own } else { outward }
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

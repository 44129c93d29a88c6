//! Removing what a commit displaced: where that is much, nobody waits for it. It is out of everybody's sight in the state folder, and
//! should the daemon end before all is gone, its next start removes the rest.

use super::emptied::remove_all;
use super::stage::Stages;
use base::TaskId;
use std::os::fd::{AsFd, OwnedFd};
use store::room::Room;

/// Changes of a commit from which on nobody waits.
const CHANGES_MIN: usize = 2_000;

/// Has what a commit of so many changes displaced removed later, if it is much and that shows nowhere; else all is left to
/// [`Stages::clear`].
pub(super) fn remove_later(task: TaskId, stages: &mut Stages<'_>, changes: usize) {
    if changes < CHANGES_MIN || !has_plenty(stages.held(0)) {
        return;
    }
    let Ok(Some((folder, names))) = stages.take_displaced() else { return };
    // Without a thread it stays until the next start.
    drop(std::thread::Builder::new().name("displaced".into()).spawn(move || remove(task, &folder, &names)));
}

fn remove(task: TaskId, folder: &OwnedFd, names: &[Vec<u8>]) {
    for name in names {
        if let Err(error) = remove_all(folder, name) {
            tracing::warn!(%task, %error, "what a commit displaced stays until the daemon's next start");
        }
    }
}

/// Whether the file system has so much room that nobody misses at once what is given back.
fn has_plenty(folder: impl AsFd) -> bool {
    Room::of_open(folder).is_ok_and(|room| room.is_plenty())
}

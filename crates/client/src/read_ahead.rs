//! Contents are read ahead of the link that they go over.

use tokio::sync::mpsc;
use wire::message::ObjectReply;

/// Objects that wait for the link.
const OBJECTS_AHEAD: usize = 16;

/// Reads one thing after the other where it may block, ahead of the link but not far, until `read` has no more.
pub(crate) fn read_ahead<Name: Send + 'static>(
    names: impl IntoIterator<Item = Name, IntoIter: Send> + Send + 'static,
    mut read: impl FnMut(Name) -> Option<ObjectReply> + Send + 'static,
) -> mpsc::Receiver<ObjectReply> {
    let (found, arriving) = mpsc::channel(OBJECTS_AHEAD);
    tokio::task::spawn_blocking(move || {
        let replies = names.into_iter().map_while(&mut read);
        // Nobody listens any more: enough.
        let _ = replies.map(|reply| found.blocking_send(reply)).find(Result::is_err);
    });
    arriving
}

//! What results rest on, at their client: a worker says by which bindings, pieces and refusals it was told of this machine's files, and that is
//! compared with what this client has said. So nobody between the two can have said something else.

use crate::allowance::OVER;
use crate::exchange::Exchange;
use crate::serve::{Server, blocking};
use crate::signatures::IsSigned;
use crate::snapshot::lru::Lru;
use crate::views::{Seen, View};
use base::basis::refusal;
use base::codec::Encode;
use base::{Basis, Digest, Time};
use std::sync::Arc;
use wire::fetch::UNANSWERED;
use wire::message::Exited;
use wire::{lock, now_nanos};

/// Pieces of lazily bound files whose digests are remembered. The others are read again.
const PIECES_MAX: usize = 200_000;
/// Refusals that are remembered.
const REFUSALS_MAX: usize = 65_536;
/// More bindings than this are not looked through where others wait.
const LOOKED_AT_NOW_MAX: u64 = 4_096;
/// An answer may have been on its way for so long when the task that rests on it was launched.
const ON_ITS_WAY_MAX_NS: i64 = 60_000_000_000;
const EIO: i32 = 5;

/// What this client has said of contents.
#[derive(Debug)]
pub(crate) struct Said {
    pieces: Lru<(Digest, u64), Digest>,
    /// When it was said last.
    refused: Lru<Vec<u8>, Time>,
}

impl Default for Said {
    fn default() -> Self {
        Self { pieces: Lru::new(PIECES_MAX), refused: Lru::new(REFUSALS_MAX) }
    }
}

impl Said {
    /// Whether this was refused to tasks of that time.
    fn has_refused(&self, refusal: &Vec<u8>, since: Time) -> bool {
        self.refused.peek(refusal).is_some_and(|said| since.since(*said) < ON_ITS_WAY_MAX_NS)
    }
}

impl Server {
    /// A piece of a lazily bound file is given.
    pub(crate) fn note_piece(&self, file: Digest, number: u64, bytes: Digest) {
        lock(&self.said).pieces.insert((file, number), bytes, 1);
    }

    /// What has this name is refused, for this reason and with this `errno`. No result rests on it if nobody can say, or if its task asked for
    /// more than it may.
    pub(crate) fn note_refused(&self, name: &[u8], why: &str, errno: i32) {
        if !why.is_empty() && why != OVER && errno != UNANSWERED {
            let refusal = refusal(name, if errno == 0 { EIO } else { errno });
            lock(&self.said).refused.insert(refusal, Time(now_nanos()), 1);
        }
    }

    /// Whether a result that its worker has signed rests on what the task was to be told, which was launched so.
    ///
    /// # Errors
    /// Why not, for a person.
    pub(crate) fn check(
        self: &Arc<Self>,
        view: &Arc<View>,
        launched: Seen,
        exited: &Exited,
    ) -> impl Future<Output = Result<(), String>> + use<> {
        let (server, view, version) = (self.clone(), view.clone(), launched.version.unwrap_or_default());
        let basis = match exited.is_unanswered {
            true => Err("the task wanted to know of files of which nobody could tell it".into()),
            false => Basis::from_bytes(&exited.basis).map_err(|error| format!("what the result rests on: {error}")),
        };
        async move {
            let basis = basis?;
            if basis.pieces.is_empty()
                && basis.bindings.count() <= LOOKED_AT_NOW_MAX
                && let Some(bound) = view.check_now(&basis.bindings, version)
            {
                return bound.map_err(told).and_then(|()| server.check_said(&basis, launched.since));
            }
            let checked = blocking(move || {
                view.check(&basis.bindings, version).map_err(told)?;
                server.check_said(&basis, launched.since)
            });
            checked.await.unwrap_or_else(|| Err("the client daemon failed".into()))
        }
    }

    /// Whether the contents are what this client gave, and all that was refused it has refused. Reads pieces that are long forgotten.
    fn check_said(&self, basis: &Basis, since: Time) -> Result<(), String> {
        for (file, pieces) in &basis.pieces {
            let find = |number| {
                if let Some(digest) = lock(&self.said).pieces.get(&(*file, number)) {
                    return Ok(*digest);
                }
                let read = self.views().snapshot().read_piece(file, number);
                let read = read.map_err(|error| told(format!("it rests on bytes that are no more here: {error}")))?;
                let digest = Digest::of(&read);
                self.note_piece(*file, number, digest);
                Ok(digest)
            };
            pieces.check(find, told("its worker had other bytes of this machine's files"))?;
        }
        let said = lock(&self.said);
        match basis.refused.iter().all(|refusal| said.has_refused(refusal, since)) {
            true => Ok(()),
            false => Err(told("its worker was refused what nobody here has refused")),
        }
    }
}

impl Exchange<'_> {
    /// Whether what is said to have come of the task counts: if its worker has signed that, and what it rests on is what this client has said.
    pub(crate) fn accept(&self, exited: &Exited) -> impl Future<Output = Result<(), String>> + use<> {
        let accepted = self.signed.accept();
        let rests = self.session.daemon.server.check(&self.session.plan.view, self.session.locks.seen, exited);
        async move { if accepted? == IsSigned(true) { rests.await } else { Ok(()) } }
    }
}

fn told(why: impl std::fmt::Display) -> String {
    format!("the result does not count: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_counts_with_its_error_and_for_tasks_of_its_time() {
        let mut said = Said::default();
        let (now, later) = (Time(now_nanos()), Time(now_nanos() + 2 * ON_ITS_WAY_MAX_NS));
        said.refused.insert(refusal(b"/a", 13), now, 1);
        assert!(said.has_refused(&refusal(b"/a", 13), Time(0)), "a task that runs for long");
        assert!(said.has_refused(&refusal(b"/a", 13), now));
        assert!(!said.has_refused(&refusal(b"/a", 2), now), "it was not said to be absent");
        assert!(!said.has_refused(&refusal(b"/b", 13), now));
        assert!(!said.has_refused(&refusal(b"/a", 13), later), "another task's");
    }
}

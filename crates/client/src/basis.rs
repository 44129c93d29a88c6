//! What results rest on, at their client: a worker says by which bindings, pieces and refusals it was told of this machine's files, and that is
//! compared with what this client has said. So nobody between the two can have said something else.

use crate::exchange::Exchange;
use crate::serve::{Server, blocking};
use crate::signatures::IsSigned;
use crate::snapshot::lru::Lru;
use crate::views::View;
use base::codec::Encode;
use base::{Basis, Digest, Version};
use std::sync::Arc;
use wire::fetch::UNANSWERED;
use wire::lock;
use wire::message::Exited;

/// Pieces of lazily bound files whose digests are remembered. The others are read again.
const PIECES_MAX: usize = 200_000;
/// Refusals that are remembered.
const REFUSALS_MAX: usize = 65_536;

/// What this client has said of contents.
#[derive(Debug)]
pub(crate) struct Said {
    pieces: Lru<(Digest, u64), Digest>,
    refused: Lru<Vec<u8>, ()>,
}

impl Default for Said {
    fn default() -> Self {
        Self { pieces: Lru::new(PIECES_MAX), refused: Lru::new(REFUSALS_MAX) }
    }
}

impl Server {
    /// A piece of a lazily bound file is given.
    pub(crate) fn note_piece(&self, file: Digest, number: u64, bytes: Digest) {
        lock(&self.said).pieces.insert((file, number), bytes, 1);
    }

    /// What has this name is refused, with this `errno`. That nobody can say is no refusal: no result rests on it.
    pub(crate) fn note_refused(&self, name: &[u8], errno: i32) {
        if errno != UNANSWERED {
            lock(&self.said).refused.insert(name.to_vec(), (), 1);
        }
    }

    /// Whether a result that its worker has signed rests on what the task was to be told, which was launched with this version of its view.
    ///
    /// # Errors
    /// Why not, for a person.
    pub(crate) async fn check(
        self: &Arc<Self>,
        (view, launched): (&Arc<View>, Version),
        exited: &Exited,
    ) -> Result<(), String> {
        if exited.is_unanswered {
            return Err("the task wanted to know of files of which nobody could tell it".into());
        }
        let basis = Basis::from_bytes(&exited.basis).map_err(|error| format!("what the result rests on: {error}"))?;
        if basis.pieces.is_empty()
            && let Some(bound) = view.check_now(&basis.bindings, launched)
        {
            return bound.map_err(told).and_then(|()| self.check_said(&basis));
        }
        let (server, view) = (self.clone(), view.clone());
        let checked = blocking(move || {
            view.check(&basis.bindings, launched).map_err(told)?;
            server.check_said(&basis)
        });
        checked.await.unwrap_or_else(|| Err("the client daemon failed".into()))
    }

    /// Whether the contents are what this client gave, and all that was refused it has refused. Reads pieces that are long forgotten.
    fn check_said(&self, basis: &Basis) -> Result<(), String> {
        for (file, pieces) in &basis.pieces {
            let find = |number| {
                if let Some(digest) = lock(&self.said).pieces.get(&(*file, number)) {
                    return Ok(*digest);
                }
                let read = self.views().snapshot().read_piece(file, number);
                let read = read.map_err(|error| told(format!("it rests on bytes that are no more here: {error}")))?;
                Ok(Digest::of(&read))
            };
            pieces.check(find, told("its worker had other bytes of this machine's files".to_owned()))?;
        }
        let said = lock(&self.said);
        match basis.refused.iter().find(|name| said.refused.peek(name).is_none()) {
            Some(_) => Err(told("its worker was refused what nobody here has refused".to_owned())),
            None => Ok(()),
        }
    }
}

impl Exchange<'_> {
    /// Whether what is said to have come of the task counts: if its worker has signed that, and what it rests on is what this client has said.
    pub(crate) async fn accept(&self, exited: &Exited) -> Result<(), String> {
        let IsSigned(is_signed) = self.signed.accept()?;
        let launched = self.session.locks.seen.version.unwrap_or_default();
        match is_signed {
            true => self.session.daemon.server.check((&self.session.plan.view, launched), exited).await,
            false => Ok(()),
        }
    }
}

fn told(why: impl std::fmt::Display) -> String {
    format!("the result does not count: {why}")
}

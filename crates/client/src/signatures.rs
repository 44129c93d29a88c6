//! Signatures at a client: a launch is signed once, here, and what comes of it is checked once, here, before anything is committed.

use base::NodeId;
use std::path::Path;
use std::sync::Arc;
use wire::message::{Exited, Launch, Placed};
use wire::signed::{Claim, NotSigned, Peers, Seals, Statement, Streams, sign_launch};
use wire::{Joined, Key, convert, versions};

/// What this client signs with, and which workers sign.
#[derive(Debug)]
pub(crate) struct Signatures {
    key: Key,
    workers: Peers,
    seals: Seals,
}

/// A launch whose result is to come.
#[derive(Debug)]
pub(crate) struct Signed {
    signatures: Arc<Signatures>,
    statement: Statement,
    /// Spoken with the hub.
    version: u32,
    said: Streams,
    worker: Option<(NodeId, String)>,
    /// Who has signed that, if anybody has.
    signer: Result<Option<NodeId>, NotSigned>,
}

/// Whether a result that counts is signed, or is of a worker of an earlier version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IsSigned(pub bool);

impl Signatures {
    /// By this key. Which workers sign is kept in `known`; `is_required`: results without a signature are not committed.
    pub fn new(key: Key, known: Option<&Path>, is_required: bool) -> Arc<Self> {
        Arc::new(Self { seals: Seals::new(key.clone()), key, workers: Peers::new(known, is_required) })
    }

    /// Signs a launch that is about to be sent over this connection. What comes of it is awaited.
    pub fn sign(self: &Arc<Self>, joined: &Joined, mut launch: Launch) -> (Launch, Signed) {
        let statement = sign_launch(&self.key, joined.connection.peer(), &mut launch);
        if !versions::has_signatures(versions::own()) {
            launch.signature.clear();
        } else if launch.place.is_none() {
            // What comes of a job is checked by whoever then is the daemon, which may have heard nobody yet.
            launch.seals = self.seals.recent(&statement, if joined.connection.is_far() { 1 } else { usize::MAX });
        }
        let signed = Signed {
            signatures: self.clone(),
            statement,
            version: joined.welcome.version,
            said: Streams::default(),
            worker: None,
            signer: Ok(None),
        };
        (launch, signed)
    }

    /// Whether what is said to have come of a launch counts, by who has signed that: if somebody has, what it rests on is said as well, and is
    /// to be checked. `worker`: who had it, if that is known, and its name for people.
    ///
    /// # Errors
    /// Why not, for a person.
    pub fn accept(
        &self,
        signer: Result<Option<NodeId>, NotSigned>,
        (worker, name): (Option<NodeId>, &str),
        version: u32,
    ) -> Result<IsSigned, String> {
        if !versions::has_signatures(versions::own()) {
            return Ok(IsSigned(false));
        }
        let is_signed = IsSigned(matches!(signer, Ok(Some(_))));
        let accepted = signer.and_then(|signer| self.workers.accept(signer, worker, version));
        accepted.map(|()| is_signed).map_err(|error| {
            tracing::warn!(worker = name, %error, "a result is not taken");
            format!("the result is not signed by worker {name}: {error}")
        })
    }
}

impl Signed {
    /// What its client has said with it.
    pub fn statement(&self) -> Statement {
        self.statement
    }

    /// It has a place.
    pub fn placed(&mut self, placed: &Placed) {
        self.worker = convert::digest(&placed.worker).ok().map(|node| (NodeId(node), placed.name.clone()));
    }

    /// It has said more on one of its [`Streams`].
    pub fn said(&self, stream: usize, bytes: &[u8]) {
        self.said.add(stream, bytes);
    }

    /// The command has ended so, and has said all that it says.
    pub fn ended(&mut self, exited: &Exited) {
        let worker = self.worker.as_ref().map(|(node, _)| *node);
        let claim = Claim::of_result(exited, &self.statement, &self.said, worker);
        let signer = self.signatures.seals.check(&claim, &exited.seal);
        self.signer = signer.map(|signer| signer.map(|signer| signer.node));
    }

    /// Whether this is what its worker says.
    ///
    /// # Errors
    /// Why not, for a person.
    pub fn accept(&self) -> Result<IsSigned, String> {
        let (worker, name) = self.worker.as_ref().map_or((None, "that has it"), |(node, name)| (Some(*node), name));
        self.signatures.accept(self.signer.clone(), (worker, name), self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Digest;

    #[test]
    fn only_what_its_worker_signed_is_a_result() {
        let (worker, other) = (Key::generate(), Key::generate());
        let signatures = Signatures::new(Key::generate(), None, false);
        let statement = Statement::from_digest(Digest::of(b"a launch"));
        let mut said = Streams::default();
        let mut exited = Exited { code: 1, ..Exited::default() };
        let check = |exited: &Exited, said: &Streams, key: &Key| {
            let signer = Claim::of_result(exited, &statement, said, Some(key.node())).check();
            signatures.accept(signer, (Some(key.node()), "w0"), versions::NEWEST)
        };
        check(&exited, &said, &worker).expect("it may be of the version before");
        said = Streams::default();
        said.add(Streams::STDOUT, b"said");
        exited.signature = Statement::of_result(&statement, &said, &exited).signed_by(&worker);
        check(&exited, &said, &worker).expect("it is its own");
        let why = check(&Exited { code: 0, ..exited.clone() }, &said, &worker).expect_err("changed");
        assert!(why.starts_with("the result is not signed by worker w0: "), "{why}");
        check(&exited, &Streams::default(), &worker).expect_err("it said something else");
        check(&exited, &said, &other).expect_err("another's");
        exited.signature.clear();
        check(&exited, &said, &worker).expect_err("it signs: somebody took it away");
        check(&exited, &said, &other).expect("of whom that is not known");
        let strict = Signatures::new(Key::generate(), None, true);
        let worker = (Some(other.node()), "w1");
        strict.accept(Ok(None), worker, versions::NEWEST - 1).expect_err("all must sign");
    }
}

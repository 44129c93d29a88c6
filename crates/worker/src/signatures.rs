//! Signatures at a worker: a launch is checked once, here, before anything of it runs, and a result is signed once, here.

use base::{NodeId, Time};
use bytes::Bytes;
use std::path::Path;
use wire::message::{Exited, Failed, FailedKind, Launch};
use wire::signed::{Begun, Claim, NotNew, NotSigned, Parties, Peers, Seals, Signer, Statement, Streams};
use wire::{Joined, Key, now_nanos, versions};

/// What this worker signs with, and what it knows of those who sign.
#[derive(Debug)]
pub struct Signatures {
    key: Key,
    clients: Peers,
    seals: Seals,
    begun: Begun,
}

/// A launch that says whose it is.
#[derive(Debug)]
pub(crate) struct Claimed {
    parties: Parties,
    statement: Statement,
    task: Bytes,
    launched: Time,
    /// Spoken with the hub.
    version: u32,
    /// Who has signed it, if anybody has.
    signer: Option<Signer>,
}

/// A launch that may begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admitted {
    statement: Statement,
    /// Whose seal it has.
    sealed_by: Option<NodeId>,
}

fn refused(task: &[u8], why: &Refused) -> Failed {
    tracing::warn!(task = base::digest::hex(task), %why, "a launch is refused");
    FailedKind::Trouble.because(format!("its worker refuses it: {why}"))
}

/// Why a launch is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Refused {
    #[error("the launch does not count: {0}")]
    NotSigned(#[from] NotSigned),
    #[error("the launch may not begin: {0}")]
    NotNew(#[from] NotNew),
}

impl Signatures {
    /// By this key. Which clients sign is kept in `known`; `is_required`: launches without a signature are refused.
    pub fn new(key: Key, known: Option<&Path>, is_required: bool) -> Self {
        Self {
            seals: Seals::new(key.clone()),
            key,
            clients: Peers::new(known, is_required),
            begun: Begun::new(Time(now_nanos())),
        }
    }

    /// Checks a launch's signature.
    pub(crate) fn claim(&self, launch: &Launch, joined: &Joined) -> Result<Claimed, Failed> {
        let claimed = self.claimed(launch, joined.connection.peer(), joined.welcome.version);
        claimed.map_err(|error| refused(launch.task.as_ref(), &error.into()))
    }

    fn claimed(&self, launch: &Launch, hub: NodeId, version: u32) -> Result<Claimed, NotSigned> {
        let (parties, claim) = Claim::of_launch(launch, hub)?;
        let (task, launched) = (launch.task.clone(), Time(launch.launched));
        let signer = self.seals.check(&claim, &launch.seals)?;
        Ok(Claimed { parties, statement: claim.statement, task, launched, version, signer })
    }

    /// Lets a launch begin if its client has signed it, and if it begins here for the first time. Nothing of it runs before. Another worker,
    /// or the client's own machine, may do better: that is for the client to decide, who is told why.
    pub(crate) fn admit(&self, claimed: &Claimed) -> Result<Admitted, Failed> {
        let begins = self.let_begin(claimed, Time(now_nanos()));
        let sealed_by = claimed.signer.filter(|signer| signer.has_sealed).map(|signer| signer.node);
        let admitted = Admitted { statement: claimed.statement, sealed_by };
        begins.map(|()| admitted).map_err(|why| refused(&claimed.task, &why))
    }

    fn let_begin(&self, claimed: &Claimed, now: Time) -> Result<(), Refused> {
        let Claimed { parties, statement, launched, version, signer, .. } = claimed;
        let signer = signer.map(|signer| signer.node);
        self.clients.accept(signer, Some(parties.client), *version)?;
        signer.map_or(Ok(()), |client| Ok(self.begun.begin(client, *statement, *launched, now)?))
    }

    /// Seals what came of a launch, or signs it.
    pub(crate) fn sign(&self, launch: &Admitted, streams: &Streams, exited: &mut Exited) {
        if !versions::has_signatures(versions::own()) {
            return;
        }
        let statement = Statement::of_result(&launch.statement, streams, exited);
        match launch.sealed_by.and_then(|client| self.seals.seal(client, &statement)) {
            Some(seal) => exited.seal = seal,
            None => exited.signature = statement.signed_by(&self.key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Digest;
    use wire::signed::sign_launch;

    const HUB: NodeId = NodeId(Digest([7; 32]));

    /// A launch that its client has signed at this time.
    fn launch(client: &Key, launched: i64) -> Launch {
        let mut launch = Launch { task: Bytes::from_static(&[1; 16]), launched, ..Launch::default() };
        sign_launch(client, HUB, &mut launch);
        Launch { client: [&client.node().0.0[..], &[0; 8]].concat().into(), ..launch }
    }

    fn check(signatures: &Signatures, launch: &Launch, version: u32, now: i64) -> Result<(), Refused> {
        signatures.let_begin(&signatures.claimed(launch, HUB, version)?, Time(now))
    }

    #[test]
    fn only_what_a_client_signed_begins_and_once() {
        let (now, client) = (now_nanos(), Key::generate());
        let signatures = Signatures::new(Key::generate(), None, false);
        let check = |launch: &Launch| check(&signatures, launch, versions::NEWEST, now);
        let good = launch(&client, now);
        let unsigned = Launch { signature: Bytes::new(), ..good.clone() };
        assert_eq!(check(&unsigned), Ok(()), "it may be of the version before");
        assert_eq!(check(&Launch { attempt: 2, ..good.clone() }), Err(NotSigned::Wrong.into()));
        assert_eq!(check(&good), Ok(()));
        assert_eq!(check(&good), Err(NotNew::Begun.into()), "sent once more");
        assert_eq!(check(&launch(&client, now + 1)), Ok(()), "signed once more");
        assert_eq!(check(&launch(&client, 0)), Err(NotNew::Expired.into()));
        assert_eq!(check(&unsigned), Err(NotSigned::Missing(client.node()).into()), "it signs: somebody took it away");
        let other = Key::generate();
        let stolen = Launch { client: good.client.clone(), ..launch(&other, now) };
        assert_eq!(check(&stolen), Err(NotSigned::Wrong.into()));
    }

    #[test]
    fn a_worker_may_ask_for_signatures() {
        let (now, client) = (now_nanos(), Key::generate());
        let signatures = Signatures::new(Key::generate(), None, true);
        let unsigned = Launch { signature: Bytes::new(), ..launch(&client, now) };
        let refused = check(&signatures, &unsigned, versions::NEWEST - 1, now);
        assert_eq!(refused, Err(NotSigned::Required.into()));
    }
}

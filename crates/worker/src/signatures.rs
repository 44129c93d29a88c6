//! Signatures at a worker: a launch is checked once, here, before anything of it is used, and a result is signed once, here.

use base::Time;
use wire::message::{Exited, Failed, FailedKind, Launch};
use wire::signed::{Begun, NotNew, NotSigned, Peers, Statement, Streams, check_launch, sign_result};
use wire::{Joined, Key, now_nanos, versions};

/// What this worker signs with, and what it knows of those who sign.
#[derive(Debug)]
pub struct Signatures {
    key: Key,
    clients: Peers,
    begun: Begun,
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
    /// By this key. `is_required`: launches without a signature are refused.
    pub fn new(key: Key, is_required: bool) -> Self {
        Self { key, clients: Peers::new(is_required), begun: Begun::new(Time(now_nanos())) }
    }

    /// What a launch says, if its client says that, and if it begins here for the first time. Another worker, or the client's own machine,
    /// may do better: that is for the client to decide, who is told why.
    pub(crate) fn admit(&self, launch: &Launch, joined: &Joined) -> Result<Statement, Failed> {
        let (hub, version) = (joined.connection.peer(), joined.welcome.version);
        self.check(launch, hub, version, Time(now_nanos())).map_err(|refused| {
            let task = base::digest::hex(&launch.task);
            tracing::warn!(task, client = base::digest::hex(&launch.client), %hub, why = %refused, "a launch is refused");
            FailedKind::Trouble.because(format!("its worker refuses it: {refused}"))
        })
    }

    fn check(&self, launch: &Launch, hub: base::NodeId, version: u32, now: Time) -> Result<Statement, Refused> {
        let (parties, statement, is_signed) = check_launch(launch, hub)?;
        if is_signed {
            self.clients.has_signed(parties.client);
            self.begun.begin(parties.client, statement, Time(launch.launched), now)?;
        } else {
            self.clients.may_be_unsigned(Some(parties.client), version)?;
        }
        Ok(statement)
    }

    /// Signs what came of a launch.
    pub(crate) fn sign(&self, launch: &Statement, streams: &Streams, exited: &mut Exited) {
        if versions::has_signatures(versions::own()) {
            sign_result(&self.key, launch, streams, exited);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Digest, NodeId};
    use bytes::Bytes;
    use wire::signed::sign_launch;

    const HUB: NodeId = NodeId(Digest([7; 32]));

    /// A launch that its client has signed at this time.
    fn launch(client: &Key, launched: i64) -> Launch {
        let mut launch = Launch { task: Bytes::from_static(&[1; 16]), launched, ..Launch::default() };
        sign_launch(client, HUB, &mut launch);
        Launch { client: [&client.node().0.0[..], &[0; 8]].concat().into(), ..launch }
    }

    #[test]
    fn only_what_a_client_signed_begins_and_once() {
        let (now, client) = (now_nanos(), Key::generate());
        let signatures = Signatures::new(Key::generate(), false);
        let check = |launch: &Launch| signatures.check(launch, HUB, versions::NEWEST, Time(now)).map(drop);
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
        let signatures = Signatures::new(Key::generate(), true);
        let unsigned = Launch { signature: Bytes::new(), ..launch(&client, now) };
        let refused = signatures.check(&unsigned, HUB, versions::NEWEST - 1, Time(now));
        assert_eq!(refused, Err(NotSigned::Required.into()));
    }
}

//! Contents that go to the hub apart from the launch that needs them: ahead of it, while this client still looks at files; or behind
//! it, while the task starts.

use crate::earlier::Outgoing;
use base::Digest;
use bytes::Bytes;
use std::sync::OnceLock;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use wire::message::{Coming, Object, OpenKind, digest_bytes};
use wire::{Connection, Receiver, Sender, Turn};

/// Most objects that wait for the link.
const WAITING_MAX: usize = 256;
/// Most objects that are packed before they can be sent.
const PACKED_MAX: usize = 8;

/// The stream of one launch, opened at the first object that goes ahead.
pub struct Ahead {
    connection: Connection,
    started: OnceLock<Started>,
}

struct Started {
    queue: mpsc::Sender<Object>,
    sending: JoinHandle<Option<(Sender, Receiver)>>,
}

impl Ahead {
    /// Nothing has gone ahead yet.
    pub fn new(connection: Connection) -> Self {
        Self { connection, started: OnceLock::new() }
    }

    /// Sends an object, or returns false if too many wait. Must be called within a tokio runtime.
    pub fn send(&self, digest: Digest, bytes: Bytes) -> bool {
        let start = || {
            let (queue, waiting) = mpsc::channel(WAITING_MAX);
            Started { queue, sending: tokio::spawn(send_all(self.connection.clone(), waiting)) }
        };
        self.started.get_or_init(start).queue.try_send(Object::new(digest, bytes)).is_ok()
    }

    /// The stream on which objects went, and on which the launch must follow; `None` if none did.
    pub async fn finish(self) -> Option<(Sender, Receiver)> {
        let Started { queue, sending } = self.started.into_inner()?;
        drop(queue);
        sending.await.ok().flatten()
    }
}

/// Contents that go behind a launch, which says that they are on their way.
pub struct Behind {
    /// For the launch.
    pub number: u64,
    sender: Sender,
    outgoing: Vec<Outgoing>,
}

impl Behind {
    /// Says what is on its way; `None` if that is nothing, or if the connection has ended.
    pub async fn announce(connection: &Connection, outgoing: Vec<Outgoing>) -> Option<Self> {
        if outgoing.is_empty() {
            return None;
        }
        let number = rand::random();
        let digests = outgoing.iter().map(|outgoing| digest_bytes(&outgoing.digest)).collect();
        let announced = OpenKind::Coming(Coming { number, digests });
        let (sender, _) = connection.open(announced).await.ok()?;
        Some(Self { number, sender, outgoing })
    }

    /// Packs and sends, in the background, after what was asked for.
    pub fn send(self) {
        let Self { mut sender, outgoing, .. } = self;
        sender.set_turn(Turn::Unasked);
        let (queue, mut packed) = mpsc::channel(PACKED_MAX);
        tokio::task::spawn_blocking(move || {
            Outgoing::pack_all(outgoing).try_for_each(|object| queue.blocking_send(object).ok())
        });
        tokio::spawn(async move {
            while let Some(object) = packed.recv().await {
                sender.give(object).await.ok()?;
            }
            sender.finish();
            sender.stopped().await;
            Some(())
        });
    }
}

async fn send_all(connection: Connection, mut waiting: mpsc::Receiver<Object>) -> Option<(Sender, Receiver)> {
    let (mut sender, receiver) = connection.open_control().await.ok()?;
    while let Some(object) = waiting.recv().await {
        sender.give(object).await.ok()?;
    }
    Some((sender, receiver))
}

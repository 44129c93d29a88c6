//! Contents that go to the hub ahead of the launch that needs them, while this client still looks at files.

use base::Digest;
use bytes::Bytes;
use std::sync::OnceLock;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use wire::message::Object;
use wire::{Connection, Receiver, Sender};

/// Most objects that wait for the link.
const WAITING_MAX: usize = 256;

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

async fn send_all(connection: Connection, mut waiting: mpsc::Receiver<Object>) -> Option<(Sender, Receiver)> {
    let (mut sender, receiver) = connection.open_control().await.ok()?;
    while let Some(object) = waiting.recv().await {
        sender.give(object).await.ok()?;
    }
    Some((sender, receiver))
}

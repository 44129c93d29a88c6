//! The datagrams of a task: each way has a socket of the worker's, as a router would have it, until it is idle.

use super::packets::Way;
use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

/// Most ways at a time; what goes further ones is lost.
const WAYS_MAX: usize = 128;
/// Datagrams that wait, of each way and of all answers; more are lost.
const WAITING: usize = 16;
const ANSWERS_WAITING: usize = 64;
/// A way on which nothing goes for so long is given up.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Longest datagram.
const BYTES_MAX: usize = 64 << 10;

/// An answer, and on which way it goes back.
type Answer = (Way, Vec<u8>);

/// All of a task.
pub struct Datagrams {
    ways: HashMap<Way, mpsc::Sender<Vec<u8>>>,
    answers: mpsc::Receiver<Answer>,
    answer: mpsc::Sender<Answer>,
}

impl Default for Datagrams {
    fn default() -> Self {
        let (answer, answers) = mpsc::channel(ANSWERS_WAITING);
        Self { ways: HashMap::new(), answers, answer }
    }
}

impl Datagrams {
    /// Whether nothing has gone this way lately.
    pub fn is_new(&self, way: Way) -> bool {
        self.ways.get(&way).is_none_or(mpsc::Sender::is_closed)
    }

    /// Passes on what the task sends; `destination` says where to, if it may go there.
    pub fn pass(&mut self, way: Way, payload: Vec<u8>, destination: impl FnOnce() -> Option<SocketAddr>) {
        if self.is_new(way) {
            self.ways.retain(|_, sender| !sender.is_closed());
            if self.ways.len() >= WAYS_MAX {
                return;
            }
            let Some(to) = destination() else { return };
            let (sender, queue) = mpsc::channel(WAITING);
            tokio::spawn(carry(way, to, queue, self.answer.clone()));
            self.ways.insert(way, sender);
        }
        if let Some(sender) = self.ways.get(&way) {
            let _ = sender.try_send(payload);
        }
    }

    /// The next answer.
    pub async fn next(&mut self) -> Option<Answer> {
        self.answers.recv().await
    }
}

async fn carry(way: Way, to: SocketAddr, mut queue: mpsc::Receiver<Vec<u8>>, answer: mpsc::Sender<Answer>) {
    let any: SocketAddr =
        if to.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
    let Ok(socket) = UdpSocket::bind(any).await else { return };
    if socket.connect(to).await.is_err() {
        return;
    }
    let mut buffer = vec![0; BYTES_MAX];
    loop {
        tokio::select! {
            sent = queue.recv() => match sent {
                // What cannot be sent is lost.
                Some(payload) => drop(socket.send(&payload).await),
                None => return,
            },
            received = socket.recv(&mut buffer) => {
                if let Ok(count) = received {
                    let _ = answer.try_send((way, buffer[..count].to_vec()));
                }
            }
            () = tokio::time::sleep(IDLE_MAX) => return,
        }
    }
}

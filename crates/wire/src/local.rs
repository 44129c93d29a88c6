//! A connection between two parts of one process: the streams and messages of any other, handed over in memory instead of
//! being encrypted, sent to this machine, and decrypted.

use crate::connection::WireError;
use base::NodeId;
use bytes::Bytes;
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc, watch};

/// Streams that were opened and not yet taken.
const STREAMS_WAITING: usize = 1024;
/// Messages of one stream, each of some hundred kilobytes at most as a rule, that wait for their reader.
const MESSAGES_WAITING: usize = 16;

/// One end.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    side: Arc<Side>,
}

#[derive(Debug)]
struct Side {
    peer: NodeId,
    ended: Ended,
    opened: mpsc::Sender<(Outlet, Inlet)>,
    arriving: Mutex<mpsc::Receiver<(Outlet, Inlet)>>,
}

/// Why the connection ended, once it has: known to both ends and all their streams.
#[derive(Clone, Debug)]
struct Ended(Arc<watch::Sender<Option<String>>>);

/// The sending half of a stream.
#[derive(Debug)]
pub(crate) struct Outlet {
    /// None once nothing more follows.
    messages: Option<mpsc::Sender<Bytes>>,
    ended: Ended,
}

/// The receiving half of a stream.
#[derive(Debug)]
pub(crate) struct Inlet {
    messages: mpsc::Receiver<Bytes>,
    ended: Ended,
}

/// The end that `near` holds and the end that `far` holds.
pub(crate) fn pair(near: NodeId, far: NodeId) -> (Local, Local) {
    let ended = Ended(Arc::new(watch::Sender::new(None)));
    let (to_far, from_near) = mpsc::channel(STREAMS_WAITING);
    let (to_near, from_far) = mpsc::channel(STREAMS_WAITING);
    let side = |peer, opened, arriving| {
        let side = Side { peer, ended: ended.clone(), opened, arriving: Mutex::new(arriving) };
        Local { side: Arc::new(side) }
    };
    (side(far, to_far, from_far), side(near, to_near, from_near))
}

impl Local {
    pub fn peer(&self) -> NodeId {
        self.side.peer
    }

    pub async fn open(&self) -> Result<(Outlet, Inlet), WireError> {
        let ended = &self.side.ended;
        let (to_them, from_us) = mpsc::channel(MESSAGES_WAITING);
        let (to_us, from_them) = mpsc::channel(MESSAGES_WAITING);
        let ours = (Outlet::new(to_them, ended), Inlet { messages: from_them, ended: ended.clone() });
        let theirs = (Outlet::new(to_us, ended), Inlet { messages: from_us, ended: ended.clone() });
        ended.unless(self.side.opened.send(theirs)).await?.map_err(|_| lost("the other end is gone"))?;
        Ok(ours)
    }

    pub async fn accept(&self) -> Result<(Outlet, Inlet), WireError> {
        let mut arriving = self.side.arriving.lock().await;
        self.side.ended.unless(arriving.recv()).await?.ok_or_else(|| lost("the other end is gone"))
    }

    pub fn close(&self, why: &str) {
        self.side.ended.end(why);
    }

    pub async fn closed(&self) -> String {
        self.side.ended.wait().await
    }

    pub fn is_closed(&self) -> bool {
        self.side.ended.0.borrow().is_some()
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.ended.end("the other end is gone");
    }
}

impl Ended {
    /// The first reason stands.
    fn end(&self, why: &str) {
        self.0.send_if_modified(|ended| {
            let is_first = ended.is_none();
            ended.get_or_insert_with(|| why.to_owned());
            is_first
        });
    }

    async fn wait(&self) -> String {
        let mut ended = self.0.subscribe();
        let why = ended.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        why.unwrap_or_default()
    }

    /// What `work` gives, unless the connection ends first.
    async fn unless<T>(&self, work: impl Future<Output = T>) -> Result<T, WireError> {
        tokio::select! {
            biased;
            why = self.wait() => Err(lost(&why)),
            done = work => Ok(done),
        }
    }
}

impl Outlet {
    fn new(messages: mpsc::Sender<Bytes>, ended: &Ended) -> Self {
        Self { messages: Some(messages), ended: ended.clone() }
    }

    pub async fn send(&mut self, message: Bytes) -> Result<(), WireError> {
        let Some(messages) = &self.messages else { return Err(lost("the stream is finished")) };
        let sent = self.ended.unless(messages.send(message)).await?;
        sent.map_err(|_| lost("the other end reads no more"))
    }

    pub fn finish(&mut self) {
        self.messages = None;
    }
}

impl Inlet {
    pub async fn next(&mut self) -> Result<Option<Bytes>, WireError> {
        self.ended.unless(self.messages.recv()).await
    }
}

fn lost(why: &str) -> WireError {
    WireError::Lost(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u8) -> NodeId {
        NodeId(base::Digest([number; 32]))
    }

    fn ends() -> (Local, Local) {
        pair(node(1), node(2))
    }

    #[tokio::test]
    async fn streams_go_both_ways_until_they_are_finished() {
        let (near, far) = ends();
        assert_eq!((near.peer(), far.peer()), (node(2), node(1)));
        for (from, to) in [(&near, &far), (&far, &near)] {
            let (mut out, mut back) = from.open().await.expect("opened");
            let (mut answer, mut question) = to.accept().await.expect("taken");
            out.send(Bytes::from_static(b"question")).await.expect("sent");
            out.finish();
            assert_eq!(question.next().await.expect("read").as_deref(), Some(&b"question"[..]));
            assert_eq!(question.next().await.expect("finished"), None);
            assert!(out.send(Bytes::new()).await.is_err());
            answer.send(Bytes::from_static(b"answer")).await.expect("sent");
            drop(answer);
            assert_eq!(back.next().await.expect("read").as_deref(), Some(&b"answer"[..]));
            assert_eq!(back.next().await.expect("finished"), None);
        }
    }

    #[tokio::test]
    async fn a_reader_that_is_gone_is_an_error() {
        let (near, far) = ends();
        let (mut out, _back) = near.open().await.expect("opened");
        drop(far.accept().await.expect("taken"));
        assert!(out.send(Bytes::new()).await.is_err());
    }

    #[tokio::test]
    async fn who_waits_learns_that_the_connection_ended() {
        let (near, far) = ends();
        let (mut out, mut back) = near.open().await.expect("opened");
        let taken = far.accept().await.expect("taken");
        for _ in 0..MESSAGES_WAITING {
            out.send(Bytes::new()).await.expect("there is room");
        }
        let ending = async {
            tokio::task::yield_now().await;
            far.close("enough");
            far.close("once more");
        };
        let (sent, read, accepted, ()) = tokio::join!(out.send(Bytes::new()), back.next(), near.accept(), ending);
        assert!(sent.is_err() && read.is_err() && accepted.is_err());
        assert!(near.is_closed() && near.open().await.is_err());
        assert_eq!(near.closed().await, "enough");
        drop(taken);
    }

    #[tokio::test]
    async fn an_end_that_is_dropped_ends_the_connection() {
        let (near, far) = ends();
        let again = far.clone();
        drop(far);
        assert!(!near.is_closed());
        drop(again);
        assert!(near.is_closed());
    }
}

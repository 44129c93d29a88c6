//! One caller at the door: its messages, and the descriptors that came with the first.

use base::codec::Encode;
use base::door::{self, Reply, Request};
use rustix::fd::OwnedFd;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::{self, IoSliceMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

/// What a caller may still say.
pub struct Requests(From);

enum From {
    Door { stream: OwnedReadHalf, received: Vec<u8> },
    Within(mpsc::Receiver<Request>),
}

/// Where a caller is answered.
pub struct Replies(To);

enum To {
    Door(OwnedWriteHalf),
    Within(mpsc::Sender<Reply>),
}

/// A caller within the daemon.
pub struct Within {
    /// What it says; it is gone when this is dropped.
    pub requests: mpsc::Sender<Request>,
    /// What it is told.
    pub replies: mpsc::Receiver<Reply>,
}

/// Messages that wait between a caller within the daemon and who serves it.
const WAITING_MAX: usize = 64;

/// A caller within the daemon, and its other side.
pub fn within() -> (Within, Requests, Replies) {
    let (requests, said) = mpsc::channel(WAITING_MAX);
    let (answers, replies) = mpsc::channel(WAITING_MAX);
    (Within { requests, replies }, Requests(From::Within(said)), Replies(To::Within(answers)))
}

/// A caller's first message, with the descriptors that came with it.
pub struct First {
    /// The message.
    pub request: Request,
    /// Descriptors 0, 1 and 2 of a caller that wants to run a command.
    pub descriptors: Vec<OwnedFd>,
    /// What it says later.
    pub requests: Requests,
    /// Where it is answered.
    pub replies: Replies,
}

/// Reads a caller's first message. `InvalidData` if it is of another version or malformed.
pub async fn receive_first(stream: UnixStream) -> io::Result<First> {
    let mut received = Vec::new();
    let mut descriptors = Vec::new();
    let request = loop {
        if let Some(message) = take(&mut received)? {
            break message;
        }
        stream.ready(Interest::READABLE).await?;
        match stream.try_io(Interest::READABLE, || receive_some(&stream, &mut received, &mut descriptors)) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    };
    let (read, write) = stream.into_split();
    Ok(First {
        request,
        descriptors,
        requests: Requests(From::Door { stream: read, received }),
        replies: Replies(To::Door(write)),
    })
}

fn receive_some(stream: &UnixStream, received: &mut Vec<u8>, descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut bytes = [0; 64 << 10];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(stream, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    received.extend_from_slice(&bytes[..got.bytes]);
    Ok(got.bytes)
}

fn take(received: &mut Vec<u8>) -> io::Result<Option<Request>> {
    let invalid = |error: base::codec::Malformed| io::Error::new(io::ErrorKind::InvalidData, error.to_string());
    match door::take_frame(received).map_err(invalid)? {
        Some(message) => Request::from_bytes(&message).map(Some).map_err(invalid),
        None => Ok(None),
    }
}

impl Requests {
    /// The next message; `None` once the caller is gone. Safe to cancel.
    pub async fn next(&mut self) -> Option<Request> {
        let (stream, received) = match &mut self.0 {
            From::Within(said) => return said.recv().await,
            From::Door { stream, received } => (stream, received),
        };
        loop {
            match take(received) {
                Ok(Some(request)) => return Some(request),
                Ok(None) => {}
                Err(_) => return None,
            }
            if stream.read_buf(received).await.ok()? == 0 {
                return None;
            }
        }
    }
}

impl Replies {
    /// The caller's process, as long as it is connected; `None` if it cannot be seen from here.
    pub fn process(&self) -> Option<OwnedFd> {
        let To::Door(stream) = &self.0 else { return None };
        let id = stream.as_ref().peer_cred().ok()?.pid()?;
        pidfd_open(Pid::from_raw(id)?, PidfdFlags::NONBLOCK).ok()
    }

    /// Says something to the caller; an error if it is gone.
    pub async fn send(&mut self, reply: &Reply) -> io::Result<()> {
        let stream = match &mut self.0 {
            To::Within(answers) => {
                return answers.send(reply.clone()).await.map_err(|_| io::ErrorKind::BrokenPipe.into());
            }
            To::Door(stream) => stream,
        };
        let frame =
            door::frame(reply).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        stream.write_all(&frame).await
    }
}

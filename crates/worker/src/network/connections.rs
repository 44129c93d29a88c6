//! The TCP connections of a task: each ends in the stack, and goes on by a socket of the worker's.
//!
//! The task's handshake waits until that socket is connected, so that what is refused there is refused to the task.

use super::packets::Way;
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Notify, mpsc, oneshot};

/// Most at a time; further ones are refused.
const CONNECTIONS_MAX: usize = 256;
/// What waits in each direction, bytes: with chunks on their way, 1 MiB in all.
const BUFFER_BYTES: usize = 256 << 10;
/// Bytes that are passed on together, and how many such chunks wait.
const CHUNK_BYTES: usize = 64 << 10;
const CHUNKS_WAITING: usize = 2;
/// How long the other end may take to answer, and to take what is sent.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(30);
const WRITE_TIME_MAX: Duration = Duration::from_secs(300);
/// Type of service: lower effort (RFC 8622), for the machine's owner comes first.
const LOWER_EFFORT: u8 = 1 << 2;

/// All of a task.
pub struct Connections {
    sockets: SocketSet<'static>,
    open: HashMap<Way, Connection>,
    wake: Arc<Notify>,
}

struct Connection {
    handle: SocketHandle,
    /// Whether the other end has answered, until that is known.
    opened: Option<oneshot::Receiver<bool>>,
    /// To the other end; none once the task has said all.
    to_host: Option<mpsc::Sender<Vec<u8>>>,
    from_host: mpsc::Receiver<Vec<u8>>,
    /// What the stack had no room for.
    rest: Vec<u8>,
    /// It was broken off there.
    is_broken: Arc<AtomicBool>,
}

impl Connections {
    pub fn new(wake: Arc<Notify>) -> Self {
        Self { sockets: SocketSet::new(Vec::new()), open: HashMap::new(), wake }
    }

    /// What the stack works on.
    pub fn sockets(&self) -> &SocketSet<'static> {
        &self.sockets
    }

    /// The same, to be changed.
    pub fn sockets_mut(&mut self) -> &mut SocketSet<'static> {
        &mut self.sockets
    }

    /// The task opens a connection, which goes on to this place.
    pub fn open(&mut self, way: Way, to: SocketAddr) {
        if self.open.len() >= CONNECTIONS_MAX || self.open.contains_key(&way) {
            return;
        }
        let buffer = || SocketBuffer::new(vec![0; BUFFER_BYTES]);
        let mut socket = Socket::new(buffer(), buffer());
        socket.pause_synack(true);
        // It waits on the task's own machine: nothing is gained by waiting for more.
        socket.set_nagle_enabled(false);
        socket.set_ack_delay(None);
        if socket.listen((*way.to.ip(), way.to.port())).is_err() {
            return;
        }
        let (said, opened) = oneshot::channel();
        let (to_host, from_task) = mpsc::channel(CHUNKS_WAITING);
        let (to_task, from_host) = mpsc::channel(CHUNKS_WAITING);
        let is_broken = Arc::new(AtomicBool::new(false));
        let outside = Outside { to_task, is_broken: is_broken.clone(), wake: self.wake.clone() };
        tokio::spawn(outside.run(to, said, from_task));
        let handle = self.sockets.add(socket);
        let connection =
            Connection { handle, opened: Some(opened), to_host: Some(to_host), from_host, rest: Vec::new(), is_broken };
        self.open.insert(way, connection);
    }

    /// Passes on what has come from either side.
    pub fn pass(&mut self) {
        let sockets = &mut self.sockets;
        self.open.retain(|_, connection| {
            let goes_on = connection.pass(sockets.get_mut::<Socket<'_>>(connection.handle));
            if !goes_on {
                sockets.remove(connection.handle);
            }
            goes_on
        });
    }
}

impl Connection {
    /// Whether it goes on.
    fn pass(&mut self, socket: &mut Socket<'_>) -> bool {
        if let Some(opened) = &mut self.opened {
            match opened.try_recv() {
                Ok(true) => socket.pause_synack(false),
                Err(oneshot::error::TryRecvError::Empty) => return socket.is_open(),
                // The stack refuses the task once it is asked to.
                Ok(false) | Err(oneshot::error::TryRecvError::Closed) => socket.abort(),
            }
            self.opened = None;
            return true;
        }
        self.pass_on(socket);
        // By now the stack has said what it had to say.
        if matches!(socket.state(), State::Closed | State::TimeWait) {
            let takes_more = self.to_host.as_ref().is_some_and(|to_host| !to_host.is_closed());
            return socket.can_recv() && takes_more;
        }
        match self.is_broken.load(Ordering::Acquire) {
            true => socket.abort(),
            false => self.pass_back(socket),
        }
        true
    }

    fn pass_on(&mut self, socket: &mut Socket<'_>) {
        let Some(to_host) = &self.to_host else { return };
        while socket.can_recv()
            && let Ok(room) = to_host.try_reserve()
        {
            let taken = socket.recv(|bytes| {
                let count = bytes.len().min(CHUNK_BYTES);
                (count, bytes[..count].to_vec())
            });
            match taken {
                Ok(chunk) => room.send(chunk),
                Err(_) => break,
            }
        }
        let has_begun = !matches!(socket.state(), State::Listen | State::SynReceived);
        if has_begun && !socket.may_recv() {
            self.to_host = None;
        }
    }

    fn pass_back(&mut self, socket: &mut Socket<'_>) {
        while socket.can_send() {
            if self.rest.is_empty() {
                match self.from_host.try_recv() {
                    Ok(chunk) => self.rest = chunk,
                    Err(mpsc::error::TryRecvError::Empty) => return,
                    // The other end has said all.
                    Err(mpsc::error::TryRecvError::Disconnected) => return socket.close(),
                }
            }
            let Ok(count) = socket.send_slice(&self.rest) else { return };
            self.rest.drain(..count);
        }
    }
}

/// The worker's end of a connection.
struct Outside {
    to_task: mpsc::Sender<Vec<u8>>,
    is_broken: Arc<AtomicBool>,
    wake: Arc<Notify>,
}

impl Outside {
    async fn run(self, to: SocketAddr, said: oneshot::Sender<bool>, from_task: mpsc::Receiver<Vec<u8>>) {
        let connected = tokio::time::timeout(CONNECT_TIME_MAX, connect(to)).await;
        let stream = connected.ok().and_then(Result::ok);
        let _ = said.send(stream.is_some());
        self.wake.notify_one();
        let Some(stream) = stream else { return };
        let Self { to_task, is_broken, wake } = self;
        let (reader, writer) = stream.into_split();
        let (read, written) = tokio::join!(read_all(reader, to_task, &wake), write_all(writer, from_task, &wake));
        if read.and(written).is_err() {
            is_broken.store(true, Ordering::Release);
            wake.notify_one();
        }
    }
}

async fn connect(to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = if to.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    if to.is_ipv4() {
        // A courtesy; whoever does not know it treats it as all others.
        let _ = rustix::net::sockopt::set_ip_tos(&socket, LOWER_EFFORT);
    }
    let stream = socket.connect(to).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Until the other end has said all, or nobody listens any more.
async fn read_all(mut reader: OwnedReadHalf, to_task: mpsc::Sender<Vec<u8>>, wake: &Notify) -> std::io::Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let count = tokio::select! {
            count = reader.read(&mut buffer) => count?,
            () = to_task.closed() => break,
        };
        if count == 0 || to_task.send(buffer[..count].to_vec()).await.is_err() {
            break;
        }
        wake.notify_one();
    }
    drop(to_task);
    wake.notify_one();
    Ok(())
}

/// Until the task has said all.
async fn write_all(
    mut writer: OwnedWriteHalf,
    mut from_task: mpsc::Receiver<Vec<u8>>,
    wake: &Notify,
) -> std::io::Result<()> {
    while let Some(chunk) = from_task.recv().await {
        wake.notify_one();
        tokio::time::timeout(WRITE_TIME_MAX, writer.write_all(&chunk)).await??;
    }
    writer.shutdown().await
}

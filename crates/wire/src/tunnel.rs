//! Datagrams through TLS over TCP, for networks that let no UDP pass.
//!
//! Each datagram is a frame: its length, 16 bits, and its bytes. What is inside is QUIC, with its own keys, checks and streams:
//! the TLS around it is what such networks expect to see, and shows both machines' keys before anything is passed on. When a tunnel
//! breaks the connections in it go on through the next one.

use crate::connection::{CONNECT_LIMIT, WireError};
use crate::junction::TunnelEnd;
use crate::key::{Key, node_of};
use crate::tls;
use base::NodeId;
use bytes::{Buf, BytesMut};
use rustix::net::sockopt;
use rustls::pki_types::ServerName;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// A tunnel in which nothing comes for this long is dead: connections in it are kept alive more often.
const SILENT_LIMIT: Duration = Duration::from_secs(60);
/// A tunnel that takes nothing for this long is dead.
const STALL_LIMIT: Duration = Duration::from_secs(20);
/// Bytes that are sent together.
const TOGETHER_BYTES: usize = 16 << 10;
/// Frames that are sent together.
const TOGETHER: usize = 32;

/// Why there is no tunnel.
#[derive(Debug)]
pub(crate) enum NoTunnel {
    /// Nobody listens there.
    Refused,
    /// Something else.
    Other(WireError),
}

/// Opens a tunnel to the machine at `address`, which must hold the key named `expected`, within [`CONNECT_LIMIT`].
pub(crate) async fn connect(
    key: &Key,
    address: SocketAddr,
    expected: NodeId,
) -> Result<client::TlsStream<TcpStream>, NoTunnel> {
    let failed = |why: String| NoTunnel::Other(WireError::Connect { address, why: format!("over TCP: {why}") });
    let config = tls::client_config(key, expected, tls::TUNNEL).map_err(|error| failed(error.to_string()))?;
    let connecting = async {
        let tcp = TcpStream::connect(address).await.map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => NoTunnel::Refused,
            _ => failed(error.to_string()),
        })?;
        set_up(&tcp);
        let name = ServerName::try_from("gleaner").expect("it is a name");
        TlsConnector::from(Arc::new(config)).connect(name, tcp).await.map_err(|error| failed(error.to_string()))
    };
    let connected = tokio::time::timeout(CONNECT_LIMIT, connecting).await;
    connected.unwrap_or_else(|_| Err(failed(format!("no answer within {} s", CONNECT_LIMIT.as_secs()))))
}

/// Does the accepting side's handshake, within [`CONNECT_LIMIT`]: the tunnel, and the key at its other end.
pub(crate) async fn accept(tls: TlsAcceptor, tcp: TcpStream) -> io::Result<(server::TlsStream<TcpStream>, NodeId)> {
    set_up(&tcp);
    let stream = tokio::time::timeout(CONNECT_LIMIT, tls.accept(tcp)).await.map_err(|_| io::ErrorKind::TimedOut)??;
    let (_, session) = stream.get_ref();
    let shown = session.peer_certificates().and_then(|shown| shown.first());
    let peer = shown.map(|shown| node_of(shown)).ok_or(io::ErrorKind::PermissionDenied)?;
    Ok((stream, peer))
}

fn set_up(tcp: &TcpStream) {
    // Without these it works less well.
    let _ = tcp.set_nodelay(true);
    let _ = sockopt::set_tcp_user_timeout(tcp, STALL_LIMIT.as_millis() as u32);
}

/// Carries datagrams both ways until the tunnel breaks, is replaced, or is silent for too long.
pub(crate) async fn carry(stream: impl AsyncRead + AsyncWrite, mut end: TunnelEnd) -> io::Result<()> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let (mut outgoing, mut waiting, mut is_flushed) = (BytesMut::new(), Vec::new(), true);
    let mut incoming = BytesMut::with_capacity(TOGETHER_BYTES);
    let silent = tokio::time::sleep(SILENT_LIMIT);
    tokio::pin!(silent);
    loop {
        let write = async {
            match outgoing.is_empty() {
                true => writer.flush().await.map(|()| 0),
                false => writer.write(&outgoing).await,
            }
        };
        tokio::select! {
            written = write, if !outgoing.is_empty() || !is_flushed => {
                is_flushed = outgoing.is_empty();
                outgoing.advance(written?);
            }
            // What cannot be written waits where it is bounded.
            count = end.outgoing.recv_many(&mut waiting, TOGETHER), if outgoing.len() < TOGETHER_BYTES => {
                if count == 0 {
                    return Ok(());
                }
                waiting.drain(..).for_each(|datagram| put_frame(&mut outgoing, &datagram));
            }
            read = reader.read_buf(&mut incoming) => {
                if read? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                silent.as_mut().reset(tokio::time::Instant::now() + SILENT_LIMIT);
                while let Some(datagram) = take_frame(&mut incoming) {
                    end.arrived(datagram.freeze());
                }
                incoming.reserve(TOGETHER_BYTES);
            }
            () = &mut silent => return Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

fn put_frame(outgoing: &mut BytesMut, datagram: &[u8]) {
    // No datagram is larger: UDP's own length has 16 bits.
    let Ok(length) = u16::try_from(datagram.len()) else { return };
    outgoing.extend_from_slice(&length.to_be_bytes());
    outgoing.extend_from_slice(datagram);
}

/// The next whole datagram, if it has come.
pub(crate) fn take_frame(incoming: &mut BytesMut) -> Option<BytesMut> {
    let length = u16::from_be_bytes(*incoming.first_chunk()?) as usize;
    if incoming.len() < 2 + length {
        return None;
    }
    incoming.advance(2);
    Some(incoming.split_to(length))
}

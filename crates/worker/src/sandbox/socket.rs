//! Packets with descriptors over a `SOCK_SEQPACKET` Unix socket: orders to the zygote, and what a guest's init tells.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, SocketFlags,
    SocketType,
};

use super::sys;

/// Longest packet in bytes; what is longer travels in a memory file.
pub const PACKET_BYTES_MAX: usize = 64 << 10;
/// Most descriptors beside one packet.
pub const DESCRIPTORS_MAX: usize = 8;

/// Two connected sockets, closed on exec.
pub fn pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Sends one packet. With `wait` false, `EAGAIN` says that the other side is behind.
pub fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>], wait: bool) -> rustix::io::Result<()> {
    if descriptors.len() > DESCRIPTORS_MAX {
        return Err(Errno::TOOBIG);
    }
    let numbers: Vec<RawFd> = descriptors.iter().map(|descriptor| descriptor.as_raw_fd()).collect();
    let flags = if wait { SendFlags::NOSIGNAL } else { SendFlags::NOSIGNAL | SendFlags::DONTWAIT };
    rustix::io::retry_on_intr(|| match numbers.as_slice() {
        // A filter lets it go on by itself: it has no address.
        [] => rustix::net::send(&socket, bytes, flags).map(drop),
        numbers => sys::send_message(socket.as_fd(), bytes, numbers, flags.bits() as i32),
    })
}

/// Receives one packet into `buffer` without waiting: its length and descriptors. `Ok(None)`: the other side is gone.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> rustix::io::Result<Option<(usize, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let mut once = || {
        rustix::io::retry_on_intr(|| rustix::net::recvmsg(&socket, &mut [IoSliceMut::new(buffer)], &mut control, flags))
    };
    let received = match once() {
        // The other side closed without having read all. It is told once, ahead of what that side had sent before.
        Err(Errno::CONNRESET) => once()?,
        other => other?,
    };
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(Errno::MSGSIZE);
    }
    // Nobody sends an empty packet: no bytes mean the end.
    Ok((received.bytes > 0).then_some((received.bytes, descriptors)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_arrive() {
        let (ours, theirs) = pair().expect("a pair");
        send(&theirs, b"last words", &[], true).expect("sent");
        send(&ours, b"never read", &[], true).expect("sent");
        drop(theirs);
        let mut buffer = [0; 64];
        assert_eq!(receive(&ours, &mut buffer).expect("received").map(|(count, _)| count), Some(10));
        assert!(receive(&ours, &mut buffer).expect("an end").is_none());
    }
}

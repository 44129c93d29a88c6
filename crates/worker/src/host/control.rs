//! The owner's door to the worker of this machine: a socket in the worker's folder, over which one packet asks and one answers.
//!
//! Only who may enter that folder can ask. Both sides wait for a bounded time.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use serde_json::{Value, json};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// The socket's name in the worker's folder.
const NAME: &str = "control";
/// Longest question and answer, in bytes.
const PACKET_BYTES_MAX: usize = 160 << 10;
/// How long the worker waits for the question of who has connected.
const QUESTION_WAIT: Duration = Duration::from_millis(50);
/// How long is waited for an answer.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// Askers that wait to be heard.
const BACKLOG: i32 = 16;

/// The worker's side.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl Listener {
    /// Listens in `folder`, where an earlier worker's socket may be left.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let socket = socket(SocketFlags::NONBLOCK)?;
        match std::fs::remove_file(folder.join(NAME)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let (address, _held) = address(folder)?;
        rustix::net::bind(&socket, &address)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Self(socket))
    }

    /// Ready for reading when somebody asks.
    pub fn descriptor(&self) -> &OwnedFd {
        &self.0
    }

    /// Answers all that ask now.
    pub fn answer(&self, mut answer: impl FnMut(&Value) -> Value) {
        for _ in 0..BACKLOG {
            let asker = match rustix::net::accept_with(&self.0, SocketFlags::CLOEXEC) {
                Ok(asker) => asker,
                Err(Errno::CONNABORTED | Errno::INTR) => continue,
                Err(_) => return,
            };
            if let Err(error) = serve(&asker, &mut answer) {
                tracing::debug!(%error, "a question was not answered");
            }
        }
    }
}

fn serve(asker: &OwnedFd, answer: &mut impl FnMut(&Value) -> Value) -> io::Result<()> {
    sockopt::set_socket_timeout(asker, sockopt::Timeout::Recv, Some(QUESTION_WAIT))?;
    sockopt::set_socket_timeout(asker, sockopt::Timeout::Send, Some(QUESTION_WAIT))?;
    let question: Value = serde_json::from_slice(&receive(asker)?)?;
    send(asker, &answer(&question))
}

/// Asks the worker whose folder this is.
///
/// # Errors
/// `NotFound` or `ConnectionRefused`: none runs there.
pub fn ask(folder: &Path, question: &Value) -> io::Result<Value> {
    let socket = socket(SocketFlags::empty())?;
    let (address, _held) = address(folder)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER_WAIT))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(ANSWER_WAIT))?;
    rustix::net::connect(&socket, &address)?;
    send(&socket, question)?;
    Ok(serde_json::from_slice(&receive(&socket)?)?)
}

/// What a question that nobody understands is answered.
pub fn not_understood(question: &Value) -> Value {
    json!({ "error": format!("the worker does not understand {question}"), "hint": "is it of another version? restart it" })
}

fn socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags | SocketFlags::CLOEXEC, None)?)
}

/// The socket's address, which must be short, and what must be held while it is used.
fn address(folder: &Path) -> io::Result<(SocketAddrUnix, OwnedFd)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty())?;
    let address = SocketAddrUnix::new(format!("/proc/self/fd/{}/{NAME}", folder.as_raw_fd()))?;
    Ok((address, folder))
}

fn send(socket: &OwnedFd, value: &Value) -> io::Result<()> {
    let bytes = value.to_string().into_bytes();
    if bytes.len() > PACKET_BYTES_MAX {
        return Err(io::Error::other("too much to say at once"));
    }
    rustix::net::send(socket, &bytes, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive(socket: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; PACKET_BYTES_MAX];
    let (count, _) = rustix::net::recv(socket, &mut bytes[..], RecvFlags::empty())?;
    bytes.truncate(count);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_answered_and_who_says_nothing_holds_up_nobody_for_long() {
        let folder = tempfile::tempdir().expect("a folder");
        let deep = folder.path().join("x".repeat(200));
        std::fs::create_dir(&deep).expect("a folder");
        assert!(ask(&deep, &json!(1)).is_err(), "nobody is there");
        let listener = Listener::new(&deep).expect("listens");
        let listener = Listener::new(&deep).map(|again| (drop(listener), again).1).expect("listens again");
        let worker = std::thread::spawn(move || {
            let mut is_over = false;
            while !is_over {
                let mut poll = [rustix::event::PollFd::new(listener.descriptor(), rustix::event::PollFlags::IN)];
                let wait = rustix::time::Timespec { tv_sec: 30, tv_nsec: 0 };
                assert_eq!(rustix::event::poll(&mut poll, Some(&wait)).expect("waits"), 1, "somebody asks");
                listener.answer(|question| {
                    is_over |= question == "end";
                    json!({ "said": question })
                });
            }
        });
        let silent = socket(SocketFlags::empty()).expect("a socket");
        rustix::net::connect(&silent, &address(&deep).expect("an address").0).expect("connected");
        assert_eq!(ask(&deep, &json!({"ask": "x"})).expect("answered"), json!({"said": {"ask": "x"}}));
        drop(silent);
        assert!(ask(&deep, &json!("y".repeat(PACKET_BYTES_MAX))).is_err(), "too long");
        assert_eq!(ask(&deep, &json!("end")).expect("answered"), json!({"said": "end"}));
        worker.join().expect("it answers");
    }
}

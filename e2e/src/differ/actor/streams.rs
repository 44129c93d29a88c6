//! Operations on standard streams, pipes, sockets and fifos.

use super::files::{done, unsafe_zeroed};
use super::{Actor, Fault, Reported, Words, filled, read_up_to, show, sys, write_all};
use std::os::fd::RawFd;

/// What fits into a pipe or a socket without somebody who reads.
const AT_ONCE_BYTES_MAX: i64 = 60_000;

impl Actor {
    /// Streams between processes and to the outside.
    pub(super) fn stream(&mut self, words: &Words<'_>) -> Option<Reported> {
        Some(match words.verb {
            "stdin" => words
                .number(0)
                .and_then(|count| read_up_to(0, count.clamp(0, 8 << 20) as usize))
                .map(|bytes| show(&bytes)),
            "say" => self.say(words),
            "closeout" => {
                self.flush();
                self.closed_output = true;
                sys!(libc::close(1)).map(done)
            }
            "pipe" => self.pair(words, |ends| sys!(libc::pipe(ends.as_mut_ptr()))),
            "socketpair" => {
                self.pair(words, |ends| sys!(libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, ends.as_mut_ptr())))
            }
            "child-pipe" => self.child_pipe(words),
            "fifo" => self.through_fifo(words),
            "socket" => self.through_socket(words),
            _ => return None,
        })
    }

    /// Writes a line to standard output or error, past what is reported.
    fn say(&mut self, words: &Words<'_>) -> Reported {
        self.flush();
        let fd = if words.text(0)? == "err" { 2 } else { 1 };
        let line = "said ".repeat(words.number(1)?.clamp(0, 40_000) as usize) + "\n";
        write_all(fd, line.as_bytes()).map(|count| count.to_string())
    }

    /// Bytes through both ends of something in this process.
    fn pair(&mut self, words: &Words<'_>, make: impl FnOnce(&mut [i32; 2]) -> Result<i64, Fault>) -> Reported {
        let mut ends = [0; 2];
        make(&mut ends)?;
        let bytes = filled(words.number(0)?.clamp(0, AT_ONCE_BYTES_MAX) as usize, 3);
        let written = write_all(ends[1], &bytes);
        sys!(libc::close(ends[1]))?;
        let read = read_up_to(ends[0], bytes.len() + 1);
        sys!(libc::close(ends[0]))?;
        Ok(format!("{} {}", written?, show(&read?)))
    }

    /// A child writes as many bytes into a pipe, which is read to its end here.
    fn child_pipe(&mut self, words: &Words<'_>) -> Reported {
        let mut ends = [0; 2];
        sys!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC))?;
        let bytes = filled(words.number(0)?.clamp(0, 4 << 20) as usize, 5);
        let child = self.child(|_| {
            let _ = sys!(libc::close(ends[0]));
            u8::from(write_all(ends[1], &bytes).is_err())
        })?;
        sys!(libc::close(ends[1]))?;
        let read = read_up_to(ends[0], bytes.len() + 1);
        sys!(libc::close(ends[0]))?;
        Ok(format!("{} {}", show(&read?), super::processes::wait_for(child)?))
    }

    /// The same through a fifo that has a name.
    fn through_fifo(&mut self, words: &Words<'_>) -> Reported {
        let path = words.path(0)?;
        let bytes = filled(words.number(1)?.clamp(0, 1 << 20) as usize, 5);
        // A name that is no fifo would be written over: that is what `put` is for.
        let mut found: libc::stat = unsafe_zeroed();
        sys!(libc::stat(path.as_ptr(), &mut found))?;
        if found.st_mode & libc::S_IFMT != libc::S_IFIFO {
            return Ok("no fifo".into());
        }
        // Open for both, nobody waits for ever for the other who may not open it.
        let both = sys!(libc::open(path.as_ptr(), libc::O_RDWR))? as RawFd;
        let child = self.child(|_| match sys!(libc::open(path.as_ptr(), libc::O_WRONLY)) {
            Ok(fd) => u8::from(write_all(fd as RawFd, &bytes).is_err()),
            Err(_) => 2,
        })?;
        let read = read_up_to(both, bytes.len());
        sys!(libc::close(both))?;
        Ok(format!("{} {}", show(&read?), super::processes::wait_for(child)?))
    }

    /// A socket with a name, to which a child connects; the name is removed.
    fn through_socket(&mut self, words: &Words<'_>) -> Reported {
        let mut address: libc::sockaddr_un = unsafe_zeroed();
        address.sun_family = libc::AF_UNIX as u16;
        let path = words.bytes(0)?;
        if path.len() >= address.sun_path.len() {
            return Ok("too long".into());
        }
        address.sun_path.iter_mut().zip(path).for_each(|(to, from)| *to = *from as libc::c_char);
        let len = std::mem::size_of::<libc::sockaddr_un>() as u32;
        let own = sys!(libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0))? as RawFd;
        let start = std::ptr::from_ref(&address).cast::<libc::sockaddr>();
        let bound = sys!(libc::bind(own, start, len));
        let is_bound = bound.is_ok();
        let talked = bound.and_then(|_| sys!(libc::listen(own, 1))).and_then(|_| {
            let child = self.child(|_| {
                let other = sys!(libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0)).unwrap_or(-1) as RawFd;
                let sent = sys!(libc::connect(other, start, len)).and_then(|_| write_all(other, &filled(1000, 4)));
                u8::from(sent.is_err())
            })?;
            let peer = sys!(libc::accept(own, std::ptr::null_mut(), std::ptr::null_mut()))? as RawFd;
            let read = read_up_to(peer, 2000)?;
            sys!(libc::close(peer))?;
            Ok(format!("{} {}", show(&read), super::processes::wait_for(child)?))
        });
        sys!(libc::close(own))?;
        // Also where nobody could talk: a socket that stays is not brought back.
        if is_bound {
            words.path(0).and_then(|path| sys!(libc::unlink(path.as_ptr())))?;
        }
        talked
    }
}

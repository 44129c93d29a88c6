//! The actor: a small program that executes operations by direct system calls and reports each result.
//!
//! What it reports must not depend on where it runs: no process numbers, inode numbers or addresses, and a time only if it is not
//! of these minutes, which the harness compares itself.

mod files;
mod meta;
mod processes;
mod streams;

use crate::differ::program::{Op, escape, parse_ops};
use std::ffi::CString;
use std::io::Error;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStringExt;

/// Makes a system call by way of the C library: its value, or the number of the error.
macro_rules! sys {
    ($call:expr) => {{
        // SAFETY: each argument is a number, or points to a buffer that outlives the call and has the length that is given with it.
        let value = unsafe { $call } as i64;
        if value < 0 { Err($crate::differ::actor::Fault::last()) } else { Ok(value) }
    }};
}
pub(in crate::differ::actor) use sys;

/// Slots for descriptors, named A, B, …
const SLOTS: usize = 8;
/// Most bytes of what was read that are reported as they are.
const SHOWN_BYTES_MAX: usize = 12;

/// Why an operation gave no value.
#[derive(Debug)]
pub enum Fault {
    /// The system's number.
    System(i32),
    /// The slot is empty.
    Empty,
    /// It is no operation, or lacks a word.
    Wrong(String),
}

impl Fault {
    fn last() -> Self {
        Self::System(Error::last_os_error().raw_os_error().unwrap_or(0))
    }
}

type Reported = Result<String, Fault>;

/// The words of an operation after its verb.
struct Words<'a> {
    verb: &'a str,
    words: &'a [Vec<u8>],
    body: &'a [Op],
}

impl Words<'_> {
    fn bytes(&self, at: usize) -> Result<&[u8], Fault> {
        self.words.get(at).map(Vec::as_slice).ok_or_else(|| Fault::Wrong(format!("word {} is missing", at + 1)))
    }

    fn text(&self, at: usize) -> Result<&str, Fault> {
        std::str::from_utf8(self.bytes(at)?).map_err(|_| Fault::Wrong(format!("word {} is no text", at + 1)))
    }

    fn path(&self, at: usize) -> Result<CString, Fault> {
        CString::new(self.bytes(at)?).map_err(|_| Fault::Wrong("a path has a zero byte".into()))
    }

    fn number(&self, at: usize) -> Result<i64, Fault> {
        self.text(at)?.parse().map_err(|_| Fault::Wrong(format!("word {} is no number", at + 1)))
    }

    fn mode(&self, at: usize) -> Result<u32, Fault> {
        u32::from_str_radix(self.text(at)?, 8).map_err(|_| Fault::Wrong(format!("word {} is no mode", at + 1)))
    }

    /// Flags by name, joined by `+`; `-` is none.
    fn flags(&self, at: usize, known: &[(&str, i32)]) -> Result<i32, Fault> {
        let mut flags = 0;
        for name in self.text(at)?.split('+').filter(|name| *name != "-") {
            let found = known.iter().find(|(word, _)| *word == name);
            flags |= found.ok_or_else(|| Fault::Wrong(format!("no flag is called {name}")))?.1;
        }
        Ok(flags)
    }
}

/// The state between operations.
struct Actor {
    slots: [Option<RawFd>; SLOTS],
    /// Lines not yet written.
    lines: Vec<u8>,
    /// Whether each line is written at once.
    each: bool,
    /// Whether the program closed its standard output: the number may be a file's then, in which reports have no place.
    closed_output: bool,
    /// Where it began: what `getcwd` reports is relative to it.
    home: Vec<u8>,
    count: usize,
}

/// Runs the actor with the arguments `TAG REPORT OPERATIONS`, and returns its exit status.
pub fn main(arguments: impl Iterator<Item = std::ffi::OsString>) -> u8 {
    let arguments: Vec<Vec<u8>> = arguments.map(OsStringExt::into_vec).collect();
    let [_tag, report, text] = &arguments[..] else {
        eprintln!("usage: act TAG each|end OPERATIONS");
        return 64;
    };
    let text = String::from_utf8_lossy(text);
    let ops = match parse_ops(&mut text.lines()) {
        Ok(ops) => ops,
        Err(why) => {
            eprintln!("act: {why}");
            return 64;
        }
    };
    let home = std::env::current_dir().map(|path| path.into_os_string().into_vec()).unwrap_or_default();
    // What a program of the C library has: Rust's own start ignores SIGPIPE.
    let _ = sys!(libc::signal(libc::SIGPIPE, libc::SIG_DFL) as i64);
    let mut actor = Actor {
        slots: [None; SLOTS],
        lines: Vec::new(),
        each: report == b"each",
        closed_output: false,
        home,
        count: 0,
    };
    let code = actor.run(&ops).unwrap_or(0);
    actor.flush();
    code
}

impl Actor {
    /// Executes operations in order; the status, if one of them was to exit.
    fn run(&mut self, ops: &[Op]) -> Option<u8> {
        for op in ops {
            let verb = op.verb();
            let words = Words { verb: &verb, words: op.words.get(1..).unwrap_or_default(), body: &op.body };
            if verb == "exit" {
                return Some(words.number(0).unwrap_or(0) as u8);
            }
            self.count += 1;
            let reported = self.execute(&words);
            self.report(&words, reported);
        }
        None
    }

    fn execute(&mut self, words: &Words<'_>) -> Reported {
        let groups: [fn(&mut Self, &Words<'_>) -> Option<Reported>; 6] =
            [Self::file, Self::content, Self::name, Self::attribute, Self::stream, Self::process];
        for group in groups {
            if let Some(reported) = group(self, words) {
                return reported;
            }
        }
        Err(Fault::Wrong("no such operation".into()))
    }

    fn report(&mut self, words: &Words<'_>, reported: Reported) {
        let shown: Vec<String> = words.words.iter().map(|word| escape(word, false)).collect();
        let result = match reported {
            Ok(value) => value,
            Err(Fault::System(number)) => format!("! {}", Error::from_raw_os_error(number)),
            Err(Fault::Empty) => "empty slot".into(),
            Err(Fault::Wrong(why)) => format!("WRONG: {why}"),
        };
        self.line(&format!("{} {} {} = {result}\n", self.count, words.verb, shown.join(" ")));
    }

    fn line(&mut self, line: &str) {
        self.lines.extend_from_slice(line.as_bytes());
        if self.each {
            self.flush();
        }
    }

    /// Writes what was reported.
    fn flush(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        if !self.closed_output {
            let _ = write_all(1, &lines);
        }
    }

    fn slot(&self, words: &Words<'_>, at: usize) -> Result<RawFd, Fault> {
        let index = slot_index(words, at)?;
        self.slots[index].ok_or(Fault::Empty)
    }

    /// Puts a descriptor into a slot, in place of the one that is there.
    fn fill(&mut self, words: &Words<'_>, at: usize, fd: RawFd) -> Reported {
        let index = slot_index(words, at)?;
        if let Some(old) = self.slots[index].replace(fd) {
            let _ = sys!(libc::close(old));
        }
        Ok(format!("fd {fd}"))
    }
}

fn slot_index(words: &Words<'_>, at: usize) -> Result<usize, Fault> {
    let index = words.bytes(at)?.first().map_or(SLOTS, |letter| usize::from(letter.wrapping_sub(b'A')));
    if index < SLOTS { Ok(index) } else { Err(Fault::Wrong("no such slot".into())) }
}

/// Writes all, or as much as can be written.
fn write_all(fd: RawFd, bytes: &[u8]) -> Result<usize, Fault> {
    let mut done = 0;
    while done < bytes.len() {
        match sys!(libc::write(fd, bytes[done..].as_ptr().cast(), bytes.len() - done)) {
            Ok(count) => done += count as usize,
            Err(Fault::System(libc::EINTR)) => {}
            Err(_) if done > 0 => break,
            Err(fault) => return Err(fault),
        }
    }
    Ok(done)
}

/// Reads up to a count of bytes, or to the end.
fn read_up_to(fd: RawFd, count: usize) -> Result<Vec<u8>, Fault> {
    let mut bytes = vec![0; count];
    let mut done = 0;
    while done < count {
        match sys!(libc::read(fd, bytes[done..].as_mut_ptr().cast(), count - done)) {
            Ok(0) => break,
            Ok(count) => done += count as usize,
            Err(Fault::System(libc::EINTR)) => {}
            Err(fault) => return Err(fault),
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

/// Bytes as they are reported: how many, a checksum, and the first of them.
fn show(bytes: &[u8]) -> String {
    let sum = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    let first = escape(&bytes[..bytes.len().min(SHOWN_BYTES_MAX)], false);
    format!("{} bytes {:08x} {first}", bytes.len(), sum >> 32)
}

/// Bytes made from a number; zeros from 0.
pub fn filled(count: usize, seed: u64) -> Vec<u8> {
    let mut dice = crate::dice::Dice(seed);
    let mut bytes = vec![0; count];
    if seed != 0 {
        bytes.chunks_mut(8).for_each(|part| {
            let number = dice.next().to_le_bytes();
            part.copy_from_slice(&number[..part.len()]);
        });
    }
    bytes
}

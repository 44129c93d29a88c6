//! The operations of the actor, each with words drawn for it.

use super::Likely::{Fifo, File, Folder, Link};
use super::{Grammar, op};
use crate::client::NOBODY;
use crate::differ::program::Op;

/// Children within children.
const DEPTH_MAX: usize = 2;
/// Names of extended attributes.
const ATTRIBUTES: [&str; 4] = ["user.a", "user.first", "user.long-name.with.dots", "user.b"];
/// Moments: the past, with parts of a second, before 1970, and the future.
const TIMES: [&str; 6] = ["1.1", "946684800.123456789", "1500000000.0", "1600000000.999999999", "4000000000.5", "0.0"];

impl Grammar {
    /// Any operation.
    pub(super) fn operation(&mut self, depth: usize) -> Op {
        match self.dice.below(100) {
            0..12 => self.opening(),
            12..34 => self.on_descriptor(),
            34..62 => self.change(),
            62..78 => self.look(),
            78..88 => self.attribute(),
            88..95 => self.streaming(),
            _ => self.process(depth),
        }
    }

    fn slot(&mut self) -> Vec<u8> {
        let open = self.open.clone();
        if open.is_empty() || self.dice.percent(5) {
            vec![b'A' + self.dice.below(6) as u8]
        } else {
            vec![self.dice.of(&open)]
        }
    }

    fn opening(&mut self) -> Op {
        let slot = b'A' + self.dice.below(6) as u8;
        self.open.push(slot);
        let access = self.dice.of(&["r", "w", "rw", "rw", "rw"]);
        let more = self.dice.of(&[
            "",
            "",
            "",
            "+creat",
            "+creat",
            "+creat",
            "+creat+excl",
            "+creat+trunc",
            "+trunc",
            "+append",
            "+creat+append",
            "+nofollow",
            "+directory",
            "+path",
            "+tmpfile",
            "+creat+sync",
            "+cloexec",
            "+excl",
            "+creat+nofollow",
            "+nonblock",
        ]);
        let path = match more {
            "+directory" | "+tmpfile" => self.existing(&[Folder]),
            // One that nobody reads or writes would never be open: only without waiting.
            "+nonblock" => self.existing(&[File, Fifo, Link]),
            _ if more.contains("creat") && self.dice.percent(60) => self.fresh(),
            _ => self.existing(&[File, File, Link, Folder]),
        };
        self.opens(slot, access, &path);
        if more.contains("creat") {
            self.learn(&path, File);
        }
        let access = if more == "+directory" { "r" } else { access };
        let mode = self.mode();
        op("open", [vec![slot], path, format!("{access}{more}+nonblock").into_bytes(), mode])
    }

    fn on_descriptor(&mut self) -> Op {
        let slot = self.slot();
        let other = self.slot();
        let (size, at, seed) = (self.size(), self.size(), self.number(9));
        let (size, at): (Vec<u8>, Vec<u8>) = (size.to_string().into(), at.to_string().into());
        match self.dice.below(35) {
            0..4 => op("read", [slot, size]),
            4..6 => op("pread", [slot, size, at]),
            6..11 => op("write", [slot, size, seed]),
            11..14 => op("pwrite", [slot, size, seed, at]),
            // Where data and holes are is each file system's own way: it is not drawn.
            14..16 => op("lseek", [slot, self.dice.of(&["set", "cur", "end"]).into(), at]),
            16..18 => op("ftruncate", [slot, size]),
            18 => self.allocation(slot, at, size),
            19 => op("fsync", [slot]),
            kind @ 20..22 => {
                self.copies(&slot, &other);
                op(if kind == 20 { "dup" } else { "dup2" }, [slot, other])
            }
            22 => op("getfl", [slot]),
            23 => op("setfl", [slot, self.dice.of(&["append+nonblock", "nonblock"]).into()]),
            24 => op("getfd", [slot]),
            25 => op("close", [slot]),
            26 => op("fstat", [slot]),
            27 => {
                let mode = self.mode();
                if self.may_be_gone(&slot) { op("fstat", [slot]) } else { op("fchmod", [slot, mode]) }
            }
            28..30 => op("mapwrite", [slot, self.number(3)]),
            30 => op("mapread", [slot, self.number(3)]),
            31 => op("sendfile", [slot, other, size]),
            32 => op("splice", [slot, other, size]),
            33 => {
                let path = self.fresh();
                self.learn(&path, File);
                op("linkfd", [slot, path])
            }
            _ => op("fdatasync", [slot]),
        }
    }

    fn allocation(&mut self, slot: Vec<u8>, at: Vec<u8>, size: Vec<u8>) -> Op {
        let mode = self.dice.of(&["-", "-", "keep", "keep", "punch+keep", "punch+keep", "zero", "zero+keep"]);
        op("fallocate", [slot, mode.into(), at, size])
    }

    pub(super) fn put(&mut self, path: &[u8]) -> Op {
        self.learn(path, File);
        op("put", [path.to_vec(), self.size().to_string().into(), self.number(9)])
    }

    pub(super) fn folder(&mut self, path: &[u8]) -> Op {
        self.learn(path, Folder);
        let mode = if self.dice.percent(80) { b"755".to_vec() } else { self.mode() };
        op("mkdir", [path.to_vec(), mode])
    }

    pub(super) fn symbolic_link(&mut self, path: &[u8]) -> Op {
        let target = match self.dice.below(10) {
            0 => b"nowhere/at/all".to_vec(),
            1 => path.rsplit(|byte| *byte == b'/').next().unwrap_or(path).to_vec(),
            2 => b"/no/such/place".to_vec(),
            3 => b".".to_vec(),
            _ => self.existing(&[File, Folder, Link]),
        };
        self.learn(path, Link);
        op("symlink", [target, path.to_vec()])
    }

    pub(super) fn hard_link(&mut self, path: &[u8]) -> Op {
        let from = self.existing(&[File, File, File, Fifo]);
        self.learn(path, File);
        let how = self.dice.of(&["follow", "-"]);
        op("link", [from, path.to_vec(), how.into()])
    }

    /// Something that changes names or contents by name.
    pub(super) fn change(&mut self) -> Op {
        let fresh = self.fresh();
        let what = self.dice.below(32);
        if (10..20).contains(&what) {
            self.as_found.iter_mut().for_each(|(_, is_gone)| *is_gone = true);
        }
        match what {
            0..4 => self.put(&fresh),
            4 => {
                let path = self.existing(&[File, Link]);
                op("put", [path, self.size().to_string().into(), self.number(9)])
            }
            5..7 => op("append", [self.existing(&[File, Link]), self.number(5000), self.number(9)]),
            7..10 => self.folder(&fresh),
            10..12 => op("unlink", [self.existing(&[File, File, Link, Folder, Fifo])]),
            12..14 => op("rmdir", [self.existing(&[Folder, Folder, File])]),
            14..20 => self.renaming(fresh),
            20..22 => self.hard_link(&fresh),
            25 if !self.alone => self.put(&fresh),
            22..25 => self.symbolic_link(&fresh),
            25 => {
                self.learn(&fresh, Fifo);
                op("mkfifo", [fresh, b"644".to_vec()])
            }
            26..28 => op("truncate", [self.existing(&[File, File, Link, Folder]), self.size().to_string().into()]),
            28 => op("appenders", [self.existing(&[File]), b"20".to_vec()]),
            29 => op("umask", [self.dice.of(&["22", "77", "2", "0", "27"]).into()]),
            _ => op("chdir", [self.dice.of(&[&b"."[..], b"a", b"b", b"a/.."]).to_vec()]),
        }
    }

    fn renaming(&mut self, fresh: Vec<u8>) -> Op {
        let all = [File, Folder, Link, Fifo];
        let from = self.existing(&all);
        let (to, how) = match self.dice.below(12) {
            0..7 => (fresh, "-"),
            7..9 => (self.existing(&all), "-"),
            9 => (self.existing(&all), "noreplace"),
            10 => (fresh, "noreplace"),
            _ => (self.existing(&all), "exchange"),
        };
        let likely = self.known.iter().rev().find(|(path, _)| *path == from).map_or(File, |(_, likely)| *likely);
        if how != "exchange" {
            self.learn(&to, likely);
        }
        op("rename", [from, to, how.into()])
    }

    fn look(&mut self) -> Op {
        let path = self.any();
        match self.dice.below(16) {
            0..3 => op("stat", [path]),
            3..6 => op("lstat", [path]),
            6..9 => op("cat", [self.existing(&[File, File, Link, Folder])]),
            9..12 => op("list", [self.existing(&[Folder, Folder, Folder, Link, File])]),
            12 => op("readlink", [path]),
            13 => op("same", [path, self.any()]),
            14 => {
                let how = self.dice.of(&["-", "r", "w", "x", "r+w", "r+x"]);
                op("access", [path, how.into(), self.dice.of(&["-", "effective"]).into()])
            }
            _ => op("getcwd", []),
        }
    }

    fn attribute(&mut self) -> Op {
        let path = self.existing(&[File, File, Folder, Link]);
        let name: Vec<u8> = self.dice.of(&ATTRIBUTES).into();
        match self.dice.below(14) {
            0..4 => op("chmod", [path, self.mode()]),
            4..6 => self.owner(path),
            6..9 => {
                let time = self.dice.of(&TIMES);
                let (accessed, modified) = match self.dice.below(9) {
                    0 => ("now", "now"),
                    4 => ("now", "omit"),
                    5 | 6 => (time, "omit"),
                    7 => (time, self.dice.of(&TIMES)),
                    1 => ("omit", "now"),
                    2 => ("omit", time),
                    3 => ("omit", "omit"),
                    _ => (time, time),
                };
                op("utimens", [path, accessed.into(), modified.into(), self.dice.of(&["-", "-", "nofollow"]).into()])
            }
            9 | 10 => {
                let how = self.dice.of(&["-", "-", "create", "replace"]);
                // All four names at once are still within a block, which is what ext4 has room for.
                op("setxattr", [path, name, self.dice.of(&["0", "1", "200", "800"]).into(), how.into()])
            }
            11 => op("getxattr", [path, name, self.dice.of(&["0", "4", "60000"]).into()]),
            12 => op("listxattr", [path]),
            _ => op("removexattr", [path, name]),
        }
    }

    fn owner(&mut self, path: Vec<u8>) -> Op {
        let ids = [u32::MAX, 0, NOBODY, NOBODY, 1234];
        let [uid, gid] = [self.dice.of(&ids), self.dice.of(&ids)];
        op("chown", [path, uid.to_string().into(), gid.to_string().into(), self.dice.of(&["-", "nofollow"]).into()])
    }

    fn streaming(&mut self) -> Op {
        let size: Vec<u8> = self.size().to_string().into();
        match self.dice.below(14) {
            0..4 => op("stdin", [self.dice.of(&["0", "1", "100", "4096", "300000"]).into()]),
            4..7 => op("say", [self.dice.of(&["out", "err"]).into(), self.dice.of(&["1", "3", "900", "20000"]).into()]),
            7 => op("pipe", [size]),
            8 => op("socketpair", [size]),
            9..11 => op("child-pipe", [size]),
            11 => op("fifo", [self.existing(&[Fifo, Fifo, File]), self.number(70_000)]),
            12 => op("socket", [self.fresh()]),
            _ => op("closeout", []),
        }
    }

    fn process(&mut self, depth: usize) -> Op {
        let signal =
            self.dice.of(&[libc::SIGUSR1, libc::SIGTERM, libc::SIGHUP, libc::SIGCHLD, libc::SIGWINCH, libc::SIGURG]);
        let signal: Vec<u8> = signal.to_string().into();
        match self.dice.below(12) {
            0..5 if depth < DEPTH_MAX => {
                let body = (0..1 + self.dice.below(5)).map(|_| self.operation(depth + 1)).collect();
                Op { words: vec![b"fork".to_vec()], body }
            }
            5 | 6 => op("program", [self.existing(&[File, File, Link]), b"word".to_vec()]),
            7 => op("signal", [signal, self.dice.of(&["ignore", "handle", "handle", "default"]).into()]),
            8 if depth > 0 => op("raise", [signal]),
            9 => op("group", []),
            10 => op(
                "limit",
                self.dice.of(&[["descriptors", "20"], ["core", "0"], ["descriptors", "64"]]).map(Into::into),
            ),
            11 => op("openmany", [self.existing(&[File, Folder]), b"100".to_vec()]),
            _ => op("whoami", []),
        }
    }

    /// How a command ends, if not of itself.
    pub(super) fn ending(&mut self) -> Op {
        match self.dice.below(5) {
            0..3 => op("exit", [self.number(256)]),
            _ => {
                let fatal = [libc::SIGTERM, libc::SIGKILL, libc::SIGABRT, libc::SIGSEGV, libc::SIGPIPE, libc::SIGXFSZ];
                op("raise", [self.dice.of(&fatal).to_string().into()])
            }
        }
    }
}

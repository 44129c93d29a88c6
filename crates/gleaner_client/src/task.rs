//! A task as its caller describes it, and what came of it.

use crate::error::Error;
use base::command::{TAGS_MAX, is_tag};
use base::path::printable;
use base::{Command, ExitStatus, Needs, TaskId};
use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Most CPUs that a task may ask for.
pub const CPUS_MAX: u32 = 4096;

/// One command to run. What is not said here is as in this process when the [`Session`](crate::Session) was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    argv: Vec<Vec<u8>>,
    env: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    folder: Option<Vec<u8>>,
    needs: Needs,
    pub(crate) no_local: bool,
    pub(crate) no_remote: bool,
    pub(crate) notes: bool,
    pub(crate) rank: Option<u32>,
    pub(crate) allow_write: Vec<Vec<u8>>,
}

/// How a task ended, and where it ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its exit status or signal.
    pub status: ExitStatus,
    /// Where it ran.
    pub place: Place,
    /// What the client daemon noted, if [`Task::notes`] asked for that.
    pub notes: Vec<String>,
}

/// Where a task ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the pool: `gleaner explain` tells of it by this number.
    Pool(TaskId),
    /// On this machine.
    Here {
        /// Why, for a person.
        why: String,
    },
}

/// How a task ended, with all that it said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its exit status or signal.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
    /// Where it ran.
    pub place: Place,
    /// What the client daemon noted, if [`Task::notes`] asked for that.
    pub notes: Vec<String>,
}

/// The standard streams that a task inherits.
#[derive(Clone, Copy, Debug)]
pub struct Streams<'a> {
    /// Standard input.
    pub stdin: BorrowedFd<'a>,
    /// Standard output.
    pub stdout: BorrowedFd<'a>,
    /// Standard error.
    pub stderr: BorrowedFd<'a>,
}

impl Task {
    /// A program (a path, or a name to be found in PATH) with its arguments. No shell reads them.
    pub fn new(words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        let argv = words.into_iter().map(|word| word.as_ref().as_bytes().to_vec()).collect();
        Self {
            argv,
            env: Vec::new(),
            folder: None,
            needs: Needs::default(),
            no_local: false,
            no_remote: false,
            notes: false,
            rank: None,
            allow_write: Vec::new(),
        }
    }

    /// A command line that `/bin/sh` reads.
    pub fn shell(line: impl AsRef<OsStr>) -> Self {
        Self::new([OsStr::new("/bin/sh"), OsStr::new("-c"), line.as_ref()])
    }

    /// Sets a variable of its environment.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().as_bytes().to_vec(), Some(value.as_ref().as_bytes().to_vec())));
        self
    }

    /// Takes a variable out of its environment.
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().as_bytes().to_vec(), None));
        self
    }

    /// Its working directory, absolute.
    pub fn folder(mut self, folder: impl AsRef<Path>) -> Self {
        self.folder = Some(folder.as_ref().as_os_str().as_bytes().to_vec());
        self
    }

    /// CPUs that it asks for, 1 to 4096.
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.needs.cpus = cpus;
        self
    }

    /// Memory that the worker lends at least, in MiB; 0: any.
    pub fn memory_mib(mut self, memory_mib: u32) -> Self {
        self.needs.memory_mib = memory_mib;
        self
    }

    /// A tag that the worker has; with several it has all of them. The task does not run on this machine then.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.needs.tags.push(tag.into());
        self
    }

    /// Whether it must fail rather than run on this machine.
    pub fn no_local(mut self, no_local: bool) -> Self {
        self.no_local = no_local;
        self
    }

    /// Whether it must not run on this machine, which has no tags.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.no_local || !self.needs.tags.is_empty()
    }

    /// Whether it must run on this machine.
    pub fn no_remote(mut self, no_remote: bool) -> Self {
        self.no_remote = no_remote;
        self
    }

    /// Lets it change this path too, although the write policy does not.
    pub fn allow_write(mut self, path: impl AsRef<Path>) -> Self {
        self.allow_write.push(path.as_ref().as_os_str().as_bytes().to_vec());
        self
    }

    /// Whether to ask the client daemon where it ran and what it cost.
    pub fn notes(mut self, notes: bool) -> Self {
        self.notes = notes;
        self
    }

    /// Its place in its job: over a slow link results of tasks with lower ranks come first. Else its place is that of its
    /// call among those of tasks that say none.
    pub fn rank(mut self, rank: u32) -> Self {
        self.rank = Some(rank);
        self
    }

    /// The words.
    pub fn argv(&self) -> &[Vec<u8>] {
        &self.argv
    }

    /// The command in these surroundings.
    pub(crate) fn command(&self, surroundings: &Command) -> Result<Command, Error> {
        let wrong = |what: String| Err(Error::Argument(what));
        if self.argv.first().is_none_or(Vec::is_empty) {
            return wrong("a task without a program".into());
        }
        let words = self.argv.iter().chain(&self.folder).chain(&self.allow_write);
        let variables = self.env.iter().flat_map(|(name, value)| std::iter::once(name).chain(value));
        if let Some(word) = words.chain(variables).find(|word| word.contains(&0)) {
            return wrong(format!("{}: no command can have a NUL in it", printable(word)));
        }
        if let Some((name, _)) = self.env.iter().find(|(name, _)| name.is_empty() || name.contains(&b'=')) {
            return wrong(format!("{:?} is not the name of a variable", printable(name)));
        }
        if let Some(folder) = self.folder.as_ref().filter(|folder| !folder.starts_with(b"/")) {
            return wrong(format!("{}: the working directory must be an absolute path", printable(folder)));
        }
        let Needs { cpus, tags, .. } = &self.needs;
        if !(1..=CPUS_MAX).contains(cpus) {
            return wrong(format!("a task may ask for 1 to {CPUS_MAX} CPUs, not {cpus}"));
        }
        if let Some(tag) = tags.iter().find(|tag| !is_tag(tag)) {
            return wrong(format!("{tag:?} is not the name of a tag"));
        }
        if self.no_remote && !tags.is_empty() {
            return wrong("a task that must run on this machine cannot ask for tags, of which that has none".into());
        }
        if tags.len() > TAGS_MAX {
            return wrong(format!("a task may ask for {TAGS_MAX} tags at most"));
        }
        let mut command = Command { argv: self.argv.clone(), needs: self.needs.clone(), ..surroundings.clone() };
        for (name, value) in &self.env {
            let named =
                |entry: &Vec<u8>| entry.strip_prefix(name.as_slice()).is_some_and(|rest| rest.starts_with(b"="));
            command.env.retain(|entry| !named(entry));
            command.env.extend(value.as_ref().map(|value| [name, &b"="[..], value].concat()));
        }
        if let Some(folder) = &self.folder {
            command.cwd.clone_from(folder);
            // A shell tells its folder by this name, and so do programs that ask for it.
            command.env.retain(|entry| !entry.starts_with(b"PWD="));
        }
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_changes_what_it_says_and_no_more() {
        let env = [&b"A=1"[..], b"AB=2", b"B=3", b"PWD=/x"].map(<[u8]>::to_vec).to_vec();
        let here = Command { env, cwd: b"/x".to_vec(), umask: 0o27, ..Command::default() };
        let task = Task::new(["a", "b"]).env("A", "9").env_remove("B").cpus(3);
        let command = task.command(&here).expect("sound");
        assert_eq!(command.argv, [b"a", b"b"]);
        assert_eq!(command.env, [&b"AB=2"[..], b"PWD=/x", b"A=9"]);
        assert_eq!((command.needs.cpus, command.umask, command.cwd.as_slice()), (3, 0o27, &b"/x"[..]));
        let moved = Task::shell("pwd").folder("/tmp").command(&here).expect("sound");
        assert_eq!((moved.cwd.as_slice(), moved.env.len()), (&b"/tmp"[..], 3));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let here = Command::default();
        for (task, want) in [
            (Task::new([] as [&str; 0]), "a task without a program"),
            (Task::new([""]), "a task without a program"),
            (Task::new(["a\0b"]), "no command can have a NUL in it"),
            (Task::new(["a"]).env("x=y", ""), "is not the name of a variable"),
            (Task::new(["a"]).folder("b"), "b: the working directory must be an absolute path"),
            (Task::new(["a"]).tag("a b"), "is not the name of a tag"),
            (Task::new(["a"]).cpus(0), "a task may ask for 1 to 4096 CPUs, not 0"),
        ] {
            let error = task.command(&here).expect_err("wrong").to_string();
            assert!(error.contains(want), "{error}");
        }
    }
}

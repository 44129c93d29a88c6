//! What is signed: the digest of a purpose, and of fields one after the other. Each structure is taken apart whole, so that a new field
//! does not compile before it is decided whether it is signed.

use crate::key::Key;
use crate::message::work::Instance;
use crate::message::{Attr, Budget, Change, Command, Exited, Format, Launch, Mount, OutputFile, Stdin, Watch};
use base::codec::Writer;
use base::{Digest, Digester, NodeId};
use bytes::Bytes;
use std::sync::Mutex;

/// Purposes, with the version of the list of fields: what is signed for one counts for no other.
const LAUNCH: &[u8] = b"gleaner launch 1";
const RESULT: &[u8] = b"gleaner result 2";
/// Bytes of a node id, and of the number of a daemon's start.
const NODE_BYTES: usize = 32;
const INSTANCE_BYTES: usize = 8;

/// What somebody says, as a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Statement(pub(super) Digest);

/// Between whom a launch was agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parties {
    /// Whose it is.
    pub client: NodeId,
    /// The hub that the client is connected to: another pool's workers refuse it.
    pub hub: NodeId,
}

impl Parties {
    /// By the name that a launch's client has at a worker of the hub `peer`: the hubs between that and the client's own one, the client,
    /// and the number of its daemon's start.
    pub(super) fn of(key: &[u8], peer: NodeId) -> Option<Self> {
        let nodes = key.len().checked_sub(INSTANCE_BYTES).map(|length| &key[..length])?;
        if !nodes.len().is_multiple_of(NODE_BYTES) {
            return None;
        }
        let mut nodes = nodes.rchunks(NODE_BYTES).filter_map(Digest::from_slice).map(NodeId);
        let client = nodes.next()?;
        Some(Self { client, hub: nodes.next().unwrap_or(peer) })
    }
}

impl Statement {
    /// The digest itself, by which a result names its launch.
    pub fn digest(&self) -> Digest {
        self.0
    }

    /// One that was written down.
    pub fn from_digest(digest: Digest) -> Self {
        Self(digest)
    }

    /// The signature on it by this key's holder.
    pub fn signed_by(&self, key: &Key) -> Bytes {
        Bytes::copy_from_slice(&key.sign(&self.0))
    }

    /// What a client says with a launch.
    pub(super) fn of_launch(launch: &Launch, Parties { client, hub }: Parties) -> Self {
        let Launch {
            task,
            attempt,
            command,
            stdin,
            stdout,
            stderr,
            window,
            launched,
            tenant,
            linger,
            place,
            owner_proof,
            watch,
            first_process,
            mounts,
            budget,
            trust,
            // Hubs set, replace or take these, or they say only in which order what comes.
            client: _,
            view: _,
            objects: _,
            signature: _,
            seals: _,
            client_to_hub: _,
            tenant_number: _,
            copied: _,
            needs: _,
            coming: _,
            rank: _,
            whole: _,
            waiting: _,
        } = launch;
        let mut out = Writer::default();
        out.bytes(LAUNCH);
        out.raw(&client.0.0);
        out.raw(&hub.0.0);
        out.bytes(task);
        out.u32(*attempt);
        out.i64(*launched);
        out.option(command.as_ref(), write_command);
        out.option(stdin.as_ref(), |out, Stdin { kind, path, offset }| {
            out.u32(*kind);
            out.bytes(path);
            out.u64(*offset);
        });
        [*stdout, *stderr, *window, *first_process, *trust].into_iter().for_each(|number| out.u32(number));
        out.bytes(tenant.as_bytes());
        out.bool(*linger);
        out.option(place.as_ref(), |out, Instance { task, number }| {
            out.u64(*task);
            out.u32(*number);
        });
        out.bytes(owner_proof);
        out.option(watch.as_ref(), write_watch);
        out.list(mounts, |out, Mount { at, read_only, no_exec }| {
            out.bytes(at);
            out.bool(*read_only);
            out.bool(*no_exec);
        });
        out.option(budget.as_ref(), |out, Budget { paths, bytes }| {
            out.u64(*paths);
            out.u64(*bytes);
        });
        Self(Digest::of(&out.0))
    }

    /// What a worker says with the result of a launch.
    pub fn of_result(launch: &Statement, streams: &Streams, exited: &Exited) -> Self {
        let Exited {
            code,
            signal,
            user_us,
            system_us,
            max_rss_kib,
            stdin_offset,
            changes,
            skipped,
            fetched_bytes,
            is_unanswered,
            left,
            basis,
            // The changes name them.
            objects: _,
            // For people, and for guesses about the next launch; hubs leave them out.
            faults: _,
            timeline: _,
            signature: _,
            seal: _,
        } = exited;
        let mut out = Writer::default();
        out.bytes(RESULT);
        out.raw(&launch.0.0);
        streams.said.iter().for_each(|stream| out.raw(&crate::lock(stream).0.digest().0));
        [*code, *signal].into_iter().for_each(|number| out.u32(number));
        let used = [*user_us, *system_us, *max_rss_kib, *stdin_offset, *fetched_bytes];
        used.into_iter().for_each(|number| out.u64(number));
        out.list(changes, write_change);
        out.list(skipped, |out, path| out.bytes(path));
        out.bool(*is_unanswered);
        out.list(left, |out, name| out.bytes(name.as_bytes()));
        out.bytes(basis);
        Self(Digest::of(&out.0))
    }
}

/// What a task has said: digests of standard output, standard error and its terminal.
#[derive(Debug)]
pub struct Streams {
    said: [Mutex<(Digester, u64)>; 3],
    /// Bytes of each that count.
    bytes_max: u64,
}

impl Default for Streams {
    fn default() -> Self {
        Self::up_to(u64::MAX)
    }
}

impl Streams {
    /// Of standard output.
    pub const STDOUT: usize = 0;
    /// Of standard error.
    pub const STDERR: usize = 1;
    /// Of its terminal.
    pub const TERMINAL: usize = 2;

    /// Nothing has been said yet. Of each stream so many bytes count, of which the others are not kept.
    pub fn up_to(bytes_max: u64) -> Self {
        Self { said: Default::default(), bytes_max }
    }

    /// It has said more.
    pub fn add(&self, stream: usize, bytes: &[u8]) {
        let mut said = crate::lock(&self.said[stream]);
        let room = (self.bytes_max - said.1).min(bytes.len() as u64);
        said.0.add(&bytes[..room as usize]);
        said.1 += room;
    }
}

fn write_command(out: &mut Writer, command: &Command) {
    let Command {
        argv,
        env,
        cwd,
        umask,
        uid,
        gid,
        groups,
        limits,
        hostname,
        cpus,
        ignored_signals,
        memory_mib,
        level,
        tags,
        blocked_signals,
        nice,
    } = command;
    out.list(argv, |out, word| out.bytes(word));
    out.list(env, |out, variable| out.bytes(variable));
    out.bytes(cwd);
    out.bytes(hostname);
    [*umask, *uid, *gid, *cpus, *memory_mib, *level, *nice].into_iter().for_each(|number| out.u32(number));
    [*ignored_signals, *blocked_signals].into_iter().for_each(|signals| out.u64(signals));
    out.list(groups, |out, group| out.u32(*group));
    out.list(limits, |out, limit| out.u64(*limit));
    out.list(tags, |out, tag| out.bytes(tag.as_bytes()));
}

fn write_watch(out: &mut Writer, watch: &Watch) {
    let Watch { locks, formats, ports, lock_files, descriptors, clones, network, stdout, stderr } = watch;
    [*locks, *lock_files, *clones, *network].into_iter().for_each(|is_so| out.bool(is_so));
    out.list(formats, |out, Format { name, extension, offset, magic, mask }| {
        [name, magic, mask].into_iter().for_each(|bytes| out.bytes(bytes));
        out.option(extension.as_ref(), |out, extension| out.bytes(extension));
        out.u32(*offset);
    });
    out.list(ports, |out, port| out.u32(*port));
    out.list(descriptors, |out, descriptor| out.u32(*descriptor));
    for output in [stdout, stderr] {
        out.option(output.as_ref(), |out, OutputFile { path, appends }| {
            out.bytes(path);
            out.bool(*appends);
        });
    }
}

fn write_change(out: &mut Writer, change: &Change) {
    let Change { path, base, action, attr, xattrs, content, digest, other, how, appended_from, is_added } = change;
    [path, digest, other].into_iter().for_each(|bytes| out.bytes(bytes));
    [*base, *appended_from].into_iter().for_each(|number| out.u64(number));
    [*action, *content, *how].into_iter().for_each(|number| out.u32(number));
    out.bool(*is_added);
    out.option(attr.as_ref(), write_attr);
    out.list(xattrs, |out, bytes| out.bytes(bytes));
}

fn write_attr(out: &mut Writer, attr: &Attr) {
    let Attr { mode, uid, gid, nlink, size, blocks, dev, ino, mtime, ctime, atime } = attr;
    [*mode, *uid, *gid, *nlink].into_iter().for_each(|number| out.u32(number));
    [*size, *blocks, *dev, *ino].into_iter().for_each(|number| out.u64(number));
    [*mtime, *ctime].into_iter().for_each(|time| out.i64(time));
    out.option(atime.as_ref(), |out, time| out.i64(*time));
}

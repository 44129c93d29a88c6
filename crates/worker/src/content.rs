//! Where the mirror gets what it is asked for: from the store on this machine, else over the link to the hub.

mod asked;

use crate::backlog::Backlog;
use crate::fuse::{Done, Fetch, FileSource, UNANSWERED};
use asked::{Pieces, Refusals};
use base::{
    Basis, Binding, Bound, Content, Digest, EAGER_FILE_BYTES_MAX, LAZY_PIECE_BYTES, Recipe, TaskId, Tenant, TreePath,
    ViewId,
};
use bytes::Bytes;
use mirror::{Cache, Evidence};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use store::system::{Expected, SystemFiles};
use store::{BlockStore, RecipeIndex, Span};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use wire::fetch::{Asker, Askers, HUB_LIMIT};
use wire::without;
use wire::{FetchError, Fetcher, Joined, convert, lock, message};

/// Most lazily bound files of which it is known how they are being read.
const READERS_MAX: usize = 200_000;
/// What is kept at hand of where pieces of files are, in bytes.
const INDICES_BYTES_MAX: usize = 64 << 20;
/// Of a lazily bound file, all of such a run is asked for when some of it is read: 1 MiB. Piece by piece, for who waits for one goes
/// on while the others come, and has asked for the next run before the link has nothing to do.
const RUN_BYTES: u64 = 4 * LAZY_PIECE_BYTES;
/// By how much earlier than the rest of a run the piece that a reader waits for is asked for: those asked for together come in any order.
const NEEDED_FIRST: Duration = Duration::from_millis(5);
/// Bytes asked for ahead of a reader that begins to read in order, and of one that goes on and on.
const AHEAD_BYTES_MIN: u64 = 256 << 10;
const AHEAD_BYTES_MAX: u64 = 16 << 20;
/// A read that begins this near to the end of the last one goes on in order, bytes.
const IN_ORDER_BYTES: u64 = 1 << 20;

/// Lazily bound files of no more than this together are fetched as a whole for one launch, so many pieces at a time, as long as one
/// after the other comes as soon as this: 256 KiB in 20 ms are 100 Mbit/s.
const WHOLE_BYTES_MAX: u64 = 64 << 20;
const WHOLE_PIECES: usize = 4;
const SOON: Duration = Duration::from_millis(20);

/// The contents of one client's files.
pub struct Contents {
    client: Bytes,
    tenant: Tenant,
    store: Arc<BlockStore>,
    backlog: Arc<Backlog>,
    /// What may be on this machine's own disk.
    expected: Arc<Expected>,
    runtime: Handle,
    fetcher: Mutex<Option<Fetcher>>,
    pieces: Mutex<Pieces>,
    refusals: Mutex<Refusals>,
    readers: Mutex<HashMap<Digest, Reader>>,
    indices: Mutex<Cache<Arc<RecipeIndex>>>,
    fetched: Arc<AtomicU64>,
    askers: Askers,
    myself: Weak<Self>,
}

/// How a file is being read.
#[derive(Clone, Copy, Default)]
struct Reader {
    /// After the last byte read.
    next: u64,
    /// Bytes to ask for ahead.
    ahead: u64,
    /// The first byte that has not been asked for.
    asked: u64,
}

impl Contents {
    /// Not connected yet. Must be called within a tokio runtime.
    pub fn new(
        client: Bytes,
        tenant: Tenant,
        backlog: Arc<Backlog>,
        store: Arc<BlockStore>,
        system: Arc<SystemFiles>,
    ) -> Arc<Self> {
        let (fetcher, pieces, refusals, readers, fetched, askers) = Default::default();
        let indices = Mutex::new(Cache::new(INDICES_BYTES_MAX));
        let runtime = Handle::current();
        let expected = Expected::new(system, store.clone(), tenant);
        Arc::new_cyclic(|myself| Self {
            client,
            tenant,
            store,
            backlog,
            expected,
            runtime,
            fetcher,
            pieces,
            refusals,
            readers,
            indices,
            fetched,
            askers,
            myself: myself.clone(),
        })
    }

    /// Asks over this connection from now on.
    pub fn connect(&self, joined: &Joined) {
        let (store, tenant, fetched) = (self.store.clone(), self.tenant, self.fetched.clone());
        let keep = Arc::new(move |digest: Digest, bytes: &Bytes| {
            fetched.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            // The fetcher has compared name and bytes.
            if let Err(error) = store.put_checked(tenant, digest, bytes) {
                tracing::warn!(%digest, %error, "an object was not kept");
            }
        });
        let expected = self.expected.clone();
        let look = Arc::new(move |digest: &Digest| expected.look(digest).map(Bytes::from));
        let (connection, client) = (joined.connection.clone(), self.client.clone());
        *lock(&self.fetcher) = Some(Fetcher::new(connection, (client, self.askers.clone()), HUB_LIMIT, keep, look));
    }

    /// Notes what of these may be on this machine's own disk.
    pub fn expect(&self, bounds: &[Bound]) {
        let is_within_process =
            lock(&self.fetcher).as_ref().is_some_and(|fetcher| fetcher.connection().is_within_process());
        if !is_within_process && !without::is_left_out(without::Part::OwnDistribution) {
            self.expected.expect(bounds);
        }
    }

    /// A task of the client runs here: what is asked for is asked for it, or another that does.
    pub fn asked_for(&self, task: TaskId) -> Asker {
        self.askers.begin(task)
    }

    /// Bytes of contents that came over the link so far.
    pub fn fetched_bytes(&self) -> u64 {
        self.fetched.load(Ordering::Relaxed)
    }

    /// Keeps an object that came unasked, if its name is right.
    pub fn keep(&self, object: &message::Object) {
        let kept = convert::digest(&object.digest).map_err(|error| error.to_string()).and_then(|digest| {
            self.store.put_named(self.tenant, digest, &object.bytes).map_err(|error| error.to_string())
        });
        if let Err(error) = kept {
            tracing::warn!(error, "an object was not kept");
        }
    }

    fn fetcher(&self) -> Result<Fetcher, Errno> {
        lock(&self.fetcher).clone().ok_or(UNANSWERED)
    }

    /// An object: from the store or over the link.
    async fn object(&self, digest: Digest) -> Result<Bytes, Errno> {
        if let Ok(Some(bytes)) = self.store.get(self.tenant, &digest) {
            return Ok(Bytes::from(bytes));
        }
        self.fetch(digest).await
    }

    /// An object that is not in the store.
    async fn fetch(&self, digest: Digest) -> Result<Bytes, Errno> {
        self.fetcher()?.object(digest).await.map_err(|error| self.refused(&digest.0, &error))
    }

    /// Notes that the client refused what has this name; returns what a task sees.
    fn refused(&self, name: &[u8], error: &FetchError) -> Errno {
        lock(&self.refusals).note(name, error);
        Errno::from_raw_os_error(error.errno())
    }

    /// How often the client has refused something.
    pub fn refusals(&self) -> u64 {
        lock(&self.refusals).count()
    }

    /// What a result rests on of which this is the evidence, where there had been so many refusals when its task came; `None` if that is not
    /// known any more.
    pub fn basis(&self, evidence: &Evidence, refusals: u64) -> Option<Basis> {
        let pieces = lock(&self.pieces).listed(&evidence.lazy);
        let refused = lock(&self.refusals).since(refusals)?;
        Some(Basis { bindings: evidence.bindings.clone(), pieces, refused })
    }

    fn read_block(&self, digest: &Digest, offset: u64, len: usize, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        out.resize(start + len, 0);
        let read = self.store.read_at(self.tenant, digest, offset, &mut out[start..]);
        let whole = matches!(read, Ok(Some(count)) if count == len);
        if !whole {
            out.truncate(start);
        }
        whole
    }

    /// Where the pieces of a file start.
    fn index(&self, file: &FileSource) -> Option<Arc<RecipeIndex>> {
        let Content::Recipe(name) = file.content else { return None };
        let mut indices = lock(&self.indices);
        if let Some(index) = indices.get(&name) {
            return Some(index);
        }
        let index = Arc::new(RecipeIndex::new(Recipe::clone(file.recipe.as_ref()?)));
        indices.put(name, index.clone(), index.bytes());
        Some(index)
    }

    /// The parts of blocks that make up a range of a file; `None` if the names of some are not known yet.
    fn spans(&self, file: &FileSource, offset: u64, len: usize) -> Option<Vec<Part>> {
        match file.content {
            Content::Block(digest) => Some(vec![Part { block: Some(digest), offset, len }]),
            Content::Recipe(_) => {
                let part =
                    |span: Span| Part { block: span.block, offset: span.offset_in_block, len: span.len as usize };
                Some(self.index(file)?.pieces_in(offset, len as u64).map(part).collect())
            }
            Content::Lazy(stamp) => {
                let pieces = lock(&self.pieces);
                let mut parts = Vec::new();
                let (mut at, end) = (offset, offset + len as u64);
                while at < end {
                    let number = at / LAZY_PIECE_BYTES;
                    let within = at % LAZY_PIECE_BYTES;
                    let part = (LAZY_PIECE_BYTES - within).min(end - at);
                    let block = pieces.get(&stamp, number)?;
                    parts.push(Part { block: Some(block), offset: within, len: part as usize });
                    at += part;
                }
                Some(parts)
            }
            Content::Empty | Content::Unreadable(_) => Some(Vec::new()),
        }
    }

    /// Reads a range, fetching what is missing.
    async fn read_range(&self, file: &FileSource, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
        self.backlog.room().await;
        if let Content::Lazy(stamp) = file.content {
            self.learn_pieces(stamp, file.size, offset, len).await?;
        }
        let parts = self.spans(file, offset, len).ok_or(Errno::IO)?;
        self.fetch_missing(file, &parts, (offset, offset + len as u64)).await?;
        let mut out = Vec::with_capacity(len);
        for part in parts {
            match part.block {
                None => out.resize(out.len() + part.len, 0),
                Some(block) if self.read_block(&block, part.offset, part.len, &mut out) => {}
                Some(block) => {
                    let bytes = self.object(block).await?;
                    let end = part.offset as usize + part.len;
                    out.extend_from_slice(bytes.get(part.offset as usize..end).ok_or(Errno::IO)?);
                }
            }
        }
        Ok(out)
    }

    /// Fetches all blocks that a range lacks, and some after it, at once: who reads one block of a file reads the next.
    async fn fetch_missing(&self, file: &FileSource, parts: &[Part], (offset, end): (u64, u64)) -> Result<(), Errno> {
        let ahead = self.blocks_ahead(file, offset, end);
        let lacks = |digest: &Digest| !self.store.contains(self.tenant, digest);
        let missing: HashSet<Digest> = parts.iter().filter_map(|part| part.block).filter(lacks).collect();
        let fetcher = self.fetcher()?;
        let mut needed = JoinSet::new();
        for digest in ahead.into_iter().filter(lacks) {
            let fetcher = fetcher.clone();
            self.runtime.spawn(async move { fetcher.object(digest).await.map(drop) });
        }
        for digest in missing {
            let fetcher = fetcher.clone();
            needed.spawn(async move { fetcher.object(digest).await.map(drop).map_err(|error| (digest, error)) });
        }
        while let Some(fetched) = needed.join_next().await {
            fetched.map_err(|_| UNANSWERED)?.map_err(|(digest, error)| self.refused(&digest.0, &error))?;
        }
        Ok(())
    }

    /// The blocks of an eagerly hashed file to ask for beyond what is read: what is left of a small file, of a large one as its reader goes.
    fn blocks_ahead(&self, file: &FileSource, offset: u64, end: u64) -> Vec<Digest> {
        let Content::Recipe(name) = file.content else { return Vec::new() };
        let ahead = match file.size {
            0..=EAGER_FILE_BYTES_MAX => end..file.size,
            _ => self.ahead(name, file.size, offset, end),
        };
        let len = ahead.end.saturating_sub(ahead.start) as usize;
        let spans = if len > 0 { self.spans(file, ahead.start, len) } else { None };
        spans.unwrap_or_default().into_iter().filter_map(|part| part.block).collect()
    }

    /// Makes the names of the pieces in a range known, by fetching them; then asks for the rest of the run, and for what is read next.
    async fn learn_pieces(&self, stamp: Digest, size: u64, offset: u64, len: usize) -> Result<(), Errno> {
        let end = offset + len as u64;
        let mut needed = JoinSet::new();
        self.fetch_pieces(stamp, offset..end, &mut needed);
        let first = tokio::time::timeout(NEEDED_FIRST, needed.join_next()).await;
        let ahead = self.ahead(stamp, size, offset, end);
        let mut others = JoinSet::new();
        self.fetch_pieces(stamp, whole_runs(&(offset..end), size), &mut others);
        self.fetch_pieces(stamp, whole_runs(&ahead, size), &mut others);
        others.detach_all();
        let mut fetched = match first {
            Ok(fetched) => fetched,
            Err(_) => needed.join_next().await,
        };
        while let Some(one) = fetched {
            one.map_err(|_| UNANSWERED)??;
            fetched = needed.join_next().await;
        }
        Ok(())
    }

    /// Begins to fetch the files of these names that are among `bounds` and bound lazily, before anybody reads them.
    pub fn fetch_whole(&self, bounds: &[Bound], names: &[Digest]) {
        let mut room = WHOLE_BYTES_MAX;
        let mut fits = |size: u64| room.checked_sub(size).map(|left| room = left).is_some();
        let file = |bound: &Bound| match &bound.binding {
            Binding::File { attr, content: Content::Lazy(stamp), .. } if names.contains(stamp) => {
                fits(attr.size).then_some((*stamp, attr.size))
            }
            _ => None,
        };
        let files: Vec<(Digest, u64)> =
            if names.is_empty() { Vec::new() } else { bounds.iter().filter_map(file).collect() };
        if let Some(contents) = self.myself.upgrade().filter(|_| !files.is_empty()) {
            self.runtime.spawn(async move {
                for (stamp, size) in files {
                    if contents.fetch_while_soon(stamp, size).await.is_none() {
                        return;
                    }
                }
            });
        }
    }

    /// Fetches what is missing of a file, in order. `None`: it does not come soon enough, or not at all.
    async fn fetch_while_soon(&self, stamp: Digest, size: u64) -> Option<()> {
        let mut fetching = JoinSet::new();
        let pieces = size.div_ceil(LAZY_PIECE_BYTES);
        for number in 0..=pieces {
            // One alone shows how fast it goes.
            let at_once = if number <= 1 { 1 } else { WHOLE_PIECES };
            while fetching.len() >= at_once || number == pieces && !fetching.is_empty() {
                if !matches!(tokio::time::timeout(SOON, fetching.join_next()).await, Ok(Some(Ok(Ok(()))))) {
                    fetching.detach_all();
                    return None;
                }
            }
            self.backlog.room().await;
            let at = number * LAZY_PIECE_BYTES;
            self.fetch_pieces(stamp, at..(at + LAZY_PIECE_BYTES).min(size).max(at), &mut fetching);
        }
        Some(())
    }

    /// Fetches the pieces of a range that are missing, each in a task of `fetching`.
    fn fetch_pieces(&self, stamp: Digest, range: Range<u64>, fetching: &mut JoinSet<Result<(), Errno>>) {
        for number in range.start / LAZY_PIECE_BYTES..range.end.div_ceil(LAZY_PIECE_BYTES) {
            let known = lock(&self.pieces).get(&stamp, number);
            let is_here = known.is_some_and(|digest| self.store.contains(self.tenant, &digest));
            if let Some(contents) = self.myself.upgrade().filter(|_| !is_here) {
                fetching.spawn(async move { contents.fetch_piece(stamp, number).await });
            }
        }
    }

    async fn fetch_piece(&self, stamp: Digest, number: u64) -> Result<(), Errno> {
        let found = self.fetcher()?.pieces(stamp, number, 1).await.map_err(|error| self.refused(&stamp.0, &error))?;
        let (digest, _) = found.first().ok_or(UNANSWERED)?;
        lock(&self.pieces).put(stamp, number, *digest);
        Ok(())
    }

    /// The bytes worth asking for ahead of a reader that reads `offset` to `end`: more, the longer it reads in order.
    fn ahead(&self, name: Digest, size: u64, offset: u64, end: u64) -> Range<u64> {
        let mut readers = lock(&self.readers);
        if readers.len() > READERS_MAX {
            readers.clear();
        }
        readers.entry(name).or_default().read(size, offset, end)
    }
}

impl Reader {
    fn read(&mut self, size: u64, offset: u64, end: u64) -> Range<u64> {
        // The kernel reads ahead as well, and not always in order.
        if offset.abs_diff(self.next) <= IN_ORDER_BYTES {
            if end > self.next {
                self.ahead = (self.ahead * 2).clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX);
            }
        } else {
            *self = Self::default();
        }
        self.next = end;
        let from = end.max(self.asked);
        let to = (end + self.ahead).min(size);
        self.asked = to.max(self.asked);
        from..to.max(from)
    }
}

/// Part of a block, or of a hole.
struct Part {
    block: Option<Digest>,
    offset: u64,
    len: usize,
}

/// The runs of a file of `size` bytes in which these are.
fn whole_runs(bytes: &Range<u64>, size: u64) -> Range<u64> {
    let start = bytes.start - bytes.start % RUN_BYTES;
    if bytes.is_empty() { start..start } else { start..bytes.end.next_multiple_of(RUN_BYTES).min(size) }
}

impl Fetch for Contents {
    fn bind(&self, view: ViewId, task: TaskId, path: &TreePath, done: Done<Vec<Bound>>) {
        let Ok(fetcher) = self.fetcher() else { return done(Err(UNANSWERED)) };
        let (path, store, tenant) = (path.clone(), self.store.clone(), self.tenant);
        let Some(contents) = self.myself.upgrade() else { return done(Err(UNANSWERED)) };
        self.runtime.spawn(async move {
            let reply = match fetcher.bind(view, task, path.clone()).await {
                Ok(reply) => reply,
                Err(error) => {
                    tracing::debug!(%path, %error, "a path could not be bound");
                    return done(Err(contents.refused(path.as_bytes(), &error)));
                }
            };
            for object in &reply.objects {
                if let Ok(digest) = convert::digest(&object.digest) {
                    // A store that fails is a cache that misses.
                    let _ = store.put_named(tenant, digest, &object.bytes);
                }
            }
            let bounds = reply.bounds.into_iter().filter_map(|bound| Bound::try_from(bound).ok());
            let bounds: Vec<Bound> = bounds.collect();
            contents.expect(&bounds);
            done(Ok(bounds));
        });
    }

    fn blob(&self, digest: Digest, done: Done<Vec<u8>>) {
        if let Ok(Some(bytes)) = self.store.get(self.tenant, &digest) {
            return done(Ok(bytes));
        }
        let Some(contents) = self.myself.upgrade() else { return done(Err(UNANSWERED)) };
        self.runtime.spawn(async move { done(contents.fetch(digest).await.map(|bytes| bytes.to_vec())) });
    }

    fn read_now(&self, file: &FileSource, offset: u64, len: usize, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let Some(parts) = self.spans(file, offset, len) else { return false };
        for part in parts {
            let there = match part.block {
                None => {
                    out.resize(out.len() + part.len, 0);
                    true
                }
                Some(block) => self.read_block(&block, part.offset, part.len, out),
            };
            if !there {
                out.truncate(start);
                return false;
            }
        }
        true
    }

    fn read(&self, file: &FileSource, offset: u64, len: usize, done: Done<Vec<u8>>) {
        let Some(contents) = self.myself.upgrade() else { return done(Err(UNANSWERED)) };
        let file = file.clone();
        self.runtime.spawn(async move { done(contents.read_range(&file, offset, len).await) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Attr, NodeId, Seq};
    use std::sync::atomic::AtomicUsize;
    use wire::Connection;
    use wire::message::{ObjectReply, Open, OpenKind};

    const NAME: Digest = Digest([7; 32]);

    /// How many pieces of a file of so many are asked for before anybody reads it, where each takes so long to come.
    async fn pieces_fetched(count: u64, delay: Duration) -> usize {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Arc::new(BlockStore::open(folder.path(), store::Options::default()).expect("opens"));
        let backlog = Arc::new(Backlog::new(store.clone()));
        let contents = Contents::new(Bytes::new(), Tenant(0), backlog, store.clone(), Arc::default());
        let [one, other] = [1, 2].map(|number| NodeId(Digest([number; 32])));
        let (near, far) = Connection::within_process(one, other);
        let keep = Arc::new(move |digest, bytes: &Bytes| store.put_checked(Tenant(0), digest, bytes).expect("kept"));
        let none = Arc::new(|_: &Digest| None);
        *lock(&contents.fetcher) = Some(Fetcher::new(near, Default::default(), HUB_LIMIT, keep, none));
        let asked = Arc::new(AtomicUsize::new(0));
        let answered = asked.clone();
        let answering = tokio::spawn(async move {
            while let Ok((mut sender, mut receiver)) = far.accept_control().await {
                let Ok(Some(Open { kind: Some(OpenKind::Pieces(request)) })) = receiver.next().await else { return };
                answered.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    tokio::time::sleep(delay).await;
                    let bytes = Bytes::from(request.first.to_le_bytes().to_vec());
                    let digest = wire::message::digest_bytes(&Digest::of(&bytes));
                    let _ = sender.answer_object(ObjectReply { digest, bytes, ..ObjectReply::default() }).await;
                    sender.finish();
                });
            }
        });
        let attr = Attr { size: count * LAZY_PIECE_BYTES, ..Attr::default() };
        let binding = Binding::File { attr, content: Content::Lazy(NAME), xattrs: Vec::new() };
        let path = TreePath::parse(b"/usr/lib/cc1").expect("a path");
        let bounds = [Bound { path, seq: Seq(1), binding }];
        contents.fetch_whole(&bounds, &[]);
        contents.fetch_whole(&bounds, &[NAME]);
        let is_done = || lock(&contents.pieces).len() as u64 == count;
        for _ in 0..30 {
            if is_done() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        answering.abort();
        asked.load(Ordering::SeqCst)
    }

    #[tokio::test]
    async fn what_is_wanted_whole_is_fetched_while_it_comes_soon() {
        // On a busy machine nothing comes soon.
        let mut tries = 0;
        while pieces_fetched(9, Duration::ZERO).await != 9 {
            tries += 1;
            assert!(tries < 10, "each once");
        }
        assert_eq!(pieces_fetched(9, 5 * SOON).await, 1, "over a slow link no more than one is tried");
        let too_much = WHOLE_BYTES_MAX / LAZY_PIECE_BYTES + 1;
        assert_eq!(pieces_fetched(too_much, Duration::ZERO).await, 0);
    }

    #[test]
    fn who_reads_in_order_is_read_ahead_of_ever_further() {
        const SIZE: u64 = 1 << 30;
        let mut reader = Reader::default();
        let (mut at, mut asked) = (0, 0);
        for round in 0..300 {
            let end = at + (128 << 10);
            let ahead = reader.read(SIZE, at, end);
            assert!(ahead.start >= asked, "nothing is asked for twice");
            asked = asked.max(ahead.end);
            assert!(asked - end <= AHEAD_BYTES_MAX && (round < 10 || asked - end > AHEAD_BYTES_MAX / 2));
            at = end;
        }
        assert_eq!(reader.read(SIZE, 500 << 20, 501 << 20).count(), 0, "a jump");
        assert_eq!(reader.read(SIZE, 900 << 20, 901 << 20).count(), 0, "another");
        assert_eq!(reader.read(SIZE, 901 << 20, 902 << 20).count() as u64, AHEAD_BYTES_MIN);
        let last = reader.read(SIZE, SIZE - 1, SIZE);
        assert!(last.is_empty());
    }
}

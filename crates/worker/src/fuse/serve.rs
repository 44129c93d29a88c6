//! Answers the kernel's requests: at once from what is known, or when what is missing has been fetched.
//!
//! No lock is held while anything is asked, answered or invalidated: an invalidation waits in the kernel for lookups that
//! wait for us. Lock order: pending, then lanes.

use super::device::{Device, REQUEST_BYTES_MAX};
use super::fetch::{Done, Fetch, FileSource, UNANSWERED};
use super::holes::{is_hole, seek};
use super::pending::{Call, Key, Op, Pending, Wait};
use super::processes::{is_dying, is_own};
use super::protocol::{self, Header, Request};
use super::{Counters, MountOptions, decode_or_io};
use crate::ids::Table;
use base::{Bound, Content, Digest, NodeKind, Recipe, TreePath, Version, ViewId, Xattr};
use mirror::{Attributes, Cache, Fault, LaneNumber, Lanes, Lookup, Names, NodeId, ROOT, shown_ino};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use wire::lock;

/// Bytes of recipes that are kept.
const RECIPE_BYTES_MAX: usize = 32 << 20;
/// How soon after it was killed a process is noticed that had an interrupt earlier, for which the kernel sends no other.
const DYING_TICK: Duration = Duration::from_millis(50);

/// What the threads of a mount share.
pub(super) struct Shared {
    pub(super) device: Device,
    /// For answers, which must not keep the connection open.
    me: Weak<Shared>,
    fetch: Arc<dyn Fetch>,
    pub(super) ids: Arc<Table>,
    with_xattrs: bool,
    /// Views in which a path has attributes that this mount does not show.
    attributed: watch::Sender<HashSet<ViewId>>,
    unlistable: watch::Sender<HashMap<LaneNumber, TreePath>>,
    lanes: Mutex<Lanes>,
    recipes: Mutex<Cache<Arc<Recipe>>>,
    pending: Mutex<Pending>,
    /// Wakes the keeper: a first deadline, an interrupt, the end.
    wake: Condvar,
    /// The keeper's thread, whose questions at the end each free one thread.
    keeper: AtomicU32,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    lookups: AtomicU64,
    getattrs: AtomicU64,
    readdirs: AtomicU64,
    readlinks: AtomicU64,
    reads: AtomicU64,
    others: AtomicU64,
}

/// What a request lacks.
enum Need {
    Bind(Fault),
    Listing(LaneNumber, Digest),
    Recipe(Digest),
    Bytes(FileSource, u64, usize),
    /// It cannot be answered here: the tasks of the lane have to run where the directory can be looked into.
    Client(LaneNumber, TreePath),
}

/// Hands on an answer once; if it is dropped before, that there is none.
struct Answer<T>(Option<Done<T>>);

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err(UNANSWERED));
        }
    }
}

/// `done` with the certainty that it is called.
fn certainly<T: 'static>(done: impl FnOnce(Result<T, Errno>) + Send + 'static) -> Done<T> {
    let mut answer = Answer(Some(Box::new(done)));
    Box::new(move |result| {
        if let Some(done) = answer.0.take() {
            done(result);
        }
    })
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("device", &self.device).finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(device: Device, fetch: Arc<dyn Fetch>, options: &MountOptions) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            device,
            me: me.clone(),
            fetch,
            ids: options.ids.clone(),
            with_xattrs: options.with_xattrs,
            attributed: watch::Sender::default(),
            unlistable: watch::Sender::default(),
            lanes: Mutex::new(Lanes::new(options.limits)),
            recipes: Mutex::new(Cache::new(RECIPE_BYTES_MAX)),
            pending: Mutex::new(Pending::new(options.wait_max)),
            wake: Condvar::new(),
            keeper: AtomicU32::new(0),
            counts: Counts::default(),
        })
    }

    pub(super) fn lanes(&self) -> MutexGuard<'_, Lanes> {
        lock(&self.lanes)
    }

    pub(super) fn recipes(&self) -> MutexGuard<'_, Cache<Arc<Recipe>>> {
        lock(&self.recipes)
    }

    /// Notes that paths of a view have attributes that this mount does not show, or whose values it does not have; whether the view's
    /// tasks, which were not started for that, must not be told of these.
    pub(super) fn note_xattrs(&self, view: ViewId, bounds: &[Bound]) -> bool {
        let is_lacked = |xattr: &Xattr| !self.with_xattrs || xattr.is_kept_back();
        let lacks = bounds.iter().any(|bound| bound.binding.xattrs().iter().any(is_lacked));
        let is_news = lacks && self.attributed.send_if_modified(|views| views.insert(view));
        if self.with_xattrs { is_news } else { lacks }
    }

    /// Views in which a path has attributes that this mount does not show, or whose values it does not have.
    pub(super) fn attributed(&self) -> &watch::Sender<HashSet<ViewId>> {
        &self.attributed
    }

    /// Lanes whose tasks look into a directory that cannot be listed, and into which.
    pub(super) fn unlistable(&self) -> &watch::Sender<HashMap<LaneNumber, TreePath>> {
        &self.unlistable
    }

    pub(super) fn pending(&self) -> MutexGuard<'_, Pending> {
        lock(&self.pending)
    }

    pub(super) fn counters(&self) -> Counters {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counters {
            lookups: read(&self.counts.lookups),
            getattrs: read(&self.counts.getattrs),
            readdirs: read(&self.counts.readdirs),
            readlinks: read(&self.counts.readlinks),
            reads: read(&self.counts.reads),
            others: read(&self.counts.others),
            waiting: self.pending().len() as u64,
        }
    }

    /// Answers requests until the mount ends.
    pub(super) fn run(&self) {
        let mut buffer = vec![0; REQUEST_BYTES_MAX];
        let mut bytes = Vec::new();
        loop {
            let len = match self.device.receive(&mut buffer) {
                Ok(len) => len,
                Err(Errno::NODEV) => return,
                Err(error) => {
                    tracing::error!(%error, "a thread of a mirror cannot read requests and ends");
                    return;
                }
            };
            match protocol::parse(&buffer[..len]) {
                Some((_, Request::Destroy)) => return,
                Some((header, request)) => {
                    let last = request == Request::StatFs && header.pid == self.keeper.load(Ordering::Acquire);
                    self.handle(header, request, &mut bytes);
                    if last {
                        return;
                    }
                }
                None => tracing::error!(len, "the kernel sent a FUSE request that cannot be parsed"),
            }
        }
    }

    /// Ends what waits too long, or whose process is being killed, until the mirror stops.
    pub(super) fn keep(&self) {
        let mut pending = self.pending();
        while !pending.stopping {
            let now = Instant::now();
            let late = pending.end_late(now);
            pending.unanswered += late.len() as u64;
            let dying = pending.end_dying(is_dying);
            if !late.is_empty() || !dying.is_empty() {
                drop(pending);
                tracing::warn!(late = late.len(), killed = dying.len(), "requests to the mirror ended unanswered");
                self.refuse_all(&late, Errno::IO);
                self.refuse_all(&dying, Errno::INTR);
                pending = self.pending();
                continue;
            }
            let tick = pending.has_interrupted().then_some(DYING_TICK);
            let until = pending.next_deadline().map(|deadline| deadline.saturating_duration_since(now));
            let rest = tick.into_iter().chain(until).min();
            pending = match rest {
                Some(rest) => self.wake.wait_timeout(pending, rest).map_or_else(|e| e.into_inner().0, |found| found.0),
                None => self.wake.wait(pending).unwrap_or_else(std::sync::PoisonError::into_inner),
            };
        }
        // From here on each question of this thread ends one that answers.
        self.keeper.store(rustix::thread::gettid().as_raw_nonzero().get() as u32, Ordering::Release);
    }

    /// Has nothing wait any more, and the keeper end the mount.
    pub(super) fn stop(&self) {
        let ended = {
            let mut pending = self.pending();
            pending.stopping = true;
            pending.end_all()
        };
        self.wake.notify_all();
        self.refuse_all(&ended, Errno::IO);
    }

    /// Fails what waits in a lane, as far as `which` picks it by its process.
    pub(super) fn end_lane(&self, lane: LaneNumber, which: impl Fn(u32) -> bool) {
        let ended = self.pending().end_lane(lane, which);
        self.refuse_all(&ended, Errno::IO);
    }

    /// What `key` stands for is known now: those that wait for it go on.
    pub(super) fn answered(&self, key: &Key) {
        let calls = self.pending().take(key);
        calls.into_iter().for_each(|call| self.serve(call));
    }

    fn handle(&self, header: Header, request: Request<'_>, bytes: &mut Vec<u8>) {
        let count = |count: &AtomicU64| {
            count.fetch_add(1, Ordering::Relaxed);
        };
        let counts = &self.counts;
        match request {
            Request::Forget { count } => return self.lanes().forget(header.node, count),
            Request::BatchForget { nodes } => {
                let mut lanes = self.lanes();
                return nodes.into_iter().for_each(|(node, count)| lanes.forget(node, count));
            }
            Request::Interrupt { unique } => return self.interrupt(unique),
            Request::Lookup { .. } => count(&counts.lookups),
            Request::GetAttr => count(&counts.getattrs),
            Request::ReadDir { .. } => count(&counts.readdirs),
            Request::ReadLink => count(&counts.readlinks),
            Request::Read { .. } => count(&counts.reads),
            _ => count(&counts.others),
        }
        match request {
            Request::Lookup { name } if name.len() > 255 => self.refuse(header, Errno::NAMETOOLONG),
            Request::Lookup { name } => self.serve(Call::new(header, Op::Lookup { name: name.to_vec() })),
            Request::GetAttr => self.serve(Call::new(header, Op::GetAttr)),
            Request::ReadDir { offset, size } => self.serve(Call::new(header, Op::ReadDir { offset, size })),
            Request::Read { offset, size } => self.read(Call::new(header, Op::Read { offset, size }), bytes),
            Request::Lseek { offset, whence } => self.serve(Call::new(header, Op::Lseek { offset, whence })),
            Request::ReadLink => {
                let target = self.lanes().readlink(header.node).map(<[u8]>::to_vec);
                self.finish(header, target.ok_or(Errno::STALE));
            }
            Request::StatFs => self.finish(header, Ok(protocol::statfs_answer())),
            Request::GetXattr { name, size } => self.finish(header, self.get_xattr(header.node, name, size)),
            Request::ListXattr { size } => self.finish(header, self.list_xattrs(header.node, size)),
            Request::Write => self.refuse(header, Errno::ROFS),
            // ENOSYS also says: never ask again. So the kernel opens, flushes and closes by itself.
            _ => self.refuse(header, Errno::NOSYS),
        }
    }

    /// Answers a request, or has it wait.
    fn serve(&self, call: Call) {
        let (header, node) = (call.header, call.node());
        let result = match &call.op {
            Op::Lookup { name } => self.lookup(&call, name),
            Op::GetAttr if node == ROOT => Ok(Ok(protocol::attr_answer(&protocol::root_shown(), &self.ids))),
            Op::GetAttr => self.attributes(node),
            Op::ReadDir { offset, size } if node == ROOT => Ok(Ok(read_root(*offset, *size))),
            Op::ReadDir { offset, size } => self.read_dir(&call, *offset, *size),
            Op::Read { .. } => return self.read(call, &mut Vec::new()),
            Op::Lseek { offset, whence } => self.lseek(node, *offset, *whence),
        };
        match result {
            Ok(answer) => self.finish(header, answer),
            Err(need) => self.wait(call, need),
        }
    }

    fn lookup(&self, call: &Call, name: &[u8]) -> Result<Result<Vec<u8>, Errno>, Need> {
        let (parent, unlisted) = (call.node(), call.unlisted);
        let mut lanes = self.lanes();
        Ok(match lanes.lookup(parent, name) {
            Lookup::Found(shown) => Ok(protocol::entry_answer(&shown, &self.ids)),
            Lookup::FoundRoot(root) => Ok(protocol::root_answer(root, &self.ids)),
            Lookup::Absent { keep: true } => Ok(protocol::absent_answer()),
            Lookup::Absent { keep: false } => Err(Errno::NOENT),
            Lookup::Closed { lane, path } if !is_own(call.header.pid) => return Err(Need::Client(lane, path)),
            Lookup::Denied | Lookup::Closed { .. } => Err(Errno::ACCESS),
            Lookup::Stale => Err(Errno::STALE),
            Lookup::Fault(fault) => return Err(Need::Bind(fault)),
            // Without the listing the name itself must be asked.
            Lookup::NeedsListing(..) if unlisted => match lanes.fault(parent, name) {
                Some(fault) => return Err(Need::Bind(fault)),
                None => Err(Errno::STALE),
            },
            Lookup::NeedsListing(lane, digest) => return Err(Need::Listing(lane, digest)),
        })
    }

    fn attributes(&self, node: NodeId) -> Result<Result<Vec<u8>, Errno>, Need> {
        match self.lanes().attributes(node) {
            Attributes::Found(shown) => Ok(Ok(protocol::attr_answer(&shown, &self.ids))),
            Attributes::Fault(fault) => Err(Need::Bind(fault)),
            Attributes::Stale => Ok(Err(Errno::STALE)),
        }
    }

    fn read_dir(&self, call: &Call, offset: u64, size: u32) -> Result<Result<Vec<u8>, Errno>, Need> {
        let (node, unlisted) = (call.node(), call.unlisted);
        let names = self.lanes().listing(node);
        let (listing, ino, parent_ino, mark) = match names {
            Names::Found { listing, ino, parent_ino, ino_mark } => (listing, ino, parent_ino, ino_mark),
            Names::Fault(fault) => return Err(Need::Bind(fault)),
            Names::NeedsListing(..) if unlisted => return Ok(Err(Errno::IO)),
            Names::NeedsListing(lane, digest) => return Err(Need::Listing(lane, digest)),
            // The worker itself reads what a task left; the kernel asks for an overlay, to remove or replace the directory.
            Names::Unlistable { .. } if is_own(call.header.pid) => return Ok(Err(Errno::ACCESS)),
            Names::Unlistable { lane, path } => return Err(Need::Client(lane, path)),
            Names::Stale => return Ok(Err(Errno::STALE)),
        };
        let mut out = Vec::with_capacity(size as usize);
        for (at, (name, ino)) in (0..).zip([(&b"."[..], ino), (b"..", parent_ino)]) {
            if at >= offset && !protocol::put_entry(&mut out, size, ino, at + 1, u32::from(libc::DT_DIR), name) {
                return Ok(Ok(out));
            }
        }
        let first = usize::try_from(offset.saturating_sub(2)).unwrap_or(usize::MAX);
        for (at, entry) in listing.entries.iter().enumerate().skip(first) {
            let kind = match entry.kind {
                NodeKind::Directory => libc::DT_DIR,
                NodeKind::File => libc::DT_REG,
                NodeKind::Symlink => libc::DT_LNK,
                NodeKind::Fifo => libc::DT_FIFO,
                NodeKind::Socket => libc::DT_SOCK,
                NodeKind::Device => libc::DT_CHR,
            };
            if !protocol::put_entry(&mut out, size, shown_ino(entry.ino, mark), at as u64 + 3, kind.into(), &entry.name)
            {
                break;
            }
        }
        Ok(Ok(out))
    }

    fn lseek(&self, node: NodeId, offset: u64, whence: u32) -> Result<Result<Vec<u8>, Errno>, Need> {
        let Some(file) = self.file(node)? else { return Ok(Err(Errno::STALE)) };
        let found = seek(file.size, file.recipe.as_deref(), offset, whence as i32);
        Ok(found.map(|at| at.to_ne_bytes().to_vec()))
    }

    /// Answers a READ with the help of `bytes`, a buffer that is kept for it.
    fn read(&self, call: Call, bytes: &mut Vec<u8>) {
        let Op::Read { offset, size } = call.op else { return };
        let file = match self.file(call.node()) {
            Ok(Some(file)) => file,
            Ok(None) => return self.refuse(call.header, Errno::STALE),
            Err(need) => return self.wait(call, need),
        };
        let len = usize::try_from(file.size.saturating_sub(offset)).unwrap_or(usize::MAX).min(size as usize);
        bytes.clear();
        match file.content {
            Content::Unreadable(error) => {
                let known = (1..4096).contains(&error).then(|| Errno::from_raw_os_error(error));
                return self.refuse(call.header, known.unwrap_or(Errno::IO));
            }
            _ if len == 0 => {}
            // An empty file with a length is a lie of its binding.
            Content::Empty => return self.refuse(call.header, Errno::IO),
            _ if file.recipe.as_deref().is_some_and(|recipe| is_hole(recipe, offset, len as u64)) => {
                bytes.resize(len, 0);
            }
            _ if self.fetch.read_now(&file, offset, len, bytes) => {}
            _ => return self.wait(call, Need::Bytes(file, offset, len)),
        }
        match bytes.len() == len {
            true => drop(self.device.answer(call.header.unique, bytes)),
            // A short answer would cut the file off in the kernel's view.
            false => self.refuse(call.header, Errno::IO),
        }
    }

    /// The file `node`, with its recipe if it has one.
    fn file(&self, node: NodeId) -> Result<Option<FileSource>, Need> {
        let Some(source) = self.lanes().source(node) else { return Ok(None) };
        let recipe = match source.content {
            Content::Recipe(digest) => Some(self.recipes().get(&digest).ok_or(Need::Recipe(digest))?),
            _ => None,
        };
        let mirror::Source { view, path, seq, content, size } = source;
        Ok(Some(FileSource { view, path, seq, content, size, recipe }))
    }

    fn get_xattr(&self, node: NodeId, name: &[u8], size: u32) -> Result<Vec<u8>, Errno> {
        if !self.with_xattrs {
            return Err(Errno::NOSYS);
        }
        let xattrs = self.lanes().xattrs(node).unwrap_or_default();
        let xattr = xattrs.into_iter().find(|xattr| xattr.name == name && is_shown(name)).ok_or(Errno::NODATA)?;
        protocol::xattr_answer(xattr.value, size).ok_or(Errno::RANGE)
    }

    fn list_xattrs(&self, node: NodeId, size: u32) -> Result<Vec<u8>, Errno> {
        if !self.with_xattrs {
            return Err(Errno::NOSYS);
        }
        let xattrs = self.lanes().xattrs(node).unwrap_or_default();
        let mut names = Vec::new();
        for xattr in xattrs.iter().filter(|xattr| is_shown(&xattr.name)) {
            names.extend_from_slice(&xattr.name);
            names.push(0);
        }
        protocol::xattr_answer(names, size).ok_or(Errno::RANGE)
    }

    /// The process of a request got a signal. If that kills it, it must not wait any more; else it must, since on other
    /// file systems no signal ends a lookup.
    fn interrupt(&self, unique: u64) {
        let ends = self.pending().interrupt(unique, is_dying);
        if ends {
            self.refuse_all(&[unique], Errno::INTR);
        }
        self.wake.notify_all();
    }

    fn wait(&self, call: Call, need: Need) {
        let (key, lane) = match &need {
            Need::Bind(fault) => (Key::Bind(fault.view, fault.path.clone()), Some(fault.lane)),
            Need::Listing(lane, digest) => (Key::Listing(*digest), Some(*lane)),
            Need::Recipe(digest) => (Key::Recipe(*digest), None),
            Need::Bytes(..) => (Key::Bytes(call.header.unique), None),
            Need::Client(lane, _) => (Key::Bytes(call.header.unique), Some(*lane)),
        };
        let (header, first) = (call.header, call.waits == 0);
        let waits = self.pending().wait(call, key.clone(), lane, Instant::now());
        if first {
            self.wake.notify_all();
        }
        match waits {
            Wait::Refused => self.refuse(header, Errno::IO),
            Wait::Joined => {}
            // The answer can have come between the attempt and the wait.
            Wait::Ask if self.is_met(&need) => self.answered(&key),
            Wait::Ask => self.ask(need, key),
        }
    }

    fn is_met(&self, need: &Need) -> bool {
        match need {
            Need::Bind(fault) => self.lanes().is_bound(fault.lane, &fault.path),
            Need::Listing(_, digest) => self.lanes().has_listing(digest),
            Need::Recipe(digest) => self.recipes().peek(digest).is_some(),
            Need::Bytes(..) | Need::Client(..) => false,
        }
    }

    fn ask(&self, need: Need, key: Key) {
        let me = self.me.clone();
        match need {
            Need::Bind(fault) => {
                let (view, path) = (fault.view, fault.path.clone());
                let asked = self.lanes().version(view).unwrap_or(Version(0));
                let done = certainly(move |result: Result<Vec<Bound>, Errno>| {
                    let Some(me) = me.upgrade() else { return };
                    let is_answer = |bounds: &Vec<Bound>| bounds.iter().any(|bound| bound.path == path);
                    let result =
                        result.and_then(|bounds| if is_answer(&bounds) { Ok(bounds) } else { Err(UNANSWERED) });
                    if result.as_ref().is_ok_and(|bounds| me.is_too_late(view, bounds)) {
                        // What asked waits until its task, which must start again, is killed.
                        return;
                    }
                    let learned = result.map(|bounds| me.lanes().learn(view, bounds, asked));
                    me.go_on(&key, learned);
                });
                self.fetch.bind(fault.view, fault.task, &fault.path, done);
            }
            Need::Listing(_, digest) => {
                let done = certainly(move |result| {
                    let Some(me) = me.upgrade() else { return };
                    let kept = decode_or_io(digest, result).map(|(listing, len)| me.put_listing(digest, listing, len));
                    me.go_on(&key, kept);
                });
                self.fetch.blob(digest, done);
            }
            Need::Recipe(digest) => {
                let done = certainly(move |result| {
                    let Some(me) = me.upgrade() else { return };
                    let kept = decode_or_io(digest, result).map(|(recipe, _)| me.put_recipe(digest, recipe));
                    me.go_on(&key, kept);
                });
                self.fetch.blob(digest, done);
            }
            // What asked waits until its task is killed.
            Need::Client(lane, path) => {
                self.unlistable.send_if_modified(|lanes| lanes.insert(lane, path).is_none());
            }
            Need::Bytes(file, offset, len) => {
                let done = certainly(move |result: Result<Vec<u8>, Errno>| {
                    let Some(me) = me.upgrade() else { return };
                    let result = result.and_then(|bytes| if bytes.len() == len { Ok(bytes) } else { Err(Errno::IO) });
                    // Nobody waits any more if the request has ended meanwhile.
                    if let Some(call) = me.take(&key, result.as_ref().err()).pop() {
                        me.finish(call.header, result);
                    }
                });
                self.fetch.read(&file, offset, len, done);
            }
        }
    }

    /// Those that wait for `key`, which has this error, if any.
    fn take(&self, key: &Key, error: Option<&Errno>) -> Vec<Call> {
        let mut pending = self.pending();
        if error == Some(&UNANSWERED) {
            pending.note_unanswered(key);
        }
        pending.take(key)
    }

    /// Those that wait for `key` try again, or fail.
    fn go_on(&self, key: &Key, result: Result<(), Errno>) {
        let calls = self.take(key, result.as_ref().err());
        for mut call in calls {
            match (result, key) {
                (Ok(()), _) => self.serve(call),
                (Err(_), Key::Listing(_)) => {
                    call.unlisted = true;
                    self.serve(call);
                }
                (Err(error), _) => self.refuse(call.header, error),
            }
        }
    }

    fn finish(&self, header: Header, answer: Result<Vec<u8>, Errno>) {
        match answer {
            // Fails only if the connection ends, and then the kernel has forgotten all.
            Ok(body) => drop(self.device.answer(header.unique, &body)),
            Err(error) => self.refuse(header, error),
        }
    }

    fn refuse(&self, header: Header, error: Errno) {
        self.refuse_all(&[header.unique], error);
    }

    fn refuse_all(&self, uniques: &[u64], error: Errno) {
        let error = if error == UNANSWERED { Errno::IO } else { error };
        for unique in uniques {
            // As above: there is nobody to tell.
            let _ = self.device.refuse(*unique, error);
        }
    }
}

/// The directory of the lanes, which lists none: they come and go, and the kernel keeps what it is told.
fn read_root(offset: u64, size: u32) -> Vec<u8> {
    let mut out = Vec::new();
    for (at, name) in (0..).zip([&b"."[..], b".."]) {
        if at >= offset && !protocol::put_entry(&mut out, size, ROOT.0, at + 1, u32::from(libc::DT_DIR), name) {
            break;
        }
    }
    out
}

/// Whether an attribute of this name is shown: those that steer an overlay are not.
fn is_shown(name: &[u8]) -> bool {
    name.starts_with(b"user.") && !name.starts_with(b"user.overlay.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlay_attributes_are_not_shown() {
        assert!(is_shown(b"user.mime_type"));
        assert!(!is_shown(b"user.overlay.opaque") && !is_shown(b"trusted.overlay.opaque") && !is_shown(b"security.x"));
    }
}

//! The mirrored file system as the kernel sees it: one read-only FUSE mount for each client, with a subtree (lane) for
//! each view and version in use, to be the lower layer of tasks' overlays.
//!
//! What is shown where, and what must be invalidated, `mirror` decides; here are the kernel's protocol, the threads that
//! answer it, and the waiting for what must be asked elsewhere ([`Fetch`]).
//!
//! The kernel may keep all that it is told for ever, opens without asking, and serves pages from its cache; so a warm
//! task costs no request at all.

mod device;
mod fetch;
mod holes;
mod pending;
mod processes;
mod protocol;
mod serve;

pub use device::detach_left_over;
pub use fetch::{Done, Fetch, FileSource, UNANSWERED};

use crate::ids::{Table, Use};
use base::codec::{Encode, Malformed};
use base::delta::Base;
use base::{Bound, Digest, Listing, Recipe, TaskId, TreePath, Version, ViewId, ViewUpdate};
use device::MountHandle;
pub use mirror::{Applied, Gap, Limits, NoLane};

use mirror::{Evidence, Invalidation, LaneNumber};
use pending::{Key, LaneLog};
use rustix::io::Errno;
use serve::Shared;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use wire::fetch::ANSWER_LIMIT;
use wire::lock;

/// How to mount a mirror.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Where. Made if its parent exists; must not be used by anything else.
    pub mount_point: PathBuf,
    /// The client's user and group ids, and how files of theirs are shown.
    pub ids: Arc<Table>,
    /// Users other than the one that mounts may use it.
    pub allow_other: bool,
    /// Show `user.` attributes. Costs a request for each question about attributes, of which overlayfs has many: for
    /// views in which a binding has any.
    pub with_xattrs: bool,
    /// Threads that answer the kernel.
    pub threads: usize,
    /// How long a request may wait for an answer from elsewhere before it fails with `EIO`.
    pub wait_max: Duration,
    /// What is kept at most.
    pub limits: Limits,
}

impl MountOptions {
    /// The usual options for a mount at `mount_point`, where the client's id 0 is `id_base`.
    pub fn new(mount_point: impl Into<PathBuf>, id_base: u32) -> Self {
        Self {
            mount_point: mount_point.into(),
            ids: Arc::new(Table::new(id_base)),
            allow_other: true,
            with_xattrs: false,
            threads: std::thread::available_parallelism().map_or(2, |count| count.get().clamp(2, 8)),
            wait_max: ANSWER_LIMIT + Duration::from_secs(60),
            limits: Limits::default(),
        }
    }
}

/// Why a task gets no lane of a mirror.
#[derive(Debug, thiserror::Error)]
pub enum LaneError {
    /// The view is not here as the launch needs it.
    #[error(transparent)]
    View(#[from] NoLane),
    /// The kernel refused an invalidation.
    #[error("the kernel did not forget what changed in the mirror: {0}; mount the client anew")]
    Kernel(#[source] io::Error),
}

/// What the kernel asked, since the mount was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// LOOKUP.
    pub lookups: u64,
    /// GETATTR.
    pub getattrs: u64,
    /// READDIR.
    pub readdirs: u64,
    /// READLINK.
    pub readlinks: u64,
    /// READ.
    pub reads: u64,
    /// Anything else but forgetting.
    pub others: u64,
    /// Requests that wait now.
    pub waiting: u64,
}

/// One client's files, mounted. Unmounted when dropped, which fails all requests that still wait.
#[derive(Debug)]
pub struct Mirror {
    shared: Arc<Shared>,
    mount_point: PathBuf,
    with_xattrs: bool,
    /// Held while lanes are prepared, so that no task gets one whose invalidations are still under way.
    preparing: Mutex<()>,
    keeper: Option<JoinHandle<()>>,
}

impl Mirror {
    /// Mounts a mirror, in the caller's mount namespace (which ought to be private: a copy of it keeps the mount alive).
    pub fn mount(options: MountOptions, fetch: Arc<dyn Fetch>) -> io::Result<Arc<Self>> {
        device::make_mount_point(&options.mount_point)?;
        let (device, mount) = device::mount(&options.mount_point, options.allow_other)?;
        let shared = Shared::new(device, fetch, &options);
        let keeper = match start(&shared, options.threads.max(1), mount) {
            Ok(keeper) => Some(keeper),
            Err(error) => {
                // The connection ends with the last use of the device; the mount is dead then, and gives way.
                shared.stop();
                rustix::mount::unmount(&options.mount_point, rustix::mount::UnmountFlags::DETACH)?;
                return Err(error);
            }
        };
        let MountOptions { mount_point, with_xattrs, .. } = options;
        Ok(Arc::new(Self { shared, mount_point, with_xattrs, preparing: Mutex::new(()), keeper }))
    }

    /// Notes what an update tells of attributes, and says whether a path of the view has any that this mount does not show:
    /// then the view's tasks need one that does. Where all are shown: whether the values of some stay at the client.
    pub fn lacks_xattrs(&self, update: &ViewUpdate) -> bool {
        self.shared.note_xattrs(update.view, &update.set) || self.shared.attributed().borrow().contains(&update.view)
    }

    /// All of a view, as far as it is known here.
    pub fn whole_view(&self, view: ViewId) -> Option<ViewUpdate> {
        self.shared.lanes().whole_view(view)
    }

    /// Where it is mounted.
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// Takes a step of a view, before [`Mirror::take_lane`] for the launch that carried it. Running tasks go on to see
    /// the version that they were launched with.
    pub fn apply(&self, update: &ViewUpdate) -> Result<Applied, Gap> {
        self.shared.lanes().apply(update)
    }

    /// The version of `view` that is held; `None` if the whole view must be sent.
    pub fn version(&self, view: ViewId) -> Option<Version> {
        self.shared.lanes().version(view)
    }

    /// Takes in an encoded listing that was sent unasked. Answers what waits for it.
    pub fn put_listing(&self, digest: Digest, bytes: &[u8]) -> Result<(), Malformed> {
        self.shared.keep_listing(digest, bytes)?;
        self.shared.answered(&Key::Listing(digest));
        Ok(())
    }

    /// Takes in an encoded recipe that was sent unasked. Answers what waits for it.
    pub fn put_recipe(&self, digest: Digest, bytes: &[u8]) -> Result<(), Malformed> {
        self.shared.keep_recipe(digest, bytes)?;
        self.shared.answered(&Key::Recipe(digest));
        Ok(())
    }

    /// Gives `task` a lane that shows `view` at `version`. Call it where blocking for some microseconds is no harm.
    pub fn take_lane(self: &Arc<Self>, view: ViewId, version: Version, task: TaskId) -> Result<LaneGuard, LaneError> {
        let _preparing = lock(&self.preparing);
        self.prepare_lane(view, version, task)
    }

    /// The same where that takes no time, as when nothing has changed since the launch before; otherwise `None`.
    pub fn take_ready_lane(self: &Arc<Self>, view: ViewId, version: Version, task: TaskId) -> Option<LaneGuard> {
        let _preparing = self.preparing.try_lock().ok()?;
        let is_ready = self.shared.lanes().is_ready(view, version);
        if is_ready { self.prepare_lane(view, version, task).ok() } else { None }
    }

    fn prepare_lane(self: &Arc<Self>, view: ViewId, version: Version, task: TaskId) -> Result<LaneGuard, LaneError> {
        let taken = self.shared.lanes().take(view, version, task)?;
        let forgot = taken.invalidations.iter().try_for_each(|what| self.shared.device.invalidate(what));
        if let Err(error) = forgot {
            // A lane that is not true must never be used.
            let mut lanes = self.shared.lanes();
            lanes.release(taken.lane, task);
            lanes.drop_lane(taken.lane);
            return Err(LaneError::Kernel(error.into()));
        }
        let (started, unanswered) = {
            let mut pending = self.shared.pending();
            // Whoever did not answer an earlier task may answer this one.
            pending.logs.get_mut(&taken.lane).into_iter().for_each(|log| log.is_late = false);
            (pending.logs.get(&taken.lane).cloned().unwrap_or_default(), pending.unanswered)
        };
        let ids = self.shared.ids.begin(view);
        let attributed = self.shared.attributed().subscribe();
        let keeps_xattrs_back = self.with_xattrs && attributed.borrow().contains(&view);
        let unlistable = self.shared.unlistable().subscribe();
        Ok(LaneGuard {
            mirror: self.clone(),
            view,
            lane: taken.lane,
            task,
            started,
            unanswered,
            ids,
            keeps_xattrs_back,
            attributed,
            unlistable,
        })
    }

    /// What the kernel asked so far.
    pub fn counters(&self) -> Counters {
        self.shared.counters()
    }

    /// For how long the oldest request that waits for somebody else's answer has; none if none does.
    pub fn oldest_request(&self) -> Option<Duration> {
        self.shared.pending().oldest(Instant::now())
    }

    /// Names that the kernel was told and may hold, over all lanes.
    pub fn names(&self) -> usize {
        self.shared.lanes().names()
    }

    /// Lanes, in use or idle.
    pub fn lanes(&self) -> usize {
        self.shared.lanes().lanes().count()
    }

    fn release(&self, lane: LaneNumber, task: TaskId) {
        let idle = self.shared.lanes().release(lane, task);
        if !idle {
            return;
        }
        self.shared.end_lane(lane, |_| true);
        self.shared.pending().logs.remove(&lane);
        self.shared.unlistable().send_if_modified(|lanes| lanes.remove(&lane).is_some());
        // Lanes are dropped one by one, since names are counted anew after each.
        let lanes = self.shared.lanes().idle_lanes_to_drop();
        for lane in lanes {
            let what: Option<Invalidation> = self.shared.lanes().drop_lane(lane);
            if let Some(Err(error)) = what.map(|what| self.shared.device.invalidate(&what)) {
                tracing::warn!(%error, lane = lane.0, "the kernel did not forget a lane");
            }
        }
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(keeper) = self.keeper.take()
            && keeper.join().is_err()
        {
            tracing::error!("the keeper of a mirror panicked");
        }
        // Fails if something else is mounted or put there, and that is right.
        if let Err(error) = std::fs::remove_dir(&self.mount_point) {
            tracing::debug!(%error, path = %self.mount_point.display(), "a mirror's mount point stays");
        }
    }
}

/// A task's use of a lane. Drop it after the task's overlay was unmounted, never before.
#[derive(Debug)]
pub struct LaneGuard {
    mirror: Arc<Mirror>,
    view: ViewId,
    lane: LaneNumber,
    task: TaskId,
    started: LaneLog,
    unanswered: u64,
    ids: Use,
    keeps_xattrs_back: bool,
    attributed: watch::Receiver<HashSet<ViewId>>,
    unlistable: watch::Receiver<HashMap<LaneNumber, TreePath>>,
}

/// What a task had to ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Paths that were bound at first use, at most the first 10,000 of the lane.
    pub paths: Vec<TreePath>,
    /// How many there were.
    pub count: u64,
    /// How often a process waited for a binding or listing: round trips, save those made together.
    pub waits: u64,
}

impl LaneGuard {
    /// The directory that shows the client's `/`: the overlay's lower layer.
    pub fn path(&self) -> PathBuf {
        self.mirror.mount_point.join(self.lane.0.to_string())
    }

    /// The owners that the lane's task knows.
    pub fn ids(&self) -> &Use {
        &self.ids
    }

    /// Whether the mirror shows `user.` attributes.
    pub fn with_xattrs(&self) -> bool {
        self.mirror.with_xattrs
    }

    /// Whether values of attributes in the view stay at the client: a task that asks for one must be noticed.
    pub fn keeps_xattrs_back(&self) -> bool {
        self.keeps_xattrs_back
    }

    /// Returns when a path of the view turns out to have attributes that this mirror does not show: the task must start
    /// again in one that does. So it must where the values of some stay at the client, and it was not started for that.
    pub async fn xattrs_missed(&self) {
        if self.keeps_xattrs_back {
            return std::future::pending().await;
        }
        let mut attributed = self.attributed.clone();
        let found = attributed.wait_for(|views| views.contains(&self.view)).await.is_ok();
        if !found {
            // The mirror is gone, and so will be the task.
            std::future::pending().await
        }
    }

    /// Returns when tasks of this lane look into a directory that can only be listed at the client, if at all: that one.
    pub async fn looked_into_unlistable(&self) -> TreePath {
        let mut unlistable = self.unlistable.clone();
        let found = unlistable.wait_for(|lanes| lanes.contains_key(&self.lane)).await;
        match found.ok().and_then(|lanes| lanes.get(&self.lane).cloned()) {
            Some(path) => path,
            // The mirror is gone, and so will be the task.
            None => std::future::pending().await,
        }
    }

    /// What tasks of this lane saw at `path`, for the delta; `None` if they cannot have seen anything.
    pub fn base_of(&self, path: &TreePath) -> Option<Base> {
        self.mirror.shared.lanes().base_of(self.lane, path)
    }

    /// The binding by which tasks of this lane saw `path`; `None` if it is not bound, be it known to be absent.
    pub fn binding_of(&self, path: &TreePath) -> Option<Arc<Bound>> {
        self.mirror.shared.lanes().binding_of(self.lane, path)
    }

    /// What had to be asked since this task took the lane, by it or by others that share the lane.
    pub fn faults(&self) -> Faults {
        let pending = self.mirror.shared.pending();
        let Some(log) = pending.logs.get(&self.lane) else { return Faults::default() };
        Faults {
            paths: log.faults[self.started.faults.len().min(log.faults.len())..].to_vec(),
            count: log.fault_count - self.started.fault_count,
            waits: log.waits - self.started.waits,
        }
    }

    /// What tasks of this lane rest on; `None` if that is not known any more.
    pub fn evidence(&self) -> Option<Arc<Evidence>> {
        self.mirror.shared.lanes().evidence(self.lane)
    }

    /// Whether there was anything since this task took the lane that nobody could be asked, and that it may have wanted to know.
    pub fn is_unanswered(&self) -> bool {
        let pending = self.mirror.shared.pending();
        let of_lane = pending.logs.get(&self.lane).map_or(0, |log| log.unanswered);
        of_lane != self.started.unanswered || pending.unanswered != self.unanswered
    }

    /// Ends the lane's requests that wait, with `EIO`, so that the task's processes can die. In a lane that other tasks
    /// share, only those of processes that are being killed: those end as soon as they are.
    pub fn cancel(&self) {
        let alone = self.mirror.shared.lanes().tasks(self.lane) <= 1;
        self.mirror.shared.end_lane(self.lane, |pid| alone || processes::is_dying(pid));
    }
}

impl Drop for LaneGuard {
    fn drop(&mut self) {
        let _preparing = lock(&self.mirror.preparing);
        self.mirror.release(self.lane, self.task);
    }
}

/// Starts the threads that answer the kernel, and the keeper, which ends what waits too long and, at last, the mount.
fn start(shared: &Arc<Shared>, threads: usize, mount: MountHandle) -> io::Result<JoinHandle<()>> {
    let mut sessions = Vec::with_capacity(threads);
    for at in 0..threads {
        let shared = shared.clone();
        let thread = std::thread::Builder::new().name(format!("mirror-{at}"));
        sessions.push(thread.spawn(move || shared.run())?);
    }
    mount.raise_read_ahead();
    let shared = shared.clone();
    std::thread::Builder::new().name("mirror-keeper".into()).spawn(move || {
        shared.keep();
        // Each answer frees one thread, which sees that it must end. When none is left, nor the keeper's own reference,
        // the connection closes, and all who still want something get an error.
        for _ in 0..threads {
            mount.poke();
        }
        for session in sessions {
            if session.join().is_err() {
                tracing::error!("a thread of a mirror panicked");
            }
        }
        if let Err(error) = mount.detach() {
            tracing::warn!(%error, "a mirror could not be unmounted");
        }
    })
}

/// Decodes what must be named by `digest`.
fn decode<T: Encode>(digest: Digest, bytes: &[u8]) -> Result<T, Malformed> {
    if Digest::of(bytes) != digest {
        return Err(Malformed("bytes that do not have the digest they are sent under"));
    }
    T::from_bytes(bytes)
}

/// A listing or recipe as errors of [`Fetch`] are.
fn decode_or_io<T: Encode>(digest: Digest, bytes: Result<Vec<u8>, Errno>) -> Result<(T, usize), Errno> {
    let bytes = bytes?;
    match decode(digest, &bytes) {
        Ok(value) => Ok((value, bytes.len())),
        Err(error) => {
            tracing::warn!(%error, %digest, "a blob for the mirror is not what was asked for");
            Err(UNANSWERED)
        }
    }
}

impl Shared {
    /// Notes what comes up while the view's tasks run; whether they must not be told of it, and start again.
    fn is_too_late(&self, view: ViewId, bounds: &[Bound]) -> bool {
        // Both are noted, whatever is said of the first.
        self.ids.meet_late(view, bounds) | self.note_xattrs(view, bounds)
    }

    fn keep_listing(&self, digest: Digest, bytes: &[u8]) -> Result<(), Malformed> {
        let listing: Listing = decode(digest, bytes)?;
        self.put_listing(digest, listing, bytes.len());
        Ok(())
    }

    fn keep_recipe(&self, digest: Digest, bytes: &[u8]) -> Result<(), Malformed> {
        let recipe: Recipe = decode(digest, bytes)?;
        self.put_recipe(digest, recipe);
        Ok(())
    }

    /// Keeps a listing that was so long in bytes. An entry takes more memory than its encoding.
    fn put_listing(&self, digest: Digest, listing: Listing, len: usize) {
        let bytes = len + size_of_val(&listing.entries[..]);
        self.lanes().put_listing(digest, Arc::new(listing), bytes);
    }

    /// Keeps a recipe, of which a hole takes more memory than its encoding.
    fn put_recipe(&self, digest: Digest, recipe: Recipe) {
        let bytes = size_of_val(&recipe.pieces[..]);
        self.recipes().put(digest, Arc::new(recipe), bytes);
    }
}

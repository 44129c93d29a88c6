//! Views: for each program the paths that it uses, with what they are now; checked before each launch, extended at
//! first use, and remembered between runs of the daemon.
//!
//! A launch shares a sweep with others if the sweep *starts* after the launch arrived. Every binding gets a number of
//! its own ([`Seq`]), by which the committer finds the state that a task saw.

pub mod closure;
mod companions;
pub mod compilers;
mod elf;
mod epoch;
mod ledger;
mod locales;
mod marks;
mod moved;
mod saved;
mod strides;
mod table;
mod turns;
mod walks;

pub use epoch::{Copied, EPOCH_PATHS_MAX, EPOCH_VIEWS_MAX, JobViews};
pub use ledger::Known;
pub use marks::Held;
pub use moved::{Counted, Seen};

use crate::policy::Gate;
use crate::profile::ViewKey;
use crate::snapshot::lru::Lru;
use crate::snapshot::{BindError, Snapshot, Stamp};
use base::codec::Encode;
use base::{Binding, Bound, Content, Digest, Recipe, Seq, Time, TreePath, Version, ViewId, ViewUpdate};
use bytes::Bytes;
use epoch::Origin;
use ledger::Ledger;
use std::cell::{LazyCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use strides::Strides;
use table::{Look, Table};
use turns::Turns;
use walks::{Walks, name_of_listing};
use wire::lock;
use wire::message::ViewHeld;
use wire::without::{Part, is_left_out};

/// Views that are kept; beyond, the one longest unused goes (its paths stay on disk).
pub const VIEWS_MAX: usize = 64;
/// Bytes of one view, about, as it travels whole in one message: as for its paths.
const VIEW_BYTES_MAX: usize = 28 << 20;
/// Paths of one view; a view that would grow beyond is emptied and learned anew.
pub const PATHS_MAX: usize = 200_000;
/// Paths of all views together, but the one that is opened last: beyond, the longest unused go.
const PATHS_OF_ALL_MAX: usize = 1 << 20;
/// What travels unasked with a launch, in bytes, unless the caller says otherwise.
pub const TRAVEL_BYTES: usize = 1 << 20;
/// The same where the hub is near, and bytes cost less than asking for them.
pub const TRAVEL_BYTES_NEAR: usize = 16 << 20;

/// All views of this client.
pub struct Views {
    snapshot: Arc<Snapshot>,
    ledger: Arc<Ledger>,
    folder: Option<PathBuf>,
    views: Mutex<Lru<ViewKey, Arc<View>>>,
    next_id: AtomicU64,
    /// The views of jobs.
    of_jobs: Mutex<Vec<Weak<View>>>,
}

/// The paths that one program uses.
#[derive(Debug)]
pub struct View {
    id: ViewId,
    key: ViewKey,
    table: Mutex<Table>,
    turns: Turns,
    strides: Strides,
    walks: Walks,
    /// The version that was sent to the hub last, and over which connection.
    sent: Mutex<Sent>,
    /// Where it comes from, if it is a job's.
    origin: Option<Origin>,
    /// How many hold it: see [`Held`].
    holds: AtomicUsize,
}

/// What the hub knows of a view.
#[derive(Debug, Default)]
struct Sent {
    /// The connection over which it was told.
    connection: u64,
    /// The version that was sent last.
    version: Version,
    /// What it was told since, in answer to its questions.
    told: HashMap<TreePath, Seq>,
}

/// What a launch wants to know of the client's files.
pub struct Launch<'a> {
    /// Number of the connection over which the step will be sent: the hub knows of a view what was sent over this one.
    pub connection: u64,
    /// What may be read.
    pub gate: &'a dyn Gate,
    /// Paths that are to be in the view whatever the profile says: the working directory, `/tmp`, the files that the
    /// command names.
    pub include: &'a [TreePath],
    /// Whether the command is about a path: of others, those of which not all is shown are not in the view.
    pub is_about: &'a (dyn Fn(&TreePath) -> bool + Sync),
    /// Whether the hub has a blob or block already.
    pub hub_has: &'a dyn Fn(&Digest) -> bool,
    /// The hub has the same distribution: its files are only named.
    pub names_system: bool,
    /// How much may travel unasked, in bytes.
    pub travel_bytes: usize,
    /// Takes what will travel as soon as it is known, to be sent while the rest is looked at; false if it cannot: then it
    /// goes along with the step.
    pub ahead: Option<&'a dyn Fn(Digest, Bytes) -> bool>,
}

/// What a launch takes along.
#[derive(Debug)]
pub struct Swept {
    /// The step from the version that the hub has to the one that is now.
    pub update: ViewUpdate,
    /// Of a job's view that the hub is to copy first: of what.
    pub copied: Option<Copied>,
    /// Listings, recipes and small blocks of what the step sets, as many as may travel, by digest.
    pub blobs: Vec<(Digest, Bytes)>,
    /// How many went ahead.
    pub ahead: usize,
}

/// What went ahead of a launch.
#[derive(Default)]
struct Gone {
    digests: HashSet<Digest>,
    bytes: usize,
}

/// The answer to a first use.
#[derive(Debug)]
pub struct Faulted {
    /// What the path is.
    pub bound: Bound,
    /// Its `ctime` is later than the launch: the task does not see the state at its start.
    pub late: bool,
    /// The step that the view took: the path, and directories on the way to it that were not in the view. Steps of one
    /// view follow each other without gaps; who passes them on out of order has to put them in order by their versions.
    /// An absence that the directory's listing shows is not part of it.
    pub update: ViewUpdate,
    /// The step has other paths that will be wanted.
    pub brings: bool,
    /// Those of them that come next in the order of their folders: maybe only their names and attributes are wanted.
    pub ahead: Vec<TreePath>,
}

/// Why a view could not be swept.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The sweep that this launch waited for did not end.
    #[error("the files that {0} uses could not be checked within a minute: is a network file system hanging?")]
    Stalled(TreePath),
}

impl View {
    fn new(id: ViewId, key: ViewKey, table: Table, origin: Option<Origin>) -> Self {
        Self {
            id,
            key,
            table: Mutex::new(table),
            turns: Turns::default(),
            strides: Strides::default(),
            walks: Walks::default(),
            sent: Mutex::default(),
            origin,
            holds: AtomicUsize::new(0),
        }
    }

    /// The step that a launch over this connection takes, noted as sent. The table is locked: the steps of launches at the
    /// same time follow one another without a gap.
    fn step(&self, table: &Table, connection: u64) -> ViewUpdate {
        let mut sent = lock(&self.sent);
        if sent.connection != connection {
            *sent = Sent { connection, ..Sent::default() };
        }
        let mut update = table.update_since(self.id, sent.version);
        if update.base != Version(0) {
            update.set.retain(|bound| sent.told.get(&bound.path) != Some(&bound.seq));
        }
        sent.version = update.version;
        sent.told.clear();
        update
    }

    /// Its number, by which the hub knows it.
    pub fn id(&self) -> ViewId {
        self.id
    }

    /// Which program's it is.
    pub fn key(&self) -> &ViewKey {
        &self.key
    }

    /// The hub may not have what was sent last: the next launch sends the whole view.
    pub fn forget_sent(&self) {
        *lock(&self.sent) = Sent::default();
        if let Some(origin) = &self.origin {
            origin.parent.forget_sent();
        }
    }

    /// Notes that the hub was told these bindings over this connection, in answer to a question. Should the answer be
    /// lost, it will ask again.
    pub fn note_told(&self, connection: u64, bounds: &[Bound]) {
        let mut sent = lock(&self.sent);
        if sent.connection == connection && sent.told.len() < PATHS_MAX {
            sent.told.extend(bounds.iter().map(|bound| (bound.path.clone(), bound.seq)));
        }
    }

    /// Whether `path` is in it.
    pub fn has(&self, path: &TreePath) -> bool {
        lock(&self.table).has(path)
    }

    /// Shows each path that it has, and what that was when it was looked at last.
    pub(crate) fn each_path(&self, shown: impl FnMut(&TreePath, &Binding)) {
        lock(&self.table).each_path(shown);
    }

    /// How many paths it has.
    pub fn len(&self) -> usize {
        lock(&self.table).len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Views {
    /// No views yet. Their paths are kept in `folder`, if one is given.
    pub fn new(snapshot: Arc<Snapshot>, folder: Option<PathBuf>) -> Self {
        Self {
            snapshot,
            ledger: Arc::default(),
            folder,
            views: Mutex::new(Lru::new(VIEWS_MAX)),
            next_id: AtomicU64::new(1),
            of_jobs: Mutex::default(),
        }
    }

    fn next_id(&self) -> ViewId {
        ViewId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    fn note_of_job(&self, view: &Arc<View>) {
        let mut of_jobs = lock(&self.of_jobs);
        of_jobs.retain(|view| view.strong_count() > 0);
        of_jobs.push(Arc::downgrade(view));
    }

    /// The client's files.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// The view of a program: the one in use, or one with the paths on disk, or one with the paths that `first_sight`
    /// guesses. The paths are looked at by the next sweep. Hold the view for as long as a task of it runs.
    pub fn open(&self, key: &ViewKey, first_sight: impl FnOnce() -> Vec<TreePath>) -> Arc<View> {
        if is_left_out(Part::Prethrow) {
            return Arc::new(View::new(self.next_id(), key.clone(), Table::new(Vec::new(), true), None));
        }
        if let Some(view) = lock(&self.views).get(key) {
            return view.clone();
        }
        let saved = self.folder.as_deref().and_then(|folder| saved::load(folder, key));
        let known = saved.is_some();
        let paths = saved.unwrap_or_else(first_sight);
        let mut views = lock(&self.views);
        if let Some(view) = views.get(key) {
            return view.clone();
        }
        let mut evicted = Vec::new();
        while views.len() >= VIEWS_MAX || paths_of(&views) > PATHS_OF_ALL_MAX {
            evicted.extend(views.pop_oldest().map(|(_, view)| view));
        }
        let view = Arc::new(View::new(self.next_id(), key.clone(), Table::new(paths, !known), None));
        views.insert(key.clone(), view.clone(), 1);
        drop(views);
        for view in evicted {
            if let Err(error) = self.save_view(&view) {
                tracing::warn!(%error, "the profile of {} could not be saved", view.key.program);
            }
        }
        view
    }

    /// Has the next check of the view look at these paths, too.
    pub fn expect(&self, view: &View, paths: &[TreePath]) {
        lock(&view.table).expect(paths.iter());
    }

    /// Checks all paths of the view, or shares a check that started after this call. Blocks for the time of one or two
    /// sweeps.
    pub fn sweep(&self, view: &View, launch: &Launch<'_>) -> Result<Swept, SweepError> {
        self.snapshot.begin_look();
        if let Some(origin) = &view.origin {
            return self.sweep_in_job(view, origin, launch);
        }
        let gone = RefCell::default();
        let update = self.sweep_once(view, launch, &gone, &mut |_, _| {})?;
        Ok(self.swept(update, None, launch, gone.into_inner()))
    }

    /// Checks the view for a launch, and returns the step that it takes. `also` sees the table at the version of the step.
    fn sweep_once(
        &self,
        view: &View,
        launch: &Launch<'_>,
        gone: &RefCell<Gone>,
        also: &mut dyn FnMut(&Table, &ViewUpdate),
    ) -> Result<ViewUpdate, SweepError> {
        let fingerprint = launch.gate.fingerprint();
        let mut ticket = view.turns.ticket();
        loop {
            let turn = view.turns.take(&mut ticket, fingerprint);
            let turn = turn.ok_or_else(|| SweepError::Stalled(view.key.program.clone()))?;
            let mut table = lock(&view.table);
            if let turns::Turn::Mine(guard) = turn {
                table.leave_walks(launch.include);
                let seen = |binding: &Binding| self.send_ahead(binding, launch, &mut gone.borrow_mut());
                table.sweep(&Look { seen: &seen, ..self.look_in(&view.origin, launch.gate) });
                let unshown = |path: &TreePath| table.has(path) && !(launch.is_about)(path);
                let unshown = self.snapshot.not_shown().indispensable(unshown);
                table.leave(unshown);
                guard.done(fingerprint);
            } else if table.fingerprint() != Some(fingerprint) {
                // Another policy's sweep came between: ours has to be made after all.
                continue;
            }
            self.include(&mut table, launch, &view.origin, gone);
            let update = view.step(&table, launch.connection);
            also(&table, &update);
            return Ok(update);
        }
    }

    /// Adds what a launch wants to be in the view, with what will be wanted with it.
    fn include(&self, table: &mut Table, launch: &Launch<'_>, origin: &Option<Origin>, gone: &RefCell<Gone>) {
        let seen = |binding: &Binding| self.send_ahead(binding, launch, &mut gone.borrow_mut());
        let look = Look { seen: &seen, ..self.look_in(origin, launch.gate) };
        let missing = launch.include.iter().filter(|path| !table.has(path)).cloned().collect::<Vec<_>>();
        table.add_all(missing.clone(), &look);
        for path in &missing {
            add_companions(table, path, &look);
        }
    }

    fn swept(&self, update: ViewUpdate, copied: Option<Copied>, launch: &Launch<'_>, gone: Gone) -> Swept {
        let first = copied.as_ref().map_or(&[][..], |copied| &copied.step.set);
        let named = named_only(first.iter().chain(&update.set), launch.names_system);
        let has = |digest: &Digest| gone.digests.contains(digest) || named.contains(digest) || (launch.hub_has)(digest);
        let set = bindings(first).chain(bindings(&update.set));
        let blobs = self.blobs_of(set, &has, launch.travel_bytes.saturating_sub(gone.bytes));
        Swept { update, copied, blobs, ahead: gone.digests.len() }
    }

    fn send_ahead(&self, binding: &Binding, launch: &Launch<'_>, gone: &mut Gone) {
        let Some(ahead) = launch.ahead else { return };
        let has = |digest: &Digest| gone.digests.contains(digest) || (launch.hub_has)(digest);
        for (digest, bytes) in self.blobs_of([binding], &has, launch.travel_bytes.saturating_sub(gone.bytes)) {
            let len = bytes.len();
            if !ahead(digest, bytes) {
                return;
            }
            gone.digests.insert(digest);
            gone.bytes += len;
        }
    }

    /// Binds a path at its first use by a task that was launched at `launched`, and adds it to the view with all
    /// directories on the way to it and, if it is new there, with what will be wanted next.
    pub fn fault(&self, view: &View, path: &TreePath, gate: &dyn Gate, launched: Time) -> Result<Faulted, BindError> {
        let mut table = lock(&view.table);
        let before = table.version();
        let is_news = !table.has(path);
        let look = self.look_in(&view.origin, gate);
        let bound = table.fault(path, &look)?;
        let mut brings = is_news && add_companions(&mut table, path, &look);
        let ahead = if is_news { self.add_ahead(view, &mut table, path, &look) } else { Vec::new() };
        brings |= !ahead.is_empty();
        let late = bound.binding.attr().is_some_and(|attr| attr.ctime > launched);
        let update = table.update_since(view.id, before);
        if let Some(origin) = view.origin.as_ref().filter(|_| is_news) {
            let used = update.set.iter().filter(|bound| bound.binding != Binding::Absent);
            lock(&origin.parent.table).expect(used.map(|bound| &bound.path));
        }
        Ok(Faulted { bound, late, update, brings, ahead })
    }

    /// Adds what comes after this path in the order of the folders, if they are gone through in that order, and returns it.
    fn add_ahead(&self, view: &View, table: &mut Table, path: &TreePath, look: &Look<'_>) -> Vec<TreePath> {
        // All that a job uses is remembered for its whole life.
        if is_left_out(Part::Prethrow) || view.origin.is_some() && !is_file(table, path) {
            return Vec::new();
        }
        let Some(folder) = path.parent() else { return Vec::new() };
        let Some(name) = name_of_listing(table, &folder) else { return Vec::new() };
        // It may be large, and most questions are about no walk.
        let listing = LazyCell::new(|| self.snapshot.read_listing(&name));
        let walked = match view.origin {
            None => self.walk_ahead(view, table, path, look, || listing.as_ref()),
            Some(_) => Vec::new(),
        };
        if !walked.is_empty() || !is_file(table, path) {
            return walked;
        }
        let Some(listing) = &*listing else { return Vec::new() };
        let next = view.strides.next(&folder, listing, path.name());
        if view.strides.ended(&folder) {
            view.walks.note_files();
        }
        let next: Vec<TreePath> = next.into_iter().filter(|path| !table.has(path)).collect();
        table.add_all(next.clone(), look);
        next
    }

    /// The hub has kept what it was told over this connection, as far as `held` says: later launches build on that.
    pub fn resumed(&self, connection: u64, held: &[ViewHeld]) {
        let held: HashMap<u64, Version> = held.iter().map(|held| (held.view, Version(held.version))).collect();
        let views: Vec<Arc<View>> = lock(&self.views).oldest_first().map(|(_, view)| view.clone()).collect();
        for view in views {
            let mut sent = lock(&view.sent);
            match held.get(&view.id.0).filter(|version| sent.connection == connection && **version <= sent.version) {
                Some(version) if *version == sent.version => {}
                Some(version) => *sent = Sent { connection, version: *version, told: HashMap::new() },
                None => *sent = Sent::default(),
            }
        }
    }

    /// Notes that a task used these paths, so that they outlive those that none uses.
    pub fn touched(&self, view: &View, paths: &[TreePath]) {
        let mut table = lock(&view.table);
        for path in paths {
            table.touch(path);
        }
    }

    /// Notes that these paths were changed by a commit: all views that have them, or the directories they are in, look
    /// at them anew at their next sweep.
    pub fn committed(&self, paths: &[TreePath]) {
        let parents: Vec<TreePath> = paths.iter().filter_map(TreePath::parent).collect();
        let views: Vec<Arc<View>> = lock(&self.views).oldest_first().map(|(_, view)| view.clone()).collect();
        for view in views {
            let mut table = lock(&view.table);
            for path in paths.iter().chain(&parents) {
                table.mark_stale(path);
            }
        }
    }

    /// What the binding of `path` with this number was: its stamp and content. `None` if it is long forgotten.
    pub fn known(&self, path: &TreePath, seq: Seq) -> Option<Known> {
        if let Some(known) = self.ledger.get(path, seq) {
            return Some(known);
        }
        let mut views: Vec<Arc<View>> = lock(&self.views).oldest_first().map(|(_, view)| view.clone()).collect();
        views.extend(lock(&self.of_jobs).iter().filter_map(Weak::upgrade));
        views.iter().find_map(|view| lock(&view.table).known(path, seq))
    }

    /// The stamp of what was bound at `path` with this number; `None` also if it was absent.
    pub fn stamp_of(&self, path: &TreePath, seq: Seq) -> Option<Stamp> {
        self.known(path, seq)?.stamp
    }

    /// Writes the path sets that changed to the folder.
    pub fn save(&self) -> std::io::Result<()> {
        let views: Vec<Arc<View>> = lock(&self.views).oldest_first().map(|(_, view)| view.clone()).collect();
        let results = views.iter().map(|view| self.save_view(view)).collect::<Vec<_>>();
        if let Some(folder) = &self.folder {
            saved::prune(folder);
        }
        results.into_iter().collect()
    }

    fn save_view(&self, view: &View) -> std::io::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let Some(paths) = lock(&view.table).take_unsaved() else { return Ok(()) };
        let saved = saved::save(folder, &view.key, &paths);
        if saved.is_err() {
            lock(&view.table).set_unsaved();
        }
        saved
    }

    /// The bytes of listings first, then recipes, then the blocks of small files and of others, as far as they fit into `bytes_max`
    /// and the hub has them not. What has changed since it was bound is left out: who wants it will ask, and be told.
    pub fn blobs_of<'a>(
        &self,
        set: impl IntoIterator<Item = &'a Binding, IntoIter: Clone>,
        hub_has: &dyn Fn(&Digest) -> bool,
        bytes_max: usize,
    ) -> Vec<(Digest, Bytes)> {
        let set = set.into_iter();
        let listing = |binding: &Binding| match binding {
            Binding::Directory { listing, .. } => *listing,
            _ => None,
        };
        let recipe = |binding: &Binding| match binding {
            Binding::File { content: Content::Recipe(digest), .. } => Some(*digest),
            _ => None,
        };
        let block = |binding: &Binding| match binding {
            Binding::File { content: Content::Block(digest), attr, .. } if attr.size <= bytes_max as u64 => {
                Some(*digest)
            }
            _ => None,
        };
        let pieces = |digest: Digest| {
            // Of files of many blocks only where much may travel: the first of them alone would be of little use.
            let bytes = (bytes_max > TRAVEL_BYTES).then(|| self.snapshot.read_block(&digest).ok().flatten());
            let recipe = bytes.flatten().and_then(|bytes| Recipe::from_bytes(&bytes).ok()).unwrap_or_default();
            recipe.pieces.into_iter().filter_map(|piece| piece.block)
        };
        let wanted = set.clone().filter_map(listing);
        let wanted = wanted.chain(set.clone().filter_map(recipe)).chain(set.clone().filter_map(block));
        let wanted = wanted.chain(set.filter_map(recipe).flat_map(pieces));
        let mut room = bytes_max;
        let mut taken = HashSet::new();
        let mut blobs = Vec::new();
        for digest in wanted {
            if room == 0 {
                break;
            }
            if hub_has(&digest) || !taken.insert(digest) {
                continue;
            }
            if let Ok(Some(bytes)) = self.snapshot.read_block(&digest)
                && bytes.len() <= room
            {
                room -= bytes.len();
                blobs.push((digest, bytes));
            }
        }
        blobs
    }
}

/// Adds what will be wanted with a path that is new in a view; tells whether there is any.
fn add_companions(table: &mut Table, path: &TreePath, look: &Look<'_>) -> bool {
    if is_left_out(Part::Prethrow) {
        return false;
    }
    let wanted = table.binding(path).map(|binding| companions::companions(path, binding, &|path| table.has(path)));
    let wanted = wanted.unwrap_or_default();
    let any = !wanted.is_empty();
    table.add_all(wanted, look);
    any
}

fn is_file(table: &Table, path: &TreePath) -> bool {
    matches!(table.binding(path), Some(Binding::File { .. }))
}

fn paths_of(views: &Lru<ViewKey, Arc<View>>) -> usize {
    // One that is being looked at may be so for long.
    views.oldest_first().filter_map(|(_, view)| Some(view.table.try_lock().ok()?.len())).sum()
}

/// What paths are, without their names.
pub fn bindings(set: &[Bound]) -> impl Iterator<Item = &Binding> + Clone {
    set.iter().map(|bound| &bound.binding)
}

/// The names of contents that do not go along, for the hub will find them on its own disk: where `names_system`, the distribution's.
pub fn named_only<'a>(set: impl IntoIterator<Item = &'a Bound>, names_system: bool) -> HashSet<Digest> {
    let name = |bound: &Bound| match &bound.binding {
        Binding::File { attr, content: Content::Block(name) | Content::Recipe(name), .. } => {
            attr.is_of_system(&bound.path).then_some(*name)
        }
        _ => None,
    };
    set.into_iter().filter(|_| names_system).filter_map(name).collect()
}

#[cfg(test)]
mod tests;

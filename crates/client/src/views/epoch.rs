//! The epoch of a job: every path means for all its tasks what it meant at the job's start.
//!
//! A path is bound once, at the first launch that wants it or at its first use, whichever program's task that is. What
//! cannot have been so at the start (its `ctime` is later) is *late*, and an error. Not so folders: `/tmp` and others
//! change all the time by names that no task of the job wants; such a name is late itself when it is used.
//!
//! A job has its own copies of the views that its programs use ([`Origin`]). Hub and workers get such a copy by name, so
//! that only the first launch of each program carries changes.

use super::table::{Look, Table};
use super::{Launch, SweepError, Swept, View, Views};
use crate::commit::Report;
use crate::policy::Gate;
use crate::profile::ViewKey;
use crate::snapshot::lru::Lru;
use crate::snapshot::{BindError, Observed, Snapshot, now};
use base::{Binding, Seq, Time, TreePath, Version, ViewUpdate};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock};
use wire::lock;

/// Most paths that the tasks of one job may use, over all programs.
pub const EPOCH_PATHS_MAX: usize = 200_000;
/// Programs of one job that are remembered because they lock what others change. With more of them every task counts as one.
const OUTSIDE_MAX: usize = 64;
/// Most views of one job (for each program, under each read policy) that are kept for its next tasks. Beyond, the one longest
/// unused goes: what its paths are stays bound, and its next task sends them anew.
pub const EPOCH_VIEWS_MAX: usize = 64;

/// What the paths that a job uses meant at its start.
#[derive(Debug)]
pub struct Epoch {
    started: Time,
    bound: Mutex<HashMap<TreePath, Observed>>,
    outside: Mutex<Outside>,
    /// What results of the job have left, and when that was changed by them: others have not changed it since its start.
    own: Mutex<HashMap<TreePath, Time>>,
}

/// Programs that lock what others change: they see the files as they are now.
#[derive(Debug, Default)]
struct Outside {
    /// As tasks call them.
    programs: HashSet<Vec<u8>>,
    is_all: bool,
}

/// A job's epoch, with the views of its tasks.
#[derive(Debug)]
pub struct JobViews {
    epoch: Arc<Epoch>,
    views: Mutex<Lru<ViewKey, Arc<View>>>,
}

/// Where a job's view comes from.
#[derive(Debug)]
pub(super) struct Origin {
    /// The program's own view, which learns for the next time.
    pub parent: Arc<View>,
    pub epoch: Arc<Epoch>,
    /// It has been copied.
    copied: OnceLock<()>,
}

/// A job's view begins as a copy of its program's.
#[derive(Clone, Debug)]
pub struct Copied {
    /// The step of the program's own view; the copy is made of the version that it leads to.
    pub step: ViewUpdate,
    /// Bindings with larger numbers are not part of the copy.
    pub seq_max: Seq,
}

impl From<&Copied> for wire::message::Copied {
    fn from(copied: &Copied) -> Self {
        Self { step: Some((&copied.step).into()), seq_max: copied.seq_max.0 }
    }
}

/// What becomes of a path of the program's view in a job's.
pub(super) enum Adopted {
    /// It stays.
    Same,
    /// In this job it is something else.
    Other(Box<Observed>),
    /// It has changed since the job's start: who uses it will be told.
    Late,
}

impl JobViews {
    /// Of a job that starts now.
    pub fn begin() -> Self {
        let epoch = Epoch { started: now(), bound: Mutex::default(), outside: Mutex::default(), own: Mutex::default() };
        Self { epoch: Arc::new(epoch), views: Mutex::new(Lru::new(EPOCH_VIEWS_MAX)) }
    }

    /// What a result of the job has left.
    pub fn own(&self, report: &Report) {
        report.committed.iter().for_each(|made| self.epoch.own(&made.path, made.stamp.ctime));
    }

    /// Whether a task with these words sees the files as they were at the job's start: all do but those that lock what others change.
    pub fn binds(&self, argv: &[Vec<u8>]) -> bool {
        let outside = lock(&self.epoch.outside);
        !outside.is_all && argv.first().is_none_or(|program| !outside.programs.contains(program))
    }
}

impl Epoch {
    /// When it was.
    pub fn started(&self) -> Time {
        self.started
    }

    /// A result of the job has left this. One of a daemon that is no more may come after the epoch's start, and before a task of it
    /// uses the path.
    pub fn own(&self, path: &TreePath, changed: Time) {
        let mut own = lock(&self.own);
        if own.len() < EPOCH_PATHS_MAX {
            own.insert(path.clone(), changed);
        }
    }

    /// A task with these words waited for a lock: what others did meanwhile is why. It and its like see the files as they are now.
    pub fn leave(&self, argv: &[Vec<u8>]) {
        let mut outside = lock(&self.outside);
        outside.programs.extend(argv.first().cloned());
        outside.is_all |= outside.programs.len() > OUTSIDE_MAX;
        if outside.is_all {
            outside.programs.clear();
        }
    }

    /// Whether something with these attributes came after the epoch's start.
    fn is_late(&self, path: &TreePath, observed: &Observed) -> bool {
        let is_folder = matches!(observed.binding, Binding::Directory { .. });
        let is_own = |changed: Time| lock(&self.own).get(path) == Some(&changed);
        !is_folder && observed.stamp.is_some_and(|stamp| stamp.ctime > self.started && !is_own(stamp.ctime))
    }

    /// What `path` was at the start, bound now if no task of the job has used it yet.
    pub(super) fn bind(&self, path: &TreePath, gate: &dyn Gate, snapshot: &Snapshot) -> Result<Observed, BindError> {
        if let Some(known) = self.known(path, gate) {
            return Ok(known);
        }
        let observed = snapshot.bind(path, gate)?;
        let was_listed = self.was_listed(path, snapshot);
        let is_absent = observed.binding == Binding::Absent;
        let observed = match was_listed {
            // It was made since, by others or by this job.
            Some(false) if !is_absent => Observed::absent(),
            Some(true) if is_absent => return Err(BindError::Late { path: path.clone() }),
            _ if self.is_late(path, &observed) => return Err(BindError::Late { path: path.clone() }),
            _ => observed,
        };
        let mut bound = lock(&self.bound);
        if bound.len() >= EPOCH_PATHS_MAX {
            return Err(BindError::TooMany { path: path.clone(), paths_max: EPOCH_PATHS_MAX });
        }
        // Another view's task may have bound it meanwhile: the first counts.
        let known = bound.entry(path.clone()).or_insert_with(|| observed.clone());
        Ok(if is_seen_alike(known, path, gate) { known.clone() } else { observed })
    }

    fn known(&self, path: &TreePath, gate: &dyn Gate) -> Option<Observed> {
        lock(&self.bound).get(path).filter(|known| is_seen_alike(known, path, gate)).cloned()
    }

    /// Whether the folder's listing, as it was bound in this job, has the name; `None`: it does not tell.
    fn was_listed(&self, path: &TreePath, snapshot: &Snapshot) -> Option<bool> {
        let parent = path.parent()?;
        let digest = match &lock(&self.bound).get(&parent)?.binding {
            Binding::Directory { listing: Some(digest), .. } => *digest,
            _ => return None,
        };
        Some(snapshot.read_listing(&digest)?.get(path.name()).is_some())
    }

    /// Takes over what the program's view says of a path.
    pub(super) fn adopt(&self, path: &TreePath, observed: &Observed, gate: &dyn Gate) -> Adopted {
        let mut bound = lock(&self.bound);
        match bound.get(path) {
            Some(known) if is_seen_alike(known, path, gate) => match known.binding == observed.binding {
                true => Adopted::Same,
                false => Adopted::Other(Box::new(known.clone())),
            },
            _ if self.is_late(path, observed) => Adopted::Late,
            Some(_) => Adopted::Same,
            None if bound.len() >= EPOCH_PATHS_MAX => Adopted::Late,
            None => {
                bound.insert(path.clone(), observed.clone());
                Adopted::Same
            }
        }
    }
}

/// Whether a binding made under one read policy is what another lets see.
fn is_seen_alike(known: &Observed, path: &TreePath, gate: &dyn Gate) -> bool {
    known.stamp.is_none() || gate.access(path, &known.facts) == known.access
}

impl View {
    /// The job's epoch, of a job's view.
    pub fn epoch(&self) -> Option<&Epoch> {
        self.origin.as_ref().map(|origin| &*origin.epoch)
    }
}

impl Views {
    /// A job's copy of a program's view.
    pub fn open_in(&self, job: &JobViews, parent: Arc<View>) -> Arc<View> {
        let mut views = lock(&job.views);
        if let Some(view) = views.get(&parent.key) {
            return view.clone();
        }
        if views.len() >= EPOCH_VIEWS_MAX {
            views.pop_oldest();
        }
        let key = parent.key.clone();
        let origin = Origin { parent, epoch: job.epoch.clone(), copied: OnceLock::new() };
        let view = Arc::new(View::new(self.next_id(), key.clone(), Table::default(), Some(origin)));
        views.insert(key, view.clone(), 1);
        self.note_of_job(&view);
        view
    }

    /// As [`Views::sweep`], of a job's view: the first launch of a program checks what it uses, further ones only look at
    /// what no task of the job has named before.
    pub(super) fn sweep_in_job(&self, view: &View, origin: &Origin, launch: &Launch<'_>) -> Result<Swept, SweepError> {
        let gone = Default::default();
        let mut table = lock(&view.table);
        let mut copied = None;
        if origin.copied.get().is_none() {
            let own = Launch { include: &[], ..*launch };
            let step = self.sweep_once(&origin.parent, &own, &gone, &mut |parent: &Table, step: &ViewUpdate| {
                let seq_max = self.ledger.last();
                *table = parent.in_epoch(&origin.epoch, &self.look_in(&view.origin, launch.gate));
                let mut sent = lock(&view.sent);
                *sent = super::Sent { connection: launch.connection, version: step.version, ..Default::default() };
                copied = Some(Copied { step: step.clone(), seq_max });
            });
            step?;
            let _ = origin.copied.set(());
        }
        self.include(&mut table, launch, &view.origin, &gone);
        let update = view.step(&table, launch.connection);
        drop(table);
        // A hub that was told of the view over another connection gets all of it.
        let copied = copied.filter(|copied| update.base == copied.step.version && update.base != Version(0));
        Ok(self.swept(update, copied, launch, gone.into_inner()))
    }

    /// How paths of a view are looked at: in a job's through its epoch.
    pub(super) fn look_in<'a>(&'a self, origin: &'a Option<Origin>, gate: &'a dyn Gate) -> Look<'a> {
        let epoch = origin.as_ref().map(|origin| &*origin.epoch);
        Look { snapshot: &self.snapshot, ledger: &self.ledger, gate, epoch, seen: &|_| {} }
    }
}

#[cfg(test)]
mod tests {
    use super::super::closure::disk;
    use super::super::tests::{key, launch, root_of, snapshot};
    use super::*;
    use crate::commit::Committed;
    use crate::policy::Open;
    use crate::snapshot::{Stamp, stat_at};
    use base::{Bound, Content, Digest};
    use std::fs;

    /// A tree with a file, the views of a client, and a job that starts now.
    struct World {
        _folder: tempfile::TempDir,
        root: TreePath,
        views: Views,
        job: JobViews,
    }

    impl World {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let root = root_of(&folder);
            fs::write(disk(&root.join(b"old")), b"old").unwrap();
            // Beyond the grain of any clock: what comes later is later.
            crate::snapshot::pause_nanos(25_000_000);
            Self { _folder: folder, root, views: Views::new(snapshot(), None), job: JobViews::begin() }
        }

        fn write(&self, name: &str, text: &str) {
            crate::snapshot::pause_nanos(25_000_000);
            fs::write(disk(&self.root.join(name.as_bytes())), text).unwrap();
        }

        /// A view of the job, of a program that is known to use the whole of the tree.
        fn view(&self, program: &str) -> Arc<View> {
            let parent = self.views.open(&key(program), || vec![self.root.clone()]);
            self.views.open_in(&self.job, parent)
        }

        fn fault(&self, view: &View, name: &str) -> Result<Bound, BindError> {
            let path = self.root.join(name.as_bytes());
            self.views.fault(view, &path, &Open, Time(0)).map(|faulted| faulted.bound)
        }
    }

    fn content(bound: &Bound) -> Option<Content> {
        match bound.binding {
            Binding::File { content, .. } => Some(content),
            _ => None,
        }
    }

    #[test]
    fn the_first_launch_carries_the_files_and_others_nothing() {
        let world = World::new();
        let view = world.view("/bin/x");
        let first = world.views.sweep(&view, &launch(Version(0))).unwrap();
        let copied = first.copied.expect("the hub does not have the view");
        assert!(copied.step.set.iter().any(|bound| bound.path == world.root));
        assert_eq!((first.update.view, first.update.base), (view.id(), copied.step.version));
        assert!(first.update.set.is_empty(), "what is in the copy is not sent again");
        world.write("new", "new");
        let second = world.views.sweep(&view, &launch(first.update.version)).unwrap();
        assert!(second.copied.is_none() && second.update.set.is_empty() && second.update.drop.is_empty());
        assert_eq!(lock(&view.origin.as_ref().unwrap().parent.table).sweeps(), 1, "one sweep for the job");
        // A new connection: the hub knows nothing of the job.
        let again = world.views.sweep(&view, &launch(Version(0))).unwrap();
        assert_eq!(again.update.base, Version(0));
        assert!(again.copied.is_none() && again.update.set.iter().any(|bound| bound.path == world.root));
    }

    #[test]
    fn every_program_of_a_job_sees_its_start() {
        let world = World::new();
        let one = world.view("/bin/x");
        world.views.sweep(&one, &launch(Version(0))).unwrap();
        let before = world.fault(&one, "old").unwrap();
        assert_eq!(content(&before), Some(Content::Block(Digest::of(b"old"))));
        world.write("old", "new");
        world.write("made", "made");
        // Another program, whose own view knows all as it is now.
        let parent = world.views.open(&key("/bin/y"), || vec![world.root.clone()]);
        world.views.sweep(&parent, &launch(Version(0))).unwrap();
        let now = world.views.fault(&parent, &world.root.join(b"old"), &Open, Time(0)).unwrap().bound;
        assert_eq!(content(&now), Some(Content::Block(Digest::of(b"new"))));
        let two = world.views.open_in(&world.job, parent);
        let swept = world.views.sweep(&two, &launch(Version(0))).unwrap();
        assert!(swept.copied.is_some());
        assert_eq!(content(&world.fault(&two, "old").unwrap()), content(&before));
        assert_eq!(world.fault(&two, "made").unwrap().binding, Binding::Absent, "it was made since");
        assert_eq!(world.fault(&one, "made").unwrap().binding, Binding::Absent);
    }

    #[test]
    fn a_program_that_waits_for_locks_leaves_the_epoch() {
        let world = World::new();
        let words = |text: &str| text.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        assert!(world.job.binds(&words("sh add.sh")) && world.job.binds(&[]));
        world.view("/bin/sh").epoch().unwrap().leave(&words("sh add.sh"));
        assert!(!world.job.binds(&words("sh other.sh")) && world.job.binds(&words("cat c")));
        assert!(JobViews::begin().binds(&words("sh add.sh")), "another job begins with what is there now");
        let view = world.view("/bin/sh");
        (1..OUTSIDE_MAX).for_each(|number| view.epoch().unwrap().leave(&words(&format!("./tool{number}"))));
        assert!(world.job.binds(&words("cat c")));
        view.epoch().unwrap().leave(&words("./one-more"));
        assert!(!world.job.binds(&words("sh add.sh")) && !world.job.binds(&words("./one-more")), "none is forgotten");
        assert!(!world.job.binds(&words("cat c")), "with so many all leave");
    }

    #[test]
    fn what_cannot_be_told_any_more_is_late() {
        let world = World::new();
        let view = world.view("/bin/x");
        world.views.sweep(&view, &launch(Version(0))).unwrap();
        world.write("old", "changed by others before any task used it");
        let late = world.fault(&view, "old").unwrap_err();
        assert!(late.to_string().contains("old changed after the job had started"), "{late}");
        fs::remove_file(disk(&world.root.join(b"old"))).unwrap();
        assert!(matches!(world.fault(&view, "old"), Err(BindError::Late { .. })), "removed, but listed at the start");
        // The next job starts from what is there now.
        let job = JobViews::begin();
        let parent = world.views.open(&key("/bin/x"), Vec::new);
        let view = world.views.open_in(&job, parent);
        world.views.sweep(&view, &launch(Version(0))).unwrap();
        assert_eq!(world.fault(&view, "old").unwrap().binding, Binding::Absent);
    }

    /// A result may come after the epoch's start, of a task that was launched by a daemon which is no more.
    #[test]
    fn what_the_job_itself_has_left_is_not_late() {
        let world = World::new();
        let view = world.view("/bin/x");
        world.views.sweep(&view, &launch(Version(0))).unwrap();
        world.write("old", "by a task of it");
        let path = world.root.join(b"old");
        let stamp = Stamp::of(&stat_at(path.as_bytes()).unwrap());
        world.job.own(&Report { committed: vec![Committed { path, stamp, content: None }], ..Report::default() });
        assert!(world.fault(&view, "old").is_ok());
        let (other, changed) = (World::new(), "by others afterwards");
        let view = other.view("/bin/x");
        other.views.sweep(&view, &launch(Version(0))).unwrap();
        other.job.own(&Report {
            committed: vec![Committed { path: other.root.join(b"old"), stamp, content: None }],
            ..Report::default()
        });
        other.write("old", changed);
        assert!(other.fault(&view, "old").is_err());
    }

    #[test]
    fn a_job_teaches_the_program_s_view() {
        let world = World::new();
        let view = world.view("/bin/x");
        world.views.sweep(&view, &launch(Version(0))).unwrap();
        world.fault(&view, "old").unwrap();
        let parent = world.views.open(&key("/bin/x"), Vec::new);
        let swept = world.views.sweep(&parent, &launch(Version(0))).unwrap();
        assert!(swept.update.set.iter().any(|bound| bound.path == world.root.join(b"old")));
    }
}

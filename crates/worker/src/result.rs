//! What a task left behind, read into a delta, its contents kept in the store.

use crate::backlog::Backlog;
use crate::clients::{Client, Clients};
use crate::delta::{self, DeltaError, Lens, Options};
use crate::fuse::LaneGuard;
use crate::ids::{Ids, NOBODY, Places};
use crate::sandbox::mount_folder;
use base::delta::FileChange;
use base::watch::OWNERS;
use base::{
    Action, Base, Binding, Change, Command, Content, Delta, Digest, Mount, Recipe, Tenant, Time, TreePath,
    codec::Encode,
};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{BlockStore, CutError, Cutter, Pin};

/// Objects of a result that travel in the message that tells its end, bytes in all; the rest follow one by one.
const INLINE_BYTES: usize = 256 << 10;

/// When a task ran, and what the client's clock showed.
pub struct Clock {
    /// Start, by this machine's clock.
    pub started: Time,
    /// End, by this machine's clock.
    pub ended: Time,
    /// Launch, by the client's clock.
    pub launched: Time,
    /// Nanoseconds to add to this machine's clock to get the client's.
    pub to_client: i64,
}

/// A task's result.
pub struct Made {
    /// What changed.
    pub delta: Delta,
    /// Sockets and devices, which do not travel.
    pub skipped: Vec<TreePath>,
    /// Small objects.
    pub small: Vec<(Digest, Vec<u8>)>,
    /// Names of the other objects, which are in the store.
    pub large: Vec<Digest>,
    /// Keeps these from being evicted.
    _pin: Pin,
}

/// Why there is no result.
pub struct NotRead {
    /// For a person.
    pub why: String,
    /// The task did what cannot be done elsewhere.
    pub is_unable: bool,
}

/// Where a task wrote.
pub struct Written<'a> {
    /// Its folder.
    pub scratch: &'a Path,
    /// The client's mounts that it was shown.
    pub mounts: &'a [Mount],
    /// The folder of shared memory, if something is left in it.
    pub shared: Option<&'a OwnedFd>,
    /// Files that it has made to add to them.
    pub added_to: &'a HashSet<TreePath>,
}

impl Written<'_> {
    /// The upper directories, with where they are in the task's tree, and the index of each overlay.
    fn uppers(&self) -> Vec<(PathBuf, TreePath, Option<PathBuf>)> {
        let of = |folder: &Path, at| (folder.join("upper"), at, Some(folder.join("work/index")));
        let mut uppers = vec![of(self.scratch, TreePath::root())];
        for (index, mount) in self.mounts.iter().enumerate().filter(|(_, mount)| !mount.read_only) {
            let folder = mount_folder(self.scratch, index);
            // Mounts that are single files have none, nor has the root.
            if folder.is_dir() {
                uppers.push(of(&folder, mount.at.clone()));
            }
        }
        if let Some(shared) = self.shared {
            let at = TreePath::parse(b"/dev/shm").expect("a literal in normal form");
            uppers.push((format!("/proc/self/fd/{}", shared.as_raw_fd()).into(), at, None));
        }
        uppers
    }
}

/// Reads a task's upper layers.
pub async fn collect(
    clients: &Arc<Clients>,
    client: &Arc<Client>,
    lane: &Arc<LaneGuard>,
    written: &Written<'_>,
    clock: &Clock,
) -> Result<Made, NotRead> {
    let options = Options {
        id_base: client.ids.base(),
        ids: client.ids.places(),
        clock_offset_ns: clock.to_client,
        privileged: clients.sandbox.privileged(),
        xattrs_mirrored: lane.with_xattrs(),
        added_to: written.added_to.clone(),
        ..Options::new(clock.started, clock.ended, clock.launched)
    };
    let (store, backlog, tenant) = (clients.store.clone(), clients.backlog.clone(), client.tenant);
    let seen = Seen { lane: lane.clone(), lower: lane.path() };
    let uppers = written.uppers();
    if uppers.len() == 1 && uppers.iter().all(|(upper, ..)| is_empty(upper)) {
        return collect_blocking(&store, &backlog, tenant, &seen, uppers, &options);
    }
    let collected =
        tokio::task::spawn_blocking(move || collect_blocking(&store, &backlog, tenant, &seen, uppers, &options));
    collected.await.map_err(|error| NotRead { why: format!("the worker failed: {error}"), is_unable: false })?
}

/// Whether nothing is in an upper layer: then to read it takes less than to have another thread do so.
fn is_empty(upper: &Path) -> bool {
    std::fs::read_dir(upper).is_ok_and(|mut entries| entries.next().is_none())
}

fn collect_blocking(
    store: &Arc<BlockStore>,
    backlog: &Backlog,
    tenant: Tenant,
    seen: &Seen,
    uppers: Vec<(PathBuf, TreePath, Option<PathBuf>)>,
    options: &Options,
) -> Result<Made, NotRead> {
    let mut keeper = Keeper::new(store, backlog, tenant);
    let mut cutter = Cutter::default();
    let mut parts = Vec::new();
    for (upper, at, index) in uppers {
        let options = Options { at, index, ..options.clone() };
        let part = delta::collect(&upper, seen, &options, &mut |file, size| keeper.keep(&mut cutter, file, size));
        parts.push(part.map_err(|error| NotRead {
            is_unable: matches!(
                error,
                DeltaError::AccessList { .. }
                    | DeltaError::SecondName { .. }
                    | DeltaError::TooDeep { .. }
                    | DeltaError::TooMany { .. }
            ),
            why: error.to_string(),
        })?);
    }
    let collected = delta::join(parts);
    let wanted = wanted(&collected.delta, &keeper.recipes);
    keeper.small.retain(|(digest, _)| wanted.contains(digest));
    keeper.large.retain(|digest| wanted.contains(digest));
    // Who has the recipe knows of each block which file's it is, and where.
    let recipes: HashSet<Digest> = keeper.recipes.iter().map(|(name, _)| *name).collect();
    keeper.large.sort_by_key(|digest| !recipes.contains(digest));
    Ok(Made {
        delta: collected.delta,
        skipped: collected.skipped.into_iter().map(|skipped| skipped.path).collect(),
        small: keeper.small,
        large: keeper.large,
        _pin: keeper.pin,
    })
}

impl Made {
    /// Why it cannot be committed, if a folder was renamed that holds a mount: it would have to go with it.
    pub fn moved_mount(&self, mounts: &[Mount]) -> Option<String> {
        let moved = |change: &Change| match &change.action {
            Action::Rename { from } if mounts.iter().any(|mount| mount.at.is_within(from)) => Some(from.clone()),
            _ => None,
        };
        let from = self.delta.changes.iter().find_map(moved)?;
        Some(format!("it renamed {from}, in which something is mounted"))
    }

    /// Why it cannot be committed, if it gives a file to nobody where others are shown as nobody as well: it may mean one of them.
    /// `is_outdated`: owners have come up since, of which it knows nothing.
    pub fn unclear_owner(&self, command: &Command, ids: &Ids, is_outdated: bool) -> Option<String> {
        let is_known = |places: &Places| places.is_complete() && !is_outdated;
        let is_unclear = |places: &Places, id: u32, own: u32| id == NOBODY && own != NOBODY && !is_known(places);
        let unclear = |change: &&Change| {
            let attr = change.action.attr();
            attr.is_some_and(|attr| {
                is_unclear(&ids.users, attr.uid, command.uid) || is_unclear(&ids.groups, attr.gid, command.gid)
            })
        };
        let change = self.delta.changes.iter().find(unclear)?;
        Some(format!("{OWNERS}: {} would be nobody's", change.path))
    }
}

/// The objects that the client needs: not those of files of which only attributes changed.
fn wanted(delta: &Delta, recipes: &[(Digest, Recipe)]) -> HashSet<Digest> {
    let mut wanted = HashSet::new();
    for change in &delta.changes {
        let Some((_, content, change)) = change.action.file() else { continue };
        if change == FileChange::Attributes {
            continue;
        }
        match content {
            Content::Block(digest) => {
                wanted.insert(*digest);
            }
            Content::Recipe(name) => {
                wanted.insert(*name);
                let recipe = recipes.iter().find(|(digest, _)| digest == name);
                wanted.extend(recipe.iter().flat_map(|(_, recipe)| &recipe.pieces).filter_map(|piece| piece.block));
            }
            Content::Empty | Content::Lazy(_) | Content::Unreadable(_) => {}
        }
    }
    wanted
}

/// Keeps contents as they are cut.
struct Keeper<'a> {
    store: &'a Arc<BlockStore>,
    backlog: &'a Backlog,
    tenant: Tenant,
    pin: Pin,
    small: Vec<(Digest, Vec<u8>)>,
    small_bytes: usize,
    large: Vec<Digest>,
    known: HashSet<Digest>,
    recipes: Vec<(Digest, Recipe)>,
}

impl<'a> Keeper<'a> {
    fn new(store: &'a Arc<BlockStore>, backlog: &'a Backlog, tenant: Tenant) -> Self {
        let (small, small_bytes, large, known, recipes) = Default::default();
        Self { store, backlog, tenant, pin: store.pin(tenant, &[]), small, small_bytes, large, known, recipes }
    }

    fn keep(&mut self, cutter: &mut Cutter, file: &File, size: u64) -> io::Result<Content> {
        let cut = cutter.cut(file, size, &mut |digest, bytes| self.put(digest, bytes));
        let cut = match cut {
            Ok(cut) => cut,
            Err(CutError::Read(error) | CutError::Sink(error)) => return Err(error),
            Err(CutError::TooManyPieces) => return Err(io::Error::other("the file has too many pieces")),
        };
        if let Some(recipe) = cut.recipe {
            let name = Digest::of(&recipe.encoded);
            self.put(name, &recipe.encoded)?;
            debug_assert_eq!(recipe.recipe.to_bytes(), recipe.encoded);
            self.recipes.push((name, recipe.recipe));
        }
        Ok(cut.content)
    }

    fn put(&mut self, digest: Digest, bytes: &[u8]) -> io::Result<()> {
        if !self.known.insert(digest) {
            return Ok(());
        }
        self.pin.extend(&[digest]);
        self.backlog.room_blocking();
        // The cutter has just named them.
        self.store.put_checked(self.tenant, digest, bytes).map_err(io::Error::other)?;
        if self.small_bytes + bytes.len() <= INLINE_BYTES {
            self.small_bytes += bytes.len();
            self.small.push((digest, bytes.to_vec()));
        } else {
            self.large.push(digest);
        }
        Ok(())
    }
}

/// What the task saw.
struct Seen {
    lane: Arc<LaneGuard>,
    lower: PathBuf,
}

impl Lens for Seen {
    fn base_of(&self, path: &TreePath) -> Option<Base> {
        self.lane.base_of(path)
    }

    fn binding_of(&self, path: &TreePath) -> Option<Binding> {
        self.lane.binding_of(path).map(|bound| bound.binding.clone())
    }

    fn lower(&self) -> &Path {
        &self.lower
    }
}

//! This machine's own distribution as a source of blocks.
//!
//! Machines with the same distribution have the same compilers, libraries and headers under the same names. What a client names,
//! by path and content, is looked for here before it is asked for over a link. Only what everybody on this machine may read
//! is looked at, and only what has the very hash that was named is given: so a client gets nothing that it does not have.
//!
//! Deliberately not here: an index of all files by hash. See decision 0017.

use crate::{BlockStore, Cutter, lock};
use base::codec::Encode;
use base::{Binding, Bound, Content, Digest, Recipe, Tenant, TreePath};
use rustix::fs::{Mode, OFlags};
use std::collections::HashMap;
use std::convert::Infallible;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, OnceLock};

/// Files whose contents are remembered; beyond, some are hashed again.
const KNOWN_MAX: usize = 16_384;
/// Files that are expected for one client; beyond, they are asked for instead.
const EXPECTED_MAX: usize = 65_536;
/// A recipe has 41 bytes for each block of about 64 KiB.
const FILE_BYTES_PER_RECIPE_BYTE: u64 = 1_500;
/// Where a release says what it is.
const RELEASE_FILES: [&str; 2] = ["/etc/os-release", "/usr/lib/os-release"];

/// Names this machine's release and instruction set, by their digest: equal where the distribution is. Empty where no file says.
pub fn release() -> &'static [u8] {
    static RELEASE: OnceLock<Option<Digest>> = OnceLock::new();
    let release = RELEASE.get_or_init(|| {
        let text = RELEASE_FILES.iter().find_map(|path| std::fs::read(path).ok())?;
        Some(Digest::of(&[std::env::consts::ARCH.as_bytes(), b"\n", &text].concat()))
    });
    release.as_ref().map_or(&[], |digest| &digest.0)
}

/// Whether another machine's release and instruction set are this one's.
pub fn is_release(name: &[u8]) -> bool {
    !name.is_empty() && name == release()
}

/// The system's files on this machine.
#[derive(Debug, Default)]
pub struct SystemFiles(Mutex<Looks>);

#[derive(Debug, Default)]
struct Looks {
    cutter: Cutter,
    known: HashMap<TreePath, (Stamp, Content)>,
}

/// What tells a file's states apart: device, inode, size, mtime, ctime.
type Stamp = (u64, u64, u64, (i64, i64), (i64, i64));

/// What one client's views name of the system's files, by the names of what is missing of them: contents, or blocks of one whose
/// recipe is in the store.
#[derive(Debug)]
pub struct Expected {
    files: Arc<SystemFiles>,
    store: Arc<BlockStore>,
    tenant: Tenant,
    named: Mutex<HashMap<Digest, Wanted>>,
}

#[derive(Clone, Debug)]
struct Wanted {
    path: TreePath,
    size: u64,
    content: Content,
    /// Those by which it is looked for.
    names: Arc<[Digest]>,
}

impl SystemFiles {
    /// Puts the blocks of a file into the store, and its recipe, if it is here and is what was named. One file at a time: who hashes
    /// disturbs the machine's owner.
    fn supply(&self, wanted: &Wanted, store: &BlockStore, tenant: Tenant) -> bool {
        let Some((file, stamp)) = open(wanted) else { return false };
        let mut looks = lock(&self.0);
        if missing(store, tenant, &wanted.content).is_empty() {
            // Somebody else was first.
            return true;
        }
        let known = looks.known.get(&wanted.path).filter(|known| known.0 == stamp).map(|known| known.1);
        let content = known.or_else(|| {
            let cut = looks.cutter.cut(&file, wanted.size, &mut |_, _| Ok::<_, Infallible>(())).ok()?;
            if looks.known.len() >= KNOWN_MAX {
                looks.known.clear();
            }
            looks.known.insert(wanted.path.clone(), (stamp, cut.content));
            Some(cut.content)
        });
        if content != Some(wanted.content) {
            return false;
        }
        let put = looks.cutter.cut(&file, wanted.size, &mut |digest, block| store.put_checked(tenant, digest, block));
        let Ok(cut) = put else { return false };
        let recipe = cut.recipe.filter(|_| cut.content == wanted.content);
        recipe.is_none_or(|recipe| store.put(tenant, &recipe.encoded).is_ok())
    }
}

impl Expected {
    /// For what one client names; blocks go into `store`.
    pub fn new(files: Arc<SystemFiles>, store: Arc<BlockStore>, tenant: Tenant) -> Arc<Self> {
        Arc::new(Self { files, store, tenant, named: Mutex::default() })
    }

    /// Notes the system's files among what a view names, and returns those whose contents are not all in the store: their names, and
    /// about how many bytes the objects of these names have.
    pub fn expect<'a>(&self, bounds: impl IntoIterator<Item = &'a Bound>) -> Vec<(Digest, u64)> {
        let mut unsupplied = Vec::new();
        for Bound { path, binding, .. } in bounds {
            let Binding::File { attr, content, .. } = binding else { continue };
            let (name, bytes) = match content {
                Content::Block(name) => (name, attr.size),
                Content::Recipe(name) => (name, attr.size / FILE_BYTES_PER_RECIPE_BYTE),
                Content::Empty | Content::Lazy(_) | Content::Unreadable(_) => continue,
            };
            let names: Arc<[Digest]> = match attr.is_of_system(path) {
                true => missing(&self.store, self.tenant, content).into(),
                false => continue,
            };
            let mut named = lock(&self.named);
            if !names.is_empty() && named.len() + names.len() <= EXPECTED_MAX {
                let wanted = Wanted { path: path.clone(), size: attr.size, content: *content, names };
                named.extend(wanted.names.iter().map(|name| (*name, wanted.clone())));
                unsupplied.push((*name, bytes));
            }
        }
        unsupplied
    }

    /// Looks for the file whose content has this name; whether its blocks are in the store now. Blocks: it may hash the file.
    pub fn find(&self, name: &Digest) -> bool {
        let Some(wanted) = lock(&self.named).get(name).cloned() else { return false };
        let found = self.files.supply(&wanted, &self.store, self.tenant);
        let mut named = lock(&self.named);
        wanted.names.iter().for_each(|name| drop(named.remove(name)));
        drop(named);
        tracing::debug!(path = %wanted.path, found, "looked for a file of the system");
        found
    }

    /// The bytes of an object, if it is the content or the recipe of a file that is here. Blocks.
    pub fn look(&self, name: &Digest) -> Option<Vec<u8>> {
        // What is not expected any more has been found meanwhile, most likely: for another of its blocks.
        self.find(name);
        self.store.get(self.tenant, name).ok().flatten()
    }
}

/// What the store lacks of a content: the name of it, which stands for all its blocks; or blocks, if the recipe is there without
/// them: its sender was cut off, or they were dropped. Whoever has read the recipe asks for these by their own names.
fn missing(store: &BlockStore, tenant: Tenant, content: &Content) -> Vec<Digest> {
    match content {
        Content::Block(name) => {
            if store.contains(tenant, name) {
                Vec::new()
            } else {
                vec![*name]
            }
        }
        Content::Recipe(name) => {
            let recipe = store.get(tenant, name).ok().flatten().and_then(|bytes| Recipe::from_bytes(&bytes).ok());
            let Some(recipe) = recipe else { return vec![*name] };
            let blocks = recipe.pieces.iter().filter_map(|piece| piece.block);
            let mut lacking: Vec<Digest> = blocks.filter(|block| !store.contains(tenant, block)).collect();
            if !lacking.is_empty() {
                lacking.push(*name);
            }
            lacking
        }
        Content::Empty | Content::Lazy(_) | Content::Unreadable(_) => Vec::new(),
    }
}

/// The file, if it can be what is wanted by all but its contents.
fn open(wanted: &Wanted) -> Option<(File, Stamp)> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(wanted.path.as_bytes(), flags, Mode::empty()).ok()?);
    let data = file.metadata().ok()?;
    let readable_by_all = data.mode() & 0o004 != 0;
    let stamp =
        (data.dev(), data.ino(), data.size(), (data.mtime(), data.mtime_nsec()), (data.ctime(), data.ctime_nsec()));
    (data.is_file() && readable_by_all && data.size() == wanted.size).then_some((file, stamp))
}

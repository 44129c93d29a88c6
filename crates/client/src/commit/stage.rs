//! Where a commit's files wait before they are moved into place, and where what they displace is kept until the commit
//! is closed.
//!
//! A rename stays within one mount, so there is a staging folder for each mount that a commit touches: the state
//! folder's own (`stage/`) where that is on the same device and mount; else a hidden folder `.gleaner-XXXXXXXX`, mode
//! 0700, in the highest directory of the mount that can be written, made for one commit and removed with it. Its path is
//! noted in the state folder (`folders`) before it is made, so that a crash leaves nothing behind for long.

use super::plan::Plan;
use super::tree::{self, Tree, is_writable, node_at, node_of, os};
use super::{crash, files};
use base::{TaskId, TreePath};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use wire::lock;

/// How files are made in staging folders.
const NEW_FILE: OFlags = OFlags::RDWR.union(OFlags::CREATE).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);
const NEW_FILE_MODE: Mode = Mode::from_raw_mode(0o600);

/// A place in a staging folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Slot {
    /// Index of the folder among those of the commit.
    pub folder: u32,
    /// Number within the commit.
    pub number: u32,
}

/// Where a staging folder is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Site {
    /// `stage/` in the state folder.
    State,
    /// This folder of the tree.
    Tree(TreePath),
}

/// One staging folder, held.
struct Folder {
    site: Site,
    held: OwnedFd,
    /// Device and mount.
    mount: (u64, u64),
    /// Whether the file system can exchange two names.
    exchanges: bool,
}

/// All staging folders in use by all commits of a daemon.
pub(crate) struct Yard {
    state: PathBuf,
    stage: OwnedFd,
    mount: (u64, u64),
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    in_use: usize,
    /// Whether the list names folders of an earlier life as well.
    inherited: bool,
    /// What the state folder's file system can do, asked once.
    exchanges: Option<bool>,
}

impl Yard {
    /// Opens, and makes if need be, the staging folder of `state`.
    pub(crate) fn open(state: &Path) -> io::Result<Self> {
        let path = state.join("stage");
        files::make_private_folder(&path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let stage = rustix::fs::open(&path, flags, Mode::empty())?;
        let node = node_of(&stage)?;
        let mount = (node.dev, node.mount);
        let inherited = state.join("folders").try_exists()?;
        Ok(Self { state: state.to_owned(), stage, mount, noted: Mutex::new(Noted { inherited, ..Noted::default() }) })
    }

    fn noted(&self) -> std::sync::MutexGuard<'_, Noted> {
        lock(&self.noted)
    }

    /// Notes that a folder is about to be made at `path`.
    fn note(&self, path: &TreePath) -> io::Result<()> {
        let mut noted = self.noted();
        let mut list = File::options().create(true).append(true).open(self.state.join("folders"))?;
        list.write_all(format!("{}\n", base::digest::hex(path.as_bytes())).as_bytes())?;
        noted.in_use += 1;
        Ok(())
    }

    /// Notes that a folder is gone; with the last one the list goes too.
    fn unnote(&self) {
        let mut noted = self.noted();
        noted.in_use = noted.in_use.saturating_sub(1);
        if noted.in_use == 0 && !noted.inherited {
            // A list that stays behind names folders that are gone: harmless.
            let _ = std::fs::remove_file(self.state.join("folders"));
        }
    }

    /// Removes what an earlier life of the daemon left in staging, save for what is of the tasks in `spared`. No commit
    /// may be under way.
    pub(crate) fn sweep(&self, tree: &Tree, spared: &[TaskId]) -> io::Result<()> {
        for name in names_in(&self.stage)? {
            if !spared.iter().any(|task| name.starts_with(slot_prefix(*task).as_bytes())) {
                remove_all(&self.stage, &name)?;
            }
        }
        let list = match std::fs::read_to_string(self.state.join("folders")) {
            Ok(list) => list,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for line in list.lines() {
            let path = base::digest::unhex(line).and_then(|bytes| TreePath::parse(&bytes));
            // Only our own folders: a torn line must not name something else.
            let Some(path) = path.filter(|path| path.name().starts_with(FOLDER_PREFIX)) else { continue };
            if spared.iter().any(|task| path.name().starts_with(&folder_prefix(*task))) {
                continue;
            }
            if let Ok(parent) = tree.parent(&path) {
                remove_all(&*parent, path.name())?;
            }
        }
        if spared.is_empty() {
            std::fs::remove_file(self.state.join("folders"))?;
            self.noted().inherited = false;
        }
        Ok(())
    }
}

/// How the names of staging folders in the tree begin.
pub(crate) const FOLDER_PREFIX: &[u8] = b".gleaner-";

/// Holds a staging folder, so that it can be listed.
fn open_folder(parent: impl AsFd, name: &[u8]) -> io::Result<OwnedFd> {
    tree::open_beneath(parent.as_fd(), name, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// How the names of a task's staging folders in the tree begin.
fn folder_prefix(task: TaskId) -> Vec<u8> {
    [FOLDER_PREFIX, task.short().as_bytes(), b"-"].concat()
}

/// How the names of a task's slots begin.
fn slot_prefix(task: TaskId) -> String {
    format!("{}.", task.to_hex())
}

/// The staging folders of one commit.
pub(crate) struct Stages<'a> {
    yard: &'a Yard,
    task: TaskId,
    folders: Vec<Folder>,
    given: Vec<Slot>,
}

impl<'a> Stages<'a> {
    /// For a commit of `task`; folder 0 is the state folder's.
    pub(crate) fn new(yard: &'a Yard, task: TaskId) -> io::Result<Self> {
        let mut stages = Self { yard, task, folders: Vec::new(), given: Vec::new() };
        let held = rustix::io::fcntl_dupfd_cloexec(&yard.stage, 3)?;
        let known = yard.noted().exchanges;
        stages.folders.push(Folder { site: Site::State, held, mount: yard.mount, exchanges: known.unwrap_or(false) });
        if known.is_none() {
            let exchanges = stages.probe(0)?;
            stages.folders[0].exchanges = exchanges;
            yard.noted().exchanges = Some(exchanges);
        }
        Ok(stages)
    }

    /// The folders of a commit that an earlier life of the daemon began, from its record.
    pub(crate) fn reopen(yard: &'a Yard, plan: &Plan, tree: &Tree) -> io::Result<Self> {
        let mut stages = Self::new(yard, plan.task)?;
        for site in plan.sites.iter().skip(1) {
            let Site::Tree(path) = site else { return Err(io::ErrorKind::InvalidData.into()) };
            let held = open_folder(&*tree.parent(path)?, path.name())?;
            let node = node_of(&held)?;
            let mount = (node.dev, node.mount);
            stages.folders.push(Folder { site: site.clone(), held, mount, exchanges: true });
            yard.noted().in_use += 1;
        }
        tree.forget();
        stages.given = plan.slots();
        match stages.given.iter().all(|slot| (slot.folder as usize) < stages.folders.len()) {
            true => Ok(stages),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Where the folders are, for the record.
    pub(crate) fn sites(&self) -> Vec<Site> {
        self.folders.iter().map(|folder| folder.site.clone()).collect()
    }

    /// The folder from which entries of `directory` (the nearest one that exists now) can be renamed; made if need be.
    /// Where no directory of that mount can be written, it is the state folder's.
    pub(crate) fn folder_for(&mut self, tree: &Tree, directory: &TreePath) -> io::Result<u32> {
        let node = node_of(&*tree.directory(directory)?)?;
        let mount = (node.dev, node.mount);
        if let Some(at) = self.folders.iter().position(|folder| folder.mount == mount) {
            return Ok(at as u32);
        }
        let mut highest = None;
        let mut at = Some(directory.clone());
        while let Some(path) = at {
            let held = tree.directory(&path)?;
            let node = node_of(&*held)?;
            if (node.dev, node.mount) != mount {
                break;
            }
            if is_writable(&*held) {
                highest = Some(path.clone());
            }
            at = path.parent();
        }
        tree.forget();
        highest.map_or(Ok(0), |place| self.make_folder(tree, &place, mount))
    }

    fn make_folder(&mut self, tree: &Tree, place: &TreePath, mount: (u64, u64)) -> io::Result<u32> {
        let name = [folder_prefix(self.task), self.folders.len().to_string().into_bytes()].concat();
        let path = place.join(&name);
        self.yard.note(&path)?;
        crash::point()?;
        let parent = tree.directory(place)?;
        match rustix::fs::mkdirat(&*parent, os(&name), Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => {
                self.yard.unnote();
                return Err(error.into());
            }
        }
        let held = open_folder(&*parent, &name)?;
        let node = node_of(&held)?;
        if node.uid != rustix::process::geteuid().as_raw() || node.mode & 0o077 != 0 {
            return Err(io::Error::other("a staging folder of this name belongs to somebody else"));
        }
        self.folders.push(Folder { site: Site::Tree(path), held, mount, exchanges: false });
        let at = self.folders.len() as u32 - 1;
        self.folders[at as usize].exchanges = self.probe(at)?;
        crash::point()?;
        Ok(at)
    }

    /// Whether the file system of `folder` can exchange names. Tried with names that no slot has: those of a commit that
    /// is recovered are in use.
    fn probe(&self, folder: u32) -> io::Result<bool> {
        let held = self.held(folder);
        let names = ["from", "to"].map(|end| format!("{}{end}", slot_prefix(self.task)).into_bytes());
        for name in &names {
            drop(rustix::fs::openat(held, os(name), NEW_FILE, NEW_FILE_MODE)?);
        }
        let [from, to] = &names;
        let result = rustix::fs::renameat_with(held, os(from), held, os(to), RenameFlags::EXCHANGE);
        for name in &names {
            remove_all(held, name)?;
        }
        Ok(result.is_ok())
    }

    /// Whether names can be exchanged between `folder` and the tree.
    pub(crate) fn exchanges(&self, folder: u32) -> bool {
        self.folders[folder as usize].exchanges
    }

    /// A new, empty slot.
    pub(crate) fn slot(&mut self, folder: u32) -> Slot {
        let slot = Slot { folder, number: self.given.len() as u32 };
        self.given.push(slot);
        slot
    }

    /// The folder, held.
    pub(crate) fn held(&self, folder: u32) -> BorrowedHeld<'_> {
        self.folders[folder as usize].held.as_fd()
    }

    /// The name of `slot` in its folder.
    pub(crate) fn name(&self, slot: Slot) -> Vec<u8> {
        format!("{}{}", slot_prefix(self.task), slot.number).into_bytes()
    }

    /// Makes the file of `slot`.
    pub(crate) fn create(&self, slot: Slot) -> io::Result<File> {
        let name = self.name(slot);
        let made = rustix::fs::openat(self.held(slot.folder), os(&name), NEW_FILE | OFlags::EXCL, NEW_FILE_MODE)?;
        Ok(File::from(made))
    }

    /// Opens the file of `slot` for reading.
    pub(crate) fn open(&self, slot: Slot) -> io::Result<File> {
        let held = tree::open_beneath(self.held(slot.folder), &self.name(slot), OFlags::RDONLY | OFlags::NOFOLLOW)?;
        Ok(File::from(held))
    }

    /// Opens the file of `slot` for writing.
    pub(crate) fn open_to_write(&self, slot: Slot) -> io::Result<File> {
        let held = tree::open_beneath(self.held(slot.folder), &self.name(slot), OFlags::WRONLY | OFlags::NOFOLLOW)?;
        Ok(File::from(held))
    }

    /// Holds what is in `slot`.
    pub(crate) fn hold(&self, slot: Slot) -> io::Result<OwnedFd> {
        tree::open_beneath(self.held(slot.folder), &self.name(slot), OFlags::PATH | OFlags::NOFOLLOW)
    }

    /// What is in `slot`.
    pub(crate) fn node(&self, slot: Slot) -> io::Result<Option<tree::Node>> {
        node_at(self.held(slot.folder), &self.name(slot))
    }

    /// Empties `slot`, whatever is in it.
    pub(crate) fn remove(&self, slot: Slot) -> io::Result<()> {
        remove_all(self.held(slot.folder), &self.name(slot))
    }

    /// Flushes all staging folders' file systems to disk.
    pub(crate) fn flush(&self) -> io::Result<()> {
        self.folders.iter().try_for_each(|folder| Ok(rustix::fs::syncfs(&folder.held)?))
    }

    /// Empties all slots and removes the folders made for this commit. What cannot be removed is left to the sweep at
    /// the daemon's next start.
    pub(crate) fn clear(&mut self, tree: &Tree) -> io::Result<()> {
        for slot in std::mem::take(&mut self.given) {
            self.remove(slot)?;
            crash::point()?;
        }
        while self.folders.len() > 1 {
            let folder = self.folders.pop().expect("the length was just checked");
            for name in names_in(&folder.held)? {
                remove_all(&folder.held, &name)?;
            }
            if let Site::Tree(path) = &folder.site {
                match rustix::fs::unlinkat(&*tree.parent(path)?, os(path.name()), AtFlags::REMOVEDIR) {
                    Ok(()) | Err(Errno::NOENT) => self.yard.unnote(),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        tree.forget();
        Ok(())
    }
}

/// A held folder, lent.
pub(crate) type BorrowedHeld<'a> = std::os::fd::BorrowedFd<'a>;

/// The names in a held folder.
pub(crate) fn names_in(held: impl AsFd) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(held)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

/// Removes `name` in `held` with all beneath, following no link; nothing there is fine.
pub(crate) fn remove_all(held: impl AsFd, name: &[u8]) -> io::Result<()> {
    match rustix::fs::unlinkat(&held, os(name), AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    // Without recursion, so that depth costs memory and not stack: directories are opened one by one and emptied.
    let mut open = vec![Emptied::open(held.as_fd(), name)?];
    while let Some(last) = open.last_mut() {
        match last.directories.pop() {
            Some(beneath) => {
                let next = Emptied::open(last.held.as_fd(), &beneath)?;
                open.push(next);
            }
            None => {
                let emptied = open.pop().expect("the loop has just seen it");
                let parent = open.last().map_or(held.as_fd(), |parent| parent.held.as_fd());
                rustix::fs::unlinkat(parent, os(&emptied.name), AtFlags::REMOVEDIR)?;
            }
        }
    }
    Ok(())
}

/// A directory that is being removed: its files are gone, these directories are left.
struct Emptied {
    held: OwnedFd,
    name: Vec<u8>,
    directories: Vec<Vec<u8>>,
}

impl Emptied {
    fn open(parent: std::os::fd::BorrowedFd<'_>, name: &[u8]) -> io::Result<Self> {
        let held = open_to_empty(parent, name)?;
        let mut directories = Vec::new();
        for name in names_in(&held)? {
            match rustix::fs::unlinkat(&held, os(&name), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::ISDIR | Errno::PERM) => directories.push(name),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Self { held, name: name.to_vec(), directories })
    }
}

/// Opens a directory that is to be emptied, and makes it writable.
fn open_to_empty(parent: std::os::fd::BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let held = match tree::open_beneath(parent, name, flags) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            rustix::fs::chmodat(parent, os(name), Mode::from_raw_mode(0o700), AtFlags::empty())?;
            tree::open_beneath(parent, name, flags)?
        }
        other => other?,
    };
    if !is_writable(&held) {
        rustix::fs::fchmod(&held, Mode::from_raw_mode(0o700))?;
    }
    Ok(held)
}

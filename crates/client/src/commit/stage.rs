//! Where a commit's files wait before they are moved into place, and where what they displace is kept until the commit
//! is closed.
//!
//! A rename stays within one mount, so there is a staging folder for each mount that a commit touches: the state
//! folder's own (`stage/`) where that is on the same device and mount; else a hidden folder `.gleaner-XXXXXXXX`, mode
//! 0700, in the highest directory of the mount that can be written, made for one commit and removed with it. Its path is
//! noted in the state folder (`folders`) before it is made, so that a crash leaves nothing behind for long.
//!
//! What is new in a directory that hands down a group which this user may not give is made in a folder within it. And a
//! directory that this user may not write, so that it can be renamed in its own directory only, waits there, under a
//! hidden name.

use super::emptied::remove_all;
use super::plan::Plan;
use super::rights;
use super::tree::{self, Tree, is_writable, node_at, node_of, os};
use super::{closed, crash, files};
use base::{TaskId, TreePath};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use wire::lock;

/// A failure of the state folder, not of the tree.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct StateFailure(io::Error);

impl StateFailure {
    fn of(error: io::Error) -> io::Error {
        io::Error::new(error.kind(), Self(error))
    }

    /// What failed in the state folder, if `error` is such a failure; else `error` again.
    pub(crate) fn within(error: io::Error) -> Result<io::Error, io::Error> {
        error.downcast::<Self>().map(|failure| failure.0)
    }
}

/// How files are made in staging folders.
/// The rights by which the owner of a directory changes its entries.
const OWNER_CHANGES: u32 = 0o300;
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
    /// This directory of the tree itself, under hidden names.
    Beside(TreePath),
}

/// One staging folder, held.
struct Folder {
    site: Site,
    held: OwnedFd,
    /// Device and mount.
    mount: (u64, u64),
    /// The group that it hands down to what is made in it, if that is why it is where it is.
    group: Option<u32>,
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
    /// The lines of the list that an earlier life wrote, and that are still needed.
    inherited: String,
    /// What commits could not remove, with their tasks.
    left: Vec<(TaskId, Vec<TreePath>)>,
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
        let inherited = read_list(state)?;
        Ok(Self { state: state.to_owned(), stage, mount, noted: Mutex::new(Noted { inherited, ..Noted::default() }) })
    }

    fn noted(&self) -> std::sync::MutexGuard<'_, Noted> {
        lock(&self.noted)
    }

    /// Notes that a folder is about to be made at `path`.
    fn note(&self, path: &TreePath) -> io::Result<()> {
        self.list(path)?;
        self.noted().in_use += 1;
        Ok(())
    }

    /// Writes a path into the list of what is to be swept.
    fn list(&self, path: &TreePath) -> io::Result<()> {
        let _noted = self.noted();
        let list = File::options().create(true).append(true).open(self.state.join("folders"));
        let line = format!("{}\n", base::digest::hex(path.as_bytes()));
        list.and_then(|mut list| list.write_all(line.as_bytes())).map_err(StateFailure::of)
    }

    /// Notes what a commit could not remove: it is tried again before the next one.
    fn leave_behind(&self, task: TaskId, folders: Vec<TreePath>) {
        self.noted().left.push((task, folders));
    }

    /// Removes what earlier commits could not.
    pub(crate) fn tidy(&self, tree: &Tree) {
        let left = std::mem::take(&mut self.noted().left);
        for (task, mut folders) in left {
            let remove = |path: &TreePath| remove_all(&*tree.parent(path)?, path.name());
            folders.retain(|path| remove(path).map(|()| self.unnote()).is_err());
            let slots = names_in(&self.stage).and_then(|names| {
                let mut own = names.iter().filter(|name| name.starts_with(slot_prefix(task).as_bytes()));
                own.try_for_each(|name| remove_all(&self.stage, name))
            });
            if slots.is_err() || !folders.is_empty() {
                self.leave_behind(task, folders);
            }
        }
        tree.forget();
    }

    /// Notes that a folder is gone; with the last one the list goes too.
    fn unnote(&self) {
        let mut noted = self.noted();
        noted.in_use = noted.in_use.saturating_sub(1);
        if noted.in_use == 0 {
            // A list that stays behind names folders that are gone: harmless.
            let _ = self.write_list(&noted.inherited);
        }
    }

    fn write_list(&self, list: &str) -> io::Result<()> {
        let path = self.state.join("folders");
        match list {
            "" => std::fs::remove_file(path).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            }),
            list => std::fs::write(path, list),
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
        let mut needed = String::new();
        for line in read_list(&self.state)?.lines() {
            let path = base::digest::unhex(line).and_then(|bytes| TreePath::parse(&bytes));
            // Only our own folders: a torn line must not name something else.
            let Some(path) = path.filter(|path| path.name().starts_with(FOLDER_PREFIX)) else { continue };
            if spared.iter().any(|task| path.name().starts_with(&folder_prefix(*task))) {
                needed += &format!("{line}\n");
                continue;
            }
            if let Ok(parent) = tree.parent(&path) {
                remove_all(&*parent, path.name())?;
            }
        }
        let mut noted = self.noted();
        self.write_list(&needed)?;
        noted.inherited = needed;
        Ok(())
    }
}

/// The list of folders in the tree, a line each.
fn read_list(state: &Path) -> io::Result<String> {
    match std::fs::read_to_string(state.join("folders")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        other => other,
    }
}

/// How the names of staging folders in the tree begin.
pub(crate) const FOLDER_PREFIX: &[u8] = b".gleaner-";

/// Holds a staging folder, so that it can be listed.
fn open_folder(parent: impl AsFd, name: &[u8]) -> io::Result<OwnedFd> {
    tree::open_beneath(parent.as_fd(), name, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Holds a staging folder that is this user's alone.
fn open_own_folder(parent: impl AsFd, name: &[u8]) -> io::Result<OwnedFd> {
    let held = open_folder(parent, name)?;
    let node = node_of(&held)?;
    match node.uid != rustix::process::geteuid().as_raw() || node.mode & 0o077 != 0 {
        true => Err(io::Error::other("a staging folder of this name belongs to somebody else")),
        false => Ok(held),
    }
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
    /// Something that goes has names elsewhere, which show how many it has.
    has_names_elsewhere: bool,
}

impl<'a> Stages<'a> {
    /// For a commit of `task`; folder 0 is the state folder's.
    pub(crate) fn new(yard: &'a Yard, task: TaskId) -> io::Result<Self> {
        let mut stages = Self { yard, task, folders: Vec::new(), given: Vec::new(), has_names_elsewhere: false };
        let held = rustix::io::fcntl_dupfd_cloexec(&yard.stage, 3)?;
        let known = yard.noted().exchanges;
        let (mount, exchanges) = (yard.mount, known.unwrap_or(false));
        stages.folders.push(Folder { site: Site::State, held, mount, group: None, exchanges });
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
            let (held, exchanges) = match site {
                Site::State => return Err(io::ErrorKind::InvalidData.into()),
                Site::Tree(path) => (open_folder(&*tree.parent(path)?, path.name())?, true),
                Site::Beside(path) => (rustix::io::fcntl_dupfd_cloexec(&*tree.directory(path)?, 3)?, false),
            };
            let node = node_of(&held)?;
            let mount = (node.dev, node.mount);
            stages.folders.push(Folder { site: site.clone(), held, mount, group: None, exchanges });
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
    /// Where no directory of that mount can be written, one of this user's is opened for the moment; else it is the state
    /// folder's. If `is_new`, what is made in it gets the group that it would get in `directory`, or this user may give it that.
    pub(crate) fn folder_for(&mut self, tree: &Tree, directory: &TreePath, is_new: bool) -> io::Result<u32> {
        let held = tree.directory(directory)?;
        let node = node_of(&*held)?;
        let mount = (node.dev, node.mount);
        let hands_down = is_new && node.mode & 0o2000 != 0 && !rights::may_give_group(node.gid) && is_writable(&*held);
        let group = hands_down.then_some(node.gid);
        let fits =
            |folder: &Folder| folder.mount == mount && folder.group == group && !matches!(folder.site, Site::Beside(_));
        if let Some(at) = self.folders.iter().position(fits) {
            return Ok(at as u32);
        }
        if group.is_some() {
            return self.make_folder(tree, directory, mount, group);
        }
        let (mut highest, mut closed) = (None, None);
        let mut at = Some(directory.clone());
        while let Some(path) = at {
            let held = tree.directory(&path)?;
            let node = node_of(&*held)?;
            if (node.dev, node.mount) != mount {
                break;
            }
            if is_writable(&*held) {
                highest = Some(path.clone());
            } else if rights::owns(&node) {
                closed = Some(path.clone());
            }
            at = path.parent();
        }
        tree.forget();
        highest.or(closed).map_or(Ok(0), |place| self.make_folder(tree, &place, mount, None))
    }

    /// A new slot in `directory` itself, under a hidden name.
    pub(crate) fn slot_beside(&mut self, tree: &Tree, directory: &TreePath) -> io::Result<Slot> {
        let site = Site::Beside(directory.clone());
        let folder = match self.folders.iter().position(|folder| folder.site == site) {
            Some(at) => at,
            None => {
                let held = rustix::io::fcntl_dupfd_cloexec(&*tree.directory(directory)?, 3)?;
                let node = node_of(&held)?;
                let mount = (node.dev, node.mount);
                self.yard.noted().in_use += 1;
                self.folders.push(Folder { site, held, mount, group: None, exchanges: false });
                self.folders.len() - 1
            }
        };
        let slot = self.slot(folder as u32);
        self.yard.list(&directory.join(&self.name(slot)))?;
        Ok(slot)
    }

    fn make_folder(&mut self, tree: &Tree, place: &TreePath, mount: (u64, u64), group: Option<u32>) -> io::Result<u32> {
        let name = [folder_prefix(self.task), self.folders.len().to_string().into_bytes()].concat();
        let path = place.join(&name);
        self.yard.note(&path)?;
        crash::point()?;
        let parent = tree.directory(place)?;
        let make = || Ok(rustix::fs::mkdirat(&*parent, os(&name), Mode::from_raw_mode(0o700))?);
        let made = in_opened(&parent, make);
        let is_made = made.is_ok();
        let held = match made {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => open_own_folder(&*parent, &name),
        };
        let held = held.inspect_err(|_| {
            if is_made {
                // It is empty. What stays is removed at the next start.
                let _ = keeping_time(&parent, || rustix::fs::unlinkat(&*parent, os(&name), AtFlags::REMOVEDIR));
            }
            self.yard.unnote();
        })?;
        self.folders.push(Folder { site: Site::Tree(path), held, mount, group, exchanges: false });
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

    /// The group that `folder` hands down, if it is where it is for that.
    pub(crate) fn group(&self, folder: u32) -> Option<u32> {
        self.folders[folder as usize].group
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
        match self.folders[slot.folder as usize].site {
            Site::Beside(_) => [&folder_prefix(self.task)[..], format!("b{}", slot.number).as_bytes()].concat(),
            _ => format!("{}{}", slot_prefix(self.task), slot.number).into_bytes(),
        }
    }

    /// Makes the file of `slot`.
    pub(crate) fn create(&self, slot: Slot) -> io::Result<File> {
        let name = self.name(slot);
        let made = rustix::fs::openat(self.held(slot.folder), os(&name), NEW_FILE | OFlags::EXCL, NEW_FILE_MODE)?;
        Ok(File::from(made))
    }

    /// Opens the file of `slot` for reading.
    pub(crate) fn open(&self, slot: Slot) -> io::Result<File> {
        let open = || tree::open_beneath(self.held(slot.folder), &self.name(slot), OFlags::RDONLY | OFlags::NOFOLLOW);
        match open() {
            // It has the mode that the task gave it, which may be closed to this user.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let held = self.hold(slot)?;
                let chmod =
                    |mode| rustix::fs::chmodat(CWD, tree::magic(&held), Mode::from_raw_mode(mode), AtFlags::empty());
                let mode = node_of(&held)?.mode;
                chmod(mode | 0o400)?;
                let opened = open();
                chmod(mode)?;
                Ok(File::from(opened?))
            }
            other => Ok(File::from(other?)),
        }
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
        let folder = &self.folders[slot.folder as usize];
        let remove = || remove_all(&folder.held, &self.name(slot));
        match folder.site {
            Site::Beside(_) => in_opened(&folder.held, remove),
            Site::State | Site::Tree(_) => remove(),
        }
    }

    /// Flushes all staging folders' file systems to disk.
    pub(crate) fn flush(&self) -> io::Result<()> {
        // What only changes its name is flushed with its directory.
        let mut folders = self.folders.iter().filter(|folder| !matches!(folder.site, Site::Beside(_)));
        folders.try_for_each(|folder| Ok(rustix::fs::syncfs(&folder.held)?))
    }

    /// Leaves all as it is, to be found again by the record.
    pub(crate) fn leave(&mut self) {
        self.given.clear();
        while self.folders.len() > 1 {
            self.folders.pop();
            let mut noted = self.yard.noted();
            noted.in_use = noted.in_use.saturating_sub(1);
        }
    }

    /// Notes that this is to go: what other names it has show how many there are.
    pub(crate) fn note_leaving(&mut self, node: &tree::Node) {
        self.has_names_elsewhere |= !node.is_directory() && node.nlink > 1;
    }

    /// Takes what waits in the state folder out of what [`Self::clear`] removes: the folder, and the names there. `None` if somebody
    /// would see that it is not gone, by the names that it has elsewhere.
    pub(crate) fn take_displaced(&mut self) -> io::Result<Option<(OwnedFd, Vec<Vec<u8>>)>> {
        if self.has_names_elsewhere {
            return Ok(None);
        }
        let stage = rustix::io::fcntl_dupfd_cloexec(&self.yard.stage, 3)?;
        let (ours, others): (Vec<Slot>, Vec<Slot>) =
            std::mem::take(&mut self.given).into_iter().partition(|slot| slot.folder == 0);
        self.given = others;
        Ok(Some((stage, ours.into_iter().map(|slot| self.name(slot)).collect())))
    }

    /// Empties all slots and removes the folders made for this commit. What cannot be removed is tried again before the next
    /// commit, and at the daemon's next start.
    pub(crate) fn clear(&mut self, tree: &Tree) -> io::Result<()> {
        let folders = self.folders.iter().filter_map(|folder| match &folder.site {
            Site::Tree(path) => Some(path.clone()),
            _ => None,
        });
        let mut folders: Vec<TreePath> = folders.collect();
        self.clear_slots(tree, &mut folders).inspect_err(|_| self.yard.leave_behind(self.task, folders))
    }

    fn clear_slots(&mut self, tree: &Tree, left: &mut Vec<TreePath>) -> io::Result<()> {
        for slot in std::mem::take(&mut self.given) {
            self.remove(slot)?;
            crash::point()?;
        }
        while self.folders.len() > 1 {
            let folder = self.folders.pop().expect("the length was just checked");
            let Site::Tree(path) = &folder.site else {
                self.yard.unnote();
                continue;
            };
            for name in names_in(&folder.held)? {
                remove_all(&folder.held, &name)?;
            }
            match remove_folder(&folder.held, path.name()) {
                Ok(()) | Err(Errno::NOENT) => self.yard.unnote(),
                Err(error) => return Err(error.into()),
            }
            left.pop();
        }
        tree.forget();
        Ok(())
    }
}

/// Makes or removes a staging folder in `parent`, and gives that the time back that it had: on a mount of its own the task
/// may have changed, or set the time of, this very directory.
fn keeping_time<T>(parent: &OwnedFd, change: impl FnOnce() -> T) -> T {
    let before = node_of(parent).ok();
    let changed = change();
    if let Some(before) = before {
        // Of another's directory it cannot be set, which shows in that time only.
        let _ = tree::set_mtime(parent, before.mtime);
    }
    changed
}

/// Removes a staging folder of this name, which is empty, from where it is now: the directory may have been renamed.
fn remove_folder(held: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = rustix::fs::openat(held, "..", flags, Mode::empty())?;
    in_opened(&parent, || Ok(rustix::fs::unlinkat(&parent, os(name), AtFlags::REMOVEDIR)?))
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Makes or removes something in a directory that keeps its time. One of this user's that is closed is opened for the moment.
fn in_opened(directory: &OwnedFd, change: impl Fn() -> io::Result<()>) -> io::Result<()> {
    match keeping_time(directory, &change) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::ACCESS) => {}
        other => return other,
    }
    closed::opened(directory, OWNER_CHANGES, || keeping_time(directory, &change))
}

/// A held folder, lent.
pub(crate) type BorrowedHeld<'a> = std::os::fd::BorrowedFd<'a>;

/// The names in a held folder. Looking does not move the time of its last access, where this user may ask for that.
pub(crate) fn names_in(held: impl AsFd) -> io::Result<Vec<Vec<u8>>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listed = crate::snapshot::unseen(|more| rustix::fs::openat(&held, ".", flags | more, Mode::empty()))?;
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::new(listed)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

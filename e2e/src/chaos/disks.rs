//! Disks that can be full, and can fail: a small file system of its own, in a file, for the state of a worker, the hub and the client.

use super::plan::{Part, WITH_DISKS};
use crate::error::{Context, Error, Result};
use crate::pool::{NODES, Pool};
use crate::process::{Run, shell, wait_for};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::ioctl::{Setter, ioctl, opcode};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount_change};
use rustix::thread::UnshareFlags;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of each. A client and a worker leave 256 MiB free, a hub's journal makes its files of 64 MiB ahead.
const SIZE: u64 = 1 << 30;
/// How long a disk may be in use after its part has ended.
const UNMOUNT_BOUND: Duration = Duration::from_secs(10);
/// The file by which a disk is known.
const DISK: &str = "disk";
/// The file that takes all room.
const FILLER: &str = "filler";
/// `EXT4_IOC_SHUTDOWN`: from then on all that is asked of the file system fails.
const SHUTDOWN: u32 = opcode::read::<u32>(b'X', 125);
/// What is not written out by then is lost, the journal's, too.
const WITHOUT_FLUSH: u32 = 2;

/// Does this with mounts of its own: whatever else begins on this machine meanwhile (another pool's workers) would have a disk that is
/// exchanged here among its own mounts, and keep it.
pub fn apart<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let work = || {
        // SAFETY: no other thread shares what this one lets go, and none of its descriptors lead to what is mounted.
        let unshared = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) };
        let made =
            unshared.and_then(|()| mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC));
        made.context(|| "cannot have mounts of its own (needs root)".to_owned())?;
        work()
    };
    let panicked = |_| Error::Product("a campaign panicked".into());
    std::thread::scope(|scope| scope.spawn(work).join()).map_err(panicked)?
}

/// The disks of a pool.
#[derive(Debug)]
pub struct Disks {
    all: Vec<Disk>,
}

#[derive(Debug)]
struct Disk {
    part: Part,
    /// Where it is mounted.
    place: PathBuf,
    /// The device that it is.
    device: String,
}

impl Disks {
    /// Puts the state of the first worker, the hub and the client on disks of their own. The worker is not running afterwards.
    pub fn mount(pool: &mut Pool) -> Result<Self> {
        let root = pool.scratch.path().to_path_buf();
        pool.stop_client()?;
        pool.workers[0].kill();
        pool.hub.kill();
        let names = ["worker0", "hub", "client"];
        let disks = WITH_DISKS.into_iter().zip(names).map(|(part, name)| Disk::made(part, name, &root));
        let all = disks.collect::<Result<Vec<_>>>()?;
        pool.restart_hub()?;
        Ok(Self { all })
    }

    fn of(&self, part: Part) -> Option<&Disk> {
        self.all.iter().find(|disk| disk.part == part)
    }

    /// Takes all room of a part's disk; false if it has none of its own.
    pub fn fill(&self, part: Part) -> bool {
        self.of(part).is_some_and(|disk| fill(&disk.place).is_ok())
    }

    /// Has a part's disk fail; false if it has none of its own, or has failed already.
    pub fn fail(&self, part: Part) -> bool {
        self.of(part).is_some_and(|disk| shut_down(&disk.place).is_ok())
    }

    /// Whether it has failed by our doing.
    pub fn has_failed(&self, part: Part) -> bool {
        self.of(part).is_some_and(Disk::has_failed)
    }

    /// Whether a part's disk works and has room.
    pub fn works(&self, part: Part) -> bool {
        self.of(part).is_none_or(|disk| !disk.has_failed() && !disk.place.join(FILLER).exists())
    }

    /// Mounts a part's disk anew, after the part has ended; `end` has those of its processes end that have come since.
    pub fn replace(&self, part: Part, end: impl Fn()) -> Result<()> {
        let Some(disk) = self.of(part) else { return Ok(()) };
        // As long as somebody has it, it is the same one that is mounted again.
        let is_new = || {
            end();
            disk.unmount();
            disk.mount().is_ok() && !disk.has_failed()
        };
        match wait_for(UNMOUNT_BOUND, || is_new().then_some(())) {
            Some(()) => Ok(()),
            None => Err(disk.in_use()),
        }
    }

    /// Gives the room back.
    pub fn empty(&self, part: Part) {
        // What was never filled has none.
        let _ = self.of(part).map(|disk| std::fs::remove_file(disk.place.join(FILLER)));
    }

    /// Has a disk be read only, or not any more; false if that cannot be, for somebody has a file there open for writing.
    pub fn set_read_only(&self, part: Part, is: bool) -> bool {
        let flags = if is { MountFlags::RDONLY | MountFlags::NOSUID } else { MountFlags::NOSUID };
        self.of(part).is_some_and(|disk| rustix::mount::mount_remount(&disk.place, flags, c"").is_ok())
    }

    /// Gives back the room of all.
    pub fn empty_all(&self) {
        self.all.iter().for_each(|disk| self.empty(disk.part));
    }

    /// Takes the disks away, of parts that do not run any more. What tells a run's leftovers from others' stays.
    pub fn unmount(self, pool: &Pool) -> Result<()> {
        let nodes = pool.scratch.path().join(NODES);
        let list = std::fs::read(&nodes).at("read", &nodes)?;
        for disk in &self.all {
            // A process that has just ended may hold it for a moment.
            wait_for(UNMOUNT_BOUND, || disk.unmount().then_some(()));
            if disk.place.join(DISK).exists() {
                return Err(disk.in_use());
            }
        }
        let folder = nodes.parent().ok_or_else(|| Error::Product("the list of nodes is in no folder".into()))?;
        std::fs::create_dir_all(folder).at("create", folder)?;
        std::fs::write(&nodes, list).at("write", &nodes)
    }
}

impl Disk {
    /// Makes one for the state of the part of this name, with what is there.
    fn made(part: Part, name: &str, root: &Path) -> Result<Self> {
        let (place, image) = (root.join(name).join("state"), root.join(format!("disk-of-{name}")));
        let file = File::create(&image).at("create", &image)?;
        file.set_len(SIZE).at("size", &image)?;
        let image = image.display();
        let words = "-q -F -m 0 -E lazy_itable_init=1,lazy_journal_init=1,nodiscard";
        let script = format!("mkfs.ext4 {words} '{image}' && losetup --find --show '{image}'");
        let device = Run::new(shell(&script)).run()?.expect_ok("mkfs.ext4 and losetup")?.text();
        let disk = Self { part, place, device };
        let aside = disk.place.with_extension("aside");
        copy(&disk.place, &aside)?;
        disk.mount()?;
        let _ = std::fs::remove_dir(disk.place.join("lost+found"));
        copy(&aside, &disk.place)?;
        std::fs::set_permissions(&disk.place, PermissionsExt::from_mode(0o700)).at("chmod", &disk.place)?;
        std::fs::write(disk.place.join(DISK), b"").at("write on", &disk.place)?;
        // What the parts had before this is theirs for good.
        let held = File::open(&disk.place).at("open", &disk.place)?;
        rustix::fs::syncfs(held).map_err(std::io::Error::from).at("write out", &disk.place)?;
        Ok(disk)
    }

    fn mount(&self) -> Result<()> {
        rustix::mount::mount(&self.device, &self.place, "ext4", MountFlags::NOSUID, c"")
            .at("mount a disk on", &self.place)
    }

    /// Whether it is not mounted any more.
    fn unmount(&self) -> bool {
        rustix::mount::unmount(&self.place, UnmountFlags::empty()).is_ok()
    }

    /// Whether it does nothing any more: what is there can be looked at in memory, and not opened.
    fn has_failed(&self) -> bool {
        File::open(self.place.join(DISK)).is_err()
    }

    fn in_use(&self) -> Error {
        Error::Product(format!("{} is in use: a process of the pool remains", self.place.display()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.unmount();
        let _ = Run::new(shell(&format!("losetup --detach '{}'", self.device))).run();
    }
}

fn shut_down(place: &Path) -> rustix::io::Result<()> {
    let held = rustix::fs::open(place, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    // SAFETY: the request reads one number, and changes nothing of this process.
    unsafe { ioctl(held, Setter::<SHUTDOWN, u32>::new(WITHOUT_FLUSH)) }
}

fn fill(place: &Path) -> std::io::Result<()> {
    let free = rustix::fs::statvfs(place)?;
    let mut file = File::create(place.join(FILLER))?;
    let bytes = free.f_bavail.saturating_sub(8) * free.f_frsize;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes.max(1))?;
    // To the last byte.
    while file.write_all(&[0; 4096]).is_ok() {}
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).at("create", to)?;
    let script = format!("cp -a '{}/.' '{}/'", from.display(), to.display());
    Run::new(shell(&script)).run()?.expect_ok("cp").map(drop)
}

//! Disks that can be full: a small file system in memory for the state of a worker, the hub and the client.

use super::plan::Part;
use crate::error::{Context, Error, Result};
use crate::pool::{NODES, Pool};
use crate::process::{Run, shell, wait_for};
use rustix::fs::FallocateFlags;
use rustix::mount::{MountFlags, UnmountFlags};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Of each. A client and a worker leave 256 MiB free, a hub's journal makes its files of 64 MiB ahead.
const SIZE: &std::ffi::CStr = c"size=1g,mode=0700";
/// How long a disk may be in use after its part has ended.
const UNMOUNT_BOUND: Duration = Duration::from_secs(10);
/// The file by which a disk is known.
const DISK: &str = "disk";
/// The file that takes all room.
const FILLER: &str = "filler";

/// The disks of a pool.
#[derive(Debug)]
pub struct Disks {
    all: Vec<(Part, PathBuf)>,
}

impl Disks {
    /// Puts the state of the first worker, the hub and the client on disks of their own. The worker is not running afterwards.
    pub fn mount(pool: &mut Pool) -> Result<Self> {
        let root = pool.scratch.path().to_path_buf();
        let places = [(Part::Daemon, "client/state"), (Part::Worker(0), "worker0/state"), (Part::Hub, "hub/state")];
        let all: Vec<(Part, PathBuf)> = places.into_iter().map(|(part, name)| (part, root.join(name))).collect();
        pool.client.gleaner(&["stop"])?.expect_ok("gleaner stop")?;
        pool.workers[0].kill();
        pool.hub.kill();
        for (_, place) in &all {
            let aside = place.with_extension("aside");
            copy(place, &aside)?;
            rustix::mount::mount("tmpfs", place, "tmpfs", MountFlags::NOSUID, SIZE).at("mount a disk on", place)?;
            copy(&aside, place)?;
            std::fs::write(place.join(DISK), b"").at("write on", place)?;
        }
        pool.restart_hub()?;
        Ok(Self { all })
    }

    fn place(&self, part: Part) -> Option<&Path> {
        self.all.iter().find(|(of, _)| *of == part).map(|(_, place)| place.as_path())
    }

    /// Takes all room of a part's disk; false if it has none of its own.
    pub fn fill(&self, part: Part) -> bool {
        self.place(part).is_some_and(|place| fill(place).is_ok())
    }

    /// Whether it is full by our doing.
    pub fn is_full(&self, part: Part) -> bool {
        self.place(part).is_some_and(|place| place.join(FILLER).exists())
    }

    /// Gives the room back.
    pub fn empty(&self, part: Part) {
        // What was never filled has none.
        let _ = self.place(part).map(|place| std::fs::remove_file(place.join(FILLER)));
    }

    /// Has a disk be read only, or not any more; false if that cannot be, for somebody has a file there open for writing.
    pub fn set_read_only(&self, part: Part, is: bool) -> bool {
        let flags = if is { MountFlags::RDONLY | MountFlags::NOSUID } else { MountFlags::NOSUID };
        self.place(part).is_some_and(|place| rustix::mount::mount_remount(place, flags, SIZE).is_ok())
    }

    /// Gives back the room of all.
    pub fn empty_all(&self) {
        self.all.iter().for_each(|(part, _)| self.empty(*part));
    }

    /// Takes the disks away, of parts that do not run any more. What tells a run's leftovers from others' stays.
    pub fn unmount(self, pool: &Pool) -> Result<()> {
        let nodes = pool.scratch.path().join(NODES);
        let list = std::fs::read(&nodes).at("read", &nodes)?;
        for (_, place) in &self.all {
            // A process that has just ended may hold it for a moment.
            let unmount = || rustix::mount::unmount(place, UnmountFlags::empty());
            wait_for(UNMOUNT_BOUND, || unmount().ok());
            if place.join(DISK).exists() {
                return Err(Error::Product(format!("{} is in use: a process of the pool remains", place.display())));
            }
        }
        let folder = nodes.parent().ok_or_else(|| Error::Product("the list of nodes is in no folder".into()))?;
        std::fs::create_dir_all(folder).at("create", folder)?;
        std::fs::write(&nodes, list).at("write", &nodes)
    }
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

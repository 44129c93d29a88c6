//! What the zygote makes once for a client and lends to its tasks: the user namespace, the template of `/dev`, and a
//! pool of network namespaces with nothing but the loopback interface.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::{Resource, Rlimit};
use rustix::thread::UnshareFlags;

use crate::ids::Ids;

use super::interfaces;
use super::order::Failure;
use super::sys::{self, Fork};

/// Clients whose namespaces are kept; beyond, the one that has been idle longest goes.
const CLIENTS_MAX: usize = 64;
/// Part of the limits of the worker's own user that all tasks of a client have together.
const PART_OF_LIMITS: u64 = 8;
/// Idle network namespaces kept for a client.
const NETWORKS_MAX: usize = 32;

/// Devices of a guest: name, major and minor number.
const DEVICES: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];
const LINKS: [(&str, &str); 6] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
    ("core", "/proc/kcore"),
];

/// What is kept for one client.
#[derive(Debug)]
pub struct Client {
    id_base: u32,
    /// Its user namespace, and which ids that has.
    pub users: OwnedFd,
    ids: Ids,
    /// The template of its `/dev`; `true`: it has mounts beneath it.
    pub devices: (PathBuf, bool),
    networks: Vec<OwnedFd>,
    running: u32,
    last_used: u64,
}

/// All clients.
#[derive(Debug)]
pub struct Clients {
    place: PathBuf,
    all: Vec<Client>,
    clock: u64,
}

/// A step of the preparation that failed, told so that a person can act.
fn failed<E: Into<std::io::Error>>(step: &str) -> impl Fn(E) -> Failure + '_ {
    move |error| {
        let error: std::io::Error = error.into();
        Failure { step: step.to_owned(), errno: error.raw_os_error().unwrap_or(0), message: error.to_string() }
    }
}

impl Clients {
    /// Templates are mounted in `place`.
    pub fn new(place: PathBuf) -> Self {
        Self { place, all: Vec::new(), clock: 0 }
    }

    /// What is kept for the client of these ids, made if need be, and a network namespace of its own. To be returned
    /// with [`Clients::give_back`]. A user namespace of other ids stays that of the tasks that run in it.
    pub fn take(&mut self, id_base: u32, ids: &Ids) -> Result<(&Client, OwnedFd), Failure> {
        self.clock += 1;
        let at = match self.all.iter().position(|client| client.id_base == id_base) {
            Some(at) => at,
            None => {
                self.make_room();
                self.all.push(Client::new(id_base, ids, &self.place)?);
                self.all.len() - 1
            }
        };
        let client = &mut self.all[at];
        if client.ids != *ids {
            (client.users, client.ids) = (new_users(id_base, ids)?, ids.clone());
        }
        let network = match client.networks.pop() {
            Some(network) => network,
            None => new_network().map_err(failed("network namespace"))?,
        };
        client.running += 1;
        client.last_used = self.clock;
        Ok((client, network))
    }

    /// A task is gone; takes back its network namespace, if another one may have that.
    pub fn give_back(&mut self, id_base: u32, network: Option<OwnedFd>) {
        if let Some(client) = self.all.iter_mut().find(|client| client.id_base == id_base) {
            client.running = client.running.saturating_sub(1);
            if client.networks.len() < NETWORKS_MAX {
                client.networks.extend(network);
            }
        }
    }

    fn make_room(&mut self) {
        let idle = self.all.iter().enumerate().filter(|(_, client)| client.running == 0);
        let oldest = idle.min_by_key(|(_, client)| client.last_used).map(|(at, _)| at);
        if let Some(at) = oldest.filter(|_| self.all.len() >= CLIENTS_MAX) {
            let client = self.all.swap_remove(at);
            let _ = rustix::mount::unmount(&client.devices.0, UnmountFlags::DETACH);
            let _ = fs::remove_dir(&client.devices.0);
        }
    }
}

impl Client {
    fn new(id_base: u32, ids: &Ids, place: &Path) -> Result<Self, Failure> {
        let users = new_users(id_base, ids)?;
        let path = place.join(format!("dev-{id_base}"));
        let nested = make_devices(&path, id_base).map_err(failed("device folder"))?;
        let (devices, ids, networks) = ((path, nested), ids.clone(), Vec::new());
        Ok(Self { id_base, users, ids, devices, networks, running: 0, last_used: 0 })
    }
}

/// A user namespace in which the low ids are `id_base` and up outside and `ids` have their places, that can have no children, and whose users
/// have no more than a part of what the kernel gives to the worker's own user: all that they take of it is charged to that as well.
fn new_users(id_base: u32, ids: &Ids) -> Result<OwnedFd, Failure> {
    const STEP: &str = "user namespace";
    let (wait, go) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(failed(STEP))?;
    let lowered = lower_limits();
    // SAFETY: the zygote has one thread, and the child ends in exit_now.
    let forked = unsafe { sys::fork_into(libc::CLONE_NEWUSER, None) };
    for (resource, limit) in lowered {
        let _ = rustix::process::setrlimit(resource, limit);
    }
    let helper = match forked.map_err(failed(STEP))? {
        Fork::Child => {
            drop(go);
            let mut told = [0];
            let mapped = rustix::io::read(&wait, &mut told) == Ok(1);
            let closed = mapped && fs::write("/proc/sys/user/max_user_namespaces", "0").is_ok();
            if mapped {
                lower_inotify();
            }
            sys::exit_now(i32::from(!closed));
        }
        Fork::Parent(helper, _) => helper,
    };
    let mapped = (|| {
        fs::write(format!("/proc/{helper}/uid_map"), ids.users.map(id_base))?;
        fs::write(format!("/proc/{helper}/gid_map"), ids.groups.map(id_base))?;
        let path = format!("/proc/{helper}/ns/user");
        let users = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(&go, b"g")?;
        Ok::<_, std::io::Error>(users)
    })();
    drop(go);
    let ended = sys::wait_for(helper, 0);
    let users = mapped.map_err(failed("mapping the ids of a user namespace"))?;
    // Without the limit inside, seccomp still refuses nested namespaces.
    let _ = ended;
    Ok(users)
}

/// The limits at which the kernel bounds all of a new user namespace are this process's at the time: a part of them. What they were.
fn lower_limits() -> Vec<(Resource, Rlimit)> {
    let lower = |resource| {
        let limit = rustix::process::getrlimit(resource);
        let part = limit.current.map(|current| (current / PART_OF_LIMITS).max(1));
        rustix::process::setrlimit(resource, Rlimit { current: part, ..limit }).ok()?;
        Some((resource, limit))
    };
    [Resource::Sigpending, Resource::Msgqueue, Resource::Memlock].into_iter().filter_map(lower).collect()
}

/// The same of what this user namespace may have of inotify, of which ordinary machines give a user very little.
fn lower_inotify() {
    for (own, all) in [("max_inotify_instances", "max_user_instances"), ("max_inotify_watches", "max_user_watches")] {
        let all = fs::read_to_string(format!("/proc/sys/fs/inotify/{all}")).unwrap_or_default();
        if let Ok(all) = all.trim().parse::<u64>() {
            let _ = fs::write(format!("/proc/sys/user/{own}"), (all / PART_OF_LIMITS).max(1).to_string());
        }
    }
}

/// A network namespace with the loopback interface up. The zygote stays in the newest one: it needs no network.
fn new_network() -> Result<OwnedFd, rustix::io::Errno> {
    // SAFETY: descriptors are not unshared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
    interfaces::loopback_up()?;
    // Else a port that one task closed could not be bound by the next one in here for a minute.
    let _ = fs::write("/proc/sys/net/ipv4/tcp_max_tw_buckets", "0");
    rustix::fs::open("/proc/self/ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Mounts a read-only `/dev` at `path`. Returns whether it has mounts beneath it.
fn make_devices(path: &Path, id_base: u32) -> std::io::Result<bool> {
    fs::create_dir_all(path)?;
    let options = c"mode=755,size=64k,nr_inodes=64";
    rustix::mount::mount("gleaner", path, "tmpfs", MountFlags::NOSUID, Some(options))?;
    let own = Some(id_base);
    let mut nested = false;
    for (name, major, minor) in DEVICES {
        let device = path.join(name);
        let number = rustix::fs::makedev(major, minor);
        let made = rustix::fs::mknodat(
            rustix::fs::CWD,
            &device,
            FileType::CharacterDevice,
            Mode::from_raw_mode(0o666),
            number,
        );
        // A device that this mount or this user may not have is lent by the worker's own /dev instead.
        if made.is_ok()
            && rustix::fs::open(&device, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).is_ok()
            && usable(&device)
        {
            fs::set_permissions(&device, fs::Permissions::from_mode(0o666))?;
            chown(&device, own, own)?;
            continue;
        }
        let _ = fs::remove_file(&device);
        fs::write(&device, b"")?;
        rustix::mount::mount_bind(Path::new("/dev").join(name), &device)?;
        // It is the machine's own: it can still be written to, and its times and mode stay.
        let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID;
        let _ = rustix::mount::mount_remount(&device, flags | MountFlags::NOEXEC, "")
            .or_else(|_| rustix::mount::mount_remount(&device, flags, ""));
        nested = true;
    }
    for (name, target) in LINKS {
        symlink(target, path.join(name))?;
    }
    fs::write(path.join("gleaner"), b"")?;
    for name in [super::rootfs::EMPTY, "pts"] {
        fs::create_dir(path.join(name))?;
    }
    chown(path, own, own)?;
    rustix::mount::mount_remount(path, MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID, "")?;
    Ok(nested)
}

/// Whether this device node works: not on a mount or in a device group that forbids it. `tty` cannot be opened without
/// a controlling terminal, which is another error.
fn usable(device: &Path) -> bool {
    let opened = rustix::fs::open(device, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty());
    opened
        .map_or_else(|error| error == rustix::io::Errno::NXIO, |device| rustix::io::fcntl_getfd(device.as_fd()).is_ok())
}

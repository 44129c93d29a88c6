//! A worker whose root holds nothing of the user's: a mount namespace with a file system that has the `gleaner` binary, the
//! libraries it needs, devices, `/proc`, `/sys` and its state folder, and no compiler, header, shell or source.
//!
//! All of it lives in the namespace, so it is gone with the process. Needs root.

use crate::error::{Context, Error, Result};
use crate::pool::WITHOUT;
use crate::scratch::MARK;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::thread::UnshareFlags;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is to run in an empty root.
#[derive(Clone, Debug)]
pub struct EmptyRoot {
    /// A folder of its own, on which the new root is mounted.
    pub mount_point: PathBuf,
    /// The `gleaner` binary outside.
    pub program: PathBuf,
    /// Folder outside that is `/state` inside.
    pub state: PathBuf,
    /// The run's scratch folder, for [`MARK`].
    pub mark: PathBuf,
}

/// In its environment: the machine's shared memory is there as well, so that a worker knows tasks of its own account for its owner's.
pub const OWNERS: &str = "GLEANER_E2E_OWNERS";

/// In its environment: the control group of version 1 for processors that is the whole machine to the worker. It is in it.
pub const MACHINE: &str = "GLEANER_E2E_MACHINE";

/// First argument with which the suite's binary calls [`EmptyRoot::exec`].
pub const SUBCOMMAND: &str = "empty-root";

impl EmptyRoot {
    /// The command that starts `gleaner` with `arguments` in this root, by way of the suite's binary.
    pub fn command(&self, suite: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(suite);
        command.arg(SUBCOMMAND).args([&self.mount_point, &self.program, &self.state, &self.mark]).args(arguments);
        command.env_clear().env(MARK, &self.mark).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }

    /// Builds the root and becomes `gleaner` in it. Returns only on failure. Must be called while the process has a single
    /// thread.
    pub fn exec(&self, arguments: &[String]) -> Error {
        match self.build() {
            Err(error) => error,
            Ok(()) => {
                let mut command = Command::new("/bin/gleaner");
                command.args(arguments).env_clear().env(MARK, &self.mark);
                command.env("PATH", "/bin").env("HOME", "/state").env("TMPDIR", "/tmp").current_dir("/");
                command.env("GLEANER_STATE_DIR", "/state").env("GLEANER_CONFIG_DIR", "/state/config");
                command.env("GLEANER_RUNTIME_DIR", "/run/gleaner").env("RUST_BACKTRACE", "1");
                command.envs(std::env::var_os(WITHOUT).map(|list| (WITHOUT, list)));
                Error::Io { what: "cannot run /bin/gleaner in the empty root".to_owned(), source: command.exec() }
            }
        }
    }

    fn build(&self) -> Result<()> {
        let libraries = libraries(&self.program)?;
        let root = &self.mount_point;
        // SAFETY: only the mount namespace is left, no descriptor table; and there is a single thread.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }
            .context(|| "cannot leave the mount namespace (needs root)".to_owned())?;
        rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
            .context(|| "cannot make mounts private".to_owned())?;
        rustix::mount::mount("tmpfs", root, "tmpfs", MountFlags::NOSUID, c"mode=0755,size=64m")
            .at("mount a tmpfs on", root)?;
        for folder in ["bin", "dev/pts", "dev/shm", "proc", "sys", "tmp", "run/gleaner", "state", "old", "etc"] {
            let path = root.join(folder);
            std::fs::create_dir_all(&path).at("create", &path)?;
        }
        std::fs::set_permissions(root.join("tmp"), PermissionsExt::from_mode(0o1777)).at("chmod", root)?;
        bind_file(&self.program, &root.join("bin/gleaner"))?;
        for library in &libraries {
            bind_file(library, &inside(root, library))?;
        }
        for device in ["null", "zero", "full", "random", "urandom", "tty", "fuse", "net/tun"] {
            bind_file(&Path::new("/dev").join(device), &root.join("dev").join(device))?;
        }
        let pts = root.join("dev/pts");
        rustix::mount::mount(
            "devpts",
            &pts,
            "devpts",
            MountFlags::NOSUID | MountFlags::NOEXEC,
            c"newinstance,ptmxmode=0666,mode=0620",
        )
        .at("mount devpts on", &pts)?;
        std::os::unix::fs::symlink("pts/ptmx", root.join("dev/ptmx")).at("link /dev/ptmx in", root)?;
        for (from, to) in [(Path::new("/proc"), "proc"), (Path::new("/sys"), "sys")] {
            rustix::mount::mount_bind_recursive(from, root.join(to)).at("bind", from)?;
        }
        if std::env::var_os(OWNERS).is_some() {
            rustix::mount::mount_bind("/dev/shm", root.join("dev/shm")).at("bind /dev/shm in", root)?;
        }
        if let Some(group) = std::env::var_os(MACHINE).map(PathBuf::from) {
            std::fs::write(group.join("cgroup.procs"), std::process::id().to_string()).at("join", &group)?;
            rustix::mount::mount_bind(&group, inside(root, Path::new("/sys/fs/cgroup/cpu"))).at("bind", &group)?;
        }
        rustix::mount::mount_bind(&self.state, root.join("state")).at("bind", &self.state)?;
        rustix::process::pivot_root(root, root.join("old")).at("pivot to", root)?;
        rustix::process::chdir("/").at("enter", root)?;
        rustix::mount::unmount("/old", UnmountFlags::DETACH).context(|| "cannot let go of the old root".to_owned())?;
        std::fs::remove_dir("/old").context(|| "cannot remove /old".to_owned())
    }
}

fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn bind_file(from: &Path, to: &Path) -> Result<()> {
    if let Some(parent) = to.parent() {
        std::fs::create_dir_all(parent).at("create", parent)?;
    }
    std::fs::write(to, b"").at("create", to)?;
    rustix::mount::mount_bind(from, to).at("bind", from)
}

/// The shared libraries that a program names, and the loader; none for a static one.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context(|| "cannot run ldd".to_owned())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let paths = text.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(paths.map(PathBuf::from).filter(|path| path != program && path.exists()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_a_dynamic_program() {
        let found = libraries(Path::new("/bin/sh")).unwrap();
        assert!(found.iter().any(|path| path.to_string_lossy().contains("libc.so")), "{found:?}");
    }
}

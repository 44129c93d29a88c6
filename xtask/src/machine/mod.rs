//! `cargo xtask machine`: boots a Debian kernel in an emulator, and has what spares an owner tried in it; then again with systemd, which has the
//! packages' units started.
//!
//! For what this machine's kernel may lack: control groups of version 2 with all controllers, compressed swap, links made by the
//! kernel, sleep. Its root is this machine's, read-only. The checks are `e2e machine`; here is what it takes to get there. Emulated, everything is
//! many times slower: what is seen is whether it works, never how fast.

use crate::test::{Counts, closing_line, lines};
use crate::{need, package, run};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long the machine may run: then it is ended, whatever it does.
const LIMIT: Duration = Duration::from_secs(40 * 60);
const CPUS: &str = "2";
/// Little enough for an owner and a guest to need all of it.
const MEMORY_MIB: &str = "1792";
/// Its disk takes no more here than is written to it.
const DISK_BYTES: u64 = 8 << 30;
/// Depends on the distribution's kernel of today.
const KERNEL: &str = "linux-image-amd64";
const BUSYBOX: &str = "busybox-static";
/// What is loaded, with what it depends on.
const MODULES: [&str; 14] = [
    "virtio_pci",
    "virtio_blk",
    "9pnet_virtio",
    "9p",
    "crc32c_generic",
    "ext4",
    "overlay",
    "fuse",
    "zram",
    "tun",
    "veth",
    "sch_netem",
    "sch_tbf",
    "evdev",
];

/// What the names of checks of services begin with, and what tells the machine that these are wanted.
const SERVICES: &str = "services/";
const SERVICES_MARK: &str = " gleaner.services";

/// What of Debian's packages is used.
struct Parts {
    folder: PathBuf,
    kernel: PathBuf,
    /// Folder of the modules, with `modules.dep`.
    modules: PathBuf,
    busybox: PathBuf,
}

/// Builds, boots, and shows what the checks say; an error if one failed, or the machine did not come to its end.
pub fn run(arguments: &[&str]) -> Result<(), String> {
    let filter = match arguments {
        [] => "",
        ["--filter", text] if !text.contains('\n') => text,
        other => return Err(format!("unknown arguments: {}", other.join(" "))),
    };
    if std::env::consts::ARCH != "x86_64" {
        return Err(format!("machines are emulated on x86_64 only, not on {}", std::env::consts::ARCH));
    }
    need::programs(&need::MACHINE)?;
    let programs = run::build(true)?;
    let parts = Parts::fetch(&run::target().join("machine"))?;
    let packages = parts.folder.join("packages").display().to_string();
    let to_package = ["--programs", &programs.display().to_string(), "--to", &packages, "--quick"];
    package::run(&to_package)?;
    parts.make_initramfs(&[&programs.display().to_string(), filter, &packages])?;
    let mut all = Counts::default();
    let names_some = |services: bool| filter.starts_with(SERVICES) == services || !filter.contains('/');
    for mark in
        [("", false), (SERVICES_MARK, true)].iter().filter(|(_, services)| names_some(*services)).map(|(mark, _)| mark)
    {
        parts.make_disk()?;
        all.add(parts.checked(mark)?);
    }
    let Counts { passed, failed, skipped } = all;
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed + skipped == 0 {
        Ok(())
    } else {
        Err(format!("not all is well; the kernel's words: {}", parts.console("").display()))
    }
}

impl Parts {
    /// Downloads and unpacks what is not there yet.
    fn fetch(folder: &Path) -> Result<Self, String> {
        fs::create_dir_all(folder).map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
        let package = need::dependency(KERNEL)?;
        let [kernel, busybox] = [package.as_str(), BUSYBOX].map(|package| unpacked(folder, package));
        let (kernel, busybox) = (kernel?, busybox?);
        let version = package.trim_start_matches("linux-image-").to_owned();
        let parts = Self {
            folder: folder.to_owned(),
            kernel: kernel.join(format!("boot/vmlinuz-{version}")),
            modules: kernel.join("lib/modules").join(&version),
            busybox: busybox.join("bin/busybox"),
        };
        if !parts.modules.join("modules.dep").exists() {
            quiet(Command::new(&parts.busybox).args(["depmod", "-b"]).arg(&kernel).arg(&version))?;
        }
        Ok(parts)
    }

    /// Boots, and shows what the checks say.
    fn checked(&self, mark: &str) -> Result<Counts, String> {
        run::say("booting; emulated, it takes minutes …");
        let mut found = None;
        let good = lines(&mut self.machine(mark), LIMIT, |line| {
            let line = line.trim_end();
            match closing_line(line) {
                Some(counts) => found = Some(counts),
                None => println!("{line}"),
            }
        })?;
        let mut counts = found.unwrap_or_default();
        if !good || found.is_none() {
            println!("FAILED  the machine did not come to its end: {}", self.console(mark).display());
            counts.failed += 1;
        }
        Ok(counts)
    }

    fn make_disk(&self) -> Result<(), String> {
        let disk = fs::File::create(self.disk()).and_then(|file| file.set_len(DISK_BYTES));
        disk.map_err(|error| format!("cannot make {}: {error}", self.disk().display()))?;
        quiet(Command::new("/sbin/mkfs.ext4").args(["-q", "-F"]).arg(self.disk()))
    }

    fn make_initramfs(&self, arguments: &[&str]) -> Result<(), String> {
        let root = self.folder.join("initramfs");
        let failed = |error: std::io::Error| format!("cannot fill {}: {error}", root.display());
        match fs::remove_dir_all(&root) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        for folder in ["bin", "modules"] {
            fs::create_dir_all(root.join(folder)).map_err(failed)?;
        }
        let list = self.modules.join("modules.dep");
        let list = fs::read_to_string(&list).map_err(|error| format!("cannot read {}: {error}", list.display()))?;
        let mut order = String::new();
        for path in in_order(&list, &MODULES)? {
            let name = path.rsplit('/').next().unwrap_or_default();
            fs::copy(self.modules.join(path), root.join("modules").join(name)).map_err(failed)?;
            order.push_str(&format!("{name}\n"));
        }
        fs::write(root.join("modules/order"), order).map_err(failed)?;
        fs::copy(&self.busybox, root.join("bin/busybox")).map_err(failed)?;
        fs::write(root.join("arguments"), arguments.join("\n") + "\n").map_err(failed)?;
        fs::write(root.join("init"), include_str!("init.sh")).map_err(failed)?;
        let pack = "chmod 755 init && find . | \"$0\" cpio -o -H newc >\"$1\"";
        quiet(Command::new("sh").args(["-c", pack]).arg(&self.busybox).arg(self.initramfs()).current_dir(&root))
    }

    /// The emulator: its output is the second serial line's. Not by KVM, which is there on some machines and does not work.
    fn machine(&self, mark: &str) -> Command {
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", CPUS, "-m", MEMORY_MIB]);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        command.arg("-serial").arg(format!("file:{}", self.console(mark).display())).args(["-serial", "stdio"]);
        command.arg("-kernel").arg(&self.kernel).arg("-initrd").arg(self.initramfs());
        command.args(["-append", &format!("console=ttyS0 panic=-1 gleaner.machine{mark}")]);
        command.arg("-drive").arg(format!("file={},format=raw,if=virtio,cache=unsafe", self.disk().display()));
        let share = "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap";
        command.args(["-fsdev", share, "-device", "virtio-9p-pci,fsdev=host,mount_tag=host"]);
        command
    }

    fn disk(&self) -> PathBuf {
        self.folder.join("disk")
    }

    fn initramfs(&self) -> PathBuf {
        self.folder.join("initramfs.cpio")
    }

    /// What the kernel says.
    fn console(&self, mark: &str) -> PathBuf {
        self.folder.join(format!("console{}", mark.trim()))
    }
}

/// A package's files.
fn unpacked(folder: &Path, package: &str) -> Result<PathBuf, String> {
    let files = folder.join(package);
    if files.exists() {
        return Ok(files);
    }
    let new = folder.join(format!("{package}.new"));
    let _ = fs::remove_dir_all(&new);
    let archive = need::download(package, &new)?;
    quiet(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(new.join("files")))?;
    fs::rename(new.join("files"), &files).map_err(|error| format!("cannot make {}: {error}", files.display()))?;
    let _ = fs::remove_dir_all(&new);
    Ok(files)
}

/// Paths of these modules and of what they depend on, each after what it depends on. `list` is `modules.dep`.
fn in_order<'a>(list: &'a str, wanted: &[&str]) -> Result<Vec<&'a str>, String> {
    let name = |path: &str| {
        path.rsplit('/').next().and_then(|file| file.split('.').next()).unwrap_or_default().replace('-', "_")
    };
    let rows: BTreeMap<&str, &str> = list.lines().filter_map(|line| line.split_once(':')).collect();
    let mut order = Vec::new();
    for module in wanted {
        let found = rows.keys().find(|path| name(path) == *module);
        let mut open = vec![*found.ok_or_else(|| format!("the kernel's package has no module {module}"))?];
        while let Some(path) = open.last().copied() {
            let mut needs = rows.get(path).copied().unwrap_or_default().split_whitespace();
            let missing = needs.find(|need| !order.contains(need) && !open.contains(need));
            match missing {
                Some(need) => open.push(need),
                None => {
                    open.pop();
                    if !order.contains(&path) {
                        order.push(path);
                    }
                }
            }
        }
    }
    Ok(order)
}

/// Runs a program whose words matter only if it fails.
fn quiet(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("cannot run {name}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{name} failed: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_come_after_what_they_depend_on() {
        let list = "kernel/a/virtio_blk.ko: kernel/v/virtio.ko kernel/v/virtio_ring.ko\nkernel/v/virtio_ring.ko: kernel/v/virtio.ko\n\
                    kernel/v/virtio.ko:\nkernel/v/virtio-rng.ko.xz: kernel/v/virtio.ko\n";
        let order = in_order(list, &["virtio_blk", "virtio_rng"]).expect("all are there");
        assert_eq!(
            order,
            ["kernel/v/virtio.ko", "kernel/v/virtio_ring.ko", "kernel/a/virtio_blk.ko", "kernel/v/virtio-rng.ko.xz"]
        );
        assert!(in_order(list, &["zram"]).is_err_and(|why| why.contains("zram")));
    }
}

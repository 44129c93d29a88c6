//! Installs what is missing, or says exactly what to do.

use crate::run::say;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program (or, with a slash, a file) and the Debian package that has it.
pub type Need = (&'static str, &'static str);

/// What `demo` and `bench` build with.
pub const DEMO: [Need; 4] = [("gcc", "gcc"), ("make", "make"), ("tar", "tar"), ("ldd", "libc-bin")];

/// What the fuzzer is built with.
pub const FUZZ: [Need; 1] = [("g++", "g++")];

/// What the testbed makes its hosts with.
pub const TESTBED: [Need; 1] = [("ip", "iproute2")];

/// What `machine` boots with.
pub const MACHINE: [Need; 10] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("/sbin/mkfs.ext4", "e2fsprogs"),
    ("/sbin/tc", "iproute2"),
    ("/usr/bin/perl", "perl"),
    ("ldd", "libc-bin"),
    ("dpkg-deb", "dpkg"),
    ("strip", "binutils"),
    ("/usr/lib/systemd/systemd-logind|/lib/systemd/systemd-logind", "systemd"),
    ("/usr/lib/systemd/system/dbus.service|/lib/systemd/system/dbus.service", "dbus"),
    ("pgrep", "procps"),
];

/// What `bench slow-link` traces an image with.
pub const TRACING: [Need; 1] = [("povray", "povray")];

/// What the tests run.
pub const TESTS: &[Need] = &[
    ("chattr", "e2fsprogs"),
    ("ip", "iproute2"),
    ("g++", "g++"),
    ("ar", "binutils"),
    ("/usr/bin/python3", "python3"),
    ("perl", "perl"),
    ("git", "git"),
    ("setfattr", "attr"),
    ("setfacl", "acl"),
    ("patch", "patch"),
    ("bc", "bc"),
    ("m4", "m4"),
    ("jq", "jq"),
    ("file", "file"),
    ("xz", "xz-utils"),
    ("bzip2", "bzip2"),
    ("zstd", "zstd"),
    ("zip", "zip"),
    ("unzip", "unzip"),
    ("hostname", "hostname"),
    ("flock", "util-linux"),
    ("mksquashfs", "squashfs-tools"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("bash", "bash"),
    ("awk", "mawk"),
    ("newuidmap", "uidmap"),
    ("/usr/lib/postgresql", "postgresql"),
    ("openssl", "openssl"),
    ("ninja", "ninja-build"),
    ("meson", "meson"),
    ("cmake", "cmake"),
    ("rsync", "rsync"),
    ("ccache", "ccache"),
];

/// What the heavy tests on real input run.
pub const REAL: [Need; 4] = [
    ("povray", "povray"),
    ("asciidoctor", "asciidoctor"),
    (
        "/usr/include/python3.11/Python.h|/usr/include/python3.12/Python.h|/usr/include/python3.13/Python.h",
        "python3-dev",
    ),
    ("/usr/share/doc/python3-venv", "python3-venv"),
];

/// What the suites of others are built with, and run.
pub const FOREIGN: [Need; 5] = [
    ("perl", "perl"),
    ("setfacl", "acl"),
    ("setfattr", "attr"),
    ("chattr", "e2fsprogs"),
    ("/usr/include/sys/acl.h|/usr/include/x86_64-linux-gnu/sys/acl.h", "libacl1-dev"),
];

/// What the benchmark sets its peers up with. The peers themselves are not installed: their packages start daemons.
pub const PEERS: [Need; 6] = [
    ("/usr/share/doc/python3-venv", "python3-venv"),
    ("fusermount3", "fuse3"),
    ("ssh", "openssh-client"),
    ("ip", "iproute2"),
    ("file", "file"),
    ("bash", "bash"),
];

/// A mirror is away for a moment now and then, or another program holds the lock on the packages (seconds).
const PATIENTLY: [&str; 4] = ["-o", "Acquire::Retries=5", "-o", "DPkg::Lock::Timeout=120"];

/// Whether this is root, where workers with empty roots can be made.
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

/// Fails, saying what to do, unless this is root and the kernel offers FUSE.
pub fn root(what: &str) -> Result<(), String> {
    if !is_root() {
        return Err(format!(
            "{what} starts workers whose root is empty, in mount namespaces of their own, and needs root for that:\n  \
             sudo -E env PATH=\"$PATH\" cargo xtask …"
        ));
    }
    match Path::new("/dev/fuse").exists() {
        true => Ok(()),
        false => Err(format!(
            "{what} needs /dev/fuse: run `modprobe fuse` (in a container: start it with --device /dev/fuse)"
        )),
    }
}

/// Makes sure that these are there: as root by `apt-get`, else by saying what to run.
pub fn programs(needs: &[Need]) -> Result<(), String> {
    let packages = missing(needs);
    if packages.is_empty() {
        return Ok(());
    }
    let list = packages.join(" ");
    if is_root() && has("apt-get") {
        install(&packages)?;
        return match missing(needs).as_slice() {
            [] => Ok(()),
            still => Err(format!("after `apt-get install {list}` there is still no {}", still.join(" "))),
        };
    }
    Err(match has("apt-get") {
        true => format!("missing: {list}. Run\n  sudo apt-get install --no-install-recommends {list}"),
        false => format!("missing, by their Debian names: {list}. Install them with this system's package manager"),
    })
}

/// The same where it is no fault if they cannot be had.
pub fn wanted(needs: &[Need]) {
    for need in needs {
        if let Err(why) = programs(&[*need]) {
            say(&format!("without {}: {why}", need.1));
        }
    }
}

/// The first package that this one depends on.
pub fn dependency(package: &str) -> Result<String, String> {
    let find = || {
        let output = Command::new("apt-cache").args(["depends", package]).stdin(Stdio::null()).output();
        let text = String::from_utf8_lossy(&output.ok()?.stdout).into_owned();
        text.lines().find_map(|line| line.trim().strip_prefix("Depends: ")).map(str::to_owned)
    };
    if let Some(found) = find() {
        return Ok(found);
    }
    apt(&["update", "-q"])?;
    find().ok_or_else(|| format!("apt-cache knows no package {package}: this wants Debian"))
}

/// Downloads a package into an empty folder that it makes, without installing it: the archive.
pub fn download(package: &str, folder: &Path) -> Result<PathBuf, String> {
    say(&format!("downloading {package} …"));
    let failed = |error: std::io::Error| format!("cannot download to {}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(failed)?;
    apt_in(folder, &["download", "-q", package])?;
    let entry = std::fs::read_dir(folder).map_err(failed)?.next();
    entry.ok_or_else(|| format!("`apt-get download {package}` left nothing"))?.map(|entry| entry.path()).map_err(failed)
}

fn missing(needs: &[Need]) -> Vec<&'static str> {
    let absent = |(probe, _): &&Need| match probe.contains('/') {
        true => !probe.split('|').any(|path| Path::new(path).exists()),
        false => !has(probe),
    };
    needs.iter().filter(absent).map(|(_, package)| *package).collect()
}

fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn install(packages: &[&str]) -> Result<(), String> {
    say(&format!("installing {} …", packages.join(" ")));
    let mut arguments = vec!["install", "-y", "-q", "--no-install-recommends"];
    arguments.extend(packages);
    if apt(&arguments).is_ok() {
        return Ok(());
    }
    apt(&["update", "-q"])?;
    apt(&arguments)
}

fn apt(arguments: &[&str]) -> Result<(), String> {
    apt_in(Path::new("."), arguments)
}

fn apt_in(folder: &Path, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("apt-get")
        .args(PATIENTLY)
        .args(arguments)
        .current_dir(folder)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run apt-get: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let last: Vec<&str> = text.lines().rev().take(5).collect();
    Err(format!("`apt-get {}` failed:\n{}", arguments.join(" "), last.into_iter().rev().collect::<Vec<_>>().join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_ones_are_found() {
        assert_eq!(
            missing(&[("sh", "dash"), ("no-such-program", "a"), ("/no/such|/bin/sh", "b"), ("/no/such", "c")]),
            ["a", "c"]
        );
    }
}

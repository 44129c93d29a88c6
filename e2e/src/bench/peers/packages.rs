//! Debian packages, unpacked into a folder and not installed: installing these would start their daemons, add users and change
//! `/etc`.

use super::site::Site;
use crate::error::{Context, Error, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Some packages, with what they need and this machine lacks.
#[derive(Debug)]
pub struct Packages {
    root: PathBuf,
}

impl Packages {
    /// Downloads them with the machine's lists of packages or, where those are missing or too old, with fresh ones of our own.
    pub fn fetch(site: &Site, names: &[&str]) -> Result<Self> {
        let root = site.inner("packages", 0o755)?;
        let archives = site.inner("apt/archives/partial", 0o755)?;
        let lists = site.inner("apt/lists/partial", 0o755)?;
        let install = ["install", "--reinstall", "--download-only", "-y", "--no-install-recommends"];
        let install = [&install, names].concat();
        if apt(site, &install, &[]).is_err() {
            let own = format!("Dir::State::lists={}", lists.parent().unwrap_or(&lists).display());
            apt(site, &["update"], &[&own])?;
            apt(site, &install, &[&own])?;
        }
        let archives = archives.parent().unwrap_or(&archives);
        for entry in std::fs::read_dir(archives).at("list", archives)?.flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "deb") {
                let mut unpack = Command::new("dpkg-deb");
                unpack.arg("-x").arg(entry.path()).arg(&root);
                site.run("dpkg-deb", unpack)?;
            }
        }
        Ok(Self { root })
    }

    /// A program of theirs; the machine's own where apt no longer has the version that is installed.
    pub fn program(&self, name: &str) -> Result<PathBuf> {
        let folders = ["usr/bin", "usr/sbin"].map(|folder| [self.root.join(folder), Path::new("/").join(folder)]);
        let mut paths = folders.iter().flatten().map(|folder| folder.join(name));
        paths.find(|path| path.is_file()).ok_or_else(|| Error::Missing(format!("the packages have no {name}")))
    }

    /// Another file of theirs, by its path below the root.
    pub fn file(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// The variable that makes programs find their libraries.
    pub fn libraries(&self) -> (&'static str, String) {
        let mut folders = Vec::new();
        for above in ["lib", "usr/lib"] {
            let entries = std::fs::read_dir(self.root.join(above)).into_iter().flatten().flatten();
            let named = |path: &PathBuf| path.to_string_lossy().contains("-linux-");
            folders.extend(entries.map(|entry| entry.path()).filter(named));
        }
        let list: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        ("LD_LIBRARY_PATH", list.join(":"))
    }
}

/// `apt-get` with a cache of its own, without the machine's locks.
fn apt(site: &Site, arguments: &[&str], options: &[&str]) -> Result<()> {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C");
    let cache = format!("Dir::Cache={}", site.folder.join("apt").display());
    for option in [&[cache.as_str(), "Debug::NoLocking=1", "APT::Sandbox::User=root"], options].concat() {
        command.args(["-o", option]);
    }
    command.arg("-q").args(arguments);
    site.run(&format!("apt-get {}", arguments.join(" ")), command).map(drop)
}

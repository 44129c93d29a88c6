//! A project's `.gleaner.toml`: who may have written it, and what it says.

use crate::policy::{Granted, PROJECT_FILE, Pattern};
use base::{Digest, TreePath};
use rustix::fs::{FileType, Mode, OFlags, fstat};
use rustix::io::Errno;
use serde::Deserialize;
use std::fs::File;
use std::io::{self, Read};

/// Largest file that is read.
const BYTES_MAX: u64 = 64 << 10;
/// Most entries of one list.
const ENTRIES_MAX: usize = 256;

/// The file as it is now.
#[derive(Clone, Debug)]
pub struct ProjectFile {
    /// The root of its project.
    pub root: TreePath,
    /// The BLAKE3 hash of its bytes.
    pub digest: Digest,
    bytes: Vec<u8>,
}

/// Why a file counts for nothing, whatever it says. Follows "it" in a sentence.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// It is not the file itself that would be read.
    #[error("it is a symbolic link, which may lead elsewhere tomorrow")]
    Link,
    /// Neither file nor link.
    #[error("it is no regular file")]
    NoFile,
    /// Somebody else has written it, or may at any time.
    #[error("it belongs to another user (uid {0}), not to you")]
    OthersFile(u32),
    /// Anybody may write it.
    #[error("anybody may write to it (mode {0:o}): chmod o-w it first")]
    WritableByAll(u32),
    /// It is not read to its end.
    #[error("it has more than 64 KiB")]
    TooLarge,
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// It does not say what such a file says.
    #[error("it cannot be understood: {0}")]
    Malformed(String),
}

/// What the file holds.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Text {
    write: Vec<String>,
    read: Vec<String>,
    network: bool,
}

impl ProjectFile {
    /// Reads the file of the project at `root`; `None` if it has none.
    ///
    /// # Errors
    /// Says why it counts for nothing.
    pub fn read(root: &TreePath) -> Result<Option<Self>, Unfit> {
        let path = root.join(PROJECT_FILE.as_bytes());
        // A pipe must not hold us up.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = crate::snapshot::unseen(|more| rustix::fs::open(path.as_bytes(), flags | more, Mode::empty()));
        let held = match opened {
            Ok(held) => held,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(Errno::LOOP | Errno::MLINK) => return Err(Unfit::Link),
            Err(Errno::NXIO) => return Err(Unfit::NoFile),
            Err(error) => return Err(Unfit::Unreadable(error.into())),
        };
        let stat = fstat(&held).map_err(io::Error::from)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Unfit::NoFile);
        }
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(Unfit::OthersFile(stat.st_uid));
        }
        if stat.st_mode & 0o002 != 0 {
            return Err(Unfit::WritableByAll(stat.st_mode & 0o7777));
        }
        let mut bytes = Vec::new();
        File::from(held).take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > BYTES_MAX {
            return Err(Unfit::TooLarge);
        }
        Ok(Some(Self { root: root.clone(), digest: Digest::of(&bytes), bytes }))
    }

    /// What it grants, if it is trusted; `home` is what `~` stands for.
    ///
    /// # Errors
    /// Says what is wrong with its text.
    pub fn granted(&self, home: Option<&TreePath>) -> Result<Granted, Unfit> {
        let malformed = |why: String| Unfit::Malformed(why);
        let text = std::str::from_utf8(&self.bytes).map_err(|_| malformed("it is not UTF-8".to_owned()))?;
        let text: Text = toml::from_str(text).map_err(|error| malformed(in_a_line(&error, text)))?;
        let list = |name: &str, entries: &[String]| {
            if entries.len() > ENTRIES_MAX {
                return Err(malformed(format!("{name} has more than {ENTRIES_MAX} entries")));
            }
            let pattern = |entry: &String| {
                let parsed = Pattern::parse(entry, &self.root, home);
                parsed.map_err(|why| malformed(format!("{name}: {:?} {why}", base::path::shown(entry))))
            };
            entries.iter().map(pattern).collect::<Result<Vec<_>, _>>()
        };
        Ok(Granted { write: list("write", &text.write)?, read: list("read", &text.read)?, network: text.network })
    }
}

/// A parser's complaint with the number of its line, and without the excerpt that it draws.
fn in_a_line(error: &toml::de::Error, text: &str) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    let line = before.map_or(1, |before| before.matches('\n').count() + 1);
    format!("line {line}: {}", base::path::shown(error.message()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn project() -> (tempfile::TempDir, TreePath) {
        let folder = tempfile::tempdir().expect("a folder");
        let root = TreePath::parse(folder.path().as_os_str().as_encoded_bytes()).expect("a path");
        (folder, root)
    }

    fn said(text: &str) -> Result<Granted, String> {
        let (folder, root) = project();
        std::fs::write(folder.path().join(PROJECT_FILE), text).expect("written");
        let file = ProjectFile::read(&root).expect("fit").expect("is there");
        file.granted(TreePath::parse(b"/home/u").as_ref()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_has_two_lists_of_paths_and_a_switch_and_nothing_else() {
        let granted = said("# ours\nwrite = [\"~/.bashrc\", \"out/**\"]\nread = [\"/srv/data\"]\n").expect("fine");
        assert_eq!((granted.write.len(), granted.read.len(), granted.network), (2, 1, false));
        assert!(said("network = true").expect("fine").network);
        assert_eq!(said("").expect("an empty one"), Granted::default());
        for (text, why) in [
            ("write = \"x\"", "line 1"),
            ("\nnot = 1", "line 2"),
            ("write = [\"~\"]", "a whole home"),
            ("write = [1]", "line 1"),
            ("write = [", "line 1"),
            ("net = true", "unknown field"),
            ("network = 1", "line 1"),
        ] {
            let error = said(text).expect_err(text);
            assert!(error.contains(why) && !error.contains('\n'), "{text}: {error}");
        }
        assert!(said(&format!("write = [{}]", "\"x\",".repeat(257))).is_err());
    }

    /// Nested as deep as the file has room: it is refused and not followed.
    #[test]
    fn a_deep_file_is_refused() {
        said(&format!("write = {}", "[".repeat(60_000))).expect_err("too deep");
        said(&format!("x{} = 1", ".x".repeat(30_000))).expect_err("too deep");
    }

    #[test]
    fn a_file_that_others_could_have_written_is_unfit() {
        let (folder, root) = project();
        let path = folder.path().join(PROJECT_FILE);
        assert!(matches!(ProjectFile::read(&root), Ok(None)));
        let other = folder.path().join("other");
        std::fs::write(&other, "").expect("written");
        symlink(&other, &path).expect("linked");
        assert!(matches!(ProjectFile::read(&root), Err(Unfit::Link)));
        std::fs::remove_file(&path).expect("removed");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, Mode::from_raw_mode(0o600)).expect("a pipe");
        assert!(matches!(ProjectFile::read(&root), Err(Unfit::NoFile)));
        std::fs::remove_file(&path).expect("removed");
        std::fs::create_dir(&path).expect("made");
        assert!(matches!(ProjectFile::read(&root), Err(Unfit::NoFile)));
        std::fs::remove_dir(&path).expect("removed");
        std::fs::write(&path, "write = []").expect("written");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).expect("opened");
        assert!(matches!(ProjectFile::read(&root), Err(Unfit::WritableByAll(0o666))));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o664)).expect("closed");
        assert!(matches!(ProjectFile::read(&root), Ok(Some(_))), "a group of one's own may");
        std::fs::write(&path, "#".repeat(BYTES_MAX as usize + 1)).expect("written");
        assert!(matches!(ProjectFile::read(&root), Err(Unfit::TooLarge)));
        if !rustix::process::geteuid().is_root() {
            return println!("SKIPPED: needs root, to be two users");
        }
        std::os::unix::fs::chown(&path, Some(1234), None).expect("given away");
        assert!(matches!(ProjectFile::read(&root), Err(Unfit::OthersFile(1234))));
    }
}

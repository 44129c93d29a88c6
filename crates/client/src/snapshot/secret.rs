//! Files whose contents stay here for what they hold or for the folder that they are in, whatever the read policy says of their paths.
//!
//! A file is looked at when it is bound and its contents are not known yet, so that a launch whose files have not changed looks at none.

use super::disk::open_unseen;
use super::stamp::stat_open;
use super::{NamingSecret, Snapshot, Stamp, attr_of, open};
use crate::policy::{Denial, LOOK_BYTES, LOOK_BYTES_WITHIN, Looked, holds_texts, is_gleaner_key, secret_in};
use base::{Digest, TreePath};
use rustix::fs::{AtFlags, CWD, FileType, OFlags, Statx, statat};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use store::chunk::read_full;
use wire::lock;

/// The keys that a folder of a hub, a worker or a client daemon has.
const KEYS: [&[u8]; 3] = [b"hub.key", b"worker.key", b"client.key"];
/// Largest file that is such a key, bytes.
const KEY_BYTES_MAX: u64 = 128;
/// Folders that are remembered, and for how long.
const FOLDERS_MAX: usize = 8192;
const FOLDER_AGE_MAX: Duration = Duration::from_secs(10);
/// Folders above a file that are looked at: blocks and journals lie this deep.
const ABOVE_MAX: usize = 6;
/// First bytes that are read; most files have no more.
const FIRST_BYTES: usize = 16 << 10;
/// Largest index of a repository that is searched.
const INDEX_BYTES_MAX: u64 = 64 << 20;

/// What is known of folders: whether a key of this program is there.
#[derive(Debug, Default)]
pub(super) struct StateFolders {
    known: Mutex<HashMap<TreePath, (Instant, bool)>>,
}

impl StateFolders {
    /// Whether a path lies in the folder of a hub, a worker or a client daemon, or beneath.
    fn have(&self, path: &TreePath) -> bool {
        let above = std::iter::successors(path.parent(), TreePath::parent).take(ABOVE_MAX);
        above.take_while(|folder| !folder.is_root()).any(|folder| self.is_one(folder))
    }

    fn is_one(&self, folder: TreePath) -> bool {
        let known = lock(&self.known).get(&folder).copied();
        if let Some((_, is_one)) = known.filter(|(at, _)| at.elapsed() < FOLDER_AGE_MAX) {
            return is_one;
        }
        let is_one = KEYS.iter().any(|name| is_key(&folder.join(name)));
        let mut known = lock(&self.known);
        if known.len() >= FOLDERS_MAX {
            known.clear();
        }
        known.insert(folder, (Instant::now(), is_one));
        is_one
    }
}

fn is_key(path: &TreePath) -> bool {
    let Ok(stat) = statat(CWD, path.as_bytes(), AtFlags::SYMLINK_NOFOLLOW) else { return false };
    let is_small =
        FileType::from_raw_mode(stat.st_mode).is_file() && (1..=KEY_BYTES_MAX).contains(&(stat.st_size as u64));
    let read = || {
        let mut bytes = Vec::new();
        File::from(open(path, OFlags::RDONLY).ok()?).take(KEY_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    };
    is_small && stat.st_mode & 0o077 == 0 && read().is_some_and(|bytes| is_gleaner_key(&bytes))
}

impl Snapshot {
    /// Why the contents of this open file stay here, if they do.
    pub(super) fn secret_of(&self, path: &TreePath, file: &File, stat: &Statx) -> Option<Denial> {
        let attr = attr_of(stat);
        // What a distribution gives to everybody is none.
        if attr.size == 0 || (attr.is_of_system(path) && attr.mode & 0o004 != 0) {
            return None;
        }
        if self.state_folders.have(path) {
            return Some(Denial::State);
        }
        let bytes = first_bytes(file, attr.size)?;
        secret_in(&Looked { name: path.name(), mode: attr.mode, size: attr.size, bytes: &bytes })
    }

    /// The same of what is at a path now.
    pub fn secret_at(&self, path: &TreePath) -> Option<Denial> {
        let file = File::from(open(path, OFlags::RDONLY).ok()?);
        let stat = stat_open(&file).ok()?;
        let is_file = FileType::from_raw_mode(stat.stx_mode.into()).is_file();
        is_file.then(|| self.secret_of(path, &file, &stat)).flatten()
    }

    /// The same of what is open for reading, by whatever name it once had.
    pub fn secret_in_open(file: &OwnedFd) -> Option<Denial> {
        let stat = stat_open(file).ok()?;
        if !FileType::from_raw_mode(stat.stx_mode.into()).is_file() || stat.stx_size == 0 {
            return None;
        }
        let file = File::from(file.try_clone().ok()?);
        let bytes = first_bytes(&file, stat.stx_size)?;
        secret_in(&Looked { name: b"", mode: stat.stx_mode.into(), size: stat.stx_size, bytes: &bytes })
    }

    /// Gives a file's contents after all under the name under which they were kept back. False if it is no longer what it was then.
    pub fn lend(&self, name: &Digest) -> bool {
        let is_same = |path: &TreePath| {
            let stamp = Stamp::of(&stat_open(&open(path, OFlags::RDONLY).ok()?).ok()?);
            (kept_back_name(&stamp, &self.secret) == *name).then_some(stamp)
        };
        let found = self.kept_back(name).into_iter().find_map(|path| is_same(&path).map(|stamp| (path, stamp)));
        found.map(|(path, stamp)| self.sources.add_lazy(*name, &path, stamp)).is_some()
    }
}

/// Why the contents of the file at `path`, which is a project's, stay here by what it holds and is called.
pub(crate) fn secret_in_project(path: &TreePath) -> Option<Denial> {
    let file = open_unseen(Path::new(OsStr::from_bytes(path.as_bytes()))).ok()?;
    let stat = stat_open(&file).ok()?;
    if !FileType::from_raw_mode(stat.stx_mode.into()).is_file() || stat.stx_size == 0 {
        return None;
    }
    let bytes = first_bytes(&file, stat.stx_size)?;
    secret_in(&Looked { name: path.name(), mode: stat.stx_mode.into(), size: stat.stx_size, bytes: &bytes })
}

/// The name under which the contents of a file in this state are not given.
pub(super) fn kept_back_name(stamp: &Stamp, secret: &NamingSecret) -> Digest {
    Digest::of(&[b"kept back", &stamp.name(secret, false).0[..]].concat())
}

/// As much of a file as is looked at: little of what is no text.
fn first_bytes(file: &File, size: u64) -> Option<Vec<u8>> {
    let read = |bytes: &mut Vec<u8>, len: usize| {
        let from = bytes.len();
        bytes.resize(len, 0);
        let count = read_full(file, &mut bytes[from..], from as u64).ok()?;
        bytes.truncate(from + count);
        Some(())
    };
    let mut bytes = Vec::new();
    read(&mut bytes, size.min(FIRST_BYTES as u64) as usize)?;
    let look = match holds_texts(&bytes) {
        true => LOOK_BYTES_WITHIN,
        false if memchr::memchr(0, &bytes).is_none() => LOOK_BYTES,
        false => FIRST_BYTES,
    };
    let whole = size.min(look as u64) as usize;
    if whole > FIRST_BYTES {
        read(&mut bytes, whole)?;
    }
    Some(bytes)
}

/// Whether a secret is the project's own, which everybody has who has the project: the repository that it lies in lists it, or it lies in a
/// folder of tests of the repository or of `project`. What is closed to others is not, though it be listed or among the tests:
/// repositories do not keep that, and a task may have listed it.
pub(crate) fn is_of_project(path: &TreePath, project: Option<&TreePath>) -> bool {
    let is_root = |folder: &TreePath| statat(CWD, folder.join(b".git").as_bytes(), AtFlags::SYMLINK_NOFOLLOW).is_ok();
    let root = std::iter::successors(path.parent(), TreePath::parent).find(is_root);
    if statat(CWD, path.as_bytes(), AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| stat.st_mode & 0o044 == 0) {
        return false;
    }
    let in_tests = |root: &TreePath| path.relative_to(root).is_some_and(is_in_tests);
    if root.as_ref().or(project).is_some_and(in_tests) {
        return true;
    }
    let Some(root) = root else { return false };
    let index = || {
        let index = root.join(b".git").join(b"index");
        let file = open_unseen(Path::new(OsStr::from_bytes(index.as_bytes()))).ok()?;
        let mut bytes = Vec::new();
        file.take(INDEX_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    };
    path.relative_to(&root).is_some_and(|inner| index().is_some_and(|index| lists(&index, inner)))
}

/// Whether a path in a project lies in a folder of tests.
pub(crate) fn is_in_tests(inner: &[u8]) -> bool {
    const FOLDERS: [&[u8]; 8] = [b"test", b"tests", b"testing", b"testdata", b"fixtures", b"__tests__", b"spec", b"t"];
    let mut parts: Vec<&[u8]> = inner.split(|byte| *byte == b'/').collect();
    parts.pop();
    parts.iter().any(|part| FOLDERS.contains(part))
}

/// Whether a repository's index lists a path. One that is written in a shorter form is taken for none that does.
fn lists(index: &[u8], path: &[u8]) -> bool {
    const LEN_MASK: u16 = 0x0fff;
    let entry = [path, b"\0"].concat();
    let len = path.len().min(usize::from(LEN_MASK)) as u16;
    let flags = |at: usize| index.get(at.checked_sub(2)?..at).map(|flags| u16::from_be_bytes([flags[0], flags[1]]));
    let is_entry = |at: usize| flags(at).is_some_and(|flags| flags & LEN_MASK == len);
    index.starts_with(b"DIRC\0\0\0\x02") && memchr::memmem::find_iter(index, &entry).any(is_entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_lists_what_is_added_and_not_what_ends_alike() {
        let mut index = b"DIRC\0\0\0\x02\0\0\0\x01".to_vec();
        index.extend([7; 60]);
        index.extend((b"tests/a.key".len() as u16).to_be_bytes());
        index.extend(b"tests/a.key\0\0\0");
        assert!(lists(&index, b"tests/a.key"));
        assert!(
            !lists(&index, b"a.key")
                && !lists(&index, b"tests/b.key")
                && !lists(b"", b"x")
                && !lists(&index[8..], b"tests/a.key")
        );
    }

    #[test]
    fn keys_of_tests_are_the_project_s_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("it is there");
        let path = |name: &str| TreePath::parse(root.join(name).as_os_str().as_encoded_bytes()).expect("a path");
        assert!(!is_of_project(&path("p/tests/a.key"), None), "no project is known");
        assert!(is_of_project(&path("p/tests/a.key"), Some(&path("p"))));
        assert!(
            !is_of_project(&path("p/a.key"), Some(&path("p"))) && !is_of_project(&path("p/tests"), Some(&path("p")))
        );
        assert!(!is_of_project(&path("tests/p/a.key"), Some(&path("tests/p"))), "what is above says nothing");
        std::fs::create_dir_all(root.join("p/.git")).expect("made");
        assert!(is_of_project(&path("p/tests/tls/a.key"), None));
        assert!(!is_of_project(&path("p/deploy/a.key"), None));
    }

    #[test]
    fn what_an_index_lists_is_the_project_s_own_unless_it_is_closed() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("it is there");
        std::fs::create_dir_all(root.join(".git")).expect("made");
        let mut index = b"DIRC\0\0\0\x02\0\0\0\x01".to_vec();
        index.extend([7; 60]);
        index.extend((b"a.key".len() as u16).to_be_bytes());
        index.extend(b"a.key\0\0\0");
        std::fs::write(root.join(".git/index"), index).expect("written");
        let key = root.join("a.key");
        std::fs::write(&key, "x").expect("written");
        let path = TreePath::parse(key.as_os_str().as_encoded_bytes()).expect("a path");
        let with_mode = |mode| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(&key, mode).expect("it is ours");
            is_of_project(&path, None)
        };
        assert!(with_mode(0o644) && !with_mode(0o600));
    }

    #[test]
    fn what_is_closed_is_not_lent_for_lying_among_tests() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("it is there");
        std::fs::create_dir_all(root.join("p/tests")).expect("made");
        let key = root.join("p/tests/a.key");
        std::fs::write(&key, "x").expect("written");
        let path = |at: &Path| TreePath::parse(at.as_os_str().as_encoded_bytes()).expect("a path");
        let with_mode = |mode| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(&key, mode).expect("it is ours");
            is_of_project(&path(&key), Some(&path(&root.join("p"))))
        };
        assert!(with_mode(0o644) && with_mode(0o640) && !with_mode(0o600) && !with_mode(0o400));
    }

    #[test]
    fn the_folder_of_a_hub_is_one_and_a_project_with_a_key_of_that_name_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("it is there");
        let path = |name: &str| TreePath::parse(root.join(name).as_os_str().as_encoded_bytes()).expect("a path");
        std::fs::create_dir_all(root.join("hub/journal/deep")).expect("made");
        std::fs::create_dir_all(root.join("project")).expect("made");
        wire::Key::load_or_create(&root.join("hub/hub.key")).expect("made");
        std::fs::write(root.join("project/client.key"), "of a test").expect("written");
        let folders = StateFolders::default();
        assert!(folders.have(&path("hub/nodes.json")) && folders.have(&path("hub/journal/deep/1")));
        assert!(!folders.have(&path("project/a.c")) && !folders.have(&path("x")));
    }
}

//! Path sets on disk, one file for each program, so that the first launch after a restart carries the whole view.

use super::PATHS_MAX;
use crate::profile::ViewKey;
use crate::small_file::{self, seal, unseal};
use base::codec::{Malformed, Reader, Writer};
use base::{Digest, TreePath};
use std::io;
use std::path::Path;
use std::time::SystemTime;

const MAGIC: &[u8] = b"gleaner view 1\n";
const SUFFIX: &str = ".view";
/// Largest file that is read, in bytes.
const SAVED_BYTES_MAX: u64 = 128 << 20;
/// Files that are kept; beyond, the oldest go.
const FILES_MAX: usize = 256;

/// The paths that were saved for a program; `None` if there are none, or if the file is not readable as such, which is
/// warned of.
pub(super) fn load(folder: &Path, key: &ViewKey) -> Option<Vec<TreePath>> {
    let path = folder.join(file_name(key));
    let read = small_file::read(&path, SAVED_BYTES_MAX);
    if read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return None;
    }
    let parsed = read.map_err(|error| error.to_string());
    let parsed = parsed.and_then(|bytes| parse(&bytes, key).map_err(|error| error.to_string()));
    match parsed {
        Ok(paths) => Some(paths),
        Err(why) => {
            tracing::warn!(path = %path.display(), why, "the profile is dropped: the program's files are learned anew");
            let _ = std::fs::remove_file(&path);
            None
        }
    }
}

/// Saves the paths of a program.
pub(super) fn save(folder: &Path, key: &ViewKey, paths: &[TreePath]) -> io::Result<()> {
    small_file::write(&folder.join(file_name(key)), &form(key, paths))
}

/// Removes the files that were written longest ago, beyond [`FILES_MAX`].
pub(super) fn prune(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let views = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().ends_with(SUFFIX));
    let dated = |entry: std::fs::DirEntry| {
        let written = entry.metadata().and_then(|found| found.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        (written, entry.path())
    };
    let mut files: Vec<_> = views.map(dated).collect();
    files.sort();
    for (_, path) in &files[..files.len().saturating_sub(FILES_MAX)] {
        let _ = std::fs::remove_file(path);
    }
}

fn file_name(key: &ViewKey) -> String {
    let mut out = Writer::default();
    write_key(&mut out, key);
    format!("{}{SUFFIX}", &Digest::of(&out.0).to_hex()[..32])
}

fn write_key(out: &mut Writer, key: &ViewKey) {
    out.bytes(key.program.as_bytes());
    out.option(key.variant.as_ref(), |out, variant| out.bytes(variant));
}

fn form(key: &ViewKey, paths: &[TreePath]) -> Vec<u8> {
    let mut out = Writer::default();
    write_key(&mut out, key);
    out.list(paths, |out, path| out.bytes(path.as_bytes()));
    seal(MAGIC, &out.0)
}

fn parse(bytes: &[u8], key: &ViewKey) -> Result<Vec<TreePath>, Malformed> {
    const STRANGE: Malformed = Malformed("a path that is not in normal form");
    let mut from = Reader::new(unseal(MAGIC, bytes)?);
    let program = TreePath::parse(from.bytes()?).ok_or(STRANGE)?;
    let variant = from.option(|from| Ok(from.bytes()?.to_vec()))?;
    if *key != (ViewKey { program, variant }) {
        return Err(Malformed("of another program"));
    }
    let mut paths = from.list(|from| TreePath::parse(from.bytes()?).ok_or(STRANGE))?;
    paths.truncate(PATHS_MAX);
    if from.is_empty() { Ok(paths) } else { Err(Malformed("bytes left over")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> TreePath {
        TreePath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn saved_and_loaded_or_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let key = ViewKey { program: path("/bin/sh"), variant: Some(b"/x.sh".to_vec()) };
        let other = ViewKey { program: path("/bin/sh"), variant: None };
        let paths = vec![path("/"), path("/bin"), path("/x.sh")];
        save(folder.path(), &key, &paths).unwrap();
        assert_eq!(load(folder.path(), &key), Some(paths));
        assert_eq!(load(folder.path(), &other), None);
        let file = folder.path().join(file_name(&key));
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[20] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        assert_eq!(load(folder.path(), &key), None);
        assert!(!file.exists(), "a damaged file is dropped");
    }

    #[test]
    fn golden_bytes() {
        let key = ViewKey { program: path("/a"), variant: None };
        let bytes = form(&key, &[path("/")]);
        let body = "020000002f610001000000010000002f";
        assert_eq!(base::digest::hex(unseal(MAGIC, &bytes).unwrap()), body);
    }

    #[test]
    fn old_files_go() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..FILES_MAX + 5 {
            std::fs::write(folder.path().join(format!("{number}{SUFFIX}")), b"").unwrap();
        }
        prune(folder.path());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), FILES_MAX);
    }
}

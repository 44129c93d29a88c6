//! What is kept lies on a disk for weeks. A seal, the digest of all of it, tells whether it still is what was kept.

use base::{Digest, Digester};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Where it is, in the folder of what is kept.
const SEAL: &str = "seal";
/// What it is of.
const PARTS: [&str; 4] = ["info", "changes", "delta", "files"];
const PIECE_BYTES: usize = 256 << 10;

/// Seals what is kept in `folder`.
pub(super) fn put(folder: &Path) -> io::Result<()> {
    std::fs::write(folder.join(SEAL), of(folder)?.to_hex())
}

/// Checks what is kept in `folder`. What an older version has kept has no seal.
///
/// # Errors
/// If it is not what was kept.
pub(super) fn check(folder: &Path) -> io::Result<()> {
    let seal = match std::fs::read(folder.join(SEAL)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        seal => seal?,
    };
    if of(folder)?.to_hex().as_bytes() == seal {
        return Ok(());
    }
    let why = format!(
        "what is kept in {} is damaged: it is not what was put there. Nothing is done with it; look at `changes` and beneath `files` \
         there, and copy what is sound",
        folder.display()
    );
    Err(io::Error::new(io::ErrorKind::InvalidData, why))
}

fn of(folder: &Path) -> io::Result<Digest> {
    let mut all = Digester::default();
    let mut open = PARTS.map(|part| folder.join(part)).to_vec();
    let mut piece = vec![0; PIECE_BYTES];
    while let Some(path) = open.pop() {
        let found = path.symlink_metadata()?;
        // Each name with its length, so that no two trees say the same.
        let name = path.strip_prefix(folder).unwrap_or(&path).as_os_str().as_bytes();
        let (kind, len) = match found.file_type() {
            kind if kind.is_dir() => (0, 0),
            kind if kind.is_symlink() => (1, found.len()),
            _ => (2, found.len()),
        };
        [name.len() as u64, kind, len].into_iter().for_each(|number| all.add(&number.to_be_bytes()));
        all.add(name);
        match kind {
            0 => {
                let mut names = std::fs::read_dir(&path)?.collect::<io::Result<Vec<_>>>()?;
                names.sort_by_key(std::fs::DirEntry::file_name);
                open.extend(names.into_iter().map(|entry| entry.path()));
            }
            1 => all.add(std::fs::read_link(&path)?.as_os_str().as_bytes()),
            _ => {
                let mut file = File::open(&path)?;
                while let count @ 1.. = file.read(&mut piece)? {
                    all.add(&piece[..count]);
                }
            }
        }
    }
    Ok(all.digest())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_change_is_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        for name in ["info", "changes", "delta"] {
            std::fs::write(at(name), name).expect("written");
        }
        std::fs::create_dir_all(at("files/a/b")).expect("made");
        std::fs::write(at("files/a/f"), vec![7; 3 * PIECE_BYTES]).expect("written");
        std::os::unix::fs::symlink("f", at("files/a/l")).expect("made");
        check(folder.path()).expect("an older version's has none");
        put(folder.path()).expect("sealed");
        check(folder.path()).expect("it is whole");
        let undone = |change: &dyn Fn(), undo: &dyn Fn()| {
            change();
            let why = check(folder.path()).expect_err("it is not whole");
            undo();
            check(folder.path()).expect("it is whole again");
            why.to_string()
        };
        let bytes = std::fs::read(at("files/a/f")).expect("read");
        let mut flipped = bytes.clone();
        flipped[PIECE_BYTES + 1] ^= 1;
        let why = undone(&|| std::fs::write(at("files/a/f"), &flipped).unwrap(), &|| {
            std::fs::write(at("files/a/f"), &bytes).unwrap();
        });
        assert!(why.contains("is damaged") && why.contains(folder.path().to_str().unwrap()), "{why}");
        undone(&|| std::fs::write(at("delta"), "Delta").unwrap(), &|| std::fs::write(at("delta"), "delta").unwrap());
        undone(&|| std::fs::remove_dir(at("files/a/b")).unwrap(), &|| std::fs::create_dir(at("files/a/b")).unwrap());
        undone(&|| std::fs::rename(at("files/a/l"), at("files/a/m")).unwrap(), &|| {
            std::fs::rename(at("files/a/m"), at("files/a/l")).unwrap();
        });
    }
}

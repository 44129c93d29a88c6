//! Files of ours that nobody else may read, and that are there in full at any time.

use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes a file so that it is the old one or the new one at any time, also where several write it. Only its owner may read it;
/// folders are made as they are needed, with mode 0700. `is_durable`: it is on the disk when this returns.
///
/// # Errors
/// Those of the file system; the old file is there then.
pub fn write_private(path: &Path, bytes: &[u8], is_durable: bool) -> io::Result<()> {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidFilename.into());
    };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let fresh = folder.join(format!(".{}.{}.{number}.new", name.to_string_lossy(), std::process::id()));
    let written = (|| {
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(bytes)?;
        if is_durable {
            file.sync_all()?;
        }
        std::fs::rename(&fresh, path)
    })();
    if let Err(error) = written {
        // What was wrong is the better error.
        let _ = std::fs::remove_file(&fresh);
        return Err(error);
    }
    // The new name is on the disk with its folder.
    if is_durable { File::open(folder)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn whole_private_and_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state").join("settings");
        for (text, is_durable) in [("old", true), ("new", false)] {
            write_private(&path, text.as_bytes(), is_durable).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        write_private(path.parent().unwrap(), b"over a folder", false).unwrap_err();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
    }
}

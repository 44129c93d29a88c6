//! Small files of ours: what the daemon has learnt, for the one that starts after it.

use base::Digest;
use base::codec::Malformed;
use serde::de::DeserializeOwned;
use std::io;
use std::path::Path;

/// Writes a file so that at any time it is there in full, old or new. Only its owner may read it; folders are made as they are
/// needed, with mode 0700.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    store::write_private(path, bytes, false)
}

/// Reads a file of at most so many bytes.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] where there is none, [`io::ErrorKind::FileTooLarge`] where it is larger than we write.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    if std::fs::metadata(path)?.len() > bytes_max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than this program writes"));
    }
    std::fs::read(path)
}

/// What was learnt, from a file as JSON of at most so many bytes. Where none can be read nothing was: what that means, `or_else`, is told
/// in the log, unless there is no file.
pub fn learnt<T: DeserializeOwned + Default>(path: &Path, bytes_max: u64, or_else: &str) -> T {
    let learnt = read(path, bytes_max).and_then(|bytes| Ok(serde_json::from_slice(&bytes)?));
    learnt.unwrap_or_else(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            tracing::info!(%error, "{} cannot be read: {or_else}", path.display());
        }
        T::default()
    })
}

/// `body` behind `magic`, with its digest at the end, so that a torn file shows.
pub fn seal(magic: &[u8], body: &[u8]) -> Vec<u8> {
    let mut bytes = magic.to_vec();
    bytes.extend_from_slice(body);
    let digest = Digest::of(&bytes);
    bytes.extend_from_slice(&digest.0);
    bytes
}

/// What was sealed, if it is whole and of this version.
pub fn unseal<'a>(magic: &[u8], bytes: &'a [u8]) -> Result<&'a [u8], Malformed> {
    let (sealed, digest) = bytes.split_last_chunk::<32>().ok_or(Malformed("cut short"))?;
    let body = sealed.strip_prefix(magic).ok_or(Malformed("of another version"))?;
    if Digest::of(sealed).0 == *digest { Ok(body) } else { Err(Malformed("damaged: its digest does not fit")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn whole_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state").join("learnt.json");
        assert_eq!(read(&path, 9).unwrap_err().kind(), io::ErrorKind::NotFound);
        write(&path, b"old").unwrap();
        write(&path, b"new").unwrap();
        assert_eq!(read(&path, 3).unwrap(), b"new");
        assert_eq!(read(&path, 2).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
    }
}

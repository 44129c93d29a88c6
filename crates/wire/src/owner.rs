//! How a worker recognises tasks of its own account on its own machine: they are no guests there.
//!
//! Both sides hold a secret that one account of one machine can read: a file in the machine's shared memory, gone with its next start.
//! A launch carries a digest of its task's number under that secret, so that neither the hub nor another client can claim to be the owner.
//! What runs in another mount namespace with its own shared memory, as in a container, counts as another machine.

use base::{Digest, NodeId, TaskId};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Where the secrets of all accounts are, each readable by its own account alone.
const FOLDER: &str = "/dev/shm";
/// Length of a secret.
const BYTES: usize = 32;

/// The secret of an account on this machine.
#[derive(Clone)]
pub struct Secret([u8; BYTES]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    /// This account's secret; it is made if there is none. Call it before the process enters a user namespace. Fails where there is no
    /// shared memory, or where another account has taken the file's name.
    pub fn keep() -> io::Result<Self> {
        Self::keep_in(Path::new(FOLDER))
    }

    /// This account's secret, if a worker or a hub of it has made one. It is read again only when the file was changed: each launch asks for it.
    pub fn read() -> Option<Self> {
        static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
        read_known(&place(Path::new(FOLDER)), &mut crate::lock(&KNOWN))
    }

    fn keep_in(folder: &Path) -> io::Result<Self> {
        let place = place(folder);
        match read(&place) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
        let secret: [u8; BYTES] = rand::random();
        let draft = folder.join(format!(".gleaner-{:016x}", rand::random::<u64>()));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        File::from(rustix::fs::open(&draft, flags, Mode::RUSR | Mode::WUSR)?).write_all(&secret)?;
        // Of several workers that start at once, the first one's secret is everybody's.
        let linked = rustix::fs::linkat(CWD, &draft, CWD, &place, rustix::fs::AtFlags::empty());
        let _ = std::fs::remove_file(&draft);
        match linked {
            Ok(()) | Err(Errno::EXIST) => read(&place),
            Err(error) => Err(error.into()),
        }
    }

    /// By which a hub knows that a client and a worker have the same owner: it proves nothing, and tells nothing of the secret.
    pub fn mark(&self) -> Digest {
        Digest::keyed(&self.0, b"owner")
    }

    /// What the greeting of a machine with this key carries that joins a hub of the same account on the same machine. The connection
    /// proves the key, so that nobody else can say the same.
    pub fn proof_of_joiner(&self, node: NodeId) -> Digest {
        Digest::keyed(&self.0, &[&b"joiner"[..], &node.0.0[..]].concat())
    }

    /// By which a client of the same account on the same machine knows a hub with this key for its owner's. The connection proves the key,
    /// so that no other hub can show the same.
    pub fn proof_of_hub(&self, node: NodeId) -> Digest {
        Digest::keyed(&self.0, &[&b"hub"[..], &node.0.0[..]].concat())
    }

    /// What the launch of this task carries.
    pub fn proof(&self, task: TaskId) -> Digest {
        Digest::keyed(&self.0, &task.0.to_be_bytes())
    }

    /// Whether a launch of this task that carries these bytes comes from this account on this machine.
    pub fn is_proved(&self, task: TaskId, proof: &[u8]) -> bool {
        self.proof(task).is(proof)
    }
}

fn place(folder: &Path) -> PathBuf {
    folder.join(format!("gleaner-{}", rustix::process::getuid().as_raw()))
}

/// A secret, and the file that it was read from, by which a change is noticed.
struct Known {
    secret: Secret,
    stamp: Stamp,
}

type Stamp = (u64, u64, i64, i64, u32, u32);

fn stamp(place: &Path) -> io::Result<Stamp> {
    let stat = std::fs::symlink_metadata(place)?;
    Ok((stat.dev(), stat.ino(), stat.ctime(), stat.ctime_nsec(), stat.uid(), stat.mode()))
}

/// The secret as it was read last, if the file is still the same; it is looked at by one system call.
fn read_known(place: &Path, known: &mut Option<Known>) -> Option<Secret> {
    // Before it is read: what is changed meanwhile is read again the next time.
    let stamp = stamp(place).ok();
    let is_same = known.as_ref().is_some_and(|known| Some(known.stamp) == stamp);
    if !is_same {
        *known = stamp.and_then(|stamp| Some(Known { secret: read(place).ok()?, stamp }));
    }
    known.as_ref().map(|known| known.secret.clone())
}

/// The folder is everybody's: the file counts only if nobody else can have written or read it.
fn read(place: &Path) -> io::Result<Secret> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(place, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !is_file || stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
        let what = format!("{} is not this account's alone: remove it", place.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    let mut secret = [0; BYTES];
    File::from(file).read_exact(&mut secret)?;
    Ok(Secret(secret))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_joiner_is_known_by_its_key() {
        let (own, other) = (Secret([1; BYTES]), Secret([2; BYTES]));
        let [first, second] = [1, 2].map(|number| NodeId(Digest([number; 32])));
        let proof = own.proof_of_joiner(first);
        assert!(proof != other.proof_of_joiner(first) && proof != own.proof_of_joiner(second) && proof != own.mark());
        let proof_of_hub = own.proof_of_hub(first);
        assert!(proof_of_hub != proof, "a worker's proof makes no hub one's own");
        assert!(proof_of_hub != other.proof_of_hub(first) && proof_of_hub != own.proof_of_hub(second));
    }

    #[test]
    fn an_account_has_one_secret_that_proves_its_tasks() {
        let folder = tempfile::tempdir().expect("a folder");
        let (first, second) =
            (Secret::keep_in(folder.path()).expect("made"), Secret::keep_in(folder.path()).expect("read"));
        let proof = first.proof(TaskId(7));
        assert!(second.is_proved(TaskId(7), &proof.0));
        assert!(!second.is_proved(TaskId(8), &proof.0) && !second.is_proved(TaskId(7), &proof.0[..31]));
        assert!(!second.is_proved(TaskId(7), b""));
        let other = tempfile::tempdir().expect("a folder");
        assert!(!Secret::keep_in(other.path()).expect("made").is_proved(TaskId(7), &proof.0));
        assert_eq!(std::fs::read_dir(folder.path()).expect("listed").count(), 1, "no draft is left");
    }

    #[test]
    fn a_secret_that_was_read_counts_until_its_file_changes() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = place(folder.path());
        let mut known = None;
        assert!(read_known(&file, &mut known).is_none());
        let first = Secret::keep_in(folder.path()).expect("made");
        let is = |known: &mut _, secret: &Secret| read_known(&file, known).is_some_and(|read| read.0 == secret.0);
        assert!(is(&mut known, &first) && is(&mut known, &first));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("changed");
        assert!(read_known(&file, &mut known).is_none(), "others can read it");
        std::fs::remove_file(&file).expect("removed");
        let second = Secret::keep_in(folder.path()).expect("made anew");
        assert!(is(&mut known, &second));
        std::fs::remove_file(&file).expect("removed");
        assert!(read_known(&file, &mut known).is_none());
    }

    #[test]
    fn a_file_that_others_can_read_or_that_is_elsewhere_is_no_secret() {
        let folder = tempfile::tempdir().expect("a folder");
        Secret::keep_in(folder.path()).expect("made");
        let file = place(folder.path());
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).expect("changed");
        let error = Secret::keep_in(folder.path()).expect_err("others can read it");
        assert!(error.to_string().contains("not this account's alone"), "{error}");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("changed");
        let moved = folder.path().join("moved");
        std::fs::rename(&file, &moved).expect("moved");
        std::os::unix::fs::symlink(&moved, &file).expect("linked");
        assert!(Secret::keep_in(folder.path()).is_err());
        std::fs::remove_file(&file).expect("removed");
        std::fs::write(&file, "short").expect("written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("changed");
        assert!(Secret::keep_in(folder.path()).is_err());
    }
}

//! What a project's `.gleaner.toml` grants: all that it says, as long as it is the very file that its user has trusted by
//! `gleaner trust`; else nothing. So what comes with a cloned repository grants itself no rights, and no task can: the file is guarded.

mod file;
mod pins;

pub use file::{ProjectFile, Unfit};
pub use pins::{Pin, Pins};

use crate::policy::{Granted, Project, project_of};
use crate::snapshot::Disk;
use base::TreePath;

/// Why a file grants nothing that nobody has trusted.
const NEVER_TRUSTED: &str = "it was never trusted (gleaner trust shows it, and trusts it)";
/// Why a file grants nothing that is another one than was trusted.
const CHANGED: &str = "it has changed since it was trusted (gleaner trust shows it, and trusts it again)";

/// The project that the folder `cwd` lies in, whose links have been followed.
pub fn project_at(cwd: &TreePath, home: Option<&TreePath>) -> Option<Project> {
    project_of(cwd, home, &Disk::default())
}

/// How the file of a project stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There is none.
    Absent,
    /// It is trusted, and grants this.
    Trusted(Granted),
    /// It grants nothing, for this reason. Follows "it grants nothing:".
    Idle(String),
}

/// How the file of the project at `root` stands; `home` is what `~` stands for in it. Looks at the file system.
pub fn standing(root: &TreePath, home: Option<&TreePath>, pins: &Pins) -> Standing {
    let file = match ProjectFile::read(root) {
        Ok(Some(file)) => file,
        Ok(None) => return Standing::Absent,
        Err(why) => return Standing::Idle(why.to_string()),
    };
    // Nothing is parsed that nobody has trusted.
    match pins.of(root) {
        Ok(Some(digest)) if digest == file.digest => match file.granted(home) {
            Ok(granted) => Standing::Trusted(granted),
            Err(why) => Standing::Idle(why.to_string()),
        },
        Ok(Some(_)) => Standing::Idle(CHANGED.to_owned()),
        Ok(None) => Standing::Idle(NEVER_TRUSTED.to_owned()),
        Err(error) => Standing::Idle(format!("which projects are trusted is not known: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::PROJECT_FILE;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_grants_only_what_it_said_when_it_was_trusted() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = TreePath::parse(folder.path().as_os_str().as_encoded_bytes()).expect("a path");
        let state = tempfile::tempdir().expect("a folder");
        let pins = Pins::new(state.path());
        let path = folder.path().join(PROJECT_FILE);
        let is_granted =
            || matches!(standing(&root, None, &pins), Standing::Trusted(granted) if !granted.write.is_empty());
        let why = || match standing(&root, None, &pins) {
            Standing::Idle(why) => why,
            _ => String::new(),
        };
        let trust = || {
            let file = ProjectFile::read(&root).expect("fit").expect("is there");
            pins.add(&root, file.digest, 0).expect("pinned");
        };
        assert_eq!(standing(&root, None, &pins), Standing::Absent);
        std::fs::write(&path, "write = [\"/srv/x\"]").expect("written");
        assert!(!is_granted() && why() == NEVER_TRUSTED);
        trust();
        assert!(is_granted() && why().is_empty());
        std::fs::write(&path, "write = [\"/srv/y\"]").expect("changed");
        assert!(!is_granted() && why() == CHANGED);
        trust();
        assert!(is_granted());
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o646)).expect("opened");
        assert!(!is_granted() && why().contains("anybody may write"));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).expect("closed");
        // The same text by another way.
        std::fs::rename(&path, folder.path().join("elsewhere")).expect("moved");
        std::os::unix::fs::symlink("elsewhere", &path).expect("linked");
        assert!(!is_granted() && why().contains("symbolic link"));
        std::fs::remove_file(&path).expect("removed");
        std::fs::rename(folder.path().join("elsewhere"), &path).expect("back");
        assert!(is_granted());
        assert!(pins.remove(&root).expect("revoked"));
        assert!(!is_granted() && why() == NEVER_TRUSTED);
        std::fs::write(state.path().join("trusted.json"), "torn").expect("written");
        assert!(!is_granted() && why().contains("not known"));
    }
}

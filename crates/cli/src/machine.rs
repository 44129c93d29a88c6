//! Which machine a state folder was made on: by that a copy of it, with its key, is noticed (`gleaner doctor`).

use base::Digest;
use std::path::Path;

/// In a state folder: a digest of the machine's number.
const NAME: &str = "machine";
/// The machine's number, where it has one.
const MACHINE_ID: &str = "/etc/machine-id";

/// Notes in a state folder that it is this machine's, unless that is noted there. Best effort.
pub fn mark(folder: &Path) {
    let file = folder.join(NAME);
    if let (false, Some(own)) = (file.exists(), own(Path::new(MACHINE_ID))) {
        let _ = std::fs::write(file, own);
    }
}

/// Whether a state folder was made on another machine.
pub fn is_of_another(folder: &Path) -> bool {
    differs(folder, own(Path::new(MACHINE_ID)))
}

fn differs(folder: &Path, own: Option<String>) -> bool {
    let noted = std::fs::read_to_string(folder.join(NAME)).ok();
    matches!((noted, own), (Some(noted), Some(own)) if noted.trim() != own)
}

/// The number itself is to be told to nobody.
fn own(file: &Path) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let number = text.trim();
    let is_number = number.len() == 32 && number.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_number.then(|| Digest::keyed(&Digest::of(b"gleaner state folder").0, number.as_bytes()).to_hex())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_another_machine_is_known() {
        let folder = tempfile::tempdir().expect("a folder");
        let id = folder.path().join("machine-id");
        assert_eq!(own(&id), None);
        std::fs::write(&id, "uninitialized\n").expect("written");
        assert_eq!(own(&id), None, "of an image that was never started");
        std::fs::write(&id, "0123456789abcdef0123456789abcdef\n").expect("written");
        let number = own(&id).expect("a number");
        assert!(!number.contains("0123456789abcdef"), "{number}");
        assert!(!differs(folder.path(), Some(number.clone())), "nothing was noted");
        std::fs::write(folder.path().join(NAME), &number).expect("noted");
        assert!(!differs(folder.path(), Some(number)) && !differs(folder.path(), None));
        assert!(differs(folder.path(), Some("another".into())));
    }
}

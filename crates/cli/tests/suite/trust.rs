//! `gleaner trust` as it is called.

use crate::fake::Place;
use crate::gleaner::{gleaner, output};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A home with a project `p` whose file says this.
fn project(place: &Place, text: &str) -> (PathBuf, PathBuf) {
    let home = place.path().canonicalize().expect("is there").join("home");
    let root = home.join("p");
    std::fs::create_dir_all(root.join(".git")).expect("made");
    std::fs::create_dir_all(root.join("sub")).expect("made");
    std::fs::write(root.join(".gleaner.toml"), text).expect("written");
    (home, root)
}

fn trust(place: &Place, home: &Path, arguments: &[&str], folder: &Path) -> (Option<i32>, String, String) {
    output(gleaner(place).arg("trust").args(arguments).env("HOME", home).current_dir(folder))
}

#[test]
fn a_project_is_trusted_listed_and_revoked() {
    let place = Place::new();
    let (home, root) = project(&place, "write = [\"~/.bashrc\", \"~/.ssh/config\"]\nread = [\"~/data\"]\n");
    let (code, text, said) = trust(&place, &home, &[], &root.join("sub"));
    assert_eq!(code, Some(0), "{said}");
    for part in
        ["~/.bashrc", "~/data", "NO EFFECT", "~/.ssh/config: it is on the list of secrets", &root.display().to_string()]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let listed = || -> Value {
        let (code, text, said) = trust(&place, &home, &["--list", "--json"], &home);
        assert_eq!(code, Some(0), "{said}");
        serde_json::from_str(&text).expect("JSON")
    };
    assert_eq!(listed()["projects"][0]["folder"], root.display().to_string());
    assert_eq!(listed()["projects"][0]["grants_nothing"], Value::Null);
    std::fs::write(root.join(".gleaner.toml"), "write = [\"~/.profile\"]").expect("changed");
    assert!(listed()["projects"][0]["grants_nothing"].as_str().is_some_and(|why| why.contains("changed")));
    let state = place.path().join("state/client/trusted.json");
    assert_eq!(std::fs::metadata(&state).expect("is there").permissions().mode() & 0o777, 0o600);
    assert_eq!(trust(&place, &home, &["--revoke"], &root.join("sub")).0, Some(0));
    assert_eq!(listed()["projects"], Value::Array(Vec::new()));
    let (code, _, said) = trust(&place, &home, &["--revoke"], &root);
    assert!(code == Some(2) && said.contains("is not trusted"), "{said}");
}

#[test]
fn a_project_that_is_gone_is_revoked_by_its_name() {
    let place = Place::new();
    let (home, root) = project(&place, "");
    assert_eq!(trust(&place, &home, &[], &root).0, Some(0));
    std::fs::remove_dir_all(&root).expect("removed");
    let root = root.display().to_string();
    assert!(trust(&place, &home, &["--list"], &home).1.contains("it is gone"));
    assert_eq!(trust(&place, &home, &["--revoke", &root], &home).0, Some(0));
}

#[test]
fn what_cannot_be_trusted_is_told_and_not_pinned() {
    let place = Place::new();
    let (home, root) = project(&place, "write = [\"~\"]");
    let file = root.join(".gleaner.toml");
    let refused = |why: &str| {
        let (code, _, said) = trust(&place, &home, &[], &root);
        assert!(code == Some(2) && said.contains(why), "{why}: {said}");
        assert!(!place.path().join("state/client/trusted.json").exists(), "{why}");
    };
    refused("a whole home");
    std::fs::write(&file, "\nnet = true").expect("written");
    refused("line 2");
    std::fs::write(&file, "").expect("written");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o666)).expect("opened");
    refused("anybody may write to it");
    std::fs::rename(&file, root.join("other")).expect("moved");
    refused("there is no");
    std::os::unix::fs::symlink("other", &file).expect("linked");
    refused("symbolic link");
    let (code, _, said) = trust(&place, &home, &[], &home);
    assert!(code == Some(2) && said.contains("in no project"), "{said}");
}

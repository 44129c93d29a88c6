//! The files and folders of this program's own that hold keys, tokens, other people's contents and the client daemon's number: they stay
//! here, wherever they are.

use crate::config::{CLIENT_FILE, Config, NODE_FILE};
use base::TreePath;
use std::path::{Path, PathBuf};

/// What is in a folder for state.
const PARTS: [&str; 4] = ["client", "hub", "worker", "gleaner.log"];

/// Those of this configuration and this runtime folder.
pub fn own_files(config: &Config, runtime: &Path) -> Vec<TreePath> {
    let state = PARTS.map(|part| config.state_dir.value.join(part));
    let settings = [CLIENT_FILE, NODE_FILE].map(|file| config.dir.join(file));
    let all = state.into_iter().chain(settings).chain([runtime.to_owned()]);
    let mut found: Vec<TreePath> = all.filter_map(|path| physical(&path)).filter(|path| !path.is_root()).collect();
    found.sort();
    found.dedup();
    found
}

/// A path without links in it, as paths of tasks are; of what is not there yet, in the folder that is.
fn physical(path: &Path) -> Option<TreePath> {
    let found = path.canonicalize().ok().or_else(|| Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?)));
    let found: PathBuf = found.or_else(|| std::path::absolute(path).ok())?;
    TreePath::parse(found.as_os_str().as_encoded_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Flags, Surroundings};

    #[test]
    fn state_settings_and_runtime_folder_are_closed_wherever_links_lead() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("it is there");
        std::fs::create_dir_all(root.join("real/hub")).expect("made");
        std::os::unix::fs::symlink("real", root.join("state")).expect("linked");
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let variables = [
            ("GLEANER_CONFIG_DIR", text(root.join("config"))),
            ("GLEANER_STATE_DIR", text(root.join("state"))),
            ("HOME", text(root.clone())),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value)).into();
        let around = Surroundings { variables, cpus: 1, ..Surroundings::default() };
        let config = Config::load(&around, Flags::default()).expect("sound");
        let closed = own_files(&config, &root.join("run"));
        for path in ["real/hub", "real/worker", "config/client.toml", "config/node.toml", "run"] {
            let path = TreePath::parse(text(root.join(path)).as_bytes()).expect("a path");
            assert!(closed.contains(&path), "{path}: {closed:?}");
        }
    }
}

//! Which program a command is: the key under which its profile (the paths that it uses) is kept.

use base::TreePath;

/// The key of a view: a program, and what it interprets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ViewKey {
    /// The program's file, links followed.
    pub program: TreePath,
    /// The path of the script, or what else tells its uses apart (`-m module`, the name under which a program of many
    /// names was called).
    pub variant: Option<Vec<u8>>,
}

/// A command's program.
pub struct Resolved {
    /// As it was named.
    pub program: TreePath,
    /// Which view it uses.
    pub key: ViewKey,
}

/// Finds a command's program.
pub fn resolve(command: &base::Command, cwd: &TreePath) -> Result<Resolved, String> {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let name = &command.argv[0];
    let dirs: Vec<Vec<u8>> = if name.contains(&b'/') {
        vec![b"".to_vec()]
    } else {
        let path = command.env.iter().find_map(|e| e.strip_prefix(b"PATH=")).unwrap_or(b"/usr/bin:/bin");
        path.split(|b| *b == b':').map(|d| d.to_vec()).collect()
    };
    for dir in dirs {
        let mut full = dir.clone();
        if !full.is_empty() {
            full.push(b'/');
        }
        full.extend_from_slice(name);
        let Some(path) = cwd.resolve(&full) else { continue };
        let os = std::path::Path::new(std::ffi::OsStr::from_bytes(path.as_bytes()));
        if !os.is_file() {
            continue;
        }
        let real = os.canonicalize().map_err(|e| e.to_string())?;
        let real = TreePath::parse(&real.into_os_string().into_vec()).ok_or("odd path")?;
        return Ok(Resolved { program: path, key: ViewKey { program: real, variant: None } });
    }
    Err("command not found".into())
}

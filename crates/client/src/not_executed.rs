//! What a worker could not execute. That is said without a signature, so it counts only where it is so here too: else a hub could have any
//! command end with the status of one that is not there.

use crate::profile::identify;
use crate::serve::blocking;
use crate::views::closure::{first_line, loader_of, open};
use base::{Command, TreePath};
use rustix::fs::{Access, AtFlags, CWD, FileType};

/// Scripts whose interpreters are scripts: as many as the kernel follows.
const INTERPRETERS_MAX: usize = 5;

/// Why a worker's word that this command could not be executed is not believed, for a person; `None`: it is.
pub(crate) async fn contradiction(command: &Command, said: &str) -> Option<String> {
    let command = command.clone();
    let is_executable = blocking(move || can_be_executed(&command)).await?;
    is_executable.then(|| format!("a worker says: {said}; here it can be executed"))
}

/// Whether this machine's kernel would execute the program, as far as that can be seen without doing it.
fn can_be_executed(command: &Command) -> bool {
    let Some(cwd) = TreePath::parse(&command.cwd).filter(can_be_entered) else { return false };
    let Ok(program) = identify(&command.argv, &command.env, &cwd) else { return false };
    let mut path = program.path;
    for _ in 0..=INTERPRETERS_MAX {
        if !is_executable_file(&path) {
            return false;
        }
        let Some(file) = open(&path) else { return false };
        let Some((interpreter, _)) = first_line(&file) else {
            let is_there = |name: &[u8]| cwd.resolve(name).as_ref().is_some_and(is_executable_file);
            return loader_of(&file).is_some_and(|loader| loader.is_none_or(|name| is_there(&name)));
        };
        let Some(next) = cwd.resolve(&interpreter) else { return false };
        path = next;
    }
    false
}

fn can_be_entered(folder: &TreePath) -> bool {
    rustix::fs::accessat(CWD, folder.as_bytes(), Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

fn is_executable_file(path: &TreePath) -> bool {
    let is_file = |mode| FileType::from_raw_mode(mode) == FileType::RegularFile;
    rustix::fs::stat(path.as_bytes()).is_ok_and(|stat| is_file(stat.st_mode)) && can_be_entered(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_is_said_to_be_not_executable_is_looked_at() {
        let folder = tempfile::tempdir().expect("a folder");
        let put = |name: &str, bytes: &[u8], mode: u32| {
            let path = folder.path().join(name);
            fs::write(&path, bytes).expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its mode");
        };
        put("script", b"#!/bin/sh\n", 0o755);
        put("of-script", format!("#!{}/script\n", folder.path().display()).as_bytes(), 0o755);
        put("lacks-interpreter", b"#!/nowhere/sh\n", 0o755);
        put("closed", b"#!/bin/sh\n", 0o644);
        put("text", b"echo\n", 0o755);
        put("circle", format!("#!{}/circle\n", folder.path().display()).as_bytes(), 0o755);
        let own = fs::read("/bin/true").expect("a program");
        put("program", &own, 0o755);
        let at = own.windows(4).position(|bytes| bytes == b"/lib").expect("the name of its loader");
        put("lacks-loader", &[&own[..at], b"/not", &own[at + 4..]].concat(), 0o755);
        let can = |argv: &str, cwd: &std::path::Path| {
            can_be_executed(&Command {
                argv: vec![argv.into()],
                cwd: cwd.to_string_lossy().into_owned().into_bytes(),
                ..Command::default()
            })
        };
        for (name, is_so) in [
            ("./script", true),
            ("./of-script", true),
            ("./program", true),
            ("true", true),
            ("./lacks-interpreter", false),
            ("./lacks-loader", false),
            ("./closed", false),
            ("./text", false),
            ("./circle", false),
            ("./absent", false),
        ] {
            assert_eq!(can(name, folder.path()), is_so, "{name}");
        }
        assert!(!can("true", &folder.path().join("absent")), "there is no such working directory");
    }
}

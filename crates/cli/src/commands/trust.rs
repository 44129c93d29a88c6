//! `gleaner trust`: lets the `.gleaner.toml` of a project count, as it is now.
//!
//! It needs no daemon: the list of trusted projects is one file of the client's state folder, which the daemon reads again when it has
//! changed.

use super::print_answer as print;
use crate::args::TrustProject;
use crate::config::{Config, Flags, Surroundings};
use crate::detach::make_private_folder;
use crate::error::{CliError, Result};
use base::TreePath;
use client::grants::{Pins, ProjectFile, project_at};
use client::policy::PROJECT_FILE;
use client::report::{ProjectGrants, Revocation, TrustedProjects};
use std::path::{Path, PathBuf};

/// Shows what the project's file grants, and trusts it; or lists what is trusted, or revokes it.
pub fn run(arguments: TrustProject) -> Result {
    let around = Surroundings::of_process();
    let state = Config::load(&around, Flags::default())?.state_dir.value.join("client");
    make_private_folder(&state)?;
    let pins = Pins::new(&state);
    let home = std::env::var_os("HOME").and_then(|home| physical(Path::new(&home)).ok());
    if arguments.list {
        let listed = TrustedProjects::of(&pins, home.as_ref());
        return print(&listed.map_err(|error| list_failed(&error))?, arguments.json);
    }
    let folder = arguments.folder.unwrap_or_else(|| PathBuf::from("."));
    if arguments.revoke {
        return revoke(&folder, home.as_ref(), &pins, arguments.json);
    }
    let root = root_of(&folder, home.as_ref())?;
    let name = format!("{root}/{PROJECT_FILE}");
    let unfit = |why: client::grants::Unfit| {
        CliError::user(format!("{name} is not trusted: {why}"))
            .hint("gleaner trust --help shows what such a file is like")
    };
    let Some(file) = ProjectFile::read(&root).map_err(unfit)? else {
        return Err(CliError::user(format!("there is no {name}"))
            .hint("write one, such as: write = [\"~/.bashrc\"]; gleaner trust --help says more"));
    };
    let granted = file.granted(home.as_ref()).map_err(unfit)?;
    let answer = ProjectGrants::of(&file, &granted, home.as_ref());
    pins.add(&root, file.digest, wire::now_millis()).map_err(|error| list_failed(&error))?;
    print(&answer, arguments.json)
}

fn revoke(folder: &Path, home: Option<&TreePath>, pins: &Pins, json: bool) -> Result {
    // A project that is gone can be named as it was.
    let named =
        std::path::absolute(folder).ok().and_then(|path| TreePath::root().resolve(path.as_os_str().as_encoded_bytes()));
    let places = [root_of(folder, home).ok(), named];
    for place in places.iter().flatten() {
        if pins.remove(place).map_err(|error| list_failed(&error))? {
            return print(&Revocation { folder: place.to_string() }, json);
        }
    }
    let folder = places.iter().flatten().next().map_or_else(|| folder.display().to_string(), TreePath::to_string);
    Err(CliError::user(format!("{folder} is not trusted")).hint("gleaner trust --list shows the projects that are"))
}

/// The root of the project that `folder` is in.
fn root_of(folder: &Path, home: Option<&TreePath>) -> Result<TreePath> {
    let cwd = physical(folder).map_err(|error| CliError::file("finding", folder, error))?;
    let project = project_at(&cwd, home);
    let none = || {
        CliError::user(format!("{cwd} is in no project: a home, or what is above it, is none"))
            .hint("gleaner trust FOLDER, with the folder of a project")
    };
    project.map(|project| project.root).ok_or_else(none)
}

/// The path with all links followed.
fn physical(path: &Path) -> std::io::Result<TreePath> {
    let path = path.canonicalize()?;
    TreePath::parse(path.as_os_str().as_encoded_bytes()).ok_or_else(|| std::io::ErrorKind::InvalidFilename.into())
}

fn list_failed(error: &std::io::Error) -> CliError {
    CliError::environment(format!("the list of trusted projects: {error}"))
        .hint("gleaner config shows where state_dir is")
}

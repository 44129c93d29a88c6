//! What is gone from the lower directory.

use super::upper::{Entry, Kind, Walked, is_absence};
use super::{DeltaError, Lens, Options};
use base::{Binding, TreePath};
use rustix::fs::{Dir, FileType};
use std::collections::{BTreeSet, HashMap};
use std::io;

/// Directories that the task renamed: their paths before, with those after.
pub(crate) type Moved = HashMap<TreePath, TreePath>;

/// The directories among `entries` that are renamed.
pub(crate) fn moved(entries: &[Entry]) -> Moved {
    let renamed = entries.iter().filter_map(|entry| match &entry.kind {
        Kind::Renamed { from } => Some((from.clone(), entry.path.clone())),
        _ => None,
    });
    renamed.collect()
}

/// All paths of the lower directory that are gone, with all beneath, save renamed directories and what is in them. Files
/// that something else took the place of are not among them, unless the overlay hides them with a whiteout.
pub(crate) fn removed(
    walked: &Walked,
    moved: &Moved,
    lens: &dyn Lens,
    options: &Options,
) -> Result<BTreeSet<TreePath>, DeltaError> {
    let mut tops: BTreeSet<&TreePath> = walked.whiteouts.iter().collect();
    for entry in &walked.entries {
        let Some((lower, before)) = &entry.lower else { continue };
        let was_directory = matches!(before, Binding::Directory { .. });
        let gone = match &entry.kind {
            Kind::Directory { opaque } => *opaque && was_directory,
            Kind::Renamed { .. } => true,
            // If what cannot travel is in the place of something, that is gone all the same.
            Kind::Socket | Kind::Device => !matches!(before, Binding::Special { .. }),
            Kind::File(_) | Kind::Symlink { .. } | Kind::Fifo => was_directory,
        };
        if gone {
            tops.insert(lower);
        }
    }
    let mut all = BTreeSet::new();
    for top in tops {
        if !moved.contains_key(top) && !all.contains(top) {
            add(top, &mut all, moved, lens, options)?;
        }
    }
    Ok(all)
}

fn add(
    top: &TreePath,
    all: &mut BTreeSet<TreePath>,
    moved: &Moved,
    lens: &dyn Lens,
    options: &Options,
) -> Result<(), DeltaError> {
    let known_directory = matches!(lens.binding_of(top), Some(Binding::Directory { .. }));
    let mut open = if known_directory { vec![top.clone()] } else { vec![] };
    all.insert(top.clone());
    while let Some(directory) = open.pop() {
        for name in list(&directory, lens)? {
            let path = directory.join(&name.bytes);
            if moved.contains_key(&path) {
                continue;
            }
            if name.is_directory {
                open.push(path.clone());
            }
            all.insert(path);
            if all.len() > options.entries_max {
                return Err(DeltaError::TooMany { max: options.entries_max });
            }
        }
    }
    Ok(())
}

/// A name in a directory of the lower directory.
pub(crate) struct Name {
    pub bytes: Vec<u8>,
    pub is_directory: bool,
}

/// The names in a directory of the lower directory.
pub(crate) fn list(path: &TreePath, lens: &dyn Lens) -> Result<Vec<Name>, DeltaError> {
    let io = |source| DeltaError::Io { what: "list what was in", path: path.clone(), source };
    let open = match lens.open_base(path) {
        Ok(open) => open,
        // What the task could not list either it cannot have emptied: the client finds its entries, if any.
        Err(error) if is_absence(&error) || error.kind() == io::ErrorKind::PermissionDenied => return Ok(Vec::new()),
        Err(error) => return Err(io(error)),
    };
    let mut names = Vec::new();
    for entry in Dir::read_from(&open).map_err(|error| io(error.into()))? {
        let entry = entry.map_err(|error| io(error.into()))?;
        let bytes = entry.file_name().to_bytes();
        if bytes == b"." || bytes == b".." {
            continue;
        }
        let is_directory = match entry.file_type() {
            FileType::Unknown => matches!(lens.binding_of(&path.join(bytes)), Some(Binding::Directory { .. })),
            kind => kind == FileType::Directory,
        };
        names.push(Name { bytes: bytes.to_vec(), is_directory });
    }
    Ok(names)
}

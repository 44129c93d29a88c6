//! A client's mirrors: one without extended attributes, and for views in which some path has any, one with.
//!
//! Overlayfs asks for attributes of its own at each file and directory that a task comes by, and the kernel keeps no
//! answer. To a mirror without attributes these questions do not come. So a task starts there, unless a path of its view
//! is known to have attributes; if one turns up while it runs, it starts again in the other mirror. So it does where it turns out
//! that values of attributes stay at the client: from then on who asks for one is noticed.

use crate::content::Contents;
use crate::fuse::{Gap, Mirror, MountOptions};
use crate::ids::Table;
use base::{Version, ViewUpdate};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Mounts have numbers.
static MOUNTS: AtomicU64 = AtomicU64::new(0);

/// The mirrors of one client.
pub struct Mirrors {
    folder: PathBuf,
    ids: Arc<Table>,
    contents: Arc<Contents>,
    plain: Arc<Mirror>,
    with_xattrs: OnceLock<Arc<Mirror>>,
}

/// Why a view cannot be taken a step further.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// Another step comes first.
    #[error(transparent)]
    Gap(#[from] Gap),
    /// A mirror cannot be mounted.
    #[error("the client's files cannot be mounted: {0}")]
    Mount(#[from] io::Error),
}

impl Mirrors {
    /// Mounts beneath `folder`.
    pub fn mount(folder: &Path, ids: Arc<Table>, contents: Arc<Contents>) -> io::Result<Self> {
        let plain = mount(folder, &ids, &contents, false)?;
        Ok(Self { folder: folder.to_owned(), ids, contents, plain, with_xattrs: OnceLock::new() })
    }

    /// Takes a step of a view, in the mirror that shows it as it is; a launch takes its lane there.
    pub fn apply(&self, update: &ViewUpdate) -> Result<Arc<Mirror>, ApplyError> {
        self.ids.meet(update.view, &update.set);
        if !self.plain.lacks_xattrs(update) {
            self.plain.apply(update)?;
            return Ok(self.plain.clone());
        }
        let mirror = self.with_xattrs()?;
        if update.base != Version(0)
            && mirror.version(update.view).is_none()
            && let Some(whole) = self.plain.whole_view(update.view)
        {
            mirror.lacks_xattrs(&whole);
            mirror.apply(&whole)?;
        }
        mirror.lacks_xattrs(update);
        mirror.apply(update)?;
        Ok(mirror)
    }

    /// For how long the oldest request of a guest has waited; none if none does.
    pub fn oldest_request(&self) -> Option<Duration> {
        let mirrors = [Some(&self.plain), self.with_xattrs.get()];
        mirrors.into_iter().flatten().filter_map(|mirror| mirror.oldest_request()).max()
    }

    fn with_xattrs(&self) -> io::Result<Arc<Mirror>> {
        if let Some(mirror) = self.with_xattrs.get() {
            return Ok(mirror.clone());
        }
        // Of two that are mounted at the same time one is kept.
        let mirror = mount(&self.folder, &self.ids, &self.contents, true)?;
        Ok(self.with_xattrs.get_or_init(|| mirror).clone())
    }
}

fn mount(folder: &Path, ids: &Arc<Table>, contents: &Arc<Contents>, with_xattrs: bool) -> io::Result<Arc<Mirror>> {
    let number = MOUNTS.fetch_add(1, Ordering::Relaxed);
    let place = folder.join(number.to_string());
    let options = MountOptions { with_xattrs, ids: ids.clone(), ..MountOptions::new(place, ids.base()) };
    Mirror::mount(options, contents.clone())
}

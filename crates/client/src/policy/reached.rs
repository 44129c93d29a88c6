//! Where the links lead that paths of a command go by, as far as no result can have made these links.
//!
//! A task may make links in its project, in the environment that it installs into, and where files of the moment are. What such a link
//! leads to is none of what the next command names by it, unless it lies in such a place as well.

use super::Lookup;
use super::linked::ENVIRONMENT_MARKERS;
use super::names::first_in_home;
use base::TreePath;

/// Folders for everybody's files of the moment.
const TEMPORARY: [&[u8]; 3] = [b"/tmp", b"/var/tmp", b"/dev/shm"];

/// Follows links for one command.
pub(super) struct Reached<'a> {
    pub lookup: &'a dyn Lookup,
    /// The home.
    pub home: Option<&'a TreePath>,
    /// Commands run in the home itself, and may make links in it.
    pub is_at_home: bool,
    /// Where else results may make links: the roots of the project, places of outputs and of files of the moment.
    pub writable: Vec<TreePath>,
    /// Environments, in which they may as well: what is one itself they do not replace.
    pub environments: &'a [TreePath],
}

impl Reached<'_> {
    /// Where `path` leads, if that is elsewhere and no result can have made it so.
    pub fn by_links(&self, path: &TreePath) -> Option<TreePath> {
        let physical = self.lookup.physical(path).filter(|physical| physical != path)?;
        let is_sure =
            self.is_writable(&physical) || !self.lookup.links_to(path).iter().any(|link| self.is_makeable(link));
        is_sure.then_some(physical)
    }

    /// The path itself, and where it leads.
    pub fn both(&self, path: TreePath) -> Vec<TreePath> {
        [self.by_links(&path), Some(path)].into_iter().flatten().collect()
    }

    /// The same of a place that is written to because a variable names it: none in a folder of settings that this does not name.
    pub fn place(&self, path: TreePath) -> Vec<TreePath> {
        let led = self.by_links(&path).filter(|led| !self.is_of_settings_unnamed(&path, led));
        [led, Some(path)].into_iter().flatten().collect()
    }

    /// The same of an environment, which leads to one.
    pub fn environment(&self, path: TreePath) -> Vec<TreePath> {
        let mut places = self.place(path.clone());
        places.retain(|place| *place == path || self.lookup.has_any(place, ENVIRONMENT_MARKERS));
        places
    }

    /// Where an environment leads, to be read: to another one, whoever made the link.
    pub fn environment_to_read(&self, path: TreePath) -> Vec<TreePath> {
        let led = self.lookup.physical(&path).filter(|led| self.lookup.has_any(led, ENVIRONMENT_MARKERS));
        let led = led.filter(|led| *led != path && !self.is_of_settings_unnamed(&path, led));
        [led, Some(path)].into_iter().flatten().collect()
    }

    /// Whether `led` is hidden in the home, and `path` does not say so.
    fn is_of_settings_unnamed(&self, path: &TreePath, led: &TreePath) -> bool {
        let Some(home) = self.home.filter(|home| led.is_within(home)) else { return false };
        let first = first_in_home(led, home);
        first.starts_with(b".") && !(path.is_within(home) && first_in_home(path, home) == first)
    }

    fn is_writable(&self, path: &TreePath) -> bool {
        let is_temporary = TEMPORARY.iter().filter_map(|at| TreePath::parse(at)).any(|at| path.is_within(&at));
        let is_inside = |at: &TreePath| path.is_within(at) && path != at;
        is_temporary || self.writable.iter().any(|at| path.is_within(at)) || self.environments.iter().any(is_inside)
    }

    /// Whether a result can have made the link at `path`.
    fn is_makeable(&self, path: &TreePath) -> bool {
        let is_of_home = |home: &&TreePath| path.is_within(home) && !first_in_home(path, home).starts_with(b".");
        let is_reached = self.is_writable(path) || (self.is_at_home && self.home.filter(is_of_home).is_some());
        is_reached && self.lookup.may_be_of_result(path)
    }
}

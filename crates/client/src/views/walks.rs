//! Who lists a tree folder after folder (`find`, `du`, `git status`, `rm -r`) asks for one path after the other, in the order in which
//! folders list them. The client then walks ahead: what comes next in that order goes along with the answer, ever more of it.
//!
//! What was brought so is left out of the view again once a command is about something else: a launch checks every path.

use super::table::{Look, Table};
use super::{View, Views};
use base::{Binding, Digest, Listing, NodeKind, TreePath};
use std::sync::Mutex;
use wire::lock;

/// Folders entered, or files of one folder asked for, in order before it is taken for a walk.
const FOLDERS_IN_ORDER: u32 = 3;
/// Folders whose files were all asked for before the files of others are brought.
const FOLDERS_OF_FILES: u32 = 2;
/// Questions about one folder, with none about another between, after which the whole of it is brought, in whatever order they come.
const QUESTIONS_IN_FOLDER: u32 = 32;
/// Paths that go along first, and at most.
const AHEAD_MIN: usize = 256;
const AHEAD_MAX: usize = 4096;
/// Entries that are passed over for each that is brought, at most.
const PASSED_OVER: usize = 8;

/// How far the last walk through a view has come.
#[derive(Debug, Default)]
pub(super) struct Walks(Mutex<Walk>);

#[derive(Debug, Default)]
struct Walk {
    /// The folder that was asked about last, and how often in a row.
    folder: Option<TreePath>,
    questions: u32,
    /// The folder that was entered or brought last.
    last: Option<TreePath>,
    /// The highest folder in which others were entered in order.
    top: Option<TreePath>,
    /// Folders entered in order, and those whose files were asked for to the end.
    folders: u32,
    files: u32,
    ahead: usize,
}

/// What to bring with an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ahead {
    /// At most so many paths.
    pub paths: usize,
    /// Files as well as folders.
    pub files: bool,
    /// Beneath this folder; `None`: all of one folder alone, rather than what follows.
    pub top: Option<TreePath>,
}

impl Walks {
    /// Notes that `path` was asked for, a directory or not, and says what to bring with it. `next_folder`: the folder that is listed
    /// after the named one in the folder above `path`.
    fn asked(&self, path: &TreePath, is_folder: bool, next_folder: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Option<Ahead> {
        let above = path.parent()?;
        let mut walk = lock(&self.0);
        let same = walk.folder.as_ref() == Some(&above);
        walk.questions = if same { walk.questions + 1 } else { 1 };
        walk.folder = Some(above.clone());
        if is_folder {
            walk.enter(path, &above, next_folder);
        }
        let whole = walk.questions >= QUESTIONS_IN_FOLDER;
        let files = walk.files >= FOLDERS_OF_FILES && walk.folders >= FOLDERS_OF_FILES;
        let is_walk = walk.folders >= FOLDERS_IN_ORDER && is_folder || files || whole;
        if !is_walk {
            return None;
        }
        walk.ahead = (walk.ahead * 2).clamp(AHEAD_MIN, AHEAD_MAX);
        let top = walk.top.clone().filter(|_| !whole);
        Some(Ahead { paths: walk.ahead, files: files || whole, top })
    }

    /// Notes that the files of a folder were asked for to its end.
    pub(super) fn note_files(&self) {
        lock(&self.0).files += 1;
    }

    /// Notes the last folder that was brought.
    fn note_brought(&self, folder: &TreePath) {
        lock(&self.0).last = Some(folder.clone());
    }
}

impl Walk {
    fn enter(&mut self, path: &TreePath, above: &TreePath, next_folder: impl Fn(&[u8]) -> Option<Vec<u8>>) {
        let Some(last) = self.last.replace(path.clone()) else { return };
        if *above == last {
            // A step down is on the way to anything.
            return;
        }
        let before = last.relative_to(above).and_then(|way| way.split(|byte| *byte == b'/').next());
        let is_next = before.is_some_and(|before| next_folder(before).as_deref() == Some(path.name()));
        if !is_next {
            (self.folders, self.files, self.ahead, self.top) = (0, 0, 0, None);
            return;
        }
        self.folders += 1;
        if self.top.as_ref().is_none_or(|top| !above.is_within(top)) {
            self.top = Some(above.clone());
        }
    }
}

/// What the listing of a directory of the table is called.
pub(super) fn name_of_listing(table: &Table, folder: &TreePath) -> Option<Digest> {
    match table.binding(folder) {
        Some(Binding::Directory { listing, .. }) => *listing,
        _ => None,
    }
}

/// The folder listed after the one of this name.
fn folder_after(listing: &Listing, name: &[u8]) -> Option<Vec<u8>> {
    let at = listing.entries.partition_point(|entry| entry.name.as_slice() <= name);
    let next = listing.entries[at..].iter().find(|entry| entry.kind == NodeKind::Directory)?;
    Some(next.name.clone())
}

impl Views {
    /// Brings what a walk through the view will ask for after `path`, which is new there. Returns what was brought. `above`: the folder
    /// that it is in, read if it is needed.
    pub(super) fn walk_ahead<'a>(
        &self,
        view: &View,
        table: &mut Table,
        path: &TreePath,
        look: &Look<'_>,
        above: impl Fn() -> Option<&'a Listing>,
    ) -> Vec<TreePath> {
        let is_folder = matches!(table.binding(path), Some(Binding::Directory { .. }));
        let Some(ahead) = view.walks.asked(path, is_folder, |name| folder_after(above()?, name)) else {
            return Vec::new();
        };
        let Some(above) = above().cloned() else { return Vec::new() };
        let mut walker =
            Walker { views: self, table: &mut *table, look, ahead, brought: Vec::new(), passed: 0, last: None };
        walker.walk(path, above);
        let Walker { brought, last, .. } = walker;
        if let Some(last) = last {
            view.walks.note_brought(&last);
        }
        brought.iter().for_each(|path| table.mark_walked(path));
        brought
    }

    /// The names in a directory of the table.
    fn listing_of(&self, table: &Table, folder: &TreePath) -> Option<Listing> {
        self.snapshot.read_listing(&name_of_listing(table, folder)?)
    }
}

/// Walks through a tree, from one path on, in the order of its listings.
struct Walker<'a, 'b> {
    views: &'a Views,
    table: &'a mut Table,
    look: &'a Look<'b>,
    ahead: Ahead,
    brought: Vec<TreePath>,
    passed: usize,
    /// The last folder that was brought.
    last: Option<TreePath>,
}

impl Walker<'_, '_> {
    fn walk(&mut self, from: &TreePath, above: Listing) {
        let Some(mut folder) = from.parent() else { return };
        let Some(device) = self.device_of(&folder) else { return };
        let whole = self.ahead.top.is_none();
        let after =
            |listing: &Listing, name: &[u8]| listing.entries.partition_point(|entry| entry.name.as_slice() <= name);
        let first = if whole { 0 } else { after(&above, from.name()) };
        let mut open = vec![(folder.clone(), above, first)];
        if !whole {
            self.enter(from, device, &mut open);
        }
        while !self.is_done() {
            if let Some((at, listing, next)) = open.last_mut() {
                let (at, first) = (at.clone(), *next);
                let portion = listing.entries[first..].iter().take(AHEAD_MIN);
                // Up to the first folder, which is entered before what follows it.
                let first_folder = portion.clone().position(|entry| !whole && entry.kind == NodeKind::Directory);
                let portion = portion.take(first_folder.map_or(AHEAD_MIN, |at| at + 1));
                let entries: Vec<(Vec<u8>, NodeKind)> = portion.map(|entry| (entry.name.clone(), entry.kind)).collect();
                if entries.is_empty() {
                    open.pop();
                    continue;
                }
                *next += entries.len();
                self.bring(&at, &entries);
                if let Some(folder) = first_folder {
                    self.enter(&at.join(&entries[folder].0), device, &mut open);
                }
                continue;
            }
            // The tree above this one, as far as it was walked: what follows the folder there.
            let is_walked = |above: &TreePath| self.ahead.top.as_ref().is_some_and(|top| above.is_within(top));
            let Some(above) = folder.parent().filter(|above| is_walked(above) && self.device_of(above) == Some(device))
            else {
                return;
            };
            let Some(listing) = self.views.listing_of(self.table, &above) else { return };
            let next = after(&listing, folder.name());
            open.push((above.clone(), listing, next));
            folder = above;
        }
    }

    fn is_done(&self) -> bool {
        self.brought.len() >= self.ahead.paths || self.passed >= self.ahead.paths * PASSED_OVER
    }

    fn device_of(&self, folder: &TreePath) -> Option<u64> {
        match self.table.binding(folder) {
            Some(Binding::Directory { attr, .. }) => Some(attr.dev),
            _ => None,
        }
    }

    /// Goes on in this folder, unless another file system begins there.
    fn enter(&mut self, folder: &TreePath, device: u64, open: &mut Vec<(TreePath, Listing, usize)>) {
        if self.device_of(folder) == Some(device)
            && let Some(listing) = self.views.listing_of(self.table, folder)
        {
            self.last = Some(folder.clone());
            open.push((folder.clone(), listing, 0));
        }
    }

    fn bring(&mut self, at: &TreePath, entries: &[(Vec<u8>, NodeKind)]) {
        // All of a folder is looked through each time.
        self.passed += if self.ahead.top.is_none() { 0 } else { entries.len() };
        let wanted = entries.iter().filter(|(_, kind)| self.ahead.files || *kind == NodeKind::Directory);
        let paths: Vec<TreePath> = wanted.map(|(name, _)| at.join(name)).filter(|path| !self.table.has(path)).collect();
        self.table.add_all(paths.clone(), self.look);
        self.brought.extend(paths);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> TreePath {
        TreePath::parse(text.as_bytes()).unwrap()
    }

    fn numbered(name: &[u8]) -> Option<Vec<u8>> {
        let number: u32 = std::str::from_utf8(name).ok()?.parse().ok()?;
        Some((number + 1).to_string().into_bytes())
    }

    #[test]
    fn folders_entered_in_order_are_a_walk() {
        let walks = Walks::default();
        let asked = |text: &str| walks.asked(&path(text), true, numbered);
        for folder in ["/t/1", "/t/2", "/t/2/1", "/t/3"] {
            assert_eq!(asked(folder), None, "{folder}");
        }
        let top = Some(path("/t"));
        let first = Ahead { paths: AHEAD_MIN, files: false, top: top.clone() };
        assert_eq!(asked("/t/4"), Some(first));
        walks.note_files();
        walks.note_files();
        let files = Ahead { paths: 2 * AHEAD_MIN, files: true, top };
        assert_eq!(walks.asked(&path("/t/4/f"), false, numbered), Some(files));
        assert_eq!(asked("/t/9"), None, "a jump");
        assert_eq!(walks.asked(&path("/t/9/f"), false, numbered), None);
    }

    #[test]
    fn the_way_down_is_no_walk() {
        let walks = Walks::default();
        for folder in ["/a", "/a/1", "/a/1/1", "/a/1/1/1", "/a/1/1/1/1", "/a/1/1/1/1/1"] {
            assert_eq!(walks.asked(&path(folder), true, numbered), None, "{folder}");
        }
    }

    #[test]
    fn who_asks_for_all_of_a_folder_gets_it_in_whatever_order() {
        let walks = Walks::default();
        let asked =
            |number: u32| walks.asked(&path("/t").join(format!("f{}", number * 7 % 97).as_bytes()), false, numbered);
        assert!((1..QUESTIONS_IN_FOLDER).all(|number| asked(number).is_none()));
        assert_eq!(asked(50), Some(Ahead { paths: AHEAD_MIN, files: true, top: None }));
        assert_eq!(asked(51).map(|ahead| ahead.paths), Some(2 * AHEAD_MIN));
    }

    /// Views on a tree of so many folders with twenty files each.
    fn tree(folders: usize) -> (tempfile::TempDir, TreePath, Views) {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..folders {
            let at = folder.path().join(format!("d{number:02}"));
            std::fs::create_dir(&at).unwrap();
            (0..20).for_each(|number| std::fs::write(at.join(format!("f{number:02}")), b"x").unwrap());
        }
        let root = super::super::tests::root_of(&folder);
        (folder, root, Views::new(super::super::tests::snapshot(), None))
    }

    /// How many questions it takes to look at these paths.
    fn questions(views: &Views, view: &View, paths: impl Iterator<Item = TreePath>) -> usize {
        let ask =
            |path: &TreePath| drop(views.fault(view, path, &crate::policy::Open, crate::snapshot::now()).unwrap());
        paths.filter(|path| !view.has(path)).inspect(ask).count()
    }

    #[test]
    fn who_goes_through_a_tree_asks_little() {
        let (_files, root, views) = tree(60);
        let folders: Vec<TreePath> = (0..60).map(|at| root.join(format!("d{at:02}").as_bytes())).collect();
        let files =
            |folder: &TreePath| (0..20).map(|at| folder.join(format!("f{at:02}").as_bytes())).collect::<Vec<_>>();
        let view = views.open(&super::super::tests::key("/bin/du"), Vec::new);
        let by_level = folders.iter().cloned().chain(folders.iter().flat_map(files));
        let asked = questions(&views, &view, by_level);
        assert!(asked < 30, "du: {asked} for 1260 paths");
        let view = views.open(&super::super::tests::key("/bin/git"), Vec::new);
        let by_folder = folders.iter().flat_map(|folder| [vec![folder.clone()], files(folder)].concat());
        let asked = questions(&views, &view, by_folder);
        assert!(asked < 40, "git: {asked} for 1260 paths");
        assert!(lock(&view.table).len() > 1260);
    }

    #[test]
    fn where_a_walk_went_is_left_out_of_what_is_about_something_else() {
        let (_files, root, views) = tree(1);
        let view = views.open(&super::super::tests::key("/bin/du"), Vec::new);
        let inside = root.join(b"d00").join(b"f00");
        questions(&views, &view, [inside.clone()].into_iter());
        let mut table = lock(&view.table);
        table.mark_walked(&inside);
        table.leave_walks(&[]);
        assert!(table.has(&inside), "it is not much");
        let (look, folder) = (views.look_in(&None, &crate::policy::Open), root.join(b"many"));
        let many = (0..20_001).map(|number| folder.join(format!("f{number}").as_bytes()));
        std::fs::create_dir(root.join(b"many").to_string()).unwrap();
        let many: Vec<TreePath> = many.inspect(|path| std::fs::write(path.to_string(), b"").unwrap()).collect();
        table.add_all(many, &look);
        table.leave_walks(&[root.join(b"d00")]);
        assert!(table.has(&inside), "the command is about it");
        table.leave_walks(&[root.join(b"many")]);
        assert!(!table.has(&inside) && table.len() > 20_000);
    }
}

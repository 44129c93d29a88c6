//! The mounts of this machine, as the kernel lists them: which file system is seen where, and how.

mod subvolumes;

use base::TreePath;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex};
use wire::lock;

/// Longest list that is read, in bytes.
const LIST_BYTES_MAX: usize = 8 << 20;
/// The list of this process's mount namespace.
const OWN_LIST: &str = "/proc/self/mountinfo";

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    number: u64,
    parent: u64,
    /// Where it is.
    pub at: TreePath,
    /// Device number of its file system, as `major:minor`.
    pub device: Vec<u8>,
    /// The folder of the file system that is seen.
    pub folder: Vec<u8>,
    /// How it is mounted, separated by commas.
    pub options: Vec<u8>,
    /// Kind of its file system.
    pub kind: Vec<u8>,
    /// How the file system is mounted, whoever shows it.
    super_options: Vec<u8>,
}

/// What a task may change, by path.
#[derive(Debug)]
pub(crate) struct Places<'a> {
    /// Folders and files: whatever is mounted there, above or beneath matters.
    pub trees: &'a [&'a TreePath],
    /// Folders in which it has its own files only.
    pub folders: &'a [TreePath],
}

impl Mount {
    /// Whether it, or its file system, was mounted with this option.
    fn has(&self, option: &str) -> bool {
        let options = self.options.split(|byte| *byte == b',').chain(self.super_options.split(|byte| *byte == b','));
        options.into_iter().any(|other| other == option.as_bytes())
    }

    /// Where it shows this folder of its file system, if it does.
    fn shows(&self, folder: &[u8]) -> Option<TreePath> {
        let beneath = match &self.folder[..] {
            b"/" => folder.strip_prefix(b"/")?,
            own => folder.strip_prefix(own)?,
        };
        match beneath {
            b"" => Some(self.at.clone()),
            _ if &self.folder[..] == b"/" => TreePath::parse(
                &[self.at.as_bytes().strip_suffix(b"/").unwrap_or(self.at.as_bytes()), b"/", beneath].concat(),
            ),
            _ => TreePath::parse(&[self.at.as_bytes(), beneath].concat()).filter(|_| beneath.starts_with(b"/")),
        }
    }

    /// Whether it is of no matter for a task: what each machine has of its own, names of namespaces, what is mounted at
    /// first use only.
    fn is_irrelevant(&self) -> bool {
        self.is_machines_own() || matches!(&self.kind[..], b"nsfs" | b"autofs")
    }

    /// Whether it is in a folder that every worker has of its own.
    pub fn is_machines_own(&self) -> bool {
        matches!(self.at.components().next(), Some(b"proc" | b"sys" | b"dev"))
    }
}

/// Reads a list: that of another process, say.
pub(crate) fn read(path: &str) -> io::Result<Vec<Mount>> {
    let text = std::fs::read(path)?;
    if text.len() > LIST_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(parse(&text))
}

/// The mounts that can be seen in this process's mount namespace, parents before what is in them. Asks the kernel whether
/// there is anything new, and reads the list only then.
pub(crate) fn visible() -> io::Result<Arc<[Mount]>> {
    static KNOWN: Mutex<Option<(File, Arc<[Mount]>)>> = Mutex::new(None);
    let mut known = lock(&KNOWN);
    if let Some((watched, mounts)) = &*known
        && !has_changed(watched)
    {
        return Ok(mounts.clone());
    }
    // What changes after this is told by the next poll.
    let watched = File::open(OWN_LIST)?;
    let mounts: Arc<[Mount]> = uncovered(&read(OWN_LIST)?).into();
    *known = Some((watched, mounts.clone()));
    Ok(mounts)
}

fn has_changed(watched: &File) -> bool {
    let mut polled = [PollFd::new(watched, PollFlags::PRI)];
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) != Ok(0)
}

/// Reads what the kernel writes: `36 35 98:0 /folder /at options fields - kind source options`.
pub(crate) fn parse(text: &[u8]) -> Vec<Mount> {
    let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse().ok();
    let mount = |line: &[u8]| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let [id, parent, device, folder, at, options, rest @ ..] = &fields[..] else { return None };
        let mut rest = rest.iter().skip_while(|field| **field != b"-").skip(1);
        let kind = rest.next()?;
        Some(Mount {
            number: number(id)?,
            parent: number(parent)?,
            at: TreePath::parse(&unescape(at))?,
            device: device.to_vec(),
            folder: folder.to_vec(),
            options: options.to_vec(),
            kind: kind.to_vec(),
            super_options: rest.nth(1).map(|options| options.to_vec()).unwrap_or_default(),
        })
    };
    text.split(|byte| *byte == b'\n').filter_map(mount).collect()
}

/// The mounts among `mounts` that a task about these places must be shown, and the subvolumes there; none if all of it is on the file
/// system of the root. The error says why it cannot be shown them; `moves`: the program is for taking away and moving.
pub(crate) fn shown(mounts: &[Mount], places: &Places<'_>, moves: bool) -> Result<Vec<base::Mount>, String> {
    let mut shown = relevant(mounts, places)?;
    let subvolumes = subvolumes::of(mounts, places);
    // Elsewhere it is a mount, which stays where it is.
    if let Some(one) = subvolumes.first().filter(|_| moves) {
        return Err(format!("{} is a subvolume, which can be moved or removed on this machine only", one.at));
    }
    shown.extend(subvolumes);
    shown.sort_by(|one, other| one.at.cmp(&other.at));
    shown.dedup_by(|one, other| one.at == other.at);
    is_not_too_many(shown.first().map(|mount| &mount.at), shown.len())?;
    Ok(shown)
}

/// The mount that shows what is at `place`.
fn holder<'a>(mounts: &'a [Mount], place: &TreePath) -> Option<&'a Mount> {
    let holders = mounts.iter().filter(|mount| place.is_within(&mount.at));
    holders.max_by_key(|mount| mount.at.as_bytes().len())
}

fn is_not_too_many(first: Option<&TreePath>, count: usize) -> Result<(), String> {
    let max = base::mount::MOUNTS_MAX;
    match first.filter(|_| count > max) {
        Some(first) => {
            let others = count - 1;
            Err(format!("{first} and {others} other mounts are in what it may change (more than {max})"))
        }
        None => Ok(()),
    }
}

fn relevant(mounts: &[Mount], places: &Places<'_>) -> Result<Vec<base::Mount>, String> {
    let holders = places.trees.iter().copied().chain(places.folders).filter_map(|place| holder(mounts, place));
    let is_beneath = |mount: &&Mount| places.trees.iter().any(|place| mount.at.is_within(place));
    let mut shown: Vec<&Mount> = holders.chain(mounts.iter().filter(is_beneath)).collect();
    shown.sort_by(|a, b| a.at.cmp(&b.at));
    shown.dedup_by(|a, b| a.at == b.at);
    let flagged = |mount: &Mount| mount.has("ro") || mount.has("noexec");
    shown.retain(|mount| !mount.is_irrelevant() && (!mount.at.is_root() || flagged(mount)));
    is_not_too_many(shown.first().map(|mount| &mount.at), shown.len())?;
    if let Some(mount) = shown.iter().find(|mount| mount.has("nosymfollow")) {
        return Err(format!("no links are followed on {}, which is so by its mount", mount.at));
    }
    if let Some((one, other)) = seen_twice(mounts, places) {
        return Err(format!(
            "{one} and {other} are one folder of a file system, and what is done to one shows in the other"
        ));
    }
    let of =
        |mount: &Mount| base::Mount { at: mount.at.clone(), read_only: mount.has("ro"), no_exec: mount.has("noexec") };
    Ok(shown.into_iter().map(of).collect())
}

/// Two paths in what a task may change that show the same folder of a file system, by bind mounts.
fn seen_twice(mounts: &[Mount], places: &Places<'_>) -> Option<(TreePath, TreePath)> {
    // What is about the whole tree counts for nothing in particular.
    let trees: Vec<&TreePath> = places.trees.iter().copied().filter(|place| !place.is_root()).collect();
    let near = |path: &TreePath| trees.iter().any(|place| path.is_within(place) || place.is_within(path));
    let bound = mounts.iter().filter(|mount| !mount.at.is_root() && near(&mount.at) && !mount.is_irrelevant());
    bound.into_iter().find_map(|bound| {
        let others = mounts.iter().filter(|other| other.number != bound.number && other.device == bound.device);
        let shown = others.filter_map(|other| Some((other, other.shows(&bound.folder)?)));
        // What another mount covers is not seen there.
        let is_seen = |(other, path): &(&Mount, TreePath)| {
            let covers =
                |mount: &&Mount| path.is_within(&mount.at) && mount.at.as_bytes().len() > other.at.as_bytes().len();
            *path != bound.at && near(path) && !mounts.iter().any(|mount| covers(&mount))
        };
        shown.into_iter().find(is_seen).map(|(_, path)| (path, bound.at.clone()))
    })
}

/// Spaces, tabs, line feeds and backslashes are written as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits =
            after.get(..3).filter(|digits| *first == b'\\' && digits.iter().all(|digit| (b'0'..b'8').contains(digit)));
        match digits {
            Some(digits) => {
                plain.push(digits.iter().fold(0u8, |value, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')));
                rest = &after[3..];
            }
            None => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    plain
}

/// Those that no later mount covers.
fn uncovered(all: &[Mount]) -> Vec<Mount> {
    let mut children: HashMap<u64, Vec<&Mount>> = HashMap::new();
    for mount in all {
        children.entry(mount.parent).or_default().push(mount);
    }
    let known = |number: u64| all.iter().any(|mount| mount.number == number);
    let root = all.iter().find(|mount| mount.at.is_root() && !known(mount.parent));
    let mut found = Vec::new();
    let mut open: Vec<&Mount> = root.into_iter().collect();
    // Bounded even if the numbers make no sense.
    let mut steps = 0..=all.len();
    while let Some(mount) = open.pop().filter(|_| steps.next().is_some()) {
        let within = children.get(&mount.number).map_or(&[][..], Vec::as_slice);
        match within.iter().find(|child| child.at == mount.at) {
            Some(above) => open.push(above),
            None => {
                found.push(mount.clone());
                open.extend(within);
            }
        }
    }
    found.sort_by(|a, b| a.at.cmp(&b.at));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "21 1 254:0 / / rw,relatime - ext4 /dev/root rw\n\
        23 21 0:21 / /home ro,noexec shared:3 - tmpfs t rw\n\
        24 23 0:22 / /home/a\\040b rw - tmpfs t rw\n\
        25 24 0:23 / /home/a\\040b/x rw - tmpfs t rw\n\
        26 24 0:24 /sub /home/a\\040b rw - ext4 /dev/b rw\n\
        27 21 0:4 / /dev/shm rw - tmpfs t rw\n";

    #[test]
    fn what_is_covered_is_not_seen() {
        let seen = uncovered(&parse(LIST.as_bytes()));
        let of = |mount: &Mount| (mount.at.to_string(), String::from_utf8_lossy(&mount.device).into_owned());
        let seen_at: Vec<_> = seen.iter().map(of).collect();
        let want = [("/", "254:0"), ("/dev/shm", "0:4"), ("/home", "0:21"), ("/home/a b", "0:24")];
        assert_eq!(seen_at, want.map(|(at, device)| (at.to_owned(), device.to_owned())));
        assert!(seen[2].has("ro") && seen[2].has("noexec") && !seen[3].has("ro"));
        assert!(seen[1].is_machines_own() && !seen[2].is_machines_own());
    }

    #[test]
    fn the_own_list_is_read_again_when_it_changes() {
        let first = visible().unwrap();
        assert!(first[0].at.is_root());
        assert!(Arc::ptr_eq(&first, &visible().unwrap()) || !first.is_empty(), "others may mount at any time");
    }

    #[test]
    fn a_folder_that_is_seen_twice() {
        let path = |text: &str| TreePath::parse(text.as_bytes()).unwrap();
        let list = "21 1 254:0 / / rw - ext4 /dev/root rw\n22 21 254:0 /w/a /w/b rw - ext4 /dev/root rw\n\
            23 21 254:0 /data/home /home rw - ext4 /dev/root rw\n24 21 0:9 /@ /x rw - btrfs d rw\n25 21 0:9 /@y /x/y rw - btrfs d rw\n";
        let seen = uncovered(&parse(list.as_bytes()));
        let twice = |place: &str| seen_twice(&seen, &Places { trees: &[&path(place)], folders: &[] });
        assert_eq!(twice("/w"), Some((path("/w/a"), path("/w/b"))));
        assert_eq!((twice("/home/u"), twice("/x"), twice("/w/c"), twice("/")), (None, None, None, None));
    }

    #[test]
    fn a_task_is_shown_what_is_in_its_reach() {
        let path = |text: &str| TreePath::parse(text.as_bytes()).unwrap();
        let seen = uncovered(&parse(LIST.as_bytes()));
        let shown = |trees: &[&str], folders: &[&str]| {
            let trees: Vec<TreePath> = trees.iter().map(|text| path(text)).collect();
            let folders: Vec<TreePath> = folders.iter().map(|text| path(text)).collect();
            let places = Places { trees: &trees.iter().collect::<Vec<_>>(), folders: &folders };
            let shown = relevant(&seen, &places).unwrap();
            shown.into_iter().map(|mount| (mount.at.to_string(), mount.read_only)).collect::<Vec<_>>()
        };
        assert_eq!(shown(&["/srv/project"], &["/tmp"]), []);
        assert_eq!(shown(&["/home/u/project"], &["/tmp"]), [("/home".to_owned(), true)]);
        assert_eq!(shown(&["/home"], &[]), [("/home".to_owned(), true), ("/home/a b".to_owned(), false)]);
        assert_eq!(
            shown(&["/home/a b/x/y"], &["/home"]),
            [("/home".to_owned(), true), ("/home/a b".to_owned(), false)]
        );
        assert_eq!(shown(&["/srv"], &["/home"]), [("/home".to_owned(), true)], "others' mounts in /tmp do not matter");
        let many = (0..20).map(|at| format!("{} 1 0:{at} / /m/{at} rw - tmpfs t rw\n", at + 2));
        let many = format!("1 0 0:0 / / ro - ext4 t rw\n{}", many.collect::<String>());
        let (many, all) = (uncovered(&parse(many.as_bytes())), [&path("/m")]);
        assert!(relevant(&many, &Places { trees: &all, folders: &[] }).is_err());
        let none = relevant(&many, &Places { trees: &[], folders: &[path("/tmp")] }).unwrap();
        assert!(none.len() == 1 && none[0].at.is_root() && none[0].read_only);
    }

    #[test]
    fn lists_that_make_no_sense_end() {
        assert!(uncovered(&parse(b"1 1 0:1 / / rw - a b c\n2 2 0:1 / / rw - a b c\n")).is_empty());
        assert!(parse(b"\n1 2\nx y 0:1 / / rw - a b c\n1 2 0:1 / relative rw - a b c\n").is_empty());
    }
}

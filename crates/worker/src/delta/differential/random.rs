//! Random operations, from a seed that replays them.

use super::*;
use rustix::fs::UTIME_OMIT;

/// Numbers from a seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    fn pick<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.roll(of.len() as u64) as usize]
    }

    fn path(&mut self) -> PathBuf {
        let depth = 1 + self.roll(3);
        (0..depth).map(|_| self.pick(&["a", "b", "c"])).collect()
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = [0, 1, 10, 5000, 70_000][self.roll(5) as usize];
        let letter = b'a' + self.roll(26) as u8;
        vec![letter; len]
    }
}

/// One operation, with everything chosen.
#[derive(Clone, Debug)]
enum Op {
    Write(PathBuf, Vec<u8>),
    Append(PathBuf, Vec<u8>),
    Patch(PathBuf, u64, Vec<u8>),
    Truncate(PathBuf, u64),
    Touch(PathBuf, i64),
    Chmod(PathBuf, u32),
    Chown(PathBuf, u32, u32),
    Rename(PathBuf, PathBuf),
    Exchange(PathBuf, PathBuf),
    Link(PathBuf, PathBuf),
    Symlink(PathBuf, String),
    Unlink(PathBuf),
    RemoveDir(PathBuf),
    RemoveAll(PathBuf),
    MakeDir(PathBuf),
    Fifo(PathBuf),
    SetXattr(PathBuf, String, Vec<u8>),
    RemoveXattr(PathBuf, String),
    OpenOnly(PathBuf),
}

impl Op {
    fn choose(dice: &mut Dice) -> Self {
        let path = dice.path();
        match dice.roll(28) {
            0 | 1 => Self::Write(path, dice.bytes()),
            2 => Self::Append(path, dice.bytes()),
            3 => Self::Patch(path, dice.roll(6000), dice.bytes()),
            4 => Self::Truncate(path, dice.roll(8000)),
            5 => Self::Touch(path, 1_100_000_000 + dice.roll(1000) as i64),
            6 => Self::Chmod(path, [0o644, 0o700, 0o755, 0o1777, 0o600][dice.roll(5) as usize]),
            7 => Self::Chown(path, dice.roll(3) as u32, dice.roll(3) as u32),
            8..=13 => Self::Rename(path, dice.path()),
            14 => Self::Exchange(path, dice.path()),
            15 => Self::Link(path, dice.path()),
            16 => Self::Symlink(path, dice.pick(&["a", "../b", "/nowhere"]).to_owned()),
            17 => Self::Unlink(path),
            18 => Self::RemoveDir(path),
            19 | 20 => Self::RemoveAll(path),
            21..=24 => Self::MakeDir(path),
            25 => Self::Fifo(path),
            26 => Self::SetXattr(
                path,
                format!("user.{}", dice.pick(&["a", "b"])),
                dice.bytes()[..].iter().take(9).copied().collect(),
            ),
            _ if dice.roll(2) == 0 => Self::RemoveXattr(path, "user.a".to_owned()),
            _ => Self::OpenOnly(path),
        }
    }

    /// Does it beneath `root`. Whether it worked is part of what must agree.
    fn run(&self, root: &Path) -> bool {
        let at = |path: &PathBuf| root.join(path);
        let is_file = |path: &PathBuf| at(path).symlink_metadata().is_ok_and(|meta| meta.is_file());
        let is_link = |path: &PathBuf| at(path).symlink_metadata().is_ok_and(|meta| meta.is_symlink());
        let absent = |path: &PathBuf| at(path).symlink_metadata().is_err();
        let open = |path: &PathBuf| File::options().read(true).write(true).open(at(path));
        // An overlay gives a file whose attributes changed a new mtime when it is then opened for writing.
        let open_only = |path: &PathBuf| {
            let before = at(path).symlink_metadata().ok().and_then(|meta| meta.modified().ok());
            is_file(path) && open(path).is_ok_and(|file| before.is_some_and(|time| file.set_modified(time).is_ok()))
        };
        use std::os::unix::fs::FileExt;
        match self {
            Self::Write(path, bytes) => (is_file(path) || absent(path)) && std::fs::write(at(path), bytes).is_ok(),
            Self::Append(path, bytes) | Self::Patch(path, _, bytes) if bytes.is_empty() => open_only(path),
            Self::Append(path, bytes) => {
                let file = || File::options().append(true).open(at(path));
                is_file(path) && file().is_ok_and(|mut file| io::Write::write_all(&mut file, bytes).is_ok())
            }
            Self::Patch(path, offset, bytes) => {
                is_file(path) && open(path).is_ok_and(|file| file.write_all_at(bytes, *offset).is_ok())
            }
            Self::Truncate(path, len) => is_file(path) && open(path).is_ok_and(|file| file.set_len(*len).is_ok()),
            Self::Touch(path, secs) => {
                let time = Timespec { tv_sec: *secs, tv_nsec: 0 };
                let omitted = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
                let times = match secs % 3 {
                    0 => Timestamps { last_access: time, last_modification: omitted },
                    1 => Timestamps { last_access: omitted, last_modification: time },
                    _ => Timestamps { last_access: time, last_modification: time },
                };
                rustix::fs::utimensat(CWD, at(path), &times, AtFlags::SYMLINK_NOFOLLOW).is_ok()
            }
            Self::Chmod(path, mode) => {
                let permissions = std::fs::Permissions::from_mode(*mode);
                !is_link(path) && std::fs::set_permissions(at(path), permissions).is_ok()
            }
            Self::Chown(path, uid, gid) => {
                let (uid, gid) = (Some(Uid::from_raw(*uid)), Some(Gid::from_raw(*gid)));
                rustix::fs::chownat(CWD, at(path), uid, gid, AtFlags::SYMLINK_NOFOLLOW).is_ok()
            }
            Self::Rename(from, to) => {
                let done = std::fs::rename(at(from), at(to)).is_ok();
                // An overlay's rename that fails can change the mtimes of directories all the same.
                let tried = [from, to].into_iter().filter_map(|path| path.parent());
                let directory = |path: &&Path| root.join(path).symlink_metadata().is_ok_and(|meta| meta.is_dir());
                tried.filter(|_| !done).filter(directory).for_each(|path| {
                    Self::Touch(path.to_owned(), 1_200_000_000).run(root);
                });
                done
            }
            Self::Exchange(from, to) => {
                let swap = || rustix::fs::renameat_with(CWD, at(from), CWD, at(to), RenameFlags::EXCHANGE);
                swap().is_ok()
            }
            Self::Link(from, to) => std::fs::hard_link(at(from), at(to)).is_ok(),
            Self::Symlink(path, target) => std::os::unix::fs::symlink(target, at(path)).is_ok(),
            Self::Unlink(path) => std::fs::remove_file(at(path)).is_ok(),
            Self::RemoveDir(path) => std::fs::remove_dir(at(path)).is_ok(),
            Self::RemoveAll(path) => std::fs::remove_dir_all(at(path)).is_ok(),
            Self::MakeDir(path) => std::fs::create_dir(at(path)).is_ok(),
            Self::Fifo(path) => rustix::fs::mkfifoat(CWD, at(path), rustix::fs::Mode::from_raw_mode(0o640)).is_ok(),
            Self::SetXattr(path, name, value) => {
                let set = || rustix::fs::setxattr(at(path), name.as_str(), value, rustix::fs::XattrFlags::empty());
                (is_file(path) || at(path).is_dir() && !is_link(path)) && set().is_ok()
            }
            Self::RemoveXattr(path, name) => !is_link(path) && rustix::fs::removexattr(at(path), name.as_str()).is_ok(),
            Self::OpenOnly(path) => open_only(path),
        }
    }
}

/// Random operations from `seed`: `before` of them make the tree, `during` are the task's.
pub(super) fn random_case(seed: u64, before: usize, during: usize, privileged: bool) {
    let mut dice = Dice(seed);
    let mut setup: Vec<Op> = (0..before).map(|_| Op::choose(&mut dice)).collect();
    let ops: Vec<Op> = (0..during).map(|_| Op::choose(&mut dice)).collect();
    // Without privilege directories of the lower layer cannot be renamed, and programs copy them instead.
    let moves = |op: &Op| matches!(op, Op::Rename(..) | Op::Exchange(..) | Op::Link(..));
    let ops: Vec<Op> = ops.into_iter().filter(|op| privileged || !moves(op)).collect();
    setup.retain(|op| privileged || !matches!(op, Op::Link(..)));
    let new = if privileged { Stand::new } else { Stand::unprivileged };
    let stand = new(|root: &Path| {
        for name in ["a", "b", "a/a", "a/b", "b/c"] {
            std::fs::create_dir(root.join(name)).expect("makes");
        }
        for op in &setup {
            op.run(root);
        }
    });
    println!("seed {seed}");
    for op in &ops {
        println!("  {}", format!("{op:?}").chars().take(80).collect::<String>());
    }
    stand.check(|root| {
        let worked: Vec<bool> = ops.iter().map(|op| op.run(root)).collect();
        let log = root.parent().expect("a folder").join("worked");
        match std::fs::read_to_string(&log) {
            Ok(first) => assert_eq!(first, format!("{worked:?}"), "{ops:#?}"),
            Err(_) => std::fs::write(&log, format!("{worked:?}")).expect("writes"),
        }
    });
}

#[test]
fn random_operations() {
    if !is_root("random operations") {
        return;
    }
    let count: u64 = std::env::var("GLEANER_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let first: u64 = std::env::var("GLEANER_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    for seed in first..first + count {
        random_case(seed, 30, 25, true);
    }
}

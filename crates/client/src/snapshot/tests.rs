//! The snapshot over real files: what is bound, and that nothing is ever bound torn.

use super::*;
use crate::policy::Open;
use crate::recipes::tests::FixedCutter;
use base::codec::Encode;
use base::{EAGER_FILE_BYTES_MAX, LAZY_PIECE_BYTES, NodeKind, Piece, Recipe, Xattr};
use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

struct Tree {
    folder: tempfile::TempDir,
    snapshot: Snapshot,
}

impl Tree {
    fn new() -> Self {
        Self::cut_by(Arc::new(FixedCutter(64 << 10)))
    }

    fn cut_by(cutter: Arc<dyn Cutter>) -> Self {
        let snapshot = Snapshot::new(cutter, Arc::new(Recipes::new(1 << 20)), [7; 32]);
        Self { folder: tempfile::tempdir().unwrap(), snapshot }
    }

    fn path(&self, name: &str) -> TreePath {
        use std::os::unix::ffi::OsStrExt;
        let root = fs::canonicalize(self.folder.path()).unwrap();
        TreePath::parse(root.as_os_str().as_bytes()).unwrap().resolve(name.as_bytes()).unwrap()
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn bind(&self, name: &str) -> Binding {
        self.snapshot.bind(&self.path(name), &Open).unwrap().binding
    }

    fn content(&self, name: &str) -> Content {
        match self.bind(name) {
            Binding::File { content, .. } => content,
            other => panic!("not a file: {other:?}"),
        }
    }
}

#[test]
fn every_kind_of_file() {
    let tree = Tree::new();
    fs::write(tree.at("empty"), b"").unwrap();
    fs::write(tree.at("small"), b"hello").unwrap();
    fs::write(tree.at("large"), vec![7u8; 200_000]).unwrap();
    symlink("../x y", tree.at("link")).unwrap();
    rustix::fs::mknodat(CWD, tree.at("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    assert_eq!(tree.content("empty"), Content::Empty);
    assert_eq!(tree.content("small"), Content::Block(Digest::of(b"hello")));
    assert!(matches!(tree.content("large"), Content::Recipe(_)));
    assert!(matches!(tree.bind("link"), Binding::Symlink { target, .. } if target == b"../x y"));
    assert!(matches!(tree.bind("pipe"), Binding::Special { .. }));
    assert_eq!(tree.bind("none"), Binding::Absent);
    let Binding::Directory { listing: Some(digest), .. } = tree.bind(".") else { panic!("no listing") };
    let listing = Listing::from_bytes(&tree.snapshot.read_block(&digest).unwrap().unwrap()).unwrap();
    let kinds: Vec<_> = listing.entries.iter().map(|entry| (entry.name.as_slice(), entry.kind)).collect();
    let file = NodeKind::File;
    let want: [(&[u8], _); 5] =
        [(b"empty", file), (b"large", file), (b"link", NodeKind::Symlink), (b"pipe", NodeKind::Fifo), (b"small", file)];
    assert_eq!(kinds, want);
}

#[test]
fn a_path_through_a_link_is_absent() {
    let tree = Tree::new();
    fs::create_dir(tree.at("real")).unwrap();
    fs::write(tree.at("real/file"), b"x").unwrap();
    symlink("real", tree.at("link")).unwrap();
    assert_eq!(tree.bind("link/file"), Binding::Absent);
    assert_eq!(tree.bind("real/file/beneath"), Binding::Absent);
}

#[test]
fn the_workers_own_folders_are_empty() {
    let tree = Tree::new();
    for name in ["/proc", "/sys", "/dev"] {
        let Binding::Directory { listing: Some(digest), attr, .. } = tree.bind(name) else { panic!("{name}") };
        assert_eq!(tree.snapshot.read_block(&digest).unwrap().unwrap(), Listing::default().to_bytes());
        assert_eq!(attr.mtime, base::Time(0), "what changes by itself is not bound");
    }
    assert_eq!(tree.bind("/dev/null"), Binding::Absent);
}

#[test]
fn a_listing_on_a_file_system_that_hides_names_proves_nothing() {
    let tree = Tree::new();
    for odd in ["/proc/self/fdinfo", "/sys/kernel"] {
        let path = TreePath::parse(odd.as_bytes()).unwrap();
        let Ok(file) = open(&path, OFlags::PATH) else { continue };
        let place = tree.snapshot.places.of(&Stamp::of(&stamp::stat_open(&file).unwrap()), &file);
        assert!(!place.lists_all, "{odd}");
        assert!(tree.snapshot.odd_file_system(&path).is_some());
    }
}

#[test]
fn a_key_that_a_command_made_is_kept_back_as_any() {
    let tree = Tree::new();
    let key = format!("-----BEGIN {0}-----\n{1}\n-----END {0}-----\n", "PRIVATE KEY", "MIIEvQIBADANBgkqhkiG".repeat(8));
    fs::write(tree.at("key.txt"), &key).unwrap();
    let stamp = Stamp::of(&stat_at(tree.path("key.txt").as_bytes()).unwrap());
    pause_nanos(30_000_000);
    let content = Content::Block(Digest::of(key.as_bytes()));
    tree.snapshot.prime(&tree.path("key.txt"), stamp, Cut { content, recipe: None });
    assert!(matches!(tree.content("key.txt"), Content::Lazy(name) if !tree.snapshot.kept_back(&name).is_empty()));
}

#[test]
fn names_of_one_file_have_one_content_however_it_was_cut() {
    let tree = Tree::new();
    fs::write(tree.at("one"), vec![7u8; 200_000]).unwrap();
    fs::hard_link(tree.at("one"), tree.at("other")).unwrap();
    // Cut as the task that wrote it did.
    let piece = |len| Piece { block: Some(Digest([7; 32])), len };
    let recipe = Arc::new(Recipe { size: 200_000, pieces: vec![piece(150_000), piece(50_000)] });
    let content = Content::Recipe(Digest::of(&recipe.to_bytes()));
    let stamp = Stamp::of(&stat_at(tree.path("one").as_bytes()).unwrap());
    pause_nanos(30_000_000);
    tree.snapshot.prime(&tree.path("one"), stamp, Cut { content, recipe: Some(recipe.clone()) });
    assert_eq!((tree.content("other"), tree.content("one")), (content, content));
    // Cut here before it is known how the task did.
    fs::write(tree.at("one"), vec![8u8; 200_000]).unwrap();
    pause_nanos(30_000_000);
    let here = tree.content("other");
    let stamp = Stamp::of(&stat_at(tree.path("one").as_bytes()).unwrap());
    tree.snapshot.prime(&tree.path("one"), stamp, Cut { content, recipe: Some(recipe) });
    assert!(here != content && tree.content("one") == here);
    // Large, and open for writing: it may hold something else at the next look.
    let large = File::options().write(true).open(tree.at("one")).unwrap();
    large.set_len(EAGER_FILE_BYTES_MAX + 1).unwrap();
    large.write_all_at(&vec![1; EAGER_FILE_BYTES_MAX as usize], 1).unwrap();
    let lazy = tree.content("one");
    assert!(matches!(lazy, Content::Lazy(_)) && tree.content("other") == lazy);
    tree.snapshot.begin_look();
    assert!(tree.content("other") != lazy);
}

#[test]
fn hard_links_of_a_file_that_is_kept_back_have_one_content() {
    let tree = Tree::new();
    for (name, link) in [("one", "link of one"), ("other", "link of other")] {
        fs::write(tree.at(name), b"x").unwrap();
        fs::hard_link(tree.at(name), tree.at(link)).unwrap();
    }
    let keep_back = |name: &str| {
        let stat = stat_at(tree.path(name).as_bytes()).unwrap();
        let Binding::File { content: Content::Lazy(stamp), .. } =
            tree.snapshot.keep_back(&tree.path(name), &stat, Stamp::of(&stat))
        else {
            panic!("not a lazy file")
        };
        stamp
    };
    let [one, link, other] = ["one", "link of one", "other"].map(keep_back);
    assert_eq!(one, link, "a worker tells files apart by their contents, too");
    assert_ne!(one, other);
    assert_eq!(tree.snapshot.kept_back(&one), [tree.path("link of one"), tree.path("one")]);
}

/// A private key as text, put together here so that this file is none.
fn private_key() -> String {
    format!("-----BEGIN {0}-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END {0}-----\n", "PRIVATE KEY")
}

#[test]
fn what_holds_a_private_key_is_kept_back_by_whatever_name_and_way() {
    let tree = Tree::new();
    let name_of = |name: &str| match tree.content(name) {
        Content::Lazy(digest) => Some(digest).filter(|digest| !tree.snapshot.kept_back(digest).is_empty()),
        _ => None,
    };
    fs::write(tree.at("notes.txt"), private_key()).unwrap();
    fs::hard_link(tree.at("notes.txt"), tree.at("second")).unwrap();
    fs::write(tree.at("large"), format!("{}{}", private_key(), "x".repeat(EAGER_FILE_BYTES_MAX as usize))).unwrap();
    fs::write(tree.at("ca.pem"), private_key().replace("PRIVATE KEY", "CERTIFICATE")).unwrap();
    for name in ["notes.txt", "second", "large"] {
        let digest = name_of(name).unwrap_or_else(|| panic!("{name} is given"));
        assert!(matches!(tree.snapshot.read_piece(&digest, 0), Err(ReadError::UnknownStamp(_))), "{name}");
        assert_eq!(tree.snapshot.secret_at(&tree.path(name)), Some(Denial::Key), "{name}");
        let whole = fs::read(tree.at(name)).unwrap();
        assert!(tree.snapshot.read_block(&Digest::of(&whole)).unwrap().is_none(), "{name}: nor by its hash");
    }
    assert!(matches!(tree.content("ca.pem"), Content::Block(_)), "a certificate is no secret");
    // It is looked at again when it has changed, either way.
    fs::write(tree.at("ca.pem"), private_key()).unwrap();
    assert!(name_of("ca.pem").is_some());
    fs::write(tree.at("ca.pem"), "nothing").unwrap();
    assert!(matches!(tree.content("ca.pem"), Content::Block(_)));
}

#[test]
fn what_was_kept_back_can_be_lent_while_it_is_the_same() {
    let tree = Tree::new();
    fs::write(tree.at("key"), private_key()).unwrap();
    let Content::Lazy(name) = tree.content("key") else { panic!("given") };
    assert!(tree.snapshot.lend(&name));
    assert_eq!(tree.snapshot.read_piece(&name, 0).unwrap(), private_key().as_bytes());
    fs::write(tree.at("key"), format!("{}more", private_key())).unwrap();
    assert!(!tree.snapshot.lend(&name), "it is another one now");
    assert!(!tree.snapshot.lend(&Digest([1; 32])));
}

#[test]
fn what_a_hub_keeps_stays_here_wherever_its_folder_is() {
    let tree = Tree::new();
    fs::create_dir_all(tree.at("pool/hub/journal")).unwrap();
    wire::Key::load_or_create(&tree.at("pool/hub/hub.key")).unwrap();
    fs::write(tree.at("pool/hub/journal/1"), "of others").unwrap();
    fs::write(tree.at("pool/notes"), "mine").unwrap();
    let state = tree.path("pool/hub/journal/1");
    assert_eq!(tree.snapshot.secret_at(&state), Some(Denial::State));
    assert!(matches!(tree.content("pool/hub/journal/1"), Content::Lazy(_)));
    assert!(matches!(tree.content("pool/hub/hub.key"), Content::Lazy(_)));
    assert!(matches!(tree.content("pool/notes"), Content::Block(_)));
}

#[test]
fn user_attributes() {
    let tree = Tree::new();
    fs::write(tree.at("file"), b"x").unwrap();
    let file = File::open(tree.at("file")).unwrap();
    for (name, value) in [("user.b", "2"), ("user.a", "1"), ("user.overlay.opaque", "y")] {
        if rustix::fs::fsetxattr(&file, name, value.as_bytes(), rustix::fs::XattrFlags::empty()).is_err() {
            println!("SKIPPED: the temporary folder takes no user attributes");
            return;
        }
    }
    let Binding::File { xattrs, .. } = tree.bind("file") else { panic!("not a file") };
    let xattr = |name: &str, value: &str| Xattr { name: name.into(), value: value.into() };
    assert_eq!(xattrs, [xattr("user.a", "1"), xattr("user.b", "2")]);
    let (path, stat) = (tree.path("file"), stat_at(tree.path("file").as_bytes()).unwrap());
    let closed = tree.snapshot.keep_back(&path, &stat, Stamp::of(&stat));
    assert_eq!(closed.xattrs(), ["user.a", "user.b"].map(|name| Xattr::kept_back(name.into())), "names alone");
}

#[test]
fn blocks_and_recipes_can_be_read_again() {
    let tree = Tree::new();
    let bytes: Vec<u8> = (0..200_000u32).map(|number| (number / 1000) as u8).collect();
    fs::write(tree.at("large"), &bytes).unwrap();
    let Content::Recipe(digest) = tree.content("large") else { panic!("not cut") };
    tree.snapshot.sources.forget_blob(&digest);
    let recipe = Recipe::from_bytes(&tree.snapshot.read_block(&digest).unwrap().unwrap()).unwrap();
    let blocks = recipe.pieces.iter().map(|piece| tree.snapshot.read_block(&piece.block.unwrap()).unwrap().unwrap());
    assert_eq!(blocks.collect::<Vec<_>>().concat(), bytes);
    assert_eq!(tree.snapshot.read_block(&Digest::of(b"never told of")).unwrap(), None);
}

#[test]
fn a_block_is_read_from_a_copy_or_not_at_all() {
    let tree = Tree::new();
    fs::write(tree.at("one"), b"same").unwrap();
    fs::write(tree.at("two"), b"same").unwrap();
    let Content::Block(digest) = tree.content("one") else { panic!("not a block") };
    tree.content("two");
    fs::remove_file(tree.at("two")).unwrap();
    assert_eq!(tree.snapshot.read_block(&digest).unwrap().unwrap(), b"same"[..]);
    fs::write(tree.at("one"), b"else").unwrap();
    assert_eq!(tree.snapshot.read_block(&digest).unwrap().unwrap(), b"same"[..], "still at hand");
    tree.snapshot.let_go();
    let error = tree.snapshot.read_block(&digest).unwrap_err();
    assert!(matches!(&error, ReadError::ChangedUnderneath { .. }), "{error}");
}

#[test]
fn a_listing_that_was_dropped_is_made_again_or_known_to_be_gone() {
    let tree = Tree::new();
    let Binding::Directory { listing: Some(digest), .. } = tree.bind(".") else { panic!("no listing") };
    tree.snapshot.sources.forget_blob(&digest);
    assert!(tree.snapshot.read_block(&digest).unwrap().is_some());
    tree.snapshot.sources.forget_blob(&digest);
    fs::write(tree.at("new"), b"").unwrap();
    assert!(matches!(tree.snapshot.read_block(&digest), Err(ReadError::ChangedUnderneath { .. })));
}

#[test]
fn a_listing_is_made_once_for_a_state_of_its_directory() {
    let tree = Tree::new();
    fs::write(tree.at("old"), b"").unwrap();
    let listing = || match tree.bind(".") {
        Binding::Directory { listing: Some(digest), .. } => digest,
        other => panic!("no listing: {other:?}"),
    };
    let known = |digest| {
        let stamp = Stamp::of(&stat_at(tree.path(".").as_bytes()).unwrap());
        tree.snapshot.sources.listing(&tree.path("."), &stamp) == Some(digest)
    };
    let first = listing();
    pause_nanos(50_000_000);
    assert!(listing() == first && known(first));
    tree.snapshot.sources.forget_blob(&first);
    assert!(listing() == first && tree.snapshot.read_block(&first).unwrap().is_some(), "its bytes are there again");
    fs::write(tree.at("new"), b"").unwrap();
    let second = listing();
    let names = tree.snapshot.read_listing(&second).unwrap().entries.into_iter().map(|entry| entry.name);
    assert_eq!(names.collect::<Vec<_>>(), [b"new", b"old"]);
}

#[test]
fn large_files_are_read_piece_by_piece_while_they_stay() {
    let tree = Tree::new();
    let size = EAGER_FILE_BYTES_MAX + 10;
    let file = File::options().read(true).write(true).create(true).truncate(true).open(tree.at("big")).unwrap();
    file.write_all_at(&vec![1; size as usize], 0).unwrap();
    file.write_all_at(b"end", size - 3).unwrap();
    let Content::Lazy(stamp) = tree.content("big") else { panic!("hashed") };
    let last = size / LAZY_PIECE_BYTES;
    let piece = tree.snapshot.read_piece(&stamp, last).unwrap();
    assert_eq!((piece.len() as u64, &piece[piece.len() - 3..]), (size % LAZY_PIECE_BYTES, &b"end"[..]));
    assert_eq!(tree.snapshot.read_piece(&stamp, 0).unwrap().len() as u64, LAZY_PIECE_BYTES);
    assert!(matches!(tree.snapshot.read_piece(&stamp, last + 1), Err(ReadError::NoSuchPiece { .. })));
    assert!(matches!(tree.snapshot.read_piece(&stamp, u64::MAX), Err(ReadError::NoSuchPiece { .. })));
    file.write_all_at(b"END", 0).unwrap();
    let error = tree.snapshot.read_piece(&stamp, 0).unwrap_err();
    assert!(error.to_string().contains("big was changed"), "{error}");
    assert!(matches!(tree.snapshot.read_piece(&Digest([1; 32]), 0), Err(ReadError::UnknownStamp(_))));
}

#[test]
fn a_large_file_is_read_on_when_its_name_is_taken_while_tasks_run() {
    let tree = Tree::new();
    let write = |name: &str, byte| fs::write(tree.at(name), vec![byte; EAGER_FILE_BYTES_MAX as usize + 1]).unwrap();
    write("big", 1);
    write("other", 2);
    let Content::Lazy(stamp) = tree.content("big") else { panic!("hashed") };
    let first = |index| tree.snapshot.read_piece(&stamp, index).map(|bytes| bytes[0]);
    assert_eq!(first(0).unwrap(), 1);
    let held = File::options().write(true).open(tree.at("big")).unwrap();
    fs::rename(tree.at("other"), tree.at("big")).unwrap();
    assert_eq!(first(1).unwrap(), 1, "another file took its name");
    fs::remove_file(tree.at("big")).unwrap();
    assert_eq!(first(2).unwrap(), 1, "its name is gone");
    held.write_all_at(b"new", 0).unwrap();
    assert!(matches!(first(3), Err(ReadError::ChangedUnderneath { .. })), "it was written to");
    tree.snapshot.let_go();
    assert!(matches!(first(0), Err(ReadError::ChangedUnderneath { .. })));
}

#[test]
fn holes_of_many_gigabytes_cost_nothing() {
    let tree = Tree::cut_by(Arc::new(crate::cutter::FileCutter));
    let file = File::create(tree.at("sparse")).unwrap();
    file.set_len(5 << 30).unwrap();
    file.write_all_at(b"middle", (4 << 30) + 1).unwrap();
    let Binding::File { attr, content: Content::Recipe(name), .. } = tree.bind("sparse") else { panic!("not hashed") };
    assert!(attr.size == 5 << 30 && attr.blocks < 1000);
    let recipe = Recipe::from_bytes(&tree.snapshot.read_block(&name).unwrap().unwrap()).unwrap();
    let held: u64 = recipe.pieces.iter().filter(|piece| piece.block.is_some()).map(|piece| piece.len).sum();
    assert!((6..1 << 20).contains(&held), "{held} bytes in blocks");
    // With more data than is hashed for that, it is read piece by piece as any other.
    file.write_all_at(&vec![1; 65 << 20], 0).unwrap();
    assert!(matches!(tree.content("sparse"), Content::Lazy(_)));
}

#[test]
fn what_a_task_made_is_not_hashed_again() {
    let tree = Tree::new();
    fs::write(tree.at("made"), b"bytes").unwrap();
    let stamp = Stamp::of(&stat_at(tree.path("made").as_bytes()).unwrap());
    let claim = Content::Block(Digest::of(b"what the committer says"));
    tree.snapshot.prime(&tree.path("made"), stamp, Cut { content: claim, recipe: None });
    let file = File::open(tree.at("made")).unwrap();
    if tree.snapshot.places.of(&stamp, &file).grain.multigrain {
        assert_eq!(tree.content("made"), claim);
    }
    fs::write(tree.at("made"), b"other").unwrap();
    assert_eq!(tree.content("made"), Content::Block(Digest::of(b"other")));
}

#[test]
fn long_paths() {
    let tree = Tree::new();
    let name = "n".repeat(250);
    let mut path = tree.path(".");
    let mut directory = open(&path, OFlags::PATH | OFlags::DIRECTORY).unwrap();
    for _ in 0..20 {
        rustix::fs::mkdirat(&directory, &name, Mode::RWXU).unwrap();
        directory = rustix::fs::openat(&directory, &name, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        path = path.join(name.as_bytes());
    }
    assert!(path.as_bytes().len() > 5000);
    assert!(matches!(tree.snapshot.bind(&path, &Open).unwrap().binding, Binding::Directory { listing: Some(_), .. }));
    assert_eq!(tree.snapshot.bind(&path.join(b"none"), &Open).unwrap().binding, Binding::Absent);
}

/// A writer fills a file with one byte after the other in large writes; what is bound must be all of one byte.
#[test]
fn never_torn() {
    const LEN: usize = 1 << 20;
    let tree = Tree::new();
    let snapshot = Snapshot::new(Arc::new(FixedCutter(LEN)), Arc::new(Recipes::new(1 << 20)), [7; 32]);
    fs::write(tree.at("file"), vec![0u8; LEN]).unwrap();
    let whole: HashSet<Digest> = (0..=255u8).map(|byte| Digest::of(&vec![byte; LEN])).collect();
    let stop = AtomicBool::new(false);
    let path = tree.path("file");
    let (mut bound, mut refused) = (0, 0);
    let writer_end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = File::options().write(true).open(tree.at("file")).unwrap();
            let mut byte = 0u8;
            // Ends by itself, too, if the other side has failed.
            while !stop.load(Ordering::Relaxed) && std::time::Instant::now() < writer_end {
                byte = byte.wrapping_add(1);
                file.write_all_at(&vec![byte; LEN], 0).unwrap();
                pause_nanos(if byte.is_multiple_of(4) { 12_000_000 } else { 300_000 });
            }
        });
        let end = std::time::Instant::now() + std::time::Duration::from_secs(2);
        while std::time::Instant::now() < end {
            match snapshot.bind(&path, &Open) {
                Ok(observed) => {
                    let Binding::File { content: Content::Block(digest), .. } = observed.binding else { panic!("cut") };
                    assert!(whole.contains(&digest), "bound torn");
                    bound += 1;
                }
                Err(BindError::KeepsChanging { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    println!("bound {bound} times, refused {refused} times");
    assert!(bound > 0);
}

#[test]
fn a_file_that_never_rests_is_refused_by_name() {
    let tree = Tree::new();
    fs::write(tree.at("log"), b"x").unwrap();
    /// Changes the file whenever it is read.
    struct Restless(std::path::PathBuf);
    impl Cutter for Restless {
        fn cut(&self, _file: &File, _size: u64, _sink: &mut dyn FnMut(Digest, bytes::Bytes)) -> std::io::Result<Cut> {
            fs::OpenOptions::new().append(true).open(&self.0)?.write_at(b"y", 0)?;
            Ok(Cut { content: Content::Empty, recipe: None })
        }
    }
    let snapshot = Snapshot::new(Arc::new(Restless(tree.at("log"))), Arc::new(Recipes::new(1000)), [7; 32]);
    let error = snapshot.bind(&tree.path("log"), &Open).unwrap_err();
    assert!(error.to_string().contains("/log keeps changing"), "{error}");
}

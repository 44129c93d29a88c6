//! The system's files as a source of blocks.

use super::{A, B, small};
use crate::chunk::cut;
use crate::system::{Expected, SystemFiles};
use crate::{BlockStore, ReadOutcome, RecipeIndex, read_content};
use base::codec::Encode;
use base::{Attr, Binding, Bound, Content, Digest, Recipe, Seq, TreePath};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// A file of every system that is longer than a block, as a client would name it.
fn program() -> Bound {
    let path = std::fs::canonicalize("/bin/sh").expect("every system has a shell");
    let file = File::open(&path).unwrap();
    let (size, mode) = (file.metadata().unwrap().size(), file.metadata().unwrap().mode() & 0o7777);
    let content = cut(&file, size, &mut |_, _| Ok::<_, ()>(())).unwrap().content;
    let path = TreePath::parse(path.to_str().unwrap().as_bytes()).unwrap();
    let attr = Attr { size, mode, ..Attr::default() };
    Bound { path, seq: Seq(1), binding: Binding::File { attr, content, xattrs: Vec::new() } }
}

fn name(bound: &Bound) -> Digest {
    let Binding::File { content: Content::Block(name) | Content::Recipe(name), .. } = bound.binding else {
        panic!("not a hashed file")
    };
    name
}

#[test]
fn a_named_file_that_is_here_is_put_into_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(BlockStore::open(folder.path(), small(64 << 20)).unwrap());
    let expected = Expected::new(Arc::new(SystemFiles::default()), store.clone(), A);
    let program = program();
    let missing = expected.expect([&program]);
    assert_eq!(missing.iter().map(|(name, _)| *name).collect::<Vec<_>>(), [name(&program)]);
    let object = expected.look(&name(&program)).expect("it is here");
    assert_eq!(Digest::of(&object), name(&program));
    let there = std::fs::read(std::str::from_utf8(program.path.as_bytes()).unwrap()).unwrap();
    let mut bytes = vec![0; there.len()];
    match program.binding {
        Binding::File { content: Content::Recipe(_), .. } => {
            let index = RecipeIndex::new(Recipe::from_bytes(&object).unwrap());
            let read = read_content(&store, A, &index, 0, &mut bytes).unwrap();
            assert_eq!(read, ReadOutcome::Filled(there.len()));
        }
        _ => bytes.copy_from_slice(&object),
    }
    assert!(bytes == there);
    assert_eq!(expected.expect([&program]), [], "it is in the store now");
    assert!(!store.contains(B, &name(&program)), "another tenant has shown nothing");
}

#[test]
fn other_contents_and_other_folders_are_not_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(BlockStore::open(folder.path(), small(64 << 20)).unwrap());
    let expected = Expected::new(Arc::new(SystemFiles::default()), store.clone(), A);
    let mut forged = program();
    let Binding::File { content, .. } = &mut forged.binding else { unreachable!() };
    *content = Content::Block(Digest::of(b"what nobody has"));
    assert_eq!(expected.expect([&forged]).len(), 1);
    assert!(!expected.find(&name(&forged)));
    assert_eq!(store.stats().blocks, 0, "nothing of an unlike file is kept");
    let mut elsewhere = program();
    elsewhere.path = TreePath::parse(b"/home/u/sh").unwrap();
    let mut shared = program();
    let Binding::File { attr, .. } = &mut shared.binding else { unreachable!() };
    attr.mode |= 0o020;
    assert_eq!(expected.expect([&elsewhere, &shared]), []);
}

#[test]
fn a_file_of_which_only_the_recipe_came_is_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let program = program();
    let path = std::str::from_utf8(program.path.as_bytes()).unwrap();
    let file = File::open(path).unwrap();
    let cut = cut(&file, file.metadata().unwrap().size(), &mut |_, _| Ok::<_, ()>(())).unwrap();
    let recipe = cut.recipe.expect("a shell is longer than a block");
    let pieces = Recipe::from_bytes(&recipe.encoded).unwrap().pieces;
    let blocks: Vec<Digest> = pieces.iter().filter_map(|piece| piece.block).collect();
    // Whoever has read the recipe asks for a block.
    for asked in [name(&program), blocks[1]] {
        let store = Arc::new(BlockStore::open(&folder.path().join(asked.to_string()), small(64 << 20)).unwrap());
        store.put(A, &recipe.encoded).unwrap();
        let expected = Expected::new(Arc::new(SystemFiles::default()), store.clone(), A);
        assert_eq!(expected.expect([&program]).len(), 1, "whoever sent it was cut off before its blocks");
        assert!(expected.look(&asked).is_some_and(|object| Digest::of(&object) == asked));
        assert!(blocks.iter().all(|block| store.contains(A, block)));
        assert!(blocks.iter().all(|block| !expected.find(block)), "it is looked for once");
    }
}

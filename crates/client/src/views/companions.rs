//! What will be wanted next by a program that uses a path for the first time: the libraries of a program, the headers that
//! a C file includes and those that they include, what Python has compiled of a module, the other files of a locale, the one
//! folder in a folder. They go along with the answer, and each saves a question. A wrong guess costs bytes, a missing one a question.

use super::closure::{self, disk};
use super::compilers;
use super::locales::LOCALE_FILES;
use crate::snapshot::disk::{entries_unseen, walk};
use base::{Binding, TreePath};
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::Read;

/// Headers of one C file.
const HEADERS_MAX: usize = 256;
/// Largest source file that is read, in bytes.
const SOURCE_BYTES_MAX: u64 = 1 << 20;
/// Folders above a file in which what it includes is looked for.
const FOLDERS_ABOVE: usize = 3;
/// Folders in each other that are followed while each is the only one.
const ONLY_FOLDERS_MAX: usize = 4;
/// Most files that one Python module is compiled to: for different optimizations.
const COMPILED_MAX: usize = 3;
const C_ENDINGS: [&str; 12] = [".c", ".h", ".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx", ".C", ".i", ".inc", ".tcc"];

/// The companions of a path that is `binding`, with all on the way to them, sorted. `has`: paths that are known, and whose
/// companions then are.
pub(super) fn companions(path: &TreePath, binding: &Binding, has: &dyn Fn(&TreePath) -> bool) -> Vec<TreePath> {
    let mut found = Found { has, paths: BTreeSet::new() };
    match binding {
        Binding::File { attr, .. } if attr.size == 0 => {}
        Binding::File { .. } if is_c(path) => found.headers(path),
        Binding::File { .. } if path.name().ends_with(b".py") => found.compiled(path),
        Binding::File { .. } if path.name().starts_with(b"LC_") => found.locale(path),
        // Who executes it needs its libraries next.
        Binding::File { attr, .. } if attr.mode & 0o111 != 0 => {
            return closure::closure(path, &TreePath::root(), &[]);
        }
        Binding::Directory { .. } => found.in_folder(path),
        _ => {}
    }
    found.paths.into_iter().collect()
}

fn is_c(path: &TreePath) -> bool {
    let name = path.name();
    // Headers of C++ have names without an ending.
    let is_plain_header = !name.contains(&b'.') && path.as_bytes().windows(13).any(|part| part == b"/include/c++/");
    is_plain_header || C_ENDINGS.iter().any(|ending| name.ends_with(ending.as_bytes()))
}

struct Found<'a> {
    has: &'a dyn Fn(&TreePath) -> bool,
    paths: BTreeSet<TreePath>,
}

impl Found<'_> {
    /// Adds a file and all on the way to it, and tells where it leads; `None` if it is known or no file.
    fn add(&mut self, path: &TreePath) -> Option<TreePath> {
        if (self.has)(path)
            || self.paths.contains(path)
            || !std::fs::metadata(disk(path)).is_ok_and(|meta| meta.is_file())
        {
            return None;
        }
        let paths = &mut self.paths;
        walk(path, &mut |path| {
            paths.insert(path.clone());
        })
    }

    /// What `source` includes, and what that includes.
    fn headers(&mut self, source: &TreePath) {
        let standard = compilers::header_folders();
        let mut queue = VecDeque::from([source.clone()]);
        let mut files = 0;
        while let Some(file) = queue.pop_front().filter(|_| files < HEADERS_MAX) {
            files += 1;
            let above: Vec<TreePath> =
                std::iter::successors(file.parent(), TreePath::parent).take(FOLDERS_ABOVE).collect();
            for Include { name, beside } in includes(&read(&file)) {
                let (first, then) = if beside { (&above, &standard) } else { (&standard, &above) };
                let places = first.iter().chain(then).filter_map(|folder| folder.resolve(&name));
                let header = places.filter(|path| !path.is_root()).find(|path| disk(path).is_file());
                queue.extend(header.and_then(|header| self.add(&header)));
            }
        }
    }

    /// What Python has compiled of a module.
    fn compiled(&mut self, module: &TreePath) {
        let Some(folder) = module.parent().map(|folder| folder.join(b"__pycache__")) else { return };
        let name = module.name();
        let stem = &name[..name.len() - 2];
        let is_of_it = |name: &[u8]| name.starts_with(stem) && name.ends_with(b".pyc");
        let names = entries_unseen(disk(&folder)).map(|(name, _)| name).filter(|name| is_of_it(name));
        for name in names.take(COMPILED_MAX) {
            self.add(&folder.join(&name));
        }
    }

    /// The other files of a locale: who sets one reads them all.
    fn locale(&mut self, file: &TreePath) {
        let Some(folder) = file.parent() else { return };
        for name in LOCALE_FILES.iter().filter_map(|name| folder.resolve(name.as_bytes())) {
            self.add(&name);
        }
    }

    /// A Python package's first module; the only folder in a folder, if there is nothing beside it.
    fn in_folder(&mut self, folder: &TreePath) {
        let first = folder.join(b"__init__.py");
        if self.add(&first).is_some() {
            return self.compiled(&first);
        }
        let mut inner = folder.clone();
        for _ in 0..ONLY_FOLDERS_MAX {
            let Some(name) = only_folder(&inner) else { return };
            inner = inner.join(&name);
            self.paths.insert(inner.clone());
        }
    }
}

/// The name of the folder that is all that a folder has.
fn only_folder(folder: &TreePath) -> Option<Vec<u8>> {
    let mut entries = entries_unseen(disk(folder));
    let (name, kind) = entries.next()?;
    (kind.is_dir() && entries.next().is_none()).then_some(name)
}

/// What a line includes, and whether it is looked for beside the file first.
#[derive(Debug, PartialEq, Eq)]
struct Include {
    name: Vec<u8>,
    beside: bool,
}

/// The lines of C that include something, whether or not the preprocessor will come to them.
fn includes(source: &[u8]) -> impl Iterator<Item = Include> {
    source.split(|byte| *byte == b'\n').filter_map(|line| {
        let directive = line.trim_ascii_start().strip_prefix(b"#")?.trim_ascii_start();
        let rest = directive.strip_prefix(b"include_next").or_else(|| directive.strip_prefix(b"include"))?;
        let (end, beside) = match rest.trim_ascii_start().first()? {
            b'<' => (b'>', false),
            b'"' => (b'"', true),
            _ => return None,
        };
        let name = rest.trim_ascii_start()[1..].split(|byte| *byte == end).next()?;
        (!name.is_empty()).then(|| Include { name: name.to_vec(), beside })
    })
}

fn read(path: &TreePath) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(file) = closure::open(path) {
        // A file that is cut short names fewer headers.
        let _ = File::take(file, SOURCE_BYTES_MAX).read_to_end(&mut bytes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Attr, Content, Digest};

    struct Tree {
        _folder: tempfile::TempDir,
        root: TreePath,
    }

    impl Tree {
        fn new(files: &[(&str, &str)]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let root =
                TreePath::parse(std::fs::canonicalize(folder.path()).unwrap().as_os_str().as_encoded_bytes()).unwrap();
            let tree = Self { _folder: folder, root };
            for (name, text) in files {
                let path = disk(&tree.at(name)).to_owned();
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            tree
        }

        fn at(&self, name: &str) -> TreePath {
            self.root.resolve(name.as_bytes()).unwrap()
        }

        fn companions(&self, name: &str, known: &[&str]) -> Vec<TreePath> {
            let attr = Attr { size: 1, mode: 0o644, ..Attr::default() };
            let binding = match disk(&self.at(name)).is_dir() {
                true => Binding::Directory { attr, listing: None, xattrs: Vec::new() },
                false => Binding::File { attr, content: Content::Block(Digest::of(b"")), xattrs: Vec::new() },
            };
            companions(&self.at(name), &binding, &|path| known.iter().any(|name| self.at(name) == *path))
        }
    }

    #[test]
    fn lines_that_include() {
        let source = b"#include <a.h>\n  #  include \"b/c.h\" // so\n#include MACRO\n#define include <d.h>\nint x;\n\
                       #include_next <e.h>\n#include\n#include <";
        let found: Vec<(String, bool)> =
            includes(source).map(|include| (String::from_utf8(include.name).unwrap(), include.beside)).collect();
        let expected =
            [("a.h", false), ("b/c.h", true), ("e.h", false)].map(|(name, beside)| (name.to_owned(), beside));
        assert_eq!(found, expected);
    }

    #[test]
    fn headers_and_their_headers_once() {
        let tree = Tree::new(&[
            (
                "src/main.c",
                "#include \"own.h\"\n#include <lib/api.h>\n#include \"none.h\"\n#include \"../src/main.c\"\n",
            ),
            ("src/own.h", "#include \"known.h\"\n"),
            ("src/known.h", "#include \"hidden.h\"\n"),
            ("src/hidden.h", ""),
            ("lib/api.h", "#include \"detail.h\"\n#include <lib/api.h>\n"),
            ("lib/detail.h", "#include <stdio.h>\n"),
        ]);
        let found = tree.companions("src/main.c", &["src/known.h"]);
        for name in ["src/own.h", "lib/api.h", "lib/detail.h", "lib"] {
            assert!(found.contains(&tree.at(name)), "{name}: {found:?}");
        }
        assert!(!found.contains(&tree.at("src/hidden.h")), "what a known file brings is known");
        if disk(&TreePath::parse(b"/usr/include/stdio.h").unwrap()).is_file() {
            assert!(found.iter().any(|path| path.as_bytes() == b"/usr/include/stdio.h"), "{found:?}");
        }
        assert!(found.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn what_python_compiled() {
        let files = [
            "p/__init__.py",
            "p/a.py",
            "p/ab.py",
            "p/__pycache__/a.cpython-311.pyc",
            "p/__pycache__/ab.cpython-311.pyc",
        ];
        let tree = Tree::new(&files.map(|name| (name, "x")));
        let found = tree.companions("p/a.py", &[]);
        assert!(found.contains(&tree.at("p/__pycache__/a.cpython-311.pyc")));
        assert!(!found.contains(&tree.at("p/__pycache__/ab.cpython-311.pyc")));
        assert!(tree.companions("p", &[]).contains(&tree.at("p/__init__.py")));
    }

    #[test]
    fn the_files_of_a_locale() {
        let tree =
            Tree::new(&["l/LC_CTYPE", "l/LC_TIME", "l/LC_MESSAGES/SYS_LC_MESSAGES", "l/other"].map(|name| (name, "x")));
        let found = tree.companions("l/LC_CTYPE", &["l", "l/LC_CTYPE"]);
        assert!(found.contains(&tree.at("l/LC_TIME")) && found.contains(&tree.at("l/LC_MESSAGES/SYS_LC_MESSAGES")));
        assert!(!found.contains(&tree.at("l/other")));
    }

    #[test]
    fn the_only_folder_in_a_folder() {
        let tree = Tree::new(&[("one/two/three/file", ""), ("one/two/three/other", "")]);
        assert_eq!(tree.companions("one", &[]), [tree.at("one/two"), tree.at("one/two/three")]);
        assert_eq!(tree.companions("one/two/three", &[]), []);
    }
}

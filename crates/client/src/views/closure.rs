//! What a program needs to be started, guessed before it was ever run: interpreter, libraries, and all directories and
//! links on the way. A wrong guess costs bytes, a missing one a question.

use super::elf::{self, Elf};
use super::{compilers, locales};
use crate::snapshot::disk::walk;
use base::TreePath;
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Files of one closure.
const FILES_MAX: usize = 1024;
/// Scripts that are interpreted by scripts that are interpreted.
const SCRIPTS_MAX: usize = 4;
/// Largest linker cache that is read, in bytes.
const CACHE_BYTES_MAX: u64 = 16 << 20;

/// What every program looks at while it starts.
const ALWAYS: &[&str] = &[
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    "/usr/lib/locale/locale-archive",
    "/usr/lib/locale/C.utf8",
    "/etc/locale.alias",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/group",
    "/tmp",
];
const DEFAULT_FOLDERS: &[&str] = &["/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"];
pub(super) const TRIPLETS: &[&str] = &[
    "x86_64-linux-gnu",
    "aarch64-linux-gnu",
    "i386-linux-gnu",
    "arm-linux-gnueabihf",
    "riscv64-linux-gnu",
    "powerpc64le-linux-gnu",
    "s390x-linux-gnu",
];

/// The paths that `program` needs to be started in `cwd`, with `LD_LIBRARY_PATH` from `env`, sorted.
pub fn closure(program: &TreePath, cwd: &TreePath, env: &[Vec<u8>]) -> Vec<TreePath> {
    closure_of(program, cwd, env, true)
}

/// The same, for a compiler driver without what it only needs to link, unless it `links`.
pub fn closure_of(program: &TreePath, cwd: &TreePath, env: &[Vec<u8>], links: bool) -> Vec<TreePath> {
    let mut search = Search { links, ..Search::new(cwd, env) };
    search.add(cwd);
    for path in ALWAYS {
        search.add_bytes(path.as_bytes());
    }
    for path in locales::files(env) {
        search.add_bytes(path.as_bytes());
    }
    search.program(program, SCRIPTS_MAX);
    while let Some((path, rpaths)) = search.queue.pop_front() {
        if search.files >= FILES_MAX {
            break;
        }
        search.files += 1;
        search.library(&path, &rpaths);
    }
    search.found.into_iter().collect()
}

/// All that is read out of a program's file, for who attacks the reader (`parsers`).
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct ReadProgram {
    /// Interpreter, libraries and folders that an ELF file names.
    pub names: Option<Vec<Vec<u8>>>,
    /// As of [`level_of`].
    pub level: u8,
    /// Interpreter and argument that a script names.
    pub script: Option<Vec<Vec<u8>>>,
}

/// See [`ReadProgram`].
#[doc(hidden)]
pub fn read_program(file: &File) -> ReadProgram {
    let named = |elf: Elf| [elf.interpreter, elf.rpath, elf.runpath].into_iter().flatten().chain(elf.needed).collect();
    let script = first_line(file).map(|(interpreter, argument)| [interpreter].into_iter().chain(argument).collect());
    ReadProgram { names: elf::read(file).map(named), level: elf::level(file).unwrap_or(0), script }
}

pub use elf::linker_cache;

/// Level of x86-64 that a program was built for; 0: it does not say, or is none.
pub fn level_of(real: &TreePath) -> u8 {
    open(real).and_then(|file| elf::level(&file)).unwrap_or(0)
}

struct Search {
    cwd: TreePath,
    library_path: Vec<Vec<u8>>,
    cache: Vec<(Vec<u8>, Vec<u8>)>,
    found: BTreeSet<TreePath>,
    seen: BTreeSet<TreePath>,
    /// ELF files to be looked at, each with the RPATHs of those that need it.
    queue: VecDeque<(TreePath, Vec<Vec<u8>>)>,
    files: usize,
    /// What is needed to link counts.
    links: bool,
}

impl Search {
    fn new(cwd: &TreePath, env: &[Vec<u8>]) -> Self {
        let value = env.iter().find_map(|entry| entry.strip_prefix(b"LD_LIBRARY_PATH="));
        let library_path = value.map(folders).unwrap_or_default();
        let mut bytes = Vec::new();
        if let Ok(file) = File::open("/etc/ld.so.cache") {
            // A cache that is cut short names fewer libraries.
            let _ = file.take(CACHE_BYTES_MAX).read_to_end(&mut bytes);
        }
        let owned = |(name, path): (&[u8], &[u8])| (name.to_vec(), path.to_vec());
        Self {
            cwd: cwd.clone(),
            library_path,
            cache: elf::linker_cache(&bytes).into_iter().map(owned).collect(),
            found: BTreeSet::new(),
            seen: BTreeSet::new(),
            queue: VecDeque::new(),
            files: 0,
            links: true,
        }
    }

    /// Adds a path and all on the way to it; returns where it leads.
    fn add(&mut self, path: &TreePath) -> Option<TreePath> {
        let found = &mut self.found;
        walk(path, &mut |path| {
            found.insert(path.clone());
        })
    }

    fn add_bytes(&mut self, path: &[u8]) -> Option<TreePath> {
        let path = self.cwd.resolve(path)?;
        self.add(&path)
    }

    /// A program or script.
    fn program(&mut self, path: &TreePath, scripts_left: usize) {
        let Some(real) = self.add(path) else { return };
        let Some(file) = open(&real) else { return };
        if let Some(elf) = elf::read(&file) {
            if let Some(interpreter) = elf.interpreter.as_deref().and_then(|path| self.add_bytes(path)) {
                self.enqueue(interpreter, &[]);
            }
            let linking = if self.links { compilers::linking(&real) } else { Vec::new() };
            for part in compilers::compiling(&real).into_iter().chain(linking) {
                self.program(&part, scripts_left);
            }
            self.enqueue(real, &[]);
            return;
        }
        if scripts_left > 0
            && let Some(line) = first_line(&file)
        {
            let (interpreter, argument) = line;
            let Some(path) = self.cwd.resolve(&interpreter) else { return };
            self.program(&path, scripts_left - 1);
            if path.name() == b"env"
                && let Some(found) = argument.and_then(|name| crate::profile::find_in_default_path(&name))
            {
                self.program(&found, scripts_left - 1);
            }
        }
    }

    fn enqueue(&mut self, real: TreePath, rpaths: &[Vec<u8>]) {
        if self.seen.insert(real.clone()) {
            self.queue.push_back((real, rpaths.to_vec()));
        }
    }

    /// Finds what the ELF file at `path` needs.
    fn library(&mut self, path: &TreePath, inherited: &[Vec<u8>]) {
        let Some(elf) = open(path).and_then(|file| elf::read(&file)) else { return };
        let origin = path.parent().unwrap_or_else(TreePath::root);
        let expand = |list: &Option<Vec<u8>>| -> Vec<Vec<u8>> {
            let list = list.as_deref().map(folders).unwrap_or_default();
            list.iter().map(|folder| with_origin(folder, &origin)).collect()
        };
        let runpath = expand(&elf.runpath);
        // RUNPATH puts RPATH out of force, and is not inherited.
        let mut rpaths = if elf.runpath.is_some() { Vec::new() } else { expand(&elf.rpath) };
        rpaths.extend_from_slice(inherited);
        for name in &elf.needed {
            if let Some(found) = self.find(name, &elf, &rpaths, &runpath)
                && let Some(real) = self.add(&found)
            {
                self.enqueue(real, &rpaths);
            }
        }
    }

    fn find(&self, name: &[u8], by: &Elf, rpaths: &[Vec<u8>], runpath: &[Vec<u8>]) -> Option<TreePath> {
        let fits =
            |path: &TreePath| open(path).and_then(|file| elf::read(&file)).is_some_and(|elf| elf.kind == by.kind);
        if name.contains(&b'/') {
            return self.cwd.resolve(name).filter(fits);
        }
        let in_folder = |folder: &Vec<u8>| {
            let path = self.cwd.resolve(folder)?.resolve(name)?;
            fits(&path).then_some(path)
        };
        let named = rpaths.iter().chain(&self.library_path).chain(runpath);
        if let Some(found) = named.filter(|folder| !folder.is_empty()).find_map(in_folder) {
            return Some(found);
        }
        let cached = self.cache.iter().filter(|(known, _)| known == name).filter_map(|(_, path)| TreePath::parse(path));
        let mut defaults = DEFAULT_FOLDERS.iter().flat_map(|folder| {
            let folder = folder.as_bytes().to_vec();
            let inner = |triplet: &&str| [&folder[..], b"/", triplet.as_bytes()].concat();
            TRIPLETS.iter().map(inner).chain([folder.clone()]).collect::<Vec<_>>()
        });
        cached.into_iter().find(|path| fits(path)).or_else(|| defaults.find_map(|folder| in_folder(&folder)))
    }
}

fn folders(list: &[u8]) -> Vec<Vec<u8>> {
    list.split(|byte| matches!(byte, b':' | b';')).map(<[u8]>::to_vec).collect()
}

/// `folder` with `$ORIGIN` or `${ORIGIN}` replaced.
fn with_origin(folder: &[u8], origin: &TreePath) -> Vec<u8> {
    for variable in [&b"$ORIGIN"[..], b"${ORIGIN}"] {
        if let Some(at) = folder.windows(variable.len()).position(|window| window == variable) {
            return [&folder[..at], origin.as_bytes(), &folder[at + variable.len()..]].concat();
        }
    }
    folder.to_vec()
}

/// A path as the standard library takes it.
pub(super) fn disk(path: &TreePath) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(path.as_bytes()))
}

/// A regular file.
pub(crate) fn open(path: &TreePath) -> Option<File> {
    let file = crate::snapshot::disk::open_unseen(disk(path)).ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

/// The loader that an ELF file of this machine's kind names, if it names one; `None`: it is no such file.
pub(crate) fn loader_of(file: &File) -> Option<Option<Vec<u8>>> {
    let own = elf::read(&File::open("/proc/self/exe").ok()?)?.kind;
    elf::read(file).filter(|elf| elf.kind == own).map(|elf| elf.interpreter)
}

/// Interpreter and argument in a script's first line.
pub(crate) fn first_line(file: &File) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    use std::os::unix::fs::FileExt;
    let mut bytes = [0u8; 256];
    let len = file.read_at(&mut bytes, 0).ok()?;
    let line = bytes[..len].split(|byte| *byte == b'\n').next()?.strip_prefix(b"#!")?;
    let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let interpreter = words.next()?.to_vec();
    // `env -S` and assignments come before the program.
    let argument = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='));
    Some((interpreter, argument.map(<[u8]>::to_vec)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn path(text: &str) -> TreePath {
        TreePath::parse(text.as_bytes()).unwrap()
    }

    fn has(found: &[TreePath], ending: &str) -> bool {
        found.iter().any(|path| path.as_bytes().ends_with(ending.as_bytes()))
    }

    #[test]
    fn a_program_needs_its_interpreter_and_libraries() {
        let found = closure(&path("/bin/sh"), &path("/tmp"), &[]);
        assert!(
            has(&found, "/etc/ld.so.preload") && found.contains(&path("/tmp")) && found.contains(&TreePath::root())
        );
        assert!(found.iter().any(|path| path.name().starts_with(b"libc.")), "{found:?}");
        assert!(found.iter().any(|path| path.name().starts_with(b"ld-")), "{found:?}");
        assert!(found.windows(2).all(|pair| pair[0] < pair[1]));
        for path in &found {
            assert!(path.parent().is_none_or(|parent| found.contains(&parent)), "the way to {path}");
        }
    }

    #[test]
    fn a_script_needs_its_interpreter() {
        let folder = tempfile::tempdir().unwrap();
        let root = TreePath::parse(std::fs::canonicalize(folder.path()).unwrap().as_os_str().as_bytes()).unwrap();
        std::fs::write(folder.path().join("script"), b"#!/usr/bin/env -S sh\necho\n").unwrap();
        symlink("script", folder.path().join("link")).unwrap();
        let found = closure(&root.join(b"link"), &root, &[]);
        assert!(found.contains(&root.join(b"script")) && found.contains(&root.join(b"link")));
        assert!(has(&found, "/env") && has(&found, "/sh"), "{found:?}");
    }

    #[test]
    fn origins() {
        assert_eq!(with_origin(b"$ORIGIN/../lib", &path("/a/bin")), b"/a/bin/../lib");
        assert_eq!(with_origin(b"${ORIGIN}", &path("/a")), b"/a");
        assert_eq!(with_origin(b"/x", &path("/a")), b"/x");
    }

    #[test]
    fn what_is_not_there_has_a_closure_too() {
        let found = closure(&path("/none/such"), &path("/none"), &[]);
        assert!(found.contains(&path("/none")));
    }
}

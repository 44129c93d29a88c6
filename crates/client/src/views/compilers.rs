//! What compilers read and start, by the conventions of GCC on Debian and its kin: elsewhere they are learnt by use.

use super::closure::{TRIPLETS, disk};
use base::TreePath;
use std::path::Path;

/// What is linked into every program, beside its own objects.
const LINKED: [&str; 8] =
    ["Scrt1.o", "crt1.o", "crti.o", "crtn.o", "libc.so", "libc_nonshared.a", "libm.so", "libgcc_s.so.1"];
/// The same from the compiler's own folder, with what starts the linker.
const LINKED_OWN: [&str; 6] = ["collect2", "crtbeginS.o", "crtendS.o", "libgcc.a", "libgcc_s.so", "libstdc++.so"];

/// What every compilation looks at or starts, beside the compiler proper; and of the compiler's own folder.
const COMPILED: [&str; 2] = ["/usr/bin/as", "/usr/local/include"];
const COMPILED_OWN: [&str; 2] = ["liblto_plugin.so", "lto-wrapper"];
const LINKER: &str = "/usr/bin/ld";
/// Arguments with which a driver links nothing.
const LINKS_NOTHING: [&[u8]; 6] = [b"-c", b"-S", b"-E", b"-M", b"-MM", b"-fsyntax-only"];

/// Where compilers look for headers.
pub(super) fn header_folders() -> Vec<TreePath> {
    let mut folders: Vec<String> = vec!["/usr/local/include".into(), "/usr/include".into()];
    for triplet in TRIPLETS {
        folders.push(format!("/usr/include/{triplet}"));
        folders.extend(newest(&format!("/usr/lib/gcc/{triplet}")).map(|folder| folder + "/include"));
        folders.extend(newest(&format!("/usr/include/{triplet}/c++")));
    }
    folders.extend(newest("/usr/include/c++"));
    let folders = folders.into_iter().filter(|folder| Path::new(folder).is_dir());
    folders.filter_map(|folder| TreePath::parse(folder.as_bytes())).collect()
}

/// What the compiler driver at `program` (not a link) looks at and starts to compile: none if it is no such driver.
pub(super) fn compiling(program: &TreePath) -> Vec<TreePath> {
    let Some(proper) = proper_compiler(program.name()) else { return Vec::new() };
    let own = own_folders()
        .flat_map(|(own, _)| COMPILED_OWN.iter().chain([&proper]).map(move |name| format!("{own}/{name}")));
    existing(COMPILED.iter().map(|path| (*path).to_owned()).chain(own))
}

/// What it starts to link, and what is linked.
pub fn linking(program: &TreePath) -> Vec<TreePath> {
    if !is_driver(program) {
        return Vec::new();
    }
    let linked = own_folders().flat_map(|(own, triplet)| {
        let own = LINKED_OWN.iter().map(move |name| format!("{own}/{name}"));
        own.chain(LINKED.iter().map(move |name| format!("/usr/lib/{triplet}/{name}")))
    });
    existing(linked.chain([LINKER.to_owned()]))
}

/// Whether this is a compiler driver.
pub fn is_driver(program: &TreePath) -> bool {
    proper_compiler(program.name()).is_some()
}

/// The linker that drivers start.
pub fn linker() -> Option<TreePath> {
    TreePath::parse(LINKER.as_bytes())
}

/// Whether a compiler driver with these arguments links nothing. Of any other program it means nothing.
pub fn links_nothing(argv: &[Vec<u8>]) -> bool {
    argv.iter().skip(1).any(|word| LINKS_NOTHING.contains(&word.as_slice()))
}

/// The newest compiler's own folder for each triplet.
fn own_folders() -> impl Iterator<Item = (String, &'static str)> {
    TRIPLETS.iter().filter_map(|triplet| Some((newest(&format!("/usr/lib/gcc/{triplet}"))?, *triplet)))
}

fn existing(paths: impl Iterator<Item = String>) -> Vec<TreePath> {
    paths.filter_map(|path| TreePath::parse(path.as_bytes())).filter(|path| disk(path).exists()).collect()
}

/// The program that a driver of this name has the compiling done by: `x86_64-linux-gnu-gcc-12`, `g++`, `cc`.
fn proper_compiler(driver: &[u8]) -> Option<&'static str> {
    let mut words = driver.rsplit(|byte| *byte == b'-');
    let is_version = |word: &[u8]| word.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    match words.find(|word| !is_version(word))? {
        b"gcc" | b"cc" | b"c89" | b"c99" => Some("cc1"),
        b"g++" | b"c++" => Some("cc1plus"),
        _ => None,
    }
}

/// The folder in `folder` with the highest number for a name.
fn newest(folder: &str) -> Option<String> {
    let versions = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let newest = versions.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).max()?;
    Some(format!("{folder}/{newest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_by_their_names() {
        for (driver, proper) in [
            ("gcc", Some("cc1")),
            ("x86_64-linux-gnu-gcc-12", Some("cc1")),
            ("g++-12.2", Some("cc1plus")),
            ("c++", Some("cc1plus")),
            ("gcc-ar", None),
            ("ls", None),
            ("12", None),
        ] {
            assert_eq!(proper_compiler(driver.as_bytes()), proper, "{driver}");
        }
    }

    #[test]
    fn what_is_only_linked_is_told_from_what_compiles() {
        let gcc = crate::profile::find_in_default_path(b"gcc").and_then(|path| std::fs::canonicalize(disk(&path)).ok());
        let Some(gcc) = gcc else { return eprintln!("skipped: there is no gcc") };
        let gcc = TreePath::parse(gcc.as_os_str().as_encoded_bytes()).expect("a path");
        let (compiling, linking) = (compiling(&gcc), linking(&gcc));
        let has = |paths: &[TreePath], name: &[u8]| paths.iter().any(|path| path.name() == name);
        assert!(has(&compiling, b"cc1") && has(&compiling, b"as") && !has(&compiling, b"ld"), "{compiling:?}");
        assert!(has(&linking, b"ld") && has(&linking, b"libgcc.a") && !has(&linking, b"cc1"), "{linking:?}");
        let closure = |links| super::super::closure::closure_of(&gcc, &TreePath::root(), &[], links);
        let (without, with) = (closure(false), closure(true));
        assert!(has(&without, b"cc1") && without.iter().all(|path| with.contains(path)));
        assert!(linking.iter().all(|path| with.contains(path)) && !has(&without, b"libgcc.a"));
        assert!(super::linking(&TreePath::parse(b"/bin/ls").expect("a path")).is_empty());
        let words = |text: &str| text.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        assert!(links_nothing(&words("gcc -O2 -c a.c")) && !links_nothing(&words("gcc -O2 a.c -o a")));
    }
}

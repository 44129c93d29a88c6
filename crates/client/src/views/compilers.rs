//! What compilers read and start, by the conventions of GCC on Debian and its kin: elsewhere they are learnt by use.

use super::closure::{TRIPLETS, disk};
use base::TreePath;
use std::path::Path;

/// What is linked into every program, beside its own objects.
const LINKED: [&str; 8] =
    ["Scrt1.o", "crt1.o", "crti.o", "crtn.o", "libc.so", "libc_nonshared.a", "libm.so", "libgcc_s.so.1"];
/// The same from the compiler's own folder, with what starts the linker.
const LINKED_OWN: [&str; 8] = [
    "collect2",
    "liblto_plugin.so",
    "lto-wrapper",
    "crtbeginS.o",
    "crtendS.o",
    "libgcc.a",
    "libgcc_s.so",
    "libstdc++.so",
];

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

/// What the compiler driver at `program` (not a link) will start, and what these link: none if it is no such driver.
pub(super) fn parts(program: &TreePath) -> Vec<TreePath> {
    let Some(proper) = proper_compiler(program.name()) else { return Vec::new() };
    let mut parts: Vec<String> = vec!["/usr/bin/as".into(), "/usr/bin/ld".into(), "/usr/local/include".into()];
    for triplet in TRIPLETS {
        let Some(own) = newest(&format!("/usr/lib/gcc/{triplet}")) else { continue };
        parts.extend([proper].iter().chain(&LINKED_OWN).map(|name| format!("{own}/{name}")));
        parts.extend(LINKED.iter().map(|name| format!("/usr/lib/{triplet}/{name}")));
    }
    let parts = parts.iter().filter_map(|path| TreePath::parse(path.as_bytes()));
    parts.filter(|path| disk(path).exists()).collect()
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
}

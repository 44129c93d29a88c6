//! By what a program is run: the interpreter that a script's first line names, the loader that an ELF file names. The kernel follows any link to
//! them, in a process that still is the worker's own program, to which `/proc/self/exe` leads. So they are looked for here first, as all that a
//! client names. What the kernel itself refuses is left to it.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use super::sys;

/// How many scripts the kernel lets run one another.
const CHAIN_MAX: usize = 6;
/// What it reads of a script.
const LINE_BYTES: usize = 256;
/// What is read of a file at once: most have their headers and the loader's name there.
const HEAD_BYTES: usize = 1024;
/// Longest path, with the NUL at its end.
const PATH_BYTES_MAX: usize = 4096;
/// Longest table of an ELF file's parts.
const TABLE_BYTES_MAX: u64 = 65_536;
/// The part that names the loader.
const PT_INTERP: u64 = 3;

/// Whether all by which the program at `path` is run is inside. Allocates nothing.
pub fn are_inside(path: &CStr) -> Result<(), Errno> {
    let mut name = [0; PATH_BYTES_MAX];
    let bytes = path.to_bytes_with_nul();
    name.get_mut(..bytes.len()).ok_or(Errno::NAMETOOLONG)?.copy_from_slice(bytes);
    for _ in 0..CHAIN_MAX {
        let path = CStr::from_bytes_until_nul(&name).map_err(|_| Errno::NAMETOOLONG)?;
        let found = rustix::fs::fstat(sys::open_inside(path, OFlags::PATH)?)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Ok(());
        }
        let file = File::open(path)?;
        let mut next = [0; PATH_BYTES_MAX];
        match file.runs_by(&mut next)? {
            By::Itself => return Ok(()),
            By::Interpreter => name = next,
            By::Loader => {
                let loader = CStr::from_bytes_until_nul(&next).map_err(|_| Errno::NOEXEC)?;
                return sys::open_inside(loader, OFlags::PATH).map(drop);
            }
        }
    }
    Err(Errno::LOOP)
}

/// By what a file is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// By the kernel alone, or not at all.
    Itself,
    /// By another program, which may be a script as well.
    Interpreter,
    /// By an ELF file.
    Loader,
}

struct File {
    file: OwnedFd,
    head: [u8; HEAD_BYTES],
    /// Bytes of the head that there are.
    count: usize,
}

impl File {
    fn open(path: &CStr) -> Result<Self, Errno> {
        let file = sys::open_inside(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let mut head = [0; HEAD_BYTES];
        let count = rustix::io::pread(&file, &mut head, 0)?;
        Ok(Self { file, head, count })
    }

    /// By what it is run, whose path is put into `name`.
    fn runs_by(&self, name: &mut [u8; PATH_BYTES_MAX]) -> Result<By, Errno> {
        let head = &self.head[..self.count];
        if let Some(line) = head.strip_prefix(b"#!") {
            let is_script = interpreter(&line[..line.len().min(LINE_BYTES - 2)], name);
            return Ok(if is_script { By::Interpreter } else { By::Itself });
        }
        if !head.starts_with(b"\x7fELF") {
            return Ok(By::Itself);
        }
        match self.loader(name)? {
            true => Ok(By::Loader),
            false => Ok(By::Itself),
        }
    }

    /// Fills `out` with what is at `at`; false: there is less.
    fn read(&self, at: u64, out: &mut [u8]) -> Result<bool, Errno> {
        let start = usize::try_from(at).unwrap_or(usize::MAX);
        if let Some(part) = self.head[..self.count].get(start..start.saturating_add(out.len())) {
            out.copy_from_slice(part);
            return Ok(true);
        }
        let mut filled = 0;
        while filled < out.len() {
            match rustix::io::pread(&self.file, &mut out[filled..], at.saturating_add(filled as u64))? {
                0 => return Ok(false),
                count => filled += count,
            }
        }
        Ok(true)
    }

    /// Puts the path of an ELF file's loader into `name`; false: it has none.
    fn loader(&self, name: &mut [u8; PATH_BYTES_MAX]) -> Result<bool, Errno> {
        // Offsets of the table's place, the size of an entry and their number; in an entry of the part's place and length, and the entry's size.
        let (is_wide, places) = match self.head[4] {
            2 => (true, [32, 54, 56, 8, 32, 56]),
            1 => (false, [28, 42, 44, 4, 16, 32]),
            _ => return Ok(false),
        };
        let [table, size, count, offset, length, entry_bytes] = places;
        if self.count < 64 {
            return Ok(false);
        }
        let word = |from: &[u8], at: usize| if is_wide { number(from, at, 8) } else { number(from, at, 4) };
        let (table, count) = (word(&self.head, table), number(&self.head, count, 2));
        if number(&self.head, size, 2) != entry_bytes as u64 || count * entry_bytes as u64 > TABLE_BYTES_MAX {
            return Ok(false);
        }
        for index in 0..count {
            let mut entry = [0; 56];
            let entry = &mut entry[..entry_bytes];
            if !self.read(table.saturating_add(index * entry_bytes as u64), entry)? {
                return Ok(false);
            }
            if number(entry, 0, 4) == PT_INTERP {
                let length = usize::try_from(word(entry, length)).unwrap_or(usize::MAX);
                let Some(name) = name.get_mut(..length) else { return Ok(false) };
                return self.read(word(entry, offset), name);
            }
        }
        Ok(false)
    }
}

/// Puts the path that a script's first line names into `name`; false: the kernel takes it for none. `line`: what is behind `#!`.
fn interpreter(line: &[u8], name: &mut [u8; PATH_BYTES_MAX]) -> bool {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let is_end = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | 0);
    let Some(start) = line.iter().position(|byte| !is_blank(byte)) else { return false };
    let rest = &line[start..];
    // A short file ends where its bytes do; a name that is longer than what the kernel reads is none.
    let is_whole = line.len() < LINE_BYTES - 2;
    let Some(end) = rest.iter().position(is_end).or(is_whole.then_some(rest.len())).filter(|end| *end > 0) else {
        return false;
    };
    name[..end].copy_from_slice(&rest[..end]);
    name[end] = 0;
    true
}

/// The unsigned number of so many bytes at a place.
fn number(from: &[u8], at: usize, bytes: usize) -> u64 {
    let mut wide = [0; 8];
    let Some(part) = from.get(at..at + bytes) else { return 0 };
    match cfg!(target_endian = "little") {
        true => wide[..bytes].copy_from_slice(part),
        false => wide[8 - bytes..].copy_from_slice(part),
    }
    u64::from_ne_bytes(wide)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    fn named(line: &[u8]) -> Option<Vec<u8>> {
        let mut name = [0; PATH_BYTES_MAX];
        let is_named = interpreter(line, &mut name);
        is_named.then(|| CStr::from_bytes_until_nul(&name).expect("it has an end").to_bytes().to_vec())
    }

    #[test]
    fn lines_are_read_as_the_kernel_does() {
        let long = vec![b'x'; 300];
        for (line, want) in [
            (&b"/bin/sh\n"[..], Some(&b"/bin/sh"[..])),
            (b" \t/bin/sh -e\n", Some(b"/bin/sh")),
            (b"/bin/sh", Some(b"/bin/sh")),
            (b"/bin/sh\0x", Some(b"/bin/sh")),
            (b"self/exe\n", Some(b"self/exe")),
            (b"\n/bin/sh", None),
            (b"   ", None),
            (b"", None),
            (&long[..LINE_BYTES - 2], None),
        ] {
            assert_eq!(named(line).as_deref(), want, "{line:?}");
        }
    }

    #[test]
    fn programs_are_inside_and_what_leads_out_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let check =
            |name: &str| are_inside(&CString::new(folder.path().join(name).as_os_str().as_bytes()).expect("no NUL"));
        let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).expect("a file");
        let own = std::fs::read("/bin/true").expect("a program");
        write("own", &own);
        assert_eq!(check("own"), Ok(()), "by a loader that is there");
        let loader = [&b"/lib64/ld-linux-x86-64.so.2\0"[..], b"/lib/ld-linux-aarch64.so.1\0"];
        let found =
            loader.iter().find_map(|name| Some((own.windows(name.len()).position(|part| part == *name)?, name)));
        if let Some((at, name)) = found {
            for other in [&b"/proc/self/exe\0"[..], b"/proc/self/fd/0\0"] {
                let mut changed = own.clone();
                changed[at..at + name.len()].fill(0);
                changed[at..at + other.len()].copy_from_slice(other);
                write("changed", &changed);
                assert_eq!(check("changed"), Err(Errno::LOOP), "{other:?}");
            }
        }
        std::os::unix::fs::symlink("/proc/self/exe", folder.path().join("link")).expect("a link");
        let link = format!("#!{}\n", folder.path().join("link").display());
        write("script", b"#!/proc/self/exe x\n");
        let script = format!("#! {}\n", folder.path().join("script").display());
        for (name, text) in [("direct", "#!/proc/self/exe"), ("by a link", &link), ("by a script", &script)] {
            write(name, text.as_bytes());
            assert_eq!(check(name), Err(Errno::LOOP), "{name}");
        }
        write("plain", b"echo x\n");
        write("shell", b"#!/bin/sh\n");
        write("loop", format!("#!{}\n", folder.path().join("loop").display()).as_bytes());
        let all = ["plain", "shell", "loop", "missing"].map(check);
        assert_eq!(all, [Ok(()), Ok(()), Err(Errno::LOOP), Err(Errno::NOENT)]);
    }
}

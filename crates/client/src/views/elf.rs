//! What an ELF file needs to be started: its interpreter and libraries. Files are hostile: everything is bounded, and
//! what makes no sense is left out.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Bytes that are read at once.
const WINDOW_BYTES: usize = 4096;
/// Program headers that are read.
const HEADERS_MAX: u64 = 512;
/// Entries of the dynamic section that are read.
const DYNAMIC_MAX: u64 = 4096;
/// Longest name or path, in bytes.
const NAME_BYTES_MAX: usize = 4096;
/// Libraries of one file that are looked for.
const NEEDED_MAX: usize = 512;

/// What one ELF file says.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct Elf {
    /// 32 or 64 bits, byte order and machine: libraries have to agree.
    pub kind: (bool, bool, u16),
    pub interpreter: Option<Vec<u8>>,
    pub needed: Vec<Vec<u8>>,
    pub rpath: Option<Vec<u8>>,
    pub runpath: Option<Vec<u8>>,
}

struct Source<'a> {
    file: &'a File,
    wide: bool,
    big: bool,
    /// The part of the file that was read last, and where it starts.
    window: RefCell<(u64, Vec<u8>)>,
}

struct Segment {
    kind: u64,
    offset: u64,
    address: u64,
    size: u64,
}

/// Reads what `file` says; `None` if it is not ELF, or makes no sense.
pub(super) fn read(file: &File) -> Option<Elf> {
    let source = Source::open(file)?;
    let mut elf = Elf { kind: (source.wide, source.big, source.machine()?), ..Elf::default() };
    let segments = source.segments()?;
    // Of several the last counts, as for the dynamic linker: hundreds that name one another's strings would take seconds.
    let last = |kind: u64| segments.iter().rev().find(|segment| segment.kind == kind);
    if let Some(segment) = last(PT_INTERP) {
        elf.interpreter = source.bytes(segment.offset, segment.size.min(NAME_BYTES_MAX as u64));
    }
    if let Some(segment) = last(PT_DYNAMIC) {
        source.dynamic(segment, &segments, &mut elf);
    }
    Some(elf)
}

/// Level of x86-64 that a program's processor must have (x86-64 psABI, GNU_PROPERTY_X86_ISA_1_NEEDED), if it says so.
pub(super) fn level(file: &File) -> Option<u8> {
    let source = Source::open(file)?;
    if source.machine()? != EM_X86_64 {
        return None;
    }
    let segments = source.segments()?;
    source.level(segments.iter().find(|segment| segment.kind == PT_GNU_PROPERTY)?)
}

const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;
const PT_GNU_PROPERTY: u64 = 0x6474_e553;
const EM_X86_64: u16 = 62;
const NT_GNU_PROPERTY: u64 = 5;
const X86_ISA_NEEDED: u64 = 0xc000_8002;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

impl<'a> Source<'a> {
    /// `None` if it is not ELF.
    fn open(file: &'a File) -> Option<Self> {
        let mut ident = [0u8; 6];
        file.read_exact_at(&mut ident, 0).ok()?;
        let source = Self { file, wide: ident[4] == 2, big: ident[5] == 2, window: RefCell::default() };
        ident.starts_with(b"\x7fELF").then_some(source)
    }

    fn machine(&self) -> Option<u16> {
        Some(self.number(18, 2)? as u16)
    }

    /// Fills `out`, which is short, from `offset`.
    fn read(&self, out: &mut [u8], offset: u64) -> Option<()> {
        let mut window = self.window.borrow_mut();
        let (start, bytes) = &mut *window;
        let end = offset.checked_add(out.len() as u64)?;
        if offset < *start || end > *start + bytes.len() as u64 {
            *start = offset;
            bytes.resize(WINDOW_BYTES, 0);
            let count = self.file.read_at(bytes, offset).unwrap_or(0);
            bytes.truncate(count);
        }
        let at = usize::try_from(offset - *start).ok()?;
        out.copy_from_slice(bytes.get(at..at + out.len())?);
        Some(())
    }

    fn number(&self, offset: u64, len: usize) -> Option<u64> {
        let mut bytes = [0u8; 8];
        self.read(&mut bytes[..len], offset)?;
        let number = bytes[..len].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        Some(if self.big { number.swap_bytes() >> (64 - 8 * len) } else { number })
    }

    /// The bytes up to the first NUL, at most `len`; `None` if there are none.
    fn bytes(&self, offset: u64, len: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len.min(NAME_BYTES_MAX as u64) as usize];
        let mut read = 0;
        while read < bytes.len() {
            match self.file.read_at(&mut bytes[read..], offset.checked_add(read as u64)?).ok()? {
                0 => break,
                count => read += count,
            }
        }
        bytes.truncate(read);
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        bytes.truncate(end);
        (!bytes.is_empty()).then_some(bytes)
    }

    fn segments(&self) -> Option<Vec<Segment>> {
        let (table, size, count) = match self.wide {
            true => (self.number(32, 8)?, self.number(54, 2)?, self.number(56, 2)?),
            false => (self.number(28, 4)?, self.number(42, 2)?, self.number(44, 2)?),
        };
        let mut segments = Vec::new();
        for index in 0..count.min(HEADERS_MAX) {
            let at = table.checked_add(index * size)?;
            let word = if self.wide { 8 } else { 4 };
            let field =
                |wide: u64, narrow: u64| self.number(at.checked_add(if self.wide { wide } else { narrow })?, word);
            segments.push(Segment {
                kind: self.number(at, 4)?,
                offset: field(8, 4)?,
                address: field(16, 8)?,
                size: field(32, 16)?,
            });
        }
        Some(segments)
    }

    /// The level that the properties in this segment name: one note, of properties one after the other.
    fn level(&self, properties: &Segment) -> Option<u8> {
        let (name, size, kind) = (
            self.number(properties.offset, 4)?,
            self.number(properties.offset + 4, 4)?,
            self.number(properties.offset + 8, 4)?,
        );
        if (name, kind) != (4, NT_GNU_PROPERTY) {
            return None;
        }
        let mut at = properties.offset + 16;
        let end = at + size.min(NAME_BYTES_MAX as u64);
        while at + 8 <= end {
            let (property, size) = (self.number(at, 4)?, self.number(at + 4, 4)?);
            if (property, size) == (X86_ISA_NEEDED, 4) {
                // A bit for each level that has features which it uses.
                let levels = self.number(at + 8, 4)? & 0xf;
                return Some((u64::BITS - levels.leading_zeros()) as u8);
            }
            let align = if self.wide { 8 } else { 4 };
            at += 8 + size.next_multiple_of(align);
        }
        None
    }

    fn dynamic(&self, dynamic: &Segment, segments: &[Segment], elf: &mut Elf) {
        let word = if self.wide { 8 } else { 4 };
        let mut entries = Vec::new();
        for index in 0..(dynamic.size / (2 * word)).min(DYNAMIC_MAX) {
            let Some(at) = dynamic.offset.checked_add(index * 2 * word) else { break };
            let (Some(tag), Some(value)) =
                (self.number(at, word as usize), self.number(at.saturating_add(word), word as usize))
            else {
                break;
            };
            if tag == 0 {
                break;
            }
            entries.push((tag, value));
        }
        let table = entries.iter().find(|(tag, _)| *tag == DT_STRTAB).map(|(_, address)| *address);
        let Some(table) = table.and_then(|address| in_file(address, segments)) else { return };
        let text = |at: u64| self.bytes(table.checked_add(at)?, NAME_BYTES_MAX as u64);
        let all = |wanted: u64| entries.iter().filter(move |(tag, _)| *tag == wanted).map(|(_, value)| *value);
        elf.needed = all(DT_NEEDED).take(NEEDED_MAX).filter_map(text).collect();
        elf.rpath = all(DT_RPATH).next_back().and_then(text);
        elf.runpath = all(DT_RUNPATH).next_back().and_then(text);
    }
}

/// Where in the file an address is.
fn in_file(address: u64, segments: &[Segment]) -> Option<u64> {
    let within = |segment: &&Segment| {
        segment.kind == PT_LOAD && address.checked_sub(segment.address).is_some_and(|from| from < segment.size)
    };
    let segment = segments.iter().find(within)?;
    segment.offset.checked_add(address - segment.address)
}

/// Libraries by name from `/etc/ld.so.cache` (glibc 2.2 and later): pairs of name and path, in the order of the file.
pub fn linker_cache(bytes: &[u8]) -> Vec<(&[u8], &[u8])> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    const HEADER: usize = 48;
    const ENTRY: usize = 24;
    let Some(start) = bytes.windows(MAGIC.len()).position(|window| window == MAGIC) else { return Vec::new() };
    let cache = &bytes[start..];
    let number = |at: usize| {
        let bytes = cache.get(at..at.checked_add(4)?)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?) as usize)
    };
    let text = |at: usize| {
        let rest = cache.get(at..)?;
        rest.iter().take(NAME_BYTES_MAX).position(|byte| *byte == 0).map(|end| &rest[..end])
    };
    let count = number(MAGIC.len()).unwrap_or(0).min(cache.len() / ENTRY);
    let entry = |index: usize| {
        let at = HEADER + index * ENTRY;
        Some((text(number(at + 4)?)?, text(number(at + 8)?)?))
    };
    (0..count).filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{Read, Write};

    #[test]
    fn reads_a_program_of_this_machine() {
        let elf = read(&File::open("/proc/self/exe").unwrap()).expect("a test is an ELF program");
        assert!(elf.interpreter.is_some_and(|path| path.starts_with(b"/")));
        assert!(elf.needed.iter().any(|name| name.starts_with(b"libc.")), "{:?}", elf.needed);
    }

    /// A program of one segment: the note of properties that `levels` are needed, behind another one.
    fn with_levels(levels: u32) -> File {
        let mut bytes = vec![0u8; 64 + 56];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18] = EM_X86_64 as u8;
        bytes[32] = 64;
        (bytes[54], bytes[56]) = (56, 1);
        bytes[64..68].copy_from_slice(&(PT_GNU_PROPERTY as u32).to_le_bytes());
        bytes[72] = 120;
        let note = [4, 32, NT_GNU_PROPERTY as u32, u32::from_le_bytes(*b"GNU\0")];
        let properties = [0xc000_0002, 4, 3, 0, X86_ISA_NEEDED as u32, 4, levels, 0];
        bytes.extend(note.into_iter().chain(properties).flat_map(u32::to_le_bytes));
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        file
    }

    #[test]
    fn a_program_names_the_level_that_it_was_built_for() {
        let levels = [0, 0b1, 0b11, 0b101, 0b1111, 0b1_0000].map(|levels| level(&with_levels(levels)));
        assert_eq!(levels, [0, 1, 2, 3, 4, 0].map(Some));
    }

    /// Processor time of this thread.
    fn cpu() -> std::time::Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        std::time::Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    /// Every section says the same thousands of things, each of which is some KB to be read.
    #[test]
    fn a_program_of_hundreds_of_sections_takes_no_time() {
        const ENTRIES: usize = DYNAMIC_MAX as usize;
        let mut bytes = vec![0u8; 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18] = EM_X86_64 as u8;
        (bytes[32], bytes[54]) = (64, 56);
        bytes[56..58].copy_from_slice(&(HEADERS_MAX as u16).to_le_bytes());
        let entries_at = 64 + 56 * HEADERS_MAX;
        let strings_at = entries_at + 16 * ENTRIES as u64;
        for index in 0..HEADERS_MAX {
            let (kind, offset, size) = match index {
                0 => (PT_LOAD, 0, 1 << 30),
                _ => (PT_DYNAMIC, entries_at, 16 * ENTRIES as u64),
            };
            let head = [kind, offset, 0, 0, size, 0, 0].map(u64::to_le_bytes).concat();
            bytes.extend_from_slice(&head);
        }
        for index in 0..ENTRIES {
            let tag = [DT_STRTAB, DT_RPATH, DT_RUNPATH, DT_NEEDED][index.min(1 + index % 3)];
            let value = if index == 0 { strings_at } else { index as u64 % 7 };
            bytes.extend([tag, value].map(u64::to_le_bytes).concat());
        }
        bytes.extend([b'x'; 2 * NAME_BYTES_MAX]);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let before = cpu();
        let elf = read(&file).expect("it is a program");
        assert!(cpu() - before < std::time::Duration::from_secs(1), "{:?}", cpu() - before);
        assert_eq!(elf.needed.len(), NEEDED_MAX);
        assert!(elf.rpath.is_some_and(|path| path.len() == NAME_BYTES_MAX) && elf.runpath.is_some());
    }

    #[test]
    fn what_is_not_elf_says_nothing() {
        let mut file = tempfile::tempfile().unwrap();
        assert_eq!(read(&file), None);
        file.write_all(b"#!/bin/sh\necho a script, longer than a header\n").unwrap();
        assert_eq!(read(&file), None);
    }

    #[test]
    fn reads_the_linker_cache() {
        let Ok(bytes) = std::fs::read("/etc/ld.so.cache") else {
            println!("SKIPPED: no linker cache here");
            return;
        };
        let libraries = linker_cache(&bytes);
        assert!(libraries.iter().any(|(name, path)| name.starts_with(b"libc.so") && path.starts_with(b"/")));
        for end in (0..bytes.len()).step_by(97) {
            linker_cache(&bytes[..end]);
        }
    }

    proptest! {
        /// A damaged program gives something or nothing, in no time.
        #[test]
        fn damage_is_survived(damage in proptest::collection::vec((0..2048usize, any::<u8>()), 1..12)) {
            let mut bytes = Vec::new();
            File::open("/proc/self/exe").unwrap().take(1 << 16).read_to_end(&mut bytes).unwrap();
            for (at, byte) in damage {
                bytes[at] = byte;
            }
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&bytes).unwrap();
            let _ = (read(&file), level(&file));
        }
    }
}

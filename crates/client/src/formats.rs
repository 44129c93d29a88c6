//! Programs that this machine's kernel runs and a worker's does not: formats registered with `binfmt_misc`, and the machine code of
//! other processors.

use crate::snapshot::disk::open_unseen;
use base::path::printable;
use base::watch::{FORMATS_MAX, Format, HEAD_BYTES, Sign};
use base::{TreePath, Watch, watch};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wire::lock;

const REGISTRY: &str = "/proc/sys/fs/binfmt_misc";
/// How long what was registered is believed. Packages register formats when they are installed.
const FRESH: Duration = Duration::from_secs(1);
/// Number of this machine's processor in ELF files.
#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;

/// The formats that are registered here.
#[derive(Debug, Default)]
pub struct Formats(Mutex<Option<(Instant, Arc<Vec<Format>>)>>);

impl Formats {
    /// Those that are enabled now.
    pub fn now(&self) -> Arc<Vec<Format>> {
        let mut known = lock(&self.0);
        if let Some((_, formats)) = known.as_ref().filter(|(since, _)| since.elapsed() < FRESH) {
            return formats.clone();
        }
        let formats = Arc::new(registered(Path::new(REGISTRY)));
        *known = Some((Instant::now(), formats.clone()));
        formats
    }
}

fn registered(registry: &Path) -> Vec<Format> {
    let switched_off = std::fs::read(registry.join("status")).is_ok_and(|status| status.starts_with(b"disabled"));
    let Ok(entries) = std::fs::read_dir(registry) else { return Vec::new() };
    let formats = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_vec();
        if matches!(&name[..], b"status" | b"register") {
            return None;
        }
        parse(&name, &std::fs::read_to_string(entry.path()).ok()?)
    });
    if switched_off { Vec::new() } else { formats.take(FORMATS_MAX).collect() }
}

/// A format as its file shows it; `None` if it is not enabled.
fn parse(name: &[u8], text: &str) -> Option<Format> {
    let mut lines = text.lines();
    if lines.next()? != "enabled" {
        return None;
    }
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    let sign = match value("extension") {
        Some(extension) => Sign::Extension(extension.trim_start_matches('.').into()),
        None => Sign::Magic {
            offset: value("offset")?.parse().ok()?,
            magic: hex(value("magic")?)?,
            mask: value("mask").map_or(Some(Vec::new()), hex)?,
        },
    };
    Some(Format { name: name.to_vec(), sign })
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    text.as_bytes().chunks(2).map(byte).collect()
}

/// Why the program in this file can be run here, if at all, and at no worker; `None`: it may run anywhere.
pub fn only_here(program: &TreePath, watch: &Watch) -> Option<String> {
    let mut head = Vec::new();
    let file = open_unseen(Path::new(std::ffi::OsStr::from_bytes(program.as_bytes()))).ok()?;
    file.take(HEAD_BYTES as u64).read_to_end(&mut head).ok()?;
    let name = printable(program.name());
    if let Some(format) = watch.format_of(program.as_bytes(), &head) {
        let kind = printable(&format.name);
        return Some(format!(
            "{name} is a program of the kind {kind}, for which this machine has an interpreter (binfmt_misc)"
        ));
    }
    if watch::is_narrow(&head) {
        return Some(format!("{name} is a program for 32-bit processors, which workers do not run"));
    }
    let machine = head.get(18..20).map(|number| u16::from_le_bytes([number[0], number[1]]));
    let is_foreign = head.starts_with(b"\x7fELF") && machine.is_some_and(|machine| machine != MACHINE);
    is_foreign.then(|| format!("{name} is a program for another kind of processor"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registered_formats_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("status", "enabled\n");
        write("jar", "enabled\ninterpreter /usr/bin/jexec\nflags: \nextension .jar\n");
        write("qemu", "enabled\ninterpreter /usr/bin/qemu\nflags: OCF\noffset 2\nmagic 7f45\nmask fff0\n");
        write("off", "disabled\ninterpreter /x\nflags: \nextension .x\n");
        let mut found = registered(folder.path());
        found.sort_by(|one, other| one.name.cmp(&other.name));
        let qemu = Sign::Magic { offset: 2, magic: vec![0x7f, 0x45], mask: vec![0xff, 0xf0] };
        let jar = Format { name: b"jar".to_vec(), sign: Sign::Extension(b"jar".to_vec()) };
        assert_eq!(found, [jar, Format { name: b"qemu".to_vec(), sign: qemu }]);
        write("status", "disabled\n");
        assert_eq!(registered(folder.path()), []);
        assert_eq!(registered(&folder.path().join("nothing")), []);
    }

    #[test]
    fn programs_for_other_processors_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = TreePath::parse(folder.path().join("p").as_os_str().as_bytes()).unwrap();
        let of = |head: &[u8]| {
            std::fs::write(folder.path().join("p"), head).unwrap();
            only_here(&path, &Watch::default())
        };
        let elf = |class: u8, machine: u16| {
            let mut head = [b"\x7fELF".as_slice(), &[class], &[0; 13]].concat();
            head.extend(machine.to_le_bytes());
            head
        };
        assert!(of(&elf(1, 3)).unwrap().contains("32-bit"));
        assert!(of(&elf(2, 8)).unwrap().contains("another kind of processor"));
        assert_eq!(of(&elf(2, MACHINE)), None);
        assert_eq!(of(b"#!/bin/sh\n"), None);
        assert_eq!(of(b""), None);
    }
}

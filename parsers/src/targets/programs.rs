//! Programs of a client, whoever wrote them: ELF files, scripts, and the cache of the dynamic linker.

use super::SMALL;
use crate::{Draw, Target};
use client::views::closure::{linker_cache, read_program};
use std::fs::File;
use std::io::Write;

/// ELF files.
pub const ELF: Target = Target { name: "elf", check: check_elf, draw: draw_elf, heap: |_| ELF_BYTES_MAX };
/// The first line of a script.
pub const SCRIPT: Target = Target { name: "script", check: check_script, draw: draw_script, heap: |_| SMALL };
/// `/etc/ld.so.cache`.
pub const LINKER_CACHE: Target =
    Target { name: "linker_cache", check: check_cache, draw: draw_cache, heap: |bytes| SMALL + 16 * bytes.len() };

/// What the names of one file may take: 512 libraries of 4 KB each, and the sections beside them.
const ELF_BYTES_MAX: usize = 4 << 20;
/// Longest name that is believed, in bytes.
const NAME_BYTES_MAX: usize = 4096;

fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(bytes).expect("it is written");
    file
}

fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.contains(&0)
}

fn check_elf(bytes: &[u8]) -> bool {
    let program = read_program(&file_of(bytes));
    assert!(program.level <= 4, "level {}", program.level);
    let names = program.names.iter().flatten();
    assert!(names.clone().count() <= 600, "{} names", names.count());
    assert!(names.clone().all(|name| is_name(name)), "a name that no file has");
    program.names.is_some()
}

fn check_script(bytes: &[u8]) -> bool {
    let program = read_program(&file_of(bytes));
    let Some(line) = &program.script else { return false };
    assert!(bytes.starts_with(b"#!") && program.names.is_none());
    let is_word = |word: &[u8]| !word.is_empty() && word.len() <= 256 && !word.iter().any(u8::is_ascii_whitespace);
    assert!(line.iter().all(|word| is_word(word)) && (1..=2).contains(&line.len()));
    true
}

fn check_cache(bytes: &[u8]) -> bool {
    let found = linker_cache(bytes);
    assert!(found.len() <= bytes.len() / 24);
    assert!(
        found
            .iter()
            .flat_map(|(name, path)| [name, path])
            .all(|text| text.len() <= NAME_BYTES_MAX && !text.contains(&0))
    );
    !found.is_empty()
}

fn put(bytes: &mut Vec<u8>, at: usize, number: u64, width: usize) {
    let end = at + width;
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[at..end].copy_from_slice(&number.to_le_bytes()[..width]);
}

/// Kinds of segments that are read, and one that is not.
const SEGMENTS: [u64; 5] = [1, 2, 3, 0x6474_e553, 7];
/// Tags of the dynamic section that are read, its end, and one that is not.
const TAGS: [u64; 7] = [1, 5, 15, 29, 1, 1, 9];

/// A program of 64 bits, whose segments overlap and repeat as no linker has them.
fn draw_elf(draw: &mut Draw<'_>) -> Vec<u8> {
    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    put(&mut bytes, 18, 62, 2);
    put(&mut bytes, 32, 64, 8);
    put(&mut bytes, 54, 56, 2);
    let segments = 1 + draw.below(12) as u64;
    let times = if draw.flag() { 1 } else { 1 + draw.below(40) as u64 };
    put(&mut bytes, 56, segments * times, 2);
    let body = 64 + 56 * segments * times;
    for at in 0..segments * times {
        let head = 64 + 56 * at as usize;
        let kind = if at == 0 { 1 } else { draw.of(&SEGMENTS) };
        // The first one maps all of the file to where it is, so that addresses are offsets.
        let (offset, size) = if at == 0 { (0, 1 << 20) } else { (body + draw.below(64) as u64, draw.number()) };
        put(&mut bytes, head, kind, 4);
        put(&mut bytes, head + 8, offset, 8);
        put(&mut bytes, head + 16, if at == 0 { 0 } else { draw.number() }, 8);
        put(&mut bytes, head + 32, size, 8);
    }
    let table = body + 1024;
    for entry in 0..draw.below(60) {
        let at = body as usize + 16 * entry;
        let tag = draw.of(&TAGS);
        put(&mut bytes, at, tag, 8);
        put(&mut bytes, at + 8, if tag == 5 { table } else { draw.below(64) as u64 }, 8);
    }
    put(&mut bytes, table as usize, 0, 8);
    bytes.extend((0..draw.below(80)).map(|_| draw.of(b"lib.so.6\0/")));
    bytes
}

fn draw_script(draw: &mut Draw<'_>) -> Vec<u8> {
    let words = draw.list(3, |draw| draw.words(9)).join(&b' ');
    [&b"#! /bin/sh "[..], &words, b"\n", &draw.blob(300)].concat()
}

fn draw_cache(draw: &mut Draw<'_>) -> Vec<u8> {
    let mut bytes = b"glibc-ld.so.cache1.1".to_vec();
    let count = 1 + draw.below(9);
    put(&mut bytes, 20, count as u64, 4);
    let texts = 48 + 24 * count;
    for entry in 0..count {
        put(&mut bytes, 48 + 24 * entry + 4, texts as u64 + draw.below(16) as u64, 4);
        put(&mut bytes, 48 + 24 * entry + 8, texts as u64 + draw.below(16) as u64, 4);
    }
    put(&mut bytes, texts, 0, 0);
    bytes.resize(texts, 0);
    bytes.extend_from_slice(b"libc.so.6\0/usr/lib/libc.so.6\0");
    bytes
}

//! The files of a hub's journal, as a disk gives them back that has lost or changed something.

use crate::{Draw, Target};
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::journal::{Journal, Options, Recovered, Seq, dump, verify};

/// Journals that are written, damaged and opened.
pub const JOURNAL: Target =
    Target { name: "journal_files", check, draw: |draw| draw.blob(40), heap: |bytes| HEAP + 64 * bytes.len() };

/// Buffers of batches and chunks.
const HEAP: usize = 8 << 20;
/// Longest record.
const RECORD_BYTES_MAX: usize = 700;
/// What a disk writes at once.
const SECTOR_BYTES: usize = 512;
/// Longer than any disk takes.
const FLUSH_LIMIT: Duration = Duration::from_secs(20);

fn options() -> Options {
    Options { segment_bytes: 8192, buffer_bytes_max: 4096, bytes_max: 256 << 10, ..Options::default() }
}

fn open(folder: &Path) -> Option<(Journal, Recovered)> {
    Journal::open(folder, options(), Box::new(|_| ())).ok()
}

/// Writes a journal as the bytes say, damages its files, and opens it. What it gives then is what was written: from the beginning, or
/// from a snapshot, in order and nothing else; or it says that it is damaged.
fn check(bytes: &[u8]) -> bool {
    let mut draw = Draw::new(bytes);
    let folder = tempfile::tempdir().expect("a folder");
    let records: Vec<Vec<u8>> = draw.list(24, |draw| {
        let len = draw.below(RECORD_BYTES_MAX);
        vec![draw.byte(); len]
    });
    let floor = write(folder.path(), &records, &mut draw);
    let is_damaged = draw.flag();
    let is_whole_file = is_damaged && damage(folder.path(), &mut draw);
    let report = verify(folder.path());
    if let Ok(entries) = dump(folder.path(), Seq(0)) {
        for entry in entries.map_while(Result::ok) {
            assert_eq!(records.get(entry.seq.0 as usize - 1), Some(&entry.record), "record {} is another", entry.seq);
        }
    }
    let Some((journal, recovered)) = open(folder.path()) else {
        assert!(is_damaged, "a sound journal is not opened: {report:?}");
        return true;
    };
    let last = recovered.last;
    assert!(is_damaged || last.0 == records.len() as u64, "{last} of {} records are left", records.len());
    // Of the last batch nobody can say whether a crash has torn it. What was durable before it is there.
    assert!(is_whole_file || last.0 >= floor, "{last} records of {floor} that were durable: {report:?}");
    let mut next = recovered.snapshot.as_ref().map_or(0, |snapshot| snapshot.seq.0) + 1;
    for entry in recovered.records {
        let Ok(entry) = entry else {
            assert!(is_damaged, "a sound journal has a damaged record");
            return true;
        };
        assert_eq!((entry.seq.0, Some(&entry.record)), (next, records.get(next as usize - 1)), "records are others");
        next += 1;
    }
    assert_eq!(next, last.0 + 1, "records are missing");
    drop(journal);
    true
}

/// Writes the records. The last one that was durable before the last batch began.
fn write(folder: &Path, records: &[Vec<u8>], draw: &mut Draw<'_>) -> u64 {
    let (journal, _) = open(folder).expect("an empty folder is a new journal");
    let mut floor = 0;
    for (number, record) in records.iter().enumerate() {
        let seq = journal.append(record).or_else(|_| {
            // What waits for the disk is bounded.
            journal.flush_wait(Seq(number as u64), FLUSH_LIMIT)?;
            journal.append(record)
        });
        let seq = seq.expect("there is room");
        let (flushes, saves) = (draw.byte().is_multiple_of(4), draw.byte() % 16 == 15);
        if flushes || saves {
            journal.flush_wait(seq, FLUSH_LIMIT).expect("it is durable");
            floor = if seq.0 < records.len() as u64 { seq.0 } else { floor };
        }
        if saves {
            let state = vec![number as u8; draw.below(RECORD_BYTES_MAX)];
            journal.write_snapshot(seq, 1, &mut |out| out.write_all(&state)).expect("it is written");
        }
    }
    floor
}

/// Damages some bytes of a file, cuts it short, or takes it away; whether it was one of the last two.
fn damage(folder: &Path, draw: &mut Draw<'_>) -> bool {
    let entries = std::fs::read_dir(folder).expect("it is there").flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| !path.ends_with("lock")).collect();
    files.sort();
    let file = files[draw.below(files.len())].clone();
    let mut bytes = std::fs::read(&file).expect("it is read");
    match draw.byte() % 4 {
        0 => {
            std::fs::remove_file(file).expect("it is removed");
            true
        }
        1 => {
            bytes.truncate(draw.below(bytes.len() + 1));
            std::fs::write(file, bytes).expect("it is written");
            true
        }
        // The first sectors, or part of a sector: what a disk loses at once.
        2 => {
            bytes.iter_mut().take(2 * SECTOR_BYTES).for_each(|byte| *byte = 0);
            std::fs::write(file, bytes).expect("it is written");
            false
        }
        _ => {
            let sector = draw.below(bytes.len().div_ceil(SECTOR_BYTES));
            let end = ((sector + 1) * SECTOR_BYTES).min(bytes.len());
            let mut part = bytes[sector * SECTOR_BYTES..end].to_vec();
            let len = part.len();
            draw.damage(&mut part);
            part.resize(len, 0);
            bytes[sector * SECTOR_BYTES..end].copy_from_slice(&part);
            std::fs::write(file, bytes).expect("it is written");
            false
        }
    }
}

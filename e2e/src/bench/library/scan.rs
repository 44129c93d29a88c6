//! The program that tasks run: scans those records of a library that begin within a range of its bytes.

use super::genes::{self, Hit, RECORD_BYTES_MAX};
use crate::error::{Context, Error, Result};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;

/// First argument with which the suite's binary is that program.
pub const SCAN_SUBCOMMAND: &str = "scan-library";

/// Is that program: `<library> <queries> <from> <to>`. Prints a line for each hit: query, score, record.
pub fn scan(arguments: &[String]) -> ExitCode {
    let [library, queries, from, to] = arguments else { return ExitCode::FAILURE };
    let (Ok(from), Ok(to)) = (from.parse(), to.parse()) else { return ExitCode::FAILURE };
    let told = range(Path::new(library), Path::new(queries), from, to).and_then(|hits| {
        let text: String = hits.iter().map(|hit| format!("{} {} {}\n", hit.query, -hit.below, hit.record)).collect();
        std::io::stdout().write_all(text.as_bytes()).context(|| "cannot tell the hits".to_owned())
    });
    match told {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The hits that such a program told.
pub fn hits(text: &str) -> Result<Vec<Hit>> {
    let hit = |line: &str| {
        let mut words = line.split(' ');
        let query = words.next()?.parse().ok()?;
        let score: i32 = words.next()?.parse().ok()?;
        Some(Hit { query, below: -score, record: words.next()?.to_owned() })
    };
    let wrong = |line: &str| Error::Product(format!("a scan said `{line}`"));
    text.lines().map(|line| hit(line).ok_or_else(|| wrong(line))).collect()
}

/// Scans the records that begin there.
pub fn range(library: &Path, queries: &Path, from: u64, to: u64) -> Result<Vec<Hit>> {
    let file = File::open(library).at("open", library)?;
    let queries = std::fs::read(queries).at("read", queries)?;
    // The last record may end beyond.
    let mut text = vec![0; (to.saturating_sub(from)) as usize + RECORD_BYTES_MAX];
    let mut read = 0;
    while read < text.len() {
        match file.read_at(&mut text[read..], from + read as u64).at("read", library)? {
            0 => break,
            count => read += count,
        }
    }
    text.truncate(read);
    let begins = |at: usize| text[at..].iter().position(|byte| *byte == b'>').map_or(text.len(), |after| at + after);
    let end = begins(text.len().min(to.saturating_sub(from) as usize));
    Ok(genes::scan(&text[begins(0).min(end)..end], &queries))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn ranges_cover_each_record_once() {
        let scratch = Scratch::new().unwrap();
        let (library, queries) = (scratch.path().join("library"), scratch.path().join("queries"));
        let text = genes::library(20_000, 3);
        let asked = genes::queries(&text, 2, 4);
        std::fs::write(&library, &text).unwrap();
        std::fs::write(&queries, &asked).unwrap();
        let whole = genes::scan(&text, &asked);
        for cuts in [vec![1, 2, 3, 777, 9_000], vec![5_000, 10_000, 15_000], vec![]] {
            let bounds: Vec<u64> = [vec![0], cuts, vec![text.len() as u64]].concat();
            let parts = bounds.windows(2).map(|pair| range(&library, &queries, pair[0], pair[1]).unwrap());
            assert_eq!(genes::best(parts.flatten().collect()), whole);
        }
        let told: String = whole.iter().map(|hit| format!("{} {} {}\n", hit.query, -hit.below, hit.record)).collect();
        assert_eq!(hits(&told).unwrap(), whole);
        assert!(hits("0 x r1\n").is_err());
    }
}

//! A library of DNA sequences and queries that resemble some of them, by chance from a seed; and what a scan of it is: local alignments.

use crate::bench::tasks::Dice;

const BASES: &[u8; 4] = b"ACGT";
/// Bases of a record: from the least to the most, evenly.
const RECORD_BASES: (usize, usize) = (300, 900);
/// The longest text of a record: its name, its bases, two line breaks.
pub const RECORD_BYTES_MAX: usize = RECORD_BASES.1 + 32;
/// Bases of a query.
const QUERY_BASES: usize = 120;
/// Of a hundred bases of a query so many are other than in the record that it was taken from, and as many gone.
const CHANGED_PERCENT: usize = 5;
/// What a base counts that is the same, or another one; what a gap counts, and each base of it (as in BLASTN).
const SAME: i32 = 2;
const OTHER: i32 = -3;
const GAP: i32 = 5;
const GAP_BASE: i32 = 2;
/// Hits of each query that are told.
const HITS: usize = 10;

/// A record that a query resembles.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hit {
    /// Which query, from 0.
    pub query: usize,
    /// The score of the best local alignment, less than 0 so that the best is first.
    pub below: i32,
    /// The record's name.
    pub record: String,
}

/// A library of about so many bytes, in FASTA: a line `>name`, and a line of bases.
pub fn library(bytes: usize, seed: u64) -> Vec<u8> {
    let mut dice = Dice(seed);
    let mut text = Vec::with_capacity(bytes + RECORD_BYTES_MAX);
    let mut number = 0;
    while text.len() < bytes {
        text.extend(format!(">r{number:07}\n").bytes());
        let bases = RECORD_BASES.0 + dice.below(RECORD_BASES.1 - RECORD_BASES.0);
        text.extend((0..bases).map(|_| dice.of(BASES)));
        text.push(b'\n');
        number += 1;
    }
    text
}

/// So many queries, each a piece of a record of the library that has changed, a line each.
pub fn queries(library: &[u8], count: usize, seed: u64) -> Vec<u8> {
    let mut dice = Dice(seed);
    let lines: Vec<&[u8]> = library.split(|byte| *byte == b'\n').filter(|line| line.len() >= RECORD_BASES.0).collect();
    let mut text = Vec::new();
    for _ in 0..count {
        let line = dice.of(&lines);
        let from = dice.below(line.len() - QUERY_BASES);
        for base in &line[from..from + QUERY_BASES] {
            match dice.below(100) {
                chance if chance < CHANGED_PERCENT => text.push(dice.of(BASES)),
                chance if chance < 2 * CHANGED_PERCENT => {}
                _ => text.push(*base),
            }
        }
        text.push(b'\n');
    }
    text
}

/// The best hits of each query among the records of a text, in order.
pub fn scan(text: &[u8], queries: &[u8]) -> Vec<Hit> {
    let queries: Vec<&[u8]> = queries.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    let mut hits = Vec::new();
    let mut room = Vec::new();
    let mut lines = text.split(|byte| *byte == b'\n');
    while let (Some(name), Some(bases)) = (lines.next(), lines.next()) {
        for (query, of) in queries.iter().enumerate() {
            let below = -score(of, bases, &mut room);
            hits.push(Hit { query, below, record: String::from_utf8_lossy(&name[1..]).into_owned() });
        }
        if hits.len() > 4_096 {
            hits = best(hits);
        }
    }
    best(hits)
}

/// The best hits of each query among some of several scans, in order.
pub fn best(mut hits: Vec<Hit>) -> Vec<Hit> {
    hits.sort_unstable();
    hits.chunk_by(|one, other| one.query == other.query).flat_map(|of| of.iter().take(HITS).cloned()).collect()
}

/// The score of the best local alignment (Smith, Waterman, 1981), with gaps that cost more to open than to go on (Gotoh, 1982).
fn score(query: &[u8], bases: &[u8], room: &mut Vec<[i32; 2]>) -> i32 {
    const NONE: i32 = i32::MIN / 2;
    // By base of the query: the best alignment that ends here, and the best that ends with a gap in the query.
    room.clear();
    room.resize(query.len(), [0, NONE]);
    let mut most = 0;
    for base in bases {
        let (mut diagonal, mut left, mut gap) = (0, 0, NONE);
        for (of, [best, across]) in query.iter().zip(room.iter_mut()) {
            *across = (*across).max(*best - GAP) - GAP_BASE;
            gap = gap.max(left - GAP) - GAP_BASE;
            let same = diagonal + if of == base { SAME } else { OTHER };
            diagonal = *best;
            left = same.max(*across).max(gap).max(0);
            *best = left;
            most = most.max(left);
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignments_have_the_scores_that_are_known() {
        let mut room = Vec::new();
        assert_eq!(score(b"ACGT", b"TTACGTTT", &mut room), 8);
        assert_eq!(score(b"AAAA", b"CCCC", &mut room), 0);
        // Nine the same, one other: 18 - 3; a gap of one among sixteen: 32 - 7.
        assert_eq!(score(b"ACGTACGTAC", b"ACGTTCGTAC", &mut room), 15);
        assert_eq!(score(b"ACGTACGTCAGTCAGT", b"ACGTACGTGCAGTCAGT", &mut room), 25);
        assert_eq!(score(b"ACGTACGTGCAGTCAGT", b"ACGTACGTCAGTCAGT", &mut room), 25);
    }

    #[test]
    fn what_queries_were_taken_from_is_found_however_the_library_is_cut() {
        let library = library(60_000, 7);
        let queries = queries(&library, 3, 8);
        let whole = scan(&library, &queries);
        assert_eq!(whole.len(), 3 * HITS);
        assert!(whole.chunks(HITS).all(|of| of[0].below < of[1].below - 60), "{whole:?}");
        let records: Vec<usize> = (0..library.len()).filter(|at| library[*at] == b'>').collect();
        let cut = records[records.len() / 3];
        let parts = [scan(&library[..cut], &queries), scan(&library[cut..], &queries)].concat();
        assert_eq!(best(parts), whole);
    }
}

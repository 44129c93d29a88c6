//! What came of what was asked of a client, as far as results rest on it: which pieces its lazily bound files have, and what it refused.

use base::basis::refusal;
use base::{Digest, Listed};
use std::collections::{BTreeMap, HashMap};
use wire::fetch::{FetchError, UNANSWERED};

/// Most pieces of lazily bound files whose names are remembered: of 50 GB.
const PIECES_MAX: usize = 200_000;
/// Most refusals that are remembered: what runs while there are more of them has no result.
const REFUSALS_MAX: usize = 10_000;

/// The pieces of lazily bound files that were fetched: the names of their bytes.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    of: HashMap<Digest, Of>,
    count: usize,
}

/// The pieces of one file.
#[derive(Debug, Default)]
struct Of {
    last: HashMap<u64, Digest>,
    /// What came in the place of something else before: tasks may have read either.
    before: Vec<(u64, Digest)>,
}

impl Pieces {
    /// The name of the bytes of this piece of the file with this name.
    pub(super) fn get(&self, file: &Digest, number: u64) -> Option<Digest> {
        self.of.get(file)?.last.get(&number).copied()
    }

    /// A piece has come.
    pub(super) fn put(&mut self, file: Digest, number: u64, bytes: Digest) {
        if self.count >= PIECES_MAX {
            *self = Self::default();
        }
        let of = self.of.entry(file).or_default();
        let before = of.last.insert(number, bytes);
        self.count += usize::from(before != Some(bytes));
        of.before.extend(before.filter(|before| *before != bytes).map(|before| (number, before)));
    }

    /// All that have come of these files.
    pub(super) fn listed(&self, files: &[Digest]) -> Vec<(Digest, Listed)> {
        let of = |file: &Digest| {
            let Of { last, before } = self.of.get(file)?;
            let all = last.iter().map(|(number, bytes)| (*number, *bytes)).chain(before.iter().copied());
            Some((*file, Listed::of(all.collect())))
        };
        files.iter().filter_map(of).collect()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.count
    }
}

/// What a client refused, for a reason that it said: paths that it did not bind, names of contents that it did not give, as
/// [`base::basis::refusal`]s.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// How many there were.
    count: u64,
    /// The last of each name.
    last: HashMap<Vec<u8>, u64>,
    names: BTreeMap<u64, Vec<u8>>,
    /// How many there had been after the last one that is forgotten.
    forgotten: u64,
}

impl Refusals {
    /// `name` could not be had. That nobody could be asked is no refusal.
    pub(super) fn note(&mut self, name: &[u8], error: &FetchError) {
        if error.errno() == UNANSWERED {
            return;
        }
        let refusal = refusal(name, error.errno());
        if let Some(before) = self.last.insert(refusal.clone(), self.count) {
            self.names.remove(&before);
        }
        self.names.insert(self.count, refusal);
        self.count += 1;
        if self.names.len() > REFUSALS_MAX
            && let Some((number, oldest)) = self.names.pop_first()
        {
            self.last.remove(&oldest);
            self.forgotten = number + 1;
        }
    }

    /// How many there were.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Those that came when there had been so many; `None` if they are not all known any more.
    pub(super) fn since(&self, count: u64) -> Option<Vec<Vec<u8>>> {
        (self.forgotten <= count).then(|| self.names.range(count..).map(|(_, name)| name.clone()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_known_since_a_moment_or_not_at_all() {
        let refused = |errno| FetchError::Refused { message: "kept back".into(), errno };
        let mut refusals = Refusals::default();
        assert_eq!(refusals.since(refusals.count()), Some(Vec::new()));
        refusals.note(b"/a", &refused(13));
        refusals.note(b"/b", &refused(UNANSWERED));
        let moment = refusals.count();
        refusals.note(b"/a", &refused(13));
        assert_eq!(refusals.since(moment), Some(vec![refusal(b"/a", 13)]), "the same was said again");
        refusals.note(b"/a", &refused(5));
        refusals.note(b"/a", &refused(13));
        assert_eq!(refusals.since(moment), Some(vec![refusal(b"/a", 5), refusal(b"/a", 13)]), "each once");
        (0..REFUSALS_MAX).for_each(|number| refusals.note(number.to_string().as_bytes(), &refused(5)));
        assert_eq!(refusals.since(moment), None);
        assert_eq!(refusals.since(refusals.count()), Some(Vec::new()));
    }

    #[test]
    fn pieces_are_listed_by_file() {
        let name = |number| Digest([number; 32]);
        let mut pieces = Pieces::default();
        pieces.put(name(1), 0, name(8));
        pieces.put(name(1), 7, name(9));
        pieces.put(name(1), 7, name(9));
        pieces.put(name(2), 0, name(8));
        assert_eq!((pieces.len(), pieces.get(&name(1), 7), pieces.get(&name(3), 7)), (3, Some(name(9)), None));
        let listed = pieces.listed(&[name(3), name(1)]);
        assert_eq!(listed, [(name(1), Listed::of(vec![(7, name(9)), (0, name(8))]))]);
        pieces.put(name(2), 0, name(5));
        pieces.put(name(2), 0, name(8));
        let all = Listed::of(vec![(0, name(8)), (0, name(5))]);
        assert_eq!(pieces.listed(&[name(2)]), [(name(2), all)], "what came meanwhile may have been read");
    }
}

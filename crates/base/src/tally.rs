//! Reasons, counted: how often something was refused or done in another way, and why, without the names, paths and numbers in it.

use std::collections::BTreeMap;

/// Reasons that are told apart; what comes then is counted under [`OTHERS`].
const REASONS_MAX: usize = 48;
/// Longest reason, in characters.
const REASON_MAX: usize = 100;
/// What reasons count under for which there is no room.
pub const OTHERS: &str = "other reasons";
/// What stands for a name, a path or a number.
const SOMETHING: &str = "…";

/// How often each reason was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<String, u64>);

impl Tally {
    /// Counts what a sentence says.
    pub fn add(&mut self, why: &str) {
        let reason = reason_of(why);
        let has_room = self.0.contains_key(&reason) || self.0.len() < REASONS_MAX;
        let count = self.0.entry(if has_room { reason } else { OTHERS.to_owned() }).or_default();
        *count = count.saturating_add(1);
    }

    /// How often each was given.
    pub fn counts(&self) -> &BTreeMap<String, u64> {
        &self.0
    }
}

/// A sentence without what differs from one time to the next.
pub fn reason_of(why: &str) -> String {
    let line = why.lines().next().unwrap_or_default();
    // What is in brackets is beside the point.
    let line = line.split(" (").next().unwrap_or_default();
    let mut words: Vec<&str> = Vec::new();
    let mut length = 0;
    for word in line.split_whitespace() {
        let names = word.contains(|letter: char| letter.is_ascii_digit() || "/\"'`~<>=@\\".contains(letter));
        let word = if names { SOMETHING } else { word };
        if word == SOMETHING && words.last() == Some(&SOMETHING) {
            continue;
        }
        length += word.chars().count() + 1;
        if length > REASON_MAX {
            break;
        }
        words.push(word);
    }
    match words.join(" ").trim_end_matches([':', ',', ';', '.']) {
        "" => "no reason".to_owned(),
        reason => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_paths_and_numbers_are_left_out() {
        let reasons = [
            (
                "quicker here: 1.0 ms here, about 76 ms there (round trip 70 ms)",
                "quicker here: … ms here, about … ms there",
            ),
            (
                "/tmp/a is a socket, and what is at its other end is on this machine\nmore",
                "… is a socket, and what is at its other end is on this machine",
            ),
            (
                "nothing committed: ~/.bashrc is outside the write policy",
                "nothing committed: … is outside the write policy",
            ),
            ("`x` \"y\" 7 gone:", "… gone"),
            ("", "no reason"),
        ];
        for (why, reason) in reasons {
            assert_eq!(reason_of(why), reason);
        }
        assert!(reason_of(&"word ".repeat(100)).chars().count() <= REASON_MAX);
        assert!(reason_of(&"w".repeat(1000)).chars().count() <= REASON_MAX);
    }

    #[test]
    fn reasons_are_counted_and_bounded() {
        let mut tally = Tally::default();
        for _ in 0..3 {
            tally.add("no room for 5 bytes");
        }
        for letters in 0..REASONS_MAX * 2 {
            tally.add(&"a".repeat(letters + 1));
        }
        assert_eq!(tally.counts()["no room for … bytes"], 3);
        assert!(tally.counts().len() <= REASONS_MAX + 1, "{}", tally.counts().len());
        assert!(tally.counts()[OTHERS] > 0);
        assert_eq!(tally.counts().values().sum::<u64>(), 3 + 2 * REASONS_MAX as u64);
    }
}

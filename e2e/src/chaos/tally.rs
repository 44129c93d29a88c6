//! What a campaign did and saw, by kind.

use super::jobs::Ending;
use std::collections::BTreeMap;
use std::time::Duration;

/// Counts.
#[derive(Debug, Default)]
pub struct Tally {
    /// Rounds.
    pub rounds: u64,
    faults: BTreeMap<String, usize>,
    /// Commands by kind and end.
    commands: BTreeMap<(&'static str, Ending), usize>,
    /// Looks at what is left after a round.
    pub looks: usize,
    /// What failed commands said, by its words without numbers.
    said: BTreeMap<String, usize>,
    /// The longest that something took, by what it is, and in which round.
    slowest: BTreeMap<String, (Duration, u64)>,
}

/// Most different things that failed commands said.
const SAID_MAX: usize = 100;

impl Tally {
    /// A fault of this kind took place.
    pub fn fault(&mut self, kind: String) {
        *self.faults.entry(kind).or_default() += 1;
    }

    /// A command of this kind ended.
    pub fn command(&mut self, kind: &'static str, ending: Ending) {
        *self.commands.entry((kind, ending)).or_default() += 1;
    }

    /// A command failed and said this.
    pub fn said(&mut self, said: &str) {
        let words = said.lines().next().unwrap_or_default();
        let words: String =
            words.chars().map(|letter| if letter.is_ascii_digit() { '#' } else { letter }).take(150).collect();
        if self.said.len() < SAID_MAX || self.said.contains_key(&words) {
            *self.said.entry(words).or_default() += 1;
        }
    }

    /// Something took so long, in this round.
    pub fn took(&mut self, what: &str, time: Duration, round: u64) {
        let slowest = self.slowest.entry(what.to_owned()).or_default();
        *slowest = (*slowest).max((time, round));
    }

    /// All commands.
    pub fn commands(&self) -> usize {
        self.commands.values().sum()
    }

    /// Commands that came to this end.
    pub fn ended(&self, ending: Ending) -> usize {
        self.commands.iter().filter(|((_, of), _)| *of == ending).map(|(_, count)| count).sum()
    }

    /// Prints all of it, a line for each kind.
    pub fn print(&self) {
        let faults: usize = self.faults.values().sum();
        println!(
            "chaos: {} rounds, {faults} faults, {} commands, {} looks at what is left",
            self.rounds,
            self.commands(),
            self.looks
        );
        for (kind, count) in &self.faults {
            println!("  fault    {kind}: {count}");
        }
        for ((kind, ending), count) in &self.commands {
            println!("  command  {kind}, {}: {count}", ending.name());
        }
        for (words, count) in &self.said {
            println!("  said     {count} times: {words}");
        }
        for (what, (time, round)) in &self.slowest {
            println!("  slowest  {what}: {:.1} s, in round {round}", time.as_secs_f64());
        }
    }
}

//! `steps`: a search for the events that take the most steps.
//!
//! The bound of an event's steps must not depend on how many hosts and tasks there are. So the same hostile crowd, from the same
//! seeds, is let loose on a table with one host, which may leave and another come, and on tables with many: what it finds must be
//! about the same. It is a [`Crowd`] with a [`Mood`] that changes: all wait, all expires, all is cancelled, all fails.

use super::Options;
use super::crowd::{Crowd, Mood};
use super::dice::Dice;
use crate::bench::samples::Figures;
use crate::error::Result;
use std::collections::BTreeMap;
use std::time::Duration;

/// Hosts, what figures of that size end in, and how many events are tried by each seed.
const SIZES: [(usize, &str, usize); 3] =
    [(1, "1_host", 1_500_000), (10_000, "10k_hosts", 1_500_000), (1_000_000, "1m_hosts", 3_000_000)];
/// Events until the mood changes.
const MOOD: usize = 1500;
/// Seeds of a small table; a large one is driven by one seed on and on.
const SEEDS: u64 = 4;

/// The event of a kind that took the most steps.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Steps.
    pub steps: u32,
    /// What the crowd was up to then.
    pub mood: Mood,
    /// How long it took that once: with whatever else the machine did.
    pub took: Duration,
    /// Events of the kind, and how many of them were refused.
    pub events: usize,
    /// See `events`.
    pub refused: usize,
}

/// By kind of event.
pub type Most = BTreeMap<&'static str, Found>;

/// Searches at all sizes.
pub fn run(options: &Options, figures: &mut Figures) -> Result<()> {
    for (hosts, label, events) in SIZES.iter().filter(|(hosts, ..)| options.hosts.is_none_or(|wanted| wanted == *hosts))
    {
        let mut most = Most::new();
        let seeds = if *hosts < 1_000_000 { SEEDS } else { 1 };
        for seed in 0..seeds {
            merge(&mut most, search(*hosts, (*hosts).max(20_000), seed, *events));
        }
        for (kind, Found { steps, mood, took, events, refused }) in &most {
            let us = took.as_secs_f64() * 1e6;
            eprintln!(
                "bench: {label}: {kind:<12} {steps:>6} steps in {us:>6.1} us, when {mood:?}; of {events}, {refused} refused"
            );
            figures.add(&format!("steps_max_{kind}_{label}"), Some((*steps).into()));
        }
        let all = most.values().map(|found| found.steps).max().unwrap_or_default();
        figures.add(&format!("steps_max_{label}"), Some(all.into()));
    }
    Ok(())
}

fn merge(most: &mut Most, more: Most) {
    for (kind, found) in more {
        let known = most.entry(kind).or_insert(Found { steps: 0, events: 0, refused: 0, ..found });
        let (events, refused) = (known.events + found.events, known.refused + found.refused);
        *known = if found.steps > known.steps { found } else { *known };
        (known.events, known.refused) = (events, refused);
    }
}

/// The most steps of each kind of event among so many, in a table of this size.
pub fn search(hosts: usize, tasks: usize, seed: u64, events: usize) -> Most {
    let mut crowd = Crowd::new(hosts, tasks, Dice(seed));
    crowd.gather();
    while crowd.events < events {
        let mood = Mood::ALL[crowd.dice.below(Mood::ALL.len())];
        let until = crowd.events + MOOD;
        while crowd.events < until {
            crowd.act(mood);
        }
    }
    crowd.most
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many hosts there are, no event takes more steps than there is a bound for.
    #[test]
    fn a_short_search_stays_below_the_bound() {
        for hosts in [1, 300] {
            let most = search(hosts, 2_000, 1, 60_000);
            assert!(most.len() >= 15, "{most:?}");
            assert!(most.values().all(|found| found.steps < STEPS_BOUND), "{hosts} hosts: {most:?}");
        }
    }

    /// What SPECIFICATION.md promises.
    const STEPS_BOUND: u32 = 8_001;
}

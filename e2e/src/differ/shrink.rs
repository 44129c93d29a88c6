//! Makes a program that fails smaller, while it still fails.
//!
//! It knows nothing of verbs: it leaves out steps, operations and bodies, and puts smaller words in the place of others.

use super::program::{Op, Program};
use std::time::{Duration, Instant};

/// Where an operation is: the step, then its place in each body.
type Place = Vec<usize>;

/// The smallest program found for which `fails` is true, within a number of trials and a time.
pub fn shrink(
    program: &Program,
    trials_max: usize,
    time_max: Duration,
    mut fails: impl FnMut(&Program) -> bool,
) -> Program {
    let end = Instant::now() + time_max;
    let mut best = program.clone();
    let mut trials = 0;
    let mut is_smaller = |candidate: &Program| {
        trials += 1;
        trials <= trials_max && Instant::now() < end && fails(candidate)
    };
    loop {
        let before = best.clone();
        leave_out(&mut best, &mut is_smaller);
        simplify(&mut best, &mut is_smaller);
        if best == before {
            return best;
        }
    }
}

/// Leaves out operations: many at once, then fewer, then one by one; then steps that are empty.
fn leave_out(best: &mut Program, fails: &mut impl FnMut(&Program) -> bool) {
    let mut part = places(best).len().div_ceil(2).max(1);
    loop {
        let mut from = places(best).len();
        while from > 0 {
            let all = places(best);
            let start = from.saturating_sub(part);
            let mut candidate = best.clone();
            // From behind, so that places stay what they are.
            all[start..from.min(all.len())].iter().rev().for_each(|place| remove(&mut candidate, place));
            if fails(&candidate) {
                *best = candidate;
            }
            from = start.min(places(best).len());
        }
        if part == 1 {
            break;
        }
        part = part.div_ceil(2);
    }
    for index in (0..best.steps.len()).rev() {
        let mut candidate = best.clone();
        candidate.steps.remove(index);
        if fails(&candidate) {
            *best = candidate;
        }
    }
}

/// Tries smaller words, plainer ways of running, and what children do without the child.
fn simplify(best: &mut Program, fails: &mut impl FnMut(&Program) -> bool) {
    for (name, value) in [("mounts", "no"), ("user", "root")] {
        let mut candidate = best.clone();
        candidate.words.iter_mut().filter(|(word, _)| word == name).for_each(|(_, old)| *old = value.into());
        if candidate != *best && fails(&candidate) {
            *best = candidate;
        }
    }
    for step in 0..best.steps.len() {
        for word in (0..best.steps[step].words.len()).rev() {
            let mut candidate = best.clone();
            candidate.steps[step].words.remove(word);
            if fails(&candidate) {
                *best = candidate;
            }
        }
    }
    let mut at = 0;
    while let Some(place) = places(best).get(at).cloned() {
        for candidate in simpler(best, &place) {
            if fails(&candidate) {
                *best = candidate;
                break;
            }
        }
        at += 1;
    }
}

/// The same program with one operation in simpler forms.
fn simpler(program: &Program, place: &Place) -> Vec<Program> {
    let Some(op) = get(program, place) else { return Vec::new() };
    let mut found = Vec::new();
    if !op.body.is_empty() {
        let mut candidate = program.clone();
        let body = op.body.clone();
        if let Some((list, at)) = list_of(&mut candidate, place) {
            list.splice(at..=at, body);
            found.push(candidate);
        }
    }
    for (index, word) in op.words.iter().enumerate().skip(1) {
        for smaller in smaller_words(word) {
            let mut candidate = program.clone();
            if let Some((list, at)) = list_of(&mut candidate, place) {
                list[at].words[index] = smaller;
                found.push(candidate);
            }
        }
    }
    found
}

/// Words that mean less: smaller numbers, fewer flags, one letter for a long name.
fn smaller_words(word: &[u8]) -> Vec<Vec<u8>> {
    let Ok(text) = std::str::from_utf8(word) else { return vec![b"s".to_vec()] };
    if let Ok(number) = text.parse::<u64>() {
        return [0, 1, number / 2].iter().filter(|less| **less < number).map(|less| less.to_string().into()).collect();
    }
    if text.contains('+') {
        let parts: Vec<&str> = text.split('+').collect();
        let without = |gone: usize| {
            let kept: Vec<&str> =
                parts.iter().enumerate().filter(|(at, _)| *at != gone).map(|(_, part)| *part).collect();
            kept.join("+").into_bytes()
        };
        return (1..parts.len()).map(without).collect();
    }
    if text.len() > 20 { vec![b"s".to_vec()] } else { Vec::new() }
}

fn places(program: &Program) -> Vec<Place> {
    fn add(ops: &[Op], place: &Place, all: &mut Vec<Place>) {
        for (at, op) in ops.iter().enumerate() {
            let own: Place = place.iter().copied().chain([at]).collect();
            all.push(own.clone());
            add(&op.body, &own, all);
        }
    }
    let mut all = Vec::new();
    program.steps.iter().enumerate().for_each(|(at, step)| add(&step.ops, &vec![at], &mut all));
    all
}

fn get<'a>(program: &'a Program, place: &Place) -> Option<&'a Op> {
    let (step, rest) = place.split_first()?;
    let (last, bodies) = rest.split_last()?;
    let list = bodies.iter().try_fold(&program.steps.get(*step)?.ops, |ops, at| Some(&ops.get(*at)?.body))?;
    list.get(*last)
}

/// The list that an operation is in, and where.
fn list_of<'a>(program: &'a mut Program, place: &Place) -> Option<(&'a mut Vec<Op>, usize)> {
    let (step, rest) = place.split_first()?;
    let (last, bodies) = rest.split_last()?;
    let mut list = &mut program.steps.get_mut(*step)?.ops;
    for at in bodies {
        list = &mut list.get_mut(*at)?.body;
    }
    (*last < list.len()).then_some((list, *last))
}

fn remove(program: &mut Program, place: &Place) {
    if let Some((list, at)) = list_of(program, place) {
        list.remove(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differ::grammar::draw;

    #[test]
    fn what_does_not_matter_is_left_out() {
        let has = |program: &Program, verb: &str| program.print().lines().any(|line| line.trim().starts_with(verb));
        let mut tried = 0;
        for seed in 0..300 {
            let program = draw(seed);
            if !has(&program, "rename ") || !has(&program, "mkdir ") {
                continue;
            }
            tried += 1;
            let smallest = shrink(&program, 2000, Duration::from_secs(60), |candidate| {
                has(candidate, "rename ") && has(candidate, "mkdir ")
            });
            assert_eq!(smallest.len(), 2, "seed {seed}:\n{}", smallest.print());
        }
        assert!(tried > 30);
    }

    #[test]
    fn it_ends_after_so_many_trials() {
        let mut count = 0;
        shrink(&draw(3), 10, Duration::from_secs(60), |_| {
            count += 1;
            true
        });
        assert!(count <= 10);
    }
}

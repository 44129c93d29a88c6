//! Five minutes ahead, in virtual time: loads like the live ones, whose best possible forecast is known, over a thousand windows each.
//!
//! A step is ten seconds. What a sensor says is off by some ticks. How far it is off for other reasons is for the live part.

use super::{Options, at_most};
use crate::bench::samples::Figures;
use crate::bench::tasks::Dice;
use crate::error::Result;
use sched::forecast::Forecaster;

/// Steps of five minutes.
const FAR: usize = 30;
/// Steps that do not count.
const BEGINS: usize = 360;
/// Steps of a load; windows of five minutes in it are a thirtieth.
const STEPS: usize = 30_000;
/// By how much a sensor is off, uniformly to both sides: by one tick of 10 ms.
const NOISE: f64 = 0.001;
/// Loads that do not change but for small disturbances, as available parts: idle, conundrum, kongo, both.
const STEADY: [(&str, f64); 4] = [("idle", 0.99), ("conundrum", 0.5), ("kongo", 0.5), ("both", 0.33)];
/// Bursty ones: how long there is little, and how long there is much, in steps.
const BURSTY: [(&str, f64, f64); 4] = [
    ("bursts of 30 s", 3.0, 3.0),
    ("bursts of 5 min", 30.0, 30.0),
    ("rare bursts", 6.0, 60.0),
    ("long ones", 180.0, 120.0),
];

/// What came of one load at one horizon: errors against what there was.
struct Errors {
    own: f64,
    /// Of the best possible forecast.
    best: f64,
    coverage: f64,
}

/// Runs all loads.
pub fn run(options: &Options, figures: &mut Figures) -> Result<()> {
    let steps = if options.quick { STEPS / 6 } else { STEPS };
    let mut dice = Dice(options.seed);
    let (mut near_max, mut far_max, mut near_ratio, mut far_ratio, mut near_more) =
        (0.0f64, 0.0f64, 0.0f64, 0.0f64, 0.0f64);
    eprintln!("bench: {} windows of five minutes each", (steps - BEGINS) / FAR);
    eprintln!("bench: {:<18} {:>9} {:>9} {:>9} {:>9}", "virtual load", "one step", "5 minutes", "best", "coverage");
    for (name, level) in STEADY {
        let spike = |dice: &mut Dice| if dice.unit() < 0.02 { 0.1 * dice.unit() } else { 0.0 };
        let truth: Vec<f64> = (0..steps).map(|_| level - spike(&mut dice)).collect();
        let [near, far] = [1, FAR].map(|horizon| follow(&truth, &mut dice, horizon, |_| level));
        (near_max, far_max) = (near_max.max(near.own), far_max.max(far.own));
        told(name, &near, &far);
    }
    for (name, low, high) in BURSTY {
        let (truth, states) = bursts(steps, low, high, &mut dice);
        let [near, far] = [1, FAR].map(|horizon| {
            let best = medians(low, high, horizon);
            follow(&truth, &mut dice, horizon, |at| best[usize::from(states[at])])
        });
        // Who hardly errs at all errs by the sensor's ticks.
        near_more = near_more.max(near.own - (1.05 * near.best).max(near.best + 0.001));
        (near_ratio, far_ratio) = (near_ratio.max(near.own / near.best), far_ratio.max(far.own / far.best));
        told(name, &near, &far);
    }
    at_most(figures, "model_one_step_error_max", Some(near_max), 0.03);
    at_most(figures, "five_minute_error_max", Some(far_max), 0.05);
    figures.add("bursty_one_step_ratio_max", Some(near_ratio));
    at_most(figures, "bursty_one_step_beyond", Some(near_more), 0.0);
    at_most(figures, "bursty_five_minute_ratio_max", Some(far_ratio), 1.05);
    Ok(())
}

fn told(name: &str, near: &Errors, far: &Errors) {
    let (one, five, best, held) = (near.own, far.own, far.best, far.coverage);
    eprintln!("bench: {name:<18} {one:>9.4} {five:>9.4} {best:>9.4} {:>8.1}%", held * 100.0);
}

/// Half a processor while there is a burst; how long each lasts is geometric.
fn bursts(steps: usize, low: f64, high: f64, dice: &mut Dice) -> (Vec<f64>, Vec<bool>) {
    let mut is_high = true;
    let mut states = Vec::with_capacity(steps);
    for _ in 0..steps {
        if dice.unit() < 1.0 / if is_high { high } else { low } {
            is_high = !is_high;
        }
        states.push(is_high);
    }
    (states.iter().map(|is_high| if *is_high { 1.0 } else { 0.5 }).collect(), states)
}

/// The median of the mean of the next values, from each state: no forecast has less absolute error.
fn medians(low: f64, high: f64, horizon: usize) -> [f64; 2] {
    [false, true].map(|start| {
        // Chances of so many high steps so far, by the state now.
        let mut chances = [vec![0.0; horizon + 1], vec![0.0; horizon + 1]];
        chances[usize::from(start)][0] = 1.0;
        for _ in 0..horizon {
            let mut next = [vec![0.0; horizon + 1], vec![0.0; horizon + 1]];
            for (state, leave) in [(0, 1.0 / low), (1, 1.0 / high)] {
                for count in 0..=horizon {
                    let chance = chances[state][count];
                    for (to, part) in [(state, 1.0 - leave), (1 - state, leave)] {
                        next[to][(count + to).min(horizon)] += chance * part;
                    }
                }
            }
            chances = next;
        }
        let mut sum = 0.0;
        let median = (0..=horizon).find(|count| {
            sum += chances[0][*count] + chances[1][*count];
            sum >= 0.5
        });
        0.5 + 0.5 * median.unwrap_or(horizon) as f64 / horizon as f64
    })
}

/// Foretells what there is from what a sensor says; `best`: the best possible forecast after the value of this number.
fn follow(truth: &[f64], dice: &mut Dice, horizon: usize, best: impl Fn(usize) -> f64) -> Errors {
    let mut forecaster = Forecaster::over(horizon);
    let (mut own, mut least, mut held, mut count) = (0.0, 0.0, 0.0, 0.0f64);
    for (at, value) in truth.iter().enumerate() {
        forecaster.observe(value + NOISE * (2.0 * dice.unit() - 1.0));
        let window = truth.get(at + 1..at + 1 + horizon).filter(|_| at >= BEGINS);
        if let (Some(next), Some(window)) = (forecaster.next(), window) {
            let came = window.iter().sum::<f64>() / horizon as f64;
            own += (next.value - came).abs();
            least += (best(at) - came).abs();
            held += f64::from((next.low..=next.high).contains(&came));
            count += 1.0;
        }
    }
    let count = count.max(1.0);
    Errors { own: own / count, best: least / count, coverage: held / count }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_forecast_is_where_half_of_all_windows_lie_above() {
        // Over one step: as it is, if it mostly stays so.
        assert_eq!(medians(3.0, 3.0, 1), [0.5, 1.0]);
        let [from_low, from_high] = medians(30.0, 30.0, 30);
        assert!(from_low < 0.75 && from_high > 0.75 && (from_low + from_high - 1.5).abs() < 0.05);
        let mut dice = Dice(3);
        let (truth, states) = bursts(60_000, 30.0, 30.0, &mut dice);
        let windows = (0..59_000).filter(|at| states[*at]).map(|at| truth[at + 1..=at + 30].iter().sum::<f64>() / 30.0);
        let (above, all) =
            windows.fold((0.0, 0.0), |(above, all), mean| (above + f64::from(mean > from_high), all + 1.0));
        assert!((0.4..0.6).contains(&(above / all)), "{}", above / all);
    }
}

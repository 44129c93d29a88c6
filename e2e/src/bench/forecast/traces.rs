//! Loads of real hosts, from files: each forecaster's mean absolute error, that of all weighed, and what intervals hold; of the whole series,
//! and of each day by itself.

use super::{Options, at_most};
use crate::bench::samples::Figures;
use crate::error::{Context, Error, Result};
use sched::forecast::Forecaster;
use std::fs;
use std::path::{Path, PathBuf};

/// Steps that do not count: everything begins with nothing.
const BEGINS: usize = 100;
/// Steps over which coverage is looked at for its worst part.
const PART: usize = 360;
/// Values of a day of five-minute ones.
const DAY: usize = 288;
/// Which columns are looked for in tables of several.
const COLUMNS: [&str; 2] = ["CPU usage [%]", "cpu"];

/// What came of one trace at one horizon.
struct Judged {
    own: f64,
    best: f64,
    best_name: String,
    coverage: f64,
    coverage_worst: f64,
    width: f64,
}

/// Runs all traces, one step and thirty steps ahead.
pub fn run(options: &Options, figures: &mut Figures) -> Result<()> {
    let mut files: Vec<PathBuf> = Vec::new();
    let folder = options.traces.display();
    for entry in fs::read_dir(&options.traces).context(|| format!("cannot read {folder}"))? {
        files.push(entry.context(|| format!("cannot read {folder}"))?.path());
    }
    files.retain(|path| path.extension().is_some_and(|ending| ending == "csv"));
    files.sort();
    for (horizon, suffix) in [(1, ""), (30, "_30")] {
        let (mut all, mut days) = (Vec::new(), Vec::new());
        eprintln!(
            "bench: {:<24} {:>5} {:>10} {:>10} {:>7} {:>9} {:>7} {:>10}  best alone",
            "trace", "ahead", "MAE", "best", "ratio", "coverage", "worst", "width"
        );
        for path in &files {
            let values = read(path)?;
            let judged = judge(&values, horizon, BEGINS);
            days.extend(values.chunks_exact(DAY).map(|day| judge(day, horizon, 0)));
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let Judged { own, best, coverage, coverage_worst, width, .. } = judged;
            eprintln!(
                "bench: {name:<24} {horizon:>5} {own:>10.5} {best:>10.5} {:>7.4} {:>8.1}% {:>6.1}% {width:>10.4}  {}",
                own / best,
                coverage * 100.0,
                coverage_worst * 100.0,
                judged.best_name
            );
            figures.add(&format!("trace_{name}_mae{suffix}"), Some(own));
            figures.add(&format!("trace_{name}_ratio{suffix}"), Some(own / best));
            figures.add(&format!("trace_{name}_width{suffix}"), Some(width));
            all.push(judged);
        }
        whole(&all, horizon, suffix, figures);
        each_day(&days, suffix, figures);
    }
    Ok(())
}

fn whole(all: &[Judged], horizon: usize, suffix: &str, figures: &mut Figures) {
    let some = !all.is_empty();
    let count = all.len().max(1) as f64;
    let geomean = (all.iter().map(|judged| (judged.own / judged.best).ln()).sum::<f64>() / count).exp();
    let ratio_max = all.iter().map(|judged| judged.own / judged.best).fold(0.0, f64::max);
    let beyond = all.iter().filter(|judged| judged.own > (1.02 * judged.best).max(judged.best + 0.001)).count();
    let mean = all.iter().map(|judged| judged.coverage).sum::<f64>() / count;
    let least = all.iter().map(|judged| judged.coverage).fold(1.0, f64::min);
    let most = all.iter().map(|judged| judged.coverage).fold(0.0, f64::max);
    let worst = all.iter().map(|judged| judged.coverage_worst).fold(1.0, f64::min);
    at_most(figures, &format!("trace_mae_ratio_geomean{suffix}"), some.then_some(geomean), 1.0);
    at_most(figures, &format!("trace_mae_ratio_max{suffix}"), some.then_some(ratio_max), 1.02);
    at_most(figures, &format!("traces_beyond_the_bound{suffix}"), some.then_some(beyond as f64), 0.0);
    figures.add(&format!("coverage90{suffix}"), some.then_some(mean));
    figures.add(&format!("coverage90_min{suffix}"), some.then_some(least));
    figures.add(&format!("coverage90_max{suffix}"), some.then_some(most));
    figures.add(&format!("coverage90_worst_360{suffix}"), some.then_some(worst));
    let verdict = match (0.88..=0.92).contains(&least) && (0.88..=0.92).contains(&most) && worst >= 0.83 {
        true => "as promised",
        false if horizon > 1 => "no promise: 360 steps are 12 windows",
        false => "MISSED",
    };
    eprintln!(
        "bench: coverage{suffix} {:.1} to {:.1}%, in no {PART} steps less than {:.1}%: {verdict}",
        least * 100.0,
        most * 100.0,
        worst * 100.0
    );
}

/// The same of each day by itself, from its first value on: the ratio's geometric mean, and 95% of days.
fn each_day(days: &[Judged], suffix: &str, figures: &mut Figures) {
    // Of what never changes all is known.
    let mut ratios: Vec<f64> = days.iter().filter(|day| day.best > 0.0).map(|day| day.own / day.best).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let count = ratios.len().max(1) as f64;
    let geomean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / count).exp();
    let most = ratios.get((0.95 * count) as usize).copied();
    let covered = days.iter().map(|day| day.coverage).sum::<f64>() / days.len().max(1) as f64;
    let (mean_target, most_target) = if suffix.is_empty() { (1.0, 1.03) } else { (1.01, 1.05) };
    at_most(figures, &format!("day_mae_ratio_geomean{suffix}"), most.map(|_| geomean), mean_target);
    at_most(figures, &format!("day_mae_ratio_p95{suffix}"), most, most_target);
    figures.add(&format!("day_coverage90{suffix}"), most.map(|_| covered));
    eprintln!("bench: {} days by themselves{suffix}: {:.1}% covered", days.len(), covered * 100.0);
}

/// Errors count from value `from` on.
fn judge(values: &[f64], horizon: usize, from: usize) -> Judged {
    let mut forecaster = Forecaster::over(horizon);
    let (mut made, mut held) = (Vec::with_capacity(values.len()), Vec::new());
    for (step, value) in values.iter().enumerate() {
        if step == from {
            forecaster.count_anew();
        }
        if let Some(came) = forecaster.observe(*value)
            && step + 1 >= from + horizon
        {
            let next: Option<sched::forecast::Forecast> = made[step - horizon];
            held.extend(next.map(|next| f64::from((next.low..=next.high).contains(&came))));
        }
        made.push(forecaster.next());
    }
    let best = forecaster.scores().into_iter().min_by(|one, other| one.mae.total_cmp(&other.mae));
    let (best, best_name) = best.map(|score| (score.mae, score.name)).unwrap_or_default();
    let parts = held.windows(PART).map(|window| window.iter().sum::<f64>() / PART as f64);
    Judged {
        own: forecaster.own_score().mae,
        best,
        best_name,
        coverage: forecaster.coverage(),
        coverage_worst: parts.fold(1.0, f64::min),
        width: forecaster.width(),
    }
}

/// The column of a table that has the load: one that is known by name, or the last one.
fn read(path: &Path) -> Result<Vec<f64>> {
    let text = fs::read_to_string(path).context(|| format!("cannot read {}", path.display()))?;
    let head = text.lines().next().unwrap_or_default();
    let separator = if head.contains(';') { ';' } else { ',' };
    let names: Vec<&str> = head.split(separator).map(str::trim).collect();
    let known = names.iter().position(|name| COLUMNS.contains(name));
    let column = known.unwrap_or(names.len().saturating_sub(1));
    let value = |line: &str| line.split(separator).nth(column)?.trim().parse::<f64>().ok();
    let values: Vec<f64> = text.lines().filter_map(value).filter(|value| value.is_finite()).collect();
    match values.len() {
        0..=BEGINS => Err(Error::Missing(format!("{}: too few numbers", path.display()))),
        _ => Ok(values),
    }
}

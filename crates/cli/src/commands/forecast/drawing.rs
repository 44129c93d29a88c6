//! A series, what was forecast of it, and the band in which it was to lie; as SVG, a panel for each horizon.

use crate::commands::progress::Progress;
use crate::commands::svg::{Anchor, Svg};
use sched::forecast::{Forecast, Forecaster};

/// Width of the drawing, height of a panel, and the space around its axes, in pixels.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 300.0;
const MARGIN: f64 = 60.0;
/// Points of a line at most: of more, several go together.
const POINTS_MAX: usize = 800;
const BAND: &str = "#cccccc";
const NEXT: &str = "#888888";

/// A forecast, and the mean of the values that it was made of.
struct Step {
    made: Forecast,
    came: f64,
}

/// The drawing.
pub fn svg(name: &str, values: &[f64], horizons: &[usize], progress: &Progress) -> String {
    let mut svg = Svg::new(WIDTH, HEIGHT * horizons.len() as f64);
    for (at, horizon) in horizons.iter().enumerate() {
        let followed = follow(values, *horizon, progress);
        panel(&mut svg, HEIGHT * at as f64, name, *horizon, followed);
    }
    svg.file()
}

/// All forecasts whose values have come, and the next one.
fn follow(values: &[f64], horizon: usize, progress: &Progress) -> (Vec<Step>, Option<Forecast>) {
    let mut forecaster = Forecaster::over(horizon);
    let (mut made, mut steps) = (Vec::with_capacity(values.len()), Vec::new());
    for (step, value) in values.iter().enumerate() {
        if let Some(came) = forecaster.observe(*value)
            && let Some(made) = made[step - forecaster.horizon()]
        {
            steps.push(Step { made, came });
        }
        made.push(forecaster.next());
        progress.done();
    }
    (steps, forecaster.next())
}

fn panel(svg: &mut Svg, top: f64, name: &str, horizon: usize, (steps, next): (Vec<Step>, Option<Forecast>)) {
    let what = if horizon == 1 { "each value".to_owned() } else { format!("the mean of {horizon} values") };
    let legend = format!(
        "{name}: {what} (line), its forecast (dashes), nine times in ten within the band; at the right what is next"
    );
    svg.text((MARGIN, top + 22.0), Anchor::Start, &legend);
    let shown = |value: &f64| value.is_finite();
    let bounds = steps.iter().flat_map(|step| [step.came, step.made.value, step.made.low, step.made.high]);
    let last = next.iter().flat_map(|next| [next.low, next.high]);
    let (low, high) = bounds
        .chain(last)
        .filter(shown)
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    let (low, high) = if low < high { (low, high) } else { (low - 0.5, low + 0.5) };
    let count = (steps.len() + horizon).max(2) as f64;
    let x = |step: f64| MARGIN + (WIDTH - 2.0 * MARGIN) * step / (count - 1.0).max(1.0);
    let y = |value: f64| top + HEIGHT - 40.0 - (HEIGHT - 80.0) * (value - low) / (high - low);
    for (at, part) in [0.0, 0.5, 1.0].into_iter().enumerate() {
        let value = low + (high - low) * part;
        svg.text((MARGIN - 6.0, y(value) + 4.0), Anchor::End, &super::number(value));
        let step = (count - 1.0) * part;
        let anchor = [Anchor::Start, Anchor::Middle, Anchor::End][at];
        svg.text((x(step), top + HEIGHT - 22.0), anchor, &format!("{:.0}", step + horizon as f64));
    }
    let per_point = steps.len().div_ceil(POINTS_MAX).max(1);
    let chunks: Vec<(f64, &[Step])> =
        steps.chunks(per_point).enumerate().map(|(at, part)| (x((at * per_point) as f64), part)).collect();
    let least = |part: &[Step], of: fn(&Step) -> f64| part.iter().map(of).fold(f64::INFINITY, f64::min);
    let most = |part: &[Step], of: fn(&Step) -> f64| part.iter().map(of).fold(f64::NEG_INFINITY, f64::max);
    let lower = chunks.iter().map(|(x, part)| (*x, y(least(part, |step| step.made.low))));
    let upper = chunks.iter().rev().map(|(x, part)| (*x, y(most(part, |step| step.made.high))));
    svg.area(&lower.chain(upper).collect::<Vec<_>>(), BAND);
    // Of several steps both ends are drawn, so that no peak is lost.
    let ends =
        |(x, part): &(f64, &[Step])| [(*x, y(least(part, |step| step.came))), (*x, y(most(part, |step| step.came)))];
    svg.line(&chunks.iter().flat_map(ends).collect::<Vec<_>>(), 1.0, "");
    let middle = |part: &[Step]| part.iter().map(|step| step.made.value).sum::<f64>() / part.len() as f64;
    svg.line(&chunks.iter().map(|(x, part)| (*x, y(middle(part)))).collect::<Vec<_>>(), 1.5, "4 2");
    if let Some(next) = next {
        let (left, right) = (x(steps.len() as f64), x(count - 1.0).max(x(steps.len() as f64) + 4.0));
        svg.area(&[(left, y(next.low)), (right, y(next.low)), (right, y(next.high)), (left, y(next.high))], NEXT);
        svg.line(&[(left, y(next.value)), (right, y(next.value))], 2.0, "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_forecast_and_band_are_drawn_for_each_horizon() {
        let values: Vec<f64> = (0..2_000).map(|at| f64::from(at * at % 7)).collect();
        let svg = svg("load & more", &values, &[1, 30], &Progress::new("", 0));
        assert_eq!((svg.matches("<polygon").count(), svg.matches("stroke-dasharray=\"4 2\"").count()), (4, 2));
        assert!(svg.contains("load &amp; more: each value") && svg.contains("the mean of 30 values"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn what_is_short_or_constant_is_drawn_as_well() {
        for values in [vec![3.0], vec![3.0; 50]] {
            let svg = svg("load", &values, &[1, 30], &Progress::new("", 0));
            assert!(!svg.contains("NaN") && !svg.contains("inf") && svg.ends_with("</svg>\n"), "{svg}");
        }
    }
}

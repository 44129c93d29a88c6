//! Pox plots: rescaled ranges over the lengths of their segments, both as logarithms; as text and as SVG. The slope is the Hurst parameter;
//! lines of slope 0.5 and 1 are what a series without memory and one that never turns back would follow.

use sched::series::{Pox, hurst};
use std::fmt::Write;

/// Columns and rows of the text.
const COLUMNS: usize = 64;
/// See `COLUMNS`.
const ROWS: usize = 20;
/// Width, height and margin of the drawing in pixels.
const WIDTH: f64 = 640.0;
/// See `WIDTH`.
const HEIGHT: f64 = 480.0;
/// See `WIDTH`.
const MARGIN: f64 = 56.0;

/// The part of the plane that is shown, in decimal logarithms.
struct Frame {
    across: (f64, f64),
    up: (f64, f64),
}

impl Frame {
    fn of(points: &[Pox]) -> Option<Self> {
        let longest = points.iter().map(|point| point.length).max()? as f64;
        let highest = points.iter().map(|point| point.range).fold(1.0, f64::max);
        let lowest = points.iter().map(|point| point.range).fold(f64::INFINITY, f64::min);
        let shortest = points.iter().map(|point| point.length).min()? as f64;
        let apart = |low: f64, high: f64| (low.log10(), high.log10().max(low.log10() + 0.1));
        Some(Self { across: apart(shortest, longest), up: apart(lowest.min(1.0), highest) })
    }

    /// Where a point lies, from 0 to 1 in both directions.
    fn place(&self, length: f64, range: f64) -> (f64, f64) {
        let part = |value: f64, (low, high): (f64, f64)| (value.log10() - low) / (high - low);
        (part(length, self.across), part(range, self.up))
    }

    /// Ends of the part of the line with such a slope, through the origin of both logarithms, that is shown.
    fn line(&self, slope: f64) -> [(f64, f64); 2] {
        let (low, high) = (self.across.0.max(self.up.0 / slope), self.across.1.min(self.up.1 / slope));
        [low, high].map(|at| self.place(10f64.powf(at), 10f64.powf(at * slope)))
    }
}

/// The mean logarithm of each length, as length and range.
fn means(points: &[Pox]) -> Vec<(f64, f64)> {
    let same = points.chunk_by(|one, other| one.length == other.length);
    same.map(|same| {
        let sum: f64 = same.iter().map(|point| point.range.ln()).sum();
        (same[0].length as f64, (sum / same.len() as f64).exp())
    })
    .collect()
}

/// What is said of the slope.
fn slope(points: &[Pox]) -> String {
    hurst(points).map_or_else(|| "too few lengths for a slope".to_owned(), |slope| format!("HURST {slope:.2}"))
}

/// As text: `+` the means, `.` single segments.
pub fn text(points: &[Pox]) -> String {
    let Some(frame) = Frame::of(points) else { return "no segment varies: there is nothing to plot\n".to_owned() };
    let mut cells = vec![[b' '; COLUMNS]; ROWS];
    let mut put = |(across, up): (f64, f64), mark: u8| {
        let column = (across * (COLUMNS - 1) as f64).round() as usize;
        let row = ((1.0 - up) * (ROWS - 1) as f64).round() as usize;
        if let Some(cell) = cells.get_mut(row).and_then(|row| row.get_mut(column)) {
            *cell = mark;
        }
    };
    points.iter().for_each(|point| put(frame.place(point.length as f64, point.range), b'.'));
    means(points).into_iter().for_each(|(length, range)| put(frame.place(length, range), b'+'));
    let mut text = format!("R/S by length of segments, both logarithmic: . segments, + means; {}\n", slope(points));
    for (row, cells) in cells.iter().enumerate() {
        let up = frame.up.1 - (frame.up.1 - frame.up.0) * row as f64 / (ROWS - 1) as f64;
        let line = String::from_utf8_lossy(cells);
        let _ = writeln!(text, "{:>8.1} |{}", 10f64.powf(up), line.trim_end());
    }
    let (first, last) = (10f64.powf(frame.across.0), 10f64.powf(frame.across.1));
    let _ = writeln!(text, "{:>8} +{}", "", "-".repeat(COLUMNS));
    let _ = writeln!(text, "{:>8}  {first:<8.0}{:>width$.0}", "steps", last, width = COLUMNS - 8);
    text
}

/// As a drawing.
pub fn svg(points: &[Pox]) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{MARGIN}\" y=\"24\">Rescaled ranges by length of segments, {}</text>\n",
        slope(points)
    );
    let pixel = |(across, up): (f64, f64)| {
        (MARGIN + across * (WIDTH - 2.0 * MARGIN), HEIGHT - MARGIN - up * (HEIGHT - 2.0 * MARGIN))
    };
    if let Some(frame) = Frame::of(points) {
        for (slope, dash) in [(0.5, "2 4"), (1.0, "6 4")] {
            let [(x1, y1), (x2, y2)] = frame.line(slope).map(pixel);
            let _ = writeln!(
                svg,
                "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"gray\" stroke-dasharray=\"{dash}\"/>\n\
                 <text x=\"{x2:.1}\" y=\"{:.1}\" fill=\"gray\" text-anchor=\"end\">slope {slope}</text>",
                y2 - 6.0
            );
        }
        for point in points {
            let (x, y) = pixel(frame.place(point.length as f64, point.range));
            let _ = writeln!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"1.5\" fill=\"steelblue\" fill-opacity=\"0.4\"/>"
            );
        }
        let line: Vec<String> = means(points)
            .into_iter()
            .map(|(length, range)| pixel(frame.place(length, range)))
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"black\" stroke-width=\"2\"/>",
            line.join(" ")
        );
        for exponent in frame.across.0.ceil() as i32..=frame.across.1.floor() as i32 {
            let (x, _) = pixel(frame.place(10f64.powi(exponent), 1.0));
            let _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                HEIGHT - 32.0,
                10f64.powi(exponent)
            );
        }
        for exponent in frame.up.0.ceil() as i32..=frame.up.1.floor() as i32 {
            let (_, y) = pixel(frame.place(1.0, 10f64.powi(exponent)));
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>",
                MARGIN - 8.0,
                10f64.powi(exponent)
            );
        }
    }
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">steps in a segment</text>\n</svg>",
        WIDTH / 2.0,
        HEIGHT - 10.0
    );
    svg
}

#[cfg(test)]
mod tests {
    use super::*;
    use sched::series::pox;

    #[test]
    fn points_lie_within_and_the_slope_is_told() {
        let values: Vec<f64> = (0..600).map(|at| f64::from((at * 7_919) % 101)).collect();
        let points = pox(&values);
        let text = text(&points);
        assert!(text.contains("HURST 0.") && text.contains('+') && text.contains("8 "), "{text}");
        assert_eq!(text.lines().count(), ROWS + 3);
        let svg = svg(&points);
        assert_eq!(svg.matches("<circle").count(), points.len());
        assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        assert!(text(&[]).starts_with("no segment varies"));
        assert!(svg(&[]).contains("too few lengths"));
    }
}

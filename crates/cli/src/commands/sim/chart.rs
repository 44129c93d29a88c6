//! Figures of simulations: bars beside what was published, and curves, told apart without colour.

use crate::commands::svg::{Anchor, Svg};

/// A figure on a page.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What it shows, with the unit.
    pub title: String,
    /// What is shown.
    pub content: Content,
}

/// What a figure shows.
#[derive(Clone, Debug)]
pub enum Content {
    /// For each name a bar, and what was published.
    Bars(Vec<Bar>),
    /// Lines over a parameter, with its name.
    Curves(String, Vec<Curve>),
}

/// A bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Its name.
    pub name: String,
    /// Its height, and how far it may be off.
    pub value: (f64, f64),
    /// What was published.
    pub published: Option<f64>,
}

/// A line.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its name.
    pub name: String,
    /// Its points: place, height, and how far that may be off.
    pub points: Vec<(f64, f64, f64)>,
}

const PANEL: (f64, f64) = (380.0, 270.0);
/// Around the axes: left, right, top, bottom.
const MARGINS: (f64, f64, f64, f64) = (58.0, 18.0, 46.0, 40.0);
const HEAD: f64 = 52.0;
const DASHES: [&str; 5] = ["", "7 3", "2 3", "8 3 2 3", "14 4"];
const OURS: &str = "#999999";

/// A page of figures, with a title and a line that explains them.
pub fn page(title: &str, legend: &str, columns: usize, panels: &[Panel]) -> String {
    let rows = panels.len().div_ceil(columns);
    let mut svg = Svg::new(PANEL.0 * columns as f64, HEAD + PANEL.1 * rows as f64);
    svg.text((12.0, 20.0), Anchor::Start, title);
    svg.text((12.0, 40.0), Anchor::Start, legend);
    for (at, panel) in panels.iter().enumerate() {
        let corner = (PANEL.0 * (at % columns) as f64, HEAD + PANEL.1 * (at / columns) as f64);
        match &panel.content {
            Content::Bars(bars) => draw_bars(&mut svg, corner, &panel.title, bars),
            Content::Curves(x, curves) => draw_curves(&mut svg, corner, &panel.title, x, curves),
        }
    }
    svg.file()
}

/// Axes on a page: from values to places.
struct Axes {
    left: f64,
    bottom: f64,
    size: (f64, f64),
    x: (f64, f64),
    top: f64,
}

impl Axes {
    fn new(svg: &mut Svg, corner: (f64, f64), title: &str, x: (f64, f64), most: f64) -> Self {
        let (left, right, top, bottom) = MARGINS;
        let step = nice(most / 4.0);
        let steps = (most / step).ceil().max(1.0);
        let axes = Self {
            left: corner.0 + left,
            bottom: corner.1 + PANEL.1 - bottom,
            size: (PANEL.0 - left - right, PANEL.1 - top - bottom),
            x,
            top: step * steps,
        };
        svg.text((axes.left, corner.1 + top - 28.0), Anchor::Start, title);
        for at in 0..=steps as usize {
            let value = step * at as f64;
            let y = axes.y(value);
            svg.line(&[(axes.left - 4.0, y), (axes.left, y)], 1.0, "");
            svg.text((axes.left - 7.0, y + 4.0), Anchor::End, &short(value));
        }
        let (left, right) = (axes.left, axes.left + axes.size.0);
        svg.line(&[(left, axes.bottom - axes.size.1), (left, axes.bottom), (right, axes.bottom)], 1.0, "");
        axes
    }

    fn x(&self, value: f64) -> f64 {
        let (from, to) = self.x;
        let part = if to > from { (value - from) / (to - from) } else { 0.5 };
        self.left + part * self.size.0
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom - value / self.top * self.size.1
    }

    fn whisker(&self, svg: &mut Svg, x: f64, value: f64, within: f64) {
        if within <= 0.0 {
            return;
        }
        let (low, high) = (self.y((value - within).max(0.0)), self.y(value + within));
        svg.line(&[(x, low), (x, high)], 1.0, "");
        for y in [low, high] {
            svg.line(&[(x - 3.0, y), (x + 3.0, y)], 1.0, "");
        }
    }
}

/// The next step of an axis that people read easily.
fn nice(step: f64) -> f64 {
    let power = 10f64.powf(step.max(f64::MIN_POSITIVE).log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0].map(|part| part * power).into_iter().find(|nice| *nice >= step * 0.999).unwrap_or(power)
}

/// A number with as many digits as matter.
pub fn short(value: f64) -> String {
    if value.abs() >= 100.0 || value.fract() == 0.0 {
        return format!("{value:.0}");
    }
    let digits = if value.abs() >= 10.0 { 1 } else { 3 };
    format!("{value:.digits$}").trim_end_matches('0').to_owned()
}

fn draw_bars(svg: &mut Svg, corner: (f64, f64), title: &str, bars: &[Bar]) {
    let highest = |bar: &Bar| (bar.value.0 + bar.value.1).max(bar.published.unwrap_or_default());
    let axes = Axes::new(svg, corner, title, (0.0, bars.len() as f64), bars.iter().map(highest).fold(0.0, f64::max));
    let width = axes.size.0 / bars.len().max(1) as f64 * 0.34;
    for (at, bar) in bars.iter().enumerate() {
        let middle = axes.x(at as f64 + 0.5);
        let column = |svg: &mut Svg, x: f64, value: f64, fill: &str| {
            svg.rectangle((x, axes.y(value)), (width, axes.bottom - axes.y(value)), fill);
        };
        let x = if bar.published.is_some() { middle - width } else { middle - width / 2.0 };
        column(svg, x, bar.value.0, OURS);
        axes.whisker(svg, x + width / 2.0, bar.value.0, bar.value.1);
        if let Some(published) = bar.published {
            column(svg, middle, published, "white");
        }
        svg.text((middle, axes.bottom + 16.0), Anchor::Middle, &bar.name);
    }
}

fn draw_curves(svg: &mut Svg, corner: (f64, f64), title: &str, x: &str, curves: &[Curve]) {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let least = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let most = points().map(|point| point.0).fold(f64::NEG_INFINITY, f64::max);
    let highest = points().map(|point| point.1 + point.2).fold(0.0, f64::max);
    let axes = Axes::new(svg, corner, title, (least, most), highest);
    let step = nice((most - least) / 5.0);
    let mut at = (least / step).ceil() * step;
    // No more than six or so; and none at all where nothing is shown.
    while most > least && at <= most + step * 1e-6 {
        svg.line(&[(axes.x(at), axes.bottom), (axes.x(at), axes.bottom + 4.0)], 1.0, "");
        svg.text((axes.x(at), axes.bottom + 16.0), Anchor::Middle, &short(at));
        at += step;
    }
    svg.text((axes.left + axes.size.0 / 2.0, axes.bottom + 32.0), Anchor::Middle, x);
    for (number, curve) in curves.iter().enumerate() {
        let line: Vec<(f64, f64)> = curve.points.iter().map(|point| (axes.x(point.0), axes.y(point.1))).collect();
        svg.line(&line, 1.4, DASHES[number % DASHES.len()]);
        for (point, place) in curve.points.iter().zip(line) {
            axes.whisker(svg, place.0, point.1, point.2);
            svg.mark(place, number);
        }
        let (legend_x, legend_y) = (axes.left + 62.0 * number as f64, corner.1 + MARGINS.2 - 12.0);
        svg.line(&[(legend_x, legend_y), (legend_x + 24.0, legend_y)], 1.4, DASHES[number % DASHES.len()]);
        svg.mark((legend_x + 12.0, legend_y), number);
        svg.text((legend_x + 28.0, legend_y + 4.0), Anchor::Start, &curve.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_steps_that_people_read() {
        assert_eq!([0.13, 3.0, 26.0, 100.0].map(nice), [0.2, 5.0, 50.0, 100.0]);
        assert_eq!([0.25, 12.5, 1_000.0, 0.0].map(short), ["0.25", "12.5", "1000", "0"]);
    }

    #[test]
    fn a_page_shows_all_that_it_is_given() {
        let bar = |name: &str, published| Bar { name: name.into(), value: (1.0, 0.1), published };
        let curve = Curve { name: "LL".into(), points: vec![(1.0, 2.0, 0.0), (2.0, 1.0, 0.2)] };
        let panels = [
            Panel { title: "time < 2 s".into(), content: Content::Bars(vec![bar("LL", Some(1.2)), bar("FL", None)]) },
            Panel { title: "over".into(), content: Content::Curves("jobs".into(), vec![curve]) },
            Panel { title: "nothing".into(), content: Content::Curves("jobs".into(), Vec::new()) },
        ];
        let file = page("Title", "legend", 2, &panels);
        for part in ["Title", "legend", "time &lt; 2 s", ">LL<", ">FL<", ">jobs<", "polyline", "</svg>"] {
            assert!(file.contains(part), "{part}");
        }
        assert_eq!(file.matches("fill=\"#999999\"").count(), 2);
        assert!(!file.contains("NaN") && !file.contains("inf"), "{file}");
    }
}

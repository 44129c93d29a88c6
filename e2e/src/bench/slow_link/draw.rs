//! The run as figures (SVG), with UCop's own numbers (USENIX ATC 2010) beside where they are known.

use crate::error::{Context, Error, Result};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::RGBColor;
use serde_json::Value;
use std::path::Path;

const SIZE: (u32, u32) = (720, 440);
const FONT: &str = "sans-serif";
/// Told apart without colour, too: each line's points have its name beside the last.
const COLOURS: [RGBColor; 8] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(127, 127, 127),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
    RGBColor(255, 127, 14),
    RGBColor(140, 86, 75),
    RGBColor(23, 190, 207),
];

/// UCop's renders, 64 workers: seconds over a cable modem and from a coffee shop.
const UCOP_RENDER_S: [(&str, f64); 2] = [("UCop, cable", 18.0), ("UCop, coffee shop", 20.0)];
/// UCop's speed-ups, 32 to 64 workers.
const UCOP_SPEEDUPS: [f64; 2] = [6.0, 11.0];
/// Round trips that a job of UCop's costs.
const UCOP_ROUND_TRIPS: f64 = 4.0;
/// What a render of UCop's from a coffee shop goes to, in seconds.
const UCOP_BREAKDOWN_S: [(&str, f64); 6] =
    [("compute", 6.7), ("spread", 3.8), ("results", 1.8), ("process start", 1.5), ("launch", 1.0), ("network", 5.0)];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Points = Vec<(f64, f64)>;

/// A line, or points alone.
struct Curve {
    name: String,
    points: Points,
    is_line: bool,
}

/// What a figure with axes shows.
struct Chart {
    title: &'static str,
    x: &'static str,
    y: &'static str,
    /// Powers of two along the axis.
    doubling: bool,
    curves: Vec<Curve>,
}

/// Bars, each of parts on top of each other: names and values.
struct Bars {
    title: &'static str,
    y: &'static str,
    bars: Vec<(String, Vec<(String, f64)>)>,
}

/// Draws what `json`, the output of a run, has the numbers for.
pub fn all(json: &Value, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).at("create", folder)?;
    for (name, chart) in [
        ("slow-link-render-by-workers", render(json)),
        ("slow-link-speedup", speedup(json)),
        ("slow-link-round-trips", round_trips(json)),
        ("slow-link-uplinks", uplinks(json)),
        ("slow-link-video", video(json)),
    ] {
        if chart.curves.iter().any(|curve| curve.is_line && !curve.points.is_empty()) {
            drawn(folder, name, |area| draw_chart(area, &chart))?;
        }
    }
    for (name, bars) in [("slow-link-switches", switches(json)), ("slow-link-breakdown", breakdown(json))] {
        if bars.bars.iter().filter(|(_, parts)| !parts.is_empty()).count() > 1 {
            drawn(folder, name, |area| draw_bars(area, &bars))?;
        }
    }
    Ok(())
}

fn curve(json: &Value, key: &str, name: &str) -> Curve {
    let listed = json["curves"][key].as_array().into_iter().flatten();
    let points = listed.filter_map(|point| Some((point[0].as_f64()?, point[1].as_f64()?))).collect();
    Curve { name: name.to_owned(), points, is_line: true }
}

fn marks(name: &str, points: Points) -> Curve {
    Curve { name: name.to_owned(), points, is_line: false }
}

fn render(json: &Value) -> Chart {
    let mut curves = vec![
        curve(json, "render64_s/cable", "cable"),
        curve(json, "render64_s/coffee", "coffee shop"),
        curve(json, "render64_s/ideal", "computing alone"),
    ];
    curves.extend(UCOP_RENDER_S.map(|(name, seconds)| marks(name, vec![(64.0, seconds)])));
    Chart { title: "A render of 64 tiles, one edit later", x: "workers", y: "seconds", doubling: true, curves }
}

fn speedup(json: &Value) -> Chart {
    let [least, most] = UCOP_SPEEDUPS;
    let curves = vec![
        curve(json, "speedup/cable", "cable"),
        curve(json, "speedup/coffee", "coffee shop"),
        curve(json, "speedup/ideal", "computing alone"),
        marks("UCop, 32 to 64 workers", vec![(32.0, least), (64.0, most)]),
    ];
    Chart { title: "Times faster than one CPU here", x: "workers", y: "speed-up", doubling: true, curves }
}

fn round_trips(json: &Value) -> Chart {
    let ours = curve(json, "render32_s_by_round_trip_ms", "32 tiles, 32 workers");
    let from = ours.points.first().copied().unwrap_or_default();
    let growing = |trips: f64| ours.points.iter().map(|(ms, _)| (*ms, from.1 + (ms - from.0) / 1e3 * trips)).collect();
    let one = Curve { name: "growing by one round trip".into(), points: growing(1.0), is_line: true };
    let four = Curve { name: "by UCop's four".into(), points: growing(UCOP_ROUND_TRIPS), is_line: true };
    Chart {
        title: "A render as the way gets longer (4 Mbit/s up, 16 down)",
        x: "round trip, milliseconds",
        y: "seconds",
        doubling: false,
        curves: vec![ours, one, four],
    }
}

fn uplinks(json: &Value) -> Chart {
    let curves = vec![
        curve(json, "render32_s_by_uplink_mbit", "32 tiles, 32 workers"),
        curve(json, "render32_s_by_uplink_mbit/ideal", "slowest task, round trip and bytes"),
    ];
    Chart { title: "A render by uplink (70 ms)", x: "Mbit/s up", y: "seconds", doubling: true, curves }
}

fn video(json: &Value) -> Chart {
    let cable = curve(json, "video_arrival_s/cable", "there, cable");
    let played = |name: &str, key: &str| {
        let preroll = json["figures"][key].as_f64();
        let points = preroll.map(|preroll| cable.points.iter().map(|(at, _)| (*at, at + preroll)).collect());
        Curve { name: name.to_owned(), points: points.unwrap_or_default(), is_line: true }
    };
    let curves = vec![
        played("played, cable", "video_preroll_s"),
        played("played, coffee shop", "video_preroll_s_coffee"),
        curve(json, "video_arrival_s/coffee", "there, coffee shop"),
        cable,
    ];
    Chart {
        title: "Segments of a video: when they are there, and when they play",
        x: "second of the video",
        y: "seconds from the start",
        doubling: false,
        curves,
    }
}

fn switches(json: &Value) -> Bars {
    let figures = json["figures"].as_object().into_iter().flatten();
    let bars = figures.filter_map(|(name, value)| {
        let without = name.strip_prefix("render32_without_")?.strip_suffix("_s")?.replace('_', " ");
        Some((without, vec![(String::new(), value.as_f64()?)]))
    });
    let mut bars: Vec<_> = bars.collect();
    bars.sort_by_key(|(name, _)| name != "nothing");
    Bars { title: "A render of 32 tiles over cable, without …", y: "seconds", bars }
}

fn breakdown(json: &Value) -> Bars {
    const PARTS: [&str; 8] = ["compute", "spread", "results", "start", "launch", "input", "late_input", "commit"];
    let ours = |ending: &str| -> Vec<(String, f64)> {
        let value = |part: &str| json["figures"][format!("breakdown_{part}_s{ending}")].as_f64();
        PARTS.iter().filter_map(|part| Some((part.replace('_', " "), value(part)?.max(0.0)))).collect()
    };
    let ucop = UCOP_BREAKDOWN_S.map(|(part, seconds)| (part.to_owned(), seconds)).to_vec();
    let bars = vec![
        ("cable".to_owned(), ours("")),
        ("coffee shop".to_owned(), ours("_coffee")),
        ("UCop, coffee shop".into(), ucop),
    ];
    Bars { title: "What the time of a render goes to", y: "seconds", bars }
}

fn drawn(
    folder: &Path,
    name: &str,
    draw: impl FnOnce(&Area<'_>) -> std::result::Result<(), Box<dyn std::error::Error>>,
) -> Result<()> {
    let path = folder.join(format!("{name}.svg"));
    let area = SVGBackend::new(&path, SIZE).into_drawing_area();
    let done = area.fill(&WHITE).map_err(Into::into).and_then(|()| draw(&area)).and_then(|()| Ok(area.present()?));
    done.map_err(|error| Error::Product(format!("cannot draw {}: {error}", path.display())))
}

fn draw_chart(area: &Area<'_>, chart: &Chart) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let place = |x: f64| if chart.doubling { x.log2() } else { x };
    let points = || chart.curves.iter().flat_map(|curve| &curve.points);
    let least = points().map(|(x, _)| place(*x)).fold(f64::INFINITY, f64::min);
    let most = points().map(|(x, _)| place(*x)).fold(f64::NEG_INFINITY, f64::max);
    let top = points().map(|(_, y)| *y).fold(0.0, f64::max) * 1.1;
    let mut context = ChartBuilder::on(area)
        .caption(chart.title, (FONT, 18))
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(54)
        .build_cartesian_2d(least..most + (most - least) * 0.03, 0.0..top)?;
    let x_label = |x: &f64| {
        let x = if chart.doubling { x.exp2() } else { *x };
        if x < 1.0 { format!("{x:.1}") } else { format!("{x:.0}") }
    };
    let x_labels = if chart.doubling { (most - least).round() as usize + 1 } else { 8 };
    context
        .configure_mesh()
        .max_light_lines(1)
        .x_desc(chart.x)
        .y_desc(chart.y)
        .x_labels(x_labels)
        .x_label_formatter(&x_label)
        .draw()?;
    for (curve, colour) in chart.curves.iter().zip(COLOURS) {
        let placed: Points = curve.points.iter().map(|(x, y)| (place(*x), *y)).collect();
        let series = match curve.is_line {
            true => context.draw_series(LineSeries::new(placed, colour.stroke_width(2)).point_size(3))?,
            false => context.draw_series(placed.into_iter().map(|at| Cross::new(at, 6, colour.stroke_width(2))))?,
        };
        let is_line = curve.is_line;
        series.label(&curve.name).legend(move |(x, y)| {
            let from = if is_line { x } else { x + 8 };
            PathElement::new(vec![(from, y), (x + 16, y)], colour.stroke_width(if is_line { 2 } else { 5 }))
        });
    }
    context
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperMiddle)
        .label_font((FONT, 13))
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}

fn draw_bars(area: &Area<'_>, chart: &Bars) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let height = |parts: &[(String, f64)]| parts.iter().map(|(_, value)| value).sum::<f64>();
    let top = chart.bars.iter().map(|(_, parts)| height(parts)).fold(0.0, f64::max) * 1.12;
    let count = chart.bars.len();
    let mut context = ChartBuilder::on(area)
        .caption(chart.title, (FONT, 18))
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(54)
        .build_cartesian_2d((0..count - 1).into_segmented(), 0.0..top)?;
    let name = |at: &SegmentValue<usize>| match at {
        SegmentValue::CenterOf(at) => chart.bars.get(*at).map_or(String::new(), |(name, _)| name.clone()),
        _ => String::new(),
    };
    context
        .configure_mesh()
        .max_light_lines(1)
        .disable_x_mesh()
        .y_desc(chart.y)
        .x_labels(count)
        .x_label_formatter(&name)
        .draw()?;
    for (at, (_, parts)) in chart.bars.iter().enumerate() {
        let mut from = 0.0;
        for ((part, value), colour) in parts.iter().zip(COLOURS) {
            let mut bar = Rectangle::new(
                [(SegmentValue::Exact(at), from), (SegmentValue::Exact(at + 1), from + value)],
                colour.mix(0.75).filled(),
            );
            bar.set_margin(0, 0, 18, 18);
            context.draw_series([bar])?;
            let label = format!("{part} {value:.1}");
            let place = (SegmentValue::CenterOf(at), from + value / 2.0);
            let style = (FONT, 12).into_font().color(&BLACK).pos(plotters::style::text_anchor::Pos::new(
                plotters::style::text_anchor::HPos::Center,
                plotters::style::text_anchor::VPos::Center,
            ));
            // What is too thin for its name is told by the rest.
            if value * 30.0 > top {
                context.draw_series([Text::new(label.trim().to_owned(), place, style)])?;
            }
            from += value;
        }
    }
    Ok(())
}

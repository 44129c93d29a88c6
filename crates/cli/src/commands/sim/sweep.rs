//! `gleaner sim linger --sweep`: what becomes of guests as a parameter changes.

use super::chart::{self, Content, Curve, Panel, short};
use super::linger::{MEASURES, Measure, loads, manners, mean, set, with_interval, worlds};
use super::show;
use crate::answers::Render;
use crate::args::{Linger, Sweep};
use crate::error::Result;
use crate::render::Table;
use serde::Serialize;
use sim::cluster::Source;
use sim::parameters::Parameters;

/// What is shown, and drawn; JSON has all.
const SHOWN: [Measure; 3] = [MEASURES[0], MEASURES[1], MEASURES[4]];

#[derive(Clone, Debug, Serialize)]
struct Answer {
    parameter: String,
    replicates: u32,
    points: Vec<Point>,
}

/// A measure of a load under a policy at a value.
#[derive(Clone, Debug, Serialize)]
struct Point {
    value: f64,
    load: &'static str,
    policy: &'static str,
    measure: &'static str,
    mean: f64,
    /// The true mean is within so much, nineteen times in twenty.
    within: f64,
    one_within: f64,
}

/// Goes through all values.
pub fn run(linger: &Linger, parameters: &Parameters, source: Option<&Source>, swept: &Sweep) -> Result {
    // All values are looked at before hours are spent.
    for value in &swept.values {
        set(&mut parameters.clone(), &swept.name, *value)?;
    }
    let answer = swept_through(linger, parameters, source, swept)?;
    let drawing = linger.draw.as_deref().map(|path| (path, answer.draw()));
    show(&answer, linger.json, drawing)
}

fn swept_through(linger: &Linger, parameters: &Parameters, source: Option<&Source>, swept: &Sweep) -> Result<Answer> {
    let mut points = Vec::new();
    for value in &swept.values {
        for (load, mut with) in loads(linger, parameters) {
            set(&mut with, &swept.name, *value)?;
            for (policy, manner) in manners(linger, &with) {
                let worlds =
                    worlds(&format!("{} {value}, {load}, {policy}", swept.name), linger, &with, manner, source);
                points.extend(MEASURES.iter().map(|(measure, part)| {
                    let mean = mean(&worlds, *part);
                    let (within, one_within) = (mean.within, mean.one_within);
                    Point { value: *value, load, policy, measure, mean: mean.value, within, one_within }
                }));
            }
        }
    }
    Ok(Answer { parameter: swept.name.clone(), replicates: linger.replicates, points })
}

fn names(points: &[Point], part: fn(&Point) -> &'static str) -> Vec<&'static str> {
    let mut names = Vec::new();
    for name in points.iter().map(part) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

impl Answer {
    fn of(&self, load: &str, policy: &str, measure: &str) -> Vec<&Point> {
        let is_it = |point: &&Point| (point.load, point.policy, point.measure) == (load, policy, measure);
        self.points.iter().filter(is_it).collect()
    }

    fn draw(&self) -> String {
        let policies = names(&self.points, |point| point.policy);
        let mut panels = Vec::new();
        for load in names(&self.points, |point| point.load) {
            for (measure, _) in SHOWN {
                let curve = |policy: &&str| {
                    let points = self.of(load, policy, measure);
                    let points = points.iter().map(|point| (point.value, point.mean, point.within));
                    Curve { name: (*policy).to_owned(), points: points.collect() }
                };
                let content = Content::Curves(self.parameter.clone(), policies.iter().map(curve).collect());
                panels.push(Panel { title: format!("{load}: {measure}"), content });
            }
        }
        let title = format!("by {}, {} worlds for each point", self.parameter, self.replicates);
        chart::page(&title, "with the interval in which the true mean lies nineteen times in twenty", 3, &panels)
    }
}

impl Render for Answer {
    fn render(&self) -> String {
        let mut text = format!("by {}, {} worlds for each figure\n", self.parameter, self.replicates);
        let policies = names(&self.points, |point| point.policy);
        for load in names(&self.points, |point| point.load) {
            for (measure, _) in SHOWN {
                text.push_str(&format!("\n{load}: {measure}\n"));
                let mut table = Table::new(&[&["VALUE"][..], &policies].concat());
                let columns: Vec<Vec<&Point>> = policies.iter().map(|policy| self.of(load, policy, measure)).collect();
                for (at, point) in columns.first().into_iter().flatten().enumerate() {
                    let cells = columns.iter().map(|column| with_interval(column[at].mean, column[at].within));
                    table.row([short(point.value)].into_iter().chain(cells).collect());
                }
                text.push_str(&table.text(""));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::linger;
    use super::*;

    #[test]
    fn a_parameter_is_gone_through() {
        let linger = linger("--replicates 2 --sweep jobs=8,16 --policy LL,FL --machines 16");
        let swept = linger.sweep.clone().expect("a sweep");
        let answer = swept_through(&linger, &Parameters::default(), None, &swept).expect("sound");
        let text = answer.render();
        assert!(text.starts_with("by jobs, 2 worlds for each figure\n\nW1: average job time, s\nVALUE"), "{text}");
        assert_eq!(answer.points.len(), 2 * 2 * MEASURES.len());
        let few = answer.of("W1", "LL", MEASURES[0].0);
        assert!(few[0].mean > 600.0, "{few:?}");
        let file = answer.draw();
        assert!(file.contains("W1: throughput") && file.contains(">jobs<") && !file.contains("NaN"), "{file}");
    }

    #[test]
    fn values_out_of_bounds_are_refused_before_anything_is_simulated() {
        let linger = linger("--sweep idle-part=0.5..1.5");
        let swept = linger.sweep.clone().expect("a sweep");
        let error = run(&linger, &Parameters::default(), None, &swept).expect_err("out of bounds");
        assert_eq!(error.message, "idle-part is from 0 to 0.999, and not 1");
    }
}

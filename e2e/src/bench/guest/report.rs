//! What was measured, for people and for programs: a row for each measure, with a value for each way of having guests.

use super::ways::Way;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// How values are shown to people; in JSON they are as they are, shares and slowdowns as fractions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A fraction.
    Percent,
    /// Milliseconds.
    Ms,
    /// A ratio.
    Times,
    /// Seconds.
    Seconds,
}

/// What ours must reach.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// No more than this; and what it would be if there were no guests.
    AtMost(f64, f64),
    /// No less than this; and the best that could be.
    AtLeast(f64, f64),
}

/// One measure.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name among the figures, where the bare name is ours and others have their way's name behind it.
    pub name: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// What ours must reach, if anything.
    pub target: Option<Target>,
    /// Its value alone, where that says something.
    pub alone: Option<f64>,
    /// The same measure between the two blocks alone: no claim is finer.
    pub scatter: Option<f64>,
    /// With guests.
    pub values: BTreeMap<Way, f64>,
}

impl Row {
    /// A measure of which nothing is known yet.
    pub fn new(name: &'static str, unit: Unit) -> Self {
        Self { name, unit, target: None, alone: None, scatter: None, values: BTreeMap::new() }
    }

    /// With a target.
    pub fn target(self, target: Target) -> Self {
        Self { target: Some(target), ..self }
    }

    /// With its value alone.
    pub fn alone(self, alone: Option<f64>) -> Self {
        Self { alone: alone.filter(|alone| alone.is_finite()), ..self }
    }

    /// With a scatter.
    pub fn scatter(self, scatter: Option<f64>) -> Self {
        Self { scatter: scatter.filter(|scatter| scatter.is_finite()), ..self }
    }

    /// With what `of` says of each way, where it says something. What is no number, as on a machine that is never idle, is left out.
    pub fn values(self, of: impl Fn(Way) -> Option<f64>) -> Self {
        let known = |way: Way| Some((way, of(way).filter(|value| value.is_finite())?));
        Self { values: Way::ALL.into_iter().filter_map(known).collect(), ..self }
    }

    /// Whether ours reaches its target. What lies within the scatter, or a target finer than it, cannot be told.
    pub fn verdict(&self) -> Option<&'static str> {
        let (target, value) = (self.target?, *self.values.get(&Way::Ours)?);
        let scatter = self.scatter.unwrap_or(0.0).abs();
        let (over, room) = match target {
            Target::AtMost(limit, best) => (value - limit, limit - best),
            Target::AtLeast(limit, best) => (limit - value, best - limit),
        };
        Some(match (over <= 0.0, scatter > room) {
            (true, false) => "reached",
            (true, true) => "reached, but the scatter is larger than the target",
            (false, _) if over > scatter => "missed",
            (false, _) => "missed, by less than the scatter",
        })
    }
}

/// All rows, what is missing and why, and how it was measured.
#[derive(Clone, Debug, Default)]
pub struct Report {
    rows: Vec<Row>,
    missing: Vec<(String, String)>,
}

impl Report {
    /// Adds a measure.
    pub fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Adds why there is no figure.
    pub fn missing(&mut self, name: &str, why: &str) {
        self.missing.push((name.to_owned(), why.to_owned()));
    }

    /// `{"figures", "scatter", "targets", "missing", "settings"}`.
    pub fn to_json(&self, settings: &Value) -> Value {
        let [mut figures, mut scatters, mut targets, mut missing] = [(); 4].map(|()| Map::new());
        for row in &self.rows {
            for (way, value) in &row.values {
                let name = match way {
                    Way::Ours => row.name.to_owned(),
                    way => format!("{}_{}", row.name, way.name()),
                };
                figures.insert(name, rounded(*value).into());
            }
            if let Some(alone) = row.alone {
                figures.insert(format!("{}_alone", row.name), rounded(alone).into());
            }
            if let Some(scatter) = row.scatter {
                scatters.insert(row.name.to_owned(), rounded(scatter).into());
            }
            if !row.values.contains_key(&Way::Ours) && row.target.is_some() {
                missing.insert(row.name.to_owned(), "not measured".into());
            }
            if let Some(target) = row.target {
                let (word, limit) = match target {
                    Target::AtMost(limit, _) => ("at_most", limit),
                    Target::AtLeast(limit, _) => ("at_least", limit),
                };
                targets.insert(row.name.to_owned(), json!({ word: limit, "verdict": row.verdict() }));
            }
        }
        missing.extend(self.missing.iter().map(|(name, why)| (name.clone(), why.as_str().into())));
        json!({
            "figures": figures, "scatter": scatters, "targets": targets, "missing": missing, "settings": settings,
        })
    }

    /// Lines for a person.
    pub fn to_table(&self, settings: &Value) -> String {
        let mut text = format!("{:<28} {:>10} {:>10}", "", "alone", "A/A");
        Way::ALL.iter().for_each(|way| text.push_str(&format!(" {:>10}", way.name())));
        text.push_str("  target\n");
        for row in &self.rows {
            let show = |value: Option<f64>| value.map_or("-".to_owned(), |value| shown(value, row.unit));
            text.push_str(&format!("{:<28} {:>10} {:>10}", row.name, show(row.alone), show(row.scatter)));
            Way::ALL.iter().for_each(|way| text.push_str(&format!(" {:>10}", show(row.values.get(way).copied()))));
            let target = row.target.map(|target| match target {
                Target::AtMost(limit, _) => format!("  at most {}", shown(limit, row.unit)),
                Target::AtLeast(limit, _) => format!("  at least {}", shown(limit, row.unit)),
            });
            let verdict = row.verdict().map(|verdict| format!(": {verdict}"));
            text.push_str(&format!("{}{}\n", target.unwrap_or_default(), verdict.unwrap_or_default()));
        }
        for (name, why) in &self.missing {
            text.push_str(&format!("{name:<28} {:>10}  {why}\n", "-"));
        }
        text.push_str(&format!("\n{settings}\n"));
        text
    }
}

fn shown(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Percent => format!("{:.2}%", value * 100.0),
        Unit::Ms => format!("{value:.3} ms"),
        Unit::Times => format!("{value:.2}"),
        Unit::Seconds => format!("{value:.1} s"),
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1e5).round() / 1e5
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(value: f64, scatter: f64) -> Row {
        let row = Row::new("owner_slowdown_mean", Unit::Percent).target(Target::AtMost(0.01, 0.0));
        row.scatter(Some(scatter)).values(|way| (way != Way::Same).then_some(value))
    }

    #[test]
    fn nothing_is_claimed_within_the_scatter() {
        assert_eq!(row(0.005, 0.002).verdict(), Some("reached"));
        assert_eq!(row(0.005, 0.02).verdict(), Some("reached, but the scatter is larger than the target"));
        assert_eq!(row(0.05, 0.02).verdict(), Some("missed"));
        assert_eq!(row(0.02, 0.02).verdict(), Some("missed, by less than the scatter"));
        let harvest = Row::new("harvest", Unit::Percent).target(Target::AtLeast(0.95, 1.0));
        assert_eq!(harvest.values(|_| Some(0.96)).verdict(), Some("reached"));
    }

    #[test]
    fn rows_as_json_and_as_a_table() {
        let mut report = Report::default();
        report.add(row(0.0051, 0.002));
        report.missing("harvest", "no pool");
        let json = report.to_json(&json!({ "seed": 1 }));
        assert_eq!(json["figures"]["owner_slowdown_mean"], 0.0051);
        assert_eq!(json["figures"]["owner_slowdown_mean_nice19"], 0.0051);
        assert_eq!(json["targets"]["owner_slowdown_mean"]["at_most"], 0.01);
        assert_eq!(json["missing"]["harvest"], "no pool");
        let table = report.to_table(&json!({}));
        assert!(table.contains("0.51%") && table.contains("at most 1.00%: reached"), "{table}");
    }
}

//! Numbers that were measured, and what is said of them.

use std::collections::BTreeMap;

/// Samples under names, in order of the names.
#[derive(Clone, Debug, Default)]
pub struct Samples(BTreeMap<String, Vec<f64>>);

impl Samples {
    /// Adds one.
    pub fn add(&mut self, name: &str, value: f64) {
        self.0.entry(name.to_owned()).or_default().push(value);
    }

    /// The quantile `q` (0 to 1) of a name, by the nearest rank; none without samples.
    pub fn quantile(&self, name: &str, q: f64) -> Option<f64> {
        quantile(self.0.get(name)?, q)
    }

    /// The mean of a name; none without samples.
    pub fn mean(&self, name: &str) -> Option<f64> {
        let values = self.0.get(name)?;
        Some(values.iter().sum::<f64>() / values.len() as f64)
    }

    /// The median of a name; see [`median`].
    pub fn median(&self, name: &str) -> Option<f64> {
        median(self.0.get(name)?.iter().copied())
    }

    /// The median of the differences, or ratios, of two names, pair by pair: rounds that were slow were slow for both.
    pub fn median_of_pairs(&self, a: &str, b: &str, combine: fn(f64, f64) -> f64) -> Option<f64> {
        median(self.0.get(a)?.iter().zip(self.0.get(b)?).map(|(a, b)| combine(*a, *b)))
    }
}

/// The quantile `q` (0 to 1) by the nearest rank; none of none.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
}

/// The median; of an even number of values the mean of the two in the middle; none of none.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
    Some((low + high) / 2.0)
}

/// Results by name: a number, or why there is none; and curves.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    values: Vec<(String, Result<f64, String>)>,
    curves: BTreeMap<String, Vec<[f64; 2]>>,
}

impl Figures {
    /// Adds a figure; `None` says that it could not be measured.
    pub fn add(&mut self, name: &str, value: Option<f64>) {
        self.values.push((name.to_owned(), value.ok_or_else(|| "not measured".to_owned())));
    }

    /// Adds why there is no figure.
    pub fn missing(&mut self, name: &str, why: &str) {
        self.values.push((name.to_owned(), Err(why.to_owned())));
    }

    /// Adds a point to a curve.
    pub fn point(&mut self, curve: &str, x: f64, y: f64) {
        self.curves.entry(curve.to_owned()).or_default().push([rounded(x), rounded(y)]);
    }

    /// `{"figures": {…}, "missing": {…}}`; with `curves`, if there are any.
    pub fn to_json(&self) -> serde_json::Value {
        let mut figures = serde_json::Map::new();
        let mut missing = serde_json::Map::new();
        for (name, value) in &self.values {
            match value {
                Ok(value) => drop(figures.insert(name.clone(), rounded(*value).into())),
                Err(why) => drop(missing.insert(name.clone(), why.as_str().into())),
            }
        }
        let mut json = serde_json::json!({ "figures": figures, "missing": missing });
        if !self.curves.is_empty() {
            json["curves"] = serde_json::json!(self.curves);
        }
        json
    }

    /// Prints them: as JSON, or for a person.
    pub fn print(&self, json: bool) {
        match json {
            true => println!("{}", self.to_json()),
            false => print!("{}", self.to_table()),
        }
    }

    /// Lines for a person.
    fn to_table(&self) -> String {
        let line = |(name, value): &(String, Result<f64, String>)| match value {
            Ok(value) => format!("{name:<36} {value:>12.3}\n"),
            Err(why) => format!("{name:<36} {:>12}  {why}\n", "-"),
        };
        let curve = |(name, points): (&String, &Vec<[f64; 2]>)| {
            let points: Vec<String> = points.iter().map(|[x, y]| format!("{x}: {y}")).collect();
            format!("{name:<36} {}\n", points.join("  "))
        };
        self.values.iter().map(line).chain(self.curves.iter().map(curve)).collect()
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_and_medians() {
        let mut samples = Samples::default();
        (1..=100).rev().for_each(|value| samples.add("a", f64::from(value)));
        assert_eq!((samples.median("a"), samples.quantile("a", 0.99)), (Some(50.5), Some(99.0)));
        assert_eq!(samples.median("b"), None);
    }

    #[test]
    fn figures_as_json() {
        let mut figures = Figures::default();
        figures.add("a", Some(1.23456));
        figures.missing("b", "no sshd");
        assert_eq!(figures.to_json().to_string(), r#"{"figures":{"a":1.235},"missing":{"b":"no sshd"}}"#);
        figures.point("c", 1.0, 2.0);
        assert!(figures.to_json().to_string().contains(r#""curves":{"c":[[1.0,2.0]]}"#));
    }
}

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
        let mut sorted = self.0.get(name).filter(|samples| !samples.is_empty())?.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (q * sorted.len() as f64).ceil() as usize;
        Some(sorted[rank.clamp(1, sorted.len()) - 1])
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

/// The median; of an even number of values the mean of the two in the middle; none of none.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
    Some((low + high) / 2.0)
}

/// Results by name: a number, or why there is none.
#[derive(Clone, Debug, Default)]
pub struct Figures(Vec<(String, Result<f64, String>)>);

impl Figures {
    /// Adds a figure; `None` says that it could not be measured.
    pub fn add(&mut self, name: &str, value: Option<f64>) {
        self.0.push((name.to_owned(), value.ok_or_else(|| "not measured".to_owned())));
    }

    /// Adds why there is no figure.
    pub fn missing(&mut self, name: &str, why: &str) {
        self.0.push((name.to_owned(), Err(why.to_owned())));
    }

    /// `{"figures": {…}, "missing": {…}}`.
    pub fn to_json(&self) -> serde_json::Value {
        let mut figures = serde_json::Map::new();
        let mut missing = serde_json::Map::new();
        for (name, value) in &self.0 {
            match value {
                Ok(value) => drop(figures.insert(name.clone(), ((value * 1000.0).round() / 1000.0).into())),
                Err(why) => drop(missing.insert(name.clone(), why.as_str().into())),
            }
        }
        serde_json::json!({ "figures": figures, "missing": missing })
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
            Ok(value) => format!("{name:<28} {value:>12.3}\n"),
            Err(why) => format!("{name:<28} {:>12}  {why}\n", "-"),
        };
        self.0.iter().map(line).collect()
    }
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
    }
}

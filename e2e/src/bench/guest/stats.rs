//! What pairs of blocks say, and how finely.

pub use crate::bench::samples::quantile;

/// Student's t, one-sided 95%, for 1 to 10 degrees of freedom; above, the expansion in [`t95`] is good to three digits.
const T95: [f64; 10] = [6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812];
/// The same of the normal distribution.
const Z95: f64 = 1.644_854;

/// Mean of some values, and the half-width of its one-sided 95% bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// What is added for the upper 95% bound: t times the standard error; 0 of a single value.
    pub half_width: f64,
}

impl Mean {
    /// Of these; none of none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len() as f64;
        if values.is_empty() {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count;
        if values.len() == 1 {
            return Some(Self { mean, half_width: 0.0 });
        }
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        Some(Self { mean, half_width: t95(values.len() - 1) * (variance / count).sqrt() })
    }

    /// The upper 95% bound.
    pub fn upper95(self) -> f64 {
        self.mean + self.half_width
    }

    /// What two sides that are the same appear to differ by: nothing finer can be claimed.
    pub fn scatter(self) -> f64 {
        self.mean.abs() + self.half_width
    }
}

/// Student's t, one-sided 95% (Abramowitz and Stegun 26.7.5 from 11 degrees of freedom).
fn t95(degrees: usize) -> f64 {
    if let Some(t) = T95.get(degrees.saturating_sub(1)) {
        return *t;
    }
    let (z, n) = (Z95, degrees as f64);
    z + (z.powi(3) + z) / (4.0 * n) + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_and_its_bound() {
        let mean = Mean::of(&[1.0, 2.0, 3.0]).unwrap();
        // The standard error is 1/sqrt(3), t with two degrees 2.920.
        assert!((mean.mean - 2.0).abs() < 1e-12 && (mean.upper95() - 3.686).abs() < 1e-3, "{mean:?}");
        assert!((t95(20) - 1.725).abs() < 1e-3 && (t95(149) - 1.655).abs() < 1e-3);
        assert_eq!(Mean::of(&[]), None);
        assert_eq!(Mean::of(&[-3.0]).unwrap().scatter(), 3.0);
    }

    #[test]
    fn quantiles() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(
            (quantile(&values, 0.99), quantile(&values, 0.0), quantile(&[], 0.5)),
            (Some(198.0), Some(1.0), None)
        );
    }
}

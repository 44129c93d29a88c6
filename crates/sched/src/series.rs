//! How a series depends on its past: autocorrelation, and the Hurst parameter by rescaled ranges, as the Network Weather Service's authors
//! looked at the availability of processors (Wolski, Spring, Hayes: Predicting the CPU availability of time-shared Unix systems on the
//! computational grid, 1998).

/// Shortest segment of which a rescaled range is taken, in steps.
const SEGMENT_MIN: usize = 8;
/// Lengths of segments grow by the root of two, so that each octave has two.
const GROWTH: f64 = std::f64::consts::SQRT_2;

/// One point of a pox plot: a segment's length, and how far its sums wander, in standard deviations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pox {
    /// Steps.
    pub length: usize,
    /// The rescaled range, R/S.
    pub range: f64,
}

/// The autocorrelations of a series at lags 0 to `lags`, from -1 to 1; of a series that does not vary only the first is 1.
pub fn autocorrelations(values: &[f64], lags: usize) -> Vec<f64> {
    let mean = mean(values);
    let covariance = |lag: usize| {
        let later = values.get(lag..).unwrap_or_default();
        values.iter().zip(later).map(|(one, other)| (one - mean) * (other - mean)).sum::<f64>()
    };
    let variance = covariance(0);
    let part = |lag| match lag {
        0 => 1.0,
        _ if variance > 0.0 => covariance(lag) / variance,
        _ => 0.0,
    };
    (0..=lags).map(part).collect()
}

/// The points of a pox plot: the rescaled ranges of the segments that lie beside one another, for segments of all lengths. Segments in
/// which nothing varies have none.
pub fn pox(values: &[f64]) -> Vec<Pox> {
    let mut points = Vec::new();
    let mut length = SEGMENT_MIN as f64;
    while length as usize <= values.len() {
        let steps = length as usize;
        let ranges = values.chunks_exact(steps).filter_map(rescaled_range);
        points.extend(ranges.map(|range| Pox { length: steps, range }));
        length *= GROWTH;
    }
    points
}

/// The Hurst parameter: the slope of the mean logarithms of rescaled ranges over the logarithms of their lengths. 0.5 without long memory,
/// nearer to 1 with. `None`: there are fewer than two lengths.
pub fn hurst(points: &[Pox]) -> Option<f64> {
    let mut means: Vec<(f64, f64)> = Vec::new();
    for same in points.chunk_by(|one, other| one.length == other.length) {
        let logarithms: Vec<f64> = same.iter().map(|point| point.range.ln()).collect();
        means.push(((same[0].length as f64).ln(), mean(&logarithms)));
    }
    if means.len() < 2 {
        return None;
    }
    let (lengths, ranges): (Vec<f64>, Vec<f64>) = means.iter().copied().unzip();
    let (across, up) = (mean(&lengths), mean(&ranges));
    let covariance: f64 = means.iter().map(|(length, range)| (length - across) * (range - up)).sum();
    let variance: f64 = lengths.iter().map(|length| (length - across).powi(2)).sum();
    Some(covariance / variance)
}

fn rescaled_range(segment: &[f64]) -> Option<f64> {
    let mean = mean(segment);
    let variance = segment.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / segment.len() as f64;
    let (mut sum, mut low, mut high) = (0.0f64, 0.0f64, 0.0f64);
    for value in segment {
        sum += value - mean;
        (low, high) = (low.min(sum), high.max(sum));
    }
    let range = (high - low) / variance.sqrt();
    // What is left of rounding is no variation.
    let varies = variance.sqrt() > f64::EPSILON * mean.abs() * segment.len() as f64;
    (varies && range > 0.0).then_some(range)
}

/// The mean; 0 of nothing.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    fn noise(count: usize) -> Vec<f64> {
        let mut dice = Dice::new(5);
        (0..count).map(|_| dice.unit() - 0.5).collect()
    }

    #[test]
    fn an_alternating_series_is_its_own_opposite() {
        let values: Vec<f64> = (0..100).map(|at| f64::from(at % 2)).collect();
        let all = autocorrelations(&values, 2);
        assert!((all[0] - 1.0).abs() < 1e-12 && (all[1] + 1.0).abs() < 0.02 && (all[2] - 1.0).abs() < 0.03, "{all:?}");
        assert_eq!(autocorrelations(&[2.0; 10], 2), [1.0, 0.0, 0.0]);
        assert_eq!(autocorrelations(&[], 1), [1.0, 0.0]);
    }

    #[test]
    fn noise_has_no_memory_and_its_sums_have() {
        let noise = noise(1 << 14);
        let without = hurst(&pox(&noise)).expect("a slope");
        // Short segments wander more than long ones say: 0.5 is approached from above.
        assert!((0.5..0.6).contains(&without), "{without}");
        let sums: Vec<f64> = noise.iter().scan(0.0, |sum, value| Some(std::mem::replace(sum, *sum + value))).collect();
        let with = hurst(&pox(&sums)).expect("a slope");
        assert!(with > 0.9, "{with}");
    }

    #[test]
    fn what_does_not_vary_has_no_points() {
        assert_eq!(pox(&[0.1; 500]), []);
        assert_eq!(hurst(&[]), None);
        assert_eq!(hurst(&pox(&noise(9))), None);
    }
}

//! Least squares over a past that fades: what comes, as a weighed sum of what was, both as differences from the series' mean.

/// Added to each variance, as a part of their mean: so a series that is nearly constant or periodic has a solution.
const RIDGE: f64 = 1e-3;

/// A regression on so many terms.
#[derive(Clone, Debug)]
pub struct Regression<const TERMS: usize> {
    /// What a step leaves of all weights before.
    memory: f64,
    weight: f64,
    mean: f64,
    /// How terms go together, two and two; the lower half.
    covariances: [[f64; TERMS]; TERMS],
    /// How what comes goes with them.
    with_next: [f64; TERMS],
    coefficients: Option<[f64; TERMS]>,
}

impl<const TERMS: usize> Regression<TERMS> {
    /// One whose weights fade so.
    pub fn new(memory: f64) -> Self {
        Self {
            memory,
            weight: 0.0,
            mean: 0.0,
            covariances: [[0.0; TERMS]; TERMS],
            with_next: [0.0; TERMS],
            coefficients: None,
        }
    }

    /// One more value of the series.
    pub fn see(&mut self, value: f64) {
        self.weight = self.memory * self.weight + 1.0;
        self.mean += (value - self.mean) / self.weight;
    }

    /// What came after these terms.
    pub fn learn(&mut self, terms: &[f64; TERMS], next: f64) {
        let before = terms.map(|term| term - self.mean);
        let next = next - self.mean;
        for (row, one) in before.iter().enumerate() {
            self.with_next[row] = self.memory * self.with_next[row] + one * next;
            for (sum, other) in self.covariances[row][..=row].iter_mut().zip(&before) {
                *sum = self.memory * *sum + one * other;
            }
        }
    }

    /// Fits anew.
    pub fn fit(&mut self) {
        self.coefficients = self.solve();
    }

    /// What comes after these terms; `None`: nothing was fitted, or the series does not vary.
    pub fn forecast(&self, terms: impl Iterator<Item = f64>) -> Option<f64> {
        let coefficients = self.coefficients.as_ref()?;
        Some(self.mean + coefficients.iter().zip(terms).map(|(part, term)| part * (term - self.mean)).sum::<f64>())
    }

    /// The normal equations' solution, by Cholesky's decomposition. `None`: the series does not vary.
    fn solve(&self) -> Option<[f64; TERMS]> {
        let ridge = RIDGE * (0..TERMS).map(|at| self.covariances[at][at]).sum::<f64>() / TERMS as f64;
        let mut lower = [[0.0; TERMS]; TERMS];
        let mut solution = [0.0; TERMS];
        for row in 0..TERMS {
            for column in 0..=row {
                let known: f64 = (0..column).map(|at| lower[row][at] * lower[column][at]).sum();
                let left = self.covariances[row][column] - known;
                lower[row][column] = match row == column {
                    true => Some((left + ridge).sqrt()).filter(|root| *root > 0.0 && root.is_finite())?,
                    false => left / lower[column][column],
                };
            }
            let known: f64 = (0..row).map(|at| lower[row][at] * solution[at]).sum();
            solution[row] = (self.with_next[row] - known) / lower[row][row];
        }
        for row in (0..TERMS).rev() {
            let known: f64 = (row + 1..TERMS).map(|at| lower[at][row] * solution[at]).sum();
            solution[row] = (solution[row] - known) / lower[row][row];
        }
        solution.iter().all(|part| part.is_finite()).then_some(solution)
    }
}

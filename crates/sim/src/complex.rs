//! Complex numbers, as far as transforms need them, and the way back from a transform.

use std::ops::{Add, Div, Mul, Sub};

/// A complex number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Complex {
    /// Its real part.
    pub re: f64,
    /// Its imaginary part.
    pub im: f64,
}

impl From<f64> for Complex {
    fn from(re: f64) -> Self {
        Self { re, im: 0.0 }
    }
}

impl Add for Complex {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { re: self.re + other.re, im: self.im + other.im }
    }
}

impl Sub for Complex {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self { re: self.re - other.re, im: self.im - other.im }
    }
}

impl Mul for Complex {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        Self { re: self.re * other.re - self.im * other.im, im: self.re * other.im + self.im * other.re }
    }
}

impl Mul<f64> for Complex {
    type Output = Self;
    fn mul(self, by: f64) -> Self {
        Self { re: self.re * by, im: self.im * by }
    }
}

impl Div for Complex {
    type Output = Self;
    fn div(self, by: Self) -> Self {
        let norm = by.re * by.re + by.im * by.im;
        self * Self { re: by.re / norm, im: -by.im / norm }
    }
}

impl Complex {
    /// Its exponential.
    pub fn exp(self) -> Self {
        Self { re: self.im.cos(), im: self.im.sin() } * self.re.exp()
    }

    /// The square root whose real part is not negative.
    pub fn sqrt(self) -> Self {
        let size = self.re.hypot(self.im);
        let re = ((size + self.re) / 2.0).max(0.0).sqrt();
        let im = ((size - self.re) / 2.0).max(0.0).sqrt();
        Self { re, im: if self.im < 0.0 { -im } else { im } }
    }
}

/// Terms of the inversion; more would be lost to rounding.
const TERMS: usize = 11;

/// The function at `at`, above 0, of which this is the Laplace transform: by Euler's summation (Abate, Whitt: A unified framework for
/// numerically inverting Laplace transforms, 2006, section 5). Off by about a millionth where the function is smooth.
pub fn inverse(transform: impl Fn(Complex) -> Complex, at: f64) -> f64 {
    let decay = TERMS as f64 * std::f64::consts::LN_10 / 3.0;
    let (mut sum, mut weight, mut binomial) = (0.0, 1.0, 1.0);
    let step = 0.5f64.powi(TERMS as i32);
    // Weights fall from 1 in steps that are binomial; so the last terms come first.
    let mut weights = [1.0; 2 * TERMS + 1];
    weights[0] = 0.5;
    weights[2 * TERMS] = step;
    for (back, of) in (1..TERMS).enumerate() {
        binomial *= (TERMS - back) as f64 / of as f64;
        weights[2 * TERMS - of] = weights[2 * TERMS - of + 1] + step * binomial;
    }
    for (number, share) in weights.into_iter().enumerate() {
        let beta = Complex { re: decay, im: std::f64::consts::PI * number as f64 };
        sum += weight * share * transform(beta * (1.0 / at)).re;
        weight = -weight;
    }
    decay.exp() / at * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_and_quotients() {
        let z = Complex { re: -3.0, im: -4.0 };
        let root = z.sqrt();
        assert_eq!(root, Complex { re: 1.0, im: -2.0 });
        assert_eq!((root * root, z / z), (z, 1.0.into()));
        assert!((Complex { re: 0.0, im: std::f64::consts::PI }.exp().re + 1.0).abs() < 1e-15);
    }

    #[test]
    fn transforms_that_are_known_are_turned_back() {
        let one = Complex::from(1.0);
        for at in [0.01, 0.5, 1.0, 5.0] {
            assert!((inverse(|s| one / (s + one), at) - (-at).exp()).abs() < 1e-5, "{at}");
            assert!((inverse(|s| one / (s * s), at) - at).abs() < 1e-5 * at, "{at}");
        }
    }
}

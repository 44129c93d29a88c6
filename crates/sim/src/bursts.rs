//! What goes on within a sample: owners' processes run and rest in bursts of milliseconds, and a guest runs in between.
//!
//! Bursts are drawn from two exponentials each (a two-phase hyperexponential with balanced means), as in Linger-Longer's study. When the
//! owner's process wakes up the processor is switched to it, which it has to wait for; when it rests the processor is switched to the
//! guest, unless the owner is back before that is done. Worlds use the closed form; [`explicit`] goes through every burst, and is there to
//! check it.

use crate::dice::Dice;

/// A distribution of lengths: one of two exponentials, each of which has half of the whole length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lengths {
    /// How likely it is the first.
    pub first: f64,
    /// What is drawn of each per unit of time.
    pub rates: [f64; 2],
}

impl Lengths {
    /// With this mean, and this square of deviation over mean, at least 1.
    pub fn new(mean: f64, variation: f64) -> Self {
        let first = (1.0 + ((variation - 1.0) / (variation + 1.0)).max(0.0).sqrt()) / 2.0;
        Self { first, rates: [2.0 * first / mean, 2.0 * (1.0 - first) / mean] }
    }

    /// One length.
    pub fn draw(&self, dice: &mut Dice) -> f64 {
        let at = usize::from(dice.unit() >= self.first);
        dice.exponential(1.0 / self.rates[at])
    }

    /// What is left, on average, of a length once `less` of it has gone, or nothing if it is not longer.
    pub fn mean_above(&self, less: f64) -> f64 {
        let part = |share: f64, rate: f64| share / rate * (-rate * less).exp();
        part(self.first, self.rates[0]) + part(1.0 - self.first, self.rates[1])
    }
}

/// How owners' processes run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bursts {
    /// Mean time that an owner's process runs before it rests, in seconds.
    pub run_s: f64,
    /// Square of deviation over mean, of running and of resting.
    pub variation: f64,
    /// What it takes to switch the processor, in seconds.
    pub switch_s: f64,
}

impl Default for Bursts {
    /// Switches are the study's. Bursts are assumed to be such that its owners lose the 0.5% that it found; their variation is a guess.
    fn default() -> Self {
        Self { run_s: 0.020, variation: 4.0, switch_s: 100e-6 }
    }
}

/// What becomes of a processor that an owner and a guest share.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    /// The part of all time in which the guest runs.
    pub guest: f64,
    /// What the owner waits for, as a part of what he runs.
    pub slowdown: f64,
}

impl Bursts {
    /// Lengths for which an owner's process runs.
    pub fn runs(&self) -> Lengths {
        Lengths::new(self.run_s, self.variation)
    }

    /// Lengths for which it rests, if it would use this part of the processor by itself.
    pub fn rests(&self, used: f64) -> Lengths {
        Lengths::new(self.run_s * (1.0 - used) / used, self.variation)
    }

    /// The closed form: an owner's burst is put off by a switch; from each rest the guest gets what is longer than a switch.
    pub fn shares(&self, used: f64) -> Shares {
        let slowdown = self.switch_s / self.run_s;
        if used <= 0.0 {
            return Shares { guest: 1.0, slowdown };
        }
        if used >= 1.0 {
            return Shares { guest: 0.0, slowdown };
        }
        let rest_s = self.run_s * (1.0 - used) / used;
        let guest_s = self.rests(used).mean_above(self.switch_s);
        Shares { guest: guest_s / (self.switch_s + self.run_s + rest_s), slowdown }
    }
}

/// The same, burst by burst, for about so long.
pub fn explicit(bursts: &Bursts, used: f64, lasts_s: f64, dice: &mut Dice) -> Shares {
    let (runs, rests) = (bursts.runs(), bursts.rests(used));
    let (mut now_s, mut guest_s, mut ran_s, mut waited_s) = (0.0, 0.0, 0.0, 0.0);
    while now_s < lasts_s {
        let (run_s, rest_s) = (runs.draw(dice), rests.draw(dice));
        ran_s += run_s;
        waited_s += bursts.switch_s;
        // The guest is switched to while the owner rests.
        guest_s += (rest_s - bursts.switch_s).max(0.0);
        now_s += bursts.switch_s + run_s + rest_s;
    }
    Shares { guest: guest_s / now_s, slowdown: waited_s / ran_s }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_the_mean_and_the_variation_that_they_should() {
        let lengths = Lengths::new(0.02, 4.0);
        let mut dice = Dice::new(2, 2);
        let drawn: Vec<f64> = (0..400_000).map(|_| lengths.draw(&mut dice)).collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let square = drawn.iter().map(|length| (length - mean).powi(2)).sum::<f64>() / drawn.len() as f64;
        assert!((mean / 0.02 - 1.0).abs() < 0.01, "{mean}");
        assert!((square / (mean * mean) / 4.0 - 1.0).abs() < 0.03, "{}", square / (mean * mean));
        assert!((lengths.mean_above(0.0) - 0.02).abs() < 1e-12);
        assert_eq!(Lengths::new(3.0, 1.0).rates, [1.0 / 3.0; 2]);
    }

    #[test]
    fn the_closed_form_is_what_bursts_come_to() {
        let mut dice = Dice::new(9, 1);
        for used in [0.02, 0.1, 0.3, 0.5, 0.8, 0.95] {
            for (variation, switch_s) in [(1.0, 100e-6), (4.0, 100e-6), (4.0, 1e-3), (16.0, 100e-6)] {
                let bursts = Bursts { variation, switch_s, ..Bursts::default() };
                let (closed, found) = (bursts.shares(used), explicit(&bursts, used, 40_000.0, &mut dice));
                assert!((closed.guest - found.guest).abs() < 0.005, "{used} {bursts:?}: {closed:?} {found:?}");
                assert!((closed.slowdown / found.slowdown - 1.0).abs() < 0.02, "{closed:?} {found:?}");
            }
        }
    }

    #[test]
    fn a_processor_is_shared_out_at_both_ends() {
        let bursts = Bursts::default();
        assert_eq!((bursts.shares(0.0).guest, bursts.shares(1.0).guest), (1.0, 0.0));
        assert!((bursts.shares(0.3).slowdown - 0.005).abs() < 1e-12);
        assert_eq!(Bursts { switch_s: 0.0, ..bursts }.shares(0.25), Shares { guest: 0.75, slowdown: 0.0 });
    }
}

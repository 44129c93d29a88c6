//! What tasks need that nobody knows beforehand, by those of their kind that have ended.

/// Needs are counted by their logarithm, four steps to a doubling, from 1 s on.
const STEPS: usize = 120;
const STEPS_TO_TWO: f64 = 4.0;
/// That a task needs as much again as it has had counts as so many that have ended.
const BELIEF: f64 = 1.0;
/// A task that has only begun is believed to need this, in seconds.
const LEFT_S_MIN: f64 = 60.0;
/// When so many have ended, older ones count for half.
const ENDED_MAX: f64 = 10_000.0;

/// Processor time that tasks of a kind have needed.
#[derive(Clone, Debug, PartialEq)]
pub struct Needs {
    /// By step: how many, and how much they needed together.
    ended: Vec<(f64, f64)>,
    count: f64,
}

impl Default for Needs {
    fn default() -> Self {
        Self { ended: vec![(0.0, 0.0); STEPS], count: 0.0 }
    }
}

impl Needs {
    /// A task has ended that needed so much.
    pub fn ended(&mut self, needed_s: f64) {
        if self.count >= ENDED_MAX {
            self.ended.iter_mut().for_each(|(count, sum_s)| (*count, *sum_s) = (*count / 2.0, *sum_s / 2.0));
            self.count /= 2.0;
        }
        let step = (needed_s.max(1.0).log2() * STEPS_TO_TWO) as usize;
        let (count, sum_s) = &mut self.ended[step.min(STEPS - 1)];
        (*count, *sum_s) = (*count + 1.0, *sum_s + needed_s);
        self.count += 1.0;
    }

    /// What a task will need further that has had so much: what those needed further that had as much and went on. Where none is known, as
    /// much again (Harchol-Balter, Downey: Exploiting process lifetime distributions for dynamic load balancing, 1997).
    pub fn left_s(&self, spent_s: f64) -> f64 {
        let (mut count, mut sum_s) = (BELIEF, BELIEF * spent_s.max(LEFT_S_MIN));
        for (ended, needed_s) in self.ended.iter().filter(|(ended, needed_s)| *needed_s > *ended * spent_s) {
            count += ended;
            sum_s += needed_s - ended * spent_s;
        }
        sum_s / count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_need_what_others_needed() {
        let mut needs = Needs::default();
        assert_eq!((needs.left_s(0.0), needs.left_s(500.0)), (LEFT_S_MIN, 500.0));
        (0..50).for_each(|_| needs.ended(600.0));
        assert!((needs.left_s(0.0) - 600.0).abs() < 15.0, "{}", needs.left_s(0.0));
        assert!((needs.left_s(500.0) - 100.0).abs() < 10.0, "{}", needs.left_s(500.0));
        assert!(needs.left_s(900.0) >= 900.0, "longer than all of them: nobody knows");
    }

    #[test]
    fn old_ones_fade() {
        let mut needs = Needs::default();
        (0..20_000).for_each(|_| needs.ended(10.0));
        (0..20_000).for_each(|_| needs.ended(1_000.0));
        assert!(needs.left_s(0.0) > 700.0, "{}", needs.left_s(0.0));
        assert!(needs.count <= ENDED_MAX + 1.0);
        needs.ended(f64::MAX);
    }
}

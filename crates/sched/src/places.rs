//! Which processor a guest is on. A task may use as many as it has asked for, and not more; the kernel does not move it from one that its
//! machine's owner has begun to use, or that another guest shares, while a third one is idle. So it is moved: where it would get more.

use std::collections::BTreeMap;

/// A guest moves for so much more of a processor, at least: caches are cold where it comes to.
const GAIN_MIN: f64 = 0.25;

/// What a guest has had since the last look.
#[derive(Clone, Debug, PartialEq)]
pub struct Guest {
    /// Processors that it may use, by number.
    pub cpus: Vec<u32>,
    /// How many of them it has used, in the mean.
    pub used: f64,
}

impl Guest {
    /// How much more of processors it might use.
    fn lacks(&self) -> f64 {
        self.cpus.len() as f64 - self.used
    }

    /// Whether it would move if it waits for a processor: whoever sleeps is as well off where it is. `idle`: the part of each lent processor
    /// that nobody has used.
    pub fn might_move(&self, idle: &BTreeMap<u32, f64>) -> bool {
        self.gain(idle).is_some()
    }

    /// From where to where, and what it would have more there.
    fn gain(&self, idle: &BTreeMap<u32, f64>) -> Option<(u32, u32, f64)> {
        let of = |cpu: &u32| idle.get(cpu).copied().unwrap_or(0.0);
        let from = *self.cpus.iter().min_by(|a, b| of(a).total_cmp(&of(b)))?;
        let others = idle.iter().filter(|(cpu, _)| !self.cpus.contains(cpu));
        let (to, there) = others.max_by(|a, b| a.1.total_cmp(b.1))?;
        let gain = self.lacks().min(there - of(&from));
        (gain >= GAIN_MIN).then_some((from, *to, gain))
    }
}

/// A guest's move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Which of those given.
    pub guest: usize,
    /// The processor that it leaves …
    pub from: u32,
    /// … and that it gets.
    pub to: u32,
}

/// Who of the guests that wait for a processor moves, those first that lack most.
pub fn moves(mut idle: BTreeMap<u32, f64>, waiting: &[(usize, Guest)]) -> Vec<Move> {
    let mut order: Vec<&(usize, Guest)> = waiting.iter().collect();
    order.sort_by(|(_, a), (_, b)| b.lacks().total_cmp(&a.lacks()));
    let mut moves = Vec::new();
    for (number, guest) in order {
        let Some((from, to, gain)) = guest.gain(&idle) else { continue };
        *idle.entry(to).or_default() -= gain;
        *idle.entry(from).or_default() += guest.used / guest.cpus.len() as f64;
        moves.push(Move { guest: *number, from, to });
    }
    moves
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(cpus: &[u32], used: f64) -> Guest {
        Guest { cpus: cpus.to_vec(), used }
    }

    fn moved(idle: &[f64], guests: &[Guest]) -> Vec<(usize, u32, u32)> {
        let idle: BTreeMap<u32, f64> = (0..).zip(idle.iter().copied()).collect();
        let waiting: Vec<(usize, Guest)> =
            guests.iter().cloned().enumerate().filter(|(_, guest)| guest.might_move(&idle)).collect();
        moves(idle, &waiting).iter().map(|to| (to.guest, to.from, to.to)).collect()
    }

    #[test]
    fn who_gets_little_goes_where_nobody_is() {
        assert_eq!(moved(&[0.0, 1.0], &[guest(&[0], 0.01)]), [(0, 0, 1)]);
        assert_eq!(moved(&[0.0, 0.3, 0.9], &[guest(&[0, 1], 0.8)]), [(0, 0, 2)], "from where it gets least");
        assert_eq!(moved(&[0.0, 1.0], &[guest(&[0], 0.5), guest(&[0], 0.5)]), [(0, 0, 1)], "one is enough");
        let three = [guest(&[0], 0.3), guest(&[0], 0.3), guest(&[0], 0.4)];
        assert_eq!(moved(&[0.0, 1.0, 1.0], &three), [(0, 0, 2), (1, 0, 1)]);
    }

    #[test]
    fn who_has_its_right_or_would_get_no_more_stays() {
        assert_eq!(moved(&[0.0, 1.0], &[guest(&[0], 0.98)]), []);
        assert_eq!(moved(&[0.0, 0.2], &[guest(&[0], 0.01)]), []);
        assert_eq!(moved(&[0.7, 0.8], &[guest(&[0], 0.3)]), [], "it is not for want of a processor");
        assert_eq!(moved(&[0.0, 1.0], &[guest(&[0, 1], 1.0)]), [], "it has both");
        assert_eq!(moved(&[], &[guest(&[], 0.0)]), []);
    }
}

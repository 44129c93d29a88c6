//! The last values of a series, in a ring.

/// As many as any forecaster looks at.
pub const RECENT_MAX: usize = 51;

/// The last values.
#[derive(Clone, Debug)]
pub struct Recent {
    ring: [f64; RECENT_MAX],
    /// Values so far.
    count: u64,
}

impl Default for Recent {
    fn default() -> Self {
        Self { ring: [0.0; RECENT_MAX], count: 0 }
    }
}

impl Recent {
    /// One more.
    pub fn push(&mut self, value: f64) {
        self.ring[(self.count % RECENT_MAX as u64) as usize] = value;
        self.count += 1;
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count.min(RECENT_MAX as u64) as usize
    }

    /// The one that came so many before the last.
    pub fn back(&self, steps: usize) -> f64 {
        debug_assert!(steps < self.len());
        self.ring[((self.count - 1 - steps as u64) % RECENT_MAX as u64) as usize]
    }

    /// The last so many, or as many as there are: newest first.
    pub fn last(&self, count: usize) -> impl Iterator<Item = f64> + '_ {
        (0..count.min(self.len())).map(|steps| self.back(steps))
    }

    /// The same in the order of their size, in the front part of `room`, which is given back.
    pub fn sorted<'a>(&self, count: usize, room: &'a mut [f64; RECENT_MAX]) -> &'a [f64] {
        let count = count.min(self.len());
        for (to, value) in room.iter_mut().zip(self.last(count)) {
            *to = value;
        }
        room[..count].sort_unstable_by(f64::total_cmp);
        &room[..count]
    }

    /// The least and the greatest.
    pub fn bounds(&self) -> (f64, f64) {
        self.last(RECENT_MAX)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_comes_first_and_the_oldest_goes() {
        let mut recent = Recent::default();
        (0..60).for_each(|value| recent.push(f64::from(value)));
        assert_eq!((recent.len(), recent.back(0), recent.back(50)), (51, 59.0, 9.0));
        assert_eq!(recent.last(3).collect::<Vec<_>>(), [59.0, 58.0, 57.0]);
        assert_eq!(recent.sorted(3, &mut [0.0; RECENT_MAX]), [57.0, 58.0, 59.0]);
        assert_eq!(recent.bounds(), (9.0, 59.0));
    }
}

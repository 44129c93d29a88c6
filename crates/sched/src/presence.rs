//! Whether a machine's owner is there: by what he types and moves, and by what his programs use. Guests' own load is never his.

/// A machine is idle when its owner's programs use less than this part of it …
pub const USED_MAX: f64 = 0.10;
/// … and nobody has typed or moved anything, both for so long, in seconds (Linger-Longer; the same in Condor and NOW, but for the time).
pub const IDLE_S: f64 = 60.0;

/// What was seen of an owner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Signs {
    /// Seconds since somebody typed or moved anything; `None`: that is not known.
    pub input_s: Option<f64>,
    /// The part of the machine's processors that is used and not by guests, 0 to 1.
    pub used: f64,
}

/// Whether he is there, from sign to sign.
#[derive(Clone, Copy, Debug, Default)]
pub struct Presence {
    /// When there was a sign of him last, in seconds.
    last_s: Option<f64>,
    /// Since when he is there.
    since_s: Option<f64>,
}

impl Presence {
    /// Signs, at a time in seconds from any start.
    pub fn observe(&mut self, signs: &Signs, now_s: f64) {
        let typed_s = signs.input_s.map(|ago_s| now_s - ago_s);
        let worked_s = (signs.used >= USED_MAX).then_some(now_s);
        let last_s = [self.last_s, typed_s, worked_s].into_iter().flatten().reduce(f64::max);
        self.last_s = last_s;
        match last_s.filter(|last_s| now_s - last_s < IDLE_S) {
            Some(last_s) => drop(self.since_s.get_or_insert(last_s)),
            None => self.since_s = None,
        }
    }

    /// For how long he has been there, in seconds; `None`: he is away.
    pub fn for_s(&self, now_s: f64) -> Option<f64> {
        self.since_s.map(|since_s| (now_s - since_s).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(presence: &mut Presence, now_s: f64, input_s: Option<f64>, used: f64) -> Option<f64> {
        presence.observe(&Signs { input_s, used }, now_s);
        presence.for_s(now_s)
    }

    #[test]
    fn he_is_there_while_he_types_and_for_a_minute_after() {
        let mut presence = Presence::default();
        assert_eq!(at(&mut presence, 0.0, Some(600.0), 0.01), None);
        assert_eq!(at(&mut presence, 10.0, Some(4.0), 0.01), Some(4.0));
        assert_eq!(at(&mut presence, 60.0, Some(54.0), 0.01), Some(54.0));
        assert_eq!(at(&mut presence, 66.0, Some(60.0), 0.01), None);
        assert_eq!(at(&mut presence, 100.0, Some(1.0), 0.01), Some(1.0), "he came back");
    }

    #[test]
    fn what_he_left_running_is_a_sign_of_him() {
        let mut presence = Presence::default();
        assert_eq!(at(&mut presence, 0.0, None, 0.5), Some(0.0));
        assert_eq!(at(&mut presence, 50.0, None, 0.09), Some(50.0));
        assert_eq!(at(&mut presence, 59.0, None, 0.2), Some(59.0));
        assert_eq!(at(&mut presence, 118.0, None, 0.0), Some(118.0));
        assert_eq!(at(&mut presence, 119.0, None, 0.0), None);
    }
}

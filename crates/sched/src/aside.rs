//! When guests stand aside altogether: while their machine's owner has work for all its processors.
//!
//! The lowest priority yields a processor at once, but only that one. To the kernel a processor that runs a guest is not idle: it does not fetch what
//! waits elsewhere as soon as it could, and new processes keep away from it, for it looks busy. So where an owner runs as many processes as there are
//! processors, and short ones, as a build does, two of them share one while a guest has another. As long as no guest can run that does not happen.
//!
//! Beside guests it cannot be seen whether their owner could use more than he does. So it is tried, for a moment: while guests stand aside he
//! either uses all, and they stay aside; or he does not, and they go on, and it is tried again later and later, as long as he goes on like that.

use crate::sense::bound::Bound;

/// An owner who uses less than this part of the processors would be served no better …
const USED_MIN: f64 = 0.45;
/// … and one who uses less than this is not hindered by guests.
const FULL: f64 = 0.75;
/// It takes so long, in seconds, until it is known what he uses while guests stand aside …
const TRY_S: f64 = 0.2;
/// … and from then on it is a mean over about so long: a moment in which he waits for a disk is none to bring them back.
const MEAN_S: f64 = 0.4;
/// Guests that stood aside for so long did well, in seconds.
const GOOD_S: f64 = 1.0;
/// Between two attempts that did not do well, at least and at most, in seconds.
const WAIT_S: (f64, f64) = (0.5, 8.0);
/// After so much time in which he used little, what was tried before counts no longer, in seconds: were it less, they would stand aside in each burst
/// of an owner who computes in bursts.
const FORGET_S: f64 = 8.0;
/// Guests that get less than this of a processor are in nobody's way.
const GUESTS_MIN: f64 = 0.05;

/// What processors did since the last look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// Seconds.
    pub seconds: f64,
    /// Processors that there are for programs.
    pub processors: f64,
    /// Processors that were used by others than guests.
    pub owner: f64,
    /// Processors that guests used.
    pub guests: f64,
}

impl Look {
    /// The same where a container bounds what there is, if that leaves less.
    pub fn within(self, bound: Option<Bound>) -> Self {
        match bound.filter(|bound| bound.left() < self.processors - self.owner) {
            Some(Bound { processors, others }) => Self { processors, owner: others, ..self },
            None => self,
        }
    }
}

/// Whether they stand aside, from look to look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Aside {
    /// For how long they have stood aside, in seconds, and the processors that the owner used meanwhile.
    now: Option<(f64, f64)>,
    /// To be waited before the next attempt, in seconds, and how long has been waited.
    wait_s: f64,
    waited_s: f64,
    /// For how long he has used little, in seconds.
    calm_s: f64,
}

impl Aside {
    /// Whether guests are to stand aside from now on.
    pub fn judge(&mut self, look: &Look) -> bool {
        match self.now {
            Some((for_s, used)) => self.go_on(look, for_s, used),
            None => self.begin(look),
        }
        self.now.is_some()
    }

    /// They go on, whatever the owner does: somebody has come who has a right to some time.
    pub fn end(&mut self) {
        self.now = None;
    }

    fn begin(&mut self, look: &Look) {
        self.waited_s += look.seconds;
        let may_want_more = look.owner >= USED_MIN * look.processors;
        self.calm_s = if may_want_more { 0.0 } else { self.calm_s + look.seconds };
        if self.calm_s >= FORGET_S {
            self.wait_s = 0.0;
        }
        // One processor is all that there is to yield.
        let is_of_use = look.processors > 1.5 && look.guests >= GUESTS_MIN;
        if may_want_more && is_of_use && self.waited_s >= self.wait_s {
            self.now = Some((0.0, look.processors));
        }
    }

    fn go_on(&mut self, look: &Look, for_s: f64, used: f64) {
        let for_s = for_s + look.seconds;
        // What he used before they stood aside is not part of it.
        let part = if for_s > look.seconds { 1.0 - (-look.seconds / MEAN_S).exp() } else { 1.0 };
        let used = used + part * (look.owner - used);
        if for_s < TRY_S || used >= FULL * look.processors {
            self.now = Some((for_s, used));
            return;
        }
        let (least_s, most_s) = WAIT_S;
        self.wait_s = if for_s >= GOOD_S { 0.0 } else { (self.wait_s * 2.0).clamp(least_s, most_s) };
        (self.now, self.waited_s) = (None, 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What part of the time guests stood aside, and at the end do, beside an owner on two processors who uses this many beside guests, and alone.
    fn beside(aside: &mut Aside, seconds: f64, with: f64, alone: f64) -> (f64, bool) {
        let looks = (seconds * 10.0).round() as usize;
        let mut stood = 0;
        let mut is_aside = aside.now.is_some();
        for _ in 0..looks {
            let (owner, guests) = if is_aside { (alone, 0.0) } else { (with, 2.0 - with) };
            is_aside = aside.judge(&Look { seconds: 0.1, processors: 2.0, owner, guests });
            stood += usize::from(is_aside);
        }
        (stood as f64 / looks as f64, is_aside)
    }

    #[test]
    fn they_stand_aside_while_all_is_used() {
        let mut aside = Aside::default();
        let (part, is_aside) = beside(&mut aside, 10.0, 1.3, 1.9);
        assert!(part > 0.98 && is_aside, "{part}");
        let (part, is_aside) = beside(&mut aside, 1.0, 0.2, 0.2);
        assert!(part < 0.4 && !is_aside, "and go on soon after: {part}");
        assert_eq!(beside(&mut aside, 0.1, 1.3, 1.9), (1.0, true), "and stand aside again at once");
    }

    #[test]
    fn a_container_that_is_full_leaves_nothing_of_an_idle_machine() {
        let idle = Look { seconds: 0.5, processors: 2.0, owner: 0.1, guests: 0.0 };
        let full = idle.within(Some(Bound { processors: 0.5, others: 0.5 }));
        assert_eq!(full, Look { processors: 0.5, owner: 0.5, ..idle });
        let busy = Look { owner: 2.0, ..idle };
        assert_eq!((busy.within(Some(Bound { processors: 0.5, others: 0.0 })), idle.within(None)), (busy, idle));
    }

    #[test]
    fn one_loop_costs_guests_little() {
        let mut aside = Aside::default();
        let (part, _) = beside(&mut aside, 100.0, 1.0, 1.0);
        assert!(part < 0.04, "{part}");
        // After a rest it is tried again at once.
        beside(&mut aside, 9.0, 0.1, 0.1);
        assert!(beside(&mut aside, 0.1, 1.0, 2.0).1);
    }

    #[test]
    fn nor_do_bursts() {
        let (mut aside, mut stood) = (Aside::default(), 0.0);
        for _ in 0..100 {
            stood += 0.3 * beside(&mut aside, 0.3, 1.0, 1.0).0;
            stood += 1.2 * beside(&mut aside, 1.2, 0.2, 0.2).0;
        }
        assert!(stood < 0.04 * 150.0, "{stood} s");
    }

    #[test]
    fn who_uses_little_never_has_them_aside() {
        let mut aside = Aside::default();
        assert_eq!(beside(&mut aside, 100.0, 0.8, 0.8), (0.0, false));
        let one = Look { seconds: 0.1, processors: 1.0, owner: 0.9, guests: 0.1 };
        assert!(!aside.judge(&one), "one processor is yielded by priority alone");
        assert!(!aside.judge(&Look { processors: 2.0, owner: 2.0, guests: 0.0, ..one }), "no guest runs");
    }

    #[test]
    fn short_dips_do_not_bring_them_back() {
        let mut aside = Aside::default();
        beside(&mut aside, 5.0, 1.3, 1.9);
        for _ in 0..20 {
            assert!(beside(&mut aside, 0.1, 1.0, 0.6).1);
            assert!(beside(&mut aside, 0.7, 1.3, 1.9).1);
        }
    }

    #[test]
    fn who_has_come_has_time() {
        let mut aside = Aside::default();
        beside(&mut aside, 5.0, 1.3, 1.9);
        aside.end();
        assert_eq!(aside.now, None);
    }
}

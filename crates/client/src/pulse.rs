//! Whether the hub is heard of: a pure machine, with time and what was heard as inputs.
//!
//! The connection itself is held for minutes of silence. Who waits for something wants to know sooner that the link is dead: so
//! while anybody waits, silence is asked about, and a question that stays without an answer for a bound that follows the round trip
//! means that the link is *silent*. It is asked about on, until something is heard.

use std::time::{Duration, Instant};

/// Silence for which nobody asks, while commands run.
const QUIET: Duration = Duration::from_secs(2);
/// A question without an answer for this long means that the link is silent, …
const ANSWER_MIN: Duration = Duration::from_millis(1500);
/// … or for so many round trips.
const ANSWER_ROUND_TRIPS: u32 = 6;
/// Pause between two questions: an eighth of the silence, within these bounds.
const PAUSE_MIN: Duration = Duration::from_millis(400);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// The same while nobody waits.
const PAUSE_MAX_IDLE: Duration = Duration::from_secs(15);

/// What is known of one connection.
#[derive(Clone, Debug)]
pub struct Pulse {
    /// A number that grows with what is heard.
    count: u64,
    heard: Instant,
    /// Since when an answer is waited for.
    asked: Option<Instant>,
    probed: Instant,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Ask for a sign of life.
    pub probe: bool,
    /// When to look again; `None`: when somebody begins to wait.
    pub next: Option<Instant>,
    /// The link is silent, since then.
    pub silent: Option<Instant>,
}

impl Pulse {
    /// Something was heard just now. `count`: a number that grows with what is heard.
    pub fn new(now: Instant, count: u64) -> Self {
        Self { count, heard: now, asked: None, probed: now }
    }

    /// How much has been heard by now. Returns whether that is news.
    pub fn hear(&mut self, now: Instant, count: u64) -> bool {
        let is_news = self.count != count;
        if is_news {
            *self = Self { count, heard: now, asked: None, probed: self.probed };
        }
        is_news
    }

    /// Something was sent that will be answered at once if it arrives.
    pub fn ask(&mut self, now: Instant) {
        if self.asked.is_none() {
            (self.asked, self.probed) = (Some(now), now);
        }
    }

    /// The machine slept, or is on another network: what was not answered means nothing, and it is asked anew.
    pub fn start_over(&mut self, now: Instant) {
        (self.heard, self.asked, self.probed) = (now, Some(now), now);
    }

    /// Looks, after [`Pulse::hear`]. `is_waited_for`: commands run, or somebody waits for the link.
    pub fn look(&mut self, now: Instant, round_trip: Duration, is_waited_for: bool) -> Look {
        if self.asked.is_none() && !is_waited_for {
            return Look { probe: false, next: None, silent: None };
        }
        if self.asked.is_none() && now < self.heard + QUIET {
            return Look { probe: false, next: Some(self.heard + QUIET), silent: None };
        }
        let first = self.asked.is_none();
        let asked = *self.asked.get_or_insert(now);
        let pause_max = if is_waited_for { PAUSE_MAX } else { PAUSE_MAX_IDLE };
        let pause = (now.duration_since(asked) / 8).clamp(PAUSE_MIN.max(round_trip * 2).min(pause_max), pause_max);
        let probe = first || now >= self.probed + pause;
        if probe {
            self.probed = now;
        }
        let limit = asked + ANSWER_MIN.max(round_trip * ANSWER_ROUND_TRIPS);
        let silent = (now >= limit).then_some(self.heard);
        let next = self.probed + pause;
        Look { probe, next: Some(if silent.is_none() { next.min(limit) } else { next }), silent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Looks whenever that is due until `until`, on a link whose answers take `round_trip`, and that is cut in `cut`. Returns
    /// how many probes were sent, when the link was silent first, and when it was not any more.
    fn run(
        pulse: &mut Pulse,
        start: Instant,
        until: Duration,
        round_trip: Duration,
        cut: std::ops::Range<Duration>,
    ) -> (u32, Option<Duration>, Option<Duration>) {
        let (mut probes, mut silent, mut back) = (0, None, None);
        let (mut answers, mut count): (Vec<Duration>, u64) = (Vec::new(), pulse.count);
        for ms in 0..until.as_millis() as u32 {
            let at = MS * ms;
            let before = answers.len();
            answers.retain(|answer| *answer > at);
            count += (before - answers.len()) as u64;
            pulse.hear(start + at, count);
            let look = pulse.look(start + at, round_trip, true);
            if look.probe {
                probes += 1;
                if !cut.contains(&at) {
                    answers.push(at + round_trip);
                }
            }
            match (look.silent.is_some(), silent) {
                (true, None) => silent = Some(at),
                (false, Some(_)) if back.is_none() => back = Some(at),
                _ => {}
            }
        }
        (probes, silent, back)
    }

    #[test]
    fn a_quiet_link_is_asked_now_and_then() {
        for round_trip in [MS, MS * 70, MS * 600] {
            let start = Instant::now();
            let mut pulse = Pulse::new(start, 0);
            let (probes, silent, _) = run(&mut pulse, start, MS * 60_000, round_trip, MS..MS);
            assert_eq!(silent, None);
            assert!((20..=35).contains(&probes), "{probes} probes in a minute");
        }
    }

    #[test]
    fn a_dead_link_is_noticed_soon_and_its_return_too() {
        for round_trip in [MS, MS * 70, MS * 300] {
            let start = Instant::now();
            let mut pulse = Pulse::new(start, 0);
            let cut = MS * 1_000..MS * 21_000;
            let (probes, silent, back) = run(&mut pulse, start, MS * 40_000, round_trip, cut);
            let (silent, back) = (silent.expect("noticed"), back.expect("it came back"));
            assert!(silent <= QUIET + ANSWER_MIN.max(round_trip * ANSWER_ROUND_TRIPS) + MS * 10, "after {silent:?}");
            assert!(back <= MS * 24_000 + round_trip, "back at {back:?}");
            assert!(probes < 50, "{probes} probes");
        }
    }

    #[test]
    fn a_launch_is_a_question_itself() {
        let start = Instant::now();
        let mut pulse = Pulse::new(start, 0);
        assert_eq!(pulse.look(start + MS * 600_000, MS, false).next, None, "nobody waits");
        let launched = start + MS * 600_000;
        pulse.ask(launched);
        assert_eq!(pulse.look(launched + MS * 1_499, MS, true).silent, None);
        let look = pulse.look(launched + MS * 1_500, MS, true);
        assert_eq!(look.silent, Some(start));
        pulse.hear(launched + MS * 1_600, 1);
        assert_eq!(pulse.look(launched + MS * 1_601, MS, true).silent, None);
    }

    #[test]
    fn a_move_gives_the_link_another_chance() {
        let start = Instant::now();
        let mut pulse = Pulse::new(start, 0);
        pulse.ask(start);
        assert!(pulse.look(start + MS * 5_000, MS, true).silent.is_some());
        pulse.start_over(start + MS * 5_000);
        assert_eq!(pulse.look(start + MS * 5_001, MS, true).silent, None);
    }
}

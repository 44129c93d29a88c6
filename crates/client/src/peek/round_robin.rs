//! Whose turn it is to look into a pipe that several tasks read.
//!
//! Who looks is sent what it might read; what it has not read when its turn ends is given back. So each byte is read once, and nobody is
//! kept waiting by a task that does not read.

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::{read, write};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// How long a turn lasts while others wait.
const TURN: Duration = Duration::from_millis(50);
/// Longest time that one who has read nothing in its last turns lets the others go first.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// Wakes a thread that waits for something else as well, or who waits in the runtime.
#[derive(Clone, Debug)]
pub struct Bell(Arc<(OwnedFd, Notify)>);

impl Bell {
    /// Silent.
    pub fn new() -> rustix::io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new((event, Notify::new()))))
    }

    /// Ready once it is rung.
    pub fn poll_fd(&self) -> PollFd<'_> {
        PollFd::new(&self.0.0, PollFlags::IN)
    }

    /// Wakes who waits, or waits next.
    pub fn ring(&self) {
        let _ = write(&self.0.0, &1u64.to_ne_bytes());
        self.0.1.notify_one();
    }

    /// Waits until it is rung, or it was since the last wait.
    pub async fn rung(&self) {
        self.0.1.notified().await;
    }

    /// Whether it was rung; it is silent again.
    pub fn was_rung(&self) -> bool {
        read(&self.0.0, &mut [0; 8]).is_ok()
    }
}

/// All who read it.
#[derive(Debug, Default)]
pub struct RoundRobin {
    all: Vec<One>,
    holder: Option<u64>,
    since: Option<Instant>,
    last: u64,
}

#[derive(Debug)]
struct One {
    number: u64,
    bell: Bell,
    /// In how many turns after each other it has read nothing of what it was sent.
    idle: u32,
    /// It waits for its turn, which it should have from then on.
    from: Option<Instant>,
}

/// An answer to who would look.
#[derive(Debug, PartialEq, Eq)]
pub enum Whose {
    /// Another one looks. The bell tells of the turn.
    Anothers,
    /// It may look, and is to let others do so after that time, if any wait.
    Own(Option<Duration>),
}

impl RoundRobin {
    /// Another one reads it. Returns its number.
    pub fn join(&mut self, bell: Bell) -> u64 {
        self.last += 1;
        self.all.push(One { number: self.last, bell, idle: 0, from: None });
        self.last
    }

    /// Whether others than one read it.
    pub fn are_several(&self) -> bool {
        self.all.len() > 1
    }

    /// Whether it is this one's turn.
    pub fn is_of(&self, number: u64) -> bool {
        self.holder == Some(number)
    }

    /// This one would look.
    pub fn ask(&mut self, number: u64, now: Instant) -> Whose {
        if self.holder.is_none() && self.all.iter().any(|one| one.number == number) {
            (self.holder, self.since) = (Some(number), Some(now));
        }
        if self.holder != Some(number) {
            if let Some(one) = self.all.iter_mut().find(|one| one.number == number && one.from.is_none()) {
                let pause = if one.idle == 0 { Duration::ZERO } else { TURN * 2u32.pow(one.idle.min(10)) };
                one.from = Some(now + pause.min(IDLE_MAX));
                self.ring(self.holder);
            }
            return Whose::Anothers;
        }
        Whose::Own(self.left(now))
    }

    /// After what time the turn is another's. `None`: nobody waits for it.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        let next = self.all.iter().filter_map(|one| one.from).min()?;
        let end = self.since.map_or(now, |since| since + TURN);
        Some(next.max(end).saturating_duration_since(now))
    }

    /// The turn is over. `has_read`: something of what it was sent, or it was sent nothing.
    pub fn pass(&mut self, has_read: bool, now: Instant) {
        if let Some(one) = self.all.iter_mut().find(|one| self.holder == Some(one.number)) {
            one.idle = if has_read { 0 } else { one.idle + 1 };
        }
        let next = self.all.iter_mut().filter(|one| one.from.is_some()).min_by_key(|one| one.from);
        self.since = Some(now);
        self.holder = next.map(|one| {
            one.from = None;
            one.number
        });
        self.ring(self.holder);
    }

    /// This one does not look for now. True: it had the turn.
    pub fn rest(&mut self, number: u64, now: Instant) -> bool {
        self.all.iter_mut().filter(|one| one.number == number).for_each(|one| one.from = None);
        let had_it = self.is_of(number);
        if had_it {
            self.pass(true, now);
        }
        had_it
    }

    /// This one does not read it any more. True: it had the turn.
    pub fn leave(&mut self, number: u64, now: Instant) -> bool {
        let had_it = self.rest(number, now);
        self.all.retain(|one| one.number != number);
        self.ring_all();
        had_it
    }

    /// Wakes all.
    pub fn ring_all(&self) {
        self.all.iter().for_each(|one| one.bell.ring());
    }

    fn ring(&self, number: Option<u64>) {
        self.all.iter().filter(|one| Some(one.number) == number).for_each(|one| one.bell.ring());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_turn_and_who_does_not_read_has_fewer() {
        let (mut readers, bell) = (RoundRobin::default(), || Bell::new().expect("an event"));
        let (one_bell, two_bell) = (bell(), bell());
        let start = Instant::now();
        let one = readers.join(one_bell.clone());
        assert_eq!((readers.ask(one, start), readers.are_several()), (Whose::Own(None), false));
        let two = readers.join(two_bell.clone());
        assert_eq!(readers.ask(one, start), Whose::Own(None), "nobody waits");
        let later = start + TURN * 2;
        assert_eq!((readers.ask(two, later), one_bell.was_rung()), (Whose::Anothers, true));
        assert_eq!(readers.ask(one, later), Whose::Own(Some(Duration::ZERO)), "it has had it for long");
        readers.pass(true, later);
        assert!(two_bell.was_rung() && readers.is_of(two) && !two_bell.was_rung());
        assert_eq!((readers.ask(one, later), readers.ask(two, later)), (Whose::Anothers, Whose::Own(Some(TURN))));
        readers.pass(false, later + TURN);
        assert_eq!(readers.ask(two, later + TURN), Whose::Anothers);
        assert_eq!(readers.ask(one, later + TURN), Whose::Own(Some(TURN * 2)), "the other one was idle");
        assert!(!readers.leave(two, later) && readers.leave(one, later));
        assert_eq!(readers.holder, None);
    }
}

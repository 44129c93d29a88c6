//! Which signed launches have begun here: none begins a second time, and none that is too old, or of which that is not known any more.

use super::Statement;
use crate::lock;
use base::{NodeId, Time};
use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;

const DAY_NS: i64 = 24 * 3600 * 1_000_000_000;
/// How long after it was signed a launch may begin: it may wait for its place. Its client makes another one for each attempt.
pub const VALID_FOR_NS: i64 = 7 * DAY_NS;
/// By how much the clocks of client and worker may differ.
pub const CLOCKS_APART_NS: i64 = DAY_NS;
/// Launches of one client that are remembered; those that are older than the oldest of them are refused.
const LAUNCHES_MAX: usize = 16_384;
/// Clients whose launches are remembered; of others, launches are refused that are older than the last of one that was forgotten.
const CLIENTS_MAX: usize = 1_024;

/// Why a launch may not begin. Its client may sign another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotNew {
    /// This very launch has begun.
    #[error("it has begun here before: this one was sent a second time")]
    Begun,
    /// It was signed too long ago.
    #[error("it was signed too long ago, and has expired")]
    Expired,
    /// It was signed before all that this worker remembers.
    #[error("it was signed before this worker started, or before the launches that it remembers")]
    Forgotten,
    /// It was signed in the future.
    #[error("it was signed in the future: set the client's clock and the worker's")]
    Early,
}

/// The launches that have begun here.
#[derive(Debug)]
pub struct Begun(Mutex<Clients>);

#[derive(Debug)]
struct Clients {
    known: HashMap<NodeId, Launches>,
    /// What was signed before is refused.
    floor: Time,
}

/// Those of one client, by the time at which they were signed.
#[derive(Debug, Default)]
struct Launches {
    begun: BTreeSet<(Time, Statement)>,
    /// When the last one was signed of those that are not remembered.
    forgotten: Option<Time>,
}

impl Begun {
    /// None yet, of a worker that starts at this time.
    pub fn new(now: Time) -> Self {
        let floor = Time(now.0.saturating_sub(CLOCKS_APART_NS));
        Self(Mutex::new(Clients { known: HashMap::new(), floor }))
    }

    /// Has a launch begin that its client signed at `launched`.
    ///
    /// # Errors
    /// [`NotNew`] if it may not.
    pub fn begin(&self, client: NodeId, statement: Statement, launched: Time, now: Time) -> Result<(), NotNew> {
        let age = now.0.saturating_sub(launched.0);
        if age > VALID_FOR_NS {
            return Err(NotNew::Expired);
        }
        if age < -CLOCKS_APART_NS {
            return Err(NotNew::Early);
        }
        let mut clients = lock(&self.0);
        if launched < clients.floor {
            return Err(NotNew::Forgotten);
        }
        clients.make_room_for(client);
        clients.known.entry(client).or_default().begin(statement, launched)
    }
}

impl Clients {
    /// Forgets the client that has been quiet for longest, if there are too many.
    fn make_room_for(&mut self, client: NodeId) {
        if self.known.len() < CLIENTS_MAX || self.known.contains_key(&client) {
            return;
        }
        let last = |launches: &Launches| launches.begun.last().map(|(time, _)| *time);
        let quiet = self.known.iter().min_by_key(|(_, launches)| last(launches)).map(|(client, _)| *client);
        if let Some(launches) = quiet.and_then(|quiet| self.known.remove(&quiet)) {
            self.floor = self.floor.max(last(&launches).map_or(self.floor, |last| Time(last.0 + 1)));
        }
    }
}

impl Launches {
    fn begin(&mut self, statement: Statement, launched: Time) -> Result<(), NotNew> {
        if self.forgotten.is_some_and(|forgotten| launched <= forgotten) {
            return Err(NotNew::Forgotten);
        }
        if !self.begun.insert((launched, statement)) {
            return Err(NotNew::Begun);
        }
        if self.begun.len() > LAUNCHES_MAX {
            self.forgotten = self.begun.pop_first().map(|(launched, _)| launched);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Digest;

    const NOW: Time = Time(1_800_000_000_000_000_000);

    fn statement(number: u64) -> Statement {
        Statement::from_digest(Digest::of(&number.to_be_bytes()))
    }

    fn node(number: u64) -> NodeId {
        NodeId(Digest::of(&number.to_le_bytes()))
    }

    fn at(offset: i64) -> Time {
        Time(NOW.0 + offset)
    }

    #[test]
    fn a_launch_begins_once() {
        let begun = Begun::new(NOW);
        assert_eq!(begun.begin(node(1), statement(1), NOW, at(5)), Ok(()));
        assert_eq!(begun.begin(node(1), statement(1), NOW, at(9)), Err(NotNew::Begun));
        assert_eq!(begun.begin(node(1), statement(2), NOW, at(9)), Ok(()), "another attempt");
        assert_eq!(begun.begin(node(2), statement(3), NOW, at(9)), Ok(()));
    }

    #[test]
    fn a_launch_expires() {
        let begun = Begun::new(at(-30 * DAY_NS));
        assert_eq!(begun.begin(node(1), statement(1), at(-VALID_FOR_NS), NOW), Ok(()));
        assert_eq!(begun.begin(node(1), statement(2), at(-VALID_FOR_NS - 1), NOW), Err(NotNew::Expired));
        assert_eq!(begun.begin(node(1), statement(3), Time(i64::MIN), NOW), Err(NotNew::Expired));
    }

    #[test]
    fn clocks_may_be_an_hour_apart() {
        let begun = Begun::new(NOW);
        for (number, hours) in [(1, -1), (2, 1)] {
            assert_eq!(begun.begin(node(number), statement(1), at(hours * DAY_NS / 24), NOW), Ok(()));
        }
        assert_eq!(begun.begin(node(3), statement(1), at(2 * DAY_NS), NOW), Err(NotNew::Early));
        assert_eq!(
            begun.begin(node(3), statement(1), at(-2 * DAY_NS), NOW),
            Err(NotNew::Forgotten),
            "before its start"
        );
    }

    #[test]
    fn what_is_forgotten_does_not_begin_again() {
        let begun = Begun::new(NOW);
        let number = |number: i64| begun.begin(node(1), statement(number as u64), at(number), at(number));
        (0..=LAUNCHES_MAX as i64).for_each(|at| assert_eq!(number(at), Ok(())));
        assert_eq!((number(0), number(1)), (Err(NotNew::Forgotten), Err(NotNew::Begun)));
        for other in 2..=CLIENTS_MAX as u64 + 1 {
            let later = at(LAUNCHES_MAX as i64 + other as i64);
            assert_eq!(begun.begin(node(other), statement(0), later, later), Ok(()));
        }
        assert_eq!(number(1), Err(NotNew::Forgotten), "the client itself is forgotten");
        assert_eq!(number(2 * LAUNCHES_MAX as i64), Ok(()));
    }
}

//! How long the other side may say nothing of a task that it has.
//!
//! Who has a task says something of it every [`SAY_EVERY`], [`OutputKind::Alive`](crate::message::OutputKind::Alive) where there is nothing
//! else. That goes from one machine to the next and no further: each looks after the one that it gave the task to, so the one is named
//! that is silent.
//!
//! On a link that is full words come late, and so does what they answer. Seconds in which much goes over the connection do not count,
//! though none counts for nothing after [`QUIET_MAX`]. A link over which nothing at all comes is down, which is others' to judge: that is no silence of the other side's.
//!
//! Programs before version 3 of the protocol ([`crate::versions`]) say nothing, and are not sent the word: their silence does not count.

use crate::awake::now;
use crate::connection::Connection;
use crate::versions;
use std::time::Duration;

/// Who has a task says something of it at least so often.
pub const SAY_EVERY: Duration = Duration::from_secs(5);
/// A worker that says nothing of a task for so long counts as lost for it.
pub const WORKER_QUIET_MAX: Duration = Duration::from_secs(15);
/// One that says that it lives, and has not started the task for so long, counts as lost as well.
pub const START_MAX: Duration = Duration::from_secs(300);
/// The same of a hub that says nothing, which counts its worker as lost before.
pub const HUB_QUIET_MAX: Duration = Duration::from_secs(25);
/// Longest silence where much else goes over the connection all the time.
pub const QUIET_MAX: Duration = Duration::from_secs(600);
/// So many bytes a second are much: the words of fifty tasks are less.
const BUSY_BYTES_PER_S: u64 = 8 << 10;
/// From one look at what goes over the connection to the next.
const LOOK: Duration = Duration::from_secs(1);
/// A look that is later by this much: this process did not run, and what came meanwhile is yet to be read.
const LATE: Duration = Duration::from_secs(2);

/// A link over which nothing was heard for so long was down: longer than from one sign that it is up to the next.
const DOWN: Duration = Duration::from_secs(16);

/// One wait for words of a task.
#[derive(Debug)]
pub struct Quiet {
    limit: Duration,
    wait: Option<Wait>,
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    /// Since when nothing was said, and what had gone over the connection by then.
    since: Duration,
    first: Carried,
    /// How much of that time counts.
    silence: Duration,
    /// The same of the last look.
    looked: Duration,
    last: Carried,
    /// When anything was heard over the connection.
    heard_at: Duration,
}

impl Wait {
    fn begin(at: Duration, carried: Carried) -> Self {
        Self { since: at, first: carried, silence: Duration::ZERO, looked: at, last: carried, heard_at: at }
    }
}

/// What has gone over a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Carried {
    /// Bytes, either way.
    bytes: u64,
    /// What was heard: each side keeps the connection alive. `None`: it cannot be down.
    heard: Option<u64>,
}

impl Carried {
    fn over(connection: &Connection) -> Self {
        let (sent, received) = connection.bytes();
        let heard = (!connection.is_within_process()).then(|| connection.heard());
        Self { bytes: sent.saturating_add(received), heard }
    }
}

impl Quiet {
    /// Nothing is waited for yet.
    pub fn new(limit: Duration) -> Self {
        Self { limit, wait: None }
    }

    /// Something was said, or what is said is not read for the moment: the next wait begins anew.
    pub fn heard(&mut self) {
        self.wait = None;
    }

    /// Waits until the other side was silent for too long. Safe to cancel: the next call goes on with the same wait.
    pub async fn over(&mut self, connection: &Connection) {
        if !versions::has_alive(connection.version()) {
            // It does not know the word.
            return std::future::pending().await;
        }
        let step = LOOK.min(self.limit);
        let mut next = self.wait.get_or_insert_with(|| Wait::begin(now(), Carried::over(connection))).looked + step;
        loop {
            tokio::time::sleep(next.saturating_sub(now())).await;
            match self.look(now(), Carried::over(connection)) {
                Some(later) => next = later,
                None => return,
            }
        }
    }

    /// Nothing was said by `at`, and so much has gone over the connection. When to look again; `None`: it was silent for too long.
    fn look(&mut self, at: Duration, carried: Carried) -> Option<Duration> {
        let step = LOOK.min(self.limit);
        let wait = self.wait.get_or_insert_with(|| Wait::begin(at, carried));
        let due = wait.looked + step;
        if at < due {
            return Some(due);
        }
        let time = at.saturating_sub(wait.looked);
        let bytes = carried.bytes.saturating_sub(wait.last.bytes);
        let is_full = u128::from(bytes) * 1000 >= u128::from(BUSY_BYTES_PER_S) * time.as_millis();
        let is_up = carried.heard != wait.last.heard;
        (wait.looked, wait.last) = (at, carried);
        if at > due + LATE {
            *wait = Wait::begin(at, carried);
        } else if !is_full {
            wait.silence += time;
        }
        if is_up {
            if at.saturating_sub(wait.heard_at) >= DOWN {
                // The link is back: what was to be said meanwhile comes now.
                wait.silence = wait.silence.min(self.limit.saturating_sub(SAY_EVERY * 2));
            }
            wait.heard_at = at;
        }
        if wait.silence < self.limit && at.saturating_sub(wait.since) < QUIET_MAX {
            return Some(at + step);
        }
        let is_down = carried.heard.is_some() && carried.heard == wait.first.heard;
        if !is_down {
            return None;
        }
        *wait = Wait { heard_at: wait.heard_at, ..Wait::begin(at, carried) };
        Some(at + step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{OutputKind, TaskOutput};

    const S: Duration = Duration::from_secs(1);

    fn bytes(bytes: u64) -> Carried {
        Carried { bytes, heard: None }
    }

    fn begun() -> Quiet {
        let mut quiet = Quiet::new(WORKER_QUIET_MAX);
        assert_eq!(quiet.look(S, bytes(0)), Some(S * 2));
        quiet
    }

    /// Looks each second from `from` to `to`, with so many bytes more each time. When it was over.
    fn looked(quiet: &mut Quiet, (from, to): (u32, u32), carried: impl Fn(u32) -> Carried) -> Option<u32> {
        (from..=to).find(|at| quiet.look(S * *at, carried(*at)).is_none())
    }

    #[test]
    fn silence_is_over_at_its_limit() {
        let mut quiet = begun();
        assert_eq!(quiet.look(S * 3 / 2, bytes(0)), Some(S * 2), "too early");
        assert_eq!(looked(&mut quiet, (2, 90), |at| bytes(at.into())), Some(16));
        quiet.heard();
        assert_eq!(looked(&mut quiet, (16, 90), |at| bytes(at.into())), Some(31), "a new wait");
    }

    #[test]
    fn words_may_be_late_on_a_full_link_though_not_without_end() {
        let full = |at: u32| bytes(u64::from(at - 1) * BUSY_BYTES_PER_S);
        assert_eq!(looked(&mut begun(), (2, 900), full), Some(601), "ten minutes");
        let little = |at: u32| bytes(u64::from(at - 1) * (BUSY_BYTES_PER_S - 1));
        assert_eq!(looked(&mut begun(), (2, 900), little), Some(16), "other tasks say that they live");
        let burst = |at: u32| full(at.min(4));
        assert_eq!(looked(&mut begun(), (2, 900), burst), Some(19), "what went first is no full link");
    }

    #[test]
    fn who_did_not_run_waits_anew() {
        let mut quiet = begun();
        assert_eq!(quiet.look(S * 60, bytes(0)), Some(S * 61), "stopped or asleep");
        assert_eq!(looked(&mut quiet, (61, 900), |_| bytes(0)), Some(75));
    }

    #[test]
    fn a_link_that_is_down_says_nothing_of_the_other_side() {
        // It is mended at such a second, and kept alive from then on: what was to be said meanwhile has time to come.
        for (mended, over) in [(40, 51), (45, 56), (46, 61)] {
            let heard = |at: u32| Carried { bytes: 0, heard: Some(u64::from(at.max(mended))) };
            let mut quiet = Quiet::new(WORKER_QUIET_MAX);
            assert_eq!(looked(&mut quiet, (1, 900), heard), Some(over), "it says nothing");
        }
        let mut quiet = Quiet::new(WORKER_QUIET_MAX);
        assert_eq!(looked(&mut quiet, (1, 900), |_| Carried { bytes: 0, heard: Some(7) }), None, "it is down");
    }

    fn link(version: u32) -> (Connection, Connection) {
        let node = |number| base::NodeId(base::Digest([number; 32]));
        let (near, far) = Connection::within_process(node(1), node(2));
        near.speak(version);
        (near, far)
    }

    #[tokio::test]
    async fn a_wait_that_is_cancelled_goes_on() {
        let (near, _far) = link(versions::NEWEST);
        let mut quiet = Quiet::new(Duration::from_millis(200));
        let began = now();
        while tokio::time::timeout(Duration::from_millis(30), quiet.over(&near)).await.is_err() {
            assert!(now() - began < S * 5);
        }
        assert!(now() - began >= Duration::from_millis(200));
    }

    #[tokio::test]
    async fn only_who_knows_the_word_can_keep_silent() {
        for (version, counts) in [(0, false), (2, false), (3, true)] {
            let (near, _far) = link(version);
            let mut quiet = Quiet::new(Duration::from_millis(50));
            let over = tokio::time::timeout(Duration::from_millis(500), quiet.over(&near)).await;
            assert_eq!(over.is_ok(), counts, "version {version}");
        }
    }

    #[tokio::test]
    async fn who_does_not_know_the_word_is_not_told() {
        for (version, is_told) in [(2, false), (3, true)] {
            let (near, far) = link(version);
            let (mut sender, _) = near.open_control().await.expect("opened");
            sender.say_alive().await.expect("not lost");
            sender.finish();
            let (_, mut receiver) = far.accept_control().await.expect("a stream");
            let told = receiver.next::<TaskOutput>().await.expect("read");
            assert_eq!(told, is_told.then(|| OutputKind::Alive(true).into()), "version {version}");
        }
    }
}

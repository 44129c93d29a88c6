//! How long the other side may say nothing of a task that it has.
//!
//! Who has a task says something of it every [`SAY_EVERY`], [`OutputKind::Alive`](crate::message::OutputKind::Alive) where there is nothing
//! else. That goes from one machine to the next and no further: each looks after the one that it gave the task to, so the one is named
//! that is silent.
//!
//! On a link that is full words come late, and so does what they answer. While much goes over the connection silence counts only after
//! [`QUIET_MAX`]. A link over which nothing at all comes is down, which is others' to judge: that is no silence of the other side's.
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
/// Longest silence where much else goes over the connection.
pub const QUIET_MAX: Duration = Duration::from_secs(600);
/// So many bytes a second are much: the words of fifty tasks are less.
const BUSY_BYTES_PER_S: u64 = 8 << 10;
/// A look that is later by this much: this process did not run, and what came meanwhile is yet to be read.
const LATE: Duration = Duration::from_secs(1);

/// One wait for words of a task.
#[derive(Debug)]
pub struct Quiet {
    limit: Duration,
    wait: Option<Wait>,
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    /// Since when nothing was said.
    since: Duration,
    /// When it was last looked, and what had gone over the connection by then.
    looked: Duration,
    carried: Carried,
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
        let begin = || Wait { since: now(), looked: now(), carried: Carried::over(connection) };
        let mut next = self.wait.get_or_insert_with(begin).looked + self.limit;
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
        let wait = self.wait.get_or_insert(Wait { since: at, looked: at, carried });
        let due = wait.looked + self.limit;
        if at < due {
            return Some(due);
        }
        let is_down = carried.heard.is_some() && carried.heard == wait.carried.heard;
        let bytes = carried.bytes.saturating_sub(wait.carried.bytes);
        let is_full = bytes >= BUSY_BYTES_PER_S * self.limit.as_secs().max(1);
        if at > due + LATE || is_down {
            wait.since = at;
        } else if !is_full || at.saturating_sub(wait.since) >= QUIET_MAX {
            return None;
        }
        (wait.looked, wait.carried) = (at, carried);
        Some(at + self.limit)
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
        assert_eq!(quiet.look(S, bytes(0)), Some(S + WORKER_QUIET_MAX));
        quiet
    }

    #[test]
    fn silence_is_over_at_its_limit() {
        let mut quiet = begun();
        assert_eq!(quiet.look(S * 9, bytes(0)), Some(S * 16), "too early");
        assert_eq!(quiet.look(S * 16, bytes(900)), None);
        quiet.heard();
        assert_eq!(quiet.look(S * 16, bytes(900)), Some(S * 31), "a new wait");
    }

    #[test]
    fn words_may_be_late_on_a_full_link_though_not_without_end() {
        let (mut quiet, mut at, mut much) = (begun(), S, 0);
        for _ in 0..39 {
            (at, much) = (at + WORKER_QUIET_MAX, much + BUSY_BYTES_PER_S * 15);
            assert_eq!(quiet.look(at, bytes(much)), Some(at + WORKER_QUIET_MAX));
        }
        assert_eq!(quiet.look(at + WORKER_QUIET_MAX, bytes(much * 2)), None, "ten minutes");
        let mut quiet = begun();
        let little = bytes(BUSY_BYTES_PER_S * 15 - 1);
        assert_eq!(quiet.look(S * 16, little), None, "other tasks say that they live");
    }

    #[test]
    fn who_did_not_run_waits_anew() {
        let mut quiet = begun();
        assert_eq!(quiet.look(S * 60, bytes(0)), Some(S * 75), "stopped or asleep");
        assert_eq!(quiet.look(S * 75, bytes(0)), None);
    }

    #[test]
    fn a_link_that_is_down_says_nothing_of_the_other_side() {
        let mut quiet = Quiet::new(WORKER_QUIET_MAX);
        let heard = |heard| Carried { bytes: 0, heard: Some(heard) };
        quiet.look(S, heard(5));
        assert_eq!(quiet.look(S * 16, heard(5)), Some(S * 31));
        assert_eq!(quiet.look(S * 31, heard(6)), None, "it keeps the connection alive, and says nothing");
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

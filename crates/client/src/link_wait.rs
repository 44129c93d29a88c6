//! How long a command that was launched waits for a link that is down.
//!
//! For as long as the setting says, or for as long as it had run when the link fell silent, if that is longer: to run it again would
//! take that long. So what is lost by waiting is never much more than what would be lost by not waiting. It ends where the hub forgets
//! the connection.

use crate::link::{Condition, Link};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use wire::Hold;

/// One command's wait.
pub(crate) struct LinkWait {
    condition: Option<watch::Receiver<Condition>>,
    begun: Instant,
    least: Duration,
    /// Since when the link is silent, and until when that is waited for.
    silent: Option<(Instant, Instant)>,
    news: Option<String>,
}

impl LinkWait {
    /// For a command that is launched now. `least`: how long it waits in any case.
    pub fn new(link: Option<&Arc<Link>>, least: Duration) -> Self {
        let mut condition = link.map(|link| link.condition());
        if let Some(now) = condition.as_mut().filter(|now| now.borrow().silent.is_some()) {
            // It fell silent just now: that is news to this command.
            now.mark_changed();
        }
        let news = condition.as_ref().and_then(|condition| condition.borrow().news.clone());
        Self { condition, begun: Instant::now(), least, silent: None, news }
    }

    /// Waits for a change of the link: false; or until it was silent for too long: true.
    pub async fn next(&mut self) -> bool {
        let changed = async {
            let changed = match &mut self.condition {
                Some(condition) => condition.changed().await.is_ok(),
                None => false,
            };
            // The link outlives its commands: there is always one, or never.
            if !changed {
                std::future::pending::<()>().await;
            }
        };
        let too_long = wire::until(self.silent.map(|(_, until)| until));
        tokio::select! {
            () = changed => false,
            () = too_long => true,
        }
    }

    /// What is worth a note of what has changed, and whether the link is silent.
    pub fn on_change(&mut self) -> (Vec<String>, bool) {
        let condition = self.condition.as_mut().map(|now| now.borrow_and_update().clone());
        let Condition { silent, ended, news } = condition.unwrap_or_default();
        let now = Instant::now();
        let mut notes: Vec<String> = news.clone().filter(|_| news != self.news).into_iter().collect();
        self.news = news;
        match (silent, self.silent) {
            (Some(since), None) => {
                let patience = patience(since.saturating_duration_since(self.begun), self.least);
                self.silent = Some((since, since + patience));
                let silence = now.duration_since(since).as_secs_f64();
                notes.push(format!(
                    "nothing heard of the hub for {silence:.1} s: the link is waited for, {} s at most",
                    patience.as_secs()
                ));
            }
            (None, Some((since, _))) => {
                self.silent = None;
                let what = if ended { "the connection ended" } else { "the link is back" };
                notes.push(format!("{what} after {:.1} s", now.duration_since(since).as_secs_f64()));
            }
            _ => {}
        }
        (notes, silent.is_some())
    }

    /// Why the command does not wait any longer.
    pub fn given_up(&self) -> String {
        format!("{}, which is longer than it is waited for (link_wait_s in client.toml)", self.silence())
    }

    /// For how long the link has been silent.
    pub fn silence(&self) -> String {
        let since = self.silent.map_or(Duration::ZERO, |(since, _)| since.elapsed());
        format!("the link to the hub is down: nothing heard for {:.1} s", since.as_secs_f64())
    }
}

fn patience(has_run: Duration, least: Duration) -> Duration {
    has_run.max(least).min(Hold::Long.limit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn wait(least: Duration) -> (LinkWait, watch::Sender<Condition>) {
        let sender = watch::Sender::new(Condition::default());
        let condition = Some(sender.subscribe());
        (LinkWait { condition, begun: Instant::now(), least, silent: None, news: None }, sender)
    }

    #[test]
    fn what_ran_for_long_is_waited_for_longer() {
        assert_eq!(patience(S, S * 25), S * 25);
        assert_eq!(patience(S * 90, S * 25), S * 90);
        assert_eq!(patience(S * 9000, S * 25), S * 600);
    }

    #[tokio::test(start_paused = true)]
    async fn a_link_that_comes_back_is_noted_and_one_that_does_not_is_given_up() {
        let (mut wait, link) = wait(S * 25);
        link.send_replace(Condition { silent: Some(Instant::now()), ..Condition::default() });
        assert!(!wait.next().await);
        let (notes, silent) = wait.on_change();
        assert!(silent && notes.len() == 1, "{notes:?}");
        link.send_replace(Condition { news: Some("this machine's address is another".into()), ..Condition::default() });
        assert!(!wait.next().await);
        let (notes, silent) = wait.on_change();
        assert!(!silent && notes.len() == 2 && notes[1].starts_with("the link is back"), "{notes:?}");
        link.send_replace(Condition { silent: Some(Instant::now()), ..Condition::default() });
        assert!(!wait.next().await);
        wait.on_change();
        assert!(wait.next().await, "after a while");
        assert!(wait.given_up().contains("link_wait_s"));
    }
}

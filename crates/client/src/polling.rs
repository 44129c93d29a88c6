//! A command that looks again and again whether a file has come or changed: `until [ -e ready ]; do sleep 1; done`.
//!
//! A path means one thing for one command, so elsewhere it would look for ever. Which calls it makes, nobody sees; but it wakes up again and
//! again and does next to nothing, and something that it has used has changed since its launch.

use crate::caller::Replies;
use crate::exchange::Exchange;
use crate::run::Outcome;
use crate::serve::{Running, blocking};
use crate::snapshot::{Stamp, stat_at};
use crate::views::View;
use base::door::Reply;
use base::{Binding, Time, TreePath};
use rustix::fs::FileType;
use std::sync::Arc;
use std::time::Duration;
use wire::lock;
use wire::message::Progress;

/// For so long it has done next to nothing, …
const IDLE_MIN: Duration = Duration::from_secs(5);
/// … which is less than this part of the time, …
const IDLE_PART: f64 = 0.1;
/// … and has woken up so often, as far as its worker tells: a program that sleeps once, or waits for its input, does not.
const WAKES_MIN: u32 = 3;
/// It begins again if it has had so little processor time in all, or so small a part of its time: what it has done is lost by that, …
const LOST_MAX: Duration = Duration::from_secs(1);
/// … and so often at most, together with what else it begins again for: it may wait for something else.
const MOVES_MAX: u32 = 2;
/// Most paths that are looked at for it.
const PATHS_MAX: usize = 4096;

/// How a command comes along, as far as that shows whether it waits in a loop.
#[derive(Debug, Default)]
pub(crate) struct Polling {
    last: Option<(Progress, u64)>,
    idle_us: u64,
    wakes: u32,
    is_done: bool,
}

impl Polling {
    /// Its worker tells how far it has come; so many questions were asked for it so far. Returns whether it is to be looked what it waits for.
    pub fn progress(&mut self, progress: &Progress, questions: u64) -> bool {
        let before = self.last.replace((progress.clone(), questions));
        let Some((before, asked)) = before else { return false };
        let since = |now: u64, then: u64| now.saturating_sub(then);
        let (ran_us, cpu_us) = (since(progress.ran_us, before.ran_us), since(progress.cpu_us, before.cpu_us));
        let waits = since(progress.waited_us, before.waited_us) * 2 > ran_us || !progress.rests.is_empty();
        if waits || asked != questions || cpu_us as f64 > ran_us as f64 * IDLE_PART {
            (self.idle_us, self.wakes) = (0, 0);
            return false;
        }
        self.idle_us += ran_us;
        self.wakes += u32::from(cpu_us > 0);
        !self.is_done && self.wakes >= WAKES_MIN && u128::from(self.idle_us) >= IDLE_MIN.as_micros()
    }

    /// What it waits for is found. Returns whether it has done so little that it may begin again.
    pub fn end(&mut self) -> bool {
        self.is_done = true;
        self.last.as_ref().is_some_and(|(last, _)| {
            u128::from(last.cpu_us) <= LOST_MAX.as_micros() || last.cpu_us as f64 <= last.ran_us as f64 * IDLE_PART
        })
    }
}

impl View {
    /// A path that it has, or one of these, that has come, changed or gone since then: nothing of the system's, and a folder only if a command
    /// is about it. Blocks.
    fn changed_since(&self, then: Time, also: &[TreePath], is_about: impl Fn(&TreePath) -> bool) -> Option<TreePath> {
        let is_looked_at = |path: &TreePath| !path.is_in_system_folder();
        let mut known: Vec<(TreePath, bool)> = Vec::new();
        self.each_path(|path, binding| {
            if is_looked_at(path) && known.len() < PATHS_MAX {
                known.push((path.clone(), !matches!(binding, Binding::Absent | Binding::Denied)));
            }
        });
        known.extend(also.iter().filter(|path| is_looked_at(path)).take(PATHS_MAX).map(|path| (path.clone(), false)));
        let has_changed = |(path, was_there): &(TreePath, bool)| match stat_at(path.as_bytes()) {
            Ok(found) => {
                let is_folder = FileType::from_raw_mode(found.stx_mode.into()) == FileType::Directory;
                Stamp::of(&found).ctime > then && (!is_folder || is_about(path))
            }
            Err(_) => *was_there,
        };
        known.into_iter().find(has_changed).map(|(path, _)| path)
    }
}

/// What has changed of that which a task has used, since its launch. Of a task of a job nothing: it sees what there was at the job's start.
async fn changed(running: &Arc<Running>) -> Option<TreePath> {
    if running.view.epoch().is_some() {
        return None;
    }
    let running = running.clone();
    let look = move || {
        let asked = lock(&running.asked).paths.clone();
        // Every command has the folder of temporary files.
        let is_about = |path: &TreePath| path.as_bytes() != b"/tmp" && running.gate.is_about(path);
        running.view.changed_since(running.launched, &asked, is_about)
    };
    blocking(look).await?
}

impl Exchange<'_> {
    /// Looks whether it waits for what cannot come where it runs. It runs here then, or begins again, if nobody would notice and little is
    /// lost; else its caller is told.
    pub(crate) async fn on_polling(&mut self, replies: &mut Replies) -> Option<Outcome> {
        let path = changed(&self.running).await?;
        let has_done_little = self.headway.polling.end();
        let why = format!(
            "it seems to wait until {path} changes, which has changed since its launch: elsewhere a command sees its files as they were then"
        );
        self.record.note(why.clone());
        let session = &mut *self.session;
        let is_alone = session.hedge.is_none() && !session.is_contestant() && session.ending.is_none();
        if !is_alone || session.is_noticed() || !has_done_little || session.moves >= MOVES_MAX {
            self.record.begins_waiting(&why);
            if self.session.is_listened_to() {
                let _ = replies.send(&Reply::Note(why)).await;
            }
            return None;
        }
        session.moves += 1;
        self.cancel().await;
        match self.session.options.no_local {
            false => Some(Outcome::Unplaced(why)),
            true => Some(Outcome::Evicted(why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(ran_ms: u64, cpu_us: u64) -> Progress {
        Progress { ran_us: ran_ms * 1000, cpu_us, ..Progress::default() }
    }

    /// Seconds after which it is looked what a command waits for that uses so much each second, microseconds.
    fn seconds(cpu_us: impl Fn(u64) -> u64) -> Option<u64> {
        let (mut polling, mut used) = (Polling::default(), 0);
        (0..60).find(|second| {
            used += cpu_us(*second);
            polling.progress(&progress(second * 1000, used), 7)
        })
    }

    #[test]
    fn who_wakes_up_again_and_again_for_nothing_polls() {
        assert_eq!(seconds(|_| 1_200), Some(5));
        assert_eq!(seconds(|second| if second.is_multiple_of(5) { 900 } else { 0 }), Some(15));
        assert_eq!(seconds(|second| if second < 20 { 800_000 } else { 50 }), Some(24), "after its work");
    }

    #[test]
    fn who_has_done_much_does_not_begin_again_for_it() {
        let mut polling = Polling::default();
        assert!(!polling.end(), "nothing is known of it");
        polling.progress(&progress(20_000, 900_000), 0);
        assert!(polling.end());
        polling.progress(&progress(20_000, 3_000_000), 0);
        assert!(!polling.end());
        assert!(!polling.progress(&progress(90_000, 3_100_000), 0), "once is enough");
        assert!(polling.end(), "most of the time it has waited");
    }

    #[test]
    fn who_works_sleeps_waits_or_asks_does_not() {
        assert_eq!(seconds(|_| 300_000), None, "it works");
        assert_eq!(seconds(|second| if second < 2 { 5_000 } else { 0 }), None, "it sleeps");
        let mut polling = Polling::default();
        let asks = (0..60).any(|second| polling.progress(&progress(second * 1000, second * 500), second));
        assert!(!asks, "it reads");
        let mut polling = Polling::default();
        let waits = |second: u64| Progress { waited_us: second * 900_000, ..progress(second * 1000, second * 500) };
        assert!(!(0..60).any(|second| polling.progress(&waits(second), 1)), "for a processor");
    }
}

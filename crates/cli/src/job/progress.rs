//! How far a job is, on a terminal; nothing at all in a pipe.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// How often the bar is drawn anew though nothing happened, for the clock in it.
const TICK: Duration = Duration::from_millis(500);

/// A bar on standard error.
pub struct Progress {
    bar: ProgressBar,
    running: u64,
    failed: u64,
}

impl Progress {
    /// Nothing is done yet of `total` tasks, if that is known.
    pub fn new(total: Option<u64>) -> Self {
        let visible = std::io::stderr().is_terminal();
        let target = if visible { ProgressDrawTarget::stderr_with_hz(8) } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(total, target);
        let template = match total {
            Some(_) => "{bar:30} {pos}/{len} done, {msg}, {elapsed} so far, {eta} to go",
            None => "{spinner} {pos} done, {msg}, {elapsed} so far",
        };
        // The default style is as good, should the template be refused.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        if visible {
            bar.enable_steady_tick(TICK);
        }
        let progress = Self { bar, running: 0, failed: 0 };
        progress.tell();
        progress
    }

    /// A task has begun.
    pub fn begun(&mut self) {
        self.running += 1;
        self.tell();
    }

    /// A task has ended.
    pub fn ended(&mut self, succeeded: bool) {
        self.running = self.running.saturating_sub(1);
        self.failed += u64::from(!succeeded);
        self.bar.inc(1);
        self.tell();
    }

    /// So many have ended, failed ones included, and so many run.
    pub fn stands_at(&mut self, ended: u64, failed: u64, running: u64) {
        (self.failed, self.running) = (failed, running);
        self.bar.set_position(ended);
        self.tell();
    }

    /// Writes something else meanwhile.
    pub fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bar.suspend(write)
    }

    /// Takes the bar away.
    pub fn close(&self) {
        self.bar.finish_and_clear();
    }

    /// Shows what `talk` says to the person, beside it.
    pub fn beside(&self, talk: impl FnOnce()) {
        self.bar.suspend(talk);
    }

    fn tell(&self) {
        self.bar.set_message(format!("{} failed, {} running", self.failed, self.running));
    }
}

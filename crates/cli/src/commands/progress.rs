//! How far a long computation is, on a terminal; nothing at all in a pipe.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// How often the bar is drawn though nothing has ended: one simulated world may take a minute.
const TICK: Duration = Duration::from_millis(500);

/// A bar on standard error, for so many things of this kind; it goes when it is dropped.
pub struct Progress(ProgressBar);

impl Progress {
    pub fn new(what: &str, count: u64) -> Self {
        let visible = std::io::stderr().is_terminal();
        let target = if visible { ProgressDrawTarget::stderr_with_hz(4) } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(count), target);
        let template = "{spinner} {msg} {bar:30} {pos}/{len}, {elapsed} so far, {eta} to go";
        // The default style is as good, should the template be refused.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(what.to_owned());
        if visible {
            bar.enable_steady_tick(TICK);
        }
        Self(bar)
    }

    /// One more is done.
    pub fn done(&self) {
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

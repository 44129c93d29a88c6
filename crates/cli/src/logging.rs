//! The log of a process that stays: standard error, which is a file where it runs in the background.

use std::io::{self, IsTerminal, Write};
use tracing_subscriber::EnvFilter;

/// Begins to log, as `$GLEANER_LOG` says (`info` if it is not set; the syntax is that of `tracing`'s filters). Starts no
/// thread.
pub fn begin() {
    let filter = EnvFilter::try_from_env("GLEANER_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let has_colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let lines = move || Lines { to: io::stderr(), has_colours };
    // Fails only if a log has begun already, which is as good.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(lines).with_ansi(has_colours).try_init();
}

/// Lines of the log, each written as a whole: what others say in one neither begins another nor does anything to a terminal.
struct Lines<W> {
    to: W,
    has_colours: bool,
}

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        self.to.write_all(base::path::logged(&text, self.has_colours).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_say_is_one_line_of_the_log() {
        let mut log = Vec::new();
        let said = "gone\n2026-11-27T09:00:00Z  INFO joined name=own\u{1b}[2J\u{202e}";
        let written = Lines { to: &mut log, has_colours: false }.write(format!("WARN why={said}\n").as_bytes());
        assert_eq!(written.expect("written"), said.len() + 10);
        let log = String::from_utf8(log).expect("text");
        assert!(log.lines().count() == 1 && log.ends_with('\n') && !log.contains(['\u{1b}', '\u{202e}']), "{log:?}");
    }
}

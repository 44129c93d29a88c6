//! The log of a process that stays: standard error, which is a file where it runs in the background.

use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Begins to log, as `$GLEANER_LOG` says (`info` if it is not set; the syntax is that of `tracing`'s filters). Starts no
/// thread.
pub fn begin() {
    let filter = EnvFilter::try_from_env("GLEANER_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    // Fails only if a log has begun already, which is as good.
    let _ =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours).try_init();
}

//! What small programs of the system say: run with a bound on time and length, without rights that they need not have.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long one may take.
const TIME_MAX: Duration = Duration::from_secs(2);
/// How much one may say, in bytes: it is less than a pipe holds, so it need not be read before its end.
const BYTES_MAX: u64 = 32 << 10;
const LOOK: Duration = Duration::from_millis(5);

/// What `program` says on standard output, if it is there and ends well in time.
pub fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.env("LC_ALL", "C").spawn().ok()?;
    let since = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => break,
            Ok(None) if since.elapsed() < TIME_MAX => super::wait(LOOK),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
    let mut said = String::new();
    child.stdout.take()?.take(BYTES_MAX).read_to_string(&mut said).ok()?;
    Some(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_heard_and_not_waited_for() {
        assert_eq!(said("echo", &["a", "b"]).as_deref(), Some("a b\n"));
        assert_eq!(said("false", &[]), None);
        assert_eq!(said("no-such-program", &[]), None);
        let since = Instant::now();
        assert_eq!(said("sleep", &["30"]), None);
        assert!(since.elapsed() < Duration::from_secs(10));
        assert_eq!(
            said("sh", &["-c", "yes | head -c 1000000"]),
            None,
            "who says more than a pipe holds waits for ever"
        );
    }
}

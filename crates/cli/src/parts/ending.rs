//! What has hub, worker and client daemon end, and what their log says of it.

use super::{PartError, failed};
use tokio::signal::unix::{SignalKind, signal};

/// Completes at SIGTERM or SIGINT, and at SIGHUP unless that is ignored, as by `nohup`.
pub(super) fn told_to_end() -> Result<impl Future<Output = ()>, PartError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut hangup = match ignores_hangup() {
        true => None,
        false => Some(signal(SignalKind::hangup()).map_err(failed)?),
    };
    Ok(async move {
        let hung_up = async {
            match &mut hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        let signal = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
            _ = hung_up => "SIGHUP",
        };
        tracing::info!(signal, "told to end");
    })
}

fn ignores_hangup() -> bool {
    // SAFETY: asks only, and fills a structure for which zeros are a value.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGHUP, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Has the log say that a part ends, and why.
pub(super) fn log_end(part: &str, ended: Result<(), PartError>) -> Result<(), PartError> {
    match &ended {
        Ok(()) => tracing::info!(part, "ended"),
        Err(error) => tracing::error!(part, %error, "ended"),
    }
    ended
}

/// Completes when standard input, a pipe, ends.
pub(super) async fn end_of_stdin() -> Result<(), PartError> {
    use tokio::io::AsyncReadExt;
    let stdin = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).map_err(failed)?;
    let mut stdin = tokio::net::unix::pipe::Receiver::from_owned_fd(stdin).map_err(failed)?;
    let mut ignored = [0; 64];
    while stdin.read(&mut ignored).await.map_err(failed)? > 0 {}
    Ok(())
}

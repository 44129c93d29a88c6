//! Waiting for a moment that need not come.

use tokio::time::Instant;

/// Waits until then; without a time, for ever.
pub async fn until(time: Option<impl Into<Instant>>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

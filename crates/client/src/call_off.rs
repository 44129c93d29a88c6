//! Ending a task where it is so that it runs here, and whether that can still be done unnoticed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;

/// Calls a task off: it does what cannot be done elsewhere, so it ends there and is run here instead, if nobody has noticed yet.
#[derive(Clone, Debug, Default)]
pub struct CallOff {
    why: watch::Sender<Option<String>>,
    noticed: Arc<AtomicBool>,
}

impl CallOff {
    /// Somebody has heard of the task: it cannot be run here instead any more.
    pub fn note_noticed(&self) {
        self.noticed.store(true, Ordering::Relaxed);
    }

    /// Whether somebody has heard of the task.
    pub fn is_noticed(&self) -> bool {
        self.noticed.load(Ordering::Relaxed)
    }

    /// Calls it off; the first reason counts. For people: `it` is the command.
    pub fn call(&self, why: impl Into<String>) {
        self.why.send_if_modified(|called| {
            let first = called.is_none();
            called.get_or_insert_with(|| why.into());
            first
        });
    }

    /// Why it was called off.
    pub fn why(&self) -> Option<String> {
        self.why.borrow().clone()
    }

    /// To be told when it is called off. Ends without a word once nobody can call it off any more.
    pub fn subscribe(&self) -> watch::Receiver<Option<String>> {
        self.why.subscribe()
    }

    /// Waits until it is called off.
    pub async fn called(&self) -> String {
        let mut calls = self.subscribe();
        match calls.wait_for(Option::is_some).await.ok().and_then(|why| why.clone()) {
            Some(why) => why,
            // The sender is ours, so that it cannot be gone.
            None => std::future::pending().await,
        }
    }
}

/// Waits until a task is called off, and says why.
pub(crate) async fn called(calls: &mut watch::Receiver<Option<String>>) -> String {
    match calls.wait_for(Option::is_some).await.ok().and_then(|why| why.clone()) {
        Some(why) => why,
        None => std::future::pending().await,
    }
}

//! The machine's own hiccups: a thread that does nothing but sleep, and looks by how much too long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long it sleeps at a time.
const NAP: Duration = Duration::from_millis(1);

/// Watches until it is asked.
pub struct Watch {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<u64>>>,
}

impl Watch {
    /// Begins.
    pub fn start() -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let told = ends.clone();
        let thread = std::thread::Builder::new().name("watch".into()).spawn(move || nap(&told)).ok();
        Self { ends, thread }
    }

    /// By how many nanoseconds each nap was too long.
    pub fn stop(mut self) -> Vec<u64> {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

fn nap(ends: &AtomicBool) -> Vec<u64> {
    let mut late = Vec::new();
    while !ends.load(Ordering::Relaxed) {
        let begun = Instant::now();
        std::thread::sleep(NAP);
        late.push(begun.elapsed().saturating_sub(NAP).as_nanos() as u64);
    }
    late
}

//! Time, more exactly than an async runtime has it: the machine's own hiccups, told by a thread that does nothing but sleep, and looks by
//! how much too long; and a pace for who has to do something often.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

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

#[expect(clippy::disallowed_methods, reason = "how long a sleep takes is what is measured")]
fn nap(ends: &AtomicBool) -> Vec<u64> {
    let mut late = Vec::new();
    while !ends.load(Ordering::Relaxed) {
        let begun = Instant::now();
        std::thread::sleep(NAP);
        late.push(begun.elapsed().saturating_sub(NAP).as_nanos() as u64);
    }
    late
}

/// Says that some time has passed, until it is dropped.
pub struct Pace {
    ends: Arc<AtomicBool>,
    passed: Arc<Notify>,
}

impl Pace {
    /// Each `turn`.
    #[expect(
        clippy::disallowed_methods,
        reason = "a pace that is kept by sleeping is exacter than the runtime's clock"
    )]
    pub fn start(turn: Duration) -> Self {
        let pace = Self { ends: Arc::default(), passed: Arc::default() };
        let (ends, passed) = (pace.ends.clone(), pace.passed.clone());
        let walk = move || {
            while !ends.load(Ordering::Relaxed) {
                std::thread::sleep(turn);
                passed.notify_one();
            }
        };
        // Without it nothing is ever due, which is noticed.
        drop(std::thread::Builder::new().name("pace".into()).spawn(walk));
        pace
    }

    /// Waits for the next turn.
    pub async fn next(&self) {
        self.passed.notified().await;
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

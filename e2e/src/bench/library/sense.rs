//! What each processor has to spare for a guest, measured and foretold all along, by the sensors and forecasts of a worker.
//!
//! A worker measures its machine as a whole, and two of them here are on one machine, a processor each. So the benchmark has the same
//! readings judged for each processor alone.

use crate::error::{Context, Result};
use sched::forecast::{Forecast, Forecaster};
use sched::sense::load::Load;
use sched::sense::share;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use worker::host::counters::Reader;

/// From one reading to the next: a worker's runs are hours, these are seconds.
pub const EVERY: Duration = Duration::from_secs(1);
/// Readings that the longer forecast is about, as a worker's is.
const FAR_STEPS: usize = 30;

/// What is foretold of one processor.
#[derive(Debug)]
struct Spare {
    cpu: u32,
    near: Forecaster,
    far: Forecaster,
}

/// Reads and foretells in a thread of its own, until it is dropped.
#[derive(Debug)]
pub struct Senses {
    spare: Arc<Mutex<Vec<Spare>>>,
    /// Dropped first: so the thread ends.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Senses {
    /// Of processors with these numbers.
    pub fn start(cpus: &[usize]) -> Result<Self> {
        let one = |cpu: &usize| Spare { cpu: *cpu as u32, near: Forecaster::over(1), far: Forecaster::over(FAR_STEPS) };
        let spare = Arc::new(Mutex::new(cpus.iter().map(one).collect::<Vec<Spare>>()));
        let (end, ended) = mpsc::channel();
        let shared = spare.clone();
        let mut reader = Reader::new(None);
        let mut before = reader.read().context(|| "cannot read counters".to_owned())?;
        let thread = std::thread::spawn(move || {
            let mut due = Instant::now() + EVERY;
            while ended.recv_timeout(due.saturating_duration_since(Instant::now())) == Err(RecvTimeoutError::Timeout) {
                due += EVERY;
                let Ok(after) = reader.read() else { continue };
                if let Some(load) = Load::between(&before, &after) {
                    for Spare { cpu, near, far } in shared.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
                        let share = share::guest(&load, &[*cpu]);
                        near.observe(share);
                        far.observe(share);
                    }
                }
                before = after;
            }
        });
        Ok(Self { spare, end: Some(end), thread: Some(thread) })
    }

    /// What is foretold of each processor, over about this time to come. Nothing before the second reading.
    pub fn foretold(&self, horizon_s: f64) -> Vec<Option<Forecast>> {
        // Whichever is nearer, by its logarithm.
        let is_far = horizon_s > EVERY.as_secs_f64() * (FAR_STEPS as f64).sqrt();
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        spare.iter().map(|one| if is_far { one.far.next() } else { one.near.next() }.map(within)).collect()
    }
}

impl Drop for Senses {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// There is no less than nothing, and no more than a processor.
fn within(Forecast { value, low, high }: Forecast) -> Forecast {
    let [value, low, high] = [value, low, high].map(|number| number.clamp(0.0, 1.0));
    Forecast { value, low, high }
}

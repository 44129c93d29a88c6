//! The runtime of a journal's connections. Callers are threads of any kind, those of another runtime included.

use std::sync::mpsc;
use tokio::runtime::{Builder, Handle, Runtime};

/// A runtime with a thread of its own.
pub(crate) struct Engine(Option<Runtime>);

impl Engine {
    /// Starts it.
    ///
    /// # Errors
    /// What the system said.
    pub fn start() -> std::io::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("pg-journal").enable_all().build()?;
        Ok(Self(Some(runtime)))
    }

    /// To start work on it.
    pub fn handle(&self) -> &Handle {
        self.0.as_ref().expect("the runtime is taken by drop alone").handle()
    }

    /// Does something there and waits for it; allowed on every thread but its own. `None` if it panicked.
    pub fn wait<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let (done, waiting) = mpsc::sync_channel(1);
        self.handle().spawn(async move { done.send(work.await) });
        waiting.recv().ok()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Waiting is not allowed on a thread of another runtime.
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

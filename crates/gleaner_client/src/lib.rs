//! Runs commands on the pool from a program, as `remrun` does from a shell: with this process's files, environment and
//! folder, on another machine if one is free.
//!
//! ```no_run
//! use gleaner_client::{Session, Task};
//!
//! let session = Session::open()?;
//! let outcome = session.run(&Task::new(["gcc", "-c", "parser.c"]))?;
//! println!("{:?}: {}", outcome.status, String::from_utf8_lossy(&outcome.stderr));
//!
//! // Tasks of a job see the files as they were when it was opened, whatever the others change meanwhile.
//! let job = session.job()?;
//! std::thread::scope(|threads| {
//!     for name in ["a", "b", "c"] {
//!         let job = &job;
//!         threads.spawn(move || job.run(&Task::new(["povray", "scene.pov", &format!("+O{name}.png")])));
//!     }
//! });
//! # Ok::<(), gleaner_client::Error>(())
//! ```
//!
//! Everything blocks, and may be used by many threads at once. A task takes a thread, four descriptors and no more memory
//! than its output. [`door`] and [`gather`] are what `remrun` itself uses: they hold no thread and start in no time.

mod cancel;
pub mod descriptors;
pub mod door;
mod elsewhere;
mod error;
pub mod gather;
mod here;
mod session;
mod task;

pub use base::ExitStatus;
pub use cancel::Cancel;
pub use elsewhere::{START_TIME_MAX, TRIES_MAX, ask_outcome, start_time_max, unknown_end};
pub use error::Error;
pub use session::{Job, OUTPUT_BYTES_MAX, Session};
pub use task::{CPUS_MAX, Ended, Outcome, Place, Streams, Task};

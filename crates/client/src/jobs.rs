//! The jobs that are open at this daemon. A job lasts as long as the connection of its opener; tasks of it that still run
//! then run to their end.

use crate::views::JobViews;
use base::JobId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use wire::lock;

/// Most jobs that are open at once.
const JOBS_MAX: usize = 64;

/// The open jobs.
#[derive(Debug, Default)]
pub struct Jobs {
    open: Mutex<HashMap<JobId, Arc<JobViews>>>,
}

/// An open job: closed when this is dropped.
#[derive(Debug)]
pub struct OpenJob<'a> {
    jobs: &'a Jobs,
    id: JobId,
}

impl Jobs {
    /// Opens a job; its tasks see the files as they are now. The error says why not.
    pub fn open(&self) -> Result<OpenJob<'_>, String> {
        let mut open = lock(&self.open);
        if open.len() >= JOBS_MAX {
            return Err(format!("{JOBS_MAX} jobs are open already: wait until one has ended"));
        }
        // Random, so that a job of a daemon that has died is not taken for one of its successor's.
        let id = JobId(rand::random::<u64>().max(1));
        open.insert(id, Arc::new(JobViews::begin()));
        Ok(OpenJob { jobs: self, id })
    }

    /// The job with this number, while it is open.
    pub fn get(&self, id: JobId) -> Option<Arc<JobViews>> {
        lock(&self.open).get(&id).cloned()
    }
}

impl OpenJob<'_> {
    /// Its number.
    pub fn id(&self) -> JobId {
        self.id
    }
}

impl Drop for OpenJob<'_> {
    fn drop(&mut self) {
        lock(&self.jobs.open).remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_open_until_its_opener_goes() {
        let jobs = Jobs::default();
        let open: Vec<OpenJob<'_>> = (0..JOBS_MAX).map(|_| jobs.open().expect("there is room")).collect();
        assert!(jobs.open().expect_err("it is full").contains("64 jobs"));
        let id = open[0].id();
        assert!(jobs.get(id).is_some());
        drop(open);
        assert!(jobs.get(id).is_none() && jobs.open().is_ok());
    }
}

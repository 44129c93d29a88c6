//! What a worker starts over: its folder, and the processors that it lends.

use super::{PartError, failed};
use std::path::Path;

/// Removes what an earlier worker left, however deep it is. Its mounts went with it: they were in a mount namespace of its own.
pub fn clear(folder: &Path) -> Result<(), PartError> {
    let name = folder.display();
    match worker::trees::remove(folder).map_err(std::io::Error::from) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(format!("clearing {name}: {error}"))),
    }
    for part in ["mirrors", "tasks"] {
        std::fs::create_dir_all(folder.join(part)).map_err(|error| failed(format!("making {name}: {error}")))?;
    }
    Ok(())
}

/// `count` numbers of CPUs that this process may use; some occur more than once if there are not as many.
pub fn cpu_numbers(count: u32) -> Vec<u32> {
    let allowed = rustix::thread::sched_getaffinity(None);
    let allowed: Vec<u32> = match &allowed {
        Ok(set) => (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).map(|cpu| cpu as u32).collect(),
        Err(_) => vec![0],
    };
    allowed.iter().cycle().take(count as usize).copied().collect()
}

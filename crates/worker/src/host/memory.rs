//! How this machine's memory is, and being told when it gets short.

use rustix::fs::{Mode, OFlags};
use sched::memory::Seen;
use std::fs;
use std::os::fd::OwnedFd;

use crate::sandbox::Held;

/// What is read of memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// All there is.
    pub total: u64,
    /// Free, or to be had by dropping cache.
    pub available: u64,
    /// Free.
    pub free: u64,
    /// Cache of files that are in use.
    pub active_cache: u64,
}

impl Memory {
    /// Reads it, within the bounds of the container that this is, if it is one.
    pub fn read() -> Option<Self> {
        let machine = parse(&fs::read_to_string("/proc/meminfo").ok()?)?;
        let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
        let limit = number("/sys/fs/cgroup/memory.max").zip(number("/sys/fs/cgroup/memory.current"));
        Some(limit.map_or(machine, |(limit, used)| machine.within(limit, used)))
    }

    fn within(self, limit: u64, used: u64) -> Self {
        let free = limit.saturating_sub(used);
        Self {
            total: self.total.min(limit),
            available: self.available.min(free + self.active_cache.min(used)),
            free: self.free.min(free),
            active_cache: self.active_cache.min(used),
        }
    }

    /// This, beside what guests hold of it, and whether they wait for more.
    pub fn beside(&self, held: Held, waits: bool) -> Seen {
        Seen {
            available: self.available,
            free: self.free,
            owners_cache: self.active_cache.saturating_sub(held.cache),
            fixed: held.fixed,
            cache: held.cache,
            waits,
        }
    }
}

/// Reads `/proc/meminfo`.
fn parse(meminfo: &str) -> Option<Memory> {
    let field = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
    };
    let (total, free) = (field("MemTotal")?, field("MemFree")?);
    let active_cache = field("Active(file)").unwrap_or(0);
    Some(Memory { total, available: field("MemAvailable").unwrap_or(free), free, active_cache })
}

/// A descriptor that is ready (`POLLPRI`) when programs wait for memory for a tenth of a second or two; `None`: the kernel does not
/// tell. Windows under two seconds need CAP_SYS_RESOURCE.
pub fn shortage() -> Option<OwnedFd> {
    ["some 50000 500000\0", "some 200000 2000000\0"].iter().find_map(|trigger| {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let pressure = rustix::fs::open("/proc/pressure/memory", flags, Mode::empty()).ok()?;
        rustix::io::write(&pressure, trigger.as_bytes()).ok()?;
        Some(pressure)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:       24684324 kB\nMemFree:        21739000 kB\nMemAvailable:   22723000 kB\n\
        Buffers:          101240 kB\nActive(anon):     300112 kB\nActive(file):     610000 kB\n";

    #[test]
    fn meminfo_is_read() {
        let read = parse(MEMINFO).expect("it is sound");
        let [total, available, free, active_cache] = [24_684_324, 22_723_000, 21_739_000, 610_000].map(|kib| kib << 10);
        assert_eq!(read, Memory { total, available, free, active_cache });
        assert_eq!(parse("MemTotal: many\n"), None);
        assert!(Memory::read().is_some_and(|read| read.total >= read.available));
    }

    #[test]
    fn a_container_has_no_more_than_its_limit() {
        let read = parse(MEMINFO).expect("it is sound").within(1 << 30, 600 << 20);
        assert_eq!((read.total, read.free, read.active_cache), (1 << 30, 424 << 20, 610_000 << 10));
        assert_eq!(read.available, (424 << 20) + (610_000 << 10));
    }

    #[test]
    fn the_owners_cache_is_what_is_not_guests() {
        let seen = parse(MEMINFO).expect("it is sound").beside(Held { fixed: 7, cache: 600_000 << 10, dirty: 0 }, true);
        assert_eq!((seen.owners_cache, seen.fixed, seen.cache, seen.waits), (10_000 << 10, 7, 600_000 << 10, true));
    }
}

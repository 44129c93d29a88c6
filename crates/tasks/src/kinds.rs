//! Kinds of hosts and kinds of needs, each known by a small number, and which fits which: one bit.
//!
//! There are few of either however many hosts and jobs there are: a thousand desks have some dozen shapes. So the one question of
//! placement, "may this host have that task", costs a bit, and its reasons are told by the same predicate ([`misfit`]).
//!
//! A kind stays when its last host or job is gone: the next one like it is soon there. Where there is no room for a new kind, one that
//! nobody uses makes way.

use crate::shapes::meter::Meter;
use crate::shapes::sets::{Set, WORDS};
use crate::snapshot::{Loader, Saved, Saver, Stopped, saved};
use base::codec::Malformed;
use std::fmt;

/// Most kinds of hosts, and of needs.
pub const KINDS_MAX: usize = 1024;

/// What machines a program runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Platform(pub u16);

impl Saved for Platform {
    const BYTES: usize = u16::BYTES;

    fn put(&self, to: &mut [u8]) {
        self.0.put(to);
    }

    fn get(from: &[u8]) -> Result<Self, Malformed> {
        u16::get(from).map(Self)
    }
}

impl Platform {
    /// Linux on x86-64.
    pub const LINUX_X86_64: Self = Self(1);
    /// Linux on 64-bit ARM.
    pub const LINUX_ARM64: Self = Self(2);
}

/// What a host is. Equal shapes are one kind; whoever joins hosts rounds memory down, so that there are few.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Of its machine.
    pub platform: Platform,
    /// Of x86-64 (v1 to v4), or of another architecture's like.
    pub level: u8,
    /// Processors that it lends in all.
    pub cpus: u16,
    /// Processors that one task can have at most: behind a hub are several machines.
    pub largest: u16,
    /// Memory that it lends, in MiB.
    pub memory_mib: u32,
    /// What its owner calls it: bit n is tag n.
    pub tags: u64,
    /// Hosts of one redundancy class compute the same bits (BOINC: homogeneous redundancy). 0: of none.
    pub redundancy: u8,
}

saved!(Shape { platform: Platform, level: u8, cpus: u16, largest: u16, memory_mib: u32, tags: u64, redundancy: u8 });

/// What each task of a job needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Need {
    /// The platform of the program.
    pub platform: Platform,
    /// The least level of it, as read from the program.
    pub level: u8,
    /// Processors for one instance; at least 1.
    pub cpus: u16,
    /// Memory for one instance, in MiB.
    pub memory_mib: u32,
    /// Tags that the host must have.
    pub tags: u64,
    /// All copies run within one redundancy class.
    pub is_homogeneous: bool,
}

saved!(Need { platform: Platform, level: u8, cpus: u16, memory_mib: u32, tags: u64, is_homogeneous: bool });

/// Why a host of a shape can never have a task with a need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// Another platform.
    Platform,
    /// Too old a processor: what it has, what is needed.
    Level(u8, u8),
    /// Too few processors: what it has, what is needed.
    Cpus(u16, u16),
    /// Too little memory: what it has, what is needed, in MiB.
    Memory(u32, u32),
    /// Tags are missing: these.
    Tags(u64),
    /// It is of no redundancy class.
    Redundancy,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Platform => write!(f, "another platform"),
            Self::Level(has, needed) => write!(f, "processor level {has}, {needed} needed"),
            Self::Cpus(has, needed) => write!(f, "{has} CPUs, {needed} needed"),
            Self::Memory(has, needed) => write!(f, "{has} MiB of memory, {needed} needed"),
            Self::Tags(_) => write!(f, "not all the tags asked for"),
            Self::Redundancy => write!(f, "of no redundancy class"),
        }
    }
}

/// Why a host of this shape can never have a task with this need; `None` if it can.
pub fn misfit(shape: &Shape, need: &Need) -> Option<Misfit> {
    if shape.platform != need.platform {
        return Some(Misfit::Platform);
    }
    if shape.level < need.level {
        return Some(Misfit::Level(shape.level, need.level));
    }
    if shape.largest < need.cpus {
        return Some(Misfit::Cpus(shape.largest, need.cpus));
    }
    if shape.memory_mib < need.memory_mib {
        return Some(Misfit::Memory(shape.memory_mib, need.memory_mib));
    }
    if need.tags & !shape.tags != 0 {
        return Some(Misfit::Tags(need.tags & !shape.tags));
    }
    (need.is_homogeneous && shape.redundancy == 0).then_some(Misfit::Redundancy)
}

/// All kinds, and the table of what fits.
#[derive(Debug, Default)]
pub(crate) struct Kinds {
    shapes: Vec<Shape>,
    needs: Vec<Need>,
    /// For each kind of host the needs that it can serve.
    serves: Vec<Set>,
    /// For each need the kinds of hosts that can serve it.
    served_by: Vec<Set>,
    /// Hosts of each kind, and jobs of each. Not saved: they are counted.
    hosts: Vec<u32>,
    /// See `hosts`.
    jobs: Vec<u32>,
    pub meter: Meter,
}

impl Kinds {
    pub fn new() -> Self {
        let sets = || vec![[0; WORDS]; KINDS_MAX];
        Self {
            shapes: Vec::with_capacity(KINDS_MAX),
            needs: Vec::with_capacity(KINDS_MAX),
            serves: sets(),
            served_by: sets(),
            hosts: vec![0; KINDS_MAX],
            jobs: vec![0; KINDS_MAX],
            meter: Meter::default(),
        }
    }

    /// Which fits which follows from what they are.
    pub fn save(&self, out: &mut Saver<'_>) -> Result<(), Stopped> {
        let Self { shapes, needs, serves: _, served_by: _, hosts: _, jobs: _, meter: _ } = self;
        out.put(&[shapes.len(), needs.len()])?;
        out.all(shapes)?;
        out.all(needs)
    }

    /// Loads what [`Kinds::save`] wrote.
    pub fn load(from: &mut Loader<'_>) -> Result<Self, Malformed> {
        let [shapes, needs] = from.get::<[usize; 2]>()?;
        if shapes > KINDS_MAX || needs > KINDS_MAX {
            return Err(Malformed("more kinds of hosts or needs than there can be"));
        }
        let mut kinds =
            Self { shapes: from.all(shapes, KINDS_MAX)?, needs: from.all(needs, KINDS_MAX)?, ..Self::new() };
        for shape in 0..shapes {
            (0..needs).for_each(|need| kinds.relate(shape, need));
        }
        Ok(kinds)
    }

    /// The kind of a shape, a new one if need be. `None`: all are in use.
    pub fn of_host(&mut self, shape: &Shape) -> Option<u16> {
        if let Some(known) = self.shapes.iter().position(|known| known == shape) {
            return Some(known as u16);
        }
        let kind = place_for(&mut self.shapes, *shape, &self.hosts)?;
        self.serves[kind] = [0; WORDS];
        for need in 0..self.needs.len() {
            self.served_by[need][kind / 64] &= !(1 << (kind % 64));
            self.relate(kind, need);
        }
        Some(kind as u16)
    }

    /// The kind of a need, a new one if need be. `None`: all are in use.
    pub fn of_need(&mut self, need: &Need) -> Option<u16> {
        if let Some(known) = self.needs.iter().position(|known| known == need) {
            return Some(known as u16);
        }
        let kind = place_for(&mut self.needs, *need, &self.jobs)?;
        self.served_by[kind] = [0; WORDS];
        for shape in 0..self.shapes.len() {
            self.serves[shape][kind / 64] &= !(1 << (kind % 64));
            self.relate(shape, kind);
        }
        Some(kind as u16)
    }

    /// Whether a host that has this kind could have that shape instead.
    pub fn can_become(&self, kind: u16, shape: &Shape) -> bool {
        self.shapes.len() < KINDS_MAX
            || self.hosts[usize::from(kind)] == 1
            || self.hosts.contains(&0)
            || self.shapes.contains(shape)
    }

    /// One host more is of a kind.
    pub fn host_came(&mut self, kind: u16) {
        self.hosts[usize::from(kind)] += 1;
    }

    /// One host less is.
    pub fn host_went(&mut self, kind: u16) {
        self.hosts[usize::from(kind)] -= 1;
    }

    /// One job more has a need.
    pub fn job_came(&mut self, kind: u16) {
        self.jobs[usize::from(kind)] += 1;
    }

    /// One job less has.
    pub fn job_went(&mut self, kind: u16) {
        self.jobs[usize::from(kind)] -= 1;
    }

    /// How many hosts and jobs each kind has.
    pub fn users(&self) -> (&[u32], &[u32]) {
        (&self.hosts, &self.jobs)
    }

    fn relate(&mut self, shape: usize, need: usize) {
        if misfit(&self.shapes[shape], &self.needs[need]).is_none() {
            self.serves[shape][need / 64] |= 1 << (need % 64);
            self.served_by[need][shape / 64] |= 1 << (shape % 64);
        }
    }

    pub fn shape(&self, kind: u16) -> &Shape {
        &self.shapes[kind as usize]
    }

    pub fn need(&self, kind: u16) -> &Need {
        self.meter.touch(kind as usize / 2);
        &self.needs[kind as usize]
    }

    /// The needs that hosts of a kind can serve.
    pub fn serves(&self, shape: u16) -> &Set {
        self.touch_set(KINDS_MAX + shape as usize);
        &self.serves[shape as usize]
    }

    /// Whether hosts of a kind can serve a need.
    pub fn can_serve(&self, shape: u16, need: u16) -> bool {
        self.serves(shape)[usize::from(need) / 64] & 1 << (need % 64) != 0
    }

    /// The kinds of hosts that can serve a need.
    pub fn served_by(&self, need: u16) -> &Set {
        self.touch_set(2 * KINDS_MAX + need as usize);
        &self.served_by[need as usize]
    }

    /// A set is two lines.
    fn touch_set(&self, at: usize) {
        self.meter.touch(2 * at);
        self.meter.touch(2 * at + 1);
    }

    /// How many kinds of hosts and of needs there are.
    pub fn counts(&self) -> (usize, usize) {
        (self.shapes.len(), self.needs.len())
    }

    pub fn bytes(&self) -> usize {
        2 * KINDS_MAX * size_of::<Set>() + KINDS_MAX * (size_of::<Shape>() + size_of::<Need>() + 2 * size_of::<u32>())
    }
}

/// Puts a new kind where there is room for it: behind the others, or in the place of the first that has no users. `None`: all have.
fn place_for<T>(kinds: &mut Vec<T>, new: T, users: &[u32]) -> Option<usize> {
    if kinds.len() < KINDS_MAX {
        kinds.push(new);
        return Some(kinds.len() - 1);
    }
    let unused = users.iter().position(|users| *users == 0)?;
    kinds[unused] = new;
    Some(unused)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(memory_mib: u32) -> Shape {
        Shape { platform: Platform::LINUX_X86_64, cpus: 4, largest: 4, memory_mib, ..Shape::default() }
    }

    fn need(memory_mib: u32) -> Need {
        Need { platform: Platform::LINUX_X86_64, cpus: 1, memory_mib, ..Need::default() }
    }

    #[test]
    fn a_kind_that_nobody_uses_makes_way_for_a_new_one() {
        let mut kinds = Kinds::new();
        for number in 0..KINDS_MAX as u32 {
            let (host, job) =
                (kinds.of_host(&shape(number)).expect("room"), kinds.of_need(&need(number)).expect("room"));
            kinds.host_came(host);
            kinds.job_came(job);
        }
        let (more, other) = (shape(5_000), need(5_000));
        assert_eq!((kinds.of_host(&more), kinds.of_need(&other)), (None, None));
        assert_eq!((kinds.of_host(&shape(7)), kinds.of_need(&need(7))), (Some(7), Some(7)), "known ones have theirs");
        [9, 3].into_iter().for_each(|kind| {
            kinds.host_went(kind);
            kinds.job_went(kind);
        });
        assert_eq!((kinds.of_host(&more), kinds.of_need(&other)), (Some(3), Some(3)), "the lowest number first");
        // Each bit is what the predicate says, also those of the kinds that were there before.
        for (host, job) in
            (0..KINDS_MAX as u16).map(|kind| (kind, 3)).chain((0..KINDS_MAX as u16).map(|kind| (3, kind)))
        {
            let fits = misfit(kinds.shape(host), kinds.need(job)).is_none();
            let by = kinds.served_by(job)[usize::from(host) / 64] & 1 << (host % 64) != 0;
            assert_eq!((kinds.can_serve(host, job), by), (fits, fits), "{host} and {job}");
        }
    }
}

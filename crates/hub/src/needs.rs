//! What workers lend and tasks need of them: processors, memory, the level of x86-64, and tags. Owners give tags by name; the task table
//! has a bit for each.

use crate::work::{GIVES, OWNERS_TAGS, TAKES_LAUNCHES};
use base::{Needs, NodeId};
use sched::finish::Share;
use tasks::{Need, Platform, RUNNING_MAX, Shape, misfit};
use wire::message::{Expected, Hello, Lends};

/// Memory is rounded down to so much, in MiB: few kinds of machines are looked at faster than many.
const MEMORY_STEP_MIB: u32 = 256;
/// Steps of expected speed in a whole processor's.
const SPEED_STEPS: u32 = 16;
/// Of a machine that says nothing of what it expects.
const SURE: Expected = Expected { mean: 1_000, low: 1_000, high: 1_000, error: 0, covered: 1_000 };
/// Most CPUs of one machine, and of all behind a hub, that count: whoever says more is not believed. For each 128 there is a host.
const MACHINE_CPUS_MAX: u32 = 4096;
const BEHIND_CPUS_MAX: u32 = 1 << 18;
/// Most tags that a hub knows, and that it learns of one worker or hub.
const NAMES_MAX: usize = OWNERS_TAGS.count_ones() as usize;
const NAMES_OF_ONE_MAX: usize = 16;

/// What a worker lends, or a hub that works for this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lent {
    /// CPUs in all.
    pub cpus: u32,
    /// Most CPUs that one task can have: behind a hub are several machines.
    pub largest: u32,
    /// Memory of the machine that has most, in MiB.
    pub memory_mib: u32,
    /// Level of x86-64 of the newest; 0: not known.
    pub level: u8,
    /// Bits of the tags that machines have.
    pub tags: u64,
    /// What a task will get of a processor, if that is known.
    pub expected: Option<Expected>,
    /// CPUs of tasks that only wait for their standard input or output: they are lent once more.
    pub cpus_again: u32,
}

impl Lent {
    /// Of one machine of which nothing else is known.
    pub fn by_machine(cpus: u32) -> Self {
        let cpus = cpus.clamp(1, MACHINE_CPUS_MAX);
        Self { cpus, largest: cpus, ..Self::default() }
    }

    /// The same as far as one machine can have it.
    pub fn of_one(self) -> Self {
        let cpus = self.cpus.min(MACHINE_CPUS_MAX);
        Self {
            cpus,
            largest: self.largest.min(MACHINE_CPUS_MAX),
            cpus_again: self.cpus_again.min(MACHINE_CPUS_MAX),
            ..self
        }
    }

    /// Of this and another.
    pub fn and(self, other: Self) -> Self {
        Self {
            cpus: self.cpus.saturating_add(other.cpus),
            largest: self.largest.max(other.largest),
            memory_mib: self.memory_mib.max(other.memory_mib),
            level: self.level.max(other.level),
            tags: self.tags | other.tags,
            expected: self.expected_with(&other),
            cpus_again: self.cpus_again.saturating_add(other.cpus_again),
        }
    }

    /// What a task gets that comes to one of both by chance. Who says nothing gives all.
    fn expected_with(&self, other: &Self) -> Option<Expected> {
        if self.expected.is_none() && other.expected.is_none() {
            return None;
        }
        let all = (u64::from(self.cpus) + u64::from(other.cpus)).max(1);
        let [one, another] = [self, other].map(|lent| lent.expected.unwrap_or(SURE));
        let mix = |one: u32, another: u32| {
            let sum = u64::from(one) * u64::from(self.cpus) + u64::from(another) * u64::from(other.cpus);
            (sum / all) as u32
        };
        Some(Expected {
            mean: mix(one.mean, another.mean),
            low: mix(one.low, another.low),
            high: mix(one.high, another.high),
            error: mix(one.error, another.error),
            covered: mix(one.covered, another.covered),
        })
    }

    /// The share of a processor that a task is expected to get.
    pub fn share(&self) -> Share {
        let Expected { mean, low, high, .. } = self.expected.unwrap_or(SURE);
        Share::of_permille(mean, low, high)
    }

    /// How fast a processor is taken to be, in thousandths: a task is expected to end there when it would on so much of one. In steps, so that
    /// not every breath of an owner goes through the journal.
    pub fn speed_permille(&self) -> u32 {
        let steps = (self.share().worth() * f64::from(SPEED_STEPS)).round() as u32;
        (steps * 1_000 / SPEED_STEPS).max(1)
    }

    /// Whether a task gets anything worth the name: a step of expected speed. Of a machine that is busy with something else it gets less.
    pub fn gives(&self) -> bool {
        self.cpus > 0 && self.speed_permille() >= 1_000 / SPEED_STEPS
    }

    /// With those that are lent once more.
    fn cpus_in_all(&self) -> u32 {
        if self.cpus == 0 { 0 } else { self.cpus.saturating_add(self.cpus_again) }
    }

    /// A host of so many processors, of which one task can have so many.
    fn host(&self, cpus: u32, largest: u32) -> Shape {
        Shape {
            platform: Platform::LINUX_X86_64,
            level: self.level,
            cpus: cpus as u16,
            largest: largest.min(u16::MAX.into()) as u16,
            memory_mib: self.memory_mib,
            tags: self.tags | TAKES_LAUNCHES | if self.gives() { GIVES } else { 0 },
            ..Shape::default()
        }
    }

    /// The host that has the largest tasks. A machine with more processors than places lends one task all of them: it is one host, which has
    /// fewer tasks then. One that lends nothing for a while says what it will lend again: who needs that waits for it.
    fn first_host(&self) -> Shape {
        let first = self.cpus_in_all().min(self.largest.max(RUNNING_MAX as u32)).min(u16::MAX.into());
        self.host(first, if first == 0 { self.largest } else { self.largest.min(first) })
    }

    /// As hosts of at most as many processors as a host has places. Of all but the first, which has the largest tasks.
    pub fn hosts(self) -> Vec<Shape> {
        let mut shapes = vec![self.first_host()];
        let mut left = self.cpus_in_all() - u32::from(shapes[0].cpus);
        while left > 0 {
            let cpus = left.min(RUNNING_MAX as u32);
            shapes.push(self.host(cpus, self.largest.min(cpus)));
            left -= cpus;
        }
        shapes
    }

    /// Whether it has all that a task needs.
    pub fn has_all(&self, need: &Need) -> bool {
        misfit(&self.first_host(), need).is_none()
    }

    /// Why none of these machines can have a task, if one thing alone is the reason.
    pub fn lacks(&self, need: &Need) -> Option<Lack> {
        if u32::from(need.cpus) > self.largest {
            return Some(Lack::Cpus { asked: need.cpus.into(), largest: self.largest });
        }
        if need.memory_mib > self.memory_mib {
            return Some(Lack::Memory { asked: need.memory_mib, largest: self.memory_mib });
        }
        (need.level > self.level).then_some(Lack::Level { needed: need.level, newest: self.level })
    }
}

/// What no worker has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lack {
    /// So many processors.
    #[error("{asked} CPUs asked, but the largest worker lends {largest}")]
    Cpus {
        /// CPUs asked for.
        asked: u32,
        /// CPUs of the largest worker.
        largest: u32,
    },
    /// So much memory.
    #[error("{asked} MiB of memory asked, but no worker lends more than {largest}")]
    Memory {
        /// Memory asked for, in MiB.
        asked: u32,
        /// Memory of the worker that has most.
        largest: u32,
    },
    /// A processor that the program runs on.
    #[error("the program was built for x86-64-v{needed}, but the newest processor of a worker is an x86-64-v{newest}")]
    Level {
        /// Level of the program.
        needed: u8,
        /// Level of the newest processor.
        newest: u8,
    },
    /// A tag.
    #[error("no worker has the tag `{0}`")]
    Tag(String),
}

/// Tags by their bits. A name keeps its bit as long as a worker has it or a job asks for it, and then until the place is needed.
#[derive(Debug, Default)]
pub struct Tags {
    names: Vec<Option<Name>>,
}

#[derive(Debug, Clone)]
struct Name {
    text: String,
    /// Of whom it was learnt; `None`: of a job in the journal.
    by: Option<NodeId>,
}

impl Tags {
    fn bit(&self, name: &str) -> Option<u64> {
        let at = self.names.iter().position(|known| known.as_ref().is_some_and(|known| known.text == name))?;
        Some(1 << at)
    }

    /// The bits of tags that a machine has. With more names than a hub can know, or learns of one machine, the rest is left out, and that
    /// is logged.
    pub fn lent(&mut self, names: &[String], by: NodeId) -> u64 {
        names.iter().fold(0, |bits, name| bits | self.learn(name, by))
    }

    /// The bits of those of these tags that are known: nothing is learnt of a machine that nobody has approved.
    pub fn lent_already(&self, names: &[String]) -> u64 {
        names.iter().filter_map(|name| self.bit(name)).fold(0, |bits, bit| bits | bit)
    }

    fn learn(&mut self, name: &str, by: NodeId) -> u64 {
        if let Some(bit) = self.bit(name) {
            return bit;
        }
        let Some(free) = self.free_for(by) else {
            tracing::warn!(tag = name, node = %by, "the hub knows {NAMES_MAX} tags already, or {NAMES_OF_ONE_MAX} of this machine: this one is not used");
            return 0;
        };
        self.keep(1 << free, name, Some(by));
        1 << free
    }

    /// The place for a name that is learnt of this machine.
    fn free_for(&self, by: NodeId) -> Option<usize> {
        let own = self.names.iter().flatten().filter(|known| known.by == Some(by)).count();
        let free = self.names.iter().position(Option::is_none).unwrap_or(self.names.len());
        (own < NAMES_OF_ONE_MAX && free < NAMES_MAX).then_some(free)
    }

    /// Whether one of these names is new and has no place.
    pub fn lacks_room_for(&self, names: &[String], by: NodeId) -> bool {
        let new = names.iter().filter(|name| self.bit(name).is_none()).count();
        let own = self.names.iter().flatten().filter(|known| known.by == Some(by)).count();
        new > 0 && (self.names.iter().flatten().count() + new > NAMES_MAX || own + new > NAMES_OF_ONE_MAX)
    }

    /// Forgets names that nobody has and no job asks for. `used`: the bits of the others.
    pub fn forget_unused(&mut self, used: u64) {
        let unused = self.names.iter_mut().enumerate().filter(|(at, _)| used & 1 << at == 0);
        unused.for_each(|(_, name)| *name = None);
    }

    /// A job in the journal has these names under these bits.
    pub fn known(&mut self, bits: u64, names: &[String]) {
        let bits = (0..u64::BITS).map(|at| 1 << at).filter(|bit| bits & OWNERS_TAGS & bit != 0);
        bits.zip(names).for_each(|(bit, name)| self.keep(bit, name, None));
    }

    fn keep(&mut self, bit: u64, name: &str, by: Option<NodeId>) {
        let at = bit.trailing_zeros() as usize;
        if at < NAMES_MAX {
            self.names.resize(self.names.len().max(at + 1), None);
            self.names[at] = Some(Name { text: name.to_owned(), by });
        }
    }

    /// The bits of tags that a task needs.
    pub fn needed(&self, names: &[String]) -> Result<u64, Lack> {
        let bit = |name: &String| self.bit(name).ok_or_else(|| Lack::Tag(name.clone()));
        names.iter().try_fold(0, |bits, name| Ok(bits | bit(name)?))
    }

    /// The names of bits, in the order of these.
    pub fn names(&self, bits: u64) -> Vec<String> {
        let named = self.names.iter().enumerate().filter(|(at, _)| bits & 1 << at != 0);
        named.filter_map(|(_, name)| name.as_ref().map(|name| name.text.clone())).collect()
    }

    /// The bits of tags that a machine has: of one that may have tasks also those that are new.
    fn of(&mut self, names: &[String], approved: Option<NodeId>) -> u64 {
        match approved {
            Some(node) => self.lent(names, node),
            None => self.lent_already(names),
        }
    }

    /// What a worker lends that greets so. `approved`: its key, if it may have tasks.
    pub fn lent_by(&mut self, hello: &Hello, approved: Option<NodeId>) -> Lent {
        match &hello.behind {
            Some(lends) => self.lent_behind(lends, approved),
            // It only redeems its token, and comes back.
            None if hello.cpus == 0 => Lent::default(),
            None => Lent {
                memory_mib: memory(hello.memory_bytes),
                level: wire::convert::level(hello.level),
                tags: self.of(&named_by(hello), approved),
                ..Lent::by_machine(hello.cpus)
            },
        }
    }

    /// What the workers of a hub lend that works for this one.
    pub fn lent_behind(&mut self, lends: &Lends, approved: Option<NodeId>) -> Lent {
        let cpus = lends.cpus.min(BEHIND_CPUS_MAX);
        Lent {
            cpus,
            largest: if cpus == 0 { lends.largest } else { lends.largest.min(cpus) },
            memory_mib: in_steps(lends.memory_mib),
            level: wire::convert::level(lends.level),
            tags: self.of(&sound(&lends.tags), approved),
            expected: lends.expected.map(possible),
            cpus_again: lends.cpus_again.min(BEHIND_CPUS_MAX),
        }
    }

    /// What this hub's workers lend, for the hub above.
    pub fn lends(&self, lent: Lent) -> Lends {
        Lends {
            cpus: lent.cpus,
            largest: lent.largest,
            memory_mib: lent.memory_mib,
            level: lent.level.into(),
            tags: self.names(lent.tags),
            expected: lent.expected,
            rests: String::new(),
            troubles: None,
            cpus_again: lent.cpus_again,
        }
    }

    /// What launches with such needs ask for.
    pub fn need(&self, needs: &Needs) -> Result<Need, Lack> {
        Ok(Need {
            platform: Platform::LINUX_X86_64,
            level: needs.level,
            cpus: needs.cpus.clamp(1, u16::MAX.into()) as u16,
            memory_mib: needs.memory_mib,
            tags: self.needed(&needs.tags)? | TAKES_LAUNCHES,
            ..Need::default()
        })
    }
}

/// What is said, within what can be.
fn possible(said: Expected) -> Expected {
    let mean = said.mean.min(1_000);
    Expected {
        mean,
        low: said.low.min(mean),
        high: said.high.clamp(mean, 1_000),
        error: said.error.min(1_000),
        covered: said.covered.min(1_000),
    }
}

/// What a machine has, in whole steps of MiB.
fn memory(bytes: u64) -> u32 {
    in_steps((bytes >> 20).min(u32::MAX.into()) as u32)
}

pub(crate) fn in_steps(mib: u32) -> u32 {
    mib / MEMORY_STEP_MIB * MEMORY_STEP_MIB
}

/// What a task needs, rounded up as what a machine has is rounded down: the same machines can have it, and there are few kinds of needs.
pub(crate) fn in_whole_steps(mib: u32) -> u32 {
    mib.div_ceil(MEMORY_STEP_MIB).saturating_mul(MEMORY_STEP_MIB)
}

/// The tags that a machine has which greets so.
pub(crate) fn named_by(hello: &Hello) -> Vec<String> {
    sound(hello.behind.as_ref().map_or(&hello.tags, |behind| &behind.tags))
}

/// Those names that can be of tags.
pub(crate) fn sound(names: &[String]) -> Vec<String> {
    names.iter().filter(|name| base::command::is_tag(name)).take(NAMES_MAX).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn node(number: u8) -> NodeId {
        NodeId(base::Digest([number; 32]))
    }

    #[test]
    fn tags_have_bits_of_their_own_and_keep_them() {
        let mut tags = Tags::default();
        tags.known(2, &names(&["gpu"]));
        assert_eq!(tags.lent(&names(&["big", "gpu", "old", "big"]), node(1)), 0b111);
        assert_eq!(tags.needed(&names(&["old", "gpu"])), Ok(0b110));
        assert_eq!(tags.needed(&names(&["old", "new"])), Err(Lack::Tag("new".into())));
        assert_eq!(tags.names(0b1101), ["big", "old"]);
    }

    #[test]
    fn a_machine_teaches_few_tags_and_none_before_it_is_approved() {
        let mut tags = Tags::default();
        let many: Vec<String> = (0..100).map(|number| format!("t{number}")).collect();
        let hello = Hello { cpus: 1, tags: many.clone(), ..Hello::default() };
        assert_eq!(tags.lent_by(&hello, None).tags, 0);
        assert!(tags.lacks_room_for(&many, node(1)));
        assert_eq!(tags.lent_by(&hello, Some(node(1))).tags.count_ones() as usize, NAMES_OF_ONE_MAX);
        assert_eq!(tags.lent(&names(&["new"]), node(1)), 0, "also when it comes again");
        assert_eq!(tags.lent_by(&hello, None).tags.count_ones() as usize, NAMES_OF_ONE_MAX, "what others know counts");
        assert_eq!(tags.lent(&names(&["new"]), node(2)), 1 << 16);
        tags.forget_unused(0b101);
        assert_eq!(tags.names(u64::MAX), ["t0", "t2"]);
        assert_eq!(tags.lent(&names(&["next", "t2"]), node(1)), 0b110, "the place is free, and its own are fewer");
    }

    #[test]
    fn few_needs_are_told_apart_and_each_fits_where_it_did() {
        for (asked, kind) in [(0, 0), (1, 256), (256, 256), (257, 512), (u32::MAX, u32::MAX)] {
            assert_eq!(in_whole_steps(asked), kind);
            for has in [0, 255, 256, 511, 512, 10_000].map(in_steps) {
                assert_eq!(asked <= has, in_whole_steps(asked) <= has, "{asked} of {has}");
            }
        }
    }

    #[test]
    fn a_hub_knows_no_more_tags_than_it_has_bits_for() {
        let mut tags = Tags::default();
        let many: Vec<String> = (0..100).map(|number| format!("t{number}")).collect();
        let of_three = many.chunks(NAMES_OF_ONE_MAX).zip(1..).map(|(some, number)| tags.lent(some, node(number)));
        assert_eq!(of_three.fold(0, |bits, some| bits | some), OWNERS_TAGS);
        assert_eq!((tags.lent(&names(&["late"]), node(9)), tags.needed(&names(&["t47"]))), (0, Ok(1 << 47)));
        tags.known(1 << 60, &names(&["beyond"]));
        assert_eq!(tags.names(u64::MAX).len(), NAMES_MAX);
    }

    #[test]
    fn machines_are_told_as_they_greet_and_by_their_hubs() {
        let mut tags = Tags::default();
        let tagged = names(&["gpu", "not a tag"]);
        let hello = Hello { cpus: 4, memory_bytes: 1_000 << 20, level: 9, tags: tagged, ..Hello::default() };
        let lent = tags.lent_by(&hello, Some(node(1)));
        assert_eq!(lent, Lent { memory_mib: 768, level: 4, tags: 1, ..Lent::by_machine(4) });
        let all = lent.and(Lent { level: 2, ..Lent::by_machine(8) });
        let lends = tags.lends(all);
        assert_eq!((lends.cpus, lends.largest, lends.memory_mib, lends.level), (12, 8, 768, 4));
        assert_eq!(Tags::default().lent_by(&Hello::default(), Some(node(1))), Lent::default());
        let above = Hello { behind: Some(lends), ..Hello::default() };
        assert_eq!(Tags::default().lent_by(&above, Some(node(1))), all);
    }

    #[test]
    fn no_machine_is_believed_to_have_any_number_of_processors() {
        let mut tags = Tags::default();
        let all = u32::MAX;
        let machine = tags.lent_by(&Hello { cpus: all, memory_bytes: u64::MAX, ..Hello::default() }, None);
        assert_eq!((machine.cpus, machine.largest, machine.hosts().len()), (4096, 4096, 1));
        let behind = tags.lent_behind(&Lends { cpus: all, largest: 1, ..Lends::default() }, None);
        assert_eq!((behind.cpus, behind.hosts().len()), (1 << 18, (1 << 18) / RUNNING_MAX));
        assert_eq!((behind.of_one().cpus, behind.of_one().hosts().len()), (4096, 4096 / RUNNING_MAX));
    }

    #[test]
    fn what_is_expected_becomes_a_speed() {
        let mut tags = Tags::default();
        let mut lent = |expected| tags.lent_behind(&Lends { cpus: 2, largest: 2, expected, ..Lends::default() }, None);
        let said = |mean, low, high| Some(Expected { mean, low, high, error: 10, covered: 900 });
        let speeds = [None, said(500, 500, 500), said(500, 100, 900), said(3, 0, 9), said(9_999, 8_888, 0)];
        assert_eq!(speeds.map(|expected| lent(expected).speed_permille()), [1_000, 500, 375, 1, 1_000]);
        let both = lent(said(500, 400, 600)).and(lent(None));
        assert_eq!(both.expected, Some(Expected { mean: 750, low: 700, high: 800, error: 5, covered: 950 }));
        assert_eq!(lent(said(500, 400, 600)).and(Lent::default()).expected, lent(said(500, 400, 600)).expected);
    }

    #[test]
    fn what_no_machine_has_is_named() {
        let lent = Lent { memory_mib: 512, level: 2, ..Lent::by_machine(4) };
        let tags = Tags::default();
        let lacks = |needs: Needs| lent.lacks(&tags.need(&needs).expect("no tags")).map(|lack| lack.to_string());
        assert_eq!(lacks(Needs { cpus: 4, memory_mib: 512, level: 2, tags: Vec::new() }), None);
        let said = lacks(Needs { cpus: 5, ..Needs::default() });
        assert_eq!(said.as_deref(), Some("5 CPUs asked, but the largest worker lends 4"));
        let said = lacks(Needs { memory_mib: 513, ..Needs::default() });
        assert_eq!(said.as_deref(), Some("513 MiB of memory asked, but no worker lends more than 512"));
        let said = lacks(Needs { level: 3, ..Needs::default() });
        assert!(said.is_some_and(|said| said.contains("x86-64-v3, but the newest")));
    }
}

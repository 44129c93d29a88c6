//! What one more process would have got.
//!
//! The kernel shares a processor out along the cgroups: at each level siblings have parts by their weights, whatever goes on below them. So
//! a loop at nice 19 leaves a newcomer nearly all if it is its sibling, and half if it sits in another cgroup. Here each thread's demand is
//! set against the newcomer at the level where their ways part. While such threads run the newcomer has its part of the processor, else all.
//!
//! Over several processors threads that may move are where the kernel's balancing has them: those that always want one so that what counts on each
//! is as even as it can be, and as often in each of several such ways; those that sleep behind them, where least is wanted.

use super::load::{Demand, Group, Load, WEIGHT};
use std::collections::{BTreeMap, BTreeSet};

/// Threads that want a processor for less than this at a time, in nanoseconds, have it before a newcomer: who slept goes first.
const BURST_NS: f64 = 1_000_000.0;
/// The part of the time from which on a thread counts as one that always wants a processor: of a guest what it got is what there was.
const WHOLE: f64 = 0.97;
/// Who counts less than this, in newcomers, is not what processors are balanced by.
const SETTLES: f64 = 0.05;
/// Ways to spread threads over processors that are looked at, at most; with more of them, threads are taken for as fine as water.
const WAYS_MAX: usize = 4_096;
/// Ways this close to the most even one are as good, to the kernel.
const ALIKE: f64 = 1.02;

/// Who would come.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Newcomer {
    /// Its cgroups, from the first below the root.
    pub path: Vec<Group>,
    /// The processors that it may use; none: all.
    pub cpus: Vec<u32>,
}

/// What a demand is to a newcomer.
struct Rival {
    /// The level where their ways part.
    level: usize,
    /// What it counts there, for the part of the time that it wants a processor.
    weight: f64,
    /// That part.
    wanted: f64,
    /// The part of the time that a processor is busy with it: with what always wants one, always.
    run: f64,
    /// What it counts to the kernel's balancing, which goes by all the machine's cgroups.
    load: f64,
    /// Where it is, if it must be there.
    cpu: Option<u32>,
}

/// A rival that may move: its level, what it counts there in newcomers, and how busy a processor is with it.
struct Mover {
    level: usize,
    pull: f64,
    run: f64,
}

/// All that a newcomer meets.
struct Scene<'a> {
    newcomer: &'a Newcomer,
    /// What goes before all else, by processor.
    first: BTreeMap<u32, f64>,
    rivals: Vec<Rival>,
    /// What the newcomer counts to the kernel's balancing.
    load: f64,
}

/// What the kernel's balancing goes by, which counts all the machine's cgroups. Names of cgroups are whole paths: each has its own.
struct Balance<'a>(BTreeMap<&'a str, Holds<'a>>);

/// A cgroup, with what is in it.
struct Holds<'a> {
    weight: f64,
    parent: Option<&'a str>,
    /// Processors that all threads below want.
    wanted: f64,
    /// What threads and cgroups that are directly in it weigh.
    weighs: f64,
}

/// What may use one processor only, by level; and what nobody gets of it.
#[derive(Clone, Debug, Default)]
struct Pile {
    pulls: BTreeMap<usize, f64>,
    run: f64,
    taken: f64,
}

/// The part of a processor that a newcomer of full priority, nice 0, would have got.
pub fn full_priority(load: &Load, newcomer: &Newcomer) -> f64 {
    let mut first: BTreeMap<u32, f64> = load.cpus.iter().map(|cpu| (cpu.number, cpu.taken)).collect();
    let balance = Balance::new(load, newcomer);
    let rivals = rivals(load, newcomer, &balance, &mut first);
    let scene = Scene { newcomer, first, rivals, load: balance.load_of(&newcomer.path, WEIGHT) };
    let ways = scene.ways();
    ways.iter().map(|(cpu, places)| scene.gets(*cpu, places)).sum::<f64>() / ways.len().max(1) as f64
}

impl Scene<'_> {
    fn allows(&self, cpu: u32) -> bool {
        self.newcomer.cpus.is_empty() || self.newcomer.cpus.contains(&cpu)
    }

    /// Where the newcomer and its rivals may be in the long run; none: anywhere.
    fn ways(&self) -> Vec<(Option<u32>, Vec<Option<u32>>)> {
        let fixed: Vec<Option<u32>> = self.rivals.iter().map(|rival| rival.cpu).collect();
        let settles = |rival: &Rival| rival.cpu.is_none() && rival.run >= 1.0 && rival.load >= SETTLES * self.load;
        let settling: Vec<usize> = (0..fixed.len()).filter(|at| settles(&self.rivals[*at])).collect();
        let cpus: Vec<u32> = self.first.keys().copied().collect();
        let digits = u32::try_from(settling.len() + 1).unwrap_or(u32::MAX);
        let Some(count) = cpus.len().checked_pow(digits).filter(|count| *count <= WAYS_MAX) else {
            return vec![(None, fixed)];
        };
        let pinned = |cpu: u32| self.rivals.iter().filter(move |rival| rival.cpu == Some(cpu));
        let pinned: Vec<f64> = cpus.iter().map(|cpu| pinned(*cpu).map(|rival| rival.load).sum()).collect();
        // A way is a number whose digits tell the processors, the newcomer's first; the kernel makes the sum of squares small.
        let digit = |way: usize, at: usize| way / cpus.len().pow(at as u32) % cpus.len();
        let unevenness = |way: usize| -> f64 {
            let mut counts = pinned.clone();
            counts[digit(way, 0)] += self.load;
            settling.iter().enumerate().for_each(|(at, rival)| counts[digit(way, at + 1)] += self.rivals[*rival].load);
            counts.iter().map(|count| count * count).sum()
        };
        let allowed = (0..count).filter(|way| self.allows(cpus[digit(*way, 0)]));
        let ways: Vec<(f64, usize)> = allowed.map(|way| (unevenness(way), way)).collect();
        let least = ways.iter().map(|(uneven, _)| *uneven).fold(f64::INFINITY, f64::min);
        let best = ways.into_iter().filter(|(uneven, _)| *uneven <= least * ALIKE);
        let places = |way: usize| {
            let mut places = fixed.clone();
            settling.iter().enumerate().for_each(|(at, rival)| places[*rival] = Some(cpus[digit(way, at + 1)]));
            (Some(cpus[digit(way, 0)]), places)
        };
        best.map(|(_, way)| places(way)).collect()
    }

    /// What the newcomer gets if it is there, or where least is wanted, and its rivals are at their places, or move.
    fn gets(&self, own: Option<u32>, places: &[Option<u32>]) -> f64 {
        let mut piles: BTreeMap<u32, Pile> =
            self.first.iter().map(|(cpu, taken)| (*cpu, Pile { taken: *taken, ..Pile::default() })).collect();
        let own_weights: Vec<f64> =
            (0..=self.newcomer.path.len()).map(|level| self.own_weight(level, own, places)).collect();
        let mut moving = Vec::new();
        for (rival, place) in self.rivals.iter().zip(places) {
            let Rival { level, run, .. } = *rival;
            let pull = rival.weight / own_weights[level];
            match place.and_then(|cpu| piles.get_mut(&cpu)) {
                Some(pile) => {
                    *pile.pulls.entry(level).or_default() += pull;
                    pile.run += run;
                }
                None => moving.push(Mover { level, pull, run }),
            }
        }
        let best = piles.iter().filter(|(number, _)| own.map_or_else(|| self.allows(**number), |own| own == **number));
        let best = best.min_by(|(_, one), (_, other)| one.wanted().total_cmp(&other.wanted()));
        best.map_or(0.0, |(number, _)| beside(*number, &piles, &moving))
    }

    /// What counts for the newcomer at a level: itself, or the cgroup that holds it, as far as that is where the newcomer is.
    fn own_weight(&self, level: usize, own: Option<u32>, places: &[Option<u32>]) -> f64 {
        let Some(group) = self.newcomer.path.get(level) else { return WEIGHT };
        let (mut here, mut all) = (1.0, 1.0);
        for (rival, place) in self.rivals.iter().zip(places).filter(|(rival, _)| rival.level > level) {
            all += rival.wanted;
            here += rival.wanted
                * match (*place, own) {
                    (Some(place), Some(own)) => f64::from(place == own),
                    (Some(place), None) if !self.allows(place) => 0.0,
                    _ => 1.0 / self.first.len() as f64,
                };
        }
        group.weight * here / all
    }
}

/// What it gets on this processor beside those that may move. Who always wants one comes as often as to the others. Who sleeps wakes where nobody
/// runs, or where it ran: as the newcomer never sleeps, only what is too much for the other processors comes to this one.
fn beside(number: u32, piles: &BTreeMap<u32, Pile>, moving: &[Mover]) -> f64 {
    let (loops, sleepers): (Vec<&Mover>, Vec<&Mover>) = moving.iter().partition(|mover| mover.run >= 1.0);
    let [stay, sleep] = [&loops, &sleepers].map(|movers| movers.iter().map(|mover| mover.pull).sum::<f64>());
    let first = spread(number, piles, stay);
    let then = (spread(number, piles, stay + sleep) - first).max(0.0);
    let [stay, sleep] = [(first, stay), (then, sleep)].map(|(here, all)| if all > 0.0 { here / all } else { 0.0 });
    let mut pile = piles[&number].clone();
    for mover in sleepers {
        *pile.pulls.entry(mover.level).or_default() += mover.pull * sleep;
        pile.run += mover.run * sleep;
    }
    let mut pulls: BTreeMap<usize, f64> = BTreeMap::new();
    for mover in loops {
        *pulls.entry(mover.level).or_default() += mover.pull;
    }
    pile.share(&pulls, stay)
}

/// How much comes to this processor of what may move: it goes where least is wanted, and the newcomer, who stays here, wants a whole one.
fn spread(number: u32, piles: &BTreeMap<u32, Pile>, pull: f64) -> f64 {
    let here = |cpu: u32| f64::from(cpu == number);
    let mut wanted: Vec<f64> = piles.iter().map(|(cpu, pile)| pile.wanted() + here(*cpu)).collect();
    wanted.sort_unstable_by(f64::total_cmp);
    // The level up to which the lowest ones are filled.
    let mut below = 0.0;
    let mut level = f64::INFINITY;
    for (count, least) in wanted.iter().enumerate() {
        if count > 0 && level <= *least {
            break;
        }
        below += least;
        level = (pull + below) / (count + 1) as f64;
    }
    (level - piles[&number].wanted() - 1.0).max(0.0)
}

/// The chance that so many of all happen at the same time, from none to `most`, which means as many or more.
fn chances(each: impl Iterator<Item = f64>, most: usize) -> Vec<f64> {
    let mut chances = vec![0.0; most + 1];
    chances[0] = 1.0;
    for part in each {
        for count in (0..=most).rev() {
            let more = if count == 0 { 0.0 } else { chances[count - 1] * part };
            let stays = if count == most { chances[count] } else { chances[count] * (1.0 - part) };
            chances[count] = stays + more;
        }
    }
    chances
}

impl Pile {
    fn wanted(&self) -> f64 {
        self.pulls.values().sum::<f64>() + self.taken
    }

    /// What the newcomer gets here beside so many that came.
    fn share(&self, came: &BTreeMap<usize, f64>, part: f64) -> f64 {
        let left = (1.0 - self.taken).max(0.0);
        let busy = self.run.min(left);
        let among = |own: f64| -> f64 {
            let levels: BTreeSet<usize> = self.pulls.keys().chain(came.keys()).copied().collect();
            let of = |all: &BTreeMap<usize, f64>, level: &usize| all.get(level).copied().unwrap_or_default();
            let each = levels.iter().map(|level| 1.0 + of(&self.pulls, level) * own + of(came, level) * part);
            each.map(|all| 1.0 / all).product()
        };
        let while_busy = if busy > 0.0 { busy * among(1.0 / busy) } else { 0.0 };
        (left - busy) * among(0.0) + while_busy
    }
}

fn rivals(load: &Load, newcomer: &Newcomer, balance: &Balance<'_>, first: &mut BTreeMap<u32, f64>) -> Vec<Rival> {
    let mut rivals = Vec::new();
    // Cgroups that are siblings of the newcomer or of one that holds it, and who is in them.
    let mut groups: BTreeMap<(usize, &str), Vec<&Demand>> = BTreeMap::new();
    let rival = |demand: &Demand, level: usize, weight: f64| Rival {
        level,
        weight,
        wanted: demand.wanted,
        run: if demand.wanted >= WHOLE { 1.0 } else { demand.run },
        load: balance.load_of(&demand.path, demand.weight * demand.wanted),
        cpu: demand.is_pinned.then_some(demand.cpu),
    };
    for demand in &load.demands {
        let level = common(&demand.path, &newcomer.path);
        let at_once = demand.burst_ns < BURST_NS && demand.wanted < 0.5;
        if demand.is_first || at_once && !demand.yields() {
            *first.entry(demand.cpu).or_default() += demand.run;
            continue;
        }
        match demand.path.get(level) {
            Some(group) => groups.entry((level, &group.name)).or_default().push(demand),
            None => rivals.push(rival(demand, level, demand.weight * demand.wanted)),
        }
    }
    for ((level, _), members) in groups {
        let weight = members[0].path[level].weight;
        let wanted: f64 = members.iter().map(|member| member.wanted).sum();
        let weighed: f64 = members.iter().map(|member| member.weight * member.wanted).sum();
        let share = |member: &Demand| weight * wanted.min(1.0) * member.weight * member.wanted / weighed;
        rivals.extend(members.iter().filter(|_| weighed > 0.0).map(|member| rival(member, level, share(member))));
    }
    let of_unknown = |run| Rival { level: 0, weight: run * WEIGHT, wanted: run, run, load: run * WEIGHT, cpu: None };
    rivals.extend(unknown(load).map(of_unknown));
    rivals
}

impl<'a> Balance<'a> {
    fn new(load: &'a Load, newcomer: &'a Newcomer) -> Self {
        let mut groups: BTreeMap<&str, Holds> = BTreeMap::new();
        let known = load.demands.iter().map(|demand| (&demand.path[..], demand.weight * demand.wanted, demand.wanted));
        for (path, weighs, wanted) in known.chain([(&newcomer.path[..], WEIGHT, 1.0)]) {
            for (depth, group) in path.iter().enumerate() {
                let parent = depth.checked_sub(1).map(|above| &path[above].name[..]);
                let new = Holds { weight: group.weight, parent, wanted: 0.0, weighs: 0.0 };
                groups.entry(&group.name).or_insert(new).wanted += wanted;
            }
            if let Some(holds) = path.last().and_then(|group| groups.get_mut(&group.name[..])) {
                holds.weighs += weighs;
            }
        }
        let inner: Vec<(&str, f64)> =
            groups.values().filter_map(|group| Some((group.parent?, group.counts()))).collect();
        for (parent, counts) in inner {
            groups.entry(parent).and_modify(|group| group.weighs += counts);
        }
        Self(groups)
    }

    /// What a thread of this weight in this cgroup counts: at each level as much of what the cgroup counts as it is of what is in it.
    fn load_of(&self, path: &[Group], weighs: f64) -> f64 {
        let groups = path.iter().filter_map(|group| self.0.get(&group.name[..]));
        groups.fold(weighs, |load, group| if group.weighs > 0.0 { load * group.counts() / group.weighs } else { 0.0 })
    }
}

impl Holds<'_> {
    /// What it counts among its siblings: all its weight while a thread of its wants a processor.
    fn counts(&self) -> f64 {
        self.weight * self.wanted.min(1.0)
    }
}

/// What is used by nobody who is known is used by one at a time, and by another one beyond that.
fn unknown(load: &Load) -> impl Iterator<Item = f64> {
    let all = load.unknown;
    (0..all.ceil() as usize).map(move |at| (all - at as f64).clamp(0.0, 1.0))
}

/// Levels that two ways share.
fn common(one: &[Group], other: &[Group]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one.name == other.name).count()
}

/// The part of a processor that a guest of idle class would have got: what nobody else uses but guests and others of idle class. If guests
/// wanted processors all the time it is what they got.
pub fn guest(load: &Load, cpus: &[u32]) -> f64 {
    if let Some(truth) = guests_got(load, cpus) {
        return truth;
    }
    let allowed = |number: u32| cpus.is_empty() || cpus.contains(&number);
    let places: Vec<_> = load.cpus.iter().filter(|cpu| allowed(cpu.number)).collect();
    let yielding = |number: u32| -> f64 {
        let here = load.demands.iter().filter(|demand| demand.yields() && demand.cpu == number);
        here.map(|demand| demand.run).sum()
    };
    let free = |number: u32, idle: f64, taken: f64| (idle + yielding(number)).min(1.0 - taken);
    let each: Vec<f64> = places.iter().map(|cpu| free(cpu.number, cpu.idle, cpu.taken)).collect();
    let best = each.iter().copied().fold(0.0, f64::max);
    if places.len() < 2 {
        return best;
    }
    // It cannot have more than is free of all of them.
    best.max(some_free(load, places.len()).min(each.iter().sum())).min(1.0)
}

/// How often at least one of so many processors is free, if those who use them do so by chance.
fn some_free(load: &Load, cpus: usize) -> f64 {
    let demands = load.demands.iter().filter(|demand| !demand.yields()).map(|demand| demand.run);
    let taken: f64 = load.cpus.iter().map(|cpu| cpu.taken).sum::<f64>() / load.cpus.len() as f64;
    let chances = chances(demands.chain(unknown(load)), cpus);
    (1.0 - chances[cpus]) * (1.0 - taken)
}

/// What each guest got, if there were guests all the time, and not more of them than processors.
fn guests_got(load: &Load, cpus: &[u32]) -> Option<f64> {
    let guests = load.demands.iter().filter(|demand| demand.is_guest && demand.wanted >= WHOLE);
    let got: Vec<f64> =
        guests.filter(|guest| cpus.is_empty() || cpus.contains(&guest.cpu)).map(|guest| guest.run).collect();
    let places = if cpus.is_empty() { load.cpus.len() } else { cpus.len() };
    (!got.is_empty()).then(|| got.iter().sum::<f64>() / got.len().min(places) as f64)
}

#[cfg(test)]
mod tests {
    use super::super::load::{Used, WEIGHT_IDLE, weight_of_nice};
    use super::*;

    fn group(name: &str, weight: f64) -> Group {
        Group { name: name.to_owned(), weight }
    }

    /// A loop on the first processor that is there with others: it gets this part, and always wants one.
    fn busy(run: f64, weight: f64, path: &[Group]) -> Demand {
        Demand {
            run,
            wanted: 1.0,
            burst_ns: 1e9,
            weight,
            is_first: false,
            is_idle: weight <= WEIGHT_IDLE,
            is_guest: false,
            path: path.to_vec(),
            cpu: 0,
            is_pinned: true,
        }
    }

    fn load(idle: &[f64], demands: Vec<Demand>) -> Load {
        let used = |(at, idle): (usize, &f64)| Used {
            number: at as u32,
            idle: *idle,
            taken: 0.0,
            user: 1.0 - idle,
            system: 0.0,
        };
        Load { seconds: 10.0, cpus: idle.iter().enumerate().map(used).collect(), demands, ..Load::default() }
    }

    fn on_first() -> Newcomer {
        Newcomer { path: Vec::new(), cpus: vec![0] }
    }

    #[test]
    fn kongo_and_conundrum() {
        let loops = |count: usize, weight: f64, path: &[Group]| {
            load(&[0.0], vec![busy(1.0 / count as f64, weight, path); count])
        };
        let near = |got: f64, wanted: f64| assert!((got - wanted).abs() < 0.01, "{got}, not {wanted}");
        near(full_priority(&loops(1, WEIGHT, &[]), &on_first()), 0.5);
        near(full_priority(&loops(3, WEIGHT, &[]), &on_first()), 0.25);
        // Beside a loop at nice 19 a newcomer gets nearly all, but not beside a cgroup that holds one.
        let nice = weight_of_nice(19);
        near(full_priority(&loops(1, nice, &[]), &on_first()), 0.985);
        let other = [group("/other", WEIGHT)];
        near(full_priority(&loops(1, nice, &other), &on_first()), 0.5);
        near(full_priority(&loops(4, nice, &other), &on_first()), 0.5);
        // Guests have a cgroup of idle class.
        let guests = [group("/guests", WEIGHT_IDLE)];
        near(full_priority(&loops(4, WEIGHT_IDLE, &guests), &on_first()), 0.997);
        near(guest(&loops(4, WEIGHT_IDLE, &guests), &[0]), 1.0);
        near(guest(&loops(1, nice, &other), &[0]), 0.0);
        // In a cgroup of its own the newcomer is one among cgroups.
        let newcomer = Newcomer { path: vec![group("/own", 2.0 * WEIGHT)], cpus: vec![0] };
        near(full_priority(&loops(2, WEIGHT, &other), &newcomer), 2.0 / 3.0);
    }

    #[test]
    fn who_may_move_makes_room() {
        let mut moving = busy(1.0, WEIGHT, &[]);
        moving.is_pinned = false;
        let anywhere = Newcomer::default();
        let one = load(&[0.0, 1.0], vec![moving.clone()]);
        assert!(full_priority(&one, &anywhere) > 0.99);
        assert!(full_priority(&one, &on_first()) > 0.9, "it goes elsewhere");
        let three = load(&[0.0, 0.0], vec![Demand { run: 0.66, ..moving.clone() }; 3]);
        assert!((full_priority(&three, &anywhere) - 0.5).abs() < 0.01, "{}", full_priority(&three, &anywhere));
        let two = load(&[0.0, 0.0], vec![moving.clone(); 2]);
        assert!((full_priority(&two, &anywhere) - 2.0 / 3.0).abs() < 0.01, "{}", full_priority(&two, &anywhere));
        // Who sleeps now and then finds room beside a newcomer who never does, as long as there is some.
        let sleeps = |part: f64| vec![Demand { run: part, wanted: part, ..moving.clone() }; 2];
        assert!(full_priority(&load(&[0.6, 0.6], sleeps(0.4)), &anywhere) > 0.99);
        let more = full_priority(&load(&[0.3, 0.3], sleeps(0.7)), &anywhere);
        assert!(more > 0.8 && more < 0.95, "{more}");
        // Two of its cgroup, two of another one that counts as much: as even as can be is one cgroup on each processor.
        let of = |group: &Group| Demand { path: vec![group.clone()], run: 0.5, ..moving.clone() };
        let [own, other] = ["/own", "/other"].map(|name| group(name, WEIGHT));
        let four = load(&[0.0, 0.0], vec![of(&own), of(&own), of(&other), of(&other)]);
        let newcomer = Newcomer { path: vec![own], cpus: Vec::new() };
        let got = full_priority(&four, &newcomer);
        assert!((got - 1.0 / 3.0).abs() < 0.01, "{got}");
        // With too many threads to try all ways it is as with water.
        let many = load(&[0.0, 0.0], vec![Demand { run: 0.1, ..moving.clone() }; 19]);
        assert!((full_priority(&many, &anywhere) - 0.1).abs() < 0.001);
        // A guest has a processor as long as one of them is free.
        assert_eq!(guest(&one, &[]), 1.0);
        let two = load(&[0.5, 0.5], vec![Demand { run: 0.5, wanted: 0.5, ..moving }; 2]);
        assert!((guest(&two, &[]) - 0.75).abs() < 1e-9);
        assert_eq!(guest(&three, &[]), 0.0, "nothing is free");
    }

    #[test]
    fn what_a_guest_got_is_what_there_was() {
        let guests = [group("/guests", WEIGHT_IDLE)];
        let got = Demand { is_guest: true, ..busy(0.37, WEIGHT_IDLE, &guests) };
        let owner = Demand { wanted: 0.7, run: 0.6, ..busy(0.6, WEIGHT, &[]) };
        assert_eq!(guest(&load(&[0.03], vec![owner, got]), &[0]), 0.37);
    }

    #[test]
    fn while_nothing_runs_all_is_there() {
        let half = Demand { run: 0.5, wanted: 0.5, ..busy(0.5, WEIGHT, &[]) };
        assert!((full_priority(&load(&[0.5], vec![half.clone()]), &on_first()) - 0.75).abs() < 1e-9);
        // What wants little at a time has it at once.
        let short = Demand { burst_ns: 1e5, wanted: 0.3, run: 0.3, ..half };
        assert!((full_priority(&load(&[0.7], vec![short]), &on_first()) - 0.7).abs() < 1e-9);
        // What ended since is known by what is missing.
        let mut ended = load(&[0.4], Vec::new());
        ended.unknown = 0.6;
        assert!((full_priority(&ended, &on_first()) - 0.7).abs() < 1e-9);
    }
}

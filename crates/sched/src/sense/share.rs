//! What one more process would have got.
//!
//! The kernel shares a processor out along the cgroups: at each level siblings have parts by their weights, whatever goes on below them. So
//! a loop at nice 19 leaves a newcomer nearly all if it is its sibling, and half if it sits in another cgroup. Here each thread's demand is
//! set against the newcomer at the level where their ways part. While such threads run the newcomer has its part of the processor, else all.
//!
//! Over several processors threads that may move are spread as the kernel's balancing does in the long run: where least is wanted, and those that
//! sleep behind those that never do.

use super::load::{Demand, Group, Load, WEIGHT};
use std::collections::{BTreeMap, BTreeSet};

/// Threads that want a processor for less than this at a time, in nanoseconds, have it before a newcomer: who slept goes first.
const BURST_NS: f64 = 1_000_000.0;
/// The part of the time from which on a thread counts as one that always wants a processor: of a guest what it got is what there was.
const WHOLE: f64 = 0.97;

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
    /// What it counts there, in newcomers, for the part of the time that it wants a processor.
    pull: f64,
    /// The part of the time that a processor is busy with it: with what always wants one, always.
    run: f64,
    /// Where it is, if it must be there.
    cpu: Option<u32>,
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
    let rivals = rivals(load, newcomer, &mut first);
    let mut piles: BTreeMap<u32, Pile> =
        first.into_iter().map(|(cpu, taken)| (cpu, Pile { taken, ..Pile::default() })).collect();
    let mut moving = Vec::new();
    for rival in &rivals {
        match rival.cpu.and_then(|cpu| piles.get_mut(&cpu)) {
            Some(pile) => {
                *pile.pulls.entry(rival.level).or_default() += rival.pull;
                pile.run += rival.run;
            }
            None => moving.push(rival),
        }
    }
    let allowed = |number: &u32| newcomer.cpus.is_empty() || newcomer.cpus.contains(number);
    let places = piles.iter().filter(|(number, _)| allowed(number));
    let best = places.min_by(|(_, one), (_, other)| one.wanted().total_cmp(&other.wanted()));
    best.map_or(0.0, |(number, _)| beside(*number, &piles, &moving))
}

/// What it gets on this processor beside those that may move. Who always wants one comes as often as to the others. Who sleeps wakes where nobody
/// runs, or where it ran: as the newcomer never sleeps, only what is too much for the other processors comes to this one.
fn beside(number: u32, piles: &BTreeMap<u32, Pile>, moving: &[&Rival]) -> f64 {
    let (loops, sleepers): (Vec<&Rival>, Vec<&Rival>) = moving.iter().partition(|rival| rival.run >= 1.0);
    let [stay, sleep] = [&loops, &sleepers].map(|rivals| rivals.iter().map(|rival| rival.pull).sum::<f64>());
    let first = spread(number, piles, stay);
    let then = (spread(number, piles, stay + sleep) - first).max(0.0);
    let [stay, sleep] = [(first, stay), (then, sleep)].map(|(here, all)| if all > 0.0 { here / all } else { 0.0 });
    let mut pile = piles[&number].clone();
    for rival in sleepers {
        *pile.pulls.entry(rival.level).or_default() += rival.pull * sleep;
        pile.run += rival.run * sleep;
    }
    let mut pulls: BTreeMap<usize, f64> = BTreeMap::new();
    for rival in loops {
        *pulls.entry(rival.level).or_default() += rival.pull;
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

fn rivals(load: &Load, newcomer: &Newcomer, first: &mut BTreeMap<u32, f64>) -> Vec<Rival> {
    let mut rivals = Vec::new();
    // Cgroups that are siblings of the newcomer or of one that holds it, and who is in them.
    let mut groups: BTreeMap<(usize, &str), Vec<&Demand>> = BTreeMap::new();
    for demand in &load.demands {
        let level = common(&demand.path, &newcomer.path);
        let at_once = demand.burst_ns < BURST_NS && demand.wanted < 0.5;
        if demand.is_first || at_once && !demand.yields() {
            *first.entry(demand.cpu).or_default() += demand.run;
            continue;
        }
        match demand.path.get(level) {
            Some(group) => groups.entry((level, &group.name)).or_default().push(demand),
            None => rivals.push(Rival {
                level,
                pull: demand.weight * demand.wanted / own_weight(load, newcomer, level),
                run: runs(demand),
                cpu: demand.is_pinned.then_some(demand.cpu),
            }),
        }
    }
    for ((level, _), members) in groups {
        let weight = members[0].path[level].weight / own_weight(load, newcomer, level);
        let wanted: f64 = members.iter().map(|member| member.wanted).sum();
        let weighed: f64 = members.iter().map(|member| member.weight * member.wanted).sum();
        rivals.extend(members.iter().filter(|_| weighed > 0.0).map(|member| Rival {
            level,
            pull: weight * wanted.min(1.0) * member.weight * member.wanted / weighed,
            run: runs(member),
            cpu: member.is_pinned.then_some(member.cpu),
        }));
    }
    rivals.extend(unknown(load).map(|run| Rival { level: 0, pull: run, run, cpu: None }));
    rivals
}

/// What is used by nobody who is known is used by one at a time, and by another one beyond that.
fn unknown(load: &Load) -> impl Iterator<Item = f64> {
    let all = load.unknown;
    (0..all.ceil() as usize).map(move |at| (all - at as f64).clamp(0.0, 1.0))
}

fn runs(demand: &Demand) -> f64 {
    if demand.wanted >= WHOLE { 1.0 } else { demand.run }
}

/// Levels that two ways share.
fn common(one: &[Group], other: &[Group]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one.name == other.name).count()
}

/// What counts for the newcomer at a level: itself, or the cgroup that holds it, as far as that is where the newcomer is.
fn own_weight(load: &Load, newcomer: &Newcomer, level: usize) -> f64 {
    let Some(group) = newcomer.path.get(level) else { return WEIGHT };
    let within = load.demands.iter().filter(|demand| common(&demand.path, &newcomer.path) > level);
    let (mut here, mut all) = (1.0, 1.0);
    for demand in within {
        all += demand.wanted;
        here += if newcomer.cpus.is_empty() || newcomer.cpus.contains(&demand.cpu) { demand.wanted } else { 0.0 };
    }
    let spread = if newcomer.cpus.is_empty() { load.cpus.len().max(1) as f64 } else { newcomer.cpus.len() as f64 };
    // What is within is spread over the processors; the newcomer is on one.
    group.weight * ((1.0 + (here - 1.0) / spread) / all).min(1.0)
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

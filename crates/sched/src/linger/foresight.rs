//! Foresighted lingering: a guest moves when it will end sooner by that, the way there counted, as far as the past of both hosts tells.
//!
//! It differs from linger longer in what it looks at. A burst of an owner's work is no reason to go if his bursts are short, and a host
//! that looks bad for hours is, even if the owner has only come; the best host to go to is the one whose owner will stay away longest, and one
//! whose owner is there may do. It is asked for all guests at once, since guests want the same hosts.

use crate::finish::Share;
use crate::linger::outlook::Outlook;

/// A host, by what may be expected of it.
pub trait Place {
    /// How long it will be until a guest has got so much processor time there, in seconds.
    fn takes_s(&self, work_s: f64) -> f64;
}

impl Place for Outlook {
    fn takes_s(&self, work_s: f64) -> f64 {
        self.takes_s(work_s)
    }
}

/// One of which only that is known.
impl Place for Share {
    fn takes_s(&self, work_s: f64) -> f64 {
        work_s / self.worth()
    }
}

/// What it takes to go to another host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// With all that was done, in seconds; none: that cannot be, and who goes begins again.
    pub move_s: Option<f64>,
    /// To begin again, besides what is done again, in seconds.
    pub launch_s: f64,
}

impl Prices {
    /// What a guest that has had so much processor time loses at least, in seconds.
    pub fn of(&self, spent_s: f64) -> f64 {
        self.move_s.unwrap_or(self.launch_s + spent_s)
    }
}

/// For each time that it has moved a guest has lived for so many times as long as moving takes before it moves again. So it is on its way
/// for no more than a fifth of its life and one time more, whatever hosts do: the bound against going to and fro.
pub const REST: f64 = 4.0;
/// What a move must save to be worth it, as a part of the time that moving takes: forecasts err, and a move is felt by two hosts.
const MARGIN: f64 = 0.25;

/// A guest on a host.
#[derive(Clone, Copy, Debug)]
pub struct Guest<'a> {
    /// Where it is.
    pub host: &'a Outlook,
    /// For how long it has been there, in seconds.
    pub stayed_s: f64,
    /// For how long it has been on hosts at all, in seconds.
    pub lived_s: f64,
    /// How often it has moved, or begun again.
    pub moves: u32,
    /// Processor time that it has had, in seconds.
    pub spent_s: f64,
    /// Processor time that it needs further, in seconds: known, or as [`crate::linger::needs`] has it.
    pub left_s: f64,
}

impl Guest<'_> {
    fn may_go(&self, prices: Prices) -> bool {
        let move_s = prices.of(self.spent_s);
        self.stayed_s >= move_s && self.lived_s >= f64::from(self.moves) * REST * move_s
    }
}

/// How a guest gets to another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// With all that it has done.
    Move,
    /// By beginning again there.
    Again,
}

/// That a guest goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Going {
    /// Which guest, by its place in the list.
    pub guest: usize,
    /// To which of the free hosts.
    pub to: usize,
    /// How.
    pub way: Way,
    /// How much sooner it will end, in seconds.
    pub saves_s: f64,
}

/// Tasks that have no host yet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waiting {
    /// How many.
    pub tasks: usize,
    /// Processor time that one of them needs, in seconds.
    pub needs_s: f64,
}

impl Waiting {
    /// By how much a move that takes one second puts off all of them together, where so many hosts are.
    fn put_off(&self, hosts: usize) -> f64 {
        self.tasks as f64 / hosts.max(1) as f64
    }

    /// What one of them loses that gets a guest's old host instead of the one to which that goes, in seconds. If the guest, should it stay, will end
    /// before a task waits on average, there is one for its host still. Else nobody will want that, and those would be the last who stayed there.
    fn loses_s(&self, stays_s: f64, from: &impl Place, to: &impl Place, hosts: usize) -> f64 {
        let waits_s = self.needs_s * self.put_off(hosts) / 2.0;
        if stays_s > waits_s { 0.0 } else { (from.takes_s(self.needs_s) - to.takes_s(self.needs_s)).max(0.0) }
    }
}

/// What a guest would save by going to a host that is free, in seconds, and how it would go.
fn weigh(guest: &Guest<'_>, stays_s: f64, there: &impl Place, prices: Prices) -> (f64, Way) {
    let moved_s = prices.move_s.map_or(f64::INFINITY, |move_s| move_s + there.takes_s(guest.left_s));
    // Nothing can be saved by doing again what takes longer than to move.
    let is_little = prices.move_s.is_none_or(|move_s| guest.spent_s < move_s);
    let again_s = match is_little {
        true => prices.launch_s + there.takes_s(guest.left_s + guest.spent_s),
        false => f64::INFINITY,
    };
    let (goes_s, way) = if again_s < moved_s { (again_s, Way::Again) } else { (moved_s, Way::Move) };
    (stays_s - goes_s, way)
}

/// The order in which hosts are given away: the best for so much work first.
pub fn best_first(hosts: &[&impl Place], work_s: f64) -> Vec<usize> {
    let mut by_time: Vec<(f64, usize)> = hosts.iter().map(|host| host.takes_s(work_s)).zip(0..).collect();
    by_time.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    by_time.into_iter().map(|(_, host)| host).collect()
}

/// Which guests go, and to which of the free hosts: who saves most has the first choice. Each guest is weighed against the best host, and
/// against the next one when that is taken.
///
/// A host to which a guest is on its way does nothing meanwhile, which puts each of those who wait off by that time over the number of hosts; and one
/// of them gets the worse host. A move must save more than that costs all of them.
pub fn plan(guests: &[Guest<'_>], free: &[&impl Place], prices: Prices, waiting: Waiting) -> Vec<Going> {
    let hosts_count = guests.len() + free.len();
    let bar = MARGIN + waiting.put_off(hosts_count);
    let may_go = guests.iter().enumerate().filter(|(_, guest)| guest.may_go(prices));
    let stay_s: Vec<(usize, f64)> = may_go.map(|(at, guest)| (at, guest.host.takes_s(guest.left_s))).collect();
    if stay_s.is_empty() {
        return Vec::new();
    }
    let typical_s = stay_s.iter().map(|(at, _)| guests[*at].left_s).sum::<f64>() / stay_s.len() as f64;
    let mut hosts = best_first(free, typical_s).into_iter();
    let Some(mut to) = hosts.next() else { return Vec::new() };
    let weighed = |(at, stays_s): (usize, f64), to: usize| {
        let guest = &guests[at];
        let (saves_s, way) = weigh(guest, stays_s, free[to], prices);
        let costs_s = bar * prices.of(guest.spent_s) + waiting.loses_s(stays_s, guest.host, free[to], hosts_count);
        (saves_s > costs_s).then_some(Going { guest: at, to, way, saves_s })
    };
    let wishes = stay_s.iter().filter_map(|stays| Some((weighed(*stays, to)?.saves_s, *stays)));
    let mut wishes: Vec<(f64, (usize, f64))> = wishes.collect();
    wishes.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.0.cmp(&other.1.0)));
    let mut going = Vec::new();
    for (_, stays) in wishes {
        let Some(goes) = weighed(stays, to) else { continue };
        going.push(goes);
        let Some(next) = hosts.next() else { break };
        to = next;
    }
    going
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOVE_S: Prices = Prices { move_s: Some(20.0), launch_s: 0.0 };
    const NOBODY: [&Outlook; 0] = [];

    fn host(owner_is_there: bool, used: f64) -> Outlook {
        let mut outlook = Outlook::new(owner_is_there, 10_000.0);
        (0..600).for_each(|_| outlook.observe(owner_is_there, used, 10.0));
        outlook
    }

    fn guest(host: &Outlook) -> Guest<'_> {
        Guest { host, stayed_s: 1_000.0, lived_s: 1_000.0, moves: 1, spent_s: 300.0, left_s: 600.0 }
    }

    #[test]
    fn who_saves_most_goes_to_the_best_host() {
        let (busy, busier, idle, fair) = (host(true, 0.5), host(true, 0.9), host(false, 0.0), host(true, 0.2));
        let guests = [guest(&busy), guest(&busier), guest(&idle)];
        let going = plan(&guests, &[&fair, &idle], MOVE_S, Waiting::default());
        let who: Vec<(usize, usize)> = going.iter().map(|going| (going.guest, going.to)).collect();
        assert_eq!(who, [(1, 1), (0, 0)], "and who is well off stays: {going:?}");
        assert_eq!(plan(&guests, &NOBODY, MOVE_S, Waiting::default()), []);
        assert_eq!(plan(&[], &[&idle], MOVE_S, Waiting::default()), []);
    }

    #[test]
    fn a_move_is_weighed_against_those_who_wait() {
        let (fair, idle) = (host(true, 0.15), host(false, 0.0));
        let guests = [guest(&fair)];
        let waiting = |tasks, needs_s| Waiting { tasks, needs_s };
        assert_eq!(plan(&guests, &[&idle], MOVE_S, waiting(0, 0.0)).len(), 1);
        assert_eq!(plan(&guests, &[&idle], MOVE_S, waiting(100, 0.0)), []);
    }

    #[test]
    fn who_waits_for_long_has_the_better_host_if_it_needs_more() {
        let (busy, idle) = (host(true, 0.5), host(false, 0.0));
        let guests = [guest(&busy)];
        let moves = |tasks, needs_s| plan(&guests, &[&idle], MOVE_S, Waiting { tasks, needs_s }).len();
        // It would be there for 1200 s; one of 4 for 2 hosts waits for as long as it needs.
        assert_eq!((moves(4, 100.0), moves(4, 1_000.0), moves(4, 2_000.0)), (1, 1, 0));
        assert_eq!(moves(1, 2_000.0), 1, "nobody will want its host");
    }

    #[test]
    fn no_guest_goes_to_and_fro() {
        let (busy, idle) = (host(true, 0.9), host(false, 0.0));
        let going = |stayed_s, lived_s, moves| {
            let guest = Guest { stayed_s, lived_s, moves, ..guest(&busy) };
            plan(&[guest], &[&idle], MOVE_S, Waiting::default()).len()
        };
        assert_eq!((going(19.0, 1_000.0, 0), going(20.0, 20.0, 0)), (0, 1), "it stays for as long as moving takes");
        assert_eq!(
            (going(100.0, 799.0, 10), going(100.0, 800.0, 10)),
            (0, 1),
            "and on its way for a fifth of its life"
        );
    }

    #[test]
    fn who_has_done_little_begins_again() {
        let (busy, idle) = (host(true, 0.9), host(false, 0.0));
        let way = |spent_s| plan(&[Guest { spent_s, ..guest(&busy) }], &[&idle], MOVE_S, Waiting::default())[0].way;
        assert_eq!((way(5.0), way(100.0)), (Way::Again, Way::Move));
    }

    #[test]
    fn where_nobody_can_move_who_has_done_little_goes() {
        let (busy, there) = (host(true, 0.9), Share::of_permille(950, 950, 950));
        let again = Prices { move_s: None, launch_s: 1.0 };
        let going = |spent_s| {
            plan(
                &[Guest { spent_s, stayed_s: 1e5, lived_s: 1e5, ..guest(&busy) }],
                &[&there],
                again,
                Waiting::default(),
            )
        };
        assert!(going(100.0).first().is_some_and(|going| going.way == Way::Again));
        assert_eq!(going(20_000.0), [], "it would be done with the rest sooner");
    }
}

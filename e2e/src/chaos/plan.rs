//! What happens in one round: which commands are launched, what is done to the parts meanwhile, and when. All of it comes from a
//! seed.

use super::work::Kind;
use crate::dice::Dice;
use std::fmt;
use std::time::Duration;

/// Within this time of a round's beginning commands are launched and faults begin: as long as the longest command runs.
const WITHIN_MS: usize = 1600;
/// Commands of a round, at most.
const COMMANDS_MAX: usize = 6;
/// Faults of a round, at most.
const FAULTS_MAX: usize = 3;
/// Rounds of a hundred in which nothing is done to the parts: then every command must come to its right end.
const QUIET_PERCENT: usize = 15;
/// Rounds of a hundred with a storm of commands.
const STORM_PERCENT: usize = 6;

/// A process of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The worker of this number.
    Worker(usize),
    /// The hub.
    Hub,
    /// The client's daemon.
    Daemon,
    /// What the user started.
    Remrun,
    /// A process of a task.
    Guest,
}

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The part is killed, and begins anew after this time if it does not by itself.
    Kill(Part, Duration),
    /// The part does nothing for this time.
    Stop(Part, Duration),
    /// Nothing passes between the part and the hub for this time.
    Cut(Part, Duration),
    /// The part's disk has no room for this time.
    FillDisk(Part, Duration),
    /// The part's disk fails whatever is asked of it, for this time; what was not written out for good is lost. Then it is mounted anew, and
    /// the part begins anew.
    FailDisk(Part, Duration),
    /// The client's daemon is killed, and its disk can only be read for this time.
    ReadOnly(Duration),
    /// An input of the commands gets other contents.
    Change,
    /// An input of the commands vanishes.
    Vanish,
    /// All parts are killed and begin anew, in these orders.
    RestartAll(u64),
}

impl Fault {
    /// For how long it may keep commands from their ends.
    pub fn lasts(&self) -> Duration {
        match self {
            Self::Kill(_, time)
            | Self::Stop(_, time)
            | Self::Cut(_, time)
            | Self::FillDisk(_, time)
            | Self::FailDisk(_, time)
            | Self::ReadOnly(time) => *time,
            Self::Change | Self::Vanish | Self::RestartAll(_) => Duration::ZERO,
        }
    }

    /// Its kind, by which it is counted.
    pub fn kind(&self) -> String {
        let of = |part: &Part| match part {
            Part::Worker(_) => "worker",
            Part::Hub => "hub",
            Part::Daemon => "client daemon",
            Part::Remrun => "remrun",
            Part::Guest => "guest",
        };
        match self {
            Self::Kill(part, _) => format!("{} killed", of(part)),
            Self::Stop(part, _) => format!("{} stopped", of(part)),
            Self::Cut(part, _) => format!("link of the {} cut", of(part)),
            Self::FillDisk(part, _) => format!("disk of the {} full", of(part)),
            Self::FailDisk(part, _) => format!("disk of the {} fails", of(part)),
            Self::ReadOnly(_) => "disk of the client daemon read-only".to_owned(),
            Self::Change => "input changed".to_owned(),
            Self::Vanish => "input removed".to_owned(),
            Self::RestartAll(_) => "all restarted".to_owned(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind())?;
        if let Self::Kill(Part::Worker(number), _)
        | Self::Stop(Part::Worker(number), _)
        | Self::Cut(Part::Worker(number), _) = self
        {
            write!(f, " (number {number})")?;
        }
        match self.lasts() {
            Duration::ZERO => Ok(()),
            time => write!(f, " for {:.1} s", time.as_secs_f64()),
        }
    }
}

/// A command of a round.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// What it does.
    pub kind: Kind,
    /// When, from the round's beginning.
    pub at: Duration,
    /// It may run at the client as well.
    pub may_run_here: bool,
}

/// One round.
#[derive(Clone, Debug)]
pub struct Round {
    /// Its commands.
    pub launches: Vec<Launch>,
    /// What is done, and when.
    pub faults: Vec<(Duration, Fault)>,
    /// So many short commands at once.
    pub storm: usize,
}

/// What a campaign may draw from.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Workers.
    pub workers: usize,
    /// Commands of a storm.
    pub storm: usize,
    /// Longest stop and cut.
    pub longest: Duration,
}

impl Round {
    /// The round of this number in the campaign of this seed.
    pub fn of(seed: u64, number: u64, bounds: Bounds) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let moment = |dice: &mut Dice| Duration::from_millis(dice.below(WITHIN_MS) as u64);
        let storm = if dice.percent(STORM_PERCENT) { bounds.storm } else { 0 };
        let launches = (0..1 + dice.below(COMMANDS_MAX))
            .map(|_| Launch { kind: dice.of(&Kind::ALL), at: moment(&mut dice) / 2, may_run_here: dice.percent(50) })
            .collect();
        let count = if dice.percent(QUIET_PERCENT) { 0 } else { 1 + dice.below(FAULTS_MAX) };
        let mut faults: Vec<_> = (0..count).map(|_| (moment(&mut dice), fault(&mut dice, bounds))).collect();
        faults.sort_by_key(|(at, _)| *at);
        Self { launches, faults, storm }
    }

    /// Whether every command must come to its right end.
    pub fn is_quiet(&self) -> bool {
        self.faults.iter().all(|(_, fault)| matches!(fault, Fault::Change | Fault::Vanish))
    }

    /// For how long faults may keep commands from their ends.
    pub fn lasts(&self) -> Duration {
        self.faults.iter().map(|(_, fault)| fault.lasts()).sum()
    }
}

/// Parts that have disks of their own.
pub const WITH_DISKS: [Part; 3] = [Part::Worker(0), Part::Hub, Part::Daemon];

fn fault(dice: &mut Dice, bounds: Bounds) -> Fault {
    // Most are short, as most faults are; some outlive every time limit.
    let time = |dice: &mut Dice| {
        let most = if dice.percent(85) { Duration::from_secs(4).min(bounds.longest) } else { bounds.longest };
        Duration::from_millis(50 + dice.below(most.as_millis() as usize) as u64)
    };
    let worker = Part::Worker(dice.below(bounds.workers));
    let part = dice.of(&[worker, worker, Part::Hub, Part::Daemon, Part::Remrun, Part::Guest]);
    match dice.below(21) {
        0..=6 => Fault::Kill(part, Duration::from_millis(dice.below(2000) as u64)),
        7..=11 => Fault::Stop(part, time(dice)),
        12..=14 => Fault::Cut(dice.of(&[worker, Part::Daemon]), time(dice)),
        15 if dice.percent(50) => Fault::ReadOnly(time(dice)),
        15 | 16 => Fault::FillDisk(dice.of(&WITH_DISKS), time(dice)),
        20 => Fault::FailDisk(dice.of(&WITH_DISKS), time(dice)),
        17 => Fault::Change,
        18 => Fault::Vanish,
        _ => Fault::RestartAll(dice.next()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const BOUNDS: Bounds = Bounds { workers: 3, storm: 1000, longest: Duration::from_secs(60) };

    #[test]
    fn a_seed_gives_the_same_rounds_and_every_kind_of_fault_comes() {
        let rounds: Vec<Round> = (0..400).map(|number| Round::of(7, number, BOUNDS)).collect();
        let again = Round::of(7, 33, BOUNDS);
        assert_eq!(format!("{again:?}"), format!("{:?}", rounds[33]));
        assert_ne!(format!("{again:?}"), format!("{:?}", Round::of(8, 33, BOUNDS)));
        let kinds: BTreeSet<String> =
            rounds.iter().flat_map(|round| &round.faults).map(|(_, fault)| fault.kind()).collect();
        assert_eq!(kinds.len(), 5 + 5 + 2 + 3 + 3 + 4, "{kinds:?}");
        assert!(rounds.iter().any(|round| round.storm == 1000) && rounds.iter().any(Round::is_quiet));
        let longest = rounds.iter().flat_map(|round| &round.faults).map(|(_, fault)| fault.lasts()).max();
        assert!(longest.is_some_and(|longest| longest > Duration::from_secs(40)), "{longest:?}");
    }
}

//! When a guest stays with an owner who has come back, pauses, or moves: the policies of Linger-Longer (Ryu, Hollingsworth: Linger longer:
//! fine-grain cycle stealing for networks of workstations, 1998) and of those before it.
//!
//! A guest that lingers gets what the owner leaves, at a priority that the owner does not feel. Moving costs time in which it gets nothing,
//! and is worth it only if the owner stays for long. Nobody knows; but what has lasted for long will mostly last as long again.
//!
//! Four rules are those that were published. [`foresight`] is ours: it weighs what staying and moving will take, by what [`outlook`] has
//! learnt of each host from its own past, and [`needs`] of the tasks that have ended.

pub mod foresight;
pub mod needs;
pub mod outlook;

/// What is done with a guest when its host's owner comes back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// Linger longer: it stays, at the lowest priority, and moves when that pays.
    LingerLonger,
    /// Linger forever: it stays, and never moves.
    LingerForever,
    /// Immediate eviction (Berkeley NOW): it stops, and moves as soon as another host is idle.
    ImmediateEviction,
    /// Pause and migrate (Condor): it stops, and moves if the owner is still there after so many seconds.
    PauseAndMigrate(f64),
}

impl Policy {
    /// Whether guests may be on hosts whose owners are there.
    pub fn lingers(self) -> bool {
        matches!(self, Self::LingerLonger | Self::LingerForever)
    }
}

/// What a guest does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It runs where it is.
    Run,
    /// It waits where it is.
    Wait,
    /// It moves to the other host.
    Move,
}

/// How it is where a guest is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Here {
    /// For how long the owner has been there and the guest with him, in seconds; `None`: he is away.
    pub owner_s: Option<f64>,
    /// The part of the processor that the owner uses, 0 to 1.
    pub used: f64,
}

/// How long a guest lingers before it moves, in seconds: with `here` the part of the processor that is used where it is, `there` where it
/// would go, and what moving takes. `None`: for ever, for it would be no better off.
///
/// The owner is taken to stay for as long again as he has been there. By staying with him for another T a guest would lose (here - there) T
/// against being there; by moving it loses what it would get there meanwhile, (1 - there) move_s.
pub fn linger_s(here: f64, there: f64, move_s: f64) -> Option<f64> {
    (here > there).then(|| (1.0 - there) / (here - there) * move_s)
}

/// What a guest does by a policy. `there`: the part of the processor that is used on an idle host that it may have, if there is one.
pub fn decide(policy: Policy, here: Here, there: Option<f64>, move_s: f64) -> Action {
    let Some(owner_s) = here.owner_s else { return Action::Run };
    let moves = match policy {
        Policy::LingerForever => false,
        Policy::LingerLonger => {
            there.and_then(|there| linger_s(here.used, there, move_s)).is_some_and(|linger_s| owner_s >= linger_s)
        }
        Policy::ImmediateEviction => there.is_some(),
        Policy::PauseAndMigrate(wait_s) => there.is_some() && owner_s >= wait_s,
    };
    match (moves, policy.lingers()) {
        (true, _) => Action::Move,
        (false, true) => Action::Run,
        (false, false) => Action::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AWAY: Here = Here { owner_s: None, used: 0.05 };

    fn there_for(owner_s: f64) -> Here {
        Here { owner_s: Some(owner_s), used: 0.8 }
    }

    #[test]
    fn a_guest_lingers_longer_the_less_it_loses() {
        assert_eq!(linger_s(0.5, 0.0, 20.0), Some(40.0));
        assert_eq!(linger_s(1.0, 0.0, 20.0), Some(20.0));
        assert_eq!(linger_s(0.05, 0.05, 20.0), None);
    }

    #[test]
    fn each_policy_does_what_its_name_says() {
        let pause = Policy::PauseAndMigrate(60.0);
        for policy in [Policy::LingerLonger, Policy::LingerForever, Policy::ImmediateEviction, pause] {
            assert_eq!(decide(policy, AWAY, Some(0.0), 20.0), Action::Run);
            let alone = if policy.lingers() { Action::Run } else { Action::Wait };
            assert_eq!(decide(policy, there_for(1e9), None, 20.0), alone, "nobody else is idle");
        }
        let at = |policy, owner_s| decide(policy, there_for(owner_s), Some(0.0), 20.0);
        assert_eq!((at(Policy::LingerLonger, 24.9), at(Policy::LingerLonger, 25.0)), (Action::Run, Action::Move));
        assert_eq!(at(Policy::LingerForever, 1e9), Action::Run);
        assert_eq!(at(Policy::ImmediateEviction, 0.0), Action::Move);
        assert_eq!((at(pause, 59.9), at(pause, 60.0)), (Action::Wait, Action::Move));
    }
}

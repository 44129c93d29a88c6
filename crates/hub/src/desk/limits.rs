//! The limits of accounts: what they are opened with, and how their hub's owner changes them.

use super::Desk;
use tasks::{AccountName, AccountSpec, AccountView, Effect, Event, Kind, Refusal};

/// What is to become of an account's limits: what is not given stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Its part in the turns of accounts.
    pub weight: Option<u16>,
    /// The part of all processors that is reserved for its deadlines, in thousandths.
    pub share_permille: Option<u16>,
    /// Most tasks at the hub; `u32::MAX`: no limit.
    pub tasks_max: Option<u32>,
    /// Most tasks that run at a time; `u32::MAX`: no limit.
    pub running_max: Option<u32>,
}

/// The usual limits: none, and no share.
pub(super) fn usual(key: u128) -> AccountSpec {
    AccountSpec { key, weight: 1, share_permille: 0, tasks_max: u32::MAX, running_max: u32::MAX }
}

impl Desk {
    /// An account as it is, or as it would be opened.
    pub fn account_view(&self, key: u128) -> AccountView {
        let known = self.table().account(key).and_then(|name| self.table().account_view(name));
        known.unwrap_or_else(|| AccountView {
            name: AccountName { at: 0, generation: 0 },
            spec: usual(key),
            tasks: 0,
            running: 0,
            used_ms: 0,
            given_ms: 0,
            done: 0,
            failed: 0,
            met: 0,
            missed: 0,
        })
    }

    /// Changes an account's limits, and opens it if it never was here. An answer waits for [`Desk::durable`]. Otherwise: why not, in
    /// words, and nothing has changed.
    pub fn limit(&mut self, key: u128, limits: &Limits) -> Result<AccountView, String> {
        if *limits == Limits::default() {
            return Ok(self.account_view(key));
        }
        self.is_crowded().map_err(|refusal| refusal.to_string())?;
        // With the usual limits first: should the others be refused, it has these.
        self.account(key).map_err(|refusal| refusal.to_string())?;
        let now = self.account_view(key).spec;
        let spec = AccountSpec {
            key,
            weight: limits.weight.unwrap_or(now.weight),
            share_permille: limits.share_permille.unwrap_or(now.share_permille),
            tasks_max: limits.tasks_max.unwrap_or(now.tasks_max),
            running_max: limits.running_max.unwrap_or(now.running_max),
        };
        match *self.act(Event::Account(spec)) {
            [Effect::Account(_), ..] => Ok(self.account_view(key)),
            _ => Err(self.in_words(&now, &spec, self.refusal().unwrap_or(Refusal::Unknown))),
        }
    }

    fn in_words(&self, now: &AccountSpec, wanted: &AccountSpec, refusal: Refusal) -> String {
        let others = self.table().reserved_permille().saturating_sub(now.share_permille.into());
        match refusal {
            Refusal::Invalid(what) if others + u64::from(wanted.share_permille) > 1_000 => format!(
                "{what}: {}% are reserved for others, so {}% at most can be; gleaner accounts shows for whom",
                percent(others),
                percent(1_000 - others.min(1_000)),
            ),
            Refusal::Full(Kind::Shares, _) => format!(
                "{} accounts have a share, and no more can: gleaner limit ACCOUNT --share 0 takes one back",
                tasks::RESERVED_MAX
            ),
            other => other.to_string(),
        }
    }
}

fn percent(permille: u64) -> String {
    match permille % 10 {
        0 => (permille / 10).to_string(),
        tenth => format!("{}.{tenth}", permille / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desk::Room;

    #[test]
    fn limits_change_what_is_given_and_nothing_else() {
        let mut desk = Desk::in_memory(Room { hosts: 64, tasks: 64, bytes_max: 1 << 20 }, 7);
        let change = Limits { running_max: Some(2), share_permille: Some(705), ..Limits::default() };
        let view = desk.limit(5, &change).expect("room");
        assert_eq!((view.spec.weight, view.spec.running_max, view.spec.tasks_max), (1, 2, u32::MAX));
        let view = desk.limit(5, &Limits { weight: Some(9), ..Limits::default() }).expect("room");
        assert_eq!((view.spec.weight, view.spec.running_max, view.spec.share_permille), (9, 2, 705));
        let name = desk.account(5).expect("there");
        assert_eq!(desk.table().account_view(name), Some(view), "to find it opens it no second time");
        let refused = desk.limit(6, &Limits { share_permille: Some(300), ..Limits::default() });
        let why = refused.expect_err("more than there is");
        assert!(why.contains("70.5% are reserved") && why.contains("29.5% at most"), "{why}");
        assert_eq!(desk.account_view(6).spec, usual(6), "one that was refused something is not shut out");
        for key in 10..10 + tasks::RESERVED_MAX as u128 - 1 {
            desk.limit(key, &Limits { share_permille: Some(1), ..Limits::default() }).expect("room");
        }
        let why = desk.limit(6, &Limits { share_permille: Some(1), ..Limits::default() }).expect_err("too many");
        assert!(why.contains("--share 0"), "{why}");
        assert!(desk.limit(5, &Limits { weight: Some(0), ..Limits::default() }).is_err());
        assert_eq!(desk.limit(77, &Limits::default()).map(|view| view.spec), Ok(usual(77)), "asked only");
        assert_eq!(desk.table().account(77), None);
    }
}

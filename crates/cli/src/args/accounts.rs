//! The arguments of what is about accounts.

use clap::Args;

/// `gleaner accounts`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = ACCOUNTS_HELP)]
pub struct Accounts {
    /// Which page, from 1; there are 256 accounts on one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub page: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What help and manual say of accounts.
const ACCOUNTS_HELP: &str = "\
Examples:
  gleaner accounts          all accounts, for the hub's owner; for others their own
  gleaner accounts --json   the same for a program; times are in milliseconds

Each machine that launches has an account at the hub, and so has each that lends. WEIGHT is an account's part when accounts take turns, SHARE \
what is reserved of all CPUs for its tasks with deadlines. TASKS and RUNNING are how many it has at the hub and how many of them run, with the \
limit if there is one. USED is the CPU time that its tasks have taken, GIVEN what its machines have given, by what tasks were estimated to take. MET and MISSED are deadlines, \
DONE and FAILED tasks that are over. The hub keeps this in its journal: it goes on when the hub is started again. `gleaner limit` changes limits.";

/// `gleaner limit`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = LIMIT_HELP)]
pub struct Limit {
    /// The name of the account's machine, or the first digits of its id
    pub account: String,
    /// Its part when accounts take turns: twice the weight, twice as many tasks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub weight: Option<u16>,
    /// Reserve PERCENT of all CPUs for its tasks with deadlines; 0 takes that back
    #[arg(long, value_name = "PERCENT", value_parser = permille)]
    pub share: Option<u16>,
    /// Most tasks that it may have at the hub, those that wait included; `none` lifts the limit
    #[arg(long, value_name = "N", value_parser = most)]
    pub tasks: Option<u32>,
    /// Most tasks of it that may run at a time; `none` lifts the limit
    #[arg(long, value_name = "N", value_parser = most)]
    pub running: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What help and manual say of limits.
const LIMIT_HELP: &str = "\
Examples:
  gleaner limit ada --running 16     no more than 16 tasks of ada's run at a time
  gleaner limit ada --weight 3       three turns for one of the others'
  gleaner limit 4f0c --share 25      a quarter of all CPUs is kept for ada's deadlines
  gleaner limit ada --running none   no limit any more
  gleaner limit ada                  only shows the limits

For the hub's owner. What is not given stays as it is, and the limits as they are then are printed. They are in the hub's journal before that, and \
hold until they are changed, over restarts of the hub, too. A machine that has joined and was never used can be given limits in advance.

Nothing that runs is ended: with a lower --running the next tasks wait. With --tasks a batch job hands its tasks over as there is room, and `gleaner jobs` says \
so; a remrun beyond the limit is not launched. Shares are 100 percent together at most, and 16 accounts can have one.";

/// Reads a part of a hundred, with a tenth, as thousandths.
fn permille(text: &str) -> Result<u16, String> {
    let wrong = || format!("not a number of percent from 0 to 100, with one decimal at most: {text}");
    let (whole, tenths) = text.trim_end_matches('%').split_once('.').unwrap_or((text.trim_end_matches('%'), "0"));
    let digit = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty();
    if !digit(whole) || !digit(tenths) || tenths.len() > 1 || whole.len() > 3 {
        return Err(wrong());
    }
    let permille = format!("{whole}{tenths}").parse().map_err(|_| wrong())?;
    if permille > 1_000 { Err(wrong()) } else { Ok(permille) }
}

/// Reads a limit; `none` is the largest number.
fn most(text: &str) -> Result<u32, String> {
    match text {
        "none" => Ok(u32::MAX),
        number => number.parse().map_err(|_| format!("neither a number of tasks nor `none`: {text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percent() {
        let read = ["0", "25", "12.5", "100", "7%", "100.0"].map(permille);
        assert_eq!(read, [0, 250, 125, 1_000, 70, 1_000].map(Ok));
        for wrong in ["", "-1", "100.1", "1.25", "many", "1e2", "."] {
            assert!(permille(wrong).is_err(), "{wrong}");
        }
        assert_eq!((most("none"), most("0"), most("x").is_err()), (Ok(u32::MAX), Ok(0), true));
    }
}

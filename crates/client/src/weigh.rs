//! Weighs where a command runs, and learns from how it went.

use crate::choice::{Choice, Now, Side, There, choose, choose_unknown};
use crate::daemon::Daemon;
use crate::endpoints;
use crate::history::RunThere;
use crate::plan::{NotPlanned, Plan};
use crate::serve::blocking;
use crate::settings::Prefer;
use crate::takeoff::Checked;
use crate::views::JobViews;
use base::door::Options;
use base::{Command, WindowSize};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use wire::Joined;
use wire::message::{Exited, Offer};

/// A command that goes: with its files if they were checked already, and what was chosen from if it was weighed.
pub(crate) type Planned = (Option<Checked>, Plan, Option<Choice>);

/// Plans a command, and weighs where it runs. `Err(None)`: the daemon failed.
pub(crate) async fn plan_and_weigh(
    daemon: &Arc<Daemon>,
    command: Command,
    (options, window, job): (&Options, Option<WindowSize>, Option<Arc<JobViews>>),
    fds: &[Arc<OwnedFd>; 3],
) -> Result<Planned, Option<NotPlanned>> {
    let (daemon, fds, options) = (daemon.clone(), fds.clone(), options.clone());
    let planned = blocking(move || {
        if let Some(why) = endpoints::keeps_here(&fds, &command.limits) {
            return Err(NotPlanned::Here(why));
        }
        let plan = Plan::new(&daemon, command, window, &options, job.as_deref(), &fds)?;
        let plan = plan.with_descriptors(&daemon, &options.descriptors)?;
        let choice = weigh(&daemon, &plan, &options);
        match choice.filter(|choice| choice.side == Side::Here) {
            Some(choice) => match daemon.link().and_then(|link| link.offers.all_rest()) {
                Some(who) => Err(NotPlanned::Here(format!("no worker takes tasks now: {who}"))),
                None => Err(NotPlanned::Better(plan.kind(), choice)),
            },
            None => Ok((Checked::at_once(&plan, &daemon), plan, choice)),
        }
    });
    planned.await.ok_or(None)?.map_err(Some)
}

/// Where a command is better run; `None` if that is not weighed: it must go, nothing speaks against it, or the hub is not heard now, which is
/// found out when it is launched.
pub fn weigh(daemon: &Daemon, plan: &Plan, options: &Options) -> Option<Choice> {
    // Tasks of a job see one state of the files, which is to be had there alone. What races is not weighed.
    let must_go = options.race || options.no_local || options.job.is_some();
    if must_go || daemon.settings.choices().prefer == Prefer::There {
        return None;
    }
    let (joined, _) = daemon.link()?.current()?;
    let expected = daemon.history.expected(&plan.kind());
    // Another command of the tree runs there, and this one would not see its lock.
    if plan.alone_in.as_ref().is_some_and(|tree| daemon.tree(tree).try_lock().is_err()) {
        return None;
    }
    let paths = joined.paths();
    let now = Now {
        round_trip_us: joined.connection.round_trip().as_secs_f64() * 1e6,
        shortest_us: paths.up.map(|path| path.round_trip as f64 / 1e3),
        rate_up: paths.up.map(|path| path.rate),
        rate_down: paths.down.map(|path| path.rate),
        cpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32),
        runnable: daemon.here.runnable(),
        wanted: plan.command.needs.cpus,
        there: daemon.link()?.offers.latest().map(|offer| offered(&offer)),
    };
    let Some(expected) = expected else { return choose_unknown(&now) };
    let choice = choose(&expected, &now);
    // Who does not become the command cannot be watched, so that trying it teaches nothing.
    if choice.is_try && !options.becomes {
        return None;
    }
    daemon.history.chosen(&plan.kind(), &choice);
    Some(choice)
}

/// What the hub offers. On a worker of one's own a command gets what it gets here.
fn offered(offer: &Offer) -> There {
    let share = (!offer.own).then_some(f64::from(offer.share) / 1e3);
    There { share, is_free: offer.is_free, waiting: offer.waiting, cpus: offer.cpus }
}

/// What one run there came to.
pub struct Ran<'a> {
    /// What the worker tells.
    pub exited: &'a Exited,
    /// From the request until the result was here.
    pub took: Duration,
    /// Questions that it waited for.
    pub questions: u64,
    /// Bytes for it, up and down.
    pub bytes: (u64, u64),
    /// For how long it was ready and had no processor.
    pub waited: Duration,
}

/// Splits what a run there took into what depends on the link and what does not.
pub fn run_there(ran: &Ran<'_>, joined: &Joined) -> RunThere {
    let paths = joined.paths();
    let rates = (paths.up.map(|path| path.rate), paths.down.map(|path| path.rate));
    split(ran, joined.connection.round_trip(), rates)
}

fn split(ran: &Ran<'_>, round_trip: Duration, (rate_up, rate_down): (Option<u64>, Option<u64>)) -> RunThere {
    let Ran { exited, took, questions, bytes: (bytes_up, bytes_down), waited } = *ran;
    let at = |what: &str| exited.timeline.iter().find(|moment| moment.what == what).map(|moment| moment.at_ns / 1000);
    let (begun, ended) = (at("program started").or_else(|| at("process made")), at("process ended"));
    let ran_us = begun.zip(ended).map_or(0, |(begun, ended)| ended.saturating_sub(begun));
    let trip_us = round_trip.as_micros() as u64;
    let travel_us =
        |bytes: u64, rate: Option<u64>| rate.map_or(0, |rate| bytes.saturating_mul(1_000_000) / rate.max(1));
    // Some questions come before the program starts, and some at once: it has computed at least as long as it had one CPU.
    let questions_us = trip_us.saturating_mul(questions);
    // What a worker says may be anything.
    let cpu_us = exited.user_us.saturating_add(exited.system_us).min(ran_us);
    let waited_us = waited.as_micros() as u64;
    let compute_us = ran_us.saturating_sub(questions_us.saturating_add(waited_us)).max(cpu_us);
    let travels_us = [travel_us(bytes_up, rate_up), travel_us(bytes_down, rate_down)];
    let parts_us = [compute_us, waited_us, questions_us, trip_us].into_iter().chain(travels_us);
    let known_us = parts_us.fold(0u64, u64::saturating_add);
    let other_us = (took.as_micros() as u64).saturating_sub(known_us);
    RunThere { compute_us, cpu_us, questions, bytes_up, bytes_down, other_us }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::message::Moment;

    #[test]
    fn what_a_run_took_is_split() {
        let moment = |what: &str, ms: u64| Moment { what: what.into(), at_ns: ms * 1_000_000 };
        let timeline = vec![moment("process made", 2), moment("program started", 3), moment("process ended", 303)];
        let exited = Exited { timeline, user_us: 50_000, ..Exited::default() };
        let took = Duration::from_millis(480);
        let ran = Ran { exited: &exited, took, questions: 2, bytes: (5_000, 20_000), waited: Duration::ZERO };
        let got = split(&ran, Duration::from_millis(70), (Some(500_000), Some(2_000_000)));
        // 300 ms of which two questions took 140; and 70 + 10 + 10 on the way.
        let want = RunThere {
            compute_us: 160_000,
            cpu_us: 50_000,
            questions: 2,
            bytes_up: 5_000,
            bytes_down: 20_000,
            other_us: 90_000,
        };
        assert_eq!(got, want);
        let many = Ran { questions: 30, ..ran };
        assert_eq!(split(&many, Duration::from_millis(70), (None, None)).compute_us, 50_000, "its CPU time at least");
        let timeline = vec![moment("program started", 0), Moment { what: "process ended".into(), at_ns: u64::MAX }];
        let lies = Exited { timeline, user_us: u64::MAX, system_us: u64::MAX, ..Exited::default() };
        let ran = Ran { exited: &lies, questions: u64::MAX, bytes: (u64::MAX, u64::MAX), ..ran };
        assert_eq!(split(&ran, Duration::from_millis(70), (Some(1), Some(1))).other_us, 0);
    }
}

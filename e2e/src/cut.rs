//! What happens when a link is cut in the middle of a command, so that no part is told of anything: the command ends within
//! a bound, in the right result or in a clear error; nothing is half-committed; no guest stays; and when the link is mended,
//! all goes on.

use crate::error::{Context, Error, Result};
use crate::pool::{Options, Pool};
use crate::process::{Run, pause, wait_for};
use crate::relay::Relay;
use crate::report::Report;
use crate::scenario::{
    self, COMMAND, Committed, END_BOUND, Scenario, Work, busy_worker, committed, folder, guests, judge,
};
use std::time::{Duration, Instant};

/// Moments, in milliseconds after the start of the command, at which a link is cut: launch, run, commit.
const MOMENTS_MS: [u64; 4] = [5, 90, 600, 1050];
/// How long [`COMMAND`] says nothing.
const SILENT: Duration = Duration::from_secs(1);
/// The bound within which no guest is left at a worker whose link was cut, or whose client's link has been mended.
const GUEST_BOUND: Duration = Duration::from_secs(15);
/// How long commands wait for their link: less than by default, so that all moments are tried in a minute.
const LINK_WAIT_S: &str = "5";
/// An interruption that a command must outlive without anybody's notice.
const SHORT: Duration = Duration::from_secs(2);
/// The bound within which the pool serves again after a link is mended.
const MENDED_BOUND: Duration = Duration::from_secs(15);

const SCENARIOS: [Scenario; 4] = [
    ("cut/a worker's link, command ends right or clear", workers_link),
    ("cut/the client's link, command ends right or clear", clients_link),
    ("cut/the client's link, the guest reads", reads),
    ("cut/a link for two seconds, nobody notices", short),
];

/// The scenarios whose name contains `filter`, on pools of this kind.
pub fn works<'a>(options: &Options, filter: &str, report: &'a Report) -> Vec<Work<'a>> {
    scenario::works(&SCENARIOS, options, filter, report)
}

/// A relay for each worker, and all workers behind theirs.
fn relays(pool: &mut Pool) -> Result<Vec<Relay>> {
    let hub = pool.hub_address()?;
    let mut relays = Vec::new();
    for index in 0..pool.workers.len() {
        let relay = Relay::to(&hub)?;
        pool.redirect_worker(index, &relay.address())?;
        relays.push(relay);
    }
    pool.wait_for_workers(relays.len())?;
    Ok(relays)
}

/// Two runs of [`COMMAND`] at once, one of which may run here, that something is done to after a while.
struct Disturbed {
    after: Duration,
    /// An argument by which their processes are known, and the name of their folder.
    word: String,
    /// What they do before [`COMMAND`].
    before: &'static str,
}

impl Disturbed {
    fn new(after_ms: u64) -> Self {
        Self { after: Duration::from_millis(after_ms), word: format!("disturbed-{after_ms}"), before: "" }
    }

    /// Runs the commands, calls `disturb` in mid-way, and returns what is wrong with their ends.
    fn run(&self, pool: &mut Pool, disturb: impl FnOnce(&mut Pool) -> Result<()>) -> Result<Vec<String>> {
        let script = format!("{}{COMMAND}", self.before);
        let mut runners = Vec::new();
        for local in [true, false] {
            let place = folder(pool, &format!("{}/{local}", self.word))?;
            let options: &[&str] = if local { &[] } else { &["--no-local"] };
            let mut command = pool.client.remrun(&[options, &["sh", "-c", &script, &self.word]].concat());
            command.current_dir(&place);
            let runner = std::thread::spawn(move || Run::new(command).within(END_BOUND * 2).run());
            runners.push((local, place, runner));
        }
        pause(self.after);
        disturb(pool)?;
        let cut = Instant::now();
        let mut wrong = Vec::new();
        for (local, place, runner) in runners {
            let outcome = runner.join().map_err(|_| Error::Product("the runner panicked".to_owned()))??;
            // Once it has said something it cannot be run here any more.
            let may_fail = !local || self.after > SILENT;
            let say = |what| format!("cut after {:?}, local {local}: {what}", self.after);
            wrong.extend(judge(&outcome, &place, may_fail).into_iter().map(say));
        }
        scenario::measured(&format!("cut after {:?}: end of the commands", self.after), cut.elapsed());
        Ok(wrong)
    }

    /// Waits until no guest of theirs is left; what is wrong if one is, [`GUEST_BOUND`] after `since`.
    fn no_guest(&self, pool: &Pool, since: Instant) -> Option<String> {
        let left = GUEST_BOUND.saturating_sub(since.elapsed());
        let gone = wait_for(left, || (guests(pool, &self.word) == 0).then_some(()));
        scenario::measured(&format!("cut after {:?}: guests gone", self.after), since.elapsed());
        gone.is_none().then(|| format!("cut after {:?}: a guest still runs, {GUEST_BOUND:?} too late", self.after))
    }
}

/// Whether commands run remotely again; an error in words if not.
fn serves(pool: &Pool) -> Result<Vec<String>> {
    let served = wait_for(MENDED_BOUND, || {
        let outcome = Run::new(pool.client.remrun(&["--no-local", "true"])).within(END_BOUND).run();
        outcome.is_ok_and(|outcome| outcome.ok()).then_some(())
    });
    Ok(served.is_none().then(|| format!("{MENDED_BOUND:?} after it was mended nothing runs")).into_iter().collect())
}

fn workers_link(pool: &mut Pool) -> Result<Vec<String>> {
    let relays = relays(pool)?;
    let mut wrong = Vec::new();
    for disturbed in MOMENTS_MS.map(Disturbed::new) {
        let place = pool.place(&disturbed.word);
        let mut cut = Instant::now();
        wrong.extend(disturbed.run(pool, |pool| {
            let name = busy_worker(pool, &place).name.clone();
            let index = pool.workers.iter().position(|worker| worker.name == name).unwrap_or(0);
            relays[index].cut();
            cut = Instant::now();
            Ok(())
        })?);
        wrong.extend(disturbed.no_guest(pool, cut));
        relays.iter().for_each(Relay::mend);
        pool.wait_for_workers(relays.len())?;
    }
    wrong.extend(serves(pool)?);
    Ok(wrong)
}

/// Cuts the client's link in the midst of each of `disturbed`, and mends it after their ends. A guest that waits for its
/// client goes on waiting while the link is cut, for the client may only sleep.
fn cut_from_client(pool: &mut Pool, disturbed: &[Disturbed]) -> Result<Vec<String>> {
    let relay = Relay::to(&pool.hub_address()?)?;
    pool.client.env.push(("GLEANER_LINK_WAIT_S".into(), LINK_WAIT_S.into()));
    pool.redirect_client(&relay.address())?;
    let mut wrong = serves(pool)?;
    for disturbed in disturbed {
        wrong.extend(disturbed.run(pool, |_| {
            relay.cut();
            Ok(())
        })?);
        relay.mend();
        wrong.extend(disturbed.no_guest(pool, Instant::now()));
        wrong.extend(serves(pool)?);
    }
    Ok(wrong)
}

fn clients_link(pool: &mut Pool) -> Result<Vec<String>> {
    cut_from_client(pool, &MOMENTS_MS.map(Disturbed::new))
}

/// When the link is cut the guests are about to read what only the client has.
fn reads(pool: &mut Pool) -> Result<Vec<String>> {
    let disturbed = Disturbed { before: "sleep 1; cat ../unread/*; ", ..Disturbed::new(700) };
    let unread = folder(pool, &format!("{}/unread", disturbed.word))?.join("empty");
    std::fs::write(&unread, "").at("write", &unread)?;
    cut_from_client(pool, &[disturbed])
}

/// The links of all workers and of the client are cut together, but for less than it takes to be missed.
fn short(pool: &mut Pool) -> Result<Vec<String>> {
    let mut relays = relays(pool)?;
    relays.push(Relay::to(&pool.hub_address()?)?);
    pool.redirect_client(&relays[relays.len() - 1].address())?;
    let mut wrong = serves(pool)?;
    for after in [90, 1050] {
        let disturbed = Disturbed::new(after);
        let place = pool.place(&disturbed.word);
        wrong.extend(disturbed.run(pool, |_| {
            relays.iter().for_each(Relay::cut);
            pause(SHORT);
            relays.iter().for_each(Relay::mend);
            Ok(())
        })?);
        wrong.extend(disturbed.no_guest(pool, Instant::now()));
        if ["true", "false"].iter().any(|local| committed(&place.join(local)) != Committed::All) {
            wrong.push(format!("cut after {after} ms for {SHORT:?}: a command did not come to its end"));
        }
    }
    Ok(wrong)
}

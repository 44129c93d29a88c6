//! A campaign of faults: commands run on a pool while its parts are killed, stopped, cut off and left without room on their disks,
//! and files vanish and change, all drawn from a seed. Each command ends within a bound as it ends here, or by a clear error
//! with nothing committed; and nothing is left of it.
//!
//! A round is drawn ([`plan`]): what runs ([`work`]), what goes wrong beneath it ([`parts`], [`disks`]). How each command ended is judged by
//! what the same command comes to here ([`jobs`]). [`tally`] counts all of it by kind.

mod disks;
mod jobs;
mod parts;
pub mod plan;
mod tally;
mod work;

use crate::dice::Dice;
use crate::error::{Context, Result};
use crate::pool::{self, Pool};
use crate::process::pause;
use crate::report::{Report, Verdict};
use crate::scenario::{END_BOUND, folder};
use jobs::{Ending, Job, appended};
use parts::{Heal, Parts};
use plan::{Bounds, Fault, Launch, Round};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tally::Tally;
use work::{Kind, Reference};

/// The name of the suite's test.
const NAME: &str = "chaos/parts killed, stopped, cut off and without room, by chance";
/// How long the part in the suite lasts.
const SUITE_TIME: Duration = Duration::from_secs(20);
/// Its seed: the same rounds each time, as many as there is time for.
const SUITE_SEED: u64 = 26;
/// How long the longest command runs.
const LONGEST: Duration = Duration::from_secs(2);
/// What each command of a storm may take of the time of all others.
const OF_STORM: Duration = Duration::from_millis(150);
/// Rounds in which something is wrong before a campaign ends.
const WRONG_MAX: usize = 8;
/// How often is looked whether commands have ended.
const LOOK: Duration = Duration::from_millis(5);

/// A campaign.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// All comes from this number.
    pub seed: u64,
    /// How long rounds begin.
    pub time: Duration,
    /// One round alone: this one.
    pub only: Option<u64>,
    /// What rounds are drawn from.
    pub bounds: Bounds,
    /// Leave the pool's folder.
    pub keep: bool,
}

impl Options {
    /// What a person runs for an hour or a night.
    pub fn campaign(seed: u64, minutes: u64) -> Self {
        let bounds = Bounds { workers: 3, storm: 1000, longest: Duration::from_secs(60) };
        Self { seed, time: Duration::from_secs(60 * minutes), only: None, bounds, keep: false }
    }

    fn suite() -> Self {
        let bounds = Bounds { workers: 2, storm: 40, longest: Duration::from_secs(3) };
        Self { seed: SUITE_SEED, time: SUITE_TIME, only: None, bounds, keep: false }
    }
}

/// As a test of the suite.
pub fn run_in_suite(options: &pool::Options, filter: &str, report: &Report) {
    if !NAME.contains(filter) {
        return;
    }
    let started = Instant::now();
    let verdict = Verdict::of(disks::apart(|| campaign(options, &Options::suite())));
    report.add(NAME, verdict, started.elapsed());
}

/// As a command of its own; true if all was well.
pub fn run(options: &Options) -> Result<bool> {
    let of_pool = pool::Options { guests: false, ..pool::Options::new(options.bounds.workers, 2)? };
    println!("chaos: seed {}, {:.1} minutes", options.seed, options.time.as_secs_f64() / 60.0);
    let wrong = disks::apart(|| campaign(&of_pool, options))?;
    wrong.iter().for_each(|what| println!("WRONG  {what}"));
    println!(
        "chaos: seed {}: {}",
        options.seed,
        if wrong.is_empty() { "all as it must be" } else { "not as it must be" }
    );
    Ok(wrong.is_empty())
}

/// Runs rounds on a pool of their own; what is wrong, in words.
fn campaign(of_pool: &pool::Options, options: &Options) -> Result<Vec<String>> {
    let of_pool = pool::Options { workers: options.bounds.workers, ..of_pool.clone() };
    let pool = Pool::start(of_pool)?;
    let here = folder(&pool, "here")?;
    let references = Kind::ALL.iter().map(|kind| Ok((*kind, Reference::of(*kind, &pool.client, &here)?)));
    let references = references.collect::<Result<BTreeMap<Kind, Reference>>>()?;
    let mut campaign = Campaign { parts: Parts::new(pool)?, references, options: *options, tally: Tally::default() };
    let mut wrong = campaign.rounds()?;
    if !wrong.is_empty() {
        wrong.push(campaign.parts.pool.logs(8));
    }
    campaign.tally.print();
    wrong.extend(campaign.parts.stop(options.keep)?);
    if campaign.tally.ended(Ending::Right) == 0 {
        wrong.push("no command came to its right end: nothing was tried".to_owned());
    }
    Ok(wrong)
}

/// The word of a round in the words of its commands.
fn round_of(word: &str) -> String {
    word.split('-').next().unwrap_or_default().to_owned()
}

/// A campaign under way.
struct Campaign {
    parts: Parts,
    references: BTreeMap<Kind, Reference>,
    options: Options,
    tally: Tally,
}

/// Something that is to happen at its time.
enum Event {
    Launch(Launch, PathBuf, String),
    Fault(Fault),
    Heal(Heal),
}

impl Campaign {
    fn rounds(&mut self) -> Result<Vec<String>> {
        let (started, mut wrong, mut bad) = (Instant::now(), Vec::new(), 0);
        let mut number = self.options.only.unwrap_or(0);
        while started.elapsed() < self.options.time && bad < WRONG_MAX {
            let plan = Round::of(self.options.seed, number, self.options.bounds);
            let found = self.round(number, &plan)?;
            if !found.is_empty() {
                bad += 1;
                let faults: Vec<String> =
                    plan.faults.iter().map(|(at, fault)| format!("{fault} at {:.2} s", at.as_secs_f64())).collect();
                let again = format!("again: `e2e chaos --seed {} --round {number}`", self.options.seed);
                wrong.push(format!("round {number} ({}; {} in a storm; {again})", faults.join(", "), plan.storm));
                // A long run may be ended before it says so.
                found.iter().chain(wrong.last()).for_each(|what| eprintln!("round {number}: {what}"));
                wrong.extend(found);
            }
            self.tally.rounds += 1;
            if std::io::stderr().is_terminal() {
                eprint!("\r{} rounds, {} commands, {bad} rounds wrong ", self.tally.rounds, self.tally.commands());
            }
            if self.options.only.is_some() {
                break;
            }
            number += 1;
        }
        Ok(wrong)
    }

    fn round(&mut self, number: u64, plan: &Round) -> Result<Vec<String>> {
        let base = folder(&self.parts.pool, &format!("r{number}"))?;
        let events = self.events(number, plan, &base)?;
        let allowed = LONGEST + END_BOUND + plan.lasts() + OF_STORM * plan.storm as u32;
        let mut jobs = Vec::new();
        self.play(number, events, &mut jobs, allowed)?;
        let mut wrong = appended(&jobs, &base.join("shared"));
        for job in jobs {
            // What may read an input that others change meanwhile may be told that it did.
            let is_disturbed = job.kind == Kind::Hash && !plan.faults.is_empty();
            let (kind, took, complaint) = (job.kind, job.took(), job.complaint());
            let reference = &self.references[&kind];
            let (ending, found) = job.judge(reference, allowed, plan.is_quiet() && !is_disturbed);
            self.tally.command(kind.name(), ending);
            if ending == Ending::Clear {
                self.tally.said(&complaint);
            }
            self.tally.took(
                &format!("command that ended {}, beyond its faults", ending.name()),
                took.saturating_sub(plan.lasts()),
                number,
            );
            wrong.extend(found);
        }
        let (found, took) = self.parts.recover()?;
        wrong.extend(found);
        self.tally.took("all parts are back: commands run elsewhere", took, number);
        let started = Instant::now();
        wrong.extend(self.parts.left(&format!("r{number}")).into_iter().map(|what| format!("left: {what}")));
        self.tally.took("all parts are back: nothing is left", started.elapsed(), number);
        self.tally.looks += 1;
        if wrong.is_empty() {
            std::fs::remove_dir_all(&base).at("remove", &base)?;
        }
        Ok(wrong)
    }

    /// What is to happen, in order; the folders of the commands are prepared.
    fn events(&self, number: u64, plan: &Round, base: &Path) -> Result<Vec<(Duration, Event)>> {
        let shared = base.join("shared");
        std::fs::create_dir_all(&shared).at("create", &shared)?;
        let of_storm = Launch { kind: Kind::Append, at: Duration::ZERO, may_run_here: false };
        let launches = plan.launches.iter().copied().chain(std::iter::repeat_n(of_storm, plan.storm));
        let mut events = Vec::new();
        for (index, launch) in launches.enumerate() {
            let place = match launch.kind {
                Kind::Append => shared.clone(),
                kind => base.join(format!("{index}-{}", kind.name())),
            };
            std::fs::create_dir_all(&place).at("create", &place)?;
            launch.kind.prepare(&place)?;
            events.push((launch.at, Event::Launch(launch, place, format!("r{number}-{index}"))));
        }
        events.extend(plan.faults.iter().map(|(at, fault)| (*at, Event::Fault(*fault))));
        events.sort_by_key(|(at, _)| *at);
        Ok(events)
    }

    /// Has it all happen, until all commands have ended, or one has not within what is allowed.
    fn play(
        &mut self,
        number: u64,
        mut events: Vec<(Duration, Event)>,
        jobs: &mut Vec<Job>,
        allowed: Duration,
    ) -> Result<()> {
        let (started, mut dice) = (Instant::now(), Dice(self.options.seed ^ number << 20));
        let said = self.parts.pool.scratch.path().join("said");
        loop {
            while events.first().is_some_and(|(at, _)| *at <= started.elapsed()) {
                match events.remove(0).1 {
                    Event::Launch(launch, place, word) => {
                        let client = &self.parts.pool.client;
                        jobs.push(Job::launch(client, launch.kind, &place, &word, launch.may_run_here, &said)?);
                    }
                    Event::Fault(fault) => {
                        let Some((after, heal)) = self.parts.begin(fault, jobs, &mut dice) else { continue };
                        self.tally.fault(fault.kind());
                        events.extend(heal.map(|heal| (started.elapsed() + after, Event::Heal(heal))));
                        events.sort_by_key(|(at, _)| *at);
                    }
                    Event::Heal(heal) => self.parts.heal(heal)?,
                }
            }
            let are_over = jobs.iter_mut().map(Job::poll).fold(true, |all, one| all & one);
            let is_late = jobs.iter().any(|job| job.pid().is_some() && job.took() > allowed);
            if events.is_empty() && are_over || is_late {
                // What was to be made good later is made good now.
                events.drain(..).try_for_each(|(_, event)| {
                    if let Event::Heal(heal) = event { self.parts.heal(heal) } else { Ok(()) }
                })?;
                return Ok(());
            }
            pause(LOOK);
        }
    }
}

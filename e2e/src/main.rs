//! The suite's binary: `e2e suite`, `e2e real`, `e2e demo`, `e2e bench launch`; started by `cargo xtask`.

use e2e::client::Client;
use e2e::empty_root::{self, EmptyRoot};
use e2e::error::{Error, Result};
use e2e::pool::{Options, Pool};
use e2e::report::{Report, Verdict};
use e2e::{
    bench, chaos, contract, cut, demo, differ, failure, foreign, hostile, hubs, internet, machine, real, roam,
    scenario, scratch::Scratch, situations, slow, suite, supervise,
};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};

const USAGE: &str = "usage: e2e suite [--filter TEXT] [--jobs N] [--keep] [--verbose] [--remrun PROGRAM]
       e2e real [--filter TEXT] [--keep]
       e2e foreign [--only SUITE] [--filter TEST,...] [--user root|nobody] [--each] [--jobs N] [--limit SECONDS] [--json]
       e2e machine [--filter TEXT]
       e2e differ [--seed N] [--programs N] [--minutes M] [--program FILE] [--jobs N] [--no-shrink] [--json] [--keep]
       e2e chaos [--seed N] [--minutes M] [--round K] [--keep]
       e2e demo [--keep]
       e2e hostile worker TOKEN MANNER
       e2e bench slow-link [--json] [--full] [--only PART] [--draw FOLDER] [--from FILE]
       e2e bench tasks [--json] [--only PART] [--hosts N] [--rounds N]
       e2e bench guest [--json] [--quick] [--only PART,...] [--arrangements NAME,...] [--pairs N] [--block SECONDS] [--seed N]
                 [--memory-mib N] [--guest-memory-mib N] [--memory-left-mib N] [--disk-mib N]
       e2e bench forecast [--json] [--quick] [--alone] [--only PART] [--load NAME] [--rounds N] [--seed N]
                          [--traces FOLDER]
       e2e bench library [--json] [--quick] [--only OWNERS] [--rounds N] [--work SECONDS] [--link NAME] [--seed N]
       e2e bench files [--json] [--rounds N] [--part N] [--only NAME]
       e2e bench busy [--json] [--rounds N] [--long-rounds N] [--no-demo] [--only machine|machines|demo]
                      [--loads LOAD,...] [--explain]
       e2e bench launch [--json] [--rounds N] [--no-build] [--no-peers] [--apart] [--only cold]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == empty_root::SUBCOMMAND) {
        return enter_empty_root(&arguments[1..]);
    }
    if let [first, file] = &arguments[..]
        && first == bench::CALLS_SUBCOMMAND
    {
        return bench::calls(Path::new(file));
    }
    if arguments.first().is_some_and(|first| first == bench::REPLAY_SUBCOMMAND) {
        return bench::replay(&arguments[1..]);
    }
    if arguments.first().is_some_and(|first| first == bench::LOAD_SUBCOMMAND) {
        return bench::load(&arguments[1..]);
    }
    if arguments.first().is_some_and(|first| first == bench::SPIN_SUBCOMMAND) {
        return bench::spin(&arguments[1..]);
    }
    if arguments.first().is_some_and(|first| first == bench::SCAN_SUBCOMMAND) {
        return bench::scan(&arguments[1..]);
    }
    if arguments.first().is_some_and(|first| first == e2e::hostile::SUBCOMMAND) {
        return e2e::hostile::main(&arguments[1..]);
    }
    if arguments.first().is_some_and(|first| first == e2e::swarm::SUBCOMMAND) {
        return e2e::swarm::main(&arguments[1..]);
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    supervise::default_signals();
    let outcome = if supervise::is_child() { work(&arguments) } else { supervise::parent() };
    outcome.unwrap_or_else(|error| {
        eprintln!("e2e: {error}");
        ExitCode::FAILURE
    })
}

fn enter_empty_root(arguments: &[String]) -> ExitCode {
    let [mount_point, program, state, mark, rest @ ..] = arguments else { return ExitCode::FAILURE };
    let path = |text: &String| PathBuf::from(text);
    let place =
        EmptyRoot { mount_point: path(mount_point), program: path(program), state: path(state), mark: path(mark) };
    eprintln!("e2e: {}", place.exec(rest));
    ExitCode::FAILURE
}

/// The options of the command line, taken out one by one.
struct Arguments(Vec<String>);

impl Arguments {
    fn flag(&mut self, name: &str) -> bool {
        let at = self.0.iter().position(|argument| argument == name);
        at.map(|at| self.0.remove(at)).is_some()
    }

    fn value(&mut self, name: &str) -> Result<Option<String>> {
        let Some(at) = self.0.iter().position(|argument| argument == name) else { return Ok(None) };
        if at + 1 >= self.0.len() {
            return Err(Error::Missing(format!("{name} wants a value\n{USAGE}")));
        }
        self.0.remove(at);
        Ok(Some(self.0.remove(at)))
    }

    fn number<T: FromStr>(&mut self, name: &str, default: T) -> Result<T> {
        Ok(self.number_if_given(name)?.unwrap_or(default))
    }

    fn number_if_given<T: FromStr>(&mut self, name: &str) -> Result<Option<T>> {
        let Some(text) = self.value(name)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| Error::Missing(format!("{name} wants a number, not {text}")))
    }

    fn end(self) -> Result<()> {
        match self.0.first() {
            None => Ok(()),
            Some(other) => Err(Error::Missing(format!("unknown argument {other}\n{USAGE}"))),
        }
    }
}

fn work(arguments: &[String]) -> Result<ExitCode> {
    let mut rest = Arguments(arguments.iter().skip(1).cloned().collect());
    let good = match arguments.first().map(String::as_str) {
        Some("suite") => {
            let filter = rest.value("--filter")?.unwrap_or_default();
            let jobs = rest.number("--jobs", 4)?;
            let (keep, verbose) = (rest.flag("--keep"), rest.flag("--verbose"));
            let remrun = rest.value("--remrun")?;
            rest.end()?;
            match remrun {
                Some(program) => suite_with(Path::new(&program), &filter, jobs, verbose)?,
                None => suite_on_pool(&filter, jobs, keep, verbose)?,
            }
        }
        Some("real") => {
            let filter = rest.value("--filter")?.unwrap_or_default();
            let keep = rest.flag("--keep");
            rest.end()?;
            let report = Report::new(true);
            real::run(&filter, keep, &report)?;
            report.close()
        }
        Some("foreign") => foreign_suites(rest)?,
        Some("machine") => {
            let filter = rest.value("--filter")?.unwrap_or_default();
            rest.end()?;
            let report = Report::new(true);
            machine::run(&filter, &report)?;
            report.close()
        }
        Some("differ") => differ_by_chance(rest)?,
        Some("chaos") => chaos_by_chance(rest)?,
        Some("demo") => {
            let keep = rest.flag("--keep");
            rest.end()?;
            demo::run(keep)?
        }
        Some("bench") => {
            if rest.flag("slow-link") {
                bench_slow_link(rest)?;
            } else if rest.flag("tasks") {
                bench_tasks(rest)?;
            } else if rest.flag("guest") {
                bench_guest(rest)?;
            } else if rest.flag("forecast") {
                bench_forecast(rest)?;
            } else if rest.flag("library") {
                bench_library(rest)?;
            } else if rest.flag("busy") {
                bench_busy(rest)?;
            } else if rest.flag("files") {
                bench_files(rest)?;
            } else if rest.flag("launch") {
                bench_launch(rest)?;
            } else {
                return Err(Error::Missing(USAGE.to_owned()));
            }
            true
        }
        _ => return Err(Error::Missing(USAGE.to_owned())),
    };
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn differ_by_chance(mut rest: Arguments) -> Result<bool> {
    let minutes: Option<u64> = rest.number_if_given("--minutes")?;
    let seed = if minutes.is_some() { differ::Options::seed_of_today() } else { 1 };
    let usual = differ::Options::suite();
    let options = differ::Options {
        seed: rest.number("--seed", seed)?,
        programs: rest.number("--programs", usual.programs)?,
        time: minutes.map(|minutes| Duration::from_secs(minutes * 60)),
        file: rest.value("--program")?.map(PathBuf::from),
        jobs: rest.number("--jobs", usual.jobs)?,
        shrink: !rest.flag("--no-shrink"),
        json: rest.flag("--json"),
        keep: rest.flag("--keep"),
    };
    rest.end()?;
    differ::run(&options)
}

fn chaos_by_chance(mut rest: Arguments) -> Result<bool> {
    let seed = rest.number("--seed", differ::Options::seed_of_today())?;
    let mut options = chaos::Options::campaign(seed, rest.number("--minutes", 10)?);
    options.only = rest.number_if_given("--round")?;
    options.keep = rest.flag("--keep");
    rest.end()?;
    chaos::run(&options)
}

fn foreign_suites(mut rest: Arguments) -> Result<bool> {
    let options = foreign::Options {
        only: rest.value("--only")?,
        filter: rest.value("--filter")?.unwrap_or_default(),
        jobs: rest.number("--jobs", 3)?,
        limit: Duration::from_secs(rest.number("--limit", 20)?),
        each: rest.flag("--each"),
        user: rest.value("--user")?,
        json: rest.flag("--json"),
    };
    rest.end()?;
    foreign::run(&options)
}

fn bench_launch(mut rest: Arguments) -> Result<()> {
    let only = rest.value("--only")?;
    only_one_of(only.as_deref(), &["cold"])?;
    let options = bench::Options {
        json: rest.flag("--json"),
        rounds: rest.number("--rounds", 50)?,
        build: !rest.flag("--no-build"),
        peers: !rest.flag("--no-peers"),
        apart: rest.flag("--apart"),
        cold_only: only.is_some(),
    };
    rest.end()?;
    bench::launch::run(&options)
}

fn bench_files(mut rest: Arguments) -> Result<()> {
    let options = bench::files::Options {
        json: rest.flag("--json"),
        rounds: rest.number("--rounds", 3)?,
        part: rest.number("--part", 1)?,
        only: rest.value("--only")?,
    };
    rest.end()?;
    bench::files::run(&options)
}

fn bench_busy(mut rest: Arguments) -> Result<()> {
    let options = bench::busy::Options {
        json: rest.flag("--json"),
        rounds: rest.number("--rounds", 20)?,
        long_rounds: rest.number("--long-rounds", 3)?,
        no_demo: rest.flag("--no-demo"),
        only: rest.value("--only")?,
        loads: rest.value("--loads")?.map_or(Vec::new(), |list| list.split(',').map(str::to_owned).collect()),
        explains: rest.flag("--explain"),
    };
    rest.end()?;
    only_one_of(options.only.as_deref(), &bench::busy::PARTS)?;
    bench::busy::run(&options)
}

fn bench_library(mut rest: Arguments) -> Result<()> {
    let mut options = bench::library::Options::new(rest.flag("--quick"));
    options.json = rest.flag("--json");
    options.only = rest.value("--only")?;
    options.rounds = rest.number("--rounds", options.rounds)?;
    options.work_s = rest.number("--work", options.work_s)?;
    options.seed = rest.number("--seed", options.seed)?;
    options.link = rest.value("--link")?.unwrap_or(options.link);
    rest.end()?;
    only_one_of(options.only.as_deref(), &bench::library::parts())?;
    bench::library::run(&options)
}

fn bench_guest(mut rest: Arguments) -> Result<()> {
    let mut options = bench::guest::Options::new(rest.flag("--quick"));
    options.json = rest.flag("--json");
    options.only = rest.value("--only")?.map_or(Vec::new(), |list| list.split(',').map(str::to_owned).collect());
    if let Some(names) = rest.value("--arrangements")? {
        options.ways = bench::guest::Way::list(&names)?;
    }
    options.pairs = rest.number("--pairs", options.pairs)?;
    options.block_s = rest.number("--block", options.block_s)?;
    options.seed = rest.number("--seed", options.seed)?;
    options.memory_mib = rest.number("--memory-mib", options.memory_mib)?;
    options.guest_memory_mib = rest.number("--guest-memory-mib", options.guest_memory_mib)?;
    options.memory_left_mib = rest.number_if_given("--memory-left-mib")?;
    options.disk_mib = rest.number("--disk-mib", options.disk_mib)?;
    rest.end()?;
    options.only.iter().try_for_each(|only| only_one_of(Some(only), &bench::guest::parts()))?;
    bench::guest::run(&options)
}

fn bench_tasks(mut rest: Arguments) -> Result<()> {
    let options = bench::tasks::Options {
        json: rest.flag("--json"),
        only: rest.value("--only")?,
        hosts: rest.number_if_given("--hosts")?,
        rounds: rest.number("--rounds", 5)?,
    };
    rest.end()?;
    only_one_of(options.only.as_deref(), &bench::tasks::parts())?;
    bench::tasks::run(&options)
}

fn bench_forecast(mut rest: Arguments) -> Result<()> {
    let ours = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/traces");
    let options = bench::forecast::Options {
        json: rest.flag("--json"),
        quick: rest.flag("--quick"),
        alone: rest.flag("--alone"),
        load: rest.value("--load")?,
        only: rest.value("--only")?,
        rounds: rest.number_if_given("--rounds")?,
        seed: rest.number("--seed", 1)? as u64,
        traces: PathBuf::from(rest.value("--traces")?.unwrap_or_else(|| ours.to_owned())),
    };
    rest.end()?;
    only_one_of(options.only.as_deref(), &bench::forecast::parts())?;
    bench::forecast::run(&options)
}

fn only_one_of(only: Option<&str>, parts: &[&str]) -> Result<()> {
    match only.filter(|only| !parts.contains(only)) {
        Some(other) => Err(Error::Missing(format!("--only {other}: there are {}", parts.join(", ")))),
        None => Ok(()),
    }
}

fn bench_slow_link(mut rest: Arguments) -> Result<()> {
    let options = bench::slow_link::Options {
        json: rest.flag("--json"),
        full: rest.flag("--full"),
        only: rest.value("--only")?,
        draw: rest.value("--draw")?.map(PathBuf::from),
        from: rest.value("--from")?.map(PathBuf::from),
    };
    rest.end()?;
    only_one_of(options.only.as_deref(), &bench::slow_link::parts())?;
    bench::slow_link::run(&options)
}

/// The table of cases with any program in the place of `remrun`: tries the cases themselves, without a pool.
fn suite_with(remrun: &Path, filter: &str, jobs: usize, verbose: bool) -> Result<bool> {
    let scratch = Scratch::new()?;
    let bin = scratch.folder("bin", 0o755)?;
    let home = scratch.folder("client/home", 0o755)?;
    let mut client = Client::new(&bin, home.parent().unwrap_or(&home), scratch.path(), 0);
    client.remrun = remrun.to_path_buf();
    let mut nobody = client.clone();
    nobody.user = e2e::client::NOBODY;
    let place = scratch.folder("place", 0o755)?;
    let report = Report::new(verbose);
    suite::run(filter, jobs, &place, &report, |case| Ok(if case.as_nobody { &nobody } else { &client }))?;
    Ok(report.close())
}

fn suite_on_pool(filter: &str, jobs: usize, keep: bool, verbose: bool) -> Result<bool> {
    let report = Report::new(verbose);
    let mut options = Options::new(2, 2)?;
    (options.nobody, options.guests) = (true, false);
    let pool = Pool::start(options)?;
    let place = pool.place("");
    std::fs::create_dir_all(&place).map_err(|source| Error::Io { what: "cannot make the place".into(), source })?;
    let nobody = pool.nobody.clone();
    suite::run(filter, jobs, &place, &report, |case| match (case.as_nobody, &nobody) {
        (true, Some(nobody)) => Ok(nobody),
        (true, None) => Err("needs a client of an ordinary user".to_owned()),
        (false, _) => Ok(&pool.client),
    })?;
    let started = Instant::now();
    let wrong = pool.stop(keep)?;
    let verdict = if wrong.is_empty() { Verdict::Passed } else { Verdict::Failed(wrong) };
    report.add("pool/stops and leaves nothing", verdict, started.elapsed().max(Duration::from_millis(1)));
    let options = Options { guests: false, ..Options::new(2, 2)? };
    // What takes longest begins first.
    let works = [
        hostile::works,
        failure::works,
        situations::works,
        cut::works,
        contract::works,
        slow::works,
        roam::works,
        internet::works,
        hubs::works,
    ];
    scenario::beside(&works.iter().flat_map(|works| works(&options, filter, &report)).collect::<Vec<_>>());
    for run in [contract::run, failure::run, slow::run, chaos::run_in_suite, differ::run_in_suite] {
        run(&options, filter, &report);
    }
    Ok(report.close())
}

//! The project's own commands: `cargo xtask demo`, `test`, `differ`, `chaos`, `bench`, `foreign`, `machine`, `fuzz`, `package`, `tidy`.

mod fuzz;
mod machine;
mod need;
mod package;
mod run;
mod test;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask <command>

  demo [--keep] [--dev]              the main job on real input: build it on workers with empty roots, compare, clean up; --dev: with a quick build
       [--built]                     with the quick build that is there
  test [--real | --real-only]        all tests, then the end-to-end suite; --real adds the heavy ones on real input
       [--filter TEXT]               only end-to-end tests whose name contains TEXT, and no others
       [--release]                   the end-to-end tests with a release build
  differ [--minutes M] [--seed N]    programs drawn by chance, run here and remotely, and compared; a failure is shrunk
         [--programs N] [--program FILE] [--jobs N] [--json]
  chaos [--minutes M] [--seed N]     parts killed and stopped, links cut, disks full, by chance, beneath commands that are judged
  bench launch [--json]              what a launch costs, beside local runs and the peers that install here
       [--rounds N] [--no-build] [--no-peers] [--apart]
       [--only cold]                 first uses alone
  bench slow-link [--json]           what commands and jobs cost over links with delay and little rate, made by the testbed
       [--full] [--only PART]        all points of all curves, which takes hours; one part alone
       [--draw FOLDER]               draw the figures there, as SVG
       [--from FILE]                 draw what an earlier run printed with --json, and measure nothing
  bench forecast [--json]            what hosts have to spare, measured and foretold, against what a process then got
       [--quick] [--alone]           in a minute or two; in a cgroup that outweighs what else runs on the machine
       [--only PART]                 traces, model, live, hour (which takes one)
       [--load NAME] [--rounds N] [--seed N] [--traces FOLDER]
  bench tasks [--json]               what the hub's task table takes for each event, by the clock and in steps
       [--only PART] [--hosts N]     one part, or one size, alone; 0: the slower syncs alone
       [--rounds N]                  how often each run is repeated, in a fresh process
  bench guest [--json] [--quick]     what an owner notices of guests: beside them, their peers' ways and ours; --quick: two minutes, to see it work
       [--only PART,...]             work, probe, disk, network, share, memory, memory-unpinned, harvest
       [--arrangements NAME,...]     equal, same, nice19, boinc, ours
       [--pairs N] [--block SECONDS] [--seed N]
       [--memory-mib N] [--guest-memory-mib N] [--memory-left-mib N] [--disk-mib N]
  bench files [--json]               many and large files, found, removed, piped and written, beside the same here
       [--rounds N] [--part N]       a part of N of the files and bytes, to see it work
       [--only NAME]                 find, du, git, pipe_in, pipe_out, write, remove
  bench busy [--json] [--no-demo]    commands sent to busy machines, beside the same here under the same load
       [--only PART] [--loads LOAD,...] machine, machines, demo; none, as_many, twice, four_times, build
       [--rounds N] [--long-rounds N] [--explain]  how often; what the slowest of each kind waited for
  bench library [--json] [--quick]   a gene library searched on two machines with owners: fixed chunks beside chunks by forecast
       [--only OWNERS]               busy_away, busy_light, changing
       [--rounds N] [--work SECONDS] [--seed N]
       [--link NAME]                 between client and workers: a preset of the testbed
  foreign [--json]                   suites of others (sed, bash, pjdfstest, coreutils), each test here and through remrun
       [--only SUITE] [--filter TEST,...]
       [--user root|nobody]          both, one after the other, otherwise
       [--each]                      each program that a test starts is a command of remrun, not the test (sed, coreutils)
       [--jobs N] [--limit SECONDS]  tests at a time; one that takes longer here is left out
  machine [--filter TEXT]            what spares an owner, on an emulated machine: control groups of version 2, compressed swap, the kernel's links
  fuzz [--target NAME] [--seconds N] every parser of bytes from elsewhere, and the task table beside its model, on bytes that a fuzzer chooses
  package [--programs FOLDER]        Debian packages: gleaner, libgleaner-dev; of a release build, or of the programs there
       [--to FOLDER] [--quick]       into target/package, or there; packed less closely
  testbed [--link NAME] -- CMD       run CMD on a host of its own at the end of a slow link; --help tells all
  tidy [--quick]                     layers, forbidden imports, map, sizes, format, lints; --quick without the lints";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["demo", rest @ ..] => demo(rest),
        ["test", rest @ ..] => test::run(rest),
        ["differ", rest @ ..] => differ(rest),
        ["chaos", rest @ ..] => chaos(rest),
        ["bench", rest @ ..] => bench(rest),
        ["foreign", rest @ ..] => foreign(rest),
        ["machine", rest @ ..] => machine::run(rest),
        ["fuzz", rest @ ..] => need::programs(&need::FUZZ).and_then(|()| fuzz::run(rest)),
        ["package", rest @ ..] => package::run(rest),
        ["testbed", rest @ ..] => testbed(rest),
        ["tidy", rest @ ..] => tidy::run(rest.contains(&"--quick")),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

fn demo(asked: &[&str]) -> Result<(), String> {
    need::root("the demo")?;
    need::programs(&need::DEMO)?;
    let rest: Vec<&str> = asked.iter().copied().filter(|word| !["--dev", "--built"].contains(word)).collect();
    let programs = match asked.contains(&"--built") {
        true => run::built(false)?,
        false => run::build(!asked.contains(&"--dev"))?,
    };
    run::e2e(&programs, &[&["demo"], &rest[..]].concat())
}

fn differ(rest: &[&str]) -> Result<(), String> {
    need::root("the harness")?;
    need::programs(need::TESTS)?;
    let programs = run::build(false)?;
    run::e2e(&programs, &[&["differ"], rest].concat())
}

fn chaos(rest: &[&str]) -> Result<(), String> {
    need::root("the campaign")?;
    need::programs(need::TESTS)?;
    let programs = run::build(false)?;
    run::e2e(&programs, &[&["chaos"], rest].concat())
}

fn foreign(rest: &[&str]) -> Result<(), String> {
    need::root("the suites of others")?;
    need::programs(&[&need::DEMO[..], &need::FOREIGN].concat())?;
    let programs = run::build(false)?;
    run::e2e(&programs, &[&["foreign"], rest].concat())
}

fn bench(rest: &[&str]) -> Result<(), String> {
    if rest.contains(&"forecast") && !rest.contains(&"traces") && !rest.contains(&"model") {
        need::root("measuring loads in cgroups")?;
    }
    if rest.contains(&"tasks") || rest.contains(&"forecast") {
        // Nothing else is needed.
        let programs = run::build(true)?;
        return run::e2e(&programs, &[&["bench"], rest].concat());
    }
    need::root("the benchmark")?;
    need::programs(&need::DEMO)?;
    let slow_link = rest.contains(&"slow-link");
    if slow_link || rest.contains(&"--link") {
        need::programs(&need::TESTBED)?;
    }
    if slow_link {
        need::wanted(&need::TRACING);
    }
    let alone = ["--no-peers", "guest", "library", "busy", "files"].iter().any(|word| rest.contains(word));
    if slow_link || !alone {
        need::wanted(&need::PEERS);
    }
    let programs = run::build(true)?;
    run::e2e(&programs, &[&["bench"], rest].concat())
}

fn testbed(rest: &[&str]) -> Result<(), String> {
    need::root("the testbed")?;
    need::programs(&need::TESTBED)?;
    run::testbed(rest)
}

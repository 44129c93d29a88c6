//! The arguments of simulations.

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use std::path::PathBuf;
use std::str::FromStr;

/// `gleaner sim`.
#[derive(Clone, Debug, Args)]
pub struct Sim {
    /// What is simulated.
    #[command(subcommand)]
    pub what: SimCommand,
}

/// What is simulated.
#[derive(Clone, Debug, Subcommand)]
pub enum SimCommand {
    /// Guests on owners' machines: to linger, or to leave when the owner comes back
    Linger(Linger),
    /// A parallel job on eight machines, some of which are in use: to linger, or to go on with fewer
    Parallel(Parallel),
    /// What owners' bursts leave to a guest: the closed form beside a burst-by-burst run
    Bursts(Bursts),
    /// Work that can be divided anywhere, on owners' machines: chunks of one size, falling ones, or by forecast
    Chunks(Chunks),
    /// List what can be set and swept by its name
    Parameters,
}

/// A parameter and what it is to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Set {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: f64,
}

impl FromStr for Set {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or("it has the form NAME=VALUE")?;
        Ok(Self { name: name.to_owned(), value: number(value)? })
    }
}

/// A parameter and the values that it takes one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// Its name.
    pub name: String,
    /// At least one.
    pub values: Vec<f64>,
}

/// Steps of a sweep if nobody says how many, and most of them.
const STEPS: usize = 5;
const STEPS_MAX: usize = 1_000;

impl FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, values) =
            text.split_once('=').ok_or("it has the form NAME=FROM..TO, NAME=FROM..TO:STEPS or NAME=A,B,C")?;
        let values = match values.split_once("..") {
            Some((from, rest)) => {
                let (to, steps) = match rest.split_once(':') {
                    Some((to, steps)) => (to, steps.parse().map_err(|_| format!("`{steps}` is no number of steps"))?),
                    None => (rest, STEPS),
                };
                if !(2..=STEPS_MAX).contains(&steps) {
                    return Err(format!("a sweep has 2 to {STEPS_MAX} steps, and not {steps}"));
                }
                let (from, to) = (number(from)?, number(to)?);
                (0..steps).map(|at| from + (to - from) * at as f64 / (steps - 1) as f64).collect()
            }
            None => values.split(',').map(number).collect::<Result<Vec<f64>, String>>()?,
        };
        Ok(Self { name: name.to_owned(), values })
    }
}

fn number(text: &str) -> Result<f64, String> {
    let value = text.trim().parse().ok().filter(|value: &f64| value.is_finite());
    value.ok_or_else(|| format!("`{text}` is no number"))
}

/// What measurements of processors are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Unit {
    /// 0 to 100
    Percent,
    /// 0 to 1
    Part,
}

/// `gleaner sim linger`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = HELP)]
pub struct Linger {
    /// Machines; the published figures are of 64
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub machines: Option<u32>,
    /// Worlds that are simulated for each figure
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub replicates: u32,
    /// The first world's seed; the next has the next one
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Loads: W1, W2 or both (a sweep: W1)
    #[arg(long = "load", value_name = "LOAD", value_delimiter = ',', ignore_case = true, value_parser = ["W1", "W2"])]
    pub loads: Vec<String>,
    /// Policies: LL, LF, IE, PM, FL or several of them (all)
    #[arg(long = "policy", value_name = "POLICY", value_delimiter = ',', ignore_case = true, value_parser = ["LL", "LF", "IE", "PM", "FL"])]
    pub policies: Vec<String>,
    /// Set a parameter; `gleaner sim parameters` lists them. May be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<Set>,
    /// Go through values of a parameter: FROM..TO in five steps, FROM..TO:STEPS, or a list A,B,C
    #[arg(long, value_name = "NAME=VALUES")]
    pub sweep: Option<Sweep>,
    /// Owners from files.
    #[command(flatten)]
    pub measured: Measured,
    /// Draw it (SVG)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub draw: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Owners as they were measured.
#[derive(Clone, Debug, Args)]
pub struct Measured {
    /// Owners as they were measured: the use of a machine's processor, a value a line or a table in CSV. Machines go through them in turn
    #[arg(long, value_name = "FILE", num_args = 1.., value_hint = ValueHint::FilePath, requires = "interval")]
    pub trace: Vec<PathBuf>,
    /// Seconds from one value of these to the next
    #[arg(long, value_name = "SECONDS", requires = "trace")]
    pub interval: Option<f64>,
    /// Which column of those that have several: a part of its name, or its number from 1
    #[arg(long, value_name = "NAME", requires = "trace")]
    pub column: Option<String>,
    /// What their values are in; if it is not said: percent if any of them is above 1
    #[arg(long, value_name = "UNIT", requires = "trace")]
    pub unit: Option<Unit>,
}

/// `gleaner sim chunks`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = CHUNKS_HELP)]
pub struct Chunks {
    /// Machines, of one processor each
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub machines: u32,
    /// What the work needs, in seconds of a whole processor for each machine
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0)]
    pub work_s: f64,
    /// Records in it
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub records: u64,
    /// What a chunk costs besides its records, in seconds; several values one after the other
    #[arg(long, value_name = "SECONDS", value_delimiter = ',', default_values_t = [0.1, 1.0, 10.0])]
    pub overhead_s: Vec<f64>,
    /// Chunks for each machine that fixed chunks come to
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [2, 4, 8, 16, 32, 64, 128], value_parser = clap::value_parser!(u32).range(2..=100_000))]
    pub fixed: Vec<u32>,
    /// Machines are from 1 to so many times as fast, evenly by the logarithm
    #[arg(long, value_name = "TIMES", default_value_t = 1.0)]
    pub speed_max: f64,
    /// Worlds that are simulated for each figure
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    pub replicates: u32,
    /// The first world's seed; the next has the next one
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Seconds from one measurement of a machine to the next; if it is not said: 10, or those of --interval where these are more
    #[arg(long, value_name = "SECONDS")]
    pub every_s: Option<f64>,
    /// Set what owners are like; `gleaner sim parameters` lists it. May be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<Set>,
    /// Owners from files.
    #[command(flatten)]
    pub measured: Measured,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `gleaner sim parallel`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = PARALLEL_HELP)]
pub struct Parallel {
    /// Machines that the job wants
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub nodes: u32,
    /// The part of a processor that its owner uses, of a machine that is in use
    #[arg(long, value_name = "PART", default_value_t = 0.2)]
    pub used: f64,
    /// The job's shape: sor, water or fft, or several of them (all)
    #[arg(long = "shape", value_name = "SHAPE", value_delimiter = ',', ignore_case = true, value_parser = ["sor", "water", "fft"])]
    pub shapes: Vec<String>,
    /// Milliseconds that each machine computes between two waits for the others, instead of the shape's, where all are free
    #[arg(long, value_name = "MS")]
    pub compute_ms: Option<f64>,
    /// Milliseconds that they exchange data at each, instead of the shape's
    #[arg(long, value_name = "MS")]
    pub exchange_ms: Option<f64>,
    /// What owners' processes are like.
    #[command(flatten)]
    pub owners: OwnersBursts,
    /// Jobs that are gone through burst by burst, beside the closed form
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    pub replicates: u32,
    /// Phases of each
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub phases: u32,
    /// The first job's seed; the next has the next one
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Draw it (SVG)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub draw: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// How an owner's processes run and rest.
#[derive(Clone, Copy, Debug, Args)]
pub struct OwnersBursts {
    /// Mean milliseconds that an owner's process runs before it rests
    #[arg(long, value_name = "MS", default_value_t = 20.0)]
    pub run_ms: f64,
    /// Square of deviation over mean of such times
    #[arg(long, value_name = "V", default_value_t = 4.0)]
    pub burst_variation: f64,
    /// Context switch, in microseconds
    #[arg(long, value_name = "US", default_value_t = 100.0)]
    pub switch_us: f64,
}

/// `gleaner sim bursts`.
#[derive(Clone, Copy, Debug, Args)]
pub struct Bursts {
    /// What owners' processes are like.
    #[command(flatten)]
    pub owners: OwnersBursts,
    /// Seconds that are gone through burst by burst
    #[arg(long, value_name = "SECONDS", default_value_t = 20_000.0)]
    pub seconds: f64,
    /// Seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What help and manual say of it.
const HELP: &str = "\
Linger-Longer's study of sequential jobs (Ryu, Hollingsworth, 1998): W1 is 128 jobs of 600 s that are submitted at once, W2 16 jobs of 1800 s. LL lingers with the \
owner and moves when that pays by the last two seconds' use, LF never moves, IE (Berkeley NOW) leaves at once, PM (Condor) waits for 60 s and leaves then. FL, ours, lingers \
with foresight: it weighs what staying and moving will take by what hosts' owners did before and what jobs needed that have ended.

For each measure: what is simulated here, the mean of all worlds and within how much of it the true mean lies nineteen times in twenty; what was published; \
and whether that lies where 95% of single worlds do. Owners' behaviour was fitted to the figures that were published, so that agreement alone proves little.

Examples:
  gleaner sim linger --draw table.svg                              the published table again
  gleaner sim linger --sweep idle-part=0.1..0.9 --draw idle.svg    by the part of the time that owners are away
  gleaner sim linger --set jobs=500 --set job-sigma=1 --policy LL,FL
  gleaner sim linger --trace vm*.csv --interval 300 --column 'CPU usage [%]'
  gleaner sim linger --machines 100000 --set jobs-per-machine=2 --replicates 1 --load W1

Traces: columns are apart by a comma, a semicolon or a tab; a first line without numbers has their names. A machine is idle once it has used less than 10% of its \
processor for 60 s; if there is a column with the name `input`, also only while that is 0. Machines go through the files in turn, each from a place that the seed draws, and from the \
beginning again at the end.";

const CHUNKS_HELP: &str = "\
The records of a library are searched on owners' machines, in chunks, each of which costs a launch besides (AppLeS: Spring, Wolski, 1998). Compared are equal parts; self-scheduling by fixed chunks; \
guided self-scheduling and factoring, whose chunks fall in size; one chunk for each machine by its forecast; chunks by forecasts and their intervals, ours; and an oracle, which knows what will be left \
over, and is a bound. Machines do the same in each of these. They are measured before and meanwhile, and foretold as a worker does it: the next measurement, and the mean of the next thirty.

For each: until when all is done and within how much of that the true mean lies nineteen times in twenty; that over the oracle's, in the mean and in the worst world of twenty; how long the first machine \
that had nothing to do any more waited for the last; how many chunks there were; and by how much ours is done sooner (below 0) or later, world by world.

Examples:
  gleaner sim chunks
  gleaner sim chunks --overhead-s 0.02 --work-s 60
  gleaner sim chunks --trace ec2*.csv bitbrains.csv --interval 300 --column 'CPU usage [%]' --work-s 14400";

const PARALLEL_HELP: &str = "\
A bulk-synchronous job: all machines compute, wait for one another, exchange data, and so on. The machines that are in use are lingered on (the job gets what their owners' bursts leave), or \
left, and the job goes on with the others: with all that are free, or with the largest power of two, which many programs ask for. Shown is how many times longer the job takes than with all \
machines free. The shapes' times are assumed; set them by --compute-ms and --exchange-ms.

Examples:
  gleaner sim parallel --draw parallel.svg
  gleaner sim parallel --used 0.5 --shape fft";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_are_ranges_or_lists() {
        let values = |text: &str| text.parse::<Sweep>().map(|sweep| sweep.values);
        assert_eq!(values("a=0..1:3"), Ok(vec![0.0, 0.5, 1.0]));
        assert_eq!(values("a=10..50"), Ok(vec![10.0, 20.0, 30.0, 40.0, 50.0]));
        assert_eq!(values("a=1,4,2"), Ok(vec![1.0, 4.0, 2.0]));
        assert_eq!(values("a=7"), Ok(vec![7.0]));
        assert!(values("a").expect_err("no values").contains("NAME=FROM..TO"));
        assert_eq!(values("a=1..x"), Err("`x` is no number".to_owned()));
        assert_eq!(values("a=1..2:1"), Err("a sweep has 2 to 1000 steps, and not 1".to_owned()));
        assert_eq!(values("a=1..2:many"), Err("`many` is no number of steps".to_owned()));
        assert_eq!(values("a=1,,2"), Err("`` is no number".to_owned()));
        assert_eq!("a=nan".parse::<Set>(), Err("`nan` is no number".to_owned()));
        assert_eq!("a".parse::<Set>(), Err("it has the form NAME=VALUE".to_owned()));
    }
}

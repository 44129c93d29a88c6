//! The arguments of forecasting.

use clap::{Args, ValueHint};
use std::path::PathBuf;

/// `gleaner forecast`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = HELP)]
pub struct Forecast {
    /// A series to forecast: a file with a value a line, or a table; `-` for standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub trace: Option<PathBuf>,
    /// Sense for so many seconds what this machine has to spare, where no worker does
    #[arg(long, value_name = "SECONDS", conflicts_with = "trace", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub live: Option<u64>,
    /// Without --trace and --live: folder of the worker that is asked, if it was started with another [env: GLEANER_STATE_DIR]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub state: Option<PathBuf>,
    /// With --live: seconds from one reading to the next
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub every: u64,
    /// Which column of the table: a part of its name, or its number from 1
    #[arg(long, value_name = "NAME")]
    pub column: Option<String>,
    /// How many values ahead: forecasts are of their mean; several, apart by commas
    #[arg(long, value_name = "STEPS", value_delimiter = ',', default_values_t = [1, 30], value_parser = horizon)]
    pub horizon: Vec<usize>,
    /// Count errors from the Nth value on: the first forecasts know little
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub from: usize,
    /// Show the pox plot whose slope is the Hurst parameter
    #[arg(long, requires = "trace")]
    pub pox: bool,
    /// Draw series, forecasts and intervals into a file, as SVG; with --pox, the pox plot
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "trace")]
    pub draw: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn horizon(text: &str) -> Result<usize, String> {
    let steps = text.parse().map_err(|_| "it is a number of values".to_owned())?;
    match steps {
        1..=sched::forecast::HORIZON_MAX => Ok(steps),
        _ => Err(format!("it lies between 1 and {}", sched::forecast::HORIZON_MAX)),
    }
}

/// What help and manual say of it.
const HELP: &str = "\
Examples:
  gleaner forecast                                          what this machine has to spare, as its worker has sensed
  gleaner forecast --trace load.csv                         the only column of numbers beside the first
  gleaner forecast --trace vm.csv --column 'CPU usage [%]'  one of several
  gleaner forecast --trace load.csv --from 100 --json
  gleaner forecast --trace load.csv --horizon 6 --pox       the mean of the next six values
  sar -u 1 600 | awk '/all/ {print 100 - $NF}' | gleaner forecast --trace -
  gleaner forecast --trace load.csv --draw load.svg         series, forecasts and intervals
  gleaner forecast --live 60 --every 2                      what this machine has to spare

Columns are apart by commas, semicolons, tabs or spaces; a first line without numbers has their names. Numbers may have decimal commas: in a table \
apart by semicolons, tabs or spaces, in quotes, or where each line is one number. Columns whose name begins with `time` or `date` are not meant, nor a \
first one without a name that grows from line to line. Comments begin with #. Rows without a number are left out, and it is said why. Each value is foretold from those before it, and \
the mean of the next 30: five minutes, of values that are ten seconds apart. Shown are what comes next with the interval in which it lies nine times in ten, and how \
good forecasts were: MAE is the mean absolute error, in the unit of the series. \
`all, weighed` is the forecast that is shown; `NWS` are the choices of the Network Weather Service among the same forecasters. HURST above 0.5 means that \
the series remembers for long: the slope of the pox plot.

Without --trace shown is what part of a processor a guest gets, which has what nobody else wants, and a new process of full priority: now, next, and in \
the mean of the next 30 readings.";

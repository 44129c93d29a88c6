//! The arguments of forecasting.

use clap::{Args, ValueHint};
use std::path::PathBuf;

/// `gleaner forecast`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = HELP)]
pub struct Forecast {
    /// A series to forecast: a file with a value a line, or a table in CSV
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub trace: PathBuf,
    /// Which column of the table: a part of its name, or its number from 1
    #[arg(long, value_name = "NAME")]
    pub column: Option<String>,
    /// Count errors from the Nth value on: the first forecasts know little
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub from: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What help and manual say of it.
const HELP: &str = "\
Examples:
  gleaner forecast --trace load.csv                         the only column of numbers beside the first
  gleaner forecast --trace vm.csv --column 'CPU usage [%]'  one of several
  gleaner forecast --trace load.csv --from 100 --json

Columns are apart by a comma, a semicolon or a tab; a first line without numbers has their names. Each value is foretold from those before it. Shown are the \
next value with the interval in which it lies nine times in ten, and how good forecasts were: MAE is the mean absolute error, in the unit of the series. \
`all, weighed` is the forecast that is shown; `NWS` are the choices of the Network Weather Service among the same forecasters. HURST above 0.5 means \
that the series remembers for long.";

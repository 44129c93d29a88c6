//! Owners from files: measurements of processors' use.

use crate::args::{Measured as Files, Unit};
use crate::commands::forecast::trace::{Separator, choose, value};
use crate::error::{CliError, Result};
use csv::{ReaderBuilder, StringRecord, Trim};
use sim::cluster::Source;
use sim::traces::{Trace, TraceError};
use std::path::Path;
use std::sync::Arc;

/// Column that is looked for first, where there are several.
const COLUMN: &str = "CPU usage [%]";
/// Column that tells of the owner's keyboard and mouse: 0 for none.
const INPUT: &str = "input";
/// Most measurements of one file.
const VALUES_MAX: usize = 10_000_000;
/// Measurements may be above all of the processor by so much, as a part of it: clocks are not exact.
const OVER: f64 = 0.01;
const HINT: &str = "gleaner sim linger --help tells how a file may look";

/// What a file says.
#[derive(Debug, PartialEq)]
struct Measured {
    values: Vec<f64>,
    input: Vec<bool>,
    /// The line of each value.
    lines: Vec<u64>,
    is_percent: bool,
}

/// The owners that are asked for; `None`: they are drawn.
pub fn read(asked: &Files) -> Result<Option<Source>> {
    let Some(interval_s) = asked.interval.filter(|_| !asked.trace.is_empty()) else { return Ok(None) };
    let mut files = Vec::new();
    for path in &asked.trace {
        let bytes = std::fs::read(path).map_err(|error| CliError::file("reading", path, error))?;
        files.push((path, table(path, &bytes, asked.column.as_deref())?));
    }
    let is_percent = match asked.unit {
        Some(unit) => unit == Unit::Percent,
        None => files.iter().any(|(_, file)| file.is_percent || file.values.iter().any(|value| *value > 1.0 + OVER)),
    };
    let traces = files.iter().map(|(path, file)| trace(path, file, interval_s, is_percent).map(Arc::new));
    Ok(Some(Source::Measured(traces.collect::<Result<_>>()?)))
}

fn trace(path: &Path, file: &Measured, interval_s: f64, is_percent: bool) -> Result<Trace> {
    let whole = if is_percent { 100.0 } else { 1.0 };
    let part = |value: &f64| {
        let part = value / whole;
        if part > 1.0 && part <= 1.0 + OVER { 1.0 } else { part }
    };
    let used: Vec<f64> = file.values.iter().map(part).collect();
    Trace::new(&used, &file.input, interval_s).map_err(|error| match error {
        TraceError::Used { at, .. } => {
            let unit = if is_percent { "per cent" } else { "a part of 1" };
            let what = format!(
                "{}, line {}: {} is no use of a processor in {unit}",
                path.display(),
                file.lines[at],
                file.values[at]
            );
            CliError::user(what)
                .hint("--unit says what the values are in; divide by the number of processors if they are of several")
        }
        TraceError::Interval(_) => {
            CliError::user(format!("--interval: {error}")).hint("it is a number of seconds above 0")
        }
        TraceError::Empty => CliError::user(format!("{}: {error}", path.display())).hint(HINT),
    })
}

fn table(path: &Path, bytes: &[u8], column: Option<&str>) -> Result<Measured> {
    let wrong = |what: String| CliError::user(format!("{}{what}", path.display())).hint(HINT);
    let mut reader = ReaderBuilder::new();
    reader
        .delimiter(Separator::of(&String::from_utf8_lossy(bytes)).byte())
        .has_headers(false)
        .flexible(true)
        .trim(Trim::All);
    let mut measured = Measured { values: Vec::new(), input: Vec::new(), lines: Vec::new(), is_percent: false };
    let mut names: Option<StringRecord> = None;
    let mut places: Option<(usize, Option<usize>)> = None;
    for record in reader.from_reader(bytes).into_records() {
        let record = record.map_err(|error| wrong(format!(": {error}")))?;
        let line = record.position().map_or(0, csv::Position::line);
        if places.is_none() && names.is_none() && record.iter().all(|cell| value(cell).is_none()) {
            names = Some(record);
            continue;
        }
        let (at, input) = match places {
            Some(places) => places,
            None => {
                *places.insert(columns(names.as_ref(), &record, column).map_err(|what| wrong(format!(": {what}")))?)
            }
        };
        let number = |at: usize| {
            let cell = record.get(at).unwrap_or_default();
            value(cell).ok_or_else(|| {
                wrong(format!(", line {line}: `{cell}` is no number: fill the gap or leave the file out"))
            })
        };
        if measured.values.len() == VALUES_MAX {
            return Err(wrong(format!(", line {line}: more than {VALUES_MAX} values")));
        }
        measured.values.push(number(at)?);
        measured.lines.push(line);
        if let Some(input) = input {
            measured.input.push(number(input)? != 0.0);
        }
    }
    if let (Some(names), Some((at, _))) = (&names, places) {
        measured.is_percent = names.get(at).is_some_and(|name| name.contains('%'));
    }
    Ok(measured)
}

/// The columns of use and of input.
fn columns(
    names: Option<&StringRecord>,
    values: &StringRecord,
    asked: Option<&str>,
) -> std::result::Result<(usize, Option<usize>), String> {
    let named = |name: &str| names.and_then(|names| names.iter().position(|other| other.eq_ignore_ascii_case(name)));
    let input = named(INPUT);
    // Beside input there may be one more column alone.
    let rest: StringRecord =
        values.iter().enumerate().map(|(at, cell)| if Some(at) == input { "" } else { cell }).collect();
    let at = match (choose(names, &[&rest], None), asked) {
        (Ok(only), _) => only,
        (Err(_), Some(asked)) => choose(names, &[&rest], Some(asked))?,
        (Err(why), None) => named(COLUMN).ok_or(why)?,
    };
    Ok((at, input))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str, column: Option<&str>) -> Result<Measured> {
        table(Path::new("t.csv"), text.as_bytes(), column)
    }

    fn error(text: &str) -> String {
        let failed = read_text(text, None).and_then(|file| trace(Path::new("t.csv"), &file, 300.0, file.is_percent));
        failed.expect_err("not sound").message
    }

    #[test]
    fn files_are_values_or_tables() {
        assert_eq!(read_text("0.5\n0.25\n", None).expect("sound").values, [0.5, 0.25]);
        let two =
            read_text("timestamp,value\n2014-02-14 14:30:00,0.132\n", Some("CPU")).expect("one of the two is a number");
        assert_eq!((two.values, two.lines), (vec![0.132], vec![2]));
        let vm = read_text("Time [ms];CPU cores;CPU usage [%]\n1;2;30.5\n", None).expect("the usual name");
        assert_eq!((vm.values, vm.is_percent), (vec![30.5], true));
        let input = read_text("used,Input\n0.5,0\n0.1,3\n", None).expect("sound");
        assert_eq!((input.values, input.input), (vec![0.5, 0.1], vec![false, true]));
    }

    #[test]
    fn what_is_wrong_is_told_with_file_and_line() {
        assert_eq!(error("used\n0.5\nn/a\n"), "t.csv, line 3: `n/a` is no number: fill the gap or leave the file out");
        assert_eq!(error("used\n0.5\n30\n"), "t.csv, line 3: 30 is no use of a processor in a part of 1");
        assert_eq!(error("CPU %\n50\n-1\n"), "t.csv, line 3: -1 is no use of a processor in per cent");
        assert!(error("a,b,c\n1,2,3\n").starts_with("t.csv: it has several columns of numbers"));
        assert_eq!(error(""), "t.csv: it has no measurements");
    }
}

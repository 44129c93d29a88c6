//! Series in files: a value a line, or a column of a table.

use crate::error::{CliError, Result};
use csv::{ReaderBuilder, StringRecord, Trim};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};
use std::path::Path;

/// Most values of one series.
const VALUES_MAX: usize = 10_000_000;
/// Bytes in which the separator is looked for.
const HEAD_BYTES: usize = 64 << 10;

/// A series.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Name of its column, if that has one.
    pub column: Option<String>,
    /// Finite numbers.
    pub values: Vec<f64>,
    /// Lines that have none there.
    pub left_out: usize,
}

/// Reads a series.
pub fn read(path: &Path, column: Option<&str>) -> Result<Trace> {
    let failed = |error| CliError::file("reading", path, error);
    let mut file = BufReader::with_capacity(HEAD_BYTES, File::open(path).map_err(failed)?);
    let separator = separator(file.fill_buf().map_err(failed)?);
    file.rewind().map_err(failed)?;
    read_table(file, separator, column).map_err(|what| {
        CliError::user(format!("{}: {what}", path.display())).hint("gleaner forecast --help tells how a file may look")
    })
}

/// What is most often on the first line; a comma if nothing is.
pub fn separator(head: &[u8]) -> u8 {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let count = |separator: u8| line.iter().filter(|byte| **byte == separator).count();
    // The last of those that are equal.
    [b'\t', b';', b','].into_iter().max_by_key(|separator| count(*separator)).unwrap_or(b',')
}

fn read_table(from: impl Read, separator: u8, column: Option<&str>) -> std::result::Result<Trace, String> {
    let mut reader = ReaderBuilder::new();
    reader.delimiter(separator).has_headers(false).flexible(true).trim(Trim::All);
    let mut records = reader.from_reader(from).into_records();
    let text = |error: csv::Error| error.to_string();
    let Some(first) = records.next().transpose().map_err(text)? else {
        return Ok(Trace { column: None, values: Vec::new(), left_out: 0 });
    };
    let has_names = first.iter().all(|cell| value(cell).is_none());
    let second = if has_names { records.next().transpose().map_err(text)? } else { None };
    let names = has_names.then_some(&first);
    let at = choose(names, second.as_ref().unwrap_or(&first), column)?;
    let mut trace =
        Trace { column: names.and_then(|names| names.get(at)).map(str::to_owned), values: Vec::new(), left_out: 0 };
    let begin = second.or_else(|| (!has_names).then(|| first.clone()));
    for record in begin.into_iter().map(Ok).chain(records) {
        match record.map_err(text)?.get(at).and_then(value) {
            None => trace.left_out += 1,
            Some(_) if trace.values.len() == VALUES_MAX => return Err(format!("more than {VALUES_MAX} values")),
            Some(value) => trace.values.push(value),
        }
    }
    Ok(trace)
}

/// Which column it is: the one that was asked for, or the only one of numbers; the first of several may be the time.
pub fn choose(
    names: Option<&StringRecord>,
    values: &StringRecord,
    asked: Option<&str>,
) -> std::result::Result<usize, String> {
    let name = |at: usize| names.and_then(|names| names.get(at)).map_or_else(|| format!("{}", at + 1), str::to_owned);
    let numbers: Vec<usize> = (0..values.len()).filter(|at| values.get(*at).and_then(value).is_some()).collect();
    let listed = || numbers.iter().map(|at| format!("`{}`", name(*at))).collect::<Vec<_>>().join(", ");
    let Some(asked) = asked else {
        return match numbers[..] {
            [] => Ok(0),
            [only] | [0, only] => Ok(only),
            _ => Err(format!("it has several columns of numbers; choose one with --column: {}", listed())),
        };
    };
    let with: Vec<usize> = (0..values.len()).filter(|at| names.is_some() && name(*at).contains(asked)).collect();
    let same: Vec<usize> = with.iter().copied().filter(|at| name(*at) == asked).collect();
    let by_number = asked.parse().ok().and_then(|number: usize| number.checked_sub(1)).filter(|at| *at < values.len());
    match (&same[..], &with[..], by_number) {
        ([only], _, _) | ([], [only], _) => Ok(*only),
        ([], [], Some(at)) => Ok(at),
        ([], [], None) => Err(format!("no column has `{asked}` in its name; there are {}", listed())),
        _ => Err(format!("several columns have `{asked}` in their names; there are {}", listed())),
    }
}

/// A number that is finite.
pub fn value(cell: &str) -> Option<f64> {
    cell.parse().ok().filter(|value: &f64| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str, column: Option<&str>) -> std::result::Result<Trace, String> {
        read_table(text.as_bytes(), separator(text.as_bytes()), column)
    }

    fn values(text: &str, column: Option<&str>) -> Vec<f64> {
        table(text, column).expect("sound").values
    }

    #[test]
    fn a_value_a_line_or_a_column_of_a_table() {
        assert_eq!(values("1\n2.5\n-3e-1\n", None), [1.0, 2.5, -0.3]);
        assert_eq!(
            values("timestamp,value\n2014-02-14 14:30:00,0.132\n2014-02-14 14:35:00,0.134\n", None),
            [0.132, 0.134]
        );
        let vm = "Time [ms];\tCores;\tCPU usage [%]\n1376314846;\t1;\t0.73\n1376315146;\t1;\t0.8\n";
        let trace = table(vm, Some("CPU")).expect("sound");
        assert_eq!((trace.column.as_deref(), &trace.values[..]), (Some("CPU usage [%]"), &[0.73, 0.8][..]));
        assert_eq!(values(vm, Some("2")), [1.0, 1.0]);
        assert_eq!(values("7 1\n", None), [] as [f64; 0]);
    }

    #[test]
    fn what_is_no_number_is_left_out_and_counted() {
        let trace = table("load\n1\nNaN\n\nfull\n2\n", None).expect("sound");
        assert_eq!((trace.values, trace.left_out), (vec![1.0, 2.0], 2));
        assert_eq!(table("", None).expect("empty").values, [] as [f64; 0]);
    }

    #[test]
    fn a_column_that_is_not_clear_is_asked_for() {
        let several = "a,b,ab\n1,2,3\n";
        assert!(table(several, None).expect_err("three").contains("with --column: `a`, `b`, `ab`"));
        assert_eq!(values(several, Some("a")), [1.0], "the whole name goes first");
        assert!(table("ax,ay\n1,2\n", Some("a")).expect_err("two").starts_with("several columns have `a`"));
        assert!(table(several, Some("9")).expect_err("none").starts_with("no column has `9`"));
        assert_eq!(values("5,6\n7,8\n", Some("1")), [5.0, 7.0]);
    }
}

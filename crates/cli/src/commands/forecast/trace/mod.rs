//! Series in files and pipes: a value a line, or a column of a table.

mod dialect;

pub use dialect::{Separator, value};

use crate::error::{CliError, Result};
use base::units::of;
use csv::StringRecord;
use dialect::{Doubt, has_decimal_comma, holds_data, is_infinite, is_missing};
use sched::forecast::{SIZE_MIN, VALUE_MAX};
use serde::Serialize;
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read};
use std::path::Path;

/// Most values of one series.
const VALUES_MAX: usize = 10_000_000;
/// Bytes in which the form of a table is looked for.
const HEAD_BYTES: usize = 64 << 10;
/// Longest line.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Rows by which it is told which columns have numbers.
const SAMPLE: usize = 50;
/// What the first word of a column's name is that tells the time.
const TIMES: [&str; 10] =
    ["time", "timestamp", "date", "datetime", "epoch", "ts", "zeit", "datum", "zeitstempel", "heure"];
/// The name of standard input.
const STDIN: &str = "-";
/// What to do with a series that is out of all bounds.
const SIZE_HINT: &str = "give the values in another unit";
/// Longest part of a cell that an error shows.
const SHOWN_MAX: usize = 40;

/// A series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The column it was taken from.
    pub column: Column,
    /// Finite numbers.
    pub values: Vec<f64>,
    /// Rows that have none there, by why.
    pub left_out: Vec<LeftOut>,
}

/// A column of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Column {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Which it is, from 1, of how many.
    pub number: usize,
    /// See `number`.
    pub of: usize,
    /// What columns are apart by.
    pub separator: Option<&'static str>,
    /// Whether its numbers have decimal commas.
    pub has_decimal_commas: bool,
}

/// Rows that are left out for one reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LeftOut {
    pub why: &'static str,
    pub rows: usize,
    /// The line of the first of them, and what stands there.
    pub first_line: u64,
    pub first_cell: String,
}

impl LeftOut {
    /// Why, said of as many rows as there are: of one, `has no number there`.
    pub fn said(&self) -> String {
        let (verb, rest) = self.why.split_once(' ').unwrap_or((self.why, ""));
        match verb {
            _ if self.rows != 1 => self.why.to_owned(),
            "have" => format!("has {rest}"),
            "are" => format!("is {rest}"),
            verb => format!("{verb}s {rest}"),
        }
    }
}

impl Trace {
    /// Rows that are left out.
    pub fn rows_left_out(&self) -> usize {
        self.left_out.iter().map(|left_out| left_out.rows).sum()
    }

    fn leave_out(&mut self, cell: Option<&str>, line: u64) {
        let why = match cell {
            None => "have no such column",
            Some("") => "are empty there",
            Some(cell) if is_infinite(cell) => "are infinite there",
            Some(cell) if is_missing(cell) => "say that nothing was measured",
            Some(_) => "have no number there",
        };
        match self.left_out.iter_mut().find(|left_out| left_out.why == why) {
            Some(left_out) => left_out.rows += 1,
            None => {
                let first_cell = cell.unwrap_or_default().chars().take(SHOWN_MAX).collect();
                self.left_out.push(LeftOut { why, rows: 1, first_line: line, first_cell });
            }
        }
    }
}

/// How people are told where a series comes from.
pub fn name(path: &Path) -> String {
    if is_stdin(path) { "standard input".to_owned() } else { path.display().to_string() }
}

/// Whether this means standard input.
pub fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == STDIN
}

/// Reads a series, from standard input if the path is `-`.
pub fn read(path: &Path, column: Option<&str>) -> Result<Trace> {
    let failed = |error| CliError::environment(format!("reading {}: {error}", name(path)));
    if is_stdin(path) {
        crate::inherited::check_input().map_err(failed)?;
    }
    let from: Box<dyn Read> =
        if is_stdin(path) { Box::new(std::io::stdin()) } else { Box::new(File::open(path).map_err(failed)?) };
    let wrong = |what: String| {
        CliError::user(format!("{}: {what}", name(path))).hint("gleaner forecast --help tells how a table may look")
    };
    // A pipe cannot be read twice: the head is read, looked at, and put before the rest.
    let (mut from, mut head) = (from, Vec::new());
    from.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(failed)?;
    if head.contains(&0) {
        return Err(wrong("it is no text: there are zero bytes in it (compressed, or UTF-16?)".to_owned()));
    }
    let separator = Separator::of(&text(&head));
    if let Some(doubt) = Doubt::of(&text(&head), separator).filter(|_| column.is_none()) {
        crate::render::say(&format!("warning: {}: {doubt}", name(path)));
    }
    let trace = read_table(Cursor::new(head).chain(from), separator, column).map_err(|error| match error {
        TableError::Io(error) => failed(error),
        TableError::Form(what) => wrong(what),
        TableError::Size(what) => CliError::user(format!("{}: {what}", name(path))).hint(SIZE_HINT),
    })?;
    if trace.values.is_empty() {
        let seen = trace.left_out.first().map(|first| match &first.first_cell[..] {
            "" => format!(": {} {}", of(first.rows as u64, "row"), first.said()),
            cell => format!(": line {} has `{cell}`", first.first_line),
        });
        return Err(wrong(format!("there is no number in it{}", seen.unwrap_or_default())));
    }
    Ok(trace)
}

/// Text of any encoding that contains ASCII; what is not UTF-8 is in names at most.
fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).into_owned();
    text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)
}

#[derive(Debug)]
enum TableError {
    Io(std::io::Error),
    Form(String),
    /// Values are so large or small that their squares are no numbers.
    Size(String),
}

impl From<String> for TableError {
    fn from(what: String) -> Self {
        Self::Form(what)
    }
}

impl From<std::io::Error> for TableError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

/// A row, and its line.
struct Row {
    cells: StringRecord,
    line: u64,
}

fn read_table(from: impl Read, separator: Separator, column: Option<&str>) -> std::result::Result<Trace, TableError> {
    let mut records = rows(BufReader::new(from), separator);
    let sample: Vec<Row> = records.by_ref().take(SAMPLE).collect::<std::result::Result<_, _>>()?;
    if sample.is_empty() {
        return Ok(Trace::default());
    }
    let (names, sample) = split_names(sample);
    let rows: Vec<&StringRecord> = sample.iter().map(|row| &row.cells).collect();
    let at = choose(names.as_ref(), &rows, column)?;
    let of = rows.iter().map(|row| row.len()).chain(names.iter().map(StringRecord::len)).max().unwrap_or(1);
    let name = names.as_ref().and_then(|names| names.get(at)).filter(|name| !name.is_empty()).map(str::to_owned);
    let mut trace = Trace {
        column: Column {
            name,
            number: at + 1,
            of,
            separator: (of > 1).then(|| separator.name()),
            has_decimal_commas: false,
        },
        ..Trace::default()
    };
    for row in sample.into_iter().map(Ok).chain(records) {
        let row = row?;
        let cell = row.cells.get(at);
        match cell.and_then(value) {
            None => trace.leave_out(cell, row.line),
            Some(_) if trace.values.len() == VALUES_MAX => {
                return Err(format!("line {}: more than {VALUES_MAX} values", row.line).into());
            }
            Some(value) if value.abs() > VALUE_MAX => {
                let cell = cell.unwrap_or_default();
                let what = format!(
                    "line {}: `{cell}` is further from 0 than {VALUE_MAX:e}, where forecasts end; write NaN if it stands \
                     for no measurement",
                    row.line
                );
                return Err(TableError::Size(what));
            }
            Some(value) => {
                trace.column.has_decimal_commas |= cell.is_some_and(has_decimal_comma);
                trace.values.push(value);
            }
        }
    }
    let largest = trace.values.iter().copied().max_by(|one, other| one.abs().total_cmp(&other.abs()));
    match largest.filter(|value| *value != 0.0 && value.abs() < SIZE_MIN) {
        None => Ok(trace),
        Some(value) => {
            let what =
                format!("no value is further from 0 than {value:e}; forecasts need one that is at least {SIZE_MIN:e}");
            Err(TableError::Size(what))
        }
    }
}

/// The rows of a table, without comments and empty lines.
fn rows(mut from: impl BufRead, separator: Separator) -> impl Iterator<Item = std::result::Result<Row, TableError>> {
    let (mut line, mut bytes) = (0, Vec::new());
    std::iter::from_fn(move || {
        loop {
            bytes.clear();
            line += 1;
            match from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes) {
                Ok(0) => return None,
                Ok(read) if read as u64 == LINE_BYTES_MAX => {
                    return Some(Err(format!("line {line} is longer than {LINE_BYTES_MAX} bytes").into()));
                }
                Ok(_) => {}
                Err(error) => return Some(Err(error.into())),
            }
            let text = text(&bytes);
            if holds_data(&text) {
                return Some(Ok(Row { cells: cells(text.trim_end_matches(['\n', '\r']), separator), line }));
            }
        }
    })
}

/// What stands between separators, without the spaces and quotes around it.
fn cells(line: &str, separator: Separator) -> StringRecord {
    let mut is_quoted = false;
    let ends_here = |one: char| {
        is_quoted ^= one == '"';
        !is_quoted && separator.is(one)
    };
    let cells = line.split(ends_here).map(|cell| {
        let cell = cell.trim();
        cell.strip_prefix('"').and_then(|cell| cell.strip_suffix('"')).unwrap_or(cell)
    });
    // Several spaces are one.
    cells.filter(|cell| separator != Separator::Spaces || !cell.is_empty()).collect()
}

/// The first row has names if no column that has numbers further down has one there.
fn split_names(mut sample: Vec<Row>) -> (Option<StringRecord>, Vec<Row>) {
    let rest: Vec<&StringRecord> = sample[1..].iter().map(|row| &row.cells).collect();
    let with_numbers = numbers(&rest);
    let first = &sample[0].cells;
    let is_name = |at: &usize| first.get(*at).is_some_and(|cell| value(cell).is_none() && !is_missing(cell));
    let has_names = match with_numbers.is_empty() {
        true => first.iter().all(|cell| value(cell).is_none() && !is_missing(cell)),
        false => with_numbers.iter().all(is_name),
    };
    if has_names { (Some(sample.remove(0).cells), sample) } else { (None, sample) }
}

/// Columns where at least half of what stands there are numbers.
fn numbers(rows: &[&StringRecord]) -> Vec<usize> {
    let columns = rows.iter().map(|row| row.len()).max().unwrap_or(0);
    let is_one = |at: &usize| {
        let cells = rows.iter().filter_map(|row| row.get(*at)).filter(|cell| !is_missing(cell));
        let (all, numbers) =
            cells.fold((0, 0), |(all, numbers), cell| (all + 1, numbers + usize::from(value(cell).is_some())));
        numbers > 0 && 2 * numbers >= all
    };
    (0..columns).filter(is_one).collect()
}

/// Which column it is: the one that was asked for, or the only one of numbers; one that tells the time is not meant, and the first of two
/// may do so.
pub fn choose(
    names: Option<&StringRecord>,
    rows: &[&StringRecord],
    asked: Option<&str>,
) -> std::result::Result<usize, String> {
    let columns = rows.iter().map(|row| row.len()).max().unwrap_or(0);
    let name = |at: usize| {
        let known = names.and_then(|names| names.get(at)).filter(|name| !name.is_empty());
        known.map_or_else(|| format!("{}", at + 1), str::to_owned)
    };
    let numbers = numbers(rows);
    let listed = |columns: &[usize]| columns.iter().map(|at| format!("`{}`", name(*at))).collect::<Vec<_>>().join(", ");
    let Some(asked) = asked else {
        let meant: Vec<usize> = numbers
            .iter()
            .copied()
            .filter(|at| !tells_time(*at, names.and_then(|names| names.get(*at)), rows))
            .collect();
        return match (&numbers[..], &meant[..]) {
            (_, [only] | [0, only]) | ([only], []) if columns == 1 || !meant.is_empty() => Ok(*only),
            ([], _) => Ok(0),
            (_, []) => {
                Err(format!("only the time is in numbers, {}; name another column with --column", listed(&numbers)))
            }
            _ => Err(format!("it has several columns of numbers; choose one with --column: {}", listed(&meant))),
        };
    };
    let folded = asked.to_lowercase();
    let with = |has: &dyn Fn(String) -> bool| -> Vec<usize> {
        (0..columns).filter(|at| names.is_some() && has(name(*at))).collect()
    };
    let mut with_it = with(&|name| name.contains(asked));
    if with_it.is_empty() {
        with_it = with(&|name| name.to_lowercase().contains(&folded));
    }
    let same: Vec<usize> = with_it.iter().copied().filter(|at| name(*at) == asked).collect();
    let by_number = asked.parse().ok().and_then(|number: usize| number.checked_sub(1)).filter(|at| *at < columns);
    match (&same[..], &with_it[..], by_number) {
        ([only], _, _) | ([], [only], _) => Ok(*only),
        ([], [], Some(at)) => Ok(at),
        ([], [], None) => Err(format!("no column has `{asked}` in its name; there are {}", listed(&numbers))),
        _ => Err(format!("several columns have `{asked}` in their names; there are {}", listed(&numbers))),
    }
}

/// Whether a column tells the time: by the first word of its name; if it has none, and is the first, it grows from row to row.
fn tells_time(at: usize, name: Option<&str>, rows: &[&StringRecord]) -> bool {
    if let Some(name) = name.filter(|name| !name.is_empty()) {
        let word = name.split(|one: char| !one.is_alphabetic()).next().unwrap_or_default().to_lowercase();
        return TIMES.contains(&&word[..]);
    }
    let values: Vec<f64> = rows.iter().filter_map(|row| row.get(at).and_then(value)).collect();
    at == 0 && values.len() > 2 && values.windows(2).all(|pair| pair[0] < pair[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str, column: Option<&str>) -> std::result::Result<Trace, String> {
        read_table(text.as_bytes(), Separator::of(text), column).map_err(|error| match error {
            TableError::Form(what) | TableError::Size(what) => what,
            TableError::Io(error) => error.to_string(),
        })
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
        assert_eq!((trace.column.name.as_deref(), &trace.values[..]), (Some("CPU usage [%]"), &[0.73, 0.8][..]));
        assert_eq!((trace.column.number, trace.column.of, trace.column.separator), (3, 3, Some("semicolons")));
        assert_eq!(values(vm, Some("2")), [1.0, 1.0]);
        assert_eq!(values("7 1\n", None), [1.0], "spaces are between columns");
    }

    #[test]
    fn decimal_commas_tabs_spaces_and_names() {
        assert_eq!(values("load\n0,5\n1,25\n", None), [0.5, 1.25]);
        let table_of = |text: &str| table(text, None).expect("sound");
        let german = table_of("Zeit;Auslastung %\n1;12,5\n2;13\n3;1.013,25\n");
        assert_eq!((&german.values[..], german.column.has_decimal_commas), (&[12.5, 13.0, 1013.25][..], true));
        assert_eq!(values("epoch\tload\n5\t0.5\n4\t0.25\n", None), [0.5, 0.25]);
        assert_eq!(values("2014-02-14 14:30:00  0.5\n2014-02-14 14:35:00 0.25\n", None), [0.5, 0.25]);
        assert_eq!(values("when,\"use, %\"\nnow,\"3,5\"\nlater,\"4,5\"\n", None), [3.5, 4.5]);
        assert_eq!(values("\u{feff}load\r\n1\r\n2\r\n", None), [1.0, 2.0]);
        assert_eq!(values("# uptime\n1\n# again\n2\n", None), [1.0, 2.0], "comments");
        assert_eq!(values("100,0.5,7\n200,0.25,7\n300,0.75,7\n", Some("2")), [0.5, 0.25, 0.75]);
        assert_eq!(values("CPU time,date\n3,1\n2,2\n", None), [3.0, 2.0], "the time of a processor is none");
    }

    #[test]
    fn what_is_no_number_is_left_out_and_counted() {
        let trace = table("load\n1\nNaN\n\nfull\n2\n", None).expect("sound");
        assert_eq!((&trace.values[..], trace.rows_left_out()), (&[1.0, 2.0][..], 2));
        let why: Vec<_> = trace.left_out.iter().map(|one| (one.why, one.first_line, &one.first_cell[..])).collect();
        assert_eq!(why, [("say that nothing was measured", 3, "NaN"), ("have no number there", 5, "full")]);
        assert_eq!(table("", None).expect("empty").values, [] as [f64; 0]);
        let ragged = table("a;b\n1;2\n3\n5;\n7;8\n", Some("b")).expect("sound");
        let why: Vec<_> = ragged.left_out.iter().map(|one| one.why).collect();
        assert_eq!((&ragged.values[..], &why[..]), (&[2.0, 8.0][..], &["have no such column", "are empty there"][..]));
        assert_eq!(values("a,b\n2014-01-01,\n2014-01-02,5\n", None), [5.0], "the first row has none");
    }

    #[test]
    fn a_missing_or_infinite_first_value_names_no_column() {
        for first in
            ["NaN", "-nan", "null", "NA", "-", "inf", "-inf", "+Inf", "Infinity", "\u{2212}infinity", "\u{221e}"]
        {
            let trace = table(&format!("{first}\n1\n2\n3\n"), None).expect("sound");
            let column = (trace.column.name.as_deref(), trace.rows_left_out());
            assert_eq!((column, &trace.values[..]), ((None, 1), &[1.0, 2.0, 3.0][..]), "{first}");
        }
        let trace = table("load\n1\ninf\n-inf\n\u{2212}2\n", None).expect("sound");
        assert_eq!((trace.column.name.as_deref(), &trace.values[..]), (Some("load"), &[1.0, -2.0][..]));
        assert_eq!((trace.left_out[0].why, trace.left_out[0].rows), ("are infinite there", 2));
        assert_eq!(values("t;v\n1;inf\n2;5\n3;-inf\n4;inf\n", None), [5.0], "it is still the column of numbers");
    }

    #[test]
    fn of_one_row_it_is_said_as_of_one() {
        let said =
            |rows: usize, why: &'static str| LeftOut { why, rows, first_line: 1, first_cell: String::new() }.said();
        assert_eq!(said(2, "have no number there"), "have no number there");
        assert_eq!(said(1, "have no number there"), "has no number there");
        assert_eq!(said(1, "are empty there"), "is empty there");
        assert_eq!(said(1, "say that nothing was measured"), "says that nothing was measured");
    }

    #[test]
    fn values_whose_squares_are_no_numbers_are_refused() {
        let no = |text: &str| table(text, None).expect_err("out of bounds");
        let large = no("1\n-1e308\n");
        assert!(large.starts_with("line 2: `-1e308` is further from 0 than 1e100, where forecasts end"), "{large}");
        assert!(no("1e999\n1\n").starts_with("line 1: `1e999` is"), "{}", no("1e999\n1\n"));
        assert!(no("0\n-1e-300\n").starts_with("no value is further from 0 than -1e-300; "), "{}", no("0\n-1e-300\n"));
        assert_eq!(values("1e100\n-1e100\n1e-300\n0\n", None), [1e100, -1e100, 1e-300, 0.0]);
        assert_eq!(values("1e-100\n", None), [1e-100]);
        assert_eq!(values("0\n0\n", None), [0.0, 0.0]);
    }

    #[test]
    fn a_column_that_is_not_clear_is_asked_for() {
        let several = "a,b,ab\n1,2,3\n";
        assert!(table(several, None).expect_err("three").contains("with --column: `a`, `b`, `ab`"));
        assert_eq!(values(several, Some("a")), [1.0], "the whole name goes first");
        assert_eq!(values(several, Some("AB")), [3.0], "whatever its letters");
        assert!(table("ax,ay\n1,2\n", Some("a")).expect_err("two").starts_with("several columns have `a`"));
        assert!(table(several, Some("9")).expect_err("none").starts_with("no column has `9`"));
        assert_eq!(values("5,6\n7,8\n", Some("1")), [5.0, 7.0]);
        assert!(table("time;host\n1;a\n2;b\n", None).expect_err("no load").starts_with("only the time"));
        assert_eq!(values("time\n3\n1\n", None), [3.0, 1.0], "it is the only column");
    }

    #[test]
    fn errors_say_what_is_wrong_and_where() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("t.csv");
        let said = |content: &[u8]| {
            std::fs::write(&path, content).expect("written");
            read(&path, None).expect_err("no series").message
        };
        assert!(said(b"a;b\nx;y\n").ends_with("there is no number in it: line 2 has `x`"), "{}", said(b"a;b\nx;y\n"));
        assert!(said(b"").ends_with("there is no number in it"));
        assert!(said(b"\x1f\x8b\0\0").contains("it is no text"));
        assert!(read(folder.path(), None).expect_err("a folder").message.starts_with("reading "));
    }
}

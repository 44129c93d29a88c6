//! How a table is written: what its columns are apart by, and whether its numbers have decimal commas.

use std::fmt::{Display, Formatter};

/// Lines that are looked at.
const LINES: usize = 50;
/// Cells that stand for no measurement.
const MISSING: [&str; 14] =
    ["", "nan", "+nan", "-nan", "na", "n/a", "null", "none", "nil", "-", "\u{2013}", "\u{2014}", MINUS, "?"];
/// Cells without a sign that stand for no number, but for what grew beyond all.
const INFINITE: [&str; 3] = ["inf", "infinity", "\u{221e}"];
/// The sign as it is printed in texts.
const MINUS: &str = "\u{2212}";

/// What columns are apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Separator {
    Comma,
    Semicolon,
    Tab,
    /// Spaces, as many as there are.
    Spaces,
    /// There is one column: commas are within numbers.
    None,
}

impl Separator {
    /// What it most likely is, by the first lines.
    ///
    /// A comma is ambiguous: `1,5` is a number or two. It is within a number if a line has at most one, if nothing but numbers stand
    /// there, and if no name at the top is apart from another by a comma. First parts that only grow are a time or a number of the
    /// line: then there are two columns.
    pub fn of(head: &str) -> Self {
        let lines: Vec<&str> = head.lines().filter(|line| holds_data(line)).take(LINES).collect();
        let most = |has: &dyn Fn(&str) -> bool| lines.iter().filter(|line| has(line)).count() * 2 > lines.len();
        if most(&|line| unquoted(line, ';') > 0) {
            return Self::Semicolon;
        }
        if most(&|line| unquoted(line, '\t') > 0) {
            return Self::Tab;
        }
        if has_decimal_commas(&lines) {
            return Self::None;
        }
        let is_spaced = |line: &str| {
            let (count, numbers) = line
                .split_whitespace()
                .fold((0, 0), |(count, numbers), cell| (count + 1, numbers + usize::from(value(cell).is_some())));
            count > 1 && numbers > 0
        };
        if !most(&|line| unquoted(line, ',') > 0) && most(&is_spaced) { Self::Spaces } else { Self::Comma }
    }

    /// The byte that a reader of CSV splits lines at.
    pub fn byte(self) -> u8 {
        match self {
            Self::Comma => b',',
            Self::Semicolon => b';',
            Self::Tab => b'\t',
            Self::Spaces => b' ',
            // It is in no line that is looked at; if it comes later, the line has another column.
            Self::None => b';',
        }
    }

    /// Whether this character stands between columns.
    pub fn is(self, character: char) -> bool {
        match self {
            Self::Spaces => character.is_whitespace(),
            Self::None => false,
            _ => character == char::from(self.byte()),
        }
    }

    /// As people are told.
    pub fn name(self) -> &'static str {
        match self {
            Self::Comma => "commas",
            Self::Semicolon => "semicolons",
            Self::Tab => "tabs",
            Self::Spaces => "spaces",
            Self::None => "nothing",
        }
    }
}

/// A line that was read as columns and could be one number with marks between its thousands.
#[derive(Clone, Debug, PartialEq)]
pub struct Doubt {
    line: usize,
    text: String,
    number: f64,
}

impl Doubt {
    /// The first such line, if each of the first lines is a number as a whole.
    pub fn of(head: &str, separator: Separator) -> Option<Self> {
        let lines = head.lines().zip(1..).filter(|(line, _)| holds_data(line)).take(LINES);
        let lines: Vec<(&str, usize)> =
            lines.map(|(line, at)| (line.trim(), at)).filter(|(line, _)| !is_missing(line)).collect();
        if separator != Separator::Comma || !lines.iter().all(|(line, _)| value(line).is_some()) {
            return None;
        }
        let has_thousands = |line: &str| line.contains(',') && line.matches([',', '.']).count() > 1;
        let (text, line) = lines.into_iter().find(|(line, _)| has_thousands(line))?;
        Some(Self { line, text: text.to_owned(), number: value(text)? })
    }
}

impl Display for Doubt {
    fn fmt(&self, to: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { line, text, number } = self;
        let cells: Vec<String> = text.split(',').map(|cell| format!("`{}`", cell.trim())).collect();
        let (last, others) = cells.split_last().ok_or(std::fmt::Error)?;
        let columns = format!("{} columns, {} and {last}", cells.len(), others.join(", "));
        write!(
            to,
            "line {line}, `{text}`, is read as {columns}, and not as the number {number}; for numbers, write them without \
             marks between thousands; for columns, name one with --column"
        )
    }
}

/// Whether a line is more than a comment.
pub fn holds_data(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with('#')
}

/// How often a character stands outside of quotes.
fn unquoted(line: &str, character: char) -> usize {
    let mut is_quoted = false;
    let mut count = 0;
    for one in line.chars() {
        is_quoted ^= one == '"';
        count += usize::from(one == character && !is_quoted);
    }
    count
}

fn has_decimal_commas(lines: &[&str]) -> bool {
    let has_name = lines.first().is_some_and(|line| !line.contains(|one: char| one.is_ascii_digit()));
    if has_name && lines[0].contains(',') {
        return false;
    }
    let values: Vec<&str> = lines[usize::from(has_name)..].iter().map(|line| line.trim()).collect();
    let known = |line: &&&str| !is_missing(line);
    let with = values.iter().filter(|line| line.contains(',')).count();
    if with == 0 || !values.iter().filter(known).all(|line| line.matches(',').count() <= 1 && value(line).is_some()) {
        return false;
    }
    let firsts: Vec<f64> = values.iter().filter_map(|line| value(line.split_once(',')?.0)).collect();
    let is_counted = firsts.len() == with && firsts.windows(2).all(|pair| pair[0] < pair[1]);
    has_name || values.iter().filter(known).count() > with || !is_counted
}

/// Whether a cell says that there is no measurement, or none that is a number.
pub fn is_missing(cell: &str) -> bool {
    is_one_of(&MISSING, cell.trim()) || is_infinite(cell)
}

/// Whether a cell says that the measurement was infinite.
pub fn is_infinite(cell: &str) -> bool {
    let cell = cell.trim();
    let size = ["+", "-", MINUS].iter().find_map(|sign| cell.strip_prefix(sign)).unwrap_or(cell);
    is_one_of(&INFINITE, size)
}

fn is_one_of(words: &[&str], cell: &str) -> bool {
    words.iter().any(|word| word.eq_ignore_ascii_case(cell))
}

/// Whether a cell is a number only if its comma is a decimal one.
pub fn has_decimal_comma(cell: &str) -> bool {
    cell.contains(',') && cell.rfind('.').is_none_or(|dot| cell.rfind(',').is_none_or(|comma| comma >= dot))
}

/// A number; with a decimal comma, marks between thousands, or a sign of per cent as well. It is infinite only if it is
/// written in digits and too large for this type, as 1e999.
pub fn value(cell: &str) -> Option<f64> {
    let cell = cell.trim().replace(MINUS, "-");
    let cell = &cell[..];
    let cell = cell.strip_suffix('%').map_or(cell, str::trim_end);
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    if !cell.as_bytes().iter().any(is_digit) {
        return None;
    }
    let number = |text: &str| text.parse().ok();
    let (commas, dots) = (cell.matches(',').count(), cell.matches('.').count());
    match (commas, dots) {
        (0, _) => number(cell),
        (1, 0) => number(&cell.replace(',', ".")),
        // 1.234.567,8 and 1,234,567.8: groups of three digits.
        (1, _) if cell.rfind(',') > cell.rfind('.') => grouped(cell, '.', ',').and_then(|text| number(&text)),
        (_, 0 | 1) => grouped(cell, ',', '.').and_then(|text| number(&text)),
        _ => None,
    }
}

/// Such a number without the marks between its thousands, if these stand where they must, with a decimal point.
fn grouped(cell: &str, thousands: char, decimal: char) -> Option<String> {
    let (whole, part) = cell.split_once(decimal).map_or((cell, None), |(whole, part)| (whole, Some(part)));
    let mut groups = whole.trim_start_matches(['+', '-']).split(thousands);
    let first = groups.next()?;
    // 0.125,7 are two numbers: no thousands begin with 0.
    if !(1..=3).contains(&first.len()) || first.starts_with('0') || !groups.all(|group| group.len() == 3) {
        return None;
    }
    let whole = whole.replace(thousands, "");
    Some(part.map_or(whole.clone(), |part| format!("{whole}.{part}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_columns_are_apart_by() {
        assert_eq!(Separator::of("a;b\n1,5;2,5\n1,6;2,5\n"), Separator::Semicolon);
        assert_eq!(Separator::of("Time [ms];\tUse\n1;\t2\n2;\t3\n"), Separator::Semicolon);
        assert_eq!(Separator::of("a\tb\n1,5\t2,5\n"), Separator::Tab);
        assert_eq!(Separator::of("t,v\n2014-02-14 14:30:00,0.1\n"), Separator::Comma);
        assert_eq!(Separator::of("0.20 0.18  0.12 1/80 11206\n0.21 0.18  0.12 1/80 11207\n"), Separator::Spaces);
        assert_eq!(Separator::of("# a, b\n1\n2\n"), Separator::Comma);
        assert_eq!(Separator::of("\"a;b\",c\n\"x;y\",1\n"), Separator::Comma);
    }

    #[test]
    fn a_comma_is_within_a_number_or_between_two() {
        for whole in ["0,5\n0,75\n0,25\n", "load\n1,5\n2,5\n", "1\n1,5\n2\n", "3,5\nNaN\n\n3,25\n"] {
            assert_eq!(Separator::of(whole), Separator::None, "{whole}");
        }
        for two in ["1,5\n2,7\n3,1\n", "a,b\n5,1\n4,2\n", "1,5,2\n2,5,2\n", "5,6\n7,8\n"] {
            assert_eq!(Separator::of(two), Separator::Comma, "{two}");
        }
    }

    #[test]
    fn two_columns_that_could_be_numbers_with_thousands_are_doubted() {
        let doubt = |text: &str| Doubt::of(text, Separator::of(text)).map(|doubt| doubt.to_string());
        let read = |line: usize, text: &str, columns: &str, number: f64| {
            Some(format!(
                "line {line}, `{text}`, is read as {columns}, and not as the number {number}; for numbers, write them \
                 without marks between thousands; for columns, name one with --column"
            ))
        };
        assert_eq!(doubt("# load\n1.234,5\n2.345,6\n"), read(2, "1.234,5", "2 columns, `1.234` and `5`", 1234.5));
        assert_eq!(doubt("1,234.5\r\n2,345.5\r\n"), read(1, "1,234.5", "2 columns, `1` and `234.5`", 1234.5));
        assert_eq!(doubt("999,5\n1.000,5\n"), None, "it is read as numbers");
        assert_eq!(doubt("NaN\n900,5\n1234,5\n\n1.235.000,5\n"), None, "as well");
        let three = "3 columns, `1`, `234` and `567.5`";
        assert_eq!(doubt("1,234,567.5\n2,234,567.5\n"), read(1, "1,234,567.5", three, 1_234_567.5));
        for columns in [
            "1,5\n2,7\n",
            "0.125,7\n0.250,9\n",
            "1.5,7\n2.5,8\n",
            "t,v\n1,234.5\n",
            "1,234\n2,345\n",
            "1,234.5\n2,5.5\n",
        ] {
            assert_eq!(doubt(columns), None, "{columns}");
        }
    }

    #[test]
    fn numbers_as_people_write_them() {
        let all = ["1.5", "1,5", " -0,25 ", "45%", "1.234,5", "1,234.5", "1,234,567", "1e3", ".5", "1.234.567,8"];
        let values: Vec<f64> = all.iter().filter_map(|cell| value(cell)).collect();
        assert_eq!(values, [1.5, 1.5, -0.25, 45.0, 1234.5, 1234.5, 1_234_567.0, 1e3, 0.5, 1_234_567.8]);
        let minus = ["\u{2212}1.5", "\u{2212}1.234,5", "1e\u{2212}2", "\u{2212}1e999"].map(value);
        assert_eq!(minus, [-1.5, -1234.5, 0.01, f64::NEG_INFINITY].map(Some));
        for cell in ["", "NaN", "inf", "full", "1,2,3", "12,34.5", "2014-02-14", "1.2.3", "%", "14:30:00", "0.125,7"] {
            assert_eq!(value(cell), None, "{cell}");
        }
        assert!(has_decimal_comma("1,5") && has_decimal_comma("1.234,5") && !has_decimal_comma("1,234.5"));
    }
}

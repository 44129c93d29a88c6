//! How a table is written: what its columns are apart by, and whether its numbers have decimal commas.

/// Lines that are looked at.
const LINES: usize = 50;
/// Cells that stand for no measurement.
const MISSING: [&str; 9] = ["", "nan", "na", "n/a", "null", "none", "nil", "-", "?"];

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

/// Whether a cell says that there is no measurement.
pub fn is_missing(cell: &str) -> bool {
    MISSING.iter().any(|missing| missing.eq_ignore_ascii_case(cell.trim()))
}

/// Whether a cell is a number only if its comma is a decimal one.
pub fn has_decimal_comma(cell: &str) -> bool {
    cell.contains(',') && cell.rfind('.').is_none_or(|dot| cell.rfind(',').is_none_or(|comma| comma >= dot))
}

/// A number that is finite; with a decimal comma, marks between thousands, or a sign of per cent as well.
pub fn value(cell: &str) -> Option<f64> {
    let cell = cell.trim();
    let cell = cell.strip_suffix('%').map_or(cell, str::trim_end);
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    if !cell.as_bytes().iter().any(is_digit) {
        return None;
    }
    let finite = |text: &str| text.parse().ok().filter(|value: &f64| value.is_finite());
    let (commas, dots) = (cell.matches(',').count(), cell.matches('.').count());
    match (commas, dots) {
        (0, _) => finite(cell),
        (1, 0) => finite(&cell.replace(',', ".")),
        // 1.234.567,8 and 1,234,567.8: groups of three digits.
        (1, _) if cell.rfind(',') > cell.rfind('.') => grouped(cell, '.', ',').and_then(|text| finite(&text)),
        (_, 0 | 1) => grouped(cell, ',', '.').and_then(|text| finite(&text)),
        _ => None,
    }
}

/// Such a number without the marks between its thousands, if these stand where they must, with a decimal point.
fn grouped(cell: &str, thousands: char, decimal: char) -> Option<String> {
    let (whole, part) = cell.split_once(decimal).map_or((cell, None), |(whole, part)| (whole, Some(part)));
    let mut groups = whole.trim_start_matches(['+', '-']).split(thousands);
    let first = groups.next()?.len();
    if !(1..=3).contains(&first) || !groups.all(|group| group.len() == 3) {
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
    fn numbers_as_people_write_them() {
        let all = ["1.5", "1,5", " -0,25 ", "45%", "1.234,5", "1,234.5", "1,234,567", "1e3", ".5", "1.234.567,8"];
        let values: Vec<f64> = all.iter().filter_map(|cell| value(cell)).collect();
        assert_eq!(values, [1.5, 1.5, -0.25, 45.0, 1234.5, 1234.5, 1_234_567.0, 1e3, 0.5, 1_234_567.8]);
        for cell in ["", "NaN", "inf", "full", "1,2,3", "12,34.5", "2014-02-14", "1.2.3", "1e999", "%", "14:30:00"] {
            assert_eq!(value(cell), None, "{cell}");
        }
        assert!(has_decimal_comma("1,5") && has_decimal_comma("1.234,5") && !has_decimal_comma("1,234.5"));
    }
}

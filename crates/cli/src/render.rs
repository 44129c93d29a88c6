//! Text for people: tables and lists of facts, and the two ways of printing (text or JSON).

use crate::error::{CliError, Result};
use base::path::{is_unseen, shown, shown_lines};
pub use base::units::{bytes, micros};
use std::borrow::Cow;
use std::io::Write;

/// Rows of text under headings, with columns that line up.
#[derive(Clone, Debug, Default)]
pub struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these columns.
    pub fn new(headings: &[&'static str]) -> Self {
        Self { headings: headings.to_vec(), rows: Vec::new() }
    }

    /// Adds a row, with a cell for each column. What others chose to be called moves no cursor: see [`shown`].
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.headings.len(), "a cell for each column");
        self.rows.push(cells.into_iter().map(|cell| shown(&cell).into_owned()).collect());
    }

    /// The table as text, or `empty` on a line of its own if it has no rows. Columns of numbers (and not ids) are aligned to the
    /// right.
    pub fn text(&self, empty: &str) -> String {
        self.text_in(empty, None)
    }

    /// The same for a terminal of so many columns, if it is one: what is too long for its lines is cut, the longest cells first.
    pub fn text_in(&self, empty: &str, columns: Option<usize>) -> String {
        if self.rows.is_empty() {
            return format!("{empty}\n");
        }
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.chain([self.headings[column].len()]).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..self.headings.len()).map(width).collect();
        // 1.5e-12 is one, 2026-11-28 is none.
        let is_number = |cell: &String| {
            cell.starts_with(|first: char| first.is_ascii_digit())
                && (!cell.contains('-') || cell.parse::<f64>().is_ok())
        };
        let numbers: Vec<bool> = (0..widths.len())
            .map(|column| {
                !["TASK", "ID"].contains(&self.headings[column]) && self.rows.iter().all(|row| is_number(&row[column]))
            })
            .collect();
        if let Some(columns) = columns {
            fit(&mut widths, &numbers, columns);
        }
        let mut text = String::new();
        let headings: Vec<String> = self.headings.iter().map(|heading| heading.to_string()).collect();
        for row in [&headings].into_iter().chain(&self.rows) {
            let mut line = String::new();
            for ((cell, width), number) in row.iter().zip(&widths).zip(&numbers) {
                let cell = cut(cell, *width);
                let pad = " ".repeat(width - cell.chars().count());
                let parts = if *number { [&pad, &*cell, "  "] } else { [&*cell, &pad, "  "] };
                line.extend(parts);
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Makes the widest columns narrower, but for those of numbers, until a line has room; none beyond what still tells something.
fn fit(widths: &mut [usize], numbers: &[bool], columns: usize) {
    const LEAST: usize = 8;
    let all = |widths: &[usize]| widths.iter().sum::<usize>() + 2 * (widths.len() - 1);
    while all(widths) > columns {
        let texts = widths.iter_mut().zip(numbers).filter(|(width, number)| !**number && **width > LEAST);
        let Some((widest, _)) = texts.max_by_key(|(width, _)| **width) else { return };
        *widest -= 1;
    }
}

/// As much of a text as there is room for.
fn cut(text: &str, width: usize) -> Cow<'_, str> {
    match text.chars().count() > width {
        true => text.chars().take(width.saturating_sub(3)).chain("...".chars()).collect(),
        false => text.into(),
    }
}

/// Columns of the terminal that standard output is; `None` where it is no terminal, and all is to be shown.
pub fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Named facts, one to a line; lists go below their name, and are cut after some lines.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    text: String,
}

/// Column in which the values of [`Facts`] begin.
const VALUE_COLUMN: usize = 14;
/// Lines of a list that are shown.
const LIST_LINES_MAX: usize = 20;

impl Facts {
    /// Adds a fact. Further lines of its value stand below the first.
    pub fn fact(&mut self, name: &str, value: impl AsRef<str>) -> &mut Self {
        let value = value.as_ref();
        let lines = if value.is_empty() { "\n" } else { value };
        for (at, line) in lines.split('\n').take(lines.lines().count()).enumerate() {
            let name = if at == 0 { name } else { "" };
            let line = format!("{name:VALUE_COLUMN$}{}", shown(line));
            self.text.push_str(line.trim_end());
            self.text.push('\n');
        }
        self
    }

    /// Adds a list, unless it is empty.
    pub fn list(&mut self, name: &str, items: &[String]) -> &mut Self {
        for (at, item) in items.iter().take(LIST_LINES_MAX).enumerate() {
            self.fact(if at == 0 { name } else { "" }, item);
        }
        if items.len() > LIST_LINES_MAX {
            self.fact("", format!("... and {} more (--json shows all)", items.len() - LIST_LINES_MAX));
        }
        self
    }

    /// All of it.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// How long something has been, in seconds, by its largest unit.
pub fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// A point in time, in milliseconds since 1970, as UTC.
pub fn time(millis: i64) -> String {
    let (days, second) = (millis.div_euclid(86_400_000), millis.rem_euclid(86_400_000) / 1000);
    // Days since 1970 to a date of the Gregorian calendar, by eras of 400 years that begin in March.
    let day = days + 719_468;
    let (era, day_of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let date = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{date:02} {:02}:{:02}:{:02} UTC", second / 3600, second / 60 % 60, second % 60)
}

/// The command as a line, cut after `width` characters.
pub fn command_line(argv: &[String], width: usize) -> String {
    let words: Vec<_> = argv.iter().map(|word| shown(word)).collect();
    cut(&words.join(" "), width).into_owned()
}

/// Prints text for people to standard output: see [`shown_lines`]. A reader that went away early is no error.
pub fn print(text: &str) -> Result {
    print_to_reader(&shown_lines(text)).map(drop)
}

/// The same, and whether there may be somebody who reads on.
pub fn print_to_reader(text: &str) -> Result<bool> {
    let mut out = crate::inherited::out();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(CliError::environment(format!("writing to standard output: {error}"))),
    }
}

/// Prints JSON, indented, to standard output.
pub fn print_json(value: &impl serde::Serialize) -> Result {
    let text = serde_json::to_string_pretty(value).map_err(|error| CliError::internal(error.to_string()))?;
    print_to_reader(&format!("{}\n", json_shown(&text))).map(drop)
}

/// Prints JSON, on one line, to standard output.
pub fn print_json_line(value: &impl serde::Serialize) -> Result {
    let text = serde_json::to_string(value).map_err(|error| CliError::internal(error.to_string()))?;
    print_to_reader(&format!("{}\n", json_shown(&text))).map(drop)
}

/// JSON of the same meaning that is safe to print: what is not seen is within strings, and is written there by its number.
pub fn json_shown(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for letter in json.chars() {
        match is_unseen(letter) && letter != '\n' {
            true => letter.encode_utf16(&mut [0; 2]).iter().for_each(|unit| text.push_str(&format!("\\u{unit:04x}"))),
            false => text.push(letter),
        }
    }
    text
}

/// Says something to the person, on standard error.
pub fn say(text: &str) {
    // Nothing is left to be done if standard error is closed.
    let _ = writeln!(std::io::stderr(), "gleaner: {}", shown_lines(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_line_up() {
        let mut table = Table::new(&["NAME", "CPUS", "STATE"]);
        table.row(vec!["desk".into(), "16".into(), "ready".into()]);
        table.row(vec!["b\u{fc}ro-2".into(), "4".into(), String::new()]);
        assert_eq!(table.text("none"), "NAME    CPUS  STATE\ndesk      16  ready\nb\u{fc}ro-2     4\n");
        assert_eq!(Table::new(&["NAME"]).text("no workers"), "no workers\n");
        let mut numbers = Table::new(&["MAE"]);
        ["12.5", "1.500e-12"].iter().for_each(|number| numbers.row(vec![number.to_string()]));
        assert_eq!(numbers.text(""), "      MAE\n     12.5\n1.500e-12\n");
    }

    #[test]
    fn a_table_is_cut_where_the_terminal_ends() {
        let mut table = Table::new(&["TASK", "TIME", "PLACE", "COMMAND"]);
        let command = "gcc -O2 -c parser.c";
        table.row(["8f3a1234", "1.50 s", "a-machine-with-a-long-name", command].map(str::to_owned).to_vec());
        let whole = table.text_in("", None);
        assert!(whole.contains("a-machine-with-a-long-name  gcc -O2 -c parser.c\n"), "{whole}");
        assert_eq!(table.text_in("", Some(80)), whole, "it has room");
        let want = "TASK        TIME  PLACE            COMMAND\n8f3a1234  1.50 s  a-machine-wi...  gcc -O2 -c p...\n";
        assert_eq!(table.text_in("", Some(50)), want);
        assert!(table.text_in("", Some(3)).contains("a-mac...  gcc -..."), "no narrower");
    }

    #[test]
    fn what_others_are_called_moves_no_cursor() {
        let mut table = Table::new(&["NAME"]);
        table.row(vec!["a\u{1b}[31mb\r\nc\u{9b}1m\u{7f}".into()]);
        assert_eq!(table.text(""), "NAME\na\\u{1b}[31mb\\r\\nc\\u{9b}1m\\u{7f}\n");
        let mut facts = Facts::default();
        facts.fact("name", "a\u{1b}b\nc").fact("none", "");
        assert_eq!(facts.text(), "name          a\\u{1b}b\n              c\nnone\n");
        assert_eq!(command_line(&["a\nb".into()], 20), "a\\nb");
        let json = serde_json::to_string(&["a\u{1b}\u{9b}\u{7f}\u{e0041}\u{fc}"]).expect("plain data");
        let shown = json_shown(&json);
        assert_eq!(shown, r#"["a\u001b\u009b\u007f\udb40\udc41"#.to_owned() + "\u{fc}\"]");
        assert_eq!(serde_json::from_str::<[String; 1]>(&shown).ok(), serde_json::from_str(&json).ok());
    }

    #[test]
    fn lists_are_cut() {
        let mut facts = Facts::default();
        facts.fact("task", "8f3a").list("late", &[]).list("paths", &vec!["/x".to_string(); 22]);
        assert!(facts.text().starts_with("task          8f3a\npaths         /x\n              /x\n"));
        assert!(facts.text().ends_with("              ... and 2 more (--json shows all)\n"));
    }

    #[test]
    fn units() {
        assert_eq!([age(7), age(7199), age(172_799), age(172_800)].join(", "), "7 s, 119 min, 47 h, 2 days");
        assert_eq!(time(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(time(951_827_696_000), "2000-02-29 12:34:56 UTC");
        assert_eq!(time(-1), "1969-12-31 23:59:59 UTC");
        assert_eq!(command_line(&["gcc".into(), "-c".into(), "foo.c".into()], 10), "gcc -c ...");
    }
}

//! Errors by load and sensor, as the paper of the Network Weather Service's authors has them, beside what it has.

use super::host::{Case, SENSORS};

/// What the paper has of hosts with such a load, in per cent: load average, vmstat, hybrid. The one of table 5 is not at hand.
const PAPER: [(u8, &str, &str); 12] = [
    (1, "conundrum", "34.1 32.7 4.4"),
    (1, "conundrum-apart", "34.1 32.7 4.4"),
    (1, "kongo", "12.8 12.9 41.3"),
    (2, "conundrum", "34.0 32.6 4.3"),
    (2, "conundrum-apart", "34.0 32.6 4.3"),
    (2, "kongo", "12.8 12.8 41.0"),
    (3, "conundrum", "0.4 0.2 0.2"),
    (3, "conundrum-apart", "0.4 0.2 0.2"),
    (3, "kongo", "0.1 0.1 0.1"),
    (6, "conundrum", "3.0 7.4 10.1"),
    (6, "conundrum-apart", "3.0 7.4 10.1"),
    (6, "kongo", "2.1 1.9 28.5"),
];

/// A line of a table.
pub struct Row {
    /// Whose errors.
    pub case: Case,
    /// By sensor; none if nothing was measured.
    pub errors: [Option<f64>; SENSORS.len()],
    /// What test processes got: of full priority, and a guest.
    pub got: [Option<f64>; 2],
}

/// Tells people of it: what the errors are, and the number of the table.
pub fn tell(title: &str, number: u8, rows: &[Row]) {
    eprintln!("bench: {title} (table {number}), per cent; the paper's: load average, vmstat, hybrid");
    let heads: Vec<String> = SENSORS.iter().map(|sensor| format!("{sensor:>13}")).collect();
    eprintln!("bench: {:<26}{}  {:>6} {:>6}", "load", heads.concat(), "full", "guest");
    let percent = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{:.1}", value * 100.0));
    for Row { case, errors, got } in rows {
        let cells: Vec<String> = errors.iter().map(|error| format!("{:>13}", percent(*error))).collect();
        let is_it = |of: &&(u8, &str, &str)| case.cpu.is_some() && (of.0, of.1) == (number, case.load);
        let paper = PAPER.iter().find(is_it).map(|(_, _, text)| format!("  paper: {text}")).unwrap_or_default();
        let [full, guest] = got.map(percent);
        eprintln!("bench: {:<26}{}  {full:>6} {guest:>6}{paper}", case.name(), cells.concat());
    }
}

//! What a run of foreign suites says.

use super::{Row, Where};
use crate::report::printable;
use std::collections::BTreeMap;

/// Lines of one difference.
const DIFFERENCE_LINES_MAX: usize = 30;

/// Rows of one suite and user, counted.
#[derive(Default)]
struct Sums {
    tests: usize,
    equal: usize,
    unsteady: usize,
    here: BTreeMap<String, usize>,
    there: BTreeMap<String, usize>,
    places: [usize; 5],
}

const PLACES: [(Where, &str); 5] = [
    (Where::Elsewhere, "elsewhere"),
    (Where::CalledOff, "called off"),
    (Where::Here, "here"),
    (Where::LeftOut, "left out"),
    (Where::Unknown, "unknown"),
];

/// Counts, reasons and differences, as text.
pub fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    for ((suite, user), sums) in sums(rows) {
        text.push_str(&format!(
            "{suite} as {user}: {} tests, {} equal ({} at a later try)\n",
            sums.tests, sums.equal, sums.unsteady
        ));
        for (side, counts) in [("here", &sums.here), ("with remrun", &sums.there)] {
            let counts: Vec<String> = counts.iter().map(|(came, count)| format!("{count} {came}")).collect();
            text.push_str(&format!("  {side:12} {}\n", counts.join(", ")));
        }
        let places = PLACES.iter().zip(sums.places).filter(|(_, count)| *count > 0);
        let places: Vec<String> = places.map(|((_, name), count)| format!("{count} {name}")).collect();
        text.push_str(&format!("  {:12} {}\n", "where", places.join(", ")));
    }
    let mut reasons: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for row in rows.iter().filter(|row| !row.why.is_empty()) {
        reasons.entry((row.user, &row.why)).or_default().push(&row.test);
    }
    let mut left_out: Vec<&str> =
        rows.iter().filter(|row| row.place == Where::LeftOut).map(|row| row.test.as_str()).collect();
    left_out.sort_unstable();
    left_out.dedup();
    if !left_out.is_empty() {
        text.push_str(&format!("  left out, too long here: {}\n", left_out.join(" ")));
    }
    for ((user, why), tests) in reasons {
        text.push_str(&format!("  {user}, {} not elsewhere: {}: {}\n", tests.len(), printable(why), tests.join(" ")));
    }
    rows.iter().filter(|row| !row.is_equal()).for_each(|row| text.push_str(&difference(row)));
    text
}

/// A test as it ends, on a line.
pub fn line(row: &Row) -> String {
    let equal = if row.is_equal() { "equal" } else { "DIFFERS" };
    let place = PLACES.iter().find(|(place, _)| *place == row.place).map_or("", |(_, name)| name);
    let (here, there) = row.seconds;
    let tries = if row.tries > 1 { format!(", {} tries", row.tries) } else { String::new() };
    let came = if row.is_equal() { row.here.clone() } else { format!("{} here, {} with remrun", row.here, row.there) };
    format!(
        "{equal:7} {} {} as {}: {came} ({here:.1} s here, {there:.1} s {place}{tries})\n",
        row.suite, row.test, row.user
    )
}

/// A test that differs, as text.
pub fn difference(row: &Row) -> String {
    let mut text =
        format!("DIFFERS {} {} as {}: {} here, {} with remrun\n", row.suite, row.test, row.user, row.here, row.there);
    for line in row.said.lines().take(DIFFERENCE_LINES_MAX) {
        text.push_str(&format!("    {}\n", printable(line)));
    }
    text
}

/// The same for programs.
pub fn json(rows: &[Row]) -> serde_json::Value {
    let sums: Vec<_> = sums(rows)
        .into_iter()
        .map(|((suite, user), sums)| {
            let places: BTreeMap<&str, usize> = PLACES.iter().map(|(_, name)| *name).zip(sums.places).collect();
            serde_json::json!({"suite": suite, "user": user, "tests": sums.tests, "equal": sums.equal, "unsteady": sums.unsteady,
                "here": sums.here, "there": sums.there, "places": places})
        })
        .collect();
    serde_json::json!({"suites": sums, "tests": rows})
}

fn sums(rows: &[Row]) -> BTreeMap<(&'static str, &'static str), Sums> {
    let mut all: BTreeMap<_, Sums> = BTreeMap::new();
    for row in rows {
        let sums = all.entry((row.suite, row.user)).or_default();
        sums.tests += 1;
        sums.equal += usize::from(row.is_equal());
        sums.unsteady += usize::from(row.is_equal() && row.tries > 1);
        *sums.here.entry(row.here.clone()).or_default() += 1;
        *sums.there.entry(row.there.clone()).or_default() += 1;
        let place = PLACES.iter().position(|(place, _)| *place == row.place).unwrap_or(PLACES.len() - 1);
        sums.places[place] += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_differences() {
        let row = |test: &str, there: &str, place| Row {
            suite: "sed",
            test: test.into(),
            user: "root",
            here: "PASS".into(),
            there: there.into(),
            place,
            why: String::new(),
            tries: 1,
            seconds: (0.1, 0.2),
            said: "x".into(),
        };
        let rows = [row("a.sh", "PASS", Where::Elsewhere), row("b.sh", "FAIL", Where::Here)];
        let text = table(&rows);
        assert!(text.contains("sed as root: 2 tests, 1 equal"), "{text}");
        assert!(
            text.contains("1 elsewhere, 1 here") && text.contains("DIFFERS sed b.sh as root: PASS here, FAIL"),
            "{text}"
        );
        assert_eq!(json(&rows)["suites"][0]["equal"], 1);
    }
}

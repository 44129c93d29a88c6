//! Runs the table of cases against a client, several at a time.

use crate::case::{self, Case};
use crate::client::Client;
use crate::differential::compare;
use crate::error::Result;
use crate::report::{Report, Verdict};
use crate::several::several;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Where the cases are, in the source tree from which this was built.
pub fn cases_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")
}

/// Runs those cases whose name contains `filter`, `jobs` at a time. `client` gives the client for a case, or why there is none.
pub fn run<'a>(
    filter: &str,
    jobs: usize,
    place: &Path,
    report: &Report,
    client: impl Fn(&Case) -> std::result::Result<&'a Client, String> + Sync,
) -> Result<()> {
    let cases: Vec<Case> =
        case::read_folder(&cases_folder())?.into_iter().filter(|case| case.name.contains(filter)).collect();
    several(jobs, &cases, |_, case| {
        let started = Instant::now();
        let verdict = match client(case) {
            Ok(client) => one(case, place, client),
            Err(why) => Verdict::Skipped(why),
        };
        report.add(&case.name, verdict, started.elapsed());
    });
    Ok(())
}

fn one(case: &Case, place: &Path, client: &Client) -> Verdict {
    if let Some(program) = case.missing(&client.path()) {
        return Verdict::Skipped(format!("{program} is not installed"));
    }
    let folder: String = case.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    Verdict::of(compare(case, &place.join(folder), client))
}

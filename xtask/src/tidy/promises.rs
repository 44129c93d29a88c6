//! SPECIFICATION.md against the end-to-end suite: a test that a promise names must exist under that name, or a part of it, as
//! `--filter` takes it.

use super::Finding;
use super::sources::collect;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const FILE: &str = "SPECIFICATION.md";
/// Suites of others, by whose names their tests are introduced.
const FOREIGN: [&str; 4] = ["coreutils ", "pjdfstest ", "bash ", "sed "];

/// Compares the promises with the names of the tests.
pub fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let text = read(&root.join(FILE))?;
    let names = names(root)?;
    let is_there = |path: &str| root.join(path).exists();
    Ok(missing(&text, &names, is_there))
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut all = Vec::new();
    collect(folder, &mut all)?;
    Ok(all)
}

/// What the tests are called: by their files, by the headings in these, and by the tables in the source of the suite.
fn names(root: &Path) -> Result<BTreeSet<String>, String> {
    let mut names = BTreeSet::new();
    let stem = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    for path in files(&root.join("e2e/cases"))? {
        let titles = read(&path)?;
        names.extend(titles.lines().filter_map(|line| Some(format!("{}/{}", stem(&path), line.strip_prefix("=== ")?))));
    }
    names.extend(files(&root.join("e2e/situations"))?.iter().map(|path| format!("situation/{}", stem(path))));
    for path in files(&root.join("e2e/src"))? {
        let text = read(&path)?;
        let strings = text.split('"').map(|string| string.trim_end_matches('\\'));
        names.extend(strings.filter(|string| is_name(string) && !string.contains('\n')).map(str::to_owned));
    }
    Ok(names)
}

/// `group/…`, as tests are called.
fn is_name(word: &str) -> bool {
    let is_group = |group: &str| !group.is_empty() && group.bytes().all(|byte| byte.is_ascii_lowercase());
    word.split_once('/').is_some_and(|(group, _)| is_group(group))
}

/// What the tables say shows a promise, and is neither a test nor a file.
fn missing(text: &str, names: &BTreeSet<String>, is_there: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with('|')) {
        // The first cell is the promise.
        let shown = line.splitn(3, '|').nth(2).unwrap_or_default();
        let own =
            shown.split([';', '|']).filter(|part| !FOREIGN.iter().any(|suite| part.trim_start().starts_with(suite)));
        for word in own.flat_map(|part| part.split('`').skip(1).step_by(2)).filter(|word| is_name(word)) {
            if !names.iter().any(|name| name.contains(word)) && !is_there(word) {
                let what = format!("no test of the suite is called {word}, and no file");
                findings.push(Finding::error(Path::new(FILE), at + 1, what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_names_tests_that_there_are() {
        let names = BTreeSet::from(["streams/output closed".to_owned(), "situation/mtu-falls".to_owned()]);
        let found = |text: &str| missing(text, &names, |path| path == "docs/x.md").len();
        let good = "| `no/test` is kept | `streams/output`, `situation/mtu-falls`; `docs/x.md`, `wire` crate, `a::b`; coreutils `du/x` | |\n";
        assert_eq!(found(good), 0);
        assert_eq!(found("| it is kept | `streams/outputs`, `cases/case-21` | 2 s |\n`not/tables`\n"), 2);
    }

    #[test]
    fn the_suite_has_names() {
        let names = names(&crate::run::root()).expect("the suite");
        for wanted in ["streams/output closed", "situation/old-glibc", "contract/a drained worker", "pool/stops"] {
            assert!(names.iter().any(|name| name.contains(wanted)), "{wanted}");
        }
    }
}

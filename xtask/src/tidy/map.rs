//! ARCHITECTURE.md against the tree: every crate is on the map with its layer, and what the map names exists.

use super::Finding;
use super::layers::{Crate, rule_of};
use std::path::Path;

const FILE: &str = "ARCHITECTURE.md";

/// Compares both ways.
pub fn check(root: &Path, crates: &[Crate]) -> Result<Vec<Finding>, String> {
    let text = std::fs::read_to_string(root.join(FILE)).map_err(|error| format!("{FILE}: {error}"))?;
    Ok(compare(&text, crates, |path| root.join(path).exists()))
}

/// A row of the table of crates: `| name in backticks | layer | …`.
fn row(line: &str) -> Option<(&str, &str)> {
    let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
    let name = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
    let layer = cells.next()?;
    ["core", "shell", "edge", "house"].contains(&layer).then_some((name, layer))
}

fn compare(text: &str, crates: &[Crate], exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut error = |line: usize, what: String| findings.push(Finding::error(Path::new(FILE), line, what));
    let rows: Vec<(usize, &str, &str)> = text
        .lines()
        .enumerate()
        .filter_map(|(at, line)| row(line).map(|(name, layer)| (at + 1, name, layer)))
        .collect();
    for found in crates.iter().filter(|found| !rows.iter().any(|(_, name, _)| *name == found.name)) {
        error(0, format!("crate {} is not in the table of crates", found.name));
    }
    for (line, name, layer) in &rows {
        match rule_of(name) {
            _ if !crates.iter().any(|found| found.name == *name) => {
                error(*line, format!("the table lists {name}, which is not a crate of the workspace"));
            }
            Some(rule) if rule.layer.name() != *layer => {
                error(*line, format!("{name} is listed as {layer}, but is {}", rule.layer.name()));
            }
            _ => {}
        }
    }
    for (at, line) in text.lines().enumerate() {
        for path in line.split('`').skip(1).step_by(2).filter(|word| is_path(word)) {
            if !exists(path.trim_end_matches('/')) {
                error(at + 1, format!("{path} does not exist"));
            }
        }
    }
    findings
}

/// Whether a word in backticks names something in the tree.
fn is_path(word: &str) -> bool {
    let tops = ["crates/", "e2e/", "xtask/", "docs/", ".ci/", "testbed/", "bench/"];
    tops.iter().any(|top| word.starts_with(top)) && !word.contains([' ', '*', '{', '<', '…'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Vec<Crate> {
        let one = |name: &&str| Crate {
            name: (*name).to_owned(),
            folder: (*name).into(),
            dependencies: Vec::new(),
            dev_dependencies: Vec::new(),
        };
        names.iter().map(one).collect()
    }

    fn found(text: &str, crates: &[&str]) -> Vec<String> {
        compare(text, &named(crates), |path| path == "crates/base").into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn a_true_map_passes() {
        assert_eq!(
            found("| `base` | core | words |\nSee `crates/base` and `rename`.\n", &["base"]),
            Vec::<String>::new()
        );
    }

    #[test]
    fn both_directions_and_layers_and_paths() {
        assert!(found("nothing\n", &["base"])[0].contains("base is not in the table"));
        assert!(
            found("| `base` | core | x |\n| `gone` | shell | x |\n", &["base"])[0]
                .contains("gone, which is not a crate")
        );
        assert!(found("| `base` | shell | x |\n", &["base"])[0].contains("listed as shell, but is core"));
        assert!(found("| `base` | core | x |\n`crates/base/src/none.rs`\n", &["base"])[0].contains("does not exist"));
    }
}

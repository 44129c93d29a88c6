//! Layers: which crate may use which. The one table of it is [`CRATES`]; ARCHITECTURE.md shows the same to people.

use super::Finding;
use std::path::{Path, PathBuf};

/// Where a crate stands. Arrows point towards `Core`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// Pure: no I/O, clock, threads, randomness or async.
    Core,
    /// Owns the I/O.
    Shell,
    /// Binaries, and nothing else may use them.
    Edge,
    /// Tools of the house: not part of the product.
    House,
}

impl Layer {
    /// As it is written in ARCHITECTURE.md.
    pub fn name(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Shell => "shell",
            Self::Edge => "edge",
            Self::House => "house",
        }
    }
}

/// A crate, its layer, and the crates of ours that it may use. A new arrow is a decision: it goes in here, with a reason in the
/// commit.
pub struct Rule {
    /// Name of crate and folder.
    pub name: &'static str,
    /// Its layer.
    pub layer: Layer,
    /// Crates that it may use.
    pub uses: &'static [&'static str],
}

const fn rule(name: &'static str, layer: Layer, uses: &'static [&'static str]) -> Rule {
    Rule { name, layer, uses }
}

/// Every crate of the workspace.
pub const CRATES: &[Rule] = &[
    rule("base", Layer::Core, &[]),
    rule("mirror", Layer::Core, &["base"]),
    rule("tasks", Layer::Core, &["base"]),
    rule("sched", Layer::Core, &[]),
    rule("sim", Layer::Core, &["sched"]),
    rule("wire", Layer::Shell, &["base"]),
    rule("store", Layer::Shell, &["base"]),
    rule("hub", Layer::Shell, &["base", "mirror", "sched", "tasks", "wire", "store"]),
    rule("worker", Layer::Shell, &["base", "mirror", "sched", "wire", "store"]),
    rule("client", Layer::Shell, &["base", "mirror", "wire", "store"]),
    rule("gleaner_client", Layer::Shell, &["base"]),
    rule("libgleaner", Layer::Edge, &["base", "gleaner_client"]),
    rule("cli", Layer::Edge, &["base", "sched", "sim", "wire", "store", "hub", "worker", "client", "gleaner_client"]),
    rule("e2e", Layer::House, &["base", "gleaner_client", "sched", "tasks", "testbed", "wire", "worker"]),
    rule("parsers", Layer::House, &["base", "cli", "client", "mirror", "store", "tasks", "wire"]),
    rule("testbed", Layer::House, &[]),
    rule("xtask", Layer::House, &[]),
];

/// Arrows that only tests take: who tests against whom.
const TESTS_USE: &[(&str, &str)] = &[("worker", "client"), ("wire", "testbed"), ("store", "testbed")];

/// What core crates may use of others' crates: computation only.
const CORE_MAY_USE: &[&str] = &["blake3", "thiserror"];
/// And in their tests.
const CORE_TESTS_MAY_USE: &[&str] = &["proptest"];

/// A crate as its Cargo.toml has it.
#[derive(Clone, Debug)]
pub struct Crate {
    /// Its name.
    pub name: String,
    /// Its folder, from the root of the tree.
    pub folder: PathBuf,
    /// Names under `dependencies` and `build-dependencies`, also of single targets.
    pub dependencies: Vec<String>,
    /// Names under `dev-dependencies`.
    pub dev_dependencies: Vec<String>,
}

/// Reads the members of the workspace.
pub fn read(root: &Path) -> Result<Vec<Crate>, String> {
    let workspace = parse(&root.join("Cargo.toml"))?;
    let members = workspace.get("workspace").and_then(|table| table.get("members")).and_then(toml::Value::as_array);
    let mut crates = Vec::new();
    for member in members.ok_or("Cargo.toml has no workspace.members")?.iter().filter_map(toml::Value::as_str) {
        let folders = match member.strip_suffix("/*") {
            None => vec![PathBuf::from(member)],
            Some(parent) => {
                let entries = std::fs::read_dir(root.join(parent)).map_err(|error| format!("{parent}: {error}"))?;
                entries.flatten().map(|entry| Path::new(parent).join(entry.file_name())).collect()
            }
        };
        for folder in folders {
            let manifest = parse(&root.join(&folder).join("Cargo.toml"))?;
            crates.push(from_manifest(folder, &manifest)?);
        }
    }
    crates.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(crates)
}

fn parse(path: &Path) -> Result<toml::Value, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    text.parse::<toml::Table>().map(toml::Value::Table).map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads one manifest.
pub fn from_manifest(folder: PathBuf, manifest: &toml::Value) -> Result<Crate, String> {
    let name = manifest.get("package").and_then(|package| package.get("name")).and_then(toml::Value::as_str);
    let name = name.ok_or_else(|| format!("{}: no package.name", folder.display()))?.to_owned();
    let mut found = Crate { name, folder, dependencies: Vec::new(), dev_dependencies: Vec::new() };
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let tables = std::iter::once(manifest).chain(targets.into_iter().flat_map(|targets| targets.values()));
    for table in tables {
        for (key, dev) in [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)] {
            let Some(listed) = table.get(key).and_then(toml::Value::as_table) else { continue };
            let list = if dev { &mut found.dev_dependencies } else { &mut found.dependencies };
            // A renamed dependency counts by its true name.
            list.extend(
                listed
                    .iter()
                    .map(|(name, value)| value.get("package").and_then(toml::Value::as_str).unwrap_or(name).to_owned()),
            );
        }
    }
    Ok(found)
}

/// The rule for a crate.
pub fn rule_of(name: &str) -> Option<&'static Rule> {
    CRATES.iter().find(|rule| rule.name == name)
}

/// Every dependency must be an arrow of the table.
pub fn check(crates: &[Crate]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for found in crates {
        let file = found.folder.join("Cargo.toml");
        let mut error = |what: String| findings.push(Finding::error(&file, 0, what));
        let Some(rule) = rule_of(&found.name) else {
            error(format!("crate {} has no layer: add it to xtask/src/tidy/layers.rs and ARCHITECTURE.md", found.name));
            continue;
        };
        for (name, dev) in found
            .dependencies
            .iter()
            .map(|name| (name, false))
            .chain(found.dev_dependencies.iter().map(|name| (name, true)))
        {
            match rule_of(name) {
                Some(_) if dev && TESTS_USE.contains(&(found.name.as_str(), name.as_str())) => {}
                Some(target)
                    if target.layer > rule.layer || (target.layer == Layer::Edge && rule.layer == Layer::Edge) =>
                {
                    let (from, to) = (rule.layer.name(), target.layer.name());
                    error(format!("{} ({from}) uses {name} ({to}): arrows point from shell to core", found.name));
                }
                Some(_) if !rule.uses.contains(&name.as_str()) => {
                    error(format!(
                        "{} uses {name}: a new arrow; allow it in xtask/src/tidy/layers.rs, or do without",
                        found.name
                    ));
                }
                Some(_) => {}
                None if rule.layer == Layer::Core => {
                    let allowed =
                        CORE_MAY_USE.contains(&name.as_str()) || (dev && CORE_TESTS_MAY_USE.contains(&name.as_str()));
                    if !allowed {
                        error(format!(
                            "{} (core) uses the crate {name}, which is not known to be free of I/O",
                            found.name
                        ));
                    }
                }
                None => {}
            }
        }
    }
    for rule in CRATES.iter().filter(|rule| !crates.iter().any(|found| found.name == rule.name)) {
        let file = Path::new("xtask/src/tidy/layers.rs");
        findings.push(Finding::error(file, 0, format!("the table lists {}, which is not in the workspace", rule.name)));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(name: &str, text: &str) -> Vec<String> {
        let manifest = text.parse::<toml::Table>().map(toml::Value::Table).unwrap();
        let found = from_manifest(PathBuf::from(name), &manifest).unwrap();
        check(&[found])
            .into_iter()
            .map(|finding| finding.what)
            .filter(|what| !what.contains("not in the workspace"))
            .collect()
    }

    #[test]
    fn the_table_itself_points_from_shell_to_core() {
        for rule in CRATES {
            for used in rule.uses {
                let target = rule_of(used).unwrap();
                let among_tools = rule.layer == Layer::House && target.layer == Layer::House;
                // What a program of the product reads is attacked by a tool of the house.
                let is_attacked = rule.name == "parsers" && target.layer == Layer::Edge;
                let inward = target.layer <= rule.layer && (target.layer < Layer::Edge || is_attacked);
                assert!(inward || among_tools, "{} uses {used}", rule.name);
            }
        }
    }

    #[test]
    fn a_core_that_uses_a_shell_is_found() {
        let found = sample(
            "mirror",
            "[package]\nname = \"mirror\"\n[dependencies]\nbase.workspace = true\nwire.workspace = true\n",
        );
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("mirror (core) uses wire (shell)"));
    }

    #[test]
    fn so_is_one_in_tests_under_another_name_or_for_one_target() {
        let dev = sample(
            "base",
            "[package]\nname = \"base\"\n[dev-dependencies]\nx = { path = \"../store\", package = \"store\" }\n",
        );
        assert!(dev[0].contains("base (core) uses store (shell)"), "{dev:?}");
        let target = sample("base", "[package]\nname = \"base\"\n[target.'cfg(unix)'.dependencies]\ntokio = \"1\"\n");
        assert!(target[0].contains("the crate tokio"), "{target:?}");
    }

    #[test]
    fn new_arrows_and_unknown_crates_are_found() {
        let arrow = sample("hub", "[package]\nname = \"hub\"\n[dependencies]\nclient.workspace = true\n");
        assert!(arrow[0].contains("a new arrow"), "{arrow:?}");
        let unknown = sample("extra", "[package]\nname = \"extra\"\n");
        assert!(unknown[0].contains("has no layer"), "{unknown:?}");
    }

    #[test]
    fn what_is_allowed_is_not_found() {
        let text = "[package]\nname = \"mirror\"\n[dependencies]\nbase.workspace = true\nthiserror.workspace = true\n[dev-dependencies]\nproptest.workspace = true\n";
        assert_eq!(sample("mirror", text), Vec::<String>::new());
    }
}

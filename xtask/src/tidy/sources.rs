//! Rules for single source files: what a core may not touch, how a module opens, how long things may be.

use super::Finding;
use super::code;
use super::layers::{Crate, Layer, rule_of};
use std::path::{Path, PathBuf};

/// Longest file, in lines, and longest with a reason in [`LONGER`].
const FILE_LINES_MAX: usize = 600;
const FILE_LINES_MAX_WITH_REASON: usize = 700;
/// Files between the two, each with its reason.
const LONGER: &[(&str, &str)] = &[("crates/wire/src/message.rs", "every message of the wire, on one page")];
/// Longest function, in lines, before it is told.
const FUNCTION_LINES_MAX: usize = 70;

/// What a core may not say, and what it is.
const FORBIDDEN: &[(&str, &str)] = &[
    ("std::fs", "I/O"),
    ("std::net", "I/O"),
    ("std::io", "I/O"),
    ("std::os", "the system"),
    ("std::process", "processes"),
    ("std::env", "the environment"),
    ("std::thread", "threads"),
    ("std::sync::Mutex", "threads"),
    ("std::sync::RwLock", "threads"),
    ("std::sync::Condvar", "threads"),
    ("std::sync::Barrier", "threads"),
    ("std::sync::Once", "threads"),
    ("std::sync::OnceLock", "threads"),
    ("std::sync::LazyLock", "threads"),
    ("std::sync::mpsc", "threads"),
    ("std::sync::atomic", "threads"),
    ("std::time::Instant", "a clock"),
    ("std::time::SystemTime", "a clock"),
    ("std::time::UNIX_EPOCH", "a clock"),
    ("std::hash::RandomState", "randomness"),
    ("std::collections::hash_map::RandomState", "randomness"),
    ("std::future", "async"),
    ("std::task", "async"),
];

/// Words that stand for the same, however they were imported.
const FORBIDDEN_WORDS: &[(&str, &str)] = &[
    ("Instant", "a clock"),
    ("SystemTime", "a clock"),
    ("File", "I/O"),
    ("OpenOptions", "I/O"),
    ("TcpStream", "I/O"),
    ("UdpSocket", "I/O"),
    ("tokio", "async"),
    ("futures", "async"),
    ("async", "async"),
    ("await", "async"),
    ("rand", "randomness"),
    ("getrandom", "randomness"),
    ("rustix", "the system"),
    ("libc", "the system"),
    ("thread_local", "threads"),
    ("println", "I/O"),
    ("eprintln", "I/O"),
    ("print", "I/O"),
    ("eprint", "I/O"),
    ("dbg", "I/O"),
    ("unsafe", "unsafe code"),
];

/// Where a core has unsafe code, with the reason.
const UNSAFE: &[(&str, &str)] = &[(
    "crates/tasks/src/shapes/prefetch.rs",
    "a prefetch has no effect, and an event of the task table takes a third less with it",
)];

/// Words that are only a breach when something of them is called or imported: as names of our own they are common.
const ONLY_AS_PATH: &[&str] = &["File", "rand", "futures"];
/// Words that are only a breach as a macro.
const ONLY_AS_MACRO: &[&str] = &["println", "eprintln", "print", "eprint", "dbg", "thread_local"];

/// Checks all sources of a crate.
pub fn check(root: &Path, found: &Crate) -> Result<Vec<Finding>, String> {
    let mut files = Vec::new();
    for folder in ["src", "tests", "benches", "examples"] {
        collect(&root.join(&found.folder).join(folder), &mut files)?;
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    files.sort();
    let core = rule_of(&found.name).is_some_and(|rule| rule.layer == Layer::Core);
    let mut findings = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let relative = file.strip_prefix(root).unwrap_or(&file);
        let is_source = relative.starts_with(found.folder.join("src"));
        findings.extend(check_file(relative, &text, core && is_source));
    }
    Ok(findings)
}

/// The files in a folder, if it is there, and in those below.
pub(super) fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path = entry.map_err(|error| format!("{}: {error}", folder.display()))?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// Checks one file; `core` adds the rules of core crates.
pub fn check_file(file: &Path, text: &str, core: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = text.lines().count();
    let reason = LONGER.iter().any(|(path, _)| Path::new(path) == file);
    let limit = if reason { FILE_LINES_MAX_WITH_REASON } else { FILE_LINES_MAX };
    if lines > limit {
        findings.push(Finding::error(file, 0, format!("{lines} lines, more than {limit}: split it by subject")));
    }
    let first = text.lines().find(|line| !line.trim().is_empty() && !line.starts_with("#!")).unwrap_or("");
    if !first.starts_with("//!") {
        findings.push(Finding::error(file, 1, "opens without `//!`: say what the module is for".to_owned()));
    }
    let code = code::without_text(text);
    for (line, name, length) in code::functions(&code).into_iter().filter(|(_, _, length)| *length > FUNCTION_LINES_MAX)
    {
        let what = format!("function {name} has {length} lines, more than {FUNCTION_LINES_MAX}");
        findings.push(Finding { warning: true, ..Finding::error(file, line, what) });
    }
    if core {
        findings.extend(purity(file, &code::without_tests(&code)));
    }
    findings
}

fn purity(file: &Path, code: &str) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    let may_be_unsafe = UNSAFE.iter().any(|(path, _)| Path::new(path) == file);
    let mut add = |line: usize, word: &str, kind: &str| {
        if may_be_unsafe && word == "unsafe" {
            return;
        }
        if !findings.iter().any(|finding| finding.line == line) {
            findings.push(Finding::error(file, line, format!("{word} in a core crate: {kind} belongs in a shell")));
        }
    };
    let within = |path: &str, forbidden: &str| {
        path.strip_prefix(forbidden).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    for (line, path) in code::imports(code) {
        for (forbidden, kind) in FORBIDDEN.iter().filter(|(forbidden, _)| within(&path, forbidden)) {
            add(line, forbidden, kind);
        }
    }
    for (at, line) in code.lines().enumerate() {
        let packed: String =
            line.split_whitespace().collect::<Vec<_>>().join(" ").replace(" ::", "::").replace(":: ", "::");
        for (forbidden, kind) in FORBIDDEN {
            if packed.match_indices(forbidden).any(|(start, _)| within(&packed[start..], forbidden)) {
                add(at + 1, forbidden, kind);
            }
        }
        for (word, kind) in FORBIDDEN_WORDS.iter().filter(|(word, _)| says(&packed, word)) {
            add(at + 1, word, kind);
        }
    }
    findings
}

fn says(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = &line[start + word.len()..];
        let whole = !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
            && !after.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let as_path = !ONLY_AS_PATH.contains(&word)
            || (after.starts_with("::")
                && !line[..start].ends_with("::")
                && !matches!(after.chars().nth(2), Some('{')));
        let as_macro = !ONLY_AS_MACRO.contains(&word) || after.starts_with('!');
        whole && as_path && as_macro
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn core(text: &str) -> Vec<String> {
        check_file(Path::new("x.rs"), &format!("//! x\n{text}"), true).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn what_a_core_may_not_touch() {
        let bad = [
            "use std::fs;",
            "use std::{fmt, fs::File};",
            "use std :: net::TcpStream;",
            "fn a() { let x = std::env::var(\"A\"); }",
            "fn a() { std::thread::spawn(|| ()); }",
            "use std::time::Instant;",
            "use std::time::{Duration, SystemTime};",
            "fn now() -> u64 { Instant::now() }",
            "async fn a() {}",
            "use tokio::sync::mpsc;",
            "fn a() { rand::random::<u8>() }",
            "fn a() { let f = File::open(p); }",
            "fn a() { println!(\"x\"); }",
            "use std::sync::Mutex;",
            "fn a() { unsafe { b() } }",
        ];
        for text in bad {
            assert_eq!(core(text).len(), 1, "{text}");
        }
    }

    #[test]
    fn what_a_core_may_say() {
        let good = [
            "// std::fs is not used\nuse std::collections::BTreeMap;",
            "const A: &str = \"std::env\";",
            "#[cfg(test)]\nmod tests {\n    use std::fs;\n}",
            "enum Kind { File, Directory }\nfn f(k: Kind) -> bool { matches!(k, Kind::File) }",
            "enum K { File { a: u8 } }",
            "use std::time::Duration;",
            "fn printable(instance: u8, brand: u8) {}",
            "use std::fmt::Write;",
            "use std::sync::Arc;",
        ];
        for text in good {
            assert_eq!(core(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn openings_and_lengths() {
        let what = |text: &str| -> Vec<(String, bool)> {
            check_file(Path::new("x.rs"), text, false)
                .into_iter()
                .map(|finding| (finding.what, finding.warning))
                .collect()
        };
        assert!(what("fn a() {}\n")[0].0.contains("opens without"));
        let long = format!("//! x\n{}", "// line\n".repeat(600));
        assert!(what(&long)[0].0.contains("601 lines"));
        let function = format!("//! x\nfn a() {{\n{}}}\n", "    b();\n".repeat(70));
        assert_eq!(what(&function).len(), 1);
        assert!(what(&function)[0].1, "long functions are only told");
        assert!(what("//! x\nfn a() {}\n").is_empty());
    }
}

//! `gleaner bundle`: what somebody needs who is asked for help at night, in one file, without secrets.
//!
//! [`sources`] asks, [`machine`] looks at the kernel's files, [`redact`] leaves secrets out of whatever these found. Each wait is
//! bounded, and what cannot be had is an entry that says why: a bundle is wanted when things are broken.

mod archive;
mod machine;
mod redact;
mod sources;

use crate::args::Bundle;
use crate::config::{Config, Flags, Surroundings};
use crate::error::{CliError, Result};
use crate::render::{bytes, print_json, say, time};
use archive::Archive;
use redact::{Counts, Redactor};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The folder in the archive.
const FOLDER: &str = "gleaner-bundle";
/// Longest entry; of a longer one the end is taken.
const ENTRY_BYTES_MAX: usize = 8 << 20;

/// What an entry holds, before anything is left out.
#[derive(Debug)]
pub(super) enum Body {
    Json(Value),
    Text(String),
}

/// An entry's name and body.
pub(super) type Entry = (String, Body);

/// Gathers, leaves out, writes.
pub fn run(arguments: &Bundle) -> Result {
    let around = Surroundings::of_process();
    let flags = Flags { state_dir: arguments.state.clone(), ..Flags::default() };
    let config = Config::load(&around, flags);
    let mut redactor = redactor(arguments, &around, config.as_ref().ok());
    let entries = sources::gather(arguments, &around, config);
    let (entries, left_out) = redacted(entries, &mut redactor);
    let now_ms = wire::now_millis();
    let packed = packed(&entries, &left_out, now_ms)
        .map_err(|error| CliError::internal(format!("packing the bundle: {error}")))?;
    let written = write(arguments.file.as_deref(), now_ms, &packed)?;
    if arguments.json && written.is_some() {
        let names: Vec<&String> = entries.iter().map(|(name, _)| name).collect();
        return print_json(&json!({"file": written, "bytes": packed.len(), "entries": names, "left_out": left_out}));
    }
    let count: u64 = left_out.values().flat_map(BTreeMap::values).sum();
    let place = written.as_ref().map_or("standard output".into(), |path| path.display().to_string());
    say(&format!(
        "{} in {place}; {count} values were left out, as left-out.json in it says",
        bytes(packed.len() as u64)
    ));
    if let Some(path) = written {
        say(&format!("look through it before you pass it on: tar --zstd -xf {}", path.display()));
    }
    Ok(())
}

/// A redactor that knows the secrets of this machine and account.
fn redactor(arguments: &Bundle, around: &Surroundings, config: Option<&Config>) -> Redactor {
    let mut redactor = Redactor::default();
    for (name, value) in &around.variables {
        if redact::is_secret_variable(name, value) {
            redactor.knows(value);
        }
        redact::passwords_in_addresses(value).iter().for_each(|password| redactor.knows(password));
    }
    let dir = around.config_dir().ok();
    let files = [crate::config::CLIENT_FILE, crate::config::NODE_FILE];
    for file in files.iter().filter_map(|file| Some(dir.as_ref()?.join(file))) {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        redact::passwords_in_addresses(&text).iter().for_each(|password| redactor.knows(password));
    }
    let state = config.map(|config| config.state_dir.value.clone());
    for key in state.iter().flat_map(|state| machine::key_files(state)) {
        redactor.knows_bytes(&std::fs::read(key).unwrap_or_default());
    }
    if arguments.hide_names {
        let variable = |name: &str| around.variables.get(name).map(String::as_str);
        redactor.hide_names(variable("USER").or(variable("LOGNAME")));
    }
    redactor
}

/// The entries as they are written, and what was left out of each.
fn redacted(entries: Vec<Entry>, redactor: &mut Redactor) -> (Vec<(String, String)>, BTreeMap<String, Counts>) {
    let mut left_out = BTreeMap::new();
    let mut done = Vec::with_capacity(entries.len());
    for (name, body) in entries {
        let text = match body {
            // Plain data always has a text.
            Body::Json(value) => format!("{:#}\n", redactor.json(value)),
            Body::Text(text) => redactor.text(&text),
        };
        let name = redactor.text(&name);
        let counts = redactor.take_counts();
        if !counts.is_empty() {
            left_out.insert(name.clone(), counts);
        }
        done.push((name, text));
    }
    (done, left_out)
}

fn packed(entries: &[(String, String)], left_out: &BTreeMap<String, Counts>, now_ms: i64) -> std::io::Result<Vec<u8>> {
    let mut archive = Archive::new(Vec::new(), u64::try_from(now_ms / 1000).unwrap_or(0))?;
    let mut add = |name: &str, text: &str| archive.add(&format!("{FOLDER}/{name}"), end_of(text).as_bytes());
    add("README.txt", &readme(now_ms))?;
    add("left-out.json", &format!("{:#}\n", json!(left_out)))?;
    entries.iter().try_for_each(|(name, text)| add(name, text))?;
    archive.finish()
}

fn readme(now_ms: i64) -> String {
    format!(
        "Gleaner {}: what `gleaner bundle` found on this machine at {}.\n\n\
         {} stands in the place of what is or looks like a key, token or password, and of the arguments of\n\
         commands; left-out.json counts them by entry. Long numbers in hexadecimal are cut to 8 digits, by which\n\
         `gleaner explain` still knows a task. What could not be had is an entry with the member `error`.\n",
        env!("CARGO_PKG_VERSION"),
        time(now_ms),
        redact::LEFT_OUT
    )
}

/// As much of a text's end as an entry has room for, from the beginning of a line.
fn end_of(text: &str) -> &str {
    let Some(from) = text.len().checked_sub(ENTRY_BYTES_MAX) else { return text };
    let end = &text[text.ceil_char_boundary(from)..];
    end.split_once('\n').map_or(end, |(_, whole)| whole)
}

/// Writes the bundle for its owner alone; the file's path, unless that is standard output. An existing file stays.
fn write(file: Option<&Path>, now_ms: i64, packed: &[u8]) -> Result<Option<PathBuf>> {
    if file == Some(Path::new("-")) {
        if std::io::stdout().is_terminal() {
            return Err(CliError::user("a bundle is not for a terminal").hint("name a file, or send it through a pipe"));
        }
        let mut out = crate::inherited::out();
        let written = out.write_all(packed).and_then(|()| out.flush());
        return written.map(|()| None).map_err(|error| CliError::environment(format!("writing the bundle: {error}")));
    }
    let digits: String = time(now_ms).chars().filter(char::is_ascii_digit).collect();
    let path = file.map_or_else(|| format!("{FOLDER}-{digits}.tar.zst").into(), Path::to_owned);
    let mut out = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .map_err(|error| CliError::file("making", &path, error).hint("name another file: gleaner bundle FILE"))?;
    if let Err(error) = out.write_all(packed).and_then(|()| out.sync_all()) {
        // A part of a bundle is of no use.
        let _ = std::fs::remove_file(&path);
        return Err(CliError::file("writing", &path, error));
    }
    Ok(Some(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_entry_keeps_its_end() {
        let line = "x".repeat(1023) + "\n";
        let text = line.repeat(ENTRY_BYTES_MAX / 1024 + 2) + "the end\n";
        let end = end_of(&text);
        assert!(end.len() <= ENTRY_BYTES_MAX && end.ends_with("the end\n") && end.starts_with('x'));
        assert_eq!(end.len() % 1024, 8, "whole lines");
        assert_eq!(end_of("short"), "short");
    }

    #[test]
    fn a_bundle_replaces_no_file_and_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("b");
        assert_eq!(write(Some(&path), 0, b"x").expect("written"), Some(path.clone()));
        assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        let error = write(Some(&path), 0, b"y").expect_err("it is there");
        assert!(error.hint.is_some() && std::fs::read(&path).expect("read") == b"x", "{error}");
    }

    #[test]
    fn each_entry_says_what_it_lost() {
        let entries = vec![
            ("a.json".to_owned(), Body::Json(json!({"token": "x"}))),
            ("b.txt".to_owned(), Body::Text("nothing\n".into())),
        ];
        let (entries, left_out) = redacted(entries, &mut Redactor::default());
        assert_eq!(entries[1].1, "nothing\n");
        assert!(entries[0].1.contains(redact::LEFT_OUT));
        assert_eq!(left_out.keys().collect::<Vec<_>>(), ["a.json"]);
    }
}
